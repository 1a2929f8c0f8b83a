//! Trim points: what is told of what lies behind them, and of two trims at once (kinds 45 and 48).

use std::sync::Arc;

use windlass_log::{Lsn, SEGMENT_BYTES_MIN};

use super::filled;
use super::testlog::{AROUND, TestLog, options};
use crate::disk::testing::TestDisk;
use crate::{CutError, Inspection, ReadError, ScrubPlace, Scrubbed, Store, TrimError};

/// The trim point lies in a segment in which an older epoch has records, too, of which the history says nothing any more.
#[test]
fn kind_48_a_place_inside_a_record_is_no_damage_where_an_older_epoch_of_its_segment_is_trimmed() {
    let (disk, log, _) = filled(5);
    drop(log);
    let mut log = TestLog::open(disk.after_kill()).unwrap();
    let first = log.append(&[1; 100]).unwrap();
    let second = log.append(&[2; 100]).unwrap();
    log.flush().unwrap();
    assert!(second.end.0 < SEGMENT_BYTES_MIN);
    let inside = Lsn(second.start.0 + 40);
    let check = |log: &TestLog<TestDisk>| {
        let drained = log.handoff.drained();
        let error = log.store.reader(inside).next(drained).map(|_| ()).unwrap_err();
        let told = ReadError::InsideRecord { lsn: inside, start: second.start, end: second.end };
        assert_eq!(error, told);
        assert_eq!(log.store.record_around(inside, drained), Some(second.start..second.end));
        assert_eq!(log.store.is_whole_up_to(second.start, drained), Ok(true));
        let told = TrimError::InsideRecord { lsn: inside, record: Some(second.start..second.end) };
        assert_eq!(log.store.trim(inside, drained), Err(told));
        let inspection = Inspection::open(disk.clone(), None).unwrap();
        assert_eq!(inspection.record_around(inside, drained), Ok(Some(second.start)));
    };
    check(&log);
    log.store.trim(first.end, log.handoff.drained()).unwrap();
    check(&log);
}

/// Seed 340878 of the simulator: the store refused a trim that the member's engine had behind it, and what lay damaged between the two trim points was missed by nobody.
#[test]
fn kind_12_a_member_trims_also_where_damage_has_taken_the_record_that_begins_there_r_18() {
    let (disk, log, starts) = filled(200);
    let (drained, hurt) = (log.handoff.drained(), starts[20]);
    disk.rot(&format!("{:016x}.segment", 0), hurt.0 + 20, 1);
    let refused = TrimError::InsideRecord { lsn: hurt, record: None };
    assert_eq!(log.store.trim(hurt, drained), Err(refused), "a lone log, whose application may be wrong");
    log.store.update(|superblock| superblock.configuration = b"three members".to_vec()).unwrap();
    let inside = Lsn(starts[10].0 + 8);
    let refused = TrimError::InsideRecord { lsn: inside, record: Some(starts[10]..starts[11]) };
    assert_eq!(log.store.trim(inside, drained), Err(refused));
    log.store.trim(hurt, drained).unwrap();
    assert_eq!(log.store.trimmed(), hurt);
    // And is found damaged from there on, which its engine takes.
    let found = log.store.scrub(ScrubPlace::new(hurt), drained, 4096).unwrap();
    assert!(matches!(&found, Scrubbed::Damaged(damage) if damage.start == hurt), "{found:?}");
    assert_eq!(log.store.distrust(hurt..starts[21]), Ok(Some(hurt)));
}

/// The later trim is done while the earlier one looks whether a record starts at its place.
#[test]
fn kind_45_the_trim_point_does_not_go_back_where_two_trim_at_once() {
    let (disk, log, starts) = filled(300);
    let drained = log.handoff.drained();
    let (low, high) = (starts[10], starts[290]);
    assert!(high.0 / SEGMENT_BYTES_MIN > low.0 / SEGMENT_BYTES_MIN);
    log.handoff.retire();
    let store = Arc::clone(&log.store);
    disk.before_read(move || store.trim(high, drained).unwrap());
    log.store.trim(low, drained).unwrap();
    assert_eq!(log.store.trimmed(), high);
    assert_eq!(log.store.superblock().trimmed, high);
    drop(log);
    let log = TestLog::open(disk.after_kill()).unwrap();
    assert_eq!(log.store.trimmed(), high);
}

