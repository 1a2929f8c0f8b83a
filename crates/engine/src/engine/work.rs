//! What must be durable before an answer leaves: promises and adoptions, one at a time, the newest asked for next.
//!
//! ```text
//!  promise   [seal] -> revoke -> flush up to the valid tail -> save (promised) -> Promise
//!  adopt     [seal] -> revoke -> plan -> save or cut (promised, history, mark)  -> grant -> Adopted
//! ```
//!
//! The order is the safety of a takeover: a primary has sealed before it promises (R-16); windows are gone before the log is
//! scanned; what is scanned is flushed before it is reported (R-11); the promise is durable before it is answered (R-5); the
//! history that allows a grant is durable before the grant.

use alloc::boxed::Box;
use alloc::vec::Vec;

use windlass_log::{Epoch, EpochHistory, Lsn, MemberId, RECORD_ALIGN};

use super::Engine;
use super::backup::Following;
use super::core::{Adoption, GivenUp};
use super::takeover::Accepted;
use crate::{Command, ConfigurationRecord, Event, Message, Session, StopReason, Token};

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) enum Request {
    Promise { epoch: Epoch, candidate: MemberId },
    Adopt(Box<Offer>),
}

/// What a primary asks a member to adopt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    pub(super) primary: MemberId,
    pub(super) session: Session,
    pub(super) history: EpochHistory,
    pub(super) tail: Lsn,
    pub(super) trimmed: Lsn,
    pub(super) durable: Lsn,
    pub(super) configurations: Vec<ConfigurationRecord>,
}

impl Request {
    fn epoch(&self) -> Epoch {
        match self {
            Request::Promise { epoch, .. } => *epoch,
            Request::Adopt(offer) => offer.session.epoch,
        }
    }

    /// Orders requests: a tenure's adoptions come after its promise, newer attempts after older.
    fn key(&self) -> (Epoch, u64) {
        match self {
            Request::Promise { epoch, .. } => (*epoch, 0),
            Request::Adopt(offer) => (offer.session.epoch, 1 + u64::from(offer.session.attempt)),
        }
    }
}

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Work {
    request: Request,
    step: Step,
}

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(PartialEq, Eq, Debug)]
enum Step {
    /// The own tenure's seal.
    Seal,
    Revoke(Token),
    /// A flush, own or older, is in flight.
    Flush,
    Save(Token),
    /// The save of a promise to a primary whose log has left this one's behind.
    SaveThenSnapshot(Token),
    Grant(Token),
}

#[cfg(feature = "explore")]
impl Work {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        match &mut self.step {
            Step::Revoke(token) | Step::Save(token) | Step::SaveThenSnapshot(token) | Step::Grant(token) => {
                visit(token);
            }
            Step::Seal | Step::Flush => {}
        }
    }
}

impl Engine {
    /// Takes a request unless an equal or newer one is at work or waiting.
    pub(super) fn ask(&mut self, request: Request) {
        let key = request.key();
        if [self.work.as_ref().map(|work| work.request.key()), self.next.as_ref().map(Request::key)]
            .into_iter()
            .flatten()
            .any(|at_work| at_work >= key)
        {
            return;
        }
        self.next = Some(request);
        // A grant waits for a primary that may be gone: a newer request does not wait for it.
        if self.work.as_ref().is_some_and(|work| matches!(work.step, Step::Grant(_))) {
            self.work = None;
        }
        self.start_next();
    }

    fn start_next(&mut self) {
        if self.work.is_some() {
            return;
        }
        let Some(request) = self.next.take() else { return };
        let epoch = request.epoch();
        if epoch < self.core.state.promised {
            return self.reject_request(&request);
        }
        self.core.epoch_seen = self.core.epoch_seen.max(epoch);
        let is_own = epoch.member() == self.core.me();
        if !is_own {
            self.abandon_candidacy();
            if windlass_log::planted!(R16) && matches!(request, Request::Promise { .. }) {
                self.following = None;
                self.work = Some(Work { request, step: Step::Seal });
                return self.revoke();
            }
            self.step_down(StopReason::HigherEpoch { promised: epoch });
        }
        self.following = None;
        self.resync = None;
        self.work = Some(Work { request, step: Step::Seal });
        if self.sealing.is_none() {
            self.revoke();
        }
    }

