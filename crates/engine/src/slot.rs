//! The three fixed-size slots that are written across the fabric: notice, heartbeat, acknowledgement.
//!
//! Each is little-endian, versioned, of a fixed length, and ends in a checksum over everything before it, so that a slot
//! read while it is overwritten (torn), misplaced or of another life does not decode. Byte offsets:
//!
//! ```text
//!            0        2      4        8        16        24 ...                      last 4
//!  notice    version  kind   attempt  epoch    sequence  tail replicated durable     zero(4) checksum
//!                                                        wanted
//!  heartbeat version  kind   attempt  epoch    sequence  drained tail replicated     zero(4) checksum
//!                                                        durable trimmed pending_ns
//!  ack       version  kind   attempt  epoch    sequence  consumed valid_tail         zero(4) checksum
//!                                                        persisted heartbeat
//! ```

use windlass_log::{Epoch, Lsn};

use crate::{Persisted, Session};

/// The version of the slot layouts.
pub const SLOT_VERSION: u16 = 1;

const KIND_NOTICE: u16 = 0x4e01;
const KIND_HEARTBEAT: u16 = 0x4802;
const KIND_ACKNOWLEDGEMENT: u16 = 0x4103;

/// Why bytes are no slot of the kind asked for. A torn read is the ordinary case: look again later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlotError {
    /// The checksum does not fit: torn, misplaced, or never written.
    #[error(
        "the slot's checksum is {found:08x}, its bytes give {expected:08x}: torn, misplaced or never written"
    )]
    BadChecksum {
        /// Of the bytes.
        expected: u32,
        /// In the slot.
        found: u32,
    },
    /// Another format version: the peer runs an incompatible release.
    #[error("slot version {found}, this release reads {SLOT_VERSION}: run compatible releases")]
    Version {
        /// In the slot.
        found: u16,
    },
    /// A slot of another kind.
    #[error("slot kind {found:04x} where {expected:04x} belongs")]
    Kind {
        /// The kind asked for.
        expected: u16,
        /// In the slot.
        found: u16,
    },
}

/// What a batch ends with: the commit notice, one slot of the backup's ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Notice {
    /// The connection it belongs to.
    pub session: Session,
    /// 0, 1, 2 … in each session.
    pub sequence: u64,
    /// The end of the bytes sent so far; may lie inside a record while a backup catches up.
    pub tail: Lsn,
    /// The primary's watermark, revocable (R-14).
    pub replicated: Lsn,
    /// The primary's watermark.
    pub durable: Lsn,
    /// The primary wants everything below on the backup's medium soon.
    pub wanted: Lsn,
}

impl Notice {
    /// Bytes of the slot.
    pub const BYTES: usize = 64;

    /// The immediate that goes with it: the low 32 bits of tail / 8. A wake-up and a hint, nothing more.
    #[must_use]
    pub fn immediate(&self) -> u32 {
        let [a, b, c, d, ..] = (self.tail.0 >> 3).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// The slot's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Notice::BYTES] {
        let words = [self.sequence, self.tail.0, self.replicated.0, self.durable.0, self.wanted.0];
        encode(KIND_NOTICE, self.session, &words)
    }

    /// Reads a slot.
    ///
    /// # Errors
    ///
    /// [`SlotError`]: nothing in the slot may be believed.
    pub fn decode(bytes: &[u8; Notice::BYTES]) -> Result<Notice, SlotError> {
        let (session, [sequence, tail, replicated, durable, wanted]) = decode(KIND_NOTICE, bytes)?;
        let (tail, replicated, durable, wanted) = (Lsn(tail), Lsn(replicated), Lsn(durable), Lsn(wanted));
        Ok(Notice { session, sequence, tail, replicated, durable, wanted })
    }
}

/// A primary's sign of life, written in place into the backup's heartbeat slot, without a credit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heartbeat {
    /// The connection it belongs to.
    pub session: Session,
    /// Grows with each.
    pub sequence: u64,
    /// The drained LSN.
    pub drained: Lsn,
    /// The end of the last reservation.
    pub tail: Lsn,
    /// Watermark, revocable (R-14).
    pub replicated: Lsn,
    /// Watermark.
    pub durable: Lsn,
    /// The primary's trim point.
    pub trimmed: Lsn,
    /// How long the oldest pending work has waited without any progress; 0 if nothing is pending (R-15).
    pub pending_ns: u64,
}

impl Heartbeat {
    /// Bytes of the slot.
    pub const BYTES: usize = 80;

    /// The slot's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Heartbeat::BYTES] {
        let words = [
            self.sequence,
            self.drained.0,
            self.tail.0,
            self.replicated.0,
            self.durable.0,
            self.trimmed.0,
            self.pending_ns,
        ];
        encode(KIND_HEARTBEAT, self.session, &words)
    }

    /// Reads a slot.
    ///
    /// # Errors
    ///
    /// [`SlotError`]: nothing in the slot may be believed.
    pub fn decode(bytes: &[u8; Heartbeat::BYTES]) -> Result<Heartbeat, SlotError> {
        let (session, [sequence, drained, tail, replicated, durable, trimmed, pending_ns]) =
            decode(KIND_HEARTBEAT, bytes)?;
        Ok(Heartbeat {
            session,
            sequence,
            drained: Lsn(drained),
            tail: Lsn(tail),
            replicated: Lsn(replicated),
            durable: Lsn(durable),
            trimmed: Lsn(trimmed),
            pending_ns,
        })
    }
}

