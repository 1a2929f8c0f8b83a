//! The words for how far a member has come: `Placed` and `Persisted` are different types.
//!
//! Mistaking one for the other is the classic defect of this field: a completion at the primary says that bytes are in
//! the peer's memory, never that they are on its medium. No conversion exists between the two.

use windlass_log::Lsn;

/// A half-open range of LSNs, `[start, end)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LsnRange {
    /// The first LSN in the range.
    pub start: Lsn,
    /// The first LSN behind the range.
    pub end: Lsn,
}

impl LsnRange {
    /// The range `[start, end)`.
    ///
    /// # Panics
    ///
    /// If `end` lies before `start`.
    #[must_use]
    pub fn new(start: Lsn, end: Lsn) -> LsnRange {
        assert!(start <= end, "a range that ends ({end}) before it starts ({start})");
        LsnRange { start, end }
    }

    /// Whether the range holds nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Bytes of the logical log from start to end, segment headers included.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.end.0 - self.start.0
    }
}

impl core::fmt::Display for LsnRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// Everything below is in a member's memory, by the word of the NIC that wrote it there. Survives a crash of processes,
/// not a loss of power.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Placed(pub Lsn);

/// Everything below is on a member's medium, by that member's own word: parsed, checksummed and flushed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Persisted(pub Lsn);

impl core::fmt::Display for Placed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "placed {}", self.0)
    }
}

impl core::fmt::Display for Persisted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "persisted {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_range_counts_from_its_start_to_what_lies_behind_it() {
        let range = LsnRange::new(Lsn(4096), Lsn(4096 + 48));
        assert!(!range.is_empty() && range.bytes() == 48);
        assert!(LsnRange::new(Lsn(4096), Lsn(4096)).is_empty());
        assert_eq!(range.to_string(), "[4096, 4144)");
        assert_eq!(Placed(Lsn(40)).to_string(), "placed 40");
        assert_eq!(Persisted(Lsn(48)).to_string(), "persisted 48");
    }

    #[test]
    #[should_panic(expected = "before it starts")]
    fn a_range_does_not_end_before_it_starts() {
        let _ = LsnRange::new(Lsn(48), Lsn(40));
    }
}
