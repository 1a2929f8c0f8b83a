//! Opening a log: from the folder as a crash left it to a store that appends can use. DESIGN.md section 6.
//!
//! ```text
//!  filesystem → lock → superblock → place → mend the other copy → files → verdict
//!       → destroy a torn record at the tail → write [persisted mark, tail) again and flush (R-11)
//!       → superblock: mark, boot, new epoch (R-12) → reuse released files → map from the tail on
//! ```
//!
//! Invariant: each step leaves a folder from which opening comes to the same end, however often it is interrupted (kind 10, I-7): names change only for files
//! without log, bytes are rewritten with what they are, and the superblock changes last.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use windlass_log::{
    Action, Chain, Class, Epoch, EpochStart, Geometry, Going, HistoryError, Holder, LogId, Lsn, NoSuperblock,
    Onward, OpenMode, Place, Rewrite, Row, SEGMENT_HEADER_BYTES, Salt, SegmentHeader, SegmentHeaderError,
    Superblock, SuperblockEncodeError, Verdict,
};

use crate::counters::Counting;
use crate::disk::{Access, Disk, DiskFile, Errno, Filesystem};
use crate::error::{At, DiskCall, DiskError};
use crate::examine::{self, Examined, Identified, examine, header_of, identify};
use crate::folder::{self, Listing};
use crate::live::{self, LiveMarks};
use crate::names;
use crate::open_damaged::is_mendable;
use crate::options::{Configure, CopiedFolder, Options, Surroundings, Vouch};
use crate::pool::{Free, NOT_NAMING, Pool};
use crate::prepare::make_reserve;
use crate::scrub::{Damage, mend_header};
use crate::store::{Control, Preparing, Store};
use crate::superblock;
use crate::trim::destroy_record;
use crate::vouch::Unvouched;

/// How an opening found the log and what it did to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The end of the log: where the next record goes. Everything below is on the medium, unless that was left for [later](crate::Vouch::Later).
    pub tail: Lsn,
    /// The chain at the tail, for the epoch that goes on there; `None` in the log of a member that nobody has led yet.
    pub chain: Option<Chain>,
    /// What recovery found before it changed anything.
    pub verdict: Verdict,
    /// What was on the medium of a group's member and is damaged, oldest first, as far as was looked: from the first of it on the log is had again from the group, and
    /// the tail is where that begins. Empty for a log that is whole.
    pub damage: Vec<Damage>,
    /// What a group's member may have acknowledged ends here at most (R-18): at the tail where the log is whole, at the last whole record behind the damage where it is
    /// not. `None`: its end is damaged, too, and it can't be told.
    pub acknowledged_max: Option<Lsn>,
    /// What it wrote so that the log can go on.
    pub onward: Onward,
    /// Whether the last stop was clean.
    pub clean: bool,
    /// Whether the machine was booted since, without a clean stop: what was not flushed is gone (R-19).
    pub memory_lost: bool,
    /// Whether the folder is a copy that was taken over.
    pub copied: bool,
    /// Whether a torn end was cut off at the tail: what is there was above everything known to be on the medium.
    pub cut: bool,
    /// Bytes below the tail that were written again because no mark said that they had reached the medium (R-11); 0 if that was left for later.
    pub rewritten_bytes: u64,
    /// The epoch that a lone log's next records get; `None` for a member of a group.
    pub epoch: Option<Epoch>,
    /// The filesystem under the folder.
    pub filesystem: Filesystem,
}

