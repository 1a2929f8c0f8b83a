//! One segment: its file, and its mapping while it may be written.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use windlass_log::Memory;

use crate::disk::{Disk, DiskFile, DiskMap};

/// The mapping type of a disk.
pub(crate) type MapOf<D> = <<D as Disk>::File as DiskFile>::Map;

/// A segment whose file is open and mapped.
pub(crate) struct Segment<D: Disk> {
    pub(crate) file: D::File,
    pub(crate) map: MapOf<D>,
    /// Whether all pages were made present and writable since the file was mapped, and none was flushed since: a hint, which the kernel's own
    /// writing makes stale.
    pub(crate) present: AtomicBool,
}

impl<D: Disk> Segment<D> {
    /// The mapped bytes, header page included.
    pub(crate) fn memory(&self) -> &Memory {
        self.map.memory()
    }

    /// Whether somebody outside of the store still holds this segment, or memory in it: a producer's hand-off, a registered region, a flush.
    pub(crate) fn is_held(segment: &Arc<Segment<D>>) -> bool {
        Arc::strong_count(segment) > 1 || segment.map.is_shared()
    }
}
