//! A write that the network holds back while its permission is taken back, between two hosts: `--held-owner SOCKET` owns the memory,
//! `--held-writer SOCKET` writes into it. The word between them goes over a Unix socket, so that holding back packets does not hold it.
//!
//! The writer's interface delays all that leaves it (`WINDLASS_HELD_INTERFACE`, by `tc … netem`). The write is posted, and is on its way
//! when the owner takes the window back; it comes through afterwards. The control rounds leave the window open: there it lands. So the
//! test can fail.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::conformance::Role;
use windlass_fabric::{
    Access, Connection, ConnectionState, Fabric, HeapMemory, Local, Memory, Operation, REMOTE_RANGE_BYTES,
    RemoteRange, Request, Source, Status,
};

use crate::cases::OPEN;
use crate::hosts::Tally;
use crate::pair::End;

const AREA: u64 = 64 << 10;
/// How long packets are held back: longer than a revocation takes, shorter than the writer's device tries.
const DELAY: Duration = Duration::from_millis(250);
/// When a packet that was held back has come, on any machine.
const ARRIVED: Duration = Duration::from_millis(700);
/// No step takes so long.
const SILENCE: Duration = Duration::from_secs(60);

/// What the owner does while the write is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// Nothing: the control.
    Nothing,
    /// Invalidates the window and sees that completed: the device has to refuse what comes.
    Invalidate,
    /// All of it: invalidated, completed, closed, drained, destroyed.
    End,
}

/// A round of each kind, in turn, and the lengths: within a packet, a packet, several.
fn rounds() -> impl Iterator<Item = (Meanwhile, u32)> {
    let count = std::env::var("WINDLASS_HELD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let revoking = (0..count).map(|round: u32| {
        let meanwhile = if round.is_multiple_of(2) { Meanwhile::Invalidate } else { Meanwhile::End };
        (meanwhile, [64, 4096, 40_000][(round / 2 % 3) as usize])
    });
    revoking.chain([64, 4096, 40_000].map(|bytes| (Meanwhile::Nothing, bytes)))
}

/// One end plays all rounds. `role` is active for the writer.
pub(crate) fn run(role: Role, socket: &str) -> Tally {
    let mut line = match role {
        Role::Passive => UnixListener::bind(socket).expect("to listen").accept().expect("the writer").0,
        Role::Active => reach(Path::new(socket)),
    };
    line.set_read_timeout(Some(SILENCE)).expect("a time limit");
    let (mut fenced, mut landed) = (0, 0);
    for (meanwhile, bytes) in rounds() {
        match role {
            Role::Passive => own(&mut line, meanwhile, bytes),
            Role::Active => write(&mut line, meanwhile, bytes),
        }
        if meanwhile == Meanwhile::Nothing {
            landed += 1;
        } else {
            fenced += 1;
        }
    }
    println!(
        "test held_back_{role:?} ... ok ({fenced} writes held back through a revocation did not land, {landed} without one did)"
    );
    Tally { passed: 1, ..Tally::default() }
}

fn reach(socket: &Path) -> UnixStream {
    let end = Instant::now() + SILENCE;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < end, "{}: {error}", socket.display()),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn say(line: &mut UnixStream, bytes: &[u8]) {
    line.write_all(&[u8::try_from(bytes.len()).expect("short")]).expect("to write");
    line.write_all(bytes).expect("to write");
}

fn hear(line: &mut UnixStream) -> Vec<u8> {
    let mut length = [0];
    line.read_exact(&mut length).expect("the other's length");
    let mut bytes = vec![0; usize::from(length[0])];
    line.read_exact(&mut bytes).expect("the other's word");
    bytes
}

/// Connects, with the word of both that they are ready.
fn meet(line: &mut UnixStream) -> (End, windlass_verbs::VerbsConnection) {
    let end = End::new();
    let mut connection = end.connection();
    say(line, connection.endpoint());
    let peer = hear(line);
    connection.connect(&peer).expect("to connect");
    assert_eq!(connection.state(), ConnectionState::Ready);
    say(line, b"ready");
    assert_eq!(hear(line), b"ready");
    (end, connection)
}

