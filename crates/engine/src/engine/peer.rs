//! How far one peer has come, seen by its primary: `persisted ≤ placed ≤ posted`, and credits.

use alloc::collections::VecDeque;

use windlass_log::{Epoch, Lsn};

use crate::{Acknowledgement, LsnRange, PeerStatus, Persisted, Placed, Session, StallCause};

/// Heartbeats whose time of sending is remembered.
const BEATS_MAX: usize = 64;

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) phase: Phase,
    /// The newest session; attempt 0 before the first.
    pub(super) session: Session,
    /// Written to no further: a segment's base.
    pub(super) granted_to: Lsn,
    posted: Lsn,
    placed: Placed,
    persisted: Persisted,
    /// What completions say is placed.
    completed: Placed,
    /// What the peer itself says that it has parsed.
    parsed: Lsn,
    /// What may have been read from cold segments ends here. It may have rotted after it was checked and before the device read it, so that it
    /// counts as placed, and what lies behind it, only once the peer has parsed it.
    cold_to: Lsn,
    /// The ends of batches whose placement is not known yet, oldest first.
    in_flight: VecDeque<Lsn>,
    notices_posted: u64,
    notices_consumed: u64,
    /// What the last notice said is wanted on the medium.
    pub(super) wanted_said: Lsn,
    /// When it last got on, and whether an empty notice is due because it does not: it may not have been able to read the
    /// last one.
    pub(super) moved_at: u64,
    pub(super) nudge: bool,
    /// When the newest thing that the peer has answered was sent: the moment from which it was surely alive.
    pub(super) heard_at: u64,
    /// When its session began to stream: what it did not answer before says nothing of that.
    adopted_at: u64,
    beats: VecDeque<(u64, u64)>,
    /// Since when nothing is in flight and no credit is left: those that the peer has used it gives back.
    starved_since: Option<u64>,
    /// What a batch waits for, and since when.
    stall: Option<(StallCause, u64)>,
    pub(super) status: PeerStatus,
    /// It has left the group: until when it is written to, for it to learn that.
    pub(super) leaves_at: Option<u64>,
    /// What it has, as it last said, which it may hold for retention. `None` before the first session.
    pub(super) known: Option<Persisted>,
    /// The highest acknowledgement of persistence in this tenure, whatever it has lost since.
    pub(super) acknowledged: Option<Persisted>,
    /// Where the log is to go on behind the checkpoint that is on its way to it, and until when it is kept for that.
    pub(super) keeps: Option<(Lsn, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No session; one is tried from this time on.
    Away { retry_at: u64 },
    /// Offered; said again from this time on.
    Adopting { again_at: u64 },
    /// Windows granted and history adopted: takes batches.
    Streaming,
    /// Needs the application's checkpoint; asked again from this time on.
    NeedsSnapshot { again_at: u64 },
}

impl Peer {
    pub(super) fn new(epoch: Epoch, now: u64) -> Peer {
        Peer {
            phase: Phase::Away { retry_at: now },
            session: Session { epoch, attempt: 0 },
            granted_to: Lsn(0),
            posted: Lsn(0),
            placed: Placed(Lsn(0)),
            persisted: Persisted(Lsn(0)),
            completed: Placed(Lsn(0)),
            parsed: Lsn(0),
            cold_to: Lsn(0),
            in_flight: VecDeque::new(),
            notices_posted: 0,
            notices_consumed: 0,
            wanted_said: Lsn(0),
            moved_at: now,
            nudge: false,
            heard_at: now,
            adopted_at: now,
            beats: VecDeque::new(),
            starved_since: None,
            stall: None,
            status: PeerStatus::Away,
            leaves_at: None,
            known: None,
            acknowledged: None,
            keeps: None,
        }
    }

    /// Adopted, and the windows' keys are here.
    pub(super) fn is_streaming(&self) -> bool {
        self.phase == Phase::Streaming && self.granted_to > Lsn(0)
    }

    /// Whether its session has a connection.
    pub(super) fn has_connection(&self) -> bool {
        self.session.attempt > 0 && matches!(self.phase, Phase::Adopting { .. } | Phase::Streaming)
    }

    pub(super) fn posted(&self) -> Lsn {
        self.posted
    }

