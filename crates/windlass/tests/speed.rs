//! Quick measurements of the log. Run one with
//! `cargo test --release -p windlass --test speed -- --ignored --nocapture --test-threads 1 NAME`. The benchmarks that figures are
//! taken from are in `benches`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use windlass::{Level, Log, Lsn, Options};

const PAYLOAD: [u8; 256] = [0xa5; 256];
const RECORD_BYTES: u64 = 288;
const TOTAL_BYTES: u64 = 4 << 30;
const TRIM_EVERY_BYTES: u64 = 64 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// This thread's CPU time in user and system mode, in seconds: what counts on a machine that others use too.
fn cpu_of(task: &str) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{task}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() / 100.0, fields[12].parse::<f64>().unwrap() / 100.0)
}

/// Copying and checksumming into pages that are present, in seconds per record.
fn raw(threads: u64) -> f64 {
    let memory = windlass_log::Memory::heap(64 << 20);
    memory.zero(0, 64 << 20);
    let records = TOTAL_BYTES / RECORD_BYTES / threads;
    let share = (64 << 20) / threads / 4096 * 4096;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let memory = &memory;
            scope.spawn(move || {
                let mut at = 0;
                let mut sum = 0u32;
                for _ in 0..records {
                    memory.copy_in(thread * share + at, &PAYLOAD);
                    sum = sum.wrapping_add(crc32fast::hash(std::hint::black_box(&PAYLOAD)));
                    at += RECORD_BYTES;
                    if at + RECORD_BYTES > share {
                        at = 0;
                    }
                }
                std::hint::black_box(sum);
                println!("   raw: CPU s {:?}", cpu_of("thread-self"));
            });
        }
    });
    begin.elapsed().as_secs_f64() / (records * threads) as f64
}

