//! A fabric in memory with the semantics of the model, for drivers that are stepped by hand. Nothing in it waits for time and
//! nothing is random: a request lies in its connection's queue until [`World::step`] executes it, or, in an automatic world, until
//! somebody polls. It passes the conformance suite (tests/world.rs).
//!
//! The simulator has a fabric of its own, and what both check of a request is alike: it is the model's. That one depends on this crate, its requests travel on virtual time with faults,
//! and it knows no devices of several kinds; two that pass the same suite each by itself have not the same mistake.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, AllocateError, Backing, BindError, BindProblem, Capabilities, Completion, CompletionQueue,
    CompletionQueueError, ConnectError, Connection, ConnectionId, ConnectionOptions, ConnectionState,
    Counters, CreateError, ErrorCause, Fabric, InvalidateError, Local, Memory, Opcode, Operation,
    Outstanding, PollError, PostError, PostProblem, Receive, Region, RegisterError, RemoteKey, RemoteRange,
    Request, Source, Status, Transfer, Wake, Window, Woken,
};

const DEPTH_MAX: u32 = 1 << 14;
const COMPLETIONS_MAX: u32 = 1 << 20;
const INLINE_BYTES_MAX: u32 = 4096;
const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// All fabrics that can reach each other.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

/// How the devices of a world deal with mapped files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    /// Any transfer lands right.
    Any,
    /// Whole pages alone do; a driver that asks for another has a defect.
    WholePages,
    /// They can't be written into.
    Staged,
}

struct State {
    files: Files,
    has_windows: bool,
    /// A fabric whose path carries no longer writes.
    narrow: Option<(u64, u64)>,
    is_automatic: bool,
    next: u64,
    links: BTreeMap<u64, Link>,
    keys: BTreeMap<u32, Key>,
    next_key: u32,
    queues: BTreeMap<u64, Queue>,
    /// How far each region was asked to be brought in.
    prefetched: BTreeMap<u64, Range<u64>>,
    ahead: Ahead,
    /// Whether no further memory can be registered.
    is_locked_up: bool,
}

/// Bytes written into mapped files, by whether the owner had asked to bring them in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) asked_for: u64,
    pub(crate) unasked: u64,
}

#[derive(Default)]
struct Queue {
    capacity: u32,
    used: u32,
    is_woken: bool,
}

/// One end of a connection.
struct Link {
    queue: u64,
    fabric: u64,
    peer: Option<u64>,
    state: ConnectionState,
    /// As far as polling has found out.
    seen: ConnectionState,
    options: ConnectionOptions,
    sends: VecDeque<Posted>,
    sends_used: u32,
    /// Slots of executed unsignalled requests, to be given back with the next completion.
    unfreed: u32,
    receives: VecDeque<(u64, Option<Place>)>,
    receives_used: u32,
    done: VecDeque<(Completion, u32)>,
}

struct Place {
    memory: Arc<dyn Memory>,
    region: u64,
    offset: u64,
    bytes: u32,
}

enum Payload {
    Inline(Vec<u8>),
    Place(Place),
}

enum Work {
    Write { payload: Payload, address: u64, key: u32, immediate: Option<u32> },
    Read { into: Place, address: u64, key: u32 },
    Send { payload: Payload, immediate: Option<u32> },
    Bind { key: u32, range: RemoteRange, region: u64, access: Access, memory: Arc<dyn Memory>, offset: u64 },
    Invalidate { key: u32 },
}

struct Posted {
    id: u64,
    work: Work,
    signalled: bool,
}

/// What a peer may name.
struct Key {
    memory: Arc<dyn Memory>,
    region: u64,
    /// The connection end that it was bound on; `None`: good on every connection of its fabric.
    link: Option<u64>,
    fabric: u64,
    address: u64,
    bytes: u64,
    /// Offset in the memory of `address`.
    offset: u64,
    access: Access,
}

impl Posted {
    fn opcode(&self) -> Opcode {
        match &self.work {
            Work::Write { .. } => Opcode::Write,
            Work::Read { .. } => Opcode::Read,
            Work::Send { .. } => Opcode::Send,
            Work::Bind { .. } => Opcode::Bind,
            Work::Invalidate { .. } => Opcode::Invalidate,
        }
    }
}

