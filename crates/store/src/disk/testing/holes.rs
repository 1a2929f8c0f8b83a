//! Files with holes, as a sparse copy that was put in their place has them.

use super::{Call, Errno, PAGE, State, TestDisk, TestFile};

impl TestDisk {
    /// This file has holes of so many bytes now, behind everybody's back; what it holds stays.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn make_holes(&self, name: &str, bytes: u64) {
        let mut state = self.state();
        let number = state.names[name];
        state.inodes.get_mut(&number).expect("a name has an inode").hole_bytes = bytes;
    }
}

impl State {
    pub(super) fn used_bytes(&self) -> u64 {
        let files = self.names.values().map(|number| &self.inodes[number]);
        files.map(|inode| inode.live_len.next_multiple_of(PAGE).saturating_sub(inode.hole_bytes)).sum()
    }
}

impl TestFile {
    pub(super) fn fill(&self) -> Result<(), Errno> {
        let mut state = self.disk.state();
        state.call(Call::Allocate).map_err(|failure| failure.errno())?;
        let holes = state.inodes[&self.number].hole_bytes;
        if state.capacity_bytes.is_some_and(|capacity| state.used_bytes() + holes > capacity) {
            state.happened.full += 1;
            return Err(Errno::NOSPC);
        }
        state.inodes.get_mut(&self.number).expect("an open file has an inode").hole_bytes = 0;
        Ok(())
    }
}
