//! Salvage: everything that is readable of a damaged log goes into a new one. The damaged log is only read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass_log::{Lsn, RecordKind, StopReason, batch_items};
use windlass_store::disk::RealDisk;
use windlass_store::{
    DiskCall, DiskError, Inspection, OpenError as StoreOpenError, ReadError as StoreReadError, Unreadable,
};

use crate::commit::{CommitError, Level};
use crate::error::{AppendError, CloseError, CreateError};
use crate::options::Options;

/// How long an append waits for a segment of the new log.
const READY_MAX: Duration = Duration::from_secs(60);
/// Committed at least so often, in bytes.
const COMMIT_BYTES: u64 = 16 << 20;
/// Ranges that are listed; more are counted.
const LISTED_MAX: usize = 10_000;

/// A stretch of the damaged log without a whole record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// From the first record that is not whole to the next whole one, or to where the log was durable.
    pub range: Range<Lsn>,
    /// What is wrong at its start.
    pub what: String,
}

/// What a salvage came to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// Records that are in the new log, a batch as one.
    pub records: u64,
    /// Their payload in bytes.
    pub payload_bytes: u64,
    /// Where the damaged log began.
    pub from: Lsn,
    /// Where its last whole record ended.
    pub end: Lsn,
    /// Where the new log ends.
    pub new_end: Lsn,
    /// Stretches without a whole record, oldest first.
    pub lost: Vec<Lost>,
    /// How many there are: more than are listed where there are very many.
    pub lost_ranges: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// What the medium did not give at all.
    pub unreadable: Unreadable,
    /// Neither copy of the superblock was of use, or both are older than the log: log and epochs are what segments and records say of themselves, and what had been trimmed or cut may be among what was salvaged.
    pub is_guessed: bool,
}

/// Why a salvage came to nothing, or was not finished. The damaged log is as it was.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The damaged log is none, or is in use, or neither its superblock nor any segment says which log it is.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// The new log could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The damaged log could not be read, not for damage.
    #[error(transparent)]
    Read(StoreReadError),
    /// The new log takes no more; what it has is whole.
    #[error("{}: {cause}", to.display())]
    Append {
        /// The new log.
        to: PathBuf,
        /// Why.
        cause: AppendError,
    },
    /// The new log's medium has failed.
    #[error("{}: {cause}", to.display())]
    Commit {
        /// The new log.
        to: PathBuf,
        /// Why.
        cause: CommitError,
    },
    /// The new log was not closed well.
    #[error(transparent)]
    Close(#[from] CloseError),
}

/// Reads everything that is readable of the log in `folder`, passing over damage, and appends it to a new log in the absent or empty folder `to`: records in their order, batches
/// as batches, under new LSNs and one epoch. Whole records behind a torn end come too, though nobody may ever have been told of them. What can't be read is told and passed over: records around damage,
/// files that are cut short, without a header or no files at all, pages that the medium does not give, the superblock, also one that is older than the log. The log in `folder` is locked meanwhile and never changed.
/// Memory: a segment's worth at most.
///
/// # Errors
///
/// [`SalvageError`].
pub fn salvage(folder: &Path, to: &Path, options: Options) -> Result<Salvaged, SalvageError> {
    let disk = RealDisk::open(folder).map_err(|errno| {
        StoreOpenError::Disk(DiskError { call: DiskCall::Open, file: folder.to_path_buf(), errno })
    })?;
    let inspection = Inspection::open_forgiving(disk)?;
    let _lock = inspection
        .lock()?
        .map_err(|holder| StoreOpenError::InUse { folder: folder.to_path_buf(), holder })?;
    let superblock = inspection.superblock();
    let (from, flushed) = (superblock.trimmed, inspection.persisted()?);
    let (files, _, bytes) = inspection.files()?;
    // The new log has to take all of it.
    let room = bytes.saturating_add(files.saturating_add(8).saturating_mul(superblock.segment_bytes));
    let new = options.segment_bytes(superblock.segment_bytes).retention_bytes(room).create(to)?;
    let mut walk = inspection.walk(from).forgiving().map_err(SalvageError::Read)?;
    let mut salvaged = Salvaged {
        records: 0,
        payload_bytes: 0,
        from,
        end: from,
        new_end: new.info().tail,
        lost: Vec::new(),
        lost_ranges: 0,
        lost_bytes: 0,
        unreadable: Unreadable::default(),
        is_guessed: inspection.is_guessed(),
    };
    let append = |cause| SalvageError::Append { to: to.to_path_buf(), cause };
    let commit = |cause| SalvageError::Commit { to: to.to_path_buf(), cause };
    let (mut run, mut uncommitted) = (Vec::new(), 0);
    loop {
        let Some(stop) = walk.step_run(&mut run).map_err(SalvageError::Read)? else {
            for placed in &run {
                let payload = walk.held(placed.payload.clone());
                let deadline = Instant::now() + READY_MAX;
                let appended = match placed.kind {
                    RecordKind::Data => new.append_wait_blocking(payload, deadline),
                    RecordKind::Batch => {
                        // A batch whose frames do not hold, though its checksum does, is kept as it is.
                        let items: Result<Vec<&[u8]>, _> = batch_items(payload, placed.lsn)
                            .map(|item| item.map(|(_, bytes)| bytes))
                            .collect();
                        match items {
                            Ok(items) => new.append_batch_wait_blocking(&items, deadline),
                            Err(_) => new.append_wait_blocking(payload, deadline),
                        }
                    }
                    RecordKind::Pad
                    | RecordKind::SegmentStart
                    | RecordKind::EpochStart
                    | RecordKind::Configuration => continue,
                };
                salvaged.new_end = appended.map_err(append)?.end;
                salvaged.records += 1;
                salvaged.payload_bytes += payload.len() as u64;
                uncommitted += payload.len() as u64;
            }
            salvaged.end = run.last().map_or(salvaged.end, |last| last.end);
            if uncommitted >= COMMIT_BYTES {
                let _committed = new.commit_blocking(salvaged.new_end, Level::Local).map_err(commit)?;
                uncommitted = 0;
            }
            continue;
        };
        let missing_to = walk.missing_to().unwrap_or_default();
        let next = walk.skip_damage().map_err(SalvageError::Read)?;
        let end = next.unwrap_or(flushed.max(missing_to)).max(stop.lsn);
        // What the chain misses is of no known length.
        if end > stop.lsn || matches!(stop.reason, StopReason::ChainBroken { .. }) {
            salvaged.lost_ranges += 1;
            salvaged.lost_bytes += end.0 - stop.lsn.0;
            if salvaged.lost.len() < LISTED_MAX {
                salvaged.lost.push(Lost { range: stop.lsn..end, what: stop.reason.to_string() });
            }
        }
        if next.is_none() {
            break;
        }
    }
    salvaged.unreadable = walk.unreadable();
    let _committed = new.commit_blocking(salvaged.new_end, Level::Local).map_err(commit)?;
    new.close()?;
    Ok(salvaged)
}
