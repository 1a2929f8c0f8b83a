//! What a [`TestDisk`] tells those who hold a store to its word: what is on the medium, and whether a file in use was given away.

use std::ops::Range;

use super::{Inode, State, TestDisk, index};

/// What is compared in one go.
const ROOM_BYTES: usize = 512;

impl TestDisk {
    /// Whether the medium holds these bytes of a file, from `start` on.
    #[must_use]
    pub fn holds(&self, name: &str, start: u64, bytes: &[u8]) -> bool {
        let state = self.state();
        let Some(number) = state.durable_names.get(name) else { return false };
        let start = index(start);
        state.inodes[number].durable.get(start..start + bytes.len()) == Some(bytes)
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
        let is_named = state.durable_names.get(name) == Some(number);
        let Some(durable) = inode.durable.get(index(range.start)..index(range.end)) else {
            return Some(false);
        };
        let mut room = [0; ROOM_BYTES];
        let mut pieces = (range.start..).step_by(ROOM_BYTES).zip(durable.chunks(ROOM_BYTES));
        let mut is_live = |(start, piece): (u64, &[u8])| {
            let live = &mut room[..piece.len()];
            inode.live.copy_out(start, live);
            live == piece
        };
        Some(is_named && pieces.all(&mut is_live))
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
