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

mod fill;
mod quarantine;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use windlass_log::{
    Class, Epoch, Extent, Geometry, HistoryError, Holder, Lsn, Row, SEGMENT_HEADER_BYTES,
    SEGMENT_START_BYTES, SegmentHeaderError, StopReason, Superblock, SuperblockEncodeError,
};

pub use self::survey::Tally;

use self::fill::Fill;
use self::quarantine::{Keep, Quarantine, Rehearsal};
use self::survey::{Mended, Survey};
use crate::disk::{Access, Disk, DiskFile, Locked};
use crate::error::{At, DiskCall, DiskError};
use crate::examine::{Identified, holder_of, identify_forgiving, judge_folder};
use crate::folder;
use crate::image::{Forgiving, Unreadable};
use crate::names;
use crate::newer;
use crate::open::{BadHeader, OpenError, destroy_torn, older_remedy, past_remedy, rewrite_in_place};
use crate::open_cut::{OpenCutError, cut_closed};
use crate::open_damaged::is_mendable;
use crate::options::{Options, UnsafeFilesystem};
use crate::past;
use crate::scrub::{Damage, mend_header};
use crate::store::Store;
use crate::superblock;

/// What a repair may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairOrders {
    /// Look, and change nothing: with other orders, say what a repair with these would come to.
    pub dry_run: bool,
    /// The damaged ranges to give up, each as a repair has named it. Only all of them, or none.
    pub give_up: Vec<Range<Lsn>>,
    /// Of a lone log whose superblock is older than the log: make its history from the records, whose newest epoch, as a repair has named it, is this.
    pub accept_epoch: Option<Epoch>,
    /// Of a lone log that has gone on behind its clean mark, so that its superblock is older than it: keep what lies there as the log's end, which, as a repair has named it, is here.
    pub accept_tail: Option<Lsn>,
    /// See [`UnsafeFilesystem`].
    pub unsafe_filesystem: UnsafeFilesystem,
    /// What time it is, in seconds since 1970, for the note.
    pub at_s: u64,
}

impl RepairOrders {
    /// Whether something is to be given up or accepted.
    #[must_use]
    pub fn has_any(&self) -> bool {
        !self.give_up.is_empty() || self.accept_epoch.is_some() || self.accept_tail.is_some()
    }
}

/// Something amiss in a folder, in the order in which it is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// A repair before was cut short; this one goes on with it first.
    Interrupted,
    /// A copy of the superblock is damaged or older than the other one: it is written again from that.
    SuperblockCopy {
        /// 0 or 1.
        copy: usize,
    },
    /// The superblock is older than the log: records are of epochs above its promise. Everything else is looked at as if it had their epochs.
    SuperblockOlder {
        /// What it has promised.
        promised: Epoch,
        /// Where the first epoch above begins.
        lsn: Lsn,
        /// The newest epoch of the log's records, which an order has to name.
        newest: Epoch,
    },
    /// The superblock is older than the log: whole records lie behind the place where it says that the log was closed. Everything else is looked at as if it had no clean mark.
    PastCleanMark {
        /// Where the log was closed, by its word.
        clean: Lsn,
        /// Where the first whole record behind that starts.
        lsn: Lsn,
        /// Where the whole records end, which an order has to name.
        tail: Lsn,
    },
    /// A segment's header is damaged; everything in it is known, so it is written again.
    SegmentHeader {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        cause: BadHeader,
    },
    /// A file with a segment's name has another length, or its name is no segment's place. Kept in the quarantine as it is. At a segment's place it gets a segment's length, with zeros for what it
    /// lacks, so that what is whole in it stays; else it is taken out.
    Misfit {
        /// The file.
        file: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// Whether it is at a segment's place.
        is_segment: bool,
    },
    /// The medium answers with an error: what is there counts as lost, and the pages are written again as zeros.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Which bytes of it, in whole pages.
        offsets: Range<u64>,
    },
    /// Something has a segment's name and is no plain file: it has to be moved away by whoever operates the log.
    NoFile {
        /// What it is.
        file: PathBuf,
    },
    /// A file has a segment's name, and a whole header of another log, place, version or byte order: it has to be moved away by whoever operates the log.
    Foreign {
        /// The file.
        file: PathBuf,
        /// What its header says.
        cause: BadHeader,
    },
    /// The log ends in a torn record: cut.
    Torn {
        /// Where.
        lsn: Lsn,
        /// What is wrong there.
        reason: StopReason,
    },
    /// Something that was on the medium is lost.
    Damaged(Damage),
}