/// Why a log was not opened. Nothing in the folder has changed, unless a step of recovery itself failed, which the next opening repeats.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no log: create one, in an empty folder.
    #[error("{} holds no log{}", folder.display(), if *empty { ": create one" } else { ", and something else: check the path" })]
    NoLog {
        /// The folder.
        folder: PathBuf,
        /// Whether it is empty, or holds no more than the making of a log leaves that was cut off before there was one: a log can be made there.
        empty: bool,
    },
    /// Another process, or this one, has it open: close it there. Tools may look at it read-only.
    #[error("{} is in use by {}", folder.display(), holder_text(*holder))]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process that says that it has it.
        holder: Option<u32>,
    },
    /// The store's promises don't hold on this filesystem: move the folder, or allow it by name.
    #[error("{} is on {filesystem}, where preallocated blocks, locks or shared mappings can't be relied on: move it to a local filesystem such as ext4 or xfs, or allow unsafe filesystems", folder.display())]
    Filesystem {
        /// The folder.
        folder: PathBuf,
        /// The filesystem.
        filesystem: Filesystem,
    },
    /// The superblock can't be used: the folder is never initialised over it.
    #[error("{}: {cause}", file.display())]
    Superblock {
        /// The superblock's file.
        file: PathBuf,
        /// What is wrong with its copies.
        cause: NoSuperblock,
    },
    /// The folder has segments and no superblock: it is damaged, or half of it was copied. Restore the superblock with its segments, from one copy.
    #[error("{} has segments but no superblock: it is damaged or half copied; restore the whole folder from a copy, or salvage what segments and records say themselves", folder.display())]
    SuperblockMissing {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is another log's: check the path.
    #[error("{} holds log {found}, not {expected}", folder.display())]
    ForeignLog {
        /// The folder.
        folder: PathBuf,
        /// The log asked for.
        expected: LogId,
        /// The log there.
        found: LogId,
    },
    /// The folder of a group's member was copied: two members with one identity must never vote. Start the member from the folder that was copied; where that is gone have a new member
    /// take its place, with a number and an empty folder of its own.
    #[error("{} is a copy of another folder of log {log_id}: a copied member must not vote: start the member from the folder that was copied, or, where that is gone, have a new member take its place, with a number and a folder of its own (`Change::Replace`)", folder.display())]
    Copied {
        /// The folder.
        folder: PathBuf,
        /// The log.
        log_id: LogId,
    },
    /// The log has a whole record of an epoch that this superblock has never promised: the superblock is from before, as one that was put back. What it had promised is forgotten with what it lacks. Put back the
    /// one that belongs to the log; a new member, with an empty folder, takes a member's place; a lone log's history is made again from its records by a repair that is ordered to, or the log is salvaged.
    #[error(
        "{}: older than the log: {} has a whole record of epoch {epoch} at LSN {lsn}, offset {offset}, and this superblock has promised none above {promised}; {}",
        superblock.display(), file.display(), older_remedy(*holder)
    )]
    SuperblockOlder {
        /// The superblock.
        superblock: PathBuf,
        /// The segment's file with the record.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// Where the record starts.
        lsn: Lsn,
        /// Its epoch.
        epoch: Epoch,
        /// What the superblock has promised.
        promised: Epoch,
        /// Whose log it is.
        holder: Holder,
    },
    /// Whole records lie behind the place where this superblock says that the log was closed: it is from before they were appended, most likely put back. In a lone log nothing is lost: put back the superblock
    /// that belongs to the log, or have the records kept as its end by a repair that is ordered to, or salvage the log. A member may have promised more since, and a new one, with an empty folder, takes its place.
    #[error(
        "{}: older than the log: it says that the log was closed at LSN {clean}, and {} has a whole record behind that, at LSN {lsn}, offset {offset}: most likely an older superblock was put back; {}",
        superblock.display(), file.display(), past_remedy(*holder)
    )]
    PastCleanMark {
        /// The superblock.
        superblock: PathBuf,
        /// Where the log was closed, by its word.
        clean: Lsn,
        /// The segment's file with the first record behind that.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// Where the record starts.
        lsn: Lsn,
        /// Whose log it is.
        holder: Holder,
    },
    /// A segment file has a wrong length or name: something else has been at the folder. Restore it from a copy, or have the log
    /// repaired ([`RepairOrders`](crate::RepairOrders)), which gives it its length and keeps what is whole in it.
    #[error("{}: a segment of {len_bytes} bytes at LSN {base}, segments have {segment_bytes}: the file was cut short, grown or renamed; restore it from a copy, or let `windlass::store::repair` keep what is whole in it", file.display())]
    SegmentFile {
        /// The file.
        file: PathBuf,
        /// The LSN in its name.
        base: Lsn,
        /// Its length.
        len_bytes: u64,
        /// The length that it must have.
        segment_bytes: u64,
    },
    /// A folder, a pipe or a link has a segment's name: something else has been at the folder. Take it away and restore the file from a copy.
    #[error("{}: no plain file, where the segment at LSN {base} is to be: take it away and restore the file from a copy", file.display())]
    SegmentNoFile {
        /// What is there.
        file: PathBuf,
        /// The LSN in its name.
        base: Lsn,
    },
    /// A segment's header is damaged or another's. Restore the file from a copy.
    #[error("{}: damage at LSN {base}, offset 0: {cause}; restore the file from a copy, or salvage what is readable", file.display())]
    SegmentHeader {
        /// The file.
        file: PathBuf,
        /// The LSN that the file begins with.
        base: Lsn,
        /// What is wrong.
        cause: BadHeader,
    },
    /// The log can't be opened in this mode. [`Row`] and reason say what was found: damage (restore the file from a copy, or salvage what is readable), a file of another log or a later
    /// version (take that away, or open with that version), or in the strict mode a torn end as after a crash (the mode `tail` cuts it off).
    #[error("{}: {} at LSN {}, offset {offset}: {}; the log was on the medium up to LSN {}{}", file.display(), class_text(verdict), verdict.stop.lsn, verdict.stop.reason, verdict.flushed, remedy(verdict))]
    Refused {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What recovery found.
        verdict: Box<Verdict>,
    },
    /// A segment between the trim point and the tail is gone. Restore the file from a copy.
    #[error("{} is missing: it held the log from LSN {base} on; restore it from a copy, or salvage what is readable", file.display())]
    SegmentMissing {
        /// The file.
        file: PathBuf,
        /// The LSN that it began with.
        base: Lsn,
    },
    /// A record of the group's configuration, or the superblock's, can't be read: open the folder with the release that the group runs.
    #[error("{}: the configuration record at LSN {lsn} can't be read: open the folder with the release that the group runs", folder.display())]
    Configuration {
        /// The folder.
        folder: PathBuf,
        /// Where the record starts.
        lsn: Lsn,
    },
    /// Salvaging never writes: inspect the folder read-only instead.
    #[error("the mode `salvage` reads only: inspect the folder instead of opening it")]
    Salvage,
    /// The log has had too many epochs since its trim point, one for each opening after a crash, and needs another one: open it [trimmed](Store::open_trimmed). Reading it works as it is.
    #[error("{0}, as it is opened (`Log::open_trimmed`)")]
    History(#[from] HistoryError),
    /// The superblock can't hold what it held: a defect.
    #[error(transparent)]
    Encode(#[from] SuperblockEncodeError),
    /// No memory to check a record.
    #[error("no memory to check the record of {bytes} bytes at LSN {lsn}")]
    Memory {
        /// The record's LSN.
        lsn: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// A system call failed. An error of reading is never taken for the end of the log.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl OpenError {
    /// The row of the decision table (DESIGN.md section 6.1) that refused; `None` where the log was not judged: it is in use, the filesystem is no good, a call failed.
    #[must_use]
    pub fn row(&self) -> Option<Row> {
        match self {
            OpenError::NoLog { .. } => Some(Row::NoLog),
            OpenError::SuperblockMissing { .. } => Some(Row::SuperblockMissing),
            OpenError::Superblock { cause, .. } => Some(examine::unusable(cause).row()),
            OpenError::ForeignLog { .. } => Some(Row::OtherLog),
            OpenError::Copied { .. } => Some(Row::FolderCopied),
            OpenError::SegmentFile { .. } | OpenError::SegmentNoFile { .. } => Some(Row::SegmentMisfit),
            OpenError::SuperblockOlder { .. } => Some(Row::SuperblockOlder),
            OpenError::PastCleanMark { .. } => Some(Row::PastCleanMark),
            OpenError::SegmentMissing { .. } => Some(Row::OlderSegmentMissing),
            OpenError::SegmentHeader { cause, .. } if is_mendable(cause) => Some(Row::OlderSegmentDamaged),
            OpenError::SegmentHeader { .. } => Some(Row::OlderSegmentForeign),
            OpenError::Refused { verdict, .. } => Some(verdict.row),
            OpenError::InUse { .. }
            | OpenError::Filesystem { .. }
            | OpenError::Configuration { .. }
            | OpenError::Salvage
            | OpenError::History(_)
            | OpenError::Encode(_)
            | OpenError::Memory { .. }
            | OpenError::Disk(_) => None,
        }
    }
}

/// What is wrong with a segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadHeader {
    /// It does not parse.
    #[error(transparent)]
    Unreadable(#[from] SegmentHeaderError),
    /// It is of another log, place or size.
    #[error("the header is of log {}, LSN {}, {} bytes", .0.log_id, .0.base, .0.segment_bytes)]
    Other(SegmentHeader),
}

fn class_text(verdict: &Verdict) -> &'static str {
    match verdict.class() {
        Class::End => "the end",
        Class::Torn => "a torn end",
        Class::Damage => "damage",
        Class::Foreign => "something of another log or a later version",
    }
}

fn remedy(verdict: &Verdict) -> &'static str {
    match verdict.class() {
        Class::End => "",
        Class::Torn => "; opening in the mode `tail` cuts it off",
        Class::Damage => "; restore the file from a copy, or salvage what is readable",
        Class::Foreign => "; take the file away, or open the log with that version",
    }
}

