//! Fence: a quorum promises the candidate's epoch; from then on no older epoch can commit.

use windlass_log::{Epoch, MemberId};

use super::super::Engine;
use super::super::work::Request;
use super::{Candidacy, Phase};
use crate::history::newest;
use crate::{FenceQuorum, Message, Summary};

impl Engine {
    /// Becomes a candidate for a fresh epoch, without asking for pre-votes.
    pub(in super::super) fn campaign(&mut self) {
        if self.stopped.is_some() || self.tenure.is_some() || self.core.damaged() {
            return;
        }
        self.abandon_candidacy();
        let timing = self.core.config.timing;
        // above anything promised, used or seen; the promise makes it durable before anybody else hears of it.
        let highest = self.core.epoch_seen.max(self.core.state.promised);
        let is_again =
            windlass_log::planted!(R7) && highest.member() == self.core.me() && highest != Epoch::NONE;
        let epoch = if is_again { highest } else { highest.next_for(self.core.me()) };
        assert!(
            is_again || epoch > self.core.state.promised,
            "R-7: a candidate asks for more than it has promised"
        );
        self.core.epoch_seen = epoch;
        self.candidacy = Some(Candidacy {
            epoch,
            phase: Phase::OwnPromise,
            deadline: self.core.now + 2 * timing.suspicion_ns,
            again_at: self.core.now + timing.retry_ns,
            promises: Default::default(),
            fetch_attempts: 0,
            progress: 0,
        });
        self.ask(Request::Promise { epoch, candidate: self.core.me() });
    }

    pub(in super::super) fn own_promise_made(&mut self, epoch: Epoch) {
        let deadline = self.core.now + 2 * self.core.config.timing.suspicion_ns;
        let summary = self.core.summary();
        let me = self.core.me();
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.epoch == epoch) else {
            return;
        };
        candidacy.promises.insert(me, summary);
        candidacy.phase = Phase::Fence;
        candidacy.deadline = deadline;
        self.ask_promises();
        self.count_promises();
    }

    /// Asks those who have not promised yet.
    pub(super) fn ask_promises(&mut self) {
        let Some(candidacy) = &self.candidacy else { return };
        let epoch = candidacy.epoch;
        let missing: alloc::vec::Vec<MemberId> = self
            .core
            .others()
            .into_iter()
            .filter(|peer| !candidacy.promises.contains_key(peer) && self.links.is_up(*peer))
            .collect();
        for peer in missing {
            self.core.send(peer, Message::Fence { epoch });
        }
    }

    /// A candidate asks for a promise.
    pub(in super::super) fn fence_asked(&mut self, from: MemberId, epoch: Epoch) {
        if epoch.member() != from {
            return;
        }
        let promised = self.core.state.promised;
        if epoch < promised {
            self.core.send(from, Message::Rejected { epoch, promised });
        } else if epoch > promised {
            self.ask(Request::Promise { epoch, candidate: from });
        } else if !self.work_in_progress() && self.following.is_none() {
            // Promised before, and nothing granted since: the answer was lost.
            self.answer_promise(epoch, from);
        }
    }

    pub(in super::super) fn promised(&mut self, from: MemberId, epoch: Epoch, summary: Summary) {
        let geometry = self.core.config.geometry;
        let is_sound = newest(&summary.history) < epoch
            && summary.trimmed <= summary.valid_tail
            && geometry.normalize(summary.valid_tail) == summary.valid_tail
            && crate::history::epoch_before(&summary.history, summary.valid_tail) == summary.last_epoch;
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.epoch == epoch) else {
            return;
        };
        if is_sound && candidacy.promises.insert(from, summary).is_none() {
            self.count_promises();
        }
    }

    /// Somebody has promised more than this member asks for.
    pub(in super::super) fn rejected(&mut self, epoch: Epoch, promised: Epoch) {
        self.core.epoch_seen = self.core.epoch_seen.max(promised);
        self.outbid(promised);
        if self.candidacy.as_ref().is_some_and(|candidacy| candidacy.epoch == epoch && promised > epoch) {
            self.give_up();
        }
    }

    pub(super) fn count_promises(&mut self) {
        let quorum = self.core.config.founding.takeover_quorum() - usize::from(windlass_log::planted!(R20));
        let Some(Candidacy { phase: Phase::Fence, epoch, promises, .. }) = &self.candidacy else { return };
        if promises.len() >= quorum {
            let fence = FenceQuorum::new(*epoch, promises.keys().copied().collect(), quorum);
            self.collect(fence);
        }
    }
}
