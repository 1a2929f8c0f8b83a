//! What each way to register costs on this device: `--measure`. Times under emulation mean nothing by themselves; ratios within one run do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, Backing, Connection, Fabric, HeapMemory, Local, Memory, Operation, RemoteRange, Request, Source,
    Status,
};
use windlass_verbs::{Registration, VerbsConnection, VerbsOptions, VerbsRegion};

use crate::Ended;
use crate::cases::OPEN;
use crate::memory::MappedMemory;
use crate::modes::folder_of;
use crate::pair::{End, connect};

const BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;
const SAMPLES: u64 = 300;

pub(crate) fn run() {
    println!(
        "| {:<9} | register 16 MiB | bind | 4 KiB to a page in use | to a new page | to a flushed page | 64 KiB writes | pinned |",
        "mode"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for mode in [Registration::Pinned, Registration::OdpPage, Registration::Staged] {
        match folder_of(mode) {
            Ok(folder) => measure(mode, &folder),
            Err(Ended::Skipped(why)) => println!("{mode}: {why}"),
            Err(Ended::Passed) => {}
        }
    }
}

/// A flush of a stretch, where there is a file to flush.
type Flush = Box<dyn Fn(u64)>;

fn measure(mode: Registration, folder: &std::path::Path) {
    let options = VerbsOptions { registration: Some(mode), ..VerbsOptions::default() };
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
    let mut each = |offset_of: &dyn Fn(u64) -> u64, before_each: &dyn Fn(u64)| {
        let times = (0..SAMPLES).map(|at| {
            let offset = offset_of(at);
            before_each(offset);
            let begun = Instant::now();
            write(&mut writer, &mut active, &from, 4096, range, offset);
            begun.elapsed()
        });
        median(times.collect())
    };
    let new_page = each(&|at| at * PAGE, &|_| ());
    let in_use = each(&|_| 0, &|_| ());
    let flushed = each(&|_| 0, &*flush);
    let begun = Instant::now();
    for at in 0..SAMPLES {
        write(&mut writer, &mut active, &from, 1 << 16, range, at % 64 * (1 << 16));
    }
    let stream = SAMPLES * (1 << 16) * 1_000_000 / micros(begun.elapsed()).max(1) / (1 << 20);
    let name = mode.name();
    println!(
        "| {name:<9} | {} µs | {} µs | {} µs | {} µs | {} µs | {stream} MiB/s | {pinned} KiB |",
        micros(register),
        micros(bind),
        micros(in_use),
        micros(new_page),
        micros(flushed)
    );
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
