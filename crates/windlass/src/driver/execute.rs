//! Doing what the engine orders.

use slog::{info, warn};
use windlass_engine::{Command, Event, FenceQuorum, Input, LsnRange, Notice, Role, Session, Token};
use windlass_fabric::Fabric;
use windlass_log::{
    EpochHistory, HISTORY_ENTRIES_MAX, HISTORY_ENTRIES_NEARLY_FULL, Lsn, MemberId, SEGMENT_HEADER_BYTES,
};
use windlass_store::Damage;
use windlass_store::disk::Disk;

use super::executor::{Change, Executor, Job, Work};
use super::first_page::Held;
use super::head::{page_before, page_bytes};
use super::lead::Lead;
use super::local::Scanned;
use super::memory::{SegmentError, Use};
use super::outgoing::{SessionError, parts};
use super::sessions::{PendingFetch, PendingGrant};
use super::{Driver, DriverEvent, REVOKE_NS, SESSION_NS, state};
use crate::clock::Clock;
use crate::control::{ControlPlane, Purpose};

/// How much of what lies behind the valid tail is looked at in one turn, once windows are gone: the pump does nothing else meanwhile.
const LOOK_BYTES: u64 = 4 << 20;

/// Slots of a tenure's hand-off: the tail's segment, those ahead, one that is still being drained.
const SLOTS_MIN: u64 = 4;

/// Up to so many bytes a flush takes about as long as one of a page.
const SHORT_FLUSH_BYTES: u64 = 64 << 10;
/// Fewer committers than this are not waited for.
const GATHER_MIN: u64 = 4;
/// The longest that a group is given to fill, however slow the device.
const GATHER_NS_MAX: u64 = 1_000_000;
/// Up to so many records in a flush a backup takes its primary to have a single committer.
const ALONE_RECORDS: u64 = 2;

/// A command that takes effect after the ones of its kind before it.
pub(crate) enum Ordered {
    Job { job: Job, history: EpochHistory, tail: Option<Lsn> },
    Revoke { token: Token },
    Distrust { damage: Damage },
    StartTenure { token: Token, quorum: FenceQuorum, at: Lsn },
}

