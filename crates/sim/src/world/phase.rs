//! Where in a takeover a member stands, told by what it sends and hears: for faults that strike there, and to count that they did.

use windlass::engine::Message;

use super::World;
use crate::coverage::Mark;

/// A step of the protocol, as the member who is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// In none of these.
    Idle,
    /// Asks whether others hear a primary.
    Asking,
    /// Asks others to promise.
    Fencing,
    /// Was asked to promise, and has not yet.
    Promising,
    /// Has promised, and not heard of the new primary yet.
    Promised,
    /// Fetches what the best log has and it lacks.
    Fetching,
    /// Leads; nobody follows yet.
    Starting,
    /// Leads; somebody follows.
    Leading,
    /// Was told to adopt a history, and has not yet.
    Adopting,
    /// Follows.
    Following,
    /// Ends its tenure.
    Sealing,
}

impl Phase {
    /// The steps in which faults are to strike; what is short or rare more often than once.
    pub(super) const STRUCK: &[Phase] = &[
        Phase::Asking,
        Phase::Fencing,
        Phase::Promising,
        Phase::Promised,
        Phase::Fetching,
        Phase::Fetching,
        Phase::Fetching,
        Phase::Starting,
        Phase::Leading,
        Phase::Adopting,
        Phase::Sealing,
        Phase::Sealing,
    ];

    /// What counts that a member died in it.
    pub(super) fn mark(self, has_power: bool) -> Mark {
        match (self, has_power) {
            (Phase::Idle, true) => Mark::KilledIdle,
            (Phase::Idle, false) => Mark::PowerIdle,
            (Phase::Asking, true) => Mark::KilledAsking,
            (Phase::Asking, false) => Mark::PowerAsking,
            (Phase::Fencing, true) => Mark::KilledFencing,
            (Phase::Fencing, false) => Mark::PowerFencing,
            (Phase::Promising, true) => Mark::KilledPromising,
            (Phase::Promising, false) => Mark::PowerPromising,
            (Phase::Promised, true) => Mark::KilledPromised,
            (Phase::Promised, false) => Mark::PowerPromised,
            (Phase::Fetching, true) => Mark::KilledFetching,
            (Phase::Fetching, false) => Mark::PowerFetching,
            (Phase::Starting, true) => Mark::KilledStarting,
            (Phase::Starting, false) => Mark::PowerStarting,
            (Phase::Leading, true) => Mark::KilledLeading,
            (Phase::Leading, false) => Mark::PowerLeading,
            (Phase::Adopting, true) => Mark::KilledAdopting,
            (Phase::Adopting, false) => Mark::PowerAdopting,
            (Phase::Following, true) => Mark::KilledFollowing,
            (Phase::Following, false) => Mark::PowerFollowing,
            (Phase::Sealing, true) => Mark::KilledSealing,
            (Phase::Sealing, false) => Mark::PowerSealing,
        }
    }

    /// What counts that a member died in it while this disk work, by its name, was the next of its lane.
    pub(super) fn mark_with(self, work: &str) -> Option<Mark> {
        Some(match (self, work) {
            (Phase::Fencing, "save") => Mark::FencingSave,
            (Phase::Fencing, "cut") => Mark::FencingCut,
            (Phase::Fetching, "save") => Mark::FetchingSave,
            (Phase::Fetching, "flush") => Mark::FetchingFlush,
            (Phase::Promising, "save") => Mark::PromisingSave,
            (Phase::Promising, "flush") => Mark::PromisingFlush,
            (Phase::Adopting, "save") => Mark::AdoptingSave,
            (Phase::Adopting, "cut") => Mark::AdoptingCut,
            (Phase::Adopting, "flush") => Mark::AdoptingFlush,
            (Phase::Starting, "flush") => Mark::StartingFlush,
            _ => return None,
        })
    }

    pub(super) fn is_of_a_primary(self) -> bool {
        matches!(self, Phase::Starting | Phase::Leading | Phase::Sealing)
    }
}

impl World {
    /// A member sends this.
    pub(super) fn sends(&mut self, at: usize, message: &Message) {
        match message {
            Message::PreVote { .. } => self.enter(at, Phase::Asking),
            Message::Fence { epoch, .. } => {
                self.promised_to(at, at, *epoch);
                // Another log may be chosen, and this one cut to it: without a new epoch in the history before the rest is fetched.
                self.members[at].floors.forget();
                self.enter(at, Phase::Fencing);
            }
            Message::Promise { epoch, .. } => {
                self.promised_to(at, usize::from(epoch.member().0), *epoch);
                self.enter(at, Phase::Promised);
            }
            Message::FetchRequest { .. } => self.enter(at, Phase::Fetching),
            Message::Adopted { session, .. } => {
                self.heard_of_words(at, session.epoch);
                self.word_lapses(at);
                self.members[at].has_begun = true;
                self.enter(at, Phase::Following);
            }
            Message::PreVoteReply { .. }
            | Message::Rejected { .. }
            | Message::Working { .. }
            | Message::Campaign { .. }
            | Message::Adopt { .. }
            | Message::SnapshotNeeded { .. }
            | Message::Keep { .. }
            | Message::Resync { .. }
            | Message::Alive { .. }
            | Message::NotAMember { .. }
            | Message::AliveReply { .. } => {}
        }
    }

    /// A member hears this.
    pub(super) fn hears(&mut self, at: usize, message: &Message) {
        let promised = self.members[at].status().map(|status| status.promised);
        match message {
            Message::Fence { epoch, .. } if promised.is_some_and(|promised| promised < *epoch) => {
                self.enter(at, Phase::Promising);
            }
            Message::Adopt { session, .. } if promised.is_some_and(|promised| promised <= session.epoch) => {
                self.enter(at, Phase::Adopting);
            }
            Message::Adopted { .. } if self.members[at].phase == Phase::Starting => {
                self.enter(at, Phase::Leading);
            }
            Message::Resync { .. } => self.mark(Mark::Resync),
            Message::PreVote { .. }
            | Message::PreVoteReply { .. }
            | Message::Fence { .. }
            | Message::Promise { .. }
            | Message::Rejected { .. }
            | Message::Working { .. }
            | Message::Campaign { .. }
            | Message::Adopt { .. }
            | Message::Adopted { .. }
            | Message::SnapshotNeeded { .. }
            | Message::Keep { .. }
            | Message::Alive { .. }
            | Message::AliveReply { .. }
            | Message::NotAMember { .. }
            | Message::FetchRequest { .. } => {}
        }
    }
}
