//! A member's log as whole records: what is in its memory, and what is on its medium.
//!
//! A record that is written in part is not valid, so it is as if it had not been written: records land whole or not at
//! all. Two records never overlap: the later one takes the place of what it overwrites.

use std::cell::RefCell;

use windlass_engine::{Configuration, ConfigurationRecord};
use windlass_log::{Epoch, EpochHistory, Geometry, Lsn};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    pub start: Lsn,
    pub end: Lsn,
    pub epoch: Epoch,
    /// What it says; 0 for an epoch-start record; from `CONFIGURATIONS_FROM` on a configuration.
    pub id: u8,
}

impl Record {
    /// A record of the application, all of one length; or an epoch-start record.
    pub fn new(geometry: Geometry, start: Lsn, epoch: Epoch, id: u8) -> Record {
        let bytes = Geometry::record_bytes(if id == 0 { 16 } else { 8 });
        Record { start, end: geometry.record_end(start, bytes), epoch, id }
    }

    pub fn with_configuration(
        geometry: Geometry,
        start: Lsn,
        epoch: Epoch,
        configuration: &Configuration,
    ) -> Record {
        let bytes = configuration.encode();
        assert_eq!(Configuration::decode(&bytes).as_ref(), Ok(configuration));
        let known = CONFIGURATIONS.with_borrow_mut(|all| {
            let known = all.iter().position(|other| other == configuration);
            known.unwrap_or_else(|| {
                all.push(configuration.clone());
                all.len() - 1
            })
        });
        let id = CONFIGURATIONS_FROM + u8::try_from(known).expect("few");
        let end = geometry.record_end(start, Geometry::record_bytes(bytes.len() as u64));
        Record { start, end, epoch, id }
    }

    pub fn configuration(&self) -> Option<ConfigurationRecord> {
        let at = usize::from(self.id.checked_sub(CONFIGURATIONS_FROM)?);
        let configuration = CONFIGURATIONS.with_borrow(|all| all[at].clone());
        Some(ConfigurationRecord { start: self.start, end: self.end, configuration })
    }
}

/// Records of the application have smaller ids.
const CONFIGURATIONS_FROM: u8 = 200;

thread_local! {
    /// What records of configurations say. Each has one place, whoever comes to it first.
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Sorted by start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image {
    memory: Vec<Record>,
    disk: Vec<Record>,
}

fn put(records: &mut Vec<Record>, record: Record) {
    records.retain(|other| other.end <= record.start || other.start >= record.end);
    let at = records.partition_point(|other| other.start < record.start);
    records.insert(at, record);
}

/// Whether `records`, sorted by start, hold this one.
pub fn holds(records: &[Record], record: &Record) -> bool {
    let at = records.partition_point(|other| other.start < record.start);
    records.get(at) == Some(record)
}

/// The records that are valid from `from` on, each in the epoch that the history assigns to it.
fn valid<'a>(
    records: &'a [Record],
    from: Lsn,
    history: &'a EpochHistory,
) -> impl Iterator<Item = Record> + 'a {
    let mut at = from;
    let mut rest = records[records.partition_point(|record| record.start < from)..].iter();
    std::iter::from_fn(move || {
        let found = rest.find(|record| record.start >= at)?;
        let is_valid = found.start == at && history.epoch_at(at) == Some(found.epoch);
        at = found.end;
        is_valid.then_some(*found)
    })
}

impl Image {
    pub fn write(&mut self, record: Record) {
        put(&mut self.memory, record);
    }

    /// The records whose first byte lies in the range.
    pub fn read(&self, from: Lsn, to: Lsn) -> Vec<Record> {
        self.memory.iter().copied().filter(|record| record.start >= from && record.start < to).collect()
    }

    pub fn in_memory(&self, from: Lsn, history: &EpochHistory) -> Vec<Record> {
        valid(&self.memory, from, history).collect()
    }

    pub fn on_disk(&self, from: Lsn, history: &EpochHistory) -> Vec<Record> {
        valid(&self.disk, from, history).collect()
    }

    pub fn valid_tail(&self, from: Lsn, limit: Lsn, history: &EpochHistory) -> Lsn {
        let within = valid(&self.memory, from, history).take_while(|record| record.end <= limit);
        within.last().map_or(from, |record| record.end)
    }

    pub fn flush(&mut self, to: Lsn) {
        for record in self.memory.iter().filter(|record| record.start < to) {
            if !holds(&self.disk, record) {
                put(&mut self.disk, *record);
            }
        }
    }

    /// What a loss of power may take.
    pub fn dirty(&self) -> impl Iterator<Item = Record> {
        let mut disk = self.disk.iter().peekable();
        self.memory.iter().copied().filter(move |record| {
            while disk.next_if(|other| other.start < record.start).is_some() {}
            disk.peek() != Some(&record)
        })
    }

    /// Of the dirty records those in `kept` (bit by bit, in order, the first eight) have reached the medium; all else is as it was.
    pub fn lose_power(&mut self, kept: u8) {
        let dirty: Vec<Record> = self.dirty().collect();
        for (bit, record) in (0..u8::BITS).zip(dirty) {
            if kept & (1 << bit) != 0 {
                put(&mut self.disk, record);
            }
        }
        self.memory.clone_from(&self.disk);
    }
}
