//! What one hand-off does, step by step, on exact-size heap blocks.

use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::batch::batch_items;
use crate::lsn::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, SEGMENT_START_BYTES};
use crate::{Epoch, LogId, MemberId};

const S: u64 = SEGMENT_BYTES_MIN;

fn tenure(tail: Lsn) -> Tenure {
    let geometry = Geometry::new(S).unwrap();
    let log_id = LogId([7; 16]);
    let epoch = Epoch::new(1, MemberId(0));
    Tenure {
        geometry,
        log_id,
        epoch,
        tail,
        chain: Chain::begin(&Salt::new(log_id).key(epoch), tail),
        persisted: tail,
        slots: 4,
    }
}

fn open(segments: u64) -> (Arc<Handoff>, Drain, Vec<Memory>) {
    let (handoff, drain) = Handoff::new(tenure(Lsn(SEGMENT_HEADER_BYTES)));
    let memories: Vec<_> = (0..segments).map(|_| Memory::heap(S)).collect();
    for (segment, memory) in (0..).zip(&memories) {
        handoff.install(segment, memory.clone()).unwrap();
    }
    handoff.set_limit(Lsn(u64::MAX));
    (handoff, drain, memories)
}

fn header(handoff: &Handoff, memories: &[Memory], lsn: Lsn) -> RecordHeader {
    let geometry = handoff.geometry();
    let memory = &memories[usize::try_from(geometry.segment_of(lsn)).unwrap()];
    let mut bytes = [0; 32];
    memory.copy_out(geometry.offset_of(lsn), &mut bytes);
    RecordHeader::decode(&bytes, lsn, geometry.room(lsn), &handoff.key).unwrap()
}

#[test]
fn the_first_record_stands_behind_the_segment_start() {
    let (handoff, mut drain, memories) = open(1);
    let at = handoff.append(RecordKind::Data, b"first").unwrap();
    assert_eq!(at.start, Lsn(SEGMENT_HEADER_BYTES + SEGMENT_START_BYTES));
    assert_eq!(at.end, Lsn(at.start.0 + 40));
    let drained = drain.poll(10).unwrap();
    assert_eq!(
        drained,
        Drained { from: Lsn(4096), to: at.end, records: 2, payload_bytes: 5, state: DrainState::Idle }
    );
    assert_eq!(header(&handoff, &memories, Lsn(4096)).kind, RecordKind::SegmentStart);
    let first = header(&handoff, &memories, at.start);
    assert_eq!((first.kind, first.payload_bytes), (RecordKind::Data, 5));
    assert_eq!(first.payload_checksum, handoff.key.salt().payload_checksum(at.start, b"first"));
}

#[test]
fn crossing_a_segment_end_leaves_a_pad_and_a_segment_start() {
    let (handoff, mut drain, memories) = open(2);
    let long = vec![1; 40_000];
    let first = handoff.append(RecordKind::Data, &long).unwrap();
    let second = handoff.append(RecordKind::Data, &long).unwrap();
    assert_eq!(second.start, Lsn(S + SEGMENT_HEADER_BYTES + SEGMENT_START_BYTES));
    let drained = drain.poll(10).unwrap();
    assert_eq!((drained.records, drained.to), (5, second.end));
    let pad = header(&handoff, &memories, first.end);
    assert_eq!(pad.kind, RecordKind::Pad);
    assert_eq!(first.end.0 + pad.record_bytes(), S);
    let start = header(&handoff, &memories, Lsn(S + SEGMENT_HEADER_BYTES));
    assert_eq!(start.kind, RecordKind::SegmentStart);
}

#[test]
fn r1_a_record_that_fills_its_segment_ends_at_the_first_lsn_of_the_next() {
    let (handoff, mut drain, _) = open(2);
    let max = handoff.geometry().payload_bytes_max();
    let at = handoff.append(RecordKind::Data, &vec![9; usize::try_from(max).unwrap()]).unwrap();
    assert_eq!(at.end, Lsn(S + SEGMENT_HEADER_BYTES));
    assert_eq!(drain.poll(10).unwrap().to, at.end);
    let next = handoff.append(RecordKind::Data, b"").unwrap();
    assert_eq!(next.start, Lsn(at.end.0 + SEGMENT_START_BYTES));
    assert_eq!(drain.poll(10).unwrap().records, 2);
}

