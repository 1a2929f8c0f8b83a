//! `windlass group append`: records to whichever member is primary, each once.
//!
//! Appends are pipelined on one connection, which is answered in order. When the connection ends, what was sent and not answered is
//! unknown. It is settled with the next primary: a barrier there commits the log's prefix in its epoch, so what lies between the last
//! known end and the barrier is all that can be of it; the unknown records that are found there, in their order, are committed, and the rest is sent again.
//!
//! Records carry no number, so a record is recognised by its bytes: another client that appends the same bytes in that moment can be mistaken for
//! this one. One appending client at a time is safe.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufReader};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{ANSWER, Group, LOOK, Notice, PATIENCE, SILENCE, stranger};
use crate::client::{self, PAYLOAD_BYTES_MAX, Reply, Request};
use crate::exit::{Failure, Status, tell};
use crate::log::output::Output;
use crate::log::source::{Input, Source};
use crate::session::{Sent, Session};

/// What to do about a record that is too long.
const TOO_LONG: &str = "split it (--frame)";
/// Payload bytes in flight at a time, beside the number of records.
const FLIGHT_BYTES: usize = 16 << 20;
/// The longest pause before a record that was refused is sent again.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What to append, where, and how.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) group: Group,
    pub(super) source: Source,
    pub(super) window: usize,
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Summary {
    records: u64,
    end: u64,
    takeovers: u64,
    found: u64,
    sent_again: u64,
}

/// Appends every record of the input.
pub(super) fn run(append: &Append) -> Result<(), Failure> {
    let input = append.source.open()?;
    let mut feed = Feed::new(append);
    let fed = feed.feed(input);
    // What was acknowledged before a failure is told all the same.
    let flushed = feed.output.flush();
    if fed.is_err() && !feed.pending.is_empty() {
        tell(format_args!("{}", feed.balance()));
    }
    fed.and(flushed)
}

struct Feed<'a> {
    append: &'a Append,
    output: Output,
    session: Option<Session>,
    epoch: String,
    /// Sent and not acknowledged, oldest first.
    pending: VecDeque<Vec<u8>>,
    pending_bytes: usize,
    book: Summary,
    /// Since when the oldest pending record is refused, by whichever member, and how often it was.
    refused: Option<(Instant, u32)>,
    /// All that is pending was refused, so that none of it is in the log.
    is_refused: bool,
    /// Why the group did not go on, as it said last.
    last_word: String,
}

