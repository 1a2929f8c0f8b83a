//! Opening a log of 1 GiB whose process was killed, and reading it, against mapping the same files, or reading them, and
//! checksumming each record.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass::{Log, Options, ReadError};
use windlass_store::disk::{Access, Disk, DiskFile, DiskMap, RealDisk};

use crate::Settings;
use crate::child::{self, Child};
use crate::error::{BenchError, During};
use crate::measure::{Report, Series, Target, own_work_ns, work_ns};

const RECORD_BYTES: usize = 256;
/// A record with its header.
const FRAMED_BYTES: usize = 288;
/// What each round appends before the process is killed, so that each opening finds something to write again.
const ROUND_BYTES: u64 = 32 << 20;

/// The role of a process that has the log open and is killed.
pub(crate) const LOG_ROLE: &str = "log";
/// The role of a process that checksums the log's files.
pub(crate) const RAW_ROLE: &str = "raw-scan";

#[derive(Serialize, Deserialize)]
pub(crate) struct Place {
    folder: PathBuf,
    any_filesystem: bool,
}

#[derive(Serialize, Deserialize)]
enum LogRequest {
    Open,
    /// Appends so many payload bytes and answers where the log ends.
    Append(u64),
}

#[derive(Serialize, Deserialize)]
struct Opened {
    open_s: f64,
    read_s: f64,
    records: u64,
    memory_bytes: u64,
    work_ns: f64,
    /// Of the thread that opens, and of the same thread when it reads.
    open_ns: f64,
    read_ns: f64,
    tail: u64,
}

#[derive(Serialize, Deserialize)]
enum RawRequest {
    Map { tail: u64 },
    Read { tail: u64 },
}

#[derive(Serialize, Deserialize)]
struct Scanned {
    seconds: f64,
    work_ns: f64,
    records: u64,
}

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let place = Place { folder: folder.path().join("log"), any_filesystem: settings.quick };
    let mut writer = Child::start(LOG_ROLE, &place)?;
    let mut end: Opened = writer.ask(&LogRequest::Append(settings.choose(1 << 30, 4 << 20)))?;
    writer.kill()?;
    let mut maps = Series::new("mapping, copying out and checksumming each record");
    let mut reads = Series::new("reading by 256 KiB, checksumming each record");
    let mut ours = Series::new("windlass: open and read each record");
    let mut work = [maps.clone(), reads.clone(), ours.clone()];
    let (mut open_work, mut read_work) = (Series::new("of which opening"), Series::new("of which reading"));
    let (mut opens, mut memory) = (Series::new("open"), Series::new("anonymous memory"));
    for _ in 0..settings.rounds() {
        let tail = end.tail;
        let raw_ways = [(&mut maps, RawRequest::Map { tail }), (&mut reads, RawRequest::Read { tail })];
        for (work, (series, request)) in work.iter_mut().zip(raw_ways) {
            let scanned: Scanned = Child::start(RAW_ROLE, &place)?.ask(&request)?;
            series.push(rate(scanned.records, scanned.seconds));
            work.push(scanned.work_ns / scanned.records as f64);
        }
        let mut child = Child::start(LOG_ROLE, &place)?;
        let opened: Opened = child.ask(&LogRequest::Open)?;
        ours.push(rate(opened.records, opened.open_s + opened.read_s));
        work[2].push(opened.work_ns / opened.records as f64);
        open_work.push(opened.open_ns / opened.records as f64);
        read_work.push(opened.read_ns / opened.records as f64);
        opens.push(opened.open_s * 1e3);
        memory.push(opened.memory_bytes as f64 / f64::from(1 << 20));
        end = child.ask(&LogRequest::Append(settings.choose(ROUND_BYTES, 1 << 20)))?;
        child.kill()?;
    }
    let mut report = Report::default();
    report.compare("records read after SIGKILL", "MB of payload/s", [&maps, &reads, &ours]);
    report.compare(
        "processor time of the process",
        "ns per record",
        work.iter().chain([&open_work, &read_work]),
    );
    report.compare("of which opening", "ms", [&opens]);
    let best = maps.with(&reads, f64::max);
    let best = Series { name: "the faster raw way".into(), runs: best };
    report.judge(
        "opening and reading 1 GiB of 256 B records after SIGKILL ÷ mapping and checksumming",
        Target::AtLeast(0.8),
        ours.over(&best),
    );
    report.judge("memory of that beyond the mapping, MiB", Target::AtMost(64.0), memory.runs);
    Ok(report)
}

fn rate(records: u64, seconds: f64) -> f64 {
    records as f64 * RECORD_BYTES as f64 / 1e6 / seconds
}

/// The body of [`LOG_ROLE`].
pub(crate) fn log_role(place: &Place) -> Result<(), BenchError> {
    let mut log = None;
    child::serve(|request: LogRequest| match request {
        LogRequest::Open => {
            let (opened, answer) = open_and_read(place)?;
            log = Some(opened);
            Ok(answer)
        }
        LogRequest::Append(bytes) => {
            if log.is_none() {
                let options = Options::new().any_filesystem(place.any_filesystem);
                log = Some(options.create(&place.folder).during("making the log")?);
            }
            let log = log.as_ref().expect("made above");
            let tail = append(log, bytes)?;
            Ok(Opened {
                open_s: 0.0,
                read_s: 0.0,
                records: 0,
                memory_bytes: 0,
                work_ns: 0.0,
                open_ns: 0.0,
                read_ns: 0.0,
                tail,
            })
        }
    })
}

