//! A superblock from before the newest epoch, put back in place: no opening takes the newest records for leftovers (kind 11). DESIGN.md sections 6.1 and 6.5.

use windlass_log::{Action, Epoch, Holder, Lsn, MemberId, OpenMode, Row, SEGMENT_BYTES_MIN, Superblock};

use super::stopped::{By, at_each_step, is_repaired_again, looked, repair};
use super::testlog::{AROUND, TestLog, options};
use crate::disk::testing::TestDisk;
use crate::{Finding, Inspection, OpenCutError, OpenError, Options, RepairError, RepairOrders, Store};

const COPY: usize = 64 << 10;

/// A log that was killed and went on in the next epoch: its disk, the superblock's file from before, and where the epoch begins.
struct Case {
    disk: TestDisk,
    older: Vec<u8>,
    from: Lsn,
    /// Payloads of the first epoch, and of both.
    before: usize,
    all: Vec<Vec<u8>>,
}

fn payload(number: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(100)
}

fn case(before: usize, after: usize) -> Case {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    let all: Vec<Vec<u8>> = (0..before + after).map(payload).collect();
    for payload in &all[..before] {
        log.append(payload).unwrap();
    }
    log.flush().unwrap();
    drop(log);
    let disk = disk.after_kill();
    let older = disk.read_file("superblock");
    let mut log = TestLog::open(disk.clone()).unwrap();
    let from = log.opened.tail;
    for payload in &all[before..] {
        log.append(payload).unwrap();
    }
    log.flush().unwrap();
    drop(log);
    Case { disk: disk.after_kill(), older, from, before, all }
}

impl Case {
    /// The older file is there again.
    fn put_back(&self) -> TestDisk {
        let disk = self.disk.copied_in_place();
        disk.write_file("superblock", &self.older);
        disk
    }
}

/// A log with the superblock from before its newest epoch, all its payloads, and that epoch.
pub(super) fn put_back_and_all(before: usize, after: usize) -> (TestDisk, Vec<Vec<u8>>, Epoch) {
    let case = case(before, after);
    (case.put_back(), case.all, Epoch::new(2, MemberId(0)))
}

/// Both copies of the superblock's file, changed.
fn change(file: &mut [u8], change: impl Fn(&mut Superblock)) {
    let mut superblock = Superblock::decode(&file[..COPY]).unwrap();
    change(&mut superblock);
    let bytes = superblock.encode().unwrap();
    for copy in [0, COPY] {
        file[copy..copy + bytes.len()].copy_from_slice(&bytes);
    }
}

fn open(disk: &TestDisk, mode: OpenMode) -> Result<(), OpenError> {
    let options = Options { mode, ..options() };
    Store::open(disk.copied_in_place(), &AROUND, &options).map(drop)
}

fn accepting(epoch: Epoch) -> RepairOrders {
    RepairOrders { accept_epoch: Some(epoch), ..RepairOrders::default() }
}

#[track_caller]
fn is_refused(disk: &TestDisk) {
    for mode in [OpenMode::Strict, OpenMode::Tail] {
        let refused = open(disk, mode).unwrap_err();
        assert_eq!(refused.row(), Some(Row::SuperblockOlder), "{mode:?}: {refused}");
    }
    let verified = Inspection::open(disk.clone(), None).unwrap().verify().unwrap_err();
    assert_eq!(verified.row(), Some(Row::SuperblockOlder), "{verified}");
}

