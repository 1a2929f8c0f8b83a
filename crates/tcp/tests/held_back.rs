//! A write that is held back on its way while its permission is taken back: it must not land once it comes through. The same write without
//! the revocation lands, so the test can fail.
//!
//! The network is a relay between the two ends of one connection, which stops passing the writer's bytes on after so many of them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric, HeapMemory,
    Local, Memory, Operation, RemoteRange, Request, Source, Status, Window,
};
use windlass_tcp::auth::Secret;
use windlass_tcp::{Options, TcpCompletionQueue, TcpConnection, TcpFabric, TcpWindow};

const AREA: u64 = 256 << 10;
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 25;

fn open() -> TcpFabric {
    let secret = Secret::new(b"the secret of held-back writes").expect("long enough");
    // A held-back write is not to be taken for a dead peer while this test is starved.
    let options = Options { stall_timeout: PATIENCE, ..Options::new(secret, [7; 16]) };
    TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!())).expect("loopback")
}

/// How many of the writer's bytes may pass; `None`: all.
struct Gate {
    limit: Mutex<Option<u64>>,
    moved: Condvar,
}

impl Gate {
    fn set(&self, limit: Option<u64>) {
        *self.limit.lock().expect("no panic") = limit;
        self.moved.notify_all();
    }

    /// How many of `wanted` more bytes may pass behind the `passed` that did; waits until it is one at least.
    fn wait(&self, passed: u64, wanted: usize) -> usize {
        let mut limit = self.limit.lock().expect("no panic");
        loop {
            let Some(most) = *limit else { return wanted };
            let left = usize::try_from(most.saturating_sub(passed)).unwrap_or(usize::MAX);
            if left > 0 {
                return left.min(wanted);
            }
            limit = self.moved.wait(limit).expect("no panic");
        }
    }
}

/// A relay to `target`, whose gate applies from the dialler to the target, and how many bytes have passed it.
struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
    passed: Arc<Mutex<u64>>,
}

fn relay(target: SocketAddr) -> Relay {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    let gate = Arc::new(Gate { limit: Mutex::new(None), moved: Condvar::new() });
    let passed = Arc::new(Mutex::new(0));
    let (of_relay, count) = (Arc::clone(&gate), Arc::clone(&passed));
    std::thread::spawn(move || {
        let (dialler, _) = listener.accept().expect("a dialler");
        let target = TcpStream::connect(target).expect("the target listens");
        dialler.set_nodelay(true).expect("nodelay");
        target.set_nodelay(true).expect("nodelay");
        let (mut back_from, mut back_to) =
            (target.try_clone().expect("a handle"), dialler.try_clone().expect("a handle"));
        std::thread::spawn(move || {
            // However it ends: so does the connection.
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(Shutdown::Both);
        });
        let (mut from, mut to) = (dialler, target);
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            let mut rest = &bytes[..read];
            while !rest.is_empty() {
                let sent = *count.lock().expect("no panic");
                let next = of_relay.wait(sent, rest.len());
                // Held while they pass: who sees that they have arrived sees them counted.
                let mut passed = count.lock().expect("no panic");
                if to.write_all(&rest[..next]).is_err() {
                    return;
                }
                *passed += next as u64;
                drop(passed);
                rest = &rest[next..];
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    Relay { address, gate, passed }
}

/// An endpoint with its port put elsewhere (DESIGN.md section 7.2: the port stands in bytes 6 and 7).
fn through(endpoint: &[u8], relay: &Relay) -> Vec<u8> {
    let mut endpoint = endpoint.to_vec();
    endpoint[6..8].copy_from_slice(&relay.address.port().to_le_bytes());
    endpoint
}

fn port_of(endpoint: &[u8]) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], u16::from_le_bytes([endpoint[6], endpoint[7]])))
}

struct End {
    fabric: TcpFabric,
    queue: TcpCompletionQueue,
    connection: TcpConnection,
}

impl End {
    fn new() -> End {
        let fabric = open();
        let queue = fabric.completion_queue(64).expect("a queue");
        let options = ConnectionOptions { send_depth: 16, receive_depth: 16, inline_bytes: 0 };
        let connection = fabric.connection(&queue, &options).expect("a connection");
        End { fabric, queue, connection }
    }

    fn is_ready(&mut self) -> bool {
        self.queue.poll(&mut []).expect("to poll");
        self.connection.state() == ConnectionState::Ready
    }

    /// The status of the next completion.
    fn next(&mut self) -> Status {
        let end = Instant::now() + PATIENCE;
        let mut one = [Completion::BLANK];
        while self.queue.poll(&mut one).expect("to poll") == 0 {
            assert!(Instant::now() < end, "no completion");
            self.queue.wait(Duration::from_millis(10)).expect("to wait");
        }
        one[0].status
    }
}

/// What is done at the owner's end while the write is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// Nothing: the control run.
    Nothing,
    /// The window is invalidated, and the completion seen.
    Invalidate,
    /// All of the rule: invalidated, completion seen, closed, drained, destroyed.
    End,
}

