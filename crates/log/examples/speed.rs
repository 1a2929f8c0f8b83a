//! How fast appends and scans are, against copying and checksumming the same bytes; run it with `--release`.
//!
//! Both sides of each ratio alternate in one loop; medians of the rounds are printed.

use std::time::Instant;
use std::vec::Vec;

use windlass_log::{
    Chain, Drain, DrainState, Epoch, EpochHistory, Geometry, Handoff, LogId, Lsn, MemberId, Memory,
    MemoryImage, RecordKind, Salt, Scan, SegmentHeader, Shape, Step, Tenure,
};

const SEGMENT_BYTES: u64 = 64 << 20;
const PAYLOAD: usize = 256;
const RECORD: usize = PAYLOAD + 32;
const RECORDS: usize = 200_000;
const ROUNDS: usize = 9;
const LOG: LogId = LogId([3; 16]);

fn main() {
    let geometry = Geometry::new(SEGMENT_BYTES).expect("a power of two");
    let memory = Memory::heap(SEGMENT_BYTES);
    let header = SegmentHeader { log_id: LOG, base: Lsn(0), segment_bytes: SEGMENT_BYTES, features: 0 };
    let fill = |memory: &Memory| {
        memory.zero(0, SEGMENT_BYTES);
        memory.copy_in(0, &header.encode());
    };
    fill(&memory);
    let payload: Vec<u8> = (0..=255).collect();
    let (mut raw, mut append, mut drained, mut drain_apart) = (vec![], vec![], vec![], vec![]);
    let (mut check, mut scan) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        raw.push(per_record(|| raw_append(&memory, &payload)));
        let (handoff, mut drain) = open(geometry, &memory);
        append.push(per_record(|| append_all(&handoff, &payload)));
        drain_apart.push(per_record(|| drain_all(&mut drain)));
        let (handoff, mut drain) = open(geometry, &memory);
        drained.push(per_record(|| {
            for _ in 0..RECORDS / 100 {
                for _ in 0..100 {
                    handoff.append(RecordKind::Data, &payload).expect("room");
                }
                drain.poll(200).expect("whole");
            }
        }));
        let shape = shape(geometry);
        let mut image = MemoryImage::new(geometry, 0, vec![Some(memory.clone())]);
        check.push(per_record(|| raw_check(&memory)));
        scan.push(per_record(|| scan_all(&shape, &mut image)));
    }
    let [raw, append, drained, drain_apart, check, scan] =
        [raw, append, drained, drain_apart, check, scan].map(median);
    println!("copy + checksum of 256 B          {raw:6.1} ns");
    println!("append                            {append:6.1} ns   {:.2} times", append / raw);
    println!("append, drained every 100         {drained:6.1} ns   {:.2} times", drained / raw);
    println!("drain alone                       {drain_apart:6.1} ns");
    println!("copy + checksum of each record     {check:6.1} ns");
    println!("scan                              {scan:6.1} ns   {:.2} of its speed", check / scan);
}

fn shape(geometry: Geometry) -> Shape {
    let mut history = EpochHistory::new();
    history.extend(epoch(), Lsn(4096)).expect("the first");
    Shape { geometry, log_id: LOG, history }
}

fn epoch() -> Epoch {
    Epoch::new(1, MemberId(0))
}

fn open(geometry: Geometry, memory: &Memory) -> (std::sync::Arc<Handoff>, Drain) {
    let tail = Lsn(4096);
    let chain = Chain::begin(&Salt::new(LOG).key(epoch()), tail);
    // What the round before left behind is not taken for published: clear the first header.
    memory.zero(4096, SEGMENT_BYTES - 4096);
    let tenure = Tenure { geometry, log_id: LOG, epoch: epoch(), tail, chain, persisted: tail, slots: 2 };
    let (handoff, drain) = Handoff::new(tenure);
    handoff.install(0, memory.clone()).expect("the first");
    handoff.set_limit(Lsn(u64::MAX));
    (handoff, drain)
}

fn per_record(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / f64::from(u32::try_from(RECORDS).expect("few"))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn raw_append(memory: &Memory, payload: &[u8]) {
    let mut at = 4096;
    for _ in 0..RECORDS {
        let checksum = crc32fast::hash(std::hint::black_box(payload));
        memory.copy_in(at, payload);
        memory.copy_in(at + 256, &checksum.to_le_bytes());
        at += 288;
    }
}

fn append_all(handoff: &Handoff, payload: &[u8]) {
    for _ in 0..RECORDS {
        handoff.append(RecordKind::Data, std::hint::black_box(payload)).expect("room");
    }
}

fn drain_all(drain: &mut Drain) {
    while drain.poll(1000).expect("whole").state == DrainState::More {}
}

fn raw_check(memory: &Memory) {
    // The least that anything does that reads memory others may change: copy each record out, checksum its payload.
    let mut record = [0; RECORD];
    let mut all = 0;
    let mut at = 4096 + 48;
    for _ in 0..RECORDS {
        memory.copy_out(at, &mut record);
        all ^= crc32fast::hash(&record[32..]);
        at += 288;
    }
    std::hint::black_box(all);
}

fn scan_all(shape: &Shape, image: &mut MemoryImage) {
    let mut scan = Scan::new(shape.clone(), Lsn(4096), None);
    let mut records = 0;
    while let Ok(Step::Record(record)) = scan.step(image) {
        std::hint::black_box(record.header.payload_bytes);
        records += 1;
    }
    assert_eq!(records, RECORDS + 1);
}
