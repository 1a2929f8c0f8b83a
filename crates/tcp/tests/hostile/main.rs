//! Peers that mean harm, or are broken: each is closed with one log line, and no memory is touched.

mod fake;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake::{
    GROUP, Lines, admit, challenged, closed, dial, endpoint, endpoint_of, enter, greeting, proof, secret,
};
use windlass_fabric::{
    Access, Completion, CompletionQueue, ConnectError, Connection, ConnectionOptions, ConnectionState,
    ErrorCause, Fabric, HeapMemory, Local, Memory, Opcode, Operation, Receive, Remote, RemoteKey,
    RemoteRange, Request, Source, Status,
};
use windlass_tcp::auth::Secret;
use windlass_tcp::frame::{Answer, AnswerHeader, RequestHeader, RequestKind};
use windlass_tcp::{Options, TcpCompletionQueue, TcpConnection, TcpFabric, TcpRegion, TcpWindow};

const AREA_BYTES: usize = 8192;
const AREA: u64 = 8192;

fn options() -> Options {
    Options {
        handshake_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(5),
        stall_timeout: Duration::from_millis(1500),
        ..Options::new(secret(), GROUP)
    }
}

fn open(lines: &Lines) -> TcpFabric {
    TcpFabric::open(options(), lines.logger()).expect("loopback")
}

/// Two real fabrics connect: this one still serves.
fn still_serves(fabric: &TcpFabric) {
    let other = open(&Lines::default());
    let mut ends = [fabric, &other].map(|fabric| {
        let queue = fabric.completion_queue(256).expect("a queue");
        let connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
        (queue, connection)
    });
    let endpoints = [ends[0].1.endpoint().to_vec(), ends[1].1.endpoint().to_vec()];
    ends[0].1.connect(&endpoints[1]).expect("to connect");
    ends[1].1.connect(&endpoints[0]).expect("to connect");
    let end = Instant::now() + Duration::from_secs(10);
    while ends.iter().any(|(_, connection)| connection.state() != ConnectionState::Ready) {
        assert!(Instant::now() < end, "{:?}", ends.each_ref().map(|(_, connection)| connection.state()));
        for (queue, _) in &mut ends {
            queue.poll(&mut []).expect("to poll");
            queue.wait(Duration::from_millis(1)).expect("to wait");
        }
    }
}

// Before the proof.

