//! One image, opened in every mode.

use std::fmt::Debug;
use std::sync::Arc;

use windlass_log::{Class, Holder, Lsn, OpenMode, RecordKind, Row, Superblock};
use windlass_store::disk::testing::{Survive, TestDisk};
use windlass_store::{Condition, Inspection, OpenError, Opened, Options, RepairError, RepairOrders, Store};

use crate::lone::{AROUND, BOOT, Gone, Lone, SEGMENT, around, founding, options, records};
use crate::member::number_of;
use crate::oracle::{Content, Entry, Found, Oracle, Seen};
use crate::salvage;

/// How often an image was opened how.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Opens {
    /// Read from end to end without write access.
    pub read_only: u64,
    /// Verified.
    pub verify: u64,
    /// Opened strictly; and of these, refused because of a torn end.
    pub strict: u64,
    /// See `strict`.
    pub refused: u64,
    /// Opened, and appended to, and crashed again.
    pub tail: u64,
    /// Of these, with not a byte free on the disk.
    pub full: u64,
}

impl Opens {
    pub(crate) fn add(&mut self, other: &Opens) {
        self.read_only += other.read_only;
        self.verify += other.verify;
        self.strict += other.strict;
        self.refused += other.refused;
        self.tail += other.tail;
        self.full += other.full;
    }
}

fn open(disk: &TestDisk, mode: OpenMode, boot: u8) -> Result<(Arc<Store<TestDisk>>, Opened), OpenError> {
    let options = Options { mode, ..options() };
    Store::open(disk.clone(), &around(boot), &options).map(|(store, opened)| (Arc::new(store), opened))
}

/// Opens the image in this boot and compares; where `full`, with no room left on the disk. Answers whether there is a log, where there need be none.
pub(crate) fn image(
    disk: &TestDisk,
    oracle: &Oracle,
    boot: u8,
    full: bool,
    opens: &mut Opens,
) -> Result<bool, String> {
    let Some((looked, condition)) = look(disk, oracle, opens)? else { return Ok(false) };
    oracle.check(&looked).map_err(|wrong| format!("read-only: {wrong}"))?;
    opens.strict += 1;
    match open(&disk.copied_in_place(), OpenMode::Strict, boot) {
        Err(error) if oracle.damaged && is_damage(&error) => opens.refused += 1,
        Ok((store, opened)) => {
            if condition != Condition::Clean {
                return Err(format!("strict opens what verifying calls {condition:?}"));
            }
            same(&looked, &seen(&store, opened.tail)?, "strict")?;
        }
        Err(OpenError::Refused { verdict, .. }) if verdict.class() == Class::Torn => {
            opens.refused += 1;
            if condition != Condition::TornTail {
                return Err(format!("strict refuses what verifying calls {condition:?}: {verdict:?}"));
            }
        }
        Err(error) => return Err(format!("CALLED DAMAGE: strict: {error}")),
    }
    opens.tail += 1;
    // Kind 21: with not a byte free.
    if full {
        opens.full += 1;
        disk.set_capacity(Some(disk.used_bytes()));
    }
    let (store, opened) =
        open(disk, OpenMode::Tail, boot).map_err(|error| format!("CALLED DAMAGE: tail: {error}"))?;
    if oracle.clean && !opened.clean {
        return Err("closed cleanly, and opened as after a crash".to_owned());
    }
    let found = seen(&store, opened.tail)?;
    if !oracle.damaged {
        if opened.cut != (condition == Condition::TornTail) {
            return Err(format!("cut: {}, where verifying says {condition:?}", opened.cut));
        }
        same(&looked, &found, "tail")?;
    } else if !looked.records.starts_with(&found.records) {
        return Err(format!("tail: {} records, which reading alone does not show", found.records.len()));
    }
    oracle.check(&found).map_err(|wrong| format!("tail: {wrong}"))?;
    superblock(&store, oracle)?;
    memory(&store, &opened, oracle, boot != BOOT)?;
    as_before(&found, &store, opened.tail, oracle, "tail")?;
    drop(store);
    // All that this opening has said is on the medium, not in the page cache alone (R-11, kind 30).
    let lost = disk.after_power_loss(Survive::Nothing);
    go_on(&lost, &found, oracle, boot + 1).map_err(|wrong| format!("opened, lost power, opened: {wrong}"))?;
    Ok(true)
}

