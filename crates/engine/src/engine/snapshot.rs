//! A backup whose missing range is released everywhere: the application's checkpoint stands for it, the log starts again.

use windlass_log::{Epoch, EpochHistory, Lsn, MemberId};

use super::Engine;
use super::Status;
use super::work::Offer;
use crate::history::{epoch_before, trim};
use crate::{Command, Event, Message, Persisted, Session, Token};

/// Whether a member's log waits for a checkpoint of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotState {
    /// It does not.
    None,
    /// It does.
    Needed {
        /// The session in which the primary offered what is not enough.
        session: Session,
    },
    /// One is installed, and the log is about to start again behind it.
    Installing,
}

/// What a checkpoint must keep to be of use to a member that needs one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotNeed {
    /// Who has released what this member lacks.
    pub primary: MemberId,
    /// The session in which it offered the rest.
    pub session: Session,
    /// The checkpoint must reach at least here ([`Event::SnapshotNeeded`]).
    pub from: Lsn,
    /// The primary's tail at that time.
    pub tail: Lsn,
    /// The primary's history.
    pub history: EpochHistory,
}

impl SnapshotNeed {
    /// The epoch of the byte just before `at` in the primary's log; `None` where that is not known: below its trim point, or beyond its tail of that time.
    #[must_use]
    pub fn epoch_below(&self, at: Lsn) -> Option<Epoch> {
        (self.from..=self.tail).contains(&at).then(|| epoch_before(&self.history, at))
    }

    /// The epoch that the byte just before `at` has in the primary's log where it can't be `found`; `None` where it is, or may be. Beyond its tail of that time the primary appends
    /// in its own epoch, and who comes after it in a later one.
    #[must_use]
    pub fn other_line(&self, at: Lsn, found: Epoch) -> Option<Epoch> {
        if at > self.tail {
            return Some(self.session.epoch).filter(|own| found < *own);
        }
        self.epoch_below(at).filter(|expected| *expected != found)
    }
}

/// The log starts again, once the store has done it.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Reset {
    pub(super) token: Token,
    /// Where this member is seen to stand until then: the positions are those of the new log already.
    pub(super) before: Status,
}

impl Offer {
    /// What the application is told of it when it is not enough.
    pub(super) fn snapshot_needed(&self) -> Event {
        let epoch = epoch_before(&self.history, self.trimmed);
        Event::SnapshotNeeded { primary: self.primary, from: self.trimmed, epoch }
    }
}

impl Engine {
    /// The application's word. Where no record can start no log begins; nor, once it is used, behind what is of another line than the primary's log.
    pub(super) fn snapshot_installed(&mut self, at: Lsn, epoch: Epoch) {
        if self.core.config.geometry.is_position(at) {
            if self.installed.is_none_or(|(held, _)| at >= held) {
                self.installed = Some((at, epoch));
            }
        } else if let Some(offer) = &self.snapshot {
            self.core.event(offer.snapshot_needed());
        }
    }

    /// A checkpoint is on its way: the primary keeps what comes behind it.
    pub(super) fn snapshot_coming(&mut self, at: Lsn) {
        if self.snapshot.is_some() || self.installed.is_some() {
            self.coming = Some(at);
        }
        if let Some(offer) = &self.snapshot {
            let (primary, epoch) = (offer.primary, offer.session.epoch);
            self.core.send(primary, Message::Keep { epoch, from: at });
        }
    }

    /// Whether this member's log waits for a checkpoint of the application.
    #[must_use]
    pub fn snapshot_state(&self) -> SnapshotState {
        let is_used = self.installed.is_some() && (self.snapshot.is_some() || self.asked_for_newer);
        match &self.snapshot {
            _ if self.reset.is_some() || is_used => SnapshotState::Installing,
            Some(offer) => SnapshotState::Needed { session: offer.session },
            None => SnapshotState::None,
        }
    }

    /// What a checkpoint must keep to be of use here; `None` where none is needed.
    #[must_use]
    pub fn snapshot_need(&self) -> Option<SnapshotNeed> {
        let offer = self.snapshot.as_ref()?;
        let (primary, session, history) = (offer.primary, offer.session, offer.history.clone());
        Some(SnapshotNeed { primary, session, from: offer.trimmed, tail: offer.tail, history })
    }

