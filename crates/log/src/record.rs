//! A record's header: 32 bytes, little-endian.
//!
//! ```text
//!  0              8              16       20   21   22    24       28       32
//!  |publish word  |epoch         |payload |kind|flag|lag  |payload |header  |payload ... zeros up to 8
//!  | LSN ^ mask   |              |bytes   |    |  s |pages|checksum|checksum|
//! ```
//!
//! Invariants: the kind is never 0, so no legal record is all zeros, an empty one included; the publish word is never 0;
//! a header decodes only at the LSN, in the log and in the epoch that it was made for (R-3, R-4). DESIGN.md section 2.3.

use crate::bytes::{array, put};
use crate::salt::{EpochKey, Salt};
use crate::{Epoch, Geometry, HEADER_BYTES, Lsn, RECORD_ALIGN};

/// What a record is. The numbers are those on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// One append of the application.
    Data = 1,
    /// Several appends that stand or fall together; the items are framed inside ([`batch_items`](crate::batch_items)).
    Batch = 2,
    /// Filler, all zeros: the rest of a segment, or a reservation that was given up.
    Pad = 3,
    /// The first record of every segment: the chain up to here ([`Chain`](crate::Chain)).
    SegmentStart = 4,
    /// The first record that a primary appends in its tenure.
    EpochStart = 5,
    /// A group's configuration.
    Configuration = 6,
}

impl RecordKind {
    /// The kind with this number on disk.
    #[must_use]
    #[inline]
    pub fn from_number(number: u8) -> Option<RecordKind> {
        Some(match number {
            1 => RecordKind::Data,
            2 => RecordKind::Batch,
            3 => RecordKind::Pad,
            4 => RecordKind::SegmentStart,
            5 => RecordKind::EpochStart,
            6 => RecordKind::Configuration,
            _ => return None,
        })
    }

    /// The number on disk, never 0.
    #[must_use]
    #[inline]
    pub fn number(self) -> u8 {
        match self {
            RecordKind::Data => 1,
            RecordKind::Batch => 2,
            RecordKind::Pad => 3,
            RecordKind::SegmentStart => 4,
            RecordKind::EpochStart => 5,
            RecordKind::Configuration => 6,
        }
    }
}

/// How far behind a record the persisted watermark of its writer was when it was written, in 4 KiB pages, rounded up.
///
/// Speaks only for the member that wrote the record. 65535 means unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lag(pub u16);

impl Lag {
    /// Nothing is known.
    pub const UNKNOWN: Lag = Lag(u16::MAX);
    const PAGE_SHIFT: u32 = 12;

    /// The lag of a record at `lsn` while everything below `persisted` is flushed.
    #[must_use]
    #[inline]
    pub fn between(persisted: Lsn, lsn: Lsn) -> Lag {
        let bytes = lsn.0.saturating_sub(persisted.0);
        let pages = bytes.div_ceil(1 << Lag::PAGE_SHIFT);
        Lag(u16::try_from(pages).unwrap_or(u16::MAX))
    }

    /// Up to where the writer of the record at `lsn` had flushed, at least; `None` if unknown.
    #[must_use]
    pub fn persisted_below(self, lsn: Lsn) -> Option<Lsn> {
        (self != Lag::UNKNOWN).then(|| Lsn(lsn.0.saturating_sub(u64::from(self.0) << Lag::PAGE_SHIFT)))
    }
}

/// A record's header, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Where the record starts.
    pub lsn: Lsn,
    /// The tenure that appended it.
    pub epoch: Epoch,
    /// What it is.
    pub kind: RecordKind,
    /// How far the writer's persisted watermark was behind.
    pub lag: Lag,
    /// Bytes of payload, without the zeros behind it.
    pub payload_bytes: u32,
    /// The salted checksum of the payload.
    pub payload_checksum: u32,
}

