//! What replication over a device takes, beside the raw operations on the same wrappers: `cargo xtask guest --bench` runs it on three hosts.
//!
//! One process holds the group's primary and a raw connection to a process at each host that has a backup, and does all of it in turn: raw batch,
//! raw round trip, append. Both wait in the same way ([`Waiting`]). Times of an emulated machine mean nothing by themselves; ratios
//! within a run do. Each figure is a line `figure NAME VALUE`; where a name appears several times, each is one round.
//!
//! * `batch_us.N`: a write of N bytes and a write with immediate behind it, one doorbell, until the second has completed: what
//!   is between handing a batch to the device and knowing that it is placed. To the first host alone.
//! * `batch_all_us.N`: the same to each host, until the first of them has completed: what a quorum costs.
//! * `round_trip_us.N`: a write with immediate of N bytes, answered by one of 8 bytes: both programs have a part in it.
//! * `append_us.N`: an append of N bytes, one at a time, committed at the level `Replicated`.
//! * `log_us.N`: an append of N bytes that nobody commits, beside an idle group: what of the above is the log's own, checksum included.
//! * `append_mib_s`: 320 records of 64 KiB, as fast as they go; `batch_mib_s`: as many raw writes of 64 KiB; `log_mib_s`: the checksum and the
//!   copy of one end alone, in memory. Between the two the command of `--beside` has its turn, with figures of its own.
//! * `cpu_us.KIND`, `switches.KIND`: this process's processor time, and how often its threads went to sleep, for each operation of 64 to 4096 B.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use windlass::control::{Member, Secret};
use windlass::verbs::{
    CompletionMode, DeviceChoice, VerbsCompletionQueue, VerbsConnection, VerbsFabric, VerbsOptions,
    VerbsRegion,
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
/// Pieces of a stream: so many that the first and the last of it do not count.
const STREAM_PIECES: usize = 320;
/// Half of a segment.
const TRIM_PIECES: usize = 64;
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
        /// Where the processes wait that answer; given to the first member
        #[arg(long, value_delimiter = ',')]
        answerers: Vec<SocketAddr>,
        /// How this process waits for its device, in the group and at the raw end
        #[arg(long, value_enum, default_value_t = Waiting::Sleep)]
        waiting: Waiting,
        /// Rounds of each figure
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Stretches of each kind in a round
        #[arg(long, default_value_t = 10)]
        stretches: usize,
        /// A shell command that has its turn between the streams of each round
        #[arg(long)]
        beside: Option<String>,
    },
}

/// How completions are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Waiting {
    /// Poll for 50 µs, then sleep: the default
    Sleep,
    /// Poll as long as anything takes here
    Poll,
    /// Never sleep, with a thread of its own that polls for the group
    Busy,
}

impl Waiting {
    /// Longer than any exchange takes on an emulated machine.
    const LONG: Duration = Duration::from_millis(20);

    fn spin(self) -> Duration {
        match self {
            Waiting::Sleep => Duration::from_micros(50),
            Waiting::Poll | Waiting::Busy => Waiting::LONG,
        }
    }

    fn completion(self) -> CompletionMode {
        match self {
            Waiting::Sleep | Waiting::Poll => CompletionMode::Adaptive { spin_max: self.spin() },
            Waiting::Busy => CompletionMode::Busy,
        }
    }

    fn pump(self) -> PumpMode {
        match self {
            Waiting::Sleep | Waiting::Poll => PumpMode::Adaptive,
            Waiting::Busy => PumpMode::Busy,
        }
    }
}

fn main() -> Result<(), Error> {
    match Arguments::parse().role {
        Role::Answer { address } => answer(address),
        Role::Member { me, members, folder, answerers, waiting, rounds, stretches, beside } => {
            let node = open(me, &members, &folder, waiting)?;
            if answerers.is_empty() {
                // A backup: until the process is ended.
                loop {
                    std::thread::park();
                }
            }
            let log = primary(&node)?;
            Measure { raw: Raw::reach(&answerers, waiting)?, log, node, rounds, stretches, beside }.run()
        }
    }
}

