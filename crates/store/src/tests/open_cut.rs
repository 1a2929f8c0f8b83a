//! Damage is a way in only for who orders that it be cut off.

use windlass_log::{Class, EpochHistory, Lsn, MemberId, OpenMode, Row, SEGMENT_BYTES_MIN};

use super::filled;
use super::testlog::{AROUND, TestLog, founding, options};
use crate::disk::testing::{Survive, TestDisk};
use crate::{Founding, OpenCutError, OpenError, Opened, Options, Store};

fn flip(disk: &TestDisk, lsn: Lsn) {
    let name = format!("{:016x}.segment", lsn.0 / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN);
    disk.flip(&name, lsn.0 % SEGMENT_BYTES_MIN + 20, 1);
}

/// A log of several segments that was closed, with damage in the segment of its mark; where its records start, and which one is damaged.
fn damaged() -> (TestDisk, Vec<Lsn>, usize) {
    let (disk, log, starts) = filled(200);
    log.close().unwrap();
    let hurt = starts.len() - 5;
    flip(&disk, starts[hurt]);
    (disk, starts, hurt)
}

fn open_cut(disk: &TestDisk, options: &Options, lsn: Lsn) -> Result<Opened, OpenCutError> {
    Store::open_cut(disk.clone(), &AROUND, options, lsn).map(|(_, opened)| opened)
}

#[test]
fn kind_2_damage_is_cut_off_at_its_start_or_before_it_by_order_alone() {
    let (disk, starts, hurt) = damaged();
    let refused = Store::open(disk.copied_in_place(), &AROUND, &options()).unwrap_err();
    let OpenError::Refused { verdict, .. } = refused else { panic!("{refused}") };
    assert_eq!((verdict.row, verdict.stop.lsn), (Row::RecordDamaged, starts[hurt]));
    for mode in [OpenMode::Tail, OpenMode::Strict] {
        for keep in [0, 1, hurt / 2, hurt - 1, hurt] {
            let cut = disk.copied_in_place();
            let opened = open_cut(&cut, &Options { mode, ..options() }, starts[keep]).unwrap();
            assert_eq!(opened.tail, starts[keep], "{mode:?}");
            assert_eq!(opened.verdict.class(), Class::End, "{mode:?} {keep}: {:?}", opened.verdict);
            let mut log = TestLog::open(cut.clone()).unwrap();
            assert_eq!(log.payloads(), (0..).map(super::payload).take(keep).collect::<Vec<_>>());
            assert_eq!(log.append(b"new").unwrap().start, starts[keep]);
            log.flush().unwrap();
            log.close().unwrap();
            Store::open(cut, &AROUND, &Options { mode: OpenMode::Strict, ..options() }).unwrap();
        }
    }
}

