//! Each row of the table, from a log that was made to look so.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::testing::{GENESIS, LOG, Log, S, epoch, no_marks, segment};
use crate::{LogId, RecordKind, SEGMENT_HEADER_BYTES};

fn judge_whole(log: &Log, marks: &Marks) -> Verdict {
    let mut image = log.image();
    let verdict = judge(&mut image, &log.shape, marks, Extent::Whole, |_| ()).unwrap();
    let again = judge(&mut image, &log.shape, marks, Extent::Whole, |_| ()).unwrap();
    assert_eq!(verdict, again, "I-7: a verdict is a pure function of the image");
    verdict
}

fn filled(records: u8) -> (Log, Vec<crate::Appended>) {
    let mut log = Log::new(4);
    let at = (0..records).map(|n| log.append(&[n; 1000])).collect();
    (log, at)
}

#[test]
fn clean_end_and_kind_13_a_blank_tail_is_a_clean_end() {
    let (log, at) = filled(10);
    let tail = log.tail();
    let unmarked = judge_whole(&log, &no_marks());
    assert_eq!((unmarked.row, unmarked.tail(), unmarked.records), (Row::EndBlank, tail, 11));
    assert_eq!(unmarked.last_epoch, Some(epoch(1)));
    assert_eq!(unmarked.chain, Some(log.drain.chain()));
    for mode in [OpenMode::Strict, OpenMode::Tail] {
        assert_eq!(unmarked.action(mode, Holder::Lone), Action::Open);
    }
    assert_eq!(unmarked.action(OpenMode::Salvage, Holder::Lone), Action::ReadOnly);
    let clean = judge_whole(&log, &Marks { clean: Some(tail), persisted: tail, ..no_marks() });
    assert_eq!(clean.row, Row::CleanEnd);
    let past = judge_whole(&log, &Marks { clean: Some(at[4].end), ..no_marks() });
    assert_eq!((past.row, past.action(OpenMode::Tail, Holder::Lone)), (Row::PastCleanMark, Action::Refuse));
}

#[test]
fn an_empty_log_ends_at_its_beginning() {
    let log = Log::new(1);
    let verdict = judge_whole(&log, &no_marks());
    assert_eq!((verdict.row, verdict.tail(), verdict.last_epoch), (Row::EndBlank, GENESIS, None));
    let mut shape = log.shape.clone();
    shape.history = crate::EpochHistory::new();
    let unled = judge(&mut log.image(), &shape, &no_marks(), Extent::Whole, |_| ()).unwrap();
    assert_eq!((unled.row, unled.tail(), unled.chain), (Row::NeverLed, GENESIS, None));
}

#[test]
fn kind_1_a_torn_last_record_is_cut_and_strict_refuses_it() {
    for lost in [0, 8, 100, 900] {
        let (log, at) = filled(10);
        let last = at[9];
        log.lose(Lsn(last.end.0 - 1032 + lost + 32), 100);
        let verdict = judge_whole(&log, &Marks { persisted: at[5].end, ..no_marks() });
        assert_eq!((verdict.row, verdict.tail()), (Row::TornTail, last.start));
        assert_eq!(verdict.action(OpenMode::Tail, Holder::Lone), Action::Cut);
        assert_eq!(verdict.action(OpenMode::Strict, Holder::Lone), Action::Refuse);
    }
}

#[test]
fn kind_2_damage_in_the_middle_is_never_taken_for_the_end() {
    let (log, at) = filled(10);
    log.flip(Lsn(at[5].start.0 + 500));
    let marks = Marks { persisted: at[7].end, ..no_marks() };
    let verdict = judge_whole(&log, &marks);
    assert_eq!((verdict.row, verdict.tail()), (Row::RecordDamaged, at[5].start));
    assert_eq!(verdict.action(OpenMode::Tail, Holder::Lone), Action::Refuse);
    assert_eq!(verdict.action(OpenMode::Salvage, Holder::Lone), Action::ReadOnly);
    // Blank counts as damage too when it was flushed.
    log.lose(at[5].start, 1032);
    assert_eq!(judge_whole(&log, &marks).row, Row::RecordDamaged);
}

