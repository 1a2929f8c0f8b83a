//! What is done ahead of a tail that moves fast.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_log::Lsn;

use super::testlog::{AROUND, founding};
use crate::disk::testing::{Call, TestDisk};
use crate::{Founding, MemoryError, Options, Prepared, Store};

const S: u64 = 8 << 20;

/// A log with segments of 8 MiB, one of them ahead of the tail, or up to five.
fn store(disk: &TestDisk) -> Store<TestDisk> {
    let options =
        Options { retention_bytes: 64 * S, segments_ahead: 1, segments_ahead_max: 5, ..Options::default() };
    let founding = Founding { segment_bytes: S, ..founding() };
    let (store, _) = Store::create(disk.clone(), &founding, &AROUND, &options).unwrap();
    store.begin().unwrap();
    store
}

/// The steps of the helper with the tail there, until there is nothing to do: segments made, and parts of files.
fn steps(store: &Store<TestDisk>, tail: Lsn) -> (Vec<u64>, usize) {
    let (mut segments, mut parts) = (Vec::new(), 0);
    loop {
        match store.prepare_step(tail).unwrap() {
            Prepared::Segment { segment, .. } => segments.push(segment),
            Prepared::Allocated { .. } => parts += 1,
            Prepared::Populated { .. } | Prepared::Marked { .. } | Prepared::Recycled { .. } => {}
            Prepared::Idle => return (segments, parts),
        }
    }
}

/// A place in the middle of a segment.
fn middle(segment: u64) -> Lsn {
    Lsn(segment * S + S / 2)
}

#[test]
fn a_new_file_is_made_in_parts_and_a_trimmed_one_that_comes_meanwhile_is_used_first() {
    let disk = TestDisk::new();
    let store = store(&disk);
    assert_eq!(steps(&store, Lsn(4096)), (vec![1], 2), "two parts of 4 MiB, then the segment");
    // The tail goes on into segment 1; segment 2 has to be made, and half of its file is.
    while !matches!(store.prepare_step(middle(1)).unwrap(), Prepared::Allocated { .. }) {}
    let end = store.geometry().first_record(1);
    store.trim(end, end).unwrap();
    let made = disk.calls(Call::Allocate);
    while !matches!(store.prepare_step(middle(1)).unwrap(), Prepared::Segment { segment: 2, .. }) {}
    assert_eq!(disk.calls(Call::Allocate), made, "made of the trimmed one");
    // What was begun is not thrown away: it is there for the next one.
    assert_eq!(steps(&store, middle(1)), (vec![3], 1));
    assert_eq!(store.counters().segments_made, 2);
}

#[test]
fn a_file_that_is_half_made_is_gone_after_closing_and_after_a_full_disk() {
    let disk = TestDisk::new();
    let store = store(&disk);
    while !matches!(store.prepare_step(Lsn(4096)).unwrap(), Prepared::Allocated { .. }) {}
    let temporary = "0000000000800000.tmp";
    assert_eq!(disk.read_file(temporary).len(), 4 << 20);
    disk.set_capacity(Some(disk.used_bytes()));
    assert!(store.prepare_step(Lsn(4096)).is_err());
    disk.set_capacity(None);
    while !matches!(store.prepare_step(Lsn(4096)).unwrap(), Prepared::Allocated { .. }) {}
    assert_eq!(disk.read_file(temporary).len(), 4 << 20, "begun anew");
    store.close(Lsn(4096)).unwrap();
    let names: Vec<_> = crate::disk::Disk::list(&disk).unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}

