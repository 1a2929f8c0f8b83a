//! Errors that several operations share.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::Errno;

/// The system call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskCall {
    /// Listing the folder.
    List,
    /// Making a file.
    Create,
    /// Opening a file or the folder.
    Open,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Flushing the folder.
    SyncFolder,
    /// Locking the folder.
    Lock,
    /// Asking about the filesystem or a file.
    Stat,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Allocating blocks.
    Allocate,
    /// Flushing a file.
    Sync,
    /// Mapping a file.
    Map,
    /// Flushing a range of a mapping.
    FlushRange,
    /// Seeing whether a file that is open still has its name.
    Name,
    /// Making pages of a mapping present.
    Populate,
}

impl fmt::Display for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskCall::List => "listing",
            DiskCall::Create => "creating",
            DiskCall::Open => "opening",
            DiskCall::Rename => "renaming",
            DiskCall::Remove => "removing",
            DiskCall::SyncFolder => "flushing the folder of",
            DiskCall::Lock => "locking",
            DiskCall::Stat => "asking about",
            DiskCall::Read => "reading",
            DiskCall::Write => "writing",
            DiskCall::Allocate => "allocating",
            DiskCall::Sync => "flushing",
            DiskCall::Map => "mapping",
            DiskCall::FlushRange => "flushing the mapping of",
            DiskCall::Name => "finding the name, which somebody has removed, of",
            DiskCall::Populate => "making pages present of",
        })
    }
}

/// A system call that failed, on which file, and how.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} {} failed: {errno}", file.display())]
pub struct DiskError {
    /// What was attempted.
    pub call: DiskCall,
    /// On what.
    pub file: PathBuf,
    /// What the system answered.
    pub errno: Errno,
}

impl DiskError {
    /// Whether the disk, or the user's share of it, is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.errno == Errno::NOSPC || self.errno == Errno::DQUOT
    }
}

/// Adds what was attempted, and on which file, to an [`Errno`].
pub(crate) trait At<T> {
    fn at(self, call: DiskCall, folder: &Path, name: &str) -> Result<T, DiskError>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, call: DiskCall, folder: &Path, name: &str) -> Result<T, DiskError> {
        self.map_err(|errno| DiskError { call, file: folder.join(name), errno })
    }
}

/// A call that makes bytes or names durable failed, so that nothing is known of what it should have made durable. Final for this opening: no
/// later call can mend it, because the kernel reports such an error once and forgets the pages (kind 24). Close the log and
/// open it again; opening reads the medium afresh.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the medium failed and nothing is acknowledged any more (close the log and open it again): {cause}")]
pub struct MediumFailed {
    /// The first failure of this opening.
    pub cause: DiskError,
}

/// Why an operation on an open store was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// A flush failed, now or earlier in this opening. See [`MediumFailed`].
    #[error(transparent)]
    MediumFailed(#[from] MediumFailed),
    /// This process is a child of the one that opened the log; only that one may use it. Open another log, or the log read-only.
    #[error(
        "process {process} is a fork of process {opener}, which opened the log: only that one may use it"
    )]
    Forked {
        /// This process.
        process: u32,
        /// The process that opened the log.
        opener: u32,
    },
    /// The log was closed.
    #[error("the log is closed: open it again")]
    Closed,
}
