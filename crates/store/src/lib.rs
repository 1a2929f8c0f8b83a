//! The durable media of the windlass log: mapped segment files, superblock, preallocation, flushing, locking.
#![deny(unsafe_code)]
