use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::testing::{GENESIS, LOG, Log, S, epoch, index, segment};
use crate::{EpochHistory, LogId, MemoryImage, SEGMENT_HEADER_BYTES};

/// All records from `from` on as (LSN, kind, payload), and where and why they end.
fn read(log: &Log, from: Lsn) -> (Vec<(Lsn, RecordKind, Vec<u8>)>, Stop) {
    read_with(Scan::new(log.shape.clone(), from, None), &mut log.image())
}

fn read_with(mut scan: Scan, image: &mut MemoryImage) -> (Vec<(Lsn, RecordKind, Vec<u8>)>, Stop) {
    let mut records = Vec::new();
    loop {
        match scan.step(image).unwrap() {
            Step::Record(record) => {
                assert_eq!(record.end, scan_end(&record));
                records.push((record.header.lsn, record.header.kind, record.payload.unwrap().to_vec()));
            }
            Step::Stop(stop) => return (records, stop),
        }
    }
}

fn scan_end(record: &Record<'_>) -> Lsn {
    crate::Geometry::new(S).unwrap().record_end(record.header.lsn, record.header.record_bytes())
}

#[test]
fn what_was_appended_is_read_back_across_segments() {
    let mut log = Log::new(3);
    let payloads: Vec<Vec<u8>> = (0_u8..40).map(|n| vec![n; usize::from(n) * 97]).collect();
    let appended: Vec<_> = payloads.iter().map(|payload| log.append(payload)).collect();
    let (records, stop) = read(&log, GENESIS);
    assert_eq!(stop, Stop { lsn: log.tail(), reason: StopReason::Blank });
    let data: Vec<_> = records.iter().filter(|(_, kind, _)| *kind == RecordKind::Data).collect();
    assert_eq!(data.len(), payloads.len());
    for ((lsn, _, payload), (at, expected)) in data.into_iter().zip(appended.iter().zip(&payloads)) {
        assert_eq!((lsn, payload), (&at.start, expected));
    }
    let starts = records.iter().filter(|(_, kind, _)| *kind == RecordKind::SegmentStart).count();
    assert_eq!(starts, 2);
}

#[test]
fn the_chain_of_the_scan_is_that_of_the_drain() {
    let mut log = Log::new(2);
    for n in 0_u8..50 {
        log.append(&[n; 2000]);
    }
    let mut scan = Scan::new(log.shape.clone(), GENESIS, None).flat();
    while matches!(scan.step(&mut log.image()).unwrap(), Step::Record(_)) {}
    assert_eq!(scan.chain(), Some(log.drain.chain()));
    let mut second = Scan::new(log.shape.clone(), Lsn(S + SEGMENT_HEADER_BYTES), None);
    while matches!(second.step(&mut log.image()).unwrap(), Step::Record(_)) {}
    assert_eq!(second.chain(), Some(log.drain.chain()), "the segment-start record gives the chain");
}

#[test]
fn kind_40_an_empty_record_is_legal_and_not_all_zeros() {
    let mut log = Log::new(1);
    let at = log.append(b"");
    let (memory, offset) = log.place(at.start);
    let mut bytes = [0; 32];
    memory.copy_out(offset, &mut bytes);
    assert_ne!(bytes, [0; 32], "kind 14");
    assert_ne!(memory.load_u64(offset, core::sync::atomic::Ordering::Relaxed), 0);
    assert_eq!(read(&log, GENESIS).0.last().unwrap(), &(at.start, RecordKind::Data, vec![]));
}

