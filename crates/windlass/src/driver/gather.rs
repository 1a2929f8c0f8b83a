//! Commits that ask a driver to be flushed, and a driver that lets a group of them fill before it takes its next turn.
//!
//! Invariants: a commit that asks wakes the driver, or it is one of a group that is waited for, whose last one does, or its wish is seen by the turn that follows
//! the one in which it asks: a driver sleeps only after a turn that has found nothing to do. Each side writes its word before it reads the other's, all
//! sequentially consistent. Gone through by loom (`loom_tests`).

use std::sync::atomic::Ordering;

use windlass_log::Lsn;

use crate::sync::AtomicU64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// The highest end that was asked for.
    wanted: AtomicU64,
    /// How many commits have asked to be flushed.
    arrivals: AtomicU64,
    /// Below so many of them nobody wakes the driver, which waits for a group to fill; 0 while it does not.
    gathers: AtomicU64,
}

/// What waking a group leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gathered {
    /// Commits wake the driver again once as many have asked as were woken.
    Waits,
    /// Commits wake the driver again at once.
    Goes {
        /// Some have asked meanwhile and have woken nobody: that is to be made up for.
        is_owed: bool,
    },
}

impl Gather {
    /// A commit asks for everything below `end` to be flushed. Whether the driver is to be woken for it.
    #[must_use = "the driver goes on sleeping"]
    pub(super) fn ask(&self, end: Lsn) -> bool {
        self.wanted.fetch_max(end.0, Ordering::AcqRel);
        self.arrivals.fetch_add(1, Ordering::SeqCst) + 1 >= self.gathers.load(Ordering::SeqCst)
    }

    /// Ends what [`Gather::wake_group`] began.
    pub(super) fn stop(&self) {
        self.gathers.store(0, Ordering::SeqCst);
    }

    /// Wakes a group by `wake`, which answers how many were woken. Where that many are worth waiting for they wake the driver once all have asked again.
    pub(super) fn wake_group(
        &self,
        wake: impl FnOnce() -> u64,
        is_worth: impl FnOnce(u64) -> bool,
    ) -> Gathered {
        // From here on commits that ask wake nobody.
        self.gathers.store(u64::MAX, Ordering::SeqCst);
        let before = self.arrivals.load(Ordering::SeqCst);
        let woken = wake();
        if is_worth(woken) {
            self.gathers.store(before + woken, Ordering::SeqCst);
            return Gathered::Waits;
        }
        self.stop();
        Gathered::Goes { is_owed: self.arrivals.load(Ordering::SeqCst) != before }
    }

    /// Whether the driver still waits for commits to ask. If not, [`Gather::wanted`] has what they ask for from here on.
    pub(super) fn is_waiting(&self) -> bool {
        self.arrivals.load(Ordering::SeqCst) < self.gathers.load(Ordering::SeqCst)
    }

    /// What was asked for in the tenure before counts no more.
    pub(super) fn forget(&self) {
        self.wanted.store(0, Ordering::Release);
    }

    /// The highest end that somebody waits for. To be read behind [`Gather::is_waiting`].
    pub(super) fn wanted(&self) -> Lsn {
        Lsn(self.wanted.load(Ordering::Acquire))
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
