//! Feeding the cluster: appends in flight to the primary, faults on schedule, takeovers settled before anything is sent again.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::cluster::Cluster;
use super::input::{Input, sequence_of};
use super::ledger::{Defect, Ledger};
use super::report::{Progress, Takeover, total};
use super::strike::{Fault, Faults, Struck};
use crate::client::{Reply, Request, Windows};
use crate::exit::{Failure, Status};
use crate::session::{Sent, Session};

/// How long a takeover, a rejoin or the last acknowledgements may take before the demo fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How long windows may take to come to the end of their keys, where that is waited for.
const USED_UP_PATIENCE: Duration = Duration::from_secs(3600);
/// How often the members are asked how far their windows are.
const USED_UP_LOOK: Duration = Duration::from_millis(500);

/// How long the client goes on.
pub(super) struct Until {
    /// At least so long.
    pub(super) length: Duration,
    /// Until the primary was struck so often, evenly spread over that time.
    pub(super) strikes: u32,
    /// So many windows have come to the end of their keys before the last strike, and before the end.
    pub(super) used_up: u64,
}

/// Why the connection to the primary ended.
pub(super) struct Loss {
    /// When the primary was struck, or the loss was seen.
    pub(super) at: Instant,
    /// What the demo did to it, if it was that.
    pub(super) fault: Option<Fault>,
}

