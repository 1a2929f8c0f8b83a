//! One end of a case: its queue, its line to the other end, and the steps that all cases share.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::Control;
use super::{MakeMemory, Role};
use crate::{
    Access, Completion, CompletionQueue, Connection, ConnectionId, ConnectionOptions, ConnectionState,
    Fabric, HeapMemory, Local, Memory, Opcode, Operation, REMOTE_RANGE_BYTES, Receive, Remote, RemoteRange,
    Request, Source, Status, Transfer,
};

/// How long anything may take. Long, since devices stretch their own time limits and guests are slow.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// How long to look for what should not come.
const QUIET: Duration = Duration::from_millis(20);
const QUEUE_COMPLETIONS: u32 = 1024;

/// One end of a case.
pub struct Side<'a, F: Fabric> {
    /// Which end.
    pub(super) role: Role,
    pub(super) fabric: &'a F,
    pub(super) queue: F::CompletionQueue,
    control: &'a mut dyn Control,
    memory: MakeMemory<'a>,
    /// Bytes of a page, where transfers of mapped files are right in whole pages alone.
    page: Option<u64>,
    stash: VecDeque<Completion>,
}

impl<'a, F: Fabric> Side<'a, F> {
    pub(super) fn new(
        role: Role,
        fabric: &'a F,
        control: &'a mut dyn Control,
        memory: MakeMemory<'a>,
    ) -> Self {
        let capacity = QUEUE_COMPLETIONS.min(fabric.capabilities().completions_max);
        let queue = fabric.completion_queue(capacity).expect("a completion queue");
        let page = match fabric.capabilities().transfer {
            Transfer::Any => None,
            Transfer::WholePages { page_bytes } => Some(u64::from(page_bytes)),
        };
        Self { role, fabric, queue, control, memory, page, stash: VecDeque::new() }
    }

    pub(super) fn is_active(&self) -> bool {
        self.role == Role::Active
    }

    // The line.

    pub(super) fn say(&mut self, message: &[u8]) {
        self.control.say(message);
    }

    pub(super) fn hear(&mut self) -> Vec<u8> {
        self.control.hear(LIMIT)
    }

    /// Both ends have come to the same point.
    pub(super) fn agree(&mut self, point: &str) {
        self.say(point.as_bytes());
        let heard = self.hear();
        assert_eq!(String::from_utf8_lossy(&heard), point, "the two ends are at different points");
    }

    pub(super) fn say_range(&mut self, range: RemoteRange) {
        self.say(&range.encode());
    }

    pub(super) fn hear_range(&mut self) -> RemoteRange {
        let heard = self.hear();
        let bytes: [u8; REMOTE_RANGE_BYTES] = heard.as_slice().try_into().expect("a range");
        RemoteRange::decode(bytes)
    }

    // Connections.

    pub(super) fn options() -> ConnectionOptions {
        ConnectionOptions { send_depth: 32, receive_depth: 32, inline_bytes: 0 }
    }

    /// Connects with the other end, which does the same; `prepare` posts receives before the peer can send.
    pub(super) fn connect_with(
        &mut self,
        options: &ConnectionOptions,
        prepare: impl FnOnce(&mut F::Connection),
    ) -> F::Connection {
        let mut connection = self.fabric.connection(&self.queue, options).expect("a connection");
        assert_eq!(connection.state(), ConnectionState::Initial);
        prepare(&mut connection);
        let endpoint = connection.endpoint().to_vec();
        assert!(endpoint.len() <= 256, "an endpoint of {} bytes", endpoint.len());
        self.say(&endpoint);
        let peer = self.hear();
        connection.connect(&peer).expect("to connect");
        self.until("the connection is ready", |_| match connection.state() {
            ConnectionState::Ready => true,
            ConnectionState::Connecting => false,
            state @ (ConnectionState::Initial | ConnectionState::Error(_)) => panic!("connecting: {state:?}"),
        });
        self.agree("ready");
        connection
    }

    pub(super) fn connect(&mut self) -> F::Connection {
        self.connect_with(&Self::options(), |_| {})
    }

    /// Connects with `count` receives without buffers posted, ids from 0.
    pub(super) fn connect_receiving(&mut self, count: u64) -> F::Connection {
        self.connect_with(&Self::options(), |connection| {
            let receives: Vec<_> = (0..count).map(|id| Receive { id, into: None }).collect();
            connection.post_receives(&receives).expect("receives");
        })
    }

    // Geometry: where transfers are right in whole pages alone, each is made of pages.

    /// So many bytes, made up to whole pages where it must be.
    pub(super) fn whole(&self, bytes: u64) -> u64 {
        self.page.map_or(bytes, |page| bytes.next_multiple_of(page))
    }

