//! Suspect: silence, and the pre-vote that keeps a cut-off member from raising epochs. Liveness only; any choice is safe.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use windlass_log::{Epoch, MemberId};

use super::super::Engine;
use super::collect::choose;
use super::{Accepted, Candidacy, Phase};
use crate::{Configuration, Event, LossError, LsnRange, Message, Undecided};

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(in super::super) struct Suspicion {
    pub(super) heard_at: u64,
    /// When a takeover is tried.
    pub(super) deadline: u64,
    /// Doubles the back-off.
    failures: u32,
    /// A candidate at work, and how far it has come.
    working: (Epoch, u64),
}

impl Suspicion {
    pub(in super::super) fn new(now: u64) -> Suspicion {
        Suspicion { heard_at: now, deadline: now, failures: 0, working: (Epoch::NONE, 0) }
    }
}

impl Engine {
    /// A sign of life from a primary that moves, or from a candidate at work.
    pub(in super::super) fn heard(&mut self) {
        self.suspicion.heard_at = self.core.now;
        self.suspicion.failures = 0;
        self.arm_suspicion();
        if let Some(Candidacy { phase: Phase::PreVote { .. }, .. }) = self.candidacy {
            self.candidacy = None;
        }
    }

    pub(in super::super) fn arm_suspicion(&mut self) {
        let back_off = self.core.random_below(self.core.config.timing.backoff_ns);
        self.suspicion.deadline = self.suspicion.heard_at + self.core.config.timing.suspicion_ns + back_off;
    }

    /// From now on as if a primary had just been heard.
    pub(in super::super) fn wait_for_primary(&mut self) {
        self.suspicion.heard_at = self.core.now;
        self.arm_suspicion();
    }

    pub(super) fn back_off(&mut self) {
        let timing = self.core.config.timing;
        self.suspicion.failures = (self.suspicion.failures + 1).min(16);
        let most = (timing.backoff_ns << self.suspicion.failures).min(timing.suspicion_ns);
        let wait = most / 4 + self.core.random_below(most);
        self.suspicion.deadline = self.core.now + wait;
    }

    /// This process slept: what it did not hear meanwhile proves nothing. Look again before suspecting anybody.
    pub(in super::super) fn look_again(&mut self) {
        let timing = self.core.config.timing;
        let again = self.core.now.saturating_sub(timing.suspicion_ns).saturating_add(4 * timing.heartbeat_ns);
        self.suspicion.heard_at = self.suspicion.heard_at.max(again);
        self.suspicion.deadline = self.suspicion.deadline.max(self.core.now + 4 * timing.heartbeat_ns);
        if let Some(tenure) = &mut self.tenure {
            for peer in tenure.peers.values_mut() {
                peer.heard_at = peer.heard_at.max(again);
            }
        }
    }

    fn may_campaign(&self) -> bool {
        self.stopped.is_none()
            && self.tenure.is_none()
            && self.sealing.is_none()
            && self.candidacy.is_none()
            && !self.work_in_progress()
            && !self.lacks_some()
            && self.may_lead()
    }

    /// Whether this member lacks what it may have acknowledged, and nobody has accepted that.
    pub(super) fn lacks_some(&self) -> bool {
        self.core.damaged() && self.accepted < Accepted::All
    }

    /// An operator has this member lead with what is left.
    pub(in super::super) fn accept_loss(&mut self) {
        let has_shown = self.core.durable > self.core.log.tail;
        let reason = self.no_word().or(has_shown.then_some(LossError::Published));
        if let Some(reason) = reason.filter(|_| !windlass_log::planted!(WordUnchecked)) {
            return self.core.event(Event::LossNotAccepted { reason });
        }
        let lost = LsnRange::new(self.core.log.persisted.0, self.core.state.mark.0);
        self.accepted = Accepted::All;
        self.core.event(Event::LossAccepted { lost });
        self.campaign();
    }

    /// An operator has the members that lost their memory count for this one's choice.
    pub(in super::super) fn accept_memory_loss(&mut self) {
        let (from, mark) = (self.core.log.persisted.0, self.core.state.mark.0);
        let reason = self.no_word().or(self.lacks_some().then_some(LossError::Damaged { from, mark }));
        if let Some(reason) = reason {
            return self.core.event(Event::LossNotAccepted { reason });
        }
        self.accepted = self.accepted.max(Accepted::Memory);
        self.core.event(Event::MemoryLossAccepted);
        self.campaign();
    }

    /// Why this member takes no word of either kind, if it does not.
    fn no_word(&self) -> Option<LossError> {
        // A damaged member suspects nobody, and so goes on following a primary that is gone: one that was not heard for that long does not lead.
        let hears = self.following.is_some() && self.core.now < self.suspicion.deadline;
        let is_led = self.tenure.is_some() || self.sealing.is_some() || hears;
        if self.stopped.is_some() {
            Some(LossError::Stopped)
        } else if is_led {
            Some(LossError::Led)
        } else if !self.may_lead() {
            Some(LossError::NoVoter)
        } else if self.core.state.history.entries().is_empty() {
            // Whatever lost its first record is of an epoch, and damaged.
            Some(LossError::Empty { end: self.core.log.tail })
        } else {
            None
        }
    }

