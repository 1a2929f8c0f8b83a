//! Requests that threads leave for a driver's next turn, and none of which is left behind when the driver has ended. Gone through by loom (`loom_tests`).

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, Mutex, MutexGuard};

/// See the module.
#[derive(Debug)]
pub(super) struct Requests<T> {
    is_asked: AtomicBool,
    queue: Mutex<VecDeque<T>>,
}

impl<T> Requests<T> {
    pub(super) fn new() -> Requests<T> {
        Requests { is_asked: AtomicBool::new(false), queue: Mutex::default() }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a request and wakes the driver.
    pub(super) fn ask(&self, request: T, wake: impl FnOnce(), is_stopped: impl FnOnce() -> bool) {
        self.queue().push_back(request);
        self.is_asked.store(true, Ordering::Release);
        wake();
        if is_stopped() {
            // It came after the last look at what is asked.
            self.forget();
        }
    }

    pub(super) fn take(&self) -> Option<T> {
        if !self.is_asked.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.queue();
        let next = queue.pop_front();
        self.is_asked.store(!queue.is_empty(), Ordering::Release);
        next
    }

    /// Once the driver is stopped: who waits for an answer to one is told that none will come.
    pub(super) fn forget(&self) {
        let forgotten = std::mem::take(&mut *self.queue());
        drop(forgotten);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
