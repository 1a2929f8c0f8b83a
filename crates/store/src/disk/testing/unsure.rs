//! What is not sure on a [`TestDisk`]: pages and names that the system writes on its own, and a medium that lies.

use std::ops::Range;

use super::inode::PAGE_BYTES;
use super::random::Random;
use super::{Call, Inode, PAGE, State, Survive, TestDisk, apply, index};

/// How a medium breaks its word: planted faults, which tests that look for losses must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// A flush of a mapping is answered and never done.
    FlushForgotten,
    /// A flush of a mapping is answered at once and done when something else has been flushed: pointers are durable before what they point to (kind 28).
    FlushLate,
    /// A flush of a file is answered and never done.
    SyncForgotten,
    /// Pages that failed to be written stay clean also when they are written again with the same bytes: what recovery writes again never arrives.
    RewriteForgotten,
    /// A flush of the folder is answered and never done (kind 29).
    FolderForgotten,
}

impl TestDisk {
    /// From now on the medium lies.
    pub fn lie(&self, lie: Lie) {
        self.state().lie = Some(lie);
    }

    /// How many decisions [`Survive::Chosen`] with this unit takes at most after a loss of power now.
    #[must_use]
    pub fn undecided(&self, unit: super::Unit) -> u32 {
        let everything = Survive::Chosen { unit, mask: u64::MAX };
        self.after_power_loss_counting(everything).1
    }

    /// From now on the system writes some dirty pages, lengths and names on its own, before one step of four, decided by this seed, in any order across files: nobody is told, and
    /// the same page may be written again. Names become durable in the order of their changes. `None`: no longer.
    pub fn write_back_between(&self, seed: Option<u64>) {
        self.state().restless = seed;
    }
}

impl State {
    /// What the system writes on its own before a step.
    pub(super) fn stir(&mut self) {
        let Some(seed) = self.restless else { return };
        let mut random = Random::new(Survive::Seeded(seed ^ self.steps << 20));
        if !(random.keeps() && random.keeps()) {
            return;
        }
        while !self.unsynced_names.is_empty() && random.keeps() {
            apply(&mut self.durable_names, &self.unsynced_names.remove(0));
            self.happened.written_back += 1;
        }
        for inode in self.inodes.values_mut() {
            self.happened.written_back += inode.write_back(&mut random);
        }
    }

    /// Whether the medium answers this flush without doing it.
    pub(super) fn lies_of(&mut self, call: Call, number: u64, range: &Range<u64>) -> bool {
        match self.lie {
            Some(Lie::FlushForgotten) => call == Call::FlushRange,
            Some(Lie::FlushLate) if call == Call::FlushRange => {
                self.late.push((number, range.clone()));
                true
            }
            Some(Lie::SyncForgotten) => call == Call::Sync,
            Some(Lie::FlushLate | Lie::FolderForgotten | Lie::RewriteForgotten) | None => false,
        }
    }

    /// Something else was flushed: what is late is done.
    pub(super) fn catch_up(&mut self) {
        for (number, range) in std::mem::take(&mut self.late) {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.flush(&range);
            }
        }
    }
}

impl Inode {
    /// How many pages were written.
    fn write_back(&mut self, random: &mut Random) -> u64 {
        let mut written = 0;
        if self.durable.len() < index(self.live_len) && random.keeps() {
            self.durable.resize(index(self.live_len), 0);
        }
        let mut room = [0; PAGE_BYTES];
        for page in 0..(self.durable.len() as u64).min(self.live_len).div_ceil(PAGE) {
            let start = index(page * PAGE);
            let bytes = self.live_page(page, &mut room);
            let end = self.durable.len().min(start + bytes.len());
            let is_dirty =
                self.durable[start..end] != bytes[..end - start] && !self.stuck.contains_key(&page);
            if is_dirty && random.keeps() {
                self.durable[start..end].copy_from_slice(&bytes[..end - start]);
                written += 1;
            }
        }
        written
    }
}
