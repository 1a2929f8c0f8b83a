//! Lead: the chosen log is here, whole and flushed. Save the history that has the new tenure, open the log, append the
//! epoch-start record. All of it consumes the [`FenceQuorum`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use windlass_log::{Lsn, MemberId};

use super::super::Engine;
use super::super::tenure::Tenure;
use super::collect::{committed_and_lost, holds, in_force_of};
use super::{Accepted, Candidacy, Phase};
use crate::history::{begin, divergence, epoch_before};
use crate::{Command, ConfigurationRecord, FenceQuorum, Token, Undecided};

impl Engine {
    /// `configuration`: the number of the one over which the promises were counted.
    pub(super) fn flush_before_lead(&mut self, fence: FenceQuorum, configuration: u64) {
        assert!(
            self.core.newest().configuration.number() == configuration,
            "R-20: promises were counted over configuration {configuration}, the log to lead from has {}",
            self.core.newest().configuration.number()
        );
        self.set_phase(Phase::Flush { fence });
        self.candidacy_flushed();
    }

    /// No flush is in flight any more, or none was.
    pub(in super::super) fn candidacy_flushed(&mut self) {
        match self.candidacy.as_ref().map(|candidacy| &candidacy.phase) {
            Some(Phase::Flush { .. }) => {}
            // The choice waited for the flush.
            Some(Phase::Fence) => return self.count_promises(),
            Some(_) | None => return,
        }
        self.core.flush();
        if self.core.log.flush.is_some() || self.core.is_saving_configuration() {
            return;
        }
        let Some(Phase::Flush { fence }) = self.take_phase() else { return };
        self.save_history(fence);
    }

    fn save_history(&mut self, fence: FenceQuorum) {
        let at = self.core.log.tail;
        assert!(self.core.log.persisted.0 == at, "R-11: leading over unflushed bytes");
        assert!(
            fence.epoch() == self.core.state.promised,
            "leading in an epoch that is not the promised one"
        );
        self.learn_configuration();
        let epoch = fence.epoch();
        let mut begun = begin(&mut self.core.state.history, epoch, at);
        if begun.is_err() {
            self.release_for_room();
            begun = begin(&mut self.core.state.history, epoch, at);
        }
        if begun.is_err() {
            // Who else promises may know of more.
            self.undecided(epoch, Undecided::HistoryFull);
            self.refresh_own_summary();
            return self.set_phase(Phase::Fence);
        }
        // The operator's word: what is lacking is given up.
        let gives_up = self.accepted == Accepted::All && self.core.give_up_lost();
        self.keep_committed_of_others(at);
        assert!(!self.core.damaged(), "R-18: a member that lacks what it acknowledged does not lead");
        // The chosen log holds all that any member may have vouched for, and of what a fetch has met behind its end nothing.
        self.core.state.memory_lost = false;
        self.core.cut_configurations(at);
        let token = if gives_up { self.core.save_with_cut() } else { self.core.save() };
        self.set_phase(Phase::Save { fence, token });
        self.extend();
        self.say_again();
    }

    /// Who has promised may know that the newest configuration is committed, and this member not: the promises were counted over that one alone, and so is the
    /// tenure. It would never commit where voters of the one before are gone for good.
    fn learn_configuration(&mut self) {
        let Some(candidacy) = &self.candidacy else { return };
        let end = self.core.newest().end;
        if in_force_of(&candidacy.promises, &self.core.summary()).len() < self.core.in_force().len() {
            self.core.learn(end, end);
        }
    }

    /// By an operator's word: what another one that answered knows to be committed counts on from here, also where this member has never heard of it. That one would go on
    /// counting with it, and quorums of the two need not meet.
    fn keep_committed_of_others(&mut self, at: Lsn) {
        let Some(candidacy) = self.candidacy.as_ref().filter(|_| self.accepted == Accepted::All) else {
            return;
        };
        let known = committed_and_lost(&candidacy.promises, &self.core.summary(), self.core.me());
        if let Some(configuration) = known {
            self.core.take_placed_configuration(&[ConfigurationRecord { start: at, end: at, configuration }]);
        }
    }

    /// The history is full: what the application has released goes, as far as those who promised know it to be committed. A primary would release it, and there can
    /// be none before there is room.
    fn release_for_room(&mut self) {
        let (Some(wanted), Some(candidacy)) = (self.trim_wanted, &self.candidacy) else { return };
        let log = self.core.summary();
        let known = candidacy.promises.values().map(|summary| summary.durable);
        let known = known.filter(|mark| holds(&log, *mark)).map(|mark| mark.lsn).max();
        // What all voters have on their media is in whatever is chosen, now and later.
        let voters: BTreeSet<MemberId> = self.core.configurations().flat_map(|c| c.voters()).collect();
        let of_voter = |voter: &MemberId| {
            let of = if *voter == self.core.me() { &log } else { candidacy.promises.get(voter)? };
            let from = log.trimmed.max(of.trimmed);
            let is_same = epoch_before(&log.history, from) == epoch_before(&of.history, from);
            is_same.then(|| divergence(&log.history, log.valid_tail, &of.history, of.valid_tail, from))
        };
        let all = voters.iter().map(of_voter).collect::<Option<Vec<Lsn>>>();
        let all = all.and_then(|ends| ends.into_iter().min());
        let durable = known.max(all).unwrap_or(Lsn(0));
        self.core.learn(durable, durable);
        self.core.trim(wanted.min(self.core.durable).min(self.core.log.persisted.0));
    }

    pub(in super::super) fn candidacy_saved(&mut self, token: Token) {
        if self.cut_saved(token) {
            return;
        }
        match &self.candidacy {
            Some(Candidacy { phase: Phase::Save { token: expected, .. }, .. }) if *expected == token => {}
            Some(_) | None => return,
        }
        let Some(Phase::Save { fence, .. }) = self.take_phase() else { return };
        let at: Lsn = self.core.log.tail;
        let (token, epoch, now) = (self.core.token(), fence.epoch(), self.core.now);
        let peers: Vec<MemberId> = self.core.other_members().iter().map(|entry| entry.id).collect();
        self.tenure = Some(Tenure::new(epoch, token, &peers, at, now));
        self.set_phase(Phase::Start);
        self.extend();
        self.accepted = Accepted::Nothing;
        (self.snapshot, self.installed, self.coming) = (None, None, None);
        self.asked_for_newer = false;
        self.core.push(Command::StartTenure { token, quorum: fence, at });
    }
}
