//! How results come back.

use std::time::Duration;

use crate::connection::ConnectionId;
use crate::error::PollError;

/// Which kind of request a completion answers. Meaningful for every status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// [`Operation::Write`](crate::Operation) or [`Operation::WriteImmediate`](crate::Operation).
    Write,
    /// [`Operation::Read`](crate::Operation).
    Read,
    /// [`Operation::Send`](crate::Operation).
    Send,
    /// [`Connection::bind`](crate::Connection::bind).
    Bind,
    /// [`Connection::invalidate`](crate::Connection::invalidate).
    Invalidate,
    /// A receive consumed by the peer's send; also every receive that failed or was flushed.
    Receive,
    /// A receive consumed by the peer's write with immediate.
    ReceiveWrite,
}

impl Opcode {
    /// Whether it answers a posted receive (and not a request of the send queue).
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWrite)
    }
}

/// How a request ended. Everything but `Success` leaves open whether its bytes have landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done; see the crate docs for what that promises per operation.
    Success,
    /// The peer's fabric refused: no such key, key of another connection, revoked, out of its range, or not that access.
    /// Both ends' connections are in error.
    RemoteAccess,
    /// The peer had no receive posted, also after the provider's retries.
    ReceiverNotReady,
    /// The peer refused the request's form: a send longer than the receive's buffer (some devices say `RemoteFailure`), an
    /// operation it does not serve.
    RemoteInvalid,
    /// The peer's fabric could not carry the request out.
    RemoteFailure,
    /// This end's region does not allow it, or no longer covers it; or an incoming send was longer than this receive's buffer.
    LocalAccess,
    /// The bind was refused: window, region or range don't allow it.
    BindRefused,
    /// The connection went to error first; nothing is known of this request.
    Flushed,
    /// The peer no longer answers, or has closed.
    PeerGone,
    /// Something else, by the provider's own number: the device is at fault, or the peer.
    Fault {
        /// The provider's number (for verbs `ibv_wc_status`).
        code: u32,
    },
}

impl Status {
    /// Whether it is `Success`.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

/// One result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The id given when it was posted.
    pub id: u64,
    /// The connection it was posted on.
    pub connection: ConnectionId,
    /// What kind of request.
    pub opcode: Opcode,
    /// How it ended.
    pub status: Status,
    /// Bytes received (by a receive) or read (by a read); otherwise 0. Only with `Success`.
    pub bytes: u32,
    /// The immediate, in a receive's successful completion.
    pub immediate: Option<u32>,
}

impl Completion {
    /// Fills a buffer before [`CompletionQueue::poll`] overwrites it; answers nothing.
    pub const BLANK: Self = Self {
        id: 0,
        connection: ConnectionId::NONE,
        opcode: Opcode::Send,
        status: Status::Flushed,
        bytes: 0,
        immediate: None,
    };
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There may be completions or a changed connection state: poll. May be false.
    Ready,
    /// A waker was used since the last wait.
    Wake,
    /// The timeout has passed.
    Timeout,
}

/// Ends a wait from another thread.
pub trait Wake: Clone + Send + Sync + 'static {
    /// Ends the wait under way, or else the next one at once. Wakes are not counted. Everything the caller did before is visible to
    /// the thread that was woken. Costs no system call while nobody waits.
    fn wake(&self);
}

/// Where completions of the connections made over it arrive. Used by one thread at a time.
pub trait CompletionQueue: Send + 'static {
    /// What other threads hold to end a wait.
    type Waker: Wake;

    /// Moves up to `into.len()` completions to the front of `into`, oldest first, and says how many. Never waits. This is also
    /// where a provider does its work on the caller's thread.
    ///
    /// Completions of one connection's send queue are in the order posted, as are those of its receive queue; nothing
    /// else about order is promised. None of a destroyed connection appears. Slots of a connection are given back here.
    ///
    /// # Errors
    /// [`PollError::Device`]: the queue is unusable, destroy everything made over it and open the fabric again.
    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError>;

    /// Waits until there is something to poll, a connection changed its state, a waker was used, or `timeout` has passed. Providers
    /// that spin first do it in here.
    ///
    /// No wake-up is lost: what arrived after the last [`poll`](Self::poll) ends the wait. A simulated fabric need not wait at all.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    fn wait(&mut self, timeout: Duration) -> Result<Woken, PollError>;

    /// A waker for this queue.
    fn waker(&self) -> Self::Waker;
}
