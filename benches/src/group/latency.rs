//! One put at a time: raw exchange, raw flush and put in turn, a few dozen of each, within one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use windlass_store::disk::flushing::{Appender, Way};

use crate::Settings;
use crate::child::Child;
use crate::error::{BenchError, During};
use crate::group::clients::Put;
use crate::group::pingpong::{self, PingPong};
use crate::group::{Answer, Group, RECORD_BYTES, Request, Wanted};
use crate::measure::{Report, Series, Target, median_of};

/// What a primary is asked to do in one round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Round {
    echo: SocketAddr,
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
    exchange: f64,
    /// Of the faster of the two ways to flush.
    flush: Option<f64>,
    put: f64,
}

/// Operations of a kind before it is another kind's turn.
const STRETCH: usize = 25;

/// In the primary's process: one round.
pub(crate) fn round(log: &impl Put, round: &Round) -> Result<Answer, BenchError> {
    let record = [0xA5; RECORD_BYTES];
    let mut echo = PingPong::connect(round.echo)?;
    let mut flushes = Vec::new();
    if let Some(folder) = &round.flush_in {
        for way in [Way::SmallFoliosMsync, Way::PwriteFdatasync] {
            let place = folder.join(format!("{way:?}"));
            std::fs::create_dir_all(&place)?;
            let flush = Appender::new(way, &place, round.file_bytes).during("making a file to flush")?;
            flushes.push((flush, Vec::new()));
        }
    }
    let (mut exchanges, mut puts) = (Vec::new(), Vec::new());
    for _ in 0..round.stretches {
        timed(&mut exchanges, || echo.once(&record))?;
        for (flush, times) in &mut flushes {
            timed(times, || flush.append().during("flushing"))?;
        }
        timed(&mut puts, || log.put(&record, round.wanted))?;
    }
    let flush = flushes.iter_mut().map(|(_, times)| median_of(times)).reduce(f64::min);
    if let Some(folder) = &round.flush_in {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(Answer::Latency(Outcome { exchange: median_of(&mut exchanges), flush, put: median_of(&mut puts) }))
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
    let mut echoing = Child::start(pingpong::ROLE, &())?;
    let echo: SocketAddr = echoing.ask(&())?;
    let mut report = Report::default();
    for wanted in [Wanted::Replicated, Wanted::Durable] {
        let mut exchange = Series::new("loopback ping-pong");
        let mut floor = Series::new("the faster raw flush + ping-pong");
        let mut raw = Series::new("raw quorum log");
        let mut put = Series::new("windlass");
        for number in 0..settings.rounds() {
            let request = |who: &str| {
                let flush_in = folder.path().join(format!("flush-{who}-{number}"));
                Request::Latency(Round {
                    echo,
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
            exchange.push(b.exchange);
            floor.push(b.exchange + b.flush.unwrap_or(0.0));
            put.push(b.put);
        }
        match wanted {
            Wanted::Replicated => {
                report.compare("Replicated, one at a time, p50", "µs", [&exchange, &put, &raw]);
                let figure = "Replicated p50 alone ÷ loopback ping-pong p50";
                report.judge(figure, Target::AtMost(1.8), put.over(&exchange));
            }
            Wanted::Durable => {
                report.compare("Durable, one at a time, p50", "µs", [&floor, &exchange, &put, &raw]);
                let figure = "Durable p50 alone ÷ (raw flush + ping-pong)";
                report.judge(figure, Target::AtMost(1.4), put.over(&floor));
            }
        }
    }
    Ok(report)
}
