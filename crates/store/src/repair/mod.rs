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
//! * nothing that was on the medium is given up but by an order that names its range;
//! * a crash at any call leaves the log as it was, or repaired, or in between with `orders.begun` in the quarantine, from which the next repair goes on to the same end,
//!   but where the log was opened or cut meanwhile: orders from before are void then.

mod fill;
mod quarantine;
mod survey;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use windlass_log::{HistoryError, Holder, Lsn, Row, SEGMENT_START_BYTES, StopReason, SuperblockEncodeError};

pub use self::survey::Tally;

use self::fill::Fill;
use self::quarantine::Quarantine;
use self::survey::{Mended, Survey};
use crate::disk::{Access, Disk, DiskFile, Errno, Locked};
use crate::error::{At, DiskCall, DiskError};
use crate::examine::{Identified, header_of, holder_of, identify};
use crate::folder;
use crate::names;
use crate::open::{BadHeader, OpenError, destroy_torn};
use crate::open_cut::{OpenCutError, cut_closed};
use crate::open_damaged::is_mendable;
use crate::options::{Options, UnsafeFilesystem};
use crate::scrub::{Damage, mend_header};
use crate::store::Store;
use crate::superblock;

/// What a repair may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairOrders {
    /// Look, and change nothing.
    pub dry_run: bool,
    /// The damaged ranges to give up, each as a repair has named it. Only all of them, or none.
    pub give_up: Vec<Range<Lsn>>,
    /// See [`UnsafeFilesystem`].
    pub unsafe_filesystem: UnsafeFilesystem,
    /// What time it is, in seconds since 1970, for the note.
    pub at_s: u64,
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
    /// A segment's header is damaged; everything in it is known, so it is written again.
    SegmentHeader {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        cause: BadHeader,
    },
    /// A file with a segment's name has another length: taken into quarantine where its range is given up, or where peers have it.
    Misfit {
        /// The file.
        file: PathBuf,
        /// Its length.
        len_bytes: u64,
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
    /// What was given up now: nothing of it can be read any more.
    pub given_up: Vec<Range<Lsn>>,
    /// Damage that is still there: no order named it, or it is a member's, whose peers have it.
    pub left: Vec<Range<Lsn>>,
    /// The files in the quarantine's folder that this repair has made.
    pub quarantined: Vec<String>,
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
    /// The medium answers with an error where the repair has to look, or has to keep what is there. Copy the folder to another disk and repair the copy, or salvage, which reads
    /// around such places.
    #[error(
        "{}: offset {offset}: the medium does not give what is there ({errno}), so nothing is repaired: copy the folder to another disk and repair it there, or read what is \
         readable into a new log with `windlass log salvage`", file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Where in it, in bytes: the first page that can't be read.
        offset: u64,
        /// What the system answered.
        errno: Errno,
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
        drop(identify(disk, Access::Read, None)?);
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
            return Ok(look(disk, &quarantine(Make::Never)?)?.0);
        }
        repair_locked(disk, quarantine, orders)
    }
}

/// What is to be done beside what the report says.
struct Plan {
    stale: Option<usize>,
    headers: BTreeSet<u64>,
    /// By the LSN in their names.
    misfits: BTreeSet<Lsn>,
    survey: Survey,
}

