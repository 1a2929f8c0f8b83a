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

/// What a provider, as opened, can do. Constant over its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the provider: `tcp`, `verbs`, `sim`.
    pub provider: &'static str,
    /// Type-2 windows can be allocated. Where not, revoke by destroying the connection and dropping the region, and
    /// hand out [`Region::remote`](crate::Region::remote).
    pub windows: bool,
    /// Which transfers with a mapped file are right.
    pub transfer: Transfer,
    /// Mapped files cannot be registered for remote writing: register a pinned image of the live segment instead.
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
