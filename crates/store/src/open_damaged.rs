//! Opening the log of a group's member that is damaged below its mark: not refused, as a lone log is, but opened up to the damage, for its peers to send again what
//! lies behind. DESIGN.md section 6.3.
//!
//! Invariants: nothing that could still be read is taken away: files and bytes behind the damage stay as they are, only headers of segments, of which every byte is known, are
//! mended; the superblock says in one update that nothing behind the damage is on the medium, and that the member may have acknowledged more, so that no later
//! opening takes the log for whole.

use windlass_log::{
    Class, Geometry, Lsn, RECORD_ALIGN, Scan, ScanError, SegmentHeaderError, Shape, Step, Superblock, Verdict,
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
/// How much of the log behind the first damage is read to list what else is damaged.
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

/// What is damaged of a member's log whose whole records end at `tail`, for whatever reason, and went on once. A file behind it that is whole and another's refuses.
pub(crate) fn examine_damaged<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
    verdict: &Verdict,
    tail: Lsn,
) -> Result<Vec<Damage>, OpenError> {
    let first = geometry.segment_of(tail);
    let mut end = tail;
    for base in listing.segments.keys() {
        let number = geometry.segment_of(*base);
        if number < first {
            continue;
        }
        match header_of(disk, geometry, number, now.log_id)? {
            Err(cause) if !is_mendable(&cause) => {
                let file = disk.path().join(names::segment(geometry, number));
                return Err(OpenError::SegmentHeader { file, base: *base, cause });
            }
            Ok(()) | Err(_) => end = geometry.first_record(number + 1),
        }
    }
    let marked = now.persisted.max(now.clean.unwrap_or_default()).max(verdict.flushed);
    let until = marked.max(now.acknowledged).min(end).min(Lsn(tail.0.saturating_add(LOOKED_BYTES_MAX)));
    let is_end = matches!(verdict.class(), Class::End | Class::Torn) && tail == verdict.stop.lsn;
    let damage = survey(disk, now, geometry, tail, geometry.normalize(until))?;
    // Beyond every mark nothing is known to have been there: what the member may have acknowledged is lost all the same.
    Ok(if is_end && damage.iter().all(|damage| !damage.is_whole_behind) { Vec::new() } else { damage })
}

/// Goes through the log from a damage on and lists what else does not hold below `until`.
fn survey<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    from: Lsn,
    until: Lsn,
) -> Result<Vec<Damage>, OpenError> {
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let mut file = None;
    let mut files = Files::new(disk, geometry, &mut file);
    let mut scan = Scan::new(shape, from, None).flat();
    let mut list = Vec::new();
    while scan.at() < until && list.len() < LISTED_MAX {
        let stop = match scan.step(&mut files).map_err(scan_failed)? {
            Step::Record(_) => continue,
            Step::Stop(stop) => stop,
        };
        let start = damage_start(geometry, &stop, now.trimmed);
        scan.seek(geometry.normalize(Lsn(stop.lsn.0 + RECORD_ALIGN)));
        let behind = scan.resync(&mut files, geometry.segment_of(until) + 1).map_err(scan_failed)?;
        let behind = behind.filter(|behind| *behind < until);
        list.push(Damage {
            start,
            end: behind.unwrap_or(until),
            is_whole_behind: behind.is_some(),
            file: disk.path().join(names::segment(geometry, geometry.segment_of(start))),
            offset: if start == stop.lsn { stop_offset(geometry, &stop) } else { geometry.offset_of(start) },
            reason: stop.reason,
        });
        if behind.is_none() {
            break;
        }
    }
    Ok(list)
}

fn scan_failed(error: ScanError<DiskError>) -> OpenError {
    match error {
        ScanError::Image { error, .. } => OpenError::Disk(error),
        // A flat scan never needs more than its first buffer.
        ScanError::Memory { lsn, bytes } => OpenError::Memory { lsn, bytes },
    }
}
