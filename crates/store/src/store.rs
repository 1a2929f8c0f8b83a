//! An open log folder: who holds what, and the order of its locks.
//!
//! Invariants:
//!
//! * nothing is answered before the superblock's two copies hold it, and no memory is handed out for writing before the
//!   clean mark is durably gone;
//! * after the first failure of a call that makes things durable, no call succeeds that promises durability (kind 24);
//! * a segment gets another meaning only after its last LSN is durably trimmed, and nobody holds its memory.
//!
//! Locks, in the order in which they may be taken: `preparing` → `flushing` → `vouching` → `superblock` → `pool` → `segments`; that of `rewriting` and the live mark's behind all of them. Appends take none of them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use windlass_log::{Geometry, LogId, Lsn, Memory, Superblock, SuperblockEncodeError};

use crate::counters::{Counters, Counting};
use crate::disk::{Access, Disk, DiskFile, DiskMap, Errno, FilesystemClass};
use crate::error::{At, DiskCall, DiskError, MediumFailed, StoreError};
use crate::live::LiveMarks;
use crate::names;
use crate::options::Options;
use crate::pool::Pool;
use crate::segment::Segment;
use crate::superblock;
use crate::vouch::Unvouched;

/// A page of memory, at most: stores go to one of the system's, which may be larger.
const PAGE_BYTES: u64 = 4096;

/// Proof that every byte of the log below an LSN is on this machine's medium. Only the store makes it, after a flush, and it never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Persisted(Lsn);

impl Persisted {
    pub(crate) fn new(lsn: Lsn) -> Persisted {
        Persisted(lsn)
    }

    /// The first LSN that is not covered.
    #[must_use]
    pub fn lsn(self) -> Lsn {
        self.0
    }
}

/// The superblock as it stands, and its file.
pub(crate) struct Control<D: Disk> {
    pub(crate) file: D::File,
    pub(crate) now: Superblock,
}

/// An open log folder. Share it by [`Arc`]; every method takes `&self`. DESIGN.md section 4.
pub struct Store<D: Disk> {
    pub(crate) disk: D,
    pub(crate) options: Options,
    pub(crate) geometry: Geometry,
    pub(crate) log_id: LogId,
    pub(crate) opener: u32,
    /// The machine's boot, as the caller said.
    pub(crate) boot_id: [u8; 16],
    pub(crate) lock: Mutex<Option<D::Lock>>,
    pub(crate) preparing: Mutex<Preparing<D>>,
    pub(crate) flushing: Mutex<()>,
    pub(crate) superblock: Mutex<Control<D>>,
    pub(crate) live: LiveMarks<D>,
    pub(crate) pool: Mutex<Pool<D>>,
    pub(crate) segments: RwLock<BTreeMap<u64, Arc<Segment<D>>>>,
    /// Everything below is persisted. Stored with release ordering after the flush.
    pub(crate) persisted: AtomicU64,
    /// Everything below is released. Stored with release ordering once it is durable, before any segment is reused.
    pub(crate) trimmed: AtomicU64,
    /// Segments with lower numbers are released: in the pool, or gone.
    pub(crate) released_below: AtomicU64,
    /// Where the files end that a process before has left behind the tail, in this boot and without a clean end; else the tail.
    pub(crate) left_end: Lsn,
    /// [`Store::take_over`].
    pub(crate) taken_over: AtomicU64,
    /// Held for each piece that a flush writes again, and to give the folder up: behind that nothing is written.
    pub(crate) rewriting: Mutex<()>,
    pub(crate) running: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// Damage was found below the persisted mark, and the mark lowered: a segment that was flushed may be missing.
    pub(crate) distrusted: AtomicBool,
    /// Damage that was found and is neither cut off nor trimmed yet.
    pub(crate) damaged: Mutex<Vec<Range<Lsn>>>,
    /// Where the first of it begins: the persisted mark is not written down beyond.
    pub(crate) mark_max: AtomicU64,
    pub(crate) failed: OnceLock<DiskError>,
    /// Nothing is left of the opening. Stored with release ordering once that is so.
    pub(crate) vouched: AtomicBool,
    pub(crate) vouching: Mutex<()>,
    pub(crate) unvouched: Mutex<Option<Arc<Unvouched>>>,
    pub(crate) counting: Counting,
    pub(crate) device_bytes_before: Option<u64>,
}

