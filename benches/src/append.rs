//! Buffered append through the public interface with default options, rollover, trimming and reuse of segments included,
//! against copying and checksumming the same payloads into memory whose pages are present.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass::{Log, Lsn, Options};

use crate::Settings;
use crate::error::{BenchError, During};
use crate::measure::{Report, Series, Target};

/// Payload bytes, and how much is appended in one round: in five rounds of 256 B more than 4 GiB for each number of producers.
const SIZES: [(usize, u64); 4] = [(64, 128 << 20), (256, 1 << 30), (1024, 512 << 20), (4096, 512 << 20)];
const PRODUCERS: [usize; 2] = [1, 4];
/// Memory of the raw side, all threads together: as much as the log goes through before it reuses a segment, about.
const RAW_BYTES: usize = 256 << 20;
/// The checkpointer trims to this far behind the tail.
const KEPT_BYTES: u64 = 64 << 20;
/// How far the tail must be beyond that before it does.
const STEP_BYTES: u64 = 64 << 20;

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let log = Options::new().open_or_create(&folder.path().join("log")).during("making the log")?;
    let mut raw = vec![1; settings.choose(RAW_BYTES, 4 << 20)];
    // The first lap makes the segments that are reused from then on.
    windlass_rate(&log, 4096, 1, settings.choose(1 << 30, 1 << 20))?;
    let mut report = Report::default();
    for (bytes, round_bytes) in SIZES {
        let round_bytes = settings.choose(round_bytes, 2 << 20);
        let name = |who: &str, producers: usize| format!("{who}, {bytes} B, {producers} at a time");
        let mut raws = PRODUCERS.map(|producers| Series::new(name("copy + crc32fast", producers)));
        let mut ours = PRODUCERS.map(|producers| Series::new(name("append", producers)));
        for _ in 0..settings.rounds() {
            for (at, producers) in PRODUCERS.into_iter().enumerate() {
                raws[at].push(raw_rate(&mut raw, bytes, producers, round_bytes));
                ours[at].push(windlass_rate(&log, bytes, producers, round_bytes)?);
            }
        }
        for at in 0..PRODUCERS.len() {
            report.compare("buffered append", "records/s", [&raws[at], &ours[at]]);
        }
        if bytes == 256 {
            judge(&mut report, &raws, &ours);
        }
    }
    let metrics = log.metrics();
    println!(
        "  appended {} MiB, {} segments made, {} reused, {} waits for a segment",
        (metrics.tail.0) >> 20,
        metrics.segments_made,
        metrics.segments_recycled,
        metrics.append_not_ready
    );
    log.close().during("closing the log")?;
    Ok(report)
}

fn judge(report: &mut Report, raws: &[Series; 2], ours: &[Series; 2]) {
    let [one, four] = ours;
    report.judge(
        "buffered append of 256 B, 1 producer ÷ copy + checksum",
        Target::AtLeast(0.5),
        one.over(&raws[0]),
    );
    report.judge("the same, 4 producers ÷ 1 producer", Target::AtLeast(0.75), four.over(one));
    report.judge(
        "the same, 4 producers ÷ copy + checksum in 4 threads",
        Target::AtLeast(0.45),
        four.over(&raws[1]),
    );
}

/// Records per second of `producers` threads that copy and checksum `round_bytes` of payload in all, each into its own part.
fn raw_rate(memory: &mut [u8], bytes: usize, producers: usize, round_bytes: u64) -> f64 {
    let records = records_each(bytes, producers, round_bytes);
    let payload = vec![0xA5; bytes];
    let part = memory.len() / producers;
    let barrier = Barrier::new(producers + 1);
    let start = thread::scope(|scope| {
        for region in memory.chunks_exact_mut(part) {
            let (barrier, payload) = (&barrier, &payload);
            scope.spawn(move || {
                barrier.wait();
                let mut slots = region.chunks_exact_mut(bytes + 8);
                for _ in 0..records {
                    let Some(slot) = slots.next() else {
                        slots = region.chunks_exact_mut(bytes + 8);
                        continue;
                    };
                    let payload = std::hint::black_box(&payload[..]);
                    slot[..bytes].copy_from_slice(payload);
                    slot[bytes..bytes + 4].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
                }
            });
        }
        barrier.wait();
        Instant::now()
    });
    (records * producers as u64) as f64 / start.elapsed().as_secs_f64()
}

fn records_each(bytes: usize, producers: usize, round_bytes: u64) -> u64 {
    (round_bytes / (bytes * producers) as u64).max(1)
}

/// Records per second of `producers` threads that append, with a checkpointer that trims behind them.
fn windlass_rate(log: &Log, bytes: usize, producers: usize, round_bytes: u64) -> Result<f64, BenchError> {
    let records = records_each(bytes, producers, round_bytes);
    let payload = vec![0xA5; bytes];
    let barrier = Barrier::new(producers + 1);
    let (end, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let took = thread::scope(|scope| {
        let checkpointer = scope.spawn(|| trim_behind(log, &end, &over));
        let threads: Vec<_> = (0..producers)
            .map(|_| {
                let (barrier, payload, end) = (&barrier, &payload, &end);
                scope.spawn(move || {
                    barrier.wait();
                    append_all(log, payload, records, end)
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let took = start.elapsed();
        over.store(true, Ordering::Relaxed);
        checkpointer.join().expect("no panic")?;
        answers.into_iter().collect::<Result<(), BenchError>>()?;
        Ok::<_, BenchError>(took)
    })?;
    Ok((records * producers as u64) as f64 / took.as_secs_f64())
}

fn append_all(log: &Log, payload: &[u8], records: u64, end: &AtomicU64) -> Result<(), BenchError> {
    for number in 0..records {
        let payload = std::hint::black_box(payload);
        let appended = match log.append(payload) {
            Ok(appended) => appended,
            Err(_) => {
                let deadline = Instant::now() + Duration::from_secs(60);
                log.append_wait_blocking(payload, deadline).during("appending")?
            }
        };
        if number % 256 == 0 {
            end.fetch_max(appended.end.0, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// What a database does after its checkpoints: releases what lies far enough behind.
fn trim_behind(log: &Log, end: &AtomicU64, over: &AtomicBool) -> Result<(), BenchError> {
    let mut mark = 0;
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
        let now = end.load(Ordering::Relaxed);
        if mark == 0 {
            mark = now;
        }
        if mark > 0 && now >= mark + KEPT_BYTES + STEP_BYTES {
            log.trim(Lsn(mark)).during("trimming")?;
            mark = now;
        }
    }
    Ok(())
}
