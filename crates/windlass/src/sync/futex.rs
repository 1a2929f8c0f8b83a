//! Sleeping on a word of this process, each thread with a bit by which it is woken: futex(2).

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Sleeps while the word is `looked`, until one of the bits is woken or the moment has come. May return early.
pub(crate) fn wait(word: &AtomicU32, looked: u32, bits: NonZeroU32, until: Option<&Timespec>) {
    match futex::wait_bitset(word, futex::Flags::PRIVATE, looked, until, bits) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        Err(errno) => panic!("futex(2) on a word of this process: {errno}"),
    }
}

/// Wakes at most so many of those who sleep on the word with one of these bits. How many were woken.
pub(crate) fn wake(word: &AtomicU32, bits: NonZeroU32, count_max: u32) -> usize {
    // It fails for no word of this process.
    futex::wake_bitset(word, futex::Flags::PRIVATE, count_max, bits).unwrap_or(0)
}

/// A moment as the kernel counts it.
pub(crate) fn monotonic(moment: Instant) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let left = Timespec::try_from(moment.saturating_duration_since(Instant::now())).unwrap_or_default();
    let nanos = now.tv_nsec + left.tv_nsec;
    let carry = i64::from(nanos >= 1_000_000_000);
    Timespec {
        tv_sec: now.tv_sec.saturating_add(left.tv_sec).saturating_add(carry),
        tv_nsec: nanos - carry * 1_000_000_000,
    }
}
