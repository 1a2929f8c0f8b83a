//! Many requests, one doorbell: what posting in chains is worth.
//!
//! ```text
//! batch server 127.0.0.1:7471
//! batch client 127.0.0.1:7471
//! ```
//!
//! Posting has a price for each call (over verbs a write to a register of the card, the *doorbell*; over TCP a system call) and one for each request.
//! The client writes 64 bytes at a time in chains of 1, 2, 4, ... 64 requests, and prints what each comes to. Only the last request of a chain is signalled:
//! requests of a connection are executed in order, so that its completion stands for all before it.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use clap::{Parser, Subcommand};
use fabric_examples::{Error, Kind, Line, meet, poll_next, successful, tcp_fabric, verbs_fabric};
use windlass_fabric::{
    Access, Connection, ConnectionOptions, Fabric, HeapMemory, Local, Memory, Operation, REMOTE_RANGE_BYTES,
    Receive, Region, RemoteRange, Request, Source,
};

/// Requests per second, for 1 to 64 requests with each doorbell.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    end: End,
    /// What carries them; the same at both ends
    #[arg(long, global = true, value_enum, default_value_t = Kind::Tcp)]
    fabric: Kind,
}

#[derive(Subcommand)]
enum End {
    /// The end that is written to
    Server {
        /// Where to wait for the client
        address: SocketAddr,
    },
    /// The end that writes
    Client {
        /// Where the server waits
        address: SocketAddr,
        /// Requests for each length of chain, rounded up to whole chains
        #[arg(long, default_value_t = 64_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
        requests: u32,
    },
}

fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    arguments.fabric.check()?;
    let mut line = match &arguments.end {
        End::Server { address } => Line::listen(*address)?,
        End::Client { address, .. } => Line::reach(*address)?,
    };
    match arguments.fabric {
        Kind::Tcp => run(&tcp_fabric(line.here()?)?, &mut line, &arguments.end),
        Kind::Verbs => run(&verbs_fabric(line.here()?)?, &mut line, &arguments.end),
    }
}

fn run<F: Fabric>(fabric: &F, line: &mut Line, end: &End) -> Result<(), Error> {
    match end {
        End::Server { .. } => server(fabric, line),
        End::Client { requests, .. } => client(fabric, line, *requests),
    }
}

/// Longest chain: each of its requests has a slot of its own.
const CHAIN_MAX: u32 = 64;
const SLOT_BYTES: u32 = 64;
const BYTES: u64 = 64 * 64;
/// Two of the longest chains fit in the send queue: while one is under way the next is posted, and the device is never without work.
const OPTIONS: ConnectionOptions =
    ConnectionOptions { send_depth: 2 * CHAIN_MAX, receive_depth: 1, inline_bytes: 0 };

fn server<F: Fabric>(fabric: &F, line: &mut Line) -> Result<(), Error> {
    let memory = Arc::new(HeapMemory::new(BYTES));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, access)?;
    let mut queue = fabric.completion_queue(256)?;
    // Connections end where they are dropped: this one is kept until the client is done.
    let _connection = meet(fabric, &mut queue, line, &OPTIONS, |connection| {
        connection.post_receives(&[Receive { id: 0, into: None }])
    })?;
    line.say(&region.remote().expect("it was registered with remote access").encode())?;
    // Nothing to do for this end's program until the very last write, which says so. That one was executed after all others. And stay
    // until it has completed at the client, too.
    successful(poll_next(&mut queue)?)?;
    line.hear()?;
    let mut bytes = vec![0; usize::try_from(BYTES)?];
    memory.read(0, &mut bytes);
    let whole = bytes == pattern()?;
    line.say(if whole { b"whole" } else { b"altered" })?;
    if whole { Ok(()) } else { Err("the bytes written are not those that arrived".into()) }
}

fn client<F: Fabric>(fabric: &F, line: &mut Line, requests: u32) -> Result<(), Error> {
    let memory = Arc::new(HeapMemory::new(BYTES));
    memory.write(0, &pattern()?);
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, Access::NONE)?;
    let mut queue = fabric.completion_queue(256)?;
    let mut connection = meet(fabric, &mut queue, line, &OPTIONS, |_| Ok(()))?;
    let range: [u8; REMOTE_RANGE_BYTES] = line.hear()?.try_into().map_err(|_| "that is no range")?;
    let range = RemoteRange::decode(range);

    // The requests of the longest chain. Each has its own place to read from: the classic mistake is one description of memory that
    // all requests of a chain share, so that each sends what the last one was to send.
    let writes: Vec<_> = (0..CHAIN_MAX)
        .map(|slot| {
            let offset = u64::from(slot * SLOT_BYTES);
            let source = Source::Region(Local { region: &region, offset, bytes: SLOT_BYTES });
            let operation = Operation::Write { source, to: range.at(offset) };
            Request { id: u64::from(slot), operation, signalled: false }
        })
        .collect();

    println!("requests per doorbell   requests/s   doorbells/s");
    for length in (0..=CHAIN_MAX.ilog2()).map(|power| 1_u32 << power) {
        let mut chain = writes[..usize::try_from(length)?].to_vec();
        // Slots of the send queue are given back by completions alone: a chain without a signalled request would fill it for good.
        chain.last_mut().expect("at least one").signalled = true;
        let chains = requests.div_ceil(length);
        let mut under_way = 0;
        let begun = Instant::now();
        for _ in 0..chains {
            while under_way + length > OPTIONS.send_depth {
                successful(poll_next(&mut queue)?)?;
                under_way -= length;
            }
            connection.post(&chain)?;
            under_way += length;
        }
        while under_way > 0 {
            successful(poll_next(&mut queue)?)?;
            under_way -= length;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let doorbells = f64::from(chains) / seconds;
        println!("{length:>21} {:>12.0} {doorbells:>13.0}", doorbells * f64::from(length));
    }

    let source = Source::Region(Local { region: &region, offset: 0, bytes: SLOT_BYTES });
    let last = Operation::WriteImmediate { source, to: range.at(0), immediate: 0 };
    connection.post(&[Request { id: 0, operation: last, signalled: true }])?;
    successful(poll_next(&mut queue)?)?;
    line.say(b"done")?;
    if line.hear()? == b"whole" { Ok(()) } else { Err("the server found other bytes".into()) }
}

/// What the server's memory holds in the end: no two slots alike.
fn pattern() -> Result<Vec<u8>, Error> {
    (0..BYTES).map(|at| Ok(u8::try_from((at / 64 * 3 + at % 64 * 5 + 1) % 251)?)).collect()
}
