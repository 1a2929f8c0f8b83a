//! Ordered reliable connections.

use std::ops::Range;

use crate::capability::{Access, Transfer};
use crate::error::{BindError, ConnectError, InvalidateError, PostError};
use crate::provider::{Region, Window};
use crate::request::{Receive, RemoteRange, Request};

/// Names a connection in its completions. Never reused while its [`Fabric`](crate::Fabric) lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// No connection; providers number from 1.
    pub const NONE: Self = Self(0);
}

/// What a connection is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Slots of the send queue: requests, binds and invalidations posted and not yet given back. At least 1.
    pub send_depth: u32,
    /// Slots of the receive queue.
    pub receive_depth: u32,
    /// Longest [`Source::Inline`](crate::Source) payload, in bytes.
    pub inline_bytes: u32,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self { send_depth: 128, receive_depth: 128, inline_bytes: 64 }
    }
}

/// Where a connection stands. States only go forward, in the order given here.
///
/// The handshake, with the endpoints and the two words carried by the caller's control plane:
///
/// ```text
///   A                                            B
///   create (Initial), post receives              create (Initial), post receives
///   endpoint() ───────────── A's endpoint ─────▶ connect(A's) → Connecting → Ready
///   connect(B's)      ◀───── B's endpoint ────── endpoint()
///   → Connecting → Ready ─── "ready" ──────────▶ may post once Ready itself
///   may post once Ready itself ◀──── "ready" ───
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Made; receives may be posted. Ends with [`Connection::connect`].
    Initial,
    /// `connect` was called and the provider is at work; go on polling.
    Connecting,
    /// This end receives and is able to send. Whether the peer is ready to receive is the peer's word, which the caller's
    /// control plane carries: post no request before it.
    Ready,
    /// Over. All that was posted completes; nothing more can be posted. There is no way back: destroy and make a new one.
    Error(ErrorCause),
}

/// What moved a connection to error: the first cause alone is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCause {
    /// A request of this end failed; its completion says how.
    RequestFailed,
    /// The peer asked for what it may not, and was refused.
    PeerRefused,
    /// The peer closed, died or no longer answers.
    PeerGone,
    /// The peer could not be reached, or failed to prove who it is, while connecting.
    ConnectFailed,
    /// The peer broke the provider's own protocol.
    PeerBroken,
    /// [`Connection::close`] was called.
    Closed,
    /// The device is gone, or its port down.
    Device,
}

/// What has been posted and not yet been given back by polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Slots of the send queue in use.
    pub sends: u32,
    /// Slots of the receive queue in use.
    pub receives: u32,
}

/// What a connection has posted since it was made: the price of what was sent. Counts only go up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Chains that were handed to the device (or sent), one doorbell each, however long. A bind or an invalidation is a chain of one.
    pub doorbells: u64,
    /// Requests in them.
    pub requests: u64,
    /// Those among the requests whose success makes a completion.
    pub signalled: u64,
    /// Payload bytes that this end's processor copied while posting: of a device, what was [`Source::Inline`](crate::Source::Inline).
    pub copied_bytes: u64,
}

impl Counters {
    /// Counts the posted part of a chain, as a device does it: one doorbell, and only inline payloads copied.
    pub fn count<R>(&mut self, posted: &[Request<'_, R>]) {
        self.doorbells += u64::from(!posted.is_empty());
        for request in posted {
            self.requests += 1;
            self.signalled += u64::from(request.signalled);
            self.copied_bytes += request.operation.inline_bytes();
        }
    }

    /// What was posted between an earlier moment of the same connection and this one.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            doorbells: self.doorbells - before.doorbells,
            requests: self.requests - before.requests,
            signalled: self.signalled - before.signalled,
            copied_bytes: self.copied_bytes - before.copied_bytes,
        }
    }

    /// Counts a signalled request posted by itself without a payload: a bind, an invalidation.
    pub const fn count_one(&mut self) {
        self.doorbells += 1;
        self.requests += 1;
        self.signalled += 1;
    }
}