impl<'a> Feed<'a> {
    fn new(append: &'a Append) -> Feed<'a> {
        Feed {
            append,
            output: Output::new(),
            session: None,
            epoch: String::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            book: Summary { records: 0, end: 0, takeovers: 0, found: 0, sent_again: 0 },
            refused: None,
            is_refused: false,
            last_word: String::new(),
        }
    }

    fn feed(&mut self, input: Input) -> Result<(), Failure> {
        let longest = self.find_primary()?;
        let mut frames = self.append.source.frames(input, longest);
        let mut record = Vec::new();
        let mut is_over = false;
        while !is_over || !self.pending.is_empty() {
            // Input is waited for only when nothing is in flight, so that a slow producer sees each record acknowledged.
            while !is_over
                && self.has_room()
                && (self.pending.is_empty() || frames.has_more_buffered(BufReader::buffer))
            {
                is_over = !self.append.source.next(&mut frames, &mut record, TOO_LONG)?;
                if !is_over {
                    self.send(record.clone());
                }
            }
            if let Some(session) = &mut self.session {
                // A broken connection is heard of by the next answer.
                let _ = session.flush();
            }
            self.hear()?;
            if self.pending.is_empty() {
                self.output.flush()?;
            }
        }
        if self.append.json {
            self.output.json(&self.book)?;
        }
        Ok(())
    }

    /// What became of the records, where not all are acknowledged.
    fn balance(&self) -> String {
        let (records, pending) = (self.book.records, self.pending.len());
        match (self.is_refused, pending) {
            (true, 1) => format!("{records} records are acknowledged; the next one is not in the log"),
            (true, _) => format!(
                "{records} records are acknowledged; the next {pending}, which were sent with them, are not in the log"
            ),
            (false, _) => format!(
                "{records} records are acknowledged; of the next {pending} it is unknown whether they are in the log"
            ),
        }
    }

    fn has_room(&self) -> bool {
        self.pending.len() < self.append.window && self.pending_bytes < FLIGHT_BYTES
    }

    fn send(&mut self, payload: Vec<u8>) {
        let sequence = self.book.records + self.pending.len() as u64;
        if let Some(session) = &mut self.session {
            session.append(Sent { sequence, at: Instant::now() }, payload.clone());
        }
        self.pending_bytes += payload.len();
        self.pending.push_back(payload);
    }

    /// Takes the answers that are there, waiting for the first if any is due.
    fn hear(&mut self) -> Result<(), Failure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        if session.in_flight.is_empty() {
            return Ok(());
        }
        let member = session.member;
        let mut heard = session.hear(SILENCE);
        if heard.is_none() {
            tell(format_args!(
                "waiting for m{}, the primary, to commit; gives up after {} s",
                self.append.group.members()[member].number,
                PATIENCE.as_secs()
            ));
            heard = session.hear(PATIENCE.saturating_sub(SILENCE));
        }
        loop {
            match heard {
                Some(Ok(Reply::Acknowledged { sequence, start, end })) if sequence == self.book.records => {
                    if let Some(session) = &mut self.session {
                        session.in_flight.pop_front();
                    }
                    self.refused = None;
                    self.acknowledged(start, end)?;
                }
                Some(Ok(Reply::Refused { sequence, passes, why })) => {
                    if sequence == self.book.records {
                        self.refused(sequence, passes, &why)?;
                    }
                    return self.take_over(why, true);
                }
                Some(Ok(Reply::Unknown { why, .. })) => return self.take_over(why, false),
                Some(Ok(other)) => {
                    return self.take_over(format!("an answer to something else: {other:?}"), false);
                }
                Some(Err(error)) => return self.take_over(error.to_string(), false),
                None => {
                    // The member lives and may append what it has not answered at any later moment: nothing can be settled.
                    let message =
                        format_args!("the primary has not answered within {} s", PATIENCE.as_secs());
                    return Err(Failure::new(Status::System, message));
                }
            }
            heard = self.session.as_mut().and_then(Session::hear_now);
            if heard.is_none() {
                return Ok(());
            }
        }
    }

    /// The oldest pending record is committed.
    fn acknowledged(&mut self, start: u64, end: u64) -> Result<(), Failure> {
        if let Some(payload) = self.pending.pop_front() {
            self.pending_bytes -= payload.len();
        }
        self.book.records += 1;
        self.book.end = end;
        if self.append.source.quiet { Ok(()) } else { self.output.range(start, end, self.append.json) }
    }

