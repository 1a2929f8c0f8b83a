//! Processes killed by SIGKILL at each call to the operating system that they make, and in the middle of those that write (kinds 10, 12, 34; DESIGN.md sections 6.2 and 6.5).
//!
//! The [simulated stops](crate::disk::testing) of the other tests say what a loss of power leaves, too; these say that the operating system, with its locks, its page cache and its
//! mappings, does to a killed process what is simulated.

mod gate;
mod making;
mod worker;

use std::path::Path;

use tempfile::TempDir;
use windlass_log::{Epoch, Lsn, Superblock};

use self::worker::{Stands, Task, Worker, calls_of};
use super::testlog::{AROUND, TestLog, options};
use super::{epochs, filled, newer, past};
use crate::disk::testing::TestDisk;
use crate::disk::{Access, Disk as _, DiskFile as _, RealDisk};
use crate::{
    DiskCall, DiskError, Inspection, Make, RepairError, RepairOrders, Repaired, ScrubPlace, Scrubbed, Store,
    folder, names, superblock,
};

fn accepting_epoch(epoch: Epoch) -> RepairOrders {
    RepairOrders { accept_epoch: Some(epoch), ..RepairOrders::default() }
}

fn accepting_tail(tail: Lsn) -> RepairOrders {
    RepairOrders { accept_tail: Some(tail), ..RepairOrders::default() }
}

/// Both, in one order or the other.
fn orders_of_crossing(trims_first: bool, trims: impl Fn(), tells: impl Fn()) {
    if trims_first {
        trims();
        tells();
    } else {
        tells();
        trims();
    }
}

/// A folder in memory where there is such a filesystem: no call waits for a medium there, and to a process that is killed it makes no difference.
fn room() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn disk(place: &Path) -> RealDisk {
    RealDisk::open(place).unwrap()
}

