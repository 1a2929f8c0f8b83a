//! Repairing the folder of a log that nobody has open, by order of whoever operates it: `windlass log repair`. DESIGN.md section 6.5.
//!
//! ```text
//!  lock → look: superblock, files, every record → (dry run: say so, and nothing else)
//!       → quarantine: what is going to change is copied, with a note, and flushed → orders.begun
//!       → mend the superblock's copy, headers → fill what is given up with pads, make the chain right → cut → flush
//!       → orders.begun becomes orders.done → look again
//! ```
//!
//! Invariants:
//!
//! * nothing is changed in the log before what was there is durable in the quarantine, with a note that says what it is (kind 3);
//! * a superblock that is older than the log is written anew by an order alone that names the log's newest epoch, or where that is the same the log's tail, and a member's never;
//! * nothing that was on the medium is given up but by an order that names its range;
//! * a crash at any call leaves the log as it was, or repaired, or in between with `orders.begun` in the quarantine, from which the next repair goes on to the same end,
//!   but where the log was opened or cut meanwhile: orders from before are void then.

mod act;
mod error;
mod fill;
mod plan;
mod quarantine;
mod report;
mod survey;

use std::ops::Range;

use windlass_log::{Holder, Lsn, Superblock};

pub use self::error::RepairError;
pub use self::report::{Finding, RepairOrders, Repaired};
pub use self::survey::Tally;

use self::act::{act, keep, keep_superblock};
use self::fill::Fill;
use self::plan::{Plan, look};
use self::quarantine::{Quarantine, Rehearsal};
use crate::disk::{Access, Disk, DiskFile, Locked};
use crate::error::{At, DiskCall, DiskError};
use crate::examine::{Identified, identify_forgiving};
use crate::folder;
use crate::open::{OpenError, rewrite_in_place};
use crate::store::Store;
use crate::superblock;

/// Whether the quarantine's folder is made where it is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Make {
    /// `None` then.
    Never,
    /// With its name durable.
    IfAbsent,
}

/// The quarantine's folder: the same for a repair and for the one that goes on with it.
pub type QuarantinePlace<'a, D> = &'a dyn Fn(Make) -> Result<Option<D>, DiskError>;

impl<D: Disk> Store<D> {
    /// Looks at a folder that nobody has open, and brings the log in it back to opening as far as the orders let it. See the module.
    ///
    /// # Errors
    ///
    /// [`RepairError`].
    pub fn repair(
        disk: &D,
        quarantine: QuarantinePlace<'_, D>,
        orders: &RepairOrders,
    ) -> Result<Repaired, RepairError> {
        drop(identify_forgiving(disk, Access::Read)?);
        // Not by the ways of an opener, which writes down who it is.
        let _lock = match disk.lock().at(DiskCall::Lock, disk.path(), "")? {
            Locked::Held(lock) => lock,
            Locked::Busy => {
                let (folder, holder) = (disk.path().to_path_buf(), folder::read_owner(disk));
                return Err(OpenError::InUse { folder, holder }.into());
            }
        };
        if let Err(filesystem) = folder::check_filesystem(disk, orders.unsafe_filesystem)? {
            let folder = disk.path().to_path_buf();
            return Err(OpenError::Filesystem { folder, filesystem }.into());
        }
        if orders.dry_run {
            return rehearse(disk, &quarantine(Make::Never)?, orders);
        }
        repair_locked(disk, quarantine, orders)
    }
}

/// Goes on with a repair that was cut short, if the log has not been opened since. What that has given up.
fn go_on<D: Disk>(disk: &D, quarantine: &D, orders: &RepairOrders) -> Result<Vec<Range<Lsn>>, RepairError> {
    let now = identify_forgiving(disk, Access::Read)?.now;
    let Some(begun) = quarantine::begun(quarantine, now.log_id)? else { return Ok(Vec::new()) };
    if !begun.fill.is_for(&now) {
        begun.void(quarantine)?;
        return Ok(Vec::new());
    }
    act(disk, &begun.fill, &begun.note, orders)?;
    begun.done(quarantine)?;
    Ok(begun.fill.given_up().collect())
}