/// What to do about a superblock that is older than the log.
pub(crate) fn older_remedy(holder: Holder) -> &'static str {
    match holder {
        Holder::Lone => {
            "put back the superblock that belongs to the log, let a repair make the history from the log's records, or salvage what is readable"
        }
        Holder::Member => {
            "what the member had promised since is forgotten, so it must not vote: put back the superblock that belongs to the log, or let a new member with an empty folder take its place"
        }
    }
}

/// What to do about a superblock whose clean mark the log has gone on behind.
pub(crate) fn past_remedy(holder: Holder) -> &'static str {
    match holder {
        Holder::Lone => {
            "put back the superblock that belongs to the log, let a repair keep these records as the log's end, or salvage what is readable"
        }
        Holder::Member => older_remedy(holder),
    }
}

pub(crate) fn holder_text(holder: Option<u32>) -> impl fmt::Display {
    holder.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
}

impl<D: Disk> Store<D> {
    /// Opens a log: locks the folder, recovers, and leaves everything below [`Opened::tail`] on the medium. May be interrupted at any point and repeated.
    /// With [`Vouch::Later`] the last part, R-11 and what follows it, is left to [`Store::vouch`].
    ///
    /// A lone log that was not closed cleanly gets a new epoch at its tail (R-12), as does one whose folder is a copy.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(disk: D, around: &Surroundings, options: &Options) -> Result<(Store<D>, Opened), OpenError> {
        let lock = lock_log(&disk, options)?;
        open_locked(disk, lock, around, options)
    }
}

