//! The group's clients: appenders at mixed levels, and one that trims.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use windlass::{Appended, Commit, CommitError, Committed, Epoch, Level, Log, Lsn, Reservation};
use windlass_log::RecordKind;

use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::{MS, US};
use crate::oracle::{Checked, Content, answers, batch_hash, hash_of, medium, read_errors};

/// Commits that one member's clients wait for at most.
const WAITING_MAX: usize = 400;

/// A commit that somebody waits for.
pub(super) struct Pending {
    commit: Pin<Box<Commit>>,
    waker: Waker,
    member: usize,
    life: u64,
    epoch: Epoch,
    start: Lsn,
    end: Lsn,
    level: Level,
}

/// Says which commit may go on.
struct Bell {
    number: u64,
    rung: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// What an append of this number has, `bytes` long and not below 8.
fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(8);
    let mut payload = Vec::with_capacity(bytes + 8);
    for word in words(number).take(bytes.div_ceil(8)) {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    payload.truncate(bytes);
    payload
}

/// The words of an append of this number.
fn words(number: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(number), |word| {
        Some(word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ 0x5bd1_e995)
    })
}

impl World {
    /// Somebody appends a few records.
    pub(super) fn append_some(&mut self) {
        if !self.is_busy {
            return;
        }
        let after = self.random.range(self.setting.append_ns / 2, self.setting.append_ns * 3 / 2);
        self.plan(after, What::Append);
        let leaders = self.leaders();
        if leaders.is_empty() {
            return;
        }
        let at = leaders[self.random.index(leaders.len())];
        let member = &self.members[at];
        let Some(log) = member.log.clone() else { return };
        let waiting = self.pending.values().filter(|pending| pending.member == at).count();
        if member.paused_until > self.now || waiting > WAITING_MAX {
            return;
        }
        member.clock.set(member.local(self.now));
        for _ in 0..self.random.range(1, self.setting.append_most) {
            self.events += 1;
            self.append(at, &log);
        }
        self.wake(at);
    }

    /// Long records on every primary, again and again for a few milliseconds.
    pub(super) fn burst(&mut self, left: u32) {
        if left == 0 || !self.is_faulty {
            return;
        }
        self.plan(80 * US, What::Burst { left: left - 1 });
        for at in self.leaders() {
            let member = &self.members[at];
            let Some(log) = member.log.clone().filter(|_| member.paused_until <= self.now) else { continue };
            member.clock.set(member.local(self.now));
            let bytes = self.random.range(1_000, 5_000);
            self.append_record(at, &log, bytes);
            self.wake(at);
        }
    }

    fn append(&mut self, at: usize, log: &Log) {
        let bytes = match self.random.range(0, 40) {
            0 => self.random.range(2_000, 12_000),
            1 => 8,
            _ => self.random.range(8, 300),
        };
        self.append_record(at, log, bytes);
    }

    fn append_record(&mut self, at: usize, log: &Log, bytes: u64) {
        let bytes = self.setting.record_bytes.unwrap_or(bytes);
        let bytes = usize::try_from(bytes).unwrap_or(8);
        self.next_append += 1;
        let number = self.next_append << 8;
        let (appended, kind, hash) = match self.random.range(0, 20) {
            0 => {
                let items: Vec<Vec<u8>> = (0..3).map(|item| payload(number + item, bytes / 3)).collect();
                let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
                (log.append_batch(&items), RecordKind::Batch, batch_hash(items.iter().copied()))
            }
            1 => {
                // A reservation that is given up leaves filler.
                if let Ok(reservation) = log.reserve(bytes) {
                    drop(reservation);
                    self.mark(Mark::ReservationDropped);
                }
                return;
            }
            2 => {
                let payload = payload(number, bytes);
                let Ok(mut reservation) = log.reserve(payload.len()) else {
                    return self.mark(Mark::AppendRefused);
                };
                reservation.write(0, &payload);
                let Some(appended) = self.hold(at, reservation) else { return };
                (Ok(appended), RecordKind::Data, hash_of(&payload))
            }
            _ => {
                let payload = payload(number, bytes);
                (log.append(&payload), RecordKind::Data, hash_of(&payload))
            }
        };
        let Ok(appended) = appended else { return self.mark(Mark::AppendRefused) };
        let epoch = log.info().epoch;
        let content = Content { end: appended.end, epoch, kind, hash };
        let checked = self.oracle.appended(appended.start, content);
        self.check(checked);
        self.commit(at, log, epoch, &appended);
    }

    /// A client takes its time with a reservation, or never comes back to it. What it had reserved when it published it.
    fn hold(&mut self, at: usize, reservation: Reservation<'_>) -> Option<Appended> {
        let life = self.members[at].life;
        // One is enough: each takes seconds to be given up.
        let may_leak = self.is_faulty && self.coverage.count(Mark::ReservationLeaked) == 0;
        if self.random.happens(self.setting.leaked) && may_leak {
            self.mark(Mark::ReservationLeaked);
            self.members[at].has_leaked = true;
            std::mem::forget(reservation);
            return None;
        }
        if self.setting.held_ns > 0 && !self.is_holding && self.random.percent(20) {
            self.mark(Mark::ReservationHeld);
            self.is_holding = true;
            let until = self.now + self.random.range(0, self.setting.held_ns);
            // The world goes on meanwhile.
            self.run(until);
            self.is_holding = false;
        }
        if self.members[at].life != life {
            // Its process is gone, and with it whoever would have published it.
            std::mem::forget(reservation);
            return None;
        }
        Some(reservation.publish())
    }

