//! Errors of the log's operations: one enum for each, every variant with its remedy. (Commits have theirs in `commit`,
//! opening and creating in `windlass-store`.)

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use windlass_log::{Epoch, HistoryError, Lsn};

use crate::commit::Failure;

/// What an option was given, or the end of its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum OptionValue {
    /// So many.
    Count(u64),
    /// So many bytes.
    Bytes(u64),
    /// A duration.
    Time(Duration),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Count(count) => count.fmt(f),
            OptionValue::Bytes(bytes) => write!(f, "{bytes} bytes"),
            OptionValue::Time(time) => write!(f, "{time:?}"),
        }
    }
}

/// An option has a value that it can't have. Nothing was touched. Use one from `min` to `max`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the option {option} is {value}: use {min} to {max}")]
pub struct OptionError {
    /// Its name.
    pub option: &'static str,
    /// What it was given.
    pub value: OptionValue,
    /// The least that it can have.
    pub min: OptionValue,
    /// The most that it can have.
    pub max: OptionValue,
}

impl OptionError {
    /// More than any log can have: LSNs end at 2^62.
    pub(crate) const BYTES_MAX: u64 = 1 << 62;
    /// The longest that anything is waited for.
    pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// Refuses what is not `min` to `max`.
    pub(crate) fn check(
        option: &'static str,
        value: OptionValue,
        (min, max): (OptionValue, OptionValue),
    ) -> Result<(), OptionError> {
        if (min..=max).contains(&value) { Ok(()) } else { Err(OptionError { option, value, min, max }) }
    }

    pub(crate) fn check_count(
        option: &'static str,
        count: u64,
        (min, max): (u64, u64),
    ) -> Result<(), OptionError> {
        OptionError::check(
            option,
            OptionValue::Count(count),
            (OptionValue::Count(min), OptionValue::Count(max)),
        )
    }

    pub(crate) fn check_bytes(
        option: &'static str,
        bytes: u64,
        (min, max): (u64, u64),
    ) -> Result<(), OptionError> {
        OptionError::check(
            option,
            OptionValue::Bytes(bytes),
            (OptionValue::Bytes(min), OptionValue::Bytes(max)),
        )
    }

    pub(crate) fn check_time(
        option: &'static str,
        time: Duration,
        (min, max): (Duration, Duration),
    ) -> Result<(), OptionError> {
        OptionError::check(option, OptionValue::Time(time), (OptionValue::Time(min), OptionValue::Time(max)))
    }
}

/// Why no log was made. The folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// An option is out of its range.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The store's reason, with its remedy.
    #[error(transparent)]
    Store(#[from] windlass_store::CreateError),
    /// The log was made and could not be opened: open it.
    #[error("the log was made, but opening it failed: {0}")]
    Open(#[from] OpenError),
}

/// Why the log was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option is out of its range.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The store's reason, with its remedy.
    #[error(transparent)]
    Store(#[from] windlass_store::OpenError),
    /// The folder belongs to a member of a group. Start the member as a node.
    #[error("{} holds the log of a group's member: start the member as a node, or look at the log read-only", folder.display())]
    Member {
        /// The folder.
        folder: PathBuf,
    },
    /// The superblock could not be written to say that the log is in use. Mend that and open again.
    #[error("{}: the log could not be marked as in use: {cause}", folder.display())]
    Begin {
        /// The folder.
        folder: PathBuf,
        /// The store's reason.
        cause: windlass_store::UpdateError,
    },
}

/// Why an append was refused. Nothing was written; no LSN was used up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// The helper thread has not prepared the next segment yet. Try again soon, or use `append_wait`.
    #[error("the segment at LSN {needed} is not prepared yet: try again soon, or use append_wait")]
    NotReady {
        /// The end that the append would have reached; the log is ready up to somewhere below it.
        needed: Lsn,
    },
    /// The byte cap is used up. Trim, or open with a larger cap.
    #[error(
        "the log is full: {retained_bytes} bytes from the trim point {trimmed} to the tail, the cap is {retention_bytes}; \
         trim it, or open it with a larger retention_bytes"
    )]
    Full {
        /// Bytes between the trim point and the tail.
        retained_bytes: u64,
        /// The cap.
        retention_bytes: u64,
        /// The trim point.
        trimmed: Lsn,
    },
    /// The disk has no room for the next segment. Free space or trim; appending works again by itself then.
    #[error(
        "the disk is full, no segment could be made at LSN {needed} ({cause}): free space or trim the log"
    )]
    DiskFull {
        /// The end that the append would have reached.
        needed: Lsn,
        /// The store's words for it.
        cause: String,
    },
    /// The next segment could not be made for another reason than lack of space. Mend that; appending works again by itself then.
    #[error("no segment could be made at LSN {needed}: {cause}")]
    NoSegment {
        /// The end that the append would have reached.
        needed: Lsn,
        /// The store's words for it.
        cause: String,
    },
    /// The record is longer than any segment can hold. Split it, or make the log with larger segments.
    #[error(
        "a record of {payload_bytes} bytes is too large: this log takes up to {payload_bytes_max}; split it, or make the log \
         with larger segments"
    )]
    TooLarge {
        /// The payload's length.
        payload_bytes: u64,
        /// The longest that fits.
        payload_bytes_max: u64,
    },
    /// This handle's tenure has ended: by a truncation, a takeover or `close`. Use the handle of the new tenure.
    #[error("{epoch} was sealed at LSN {tail}: use the log handle of the tenure that followed")]
    Sealed {
        /// The tenure that ended.
        epoch: Epoch,
        /// Where it ended.
        tail: Lsn,
    },
    /// The log has failed and takes nothing more in this opening. Open it again.
    #[error("the log takes no appends any more, open it again: {0}")]
    Failed(Failure),
    /// `append_wait` gave up.
    #[error("the log was not ready for an append up to LSN {needed} before the deadline: {cause}")]
    Deadline {
        /// The end that the append would have reached.
        needed: Lsn,
        /// What stood in the way.
        cause: &'static str,
    },
}