#[test]
fn r8_each_refusal_has_its_own_error_and_leaves_no_hole() {
    let (handoff, mut drain, _) = open(1);
    let tail = handoff.tail();
    let max = handoff.geometry().payload_bytes_max();
    assert_eq!(
        handoff.reserve(max + 1).unwrap_err(),
        ReserveError::TooLarge { payload_bytes: max + 1, payload_bytes_max: max }
    );
    assert!(matches!(handoff.reserve(u64::MAX), Err(ReserveError::TooLarge { .. })));
    handoff.append(RecordKind::Data, &[0; 100]).unwrap();
    let before = handoff.tail();
    assert_eq!(handoff.reserve(max).unwrap_err(), ReserveError::NotReady { tail: before, ready: Lsn(S) });
    assert_eq!(handoff.tail(), before);
    handoff.append(RecordKind::Data, b"smaller still fits").unwrap();
    handoff.install(1, Memory::heap(S)).unwrap();
    handoff.append(RecordKind::Data, &vec![0; 65_000 - 4096]).unwrap();
    let sealed = handoff.seal();
    assert_eq!(handoff.reserve(0).unwrap_err(), ReserveError::Sealed { tail: sealed });
    assert_eq!(handoff.seal(), sealed);
    assert!(tail < sealed && !handoff.is_quiet());
    assert_eq!(drain.poll(100).unwrap().state, DrainState::Closed { tail: sealed });
    assert!(handoff.is_quiet());
}

#[test]
fn r8_a_full_log_is_an_error_of_append_until_the_limit_rises() {
    let (handoff, _drain, _) = {
        let (handoff, drain) = Handoff::new(tenure(Lsn(SEGMENT_HEADER_BYTES)));
        handoff.install(0, Memory::heap(S)).unwrap();
        (handoff, drain, ())
    };
    assert_eq!(
        handoff.reserve(0).unwrap_err(),
        ReserveError::Full { tail: Lsn(SEGMENT_HEADER_BYTES), limit: Lsn(0) }
    );
    handoff.set_limit(Lsn(SEGMENT_HEADER_BYTES + SEGMENT_START_BYTES + 32));
    handoff.append(RecordKind::Data, b"").unwrap();
    assert!(matches!(handoff.append(RecordKind::Data, b""), Err(ReserveError::Full { .. })));
    handoff.set_limit(Lsn(1));
    handoff.set_limit(Lsn(S));
    handoff.append(RecordKind::Data, b"").unwrap();
}

#[test]
fn r9_an_unpublished_reservation_stops_the_drain_and_is_named() {
    let (handoff, mut drain, memories) = open(1);
    let held = handoff.reserve(100).unwrap();
    let (start, end) = (held.start(), held.end());
    handoff.append(RecordKind::Data, b"behind").unwrap();
    let drained = drain.poll(10).unwrap();
    assert_eq!((drained.to, drained.state), (start, DrainState::Waiting { lsn: start }));
    handoff.seal();
    assert!(!handoff.is_quiet());
    drop(held);
    assert_eq!(drain.poll(10).unwrap().records, 2);
    assert!(handoff.is_quiet(), "R-10: sealed and drained means nothing is in flight");
    let pad = header(&handoff, &memories, start);
    assert_eq!((pad.kind, pad.record_bytes()), (RecordKind::Pad, end.0 - start.0));
}

#[test]
fn a_reservation_takes_pieces_in_any_order() {
    let (handoff, mut drain, memories) = open(1);
    let payload: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let check = |pieces: &[(usize, usize)]| {
        let mut reservation = handoff.reserve(5000).unwrap();
        for (from, to) in pieces {
            reservation.write(u64::try_from(*from).unwrap(), &payload[*from..*to]);
        }
        let at = reservation.publish(RecordKind::Data);
        let header = header(&handoff, &memories, at.start);
        assert_eq!(header.payload_checksum, handoff.key.salt().payload_checksum(at.start, &payload));
    };
    check(&[(0, 5000)]);
    check(&[(0, 2000), (2000, 5000)]);
    check(&[(0, 1), (1, 2), (2, 5000)]);
    check(&[(2500, 5000), (0, 2500)]);
    check(&[(0, 3000), (1000, 2000), (3000, 5000)]);
    drain.poll(100).unwrap();
    let mut rewritten = handoff.reserve(200).unwrap();
    rewritten.write(0, &[1; 200]);
    rewritten.write(0, &[2; 200]);
    let at = rewritten.publish(RecordKind::Data);
    let expected = handoff.key.salt().payload_checksum(at.start, &[2; 200]);
    assert_eq!(header(&handoff, &memories, at.start).payload_checksum, expected);
}

