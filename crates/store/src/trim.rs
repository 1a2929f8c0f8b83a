//! Taking away from either end: [`Store::trim`] releases the beginning, [`Store::cut`] the end.
//!
//! Invariants: the claim is lowered before anything is taken away, in both copies of the superblock (kinds 42 to 44); what is
//! released is a prefix, whole segments of it are reused, oldest first (kind 45); the log's end and its epochs live in the superblock
//! and the history, not in the files that go (kind 46).

use std::ops::Range;
use std::sync::atomic::Ordering;

use windlass_log::{
    Epoch, EpochHistory, Geometry, HEADER_BYTES, LiveMark, Located, LogId, Lsn, RECORD_ALIGN, RecordHeader,
    Salt, Superblock, locate,
};

use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError, StoreError};
use crate::image::Files;
use crate::names;
use crate::prepare::PrepareError;
use crate::store::{Store, UpdateError, locked};

/// Bytes of a record's header.
const HEADER: usize = 32;
const _: () = assert!(HEADER as u64 == HEADER_BYTES);

/// Why the log was not trimmed. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrimError {
    /// The store can't be used any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no log there yet: trim at most at the drained LSN.
    #[error("trim at LSN {lsn} is beyond the end of the log at {drained}")]
    BeyondEnd {
        /// The LSN asked for.
        lsn: Lsn,
        /// The end of what is whole.
        drained: Lsn,
    },
    /// No record starts there: use a record's start, or the end of one, as `append` returned it.
    #[error("no record starts at LSN {lsn}: trim at the start or end of one")]
    InsideRecord {
        /// The LSN asked for.
        lsn: Lsn,
        /// The record that holds it: see [`Store::record_around`].
        record: Option<Range<Lsn>>,
    },
    /// The record there can't be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The change that was to go with it does not fit the superblock.
    #[error(transparent)]
    Update(UpdateError),
}

/// Why the log was not cut.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CutError {
    /// The store can't be used any more; whether the cut happened is known after the next opening.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The part is released already.
    #[error("cut at LSN {lsn} is below the trim point {trimmed}")]
    Trimmed {
        /// The LSN asked for.
        lsn: Lsn,
        /// The first LSN that is retained.
        trimmed: Lsn,
    },
    /// The new history does not fit the superblock.
    #[error(transparent)]
    Update(UpdateError),
    /// The segment in which the log is to go on can't be made: free space and try again.
    #[error(transparent)]
    Prepare(PrepareError),
}

impl From<UpdateError> for TrimError {
    fn from(error: UpdateError) -> TrimError {
        match error {
            UpdateError::Store(error) => error.into(),
            UpdateError::Encode(_) => TrimError::Update(error),
        }
    }
}

impl From<UpdateError> for CutError {
    fn from(error: UpdateError) -> CutError {
        match error {
            UpdateError::Store(error) => error.into(),
            UpdateError::Encode(_) => CutError::Update(error),
        }
    }
}

impl<D: Disk> Store<D> {
    /// Releases everything below `lsn`, a record's start or the log's end; `drained` is the end of what is whole. Durable before it returns. At or below the
    /// present trim point it does nothing. Segments wholly below become free for reuse as soon as nobody holds their memory, by this call or a later
    /// [`Store::prepare_step`]. Works on a full disk.
    ///
    /// A lone log may be trimmed beyond its persisted mark: the caller vouches that it needs nothing below, and the trim point stands for those bytes.
    /// A member of a group trims at its durable LSN at most; this is the caller's to keep.
    ///
    /// # Errors
    ///
    /// [`TrimError::BeyondEnd`], [`TrimError::InsideRecord`]: another LSN; [`TrimError::Disk`]: try again; [`TrimError::Store`]: final.
    pub fn trim(&self, lsn: Lsn, drained: Lsn) -> Result<(), TrimError> {
        self.usable()?;
        if lsn <= self.trimmed() {
            return Ok(());
        }
        self.trim_with(lsn, drained, |_| {})
    }