fn is_damage(error: &OpenError) -> bool {
    error.row().is_some_and(|row| row.class() == Class::Damage)
}

/// Verifies and reads without write access.
fn look(disk: &TestDisk, oracle: &Oracle, opens: &mut Opens) -> Result<Option<(Seen, Condition)>, String> {
    let mut inspection = match Inspection::open(disk.clone(), None) {
        Ok(inspection) => inspection,
        Err(OpenError::NoLog { .. }) if !oracle.created => {
            // Kind 34: what a creation left is nothing that the next one minds.
            let again = Store::create(disk.clone(), &founding(0), &AROUND, &options());
            return again.map(|_| None).map_err(|error| format!("creating again: {error}"));
        }
        Err(error) => return Err(format!("CALLED DAMAGE: read-only: {error}")),
    };
    let steps = disk.steps();
    opens.verify += 1;
    let report = inspection.verify().map_err(|error| format!("CALLED DAMAGE: verify: {error}"))?;
    match report.condition {
        Condition::Clean | Condition::TornTail => {}
        Condition::Damaged if oracle.damaged => {}
        Condition::InUse | Condition::Damaged | Condition::Foreign => {
            return Err(format!("CALLED DAMAGE: verify: {:?}: {:?}", report.condition, report.verdict));
        }
    }
    opens.read_only += 1;
    let mut walk = inspection.walk(report.trimmed);
    let mut found = Vec::new();
    let tail = loop {
        match walk.step().map_err(|error| format!("read-only: {error}"))? {
            Ok(record) => {
                if let (RecordKind::Data | RecordKind::Batch, Some(payload)) =
                    (record.header.kind, record.payload)
                {
                    let (lsn, kind) = (record.header.lsn, record.header.kind);
                    found.push(Found { lsn, kind, payload: payload.to_vec() });
                }
            }
            Err(stop) => break stop.lsn,
        }
    };
    let seen = Seen { tail, trimmed: report.trimmed, records: found };
    if tail != report.verdict.tail() || report.appended_records != seen.records.len() as u64 {
        return Err(format!("verify sees {report:?}, reading ends at {tail}"));
    }
    if disk.steps() != steps {
        return Err("looking has changed the folder".to_owned());
    }
    Ok(Some((seen, report.condition)))
}

/// What an open store shows.
pub(crate) fn seen(store: &Arc<Store<TestDisk>>, tail: Lsn) -> Result<Seen, String> {
    Ok(Seen { tail, trimmed: store.trimmed(), records: records(store, tail)? })
}

fn same(expected: &Seen, found: &Seen, mode: &str) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let text = |seen: &Seen| format!("{} records from {} to {}", seen.records.len(), seen.trimmed, seen.tail);
    Err(format!("{mode}: {} in place of {}", text(found), text(expected)))
}

/// Another opening shows the same; of a log with damage, whose repair mends headers and may bring whole segments back, something that may be left of it.
fn as_before(
    expected: &Seen,
    store: &Arc<Store<TestDisk>>,
    tail: Lsn,
    oracle: &Oracle,
    mode: &str,
) -> Result<(), String> {
    let found = seen(store, tail)?;
    if !oracle.damaged {
        return same(expected, &found, mode);
    }
    oracle.check(&found).map_err(|wrong| format!("{mode}: {wrong}"))?;
    let answered = store.superblock().acknowledged;
    if tail < oracle.answered && answered < oracle.answered {
        return Err(format!(
            "{mode}: LOST: R-18: the log ends at {tail}, {} was answered for, and {answered} is written down",
            oracle.answered
        ));
    }
    Ok(())
}

/// What the superblock must still say.
fn superblock(store: &Store<TestDisk>, oracle: &Oracle) -> Result<(), String> {
    let superblock = store.superblock();
    if superblock.promised < oracle.promised {
        return Err(format!("LOST: R-5: the promise is {}, not {}", superblock.promised, oracle.promised));
    }
    if superblock.configuration.is_empty() {
        return Ok(());
    }
    let (low, high) = oracle.note;
    match number_of(&superblock.configuration) {
        Some(number) if (low..=high).contains(&number) => Ok(()),
        number => Err(format!("LOST: the configuration is number {number:?}, not in {low}..={high}")),
    }
}

