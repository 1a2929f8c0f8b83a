//! Looking at a log without write access and without its lock, beside the process that has it open.
//!
//! Nothing is created, locked, mapped or changed. Where the records end in a folder in use is simply its end for now; in a folder at
//! rest the durable watermark decides whether that is the end, a torn tail or damage.

use std::ops::Range;
use std::path::{Path, PathBuf};

use windlass_log::{Class, Epoch, Extent, Geometry, Lsn, OpenMode, Placed, Row, SEGMENT_HEADER_BYTES, Stop};
use windlass_store::disk::{Errno, RealDisk};
use windlass_store::{Condition, DiskCall, DiskError, Inspection, OpenError, Report, Walk, stop_offset};

use super::media::Cursor;
use super::read::{Items, Record, read_error, segment_file};
use super::status::{Info, outcome};
use crate::error::{Outcome, ReadError};

/// A log's folder, opened for reading alone.
#[derive(Debug)]
pub struct ReadOnly {
    folder: PathBuf,
    mode: OpenMode,
    inspection: Inspection<RealDisk>,
}

/// What verifying found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verified {
    /// Every record is whole up to the end. Also so in a folder in use, whose unpublished tail is no tear.
    Clean,
    /// The log ends in a torn record, as after a crash, above everything that was known to be durable. Opening cuts it.
    Torn,
    /// Bytes that were durable no longer hold.
    Damaged,
}

/// A report of [`ReadOnly::verify`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// In a word.
    pub found: Verified,
    /// The label of the row of recovery's decision table that matched (DESIGN.md section 6).
    pub row: Row,
    /// What that row means for opening.
    pub class: Class,
    /// What is at the place where the whole records end, in words.
    pub reason: String,
    /// Whether a process has the log open.
    pub in_use: bool,
    /// Whole records from the trim point on that were appended; a batch is one.
    pub records: u64,
    /// Whole records from the trim point on that are the log's own: pads, starts of segments and epochs, configurations.
    pub own_records: u64,
    /// How many of the superblock's two copies are whole. With one the log still opens, and opening mends the other.
    pub superblock_copies: u32,
    /// The first LSN that is retained.
    pub trimmed: Lsn,
    /// Everything below was known to be durable.
    pub durable: Lsn,
    /// Where the whole records end: the LSN that [`VerifyReport::file`] and [`VerifyReport::offset`] belong to.
    pub lsn: Lsn,
    /// The file of that place.
    pub file: PathBuf,
    /// Where in the file, in bytes; 0 if what doesn't hold is the file itself or its header.
    pub offset: u64,
}

impl ReadOnly {
    /// Opens the folder for reading. In [`OpenMode::Strict`] readers refuse a torn tail; in the other modes they end before it.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoLog`], [`OpenError::Superblock`], [`OpenError::Disk`].
    pub fn open(folder: &Path, mode: OpenMode) -> Result<ReadOnly, OpenError> {
        let inspection = inspect(folder)?;
        Ok(ReadOnly { folder: folder.to_path_buf(), mode, inspection })
    }

    /// Everything below was on the medium, as far as the superblock and the live mark say.
    fn persisted(&self) -> Lsn {
        // What can't be read of the live mark says nothing.
        self.inspection.persisted().unwrap_or(self.inspection.superblock().persisted)
    }

    /// Everything below is durable for all that this folder alone tells. What a member of a group has on its medium may yet be cut: there it is what was
    /// released, which no member does before it is committed.
    fn durable(&self) -> Lsn {
        let superblock = self.inspection.superblock();
        if superblock.configuration.is_empty() { self.persisted() } else { superblock.trimmed }
    }

    /// What the log was when it was opened here. The tail is only known by reading: what is given is the persisted mark. How far a member's log is durable is
    /// known to its group, and by this folder alone only up to the trim point.
    #[must_use]
    pub fn info(&self) -> Info {
        let (superblock, persisted) = (self.inspection.superblock(), self.persisted());
        Info {
            log_id: superblock.log_id,
            epoch: superblock.history.last().map_or(Epoch::NONE, |last| last.epoch),
            segment_bytes: superblock.segment_bytes,
            trimmed: superblock.trimmed,
            persisted,
            durable: self.durable(),
            drained: persisted,
            tail: persisted,
            retention_bytes: 0,
            sealed: true,
            failure: None,
        }
    }

