//! Waking a thread that waits at a completion queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::bell::Bell;

struct Shared {
    bell: Bell,
    /// Readable while a wake is under way.
    event: OwnedFd,
}

/// Ends a wait at a completion queue from another thread.
#[derive(Clone)]
pub struct VerbsWaker {
    shared: Arc<Shared>,
}

impl VerbsWaker {
    pub(crate) fn new() -> io::Result<VerbsWaker> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(VerbsWaker { shared: Arc::new(Shared { bell: Bell::new(), event }) })
    }

    /// What a waiting thread polls.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Takes a wake that came while nobody slept: whether there was one. One load where there is none.
    pub(crate) fn take(&self) -> bool {
        // Nobody sleeps, so nothing was written to the descriptor.
        self.shared.bell.take()
    }

    /// Begins a wait, unless a wake came before it, which this consumes.
    pub(crate) fn begin(&self) -> bool {
        let begun = self.shared.bell.begin();
        if !begun {
            self.end();
        }
        begun
    }

    /// Ends a wait: whether it was woken.
    pub(crate) fn end(&self) -> bool {
        let woken = self.shared.bell.end();
        if woken {
            // The waker may be between its two steps: then the descriptor becomes readable later and ends one wait for nothing.
            self.quiet();
        }
        woken
    }

    /// Takes back a ring that came after its wait had ended.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
    }
}

impl windlass_fabric::Wake for VerbsWaker {
    fn wake(&self) {
        if self.shared.bell.wake() {
            // It can't fail: the counter is far from its end, since each wait that it ends reads it.
            let _ = rustix::io::write(&self.shared.event, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_fabric::Wake;

    use super::*;

    #[test]
    fn a_wake_before_the_wait_ends_it_at_once_and_once() {
        let waker = VerbsWaker::new().unwrap();
        waker.clone().wake();
        assert!(!waker.begin(), "the wake was lost");
        assert!(waker.begin(), "the wake was counted twice");
        assert!(!waker.end());
    }

    #[test]
    fn a_wake_while_nobody_sleeps_is_taken_once() {
        let waker = VerbsWaker::new().unwrap();
        assert!(!waker.take());
        waker.clone().wake();
        assert!(waker.take() && !waker.take());
        assert!(waker.begin(), "the wake was counted twice");
        assert!(!waker.end());
    }

    #[test]
    fn a_wake_during_the_wait_makes_the_descriptor_readable() {
        let waker = VerbsWaker::new().unwrap();
        assert!(waker.begin());
        waker.clone().wake();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(waker.descriptor(), &mut count), Ok(8));
        assert!(waker.end());
        assert!(waker.begin());
        assert!(!waker.end());
    }
}