#[test]
fn r3_a_record_copied_into_a_payload_or_elsewhere_never_parses() {
    let mut log = Log::new(2);
    let at = log.append(&[5; 48]);
    let (memory, offset) = log.place(at.start);
    let mut record = [0; 80];
    memory.copy_out(offset, &mut record);
    let copy = log.append(&record.repeat(10));
    let (records, _) = read(&log, GENESIS);
    assert_eq!(records.len(), 3);
    // Nor is it found by looking for anything that could be a record.
    let mut scan = Scan::new(log.shape.clone(), Lsn(copy.start.0 + 8), None);
    assert_eq!(scan.resync(&mut log.image(), 2).unwrap(), None);
    // The same record at the place of the next one: its word is of another LSN.
    let (memory, offset) = log.place(copy.end);
    memory.copy_in(offset, &record);
    let (_, stop) = read(&log, GENESIS);
    assert_eq!(stop.lsn, copy.end);
    assert!(matches!(stop.reason, StopReason::Header(HeaderError::NoRecord { .. })));
}

#[test]
fn r3_a_payload_crafted_as_a_header_of_its_own_place_in_another_log_never_parses() {
    let mut log = Log::new(1);
    let next = Lsn(log.append(b"").end.0 + HEADER_BYTES);
    let key = Salt::new(LogId([1; 16])).key(epoch(1));
    let forged = RecordHeader {
        lsn: next,
        epoch: epoch(1),
        kind: RecordKind::Data,
        lag: crate::Lag(0),
        payload_bytes: 0,
        payload_checksum: key.salt().payload_checksum(next, b""),
    };
    let at = log.append(&forged.encode(&key));
    assert_eq!(at.start.0 + HEADER_BYTES, next.0);
    let mut scan = Scan::new(log.shape.clone(), next, None);
    assert!(matches!(
        scan.step(&mut log.image()).unwrap(),
        Step::Stop(Stop { reason: StopReason::Header(HeaderError::NoRecord { .. }), .. })
    ));
}

#[test]
fn r4_what_a_cut_leaves_behind_never_parses_again() {
    let mut log = Log::new(3);
    let kept: Vec<_> = (0..5).map(|n| log.append(&[n; 100])).collect();
    for n in 0..40 {
        log.append(&[n; 4000]);
    }
    let cut = kept[2].end;
    let log = log.next_epoch(cut);
    let (records, stop) = read(&log, GENESIS);
    assert_eq!(records.len(), 4);
    assert_eq!(stop.lsn, cut);
    let other = HeaderError::OtherEpoch { lsn: cut, assigned: epoch(2), found: epoch(1) };
    assert_eq!(stop.reason, StopReason::Header(other));
    let mut scan = Scan::new(log.shape.clone(), cut, None);
    assert_eq!(scan.resync(&mut log.image(), 3).unwrap(), None);
}

/// An image that remembers how far it was read.
struct Watched<I> {
    image: I,
    read_to: Lsn,
}

impl<I: Image> Image for Watched<I> {
    type Error = I::Error;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, I::Error> {
        self.read_to = self.read_to.max(Lsn(lsn.0 + u64::try_from(into.len()).unwrap()));
        self.image.read(lsn, into)
    }
}

#[test]
fn looking_for_a_record_ends_with_the_scan_also_within_a_segment_and_where_there_is_none() {
    let mut log = Log::new(3);
    let last = log.append(&[1; 100]);
    let from = Lsn(last.start.0 + 8);
    for until in [from, Lsn(from.0 + 8), Lsn(from.0 + 50_000)] {
        let mut image = Watched { image: log.image(), read_to: Lsn(0) };
        let mut scan = Scan::new(log.shape.clone(), from, None).flat().until(until);
        assert_eq!(scan.resync(&mut image, 3).unwrap(), None);
        assert!(image.read_to.0 <= until.0 + FLAT_BYTES, "{} of {until}", image.read_to);
    }
    let mut image = Watched { image: log.image(), read_to: Lsn(0) };
    assert_eq!(Scan::new(log.shape.clone(), from, None).flat().resync(&mut image, 3).unwrap(), None);
    assert!(image.read_to.0 >= 3 * log.shape.geometry.segment_bytes(), "to the last segment's end");
}

