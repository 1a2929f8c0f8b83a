//! The verbs model as a trait: regions, windows, connections, work requests, completions; and the conformance suite of
//! its providers (DESIGN.md section 7.1).
//!
//! # The tour
//!
//! * A [`Fabric`] is an opened provider: a device and its protection domain. It says what it can do ([`Capabilities`]).
//! * [`Memory`] is bytes that others change under us. [`Fabric::register`] makes it a [`Region`], from and into which
//!   this end's own requests move bytes.
//! * A [`Window`] opens a stretch of a region to one peer. Its owner *binds* it on the connection to that peer
//!   ([`Connection::bind`]) and hands the resulting [`RemoteRange`] over out of band; *invalidating* it
//!   ([`Connection::invalidate`]) takes it back. Both are posted requests with completions.
//! * A [`Connection`] is an ordered reliable pair of queues. Requests ([`Request`]) are posted in chains, one doorbell
//!   each; receives ([`Receive`]) are posted ahead of what consumes them.
//! * Results arrive at a [`CompletionQueue`], which is polled, or waited on and woken from other threads.
//!
//! # What a provider promises
//!
//! 1. Requests of one connection are executed at the peer in the order posted. Between connections there is no order.
//! 2. A successful completion of a write says that the peer's end of the fabric has placed its bytes. It is not
//!    persistence, and for the peer's CPU not visibility: a peer may read the bytes once it has seen the receive
//!    completion of a later write with immediate (or send) on the same connection.
//! 3. A completion that is not a success says nothing about whether bytes have landed.
//! 4. The first failed request moves the connection to [`ConnectionState::Error`]; all others complete after it, in order, as
//!    [`Status::Flushed`].
//! 5. After the successful completion of an invalidation no new request passes through the window; after
//!    [`Connection::destroy`] has returned no byte lands at all on behalf of that connection. Only then may the owner take
//!    what it reads for final.
//! 6. No request allocates while it is posted, executed or completed.
//!
//! Nothing here needs a thread or a clock: a simulated fabric may advance itself inside [`CompletionQueue::poll`].
#![forbid(unsafe_code)]

mod capability;
mod completion;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connection;
mod error;
mod memory;
#[cfg(loom)]
pub mod model;
mod provider;
mod request;

pub use capability::{Access, Capabilities, Transfer};
pub use completion::{Completion, CompletionQueue, Opcode, Status, Wake, Woken};
pub use connection::{
    Connection, ConnectionId, ConnectionOptions, ConnectionState, Counters, ErrorCause, Outstanding,
};
pub use error::{
    AllocateError, BindError, BindProblem, CompletionQueueError, ConnectError, CreateError, InvalidateError,
    PollError, PostError, PostProblem, RegisterError,
};
pub use memory::{Backing, HeapMemory, Memory, PAGE_BYTES, copy_in, copy_out};
pub use provider::{Fabric, Region, Window};
pub use request::{
    Local, Operation, REMOTE_RANGE_BYTES, Receive, Remote, RemoteKey, RemoteRange, Request, Source,
};
