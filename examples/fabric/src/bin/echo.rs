//! Messages that come back: the server receives each and writes it into the client's memory. Both ends sleep until there is something to do.
//!
//! ```text
//! echo server 127.0.0.1:7471
//! echo client 127.0.0.1:7471 --count 1000 --bytes 64
//! ```
//!
//! `write_once` polls: the shortest way, at the price of a processor. Here a completion wakes its thread, as programs do that have other
//! things to do. What is to be learned beside that: a buffer belongs to the device from the posting of a request until its completion.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use fabric_examples::{Error, Kind, LIMIT, Line, meet, successful, tcp_fabric, verbs_fabric};
use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, Fabric, HeapMemory, Local, Memory,
    Opcode, Operation, REMOTE_RANGE_BYTES, Receive, Region, RemoteRange, Request, Source,
};

/// Messages that come back by RDMA Write, with both ends asleep in between.
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
    /// The end that writes back
    Server {
        /// Where to wait for the client
        address: SocketAddr,
    },
    /// The end that begins
    Client {
        /// Where the server waits
        address: SocketAddr,
        /// How many messages, one after the other
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        /// How long each is
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOT_BYTES)))]
        bytes: u32,
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
        End::Client { count, bytes, .. } => client(fabric, line, *count, *bytes),
    }
}

/// Longest message.
const SLOT_BYTES: u32 = 4096;
/// Receives that the server keeps posted. A message that finds none makes the client's device retry, and at last fail: post ahead.
const SLOTS: u32 = 8;
const OPTIONS: ConnectionOptions = ConnectionOptions { send_depth: 16, receive_depth: 16, inline_bytes: 0 };

/// The next completion; the thread sleeps until there is one. The queue's `wait` arms the device's event, looks once more, and
/// only then sleeps: a completion between the last poll and the arming would otherwise be slept through.
fn wait_next<Q: CompletionQueue>(queue: &mut Q) -> Result<Completion, Error> {
    let end = Instant::now() + LIMIT;
    let mut one = [Completion::BLANK];
    while queue.poll(&mut one)? == 0 {
        if Instant::now() > end {
            return Err("no completion within a minute".into());
        }
        queue.wait(Duration::from_secs(1))?;
    }
    Ok(one[0])
}

fn server<F: Fabric>(fabric: &F, line: &mut Line) -> Result<(), Error> {
    // One slot for each receive. Incoming sends are placed here by this end's own receives: that is local writing.
    let memory = Arc::new(HeapMemory::new(u64::from(SLOTS * SLOT_BYTES)));
    let region = fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, Access::LOCAL_WRITE)?;
    let slot = |number: u64, bytes| Local { region: &region, offset: number * u64::from(SLOT_BYTES), bytes };
    // The number of a receive, and of the write back, is that of its slot.
    let receive = |number| Receive { id: number, into: Some(slot(number, SLOT_BYTES)) };

    let mut queue = fabric.completion_queue(64)?;
    let mut connection = meet(fabric, &mut queue, line, &OPTIONS, |connection| {
        (0..u64::from(SLOTS)).try_for_each(|number| connection.post_receives(&[receive(number)]))
    })?;
    let range: [u8; REMOTE_RANGE_BYTES] = line.hear()?.try_into().map_err(|_| "that is no range")?;
    let reply = RemoteRange::decode(range);

    let mut count = 0_u32;
    loop {
        let completion = successful(wait_next(&mut queue)?)?;
        match completion.opcode {
            // A message: write it back, straight out of the slot that it arrived in.
            Opcode::Receive if completion.bytes > 0 => {
                let source = Source::Region(slot(completion.id, completion.bytes));
                let operation =
                    Operation::WriteImmediate { source, to: reply.at(0), immediate: completion.bytes };
                connection.post(&[Request { id: completion.id, operation, signalled: true }])?;
                count += 1;
            }
            // The write back is done (which the client may have seen, and answered, long before), so that the device needs its slot no
            // longer: the next message may have it. A receive posted along with the write would let a message overwrite the reply before it
            // has left.
            Opcode::Write => {
                connection.post_receives(&[receive(completion.id)])?;
            }
            // An empty message: the client has seen all replies.
            Opcode::Receive => break,
            other @ (Opcode::Read
            | Opcode::Send
            | Opcode::Bind
            | Opcode::Invalidate
            | Opcode::ReceiveWrite) => {
                return Err(format!("a completion that nothing was posted for: {other:?}").into());
            }
        }
    }
    println!("{count} messages written back");
    // The client's device waits for this one's answer to that last message: stay until it has come.
    line.hear()?;
    Ok(())
}

fn client<F: Fabric>(fabric: &F, line: &mut Line, count: u32, bytes: u32) -> Result<(), Error> {
    // Requests are sent from one region, replies are written into the other: the second is the only one that a peer may touch.
    let requests = Arc::new(HeapMemory::new(u64::from(SLOT_BYTES)));
    let request_region = fabric.register(Arc::clone(&requests) as Arc<dyn Memory>, Access::NONE)?;
    let replies = Arc::new(HeapMemory::new(u64::from(SLOT_BYTES)));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let reply_region = fabric.register(Arc::clone(&replies) as Arc<dyn Memory>, access)?;

    let mut queue = fabric.completion_queue(64)?;
    let receive = Receive { id: 0, into: None };
    let mut connection =
        meet(fabric, &mut queue, line, &OPTIONS, |connection| connection.post_receives(&[receive]))?;
    line.say(&reply_region.remote().expect("it was registered with remote access").encode())?;

    let mut times = Vec::new();
    let mut sent = vec![0; usize::try_from(bytes)?];
    let mut came = sent.clone();
    for number in 1..=count {
        sent.iter_mut().zip(number..).for_each(|(byte, value)| *byte = value.to_le_bytes()[0]);
        requests.write(0, &sent);
        let begun = Instant::now();
        let source = Source::Region(Local { region: &request_region, offset: 0, bytes });
        let operation = Operation::Send { source, immediate: None };
        connection.post(&[Request { id: u64::from(number), operation, signalled: true }])?;
        // Two completions: that of the send, after which its buffer is free again, and that of the receive, after which the reply
        // may be read. They come in any order: the two queues of a connection have none between them.
        let mut pair = [successful(wait_next(&mut queue)?)?, successful(wait_next(&mut queue)?)?];
        times.push(begun.elapsed());
        pair.sort_by_key(|completion| completion.opcode.is_receive());
        assert_eq!([pair[0].opcode, pair[1].opcode], [Opcode::Send, Opcode::ReceiveWrite]);
        replies.read(0, &mut came);
        if came != sent || pair[1].immediate != Some(bytes) {
            return Err(format!("message {number} came back altered").into());
        }
        connection.post_receives(&[receive])?;
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_nanos() / 100;
    let micros = |tenths: u128| format!("{}.{}", tenths / 10, tenths % 10);
    println!(
        "{count} messages of {bytes} bytes came back unaltered: round trip {} us median, {} us p99",
        micros(at(50)),
        micros(at(99))
    );

    // Goodbye: an empty message. And, once it has arrived, a word on the line: now the server may go.
    let goodbye = Operation::Send {
        source: Source::Region(Local { region: &request_region, offset: 0, bytes: 0 }),
        immediate: None,
    };
    connection.post(&[Request { id: 0, operation: goodbye, signalled: true }])?;
    successful(wait_next(&mut queue)?)?;
    line.say(b"done")
}
