//! Positions in the log and the arithmetic that turns them into segments and offsets.
//!
//! ```text
//!  LSN      0     4096                     S     S+4096                  2S
//!           |header|record|record|...|pad  |header|record|...            |
//!           '---------- segment 0 ---------'---------- segment 1 --------'
//! ```
//!
//! Invariants: one position has one LSN (R-1): the end of a full segment is always written as the first LSN of the next,
//! and a remainder too small for a record header is skipped by rule. Every LSN of a record is a multiple of
//! [`RECORD_ALIGN`]. DESIGN.md section 2.1.

use core::fmt;

/// A byte position in the logical log. Ranges of LSNs are half-open, `[start, end)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Bytes at the start of each segment that hold its header and never a record: one page.
pub const SEGMENT_HEADER_BYTES: u64 = if cfg!(loom) { 64 } else { 4096 };
/// Bytes of a record's header.
pub const HEADER_BYTES: u64 = 32;
/// Every record starts and ends on a multiple of this.
pub const RECORD_ALIGN: u64 = 8;
/// Bytes of a segment-start record, the first of every segment: a header, the chain's hash, the count of records.
pub const SEGMENT_START_BYTES: u64 = HEADER_BYTES + 16;
/// The smallest segment, for tests: 64 KiB. (A model checker's run makes do with less: it tracks every word.)
pub const SEGMENT_BYTES_MIN: u64 = if cfg!(loom) { 256 } else { 64 << 10 };
/// The largest segment: 4 GiB.
pub const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// The segment size of a log, and with it all arithmetic on LSNs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    shift: u32,
}

/// Why a segment size was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// Use a power of two from 64 KiB to 4 GiB.
    #[error(
        "segment size of {segment_bytes} bytes: use a power of two from 65536 (64 KiB) to 4294967296 (4 GiB)"
    )]
    SegmentBytes {
        /// The size asked for.
        segment_bytes: u64,
    },
}

impl Geometry {
    /// The geometry of a log with segments of this size.
    ///
    /// # Errors
    ///
    /// [`GeometryError::SegmentBytes`] unless the size is a power of two from 64 KiB to 4 GiB.
    pub fn new(segment_bytes: u64) -> Result<Geometry, GeometryError> {
        let fits = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
        if !fits || !segment_bytes.is_power_of_two() {
            return Err(GeometryError::SegmentBytes { segment_bytes });
        }
        Ok(Geometry { shift: segment_bytes.trailing_zeros() })
    }

    /// The size of a segment in bytes, its header included.
    #[must_use]
    #[inline]
    pub fn segment_bytes(self) -> u64 {
        1 << self.shift
    }

    /// The number of the segment that holds `lsn`.
    #[must_use]
    #[inline]
    pub fn segment_of(self, lsn: Lsn) -> u64 {
        lsn.0 >> self.shift
    }

    /// Where in its segment `lsn` lies.
    #[must_use]
    #[inline]
    pub fn offset_of(self, lsn: Lsn) -> u64 {
        lsn.0 & (self.segment_bytes() - 1)
    }

    /// The first LSN of a segment, its header's: what the segment's file is named by.
    #[must_use]
    #[inline]
    pub fn base(self, segment: u64) -> Lsn {
        Lsn(segment << self.shift)
    }

    /// The first LSN of a segment that can hold a record.
    #[must_use]
    #[inline]
    pub fn first_record(self, segment: u64) -> Lsn {
        Lsn((segment << self.shift) + SEGMENT_HEADER_BYTES)
    }

    /// The bytes of a record with a payload of this length: header, payload, and zeros up to the alignment.
    #[must_use]
    #[inline]
    pub const fn record_bytes(payload_bytes: u64) -> u64 {
        (HEADER_BYTES + payload_bytes).next_multiple_of(RECORD_ALIGN)
    }

    /// The longest payload of a record: it fits a segment behind the header page, the segment-start record and its own
    /// header. A published constant of the configuration, always below 4 GiB.
    #[must_use]
    #[inline]
    pub fn payload_bytes_max(self) -> u64 {
        self.segment_bytes() - SEGMENT_HEADER_BYTES - SEGMENT_START_BYTES - HEADER_BYTES
    }

