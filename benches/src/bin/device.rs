//! What replication over a device takes, beside the raw operations on the same wrappers: `cargo xtask guest --bench` runs it on three hosts.
//!
//! One process holds the group's primary and a raw connection to a process at another host, and does all of it in turn: raw batch, raw round
//! trip, append. Times of an emulated machine mean nothing by themselves; ratios within a run do. Each figure is a line
//! `figure NAME VALUE`; where a name appears several times, each is one round.
//!
//! * `batch_us.N`: a write of N bytes and a write with immediate behind it, one doorbell, until the second has completed: what
//!   is between handing a batch to the device and knowing that it is placed.
//! * `round_trip_us.N`: a write with immediate of N bytes, answered by one of 8 bytes: both programs have a part in it.
//! * `append_us.N`: an append of N bytes, one at a time, committed at the level `Replicated`.
//! * `append_mib_s`: records of 64 KiB, as fast as they go; `batch_mib_s`: raw writes of 64 KiB.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use windlass::control::{Member, Secret};
use windlass::verbs::{
    DeviceChoice, VerbsCompletionQueue, VerbsConnection, VerbsFabric, VerbsOptions, VerbsRegion,
};
use windlass::{FabricChoice, Level, Log, LogId, MemberId, Node, NodeOptions, PumpMode};
use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric, HeapMemory,
    Local, Memory, Operation, REMOTE_RANGE_BYTES, Receive, Region, Remote, RemoteRange, Request, Source,
};

type Error = Box<dyn std::error::Error>;

/// Payloads of single records.
const SIZES: [usize; 4] = [64, 256, 1024, 4096];
const STREAM_BYTES: usize = 64 << 10;
const LIMIT: Duration = Duration::from_secs(60);
/// A round of one kind before it is another kind's turn.
const STRETCH: usize = 20;
/// What the notice of a batch carries.
const NOTICE_BYTES: u32 = 104;
const DEPTH: u32 = 64;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// The other end of the raw connection: answers round trips until it is told to stop
    Answer {
        /// Where to wait for the first member
        address: SocketAddr,
    },
    /// A member of the group; the first one measures
    Member {
        /// Its number, from 1
        #[arg(long)]
        me: u8,
        /// All members' addresses
        #[arg(long, value_delimiter = ',')]
        members: Vec<SocketAddr>,
        /// Its folder
        #[arg(long)]
        folder: PathBuf,
        /// Where the process waits that answers; given to the first member
        #[arg(long)]
        answerer: Option<SocketAddr>,
        /// Never sleep: neither the group's own thread nor the raw end here
        #[arg(long)]
        busy: bool,
        /// Rounds of each figure
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Stretches of each kind in a round
        #[arg(long, default_value_t = 10)]
        stretches: usize,
    },
}

fn main() -> Result<(), Error> {
    match Arguments::parse().role {
        Role::Answer { address } => answer(address),
        Role::Member { me, members, folder, answerer, busy, rounds, stretches } => {
            let node = open(me, &members, &folder, busy)?;
            let Some(answerer) = answerer else {
                // A backup: until the process is ended.
                loop {
                    std::thread::park();
                }
            };
            let log = primary(&node)?;
            Measure { raw: Raw::reach(answerer, busy)?, log, node, rounds, stretches }.run()
        }
    }
}

fn open(me: u8, members: &[SocketAddr], folder: &std::path::Path, busy: bool) -> Result<Node, Error> {
    let all =
        (1..).map(MemberId).zip(members).map(|(id, address)| Member { id, address: *address }).collect();
    let here = members[usize::from(me) - 1].ip();
    let device = DeviceChoice { address: Some(here), ..DeviceChoice::default() };
    let options = NodeOptions::new(MemberId(me), all, LogId([7; 16]), Secret::new(*b"of one benchmark")?)
        .allow_replicated(true)
        .segment_bytes(8 << 20)
        .pump(if busy { PumpMode::Busy } else { PumpMode::Adaptive })
        .suspicion(Duration::from_secs(10))
        .fabric(FabricChoice::Verbs(Box::new(VerbsOptions { device, ..VerbsOptions::default() })));
    Ok(Node::open_or_create(folder, options)?)
}

