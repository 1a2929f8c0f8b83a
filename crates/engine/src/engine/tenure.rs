//! A primary's tenure beyond its batches: sessions with the peers, heartbeats, trimming, handover, and its end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use windlass_log::{Epoch, Lsn, MemberId};

use super::Engine;
use super::commit::Boundaries;
use super::peer::{Peer, Phase};
use crate::{
    Command, Event, HandoverError, Heartbeat, Message, PeerStatus, Persisted, Session, StopReason, Token,
};

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) epoch: Epoch,
    /// Answers the command that opened the log.
    pub(super) start: Token,
    /// The end of the epoch-start record, once it is appended.
    pub(super) start_end: Option<Lsn>,
    pub(super) peers: BTreeMap<MemberId, Peer>,
    pub(super) boundaries: Boundaries,
    /// The end of the last reservation.
    pub(super) reserved: Lsn,
    /// Somebody waits for everything below to be durable.
    pub(super) wanted: Lsn,
    /// When anything last moved.
    pub(super) progress_at: u64,
    /// Since when work is pending.
    pub(super) pending_since: Option<u64>,
    pub(super) beat_at: u64,
    pub(super) beats: u64,
    pub(super) handover: Option<Handover>,
    /// The number of the configuration that is being appended.
    pub(super) proposed: Option<u64>,
    /// The log refused a configuration: no learner is proposed again before this time.
    pub(super) propose_at: u64,
}

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Handover {
    to: MemberId,
    seal: Token,
    sealed: bool,
    deadline: u64,
}

/// A log on its way from a tenure's end to its seal.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Sealing {
    seal: Token,
    /// Whom to tell once the log is sealed: a handover, or this member itself.
    then: AfterSeal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AfterSeal {
    Wait,
    /// Take a higher epoch at once: a minority has promised one, and can't follow this one any more.
    Campaign,
}

impl Tenure {
    pub(super) fn new(epoch: Epoch, start: Token, peers: &[MemberId], tail: Lsn, now: u64) -> Tenure {
        let mut boundaries = Boundaries::default();
        boundaries.push(tail);
        Tenure {
            epoch,
            start,
            start_end: None,
            peers: peers.iter().map(|peer| (*peer, Peer::new(epoch, now))).collect(),
            boundaries,
            reserved: tail,
            wanted: Lsn(0),
            progress_at: now,
            pending_since: None,
            beat_at: now,
            beats: 0,
            handover: None,
            proposed: None,
            propose_at: 0,
        }
    }

    /// Why a voter can't be handed this tenure now, if so.
    fn keeps_from_heir(&self, to: MemberId) -> Option<HandoverError> {
        match self.peers.get(&to) {
            Some(peer) if peer.is_streaming() => None,
            Some(Peer { phase: Phase::NeedsSnapshot { .. }, .. }) => Some(HandoverError::NeedsSnapshot),
            Some(_) | None => Some(HandoverError::Away),
        }
    }
}

#[cfg(feature = "explore")]
impl Tenure {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        match self.start_end {
            Some(_) => self.start = Token(0),
            None => visit(&mut self.start),
        }
        if let Some(handover) = &mut self.handover {
            visit(&mut handover.seal);
        }
    }
}

#[cfg(feature = "explore")]
impl Sealing {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        visit(&mut self.seal);
    }
}

impl Engine {
    pub(super) fn tenure_started(&mut self, token: Token, end: Lsn) {
        let now = self.core.now;
        let Some(tenure) = self.tenure.as_mut().filter(|t| t.start == token && t.start_end.is_none()) else {
            return;
        };
        assert!(
            end > self.core.log.tail,
            "the epoch-start record ends at {end}, the log did at {}",
            self.core.log.tail
        );
        tenure.start_end = Some(end);
        tenure.boundaries.push(end);
        tenure.reserved = tenure.reserved.max(end);
        // The start record must be durable before anything counts.
        tenure.wanted = tenure.wanted.max(end);
        tenure.progress_at = now;
        tenure.beat_at = now;
        for peer in tenure.peers.values_mut() {
            peer.heard_at = now;
            peer.phase = Phase::Away { retry_at: now };
        }
        self.core.log.tail = end;
        self.candidacy = None;
        self.pump_sessions();
    }

    // ---- sessions ------------------------------------------------------------------------------------------------

