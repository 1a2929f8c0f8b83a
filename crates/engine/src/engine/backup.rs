//! Being backup: notices come in, bytes are parsed, flushed and acknowledged, windows move along with the tail.
//!
//! Nothing is acknowledged as persisted that was not parsed and flushed; watermarks are clamped to the own valid tail.

use windlass_log::{Lsn, MemberId};

use super::Engine;
use super::work::{Offer, Request};
use crate::{Acknowledgement, Command, Heartbeat, Message, Notice, Persisted, Session, Token};

/// The primary that holds this member's windows.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Following {
    pub(super) primary: MemberId,
    pub(super) session: Session,
    /// The end of what notices said has arrived; may lie inside a record.
    arrived: Lsn,
    /// Up to where arrived bytes were looked at.
    looked: Lsn,
    parse: Option<(Token, Lsn)>,
    /// Since when bytes that arrived do not parse.
    behind_since: Option<u64>,
    pub(super) wanted: Lsn,
    consumed: u64,
    granted_to: Lsn,
    ungranted_below: Lsn,
    grant: Option<Token>,
    replicated: Lsn,
    durable: Lsn,
    trimmed: Lsn,
    heartbeat: u64,
    /// The acknowledgement written last, and whether its write is unanswered.
    acknowledged: Option<Acknowledgement>,
    acknowledging: bool,
    /// Once so much is persisted, this member holds everything that it may have vouched for before it lost its memory.
    catch_up_at: Lsn,
    /// The primary is to hear that all below is parsed, as soon as it is: of a batch that reaches into another segment it may not count more than that as placed
    /// (a flush of its own may have overtaken it, which made of the segment before a cold one).
    word_to: Lsn,
    /// The connection broke; the primary makes a new session.
    broken: bool,
}

impl Following {
    pub(super) fn new(offer: &Offer, tail: Lsn, granted_to: Lsn) -> Following {
        Following {
            primary: offer.primary,
            session: offer.session,
            arrived: tail,
            looked: tail,
            parse: None,
            behind_since: None,
            wanted: Lsn(0),
            consumed: 0,
            granted_to,
            ungranted_below: Lsn(0),
            grant: None,
            replicated: offer.durable,
            durable: offer.durable,
            trimmed: offer.trimmed,
            heartbeat: 0,
            acknowledged: None,
            acknowledging: false,
            catch_up_at: offer.tail,
            word_to: Lsn(0),
            broken: false,
        }
    }
}

#[cfg(feature = "explore")]
impl Following {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        if let Some((token, _)) = &mut self.parse {
            visit(token);
        }
        if let Some(token) = &mut self.grant {
            visit(token);
        }
    }
}

impl Engine {
    /// The session's following, if it is the newest and whole.
    fn follows(&mut self, session: Session) -> Option<&mut Following> {
        self.following.as_mut().filter(|following| following.session == session && !following.broken)
    }

    /// The first LSN that stays out of a primary's reach: windows reach `segments_ahead` beyond the tail's segment.
    pub(super) fn grant_limit(&self) -> Lsn {
        let geometry = self.core.config.geometry;
        geometry.base(geometry.segment_of(self.core.log.tail) + 1 + self.core.config.limits.segments_ahead)
    }

    pub(super) fn offered(&mut self, offer: Offer) {
        let session = offer.session;
        if let Some(following) = self.follows(session) {
            if following.consumed == 0 {
                // The answer was lost; nothing has been written since.
                self.answer_adopted();
            }
            return self.heard();
        }
        // Repeated, and late: its tail is that of a moment before this member followed, which says nothing of what it has acknowledged since.
        if self.followed.is_some_and(|followed| followed >= session) {
            return;
        }
        self.heard();
        self.ask(Request::Adopt(offer.into()));
    }

    pub(super) fn answer_adopted(&mut self) {
        let Some(following) = &self.following else { return };
        let (primary, session) = (following.primary, following.session);
        let (valid_tail, persisted) = (self.core.log.tail, self.core.log.persisted);
        assert!(
            self.core.state.promised == session.epoch,
            "adopted by an epoch that is not the promised one"
        );
        self.core.send(primary, Message::Adopted { session, valid_tail, persisted });
    }

    pub(super) fn notice(&mut self, session: Session, notice: Option<Notice>) {
        let Some(following) = self.follows(session) else { return };
        following.consumed += 1;
        if let Some(notice) = notice.filter(|notice| notice.session == session) {
            following.arrived = following.arrived.max(notice.tail);
            following.wanted = following.wanted.max(notice.wanted);
            following.replicated = following.replicated.max(notice.replicated);
            following.durable = following.durable.max(notice.durable);
            self.heard();
        }
    }

