//! What ties bytes to one log, one epoch and one place: the publish word's mask and the salts of both checksums.
//!
//! a record's publish word is its LSN xor a mask made from log id and epoch, and both checksums are salted with log id and
//! LSN. An earlier life of the file, a cut suffix, a copy of a record at another place, or a payload crafted to look like a
//! header fails at least one of them. DESIGN.md section 2.3.
//!
//! Not a defence against somebody who can read the log's bytes and write arbitrary ones into it: checks find accidents,
//! not forgery.

use crate::{Epoch, LogId, Lsn};

/// Odd, with well-spread bits: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads every bit of `x` over all 64 (the finalizer of splitmix64, Steele, Lea and Flood 2014). A bijection.
#[inline]
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// One cheap step of a running hash: for a given `word` a bijection of `hash` and the other way round, so that two inputs
/// that differ in one word never meet.
#[inline]
pub(crate) const fn step(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(SPREAD);
    product ^ (product >> 32)
}

/// The upper half of a 64-bit number.
#[inline]
fn upper(x: u64) -> u32 {
    let [_, _, _, _, a, b, c, d] = x.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The place that a record is bound to.
#[inline]
fn bound_to(lsn: Lsn) -> Lsn {
    if crate::planted!(R3) { Lsn(0) } else { lsn }
}

/// A log's salts. Cheap to make, cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Salt {
    mask: u64,
    header: u64,
    payload: u64,
    chain: u64,
}

impl Salt {
    /// The salts of the log with this id.
    #[must_use]
    pub fn new(log_id: LogId) -> Salt {
        let [low, high] = log_id_words(log_id);
        let seed = |n: u64| mix(mix(low.wrapping_add(n.wrapping_mul(SPREAD))) ^ high);
        Salt { mask: seed(1), header: seed(2), payload: seed(3), chain: seed(4) }
    }

    /// The key of `epoch` in this log.
    #[must_use]
    #[inline]
    pub fn key(self, epoch: Epoch) -> EpochKey {
        // LSNs are multiples of 8: with the lowest bit set no publish word is ever zero, like memory nobody wrote.
        let mask = mix(self.mask ^ mix(epoch.to_bits())) | 1;
        EpochKey { salt: self, epoch, mask }
    }

    /// What is xored into the CRC-32 of the payload of a record at `lsn`.
    #[must_use]
    #[inline]
    pub fn payload_salt(self, lsn: Lsn) -> u32 {
        upper(step(self.payload, bound_to(lsn).0))
    }

    /// The payload checksum of a record at `lsn` with this payload: its CRC-32, salted.
    #[must_use]
    #[inline]
    pub fn payload_checksum(self, lsn: Lsn, payload: &[u8]) -> u32 {
        crc32fast::hash(payload) ^ self.payload_salt(lsn)
    }

    /// Where the chain of this log begins.
    pub(crate) fn chain_seed(self) -> u64 {
        self.chain
    }

    /// The header checksum over the header's first 28 bytes, given as words (the last one's upper half is left out).
    ///
    /// Four multiplications: a header is too short for the fast path of a CRC. Each step is a bijection, so one damaged word
    /// always changes the 64-bit state; the 32 bits kept miss it once in 2^32. The publish word is compared whole besides.
    #[inline]
    pub(crate) fn header_checksum(self, lsn: Lsn, words: [u64; 3], payload_checksum: u32) -> u32 {
        let [word, epoch, lengths] = words;
        let hash = step(step(step(self.header ^ bound_to(lsn).0.rotate_left(32), word), epoch), lengths);
        upper((hash ^ u64::from(payload_checksum)).wrapping_mul(SPREAD).rotate_left(17).wrapping_mul(SPREAD))
    }
}

fn log_id_words(log_id: LogId) -> [u64; 2] {
    let all = u128::from_le_bytes(log_id.0).to_le_bytes();
    let [a, b, c, d, e, f, g, h, rest @ ..] = all;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes(rest)]
}

/// One epoch of one log: what its records are stamped with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochKey {
    pub(crate) salt: Salt,
    pub(crate) epoch: Epoch,
    mask: u64,
}

impl EpochKey {
    /// The publish word of this epoch's record at `lsn`. Never zero.
    #[must_use]
    #[inline]
    pub fn publish_word(&self, lsn: Lsn) -> u64 {
        bound_to(lsn).0 ^ self.mask
    }

    /// The epoch.
    #[must_use]
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The salts of the log.
    #[must_use]
    #[inline]
    pub fn salt(&self) -> Salt {
        self.salt
    }
}
