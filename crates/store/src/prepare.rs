//! What is done ahead of need, by a helper: segments ready before the tail arrives, pages present before a producer stores to them, released
//! segments made free, the persisted mark written down.
//!
//! Invariants: a segment gets its final name only after its blocks are really allocated and its header is durable, and is handed out only
//! after the name is durable (kinds 15, 20, 29); running out of space is an answer, never a fault of a store (kind 20).
//!
//! ```text
//!  new:      create <base>.tmp → zeros → header → flush ┐
//!                                                       ├→ rename to <base>.segment → flush folder → map → hand out
//!  recycled:          free-<n>        →   header → flush ┘
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_log::{FEATURES_KNOWN, Lsn, Memory, SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::counters::Counting;
use crate::disk::{Access, Disk, DiskFile, DiskMap, Errno};
use crate::error::{At, DiskCall, DiskError, StoreError};
use crate::names;
use crate::pool::Free;
use crate::segment::Segment;
use crate::store::{Preparing, Store, UpdateError, locked};

/// The shortest stretch that is made present at a time.
const POPULATE_BYTES_MIN: u64 = 256 << 10;
const PAGE_BYTES: u64 = 4096;
/// A segment's first page, which holds its header.
const HEADER_PAGE: usize = 4096;
const _: () = assert!(HEADER_PAGE as u64 == SEGMENT_HEADER_BYTES);
/// What the reserve file holds back.
pub(crate) const RESERVE_BYTES: u64 = 256 << 10;

/// What one step did.
#[derive(Clone, Debug)]
pub enum Prepared {
    /// A segment is ready: install its memory in the append hand-off, or grant it.
    Segment {
        /// Its number.
        segment: u64,
        /// Its bytes, header page included.
        memory: Memory,
    },
    /// Pages up to here are present and writable.
    Populated {
        /// The first LSN that is not.
        upto: Lsn,
    },
    /// The persisted mark was written down.
    Marked {
        /// The mark.
        persisted: Lsn,
    },
    /// Released segments were made free or removed.
    Recycled {
        /// How many.
        segments: u64,
    },
    /// Nothing is due. Call again when the tail has moved by a quarter of a segment, the log was trimmed or a step failed.
    Idle,
}

/// Why a step failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrepareError {
    /// The store can't be used any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no room for the next segment. Appends go on until the ready segments are used up and then answer that they are not ready; free space, or trim, and
    /// call again: nothing else is needed (kind 22). `reserve_given_back` says whether the reserve was given back for the sake of trimming.
    #[error(
        "the disk is full, no room for segment {segment} of {segment_bytes} bytes: free some space, or trim the log"
    )]
    Full {
        /// The segment that was to be made.
        segment: u64,
        /// Its size.
        segment_bytes: u64,
        /// Whether this call gave the reserve back.
        reserve_given_back: bool,
    },
    /// A call failed that promises nothing about durability; the store is as before. Call again.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl From<UpdateError> for PrepareError {
    fn from(error: UpdateError) -> PrepareError {
        match error {
            UpdateError::Store(error) => error.into(),
            UpdateError::Encode(error) => unreachable!("a mark changes no length: {error}"),
        }
    }
}

impl<D: Disk> Store<D> {
    /// One bounded piece of the work that is done ahead of need: at most one segment is made, or one stretch of pages, or one mark. To be called by a helper
    /// thread, or by hand in a simulation, again and again until it answers [`Prepared::Idle`]. `tail` is where appends, or a primary's writes, have arrived.
    ///
    /// No lock is held that an append or a flush needs while blocks are allocated or flushed.
    ///
    /// # Errors
    ///
    /// [`PrepareError::Full`], [`PrepareError::Disk`]: call again later; [`PrepareError::Store`]: final.
    ///
    /// # Panics
    ///
    /// If [`Store::begin`] has not been called (R-6).
    pub fn prepare_step(&self, tail: Lsn) -> Result<Prepared, PrepareError> {
        self.usable()?;
        assert!(
            self.running.load(Ordering::Acquire),
            "R-6: a segment was to be made ready before `begin` cleared the clean mark"
        );
        let mut preparing = locked(&self.preparing);
        if let Some(persisted) = self.write_mark()? {
            return Ok(Prepared::Marked { persisted });
        }
        if let Some(upto) = self.populate(&mut preparing, tail) {
            return Ok(Prepared::Populated { upto });
        }
        self.cool();
        let segments = self.recycle()?;
        if segments > 0 {
            return Ok(Prepared::Recycled { segments });
        }
        let last = self.geometry.segment_of(tail) + self.options.segments_ahead.max(1);
        // Whatever is mapped below was opened again to be read, and says nothing of where the log goes on.
        let first = self.geometry.segment_of(self.persisted().lsn());
        let next = self.segments().range(first..).next_back().map_or(first, |(number, _)| number + 1);
        if next <= last {
            let memory = self.make_segment(next)?;
            self.restore_reserve();
            return Ok(Prepared::Segment { segment: next, memory });
        }
        Ok(Prepared::Idle)
    }

