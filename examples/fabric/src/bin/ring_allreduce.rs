//! All-reduce around a ring: N ranks have a vector each, and in the end all have the sum. Training of neural networks spends its network time in this.
//!
//! ```text
//! ring_allreduce --here 4                                                     # four ranks, threads of this process
//! ring_allreduce --ranks 10.0.0.1:7471,10.0.0.2:7471,10.0.0.3:7471 --rank 0   # one of three processes, each with its number
//! ```
//!
//! The vector is cut into N chunks. Each rank writes to its right neighbour alone, 2 (N - 1) times one chunk, so that each byte of bandwidth is
//! used at every rank all the time and the total sent by a rank is less than two vectors, however many ranks there are.
//!
//! ```text
//! reduce, steps 0 to N-2:  send chunk (rank - step), receive (rank - step - 1) and add it: in the end chunk (rank + 1) is whole
//! gather, as many steps:   send the chunk that became whole last, receive the next one and put it in place
//! ```
//!
//! What RDMA makes of it: a landing place in the right neighbour's memory for each step, so that nobody ever asks whether there is
//! room; the chunk is written straight into it, and the immediate says which step has landed.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::Arc;

use clap::Parser;
use fabric_examples::{Error, Kind, Line, meet, poll_next, successful, tcp_fabric, verbs_fabric};
use windlass_fabric::{
    Access, Connection, ConnectionOptions, Fabric, HeapMemory, Local, Memory, Operation, REMOTE_RANGE_BYTES,
    Receive, Region, RemoteRange, Request, Source,
};

/// Sums a vector over N ranks with RDMA Writes around a ring, and checks it against a plain sum.
#[derive(Parser)]
struct Arguments {
    /// Run so many ranks in this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64), required_unless_present = "ranks")]
    here: Option<u32>,
    /// Where each rank waits for its left neighbour, in the order of ranks
    #[arg(long, value_delimiter = ',', requires = "rank", conflicts_with = "here")]
    ranks: Vec<SocketAddr>,
    /// Which of them this process is, from 0
    #[arg(long)]
    rank: Option<usize>,
    /// Length of the vector, in words of 8 bytes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    words: u64,
    /// What carries the writes; the same at all ranks
    #[arg(long, value_enum, default_value_t = Kind::Tcp)]
    fabric: Kind,
}

fn main() -> Result<(), Error> {
    let Arguments { here, ranks, rank, words, fabric } = Arguments::parse();
    fabric.check()?;
    if let Some(rank) = rank.filter(|_| here.is_none()) {
        let address = ranks.get(rank).ok_or(format!("rank {rank} of {}", ranks.len()))?;
        return run(fabric, rank, &ranks, &TcpListener::bind(address)?, words);
    }
    // All ranks here: each a thread, with everything of its own.
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = (0..here.unwrap_or(2)).map(bind).collect::<Result<Vec<_>, _>>()?;
    let ranks = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let ranks = &ranks;
        let start = |(rank, listener)| scope.spawn(move || run(fabric, rank, ranks, &listener, words));
        let threads: Vec<_> = listeners.into_iter().enumerate().map(start).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a rank panicked".into())))
    })
}

fn run(
    kind: Kind,
    rank: usize,
    ranks: &[SocketAddr],
    listener: &TcpListener,
    words: u64,
) -> Result<(), Error> {
    let count = ranks.len();
    if count < 2 {
        return Err("a ring has two ranks at least".into());
    }
    // A listener takes connections before anybody accepts them, so that all ranks may do this in the same order.
    let mut right = Line::reach(ranks[(rank + 1) % count])?;
    let mut left = Line::accept(listener)?;
    let ring = Ring { rank: u64::try_from(rank)?, count: u64::try_from(count)?, words };
    match kind {
        Kind::Tcp => ring.sum(&tcp_fabric(listener.local_addr()?.ip())?, &mut left, &mut right),
        Kind::Verbs => ring.sum(&verbs_fabric(listener.local_addr()?.ip())?, &mut left, &mut right),
    }
}

const WORD_BYTES: u64 = 8;

/// One rank's view.
struct Ring {
    rank: u64,
    count: u64,
    words: u64,
}

impl Ring {
    /// The words of a chunk. The number may be any: chunks go round as ranks do.
    fn chunk(&self, number: u64) -> Range<u64> {
        let number = number % self.count;
        number * self.words / self.count..(number + 1) * self.words / self.count
    }

