//! Looking at a log's folder without write access and without its lock, beside the process that has it open.
//!
//! Nothing is created, locked, mapped or changed. What a running process is doing meanwhile is allowed for: its unpublished tail is no tear, and
//! segments that it trims away are not missed.

use std::ops::Range;
use std::path::PathBuf;

use windlass_log::{
    Class, Extent, Geometry, Located, LogId, Lsn, Placed, Record, RecordKind, Scan, ScanError, Shape, Step,
    Stop, StopReason, Superblock, Verdict, locate,
};

use crate::disk::{Access, Disk, Locked};
use crate::error::{At, DiskCall};
use crate::examine::{self, Identified, judge_folder_visiting};
use crate::folder;
use crate::image::{Files, Forgiving, Lacking, OpenFile, Unreadable};
use crate::live;
use crate::names;
use crate::newer;
use crate::open::OpenError;
use crate::past;
use crate::read::{RUN_RECORDS, ReadError};

/// A log's folder, opened for reading.
pub struct Inspection<D: Disk> {
    disk: D,
    /// `None`: the superblock is lost or older than the log, and what is known of it was guessed.
    file: Option<D::File>,
    geometry: Geometry,
    superblock: Superblock,
}

/// How often a running process may append to or trim away what is being verified before that is answered as it is.
const OVERTAKEN_MAX: u32 = 8;
/// How often a copy of the superblock is looked at before it counts as damaged.
const COPY_READS_MAX: u32 = 8;

/// What a folder's log is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Whole up to its end.
    Clean,
    /// Whole up to its end, and a process is appending to it.
    InUse,
    /// It ends in a torn record, as after a crash, above everything known to be on the medium.
    TornTail,
    /// Something that was on the medium is lost.
    Damaged,
    /// Something in it belongs to another log or a later version.
    Foreign,
}

/// What verifying found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// In a word.
    pub condition: Condition,
    /// In full: row, place and reason.
    pub verdict: Verdict,
    /// The file that the verdict's place is in.
    pub file: PathBuf,
    /// Where in it, in bytes: [`stop_offset`].
    pub offset: u64,
    /// The first LSN that is retained.
    pub trimmed: Lsn,
    /// Whole records that were looked at and were appended, at the trim point or above: data and batches.
    pub appended_records: u64,
    /// Whole records that were looked at and are the log's own, at the trim point or above: pads, segment and epoch starts, configurations.
    pub own_records: u64,
    /// How many of the superblock's two copies are whole. One is enough to open the log, which mends the other.
    pub superblock_copies: u32,
}

/// Where in its segment's file a stop is, in bytes: where its LSN is, but the file's first byte if what doesn't hold there is the file or its header.
#[must_use]
pub fn stop_offset(geometry: Geometry, stop: &Stop) -> u64 {
    match stop.reason {
        StopReason::SegmentMissing { .. }
        | StopReason::SegmentShort { .. }
        | StopReason::SegmentHeader { .. }
        | StopReason::SegmentForeign { .. } => 0,
        StopReason::Reached
        | StopReason::Blank
        | StopReason::Header(_)
        | StopReason::Payload { .. }
        | StopReason::Filler
        | StopReason::BeyondEnd { .. }
        | StopReason::BeyondEpoch { .. }
        | StopReason::NoEpoch
        | StopReason::Misplaced { .. }
        | StopReason::ChainBroken { .. } => geometry.offset_of(stop.lsn),
    }
}

impl<D: Disk> std::fmt::Debug for Inspection<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("folder", &self.disk.path()).finish_non_exhaustive()
    }
}

impl<D: Disk> Inspection<D> {
    /// Opens the folder for reading: needs no write access, creates nothing (kind 37). `log_id`: only a log of this identity.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoLog`], [`OpenError::Superblock`], [`OpenError::ForeignLog`], [`OpenError::Disk`].
    pub fn open(disk: D, log_id: Option<LogId>) -> Result<Inspection<D>, OpenError> {
        let Identified { file, now, geometry, .. } = examine::identify(&disk, Access::Read, log_id)?;
        Ok(Inspection { disk, file: Some(file), geometry, superblock: now })
    }