    /// [`Store::trim`] with any change of what [`Store::update`] may change, in the same update of the superblock: a member of a group trims its
    /// history itself, and no crash may part that from the trim point, or the log would begin where the history says nothing. At or below the present trim point
    /// the change alone is made.
    ///
    /// # Errors
    ///
    /// As [`Store::trim`], and [`TrimError::Update`]: nothing has changed.
    pub fn trim_with(
        &self,
        lsn: Lsn,
        drained: Lsn,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), TrimError> {
        self.usable()?;
        if lsn <= self.trimmed() {
            return Ok(self.update(change)?);
        }
        if lsn > drained {
            return Err(TrimError::BeyondEnd { lsn, drained });
        }
        let history = self.history();
        let owner = LiveMark::epoch_below(&history, lsn);
        if lsn < drained && !self.starts_record_in(&history, lsn)? {
            let record = self.record_around(lsn, drained);
            // A member's engine knows its records' ends. Where damage has taken the one that begins there, a refusal would part its trim point from this one, and what is
            // damaged would be behind the one and before the other: nobody would have it sent again.
            if record.is_some() || self.superblock().configuration.is_empty() {
                return Err(TrimError::InsideRecord { lsn, record });
            }
        }
        // Without the flushes' turn: a flush under way may be a long one, and a trim only raises what it raises.
        self.rewrite_if(|superblock| {
            let before = superblock.trimmed;
            // A cut that came since has given the byte below to another epoch.
            if before < lsn && LiveMark::epoch_below(&superblock.history, lsn) != owner {
                let drained = superblock.history.last().map_or(before, |last| last.start.max(before));
                return Err(TrimError::BeyondEnd { lsn, drained });
            }
            keep_own(superblock, change);
            superblock.trimmed = before.max(lsn);
            superblock.persisted = superblock.persisted.max(lsn);
            superblock.clean = None;
            // A member's engine has trimmed its history itself: it keeps the epoch of the last byte below, which ranks an emptied log.
            if superblock.configuration.is_empty() {
                superblock.history.trim(superblock.trimmed);
            }
            Ok(())
        })?;
        self.pass_marks(lsn, || self.release(lsn));
        // Damage below that was found meanwhile is released with the rest, and holds the mark back no more. Nobody will cut it off.
        self.hold_mark(|_| {});
        self.recycle()?;
        Ok(())
    }