#[test]
fn r4_a_record_of_an_old_epoch_beyond_the_start_of_the_next_never_parses() {
    let mut log = Log::new(1);
    let first = log.append(&[1; 200]);
    let mut shape = log.shape.clone();
    // A history that starts the next epoch inside the record.
    shape.history.extend(epoch(2), Lsn(first.start.0 + 64)).unwrap();
    let (_, stop) = read_with(Scan::new(shape, first.start, None), &mut log.image());
    let next = Lsn(first.start.0 + 64);
    assert_eq!(stop, Stop { lsn: first.start, reason: StopReason::BeyondEpoch { end: first.end, next } });
}

#[test]
fn kind_17_an_earlier_life_of_the_file_never_parses() {
    let mut log = Log::new(2);
    for n in 0..25 {
        log.append(&[n; 4000]);
    }
    // Segment 0's file becomes segment 1, bytes and all, with the header of its new place.
    let old = log.segments[0].take().unwrap();
    let mut bytes = vec![0; index(S)];
    old.copy_out(0, &mut bytes);
    let header = crate::SegmentHeader { log_id: LOG, base: Lsn(S), segment_bytes: S, features: 0 };
    bytes[..SEGMENT_HEADER].copy_from_slice(&header.encode());
    log.segments[1].as_ref().unwrap().copy_in(0, &bytes);
    let first = Lsn(S + SEGMENT_HEADER_BYTES);
    let (records, stop) = read(&log, first);
    assert_eq!((records.len(), stop.lsn), (0, first));
    let mut scan = Scan::new(log.shape.clone(), first, None);
    assert_eq!(scan.resync(&mut log.image(), 2).unwrap(), None);
}

#[test]
fn a_scan_with_an_end_looks_at_nothing_beyond_it_and_goes_on_when_it_moves() {
    let mut log = Log::new(2);
    let first = log.append(b"first");
    let mut image = log.image();
    let mut scan = Scan::new(log.shape.clone(), first.start, None).until(first.end);
    assert!(matches!(scan.step(&mut image).unwrap(), Step::Record(_)));
    let reached = Step::Stop(Stop { lsn: first.end, reason: StopReason::Reached });
    assert_eq!(scan.step(&mut image).unwrap(), reached);
    let second = log.append(b"second");
    assert_eq!(scan.step(&mut image).unwrap(), reached);
    scan.set_until(second.end);
    let Step::Record(record) = scan.step(&mut image).unwrap() else { panic!("a record") };
    assert_eq!(record.payload, Some(&b"second"[..]));
    let mut inside = Scan::new(log.shape.clone(), first.start, None).until(Lsn(first.end.0 - 8));
    assert!(matches!(
        inside.step(&mut image).unwrap(),
        Step::Stop(Stop { reason: StopReason::BeyondEnd { .. }, .. })
    ));
}

#[test]
fn kind_83_a_flat_scan_checks_long_records_in_a_bounded_buffer() {
    let geometry = crate::Geometry::new(1 << 20).unwrap();
    let long = vec![3; 700_001];
    let mut shape = crate::Shape { geometry, log_id: LOG, history: EpochHistory::new() };
    shape.history.extend(epoch(1), GENESIS).unwrap();
    let key = Salt::new(LOG).key(epoch(1));
    let tenure = crate::Tenure {
        geometry,
        log_id: LOG,
        epoch: epoch(1),
        tail: GENESIS,
        chain: Chain::begin(&key, GENESIS),
        persisted: GENESIS,
        slots: 2,
    };
    let (handoff, mut drain) = crate::Handoff::new(tenure);
    let memory = crate::Memory::heap(1 << 20);
    let header = crate::SegmentHeader { log_id: LOG, base: Lsn(0), segment_bytes: 1 << 20, features: 0 };
    memory.copy_in(0, &header.encode());
    handoff.install(0, memory.clone()).unwrap();
    handoff.set_limit(Lsn(1 << 20));
    let at = handoff.append(RecordKind::Data, &long).unwrap();
    drain.poll(10).unwrap();
    let mut image = MemoryImage::new(geometry, 0, vec![Some(memory.clone())]);
    let mut scan = Scan::new(shape.clone(), at.start, None).flat();
    let Step::Record(record) = scan.step(&mut image).unwrap() else { panic!("a record") };
    assert_eq!((record.payload, record.end), (None, at.end));
    assert!(length(scan.buffer.bytes.len()) <= FLAT_BYTES);
    let mut whole = Scan::new(shape.clone(), at.start, None);
    let Step::Record(record) = whole.step(&mut image).unwrap() else { panic!("a record") };
    assert_eq!(record.payload, Some(&long[..]));
    // A byte of the filler, then one in the middle of the payload.
    for (at_byte, filler) in [(at.end.0 - 1, true), (at.start.0 + 400_000, false)] {
        memory.copy_in(at_byte, &[1]);
        let mut scan = Scan::new(shape.clone(), at.start, None).flat();
        let Step::Stop(stop) = scan.step(&mut image).unwrap() else { panic!("damage") };
        assert_eq!(stop.reason == StopReason::Filler, filler, "{}", stop.reason);
        memory.copy_in(at_byte, &[0]);
    }
}

