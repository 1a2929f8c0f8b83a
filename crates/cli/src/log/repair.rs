//! `windlass log repair` and `salvage`: what to do about a log that is damaged.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use windlass::store::disk::{Errno, RealDisk};
use windlass::store::{
    CreateError as StoreCreateError, DiskCall, DiskError, Finding, Holder, Make, RepairError, RepairOrders,
    Repaired, UnsafeFilesystem,
};
use windlass::{CreateError, Epoch, Lsn, MemberId, Options, SalvageError, Salvaged};

use super::errors;
use super::output::Output;
use crate::exit::{Failure, Status, counted};

/// The folder for what is taken out, inside the log's.
const QUARANTINE: &str = "quarantine";

/// How `repair` and `salvage` end.
pub(super) const TABLE: &str = "\
Exit status:
  0   done: the log is whole (repair --dry-run: nothing is amiss; salvage: everything was readable)
  1   something is to be mended, and nothing is lost by that (repair --dry-run), or is left of the torn end of a member's log, which its primary decides
  2   damage: repair left it, as no --give-up names all of it, or found it (--dry-run, also where it shows what --give-up would come to), or something has to be moved out of the way; salvage could not read all
  3   refused: no log there, a range that is not damaged, a member's log is given up, the new folder is not empty, ...
  4   the folder is in use by another process
  5   the system failed: reading, writing, flushing or access
  64  the command line is wrong
  141 nobody reads standard output any more, as after `| head`";

/// A range of LSNs: `START..END`.
fn range(text: &str) -> Result<Range<u64>, &'static str> {
    let rule = "must be START..END, two LSNs, as a dry run prints them";
    let (start, end) = text.split_once("..").ok_or(rule)?;
    let (start, end) = (start.parse().map_err(|_| rule)?, end.parse().map_err(|_| rule)?);
    if start < end { Ok(start..end) } else { Err(rule) }
}

/// An epoch as it is printed: `e12.m3`.
fn epoch(text: &str) -> Result<Epoch, &'static str> {
    let rule = "must be an epoch as a dry run prints it, such as e12.m0";
    let (counter, member) = text.strip_prefix('e').and_then(|rest| rest.split_once(".m")).ok_or(rule)?;
    let (counter, member): (u64, u8) =
        (counter.parse().map_err(|_| rule)?, member.parse().map_err(|_| rule)?);
    if counter > 0 && counter < 1 << 56 { Ok(Epoch::new(counter, MemberId(member))) } else { Err(rule) }
}

/// What to repair, and how far.
#[derive(Debug, clap::Args)]
pub(super) struct Repair {
    /// The folder
    pub(super) folder: PathBuf,
    /// Look, say what is amiss, and change nothing. With --give-up, or what accepts, as they are to be given then: say what a repair
    /// would keep, give up and set aside, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// A damaged range to give up, once for each; all of them, or nothing is given up
    #[arg(long, value_name = "START..END", value_parser = range)]
    give_up: Vec<Range<u64>>,
    /// Where the superblock is older than the log, as one that was put back: make its history from the log's records, whose newest
    /// epoch, as --dry-run prints it, is this
    #[arg(long, value_name = "EPOCH", value_parser = epoch)]
    accept_epoch: Option<Epoch>,
    /// Where the log goes on behind the place where its superblock says that it was closed, so that an older one was most likely put
    /// back: keep the whole records there as the log's end, which, as --dry-run prints it, is here
    #[arg(long, value_name = "LSN", value_parser = super::lsn, allow_negative_numbers = true)]
    accept_tail: Option<Lsn>,
    /// Where to keep what is taken out; default the folder `quarantine` inside the log's. The next repair after one that was cut
    /// short has to be given the same
    #[arg(long, value_name = "FOLDER")]
    quarantine: Option<PathBuf>,
    /// Accept a copy-on-write or network filesystem too (btrfs, zfs, nfs, fuse, ...), where preallocation or locks don't hold
    #[arg(long)]
    any_filesystem: bool,
}

#[derive(Serialize)]
struct JsonRange {
    start: u64,
    end: u64,
    bytes: u64,
}

impl From<&Range<Lsn>> for JsonRange {
    fn from(range: &Range<Lsn>) -> JsonRange {
        JsonRange { start: range.start.0, end: range.end.0, bytes: range.end.0 - range.start.0 }
    }
}

#[derive(Serialize)]
struct JsonFinding {
    kind: &'static str,
    what: String,
    #[serde(flatten)]
    range: Option<JsonRange>,
}