fn open(me: u8, members: &[SocketAddr], folder: &std::path::Path, waiting: Waiting) -> Result<Node, Error> {
    let all =
        (1..).map(MemberId).zip(members).map(|(id, address)| Member { id, address: *address }).collect();
    let here = members[usize::from(me) - 1].ip();
    let device = DeviceChoice { address: Some(here), ..DeviceChoice::default() };
    let options = NodeOptions::new(MemberId(me), all, LogId([7; 16]), Secret::new(*b"of one benchmark")?)
        .allow_replicated(true)
        .segment_bytes(8 << 20)
        .level(Level::Replicated)
        .pump(waiting.pump())
        .spin(waiting.spin())
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
    beside: Option<String>,
}

impl Measure {
    fn run(mut self) -> Result<(), Error> {
        let record = vec![0xA5; STREAM_BYTES];
        let mut used: [(&str, Used); 3] =
            ["batch", "batch_all", "append"].map(|name| (name, Used::default()));
        for _ in 0..self.rounds {
            for size in SIZES {
                let [mut batches, mut alls, mut trips, mut appends, mut logs] = [const { Vec::new() }; 5];
                for _ in 0..self.stretches {
                    let [batch, batch_all, append] = &mut used;
                    batch.1.count(|| timed(&mut batches, || self.raw.batch(size)))?;
                    batch_all.1.count(|| timed(&mut alls, || self.raw.batch_all(size)))?;
                    timed(&mut trips, || self.raw.round_trip(size))?;
                    append.1.count(|| timed(&mut appends, || put(&self.log, &record[..size])))?;
                    timed(&mut logs, || {
                        self.log.append_wait_blocking(&record[..size], Instant::now() + LIMIT)?;
                        Ok(())
                    })?;
                    // What nobody waited for is sent before the raw operations have their turn.
                    put(&self.log, &[0])?;
                }
                for (name, times) in [
                    ("batch", &mut batches),
                    ("batch_all", &mut alls),
                    ("round_trip", &mut trips),
                    ("append", &mut appends),
                    ("log", &mut logs),
                ] {
                    println!("figure {name}_us.{size} {:.1}", median(times));
                }
            }
            let count = STREAM_PIECES;
            println!("figure batch_mib_s {:.2}", rate(count, || self.raw.stream(count))?);
            if let Some(command) = &self.beside {
                run(command)?;
            }
            println!("figure append_mib_s {:.2}", rate(count, || stream(&self.log, &record, count))?);
            println!("figure log_mib_s {:.2}", rate(count, || checksum(&record, count))?);
            self.log.trim(self.log.info().durable)?;
        }
        for (name, used) in used {
            println!("figure cpu_us.{name} {:.1}", used.cpu_us / f64::from(used.operations));
            println!("figure switches.{name} {:.2}", used.switches / f64::from(used.operations));
        }
        self.raw.stop()?;
        self.node.close()?;
        Ok(())
    }
}

/// A shell command whose output is part of this one's.
fn run(command: &str) -> Result<(), Error> {
    let status = Command::new("sh").args(["-c", command]).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command}: {status}").into()) }
}

/// What this process has used for a kind of operation.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_us: f64,
    switches: f64,
    operations: u32,
}

impl Used {
    /// Counts a stretch of operations.
    fn count(&mut self, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let before = usage()?;
        work()?;
        let after = usage()?;
        self.cpu_us += after.0 - before.0;
        self.switches += after.1 - before.1;
        self.operations += u32::try_from(STRETCH)?;
        Ok(())
    }
}

/// Processor time in µs and voluntary switches of all of this process's threads.
fn usage() -> Result<(f64, f64), Error> {
    let (mut cpu_us, mut switches) = (0.0, 0.0);
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        let run = std::fs::read_to_string(path.join("schedstat"))?;
        cpu_us += run.split(' ').next().unwrap_or("0").parse::<f64>()? / 1e3;
        let status = std::fs::read_to_string(path.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += line.unwrap_or("0").trim().parse::<f64>()?;
    }
    Ok((cpu_us, switches))
}