/// Why the 32 bytes at an LSN are not the header of a valid record there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// Nothing of this log and epoch starts here: memory nobody wrote, an earlier life of the file, or the middle of a record.
    #[error(
        "no record of {epoch} starts at LSN {lsn}: the publish word is {found:#018x}, not {expected:#018x}"
    )]
    NoRecord {
        /// Where a record was looked for.
        lsn: Lsn,
        /// The epoch that the history assigns to the LSN.
        epoch: Epoch,
        /// The publish word that a record would have.
        expected: u64,
        /// The word that is there.
        found: u64,
    },
    /// A whole header of another epoch than the one that the history assigns to this LSN (R-4): left over from a suffix that was cut.
    #[error("a record of {found} at LSN {lsn}, where the history has {assigned}")]
    OtherEpoch {
        /// Where it is.
        lsn: Lsn,
        /// The epoch that the history assigns to the LSN.
        assigned: Epoch,
        /// The epoch in the header.
        found: Epoch,
    },
    /// The publish word is right and the header checksum is not: torn or damaged.
    #[error("the record header at LSN {lsn} has checksum {found:#010x}, its bytes give {expected:#010x}")]
    Checksum {
        /// Where it is.
        lsn: Lsn,
        /// What the header's bytes give.
        expected: u32,
        /// What the header says.
        found: u32,
    },
    /// A field that this version does not know, in a header that is whole: written by a later version.
    #[error(
        "the record header at LSN {lsn} has kind {kind} and flags {flags:#04x}, which this version does not know"
    )]
    Unknown {
        /// Where it is.
        lsn: Lsn,
        /// The kind's number.
        kind: u8,
        /// The flags.
        flags: u8,
    },
    /// The record would reach beyond its segment.
    #[error(
        "the record at LSN {lsn} claims {payload_bytes} bytes of payload, its segment has room for {room} with the header"
    )]
    Length {
        /// Where it is.
        lsn: Lsn,
        /// What the header says.
        payload_bytes: u32,
        /// Bytes from the LSN to the end of the segment.
        room: u64,
    },
}

impl HeaderError {
    /// Whether the publish word was right: somebody began to publish a record of this epoch here.
    #[must_use]
    pub fn is_published(&self) -> bool {
        match self {
            HeaderError::NoRecord { .. } | HeaderError::OtherEpoch { .. } => false,
            HeaderError::Checksum { .. } | HeaderError::Unknown { .. } | HeaderError::Length { .. } => true,
        }
    }
}

/// Bytes of a header as an array length.
pub(crate) const HEADER: usize = 32;
const _: () = assert!(HEADER as u64 == HEADER_BYTES && HEADER_BYTES.is_multiple_of(RECORD_ALIGN));

/// Words of a header.
pub(crate) const WORDS: usize = 4;
const _: () = assert!(WORDS * 8 == HEADER);

impl RecordHeader {
    /// The bytes of the whole record: header, payload, zeros up to the alignment.
    #[must_use]
    #[inline]
    pub fn record_bytes(&self) -> u64 {
        Geometry::record_bytes(u64::from(self.payload_bytes))
    }

    /// The header's bytes, with the publish word and the header checksum of `key`.
    ///
    /// # Panics
    ///
    /// If the header is of another epoch than the key.
    #[must_use]
    #[inline]
    pub fn encode(&self, key: &EpochKey) -> [u8; HEADER] {
        bytes_of(self.words(key, self.kind.number()))
    }

    /// The header with a kind that this version need not know, as a later one would write it: for tests of what is made of such a record.
    #[doc(hidden)]
    #[must_use]
    pub fn encode_of_kind(&self, key: &EpochKey, kind: u8) -> [u8; HEADER] {
        bytes_of(self.words(key, kind))
    }

    /// The header as four words, with any number for the kind. Kept as words on the hot path: bytes put one by one and loaded as words again
    /// cost a store-forwarding stall each.
    #[inline]
    pub(crate) fn words(&self, key: &EpochKey, kind: u8) -> [u64; WORDS] {
        assert_eq!(self.epoch, key.epoch(), "a header is encoded with the key of its own epoch");
        let lengths = u64::from(self.payload_bytes) | u64::from(kind) << 32 | u64::from(self.lag.0) << 48;
        let word = key.publish_word(self.lsn);
        let epoch = self.epoch.to_bits();
        let check = key.salt().header_checksum(self.lsn, [word, epoch, lengths], self.payload_checksum);
        [word, epoch, lengths, u64::from(self.payload_checksum) | u64::from(check) << 32]
    }

