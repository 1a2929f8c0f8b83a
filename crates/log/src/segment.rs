//! A segment's header: the first 64 bytes of its first page; the rest of the page is zeros.
//!
//! ```text
//!  0        8        12       16       24           40       48           56       64
//!  |magic   |checksum|version |byte    |log id      |base    |segment     |features|
//!  |WINDLSEG|        |        |order   |            |LSN     |bytes       |        |
//! ```
//!
//! Magic, checksum, version and byte order stay where they are in every version, so that a later version is told apart from
//! damage. DESIGN.md section 2.2.

use crate::bytes::{array, put, u32_at, u64_at};
use crate::{LogId, Lsn};

/// The version of the formats on disk: segment header, records, superblock.
pub const FORMAT_VERSION: u32 = 1;
/// The feature bits that this version knows. A file with any other bit is refused.
pub const FEATURES_KNOWN: u64 = 0;
/// Reads as itself only in the byte order it was written in.
pub(crate) const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;

/// Bytes of a segment's encoded header.
pub const SEGMENT_HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"WINDLSEG";
const _: () = assert!(SEGMENT_HEADER as u64 <= crate::SEGMENT_HEADER_BYTES);

/// What a segment file says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub log_id: LogId,
    /// The LSN of the file's first byte.
    pub base: Lsn,
    /// The file's size.
    pub segment_bytes: u64,
    /// Feature bits.
    pub features: u64,
}

/// Why a segment's header is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentHeaderError {
    /// All zeros: the file was made and its header never written.
    #[error("the segment header is blank")]
    Blank,
    /// Not a segment of windlass, or its first bytes are damaged.
    #[error("not a windlass segment: the first 8 bytes are {found:02x?}")]
    Magic {
        /// What is there.
        found: [u8; 8],
    },
    /// Fewer bytes than a header.
    #[error("a segment header has 64 bytes, there are {bytes}")]
    Short {
        /// How many there are.
        bytes: usize,
    },
    /// Damaged.
    #[error("the segment header has checksum {found:#010x}, its bytes give {expected:#010x}")]
    Checksum {
        /// What its bytes give.
        expected: u32,
        /// What it says.
        found: u32,
    },
    /// Written by a machine of the other byte order.
    #[error("the segment was written in another byte order")]
    ByteOrder,
    /// Written by another version: open it with that version.
    #[error("the segment has format version {found}, this library reads {FORMAT_VERSION}")]
    Version {
        /// What it says.
        found: u32,
    },
    /// Written with features that this version does not know: open it with a later version.
    #[error("the segment uses features {unknown:#x} that this version does not know")]
    Features {
        /// The unknown bits.
        unknown: u64,
    },
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 12, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &BYTE_ORDER.to_le_bytes());
        put(&mut bytes, 24, &self.log_id.0);
        put(&mut bytes, 40, &self.base.0.to_le_bytes());
        put(&mut bytes, 48, &self.segment_bytes.to_le_bytes());
        put(&mut bytes, 56, &self.features.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[12..]);
        put(&mut bytes, 8, &checksum.to_le_bytes());
        bytes
    }

    /// The header in the first 64 of these bytes.
    ///
    /// # Errors
    ///
    /// [`SegmentHeaderError`]. Whether base, size and log id are the expected ones is for the caller to compare.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, SegmentHeaderError> {
        let short = SegmentHeaderError::Short { bytes: bytes.len() };
        let bytes: [u8; SEGMENT_HEADER] = array(bytes, 0).ok_or(short)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(SegmentHeaderError::Blank);
        }
        let magic = array(&bytes, 0).ok_or(short)?;
        if magic != MAGIC {
            return Err(SegmentHeaderError::Magic { found: magic });
        }
        let found = u32_at(&bytes, 8).ok_or(short)?;
        let expected = crc32fast::hash(&bytes[12..]);
        if found != expected {
            return Err(SegmentHeaderError::Checksum { expected, found });
        }
        if u64_at(&bytes, 16) != Some(BYTE_ORDER) {
            return Err(SegmentHeaderError::ByteOrder);
        }
        let version = u32_at(&bytes, 12).ok_or(short)?;
        if version != FORMAT_VERSION {
            return Err(SegmentHeaderError::Version { found: version });
        }
        let features = u64_at(&bytes, 56).ok_or(short)?;
        if features & !FEATURES_KNOWN != 0 {
            return Err(SegmentHeaderError::Features { unknown: features & !FEATURES_KNOWN });
        }
        Ok(SegmentHeader {
            log_id: LogId(array(&bytes, 24).ok_or(short)?),
            base: Lsn(u64_at(&bytes, 40).ok_or(short)?),
            segment_bytes: u64_at(&bytes, 48).ok_or(short)?,
            features,
        })
    }
}