    /// Raises the trim point, and the persisted mark with it. In this order: the helper unmaps what is persisted, and a flush under way that
    /// misses a segment takes it for released by the trim point. `between` is where segments are released: before the helper could unmap what is about to
    /// be used again.
    pub(crate) fn pass_marks(&self, lsn: Lsn, between: impl FnOnce()) {
        self.trimmed.fetch_max(lsn.0, Ordering::AcqRel);
        between();
        self.persisted.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// The record that holds `lsn` without starting there, found by reading its segment from the start; `end` is a record's end at or behind it. `None`: it
    /// is in none (a header page, say), one starts there, or the log can't be read up to there.
    #[must_use]
    pub fn record_around(&self, lsn: Lsn, end: Lsn) -> Option<Range<Lsn>> {
        if self.geometry.normalize(lsn) != lsn {
            return None;
        }
        let mut file = None;
        let mut files = Files::new(&self.disk, self.geometry, &mut file);
        match locate(&mut files, &self.shape(), self.trimmed(), lsn, end) {
            Ok(Located::Inside { start, end }) => Some(start..end),
            Ok(Located::Start | Located::Unreadable(_)) | Err(_) => None,
        }
    }

    /// Whether a record of this log starts at `lsn`: a system call or two.
    ///
    /// # Errors
    ///
    /// The segment can't be read.
    pub fn starts_record(&self, lsn: Lsn) -> Result<bool, DiskError> {
        self.starts_record_in(&self.history(), lsn)
    }

    fn starts_record_in(&self, history: &EpochHistory, lsn: Lsn) -> Result<bool, DiskError> {
        starts_record(&self.disk, self.geometry, self.log_id, history, lsn)
    }

    /// Takes away everything from `lsn`, a record's start, on: the history becomes `history`, in the same update of both copies of the superblock that lowers the persisted
    /// mark; then the record at `lsn` is destroyed. Durable before it returns; at no moment of a crash does any of it come back after it has returned (kind 42).
    ///
    /// The log must be sealed and drained, and no device able to reach the part that goes. In `history` an epoch that none of the records taken away
    /// carries must own `lsn` and what follows, or none at all: a lone log begins a new one there, a member adopts its primary's.
    ///
    /// # Errors
    ///
    /// [`CutError::Trimmed`], [`CutError::Update`]: nothing has changed. [`CutError::Store`]: final.
    ///
    /// # Panics
    ///
    /// If `promised` is below an epoch of `history` or below the present promise.
    pub fn cut(&self, lsn: Lsn, history: EpochHistory, promised: Epoch) -> Result<(), CutError> {
        self.cut_with(lsn, |superblock| {
            superblock.history = history;
            superblock.promised = promised;
        })
    }

    /// [`Store::cut`] with any change of what [`Store::update`] may change, in the same update of the superblock: a member of a group adopts its
    /// primary's history and marks with the cut.
    ///
    /// # Errors
    ///
    /// As [`Store::cut`].
    ///
    /// # Panics
    ///
    /// As [`Store::cut`].
    pub fn cut_with(&self, lsn: Lsn, change: impl FnOnce(&mut Superblock)) -> Result<(), CutError> {
        self.usable()?;
        self.vouch()?;
        let trimmed = self.trimmed();
        if lsn < trimmed {
            return Err(CutError::Trimmed { lsn, trimmed });
        }
        // No helper's step may be under way: it would write down the persisted mark that it saw before the cut.
        let mut preparing = locked(&self.preparing);
        preparing.populated = preparing.populated.min(lsn);
        preparing.tail_before = preparing.tail_before.min(lsn);
        preparing.tail_seen = preparing.tail_seen.min(lsn);
        let _turn = locked(&self.flushing);
        // First: a mark above the end of the log would make damage of what was cut.
        self.lower_mark(lsn)?;
        self.rewrite_if(|superblock| {
            refuse_trimmed(superblock, lsn)?;
            keep_own(superblock, change);
            superblock.persisted = superblock.persisted.min(lsn);
            // A member's engine says itself what it may have acknowledged, or that it can't tell any more.
            if superblock.configuration.is_empty() {
                superblock.acknowledged = superblock.acknowledged.min(lsn);
            }
            superblock.clean = None;
            Ok::<_, CutError>(())
        })?;
        self.persisted.fetch_min(lsn.0, Ordering::AcqRel);
        self.hold_mark(|damaged| damaged.retain(|range| range.start.max(trimmed) < lsn));
        let number = self.geometry.segment_of(lsn);
        match self.segments().get(&number).cloned() {
            Some(segment) => destroy_record::<D>(&segment.file, self.geometry.offset_of(lsn)),
            None => match self.disk.open(&names::segment(self.geometry, number), Access::ReadWrite) {
                Ok(file) => destroy_record::<D>(&file, self.geometry.offset_of(lsn)),
                // The log ended at a segment's end and the next one is not there yet.
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            },
        }
        .at(DiskCall::Sync, self.disk.path(), &names::segment(self.geometry, number))
        .map_err(|error| self.fail(error))?;
        self.reopen_from(number)?;
        Ok(())
    }

    /// Throws the whole log away and goes on, empty, at `lsn`, with any change of what [`Store::update`] may change: a member whose missing
    /// range is released everywhere starts again behind its application's checkpoint. Durable before it returns. The segment of `lsn` is made first.
    ///
    /// No device may be able to reach the log. In the new history no epoch of a record that is left in a segment may own its LSN, unless the
    /// record is the one that belongs there.
    ///
    /// # Errors
    ///
    /// [`CutError::Trimmed`]: `lsn` is below the trim point; nothing has changed. [`CutError::Prepare`]: the segment can't be made; nothing has
    /// changed. [`CutError::Store`]: final.
    ///
    /// # Panics
    ///
    /// As [`Store::cut`].
    pub fn reset_with(&self, lsn: Lsn, change: impl FnOnce(&mut Superblock)) -> Result<(), CutError> {
        self.usable()?;
        self.vouch()?;
        let trimmed = self.trimmed();
        if lsn < trimmed {
            return Err(CutError::Trimmed { lsn, trimmed });
        }
        let _preparing = locked(&self.preparing);
        let number = self.geometry.segment_of(lsn);
        if !self.segments().contains_key(&number) {
            self.make_segment(number).map_err(CutError::Prepare)?;
        }
        let turn = locked(&self.flushing);
        self.lower_mark(lsn)?;
        self.rewrite_if(|superblock| {
            refuse_trimmed(superblock, lsn)?;
            keep_own(superblock, change);
            superblock.trimmed = lsn;
            superblock.persisted = lsn;
            superblock.clean = None;
            Ok::<_, CutError>(())
        })?;
        self.persisted.store(lsn.0, Ordering::Release);
        self.trimmed.fetch_max(lsn.0, Ordering::AcqRel);
        self.hold_mark(Vec::clear);
        drop(turn);
        self.release(lsn);
        self.recycle()?;
        Ok(())
    }

    fn lower_mark(&self, lsn: Lsn) -> Result<(), StoreError> {
        let control = locked(&self.superblock);
        self.live.lower(&self.disk, &control.file, lsn).map_err(|error| self.fail(error))
    }

    /// Opens the segments from `first` to the lowest open one: they are to be written again. One with holes for which the disk has no room is left to the helper, who tries again.
    pub(crate) fn reopen_from(&self, first: u64) -> Result<(), StoreError> {
        let _pool = locked(&self.pool);
        let open = self.segments().range(first..).next().map_or(first + 1, |(number, _)| *number);
        for number in first..open {
            match self.open_segment(number) {
                Ok(segment) => drop(self.segments_mut().insert(number, segment)),
                Err(error) if error.errno == Errno::NOENT || error.is_full() => {}
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(())
    }
}

/// Makes a change of a superblock that leaves the store's own fields as they are.
pub(crate) fn keep_own(superblock: &mut Superblock, change: impl FnOnce(&mut Superblock)) {
    let before = superblock.clone();
    change(superblock);
    superblock.log_id = before.log_id;
    superblock.segment_bytes = before.segment_bytes;
    superblock.trimmed = before.trimmed;
    superblock.persisted = before.persisted;
    superblock.clean = before.clean;
    superblock.boot_id = before.boot_id;
    superblock.place = before.place;
}

/// Refuses to take away from a place below the trim point. Asked under the superblock's lock: a trim may have come since the call began.
fn refuse_trimmed(superblock: &Superblock, lsn: Lsn) -> Result<(), CutError> {
    let trimmed = superblock.trimmed;
    if lsn < trimmed { Err(CutError::Trimmed { lsn, trimmed }) } else { Ok(()) }
}

/// Zeroes the record header at `offset`, durably: nothing behind it parses any more, as a log is read record by record.
pub(crate) fn destroy_record<D: Disk>(file: &D::File, offset: u64) -> Result<(), Errno> {
    let zeros = [0; HEADER];
    match file.write_at(&zeros, offset) {
        // A hole, for which there is no room, has none.
        Err(Errno::NOSPC | Errno::DQUOT) if reads_zeros::<D>(file, offset)? => {}
        written => written?,
    }
    file.sync()
}

fn reads_zeros<D: Disk>(file: &D::File, offset: u64) -> Result<bool, Errno> {
    let mut header = [0; HEADER];
    Ok(file.read_at(&mut header, offset)? == HEADER && header == [0; HEADER])
}

/// Whether a record of the log with this history starts at `lsn`.
pub(crate) fn starts_record<D: Disk>(
    disk: &D,
    geometry: Geometry,
    log_id: LogId,
    history: &EpochHistory,
    lsn: Lsn,
) -> Result<bool, DiskError> {
    if !lsn.0.is_multiple_of(RECORD_ALIGN) || geometry.normalize(lsn) != lsn {
        return Ok(false);
    }
    let name = names::segment(geometry, geometry.segment_of(lsn));
    let file = match disk.open(&name, Access::Read) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => {
            return Err(DiskError { call: DiskCall::Open, file: disk.path().join(name), errno });
        }
    };
    let mut header = [0; HEADER];
    let count = file.read_at(&mut header, geometry.offset_of(lsn)).at(DiskCall::Read, disk.path(), &name)?;
    let epoch = history.epoch_at(lsn);
    Ok(count == header.len()
        && epoch.is_some_and(|epoch| {
            RecordHeader::decode(&header, lsn, geometry.room(lsn), &Salt::new(log_id).key(epoch)).is_ok()
        }))
}