/// What an opening says of memory that was lost, and of a member what it writes down: that it has caught up is true until the power goes without a clean end.
fn memory(store: &Store<TestDisk>, opened: &Opened, oracle: &Oracle, rebooted: bool) -> Result<(), String> {
    let lost = rebooted && !opened.clean;
    if opened.memory_lost != lost {
        return Err(format!("R-19: memory lost: {}, rebooted: {rebooted}, {opened:?}", opened.memory_lost));
    }
    let superblock = store.superblock();
    if superblock.configuration.is_empty() {
        return Ok(());
    }
    if superblock.caught_up && lost || oracle.caught_up && !superblock.caught_up && !lost {
        return Err(format!("R-19: memory lost: {lost}, and caught up: {}", superblock.caught_up));
    }
    Ok(())
}

/// Opens once more, in this boot; of a lone log, appends, flushes, loses power: what was there still is, and the new record behind it (kind 4).
fn go_on(disk: &TestDisk, expected: &Seen, oracle: &Oracle, boot: u8) -> Result<(), String> {
    let (store, opened) = Store::open(disk.clone(), &around(boot), &options())
        .map_err(|error| format!("CALLED DAMAGE: {error}"))?;
    memory(&store, &opened, oracle, true)?;
    if opened.epoch.is_none() {
        return as_before(expected, &Arc::new(store), opened.tail, oracle, "again");
    }
    let mut log = Lone::over(store, opened).map_err(|Gone(error)| error)?;
    same(expected, &seen(&log.store, log.opened.tail)?, "again")?;
    let content = Content { number: u32::MAX, bytes: 700, items: 0 };
    let appended = log.append(&content).map_err(|Gone(error)| error)?;
    log.flush().map_err(|Gone(error)| error)?;
    drop(log);
    let disk = disk.after_power_loss(Survive::Nothing);
    let (store, opened) =
        open(&disk, OpenMode::Tail, boot + 1).map_err(|error| format!("third: CALLED DAMAGE: {error}"))?;
    let mut after = seen(&store, opened.tail)?;
    let last = after.records.pop();
    if last.is_none_or(|last| last.lsn != appended.start || last.payload != content.item(0)) {
        return Err("kind 4: what was appended behind a mended tail is gone".to_owned());
    }
    after.tail = expected.tail;
    same(expected, &after, "kind 4")
}

/// What an opening of an image comes to that nothing disturbs.
#[derive(Clone)]
pub(crate) struct Undisturbed {
    seen: Seen,
    opened: Opened,
    superblock: Superblock,
    /// Its calls that write or flush something.
    pub(crate) steps: u64,
}

/// Opens a copy of the image in this boot.
pub(crate) fn undisturbed(disk: &TestDisk, boot: u8) -> Result<Undisturbed, String> {
    let copy = disk.copied_in_place();
    let (store, opened) =
        open(&copy, OpenMode::Tail, boot).map_err(|error| format!("CALLED DAMAGE: a copy: {error}"))?;
    let steps = copy.steps();
    let seen = seen(&store, opened.tail)?;
    Ok(Undisturbed { seen, opened, superblock: store.superblock(), steps })
}

/// Opens a copy of the image and stops at its step `step`. Then again, after what is to survive of that, in another boot where the power went: it must come to the same end.
pub(crate) fn again(
    disk: &TestDisk,
    expected: &Undisturbed,
    oracle: &Oracle,
    boot: u8,
    step: u64,
    survive: Option<Survive>,
) -> Result<(), String> {
    let attempt = disk.copied_in_place();
    attempt.stop_at(step);
    drop(open(&attempt, OpenMode::Tail, boot));
    if !attempt.stopped() {
        return Err(format!("recovery had {} steps, and now has none of number {step}", expected.steps));
    }
    let left = survive.map_or_else(|| attempt.after_kill(), |survive| attempt.after_power_loss(survive));
    let reopen = || {
        let (store, opened) = open(&left, OpenMode::Tail, boot + u8::from(survive.is_some()))
            .map_err(|error| format!("CALLED DAMAGE: {error}"))?;
        as_before(&expected.seen, &store, opened.tail, oracle, "reopened")?;
        superblock(&store, oracle)?;
        as_undisturbed(expected, &store.superblock(), &opened, oracle, survive.is_some())
    };
    reopen().map_err(|wrong| format!("recovery stopped at its step {step}, {survive:?}: I-7: {wrong}"))
}