/// The copy and the checksum that each end makes of a stream, in memory.
fn checksum(record: &[u8], count: usize) -> Result<(), Error> {
    let memory = HeapMemory::new(record.len() as u64);
    let mut sum = 0;
    for _ in 0..count {
        memory.write(0, record);
        sum ^= crc32fast::hash(record);
    }
    std::hint::black_box(sum);
    Ok(())
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

/// Records as fast as they go in, all placed in the end. What is durable is trimmed on the way, so that segments are used again, as in a log
/// that has been running for a while.
fn stream(log: &Log, record: &[u8], count: usize) -> Result<(), Error> {
    let soon = Instant::now() + LIMIT;
    let mut end = None;
    for piece in 0..count {
        if piece % TRIM_PIECES == 0 {
            log.trim(log.info().durable)?;
        }
        end = Some(log.append_wait_blocking(record, soon)?.end);
    }
    if let Some(end) = end {
        let _committed = log.commit_until(end, Level::Replicated, soon)?;
    }
    Ok(())
}

/// The raw operations: connections over one queue, one to each host.
struct Raw {
    queue: VerbsCompletionQueue,
    links: Vec<Link>,
}

/// One raw connection.
struct Link {
    line: TcpStream,
    connection: VerbsConnection,
    region: VerbsRegion,
    peer: RemoteRange,
}

fn local(region: &VerbsRegion, offset: u64, bytes: u32) -> Source<'_, VerbsRegion> {
    Source::Region(Local { region, offset, bytes })
}

impl Raw {
    /// Connects to the processes that wait there.
    fn reach(addresses: &[SocketAddr], waiting: Waiting) -> Result<Raw, Error> {
        let end = Instant::now() + LIMIT;
        let mut lines = Vec::new();
        for address in addresses {
            lines.push(loop {
                match TcpStream::connect(address) {
                    Ok(line) => break line,
                    Err(error) if Instant::now() > end => return Err(error.into()),
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            });
        }
        Raw::over(lines, waiting)
    }

    fn over(lines: Vec<TcpStream>, waiting: Waiting) -> Result<Raw, Error> {
        let here = lines.first().ok_or("nobody to reach")?.local_addr()?.ip();
        let device = DeviceChoice { address: Some(here), ..DeviceChoice::default() };
        let options = VerbsOptions { device, completion: waiting.completion(), ..VerbsOptions::default() };
        let fabric = VerbsFabric::open(&options)?;
        let queue = fabric.completion_queue(8 * DEPTH)?;
        let links = lines.into_iter().map(|line| Link::over(line, &fabric, &queue));
        Ok(Raw { links: links.collect::<Result<_, _>>()?, queue })
    }

    /// The next completion of a request, or of a receive, of this link or of any. Receives that were consumed are posted again.
    fn next(&mut self, of: Option<usize>, receive: bool) -> Result<Completion, Error> {
        let end = Instant::now() + LIMIT;
        let mut one = [Completion::BLANK];
        loop {
            while self.queue.poll(&mut one)? == 0 {
                if Instant::now() > end {
                    return Err("no completion within a minute".into());
                }
                // As the group's own thread waits.
                self.queue.wait(Duration::from_secs(1))?;
            }
            let [found] = one;
            if !found.status.is_success() {
                return Err(format!("{found:?}").into());
            }
            let is_its = |link: &Link| link.connection.id() == found.connection;
            let link = self.links.iter().position(is_its).ok_or("a completion of nobody's")?;
            if found.opcode.is_receive() {
                self.links[link].connection.post_receives(&[Receive { id: found.id, into: None }])?;
            }
            if found.opcode.is_receive() == receive && of.is_none_or(|of| of == link) {
                return Ok(found);
            }
        }
    }

    /// Until nothing is under way on a link.
    fn settle(&mut self, link: usize) -> Result<(), Error> {
        while self.links[link].connection.outstanding().sends > 0 {
            self.next(Some(link), false)?;
        }
        Ok(())
    }

    /// Data and notice to the first host, until both are placed.
    fn batch(&mut self, bytes: usize) -> Result<(), Error> {
        self.settle(0)?;
        self.links[0].post_batch(bytes)?;
        self.next(Some(0), false).map(drop)
    }

    /// The same to each host that has the one before, until the first of them has this one: one batch to a host is under way at a time, as in the
    /// group.
    fn batch_all(&mut self, bytes: usize) -> Result<(), Error> {
        let mut posted = false;
        for link in &mut self.links {
            if link.connection.outstanding().sends == 0 {
                link.post_batch(bytes)?;
                posted = true;
            }
        }
        if !posted {
            return Err("no host was idle".into());
        }
        // One that was under way may be what comes: the host is idle then, and has its turn next time.
        self.next(None, false).map(drop)
    }

    fn round_trip(&mut self, bytes: usize) -> Result<(), Error> {
        self.settle(0)?;
        self.links[0].write_immediate(u32::try_from(bytes)?, true)?;
        self.next(Some(0), true)?;
        // The own completion comes before the answer or after it: either way before the next request.
        self.settle(0)
    }

    /// Writes of the stream's size, some of them under way at any time.
    fn stream(&mut self, count: usize) -> Result<(), Error> {
        self.settle(0)?;
        for _ in 0..count {
            while self.links[0].connection.outstanding().sends >= 16 {
                self.next(Some(0), false)?;
            }
            let Link { connection, region, peer, .. } = &mut self.links[0];
            let source = local(region, 4096, u32::try_from(STREAM_BYTES)?);
            let operation = Operation::Write { source, to: peer.at(4096) };
            connection.post(&[Request { id: 2, operation, signalled: true }])?;
        }
        self.settle(0)
    }

    fn stop(&mut self) -> Result<(), Error> {
        for link in 0..self.links.len() {
            self.settle(link)?;
            self.links[link].write_immediate(1, true)?;
            self.next(Some(link), false)?;
            self.links[link].line.write_all(&[1])?;
        }
        Ok(())
    }
}

impl Link {
    fn over(mut line: TcpStream, fabric: &VerbsFabric, queue: &VerbsCompletionQueue) -> Result<Link, Error> {
        line.set_read_timeout(Some(Duration::from_secs(600)))?;
        let memory: Arc<dyn Memory> = Arc::new(HeapMemory::new(1 << 20));
        let region = fabric.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let options = ConnectionOptions { send_depth: DEPTH, receive_depth: 2 * DEPTH, inline_bytes: 0 };
        let mut connection = fabric.connection(queue, &options)?;
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
        Ok(Link { line, connection, region, peer: RemoteRange::decode(range) })
    }

