//! Golden bytes of format version 1: what this library writes, and that it still reads what was written then.
//!
//! The files are never changed for a version that was released. `WINDLASS_GOLDEN=write` writes those that are missing, for a new version.
#![cfg(not(loom))]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_log::{
    Appended, Chain, Drain, Epoch, EpochHistory, Geometry, Handoff, LiveMark, LogId, Lsn, MemberId, Memory,
    MemoryImage, RecordKind, SEGMENT_BYTES_MIN, Salt, Scan, SegmentHeader, Shape, Step, Superblock, Tenure,
    batch_items,
};

const S: u64 = SEGMENT_BYTES_MIN;
const LOG: LogId = LogId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
const GENESIS: Lsn = Lsn(4096);

fn golden(name: &str, written: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let writes = std::env::var("WINDLASS_GOLDEN").is_ok_and(|value| value == "write");
    if writes && !path.exists() {
        fs::write(&path, written).unwrap();
    }
    let kept = fs::read(&path).unwrap();
    let differs = kept.iter().zip(written).position(|(kept, written)| kept != written);
    assert_eq!(
        (differs, kept.len()),
        (None, written.len()),
        "{name}: the first byte that differs, and the length"
    );
    kept
}

fn epoch() -> Epoch {
    Epoch::new(5, MemberId(2))
}

fn header(segment: u64) -> SegmentHeader {
    SegmentHeader { log_id: LOG, base: Lsn(segment * S), segment_bytes: S, features: 0 }
}

fn shape() -> Shape {
    let mut history = EpochHistory::new();
    history.extend(epoch(), GENESIS).unwrap();
    Shape { geometry: Geometry::new(S).unwrap(), log_id: LOG, history }
}

fn open() -> (Arc<Handoff>, Drain, [Memory; 2]) {
    let chain = Chain::begin(&Salt::new(LOG).key(epoch()), GENESIS);
    let geometry = Geometry::new(S).unwrap();
    let tenure =
        Tenure { geometry, log_id: LOG, epoch: epoch(), tail: GENESIS, chain, persisted: GENESIS, slots: 2 };
    let (handoff, drain) = Handoff::new(tenure);
    let segments = [0, 1].map(|number| {
        let memory = Memory::heap(S);
        memory.copy_in(0, &header(number).encode());
        handoff.install(number, memory.clone()).unwrap();
        memory
    });
    handoff.set_limit(Lsn(2 * S));
    (handoff, drain, segments)
}

fn bytes(memory: &Memory, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
    memory.copy_out(from, &mut bytes);
    bytes
}

fn fill(memory: &Memory, at: u64, bytes: &[u8]) {
    memory.copy_in(at, bytes);
}

/// All records in the image from its first on, as (LSN, kind, payload).
fn read(segments: [Memory; 2]) -> Vec<(u64, RecordKind, Vec<u8>)> {
    let mut image = MemoryImage::new(Geometry::new(S).unwrap(), 0, segments.map(Some).to_vec());
    let mut scan = Scan::new(shape(), GENESIS, None);
    let mut records = Vec::new();
    while let Ok(Step::Record(record)) = scan.step(&mut image) {
        records.push((record.header.lsn.0, record.header.kind, record.payload.unwrap().to_vec()));
    }
    records
}

#[test]
fn segment_header() {
    let kept = golden("segment_header.bin", &header(3).encode());
    assert_eq!(SegmentHeader::decode(&kept).unwrap(), header(3));
}

