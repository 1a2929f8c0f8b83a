//! What a [`TestDisk`] has really done of what was asked of it: a fault that was armed need not strike.

use super::TestDisk;

/// How often each has happened to a disk, losses of power survived; copies begin at zero.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Happened {
    /// Reads that gave fewer bytes than there were, or were interrupted ([`TestDisk::cut_reads`]).
    pub reads_short: u64,
    /// Reads that [`TestDisk::fail`] answered.
    pub reads_failed: u64,
    /// Flushes that it answered.
    pub flushes_failed: u64,
    /// Calls that were answered `NOSPC` ([`TestDisk::set_capacity`]).
    pub full: u64,
    /// Pages and changes of names that the system wrote on its own ([`TestDisk::write_back_between`]).
    pub written_back: u64,
}

impl TestDisk {
    /// What has happened so far.
    #[must_use]
    pub fn happened(&self) -> Happened {
        self.state().happened
    }
}
