//! Whether a thread waits and whether it was woken, in one word. No system call.

use std::sync::atomic::Ordering;

use crate::sync::AtomicU8;

const IDLE: u8 = 0;
const WAITING: u8 = 1;
const WOKEN: u8 = 2;

/// The state of a [`VerbsWaker`](crate::VerbsWaker). Any number of threads wake, one waits. Gone through by loom (`loom_tests`).
pub(crate) struct Bell {
    state: AtomicU8,
}

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell { state: AtomicU8::new(IDLE) }
    }

    /// Takes a wake that came while nobody slept: whether there was one. One load where there is none.
    pub(crate) fn take(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WOKEN && self.state.swap(IDLE, Ordering::AcqRel) == WOKEN
    }

    /// Begins a wait, unless a wake came before it. [`end`](Self::end) is due either way.
    pub(crate) fn begin(&self) -> bool {
        self.state.compare_exchange(IDLE, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends a wait: whether it was woken.
    pub(crate) fn end(&self) -> bool {
        self.state.swap(IDLE, Ordering::AcqRel) == WOKEN
    }

    /// Wakes: whether somebody sleeps who has to be rung for.
    #[must_use = "the one who waits goes on waiting"]
    pub(crate) fn wake(&self) -> bool {
        self.state.swap(WOKEN, Ordering::AcqRel) == WAITING
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
