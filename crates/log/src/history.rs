//! Which epoch owns which part of the log.
//!
//! A record is valid at an LSN only if its epoch is the one that the history assigns to that LSN (R-4): with that, what is
//! left behind a cut never parses again, and nothing has to be zeroed.
//!
//! ```text
//!   entries   (e1.m0, 4096)      (e2.m1, 9000)      (e4.m0, 20000)
//!   log       |--- e1.m0 --------|--- e2.m1 --------|--- e4.m0 ----- ...
//! ```
//!
//! Invariants: epochs and starts both rise strictly; at most [`HISTORY_ENTRIES_MAX`] entries. DESIGN.md section 2.4.

use alloc::vec::Vec;

use crate::bytes::{length, u64_at};
use crate::{Epoch, Lsn};

/// The most entries a history holds. Trimming the log drops old ones.
pub const HISTORY_ENTRIES_MAX: usize = 2048;
/// With so many entries a history is nearly full: truncating the log adds no more, and what room is left is for those that can't be refused, an opening after a crash
/// and a takeover.
pub const HISTORY_ENTRIES_NEARLY_FULL: usize = HISTORY_ENTRIES_MAX / 4 * 3;
/// Bytes of an encoded entry.
pub(crate) const ENTRY: usize = 16;

/// Where an epoch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// Its first LSN; it owns all up to the next entry's.
    pub start: Lsn,
}

/// The epochs of a log from its trim point on. DESIGN.md section 2.4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EpochHistory {
    entries: Vec<EpochStart>,
}

/// Why a history can't be extended or decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HistoryError {
    /// Epochs and starts rise strictly.
    #[error("{} from LSN {} does not follow {} from LSN {}", .next.epoch, .next.start, .last.epoch, .last.start)]
    Order {
        /// The entry before.
        last: EpochStart,
        /// The entry that does not follow.
        next: EpochStart,
    },
    /// No record carries [`Epoch::NONE`].
    #[error("the history has an entry without an epoch, at LSN {start}")]
    NoEpoch {
        /// The entry's start.
        start: Lsn,
    },
    /// Trim the log first: that drops the oldest entries.
    #[error(
        "the history already has {HISTORY_ENTRIES_MAX} epochs: trim the log to behind the beginning of some of them"
    )]
    TooMany,
    /// Trim the log first: that drops the oldest entries. See [`HISTORY_ENTRIES_NEARLY_FULL`].
    #[error(
        "the history already has {HISTORY_ENTRIES_NEARLY_FULL} epochs, and the rest of its room is for openings after a crash: trim the log"
    )]
    NearlyFull,
    /// The bytes are not a whole number of entries.
    #[error("{bytes} bytes are not a whole number of history entries")]
    Length {
        /// How many bytes there are.
        bytes: u64,
    },
}

impl EpochHistory {
    /// A history without any epoch: of a log that nobody has led yet.
    #[must_use]
    pub const fn new() -> EpochHistory {
        EpochHistory { entries: Vec::new() }
    }

    /// All entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The newest entry.
    #[must_use]
    pub fn last(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// The epoch that owns `lsn` (R-4); `None` before the first entry.
    #[must_use]
    pub fn epoch_at(&self, lsn: Lsn) -> Option<Epoch> {
        self.span_at(lsn).map(|(entry, _)| entry.epoch)
    }

    /// The epoch that owns the byte just before `lsn`, whose record ends there; `None` before the first entry. Two logs that agree in it are the same up to there (R-4).
    #[must_use]
    pub fn epoch_before(&self, lsn: Lsn) -> Option<Epoch> {
        self.epoch_at(Lsn(lsn.0.checked_sub(1)?))
    }

    /// The entry that owns `lsn` and where the next one starts.
    #[must_use]
    pub fn span_at(&self, lsn: Lsn) -> Option<(EpochStart, Option<Lsn>)> {
        let next = self.entries.partition_point(|entry| entry.start <= lsn);
        let entry = self.entries.get(next.checked_sub(1)?)?;
        Some((*entry, self.entries.get(next).map(|entry| entry.start)))
    }

    /// Begins `epoch` at `start`. An epoch that began there and owns nothing is replaced.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Order`], [`HistoryError::NoEpoch`]: a defect of the caller's or a peer's message;
    /// [`HistoryError::TooMany`]: trim the log. The history is as before.
    pub fn extend(&mut self, epoch: Epoch, start: Lsn) -> Result<(), HistoryError> {
        let next = EpochStart { epoch, start };
        if epoch == Epoch::NONE {
            return Err(HistoryError::NoEpoch { start });
        }
        if let Some(last) = self.last() {
            if epoch <= last.epoch || start < last.start {
                return Err(HistoryError::Order { last, next });
            }
            if start == last.start {
                self.entries.pop();
            }
        }
        if self.entries.len() >= HISTORY_ENTRIES_MAX {
            return Err(HistoryError::TooMany);
        }
        self.entries.push(next);
        Ok(())
    }

    /// Whether it has [so many](HISTORY_ENTRIES_NEARLY_FULL) entries that the log should be trimmed.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.entries.len() >= HISTORY_ENTRIES_NEARLY_FULL
    }