fn primary(node: &Node) -> Result<Log, Error> {
    node.promote();
    let log = node.wait_primary(Instant::now() + LIMIT)?;
    // Backups follow once their first segments are made and opened.
    for _ in 0..200 {
        put(&log, &[0; 256])?;
    }
    Ok(log)
}

fn put(log: &Log, record: &[u8]) -> Result<(), Error> {
    let soon = Instant::now() + LIMIT;
    let appended = log.append_wait_blocking(record, soon)?;
    let _committed = log.commit_until(appended.end, Level::Replicated, soon)?;
    Ok(())
}

/// The first member's work.
struct Measure {
    raw: Raw,
    log: Log,
    node: Node,
    rounds: usize,
    stretches: usize,
}

impl Measure {
    fn run(mut self) -> Result<(), Error> {
        let record = vec![0xA5; STREAM_BYTES];
        for _ in 0..self.rounds {
            for size in SIZES {
                let (mut batches, mut trips, mut appends) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..self.stretches {
                    timed(&mut batches, || self.raw.batch(size))?;
                    timed(&mut trips, || self.raw.round_trip(size))?;
                    timed(&mut appends, || put(&self.log, &record[..size]))?;
                }
                for (name, times) in
                    [("batch", &mut batches), ("round_trip", &mut trips), ("append", &mut appends)]
                {
                    println!("figure {name}_us.{size} {:.1}", median(times));
                }
            }
            let count = self.stretches * 8;
            println!("figure batch_mib_s {:.2}", rate(count, || self.raw.stream(count))?);
            println!("figure append_mib_s {:.2}", rate(count, || stream(&self.log, &record, count))?);
            self.log.trim(self.log.info().durable)?;
        }
        self.raw.stop()?;
        self.node.close()?;
        Ok(())
    }
}

