//! The live mark: how far a log is on the medium, by the word of the process that flushed it last. DESIGN.md section 2.5.
//!
//! ```text
//!  0          8          12         16       32           40      48        56         64     72
//!  |WINDLMRK  |checksum  |version   |log id  |incarnation |place  |sequence |persisted |epoch |
//! ```
//!
//! Two slots, each in a page of its own, take turns; of two that are whole the higher sequence counts. A slot is written after the flush that it speaks of, so it may be older than the truth
//! and never ahead of it. It vouches only for the log that has its epoch below its mark (R-4): a cut, which gives that to another epoch, voids it in the same update of the superblock.

use crate::bytes::{array, put, u32_at, u64_at};
use crate::superblock::LSN_MAX;
use crate::{Epoch, EpochHistory, FORMAT_VERSION, LogId, Lsn, RECORD_ALIGN};

/// Bytes of an encoded live mark; they lie within one sector.
pub const LIVE_MARK_BYTES: usize = 72;

const MAGIC: [u8; 8] = *b"WINDLMRK";

/// The highest sequence that a slot is believed: more flushes than that no log has seen, and there is room to count on.
const SEQUENCE_MAX: u64 = u64::MAX >> 1;

/// A live mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveMark {
    /// The log.
    pub log_id: LogId,
    /// The member's life.
    pub incarnation: u64,
    /// The fingerprint of the file that it stands in, as in the superblock.
    pub place: u64,
    /// Counts the marks that were written; the higher one of two is the newer.
    pub sequence: u64,
    /// Everything below was flushed; 0 if nothing is said.
    pub persisted: Lsn,
    /// The epoch of the record that ends there.
    pub epoch: Epoch,
}

impl LiveMark {
    /// The bytes of the mark.
    #[must_use]
    pub fn encode(&self) -> [u8; LIVE_MARK_BYTES] {
        let mut bytes = [0; LIVE_MARK_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 12, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.log_id.0);
        put(&mut bytes, 32, &self.incarnation.to_le_bytes());
        put(&mut bytes, 40, &self.place.to_le_bytes());
        put(&mut bytes, 48, &self.sequence.to_le_bytes());
        put(&mut bytes, 56, &self.persisted.0.to_le_bytes());
        put(&mut bytes, 64, &self.epoch.to_bits().to_le_bytes());
        let checksum = crc32fast::hash(&bytes[12..]);
        put(&mut bytes, 8, &checksum.to_le_bytes());
        bytes
    }

    /// The mark that these bytes begin with; `None` if it is not whole, another version's, or counts beyond what any log can have come to. That is no error: it was never written, or is torn, and then says nothing.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<LiveMark> {
        let bytes = bytes.get(..LIVE_MARK_BYTES)?;
        let is_whole = array(bytes, 0) == Some(MAGIC)
            && u32_at(bytes, 8) == Some(crc32fast::hash(&bytes[12..]))
            && u32_at(bytes, 12) == Some(FORMAT_VERSION);
        let mark = LiveMark {
            log_id: LogId(array(bytes, 16)?),
            incarnation: u64_at(bytes, 32)?,
            place: u64_at(bytes, 40)?,
            sequence: u64_at(bytes, 48)?,
            persisted: Lsn(u64_at(bytes, 56)?),
            epoch: Epoch::from_bits(u64_at(bytes, 64)?),
        };
        (is_whole && mark.persisted.0 <= LSN_MAX && mark.sequence <= SEQUENCE_MAX).then_some(mark)
    }

    /// Whether it speaks of the log with this history: the epoch below its mark is the one that wrote there (R-4).
    #[must_use]
    pub fn is_of(&self, history: &EpochHistory) -> bool {
        LiveMark::epoch_below(history, self.persisted) == Some(self.epoch)
    }

    /// The epoch of what ends at `lsn`; `None` if the history gives it none.
    #[must_use]
    pub fn epoch_below(history: &EpochHistory, lsn: Lsn) -> Option<Epoch> {
        history.epoch_at(Lsn(lsn.0.checked_sub(RECORD_ALIGN)?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::MemberId;

    fn mark() -> LiveMark {
        LiveMark {
            log_id: LogId([7; 16]),
            incarnation: 1,
            place: 2,
            sequence: 3,
            persisted: Lsn(9000),
            epoch: Epoch::new(4, MemberId(1)),
        }
    }

    #[test]
    fn a_live_mark_with_any_changed_byte_says_nothing() {
        let bytes = mark().encode();
        assert_eq!(LiveMark::decode(&bytes), Some(mark()));
        for at in 0..bytes.len() {
            let mut harmed = bytes;
            harmed[at] ^= 1;
            assert_eq!(LiveMark::decode(&harmed), None, "byte {at}");
        }
        for len in 0..bytes.len() {
            assert_eq!(LiveMark::decode(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(LiveMark::decode(&[0; 512]), None);
        let beyond = LiveMark { persisted: Lsn(LSN_MAX + 8), ..mark() };
        assert_eq!(LiveMark::decode(&beyond.encode()), None);
        for sequence in [u64::MAX, u64::MAX - 1, SEQUENCE_MAX + 1] {
            let uncountable = LiveMark { sequence, ..mark() };
            assert_eq!(LiveMark::decode(&uncountable.encode()), None, "the next one could not be counted");
        }
    }

    #[test]
    fn r_4_a_live_mark_is_void_once_another_epoch_owns_what_it_speaks_of() {
        let mut history = EpochHistory::new();
        assert!(!mark().is_of(&history), "no epoch at all");
        history.extend(mark().epoch, Lsn(4096)).unwrap();
        assert!(mark().is_of(&history));
        let next = mark().epoch.next_for(MemberId(0));
        let mut goes_on = history.clone();
        goes_on.extend(next, Lsn(9000)).unwrap();
        assert!(mark().is_of(&goes_on), "the next epoch begins at the mark");
        let mut cut = history;
        cut.cut(Lsn(8992));
        cut.extend(next, Lsn(8992)).unwrap();
        assert!(!mark().is_of(&cut));
        let nothing = LiveMark { persisted: Lsn(0), ..mark() };
        assert!(!nothing.is_of(&cut));
    }
}
