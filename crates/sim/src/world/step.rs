//! One turn of a member's driver, and what comes of it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use windlass::control::Frame;
use windlass::driver::{Driver, DriverEvent};
use windlass::engine::{Event, Message, Role, StopReason};
use windlass::{Epoch, Lsn, MemberId, Outcome};
use windlass_log::{RECORD_ALIGN, RecordKind};
use windlass_store::Read;

use super::phase::Phase;
use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::{Holds, MS, US};
use crate::oracle::unknown::Answer;
use crate::oracle::{
    Content, batch_hash, damage, hash_of, liveness, medium, no_hole, recycled, watermarks, words,
};
use crate::setting::Strike;

/// A driver takes a turn at least so often.
const TURN_MAX: u64 = 50 * MS;

impl World {
    /// A member's driver has a reason to take a turn.
    pub(super) fn wake(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.driver.is_none() {
            return;
        }
        let after = self.random.range(US, 12 * US) * member.slowness;
        let wanted = (self.now + after).max(member.paused_until);
        if wanted < member.step_at {
            member.step_at = wanted;
            self.plan(wanted - self.now, What::Step { member: at });
        }
    }

    pub(super) fn step(&mut self, at: usize) {
        let now = self.now;
        let member = &mut self.members[at];
        // Another turn was planned before this one.
        if member.step_at != now {
            return;
        }
        member.step_at = u64::MAX;
        if member.paused_until > now {
            member.step_at = member.paused_until;
            let after = member.paused_until - now;
            return self.plan(after, What::Step { member: at });
        }
        let local = member.local(now);
        member.clock.set(local);
        let Some(driver) = &mut member.driver else { return };
        self.events += 1;
        member.configured_before = driver.configuration().0.number();
        self.reads_may_fail(at);
        let stepped = self.members[at].driver.as_mut().map(Driver::step);
        self.reads_held(at, Mark::ResendUnread);
        let worked = stepped.is_some_and(|stepped| stepped.unwrap_or(false));
        let member = &mut self.members[at];
        let Some(driver) = &mut member.driver else { return };
        let status = driver.status();
        let (newest, is_committed) = driver.configuration();
        let in_force = self.oracle.counts_with(member.id, newest.number(), is_committed);
        let timeout = driver.poll_timeout();
        let valid = driver.found_valid();
        let missed = if status.damaged { status.mark.0 } else { valid };
        self.fabric.holds(member.id, Holds { valid, missed });
        let mut events = Vec::new();
        while let Some(event) = driver.poll_event() {
            events.push(event);
        }
        while let Some(lane) =
            self.members[at].driver.as_mut().and_then(|driver| driver.executor_mut().fresh())
        {
            self.submitted(at, lane);
        }
        self.trace.note(
            now,
            status.tail.0 ^ status.durable.0.rotate_left(20) ^ status.promised.to_bits().rotate_left(40),
        );
        let member = &mut self.members[at];
        let published = member.driver.as_ref().map_or(Lsn(0), Driver::published);
        let checked = watermarks::check(member.id, member.before.as_ref(), &status, published);
        member.is_publish_due |= published > member.published;
        self.check(checked.and(in_force));
        self.turned_cold(at, &status);
        self.members[at].before = Some(status);
        medium::persisted(self, at);
        if self.trace.is_kept() {
            for line in self.members[at].lines.take() {
                self.trace.aside(now, format_args!("m{at}: {line}"));
            }
        }
        self.send_all(at);
        for event in events {
            self.event(at, event);
        }
        self.settle_pending();
        if self.members[at].driver.is_none() {
            return;
        }
        if worked {
            return self.wake(at);
        }
        let member = &self.members[at];
        let after =
            timeout.map_or(TURN_MAX, |timeout| member.until(timeout.saturating_sub(local)).min(TURN_MAX));
        let wanted = now + after;
        if wanted < member.step_at {
            self.members[at].step_at = wanted;
            self.plan(after, What::Step { member: at });
        }
    }

