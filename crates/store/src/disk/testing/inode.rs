//! One file: what processes see of it, and what the medium holds.

use std::collections::BTreeMap;
use std::ops::Range;

use windlass_log::Memory;

use super::random::{Fate, Random};
use super::{PAGE, SECTOR, index};

/// Room for a page, to look at it without asking for memory: a flush looks at every page of its file.
pub(super) type Page = [u8; PAGE_BYTES];
pub(super) const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE);

pub(super) struct Inode {
    pub(super) live: Memory,
    pub(super) live_len: u64,
    pub(super) durable: Vec<u8>,
    /// Pages that a failed flush marked clean, with what they held: written again only after they have changed or been rewritten.
    pub(super) stuck: BTreeMap<u64, Vec<u8>>,
    pub(super) mapped: bool,
    /// Of the file's bytes so many have no blocks.
    pub(super) hole_bytes: u64,
}

impl Inode {
    pub(super) fn durable(bytes: Vec<u8>) -> Inode {
        let live_len = bytes.len() as u64;
        let live = Memory::heap(live_len.next_multiple_of(PAGE).max(PAGE));
        live.copy_in(0, &bytes);
        Inode { live, live_len, durable: bytes, stuck: BTreeMap::new(), mapped: false, hole_bytes: 0 }
    }

    pub(super) fn live_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.live_len)];
        self.live.copy_out(0, &mut bytes);
        bytes
    }

    /// What processes see of a page, in `room`.
    pub(super) fn live_page<'r>(&self, page: u64, room: &'r mut Page) -> &'r [u8] {
        let start = page * PAGE;
        let bytes = &mut room[..index((self.live_len - start).min(PAGE))];
        self.live.copy_out(start, bytes);
        bytes
    }

    /// The pages of `range` reach the medium, but for those that a failed flush left clean.
    pub(super) fn flush(&mut self, range: &Range<u64>) -> u64 {
        let mut written = 0;
        if range.end == u64::MAX {
            self.durable.truncate(index(self.live_len));
        }
        let mut room = [0; PAGE_BYTES];
        for page in range.start / PAGE..range.end.min(self.live_len).div_ceil(PAGE) {
            let bytes = self.live_page(page, &mut room);
            if self.stuck.get(&page).is_some_and(|stuck| stuck == bytes) {
                continue;
            }
            self.stuck.remove(&page);
            let start = index(page * PAGE);
            if self.durable.len() < start + bytes.len() {
                self.durable.resize(start + bytes.len(), 0);
            }
            let durable = &mut self.durable[start..start + bytes.len()];
            if *durable != *bytes {
                durable.copy_from_slice(bytes);
                written += bytes.len() as u64;
            }
        }
        written
    }

    /// A flush fails: the dirty pages of `range` are clean, though the medium doesn't hold them.
    pub(super) fn fail_flush(&mut self, range: &Range<u64>) {
        let mut room = [0; PAGE_BYTES];
        for page in range.start / PAGE..range.end.min(self.live_len).div_ceil(PAGE) {
            let bytes = self.live_page(page, &mut room);
            let start = index(page * PAGE);
            if self.durable.get(start..start + bytes.len()) != Some(bytes) {
                self.stuck.insert(page, bytes.to_vec());
            }
        }
    }

    pub(super) fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let live = self.live_bytes();
        // The length is metadata of its own: it may survive without the bytes, which then read as zeros (kind 13).
        let mut after = self.durable.clone();
        if live.len() > after.len() && random.keeps() {
            after.resize(live.len(), 0);
        }
        if live.len() < after.len() && random.keeps() {
            after.truncate(live.len());
        }
        for page in 0..(after.len() as u64).div_ceil(PAGE) {
            let start = index(page * PAGE);
            let end = after.len().min(start + index(PAGE)).min(live.len());
            if start >= end || after[start..end] == live[start..end] {
                continue;
            }
            match random.fate() {
                Fate::Lost => {}
                Fate::Kept => after[start..end].copy_from_slice(&live[start..end]),
                Fate::Torn => {
                    for sector in (start..end).step_by(index(SECTOR)) {
                        let sector_end = end.min(sector + index(SECTOR));
                        let is_equal = after[sector..sector_end] == live[sector..sector_end];
                        if !(is_equal && random.skips_equal()) && random.keeps() {
                            after[sector..sector_end].copy_from_slice(&live[sector..sector_end]);
                        }
                    }
                }
            }
        }
        after
    }
}
