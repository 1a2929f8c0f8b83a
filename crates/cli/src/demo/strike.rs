//! What the demo does to the primary, and how the member comes back.
//!
//! ```text
//!  kill:     SIGKILL ── takeover, first new acknowledgement ── start again ── caught up
//!  freeze:   SIGSTOP ── takeover, first new acknowledgement ── SIGCONT ── its old answers are heard ── caught up
//!  command:  `CMD begin N` ── the group goes on or takes over ── `CMD end N` ── caught up
//! ```
//!
//! A frozen primary does not know that it was deposed. What it says once it is thawed is checked: it may call a record committed only if the
//! group's log has it, at that place; all else it must call unknown or refuse.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

use super::feed::{Feed, Loss, PATIENCE, defect, moment};
use crate::client::Reply;
use crate::exit::{Failure, Status};
use crate::session::Session;

/// How often a member that comes back is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long records are sent on after the fault's command has begun, so that its effect meets a full window.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// What is done to the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fault {
    /// Its process is killed (SIGKILL) and started again after the takeover
    Kill,
    /// Its process is frozen (SIGSTOP) and thawed (SIGCONT) after the takeover
    Freeze,
    /// --fault-command is run, which does something to it
    Command,
}

/// How the primary is struck.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) fault: Fault,
    /// Run with `begin` and `end` and the member's number; around a freeze, too, if it is there.
    pub(super) command: Option<String>,
    /// How long a fault of kind `command` lasts.
    pub(super) lasts: Duration,
}

/// What a thawed primary said and did of its old tenure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Late {
    /// Records that it called committed; each is in the group's log, at that place.
    pub(super) acknowledged: u64,
    /// Records whose outcome it called unknown.
    pub(super) unknown: u64,
    /// Records that it refused to append.
    pub(super) refused: u64,
    /// Batches of its that the backups refused, or that were lost with their connection.
    pub(super) void_batches: u64,
}

/// A member that was struck and is not back yet.
pub(super) struct Struck {
    member: usize,
    /// When it was started again or thawed, or the command's effect was taken away; before that, when it was struck.
    since: Instant,
    /// It is back once its durable mark has reached this.
    end: u64,
    looked: Instant,
    /// A command's effect, which is taken away then.
    until: Option<Instant>,
    frozen: Option<Frozen>,
}

/// A frozen primary, and what it still has to answer.
struct Frozen {
    /// The connection to it; it has appends in flight.
    session: Option<Session>,
    late: Late,
    /// Its count of void batches before.
    void_batches: u64,
    /// Its place among the takeovers, once that is over.
    takeover: Option<usize>,
}

