//! Reliable connections: a queue pair, its states, and what is posted on it.
//!
//! ```text
//!  RESET ──create──▶ INIT ──connect──▶ RTR ──▶ RTS          any ──close or a failed request──▶ ERR
//!                    Initial           (one call)  Ready                                      Error
//! ```

use std::io;
use std::ops::Range;
use std::sync::Arc;

use ibverbs_sys as sys;
use sys::{ibv_qp_attr_mask as mask, ibv_qp_state as qps, ibv_wr_opcode as wr};
use windlass_fabric::{
    Access, BindError, BindProblem, ConnectError, ConnectionId, ConnectionOptions, ConnectionState, Counters,
    CreateError, ErrorCause, InvalidateError, Local, Opcode, Operation, Outstanding, PostError, PostProblem,
    Receive, Remote, RemoteKey, RemoteRange, Request, Source, Transfer,
};

use crate::device::{PortAddress, resolve_again};
use crate::endpoint::{ENDPOINT_BYTES, Endpoint, path_mtu};
use crate::error::{About, VerbError, memlock_bytes_max};
use crate::queue::QueueCore;
use crate::region::{Domain, RegionCore, VerbsRegion, access_flags};
use crate::slots::Slots;
use crate::window::{NotBindable, VerbsWindow, WindowCore, next_key};

/// Receiver not ready: the peer asks for 0.64 ms of patience (`min_rnr_timer` 12; 0 would be 655 ms), six times. Credits are to
/// keep it from happening at all, so failing soon is right (failure kind 70).
const RNR_TIMER: u8 = 12;
const RNR_RETRIES: u8 = 6;
/// Lost packets: 4.096 µs × 2^14 = 67 ms a try at least, six tries again; Soft-RoCE takes 7 for "without end". Not a failure
/// detector (failure kind 73).
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 6;
const HOP_LIMIT: u8 = 64;

/// What a connection is made from.
pub(crate) struct Maker<'a> {
    pub(crate) domain: &'a Arc<Domain>,
    pub(crate) address: &'a PortAddress,
    pub(crate) queue: &'a Arc<QueueCore>,
    pub(crate) number: u32,
    pub(crate) reads_max: u8,
    pub(crate) message_bytes_max: u32,
    pub(crate) window_bytes_max: u64,
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
    reads_max: u8,
    message_bytes_max: u32,
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

/// The device's queue pair.
struct QueuePair {
    domain: Arc<Domain>,
    raw: *mut sys::ibv_qp,
}

