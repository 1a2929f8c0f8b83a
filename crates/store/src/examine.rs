//! What an opening looks at, and the decision table's answer to it: nothing here changes anything. DESIGN.md section 6.1.
//!
//! In the order of the facts: the superblock, the place, the files' names and lengths, the log from the mark on, records above the promise, and of older segments that they are there. Each step gathers
//! its facts and asks [`Facts::row`]; what a row is to an opening, [`Row::action`](windlass_log::Row::action) says. An error of reading is an error, and no fact (kind 7).

use windlass_log::{
    Action, CleanMark, Extent, Facts, Geometry, Holder, LogId, Lsn, Marks, NoSuperblock, Older, OpenMode,
    Place, Record, RecordKind, Row, SEGMENT_HEADER, ScanError, SegmentHeader, Shape, Superblock, Superblocks,
    Verdict, judge,
};

use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::folder::{self, Listing};
use crate::image::Files;
use crate::inspect::stop_offset;
use crate::live;
use crate::names;
use crate::newer;
use crate::open::{BadHeader, OpenError};
use crate::open_damaged::{examine_damaged, is_mendable};
use crate::options::Options;
use crate::past;
use crate::scrub::{Damage, damage_start};
use crate::superblock;

/// The superblock of a folder, identified.
pub(crate) struct Identified<D: Disk> {
    pub(crate) file: D::File,
    pub(crate) now: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) copies: superblock::Copies,
    pub(crate) live: live::Found,
}

/// What was found of a log, and what to do.
pub(crate) struct Examined {
    pub(crate) verdict: Verdict,
    pub(crate) action: Action,
    /// The end of what holds.
    pub(crate) tail: Lsn,
    /// A member's log that lacks what it may have acknowledged: its peers repair it.
    pub(crate) for_repair: bool,
    /// What is damaged of it.
    pub(crate) damage: Vec<Damage>,
    /// What it may have acknowledged ends here at most. `None`: it can't be told.
    pub(crate) acknowledged_max: Option<Lsn>,
}

/// Whose log it is.
pub(crate) fn holder_of(superblock: &Superblock) -> Holder {
    if superblock.configuration.is_empty() { Holder::Lone } else { Holder::Member }
}

/// What unusable copies of a superblock are to the decision table.
pub(crate) fn unusable(cause: &NoSuperblock) -> Facts {
    let superblocks = match cause {
        NoSuperblock::Both { .. } => Superblocks::Damaged,
        NoSuperblock::Foreign { .. } | NoSuperblock::Strangers { .. } => Superblocks::Foreign,
    };
    Facts { superblocks, ..Facts::SOUND }
}

/// Opens and reads the superblock.
pub(crate) fn identify<D: Disk>(
    disk: &D,
    access: Access,
    expected: Option<LogId>,
) -> Result<Identified<D>, OpenError> {
    identify_by(disk, access, expected, superblock::read)
}

/// As [`identify`], for repair and salvage: what the medium does not give of the superblock counts as zeros.
pub(crate) fn identify_forgiving<D: Disk>(disk: &D, access: Access) -> Result<Identified<D>, OpenError> {
    identify_by(disk, access, None, superblock::read_forgiving)
}

fn identify_by<D: Disk>(
    disk: &D,
    access: Access,
    expected: Option<LogId>,
    read: impl Fn(&D, &D::File) -> Result<superblock::Copies, DiskError>,
) -> Result<Identified<D>, OpenError> {
    let folder = || disk.path().to_path_buf();
    let file = match superblock::open(disk, access) {
        Ok(file) => file,
        Err(error) if error.errno == Errno::NOENT => {
            let segments = !folder::list(disk)?.segments.is_empty();
            let superblocks = if segments { Superblocks::AbsentBesideSegments } else { Superblocks::Absent };
            // Making a log names its superblock before its first segment, so no segment is left of that.
            let facts = Facts { superblocks, ..Facts::SOUND };
            return Err(if facts.row() == Row::SuperblockMissing {
                OpenError::SuperblockMissing { folder: folder() }
            } else {
                let empty = folder::is_empty(disk)?;
                OpenError::NoLog { folder: folder(), empty }
            });
        }
        Err(error) => return Err(error.into()),
    };
    let copies = read(disk, &file)?;
    let newest = copies.newest();
    let now =
        newest.map_err(|cause| OpenError::Superblock { file: disk.path().join(names::SUPERBLOCK), cause })?;
    match expected {
        Some(expected) if expected != now.log_id => {
            Err(OpenError::ForeignLog { folder: folder(), expected, found: now.log_id })
        }
        Some(_) | None => {
            let geometry =
                Geometry::new(now.segment_bytes).expect("a superblock that was decoded has a segment size");
            let live = live::read(disk, &file, &now)?;
            Ok(Identified { file, now, geometry, copies, live })
        }
    }
}