/// What the helper remembers between steps.
pub(crate) struct Preparing<D: Disk> {
    /// Pages below are present and writable.
    pub(crate) populated: Lsn,
    /// The tail at the last stretch.
    pub(crate) tail_before: Lsn,
    /// The tail at the last look.
    pub(crate) tail_seen: Lsn,
    /// How many bytes the tail moves from one look to the next, about: the most of late.
    pub(crate) pace: u64,
    /// Segments that were made and not yet answered, in order.
    pub(crate) made: VecDeque<u64>,
    /// A new file that is not whole yet.
    pub(crate) making: Option<Making<D>>,
}

/// A new file that is being made.
pub(crate) struct Making<D: Disk> {
    /// The segment whose temporary name it has.
    pub(crate) number: u64,
    pub(crate) file: D::File,
    /// Zeros are written up to here.
    pub(crate) done: u64,
}

impl<D: Disk> Preparing<D> {
    /// Nothing is remembered yet.
    pub(crate) fn new() -> Preparing<D> {
        Preparing {
            populated: Lsn(0),
            tail_before: Lsn(0),
            tail_seen: Lsn(0),
            pace: 0,
            made: VecDeque::new(),
            making: None,
        }
    }

    /// Learns the tail's pace.
    pub(crate) fn notice(&mut self, tail: Lsn) {
        let moved = if self.tail_seen == Lsn(0) { 0 } else { tail.0.saturating_sub(self.tail_seen.0) };
        self.tail_seen = tail;
        self.pace = moved.max(self.pace - self.pace / 16);
    }
}

/// Why the superblock was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpdateError {
    /// The store can't be used any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The new content does not fit; nothing was changed.
    #[error(transparent)]
    Encode(#[from] SuperblockEncodeError),
}

/// Why a segment's memory was not given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The store can't be used any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The segment was released by a trim.
    #[error("segment {segment} is released: the log starts at LSN {first}")]
    Purged {
        /// The segment asked for.
        segment: u64,
        /// The first LSN that is still there.
        first: Lsn,
    },
    /// The segment is not there yet: let the helper go on and ask again.
    #[error("segment {segment} is not ready yet")]
    NotReady {
        /// The segment asked for.
        segment: u64,
    },
    /// The file can't be opened or mapped.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Disk> std::fmt::Debug for Store<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shape = f.debug_struct("Store");
        shape.field("folder", &self.disk.path()).field("log_id", &self.log_id);
        shape.field("persisted", &self.persisted()).field("trimmed", &self.trimmed()).finish_non_exhaustive()
    }
}