impl Link {
    /// Takes a posted request; where the connection is over and nobody has polled that yet, it is flushed at once.
    fn take(&mut self, number: u64, posted: Posted) {
        self.sends_used += 1;
        if matches!(self.state, ConnectionState::Error(_)) {
            self.flush(number, posted.id, posted.opcode());
        } else {
            self.sends.push_back(posted);
        }
    }

    fn flush(&mut self, number: u64, id: u64, opcode: Opcode) {
        let (connection, status) = (ConnectionId(number), Status::Flushed);
        self.done.push_back((Completion { id, connection, opcode, status, bytes: 0, immediate: None }, 1));
    }
}

fn endpoint(number: u64) -> [u8; 16] {
    let mut bytes = *b"world...........";
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl World {
    /// Requests are executed only by [`World::step`].
    pub(crate) fn stepped(files: Files) -> World {
        World::new(false, files)
    }

    /// Requests are executed whenever somebody polls.
    pub(crate) fn automatic() -> World {
        World::new(true, Files::Any)
    }

    /// Devices that have no windows. Requests are executed only by [`World::step`].
    pub(crate) fn without_windows(files: Files) -> World {
        let world = World::stepped(files);
        world.state().has_windows = false;
        world
    }

    /// From now on writes from or to this fabric that are longer than so many bytes don't arrive; `None`: all do.
    pub(crate) fn narrow(&self, narrow: Option<(u64, u64)>) {
        self.state().narrow = narrow;
    }

    fn new(is_automatic: bool, files: Files) -> World {
        World(Arc::new(Mutex::new(State {
            files,
            has_windows: true,
            narrow: None,
            is_automatic,
            next: 1,
            links: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_key: 1,
            queues: BTreeMap::new(),
            prefetched: BTreeMap::new(),
            ahead: Ahead::default(),
            is_locked_up: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written into mapped files so far.
    /// From now on the limit on locked memory is reached, or is not any more.
    pub(crate) fn lock_up(&self, is_locked_up: bool) {
        self.state().is_locked_up = is_locked_up;
    }

    pub(crate) fn ahead(&self) -> Ahead {
        self.state().ahead
    }

    pub(crate) fn fabric(&self) -> WorldFabric {
        let mut state = self.state();
        let number = state.number();
        WorldFabric { world: self.clone(), number, capabilities: capabilities(&state) }
    }

    /// The connection ends that have something to execute.
    pub(crate) fn pending(&self) -> Vec<u64> {
        let state = self.state();
        let is_pending = |link: &&Link| link.state == ConnectionState::Ready && !link.sends.is_empty();
        state.links.iter().filter(|(_, link)| is_pending(link)).map(|(number, _)| *number).collect()
    }

    /// Executes the next request of this connection end.
    pub(crate) fn step(&self, link: u64) {
        self.state().execute(link);
    }

    /// Cuts a connection: both ends find the other gone.
    pub(crate) fn cut(&self, link: u64) {
        let mut state = self.state();
        state.fail(link, ErrorCause::PeerGone);
    }
}

fn transfer(files: Files) -> Transfer {
    match files {
        Files::Any | Files::Staged => Transfer::Any,
        Files::WholePages => Transfer::WholePages { page_bytes: 4096 },
    }
}

fn capabilities(state: &State) -> Capabilities {
    let files = state.files;
    Capabilities {
        provider: "world",
        windows: state.has_windows,
        transfer: transfer(files),
        staged_image: files == Files::Staged,
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

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn execute_all(&mut self) {
        let ends: Vec<u64> = self.links.keys().copied().collect();
        for end in ends {
            while self
                .links
                .get(&end)
                .is_some_and(|l| l.state == ConnectionState::Ready && !l.sends.is_empty())
            {
                self.execute(end);
            }
        }
    }

    /// The stretch that a peer's key opens to `from`'s other end, if it does.
    fn resolve(
        &self,
        from: u64,
        key: u32,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Option<(Arc<dyn Memory>, u64)> {
        let peer = self.links.get(&from)?.peer?;
        let owner = self.links.get(&peer)?;
        let key = self.keys.get(&key)?;
        let is_its = match key.link {
            Some(link) => link == peer,
            None => key.fabric == owner.fabric,
        };
        let start = address.checked_sub(key.address)?;
        let fits = start <= key.bytes && bytes <= key.bytes - start;
        (is_its && fits && key.access.contains(access)).then(|| (Arc::clone(&key.memory), key.offset + start))
    }

    fn execute(&mut self, end: u64) {
        let Some(link) = self.links.get_mut(&end) else { return };
        let Some(posted) = link.sends.pop_front() else { return };
        let peer = link.peer.expect("a connection that is ready has a peer");
        let opcode = posted.opcode();
        match self.carry_out(end, peer, posted.work) {
            Ok(bytes) => self.succeed(end, posted.id, opcode, bytes, posted.signalled),
            Err(status) => {
                self.complete(end, posted.id, opcode, status, 0);
                let is_refused = matches!(status, Status::RemoteAccess | Status::RemoteInvalid);
                let cause = if is_refused { ErrorCause::PeerRefused } else { ErrorCause::PeerGone };
                self.set_error(end, ErrorCause::RequestFailed);
                self.set_error(peer, cause);
            }
        }
    }

    fn is_too_long(&self, end: u64, bytes: u64) -> bool {
        let fabric = self.links.get(&end).map(|link| link.fabric);
        self.narrow.is_some_and(|(narrow, bytes_max)| fabric == Some(narrow) && bytes > bytes_max)
    }

    /// A device of this world would misplace it.
    fn check(&self, memory: &dyn Memory, offset: u64, bytes: u64) {
        let is_right = memory.backing() != Backing::MappedFile || transfer(self.files).allows(offset, bytes);
        assert!(is_right, "{bytes} bytes at {offset} of a peer's mapped file are not whole pages");
    }

    fn carry_out(&mut self, end: u64, peer: u64, work: Work) -> Result<u32, Status> {
        match work {
            Work::Write { payload, address, key, immediate } => {
                let bytes = take(&payload);
                let length = bytes.len() as u64;
                if self.is_too_long(end, length) || self.is_too_long(peer, length) {
                    return Err(Status::PeerGone);
                }
                if length > 0 {
                    let found = self.resolve(end, key, address, length, Access::REMOTE_WRITE);
                    let (memory, offset) = found.ok_or(Status::RemoteAccess)?;
                    self.check(&*memory, offset, length);
                    memory.write(offset, &bytes);
                    if memory.backing() == Backing::MappedFile {
                        let region = self.keys[&key].region;
                        let asked = self.prefetched.get(&region).cloned().unwrap_or_default();
                        let is_ahead = asked.contains(&offset) && offset + length <= asked.end;
                        let bytes =
                            if is_ahead { &mut self.ahead.asked_for } else { &mut self.ahead.unasked };
                        *bytes += length;
                    }
                }
                if let Some(immediate) = immediate {
                    let receiver = self.links.get_mut(&peer).ok_or(Status::PeerGone)?;
                    let (id, _) = receiver.receives.pop_front().ok_or(Status::ReceiverNotReady)?;
                    let bytes = u32::try_from(length).unwrap();
                    self.received(peer, id, Opcode::ReceiveWrite, bytes, Some(immediate));
                }
                Ok(0)
            }
            Work::Read { into, address, key } => {
                let mut bytes = vec![0; into.bytes as usize];
                if !bytes.is_empty() {
                    let found = self.resolve(end, key, address, u64::from(into.bytes), Access::REMOTE_READ);
                    let (memory, offset) = found.ok_or(Status::RemoteAccess)?;
                    self.check(&*memory, offset, u64::from(into.bytes));
                    memory.read(offset, &mut bytes);
                    into.memory.write(into.offset, &bytes);
                }
                Ok(into.bytes)
            }
            Work::Send { payload, immediate } => {
                let bytes = take(&payload);
                let receiver = self.links.get_mut(&peer).ok_or(Status::PeerGone)?;
                let (id, into) = receiver.receives.pop_front().ok_or(Status::ReceiverNotReady)?;
                let room = into.as_ref().map_or(0, |place| place.bytes as usize);
                if bytes.len() > room {
                    self.complete_receive(peer, id, Status::LocalAccess);
                    return Err(Status::RemoteInvalid);
                }
                if let Some(place) = into {
                    place.memory.write(place.offset, &bytes);
                }
                let length = u32::try_from(bytes.len()).unwrap();
                self.received(peer, id, Opcode::Receive, length, immediate);
                Ok(0)
            }
            Work::Bind { key, range, region, access, memory, offset } => {
                let fabric = self.links[&end].fabric;
                let (address, bytes) = (range.address, range.bytes);
                let opened = Key { memory, region, link: Some(end), fabric, address, bytes, offset, access };
                self.keys.insert(key, opened);
                Ok(0)
            }
            Work::Invalidate { key } => {
                self.keys.remove(&key);
                Ok(0)
            }
        }
    }

    fn succeed(&mut self, end: u64, id: u64, opcode: Opcode, bytes: u32, signalled: bool) {
        if signalled {
            self.complete(end, id, opcode, Status::Success, bytes);
        } else if let Some(link) = self.links.get_mut(&end) {
            link.unfreed += 1;
        }
    }

    fn complete(&mut self, end: u64, id: u64, opcode: Opcode, status: Status, bytes: u32) {
        if let Some(link) = self.links.get_mut(&end) {
            let frees = 1 + std::mem::take(&mut link.unfreed);
            let connection = ConnectionId(end);
            link.done
                .push_back((Completion { id, connection, opcode, status, bytes, immediate: None }, frees));
        }
    }

    fn received(&mut self, end: u64, id: u64, opcode: Opcode, bytes: u32, immediate: Option<u32>) {
        if let Some(link) = self.links.get_mut(&end) {
            let connection = ConnectionId(end);
            let status = Status::Success;
            link.done.push_back((Completion { id, connection, opcode, status, bytes, immediate }, 1));
        }
    }

    fn complete_receive(&mut self, end: u64, id: u64, status: Status) {
        if let Some(link) = self.links.get_mut(&end) {
            let connection = ConnectionId(end);
            let opcode = Opcode::Receive;
            link.done
                .push_back((Completion { id, connection, opcode, status, bytes: 0, immediate: None }, 1));
        }
    }

    /// Moves an end to error: what is outstanding completes as flushed.
    fn set_error(&mut self, end: u64, cause: ErrorCause) {
        let Some(link) = self.links.get_mut(&end) else { return };
        if matches!(link.state, ConnectionState::Error(_)) {
            return;
        }
        link.state = ConnectionState::Error(cause);
        let sends = std::mem::take(&mut link.sends);
        let receives = std::mem::take(&mut link.receives);
        for posted in sends {
            self.complete(end, posted.id, posted.opcode(), Status::Flushed, 0);
        }
        for (id, _) in receives {
            self.complete_receive(end, id, Status::Flushed);
        }
        // Unsignalled slots whose request was executed come back with the error, too.
        if let Some(link) = self.links.get_mut(&end) {
            link.sends_used -= std::mem::take(&mut link.unfreed);
        }
    }

    /// An end goes: its peer finds it gone.
    fn fail(&mut self, end: u64, cause: ErrorCause) {
        let peer = self.links.get(&end).and_then(|link| link.peer);
        self.set_error(end, cause);
        if let Some(peer) = peer {
            self.set_error(peer, ErrorCause::PeerGone);
        }
    }
}

fn take(payload: &Payload) -> Vec<u8> {
    match payload {
        Payload::Inline(bytes) => bytes.clone(),
        Payload::Place(place) => {
            let mut bytes = vec![0; place.bytes as usize];
            place.memory.read(place.offset, &mut bytes);
            bytes
        }
    }
}

/// One member's fabric.
pub(crate) struct WorldFabric {
    world: World,
    number: u64,
    capabilities: Capabilities,
}

impl WorldFabric {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Fabric for WorldFabric {
    type Region = WorldRegion;
    type Window = WorldWindow;
    type CompletionQueue = WorldQueue;
    type Connection = WorldConnection;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&self, memory: Arc<dyn Memory>, access: Access) -> Result<WorldRegion, RegisterError> {
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::AccessCombination);
        }
        let mut state = self.world.state();
        if state.is_locked_up {
            return Err(RegisterError::MemoryLockLimit { bytes: memory.len(), limit_bytes: 8 << 20 });
        }
        let is_written = access.contains(Access::LOCAL_WRITE) || access.contains(Access::WINDOW_BIND);
        if state.files == Files::Staged && memory.backing() == Backing::MappedFile && is_written {
            return Err(RegisterError::StagedImageWanted);
        }
        let number = state.number();
        let key = access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE).then(|| {
            let key = state.next_key << 8;
            state.next_key += 1;
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
        Ok(WorldRegion { world: self.world.clone(), number, memory, access, key })
    }

    fn allocate_window(&self) -> Result<WorldWindow, AllocateError> {
        let mut state = self.world.state();
        if !state.has_windows {
            return Err(AllocateError::NotSupported);
        }
        let base = state.next_key << 8;
        state.next_key += 1;
        Ok(WorldWindow { world: self.world.clone(), base, binds: 0, bound: None })
    }

    fn completion_queue(&self, capacity: u32) -> Result<WorldQueue, CompletionQueueError> {
        if capacity == 0 || capacity > COMPLETIONS_MAX {
            return Err(CompletionQueueError::Capacity { capacity, capacity_max: COMPLETIONS_MAX });
        }
        let mut state = self.world.state();
        let number = state.number();
        state.queues.insert(number, Queue { capacity, ..Queue::default() });
        Ok(WorldQueue { world: self.world.clone(), number })
    }

    fn connection(
        &self,
        queue: &WorldQueue,
        options: &ConnectionOptions,
    ) -> Result<WorldConnection, CreateError> {
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
        let mut state = self.world.state();
        let needed = options.send_depth + options.receive_depth;
        let of_queue = state.queues.get_mut(&queue.number).expect("a queue lives as long as it is used");
        let left = of_queue.capacity - of_queue.used;
        if needed > left {
            return Err(CreateError::QueueTooSmall { needed, left });
        }
        of_queue.used += needed;
        let number = state.number();
        state.links.insert(
            number,
            Link {
                queue: queue.number,
                fabric: self.number,
                peer: None,
                state: ConnectionState::Initial,
                seen: ConnectionState::Initial,
                options: *options,
                sends: VecDeque::new(),
                sends_used: 0,
                unfreed: 0,
                receives: VecDeque::new(),
                receives_used: 0,
                done: VecDeque::new(),
            },
        );
        Ok(WorldConnection {
            world: self.world.clone(),
            number,
            endpoint: endpoint(number),
            counters: Counters::default(),
        })
    }
}

/// Registered memory.
pub(crate) struct WorldRegion {
    world: World,
    number: u64,
    memory: Arc<dyn Memory>,
    access: Access,
    key: Option<u32>,
}

impl Region for WorldRegion {
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

    fn prefetch(&self, range: Range<u64>) -> bool {
        let mut state = self.world.state();
        let asked = state.prefetched.entry(self.number).or_insert(range.clone());
        *asked = asked.start.min(range.start)..asked.end.max(range.end);
        true
    }
}

impl Drop for WorldRegion {
    fn drop(&mut self) {
        self.world.state().keys.retain(|_, key| key.region != self.number);
    }
}

/// A window. Its keys count up in their low 8 bits.
pub(crate) struct WorldWindow {
    world: World,
    base: u32,
    binds: u32,
    bound: Option<(u64, u32)>,
}

impl Window for WorldWindow {
    fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    fn binds_left(&self) -> u32 {
        255 - self.binds
    }
}

impl Drop for WorldWindow {
    fn drop(&mut self) {
        let (first, last) = (self.base, self.base + 255);
        let mut state = self.world.state();
        state.keys.retain(|key, _| *key < first || *key > last);
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
pub(crate) struct WorldQueue {
    world: World,
    number: u64,
}

/// Ends a wait.
#[derive(Clone)]
pub(crate) struct WorldWaker(World, u64);

impl Wake for WorldWaker {
    fn wake(&self) {
        if let Some(queue) = self.0.state().queues.get_mut(&self.1) {
            queue.is_woken = true;
        }
    }
}

impl CompletionQueue for WorldQueue {
    type Waker = WorldWaker;

    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        let mut state = self.world.state();
        if state.is_automatic {
            state.execute_all();
        }
        let mut count = 0;
        for link in state.links.values_mut().filter(|link| link.queue == self.number) {
            link.seen = link.state;
            while count < into.len() {
                let Some((completion, frees)) = link.done.pop_front() else { break };
                if completion.opcode.is_receive() {
                    link.receives_used -= frees;
                } else {
                    link.sends_used -= frees;
                }
                into[count] = completion;
                count += 1;
            }
        }
        Ok(count)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Woken, PollError> {
        let start = Instant::now();
        loop {
            {
                let mut state = self.world.state();
                if state.is_automatic {
                    state.execute_all();
                }
                if let Some(queue) = state.queues.get_mut(&self.number)
                    && std::mem::take(&mut queue.is_woken)
                {
                    return Ok(Woken::Wake);
                }
                let mut links = state.links.values().filter(|link| link.queue == self.number);
                if links.any(|link| !link.done.is_empty() || link.state != link.seen) {
                    return Ok(Woken::Ready);
                }
            }
            if start.elapsed() >= timeout {
                return Ok(Woken::Timeout);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn waker(&self) -> WorldWaker {
        WorldWaker(self.world.clone(), self.number)
    }
}

/// One end of a connection.
pub(crate) struct WorldConnection {
    world: World,
    number: u64,
    endpoint: [u8; 16],
    counters: Counters,
}

impl WorldConnection {
    fn with<T>(&self, body: impl FnOnce(&mut Link) -> T) -> T {
        body(self.world.state().links.get_mut(&self.number).expect("it lives until it is destroyed"))
    }

    fn place(local: &Local<'_, WorldRegion>, files: Files, writes: bool) -> Result<Place, PostProblem> {
        let region_bytes = local.region.memory.len();
        let (offset, bytes) = (local.offset, local.bytes);
        if offset > region_bytes || u64::from(bytes) > region_bytes - offset {
            return Err(PostProblem::OutOfRegion { offset, bytes, region_bytes });
        }
        let transfer = transfer(files);
        let is_mapped = local.region.memory.backing() == Backing::MappedFile;
        if let Transfer::WholePages { page_bytes } = transfer
            && is_mapped
            && !transfer.allows(offset, bytes.into())
        {
            return Err(PostProblem::NotWholePages { offset, bytes, page_bytes });
        }
        if writes && !local.region.access.contains(Access::LOCAL_WRITE) {
            return Err(PostProblem::RegionAccess);
        }
        Ok(Place { memory: Arc::clone(&local.region.memory), region: local.region.number, offset, bytes })
    }

    fn payload(
        source: &Source<'_, WorldRegion>,
        files: Files,
        inline_bytes: u32,
    ) -> Result<Payload, PostProblem> {
        Ok(match source {
            Source::Inline(bytes) if bytes.len() > inline_bytes as usize => {
                return Err(PostProblem::InlineTooLong { bytes: bytes.len(), inline_bytes });
            }
            Source::Inline(bytes) => Payload::Inline(bytes.to_vec()),
            Source::Region(local) => {
                let bytes = local.bytes;
                if bytes > MESSAGE_BYTES_MAX {
                    return Err(PostProblem::MessageTooLong { bytes, bytes_max: MESSAGE_BYTES_MAX });
                }
                Payload::Place(Self::place(local, files, false)?)
            }
        })
    }

    fn work(
        request: &Request<'_, WorldRegion>,
        files: Files,
        inline_bytes: u32,
    ) -> Result<Work, PostProblem> {
        Ok(match &request.operation {
            Operation::Write { source, to } => Work::Write {
                payload: Self::payload(source, files, inline_bytes)?,
                address: to.address,
                key: to.key.0,
                immediate: None,
            },
            Operation::WriteImmediate { source, to, immediate } => Work::Write {
                payload: Self::payload(source, files, inline_bytes)?,
                address: to.address,
                key: to.key.0,
                immediate: Some(*immediate),
            },
            Operation::Read { into, from } => {
                Work::Read { into: Self::place(into, files, true)?, address: from.address, key: from.key.0 }
            }
            Operation::Send { source, immediate } => {
                Work::Send { payload: Self::payload(source, files, inline_bytes)?, immediate: *immediate }
            }
        })
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
            link.take(number, Posted { id, work, signalled: true });
            Ok(())
        })
    }
}

impl Connection for WorldConnection {
    type Region = WorldRegion;
    type Window = WorldWindow;

    fn id(&self) -> ConnectionId {
        ConnectionId(self.number)
    }

    fn endpoint(&self) -> &[u8] {
        &self.endpoint
    }

    fn connect(&mut self, peer: &[u8]) -> Result<(), ConnectError> {
        let number_of = |peer: &[u8]| {
            let peer: [u8; 16] = peer.try_into().ok()?;
            let number = u64::from_le_bytes(peer[8..].try_into().ok()?);
            (peer == endpoint(number)).then_some(number)
        };
        let peer = number_of(peer).ok_or(ConnectError::Endpoint { what: "not one of this world" })?;
        let mut state = self.world.state();
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
        transfer(self.world.state().files)
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn post(&mut self, chain: &[Request<'_, WorldRegion>]) -> Result<(), PostError> {
        let (number, files) = (self.number, self.world.state().files);
        let result = self.with(|link| {
            if chain.is_empty() {
                return Ok(());
            }
            if link.seen != ConnectionState::Ready {
                return Err(PostError { posted: 0, problem: PostProblem::State { state: link.seen } });
            }
            let (free, depth) = (link.options.send_depth - link.sends_used, link.options.send_depth);
            if chain.len() > free as usize {
                let problem = PostProblem::QueueFull { asked: chain.len(), free, depth };
                return Err(PostError { posted: 0, problem });
            }
            for (posted, request) in chain.iter().enumerate() {
                let work = Self::work(request, files, link.options.inline_bytes);
                let work = work.map_err(|problem| PostError { posted, problem })?;
                link.take(number, Posted { id: request.id, work, signalled: request.signalled });
            }
            Ok(())
        });
        let posted = result.as_ref().map_or_else(|error| error.posted, |()| chain.len());
        self.counters.count(&chain[..posted]);
        result
    }

    fn post_receives(&mut self, receives: &[Receive<'_, WorldRegion>]) -> Result<(), PostError> {
        let (number, files) = (self.number, self.world.state().files);
        self.with(|link| {
            if receives.is_empty() {
                return Ok(());
            }
            if matches!(link.seen, ConnectionState::Error(_)) {
                return Err(PostError { posted: 0, problem: PostProblem::State { state: link.seen } });
            }
            let (free, depth) = (link.options.receive_depth - link.receives_used, link.options.receive_depth);
            if receives.len() > free as usize {
                let problem = PostProblem::QueueFull { asked: receives.len(), free, depth };
                return Err(PostError { posted: 0, problem });
            }
            for (posted, receive) in receives.iter().enumerate() {
                let into = receive.into.as_ref().map(|local| Self::place(local, files, true)).transpose();
                let into = into.map_err(|problem| PostError { posted, problem })?;
                link.receives_used += 1;
                if matches!(link.state, ConnectionState::Error(_)) {
                    link.flush(number, receive.id, Opcode::Receive);
                } else {
                    link.receives.push_back((receive.id, into));
                }
            }
            Ok(())
        })
    }

    fn bind(
        &mut self,
        id: u64,
        window: &mut WorldWindow,
        region: &WorldRegion,
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
        window.bound = Some((self.number, key));
        Ok(remote)
    }

    fn invalidate(&mut self, id: u64, window: &mut WorldWindow) -> Result<(), InvalidateError> {
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
        let mut state = self.world.state();
        state.fail(self.number, ErrorCause::Closed);
        if let Some(link) = state.links.get_mut(&self.number) {
            link.seen = link.state;
        }
    }

    fn destroy(self) {
        drop(self);
    }
}

impl Drop for WorldConnection {
    fn drop(&mut self) {
        let mut state = self.world.state();
        state.fail(self.number, ErrorCause::Closed);
        let number = self.number;
        state.keys.retain(|_, key| key.link != Some(number));
        if let Some(link) = state.links.remove(&number)
            && let Some(queue) = state.queues.get_mut(&link.queue)
        {
            queue.used -= link.options.send_depth + link.options.receive_depth;
        }
    }
}
