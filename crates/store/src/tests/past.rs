//! A superblock from before, of the same epoch, put back in place after a clean close: told for what it is, and nothing of the log is lost (kind 11). DESIGN.md sections 6.1 and 6.5.

use windlass_log::{Action, Facts, Found, Holder, Lsn, OpenMode, Row, SEGMENT_BYTES_MIN, Superblock};

use super::stopped::{By, at_each_step, is_repaired_again, looked, repair};
use super::testlog::{AROUND, TestLog, options};
use crate::disk::testing::TestDisk;
use crate::{Finding, Inspection, OpenError, Options, RepairError, RepairOrders, Store};

const COPY: usize = 64 << 10;
/// A record of these tests, in bytes.
const RECORD: u64 = 832;

/// A log that was closed, opened and appended to: its disk, the superblock's file from before, and where that says that the log was closed.
struct Case {
    disk: TestDisk,
    older: Vec<u8>,
    clean: Lsn,
    tail: Lsn,
    starts: Vec<Lsn>,
    all: Vec<Vec<u8>>,
}

fn payload(number: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(100)
}

/// `closes`: it is closed again, else killed.
fn case(before: usize, after: usize, closes: bool) -> Case {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    let all: Vec<Vec<u8>> = (0..before + after).map(payload).collect();
    let mut starts = Vec::new();
    for payload in &all[..before] {
        starts.push(log.append(payload).unwrap().start);
    }
    let clean = log.handoff.tail();
    log.close().unwrap();
    let older = disk.read_file("superblock");
    let mut log = TestLog::open(disk.clone()).unwrap();
    assert_eq!(log.opened.tail, clean);
    for payload in &all[before..] {
        starts.push(log.append(payload).unwrap().start);
    }
    log.flush().unwrap();
    let tail = log.handoff.tail();
    if closes {
        log.close().unwrap();
    } else {
        drop(log);
    }
    Case { disk: disk.after_kill(), older, clean, tail, starts, all }
}

impl Case {
    /// The older file is there again.
    fn put_back(&self) -> TestDisk {
        let disk = self.disk.copied_in_place();
        disk.write_file("superblock", &self.older);
        disk
    }

    /// The same, of a member.
    fn put_back_of_a_member(&self) -> TestDisk {
        let mut older = self.older.clone();
        let mut superblock = Superblock::decode(&older[..COPY]).unwrap();
        superblock.configuration = b"three members".to_vec();
        let bytes = superblock.encode().unwrap();
        for copy in [0, COPY] {
            older[copy..copy + bytes.len()].copy_from_slice(&bytes);
        }
        let disk = self.disk.copied_in_place();
        disk.write_file("superblock", &older);
        disk
    }
}

/// A log with the superblock from before it was opened again, all its payloads, and its tail.
pub(super) fn put_back_and_all(before: usize, after: usize, closes: bool) -> (TestDisk, Vec<Vec<u8>>, Lsn) {
    let case = case(before, after, closes);
    (case.put_back(), case.all, case.tail)
}

fn lose(disk: &TestDisk, lsn: Lsn, bytes: u64) {
    let name = format!("{:016x}.segment", lsn.0 / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN);
    let mut file = disk.read_file(&name);
    let at = usize::try_from(lsn.0 % SEGMENT_BYTES_MIN).unwrap();
    file[at..at + usize::try_from(bytes).unwrap()].fill(0);
    disk.write_file(&name, &file);
}

fn open(disk: &TestDisk, mode: OpenMode) -> Result<(), OpenError> {
    let options = Options { mode, ..options() };
    Store::open(disk.copied_in_place(), &AROUND, &options).map(drop)
}

fn accepting(tail: Lsn) -> RepairOrders {
    RepairOrders { accept_tail: Some(tail), ..RepairOrders::default() }
}

#[track_caller]
fn is_refused(disk: &TestDisk, clean: Lsn, first: Lsn) {
    for mode in [OpenMode::Strict, OpenMode::Tail] {
        let refused = open(disk, mode).unwrap_err();
        assert_eq!(refused.row(), Some(Row::PastCleanMark), "{mode:?}: {refused}");
        let said = refused.to_string();
        assert!(said.contains("an older superblock was put back") && !said.contains("truncat"), "{said}");
        let OpenError::PastCleanMark { clean: told, lsn, .. } = refused else { panic!("{said}") };
        assert_eq!((told, lsn), (clean, first));
    }
    let verified = Inspection::open(disk.clone(), None).unwrap().verify().unwrap_err();
    assert_eq!(verified.row(), Some(Row::PastCleanMark), "{verified}");
}

fn files(disk: &TestDisk) -> Vec<Vec<u8>> {
    disk.names().iter().map(|name| disk.read_file(name)).collect()
}

