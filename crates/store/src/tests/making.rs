//! Making a log where somebody else is at work (kind 34), and what is mapped of one (kind 20).

use std::sync::Arc;

use windlass_log::{Epoch, LogId, MemberId, RecordKind};

use super::testlog::{AROUND, TestLog, founding, options};
use super::{filled, payload};
use crate::disk::testing::TestDisk;
use crate::{
    CreateError, DiskCall, Founding, Inspection, MemoryError, OpenError, PrepareError, Prepared, Read, Store,
};

/// A second maker has looked at the empty folder before the first one had its lock, and gets the lock once the first one is done.
#[test]
fn kind_34_a_log_that_was_made_meanwhile_is_not_destroyed_by_who_wanted_to_make_one() {
    let disk = TestDisk::new();
    let there = disk.clone();
    disk.before_lock(move || {
        let mut log = TestLog::create(there).unwrap();
        for number in 0..20 {
            log.append(&payload(number)).unwrap();
        }
        log.flush().unwrap();
        log.close().unwrap();
    });
    let other = Founding { log_id: LogId([8; 16]), ..founding() };
    let error = Store::create(disk.clone(), &other, &AROUND, &options()).unwrap_err();
    assert!(matches!(error, CreateError::Exists { .. }), "{error}");
    let log = TestLog::open(disk).expect("the first one's log is there");
    assert_eq!(log.payloads(), (0..20).map(payload).collect::<Vec<_>>());
}

/// Somebody copies files into the folder, which asks no lock, while a log is being made there.
#[test]
fn kind_34_what_is_put_into_the_folder_while_a_log_is_made_there_stays() {
    let (from, log, _) = filled(5);
    log.close().unwrap();
    for name in ["superblock", "0000000000000000.segment", "reserve"] {
        let (disk, bytes) = (TestDisk::new(), from.read_file(name));
        let (there, put) = (disk.clone(), bytes.clone());
        disk.before_sync_folder(move || there.write_file(name, &put));
        let made = Store::create(disk.clone(), &founding(), &AROUND, &options());
        assert_eq!(made.is_ok(), name == "reserve", "{name}");
        drop(made);
        assert_eq!(disk.read_file(name), bytes, "{name}");
        if name != "reserve" {
            assert_eq!(disk.names(), [name], "what this call made is gone, and nothing else");
        }
    }
}

/// A segment was restored by a copy that leaves holes where there are zeros.
#[test]
fn kind_20_a_segment_with_holes_is_filled_before_it_is_mapped_or_refused() {
    let name = "0000000000000000.segment";
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    disk.make_holes(name, 40 << 10);
    let used = disk.used_bytes();
    disk.set_capacity(Some(used));
    let error = TestLog::open(disk.clone()).map(|_| ()).unwrap_err();
    let OpenError::Disk(error) = error else { panic!("{error}") };
    assert!(error.is_full() && error.call == DiskCall::Allocate && error.file.ends_with(name), "{error}");
    assert_eq!(disk.used_bytes(), used);
    // It can be looked at all the same.
    assert!(Inspection::open(disk.clone(), None).unwrap().verify().unwrap().verdict.records >= 5);
    disk.set_capacity(None);
    let log = TestLog::open(disk.clone()).unwrap();
    assert_eq!(disk.used_bytes(), used + (40 << 10));
    assert_eq!(log.payloads(), (0..5).map(payload).collect::<Vec<_>>());
    log.close().unwrap();

    // And where it holds no log yet.
    let ahead = "0000000000010000.segment";
    disk.make_holes(ahead, 40 << 10);
    let mut log = TestLog::open(disk.clone()).unwrap();
    for number in 0..300 {
        log.append(&payload(number)).unwrap();
    }
    assert_eq!(log.payloads().len(), 305);
}

/// The same where a cut, or damage, makes an older segment one that is written again: nothing ends for want of room, and the helper goes on once there is some.
#[test]
fn kind_20_a_cold_segment_with_holes_that_is_to_be_written_again_waits_for_room() {
    let name = "0000000000000000.segment";
    let (disk, mut log, _) = filled(5);
    for number in 5..100 {
        log.append(&payload(number)).unwrap();
    }
    log.flush().unwrap();
    log.handoff.retire();
    log.prepare().unwrap();
    let mut reader = log.store.reader(log.store.trimmed());
    let mut starts = Vec::new();
    while let Read::Record(record) = reader.next(log.handoff.drained()).unwrap() {
        starts.extend((record.header.kind == RecordKind::Data).then_some(record.header.lsn));
    }
    log.handoff.seal();
    log.drain();
    let store = Arc::clone(&log.store);
    drop((reader, log));
    disk.make_holes(name, 40 << 10);
    disk.set_capacity(Some(0));
    let (mut history, epoch) = (store.superblock().history, Epoch::new(2, MemberId(0)));
    history.cut(starts[3]);
    history.extend(epoch, starts[3]).unwrap();
    store.cut(starts[3], history, epoch).unwrap();
    for _ in 0..3 {
        assert_eq!(store.memory(0).map(drop), Err(MemoryError::NotReady { segment: 0 }));
        let full = store.prepare_step(starts[3]).unwrap_err();
        assert!(matches!(full, PrepareError::Full { segment: 0, .. }), "{full}");
    }
    assert_eq!(store.failure(), None);
    disk.set_capacity(None);
    while !matches!(store.prepare_step(starts[3]).unwrap(), Prepared::Idle) {}
    assert!(store.memory(0).is_ok());
    drop(store);
    let mut log = TestLog::open(disk.after_kill()).unwrap();
    log.append(&payload(3)).unwrap();
    assert_eq!(log.payloads(), (0..4).map(payload).collect::<Vec<_>>());
}