    fn reject_request(&mut self, request: &Request) {
        let promised = self.core.state.promised;
        let to = match request {
            Request::Promise { candidate, .. } => *candidate,
            Request::Adopt(offer) => offer.primary,
        };
        if to != self.core.me() {
            self.core.send(to, Message::Rejected { epoch: request.epoch(), promised });
        }
        self.start_next();
    }

    fn revoke(&mut self) {
        let token = self.core.token();
        self.core.push(Command::Revoke { token });
        if let Some(work) = &mut self.work {
            work.step = Step::Revoke(token);
        }
    }

    /// The own tenure's log is sealed, nothing is in flight (R-10, R-16): go on with what waited for it.
    pub(super) fn work_sealed(&mut self) {
        if self.work.as_ref().is_some_and(|work| work.step == Step::Seal) {
            self.revoke();
        }
    }

    pub(super) fn revoked(&mut self, token: Token, valid_tail: Lsn) {
        if self.work.as_ref().is_none_or(|work| work.step != Step::Revoke(token)) {
            return;
        }
        self.core.saw_placed(valid_tail);
        if valid_tail < self.core.log.persisted.0 && self.core.config.replicated_allowed {
            self.core.lose_mark();
        }
        self.core.set_tail(valid_tail);
        // What is whole behind damage was had by this scan, or does not hold.
        self.core.pass_whole();
        self.set_step(Step::Flush);
        self.work_flushed();
    }

    /// No flush is in flight any more, or none was: flush, or go on.
    pub(super) fn work_flushed(&mut self) {
        let Some(Work { request, step: Step::Flush }) = &self.work else { return };
        let must_flush = matches!(request, Request::Promise { .. });
        if must_flush {
            self.core.flush();
        }
        if self.core.log.flush.is_some() || self.core.is_saving_configuration() {
            return;
        }
        match request {
            Request::Promise { epoch, .. } => {
                assert!(
                    self.core.log.persisted.0 == self.core.log.tail,
                    "R-11: a promise over unflushed bytes"
                );
                self.core.state.promised = self.core.state.promised.max(*epoch);
                let token = self.core.save();
                self.set_step(Step::Save(token));
            }
            Request::Adopt(offer) => {
                let offer = offer.clone();
                self.adopt_offer(&offer);
            }
        }
    }

    fn adopt_offer(&mut self, offer: &Offer) {
        let epoch = offer.session.epoch;
        self.core.state.promised = self.core.state.promised.max(epoch);
        match self.core.plan_adoption(&offer.history, offer.tail, offer.trimmed) {
            Adoption::Cut { at, history, mark } => {
                // A primary holds all that is known to be durable, unless an operator has accepted its loss.
                self.core.keep_durable_known(&offer.history, offer.tail, offer.trimmed);
                let token = self.core.adopt(at, history, mark, &offer.configurations);
                self.set_step(Step::Save(token));
            }
            Adoption::NeedsSnapshot => {
                let token = self.core.save();
                self.set_step(Step::SaveThenSnapshot(token));
            }
            Adoption::Contradiction { at } => self.stop(self.core.contradiction(at)),
        }
    }

    pub(super) fn work_saved(&mut self, token: Token) {
        let Some(work) = &self.work else { return };
        match (&work.step, &work.request) {
            (Step::Save(expected), Request::Promise { epoch, candidate }) if *expected == token => {
                let (epoch, candidate) = (*epoch, *candidate);
                self.work = None;
                self.answer_promise(epoch, candidate);
                self.start_next();
            }
            (Step::Save(expected), Request::Adopt(offer)) if *expected == token => {
                let offer = offer.clone();
                self.grant_first(&offer);
            }
            (Step::SaveThenSnapshot(expected), Request::Adopt(offer)) if *expected == token => {
                let offer = offer.clone();
                self.work = None;
                self.need_snapshot(*offer);
                self.start_next();
            }
            _ => {}
        }
    }

