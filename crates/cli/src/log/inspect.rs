//! `windlass log info` and `verify`: looking without write access, beside a running process if need be.

use std::path::Path;

use serde::Serialize;
use windlass::{OpenMode, ReadOnly, Row, Verified, VerifyReport};

use super::errors;
use super::output::Output;
use crate::exit::{Failure, Status, tell};

#[derive(Serialize)]
struct InfoReport {
    log_id: String,
    segment_bytes: u64,
    epoch: String,
    trimmed: u64,
    persisted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    clean_tail: Option<u64>,
    /// `None`: the kernel doesn't tell.
    in_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<u32>,
    segments: u64,
    free_segments: u64,
    file_bytes: u64,
}

/// Prints what the log is.
pub(super) fn info(folder: &Path, json: bool) -> Result<(), Failure> {
    let log = ReadOnly::open(folder, OpenMode::Tail).map_err(|error| errors::open_store(folder, &error))?;
    let info = log.info();
    let (segments, free_segments, file_bytes) =
        log.files().map_err(|error| errors::open_store(folder, &error))?;
    let (in_use, owner) = log.in_use();
    let report = InfoReport {
        log_id: info.log_id.to_string(),
        segment_bytes: info.segment_bytes,
        epoch: info.epoch.to_string(),
        trimmed: info.trimmed.0,
        persisted: info.persisted.0,
        clean_tail: log.clean_tail().map(|lsn| lsn.0),
        in_use,
        owner: owner.filter(|_| in_use == Some(true)),
        segments,
        free_segments,
        file_bytes,
    };
    let mut output = Output::new();
    if json {
        output.json(&report)?;
    } else {
        print(&report, &mut output)?;
    }
    output.flush()
}

fn print(report: &InfoReport, output: &mut Output) -> Result<(), Failure> {
    let state = match (report.in_use, report.owner, report.clean_tail) {
        (Some(true), Some(owner), _) => format!("in use by process {owner}"),
        (Some(true), None, _) => "in use".to_owned(),
        (_, _, Some(tail)) => format!("closed cleanly at LSN {tail}"),
        (_, _, None) => "not closed cleanly: the next opening recovers it".to_owned(),
    };
    output.line(format_args!("log        {}", report.log_id))?;
    output.line(format_args!("state      {state}"))?;
    output.line(format_args!("epoch      {}", report.epoch))?;
    output.line(format_args!("trimmed    {}", report.trimmed))?;
    output.line(format_args!(
        "persisted  {} (all below is on the medium; as last written down, more may be)",
        report.persisted
    ))?;
    output.line(format_args!(
        "segments   {} of {} bytes, with those prepared ahead; {} more kept for reuse; {} bytes in all",
        report.segments, report.segment_bytes, report.free_segments, report.file_bytes
    ))
}

#[derive(Serialize)]
struct VerifyJson<'a> {
    result: &'a str,
    /// What the row means, in words.
    verdict: &'a str,
    records: u64,
    own_records: u64,
    superblock_copies: String,
    trimmed: u64,
    durable: u64,
    end: u64,
    in_use: bool,
    /// The row of recovery's decision table.
    row: String,
    /// The place that the result speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lsn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// What verify says if no record can be counted.
#[derive(Serialize)]
struct FileDamage<'a> {
    result: &'a str,
    verdict: &'a str,
    reason: &'a str,
}