/// What an opening says and writes down is what the undisturbed one did. `rebooted`: the power went meanwhile.
fn as_undisturbed(
    expected: &Undisturbed,
    now: &Superblock,
    opened: &Opened,
    oracle: &Oracle,
    rebooted: bool,
) -> Result<(), String> {
    let (then, said) = (&expected.superblock, &expected.opened);
    let is_member = !then.configuration.is_empty();
    // A clean mark goes with what an opening writes down, so only one that it leaves has to be met again; and none comes from nowhere.
    held(!opened.clean || said.clean, "closed cleanly", &opened.clean, &said.clean)?;
    held(opened.clean || then.clean.is_none(), "closed cleanly", &now.clean, &then.clean)?;
    // In the boot of the stopped opening its superblock may have said so already; of a member, that it has not caught up is what stays written down.
    let lost =
        if rebooted { opened.memory_lost != opened.clean } else { !opened.memory_lost || said.memory_lost };
    held(lost, "R-19: memory lost", &opened.memory_lost, &said.memory_lost)?;
    let caught_up = then.caught_up && !(is_member && rebooted && !opened.clean);
    equal("R-19: caught up", &now.caught_up, &caught_up)?;
    // A lone log's epoch at the tail is its opening's own: where the stopped one had written one down the next begins the one behind.
    let promised = if is_member { now.promised == then.promised } else { now.promised >= then.promised };
    held(promised, "the promise", &now.promised, &then.promised)?;
    held(opened.epoch.is_some() != is_member, "the epoch", &opened.epoch, &said.epoch)?;
    let tail = opened.tail.min(said.tail);
    let history = |superblock: &Superblock| {
        let entries = superblock.history.entries().iter();
        entries.filter(|entry| entry.start < tail).copied().collect::<Vec<_>>()
    };
    equal("the history below the tail", &history(now), &history(then))?;
    equal("the configuration", &now.configuration, &then.configuration)?;
    equal("place and incarnation", &(now.place, now.incarnation), &(then.place, then.incarnation))?;
    equal("a copy", &opened.copied, &said.copied)?;
    if !oracle.damaged {
        equal("the mark", &now.persisted, &then.persisted)?;
        equal("what was acknowledged", &now.acknowledged, &then.acknowledged)?;
        equal("damage", &opened.damage, &said.damage)?;
        return equal("what may be acknowledged", &opened.acknowledged_max, &said.acknowledged_max);
    }
    // Of damage less may be found, as headers are made again: then more of the log counts. What the member answered for is never less.
    held(now.persisted >= then.persisted, "the mark", &now.persisted, &then.persisted)?;
    held(now.acknowledged >= then.acknowledged, "R-18: acknowledged", &now.acknowledged, &then.acknowledged)?;
    let first = |opened: &Opened| opened.damage.first().map(|damage| damage.start);
    let (found, before) = (first(opened), first(said));
    let is_whole = found.is_none() && opened.tail >= then.acknowledged;
    held(is_whole || found >= before && found.is_some(), "damage", &opened.damage, &said.damage)?;
    let max = opened.acknowledged_max;
    held(
        max.is_none_or(|max| max >= oracle.answered),
        "R-18: what may be acknowledged",
        &max,
        &Some(oracle.answered),
    )
}

fn equal<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    held(found == expected, what, found, expected)
}

fn held<T: Debug>(holds: bool, what: &str, found: &T, expected: &T) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: {found:?} in place of {expected:?}")) }
}