/// What a repair came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// What was amiss.
    pub findings: Vec<Finding>,
    /// What is whole.
    pub kept: Tally,
    /// The first LSN of the log.
    pub trimmed: Lsn,
    /// Where the whole log ends, as far as it can be told.
    pub tail: Lsn,
    /// Whose log it is.
    pub holder: Holder,
    /// Where the log still ends in what a crash has torn: in a dry run, and of a member's log, whose end is its primary's to decide. Nothing durable is lost by it, and opening goes on there.
    pub torn: Option<Lsn>,
    /// What was given up now (in a dry run: what its orders would give up), by this repair's orders or by those of an interrupted one that it has gone on with: nothing of it can be read any more.
    pub given_up: Vec<Range<Lsn>>,
    /// Damage that is still there: no order named it, or it is a member's, whose peers have it.
    pub left: Vec<Range<Lsn>>,
    /// The files in the quarantine's folder that this repair has made; in a dry run with orders those that it would make.
    pub quarantined: Vec<String>,
}

impl Repaired {
    /// What has to be moved away before anything can be repaired.
    pub fn in_the_way(&self) -> impl Iterator<Item = &Path> {
        self.findings.iter().filter_map(|finding| match finding {
            Finding::NoFile { file } | Finding::Foreign { file, .. } => Some(file.as_path()),
            Finding::Interrupted
            | Finding::SuperblockCopy { .. }
            | Finding::SuperblockOlder { .. }
            | Finding::PastCleanMark { .. }
            | Finding::SegmentHeader { .. }
            | Finding::Misfit { .. }
            | Finding::Unreadable { .. }
            | Finding::Torn { .. }
            | Finding::Damaged(_) => None,
        })
    }
}

