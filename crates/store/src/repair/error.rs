//! Why a log was not repaired.

use std::ops::Range;
use std::path::PathBuf;

use windlass_log::{Epoch, HistoryError, Holder, Lsn, Row, SuperblockEncodeError};

use crate::error::DiskError;
use crate::open::{OpenError, older_remedy, past_remedy};
use crate::open_cut::OpenCutError;

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
