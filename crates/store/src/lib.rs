//! The durable media of the windlass log: mapped segment files, superblock, preallocation, flushing, locking.
#![deny(unsafe_code)]

pub mod disk;
mod error;
mod names;

pub use error::{DiskCall, DiskError, MediumFailed, StoreError};
