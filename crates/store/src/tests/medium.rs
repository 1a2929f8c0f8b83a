//! What the medium does not give, or has no room for, is an error before it would be a signal (kinds 7 and 20).

use super::testlog::{AROUND, TestLog, founding, options};
use super::{filled, payload};
use crate::disk::Errno;
use crate::disk::testing::{Call, Survive, TestDisk};
use crate::{DiskCall, PrepareError, Store, StoreError, UpdateError};

/// Rot in the page that the first append goes to, behind a clean stop.
#[test]
fn kind_7_a_page_at_the_tail_that_the_medium_does_not_give_is_an_error_before_the_first_append() {
    for (errno, words) in [
        (Errno::FAULT, "does not give a page of the file: check the device"),
        (Errno::HWPOISON, "memory that the machine has found faulty"),
    ] {
        let (disk, log, _) = filled(5);
        log.close().unwrap();
        let (store, _) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
        disk.fail(Call::Populate, 0, errno);
        for _ in 0..2 {
            let error = store.begin().unwrap_err();
            let UpdateError::Store(StoreError::MediumFailed(failed)) = error else { panic!("{error}") };
            assert_eq!((failed.cause.call, failed.cause.errno), (DiskCall::Populate, errno));
            assert!(failed.to_string().contains(words), "{failed}");
            assert!(failed.cause.file.ends_with("0000000000000000.segment"));
        }
        drop(store);
        // Nothing was changed: the log is as it was closed.
        let log = TestLog::open(disk.after_kill()).unwrap();
        assert!(log.opened.clean);
        assert_eq!(log.payloads().len(), 5);
    }
    // A kernel that can't, or has no memory, leaves it to the stores.
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    for nth in 0..4 {
        disk.fail(Call::Populate, nth, if nth % 2 == 0 { Errno::INVAL } else { Errno::NOMEM });
    }
    TestLog::open(disk).unwrap().append(&payload(1)).unwrap();
}

#[test]
fn kind_7_a_page_ahead_that_the_medium_does_not_give_ends_the_opening_before_a_store_meets_it() {
    let (disk, log, _) = filled(5);
    log.close().unwrap();
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
    store.begin().unwrap();
    disk.fail(Call::Populate, 0, Errno::FAULT);
    let error = loop {
        if let Err(error) = store.prepare_step(opened.tail) {
            break error;
        }
    };
    assert!(matches!(error, PrepareError::Store(StoreError::MediumFailed(_))), "{error}");
    assert!(store.flush(opened.tail).is_err(), "final");
}

/// It holds nothing back otherwise.
#[test]
fn kind_22_the_reserve_is_as_long_as_it_is_to_be_and_has_its_blocks() {
    const RESERVE_BYTES: usize = 256 << 10;
    let disk = TestDisk::new();
    drop(Store::create(disk.clone(), &founding(), &AROUND, &options()).unwrap());
    let disk = disk.after_power_loss(Survive::Nothing);
    assert_eq!(disk.read_file("reserve").len(), RESERVE_BYTES, "its bytes are as durable as its name");
    disk.write_file("reserve", b"short");
    drop(TestLog::open(disk.clone()).unwrap());
    assert_eq!(disk.read_file("reserve").len(), RESERVE_BYTES);
    let used = disk.used_bytes();
    disk.make_holes("reserve", 200 << 10);
    drop(TestLog::open(disk.after_kill()).unwrap());
    assert_eq!(disk.used_bytes(), used);
}
