//! A member's log as bytes: what is in its memory, and what is on its medium.
//!
//! Records here have a format of their own (the engine never sees a byte): start, epoch, id, payload length, checksum, then
//! the payload, all of one value. A record is valid only in the epoch that the history assigns to it.

use std::collections::BTreeSet;

use windlass_engine::LsnRange;
use windlass_log::{Epoch, EpochHistory, Geometry, HEADER_BYTES, Lsn};

use super::rng::Rng;

const SECTOR: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub start: Lsn,
    pub end: Lsn,
    pub epoch: Epoch,
    pub id: u64,
}

pub struct Image {
    geometry: Geometry,
    memory: Vec<u8>,
    disk: Vec<u8>,
    /// Sectors that memory and disk may differ in.
    dirty: BTreeSet<usize>,
}

impl Image {
    pub fn new(geometry: Geometry) -> Image {
        Image { geometry, memory: Vec::new(), disk: Vec::new(), dirty: BTreeSet::new() }
    }

    fn reserve(&mut self, end: usize) {
        if self.memory.len() < end {
            let length = end.next_multiple_of(1 << 16);
            self.memory.resize(length, 0);
            self.disk.resize(length, 0);
        }
    }

    pub fn write(&mut self, at: Lsn, bytes: &[u8]) {
        let at = usize::try_from(at.0).unwrap();
        self.reserve(at + bytes.len());
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        if !bytes.is_empty() {
            self.dirty.extend(at / SECTOR..=(at + bytes.len() - 1) / SECTOR);
        }
    }

    pub fn read(&mut self, range: LsnRange) -> Vec<u8> {
        let (start, end) = (usize::try_from(range.start.0).unwrap(), usize::try_from(range.end.0).unwrap());
        self.reserve(end);
        self.memory[start..end].to_vec()
    }

    /// Appends a record, and a pad before it where it does not fit the segment. Where it ends.
    pub fn append(&mut self, at: Lsn, epoch: Epoch, id: u64, payload: usize) -> Record {
        let bytes = Geometry::record_bytes(payload as u64);
        let mut start = at;
        if bytes > self.geometry.room(start) {
            let room = self.geometry.room(start);
            start = self.put(start, epoch, 0, usize::try_from(room - HEADER_BYTES).unwrap()).end;
        }
        self.put(start, epoch, id, payload)
    }

    fn put(&mut self, start: Lsn, epoch: Epoch, id: u64, payload: usize) -> Record {
        let mut bytes = vec![0; usize::try_from(Geometry::record_bytes(payload as u64)).unwrap()];
        bytes[0..8].copy_from_slice(&start.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&epoch.to_bits().to_le_bytes());
        bytes[16..24].copy_from_slice(&id.to_le_bytes());
        bytes[24..28].copy_from_slice(&u32::try_from(payload).unwrap().to_le_bytes());
        let sum = checksum(&bytes[..28]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        bytes[32..32 + payload].fill(filler(id));
        self.write(start, &bytes);
        Record { start, end: self.geometry.record_end(start, bytes.len() as u64), epoch, id }
    }

    /// The valid record at `lsn`, looking at memory or at the disk.
    pub fn record(&self, on_disk: bool, lsn: Lsn, history: &EpochHistory) -> Option<Record> {
        let image = if on_disk { &self.disk } else { &self.memory };
        let at = usize::try_from(lsn.0).unwrap();
        let header = image.get(at..at + 32)?;
        let word = |from: usize| u64::from_le_bytes(header[from..from + 8].try_into().unwrap());
        let (start, epoch, id) = (word(0), Epoch::from_bits(word(8)), word(16));
        let payload = u64::from(u32::from_le_bytes(header[24..28].try_into().unwrap()));
        let sum = u32::from_le_bytes(header[28..32].try_into().unwrap());
        let bytes = Geometry::record_bytes(payload);
        if start != lsn.0 || sum != checksum(&header[..28]) || bytes > self.geometry.room(lsn) {
            return None;
        }
        if history.epoch_at(lsn) != Some(epoch) {
            return None;
        }
        let body = image.get(at + 32..at + 32 + usize::try_from(payload).unwrap())?;
        if body.iter().any(|byte| *byte != filler(id)) {
            return None;
        }
        Some(Record { start: lsn, end: self.geometry.record_end(lsn, bytes), epoch, id })
    }

    /// The end of the last whole record behind `from`, whatever lies before it.
    pub fn last_end(&self, from: Lsn, history: &EpochHistory) -> Option<Lsn> {
        let places = (from.0..u64::try_from(self.memory.len()).unwrap()).step_by(8).map(Lsn);
        places.filter_map(|place| self.record(false, place, history)).map(|record| record.end).max()
    }

    /// The end of the last valid record from `from` on, at most `limit`.
    pub fn valid_tail(&self, on_disk: bool, from: Lsn, limit: Lsn, history: &EpochHistory) -> Lsn {
        let mut at = from;
        while let Some(record) = self.record(on_disk, at, history) {
            if record.end > limit {
                break;
            }
            at = record.end;
        }
        at
    }

    pub fn flush(&mut self, to: Lsn) {
        let to = usize::try_from(to.0).unwrap();
        let done: Vec<usize> = self.dirty.iter().copied().filter(|sector| sector * SECTOR < to).collect();
        for sector in done {
            self.copy_to_disk(sector, to);
            if (sector + 1) * SECTOR <= to {
                self.dirty.remove(&sector);
            }
        }
    }

    fn copy_to_disk(&mut self, sector: usize, to: usize) {
        let range = sector * SECTOR..((sector + 1) * SECTOR).min(to).min(self.memory.len());
        if !range.is_empty() {
            self.disk[range.clone()].copy_from_slice(&self.memory[range]);
        }
    }

    /// Power is lost: each sector that was not flushed is lost or kept, whichever it likes.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        for sector in std::mem::take(&mut self.dirty) {
            if rng.chance(50) {
                self.copy_to_disk(sector, usize::MAX);
            }
        }
        self.memory.clone_from(&self.disk);
    }

    /// The medium lost what lies at `at`: rot.
    pub fn rot(&mut self, at: Lsn) {
        let at = usize::try_from(at.0).unwrap();
        self.memory[at..at + 32].fill(0xa5);
        self.disk[at..at + 32].fill(0xa5);
    }

    pub fn erase(&mut self) {
        self.memory.fill(0);
        self.disk.fill(0);
        self.dirty.clear();
    }
}

fn filler(id: u64) -> u8 {
    id.to_le_bytes()[0] ^ id.to_le_bytes()[1]
}

fn checksum(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    u32::try_from(sum >> 32).unwrap()
}
