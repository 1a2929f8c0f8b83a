//! Reliable connections: what is posted on a queue pair, and in which order things end.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use ibverbs_sys as sys;
use windlass_fabric::{
    Access, BindError, BindProblem, ConnectError, ConnectionId, ConnectionOptions, ConnectionState, Counters,
    CreateError, ErrorCause, InvalidateError, Opcode, Outstanding, PostError, PostProblem, Receive,
    RemoteKey, RemoteRange, Request, Transfer,
};

use crate::address::{PortAddress, path_mtu};
use crate::device::resolve_again;
use crate::endpoint::{ENDPOINT_BYTES, Endpoint};
use crate::error::VerbError;
use crate::options::{PathOptions, mtu_bytes, mtu_code};
use crate::pair::{QueuePair, Refused};
use crate::queue::QueueCore;
use crate::region::{Domain, VerbsRegion, access_flags};
use crate::slots::Slots;
use crate::window::{NotBindable, VerbsWindow, WindowCore, next_key};
use crate::work::{self, Bounds};

/// What a connection is made from.
pub(crate) struct Maker<'a> {
    pub(crate) domain: &'a Arc<Domain>,
    pub(crate) address: &'a PortAddress,
    pub(crate) queue: &'a Arc<QueueCore>,
    pub(crate) number: u32,
    pub(crate) reads_max: u8,
    pub(crate) message_bytes_max: u32,
    pub(crate) window_bytes_max: u64,
    pub(crate) path: &'a Arc<PathOptions>,
    /// Which transfers of this end's mapped files land right.
    pub(crate) transfer: Transfer,
    /// Windows keep their ends; where not, each stretch that is opened is registered by itself.
    pub(crate) windows_hold: bool,
}

/// An ordered reliable connection.
pub struct VerbsConnection {
    pair: QueuePair,
    /// Dropped after the queue pair: only then no more completions can come. It also keeps the completion queue alive so long.
    _membership: Membership,
    slots: Arc<Slots>,
    address: PortAddress,
    endpoint: Endpoint,
    endpoint_bytes: [u8; ENDPOINT_BYTES],
    ready: bool,
    options: ConnectionOptions,
    bounds: Bounds,
    path: Arc<PathOptions>,
    /// This end's own until it is connected, then what both ends can.
    transfer: Transfer,
    reads_max: u8,
    window_bytes_max: u64,
    windows_hold: bool,
    counters: Counters,
    /// Windows whose last bind may have been on this connection.
    windows: Vec<Arc<WindowCore>>,
    /// Work requests of the chain being posted; as many as the send queue is deep, made once.
    sends: Box<[sys::ibv_send_wr]>,
    send_places: Box<[sys::ibv_sge]>,
    receives: Box<[sys::ibv_recv_wr]>,
    receive_places: Box<[sys::ibv_sge]>,
}

// SAFETY: the raw pointers inside the work requests point into the value's own boxes and are set anew before each use; verbs
// may be called from any thread.
unsafe impl Send for VerbsConnection {}

/// A connection's room in its completion queue.
struct Membership {
    queue: Arc<QueueCore>,
    slots: Arc<Slots>,
    depths: u32,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.queue.leave(&self.slots);
        let outstanding = self.slots.sends.outstanding() + self.slots.receives.outstanding();
        self.queue.release(self.depths, outstanding);
    }
}