/// The client at work.
pub(super) struct Feed<'a> {
    pub(super) cluster: &'a mut Cluster,
    input: &'a Input,
    pub(super) progress: &'a mut Progress,
    window: usize,
    suspicion_ms: u64,
    pub(super) faults: Faults,
    pub(super) ledger: Ledger,
    pub(super) latency_us: Histogram<u64>,
    pub(super) takeovers: Vec<Takeover>,
    pub(super) session: Option<Session>,
    pub(super) epoch: String,
    /// The takeover whose first new acknowledgement has not come yet, and when it began.
    pub(super) unfinished: Option<(Takeover, Instant)>,
    pub(super) struck: Option<Struck>,
    payload: Vec<u8>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(
        cluster: &'a mut Cluster,
        input: &'a Input,
        progress: &'a mut Progress,
        window: usize,
        faults: Faults,
    ) -> Result<Feed<'a>, Failure> {
        let suspicion_ms = cluster.config.suspicion_ms;
        let latency_us = Histogram::new_with_bounds(1, 600_000_000, 3)
            .map_err(|error| Failure::new(Status::System, error))?;
        let mut feed = Feed {
            cluster,
            input,
            progress,
            window,
            suspicion_ms,
            faults,
            ledger: Ledger::new(0),
            latency_us,
            takeovers: Vec::new(),
            session: None,
            epoch: String::new(),
            unfinished: None,
            struck: None,
            payload: Vec::new(),
        };
        feed.find_primary()?;
        Ok(feed)
    }

    /// Feeds for this long and strikes the primary this many times. Goes on past the time until the last victim is back.
    pub(super) fn run(&mut self, until: &Until) -> Result<Duration, Failure> {
        let Until { length, strikes, used_up } = *until;
        let start = Instant::now();
        let mut keys = Keys { wanted: used_up, seen: 0, looked: start };
        self.progress.begin();
        if let Some(session) = &self.session {
            self.progress.leads(&self.cluster.name(session.member), &self.epoch);
        }
        let mut done = 0;
        loop {
            let now = Instant::now();
            let is_whole = self.unfinished.is_none() && self.struck.is_none();
            if now - start >= length && done == strikes && is_whole && keys.are_used_up() {
                break;
            }
            self.fill(now);
            self.hear(Duration::from_millis(5))?;
            self.look_for_struck()?;
            if self.unfinished.is_none() {
                self.progress.tick(&self.epoch, self.ledger.acknowledged());
            }
            if is_whole {
                keys.look(self.cluster, now, start)?;
            }
            let due = start + length * (done + 1) / (strikes + 1);
            let is_due = now >= due && (done + 1 < strikes || keys.are_used_up());
            if done < strikes && is_due && is_whole && self.strike()? {
                done += 1;
            }
        }
        let fed = start.elapsed();
        self.drain()?;
        Ok(fed)
    }

    /// Sends new records until the window is full.
    pub(super) fn fill(&mut self, now: Instant) {
        self.fill_to(self.window, now);
    }

    /// Sends as many new records again as the window has.
    pub(super) fn fill_beyond(&mut self) {
        self.fill_to(2 * self.window, Instant::now());
    }

    fn fill_to(&mut self, window: usize, now: Instant) {
        let Some(session) = &mut self.session else { return };
        while session.in_flight.len() < window {
            let sequence = self.ledger.next;
            self.input.payload(sequence, &mut self.payload);
            session.append(Sent { sequence, at: now }, self.payload.clone());
            self.ledger.next += 1;
        }
        // A broken connection is heard of by the next answer.
        let _ = session.flush();
    }

    /// Takes answers, waiting up to `patience` for the first.
    pub(super) fn hear(&mut self, patience: Duration) -> Result<(), Failure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let mut heard = session.hear(patience);
        while let Some(answer) = heard {
            match answer {
                Ok(Reply::Acknowledged { sequence, start, end }) => {
                    self.acknowledged(sequence, start, end)?
                }
                Ok(_) | Err(_) => return self.take_over(&Loss { at: Instant::now(), fault: None }),
            }
            heard = self.session.as_mut().and_then(Session::hear_now);
        }
        Ok(())
    }

    fn acknowledged(&mut self, sequence: u64, start: u64, end: u64) -> Result<(), Failure> {
        let now = Instant::now();
        if let Some(sent) = self.session.as_mut().and_then(|session| session.in_flight.pop_front()) {
            let us = u64::try_from((now - sent.at).as_micros()).unwrap_or(u64::MAX);
            self.latency_us.saturating_record(us);
        }
        self.ledger.acknowledge(sequence, start, end).map_err(defect)?;
        if let Some((mut takeover, began)) = self.unfinished.take() {
            takeover.kill_to_commit_ms = milliseconds(now - began);
            self.progress.takeover(&takeover);
            self.takeovers.push(takeover);
            self.release(self.takeovers.len() - 1)?;
        }
        Ok(())
    }

    /// Finds the new primary, reads its log to settle what is unknown, and sends again what is not in it.
    pub(super) fn take_over(&mut self, loss: &Loss) -> Result<(), Failure> {
        let before = (self.session.as_ref().map(|session| session.member), self.epoch.clone());
        if let Some(mut session) = self.session.take() {
            // Acknowledgements that came before the loss count.
            while let Some(Ok(Reply::Acknowledged { sequence, start, end })) = session.hear_now() {
                session.in_flight.pop_front();
                self.ledger.acknowledge(sequence, start, end).map_err(defect)?;
            }
            self.ledger.unknown.extend(session.in_flight.iter().copied());
            if loss.fault == Some(Fault::Freeze) {
                self.keep(session);
            }
        }
        let unknown = self.ledger.unknown.len();
        let known = self.ledger.acknowledged();
        self.find_primary()?;
        let found = self.ledger.acknowledged() - known;
        let Some(session) = &mut self.session else { return Ok(()) };
        let again = self.ledger.unknown.len();
        for sent in self.ledger.unknown.drain(..) {
            self.input.payload(sent.sequence, &mut self.payload);
            session.append(sent, self.payload.clone());
        }
        let _ = session.flush();
        if self.epoch != before.1 {
            // One that was lost before it had acknowledged anything new is a part of this one.
            let (from, fault, began) = match self.unfinished.take() {
                Some((earlier, began)) => (Some(earlier.from), earlier.fault.or(loss.fault), began),
                None => (before.0.map(|member| self.cluster.name(member)), loss.fault, loss.at),
            };
            let takeover = Takeover {
                from: from.unwrap_or_default(),
                to: self.cluster.name(session.member),
                epoch: self.epoch.clone(),
                killed: fault == Some(Fault::Kill),
                fault,
                late: None,
                unknown,
                found: usize::try_from(found).unwrap_or(usize::MAX),
                sent_again: again,
                suspicion_ms: self.suspicion_ms,
                kill_to_commit_ms: 0.0,
            };
            self.unfinished = Some((takeover, began));
        }
        Ok(())
    }

    /// Waits for a member that leads and can commit, and settles what is unknown.
    fn find_primary(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.cluster.check_alive(self.may_end())?;
            for member in 0..self.cluster.len() {
                let Some(standing) = self.cluster.standing(member) else { continue };
                if standing.role != "primary" {
                    continue;
                }
                if self.ledger.next == 0 {
                    self.ledger.end = standing.trimmed;
                }
                if let Some(session) = self.settle(member)? {
                    self.session = Some(session);
                    self.epoch = standing.epoch;
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                return Err(self.no_primary());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads what the member's log has behind the acknowledged records, up to a barrier. `None` if it leads no more.
    fn settle(&mut self, member: usize) -> Result<Option<Session>, Failure> {
        let Ok(mut session) = self.cluster.connect(member).and_then(|stream| Session::new(member, stream))
        else {
            return Ok(None);
        };
        if session.ask(&Request::Barrier).is_err() {
            return Ok(None);
        }
        let Some(Ok(Reply::Barrier { end })) = session.hear(PATIENCE) else { return Ok(None) };
        if session.ask(&Request::Read { from: self.ledger.end, to: end }).is_err() {
            return Ok(None);
        }
        loop {
            match session.hear(PATIENCE) {
                Some(Ok(Reply::Record { start, end: _, payload })) => {
                    let sequence = sequence_of(&payload);
                    self.input.payload(sequence.unwrap_or_default(), &mut self.payload);
                    self.ledger.found(sequence, start, self.payload == payload).map_err(defect)?;
                }
                Some(Ok(Reply::ReadEnd)) => {
                    self.ledger.settled(end);
                    return Ok(Some(session));
                }
                Some(Ok(_) | Err(_)) | None => return Ok(None),
            }
        }
    }

    /// Waits for the last acknowledgements; sends nothing new.
    fn drain(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while self.session.as_ref().is_some_and(|session| !session.in_flight.is_empty()) {
            self.hear(Duration::from_millis(50))?;
            if Instant::now() > deadline {
                return Err(Failure::new(Status::System, "the last records were not acknowledged"));
            }
        }
        self.session = None;
        Ok(())
    }

    fn no_primary(&self) -> Failure {
        let standings: Vec<String> = (0..self.cluster.len())
            .map(|member| {
                let standing = self.cluster.standing(member);
                let words =
                    standing.map_or(String::from("does not answer"), |s| format!("{} {}", s.role, s.epoch));
                format!("{} {words}", self.cluster.name(member))
            })
            .collect();
        let lines = self.cluster.lines(0).with_file_name("m*.log");
        let message = format_args!(
            "no member has become primary within {} s: {}; their lines: {}",
            PATIENCE.as_secs(),
            standings.join(", "),
            lines.display()
        );
        Failure::new(Status::System, message)
    }
}

/// The windows whose end is waited for.
struct Keys {
    /// So many have to have come to the end of their keys.
    wanted: u64,
    /// So many had, when the members were last asked.
    seen: u64,
    looked: Instant,
}

impl Keys {
    fn are_used_up(&self) -> bool {
        self.seen >= self.wanted
    }

    /// Asks the members, now and then, as long as there is something to wait for.
    fn look(&mut self, cluster: &Cluster, now: Instant, start: Instant) -> Result<(), Failure> {
        if self.are_used_up() || now.saturating_duration_since(self.looked) < USED_UP_LOOK {
            return Ok(());
        }
        self.looked = now;
        let standings = (0..cluster.len()).filter_map(|member| cluster.standing(member));
        let windows: Vec<Windows> = standings.map(|standing| standing.windows).collect();
        self.seen = total(windows.iter().map(|of_one| of_one.used_up));
        if self.are_used_up() || now.saturating_duration_since(start) < USED_UP_PATIENCE {
            return Ok(());
        }
        let message = format_args!(
            "{} of {} windows have come to the end of their keys within {} s, in {} binds: shorter segments (--segment-bytes) bind more often",
            self.seen,
            self.wanted,
            USED_UP_PATIENCE.as_secs(),
            total(windows.iter().map(|of_one| of_one.binds))
        );
        Err(Failure::new(Status::System, message))
    }
}

pub(super) fn defect(defect: Defect) -> Failure {
    Failure::new(Status::Damage, defect)
}

/// A random moment within about the time that a window takes.
pub(super) fn moment() -> Result<Duration, Failure> {
    let random = getrandom::u32().map_err(|error| Failure::new(Status::System, error))?;
    Ok(Duration::from_micros(u64::from(random % 400)))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
