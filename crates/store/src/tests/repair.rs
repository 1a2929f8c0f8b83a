//! Repair: what is amiss is told by a dry run, quarantined before anything changes, and repaired; stopped at any call it comes to the same end (kind 3).

use std::ops::Range;

use windlass_log::{Lsn, SEGMENT_BYTES_MIN};

use super::stopped::{By, at_each_step, is_repaired_again, looked, repair as try_repair};
use super::testlog::{AROUND, TestLog, options};
use crate::disk::testing::TestDisk;
use crate::{Finding, Inspection, OpenError, RepairError, RepairOrders, Repaired, Store};

const SEGMENT: u64 = SEGMENT_BYTES_MIN;

fn name(lsn: Lsn) -> String {
    format!("{:016x}.segment", lsn.0 / SEGMENT * SEGMENT)
}

/// A closed log of four segments and the starts of its records, whose payloads are their numbers.
fn log(count: u32) -> (TestDisk, Vec<Range<Lsn>>) {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    let places = (0..count)
        .map(|number| {
            let appended = log.append(&number.to_le_bytes().repeat(250)).unwrap();
            appended.start..appended.end
        })
        .collect();
    log.flush().unwrap();
    log.close().unwrap();
    (disk.copied_in_place(), places)
}

fn dry(disk: &TestDisk) -> Repaired {
    let before = contents(disk);
    let repaired = looked(disk);
    assert!(contents(disk) == before, "a dry run changes nothing");
    repaired
}

/// What a dry run says that a repair with these orders would come to.
fn rehearsed(disk: &TestDisk, orders: &RepairOrders) -> Repaired {
    let before = contents(disk);
    let repaired = try_repair(disk, &RepairOrders { dry_run: true, ..orders.clone() }).unwrap();
    assert!(contents(disk) == before, "a dry run changes nothing");
    repaired
}

/// What was rehearsed came about. The bytes kept count filler once it is there.
fn assert_same(rehearsed: &Repaired, repaired: &Repaired, what: &str) {
    let kept = super::super::repair::Tally { bytes: rehearsed.kept.bytes, ..repaired.kept };
    assert_eq!(rehearsed, &Repaired { kept, ..repaired.clone() }, "{what}");
}

fn contents(disk: &TestDisk) -> Vec<(String, Vec<u8>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.read_file(&name))).collect()
}

fn giving_up(repaired: &Repaired) -> RepairOrders {
    RepairOrders { give_up: repaired.left.clone(), at_s: 1_800_000_000, ..RepairOrders::default() }
}

/// The numbers that can be read of a log that opens.
fn numbers(disk: &TestDisk) -> Vec<u32> {
    let report = Inspection::open(disk.clone(), None).unwrap().verify().unwrap();
    assert!(matches!(report.condition, crate::Condition::Clean), "{report:?}");
    let log = TestLog::open(disk.clone()).unwrap();
    let numbers = log.payloads().iter().map(|p| u32::from_le_bytes(p[..4].try_into().unwrap())).collect();
    drop(log);
    numbers
}

fn without(count: u32, lost: Range<u32>) -> Vec<u32> {
    (0..count).filter(|number| !lost.contains(number)).collect()
}

/// Harms a log whose records lie there; the numbers that are lost.
type Harm<'a> = &'a dyn Fn(&TestDisk, &[Range<Lsn>]) -> Range<u32>;

/// Lengths of a segment's file that is none.
const LENGTHS: [u64; 9] = [20_000, 0, 100, 4096, 4096 + 20, 4096 + 48, SEGMENT - 1, SEGMENT + 1, 3 * SEGMENT];