    /// Work for the disk: how long it takes.
    fn submitted(&mut self, at: usize, lane: usize) {
        let takes = match lane {
            0 => self.random.range(40 * US, 300 * US),
            1 => self.random.range(150 * US, 900 * US),
            _ => self.random.range(100 * US, 1_500 * US),
        };
        let now = self.now;
        let member = &mut self.members[at];
        let free_at = member.lane_free_at[lane].max(now) + takes * member.disk_slowness;
        member.lane_free_at[lane] = free_at;
        let life = member.life;
        if member.disk_slowness > 1 {
            self.mark(Mark::SlowDisk);
        }
        self.plan(free_at - now, What::Disk { member: at, life, lane });
    }

    pub(super) fn disk_done(&mut self, at: usize, life: u64, lane: usize) {
        let member = &mut self.members[at];
        if member.life != life {
            return;
        }
        if member.driver.is_some() {
            self.events += 1;
            self.work(at, lane);
            if self.members[at].is_rot_found {
                // A superblock may say now that this member counts again.
                self.refresh();
            }
            let checked = recycled::given_away(at, self.given_away(at));
            self.check(checked);
            self.wake(at);
        }
    }

    fn event(&mut self, at: usize, event: DriverEvent) {
        match event {
            DriverEvent::Role { role, epoch, log } => {
                self.say(format_args!("m{at} is {role:?} in {epoch}"));
                self.members[at].log = log;
                if role != Role::Sealing {
                    self.subscriber_ends(at);
                }
                self.enter_role(at, role);
                match role {
                    Role::Primary => {
                        self.tenure(at, epoch);
                        self.subscriber_begins(at);
                    }
                    Role::Backup | Role::Candidate => {}
                    Role::Sealing => self.mark(Mark::Sealed),
                    Role::Stopped => self.stopped(at),
                }
            }
            DriverEvent::SteppedDown { epoch, reason } => {
                self.say(format_args!("m{at} has stepped down from {epoch}: {reason}"));
                self.mark(Mark::SteppedDown);
                self.stuck(at, &reason);
                self.members[at].log = None;
                self.subscriber_ends(at);
            }
            DriverEvent::Damaged { damage: found } => {
                self.say(format_args!("m{at} finds {found}"));
                self.mark(Mark::DamageFound);
                self.word_in_doubt(at);
                self.members[at].is_rot_found = true;
                self.check(damage::is_there(at, self.members[at].rot, &found));
            }
            DriverEvent::Repaired { tail } => {
                self.say(format_args!("m{at} is whole again up to {tail}"));
                self.refresh();
            }
            DriverEvent::Excluded { by, exclusion } => {
                self.say(format_args!("m{at} is kept out by {by}: {exclusion}"));
            }
            DriverEvent::Engine(event) => self.engine_event(at, event),
        }
    }

    fn engine_event(&mut self, at: usize, event: Event) {
        match event {
            Event::Stopped { reason } => {
                self.say(format_args!("m{at} has stopped: {reason}"));
                self.stuck(at, &reason);
                self.stopped(at);
            }
            Event::ReleasedGivenUp { released, expected, found, .. } => {
                self.say(format_args!("m{at} had released up to {released} of {found}, which is {expected}"));
                let by_word = self.coverage.count(Mark::WordCarriedOut) > 0;
                self.check(words::released_given_up(at, released, found, expected, by_word));
            }
            Event::SnapshotNeeded { from, epoch, .. } => {
                self.say(format_args!("m{at} needs a snapshot at {from}"));
                if self.setting.streams {
                    return self.bring_checkpoint(at);
                }
                let life = self.members[at].life;
                self.plan(2 * MS, What::Snapshot { member: at, life, at: from, epoch });
                if let Some(driver) = &mut self.members[at].driver {
                    driver.ask(windlass::engine::Input::SnapshotComing { at: from });
                    self.wake(at);
                }
            }
            Event::SnapshotOtherLine { at: end, expected, found, .. } => {
                self.check(liveness::checkpoint_refused(at, end, found, expected));
            }
            Event::Refused { peer, reason } => {
                self.mark(Mark::Refused);
                self.say(format_args!("m{at} refuses m{}: {reason}", peer.0));
                let is_emptied = self.members[at].is_emptied || self.members[usize::from(peer.0)].is_emptied;
                self.check(liveness::peer_refused(at, peer, &reason, is_emptied));
            }
            Event::LossAccepted { .. } => self.word_answered(at, Ok(false)),
            Event::MemoryLossAccepted => self.word_answered(at, Ok(true)),
            Event::LossNotAccepted { reason } => self.word_answered(at, Err(reason)),
            Event::HandoverFailed { to, reason } => {
                self.say(format_args!("m{at} could not hand over to m{}: {reason}", to.0));
            }
            Event::Undecided { epoch, reason } => {
                self.mark(Mark::Undecided);
                self.say(format_args!("m{at} can't choose in {epoch}: {reason}"));
                self.word_undecided(at, &reason);
            }
            Event::Configuration { configuration, committed } => {
                self.configured(at, &configuration, committed);
            }
            Event::ChangeRefused { reason, .. } => {
                self.mark(Mark::ChangeRefused);
                self.say(format_args!("m{at} refuses a change: {reason}"));
            }
            Event::NotAMember { configuration } => {
                self.mark(Mark::NotAMember);
                self.members[at].has_left = true;
                self.say(format_args!("m{at} has left with configuration {configuration}"));
            }
            Event::Role { .. } | Event::Peer { .. } => {}
        }
    }

