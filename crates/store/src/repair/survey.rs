//! Every record of a log, and what does not hold between them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use windlass_log::{
    Class, Extent, Fetched, Geometry, Image, LogId, Lsn, Marks, RECORD_ALIGN, RecordKind, Row,
    SEGMENT_HEADER, Scan, ScanError, SegmentHeader, Shape, Step, Stop, StopReason, Superblock, judge,
};

use super::RepairError;
use crate::disk::Disk;
use crate::error::DiskError;
use crate::folder::Listing;
use crate::image::{Files, Forgiving, Lacking, OpenFile};
use crate::inspect::stop_offset;
use crate::names;
use crate::open::{BadHeader, OpenError};
use crate::scrub::{Damage, damage_start};

/// More ranges than this are not for a repair.
const RANGES_MAX: usize = 10_000;

/// Whole records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Records that were appended: data and batches.
    pub records: u64,
    /// Bytes of all whole records, the log's own included.
    pub bytes: u64,
}

/// What a log is like, from the trim point on.
pub(super) struct Survey {
    pub(super) kept: Tally,
    pub(super) tail: Lsn,
    pub(super) torn: Option<Stop>,
    pub(super) damage: Vec<Damage>,
    /// The last damage, if nothing whole lies behind it.
    pub(super) cut: Option<Range<Lsn>>,
}

/// A folder's log as it is once its headers are mended, its files have their lengths, and what the medium does not give is written again.
pub(super) struct Mended<'a, D: Disk> {
    disk: &'a D,
    geometry: Geometry,
    log_id: LogId,
    pub(super) forgiving: Forgiving,
    pub(super) headers: BTreeSet<u64>,
    open: OpenFile<D>,
}

impl<'a, D: Disk> Mended<'a, D> {
    pub(super) fn new(disk: &'a D, geometry: Geometry, log_id: LogId, listing: &Listing) -> Mended<'a, D> {
        let forgiving = Forgiving::new(listing, geometry);
        Mended { disk, geometry, log_id, forgiving, headers: BTreeSet::new(), open: None }
    }

    /// Whether the header of a segment that is there holds.
    pub(super) fn header(&mut self, number: u64) -> Result<Result<(), BadHeader>, DiskError> {
        let mut bytes = [0; SEGMENT_HEADER];
        if self.read(self.geometry.base(number), &mut bytes)? != Fetched::Whole {
            return Ok(Ok(()));
        }
        let expected = self.expected(number);
        Ok(match SegmentHeader::decode(&bytes) {
            Ok(header) if header == expected => Ok(()),
            Ok(header) => Err(BadHeader::Other(header)),
            Err(error) => Err(error.into()),
        })
    }

    fn expected(&self, number: u64) -> SegmentHeader {
        super::fill::header(self.geometry, self.log_id, number)
    }

    /// Whether the medium gives all of a page.
    pub(super) fn is_readable(&self, lsn: Lsn) -> bool {
        let ranges = self.forgiving.unreadable.ranges();
        !ranges.iter().any(|range| range.contains(&lsn))
    }

    /// Whether there is a whole record in a segment, whatever its header says.
    pub(super) fn has_record(&mut self, now: &Superblock, number: u64) -> Result<bool, RepairError> {
        let shape = Shape { geometry: self.geometry, log_id: now.log_id, history: now.history.clone() };
        let from = self.geometry.first_record(number);
        let mut scan = Scan::new(shape, from, None).flat().without_headers();
        Ok(scan.resync(self, number + 1).map_err(failed)?.is_some())
    }
}

impl<D: Disk> Image for Mended<'_, D> {
    type Error = DiskError;

    const PIECE_BYTES: u64 = Files::<'static, D>::PIECE_BYTES;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, DiskError> {
        let number = self.geometry.segment_of(lsn);
        let mut files =
            Files::new(self.disk, self.geometry, &mut self.open).forgiving(Some(&mut self.forgiving));
        let fetched = files.read(lsn, into)?;
        if self.geometry.offset_of(lsn) == 0 && self.headers.contains(&number) && fetched == Fetched::Whole {
            let bytes = self.expected(number).encode();
            let count = bytes.len().min(into.len());
            into[..count].copy_from_slice(&bytes[..count]);
        }
        Ok(fetched)
    }
}

pub(super) fn failed(error: ScanError<DiskError>) -> RepairError {
    match error {
        ScanError::Image { error, .. } => error.into(),
        // A flat scan never needs more than its first buffer.
        ScanError::Memory { lsn, bytes } => OpenError::Memory { lsn, bytes }.into(),
    }
}

