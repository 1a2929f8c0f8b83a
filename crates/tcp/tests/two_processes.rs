//! The same suite with the two ends in two processes, and what becomes of one end when the other is killed or stopped.
//!
//! The second process is this test's own binary, running [`second_process`].

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::conformance::{Case, Outcome, Role, StreamControl};
use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, ErrorCause, Fabric,
    HeapMemory, Local, Operation, REMOTE_RANGE_BYTES, RemoteRange, Request, Source, Status,
};
use windlass_tcp::auth::Secret;
use windlass_tcp::{Options, TcpFabric};

const LINE: &str = "WINDLASS_TEST_LINE";
const PLAY: &str = "WINDLASS_TEST_PLAY";
const AREA: u64 = 4 << 20;

fn open() -> TcpFabric {
    let secret = Secret::new(b"the secret of the two processes").expect("long enough");
    let options = Options { stall_timeout: Duration::from_secs(2), ..Options::new(secret, [1; 16]) };
    TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!())).expect("loopback")
}

/// Kills the second process when the test is over, however it ends.
struct Second {
    child: Child,
    line: TcpStream,
}

impl Drop for Second {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn second(play: &str) -> Second {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    let child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "second_process", "--ignored", "--nocapture"])
        .env(LINE, address.to_string())
        .env(PLAY, play)
        .spawn()
        .expect("a process");
    let (line, _) = listener.accept().expect("the second process calls");
    line.set_read_timeout(Some(Duration::from_secs(90))).expect("a time limit");
    line.set_nodelay(true).expect("nodelay");
    Second { child, line }
}

#[test]
#[ignore = "run by the other tests as a process of its own"]
fn second_process() {
    let (Ok(address), Ok(play)) = (std::env::var(LINE), std::env::var(PLAY)) else {
        return;
    };
    let mut line = TcpStream::connect(address).expect("the first process listens");
    line.set_read_timeout(Some(Duration::from_secs(90))).expect("a time limit");
    line.set_nodelay(true).expect("nodelay");
    match play.as_str() {
        "active" => suite(Role::Active, line),
        "passive" => suite(Role::Passive, line),
        "target" => target(&mut line),
        play => panic!("no such play: {play}"),
    }
}

/// Every case, a fabric for each.
fn suite(role: Role, line: TcpStream) {
    let mut control = StreamControl(line);
    for case in Case::ALL {
        let outcome = case.run(role, &open(), &mut control);
        assert_eq!(outcome, Outcome::Passed, "{}", case.name());
    }
}

#[test]
fn the_suite_passes_with_the_active_end_elsewhere() {
    let mut second = second("active");
    suite(Role::Passive, second.line.try_clone().expect("a handle"));
    assert!(second.child.wait().expect("its end").success());
}

#[test]
fn the_suite_passes_with_the_passive_end_elsewhere() {
    let mut second = second("passive");
    suite(Role::Active, second.line.try_clone().expect("a handle"));
    assert!(second.child.wait().expect("its end").success());
}

fn exchange(line: &mut TcpStream, own: &[u8]) -> Vec<u8> {
    line.write_all(&[u8::try_from(own.len()).expect("short")]).expect("to write");
    line.write_all(own).expect("to write");
    let mut bytes = [0];
    line.read_exact(&mut bytes).expect("the other's length");
    let mut other = vec![0; usize::from(bytes[0])];
    line.read_exact(&mut other).expect("the other's word");
    other
}

/// Offers a window and waits to be killed.
fn target(line: &mut TcpStream) {
    let fabric = open();
    let mut queue = fabric.completion_queue(64).expect("a queue");
    let options = ConnectionOptions { send_depth: 16, receive_depth: 16, inline_bytes: 0 };
    let mut connection = fabric.connection(&queue, &options).expect("a connection");
    let peer = exchange(line, connection.endpoint());
    connection.connect(&peer).expect("to connect");
    while connection.state() != ConnectionState::Ready {
        queue.poll(&mut []).expect("to poll");
        queue.wait(Duration::from_millis(10)).expect("to wait");
    }
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let region = fabric.register(Arc::new(HeapMemory::new(AREA)), access).expect("a region");
    let mut window = fabric.allocate_window().expect("a window");
    let range = connection.bind(1, &mut window, &region, 0..AREA, Access::REMOTE_WRITE).expect("a bind");
    exchange(line, &range.encode());
    // Until the first process kills this one, or is gone itself.
    let _ = line.read(&mut [0]);
}

/// Writes all the time until the peer's end; gives how long after `end_it` the last completion came.
fn stream_until_the_end(mut second: Second, end_it: fn(&Child)) -> Duration {
    let fabric = open();
    let mut queue = fabric.completion_queue(64).expect("a queue");
    let options = ConnectionOptions { send_depth: 16, receive_depth: 16, inline_bytes: 0 };
    let mut connection = fabric.connection(&queue, &options).expect("a connection");
    let peer = exchange(&mut second.line, connection.endpoint());
    connection.connect(&peer).expect("to connect");
    while connection.state() != ConnectionState::Ready {
        queue.poll(&mut []).expect("to poll");
        queue.wait(Duration::from_millis(10)).expect("to wait");
    }
    let range: [u8; REMOTE_RANGE_BYTES] =
        exchange(&mut second.line, &[]).try_into().expect("an encoded range");
    let range = RemoteRange::decode(range);
    let region = fabric.register(Arc::new(HeapMemory::new(AREA)), Access::NONE).expect("a region");
    let (mut posted, mut completed, mut failed) = (0u64, 0u64, 0u64);
    let mut ended: Option<Instant> = None;
    let begin = Instant::now();
    loop {
        while connection.state() == ConnectionState::Ready && posted < completed + 8 {
            let source = Source::Region(Local { region: &region, offset: 0, bytes: 1 << 20 });
            let operation = Operation::Write { source, to: range.at((posted % 3) << 20) };
            connection.post(&[Request { id: posted, operation, signalled: true }]).expect("to post");
            posted += 1;
        }
        let mut polled = [Completion::BLANK; 8];
        let count = queue.poll(&mut polled).expect("to poll");
        for completion in &polled[..count] {
            assert_eq!(completion.id, completed, "in order");
            completed += 1;
            let status = completion.status;
            if status.is_success() {
                assert_eq!(failed, 0, "no success behind a failure");
            } else {
                let due = if failed == 0 { Status::PeerGone } else { Status::Flushed };
                assert_eq!(status, due, "after {failed} failures");
                failed += 1;
            }
        }
        if ended.is_none() && completed >= 16 && begin.elapsed() > Duration::from_millis(50) {
            end_it(&second.child);
            ended = Some(Instant::now());
        }
        if completed == posted && failed > 0 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{completed} of {posted} completed");
        if count == 0 {
            queue.wait(Duration::from_secs(10)).expect("to wait");
        }
    }
    assert_eq!(connection.state(), ConnectionState::Error(ErrorCause::PeerGone));
    assert_eq!(connection.outstanding().sends, 0);
    ended.expect("it was ended").elapsed()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("to signal the child");
}

#[test]
fn a_killed_peer_completes_everything_soon() {
    let took = stream_until_the_end(second("target"), |child| signal(child, rustix::process::Signal::KILL));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_stopped_peer_completes_everything_within_the_stall_timeout() {
    // Its kernel goes on acknowledging for a while: only the missing answers tell.
    let took = stream_until_the_end(second("target"), |child| signal(child, rustix::process::Signal::STOP));
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(20), "{took:?}");
}