/// The same through the log, trimmed as it grows, in seconds per record.
fn through_the_log(producers: u64) -> f64 {
    let folder = folder();
    let log = Options::new().open_or_create(folder.path()).unwrap();
    let records = TOTAL_BYTES / RECORD_BYTES / producers;
    let trimmed = AtomicU64::new(0);
    let waits = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for producer in 0..producers {
            let (log, trimmed, waits) = (&log, &trimmed, &waits);
            scope.spawn(move || {
                for i in 0..records {
                    let appended = match log.append(&PAYLOAD) {
                        Ok(appended) => appended,
                        Err(_) => {
                            waits.fetch_add(1, Ordering::Relaxed);
                            log.append_wait_blocking(&PAYLOAD, Instant::now() + Duration::from_secs(60))
                                .unwrap()
                        }
                    };
                    if i + 1 == records {
                        println!("   producer {producer}: CPU s (user, system) {:?}", cpu_of("thread-self"));
                    }
                    if producer == 0
                        && i % 4096 == 0
                        && appended.start.0 > trimmed.load(Ordering::Relaxed) + 2 * TRIM_EVERY_BYTES
                    {
                        trim(log, appended.start);
                        trimmed.store(appended.start.0, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let took = begin.elapsed().as_secs_f64();
    let m = log.metrics();
    println!(
        "   waits {}, not ready {}, made {}, recycled {}, populated {} MiB, background flushes {}, flush page {} MiB, trims {}, device {} MiB, group {:?}",
        waits.load(Ordering::Relaxed),
        m.append_not_ready,
        m.segments_made,
        m.segments_recycled,
        m.populated_bytes >> 20,
        m.background_flushes,
        m.flush_page_bytes >> 20,
        m.trims,
        m.device_bytes.unwrap_or(0) >> 20,
        m.flush_ns.quantile(0.5) / 1000
    );
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().file_name().into_string().unwrap();
        let name = std::fs::read_to_string(format!("/proc/self/task/{task}/comm")).unwrap();
        if name.starts_with("windlass") {
            println!("   {}: CPU s {:?}", name.trim(), cpu_of(&format!("self/task/{task}")));
        }
    }
    let begin = Instant::now();
    log.close().unwrap();
    println!("   close took {:?}", begin.elapsed());
    took / (records * producers) as f64
}

fn trim(log: &Log, lsn: Lsn) {
    // Other producers may still be publishing below it.
    if log.commit_blocking(lsn, Level::Buffered).is_ok() {
        log.trim(lsn).unwrap();
    }
}

#[test]
#[ignore = "a measurement"]
fn buffered() {
    for round in 0..3 {
        let raw = [raw(1), raw(4)];
        let log = [through_the_log(1), through_the_log(4)];
        println!(
            "round {round}: raw {:.1} / {:.1} ns, log {:.1} / {:.1} ns; log/raw 1: {:.2}, 4: {:.2}; 4/1: {:.2}",
            raw[0] * 1e9,
            raw[1] * 1e9,
            log[0] * 1e9,
            log[1] * 1e9,
            raw[0] / log[0],
            raw[1] / log[1],
            log[0] / log[1]
        );
    }
}

/// The plain scheme to compare with, over `pwrite` and `fdatasync`: whoever finds nobody flushing flushes; the others sleep.
struct Plain {
    state: std::sync::Mutex<State>,
    changed: std::sync::Condvar,
    file: std::fs::File,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    tail: u64,
    flushed: u64,
    busy: bool,
}

const PLAIN_BYTES: u64 = 64 << 20;

impl Plain {
    fn new(folder: &std::path::Path) -> Plain {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(folder.join("plain")).unwrap();
        (0..PLAIN_BYTES / 4096).for_each(|page| file.write_all_at(&[0; 4096], page * 4096).unwrap());
        file.sync_all().unwrap();
        Plain { state: std::sync::Mutex::default(), changed: std::sync::Condvar::new(), file }
    }

    fn durable(&self) {
        use std::os::unix::fs::FileExt;
        let mut state = self.state.lock().unwrap();
        state.pending.extend_from_slice(&[0; 32]);
        state.pending.extend_from_slice(&PAYLOAD);
        let checksum = crc32fast::hash(&PAYLOAD).to_le_bytes();
        let header = state.pending.len() - 288;
        state.pending[header..header + 4].copy_from_slice(&checksum);
        state.tail += RECORD_BYTES;
        let end = state.tail;
        while state.flushed < end {
            if state.busy {
                state = self.changed.wait(state).unwrap();
                continue;
            }
            state.busy = true;
            let pending = std::mem::take(&mut state.pending);
            let (from, to) = (state.flushed, state.tail);
            drop(state);
            self.file.write_all_at(&pending, from % (PLAIN_BYTES - (1 << 20))).unwrap();
            self.file.sync_data().unwrap();
            state = self.state.lock().unwrap();
            state.busy = false;
            state.flushed = to;
            self.changed.notify_all();
        }
    }
}

fn rate(committers: usize, one: impl Fn() + Sync) -> (f64, Vec<u64>) {
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let mut times: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..committers)
            .map(|_| {
                scope.spawn(|| {
                    let mut times = Vec::with_capacity(100_000);
                    while !stop.load(Ordering::Relaxed) {
                        let begin = Instant::now();
                        one();
                        times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap());
                    }
                    times
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1000));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let rate = times.len() as f64 / begin.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate, times)
}

#[test]
#[ignore = "a measurement"]
fn durable() {
    let folder = folder();
    let plain = Plain::new(folder.path());
    let log = Options::new().open_or_create(&folder.path().join("log")).unwrap();
    let append = || {
        let appended = log.append_wait_blocking(&PAYLOAD, Instant::now() + Duration::from_secs(60)).unwrap();
        let _proof = log.commit_blocking(appended.end, Level::Local).unwrap();
    };
    for committers in [1, 4, 16] {
        for _ in 0..3 {
            let (base, base_times) = rate(committers, || plain.durable());
            let before = log.metrics();
            let (ours, times) = rate(committers, append);
            let now = log.metrics();
            let flushes = now.flushes - before.flushes;
            println!(
                "{committers:2}: plain {base:.0}/s p50 {} us, log {ours:.0}/s p50 {} us: ratio {:.2}; group {:.1}, flush p50 {} us, device {} B/record",
                base_times[base_times.len() / 2] / 1000,
                times[times.len() / 2] / 1000,
                ours / base,
                times.len() as f64 / flushes as f64,
                now.flush_ns.quantile(0.5) / 1000,
                (now.device_bytes.unwrap_or(0) - before.device_bytes.unwrap_or(0)) / times.len() as u64,
            );
        }
    }
    log.close().unwrap();
}