#[test]
fn records_of_every_kind() {
    let (handoff, mut drain, segments) = open();
    handoff.append(RecordKind::EpochStart, b"").unwrap();
    handoff.append(RecordKind::Data, b"").unwrap();
    handoff.append(RecordKind::Data, b"one").unwrap();
    handoff.append(RecordKind::Data, b"a payload of thirty-two bytes ..").unwrap();
    handoff.append_batch(&[b"first", b"", b"the third item"]).unwrap();
    drop(handoff.reserve(40).unwrap());
    handoff.append(RecordKind::Configuration, b"three members").unwrap();
    let long = handoff.append(RecordKind::Data, &[0xa5; 5000]).unwrap();
    let last = handoff.append(RecordKind::Data, b"behind a lag of two pages").unwrap();
    drain.poll(100).unwrap();
    // The long payload is left out: 5000 times the same byte.
    let [first, long] = [long.start.0, long.end.0];
    assert_eq!(long, last.start.0);
    let mut written = bytes(&segments[0], GENESIS.0, first + 32);
    written.extend(bytes(&segments[0], long, last.end.0));
    let kept = golden("records.bin", &written);

    let [fresh, second] = [0, 1].map(|number| {
        let memory = Memory::heap(S);
        fill(&memory, 0, &header(number).encode());
        memory
    });
    let split = usize::try_from(first + 32 - GENESIS.0).unwrap();
    fill(&fresh, GENESIS.0, &kept[..split]);
    fill(&fresh, first + 32, &[0xa5; 5000]);
    fill(&fresh, long, &kept[split..]);
    let records = read([fresh, second]);
    let kinds: Vec<_> = records.iter().map(|(_, kind, _)| *kind).collect();
    use RecordKind::{Batch, Configuration, Data, EpochStart, Pad, SegmentStart};
    assert_eq!(kinds, [SegmentStart, EpochStart, Data, Data, Data, Batch, Pad, Configuration, Data, Data]);
    let payloads: Vec<_> = records.iter().map(|(_, _, payload)| payload.as_slice()).collect();
    assert_eq!(payloads[2..5], [&b""[..], b"one", b"a payload of thirty-two bytes .."]);
    assert_eq!(payloads[6], [0; 40]);
    assert_eq!(payloads[7], b"three members");
    assert_eq!(payloads[9], b"behind a lag of two pages");
    let items: Vec<_> = batch_items(payloads[5], Lsn(records[5].0)).map(Result::unwrap).collect();
    let start = records[5].0 + 32;
    assert_eq!(
        items,
        [(Lsn(start), &b"first"[..]), (Lsn(start + 16), b""), (Lsn(start + 24), b"the third item")]
    );
}

/// Fills segment 0 up to `left` bytes before its end with one record, appends a small one and one that crosses; the bytes around the end.
fn around_the_end(left: u64) -> (Vec<u8>, Appended, [Memory; 2]) {
    let (handoff, mut drain, segments) = open();
    let payload = S - GENESIS.0 - 48 - 32 - left;
    handoff.append(RecordKind::Data, &vec![7; usize::try_from(payload).unwrap()]).unwrap();
    let crossing = handoff.append(RecordKind::Data, &[9; 72]).unwrap();
    drain.poll(100).unwrap();
    let mut written = bytes(&segments[0], S - left, S);
    written.extend(bytes(&segments[1], GENESIS.0, crossing.end.0 - S));
    (written, crossing, segments)
}

#[test]
fn segment_ends() {
    // Exactly full; a remainder too small for a header; room for a bare pad; a pad with a body.
    for left in [0, 8, 24, 32, 96] {
        let (written, crossing, segments) = around_the_end(left);
        assert_eq!(crossing.start, Lsn(S + 4096 + 48), "R-1: behind the next segment's first record");
        let kept = golden(&format!("segment_end_{left}.bin"), &written);
        let tail = usize::try_from(left).unwrap();
        fill(&segments[0], S - left, &kept[..tail]);
        segments[1].zero(GENESIS.0, S - GENESIS.0);
        fill(&segments[1], GENESIS.0, &kept[tail..]);
        let records = read(segments);
        let pads: Vec<_> = records.iter().filter(|(_, kind, _)| *kind == RecordKind::Pad).collect();
        let bodies: Vec<_> = pads.iter().map(|(lsn, _, body)| (*lsn, body.len())).collect();
        let expected = if left < 32 { vec![] } else { vec![(S - left, tail - 32)] };
        assert_eq!(bodies, expected);
        assert_eq!(records.last().unwrap(), &(crossing.start.0, RecordKind::Data, vec![9; 72]));
    }
}

#[test]
fn superblock() {
    let mut history = EpochHistory::new();
    history.extend(Epoch::new(1, MemberId(0)), GENESIS).unwrap();
    history.extend(epoch(), Lsn(8192)).unwrap();
    let superblock = Superblock {
        generation: 42,
        log_id: LOG,
        member: MemberId(2),
        incarnation: 0x1122_3344_5566_7788,
        place: 0x99aa_bbcc_ddee_ff00,
        boot_id: [0xb0; 16],
        promised: Epoch::new(6, MemberId(1)),
        history,
        trimmed: Lsn(5000),
        persisted: Lsn(9000),
        clean: Some(Lsn(10_000)),
        acknowledged: Lsn(9000),
        caught_up: true,
        segment_bytes: S,
        features: 0,
        configuration: b"three members".to_vec(),
    };
    let kept = golden("superblock.bin", &superblock.encode().unwrap());
    assert_eq!(Superblock::decode(&kept).unwrap(), superblock);
}

#[test]
fn live_mark() {
    let mark = LiveMark {
        log_id: LOG,
        incarnation: 0x1122_3344_5566_7788,
        place: 0x99aa_bbcc_ddee_ff00,
        sequence: 43,
        persisted: Lsn(9000),
        epoch: epoch(),
    };
    let kept = golden("live_mark.bin", &mark.encode());
    assert_eq!(LiveMark::decode(&kept), Some(mark));
}