#[test]
fn garbage_instead_of_a_handshake_is_one_line() {
    for garbage in [&b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"[..], &[0; 36], &[0xff; 4096]]
    {
        let lines = Lines::default();
        let fabric = open(&lines);
        let mut stream = dial(fabric.address());
        stream.write_all(garbage).expect("to write");
        assert!(closed(&mut stream));
        assert!(lines.only_warning().contains("speaks another protocol or version"));
        still_serves(&fabric);
    }
}

#[test]
fn a_wrong_secret_or_group_is_one_line_at_each_end() {
    let other_secret = Secret::new(b"not the secret of the hostile tests").expect("long enough");
    for (secret, group) in [(other_secret, GROUP), (secret(), [2; 16])] {
        let (lines, other_lines) = (Lines::default(), Lines::default());
        let fabric = open(&lines);
        let other = TcpFabric::open(Options { secret, group, ..options() }, other_lines.logger());
        let other = other.expect("loopback");
        let mut queue = other.completion_queue(64).expect("a queue");
        let own_queue = fabric.completion_queue(256).expect("a queue");
        let target = fabric.connection(&own_queue, &ConnectionOptions::default()).expect("a connection");
        let small = ConnectionOptions { send_depth: 8, receive_depth: 8, inline_bytes: 0 };
        let mut connection = other.connection(&queue, &small).expect("a connection");
        connection.connect(target.endpoint()).expect("to begin");
        until(&mut queue, || connection.state() == ConnectionState::Error(ErrorCause::ConnectFailed));
        assert!(lines.only_warning().contains("does not know the secret, or is of another group"));
        assert!(other_lines.only_warning().contains("no fabric connection"));
        assert_eq!(target.state(), ConnectionState::Initial);
        still_serves(&fabric);
    }
}

#[test]
fn a_replayed_handshake_is_refused() {
    let lines = Lines::default();
    let fabric = open(&lines);
    let queue = fabric.completion_queue(256).expect("a queue");
    let target = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
    let (address, token) = endpoint_of(target.endpoint());
    // A true handshake, whose messages an onlooker keeps.
    let mut stream = dial(address);
    let nonce = challenged(&mut stream, [5; 32]);
    let message = proof(&secret(), GROUP, ([5; 32], nonce), token, [9; 16]);
    // The onlooker is quicker: the same hello draws another challenge, and the proof does not fit.
    let mut replay = dial(address);
    let fresh = challenged(&mut replay, [5; 32]);
    assert_ne!(fresh, nonce);
    replay.write_all(&message).expect("to write");
    assert!(closed(&mut replay));
    assert!(lines.only_warning().contains("does not know the secret"));
    stream.write_all(&message).expect("to write");
    let mut accepted = [0; 32];
    std::io::Read::read_exact(&mut stream, &mut accepted).expect("the true one is accepted");
}

#[test]
fn an_end_does_not_connect_to_itself() {
    let fabric = open(&Lines::default());
    let queue = fabric.completion_queue(256).expect("a queue");
    let mut connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
    let own = connection.endpoint().to_vec();
    let error = connection.connect(&own).expect_err("its own endpoint");
    assert!(matches!(error, ConnectError::Endpoint { .. }), "{error}");
    assert_eq!(connection.state(), ConnectionState::Initial);
}

#[test]
fn who_takes_too_long_to_prove_itself_is_closed() {
    let lines = Lines::default();
    let fabric = open(&lines);
    let mut stream = dial(fabric.address());
    let start = Instant::now();
    // A byte now and then does not buy time.
    let hello = greeting([5; 32]);
    let mut sent = 0;
    while sent < 34 && stream.write_all(&hello[sent..=sent]).is_ok() {
        sent += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(closed(&mut stream));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(lines.only_warning().contains("took too long"));
    still_serves(&fabric);
}

#[test]
fn a_crowd_without_proof_keeps_nobody_out() {
    let lines = Lines::default();
    let options = Options { handshake_timeout: Duration::from_secs(60), unproven_max: 8, ..options() };
    let fabric = TcpFabric::open(options, lines.logger()).expect("loopback");
    let mut crowd: Vec<TcpStream> = (0..40).map(|_| dial(fabric.address())).collect();
    still_serves(&fabric);
    let made_room = lines.warnings();
    // Lines are rationed: eight in half a minute.
    assert!((8..32).contains(&made_room.len()), "{made_room:#?}");
    assert!(made_room.iter().all(|line| line.contains("made room for another")));
    assert!(crowd[..32].iter_mut().all(closed), "the oldest went first");
}

#[test]
fn a_proven_peer_reaches_only_the_end_that_waits_for_it() {
    let lines = Lines::default();
    let fabric = open(&lines);
    let queue = fabric.completion_queue(256).expect("a queue");
    let target = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
    let (address, token) = endpoint_of(target.endpoint());
    assert!(enter(address, [0xee; 16], [9; 16]).is_err(), "no such end");
    assert!(lines.only_warning().contains("no end of that name"));
    let _first = enter(address, token, [9; 16]).expect("parked until the end knows its peer");
    assert!(enter(address, token, [9; 16]).is_err(), "one peer per end");
    let end = Instant::now() + Duration::from_secs(10);
    while lines.warnings().len() < 2 {
        assert!(Instant::now() < end, "no line about the second peer");
        std::thread::yield_now();
    }
    assert!(lines.warnings()[1].contains("has its peer already"));
}

// After it.

/// A real end whose peer is a fake that knows the secret.
struct Victim {
    lines: Lines,
    fabric: TcpFabric,
    queue: TcpCompletionQueue,
    connection: TcpConnection,
    memory: Arc<HeapMemory>,
    region: TcpRegion,
    _window: TcpWindow,
    range: RemoteRange,
    /// The fake's requests go out here.
    requests: TcpStream,
    /// The fake answers here.
    answers: TcpStream,
}

fn victim() -> Victim {
    let lines = Lines::default();
    let fabric = open(&lines);
    let mut queue = fabric.completion_queue(256).expect("a queue");
    let options = ConnectionOptions { send_depth: 32, receive_depth: 32, inline_bytes: 64 };
    let mut connection = fabric.connection(&queue, &options).expect("a connection");
    let memory = Arc::new(HeapMemory::new(AREA));
    memory.write(0, &[0xaa; AREA_BYTES]);
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, access).expect("a region");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let (address, token) = endpoint_of(connection.endpoint());
    let fake_end = endpoint(listener.local_addr().expect("an address"), [9; 16]);
    connection.connect(&fake_end).expect("to begin");
    let fake = std::thread::spawn(move || {
        let answers = admit(&listener);
        (enter(address, token, [9; 16]).expect("to enter"), answers)
    });
    until(&mut queue, || connection.state() == ConnectionState::Ready);
    let (requests, answers) = fake.join().expect("the fake");
    let mut window = fabric.allocate_window().expect("a window");
    let both = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let range = connection.bind(1, &mut window, &region, 4096..8192, both).expect("a bind");
    assert_eq!(one(&mut queue).id, 1);
    Victim { lines, fabric, queue, connection, memory, region, _window: window, range, requests, answers }
}

fn until(queue: &mut TcpCompletionQueue, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        queue.poll(&mut []).expect("to poll");
        if done() {
            return;
        }
        assert!(Instant::now() < end, "it does not come");
        queue.wait(Duration::from_millis(20)).expect("to wait");
    }
}

