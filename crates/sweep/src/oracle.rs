//! What a crash must leave: everything acknowledged, nothing altered, nothing that was cut or trimmed and acknowledged so.

use windlass_log::{Epoch, Lsn, RecordKind, batch_items};

/// What was appended in one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    /// Makes the bytes.
    pub(crate) number: u32,
    /// Bytes of each item.
    pub(crate) bytes: u32,
    /// Items of a batch; 0 is a plain record.
    pub(crate) items: u32,
}

impl Content {
    /// The bytes of an item.
    pub(crate) fn item(&self, item: u32) -> Vec<u8> {
        let mut state = u64::from(self.number) << 8 | u64::from(item) | 1 << 60;
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).expect("an item fits memory") + 8);
        while bytes.len() < bytes.capacity() {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(usize::try_from(self.bytes).expect("an item fits memory"));
        bytes
    }

    pub(crate) fn is(&self, found: &Found) -> bool {
        match found.kind {
            RecordKind::Data => self.items == 0 && found.payload == self.item(0),
            RecordKind::Batch => {
                let mut number = 0;
                for item in batch_items(&found.payload, found.lsn) {
                    let Ok((_, bytes)) = item else { return false };
                    if bytes != self.item(number) {
                        return false;
                    }
                    number += 1;
                }
                number == self.items && number > 0
            }
            RecordKind::Pad
            | RecordKind::SegmentStart
            | RecordKind::EpochStart
            | RecordKind::Configuration => false,
        }
    }
}

/// A record that was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) start: Lsn,
    pub(crate) content: Content,
}

/// A record that was read after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) lsn: Lsn,
    pub(crate) kind: RecordKind,
    pub(crate) payload: Vec<u8>,
}

/// What a log was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) tail: Lsn,
    pub(crate) trimmed: Lsn,
    pub(crate) records: Vec<Found>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// Every record that was appended and not cut, in order.
    pub(crate) records: Vec<Entry>,
    /// The same before the cut that is under way.
    pub(crate) before_cut: Option<Vec<Entry>>,
    /// Everything below was acknowledged as on the medium.
    pub(crate) acknowledged: Lsn,
    /// The trim point is at least and at most here.
    pub(crate) trimmed: (Lsn, Lsn),
    /// The log was made.
    pub(crate) created: bool,
    /// The promise is at least this one.
    pub(crate) promised: Epoch,
    /// A member was told that it has caught up.
    pub(crate) caught_up: bool,
    /// What the superblock says of the application's: at least, and at most.
    pub(crate) note: (u64, u64),
    /// It was closed, and nothing was begun since.
    pub(crate) clean: bool,
    /// Something that was flushed has been damaged on purpose, and is not repaired yet: then the end may be called damage.
    pub(crate) damaged: bool,
    /// What a member has answered for, also where damage has taken it since.
    pub(crate) answered: Lsn,
    /// The superblock's file as it was before the newest epoch, with its live mark, and where that epoch begins.
    pub(crate) older: Option<(Vec<u8>, Lsn)>,
    /// The superblock's file as the last clean close left it, and where the log was closed, as long as it is in the same epoch.
    pub(crate) closed: Option<(Vec<u8>, Lsn)>,
    /// The next record's number.
    pub(crate) next: u32,
}

impl Oracle {
    /// Whether this may be what is left.
    pub(crate) fn check(&self, seen: &Seen) -> Result<(), String> {
        let (low, high) = self.trimmed;
        if self.created && !(low <= seen.trimmed && seen.trimmed <= high) {
            return Err(format!("trimmed at {}, not in {low}..={high}", seen.trimmed));
        }
        match (self.compare(&self.records, seen), &self.before_cut) {
            (Ok(()), _) => Ok(()),
            (Err(wrong), None) => Err(wrong),
            (Err(wrong), Some(before)) => {
                self.compare(before, seen).map_err(|before| format!("cut: {wrong}; not cut: {before}"))
            }
        }
    }

    fn compare(&self, expected: &[Entry], seen: &Seen) -> Result<(), String> {
        let mut kept = expected.iter().filter(|entry| entry.start >= seen.trimmed);
        for found in &seen.records {
            let Some(entry) = kept.next() else {
                return Err(format!(
                    "RESURRECTED: a record at {} that was never appended, or cut",
                    found.lsn
                ));
            };
            if entry.start != found.lsn {
                return Err(format!("ALTERED: a record at {} where {} is next", found.lsn, entry.start));
            }
            if !entry.content.is(found) {
                return Err(format!("ALTERED: the record at {} has other bytes", found.lsn));
            }
        }
        match kept.next() {
            Some(entry) if entry.start < self.acknowledged => Err(format!(
                "LOST: the record at {}, of what was acknowledged up to {}; the log ends at {}",
                entry.start, self.acknowledged, seen.tail
            )),
            Some(_) | None => Ok(()),
        }
    }
}