#[test]
fn a_fast_tail_has_more_segments_ready_from_free_files_with_one_flush_of_the_folder() {
    let disk = TestDisk::new();
    let store = store(&disk);
    for segment in 0..8 {
        let (made, _) = steps(&store, middle(segment));
        assert_eq!(made, [segment + 1], "never a new file for more than one ahead");
    }
    let end = store.geometry().first_record(6);
    store.trim(end, end).unwrap();
    let (folder, files) = (disk.calls(Call::SyncFolder), disk.calls(Call::Allocate));
    let (made, _) = steps(&store, middle(8));
    assert_eq!(made, [9, 10, 11, 12, 13]);
    assert_eq!(disk.calls(Call::SyncFolder), folder + 1);
    assert_eq!(disk.calls(Call::Allocate), files);
    // A tail that stands still for a while has no more made ahead than one.
    for _ in 0..200 {
        assert_eq!(steps(&store, middle(8)), (vec![], 0));
    }
    let end = store.geometry().first_record(8);
    store.trim(end, end).unwrap();
    assert_eq!(steps(&store, middle(8)), (vec![], 0));
}

/// What is flushed into a file whose name a loss of power takes away is gone with it.
#[test]
fn nobody_has_a_segments_memory_before_its_name_is_durable_kind_29() {
    let disk = TestDisk::new();
    let store = Arc::new(store(&disk));
    let ask_meanwhile = |segments: std::ops::RangeInclusive<u64>| {
        let (asked, store) = (Arc::new(AtomicBool::new(false)), Arc::clone(&store));
        let answered = Arc::clone(&asked);
        disk.before_sync_folder(move || {
            for segment in segments {
                assert_eq!(store.memory(segment).unwrap_err(), MemoryError::NotReady { segment });
            }
            answered.store(true, Ordering::Relaxed);
        });
        asked
    };
    // The rename of a file that is made of zeros, which the folder's next flush is for.
    while !matches!(store.prepare_step(Lsn(4096)).unwrap(), Prepared::Allocated { .. }) {}
    let asked = ask_meanwhile(1..=1);
    assert_eq!(steps(&store, Lsn(4096)).0, [1]);
    assert!(asked.load(Ordering::Relaxed));
    assert!(store.memory(1).is_ok());
    for segment in 1..8 {
        let _ = steps(&store, middle(segment));
    }
    let end = store.geometry().first_record(6);
    store.trim(end, end).unwrap();
    let asked = ask_meanwhile(9..=13);
    assert_eq!(steps(&store, middle(8)).0, [9, 10, 11, 12, 13]);
    assert!(asked.load(Ordering::Relaxed));
    assert!(store.memory(13).is_ok());
}

#[test]
fn a_failure_between_the_names_of_several_segments_keeps_those_that_have_theirs() {
    let disk = TestDisk::new();
    let store = store(&disk);
    for segment in 0..8 {
        let _ = steps(&store, middle(segment));
    }
    let end = store.geometry().first_record(6);
    store.trim(end, end).unwrap();
    disk.fail(Call::Rename, 2, crate::disk::Errno::ACCESS);
    let first = loop {
        match store.prepare_step(middle(8)) {
            Ok(Prepared::Segment { segment, .. }) => break segment,
            Ok(_) => {}
            Err(error) => panic!("two had their names: {error}"),
        }
    };
    assert_eq!(first, 9);
    assert_eq!(steps(&store, middle(8)).0, [10, 11, 12, 13]);
    assert_eq!(
        store.ready().iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [6, 7, 8, 9, 10, 11, 12, 13]
    );
}

#[test]
fn pages_that_are_there_are_not_made_present_again_unless_they_were_flushed() {
    let disk = TestDisk::new();
    let store = store(&disk);
    let populated = |store: &Store<TestDisk>| store.counters().populated_bytes;
    for segment in 0..4 {
        // Looks at half a segment each: fast.
        let _ = steps(&store, Lsn(segment * S + 8192));
        let _ = steps(&store, middle(segment));
    }
    let end = store.geometry().first_record(3);
    store.trim(end, end).unwrap();
    let _ = steps(&store, Lsn(4 * S + 8192));
    let before = populated(&store);
    let _ = steps(&store, middle(4));
    let _ = steps(&store, Lsn(5 * S + 8192));
    let _ = steps(&store, middle(5));
    assert_eq!(populated(&store), before, "segments 5 and 6 are files that were gone through before");
}