fn one(queue: &mut TcpCompletionQueue) -> Completion {
    let mut one = [Completion::BLANK];
    let end = Instant::now() + Duration::from_secs(20);
    while queue.poll(&mut one).expect("to poll") == 0 {
        assert!(Instant::now() < end, "no completion");
        queue.wait(Duration::from_millis(20)).expect("to wait");
    }
    one[0]
}

impl Victim {
    fn header(&self, kind: RequestKind, bytes: u32) -> RequestHeader {
        let placed = !matches!(kind, RequestKind::Send | RequestKind::SendImmediate | RequestKind::Barrier);
        RequestHeader {
            kind,
            acknowledge: true,
            bytes,
            address: if placed { self.range.address } else { 0 },
            key: if placed { self.range.key.0 } else { 0 },
            immediate: 0,
            sequence: 1,
        }
    }

    fn untouched(&self) {
        let mut bytes = vec![0; AREA_BYTES];
        self.memory.read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0xaa), "memory was touched");
    }

    /// The fabric has closed the connection for broken protocol, with a line that says `reason`.
    fn closed_as_broken(mut self, reason: &str) {
        until(&mut self.queue, || self.connection.state() == ConnectionState::Error(ErrorCause::PeerBroken));
        assert!(closed(&mut self.requests));
        let line = self.lines.only_warning();
        assert!(line.contains(reason), "{line}");
        self.untouched();
        still_serves(&self.fabric);
    }
}

#[test]
fn hostile_frames_close_the_connection_and_touch_nothing() {
    type Bend = fn(&mut [u8; 32]);
    let bends: [(&str, Bend); 7] = [
        ("unknown frame kind", |bytes| bytes[0] = 0),
        ("unknown frame kind", |bytes| bytes[0] = 0xff),
        ("unknown flags", |bytes| bytes[1] = 0x80),
        ("not zero", |bytes| bytes[3] = 1),
        ("a frame of 4294967295 bytes", |bytes| bytes[4..8].fill(0xff)),
        ("request 2 where 1 was due", |bytes| bytes[24] = 2),
        ("not zero", |bytes| bytes[20] = 1),
    ];
    for (reason, bend) in bends {
        let mut victim = victim();
        let mut bytes = victim.header(RequestKind::Write, 64).encode();
        bend(&mut bytes);
        victim.requests.write_all(&bytes).expect("to write");
        // More of it, as if nothing were wrong; the socket may be closed by now.
        let _ = victim.requests.write_all(&[0x77; 64]);
        victim.closed_as_broken(reason);
    }
}

#[test]
fn a_stream_of_noise_closes_the_connection() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..20 {
        let mut victim = victim();
        let mut noise = Vec::new();
        while noise.len() < 1 << 16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.extend_from_slice(&state.to_le_bytes());
        }
        // It may be closed before all is written.
        let _ = victim.requests.write_all(&noise);
        victim.closed_as_broken("frame");
    }
}