/// Why a reader has no record to give. `AtEnd`, `Purged` and `Damaged` are three different answers (kind 48).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// No more records at this level yet. Read again later, or subscribe.
    #[error("the log ends at LSN {end} for now: read again later, or subscribe")]
    AtEnd {
        /// Where the next record will start.
        end: Lsn,
    },
    /// The range was trimmed. Start from a checkpoint at or after `first`.
    #[error(
        "LSN {lsn} has been trimmed, the log starts at LSN {first}: start from a checkpoint at or after it"
    )]
    Purged {
        /// What was asked for.
        lsn: Lsn,
        /// The first LSN that is still there.
        first: Lsn,
    },
    /// Bytes that were durable no longer hold. Restore the file, or repair from a peer or a backup.
    #[error("{}: damage at offset {offset} (LSN {lsn}): {what}; restore the file from a backup or a peer", file.display())]
    Damaged {
        /// The segment's file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// The LSN of the first record that doesn't hold.
        lsn: Lsn,
        /// What doesn't hold.
        what: String,
    },
    /// The log ends in a torn record, as after a crash, above everything that was durable, and the reader is in the strict mode, which refuses
    /// that. Nothing durable is lost and nothing is to be restored: read in the mode `tail`, which ends before it.
    #[error("{}: a torn tail at offset {offset} (LSN {lsn}): {what}; nothing durable is lost: the mode `tail` reads up to it", file.display())]
    Torn {
        /// The segment's file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// Where the whole records end.
        lsn: Lsn,
        /// What is there instead of a record.
        what: String,
    },
    /// No record starts here. Use an LSN that an append or a reader gave.
    #[error(
        "LSN {lsn} is inside a record, the one before it starts at LSN {record}: use an LSN that an append or a reader gave"
    )]
    InsideRecord {
        /// What was asked for.
        lsn: Lsn,
        /// The start of the record that holds it.
        record: Lsn,
    },
    /// Nothing has been written there yet.
    #[error(
        "LSN {lsn} is beyond the end of the log at LSN {end}: use an LSN that an append or a reader gave"
    )]
    Beyond {
        /// What was asked for.
        lsn: Lsn,
        /// The end of the log.
        end: Lsn,
    },
    /// Reading a file failed. An error of the system is never taken for the end of the log (kind 7).
    #[error("reading at LSN {lsn} failed: {cause}")]
    Io {
        /// Where the reader stood.
        lsn: Lsn,
        /// The store's words for it.
        cause: String,
    },
    /// The log was closed, or its tenure ended: while a subscription waited, or what a reader comes to has changed since.
    #[error("the log ended for this reader at LSN {end}: read or subscribe again on the log that followed")]
    Ended {
        /// Up to where the reader may have read.
        end: Lsn,
    },
}

