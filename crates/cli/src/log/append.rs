//! `windlass log append`: records from a file or standard input.
//!
//! Records are appended while more input is at hand and committed together before the command waits for input again, so that a
//! slow producer sees each record acknowledged at once and a fast one gets large groups. A range is printed only after its
//! level is reached.

use std::io::BufReader;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use windlass::{AppendError, Appended, Level, Log, Lsn, Options};

use super::errors;
use super::output::Output;
use super::source::{Input, Source};
use crate::exit::{Failure, Status};

/// What to do about a record that is too long.
const TOO_LONG: &str = "split it (--frame), or make the log with larger segments";
/// How many records at most wait for their acknowledgement.
const PENDING_MAX: usize = 4096;
/// How long an append waits for the helper thread to prepare a segment.
const READY_MAX: Duration = Duration::from_secs(60);
/// How much of that passes before what is pending is committed meanwhile.
const READY_SOON: Duration = Duration::from_millis(100);

/// What to append, where, and how.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) folder: PathBuf,
    pub(super) options: Options,
    pub(super) source: Source,
    pub(super) level: Level,
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Summary {
    records: u64,
    payload_bytes: u64,
    end: u64,
    level: String,
}

/// Appends every record of the input.
pub(super) fn run(append: &Append) -> Result<(), Failure> {
    let input = append.source.open()?;
    let log =
        append.options.clone().open(&append.folder).map_err(|error| errors::open(&append.folder, &error))?;
    let mut session = Session {
        log: &log,
        append,
        output: Output::new(),
        pending: Vec::new(),
        payload_bytes: 0,
        records: 0,
        end: None,
    };
    let appended = session.append_all(input);
    // What was appended before a failure is acknowledged and closed like everything else.
    let committed = session.commit();
    let appended = match (appended, &committed) {
        (Err(failure), Ok(())) => Err(session.told(failure)),
        (appended, _) => appended,
    };
    let summary = match (&appended, append.json) {
        (Ok(()), true) => session.summary(),
        (Ok(()), false) | (Err(_), _) => Ok(()),
    };
    let flushed = session.output.flush();
    let closed = log.close().map_err(|error| Failure::new(Status::System, error));
    appended.and(committed).and(summary).and(flushed).and(closed)
}

struct Session<'a> {
    log: &'a Log,
    append: &'a Append,
    output: Output,
    pending: Vec<Appended>,
    records: u64,
    /// The end of the last of them.
    end: Option<Lsn>,
    payload_bytes: u64,
}

impl Session<'_> {
    fn append_all(&mut self, input: Input) -> Result<(), Failure> {
        let mut frames = self.append.source.frames(input, self.log.payload_bytes_max());
        let mut record = Vec::new();
        while self.append.source.next(&mut frames, &mut record, TOO_LONG)? {
            let appended = self.append(&record)?;
            self.end = Some(appended.end);
            self.pending.push(appended);
            self.records += 1;
            self.payload_bytes += record.len() as u64;
            if self.pending.len() >= PENDING_MAX || !frames.has_more_buffered(BufReader::buffer) {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Appends a record. What is pending is not kept waiting for its acknowledgement by a segment that is long in coming.
    fn append(&mut self, record: &[u8]) -> Result<Appended, Failure> {
        let mut appended = self.log.append_wait_blocking(record, Instant::now() + READY_SOON);
        if matches!(appended, Err(AppendError::Deadline { .. })) {
            self.commit()?;
            appended = self.log.append_wait_blocking(record, Instant::now() + READY_MAX);
        }
        appended.map_err(|error| append_failure(&error))
    }

    /// A failure, with how much of the input is in the log all the same; for when everything pending is committed.
    fn told(&self, mut failure: Failure) -> Failure {
        if failure.status == Status::Pipe {
            return failure;
        }
        let appended = match (self.records, self.end) {
            (0, _) | (_, None) => "no record of the input was appended".to_owned(),
            (1, Some(end)) => format!("the first record of the input was appended, up to LSN {end}"),
            (records, Some(end)) => {
                format!("the first {records} records of the input were appended, up to LSN {end}")
            }
        };
        failure.message = format!("{}; {appended}", failure.message);
        failure
    }

    /// Waits until everything pending has reached the level, then prints it.
    fn commit(&mut self) -> Result<(), Failure> {
        let Some(last) = self.pending.last() else { return Ok(()) };
        let _proof = self
            .log
            .commit_blocking(last.end, self.append.level)
            .map_err(|error| Failure::new(Status::System, error))?;
        for appended in self.pending.drain(..) {
            if !self.append.source.quiet {
                self.output.range(appended.start.0, appended.end.0, self.append.json)?;
            }
        }
        self.output.flush()
    }

    fn summary(&mut self) -> Result<(), Failure> {
        let (records, payload_bytes) = (self.records, self.payload_bytes);
        let level = self.append.level.to_string();
        self.output.json(&Summary { records, payload_bytes, end: self.log.info().tail.0, level })
    }
}

fn append_failure(error: &AppendError) -> Failure {
    let status = match error {
        AppendError::Failed(_) | AppendError::NoSegment { .. } | AppendError::Deadline { .. } => {
            Status::System
        }
        AppendError::NotReady { .. }
        | AppendError::Full { .. }
        | AppendError::DiskFull { .. }
        | AppendError::TooLarge { .. }
        | AppendError::Sealed { .. } => Status::Refused,
    };
    match error {
        AppendError::Full { retained_bytes, retention_bytes, trimmed } => Failure::new(
            status,
            format_args!(
                "the log is full: {retained_bytes} bytes from its start at LSN {trimmed} to its end, and it may take \
                 {retention_bytes} (--retention-bytes, in whole segments, at least 4); release what is no longer needed with \
                 `windlass log trim`, or append with a larger --retention-bytes"
            ),
        ),
        AppendError::Failed(_)
        | AppendError::NoSegment { .. }
        | AppendError::Deadline { .. }
        | AppendError::NotReady { .. }
        | AppendError::DiskFull { .. }
        | AppendError::TooLarge { .. }
        | AppendError::Sealed { .. } => Failure::new(status, error),
    }
}
