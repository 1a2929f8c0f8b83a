//! What goes wrong on the medium of a [`TestDisk`] by itself: bits that change, sectors that can't be read.

use std::ops::Range;

use super::{Errno, PAGE, SECTOR, State, TestDisk, index};

/// Reads fail, each for itself.
pub(super) struct Failing {
    of_million: u32,
    random: u64,
    failed: u64,
}

impl TestDisk {
    /// Flips the bits of `mask` in one byte of a file, durably.
    ///
    /// # Panics
    ///
    /// If there is no such file or byte.
    pub fn flip(&self, name: &str, offset: u64, mask: u8) {
        let mut bytes = self.read_file(name);
        bytes[index(offset)] ^= mask;
        self.write_file(name, &bytes);
    }

    /// Flips the bits of `mask` in one byte of a file that may be open and mapped: on the medium, and in what is cached of it.
    ///
    /// # Panics
    ///
    /// If there is no such file, or no such byte on the medium.
    pub fn rot(&self, name: &str, offset: u64, mask: u8) {
        let mut state = self.state();
        let number = state.names[name];
        let inode = state.inodes.get_mut(&number).expect("a name has its file");
        let mut byte = [0];
        inode.live.copy_out(offset, &mut byte);
        inode.live.copy_in(offset, &[byte[0] ^ mask]);
        inode.durable[index(offset)] ^= mask;
    }

    /// From here on whatever reads the sector of this byte of a file is answered `IO`, each time, and so is whatever writes a part of its page, which has to be read for that.
    /// Written as a whole page it can be read again.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn spoil(&self, name: &str, offset: u64) {
        let mut state = self.state();
        let number = state.names[name];
        state.spoilt.insert((number, offset / SECTOR));
    }

    /// What was spoilt can be read again.
    pub fn unspoil(&self) {
        self.state().spoilt.clear();
    }

    /// From here on so many of a million calls that read are answered `IO`, which ones decides the seed; the same read may succeed when it is asked for again.
    pub fn fail_reads(&self, of_million: u32, seed: u64) {
        self.state().failing = Some(Failing { of_million, random: seed, failed: 0 });
    }

    /// What [`TestDisk::fail_reads`] asked for is over. How many calls were answered so.
    #[must_use]
    pub fn end_failing_reads(&self) -> u64 {
        self.state().failing.take().map_or(0, |failing| failing.failed)
    }
}

impl State {
    /// What a call that reads is answered where some fail.
    pub(super) fn read_fails(&mut self) -> Result<(), Errno> {
        let Some(failing) = &mut self.failing else { return Ok(()) };
        let drawn = super::random::next(&mut failing.random);
        if drawn % 1_000_000 < u64::from(failing.of_million) {
            failing.failed += 1;
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// What a write is answered where sectors can't be read.
    pub(super) fn write_spoilt(&mut self, number: u64, written: Range<u64>) -> Result<(), Errno> {
        let sectors = written.start / SECTOR..written.end.div_ceil(SECTOR);
        let pages = written.start / PAGE..written.end.div_ceil(PAGE);
        let in_pages = (number, pages.start * (PAGE / SECTOR))..(number, pages.end * (PAGE / SECTOR));
        let spoilt: Vec<(u64, u64)> = self.spoilt.range(in_pages).copied().collect();
        let is_whole = |sector: u64| {
            let page = sector * SECTOR / PAGE * PAGE;
            written.start <= page && written.end >= page + PAGE
        };
        if spoilt.iter().any(|(_, sector)| !is_whole(*sector)) {
            return Err(Errno::IO);
        }
        self.spoilt.retain(|(file, sector)| *file != number || !sectors.contains(sector));
        Ok(())
    }
}