    /// The length of a request.
    pub(super) fn whole_u32(&self, bytes: u32) -> u32 {
        u32::try_from(self.whole(u64::from(bytes))).expect("a short request")
    }

    /// An odd offset where that is allowed, otherwise 0.
    pub(super) fn odd(&self, offset: u64) -> u64 {
        if self.page.is_some() { 0 } else { offset }
    }

    /// Bytes of memory that has room for the case's handful of small transfers.
    pub(super) fn area(&self, bytes: u64) -> u64 {
        self.page.map_or(bytes, |page| bytes.max(16 * page))
    }

    pub(super) fn in_pages(&self) -> bool {
        self.page.is_some()
    }

    // Memory.

    /// Memory with `byte` everywhere, and a region over it. What this end cannot have peers write into is the heap's.
    pub(super) fn region(&self, bytes: u64, byte: u8, access: Access) -> (Arc<dyn Memory>, F::Region) {
        let writes = access.intersects(Access::LOCAL_WRITE | Access::WINDOW_BIND);
        let image = self.fabric.capabilities().staged_image && writes;
        let memory = if image { Arc::new(HeapMemory::new(bytes)) } else { (self.memory)(bytes) };
        self.registered(memory, byte, access)
    }

    /// The same on the heap: what sends come from and go to.
    pub(super) fn plain_region(&self, bytes: u64, byte: u8, access: Access) -> (Arc<dyn Memory>, F::Region) {
        self.registered(Arc::new(HeapMemory::new(bytes)), byte, access)
    }

    fn registered(&self, memory: Arc<dyn Memory>, byte: u8, access: Access) -> (Arc<dyn Memory>, F::Region) {
        fill(&*memory, 0..memory.len(), byte);
        let region = self.fabric.register(Arc::clone(&memory), access).expect("a region");
        (memory, region)
    }

    /// Memory that windows may open to peers.
    pub(super) fn open_region(&self, bytes: u64, byte: u8) -> (Arc<dyn Memory>, F::Region) {
        self.region(bytes, byte, Access::LOCAL_WRITE | Access::WINDOW_BIND)
    }

    /// A window over `range`, bound and complete.
    pub(super) fn bound(
        &mut self,
        connection: &mut F::Connection,
        region: &F::Region,
        range: Range<u64>,
        access: Access,
    ) -> (F::Window, RemoteRange) {
        let mut window = self.fabric.allocate_window().expect("a window");
        let remote = connection.bind(9000, &mut window, region, range.clone(), access).expect("a bind");
        assert_eq!(remote.bytes, range.end - range.start);
        let bound = self.sent(connection, 9000, Status::Success);
        assert_eq!(bound.opcode, Opcode::Bind);
        (window, remote)
    }

    /// Passive's usual beginning: memory of zeros that is open to the other end through one window over all of it, which is told. Dropped in
    /// this order from the back: the window goes before its region.
    pub(super) fn opens(
        &mut self,
        connection: &mut F::Connection,
        bytes: u64,
        access: Access,
    ) -> (Arc<dyn Memory>, F::Region, F::Window) {
        let (memory, region) = self.open_region(bytes, 0);
        let (window, remote) = self.bound(connection, &region, 0..bytes, access);
        self.say_range(remote);
        (memory, region, window)
    }

    /// Invalidates, and sees the completion.
    pub(super) fn invalidated(&mut self, connection: &mut F::Connection, window: &mut F::Window) {
        connection.invalidate(9001, window).expect("an invalidation");
        let invalidated = self.sent(connection, 9001, Status::Success);
        assert_eq!(invalidated.opcode, Opcode::Invalidate);
    }

    // Completions.

