//! `windlass log create`, `trim` and `truncate`: what changes a log's ends.

use std::path::Path;

use serde::Serialize;
use windlass::{Log, Lsn, Options, TrimError};

use super::errors;
use super::output::Output;
use crate::exit::{Failure, Status};

#[derive(Serialize)]
struct Created {
    log_id: String,
    segment_bytes: u64,
    payload_bytes_max: u64,
    tail: u64,
}

#[derive(Serialize)]
struct Ends {
    trimmed: u64,
    tail: u64,
    epoch: String,
}

/// Makes a log.
pub(super) fn create(folder: &Path, options: Options, json: bool) -> Result<(), Failure> {
    let log = options.create(folder).map_err(|error| errors::create(folder, &error))?;
    let (info, payload_bytes_max) = (log.info(), log.payload_bytes_max());
    log.close().map_err(|error| Failure::new(Status::System, error))?;
    let mut output = Output::new();
    let (log_id, segment_bytes) = (info.log_id.to_string(), info.segment_bytes);
    if json {
        output.json(&Created { log_id, segment_bytes, payload_bytes_max, tail: info.tail.0 })?;
    } else {
        output.line(format_args!(
            "made log {log_id} in {}: segments of {segment_bytes} bytes, records up to {payload_bytes_max} bytes",
            folder.display()
        ))?;
    }
    output.flush()
}

/// Releases everything before `before`.
pub(super) fn trim(folder: &Path, options: Options, before: Lsn, json: bool) -> Result<(), Failure> {
    let log = match options.clone().open(folder) {
        Ok(log) => log,
        // What keeps it from being opened is what a trim takes away.
        Err(error) if errors::is_history_full(&error) => {
            let log = options.open_trimmed(folder, before);
            return finish(log.map_err(|error| errors::open_trimmed(folder, &error))?, json);
        }
        Err(error) => return Err(errors::open(folder, &error)),
    };
    let trimmed = log.trim(before).map_err(|error| match error {
        TrimError::InsideRecord { .. } | TrimError::Beyond { .. } => Failure::new(Status::Refused, error),
        TrimError::Io { .. } | TrimError::Closed | TrimError::Failed(_) => {
            Failure::new(Status::System, error)
        }
    });
    let info = log.info();
    let closed = log.close().map_err(|error| Failure::new(Status::System, error));
    trimmed.and(closed)?;
    let ends = Ends { trimmed: info.trimmed.0, tail: info.tail.0, epoch: info.epoch.to_string() };
    print(&ends, json)
}

/// Cuts the record at `from` and everything behind it.
pub(super) fn truncate(folder: &Path, options: Options, from: Lsn, json: bool) -> Result<(), Failure> {
    let log = match options.clone().open(folder) {
        Ok(log) => log,
        // What is to be cut may be what keeps the log from being opened.
        Err(error) if errors::is_damage(&error) => {
            let log = options.open_truncated(folder, from);
            return finish(log.map_err(|error| errors::open_truncated(folder, &error))?, json);
        }
        Err(error) => return Err(errors::open(folder, &error)),
    };
    match log.truncate(from) {
        Ok(next) => {
            drop(log);
            finish(next, json)
        }
        Err(error) => {
            // The refusal is what matters; what closing adds to it the next opening says again.
            let _ = log.close();
            Err(errors::truncate(folder, &error))
        }
    }
}

/// Closes what was cut or trimmed and says where it ends.
fn finish(log: Log, json: bool) -> Result<(), Failure> {
    let info = log.info();
    log.close().map_err(|error| Failure::new(Status::System, error))?;
    print(&Ends { trimmed: info.trimmed.0, tail: info.tail.0, epoch: info.epoch.to_string() }, json)
}

fn print(ends: &Ends, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    if json {
        output.json(ends)?;
    } else {
        output.line(format_args!(
            "the log holds LSNs {} to {}, epoch {}",
            ends.trimmed, ends.tail, ends.epoch
        ))?;
    }
    output.flush()
}
