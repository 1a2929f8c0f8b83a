//! What a [`TestDisk`] tells those who hold a store to its word: what is on the medium, and whether a file in use was given away.

use std::ops::Range;

use super::{Inode, State, TestDisk, index};

impl TestDisk {
    /// The bytes that the medium holds of a file; `None` if it has no such file, or less of it.
    #[must_use]
    pub fn durable_bytes(&self, name: &str, range: Range<u64>) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = &state.inodes[state.durable_names.get(name)?];
        inode.durable.get(index(range.start)..index(range.end)).map(<[u8]>::to_vec)
    }

    /// The bytes that processes see of a file; `None` if there is no such file, or less of it.
    #[must_use]
    pub fn live_bytes(&self, name: &str, range: Range<u64>) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = &state.inodes[state.names.get(name)?];
        let mut live = vec![0; index(range.end - range.start)];
        (range.end <= inode.live_len).then(|| inode.live.copy_out(range.start, &mut live))?;
        Some(live)
    }

    /// Whether the medium holds what processes see of a file there; `None` if there is no such file.
    #[must_use]
    pub fn is_durable(&self, name: &str, range: Range<u64>) -> Option<bool> {
        let state = self.state();
        let number = state.names.get(name)?;
        let inode = &state.inodes[number];
        let mut live = vec![0; index(range.end - range.start)];
        inode.live.copy_out(range.start, &mut live);
        let is_named = state.durable_names.get(name) == Some(number);
        Some(is_named && inode.durable.get(index(range.start)..index(range.end)) == Some(&live[..]))
    }

    /// A sector of a file that may be open and mapped gets other bytes: on the medium, and in what is cached of it.
    ///
    /// # Panics
    ///
    /// If there is no such file, or no such sector on the medium.
    pub fn rot_sector(&self, name: &str, sector: u64, bytes: &[u8; 512]) {
        let mut state = self.state();
        let number = state.names[name];
        let inode = state.inodes.get_mut(&number).expect("a name has its file");
        let start = index(sector) * bytes.len();
        inode.live.copy_in(start as u64, bytes);
        inode.durable[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// The first file that got another name, or none, while others than the store held its memory.
    #[must_use]
    pub fn given_away(&self) -> Option<String> {
        self.state().given_away.clone()
    }
}

impl State {
    /// A file's name is about to be changed or taken away.
    pub(super) fn watch_held(&mut self, name: &str) {
        let is_held = self.names.get(name).is_some_and(|number| self.inodes[number].is_held());
        if is_held && self.given_away.is_none() {
            self.given_away = Some(name.to_owned());
        }
    }
}

impl Inode {
    /// Whether somebody besides this disk and one mapping holds the memory.
    fn is_held(&self) -> bool {
        self.live.holders() > 2
    }
}