    /// The epochs of which the log may have records, and the LSN from which on each is the newest: the START of a record of its own, above the trim point but for the oldest
    /// one's. Oldest first.
    pub fn epochs(&self) -> impl ExactSizeIterator<Item = (Epoch, Lsn)> + '_ {
        self.inspection.superblock().history.entries().iter().map(|entry| (entry.epoch, entry.start))
    }

    /// The end of a log that was closed cleanly.
    #[must_use]
    pub fn clean_tail(&self) -> Option<Lsn> {
        self.inspection.superblock().clean
    }

    /// Whether a process has the log open, where the kernel tells, and which one says so.
    #[must_use]
    pub fn in_use(&self) -> (Option<bool>, Option<u32>) {
        (self.inspection.in_use(), self.inspection.owner())
    }

    /// Segment files, files kept for reuse, and the bytes that all of them take.
    ///
    /// # Errors
    ///
    /// [`OpenError::Disk`].
    pub fn files(&self) -> Result<(u64, u64, u64), OpenError> {
        self.inspection.files()
    }

    /// What became of the append that got `lsn` in `epoch`, as far as the superblock tells: of a member's records that is [`Outcome::Unknown`] where they are not
    /// purged. Ask the group's primary.
    #[must_use]
    pub fn outcome(&self, epoch: Epoch, lsn: Lsn) -> Outcome {
        outcome(self.inspection.superblock(), self.durable(), epoch, lsn)
    }

    /// Reads and checks every record from the trim point on, the headers of their segments and both copies of the superblock. What no record needs is not
    /// looked at: what is behind a header in its page, unused segments, `reserve` and `owner`. A torn tail is [`Verified::Torn`] in every mode. Memory stays flat.
    ///
    /// # Errors
    ///
    /// [`OpenError::Disk`]: it could not be read, which says nothing of the log. Damage to whole files is [`OpenError::SegmentFile`],
    /// [`OpenError::SegmentMissing`], [`OpenError::Superblock`].
    pub fn verify(&self) -> Result<VerifyReport, OpenError> {
        let mut inspection = inspect(&self.folder)?;
        let in_use = inspection.in_use() == Some(true);
        let report = inspection.verify()?;
        let found = match report.condition {
            Condition::Clean | Condition::InUse => Verified::Clean,
            Condition::TornTail => Verified::Torn,
            Condition::Damaged | Condition::Foreign => Verified::Damaged,
        };
        Ok(VerifyReport {
            found,
            row: report.verdict.row,
            class: report.verdict.class(),
            reason: report.verdict.stop.reason.to_string(),
            in_use,
            records: report.appended_records,
            own_records: report.own_records,
            superblock_copies: report.superblock_copies,
            trimmed: report.trimmed,
            durable: report.verdict.flushed,
            lsn: report.verdict.stop.lsn,
            file: report.file,
            offset: report.offset,
        })
    }

    /// Reads from the record that starts at `from` to the end of the log.
    ///
    /// # Errors
    ///
    /// [`ReadError::Purged`] at once; everything else when reading.
    pub fn read_from(&self, from: Lsn) -> Result<ReadOnlyReader<'_>, ReadError> {
        let first = self.inspection.superblock().trimmed;
        if from < first {
            return Err(ReadError::Purged { lsn: from, first });
        }
        let from = self.inspection.geometry().normalize(from);
        let cursor = FolderCursor { log: self, walk: self.inspection.walk(from), from, moved: false };
        Ok(ReadOnlyReader { log: self, items: Items::new(Box::new(cursor), from) })
    }
}

fn inspect(folder: &Path) -> Result<Inspection<RealDisk>, OpenError> {
    let error = |errno: Errno| DiskError { call: DiskCall::Open, file: folder.to_path_buf(), errno };
    let disk = RealDisk::open(folder).map_err(error)?;
    Inspection::open(disk, None)
}

/// Reads the records of a folder in order.
#[derive(Debug)]
pub struct ReadOnlyReader<'a> {
    log: &'a ReadOnly,
    items: Items<'a>,
}

impl ReadOnlyReader<'_> {
    /// The next record.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; `AtEnd`, `Purged` and `Damaged` are three different answers.
    #[expect(clippy::should_implement_trait, reason = "a record borrows from the reader")]
    pub fn next(&mut self) -> Result<Record<'_>, ReadError> {
        self.items.advance(|| Lsn(u64::MAX), &self.log.folder, self.log.inspection.geometry())?;
        Ok(self.items.record())
    }
}

