//! What is found, and what is not.

use super::*;
use crate::testing::{GENESIS, LOG, Log, S, epoch};

fn find(log: &Log, above: Epoch, start: Lsn, end: Lsn) -> Option<Lsn> {
    let found = newer(&mut log.image(), log.shape.geometry, LOG, above, start..end).unwrap();
    found.map(|found| {
        assert!(found.epoch > above);
        found.lsn
    })
}

#[test]
fn the_first_record_above_an_epoch_is_found_from_anywhere_before_it() {
    let mut log = Log::new(3);
    for number in 0..40 {
        log.append(&[number; 333]);
    }
    let from = log.tail();
    let mut log = log.next_epoch(from);
    let starts: std::vec::Vec<Lsn> = (0..20).map(|number| log.append(&[number; 77]).start).collect();
    let end = Lsn(S);
    assert_eq!(find(&log, epoch(1), GENESIS, end), Some(from));
    assert_eq!(find(&log, epoch(1), from, end), Some(from));
    for pair in starts.windows(2) {
        assert_eq!(find(&log, epoch(1), Lsn(pair[0].0 + 8), end), Some(pair[1]));
        assert_eq!(find(&log, epoch(1), Lsn(pair[0].0 + 8), pair[1]), None, "the range's end is not in it");
    }
    assert_eq!(find(&log, epoch(2), GENESIS, end), None, "not above");
    assert_eq!(find(&log, Epoch::NONE, GENESIS, end), Some(GENESIS));
    // Whole only.
    for lsn in &starts[..19] {
        log.flip(Lsn(lsn.0 + 40));
    }
    assert_eq!(find(&log, epoch(1), GENESIS, end), Some(starts[19]));
    log.flip(Lsn(starts[19].0 + 40));
    assert_eq!(find(&log, epoch(1), GENESIS, end), None);
    let other = newer(&mut log.image(), log.shape.geometry, crate::LogId([7; 16]), Epoch::NONE, GENESIS..end);
    assert_eq!(other, Ok(None), "another log's");
}

/// Pieces overlap by what is needed: a record is found wherever it starts, at a segment's very end too, and without the segment's header.
#[test]
fn a_record_is_found_at_every_place_of_a_segment() {
    let mut log = Log::new(2);
    // The last place of a segment is for a header without payload.
    let room = S - log.tail().0 - 48 - 32 - 32;
    log.append(&std::vec![1; crate::bytes::index(room)]);
    let from = log.tail();
    assert_eq!(from.0, S - 32);
    let mut log = log.next_epoch(from);
    log.append(b"");
    log.flip(Lsn(10));
    assert_eq!(find(&log, epoch(1), GENESIS, Lsn(S)), Some(from));
    // Across a segment's end.
    let next = log.append(&[2; 20]);
    assert_eq!(next.start.0, S + 4096 + 48);
    let first = Lsn(S + 4096);
    assert_eq!(find(&log, epoch(1), first, Lsn(first.0 + 8)), Some(first), "the segment-start record");
}

/// Records that lie elsewhere than they were written, and payloads that are records, are none.
#[test]
fn kind_17_what_was_written_for_another_place_is_not_found_r_3() {
    let mut log = Log::new(2);
    let mut newest = log.append(b"first");
    for number in 2..6 {
        log = log.next_epoch(newest.end);
        newest = log.append(&[number; 500]);
    }
    let (memory, offset) = log.place(newest.start);
    let mut record = [0; 532];
    memory.copy_out(offset, &mut record);
    let mut log = Log::new(2);
    for _ in 0..5 {
        log.append(&record);
        log.append(&record[..301]);
    }
    assert_eq!(find(&log, epoch(1), GENESIS, Lsn(S)), None);
}
