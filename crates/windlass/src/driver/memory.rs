//! The log's memory as the fabric sees it, and the registered segments.
//!
//! Where a device writes into mapped files (or the folder is on a memory filesystem) a segment has one region, which is both sent from and
//! written into. Elsewhere its mapping is registered to send from alone, and an image of it is written into ([`super::staging`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use windlass_fabric::{Access, Backing, Fabric, RegisterError};
use windlass_log::{Memory, SEGMENT_HEADER_BYTES};
use windlass_store::disk::Disk;
use windlass_store::{DiskError, MemoryError, Store};

use super::staging::{Image, Staging};

/// Copied at a time between an image and its segment.
const COPY_BYTES: usize = 16 << 10;

/// A mapping, or a stretch of one, for registration.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: Memory,
    /// Where the stretch begins: a multiple of 8.
    from: u64,
    bytes: u64,
    backing: Backing,
}

impl Mapped {
    pub(crate) fn whole(memory: Memory, backing: Backing) -> Mapped {
        let bytes = memory.bytes();
        Mapped { memory, from: 0, bytes, backing }
    }

    /// # Panics
    ///
    /// If it does not begin at a word, or ends behind the memory.
    fn stretch(memory: Memory, range: Range<u64>, backing: Backing) -> Mapped {
        assert!(range.start.is_multiple_of(8) && range.start <= range.end && range.end <= memory.bytes());
        Mapped { memory, from: range.start, bytes: range.end - range.start, backing }
    }
}

impl windlass_fabric::Memory for Mapped {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.memory.copy_out(self.from + offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.memory.copy_in(self.from + offset, from);
    }

    fn load(&self, offset: u64) -> u64 {
        self.memory.load_u64(self.from + offset, Ordering::Acquire)
    }

    fn store(&self, offset: u64, word: u64) {
        self.memory.store_u64(self.from + offset, word, Ordering::Release);
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        let first = usize::try_from(self.from / 8).ok()?;
        let count = usize::try_from(self.bytes / 8).ok()?;
        self.memory.words().get(first..first.checked_add(count)?)
    }

    fn backing(&self) -> Backing {
        self.backing
    }
}

/// A segment of the log, registered as far as it was needed. While anybody holds one, the store does not reuse the segment's file.
pub(crate) struct Segment<F: Fabric> {
    /// The segment file's mapping.
    pub(crate) memory: Memory,
    /// Over the mapping.
    region: OnceLock<F::Region>,
    image: OnceLock<Image<F>>,
    /// What the mapping is, for the device.
    backing: Backing,
}

/// What a segment is to be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Looking at what arrived.
    Scan,
    /// Sending from it.
    Send,
    /// Peers write into it, or reads bring bytes into it.
    Receive,
}

impl<F: Fabric> Segment<F> {
    /// What requests send from.
    ///
    /// # Panics
    ///
    /// If the segment was not obtained to send from: a programmer's error.
    pub(crate) fn source(&self) -> &F::Region {
        self.region.get().expect("obtained to send from")
    }

    /// What peers write into and reads bring bytes into.
    ///
    /// # Panics
    ///
    /// If the segment was not obtained to receive: a programmer's error.
    pub(crate) fn target(&self) -> &F::Region {
        match self.image.get() {
            Some(image) => &image.region,
            None => self.region.get().expect("obtained to receive"),
        }
    }

    /// Registers a stretch of what peers write into, open to them by its own key as long as the region lives: for devices without windows.
    pub(crate) fn expose(
        &self,
        fabric: &F,
        range: Range<u64>,
        access: Access,
    ) -> Result<F::Region, RegisterError> {
        let (memory, backing) = match self.image.get() {
            Some(image) => (image.memory.clone(), Backing::Anonymous),
            None => (self.memory.clone(), self.backing),
        };
        fabric.register(Arc::new(Mapped::stretch(memory, range, backing)), access)
    }