/// A walk over a folder that judges where it stops.
#[derive(Debug)]
struct FolderCursor<'a> {
    log: &'a ReadOnly,
    walk: Walk<'a, RealDisk>,
    from: Lsn,
    /// Whether a record was read: the place is then known to be a record's start.
    moved: bool,
}

impl Cursor for FolderCursor<'_> {
    fn next_run(&mut self, _limit: Lsn, run: &mut Vec<Placed>) -> Result<Lsn, ReadError> {
        match self.walk.step_run(run) {
            Ok(None) => {
                self.moved = true;
                Ok(self.walk.at())
            }
            Ok(Some(stop)) => self.log.judge(stop, self.from, self.moved),
            Err(error) => Err(self.log.unreadable(error, self.from)),
        }
    }

    fn held(&self, place: Range<usize>) -> &[u8] {
        self.walk.held(place)
    }

    fn held_bytes(&self) -> &[u8] {
        self.walk.held_bytes()
    }

    fn trimmed(&self) -> Lsn {
        self.log.inspection.superblock().trimmed
    }
}

impl ReadOnly {
    /// Whether the place where a reader that began at `start` stopped is the end, damage, or neither; `moved`: it has read a record since. The folder is looked at
    /// afresh: a running process may have trimmed, cut or appended since.
    fn judge(&self, stop: Stop, start: Lsn, moved: bool) -> Result<Lsn, ReadError> {
        let lsn = stop.lsn;
        let failed = |error| unusable(error, lsn);
        let mut now = inspect(&self.folder).map_err(failed)?;
        let (geometry, first) = (now.geometry(), now.superblock().trimmed);
        if lsn < first {
            return Err(ReadError::Purged { lsn, first });
        }
        if moved && now.superblock().history.last() != self.inspection.superblock().history.last() {
            // A new epoch has begun since: this reader, which knows the old ones, has read all of theirs.
            return Ok(lsn);
        }
        let report = now.judge(Extent::FromMark).map_err(failed)?;
        let end = report.verdict.stop.lsn;
        let in_use = report.condition == Condition::InUse;
        if lsn < end {
            // Given by the caller, so perhaps no record's start at all.
            if !moved
                && let Some(record) = now.record_around(lsn, end).map_err(|error| read_error(error, lsn))?
            {
                return Err(ReadError::InsideRecord { lsn, record });
            }
            return self.look_again(&mut now, lsn);
        }
        // Judging looks at the superblock again.
        let first = now.superblock().trimmed;
        if lsn < first {
            return Err(ReadError::Purged { lsn, first });
        }
        if lsn == end {
            return self.judged(geometry, &report, lsn);
        }
        match report.verdict.class() {
            // A hole in what a running process has appended, or it changes faster than it can be looked at.
            _ if in_use && moved => Ok(lsn),
            _ if in_use => Err(ReadError::Beyond { lsn: start, end }),
            // An end that was cut meanwhile.
            Class::End | Class::Torn if moved && start <= end => Ok(lsn),
            Class::End | Class::Torn => Err(ReadError::Beyond { lsn: start, end }),
            // Read from behind the damage: what is printed was checked, and whether it is all there is, is asked of the log from there on.
            Class::Damage | Class::Foreign if moved && start > end => {
                let behind = now.judge_from(lsn).map_err(failed)?;
                self.judged(geometry, &behind, lsn)
            }
            // Where it was closed is the one place that is known to be the end without a record before it.
            Class::Damage | Class::Foreign if !moved && now.superblock().clean == Some(lsn) => Ok(lsn),
            Class::Damage | Class::Foreign => Err(self.damaged(geometry, &report.verdict.stop)),
        }
    }

    /// What a verdict means for a reader that has come to where it says that the whole records end. `lsn`: where the reader stands.
    fn judged(&self, geometry: Geometry, report: &Report, lsn: Lsn) -> Result<Lsn, ReadError> {
        let stop = &report.verdict.stop;
        match report.verdict.class() {
            // It changes faster than it can be looked at; the next read goes on.
            _ if report.condition == Condition::InUse => Ok(lsn),
            Class::End => Ok(lsn),
            Class::Torn if self.mode != OpenMode::Strict => Ok(lsn),
            Class::Torn => Err(ReadError::Torn {
                file: report.file.clone(),
                offset: report.offset,
                lsn: stop.lsn,
                what: stop.reason.to_string(),
            }),
            Class::Damage | Class::Foreign => Err(self.damaged(geometry, stop)),
        }
    }