impl<D: Disk> Store<D> {
    /// Whose log is in a folder, by its superblock. Nothing is locked and nothing changed.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: as an opening says that there is no log, or none that can be told.
    pub fn holder(disk: &D) -> Result<Holder, OpenError> {
        Ok(examine::holder_of(&identify(disk, Access::Read, None)?.now))
    }
}

/// Locks the folder of a log that is to be opened for writing.
pub(crate) fn lock_log<D: Disk>(disk: &D, options: &Options) -> Result<D::Lock, OpenError> {
    if options.mode == OpenMode::Salvage {
        return Err(OpenError::Salvage);
    }
    // Before the lock, so that a folder that is no log stays untouched.
    drop(identify(disk, Access::Read, options.log_id)?);
    folder::lock(disk)?.map_err(|holder| OpenError::InUse { folder: disk.path().to_path_buf(), holder })
}

pub(crate) fn open_locked<D: Disk>(
    disk: D,
    lock: D::Lock,
    around: &Surroundings,
    options: &Options,
) -> Result<(Store<D>, Opened), OpenError> {
    let device_bytes_before = disk.device_written_bytes();
    let filesystem = folder::check_filesystem(&disk, options.unsafe_filesystem)?
        .map_err(|filesystem| OpenError::Filesystem { folder: disk.path().to_path_buf(), filesystem })?;
    let Identified { file, now, geometry, copies, live } =
        identify(&disk, Access::ReadWrite, options.log_id)?;
    let fingerprint = folder::place_of(file.identity().at(DiskCall::Stat, disk.path(), names::SUPERBLOCK)?);
    let holder = examine::holder_of(&now);
    let place = match (fingerprint == now.place, options.copied_folder) {
        (true, _) => Place::Own,
        (false, CopiedFolder::Judge) => Place::Copy,
        (false, CopiedFolder::TakeOver) => Place::CopyToTakeOver,
    };
    let copied = place != Place::Own;
    let mut listing = folder::list(&disk)?;
    let Examined { verdict, action, tail, for_repair, damage, acknowledged_max } =
        examine(&disk, &now, live.flushed(&now.history), geometry, &listing, place, options)?;

    // From here on the folder is changed. First its names: a process that died may have seen names that never reached the medium (kind 30).
    disk.sync_folder().at(DiskCall::SyncFolder, disk.path(), "")?;
    if let Some(stale) = copies.stale(&now) {
        superblock::mend(&disk, &file, stale, &now.encode()?)?;
    }
    let clean = now.clean.is_some();
    let cut = action == Action::Cut;
    if cut {
        destroy_torn(&disk, geometry, tail)?;
    }
    let mut next = now.clone();
    let onward = Going { holder, clean, copied, chain: verdict.chain.is_some() }.row();
    let unsettled = onward.settles() || for_repair;
    if unsettled {
        settle(&mut next, tail, around, fingerprint, onward)?;
        if for_repair {
            // R-18: what was flushed may have been acknowledged, and more than that.
            next.acknowledged = next.acknowledged.max(now.persisted).max(verdict.flushed);
        }
        next.generation += 1;
        if let Some(Configure(note)) = options.configure {
            for (start, end, payload) in examine::configurations(&disk, &now, geometry, tail)? {
                if !note(&mut next, start, end, &payload) {
                    return Err(OpenError::Configuration { folder: disk.path().to_path_buf(), lsn: start });
                }
            }
        }
    }
    let memory_lost = !clean && now.boot_id != around.boot_id;
    let lone = holder == Holder::Lone;
    let epoch = if lone { next.history.last().map(|last| last.epoch) } else { None };
    let begun = next.history.last().filter(|last| last.start == tail);
    let begin = |last: EpochStart| Chain::begin(&Salt::new(next.log_id).key(last.epoch), tail);
    let chain = begun.map(begin).or(verdict.chain);
    // Whole records behind damage come to count once what lies before them is here again, also those above every mark.
    let found_to = if damage.is_empty() { tail } else { end_of_files(geometry, &listing, tail) };
    let rewrite = match onward.rewrite() {
        Rewrite::Nothing => tail..tail,
        Rewrite::FromMark => now.persisted.min(tail)..found_to,
        Rewrite::FromTrim => now.trimmed..forget_ahead(&disk, geometry, tail, &mut listing)?,
    };
    let persisted = if unsettled { now.persisted.min(tail) } else { tail };
    let left_end =
        if onward.settles() && !memory_lost { end_of_files(geometry, &listing, tail) } else { tail };
    let unvouched =
        if unsettled { Some(Unvouched { rewrite, tail, bytes: next.encode()?, next }) } else { None };
    let control = Control { file, now };
    let later = options.vouch == Vouch::Later && lone && !copied;
    let boot_id = around.boot_id;
    let recovered = Recovered {
        geometry,
        tail,
        persisted,
        control,
        live,
        listing,
        unvouched,
        boot_id,
        device_bytes_before,
        for_repair,
        left_end,
    };
    let (store, rewritten_bytes) = assemble(disk, lock, options, recovered, later)?;
    let opened = Opened {
        tail,
        chain,
        verdict,
        damage,
        acknowledged_max,
        onward,
        clean,
        memory_lost,
        copied,
        cut,
        rewritten_bytes,
        epoch,
        filesystem,
    };
    Ok((store, opened))
}