#[test]
fn kind_6_records_behind_a_hole_above_the_mark_are_discarded() {
    let (log, at) = filled(10);
    log.lose(at[5].start, 1032);
    let verdict = judge_whole(&log, &Marks { persisted: at[3].end, ..no_marks() });
    assert_eq!(
        (verdict.row, verdict.tail(), verdict.behind),
        (Row::HoleBehind, at[5].start, Some(at[6].start))
    );
    assert_eq!(verdict.action(OpenMode::Tail, Holder::Lone), Action::Cut);
}

#[test]
fn the_lag_in_a_record_behind_a_hole_proves_damage_if_this_member_wrote_it() {
    let (mut log, at) = filled(10);
    log.handoff.set_persisted(at[8].end);
    log.append(&[1; 10]);
    log.lose(at[2].start, 1032);
    let own = judge_whole(&log, &no_marks());
    assert_eq!((own.row, own.tail()), (Row::RecordDamaged, at[2].start));
    assert!(own.flushed > at[2].start && own.flushed <= at[8].end);
    let other = judge_whole(&log, &Marks { member: MemberId(3), ..no_marks() });
    assert_eq!(other.row, Row::HoleBehind, "on another member the lag says nothing");
}

#[test]
fn a_hole_that_swallows_a_segment_end_is_seen_through_the_next_segment() {
    let mut log = Log::new(4);
    let at: Vec<_> = (0_u8..100).map(|n| log.append(&[n; 1000])).collect();
    let before = at.iter().rfind(|at| at.start.0 < S).unwrap();
    log.lose(before.start, S - before.start.0);
    let verdict = judge_whole(&log, &no_marks());
    assert_eq!((verdict.row, verdict.tail()), (Row::HoleBehind, before.start));
    assert_eq!(verdict.behind, Some(Lsn(S + SEGMENT_HEADER_BYTES)));
}

#[test]
fn r4_leftovers_of_a_cut_suffix_are_the_end_of_the_log() {
    let (log, at) = filled(10);
    let log = log.next_epoch(at[5].end);
    let verdict = judge_whole(&log, &no_marks());
    assert_eq!((verdict.row, verdict.tail()), (Row::EndLeftover, at[5].end));
    assert_eq!(verdict.last_epoch, Some(epoch(1)), "the history never ranks: the last record's epoch does");
    let mut log = log;
    let next = log.append(b"of the second epoch");
    let verdict = judge_whole(&log, &no_marks());
    assert_eq!((verdict.tail(), verdict.last_epoch), (next.end, Some(epoch(2))));
    assert_eq!(verdict.chain, Some(log.drain.chain()));
}

#[test]
fn kind_15_and_27_missing_segments_and_bad_headers() {
    let mut log = Log::new(4);
    let at: Vec<_> = (0_u8..150).map(|n| log.append(&[n; 1000])).collect();
    let tail = log.tail();
    assert!(tail.0 > 2 * S);
    let second = Lsn(S + SEGMENT_HEADER_BYTES);
    let below = Marks { persisted: tail, ..no_marks() };
    let saved = log.segments[1].take();
    let verdict = judge_whole(&log, &below);
    assert_eq!((verdict.row, verdict.tail()), (Row::SegmentLost, second));
    assert_eq!(judge_whole(&log, &no_marks()).row, Row::HoleBehind, "later segments hold whole records");
    log.segments[1].clone_from(&saved);
    log.flip(Lsn(S + 20));
    assert_eq!(judge_whole(&log, &below).row, Row::SegmentLost);
    log.flip(Lsn(S + 20));
    assert_eq!(judge_whole(&log, &below).row, Row::EndBlank);
    log.segments[1] = Some(segment(LogId([1; 16]), 1));
    for marks in [below, no_marks()] {
        let verdict = judge_whole(&log, &marks);
        assert_eq!((verdict.row, verdict.class()), (Row::ForeignSegment, Class::Foreign));
    }
    // The newest segment without a header holds nothing that counts.
    log.segments[1] = saved;
    let last = at.iter().rfind(|at| at.start.0 < 2 * S).unwrap();
    log.segments[2] = Some(crate::Memory::heap(S));
    let verdict = judge_whole(&log, &Marks { persisted: last.end, ..no_marks() });
    assert_eq!((verdict.row, verdict.tail()), (Row::EndBlank, Lsn(2 * S + SEGMENT_HEADER_BYTES)));
    log.segments[2] = Some(segment(LOG, 2));
    log.flip(Lsn(2 * S + 20));
    assert_eq!(judge_whole(&log, &no_marks()).row, Row::TornTail);
    log.segments.truncate(2);
    assert_eq!(judge_whole(&log, &no_marks()).row, Row::EndBlank);
}

