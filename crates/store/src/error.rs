//! Errors that several operations share.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::Errno;
use crate::names;

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

/// A system call that failed, on which file, and how. What to do is in its text, where it follows from that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} {} failed: {errno}{}", file.display(), self.remedy())]
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

    /// What to do about it, as the end of a sentence.
    fn remedy(&self) -> &'static str {
        let is_superblock = self.file.file_name().is_some_and(|name| name == names::SUPERBLOCK);
        if self.is_full() {
            return "; make room on the device or in the user's share of it";
        }
        match (self.errno, self.call) {
            (Errno::IO, DiskCall::Read) if is_superblock => {
                "; check the device; one copy of the superblock is enough, and `windlass::store::repair` writes again what the medium does not give of the other"
            }
            (Errno::IO, DiskCall::Read) => {
                "; check the device; a dry run of `windlass::store::repair` says what the medium does not give and what can be kept"
            }
            (Errno::IO, _) => "; check the device",
            // madvise(2), MADV_POPULATE_WRITE: the address is right, what is behind it is not there.
            (Errno::FAULT, DiskCall::Populate) => {
                "; the medium, or the filesystem, does not give a page of the file: check the device, and that nobody has made the file shorter"
            }
            (Errno::HWPOISON, DiskCall::Populate) => {
                "; the page lies in memory that the machine has found faulty: check the machine's memory, and open the log again"
            }
            (Errno::ACCESS | Errno::PERM, _) => {
                "; check the file's owner and mode, and who this process runs as"
            }
            (Errno::ROFS, _) => "; the filesystem is mounted read-only: check why, and mount it for writing",
            (Errno::MFILE, _) => "; raise this process's limit of open files (RLIMIT_NOFILE)",
            (Errno::NOMEM, DiskCall::Map) => {
                "; raise the limit of mappings (`sysctl vm.max_map_count`) or of address space (RLIMIT_AS)"
            }
            // The folder's own path may have links, which are followed; its files are opened with O_NOFOLLOW.
            (Errno::LOOP, DiskCall::Open) => {
                "; a link is there that leads back to itself, or is in the place of a log's file, where none is followed: put the plain file there"
            }
            // A folder, a pipe or a socket.
            (Errno::ISDIR | Errno::SPIPE | Errno::NXIO, _) => {
                "; something else is in the place of a plain file: move it out of the folder"
            }
            (_, _) => "",
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_system_call_that_failed_is_said_where_it_follows() {
        let text = |call, file: &str, errno| DiskError { call, file: file.into(), errno }.to_string();
        let of_the_superblock = text(DiskCall::Read, "/a/superblock", Errno::IO);
        assert!(of_the_superblock.contains("`windlass::store::repair` writes again"), "{of_the_superblock}");
        let of_a_segment = text(DiskCall::Read, "/a/0000000000000000.segment", Errno::IO);
        assert!(of_a_segment.contains("dry run of `windlass::store::repair`"), "{of_a_segment}");
        assert!(text(DiskCall::Allocate, "/a/x.tmp", Errno::DQUOT).ends_with("share of it"));
        assert!(text(DiskCall::Open, "/a/superblock", Errno::LOOP).ends_with("put the plain file there"));
        for (call, errno) in [
            (DiskCall::Read, Errno::ISDIR),
            (DiskCall::Remove, Errno::ISDIR),
            (DiskCall::Read, Errno::SPIPE),
            (DiskCall::Open, Errno::NXIO),
        ] {
            let odd = text(call, "/a/free-00000009", errno);
            assert!(odd.ends_with("move it out of the folder"), "{odd}");
        }
        assert_eq!(
            text(DiskCall::Open, "/a", Errno::NOENT),
            "opening /a failed: No such file or directory (os error 2)"
        );
    }
}