fn append(log: &Log, bytes: u64) -> Result<u64, BenchError> {
    let mut record = [0xA5; RECORD_BYTES];
    let mut tail = log.info().tail.0;
    for number in 0..bytes / RECORD_BYTES as u64 {
        record[..8].copy_from_slice(&number.to_le_bytes());
        let deadline = Instant::now() + Duration::from_secs(60);
        tail = log.append_wait_blocking(&record, deadline).during("appending")?.end.0;
    }
    Ok(tail)
}

fn open_and_read(place: &Place) -> Result<(Log, Opened), BenchError> {
    let before = child::anonymous_bytes()?;
    let (peak, over) = (AtomicU64::new(before), AtomicBool::new(false));
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(child::anonymous_bytes()?, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(3));
            }
            Ok::<_, BenchError>(())
        });
        let read = open_and_read_sampled(place);
        over.store(true, Ordering::Relaxed);
        sampler.join().expect("no panic")?;
        let (log, mut opened) = read?;
        opened.memory_bytes = peak.load(Ordering::Relaxed).max(child::anonymous_bytes()?) - before;
        Ok((log, opened))
    })
}

fn open_and_read_sampled(place: &Place) -> Result<(Log, Opened), BenchError> {
    let (start, before_ns, own_ns) = (Instant::now(), work_ns(), own_work_ns());
    let options = Options::new().any_filesystem(place.any_filesystem);
    let log = options.open(&place.folder).during("opening the log")?;
    let (open_s, open_ns) = (start.elapsed().as_secs_f64(), own_work_ns() - own_ns);
    let (start, own_ns) = (Instant::now(), own_work_ns());
    let mut reader = log.read_from(log.info().trimmed).during("reading the log")?;
    let mut records = 0;
    loop {
        match reader.next_run() {
            Ok(run) => {
                for record in run {
                    std::hint::black_box(record.payload);
                    records += 1;
                }
            }
            Err(ReadError::AtEnd { .. }) => break,
            Err(error) => return Err(error).during("reading the log"),
        }
    }
    let (read_s, read_ns) = (start.elapsed().as_secs_f64(), own_work_ns() - own_ns);
    let work_ns = work_ns() - before_ns;
    let tail = log.info().tail.0;
    Ok((log, Opened { open_s, read_s, records, memory_bytes: 0, work_ns, open_ns, read_ns, tail }))
}

/// The body of [`RAW_ROLE`].
pub(crate) fn raw_role(place: &Place) -> Result<(), BenchError> {
    child::serve(|request: RawRequest| {
        let (start, before_ns) = (Instant::now(), work_ns());
        let records = match request {
            RawRequest::Map { tail } => scan(&place.folder, tail, map_one)?,
            RawRequest::Read { tail } => scan(&place.folder, tail, read_one)?,
        };
        let (seconds, work_ns) = (start.elapsed().as_secs_f64(), work_ns() - before_ns);
        Ok(Scanned { seconds, work_ns, records })
    })
}

/// Goes through the segment files up to the log's end.
fn scan(
    folder: &Path,
    tail: u64,
    one: fn(&RealDisk, &str, u64) -> Result<u64, BenchError>,
) -> Result<u64, BenchError> {
    let disk = RealDisk::open(folder).during("opening the folder")?;
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".segment"))
        .collect();
    names.sort();
    let (mut records, mut left) = (0, tail);
    for name in names {
        let bytes = std::fs::metadata(folder.join(&name))?.len().min(left);
        if bytes <= 4096 {
            break;
        }
        records += one(&disk, &name, bytes)?;
        left -= bytes;
    }
    Ok(records)
}

fn map_one(disk: &RealDisk, name: &str, bytes: u64) -> Result<u64, BenchError> {
    let file = disk.open(name, Access::ReadWrite).during("opening a segment")?;
    let map = file.map(file.len_bytes().during("asking a segment's length")?).during("mapping a segment")?;
    let (mut at, mut records) = (4096, 0);
    let mut record = [0; FRAMED_BYTES];
    while at + FRAMED_BYTES as u64 <= bytes {
        map.memory().copy_out(at, &mut record);
        std::hint::black_box(crc32fast::hash(&record));
        at += FRAMED_BYTES as u64;
        records += 1;
    }
    Ok(records)
}

fn read_one(disk: &RealDisk, name: &str, bytes: u64) -> Result<u64, BenchError> {
    let file = disk.open(name, Access::Read).during("opening a segment")?;
    let mut buffer = vec![0; (256 << 10) / FRAMED_BYTES * FRAMED_BYTES];
    let (mut at, mut records) = (4096, 0);
    while at + FRAMED_BYTES as u64 <= bytes {
        let got = file.read_at(&mut buffer, at).during("reading a segment")?;
        let whole = buffer[..got].chunks_exact(FRAMED_BYTES);
        if whole.len() == 0 {
            break;
        }
        for record in whole {
            std::hint::black_box(crc32fast::hash(record));
            at += FRAMED_BYTES as u64;
            records += 1;
        }
    }
    Ok(records)
}
