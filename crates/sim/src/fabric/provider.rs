//! The provider's trait over the state.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, AllocateError, BindError, BindProblem, Capabilities, Completion, CompletionQueue,
    CompletionQueueError, ConnectError, Connection, ConnectionId, ConnectionOptions, ConnectionState,
    Counters, CreateError, ErrorCause, Fabric, InvalidateError, Local, Memory, Operation, Outstanding,
    PollError, PostError, PostProblem, Receive, Region, RegisterError, RemoteKey, RemoteRange, Request,
    Source, Status, Transfer, Wake, Window, Woken,
};

use super::state::{Key, Link, Payload, Place, Posted, Queue, State, Work, endpoint, number_of};
use super::{Device, FabricNet, PAGE_BYTES};
use crate::coverage::Mark;

const DEPTH_MAX: u32 = 1 << 14;
const COMPLETIONS_MAX: u32 = 1 << 20;
const INLINE_BYTES_MAX: u32 = 4096;
const MESSAGE_BYTES_MAX: u32 = 1 << 30;
/// Binds of one window before its keys would repeat.
const BINDS_MAX: u32 = 255;

fn capabilities(device: Device) -> Capabilities {
    Capabilities {
        provider: "sim",
        windows: true,
        transfer: transfer(device),
        staged_image: device == Device::Staged,
        immediate: true,
        message_bytes_max: MESSAGE_BYTES_MAX,
        region_bytes_max: 1 << 40,
        window_bytes_max: 1 << 40,
        inline_bytes_max: INLINE_BYTES_MAX,
        send_depth_max: DEPTH_MAX,
        receive_depth_max: DEPTH_MAX,
        reads_in_flight_max: 16,
        completions_max: COMPLETIONS_MAX,
    }
}

/// How a device moves bytes.
fn transfer(device: Device) -> Transfer {
    match device {
        Device::Any | Device::Staged => Transfer::Any,
        Device::Pages => Transfer::WholePages { page_bytes: PAGE_BYTES },
    }
}

/// One member's fabric.
#[derive(Debug)]
pub struct SimFabric {
    net: FabricNet,
    number: u64,
    member: u8,
    device: Device,
    capabilities: Capabilities,
}

impl SimFabric {
    pub(super) fn new(net: FabricNet, member: u8, device: Device) -> SimFabric {
        let number = net.state().number();
        SimFabric { net, number, member, device, capabilities: capabilities(device) }
    }
}

