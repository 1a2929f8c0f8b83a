//! Which status a failure of the library ends the command with, and its words where the library's speak to a program.
//!
//! Damage and torn tails have one wording here, whichever subcommand meets them: where and what, up to where the log is durable, what to do.

use std::fmt;
use std::path::Path;

use windlass::store::disk::Errno;
use windlass::store::{
    CreateError as StoreCreateError, DiskCall, DiskError, Holder, OpenError as StoreOpenError,
};
use windlass::{
    Class, CreateError, Lsn, OpenError, OpenMode, OpenTrimmedError, OpenTruncatedError, ReadError, ReadOnly,
    TruncateError,
};

use crate::exit::{Failure, Status};

/// Where the first record of a new log's first segment may be: nothing is ever before it.
pub(crate) const FIRST: Lsn = Lsn(4096);

/// A place in a log's files and what is there.
pub(super) fn place(file: &Path, offset: u64, lsn: Lsn, what: &dyn fmt::Display) -> String {
    format!("{} at offset {offset} (LSN {lsn}): {what}", file.display())
}

/// The LSN of the first record of the segment that begins with `base`: the first that is lost if its file doesn't hold.
fn first_record(base: Lsn) -> Lsn {
    Lsn(base.0.saturating_add(FIRST.0))
}

/// Bytes that were durable don't hold. `place`: from [`place`], perhaps with more; `offset`: in its file, 0 if that doesn't hold as a whole.
pub(super) fn damage(place: &str, offset: u64, durable: Option<Lsn>, class: Class) -> Failure {
    let durable = durable.map_or_else(String::new, |lsn| format!("; the log was durable up to LSN {lsn}"));
    let remedy = match class {
        Class::Foreign => "put this log's own file back, or use the version that wrote it",
        Class::Damage | Class::Torn | Class::End if offset == 0 => {
            "restore the file from a copy, see with `windlass log repair --dry-run` what can be kept, or read what is readable into a new log with \
             `windlass log salvage` (where the folder is a group's member's, start that, and its peers send it again; where a file's length keeps it from \
             starting, `windlass log repair` first)"
        }
        Class::Damage | Class::Torn | Class::End => {
            "restore the file from a copy, see with `windlass log repair --dry-run` what can be kept, or give up the record there and all behind it with \
             `windlass log truncate` (where the folder is a group's member's, do none of it: start that, and its peers send it again)"
        }
    };
    let message =
        format_args!("damage in {place}{durable}; {remedy}; `windlass log read` works up to the damage");
    Failure::new(Status::Damage, message)
}

/// The log ends in a torn record above everything durable.
pub(super) fn torn(place: &str, durable: Option<Lsn>) -> Failure {
    let durable = durable.map_or_else(String::new, |lsn| format!(" (the log is durable up to LSN {lsn})"));
    Failure::new(
        Status::Torn,
        format_args!(
            "torn tail in {place}; nothing durable is lost{durable} and nothing is to be restored: with `--mode tail`, the \
             default, opening cuts it off and reading ends before it"
        ),
    )
}

/// Up to where the log in the folder was durable, by its superblock.
fn durable(folder: &Path) -> Option<Lsn> {
    let log = ReadOnly::open(folder, OpenMode::Tail).ok()?;
    Some(log.clean_tail().unwrap_or(log.info().persisted))
}

/// Whether the folder itself is not there, or is no folder.
fn is_absent(folder: &Path, error: &DiskError) -> bool {
    error.call == DiskCall::Open
        && error.file == folder
        && (error.errno == Errno::NOENT || error.errno == Errno::NOTDIR)
}

/// Whether what keeps the log from being opened is damage behind records that hold, so that a cut may take it away.
pub(super) fn is_damage(error: &OpenError) -> bool {
    match error {
        OpenError::Store(StoreOpenError::Refused { verdict, .. }) => verdict.class() == Class::Damage,
        OpenError::Store(
            StoreOpenError::SegmentMissing { .. }
            | StoreOpenError::SegmentHeader { .. }
            | StoreOpenError::PastCleanMark { .. },
        ) => true,
        OpenError::Option(_) | OpenError::Store(_) | OpenError::Member { .. } | OpenError::Begin { .. } => {
            false
        }
    }
}