/// What a killed process leaves, and then the medium loses the last record that was acknowledged, or the file that it lies in: that is damage, and never taken for a torn end.
pub(crate) fn harmed(disk: &TestDisk, oracle: &Oracle, by_file: bool) -> Result<(), String> {
    let (low, high) = (oracle.trimmed.1, oracle.acknowledged);
    let flushed = oracle.records.iter().filter(|entry| low <= entry.start && entry.start < high);
    let Some(lsn) = flushed.map(|entry| entry.start).max().filter(|_| !oracle.damaged) else { return Ok(()) };
    let name = format!("{:016x}.segment", lsn.0 / SEGMENT * SEGMENT);
    if by_file {
        disk.remove_file(&name);
    } else {
        disk.flip(&name, lsn.0 % SEGMENT + 20, 1);
    }
    let segment = lsn.0 / SEGMENT;
    let is_harmed =
        |entry: &&Entry| if by_file { entry.start.0 / SEGMENT == segment } else { entry.start == lsn };
    let missing: Vec<Lsn> = oracle.records.iter().filter(is_harmed).map(|entry| entry.start).collect();
    salvage::salvaged(&disk.copied_in_place(), oracle, &missing)
        .map_err(|wrong| format!("harmed: {wrong}"))?;
    let wrong =
        |what: &str| Err(format!("TAKEN FOR A TORN END: {name}, harmed at {lsn} (file: {by_file}), {what}"));
    let report = Inspection::open(disk.clone(), None).and_then(|mut inspection| inspection.verify());
    match report {
        Ok(report) if report.condition != Condition::Damaged => return wrong("is verified"),
        Err(error) if !is_damage(&error) => return Err(format!("harmed: {error}")),
        Ok(_) | Err(_) => {}
    }
    match open(disk, OpenMode::Tail, BOOT) {
        // Of segments before that of the mark an opening only sees that they are there.
        Ok((_, opened)) if opened.tail > lsn => Ok(()),
        Ok((store, _)) if store.superblock().acknowledged > lsn => Ok(()),
        Ok(_) => wrong("is opened"),
        Err(error) if is_damage(&error) => Ok(()),
        Err(error) => Err(format!("harmed: {error}")),
    }
}

/// What a killed process leaves, and then the superblock's file from before the newest epoch, or from the last clean close in the same one, is put back in place: with a record behind that was acknowledged
/// the log opens in no mode. A lone log whose superblock is made to fit its records by order has all of them again.
pub(crate) fn older(disk: &TestDisk, oracle: &Oracle) -> Result<(), String> {
    let closed = oracle.closed.as_ref().map(|older| (older, Row::PastCleanMark));
    for (older, row) in oracle.older.iter().map(|older| (older, Row::SuperblockOlder)).chain(closed) {
        put_back(&disk.copied_in_place(), oracle, older, row)?;
    }
    Ok(())
}

/// `from`: a record from there on that was acknowledged tells.
fn put_back(
    disk: &TestDisk,
    oracle: &Oracle,
    (older, from): &(Vec<u8>, Lsn),
    row: Row,
) -> Result<(), String> {
    let low = oracle.trimmed.1.max(*from);
    let is_there = |entry: &&Entry| low <= entry.start && entry.start < oracle.acknowledged;
    if oracle.damaged || oracle.before_cut.is_some() || !oracle.records.iter().any(|entry| is_there(&entry)) {
        return Ok(());
    }
    disk.write_file("superblock", older);
    let is_told = |error: &OpenError| error.row() == Some(row);
    let wrong = |what: &str, found: String| Err(format!("OLDER SUPERBLOCK: from {from}: {what}: {found}"));
    for mode in [OpenMode::Strict, OpenMode::Tail] {
        match open(&disk.copied_in_place(), mode, BOOT) {
            Err(error) if is_told(&error) => {}
            opened => return wrong("open", format!("{mode:?}: {:?}", opened.map(|(_, opened)| opened))),
        }
    }
    let verified = Inspection::open(disk.clone(), None).and_then(|mut inspection| inspection.verify());
    match verified {
        Err(error) if is_told(&error) => {}
        verified => return wrong("verify", format!("{verified:?}")),
    }
    let repair =
        |orders: &RepairOrders| Store::repair(disk, &|_| Ok(Some(disk.folder("quarantine"))), orders);
    let (mut accept_epoch, mut accept_tail) = (None, None);
    let holder = match (repair(&RepairOrders::default()), row) {
        (Err(RepairError::SuperblockOlder { newest, holder, .. }), Row::SuperblockOlder) => {
            accept_epoch = Some(newest);
            holder
        }
        (Err(RepairError::PastCleanMark { tail, holder, .. }), Row::PastCleanMark) => {
            accept_tail = Some(tail);
            holder
        }
        (repaired, _) => return wrong("repair", format!("{repaired:?}")),
    };
    if holder == Holder::Member {
        return Ok(());
    }
    let orders = RepairOrders { accept_epoch, accept_tail, ..RepairOrders::default() };
    let repaired = repair(&orders).map_err(|error| format!("OLDER SUPERBLOCK: by {orders:?}: {error}"))?;
    if !repaired.left.is_empty() {
        // What was trimmed since is missing to the older superblock.
        return Ok(());
    }
    let (store, opened) =
        open(disk, OpenMode::Tail, BOOT).map_err(|error| format!("OLDER SUPERBLOCK: accepted: {error}"))?;
    let found = seen(&store, opened.tail)?;
    let found: Vec<Lsn> = found.records.iter().map(|found| found.lsn).collect();
    let low = oracle.trimmed.1;
    let kept = oracle.records.iter().map(|entry| entry.start);
    let lost = kept.filter(|lsn| low <= *lsn && *lsn < oracle.acknowledged).find(|lsn| !found.contains(lsn));
    match lost {
        None => Ok(()),
        Some(lsn) => wrong("accepted", format!("LOST: the record at {lsn}")),
    }
}

