//! Repair: what is amiss is told by a dry run, quarantined before anything changes, and repaired; stopped at any call it comes to the same end (kind 3).

use std::ops::Range;

use windlass_log::{Lsn, SEGMENT_BYTES_MIN};

use super::testlog::{TestLog, founding, options};
use crate::disk::Errno;
use crate::disk::testing::{Survive, TestDisk};
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

fn try_repair(disk: &TestDisk, orders: &RepairOrders) -> Result<Repaired, RepairError> {
    Store::repair(disk, &|_| Ok(Some(disk.folder("quarantine"))), orders)
}

fn dry(disk: &TestDisk) -> Repaired {
    let before = contents(disk);
    let repaired = try_repair(disk, &RepairOrders { dry_run: true, ..RepairOrders::default() }).unwrap();
    assert!(contents(disk) == before, "a dry run changes nothing");
    repaired
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

/// Kinds of harm, and which numbers they take.
fn harms() -> Vec<(&'static str, TestDisk, Vec<u32>)> {
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
    case("a segment cut short", &|disk, places| {
        let segment = name(Lsn(2 * SEGMENT));
        let mut bytes = disk.read_file(&segment);
        bytes.truncate(20_000);
        disk.write_file(&segment, &bytes);
        let of = |place: &Range<Lsn>| name(place.start) == segment;
        let first = u32::try_from(places.iter().position(of).unwrap()).unwrap();
        first..first + u32::try_from(places.iter().filter(|place| of(place)).count()).unwrap()
    });
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
    for (what, disk, left) in harms() {
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
        let repaired = try_repair(&disk, &giving_up(&found)).unwrap();
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

/// Stopped at every call, by a kill or a loss of power, and begun again: the log is repaired as by an undisturbed repair, and what was changed is in the quarantine.
#[test]
fn kind_10_a_repair_stopped_at_every_call_comes_to_the_same_end() {
    for (what, disk, left) in harms() {
        let orders = giving_up(&dry(&disk));
        let steps = {
            let undisturbed = disk.copied_in_place();
            let before = undisturbed.steps();
            let _repaired = try_repair(&undisturbed, &orders).unwrap();
            undisturbed.steps() - before
        };
        for step in 0..steps {
            for survive in [None, Some(Survive::Nothing), Some(Survive::Seeded(step))] {
                let run = disk.copied_in_place();
                run.stop_at(run.steps() + step);
                let stopped = try_repair(&run, &orders);
                assert!(stopped.is_err(), "{what} at {step}: {stopped:?}");
                let run = match survive {
                    None => run.after_kill(),
                    Some(survive) => run.after_power_loss(survive),
                };
                let left_now = dry(&run);
                let again = RepairOrders { give_up: left_now.left.clone(), ..orders.clone() };
                let is_begun = left_now.findings.contains(&Finding::Interrupted);
                // What is interrupted goes on by the orders that were noted, whatever is ordered now.
                let again = if is_begun { RepairOrders { give_up: Vec::new(), ..again } } else { again };
                if !is_begun && !left_now.left.is_empty() {
                    assert_eq!(left_now.left, orders.give_up, "{what} at {step}: as it was, or repaired");
                }
                let repaired = try_repair(&run, &again).unwrap();
                assert!(repaired.left.is_empty(), "{what} at {step}: {repaired:?}");
                assert_eq!(numbers(&run), left, "{what} at {step}, {survive:?}");
            }
        }
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
    let mut bytes = member.read_file("superblock");
    let mut superblock = windlass_log::Superblock::decode(&bytes[..64 << 10]).unwrap();
    superblock.configuration = b"three members".to_vec();
    let encoded = superblock.encode().unwrap();
    for copy in [0, 64 << 10] {
        bytes[copy..copy + encoded.len()].copy_from_slice(&encoded);
    }
    member.write_file("superblock", &bytes);
    // As a write keeps it, unlike this test.
    let place = places[10].start;
    member.flip(&name(place), place.0 % SEGMENT + 40, 1);
    let found = dry(&member);
    assert_eq!(found.left.len(), 1, "{found:?}");
    assert!(matches!(try_repair(&member, &giving_up(&found)), Err(RepairError::Member)));
    assert_eq!(founding().member, superblock.member);
    let _ = options();
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
        let steps = {
            let undisturbed = disk.copied_in_place();
            let before = undisturbed.steps();
            let _repaired = try_repair(&undisturbed, &orders).unwrap();
            undisturbed.steps() - before
        };
        let mut seen = 0;
        for step in 0..steps {
            let run = disk.copied_in_place();
            run.stop_at(run.steps() + step);
            assert!(try_repair(&run, &orders).is_err());
            let run = run.after_kill();
            // The application comes first, twice, and appends.
            let Ok(mut log) = TestLog::open(run.clone()) else { continue };
            for round in 0..2_u32 {
                for n in 0..3_u32 {
                    let _ = log.append(&(100 + round * 10 + n).to_le_bytes().repeat(250)).unwrap();
                }
                log.flush().unwrap();
                drop(log);
                log = TestLog::open(run.clone()).unwrap();
            }
            drop(log);
            let before = numbers(&run);
            assert_eq!(before[before.len() - 6..], [100, 101, 102, 110, 111, 112]);
            let found = dry(&run);
            assert!(!found.findings.contains(&Finding::Interrupted), "{step}: {found:?}");
            let is_begun = |run: &TestDisk| run.names().iter().any(|name| name.ends_with(".begun"));
            seen += usize::from(is_begun(&run));
            let repaired = try_repair(&run, &RepairOrders::default()).unwrap();
            assert!(repaired.left.is_empty() && !is_begun(&run), "{step}: {repaired:?}");
            assert_eq!(numbers(&run), before, "{step}");
        }
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

fn assert_no_orders(disk: &TestDisk, what: &str) {
    let before = contents(disk);
    let refused = try_repair(disk, &RepairOrders::default());
    assert!(matches!(refused, Err(RepairError::Note { .. })), "{what}: {refused:?}");
    assert!(contents(disk) == before, "{what}: nothing is changed");
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
            assert_no_orders(&disk, &format!("byte {at}, bit {bit}"));
        }
        disk.write_file(&note, &whole[..at]);
        assert_no_orders(&disk, &format!("{at} bytes"));
    }
    disk.write_file(&note, &[&whole[..], b"\n"].concat());
    assert_no_orders(&disk, "a line more");
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
        "cut 0".to_owned(),
        format!("cut {inside}"),
        format!("cut {}", whole + 1),
        format!("cut {}", far + 8192),
        format!("cut {}", last - 7),
        format!("cut {last}"),
        "torn 0".to_owned(),
        format!("torn {}", SEGMENT + 8),
        format!("torn {last}"),
    ];
    for order in orders {
        let text = format!("generation {}\n{order}\n", superblock.generation);
        let text = format!("{text}end {:08x}\n", crc32fast::hash(text.as_bytes()));
        disk.write_file("quarantine/0001.begun", text.as_bytes());
        assert_no_orders(&disk, &order);
    }
    disk.remove_file("quarantine/0001.begun");
    assert!(dry(&disk).findings.is_empty());
    assert_eq!(numbers(&disk), without(200, 0..0));
}

/// Where a survey reads, and where the quarantine copies what nobody has surveyed.
#[test]
fn kind_7_a_repair_of_what_the_medium_does_not_give_says_where_and_names_salvage() {
    let (disk, places) = log(200);
    // Of another length: it is not looked at, only kept.
    let misfit = format!("{:016x}.segment", 100 * SEGMENT);
    disk.write_file(&misfit, &vec![7; 200_000]);
    let record = places[100].start;
    let cases = [
        ("a segment's header", name(Lsn(SEGMENT)), 0),
        ("a record", name(record), record.0 % SEGMENT),
        ("what is taken out", misfit, 150_000),
    ];
    for (what, file, offset) in cases {
        let run = disk.copied_in_place();
        run.spoil(&file, offset);
        let before = contents(&run);
        let failed = try_repair(&run, &RepairOrders::default()).unwrap_err();
        let RepairError::Unreadable { file: path, offset: found, errno: Errno::IO } = &failed else {
            panic!("{what}: {failed}");
        };
        assert!(path.ends_with(&file), "{what}: {failed}");
        assert!(found / 4096 == offset / 4096 && *found <= offset, "{what}: {found} for {offset}");
        let text = failed.to_string();
        assert!(text.contains("`windlass log salvage`") && text.contains(&found.to_string()), "{text}");
        let mut after = contents(&run);
        after.retain(|(name, _)| !name.starts_with("quarantine/"));
        assert!(after == before, "{what}: nothing is changed");
        run.unspoil();
        let repaired = try_repair(&run, &RepairOrders::default()).unwrap();
        assert!(repaired.left.is_empty(), "{what}: {repaired:?}");
        assert_eq!(numbers(&run), without(200, 0..0), "{what}");
    }
}