    /// Forgets every epoch that starts at or beyond `end`, the log's new end.
    pub fn cut(&mut self, end: Lsn) {
        let kept = self.entries.partition_point(|entry| entry.start < end);
        self.entries.truncate(kept);
    }

    /// Forgets every epoch that owns nothing at or beyond `lsn`. The entry that owns `lsn` stays as it is.
    ///
    /// A log that begins at `lsn` needs no more: a scan of its first segment begins at the trim point where what is below it can't be read any more, and
    /// [`locate`](crate::locate) does so, too.
    pub fn trim(&mut self, lsn: Lsn) {
        let next = self.entries.partition_point(|entry| entry.start <= lsn);
        self.entries.drain(..next.saturating_sub(1));
    }

    /// Up to where two logs hold the same records: this one ends at `tail`, the other at `other_tail`.
    ///
    /// An epoch has one primary and each LSN one content in it, so the logs agree up to the end of the newest epoch that both
    /// have, in the log where it ends first. `None` if they share no epoch: nothing is known to be common.
    #[must_use]
    pub fn divergence(&self, tail: Lsn, other: &EpochHistory, other_tail: Lsn) -> Option<Lsn> {
        for (at, entry) in self.entries.iter().enumerate().rev() {
            let Ok(other_at) = other.entries.binary_search_by_key(&entry.epoch, |entry| entry.epoch) else {
                continue;
            };
            // A start that differs can only come from a defect or a damaged message: such an epoch proves nothing.
            if other.entries[other_at].start != entry.start {
                continue;
            }
            let end = |entries: &[EpochStart], at: usize, tail: Lsn| {
                entries.get(at + 1).map_or(tail, |next| next.start.min(tail))
            };
            return Some(end(&self.entries, at, tail).min(end(&other.entries, other_at, other_tail)));
        }
        None
    }

    /// The number of bytes that [`encode_into`](Self::encode_into) adds.
    #[must_use]
    pub fn encoded_bytes(&self) -> u64 {
        length(self.entries.len() * ENTRY)
    }

    /// Adds the encoded entries: epoch and start, 8 bytes each, oldest first.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.epoch.to_bits().to_le_bytes());
            bytes.extend_from_slice(&entry.start.0.to_le_bytes());
        }
    }

    /// The history in these bytes, all of them.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]: the bytes are not a history. Nothing is allocated beyond the bytes' own length.
    pub fn decode(bytes: &[u8]) -> Result<EpochHistory, HistoryError> {
        let wrong = HistoryError::Length { bytes: length(bytes.len()) };
        if !bytes.len().is_multiple_of(ENTRY) {
            return Err(wrong);
        }
        if bytes.len() / ENTRY > HISTORY_ENTRIES_MAX {
            return Err(HistoryError::TooMany);
        }
        let mut history = EpochHistory::new();
        for entry in bytes.chunks_exact(ENTRY) {
            let epoch = Epoch::from_bits(u64_at(entry, 0).ok_or(wrong)?);
            let start = Lsn(u64_at(entry, 8).ok_or(wrong)?);
            if let Some(last) = history.last().filter(|last| last.start == start) {
                return Err(HistoryError::Order { last, next: EpochStart { epoch, start } });
            }
            history.extend(epoch, start)?;
        }
        Ok(history)
    }
}