/// Kinds of harm, and which numbers they take.
fn harms(lengths: &[u64]) -> Vec<(&'static str, TestDisk, Vec<u32>)> {
    let count = 200;
    let mut cases = Vec::new();
    let mut case = |what, harm: Harm<'_>| {
        let (disk, places) = log(count);
        let lost = harm(&disk, &places);
        cases.push((what, disk, without(count, lost)));
    };
    let flip = |disk: &TestDisk, place: Lsn| disk.flip(&name(place), place.0 % SEGMENT + 40, 1);
    case("one record", &|disk, places| {
        flip(disk, places[30].start);
        30..31
    });
    case("two neighbours", &|disk, places| {
        flip(disk, places[70].start);
        disk.flip(&name(places[71].start), places[71].start.0 % SEGMENT, 1);
        70..72
    });
    case("a segment's start record and what follows it", &|disk, places| {
        let first =
            places.iter().position(|place| place.start.0 % SEGMENT == 4096 + 48 && place.start.0 > SEGMENT);
        let first = first.unwrap();
        disk.flip(&name(places[first].start), 4096 + 2, 1);
        flip(disk, places[first].start);
        let first = u32::try_from(first).unwrap();
        first..first + 1
    });
    case("a missing segment", &|disk, places| {
        let segment = name(Lsn(SEGMENT));
        disk.remove_file(&segment);
        let of = |place: &Range<Lsn>| name(place.start) == segment;
        let first = u32::try_from(places.iter().position(of).unwrap()).unwrap();
        first..first + u32::try_from(places.iter().filter(|place| of(place)).count()).unwrap()
    });
    // What is whole in a file of any other length stays (also where nothing but the zeros of the end's pad are gone).
    for len in lengths {
        case("a segment of another length", &|disk, places| {
            let segment = name(Lsn(2 * SEGMENT));
            let mut bytes = disk.read_file(&segment);
            bytes.resize(usize::try_from(*len).unwrap(), 0xee);
            disk.write_file(&segment, &bytes);
            let of = |place: &Range<Lsn>| name(place.start) == segment;
            let is_lost = |place: &&Range<Lsn>| of(place) && place.end.0 > 2 * SEGMENT + len;
            let first = places.iter().position(|place| is_lost(&place)).unwrap_or(0);
            let first = u32::try_from(first).unwrap();
            first..first + u32::try_from(places.iter().filter(is_lost).count()).unwrap()
        });
    }
    case("a file of a segment's name at no segment's place", &|disk, _| {
        let bytes = disk.read_file(&name(Lsn(SEGMENT)));
        disk.write_file(&format!("{:016x}.segment", SEGMENT + 8), &bytes);
        0..0
    });
    case("the last record", &|disk, places| {
        flip(disk, places[199].start);
        199..200
    });
    case("a segment's header", &|disk, _| {
        disk.flip(&name(Lsn(SEGMENT)), 9, 1);
        0..0
    });
    case("a copy of the superblock", &|disk, _| {
        disk.flip("superblock", 70, 1);
        0..0
    });
    cases
}

#[test]
fn kind_3_what_is_lost_is_named_by_a_dry_run_quarantined_and_given_up_by_order_alone() {
    for (what, disk, left) in harms(&LENGTHS) {
        let found = dry(&disk);
        assert!(!found.findings.is_empty(), "{what}: {found:?}");
        let bytes = contents(&disk);
        // Without an order what is lost stays, and nothing else is lost.
        let repaired = try_repair(&disk, &RepairOrders::default()).unwrap();
        assert_eq!(repaired.left, found.left, "{what}");
        if !found.left.is_empty() {
            assert!(TestLog::open(disk.clone()).is_err() || repaired.left[0].end.0 < 3 * SEGMENT, "{what}");
            let wrong = RepairOrders { give_up: vec![Lsn(8)..Lsn(16)], ..RepairOrders::default() };
            assert!(matches!(try_repair(&disk, &wrong), Err(RepairError::NotDamaged { .. })), "{what}");
        }
        let rehearsed = rehearsed(&disk, &giving_up(&found));
        let repaired = try_repair(&disk, &giving_up(&found)).unwrap();
        assert_same(&rehearsed, &repaired, what);
        assert_eq!((&repaired.given_up, repaired.left.len()), (&found.left, 0), "{what}");
        assert_eq!(repaired.kept.records, left.len() as u64, "{what}: {repaired:?}");
        assert_eq!(numbers(&disk), left, "{what}");
        // Everything that was changed is kept, byte for byte, and a note says what it is.
        let kept: Vec<String> =
            disk.names().into_iter().filter(|name| name.starts_with("quarantine/")).collect();
        assert!(kept.iter().any(|name| name.ends_with(".json")), "{what}: {kept:?}");
        for name in kept.iter().filter(|name| name.contains("-0x")) {
            let mut parts = name.rsplit('-');
            let (len, offset) = (parts.next().unwrap(), parts.next().unwrap());
            let offset = usize::from_str_radix(&offset[2..], 16).unwrap();
            let file = name.strip_prefix("quarantine/").unwrap();
            let file = &file[5..file.len() - len.len() - 1 - format!("-{offset:#x}").len()];
            let (_, before) = bytes.iter().find(|(name, _)| name == file).unwrap();
            let copy = disk.read_file(name);
            assert!(before[offset..offset + copy.len()] == copy[..], "{what}: {name}");
        }
        let again = dry(&disk);
        assert!(again.findings.is_empty(), "{what}: {again:?}");
    }
}

