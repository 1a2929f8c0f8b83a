//! What a provider can do, and what a registration allows.

use std::ops::BitOr;

/// What a region or a window lets be done to it; a set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Only a source of this end's own requests.
    pub const NONE: Self = Self(0);
    /// This end's receives and reads may place bytes in it. Remote writing needs it too.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(2);
    /// Peers may write. A region with this needs [`LOCAL_WRITE`](Self::LOCAL_WRITE).
    pub const REMOTE_WRITE: Self = Self(4);
    /// Windows may be bound over the region. (For a region alone.) Its windows may let peers read, and, with
    /// [`LOCAL_WRITE`](Self::LOCAL_WRITE), write: the remote flags of the region itself speak only of the region's own key, which
    /// no window takes back. Where there are windows leave them out.
    pub const WINDOW_BIND: Self = Self(8);

    /// The flags of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The set as bits, for messages between two ends of one provider.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which transfers into and out of a mapped file land right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Any offset, any length.
    Any,
    /// Only whole pages at page boundaries, at both ends: some on-demand paging misplaces everything else.
    /// Memory that is not a mapped file ([`Backing::Anonymous`](crate::Backing)) takes any transfer.
    WholePages {
        /// Bytes of the page; a power of two.
        page_bytes: u32,
    },
}

impl Transfer {
    /// The transfers that are right for both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, both) | (both, Self::Any) => both,
            (Self::WholePages { page_bytes: one }, Self::WholePages { page_bytes: two }) => {
                Self::WholePages { page_bytes: if one > two { one } else { two } }
            }
        }
    }

    /// Whether a transfer of `bytes` at `offset` of a mapped file is one of them.
    #[must_use]
    pub const fn allows(self, offset: u64, bytes: u64) -> bool {
        match self {
            Self::Any => true,
            Self::WholePages { page_bytes } => {
                offset.is_multiple_of(page_bytes as u64) && bytes.is_multiple_of(page_bytes as u64)
            }
        }
    }
}

/// What a provider, as opened, can do. Constant over its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the provider: `tcp`, `verbs`, `sim`.
    pub provider: &'static str,
    /// Type-2 windows can be allocated. Where not, revoke by destroying the connection and dropping the region, and
    /// hand out [`Region::remote`](crate::Region::remote).
    pub windows: bool,
    /// Which transfers with this end's mapped files are right. What holds between two ends is
    /// [`Connection::transfer`](crate::Connection::transfer).
    pub transfer: Transfer,
    /// Mapped files cannot be registered for remote writing: register a pinned image of the live segment instead. They can still be
    /// registered without local writing and windows, to send from.
    pub staged_image: bool,
    /// Write with immediate is there. Where not, a send carries the notice.
    pub immediate: bool,
    /// Largest single write, read or send, in bytes.
    pub message_bytes_max: u32,
    /// Largest region, in bytes.
    pub region_bytes_max: u64,
    /// Largest stretch of one window, in bytes.
    pub window_bytes_max: u64,
    /// Largest inline payload that a connection can be asked for, in bytes; may be 0.
    pub inline_bytes_max: u32,
    /// Deepest send queue, in requests.
    pub send_depth_max: u32,
    /// Deepest receive queue, in receives.
    pub receive_depth_max: u32,
    /// Most reads of one connection under way at once; more wait their turn in the queue.
    pub reads_in_flight_max: u32,
    /// Largest completion queue, in completions.
    pub completions_max: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_do_what_both_can() {
        let (small, large) =
            (Transfer::WholePages { page_bytes: 4096 }, Transfer::WholePages { page_bytes: 16384 });
        assert_eq!(Transfer::Any.and(Transfer::Any), Transfer::Any);
        assert_eq!(Transfer::Any.and(small), small);
        assert_eq!(large.and(Transfer::Any), large);
        assert_eq!(large.and(small), large);
        assert_eq!(small.and(large), large);
    }

    #[test]
    fn whole_pages_begin_and_end_at_pages() {
        let pages = Transfer::WholePages { page_bytes: 4096 };
        assert!(pages.allows(8192, 4096) && pages.allows(0, 0));
        assert!(!pages.allows(8192, 4095) && !pages.allows(8193, 4096));
        assert!(Transfer::Any.allows(1, 1));
    }
}
