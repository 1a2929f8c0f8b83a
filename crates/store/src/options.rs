//! How a store is made and opened.

use windlass_log::{Epoch, Extent, LogId, Lsn, MemberId, OpenMode, Superblock};

/// What a new log is to be. Nothing in here is chosen by the store: identities come from the caller, so that a simulation is repeatable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Founding {
    /// The log's identity: random, the same for all members of a group.
    pub log_id: LogId,
    /// Which member this is; 0 for a lone log.
    pub member: MemberId,
    /// This member's life: random, new each time a member starts from an empty disk.
    pub incarnation: u64,
    /// The size of a segment in bytes: a power of two from 64 KiB to 4 GiB.
    pub segment_bytes: u64,
    /// The first epoch of a lone log, whose history starts at the first LSN. `None` for a member of a group, whose history comes from its primary.
    pub epoch: Option<Epoch>,
    /// The configuration as the group encodes it; empty for a lone log.
    pub configuration: Vec<u8>,
}

/// Where and as whom a store is opened; injected by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Surroundings {
    /// The machine's boot id (`/proc/sys/kernel/random/boot_id`): with another one, what wasn't flushed is gone.
    pub boot_id: [u8; 16],
    /// A random number: this member's new incarnation if the folder turns out to be a copy that is to be taken over.
    pub incarnation: u64,
}

/// Whether a filesystem on which the store's promises don't hold is used all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnsafeFilesystem {
    /// Refuse network and copy-on-write filesystems.
    #[default]
    Refuse,
    /// Use it. On copy-on-write filesystems a full disk may then kill the process by SIGBUS; on network filesystems locks and mappings may not be coherent.
    Use,
}

/// What to do with a folder that was copied from another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopiedFolder {
    /// A lone log is taken over under a new epoch, a member of a group refused.
    #[default]
    Judge,
    /// Take it over under a new incarnation: as a member that joins as new.
    TakeOver,
}

/// When an opening does what R-11 asks for: writing again, and flushing, what no mark vouches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Vouch {
    /// Before it returns.
    #[default]
    Opening,
    /// By [`Store::vouch`](crate::Store::vouch), or by the first call that flushes or changes anything, which all wait for it. Until then the log can be read, and
    /// nothing is claimed of what no mark vouches for. Only for a lone log: a member's opening answers for its whole log.
    Later,
}

/// The settings of an opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What to do with damage.
    pub mode: OpenMode,
    /// How much of the log opening reads. From the mark on is what recovery needs: older records are checked by who reads them, and opening checks
    /// only that their segments are there. The strict mode always reads the whole log.
    pub extent: Extent,
    /// Only a log of this identity; `None` takes what is there.
    pub log_id: Option<LogId>,
    /// How many bytes of log the application means to keep. Decides how many segment files are kept for reuse (kind 19).
    pub retention_bytes: u64,
    /// How many segments are ready beyond the one with the tail; at least 1.
    pub segments_ahead: u64,
    /// At most how many segments are ready beyond the one with the tail while it moves fast and there are free files to make them of.
    /// At or below `segments_ahead`: no more than that.
    pub segments_ahead_max: u64,
    /// At most how many bytes ahead of the tail the helper makes present and writable.
    pub populate_bytes_max: u64,
    /// See [`UnsafeFilesystem`].
    pub unsafe_filesystem: UnsafeFilesystem,
    /// See [`CopiedFolder`].
    pub copied_folder: CopiedFolder,
    /// See [`Vouch`].
    pub vouch: Vouch,
    /// Shown the configuration records behind the persisted mark before the opening moves that. `None`: nobody needs them.
    pub configure: Option<Configure>,
}

/// Notes a configuration record (its start, its end and its payload) in the superblock that an opening is about to write. `false`: it can't
/// be read, and the log is not opened ([`OpenError::Configuration`](crate::OpenError::Configuration)).
#[derive(Clone, Copy, Debug)]
pub struct Configure(pub fn(&mut Superblock, Lsn, Lsn, &[u8]) -> bool);

impl PartialEq for Configure {
    fn eq(&self, other: &Configure) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for Configure {}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: OpenMode::Tail,
            extent: Extent::FromMark,
            log_id: None,
            retention_bytes: 1 << 30,
            segments_ahead: 2,
            segments_ahead_max: 2,
            populate_bytes_max: 16 << 20,
            unsafe_filesystem: UnsafeFilesystem::Refuse,
            copied_folder: CopiedFolder::Judge,
            vouch: Vouch::Opening,
            configure: None,
        }
    }
}
