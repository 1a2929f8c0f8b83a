//! What each way to register costs on this device: `--measure`. Times under emulation mean nothing by themselves; ratios within one run do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, Backing, Connection, Fabric, HeapMemory, Local, Memory, Operation, RemoteRange, Request, Source,
    Status,
};
use windlass_verbs::{CompletionMode, Registration, VerbsConnection, VerbsOptions, VerbsRegion};

use crate::Ended;
use crate::cases::OPEN;
use crate::memory::MappedMemory;
use crate::modes::folder_of;
use crate::pair::{End, connect};

const BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;
const SAMPLES: u64 = 200;
/// Each mode is measured so often, in turns; the least of each figure counts, since whatever else runs only adds.
const ROUNDS: usize = 5;

/// What was measured: times in microseconds.
#[derive(Clone, Copy)]
struct Figures {
    register: u64,
    bind: u64,
    in_use: u64,
    new_page: u64,
    flushed: u64,
    long: u64,
    pinned_kib: u64,
}

pub(crate) fn run() {
    let modes = [Registration::Pinned, Registration::OdpPage, Registration::Staged];
    let mut best: [Option<Figures>; 3] = [None; 3];
    for _ in 0..ROUNDS {
        for (mode, best) in modes.into_iter().zip(&mut best) {
            match folder_of(mode) {
                Ok(folder) => {
                    let found = measure(mode, &folder);
                    *best = Some(best.map_or(found, |best| best.least(found)));
                }
                Err(Ended::Skipped(why)) => println!("{mode}: {why}"),
                Err(Ended::Passed) => {}
            }
        }
    }
    println!(
        "| mode | register 16 MiB | bind | 4 KiB to a page in use | to a new page | to a flushed page | 64 KiB | pinned |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (mode, best) in modes.into_iter().zip(best) {
        let Some(Figures { register, bind, in_use, new_page, flushed, long, pinned_kib }) = best else {
            continue;
        };
        println!(
            "| {mode} | {register} µs | {bind} µs | {in_use} µs | {new_page} µs | {flushed} µs | {long} µs | {pinned_kib} KiB |"
        );
    }
}

impl Figures {
    fn least(self, other: Figures) -> Figures {
        Figures {
            register: self.register.min(other.register),
            bind: self.bind.min(other.bind),
            in_use: self.in_use.min(other.in_use),
            new_page: self.new_page.min(other.new_page),
            flushed: self.flushed.min(other.flushed),
            long: self.long.min(other.long),
            pinned_kib: self.pinned_kib.min(other.pinned_kib),
        }
    }
}

/// A flush of a stretch, where there is a file to flush.
type Flush = Box<dyn Fn(u64)>;

fn measure(mode: Registration, folder: &std::path::Path) -> Figures {
    let completion = CompletionMode::Busy;
    let options = VerbsOptions { registration: Some(mode), completion, ..VerbsOptions::default() };
    let (mut active, mut passive) = (End::with(&options), End::with(&options));
    let (memory, flush): (Arc<dyn Memory>, Flush) = if mode == Registration::Staged {
        (Arc::new(HeapMemory::new(BYTES)), Box::new(|_| ()))
    } else {
        let file = Arc::new(MappedMemory::new(folder, BYTES, Backing::MappedFile));
        let flushed = Arc::clone(&file);
        (file, Box::new(move |offset| flushed.flush(offset, PAGE)))
    };
    let before = pinned_kib();
    let begun = Instant::now();
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let opened = passive.fabric.register(memory, access).expect("a region");
    let register = begun.elapsed();
    let source: Arc<dyn Memory> = Arc::new(HeapMemory::new(1 << 16));
    let from = active.fabric.register(source, Access::NONE).expect("a region");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let begun = Instant::now();
    let range = owner.bind(1, &mut window, &opened, 0..BYTES, OPEN).expect("a bind");
    passive.done(1, Status::Success);
    let bind = begun.elapsed();
    let pinned = pinned_kib() - before;
    // New pages first: afterwards there are none left that were never written.
    let mut each = |bytes: u32, offset_of: &dyn Fn(u64) -> u64, before_each: &dyn Fn(u64)| {
        let times = (0..SAMPLES).map(|at| {
            let offset = offset_of(at);
            before_each(offset);
            let begun = Instant::now();
            write(&mut writer, &mut active, &from, bytes, range, offset);
            begun.elapsed()
        });
        median(times.collect())
    };
    let new_page = each(4096, &|at| at * PAGE, &|_| ());
    let in_use = each(4096, &|_| 0, &|_| ());
    let flushed = each(4096, &|_| 0, &*flush);
    let long = each(1 << 16, &|_| 0, &|_| ());
    Figures {
        register: micros(register),
        bind: micros(bind),
        in_use: micros(in_use),
        new_page: micros(new_page),
        flushed: micros(flushed),
        long: micros(long),
        pinned_kib: pinned,
    }
}

fn write(
    writer: &mut VerbsConnection,
    active: &mut End,
    from: &VerbsRegion,
    bytes: u32,
    range: RemoteRange,
    offset: u64,
) {
    let source = Source::Region(Local { region: from, offset: 0, bytes });
    let operation = Operation::Write { source, to: range.at(offset) };
    writer.post(&[Request { id: 2, operation, signalled: true }]).expect("to post");
    active.done(2, Status::Success);
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn pinned_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
