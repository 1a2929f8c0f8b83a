//! Opening a log with its beginning released first: the way out of a log whose [history](windlass_log::EpochHistory) is full, which no opening can give another epoch.
//! DESIGN.md section 6.2.
//!
//! Recovery's verdict is taken of the log as it is, and only of a log that opens is anything released. Then the superblock gets the trim point with the history
//! that is left, in one update of both copies, and the log is opened like any other: a crash at any moment leaves it as it was or trimmed.

use std::ops::Range;
use std::path::PathBuf;

use windlass_log::{Geometry, Located, Lsn, Place, Shape, Superblock, locate};

use crate::disk::{Access, Disk};
use crate::error::DiskError;
use crate::examine::{Identified, examine, identify};
use crate::folder;
use crate::image::Files;
use crate::open::{OpenError, Opened, lock_log, open_locked};
use crate::options::{Options, Surroundings};
use crate::store::Store;
use crate::superblock;
use crate::trim::starts_record;

/// Why a log was not opened with its beginning released. Unless a system call failed, nothing in the folder has changed but by what [`Store::open`] itself does.
#[derive(Debug, thiserror::Error)]
pub enum OpenTrimError {
    /// It can't be opened. With [`OpenError::History`] it is trimmed, and has too many epochs behind that still: trim it further.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log belongs to a member of a group, which is trimmed at what is durable in the group, by its node. Opening it needs no new epoch.
    #[error("{} holds the log of a group's member, which is trimmed through its node", folder.display())]
    Member {
        /// The folder.
        folder: PathBuf,
    },
    /// The LSN lies inside a record: trim at a record's start, as `append` or a reader gave it.
    #[error("no record starts at LSN {lsn}: trim at the start or end of one")]
    InsideRecord {
        /// The LSN asked for.
        lsn: Lsn,
        /// The record that holds it, where that is known.
        record: Option<Range<Lsn>>,
    },
    /// The log ends before.
    #[error("trim at LSN {lsn} is beyond the end of the log at {end}")]
    Beyond {
        /// The LSN asked for.
        lsn: Lsn,
        /// The log's end.
        end: Lsn,
    },
}

impl From<DiskError> for OpenTrimError {
    fn from(error: DiskError) -> OpenTrimError {
        OpenTrimError::Open(error.into())
    }
}

impl<D: Disk> Store<D> {
    /// Opens a lone log as [`Store::open`] does, having released everything below `lsn`, a record's start or the log's end. At or below the present trim point nothing
    /// is released. The log has to be one that opens but for its history.
    ///
    /// The trim is durable before anything else is changed. As with [`Store::trim`], whoever orders it vouches that nothing below is needed.
    ///
    /// # Errors
    ///
    /// [`OpenTrimError`].
    pub fn open_trimmed(
        disk: D,
        around: &Surroundings,
        options: &Options,
        lsn: Lsn,
    ) -> Result<(Store<D>, Opened), OpenTrimError> {
        let lock = lock_log(&disk, options)?;
        trim_closed(&disk, options, lsn)?;
        Ok(open_locked(disk, lock, around, options)?)
    }
}

/// Trims a log that nobody has open. The caller holds its lock.
fn trim_closed<D: Disk>(disk: &D, options: &Options, lsn: Lsn) -> Result<(), OpenTrimError> {
    let folder = || disk.path().to_path_buf();
    folder::check_filesystem(disk, options.unsafe_filesystem)?
        .map_err(|filesystem| OpenError::Filesystem { folder: folder(), filesystem })?;
    let Identified { file, now, geometry, copies, live } = identify(disk, Access::ReadWrite, options.log_id)?;
    if !now.configuration.is_empty() {
        return Err(OpenTrimError::Member { folder: folder() });
    }
    if lsn <= now.trimmed {
        return Ok(());
    }
    let listing = folder::list(disk)?;
    let flushed = live.flushed(&now.history);
    let end = examine(disk, &now, flushed, geometry, &listing, Place::Own, options)?.tail;
    if lsn > end {
        return Err(OpenTrimError::Beyond { lsn, end });
    }
    if lsn < end && !starts_record(disk, geometry, now.log_id, &now.history, lsn)? {
        return Err(OpenTrimError::InsideRecord {
            lsn,
            record: record_around(disk, &now, geometry, lsn, end),
        });
    }
    if let Some(stale) = copies.stale(&now) {
        superblock::mend(disk, &file, stale, &now.encode().map_err(OpenError::from)?)?;
    }
    let mut next = now.clone();
    next.trimmed = lsn;
    next.persisted = now.persisted.max(lsn);
    next.history.trim(lsn);
    next.generation += 1;
    superblock::write_both(disk, &file, &next.encode().map_err(OpenError::from)?)?;
    Ok(())
}

fn record_around<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    lsn: Lsn,
    end: Lsn,
) -> Option<Range<Lsn>> {
    if geometry.normalize(lsn) != lsn {
        return None;
    }
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let mut file = None;
    match locate(&mut Files::new(disk, geometry, &mut file), &shape, now.trimmed, lsn, end) {
        Ok(Located::Inside { start, end }) => Some(start..end),
        Ok(Located::Start | Located::Unreadable(_)) | Err(_) => None,
    }
}