/// The trim point lies inside a segment, and what is lost behind it in the same one, or before it, where nobody needs it: repair, judgement and opening have to follow
/// the same chain from there.
#[test]
fn kind_3_what_is_lost_in_the_segment_of_the_trim_point_is_given_up_too() {
    for trim in [10, 70, 75] {
        for (lost, below) in [(0, None), (1, None), (7, None), (40, None), (7, Some(3)), (40, Some(3))] {
            let (disk, places) = log(200);
            let log = TestLog::open(disk.clone()).unwrap();
            log.store.trim(places[trim].start, log.handoff.drained()).unwrap();
            log.close().unwrap();
            let disk = disk.copied_in_place();
            for at in [Some(trim + lost), below.map(|below| trim - below)].into_iter().flatten() {
                disk.flip(&name(places[at].start), places[at].start.0 % SEGMENT + 40, 1);
            }
            let what = format!("trimmed at {trim}, {lost} behind it is lost, {below:?} before");
            let repaired = try_repair(&disk, &giving_up(&dry(&disk))).unwrap();
            assert_eq!((repaired.given_up.len(), repaired.left.len()), (1, 0), "{what}");
            let left: Vec<u32> =
                (trim..200).filter(|at| *at != trim + lost).map(|at| u32::try_from(at).unwrap()).collect();
            assert_eq!(numbers(&disk), left, "{what}");
            assert!(dry(&disk).findings.is_empty(), "{what}");
        }
    }
}

/// Stopped at every call, by a kill or a loss of power, and begun again: the log is repaired as by an undisturbed repair, and what was changed is in the quarantine.
#[test]
fn kind_10_a_repair_stopped_at_every_call_comes_to_the_same_end() {
    for (what, disk, left) in harms(&LENGTHS[..1]) {
        let orders = giving_up(&dry(&disk));
        let _repaired = at_each_step(&disk, &orders, By::KillOrPower, |run, told| {
            let left_now = dry(run);
            let again = RepairOrders { give_up: left_now.left.clone(), ..orders.clone() };
            let is_begun = left_now.findings.contains(&Finding::Interrupted);
            // What is interrupted goes on by the orders that were noted, whatever is ordered now.
            let again = if is_begun { RepairOrders { give_up: Vec::new(), ..again } } else { again };
            if !is_begun && !left_now.left.is_empty() {
                assert_eq!(left_now.left, orders.give_up, "{what}, {told}: as it was, or repaired");
            }
            let repaired = try_repair(run, &again).unwrap();
            assert!(repaired.left.is_empty(), "{what}, {told}: {repaired:?}");
            assert_eq!(numbers(run), left, "{what}, {told}");
        });
    }
}

#[test]
fn a_folder_in_use_is_not_repaired_and_a_members_log_is_never_given_up_kind_32() {
    let (disk, places) = log(100);
    let open = TestLog::open(disk.clone()).unwrap();
    for dry_run in [true, false] {
        let orders = RepairOrders { dry_run, ..RepairOrders::default() };
        let refused = try_repair(&disk, &orders).unwrap_err();
        assert!(matches!(refused, RepairError::Open(OpenError::InUse { .. })), "{refused}");
    }
    drop(open);
    // The same log, as a member's.
    let member = disk.copied_in_place();
    make_members(&member);
    // As a write keeps it, unlike this test.
    let place = places[10].start;
    member.flip(&name(place), place.0 % SEGMENT + 40, 1);
    let found = dry(&member);
    assert_eq!(found.left.len(), 1, "{found:?}");
    assert!(matches!(try_repair(&member, &giving_up(&found)), Err(RepairError::Member)));
}