    pub(super) fn tenure_link_ready(&mut self, member: MemberId, is_new_process: bool) {
        let now = self.core.now;
        let Some(peer) = self.tenure.as_mut().and_then(|tenure| tenure.peers.get_mut(&member)) else {
            return;
        };
        if is_new_process && !matches!(peer.phase, Phase::Away { .. }) {
            // Its connection died with the old process.
            self.restart_session(member);
        }
        if let Some(peer) = self.tenure.as_mut().and_then(|tenure| tenure.peers.get_mut(&member)) {
            match &mut peer.phase {
                Phase::Away { retry_at: due } | Phase::Adopting { again_at: due } => *due = now,
                Phase::Streaming | Phase::NeedsSnapshot { .. } => {}
            }
        }
        self.pump_sessions();
    }

    /// Makes sessions that are due, and says again what was not answered.
    pub(super) fn pump_sessions(&mut self) {
        let Engine { core, tenure, links, .. } = self;
        let Some(tenure) = tenure.as_mut().filter(|tenure| tenure.start_end.is_some()) else { return };
        let again_at = core.now + core.config.timing.retry_ns;
        let members: Vec<MemberId> = tenure.peers.keys().copied().collect();
        for member in members.into_iter().filter(|member| links.is_up(*member)) {
            let Some(peer) = tenure.peers.get_mut(&member) else { continue };
            let session = match peer.phase {
                Phase::Away { retry_at: due } | Phase::NeedsSnapshot { again_at: due } if due <= core.now => {
                    let session = peer.next_session(again_at);
                    core.push(Command::Connect { peer: member, session });
                    session
                }
                Phase::Adopting { again_at: due } if due <= core.now => {
                    peer.phase = Phase::Adopting { again_at };
                    peer.session
                }
                Phase::Away { .. }
                | Phase::Adopting { .. }
                | Phase::Streaming
                | Phase::NeedsSnapshot { .. } => continue,
            };
            let message = Message::Adopt {
                session,
                history: core.state.history.clone(),
                tail: core.log.tail,
                trimmed: core.state.trimmed,
                durable: core.durable,
                configurations: core.state.configurations.clone(),
            };
            core.send(member, message);
        }
    }

    pub(super) fn adopted(
        &mut self,
        from: MemberId,
        session: Session,
        valid_tail: Lsn,
        persisted: Persisted,
    ) {
        let tail = self.core.log.tail;
        let trimmed = self.core.state.trimmed;
        let geometry = self.core.config.geometry;
        let now = self.core.now;
        let Some(peer) = self.peer_in(from, session) else { return };
        if !matches!(peer.phase, Phase::Adopting { .. }) {
            return;
        }
        let plausible = valid_tail <= tail && persisted.0 <= valid_tail;
        if !plausible || geometry.normalize(valid_tail) != valid_tail {
            return self.restart_session(from);
        }
        if valid_tail < trimmed {
            // Released while the peer was adopting.
            return self.snapshot_needed(from, session);
        }
        peer.adopted(valid_tail, persisted, now);
        self.set_status(from, PeerStatus::Streaming);
    }

    pub(super) fn granted(&mut self, from: MemberId, session: Session, up_to: Lsn) {
        if let Some(peer) = self.peer_in(from, session) {
            peer.granted_to = peer.granted_to.max(up_to);
        }
    }

    /// What the peer has acknowledged stays known as it was: its valid log may go further than what it has flushed, and be another one.
    pub(super) fn snapshot_needed(&mut self, from: MemberId, session: Session) {
        // Asking costs the peer a superblock save: ask rarely, it speaks up itself once it has the checkpoint.
        let again_at = self.core.now + 16 * self.core.config.timing.suspicion_ns;
        let Some(peer) = self.peer_in(from, session) else { return };
        if matches!(peer.phase, Phase::NeedsSnapshot { .. }) {
            return;
        }
        peer.phase = Phase::NeedsSnapshot { again_at };
        self.core.push(Command::Disconnect { peer: from, session });
        self.set_status(from, PeerStatus::NeedsSnapshot);
    }

    /// The checkpoint that a peer needs is on its way.
    pub(super) fn keep(&mut self, from: MemberId, epoch: Epoch, at: Lsn) {
        let until = self.core.now + 16 * self.core.config.timing.suspicion_ns;
        let tenure = self.tenure.as_mut().filter(|tenure| tenure.epoch == epoch);
        if let Some(peer) = tenure.and_then(|tenure| tenure.peers.get_mut(&from)) {
            peer.keeps = Some((at, until));
        }
    }

