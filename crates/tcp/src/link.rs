//! One end of one connection, as its handle, the completion queue, the acceptor and the agent share it.
//!
//! Locks, in the order they may be taken: `requester`, then `incoming`, `grants`, `receives`, then the queue's. Whoever holds `serving` takes
//! neither `requester` nor `incoming`; nobody but the agent's thread waits for it.

use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slog::Logger;
use windlass_fabric::{Access, Completion, ConnectionId, ConnectionOptions, Opcode, Status};

use crate::agent::{self, Agent};
use crate::domain::{Domain, RegionInner, lock, reading, writing};
use crate::endpoint::Token;
use crate::queue::{QueueShared, Ready};
use crate::requester::Requester;

/// Of how many keys that were taken back it is known: a request that names one of these was under way.
const TAKEN_BACK_KNOWN: usize = 64;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: ConnectionId,
    pub(crate) token: Token,
    pub(crate) options: ConnectionOptions,
    pub(crate) domain: Arc<Domain>,
    pub(crate) queue: Arc<QueueShared>,
    pub(crate) logger: Logger,
    pub(crate) requester: Mutex<Requester>,
    /// Slots not yet given back.
    pub(crate) sends_used: AtomicU32,
    pub(crate) receives_used: AtomicU32,
    /// Look at the requester's socket although nothing is outstanding.
    pub(crate) look: AtomicBool,
    incoming: Mutex<Incoming>,
    /// The passive side's state, once the peer's socket is here: who holds this serves the peer.
    pub(crate) serving: Mutex<Option<Agent>>,
    /// The queue's owner may serve the peer.
    pub(crate) lent: AtomicBool,
    /// The agent's thread is to take the socket back.
    pub(crate) take_back: AtomicBool,
    /// The agent is at work.
    pub(crate) attached: AtomicBool,
    agent_end: Mutex<Option<AgentEnd>>,
    pub(crate) agent_ended: AtomicBool,
    grants: RwLock<Grants>,
    receives: Mutex<Receives>,
    receive_posted: Condvar,
}

/// How the passive side of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentEnd {
    /// The peer closed, or no longer answers.
    Gone,
    /// The peer was refused.
    Refused,
    /// The peer broke the protocol.
    Broken,
}

#[derive(Debug, Default)]
struct Incoming {
    expected: Option<Token>,
    parked: Option<(Token, TcpStream, SocketAddr)>,
    socket: Option<Arc<TcpStream>>,
    agent: Option<JoinHandle<()>>,
    closed: bool,
}

/// What the peer may touch.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    closed: bool,
    list: Vec<Grant>,
    /// The keys of those that were taken back last, oldest first.
    taken_back: VecDeque<u32>,
}

#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) key: u32,
    pub(crate) region: Arc<RegionInner>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) access: Access,
}

impl Grants {
    /// Runs `use_it` on the region if `key` opens `[offset, +bytes)` of it for `access`. Holding the guard of these grants while `use_it` copies is
    /// what makes a revocation exact.
    pub(crate) fn open<T>(
        &self,
        domain: &Domain,
        key: u32,
        access: Access,
        offset: u64,
        bytes: u32,
        use_it: impl FnOnce(&RegionInner) -> Option<T>,
    ) -> Option<T> {
        if self.closed {
            return None;
        }
        if let Some(grant) = self.list.iter().find(|grant| grant.key == key) {
            let fits = RegionInner::inside(offset, bytes, grant.start, grant.end);
            return if fits && grant.access.contains(access) { use_it(&grant.region) } else { None };
        }
        let region = domain.region(key)?;
        let fits = RegionInner::inside(offset, bytes, 0, region.bytes);
        if fits && region.access.contains(access) { use_it(&region) } else { None }
    }

    /// Whether what `key` opened was taken back, so that a request which comes late finds it closed.
    pub(crate) fn is_taken_back(&self, key: u32) -> bool {
        self.closed || self.taken_back.contains(&key)
    }
}

/// A stretch of a region that a receive or a read fills.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) region: Arc<RegionInner>,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

#[derive(Debug)]
pub(crate) struct PostedReceive {
    pub(crate) id: u64,
    pub(crate) into: Option<Target>,
}

#[derive(Debug)]
struct Receives {
    posted: VecDeque<PostedReceive>,
    /// Who waits for one to be posted: telling nobody costs a system call, too.
    waiting: u32,
    closed: bool,
}

/// What the agent finds when it needs a receive.
#[derive(Debug)]
pub(crate) enum NextReceive {
    Posted(Option<Target>),
    NotReady,
    Closed,
}

