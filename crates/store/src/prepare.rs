//! What is done ahead of need, by a helper: segments ready before the tail arrives, pages present before a producer stores to them, released
//! segments made free, the persisted mark written down.
//!
//! Invariants: a segment gets its final name only after its blocks are really allocated and its header is durable, and is handed out only
//! after the name is durable (kinds 15, 20, 29); running out of space is an answer, never a fault of a store (kind 20).
//!
//! ```text
//!  new:  create <base>.tmp → zeros, a part in a step → flush → map ┐
//!  trimmed:  <base>.segment, mapped still ─────────────────────────┴→ rename to free-<n>
//!  free-<n> → header → flush → rename to <base>.segment → flush folder → hand out
//! ```

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_log::{FEATURES_KNOWN, Lsn, Memory, SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::counters::Counting;
use crate::disk::{Access, Disk, DiskFile, DiskMap, Errno, FilesystemClass};
use crate::error::{At, DiskCall, DiskError, StoreError};
use crate::names;
use crate::pool::{Free, NOT_NAMING};
use crate::segment::Segment;
use crate::store::{Making, Preparing, Store, UpdateError, locked};

/// The shortest stretch that is made present at a time.
const POPULATE_BYTES_MIN: u64 = 256 << 10;
const PAGE_BYTES: u64 = 4096;
/// How much of a new file is made in one step.
const ALLOCATE_BYTES: u64 = 4 << 20;
/// A tail that moved by so much between two looks goes through its segments fast enough to find them as it left them.
const PRESENT_PACE_BYTES: u64 = 4 << 20;
/// Segments are ready for so many looks of the helper at the tail's pace, if there are free ones.
const PACE_LOOKS: u64 = 16;
/// A segment's first page, which holds its header.
const HEADER_PAGE: usize = 4096;
// A segment under the model checker is smaller than a page.
#[cfg(not(loom))]
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
    /// A part of a new file was made; a segment is made of it once it is whole.
    Allocated {
        /// Bytes of the part.
        bytes: u64,
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
        preparing.notice(tail);
        if let Some((segment, memory)) = self.made_before(&mut preparing) {
            return Ok(Prepared::Segment { segment, memory });
        }
        if let Some(persisted) = self.write_mark()? {
            return Ok(Prepared::Marked { persisted });
        }
        if let Some(upto) = self.populate(&mut preparing, tail)? {
            self.see_name()?;
            return Ok(Prepared::Populated { upto });
        }
        self.cool();
        let segments = self.recycle()?;
        if segments > 0 {
            return Ok(Prepared::Recycled { segments });
        }
        let ahead = self.options.segments_ahead.max(1);
        let last = self.geometry.segment_of(tail) + ahead;
        // Whatever is mapped below was opened again to be read, and says nothing of where the log goes on.
        let first = self.geometry.segment_of(self.persisted().lsn());
        // The first that is not open, and not the one behind the last: of a damaged log a segment may be missing before others that are there.
        let open = self.segments();
        let next = (first..).zip(open.range(first..)).take_while(|(next, (number, _))| next == *number);
        let next = next.last().map_or(first, |(last, _)| last + 1);
        drop(open);
        // So that each has the length of a few looks, however fast the tail moves. Segments that are free anyway, never new ones.
        let wanted = self.geometry.segment_of(Lsn(tail.0 + preparing.pace * PACE_LOOKS));
        let more = wanted.min(self.geometry.segment_of(tail) + self.options.segments_ahead_max.max(ahead));
        if next <= last.max(more) {
            let made = self.reuse_segments(next..=last.max(more))?;
            preparing.made.extend(made);
            if preparing.made.is_empty() && next <= last && self.is_there(next) {
                self.make_segment(next)?;
                preparing.made.push_back(next);
            }
            if let Some((segment, memory)) = self.made_before(&mut preparing) {
                self.restore_reserve();
                return Ok(Prepared::Segment { segment, memory });
            }
        }
        if next <= last || preparing.making.is_some() {
            let bytes = self.make_file_part(&mut preparing, next)?;
            return Ok(Prepared::Allocated { bytes });
        }
        Ok(Prepared::Idle)
    }

    /// Whether making this segment takes no new file: there is a free one, or the segment itself.
    fn is_there(&self, segment: u64) -> bool {
        !locked(&self.pool).free.is_empty()
            || self.disk.open(&names::segment(self.geometry, segment), Access::Read).is_ok()
    }

    /// Makes the next part of a new file of really allocated zeros, for want of one for segment `number`; with the last part it becomes a free file. Answers the bytes
    /// of the part.
    ///
    /// In parts, because all of it takes longer than producers take to fill a segment: meanwhile the helper has to look after the log, and trimmed
    /// segments may come back.
    fn make_file_part(&self, preparing: &mut Preparing<D>, number: u64) -> Result<u64, PrepareError> {
        let Making { number, file, done } = match preparing.making.take() {
            Some(making) => making,
            None => Making { number, file: self.new_file(number)?, done: 0 },
        };
        let part = done..(done + ALLOCATE_BYTES).min(self.geometry.segment_bytes());
        let bytes = part.end - part.start;
        let end = part.end;
        self.fill_part(number, &file, part)?;
        if end < self.geometry.segment_bytes() {
            preparing.making = Some(Making { number, file, done: end });
            return Ok(bytes);
        }
        let made = names::temporary(self.geometry, number);
        self.sync_new_file(&file, &made)?;
        let segment = self.map_segment(file, &made)?;
        let mut pool = locked(&self.pool);
        let free = pool.number_unused();
        self.disk.rename(&made, &names::free(free)).at(DiskCall::Rename, self.disk.path(), &made)?;
        pool.free.push(Free { number: free, open: Some(segment) });
        Ok(bytes)
    }

    /// The next segment that was made and not yet answered.
    fn made_before(&self, preparing: &mut Preparing<D>) -> Option<(u64, Memory)> {
        while let Some(segment) = preparing.made.pop_front() {
            // A cut may have closed it since.
            let found = self.segments().get(&segment).map(|made| made.memory().clone());
            if let Some(memory) = found {
                return Some((segment, memory));
            }
        }
        None
    }

    /// Writes the persisted mark down once it is half a segment behind: with a device that keeps up it trails by less than one, which bounds the work of R-11.
    fn write_mark(&self) -> Result<Option<Lsn>, UpdateError> {
        let persisted = self.persisted().lsn().min(Lsn(self.mark_max.load(Ordering::Acquire)));
        let marked = locked(&self.superblock).now.persisted;
        if persisted.0 < marked.0.saturating_add(self.geometry.segment_bytes() / 2) {
            return Ok(None);
        }
        self.rewrite(|superblock| superblock.persisted = superblock.persisted.max(persisted))?;
        Ok(Some(persisted))
    }

    /// Makes the pages ahead of the tail present: twice as many bytes as the tail moved since the last stretch, within bounds, as each such page is
    /// dirty and will be written once by the kernel whether or not a record comes to lie in it.
    fn populate(&self, preparing: &mut Preparing<D>, tail: Lsn) -> Result<Option<Lsn>, StoreError> {
        let moved = tail.0.saturating_sub(preparing.tail_before.0);
        let max = self.options.populate_bytes_max.max(POPULATE_BYTES_MIN);
        let stretch = moved.saturating_mul(2).clamp(POPULATE_BYTES_MIN, max);
        let from = preparing.populated.max(tail);
        // Wait until half of the stretch is used up.
        if from.0 >= tail.0.saturating_add(stretch / 2) {
            return Ok(None);
        }
        let number = self.geometry.segment_of(from);
        let Some(segment) = self.segments().get(&number).cloned() else { return Ok(None) };
        // Even to walk over pages that are there costs a fifth of filling them. A segment that comes round again within a second or so finds
        // them as it left them; for one that takes longer the kernel may have written them meanwhile, and the next store to each is a fault.
        if moved >= PRESENT_PACE_BYTES && segment.present.load(Ordering::Relaxed) {
            preparing.populated = self.geometry.base(number + 1);
            preparing.tail_before = tail;
            return Ok(None);
        }
        let start = self.geometry.offset_of(from) / PAGE_BYTES * PAGE_BYTES;
        let end = (start + stretch).min(self.geometry.segment_bytes());
        segment.file.will_need(start..end);
        if self.populate_part(number, &segment, start..end)? {
            Counting::add(&self.counting.populated_bytes, end - start);
            if end == self.geometry.segment_bytes() {
                // And what lies before, this or the producers' stores have made present.
                segment.present.store(true, Ordering::Relaxed);
            }
        }
        preparing.populated = Lsn(self.geometry.base(number).0 + end);
        preparing.tail_before = tail;
        Ok(Some(preparing.populated))
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

    /// Makes as many of these segments ready as there are free files that are still mapped, with one flush of the folder for all. Answers their numbers,
    /// from the first one on without a gap; none if there is no such file, or a segment of that name is there already.
    ///
    /// A crash in between leaves some with their final name, each whole, and the rest free.
    fn reuse_segments(&self, numbers: RangeInclusive<u64>) -> Result<Vec<u64>, PrepareError> {
        let mut made = Vec::new();
        for number in numbers {
            let name = names::segment(self.geometry, number);
            match self.disk.open(&name, Access::Read) {
                Err(Errno::NOENT) => {}
                // Whoever makes this one alone finds out what it is.
                Ok(_) | Err(_) => break,
            }
            let Some((free, segment)) = locked(&self.pool).take_mapped() else { break };
            made.push((number, free, segment));
        }
        let mut named = 0;
        let mut result = Ok(());
        for (number, free, segment) in &made {
            result = self.write_segment_header(*number, &names::free(*free), segment);
            if result.is_err() {
                break;
            }
        }
        if let (Some((first, ..)), Some((last, ..))) = (made.first(), made.last()) {
            locked(&self.pool).naming = *first..=*last;
        }
        for (number, free, _) in made.iter().filter(|_| result.is_ok()) {
            let (from, to) = (names::free(*free), names::segment(self.geometry, *number));
            let renamed = self.disk.rename(&from, &to).at(DiskCall::Rename, self.disk.path(), &to);
            if let Err(error) = renamed {
                result = Err(error.into());
                break;
            }
            named += 1;
        }
        let unused = made.split_off(named);
        let mut pool = locked(&self.pool);
        pool.live += named as u64;
        pool.free.extend(unused.into_iter().map(|(_, number, open)| Free { number, open: Some(open) }));
        if named == 0 {
            pool.naming = NOT_NAMING;
        }
        drop(pool);
        if named == 0 {
            return result.map(|()| Vec::new());
        }
        self.disk
            .sync_folder()
            .at(DiskCall::SyncFolder, self.disk.path(), "")
            .map_err(|error| self.fail(error))?;
        self.named();
        let mut segments = self.segments_mut();
        Ok(made
            .into_iter()
            .map(|(number, _, segment)| {
                // Somebody who asked for its memory may have opened it since its name is durable.
                segments.entry(number).or_insert(segment);
                number
            })
            .collect())
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
            Err(error) => return Err(self.no_room(number, error)),
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
                // Somebody who asked for its memory may have opened it since its name is durable.
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
        self.write_segment_header(number, made, segment)?;
        locked(&self.pool).naming = number..=number;
        let renamed = self.disk.rename(made, name).at(DiskCall::Rename, folder, name);
        if renamed.is_ok() {
            // After a failure it stays as it is, and so does the store.
            let synced = self.disk.sync_folder().at(DiskCall::SyncFolder, folder, name);
            synced.map_err(|error| self.fail(error))?;
        }
        self.named();
        Ok(renamed?)
    }

    /// The names that segments just got are durable.
    fn named(&self) {
        locked(&self.pool).naming = NOT_NAMING;
    }

    /// Writes the header of segment `number` into a file that is still called `made`. Durable when it returns.
    fn write_segment_header(
        &self,
        number: u64,
        made: &str,
        segment: &Segment<D>,
    ) -> Result<(), PrepareError> {
        let folder = self.disk.path();
        write_header::<D>(&segment.file, self.header(number)).at(DiskCall::Write, folder, made)?;
        let flushed = segment.map.flush_range(0..SEGMENT_HEADER_BYTES);
        flushed.at(DiskCall::FlushRange, folder, made).map_err(|error| self.fail(error))?;
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
        let file = self.new_file(number)?;
        self.fill_part(number, &file, 0..self.geometry.segment_bytes())?;
        self.sync_new_file(&file, &names::temporary(self.geometry, number))?;
        Ok(file)
    }

    /// An empty file under the segment's temporary name.
    fn new_file(&self, number: u64) -> Result<D::File, DiskError> {
        let name = names::temporary(self.geometry, number);
        let folder = self.disk.path();
        // Left by a step that failed.
        match self.disk.remove(&name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => {
                return Err(DiskError { call: DiskCall::Remove, file: folder.join(&name), errno });
            }
        }
        self.disk.create(&name).at(DiskCall::Create, folder, &name)
    }

    /// Fills a part of a new file. If that fails the file is gone.
    fn fill_part(&self, number: u64, file: &D::File, part: Range<u64>) -> Result<(), PrepareError> {
        let name = names::temporary(self.geometry, number);
        let filled = file.allocate_part(part, self.geometry.segment_bytes());
        let Err(error) = filled.at(DiskCall::Allocate, self.disk.path(), &name) else { return Ok(()) };
        let _ = self.disk.remove(&name);
        Err(self.no_room(number, error))
    }

    /// Why segment `number` can't be made or filled. On a full disk the reserve is given back.
    fn no_room(&self, number: u64, error: DiskError) -> PrepareError {
        if !error.is_full() {
            return error.into();
        }
        Counting::add(&self.counting.disk_full, 1);
        let reserve_given_back = self.disk.remove(names::RESERVE).is_ok();
        PrepareError::Full {
            segment: number,
            segment_bytes: self.geometry.segment_bytes(),
            reserve_given_back,
        }
    }

    /// The zeros too, so that no later flush changes metadata.
    fn sync_new_file(&self, file: &D::File, name: &str) -> Result<(), StoreError> {
        file.sync().at(DiskCall::Sync, self.disk.path(), name).map_err(|error| self.fail(error))?;
        Counting::add(&self.counting.segments_made, 1);
        Ok(())
    }

    /// Makes the reserve again after it was given back. A full disk leaves it for later.
    pub(crate) fn restore_reserve(&self) {
        make_reserve(&self.disk);
    }
}

/// Makes the reserve file if there is none and there is room; whether it is there. One that is too short, as after a loss of power, or has holes, as in a sparse copy, holds nothing back: it is made anew.
pub(crate) fn make_reserve<D: Disk>(disk: &D) -> bool {
    // Where a filesystem compresses, itself or the one below it, a whole file takes fewer blocks.
    let tells_holes = disk.filesystem().is_ok_and(|filesystem| match filesystem.class() {
        FilesystemClass::Local | FilesystemClass::Memory | FilesystemClass::Unknown => true,
        FilesystemClass::Layered | FilesystemClass::CopyOnWrite | FilesystemClass::Network => false,
    });
    let has_room = |file: D::File| {
        let is_whole = |bytes: Result<u64, Errno>| bytes.is_ok_and(|bytes| bytes >= RESERVE_BYTES);
        is_whole(file.len_bytes()) && (!tells_holes || is_whole(file.allocated_bytes()))
    };
    if disk.open(names::RESERVE, Access::Read).is_ok_and(has_room) {
        return true;
    }
    // First, for its room; an error shows in what comes next.
    let _ = disk.remove(names::RESERVE);
    let _ = disk.remove(names::RESERVE_TMP);
    let made = disk.create(names::RESERVE_TMP).and_then(|file| {
        file.allocate(RESERVE_BYTES)?;
        file.sync()
    });
    let is_made = made.is_ok() && disk.rename(names::RESERVE_TMP, names::RESERVE).is_ok();
    if !is_made {
        let _ = disk.remove(names::RESERVE_TMP);
    }
    is_made
}

/// Writes a segment's first page; durable after a flush.
pub(crate) fn write_header<D: Disk>(file: &D::File, header: SegmentHeader) -> Result<(), Errno> {
    let mut page = [0; HEADER_PAGE];
    let bytes = header.encode();
    page[..bytes.len()].copy_from_slice(&bytes);
    file.write_at(&page, 0)
}