    /// Counts for `replicated` only while the peer's word for it stands.
    pub(super) fn placed(&self) -> Placed {
        self.placed
    }

    pub(super) fn persisted(&self) -> Persisted {
        self.persisted
    }

    /// The next session; everything of the old one is forgotten, what it placed included.
    pub(super) fn next_session(&mut self, again_at: u64) -> Session {
        self.session.attempt += 1;
        self.phase = Phase::Adopting { again_at };
        self.granted_to = Lsn(0);
        self.posted = Lsn(0);
        self.placed = Placed(Lsn(0));
        self.persisted = Persisted(Lsn(0));
        self.completed = Placed(Lsn(0));
        (self.parsed, self.cold_to) = (Lsn(0), Lsn(0));
        self.in_flight.clear();
        (self.notices_posted, self.notices_consumed) = (0, 0);
        self.starved_since = None;
        self.wanted_said = Lsn(0);
        self.beats.clear();
        self.session
    }

    /// The peer has adopted: batches go on from here.
    pub(super) fn adopted(&mut self, valid_tail: Lsn, persisted: Persisted, now: u64) {
        self.phase = Phase::Streaming;
        self.adopted_at = now;
        self.moved_at = now;
        self.posted = valid_tail;
        self.placed = Placed(valid_tail);
        (self.completed, self.parsed) = (self.placed, valid_tail);
        self.persisted = persisted.min(Persisted(valid_tail));
        self.known = Some(self.persisted);
        self.acknowledged = self.acknowledged.max(self.known);
        self.wanted_said = self.persisted.0;
        self.check();
    }

    pub(super) fn batches_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Slots of the notice ring that may be written.
    pub(super) fn credits(&self, slots: u64) -> u64 {
        if windlass_log::planted!(R13) {
            return slots;
        }
        slots - (self.notices_posted - self.notices_consumed)
    }

