//! Lead: the chosen log is here, whole and flushed. Save the history that has the new tenure, open the log, append the
//! epoch-start record. All of it consumes the [`FenceQuorum`].

use alloc::vec::Vec;

use windlass_log::{Lsn, MemberId};

use super::super::Engine;
use super::super::tenure::Tenure;
use super::{Accepted, Candidacy, Phase};
use crate::history::begin;
use crate::{Command, Event, FenceQuorum, Token, Undecided};

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
        if begin(&mut self.core.state.history, fence.epoch(), at).is_err() {
            self.core.event(Event::Undecided { epoch: fence.epoch(), reason: Undecided::HistoryFull });
            return self.give_up();
        }
        // The operator's word: what is lacking is given up.
        let gives_up = self.accepted == Accepted::All && self.core.give_up_lost();
        assert!(!self.core.damaged(), "R-18: a member that lacks what it acknowledged does not lead");
        // The chosen log holds all that any member may have vouched for, and of what a fetch has met behind its end nothing.
        self.core.state.memory_lost = false;
        self.core.cut_configurations(at);
        let token = if gives_up { self.core.save_with_cut() } else { self.core.save() };
        self.set_phase(Phase::Save { fence, token });
        self.extend();
        self.say_again();
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