    /// Damaged, with nobody to repair it: the one that it follows, if any, was not heard for the timeout.
    pub(in super::super) fn is_helpless(&self) -> bool {
        self.core.now >= self.suspicion.deadline
            && self.lacks_some()
            && self.stopped.is_none()
            && self.tenure.is_none()
            && self.sealing.is_none()
            && !self.work_in_progress()
    }

    pub(in super::super) fn suspicion_deadline(&self) -> Option<u64> {
        self.may_campaign().then_some(self.suspicion.deadline)
    }

    pub(in super::super) fn tend_suspicion(&mut self) {
        if self.may_campaign() && self.core.now >= self.suspicion.deadline {
            self.pre_vote();
        } else if self.is_helpless() {
            let (from, mark) = (self.core.log.persisted.0, self.core.state.mark.0);
            self.undecided(self.core.state.promised, Undecided::Damaged { from, mark });
        }
    }

    fn pre_vote(&mut self) {
        let timing = self.core.config.timing;
        let epoch = self.core.epoch_seen.max(self.core.state.promised).next_for(self.core.me());
        let granted = BTreeSet::from([self.core.me()]);
        self.candidacy = Some(Candidacy {
            epoch: Epoch::NONE,
            phase: Phase::PreVote { epoch, granted: granted.clone() },
            deadline: self.core.now + timing.suspicion_ns / 2,
            again_at: self.core.now + timing.retry_ns,
            promises: Default::default(),
            fetch_attempts: 0,
            progress: 0,
        });
        self.ask_votes(epoch, &granted);
        self.count_votes();
    }

    pub(super) fn ask_votes(&mut self, epoch: Epoch, granted: &BTreeSet<MemberId>) {
        let configuration = self.core.newest().configuration.number();
        for peer in self.core.others() {
            if !granted.contains(&peer) && self.links.is_up(peer) {
                self.core.send(peer, Message::PreVote { epoch, configuration });
            }
        }
    }

    fn count_votes(&mut self) {
        let Some(Candidacy { phase: Phase::PreVote { granted, .. }, .. }) = &self.candidacy else { return };
        let granted: Vec<MemberId> = granted.iter().copied().collect();
        // Enough to lead and to commit: a tenure that can't commit helps nobody.
        let is_enough =
            |configuration: &Configuration| configuration.count(&granted) >= configuration.useful_quorum();
        // By an operator's word one of them is enough: who answers may know that the newest is committed, or have a better log without it, and nobody else may have a
        // word. Promises are counted over what is in force in the log that is chosen.
        let is_enough = match self.accepted {
            Accepted::Nothing => self.core.configurations().all(is_enough),
            Accepted::Memory | Accepted::All => self.core.configurations().any(is_enough),
        };
        if is_enough {
            self.candidacy = None;
            self.campaign();
        }
    }

    /// What an operator's word waited for in the candidacy that has come to nothing.
    pub(super) fn tell_what_a_word_waits_for(&mut self) {
        let Some(candidacy) = self.candidacy.as_ref().filter(|_| self.accepted > Accepted::Nothing) else {
            return;
        };
        match &candidacy.phase {
            Phase::PreVote { epoch, granted } => {
                let newest = &self.core.newest().configuration;
                let granted: Vec<MemberId> = granted.iter().copied().collect();
                let (number, needed) = (newest.number(), newest.useful_quorum());
                let reason = Undecided::TooFewVotes { number, granted: newest.count(&granted), needed };
                self.say_undecided(*epoch, reason);
            }
            Phase::Fence => {
                let chosen = choose(&self.core.config, &candidacy.promises, self.accepted);
                if let Err(reason) = chosen {
                    self.say_undecided(candidacy.epoch, reason);
                }
            }
            Phase::OwnPromise
            | Phase::Cut { .. }
            | Phase::Fetch { .. }
            | Phase::Flush { .. }
            | Phase::Save { .. }
            | Phase::Start => {}
        }
    }

    pub(in super::super) fn vote_asked(&mut self, from: MemberId, epoch: Epoch, configuration: u64) {
        if !self.obeys(from, configuration) {
            return self.not_a_member(from);
        }
        let timing = self.core.config.timing;
        let silent_ns = self.core.now - self.suspicion.heard_at.min(self.core.now);
        let is_silent = silent_ns + 2 * timing.heartbeat_ns >= timing.suspicion_ns;
        let is_fencing = self.candidacy.as_ref().is_some_and(|c| !matches!(c.phase, Phase::PreVote { .. }));
        let granted = is_silent && self.tenure.is_none() && !is_fencing && epoch > self.core.state.promised;
        let promised = self.core.state.promised.max(self.core.epoch_seen);
        self.core.send(from, Message::PreVoteReply { epoch, granted, promised });
    }