/// What recovery has decided since, and what was acknowledged on top of that, no orders from before touch.
#[test]
fn orders_of_a_repair_that_was_cut_short_are_void_once_the_log_was_opened_kind_3() {
    for harm_end in [false, true] {
        let disk = TestDisk::new();
        let mut log = TestLog::create(disk.clone()).unwrap();
        let places: Vec<_> = (0..20_u32).map(|n| log.append(&n.to_le_bytes().repeat(250)).unwrap()).collect();
        log.flush().unwrap();
        if harm_end {
            log.close().unwrap();
        } else {
            drop(log);
        }
        let disk = disk.copied_in_place();
        let last = places[19].start;
        disk.flip(&name(last), last.0 % SEGMENT + 40, 1);
        let orders = giving_up(&dry(&disk));
        // Stopped at each of its last steps, where the orders have begun.
        let mut seen = 0;
        let _repaired = at_each_step(&disk, &orders, By::Kill, |run, told| {
            // The application comes first, twice, and appends.
            let Ok(mut log) = TestLog::open(run.clone()) else { return };
            for round in 0..2_u32 {
                for n in 0..3_u32 {
                    let _ = log.append(&(100 + round * 10 + n).to_le_bytes().repeat(250)).unwrap();
                }
                log.flush().unwrap();
                drop(log);
                log = TestLog::open(run.clone()).unwrap();
            }
            drop(log);
            let before = numbers(run);
            assert_eq!(before[before.len() - 6..], [100, 101, 102, 110, 111, 112]);
            let found = dry(run);
            assert!(!found.findings.contains(&Finding::Interrupted), "{told}: {found:?}");
            let is_begun = |run: &TestDisk| run.names().iter().any(|name| name.ends_with(".begun"));
            seen += usize::from(is_begun(run));
            let repaired = try_repair(run, &RepairOrders::default()).unwrap();
            assert!(repaired.left.is_empty() && !is_begun(run), "{told}: {repaired:?}");
            assert_eq!(numbers(run), before, "{told}");
        });
        assert!(seen > 0, "orders had begun");
    }
}

/// A closed log with one damaged record and a damaged end, whose repair was cut short once its orders had begun; their note's name.
fn cut_short() -> (TestDisk, String) {
    let (disk, places) = log(200);
    for number in [30, 199] {
        let place = places[number].start;
        disk.flip(&name(place), place.0 % SEGMENT + 40, 1);
    }
    let orders = giving_up(&dry(&disk));
    let note = |disk: &TestDisk| disk.names().into_iter().find(|name| name.ends_with(".begun"));
    for step in 0.. {
        let run = disk.copied_in_place();
        run.stop_at(run.steps() + step);
        assert!(try_repair(&run, &orders).is_err(), "stopped before its orders had begun");
        let run = run.after_kill();
        if let Some(note) = note(&run) {
            return (run, note);
        }
    }
    unreachable!("a repair ends")
}

/// In what words.
fn assert_no_orders(disk: &TestDisk, what: &str) -> String {
    let before = contents(disk);
    let refused = try_repair(disk, &RepairOrders::default()).unwrap_err();
    assert!(matches!(refused, RepairError::Note { .. } | RepairError::Cut { .. }), "{what}: {refused:?}");
    assert!(contents(disk) == before, "{what}: nothing is changed");
    refused.to_string()
}

#[test]
fn kind_3_orders_with_any_byte_changed_or_missing_are_refused_and_change_nothing() {
    let (disk, note) = cut_short();
    let whole = disk.read_file(&note);
    let text = String::from_utf8(whole.clone()).unwrap();
    assert!(text.contains("give-up ") && text.contains("\ncut ") && text.contains("\nend "), "{text}");
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            disk.write_file(&note, &changed);
            let _ = assert_no_orders(&disk, &format!("byte {at}, bit {bit}"));
        }
        disk.write_file(&note, &whole[..at]);
        let _ = assert_no_orders(&disk, &format!("{at} bytes"));
    }
    disk.write_file(&note, &[&whole[..], b"\n"].concat());
    let _ = assert_no_orders(&disk, "a line more");
    let dry_run = try_repair(&disk, &RepairOrders { dry_run: true, ..RepairOrders::default() });
    assert!(matches!(dry_run, Err(RepairError::Note { .. })), "{dry_run:?}");
    disk.write_file(&note, &whole);
    assert!(try_repair(&disk, &RepairOrders::default()).unwrap().left.is_empty());
    assert_eq!(numbers(&disk), without(199, 30..31));
}

