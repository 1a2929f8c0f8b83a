//! How long a small write and its notice take, against a raw exchange over loopback in the same run. Ignored: a measurement.
//!
//! `cargo test --release -p windlass-tcp --test latency -- --ignored --nocapture`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric, HeapMemory,
    Operation, Receive, RemoteRange, Request, Source,
};
use windlass_tcp::auth::Secret;
use windlass_tcp::{Options, TcpCompletionQueue, TcpConnection, TcpFabric, TcpRegion, TcpWindow};

const ROUNDS: usize = 4000;
const REPEATS: usize = 5;

struct End {
    queue: TcpCompletionQueue,
    connection: TcpConnection,
    _region: TcpRegion,
    _window: TcpWindow,
    own: RemoteRange,
    peer: Option<RemoteRange>,
}

fn open() -> TcpFabric {
    let secret = Secret::new(b"the secret of the latency measure").expect("long enough");
    let mut options = Options::new(secret, [1; 16]);
    if let Some(micros) = std::env::var("SPIN_US").ok().and_then(|value| value.parse().ok()) {
        options.spin = Duration::from_micros(micros);
    }
    TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!())).expect("loopback")
}

fn ends() -> (TcpFabric, TcpFabric, End, End) {
    let (a, b) = (open(), open());
    let mut half = [&a, &b].map(|fabric| {
        let queue = fabric.completion_queue(1024).expect("a queue");
        let connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
        (queue, connection)
    });
    let endpoints = [half[0].1.endpoint().to_vec(), half[1].1.endpoint().to_vec()];
    half[0].1.connect(&endpoints[1]).expect("to connect");
    half[1].1.connect(&endpoints[0]).expect("to connect");
    while half.iter().any(|(_, connection)| connection.state() != ConnectionState::Ready) {
        for (queue, _) in &mut half {
            queue.poll(&mut []).expect("to poll");
        }
    }
    let [a_half, b_half] = half;
    let finish = |fabric: &TcpFabric, (mut queue, mut connection): (TcpCompletionQueue, TcpConnection)| {
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let region = fabric.register(Arc::new(HeapMemory::new(1 << 16)), access).expect("a region");
        let mut window = fabric.allocate_window().expect("a window");
        let own = connection.bind(0, &mut window, &region, 0..1 << 16, Access::REMOTE_WRITE).expect("a bind");
        assert_eq!(next(&mut queue).id, 0);
        let receives: Vec<_> = (0..64).map(|id| Receive { id, into: None }).collect();
        connection.post_receives(&receives).expect("receives");
        End { queue, connection, _region: region, _window: window, own, peer: None }
    };
    let (mut one, mut other) = (finish(&a, a_half), finish(&b, b_half));
    one.peer = Some(other.own);
    other.peer = Some(one.own);
    (a, b, one, other)
}

fn next(queue: &mut TcpCompletionQueue) -> Completion {
    let mut one = [Completion::BLANK];
    loop {
        if queue.poll(&mut one).expect("to poll") == 1 {
            assert!(one[0].status.is_success(), "{:?}", one[0]);
            return one[0];
        }
        queue.wait(Duration::from_secs(5)).expect("to wait");
    }
}

impl End {
    /// A write of 64 bytes and a notice behind it, one doorbell.
    fn notify(&mut self, signalled: bool) {
        let to = self.peer.expect("exchanged");
        let bytes = [7u8; 64];
        let source = Source::Inline(&bytes);
        let notice = Source::Inline(&bytes[..40]);
        let chain = [
            Request { id: 1, operation: Operation::Write { source, to: to.at(0) }, signalled: false },
            Request {
                id: 2,
                operation: Operation::WriteImmediate { source: notice, to: to.at(4096), immediate: 1 },
                signalled,
            },
        ];
        self.connection.post(&chain).expect("to post");
    }