#[test]
fn a_batch_is_one_record_and_yields_its_items() {
    let (handoff, _drain, memories) = open(1);
    let items: [&[u8]; 4] = [b"one", b"", b"twelve bytes", &[7; 300]];
    let at = handoff.append_batch(&items).unwrap();
    let header = header(&handoff, &memories, at.start);
    assert_eq!(header.kind, RecordKind::Batch);
    let mut payload = vec![0; usize::try_from(header.payload_bytes).unwrap()];
    memories[0].copy_out(at.start.0 + HEADER_BYTES, &mut payload);
    assert_eq!(header.payload_checksum, handoff.key.salt().payload_checksum(at.start, &payload));
    let read: Vec<_> = batch_items(&payload, at.start).map(Result::unwrap).collect();
    assert_eq!(read.iter().map(|(_, item)| *item).collect::<Vec<_>>(), items);
    assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(read.iter().all(|(lsn, _)| lsn.0.is_multiple_of(8) && *lsn > at.start && *lsn < at.end));
    let empty = handoff.append_batch(&[]).unwrap();
    assert_eq!(batch_items(&[], empty.start).count(), 0);
}

#[test]
fn r2_a_slot_is_not_reused_before_the_drain_has_left_its_segment() {
    let (handoff, mut drain, _) = open(4);
    let long = vec![1; 60_000];
    handoff.append(RecordKind::Data, &long).unwrap();
    assert_eq!(
        handoff.install(4, Memory::heap(S)).unwrap_err(),
        InstallError::RingFull { segment: 4, held: 0, drained: Lsn(SEGMENT_HEADER_BYTES) }
    );
    handoff.append(RecordKind::Data, &long).unwrap();
    drain.poll(100).unwrap();
    handoff.install(4, Memory::heap(S)).unwrap();
    assert_eq!(handoff.ready(), Lsn(5 * S));
}

#[test]
fn the_lag_says_how_far_the_persisted_mark_was_behind() {
    let (handoff, _drain, memories) = open(1);
    handoff.append(RecordKind::Data, &[0; 10_000]).unwrap();
    let far = handoff.append(RecordKind::Data, b"x").unwrap();
    let lag = header(&handoff, &memories, far.start).lag;
    assert_eq!(lag, Lag(3));
    assert!(lag.persisted_below(far.start).unwrap() <= Lsn(SEGMENT_HEADER_BYTES));
    handoff.set_persisted(far.end);
    let near = handoff.append(RecordKind::Data, b"x").unwrap();
    assert_eq!(header(&handoff, &memories, near.start).lag, Lag(0));
    assert_eq!(Lag::between(Lsn(0), Lsn(1 << 40)), Lag::UNKNOWN);
    assert_eq!(Lag::UNKNOWN.persisted_below(Lsn(1 << 40)), None);
}

#[test]
fn many_producers_fill_the_log_without_a_hole() {
    let (handoff, mut drain, memories) = open(4);
    let done = std::thread::scope(|scope| {
        let producers: Vec<_> = (0_u8..4)
            .map(|thread| {
                let handoff = &handoff;
                scope.spawn(move || {
                    let mut ends = Vec::new();
                    loop {
                        match handoff.append(RecordKind::Data, &vec![thread; ends.len() % 700]) {
                            Ok(at) => ends.push(at),
                            Err(ReserveError::NotReady { .. }) => return ends,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let mut drained = Lsn(0);
        while !producers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            drained = drain.poll(64).unwrap().to;
        }
        assert!(drained <= handoff.tail());
        producers.into_iter().flat_map(|producer| producer.join().unwrap()).collect::<Vec<_>>()
    });
    while drain.poll(1000).unwrap().state == DrainState::More {}
    assert_eq!(drain.poll(1).unwrap().state, DrainState::Idle);
    let mut starts: Vec<_> = done.iter().map(|at| at.start).collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), done.len());
    for at in done {
        header(&handoff, &memories, at.start);
    }
}