    /// As [`Inspection::open`], for salvage: what can't be read of the superblock is done without. Where it is older than the log, the epochs that it lacks are those of the records. Where neither copy is left of use, log and segment size are what most of the segments' headers
    /// say, and the epochs those of the records, and [`Inspection::is_guessed`] says so: what had been trimmed or cut may then be among the records.
    ///
    /// # Errors
    ///
    /// As [`Inspection::open`], where no segment says which log it is of either.
    pub fn open_forgiving(disk: D) -> Result<Inspection<D>, OpenError> {
        let refused = match examine::identify_forgiving(&disk, Access::Read) {
            Ok(Identified { file, now, geometry, .. }) => {
                let listing = folder::list(&disk)?;
                let accepted = newer::accepted(&disk, &now, geometry, &listing)?;
                let (file, superblock) = match accepted? {
                    Some(accepted) => (None, accepted),
                    None => (Some(file), now),
                };
                return Ok(Inspection { disk, file, geometry, superblock });
            }
            Err(refused) => refused,
        };
        let file = crate::superblock::open(&disk, Access::Read).ok();
        let copies = file.and_then(|file| crate::superblock::read_forgiving(&disk, &file).ok());
        let Some(superblock) = crate::guess::guess(&disk, copies.as_ref())? else { return Err(refused) };
        let Ok(geometry) = Geometry::new(superblock.segment_bytes) else { return Err(refused) };
        Ok(Inspection { disk, file: None, geometry, superblock })
    }

    /// Whether the superblock is lost or older than the log, and what is known of the log was [guessed](Inspection::open_forgiving).
    #[must_use]
    pub fn is_guessed(&self) -> bool {
        self.file.is_none()
    }

    /// The superblock as it was when it was last read.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Everything below was flushed, as far as superblock and live mark say.
    ///
    /// # Errors
    ///
    /// [`OpenError::Disk`].
    pub fn persisted(&self) -> Result<Lsn, OpenError> {
        Ok(self.superblock.persisted.max(self.superblock.clean.unwrap_or_default()).max(self.live()?))
    }

    /// What the live mark says, 0 if nothing.
    fn live(&self) -> Result<Lsn, OpenError> {
        let Some(file) = &self.file else { return Ok(Lsn(0)) };
        Ok(live::read(&self.disk, file, &self.superblock)?.flushed(&self.superblock.history))
    }

    /// The arithmetic of this log's LSNs.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Reads the superblock again.
    ///
    /// # Errors
    ///
    /// [`OpenError::Superblock`], [`OpenError::Disk`].
    pub fn refresh(&mut self) -> Result<(), OpenError> {
        let Some(file) = &self.file else { return Ok(()) };
        // A copy that is just being written is torn for a moment, and the other one is whole.
        let newest = crate::superblock::read(&self.disk, file)?.newest();
        self.superblock = newest.map_err(|cause| OpenError::Superblock {
            file: self.disk.path().join(names::SUPERBLOCK),
            cause,
        })?;
        Ok(())
    }

    /// How many of the superblock's two copies are whole.
    fn superblock_copies(&self) -> Result<u32, OpenError> {
        let Some(file) = &self.file else { return Ok(0) };
        let mut whole = 0;
        // A copy that a running process is just writing is torn for a moment; damage stays.
        for _ in 0..COPY_READS_MAX {
            whole = whole.max(crate::superblock::read(&self.disk, file)?.whole());
            if whole == 2 {
                break;
            }
        }
        Ok(whole)
    }

    /// Whether a process has the log open, where the kernel tells; a process in another container may not show.
    #[must_use]
    pub fn in_use(&self) -> Option<bool> {
        self.disk.is_locked()
    }

    /// Keeps everybody from opening the log as long as the answer lives, without writing anything. `Err`: a process has it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Disk`].
    pub fn lock(&self) -> Result<Result<D::Lock, Option<u32>>, OpenError> {
        match self.disk.lock().at(DiskCall::Lock, self.disk.path(), "")? {
            Locked::Held(lock) => Ok(Ok(lock)),
            Locked::Busy => Ok(Err(self.owner())),
        }
    }

