//! Measurements of the store on the medium under the build folder, each against the raw operation in the same run. Run with
//! `cargo test --release -p windlass-store --test figures -- --ignored --nocapture --test-threads 1`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use windlass_log::{
    Drain, DrainState, Epoch, Extent, Handoff, LogId, Lsn, MemberId, RecordKind, ReserveError, Tenure,
};
use windlass_store::disk::{Access, Disk, DiskFile, DiskMap, RealDisk};
use windlass_store::{Founding, Opened, Options, Prepared, Read, Store, Surroundings};

const AROUND: Surroundings = Surroundings { boot_id: [1; 16], incarnation: 7 };

fn founding() -> Founding {
    Founding {
        log_id: LogId([3; 16]),
        member: MemberId(0),
        incarnation: 1,
        segment_bytes: 64 << 20,
        epoch: Some(Epoch::new(1, MemberId(0))),
        configuration: Vec::new(),
    }
}

fn hand_off(store: &Store<RealDisk>, opened: &Opened) -> (Arc<Handoff>, Drain) {
    store.begin().unwrap();
    let (handoff, drain) = Handoff::new(Tenure {
        geometry: store.geometry(),
        log_id: store.log_id(),
        epoch: opened.epoch.unwrap(),
        tail: opened.tail,
        chain: opened.chain.unwrap(),
        persisted: store.persisted().lsn(),
        slots: 8,
    });
    for (segment, memory) in store.ready() {
        handoff.install(segment, memory).unwrap();
    }
    handoff.set_limit(Lsn(1 << 60));
    (handoff, drain)
}

fn prepare(store: &Store<RealDisk>, handoff: &Handoff) {
    loop {
        match store.prepare_step(handoff.tail()).unwrap() {
            // The ring is full until the drain has passed its oldest segment.
            Prepared::Segment { segment, memory } => {
                while handoff.install(segment, memory.clone()).is_err() {
                    handoff.retire();
                    std::thread::yield_now();
                }
            }
            Prepared::Idle => return,
            Prepared::Allocated { .. }
            | Prepared::Populated { .. }
            | Prepared::Marked { .. }
            | Prepared::Recycled { .. } => {}
        }
    }
}

fn median(times: &mut [u128]) -> u128 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn durable_append_against_the_raw_flush() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let (store, opened) = Store::create(disk, &founding(), &AROUND, &Options::default()).unwrap();
    let (handoff, mut drain) = hand_off(&store, &opened);
    prepare(&store, &handoff);
    let raw_folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let raw = RealDisk::open(raw_folder.path()).unwrap();
    let file = raw.create("raw").unwrap();
    file.allocate(64 << 20).unwrap();
    file.sync().unwrap();
    let map = file.map(64 << 20).unwrap();
    for round in 0..5 {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let device = [store.disk().device_written_bytes(), None, None];
        for number in 0..1000_u64 {
            let start = Instant::now();
            let end = handoff.append(RecordKind::Data, &[7; 256]).unwrap().end;
            while matches!(drain.poll(64).unwrap().state, DrainState::More) {}
            store.flush(end).unwrap();
            ours.push(start.elapsed().as_nanos());
            let at = 4096 + (round * 1000 + number) * 288;
            let start = Instant::now();
            map.memory().copy_in(at, &[7; 288]);
            map.flush_range(at / 4096 * 4096..(at + 288).next_multiple_of(4096)).unwrap();
            theirs.push(start.elapsed().as_nanos());
        }
        let both =
            store.disk().device_written_bytes().zip(device[0]).map(|(after, before)| (after - before) / 2000);
        let (ours, theirs) = (median(&mut ours) / 1000, median(&mut theirs) / 1000);
        println!(
            "round {round}: store {ours} µs, raw mapping + msync {theirs} µs, {both:?} device bytes for each of both"
        );
    }
    println!("{:?}", store.counters());
}

