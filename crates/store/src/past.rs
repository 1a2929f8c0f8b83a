//! Whether the log has gone on behind the mark of its last clean close, in the same epoch: then the superblock is from before, as one that was put back. DESIGN.md sections 6.1 and 6.5.
//!
//! The clean mark is taken away, durably, before the first record is written behind it. So a whole record there says that the superblock is older than the log; and as the epoch is the same nothing of it
//! is a leftover: what is whole there is the log's end, for which no mark vouches. What the medium does not give counts as zeros here: that something is not there is no evidence.

use windlass_log::{
    Class, Geometry, Lsn, RECORD_ALIGN, Row, Scan, ScanError, Shape, Step, Superblock, Verdict,
};

use crate::disk::Disk;
use crate::error::DiskError;
use crate::examine::holder_of;
use crate::folder::Listing;
use crate::image::{Files, Forgiving};
use crate::names;
use crate::open::OpenError;

/// The first whole record behind the clean mark. Looked for, segment by segment, only where the log does not hold up to the mark (`lacks`: also by files that the verdict did not read): what is missing
/// there may have been trimmed since; else the verdict knows.
pub(crate) fn first<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
    verdict: &Verdict,
    lacks: bool,
) -> Result<Option<Lsn>, DiskError> {
    let Some(clean) = now.clean.map(|clean| geometry.normalize(clean)) else { return Ok(None) };
    if verdict.row == Row::PastCleanMark {
        return Ok(if verdict.stop.lsn > clean { Some(clean) } else { verdict.behind });
    }
    let lacks = lacks || (verdict.class() == Class::Damage && verdict.stop.lsn < clean);
    if !lacks {
        return Ok(None);
    }
    Ok(look(disk, now, geometry, listing)?.map(|past| past.first))
}

/// What an opening says of a whole record at `lsn`, behind the clean mark.
pub(crate) fn refusal<D: Disk>(disk: &D, now: &Superblock, geometry: Geometry, lsn: Lsn) -> OpenError {
    OpenError::PastCleanMark {
        superblock: disk.path().join(names::SUPERBLOCK),
        clean: geometry.normalize(now.clean.unwrap_or_default()),
        file: disk.path().join(names::segment(geometry, geometry.segment_of(lsn))),
        offset: geometry.offset_of(lsn),
        lsn,
        holder: holder_of(now),
    }
}

/// Whole records behind a clean mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Past {
    /// Where the first of them starts.
    first: Lsn,
    /// Where the last run of them starts that follow each other without a gap.
    last_run: Lsn,
    /// Where they end.
    tail: Lsn,
}

/// What lies behind the clean mark, up to the end of the last file.
fn look<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
) -> Result<Option<Past>, DiskError> {
    let Some(clean) = now.clean.map(|clean| geometry.normalize(clean)) else { return Ok(None) };
    let (mut forgiving, mut open) = (Forgiving::new(listing, geometry), None);
    let mut files = Files::new(disk, geometry, &mut open).forgiving(Some(&mut forgiving));
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let mut scan = Scan::new(shape, clean, None).flat().without_headers();
    let mut past: Option<Past> = None;
    // Segment by segment that is there: a stray file may have a name far from all others.
    for base in listing.segments.keys().filter(|base| geometry.offset_of(**base) == 0) {
        let number = geometry.segment_of(*base);
        if number < geometry.segment_of(clean) {
            continue;
        }
        if geometry.segment_of(scan.at()) < number {
            scan.seek(geometry.first_record(number));
        }
        while let Some(first) = scan.resync(&mut files, number + 1).map_err(failed)? {
            let before = past.map_or(clean, |past| past.tail);
            let last_run = past.map(|past| past.last_run).filter(|_| before == first).unwrap_or(first);
            while geometry.segment_of(scan.at()) == number
                && let Step::Record(_) = scan.step(&mut files).map_err(failed)?
            {}
            let tail = scan.at();
            past = Some(Past { first: past.map_or(first, |past| past.first), last_run, tail });
            if geometry.segment_of(tail) == number {
                // A stop, at which no whole record starts.
                scan.seek(geometry.normalize(Lsn(tail.0 + RECORD_ALIGN)));
            }
        }
    }
    Ok(past)
}

fn failed(error: ScanError<DiskError>) -> DiskError {
    match error {
        ScanError::Image { error, .. } => error,
        ScanError::Memory { .. } => unreachable!("a flat scan needs no more than its first buffer"),
    }
}

/// A superblock under which the log holds that has gone on behind a clean mark.
pub(crate) struct Accepted {
    /// Without the clean mark, and vouching for what lies before the last gap, so that a gap is damage and never a torn end.
    pub(crate) superblock: Superblock,
    /// The mark as it is.
    pub(crate) clean: Lsn,
    /// Where the first whole record behind it starts.
    pub(crate) first: Lsn,
    /// Where the whole records end: the log's tail, once it is accepted.
    pub(crate) tail: Lsn,
}

/// The superblock as it would have to be for the log to hold. `None`: nothing whole lies behind a clean mark.
pub(crate) fn accepted<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
) -> Result<Option<Accepted>, DiskError> {
    let Some(Past { first, last_run, tail }) = look(disk, now, geometry, listing)? else { return Ok(None) };
    let clean = geometry.normalize(now.clean.unwrap_or_default());
    let mut superblock = now.clone();
    superblock.clean = None;
    superblock.generation += 1;
    if last_run > clean {
        superblock.persisted = superblock.persisted.max(last_run);
    }
    Ok(Some(Accepted { superblock, clean, first, tail }))
}