#[test]
fn what_is_not_granted_is_refused_and_untouched() {
    type Bend = fn(&mut RequestHeader);
    let bends: [(&str, RequestKind, Bend); 7] = [
        ("another key", RequestKind::Write, |header| header.key ^= 1),
        ("a region's key", RequestKind::Write, |header| header.key |= 1 << 31),
        ("before the window", RequestKind::Write, |header| header.address -= 1),
        ("past the window", RequestKind::Write, |header| header.address += 4096 - 63),
        ("around the end of the numbers", RequestKind::Write, |header| header.address = u64::MAX - 8),
        ("a GiB", RequestKind::WriteImmediate, |header| header.bytes = 1 << 30),
        ("reading past the window", RequestKind::Read, |header| header.bytes = 4097),
    ];
    for (what, kind, bend) in bends {
        let mut victim = victim();
        let mut header = victim.header(kind, 64);
        bend(&mut header);
        victim.requests.write_all(&header.encode()).expect("to write");
        // The socket may be closed by now.
        let _ = victim.requests.write_all(&[0x77; 64]);
        until(&mut victim.queue, || {
            victim.connection.state() == ConnectionState::Error(ErrorCause::PeerRefused)
        });
        let mut answer = [0; 16];
        std::io::Read::read_exact(&mut victim.requests, &mut answer).expect("a refusal");
        let refused =
            AnswerHeader { answer: Answer::Refused(windlass_tcp::frame::Refusal::Access), sequence: 1 };
        assert_eq!(AnswerHeader::parse(&answer), Ok(refused), "{what}");
        victim.untouched();
        assert!(victim.lines.warnings().is_empty(), "a refusal is no fault of the fabric");
        still_serves(&victim.fabric);
    }
}

#[test]
fn a_send_without_a_receive_ends_within_its_time() {
    let mut victim = victim();
    let header = victim.header(RequestKind::Send, 8);
    victim.requests.write_all(&header.encode()).expect("to write");
    let mut answer = [0; 16];
    std::io::Read::read_exact(&mut victim.requests, &mut answer).expect("a refusal");
    assert_eq!(answer[..2], [3, 2], "receiver not ready");
    victim.untouched();
}

#[test]
fn a_peer_that_stops_within_a_frame_is_just_gone() {
    let mut victim = victim();
    let header = victim.header(RequestKind::Write, 64).encode();
    victim.requests.write_all(&header[..20]).expect("to write");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(victim.connection.state(), ConnectionState::Ready);
    drop((victim.requests, victim.answers));
    until(&mut victim.queue, || victim.connection.state() == ConnectionState::Error(ErrorCause::PeerGone));
    assert!(victim.lines.warnings().is_empty());
}

#[test]
fn bytes_behind_a_revocation_are_not_taken() {
    let mut victim = victim();
    let header = victim.header(RequestKind::Write, 4096).encode();
    victim.requests.write_all(&header).expect("to write");
    victim.requests.write_all(&[0x77; 1000]).expect("to write");
    // The first part lands: the write was granted when it began.
    let landed = || {
        let mut bytes = [0; 1000];
        victim.memory.read(4096, &mut bytes);
        bytes == [0x77; 1000]
    };
    let end = Instant::now() + Duration::from_secs(20);
    while !landed() {
        assert!(Instant::now() < end, "the first part does not land");
        std::thread::yield_now();
    }
    victim.connection.invalidate(2, &mut victim._window).expect("an invalidation");
    assert_eq!(one(&mut victim.queue).opcode, Opcode::Invalidate);
    // It has completed: what is left of the message is refused.
    victim.requests.write_all(&[0x88; 3096]).expect("to write");
    let mut answer = [0; 16];
    std::io::Read::read_exact(&mut victim.requests, &mut answer).expect("a refusal");
    assert_eq!(answer[..2], [3, 1], "remote access");
    let mut bytes = [0; 3096];
    victim.memory.read(5096, &mut bytes);
    assert_eq!(bytes, [0xaa; 3096]);
}

/// Posts a read of 64 bytes and lets the fake answer it with `bytes`.
fn answered(bytes: &[u8]) -> (Victim, Completion) {
    let mut victim = victim();
    victim.connection.post_receives(&[Receive { id: 50, into: None }]).expect("a receive");
    let into = Local { region: &victim.region, offset: 0, bytes: 64 };
    let from = Remote { address: 0, key: RemoteKey(1) };
    let read = Request { id: 7, operation: Operation::Read { into, from }, signalled: true };
    victim.connection.post(&[read]).expect("to post");
    // The bind before it was sequence-free, so the read is request 1. The socket may be closed before all is written.
    let _ = victim.answers.write_all(bytes);
    let completion = one(&mut victim.queue);
    (victim, completion)
}