    /// Whether `lsn` is the place of a segment's first record, which is always its segment-start record.
    #[must_use]
    #[inline]
    pub fn is_first_record(self, lsn: Lsn) -> bool {
        self.offset_of(lsn) == SEGMENT_HEADER_BYTES
    }

    /// The one LSN of a position (R-1): a position in a segment's header page, at its end, or so close to its end that no
    /// record header fits is the first record LSN of the segment that follows or holds it.
    #[must_use]
    #[inline]
    pub fn normalize(self, lsn: Lsn) -> Lsn {
        let offset = self.offset_of(lsn);
        let segment = self.segment_of(lsn);
        if offset < SEGMENT_HEADER_BYTES {
            self.first_record(segment)
        } else if self.segment_bytes() - offset < HEADER_BYTES && segment < u64::MAX >> self.shift {
            self.first_record(segment + 1)
        } else {
            lsn
        }
    }

    /// Whether a record can start at `lsn`: it is aligned, and the name of its position (R-1).
    #[must_use]
    #[inline]
    pub fn is_position(self, lsn: Lsn) -> bool {
        lsn.0.is_multiple_of(RECORD_ALIGN) && self.normalize(lsn) == lsn
    }

    /// Where the record behind one at `lsn` of `record_bytes` bytes starts.
    ///
    /// # Panics
    ///
    /// If the record would straddle its segment's end.
    #[must_use]
    #[inline]
    pub fn record_end(self, lsn: Lsn, record_bytes: u64) -> Lsn {
        assert!(
            record_bytes <= self.room(lsn),
            "a record of {record_bytes} bytes at LSN {lsn} straddles its segment"
        );
        if crate::planted!(R1) {
            return Lsn(lsn.0 + record_bytes);
        }
        self.normalize(Lsn(lsn.0 + record_bytes))
    }

    /// Bytes from `lsn` to the end of its segment.
    #[must_use]
    #[inline]
    pub fn room(self, lsn: Lsn) -> u64 {
        self.segment_bytes() - self.offset_of(lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsn_at_the_top_of_the_number_range_stays_there() {
        for size in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let g = Geometry::new(size).unwrap();
            for lsn in [u64::MAX, u64::MAX - 7, u64::MAX - 31] {
                assert_eq!(g.normalize(Lsn(lsn)), Lsn(lsn));
            }
            assert!(g.normalize(Lsn(1 << 63)) > Lsn(1 << 63));
        }
    }

    #[test]
    fn a_record_starts_at_positions_alone() {
        let g = Geometry::new(SEGMENT_BYTES_MIN).unwrap();
        for good in [4096, 4104, SEGMENT_BYTES_MIN - 32, SEGMENT_BYTES_MIN + 4096] {
            assert!(g.is_position(Lsn(good)), "{good}");
        }
        for bad in [0, 4088, 4097, 4100, SEGMENT_BYTES_MIN - 24, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN + 8] {
            assert!(!g.is_position(Lsn(bad)), "{bad}");
        }
    }

    #[test]
    fn only_powers_of_two_within_the_range_are_segment_sizes() {
        for bad in [0, 1, 4096, SEGMENT_BYTES_MIN - 1, SEGMENT_BYTES_MIN * 3, SEGMENT_BYTES_MAX * 2, u64::MAX]
        {
            assert_eq!(Geometry::new(bad), Err(GeometryError::SegmentBytes { segment_bytes: bad }));
        }
        for good in [SEGMENT_BYTES_MIN, 64 << 20, SEGMENT_BYTES_MAX] {
            assert_eq!(Geometry::new(good).unwrap().segment_bytes(), good);
        }
    }

    #[test]
    fn one_position_has_one_lsn_at_segment_ends() {
        for size in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let g = Geometry::new(size).unwrap();
            for segment in [0, 1, 5, (1 << 40) / size] {
                let next = g.first_record(segment + 1);
                for back in 0..HEADER_BYTES {
                    assert_eq!(g.normalize(Lsn(g.base(segment + 1).0 - back)), next);
                }
                let last = Lsn(g.base(segment + 1).0 - HEADER_BYTES);
                assert_eq!(g.normalize(last), last);
                assert_eq!(g.record_end(last, HEADER_BYTES), next);
                assert_eq!(g.segment_of(last), segment);
            }
        }
    }
}
