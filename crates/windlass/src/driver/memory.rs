//! The log's memory as the fabric sees it, and the registered segments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_fabric::{Access, Backing, Fabric, RegisterError};
use windlass_log::Memory;
use windlass_store::disk::Disk;
use windlass_store::{MemoryError, Store};

/// A mapped segment, for registration.
#[derive(Debug)]
struct SegmentMemory(Memory);

impl windlass_fabric::Memory for SegmentMemory {
    fn len(&self) -> u64 {
        self.0.bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.0.copy_out(offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.0.copy_in(offset, from);
    }

    fn load(&self, offset: u64) -> u64 {
        self.0.load_u64(offset, Ordering::Acquire)
    }

    fn store(&self, offset: u64, word: u64) {
        self.0.store_u64(offset, word, Ordering::Release);
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        Some(self.0.words())
    }

    fn backing(&self) -> Backing {
        Backing::MappedFile
    }
}

/// A segment of the log, registered. While anybody holds one, the store does not reuse the segment's file.
pub(crate) struct Segment<F: Fabric> {
    pub(crate) memory: Memory,
    pub(crate) region: F::Region,
}

/// Why a segment can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SegmentError {
    /// Still being made.
    #[error("segment {segment} is not ready yet")]
    NotReady {
        /// Which.
        segment: u64,
    },
    #[error(transparent)]
    Store(MemoryError),
    #[error("segment {segment} can't be registered: {cause}")]
    Register { segment: u64, cause: RegisterError },
}

/// The registered segments, by number.
pub(crate) struct Segments<F: Fabric> {
    open: BTreeMap<u64, Arc<Segment<F>>>,
}

impl<F: Fabric> Segments<F> {
    pub(crate) fn new() -> Segments<F> {
        Segments { open: BTreeMap::new() }
    }

    /// The segment, mapped and registered if it is not yet.
    pub(crate) fn obtain<D: Disk>(
        &mut self,
        fabric: &F,
        store: &Store<D>,
        segment: u64,
    ) -> Result<Arc<Segment<F>>, SegmentError> {
        if let Some(open) = self.open.get(&segment) {
            return Ok(Arc::clone(open));
        }
        let memory = store.memory(segment).map_err(|error| match error {
            MemoryError::NotReady { segment } => SegmentError::NotReady { segment },
            MemoryError::Store(_) | MemoryError::Purged { .. } | MemoryError::Disk(_) => {
                SegmentError::Store(error)
            }
        })?;
        // No remote access but through windows: a region that is open itself has a key that is good on every connection.
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let region = fabric
            .register(Arc::new(SegmentMemory(memory.clone())), access)
            .map_err(|cause| SegmentError::Register { segment, cause })?;
        let opened = Arc::new(Segment { memory, region });
        self.open.insert(segment, Arc::clone(&opened));
        Ok(opened)
    }

    /// How many are registered.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Lets go of the segments below `first` that nobody else holds: no window, no posted request.
    pub(crate) fn release_below(&mut self, first: u64) {
        self.open.retain(|segment, open| *segment >= first || Arc::strong_count(open) > 1);
    }
}