#[test]
#[ignore = "a measurement"]
fn buffered_append_with_rollover_trim_and_recycling() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let (store, opened) = Store::create(disk, &founding(), &AROUND, &Options::default()).unwrap();
    let (handoff, mut drain) = hand_off(&store, &opened);
    prepare(&store, &handoff);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (store, handoff, stop) = (&store, &handoff, &stop);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if matches!(drain.poll(10_000).unwrap().state, DrainState::Idle) {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                handoff.retire();
                prepare(store, handoff);
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        for gib in 0..4 {
            let start = Instant::now();
            let mut waits = 0_u64;
            let mut trimmed = store.trimmed();
            for _ in 0..(1_u64 << 30) / 288 {
                while let Err(ReserveError::NotReady { .. }) = handoff.append(RecordKind::Data, &[7; 256]) {
                    waits += 1;
                    std::thread::yield_now();
                }
                let drained = handoff.drained();
                if drained.0 > trimmed.0 + (128 << 20) {
                    store.trim(drained, drained).unwrap();
                    trimmed = drained;
                }
            }
            let rate = (1_u64 << 30) as f64 / 288.0 / start.elapsed().as_secs_f64();
            println!("GiB {gib}: {:.2} M records/s, {waits} waits, {:?}", rate / 1e6, store.counters());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
#[ignore = "a measurement"]
fn opening_and_reading_1_gib_after_a_kill() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let options = Options { retention_bytes: 2 << 30, ..Options::default() };
    let (store, opened) = Store::create(disk, &founding(), &AROUND, &options).unwrap();
    let (handoff, mut drain) = hand_off(&store, &opened);
    while handoff.tail().0 < 1 << 30 {
        match handoff.append(RecordKind::Data, &[7; 256]) {
            Ok(_) => {}
            Err(ReserveError::NotReady { .. }) => {
                while matches!(drain.poll(1 << 20).unwrap().state, DrainState::More) {}
                store.flush(handoff.drained()).unwrap();
                handoff.retire();
                prepare(&store, &handoff);
            }
            Err(error) => panic!("{error}"),
        }
    }
    while matches!(drain.poll(1 << 20).unwrap().state, DrainState::More) {}
    drop((handoff, drain, store));
    for round in 0..5 {
        let raw = raw_checksum(folder.path());
        for extent in [Extent::FromMark, Extent::Whole] {
            let before = peak_kib();
            let start = Instant::now();
            let disk = RealDisk::open(folder.path()).unwrap();
            let (store, opened) = Store::open(disk, &AROUND, &Options { extent, ..options }).unwrap();
            let open = start.elapsed();
            let store = Arc::new(store);
            let mut reader = store.reader(store.trimmed());
            let mut bytes = 0;
            while let Read::Record(record) = reader.next(opened.tail).unwrap() {
                bytes += record.payload.map_or(0, <[u8]>::len);
            }
            let both = start.elapsed();
            println!(
                "round {round}, {extent:?}: raw {raw:?}, open {open:?} ({} B rewritten), open and read {both:?} of {bytes} B: ratio {:.2}; peak grew {} KiB",
                opened.rewritten_bytes,
                raw.as_secs_f64() / both.as_secs_f64(),
                peak_kib() - before,
            );
        }
    }
}

/// Maps each segment and checksums it in pieces of a record.
fn raw_checksum(folder: &std::path::Path) -> std::time::Duration {
    let disk = RealDisk::open(folder).unwrap();
    let start = Instant::now();
    let mut sum = 0_u64;
    let mut record = [0; 288];
    for entry in disk.list().unwrap() {
        if !entry.name.ends_with(".segment") || *entry.name > *"000000003fffffff" {
            continue;
        }
        let map = disk.open(&entry.name, Access::ReadWrite).unwrap().map(entry.len_bytes).unwrap();
        let mut at = 4096;
        while at + 288 <= entry.len_bytes {
            map.memory().copy_out(at, &mut record);
            sum += u64::from(crc32fast::hash(&record));
            at += 288;
        }
    }
    assert_ne!(sum, 1);
    start.elapsed()
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}