#[test]
fn kind_11_a_superblock_from_before_a_clean_close_is_told_and_all_records_are_kept_by_order() {
    // In the first segment, up to its end, over several segments; closed again, or killed.
    for (before, after, closes) in
        [(0, 1, true), (3, 5, true), (60, 3, false), (73, 1, true), (150, 300, true)]
    {
        let case = case(before, after, closes);
        open(&case.disk, OpenMode::Tail).unwrap();
        let disk = case.put_back();
        is_refused(&disk, case.clean, case.clean);
        let held = files(&disk);
        let found = looked(&disk);
        let expected = Finding::PastCleanMark { clean: case.clean, lsn: case.clean, tail: case.tail };
        assert_eq!(found.findings, [expected], "{before}, {after}");
        assert_eq!((found.kept.records, found.tail), (case.all.len() as u64, case.tail));
        let without = repair(&disk, &RepairOrders::default());
        assert!(matches!(without, Err(RepairError::PastCleanMark { .. })), "{without:?}");
        let other = repair(&disk, &accepting(case.clean));
        assert!(matches!(other, Err(RepairError::NotTail { .. })), "{other:?}");
        let rehearsed = repair(&disk, &RepairOrders { dry_run: true, ..accepting(case.tail) }).unwrap();
        assert!(files(&disk) == held, "nothing was changed");
        let repaired = repair(&disk.copied_in_place(), &accepting(case.tail)).unwrap();
        assert_eq!(rehearsed, repaired, "what was rehearsed came about");

        // Stopped at every step.
        if before > 60 {
            continue;
        }
        let orders = accepting(case.tail);
        let repaired = at_each_step(&disk, &orders, By::KillOrPower, |run, told| {
            is_repaired_again(run, &orders, told);
            let mut log = TestLog::open(run.clone()).unwrap();
            assert_eq!(log.opened.tail, case.tail, "{told}");
            assert!(log.payloads() == case.all, "{told}: after {before}");
            log.append(b"goes on").unwrap();
            log.close().unwrap();
        });
        assert!(repaired.quarantined.iter().any(|name| name.contains("superblock-0x0-")));
    }
}

/// What is lost behind the mark is damage then, and never a torn end: no mark speaks for what lies behind it.
#[test]
fn kind_11_what_is_damaged_behind_the_clean_mark_is_given_up_by_order_and_the_rest_is_kept() {
    let (before, after) = (60, 150);
    let case = case(before, after, true);
    // The first record behind the mark; one in the middle; two of different segments.
    for lost in [vec![before], vec![before + 40], vec![before + 2, before + 120]] {
        let disk = case.put_back();
        for number in &lost {
            lose(&disk, case.starts[*number], RECORD);
        }
        let first = if lost[0] == before { case.starts[before + 1] } else { case.clean };
        is_refused(&disk, case.clean, first);
        let found = looked(&disk);
        let lost_ranges: Vec<_> =
            lost.iter().map(|number| case.starts[*number]..Lsn(case.starts[*number].0 + RECORD)).collect();
        assert_eq!((found.left.clone(), found.tail), (lost_ranges.clone(), case.tail), "{found:?}");
        // By the one order alone the damage is left, and by both it is filled.
        let accepted = repair(&disk, &accepting(case.tail)).unwrap();
        assert_eq!(accepted.left, lost_ranges);
        assert!(matches!(open(&disk, OpenMode::Tail), Err(OpenError::Refused { .. })), "never cut by itself");
        let disk_of_both = case.put_back();
        for number in &lost {
            lose(&disk_of_both, case.starts[*number], RECORD);
        }
        for disk in [disk, disk_of_both] {
            let orders = RepairOrders { give_up: lost_ranges.clone(), ..accepting(case.tail) };
            let repaired = repair(&disk, &orders).unwrap();
            assert_eq!((repaired.left, repaired.tail), (vec![], case.tail));
            let log = TestLog::open(disk).unwrap();
            let kept: Vec<Vec<u8>> =
                (0..case.all.len()).filter(|number| !lost.contains(number)).map(payload).collect();
            assert!(log.payloads() == kept, "{lost:?}");
        }
    }
}

/// Also where what is damaged there would be for its peers to repair: what it has promised since is forgotten.
#[test]
fn kind_11_a_member_whose_log_goes_on_behind_its_clean_mark_is_neither_opened_nor_repaired_r_5() {
    let case = case(160, 150, true);
    for lost in [None, Some(160), Some(200)] {
        let disk = case.put_back_of_a_member();
        if let Some(number) = lost {
            lose(&disk, case.starts[number], RECORD);
        }
        let first = if lost == Some(160) { case.starts[161] } else { case.clean };
        is_refused(&disk, case.clean, first);
        // What was released since is missing then, and so is the place of the mark itself at last.
        let files_to = [0, 1, case.clean.0 / SEGMENT_BYTES_MIN + 1];
        for released in files_to {
            let disk = disk.copied_in_place();
            for number in 0..released {
                disk.remove_file(&format!("{:016x}.segment", number * SEGMENT_BYTES_MIN));
            }
            let refused = open(&disk, OpenMode::Tail).unwrap_err();
            assert_eq!(refused.row(), Some(Row::PastCleanMark), "{lost:?}, {released}: {refused}");
        }
        for orders in [RepairOrders::default(), accepting(case.tail)] {
            let refused = repair(&disk, &orders);
            assert!(
                matches!(refused, Err(RepairError::PastCleanMark { holder: Holder::Member, .. })),
                "{lost:?}: {refused:?}"
            );
        }
    }
    for found in [Found::Blank, Found::Begun, Found::NoSegment, Found::WrongChain] {
        let clean = windlass_log::CleanMark::BelowStop;
        let facts = Facts { found, clean, flushed: true, holder: Holder::Member, ..Facts::SOUND };
        assert_eq!((facts.row(), facts.action(OpenMode::Tail)), (Row::PastCleanMark, Action::Refuse));
    }
}
