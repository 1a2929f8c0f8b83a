//! How mapped files are registered, and why so.

use std::fmt;
use std::path::PathBuf;

use windlass_fabric::{Status, Transfer};

/// How files of the log that are mapped are registered with the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Registration {
    /// On demand: the device takes pages in as it needs them, and writes to any place land right.
    Odp,
    /// On demand, whole pages alone: the device misplaces everything else.
    OdpPage,
    /// Pinned: for files of a memory filesystem alone, since writeback of a disk's file would not learn of the device's writes.
    Pinned,
    /// Not at all for writing: peers write to a pinned image of the live segment, which this end copies into the file. A mapped
    /// file can still be sent from, pinned for reading.
    Staged,
}

impl Registration {
    /// Its name in options and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Registration::Odp => "odp",
            Registration::OdpPage => "odp-page",
            Registration::Pinned => "pinned",
            Registration::Staged => "staged",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Registration> {
        [Registration::Odp, Registration::OdpPage, Registration::Pinned, Registration::Staged]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// Whether mapped files are taken in on demand.
    pub(crate) const fn is_on_demand(self) -> bool {
        matches!(self, Registration::Odp | Registration::OdpPage)
    }

    /// Which transfers of mapped files land right.
    pub(crate) fn transfer(self) -> Transfer {
        match self {
            Registration::OdpPage => Transfer::WholePages { page_bytes: page_bytes() },
            Registration::Odp | Registration::Pinned | Registration::Staged => Transfer::Any,
        }
    }
}

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of this machine's pages.
pub(crate) fn page_bytes() -> u32 {
    u32::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// The mode that was chosen and why; what a log line and `doctor` show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationReport {
    /// The mode.
    pub mode: Registration,
    /// Why it was chosen.
    pub reason: Reason,
    /// Where it was tried.
    pub folder: Option<PathBuf>,
    /// Whether the device takes advice to bring pages in ahead of writes.
    pub prefetch: bool,
}

impl fmt::Display for RegistrationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegistrationReport { mode, reason, folder, prefetch } = self;
        write!(f, "{mode}: {reason}")?;
        if let Some(folder) = folder {
            write!(f, " (tried in {})", folder.display())?;
        }
        if mode.is_on_demand() {
            f.write_str(if *prefetch { "; prefetch works" } else { "; no prefetch" })?;
        }
        Ok(())
    }
}

/// Why a mode was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is the configured one.
    Configured,
    /// No folder was given to try anything in.
    NoFolder,
    /// Every byte of every transfer was where it should be.
    EveryByteRight,
    /// Whole pages were; something else was not.
    WholePagesAlone {
        /// The first that was not.
        fault: TrialFault,
    },
    /// The folder is on a memory filesystem, where pinning does no harm; on demand was not right.
    MemoryFilesystem {
        /// What was wrong with on demand.
        fault: TrialFault,
    },
    /// Nothing else worked.
    NothingElse {
        /// What was wrong with on demand.
        fault: TrialFault,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Configured => f.write_str("as configured"),
            Reason::NoFolder => f.write_str("no folder was given to try on-demand paging in"),
            Reason::EveryByteRight => f.write_str("every byte of every transfer was where it should be"),
            Reason::WholePagesAlone { fault } => {
                write!(f, "whole pages land where they should, other transfers don't: {fault}")
            }
            Reason::MemoryFilesystem { fault } => {
                write!(f, "the folder is on a memory filesystem, which can be pinned; on demand: {fault}")
            }
            Reason::NothingElse { fault } => {
                write!(f, "the device can't write to mapped files there: {fault}")
            }
        }
    }
}

/// What was wrong with a mode when it was tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrialFault {
    /// The device says that it can't.
    #[error("the device has no on-demand paging for reliable connections")]
    NotOffered,
    /// A whole page takes several packets, of which on-demand paging has been seen to place the first alone.
    #[error(
        "the path MTU of {mtu_bytes} bytes is less than a page of {page_bytes}: raise the interface's MTU (ip link set … mtu 9000)"
    )]
    SmallMtu {
        /// The port's.
        mtu_bytes: u32,
        /// The machine's.
        page_bytes: u32,
    },
    /// The folder is not on a memory filesystem.
    #[error(
        "files of a disk must not be pinned for writing: writeback would not learn of the device's writes"
    )]
    NotMemory,
    /// Something before the transfer failed.
    #[error("{step} failed: {source}")]
    Step {
        /// What.
        step: &'static str,
        /// How.
        source: Failure,
    },
    /// A window could not be bound over the file.
    #[error("binding a window over the file ended as {status:?}")]
    Bind {
        /// How it ended.
        status: Status,
    },
    /// A transfer ended without success.
    #[error("{what} of {bytes} bytes at offset {offset} ended as {status:?}")]
    Refused {
        /// Which transfer.
        what: Trial,
        /// Where in the file.
        offset: u64,
        /// How long.
        bytes: u32,
        /// How it ended.
        status: Status,
    },
    /// A transfer succeeded by its status, and bytes are wrong.
    #[error(
        "{what} of {bytes} bytes at offset {offset} reported success, and byte {at} is {found:#04x} where {expected:#04x} was due"
    )]
    Misplaced {
        /// Which transfer.
        what: Trial,
        /// Where in the file.
        offset: u64,
        /// How long.
        bytes: u32,
        /// The first wrong byte's place in what was written to.
        at: u64,
        /// What is there.
        found: u8,
        /// What should be.
        expected: u8,
    },
}

/// A failure of the system or device, kept as its text so that a report can be copied and compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<str>);

impl Failure {
    pub(crate) fn of(error: &dyn std::error::Error) -> Failure {
        Failure(error.to_string().into())
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One kind of transfer that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// A peer's write into the file.
    Write,
    /// The same after the file was flushed, when the kernel has made its pages read-only again.
    WriteAfterFlush,
    /// A peer's read from the file.
    Read,
    /// A write of this end that takes its bytes from the file.
    Source,
    /// What the disk holds after a flush.
    Medium,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trial::Write => "a write into the file",
            Trial::WriteAfterFlush => "a write into the file after a flush",
            Trial::Read => "a read from the file",
            Trial::Source => "a write out of the file",
            Trial::Medium => "what the disk holds of a write",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for mode in [Registration::Odp, Registration::OdpPage, Registration::Pinned, Registration::Staged] {
            assert_eq!(Registration::of_name(mode.name()), Some(mode));
        }
        assert_eq!(Registration::of_name("dma"), None);
    }

    #[test]
    fn a_report_says_mode_reason_and_place() {
        let fault = TrialFault::Misplaced {
            what: Trial::Write,
            offset: 100,
            bytes: 64,
            at: 0,
            found: 7,
            expected: 0,
        };
        let report = RegistrationReport {
            mode: Registration::OdpPage,
            reason: Reason::WholePagesAlone { fault },
            folder: Some("/var/log/db".into()),
            prefetch: false,
        };
        let text = report.to_string();
        for part in ["odp-page", "64 bytes at offset 100", "byte 0 is 0x07", "/var/log/db", "no prefetch"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
