//! The superblock: who this member is, what it promised, and where its log stands. Two copies, each checksummed.
//!
//! ```text
//!    0  magic WINDLSUP           64  incarnation            128  segment bytes
//!    8  checksum (4)             72  boot id (16)           136  features
//!   12  version (4)              88  promised epoch         144  history entries (4)
//!   16  byte order               96  trimmed LSN            148  configuration bytes (4)
//!   24  bytes in all (4)        104  persisted mark         152  history, 16 bytes an entry
//!   28  member (1), flags (1),  112  clean mark,             ..  configuration
//!       zeros (2)                    0 if there is none      ..  zeros up to 4096
//!   32  generation              120  acknowledged mark
//!   40  log id (16)
//!   56  place
//! ```
//!
//! The checksum covers everything from byte 12 to the end, so it can be checked whatever the version. A copy's size is a
//! multiple of 4096, at most [`SUPERBLOCK_BYTES_MAX`]. R-5: the promised epoch is never below any epoch seen in the log:
//! [`Superblock::promise_gap`]. DESIGN.md section 2.4.

use alloc::vec;
use alloc::vec::Vec;

use crate::bytes::{array, index, length, put, u32_at, u64_at};
use crate::history::{ENTRY, HistoryError};
use crate::segment::{BYTE_ORDER, FEATURES_KNOWN, FORMAT_VERSION};
use crate::{Epoch, EpochHistory, Geometry, HISTORY_ENTRIES_MAX, LogId, Lsn, MemberId};

/// The largest configuration a superblock holds.
pub const CONFIGURATION_BYTES_MAX: usize = 16 << 10;
/// The largest copy of a superblock, in bytes.
pub const SUPERBLOCK_BYTES_MAX: u64 = 56 << 10;
/// A copy is a multiple of this, in bytes.
pub const SUPERBLOCK_ALIGN: u64 = 4096;

const MAGIC: [u8; 8] = *b"WINDLSUP";
const HEAD: usize = 152;
const _: () =
    assert!((HEAD + HISTORY_ENTRIES_MAX * ENTRY + CONFIGURATION_BYTES_MAX) as u64 <= SUPERBLOCK_BYTES_MAX);
const _: () = assert!(SUPERBLOCK_BYTES_MAX.is_multiple_of(SUPERBLOCK_ALIGN));

const CAUGHT_UP: u8 = 1;

/// A superblock's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Goes up by one with each write; of two good copies the higher one counts.
    pub generation: u64,
    /// The log.
    pub log_id: LogId,
    /// This member's number in the group; 0 for a lone log.
    pub member: MemberId,
    /// Random, made with the folder: a member back with an empty disk is another incarnation.
    pub incarnation: u64,
    /// What tells the folder's place: a fingerprint of the superblock's own file, another one in a copy of the folder.
    pub place: u64,
    /// The boot of the machine that last opened the folder for writing: another one means that memory was lost.
    pub boot_id: [u8; 16],
    /// The highest epoch ever promised, never below any in the log (R-5).
    pub promised: Epoch,
    /// The epochs from the trim point on.
    pub history: EpochHistory,
    /// Everything below is released.
    pub trimmed: Lsn,
    /// Everything below is provably on the medium: an invalid record there is damage.
    pub persisted: Lsn,
    /// The log's end at a clean close; `None` while the folder is in use or after a crash (R-6).
    pub clean: Option<Lsn>,
    /// The highest LSN that this member may have acknowledged as persisted, as far as it was written down (R-18).
    pub acknowledged: Lsn,
    /// Whether this member has held the whole committed log since it joined or lost its memory (R-19).
    pub caught_up: bool,
    /// The size of a segment, in bytes.
    pub segment_bytes: u64,
    /// Feature bits.
    pub features: u64,
    /// The newest configuration of the group, opaque here; at most [`CONFIGURATION_BYTES_MAX`] bytes.
    pub configuration: Vec<u8>,
}