/// The end of the last segment that there is, at least `tail`. Segments may be missing before it: what lies whole behind them counts, too, once they are here again.
fn end_of_files(geometry: Geometry, listing: &Listing, tail: Lsn) -> Lsn {
    let last = listing.segments.keys().next_back();
    last.map_or(tail, |&base| geometry.base(geometry.segment_of(base) + 1).max(tail))
}

/// What the superblock is to say of a log that was recovered: everything up to the tail is on the medium now; a lone log goes on in a new epoch (R-12).
fn settle(
    next: &mut Superblock,
    tail: Lsn,
    around: &Surroundings,
    fingerprint: u64,
    onward: Onward,
) -> Result<(), OpenError> {
    // R-19: written down with the boot that makes it invisible, or a crash right here would hide that memory was lost.
    if next.clean.is_none() && next.boot_id != around.boot_id {
        next.caught_up &= examine::holder_of(next) == Holder::Lone;
    }
    next.persisted = tail;
    next.clean = None;
    next.boot_id = around.boot_id;
    next.place = fingerprint;
    if onward.reincarnates() {
        next.incarnation = around.incarnation;
    }
    if onward.begins_epoch() && !windlass_log::planted!(R12) {
        let epoch = next.promised.next_for(next.member);
        // An epoch may have begun behind bytes that were never flushed, and are gone.
        next.history.cut(tail);
        next.history.extend(epoch, tail)?;
        next.promised = epoch;
    }
    Ok(())
}

