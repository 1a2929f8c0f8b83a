//! Where a scan takes its bytes from.

use alloc::vec::Vec;

use crate::bytes::length;
use crate::{EpochHistory, Geometry, LogId, Lsn, Memory, Salt};

/// What must be known of a log to tell its records from anything else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Its segment size.
    pub geometry: Geometry,
    /// Its identity.
    pub log_id: LogId,
    /// Which epoch owns which part of it.
    pub history: EpochHistory,
}

impl Shape {
    /// The log's salts.
    #[must_use]
    pub fn salt(&self) -> Salt {
        Salt::new(self.log_id)
    }
}

/// The bytes of a log's segments: a folder read through a mapping or with `pread`, or memory.
pub trait Image {
    /// A failure to read. It is never taken for the end of the log, nor for damage (failure kind 7).
    type Error;

    /// How many bytes a scan asks for at a time, about. From memory, 16 KiB: small enough that copying a piece and going through it overlap
    /// in the processor. Where a read costs a system call, more.
    const PIECE_BYTES: u64 = 16 << 10;

    /// Fills `into` with the bytes from `lsn` on. The range never leaves a segment. They are a copy: what others write into the
    /// segment meanwhile does not change it.
    ///
    /// # Errors
    ///
    /// Whatever kept the bytes from being read.
    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, Self::Error>;

    /// The bytes from `start` on, if the image has copied them out already: how many, and a buffer with them behind [`AHEAD_HEAD`] bytes that are free for
    /// what stands before. They never leave a segment. Saves a copy, and time where another thread made it; an image need not have any.
    fn take_ahead(&mut self, start: Lsn) -> Option<(Vec<u8>, u64)> {
        let _ = start;
        None
    }

    /// Takes back the buffer of a piece, or any other that a scan has used before.
    fn give_back(&mut self, bytes: Vec<u8>) {
        drop(bytes);
    }
}

/// Free bytes in front of a piece that was copied out ahead: for the part of a record that stands in the piece before.
pub const AHEAD_HEAD: usize = 4096;

/// What became of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// All bytes are there.
    Whole,
    /// There is no such segment.
    Missing,
    /// The segment's file ends before the range does.
    Short,
}

/// An image in memory: consecutive segments, some of which may be missing.
#[derive(Clone, Debug)]
pub struct MemoryImage {
    geometry: Geometry,
    first: u64,
    segments: Vec<Option<Memory>>,
}

impl MemoryImage {
    /// An image of these segments, the first of which has number `first`.
    #[must_use]
    pub fn new(geometry: Geometry, first: u64, segments: Vec<Option<Memory>>) -> MemoryImage {
        MemoryImage { geometry, first, segments }
    }

    /// The memory of a segment.
    #[must_use]
    pub fn segment(&self, segment: u64) -> Option<&Memory> {
        let at = usize::try_from(segment.checked_sub(self.first)?).ok()?;
        self.segments.get(at)?.as_ref()
    }
}

impl Image for MemoryImage {
    type Error = core::convert::Infallible;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, Self::Error> {
        let Some(memory) = self.segment(self.geometry.segment_of(lsn)) else { return Ok(Fetched::Missing) };
        let offset = self.geometry.offset_of(lsn);
        let held = memory.bytes().saturating_sub(offset);
        if held < length(into.len()) {
            return Ok(Fetched::Short);
        }
        memory.copy_out(offset, into);
        Ok(Fetched::Whole)
    }
}
