//! The replication protocol of windlass as a sans-IO state machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