    pub(super) fn heartbeat(&mut self, heartbeat: Heartbeat) {
        let stall_ns = self.core.config.timing.stall_ns;
        let Some(following) = self.follows(heartbeat.session) else { return };
        if heartbeat.sequence <= following.heartbeat {
            return;
        }
        following.heartbeat = heartbeat.sequence;
        following.replicated = following.replicated.max(heartbeat.replicated);
        following.durable = following.durable.max(heartbeat.durable);
        following.trimmed = following.trimmed.max(heartbeat.trimmed);
        // pending work that does not move is silence, however regular the beats.
        if heartbeat.pending_ns < stall_ns || windlass_log::planted!(R15) {
            self.heard();
        }
    }

    pub(super) fn parsed(&mut self, token: Token, valid_tail: Lsn) {
        let now = self.core.now;
        let tail = self.core.log.tail;
        let geometry = self.core.config.geometry;
        let Some(following) = &mut self.following else { return };
        let Some((_, to)) = following.parse.filter(|(expected, _)| *expected == token) else { return };
        following.parse = None;
        following.looked = to;
        if valid_tail > tail {
            if geometry.segment_of(valid_tail) > geometry.segment_of(tail) {
                following.word_to = to;
            }
            self.core.log.tail = valid_tail;
            following.behind_since = None;
        }
        if self.core.log.tail < following.arrived {
            following.behind_since = following.behind_since.or(Some(now));
        }
    }

    /// The log has been filled up to whole records behind damage. What comes over them in this session is looked at when the notice says so, as ever; they
    /// are taken as they are only where nobody can write any more: by the scan between the end of this session and the windows of the next
    /// ([`Command::Revoke`]). Where that would save no more than a batch the primary goes on instead.
    fn reach_whole(&mut self) {
        let batch_bytes = self.core.config.limits.batch_bytes;
        let Some(following) = self.following.as_mut().filter(|following| following.parse.is_none()) else {
            return;
        };
        let Some(most) = self.core.whole_behind_most(following.catch_up_at) else { return };
        if windlass_log::planted!(BehindOpen) {
            let (token, tail) = (self.core.token(), self.core.log.tail);
            following.parse = Some((token, tail));
            self.core.push(Command::Parse { token, to: Lsn(tail.0 + (4 << 20)) });
            return self.core.pass_whole();
        }
        if most <= batch_bytes {
            return self.core.pass_whole();
        }
        following.broken = true;
        self.resync = Some((following.primary, following.session));
        self.send_resync();
    }

    pub(super) fn acknowledge_done(&mut self, session: Session) {
        if let Some(following) = self.follows(session) {
            following.acknowledging = false;
        }
    }

    pub(super) fn grant_done(&mut self, token: Token) {
        self.work_granted(token);
        if let Some(following) = &mut self.following
            && following.grant == Some(token)
        {
            following.grant = None;
        }
    }

    /// The primary's connection is gone on this side: tell it, so that it makes another.
    pub(super) fn backup_fabric_down(&mut self, session: Session) {
        self.work_fabric_down(session);
        if let Some(following) = self.follows(session) {
            following.broken = true;
            self.resync = Some((following.primary, session));
        }
    }

    /// The end of everything that an input may have changed for a backup.
    pub(super) fn pump_backup(&mut self) {
        let broken = self.following.as_ref().is_none_or(|following| following.broken);
        if !broken {
            self.reach_whole();
            self.parse_arrived();
            self.move_windows();
        }
        if self.following.is_some() {
            self.catch_up();
            self.publish_learned();
        }
        if !broken {
            self.acknowledge();
        }
    }

    fn parse_arrived(&mut self) {
        let resync_after = self.core.config.timing.suspicion_ns / 2;
        let now = self.core.now;
        let Some(following) = &mut self.following else { return };
        if following.parse.is_none() && following.arrived > following.looked {
            let (token, to) = (self.core.token(), following.arrived);
            following.parse = Some((token, to));
            self.core.push(Command::Parse { token, to });
        }
        // Bytes that never come to parse were misplaced on their way: have them sent again.
        if following.behind_since.is_some_and(|since| now >= since + resync_after) {
            following.broken = true;
            self.resync = Some((following.primary, following.session));
        }
    }

    fn move_windows(&mut self) {
        let geometry = self.core.config.geometry;
        let up_to = self.grant_limit();
        let Some(following) = &mut self.following else { return };
        if following.grant.is_none() && up_to > following.granted_to {
            let token = self.core.token();
            let from = following.granted_to;
            following.granted_to = up_to;
            following.grant = Some(token);
            let (primary, session) = (following.primary, following.session);
            self.core.push(Command::Grant { token, primary, session, from, up_to });
        }
        let below = geometry.base(geometry.segment_of(self.core.log.persisted.0));
        if below > following.ungranted_below {
            following.ungranted_below = below;
            self.core.push(Command::Ungrant { session: following.session, below });
        }
    }