#[derive(Serialize)]
struct JsonRepaired {
    dry_run: bool,
    findings: Vec<JsonFinding>,
    kept_records: u64,
    kept_bytes: u64,
    trimmed: u64,
    tail: u64,
    given_up: Vec<JsonRange>,
    left: Vec<JsonRange>,
    quarantine: Option<String>,
    quarantined: Vec<String>,
}

fn finding(finding: &Finding) -> JsonFinding {
    let (kind, what, range) = match finding {
        Finding::Interrupted => {
            ("interrupted", "a repair was cut short, and is gone on with".to_owned(), None)
        }
        Finding::SuperblockCopy { copy } => (
            "superblock_copy",
            format!(
                "copy {copy} of the superblock is damaged or older, and is written again from the other one"
            ),
            None,
        ),
        Finding::SuperblockOlder { promised, lsn, newest } => (
            "superblock_older",
            format!(
                "the superblock is older than the log: it has promised no epoch above {promised}, and from LSN {lsn} on there are records up to epoch {newest}; the rest is judged with these"
            ),
            None,
        ),
        Finding::PastCleanMark { clean, lsn, tail } => (
            "past_clean_mark",
            format!(
                "the superblock is older than the log, most likely a copy from before that was put back: it says that the log was closed at LSN {clean}, and from LSN {lsn} on there are whole records of the same epoch up to LSN {tail}; the rest is judged as if these were the log's end"
            ),
            None,
        ),
        Finding::SegmentHeader { file, cause } => (
            "segment_header",
            format!("{}: the header is damaged, and is written again: {cause}", file.display()),
            None,
        ),
        Finding::Misfit { file, len_bytes, is_segment: true } => (
            "misfit",
            format!(
                "{}: {len_bytes} bytes are no segment: it gets a segment's length, and what is whole in it is kept",
                file.display()
            ),
            None,
        ),
        Finding::Misfit { file, len_bytes, is_segment: false } => (
            "misfit",
            format!("{}: no segment is there: its {len_bytes} bytes are taken out", file.display()),
            None,
        ),
        Finding::Unreadable { file, offsets } => (
            "unreadable",
            format!(
                "{}: offsets {} to {}: the medium answers with an error: what is there counts as lost, and these pages are written again",
                file.display(),
                offsets.start,
                offsets.end
            ),
            None,
        ),
        Finding::NoFile { file } => (
            "no_file",
            format!("{}: no plain file, in a segment's place: move it out of the folder", file.display()),
            None,
        ),
        Finding::Foreign { file, cause } => (
            "foreign",
            format!(
                "{}: another's file, in a segment's place: move it out of the folder: {cause}",
                file.display()
            ),
            None,
        ),
        Finding::Torn { lsn, reason } => {
            ("torn", format!("torn tail at LSN {lsn}, above everything durable: {reason}"), None)
        }
        Finding::Damaged(damage) => {
            ("damage", damage.to_string(), Some(JsonRange::from(&(damage.start..damage.end))))
        }
    };
    JsonFinding { kind, what, range }
}

fn sum(ranges: &[Range<Lsn>]) -> u64 {
    ranges.iter().map(|range| range.end.0 - range.start.0).sum()
}

/// So much of the log, for people: where bytes don't hold nobody can tell how many records they were.
fn lost(ranges: u64, bytes: u64) -> String {
    match ranges {
        0 => String::from("nothing"),
        _ => format!(
            "{}, {bytes} bytes of records with their headers; how many records can't be told",
            counted(ranges, "range")
        ),
    }
}

/// Why a file that is not damaged is set aside, after its name in the quarantine: `NNNN-BASE.segment-OFFSET-BYTES`.
fn set_aside_for(name: &str) -> &'static str {
    let rest = name.split_once('-').and_then(|(_, rest)| rest.split_once(".segment-"));
    match rest {
        // Nothing is before the first segment's.
        Some((base, "0x1000-48")) if base.bytes().any(|digit| digit != b'0') => {
            " (a segment's start record: it has a value made of all records before it, and is written anew)"
        }
        Some(_) | None => "",
    }
}

impl Repair {
    /// Whether a repair with orders is to be shown, and not done.
    fn rehearses(&self) -> bool {
        self.dry_run
            && (!self.give_up.is_empty() || self.accept_epoch.is_some() || self.accept_tail.is_some())
    }

    /// The flags that accept something, each with a space in front.
    fn accepts(&self) -> String {
        let epoch = self.accept_epoch.map_or_else(String::new, |epoch| format!(" --accept-epoch {epoch}"));
        let tail = self.accept_tail.map_or_else(String::new, |tail| format!(" --accept-tail {tail}"));
        epoch + &tail
    }
}