/// Puts a disk's files into a folder that is theirs: no copy of another one.
fn put(from: &TestDisk, place: &Path) {
    for name in from.names() {
        std::fs::write(place.join(&name), from.read_file(&name)).unwrap();
    }
    let identity = disk(place).open(names::SUPERBLOCK, Access::Read).unwrap().identity().unwrap();
    let mut file = from.read_file(names::SUPERBLOCK);
    let copy_bytes = usize::try_from(superblock::COPY_BYTES).unwrap();
    for at in [0, copy_bytes] {
        let mut copy = Superblock::decode(&file[at..at + copy_bytes]).unwrap();
        copy.place = folder::place_of(identity);
        let bytes = copy.encode().unwrap();
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    std::fs::write(place.join(names::SUPERBLOCK), file).unwrap();
}

/// Starts the task and kills it at that call, where it has one.
fn killed_at(place: &Path, task: Task, at: u64) -> (Stands, Vec<String>) {
    let mut worker = Worker::start(place, task, at);
    let stands = worker.stands();
    (stands, worker.kill())
}

/// Some other moment of as many.
fn another(at: u64, calls: u64) -> u64 {
    (at * 31 + 7) % calls
}

fn repair(place: &Path, orders: &RepairOrders) -> Result<Repaired, RepairError> {
    let kept_in = place.join("quarantine");
    let failed = |errno| DiskError { call: DiskCall::Open, file: kept_in.clone(), errno };
    let quarantine = |make| match make {
        Make::IfAbsent => RealDisk::create(&kept_in).map(Some).map_err(failed),
        Make::Never if kept_in.exists() => RealDisk::open(&kept_in).map(Some).map_err(failed),
        Make::Never => Ok(None),
    };
    Store::repair(&disk(place), &quarantine, orders)
}

/// A repair that takes an older superblock's log as it is, killed at each call, and the next one, too, wherever that comes to: given again it ends with the same log, and the older
/// superblock is in the quarantine.
fn accepted_whenever_killed(
    from: &TestDisk,
    task: Task,
    orders: &RepairOrders,
    holds: impl Fn(&TestLog<RealDisk>, &str),
) {
    let history = |place: &Path| Inspection::open(disk(place), None).unwrap().superblock().history.clone();
    let whole = room();
    put(from, whole.path());
    let calls = calls_of(whole.path(), task);
    assert!(calls > 10, "{calls}");
    let repaired = history(whole.path());
    for at in 0..calls {
        let place = room();
        put(from, place.path());
        let older = std::fs::read(place.path().join(names::SUPERBLOCK)).unwrap();
        let (stands, _) = killed_at(place.path(), task, at);
        let told = format!("{at} of {calls}, {stands:?}");
        assert!(matches!(stands, Stands::At(_)), "{told}");
        killed_at(place.path(), task, another(at, calls));
        repair(place.path(), orders).unwrap();
        let again = repair(place.path(), &RepairOrders { dry_run: true, ..RepairOrders::default() }).unwrap();
        assert!(again.findings.is_empty(), "{told}: {again:?}");
        assert_eq!(history(place.path()), repaired, "{told}");
        let kept =
            std::fs::read_dir(place.path().join("quarantine")).unwrap().map(|entry| entry.unwrap().path());
        let mut superblocks = kept.filter(|path| path.to_string_lossy().contains("superblock-0x0-"));
        assert!(superblocks.any(|path| older.starts_with(&std::fs::read(path).unwrap())), "{told}");
        holds(&TestLog::open(disk(place.path())).unwrap(), &told);
    }
}

#[test]
fn kind_10_accepting_a_newer_epoch_killed_at_any_call_and_given_again_ends_with_the_same_log() {
    let (from, all, newest) = newer::put_back_and_all(60, 3);
    accepted_whenever_killed(&from, Task::AcceptEpoch(newest), &accepting_epoch(newest), |log, told| {
        assert!(log.opened.epoch > Some(newest), "{told}: {:?}", log.opened);
        assert!(log.payloads() == all, "{told}");
    });
}

/// Closed again since, or killed: over the end of a segment, too.
#[test]
fn kind_10_accepting_a_later_tail_killed_at_any_call_and_given_again_ends_with_the_same_log() {
    for (after, closes) in [(3, true), (30, false)] {
        let (from, all, tail) = past::put_back_and_all(60, after, closes);
        accepted_whenever_killed(&from, Task::AcceptTail(tail), &accepting_tail(tail), |log, told| {
            assert_eq!(log.opened.tail, tail, "{told}");
            assert!(log.payloads() == all, "{told}");
        });
    }
}

#[test]
fn r_12_an_opening_that_trims_killed_at_any_call_leaves_the_log_as_it_was_or_trimmed_kind_10() {
    let (from, starts) = epochs::full();
    let trim = starts[3];
    let task = Task::OpenTrimmed(trim);
    let whole = room();
    put(&from, whole.path());
    let calls = calls_of(whole.path(), task);
    let expected = vec![b"started".to_vec(); starts.len() - 3];
    let mut as_before = 0;
    for at in 0..calls {
        let place = room();
        put(&from, place.path());
        let (stands, _) = killed_at(place.path(), task, at);
        assert!(matches!(stands, Stands::At(_)), "{at}: {stands:?}");
        let looked = Inspection::open(disk(place.path()), None).unwrap();
        let trimmed = looked.superblock().trimmed;
        assert!(trimmed == epochs::BEGIN || trimmed == trim, "{at}, {stands:?}: {trimmed}");
        as_before += u64::from(trimmed == epochs::BEGIN);
        killed_at(place.path(), task, another(at, calls));
        let (store, opened) = Store::open_trimmed(disk(place.path()), &AROUND, &options(), trim).unwrap();
        assert_eq!(store.trimmed(), trim, "{at}, {stands:?}");
        let mut log = TestLog::over(store, opened).unwrap();
        assert!(log.payloads() == expected, "{at}, {stands:?}");
        log.append(b"goes on").unwrap();
        log.flush().unwrap();
        drop(log);
        let log = TestLog::open(disk(place.path())).unwrap();
        assert_eq!(log.payloads().len(), expected.len() + 1, "{at}, {stands:?}");
    }
    assert!(as_before > 0 && as_before < calls, "both were met: {as_before} of {calls}");
}

/// Where damage begins: what an opening has found, or else a scrub.
fn found(place: &Path) -> (Option<Lsn>, Option<Lsn>) {
    let (store, opened) = Store::open(disk(place), &AROUND, &options()).unwrap();
    let from = opened.damage.first().map(|damage| damage.start);
    let scrubbed = store.scrub(ScrubPlace::new(store.trimmed()), opened.tail, 1 << 20).unwrap();
    let scrubbed = match scrubbed {
        Scrubbed::Damaged(damage) => Some(damage.start),
        Scrubbed::Whole { .. } | Scrubbed::End { .. } => None,
    };
    (from, scrubbed)
}

/// The folder has no live mark of its own, so that nothing else than the word tells how far the log went.
#[test]
fn kind_12_damage_across_a_trim_point_is_not_forgotten_by_who_is_killed_between_trim_and_word_r_18() {
    let (from, log, starts) = filled(200);
    log.store.update(|superblock| superblock.configuration = b"three members".to_vec()).unwrap();
    log.close().unwrap();
    for start in &starts[20..23] {
        from.flip(&names::segment_at(Lsn(0)), start.0 + 20, 1);
    }
    for trims_first in [false, true] {
        let task = Task::Cross([starts[20], starts[21], starts[23]], trims_first);
        let whole = room();
        put(&from, whole.path());
        let calls = calls_of(whole.path(), task);
        let mut between = 0;
        for at in 0..=calls {
            let place = room();
            put(&from, place.path());
            let (stands, said) = killed_at(place.path(), task, at);
            let has = |what: &str| said.iter().any(|said| said == what);
            between += u64::from(has("told") != has("trimmed"));
            let trimmed = Inspection::open(disk(place.path()), None).unwrap().superblock().trimmed;
            let begins = starts[20].max(trimmed);
            assert!(begins == starts[20] || begins == starts[21], "{begins}");
            assert!(!has("trimmed") || begins == starts[21], "{at}, {stands:?}");
            for opening in 0..2 {
                let (known, scrubbed) = found(place.path());
                let told = format!(
                    "{at} of {calls}, {stands:?}, {said:?}, opening {opening}: {known:?}, {scrubbed:?}"
                );
                assert_eq!(known.or(scrubbed), Some(begins), "{told}");
                assert!(known.is_some() || !has("told"), "{told}");
            }
        }
        assert!(between > 2, "killed between the two {between} times");
    }
}
