//! Every record of a log, and what does not hold between them.

use std::collections::BTreeSet;
use std::path::Path;

use windlass_log::{
    Class, Extent, FEATURES_KNOWN, Fetched, Geometry, Image, LogId, Lsn, Marks, RECORD_ALIGN, RecordKind,
    Row, Scan, ScanError, SegmentHeader, Shape, Step, Stop, StopReason, Superblock, judge,
};

use super::{RepairError, first_unreadable};
use crate::disk::Disk;
use crate::error::DiskError;
use crate::image::{Files, OpenFile};
use crate::inspect::stop_offset;
use crate::names;
use crate::open::OpenError;
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
    /// The start of the last damage, if nothing whole lies behind it.
    pub(super) cut: Option<Lsn>,
}

/// A folder's log as it is once its headers are mended and what is no segment is gone.
pub(super) struct Mended<'a, D: Disk> {
    files: Files<'a, D>,
    geometry: Geometry,
    log_id: LogId,
    absent: &'a BTreeSet<u64>,
    headers: &'a BTreeSet<u64>,
    /// Where the last reading that failed did.
    failed_at: Option<Lsn>,
}

impl<'a, D: Disk> Mended<'a, D> {
    pub(super) fn new(
        disk: &'a D,
        geometry: Geometry,
        log_id: LogId,
        absent: &'a BTreeSet<u64>,
        headers: &'a BTreeSet<u64>,
        open: &'a mut OpenFile<D>,
    ) -> Mended<'a, D> {
        let files = Files::new(disk, geometry, open);
        Mended { files, geometry, log_id, absent, headers, failed_at: None }
    }

    pub(super) fn failed_at(&self) -> Option<Lsn> {
        self.failed_at
    }
}

impl<D: Disk> Image for Mended<'_, D> {
    type Error = DiskError;

    const PIECE_BYTES: u64 = Files::<'static, D>::PIECE_BYTES;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, DiskError> {
        let number = self.geometry.segment_of(lsn);
        if self.absent.contains(&number) {
            return Ok(Fetched::Missing);
        }
        let fetched = match self.files.read(lsn, into) {
            Ok(fetched) => fetched,
            Err(error) => {
                let is_readable = |at, page: &mut [u8]| self.files.read(Lsn(at), page).is_ok();
                self.failed_at = Some(Lsn(first_unreadable(lsn.0, into.len(), is_readable)));
                return Err(error);
            }
        };
        if self.geometry.offset_of(lsn) == 0 && self.headers.contains(&number) {
            let header = SegmentHeader {
                log_id: self.log_id,
                base: lsn,
                segment_bytes: self.geometry.segment_bytes(),
                features: FEATURES_KNOWN,
            };
            let bytes = header.encode();
            let count = bytes.len().min(into.len());
            into[..count].copy_from_slice(&bytes[..count]);
        }
        Ok(fetched)
    }
}

fn failed(error: ScanError<DiskError>) -> RepairError {
    match error {
        ScanError::Image { error, .. } => error.into(),
        // A flat scan never needs more than its first buffer.
        ScanError::Memory { lsn, bytes } => OpenError::Memory { lsn, bytes }.into(),
    }
}

pub(super) fn survey<I: Image<Error = DiskError>>(
    image: &mut I,
    now: &Superblock,
    geometry: Geometry,
    folder: &Path,
) -> Result<Survey, RepairError> {
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let mut scan = Scan::new(shape.clone(), geometry.normalize(now.trimmed), None).flat();
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
        match meaning(image, &shape, now, &stop)? {
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
        let last = last_segment(image, geometry, stop.lsn, now)?;
        let behind = scan.resync(image, last + 1).map_err(failed)?;
        let flushed = now.persisted.max(now.clean.unwrap_or_default()).max(Lsn(start.0 + RECORD_ALIGN));
        let number = geometry.segment_of(start);
        survey.damage.push(Damage {
            start,
            end: behind.unwrap_or(geometry.normalize(flushed)),
            is_whole_behind: behind.is_some(),
            file: folder.join(names::segment(geometry, number)),
            offset: if start == stop.lsn { stop_offset(geometry, &stop) } else { geometry.offset_of(start) },
            reason: stop.reason,
        });
        if survey.damage.len() > RANGES_MAX {
            return Err(RepairError::TooMuch { ranges: RANGES_MAX });
        }
        if behind.is_none() {
            (survey.tail, survey.cut) = (start, Some(start));
            return Ok(survey);
        }
    }
}

/// What the decision table says of a log that begins where this scan has stopped.
fn meaning<I: Image<Error = DiskError>>(
    image: &mut I,
    shape: &Shape,
    now: &Superblock,
    stop: &Stop,
) -> Result<Class, RepairError> {
    if matches!(stop.reason, StopReason::ChainBroken { .. } | StopReason::Misplaced { .. }) {
        return Ok(Class::Damage);
    }
    let marks = Marks { trimmed: stop.lsn, persisted: now.persisted, clean: now.clean, member: now.member };
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
    now: &Superblock,
) -> Result<u64, RepairError> {
    let mut last = geometry.segment_of(now.persisted.max(now.clean.unwrap_or_default()).max(stop));
    let mut byte = [0; 8];
    while image.read(geometry.base(last + 1), &mut byte)? == Fetched::Whole {
        last += 1;
    }
    Ok(last)
}