    /// A client of the one primary reserves and never publishes. That primary, and how many tenures there were before.
    pub(crate) fn leak_on_primary(&mut self) -> Option<(usize, u64)> {
        // The others must be enough to do without it.
        let whole = self.whole_voters();
        let at = self.leaders().first().copied()?;
        if whole.len() - usize::from(whole.contains(&at)) < self.useful_quorum() {
            return None;
        }
        let log = self.members[at].log.clone()?;
        std::mem::forget(log.reserve(64).ok()?);
        self.members[at].has_leaked = true;
        self.mark(Mark::ReservationLeaked);
        self.say(format_args!("a client of m{at} never publishes"));
        self.wake(at);
        Some((at, self.oracle.tenures()))
    }

    /// Whether appends are let in at this member.
    pub(crate) fn is_leading(&self, at: usize) -> bool {
        self.members[at].log.is_some()
    }

    /// Another primary has followed.
    pub(crate) fn replaced(&mut self) {
        self.mark(Mark::Replaced);
    }

    fn commit(&mut self, at: usize, log: &Log, epoch: Epoch, appended: &Appended) {
        let level = match self.random.range(0, 20) {
            0 => Level::Buffered,
            1 | 2 => Level::Local,
            3..=8 if self.setting.replicated_allowed => Level::Replicated,
            _ => Level::Durable,
        };
        self.next_append += 1;
        let number = self.next_append;
        let pending = Pending {
            commit: Box::pin(log.commit(appended.end, level)),
            waker: Waker::from(Arc::new(Bell { number, rung: Arc::clone(&self.rung) })),
            member: at,
            life: self.members[at].life,
            epoch,
            start: appended.start,
            end: appended.end,
            level,
        };
        self.pending.insert(number, pending);
        self.ask_pending(number);
    }

    /// Asks the commits and subscriptions that were woken.
    pub(super) fn settle_pending(&mut self) {
        loop {
            let rung = std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner));
            if rung.is_empty() {
                break;
            }
            for number in rung {
                self.ask_pending(number);
            }
        }
        self.settle_subscribers();
    }

    fn ask_pending(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let polled = pending.commit.as_mut().poll(&mut Context::from_waker(&pending.waker));
        let Poll::Ready(answer) = polled else { return };
        if let Some(pending) = self.pending.remove(&number) {
            let checked = self.answered(&pending, answer);
            self.check(checked);
        }
    }

    /// A commit's answer reaches its client.
    fn answered(&mut self, pending: &Pending, answer: Result<Committed, CommitError>) -> Checked {
        let id = self.members[pending.member].id;
        match answer {
            Ok(committed) => {
                answers::covers(&committed, pending.end)?;
                self.oracle.leads(id, pending.epoch)?;
                if self.members[pending.member].life == pending.life {
                    let floors = &mut self.members[pending.member].floors;
                    floors.acknowledged(committed.level(), pending.epoch, pending.end);
                }
                match pending.level {
                    Level::Buffered | Level::Local => {
                        self.mark(Mark::AcknowledgedHere);
                        self.oracle.acknowledge_here(pending.epoch, pending.start)
                    }
                    Level::Replicated => {
                        self.oracle.may_acknowledge(id, pending.epoch)?;
                        self.mark(Mark::AcknowledgedReplicated);
                        self.oracle.acknowledge(pending.epoch, pending.start, false)
                    }
                    Level::Durable => {
                        self.oracle.may_acknowledge(id, pending.epoch)?;
                        self.mark(Mark::AcknowledgedDurable);
                        if !self.oracle.is_given_up(pending.epoch, pending.start, true) {
                            medium::durable(self, pending.member, pending.start, pending.end, true);
                        }
                        self.oracle.acknowledge(pending.epoch, pending.start, true)
                    }
                }
            }
            Err(error) => {
                answers::may_fail(&error)?;
                self.mark(Mark::Unknown);
                self.oracle.not_confirmed(pending.epoch, pending.start);
                Ok(())
            }
        }
    }

    /// The primary's application needs its oldest records no more.
    pub(super) fn trim_some(&mut self) {
        let after = self.random.range(20 * MS, 120 * MS);
        self.plan(after, What::Trim);
        let leaders = self.leaders();
        // A log at its cap takes no configuration either.
        if leaders.is_empty() || !self.is_busy && self.is_settled() {
            return;
        }
        let at = leaders[self.random.index(leaders.len())];
        let Some(log) = self.members[at].log.clone() else { return };
        let keeps = self.random.range(0, 200_000);
        let wanted = Lsn(log.info().durable.0.saturating_sub(keeps));
        let Some(to) = self.oracle.record_below(wanted) else { return };
        if to <= log.info().trimmed {
            return;
        }
        self.reads_may_fail(at);
        let trimmed = log.trim(to);
        let failed = self.reads_held(at, Mark::TrimUnread);
        self.check(read_errors::trim(at, to, failed, &trimmed, || log.trim(to)));
        if trimmed.is_ok() {
            self.mark(Mark::Trimmed);
            self.wake(at);
        }
    }
}