    pub(in super::super) fn vote_answered(
        &mut self,
        from: MemberId,
        epoch: Epoch,
        granted: bool,
        promised: Epoch,
    ) {
        self.core.epoch_seen = self.core.epoch_seen.max(promised);
        if let Some(Candidacy { phase: Phase::PreVote { epoch: asked, granted: votes }, .. }) =
            &mut self.candidacy
            && *asked == epoch
            && granted
        {
            votes.insert(from);
            self.count_votes();
        }
    }

    /// A candidate says that it is at work. Believed only while it gets on.
    pub(in super::super) fn candidate_working(&mut self, epoch: Epoch, progress: u64) {
        if epoch >= self.core.state.promised && (epoch, progress) > self.suspicion.working {
            self.suspicion.working = (epoch, progress);
            self.heard();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::backup::Following;
    use super::super::super::core::tests::opening;
    use super::super::super::tenure::Tenure;
    use super::super::super::work::Offer;
    use super::*;
    use crate::{Session, Token};
    use windlass_log::{EpochHistory, Lsn};

    const MS: u64 = 1_000_000;

    /// Heartbeats each 20 ms, suspicion after 400 ms, back-off from 20 ms.
    fn engine() -> Engine {
        let (config, opening) = opening(false, 6000, 6000, &[]);
        Engine::new(config, opening, 0)
    }

    #[test]
    fn a_sleeper_is_one_that_was_not_called_for_more_than_four_heartbeats() {
        let mut engine = engine();
        engine.arrive(80 * MS);
        assert_eq!(engine.suspicion.heard_at, 0);
        engine.arrive(160 * MS + 1);
        assert_eq!(engine.suspicion.heard_at, 80 * MS);
        let mut awake = self::engine();
        awake.arrive(30 * MS);
        assert_eq!(awake.suspicion.heard_at, 0);
    }

    #[test]
    fn a_sleeper_gives_everybody_four_heartbeats() {
        let mut engine = engine();
        engine.core.now = 1000 * MS;
        engine.tenure = Some(Tenure::new(Epoch::NONE, Token(1), &[MemberId(1)], Lsn(6000), 0));
        engine.look_again();
        assert_eq!(engine.suspicion.heard_at, 680 * MS);
        assert_eq!(engine.suspicion.deadline, 1080 * MS);
        assert_eq!(engine.tenure.as_ref().unwrap().peers[&MemberId(1)].heard_at, 680 * MS);
        // Whom it has heard since, and what was to come later, stays.
        (engine.suspicion.heard_at, engine.suspicion.deadline) = (900 * MS, 1200 * MS);
        engine.look_again();
        assert_eq!((engine.suspicion.heard_at, engine.suspicion.deadline), (900 * MS, 1200 * MS));
    }

    #[test]
    fn a_word_is_taken_from_when_on_a_damaged_member_says_that_it_waits_r18() {
        let session = Session { epoch: Epoch::new(1, MemberId(1)), attempt: 1 };
        let offer = Offer {
            primary: MemberId(1),
            session,
            history: EpochHistory::new(),
            tail: Lsn(6000),
            trimmed: Lsn(4096),
            durable: Lsn(4096),
            configurations: Vec::new(),
        };
        let word = |early: u64| {
            let (config, opening) = opening(false, 4500, 6000, &[]);
            let mut engine = Engine::new(config, opening, 0);
            engine.following = Some(Following::new(&offer, Lsn(4500), Lsn(65536)));
            engine.core.now = engine.suspicion.deadline - early;
            (engine.is_helpless(), engine.no_word())
        };
        assert_eq!(word(1), (false, Some(LossError::Led)));
        assert_eq!(word(0), (true, None));
    }

    #[test]
    fn the_back_off_doubles_with_each_failure_up_to_the_timeout() {
        let mut engine = engine();
        engine.core.now = 1000 * MS;
        for most in [40, 80, 160, 320, 400, 400].map(|most| most * MS) {
            let mut waits = Vec::new();
            let failures = engine.suspicion.failures;
            for _ in 0..200 {
                engine.suspicion.failures = failures;
                engine.back_off();
                waits.push(engine.suspicion.deadline - engine.core.now);
            }
            let (least, longest) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
            assert!(least >= most / 4 && longest < most / 4 + most, "{least}..{longest} of {most}");
            assert!(longest - least > most / 2, "spread: {least}..{longest} of {most}");
        }
        engine.suspicion.failures = 16;
        engine.back_off();
        assert_eq!(engine.suspicion.failures, 16);
    }

    #[test]
    fn whoever_may_campaign_asks_to_be_called_then() {
        let engine = engine();
        assert_eq!(engine.suspicion_deadline(), Some(engine.suspicion.deadline));
    }
}