    /// Copies out bytes at or above the valid tail, or of the header page, which an image does not have.
    pub(crate) fn copy_arrived(&self, offset: u64, into: &mut [u8]) {
        let Some(image) = self.image.get() else { return self.memory.copy_out(offset, into) };
        let header = usize::try_from(SEGMENT_HEADER_BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (header, records) = into.split_at_mut(header.min(into.len()));
        self.memory.copy_out(offset, header);
        image.memory.copy_out(offset + header.len() as u64, records);
    }

    /// Copies what was found valid from the image, if there is one, to the segment file's mapping. How many bytes that were.
    pub(crate) fn keep(&self, range: Range<u64>) -> u64 {
        self.image.get().map_or(0, |image| copy(&image.memory, &self.memory, range))
    }

    /// Puts bytes in place as a read that brings them would.
    pub(crate) fn bring(&self, offset: u64, bytes: &[u8]) {
        self.image.get().map_or(&self.memory, |image| &image.memory).copy_in(offset, bytes);
    }

    /// Puts bytes below the valid tail into the image, if there is one, for a peer that reads them.
    pub(crate) fn show(&self, range: Range<u64>) {
        if let Some(image) = self.image.get() {
            copy(&self.memory, &image.memory, range);
        }
    }
}

fn copy(from: &Memory, to: &Memory, range: Range<u64>) -> u64 {
    let mut bytes = [0; COPY_BYTES];
    let mut at = range.start;
    while at < range.end {
        let count = usize::try_from(range.end - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        from.copy_out(at, &mut bytes[..count]);
        to.copy_in(at, &bytes[..count]);
        at += count as u64;
    }
    range.end.saturating_sub(range.start)
}

/// The access of memory that peers write into through windows, where the device has them.
pub(crate) fn bindable(fabric: &impl Fabric) -> Access {
    if fabric.capabilities().windows {
        Access::LOCAL_WRITE | Access::WINDOW_BIND
    } else {
        Access::LOCAL_WRITE
    }
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
    #[error("the image {image} can't be registered: {cause}")]
    Image { image: String, cause: RegisterError },
    #[error("the folder of images: {0}")]
    Staging(DiskError),
}

/// The registered segments, by number.
pub(crate) struct Segments<F: Fabric, D: Disk> {
    open: BTreeMap<u64, Arc<Segment<F>>>,
    /// What the store's mappings are, for the device.
    backing: Backing,
    staging: Option<Staging<F, D>>,
}

impl<F: Fabric, D: Disk> Segments<F, D> {
    /// With a `staging`, images are written into in place of the segments.
    pub(crate) fn new(backing: Backing, staging: Option<Staging<F, D>>) -> Segments<F, D> {
        Segments { open: BTreeMap::new(), backing, staging }
    }

    /// The segment, mapped, and registered for this use if it is not yet.
    pub(crate) fn obtain(
        &mut self,
        fabric: &F,
        store: &Store<D>,
        segment: u64,
        purpose: Use,
    ) -> Result<Arc<Segment<F>>, SegmentError> {
        let opened = match self.open.entry(segment) {
            Entry::Occupied(open) => Arc::clone(open.get()),
            Entry::Vacant(place) => {
                let memory = store.memory(segment).map_err(|error| match error {
                    MemoryError::NotReady { segment } => SegmentError::NotReady { segment },
                    MemoryError::Store(_) | MemoryError::Purged { .. } | MemoryError::Disk(_) => {
                        SegmentError::Store(error)
                    }
                })?;
                let backing = self.backing;
                let made = Segment { memory, region: OnceLock::new(), image: OnceLock::new(), backing };
                Arc::clone(place.insert(Arc::new(made)))
            }
        };
        let needs_region = match purpose {
            Use::Scan => false,
            Use::Send => true,
            Use::Receive => self.staging.is_none(),
        };
        if needs_region && opened.region.get().is_none() {
            let region = self.register(fabric, segment, &opened.memory)?;
            // Nobody else sets it: the pump alone obtains segments.
            let _ = opened.region.set(region);
        }
        if let Some(staging) = &mut self.staging
            && (purpose == Use::Receive || staging.has_left(segment))
            && opened.image.get().is_none()
        {
            // As above.
            let _ = opened.image.set(staging.obtain(fabric, segment)?);
        }
        Ok(opened)
    }

    fn register(&self, fabric: &F, segment: u64, memory: &Memory) -> Result<F::Region, SegmentError> {
        // No remote access but through windows: a region that is open itself has a key that is good on every connection. A mapping that is
        // sent from alone can be pinned, also on a disk.
        let access = match self.staging {
            Some(_) => Access::NONE,
            None => bindable(fabric),
        };
        let mapped = Mapped::whole(memory.clone(), self.backing);
        fabric.register(Arc::new(mapped), access).map_err(|cause| SegmentError::Register { segment, cause })
    }

    /// Whether what arrives is in images.
    pub(crate) fn is_staged(&self) -> bool {
        self.staging.is_some()
    }

    /// The highest segment whose image the process before has left.
    pub(crate) fn last_left(&self) -> Option<u64> {
        self.staging.as_ref().and_then(|staging| staging.left().last())
    }

    /// How many are registered.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Lets go of the segments below `first` that nobody else holds: no window, no posted request.
    pub(crate) fn release_below(&mut self, first: u64) -> Result<(), SegmentError> {
        let idle = |open: &Arc<Segment<F>>| Arc::strong_count(open) == 1;
        let below: Vec<u64> =
            self.open.range(..first).filter(|(_, open)| idle(open)).map(|(number, _)| *number).collect();
        for number in below {
            let image = self.open.remove(&number).and_then(Arc::into_inner).and_then(|open| {
                let Segment { image, .. } = open;
                image.into_inner()
            });
            if let (Some(staging), Some(image)) = (&mut self.staging, image) {
                staging.release(image)?;
            }
        }
        match &mut self.staging {
            Some(staging) => staging.forget_left(first),
            None => Ok(()),
        }
    }

    /// The folder of images, if there is one. Nothing is registered after this.
    pub(crate) fn take_staging(&mut self) -> Option<D> {
        self.staging.take().map(Staging::into_disk)
    }
}
