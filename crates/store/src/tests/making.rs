//! Making a log where somebody else is at work (kind 34).

use windlass_log::LogId;

use super::testlog::{AROUND, TestLog, founding, options};
use super::{filled, payload};
use crate::disk::testing::TestDisk;
use crate::{CreateError, Founding, Store};

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