/// Whether the log has had too many epochs to be opened without a trim.
pub(super) fn is_history_full(error: &OpenError) -> bool {
    matches!(error, OpenError::Store(StoreOpenError::History(_)))
}

pub(super) fn open_trimmed(folder: &Path, error: &OpenTrimmedError) -> Failure {
    match error {
        OpenTrimmedError::Open(error) => open(folder, error),
        OpenTrimmedError::InsideRecord { .. } | OpenTrimmedError::Beyond { .. } => {
            Failure::new(Status::Refused, error)
        }
    }
}

pub(super) fn open_truncated(folder: &Path, error: &OpenTruncatedError) -> Failure {
    match error {
        OpenTruncatedError::Open(error) => open(folder, error),
        OpenTruncatedError::Purged { lsn, first } => purged(*lsn, *first),
        OpenTruncatedError::InsideRecord { .. } | OpenTruncatedError::Beyond { .. } => {
            Failure::new(Status::Refused, error)
        }
    }
}

pub(super) fn open(folder: &Path, error: &OpenError) -> Failure {
    match error {
        OpenError::Option(_) => Failure::new(Status::Usage, error),
        OpenError::Store(error) => open_store(folder, error),
        OpenError::Member { .. } => Failure::new(Status::Refused, error),
        OpenError::Begin { .. } => Failure::new(Status::System, error),
    }
}

pub(super) fn open_store(folder: &Path, error: &StoreOpenError) -> Failure {
    let file_damage = |place: &str| damage(place, 0, durable(folder), Class::Damage);
    match error {
        StoreOpenError::Disk(error) if is_absent(folder, error) => Failure::new(
            Status::Refused,
            format_args!(
                "there is no folder {folder}: check the path, or make a log there with `windlass log create {folder}`",
                folder = folder.display()
            ),
        ),
        StoreOpenError::Refused { file, offset, verdict } => {
            let place = place(file, *offset, verdict.stop.lsn, &verdict.stop.reason);
            match verdict.class() {
                Class::Torn => torn(&place, Some(verdict.flushed)),
                class @ (Class::End | Class::Damage | Class::Foreign) => {
                    damage(&place, *offset, Some(verdict.flushed), class)
                }
            }
        }
        StoreOpenError::SegmentFile { file, base, len_bytes, segment_bytes } => file_damage(&place(
            file,
            0,
            first_record(*base),
            &format_args!(
                "the file has {len_bytes} bytes, a segment of this log {segment_bytes}: it was cut short, grown or renamed"
            ),
        )),
        StoreOpenError::SegmentNoFile { file, base } => {
            file_damage(&place(file, 0, first_record(*base), &"it is no plain file"))
        }
        StoreOpenError::SegmentHeader { file, base, cause } => {
            file_damage(&place(file, 0, first_record(*base), cause))
        }
        StoreOpenError::SegmentMissing { file, base } => {
            file_damage(&place(file, 0, first_record(*base), &"the file is missing"))
        }
        StoreOpenError::Superblock { file, cause } => Failure::new(
            Status::Damage,
            format_args!(
                "damage in {}: {cause}; restore the whole folder from a copy or a peer, or have what segments and records say themselves read into a new log with `windlass log salvage`",
                file.display()
            ),
        ),
        StoreOpenError::SuperblockOlder { superblock, file, offset, lsn, epoch, promised, holder } => {
            let place = place(file, *offset, *lsn, &format_args!("a whole record of epoch {epoch}"));
            Failure::new(
                Status::Damage,
                format_args!(
                    "damage in {}: it is older than the log: it has promised no epoch above {promised}, and there is in {place}; put back the superblock that belongs to the log{}",
                    superblock.display(),
                    older_remedy(*holder)
                ),
            )
        }
        StoreOpenError::PastCleanMark { superblock, clean, file, offset, lsn, holder } => {
            let place = place(file, *offset, *lsn, &"a whole record");
            Failure::new(
                Status::Damage,
                format_args!(
                    "damage in {}: it is older than the log, most likely a copy from before that was put back: it says that the log was closed at LSN {clean}, and there is in {place}; put back the superblock that belongs to the log{}",
                    superblock.display(),
                    past_remedy(*holder)
                ),
            )
        }
        StoreOpenError::History(_) => {
            let epochs = ReadOnly::open(folder, OpenMode::Tail);
            let starts: Vec<Lsn> =
                epochs.iter().flat_map(|log| log.epochs().map(|(_, start)| start)).collect();
            Failure::new(
                open_status(error),
                history_full(folder, &starts).unwrap_or_else(|| error.to_string()),
            )
        }
        StoreOpenError::SuperblockMissing { .. } => Failure::new(
            open_status(error),
            format_args!("{error} (`windlass log salvage {} --to NEW`)", folder.display()),
        ),
        StoreOpenError::InUse { .. }
        | StoreOpenError::NoLog { .. }
        | StoreOpenError::Filesystem { .. }
        | StoreOpenError::ForeignLog { .. }
        | StoreOpenError::Copied { .. }
        | StoreOpenError::Configuration { .. }
        | StoreOpenError::Salvage
        | StoreOpenError::Encode(_)
        | StoreOpenError::Memory { .. }
        | StoreOpenError::Disk(_) => Failure::new(open_status(error), error),
    }
}