#[cfg(test)]
mod tests {
    use windlass_log::{Epoch, EpochHistory, StopReason};
    use windlass_store::Damage;
    use windlass_store::disk::testing::Unit;

    use super::*;
    use crate::life::Workload;
    use crate::sweep::Kind;

    /// A life of this workload, stopped at this step.
    fn lived(workload: Workload, step: u64, restless: Option<u64>) -> (TestDisk, Oracle) {
        let (disk, mut oracle) = (TestDisk::new(), Oracle::default());
        disk.write_back_between(restless);
        disk.stop_at(step);
        let gone = workload.live(&disk, &mut oracle, 1);
        disk.write_back_between(None);
        assert_eq!(gone.is_err(), disk.stopped());
        (disk, oracle)
    }

    /// What a crash of this kind leaves at this step, and what it must be.
    fn image(workload: Workload, step: u64, kind: Kind) -> (TestDisk, Oracle) {
        let (disk, oracle) = lived(workload, step, (kind == Kind::Reordered).then_some(7));
        let by = |unit| Survive::By { unit, seed: 5 };
        let image = match kind {
            Kind::Lost => disk.after_power_loss(Survive::Nothing),
            Kind::Kept => disk.after_power_loss(Survive::Everything),
            Kind::TornSectors | Kind::Reordered => disk.after_power_loss(by(Unit::Sector)),
            Kind::TornPages => disk.after_power_loss(by(Unit::Page)),
            Kind::Killed => disk.after_kill().copied_in_place(),
        };
        (image, oracle)
    }

    /// Late among a workload's steps, where something is damaged or nothing is.
    fn step(workload: Workload, is_damaged: bool) -> u64 {
        let steps = lived(workload, u64::MAX, None).0.steps();
        let mut late = (0..steps * 4 / 5).rev();
        late.find(|step| lived(workload, *step, None).1.damaged == is_damaged).unwrap()
    }