    /// Word `at` of the vector that a rank begins with.
    fn start(rank: u64, at: u64) -> u64 {
        (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7).wrapping_mul(2 * rank + 1)
    }

    fn sum<F: Fabric>(&self, fabric: &F, left: &mut Line, right: &mut Line) -> Result<(), Error> {
        // The vector: only this rank's own requests read it. The landing places: the left neighbour writes there, one for each step.
        let vector = Arc::new(HeapMemory::new(self.words * WORD_BYTES));
        (0..self.words).for_each(|at| vector.store(at * WORD_BYTES, Self::start(self.rank, at)));
        let vector_region = fabric.register(Arc::clone(&vector) as Arc<dyn Memory>, Access::NONE)?;
        let steps = 2 * (self.count - 1);
        let place_bytes = self.words.div_ceil(self.count) * WORD_BYTES;
        let landing = Arc::new(HeapMemory::new(steps * place_bytes));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let landing_region = fabric.register(Arc::clone(&landing) as Arc<dyn Memory>, access)?;

        // Two connections: writes come in over one and go out over the other. Receives for all steps are posted before anybody can write: the left
        // neighbour may be several steps ahead. Somebody has to begin with its right side, or all would wait for each other.
        let depth = u32::try_from(steps)?;
        let options = ConnectionOptions { send_depth: 2, receive_depth: depth, inline_bytes: 0 };
        let mut queue = fabric.completion_queue(2 * (2 + depth))?;
        let receives = |connection: &mut F::Connection| {
            (0..steps).try_for_each(|id| connection.post_receives(&[Receive { id, into: None }]))
        };
        let (mut out, _in);
        if self.rank == 0 {
            out = meet(fabric, &mut queue, right, &options, |_| Ok(()))?;
            _in = meet(fabric, &mut queue, left, &options, receives)?;
        } else {
            _in = meet(fabric, &mut queue, left, &options, receives)?;
            out = meet(fabric, &mut queue, right, &options, |_| Ok(()))?;
        }
        left.say(&landing_region.remote().expect("it was registered with remote access").encode())?;
        let range: [u8; REMOTE_RANGE_BYTES] = right.hear()?.try_into().map_err(|_| "that is no range")?;
        let place = RemoteRange::decode(range);

        let mut landed = 0;
        for step in 0..steps {
            // Counted up by one round, so that nothing goes below zero.
            let newest = self.rank + 2 * self.count - step;
            let is_gather = step >= self.count - 1;
            let chunk = self.chunk(newest);
            let source = Source::Region(Local {
                region: &vector_region,
                offset: chunk.start * WORD_BYTES,
                bytes: u32::try_from((chunk.end - chunk.start) * WORD_BYTES)?,
            });
            let to = place.at(step * place_bytes);
            let operation = Operation::WriteImmediate { source, to, immediate: u32::try_from(step)? };
            out.post(&[Request { id: step, operation, signalled: true }])?;

            // Both: the own chunk has left, so that its words may change again; and the left neighbour's has landed.
            let mut has_left = false;
            while !has_left || landed <= step {
                let completion = successful(poll_next(&mut queue)?)?;
                if completion.opcode.is_receive() {
                    assert_eq!(completion.immediate.map(u64::from), Some(landed), "steps land in order");
                    landed += 1;
                } else {
                    has_left = true;
                }
            }
            let chunk = self.chunk(newest - 1);
            for (number, at) in chunk.enumerate() {
                let came = landing.load(step * place_bytes + u64::try_from(number)? * WORD_BYTES);
                let own = if is_gather { 0 } else { vector.load(at * WORD_BYTES) };
                vector.store(at * WORD_BYTES, own.wrapping_add(came));
            }
        }

        // The plain sum: every rank knows what all began with.
        for at in 0..self.words {
            let plain = (0..self.count).fold(0_u64, |sum, rank| sum.wrapping_add(Self::start(rank, at)));
            let found = vector.load(at * WORD_BYTES);
            if found != plain {
                return Err(format!("rank {}: word {at} is {found}, the sum is {plain}", self.rank).into());
            }
        }
        println!(
            "rank {}: {} words over {} ranks in {steps} steps, equal to the plain sum",
            self.rank, self.words, self.count
        );
        // Nobody goes while a neighbour may still want something.
        right.say(b"done")?;
        left.hear()?;
        left.say(b"done")?;
        right.hear()?;
        Ok(())
    }
}