    /// Answers a promise that is durable.
    pub(super) fn answer_promise(&mut self, epoch: Epoch, candidate: MemberId) {
        assert!(
            windlass_log::planted!(R7) || self.core.state.promised >= epoch,
            "R-5: a promise answered before it was made"
        );
        assert!(
            windlass_log::planted!(R16) || self.tenure.is_none() && self.following.is_none(),
            "R-16: a promise beside a tenure or a window"
        );
        if candidate == self.core.me() {
            self.own_promise_made(epoch);
        } else {
            let summary = self.core.summary();
            self.core.send(candidate, Message::Promise { epoch, summary });
            self.heard();
        }
    }

    fn grant_first(&mut self, offer: &Offer) {
        assert!(
            self.core.state.promised == offer.session.epoch,
            "a grant to an epoch that is not the promised one"
        );
        let from = self.core.log.tail;
        let up_to = self.grant_limit();
        let token = self.core.token();
        self.core.push(Command::Grant { token, primary: offer.primary, session: offer.session, from, up_to });
        self.set_step(Step::Grant(token));
        self.core.learn(offer.durable, offer.durable);
        self.heard();
    }

    pub(super) fn work_granted(&mut self, token: Token) {
        let Some(Work { request: Request::Adopt(offer), step: Step::Grant(expected) }) = &self.work else {
            return;
        };
        if *expected != token {
            return;
        }
        let offer = offer.clone();
        self.work = None;
        self.accepted = Accepted::Nothing;
        (self.snapshot, self.installed, self.coming) = (None, None, None);
        self.asked_for_newer = false;
        let limit = self.grant_limit();
        self.followed = Some(offer.session);
        self.following = Some(Following::new(&offer, self.core.log.tail, limit));
        self.answer_adopted();
        self.start_next();
    }

    /// The grant that is being made can't be: its connection broke.
    pub(super) fn work_fabric_down(&mut self, session: Session) {
        let is_grant = self.work.as_ref().is_some_and(|work| {
            matches!(&work.request, Request::Adopt(offer) if offer.session == session)
                && matches!(work.step, Step::Grant(_))
        });
        if is_grant {
            self.work = None;
            self.resync = Some((session.epoch.member(), session));
            self.start_next();
        }
    }

    /// The log has turned out damaged. An adoption that was planned for it as it was is given up; whose it was: it is to be offered again.
    pub(super) fn work_damaged(&mut self) -> Option<(MemberId, Session)> {
        let is_planned = |work: &Work| {
            matches!(work.request, Request::Adopt(_)) && matches!(work.step, Step::Save(_) | Step::Grant(_))
        };
        let work = self.work.take_if(|work| is_planned(work))?;
        if self.next.is_some() {
            self.start_next();
            return None;
        }
        match work.request {
            Request::Adopt(offer) => Some((offer.primary, offer.session)),
            Request::Promise { .. } => None,
        }
    }

    fn need_snapshot(&mut self, mut offer: Offer) {
        let given_up = self.core.released_and_given_up(&offer.history);
        if given_up.is_some() {
            // No log begins below what was released here, and where that ended nobody goes on as if nothing had happened: the checkpoint reaches beyond.
            offer.trimmed = offer.trimmed.max(Lsn(self.core.durable.0 + RECORD_ALIGN));
            self.core.give_up_durable_known();
        }
        let (primary, session, from) = (offer.primary, offer.session, offer.trimmed);
        let is_new = self.snapshot.as_ref().is_none_or(|known| known.session.epoch != session.epoch);
        // The newer offer that was asked for is not news before the checkpoint has been held against it.
        let is_judged_next = self.asked_for_newer && self.installed.is_some();
        if is_new && !is_judged_next {
            if let Some(GivenUp { released, expected, found }) = given_up {
                self.core.event(Event::ReleasedGivenUp { primary, released, expected, found });
            }
            self.core.event(offer.snapshot_needed());
        }
        self.snapshot = Some(offer);
        if let Some(coming) = self.coming.filter(|coming| *coming >= from) {
            // Before it hears that this member needs one: it would release everything then.
            self.core.send(primary, Message::Keep { epoch: session.epoch, from: coming });
        }
        let valid_tail = self.core.log.tail;
        self.core.send(primary, Message::SnapshotNeeded { session, valid_tail });
        self.heard();
    }

    pub(super) fn work_in_progress(&self) -> bool {
        self.work.is_some() || self.next.is_some()
    }

    fn set_step(&mut self, step: Step) {
        if let Some(work) = &mut self.work {
            work.step = step;
        }
    }
}
