//! Property tests: the log against a list of what was put into it, and readers against bytes from an enemy.

use std::vec;
use std::vec::Vec;

use proptest::collection::vec as any_vec;
use proptest::prelude::*;

use crate::testing::{GENESIS, LOG, Log, S, index, no_marks};
use crate::{
    Chain, Class, Epoch, EpochHistory, Extent, HistoryError, Lsn, Marks, MemberId, MemoryImage, RecordHeader,
    RecordKind, ReserveError, Row, Salt, Scan, SegmentHeader, Shape, Step, Superblock, batch_items, judge,
};

/// One thing that happens to a log.
#[derive(Clone, Debug)]
enum Op {
    Append(usize),
    Batch(Vec<usize>),
    /// Reserve, append something else, then publish.
    Late(usize, usize),
    /// Reserve and give up.
    Drop(usize),
    Drain,
    /// Cut this many of the last records and begin a new epoch.
    Cut(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![0_usize..64, 0_usize..3000, Just(0_usize), 20_000_usize..61_000];
    prop_oneof![
        6 => bytes.clone().prop_map(Op::Append),
        2 => any_vec(0_usize..200, 0..6).prop_map(Op::Batch),
        2 => (bytes.clone(), 0_usize..100).prop_map(|(a, b)| Op::Late(a, b)),
        1 => bytes.prop_map(Op::Drop),
        1 => Just(Op::Drain),
        1 => (0_usize..4).prop_map(Op::Cut),
    ]
}

/// A record of the application: where, what, up to where.
type Kept = (Lsn, RecordKind, Vec<u8>, Lsn);

fn batch_payload(items: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, item) in (0_u32..).zip(items) {
        payload.extend_from_slice(&u32::try_from(item.len()).unwrap().to_le_bytes());
        payload.extend_from_slice(&number.to_le_bytes());
        payload.extend_from_slice(item);
        payload.resize(payload.len().next_multiple_of(8), 0);
    }
    payload
}

/// Does what `op` says to the log and to the list.
fn apply(mut log: Log, kept: &mut Vec<Kept>, op: Op, fill: u8) -> Log {
    match op {
        Op::Append(bytes) => {
            let payload = vec![fill; bytes];
            match log.handoff.append(RecordKind::Data, &payload) {
                Ok(at) => kept.push((at.start, RecordKind::Data, payload, at.end)),
                Err(error) => assert!(matches!(error, ReserveError::NotReady { .. })),
            }
        }
        Op::Batch(sizes) => {
            let items: Vec<Vec<u8>> = sizes.into_iter().map(|bytes| vec![fill; bytes]).collect();
            let slices: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            if let Ok(at) = log.handoff.append_batch(&slices) {
                kept.push((at.start, RecordKind::Batch, batch_payload(&items), at.end));
            }
        }
        Op::Late(first, second) => {
            let handoff = log.handoff.clone();
            let Ok(mut reservation) = handoff.reserve(u64::try_from(first).unwrap()) else { return log };
            let behind = handoff.append(RecordKind::Data, &vec![!fill; second]);
            log.drain.poll(1000).unwrap();
            assert!(log.handoff.drained() <= reservation.start());
            let payload = vec![fill; first];
            reservation.write(0, &payload);
            let at = reservation.publish(RecordKind::EpochStart);
            kept.push((at.start, RecordKind::EpochStart, payload, at.end));
            if let Ok(at) = behind {
                kept.push((at.start, RecordKind::Data, vec![!fill; second], at.end));
            }
        }
        Op::Drop(bytes) => drop(log.handoff.reserve(u64::try_from(bytes).unwrap())),
        Op::Drain => log.drain(),
        Op::Cut(records) => {
            log.drain();
            kept.truncate(kept.len().saturating_sub(records));
            let end = kept.last().map_or(GENESIS, |(_, _, _, end)| *end);
            // An epoch that owns nothing yet is replaced by the next one.
            log = log.next_epoch(end);
        }
    }
    log
}

