//! Opening the log of a group's member that is damaged below its mark: not refused, as a lone log is, but opened up to the damage, for its peers to send again what
//! lies behind. DESIGN.md section 6.3.
//!
//! Invariants: nothing that could still be read is taken away: files and bytes behind the damage stay as they are, only headers of segments, of which every byte is known, are
//! mended; the superblock says in one update that nothing behind the damage is on the medium, and that the member may have acknowledged more, so that no later
//! opening takes the log for whole.

use windlass_log::{
    Class, Geometry, Lsn, RECORD_ALIGN, Record, Scan, ScanError, SegmentHeaderError, Shape, Step, Superblock,
    Verdict,
};

use crate::disk::Disk;
use crate::error::DiskError;
use crate::examine::header_of;
use crate::folder::Listing;
use crate::image::Files;
use crate::inspect::stop_offset;
use crate::names;
use crate::open::{BadHeader, OpenError};
use crate::scrub::{Damage, damage_start};

/// Damaged ranges that are listed.
const LISTED_MAX: usize = 64;
/// How much of the log behind the first damage is read, to list what else is damaged and to find the last whole record.
const LOOKED_BYTES_MAX: u64 = 256 << 20;

/// Whether a header that does not hold may be written again: of one that is whole and another's nothing is known to be damaged.
pub(crate) fn is_mendable(cause: &BadHeader) -> bool {
    match cause {
        BadHeader::Unreadable(
            SegmentHeaderError::Blank
            | SegmentHeaderError::Magic { .. }
            | SegmentHeaderError::Short { .. }
            | SegmentHeaderError::Checksum { .. },
        ) => true,
        BadHeader::Unreadable(
            SegmentHeaderError::ByteOrder
            | SegmentHeaderError::Version { .. }
            | SegmentHeaderError::Features { .. },
        )
        | BadHeader::Other(_) => false,
    }
}

/// A member's damaged log.
pub(crate) struct Damaged {
    /// What is damaged of it, as far as it is listed.
    pub(crate) ranges: Vec<Damage>,
    /// Where the last whole record ends, whatever lies before it: `None` if that can't be told: it ends below what was flushed, so that the
    /// end is damaged, too; a segment is missing or has no header; or it was not looked for that far.
    pub(crate) end: Option<Lsn>,
}

/// What is damaged of a member's log whose whole records end at `tail`, for whatever reason, and went on once. A file behind it that is whole and another's refuses.
pub(crate) fn examine_damaged<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
    verdict: &Verdict,
    tail: Lsn,
) -> Result<Damaged, OpenError> {
    let first = geometry.segment_of(tail);
    let mut end = tail;
    let mut is_complete = true;
    for base in listing.segments.keys() {
        let number = geometry.segment_of(*base);
        if number < first {
            continue;
        }
        is_complete &= geometry.base(number) <= end || number == first;
        match header_of(disk, geometry, number, now.log_id)? {
            Err(cause) if !is_mendable(&cause) => {
                let file = disk.path().join(names::segment(geometry, number));
                return Err(OpenError::SegmentHeader { file, base: *base, cause });
            }
            Ok(()) => {}
            // What is whole in it does not count before its header is there again.
            Err(_) => is_complete = false,
        }
        end = geometry.first_record(number + 1);
    }
    let marked = now.persisted.max(now.clean.unwrap_or_default()).max(verdict.flushed);
    let looked_to = Lsn(tail.0.saturating_add(LOOKED_BYTES_MAX));
    let until = marked.max(now.acknowledged).min(end).min(looked_to);
    let is_end = matches!(verdict.class(), Class::End | Class::Torn) && tail == verdict.stop.lsn;
    let bounds = Bounds { until: geometry.normalize(until), end, looked_to };
    let (mut ranges, last) = survey(disk, now, geometry, tail, &bounds)?;
    if is_end && ranges.iter().all(|damage| !damage.is_whole_behind) {
        // Beyond every mark nothing is known to have been there: what the member may have acknowledged is lost all the same.
        ranges = Vec::new();
    }
    let end = last.filter(|last| is_complete && *last >= marked.max(now.acknowledged));
    Ok(Damaged { ranges, end })
}

/// How far a damaged log is gone through.
struct Bounds {
    /// Damage is listed below.
    until: Lsn,
    /// Where the files end.
    end: Lsn,
    /// No record is looked for behind.
    looked_to: Lsn,
}

