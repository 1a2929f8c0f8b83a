//! Repair of the candidate's own log: cut what diverges from the chosen log, fetch what is missing, by ranges, verified. If
//! the owner dies first, collect again.

use windlass_log::{Lsn, MemberId};

use super::super::Engine;
use super::{Candidacy, Phase};
use crate::{Command, LsnRange, Message, Session, Token};

impl Engine {
    pub(super) fn cut_saved(&mut self, token: Token) -> bool {
        match self.candidacy.as_ref().map(|candidacy| &candidacy.phase) {
            Some(Phase::Cut { token: expected, .. }) if *expected == token => {}
            Some(_) | None => return false,
        }
        let phase = self.take_phase();
        let Some(Phase::Cut { fence, chosen, .. }) = phase else { return true };
        let attempt = self.candidacy.as_mut().map_or(1, |candidacy| {
            candidacy.fetch_attempts += 1;
            candidacy.fetch_attempts
        });
        let session = Session { epoch: fence.epoch(), attempt };
        let tail = self.core.log.tail;
        self.set_phase(Phase::Fetch { fence, chosen, session, token, asked: tail });
        self.fetch_next();
        true
    }

    /// The phase, with [`Phase::Fence`] left in its place: the caller sets the next one.
    pub(super) fn take_phase(&mut self) -> Option<Phase> {
        self.candidacy.as_mut().map(|candidacy| core::mem::replace(&mut candidacy.phase, Phase::Fence))
    }

    /// Asks for the next range; or all is there.
    fn fetch_next(&mut self) {
        self.extend();
        let most = self.core.config.limits.fetch_bytes;
        let geometry = self.core.config.geometry;
        let Some(Phase::Fetch { fence, chosen, session, asked, .. }) = self.take_phase() else { return };
        let tail = self.core.log.tail;
        if tail >= chosen.tail {
            assert!(tail == chosen.tail, "fetched up to {tail}, the chosen log ends at {}", chosen.tail);
            assert!(
                crate::history::divergence(
                    &self.core.state.history,
                    tail,
                    &chosen.history,
                    chosen.tail,
                    self.core.state.trimmed.max(chosen.trimmed)
                ) == tail,
                "the fetched log is not the chosen one"
            );
            if self.core.newest().configuration.number() != chosen.configuration {
                // Its word was not true: another configuration would have had to promise.
                self.set_phase(Phase::Fetch { fence, chosen, session, token: Token(0), asked });
                return self.fetch_failed_now();
            }
            self.core.push(Command::Disconnect { peer: chosen.member, session });
            return self.flush_before_lead(fence, chosen.configuration);
        }
        // Whole records come to be valid: where the last range ended inside one, reach further.
        let to = geometry.normalize(Lsn((asked.max(tail).0 + most) & !7)).min(chosen.tail);
        let range = LsnRange::new(tail, to);
        let (token, peer) = (self.core.token(), chosen.member);
        self.core.send(peer, Message::FetchRequest { session, range });
        self.core.push(Command::Fetch { token, peer, session, range });
        self.set_phase(Phase::Fetch { fence, chosen, session, token, asked: to });
        let again_at = self.core.now + self.core.config.timing.retry_ns;
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.again_at = again_at;
        }
    }

    fn is_fetching(&self, token: Token) -> bool {
        let phase = self.candidacy.as_ref().map(|candidacy| &candidacy.phase);
        matches!(phase, Some(Phase::Fetch { token: expected, .. }) if *expected == token)
    }

    pub(in super::super) fn fetched(&mut self, token: Token, valid_tail: Lsn) {
        let Some(Candidacy { phase: Phase::Fetch { asked, chosen, .. }, .. }) = &self.candidacy else {
            return;
        };
        if !self.is_fetching(token) {
            return;
        }
        let (asked, end) = (*asked, chosen.tail);
        let tail = self.core.log.tail;
        assert!(
            valid_tail >= tail && valid_tail <= asked,
            "fetched to {valid_tail}, asked for [{tail}, {asked})"
        );
        self.core.log.tail = valid_tail;
        if valid_tail < asked && asked == end {
            // The last range ends on a record end, yet not all of it is valid: the bytes or their owner are bad.
            return self.fetch_failed_now();
        }
        self.fetch_next();
    }

    pub(in super::super) fn fetch_failed(&mut self, token: Token) {
        if self.is_fetching(token) {
            self.fetch_failed_now();
        }
    }

    pub(in super::super) fn candidacy_fabric_down(&mut self, from: MemberId, down: Session) {
        let phase = self.candidacy.as_ref().map(|candidacy| &candidacy.phase);
        if matches!(phase, Some(Phase::Fetch { chosen, session, .. }) if chosen.member == from && *session == down)
        {
            self.fetch_failed_now();
        }
    }

    /// The owner of the chosen log is gone: its promise no longer counts; collect again from those who answer now.
    pub(super) fn fetch_failed_now(&mut self) {
        let Some(Phase::Fetch { chosen, session, .. }) = self.take_phase() else { return };
        self.core.push(Command::Disconnect { peer: chosen.member, session });
        // Of what was fetched only what is whole is in this log; a configuration that was met behind that is of another one's.
        self.core.cut_configurations(self.core.log.tail);
        self.refresh_own_summary();
        let deadline = self.core.now + self.core.config.timing.suspicion_ns;
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.promises.remove(&chosen.member);
            candidacy.deadline = deadline;
        }
        self.ask_promises();
        self.count_promises();
    }

    /// A candidate that this member has promised wants to read its log.
    pub(in super::super) fn fetch_asked(&mut self, from: MemberId, session: Session, range: LsnRange) {
        let promised = self.core.state.promised;
        let is_promised = session.epoch == promised && session.epoch.member() == from;
        let is_quiet = !self.work_in_progress() && self.following.is_none() && self.tenure.is_none();
        if !is_promised {
            return self.core.send(from, Message::Rejected { epoch: session.epoch, promised });
        }
        if is_quiet && range.start >= self.core.state.trimmed && range.end <= self.core.log.tail {
            // Asked again by way of the retry; the driver knows the session already then.
            self.core.push(Command::GrantRead { peer: from, session, range });
            self.heard();
        }
    }
}
