//! What a repair may do, what it finds, and what it comes to.

use std::ops::Range;
use std::path::{Path, PathBuf};

use windlass_log::{Epoch, Holder, Lsn, StopReason};

use super::survey::Tally;
use crate::open::BadHeader;
use crate::options::UnsafeFilesystem;
use crate::scrub::Damage;

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