#[test]
fn kind_3_orders_that_no_repair_of_this_log_gives_are_refused_whatever_their_checksum() {
    let (disk, places) = log(200);
    let superblock = windlass_log::Superblock::decode(&disk.read_file("superblock")[..64 << 10]).unwrap();
    let (inside, whole) = (places[30].start.0 + 8, places[30].start.0);
    let (far, last) = (1_u64 << 50, u64::MAX);
    let orders = [
        format!("give-up {whole} {whole}"),
        format!("give-up {} {whole}", places[31].start.0),
        format!("give-up 0 {whole}"),
        format!("give-up {SEGMENT} {}", SEGMENT + 8192),
        format!("give-up {} {}", whole + 1, places[31].start.0),
        format!("give-up {whole} {}", far + 8192),
        format!("give-up {whole} {}", last - 7),
        format!("give-up {} {last}", last - 7),
        format!("cut 0 {whole}"),
        format!("cut {inside} {}", inside + 8),
        format!("cut {} {}", whole + 1, whole + 9),
        format!("cut {} {}", far + 8192, far + 8200),
        format!("cut {} {last}", last - 7),
        format!("cut {last} {last}"),
        "torn 0".to_owned(),
        format!("torn {}", SEGMENT + 8),
        format!("torn {last}"),
        format!("unreadable {whole} {}", whole + 4096),
        "unreadable 8192 4096".to_owned(),
        "header 0 1".to_owned(),
        "misfit 0".to_owned(),
    ];
    for order in orders {
        let id = u128::from_be_bytes(superblock.log_id.0);
        let text = format!("log {id:032x}\ngeneration {}\n{order}\n", superblock.generation);
        let text = format!("{text}end {:08x}\n", crc32fast::hash(text.as_bytes()));
        disk.write_file("quarantine/0001.begun", text.as_bytes());
        let words = assert_no_orders(&disk, &order);
        // What is well formed and does not fit is told for what it is.
        if order.starts_with(&format!("cut {inside} ")) {
            assert!(words.contains(&format!("no record starts at LSN {inside}")), "{words}");
        } else if order.starts_with(&format!("cut {} ", far + 8192)) {
            assert!(words.contains(&format!("LSN {} is beyond the end of the log", far + 8192)), "{words}");
        } else {
            assert!(words.contains("not the orders of a repair of this log"), "{words}");
        }
    }
    disk.remove_file("quarantine/0001.begun");
    assert!(dry(&disk).findings.is_empty());
    assert_eq!(numbers(&disk), without(200, 0..0));
}

/// What the medium does not give counts as damage: it is named, what lies around it is kept, and its pages can be used again.
#[test]
fn kind_7_what_the_medium_does_not_give_is_named_and_given_up_by_order_and_the_rest_is_kept() {
    let (disk, places) = log(200);
    // Of another length: what is too much is not looked at, only kept.
    let misfit = format!("{:016x}.segment", 100 * SEGMENT);
    disk.write_file(&misfit, &vec![7; 200_000]);
    let (record, last) = (places[100].start, places[199].start);
    let of_page = |lsn: Lsn| {
        let page = lsn.0 / 4096 * 4096;
        let is_lost = |place: &&Range<Lsn>| place.start.0 < page + 4096 && place.end.0 > page;
        let first = u32::try_from(places.iter().position(|place| is_lost(&place)).unwrap()).unwrap();
        first..first + u32::try_from(places.iter().filter(is_lost).count()).unwrap()
    };
    let unused = (last.0 % SEGMENT).next_multiple_of(4096) + 8192;
    let cases = [
        ("a segment's header", name(Lsn(SEGMENT)), 0, 0..0),
        ("a record", name(record), record.0 % SEGMENT, of_page(record)),
        ("the last record", name(last), last.0 % SEGMENT, of_page(last)),
        ("what nothing was written to yet", name(last), unused, 0..0),
        ("what is taken out", misfit, 150_000, 0..0),
        ("a copy of the superblock", "superblock".to_owned(), 10, 0..0),
        ("what a copy of the superblock does not need", "superblock".to_owned(), 64 << 10 | 60_000, 0..0),
    ];
    for (what, file, offset, lost) in cases {
        let run = disk.copied_in_place();
        run.spoil(&file, offset);
        let found = dry_spoilt(&run);
        let left = found.left.clone();
        assert_eq!(left.is_empty(), lost.is_empty(), "{what}: {found:?}");
        let is_named = found.findings.iter().any(|finding| match finding {
            Finding::Unreadable { file: path, offsets } => path.ends_with(&file) && offsets.contains(&offset),
            Finding::SuperblockCopy { .. } => file == "superblock",
            Finding::Misfit { file: path, .. } => what == "what is taken out" && path.ends_with(&file),
            Finding::Interrupted
            | Finding::SegmentHeader { .. }
            | Finding::NoFile { .. }
            | Finding::Foreign { .. }
            | Finding::Torn { .. }
            | Finding::SuperblockOlder { .. }
            | Finding::PastCleanMark { .. }
            | Finding::Damaged(_) => false,
        });
        assert!(is_named, "{what}: {found:?}");
        let undone = try_repair(&run, &RepairOrders::default()).unwrap();
        assert_eq!(undone.left, left, "{what}: {undone:?}");
        let repaired = try_repair(&run, &giving_up(&found)).unwrap();
        assert!(repaired.left.is_empty(), "{what}: {repaired:?}");
        assert_eq!(numbers(&run), without(200, lost), "{what}");
        assert!(dry(&run).findings.is_empty(), "{what}");
        // It can be written to as well.
        let mut log = TestLog::open(run.clone()).unwrap();
        for number in 0..60_u32 {
            let _appended = log.append(&number.to_le_bytes().repeat(250)).unwrap();
        }
        log.flush().unwrap();
        log.close().unwrap();
    }
}