/// Writes `bytes` through a window, holds them back after `pass` of what is sent, does something meanwhile, lets them through. Answers the
/// write's status, how many bytes had landed at the fence, and how many in the end.
fn round(bytes: u32, pass: u64, meanwhile: Meanwhile) -> (Status, u64, u64) {
    let (mut owner, mut writer) = (End::new(), End::new());
    let relay = relay(port_of(owner.connection.endpoint()));
    owner.connection.connect(writer.connection.endpoint()).expect("to connect");
    writer.connection.connect(&through(owner.connection.endpoint(), &relay)).expect("to connect");
    let end = Instant::now() + PATIENCE;
    // Each end dials on the thread that polls it: here the same.
    while !(owner.is_ready() & writer.is_ready()) {
        assert!(Instant::now() < end, "{:?}, {:?}", owner.connection.state(), writer.connection.state());
        std::thread::yield_now();
    }

    let memory: Arc<dyn Memory> = Arc::new(HeapMemory::new(AREA));
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let region = owner.fabric.register(Arc::clone(&memory), access).expect("a region");
    let mut window: TcpWindow = owner.fabric.allocate_window().expect("a window");
    let range: RemoteRange =
        owner.connection.bind(1, &mut window, &region, 0..AREA, Access::REMOTE_WRITE).expect("to bind");
    assert_eq!(owner.next(), Status::Success);

    let source: Arc<dyn Memory> = Arc::new(HeapMemory::new(AREA));
    source.write(0, &vec![0xab; bytes as usize]);
    let source = writer.fabric.register(source, Access::NONE).expect("a region");
    let before = *relay.passed.lock().expect("no panic");
    relay.gate.set(Some(before + pass));
    let source = Source::Region(Local { region: &source, offset: 0, bytes });
    let operation = Operation::Write { source, to: range.at(0) };
    writer.connection.post(&[Request { id: 2, operation, signalled: true }]).expect("to post");

    // What may pass has passed, and been placed: the requester goes on sending while it is polled.
    let settled = Instant::now() + Duration::from_millis(20);
    while Instant::now() < settled {
        assert_eq!(writer.queue.poll(&mut [Completion::BLANK]).expect("to poll"), 0, "it was not held back");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(*relay.passed.lock().expect("no panic") - before <= pass, "it was not held back");

    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Invalidate | Meanwhile::End => {
            owner.connection.invalidate(3, &mut window).expect("to invalidate");
            assert_eq!(owner.next(), Status::Success);
            assert!(!window.is_bound());
        }
    }
    let End { fabric, mut queue, mut connection } = owner;
    let mut kept = None;
    if meanwhile == Meanwhile::End {
        connection.close();
        let outstanding = connection.outstanding();
        assert_eq!((outstanding.sends, outstanding.receives), (0, 0));
        connection.destroy();
    } else {
        kept = Some(connection);
    }
    let at_the_fence = landed(&*memory);
    relay.gate.set(None);
    let status = writer.next();
    // Whatever still comes has come once the write is answered; the owner is polled for good measure.
    queue.poll(&mut [Completion::BLANK]).expect("to poll");
    let in_the_end = landed(&*memory);
    drop((kept, window, region, fabric));
    (status, at_the_fence, in_the_end)
}

fn landed(memory: &dyn Memory) -> u64 {
    let mut bytes = vec![0; usize::try_from(AREA).expect("small")];
    memory.read(0, &mut bytes);
    bytes.iter().filter(|byte| **byte == 0xab).count() as u64
}

/// Lengths and how much of the request passes before it is held back: nothing, part of its header, part of its payload.
fn shapes() -> impl Iterator<Item = (u32, u64)> {
    let lengths = [64, 4096, 50_000, 256 << 10];
    (0..ROUNDS).flat_map(move |round| {
        lengths.into_iter().map(move |bytes| {
            let pass = match round % 4 {
                0 => 0,
                1 => 16,
                2 => 40,
                _ => u64::from(bytes) / 2 + round,
            };
            (bytes, pass)
        })
    })
}

#[test]
fn a_write_held_back_through_a_revocation_does_not_land() {
    for (number, (bytes, pass)) in shapes().enumerate() {
        // 100 invalidations; where the connection is destroyed, too, it takes the writer a while to be sure of that.
        let others = number.is_multiple_of(7).then_some(Meanwhile::End);
        for meanwhile in [Some(Meanwhile::Invalidate), others].into_iter().flatten() {
            let (status, at_the_fence, in_the_end) = round(bytes, pass, meanwhile);
            let what = format!("{bytes} bytes, held back behind {pass}, {meanwhile:?}: {status:?}");
            match meanwhile {
                Meanwhile::Invalidate => assert_eq!(status, Status::RemoteAccess, "{what}"),
                Meanwhile::End | Meanwhile::Nothing => assert!(!status.is_success(), "{what}"),
            }
            assert_eq!(at_the_fence, in_the_end, "bytes landed behind the fence: {what}");
            assert!(in_the_end < u64::from(bytes), "all of it had landed before: {what}");
        }
    }
}

/// The control: what the fence keeps out would land without it.
#[test]
fn the_same_write_lands_without_the_revocation() {
    for (bytes, pass) in shapes().step_by(7) {
        let (status, at_the_fence, in_the_end) = round(bytes, pass, Meanwhile::Nothing);
        assert_eq!(status, Status::Success);
        assert!(at_the_fence < u64::from(bytes));
        assert_eq!(in_the_end, u64::from(bytes));
    }
}