    /// The oldest pending record was refused. What passes by itself is waited for: a primary whose disk is full hands over to a member that has room.
    fn refused(&mut self, sequence: u64, passes: bool, why: &str) -> Result<(), Failure> {
        let number = sequence + 1;
        // The member has refused what came behind it on this connection, too, and everything that is pending was sent on it.
        let fails = |feed: &mut Self, status, words: fmt::Arguments<'_>| {
            feed.is_refused = true;
            Err(Failure::new(status, words))
        };
        if !passes {
            return fails(self, Status::Refused, format_args!("record {number} was refused: {why}"));
        }
        let (since, times) = self.refused.unwrap_or((Instant::now(), 0));
        self.refused = Some((since, times + 1));
        if since.elapsed() >= PATIENCE {
            let message = format_args!("record {number} was refused for {} s: {why}", PATIENCE.as_secs());
            return fails(self, Status::System, message);
        }
        let pause = LOOK.saturating_mul(1 << times.min(10)).min(PAUSE_MAX);
        let until = since.elapsed() + pause;
        if since.elapsed() < SILENCE && until >= SILENCE {
            tell(format_args!(
                "waiting for a primary that takes it: {why}; gives up after {} s",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(pause);
        Ok(())
    }

    /// The connection is of no use any more: finds the primary, settles what is unknown, sends the rest again. `is_refusal`: it was refused, and not lost.
    fn take_over(&mut self, why: String, is_refusal: bool) -> Result<(), Failure> {
        self.last_word = why;
        if let Some(mut session) = self.session.take() {
            // Acknowledgements that came before the loss count.
            while let Some(Ok(Reply::Acknowledged { sequence, start, end })) = session.hear_now() {
                if sequence == self.book.records {
                    self.acknowledged(start, end)?;
                }
            }
        }
        let (known, epoch) = (self.book.records, self.epoch.clone());
        self.find_primary()?;
        let found = self.book.records - known;
        if self.epoch != epoch {
            self.book.takeovers += 1;
            tell(format_args!(
                "goes on with another primary, epoch {}: of the records in flight {found} were in its log, {} are sent again",
                self.epoch,
                self.pending.len()
            ));
        }
        self.book.found += found;
        if !is_refusal || self.epoch != epoch {
            self.book.sent_again += self.pending.len() as u64;
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        for (sequence, payload) in (self.book.records..).zip(&self.pending) {
            session.append(Sent { sequence, at: Instant::now() }, payload.clone());
        }
        // A broken connection is heard of by the next answer.
        let _ = session.flush();
        Ok(())
    }

    /// Waits for a member that leads and can commit, and settles what is unknown with it. Answers the longest payload that it takes.
    fn find_primary(&mut self) -> Result<u64, Failure> {
        let _notice = Notice::new(&self.append.group);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((at, standing)) = self.append.group.primary()?
                && let Some(session) = self.settle(at)?
            {
                self.session = Some(session);
                self.epoch = standing.epoch;
                // Whatever a member says, a frame holds no more.
                let longest = standing.payload_bytes_max.unwrap_or(u64::MAX);
                return Ok(longest.min(PAYLOAD_BYTES_MAX as u64));
            }
            if Instant::now() > deadline {
                let mut failure =
                    self.append.group.no_primary(&format_args!("within {} s", PATIENCE.as_secs()));
                if !self.last_word.is_empty() {
                    failure.message = format!("{} (heard last: {})", failure.message, self.last_word);
                }
                return Err(failure);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Reads what the member's log has behind the last known end, up to a barrier. `None` if it does not lead, or can't commit.
    fn settle(&mut self, member: usize) -> Result<Option<Session>, Failure> {
        let socket = &self.append.group.members()[member].client;
        let connected = client::connect(socket, &self.append.group.pass, ANSWER);
        let mut session = match connected.and_then(|stream| Session::new(member, stream)) {
            Ok(session) => session,
            Err(error) => {
                return stranger(self.append.group.members()[member].number, &error).map_or(Ok(None), Err);
            }
        };
        let end = match asked(&mut session, &Request::Barrier) {
            Ok(Reply::Barrier { end }) => end,
            // No waiting mends that.
            Ok(Reply::Full { why }) => {
                let number = self.append.group.members()[member].number;
                return Err(Failure::new(Status::Refused, format_args!("m{number}, the primary: {why}")));
            }
            Ok(Reply::Failed { why }) => return self.unsettled(&why),
            Ok(other) => return self.unsettled(&format_args!("{other:?}")),
            Err(error) => return self.unsettled(&error),
        };
        if self.pending.is_empty() {
            self.book.end = end;
            return Ok(Some(session));
        }
        if let Err(error) = session.ask(&Request::Read { from: self.book.end, to: end }) {
            return self.unsettled(&error);
        }
        loop {
            match session.hear(PATIENCE) {
                Some(Ok(Reply::Record { start, end, payload })) => {
                    if self.pending.front() == Some(&payload) {
                        self.acknowledged(start, end)?;
                    }
                    // Another client's, if it is none of ours. Whatever comes of this connection, up to here all is settled.
                    self.book.end = end;
                }
                Some(Ok(Reply::ReadEnd)) => {
                    self.book.end = end;
                    return Ok(Some(session));
                }
                Some(Ok(Reply::Failed { why })) => return self.unsettled(&why),
                Some(Ok(other)) => return self.unsettled(&format_args!("{other:?}")),
                Some(Err(error)) => return self.unsettled(&error),
                None => return self.unsettled(&"no answer"),
            }
        }
    }

    fn unsettled(&mut self, why: &dyn std::fmt::Display) -> Result<Option<Session>, Failure> {
        self.last_word = why.to_string();
        Ok(None)
    }
}

/// Asks a question on a connection that has none outstanding.
fn asked(session: &mut Session, request: &Request) -> io::Result<Reply> {
    session.ask(request)?;
    session.hear(Duration::from_secs(10)).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}