/// Why a copy of a superblock is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// All zeros, or no bytes at all: never written.
    #[error("the superblock is blank")]
    Blank,
    /// Not a superblock of windlass, or its first bytes are damaged.
    #[error("not a windlass superblock: the first 8 bytes are {found:02x?}")]
    Magic {
        /// What is there.
        found: [u8; 8],
    },
    /// The length in it is not one, or goes beyond the bytes there are: damaged or cut short.
    #[error("the superblock claims {claimed} bytes, there are {available}")]
    Length {
        /// What it says.
        claimed: u64,
        /// How many bytes there are.
        available: u64,
    },
    /// Torn or damaged.
    #[error("the superblock has checksum {found:#010x}, its bytes give {expected:#010x}")]
    Checksum {
        /// What its bytes give.
        expected: u32,
        /// What it says.
        found: u32,
    },
    /// Written by a machine of the other byte order.
    #[error("the superblock was written in another byte order")]
    ByteOrder,
    /// Written by another version: open the folder with that version.
    #[error("the superblock has format version {found}, this library reads {FORMAT_VERSION}")]
    Version {
        /// What it says.
        found: u32,
    },
    /// Written with features that this version does not know: open the folder with a later version.
    #[error("the superblock uses features {unknown:#x} that this version does not know")]
    Features {
        /// The unknown bits.
        unknown: u64,
    },
    /// The checksum holds and a field makes no sense: a defect of the writer.
    #[error("the superblock's {field} can't be right")]
    Field {
        /// Which.
        field: &'static str,
    },
    /// The checksum holds and the history is none: a defect of the writer.
    #[error("the superblock's epoch history can't be right")]
    History(#[source] HistoryError),
}

impl SuperblockError {
    /// Whether the copy is a whole one that must not be ignored: written by another version.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        match self {
            SuperblockError::Version { .. }
            | SuperblockError::Features { .. }
            | SuperblockError::ByteOrder => true,
            SuperblockError::Blank
            | SuperblockError::Magic { .. }
            | SuperblockError::Length { .. }
            | SuperblockError::Checksum { .. }
            | SuperblockError::Field { .. }
            | SuperblockError::History(_) => false,
        }
    }
}

/// Why a superblock can't be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockEncodeError {
    /// A defect of the caller, or a peer's word that was not checked: this superblock would be refused when it is read.
    #[error("a superblock whose {field} can't be right")]
    Field {
        /// Which.
        field: &'static str,
    },
    /// Use a smaller configuration.
    #[error("a configuration of {bytes} bytes, the superblock holds {CONFIGURATION_BYTES_MAX}")]
    Configuration {
        /// Its length.
        bytes: usize,
    },
}