    /// The process that last opened the log for writing, as it wrote down itself.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        folder::read_owner(&self.disk)
    }

    /// Segment files and free files, and the bytes that they take.
    ///
    /// # Errors
    ///
    /// [`OpenError::Disk`].
    pub fn files(&self) -> Result<(u64, u64, u64), OpenError> {
        let listing = folder::list(&self.disk)?;
        let bytes = listing.segments.values().chain(listing.free.values()).sum();
        Ok((listing.segments.len() as u64, listing.free.len() as u64, bytes))
    }

    /// Refuses a folder in which something has a segment's name that can't be one. Of a folder in use this says nothing: files come and go.
    ///
    /// # Errors
    ///
    /// [`OpenError::SegmentNoFile`], [`OpenError::SegmentFile`]: damage to whole files; [`OpenError::Disk`].
    pub fn check_files(&self) -> Result<(), OpenError> {
        folder::list(&self.disk)?.check(self.disk.path(), self.geometry)
    }

    /// Reads the whole log, record by record, and judges it. Memory stays flat.
    ///
    /// # Errors
    ///
    /// [`OpenError::Disk`]: it could not be read, which says nothing of the log; [`OpenError::SegmentNoFile`], [`OpenError::SegmentFile`],
    /// [`OpenError::SegmentMissing`]: damage to whole files; [`OpenError::SuperblockOlder`], [`OpenError::PastCleanMark`].
    pub fn verify(&mut self) -> Result<Report, OpenError> {
        self.judge(Extent::Whole)
    }

    /// As [`Inspection::verify`], of as much of the log as asked for.
    ///
    /// # Errors
    ///
    /// As [`Inspection::verify`].
    pub fn judge(&mut self, extent: Extent) -> Result<Report, OpenError> {
        self.judge_above(extent, Lsn(0))
    }

    /// As [`Inspection::verify`], of the log from `lsn` on, a record's start, as if it were trimmed there: what lies below need not be whole.
    ///
    /// # Errors
    ///
    /// As [`Inspection::verify`].
    pub fn judge_from(&mut self, lsn: Lsn) -> Result<Report, OpenError> {
        self.judge_above(Extent::Whole, lsn)
    }

    fn judge_above(&mut self, extent: Extent, floor: Lsn) -> Result<Report, OpenError> {
        let mut stopped_before = None;
        let mut overtaken = 0;
        loop {
            let in_use = self.in_use() == Some(true);
            self.refresh()?;
            let trimmed = self.superblock.trimmed.max(floor);
            if !in_use {
                self.check_files()?;
            }
            let (mut appended_records, mut own_records) = (0, 0);
            let visit = |record: &Record<'_>| match record.header.kind {
                // The scan begins with the trim point's segment.
                _ if record.header.lsn < trimmed => {}
                RecordKind::Data | RecordKind::Batch => appended_records += 1,
                RecordKind::Pad
                | RecordKind::SegmentStart
                | RecordKind::EpochStart
                | RecordKind::Configuration => own_records += 1,
            };
            let judged = Superblock { trimmed, ..self.superblock.clone() };
            let live = self.live()?;
            let verdict = judge_folder_visiting(&self.disk, &judged, live, self.geometry, extent, visit)?;
            let listing = folder::list(&self.disk)?;
            let (place, is_end) = (verdict.stop.lsn, newer::is_end(&verdict));
            if let Some(found) =
                newer::look(&self.disk, &self.superblock, self.geometry, &listing, place, is_end)?
            {
                // A process may have begun an epoch since the superblock was read.
                let before = self.superblock.promised;
                self.refresh()?;
                if self.superblock.promised > before {
                    continue;
                }
                return Err(newer::refusal(&self.disk, &self.superblock, self.geometry, found));
            }
            if let Some(lsn) = past::first(&self.disk, &judged, self.geometry, &listing, &verdict, false)? {
                // A process may have opened the log since the superblock was read.
                self.refresh()?;
                if self.superblock.clean != judged.clean || self.superblock.history != judged.history {
                    continue;
                }
                return Err(past::refusal(&self.disk, &self.superblock, self.geometry, lsn));
            }
            let mut condition = self.condition(&verdict, in_use);
            if in_use && !matches!(condition, Condition::InUse) {
                // The process may have appended, trimmed, cut or closed since its marks and that place were read: only what stays counts.
                let before = self.superblock.generation;
                let place = verdict.stop.lsn;
                // A chain that is broken is not told by the record behind, which is whole by itself.
                let is_local = !matches!(verdict.stop.reason, StopReason::ChainBroken { .. });
                let appended = is_local && matches!(self.walk(place).step(), Ok(Ok(_)));
                self.refresh()?;
                let again = stopped_before.replace(place) == Some(place);
                if appended || place < self.superblock.trimmed {
                    overtaken += 1;
                    if overtaken < OVERTAKEN_MAX {
                        continue;
                    }
                    // It is appended or trimmed faster than it is read here: all that was retained long enough was whole.
                    condition = Condition::InUse;
                } else if self.superblock.generation != before && !again {
                    continue;
                }
            }
            let number = self.geometry.segment_of(verdict.stop.lsn);
            return Ok(Report {
                condition,
                file: self.disk.path().join(names::segment(self.geometry, number)),
                offset: stop_offset(self.geometry, &verdict.stop),
                verdict,
                trimmed,
                appended_records,
                own_records,
                superblock_copies: self.superblock_copies()?,
            });
        }
    }

    fn condition(&self, verdict: &Verdict, in_use: bool) -> Condition {
        match verdict.class() {
            Class::End | Class::Torn if in_use => Condition::InUse,
            Class::End => Condition::Clean,
            Class::Torn => Condition::TornTail,
            Class::Damage => Condition::Damaged,
            Class::Foreign => Condition::Foreign,
        }
    }

    /// The start of the record that `lsn` lies inside of; `None` if a record starts there, or the log can't be read up to there. `end` is a
    /// record's end behind it.
    ///
    /// # Errors
    ///
    /// [`ReadError::Memory`], [`ReadError::Disk`]: it could not be read.
    pub fn record_around(&self, lsn: Lsn, end: Lsn) -> Result<Option<Lsn>, ReadError> {
        let mut file = None;
        let (mut files, trimmed) =
            (Files::new(&self.disk, self.geometry, &mut file), self.superblock.trimmed);
        match locate(&mut files, &self.shape(), trimmed, lsn, end) {
            Ok(Located::Inside { start, .. }) => Ok(Some(start)),
            Ok(Located::Start | Located::Unreadable(_)) => Ok(None),
            Err(ScanError::Image { error, .. }) => Err(error.into()),
            Err(ScanError::Memory { lsn, bytes }) => Err(ReadError::Memory { lsn, bytes }),
        }
    }

    fn shape(&self) -> Shape {
        let (log_id, history) = (self.superblock.log_id, self.superblock.history.clone());
        Shape { geometry: self.geometry, log_id, history }
    }

    /// Goes through the records from `from`, a record's start, on.
    #[must_use]
    pub fn walk(&self, from: Lsn) -> Walk<'_, D> {
        let shape = self.shape();
        Walk {
            inspection: self,
            scan: Scan::new(shape, self.geometry.normalize(from), None),
            file: None,
            forgiving: None,
            missing_to: None,
        }
    }
}