/// An ordered reliable connection: one queue of requests, one of receives.
///
/// Dropping it is [`destroy`](Self::destroy).
pub trait Connection: Send + 'static {
    /// The provider's regions.
    type Region: Region;
    /// The provider's windows.
    type Window: Window;

    /// Its name in completions.
    fn id(&self) -> ConnectionId;

    /// What the peer's [`connect`](Self::connect) needs: opaque bytes, to be carried by the control plane. At most 256. The same
    /// at each call. They may hold what only the peer should know: carry them over an authenticated channel.
    fn endpoint(&self) -> &[u8];

    /// Begins to connect to the peer with that endpoint: `Initial` → `Connecting`, then or at once → `Ready` or `Error`. Never
    /// waits for the peer; progress is made by polling the completion queue, whose `wait` also ends when the state changes.
    ///
    /// # Errors
    /// [`ConnectError::Endpoint`]: not an endpoint of this provider (and version). [`ConnectError::State`]: not `Initial`.
    /// [`ConnectError::Os`]: the system refused. In each case the connection is as before.
    fn connect(&mut self, peer: &[u8]) -> Result<(), ConnectError>;

    /// Where it stands, as far as polling has found out.
    fn state(&self) -> ConnectionState;

    /// What has been posted and not yet given back. After [`close`](Self::close), or in `Error`, both fall to zero by polling: then
    /// the connection is drained.
    fn outstanding(&self) -> Outstanding;

    /// Which transfers between mapped files of the two ends are right: those that both ends' devices can do
    /// ([`Capabilities::transfer`](crate::Capabilities)). Before [`connect`](Self::connect) it is this end's own word.
    ///
    /// Memory that is not a mapped file takes any transfer. A provider refuses a source or target of this end that breaks it
    /// ([`PostProblem::NotWholePages`](crate::PostProblem)); the place in the peer's memory is the caller's to keep right.
    fn transfer(&self) -> Transfer;

    /// What it has posted since it was made.
    fn counters(&self) -> Counters;

    /// Posts a chain of requests with one doorbell, in order. Does not wait, does not allocate.
    ///
    /// In [`ConnectionState::Error`] posting is refused. An empty chain does nothing.
    ///
    /// # Errors
    /// [`PostError`] says how many were posted (always the first ones) and why the next was not. A chain that does not fit in the
    /// send queue ([`PostProblem::QueueFull`](crate::PostProblem)) is refused whole: poll, then post again.
    fn post(&mut self, chain: &[Request<'_, Self::Region>]) -> Result<(), PostError>;

    /// Posts receives, in order. Allowed in `Initial` too. Does not wait, does not allocate.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    fn post_receives(&mut self, receives: &[Receive<'_, Self::Region>]) -> Result<(), PostError>;

    /// Posts a bind: opens `range` of `region` through `window` to the peer of this connection, and to no other. Signalled: completes as
    /// [`Opcode::Bind`](crate::Opcode). The returned range may be given to the peer after that completion has come with success.
    ///
    /// Each bind has a new key; the keys before it stay dead.
    ///
    /// # Errors
    /// [`BindError`] with the remedy per variant; nothing was posted. [`BindProblem::KeysExhausted`](crate::BindProblem): drop the
    /// window and allocate another.
    ///
    /// # Panics
    /// If the window or the region is another fabric's, where that would be no memory of the provider's own.
    fn bind(
        &mut self,
        id: u64,
        window: &mut Self::Window,
        region: &Self::Region,
        range: Range<u64>,
        access: Access,
    ) -> Result<RemoteRange, BindError>;

    /// Posts an invalidation: takes the window back from the peer. Signalled: completes as [`Opcode::Invalidate`](crate::Opcode).
    /// The window can be bound again at once (the bind is executed after).
    ///
    /// With its *successful* completion no request passes through the window any more. With `tcp` and simulated fabrics no byte of an
    /// earlier one lands either; real devices may go on placing a long message that had begun, so before the tail is read the
    /// connection is to be closed, drained and destroyed on every provider. Completed as `Flushed` it proves nothing: drop the window, destroy the
    /// connection.
    ///
    /// # Errors
    /// [`InvalidateError`]; nothing was posted.
    fn invalidate(&mut self, id: u64, window: &mut Self::Window) -> Result<(), InvalidateError>;

    /// Moves the connection to `Error(Closed)` (if it is not in error yet): everything outstanding completes as `Flushed`, or with its
    /// real result, also what was not signalled. Does not wait.
    fn close(&mut self);

    /// Ends the connection. When it returns, no byte lands or leaves any more on its behalf, its windows open nothing, and none
    /// of its completions will be polled. Waits as long as the fabric needs for that (bounded), never for the peer.
    fn destroy(self);
}
