//! `windlass log read`: records from an LSN on, beside a running process if need be.

use std::path::Path;

use serde::Serialize;
use windlass::{Lsn, OpenMode, ReadError, ReadOnly, Record};

use super::output::{self, Output};
use super::{Format, errors};
use crate::exit::Failure;

#[derive(Serialize)]
struct JsonRecord<'a> {
    lsn: u64,
    end: u64,
    epoch: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<u32>,
    bytes: usize,
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The payload in hexadecimal, if it isn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<&'a str>,
}

/// Prints the records from `from` (default: the trim point) to the end of the log.
pub(super) fn run(folder: &Path, from: Option<Lsn>, format: Format, mode: OpenMode) -> Result<(), Failure> {
    let log = ReadOnly::open(folder, mode).map_err(|error| errors::open_store(folder, &error))?;
    let mut output = Output::new();
    let read = read(folder, &log, from, format, &mut output);
    output.flush()?;
    read
}

fn read(
    folder: &Path,
    log: &ReadOnly,
    from: Option<Lsn>,
    format: Format,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut reader =
        log.read_from(from.unwrap_or(log.info().trimmed)).map_err(|error| errors::read(folder, &error))?;
    let mut hex = String::new();
    loop {
        match reader.next() {
            Ok(record) => print(&record, format, output, &mut hex)?,
            Err(ReadError::AtEnd { .. }) => return Ok(()),
            Err(error) => return Err(errors::read(folder, &error)),
        }
    }
}

fn print(record: &Record<'_>, format: Format, output: &mut Output, hex: &mut String) -> Result<(), Failure> {
    match format {
        Format::Lines => {
            output.bytes(record.payload)?;
            output.bytes(b"\n")
        }
        Format::Raw => output.bytes(record.payload),
        Format::Hex => {
            output::hex(record.payload, hex);
            output.line(format_args!("{} {} {hex}", record.lsn, record.end))
        }
        Format::Json => {
            let text = std::str::from_utf8(record.payload).ok();
            if text.is_none() {
                output::hex(record.payload, hex);
            }
            output.json(&JsonRecord {
                lsn: record.lsn.0,
                end: record.end.0,
                epoch: record.epoch.to_string(),
                item: record.item,
                bytes: record.payload.len(),
                text,
                hex: text.is_none().then_some(hex.as_str()),
            })
        }
    }
}