fn timed(times: &mut Vec<f64>, mut work: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for _ in 0..STRETCH {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// MiB a second of so many pieces of the stream's size.
fn rate(count: usize, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    work()?;
    let pieces = u32::try_from(count)?;
    Ok(f64::from(pieces) / 16.0 / start.elapsed().as_secs_f64())
}

/// Records as fast as they go in, all placed in the end.
fn stream(log: &Log, record: &[u8], count: usize) -> Result<(), Error> {
    let soon = Instant::now() + LIMIT;
    let mut end = None;
    for _ in 0..count {
        end = Some(log.append_wait_blocking(record, soon)?.end);
    }
    if let Some(end) = end {
        let _committed = log.commit_until(end, Level::Replicated, soon)?;
    }
    Ok(())
}

/// One end of the raw connection.
struct Raw {
    line: TcpStream,
    queue: VerbsCompletionQueue,
    connection: VerbsConnection,
    region: VerbsRegion,
    peer: RemoteRange,
    busy: bool,
}

fn local(region: &VerbsRegion, offset: u64, bytes: u32) -> Source<'_, VerbsRegion> {
    Source::Region(Local { region, offset, bytes })
}

impl Raw {
    fn reach(address: SocketAddr, busy: bool) -> Result<Raw, Error> {
        let end = Instant::now() + LIMIT;
        let line = loop {
            match TcpStream::connect(address) {
                Ok(line) => break line,
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        Raw::over(line, busy)
    }

    fn over(mut line: TcpStream, busy: bool) -> Result<Raw, Error> {
        line.set_read_timeout(Some(Duration::from_secs(600)))?;
        let device = DeviceChoice { address: Some(line.local_addr()?.ip()), ..DeviceChoice::default() };
        let fabric = VerbsFabric::open(&device.into())?;
        let memory: Arc<dyn Memory> = Arc::new(HeapMemory::new(1 << 20));
        let region = fabric.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let queue = fabric.completion_queue(4 * DEPTH)?;
        let options = ConnectionOptions { send_depth: DEPTH, receive_depth: 2 * DEPTH, inline_bytes: 0 };
        let mut connection = fabric.connection(&queue, &options)?;
        for id in 0..u64::from(2 * DEPTH) {
            connection.post_receives(&[Receive { id, into: None }])?;
        }
        let range = region.remote().ok_or("no key of its own")?;
        line.write_all(&range.encode())?;
        line.write_all(&[u8::try_from(connection.endpoint().len())?])?;
        line.write_all(connection.endpoint())?;
        let mut range = [0; REMOTE_RANGE_BYTES];
        line.read_exact(&mut range)?;
        let mut length = [0];
        line.read_exact(&mut length)?;
        let mut endpoint = vec![0; usize::from(length[0])];
        line.read_exact(&mut endpoint)?;
        connection.connect(&endpoint)?;
        if connection.state() != ConnectionState::Ready {
            return Err(format!("connecting: {:?}", connection.state()).into());
        }
        line.write_all(&[1])?;
        line.read_exact(&mut length)?;
        Ok(Raw { line, queue, connection, region, peer: RemoteRange::decode(range), busy })
    }

    /// The next completion of a queue; receives that were consumed are posted again.
    fn next(&mut self, receive: bool) -> Result<(), Error> {
        let end = Instant::now() + LIMIT;
        let mut one = [Completion::BLANK];
        loop {
            while self.queue.poll(&mut one)? == 0 {
                if Instant::now() > end {
                    return Err("no completion within a minute".into());
                }
                if !self.busy {
                    // As the group's own thread waits: it polls for a moment, then sleeps.
                    self.queue.wait(Duration::from_secs(1))?;
                }
            }
            if !one[0].status.is_success() {
                return Err(format!("{:?}", one[0]).into());
            }
            if one[0].opcode.is_receive() {
                self.connection.post_receives(&[Receive { id: one[0].id, into: None }])?;
            }
            if one[0].opcode.is_receive() == receive {
                return Ok(());
            }
        }
    }

    fn write_immediate(&mut self, bytes: u32, signalled: bool) -> Result<(), Error> {
        let source = local(&self.region, 0, bytes);
        let operation = Operation::WriteImmediate { source, to: self.peer.at(0), immediate: bytes };
        Ok(self.connection.post(&[Request { id: 1, operation, signalled }])?)
    }

    /// Data and notice, until both are placed.
    fn batch(&mut self, bytes: usize) -> Result<(), Error> {
        let to: Remote = self.peer.at(4096);
        let data = Operation::Write { source: local(&self.region, 4096, u32::try_from(bytes)?), to };
        let notice = Operation::WriteImmediate {
            source: local(&self.region, 0, NOTICE_BYTES),
            to: self.peer.at(0),
            // The other end answers only what is no notice.
            immediate: 0,
        };
        self.connection.post(&[
            Request { id: 0, operation: data, signalled: false },
            Request { id: 1, operation: notice, signalled: true },
        ])?;
        self.next(false)
    }

    fn round_trip(&mut self, bytes: usize) -> Result<(), Error> {
        self.write_immediate(u32::try_from(bytes)?, true)?;
        self.next(true)?;
        // The own completion comes before the answer or after it: either way before the next request.
        while self.connection.outstanding().sends > 0 {
            self.next(false)?;
        }
        Ok(())
    }

    /// Writes of the stream's size, some of them under way at any time.
    fn stream(&mut self, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            while self.connection.outstanding().sends >= 16 {
                self.next(false)?;
            }
            let source = local(&self.region, 4096, u32::try_from(STREAM_BYTES)?);
            let operation = Operation::Write { source, to: self.peer.at(4096) };
            self.connection.post(&[Request { id: 2, operation, signalled: true }])?;
        }
        while self.connection.outstanding().sends > 0 {
            self.next(false)?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.write_immediate(1, true)?;
        self.next(false)?;
        Ok(self.line.write_all(&[1])?)
    }
}

/// The other end: answers what asks for an answer.
fn answer(address: SocketAddr) -> Result<(), Error> {
    let mut raw = Raw::over(TcpListener::bind(address)?.accept()?.0, false)?;
    let mut one = [Completion::BLANK];
    loop {
        if raw.queue.poll(&mut one)? == 0 {
            raw.queue.wait(Duration::from_secs(1))?;
            continue;
        }
        if !one[0].status.is_success() {
            return Err(format!("{:?}", one[0]).into());
        }
        if !one[0].opcode.is_receive() {
            continue;
        }
        raw.connection.post_receives(&[Receive { id: one[0].id, into: None }])?;
        match one[0].immediate {
            Some(0) => {}
            Some(1) => {
                let mut done = [0];
                raw.line.read_exact(&mut done)?;
                return Ok(());
            }
            _ => raw.write_immediate(8, true)?,
        }
    }
}