#[test]
fn a_cut_that_does_not_take_the_damage_away_or_is_no_record_s_start_changes_nothing() {
    let (disk, starts, hurt) = damaged();
    let names = disk.names();
    let files = |disk: &TestDisk| names.iter().map(|name| disk.read_file(name)).collect::<Vec<_>>();
    let before = files(&disk);
    let end = Lsn(starts[starts.len() - 1].0 + (64 << 10));
    for lsn in [starts[hurt + 1], starts[starts.len() - 1], end] {
        let refused = open_cut(&disk, &options(), lsn).unwrap_err();
        let OpenCutError::Open(OpenError::Refused { verdict, .. }) = &refused else { panic!("{refused}") };
        assert_eq!((verdict.row, verdict.stop.lsn), (Row::RecordDamaged, starts[hurt]));
        assert!(verdict.flushed > starts[starts.len() - 1], "up to where it was closed: {verdict:?}");
    }
    for lsn in [Lsn(starts[hurt - 1].0 + 8), Lsn(starts[hurt - 1].0 + 1)] {
        let refused = open_cut(&disk, &options(), lsn).unwrap_err();
        assert!(matches!(refused, OpenCutError::InsideRecord { .. }), "{lsn}: {refused}");
    }
    // a segment's base stands for its first record.
    let opened = open_cut(&disk.copied_in_place(), &options(), Lsn(SEGMENT_BYTES_MIN)).unwrap();
    assert_eq!(opened.tail, Lsn(SEGMENT_BYTES_MIN + 4096));
    let refused = open_cut(&disk, &options(), Lsn(0)).unwrap_err();
    assert!(matches!(refused, OpenCutError::Trimmed { trimmed: Lsn(4096), .. }), "{refused}");
    // Damage before the cut in its own segment, older than what opening checks.
    flip(&disk, starts[3]);
    let (third, fourth) = (open_cut(&disk.copied_in_place(), &options(), starts[3]), starts[4]);
    assert_eq!(third.unwrap().tail, starts[3]);
    let refused = open_cut(&disk, &options(), fourth).unwrap_err();
    let OpenCutError::Open(OpenError::Refused { verdict, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(verdict.stop.lsn, starts[3]);
    flip(&disk, starts[3]);
    assert!(files(&disk) == before);
}

#[test]
fn a_missing_segment_is_cut_off_and_a_member_is_not_cut_by_hand() {
    let (disk, log, starts) = filled(400);
    log.close().unwrap();
    disk.remove_file(&format!("{:016x}.segment", SEGMENT_BYTES_MIN));
    assert!(matches!(
        Store::open(disk.clone(), &AROUND, &options()).unwrap_err(),
        OpenError::SegmentMissing { .. }
    ));
    let first = Lsn(SEGMENT_BYTES_MIN + 4096);
    assert_eq!(open_cut(&disk, &options(), first).unwrap().tail, first);
    let log = TestLog::open(disk).unwrap();
    let kept = starts.iter().filter(|start| **start < first).count();
    assert_eq!(log.payloads(), (0..).map(super::payload).take(kept).collect::<Vec<_>>());
    let member = Founding { epoch: None, member: MemberId(1), configuration: vec![1], ..founding() };
    let disk = TestDisk::new();
    drop(Store::create(disk.clone(), &member, &AROUND, &options()).unwrap());
    let refused = open_cut(&disk, &options(), Lsn(4096)).unwrap_err();
    assert!(matches!(refused, OpenCutError::Member { .. }), "{refused}");
}

#[test]
fn kind_10_and_42_cutting_damage_off_interrupted_at_every_call_leaves_the_log_as_it_was_or_cut() {
    let (disk, starts, hurt) = damaged();
    let history = |disk: &TestDisk| -> EpochHistory {
        crate::Inspection::open(disk.clone(), None).unwrap().superblock().history.clone()
    };
    let (keep, before) = (hurt - 2, history(&disk));
    let (mut step, mut as_it_was, mut cut) = (0, 0, 0);
    loop {
        let attempt = disk.copied_in_place();
        attempt.stop_at(step);
        let done = open_cut(&attempt, &options(), starts[keep]).is_ok();
        if !attempt.stopped() {
            assert!(done);
            break;
        }
        for survive in [Survive::Nothing, Survive::Everything, Survive::Seeded(step)] {
            let again = attempt.after_power_loss(survive);
            if history(&again) == before {
                as_it_was += 1;
                let refused = Store::open(again.copied_in_place(), &AROUND, &options()).unwrap_err();
                let OpenError::Refused { verdict, .. } = refused else { panic!("{refused}") };
                assert_eq!(verdict.stop.lsn, starts[hurt], "step {step}, {survive:?}");
                open_cut(&again, &options(), starts[keep]).unwrap();
            } else {
                cut += 1;
            }
            let log = TestLog::open(again).unwrap();
            assert_eq!(log.opened.tail, starts[keep], "step {step}, {survive:?}");
            assert_eq!(log.payloads(), (0..).map(super::payload).take(keep).collect::<Vec<_>>());
        }
        step += 1;
    }
    assert!(as_it_was > 0 && cut > 0, "{as_it_was} as it was, {cut} cut");
}