/// Checks every record and says what it found.
pub(super) fn verify(folder: &Path, mode: OpenMode, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    let report = match ReadOnly::open(folder, mode).and_then(|log| log.verify()) {
        Ok(report) => report,
        Err(error) => {
            let failure = errors::open_store(folder, &error);
            if json && failure.status == Status::Damage {
                let older =
                    error.row().filter(|row| matches!(row, Row::SuperblockOlder | Row::PastCleanMark));
                let verdict = older.map_or("a file is damaged as a whole, or missing", words);
                output.json(&FileDamage { result: "damaged", verdict, reason: &failure.message })?;
                output.flush()?;
            }
            return Err(failure);
        }
    };
    let word = match report.found {
        Verified::Clean => "clean",
        Verified::Torn => "torn",
        Verified::Damaged => "damaged",
    };
    if json {
        output.json(&as_json(&report, word))?;
    } else if report.found == Verified::Clean {
        let beside = if report.in_use { ", for now: a process has it open" } else { "" };
        output.line(format_args!(
            "clean: {}, LSNs {} to {}{beside}",
            counts(&report),
            report.trimmed,
            report.lsn
        ))?;
    }
    output.flush()?;
    if report.superblock_copies < 2 {
        tell(format_args!(
            "warning: {} of 2 copies of {} is whole: the log is read by that one; the next opening for writing mends \
             the other",
            report.superblock_copies,
            folder.join("superblock").display()
        ));
    }
    let place = errors::place(&report.file, report.offset, report.lsn, &report.reason);
    let place = format!("{place}; {} before it", counts(&report));
    match report.found {
        Verified::Clean => Ok(()),
        Verified::Torn => Err(errors::torn(&place, Some(report.durable))),
        Verified::Damaged => Err(errors::damage(&place, report.offset, Some(report.durable), report.class)),
    }
}

/// The whole records: what was appended, and what the log adds for itself.
fn counts(report: &VerifyReport) -> String {
    let noun = if report.records == 1 { "record" } else { "records" };
    format!("{} {noun} (and {} of the log's own)", report.records, report.own_records)
}

/// What a row of recovery's decision table means.
fn words(row: Row) -> &'static str {
    match row {
        Row::NoLog => "there is no log",
        Row::SuperblockMissing => "there are segments and no superblock",
        Row::SuperblockDamaged => "neither copy of the superblock is whole",
        Row::SuperblockForeign => "the superblock is of another version, or its copies are of two members",
        Row::OtherLog => "it is another log",
        Row::FolderCopied => "it is a copy of a member's folder",
        Row::SegmentMisfit => "a segment's file has a wrong length or name",
        Row::SuperblockOlder => {
            "the superblock is older than the log: there are records of epochs that it never promised"
        }
        Row::OlderSegmentMissing => "a segment is missing",
        Row::OlderSegmentDamaged => "a segment has lost its header",
        Row::OlderSegmentForeign => "a segment belongs to another log or a later version",
        Row::ForeignSegment => "a segment belongs to another log or a later version",
        Row::LaterVersion => "a record is of a later version, which this one does not know",
        Row::ChainBroken => "the records before a segment are not those that it followed",
        Row::HistoryGap => "the superblock's list of epochs does not cover the log",
        Row::HistoryLost => "the superblock's list of epochs is empty, though it says that there was a log",
        Row::NeverLed => "whole: no epoch has begun in it yet, so that it has no records",
        Row::RecordDamaged => "a record that was durable no longer holds",
        Row::SegmentLost => "a segment that held durable records is gone or has lost its header",
        Row::PastCleanMark => {
            "the superblock is older than the log: there are records behind the place where it says that the log was closed"
        }
        Row::CleanEnd => "whole, up to where it was closed",
        Row::EndBlank => "whole, up to where nothing was ever written",
        Row::EndLeftover => "whole, up to what an earlier use of the file left behind",
        Row::TornTail => "it ends in a record that was being written; nothing durable is lost",
        Row::EndMissed => "a member's log ends below what the member may have acknowledged",
        Row::HoleBehind => "records behind a gap, none of them known to be durable; nothing durable is lost",
    }
}

fn as_json<'a>(report: &'a VerifyReport, result: &'a str) -> VerifyJson<'a> {
    let here = report.found != Verified::Clean;
    VerifyJson {
        result,
        verdict: words(report.row),
        records: report.records,
        own_records: report.own_records,
        superblock_copies: format!("{} of 2", report.superblock_copies),
        trimmed: report.trimmed.0,
        durable: report.durable.0,
        end: report.lsn.0,
        in_use: report.in_use,
        row: format!("{:?}", report.row),
        file: here.then(|| report.file.display().to_string()),
        offset: here.then_some(report.offset),
        lsn: here.then_some(report.lsn.0),
        reason: here.then_some(report.reason.as_str()),
    }
}