fn own(line: &mut UnixStream, meanwhile: Meanwhile, bytes: u32) {
    let (mut end, mut connection) = meet(line);
    let memory: Arc<dyn Memory> = Arc::new(HeapMemory::new(AREA));
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let region = end.fabric.register(Arc::clone(&memory), access).expect("a region");
    let mut window = end.fabric.allocate_window().expect("a window");
    let range = connection.bind(1, &mut window, &region, 0..AREA, OPEN).expect("to bind");
    end.done(1, Status::Success);
    say(line, &range.encode());
    assert_eq!(hear(line), b"posted");

    if meanwhile != Meanwhile::Nothing {
        connection.invalidate(2, &mut window).expect("to invalidate");
        end.done(2, Status::Success);
    }
    let mut kept = Some(connection);
    if meanwhile == Meanwhile::End
        && let Some(mut connection) = kept.take()
    {
        connection.close();
        let outstanding = connection.outstanding();
        assert_eq!((outstanding.sends, outstanding.receives), (0, 0));
        connection.destroy();
    }
    let what = format!("{bytes} bytes, {meanwhile:?}");
    assert_eq!(landed(&*memory), 0, "it was not held back: {what}");
    say(line, b"fenced");
    std::thread::sleep(ARRIVED);
    let in_the_end = landed(&*memory);
    match meanwhile {
        Meanwhile::Nothing => assert_eq!(in_the_end, u64::from(bytes), "{what}"),
        Meanwhile::Invalidate | Meanwhile::End => {
            assert_eq!(in_the_end, 0, "bytes landed behind the fence: {what}");
        }
    }
    assert_eq!(hear(line), b"done");
    drop((kept, window, region));
}

fn write(line: &mut UnixStream, meanwhile: Meanwhile, bytes: u32) {
    let (mut end, mut connection) = meet(line);
    let memory = HeapMemory::new(AREA);
    memory.write(0, &vec![0xab; bytes as usize]);
    let region = end.fabric.register(Arc::new(memory), Access::NONE).expect("a region");
    let range: [u8; REMOTE_RANGE_BYTES] = hear(line).try_into().expect("an encoded range");
    let range = RemoteRange::decode(range);
    let hold = Hold::new();
    let source = Source::Region(Local { region: &region, offset: 0, bytes });
    let operation = Operation::Write { source, to: range.at(0) };
    connection.post(&[Request { id: 3, operation, signalled: true }]).expect("to post");
    say(line, b"posted");
    assert_eq!(hear(line), b"fenced");
    let completion = end.next();
    match meanwhile {
        Meanwhile::Nothing => assert_eq!(completion.status, Status::Success),
        // The device itself, which knows the connection still.
        Meanwhile::Invalidate => assert_eq!(completion.status, Status::RemoteAccess),
        Meanwhile::End => assert!(!completion.status.is_success(), "{completion:?}"),
    }
    drop(hold);
    say(line, b"done");
}

/// Everything that leaves this host's interface is held back until this is dropped.
struct Hold(String);

impl Hold {
    fn new() -> Hold {
        let interface =
            std::env::var("WINDLASS_HELD_INTERFACE").expect("the interface to hold packets back at");
        let delay = format!("{}ms", DELAY.as_millis());
        assert!(tc(&["qdisc", "add", "dev", &interface, "root", "netem", "delay", &delay]), "tc can't delay");
        Hold(interface)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The next round's would fail, and say so.
        let _ = tc(&["qdisc", "del", "dev", &self.0, "root"]);
    }
}

fn tc(words: &[&str]) -> bool {
    Command::new("tc").args(words).status().is_ok_and(|status| status.success())
}

fn landed(memory: &dyn Memory) -> u64 {
    let mut bytes = vec![0; usize::try_from(AREA).expect("small")];
    memory.read(0, &mut bytes);
    bytes.iter().filter(|byte| **byte == 0xab).count() as u64
}
