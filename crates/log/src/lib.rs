//! The bytes of the windlass log.
//!
//! What lives here: the words of the log ([`Lsn`], [`Epoch`], [`LogId`], [`MemberId`]), the layout of records, segments
//! and the superblock, their checksums and parsers, recovery's verdict over an image, the lock-free append hand-off
//! between producers and the pump, and the one type for memory that others change under us.
//!
//! What does not: no IO, no clock, no threads.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod identity;
mod lsn;

pub use identity::{Epoch, LogId, MemberId};
pub use lsn::{
    Geometry, GeometryError, HEADER_BYTES, Lsn, RECORD_ALIGN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SEGMENT_HEADER_BYTES,
};