/// Judges what is there, all below `live` flushed by the live mark. Answers what to do if the table says that the log opens.
pub(crate) fn examine<D: Disk>(
    disk: &D,
    now: &Superblock,
    live: Lsn,
    geometry: Geometry,
    listing: &Listing,
    place: Place,
    options: &Options,
) -> Result<Examined, OpenError> {
    let holder = holder_of(now);
    let misfit = listing.check(disk.path(), geometry);
    let files = Facts { holder, place, misfit: misfit.is_err(), ..Facts::SOUND };
    if files.row() == Row::FolderCopied {
        return Err(OpenError::Copied { folder: disk.path().to_path_buf(), log_id: now.log_id });
    }
    misfit?;
    let extent = if options.mode == OpenMode::Strict { Extent::Whole } else { options.extent };
    let mut verdict = judge_folder(disk, now, live, geometry, extent)?;
    let chainless = verdict.chain.is_none() && holder == Holder::Member;
    if chainless && verdict.tail() > now.trimmed && extent == Extent::FromMark {
        verdict = judge_folder(disk, now, live, geometry, Extent::Whole)?;
    }
    let older = look_at_older(disk, now, geometry, listing, &verdict)?;
    let older_fact = older.as_ref().map_or(Older::Whole, BadOlder::fact);
    let missed = now.acknowledged > verdict.stop.lsn;
    let is_end = older.is_none() && !missed && newer::is_end(&verdict);
    if let Some(found) = newer::look(disk, now, geometry, listing, verdict.stop.lsn, is_end)? {
        let facts = Facts { newer: true, ..files.at(&verdict) };
        assert_eq!(facts.row(), Row::SuperblockOlder, "what is found later changes no row");
        return Err(newer::refusal(disk, now, geometry, found));
    }
    if let Some(lsn) = past::first(disk, now, geometry, listing, &verdict, older.is_some())? {
        // What an older superblock misses may have been trimmed since.
        let facts = Facts { clean: CleanMark::AtStop, behind: true, ..files.at(&verdict) };
        if facts.row() == Row::PastCleanMark {
            return Err(past::refusal(disk, now, geometry, lsn));
        }
    }
    let facts = Facts { older: older_fact, missed, ..files.at(&verdict) };
    let (row, action) = (facts.row(), facts.action(options.mode));
    let from = match &older {
        Some(older) => geometry.first_record(older.number()).max(now.trimmed),
        None => damage_start(geometry, &verdict.stop, now.trimmed),
    };
    match (action, older) {
        (Action::Open | Action::Cut, _) => {
            let tail = verdict.tail();
            let (damage, acknowledged_max) = (Vec::new(), Some(tail));
            Ok(Examined { verdict, action, tail, for_repair: false, damage, acknowledged_max })
        }
        (Action::Repair, _) => {
            let found = examine_damaged(disk, now, geometry, listing, &verdict, from)?;
            verdict.row = row;
            let (damage, acknowledged_max) = (found.ranges, found.end);
            Ok(Examined { verdict, action, tail: from, for_repair: true, damage, acknowledged_max })
        }
        (Action::Refuse | Action::ReadOnly, Some(older)) => Err(older.refusal(disk, geometry)),
        (Action::Refuse | Action::ReadOnly, None) => {
            let number = geometry.segment_of(verdict.stop.lsn);
            let file = disk.path().join(names::segment(geometry, number));
            let offset = stop_offset(geometry, &verdict.stop);
            verdict.row = row;
            Err(OpenError::Refused { file, offset, verdict: Box::new(verdict) })
        }
    }
}

/// What is wrong with a segment that the verdict did not look into.
enum BadOlder {
    Missing(u64),
    Header(u64, BadHeader),
}

impl BadOlder {
    fn fact(&self) -> Older {
        match self {
            BadOlder::Missing(_) => Older::Missing,
            BadOlder::Header(_, cause) if is_mendable(cause) => Older::BadHeader,
            BadOlder::Header(..) => Older::Foreign,
        }
    }