/// A dry run of a disk whose contents can't be compared.
fn dry_spoilt(disk: &TestDisk) -> Repaired {
    try_repair(disk, &RepairOrders { dry_run: true, ..RepairOrders::default() }).unwrap()
}

/// No crash shortens a file or spoils a sector: where the mark does not cover what was there, it is no torn end all the same.
#[test]
fn kind_3_the_end_of_a_killed_log_whose_file_is_cut_short_or_unreadable_is_given_up_by_order_alone() {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    let places: Vec<_> = (0..20_u32).map(|n| log.append(&n.to_le_bytes().repeat(250)).unwrap()).collect();
    log.flush().unwrap();
    drop(log);
    let disk = disk.copied_in_place();
    let file = name(places[0].start);
    type End<'a> = (&'a str, &'a dyn Fn(&TestDisk));
    let harms: [End<'_>; 2] = [
        ("short", &|run| {
            let bytes = run.read_file(&file);
            run.write_file(&file, &bytes[..usize::try_from(places[15].start.0).unwrap() + 10]);
        }),
        ("unreadable", &|run| run.spoil(&file, places[15].start.0)),
    ];
    for (what, harm) in harms {
        let run = disk.copied_in_place();
        harm(&run);
        let found = dry_spoilt(&run);
        assert_eq!(found.left.len(), 1, "{what}: {found:?}");
        let undone = try_repair(&run, &RepairOrders::default()).unwrap();
        assert_eq!(undone.left, found.left, "{what}");
        assert!(TestLog::open(run.clone()).is_err(), "{what}");
        let repaired = try_repair(&run, &giving_up(&found)).unwrap();
        assert!(repaired.left.is_empty(), "{what}: {repaired:?}");
        let left = numbers(&run);
        if what == "short" {
            assert_eq!(left, without(15, 0..0), "what was whole in the file");
        } else {
            // A page holds four of them, and what is whole behind it stays.
            assert!(left.len() >= 15 && left.contains(&19) && !left.contains(&15), "{left:?}");
        }
    }
}

/// What was ordered is done, perhaps by a run whose end nobody has seen: the same orders again are no error.
#[test]
fn kind_10_the_same_orders_again_find_nothing_left_to_do() {
    for (what, disk, left) in harms(&LENGTHS[..1]) {
        if !["one record", "the last record", "a segment of another length"].contains(&what) {
            continue;
        }
        let orders = giving_up(&dry(&disk));
        let _repaired = at_each_step(&disk, &orders, By::Kill, |run, told| {
            for _again in 0..2 {
                is_repaired_again(run, &orders, told);
            }
            assert_eq!(numbers(run), left, "{what}, {told}");
            // Also once the log has been opened.
            is_repaired_again(run, &orders, told);
        });
    }
}

