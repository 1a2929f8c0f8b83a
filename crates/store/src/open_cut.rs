//! Opening a log that is damaged at its end by giving the end up: an explicit order of whoever operates it, never a decision of recovery's. DESIGN.md section 6.2.
//!
//! The superblock as it is to be after the cut is made first, with a new epoch at the cut and the marks lowered to it, and recovery's verdict is taken under it: by
//! R-4 nothing from the cut on is valid any more, so the decision table decides about what lies below it alone. Only a log that ends exactly there is cut. Then
//! the superblock is written and the record at the cut destroyed, in the order of [`Store::cut`], and the log is opened like any other.

use std::path::PathBuf;

use windlass_log::{Extent, Lsn, OpenMode, Place, RECORD_ALIGN, StopReason};

use crate::disk::{Access, Disk};
use crate::examine::{Identified, examine, identify};
use crate::folder;
use crate::newer;
use crate::open::{OpenError, Opened, destroy_torn, lock_log, open_locked};
use crate::options::{Options, Surroundings};
use crate::store::Store;
use crate::superblock;

/// Why a log was not opened with its end cut off. Unless a system call failed, nothing in the folder has changed but by what [`Store::open`] itself does.
#[derive(Debug, thiserror::Error)]
pub enum OpenCutError {
    /// It can't be opened, cut or not: what lies below the cut has damage itself, or something else is amiss. Cut at the damage or before it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log belongs to a member of a group, whose end is its primary's to decide. Start it as a node.
    #[error("{} holds the log of a group's member, which is not cut by hand: start the member, and its primary decides where its log ends", folder.display())]
    Member {
        /// The folder.
        folder: PathBuf,
    },
    /// The part is released already: cut at the trim point or behind it.
    #[error("cut at LSN {lsn} is below the trim point {trimmed}")]
    Trimmed {
        /// The LSN asked for.
        lsn: Lsn,
        /// The first LSN that is retained.
        trimmed: Lsn,
    },
    /// The LSN lies inside a record: cut at a record's start, as `append` or a reader gave it.
    #[error("no record starts at LSN {lsn}: cut at the start or end of one")]
    InsideRecord {
        /// The LSN asked for.
        lsn: Lsn,
    },
    /// The log ends before.
    #[error("cut at LSN {lsn} is beyond the end of the log at {end}")]
    Beyond {
        /// The LSN asked for.
        lsn: Lsn,
        /// The log's end.
        end: Lsn,
    },
}

impl<D: Disk> Store<D> {
    /// Opens a lone log as [`Store::open`] does, having cut everything from `lsn` on, which is not looked at and may be damaged. `lsn` is a record's start or end. What is
    /// below it, from the segment of the persisted mark or of `lsn` on, whichever is older, has to be whole up to `lsn`; in the strict mode everything from the trim point on.
    ///
    /// The cut is durable before anything else is changed, and a crash at any moment leaves the log as it was or cut.
    ///
    /// # Errors
    ///
    /// [`OpenCutError`].
    pub fn open_cut(
        disk: D,
        around: &Surroundings,
        options: &Options,
        lsn: Lsn,
    ) -> Result<(Store<D>, Opened), OpenCutError> {
        let lock = lock_log(&disk, options)?;
        cut_closed(&disk, options, lsn)?;
        Ok(open_locked(disk, lock, around, options)?)
    }
}

/// Cuts a log that nobody has open. The caller holds its lock.
pub(crate) fn cut_closed<D: Disk>(disk: &D, options: &Options, lsn: Lsn) -> Result<(), OpenCutError> {
    let folder = || disk.path().to_path_buf();
    folder::check_filesystem(disk, options.unsafe_filesystem)
        .map_err(OpenError::from)?
        .map_err(|filesystem| OpenError::Filesystem { folder: folder(), filesystem })?;
    let Identified { file, now, geometry, copies, live } = identify(disk, Access::ReadWrite, options.log_id)?;
    if !now.configuration.is_empty() {
        return Err(OpenCutError::Member { folder: folder() });
    }
    if lsn < now.trimmed {
        return Err(OpenCutError::Trimmed { lsn, trimmed: now.trimmed });
    }
    // An LSN in a segment's header page, or at its end, stands for the record that follows.
    let lsn = geometry.normalize(lsn);
    if !lsn.0.is_multiple_of(RECORD_ALIGN) {
        return Err(OpenCutError::InsideRecord { lsn });
    }
    let listing = folder::list(disk).map_err(OpenError::from)?;
    let first = geometry.first_record(geometry.segment_of(lsn));
    // What is cut may be damaged. Under the superblock as it is: its next epoch may be the one that the log has records of already.
    if let Some(found) = newer::look(disk, &now, geometry, &listing, first, false).map_err(OpenError::from)? {
        return Err(newer::refusal(disk, &now, geometry, found).into());
    }
    let mut next = now.clone();
    next.promised = now.promised.next_for(now.member);
    next.history.cut(lsn);
    next.history.extend(next.promised, lsn).map_err(OpenError::from)?;
    next.persisted = now.persisted.min(lsn);
    next.acknowledged = now.acknowledged.min(lsn);
    next.clean = None;
    next.generation += 1;
    let extent = if options.mode == OpenMode::Strict { Extent::Whole } else { options.extent };
    // Not in the strict mode: what is torn right at the cut is what goes.
    let below = Options { mode: OpenMode::Tail, extent, ..*options };
    let flushed = live.flushed(&now.history);
    let verdict = match examine(disk, &next, flushed.min(lsn), geometry, &listing, Place::Own, &below) {
        Ok(examined) => examined.verdict,
        Err(OpenError::Refused { verdict, .. }) if straddles(&verdict.stop.reason, lsn) => {
            return Err(OpenCutError::InsideRecord { lsn });
        }
        Err(OpenError::Refused { file, offset, mut verdict }) => {
            // Of the log as it is.
            verdict.flushed =
                verdict.flushed.max(now.persisted).max(flushed).max(now.clean.unwrap_or_default());
            return Err(OpenError::Refused { file, offset, verdict }.into());
        }
        Err(error) => return Err(error.into()),
    };
    if straddles(&verdict.stop.reason, lsn) {
        return Err(OpenCutError::InsideRecord { lsn });
    }
    if verdict.tail() != lsn {
        return Err(OpenCutError::Beyond { lsn, end: verdict.tail() });
    }
    if let Some(stale) = copies.stale(&now) {
        let bytes = now.encode().map_err(OpenError::from)?;
        superblock::mend(disk, &file, stale, &bytes).map_err(OpenError::from)?;
    }
    live.lower(disk, &file, &now, lsn).map_err(OpenError::from)?;
    let bytes = next.encode().map_err(OpenError::from)?;
    superblock::write_both(disk, &file, &bytes).map_err(OpenError::from)?;
    destroy_torn(disk, geometry, lsn).map_err(OpenError::from)?;
    Ok(())
}

/// Whether there is a whole record's header before `lsn`, where an epoch is to begin, and its record ends behind.
fn straddles(reason: &StopReason, lsn: Lsn) -> bool {
    matches!(reason, StopReason::BeyondEpoch { next, .. } if *next == lsn)
}
