//! The chain: a running 64-bit hash over the header words of an epoch's records, and their count.
//!
//! The first record of every segment, its segment-start record, carries the chain of everything before it in its epoch. A segment
//! whose records are whole each and yet not the ones that stood there is found out by the next one's first record (failure
//! kind 2). Each epoch begins a chain of its own: the history says where, so a new primary needs to know nothing but its tail.
//! DESIGN.md section 2.3.

use crate::Lsn;
use crate::bytes::{put, u64_at};
use crate::record::{HEADER, WORDS, words_of};
use crate::salt::{EpochKey, step};

/// Bytes of a segment-start record's payload.
pub(crate) const CHAIN: usize = 16;
const _: () = assert!(CHAIN as u64 + crate::HEADER_BYTES == crate::SEGMENT_START_BYTES);

/// The chain value at a position: everything before it in its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The hash over publish word and checksums of each record before.
    pub hash: u64,
    /// How many records there are before, of every kind, since the epoch began.
    pub records: u64,
}

impl Chain {
    /// The chain before the first record of the epoch of `key`, which starts at `start`.
    #[must_use]
    pub fn begin(key: &EpochKey, start: Lsn) -> Chain {
        let hash = step(step(key.salt().chain_seed(), key.epoch().to_bits()), start.0);
        Chain { hash, records: 0 }
    }

    /// Takes in the next record, given by its header's bytes.
    #[inline]
    pub fn extend(&mut self, header: &[u8; HEADER]) {
        self.extend_words(words_of(header));
    }

    /// As [`extend`](Self::extend), with the header as words.
    #[inline]
    pub(crate) fn extend_words(&mut self, [word, _, _, checksums]: [u64; WORDS]) {
        self.hash = step(step(self.hash, word), checksums);
        self.records = self.records.wrapping_add(1);
    }

    /// The payload of the segment-start record at this position: hash, count.
    #[must_use]
    pub fn encode(self) -> [u8; CHAIN] {
        let mut bytes = [0; CHAIN];
        put(&mut bytes, 0, &self.hash.to_le_bytes());
        put(&mut bytes, 8, &self.records.to_le_bytes());
        bytes
    }

    /// The chain in a segment-start record's payload; `None` if the payload has another length.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Chain> {
        if payload.len() != CHAIN {
            return None;
        }
        Some(Chain { hash: u64_at(payload, 0)?, records: u64_at(payload, 8)? })
    }
}