    /// Something other than what the undisturbed recovery has come to, and what says so.
    type Other = (&'static str, fn(&mut Undisturbed, &mut Oracle));

    /// Each of these is found behind a recovery that was stopped at its first step and at its last, and that nobody disturbed holds.
    fn each_is_found(workload: Workload, is_damaged: bool, others: &[Other], survive: &[Option<Survive>]) {
        let step = step(workload, is_damaged);
        for kind in Kind::ALL {
            let (image, oracle) = image(workload, step, kind);
            let undisturbed = undisturbed(&image, kind.boot()).unwrap();
            let steps = undisturbed.steps;
            for (at, survive) in
                [0, steps - 1].into_iter().flat_map(|at| survive.iter().map(move |by| (at, *by)))
            {
                let again = |expected: &Undisturbed, oracle: &Oracle| {
                    again(&image, expected, oracle, kind.boot(), at, survive)
                };
                assert_eq!(again(&undisturbed, &oracle), Ok(()), "{workload:?}, {kind:?}");
                for (word, other) in others {
                    let (mut expected, mut oracle) = (undisturbed.clone(), oracle.clone());
                    other(&mut expected, &mut oracle);
                    let said = again(&expected, &oracle).err().unwrap_or_default();
                    let begins = format!("recovery stopped at its step {at}, {survive:?}: I-7: {word}");
                    assert!(said.starts_with(&begins), "{workload:?}, {kind:?}: {begins}: {said}");
                }
            }
            let beyond = again(&image, &undisturbed, &oracle, kind.boot(), steps, None);
            assert!(
                beyond.is_err_and(|said| said.contains("now has none of number")),
                "{workload:?}, {kind:?}"
            );
        }
    }

    const POWER_OR_NOT: [Option<Survive>; 2] = [None, Some(Survive::Nothing)];
    /// Of any log.
    const ANY: [Other; 5] = [
        ("LOST: R-5: the promise", |_, oracle| oracle.promised = Epoch::from_bits(u64::MAX)),
        ("the promise: ", |end, _| end.superblock.promised = Epoch::from_bits(u64::MAX)),
        ("the history below the tail: ", |end, _| end.superblock.history = EpochHistory::new()),
        ("place and incarnation: ", |end, _| end.superblock.place ^= 1),
        ("a copy: ", |end, _| end.opened.copied ^= true),
    ];
    /// Where nothing was damaged.
    const WHOLE: [Other; 7] = [
        ("reopened: ", |end, _| end.seen.tail.0 += 8),
        ("reopened: ", |end, _| end.seen.trimmed.0 -= 8),
        ("reopened: ", |end, _| drop(end.seen.records.pop())),
        ("the mark: ", |end, _| end.superblock.persisted.0 += 8),
        ("what was acknowledged: ", |end, _| end.superblock.acknowledged.0 += 8),
        ("damage: ", |end, _| end.opened.damage.push(damage())),
        ("what may be acknowledged: ", |end, _| end.opened.acknowledged_max = Some(Lsn(u64::MAX))),
    ];
    /// Of a member whose log is damaged.
    const DAMAGED: [Other; 4] = [
        ("reopened: LOST: R-18: the log ends at ", |_, oracle| oracle.answered = Lsn(u64::MAX)),
        ("the mark: ", |end, _| end.superblock.persisted = Lsn(u64::MAX)),
        ("R-18: acknowledged: ", |end, _| end.superblock.acknowledged = Lsn(u64::MAX)),
        ("damage: ", |end, _| {
            end.superblock.acknowledged = Lsn(0);
            end.opened.damage = vec![Damage { start: Lsn(u64::MAX), ..damage() }];
        }),
    ];
    /// Of a log that was not closed.
    const UNCLEAN: [Other; 1] = [("closed cleanly: ", |end, _| end.superblock.clean = Some(end.opened.tail))];
    /// Of a member.
    const MEMBER: [Other; 2] = [
        ("the configuration: ", |end, _| end.superblock.configuration.push(0)),
        ("LOST: the configuration is number ", |_, oracle| oracle.note = (u64::MAX, u64::MAX)),
    ];
    /// Of a member where the power does not go.
    const EPOCH: [Other; 1] = [("the epoch: ", |end, _| end.superblock.configuration.clear())];
    /// Where the power does not go.
    const BOOTED: [Other; 1] = [("R-19: caught up: ", |end, _| end.superblock.caught_up ^= true)];

    fn damage() -> Damage {
        let (start, end) = (Lsn(4096), Lsn(4160));
        Damage {
            start,
            end,
            is_whole_behind: false,
            file: "file".into(),
            offset: 0,
            reason: StopReason::Blank,
        }
    }

    #[test]
    fn i_7_a_lone_log_that_recovers_to_another_end_behind_a_stopped_recovery_is_found_whatever_the_crash() {
        let others = [&ANY[..], &WHOLE, &UNCLEAN].concat();
        each_is_found(Workload::Append, false, &others, &POWER_OR_NOT);
        each_is_found(Workload::Append, false, &BOOTED, &[None]);
    }

    #[test]
    fn i_7_a_member_that_recovers_to_another_end_behind_a_stopped_recovery_is_found_whatever_the_crash() {
        let others = [&ANY[..], &WHOLE, &UNCLEAN, &MEMBER].concat();
        each_is_found(Workload::Takeover, false, &others, &POWER_OR_NOT);
        each_is_found(Workload::Takeover, false, &[&BOOTED[..], &EPOCH].concat(), &[None]);
    }

    #[test]
    fn i_7_a_damaged_member_that_recovers_to_less_behind_a_stopped_recovery_is_found_whatever_the_crash() {
        let others = [&ANY[..], &DAMAGED, &MEMBER].concat();
        each_is_found(Workload::Repair, true, &others, &POWER_OR_NOT);
    }
}