#[test]
fn answers_to_what_was_not_asked_close_the_connection() {
    let header = |answer, sequence| AnswerHeader { answer, sequence }.encode().to_vec();
    let cases: [(&str, Vec<u8>); 9] = [
        ("not asked", header(Answer::Done, 2)),
        ("not asked", header(Answer::Done, u64::MAX)),
        ("not asked", header(Answer::Done, 1)),
        ("not asked", header(Answer::Data { bytes: 65, last: true }, 1)),
        ("not asked", header(Answer::Data { bytes: 63, last: true }, 1)),
        ("not asked", header(Answer::Data { bytes: 0, last: false }, 1)),
        ("not asked", header(Answer::Data { bytes: 64, last: true }, 0)),
        ("a frame of 4294967295 bytes", {
            let mut bytes = header(Answer::Data { bytes: 64, last: true }, 1);
            bytes[4..8].fill(0xff);
            bytes
        }),
        ("unknown frame kind", vec![0xff; 64]),
    ];
    for (reason, mut bytes) in cases {
        bytes.extend_from_slice(&[0x77; 200]);
        let (mut victim, completion) = answered(&bytes);
        assert_eq!((completion.id, completion.status), (7, Status::PeerGone));
        let receive = one(&mut victim.queue);
        assert_eq!((receive.id, receive.status), (50, Status::Flushed));
        victim.closed_as_broken(reason);
    }
}

#[test]
fn a_true_answer_in_pieces_is_taken() {
    let mut bytes =
        AnswerHeader { answer: Answer::Data { bytes: 40, last: false }, sequence: 1 }.encode().to_vec();
    bytes.extend_from_slice(&[0x77; 40]);
    bytes.extend_from_slice(
        &AnswerHeader { answer: Answer::Data { bytes: 24, last: true }, sequence: 1 }.encode(),
    );
    bytes.extend_from_slice(&[0x78; 24]);
    let (victim, completion) = answered(&bytes);
    assert_eq!((completion.status, completion.bytes), (Status::Success, 64));
    let mut read = [0; 65];
    victim.memory.read(0, &mut read);
    assert_eq!((&read[..40], &read[40..64], read[64]), (&[0x77; 40][..], &[0x78; 24][..], 0xaa));
}

#[test]
fn a_peer_that_never_answers_ends_every_wait() {
    let mut victim = victim();
    let bytes = [1; 8];
    let to = Remote { address: 0, key: RemoteKey(1) };
    let write = |id| Request {
        id,
        operation: Operation::Write { source: Source::Inline(&bytes), to },
        signalled: true,
    };
    victim.connection.post(&[write(1), write(2)]).expect("to post");
    let start = Instant::now();
    // One long wait, no polling in between: the wait itself ends.
    let mut seen = Vec::new();
    while seen.len() < 2 {
        victim.queue.wait(Duration::from_secs(60)).expect("to wait");
        let mut polled = [Completion::BLANK; 4];
        let count = victim.queue.poll(&mut polled).expect("to poll");
        seen.extend(polled[..count].iter().map(|completion| (completion.id, completion.status)));
    }
    assert_eq!(seen, [(1, Status::PeerGone), (2, Status::Flushed)]);
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(10), "{took:?}");
    assert!(victim.lines.only_warning().contains("no progress"));
}

#[test]
fn connecting_to_what_never_answers_ends() {
    let lines = Lines::default();
    let options = Options { connect_timeout: Duration::from_millis(300), ..options() };
    let fabric = TcpFabric::open(options, lines.logger()).expect("loopback");
    let mut queue = fabric.completion_queue(256).expect("a queue");
    let mut connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback");
    connection.connect(&endpoint(silent.local_addr().expect("an address"), [9; 16])).expect("to begin");
    until(&mut queue, || connection.state() == ConnectionState::Error(ErrorCause::ConnectFailed));
    assert!(lines.only_warning().contains("took too long"));
    // Nobody there at all.
    let nobody = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("an address");
    let mut queue = fabric.completion_queue(256).expect("a queue");
    let mut connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
    connection.connect(&endpoint(nobody, [9; 16])).expect("to begin");
    until(&mut queue, || connection.state() == ConnectionState::Error(ErrorCause::ConnectFailed));
}