    /// Polls until `done`; what is polled meanwhile is kept.
    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut VecDeque<Completion>) -> bool) {
        let end = Instant::now() + LIMIT;
        let mut polled = [Completion::BLANK; 16];
        loop {
            let count = self.queue.poll(&mut polled).expect("to poll");
            self.stash.extend(&polled[..count]);
            if done(&mut self.stash) {
                return;
            }
            assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
            if count == 0 {
                self.queue.wait(Duration::from_millis(100)).expect("to wait");
            }
        }
    }

    /// The next completion of one of a connection's two queues.
    pub(super) fn next(&mut self, connection: ConnectionId, receive: bool) -> Completion {
        let mut found = None;
        self.until("a completion", |stash| {
            let at = stash.iter().position(|completion| {
                completion.connection == connection && completion.opcode.is_receive() == receive
            });
            found = at.and_then(|at| stash.remove(at));
            found.is_some()
        });
        found.expect("until it is found")
    }

    /// The next completion of the send queue, which is that of `id`.
    pub(super) fn sent(&mut self, connection: &F::Connection, id: u64, status: Status) -> Completion {
        let completion = self.next(connection.id(), false);
        assert_eq!((completion.id, completion.status), (id, status), "{completion:?}");
        completion
    }

    /// The next completion of the receive queue, which is that of `id`.
    pub(super) fn received(&mut self, connection: &F::Connection, id: u64, status: Status) -> Completion {
        let completion = self.next(connection.id(), true);
        assert_eq!((completion.id, completion.status), (id, status), "{completion:?}");
        completion
    }

    /// Nothing (more) comes.
    pub(super) fn quiet(&mut self) {
        let end = Instant::now() + QUIET;
        self.until("a quiet time", |stash| {
            assert!(stash.is_empty(), "nothing was to come: {stash:?}");
            Instant::now() >= end
        });
    }

    pub(super) fn in_error(&mut self, connection: &F::Connection) {
        self.until("the connection is in error", |_| matches!(connection.state(), ConnectionState::Error(_)));
    }

    pub(super) fn drained(&mut self, connection: &F::Connection) {
        self.until("the connection is drained", |_| {
            let outstanding = connection.outstanding();
            outstanding.sends == 0 && outstanding.receives == 0
        });
        self.stash.retain(|completion| completion.connection != connection.id());
    }

    pub(super) fn post(&self, connection: &mut F::Connection, chain: &[Request<'_, F::Region>]) {
        connection.post(chain).expect("to post");
    }
}

/// A stretch of a region.
pub(super) fn local<R>(region: &R, offset: u64, bytes: u32) -> Local<'_, R> {
    Local { region, offset, bytes }
}

/// A signalled write of a stretch of a region.
pub(super) fn write<'a, R>(id: u64, from: Local<'a, R>, to: Remote) -> Request<'a, R> {
    let operation = Operation::Write { source: Source::Region(from), to };
    Request { id, operation, signalled: true }
}

/// A signalled write with immediate of a stretch of a region.
pub(super) fn write_immediate<'a, R>(
    id: u64,
    from: Local<'a, R>,
    to: Remote,
    immediate: u32,
) -> Request<'a, R> {
    let operation = Operation::WriteImmediate { source: Source::Region(from), to, immediate };
    Request { id, operation, signalled: true }
}

pub(super) fn unsignalled<R>(request: Request<'_, R>) -> Request<'_, R> {
    Request { signalled: false, ..request }
}

/// A signalled read.
pub(super) fn read<'a, R>(id: u64, into: Local<'a, R>, from: Remote) -> Request<'a, R> {
    Request { id, operation: Operation::Read { into, from }, signalled: true }
}

pub(super) fn send<'a, R>(id: u64, from: Local<'a, R>, immediate: Option<u32>) -> Request<'a, R> {
    let operation = Operation::Send { source: Source::Region(from), immediate };
    Request { id, operation, signalled: true }
}

pub(super) fn fill(memory: &dyn Memory, range: Range<u64>, byte: u8) {
    let len = usize::try_from(range.end - range.start).expect("a short range");
    memory.write(range.start, &vec![byte; len]);
}

/// A pattern in which no stretch of some length looks like another.
pub(super) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut pattern = Vec::with_capacity(bytes + 8);
    while pattern.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pattern.extend_from_slice(&state.to_le_bytes());
    }
    pattern.truncate(bytes);
    pattern
}

pub(super) fn bytes_of(memory: &dyn Memory, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("a short range")];
    memory.read(range.start, &mut bytes);
    bytes
}

/// Asserts that every byte of a stretch is `byte`.
pub(super) fn untouched(memory: &dyn Memory, range: Range<u64>, byte: u8) {
    let bytes = bytes_of(memory, range.clone());
    if let Some(at) = bytes.iter().position(|found| *found != byte) {
        panic!("byte {at} of {range:?} is {:#04x}, it was {byte:#04x}", bytes[at]);
    }
}

/// Asserts that a stretch holds just these bytes.
pub(super) fn holds(memory: &dyn Memory, offset: u64, expected: &[u8]) {
    let len = u64::try_from(expected.len()).expect("a length");
    let found = bytes_of(memory, offset..offset + len);
    if let Some(at) = (0..expected.len()).find(|at| found[*at] != expected[*at]) {
        panic!(
            "byte {at} of the {len} at {offset} is {:#04x} where {:#04x} was due",
            found[at], expected[at]
        );
    }
}
