//! Fence: a quorum promises the candidate's epoch; from then on no older epoch can commit.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use windlass_log::{Epoch, MemberId};

use super::super::Engine;
use super::super::work::Request;
use super::{Candidacy, Phase};
use crate::history::newest;
use crate::{Message, Summary};

impl Engine {
    /// Becomes a candidate for a fresh epoch, without asking for pre-votes.
    pub(in super::super) fn campaign(&mut self) {
        if self.stopped.is_some() || self.tenure.is_some() || self.lacks_some() || !self.may_lead() {
            return;
        }
        self.abandon_candidacy();
        let timing = self.core.config.timing;
        // above anything promised, used or seen; the promise makes it durable before anybody else hears of it.
        let epoch = self.core.epoch_seen.max(self.core.state.promised).next_for(self.core.me());
        assert!(epoch > self.core.state.promised, "R-7: a candidate asks for more than it has promised");
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
        let is_damaged = self.lacks_some();
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.epoch == epoch) else {
            return;
        };
        if is_damaged {
            // found by the scan behind the revocation.
            return self.give_up();
        }
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
        let missing: Vec<MemberId> = self
            .may_promise(&candidacy.promises)
            .into_iter()
            .filter(|peer| !candidacy.promises.contains_key(peer) && self.links.is_up(*peer))
            .collect();
        let configuration = self.core.newest().configuration.number();
        for peer in missing {
            self.core.send(peer, Message::Fence { epoch, configuration });
        }
    }

    /// Whose promises count: the voters of the configurations in force here, and of those in the logs that have answered.
    fn may_promise(&self, promises: &BTreeMap<MemberId, Summary>) -> Vec<MemberId> {
        let known = promises.values().flat_map(|summary| &summary.configurations);
        let mut voters: Vec<MemberId> = known.flat_map(|record| record.configuration.voters()).collect();
        voters.extend(self.core.others());
        voters.sort_unstable();
        voters.dedup();
        voters.retain(|voter| *voter != self.core.me());
        voters
    }

    /// A candidate asks for a promise.
    pub(in super::super) fn fence_asked(&mut self, from: MemberId, epoch: Epoch, configuration: u64) {
        if epoch.member() != from {
            return;
        }
        if !self.obeys(from, configuration) {
            return self.not_a_member(from);
        }
        let promised = self.core.state.promised;
        let is_same = windlass_log::planted!(R7) && epoch.counter() == promised.counter();
        if epoch < promised && !is_same {
            self.core.send(from, Message::Rejected { epoch, promised });
        } else if epoch > promised && !is_same {
            self.ask(Request::Promise { epoch, candidate: from });
        } else if !self.work_in_progress() && self.following.is_none() {
            // Promised before, and nothing granted since: the answer was lost.
            self.answer_promise(epoch, from);
        }
    }

    pub(in super::super) fn promised(&mut self, from: MemberId, epoch: Epoch, summary: Summary) {
        let geometry = self.core.config.geometry;
        let is_sound = !summary.configurations.is_empty()
            && newest(&summary.history) < epoch
            && summary.trimmed <= summary.valid_tail
            && geometry.normalize(summary.valid_tail) == summary.valid_tail
            && crate::history::epoch_before(&summary.history, summary.valid_tail) == summary.last_epoch;
        let Some(candidacy) = self.candidacy.as_ref().filter(|candidacy| candidacy.epoch == epoch) else {
            return;
        };
        if !is_sound
            || candidacy.promises.contains_key(&from)
            || !self.may_promise(&candidacy.promises).contains(&from)
        {
            return;
        }
        let asked = self.may_promise(&candidacy.promises).len();
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.promises.insert(from, summary);
        }
        if let Some(candidacy) = &self.candidacy
            && self.may_promise(&candidacy.promises).len() > asked
        {
            // Its log knows of voters that this member has not heard of.
            self.ask_promises();
        }
        self.count_promises();
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
        if let Some(Candidacy { phase: Phase::Fence, .. }) = &self.candidacy {
            self.collect();
        }
    }
}