/// What became of a piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// It is in the receive's buffer.
    Done,
    /// The receive was flushed: nothing was touched.
    Flushed,
    /// The buffer does not take it.
    Outside,
}

impl Link {
    #[expect(clippy::too_many_arguments, reason = "the parts of one struct, made in one place")]
    pub(crate) fn new(
        id: ConnectionId,
        token: Token,
        options: ConnectionOptions,
        domain: Arc<Domain>,
        queue: Arc<QueueShared>,
        logger: Logger,
        requester: Requester,
        receive_depth: usize,
    ) -> Self {
        Self {
            id,
            token,
            options,
            domain,
            queue,
            logger,
            requester: Mutex::new(requester),
            sends_used: AtomicU32::new(0),
            receives_used: AtomicU32::new(0),
            look: AtomicBool::new(false),
            incoming: Mutex::default(),
            serving: Mutex::new(None),
            lent: AtomicBool::new(false),
            take_back: AtomicBool::new(false),
            attached: AtomicBool::new(false),
            agent_end: Mutex::new(None),
            agent_ended: AtomicBool::new(false),
            grants: RwLock::default(),
            receives: Mutex::new(Receives {
                posted: VecDeque::with_capacity(receive_depth),
                waiting: 0,
                closed: false,
            }),
            receive_posted: Condvar::new(),
        }
    }

    // The incoming socket.