fn look<D: Disk>(disk: &D, quarantine: &Option<D>) -> Result<(Repaired, Plan), RepairError> {
    let Identified { now, geometry, copies, .. } = identify(disk, Access::Read, None)?;
    let listing = folder::list(disk)?;
    if let Some(base) = listing.no_files.iter().min() {
        let file = disk.path().join(names::segment_at(*base));
        return Err(OpenError::SegmentNoFile { file, base: *base }.into());
    }
    let mut findings = Vec::new();
    if let Some(quarantine) = quarantine
        && quarantine::begun(quarantine)?.is_some_and(|begun| begun.fill.is_for(&now))
    {
        findings.push(Finding::Interrupted);
    }
    let stale = copies.stale(&now);
    findings.extend(stale.map(|copy| Finding::SuperblockCopy { copy }));
    let (mut headers, mut misfits) = (BTreeSet::new(), BTreeSet::new());
    for (base, len_bytes) in &listing.segments {
        let (number, file) = (geometry.segment_of(*base), disk.path().join(names::segment_at(*base)));
        if geometry.offset_of(*base) != 0 || *len_bytes != geometry.segment_bytes() {
            findings.push(Finding::Misfit { file, len_bytes: *len_bytes });
            misfits.insert(*base);
            continue;
        }
        let header = header_of(disk, geometry, number, now.log_id);
        match header.map_err(|error| unreadable(error, 0))? {
            Ok(()) => {}
            // Ahead of the log, where a header may not have got there.
            Err(BadHeader::Unreadable(windlass_log::SegmentHeaderError::Blank))
                if geometry.first_record(number) >= now.persisted => {}
            Err(cause) if is_mendable(&cause) => {
                findings.push(Finding::SegmentHeader { file, cause });
                headers.insert(number);
            }
            Err(cause) => return Err(OpenError::SegmentHeader { file, base: *base, cause }.into()),
        }
    }
    let mut file = None;
    // One at a place that is no segment's takes no segment's place.
    let absent = misfits.iter().filter(|base| geometry.offset_of(**base) == 0);
    let absent = absent.map(|base| geometry.segment_of(*base)).collect();
    let mut image = Mended::new(disk, geometry, now.log_id, &absent, &headers, &mut file);
    let survey = match survey::survey(&mut image, &now, geometry, disk.path()) {
        Ok(survey) => survey,
        Err(RepairError::Disk(error)) => {
            let offset = image.failed_at().map_or(0, |lsn| geometry.offset_of(lsn));
            return Err(unreadable(error, offset));
        }
        Err(error) => return Err(error),
    };
    findings.extend(survey.torn.as_ref().map(|stop| Finding::Torn { lsn: stop.lsn, reason: stop.reason }));
    findings.extend(survey.damage.iter().cloned().map(Finding::Damaged));
    let left = survey.damage.iter().map(|damage| damage.start..damage.end).collect();
    let repaired = Repaired {
        findings,
        kept: survey.kept,
        trimmed: now.trimmed,
        tail: survey.tail,
        holder: holder_of(&now),
        given_up: Vec::new(),
        left,
        quarantined: Vec::new(),
    };
    Ok((repaired, Plan { stale, headers, misfits, survey }))
}

fn repair_locked<D: Disk>(
    disk: &D,
    quarantine: QuarantinePlace<'_, D>,
    orders: &RepairOrders,
) -> Result<Repaired, RepairError> {
    let before = quarantine(Make::Never)?;
    if let Some(folder) = &before
        && let Some(begun) = quarantine::begun(folder)?
    {
        if begun.fill.is_for(&identify(disk, Access::Read, None)?.now) {
            act(disk, &begun.fill, &begun.note, orders)?;
            begun.done(folder)?;
        } else {
            begun.void(folder)?;
        }
    }
    let (mut repaired, plan) = look(disk, &before)?;
    let is_member = repaired.holder == Holder::Member;
    if is_member && !orders.give_up.is_empty() {
        return Err(RepairError::Member);
    }
    if let Some(range) = orders.give_up.iter().find(|range| !repaired.left.contains(range)) {
        return Err(RepairError::NotDamaged { range: range.clone() });
    }
    let gives_up =
        !repaired.left.is_empty() && repaired.left.iter().all(|range| orders.give_up.contains(range));
    let takes_misfits = !plan.misfits.is_empty() && (is_member || gives_up || repaired.left.is_empty());
    let torn = plan.survey.torn.filter(|_| repaired.left.is_empty() || gives_up);
    if plan.stale.is_none() && plan.headers.is_empty() && !takes_misfits && torn.is_none() && !gives_up {
        return Ok(repaired);
    }
    let Identified { now, geometry, file, .. } = identify(disk, Access::ReadWrite, None)?;
    let folder = quarantine(Make::IfAbsent)?.expect("a folder that was to be made is there");
    let mut kept = Quarantine::new(disk, folder, orders.at_s)?;
    if let Some(copy) = plan.stale {
        let bytes = superblock::COPY_BYTES;
        let why = "a damaged or older copy of the superblock, before it was written again from the other one";
        kept.range(names::SUPERBLOCK, copy as u64 * bytes, bytes, None, why)?;
    }
    for number in &plan.headers {
        let why = "the damaged header of a segment, before it was written again";
        kept.range(&names::segment(geometry, *number), 0, windlass_log::SEGMENT_HEADER_BYTES, None, why)?;
    }
    if takes_misfits {
        for base in &plan.misfits {
            let name = names::segment_at(*base);
            let len = folder::list(disk)?.segments.get(base).copied().unwrap_or(0);
            kept.range(
                &name,
                0,
                len,
                None,
                "a file of another length than a segment's, or at no segment's place, taken out of the log",
            )?;
        }
    }
    if let Some(stop) = &torn {
        let end = geometry.base(geometry.segment_of(stop.lsn) + 1);
        let why = format!("the torn end of the log, before it was cut: {}", stop.reason);
        kept.log_range(geometry, stop.lsn..end, &why)?;
    }
    let mut fill = Fill { generation: now.generation, ..Fill::default() };
    if gives_up {
        for damage in &plan.survey.damage {
            let why = format!("a damaged range, given up by order: {}", damage.reason);
            kept.log_range(geometry, damage.start..damage.end, &why)?;
        }
        // Behind what is given up the chain comes to speak of the filler.
        let first =
            plan.survey.damage.iter().map(|damage| geometry.segment_of(damage.start)).min().unwrap_or(0);
        for number in first + 1..=geometry.segment_of(repaired.tail) {
            let (at, why) = (geometry.first_record(number), "a segment-start record, whose chain may change");
            let end = Lsn(at.0 + SEGMENT_START_BYTES);
            let offset = geometry.offset_of(at);
            kept.range(&names::segment(geometry, number), offset, SEGMENT_START_BYTES, Some(at..end), why)?;
        }
        fill.cut = plan.survey.cut;
        let interior = plan.survey.damage.iter().filter(|damage| damage.is_whole_behind);
        fill.ranges = interior.map(|damage| damage.start..damage.end).collect();
    }
    fill.misfits = if takes_misfits { plan.misfits.iter().copied().collect() } else { Vec::new() };
    fill.torn = torn.as_ref().map(|stop| stop.lsn);
    repaired.quarantined = kept.begin(&fill)?;
    if let Some(copy) = plan.stale {
        superblock::mend(disk, &file, copy, &now.encode()?)?;
    }
    for number in &plan.headers {
        mend_header(disk, geometry, *number, fill::header(geometry, now.log_id, *number))?;
    }
    act(disk, &fill, &kept.note(), orders)?;
    kept.done()?;
    let given_up = if gives_up { std::mem::take(&mut repaired.left) } else { Vec::new() };
    let (after, _) = look(disk, &None)?;
    repaired = Repaired { given_up, left: after.left, kept: after.kept, tail: after.tail, ..repaired };
    Ok(repaired)
}