/// Goes through the log from a damage on and lists what else does not hold. Also answers where the last whole record before the end of the files ends, if
/// that could be looked for: not if the files go on behind what is looked at, whether with records or with none.
fn survey<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    from: Lsn,
    &Bounds { until, end, looked_to }: &Bounds,
) -> Result<(Vec<Damage>, Option<Lsn>), OpenError> {
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let mut file = None;
    let mut files = Files::new(disk, geometry, &mut file);
    let mut scan = Scan::new(shape, from, None).flat();
    let mut list = Vec::new();
    let is_cut_short = looked_to < end;
    let mut last = from;
    loop {
        let stop = match scan.step(&mut files).map_err(scan_failed)? {
            Step::Record(Record { header, .. }) if header.lsn > looked_to => return Ok((list, None)),
            Step::Record(_) => continue,
            Step::Stop(stop) => stop,
        };
        last = last.max(stop.lsn);
        let start = damage_start(geometry, &stop, now.trimmed);
        scan.seek(geometry.normalize(Lsn(stop.lsn.0 + RECORD_ALIGN)));
        let is_over = stop.lsn >= end;
        let behind = if is_over {
            None
        } else {
            let bound = if is_cut_short { looked_to } else { Lsn(u64::MAX) };
            scan.set_until(bound);
            let found = scan.resync(&mut files, geometry.segment_of(bound.min(end)) + 1);
            scan.set_until(Lsn(u64::MAX));
            found.map_err(scan_failed)?
        };
        let behind = behind.filter(|behind| *behind < end);
        if start < until && list.len() < LISTED_MAX {
            let whole = behind.filter(|behind| *behind < until);
            list.push(Damage {
                start,
                end: whole.unwrap_or(until),
                is_whole_behind: whole.is_some(),
                file: disk.path().join(names::segment(geometry, geometry.segment_of(start))),
                offset: if start == stop.lsn {
                    stop_offset(geometry, &stop)
                } else {
                    geometry.offset_of(start)
                },
                reason: stop.reason,
            });
        }
        if behind.is_none() {
            return Ok((list, (is_over || !is_cut_short).then_some(last)));
        }
    }
}

fn scan_failed(error: ScanError<DiskError>) -> OpenError {
    match error {
        ScanError::Image { error, .. } => OpenError::Disk(error),
        // A flat scan never needs more than its first buffer.
        ScanError::Memory { lsn, bytes } => OpenError::Memory { lsn, bytes },
    }
}

#[cfg(test)]
mod tests {
    use windlass_log::SEGMENT_BYTES_MIN;

    use super::*;
    use crate::disk::testing::{Call, TestDisk};
    use crate::tests::testlog::{TestLog, options};
    use crate::{Inspection, Options};

    const SEGMENTS: u64 = 4;

    /// A log that was killed, with a damaged last record and many segments ahead of it; its superblock and the record.
    fn damaged() -> (TestDisk, Superblock, Geometry, Lsn) {
        let disk = TestDisk::new();
        drop(TestLog::create(disk.clone()).unwrap());
        let ahead = Options { segments_ahead: 3, retention_bytes: 8 * SEGMENT_BYTES_MIN, ..options() };
        let mut log = TestLog::try_open(disk.clone(), &ahead).unwrap().unwrap();
        log.append(b"whole").unwrap();
        let last = log.append(b"damaged").unwrap().start;
        log.flush().unwrap();
        let (now, geometry) = (log.store.superblock(), log.store.geometry());
        drop(log);
        let disk = disk.after_kill();
        assert!(disk.names().contains(&names::segment(geometry, SEGMENTS - 1)), "{:?}", disk.names());
        disk.flip(&names::segment(geometry, 0), last.0 + 20, 1);
        assert!(Inspection::open(disk.clone(), None).is_ok());
        (disk, now, geometry, last)
    }

    #[test]
    fn kind_2_behind_damage_no_more_is_read_than_is_looked_at_however_long_the_files_are_r18() {
        let (disk, now, geometry, last) = damaged();
        let end = geometry.first_record(SEGMENTS);
        let look = |looked_to| {
            let before = disk.calls(Call::Read);
            let bounds = Bounds { until: Lsn(last.0 + 4096), end, looked_to };
            let (ranges, found) = survey(&disk, &now, geometry, last, &bounds).unwrap();
            assert_eq!((ranges.len(), ranges[0].start, ranges[0].is_whole_behind), (1, last, false));
            (found, disk.calls(Call::Read) - before)
        };
        let (found, all) = look(end);
        assert_eq!(found, Some(last), "looked through to the end of the files");
        let (found, few) = look(Lsn(last.0 + 8192));
        assert_eq!(found, None, "what lies behind is not known");
        assert!(few * 2 < all, "{few} reads of {all}");
        assert_eq!(look(Lsn(end.0 - 8)).0, None);
    }
}
