//! One error per operation.

use std::io;

use crate::connection::ConnectionState;

/// Memory was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Remote writing without local writing. Remedy: add [`Access::LOCAL_WRITE`](crate::Access).
    #[error("remote write access needs local write access too")]
    AccessCombination,
    /// Longer than the provider can register. Remedy: several regions.
    #[error("{bytes} bytes are more than a region's {bytes_max}")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The longest possible.
        bytes_max: u64,
    },
    /// The memory has no address that a device could use. Remedy: other memory, or the `tcp` provider.
    #[error("the memory has no address for a device")]
    NoAddress,
    /// A mapped file on a provider that asks for a staged image. Remedy: register a pinned image.
    #[error(
        "this device cannot write to a mapped file: register a staged image (Capabilities::staged_image)"
    )]
    StagedImageWanted,
    /// Pinning would pass the limit. Remedy: raise `ulimit -l`, or `LimitMEMLOCK` of the service.
    #[error("pinning {bytes} bytes passes the limit of {limit_bytes} (ulimit -l, LimitMEMLOCK=)")]
    MemoryLockLimit {
        /// What was to be pinned.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The provider holds no more regions. Remedy: drop some.
    #[error("no more than {regions_max} regions")]
    TooMany {
        /// The most.
        regions_max: u32,
    },
    /// The system refused.
    #[error("{call} of {bytes} bytes: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// The length.
        bytes: u64,
        /// Its answer.
        source: io::Error,
    },
}

/// No window was allocated.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// The device has no type-2 windows. Remedy: revoke by destroying the connection and dropping the region.
    #[error("this device has no type-2 memory windows")]
    NotSupported,
    /// The provider holds no more windows. Remedy: drop some.
    #[error("no more than {windows_max} windows")]
    TooMany {
        /// The most.
        windows_max: u32,
    },
    /// The system refused.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// No completion queue was made.
#[derive(Debug, thiserror::Error)]
pub enum CompletionQueueError {
    /// Zero, or more than [`Capabilities::completions_max`](crate::Capabilities).
    #[error("a completion queue of {capacity}: the range is 1 to {capacity_max}")]
    Capacity {
        /// What was asked for.
        capacity: u32,
        /// The largest possible.
        capacity_max: u32,
    },
    /// The system refused.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// No connection was made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A depth or the inline size is out of the capabilities' range.
    #[error("{option} of {value}: the range is {min} to {max}")]
    Option {
        /// Which of [`ConnectionOptions`](crate::ConnectionOptions).
        option: &'static str,
        /// What was asked for.
        value: u32,
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// The connection's depths don't fit in what is left of the queue. Remedy: a larger queue, or one more.
    #[error("the queue has {left} completions left, the connection needs {needed}")]
    QueueTooSmall {
        /// Send depth and receive depth together.
        needed: u32,
        /// What the queue has left.
        left: u32,
    },
    /// The system refused.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// Connecting did not begin.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Not an endpoint of this provider. Remedy: both ends need the same provider and version.
    #[error("not an endpoint of this provider: {what}")]
    Endpoint {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The path carries less in a packet than a page, which on-demand paging of one of the ends needs
    /// ([`Transfer::WholePages`](crate::Transfer)). Remedy: a larger MTU on both interfaces and what is between them, or staged images.
    #[error(
        "the path MTU is {bytes} bytes, whole pages need {needed_bytes}: raise the interfaces' MTU (ip link set … mtu 9000)"
    )]
    PathMtu {
        /// What the path carries.
        bytes: u32,
        /// What is needed.
        needed_bytes: u32,
    },
    /// Only a connection in `Initial` can be connected. Remedy: make a new one.
    #[error("connect in state {state:?}")]
    State {
        /// Where it stands.
        state: ConnectionState,
    },
    /// The system refused.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// A chain was not, or not wholly, posted.
#[derive(Debug, thiserror::Error)]
#[error("{posted} posted, the next was not: {problem}")]
pub struct PostError {
    /// How many of the chain, from its start, were posted. They will complete; the others will not.
    pub posted: usize,
    /// Why the next was not.
    pub problem: PostProblem,
}

/// Why a request or receive was not posted.
#[derive(Debug, thiserror::Error)]
pub enum PostProblem {
    /// More than the queue has free. Remedy: poll; signal often enough, since unsignalled slots come back with a later signalled one.
    #[error("{asked} asked for, {free} of {depth} slots free")]
    QueueFull {
        /// What the chain needs.
        asked: usize,
        /// What is free.
        free: u32,
        /// The queue's depth.
        depth: u32,
    },
    /// Not in a state to post: requests need `Ready`, receives `Initial`, `Connecting` or `Ready`.
    #[error("the connection is in state {state:?}")]
    State {
        /// Where it stands.
        state: ConnectionState,
    },
    /// The stretch is not inside the region.
    #[error("[{offset}, +{bytes}) is not inside a region of {region_bytes} bytes")]
    OutOfRegion {
        /// From where.
        offset: u64,
        /// How long.
        bytes: u32,
        /// The region's length.
        region_bytes: u64,
    },
    /// The region does not allow to be written.
    #[error("the region is registered without local write access")]
    RegionAccess,
    /// A stretch of a mapped file that the device would misplace. Remedy: transfer whole pages
    /// ([`Connection::transfer`](crate::Connection::transfer)).
    #[error(
        "[{offset}, +{bytes}) of a mapped file: this device transfers whole pages of {page_bytes} bytes alone"
    )]
    NotWholePages {
        /// From where.
        offset: u64,
        /// How long.
        bytes: u32,
        /// The page.
        page_bytes: u32,
    },
    /// More inline bytes than the connection was made for. Remedy: send from a region.
    #[error("{bytes} inline bytes, the connection allows {inline_bytes}")]
    InlineTooLong {
        /// The payload.
        bytes: usize,
        /// [`ConnectionOptions::inline_bytes`](crate::ConnectionOptions).
        inline_bytes: u32,
    },
    /// Longer than [`Capabilities::message_bytes_max`](crate::Capabilities). Remedy: several requests.
    #[error("a message of {bytes} bytes, the most is {bytes_max}")]
    MessageTooLong {
        /// The payload.
        bytes: u32,
        /// The most.
        bytes_max: u32,
    },
    /// The provider has no write with immediate ([`Capabilities::immediate`](crate::Capabilities)).
    #[error("this provider has no write with immediate")]
    NoImmediate,
    /// The system refused.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// A bind was not posted.