    /// The acceptor asks whether an authenticated connection from the end named `source` is welcome.
    pub(crate) fn welcomes(&self, source: &Token) -> Result<(), &'static str> {
        let incoming = lock(&self.incoming);
        if incoming.closed {
            return Err("the connection it names is closed");
        }
        if incoming.socket.is_some() || incoming.parked.is_some() {
            return Err("the connection it names has its peer already");
        }
        match &incoming.expected {
            Some(expected) if expected != source => Err("the connection it names expects another peer"),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes the socket of the peer's requests: starts the agent, or keeps it until [`expect`](Self::expect) says who the peer is.
    pub(crate) fn attach(self: &Arc<Self>, source: Token, socket: TcpStream, address: SocketAddr) {
        let mut incoming = lock(&self.incoming);
        if incoming.closed || incoming.socket.is_some() || incoming.parked.is_some() {
            return;
        }
        match incoming.expected {
            Some(expected) if expected == source => self.start(&mut incoming, socket, address),
            Some(_) => {}
            None => incoming.parked = Some((source, socket, address)),
        }
    }

    /// Says who the peer is. A parked socket of another is closed.
    pub(crate) fn expect(self: &Arc<Self>, source: Token) {
        let mut incoming = lock(&self.incoming);
        incoming.expected = Some(source);
        if let Some((parked, socket, address)) = incoming.parked.take() {
            if parked == source {
                self.start(&mut incoming, socket, address);
            } else {
                slog::warn!(self.logger, "closed a fabric connection";
                    "peer" => %address, "reason" => "another peer was expected");
            }
        }
    }

    fn start(self: &Arc<Self>, incoming: &mut Incoming, socket: TcpStream, address: SocketAddr) {
        let socket = Arc::new(socket);
        *lock(&self.serving) = Some(Agent::new(Arc::clone(&socket)));
        let link = Arc::clone(self);
        let name = format!("windlass-tcp-{}", self.id.0);
        match std::thread::Builder::new().name(name).spawn(move || agent::run(&link, address)) {
            Ok(agent) => {
                incoming.agent = Some(agent);
                incoming.socket = Some(socket);
                self.attached.store(true, Ordering::Release);
            }
            Err(error) => {
                slog::error!(self.logger, "closed a fabric connection";
                    "peer" => %address, "reason" => "no thread for it", "error" => %error);
                self.agent_ends(AgentEnd::Gone);
            }
        }
        self.queue.changed();
    }

    /// Stops the agent's reading and writing. An agent that is ending by itself may still say its last word.
    pub(crate) fn shut_incoming(&self, at_once: bool) {
        let mut incoming = lock(&self.incoming);
        incoming.closed = true;
        incoming.parked = None;
        if let Some(socket) = &incoming.socket
            && (at_once || !self.agent_ended.load(Ordering::Acquire))
        {
            // It fails only where the socket is not connected any more.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(incoming);
        self.recall();
    }

    /// Makes the agent's thread take its socket back.
    pub(crate) fn recall(&self) {
        self.take_back.store(true, Ordering::Release);
        if let Some(agent) = &lock(&self.incoming).agent {
            agent.thread().unpark();
        }
    }

    /// Waits until the agent is gone. [`shut_incoming`](Self::shut_incoming) has been called.
    pub(crate) fn join_agent(&self) {
        let agent = lock(&self.incoming).agent.take();
        if let Some(agent) = agent
            && agent.join().is_err()
        {
            slog::error!(self.logger, "the agent of a fabric connection panicked");
        }
    }

    pub(crate) fn agent_ends(&self, end: AgentEnd) {
        lock(&self.agent_end).get_or_insert(end);
        self.agent_ended.store(true, Ordering::Release);
        self.queue.changed();
    }

    pub(crate) fn agent_end(&self) -> Option<AgentEnd> {
        if self.agent_ended.load(Ordering::Acquire) { *lock(&self.agent_end) } else { None }
    }

    // What the peer may touch.

    pub(crate) fn grant(&self, grant: Grant) {
        let mut grants = writing(&self.grants);
        grants.taken_back.retain(|key| *key != grant.key);
        grants.list.push(grant);
    }

    /// Takes a grant back. When this returns no byte lands through its key any more.
    pub(crate) fn withdraw(&self, key: u32) {
        let mut grants = writing(&self.grants);
        grants.list.retain(|grant| grant.key != key);
        if grants.taken_back.len() == TAKEN_BACK_KNOWN {
            grants.taken_back.pop_front();
        }
        grants.taken_back.push_back(key);
    }

    /// Takes everything back.
    pub(crate) fn close_grants(&self) {
        let mut grants = writing(&self.grants);
        grants.closed = true;
        grants.list.clear();
    }

    pub(crate) fn grants(&self) -> RwLockReadGuard<'_, Grants> {
        reading(&self.grants)
    }

    // Receives.

    /// Adds posted receives; `false` when the connection is in error.
    pub(crate) fn add_receives(&self, receives: impl Iterator<Item = PostedReceive>) -> bool {
        let mut state = lock(&self.receives);
        if state.closed {
            return false;
        }
        for receive in receives {
            state.posted.push_back(receive);
            self.receives_used.fetch_add(1, Ordering::Relaxed);
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.receive_posted.notify_one();
        }
        true
    }

    /// Waits a bounded time for a receive, and leaves it in its place.
    pub(crate) fn next_receive(&self, wait: Duration) -> NextReceive {
        let mut state = lock(&self.receives);
        let mut until = None;
        loop {
            if state.closed {
                return NextReceive::Closed;
            }
            if let Some(receive) = state.posted.front() {
                return NextReceive::Posted(receive.into.clone());
            }
            let now = Instant::now();
            let until = *until.get_or_insert(now + wait);
            if now >= until {
                return NextReceive::NotReady;
            }
            state.waiting += 1;
            state = match self.receive_posted.wait_timeout(state, until - now) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
            state.waiting -= 1;
        }
    }

    /// Puts a piece of a message into the buffer of the receive that [`next_receive`](Self::next_receive) showed. Whoever flushes it waits for the piece, and none lands
    /// afterwards: the buffer is its owner's again.
    pub(crate) fn fill_receive(&self, into: &Target, offset: u32, bytes: &[u8]) -> Placing {
        let state = lock(&self.receives);
        if state.closed {
            return Placing::Flushed;
        }
        let written = into.region.write(into.offset + u64::from(offset), bytes);
        drop(state);
        if written.is_ok() { Placing::Done } else { Placing::Outside }
    }

    /// Completes the receive that [`next_receive`](Self::next_receive) showed, unless it has been flushed meanwhile.
    pub(crate) fn finish_receive(&self, opcode: Opcode, status: Status, bytes: u32, immediate: Option<u32>) {
        let mut state = lock(&self.receives);
        if state.closed {
            return;
        }
        if let Some(receive) = state.posted.pop_front() {
            self.queue.push(self.receive_completion(receive.id, opcode, status, bytes, immediate));
        }
    }

    /// Flushes all posted receives; none can be posted any more.
    pub(crate) fn flush_receives(&self) {
        let mut state = lock(&self.receives);
        state.closed = true;
        while let Some(receive) = state.posted.pop_front() {
            self.queue.push(self.receive_completion(receive.id, Opcode::Receive, Status::Flushed, 0, None));
        }
        drop(state);
        self.receive_posted.notify_all();
    }

    fn receive_completion(
        &self,
        id: u64,
        opcode: Opcode,
        status: Status,
        bytes: u32,
        immediate: Option<u32>,
    ) -> Ready {
        let completion = Completion { id, connection: self.id, opcode, status, bytes, immediate };
        Ready { completion, slots: 1 }
    }
}
