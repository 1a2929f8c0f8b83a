//! The software provider of the windlass fabric: one-sided operations executed by the passive side's agent over TCP
//! (DESIGN.md section 7.2).
//!
//! # The tour
//!
//! [`TcpFabric::open`] listens ([`Options`]). Each connection has two sockets, one for each direction of requests. The end that requests
//! writes to its socket and reads the answers from it on the thread that posts and polls; at the other end an *agent*, one thread per
//! connection, carries the requests out and answers, so that the passive engine has no part in it.
//!
//! ```text
//!    end A                                                  end B
//!    post, poll ── requester ══ socket 1 ══▶ agent of B ──▶ memory of B, receives of B
//!    memory, receives of A ◀── agent of A ◀══ socket 2 ══ requester ── post, poll
//! ```
//!
//! Before anything else each socket proves, both ways, that both ends know the group's secret ([`auth`]). What comes after is cut into
//! checked frames ([`frame`]); what is no frame closes the connection with one log line.
//!
//! Invariants:
//! 1. Nothing outside a grant in force is touched for a peer; a completed invalidation or a destroyed connection has
//!    ended all landing through it.
//! 2. Nothing is allocated by a length that came from a peer.
//! 3. Every wait ends: connecting, proving, unanswered requests and receivers that are not ready all have their time.
#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slog::Logger;
use windlass_fabric::{
    Access, AllocateError, Capabilities, CompletionQueueError, ConnectionId, ConnectionOptions, CreateError,
    Fabric, Memory, RegisterError, Transfer,
};

mod agent;
pub mod auth;
mod connection;
mod dial;
mod domain;
mod endpoint;
pub mod frame;
mod link;
mod listener;
mod options;
mod queue;
mod ration;
mod requester;
mod signal;
mod socket;
mod spin;

pub use connection::TcpConnection;
pub use domain::{TcpRegion, TcpWindow};
pub use options::{OpenError, Options};
pub use queue::{TcpCompletionQueue, TcpWaker};
pub use ration::Ration;

use crate::domain::{Domain, KEYS_MAX, lock};
use crate::endpoint::{Endpoint, TOKEN_BYTES, Token};
use crate::link::Link;
use crate::listener::Acceptor;
use crate::queue::QueueShared;
use crate::requester::Requester;

const DEPTH_MAX: u32 = 1 << 14;
const COMPLETIONS_MAX: u32 = 1 << 20;
const INLINE_BYTES_MAX: u32 = 4096;

/// A fabric over TCP. Dropping it stops listening once its last connection is gone.
#[derive(Debug)]
pub struct TcpFabric {
    domain: Arc<Domain>,
    acceptor: Arc<Acceptor>,
    address: std::net::SocketAddr,
    capabilities: Capabilities,
}

impl TcpFabric {
    /// Opens a fabric and listens. Log lines go to `logger`.
    ///
    /// # Errors
    /// [`OpenError`], with the remedy per variant.
    pub fn open(options: Options, logger: Logger) -> Result<Self, OpenError> {
        let options = options.bounded();
        let listen = |source| OpenError::Listen { address: options.bind, source };
        let listener = TcpListener::bind(options.bind).map_err(listen)?;
        let listening = listener.local_addr().map_err(listen)?;
        let mut address = options.advertise.unwrap_or(listening);
        if address.ip().is_unspecified() {
            return Err(OpenError::AdvertiseWanted { address });
        }
        if address.port() == 0 {
            address.set_port(listening.port());
        }
        let windows = !options.no_windows;
        let domain = Arc::new(Domain::new(options, logger));
        let acceptor = Acceptor::start(listener, Arc::clone(&domain))
            .map_err(|source| OpenError::Os { call: "starting to listen", source })?;
        let capabilities = Capabilities {
            provider: "tcp",
            windows,
            transfer: Transfer::Any,
            staged_image: false,
            immediate: true,
            message_bytes_max: frame::MESSAGE_BYTES_MAX,
            region_bytes_max: u64::MAX,
            window_bytes_max: u64::MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            send_depth_max: DEPTH_MAX,
            receive_depth_max: DEPTH_MAX,
            reads_in_flight_max: DEPTH_MAX,
            completions_max: COMPLETIONS_MAX,
        };
        Ok(Self { domain, acceptor: Arc::new(acceptor), address, capabilities })
    }

    /// The address that peers dial.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }
}

impl Fabric for TcpFabric {
    type Region = TcpRegion;
    type Window = TcpWindow;
    type CompletionQueue = TcpCompletionQueue;
    type Connection = TcpConnection;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&self, memory: Arc<dyn Memory>, access: Access) -> Result<TcpRegion, RegisterError> {
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::AccessCombination);
        }
        TcpRegion::new(&self.domain, memory, access).ok_or(RegisterError::TooMany { regions_max: KEYS_MAX })
    }

    fn allocate_window(&self) -> Result<TcpWindow, AllocateError> {
        if !self.capabilities.windows {
            return Err(AllocateError::NotSupported);
        }
        TcpWindow::new(&self.domain).ok_or(AllocateError::TooMany { windows_max: KEYS_MAX })
    }

    fn completion_queue(&self, capacity: u32) -> Result<TcpCompletionQueue, CompletionQueueError> {
        if !(1..=COMPLETIONS_MAX).contains(&capacity) {
            return Err(CompletionQueueError::Capacity { capacity, capacity_max: COMPLETIONS_MAX });
        }
        let shared = QueueShared::new(capacity)
            .map_err(|source| CompletionQueueError::Os { call: "eventfd", source })?;
        Ok(TcpCompletionQueue::new(shared, self.domain.options.spin))
    }

    fn connection(
        &self,
        queue: &TcpCompletionQueue,
        options: &ConnectionOptions,
    ) -> Result<TcpConnection, CreateError> {
        let in_range = |option, value, min, max| {
            if (min..=max).contains(&value) {
                usize::try_from(value).map_err(|_| CreateError::Option { option, value, min, max })
            } else {
                Err(CreateError::Option { option, value, min, max })
            }
        };
        let send_depth = in_range("send_depth", options.send_depth, 1, DEPTH_MAX)?;
        let receive_depth = in_range("receive_depth", options.receive_depth, 0, DEPTH_MAX)?;
        let inline_bytes = in_range("inline_bytes", options.inline_bytes, 0, INLINE_BYTES_MAX)?;
        let token = token()
            .map_err(|error| CreateError::Os { call: "getrandom", source: std::io::Error::other(error) })?;
        let needed = options.send_depth + options.receive_depth;
        queue.shared.reserve(needed).map_err(|left| CreateError::QueueTooSmall { needed, left })?;
        let id = ConnectionId(self.domain.connections.fetch_add(1, Ordering::Relaxed) + 1);
        let link = Arc::new(Link::new(
            id,
            token,
            *options,
            Arc::clone(&self.domain),
            Arc::clone(&queue.shared),
            self.domain.logger.new(slog::o!("connection" => id.0)),
            Requester::new(send_depth, inline_bytes),
            receive_depth,
        ));
        lock(&self.domain.links).insert(token, Arc::downgrade(&link));
        queue.shared.add(Arc::clone(&link));
        let endpoint = Endpoint { address: self.address, token };
        Ok(TcpConnection::new(link, &endpoint, Arc::clone(&self.acceptor)))
    }
}

fn token() -> Result<Token, getrandom::Error> {
    let mut token = [0; TOKEN_BYTES];
    getrandom::fill(&mut token)?;
    Ok(token)
}