    /// Notes what a batch waits for now, if for anything. Answers a wait that is over: for what, and how long it was.
    pub(super) fn stalls(&mut self, now: u64, cause: Option<StallCause>) -> Option<(StallCause, u64)> {
        match (self.stall, cause) {
            (None, Some(cause)) => self.stall = Some((cause, now)),
            (Some((cause, since)), None) => {
                self.stall = None;
                return Some((cause, now.saturating_sub(since)));
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        None
    }

    /// A batch goes out. Its notice's sequence number; its slot is that modulo the number of slots.
    pub(super) fn post(&mut self, range: LsnRange, slots: u64) -> u64 {
        assert!(self.is_streaming() && self.credits(slots) > 0, "R-13: a notice without a credit");
        assert!(range.start == self.posted, "a batch from {}, posted is {}", range.start, self.posted);
        self.nudge = false;
        self.posted = range.end;
        self.in_flight.push_back(range.end);
        self.notices_posted += 1;
        self.check();
        self.notices_posted - 1
    }

    /// The oldest batch in flight was placed. Below `cold_end` nothing is written any more.
    ///
    /// # Panics
    ///
    /// If it was not: the driver completes requests of one connection in order.
    pub(super) fn batch_placed(&mut self, to: Placed, cold_end: Lsn) {
        let front = self.in_flight.pop_front();
        assert!(front == Some(to.0), "placed {} while {front:?} is the oldest batch in flight", to.0);
        // Batches follow each other: this one began where the one before it ended. Looked at now and not when it went out: what was written only then
        // may have become cold before the device read it.
        if self.completed.0 < cold_end.min(to.0) {
            self.cold_to = to.0;
        }
        self.completed = self.completed.max(to);
        self.count_completed();
        self.check();
    }

    /// A completion is the device's word, which counts for what was just written.
    fn count_completed(&mut self) {
        if self.parsed >= self.cold_to || windlass_log::planted!(ColdPlaced) {
            self.placed = self.placed.max(self.completed);
        }
    }

    /// The peer's own word. `false` if it can't be true: the peer is broken, or not the one it was.
    pub(super) fn acknowledged(&mut self, word: &Acknowledgement, now: u64) -> bool {
        let plausible = word.consumed <= self.notices_posted
            && word.consumed >= self.notices_consumed
            && word.valid_tail <= self.posted
            && word.persisted.0 <= word.valid_tail;
        if !plausible {
            return false;
        }
        if word.persisted > self.persisted {
            self.moved_at = now;
        }
        self.notices_consumed = word.consumed;
        // What the peer itself has parsed is in its memory, whether or not this side has polled the completion yet.
        self.placed = self.placed.max(Placed(word.valid_tail));
        self.parsed = self.parsed.max(word.valid_tail);
        self.count_completed();
        self.persisted = self.persisted.max(word.persisted);
        self.known = self.known.max(Some(self.persisted));
        self.acknowledged = self.acknowledged.max(self.known);
        if let Some((_, sent_at)) = self.beats.iter().find(|(sequence, _)| *sequence == word.heartbeat) {
            self.heard_at = self.heard_at.max(*sent_at);
        }
        self.check();
        true
    }

    /// An idle peer that has been sent more than it has persisted, for longer than `after_ns`, is told again.
    pub(super) fn nudge_after(&mut self, after_ns: u64, now: u64) {
        let is_stuck = self.in_flight.is_empty() && self.persisted.0 < self.posted;
        if is_stuck && now >= self.moved_at + after_ns {
            self.nudge = true;
            self.moved_at = now;
        }
    }

    pub(super) fn beat(&mut self, sequence: u64, now: u64) {
        if self.beats.len() == BEATS_MAX {
            self.beats.pop_front();
        }
        self.beats.push_back((sequence, now));
    }

    pub(super) fn beat_answered(&mut self, sequence: u64) {
        if let Some((_, sent_at)) = self.beats.iter().find(|(sent, _)| *sent == sequence) {
            self.heard_at = self.heard_at.max(*sent_at);
        }
    }

    /// Whether the peer has taken no notice for so long that it never will: it heard of fewer than arrived, where completions are lost.
    pub(super) fn is_starved(&mut self, slots: u64, after_ns: u64, now: u64) -> bool {
        if !self.is_streaming() || !self.in_flight.is_empty() || self.credits(slots) > 0 {
            self.starved_since = None;
            return false;
        }
        now >= self.starved_since.get_or_insert(now).saturating_add(after_ns)
    }

    /// Whether it streams and hangs: adopted for so long, and either silent or still without keys.
    pub(super) fn is_hung(&self, after_ns: u64, now: u64) -> bool {
        let is_silent = now >= self.heard_at.max(self.adopted_at).saturating_add(after_ns);
        let no_keys = !self.is_streaming() && now >= self.moved_at.saturating_add(after_ns);
        self.phase == Phase::Streaming && (is_silent || no_keys)
    }

    /// I-1: for each peer `persisted ≤ placed ≤ posted`.
    fn check(&self) {
        assert!(
            self.persisted.0 <= self.placed.0,
            "I-1: persisted {} beyond {}",
            self.persisted.0,
            self.placed
        );
        assert!(self.placed.0 <= self.posted, "I-1: {} beyond posted {}", self.placed, self.posted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::MemberId;

    const SLOTS: u64 = 2;

    /// A peer that took the primary's log up at 5000, at time 100, having flushed up to 4800.
    fn peer() -> Peer {
        let mut peer = Peer::new(Epoch::new(1, MemberId(0)), 0);
        peer.next_session(0);
        peer.adopted(Lsn(5000), Persisted(Lsn(4800)), 100);
        peer.granted_to = Lsn(65536);
        peer
    }

    fn post(peer: &mut Peer, end: u64) -> u64 {
        peer.post(LsnRange::new(peer.posted(), Lsn(end)), SLOTS)
    }

    fn word(peer: &Peer, consumed: u64, valid_tail: u64, persisted: u64) -> Acknowledgement {
        let (valid_tail, persisted) = (Lsn(valid_tail), Persisted(Lsn(persisted)));
        Acknowledgement { session: peer.session, sequence: 1, consumed, valid_tail, persisted, heartbeat: 0 }
    }

    #[test]
    fn a_word_that_can_not_be_true_counts_nothing() {
        let mut peer = peer();
        assert_eq!((post(&mut peer, 5200), post(&mut peer, 5400)), (0, 1));
        assert!(peer.acknowledged(&word(&peer, 1, 5200, 5000), 200));
        for (consumed, valid_tail, persisted) in [
            (3, 5200, 5000), // More notices than were posted.
            (0, 5200, 5000), // Fewer than before.
            (1, 5440, 5000), // More than was sent.
            (1, 5200, 5240), // More on its medium than it has parsed.
        ] {
            let word = word(&peer, consumed, valid_tail, persisted);
            assert!(!peer.acknowledged(&word, 300), "{word:?}");
            assert_eq!((peer.placed(), peer.persisted()), (Placed(Lsn(5200)), Persisted(Lsn(5000))));
            assert_eq!(peer.credits(SLOTS), 1);
        }
        assert!(peer.acknowledged(&word(&peer, 2, 5400, 5400), 400));
        assert_eq!((peer.credits(SLOTS), peer.known), (2, Some(Persisted(Lsn(5400)))));
    }

    #[test]
    fn a_completion_of_cold_bytes_counts_once_the_peer_has_parsed_them() {
        let mut peer = peer();
        post(&mut peer, 5200);
        post(&mut peer, 5400);
        peer.batch_placed(Placed(Lsn(5200)), Lsn(5000));
        assert_eq!(peer.placed(), Placed(Lsn(5200)), "what lies below is cold");
        peer.batch_placed(Placed(Lsn(5400)), Lsn(5240));
        assert_eq!(peer.placed(), Placed(Lsn(5200)));
        assert!(peer.acknowledged(&word(&peer, 1, 5240, 4800), 200));
        assert_eq!(peer.placed(), Placed(Lsn(5240)));
        post(&mut peer, 5600);
        peer.batch_placed(Placed(Lsn(5600)), Lsn(5240));
        assert_eq!(peer.placed(), Placed(Lsn(5240)), "behind cold bytes nothing counts");
        assert!(peer.acknowledged(&word(&peer, 1, 5400, 4800), 300));
        assert_eq!(peer.placed(), Placed(Lsn(5600)));
    }

    #[test]
    fn a_peer_moves_when_more_is_on_its_medium() {
        let mut peer = peer();
        post(&mut peer, 5200);
        peer.moved_at = 150;
        assert!(peer.acknowledged(&word(&peer, 1, 5200, 4800), 200));
        assert_eq!(peer.moved_at, 150);
        assert!(peer.acknowledged(&word(&peer, 1, 5200, 5000), 300));
        assert_eq!(peer.moved_at, 300);
    }

    #[test]
    fn a_peer_was_alive_when_the_newest_thing_that_it_answered_was_sent() {
        let mut peer = peer();
        (1..=70).for_each(|sequence| peer.beat(sequence, 1000 + sequence));
        peer.beat_answered(69);
        assert_eq!(peer.heard_at, 1069);
        peer.beat_answered(68);
        peer.beat_answered(71);
        assert_eq!(peer.heard_at, 1069, "an older one, and one that was never sent");
        let answers = Acknowledgement { heartbeat: 70, ..word(&peer, 0, 5000, 4800) };
        assert!(peer.acknowledged(&answers, 2000));
        assert_eq!(peer.heard_at, 1070);
        let mut slow = self::peer();
        (1..=70).for_each(|sequence| slow.beat(sequence, 1000 + sequence));
        slow.beat_answered(6);
        assert_eq!(slow.heard_at, 0, "of beats the newest are remembered");
        slow.beat_answered(7);
        assert_eq!(slow.heard_at, 1007);
    }

    #[test]
    fn a_peer_starves_once_it_has_given_no_credit_back_for_long() {
        let mut peer = peer();
        post(&mut peer, 5200);
        peer.batch_placed(Placed(Lsn(5200)), Lsn(0));
        assert!(!peer.is_starved(SLOTS, 50, 200) && !peer.is_starved(SLOTS, 50, 300), "a credit is left");
        post(&mut peer, 5400);
        assert!(!peer.is_starved(SLOTS, 50, 300) && !peer.is_starved(SLOTS, 50, 400), "a batch is in flight");
        peer.batch_placed(Placed(Lsn(5400)), Lsn(0));
        assert!(!peer.is_starved(SLOTS, 50, 400));
        assert!(!peer.is_starved(SLOTS, 50, 449));
        assert!(peer.is_starved(SLOTS, 50, 450));
        assert!(peer.acknowledged(&word(&peer, 1, 5400, 5000), 450));
        assert!(!peer.is_starved(SLOTS, 50, 450));
        post(&mut peer, 5600);
        peer.batch_placed(Placed(Lsn(5600)), Lsn(0));
        assert!(!peer.is_starved(SLOTS, 50, 460), "counted anew");
        peer.phase = Phase::Away { retry_at: 0 };
        assert!(!peer.is_starved(SLOTS, 50, 900), "no session");
    }

    #[test]
    fn a_peer_hangs_that_was_silent_or_without_keys_for_long_since_it_was_adopted() {
        let mut peer = peer();
        assert!(!peer.is_hung(50, 149), "what it did not answer before says nothing");
        assert!(peer.is_hung(50, 150));
        peer.heard_at = 200;
        assert!(!peer.is_hung(50, 249) && peer.is_hung(50, 250));
        peer.heard_at = 1000;
        peer.granted_to = Lsn(0);
        assert!(!peer.is_hung(50, 149) && peer.is_hung(50, 150), "no keys");
        peer.phase = Phase::Away { retry_at: 0 };
        assert!(!peer.is_hung(50, 9000));
    }

    #[test]
    fn an_idle_peer_that_was_sent_more_than_it_has_flushed_is_told_again() {
        let mut peer = peer();
        peer.nudge_after(50, 149);
        assert!(!peer.nudge);
        peer.nudge_after(50, 150);
        assert!(peer.nudge && peer.moved_at == 150);
        post(&mut peer, 5200);
        assert!(!peer.nudge, "a notice says it");
        peer.nudge_after(50, 900);
        assert!(!peer.nudge, "a batch is in flight");
        assert!(peer.acknowledged(&word(&peer, 1, 5200, 5200), 900));
        peer.batch_placed(Placed(Lsn(5200)), Lsn(0));
        peer.nudge_after(50, 2000);
        assert!(!peer.nudge, "it has all");
    }

    #[test]
    fn a_wait_is_told_with_what_was_missing_first_and_for_how_long() {
        let mut peer = peer();
        assert_eq!(peer.stalls(10, None), None);
        assert_eq!(peer.stalls(20, Some(StallCause::Window)), None);
        assert_eq!(peer.stalls(30, Some(StallCause::Credits)), None);
        assert_eq!(peer.stalls(45, None), Some((StallCause::Window, 25)));
        assert_eq!(peer.stalls(50, None), None);
    }

    #[test]
    fn another_session_begins_with_nothing_of_the_one_before() {
        let mut peer = peer();
        post(&mut peer, 5200);
        peer.beat(1, 900);
        let first = peer.session;
        assert_eq!(peer.next_session(7), Session { attempt: first.attempt + 1, ..first });
        assert_eq!(peer.phase, Phase::Adopting { again_at: 7 });
        assert_eq!((peer.posted(), peer.placed(), peer.persisted().0), (Lsn(0), Placed(Lsn(0)), Lsn(0)));
        assert_eq!((peer.batches_in_flight(), peer.credits(SLOTS)), (0, SLOTS));
        assert!(!peer.is_streaming() && peer.has_connection());
        peer.beat_answered(1);
        assert_eq!(peer.heard_at, 0);
        assert_eq!(peer.known, Some(Persisted(Lsn(4800))), "what it acknowledged it has");
        peer.adopted(Lsn(4500), Persisted(Lsn(4800)), 300);
        assert_eq!(peer.persisted(), Persisted(Lsn(4500)), "no more than is valid");
        assert_eq!(peer.acknowledged, Some(Persisted(Lsn(4800))), "what a witness says of it stays (R-18)");
        assert!(!peer.is_streaming(), "without keys");
    }

    #[test]
    #[should_panic(expected = "I-1: persisted 5040 beyond")]
    fn more_on_the_medium_than_in_memory_is_the_end_i1() {
        let mut peer = peer();
        peer.persisted = Persisted(Lsn(5040));
        peer.check();
    }

    #[test]
    #[should_panic(expected = "beyond posted 5000")]
    fn more_in_memory_than_was_sent_is_the_end_i1() {
        let mut peer = peer();
        peer.placed = Placed(Lsn(5040));
        peer.check();
    }
}