/// Whether the orders are for the log as it is: nothing is changed by any that are not.
fn check<D: Disk>(
    repaired: &Repaired,
    plan: &Plan,
    now: &Superblock,
    before: &Option<D>,
    orders: &RepairOrders,
) -> Result<(), RepairError> {
    if let Some(epoch) = orders.accept_epoch.filter(|epoch| *epoch > now.promised)
        && plan.accepted.as_ref().is_none_or(|accepted| accepted.promised != epoch)
    {
        return Err(RepairError::NotNewest { epoch });
    }
    let tail = plan.past.map_or(repaired.tail, |(_, tail)| tail);
    if let Some(tail) = orders.accept_tail.filter(|accepted| *accepted != tail) {
        return Err(RepairError::NotTail { tail });
    }
    let is_member = repaired.holder == Holder::Member;
    if is_member && !orders.give_up.is_empty() {
        return Err(RepairError::Member);
    }
    // What a repair before has given up by the same orders needs nothing more: its end may not have been seen.
    let past = before.as_ref().map(|folder| quarantine::given_up_before(folder, now.log_id));
    let past = past.transpose()?.unwrap_or_default();
    let is_known = |range: &&Range<Lsn>| repaired.left.contains(range) || past.contains(range);
    if let Some(range) = orders.give_up.iter().find(|range| !is_known(range)) {
        return Err(RepairError::NotDamaged { range: range.clone() });
    }
    if let Some(file) = repaired.in_the_way().next() {
        let (file, count) = (file.to_path_buf(), repaired.in_the_way().count());
        return Err(RepairError::InTheWay { file, count });
    }
    if let Some(accepted) = &plan.accepted {
        let (promised, newest, holder) = (now.promised, accepted.promised, repaired.holder);
        match plan.past {
            None if is_member || orders.accept_epoch != Some(newest) => {
                return Err(RepairError::SuperblockOlder { promised, newest, holder });
            }
            Some((clean, tail)) if is_member || orders.accept_tail != Some(tail) => {
                return Err(RepairError::PastCleanMark { clean, tail, holder });
            }
            None | Some(_) => {}
        }
    }
    Ok(())
}

/// Looks, and says what a repair with these orders would come to. What one that was cut short has begun is not rehearsed: the next repair goes on with it, and then looks again.
fn rehearse<D: Disk>(
    disk: &D,
    quarantine: &Option<D>,
    orders: &RepairOrders,
) -> Result<Repaired, RepairError> {
    let (mut repaired, mut plan) = look(disk, quarantine)?;
    if !orders.has_any() || repaired.findings.contains(&Finding::Interrupted) {
        return Ok(repaired);
    }
    let Identified { now, geometry, .. } = identify_forgiving(disk, Access::Read)?;
    check(&repaired, &plan, &now, quarantine, orders)?;
    let mut kept = Rehearsal::new(disk, quarantine)?;
    let now = match plan.accepted.take() {
        Some(accepted) => {
            keep_superblock(&mut kept)?;
            kept.end();
            plan.copies.clear();
            accepted
        }
        None => now,
    };
    let fill = plan.fill(&now, repaired.holder == Holder::Member, gives_up(&repaired, orders));
    if Fill::new(now.log_id, now.generation) != fill || !plan.copies.is_empty() {
        keep(&mut kept, geometry, &plan, &fill, repaired.tail)?;
        kept.end();
    }
    repaired.quarantined = kept.files();
    repaired.given_up = fill.given_up().collect();
    if !repaired.given_up.is_empty() {
        repaired.left.clear();
    }
    repaired.torn = repaired.torn.filter(|lsn| fill.torn != Some(*lsn) || repaired.holder == Holder::Member);
    Ok(repaired)
}

/// Whether the orders name all that is lost.
fn gives_up(repaired: &Repaired, orders: &RepairOrders) -> bool {
    !repaired.left.is_empty() && repaired.left.iter().all(|range| orders.give_up.contains(range))
}