    /// The peer asks for another session.
    pub(super) fn resynced(&mut self, from: MemberId, session: Session) {
        let Some(tenure) = &self.tenure else { return };
        let Some(peer) = tenure.peers.get(&from) else { return };
        let is_newest = peer.session == session || session.epoch != tenure.epoch;
        if is_newest && !matches!(peer.phase, Phase::Away { .. }) {
            self.restart_session(from);
        }
    }

    pub(super) fn tenure_fabric_down(&mut self, from: MemberId, session: Session) {
        let was_used = |phase| matches!(phase, Phase::Adopting { .. } | Phase::Streaming);
        if self.peer_in(from, session).is_some_and(|peer| was_used(peer.phase)) {
            self.restart_session(from);
        }
    }

    fn peer_in(&mut self, from: MemberId, session: Session) -> Option<&mut Peer> {
        let tenure = self.tenure.as_mut()?;
        tenure.peers.get_mut(&from).filter(|peer| peer.session == session && session.attempt > 0)
    }

    /// Gives the peer's session up; the next one is tried after a moment.
    pub(super) fn restart_session(&mut self, from: MemberId) {
        let retry_at = self.core.now + self.core.config.timing.retry_ns / 4;
        let Some(peer) = self.tenure.as_mut().and_then(|tenure| tenure.peers.get_mut(&from)) else { return };
        let session = peer.session;
        peer.phase = Phase::Away { retry_at };
        self.core.push(Command::Disconnect { peer: from, session });
        self.set_status(from, PeerStatus::Away);
    }

    fn set_status(&mut self, member: MemberId, status: PeerStatus) {
        let Some(peer) = self.tenure.as_mut().and_then(|tenure| tenure.peers.get_mut(&member)) else {
            return;
        };
        if peer.status != status {
            peer.status = status;
            self.core.event(Event::Peer { peer: member, status });
        }
    }

    // ---- signs of life -------------------------------------------------------------------------------------------

    pub(super) fn alive_answered(&mut self, from: MemberId, epoch: Epoch, sequence: u64) {
        if let Some(tenure) = self.tenure.as_mut().filter(|tenure| tenure.epoch == epoch)
            && let Some(peer) = tenure.peers.get_mut(&from)
        {
            peer.beat_answered(sequence);
        }
    }

    /// Beats when it is time, steps down without a quorum, gives up sessions that hang.
    pub(super) fn tend_tenure(&mut self) {
        let now = self.core.now;
        let Some(tenure) = self.tenure.as_ref().filter(|tenure| tenure.start_end.is_some()) else { return };
        if let Some(handover) = &tenure.handover
            && now >= handover.deadline
        {
            return self.end_handover();
        }
        let suspicion_ns = self.core.config.timing.suspicion_ns;
        let silent = |peer: &Peer| now >= peer.heard_at.saturating_add(suspicion_ns);
        let me = self.core.me();
        let mut heard: Vec<MemberId> =
            tenure.peers.iter().filter(|(_, peer)| !silent(peer)).map(|(member, _)| *member).collect();
        heard.push(me);
        if !self.core.configurations().all(|configuration| configuration.is_write_quorum(&heard)) {
            return self.step_down(StopReason::NoQuorum);
        }
        let slots = u64::from(self.core.config.limits.notice_slots);
        let due = now >= tenure.beat_at;
        let peers = self.tenure.iter_mut().flat_map(|tenure| &mut tenure.peers);
        let hung = |(_, peer): &mut (&MemberId, &mut Peer)| {
            peer.is_hung(suspicion_ns, now) || peer.is_starved(slots, suspicion_ns, now)
        };
        let hanging: Vec<MemberId> =
            peers.filter_map(|mut peer| hung(&mut peer).then_some(*peer.0)).collect();
        for member in hanging {
            self.restart_session(member);
        }
        if due {
            self.beat();
        }
        self.pump_sessions();
    }

