//! Who a log is, who its members are, and whose tenure an append belongs to.

use core::fmt;

/// A member's number in its group, 0 to 255. It is the low byte of every [`Epoch`] that the member owns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u8);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// One primary's tenure: a counter in the high 56 bits and, in the low 8, the member that owns it.
///
/// No two members can share an epoch (R-7, DESIGN.md section 11). Epochs are ordered by counter, then by member.
/// [`Epoch::NONE`] precedes every tenure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch before any tenure; no record carries it.
    pub const NONE: Epoch = Epoch(0);

    /// The epoch of `member` with this counter.
    ///
    /// # Panics
    ///
    /// If `counter` is zero or does not fit 56 bits.
    #[must_use]
    pub fn new(counter: u64, member: MemberId) -> Epoch {
        assert!(counter > 0 && counter < 1 << 56, "epoch counter {counter} is outside 1..2^56");
        Epoch(counter << 8 | u64::from(member.0))
    }

    /// The lowest epoch of `member` above `self` whose counter is higher than this one's.
    ///
    /// # Panics
    ///
    /// If the counter is used up (2^56 tenures).
    #[must_use]
    pub fn next_for(self, member: MemberId) -> Epoch {
        Epoch::new(self.counter() + 1, member)
    }

    /// The counter, 1 and up; 0 for [`Epoch::NONE`].
    #[must_use]
    pub fn counter(self) -> u64 {
        self.0 >> 8
    }

    /// The member that owns this tenure.
    #[must_use]
    pub fn member(self) -> MemberId {
        MemberId(self.0.to_le_bytes()[0])
    }

    /// The number as it is stored on disk and sent to peers.
    #[must_use]
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The epoch with this stored number. Any number is accepted: it may come from a disk or a peer.
    #[must_use]
    #[inline]
    pub fn from_bits(bits: u64) -> Epoch {
        Epoch(bits)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.{}", self.counter(), self.member())
    }
}

/// The identity of a log, random, made once for a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogId(pub [u8; 16]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn epochs_of_two_members_never_meet() {
        let first = Epoch::NONE.next_for(MemberId(1));
        let second = Epoch::NONE.next_for(MemberId(2));
        assert_ne!(first, second);
        assert!(first.next_for(MemberId(0)) > second);
        assert_eq!(second.member(), MemberId(2));
        assert_eq!(second.to_string(), "e1.m2");
        assert_eq!(Epoch::from_bits(second.to_bits()), second);
    }
}