fn repair_locked<D: Disk>(
    disk: &D,
    quarantine: QuarantinePlace<'_, D>,
    orders: &RepairOrders,
) -> Result<Repaired, RepairError> {
    let before = quarantine(Make::Never)?;
    let gone_on = before.as_ref().map(|folder| go_on(disk, folder, orders)).transpose()?.unwrap_or_default();
    let (mut repaired, mut plan) = look(disk, &before)?;
    let now = identify_forgiving(disk, Access::Read)?.now;
    check(&repaired, &plan, &now, &before, orders)?;
    if let Some(accepted) = plan.accepted.take() {
        let quarantined = accept(disk, quarantine, orders, &accepted, &plan.unreadable)?;
        let after = repair_locked(disk, quarantine, orders)?;
        let findings = repaired.findings;
        let quarantined = quarantined.into_iter().chain(after.quarantined).collect();
        let given_up = gone_on.into_iter().chain(after.given_up).collect();
        return Ok(Repaired { findings, quarantined, given_up, ..after });
    }
    let fill = plan.fill(&now, repaired.holder == Holder::Member, gives_up(&repaired, orders));
    let is_nothing = Fill::new(now.log_id, now.generation) == fill;
    if is_nothing && plan.copies.is_empty() {
        repaired.given_up = gone_on;
        return Ok(repaired);
    }
    let Identified { now, geometry, file, .. } = identify_forgiving(disk, Access::ReadWrite)?;
    let folder = quarantine(Make::IfAbsent)?.expect("a folder that was to be made is there");
    let mut kept = Quarantine::new(disk, folder, orders.at_s)?;
    keep(&mut kept, geometry, &plan, &fill, repaired.tail)?;
    repaired.quarantined = kept.begin(&fill)?;
    for copy in &plan.copies {
        superblock::mend_whole(disk, &file, *copy, &now.encode()?)?;
    }
    act(disk, &fill, &kept.note(), orders)?;
    kept.done()?;
    let given_up = gone_on.into_iter().chain(fill.given_up()).collect();
    let (after, _) = look(disk, &None)?;
    let Repaired { left, kept, tail, torn, .. } = after;
    repaired = Repaired { given_up, left, kept, tail, torn, ..repaired };
    Ok(repaired)
}

/// Writes the superblock that the log needs over both copies of one that is older than the log. Done again by the same orders where it was cut short.
fn accept<D: Disk>(
    disk: &D,
    quarantine: QuarantinePlace<'_, D>,
    orders: &RepairOrders,
    accepted: &Superblock,
    unreadable: &[Range<Lsn>],
) -> Result<Vec<String>, RepairError> {
    let Identified { now, geometry, file, copies, .. } = identify_forgiving(disk, Access::ReadWrite)?;
    let folder = quarantine(Make::IfAbsent)?.expect("a folder that was to be made is there");
    let mut kept = Quarantine::new(disk, folder, orders.at_s)?;
    keep_superblock(&mut kept)?;
    let quarantined = kept.begin(&Fill::new(now.log_id, now.generation))?;
    // The first copy touched is never the only whole one.
    for copy in copies.to_mend(&now) {
        superblock::mend_whole(disk, &file, copy, &now.encode()?)?;
    }
    // What it comes to vouch for may not have reached the medium (R-11).
    let mut from = now.persisted;
    for range in
        unreadable.iter().filter(|range| range.end > now.persisted && range.start < accepted.persisted)
    {
        rewrite_in_place(disk, geometry, from, range.start.max(from))?;
        from = range.end;
    }
    if from < accepted.persisted {
        rewrite_in_place(disk, geometry, from, accepted.persisted)?;
    }
    superblock::write_both(disk, &file, &accepted.encode()?)?;
    kept.done()?;
    Ok(quarantined)
}

/// Flushes a file of the log.
fn sync<D: Disk>(disk: &D, file: &D::File, name: &str) -> Result<(), DiskError> {
    file.sync().at(DiskCall::Sync, disk.path(), name)
}