pub(super) fn survey<D: Disk>(
    image: &mut Mended<'_, D>,
    now: &Superblock,
    live: Lsn,
    geometry: Geometry,
    folder: &Path,
) -> Result<Survey, RepairError> {
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let marked = now.persisted.max(live).max(now.clean.unwrap_or_default());
    let mut scan = from_trim(image, shape.clone(), now.trimmed).map_err(failed)?;
    let mut survey =
        Survey { kept: Tally::default(), tail: now.trimmed, torn: None, damage: Vec::new(), cut: None };
    loop {
        let stop = match scan.step(image).map_err(failed)? {
            Step::Record(record) => {
                survey.kept.bytes += record.header.record_bytes();
                match record.header.kind {
                    RecordKind::Data | RecordKind::Batch => survey.kept.records += 1,
                    RecordKind::Pad
                    | RecordKind::SegmentStart
                    | RecordKind::EpochStart
                    | RecordKind::Configuration => {}
                }
                continue;
            }
            Step::Stop(stop) => stop,
        };
        survey.tail = stop.lsn;
        let class = meaning(image, &shape, now, live, &stop)?;
        let lacking = image.forgiving.lacking(geometry, &stop);
        match class {
            // No crash shortens a file or spoils a sector: what was there may have been acknowledged.
            Class::End | Class::Torn if lacking.is_some() => {}
            Class::End => return Ok(survey),
            Class::Torn => {
                survey.torn = Some(stop);
                return Ok(survey);
            }
            Class::Foreign => {
                let number = geometry.segment_of(stop.lsn);
                let StopReason::SegmentForeign { found, .. } = stop.reason else {
                    return Err(RepairError::Unfit { row: Row::LaterVersion, lsn: stop.lsn });
                };
                return Err(OpenError::SegmentHeader {
                    file: folder.join(names::segment(geometry, number)),
                    base: geometry.base(number),
                    cause: crate::open::BadHeader::Other(found),
                }
                .into());
            }
            Class::Damage => {}
        }
        let start = damage_start(geometry, &stop, now.trimmed);
        scan.seek(if start == stop.lsn {
            geometry.normalize(Lsn(stop.lsn.0 + RECORD_ALIGN))
        } else {
            stop.lsn
        });
        let last = last_segment(image, geometry, stop.lsn, marked)?;
        let behind = scan.resync(image, last + 1).map_err(failed)?;
        let flushed = marked.max(Lsn(start.0 + RECORD_ALIGN));
        let (lost_to, reason) = match lacking {
            Some(Lacking::Unreadable { end }) => (end, stop.reason),
            Some(Lacking::CutOff { segment, end }) => (end, StopReason::SegmentShort { segment }),
            None => (flushed, stop.reason),
        };
        let number = geometry.segment_of(start);
        let is_at_stop = start == stop.lsn && lacking.is_none();
        let damage = Damage {
            start,
            end: behind.unwrap_or(geometry.normalize(flushed.max(lost_to))),
            is_whole_behind: behind.is_some(),
            file: folder.join(names::segment(geometry, number)),
            offset: if is_at_stop { stop_offset(geometry, &stop) } else { geometry.offset_of(start) },
            reason,
        };
        let range = damage.start..damage.end;
        survey.damage.push(damage);
        if survey.damage.len() > RANGES_MAX {
            return Err(RepairError::TooMuch { ranges: RANGES_MAX });
        }
        if behind.is_none() {
            (survey.tail, survey.cut) = (start, Some(range));
            return Ok(survey);
        }
    }
}

/// A scan that stands at the trim point. It knows the chain of the records before it in its segment, as a judgement of the log does: where they are not
/// whole, which released bytes need not be, the chain is unknown.
pub(super) fn from_trim<I: Image>(
    image: &mut I,
    shape: Shape,
    trimmed: Lsn,
) -> Result<Scan, ScanError<I::Error>> {
    let geometry = shape.geometry;
    let trimmed = geometry.normalize(trimmed);
    let mut scan = Scan::new(shape, geometry.first_record(geometry.segment_of(trimmed)), None).flat();
    while scan.at() < trimmed {
        if let Step::Stop(_) = scan.step(image)? {
            scan.seek(trimmed);
        }
    }
    Ok(scan)
}

/// What the decision table says of a log that begins where this scan has stopped.
fn meaning<I: Image<Error = DiskError>>(
    image: &mut I,
    shape: &Shape,
    now: &Superblock,
    live: Lsn,
    stop: &Stop,
) -> Result<Class, RepairError> {
    if matches!(stop.reason, StopReason::ChainBroken { .. } | StopReason::Misplaced { .. }) {
        return Ok(Class::Damage);
    }
    let Superblock { persisted, clean, member, .. } = *now;
    let marks = Marks { trimmed: stop.lsn, persisted, live, clean, member };
    let verdict = judge(image, shape, &marks, Extent::Whole, |_| {}).map_err(failed)?;
    let is_bytes = matches!(verdict.row, Row::RecordDamaged | Row::SegmentLost | Row::ChainBroken);
    if verdict.class() == Class::Damage && !is_bytes {
        return Err(RepairError::Unfit { row: verdict.row, lsn: stop.lsn });
    }
    Ok(verdict.class())
}

/// The last segment in which whole records may lie behind a stop: up to the marks, and as long as files follow each other beyond.
fn last_segment<I: Image<Error = DiskError>>(
    image: &mut I,
    geometry: Geometry,
    stop: Lsn,
    marked: Lsn,
) -> Result<u64, RepairError> {
    let mut last = geometry.segment_of(marked.max(stop));
    let mut byte = [0; 8];
    while image.read(geometry.base(last + 1), &mut byte)? == Fetched::Whole {
        last += 1;
    }
    Ok(last)
}
