//! What the store counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a store has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Flushes of log bytes.
    pub flushes: u64,
    /// Log bytes that they made durable.
    pub flushed_bytes: u64,
    /// Bytes of the pages that they covered.
    pub flushed_page_bytes: u64,
    /// Writes of the superblock, both copies counted as one.
    pub superblock_writes: u64,
    /// Segments made from new blocks. In steady state none: each is a stall that recycling should have saved (kind 19).
    pub segments_made: u64,
    /// Segments made from the blocks of released ones.
    pub segments_recycled: u64,
    /// Segments whose file was removed because enough were kept.
    pub segments_removed: u64,
    /// Released segments that can't be reused yet because somebody still holds their memory.
    pub segments_held: u64,
    /// Bytes made present ahead of the tail.
    pub populated_bytes: u64,
    /// How often making a segment failed because the disk was full.
    pub disk_full: u64,
    /// Failures to release a segment: its file stays until the next opening (kind 47).
    pub recycle_failures: u64,
    /// Bytes that everybody wrote to the block device since the log was opened, where the kernel tells.
    pub device_bytes: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Counting {
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) flushed_page_bytes: AtomicU64,
    pub(crate) superblock_writes: AtomicU64,
    pub(crate) segments_made: AtomicU64,
    pub(crate) segments_recycled: AtomicU64,
    pub(crate) segments_removed: AtomicU64,
    pub(crate) populated_bytes: AtomicU64,
    pub(crate) disk_full: AtomicU64,
    pub(crate) recycle_failures: AtomicU64,
}

impl Counting {
    /// Adds to a counter. Counters order nothing.
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, segments_held: u64, device_bytes: Option<u64>) -> Counters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            flushes: of(&self.flushes),
            flushed_bytes: of(&self.flushed_bytes),
            flushed_page_bytes: of(&self.flushed_page_bytes),
            superblock_writes: of(&self.superblock_writes),
            segments_made: of(&self.segments_made),
            segments_recycled: of(&self.segments_recycled),
            segments_removed: of(&self.segments_removed),
            segments_held,
            populated_bytes: of(&self.populated_bytes),
            disk_full: of(&self.disk_full),
            recycle_failures: of(&self.recycle_failures),
            device_bytes,
        }
    }
}
