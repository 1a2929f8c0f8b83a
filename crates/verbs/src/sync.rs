//! Atomics, or their models under the model checker.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

#[cfg(loom)]
pub(crate) use windlass_fabric::model::{AtomicBool, AtomicU8, AtomicU64};

/// Words of a slot, which other words order.
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8 as SlotU8, AtomicU64 as SlotU64};

#[cfg(loom)]
pub(crate) use slot::{SlotU8, SlotU64};

#[cfg(loom)]
mod slot {
    use std::sync::atomic::Ordering;

    use loom::cell::UnsafeCell;

    pub(crate) type SlotU8 = Slot<u8>;
    pub(crate) type SlotU64 = Slot<u64>;

    /// A word whose accesses fail the test where two meet that nothing orders.
    pub(crate) struct Slot<T>(UnsafeCell<T>);

    // SAFETY: it is only reached through the tracked accesses of the model checker, which fails the test when two meet.
    unsafe impl<T: Send> Sync for Slot<T> {}

    impl<T: Copy> Slot<T> {
        pub(crate) fn new(value: T) -> Slot<T> {
            Slot(UnsafeCell::new(value))
        }

        pub(crate) fn load(&self, _: Ordering) -> T {
            // SAFETY: the model checker fails the test if a write meets this read.
            self.0.with(|value| unsafe { *value })
        }

        pub(crate) fn store(&self, value: T, _: Ordering) {
            // SAFETY: the model checker fails the test if another access meets this one.
            self.0.with_mut(|place| unsafe { *place = value });
        }
    }
}