/// Repairs, or says what a repair would find.
pub(super) fn repair(repair: &Repair, json: bool) -> Result<(), Failure> {
    let opened =
        |path: &Path, errno: Errno| DiskError { call: DiskCall::Open, file: path.to_path_buf(), errno };
    let disk = RealDisk::open(&repair.folder)
        .map_err(|errno| errors::open_store(&repair.folder, &opened(&repair.folder, errno).into()))?;
    let kept_in = repair.quarantine.clone().unwrap_or_else(|| repair.folder.join(QUARANTINE));
    let orders = RepairOrders {
        dry_run: repair.dry_run,
        give_up: repair.give_up.iter().map(|range| Lsn(range.start)..Lsn(range.end)).collect(),
        accept_epoch: repair.accept_epoch,
        accept_tail: repair.accept_tail,
        unsafe_filesystem: if repair.any_filesystem {
            UnsafeFilesystem::Use
        } else {
            UnsafeFilesystem::Refuse
        },
        at_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    let made = |make| match make {
        Make::IfAbsent => RealDisk::create(&kept_in).map(Some).map_err(|errno| opened(&kept_in, errno)),
        Make::Never => match RealDisk::open(&kept_in) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(opened(&kept_in, errno)),
        },
    };
    let repaired =
        windlass::store::repair(&disk, &made, &orders).map_err(|error| failure(&repair.folder, &error))?;
    print(repair, json, &kept_in, &repaired)?;
    end(repair, &repaired)
}

fn print(repair: &Repair, json: bool, kept_in: &Path, repaired: &Repaired) -> Result<(), Failure> {
    let mut output = Output::new();
    if json {
        output.json(&JsonRepaired {
            dry_run: repair.dry_run,
            findings: repaired.findings.iter().map(finding).collect(),
            kept_records: repaired.kept.records,
            kept_bytes: repaired.kept.bytes,
            trimmed: repaired.trimmed.0,
            tail: repaired.tail.0,
            given_up: repaired.given_up.iter().map(JsonRange::from).collect(),
            left: repaired.left.iter().map(JsonRange::from).collect(),
            quarantine: (!repaired.quarantined.is_empty()).then(|| kept_in.display().to_string()),
            quarantined: repaired.quarantined.clone(),
        })?;
        return output.flush();
    }
    for found in &repaired.findings {
        output.line(format_args!("found: {}", finding(found).what))?;
    }
    if repaired.findings.is_empty() {
        output.line(format_args!("found: nothing amiss"))?;
    }
    output.line(format_args!(
        "whole: {} in {} bytes{}, between LSNs {} and {}",
        counted(repaired.kept.records, "record"),
        repaired.kept.bytes,
        // Filler counts once it is there; at the log's end, and for a segment's header, there is none.
        match (repaired.given_up.is_empty(), repair.dry_run) {
            (true, _) => "",
            (false, true) => ", without the filler for what is given up",
            (false, false) => ", with the filler for what is given up",
        },
        repaired.trimmed,
        repaired.tail
    ))?;
    let ranges = |ranges: &[Range<Lsn>]| lost(ranges.len() as u64, sum(ranges));
    let would = if repair.dry_run { "would be " } else { "" };
    if !repair.dry_run || repair.rehearses() {
        output.line(format_args!("{would}given up: {}", ranges(&repaired.given_up)))?;
    }
    let would = if repair.rehearses() { would } else { "" };
    output.line(format_args!("{would}left damaged: {}", ranges(&repaired.left)))?;
    if !repaired.quarantined.is_empty() {
        output.line(format_args!(
            "{would}kept as it was in {}: {}",
            kept_in.display(),
            counted(repaired.quarantined.len() as u64, "file")
        ))?;
    }
    if repair.rehearses() {
        for range in &repaired.given_up {
            output.line(format_args!(
                "would be lost: LSNs {} to {}, {} bytes",
                range.start,
                range.end,
                range.end.0 - range.start.0
            ))?;
        }
        for name in &repaired.quarantined {
            output.line(format_args!("would be set aside: {name}{}", set_aside_for(name)))?;
        }
    }
    output.flush()
}

