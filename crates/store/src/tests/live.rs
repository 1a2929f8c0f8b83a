//! The live mark: after a kill it says exactly what was flushed, after a loss of power never more, and never what was cut away.

use windlass_log::{Class, EpochHistory, LIVE_MARK_BYTES, LiveMark, Lsn, MemberId, Row, SEGMENT_BYTES_MIN};

use super::testlog::{AROUND, TestLog, options};
use super::{filled, payload};
use crate::disk::Disk;
use crate::disk::testing::{Call, Survive, TestDisk, Unit};
use crate::{Condition, Inspection, OpenError, Store};

const SLOTS: [usize; 2] = [128 << 10, 132 << 10];

fn segment(lsn: Lsn) -> String {
    format!("{:016x}.segment", lsn.0 / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN)
}

fn flip(disk: &TestDisk, lsn: Lsn) {
    disk.flip(&segment(lsn), lsn.0 % SEGMENT_BYTES_MIN + 20, 1);
}

fn slots(disk: &TestDisk) -> [Option<LiveMark>; 2] {
    let bytes = disk.read_file("superblock");
    SLOTS.map(|at| bytes.get(at..at + LIVE_MARK_BYTES).and_then(LiveMark::decode))
}

fn newest(disk: &TestDisk) -> Option<LiveMark> {
    slots(disk).into_iter().flatten().max_by_key(|mark| mark.sequence)
}

fn refusal(disk: &TestDisk) -> Row {
    let report = Inspection::open(disk.clone(), None).unwrap().verify().unwrap();
    assert_eq!(report.condition, Condition::Damaged, "{report:?}");
    match Store::open(disk.clone(), &AROUND, &options()) {
        Err(OpenError::Refused { verdict, .. }) => verdict.row,
        Err(error) => panic!("{error}"),
        Ok((_, opened)) => panic!("opened at {}: {opened:?}", opened.tail),
    }
}

/// A log whose superblock vouches for none of its records, and which was killed with all of them flushed.
fn killed() -> (TestDisk, Vec<Lsn>) {
    let (disk, log, starts) = filled(60);
    assert_eq!(log.store.superblock().persisted, Lsn(4096), "the mark in the superblock trails");
    drop(log);
    (disk.after_kill(), starts)
}

#[test]
fn kind_2_what_was_flushed_and_is_harmed_after_a_kill_is_damage_wherever_it_lies() {
    let (disk, starts) = killed();
    for lsn in [starts[0], starts[30], starts[59]] {
        let harmed = disk.copied_in_place();
        flip(&harmed, lsn);
        assert_eq!(refusal(&harmed), Row::RecordDamaged, "{lsn}");
    }
    let harmed = disk.copied_in_place();
    harmed.remove_file(&segment(starts[59]));
    assert_eq!(refusal(&harmed), Row::SegmentLost);
    let log = TestLog::open(disk).unwrap();
    assert_eq!(log.payloads(), (0..60).map(payload).collect::<Vec<_>>(), "and unharmed it opens");
}

#[test]
fn kind_2_the_segment_that_flushed_records_ended_in_is_missed_and_one_that_nothing_lies_in_is_not() {
    let (disk, mut log, _) = filled(20);
    let geometry = log.store.geometry();
    let room = geometry.room(log.handoff.tail());
    log.append(&vec![1; usize::try_from(room - 32).unwrap()]).unwrap();
    log.flush().unwrap();
    assert!(geometry.is_first_record(log.store.persisted().lsn()), "R-1: exactly full");
    let next = segment(log.store.persisted().lsn());
    log.prepare().unwrap();
    drop(log);
    let disk = disk.after_kill();
    disk.remove_file(&next);
    assert_eq!(TestLog::open(disk.clone()).unwrap().opened.verdict.class(), Class::End);
    disk.remove_file("0000000000000000.segment");
    assert!(Store::open(disk, &AROUND, &options()).is_err());
}

#[test]
fn kind_1_what_was_not_flushed_is_torn_after_a_kill_as_ever() {
    let (disk, mut log, _) = filled(20);
    let lost = log.append(b"not flushed").unwrap();
    drop(log);
    let disk = disk.after_kill();
    flip(&disk, lost.start);
    let log = TestLog::open(disk).unwrap();
    assert!(log.opened.cut);
    assert_eq!(log.opened.tail, lost.start);
}

