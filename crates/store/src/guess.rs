//! A superblock that is lost, guessed for salvage: the segments' headers say which log it is, and each record says itself of which epoch it is. DESIGN.md section 6.5.
//!
//! What only a superblock knows stays unknown: where the log was trimmed, and where an epoch's suffix was cut that nothing was written over. A record of an older epoch
//! behind one of a newer is left over from such a suffix, and is none.

use std::collections::BTreeMap;

use windlass_log::{
    Epoch, EpochHistory, FEATURES_KNOWN, Fetched, Geometry, HEADER_BYTES, Image, LogId, Lsn, MemberId,
    RECORD_ALIGN, SEGMENT_HEADER, Scan, ScanError, SegmentHeader, Shape, Step, Superblock,
};

use crate::disk::{Access, Disk};
use crate::error::DiskError;
use crate::folder::{self, Listing};
use crate::image::{Files, Forgiving, OpenFile, read_pages};
use crate::names;
use crate::superblock::Copies;

const PIECE: usize = 64 << 10;

/// As much of the superblock of the log in this folder as salvage needs; `None` where no segment says which log it is of.
pub(crate) fn guess<D: Disk>(disk: &D, copies: Option<&Copies>) -> Result<Option<Superblock>, DiskError> {
    let listing = folder::list(disk)?;
    let Some((log_id, geometry)) = identity(disk, &listing) else { return Ok(None) };
    if let Some(copy) = copies.and_then(|copies| copies.of_log(log_id)) {
        return Ok(Some(copy));
    }
    let history = history(disk, &listing, log_id, geometry)?;
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
        trimmed: geometry.normalize(first),
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

/// Which epochs the records are of: each begins at its first whole record behind those of older ones.
fn history<D: Disk>(
    disk: &D,
    listing: &Listing,
    log_id: LogId,
    geometry: Geometry,
) -> Result<EpochHistory, DiskError> {
    let mut history = EpochHistory::default();
    let mut forgiving = Forgiving::new(listing, geometry);
    let mut open: OpenFile<D> = None;
    let salt = windlass_log::Salt::new(log_id);
    let mut piece = vec![0; PIECE + 8];
    for base in listing.segments.keys().filter(|base| geometry.offset_of(**base) == 0) {
        let number = geometry.segment_of(*base);
        let (mut at, end) = (geometry.first_record(number), geometry.base(number + 1));
        while end.0 - at.0 >= HEADER_BYTES {
            let mut files = Files::new(disk, geometry, &mut open).forgiving(Some(&mut forgiving));
            let bytes = usize::try_from(end.0 - at.0).map_or(piece.len(), |left| left.min(piece.len()));
            if files.read(at, &mut piece[..bytes])? != Fetched::Whole {
                break;
            }
            for place in (0..bytes - 8).step_by(8) {
                let word = word(&piece, place);
                let epoch = Epoch::from_bits(self::word(&piece, place + 8));
                let lsn = Lsn(at.0 + place as u64);
                let is_newer = epoch > history.last().map_or(Epoch::NONE, |last| last.epoch);
                if word != 0
                    && is_newer
                    && end.0 - lsn.0 >= HEADER_BYTES
                    && word == salt.key(epoch).publish_word(lsn)
                    && is_whole(&mut files, geometry, log_id, epoch, lsn)?
                    && history.extend(epoch, lsn).is_err()
                {
                    // More than a superblock holds: what is of later ones is not told from anything else.
                    return Ok(history);
                }
            }
            at = Lsn(at.0 + (bytes as u64 - 8).max(RECORD_ALIGN));
        }
    }
    Ok(history)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

/// Whether a whole record of this epoch is there.
fn is_whole<I: Image<Error = DiskError>>(
    image: &mut I,
    geometry: Geometry,
    log_id: LogId,
    epoch: Epoch,
    lsn: Lsn,
) -> Result<bool, DiskError> {
    let mut history = EpochHistory::default();
    if history.extend(epoch, lsn).is_err() {
        return Ok(false);
    }
    let mut scan = Scan::new(Shape { geometry, log_id, history }, lsn, None).flat().without_headers();
    match scan.step(image) {
        Ok(Step::Record(_)) => Ok(true),
        Ok(Step::Stop(_)) | Err(ScanError::Memory { .. }) => Ok(false),
        Err(ScanError::Image { error, .. }) => Err(error),
    }
}
