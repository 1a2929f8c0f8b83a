//! How a thread that sleeps at a completion queue is told to look.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd};
use rustix::io::Errno;
use windlass_fabric::Woken;
#[cfg(loom)]
use windlass_fabric::model::{AtomicBool, AtomicU32};

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32};

pub(crate) const CHANGED: u32 = 1;
pub(crate) const WOKEN: u32 = 2;

/// Flags that others raise, and a descriptor that ends a sleep. A raise costs a system call only while somebody sleeps.
#[derive(Debug)]
pub(crate) struct Signal {
    flags: Flags,
    event: OwnedFd,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { flags: Flags::new(), event })
    }

    /// What a sleep has to poll first.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(crate) fn raise(&self, flag: u32) {
        if self.flags.raise(flag) {
            // It fails only when the counter is full, and then the sleep ends anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn take(&self) -> Option<Woken> {
        self.flags.take()
    }

    /// Sleeps on the event and `polled[1..]`; does nothing when a flag is up already.
    pub(crate) fn sleep(&self, polled: &mut [PollFd<'_>], timeout: Duration) -> Result<(), Errno> {
        let slept = if self.flags.begin_sleep() {
            let timeout = Timespec::try_from(timeout).ok();
            rustix::event::poll(polled, timeout.as_ref())
        } else {
            Ok(0)
        };
        self.flags.end_sleep();
        match slept {
            Ok(count) if count > 0 && !polled[0].revents().is_empty() => {
                let mut counter = [0; 8];
                // Empty when another look has taken it.
                let _ = rustix::io::read(&self.event, &mut counter);
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// The words of a [`Signal`]: who rings, and who finds a flag up. Any number of threads raise, one sleeps.
///
/// Who raises writes `raised` and then reads `sleeping`, who goes to sleep writes `sleeping` and then reads `raised`, all sequentially
/// consistent: at least one of them sees the other. Gone through by loom (`loom_tests`).
#[derive(Debug)]
struct Flags {
    raised: AtomicU32,
    sleeping: AtomicBool,
}

impl Flags {
    fn new() -> Flags {
        Flags { raised: AtomicU32::new(0), sleeping: AtomicBool::new(false) }
    }

    /// Whether the one who sleeps has to be rung for.
    #[must_use = "the one who sleeps goes on sleeping"]
    fn raise(&self, flag: u32) -> bool {
        self.raised.fetch_or(flag, Ordering::SeqCst);
        self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst)
    }

    fn take(&self) -> Option<Woken> {
        if self.raised.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.raised.swap(0, Ordering::SeqCst) {
            0 => None,
            raised if raised & WOKEN != 0 => Some(Woken::Wake),
            _ => Some(Woken::Ready),
        }
    }

    /// Whether there is no flag yet: whoever raises one from here on rings.
    fn begin_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        self.raised.load(Ordering::SeqCst) == 0
    }

    /// After [`Flags::begin_sleep`], whatever it said.
    fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