#[test]
fn kind_7_an_error_of_reading_is_never_an_end() {
    struct Broken;
    impl Image for Broken {
        type Error = &'static str;
        fn read(&mut self, _: Lsn, _: &mut [u8]) -> Result<Fetched, Self::Error> {
            Err("input/output error")
        }
    }
    let log = Log::new(1);
    let mut scan = Scan::new(log.shape.clone(), GENESIS, None);
    let failed = ScanError::Image { lsn: Lsn(0), error: "input/output error" };
    assert_eq!(scan.step(&mut Broken).unwrap_err(), failed);
    assert_eq!(scan.at(), GENESIS);
}

#[test]
fn an_lsn_inside_a_record_is_told_from_a_start_and_from_damage() {
    let mut log = Log::new(2);
    let first = log.append(&[1; 100]);
    let second = log.append(&[2; 100]);
    let shape = log.shape.clone();
    let at = |lsn| locate(&mut log.image(), &shape, Lsn(0), lsn, second.end).unwrap();
    assert_eq!(at(first.start), Located::Start);
    assert_eq!(at(second.start), Located::Start);
    assert_eq!(at(second.end), Located::Start);
    let inside = Located::Inside { start: second.start, end: second.end };
    assert_eq!(at(Lsn(second.start.0 + 8)), inside);
    assert_eq!(at(Lsn(second.start.0 + 3)), inside);
    assert_eq!(at(Lsn(0)), Located::Inside { start: Lsn(0), end: GENESIS });
    assert!(matches!(at(Lsn(u64::MAX)), Located::Unreadable(_)));
    assert!(matches!(at(Lsn(1 << 62)), Located::Inside { .. } | Located::Unreadable(_)));
    log.flip(first.start);
    let known = |known, lsn| locate(&mut log.image(), &shape, known, lsn, second.end).unwrap();
    assert!(matches!(known(Lsn(0), second.start), Located::Unreadable(_)));
    // Where a record starts behind the damage, as far as it is known.
    assert_eq!(known(second.start, second.start), Located::Start);
    assert_eq!(known(second.start, Lsn(second.start.0 + 8)), inside);
    assert!(matches!(known(second.end, second.start), Located::Unreadable(_)));
    assert!(matches!(known(Lsn(second.start.0 + 3), second.end), Located::Unreadable(_)));
}

#[test]
fn messages_name_the_place_and_what_is_there() {
    let mut log = Log::new(1);
    let at = log.append(&[1; 100]);
    log.flip(Lsn(at.start.0 + 50));
    let (_, stop) = read(&log, GENESIS);
    let text: String = format!("{}", stop.reason);
    assert!(text.starts_with("the payload of 100 bytes has checksum 0x"), "{text}");
    let foreign = segment(LogId([9; 16]), 0);
    log.segments[0] = Some(foreign);
    let (_, stop) = read(&log, GENESIS);
    assert!(matches!(stop.reason, StopReason::SegmentForeign { segment: 0, .. }), "{}", stop.reason);
}