impl Fabric for SimFabric {
    type Region = SimRegion;
    type Window = SimWindow;
    type CompletionQueue = SimQueue;
    type Connection = SimConnection;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&self, memory: Arc<dyn Memory>, access: Access) -> Result<SimRegion, RegisterError> {
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::AccessCombination);
        }
        let mut state = self.net.state();
        let number = state.number();
        let key = access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE).then(|| {
            let key = state.key_base();
            let opened = Key {
                memory: Arc::clone(&memory),
                region: number,
                link: None,
                fabric: self.number,
                address: number << 42,
                bytes: memory.len(),
                offset: 0,
                access,
            };
            state.keys.insert(key, opened);
            key
        });
        Ok(SimRegion { net: self.net.clone(), number, memory, access, key })
    }

    fn allocate_window(&self) -> Result<SimWindow, AllocateError> {
        let mut state = self.net.state();
        #[cfg(planted)]
        if windlass_log::planted!(ReusedKey)
            && let Some(base) = state.dropped_windows.pop()
        {
            return Ok(SimWindow { net: self.net.clone(), base, binds: 0, bound: None });
        }
        let (base, binds) = (state.key_base(), state.binds_before);
        Ok(SimWindow { net: self.net.clone(), base, binds, bound: None })
    }

    fn completion_queue(&self, capacity: u32) -> Result<SimQueue, CompletionQueueError> {
        if capacity == 0 || capacity > COMPLETIONS_MAX {
            return Err(CompletionQueueError::Capacity { capacity, capacity_max: COMPLETIONS_MAX });
        }
        let mut state = self.net.state();
        let number = state.number();
        state.queues.insert(number, Queue { member: self.member, capacity, ..Queue::default() });
        Ok(SimQueue { net: self.net.clone(), number })
    }

    fn connection(
        &self,
        queue: &SimQueue,
        options: &ConnectionOptions,
    ) -> Result<SimConnection, CreateError> {
        let check = |option, value, min, max| {
            if value < min || value > max {
                Err(CreateError::Option { option, value, min, max })
            } else {
                Ok(())
            }
        };
        check("send_depth", options.send_depth, 1, DEPTH_MAX)?;
        check("receive_depth", options.receive_depth, 0, DEPTH_MAX)?;
        check("inline_bytes", options.inline_bytes, 0, INLINE_BYTES_MAX)?;
        let mut state = self.net.state();
        let needed = options.send_depth + options.receive_depth;
        let of_queue = state.queues.get_mut(&queue.number).expect("a queue lives as long as it is used");
        let left = of_queue.capacity - of_queue.used;
        if needed > left {
            return Err(CreateError::QueueTooSmall { needed, left });
        }
        of_queue.used += needed;
        let number = state.number();
        if let Some(of_queue) = state.queues.get_mut(&queue.number) {
            of_queue.links.push(number);
        }
        state.links.insert(
            number,
            Link {
                queue: queue.number,
                fabric: self.number,
                member: self.member,
                device: self.device,
                takes_notices: false,
                unread: VecDeque::new(),
                peer: None,
                state: ConnectionState::Initial,
                seen: ConnectionState::Initial,
                options: *options,
                sends: VecDeque::new(),
                is_under_way: false,
                gives_up_at: None,
                answer_by: None,
                executed: VecDeque::new(),
                completes_at: 0,
                sends_used: 0,
                unfreed: 0,
                receives: VecDeque::new(),
                receives_used: 0,
                done: VecDeque::new(),
                epoch: None,
            },
        );
        Ok(SimConnection {
            net: self.net.clone(),
            number,
            endpoint: endpoint(number),
            counters: Counters::default(),
        })
    }
}

/// Registered memory.
#[derive(Debug)]
pub struct SimRegion {
    net: FabricNet,
    number: u64,
    memory: Arc<dyn Memory>,
    access: Access,
    key: Option<u32>,
}

impl Region for SimRegion {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    fn access(&self) -> Access {
        self.access
    }

    fn remote(&self) -> Option<RemoteRange> {
        let key = RemoteKey(self.key?);
        Some(RemoteRange { address: self.number << 42, bytes: self.memory.len(), key })
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        self.net.state().end_region(self.number);
    }
}

/// A window. Its keys count up in their low 8 bits.
#[derive(Debug)]
pub struct SimWindow {
    net: FabricNet,
    base: u32,
    binds: u32,
    bound: Option<(u64, u32)>,
}

impl Window for SimWindow {
    fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    fn binds_left(&self) -> u32 {
        BINDS_MAX - self.binds
    }
}