impl Feed<'_> {
    /// Strikes the primary, mid-stream: with a full window under way, at any moment of its way. `false` if there was none any more.
    pub(super) fn strike(&mut self) -> Result<bool, Failure> {
        let Some(member) = self.session.as_ref().map(|session| session.member) else { return Ok(false) };
        let faults = self.faults.clone();
        let (now, epoch) = (Instant::now(), self.epoch.clone());
        let mut struck = Struck { member, since: now, end: 0, looked: now, until: None, frozen: None };
        match faults.fault {
            Fault::Kill => {
                self.fill(now);
                std::thread::sleep(moment()?);
                let at = Instant::now();
                self.cluster.kill(member)?;
                self.progress.struck(&self.cluster.name(member), "killed (SIGKILL)", at);
                struck.since = at;
                self.struck = Some(struck);
                self.take_over(&Loss { at, fault: Some(Fault::Kill) })?;
            }
            Fault::Freeze => {
                let void_batches = self.cluster.standing(member).map_or(0, |standing| standing.void_batches);
                if faults.command.is_some() {
                    self.run_command("begin", member)?;
                    let begun = Instant::now();
                    while begun.elapsed() < UNDER_WAY {
                        self.hear(Duration::from_millis(5))?;
                        self.fill(Instant::now());
                    }
                    if self.epoch != epoch || self.session.is_none() {
                        // It was deposed meanwhile: there is nothing left to freeze.
                        self.run_command("end", member)?;
                        return Ok(false);
                    }
                }
                self.fill(Instant::now());
                std::thread::sleep(moment()?);
                let at = Instant::now();
                self.cluster.freeze(member)?;
                self.progress.struck(&self.cluster.name(member), "frozen (SIGSTOP)", at);
                // These wait in its socket: it appends, or refuses, them once it is thawed.
                self.fill_beyond();
                let late = Late::default();
                struck.frozen = Some(Frozen { session: None, late, void_batches, takeover: None });
                struck.since = at;
                self.struck = Some(struck);
                self.take_over(&Loss { at, fault: Some(Fault::Freeze) })?;
            }
            Fault::Command => {
                self.fill(now);
                self.run_command("begin", member)?;
                self.progress.struck(&self.cluster.name(member), "struck by the fault's command", now);
                struck.until = Some(Instant::now() + faults.lasts);
                self.struck = Some(struck);
            }
        }
        Ok(true)
    }

    /// Keeps the connection to a frozen primary, whose answers are still to come.
    pub(super) fn keep(&mut self, session: Session) {
        let frozen = self.struck.as_mut().and_then(|struck| struck.frozen.as_mut());
        if let Some(frozen) = frozen.filter(|frozen| frozen.takeover.is_none() && frozen.session.is_none()) {
            frozen.session = Some(session);
        }
    }

    /// Lets the struck member come back, once the group has gone on without it: `takeover` is that one's place.
    pub(super) fn release(&mut self, takeover: usize) -> Result<(), Failure> {
        let Some(struck) = &mut self.struck else { return Ok(()) };
        let member = struck.member;
        struck.end = self.ledger.end;
        match (&mut struck.frozen, struck.until) {
            (Some(frozen), _) if frozen.takeover.is_none() => {
                frozen.takeover = Some(takeover);
                self.run_command("end", member)?;
                self.cluster.thaw(member)?;
            }
            (None, None) if !self.cluster.runs(member) => self.cluster.restart(member)?,
            // Back already, and there was another takeover; or the command's time is not over.
            (Some(_) | None, _) => return Ok(()),
        }
        if let Some(struck) = &mut self.struck {
            struck.since = Instant::now();
            struck.looked = struck.since;
        }
        Ok(())
    }

    /// Sees whether the struck member is back: it takes part again, with everything durable that was acknowledged when it was let go, and
    /// has answered for its old tenure.
    pub(super) fn look_for_struck(&mut self) -> Result<(), Failure> {
        let (None, Some(struck)) = (&self.unfinished, &mut self.struck) else { return Ok(()) };
        let member = struck.member;
        if let Some(until) = struck.until {
            if Instant::now() < until {
                return Ok(());
            }
            struck.until = None;
            struck.end = self.ledger.end;
            self.run_command("end", member)?;
            if let Some(struck) = &mut self.struck {
                struck.since = Instant::now();
            }
        }
        let Some(struck) = &mut self.struck else { return Ok(()) };
        if let Some(frozen) = &mut struck.frozen {
            while let Some(session) = &mut frozen.session {
                match session.hear_now() {
                    Some(Ok(Reply::Acknowledged { sequence, start, .. })) => {
                        self.ledger.acknowledged_late(sequence, start).map_err(defect)?;
                        frozen.late.acknowledged += 1;
                    }
                    Some(Ok(Reply::Unknown { .. })) => frozen.late.unknown += 1,
                    Some(Ok(Reply::Refused { .. })) => frozen.late.refused += 1,
                    Some(Ok(_) | Err(_)) => {
                        let message = "a thawed primary has closed its client's connection unasked";
                        return Err(Failure::new(Status::System, message));
                    }
                    None => break,
                }
                session.in_flight.pop_front();
                if session.in_flight.is_empty() {
                    frozen.session = None;
                }
            }
        }
        if struck.looked.elapsed() < LOOK {
            return Ok(());
        }
        struck.looked = Instant::now();
        let (end, took) = (struck.end, struck.since.elapsed());
        let has_answered = struck.frozen.as_ref().is_none_or(|frozen| frozen.session.is_none());
        self.cluster.check_alive(self.may_end())?;
        if self.may_end() == Some(member) {
            self.cluster.revive(member)?;
        }
        let standing = self.cluster.standing(member);
        let takes_part = |role: &str, durable: u64| matches!(role, "backup" | "primary") && durable >= end;
        match standing.filter(|standing| has_answered && takes_part(&standing.role, standing.durable)) {
            Some(standing) => self.back(standing.void_batches, took),
            None if took > PATIENCE => {
                let (name, lines) = (self.cluster.name(member), self.cluster.lines(member));
                let message = format_args!(
                    "{name} was struck and has not caught up within {} s since it could; its lines: {}",
                    PATIENCE.as_secs(),
                    lines.display()
                );
                Err(Failure::new(Status::System, message))
            }
            None => Ok(()),
        }
    }

    /// The struck member is back.
    fn back(&mut self, void_batches: u64, took: Duration) -> Result<(), Failure> {
        let Some(struck) = self.struck.take() else { return Ok(()) };
        let name = self.cluster.name(struck.member);
        let Some(mut frozen) = struck.frozen else {
            self.progress.back(&name, self.faults.fault, took);
            return Ok(());
        };
        frozen.late.void_batches = void_batches.saturating_sub(frozen.void_batches);
        self.progress.thawed(&name, took, &frozen.late);
        if let Some(takeover) = frozen.takeover.and_then(|at| self.takeovers.get_mut(at)) {
            takeover.late = Some(frozen.late);
        }
        Ok(())
    }

    /// The member whose process may end by itself: its fault's command can have taken its device away.
    pub(super) fn may_end(&self) -> Option<usize> {
        let struck = self.struck.as_ref().filter(|struck| struck.frozen.is_none());
        struck.filter(|_| self.faults.fault == Fault::Command).map(|struck| struck.member)
    }

    /// Runs the fault's command, if there is one, and waits for it.
    fn run_command(&self, what: &str, member: usize) -> Result<(), Failure> {
        let Some(command) = &self.faults.command else { return Ok(()) };
        let number = self.cluster.config.members[member].number.to_string();
        let ended = Command::new("sh")
            .args(["-c", &format!("{command} \"$@\""), "fault", what, &number])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|error| Failure::io("the fault's command", &error))?;
        if ended.success() {
            return Ok(());
        }
        let message = format_args!("the fault's command failed: {command} {what} {number}: {ended}");
        Err(Failure::new(Status::System, message))
    }
}