#[test]
fn kind_2_a_segment_that_follows_other_records_breaks_the_chain() {
    let build = |payload: u8| {
        let mut log = Log::new(4);
        for _ in 0..80 {
            log.append(&[payload; 1000]);
        }
        log
    };
    let mut log = build(1);
    log.segments[1] = build(2).segments[1].take();
    let verdict = judge_whole(&log, &no_marks());
    assert_eq!((verdict.row, verdict.class()), (Row::ChainBroken, Class::Damage));
    assert!(matches!(verdict.stop.reason, StopReason::ChainBroken { .. }));
}

#[test]
fn kind_80_a_whole_record_of_an_unknown_kind_refuses() {
    let (log, at) = filled(3);
    let key = log.shape.salt().key(epoch(1));
    let header = crate::RecordHeader {
        lsn: at[2].end,
        epoch: epoch(1),
        kind: RecordKind::Data,
        lag: crate::Lag(0),
        payload_bytes: 0,
        payload_checksum: key.salt().payload_checksum(at[2].end, b""),
    };
    let (memory, offset) = log.place(at[2].end);
    memory.copy_in(offset, &crate::record::bytes_of(header.words(&key, 77)));
    let verdict = judge_whole(&log, &no_marks());
    assert_eq!((verdict.row, verdict.tail()), (Row::LaterVersion, at[2].end));
    assert_eq!(verdict.action(OpenMode::Tail, Holder::Lone), Action::Refuse);
}

#[test]
fn a_history_that_does_not_reach_back_is_damage_of_the_superblock() {
    let (log, at) = filled(5);
    let mut shape = log.shape.clone();
    shape.history = crate::EpochHistory::new();
    shape.history.extend(epoch(2), at[2].end).unwrap();
    let verdict = judge(&mut log.image(), &shape, &no_marks(), Extent::Whole, |_| ()).unwrap();
    assert_eq!((verdict.row, verdict.class()), (Row::HistoryGap, Class::Damage));
}

#[test]
fn after_a_clean_close_any_changed_byte_of_a_record_is_damage() {
    let mut log = Log::new(2);
    for n in 0_u8..30 {
        log.append(&vec![n; usize::from(n) * 11 % 60]);
    }
    log.handoff.append_batch(&[b"some", b"items", b""]).unwrap();
    drop(log.handoff.reserve(50).unwrap());
    while log.try_append(&[7; 5000]).unwrap().end.0 < S {}
    let tail = log.tail();
    let marks = Marks { clean: Some(tail), persisted: GENESIS, ..no_marks() };
    assert_eq!(judge_whole(&log, &marks).row, Row::CleanEnd);
    let all = (GENESIS.0..S).chain(S + SEGMENT_HEADER_BYTES..tail.0);
    let dense = |lsn: &u64| {
        *lsn < GENESIS.0 + 3000 || lsn.is_multiple_of(61) || *lsn > S - 200 || *lsn > tail.0 - 100
    };
    for lsn in all.filter(dense) {
        log.flip(Lsn(lsn));
        let verdict = judge(&mut log.image(), &log.shape, &marks, Extent::Whole, |_| ()).unwrap();
        assert_eq!(verdict.class(), Class::Damage, "byte {lsn}: {:?}", verdict.stop);
        assert!(verdict.tail().0 <= lsn);
        log.flip(Lsn(lsn));
    }
    assert_eq!(judge_whole(&log, &marks).row, Row::CleanEnd);
}