    /// A tenure has ended, or a member stopped: it was not for a hole.
    fn stuck(&mut self, at: usize, reason: &StopReason) {
        if matches!(reason, StopReason::StuckReservation | StopReason::SealStuck) {
            self.mark(Mark::ReservationStuck);
        }
        let checked = no_hole::ended(at, reason, self.members[at].has_leaked);
        self.check(checked);
    }

    /// A member can't go on: somebody restarts it.
    fn stopped(&mut self, at: usize) {
        let after = self.random.range(MS, 50 * MS);
        let life = self.members[at].life;
        self.mark(Mark::Stopped);
        self.shows_more(at);
        self.plan(after, What::Die { member: at, life, has_power: true });
        self.word_at_stopped(at);
    }

    pub(super) fn snapshot_installed(&mut self, at: usize, life: u64, lsn: Lsn, epoch: Epoch) {
        if self.members[at].life != life {
            return;
        }
        let Some(driver) = &self.members[at].driver else { return };
        let (mut lsn, mut epoch) = (lsn, epoch);
        if lsn.0 == driver.store().trimmed().0 + RECORD_ALIGN {
            // Beyond what it had released in a line that was given up: that need not be a record's end in the line of now.
            let is_needed = driver.snapshot_need().is_some();
            match self.checkpoint_beyond(lsn) {
                Some(found) => (lsn, epoch) = found,
                None if is_needed => {
                    return self.plan(20 * MS, What::Snapshot { member: at, life, at: lsn, epoch });
                }
                None => return,
            }
        }
        if let Some(driver) = &mut self.members[at].driver {
            driver.ask(windlass::engine::Input::SnapshotInstalled { at: lsn, epoch });
            self.mark(Mark::Snapshot);
            self.wake(at);
        }
    }

    /// The first place from `from` on where an application that follows who leads could have a checkpoint, and the epoch of the byte below; none as long as nothing durable
    /// reaches as far.
    fn checkpoint_beyond(&self, from: Lsn) -> Option<(Lsn, Epoch)> {
        let driver = self.members[*self.leaders().first()?].driver.as_ref()?;
        let (trimmed, durable) = (driver.store().trimmed(), driver.published());
        if trimmed >= from {
            let epoch = driver.store().superblock().history.epoch_at(Lsn(trimmed.0 - 1));
            return Some((trimmed, epoch.unwrap_or(Epoch::NONE)));
        }
        let mut reader = driver.store().reader(trimmed);
        while let Ok(Read::Record(record)) = reader.next(durable) {
            if record.end >= from {
                return Some((record.end, record.header.epoch));
            }
        }
        None
    }