/// Writes the pages of `[from, tail)` again with what they hold, and flushes them: a page cache that outlived a process may hold bytes that never reached the medium, or failed to,
/// and count them as clean (R-11, kinds 24 and 30).
pub(crate) fn rewrite_in_place<D: Disk>(
    disk: &D,
    geometry: Geometry,
    from: Lsn,
    tail: Lsn,
) -> Result<u64, DiskError> {
    const PIECE_BYTES: u64 = 64 << 10;
    const PAGE_BYTES: u64 = 4096;
    let mut rewritten = 0;
    if windlass_log::planted!(R11) {
        return Ok(0);
    }
    let mut buffer = vec![0; usize::try_from(PIECE_BYTES).expect("a piece fits memory")];
    for number in geometry.segment_of(from)..=geometry.segment_of(tail) {
        let base = geometry.base(number).0;
        let start = from.0.max(base + SEGMENT_HEADER_BYTES) - base;
        let end = tail.0.min(base + geometry.segment_bytes()).saturating_sub(base);
        if start >= end {
            continue;
        }
        let name = names::segment(geometry, number);
        let file = match disk.open(&name, Access::ReadWrite) {
            // Lost, in a member's log that opens for repair.
            Err(Errno::NOENT) => continue,
            opened => opened.at(DiskCall::Open, disk.path(), &name)?,
        };
        let end = end.next_multiple_of(PAGE_BYTES);
        let mut offset = start / PAGE_BYTES * PAGE_BYTES;
        while offset < end {
            let piece =
                &mut buffer[..usize::try_from((end - offset).min(PIECE_BYTES)).expect("a piece fits memory")];
            let count = file.read_at(piece, offset).at(DiskCall::Read, disk.path(), &name)?;
            // In pages, so that no larger folios come into being than there are (DESIGN.md section 5).
            for (page, at) in piece[..count]
                .chunks(usize::try_from(PAGE_BYTES).expect("a page fits memory"))
                .zip((offset..).step_by(4096))
            {
                file.write_at(page, at).at(DiskCall::Write, disk.path(), &name)?;
            }
            rewritten += count as u64;
            offset += piece.len() as u64;
        }
        file.sync().at(DiskCall::Sync, disk.path(), &name)?;
    }
    Ok(rewritten)
}

/// In a copied folder, whatever holds no log goes, durably: who copied it may have left holes in it, which must not be mapped (kind 20), or it may not have reached the medium.
/// Answers the end of the tail's segment, up to where the copy is to be written again for the same reasons.
fn forget_ahead<D: Disk>(
    disk: &D,
    geometry: Geometry,
    tail: Lsn,
    listing: &mut Listing,
) -> Result<Lsn, DiskError> {
    let next = geometry.base(geometry.segment_of(tail) + 1);
    let ahead = listing
        .segments
        .split_off(&next)
        .into_keys()
        .map(|base| names::segment(geometry, geometry.segment_of(base)));
    let free = std::mem::take(&mut listing.free).into_keys().map(names::free);
    for name in ahead.chain(free) {
        disk.remove(&name).at(DiskCall::Remove, disk.path(), &name)?;
    }
    disk.sync_folder().at(DiskCall::SyncFolder, disk.path(), "")?;
    let there = listing.segments.contains_key(&geometry.base(geometry.segment_of(tail)));
    Ok(if there { next } else { tail })
}

