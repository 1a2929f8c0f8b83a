//! The chain: a running 64-bit hash over the header words of all records, and their count.
//!
//! The first record of every segment, its segment-start record, carries the chain of everything before it. A whole segment
//! that is missing, swapped or cut at an exact record boundary is found out by the next one's first record (failure kind 2).
//! DESIGN.md section 2.3.

use crate::bytes::{put, u64_at};
use crate::record::{HEADER, chain_words};
use crate::salt::{Salt, step};

/// Bytes of a segment-start record's payload.
pub(crate) const CHAIN: usize = 16;
const _: () = assert!(CHAIN as u64 + crate::HEADER_BYTES == crate::SEGMENT_START_BYTES);

/// The chain value at a position: everything before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The hash over publish word and checksums of each record before.
    pub hash: u64,
    /// How many records there are before, of every kind, since the log began.
    pub records: u64,
}

impl Chain {
    /// The chain before the first record of a log.
    #[must_use]
    pub fn genesis(salt: Salt) -> Chain {
        Chain { hash: salt.chain_seed(), records: 0 }
    }

    /// Takes in the next record, given by its header's bytes.
    pub fn extend(&mut self, header: &[u8; HEADER]) {
        let [word, checksums] = chain_words(header);
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