impl QueuePair {
    fn new(
        domain: &Arc<Domain>,
        queue: &Arc<QueueCore>,
        options: &ConnectionOptions,
    ) -> Result<QueuePair, VerbError> {
        let mut attributes = sys::ibv_qp_init_attr {
            send_cq: queue.raw,
            recv_cq: queue.raw,
            cap: sys::ibv_qp_cap {
                max_send_wr: options.send_depth,
                max_recv_wr: options.receive_depth.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: options.inline_bytes,
            },
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        // SAFETY: domain and queue are alive and held by the result; the attributes are whole.
        let raw = unsafe { (domain.context.library.create_qp)(domain.raw, &raw mut attributes) };
        if raw.is_null() {
            return Err(VerbError::last("ibv_create_qp").about(About::Queue {
                entries: options.send_depth.max(options.receive_depth),
                entries_max: u32::try_from(domain.context.limits.max_qp_wr).unwrap_or(0),
                memlock_bytes_max: memlock_bytes_max(),
            }));
        }
        Ok(QueuePair { domain: Arc::clone(domain), raw })
    }

    fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw).qp_num }
    }

    fn modify(
        &self,
        attributes: &mut sys::ibv_qp_attr,
        fields: sys::ibv_qp_attr_mask,
        to: &'static str,
        hint: &'static str,
    ) -> Result<(), VerbError> {
        let fields = i32::try_from(fields.0).unwrap_or(0);
        // SAFETY: the queue pair is alive and the attributes are whole.
        let returned = unsafe { (self.domain.context.library.modify_qp)(self.raw, attributes, fields) };
        VerbError::check("ibv_modify_qp", returned)
            .map_err(|error| error.about(About::Transition { to, hint }))
    }

    fn to_init(&self, port: u8) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: qps::IBV_QPS_INIT,
            pkey_index: 0,
            port_num: port,
            qp_access_flags: access_flags(Access::REMOTE_READ | Access::REMOTE_WRITE),
            ..Default::default()
        };
        let fields =
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(
            &mut attributes,
            fields,
            "INIT",
            "the port may be gone, or the device without remote access",
        )
    }

    fn to_receive(&self, own: &PortAddress, peer: &Endpoint, reads_max: u8) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: qps::IBV_QPS_RTR,
            path_mtu: path_mtu(own.mtu, peer.mtu),
            dest_qp_num: peer.queue_pair,
            rq_psn: peer.sequence,
            max_dest_rd_atomic: reads_max,
            min_rnr_timer: RNR_TIMER,
            ah_attr: sys::ibv_ah_attr {
                // RoCE always needs the route header.
                is_global: 1,
                grh: sys::ibv_global_route {
                    dgid: sys::ibv_gid { raw: peer.gid },
                    sgid_index: own.gid_index,
                    hop_limit: HOP_LIMIT,
                    ..Default::default()
                },
                dlid: peer.lid,
                port_num: own.port,
                ..Default::default()
            },
            ..Default::default()
        };
        let fields = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(
            &mut attributes,
            fields,
            "RTR",
            "the peer's address must be of the same family as ours and have a route from it (ip route get); both addresses RoCE v2",
        )
    }

    fn to_send(&self, sequence: u32, reads_max: u8) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr {
            qp_state: qps::IBV_QPS_RTS,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            sq_psn: sequence,
            max_rd_atomic: reads_max,
            ..Default::default()
        };
        let fields = mask::IBV_QP_STATE
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(
            &mut attributes,
            fields,
            "RTS",
            "the device refused the timeouts, or more reads at once than it can",
        )
    }

    fn to_error(&self) -> Result<(), VerbError> {
        let mut attributes = sys::ibv_qp_attr { qp_state: qps::IBV_QPS_ERR, ..Default::default() };
        self.modify(&mut attributes, mask::IBV_QP_STATE, "ERR", "the device may be gone")
    }

    /// Rings the doorbell for a chain; gives how many of it the device took.
    fn post_send(&self, chain: &mut [sys::ibv_send_wr]) -> Result<(), (usize, VerbError)> {
        for at in 1..chain.len() {
            chain[at - 1].next = &raw mut chain[at];
        }
        let Some(last) = chain.last_mut() else { return Ok(()) };
        last.next = std::ptr::null_mut();
        let first = chain.as_mut_ptr();
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive; the chain links work requests inside `chain`, each with a list of at most one place; the
        // places name memory that a live region covers, or inline bytes that live until the call returns.
        let returned = unsafe { (self.domain.context.ops.post_send)(self.raw, first, &raw mut bad) };
        VerbError::check("ibv_post_send", returned).map_err(|error| {
            (position(first.addr(), bad.addr(), size_of::<sys::ibv_send_wr>(), chain.len()), error)
        })
    }

    fn post_receive(&self, chain: &mut [sys::ibv_recv_wr]) -> Result<(), (usize, VerbError)> {
        for at in 1..chain.len() {
            chain[at - 1].next = &raw mut chain[at];
        }
        let Some(last) = chain.last_mut() else { return Ok(()) };
        last.next = std::ptr::null_mut();
        let first = chain.as_mut_ptr();
        let mut bad = std::ptr::null_mut();
        // SAFETY: as for `post_send`.
        let returned = unsafe { (self.domain.context.ops.post_recv)(self.raw, first, &raw mut bad) };
        VerbError::check("ibv_post_recv", returned).map_err(|error| {
            (position(first.addr(), bad.addr(), size_of::<sys::ibv_recv_wr>(), chain.len()), error)
        })
    }
}