#[test]
fn a_mark_costs_no_call_and_is_made_durable_by_who_has_the_time() {
    let (disk, mut log, starts) = filled(20);
    assert_eq!(newest(&disk).unwrap().persisted, log.store.persisted().lsn());
    let steps = disk.steps();
    for _ in 0..10 {
        log.append(b"one more").unwrap();
        log.flush().unwrap();
    }
    assert_eq!(disk.steps() - steps, 10, "one call for each flush, that of the segment");
    let mark = newest(&disk).unwrap();
    assert_eq!(mark.persisted, log.store.persisted().lsn());
    let before = slots(&disk).into_iter().flatten().map(|slot| slot.sequence).min().unwrap();
    assert_eq!(before + 1, mark.sequence, "they take turns");
    assert_eq!(newest(&disk.after_power_loss(Survive::Nothing)), None, "not on the medium yet");
    assert_eq!(log.store.sync_live_mark(), Ok(true));
    assert_eq!(log.store.sync_live_mark(), Ok(false), "nothing has changed");
    let disk = disk.after_power_loss(Survive::Nothing);
    assert_eq!(newest(&disk), Some(mark));
    flip(&disk, starts[7]);
    assert_eq!(refusal(&disk), Row::RecordDamaged, "it vouches after a loss of power, too");
}

#[test]
fn after_a_loss_of_power_a_mark_is_never_ahead_of_what_was_flushed() {
    let (disk, mut log, _) = filled(20);
    log.store.sync_live_mark().unwrap();
    for seed in 0..60 {
        log.append(&payload(seed)).unwrap();
        log.flush().unwrap();
        let flushed = log.store.persisted().lsn();
        log.append(b"not flushed").unwrap();
        for unit in [Unit::Sector, Unit::Page] {
            let after = disk.after_power_loss(Survive::By { unit, seed: u64::from(seed) });
            assert!(newest(&after).is_some_and(|mark| mark.persisted <= flushed));
            assert!(TestLog::open(after).unwrap().opened.tail >= flushed);
        }
    }
}

#[test]
fn slots_that_are_torn_or_gone_say_nothing_and_are_no_error() {
    let (disk, starts) = killed();
    flip(&disk, starts[59]);
    let tail = |disk: &TestDisk| TestLog::open(disk.clone()).map(|log| log.opened.tail);
    let older = disk.copied_in_place();
    let of_newest = SLOTS[usize::try_from(newest(&disk).unwrap().sequence % 2).unwrap()];
    older.flip("superblock", of_newest as u64 + 60, 1);
    assert_eq!(newest(&older), None, "there was one flush");
    assert_eq!(tail(&older).unwrap(), starts[59]);
    let unreadable = disk.copied_in_place();
    unreadable.spoil("superblock", of_newest as u64);
    assert_eq!(Inspection::open(unreadable.clone(), None).unwrap().persisted().unwrap(), Lsn(4096));
    assert_eq!(tail(&unreadable).unwrap(), starts[59]);
    // As a release before this one made it.
    let absent = disk.copied_in_place();
    let mut bytes = absent.read_file("superblock");
    bytes.truncate(SLOTS[0]);
    absent.write_file("superblock", &bytes);
    assert_eq!(tail(&absent).unwrap(), starts[59]);
    let mut log = TestLog::open(absent.clone()).unwrap();
    log.append(b"flushed").unwrap();
    log.flush().unwrap();
    assert_eq!(newest(&absent).unwrap().persisted, log.store.persisted().lsn(), "it has slots now");
}

#[test]
fn kind_21_a_log_without_slots_opens_on_a_full_disk_and_goes_on_without() {
    let (disk, starts) = killed();
    let mut bytes = disk.read_file("superblock");
    bytes.truncate(SLOTS[0]);
    disk.write_file("superblock", &bytes);
    disk.set_capacity(Some(disk.used_bytes()));
    let mut log = TestLog::try_open(disk.clone(), &options()).unwrap().unwrap();
    log.append(b"goes on").unwrap();
    log.flush().unwrap();
    let superblock = log.store.superblock();
    let epoch = superblock.promised.next_for(MemberId(0));
    let mut history = superblock.history;
    history.cut(starts[10]);
    history.extend(epoch, starts[10]).unwrap();
    log.handoff.seal();
    log.drain();
    log.store.cut(starts[10], history, epoch).unwrap();
    assert_eq!(log.store.sync_live_mark(), Ok(false));
    assert_eq!(newest(&disk), None);
}

#[test]
fn a_copy_is_not_held_to_the_marks_of_the_original() {
    let (disk, starts) = killed();
    // Copied while it ran: the file with the mark later than the segments.
    let copy = disk.copied();
    flip(&copy, starts[59]);
    let log = TestLog::open(copy.clone()).unwrap();
    assert!(log.opened.copied && log.opened.cut);
    assert_eq!(log.opened.tail, starts[59]);
    assert_eq!(newest(&copy), None, "its slots are its own");
}