    fn write_immediate(&mut self, bytes: u32, signalled: bool) -> Result<(), Error> {
        let source = local(&self.region, 0, bytes);
        let operation = Operation::WriteImmediate { source, to: self.peer.at(0), immediate: bytes };
        Ok(self.connection.post(&[Request { id: 1, operation, signalled }])?)
    }

    fn post_batch(&mut self, bytes: usize) -> Result<(), Error> {
        let to: Remote = self.peer.at(4096);
        let data = Operation::Write { source: local(&self.region, 4096, u32::try_from(bytes)?), to };
        let notice = Operation::WriteImmediate {
            source: local(&self.region, 0, NOTICE_BYTES),
            to: self.peer.at(0),
            // The other end answers only what is no notice.
            immediate: 0,
        };
        let requests = [
            Request { id: 0, operation: data, signalled: false },
            Request { id: 1, operation: notice, signalled: true },
        ];
        Ok(self.connection.post(&requests)?)
    }
}

/// The other end: answers what asks for an answer.
fn answer(address: SocketAddr) -> Result<(), Error> {
    let line = TcpListener::bind(address)?.accept()?.0;
    let mut raw = Raw::over(vec![line], Waiting::Sleep)?;
    loop {
        match raw.next(None, true)?.immediate {
            Some(0) => {}
            Some(1) => {
                let mut done = [0];
                raw.links[0].line.read_exact(&mut done)?;
                return Ok(());
            }
            _ => raw.links[0].write_immediate(8, true)?,
        }
    }
}
