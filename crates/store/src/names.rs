//! The names of the files in a log's folder.
//!
//! ```text
//! superblock                 two copies of the superblock
//! 0000000000400000.segment   a segment, by its base LSN
//! 0000000000800000.tmp       a segment being made
//! free-00000003              a segment's worth of blocks to reuse; its content means nothing
//! reserve                    blocks to give back when the disk is full
//! owner                      who has the log open: information, never proof
//! ```

use windlass_log::{Geometry, LSN_MAX, Lsn};

pub(crate) const SUPERBLOCK: &str = "superblock";
pub(crate) const SUPERBLOCK_TMP: &str = "superblock.tmp";
/// The first segment of a log that is being made.
pub(crate) const FIRST_TMP: &str = "0000000000000000.tmp";
pub(crate) const RESERVE: &str = "reserve";
pub(crate) const RESERVE_TMP: &str = "reserve.tmp";
pub(crate) const OWNER: &str = "owner";

/// What a name in the folder stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Superblock,
    Reserve,
    Owner,
    /// A segment by its base LSN, which may be no multiple of the segment size.
    Segment(Lsn),
    Free(u32),
    /// Left by a crash; to be removed.
    Temporary,
    /// Not one of the store's.
    Foreign,
}

impl Name {
    pub(crate) fn parse(name: &str) -> Name {
        if name == SUPERBLOCK {
            return Name::Superblock;
        }
        if name == RESERVE {
            return Name::Reserve;
        }
        if name == OWNER {
            return Name::Owner;
        }
        if name == SUPERBLOCK_TMP || name == RESERVE_TMP {
            return Name::Temporary;
        }
        if let Some(base) = name.strip_suffix(".segment").and_then(|hex| hex_exact(hex, 16)) {
            // Where no log comes to there is none of its segments; what counts on from there would pass the last LSN that there is.
            return if base < LSN_MAX { Name::Segment(Lsn(base)) } else { Name::Foreign };
        }
        if name.strip_suffix(".tmp").and_then(|hex| hex_exact(hex, 16)).is_some() {
            return Name::Temporary;
        }
        match name.strip_prefix("free-").and_then(|hex| hex_exact(hex, 8)).map(u32::try_from) {
            Some(Ok(number)) => Name::Free(number),
            Some(Err(_)) | None => Name::Foreign,
        }
    }
}

/// A number of exactly `digits` lower-case hexadecimal digits.
fn hex_exact(hex: &str, digits: usize) -> Option<u64> {
    let fits = hex.len() == digits && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if fits { u64::from_str_radix(hex, 16).ok() } else { None }
}

pub(crate) fn segment(geometry: Geometry, segment: u64) -> String {
    segment_at(geometry.base(segment))
}

pub(crate) fn segment_at(base: Lsn) -> String {
    format!("{:016x}.segment", base.0)
}

pub(crate) fn temporary(geometry: Geometry, segment: u64) -> String {
    format!("{:016x}.tmp", geometry.base(segment).0)
}

pub(crate) fn free(number: u32) -> String {
    format!("free-{number:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact_so_that_nothing_else_is_taken_for_a_segment() {
        let geometry = Geometry::new(64 << 20).unwrap();
        assert_eq!(segment(geometry, 1), "0000000004000000.segment");
        assert_eq!(Name::parse(&segment(geometry, 5)), Name::Segment(geometry.base(5)));
        assert_eq!(Name::parse(&temporary(geometry, 5)), Name::Temporary);
        assert_eq!(Name::parse(&free(7)), Name::Free(7));
        for foreign in [
            "4000000.segment",
            "000000000400000G.segment",
            "4000000000000000.segment",
            "ffffffffffff0000.segment",
            "000000000400000A.segment",
            "+00000000400000a.segment",
            "0000000004000000.segment~",
            "superblock.bak",
            "free-7",
            "x.tmp",
            "lost+found",
        ] {
            assert_eq!(Name::parse(foreign), Name::Foreign, "{foreign}");
        }
    }
}