#[test]
fn a_dry_run_names_all_that_is_amiss_and_nothing_is_changed_while_something_is_in_the_way() {
    let (disk, places) = log(200);
    let flip = |place: Lsn| disk.flip(&name(place), place.0 % SEGMENT + 40, 1);
    flip(places[10].start);
    // A folder, another log's segment, a short file, a file at no segment's place, a damaged header.
    disk.write_file(&format!("{}/x", name(Lsn(7 * SEGMENT))), b"");
    let mut foreign = disk.read_file(&name(Lsn(SEGMENT)));
    let header = windlass_log::SegmentHeader::decode(&foreign).unwrap();
    let header = windlass_log::SegmentHeader { log_id: windlass_log::LogId([0xab; 16]), ..header };
    foreign[..64].copy_from_slice(&header.encode());
    disk.write_file(&name(Lsn(SEGMENT)), &foreign);
    let short = disk.read_file(&name(Lsn(2 * SEGMENT)))[..30_000].to_vec();
    disk.write_file(&name(Lsn(2 * SEGMENT)), &short);
    disk.write_file(&format!("{:016x}.segment", 5 * SEGMENT + 8), b"x");
    disk.flip(&name(Lsn(0)), 9, 1);
    let found = dry(&disk);
    let count = |is: &dyn Fn(&Finding) -> bool| found.findings.iter().filter(|found| is(found)).count();
    assert_eq!(count(&|f| matches!(f, Finding::NoFile { .. })), 1, "{found:?}");
    assert_eq!(count(&|f| matches!(f, Finding::Foreign { .. })), 1, "{found:?}");
    assert_eq!(count(&|f| matches!(f, Finding::Misfit { is_segment: true, .. })), 1, "{found:?}");
    assert_eq!(count(&|f| matches!(f, Finding::Misfit { is_segment: false, .. })), 1, "{found:?}");
    assert_eq!(count(&|f| matches!(f, Finding::SegmentHeader { .. })), 1, "{found:?}");
    assert!(count(&|f| matches!(f, Finding::Damaged(_))) >= 3, "{found:?}");
    let before = contents(&disk);
    let refused = try_repair(&disk, &giving_up(&found)).unwrap_err();
    assert!(matches!(refused, RepairError::InTheWay { count: 2, .. }), "{refused}");
    assert!(contents(&disk) == before);
}

/// Gives a log that nobody has open to a group's member.
fn make_members(disk: &TestDisk) {
    let mut bytes = disk.read_file("superblock");
    let mut superblock = windlass_log::Superblock::decode(&bytes[..64 << 10]).unwrap();
    superblock.configuration = b"three members".to_vec();
    let encoded = superblock.encode().unwrap();
    for copy in [0, 64 << 10] {
        bytes[copy..copy + encoded.len()].copy_from_slice(&encoded);
    }
    disk.write_file("superblock", &bytes);
}

/// A member that is stopped well while its damage is not repaired yet: a clean mark would say that its log ends there, and what lies whole behind would be damage for good, or forgotten.
#[test]
fn kind_12_a_member_that_closes_over_damage_gets_no_clean_mark_and_opens_as_damaged_as_before_r_18() {
    let superblock = |disk: &TestDisk| Inspection::open(disk.clone(), None).unwrap().superblock().clone();
    let (disk, places) = log(200);
    make_members(&disk);
    let end = superblock(&disk).clean.unwrap();
    // In the segment of the mark, where opening looks.
    let hurt = places[190].start;
    let flip = |disk: &TestDisk, at: Lsn| disk.flip(&name(at), at.0 % SEGMENT + 40, 1);
    let close = |disk: &TestDisk| {
        let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
        store.close(opened.tail).unwrap();
        drop(store);
        opened
    };
    flip(&disk, hurt);
    for _stop in 0..3 {
        let opened = close(&disk);
        assert_eq!((opened.tail, opened.damage.len()), (hurt, 1), "{opened:?}");
        assert_eq!((opened.damage[0].start, opened.damage[0].end), (hurt, places[191].start));
        let now = superblock(&disk);
        assert_eq!((now.clean, now.persisted), (None, hurt));
        assert_eq!(now.acknowledged, end, "what it may have acknowledged stays written down");
    }
    // Found while it runs, in a cold segment, and not cut off yet: nor then.
    let (running, cold) = (disk.copied_in_place(), places[30].start);
    flip(&running, hurt);
    let (store, opened) = Store::open(running.clone(), &AROUND, &options()).unwrap();
    assert_eq!((opened.tail, opened.damage.len()), (end, 0));
    flip(&running, cold);
    store.distrust(cold..places[31].start).unwrap();
    store.close(end).unwrap();
    drop(store);
    assert_eq!((superblock(&running).clean, superblock(&running).persisted), (None, cold));
    assert_eq!(close(&running).damage.len(), 1);
    // With the record here again the log is whole, and its end is a clean one.
    flip(&disk, hurt);
    let opened = close(&disk);
    assert_eq!((opened.tail, opened.damage.len()), (end, 0));
    assert_eq!((superblock(&disk).clean, superblock(&disk).persisted), (Some(end), end));
}