/// How many of a chain were taken before the bad one. A driver that names none has queued them all and failed to tell
/// the device: they count as posted (failure kind 71).
fn position(first: usize, bad: usize, bytes: usize, len: usize) -> usize {
    if bad < first { len } else { ((bad - first) / bytes).min(len) }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `create_qp`, destroyed here only; its windows were freed before. When it returns the device neither
        // sends nor places anything on its behalf. A refusal leaves it in error, and to the kernel.
        let _ = unsafe { (self.domain.context.library.destroy_qp)(self.raw) };
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
            mtu: u8::try_from(address.mtu).unwrap_or(1),
            reads: maker.reads_max,
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
            reads_max: maker.reads_max,
            message_bytes_max: maker.message_bytes_max,
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
        let (code, opcode) = match &request.operation {
            Operation::Write { .. } => (wr::IBV_WR_RDMA_WRITE, Opcode::Write),
            Operation::WriteImmediate { .. } => (wr::IBV_WR_RDMA_WRITE_WITH_IMM, Opcode::Write),
            Operation::Read { .. } => (wr::IBV_WR_RDMA_READ, Opcode::Read),
            Operation::Send { immediate: None, .. } => (wr::IBV_WR_SEND, Opcode::Send),
            Operation::Send { immediate: Some(_), .. } => (wr::IBV_WR_SEND_WITH_IMM, Opcode::Send),
        };
        let mut work =
            sys::ibv_send_wr { wr_id: self.slots.send_id(sequence), opcode: code, ..Default::default() };
        if request.signalled {
            work.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let place = match &request.operation {
            Operation::Write { source, to } => {
                set_remote(&mut work, *to);
                self.source(source, &mut work)?
            }
            Operation::WriteImmediate { source, to, immediate } => {
                set_remote(&mut work, *to);
                set_immediate(&mut work, *immediate);
                self.source(source, &mut work)?
            }
            Operation::Read { into, from } => {
                set_remote(&mut work, *from);
                self.target(into)?
            }
            Operation::Send { source, immediate } => {
                set_immediate(&mut work, immediate.unwrap_or(0));
                self.source(source, &mut work)?
            }
        };
        if place.length > 0 {
            self.send_places[at] = place;
            work.sg_list = &raw mut self.send_places[at];
            work.num_sge = 1;
        }
        self.sends[at] = work;
        self.slots.sends.fill(sequence, request.id, opcode);
        Ok(())
    }

    fn source(
        &self,
        source: &Source<'_, VerbsRegion>,
        work: &mut sys::ibv_send_wr,
    ) -> Result<sys::ibv_sge, PostProblem> {
        match source {
            Source::Region(local) => self.local(local),
            Source::Inline(bytes) => {
                let inline_bytes = self.options.inline_bytes;
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                if length > inline_bytes {
                    return Err(PostProblem::InlineTooLong { bytes: bytes.len(), inline_bytes });
                }
                if length > 0 {
                    work.send_flags |= sys::ibv_send_flags::IBV_SEND_INLINE.0;
                }
                Ok(sys::ibv_sge { addr: bytes.as_ptr().addr() as u64, length, lkey: 0 })
            }
        }
    }

    /// A stretch that the device will write to.
    fn target(&self, local: &Local<'_, VerbsRegion>) -> Result<sys::ibv_sge, PostProblem> {
        if !local.region.core().allows(Access::LOCAL_WRITE) {
            return Err(PostProblem::RegionAccess);
        }
        self.local(local)
    }

    fn local(&self, local: &Local<'_, VerbsRegion>) -> Result<sys::ibv_sge, PostProblem> {
        let region: &RegionCore = local.region.core();
        let (offset, bytes, region_bytes) = (local.offset, local.bytes, region.bytes());
        if offset > region_bytes || u64::from(bytes) > region_bytes - offset {
            return Err(PostProblem::OutOfRegion { offset, bytes, region_bytes });
        }
        if bytes > self.message_bytes_max {
            return Err(PostProblem::MessageTooLong { bytes, bytes_max: self.message_bytes_max });
        }
        Ok(sys::ibv_sge { addr: region.address() + offset, length: bytes, lkey: region.local_key() })
    }

    /// Posts the first `len` of the chain that was built.
    fn ring(&mut self, start: u64, len: usize) -> Result<(), PostError> {
        self.slots.sends.publish(start + len as u64);
        self.pair.post_send(&mut self.sends[..len]).map_err(|(posted, error)| {
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

fn set_remote(work: &mut sys::ibv_send_wr, remote: Remote) {
    work.wr.rdma =
        sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: remote.address, rkey: remote.key.0 };
}

/// The immediate travels in network order (failure kind 75).
fn set_immediate(work: &mut sys::ibv_send_wr, immediate: u32) {
    work.__bindgen_anon_1.imm_data = immediate.to_be();
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
        let reads = self.reads_max.min(peer.reads);
        self.pair
            .to_receive(&self.address, &peer, self.reads_max)
            .map_err(|error| ConnectError::Os { call: error.verb, source: error.into() })?;
        match self.pair.to_send(self.endpoint.sequence, reads) {
            Ok(()) => self.ready = true,
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
        Transfer::Any
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
            match receive.into.as_ref().map(|into| self.target(into)).transpose() {
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
        self.pair.post_receive(&mut self.receives[..built]).map_err(|(posted, error)| {
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
        let mut work = sys::ibv_send_wr { opcode: wr::IBV_WR_BIND_MW, ..Default::default() };
        work.__bindgen_anon_2.bind_mw = sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: held.raw(),
            rkey: key,
            bind_info: sys::ibv_mw_bind_info {
                mr: stretch.as_ref().map_or(core.raw(), |stretch| stretch.raw()),
                addr: address,
                length: bytes,
                mw_access_flags: access_flags(remote_part(access)),
            },
        };
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
        let mut work = sys::ibv_send_wr { opcode: wr::IBV_WR_LOCAL_INV, ..Default::default() };
        work.__bindgen_anon_1.invalidate_rkey = held.key();
        let sequence = self.post_one(id, Opcode::Invalidate, work).map_err(InvalidateError::Post)?;
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
    fn kind_71_the_bad_request_is_where_posting_goes_on() {
        assert_eq!(position(1000, 1000, 100, 4), 0);
        assert_eq!(position(1000, 1200, 100, 4), 2);
        assert_eq!(position(1000, 0, 100, 4), 4, "none named: all were queued");
        assert_eq!(position(1000, 9000, 100, 4), 4);
    }

    #[test]
    fn kind_75_the_immediate_travels_in_network_order() {
        let mut work = sys::ibv_send_wr::default();
        set_immediate(&mut work, 0x0102_0304);
        // SAFETY: the member was just written.
        assert_eq!(unsafe { work.__bindgen_anon_1.imm_data }.to_ne_bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_window_never_gives_local_access() {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::WINDOW_BIND;
        assert_eq!(remote_part(all), Access::REMOTE_READ | Access::REMOTE_WRITE);
        assert_eq!(remote_part(Access::LOCAL_WRITE), Access::NONE);
    }
}