impl VerbsConnection {
    pub(crate) fn new(
        maker: &Maker<'_>,
        options: &ConnectionOptions,
    ) -> Result<VerbsConnection, CreateError> {
        let slots = Arc::new(Slots::new(maker.number, options.send_depth, options.receive_depth));
        let needed = options.send_depth + options.receive_depth;
        maker.queue.reserve(needed).map_err(|left| CreateError::QueueTooSmall { needed, left })?;
        let membership =
            Membership { queue: Arc::clone(maker.queue), slots: Arc::clone(&slots), depths: needed };
        let os = |error: VerbError| CreateError::Os { call: error.verb, source: error.into() };
        let context = &maker.domain.context;
        let address = resolve_again(context, maker.address)
            .map_err(|error| CreateError::Os { call: "ibv_query_port", source: io::Error::other(error) })?;
        let pair = QueuePair::new(maker.domain, maker.queue, options).map_err(os)?;
        pair.to_init(address.port).map_err(os)?;
        let random = getrandom::u32()
            .map_err(|error| CreateError::Os { call: "getrandom", source: io::Error::other(error) })?;
        let endpoint = Endpoint {
            queue_pair: pair.number(),
            sequence: random & 0xff_ffff,
            gid: address.gid,
            lid: address.lid,
            // What this end will send and take, not what its port could: both ends must come to the same path MTU.
            mtu: u8::try_from(address.mtu.min(mtu_code(maker.path.mtu_bytes_max))).unwrap_or(1),
            reads: maker.reads_max,
            link: address.link,
            transfer: maker.transfer,
        };
        context.registry.add_pair(pair.number(), &slots);
        maker.queue.join(&slots);
        let (send_depth, receive_depth) = (to_usize(options.send_depth), to_usize(options.receive_depth));
        Ok(VerbsConnection {
            pair,
            _membership: membership,
            slots,
            address,
            endpoint,
            endpoint_bytes: endpoint.encode(),
            ready: false,
            options: *options,
            bounds: Bounds { inline_bytes: options.inline_bytes, message_bytes_max: maker.message_bytes_max },
            path: Arc::clone(maker.path),
            transfer: maker.transfer,
            reads_max: maker.reads_max,
            window_bytes_max: maker.window_bytes_max,
            windows_hold: maker.windows_hold,
            counters: Counters::default(),
            windows: Vec::with_capacity(16),
            sends: vec![sys::ibv_send_wr::default(); send_depth].into_boxed_slice(),
            send_places: vec![sys::ibv_sge::default(); send_depth].into_boxed_slice(),
            receives: vec![sys::ibv_recv_wr::default(); receive_depth].into_boxed_slice(),
            receive_places: vec![sys::ibv_sge::default(); receive_depth].into_boxed_slice(),
        })
    }

    /// Whether requests may be posted now.
    fn may_post(&self) -> Result<(), PostProblem> {
        match self.state_now() {
            ConnectionState::Ready => Ok(()),
            state @ (ConnectionState::Initial | ConnectionState::Connecting | ConnectionState::Error(_)) => {
                Err(PostProblem::State { state })
            }
        }
    }

    fn state_now(&self) -> ConnectionState {
        match self.slots.cause() {
            Some(cause) => ConnectionState::Error(cause),
            None if self.ready => ConnectionState::Ready,
            None => ConnectionState::Initial,
        }
    }

    /// Writes the request into the chain's place `at`, and its slot.
    fn build(
        &mut self,
        at: usize,
        sequence: u64,
        request: &Request<'_, VerbsRegion>,
    ) -> Result<(), PostProblem> {
        let (mut work, place, opcode) = self.bounds.work(request)?;
        work.wr_id = self.slots.send_id(sequence);
        if place.length > 0 {
            self.send_places[at] = place;
            work.sg_list = &raw mut self.send_places[at];
            work.num_sge = 1;
        }
        self.sends[at] = work;
        self.slots.sends.fill(sequence, request.id, opcode);
        Ok(())
    }

    /// Posts the first `len` of the chain that was built.
    fn ring(&mut self, start: u64, len: usize) -> Result<(), PostError> {
        let signalled = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        if let Some(last) = self.sends[..len].iter().rposition(|work| work.send_flags & signalled != 0) {
            self.slots.sends.expect(start + last as u64);
        }
        self.slots.sends.publish(start + len as u64);
        self.pair.post_send(&mut self.sends[..len]).map_err(|Refused { posted, error }| {
            self.slots.sends.publish(start + posted as u64);
            if posted == len {
                // Queued, and the device not told: only in error do they complete.
                self.fail(ErrorCause::Device);
            }
            PostError { posted, problem: PostProblem::Os { call: error.verb, source: error.into() } }
        })
    }

    /// Posts one request that is no transfer: a bind or an invalidation, always signalled.
    fn post_one(&mut self, id: u64, opcode: Opcode, mut work: sys::ibv_send_wr) -> Result<u64, PostProblem> {
        self.may_post()?;
        let free = self.slots.sends.free();
        if free == 0 {
            return Err(PostProblem::QueueFull { asked: 1, free, depth: self.options.send_depth });
        }
        let sequence = self.slots.sends.next();
        work.wr_id = self.slots.send_id(sequence);
        work.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        self.sends[0] = work;
        self.slots.sends.fill(sequence, id, opcode);
        self.counters.count_one();
        match self.ring(sequence, 1) {
            Ok(()) => Ok(sequence),
            // Taken, whatever the doorbell said: it will complete, as flushed.
            Err(error) if error.posted == 1 => Ok(sequence),
            Err(error) => Err(error.problem),
        }
    }

    /// Moves the queue pair to error for a cause of this end.
    fn fail(&self, cause: ErrorCause) {
        self.slots.fail(cause);
        // A refusal can only mean that it is in error, or the device gone; destroying it ends it all the same.
        let _ = self.pair.to_error();
    }
}

