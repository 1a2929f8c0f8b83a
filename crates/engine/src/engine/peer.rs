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
    /// The highest acknowledgement of persistence in this tenure, and what it may hold for retention. `None` before the
    /// first session.
    pub(super) known: Option<Persisted>,
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
        self.persisted = persisted.min(Persisted(valid_tail));
        self.known = Some(self.persisted);
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

    /// The oldest batch in flight was placed.
    ///
    /// # Panics
    ///
    /// If it was not: the driver completes requests of one connection in order.
    pub(super) fn batch_placed(&mut self, to: Placed) {
        let front = self.in_flight.pop_front();
        assert!(front == Some(to.0), "placed {} while {front:?} is the oldest batch in flight", to.0);
        self.placed = self.placed.max(to);
        self.check();
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
        self.persisted = self.persisted.max(word.persisted);
        self.known = self.known.max(Some(self.persisted));
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