    /// A tenure begins: its log holds everything that was acknowledged before.
    fn tenure(&mut self, at: usize, epoch: Epoch) {
        self.mark(Mark::Tenure);
        let id = self.members[at].id;
        let checked = self.oracle.leads(id, epoch);
        self.check(checked);
        self.members[at].floors.forget();
        self.members[at].has_begun = true;
        self.led_in_line(at, epoch);
        self.leads_as_voter(at);
        self.led_by_hand(at, epoch);
        self.heard_of_words(at, epoch);
        self.check_whole_log(at);
        // Those whose commits are unknown ask now, before anything of the tenure is committed, whomever they reach.
        for member in 0..self.members.len() {
            self.publish(member);
            self.ask_outcomes(member);
        }
    }

    /// Reads a member's whole log, up to its tail, and looks for all that was acknowledged.
    pub(super) fn check_whole_log(&mut self, at: usize) {
        let member = &self.members[at];
        let Some(driver) = &member.driver else { return };
        let status = driver.status();
        let (trimmed, tail) = (driver.store().trimmed(), status.tail);
        let mut reader = driver.store().reader(trimmed);
        let mut found = BTreeMap::new();
        loop {
            match reader.next(tail) {
                Ok(Read::Record(record)) => {
                    let content = content(record.end, &record.header, record.payload);
                    found.insert(record.header.lsn, content);
                }
                Ok(Read::AtEnd { .. }) => break,
                // Trimmed meanwhile, or a read that was made to fail: what it does not say is not known.
                Err(windlass_store::ReadError::Purged { .. } | windlass_store::ReadError::Disk(_)) => {
                    return;
                }
                // What it has lost is not known to it yet.
                Err(_) if member.rot.is_some() => return,
                Err(error) => {
                    let checked = self.oracle.unreadable(member.id, reader.at(), &error.to_string());
                    return self.check(checked);
                }
            }
        }
        let found = RefCell::new(found);
        let look = |lsn: Lsn| found.borrow().get(&lsn).copied();
        let checked = self.oracle.holds_all(member.id, status.promised, trimmed, &look);
        self.check(checked);
    }

    /// Looks at what a member has published as durable since.
    pub(super) fn publish(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(driver) = &member.driver else { return };
        if !std::mem::take(&mut member.is_publish_due) {
            return;
        }
        let (durable, promised) = (driver.published(), driver.status().promised);
        let from = member.published.max(driver.store().trimmed());
        let mut reader = driver.store().reader(from);
        let mut checked = Ok(());
        let mut fresh = Vec::new();
        member.published = from;
        while checked.is_ok() && member.published < durable {
            match reader.next(durable) {
                Ok(Read::Record(record)) => {
                    let content = content(record.end, &record.header, record.payload);
                    let start = record.header.lsn;
                    let is_news = self.oracle.is_news(member.id, content.epoch, start);
                    if is_news {
                        fresh.push((start, record.end));
                    }
                    checked = self.oracle.published(member.id, promised, start, content);
                    if is_news && record.header.kind == RecordKind::Configuration && checked.is_ok() {
                        let payload = record.payload.unwrap_or_default();
                        checked = self.oracle.configuration_published(member.id, start, payload);
                    }
                    member.published = record.end;
                }
                Ok(Read::AtEnd { .. }) => break,
                Err(windlass_store::ReadError::Purged { first, .. }) => {
                    member.published = first;
                    reader.seek(first);
                }
                Err(windlass_store::ReadError::Disk(_)) => {
                    member.is_publish_due = true;
                    break;
                }
                Err(_) if member.rot.is_some() => {
                    member.is_publish_due = true;
                    break;
                }
                Err(error) => {
                    checked = self.oracle.unreadable(member.id, member.published, &error.to_string())
                }
            }
        }
        self.check(checked);
        for (start, end) in fresh {
            medium::durable(self, at, start, end, false);
        }
    }

    /// Asks a member what became of all that was ever appended.
    pub(super) fn ask_outcomes(&mut self, at: usize) {
        let member = &self.members[at];
        let Some(driver) = &member.driver else { return };
        let (id, trimmed) = (member.id, driver.store().trimmed());
        // Behind what could not be read, for rot or an error, nobody has looked at what it has published.
        let seen = if member.is_publish_due { member.published } else { Lsn(u64::MAX) };
        let mut all = Ok(());
        for (epoch, start) in self.oracle.questions(trimmed) {
            let answer = match driver.outcome(epoch, start) {
                Outcome::Committed if start >= seen => Answer::Open,
                Outcome::Committed => Answer::Committed,
                Outcome::Cut => Answer::Cut,
                Outcome::Unknown | Outcome::Purged => Answer::Open,
            };
            all = all.and_then(|()| self.oracle.answered(id, (epoch, start), answer));
        }
        self.check(all);
    }