    /// Starts the log again at the checkpoint, once nothing else is being made durable: the input is kept until then.
    pub(super) fn pump_snapshot(&mut self) {
        let is_leading = self.tenure.is_some() || self.sealing.is_some() || self.candidacy.is_some();
        if self.work_in_progress() || self.reset.is_some() || is_leading {
            return;
        }
        let Some(offer) = &self.snapshot else { return };
        let Some((at, found)) = self.installed.take() else { return };
        let (primary, from) = (offer.primary, offer.trimmed);
        let is_newer = at > offer.tail;
        if is_newer && !self.asked_for_newer {
            // A checkpoint is taken after the offer was made, as a rule: ask once for one that knows of it.
            let session = offer.session;
            self.asked_for_newer = true;
            self.installed = Some((at, found));
            self.snapshot = None;
            self.resync = Some((primary, session));
            return self.send_resync();
        }
        self.asked_for_newer = false;
        if at < from || is_newer {
            return self.core.event(offer.snapshot_needed());
        }
        let expected = epoch_before(&offer.history, at);
        if found != expected {
            // The application holds what the group has given up, and not what it has: no log that begins there mends that.
            self.core.event(Event::SnapshotOtherLine { primary, at, expected, found });
            return self.core.event(offer.snapshot_needed());
        }
        let (mut history, configurations) = (offer.history.clone(), offer.configurations.clone());
        // Nothing that was acknowledged lies beyond, unless it was damaged.
        let mark = self.core.mark_behind(&history, offer.tail, from, at);
        self.core.keep_lost_configuration(at, &history, mark);
        trim(&mut history, at);
        let before = self.status();
        let core = &mut self.core;
        core.state.mark = mark;
        core.state.history = history;
        core.state.trimmed = at;
        // Those behind the checkpoint come again with the log; until then the first holds, which is committed.
        (core.state.configurations, core.unsaved) = (configurations, None);
        core.cut_configurations(at);
        core.damage = None;
        core.whole_behind.clear();
        core.witnessed.clear();
        core.log.flush = None;
        core.log.tail = at;
        core.log.persisted = Persisted(at);
        core.durable = core.durable.max(at);
        core.durable_known = core.durable_known.max(at);
        core.replicated = core.durable;
        if core.durable > at {
            core.set_tail(at);
        }
        let (token, state) = (core.token(), core.saved_state());
        core.push(Command::Reset { token, at, state });
        self.reset = Some(Reset { token, before });
    }

