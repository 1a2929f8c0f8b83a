//! One RDMA Write: the smallest whole program. The client places a text in the server's memory; the server's processor has no part in it.
//!
//! ```text
//! write_once server 127.0.0.1:7471               # terminal 1
//! write_once client 127.0.0.1:7471 'some text'   # terminal 2
//! ```
//!
//! With `--window` the server opens its memory through a memory window, takes it back after the write, and lets the client find out.
//! With `--fabric verbs` (both ends) the same goes over a card, or Soft-RoCE.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use fabric_examples::{Error, Kind, Line, meet, poll_next, successful, tcp_fabric, verbs_fabric};
use windlass_fabric::{
    Access, Connection, ConnectionOptions, Fabric, HeapMemory, Local, Memory, Opcode, Operation,
    REMOTE_RANGE_BYTES, Receive, Region, RemoteRange, Request, Source, Status,
};

/// One RDMA Write, from a client into a server's memory.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    end: End,
    /// What carries it; the same at both ends
    #[arg(long, global = true, value_enum, default_value_t = Kind::Tcp)]
    fabric: Kind,
}

#[derive(Subcommand)]
enum End {
    /// The end that is written to
    Server {
        /// Where to wait for the client
        address: SocketAddr,
        /// Open the memory through a window, and take it back after the write
        #[arg(long)]
        window: bool,
    },
    /// The end that writes
    Client {
        /// Where the server waits
        address: SocketAddr,
        /// What to write: at most 4096 bytes
        #[arg(default_value = "hello from the other side")]
        text: String,
    },
}

fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    arguments.fabric.check()?;
    // The line comes first: it is how the ends find each other, and its address chooses the device.
    let mut line = match &arguments.end {
        End::Server { address, .. } => Line::listen(*address)?,
        End::Client { address, .. } => Line::reach(*address)?,
    };
    match arguments.fabric {
        Kind::Tcp => run(&tcp_fabric(line.here()?)?, &mut line, &arguments.end),
        Kind::Verbs => run(&verbs_fabric(line.here()?)?, &mut line, &arguments.end),
    }
}

fn run<F: Fabric>(fabric: &F, line: &mut Line, end: &End) -> Result<(), Error> {
    match end {
        End::Server { window, .. } => server(fabric, line, *window),
        End::Client { text, .. } => client(fabric, line, text),
    }
}

/// Bytes of memory that the server opens.
const BYTES: u64 = 4096;
const OPTIONS: ConnectionOptions = ConnectionOptions { send_depth: 4, receive_depth: 4, inline_bytes: 0 };
// Each request has a number of our own choice, which its completion bears.
const RECEIVE: u64 = 1;
const BIND: u64 = 2;
const INVALIDATE: u64 = 3;
const WRITE: u64 = 4;

fn server<F: Fabric>(fabric: &F, line: &mut Line, window: bool) -> Result<(), Error> {
    // 1. Register memory: the device learns its pages, and what may be done to them. Remote writing is given away here for good: the
    //    region's key lives as long as the region. Windows are opened over a region that gives nothing away itself.
    let memory = Arc::new(HeapMemory::new(BYTES));
    let access = if window { Access::WINDOW_BIND } else { Access::REMOTE_WRITE };
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, access | Access::LOCAL_WRITE)?;

    // 2. A queue for completions, and a connection whose completions go there. One receive is posted: the write that comes will carry an
    //    immediate, and that consumes a receive. It needs no buffer.
    let mut queue = fabric.completion_queue(8)?;
    let mut connection = meet(fabric, &mut queue, line, &OPTIONS, |connection| {
        connection.post_receives(&[Receive { id: RECEIVE, into: None }])
    })?;

    // 3. Tell the client where it may write: address, length, key.
    let mut bound = None;
    let range = if window {
        let mut opened = fabric.allocate_window()?;
        let range = connection.bind(BIND, &mut opened, &region, 0..BYTES, Access::REMOTE_WRITE)?;
        successful(poll_next(&mut queue)?)?;
        bound = Some(opened);
        range
    } else {
        region.remote().expect("it was registered with remote access")
    };
    line.say(&range.encode())?;

    // 4. Wait. A write without an immediate would end in the same memory with no sign of it here; and even one that has been seen in
    //    memory, byte by byte, is not known to be whole. The completion of a receive is the sign that the bytes may be read.
    let received = successful(poll_next(&mut queue)?)?;
    assert_eq!((received.id, received.opcode), (RECEIVE, Opcode::ReceiveWrite));
    let length = received.immediate.expect("a write with immediate has one");
    let mut text = vec![0; usize::try_from(u64::from(length).min(BYTES))?];
    memory.read(0, &mut text);
    println!("received: {}", String::from_utf8_lossy(&text));

    // 5. The receive may complete here before the write does at the client: whose device waits for an answer of this one. So stay
    //    until the client has seen it.
    line.hear()?;

    // 6. Take the window back, and let the client try once more.
    let Some(mut window) = bound else { return line.say(b"done") };
    connection.invalidate(INVALIDATE, &mut window)?;
    successful(poll_next(&mut queue)?)?;
    connection.post_receives(&[Receive { id: RECEIVE, into: None }])?;
    line.say(b"again")?;
    // The refused request brings this end of the connection down too, and what was posted with it: as flushed, or with the reason.
    let ended = poll_next(&mut queue)?;
    println!("window taken back; the receive posted for the next write ended as {:?}", ended.status);
    if ended.status.is_success() {
        return Err("a write came through a window that was taken back".into());
    }
    line.hear()?;
    Ok(())
}

fn client<F: Fabric>(fabric: &F, line: &mut Line, text: &str) -> Result<(), Error> {
    // 1. The text in registered memory. Only this end's own requests read it, so that no access need be given.
    let bytes = text.as_bytes();
    if u64::try_from(bytes.len())? > BYTES {
        return Err(format!("a text of {} bytes, there is room for {BYTES}", bytes.len()).into());
    }
    let memory = Arc::new(HeapMemory::new(BYTES));
    memory.write(0, bytes);
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, Access::NONE)?;

    // 2. Connect, and hear where to write.
    let mut queue = fabric.completion_queue(8)?;
    let mut connection = meet(fabric, &mut queue, line, &OPTIONS, |_| Ok(()))?;
    let range: [u8; REMOTE_RANGE_BYTES] = line.hear()?.try_into().map_err(|_| "that is no range")?;
    let range = RemoteRange::decode(range);

    // 3. One write, and the immediate says how long it is.
    let length = u32::try_from(bytes.len())?;
    let source = Source::Region(Local { region: &region, offset: 0, bytes: length });
    let operation = Operation::WriteImmediate { source, to: range.at(0), immediate: length };
    let write = Request { id: WRITE, operation, signalled: true };
    connection.post(&[write])?;

    // 4. Its completion: the server's device has taken the bytes. That is not the word of the server's program, and no promise that they
    //    would outlive a loss of power.
    successful(poll_next(&mut queue)?)?;
    println!("written: {length} bytes");
    line.say(b"written")?;

    // 5. With a window that has been taken back the same request is refused, by the device and not by the server's program.
    if line.hear()? == b"again" {
        connection.post(&[write])?;
        let refused = poll_next(&mut queue)?;
        println!("written again through the window that was taken back: {:?}", refused.status);
        line.say(b"seen")?;
        if refused.status != Status::RemoteAccess {
            return Err("the device let a write through a window that was taken back".into());
        }
    }
    Ok(())
}
