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

const EPOCH_AT: usize = 8;
const LENGTHS_AT: usize = 16;
const PAYLOAD_CHECKSUM_AT: usize = 24;
const HEADER_CHECKSUM_AT: usize = 28;
const _: () = assert!(HEADER_CHECKSUM_AT + 4 == HEADER);

impl RecordHeader {
    /// The bytes of the whole record: header, payload, zeros up to the alignment.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        Geometry::record_bytes(u64::from(self.payload_bytes))
    }

    /// The header's bytes, with the publish word and the header checksum of `key`.
    ///
    /// # Panics
    ///
    /// If the header is of another epoch than the key.
    #[must_use]
    pub fn encode(&self, key: &EpochKey) -> [u8; HEADER] {
        self.encode_number(key, self.kind.number())
    }

    /// As [`encode`](Self::encode), with any number for the kind.
    #[inline]
    pub(crate) fn encode_number(&self, key: &EpochKey, kind: u8) -> [u8; HEADER] {
        assert_eq!(self.epoch, key.epoch(), "a header is encoded with the key of its own epoch");
        let lengths = self.lengths(kind);
        let word = key.publish_word(self.lsn);
        let check = key.salt().header_checksum(
            self.lsn,
            [word, self.epoch.to_bits(), u64::from_le_bytes(lengths)],
            self.payload_checksum,
        );
        let mut bytes = [0; HEADER];
        put(&mut bytes, 0, &word.to_le_bytes());
        put(&mut bytes, EPOCH_AT, &self.epoch.to_bits().to_le_bytes());
        put(&mut bytes, LENGTHS_AT, &lengths);
        put(&mut bytes, PAYLOAD_CHECKSUM_AT, &self.payload_checksum.to_le_bytes());
        put(&mut bytes, HEADER_CHECKSUM_AT, &check.to_le_bytes());
        bytes
    }

    fn lengths(&self, kind: u8) -> [u8; 8] {
        let [a, b, c, d] = self.payload_bytes.to_le_bytes();
        let [lag_low, lag_high] = self.lag.0.to_le_bytes();
        [a, b, c, d, kind, 0, lag_low, lag_high]
    }

    /// The header in these bytes, if they are that of a record at `lsn` of the epoch of `key`, which must be the epoch that
    /// the history assigns to `lsn` (R-4), and if the record ends within `room` bytes, the rest of its segment.
    ///
    /// The payload is not looked at: see [`Salt::payload_checksum`] and [`padding_bytes`].
    ///
    /// # Errors
    ///
    /// [`HeaderError`]: what is there instead.
    pub fn decode(
        bytes: &[u8; HEADER],
        lsn: Lsn,
        room: u64,
        key: &EpochKey,
    ) -> Result<RecordHeader, HeaderError> {
        let word = word_at(bytes, 0);
        let expected = key.publish_word(lsn);
        if word != expected {
            return Err(foreign(bytes, lsn, key));
        }
        let epoch = Epoch::from_bits(word_at(bytes, EPOCH_AT));
        let lengths = word_at(bytes, LENGTHS_AT);
        let [.., p0, p1, p2, p3, h0, h1, h2, h3] = *bytes;
        let payload_checksum = u32::from_le_bytes([p0, p1, p2, p3]);
        let found = u32::from_le_bytes([h0, h1, h2, h3]);
        let check = key.salt().header_checksum(lsn, [word, epoch.to_bits(), lengths], payload_checksum);
        if check != found || epoch != key.epoch() {
            return Err(HeaderError::Checksum { lsn, expected: check, found });
        }
        let [a, b, c, d, number, flags, lag_low, lag_high] = lengths.to_le_bytes();
        let (Some(kind), 0) = (RecordKind::from_number(number), flags) else {
            return Err(HeaderError::Unknown { lsn, kind: number, flags });
        };
        let payload_bytes = u32::from_le_bytes([a, b, c, d]);
        if Geometry::record_bytes(u64::from(payload_bytes)) > room {
            return Err(HeaderError::Length { lsn, payload_bytes, room });
        }
        let lag = Lag(u16::from_le_bytes([lag_low, lag_high]));
        Ok(RecordHeader { lsn, epoch, kind, lag, payload_bytes, payload_checksum })
    }
}

/// Tells a header of another epoch from no header at all.
#[cold]
fn foreign(bytes: &[u8; HEADER], lsn: Lsn, key: &EpochKey) -> HeaderError {
    let found = word_at(bytes, 0);
    let other = Epoch::from_bits(word_at(bytes, EPOCH_AT));
    let checksum = array(bytes, HEADER_CHECKSUM_AT).map(u32::from_le_bytes);
    let payload_checksum = array(bytes, PAYLOAD_CHECKSUM_AT).map_or(0, u32::from_le_bytes);
    let words = [found, other.to_bits(), word_at(bytes, LENGTHS_AT)];
    let whole = checksum == Some(key.salt().header_checksum(lsn, words, payload_checksum));
    if whole && key.salt().key(other).publish_word(lsn) == found {
        return HeaderError::OtherEpoch { lsn, assigned: key.epoch(), found: other };
    }
    HeaderError::NoRecord { lsn, epoch: key.epoch(), expected: key.publish_word(lsn), found }
}

fn word_at(bytes: &[u8; HEADER], at: usize) -> u64 {
    array(bytes, at).map_or(0, u64::from_le_bytes)
}

/// The two words of a header that the chain takes in: the publish word and both checksums.
pub(crate) fn chain_words(bytes: &[u8; HEADER]) -> [u64; 2] {
    [word_at(bytes, 0), word_at(bytes, PAYLOAD_CHECKSUM_AT)]
}

/// Zeros between a payload's end and the record's: 0 to 7.
#[must_use]
pub fn padding_bytes(payload_bytes: u64) -> u64 {
    Geometry::record_bytes(payload_bytes) - HEADER_BYTES - payload_bytes
}

/// The payload checksum of a pad: its body is zeros.
pub(crate) fn zeros_checksum(salt: Salt, lsn: Lsn, bytes: u64) -> u32 {
    static ZEROS: [u8; 4096] = [0; 4096];
    let mut hasher = salt.payload_hasher(lsn);
    let mut left = crate::bytes::index(bytes);
    while left > 0 {
        let now = left.min(ZEROS.len());
        hasher.update(&ZEROS[..now]);
        left -= now;
    }
    hasher.finalize()
}