/// Does what is noted in the quarantine; may be done again.
fn act<D: Disk>(disk: &D, fill: &Fill, note: &Path, orders: &RepairOrders) -> Result<(), RepairError> {
    let no_orders = || RepairError::Note { file: note.to_path_buf() };
    let Identified { now, geometry, .. } = identify(disk, Access::Read, None)?;
    if !fill.fits(disk, &now, geometry)? {
        return Err(no_orders());
    }
    for base in &fill.misfits {
        let name = names::segment_at(*base);
        let listed = folder::list(disk)?.segments.get(base).copied();
        if listed.is_some_and(|len| geometry.offset_of(*base) != 0 || len != geometry.segment_bytes()) {
            disk.remove(&name).at(DiskCall::Remove, disk.path(), &name)?;
        }
    }
    disk.sync_folder().at(DiskCall::SyncFolder, disk.path(), "")?;
    fill::fill(disk, &now, geometry, fill, note)?;
    if let Some(lsn) = fill.torn {
        destroy_torn(disk, geometry, lsn)?;
    }
    if let Some(lsn) = fill.cut
        && now.history.last().is_none_or(|last| last.start != lsn)
    {
        let options = Options { unsafe_filesystem: orders.unsafe_filesystem, ..Options::default() };
        cut_closed(disk, &options, lsn).map_err(|error| match error {
            OpenCutError::Open(error) => RepairError::Open(error),
            // A repair cuts a lone log alone, at a place where a scan of it has stopped.
            OpenCutError::Member { .. }
            | OpenCutError::Trimmed { .. }
            | OpenCutError::InsideRecord { .. }
            | OpenCutError::Beyond { .. } => no_orders(),
        })?;
    }
    Ok(())
}

/// Reading failed there: what the medium does not give is said so with the way out.
fn unreadable(error: DiskError, offset: u64) -> RepairError {
    if error.call == DiskCall::Read && error.errno == Errno::IO {
        return RepairError::Unreadable { file: error.file, offset, errno: error.errno };
    }
    error.into()
}

/// A stretch of `bytes` from `offset` on can't be read as a whole: the first part of it, by pages, that can't be read.
fn first_unreadable(offset: u64, bytes: usize, mut is_readable: impl FnMut(u64, &mut [u8]) -> bool) -> u64 {
    let mut page = [0; 4096];
    let page_bytes = page.len() as u64;
    let (mut at, end) = (offset, offset + bytes as u64);
    while at < end {
        let next = end.min((at / page_bytes + 1) * page_bytes);
        let part = usize::try_from(next - at).expect("a page fits memory");
        if !is_readable(at, &mut page[..part]) {
            return at;
        }
        at = next;
    }
    offset
}

/// Flushes a file of the log.
fn sync<D: Disk>(disk: &D, file: &D::File, name: &str) -> Result<(), DiskError> {
    file.sync().at(DiskCall::Sync, disk.path(), name)
}