    /// Writes the persisted mark down once it is half a segment behind: with a device that keeps up it trails by less than one, which bounds the work of R-11.
    fn write_mark(&self) -> Result<Option<Lsn>, UpdateError> {
        let persisted = self.persisted().lsn();
        let marked = locked(&self.superblock).now.persisted;
        if persisted.0 < marked.0.saturating_add(self.geometry.segment_bytes() / 2) {
            return Ok(None);
        }
        self.rewrite(|superblock| superblock.persisted = superblock.persisted.max(persisted))?;
        Ok(Some(persisted))
    }

    /// Makes the pages ahead of the tail present: twice as many bytes as the tail moved since the last stretch, within bounds, as each such page is
    /// dirty and will be written once by the kernel whether or not a record comes to lie in it.
    fn populate(&self, preparing: &mut Preparing, tail: Lsn) -> Option<Lsn> {
        let moved = tail.0.saturating_sub(preparing.tail_before.0);
        let max = self.options.populate_bytes_max.max(POPULATE_BYTES_MIN);
        let stretch = moved.saturating_mul(2).clamp(POPULATE_BYTES_MIN, max);
        let from = preparing.populated.max(tail);
        // Wait until half of the stretch is used up.
        if from.0 >= tail.0.saturating_add(stretch / 2) {
            return None;
        }
        let number = self.geometry.segment_of(from);
        let segment = self.segments().get(&number).cloned()?;
        let start = self.geometry.offset_of(from) / PAGE_BYTES * PAGE_BYTES;
        let end = (start + stretch).min(self.geometry.segment_bytes());
        segment.file.will_need(start..end);
        // A kernel without the call, or without memory, leaves the faults to the producers.
        if segment.map.populate(start..end).is_ok() {
            Counting::add(&self.counting.populated_bytes, end - start);
        }
        preparing.populated = Lsn(self.geometry.base(number).0 + end);
        preparing.tail_before = tail;
        Some(preparing.populated)
    }

    /// Unmaps and closes segments that are persisted and that nobody holds: descriptors and maps stay bounded (kind 36).
    fn cool(&self) {
        let first = self.geometry.segment_of(self.persisted().lsn());
        let cold: Vec<u64> = self.segments().range(..first).map(|(number, _)| *number).collect();
        for number in cold {
            let mut segments = self.segments_mut();
            if segments.get(&number).is_some_and(|segment| !Segment::is_held(segment)) {
                segments.remove(&number);
            }
        }
    }

    /// Makes one segment ready, from free blocks or new ones. One that is there already is opened: the rename at the end would take its bytes away.
    pub(crate) fn make_segment(&self, number: u64) -> Result<Memory, PrepareError> {
        let name = names::segment(self.geometry, number);
        match self.open_segment(number) {
            Ok(there) => {
                let mut segments = self.segments_mut();
                return Ok(segments.entry(number).or_insert(there).memory().clone());
            }
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(error.into()),
        }
        // Left from before a cut, or made by an opening that died: the same header, and nothing in it parses (R-3, R-4).
        let free = locked(&self.pool).take_free();
        let made = match &free {
            Some(free) => names::free(free.number),
            None => names::temporary(self.geometry, number),
        };
        let open = match &free {
            None => self.allocate(number).and_then(|file| Ok(self.map_segment(file, &made)?)),
            Some(Free { open: Some(open), .. }) => Ok(Arc::clone(open)),
            Some(Free { open: None, .. }) => {
                let opened = self.disk.open(&made, Access::ReadWrite);
                let opened = opened.at(DiskCall::Open, self.disk.path(), &made);
                opened.and_then(|file| self.map_segment(file, &made)).map_err(PrepareError::from)
            }
        };
        match open.and_then(|open| self.finish_segment(number, &made, &open, &name).map(|()| open)) {
            Ok(segment) => {
                locked(&self.pool).live += 1;
                // Somebody who asked for its memory may have opened it since it has its name.
                let mut segments = self.segments_mut();
                Ok(segments.entry(number).or_insert(segment).memory().clone())
            }
            Err(error) => {
                locked(&self.pool).free.extend(free);
                Err(error)
            }
        }
    }