    /// A place that can't be read. A folder or a pipe in place of a segment's file is damage to a file, as for whoever opens or verifies; an error of the device is
    /// none.
    fn unreadable(&self, error: windlass_store::ReadError, lsn: Lsn) -> ReadError {
        match self.inspection.check_files() {
            Err(no_file @ OpenError::SegmentNoFile { .. }) => unusable(no_file, lsn),
            Ok(()) | Err(_) => read_error(error, lsn),
        }
    }

    fn damaged(&self, geometry: Geometry, stop: &Stop) -> ReadError {
        ReadError::Damaged {
            file: segment_file(&self.folder, geometry, stop.lsn),
            offset: stop_offset(geometry, stop),
            lsn: stop.lsn,
            what: stop.reason.to_string(),
        }
    }

    /// A place where the reader found no record, and which is below the log's end now. The running process may have appended there since, or trimmed: what is
    /// there now decides, and its marks of now say nothing of what was there before.
    fn look_again(&self, now: &mut Inspection<RealDisk>, lsn: Lsn) -> Result<Lsn, ReadError> {
        let geometry = now.geometry();
        let found = now.walk(lsn).step().map(|found| found.map(drop));
        now.refresh().map_err(|error| unusable(error, lsn))?;
        let first = now.superblock().trimmed;
        match found {
            _ if lsn < first => Err(ReadError::Purged { lsn, first }),
            // The next read goes on.
            Ok(Ok(())) => Ok(lsn),
            Ok(Err(stop)) => Err(self.damaged(geometry, &stop)),
            Err(error) => Err(read_error(error, lsn)),
        }
    }
}

/// The first record of the segment that begins with `base`.
fn first_record(base: Lsn) -> Lsn {
    Lsn(base.0.saturating_add(SEGMENT_HEADER_BYTES))
}

/// A folder that can't be judged: damage to a whole file is damage, not a failure of the system.
fn unusable(error: OpenError, lsn: Lsn) -> ReadError {
    match error {
        OpenError::SegmentFile { file, base, len_bytes, segment_bytes } => {
            let what = format!(
                "the file has {len_bytes} bytes, a segment {segment_bytes}: it was cut short, grown or renamed"
            );
            ReadError::Damaged { file, offset: 0, lsn: first_record(base), what }
        }
        OpenError::SegmentNoFile { file, base } => {
            let what = "it is no plain file".to_owned();
            ReadError::Damaged { file, offset: 0, lsn: first_record(base), what }
        }
        OpenError::SegmentHeader { file, base, cause } => {
            ReadError::Damaged { file, offset: 0, lsn: first_record(base), what: cause.to_string() }
        }
        OpenError::SegmentMissing { file, base } => ReadError::Damaged {
            file,
            offset: 0,
            lsn: first_record(base),
            what: "the file is missing".to_owned(),
        },
        OpenError::Superblock { file, cause } => {
            ReadError::Damaged { file, offset: 0, lsn, what: cause.to_string() }
        }
        OpenError::SuperblockOlder { superblock, file, offset, lsn, epoch, promised, .. } => {
            let what = format!(
                "a whole record of epoch {epoch}: {} has promised none above {promised}, and is older than the log",
                superblock.display()
            );
            ReadError::Damaged { file, offset, lsn, what }
        }
        OpenError::PastCleanMark { superblock, clean, file, offset, lsn, .. } => {
            let what = format!(
                "a whole record behind LSN {clean}, where by {} the log was closed: that is older than the log",
                superblock.display()
            );
            ReadError::Damaged { file, offset, lsn, what }
        }
        OpenError::SuperblockMissing { folder } => {
            let what = "the superblock is missing".to_owned();
            ReadError::Damaged { file: folder, offset: 0, lsn, what }
        }
        error @ (OpenError::NoLog { .. }
        | OpenError::InUse { .. }
        | OpenError::Filesystem { .. }
        | OpenError::ForeignLog { .. }
        | OpenError::Copied { .. }
        | OpenError::Refused { .. }
        | OpenError::Configuration { .. }
        | OpenError::Salvage
        | OpenError::History(_)
        | OpenError::Encode(_)
        | OpenError::Memory { .. }
        | OpenError::Disk(_)) => ReadError::Io { lsn, cause: error.to_string() },
    }
}