    /// Caught up once everything that the primary held at the adoption is persisted here: it has all that is committed.
    fn catch_up(&mut self) {
        let Some(following) = &self.following else { return };
        if self.core.log.persisted >= Persisted(following.catch_up_at) {
            self.core.caught_up();
        }
    }

    fn publish_learned(&mut self) {
        let Some(following) = &self.following else { return };
        let (replicated, durable, trimmed) = (following.replicated, following.durable, following.trimmed);
        self.core.learn(replicated, durable);
        let wanted = self.trim_wanted.map_or(trimmed, |here| here.min(trimmed));
        let to = wanted.min(self.core.durable).min(self.core.log.persisted.0);
        self.core.trim(to);
    }

    fn acknowledge(&mut self) {
        let slots = u64::from(self.core.config.limits.notice_slots);
        let Some(following) = &mut self.following else { return };
        if following.acknowledging {
            return;
        }
        // Nothing counts in a session beyond what its notices have told of.
        let arrived = following.arrived;
        let now = Acknowledgement {
            session: following.session,
            sequence: following.acknowledged.map_or(1, |last| last.sequence + 1),
            consumed: following.consumed,
            valid_tail: self.core.log.tail.min(arrived),
            persisted: self.core.log.persisted.min(Persisted(arrived)),
            heartbeat: following.heartbeat,
        };
        assert!(now.persisted.0 <= now.valid_tail, "persisted is acknowledged only for what was parsed");
        // Credits alone are given back in bulk, so that the persisted LSN never waits behind them.
        let is_due = following.acknowledged.is_none_or(|last| {
            now.persisted != last.persisted
                || now.valid_tail > last.valid_tail && last.valid_tail < following.word_to
                || now.heartbeat != last.heartbeat
                || now.consumed - last.consumed >= (slots / 2).max(1)
        });
        if is_due {
            following.acknowledged = Some(now);
            following.acknowledging = true;
            let primary = following.primary;
            self.core.push(Command::Acknowledge { primary, acknowledgement: now });
        }
    }

    /// Asks the primary for another session, now and again until it makes one.
    pub(super) fn send_resync(&mut self) {
        if let Some((primary, session)) = self.resync {
            self.core.send(primary, Message::Resync { session });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::tests::opening;
    use super::*;
    use alloc::vec::Vec;
    use windlass_log::{Epoch, EpochHistory};

    #[test]
    fn each_acknowledgement_has_the_next_number() {
        let (config, opening) = opening(false, 6000, 6000, &[]);
        let mut engine = Engine::new(config, opening, 0);
        let session = Session { epoch: Epoch::new(1, MemberId(1)), attempt: 1 };
        let offer = Offer {
            primary: MemberId(1),
            session,
            history: EpochHistory::new(),
            tail: Lsn(6000),
            trimmed: Lsn(4096),
            durable: Lsn(6000),
            configurations: Vec::new(),
        };
        engine.following = Some(Following::new(&offer, Lsn(6000), Lsn(65536)));
        let mut numbers = Vec::new();
        for heartbeat in 0..3 {
            engine.following.as_mut().unwrap().heartbeat = heartbeat;
            engine.acknowledge();
            engine.acknowledge_done(session);
            while let Some(command) = engine.poll_command() {
                if let Command::Acknowledge { acknowledgement, .. } = command {
                    numbers.push(acknowledgement.sequence);
                }
            }
        }
        assert_eq!(numbers, [1, 2, 3]);
    }

    /// Seed 3354: of what was durable in the group a part only was flushed here.
    #[test]
    fn a_member_is_whole_again_only_with_all_that_it_has_published_as_durable_r18() {
        let (config, opening) = opening(false, 6000, 6000, &[]);
        let mut engine = Engine::new(config, opening, 0);
        let core = &mut engine.core;
        core.log.tail = Lsn(7000);
        core.learn(Lsn(7000), Lsn(7000));
        core.found_damage(Lsn(5000));
        core.set_tail(Lsn(7000));
        core.adopt(Lsn(5000), core.state.history.clone(), Persisted(Lsn(6000)), &[]);
        let mut is_damaged = |tail, persisted| {
            (engine.core.log.tail, engine.core.log.persisted) = (Lsn(tail), Persisted(Lsn(persisted)));
            engine.core.check();
            engine.status().damaged
        };
        assert!(is_damaged(5000, 5000) && is_damaged(7000, 5000));
        // All that it has vouched for is here.
        assert!(is_damaged(6500, 6000) && is_damaged(6999, 6999));
        assert!(!is_damaged(7000, 6500));
    }
}