#[derive(Debug, thiserror::Error)]
#[error("bind: {problem}")]
pub struct BindError {
    /// Why not.
    pub problem: BindProblem,
}

impl From<BindProblem> for BindError {
    fn from(problem: BindProblem) -> Self {
        Self { problem }
    }
}

/// Why a bind was not posted.
#[derive(Debug, thiserror::Error)]
pub enum BindProblem {
    /// Bound already. Remedy: invalidate first.
    #[error("the window is bound: invalidate it first")]
    StillBound,
    /// Another bind would repeat a key. Remedy: drop the window, allocate another.
    #[error("the window's keys are used up: drop it and allocate another")]
    KeysExhausted,
    /// Empty, not inside the region, or longer than a window can be.
    #[error("[{start}, {end}) of a region of {region_bytes} bytes; a window has 1 to {window_bytes_max}")]
    Range {
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// The region's length.
        region_bytes: u64,
        /// The longest window.
        window_bytes_max: u64,
    },
    /// The region was registered without [`Access::WINDOW_BIND`](crate::Access), or a window that lets peers write lies over a
    /// region without [`Access::LOCAL_WRITE`](crate::Access). The region needs no remote access of its own, and is safer without:
    /// its own key would pass by the window.
    #[error("the region's access does not allow that window")]
    RegionAccess,
    /// No slot, wrong state, or the system refused.
    #[error(transparent)]
    Post(PostProblem),
}

/// An invalidation was not posted.
#[derive(Debug, thiserror::Error)]
pub enum InvalidateError {
    /// The window is not bound.
    #[error("the window is not bound")]
    NotBound,
    /// The window is bound on another connection. Remedy: invalidate there.
    #[error("the window is bound on another connection")]
    OtherConnection,
    /// No slot, wrong state (then drop the window and destroy the connection), or the system refused.
    #[error(transparent)]
    Post(PostProblem),
}

/// Polling or waiting failed.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The device or the queue is unusable. Remedy: destroy all that was made over it and open the fabric again.
    #[error("{call}: {source}")]
    Device {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}