/// What to do about a log that has had too many epochs, which start here, oldest first.
fn history_full(folder: &Path, starts: &[Lsn]) -> Option<String> {
    let (count, second, middle) = (starts.len(), *starts.get(1)?, *starts.get(starts.len() / 2)?);
    Some(format!(
        "the log has had {count} epochs since its trim point, one for each opening after a crash, and has no room for another one: release its oldest records with `windlass log trim {folder} \
         --before LSN`, where LSN is a record's START, at least {second}, which makes room for one epoch; {middle} makes room for {half}, and the log's end for all. `windlass log read {folder} --format hex` \
         prints each START, and reading works as it is",
        folder = folder.display(),
        half = count / 2
    ))
}

/// What to do about a superblock that is older than the log, where the one that belongs to it is gone.
pub(super) fn older_remedy(holder: Holder) -> &'static str {
    match holder {
        Holder::Lone => {
            "; or have the log's history made from its records, which `windlass log repair --dry-run` shows and `windlass log repair --accept-epoch` does, or read \
             what is readable into a new log with `windlass log salvage`"
        }
        Holder::Member => {
            "; what this member had promised since is forgotten, so it must not vote: where a majority of the group runs without it nothing is to be restored, and a new member with \
             an empty folder takes its place (`windlass group --config FILE replace OLD NEW`, FILE being the group's)"
        }
    }
}

/// What to do about a log that goes on behind the place where its superblock says that it was closed.
pub(super) fn past_remedy(holder: Holder) -> &'static str {
    match holder {
        Holder::Lone => {
            "; or have these records kept as the log's end, which `windlass log repair --dry-run` shows and `windlass log repair --accept-tail` does, or read what is \
             readable into a new log with `windlass log salvage`: each of these keeps all records"
        }
        Holder::Member => older_remedy(holder),
    }
}

pub(crate) fn open_status(error: &StoreOpenError) -> Status {
    match error {
        StoreOpenError::InUse { .. } => Status::InUse,
        StoreOpenError::Refused { verdict, .. } => match verdict.class() {
            Class::Torn => Status::Torn,
            Class::End | Class::Damage | Class::Foreign => Status::Damage,
        },
        StoreOpenError::SegmentFile { .. }
        | StoreOpenError::SegmentNoFile { .. }
        | StoreOpenError::SegmentHeader { .. }
        | StoreOpenError::SegmentMissing { .. }
        | StoreOpenError::Superblock { .. }
        | StoreOpenError::SuperblockOlder { .. }
        | StoreOpenError::PastCleanMark { .. }
        | StoreOpenError::SuperblockMissing { .. } => Status::Damage,
        StoreOpenError::NoLog { .. }
        | StoreOpenError::Filesystem { .. }
        | StoreOpenError::ForeignLog { .. }
        | StoreOpenError::Copied { .. }
        | StoreOpenError::Configuration { .. }
        | StoreOpenError::Salvage
        | StoreOpenError::History(_) => Status::Refused,
        StoreOpenError::Encode(_) | StoreOpenError::Memory { .. } | StoreOpenError::Disk(_) => Status::System,
    }
}