    fn beat(&mut self) {
        let Engine { core, tenure, links, .. } = self;
        let Some(tenure) = tenure else { return };
        tenure.beat_at = core.now + core.config.timing.heartbeat_ns;
        tenure.beats += 1;
        let pending_ns =
            tenure.pending_since.map_or(0, |since| core.now - since.max(tenure.progress_at).min(core.now));
        for (member, peer) in &mut tenure.peers {
            let sequence = tenure.beats;
            if peer.is_streaming() {
                peer.beat(sequence, core.now);
                peer.nudge_after(core.config.timing.retry_ns, core.now);
                let heartbeat = Heartbeat {
                    session: peer.session,
                    sequence,
                    drained: core.log.tail,
                    tail: tenure.reserved,
                    replicated: core.replicated,
                    durable: core.durable,
                    trimmed: core.state.trimmed,
                    pending_ns,
                };
                core.push(Command::Beat { peer: *member, session: peer.session, heartbeat });
            } else if links.is_up(*member) {
                peer.beat(sequence, core.now);
                let (epoch, drained) = (tenure.epoch, core.log.tail);
                core.send(*member, Message::Alive { epoch, sequence, pending_ns, drained });
            }
        }
    }

    /// Keeps the age of the oldest pending work.
    pub(super) fn watch_pending(&mut self) {
        let core = &self.core;
        let Some(tenure) = &mut self.tenure else { return };
        let is_pending = tenure.reserved > core.log.tail
            || tenure.wanted > core.durable
            || core.replicated < core.log.tail && tenure.start_end.is_some();
        tenure.pending_since = match (is_pending, tenure.pending_since) {
            (true, since) => since.or(Some(core.now)),
            (false, _) => None,
        };
    }

    // ---- trimming ------------------------------------------------------------------------------------------------

    /// Releases what the application and, within the retention limit, the peers no longer need. A peer that streams below
    /// the new trim point is disconnected first.
    pub(super) fn trim_as_primary(&mut self) {
        let retention = self.core.config.limits.retention_bytes;
        let Some(wanted) = self.trim_wanted else { return };
        let Some(tenure) = &self.tenure else { return };
        if tenure.start_end.is_none() {
            return;
        }
        let now = self.core.now;
        let needed = |peer: &Peer| match (peer.phase, peer.known) {
            // It waits for a checkpoint: the log is kept for it from where that ends, once one is on its way.
            (Phase::NeedsSnapshot { .. }, _) => {
                peer.keeps.filter(|(_, until)| now < *until).map_or(Lsn(u64::MAX), |(from, _)| from)
            }
            (Phase::Streaming, _) => peer.persisted().0,
            (Phase::Away { .. } | Phase::Adopting { .. }, Some(known)) => known.0,
            (Phase::Away { .. } | Phase::Adopting { .. }, None) => Lsn(0),
        };
        let slowest = tenure.peers.values().map(needed).min().unwrap_or(Lsn(u64::MAX));
        let kept_from = slowest.max(Lsn(self.core.log.tail.0.saturating_sub(retention)));
        let mut to = wanted.min(kept_from).min(self.core.durable).min(self.core.log.persisted.0);
        if to < wanted.min(self.core.durable) {
            // The limit of retention is a byte count: release whole segments only, which are record starts.
            let geometry = self.core.config.geometry;
            let segment = geometry.segment_of(to);
            let starts = [segment, segment.saturating_sub(1)].map(|segment| geometry.first_record(segment));
            to = starts.into_iter().find(|start| *start <= to).unwrap_or(Lsn(0));
        }
        if to <= self.core.state.trimmed {
            return;
        }
        let below: Vec<(MemberId, Session)> = tenure
            .peers
            .iter()
            .filter(|(_, peer)| peer.phase == Phase::Streaming && peer.persisted().0 < to)
            .map(|(member, peer)| (*member, peer.session))
            .collect();
        for (member, session) in below {
            self.snapshot_needed(member, session);
        }
        self.core.trim(to);
    }

    // ---- the end -------------------------------------------------------------------------------------------------

    pub(super) fn hand_over(&mut self, to: MemberId) {
        let deadline = self.core.now + self.core.config.timing.suspicion_ns;
        let Some(tenure) = self.tenure.as_mut().filter(|tenure| tenure.start_end.is_some()) else { return };
        if tenure.handover.is_some() {
            return;
        }
        // A learner, or a member that has left, would lead nothing.
        let reason = if self.core.is_voter(to) {
            tenure.keeps_from_heir(to)
        } else if self.core.newest().configuration.member(to).is_some() {
            Some(HandoverError::Learner)
        } else {
            Some(HandoverError::NoMember)
        };
        if let Some(reason) = reason {
            return self.core.event(Event::HandoverFailed { to, reason });
        }
        let seal = self.core.token();
        tenure.handover = Some(Handover { to, seal, sealed: false, deadline });
        self.core.push(Command::Seal { token: seal });
    }