fn end(repair: &Repair, repaired: &Repaired) -> Result<(), Failure> {
    let in_the_way = repaired.in_the_way().count();
    if in_the_way > 0 {
        let what = format_args!(
            "{in_the_way} of what is named above is in a segment's place and no file of this log: move it out of the folder first, put the log's own file there if \
             there is a copy of it, and look again"
        );
        return Err(Failure::new(Status::Damage, what));
    }
    let remedied = repaired.findings.iter().find_map(|found| match found {
        Finding::SuperblockOlder { newest, .. } => Some(older(&repair.folder, *newest, repaired.holder)),
        Finding::PastCleanMark { tail, .. } => Some(past(&repair.folder, *tail, repaired.holder)),
        Finding::Interrupted
        | Finding::SuperblockCopy { .. }
        | Finding::SegmentHeader { .. }
        | Finding::Misfit { .. }
        | Finding::Unreadable { .. }
        | Finding::NoFile { .. }
        | Finding::Foreign { .. }
        | Finding::Torn { .. }
        | Finding::Damaged(_) => None,
    });
    // Else it was accepted.
    let is_accepted = repair.accept_epoch.is_some() || repair.accept_tail.is_some();
    if let Some(failure) = remedied.filter(|_| repair.dry_run && !is_accepted) {
        return Err(failure);
    }
    if repair.rehearses() && repaired.findings.iter().any(|found| matches!(found, Finding::Interrupted)) {
        let what = "a repair was cut short: the next one goes on with it before anything else, so that nothing can be rehearsed before that has run";
        return Err(Failure::new(Status::Damage, what));
    }
    if !repaired.left.is_empty() {
        let is_member = repaired.holder == windlass::store::Holder::Member;
        let remedy = if is_member {
            "it is a member's: start the member, and its peers send again what it lacks".to_owned()
        } else {
            let flags: Vec<String> = repaired
                .left
                .iter()
                .map(|range| format!("--give-up {}..{}", range.start, range.end))
                .collect();
            format!(
                "restore the files from a copy, read what is readable into a new log with `windlass log salvage`, or give up what is lost, keeping \
                 what is whole behind it: `windlass log repair {}{} {}` (with --dry-run it shows what that would come to)",
                repair.folder.display(),
                if repair.dry_run { repair.accepts() } else { String::new() },
                flags.join(" ")
            )
        };
        return Err(Failure::new(Status::Damage, format_args!("damage is left; {remedy}")));
    }
    if repair.rehearses() && !repaired.findings.is_empty() {
        let what = "nothing was changed: what is above is what the same command without --dry-run comes to";
        return Err(Failure::new(Status::Damage, what));
    }
    if let Some(lsn) = repaired.torn.filter(|_| !repair.dry_run) {
        let what = format_args!(
            "the torn tail at LSN {lsn} is left, and nothing durable is lost by it: the log is a member's, and where that ends its primary decides: start the member"
        );
        return Err(Failure::new(Status::Torn, what));
    }
    if repair.dry_run && !repaired.findings.is_empty() {
        return Err(Failure::new(
            Status::Torn,
            "something is to be mended, and nothing durable is lost by that: run it without --dry-run",
        ));
    }
    Ok(())
}

/// A superblock that is older than the log.
fn older(folder: &Path, newest: Epoch, holder: Holder) -> Failure {
    let remedy = match holder {
        Holder::Lone => format!(
            "put back the superblock that belongs to the log; or have the log's history made from its records, which have all that was appended since, unless it was cut: `windlass log repair {} \
             --accept-epoch {newest}`; or read what is readable into a new log with `windlass log salvage`",
            folder.display()
        ),
        Holder::Member => {
            format!("put back the superblock that belongs to the log{}", errors::older_remedy(holder))
        }
    };
    Failure::new(Status::Damage, format_args!("the superblock is older than the log; {remedy}"))
}

/// A log that has gone on behind its clean mark.
fn past(folder: &Path, tail: Lsn, holder: Holder) -> Failure {
    let remedy = match holder {
        Holder::Lone => format!(
            "put back the superblock that belongs to the log; or have the whole records behind that place kept as the log's end: `windlass log repair {} --accept-tail {tail}`; \
             or read what is readable into a new log with `windlass log salvage`",
            folder.display()
        ),
        Holder::Member => {
            format!("put back the superblock that belongs to the log{}", errors::past_remedy(holder))
        }
    };
    let what = "the superblock is older than the log: it goes on behind the place where that says that it was closed";
    Failure::new(Status::Damage, format_args!("{what}; {remedy}"))
}

fn failure(folder: &Path, error: &RepairError) -> Failure {
    match error {
        RepairError::Open(error) => errors::open_store(folder, error),
        RepairError::SuperblockOlder { newest, holder, .. } => older(folder, *newest, *holder),
        RepairError::PastCleanMark { tail, holder, .. } => past(folder, *tail, *holder),
        RepairError::Unfit { .. } | RepairError::TooMuch { .. } | RepairError::InTheWay { .. } => {
            Failure::new(Status::Damage, error)
        }
        RepairError::NotDamaged { .. }
        | RepairError::NotNewest { .. }
        | RepairError::NotTail { .. }
        | RepairError::Member
        | RepairError::Note { .. }
        | RepairError::Cut { .. } => Failure::new(Status::Refused, error),
        RepairError::History(_) | RepairError::Encode(_) | RepairError::Disk(_) => {
            Failure::new(Status::System, error)
        }
    }
}