#[test]
fn below_the_trim_point_bytes_need_not_be_whole() {
    let (mut log, at) = filled(20);
    log.lose(at[3].start, 3000);
    let marks = Marks { trimmed: at[10].end, persisted: at[2].end, ..no_marks() };
    let verdict = judge_whole(&log, &marks);
    assert_eq!((verdict.row, verdict.from, verdict.tail()), (Row::EndBlank, at[10].end, log.tail()));
    assert_eq!(verdict.chain, None, "a new epoch has to start at the tail");
    // All that was not flushed is gone, and the trim point stands for it.
    log.lose(at[3].start, log.tail().0 - at[3].start.0);
    let verdict = judge_whole(&log, &marks);
    assert_eq!((verdict.row, verdict.tail()), (Row::EndBlank, at[10].end));
    log.append(b"x");
}

#[test]
fn from_the_mark_on_is_enough_for_opening_and_agrees_with_the_whole() {
    let mut log = Log::new(4);
    let at: Vec<_> = (0_u8..150).map(|n| log.append(&[n; 1000])).collect();
    let marks = Marks { persisted: at[120].end, ..no_marks() };
    let whole = judge_whole(&log, &marks);
    let quick = judge(&mut log.image(), &log.shape, &marks, Extent::FromMark, |_| ()).unwrap();
    assert!(quick.records < whole.records);
    assert_eq!((quick.row, quick.stop, quick.chain), (whole.row, whole.stop, whole.chain));
    assert_eq!(quick.last_epoch, whole.last_epoch);
    log.flip(Lsn(at[118].start.0 + 40));
    let quick = judge(&mut log.image(), &log.shape, &marks, Extent::FromMark, |_| ()).unwrap();
    assert_eq!((quick.row, quick.tail()), (Row::RecordDamaged, at[118].start));
}

#[test]
fn r1_a_tail_at_a_segment_end_is_the_first_lsn_of_the_next() {
    let mut log = Log::new(2);
    let max = log.shape.geometry.payload_bytes_max();
    let at = log.append(&vec![1; crate::testing::index(max)]);
    assert_eq!(at.end, Lsn(S + SEGMENT_HEADER_BYTES));
    for marks in [no_marks(), Marks { persisted: at.end, ..no_marks() }] {
        let verdict = judge_whole(&log, &marks);
        assert_eq!((verdict.row, verdict.tail()), (Row::EndBlank, at.end));
        let quick = judge(&mut log.image(), &log.shape, &marks, Extent::FromMark, |_| ()).unwrap();
        assert_eq!((quick.tail(), quick.last_epoch), (at.end, Some(epoch(1))));
        assert_eq!(quick.chain, verdict.chain, "the segment before gives the chain");
        assert_eq!(quick.chain, Some(log.drain.chain()));
    }
    let clean = Marks { persisted: at.end, clean: Some(at.end), ..no_marks() };
    assert_eq!(judge_whole(&log, &clean).row, Row::CleanEnd);
    log.segments.truncate(1);
    assert_eq!(judge_whole(&log, &clean).row, Row::CleanEnd, "the next segment need not be there yet");
}

#[test]
fn kind_9_marks_from_anywhere_never_panic() {
    let (log, at) = filled(3);
    let odd = [0, 1, 4095, at[1].start.0 + 3, S - 1, S, u64::MAX - 8, u64::MAX].map(Lsn);
    for trimmed in odd {
        for persisted in odd {
            for clean in odd.map(Some).into_iter().chain([None]) {
                let marks = Marks { trimmed, persisted, clean, ..no_marks() };
                for extent in [Extent::Whole, Extent::FromMark] {
                    judge(&mut log.image(), &log.shape, &marks, extent, |_| ()).unwrap();
                }
            }
        }
    }
}
