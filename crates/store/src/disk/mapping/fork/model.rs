//! The words of a slot that its state orders, under the model checker.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;

pub(super) type SlotBase = Word<*mut c_void>;
pub(super) type SlotBytes = Word<usize>;

/// A word whose accesses fail the test where two meet that nothing orders.
pub(super) struct Word<T>(UnsafeCell<T>);

// SAFETY: it is only reached through the tracked accesses of the model checker, which fails the test when two meet.
unsafe impl<T> Sync for Word<T> {}

impl<T: Copy> Word<T> {
    pub(super) fn new(value: T) -> Word<T> {
        Word(UnsafeCell::new(value))
    }

    pub(super) fn load(&self, _: Ordering) -> T {
        // SAFETY: the model checker fails the test if a write meets this read.
        self.0.with(|value| unsafe { *value })
    }

    pub(super) fn store(&self, value: T, _: Ordering) {
        // SAFETY: the model checker fails the test if another access meets this one.
        self.0.with_mut(|place| unsafe { *place = value });
    }
}
