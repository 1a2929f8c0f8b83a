//! A superblock that is lost, guessed for salvage: the segments' headers say which log it is, and each record says itself of which epoch it is. DESIGN.md section 6.5.
//!
//! What only a superblock knows stays unknown: where the log was trimmed, and where an epoch's suffix was cut that nothing was written over. A record of an older epoch
//! behind one of a newer is left over from such a suffix, and is none.

use std::collections::BTreeMap;

use windlass_log::{
    Epoch, EpochHistory, FEATURES_KNOWN, Geometry, LogId, Lsn, MemberId, SEGMENT_HEADER, SegmentHeader,
    Superblock,
};

use crate::disk::{Access, Disk};
use crate::error::DiskError;
use crate::folder::{self, Listing};
use crate::image::read_pages;
use crate::names;
use crate::newer;
use crate::superblock::Copies;

/// As much of the superblock of the log in this folder as salvage needs; `None` where no segment says which log it is of.
pub(crate) fn guess<D: Disk>(disk: &D, copies: Option<&Copies>) -> Result<Option<Superblock>, DiskError> {
    let listing = folder::list(disk)?;
    let Some((log_id, geometry)) = identity(disk, &listing) else { return Ok(None) };
    if let Some(copy) = copies.and_then(|copies| copies.of_log(log_id)) {
        return Ok(Some(copy));
    }
    let mut history = EpochHistory::default();
    // Beside that there may be too many the records are in order.
    let begins = newer::epochs_above(disk, &listing, log_id, geometry, Epoch::NONE, &mut history)?;
    let begins = begins.ok().flatten().unwrap_or_default();
    let is_place = |base: &&Lsn| geometry.offset_of(**base) == 0;
    let first = listing.segments.keys().find(is_place).copied().unwrap_or_default();
    Ok(Some(Superblock {
        generation: 0,
        log_id,
        member: history.last().map_or(MemberId(0), |last| last.epoch.member()),
        incarnation: 0,
        place: 0,
        boot_id: [0; 16],
        promised: history.last().map_or(Epoch::NONE, |last| last.epoch),
        history,
        trimmed: geometry.normalize(first).max(begins),
        persisted: Lsn(0),
        clean: None,
        acknowledged: Lsn(0),
        caught_up: false,
        segment_bytes: geometry.segment_bytes(),
        features: FEATURES_KNOWN,
        configuration: Vec::new(),
    }))
}

/// The log that most segments say they are of.
fn identity<D: Disk>(disk: &D, listing: &Listing) -> Option<(LogId, Geometry)> {
    let mut votes: BTreeMap<([u8; 16], u64), usize> = BTreeMap::new();
    for base in listing.segments.keys() {
        let Ok(file) = disk.open(&names::segment_at(*base), Access::Read) else { continue };
        let mut bytes = [0; SEGMENT_HEADER];
        let Ok(count) = read_pages::<D>(&file, 0, &mut bytes, |_| {}) else { continue };
        match SegmentHeader::decode(&bytes[..count]) {
            Ok(header) if header.base == *base => {
                *votes.entry((header.log_id.0, header.segment_bytes)).or_default() += 1;
            }
            Ok(_) | Err(_) => {}
        }
    }
    let (log_id, segment_bytes) = votes.into_iter().max_by_key(|(_, count)| *count)?.0;
    Some((LogId(log_id), Geometry::new(segment_bytes).ok()?))
}
