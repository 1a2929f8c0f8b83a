//! A log that has had as many epochs since its trim point as its history holds.

use windlass_log::{
    Epoch, EpochHistory, HISTORY_ENTRIES_MAX, HistoryError, Lsn, MemberId, RecordKind, SEGMENT_BYTES_MIN,
};

use super::testlog::{AROUND, TestLog, options};
use crate::disk::testing::{Survive, TestDisk};
use crate::{Inspection, OpenError, OpenTrimError, Opened, Store};

/// So many times a process appends something and is killed until the log has no room for another epoch.
const KILLS: usize = 8;
/// Where the log begins.
pub(super) const BEGIN: Lsn = Lsn(SEGMENT_BYTES_MIN + 4096);

/// A log that does not open any more, and where its records start. All but the last of its epochs are of before the place where it begins.
pub(super) fn full() -> (TestDisk, Vec<Lsn>) {
    let mut disk = TestDisk::new();
    let log = TestLog::create(disk.clone()).unwrap();
    log.handoff.retire();
    let mut history = EpochHistory::new();
    for number in 1..=u64::try_from(HISTORY_ENTRIES_MAX - KILLS).unwrap() {
        history.extend(Epoch::new(number, MemberId(0)), Lsn(4096 + 8 * number)).unwrap();
    }
    log.store
        .reset_with(BEGIN, |superblock| {
            superblock.promised = history.last().unwrap().epoch;
            superblock.history = history;
        })
        .unwrap();
    drop(log);
    let mut starts = Vec::new();
    loop {
        disk = disk.after_kill();
        let mut log = match TestLog::open(disk.clone()) {
            Ok(log) => log,
            Err(error) => {
                let is_full = matches!(error, OpenError::History(HistoryError::TooMany));
                assert!(is_full, "opening {}: {error}", starts.len());
                return (disk.after_kill(), starts);
            }
        };
        starts.push(log.append(b"started").unwrap().start);
        log.flush().unwrap();
    }
}

fn trimmed(disk: TestDisk, lsn: Lsn) -> Result<(Store<TestDisk>, Opened), OpenTrimError> {
    Store::open_trimmed(disk, &AROUND, &options(), lsn)
}

#[test]
fn r_12_a_log_that_was_killed_as_often_as_its_history_has_room_opens_trimmed() {
    let (disk, starts) = full();
    assert_eq!(starts.len(), KILLS);
    let place = starts[3];
    let inside = Lsn(place.0 + 8);
    let error = trimmed(disk.copied_in_place(), inside).unwrap_err();
    assert!(
        matches!(&error, OpenTrimError::InsideRecord { lsn, record: Some(record) } if *lsn == inside && record.start == place),
        "{error}"
    );
    let beyond = Lsn(starts[starts.len() - 1].0 + 4096);
    let error = trimmed(disk.copied_in_place(), beyond).unwrap_err();
    assert!(matches!(error, OpenTrimError::Beyond { .. }), "{error}");
    // Not far enough: nothing is released.
    let error = trimmed(disk.copied_in_place(), BEGIN).unwrap_err();
    assert!(matches!(error, OpenTrimError::Open(OpenError::History(HistoryError::TooMany))), "{error}");

    // Stopped at any call it is as it was, or trimmed, and the same again comes to the same end.
    let whole = disk.copied_in_place();
    let before = whole.steps();
    let (store, opened) = trimmed(whole.clone(), place).unwrap();
    assert_eq!((store.trimmed(), opened.clean), (place, false));
    drop(store);
    let steps = whole.steps() - before;
    assert!(steps > 4);
    for step in 0..steps {
        let stopped = disk.copied_in_place();
        stopped.stop_at(step);
        drop(trimmed(stopped.clone(), place));
        for left in [
            stopped.after_kill(),
            stopped.after_power_loss(Survive::Nothing),
            stopped.after_power_loss(Survive::Everything),
        ] {
            let (store, again) = trimmed(left, place).unwrap();
            assert_eq!((store.trimmed(), again.tail), (place, opened.tail), "step {step}");
        }
    }
    let mut log = TestLog::open(whole.after_kill()).unwrap();
    let records = log.payloads();
    assert_eq!(records, vec![b"started".to_vec(); KILLS - 3]);
    log.append(b"goes on").unwrap();
    log.flush().unwrap();
    drop(log);
    assert_eq!(TestLog::open(whole.after_kill()).unwrap().payloads().len(), records.len() + 1);
}

/// More epochs than a history holds are in the files of a log only if it was trimmed to behind the oldest. So these are the ones to do without where the superblock is lost,
/// or from before.
#[test]
fn kind_11_of_more_epochs_than_a_history_holds_the_newest_are_read_without_their_superblock() {
    let mut disk = TestDisk::new();
    drop(TestLog::create(disk.clone()).unwrap());
    let (mut starts, mut older, mut from) = (Vec::new(), Vec::new(), 0);
    while starts.len() < HISTORY_ENTRIES_MAX + 4 {
        disk = disk.after_kill();
        let Ok(mut log) = TestLog::open(disk.clone()) else {
            older = disk.read_file("superblock");
            from = 1000;
            drop(trimmed(disk.clone(), starts[from]).unwrap());
            continue;
        };
        starts.push(log.append(b"started").unwrap().start);
        log.flush().unwrap();
    }
    assert_eq!(starts[0].0 / SEGMENT_BYTES_MIN, starts[from].0 / SEGMENT_BYTES_MIN, "they are all there");
    for put_back in [false, true] {
        let disk = disk.after_kill();
        if put_back {
            disk.write_file("superblock", &older);
        } else {
            disk.remove_file("superblock");
        }
        let looked = Inspection::open_forgiving(disk).unwrap();
        assert!(looked.is_guessed());
        let begins = looked.superblock().trimmed;
        assert!(starts[0] < begins && begins <= starts[from], "{begins}");
        let mut walk = looked.walk(starts[from]);
        let mut records = 0;
        while let Ok(Ok(record)) = walk.step() {
            records += usize::from(record.header.kind == RecordKind::Data);
        }
        assert_eq!(records, starts.len() - from, "put back: {put_back}");
    }
}

#[test]
fn a_log_that_opens_anyhow_opens_trimmed_to_its_tail_and_a_member_does_not() {
    let (disk, log, starts) = super::filled(300);
    let tail = log.handoff.tail();
    log.close().unwrap();
    let (store, opened) = trimmed(disk.clone(), tail).unwrap();
    assert_eq!((store.trimmed(), store.persisted().lsn(), opened.tail), (tail, tail, tail));
    drop(store);
    // At or below the trim point nothing happens.
    let (store, _) = trimmed(disk.after_kill(), starts[3]).unwrap();
    assert_eq!(store.trimmed(), tail);
    drop(store);
    assert!(TestLog::open(disk.after_kill()).unwrap().payloads().is_empty());

    let member = crate::Founding { configuration: vec![1], ..super::testlog::founding() };
    let disk = TestDisk::new();
    drop(Store::create(disk.clone(), &member, &AROUND, &options()).unwrap());
    let error = trimmed(disk.after_kill(), tail).unwrap_err();
    assert!(matches!(error, OpenTrimError::Member { .. }), "{error}");
}