    /// Everything of the sealed log is committed and on the heir's medium: let it go.
    pub(super) fn pump_handover(&mut self) {
        let Some(tenure) = &self.tenure else { return };
        let Some(Handover { to, sealed: true, .. }) = tenure.handover else { return };
        let tail = self.core.log.tail;
        if self.core.durable == tail && tenure.peers.get(&to).is_some_and(|peer| peer.persisted().0 == tail) {
            let epoch = tenure.epoch;
            self.core.send(to, Message::Campaign { epoch });
            self.step_down(StopReason::HandedOver { to });
        }
    }

    fn end_handover(&mut self) {
        let Some(tenure) = &self.tenure else { return };
        let Some(Handover { to, .. }) = tenure.handover else { return };
        let reason = tenure.keeps_from_heir(to).unwrap_or(HandoverError::TooSlow);
        self.core.event(Event::HandoverFailed { to, reason });
        self.step_down(StopReason::HandedOver { to });
    }

    pub(super) fn sealed(&mut self, token: Token, tail: Lsn) {
        if let Some(tenure) = &mut self.tenure
            && let Some(handover) = &mut tenure.handover
            && handover.seal == token
        {
            handover.sealed = true;
            assert!(tail >= self.core.log.tail, "sealed at {tail}, drained to {}", self.core.log.tail);
            self.core.log.tail = tail;
            tenure.boundaries.push(tail);
            tenure.reserved = tenure.reserved.max(tail);
            tenure.wanted = tenure.wanted.max(tail);
            return;
        }
        let Some(sealing) = self.sealing.take_if(|sealing| sealing.seal == token) else { return };
        // nothing is in flight, so the sealed tail is the end of the log.
        assert!(tail >= self.core.log.tail, "sealed at {tail}, drained to {}", self.core.log.tail);
        self.core.sealed_at(tail);
        self.core.log.unpersisted_since = None;
        self.work_sealed();
        if sealing.then == AfterSeal::Campaign && !self.work_in_progress() {
            self.campaign();
        }
    }

    /// A minority has promised a higher epoch and can't follow this tenure: take a higher one still.
    pub(super) fn outbid(&mut self, promised: Epoch) {
        if self.tenure.as_ref().is_some_and(|tenure| promised > tenure.epoch) {
            self.step_down(StopReason::HigherEpoch { promised });
            if let Some(sealing) = &mut self.sealing {
                sealing.then = AfterSeal::Campaign;
            }
        }
    }

    /// As primary: the peer that votes, streams, and has most on its medium.
    pub(super) fn furthest_peer(&self) -> Option<MemberId> {
        let peers = self.tenure.as_ref()?.peers.iter();
        let heirs = peers.filter(|(member, peer)| peer.is_streaming() && self.core.is_voter(**member));
        heirs.max_by_key(|(_, peer)| peer.persisted()).map(|(member, _)| *member)
    }

    /// Ends the tenure, if there is one: posting and counting stop here, the log is sealed, pending commits end as
    /// unknown.
    pub(super) fn step_down(&mut self, reason: StopReason) {
        self.remember_witnessed();
        let Some(tenure) = self.tenure.take() else { return };
        let sealed_already = tenure.handover.as_ref().is_some_and(|handover| handover.sealed);
        if !sealed_already {
            let seal = match tenure.handover {
                Some(Handover { seal, .. }) => seal,
                None => {
                    let token = self.core.token();
                    self.core.push(Command::Seal { token });
                    token
                }
            };
            self.sealing = Some(Sealing { seal, then: AfterSeal::Wait });
        }
        for (member, peer) in &tenure.peers {
            if peer.has_connection() {
                self.core.push(Command::Disconnect { peer: *member, session: peer.session });
            }
        }
        self.core.push(Command::StepDown { epoch: tenure.epoch, reason });
        self.candidacy = None;
        self.wait_for_primary();
    }

