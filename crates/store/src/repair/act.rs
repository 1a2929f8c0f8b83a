//! What is kept of what is going to change, and doing what is noted.

use std::ops::Range;
use std::path::Path;

use windlass_log::{Class, Extent, Geometry, Holder, Lsn, SEGMENT_HEADER_BYTES, SEGMENT_START_BYTES};

use super::fill::Fill;
use super::plan::Plan;
use super::quarantine::Keep;
use super::{RepairError, RepairOrders, fill};
use crate::disk::{Access, Disk};
use crate::error::{At, DiskCall};
use crate::examine::{Identified, holder_of, identify_forgiving, judge_folder};
use crate::folder;
use crate::names;
use crate::open::destroy_torn;
use crate::open_cut::{OpenCutError, cut_closed};
use crate::options::Options;
use crate::scrub::mend_header;
use crate::superblock;

/// Copies a superblock that is older than the log.
pub(super) fn keep_superblock(kept: &mut impl Keep) -> Result<(), RepairError> {
    for copy in [0, superblock::COPY_BYTES] {
        let why = "a superblock older than the log, before it was made to fit the log's records";
        kept.range(names::SUPERBLOCK, copy, superblock::COPY_BYTES, None, why)?;
    }
    Ok(())
}

/// Copies whatever is going to change.
pub(super) fn keep(
    kept: &mut impl Keep,
    geometry: Geometry,
    plan: &Plan,
    fill: &Fill,
    tail: Lsn,
) -> Result<(), RepairError> {
    for copy in &plan.copies {
        let bytes = superblock::COPY_BYTES;
        let why = "a damaged or older copy of the superblock, before it was written again from the other one";
        kept.range(names::SUPERBLOCK, *copy as u64 * bytes, bytes, None, why)?;
    }
    for number in &fill.headers {
        let why = "the damaged header of a segment, before it was written again";
        kept.range(&names::segment(geometry, *number), 0, SEGMENT_HEADER_BYTES, None, why)?;
    }
    for (base, len_bytes) in &fill.misfits {
        let why = if geometry.offset_of(*base) == 0 {
            "a file of another length than a segment's, before it got that"
        } else {
            "a file at no segment's place, taken out of the log"
        };
        kept.range(&names::segment_at(*base), 0, *len_bytes, None, why)?;
    }
    for range in &fill.unreadable {
        let number = geometry.segment_of(range.start);
        let (offset, bytes) = (geometry.offset_of(range.start), range.end.0 - range.start.0);
        let why = "what the medium did not give, before it was written again as zeros";
        kept.range(&names::segment(geometry, number), offset, bytes, Some(range.clone()), why)?;
    }
    if let Some(stop) = plan.survey.torn.as_ref().filter(|stop| fill.torn == Some(stop.lsn)) {
        let end = geometry.base(geometry.segment_of(stop.lsn) + 1);
        let why = format!("the torn end of the log, before it was cut: {}", stop.reason);
        kept.log_range(geometry, stop.lsn..end, &why)?;
    }
    if fill.given_up().next().is_none() {
        return Ok(());
    }
    for damage in &plan.survey.damage {
        let why = format!("a damaged range, given up by order: {}", damage.reason);
        kept.log_range(geometry, damage.start..damage.end, &why)?;
    }
    // Behind what is given up the chain comes to speak of the filler.
    let first = plan.survey.damage.iter().map(|damage| geometry.segment_of(damage.start)).min().unwrap_or(0);
    for number in first + 1..=geometry.segment_of(tail) {
        let (at, why) = (geometry.first_record(number), "a segment-start record, whose chain may change");
        let end = Lsn(at.0 + SEGMENT_START_BYTES);
        let offset = geometry.offset_of(at);
        kept.range(&names::segment(geometry, number), offset, SEGMENT_START_BYTES, Some(at..end), why)?;
    }
    Ok(())
}

/// Does what is noted in the quarantine; may be done again.
pub(super) fn act<D: Disk>(
    disk: &D,
    fill: &Fill,
    note: &Path,
    orders: &RepairOrders,
) -> Result<(), RepairError> {
    let no_orders = || RepairError::Note { file: note.to_path_buf() };
    let Identified { now, geometry, .. } = identify_forgiving(disk, Access::Read)?;
    if !fill.fits(disk, &now, geometry)? {
        return Err(no_orders());
    }
    for range in &fill.unreadable {
        fill::blank(disk, geometry, range)?;
    }
    for (base, len_bytes) in &fill.misfits {
        if geometry.offset_of(*base) == 0 {
            fill::restore_length(disk, geometry, *base, *len_bytes)?;
        } else if folder::list(disk)?.segments.contains_key(base) {
            let name = names::segment_at(*base);
            disk.remove(&name).at(DiskCall::Remove, disk.path(), &name)?;
        }
    }
    disk.sync_folder().at(DiskCall::SyncFolder, disk.path(), "")?;
    for number in &fill.headers {
        mend_header(disk, geometry, *number, fill::header(geometry, now.log_id, *number))?;
    }
    fill::fill(disk, &now, geometry, fill, note)?;
    if let Some(lsn) = fill.torn {
        destroy_torn(disk, geometry, lsn)?;
        // Where its place was blank that took nothing away of what lies behind: a new epoch does, as at an opening. The end of a member's log is its primary's.
        if holder_of(&now) == Holder::Lone && torn_at(disk)? == Some(lsn) {
            return cut(disk, orders, lsn, note);
        }
    }
    let Some(Range { start: lsn, .. }) = fill.cut else { return Ok(()) };
    // That the newest epoch begins there says nothing by itself: the damage may begin where it does.
    if now.generation != fill.generation {
        // Cut already, perhaps not to the end.
        return Ok(destroy_torn(disk, geometry, lsn)?);
    }
    cut(disk, orders, lsn, note)
}

/// Where the log ends in what a crash has torn.
fn torn_at<D: Disk>(disk: &D) -> Result<Option<Lsn>, RepairError> {
    let Identified { now, geometry, live, .. } = identify_forgiving(disk, Access::Read)?;
    let live = live.flushed(&now.history);
    let verdict = judge_folder(disk, &now, live, geometry, Extent::Whole)?;
    Ok((verdict.class() == Class::Torn).then_some(verdict.tail()))
}

/// Cuts a lone log, in a new epoch.
fn cut<D: Disk>(disk: &D, orders: &RepairOrders, lsn: Lsn, note: &Path) -> Result<(), RepairError> {
    let options = Options { unsafe_filesystem: orders.unsafe_filesystem, ..Options::default() };
    cut_closed(disk, &options, lsn).map_err(|error| match error {
        OpenCutError::Open(error) => RepairError::Open(error),
        // A repair cuts a lone log alone, at a place where a scan of it has stopped: the log has changed since, or the orders are another's.
        refused @ (OpenCutError::Member { .. }
        | OpenCutError::Trimmed { .. }
        | OpenCutError::InsideRecord { .. }
        | OpenCutError::Beyond { .. }) => {
            RepairError::Cut { file: note.to_path_buf(), source: Box::new(refused) }
        }
    })
}