    fn number(&self) -> u64 {
        match self {
            BadOlder::Missing(number) | BadOlder::Header(number, _) => *number,
        }
    }

    fn refusal<D: Disk>(self, disk: &D, geometry: Geometry) -> OpenError {
        let place = |number| (disk.path().join(names::segment(geometry, number)), geometry.base(number));
        match self {
            BadOlder::Missing(number) => {
                let (file, base) = place(number);
                OpenError::SegmentMissing { file, base }
            }
            BadOlder::Header(number, cause) => {
                let (file, base) = place(number);
                OpenError::SegmentHeader { file, base, cause }
            }
        }
    }
}

/// Segments that the verdict did not look into must at least be there, and what they say they are. Answers the first that is not.
fn look_at_older<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    listing: &Listing,
    verdict: &Verdict,
) -> Result<Option<BadOlder>, OpenError> {
    for number in geometry.segment_of(now.trimmed)..geometry.segment_of(verdict.from.min(verdict.stop.lsn)) {
        if !listing.segments.contains_key(&geometry.base(number)) {
            return Ok(Some(BadOlder::Missing(number)));
        }
        if let Err(cause) = header_of(disk, geometry, number, now.log_id)? {
            return Ok(Some(BadOlder::Header(number, cause)));
        }
    }
    Ok(None)
}

/// The log's verdict on the folder's image.
pub(crate) fn judge_folder<D: Disk>(
    disk: &D,
    now: &Superblock,
    live: Lsn,
    geometry: Geometry,
    extent: Extent,
) -> Result<Verdict, OpenError> {
    judge_folder_visiting(disk, now, live, geometry, extent, |_| {})
}

/// As [`judge_folder`], showing each whole record that is looked at.
pub(crate) fn judge_folder_visiting<D: Disk>(
    disk: &D,
    now: &Superblock,
    live: Lsn,
    geometry: Geometry,
    extent: Extent,
    visit: impl FnMut(&Record<'_>),
) -> Result<Verdict, OpenError> {
    let shape = Shape { geometry, log_id: now.log_id, history: now.history.clone() };
    let Superblock { trimmed, persisted, clean, member, .. } = *now;
    let marks = Marks { trimmed, persisted, live, clean, member };
    let mut open = None;
    judge(&mut Files::new(disk, geometry, &mut open), &shape, &marks, extent, visit).map_err(|error| {
        match error {
            ScanError::Image { error, .. } => OpenError::Disk(error),
            // A scan for a verdict never needs more than its first buffer.
            ScanError::Memory { lsn, bytes } => OpenError::Memory { lsn, bytes },
        }
    })
}

/// A configuration record: its start, its end, its payload.
pub(crate) type FoundConfiguration = (Lsn, Lsn, Vec<u8>);

/// The configuration records from the persisted mark's segment on that end at or below `tail`.
pub(crate) fn configurations<D: Disk>(
    disk: &D,
    now: &Superblock,
    geometry: Geometry,
    tail: Lsn,
) -> Result<Vec<FoundConfiguration>, OpenError> {
    let mut found = Vec::new();
    judge_folder_visiting(disk, now, tail, geometry, Extent::FromMark, |record| {
        if record.header.kind == RecordKind::Configuration && record.end <= tail {
            found.push((record.header.lsn, record.end, record.payload.unwrap_or_default().to_vec()));
        }
    })?;
    Ok(found)
}

/// Whether a segment's file begins with the header that it must have.
pub(crate) fn header_of<D: Disk>(
    disk: &D,
    geometry: Geometry,
    number: u64,
    log_id: LogId,
) -> Result<Result<(), BadHeader>, DiskError> {
    let name = names::segment(geometry, number);
    let file = disk.open(&name, Access::Read).at(DiskCall::Open, disk.path(), &name)?;
    let mut bytes = [0; SEGMENT_HEADER];
    let count = file.read_at(&mut bytes, 0).at(DiskCall::Read, disk.path(), &name)?;
    let header = match SegmentHeader::decode(&bytes[..count]) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error.into())),
    };
    let right = header.log_id == log_id
        && header.base == geometry.base(number)
        && header.segment_bytes == geometry.segment_bytes();
    Ok(if right { Ok(()) } else { Err(BadHeader::Other(header)) })
}