/// A walk over the records of a folder that is being inspected.
pub struct Walk<'i, D: Disk> {
    inspection: &'i Inspection<D>,
    scan: Scan,
    file: OpenFile<D>,
    /// For salvage: what the files lack.
    forgiving: Option<Forgiving>,
    /// Up to where something is missing, where the walk has stopped.
    missing_to: Option<Lsn>,
}

impl<D: Disk> std::fmt::Debug for Walk<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("at", &self.scan.at()).finish_non_exhaustive()
    }
}

impl<D: Disk> Walk<'_, D> {
    /// The same walk, for salvage: pages that the medium does not give count as zeros and are [noted](Self::unreadable), as does what a file that is cut short lacks; a segment's header
    /// need not hold, as each record says itself where it belongs; and what is no plain file, or can't be opened, counts as missing.
    ///
    /// # Errors
    ///
    /// [`ReadError::Disk`]: the folder could not be listed.
    pub fn forgiving(mut self) -> Result<Self, ReadError> {
        let listing = folder::list(&self.inspection.disk)?;
        self.forgiving = Some(Forgiving::new(&listing, self.inspection.geometry));
        self.scan = self.scan.without_headers();
        Ok(self)
    }

    /// What the medium did not give of a [forgiving](Self::forgiving) walk.
    #[must_use]
    pub fn unreadable(&self) -> Unreadable {
        self.forgiving.as_ref().map(|forgiving| forgiving.unreadable.clone()).unwrap_or_default()
    }

    /// Up to where the file or the medium lacks something, if that is why a [forgiving](Self::forgiving) walk has [stopped](Self::step_run).
    #[must_use]
    pub fn missing_to(&self) -> Option<Lsn> {
        self.missing_to
    }

    /// Why a [forgiving](Self::forgiving) walk has stopped there, where what is there is missing in the file.
    fn explained(&mut self, stop: Stop) -> Stop {
        let lacking = self.forgiving.as_ref().and_then(|f| f.lacking(self.inspection.geometry, &stop));
        let (reason, missing_to) = match lacking {
            Some(Lacking::CutOff { segment, end }) => (StopReason::SegmentShort { segment }, Some(end)),
            Some(Lacking::Unreadable { end }) => (stop.reason, Some(end)),
            None => (stop.reason, None),
        };
        self.missing_to = missing_to;
        Stop { reason, ..stop }
    }

    /// Where the next record is looked for.
    #[must_use]
    pub fn at(&self) -> Lsn {
        self.scan.at()
    }

    /// The next whole record, or where and why there is none: what that means is [`Inspection::verify`]'s to say.
    ///
    /// # Errors
    ///
    /// [`ReadError::Purged`]: before the trim point; [`ReadError::Memory`], [`ReadError::Disk`]: it could not be read.
    pub fn step(&mut self) -> Result<Result<Record<'_>, Stop>, ReadError> {
        self.look()?;
        let mut files = Files::new(&self.inspection.disk, self.inspection.geometry, &mut self.file)
            .forgiving(self.forgiving.as_mut());
        match self.scan.step(&mut files) {
            Ok(Step::Record(record)) => Ok(Ok(record)),
            Ok(Step::Stop(stop)) => Ok(Err(stop)),
            Err(ScanError::Image { error, .. }) => Err(error.into()),
            Err(ScanError::Memory { lsn, bytes }) => Err(ReadError::Memory { lsn, bytes }),
        }
    }

    /// The next whole records, as many as were copied out and checked in one go, in place of those in `run`; none at a stop, which is then answered. Their payloads
    /// are [held](Self::held) until the walk goes on.
    ///
    /// # Errors
    ///
    /// As [`Walk::step`].
    pub fn step_run(&mut self, run: &mut Vec<Placed>) -> Result<Option<Stop>, ReadError> {
        run.clear();
        self.look()?;
        let mut files = Files::new(&self.inspection.disk, self.inspection.geometry, &mut self.file)
            .forgiving(self.forgiving.as_mut());
        match self.scan.step_placed(&mut files) {
            Ok(Ok(placed)) => {
                run.push(placed);
                self.scan.step_held(RUN_RECORDS - 1, |placed| run.push(placed));
                Ok(None)
            }
            Ok(Err(stop)) => Ok(Some(self.explained(stop))),
            Err(ScanError::Image { error, .. }) => Err(error.into()),
            Err(ScanError::Memory { lsn, bytes }) => Err(ReadError::Memory { lsn, bytes }),
        }
    }

    /// The payload of a record of the last run.
    ///
    /// # Panics
    ///
    /// If it is of no such record.
    #[must_use]
    pub fn held(&self, place: Range<usize>) -> &[u8] {
        self.scan.held(place)
    }

    /// What the payloads of the last run are places in.
    #[must_use]
    pub fn held_bytes(&self) -> &[u8] {
        self.scan.held_bytes()
    }

    fn look(&self) -> Result<(), ReadError> {
        let (lsn, first) = (self.scan.at(), self.inspection.superblock.trimmed);
        if lsn < first { Err(ReadError::Purged { lsn, first }) } else { Ok(()) }
    }

    /// Goes on at the next whole record behind a stop, for salvage; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Walk::step`].
    pub fn skip_damage(&mut self) -> Result<Option<Lsn>, ReadError> {
        let geometry = self.inspection.geometry;
        let listing = folder::list(&self.inspection.disk)?;
        let mut files =
            Files::new(&self.inspection.disk, geometry, &mut self.file).forgiving(self.forgiving.as_mut());
        // Segment by segment that is there: a stray file may have a name far from all others.
        let first = geometry.base(geometry.segment_of(self.scan.at()));
        for base in listing.segments.range(first..).map(|(base, _)| *base) {
            let number = geometry.segment_of(base);
            if number > geometry.segment_of(self.scan.at()) {
                self.scan.seek(geometry.first_record(number));
            }
            match self.scan.resync(&mut files, number + 1) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(ScanError::Image { error, .. }) => return Err(error.into()),
                Err(ScanError::Memory { lsn, bytes }) => return Err(ReadError::Memory { lsn, bytes }),
            }
        }
        Ok(None)
    }
}