impl Superblock {
    /// The bytes of one copy, a multiple of [`SUPERBLOCK_ALIGN`].
    ///
    /// # Errors
    ///
    /// [`SuperblockEncodeError`]: nothing is ever encoded that [`decode`](Self::decode) would refuse; R-5 among the rest.
    ///
    /// # Panics
    ///
    /// Never: the lengths are bounded.
    pub fn encode(&self) -> Result<Vec<u8>, SuperblockEncodeError> {
        self.consistent().map_err(|field| SuperblockEncodeError::Field { field })?;
        let configuration_bytes = u32::try_from(self.configuration.len())
            .ok()
            .filter(|_| self.configuration.len() <= CONFIGURATION_BYTES_MAX)
            .ok_or(SuperblockEncodeError::Configuration { bytes: self.configuration.len() })?;
        let entries = u32::try_from(self.history.entries().len()).expect("at most HISTORY_ENTRIES_MAX");
        let mut bytes = vec![0; HEAD];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 12, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &BYTE_ORDER.to_le_bytes());
        put(&mut bytes, 28, &[self.member.0, if self.caught_up { CAUGHT_UP } else { 0 }]);
        put(&mut bytes, 32, &self.generation.to_le_bytes());
        put(&mut bytes, 40, &self.log_id.0);
        put(&mut bytes, 56, &self.place.to_le_bytes());
        put(&mut bytes, 64, &self.incarnation.to_le_bytes());
        put(&mut bytes, 72, &self.boot_id);
        put(&mut bytes, 88, &self.promised.to_bits().to_le_bytes());
        put(&mut bytes, 96, &self.trimmed.0.to_le_bytes());
        put(&mut bytes, 104, &self.persisted.0.to_le_bytes());
        put(&mut bytes, 112, &self.clean.map_or(0, |lsn| lsn.0).to_le_bytes());
        put(&mut bytes, 120, &self.acknowledged.0.to_le_bytes());
        put(&mut bytes, 128, &self.segment_bytes.to_le_bytes());
        put(&mut bytes, 136, &self.features.to_le_bytes());
        put(&mut bytes, 144, &entries.to_le_bytes());
        put(&mut bytes, 148, &configuration_bytes.to_le_bytes());
        self.history.encode_into(&mut bytes);
        bytes.extend_from_slice(&self.configuration);
        bytes.resize(bytes.len().next_multiple_of(index(SUPERBLOCK_ALIGN)), 0);
        let total = u32::try_from(bytes.len()).expect("at most SUPERBLOCK_BYTES_MAX");
        put(&mut bytes, 24, &total.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[12..]);
        put(&mut bytes, 8, &checksum.to_le_bytes());
        Ok(bytes)
    }

    /// The superblock in these bytes, which may be more than the copy has.
    ///
    /// # Errors
    ///
    /// [`SuperblockError`]: what is wrong with this copy. Nothing is allocated beyond the bytes' own length.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let bytes = checked(bytes)?;
        let field = |field| SuperblockError::Field { field };
        let word = |at, name| u64_at(bytes, at).ok_or(field(name));
        let entries =
            u32_at(bytes, 144).and_then(|n| usize::try_from(n).ok()).ok_or(field("history length"))?;
        let configuration_bytes = u32_at(bytes, 148).and_then(|n| usize::try_from(n).ok());
        let configuration_bytes = configuration_bytes
            .filter(|bytes| *bytes <= CONFIGURATION_BYTES_MAX)
            .ok_or(field("configuration length"))?;
        if entries > HISTORY_ENTRIES_MAX {
            return Err(field("history length"));
        }
        let history_end = HEAD + entries * ENTRY;
        let history = bytes.get(HEAD..history_end).ok_or(field("history length"))?;
        let configuration =
            bytes.get(history_end..history_end + configuration_bytes).ok_or(field("configuration length"))?;
        let [member, flags]: [u8; 2] = array(bytes, 28).ok_or(field("member"))?;
        if flags & !CAUGHT_UP != 0 {
            return Err(field("flags"));
        }
        let clean = word(112, "clean mark")?;
        let superblock = Superblock {
            generation: word(32, "generation")?,
            log_id: LogId(array(bytes, 40).ok_or(field("log id"))?),
            member: MemberId(member),
            incarnation: word(64, "incarnation")?,
            place: word(56, "place")?,
            boot_id: array(bytes, 72).ok_or(field("boot id"))?,
            promised: Epoch::from_bits(word(88, "promised epoch")?),
            history: EpochHistory::decode(history).map_err(SuperblockError::History)?,
            trimmed: Lsn(word(96, "trimmed LSN")?),
            persisted: Lsn(word(104, "persisted mark")?),
            clean: (clean != 0).then_some(Lsn(clean)),
            acknowledged: Lsn(word(120, "acknowledged mark")?),
            caught_up: flags & CAUGHT_UP != 0,
            segment_bytes: word(128, "segment size")?,
            features: word(136, "features")?,
            configuration: configuration.to_vec(),
        };
        superblock.consistent().map_err(field)?;
        Ok(superblock)
    }

    /// The field that can't be right, if there is one.
    fn consistent(&self) -> Result<(), &'static str> {
        let geometry = Geometry::new(self.segment_bytes).map_err(|_| "segment size")?;
        // LSNs far from the top of the number range: arithmetic on them can't wrap.
        let sane = |lsn: Lsn| lsn.0 <= LSN_MAX && geometry.normalize(lsn) == lsn && lsn.0.is_multiple_of(8);
        let marks = [
            ("trimmed LSN", self.trimmed),
            ("persisted mark", self.persisted),
            ("acknowledged mark", self.acknowledged),
        ];
        for (field, lsn) in marks.into_iter().chain(self.clean.map(|lsn| ("clean mark", lsn))) {
            if !sane(lsn) {
                return Err(field);
            }
        }
        if self.history.entries().iter().any(|entry| !sane(entry.start)) {
            return Err("epoch history");
        }
        if self.features & !FEATURES_KNOWN != 0 {
            return Err("features");
        }
        if self.promise_gap().is_some() {
            return Err("promised epoch");
        }
        Ok(())
    }

    /// R-5: the epoch of the history that is above the promise, if there is one. Must be `None` in every superblock written or read.
    #[must_use]
    pub fn promise_gap(&self) -> Option<Epoch> {
        self.history.last().map(|last| last.epoch).filter(|epoch| *epoch > self.promised)
    }
}

