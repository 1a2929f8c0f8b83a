//! One put at a time: raw exchange, raw flush and put in turn, a few dozen of each, within one process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use windlass_store::disk::flushing::{Appender, Way};

use crate::Settings;
use crate::child::Child;
use crate::error::{BenchError, During};
use crate::group::clients::Put;
use crate::group::pingpong::{self, Both, PingPong, Wait};
use crate::group::{Answer, Group, RECORD_BYTES, Request, Wanted};
use crate::measure::{Report, Series, Target, median_of};

/// What a primary is asked to do in one round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Round {
    /// Two processes that echo.
    echoes: [SocketAddr; 2],
    /// Where to make a file to flush; none for a round without flushes.
    flush_in: Option<PathBuf>,
    file_bytes: u64,
    /// Stretches of each kind, in turn.
    stretches: usize,
    wanted: Wanted,
}

/// Medians in µs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// One exchange, both ends asleep until they hear something.
    asleep: f64,
    /// One exchange, both ends waiting as windlass does.
    awake: f64,
    /// The same with two processes at once, until the first answer: what a quorum of three waits for.
    first: f64,
    /// Of the faster of the two ways to flush.
    flush: Option<f64>,
    /// Until the second of three flushes that begin at once is done: what a quorum of three on one disk waits for, whoever asks it to.
    second: Option<f64>,
    put: f64,
}

/// Operations of a kind before it is another kind's turn.
const STRETCH: usize = 25;

/// In the primary's process: one round.
pub(crate) fn round(log: &impl Put, round: &Round) -> Result<Answer, BenchError> {
    let record = [0xA5; RECORD_BYTES];
    let mut asleep = (PingPong::connect(round.echoes[0], Wait::Asleep)?, Vec::new());
    let mut awake = (PingPong::connect(round.echoes[0], Wait::Awake)?, Vec::new());
    let mut first = (Both::connect(round.echoes)?, Vec::new());
    let mut flushes = Vec::new();
    if let Some(folder) = &round.flush_in {
        for way in [Way::SmallFoliosMsync, Way::PwriteFdatasync] {
            let place = folder.join(format!("{way:?}"));
            std::fs::create_dir_all(&place)?;
            let flush = Appender::new(way, &place, round.file_bytes).during("making a file to flush")?;
            flushes.push((flush, Vec::new()));
        }
    }
    let mut at_once = match &round.flush_in {
        Some(folder) => Some((AtOnce::new(folder, round.file_bytes)?, Vec::new())),
        None => None,
    };
    let mut puts = Vec::new();
    for _ in 0..round.stretches {
        timed(&mut asleep.1, || asleep.0.once(&record))?;
        timed(&mut awake.1, || awake.0.once(&record))?;
        timed(&mut first.1, || first.0.once(&record))?;
        for (flush, times) in &mut flushes {
            timed(times, || flush.append().during("flushing"))?;
        }
        if let Some((at_once, times)) = &mut at_once {
            at_once.run(true);
            for _ in 0..STRETCH {
                times.push(at_once.second_us()?);
            }
            at_once.run(false);
        }
        timed(&mut puts, || log.put(&record, round.wanted))?;
    }
    let flush = flushes.iter_mut().map(|(_, times)| median_of(times)).reduce(f64::min);
    let second =
        at_once.map(|(at_once, mut times)| at_once.end().map(|()| median_of(&mut times))).transpose()?;
    if let Some(folder) = &round.flush_in {
        std::fs::remove_dir_all(folder)?;
    }
    let [asleep, awake, first, put] =
        [asleep.1, awake.1, first.1, puts].map(|mut times| median_of(&mut times));
    Ok(Answer::Latency(Outcome { asleep, awake, first, flush, second, put }))
}

/// Three files, each flushed by a thread of its own; one is the caller.
struct AtOnce {
    own: Appender,
    turn: Arc<Turn>,
    others: Vec<JoinHandle<Result<(), BenchError>>>,
}

struct Turn {
    began: Instant,
    number: AtomicU64,
    /// When each of the others was done, in nanoseconds since the beginning, and with which turn.
    done: [(AtomicU64, AtomicU64); 2],
    /// Whether turns are coming; else the others sleep.
    runs: AtomicBool,
    is_over: AtomicBool,
}

impl Turn {
    /// Gives way to others until it is so, or all is over.
    fn wait(&self, is_so: impl Fn() -> bool) -> bool {
        while !is_so() {
            if self.is_over.load(Ordering::Acquire) {
                return false;
            }
            if self.runs.load(Ordering::Acquire) {
                std::thread::yield_now();
            } else {
                std::thread::park();
            }
        }
        true
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("not for centuries")
    }
}

fn file_at(folder: &Path, number: usize, file_bytes: u64) -> Result<Appender, BenchError> {
    let place = folder.join(format!("at-once-{number}"));
    std::fs::create_dir_all(&place)?;
    Appender::new(Way::SmallFoliosMsync, &place, file_bytes).during("making a file to flush")
}