impl<D: Disk> Store<D> {
    /// The arithmetic of this log's LSNs.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The log's identity.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// The disk under the store.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// A copy of the superblock as it is on the medium, but for a change that is being written now.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        locked(&self.superblock).now.clone()
    }

    /// How far the log is on this machine's medium, as far as is known: what an opening has left to [`Store::vouch`] does not count. Contiguous; never goes back
    /// but by [`Store::cut`].
    #[must_use]
    pub fn persisted(&self) -> Persisted {
        Persisted(Lsn(self.persisted.load(Ordering::Acquire)))
    }

    /// The first LSN that is retained.
    #[must_use]
    pub fn trimmed(&self) -> Lsn {
        Lsn(self.trimmed.load(Ordering::Acquire))
    }

    /// What the store has done since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let device = self.disk.device_written_bytes().zip(self.device_bytes_before);
        let held = locked(&self.pool).held();
        self.counting.read(held, device.map(|(now, before)| now.saturating_sub(before)))
    }

    /// The first failure that ended this opening, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<MediumFailed> {
        self.failed.get().map(|cause| MediumFailed { cause: cause.clone() })
    }

    /// Changes the superblock: for promises, histories, the configuration, the marks of replication. Both copies are written, one flush after the
    /// other; durable when it returns. Generation, log id, geometry and the store's own marks (trimmed, persisted, clean, boot id, place) keep their values.
    ///
    /// # Errors
    ///
    /// [`UpdateError::Encode`]: the configuration is too large; nothing changed. [`UpdateError::Store`]: the log can't be used any more; whether
    /// the change will be there after the next opening is unknown.
    ///
    /// # Panics
    ///
    /// If the promise goes back, or is below an epoch of the history: a defect of the caller.
    pub fn update(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), UpdateError> {
        self.rewrite(|superblock| crate::trim::keep_own(superblock, change))
    }

    /// [`Store::update`], of any field.
    pub(crate) fn rewrite(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), UpdateError> {
        self.rewrite_if::<UpdateError>(|superblock| {
            change(superblock);
            Ok(())
        })
    }

    /// [`Store::rewrite`] by who has to look at the superblock first: no other change comes between. After a refusal nothing is written.
    pub(crate) fn rewrite_if<E>(&self, change: impl FnOnce(&mut Superblock) -> Result<(), E>) -> Result<(), E>
    where
        E: From<UpdateError> + From<StoreError>,
    {
        self.usable()?;
        self.vouch()?;
        let mut control = locked(&self.superblock);
        let mut next = control.now.clone();
        change(&mut next)?;
        assert!(
            next.promised >= control.now.promised,
            "R-7: a promise never goes back: {} after {}",
            next.promised,
            control.now.promised
        );
        next.generation = control.now.generation + 1;
        let bytes = next.encode().map_err(UpdateError::from)?;
        superblock::write_both(&self.disk, &control.file, &bytes).map_err(|error| self.fail(error))?;
        Counting::add(&self.counting.superblock_writes, 1);
        control.now = next;
        self.live.follow(&control.now.history);
        Ok(())
    }

    /// Sees that the superblock is still in the folder, where something is done that takes a system call anyway: each time pages are made present, at each update and at the end.
    pub(crate) fn see_name(&self) -> Result<(), StoreError> {
        superblock::named(&self.disk, &locked(&self.superblock).file).map_err(|error| self.fail(error))
    }

    /// Does what the opening has [left](Store::vouch) and takes the clean mark away, durably, once. Must come before the first append, bind or grant: [`Store::memory`] and [`Store::ready`] insist on it.
    ///
    /// # Errors
    ///
    /// As [`Store::update`].
    pub fn begin(&self) -> Result<(), UpdateError> {
        if !self.running.load(Ordering::Acquire) {
            // also where the clean mark is gone already.
            self.vouch()?;
            self.touch_tail()?;
            if locked(&self.superblock).now.clean.is_some() && !windlass_log::planted!(R6) {
                let boot_id = self.boot_id;
                // With the boot that it is taken away in: else a kill after a clean stop and a restart of the machine
                // looks as if memory had been lost.
                self.rewrite(|superblock| (superblock.clean, superblock.boot_id) = (None, boot_id))?;
            }
            self.running.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the page present that the first append goes to: an opening behind a clean stop has not written it, and a store to a page that the medium does not give is a SIGBUS. Not in a
    /// damaged member's log, where what the medium does not give is written anew.
    fn touch_tail(&self) -> Result<(), StoreError> {
        let tail = self.persisted().lsn();
        let number = self.geometry.segment_of(tail);
        let segment = self.segments().get(&number).cloned();
        let Some(segment) = segment.filter(|_| !self.distrusted.load(Ordering::Acquire)) else {
            return Ok(());
        };
        let start = self.geometry.offset_of(tail) / PAGE_BYTES * PAGE_BYTES;
        self.populate_part(number, &segment, start..start + PAGE_BYTES).map(drop)
    }

    /// Makes pages of a segment present, if the system can; whether it has. What the medium does not give ends the opening: the next store there would be a SIGBUS.
    pub(crate) fn populate_part(
        &self,
        number: u64,
        segment: &Segment<D>,
        part: Range<u64>,
    ) -> Result<bool, StoreError> {
        match segment.map.populate(part) {
            Ok(()) => Ok(true),
            // madvise(2), MADV_POPULATE_WRITE: a store to the page would be a SIGBUS.
            Err(errno @ (Errno::FAULT | Errno::HWPOISON)) => {
                let file = self.disk.path().join(names::segment(self.geometry, number));
                Err(self.fail(DiskError { call: DiskCall::Populate, file, errno }))
            }
            // A kernel without the call, or without memory, leaves the faults to the producers.
            Err(_) => Ok(false),
        }
    }

    /// The segments that are open for writing, from the one with the persisted mark on, in order: what to install in an append hand-off.
    ///
    /// # Panics
    ///
    /// If [`Store::begin`] has not been called.
    #[must_use]
    pub fn ready(&self) -> Vec<(u64, Memory)> {
        self.assert_running();
        let from = self.geometry.segment_of(self.persisted().lsn());
        self.segments().range(from..).map(|(number, segment)| (*number, segment.memory().clone())).collect()
    }

    /// The memory of a retained or ready segment, header page included, mapped if it is not yet. While it or a clone is held the segment is not reused.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Purged`], [`MemoryError::NotReady`]: not there, or not there yet. [`MemoryError::Disk`]: the file can't be mapped; the store is as before.
    ///
    /// # Panics
    ///
    /// If [`Store::begin`] has not been called.
    pub fn memory(&self, segment: u64) -> Result<Memory, MemoryError> {
        self.assert_running();
        self.usable()?;
        if let Some(found) = self.segments().get(&segment) {
            return Ok(found.memory().clone());
        }
        // Under the pool's lock no trim releases the segment while it is being opened.
        let pool = locked(&self.pool);
        let first = self.trimmed();
        if segment < self.geometry.segment_of(first) {
            return Err(MemoryError::Purged { segment, first });
        }
        if pool.naming.contains(&segment) {
            return Err(MemoryError::NotReady { segment });
        }
        match self.open_segment(segment) {
            Ok(opened) => {
                let mut segments = self.segments_mut();
                let opened = segments.entry(segment).or_insert(opened);
                Ok(opened.memory().clone())
            }
            // Its holes are filled once there is room: the helper tries again.
            Err(error) if error.errno == crate::disk::Errno::NOENT || error.is_full() => {
                Err(MemoryError::NotReady { segment })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says that the log was found valid up to `upto` in memory that others write. What of it a process before may have left behind the opening's tail is written again, with what it holds, by
    /// the flush that it is part of next: that process may have had it written by a flush that failed, after which the kernel counts its pages as clean. Who has stored it, that one or this
    /// one, can't be told by looking. Costs no system call, and nothing at all elsewhere.
    ///
    /// To be called before these bytes are flushed.
    ///
    /// # Panics
    ///
    /// If [`Store::begin`] has not been called.
    pub fn take_over(&self, upto: Lsn) {
        self.assert_running();
        self.taken_over.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// Opens and maps a segment's file.
    pub(crate) fn open_segment(&self, number: u64) -> Result<Arc<Segment<D>>, DiskError> {
        let name = names::segment(self.geometry, number);
        let file = self.disk.open(&name, Access::ReadWrite).at(DiskCall::Open, self.disk.path(), &name)?;
        self.map_segment(file, &name)
    }

    /// Maps a segment's file. One that was put in its place may have holes, as a sparse copy has, and no store through a mapping may be the first to ask for a block (kind 20): they
    /// are filled first.
    pub(crate) fn map_segment(&self, file: D::File, name: &str) -> Result<Arc<Segment<D>>, DiskError> {
        let (len_bytes, folder) = (self.geometry.segment_bytes(), self.disk.path());
        let allocated = file.allocated_bytes().at(DiskCall::Stat, folder, name)?;
        if allocated < len_bytes && self.tells_holes()? {
            file.fill_holes(len_bytes).at(DiskCall::Allocate, folder, name)?;
            file.sync().at(DiskCall::Sync, folder, name).inspect_err(|error| {
                self.fail(error.clone());
            })?;
        }
        let map = file.map(self.geometry.segment_bytes()).at(DiskCall::Map, self.disk.path(), name)?;
        Ok(Arc::new(Segment { file, map, present: AtomicBool::new(false) }))
    }

    /// Whether a file with fewer blocks than bytes has holes on this filesystem.
    fn tells_holes(&self) -> Result<bool, DiskError> {
        let filesystem = self.disk.filesystem().at(DiskCall::Stat, self.disk.path(), "")?;
        Ok(match filesystem.class() {
            FilesystemClass::Local
            | FilesystemClass::Memory
            | FilesystemClass::Layered
            | FilesystemClass::Unknown => true,
            FilesystemClass::CopyOnWrite | FilesystemClass::Network => false,
        })
    }

    pub(crate) fn segments(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Arc<Segment<D>>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segments_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Arc<Segment<D>>>> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn assert_running(&self) {
        assert!(
            self.running.load(Ordering::Acquire),
            "R-6: memory for writing was asked for before `begin` cleared the clean mark"
        );
        self.assert_vouched();
    }

    /// Whether durable work may go on.
    pub(crate) fn usable(&self) -> Result<(), StoreError> {
        self.going_on()?;
        self.own_process()
    }

    /// Whether the folder has been given up, or is about to be: what is in it is then the next owner's to change.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Neither failed nor closed.
    pub(crate) fn going_on(&self) -> Result<(), StoreError> {
        if let Some(failed) = self.failure() {
            return Err(failed.into());
        }
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Refuses a child that was forked off: what it has of the store's memory is not mapped, and its files are its parent's to write.
    ///
    /// # Errors
    ///
    /// [`StoreError::Forked`].
    pub fn own_process(&self) -> Result<(), StoreError> {
        let process = self.disk.process_id();
        if process == self.opener { Ok(()) } else { Err(StoreError::Forked { process, opener: self.opener }) }
    }

    /// Ends this opening: the first failure counts, also for those that failed later for another reason.
    pub(crate) fn fail(&self, error: DiskError) -> StoreError {
        let cause = self.failed.get_or_init(|| error).clone();
        MediumFailed { cause }.into()
    }
}