#[derive(Serialize)]
struct JsonLost {
    #[serde(flatten)]
    range: JsonRange,
    what: String,
}

#[derive(Serialize)]
struct JsonSalvaged {
    records: u64,
    payload_bytes: u64,
    from: u64,
    end: u64,
    new_end: u64,
    lost: Vec<JsonLost>,
    lost_ranges: u64,
    lost_bytes: u64,
    unreadable: Vec<JsonRange>,
    unreadable_is_not_all: bool,
    superblock_is_guessed: bool,
}

/// Reads what is readable into a new log.
pub(super) fn salvage(folder: &Path, to: &Path, any_filesystem: bool, json: bool) -> Result<(), Failure> {
    let options = Options::new().any_filesystem(any_filesystem);
    let salvaged = windlass::salvage(folder, to, options).map_err(|error| match &error {
        SalvageError::Open(error) => errors::open_store(folder, error),
        SalvageError::Create(CreateError::Store(
            StoreCreateError::Exists { .. } | StoreCreateError::NotEmpty { .. },
        )) => {
            let what = format_args!(
                "{} is not empty: if a salvage that was cut short has left a part there remove it, or name another folder",
                to.display()
            );
            Failure::new(Status::Refused, what)
        }
        SalvageError::Create(error) => errors::create(to, error),
        SalvageError::Read(_)
        | SalvageError::Append { .. }
        | SalvageError::Commit { .. }
        | SalvageError::Close(_) => Failure::new(Status::System, &error),
    })?;
    print_salvaged(&salvaged, to, json)?;
    if salvaged.is_guessed {
        let what = "the superblock is lost or older than the log: log and epochs are what segments and records say of themselves, so that what had been trimmed or cut may be among what was salvaged, and \
                    what was lost at the end is not known";
        return Err(Failure::new(Status::Damage, what));
    }
    if salvaged.lost_ranges > 0 {
        let what = "not everything was readable: what is lost is named above, and the log that was read is as it was";
        return Err(Failure::new(Status::Damage, what));
    }
    Ok(())
}

fn print_salvaged(salvaged: &Salvaged, to: &Path, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    if json {
        let lost = salvaged.lost.iter();
        output.json(&JsonSalvaged {
            records: salvaged.records,
            payload_bytes: salvaged.payload_bytes,
            from: salvaged.from.0,
            end: salvaged.end.0,
            new_end: salvaged.new_end.0,
            lost: lost
                .map(|lost| JsonLost { range: (&lost.range).into(), what: lost.what.clone() })
                .collect(),
            lost_ranges: salvaged.lost_ranges,
            lost_bytes: salvaged.lost_bytes,
            unreadable: salvaged.unreadable.ranges().iter().map(JsonRange::from).collect(),
            unreadable_is_not_all: salvaged.unreadable.has_more(),
            superblock_is_guessed: salvaged.is_guessed,
        })?;
        return output.flush();
    }
    for lost in &salvaged.lost {
        output.line(format_args!("lost: LSNs {} to {}: {}", lost.range.start, lost.range.end, lost.what))?;
    }
    for range in salvaged.unreadable.ranges() {
        output.line(format_args!(
            "unreadable: LSNs {} to {}: the medium answers with errors",
            range.start, range.end
        ))?;
    }
    if salvaged.unreadable.has_more() {
        output.line(format_args!("unreadable: more than these"))?;
    }
    output.line(format_args!(
        "salvaged: {} records, {} payload bytes, of LSNs {} to {}, into {}",
        salvaged.records,
        salvaged.payload_bytes,
        salvaged.from,
        salvaged.end,
        to.display()
    ))?;
    output.line(format_args!(
        "lost: {}{}",
        lost(salvaged.lost_ranges, salvaged.lost_bytes),
        if salvaged.is_guessed {
            "; what was lost at the end can't be told without the superblock"
        } else {
            ""
        }
    ))?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_segments_start_record_is_set_aside_for_a_reason_of_its_own() {
        let start = set_aside_for("0001-0000000000010000.segment-0x1000-48");
        assert!(start.contains("start record") && start.contains("written anew"), "{start}");
        for name in [
            "0001-0000000000000000.segment-0x1000-48",
            "0001-0000000000010000.segment-0x1378-40",
            "0001-superblock-0x0-65536",
            "0001.json",
        ] {
            assert_eq!(set_aside_for(name), "", "{name}");
        }
    }
}