/// Destroys what is left of the record at the tail, so that nothing that is appended later can make it whole (kind 4).
pub(crate) fn destroy_torn<D: Disk>(disk: &D, geometry: Geometry, tail: Lsn) -> Result<(), DiskError> {
    let name = names::segment(geometry, geometry.segment_of(tail));
    match disk.open(&name, Access::ReadWrite) {
        Ok(file) => {
            destroy_record::<D>(&file, geometry.offset_of(tail)).at(DiskCall::Sync, disk.path(), &name)
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at(DiskCall::Open, disk.path(), &name),
    }
}

/// What recovery has come to.
struct Recovered<D: Disk> {
    geometry: Geometry,
    tail: Lsn,
    /// How far a mark vouches for the log.
    persisted: Lsn,
    control: Control<D>,
    live: live::Found,
    listing: Listing,
    unvouched: Option<Unvouched>,
    boot_id: [u8; 16],
    device_bytes_before: Option<u64>,
    /// What lies behind the tail is not leftovers.
    for_repair: bool,
    /// [`Store::left_end`].
    left_end: Lsn,
}

/// The store over a recovered folder: the rest of recovery is done, or left for `later`; then files without log go to the pool, segments from the tail on are
/// opened and mapped. Also answers how many bytes were written again.
fn assemble<D: Disk>(
    disk: D,
    lock: D::Lock,
    options: &Options,
    recovered: Recovered<D>,
    later: bool,
) -> Result<(Store<D>, u64), OpenError> {
    let Recovered { geometry, tail, persisted, control, live, listing, unvouched, boot_id, .. } = recovered;
    let next = unvouched.as_ref().map_or(&control.now, |rest| &rest.next);
    let live = LiveMarks::open(&disk, &control.file, &live, next)?;
    let (device_bytes_before, for_repair, left_end) =
        (recovered.device_bytes_before, recovered.for_repair, recovered.left_end);
    let first = geometry.segment_of(control.now.trimmed);
    let tail_segment = geometry.segment_of(tail);
    let store = Store {
        opener: disk.process_id(),
        boot_id,
        options: *options,
        geometry,
        log_id: control.now.log_id,
        lock: Mutex::new(Some(lock)),
        preparing: Mutex::new(Preparing::new()),
        flushing: Mutex::new(()),
        persisted: AtomicU64::new(persisted.0),
        trimmed: AtomicU64::new(control.now.trimmed.0),
        released_below: AtomicU64::new(first),
        left_end,
        taken_over: AtomicU64::new(0),
        rewriting: Mutex::new(()),
        superblock: Mutex::new(control),
        live,
        segments: RwLock::new(BTreeMap::new()),
        running: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        distrusted: AtomicBool::new(for_repair),
        damaged: Mutex::new(Vec::new()),
        mark_max: AtomicU64::new(u64::MAX),
        failed: OnceLock::new(),
        vouched: AtomicBool::new(unvouched.is_none()),
        vouching: Mutex::new(()),
        unvouched: Mutex::new(unvouched.map(Arc::new)),
        counting: Counting::default(),
        device_bytes_before,
        pool: Mutex::new(Pool { free: Vec::new(), released: Vec::new(), live: 0, naming: NOT_NAMING }),
        disk,
    };
    let rewritten_bytes = if later { 0 } else { store.vouch_once()? };
    // Names change only for files without log: whether the superblock says so yet makes no difference to the next opening.
    for name in &listing.temporaries {
        store.disk.remove(name).at(DiskCall::Remove, store.disk.path(), name)?;
    }
    let mut pool = crate::store::locked(&store.pool);
    for (number, len) in &listing.free {
        if *len == geometry.segment_bytes() {
            pool.free.push(Free { number: *number, open: None });
        } else {
            let name = names::free(*number);
            store.disk.remove(&name).at(DiskCall::Remove, store.disk.path(), &name)?;
        }
    }
    let mut ahead = tail_segment;
    for base in listing.segments.keys() {
        let number = geometry.segment_of(*base);
        if number < first {
            pool.released.push((number, None));
        } else if number < tail_segment {
            pool.live += 1;
        } else if for_repair {
            // Its records may be whole: the peers send again only what is not.
            mend_header(&store.disk, geometry, number, store.header(number))?;
            if number == tail_segment {
                let segment = store.open_segment(number)?;
                store.segments_mut().insert(number, segment);
            }
            pool.live += 1;
        } else if number == ahead && header_of(&store.disk, geometry, number, store.log_id)?.is_ok() {
            let segment = store.open_segment(number)?;
            store.segments_mut().insert(number, segment);
            pool.live += 1;
            ahead += 1;
        } else {
            // Ahead of the tail, behind a gap or with a header that never got there: blocks to reuse.
            let (name, free) = (names::segment(geometry, number), pool.number_unused());
            store.disk.rename(&name, &names::free(free)).at(DiskCall::Rename, store.disk.path(), &name)?;
            pool.free.push(Free { number: free, open: None });
        }
    }
    drop(pool);
    make_reserve(&store.disk);
    Ok((store, rewritten_bytes))
}
