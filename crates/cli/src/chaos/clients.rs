//! The clients: each finds the primary, appends records of its own and writes down what it sees; readers read to a barrier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::history::{Append, History, Outcome, Read};
use super::members::Sockets;
use crate::client::{Reply, Request};
use crate::session::{Sent, Session};

/// Appends of one client that wait for their answers.
const WINDOW: usize = 32;
/// A primary that has answered nothing for so long is left, and its answers are waited for beside the next one's.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a reader waits for a barrier and its records.
const READING: Duration = Duration::from_secs(3);
/// Between two reads of one reader.
const READS_APART: Duration = Duration::from_millis(300);

/// What all clients share.
pub(super) struct Shared {
    pub(super) sockets: Sockets,
    pub(super) begun: Instant,
    pub(super) is_over: AtomicBool,
    pub(super) acknowledged: AtomicU64,
    /// Where the log begins.
    pub(super) start: u64,
    /// Appends of one client in a second.
    pub(super) rate: u64,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// A record's bytes: its number, and a filler that follows from it.
pub(super) fn payload(id: u64) -> Vec<u8> {
    let bytes = usize::try_from(id.wrapping_mul(0x9e37_79b9) % 300).unwrap_or(0);
    let mut payload = id.to_le_bytes().to_vec();
    payload.resize(8 + bytes, id.to_le_bytes()[0]);
    payload
}

/// The number of a record that is just as it was sent.
pub(super) fn id_of(record: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(record.get(..8)?.try_into().ok()?);
    (payload(id) == record).then_some(id)
}

/// Starts a client whose records are numbered from `first` in steps of `step`.
pub(super) fn appender(shared: &Arc<Shared>, first: u64, step: u64) -> JoinHandle<History> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut appender =
            Appender { shared, next: first, step, appends: Vec::new(), session: None, left: Vec::new() };
        appender.run();
        History { appends: appender.appends, reads: Vec::new() }
    })
}

struct Appender {
    shared: Arc<Shared>,
    next: u64,
    step: u64,
    /// By number, which is its place.
    appends: Vec<Append>,
    session: Option<(Session, Instant)>,
    /// Connections to members that fell silent: what they still say counts.
    left: Vec<Session>,
}

impl Appender {
    fn run(&mut self) {
        let tick = Duration::from_millis(5);
        let per_tick = (self.shared.rate * 5).div_ceil(1000).max(1);
        while !self.shared.is_over() {
            if self.session.is_none() {
                self.find();
            }
            self.send(per_tick);
            self.hear(tick);
        }
        // The last answers.
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && (self.session.is_some() || !self.left.is_empty()) {
            self.hear(tick);
            if self.session.as_ref().is_some_and(|(session, _)| session.in_flight.is_empty()) {
                self.session = None;
            }
        }
    }

    fn find(&mut self) {
        let found = self.shared.sockets.primary();
        let session = found.and_then(|(at, _)| Session::new(at, self.shared.sockets.connect(at).ok()?).ok());
        self.session = session.map(|session| (session, Instant::now()));
        if self.session.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn send(&mut self, most: u64) {
        let Some((session, _)) = &mut self.session else { return };
        for _ in 0..most {
            if session.in_flight.len() >= WINDOW {
                break;
            }
            let id = self.next;
            self.next += self.step;
            let invoked_ns = self.shared.now();
            self.appends.push(Append { id, invoked_ns, outcome: Outcome::Unknown });
            session.append(Sent { sequence: id, at: Instant::now() }, payload(id));
        }
        // A broken connection is heard of by the next answer.
        let _ = session.flush();
    }

    fn hear(&mut self, patience: Duration) {
        let begun = Instant::now();
        let mut is_left = false;
        if let Some((session, heard_at)) = &mut self.session {
            let mut answer = session.hear(patience);
            while let Some(reply) = answer {
                *heard_at = Instant::now();
                is_left |= !note(&self.shared, &mut self.appends, self.step, session, reply);
                answer = if is_left { None } else { session.hear_now() };
            }
            let is_silent = !session.in_flight.is_empty() && heard_at.elapsed() > SILENCE;
            if is_left {
                self.session = None;
            } else if is_silent && let Some((session, _)) = self.session.take() {
                self.left.push(session);
            }
        }
        let Appender { shared, appends, step, left, .. } = self;
        left.retain_mut(|session| {
            while let Some(reply) = session.hear_now() {
                if !note(shared, appends, *step, session, reply) {
                    return false;
                }
            }
            !session.in_flight.is_empty()
        });
        // The rate is the tick's.
        std::thread::sleep(patience.saturating_sub(begun.elapsed()));
    }
}

/// Writes an answer down. `false` if the connection is of no more use for appends.
fn note(
    shared: &Shared,
    appends: &mut [Append],
    step: u64,
    session: &mut Session,
    reply: std::io::Result<Reply>,
) -> bool {
    let at_ns = shared.now();
    let (sequence, outcome, goes_on) = match reply {
        Ok(Reply::Acknowledged { sequence, start, end }) => {
            shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            (sequence, Outcome::Acknowledged { start, end, at_ns }, true)
        }
        // All behind it on this connection are refused, too: their answers come.
        Ok(Reply::Refused { sequence, .. }) => (sequence, Outcome::Refused, session.in_flight.len() > 1),
        Ok(Reply::Unknown { sequence, .. }) => (sequence, Outcome::Unknown, session.in_flight.len() > 1),
        Ok(_) | Err(_) => return false,
    };
    session.in_flight.pop_front();
    let place = usize::try_from(sequence / step).ok().and_then(|at| appends.get_mut(at));
    if let Some(append) = place {
        append.outcome = outcome;
    }
    goes_on
}

/// Starts a reader.
pub(super) fn reader(shared: &Arc<Shared>) -> JoinHandle<History> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut history = History::default();
        let mut from = shared.start;
        while !shared.is_over() {
            if let Some(read) = read(&shared, from) {
                from = read.to;
                history.reads.push(read);
            }
            std::thread::sleep(READS_APART);
        }
        history
    })
}

/// One read, from whoever says that it leads; nothing if that came to nothing.
fn read(shared: &Shared, from: u64) -> Option<Read> {
    let (at, _) = shared.sockets.primary()?;
    let mut session = Session::new(at, shared.sockets.connect(at).ok()?).ok()?;
    let invoked_ns = shared.now();
    session.ask(&Request::Barrier).ok()?;
    let Reply::Barrier { end: to } = session.hear(READING)?.ok()? else { return None };
    session.ask(&Request::Read { from, to }).ok()?;
    let mut records = Vec::new();
    loop {
        let reply = session.hear(READING)?.ok()?;
        if reply == Reply::ReadEnd {
            return Some(Read { invoked_ns, returned_ns: shared.now(), from, to, records });
        }
        let Reply::Record { start, payload, .. } = reply else { return None };
        records.push((start, id_of(&payload)));
    }
}
