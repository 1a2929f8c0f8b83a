//! The model checker's part of [`crate::sync`]: its locks, threads and words, and what it lacks, made of them: a futex, a clock, a cell that is set once.

use std::cell::Cell;
use std::ops::Add;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use windlass_fabric::model::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// The checker's, which does not know of values that are there before the program runs.
macro_rules! per_thread {
    ($vis:vis static $name:ident: $type:ty = const { $value:expr };) => {
        loom::thread_local! { $vis static $name: $type = $value; }
    };
    ($vis:vis static $name:ident: $type:ty = $value:expr;) => {
        loom::thread_local! { $vis static $name: $type = $value; }
    };
}
pub(crate) use per_thread as thread_local;

per_thread! {
    static TICKS: Cell<u64> = const { Cell::new(0) };
}

/// A moment. Each look at the clock is a nanosecond later than the thread's one before; a sleep that ends by time ends at its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(u64);

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant(TICKS.with(|ticks| ticks.replace(ticks.get() + 1)))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Instant::now().saturating_duration_since(self)
    }

    pub(crate) fn saturating_duration_since(self, before: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(before.0))
    }

    fn sleep_until(self) {
        TICKS.with(|ticks| ticks.set(ticks.get().max(self.0)));
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + u64::try_from(time.as_nanos()).expect("a model's time"))
    }
}

/// Threads, of which a sleep for a time lets others go first.
pub(crate) mod thread {
    use std::time::Duration;

    pub(crate) use loom::thread::{Thread, current, panicking, park, yield_now};

    pub(crate) fn sleep(_: Duration) {
        yield_now();
    }

    pub(crate) fn park_timeout(_: Duration) {
        yield_now();
    }
}

/// A cell that is set once: who sees it set sees what was done before.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    is_set: loom::sync::atomic::AtomicBool,
    cell: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> OnceLock<T> {
        OnceLock { is_set: loom::sync::atomic::AtomicBool::new(false), cell: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.is_set.load(Ordering::Acquire).then(|| self.cell.get().expect("set"))
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.cell.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }
}

/// The kernel's part: it compares the word and puts a thread to sleep under one lock. There is one for all words of a test.
pub(crate) mod futex {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use super::{AtomicU32, Condvar, Instant, Mutex, Ordering, thread};

    #[derive(Default)]
    struct Dormitory {
        /// Who sleeps, the longest first.
        sleepers: Vec<Sleeper>,
        arrivals: u64,
    }

    struct Sleeper {
        word: usize,
        bits: u32,
        arrival: u64,
        rung: Arc<Condvar>,
    }

    loom::lazy_static! {
        static ref DORMITORY: Mutex<Dormitory> = Mutex::default();
    }

    fn address(word: &AtomicU32) -> usize {
        std::ptr::from_ref(word).addr()
    }

    pub(crate) fn monotonic(moment: Instant) -> Instant {
        moment
    }

    pub(crate) fn wait(word: &AtomicU32, looked: u32, bits: NonZeroU32, until: Option<&Instant>) {
        let mut dormitory = DORMITORY.lock().expect("not poisoned");
        if word.load(Ordering::SeqCst) != looked {
            return;
        }
        dormitory.arrivals += 1;
        let arrival = dormitory.arrivals;
        let rung = Arc::new(Condvar::new());
        dormitory.sleepers.push(Sleeper {
            word: address(word),
            bits: bits.get(),
            arrival,
            rung: Arc::clone(&rung),
        });
        loop {
            if let Some(until) = until {
                drop(dormitory);
                thread::yield_now();
                dormitory = DORMITORY.lock().expect("not poisoned");
                if let Some(at) = dormitory.sleepers.iter().position(|sleeper| sleeper.arrival == arrival) {
                    dormitory.sleepers.remove(at);
                    until.sleep_until();
                }
                return;
            }
            dormitory = rung.wait(dormitory).expect("not poisoned");
            if dormitory.sleepers.iter().all(|sleeper| sleeper.arrival != arrival) {
                return;
            }
        }
    }

    pub(crate) fn wake(word: &AtomicU32, bits: NonZeroU32, count_max: u32) -> usize {
        let mut dormitory = DORMITORY.lock().expect("not poisoned");
        let mut woken = Vec::new();
        dormitory.sleepers.retain(|sleeper| {
            let is_woken = sleeper.word == address(word)
                && sleeper.bits & bits.get() != 0
                && woken.len() < usize::try_from(count_max).expect("fits");
            if is_woken {
                woken.push(Arc::clone(&sleeper.rung));
            }
            !is_woken
        });
        drop(dormitory);
        woken.iter().for_each(|rung| rung.notify_one());
        woken.len()
    }
}