#[test]
fn r_4_a_mark_above_a_cut_by_who_knows_of_no_marks_is_void() {
    let (disk, starts) = killed();
    // The superblock as a release before this one leaves it after a cut.
    let bytes = disk.read_file("superblock");
    let mut cut = windlass_log::Superblock::decode(&bytes).unwrap();
    cut.promised = cut.promised.next_for(MemberId(0));
    cut.history.cut(starts[40]);
    cut.history.extend(cut.promised, starts[40]).unwrap();
    cut.generation += 1;
    let encoded = cut.encode().unwrap();
    let mut bytes = bytes;
    for copy in [0, 64 << 10] {
        bytes[copy..copy + encoded.len()].copy_from_slice(&encoded);
    }
    // In place, for a copy would have no marks.
    for (sector, new) in bytes.chunks(512).enumerate() {
        disk.rot_sector("superblock", sector as u64, new.try_into().unwrap());
    }
    assert!(newest(&disk).is_some());
    let mut log = TestLog::open(disk.clone()).unwrap();
    assert_eq!((log.opened.tail, log.opened.verdict.class()), (starts[40], Class::End));
    let flushed = log.append(b"after the cut").unwrap();
    log.flush().unwrap();
    drop(log);
    let disk = disk.after_kill();
    flip(&disk, flushed.start);
    assert_eq!(
        refusal(&disk),
        Row::RecordDamaged,
        "what is flushed since counts, though it ends before the void mark"
    );
}

/// Does something to a log, stopped at each of its calls: what is left opens, whatever is left.
fn at_each_step(what: &str, change: impl Fn(TestDisk)) {
    for step in 0.. {
        let (disk, _) = killed();
        let from = disk.steps();
        disk.stop_at(from + step);
        change(disk.clone());
        if !disk.stopped() {
            assert!(step > 3, "{what}: {step} steps");
            return;
        }
        let mut left =
            vec![disk.after_power_loss(Survive::Nothing), disk.after_power_loss(Survive::Everything)];
        for seed in 0..3 {
            left.push(disk.after_power_loss(Survive::By { unit: Unit::Sector, seed }));
            left.push(disk.after_power_loss(Survive::By { unit: Unit::Page, seed }));
        }
        left.push(disk.after_kill());
        for (number, left) in left.into_iter().enumerate() {
            let opened = TestLog::open(left);
            assert!(opened.is_ok(), "{what}, stopped at {step}, {number}: {:?}", opened.err());
        }
    }
}

fn history_from(store: &Store<TestDisk>, lsn: Lsn) -> (EpochHistory, windlass_log::Epoch) {
    let superblock = store.superblock();
    let epoch = superblock.promised.next_for(MemberId(0));
    let mut history = superblock.history;
    history.cut(lsn);
    history.extend(epoch, lsn).unwrap();
    (history, epoch)
}

#[test]
fn kind_42_no_step_of_a_cut_below_the_mark_leaves_a_log_that_does_not_open() {
    let (_, starts) = killed();
    let at = starts[20];
    at_each_step("cut", |disk| {
        let Ok((store, _)) = Store::open(disk, &AROUND, &options()) else { return };
        let (history, epoch) = history_from(&store, at);
        let _ = store.cut(at, history, epoch);
    });
    // A member's that is damaged there: the same records come again, and no other epoch voids the mark.
    at_each_step("cut in the same epoch", |disk| {
        let Ok((store, _)) = Store::open(disk, &AROUND, &options()) else { return };
        let _ = store.cut_with(at, |_| {});
    });
    at_each_step("open_cut", |disk| drop(Store::open_cut(disk, &AROUND, &options(), at)));
}

#[test]
fn kind_42_no_step_of_a_reset_below_the_mark_leaves_a_log_that_does_not_open() {
    let (_, starts) = killed();
    let at = starts[20];
    at_each_step("reset", |disk| {
        let Ok((store, _)) = Store::open(disk, &AROUND, &options()) else { return };
        let (history, _) = history_from(&store, at);
        let _ = store.reset_with(at, |superblock| {
            superblock.promised = history.last().map_or(superblock.promised, |last| last.epoch);
            superblock.history = history;
        });
    });
}