    /// The header in these bytes, if they are that of a record at `lsn` of the epoch of `key`, which must be the epoch that
    /// the history assigns to `lsn` (R-4), and if the record ends within `room` bytes, the rest of its segment.
    ///
    /// The payload is not looked at: see [`Salt::payload_checksum`] and [`padding_bytes`].
    ///
    /// # Errors
    ///
    /// [`HeaderError`]: what is there instead.
    #[inline]
    pub fn decode(
        bytes: &[u8; HEADER],
        lsn: Lsn,
        room: u64,
        key: &EpochKey,
    ) -> Result<RecordHeader, HeaderError> {
        RecordHeader::decode_words(words_of(bytes), lsn, room, key)
    }

    /// As [`decode`](Self::decode), with the header as words.
    #[inline(always)]
    pub(crate) fn decode_words(
        words: [u64; WORDS],
        lsn: Lsn,
        room: u64,
        key: &EpochKey,
    ) -> Result<RecordHeader, HeaderError> {
        let [word, epoch, lengths, checksums] = words;
        #[cfg(planted)]
        let key = &if crate::planted!(R4) { key.salt().key(Epoch::from_bits(epoch)) } else { *key };
        if word != key.publish_word(lsn) {
            return Err(foreign(words, lsn, key));
        }
        let epoch = Epoch::from_bits(epoch);
        let (payload_checksum, found) = halves(checksums);
        let check = key.salt().header_checksum(lsn, [word, epoch.to_bits(), lengths], payload_checksum);
        if check != found || epoch != key.epoch() {
            return Err(HeaderError::Checksum { lsn, expected: check, found });
        }
        let (payload_bytes, rest) = halves(lengths);
        let [number, flags, lag_low, lag_high] = rest.to_le_bytes();
        let (Some(kind), 0) = (RecordKind::from_number(number), flags) else {
            return Err(HeaderError::Unknown { lsn, kind: number, flags });
        };
        if Geometry::record_bytes(u64::from(payload_bytes)) > room {
            return Err(HeaderError::Length { lsn, payload_bytes, room });
        }
        let lag = Lag(u16::from_le_bytes([lag_low, lag_high]));
        Ok(RecordHeader { lsn, epoch, kind, lag, payload_bytes, payload_checksum })
    }
}

/// Tells a header of another epoch from no header at all.
#[cold]
fn foreign(words: [u64; WORDS], lsn: Lsn, key: &EpochKey) -> HeaderError {
    let [found, epoch, lengths, checksums] = words;
    let other = Epoch::from_bits(epoch);
    let (payload_checksum, checksum) = halves(checksums);
    let whole = checksum == key.salt().header_checksum(lsn, [found, epoch, lengths], payload_checksum);
    if whole && key.salt().key(other).publish_word(lsn) == found {
        return HeaderError::OtherEpoch { lsn, assigned: key.epoch(), found: other };
    }
    HeaderError::NoRecord { lsn, epoch: key.epoch(), expected: key.publish_word(lsn), found }
}

/// A header as words: publish word; epoch; payload length, kind, flags, lag; payload checksum, header checksum.
#[inline]
pub(crate) fn words_of(bytes: &[u8; HEADER]) -> [u64; WORDS] {
    let word = |at: usize| array(bytes, at).map_or(0, u64::from_le_bytes);
    [word(0), word(8), word(16), word(24)]
}

/// The bytes of a header given as words.
#[inline]
pub(crate) fn bytes_of(words: [u64; WORDS]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (at, word) in words.into_iter().enumerate() {
        put(&mut bytes, at * 8, &word.to_le_bytes());
    }
    bytes
}

/// The lower and the upper half of a word.
#[inline]
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// Zeros between a payload's end and the record's: 0 to 7.
#[must_use]
pub fn padding_bytes(payload_bytes: u64) -> u64 {
    Geometry::record_bytes(payload_bytes) - HEADER_BYTES - payload_bytes
}

/// The payload checksum of a pad: its body is zeros.
pub(crate) fn zeros_checksum(salt: Salt, lsn: Lsn, bytes: u64) -> u32 {
    static ZEROS: [u8; 4096] = [0; 4096];
    let mut hasher = crc32fast::Hasher::new();
    let mut left = crate::bytes::index(bytes);
    while left > 0 {
        let now = left.min(ZEROS.len());
        hasher.update(&ZEROS[..now]);
        left -= now;
    }
    hasher.finalize() ^ salt.payload_salt(lsn)
}
