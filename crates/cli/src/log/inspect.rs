//! `windlass log info` and `verify`: looking without write access, beside a running process if need be.

use std::path::Path;

use serde::Serialize;
use windlass::{OpenMode, ReadOnly, Verified, VerifyReport};

use super::errors;
use super::output::Output;
use crate::exit::{Failure, Status};

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
    let log = ReadOnly::open(folder, OpenMode::Tail).map_err(|error| errors::open_store(&error))?;
    let info = log.info();
    let (segments, free_segments, file_bytes) = log.files().map_err(|error| errors::open_store(&error))?;
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
    output.line(format_args!("persisted  {} (as last written down)", report.persisted))?;
    output.line(format_args!(
        "segments   {} of {} bytes, {} more kept for reuse, {} bytes in all",
        report.segments, report.segment_bytes, report.free_segments, report.file_bytes
    ))
}

#[derive(Serialize)]
struct VerifyJson<'a> {
    result: &'a str,
    records: u64,
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

/// Checks every byte and says what it found.
pub(super) fn verify(folder: &Path, mode: OpenMode, json: bool) -> Result<(), Failure> {
    let log = ReadOnly::open(folder, mode).map_err(|error| errors::open_store(&error))?;
    let report = log.verify().map_err(|error| errors::open_store(&error))?;
    let word = match report.found {
        Verified::Clean => "clean",
        Verified::Torn => "torn",
        Verified::Damaged => "damaged",
    };
    let mut output = Output::new();
    if json {
        output.json(&as_json(&report, word))?;
    } else if report.found == Verified::Clean {
        let beside = if report.in_use { ", for now: a process has it open" } else { "" };
        output.line(format_args!(
            "clean: {} records, LSNs {} to {}{beside}",
            report.records, report.trimmed, report.lsn
        ))?;
    }
    output.flush()?;
    let place = format!(
        "{} at offset {} (LSN {}): {}",
        report.file.display(),
        report.offset,
        report.lsn,
        report.reason
    );
    match report.found {
        Verified::Clean => Ok(()),
        Verified::Torn => Err(Failure::new(
            Status::Torn,
            format_args!(
                "torn tail above the durable watermark (LSN {}) in {place}; {} whole records before it; opening the log cuts it off",
                report.durable, report.records
            ),
        )),
        Verified::Damaged => Err(Failure::new(
            Status::Damage,
            format_args!(
                "damage in {place}; the log was durable up to LSN {}, {} whole records before the damage; restore the file from a \
                 backup or a peer",
                report.durable, report.records
            ),
        )),
    }
}

fn as_json<'a>(report: &'a VerifyReport, result: &'a str) -> VerifyJson<'a> {
    let here = report.found != Verified::Clean;
    VerifyJson {
        result,
        records: report.records,
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