/// Why the log was not trimmed. Nothing was released.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrimError {
    /// Trim at a record's start or at the tail.
    #[error("LSN {lsn} is beyond the end {end} of what may be trimmed")]
    Beyond {
        /// What was asked for.
        lsn: Lsn,
        /// The highest trim point allowed now.
        end: Lsn,
    },
    /// Trim at a record's start.
    #[error("LSN {lsn} {}: trim at a record's start, or at the end of one", inside(record.as_ref()))]
    InsideRecord {
        /// What was asked for.
        lsn: Lsn,
        /// From where to where the record goes that holds it. `None`: the log can't be read up to there, or no record can start there at all.
        record: Option<Range<Lsn>>,
    },
    /// The record there can't be read. Try again.
    #[error("looking at LSN {lsn} failed, nothing was trimmed: {cause}")]
    Io {
        /// What was asked for.
        lsn: Lsn,
        /// The store's words for it.
        cause: String,
    },
    /// The log was closed. Open it again.
    #[error("the log is closed; open it again to trim it")]
    Closed,
    /// The log has failed. Open it again.
    #[error("{0}; open the log again")]
    Failed(Failure),
}

fn inside(record: Option<&Range<Lsn>>) -> String {
    record.map_or_else(
        || String::from("is not where a record starts"),
        |record| format!("is inside the record from LSN {} to {}", record.start, record.end),
    )
}

/// Why a checkpoint is not taken for the start of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Name the end of the last record that the checkpoint knows of.
    #[error(
        "no record starts or ends at LSN {lsn}: name the end of the last record that the checkpoint knows of"
    )]
    NoPosition {
        /// What was named.
        lsn: Lsn,
    },
}

/// Why the log was not cut.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TruncateError {
    /// In a group only a takeover cuts.
    #[error("this log belongs to a group: only its primary's takeover may cut it")]
    Group,
    /// Cut at a record's start at or after the trim point.
    #[error("LSN {lsn} has been trimmed, the log starts at LSN {first}: cut at or after that")]
    Purged {
        /// What was asked for.
        lsn: Lsn,
        /// The first LSN that is still there.
        first: Lsn,
    },
    /// Cut at a record's start.
    #[error("LSN {lsn} is inside the record that starts at LSN {record}: cut at a record's start")]
    InsideRecord {
        /// What was asked for.
        lsn: Lsn,
        /// The start of the record that holds it.
        record: Lsn,
    },
    /// There is nothing there to cut.
    #[error("LSN {lsn} is beyond the tail {tail}: there is nothing to cut")]
    Beyond {
        /// What was asked for.
        lsn: Lsn,
        /// The tail.
        tail: Lsn,
    },
    /// This handle's tenure has ended. Use the handle that followed.
    #[error("{epoch} has already ended: use the log handle of the tenure that followed")]
    Sealed {
        /// The tenure that ended.
        epoch: Epoch,
    },
    /// A producer kept a reservation past the limit: nothing was cut, the log stays closed. Restart the process.
    #[error(
        "the reservation at LSN {lsn} was not published in time, nothing was cut and the log stays closed: restart the process"
    )]
    StuckReservation {
        /// The first unpublished LSN.
        lsn: Lsn,
    },
    /// Too many epochs since the trim point. Trim, then cut.
    #[error("nothing was cut: {0}")]
    History(HistoryError),
    /// Reading before the cut failed.
    #[error("nothing was cut: {0}")]
    Read(ReadError),
    /// The log has failed; whether the cut is in force, opening it again will tell.
    #[error("{0}; open the log again to see whether the cut is in force")]
    Failed(Failure),
}

/// Why closing did not end cleanly. The log is closed all the same; the next opening recovers it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseError {
    /// The last flush or the clean mark failed, or the log had failed before.
    #[error("the log was not closed cleanly, the next opening will recover it: {0}")]
    Failed(Failure),
    /// A producer still holds a reservation.
    #[error(
        "the reservation at LSN {lsn} was not published in time, so the log was not closed cleanly; the next opening will recover it"
    )]
    StuckReservation {
        /// The first unpublished LSN.
        lsn: Lsn,
    },
}

/// What became of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is in the log, durably: on the medium of a lone log, on a quorum's in a group.
    Committed,
    /// It is not in the log and will never be: its epoch ended below its LSN.
    Cut,
    /// Not decided yet: it may still be committed or cut. Its LSN never carries other content in the same epoch.
    Unknown,
    /// It lies below the trim point, so nobody can tell any more.
    Purged,
}