/// LSNs beyond this are taken for damage: 2^62, more than any log will reach.
pub const LSN_MAX: u64 = 1 << 62;

/// The bytes of the copy, once magic, length, checksum, byte order, version and features hold.
fn checked(bytes: &[u8]) -> Result<&[u8], SuperblockError> {
    let available = length(bytes.len());
    let Some(head) = bytes.get(..HEAD) else {
        return Err(if bytes.iter().all(|byte| *byte == 0) {
            SuperblockError::Blank
        } else {
            SuperblockError::Length { claimed: length(HEAD), available }
        });
    };
    if head.iter().all(|byte| *byte == 0) {
        return Err(SuperblockError::Blank);
    }
    let magic = array(head, 0).unwrap_or_default();
    if magic != MAGIC {
        return Err(SuperblockError::Magic { found: magic });
    }
    let claimed = u64::from(u32_at(head, 24).unwrap_or(0));
    let plausible = (SUPERBLOCK_ALIGN..=SUPERBLOCK_BYTES_MAX).contains(&claimed)
        && claimed.is_multiple_of(SUPERBLOCK_ALIGN);
    let whole = bytes.get(..index(claimed)).filter(|_| plausible);
    let bytes = whole.ok_or(SuperblockError::Length { claimed, available })?;
    let found = u32_at(bytes, 8).unwrap_or(0);
    let expected = crc32fast::hash(&bytes[12..]);
    if found != expected {
        return Err(SuperblockError::Checksum { expected, found });
    }
    if u64_at(bytes, 16) != Some(BYTE_ORDER) {
        return Err(SuperblockError::ByteOrder);
    }
    let version = u32_at(bytes, 12).unwrap_or(0);
    if version != FORMAT_VERSION {
        return Err(SuperblockError::Version { found: version });
    }
    let features = u64_at(bytes, 136).unwrap_or(u64::MAX);
    if features & !FEATURES_KNOWN != 0 {
        return Err(SuperblockError::Features { unknown: features & !FEATURES_KNOWN });
    }
    Ok(bytes)
}

/// Why neither copy can be used. Never a reason to initialise the folder (failure kind 11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoSuperblock {
    /// Both are bad: restore the folder from a copy, or rejoin as a new member.
    #[error("both copies of the superblock are unusable; first: {first}; second: {second}")]
    Both {
        /// What is wrong with the first.
        first: SuperblockError,
        /// What is wrong with the second.
        second: SuperblockError,
    },
    /// One copy is whole and of another version: using the other would undo what that version wrote.
    #[error("a copy of the superblock is of another version: {foreign}")]
    Foreign {
        /// What it is.
        foreign: SuperblockError,
    },
    /// The copies are of different logs or members: the folder was put together from two.
    #[error("the two copies of the superblock are of different members: {first} and {second}")]
    Strangers {
        /// The log of the first.
        first: LogId,
        /// The log of the second.
        second: LogId,
    },
}

/// The copy that counts: of two good ones the one with the higher generation.
///
/// # Errors
///
/// [`NoSuperblock`]: neither can be used.
pub fn newest(
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
) -> Result<Superblock, NoSuperblock> {
    match (first, second) {
        (Ok(first), Ok(second)) => {
            // Not the incarnation: taking over a copied folder changes it, one copy after the other.
            if (first.log_id, first.member) != (second.log_id, second.member) {
                return Err(NoSuperblock::Strangers { first: first.log_id, second: second.log_id });
            }
            Ok(if second.generation > first.generation { second } else { first })
        }
        (Ok(one), Err(other)) | (Err(other), Ok(one)) => {
            if other.is_foreign() {
                return Err(NoSuperblock::Foreign { foreign: other });
            }
            Ok(one)
        }
        (Err(first), Err(second)) => match [first, second].into_iter().find(SuperblockError::is_foreign) {
            Some(foreign) => Err(NoSuperblock::Foreign { foreign }),
            None => Err(NoSuperblock::Both { first, second }),
        },
    }
}