fn scan(log: &Log) -> (Vec<Kept>, Lsn) {
    let mut scan = Scan::new(log.shape.clone(), GENESIS, None);
    let mut image = log.image();
    let mut records = Vec::new();
    while let Ok(Step::Record(record)) = scan.step(&mut image) {
        let own = matches!(record.header.kind, RecordKind::Pad | RecordKind::SegmentStart);
        if own {
            let pad = record.header.kind == RecordKind::Pad;
            assert!(!pad || record.payload.unwrap().iter().all(|byte| *byte == 0));
        } else {
            let payload = record.payload.unwrap().to_vec();
            records.push((record.header.lsn, record.header.kind, payload, record.end));
        }
    }
    (records, scan.at())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_holds_exactly_what_was_put_into_it(ops in any_vec(op(), 0..40)) {
        let mut log = Log::new(6);
        let mut kept = Vec::new();
        for (fill, op) in (1_u8..).zip(ops) {
            log = apply(log, &mut kept, op, fill);
        }
        log.drain();
        let (found, end) = scan(&log);
        prop_assert_eq!(end, log.tail());
        prop_assert_eq!(found, kept);
        let verdict = judge(&mut log.image(), &log.shape, &no_marks(), Extent::Whole, |_| ()).unwrap();
        prop_assert_eq!((verdict.class(), verdict.tail()), (Class::End, log.tail()));
        prop_assert_eq!(verdict.chain, Some(log.drain.chain()));
        let clean = Marks { clean: Some(end), persisted: end, ..no_marks() };
        let verdict = judge(&mut log.image(), &log.shape, &clean, Extent::FromMark, |_| ()).unwrap();
        prop_assert_eq!((verdict.row, verdict.chain), (Row::CleanEnd, Some(log.drain.chain())));
    }

    /// Sectors above the mark are lost in any pattern: what is found is a prefix, whole, and reaches the mark.
    #[test]
    fn kind_13_lost_sectors_above_the_mark_leave_a_whole_prefix(
        sizes in any_vec(0_usize..2500, 1..60),
        mark in 0_usize..60,
        lost in any_vec(0_u64..512, 0..12),
    ) {
        let mut log = Log::new(4);
        let at: Vec<_> = sizes.iter().map(|bytes| log.append(&vec![7; *bytes])).collect();
        let mark = at.get(mark).map_or(log.tail(), |at| at.end);
        for sector in lost {
            let lsn = Lsn(sector * 512);
            // A page that holds flushed records keeps their sectors.
            if lsn >= mark && lsn.0 % S >= 4096 {
                log.lose(lsn, 512);
            }
        }
        let marks = Marks { persisted: mark, ..no_marks() };
        let verdict = judge(&mut log.image(), &log.shape, &marks, Extent::Whole, |_| ()).unwrap();
        prop_assert!(matches!(verdict.class(), Class::End | Class::Torn), "{:?}", verdict);
        prop_assert!(verdict.tail() >= mark && verdict.tail() <= log.tail());
        let (found, end) = scan(&log);
        prop_assert_eq!(end, verdict.tail());
        prop_assert!(found.iter().zip(&at).all(|(found, at)| found.0 == at.start));
    }

    /// Bytes of a real log are changed anywhere: nothing panics, nothing allocates by what they say, every step advances, and below the mark the change is found.
    #[test]
    fn kind_9_changed_bytes_never_panic_and_are_found_below_the_mark(
        sizes in any_vec(0_usize..2000, 1..50),
        changes in any_vec((0_u64..2 * S, any::<u8>()), 1..8),
    ) {
        let mut log = Log::new(2);
        for bytes in sizes {
            if log.try_append(&vec![3; bytes]).is_err() {
                break;
            }
        }
        let tail = log.tail();
        let (before, _) = scan(&log);
        for (lsn, byte) in changes {
            let (memory, offset) = log.place(Lsn(lsn));
            memory.copy_in(offset, &[byte]);
        }
        let (after, _) = scan(&log);
        let marks = Marks { persisted: tail, ..no_marks() };
        let verdict = judge(&mut log.image(), &log.shape, &marks, Extent::Whole, |_| ()).unwrap();
        prop_assert_eq!(&after[..], &before[..after.len()], "what is yielded is what was written");
        if after.len() < before.len() {
            prop_assert!(matches!(verdict.class(), Class::Damage | Class::Foreign));
        }
        // Salvage finds whole records only, each once.
        let mut salvage = Scan::new(log.shape.clone(), GENESIS, None);
        let mut image = log.image();
        let mut last = Lsn(0);
        while let Some(lsn) = salvage.resync(&mut image, 2).unwrap() {
            prop_assert!(lsn > last);
            last = lsn;
            match salvage.step(&mut image).unwrap() {
                Step::Record(record) => prop_assert_eq!(record.header.lsn, lsn),
                Step::Stop(stop) => prop_assert!(false, "{:?}", stop),
            }
        }
    }

    /// Whole images of noise, with or without a good segment header in front.
    #[test]
    fn noise_never_parses(noise in any_vec(any::<u8>(), 1..600), headed in any::<bool>(), at in 0_u64..S) {
        let memory = crate::Memory::heap(S);
        let chunk: Vec<u8> = noise.iter().copied().cycle().take(index(S)).collect();
        memory.copy_in(0, &chunk);
        if headed {
            let header = SegmentHeader { log_id: LOG, base: Lsn(0), segment_bytes: S, features: 0 };
            memory.copy_in(0, &header.encode());
        }
        let mut history = EpochHistory::new();
        history.extend(Epoch::new(1, MemberId(0)), GENESIS).unwrap();
        let shape = Shape { geometry: crate::Geometry::new(S).unwrap(), log_id: LOG, history };
        let mut image = MemoryImage::new(shape.geometry, 0, vec![Some(memory)]);
        let verdict = judge(&mut image, &shape, &no_marks(), Extent::Whole, |_| ()).unwrap();
        prop_assert_eq!((verdict.records, verdict.tail()), (0, GENESIS));
        let from = shape.geometry.normalize(Lsn(at / 8 * 8));
        let mut scan = Scan::new(shape, from, None);
        prop_assert!(matches!(scan.step(&mut image).unwrap(), Step::Stop(_)));
    }

    /// A header's bytes with whole checksums and any fields: lengths are bounded in 64 bits before they are used.
    #[test]
    fn kind_39_any_length_in_a_whole_header_is_bounded(payload_bytes in any::<u32>(), room in 32_u64..1 << 33) {
        let key = Salt::new(LOG).key(Epoch::new(1, MemberId(0)));
        let header = RecordHeader {
            lsn: Lsn(1 << 40),
            epoch: key.epoch(),
            kind: RecordKind::Data,
            lag: crate::Lag::UNKNOWN,
            payload_bytes,
            payload_checksum: 0,
        };
        match RecordHeader::decode(&header.encode(&key), header.lsn, room, &key) {
            Ok(decoded) => prop_assert!(decoded == header && header.record_bytes() <= room),
            Err(error) => prop_assert!(error.is_published() && header.record_bytes() > room),
        }
    }

    #[test]
    fn parsers_take_any_bytes(bytes in any_vec(any::<u8>(), 0..9000), lsn in any::<u64>()) {
        let _ = SegmentHeader::decode(&bytes);
        let _ = Superblock::decode(&bytes);
        let _ = EpochHistory::decode(&bytes);
        let _ = Chain::decode(&bytes);
        for item in batch_items(&bytes, Lsn(lsn)).take(10_000) {
            let _ = item;
        }
    }

    /// The history's arithmetic against a map from each LSN to its epoch.
    #[test]
    fn histories_agree_with_a_plain_map(
        steps in any_vec((1_u64..4, 0_u64..40), 1..12),
        cut in 0_u64..300,
        trim in 0_u64..300,
    ) {
        let mut history = EpochHistory::new();
        let mut owners = vec![None; 400];
        let (mut counter, mut start) = (0, 0);
        for (more, further) in steps {
            counter += more;
            start += further;
            let epoch = Epoch::new(counter, MemberId(0));
            history.extend(epoch, Lsn(start)).unwrap();
            owners[index(start)..].fill(Some(epoch));
        }
        let agree = |history: &EpochHistory, from: u64, to: u64| {
            (from..to).all(|lsn| history.epoch_at(Lsn(lsn)) == owners[index(lsn)])
        };
        prop_assert!(agree(&history, 0, 400));
        let mut bytes = Vec::new();
        history.encode_into(&mut bytes);
        prop_assert_eq!(EpochHistory::decode(&bytes).unwrap(), history.clone());
        let mut shorter = history.clone();
        shorter.cut(Lsn(cut));
        prop_assert!(agree(&shorter, 0, cut));
        prop_assert!(shorter.last().is_none_or(|last| last.start < Lsn(cut)));
        let mut later = history.clone();
        later.trim(Lsn(trim));
        prop_assert!(agree(&later, trim, 400));
        // Two logs that share everything below the fork.
        let fork = Lsn(cut);
        let mut other = shorter.clone();
        let next = Epoch::new(counter + 1, MemberId(1));
        prop_assert!(other.extend(next, fork).is_ok());
        if let Some(found) = history.divergence(Lsn(350), &other, Lsn(390)) {
            prop_assert!(found == fork.min(Lsn(350)) || shorter.entries().is_empty());
            prop_assert_eq!(other.divergence(Lsn(390), &history, Lsn(350)), Some(found));
        } else {
            prop_assert!(shorter.entries().is_empty());
        }
    }
}

#[test]
fn a_history_refuses_what_does_not_follow() {
    let epoch = |n| Epoch::new(n, MemberId(0));
    let mut history = EpochHistory::new();
    assert_eq!(history.extend(Epoch::NONE, Lsn(1)), Err(HistoryError::NoEpoch { start: Lsn(1) }));
    history.extend(epoch(2), Lsn(100)).unwrap();
    assert!(matches!(history.extend(epoch(2), Lsn(200)), Err(HistoryError::Order { .. })));
    assert!(matches!(history.extend(epoch(3), Lsn(99)), Err(HistoryError::Order { .. })));
    history.extend(epoch(3), Lsn(100)).unwrap();
    assert_eq!(history.entries().len(), 1, "an epoch that owns nothing is replaced");
    for n in 4..2 + u64::try_from(crate::HISTORY_ENTRIES_MAX).unwrap() + 1 {
        history.extend(epoch(n), Lsn(n * 1000)).unwrap();
    }
    assert_eq!(history.extend(epoch(1 << 30), Lsn(1 << 40)), Err(HistoryError::TooMany));
    history.trim(Lsn(10_000));
    history.extend(epoch(1 << 30), Lsn(1 << 40)).unwrap();
}
