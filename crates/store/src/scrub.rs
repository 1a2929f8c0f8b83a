//! Scrubbing: the segments that nobody writes any more are read and checked, piece by piece, by whoever has the time. And what follows from damage below the
//! persisted mark in the log of a group's member: the mark is lowered to it, so that no opening takes the log for whole again. DESIGN.md section 6.3.
//!
//! Invariants: a piece changes nothing; what is told as damage was read twice, under the history and the marks of the moment, and lies at or above the trim
//! point and below the persisted mark both times; a system call that fails is an error, never damage and never an end (kind 7).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use windlass_log::{Chain, Lsn, RECORD_ALIGN, SEGMENT_START_BYTES, Scan, ScanError, Step, Stop, StopReason};

use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError, StoreError};
use crate::examine::header_of;
use crate::image::Files;
use crate::inspect::stop_offset;
use crate::names;
use crate::open_damaged::is_mendable;
use crate::prepare::write_header;
use crate::store::{Store, UpdateError, locked};

const _: () = assert!(SEGMENT_START_BYTES.is_multiple_of(RECORD_ALIGN));

/// Where a pass over the log stands: the start of the record to check next, and the chain there, if the pass has come through a segment's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubPlace {
    lsn: Lsn,
    chain: Option<Chain>,
}

impl ScrubPlace {
    /// A pass that begins at `lsn`, a record's start. Below the trim point it begins there.
    #[must_use]
    pub fn new(lsn: Lsn) -> ScrubPlace {
        ScrubPlace { lsn, chain: None }
    }

    /// The start of the record to check next.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

/// Damage in a log: `[start, end)` holds no whole record at its start, and from `end` on whole records follow again, or nothing is known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: damage from LSN {start} to {end}, offset {offset}: {reason}", file.display())]
pub struct Damage {
    /// The start of the first record that is not whole.
    pub start: Lsn,
    /// The start of the first whole record behind, or where looking for one ended.
    pub end: Lsn,
    /// Whether a whole record starts at `end`.
    pub is_whole_behind: bool,
    /// The file of `start`.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub reason: StopReason,
}

/// What checking a piece came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// Whole: go on there.
    Whole {
        /// Where the next piece begins.
        next: ScrubPlace,
        /// Bytes that were checked.
        bytes: u64,
    },
    /// Whole, and the end that was given is reached.
    End {
        /// Bytes that were checked.
        bytes: u64,
    },
    /// Something that was on the medium is not there any more.
    Damaged(Damage),
}

impl<D: Disk> Store<D> {
    /// Up to where a scrub goes: the base of the segment of the persisted mark, behind which pages are still being written.
    #[must_use]
    pub fn cold_end(&self) -> Lsn {
        let base = self.geometry.base(self.geometry.segment_of(self.persisted().lsn()));
        self.geometry.normalize(base).max(self.trimmed())
    }

    /// Reads about `bytes_max` bytes of the log from the medium and checks them, from `place` on and up to `until` at most, a record's end at or below the persisted mark.
    /// What the page cache holds of segments that are not mapped is let go of first, so that the medium is what is read. Any thread may call it.
    ///
    /// Memory: 64 KiB. A piece that ends inside a long record is as long as that record.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: it could not be read, which says nothing of the log.
    pub fn scrub(&self, place: ScrubPlace, until: Lsn, bytes_max: u64) -> Result<Scrubbed, DiskError> {
        let until = until.min(self.persisted().lsn());
        let trimmed = self.trimmed();
        let place = if place.lsn < trimmed { ScrubPlace::new(trimmed) } else { place };
        let from = self.geometry.normalize(place.lsn);
        if from >= until {
            return Ok(Scrubbed::End { bytes: 0 });
        }
        self.forget(from, bytes_max)?;
        let mut scan = Scan::new(self.shape(), from, place.chain).until(until).flat();
        let mut file = None;
        let stop = loop {
            let mut files = Files::new(&self.disk, self.geometry, &mut file);
            match scan.step(&mut files) {
                Ok(Step::Record(_)) => {}
                Ok(Step::Stop(stop)) => break stop,
                Err(error) => return self.unreadable(error, scan.at()),
            }
            let bytes = scan.at().0 - from.0;
            // Not across segments: of the next one the page cache has not been let go of yet.
            if bytes >= bytes_max || self.geometry.is_first_record(scan.at()) {
                self.forget(from, bytes_max)?;
                let next = ScrubPlace { lsn: scan.at(), chain: scan.chain() };
                return Ok(Scrubbed::Whole { next, bytes });
            }
        };
        let bytes = stop.lsn.0 - from.0;
        if stop.reason == StopReason::Reached {
            self.forget(from, bytes_max)?;
            return Ok(Scrubbed::End { bytes });
        }
        // Trimmed, cut or written again meanwhile, perhaps: only what is found twice counts.
        match self.look_again(stop.lsn, scan.chain())? {
            Some(damage) => Ok(Scrubbed::Damaged(damage)),
            None => Ok(Scrubbed::Whole { next: ScrubPlace::new(stop.lsn), bytes }),
        }
    }

