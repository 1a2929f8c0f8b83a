//! Errors: one enum for each operation, every variant with its remedy.

use std::path::PathBuf;

use windlass::{AppendError, CommitError, LogId, Lsn, OpenOrCreateError, TrimError};

use crate::MalformedOp;

/// Why the store was not opened. Nothing was changed, except that the log may have been recovered.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder could not be made.
    #[error("{}: the folder can't be made: {cause}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The log's reason, with its remedy.
    #[error("the log: {0}")]
    Log(#[from] OpenOrCreateError),
    /// redb's reason. If it is damage, restore the store from a backup: the log holds only what came after the last checkpoint.
    #[error("the tables: {0}")]
    Tables(#[from] redb::Error),
    /// The tables' mark has a form that this version doesn't know. Use the version that wrote it.
    #[error("the tables' mark has {bytes} bytes, which this version can't read")]
    UnknownMark {
        /// The length found.
        bytes: usize,
    },
    /// The tables and the log don't belong together. Put the right folder in its place.
    #[error("the tables belong to log {tables}, the folder holds log {log}: put the right one in its place")]
    TablesOfAnotherLog {
        /// The log that the tables were applied from.
        tables: LogId,
        /// The log that is there.
        log: LogId,
    },
    /// The log no longer has what the tables need next. An older copy of the tables was put in place, or they were removed: restore both
    /// from one backup.
    #[error(
        "the tables have applied the log up to LSN {applied}, but it was trimmed up to LSN {first}: \
         the operations in between are gone, restore tables and log from one backup"
    )]
    TablesBehind {
        /// Where the tables are.
        applied: Lsn,
        /// The first LSN that the log still has.
        first: Lsn,
    },
    /// The tables have applied what the log doesn't have. The store never comes to this by itself: an older copy of the log was put in place,
    /// the log was cut by hand, or the medium lost what it had said was flushed. Restore tables and log from one backup.
    #[error(
        "the tables have applied the log up to LSN {applied}, which the log, ending at LSN {end}, doesn't have: \
         restore tables and log from one backup"
    )]
    TablesAhead {
        /// Where the tables are.
        applied: Lsn,
        /// The end of the log.
        end: Lsn,
    },
    /// Replay failed.
    #[error("replaying the log: {0}")]
    Replay(#[from] ApplyError),
}

/// Why a record of the log did not reach the tables. The store takes no more writes until it is opened again.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Bytes of the log that were durable no longer hold, or can't be read. The message names the place; restore from a backup.
    #[error("the log: {0}")]
    Log(windlass::ReadError),
    /// A whole record that is not an operation: something else wrote into this log. Nothing is skipped, because what it meant is unknown.
    #[error("the record at LSN {lsn} is not an operation of this store: {cause}")]
    Malformed {
        /// The record, or the item of a batch.
        lsn: Lsn,
        /// What doesn't fit.
        cause: MalformedOp,
    },
    /// redb refused. Mend the cause (usually a full disk) and open again: the log has the operations.
    #[error("the tables: {0}")]
    Tables(#[from] redb::Error),
}

/// Why a write was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Not in the log: the write did not happen.
    #[error("nothing was written: {0}")]
    Append(#[from] AppendError),
    /// In the log, its level not reached: whether it happened, opening again will tell.
    #[error("whether it was written, opening again will tell: {0}")]
    Commit(#[from] CommitError),
    /// In the log at its level, but not in the tables. Opening again brings it there.
    #[error("written to the log, but not to the tables: {0}; open the store again")]
    Apply(#[from] ApplyError),
    /// Making room in the log by a checkpoint failed: the write did not happen.
    #[error("nothing was written, the log is full: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// An earlier failure ended this opening. If this write's record got into the log before, opening again brings it into the tables.
    #[error("the store has failed before: open it again; that will tell whether this was written")]
    Failed,
}

/// Why a checkpoint was not made. Nothing is lost by that: the log keeps what the last one doesn't have.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Not everything could be applied.
    #[error("applying: {0}")]
    Apply(#[from] ApplyError),
    /// The log could not be flushed up to what the tables hold, so the tables were not made durable either.
    #[error("flushing the log: {0}")]
    Commit(#[from] CommitError),
    /// The tables are durable, the log was not trimmed. The next checkpoint trims it.
    #[error("the checkpoint is made, but the log was not trimmed: {0}")]
    Trim(#[from] TrimError),
    /// An earlier failure ended this opening.
    #[error("the store has failed before: open it again")]
    Failed,
}

/// Why nothing could be read from the tables.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// redb's reason.
    #[error("the tables: {0}")]
    Tables(#[from] redb::Error),
    /// An earlier failure ended this opening: the tables may lack what the log has.
    #[error("the store has failed before: open it again")]
    Failed,
}

/// Why closing did not end cleanly. The store is closed all the same, and opening it again recovers it.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// The last checkpoint.
    #[error("the last checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// Closing the log.
    #[error("the log: {0}")]
    Log(#[from] windlass::CloseError),
    /// Closing the tables.
    #[error("the tables: {0}")]
    Tables(#[from] redb::Error),
}