    /// Stops for good (until the folder is opened again).
    pub(super) fn stop(&mut self, reason: StopReason) {
        if self.stopped.is_some() {
            return;
        }
        self.step_down(reason);
        self.abandon_candidacy();
        self.stopped = Some(reason);
        self.sealing = None;
        self.following = None;
        self.work = None;
        self.next = None;
        self.core.event(Event::Stopped { reason });
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::tests::opening;
    use super::*;

    /// Member 0, primary since time 100 with nobody streaming, which hands over to member 1 until time 500.
    fn handing_over() -> Engine {
        let (config, opening) = opening(false, 6000, 6000, &[]);
        let mut engine = Engine::new(config, opening, 100);
        let epoch = Epoch::new(2, MemberId(0));
        let mut tenure = Tenure::new(epoch, Token(1), &[MemberId(1), MemberId(2)], Lsn(6000), 100);
        tenure.start_end = Some(Lsn(6000));
        tenure.handover = Some(Handover { to: MemberId(1), seal: Token(2), sealed: false, deadline: 500 });
        engine.tenure = Some(tenure);
        engine
    }

    fn commands(engine: &mut Engine) -> Vec<Command> {
        core::iter::from_fn(|| engine.poll_command()).collect()
    }

    #[test]
    fn a_handover_that_does_not_come_about_ends_with_the_tenure_at_its_deadline() {
        let heirs = [
            (Phase::Streaming, HandoverError::TooSlow),
            (Phase::NeedsSnapshot { again_at: 900 }, HandoverError::NeedsSnapshot),
            (Phase::Adopting { again_at: 900 }, HandoverError::Away),
            (Phase::Away { retry_at: 900 }, HandoverError::Away),
        ];
        for (phase, failure) in heirs {
            let mut engine = handing_over();
            let peer = engine.tenure.as_mut().unwrap().peers.get_mut(&MemberId(1)).unwrap();
            (peer.phase, peer.granted_to) = (phase, Lsn(9000));
            engine.core.now = 499;
            engine.tend_tenure();
            assert!(engine.tenure.is_some());
            engine.core.now = 500;
            engine.tend_tenure();
            assert!(engine.tenure.is_none());
            let commands = commands(&mut engine);
            let failed = Event::HandoverFailed { to: MemberId(1), reason: failure };
            assert!(commands.contains(&Command::Event(failed)), "{commands:?}");
            let reason = StopReason::HandedOver { to: MemberId(1) };
            assert!(commands.contains(&Command::StepDown { epoch: Epoch::new(2, MemberId(0)), reason }));
        }
    }

    #[test]
    fn an_answer_to_a_sign_of_life_counts_in_its_own_tenure() {
        let mut engine = handing_over();
        let heard = |engine: &Engine| engine.tenure.as_ref().unwrap().peers[&MemberId(1)].heard_at;
        let tenure = engine.tenure.as_mut().unwrap();
        tenure.peers.get_mut(&MemberId(1)).unwrap().beat(7, 300);
        let epoch = tenure.epoch;
        engine.alive_answered(MemberId(1), Epoch::new(1, MemberId(0)), 7);
        engine.alive_answered(MemberId(3), epoch, 7);
        assert_eq!(heard(&engine), 100);
        engine.alive_answered(MemberId(1), epoch, 7);
        assert_eq!(heard(&engine), 300);
    }

    #[test]
    fn how_long_a_handover_a_checkpoint_and_its_word_may_take() {
        let mut engine = handing_over();
        let suspicion_ns = engine.core.config.timing.suspicion_ns;
        engine.core.now = 7000;
        let tenure = engine.tenure.as_mut().unwrap();
        (tenure.handover, tenure.start_end) = (None, Some(Lsn(6000)));
        let peer = tenure.peers.get_mut(&MemberId(1)).unwrap();
        let session = peer.next_session(0);
        peer.adopted(Lsn(6000), Persisted(Lsn(6000)), 0);
        peer.granted_to = Lsn(65536);
        let epoch = tenure.epoch;
        engine.hand_over(MemberId(1));
        let deadline = engine.tenure.as_ref().unwrap().handover.as_ref().unwrap().deadline;
        assert_eq!(deadline, 7000 + suspicion_ns);
        engine.keep(MemberId(1), epoch, Lsn(5000));
        engine.snapshot_needed(MemberId(1), session);
        let peer = &engine.tenure.as_ref().unwrap().peers[&MemberId(1)];
        assert_eq!(peer.keeps, Some((Lsn(5000), 7000 + 16 * suspicion_ns)));
        assert_eq!(peer.phase, Phase::NeedsSnapshot { again_at: 7000 + 16 * suspicion_ns });
    }
}