#[test]
fn a_record_behind_zeros_is_found_wherever_it_stands() {
    let log = Log::new(1);
    let from = Lsn(20_000);
    let key = Salt::new(LOG).key(epoch(1));
    let end = S - HEADER_BYTES;
    let near_end = (end - 1200..=end).step_by(8).map(Lsn);
    for at in (from.0..from.0 + 1200).step_by(8).map(Lsn).chain(near_end) {
        let header = RecordHeader {
            lsn: at,
            epoch: epoch(1),
            kind: RecordKind::Data,
            lag: crate::Lag(0),
            payload_bytes: 0,
            payload_checksum: key.salt().payload_checksum(at, b""),
        };
        let (memory, offset) = log.place(at);
        memory.copy_in(offset, &header.encode(&key));
        let mut scan = Scan::new(log.shape.clone(), from, None).flat();
        assert_eq!(scan.resync(&mut log.image(), 1).unwrap(), Some(at));
        memory.zero(offset, HEADER_BYTES);
    }
}

/// Segments of 4 GiB, zeros but for what was put there.
#[derive(Default)]
struct Sparse(std::collections::BTreeMap<u64, Vec<u8>>);

impl crate::Image for Sparse {
    type Error = core::convert::Infallible;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<crate::Fetched, Self::Error> {
        into.fill(0);
        let end = lsn.0 + into.len() as u64;
        for (&at, bytes) in self.0.range(..end) {
            for (place, byte) in (at..).zip(bytes).filter(|(place, _)| (lsn.0..end).contains(place)) {
                into[index(place - lsn.0)] = *byte;
            }
        }
        Ok(crate::Fetched::Whole)
    }
}

#[test]
fn kind_39_records_behind_two_gib_of_a_segment_of_four_and_at_its_end_are_read() {
    const LARGEST: u64 = 4 << 30;
    let geometry = crate::Geometry::new(LARGEST).unwrap();
    // In the second segment, around the 2 GiB in it; and the last record before its end.
    for (from, count) in [(LARGEST + (1 << 31) - 3 * 136, 9_u64), (2 * LARGEST - 2 * 136, 2)] {
        let mut history = EpochHistory::new();
        history.extend(epoch(7), Lsn(from)).unwrap();
        let shape = crate::Shape { geometry, log_id: LOG, history };
        let key = shape.salt().key(epoch(7));
        let mut image = Sparse::default();
        for number in 1..3 {
            let header = crate::SegmentHeader {
                log_id: LOG,
                base: Lsn(number * LARGEST),
                segment_bytes: LARGEST,
                features: 0,
            };
            image.0.insert(number * LARGEST, header.encode().to_vec());
        }
        let mut expected = Vec::new();
        for number in 0..count {
            let lsn = Lsn(from + number * 136);
            let payload = vec![u8::try_from(number).unwrap() + 1; 104];
            let header = crate::RecordHeader {
                lsn,
                epoch: epoch(7),
                kind: RecordKind::Data,
                lag: crate::Lag::between(lsn, lsn),
                payload_bytes: 104,
                payload_checksum: shape.salt().payload_checksum(lsn, &payload),
            };
            image.0.insert(lsn.0, [&header.encode(&key)[..], &payload].concat());
            expected.push((lsn, payload));
        }
        let mut scan = Scan::new(shape, Lsn(from), None);
        let mut found = Vec::new();
        let stop = loop {
            match scan.step(&mut image).unwrap() {
                Step::Record(record) => found.push((record.header.lsn, record.payload.unwrap().to_vec())),
                Step::Stop(stop) => break stop,
            }
        };
        assert_eq!(found, expected, "from {from:#x}");
        // One position, one LSN: the end of a segment is the first record's place in the next one.
        let end = geometry.normalize(Lsn(from + count * 136));
        assert_eq!(stop, Stop { lsn: end, reason: StopReason::Blank });
        assert_eq!(end.0 == 2 * LARGEST + SEGMENT_HEADER_BYTES, from + count * 136 == 2 * LARGEST);
    }
}