    /// Whether the record at `lsn` is damaged: `None` if it is whole, or is not what was flushed any more.
    fn look_again(&self, lsn: Lsn, chain: Option<Chain>) -> Result<Option<Damage>, DiskError> {
        let is_flushed = |store: &Store<D>| store.trimmed() <= lsn && lsn < store.persisted().lsn();
        if !is_flushed(self) {
            return Ok(None);
        }
        let until = self.persisted().lsn();
        let mut scan = Scan::new(self.shape(), lsn, chain).until(until).flat();
        let mut file = None;
        let stop = match scan.step(&mut Files::new(&self.disk, self.geometry, &mut file)) {
            Ok(Step::Record(_)) => return Ok(None),
            Ok(Step::Stop(stop)) => stop,
            Err(ScanError::Image { error, .. }) => return Err(error),
            Err(ScanError::Memory { .. }) => return Ok(None),
        };
        if stop.reason == StopReason::Reached || !is_flushed(self) {
            return Ok(None);
        }
        self.damage_at(&stop, until).map(Some)
    }

    /// The damage that a scan stopped at, up to the next whole record, or to `until`.
    fn damage_at(&self, stop: &Stop, until: Lsn) -> Result<Damage, DiskError> {
        let geometry = self.geometry;
        let start = damage_start(geometry, stop, self.trimmed());
        let number = geometry.segment_of(start);
        let mut damage = Damage {
            start,
            end: until,
            is_whole_behind: false,
            file: self.disk.path().join(names::segment(geometry, number)),
            offset: if start == stop.lsn { stop_offset(geometry, stop) } else { geometry.offset_of(start) },
            reason: stop.reason,
        };
        let behind = if start == stop.lsn { Lsn(stop.lsn.0 + RECORD_ALIGN) } else { stop.lsn };
        let behind = geometry.normalize(behind);
        if behind < until {
            let mut scan = Scan::new(self.shape(), behind, None).until(until).flat();
            let mut file = None;
            let mut files = Files::new(&self.disk, geometry, &mut file);
            match scan.resync(&mut files, geometry.segment_of(until) + 1) {
                Ok(Some(end)) => (damage.end, damage.is_whole_behind) = (end, true),
                Ok(None) | Err(ScanError::Memory { .. }) => {}
                Err(ScanError::Image { error, .. }) => return Err(error),
            }
        }
        Ok(damage)
    }

    fn unreadable(&self, error: ScanError<DiskError>, lsn: Lsn) -> Result<Scrubbed, DiskError> {
        match error {
            ScanError::Image { error, .. } => Err(error),
            // A flat scan never needs more than its buffer: tried again.
            ScanError::Memory { .. } => {
                Ok(Scrubbed::Whole { next: ScrubPlace::new(lsn), bytes: RECORD_ALIGN })
            }
        }
    }

