//! Looks for a whole record of an epoch above a given one: one that a superblock knows nothing of. DESIGN.md section 6.1.
//!
//! A record says itself which log, LSN and epoch it is of, so none of that has to be known before: at every place that may be a record's start the number where a record has its epoch is
//! taken for one, and has to give the publish word, both checksums and everything else that a scan asks for.
//!
//! No honest log has such a record. The promise is never below an epoch that the member may write, or be written to by: a lone log has its new epoch in both copies before it
//! appends in it, a candidate its promise before it asks, a backup promise and history before it grants. So the superblock is older than the log.

#[cfg(all(test, not(loom)))]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use crate::bytes::{ZEROS_BYTES, index, is_zero, length, u64_at};
use crate::image::{Fetched, Image, Shape};
use crate::scan::{Scan, ScanError, Step};
use crate::superblock::LSN_MAX;
use crate::{Epoch, EpochHistory, Geometry, HEADER_BYTES, LogId, Lsn, RECORD_ALIGN, Salt};

/// Copied out at a time.
const PIECE_BYTES: u64 = 64 << 10;
/// No epoch is further above another: 2^40 tenures. Most words that are no epoch are, and need no further look.
const STEP_MAX: u64 = 1 << 48;

/// A whole record of an epoch above the one that it was looked for with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newer {
    /// Where it starts.
    pub lsn: Lsn,
    /// Its epoch.
    pub epoch: Epoch,
}

/// The first whole record that starts in `[range.start, range.end)`, all in one segment, and is of an epoch above `above`. Headers of segments are not asked for, nor what lies around it: it need not follow
/// anything. A segment that is missing or short has none from where it ends.
///
/// # Errors
///
/// [`ScanError`].
pub fn newer<I: Image>(
    image: &mut I,
    geometry: Geometry,
    log_id: LogId,
    above: Epoch,
    range: Range<Lsn>,
) -> Result<Option<Newer>, ScanError<I::Error>> {
    let salt = Salt::new(log_id);
    let segment = geometry.segment_of(range.start);
    let mut at = range.start.max(geometry.first_record(segment));
    if at.0 >= LSN_MAX {
        return Ok(None);
    }
    let segment_end = Lsn(geometry.base(segment).0 + geometry.segment_bytes());
    let mut piece = Vec::new();
    while at < range.end && segment_end.0 - at.0 >= HEADER_BYTES {
        // A place is looked at with the word behind it.
        let asked = (range.end.0 - at.0).saturating_add(RECORD_ALIGN).next_multiple_of(RECORD_ALIGN);
        let bytes = (segment_end.0 - at.0).min(PIECE_BYTES).min(asked);
        if piece.len() < index(bytes) {
            piece.resize(index(bytes), 0);
        }
        let held = &mut piece[..index(bytes)];
        match image.read(at, held) {
            Ok(Fetched::Whole) => {}
            Ok(Fetched::Missing | Fetched::Short) => return Ok(None),
            Err(error) => return Err(ScanError::Image { lsn: at, error }),
        }
        let mut next_place = 0;
        while next_place + 16 <= held.len() {
            let place = next_place;
            next_place += 8;
            let found = u64_at(held, place).unwrap_or(0);
            if found == 0 {
                // Most of what is behind a log's end nobody ever wrote.
                let block = held.get(place..place + ZEROS_BYTES);
                if place.is_multiple_of(ZEROS_BYTES) && block.is_some_and(is_zero) {
                    next_place = place + ZEROS_BYTES;
                }
                continue;
            }
            let next = u64_at(held, place + 8).unwrap_or(0);
            let epoch = Epoch::from_bits(next);
            let is_above = epoch > above && next - above.to_bits() <= STEP_MAX;
            if !is_above {
                continue;
            }
            let lsn = Lsn(at.0 + length(place));
            if lsn >= range.end || segment_end.0 - lsn.0 < HEADER_BYTES {
                break;
            }
            if salt.key(epoch).publish_word(lsn) == found
                && is_whole(image, geometry, log_id, Newer { lsn, epoch })?
            {
                return Ok(Some(Newer { lsn, epoch }));
            }
        }
        at = Lsn(at.0 + bytes - RECORD_ALIGN);
    }
    Ok(None)
}

fn is_whole<I: Image>(
    image: &mut I,
    geometry: Geometry,
    log_id: LogId,
    Newer { lsn, epoch }: Newer,
) -> Result<bool, ScanError<I::Error>> {
    let mut history = EpochHistory::default();
    // From before on: where an epoch begins so does its chain, and a segment's first record would have to say that.
    if history.extend(epoch, Lsn(lsn.0 - RECORD_ALIGN)).is_err() {
        return Ok(false);
    }
    let mut scan = Scan::new(Shape { geometry, log_id, history }, lsn, None).flat().without_headers();
    Ok(matches!(scan.step(image)?, Step::Record(_)))
}