fn to_usize(depth: u32) -> usize {
    usize::try_from(depth).unwrap_or(usize::MAX)
}

impl windlass_fabric::Connection for VerbsConnection {
    type Region = VerbsRegion;
    type Window = VerbsWindow;

    fn id(&self) -> ConnectionId {
        self.slots.id()
    }

    fn endpoint(&self) -> &[u8] {
        &self.endpoint_bytes
    }

    fn connect(&mut self, peer: &[u8]) -> Result<(), ConnectError> {
        let state = self.state_now();
        if state != ConnectionState::Initial {
            return Err(ConnectError::State { state });
        }
        let peer = Endpoint::parse(peer).map_err(|what| ConnectError::Endpoint { what })?;
        if peer.link != self.address.link {
            return Err(ConnectError::Endpoint {
                what: "its packets travel another way (InfiniBand, RoCE v1, RoCE v2): choose both ends' addresses alike",
            });
        }
        let transfer = self.transfer.and(peer.transfer);
        let bytes = mtu_bytes(path_mtu(self.address.mtu, peer.mtu, mtu_code(self.path.mtu_bytes_max)));
        if let Transfer::WholePages { page_bytes } = transfer
            && bytes < page_bytes
        {
            return Err(ConnectError::PathMtu { bytes, needed_bytes: page_bytes });
        }
        let reads = self.reads_max.min(peer.reads);
        self.pair
            .to_receive(&self.address, &peer, self.reads_max, &self.path)
            .map_err(|error| ConnectError::Os { call: error.verb, source: error.into() })?;
        match self.pair.to_send(self.endpoint.sequence, reads, &self.path) {
            Ok(()) => {
                self.transfer = transfer;
                self.ready = true;
            }
            // The way back is closed: the queue pair has begun to receive.
            Err(_) => self.fail(ErrorCause::ConnectFailed),
        }
        Ok(())
    }

    fn state(&self) -> ConnectionState {
        self.state_now()
    }

    fn outstanding(&self) -> Outstanding {
        Outstanding { sends: self.slots.sends.outstanding(), receives: self.slots.receives.outstanding() }
    }