#[test]
fn kind_11_a_superblock_from_before_the_newest_epoch_is_refused_wherever_that_begins_r_5() {
    // In the first segment, at a later place, over several segments.
    for (before, after) in [(0, 1), (3, 1), (60, 3), (200, 150), (150, 300)] {
        let case = case(before, after);
        open(&case.disk, OpenMode::Tail).unwrap();
        let disk = case.put_back();
        is_refused(&disk);
        let refused = open(&disk, OpenMode::Tail).unwrap_err();
        let OpenError::SuperblockOlder { lsn, epoch, promised, holder, offset, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((lsn, offset, holder), (case.from, case.from.0 % SEGMENT_BYTES_MIN, Holder::Lone));
        assert_eq!((epoch, promised), (Epoch::new(2, MemberId(0)), Epoch::new(1, MemberId(0))));
        // Nor is a part of it given up, whose new epoch would be the one that the log has already.
        for lsn in [case.from, Lsn(4096)] {
            let cut = Store::open_cut(disk.copied_in_place(), &AROUND, &options(), lsn).map(drop);
            let Err(OpenCutError::Open(error)) = cut else { panic!("{cut:?}") };
            assert_eq!(error.row(), Some(Row::SuperblockOlder), "{error}");
        }
    }
}

/// The first record of the newest epoch is damaged, too, or gone: any other one tells.
#[test]
fn kind_11_one_record_of_the_newest_epoch_is_enough() {
    for lost in 1..5_u64 {
        let case = case(30, 5);
        let disk = case.put_back();
        let record = 832;
        let name = format!("{:016x}.segment", case.from.0 / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN);
        let mut bytes = disk.read_file(&name);
        let at = usize::try_from(case.from.0 % SEGMENT_BYTES_MIN).unwrap();
        bytes[at..at + usize::try_from(lost * record).unwrap()].fill(0);
        disk.write_file(&name, &bytes);
        is_refused(&disk);
    }
}

/// What would be damage for its peers to repair is refused: the member's promise is forgotten with the epoch.
#[test]
fn kind_11_a_member_with_an_older_superblock_is_not_repaired_r_5() {
    type Harm<'a> = &'a dyn Fn(&TestDisk);
    let case = case(150, 300);
    let member = |superblock: &mut Superblock| superblock.configuration = b"three members".to_vec();
    let first = case.from.0 / SEGMENT_BYTES_MIN;
    let mut older = case.older.clone();
    change(&mut older, member);
    let harms: [(&str, Harm<'_>); 4] = [
        ("nothing else", &|_| {}),
        ("segments that were released since", &|disk| {
            for number in 0..first {
                disk.remove_file(&format!("{:016x}.segment", number * SEGMENT_BYTES_MIN));
            }
        }),
        ("the segment in which the epoch began, too", &|disk| {
            for number in 0..=first {
                disk.remove_file(&format!("{:016x}.segment", number * SEGMENT_BYTES_MIN));
            }
        }),
        ("damage below the mark", &|disk| disk.flip(&format!("{:016x}.segment", 0), 8192, 1)),
    ];
    for (what, harm) in harms {
        let disk = case.put_back();
        disk.write_file("superblock", &older);
        harm(&disk);
        let refused = open(&disk, OpenMode::Tail).unwrap_err();
        assert_eq!(refused.row(), Some(Row::SuperblockOlder), "{what}: {refused}");
        let OpenError::SuperblockOlder { holder: Holder::Member, .. } = refused else { panic!("{refused}") };
        let epoch = Epoch::new(2, MemberId(0));
        for orders in [RepairOrders::default(), accepting(epoch)] {
            let refused = repair(&disk, &orders);
            assert!(
                matches!(refused, Err(RepairError::SuperblockOlder { holder: Holder::Member, .. })),
                "{what}: {refused:?}"
            );
        }
    }
    assert_eq!(Row::SuperblockOlder.action(OpenMode::Tail, Holder::Member), Action::Refuse);
    // With a superblock from before it was ever led.
    change(&mut older, |superblock| {
        superblock.history = windlass_log::EpochHistory::new();
        superblock.promised = Epoch::NONE;
        superblock.persisted = Lsn(4096);
    });
    let disk = case.put_back();
    disk.write_file("superblock", &older);
    is_refused(&disk);
}

/// A promise above the history is no older superblock: the member has promised, and nobody has led it since.
#[test]
fn a_promise_that_nobody_has_led_by_changes_nothing() {
    let case = case(30, 5);
    let disk = case.put_back();
    let mut older = case.older.clone();
    change(&mut older, |superblock| superblock.promised = Epoch::new(2, MemberId(0)));
    disk.write_file("superblock", &older);
    // It may have been told of what it lacks: that is not to be seen here.
    open(&disk, OpenMode::Tail).unwrap();
}

/// Found by the simulator (seed 700845): the log went on for several epochs, of which the older superblock has promised all but the newest, and that begins behind another in the last segment.
#[test]
fn kind_11_the_newest_epoch_is_found_behind_one_that_was_promised_and_never_led_r_5() {
    let case = case(30, 150);
    let mut log = TestLog::open(case.disk.clone()).unwrap();
    let from = log.opened.tail;
    log.append(&payload(1)).unwrap();
    log.flush().unwrap();
    drop(log);
    assert!(from.0 / SEGMENT_BYTES_MIN > case.from.0 / SEGMENT_BYTES_MIN, "in a segment of its own");
    let disk = case.disk.after_kill();
    let mut older = case.older.clone();
    change(&mut older, |superblock| superblock.promised = Epoch::new(2, MemberId(0)));
    disk.write_file("superblock", &older);
    is_refused(&disk);
    let refused = open(&disk, OpenMode::Tail).unwrap_err();
    let OpenError::SuperblockOlder { lsn, epoch, .. } = refused else { panic!("{refused}") };
    assert_eq!((lsn, epoch), (from, Epoch::new(3, MemberId(0))));
    // What salvage reads has the epoch between, too.
    let forgiving = Inspection::open_forgiving(disk.clone()).unwrap();
    let starts: Vec<Lsn> = forgiving.superblock().history.entries().iter().map(|entry| entry.start).collect();
    assert_eq!(starts, [Lsn(4096), case.from, from]);
    // With that one promised, too, nothing tells.
    change(&mut older, |superblock| superblock.promised = Epoch::new(3, MemberId(0)));
    disk.write_file("superblock", &older);
    open(&disk, OpenMode::Tail).unwrap();
}

/// Found by the simulator (seeds 610976 and 900918): what the older superblock knows ends at a tenure that was given up since, so that the log may end there among leftovers of
/// the epoch before; but the log has gone on with these, and the newest epoch begins in the middle of a later segment.
#[test]
fn kind_11_the_newest_epoch_is_found_behind_leftovers_of_a_line_that_was_given_up_r_5() {
    let case = case(150, 3);
    assert!(case.from.0 > 2 * SEGMENT_BYTES_MIN + 4096, "in the middle of the third segment");
    let mut older = case.older.clone();
    let given_up = Epoch::new(1, MemberId(1));
    change(&mut older, |superblock| {
        let at = Lsn(SEGMENT_BYTES_MIN + 4096);
        superblock.history.extend(given_up, at).unwrap();
        (superblock.promised, superblock.persisted) = (given_up, at);
    });
    // The live mark is of the same time.
    older[2 * COPY..].fill(0);
    let disk = case.put_back();
    disk.write_file("superblock", &older);
    is_refused(&disk);
}

#[test]
fn kind_11_the_history_is_made_from_the_records_by_order_alone_and_all_of_them_are_there_again() {
    for (before, after) in [(0, 3), (60, 3), (200, 150)] {
        let case = case(before, after);
        let disk = case.put_back();
        let files = |disk: &TestDisk| -> Vec<Vec<u8>> {
            disk.names().iter().map(|name| disk.read_file(name)).collect()
        };
        let held = files(&disk);
        let found = looked(&disk);
        let newest = Epoch::new(2, MemberId(0));
        let promised = Epoch::new(1, MemberId(0));
        let expected = Finding::SuperblockOlder { promised, lsn: case.from, newest };
        assert!(found.findings.contains(&expected), "{found:?}");
        assert_eq!((found.kept.records, found.left.len()), (case.all.len() as u64, 0), "{found:?}");
        let without = repair(&disk, &RepairOrders::default());
        assert!(matches!(without, Err(RepairError::SuperblockOlder { .. })), "{without:?}");
        let other = repair(&disk, &accepting(Epoch::new(3, MemberId(0))));
        assert!(matches!(other, Err(RepairError::NotNewest { .. })), "{other:?}");
        assert!(files(&disk) == held, "nothing was changed");
        // For salvage it is read so without any order.
        let forgiving = Inspection::open_forgiving(disk.clone()).unwrap();
        assert!(forgiving.is_guessed());
        assert_eq!(forgiving.superblock().history.last().map(|last| last.start), Some(case.from));

        let orders = accepting(newest);
        let repaired = at_each_step(&disk, &orders, By::KillOrPower, |run, told| {
            is_repaired_again(run, &orders, told);
            let log = TestLog::open(run.clone()).unwrap();
            assert!(log.opened.epoch > Some(newest), "{told}: {:?}", log.opened);
            assert!(log.payloads() == case.all, "{told}: after {}", case.before);
        });
        assert_eq!((repaired.kept.records, repaired.left.len()), (case.all.len() as u64, 0));
        assert!(repaired.quarantined.iter().any(|name| name.contains("superblock-0x0-")));
    }
}
