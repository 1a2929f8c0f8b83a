//! What threads share without a lock, and how they sleep: std's and the kernel's, or the model checker's (`cfg(loom)`).

#[cfg(not(loom))]
pub(crate) mod futex;
#[cfg(loom)]
mod model;

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize},
    },
    thread, thread_local,
    time::Instant,
};

#[cfg(loom)]
pub(crate) use self::model::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Condvar, Instant, Mutex, MutexGuard, OnceLock,
    futex, thread, thread_local,
};