impl Drop for SimWindow {
    fn drop(&mut self) {
        let (first, last) = (self.base, self.base + BINDS_MAX);
        let mut state = self.net.state();
        state.keys.retain(|key, _| *key < first || *key > last);
        #[cfg(planted)]
        state.dropped_windows.push(self.base);
        // A bind that is still queued opens nothing any more.
        for link in state.links.values_mut() {
            for posted in &mut link.sends {
                if let Work::Bind { key, .. } = &posted.work
                    && (first..=last).contains(key)
                {
                    posted.work = Work::Invalidate { key: 0 };
                }
            }
        }
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct SimQueue {
    net: FabricNet,
    number: u64,
}

/// Ends a wait.
#[derive(Clone, Debug)]
pub struct SimWaker(FabricNet, u64);

impl Wake for SimWaker {
    fn wake(&self) {
        if let Some(queue) = self.0.state().queues.get_mut(&self.1) {
            queue.is_woken = true;
        }
    }
}

impl CompletionQueue for SimQueue {
    type Waker = SimWaker;

    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        let mut state = self.net.state();
        state.pass();
        let State { queues, links, .. } = &mut *state;
        let Some(queue) = queues.get_mut(&self.number).filter(|queue| queue.is_ready) else { return Ok(0) };
        let mut count = 0;
        let mut is_ready = false;
        for number in &queue.links {
            let Some(link) = links.get_mut(number) else { continue };
            link.seen = link.state;
            while count < into.len() {
                let Some((completion, frees)) = link.done.pop_front() else { break };
                if completion.opcode.is_receive() {
                    link.unread.pop_front();
                    link.receives_used -= frees;
                } else {
                    link.sends_used -= frees;
                }
                into[count] = completion;
                count += 1;
            }
            is_ready |= !link.done.is_empty();
        }
        queue.is_ready = is_ready;
        Ok(count)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Woken, PollError> {
        let start = Instant::now();
        loop {
            {
                let mut state = self.net.state();
                state.pass();
                if let Some(queue) = state.queues.get_mut(&self.number) {
                    if std::mem::take(&mut queue.is_woken) {
                        return Ok(Woken::Wake);
                    }
                    if queue.is_ready {
                        return Ok(Woken::Ready);
                    }
                }
            }
            if start.elapsed() >= timeout {
                return Ok(Woken::Timeout);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn waker(&self) -> SimWaker {
        SimWaker(self.net.clone(), self.number)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct SimConnection {
    net: FabricNet,
    number: u64,
    endpoint: [u8; 16],
    counters: Counters,
}

impl SimConnection {
    fn with<T>(&self, body: impl FnOnce(&mut Link) -> T) -> T {
        body(self.net.state().links.get_mut(&self.number).expect("it lives until it is destroyed"))
    }

    fn place(local: &Local<'_, SimRegion>, writes: bool) -> Result<Place, PostProblem> {
        let region_bytes = local.region.memory.len();
        let (offset, bytes) = (local.offset, local.bytes);
        if offset > region_bytes || u64::from(bytes) > region_bytes - offset {
            return Err(PostProblem::OutOfRegion { offset, bytes, region_bytes });
        }
        if writes && !local.region.access.contains(Access::LOCAL_WRITE) {
            return Err(PostProblem::RegionAccess);
        }
        Ok(Place { memory: Arc::clone(&local.region.memory), offset, bytes })
    }

    fn payload(source: &Source<'_, SimRegion>, inline_bytes: u32) -> Result<Payload, PostProblem> {
        Ok(match source {
            Source::Inline(bytes) if bytes.len() > usize::try_from(inline_bytes).unwrap_or(0) => {
                return Err(PostProblem::InlineTooLong { bytes: bytes.len(), inline_bytes });
            }
            Source::Inline(bytes) => Payload::Inline(bytes.to_vec()),
            Source::Region(local) => {
                let bytes = local.bytes;
                if bytes > MESSAGE_BYTES_MAX {
                    return Err(PostProblem::MessageTooLong { bytes, bytes_max: MESSAGE_BYTES_MAX });
                }
                Payload::Place(Self::place(local, false)?)
            }
        })
    }

    fn work(request: &Request<'_, SimRegion>, inline_bytes: u32) -> Result<Work, PostProblem> {
        Ok(match &request.operation {
            Operation::Write { source, to } => Work::Write {
                payload: Self::payload(source, inline_bytes)?,
                address: to.address,
                key: to.key.0,
                immediate: None,
            },
            Operation::WriteImmediate { source, to, immediate } => Work::Write {
                payload: Self::payload(source, inline_bytes)?,
                address: to.address,
                key: to.key.0,
                immediate: Some(*immediate),
            },
            Operation::Read { into, from } => {
                Work::Read { into: Self::place(into, true)?, address: from.address, key: from.key.0 }
            }
            Operation::Send { source, immediate } => {
                Work::Send { payload: Self::payload(source, inline_bytes)?, immediate: *immediate }
            }
        })
    }

    fn post_all(&self, chain: &[Request<'_, SimRegion>]) -> Result<(), PostError> {
        if chain.is_empty() {
            return Ok(());
        }
        let mut state = self.net.state();
        let link = state.links.get(&self.number).expect("it lives until it is destroyed");
        if link.seen != ConnectionState::Ready {
            return Err(PostError { posted: 0, problem: PostProblem::State { state: link.seen } });
        }
        let (free, depth) = (link.options.send_depth - link.sends_used, link.options.send_depth);
        if chain.len() > usize::try_from(free).unwrap_or(usize::MAX) {
            let problem = PostProblem::QueueFull { asked: chain.len(), free, depth };
            return Err(PostError { posted: 0, problem });
        }
        let inline_bytes = link.options.inline_bytes;
        for (posted, request) in chain.iter().enumerate() {
            let work = Self::work(request, inline_bytes);
            let work = work.map_err(|problem| PostError { posted, problem })?;
            state.take(self.number, Posted { id: request.id, work, signalled: request.signalled });
        }
        Ok(())
    }

    fn push(&self, id: u64, work: Work) -> Result<(), PostProblem> {
        let number = self.number;
        self.with(|link| {
            if link.seen != ConnectionState::Ready {
                return Err(PostProblem::State { state: link.seen });
            }
            let (free, depth) = (link.options.send_depth - link.sends_used, link.options.send_depth);
            if free == 0 {
                return Err(PostProblem::QueueFull { asked: 1, free, depth });
            }
            Ok(())
        })?;
        self.net.state().take(number, Posted { id, work, signalled: true });
        Ok(())
    }
}

impl Connection for SimConnection {
    type Region = SimRegion;
    type Window = SimWindow;

    fn id(&self) -> ConnectionId {
        ConnectionId(self.number)
    }

    fn endpoint(&self) -> &[u8] {
        &self.endpoint
    }

    fn connect(&mut self, peer: &[u8]) -> Result<(), ConnectError> {
        let peer = number_of(peer).ok_or(ConnectError::Endpoint { what: "not one of this fabric" })?;
        let mut state = self.net.state();
        let number = self.number;
        let link = state.links.get_mut(&number).expect("it lives until it is destroyed");
        if link.state != ConnectionState::Initial {
            return Err(ConnectError::State { state: link.state });
        }
        link.peer = Some(peer);
        link.state = ConnectionState::Connecting;
        link.seen = ConnectionState::Connecting;
        let Some(other) = state.links.get_mut(&peer) else {
            state.set_error(number, ErrorCause::ConnectFailed);
            return Ok(());
        };
        if other.peer == Some(number) && other.state == ConnectionState::Connecting {
            other.state = ConnectionState::Ready;
            state.links.get_mut(&number).expect("as above").state = ConnectionState::Ready;
            state.touch(number);
            state.touch(peer);
            state.pump(number);
            state.pump(peer);
        } else if matches!(other.state, ConnectionState::Error(_)) {
            state.set_error(number, ErrorCause::ConnectFailed);
        }
        Ok(())
    }

    fn state(&self) -> ConnectionState {
        self.with(|link| link.seen)
    }

    fn outstanding(&self) -> Outstanding {
        self.with(|link| Outstanding { sends: link.sends_used, receives: link.receives_used })
    }

    fn transfer(&self) -> Transfer {
        let state = self.net.state();
        let own = state.links.get(&self.number);
        let peer = own.and_then(|link| link.peer).and_then(|peer| state.links.get(&peer));
        let is_whole = |link: Option<&Link>| link.is_some_and(|link| link.device == Device::Pages);
        transfer(if is_whole(own) || is_whole(peer) { Device::Pages } else { Device::Any })
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn post(&mut self, chain: &[Request<'_, SimRegion>]) -> Result<(), PostError> {
        let result = self.post_all(chain);
        let posted = result.as_ref().map_or_else(|error| error.posted, |()| chain.len());
        self.counters.count(&chain[..posted]);
        result
    }

    fn post_receives(&mut self, receives: &[Receive<'_, SimRegion>]) -> Result<(), PostError> {
        let number = self.number;
        if receives.is_empty() {
            return Ok(());
        }
        let mut state = self.net.state();
        let link = state.links.get(&number).expect("it lives until it is destroyed");
        if matches!(link.seen, ConnectionState::Error(_)) {
            return Err(PostError { posted: 0, problem: PostProblem::State { state: link.seen } });
        }
        let (free, depth) = (link.options.receive_depth - link.receives_used, link.options.receive_depth);
        if receives.len() > usize::try_from(free).unwrap_or(usize::MAX) {
            let problem = PostProblem::QueueFull { asked: receives.len(), free, depth };
            return Err(PostError { posted: 0, problem });
        }
        for (posted, receive) in receives.iter().enumerate() {
            let into = receive.into.as_ref().map(|local| Self::place(local, true)).transpose();
            let into = into.map_err(|problem| PostError { posted, problem })?;
            let link = state.links.get_mut(&number).expect("as above");
            link.receives_used += 1;
            if matches!(link.state, ConnectionState::Error(_)) {
                state.complete_receive(number, receive.id, Status::Flushed);
            } else {
                link.receives.push_back((receive.id, into));
            }
        }
        Ok(())
    }

    fn bind(
        &mut self,
        id: u64,
        window: &mut SimWindow,
        region: &SimRegion,
        range: Range<u64>,
        access: Access,
    ) -> Result<RemoteRange, BindError> {
        if window.bound.is_some() {
            return Err(BindProblem::StillBound.into());
        }
        if window.binds_left() == 0 {
            return Err(BindProblem::KeysExhausted.into());
        }
        let region_bytes = region.memory.len();
        if range.start >= range.end || range.end > region_bytes {
            let (start, end) = (range.start, range.end);
            return Err(BindProblem::Range { start, end, region_bytes, window_bytes_max: 1 << 40 }.into());
        }
        let covers = region.access.contains(Access::WINDOW_BIND)
            && (!access.contains(Access::REMOTE_WRITE) || region.access.contains(Access::LOCAL_WRITE));
        if !covers {
            return Err(BindProblem::RegionAccess.into());
        }
        let key = window.base + window.binds + 1;
        let address = (region.number << 42) + range.start;
        let remote = RemoteRange { address, bytes: range.end - range.start, key: RemoteKey(key) };
        let memory = Arc::clone(&region.memory);
        let work =
            Work::Bind { key, range: remote, region: region.number, access, memory, offset: range.start };
        self.push(id, work).map_err(|problem| BindError { problem: BindProblem::Post(problem) })?;
        self.counters.count_one();
        window.binds += 1;
        if window.binds_left() == 0 {
            self.net.state().counts.add(Mark::WindowUsedUp);
        }
        window.bound = Some((self.number, key));
        Ok(remote)
    }

    fn invalidate(&mut self, id: u64, window: &mut SimWindow) -> Result<(), InvalidateError> {
        let Some((link, key)) = window.bound else { return Err(InvalidateError::NotBound) };
        if link != self.number {
            return Err(InvalidateError::OtherConnection);
        }
        self.push(id, Work::Invalidate { key }).map_err(InvalidateError::Post)?;
        self.counters.count_one();
        window.bound = None;
        Ok(())
    }

    fn close(&mut self) {
        let mut state = self.net.state();
        state.fail(self.number, ErrorCause::Closed);
        if let Some(link) = state.links.get_mut(&self.number) {
            link.seen = link.state;
        }
    }

    fn destroy(self) {
        drop(self);
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        self.net.state().destroy(self.number);
    }
}