    fn noticed(&mut self) {
        loop {
            if next(&mut self.queue).opcode.is_receive() {
                self.connection.post_receives(&[Receive { id: 0, into: None }]).expect("a receive");
                return;
            }
        }
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A raw exchange of as many bytes, a blocking thread at each end.
fn raw(spin: bool) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a peer");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_nonblocking(spin).expect("mode");
        let mut bytes = [0; 168];
        for _ in 0..ROUNDS {
            fill(&mut stream, &mut bytes);
            stream.write_all(&bytes).expect("to write");
        }
    });
    let mut stream = TcpStream::connect(address).expect("to connect");
    stream.set_nodelay(true).expect("nodelay");
    stream.set_nonblocking(spin).expect("mode");
    let mut bytes = [0; 168];
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        stream.write_all(&bytes).expect("to write");
        fill(&mut stream, &mut bytes);
        times.push(start.elapsed());
    }
    echo.join().expect("the echo");
    median(&mut times)
}

fn fill(stream: &mut TcpStream, bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// From posting a write and its notice to their completion: the peer's pump has no part in it.
fn placed() -> Duration {
    let (_a, _b, mut one, mut other) = ends();
    let reader = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            other.noticed();
        }
        other
    });
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        one.notify(true);
        next(&mut one.queue);
        times.push(start.elapsed());
    }
    reader.join().expect("the reader");
    median(&mut times)
}

/// From posting a write and its notice to the notice that the peer's pump sends back.
fn round_trip() -> Duration {
    let (_a, _b, mut one, mut other) = ends();
    let echo = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            other.noticed();
            other.notify(round % 16 == 0);
        }
        other
    });
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let start = Instant::now();
        one.notify(round % 16 == 0);
        one.noticed();
        times.push(start.elapsed());
    }
    echo.join().expect("the echo");
    median(&mut times)
}

#[test]
#[ignore = "a measurement"]
fn small_writes_against_a_raw_exchange() {
    println!("p50 in µs of {ROUNDS} rounds: raw sleeping, raw spinning, placed, notice and back");
    for _ in 0..REPEATS {
        let measured = [raw(false), raw(true), placed(), round_trip()];
        let micros = measured
            .map(|time| time.as_nanos() / 100)
            .map(|tenths| format!("{}.{}", tenths / 10, tenths % 10));
        println!("{}", micros.join("\t"));
    }
}

/// MB/s of 1 MiB writes, eight under way, against the same bytes over a raw socket into a buffer.
#[test]
#[ignore = "a measurement"]
fn long_writes_against_a_raw_stream() {
    const WRITES: u64 = 2000;
    println!("MB/s of 1 MiB writes: raw stream, tcp fabric");
    for _ in 0..REPEATS {
        let raw = raw_stream(WRITES);
        let (a, _b, mut one, _other) = ends();
        let region = a.register(Arc::new(HeapMemory::new(1 << 20)), Access::NONE).expect("a region");
        let to = one.peer.expect("exchanged");
        let start = Instant::now();
        let (mut posted, mut completed) = (0, 0);
        while completed < WRITES {
            while posted < WRITES && posted < completed + 8 {
                // As much as the window takes, many times over.
                let chain: [_; 16] = std::array::from_fn(|at| Request {
                    id: posted,
                    operation: Operation::Write {
                        source: Source::Region(windlass_fabric::Local {
                            region: &region,
                            offset: 0,
                            bytes: 1 << 16,
                        }),
                        to: to.at(0),
                    },
                    signalled: at == 15,
                });
                match one.connection.post(&chain) {
                    Ok(()) => posted += 1,
                    Err(_) => break,
                }
            }
            next(&mut one.queue);
            completed += 1;
        }
        let fabric = start.elapsed();
        let rate = |time: Duration| u128::from(WRITES << 20) / time.as_micros().max(1);
        println!("{}\t{}", rate(raw), rate(fabric));
    }
}

fn raw_stream(writes: u64) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a peer");
        let mut bytes = vec![0; 256 << 10];
        let mut left = writes << 20;
        while left > 0 {
            left -= u64::try_from(stream.read(&mut bytes).expect("to read")).expect("a length");
        }
        stream.write_all(&[1]).expect("to write");
    });
    let mut stream = TcpStream::connect(address).expect("to connect");
    let bytes = vec![7; 256 << 10];
    let start = Instant::now();
    for _ in 0..writes * 4 {
        stream.write_all(&bytes).expect("to write");
    }
    stream.read_exact(&mut [0]).expect("its end");
    sink.join().expect("the sink");
    start.elapsed()
}