/// Why a log was not repaired. What was changed until then is in the quarantine as it was, and the next repair goes on.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// There is no log, it is in use, its superblock is lost, or a file is another log's: the error says what to do.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log does not fit its superblock: that is from another time than the segments. Restore the folder from a copy, or salvage what is readable.
    #[error(
        "the superblock does not fit the log ({row:?} at LSN {lsn}): restore the folder from a copy, or salvage what is readable"
    )]
    Unfit {
        /// The row of the decision table.
        row: Row,
        /// Where.
        lsn: Lsn,
    },
    /// The superblock is older than the log, and no order names the log's newest epoch. Put back the superblock that belongs to the log. Of a lone log the history is made again from its records where the order
    /// names that epoch; a member's promise nobody else has: a new member with an empty folder takes its place. Nothing was changed.
    #[error(
        "the superblock is older than the log: it has promised no epoch above {promised}, and the log has records up to epoch {newest}; {}", older_remedy(*holder)
    )]
    SuperblockOlder {
        /// What the superblock has promised.
        promised: Epoch,
        /// The newest epoch of the log's records.
        newest: Epoch,
        /// Whose log it is.
        holder: Holder,
    },
    /// The epoch to be accepted is not the newest of the log's records: a dry run names it. Nothing was changed.
    #[error(
        "epoch {epoch} was to be accepted, and is not the newest of the log's records above the superblock's promise: a dry run names it"
    )]
    NotNewest {
        /// The epoch ordered.
        epoch: Epoch,
    },
    /// The log has gone on behind the place where its superblock says that it was closed, and no order names the log's tail. Put back the superblock that belongs to the log. Of a lone log what lies
    /// there is kept as its end where the order names that; a member's promise nobody else has: a new member with an empty folder takes its place. Nothing was changed.
    #[error(
        "the superblock is older than the log: it says that the log was closed at LSN {clean}, and the log has whole records up to LSN {tail}; {}", past_remedy(*holder)
    )]
    PastCleanMark {
        /// Where the log was closed, by the superblock's word.
        clean: Lsn,
        /// Where its whole records end.
        tail: Lsn,
        /// Whose log it is.
        holder: Holder,
    },
    /// The tail to be accepted is not where the log's whole records end: a dry run names that. Nothing was changed.
    #[error(
        "LSN {tail} was to be accepted as the log's tail, and is not where its whole records end: a dry run names that"
    )]
    NotTail {
        /// The LSN ordered.
        tail: Lsn,
    },
    /// Too much is damaged to be listed: salvage what is readable.
    #[error("more than {ranges} ranges are damaged: salvage what is readable")]
    TooMuch {
        /// As many as were counted.
        ranges: usize,
    },
    /// What was ordered to be given up is not what is damaged: a dry run names it. Nothing was changed.
    #[error("LSNs {} to {} were to be given up, and are not what is damaged: a dry run names it", range.start, range.end)]
    NotDamaged {
        /// What was ordered.
        range: Range<Lsn>,
    },
    /// A member's log is not given up: its peers have what it lost. Nothing was changed.
    #[error(
        "the log belongs to a member of a group, whose peers have what it lost: nothing is given up, start the member"
    )]
    Member,
    /// The quarantine's note of an interrupted repair is not as a repair of this log has written it: it is damaged, or something else has been at it. Nothing is done by it.
    /// Moved away, the log is as the interrupted repair has left it, and what that has changed is in the quarantine.
    #[error(
        "{}: not the orders of a repair of this log: they are damaged, or something else has been at the quarantine. Restore the folder from a copy, \
         salvage what is readable, or move this file away and see with a dry run what is damaged", file.display()
    )]
    Note {
        /// The note.
        file: PathBuf,
    },
    /// The quarantine's note of an interrupted repair orders a cut that the log does not take. What the repair has done before the cut stays, and what that has changed is in the quarantine.
    #[error(
        "{}: the repair that was cut short orders a cut that can't be made ({source}): the log has changed since, or something else has been at the quarantine. \
         Move this file away and see with a dry run what is damaged now, or salvage what is readable", file.display()
    )]
    Cut {
        /// The note.
        file: PathBuf,
        /// Why it can't.
        source: Box<OpenCutError>,
    },
    /// Something has a segment's name that is no file of this log, and takes the place of one that may be whole elsewhere. Nothing was changed.
    #[error(
        "{}: no file of this log, in a segment's place ({count} of these; a dry run names all that is amiss): move it out of the folder, put the log's own file there if there is a copy of it, \
         and repair again", file.display()
    )]
    InTheWay {
        /// The first of them.
        file: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// The superblock has no room for another epoch.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The superblock can't hold what it held: a defect.
    #[error(transparent)]
    Encode(#[from] SuperblockEncodeError),
    /// A system call failed; repair again.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

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

/// What is to be done beside what the report says.
struct Plan {
    /// The superblock that the log needs, where the one that is there is older: all else is planned under it.
    accepted: Option<Superblock>,
    /// Where the clean mark is that the log has gone on behind, and where that ends: why it is older then.
    past: Option<(Lsn, Lsn)>,
    copies: Vec<usize>,
    headers: BTreeSet<u64>,
    /// By the LSN in their names, with their lengths.
    misfits: BTreeMap<Lsn, u64>,
    unreadable: Vec<Range<Lsn>>,
    survey: Survey,
}

fn look<D: Disk>(disk: &D, quarantine: &Option<D>) -> Result<(Repaired, Plan), RepairError> {
    let Identified { now, geometry, copies, live, .. } = identify_forgiving(disk, Access::Read)?;
    let listing = folder::list(disk)?;
    let older = newer::accepted(disk, &now, geometry, &listing)??;
    let past = if older.is_none() { past::accepted(disk, &now, geometry, &listing)? } else { None };
    let file_at = |base: Lsn| disk.path().join(names::segment_at(base));
    let mut findings = Vec::new();
    if let Some(quarantine) = quarantine
        && quarantine::begun(quarantine, now.log_id)?.is_some_and(|begun| begun.fill.is_for(&now))
    {
        findings.push(Finding::Interrupted);
    }
    let copies = copies.to_mend(&now);
    findings.extend(copies.iter().map(|copy| Finding::SuperblockCopy { copy: *copy }));
    findings.extend(older.as_ref().map(|accepted| {
        let lsn = accepted.history.entries().iter().find(|entry| entry.epoch > now.promised);
        let lsn = lsn.expect("what is accepted is above the promise").start;
        Finding::SuperblockOlder { promised: now.promised, lsn, newest: accepted.promised }
    }));
    findings.extend(past.as_ref().map(|past| {
        let past::Accepted { clean, first, tail, .. } = *past;
        Finding::PastCleanMark { clean, lsn: first, tail }
    }));
    let ends = past.as_ref().map(|past| (past.clean, past.tail));
    let accepted = older.or(past.map(|past| past.superblock));
    let now = accepted.clone().unwrap_or(now);
    let live = live.flushed(&now.history);
    findings.extend(listing.no_files.iter().map(|base| Finding::NoFile { file: file_at(*base) }));
    let mut image = Mended::new(disk, geometry, now.log_id, &listing);
    let mut misfits = BTreeMap::new();
    for (base, len_bytes) in &listing.segments {
        let (number, file) = (geometry.segment_of(*base), file_at(*base));
        let is_segment = geometry.offset_of(*base) == 0;
        let header = if is_segment { image.header(number)? } else { Ok(()) };
        match header {
            Err(cause) if !is_mendable(&cause) => {
                findings.push(Finding::Foreign { file, cause });
                image.forgiving.absent.insert(number);
                continue;
            }
            Ok(()) | Err(_) => {}
        }
        if !is_segment || *len_bytes != geometry.segment_bytes() {
            misfits.insert(*base, *len_bytes);
            findings.push(Finding::Misfit { file: file.clone(), len_bytes: *len_bytes, is_segment });
        }
        let Err(cause) = header else { continue };
        // Ahead of the log, where a header may not have got there: nothing was written behind it then.
        let is_ahead = matches!(cause, BadHeader::Unreadable(SegmentHeaderError::Blank))
            && geometry.first_record(number) >= now.persisted.max(live)
            && image.is_readable(*base);
        if !is_ahead || image.has_record(&now, number)? {
            findings.push(Finding::SegmentHeader { file, cause });
            image.headers.insert(number);
        }
    }
    let survey = survey::survey(&mut image, &now, live, geometry, disk.path())?;
    let Mended { forgiving: Forgiving { unreadable, .. }, headers, .. } = image;
    if unreadable.has_more() {
        return Err(RepairError::TooMuch { ranges: Unreadable::LISTED_MAX });
    }
    // Ranges may join over the end of a file.
    let unreadable = unreadable.ranges().iter().flat_map(|range| by_segment(geometry, range));
    let unreadable: Vec<Range<Lsn>> = unreadable.collect();
    findings.extend(unreadable.iter().map(|range| {
        let number = geometry.segment_of(range.start);
        let base = geometry.base(number);
        Finding::Unreadable { file: file_at(base), offsets: range.start.0 - base.0..range.end.0 - base.0 }
    }));
    findings.extend(survey.torn.as_ref().map(|stop| Finding::Torn { lsn: stop.lsn, reason: stop.reason }));
    findings.extend(survey.damage.iter().cloned().map(Finding::Damaged));
    let left = survey.damage.iter().map(|damage| damage.start..damage.end).collect();
    let repaired = Repaired {
        findings,
        kept: survey.kept,
        trimmed: now.trimmed,
        tail: survey.tail,
        holder: holder_of(&now),
        torn: survey.torn.as_ref().map(|stop| stop.lsn),
        given_up: Vec::new(),
        left,
        quarantined: Vec::new(),
    };
    Ok((repaired, Plan { accepted, past: ends, copies, headers, misfits, unreadable, survey }))
}

/// The parts of a range in one segment each.
fn by_segment(geometry: Geometry, range: &Range<Lsn>) -> Vec<Range<Lsn>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let end = range.end.min(geometry.base(geometry.segment_of(at) + 1));
        parts.push(at..end);
        at = end;
    }
    parts
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

impl Plan {
    fn misfit_segments(&self, now: &Superblock) -> BTreeSet<u64> {
        self.misfits.keys().map(|base| base.0 / now.segment_bytes).collect()
    }

    /// The orders for what is found.
    fn fill(&self, now: &Superblock, is_member: bool, gives_up: bool) -> Fill {
        let mut fill = Fill::new(now.log_id, now.generation);
        let is_left = !self.survey.damage.is_empty() && !gives_up;
        // What the files lack reads as zeros then: of a log that nobody repairs, that would pass for its end.
        if is_member || !is_left {
            fill.misfits = self.misfits.iter().map(|(base, len)| (*base, *len)).collect();
            fill.unreadable.clone_from(&self.unreadable);
        }
        let has_its_length = |number: &&u64| {
            fill.misfits.len() == self.misfits.len() || !self.misfit_segments(now).contains(number)
        };
        fill.headers = self.headers.iter().filter(has_its_length).copied().collect();
        if gives_up {
            let interior = self.survey.damage.iter().filter(|damage| damage.is_whole_behind);
            fill.ranges = interior.map(|damage| damage.start..damage.end).collect();
            fill.cut.clone_from(&self.survey.cut);
        }
        fill.torn = self.survey.torn.as_ref().map(|stop| stop.lsn).filter(|_| !is_left);
        fill
    }
}

/// Copies a superblock that is older than the log.
fn keep_superblock(kept: &mut impl Keep) -> Result<(), RepairError> {
    for copy in [0, superblock::COPY_BYTES] {
        let why = "a superblock older than the log, before it was made to fit the log's records";
        kept.range(names::SUPERBLOCK, copy, superblock::COPY_BYTES, None, why)?;
    }
    Ok(())
}

/// Copies whatever is going to change.
fn keep(
    kept: &mut impl Keep,
    geometry: Geometry,
    plan: &Plan,
    fill: &Fill,
    tail: Lsn,
) -> Result<(), RepairError> {
    for copy in &plan.copies {
        let bytes = superblock::COPY_BYTES;
        let why = "a damaged or older copy of the superblock, before it was written again from the other one";
        kept.range(names::SUPERBLOCK, *copy as u64 * bytes, bytes, None, why)?;
    }
    for number in &fill.headers {
        let why = "the damaged header of a segment, before it was written again";
        kept.range(&names::segment(geometry, *number), 0, SEGMENT_HEADER_BYTES, None, why)?;
    }
    for (base, len_bytes) in &fill.misfits {
        let why = if geometry.offset_of(*base) == 0 {
            "a file of another length than a segment's, before it got that"
        } else {
            "a file at no segment's place, taken out of the log"
        };
        kept.range(&names::segment_at(*base), 0, *len_bytes, None, why)?;
    }
    for range in &fill.unreadable {
        let number = geometry.segment_of(range.start);
        let (offset, bytes) = (geometry.offset_of(range.start), range.end.0 - range.start.0);
        let why = "what the medium did not give, before it was written again as zeros";
        kept.range(&names::segment(geometry, number), offset, bytes, Some(range.clone()), why)?;
    }
    if let Some(stop) = plan.survey.torn.as_ref().filter(|stop| fill.torn == Some(stop.lsn)) {
        let end = geometry.base(geometry.segment_of(stop.lsn) + 1);
        let why = format!("the torn end of the log, before it was cut: {}", stop.reason);
        kept.log_range(geometry, stop.lsn..end, &why)?;
    }
    if fill.given_up().next().is_none() {
        return Ok(());
    }
    for damage in &plan.survey.damage {
        let why = format!("a damaged range, given up by order: {}", damage.reason);
        kept.log_range(geometry, damage.start..damage.end, &why)?;
    }
    // Behind what is given up the chain comes to speak of the filler.
    let first = plan.survey.damage.iter().map(|damage| geometry.segment_of(damage.start)).min().unwrap_or(0);
    for number in first + 1..=geometry.segment_of(tail) {
        let (at, why) = (geometry.first_record(number), "a segment-start record, whose chain may change");
        let end = Lsn(at.0 + SEGMENT_START_BYTES);
        let offset = geometry.offset_of(at);
        kept.range(&names::segment(geometry, number), offset, SEGMENT_START_BYTES, Some(at..end), why)?;
    }
    Ok(())
}

/// Does what is noted in the quarantine; may be done again.
fn act<D: Disk>(disk: &D, fill: &Fill, note: &Path, orders: &RepairOrders) -> Result<(), RepairError> {
    let no_orders = || RepairError::Note { file: note.to_path_buf() };
    let Identified { now, geometry, .. } = identify_forgiving(disk, Access::Read)?;
    if !fill.fits(disk, &now, geometry)? {
        return Err(no_orders());
    }
    for range in &fill.unreadable {
        fill::blank(disk, geometry, range)?;
    }
    for (base, len_bytes) in &fill.misfits {
        if geometry.offset_of(*base) == 0 {
            fill::restore_length(disk, geometry, *base, *len_bytes)?;
        } else if folder::list(disk)?.segments.contains_key(base) {
            let name = names::segment_at(*base);
            disk.remove(&name).at(DiskCall::Remove, disk.path(), &name)?;
        }
    }
    disk.sync_folder().at(DiskCall::SyncFolder, disk.path(), "")?;
    for number in &fill.headers {
        mend_header(disk, geometry, *number, fill::header(geometry, now.log_id, *number))?;
    }
    fill::fill(disk, &now, geometry, fill, note)?;
    if let Some(lsn) = fill.torn {
        destroy_torn(disk, geometry, lsn)?;
        // Where its place was blank that took nothing away of what lies behind: a new epoch does, as at an opening. The end of a member's log is its primary's.
        if holder_of(&now) == Holder::Lone && torn_at(disk)? == Some(lsn) {
            return cut(disk, orders, lsn, note);
        }
    }
    let Some(Range { start: lsn, .. }) = fill.cut else { return Ok(()) };
    // That the newest epoch begins there says nothing by itself: the damage may begin where it does.
    if now.generation != fill.generation {
        // Cut already, perhaps not to the end.
        return Ok(destroy_torn(disk, geometry, lsn)?);
    }
    cut(disk, orders, lsn, note)
}

/// Where the log ends in what a crash has torn.
fn torn_at<D: Disk>(disk: &D) -> Result<Option<Lsn>, RepairError> {
    let Identified { now, geometry, live, .. } = identify_forgiving(disk, Access::Read)?;
    let live = live.flushed(&now.history);
    let verdict = judge_folder(disk, &now, live, geometry, Extent::Whole)?;
    Ok((verdict.class() == Class::Torn).then_some(verdict.tail()))
}

/// Cuts a lone log, in a new epoch.
fn cut<D: Disk>(disk: &D, orders: &RepairOrders, lsn: Lsn, note: &Path) -> Result<(), RepairError> {
    let options = Options { unsafe_filesystem: orders.unsafe_filesystem, ..Options::default() };
    cut_closed(disk, &options, lsn).map_err(|error| match error {
        OpenCutError::Open(error) => RepairError::Open(error),
        // A repair cuts a lone log alone, at a place where a scan of it has stopped: the log has changed since, or the orders are another's.
        refused @ (OpenCutError::Member { .. }
        | OpenCutError::Trimmed { .. }
        | OpenCutError::InsideRecord { .. }
        | OpenCutError::Beyond { .. }) => {
            RepairError::Cut { file: note.to_path_buf(), source: Box::new(refused) }
        }
    })
}

/// Flushes a file of the log.
fn sync<D: Disk>(disk: &D, file: &D::File, name: &str) -> Result<(), DiskError> {
    file.sync().at(DiskCall::Sync, disk.path(), name)
}
