//! Buffered append through the public interface with default options, rollover, trimming and reuse of segments included,
//! against copying and checksumming the same payloads into a mapping of a file whose pages are present.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass::{Log, Lsn, Options, TrimError};
use windlass_log::Memory;
use windlass_store::disk::{Disk, DiskFile, DiskMap, RealDisk, RealMap};

use crate::Settings;
use crate::error::{BenchError, During};
use crate::measure::{Report, Series, Target, own_work_ns, side_by_side, work_ns};

/// Payload bytes, and how much is appended in one round: in five rounds of 256 B more than 4 GiB for each number of producers.
const SIZES: [(usize, u64); 4] = [(64, 128 << 20), (256, 1 << 30), (1024, 512 << 20), (4096, 512 << 20)];
const PRODUCERS: [usize; 2] = [1, 4];
/// Memory of the raw side, all threads together: as much as the log goes through before it reuses a segment, about.
const RAW_BYTES: u64 = 256 << 20;
/// The checkpointer trims to this far behind the tail.
const KEPT_BYTES: u64 = 32 << 20;
/// How far the tail must be beyond that before it does.
const STEP_BYTES: u64 = 32 << 20;

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let log = Options::new().open_or_create(&folder.path().join("log")).during("making the log")?;
    let raw = mapped(folder.path(), settings.choose(RAW_BYTES, 4 << 20))?;
    // The first lap makes the segments that are reused from then on.
    windlass_rate(&log, 4096, 1, settings.choose(1 << 30, 1 << 20))?;
    let mut report = Report::default();
    for (bytes, round_bytes) in SIZES {
        let round_bytes = settings.choose(round_bytes, 2 << 20);
        let name = |who: &str, producers: usize| format!("{who}, {bytes} B, {producers} at a time");
        let mut raws = PRODUCERS.map(|producers| Series::new(name("copy + crc32fast", producers)));
        let mut ours = PRODUCERS.map(|producers| Series::new(name("append", producers)));
        let mut raw_work = raws.clone();
        let mut our_work = ours.clone();
        let mut producers_work =
            PRODUCERS.map(|producers| Series::new(name("of which the producers'", producers)));
        for _ in 0..settings.rounds() {
            for (at, producers) in PRODUCERS.into_iter().enumerate() {
                let before = work_ns();
                raws[at].push(raw_rate(raw.memory(), bytes, producers, round_bytes));
                let between = work_ns();
                let (rate, producers_ns) = windlass_rate(&log, bytes, producers, round_bytes)?;
                ours[at].push(rate);
                let records = (records_each(bytes, producers, round_bytes) * producers as u64) as f64;
                raw_work[at].push((between - before) / records);
                our_work[at].push((work_ns() - between) / records);
                producers_work[at].push(producers_ns / records);
            }
        }
        for at in 0..PRODUCERS.len() {
            report.compare("buffered append", "records/s", [&raws[at], &ours[at]]);
            let title = "processor time of all threads";
            report.compare(title, "ns per record", [&raw_work[at], &our_work[at], &producers_work[at]]);
        }
        if bytes == 256 {
            judge(&mut report, &raws, &ours);
        }
    }
    let metrics = log.metrics();
    println!(
        "  appended {} MiB; {} segments made, {} reused, {} waits for one; {} MiB flushed in the background, {} MiB made present",
        metrics.tail.0 >> 20,
        metrics.segments_made,
        metrics.segments_recycled,
        metrics.append_not_ready,
        metrics.flush_bytes.sum >> 20,
        metrics.populated_bytes >> 20,
    );
    log.close().during("closing the log")?;
    Ok(report)
}

/// A mapping of a file of zeros, all of its pages present and writable.
fn mapped(folder: &Path, bytes: u64) -> Result<RealMap, BenchError> {
    let disk = RealDisk::open(folder).during("opening the folder")?;
    let file = disk.create("raw").during("making a file to map")?;
    file.allocate(bytes).during("filling it with zeros")?;
    let map = file.map(bytes).during("mapping it")?;
    map.memory().zero(0, bytes);
    Ok(map)
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
fn raw_rate(memory: &Memory, bytes: usize, producers: usize, round_bytes: u64) -> f64 {
    let records = records_each(bytes, producers, round_bytes);
    let payload = vec![0xA5; bytes];
    let part = memory.bytes() / producers as u64 / 4096 * 4096;
    let (took, _) = side_by_side(producers, |producer| {
        let region = memory.slice(producer as u64 * part, part);
        let mut at = 0;
        for _ in 0..records {
            if at + bytes as u64 + 8 > part {
                at = 0;
            }
            let payload = std::hint::black_box(&payload[..]);
            region.copy_in(at, payload);
            region.copy_in(at + bytes as u64, &crc32fast::hash(payload).to_le_bytes());
            at += bytes as u64 + 8;
        }
    });
    (records * producers as u64) as f64 / took.as_secs_f64()
}

fn records_each(bytes: usize, producers: usize, round_bytes: u64) -> u64 {
    (round_bytes / (bytes * producers) as u64).max(1)
}

/// Records per second of `producers` threads that append, with a checkpointer that trims behind them; and the processor time of these
/// threads in ns.
fn windlass_rate(
    log: &Log,
    bytes: usize,
    producers: usize,
    round_bytes: u64,
) -> Result<(f64, f64), BenchError> {
    let records = records_each(bytes, producers, round_bytes);
    let payload = vec![0xA5; bytes];
    let (end, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (took, work_ns) = thread::scope(|scope| {
        let checkpointer = scope.spawn(|| trim_behind(log, &end, &over));
        let (took, answers) = side_by_side(producers, |_| append_all(log, &payload, records, &end));
        over.store(true, Ordering::Relaxed);
        checkpointer.join().expect("no panic")?;
        let work_ns = answers.into_iter().sum::<Result<f64, BenchError>>()?;
        Ok::<_, BenchError>((took, work_ns))
    })?;
    Ok(((records * producers as u64) as f64 / took.as_secs_f64(), work_ns))
}

/// Answers the processor time of this thread in ns.
fn append_all(log: &Log, payload: &[u8], records: u64, end: &AtomicU64) -> Result<f64, BenchError> {
    let before_ns = own_work_ns();
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
    Ok(own_work_ns() - before_ns)
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
            match log.trim(Lsn(mark)) {
                Ok(()) => mark = now,
                // A producer that does not run just now has not published a record in front of it yet.
                Err(TrimError::Beyond { .. }) => {}
                Err(error) => return Err(error).during("trimming"),
            }
        }
    }
    Ok(())
}