pub(super) fn create(folder: &Path, error: &CreateError) -> Failure {
    let error = match error {
        CreateError::Store(error) => error,
        CreateError::Option(error) => return Failure::new(Status::Usage, error),
        CreateError::Open(error) => return open(folder, error),
    };
    match error {
        StoreCreateError::InUse { .. } => Failure::new(Status::InUse, error),
        StoreCreateError::Geometry(_) => Failure::new(Status::Usage, error),
        StoreCreateError::Exists { .. } => Failure::new(
            Status::Refused,
            format_args!("{} already holds a log: append to it, or name another folder", folder.display()),
        ),
        StoreCreateError::NotEmpty { .. }
        | StoreCreateError::Filesystem { .. }
        | StoreCreateError::Encode(_)
        | StoreCreateError::Epoch(_) => Failure::new(Status::Refused, error),
        StoreCreateError::Open(error) => open_store(folder, error),
        StoreCreateError::Disk(error) if is_absent(folder, error) => Failure::new(
            Status::Refused,
            format_args!(
                "no folder {} can be made: the folder above it is not there, or a file is in the way",
                folder.display()
            ),
        ),
        StoreCreateError::Disk(_) => Failure::new(Status::System, error),
    }
}

/// An LSN below the log's first.
pub(crate) fn purged(lsn: Lsn, first: Lsn) -> Failure {
    let message = if first <= FIRST {
        format!("LSN {lsn} is before the log, which starts at LSN {first}: use an LSN from there on")
    } else {
        format!("LSN {lsn} has been trimmed, the log starts at LSN {first}: use an LSN from there on")
    };
    Failure::new(Status::Refused, message)
}

/// An LSN at which no record starts.
pub(crate) fn inside_record(lsn: Lsn, record: Lsn) -> String {
    format!(
        "LSN {lsn} is inside the record that starts at LSN {record}: use an LSN that an append or a reader gave"
    )
}

pub(super) fn read(folder: &Path, error: &ReadError) -> Failure {
    match error {
        ReadError::Purged { lsn, first } => purged(*lsn, *first),
        ReadError::Torn { file, offset, lsn, what } => {
            torn(&place(file, *offset, *lsn, what), durable(folder))
        }
        ReadError::Damaged { file, offset, lsn, what } => {
            // What is to be done about a superblock that is older than the log is another matter.
            let judged = ReadOnly::open(folder, OpenMode::Tail).and_then(|log| log.verify());
            if let Err(
                error @ (StoreOpenError::SuperblockOlder { .. } | StoreOpenError::PastCleanMark { .. }),
            ) = &judged
            {
                return open_store(folder, error);
            }
            damage(&place(file, *offset, *lsn, what), *offset, durable(folder), Class::Damage)
        }
        ReadError::Io { .. } => Failure::new(Status::System, error),
        ReadError::InsideRecord { lsn, record } => {
            Failure::new(Status::Refused, inside_record(*lsn, *record))
        }
        ReadError::AtEnd { .. } | ReadError::Beyond { .. } | ReadError::Ended { .. } => {
            Failure::new(Status::Refused, error)
        }
    }
}

pub(super) fn truncate(folder: &Path, error: &TruncateError) -> Failure {
    match error {
        TruncateError::Read(error) => read(folder, error),
        TruncateError::Purged { lsn, first } => purged(*lsn, *first),
        TruncateError::Failed(_) | TruncateError::StuckReservation { .. } => {
            Failure::new(Status::System, error)
        }
        TruncateError::Group
        | TruncateError::History(_)
        | TruncateError::InsideRecord { .. }
        | TruncateError::Beyond { .. }
        | TruncateError::Sealed { .. } => Failure::new(Status::Refused, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_whose_history_is_full_says_how_far_it_is_to_be_trimmed() {
        let starts: Vec<Lsn> = (0..2048).map(|number| Lsn(4144 + 8 * number)).collect();
        let said = history_full(Path::new("d"), &starts).unwrap();
        for words in [
            "has had 2048 epochs",
            "`windlass log trim d --before LSN`",
            "at least 4152, which makes room for one",
            "12336 makes room for 1024",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(history_full(Path::new("d"), &starts[..1]), None);
    }
}