#[test]
fn after_a_cut_the_mark_is_at_it_and_follows_from_there() {
    let (disk, mut log, starts) = filled(40);
    log.handoff.seal();
    log.drain();
    let (history, epoch) = history_from(&log.store, starts[20]);
    log.store.cut(starts[20], history, epoch).unwrap();
    for disk in [disk.clone(), disk.after_power_loss(Survive::Nothing)] {
        assert!(
            slots(&disk).into_iter().flatten().all(|slot| slot.persisted == starts[20]),
            "{:?}",
            slots(&disk)
        );
        assert_eq!(slots(&disk).into_iter().flatten().count(), 2);
    }
    drop(log);
    let harmed = disk.after_kill().copied_in_place();
    flip(&harmed, starts[19]);
    assert_eq!(refusal(&harmed), Row::RecordDamaged, "what was flushed below the cut still was");
    let mut log = TestLog::open(disk.clone()).unwrap();
    let again = log.append(b"again").unwrap();
    log.flush().unwrap();
    drop(log);
    let disk = disk.after_kill();
    flip(&disk, again.start);
    assert_eq!(refusal(&disk), Row::RecordDamaged);
}

#[test]
fn kind_24_a_flush_that_failed_raises_no_mark() {
    let (disk, mut log, _) = filled(20);
    let before = newest(&disk).unwrap();
    log.append(b"lost").unwrap();
    disk.fail(Call::FlushRange, 0, crate::disk::Errno::IO);
    assert!(log.flush().is_err());
    assert_eq!(newest(&disk), Some(before));
    assert!(log.store.sync_live_mark().is_err(), "the first failure is final");
}

#[test]
fn a_child_that_was_forked_off_writes_no_mark() {
    let (disk, log, _) = filled(20);
    disk.fork();
    assert!(log.store.sync_live_mark().is_err());
    assert_ne!(log.store.disk().process_id(), 1);
}

/// The file was put back, its second page a hole: on a full disk the slots can't be mapped, and the first one still says what was flushed.
#[test]
fn kind_21_a_cut_on_a_full_disk_leaves_no_mark_above_the_end_in_a_slot_that_could_not_be_mapped() {
    let (_, starts) = killed();
    let at = starts[20];
    for is_same_epoch in [false, true] {
        let disk = without_room();
        let (store, _) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
        assert!(newest(&disk).unwrap().persisted > at, "the case needs a mark above the cut");
        assert_eq!(store.sync_live_mark(), Ok(false), "the case needs slots that are not mapped");
        let (history, epoch) = history_from(&store, at);
        if is_same_epoch {
            store.cut_with(at, |_| {}).unwrap();
        } else {
            store.cut(at, history, epoch).unwrap();
        }
        for disk in [disk.clone(), disk.after_power_loss(Survive::Nothing)] {
            assert_eq!(newest(&disk).unwrap().persisted, at);
        }
        drop(store);
        let after = disk.after_kill();
        assert_eq!(Store::open(after, &AROUND, &options()).unwrap().1.tail, at);
    }
    let disk = without_room();
    Store::open_cut(disk.clone(), &AROUND, &options(), at).unwrap();
    assert!(newest(&disk).unwrap().persisted <= at);
}

/// As [`killed`], on a full disk: only the first slot is there, with the newest mark.
fn without_room() -> TestDisk {
    let (disk, _) = killed();
    let mark = LiveMark { sequence: 2, ..newest(&disk).unwrap() };
    let mut bytes = disk.read_file("superblock");
    bytes.truncate(SLOTS[1]);
    bytes[SLOTS[0]..SLOTS[0] + LIVE_MARK_BYTES].copy_from_slice(&mark.encode());
    let place = newest(&disk).unwrap().place;
    disk.write_file("superblock", &bytes);
    assert_eq!(newest(&disk).map(|mark| mark.place), Some(place));
    disk.set_capacity(Some(disk.used_bytes()));
    disk
}

#[test]
fn a_flush_that_has_come_to_the_mark_stores_none_once_the_folder_is_given_up() {
    let (disk, mut log, _) = filled(20);
    let before = slots(&disk);
    let upto = log.append(b"flushed late").unwrap().end;
    log.store.abandon();
    // The flush has looked whether the store is closed before, and slept since.
    log.store.live.raise(upto);
    assert_eq!(slots(&disk), before);
    assert!(log.flush().is_err());
}

#[test]
fn a_slot_with_the_highest_sequence_there_is_is_passed_over_and_counting_goes_on() {
    let (disk, _) = killed();
    let mut bytes = disk.read_file("superblock");
    let mark = LiveMark { sequence: u64::MAX, ..newest(&disk).unwrap() };
    bytes[SLOTS[1]..SLOTS[1] + LIVE_MARK_BYTES].copy_from_slice(&mark.encode());
    disk.write_file("superblock", &bytes);
    let mut log = TestLog::open(disk.clone()).unwrap();
    log.append(b"one more").unwrap();
    log.flush().unwrap();
    assert_eq!(newest(&disk).unwrap().persisted, log.store.persisted().lsn());
}