    pub(super) fn reset_saved(&mut self, token: Token) {
        if self.reset.as_ref().is_some_and(|reset| reset.token == token) {
            (self.reset, self.coming) = (None, None);
            let (replicated, durable) = (self.core.replicated, self.core.durable);
            self.core.push(Command::Learned { replicated, durable });
            if let Some(offer) = self.snapshot.take() {
                self.resync = Some((offer.primary, offer.session));
                self.send_resync();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::tests::{opening, records};
    use super::*;
    use crate::history::tests::epoch;

    /// Of a primary whose log goes from 5000 to 9000, from 6000 on in epoch 2.
    fn offer() -> Offer {
        let mut history = EpochHistory::new();
        history.extend(epoch(1), Lsn(4096)).unwrap();
        history.extend(epoch(2), Lsn(6000)).unwrap();
        Offer {
            primary: MemberId(1),
            session: Session { epoch: epoch(2), attempt: 3 },
            history,
            tail: Lsn(9000),
            trimmed: Lsn(5000),
            durable: Lsn(8000),
            configurations: alloc::vec::Vec::new(),
        }
    }

    fn engine() -> Engine {
        let (config, opening) = opening(false, 4500, 4500, &[]);
        Engine::new(config, opening, 0)
    }

    #[test]
    fn what_a_checkpoint_must_keep_is_told_while_one_is_needed() {
        let mut engine = engine();
        assert_eq!(engine.snapshot_need(), None);
        engine.snapshot = Some(offer());
        let need = engine.snapshot_need().unwrap();
        assert_eq!((need.primary, need.from, need.tail), (MemberId(1), Lsn(5000), Lsn(9000)));
        assert_eq!(need.epoch_below(Lsn(4992)), None);
        assert_eq!(need.epoch_below(Lsn(5000)), Some(epoch(1)));
        assert_eq!(need.epoch_below(Lsn(6000)), Some(epoch(1)), "the byte before");
        assert_eq!(need.epoch_below(Lsn(9000)), Some(epoch(2)));
        assert_eq!(need.epoch_below(Lsn(9008)), None);
    }

    #[test]
    fn what_can_not_be_in_the_primarys_log_is_told_by_its_epoch_kind_52() {
        let mut engine = engine();
        engine.snapshot = Some(offer());
        let need = engine.snapshot_need().unwrap();
        assert_eq!(need.other_line(Lsn(6000), epoch(1)), None);
        assert_eq!(need.other_line(Lsn(6000), epoch(2)), Some(epoch(1)));
        assert_eq!(need.other_line(Lsn(9000), epoch(2)), None);
        assert_eq!(need.other_line(Lsn(9000), epoch(1)), Some(epoch(2)));
        assert_eq!(need.other_line(Lsn(9000), epoch(3)), Some(epoch(2)), "its tail is the primary's own");
        // Beyond the tail of the offer.
        assert_eq!(
            need.other_line(Lsn(9008), epoch(1)),
            Some(epoch(2)),
            "nothing of it comes there any more"
        );
        assert_eq!(need.other_line(Lsn(9008), epoch(2)), None);
        assert_eq!(need.other_line(Lsn(9008), epoch(3)), None, "of a later primary");
        assert_eq!(need.other_line(Lsn(4992), epoch(3)), None, "released");
    }

    #[test]
    fn whether_a_checkpoint_is_waited_for_is_told() {
        let mut engine = engine();
        assert_eq!(engine.snapshot_state(), SnapshotState::None);
        engine.installed = Some((Lsn(6000), epoch(1)));
        assert_eq!(engine.snapshot_state(), SnapshotState::None, "nobody asked for it yet");
        engine.asked_for_newer = true;
        assert_eq!(engine.snapshot_state(), SnapshotState::Installing);
        engine.asked_for_newer = false;
        engine.snapshot = Some(offer());
        assert_eq!(engine.snapshot_state(), SnapshotState::Installing);
        engine.installed = None;
        assert_eq!(engine.snapshot_state(), SnapshotState::Needed { session: offer().session });
        engine.snapshot = None;
        let before = engine.status();
        engine.reset = Some(Reset { token: Token(1), before });
        assert_eq!(engine.snapshot_state(), SnapshotState::Installing);
    }

    #[test]
    fn a_damaged_member_is_damaged_until_its_log_starts_at_the_checkpoint_r18() {
        let (config, opening) = opening(false, 4500, 4700, &[]);
        let mut engine = Engine::new(config, opening, 0);
        engine.snapshot = Some(Offer { configurations: records(4496).to_vec(), ..offer() });
        engine.installed = Some((Lsn(5504), epoch(1)));
        engine.core.state.promised = epoch(2);
        engine.pump_snapshot();
        let token = engine.reset.as_ref().unwrap().token;
        assert!(!engine.core.damaged() && engine.status().damaged);
        engine.handle_input(0, crate::Input::Saved { token });
        assert!(!engine.status().damaged);
    }

    #[test]
    fn what_was_published_stays_so_behind_a_checkpoint_that_ends_below() {
        let (config, opening) = opening(false, 6000, 6000, &[]);
        let mut engine = Engine::new(config, opening, 0);
        engine.core.learn(Lsn(6000), Lsn(6000));
        engine.snapshot = Some(offer());
        engine.installed = Some((Lsn(5504), epoch(1)));
        engine.core.state.promised = epoch(2);
        engine.pump_snapshot();
        assert_eq!((engine.core.log.tail, engine.core.durable), (Lsn(5504), Lsn(6000)));
        engine.core.learn(Lsn(6000), Lsn(6000));
    }
}