impl AtOnce {
    fn new(folder: &Path, file_bytes: u64) -> Result<AtOnce, BenchError> {
        let turn = Arc::new(Turn {
            began: Instant::now(),
            number: AtomicU64::new(0),
            done: Default::default(),
            runs: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let mut others = Vec::new();
        for at in 0..turn.done.len() {
            let (folder, turn) = (folder.to_path_buf(), Arc::clone(&turn));
            others.push(std::thread::spawn(move || {
                let mut flush = file_at(&folder, at, file_bytes)?;
                for number in 1.. {
                    // Between the stretches there is nothing to do; it is not what is measured.
                    if !turn.wait(|| turn.number.load(Ordering::Acquire) >= number) {
                        break;
                    }
                    let flushed = flush.append().during("flushing");
                    turn.done[at].0.store(turn.now_ns(), Ordering::Release);
                    turn.done[at].1.store(number, Ordering::Release);
                    flushed?;
                }
                Ok(())
            }));
        }
        Ok(AtOnce { own: file_at(folder, turn.done.len(), file_bytes)?, turn, others })
    }

    fn run(&self, runs: bool) {
        self.turn.runs.store(runs, Ordering::Release);
        self.others.iter().for_each(|other| other.thread().unpark());
    }

    fn second_us(&mut self) -> Result<f64, BenchError> {
        let turn = &self.turn;
        let start = turn.now_ns();
        let number = turn.number.fetch_add(1, Ordering::AcqRel) + 1;
        self.own.append().during("flushing")?;
        let own = turn.now_ns();
        // One that has ended has failed; what ends this says why.
        let has_failed = || self.others.iter().any(JoinHandle::is_finished);
        turn.wait(|| {
            turn.done.iter().all(|(_, done)| done.load(Ordering::Acquire) >= number) || has_failed()
        });
        let mut ends = [own, turn.done[0].0.load(Ordering::Acquire), turn.done[1].0.load(Ordering::Acquire)];
        ends.sort_unstable();
        Ok((ends[1] - start) as f64 / 1e3)
    }

    fn end(self) -> Result<(), BenchError> {
        self.turn.is_over.store(true, Ordering::Release);
        self.run(false);
        self.others.into_iter().try_for_each(|other| other.join().expect("it does not panic"))
    }
}

fn timed(times: &mut Vec<f64>, mut work: impl FnMut() -> Result<(), BenchError>) -> Result<(), BenchError> {
    for _ in 0..STRETCH {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(())
}

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let mut ours = Group::windlass(settings, folder.path())?;
    let mut quorum = Group::quorum(settings, folder.path())?;
    for group in [&mut ours, &mut quorum] {
        group.warm_up()?;
    }
    let mut echoing = [Child::start(pingpong::ROLE, &())?, Child::start(pingpong::ROLE, &())?];
    let [one, other] = &mut echoing;
    let echoes: [SocketAddr; 2] = [one.ask(&())?, other.ask(&())?];
    let mut report = Report::default();
    for wanted in [Wanted::Replicated, Wanted::Durable] {
        let mut asleep = Series::new("loopback ping-pong, asleep");
        let mut awake = Series::new("loopback ping-pong, awake");
        let mut first = Series::new("the first of two ping-pongs at once, awake");
        let mut floor = Series::new("the faster raw flush + ping-pong");
        let mut at_once = Series::new("the second of three flushes at once + the first of two ping-pongs");
        let mut raw = Series::new("raw quorum log");
        let mut put = Series::new("windlass");
        for number in 0..settings.rounds() {
            let request = |who: &str| {
                let flush_in = folder.path().join(format!("flush-{who}-{number}"));
                Request::Latency(Round {
                    echoes,
                    flush_in: (wanted == Wanted::Durable).then_some(flush_in),
                    file_bytes: settings.choose(16 << 20, 1 << 20),
                    stretches: settings.choose(16, 1),
                    wanted,
                })
            };
            let (Answer::Latency(a), Answer::Latency(b)) =
                (quorum.ask(&request("quorum"))?, ours.ask(&request("ours"))?)
            else {
                panic!("another answer than asked for");
            };
            raw.push(a.put);
            asleep.push(b.asleep);
            awake.push(b.awake);
            first.push(b.first);
            floor.push(b.awake + b.flush.unwrap_or(0.0));
            at_once.push(b.first + b.second.unwrap_or(0.0));
            put.push(b.put);
        }
        match wanted {
            Wanted::Replicated => {
                report.compare("Replicated, one at a time, p50", "µs", [&awake, &asleep, &first, &put, &raw]);
                let figure = "Replicated p50 alone ÷ loopback ping-pong p50";
                report.judge(figure, Target::AtMost(1.8), put.over(&awake));
            }
            Wanted::Durable => {
                report.compare("Durable, one at a time, p50", "µs", [&floor, &at_once, &awake, &put, &raw]);
                let figure = "Durable p50 alone ÷ (raw flush + ping-pong)";
                report.judge(figure, Target::AtMost(1.4), put.over(&floor));
            }
        }
    }
    Ok(report)
}