/// What a backup writes back, in place, into the primary's acknowledgement slot for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Acknowledgement {
    /// The connection it belongs to.
    pub session: Session,
    /// Grows with each.
    pub sequence: u64,
    /// Notices consumed in this session: slots below it may be written again, and receives are posted for them (R-13).
    pub consumed: u64,
    /// The end of the last valid record in the backup's memory.
    pub valid_tail: Lsn,
    /// Everything below is parsed, checksummed and flushed there.
    pub persisted: Persisted,
    /// The newest heartbeat seen.
    pub heartbeat: u64,
}

impl Acknowledgement {
    /// Bytes of the slot.
    pub const BYTES: usize = 64;

    /// The slot's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Acknowledgement::BYTES] {
        let words = [self.sequence, self.consumed, self.valid_tail.0, self.persisted.0.0, self.heartbeat];
        encode(KIND_ACKNOWLEDGEMENT, self.session, &words)
    }

    /// Reads a slot.
    ///
    /// # Errors
    ///
    /// [`SlotError`]: nothing in the slot may be believed.
    pub fn decode(bytes: &[u8; Acknowledgement::BYTES]) -> Result<Acknowledgement, SlotError> {
        let (session, [sequence, consumed, valid_tail, persisted, heartbeat]) =
            decode(KIND_ACKNOWLEDGEMENT, bytes)?;
        Ok(Acknowledgement {
            session,
            sequence,
            consumed,
            valid_tail: Lsn(valid_tail),
            persisted: Persisted(Lsn(persisted)),
            heartbeat,
        })
    }
}

const FIXED_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;

fn encode<const BYTES: usize, const WORDS: usize>(
    kind: u16,
    session: Session,
    words: &[u64; WORDS],
) -> [u8; BYTES] {
    const { assert!(BYTES == FIXED_BYTES + WORDS * 8 + 8) };
    let mut bytes = [0; BYTES];
    bytes[0..2].copy_from_slice(&SLOT_VERSION.to_le_bytes());
    bytes[2..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&session.attempt.to_le_bytes());
    bytes[8..16].copy_from_slice(&session.epoch.to_bits().to_le_bytes());
    for (index, word) in words.iter().enumerate() {
        bytes[FIXED_BYTES + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    let checksum = crc32fast::hash(&bytes[..BYTES - CHECKSUM_BYTES]);
    bytes[BYTES - CHECKSUM_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode<const BYTES: usize, const WORDS: usize>(
    kind: u16,
    bytes: &[u8; BYTES],
) -> Result<(Session, [u64; WORDS]), SlotError> {
    const { assert!(BYTES == FIXED_BYTES + WORDS * 8 + 8) };
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let expected = crc32fast::hash(&bytes[..BYTES - CHECKSUM_BYTES]);
    let found = u32_at(BYTES - CHECKSUM_BYTES);
    if expected != found {
        return Err(SlotError::BadChecksum { expected, found });
    }
    if u16_at(0) != SLOT_VERSION {
        return Err(SlotError::Version { found: u16_at(0) });
    }
    if u16_at(2) != kind {
        return Err(SlotError::Kind { expected: kind, found: u16_at(2) });
    }
    let session = Session { epoch: Epoch::from_bits(u64_at(8)), attempt: u32_at(4) };
    let mut words = [0; WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        *word = u64_at(FIXED_BYTES + index * 8);
    }
    Ok((session, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::MemberId;

    fn session() -> Session {
        Session { epoch: Epoch::new(7, MemberId(2)), attempt: 3 }
    }

    fn notice(sequence: u64) -> Notice {
        Notice {
            session: session(),
            sequence,
            tail: Lsn(0x1_2345_6789_a000),
            replicated: Lsn(4104),
            durable: Lsn(4096),
            wanted: Lsn(4104),
        }
    }

    #[test]
    fn slots_come_back_as_they_went() {
        let n = notice(9);
        assert_eq!(Notice::decode(&n.encode()), Ok(n));
        let h = Heartbeat {
            session: session(),
            sequence: 1,
            drained: Lsn(2),
            tail: Lsn(3),
            replicated: Lsn(4),
            durable: Lsn(5),
            trimmed: Lsn(6),
            pending_ns: 7,
        };
        assert_eq!(Heartbeat::decode(&h.encode()), Ok(h));
        let a = Acknowledgement {
            session: session(),
            sequence: 1,
            consumed: 2,
            valid_tail: Lsn(3),
            persisted: Persisted(Lsn(4)),
            heartbeat: 5,
        };
        assert_eq!(Acknowledgement::decode(&a.encode()), Ok(a));
        assert!(matches!(Notice::decode(&a.encode()), Err(SlotError::Kind { .. })));
    }

    #[test]
    fn kind_75_the_immediate_is_the_wrapped_low_part_of_the_tail() {
        assert_eq!(notice(0).immediate(), u32::try_from((0x1_2345_6789_a000_u64 >> 3) % (1 << 32)).unwrap());
    }

    #[test]
    fn r13_a_notice_torn_at_any_byte_does_not_decode() {
        let (old, new) = (notice(1).encode(), notice(18).encode());
        for cut in 1..Notice::BYTES {
            let mut torn = old;
            torn[..cut].copy_from_slice(&new[..cut]);
            let read = Notice::decode(&torn);
            assert!(torn == old || torn == new || read.is_err(), "torn at {cut} decoded as {read:?}");
        }
    }

    #[test]
    fn any_changed_bit_is_seen() {
        let good = notice(5).encode();
        for bit in 0..Notice::BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Notice::decode(&bad).is_err(), "bit {bit}");
        }
        assert!(Notice::decode(&[0; Notice::BYTES]).is_err(), "a slot never written");
    }
}