    /// Everything that a driver has sent goes on its way.
    fn send_all(&mut self, at: usize) {
        loop {
            let next = self.members[at].control.wire().outbox.pop_front();
            let Some((to, frame)) = next else { return };
            self.look_at_frame(at, &frame);
            self.send(at, to, &frame);
        }
    }

    /// What leaves a member says where it stands, and binds it.
    fn look_at_frame(&mut self, at: usize, frame: &Frame) {
        let id = self.members[at].id;
        match frame {
            Frame::Offer { session, endpoint, .. } => {
                self.fabric.serves(endpoint, session.epoch.to_bits(), false);
            }
            Frame::Accept { session, endpoint, .. } => {
                self.fabric.serves(endpoint, session.epoch.to_bits(), true);
            }
            Frame::Engine(message) => {
                if let Message::Promise { epoch, .. } = &**message {
                    self.oracle.promises(id, *epoch);
                    self.fabric.promised(id, epoch.to_bits());
                }
                self.sends(at, message);
            }
            Frame::Ping
            | Frame::Keys { .. }
            | Frame::AcknowledgeKey { .. }
            | Frame::Broken { .. }
            | Frame::Excluded(_)
            | Frame::Members { .. } => {}
        }
    }

    fn enter_role(&mut self, at: usize, role: Role) {
        match role {
            Role::Sealing => self.enter(at, Phase::Sealing),
            Role::Primary => self.enter(at, Phase::Starting),
            Role::Stopped => self.enter(at, Phase::Idle),
            Role::Backup => {
                if self.members[at].phase.is_of_a_primary() {
                    self.enter(at, Phase::Idle);
                }
            }
            Role::Candidate => {}
        }
    }

    /// A member comes into another step.
    pub(super) fn enter(&mut self, at: usize, phase: Phase) {
        let member = &mut self.members[at];
        let was = std::mem::replace(&mut member.phase, phase);
        let Some((_, has_power)) = self.armed.filter(|(armed, _)| *armed == phase && was != phase) else {
            return;
        };
        self.armed = None;
        let life = self.members[at].life;
        let longest = [0, 4 * US, 60 * US, 1_200 * US][self.random.index(4)];
        let after = self.random.range(0, longest);
        let may = self.may_lose_memory(at) && self.has(Strike::PowerLoss);
        let has_power = has_power || !may;
        self.plan(after, What::Die { member: at, life, has_power });
    }

    /// An operator, by hand.
    pub(super) fn ask(&mut self, at: usize, input: windlass::engine::Input) {
        if let Some(driver) = &mut self.members[at].driver {
            driver.ask(input);
            self.wake(at);
        }
    }

    /// Who leads, as far as members say.
    pub(super) fn leaders(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|at| self.members[*at].log.is_some()).collect()
    }

    /// Another member than this one.
    pub(super) fn other(&mut self, at: usize) -> MemberId {
        let joined = self.joined_members();
        let step = 1 + self.random.index(joined.len() - 1);
        let place = joined.iter().position(|other| *other == at).unwrap_or(0);
        MemberId(self.members[joined[(place + step) % joined.len()]].id)
    }
}

pub(super) fn content(end: Lsn, header: &windlass_log::RecordHeader, payload: Option<&[u8]>) -> Content {
    let (kind, payload) = (header.kind, payload.unwrap_or_default());
    let hash = match kind {
        // A pad's body is zeros; a segment's start says the same of all that comes before.
        RecordKind::Pad => 0,
        RecordKind::Batch => batch_hash(
            windlass_log::batch_items(payload, header.lsn).map_while(Result::ok).map(|(_, item)| item),
        ),
        RecordKind::Data | RecordKind::SegmentStart | RecordKind::EpochStart | RecordKind::Configuration => {
            hash_of(payload)
        }
    };
    Content { end, epoch: header.epoch, kind, hash }
}
