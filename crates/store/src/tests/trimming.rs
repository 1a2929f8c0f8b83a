//! Trim points: what is told of what lies behind them, and of two trims at once (kinds 45 and 48).

use windlass_log::{Lsn, SEGMENT_BYTES_MIN};

use super::filled;
use super::testlog::TestLog;
use crate::disk::testing::TestDisk;
use crate::{Inspection, ReadError, TrimError};

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