    /// Lets go of what the page cache holds of a stretch, if its segment is not mapped.
    fn forget(&self, from: Lsn, bytes: u64) -> Result<(), DiskError> {
        let number = self.geometry.segment_of(from);
        if self.segments().contains_key(&number) {
            return Ok(());
        }
        let name = names::segment(self.geometry, number);
        match self.disk.open(&name, Access::Read) {
            Ok(file) => {
                let start = self.geometry.offset_of(from);
                file.forget(start..start.saturating_add(bytes).min(self.geometry.segment_bytes()));
                Ok(())
            }
            // The scan says so.
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).at(DiskCall::Open, self.disk.path(), &name),
        }
    }

    /// Damage was found below the persisted mark, in the log of a group's member: nothing from its start on counts as flushed any more. Durable in both copies of the superblock
    /// before it returns, so that the next opening finds the damage, and that more may have been acknowledged (until [`Store::update`] says how much). The segments from there on are open for writing again, with their headers mended.
    /// Where it was trimmed since in part it begins at the trim point; at or above the persisted mark, or below the trim point, it does nothing: the log was cut or trimmed since, and lacks
    /// nothing there. Answers where it begins.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: final.
    pub fn distrust(&self, damage: Range<Lsn>) -> Result<Option<Lsn>, StoreError> {
        self.usable()?;
        self.vouch()?;
        // As a cut: no helper's step writes down a mark that it saw before.
        let _preparing = locked(&self.preparing);
        let _turn = locked(&self.flushing);
        let trimmed = self.trimmed();
        let lsn = damage.start.max(trimmed);
        if lsn >= self.persisted().lsn() || damage.end <= trimmed {
            return Ok(None);
        }
        let number = self.geometry.segment_of(lsn);
        let header = self.header(number);
        mend_header(&self.disk, self.geometry, number, header).map_err(|error| self.fail(error))?;
        // A flush that was asked for before raises it again in memory, and no helper may write that down before the damage is cut off.
        self.hold_mark(|damaged| damaged.push(damage));
        let flushed = self.persisted().lsn();
        let lowered = self.rewrite(|superblock| {
            // else nothing would tell the next opening that the log went on, where there is no live mark and the member is killed before its engine has written down
            // what it may have acknowledged: the damage would be taken for a torn tail, and cut off.
            superblock.acknowledged = superblock.acknowledged.max(flushed);
            superblock.persisted = superblock.persisted.min(lsn.max(superblock.trimmed));
            superblock.clean = None;
        });
        match lowered {
            Ok(()) => {}
            Err(UpdateError::Store(error)) => return Err(error),
            Err(UpdateError::Encode(error)) => unreachable!("a mark changes no length: {error}"),
        }
        self.distrusted.store(true, Ordering::Release);
        self.persisted.fetch_min(lsn.max(self.trimmed()).0, Ordering::AcqRel);
        self.reopen_from(number)?;
        Ok(Some(lsn))
    }

    /// Changes what is known of damage, and keeps the persisted mark from being written down beyond the first of it that is not released.
    pub(crate) fn hold_mark(&self, change: impl FnOnce(&mut Vec<Range<Lsn>>)) {
        let mut damaged = locked(&self.damaged);
        change(&mut damaged);
        let trimmed = self.trimmed();
        damaged.retain(|range| trimmed < range.end);
        let first = damaged.iter().map(|range| range.start.max(trimmed)).min();
        self.mark_max.store(first.map_or(u64::MAX, |first| first.0), Ordering::Release);
    }
}

/// Where the damage begins that a scan stopped at: what a segment-start record contradicts lies in the segment before it.
pub(crate) fn damage_start(geometry: windlass_log::Geometry, stop: &Stop, trimmed: Lsn) -> Lsn {
    let number = geometry.segment_of(stop.lsn);
    match stop.reason {
        StopReason::ChainBroken { .. } if geometry.is_first_record(stop.lsn) && number > 0 => {
            geometry.first_record(number - 1).max(trimmed)
        }
        StopReason::ChainBroken { .. }
        | StopReason::Reached
        | StopReason::Blank
        | StopReason::Header(_)
        | StopReason::Payload { .. }
        | StopReason::Filler
        | StopReason::BeyondEnd { .. }
        | StopReason::BeyondEpoch { .. }
        | StopReason::NoEpoch
        | StopReason::SegmentMissing { .. }
        | StopReason::SegmentShort { .. }
        | StopReason::SegmentHeader { .. }
        | StopReason::SegmentForeign { .. }
        | StopReason::Misplaced { .. } => stop.lsn,
    }
}

/// Writes a segment's header again, durably, if its file is there and the header is not what it must be: all of it is known, and nothing else is in its page.
pub(crate) fn mend_header<D: Disk>(
    disk: &D,
    geometry: windlass_log::Geometry,
    number: u64,
    header: windlass_log::SegmentHeader,
) -> Result<bool, DiskError> {
    let name = names::segment(geometry, number);
    match header_of(disk, geometry, number, header.log_id) {
        Ok(Ok(())) => return Ok(false),
        Ok(Err(cause)) if !is_mendable(&cause) => return Ok(false),
        Ok(Err(_)) => {}
        Err(error) if error.errno == Errno::NOENT => return Ok(false),
        Err(error) => return Err(error),
    }
    let file = disk.open(&name, Access::ReadWrite).at(DiskCall::Open, disk.path(), &name)?;
    write_header::<D>(&file, header).at(DiskCall::Write, disk.path(), &name)?;
    file.sync().at(DiskCall::Sync, disk.path(), &name)?;
    Ok(true)
}
