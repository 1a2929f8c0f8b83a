//! Whether the log has gone on under a later superblock than the one that is there: a file that was put back, writes that the medium lost. DESIGN.md sections 6.1 and 6.5.
//!
//! A superblock that is older than the log lacks the newest epochs, so that their records look like leftovers and the log seems to end before them, or in damage that peers could repair; and what
//! it had promised is forgotten. It is told by a whole record above its promise ([`newer`]). Looked at is where such records are: from the place on where the records end that the superblock knows
//! of, to the end of that segment, and the first record of every segment; then the last segments, those behind that place that begin with a record of this log, of whatever epoch: the log may have gone on from
//! a line that was given up, as the superblock has it; and where the log can't end there, the others, too. What the medium does not give counts as zeros here: that something is not there is no evidence.

use windlass_log::{
    Class, Epoch, EpochHistory, Geometry, HistoryError, LogId, Lsn, Newer, RECORD_ALIGN, Row, ScanError,
    Superblock, Verdict, newer,
};

use crate::disk::Disk;
use crate::error::DiskError;
use crate::examine::holder_of;
use crate::folder::Listing;
use crate::image::{Files, Forgiving};
use crate::names;
use crate::open::OpenError;

/// How much of the log's end is gone through, segment by segment, where the end that the superblock knows of is none: of segments that begin with a whole record, and of others, made ahead or begun
/// behind their first place.
const LOOKED_BYTES_MAX: [u64; 2] = [256 << 20, 1 << 30];

/// A record above the promise of this superblock. `stop` is where the records end that it knows of, and `is_end` whether the log may end there: else its end may lie anywhere behind.
pub(crate) fn look<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
    stop: Lsn,
    is_end: bool,
) -> Result<Option<Newer>, DiskError> {
    let (mut forgiving, mut open) = (Forgiving::new(listing, geometry), None);
    let mut files = Files::new(disk, geometry, &mut open).forgiving(Some(&mut forgiving));
    let mut find = |above: Epoch, start: Lsn, end: Lsn| {
        newer(&mut files, geometry, now.log_id, above, start..end).map_err(failed)
    };
    let first_place = |number: u64| {
        let first = geometry.first_record(number);
        (first, Lsn(first.0 + RECORD_ALIGN))
    };
    let numbers = listing.segments.keys().filter(|base| geometry.offset_of(**base) == 0);
    let numbers: Vec<u64> = numbers.map(|base| geometry.segment_of(*base)).collect();
    let stop_segment = geometry.segment_of(stop);
    for number in &numbers {
        let (first, end) = first_place(*number);
        let mut found = find(now.promised, first, end)?;
        if *number == stop_segment && found.is_none() {
            found = find(now.promised, stop, geometry.base(number + 1))?;
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    // Nor does a log end in a gap.
    let is_end = is_end && numbers.contains(&stop_segment);
    let mut looked_bytes = [0; 2];
    for number in numbers.iter().rev().take_while(|number| **number > stop_segment) {
        let (first, end) = first_place(*number);
        let is_begun = find(Epoch::NONE, first, end)?.is_some();
        if is_end && !is_begun {
            continue;
        }
        let looked_bytes = &mut looked_bytes[usize::from(!is_begun)];
        if *looked_bytes < LOOKED_BYTES_MAX[usize::from(!is_begun)] {
            *looked_bytes += geometry.segment_bytes();
            let found = find(now.promised, first, geometry.base(number + 1))?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

fn failed(error: ScanError<DiskError>) -> DiskError {
    match error {
        ScanError::Image { error, .. } => error,
        ScanError::Memory { .. } => {
            unreachable!("a flat scan of one record needs no more than its first buffer")
        }
    }
}

/// Whether a log may end where this verdict's records do: neither in damage, nor before its first epoch.
pub(crate) fn is_end(verdict: &Verdict) -> bool {
    matches!(verdict.class(), Class::End | Class::Torn) && verdict.row != Row::NeverLed
}

/// What an opening says of it.
pub(crate) fn refusal<D: Disk>(disk: &D, now: &Superblock, geometry: Geometry, found: Newer) -> OpenError {
    OpenError::SuperblockOlder {
        superblock: disk.path().join(names::SUPERBLOCK),
        file: disk.path().join(names::segment(geometry, geometry.segment_of(found.lsn))),
        offset: geometry.offset_of(found.lsn),
        lsn: found.lsn,
        epoch: found.epoch,
        promised: now.promised,
        holder: holder_of(now),
    }
}

/// Adds to a history which epochs above `above` the records of the whole log are of: each begins at its first whole record behind those of older ones. Where there are more than a history
/// holds the newest stay, since the log had been trimmed to behind the others (it could not have had more): then the answer is where the oldest that stays begins.
pub(crate) fn epochs_above<D: Disk>(
    disk: &D,
    listing: &Listing,
    log_id: LogId,
    geometry: Geometry,
    mut above: Epoch,
    history: &mut EpochHistory,
) -> Result<Result<Option<Lsn>, HistoryError>, DiskError> {
    let mut begins = None;
    let (mut forgiving, mut open) = (Forgiving::new(listing, geometry), None);
    let mut files = Files::new(disk, geometry, &mut open).forgiving(Some(&mut forgiving));
    for base in listing.segments.keys().filter(|base| geometry.offset_of(**base) == 0) {
        let mut at = *base;
        let end = Lsn(base.0.saturating_add(geometry.segment_bytes()));
        while let Some(found) = newer(&mut files, geometry, log_id, above, at..end).map_err(failed)? {
            history.cut(found.lsn);
            let mut extended = history.extend(found.epoch, found.lsn);
            if extended == Err(HistoryError::TooMany) {
                let second = history.entries()[1].start;
                history.trim(second);
                begins = Some(second);
                extended = history.extend(found.epoch, found.lsn);
            }
            if let Err(error) = extended {
                return Ok(Err(error));
            }
            (above, at) = (found.epoch, Lsn(found.lsn.0 + RECORD_ALIGN));
        }
    }
    Ok(Ok(begins))
}

/// The superblock as it would have to be for the log to hold: with the epochs of the records above its promise, and vouching for nothing from the first of these on. `None`: there are no such records.
pub(crate) fn accepted<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
) -> Result<Result<Option<Superblock>, HistoryError>, DiskError> {
    let mut next = now.clone();
    // A member may have promised more than it has in its history, and its log have gone on in epochs between.
    let known = now.history.last().map_or(Epoch::NONE, |last| last.epoch);
    match epochs_above(disk, listing, now.log_id, geometry, known, &mut next.history)? {
        Ok(begins) => next.trimmed = next.trimmed.max(begins.unwrap_or_default()),
        Err(error) => return Ok(Err(error)),
    }
    let first = next.history.entries().iter().find(|entry| entry.epoch > known);
    let (Some(first), Some(last)) = (first.copied(), next.history.last()) else { return Ok(Ok(None)) };
    if last.epoch <= now.promised {
        return Ok(Ok(None));
    }
    next.promised = last.epoch;
    next.persisted = next.persisted.min(first.start).max(next.trimmed);
    next.acknowledged = next.acknowledged.min(first.start);
    next.clean = None;
    next.generation += 1;
    Ok(Ok(Some(next)))
}