/// The one that is taking effect.
pub(crate) enum Running {
    Job {
        history: EpochHistory,
        tail: Option<Lsn>,
    },
    Revoke {
        token: Token,
        deadline_ns: u64,
    },
    /// The windows are gone: the log is scanned, so many bytes in the next turn.
    Look {
        token: Token,
        piece_bytes: u64,
    },
}

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    pub(super) fn execute(&mut self, command: Command, now: u64) {
        match command {
            Command::Send { peer, message } => {
                self.control.send(peer, crate::control::Frame::Engine(message));
            }
            Command::Save { token, state } => {
                let history = state.history.clone();
                let change: Change = Box::new(move |superblock| state::put(superblock, &state));
                self.ordered.push_back(Ordered::Job {
                    job: Job::Save { token, change },
                    history,
                    tail: None,
                });
            }
            Command::Cut { token, at, state } => {
                let history = state.history.clone();
                let change: Change = Box::new(move |superblock| state::put(superblock, &state));
                let job = Job::Cut { token, at, change };
                self.ordered.push_back(Ordered::Job { job, history, tail: Some(at) });
                self.group_meters.cuts.add(1);
            }
            Command::Reset { token, at, state } => {
                self.trim_again.forget();
                let history = state.history.clone();
                let change: Change = Box::new(move |superblock| state::put_reset(superblock, &state));
                let job = Job::Reset { token, at, change };
                self.ordered.push_back(Ordered::Job { job, history, tail: Some(at) });
            }
            Command::Trim { state } => {
                self.trim_again.forget();
                let (to, drained) = (state.trimmed, self.tail());
                let history = state.history.clone();
                let change: Change = Box::new(move |superblock| state::put(superblock, &state));
                let job = Job::Trim { to, drained, change };
                self.ordered.push_back(Ordered::Job { job, history, tail: None });
            }
            Command::Flush { token, to } => {
                self.flush_since = now;
                let is_short = self.is_short_flush(to);
                self.parsed_unflushed = 0;
                self.submit(Job::Flush { token, to, is_short });
            }
            Command::StartTenure { token, quorum, at } => {
                self.ordered.push_back(Ordered::StartTenure { token, quorum, at });
            }
            Command::Revoke { token } => self.ordered.push_back(Ordered::Revoke { token }),
            Command::Seal { token } => self.seal(token),
            Command::StepDown { epoch, reason } => {
                self.publish();
                if let Some(lead) = self.lead.as_mut().filter(|lead| lead.epoch() == epoch) {
                    lead.step_down();
                }
                self.log = None;
                self.port.forget_peers();
                self.end_lead();
                self.group_meters.step_downs.add(1);
                info!(self.options.logger, "this member is no longer primary: {}", reason; "epoch" => %epoch);
                self.events.push_back(DriverEvent::SteppedDown { epoch, reason });
            }
            Command::Connect { peer, session } => self.connect(peer, session, Purpose::Replicate, now),
            Command::Disconnect { peer, session } => {
                self.sessions.disconnect(&mut self.control, peer, session);
                self.local.release_cold();
            }
            Command::Replicate { peer, session, range, notice, slot } => {
                self.replicate(peer, session, range, &notice, slot, now);
            }
            Command::Beat { peer, session, heartbeat } => {
                if let Some(link) = self.sessions.outgoing(peer, session, Purpose::Replicate) {
                    let result = link.beat(&heartbeat);
                    self.check_outgoing(peer, session, Purpose::Replicate, result);
                }
            }
            Command::Committed(proof) => {
                let (replicated, durable) = (proof.replicated(), proof.durable());
                if self.lead.as_ref().is_some_and(|lead| lead.epoch() == proof.epoch()) {
                    // Behind the commands of this turn: what the next batch waits for goes first.
                    self.committed = Some((replicated, durable));
                } else {
                    self.port.publish(replicated, durable);
                }
            }
            Command::Grant { token, primary, session, from, up_to } => {
                self.sessions.grants.push(PendingGrant {
                    token: Some(token),
                    peer: primary,
                    session,
                    purpose: Purpose::Replicate,
                    range: LsnRange::new(from.min(up_to), up_to),
                    deadline_ns: now + SESSION_NS,
                });
            }
            Command::GrantRead { peer, session, range } => self.sessions.grants.push(PendingGrant {
                token: None,
                peer,
                session,
                purpose: Purpose::Fetch,
                range,
                deadline_ns: now + SESSION_NS,
            }),
            Command::Ungrant { session, below } => self.ungrant(session, below),
            Command::Parse { token, to } => self.parse(token, to),
            Command::Acknowledge { primary, acknowledgement } => {
                self.group_meters.acknowledgements.add(1);
                let session = acknowledgement.session;
                if let Some(link) = self.sessions.incoming(primary, session, Purpose::Replicate)
                    && let Err(error) = link.acknowledge(acknowledgement)
                {
                    self.incoming_broke(primary, session, Purpose::Replicate, &error);
                }
            }
            Command::Learned { replicated, durable } => self.port.publish(replicated, durable),
            Command::Fetch { token, peer, session, range } => {
                let deadline_ns = now + SESSION_NS;
                self.sessions.fetches.push(PendingFetch { token, peer, session, range, deadline_ns });
            }
            Command::AppendConfiguration(configuration) => self.appending = Some(*configuration),
            Command::Members(members) => {
                self.control.set_members(self.engine.configuration().number(), &members);
            }
            Command::Event(event) => self.event(event),
        }
    }

    /// Tells who waits how far the commit watermarks have moved.
    pub(super) fn publish(&mut self) {
        let Some((replicated, durable)) = self.committed.take() else { return };
        if let Some(lead) = &self.lead {
            let marks = &lead.tenure.watermarks;
            marks.replicated.advance(replicated).wake();
            // They need longer to come back than the next turn needs to begin: without them it would flush a group of a few.
            let gathers = self.port.wake_group(
                || u64::try_from(marks.durable.advance(durable).wake()).unwrap_or(0),
                |woken| woken >= GATHER_MIN && marks.replicated.waiting() == 0,
            );
            self.gather_until_ns = gathers.then(|| self.now() + (self.flush_mean_ns / 2).min(GATHER_NS_MAX));
        }
        self.port.publish(replicated, if windlass_log::planted!(R14) { replicated } else { durable });
    }

    /// Whether the next group is still to fill: who was woken last is coming back.
    pub(super) fn is_gathering(&mut self) -> bool {
        let Some(until) = self.gather_until_ns else { return false };
        let is_sealed = self.lead.as_ref().is_none_or(Lead::is_sealed);
        if self.port.is_gathering() && !is_sealed && self.now() < until {
            return true;
        }
        self.gather_until_ns = None;
        self.port.stop_gathering();
        false
    }

    /// A flush for one committer alone. For many a flush beside the driver costs little for each, and meanwhile the next batch is on its way.
    fn is_short_flush(&self, to: Lsn) -> bool {
        let bytes = to.0.saturating_sub(self.local.store.persisted().lsn().0);
        let is_alone = match &self.lead {
            Some(lead) => {
                let marks = &lead.tenure.watermarks;
                marks.replicated.waiting() == 0 && marks.durable.waiting() + marks.persisted.waiting() <= 1
            }
            None => self.parsed_unflushed <= ALONE_RECORDS,
        };
        is_alone && bytes <= SHORT_FLUSH_BYTES
    }

    pub(super) fn submit(&mut self, job: Job) {
        self.executor.submit(Work { store: self.local.store.clone(), job });
    }

    pub(super) fn is_revoking(&self) -> bool {
        matches!(self.running, Some(Running::Revoke { .. } | Running::Look { .. }))
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Role { role, epoch } => {
                let now = self.now();
                self.news.role(&self.options.logger, role, epoch, now);
                let log = if role == Role::Primary { self.log.clone() } else { None };
                self.count_takeover(role, now);
                self.events.push_back(DriverEvent::Role { role, epoch, log });
            }
            Event::Refused { peer, reason } => {
                warn!(self.options.logger, "a peer is refused"; "peer" => %peer, "reason" => %reason);
                self.group_meters.refused.add(1);
                self.exclude(peer, reason);
                self.events.push_back(DriverEvent::Engine(Event::Refused { peer, reason }));
            }
            Event::Stopped { reason } => {
                warn!(self.options.logger, "this member has stopped until its folder is opened again"; "reason" => %reason);
                self.stopped = Some(reason);
                // A stopped member takes part in nothing: every connection is ended, which closes every window, too.
                self.sessions.end_all();
                self.events.push_back(DriverEvent::Engine(Event::Stopped { reason }));
            }
            Event::Undecided { epoch, reason } => {
                let now = self.now();
                self.news.undecided(epoch, reason, now);
                self.events.push_back(DriverEvent::Engine(Event::Undecided { epoch, reason }));
            }
            Event::Configuration { configuration, committed } => {
                self.configuration_changed(&configuration, committed);
                let me = self.options.config.me;
                if self.port.left().is_some_and(|left| left < configuration.number())
                    && configuration.member(me).is_some()
                {
                    self.port.set_left(None);
                    self.news.left(None);
                }
                self.events.push_back(DriverEvent::Engine(Event::Configuration { configuration, committed }));
            }
            Event::Peer { peer, status } => {
                self.port.set_peer(peer, status);
                self.tell(Event::Peer { peer, status });
            }
            Event::ChangeRefused { change, reason } => {
                self.change_refused(&change, reason);
                self.tell(Event::ChangeRefused { change, reason });
            }
            event @ (Event::NotAMember { .. }
            | Event::ReleasedGivenUp { .. }
            | Event::SnapshotNeeded { .. }
            | Event::SnapshotOtherLine { .. }
            | Event::HandoverFailed { .. }
            | Event::LossAccepted { .. }
            | Event::MemoryLossAccepted
            | Event::LossNotAccepted { .. }) => self.tell(event),
        }
    }

    /// A line of its own, and an event for whoever listens.
    fn tell(&mut self, event: Event) {
        if matches!(event, Event::LossAccepted { .. }) {
            self.scrubber.lack.accepted();
        } else if let Event::NotAMember { configuration } = event {
            self.port.set_left(Some(configuration));
            self.news.left(Some(configuration));
        }
        super::news::event(&self.options.logger, &event);
        self.events.push_back(DriverEvent::Engine(event));
    }

    fn count_takeover(&mut self, role: Role, now: u64) {
        match role {
            Role::Candidate => {
                self.candidate_since.get_or_insert(now);
            }
            Role::Primary => {
                self.group_meters.takeovers.add(1);
                if let Some(since) = self.candidate_since.take() {
                    self.group_meters.takeover_ns.record(now.saturating_sub(since));
                }
            }
            Role::Backup | Role::Sealing | Role::Stopped => self.candidate_since = None,
        }
    }

    // ---- what takes effect in order ------------------------------------------------------------------------------

    /// Begins the next one if none is under way; goes on with a revocation. Whether anything happened.
    pub(super) fn go_on_with_ordered(&mut self, now: u64) -> bool {
        let mut any = false;
        if self.is_settled()
            && let Some(to) = self.trim_again.take(now)
        {
            // The superblock has what goes with it but for a history that begins later, which the next change of it brings.
            let job = Job::Trim { to, drained: self.tail(), change: Box::new(|_| ()) };
            let history = self.local.history.clone();
            self.ordered.push_back(Ordered::Job { job, history, tail: None });
        }
        loop {
            if let Some(Running::Revoke { token, deadline_ns }) = self.running {
                if !self.sessions.revoke(now >= deadline_ns) {
                    return any;
                }
                self.running = Some(Running::Look { token, piece_bytes: LOOK_BYTES });
            }
            if let Some(Running::Look { token, piece_bytes }) = self.running {
                any = true;
                self.running = self.look_at_placed(token, piece_bytes);
                if self.running.is_some() {
                    // The rest in the next turns.
                    return any;
                }
            }
            if self.running.is_some() {
                return any;
            }
            let Some(next) = self.ordered.pop_front() else { return any };
            any = true;
            match next {
                Ordered::Job { job, history, tail } => {
                    self.running = Some(Running::Job { history, tail });
                    self.submit(job);
                }
                Ordered::Distrust { damage } => {
                    self.running = Some(Running::Job { history: self.local.history.clone(), tail: None });
                    self.submit(Job::Distrust { damage });
                }
                Ordered::Revoke { token } => {
                    self.group_meters.revocations.add(1);
                    self.sessions.begin_revoke();
                    self.running = Some(Running::Revoke { token, deadline_ns: now + REVOKE_NS });
                }
                Ordered::StartTenure { token, quorum, at } => self.start_tenure(token, &quorum, at),
            }
        }
    }

    /// The store has answered the one that was under way.
    pub(super) fn ordered_done(&mut self, token: Option<Token>) {
        if let Some(Running::Job { history, tail }) = self.running.take() {
            self.local.history = history;
            if let Some(tail) = tail {
                self.log_changed(tail);
            }
            let tail = tail.unwrap_or(self.local.valid_tail());
            self.local.restart(tail);
            self.local.release_cold();
            self.local.look();
            if let Some(log) = &self.log {
                log.raise_limit();
            }
        }
        self.inputs.extend(token.map(|token| Input::Saved { token }));
    }

    /// Every window is closed and every connection destroyed: only now the log is scanned. Where damage was filled there may be much (6.3), so that a turn looks at a
    /// piece; pieces grow where one brings nothing, for a record may be as long as a segment. What comes next, if this was not all.
    fn look_at_placed(&mut self, token: Token, piece_bytes: u64) -> Option<Running> {
        let from = self.local.valid_tail();
        let to = Lsn(from.0.saturating_add(piece_bytes));
        let scanned = match self.scan(Some(to)) {
            Ok(scanned) => scanned,
            Err(error) => {
                self.unreadable(&error);
                return None;
            }
        };
        let segment_bytes = self.local.geometry().segment_bytes();
        let next = is_ended_by(to, &scanned)
            .then(|| next_piece_bytes(piece_bytes, scanned.valid_tail > from, segment_bytes));
        if let Some(piece_bytes) = next.flatten() {
            return Some(Running::Look { token, piece_bytes });
        }
        self.inputs.push_back(Input::Revoked { token, valid_tail: scanned.valid_tail });
        None
    }

    /// The local log can't be read: the medium, or its mapping, is at fault.
    fn unreadable(&mut self, error: &SegmentError) {
        self.medium_failed(windlass_engine::StopReason::FlushFailed, &error.to_string());
    }

    fn start_tenure(&mut self, token: Token, quorum: &FenceQuorum, at: Lsn) {
        if self.local.store.superblock().history.is_nearly_full() {
            warn!(self.options.logger, "the log has had at least {} epochs since its trim point, it can hold {}: trim it (`Log::trim`), or no member can take over", HISTORY_ENTRIES_NEARLY_FULL,
                HISTORY_ENTRIES_MAX; "folder" => %self.folder.display());
        }
        let geometry = self.local.geometry();
        let slots = (self.options.config.limits.segments_ahead + 2).max(SLOTS_MIN).next_power_of_two();
        let slots = usize::try_from(slots).expect("a ring is small");
        let persisted = self.local.store.persisted().lsn();
        let start = Lead::start_of(geometry, self.local.log_id(), quorum.epoch(), at, persisted, slots);
        let durable = self.engine.status().durable;
        let limit = Lsn(self.local.store.trimmed().0.saturating_add(self.log_retention_bytes()));
        // The epoch-start record is the library's own: a log that is full takes it, or nobody could lead it and trim it.
        let limit = limit.max(Lead::start_reach(geometry, at));
        let lead = Lead::new(start, durable, limit, token, &self.meters);
        let fixed = crate::log::Fixed {
            folder: self.folder.clone(),
            media: Box::new(self.local.store.clone()),
            geometry,
            log_id: self.local.log_id(),
            standing: crate::log::Standing::Member(self.port.clone()),
            level: self.options.level,
            retention_bytes: self.log_retention_bytes(),
            ahead_segments: self.options.config.limits.segments_ahead,
            // Its driver does.
            scrub_bytes_per_second: 0,
            reservation_limit: self.options.reservation_limit,
            clock: Box::new(self.clock.clone()),
            meters: self.meters.clone(),
            logger: self.options.logger.clone(),
        };
        self.log = Some(crate::log::Log::member(fixed, lead.tenure.clone()));
        self.wanted_told = Lsn(0);
        self.port.forget_wanted();
        self.lead = Some(lead);
        self.local.need(geometry.segment_of(at));
        self.install_segments();
    }

    /// What the application may use, and what may be kept for backups that lag.
    fn log_retention_bytes(&self) -> u64 {
        self.options.retention_bytes.saturating_add(self.options.config.limits.retention_bytes)
    }

    /// Forgets a tenure that is over and whose log is sealed: from here on the log is what the scan finds.
    pub(super) fn end_lead(&mut self) {
        if let Some(tail) = self.lead.as_ref().and_then(Lead::is_over) {
            self.lead = None;
            self.local.restart(tail);
        }
    }

    fn seal(&mut self, token: Token) {
        match &mut self.lead {
            Some(lead) if !lead.is_sealed() => {
                let deadline = self.clock.now().saturating_add(self.options.reservation_limit);
                lead.seal(token, deadline);
            }
            Some(_) | None => {
                // A tenure that has not begun, since something before it is still taking effect, never begins: it would be led by nobody,
                // and its log would stay open.
                self.ordered.retain(|next| !matches!(next, Ordered::StartTenure { .. }));
                let tail = self.tail();
                self.inputs.push_back(Input::Sealed { token, tail });
            }
        }
    }

    // ---- sessions ------------------------------------------------------------------------------------------------

    fn connect(&mut self, peer: MemberId, session: Session, purpose: Purpose, now: u64) {
        self.group_meters.sessions.add(1);
        let (fabric, queue) = (&self.fabric, &self.queue);
        let deadline_ns = now + SESSION_NS;
        let made =
            self.sessions.connect(fabric, queue, &mut self.control, peer, session, purpose, deadline_ns);
        if let Err(error) = made {
            warn!(self.options.logger, "a session can't be made"; "peer" => %peer, "cause" => %error);
            if purpose == Purpose::Replicate {
                self.inputs.push_back(Input::FabricDown { peer, session });
            }
        }
    }

    /// Sends a batch. A failure ends the session.
    pub(super) fn replicate(
        &mut self,
        peer: MemberId,
        session: Session,
        range: LsnRange,
        notice: &Notice,
        slot: u32,
        now: u64,
    ) {
        let result = self.try_replicate(peer, session, range, notice, slot, now);
        if let Err(SessionError::Damaged { lsn }) = result {
            self.scrubber.look(lsn);
        }
        self.check_outgoing(peer, session, Purpose::Replicate, result);
    }

    fn try_replicate(
        &mut self,
        peer: MemberId,
        session: Session,
        range: LsnRange,
        notice: &Notice,
        slot: u32,
        now: u64,
    ) -> Result<(), SessionError> {
        let geometry = self.local.geometry();
        // A session that is gone was reported: its orders are void.
        let Some(link) = self.sessions.outgoing(peer, session, Purpose::Replicate) else { return Ok(()) };
        let (of, transfer) = ((peer, session), link.transfer());
        if link.is_unsent() && !range.is_empty() {
            let begins = self.local.begins();
            let page = page_bytes(transfer).and_then(|page| page_before(geometry, page, range.start, begins));
            link.begin(page.map(|page| (page, now + SESSION_NS)))?;
        }
        if link.is_page_awaited() {
            link.hold(Held { range, notice: *notice, slot });
            return Ok(());
        }
        let peers = link.peers_page();
        self.scrubber.resend.look(&self.fabric, &mut self.local, of, range, transfer, peers)?;
        let mut segments = [None, None];
        for (at, part) in parts(geometry, range).into_iter().flatten().enumerate() {
            let number = geometry.segment_of(part.start);
            segments[at] = Some(self.local.segment(&self.fabric, number, Use::Send)?);
        }
        self.group_meters.batches.add(1);
        self.group_meters.batch_bytes.record(range.bytes());
        let cost = link.replicate(range, notice, slot, segments)?;
        self.group_meters.batch_doorbells.add(cost.doorbells);
        self.group_meters.batch_requests.add(cost.requests);
        self.group_meters.batch_signalled.add(cost.signalled);
        self.group_meters.batch_copied_bytes.add(cost.copied_bytes);
        Ok(())
    }

    fn ungrant(&mut self, session: Session, below: Lsn) {
        let first = self.local.geometry().segment_of(below);
        for link in &mut self.sessions.incoming {
            if link.session == session && link.purpose == Purpose::Replicate {
                // A failure shows in the connection's state.
                let _ = link.close_below(first);
            }
        }
        self.local.release_cold();
    }

    fn parse(&mut self, token: Token, to: Lsn) {
        match self.scan(Some(to)) {
            Ok(scanned) => {
                self.group_meters.parses.add(1);
                self.group_meters.parsed_records.add(scanned.records);
                self.parsed_unflushed += scanned.records;
                self.note_unsound(to, &scanned);
                self.inputs.push_back(Input::Parsed { token, valid_tail: scanned.valid_tail });
            }
            Err(error) => self.unreadable(&error),
        }
    }

    /// Says where what the primary sent does not hold, when sending it again has not helped.
    fn note_unsound(&mut self, to: Lsn, scanned: &Scanned) {
        if !is_ended_by(to, scanned) && self.unsound.tells(scanned.valid_tail) {
            warn!(self.options.logger,
                "bytes that the primary sends do not hold, also when sent again: verify the primary's folder, and let another member lead if it is damaged";
                "lsn" => %scanned.valid_tail, "segment" => self.local.geometry().segment_of(scanned.valid_tail), "cause" => %scanned.reason);
        }
    }

    /// Goes on with grants and fetches that waited for an offer or for segments.
    pub(super) fn go_on_with_pending(&mut self, now: u64) {
        if !self.sessions.has_pending() || self.is_revoking() || self.stopped.is_some() {
            return;
        }
        let mut at = 0;
        while at < self.sessions.grants.len() {
            let grant = self.sessions.grants[at].clone();
            match self.grant(&grant) {
                Ok(true) => drop(self.sessions.grants.remove(at)),
                Ok(false) if now >= grant.deadline_ns => {
                    self.sessions.grants.remove(at);
                    self.incoming_broke(grant.peer, grant.session, grant.purpose, &SessionError::TooSlow);
                }
                Ok(false) => at += 1,
                Err(error) => {
                    self.sessions.grants.remove(at);
                    self.incoming_broke(grant.peer, grant.session, grant.purpose, &error);
                }
            }
        }
        let mut at = 0;
        while at < self.sessions.fetches.len() {
            let fetch = self.sessions.fetches[at];
            match self.fetch(&fetch, now) {
                Ok(true) => drop(self.sessions.fetches.remove(at)),
                Ok(false) if now < fetch.deadline_ns => at += 1,
                Ok(false) | Err(_) => {
                    self.sessions.fetches.remove(at);
                    self.inputs.push_back(Input::FetchFailed { token: fetch.token });
                }
            }
        }
    }

    /// Opens what a grant names. `false`: the peer's offer, or a segment, is not there yet.
    fn grant(&mut self, grant: &PendingGrant) -> Result<bool, SessionError> {
        let (fabric, queue) = (&self.fabric, &self.queue);
        if !self.sessions.accept(fabric, queue, &mut self.control, grant)? {
            return Ok(false);
        }
        let (first, last) = self.sessions.segments_of(grant.range);
        let (mut is_whole, mut opened) = (true, Vec::new());
        for number in first..=last {
            if grant.range.is_empty() {
                break;
            }
            match self.local.segment(&self.fabric, number, Use::Receive) {
                Ok(segment) => opened.push((number, segment)),
                Err(SegmentError::NotReady { .. }) => is_whole = false,
                Err(error) => return Err(error.into()),
            }
        }
        if !is_whole {
            return Ok(false);
        }
        let Some(link) = self.sessions.incoming(grant.peer, grant.session, grant.purpose) else {
            return Ok(false);
        };
        if grant.purpose == Purpose::Fetch {
            // What was read before is done with: windows, and the keys of one frame, stay few however much is fetched.
            link.close_below(first)?;
        }
        for (number, segment) in opened {
            if grant.purpose == Purpose::Fetch {
                segment.show(pages_of(self.local.geometry(), number, grant.range));
            }
            if !link.has(number) {
                link.open(&self.fabric, number, segment)?;
            }
        }
        link.announce(grant.token, grant.range.end);
        Ok(true)
    }

    /// Begins to read what a fetch names. `false`: a segment to read into is not there yet.
    fn fetch(&mut self, fetch: &PendingFetch, now: u64) -> Result<bool, SessionError> {
        let (first, last) = self.sessions.segments_of(fetch.range);
        let mut segments = Vec::new();
        for number in first..=last {
            match self.local.segment(&self.fabric, number, Use::Receive) {
                Ok(segment) => segments.push(segment),
                Err(SegmentError::NotReady { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_new = self.sessions.outgoing(fetch.peer, fetch.session, Purpose::Fetch).is_none();
        if is_new {
            self.connect(fetch.peer, fetch.session, Purpose::Fetch, now);
        }
        if segments.len() as u64 != last - first + 1 {
            return Ok(false);
        }
        let Some(link) = self.sessions.outgoing(fetch.peer, fetch.session, Purpose::Fetch) else {
            return Err(SessionError::TooSlow);
        };
        self.group_meters.fetched_bytes.add(fetch.range.bytes());
        link.fetch(fetch.token, fetch.range, segments, now + SESSION_NS);
        Ok(true)
    }
}

/// Whether a scan went no further since it was to end there. A header that the end cuts through looks like anything.
fn is_ended_by(to: Lsn, scanned: &Scanned) -> bool {
    matches!(scanned.reason, windlass_log::StopReason::Reached | windlass_log::StopReason::BeyondEnd { .. })
        || super::arrivals::is_cut_header(to, scanned.valid_tail)
}

/// How much is looked at next behind a piece that was looked at to its end. `None` behind one of a segment that has brought nothing: no record is longer.
fn next_piece_bytes(piece_bytes: u64, got_on: bool, segment_bytes: u64) -> Option<u64> {
    if got_on {
        return Some(LOOK_BYTES);
    }
    (piece_bytes < segment_bytes).then(|| (2 * piece_bytes).min(segment_bytes))
}

/// What a peer may read of a segment for a range, in bytes from its start: from a whole page's on, as it may read whole pages. Not behind the end: what is there in an
/// image may have arrived and not been looked at, and has no other place; to who reads it along it is nothing.
fn pages_of(geometry: windlass_log::Geometry, number: u64, range: LsnRange) -> std::ops::Range<u64> {
    let base = geometry.base(number).0;
    let start = range.start.0.saturating_sub(base).max(SEGMENT_HEADER_BYTES);
    let end = range.end.0.saturating_sub(base).min(geometry.segment_bytes());
    start / SEGMENT_HEADER_BYTES * SEGMENT_HEADER_BYTES..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_up_to_a_segment_where_one_brings_nothing_and_are_short_again_behind() {
        let next = |piece_bytes, got_on| next_piece_bytes(piece_bytes, got_on, 16 << 20);
        assert_eq!(next(LOOK_BYTES, true), Some(LOOK_BYTES));
        assert_eq!(next(LOOK_BYTES, false), Some(8 << 20));
        assert_eq!(next(8 << 20, false), Some(16 << 20));
        assert_eq!(next(16 << 20, false), None);
        assert_eq!(next(16 << 20, true), Some(LOOK_BYTES));
        assert_eq!(next_piece_bytes(LOOK_BYTES, false, 6 << 20), Some(6 << 20));
        assert_eq!(next_piece_bytes(LOOK_BYTES, false, 64 << 10), None);
    }
}