/// The log is cut while a trim behind the cut looks whether a record starts at its place.
#[test]
fn kind_42_and_45_no_trim_passes_a_cut_that_came_meanwhile() {
    let (disk, log, starts) = filled(30);
    let drained = log.handoff.drained();
    log.handoff.seal();
    log.handoff.retire();
    let (store, cut) = (Arc::clone(&log.store), starts[10]);
    disk.before_read(move || {
        let superblock = store.superblock();
        let epoch = superblock.promised.next_for(superblock.member);
        let mut history = superblock.history;
        history.cut(cut);
        history.extend(epoch, cut).unwrap();
        store.cut(cut, history, epoch).unwrap();
    });
    let trimmed = log.store.trimmed();
    let error = log.store.trim(starts[20], drained).unwrap_err();
    assert_eq!(error, TrimError::BeyondEnd { lsn: starts[20], drained: cut });
    assert_eq!(log.store.superblock().trimmed, trimmed);
    log.store.trim(starts[5], cut).unwrap();
    drop(log);
    let log = TestLog::open(disk.after_kill()).unwrap();
    assert_eq!((log.store.trimmed(), log.opened.tail), (starts[5], cut));
}

/// A trim goes past the place at which the log is to begin again, while the segment there is being made.
#[test]
fn kind_45_a_log_that_begins_again_does_not_put_the_trim_point_back() {
    let (disk, log, _) = filled(5);
    log.handoff.retire();
    let (place, later) = (Lsn((9 * SEGMENT_BYTES_MIN) + 4096), Lsn((9 * SEGMENT_BYTES_MIN) + 8192));
    let store = Arc::clone(&log.store);
    disk.before_sync_folder(move || store.trim(later, later).unwrap());
    let error = log.store.reset_with(place, |_| {}).unwrap_err();
    assert_eq!(error, CutError::Trimmed { lsn: place, trimmed: later });
    assert_eq!(log.store.superblock().trimmed, later);
    assert_eq!(log.store.trimmed(), later);
}

/// One bad sector takes several records, and the trim point comes to lie among them before or after the mark was lowered: what is left is missed, and an opening finds it.
#[test]
fn kind_12_damage_across_the_trim_point_is_not_forgotten_r_18() {
    for trims_first in [false, true] {
        let (disk, log, starts) = filled(200);
        let end = log.flush().unwrap().lsn();
        log.store.update(|superblock| superblock.configuration = b"three members".to_vec()).unwrap();
        for start in &starts[20..23] {
            disk.rot(&format!("{:016x}.segment", 0), start.0 + 20, 1);
        }
        let found = log.store.scrub(ScrubPlace::new(starts[0]), end, 1 << 20).unwrap();
        let Scrubbed::Damaged(damage) = found else { panic!("{found:?}") };
        assert_eq!(damage.start..damage.end, starts[20]..starts[23]);
        if trims_first {
            log.store.trim(starts[21], end).unwrap();
        }
        let from = if trims_first { starts[21] } else { starts[20] };
        assert_eq!(log.store.distrust(damage.start..damage.end), Ok(Some(from)));
        log.store.trim(starts[21], end).unwrap();
        log.flush().unwrap();
        log.close().unwrap();
        let (store, opened) = Store::open(disk.copied_in_place(), &AROUND, &options()).unwrap();
        assert_eq!(store.superblock().clean, None);
        assert_eq!(opened.damage.first().map(|damage| damage.start), Some(starts[21]), "{opened:?}");
    }
}