/// A log whose damaged end begins where its newest epoch does, here with its first record, has not been cut yet, though an epoch begins there.
#[test]
fn kind_3_a_log_that_is_lost_from_its_first_record_on_is_given_up_by_order() {
    for shorten in [false, true] {
        let (disk, places) = log(100);
        for segment in 0..=places[99].start.0 / SEGMENT {
            let file = name(Lsn(segment * SEGMENT));
            let bytes = vec![0; if shorten { 64 } else { disk.read_file(&file).len() }];
            disk.write_file(&file, &bytes);
        }
        let orders = giving_up(&dry(&disk));
        assert_eq!(orders.give_up[0].start, Lsn(4096));
        let repaired = at_each_step(&disk, &orders, By::Kill, |run, told| {
            is_repaired_again(run, &orders, told);
            assert!(numbers(run).is_empty(), "{told}");
        });
        assert!(repaired.left.is_empty(), "{repaired:?}");
    }
}

/// A killed log with records above every mark: the place of the first that does not hold is blank, as where its page never arrived. Where the whole records end, and how many there are.
fn torn_at_a_blank() -> (TestDisk, Lsn, u32) {
    let disk = TestDisk::new();
    let mut log = TestLog::create(disk.clone()).unwrap();
    let mut append = |number: u32| log.append(&number.to_le_bytes().repeat(250)).unwrap();
    let places: Vec<Lsn> = (0..14).map(|number| append(number).start).collect();
    let torn = places[10];
    drop(log);
    let disk = disk.after_kill();
    let mut bytes = disk.read_file(&name(torn));
    let at = usize::try_from(torn.0 % SEGMENT).unwrap();
    bytes[at..at + 1032].fill(0);
    disk.write_file(&name(torn), &bytes);
    (disk.copied_in_place(), torn, 10)
}

/// Destroying a header that is blank takes nothing away: what lies behind goes by a new epoch, as at an opening.
#[test]
fn kind_6_a_torn_end_whose_first_place_is_blank_is_cut_and_what_lies_behind_never_comes_back() {
    let (disk, torn, count) = torn_at_a_blank();
    let found = dry(&disk);
    assert_eq!(found.torn, Some(torn));
    assert!(matches!(found.findings[..], [Finding::Torn { lsn, .. }] if lsn == torn), "{found:?}");
    let orders = RepairOrders::default();
    let repaired = at_each_step(&disk, &orders, By::KillOrPower, |run, told| {
        is_repaired_again(run, &orders, told);
        assert_eq!(numbers(run), (0..count).collect::<Vec<_>>(), "{told}");
        // As long as the one that went: the next would follow it.
        let mut log = TestLog::open(run.clone()).unwrap();
        assert_eq!(log.append(&99_u32.to_le_bytes().repeat(250)).unwrap().start, torn);
        log.flush().unwrap();
        log.close().unwrap();
        assert_eq!(numbers(run), (0..count).chain([99]).collect::<Vec<_>>(), "{told}");
    });
    assert_eq!((repaired.torn, repaired.tail, repaired.left.len()), (None, torn, 0), "{repaired:?}");
}

/// Where a member's log ends its primary decides: it is left, and told.
#[test]
fn kind_6_the_torn_end_of_a_members_log_is_left_and_told() {
    let (disk, torn, _) = torn_at_a_blank();
    let mut file = disk.read_file("superblock");
    let mut superblock = windlass_log::Superblock::decode(&file[..64 << 10]).unwrap();
    superblock.configuration = b"three members".to_vec();
    let bytes = superblock.encode().unwrap();
    for copy in [0, 64 << 10] {
        file[copy..copy + bytes.len()].copy_from_slice(&bytes);
    }
    disk.write_file("superblock", &file);
    let repaired = try_repair(&disk, &RepairOrders::default()).unwrap();
    assert_eq!((repaired.torn, repaired.left.len()), (Some(torn), 0), "{repaired:?}");
    let (_, opened) = Store::open(disk.clone(), &AROUND, &options()).unwrap();
    assert_eq!(opened.tail, torn);
}