    fn transfer(&self) -> Transfer {
        self.transfer
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn post(&mut self, chain: &[Request<'_, VerbsRegion>]) -> Result<(), PostError> {
        let refuse = |problem| PostError { posted: 0, problem };
        self.may_post().map_err(refuse)?;
        let free = self.slots.sends.free();
        if chain.len() > to_usize(free) {
            let depth = self.options.send_depth;
            return Err(refuse(PostProblem::QueueFull { asked: chain.len(), free, depth }));
        }
        let start = self.slots.sends.next();
        let mut built = 0;
        let mut problem = None;
        for (request, sequence) in chain.iter().zip(start..) {
            if let Err(found) = self.build(built, sequence, request) {
                problem = Some(found);
                break;
            }
            built += 1;
        }
        let rung = self.ring(start, built);
        self.counters.count(&chain[..rung.as_ref().map_or_else(|error| error.posted, |()| built)]);
        rung?;
        problem.map_or(Ok(()), |problem| Err(PostError { posted: built, problem }))
    }

    fn post_receives(&mut self, receives: &[Receive<'_, VerbsRegion>]) -> Result<(), PostError> {
        let refuse = |problem| PostError { posted: 0, problem };
        if let state @ ConnectionState::Error(_) = self.state_now() {
            return Err(refuse(PostProblem::State { state }));
        }
        let free = self.slots.receives.free();
        if receives.len() > to_usize(free) {
            let depth = self.options.receive_depth;
            return Err(refuse(PostProblem::QueueFull { asked: receives.len(), free, depth }));
        }
        let start = self.slots.receives.next();
        let mut built = 0;
        let mut problem = None;
        for (receive, sequence) in receives.iter().zip(start..) {
            let mut work = sys::ibv_recv_wr { wr_id: self.slots.receive_id(sequence), ..Default::default() };
            match receive.into.as_ref().map(|into| self.bounds.target(into)).transpose() {
                Ok(place) => {
                    if let Some(place) = place.filter(|place| place.length > 0) {
                        self.receive_places[built] = place;
                        work.sg_list = &raw mut self.receive_places[built];
                        work.num_sge = 1;
                    }
                }
                Err(found) => {
                    problem = Some(found);
                    break;
                }
            }
            self.receives[built] = work;
            self.slots.receives.fill(sequence, receive.id, Opcode::Receive);
            built += 1;
        }
        self.slots.receives.publish(start + built as u64);
        self.pair.post_receive(&mut self.receives[..built]).map_err(|Refused { posted, error }| {
            self.slots.receives.publish(start + posted as u64);
            PostError { posted, problem: PostProblem::Os { call: error.verb, source: error.into() } }
        })?;
        problem.map_or(Ok(()), |problem| Err(PostError { posted: built, problem }))
    }

    fn bind(
        &mut self,
        id: u64,
        window: &mut VerbsWindow,
        region: &VerbsRegion,
        range: Range<u64>,
        access: Access,
    ) -> Result<RemoteRange, BindError> {
        let core = region.core();
        let is_own = |of: &Arc<Domain>| Arc::ptr_eq(of, &self.pair.domain);
        assert!(
            is_own(&window.core().domain) && is_own(&core.domain),
            "the window or the region is another fabric's"
        );
        let (region_bytes, window_bytes_max) = (core.bytes(), self.window_bytes_max);
        let bytes = range.end.saturating_sub(range.start);
        if bytes == 0 || range.end > region_bytes || bytes > window_bytes_max {
            let Range { start, end } = range;
            return Err(BindProblem::Range { start, end, region_bytes, window_bytes_max }.into());
        }
        let writes = access.contains(Access::REMOTE_WRITE);
        if !core.allows(Access::WINDOW_BIND) || (writes && !core.allows(Access::LOCAL_WRITE)) {
            return Err(BindProblem::RegionAccess.into());
        }
        // Before it is posted: whoever ends the region or the connection must know of the window.
        core.note_window(window.core());
        if !self.windows.iter().any(|known| Arc::ptr_eq(known, window.core())) {
            self.windows.retain(|known| !known.is_closed());
            self.windows.push(Arc::clone(window.core()));
        }
        let stretch =
            if self.windows_hold { None } else { Some(core.stretch(&range).map_err(BindProblem::Post)?) };
        let held = window.core().prepare(&self.slots).map_err(|refusal| match refusal {
            NotBindable::StillBound => BindProblem::StillBound,
            NotBindable::KeysExhausted => BindProblem::KeysExhausted,
            NotBindable::Allocate(error) => {
                BindProblem::Post(PostProblem::Os { call: error.verb, source: error.into() })
            }
        })?;
        let address = core.address() + range.start;
        let key = next_key(held.key());
        let ground = stretch.as_ref().map_or(core.raw(), |stretch| stretch.raw());
        let work = work::bind(held.raw(), key, ground, (address, bytes), access_flags(remote_part(access)));
        self.post_one(id, Opcode::Bind, work).map_err(BindProblem::Post)?;
        held.bound(&self.slots, core.raw(), stretch, key);
        Ok(RemoteRange { address, bytes, key: RemoteKey(key) })
    }

    fn invalidate(&mut self, id: u64, window: &mut VerbsWindow) -> Result<(), InvalidateError> {
        let held = match window.core().hold_bound(&self.slots) {
            None => return Err(InvalidateError::NotBound),
            Some(None) => return Err(InvalidateError::OtherConnection),
            Some(Some(held)) => held,
        };
        let sequence = self
            .post_one(id, Opcode::Invalidate, work::invalidate(held.key()))
            .map_err(InvalidateError::Post)?;
        held.invalidated(sequence);
        Ok(())
    }

    fn close(&mut self) {
        if self.slots.cause().is_none() {
            self.fail(ErrorCause::Closed);
        }
    }

    fn destroy(self) {
        drop(self);
    }
}

/// A window gives remote access alone.
fn remote_part(access: Access) -> Access {
    let mut part = Access::NONE;
    for flag in [Access::REMOTE_READ, Access::REMOTE_WRITE] {
        if access.contains(flag) {
            part = part | flag;
        }
    }
    part
}

impl Drop for VerbsConnection {
    /// Stop, free the windows, end the queue pair (by the field's own drop), give the room back. No call here waits for the peer.
    fn drop(&mut self) {
        self.slots.fail(ErrorCause::Closed);
        let _ = self.pair.to_error();
        for window in self.windows.drain(..) {
            window.unbind_on(&self.slots);
        }
        self.slots.mark_destroyed();
        self.pair.domain.context.registry.remove_pair(&self.slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_never_gives_local_access() {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::WINDOW_BIND;
        assert_eq!(remote_part(all), Access::REMOTE_READ | Access::REMOTE_WRITE);
        assert_eq!(remote_part(Access::LOCAL_WRITE), Access::NONE);
    }
}
