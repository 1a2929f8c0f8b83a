//! Tests of the store as a whole: the kinds of failure of DESIGN.md section 13.

mod ahead;
mod crash;
mod decision;
mod epochs;
mod killed;
mod kinds;
mod live;
mod making;
mod medium;
mod newer;
mod open_cut;
mod pace;
mod past;
mod repair;
mod stopped;
pub(crate) mod testlog;
mod trimming;

use windlass_log::Lsn;

use crate::disk::testing::TestDisk;
use testlog::TestLog;

fn payload(number: u32) -> Vec<u8> {
    let len = usize::try_from(number % 7 * 300).unwrap();
    number.to_le_bytes().into_iter().chain(std::iter::repeat_n(number.to_le_bytes()[0], len)).collect()
}

#[test]
fn what_is_appended_and_closed_is_there_after_opening() {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    for number in 0..300 {
        log.append(&payload(number)).unwrap();
    }
    log.flush().unwrap();
    let tail = log.handoff.tail();
    log.close().unwrap();
    let log = TestLog::open(disk).unwrap();
    assert!(log.opened.clean);
    assert_eq!(log.opened.tail, tail);
    assert_eq!(log.payloads(), (0..300).map(payload).collect::<Vec<_>>());
}

/// A log of `count` records, flushed; where each starts.
fn filled(count: u32) -> (TestDisk, TestLog<TestDisk>, Vec<Lsn>) {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    let starts = (0..count).map(|number| log.append(&payload(number)).unwrap().start).collect();
    log.flush().unwrap();
    (disk, log, starts)
}
