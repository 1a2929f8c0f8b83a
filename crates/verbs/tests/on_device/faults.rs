//! A peer killed, a device taken away, a link cut, with writes under way: between two processes, of which one strikes.
//!
//! `--passive ADDRESS:PORT --fault` owns the memory; `--active ADDRESS:PORT --fault COMMAND` writes to it, has the shell carry the command out when
//! writes flow, and sees what becomes of what it has posted: everything completes, or the queue says that the device is gone.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use windlass_fabric::conformance::{Control, Role, StreamControl};
use windlass_fabric::{
    Completion, CompletionQueue, Connection, ConnectionState, Fabric, Local, Memory, Operation, PostProblem,
    RemoteRange, Request, Source, Status,
};
use windlass_verbs::{VerbsCompletionQueue, VerbsConnection};

use crate::cases::{OPEN, bytes_of, region};
use crate::hosts::Tally;
use crate::pair::End;

/// By then everything has completed: retries end after 6 × 4 × 67 ms at the most on Soft-RoCE.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the owner of the memory waits to learn of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Writes that succeed before the fault.
const BEFORE: u32 = 50;
const AREA: u64 = 1 << 16;

pub(crate) fn run(role: Role, stream: TcpStream, command: &str) -> Tally {
    match role {
        Role::Active => strike(&mut StreamControl(stream), command),
        Role::Passive => suffer(stream),
    }
    Tally { passed: 1, ..Tally::default() }
}

fn connected(end: &End, control: &mut dyn Control) -> VerbsConnection {
    let mut connection = end.connection();
    control.say(connection.endpoint());
    let peer = control.hear(LIMIT);
    connection.connect(&peer).expect("to connect");
    control.say(b"ready");
    assert_eq!(control.hear(LIMIT), b"ready");
    connection
}

/// How the stream of writes came to its end.
enum Came {
    /// A request failed, in that way.
    Failed(Status),
    /// The queue is unusable.
    Device,
    /// A post was refused in error.
    Refused,
}

impl Came {
    fn words(&self) -> String {
        match self {
            Came::Failed(status) => format!("a write ended as {status:?}"),
            Came::Device => "the queue said that the device is gone".into(),
            Came::Refused => "posting was refused".into(),
        }
    }
}

fn strike(control: &mut dyn Control, command: &str) {
    let mut end = End::new();
    let mut connection = connected(&end, control);
    let heard = control.hear(LIMIT);
    let range = RemoteRange::decode(heard.as_slice().try_into().expect("a range"));
    let memory = std::sync::Arc::new(windlass_fabric::HeapMemory::new(4096));
    memory.write(0, &[0x77; 4096]);
    let from = region(&end.fabric, &memory, windlass_fabric::Access::NONE);
    let (mut succeeded, mut outstanding) = (0_u32, 0_u32);
    let mut struck: Option<Instant> = None;
    let begun = Instant::now();
    let ended = loop {
        assert!(begun.elapsed() < LIMIT, "writes neither fail nor end: {outstanding} outstanding");
        if succeeded >= BEFORE && struck.is_none() {
            let status = Command::new("bash").arg("-c").arg(command).status().expect("a shell");
            assert!(status.success(), "{command}: {status}");
            struck = Some(Instant::now());
        }
        while outstanding < 8 {
            let source = Source::Region(Local { region: &from, offset: 0, bytes: 4096 });
            let operation = Operation::Write { source, to: range.at(u64::from(succeeded % 16) * 4096) };
            match connection.post(&[Request { id: 0, operation, signalled: true }]) {
                Ok(()) => outstanding += 1,
                Err(error) if matches!(error.problem, PostProblem::State { .. }) => break,
                Err(error) => {
                    println!("   posting: {error}");
                    outstanding += u32::try_from(error.posted).expect("one");
                    break;
                }
            }
        }
        if outstanding == 0 {
            break Came::Refused;
        }
        match next(&mut end.queue) {
            Ok(Some(Status::Success)) => {
                succeeded += 1;
                outstanding -= 1;
            }
            Ok(Some(status)) => {
                outstanding -= 1;
                break Came::Failed(status);
            }
            Ok(None) => {}
            Err(()) => break Came::Device,
        }
    };
    let struck = struck.expect("the writes ended before the fault");
    let took = struck.elapsed();
    // What else was posted completes too.
    while outstanding > 0 && !matches!(ended, Came::Device) {
        assert!(begun.elapsed() < 2 * LIMIT, "{outstanding} requests never completed");
        match next(&mut end.queue) {
            Ok(Some(status)) => {
                assert!(!status.is_success(), "a success behind a failure");
                outstanding -= 1;
            }
            Ok(None) => {}
            Err(()) => break,
        }
    }
    println!("   {command}: {} {:.2} s later, {succeeded} writes before", ended.words(), took.as_secs_f64());
    assert!(matches!(connection.state(), ConnectionState::Error(_)), "{:?}", connection.state());
    let begun = Instant::now();
    connection.destroy();
    drop(from);
    drop(end);
    assert!(begun.elapsed() < LIMIT, "ending took {:?}", begun.elapsed());
}

/// The status of the next completion; an error where the device is gone.
fn next(queue: &mut VerbsCompletionQueue) -> Result<Option<Status>, ()> {
    let mut one = [Completion::BLANK];
    match queue.poll(&mut one) {
        Ok(1) => return Ok(Some(one[0].status)),
        Ok(_) => {}
        Err(error) => {
            println!("   polling: {error}");
            return Err(());
        }
    }
    queue.wait(Duration::from_millis(100)).map_err(|error| println!("   waiting: {error}"))?;
    Ok(None)
}

fn suffer(stream: TcpStream) {
    let mut end = End::new();
    let line = stream.try_clone().expect("the line");
    let control: &mut dyn Control = &mut StreamControl(stream);
    let mut connection = connected(&end, control);
    let memory = std::sync::Arc::new(windlass_fabric::HeapMemory::new(AREA));
    let access = windlass_fabric::Access::LOCAL_WRITE | windlass_fabric::Access::WINDOW_BIND;
    let opened = region(&end.fabric, &memory, access);
    let mut window = end.fabric.allocate_window().expect("a window");
    let range = connection.bind(1, &mut window, &opened, 0..AREA, OPEN).expect("a bind");
    end.done(1, Status::Success);
    control.say(&range.encode());
    // Until this end learns of it, or is killed, or the other is done (which a line that was cut does not tell).
    line.set_read_timeout(Some(Duration::from_millis(1))).expect("a time limit");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && !matches!(connection.state(), ConnectionState::Error(_)) {
        if next(&mut end.queue).is_err() || matches!(line.peek(&mut [0]), Ok(0)) {
            break;
        }
    }
    println!("   the owner: {:?} after {:.2} s", connection.state(), begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    connection.destroy();
    drop((window, opened, end));
    assert!(begun.elapsed() < LIMIT, "ending took {:?}", begun.elapsed());
    let whole = bytes_of(&*memory, 0, 4096);
    assert!(whole.iter().all(|byte| *byte == 0x77), "writes before the fault are there");
}