    /// Header, flush, name, flush. Of a recycled file only the header's page is flushed: what its former life left dirty is nobody's any more.
    fn finish_segment(
        &self,
        number: u64,
        made: &str,
        segment: &Segment<D>,
        name: &str,
    ) -> Result<(), PrepareError> {
        let folder = self.disk.path();
        write_header::<D>(&segment.file, self.header(number)).at(DiskCall::Write, folder, made)?;
        let flushed = segment.map.flush_range(0..SEGMENT_HEADER_BYTES);
        flushed.at(DiskCall::FlushRange, folder, made).map_err(|error| self.fail(error))?;
        self.disk.rename(made, name).at(DiskCall::Rename, folder, name)?;
        self.disk.sync_folder().at(DiskCall::SyncFolder, folder, name).map_err(|error| self.fail(error))?;
        Ok(())
    }

    pub(crate) fn header(&self, number: u64) -> SegmentHeader {
        SegmentHeader {
            log_id: self.log_id,
            base: self.geometry.base(number),
            segment_bytes: self.geometry.segment_bytes(),
            features: FEATURES_KNOWN,
        }
    }

    /// A new file of really allocated zeros under the segment's temporary name.
    fn allocate(&self, number: u64) -> Result<D::File, PrepareError> {
        let name = names::temporary(self.geometry, number);
        let folder = self.disk.path();
        // Left by a step that failed.
        match self.disk.remove(&name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => {
                return Err(DiskError { call: DiskCall::Remove, file: folder.join(&name), errno }.into());
            }
        }
        let made = self.disk.create(&name).at(DiskCall::Create, folder, &name).and_then(|file| {
            file.allocate(self.geometry.segment_bytes()).at(DiskCall::Allocate, folder, &name)?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                // The zeros too, so that no later flush changes metadata.
                file.sync().at(DiskCall::Sync, folder, &name).map_err(|error| self.fail(error))?;
                Counting::add(&self.counting.segments_made, 1);
                Ok(file)
            }
            Err(error) => {
                let _ = self.disk.remove(&name);
                if !error.is_full() {
                    return Err(error.into());
                }
                Counting::add(&self.counting.disk_full, 1);
                let reserve_given_back = self.disk.remove(names::RESERVE).is_ok();
                Err(PrepareError::Full {
                    segment: number,
                    segment_bytes: self.geometry.segment_bytes(),
                    reserve_given_back,
                })
            }
        }
    }

    /// Makes the reserve again after it was given back. A full disk leaves it for later.
    pub(crate) fn restore_reserve(&self) {
        make_reserve(&self.disk);
    }
}

/// Makes the reserve file if there is none and there is room; whether it is there.
pub(crate) fn make_reserve<D: Disk>(disk: &D) -> bool {
    if disk.open(names::RESERVE, Access::Read).is_ok() {
        return true;
    }
    let _ = disk.remove(names::RESERVE_TMP);
    let made = disk.create(names::RESERVE_TMP).and_then(|file| file.allocate(RESERVE_BYTES)).is_ok()
        && disk.rename(names::RESERVE_TMP, names::RESERVE).is_ok();
    if !made {
        let _ = disk.remove(names::RESERVE_TMP);
    }
    made
}

/// Writes a segment's first page; durable after a flush.
pub(crate) fn write_header<D: Disk>(file: &D::File, header: SegmentHeader) -> Result<(), Errno> {
    let mut page = [0; HEADER_PAGE];
    let bytes = header.encode();
    page[..bytes.len()].copy_from_slice(&bytes);
    file.write_at(&page, 0)
}
