//! Takeover, phase by phase: suspect, fence, collect, repair, lead.
//!
//! ```text
//!  silence -> PreVote -> Fence: own promise, then the others' -> Collect: choose the best log
//!          -> Repair: cut what diverges, fetch what is missing, flush -> Lead: save the history, start the tenure
//! ```
//!
//! Each arrow consumes what only the step before can make; a candidacy that loses its way is dropped whole and the random
//! back-off starts it again.

use alloc::collections::{BTreeMap, BTreeSet};

use windlass_log::{Epoch, EpochHistory, Lsn, MemberId};

use super::Engine;
use crate::{FenceQuorum, Message, Session, StopReason, Summary, Token};

mod collect;
mod fence;
mod lead;
mod repair;
mod suspect;

pub(super) use collect::Accepted;
pub(super) use suspect::Suspicion;

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Candidacy {
    /// [`Epoch::NONE`] until the fence.
    epoch: Epoch,
    phase: Phase,
    /// When it is given up unless it gets on.
    deadline: u64,
    /// When unanswered messages are sent again, and the others told that work goes on.
    again_at: u64,
    promises: BTreeMap<MemberId, Summary>,
    fetch_attempts: u32,
    progress: u64,
}

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
enum Phase {
    /// Asking whether anybody hears a primary.
    PreVote { epoch: Epoch, granted: BTreeSet<MemberId> },
    /// The own promise is being made durable.
    OwnPromise,
    /// Collecting promises.
    Fence,
    /// Chosen; the divergent suffix is being cut.
    Cut { fence: FenceQuorum, chosen: Chosen, token: Token },
    /// The missing suffix is being fetched.
    Fetch { fence: FenceQuorum, chosen: Chosen, session: Session, token: Token, asked: Lsn },
    /// What was fetched is being flushed (R-11).
    Flush { fence: FenceQuorum },
    /// The history with the new tenure is being saved.
    Save { fence: FenceQuorum, token: Token },
    /// The epoch-start record is being appended.
    Start,
}

/// The log that the new tenure goes on from.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
struct Chosen {
    member: MemberId,
    tail: Lsn,
    trimmed: Lsn,
    history: EpochHistory,
    /// The number of its newest configuration.
    configuration: u64,
}

#[cfg(feature = "explore")]
impl Candidacy {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        match &mut self.phase {
            Phase::Cut { token, .. } | Phase::Fetch { token, .. } | Phase::Save { token, .. } => visit(token),
            Phase::PreVote { .. } | Phase::OwnPromise | Phase::Fence | Phase::Flush { .. } | Phase::Start => {
            }
        }
        // Only `Working` carries it, and that is about time.
        self.progress = 0;
    }
}

impl Engine {
    /// The time has come for something in a candidacy.
    pub(super) fn tend_candidacy(&mut self) {
        let now = self.core.now;
        let Some(candidacy) = &self.candidacy else { return };
        let is_late = now >= candidacy.deadline;
        match candidacy.phase {
            Phase::Fetch { .. } if is_late => self.fetch_failed_now(),
            Phase::PreVote { .. } | Phase::Fence if is_late => {
                self.tell_what_a_word_waits_for();
                self.give_up();
            }
            Phase::Start if is_late => self.start_is_late(),
            // The store answers in the end; what these wait for is not a peer.
            Phase::OwnPromise
            | Phase::Cut { .. }
            | Phase::Flush { .. }
            | Phase::Save { .. }
            | Phase::Start
            | Phase::Fetch { .. }
            | Phase::PreVote { .. }
            | Phase::Fence => {
                if now >= candidacy.again_at {
                    self.say_again();
                }
            }
        }
    }

    /// The log takes no epoch-start record: its disk is full at a segment's end, or the device takes no segment. Another member may have room, and gets no vote
    /// here before this one has let go; so it is given the time to lead.
    fn start_is_late(&mut self) {
        let timing = self.core.config.timing;
        self.step_down(StopReason::NotStarted);
        self.back_off();
        self.suspicion.deadline += 2 * timing.suspicion_ns;
        // Nobody was heard, so that whoever asks now has this member's vote.
        self.suspicion.heard_at = self.core.now.saturating_sub(timing.suspicion_ns);
    }

    fn say_again(&mut self) {
        let again_at = self.core.now + self.core.config.timing.retry_ns;
        let Some(candidacy) = &mut self.candidacy else { return };
        candidacy.again_at = again_at;
        let working = Message::Working { epoch: candidacy.epoch, progress: candidacy.progress };
        match &candidacy.phase {
            Phase::PreVote { epoch, granted } => {
                let (epoch, granted) = (*epoch, granted.clone());
                self.ask_votes(epoch, &granted);
            }
            Phase::Fence => self.ask_promises(),
            Phase::OwnPromise => {}
            Phase::Fetch { session, chosen, asked, .. } => {
                let (session, to) = (*session, chosen.member);
                let range = crate::LsnRange::new(self.core.log.tail.min(*asked), *asked);
                self.core.send(to, Message::FetchRequest { session, range });
                self.tell_others(&working);
            }
            Phase::Cut { .. } | Phase::Flush { .. } | Phase::Save { .. } | Phase::Start => {
                self.tell_others(&working)
            }
        }
    }

    fn tell_others(&mut self, message: &Message) {
        for peer in self.core.others() {
            if self.links.is_up(peer) {
                self.core.send(peer, message.clone());
            }
        }
    }

    /// The candidacy got on: more time for it.
    fn extend(&mut self) {
        let deadline = self.core.now + self.core.config.timing.suspicion_ns;
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.deadline = deadline;
            candidacy.progress += 1;
        }
    }

    /// Drops the candidacy; the next one comes after a random back-off, longer each time.
    fn give_up(&mut self) {
        self.abandon_candidacy();
        self.back_off();
    }

    /// Drops the candidacy and what it had under way with peers.
    pub(super) fn abandon_candidacy(&mut self) {
        let Some(candidacy) = self.candidacy.take() else { return };
        if let Phase::Fetch { chosen, session, .. } = candidacy.phase {
            self.core.push(crate::Command::Disconnect { peer: chosen.member, session });
        }
    }

    pub(super) fn takeover_link_ready(&mut self, peer: MemberId) {
        let Some(candidacy) = &self.candidacy else { return };
        match &candidacy.phase {
            Phase::PreVote { epoch, .. } => {
                let epoch = *epoch;
                let configuration = self.core.newest().configuration.number();
                self.core.send(peer, Message::PreVote { epoch, configuration });
            }
            Phase::Fence if !candidacy.promises.contains_key(&peer) => {
                let epoch = candidacy.epoch;
                let configuration = self.core.newest().configuration.number();
                self.core.send(peer, Message::Fence { epoch, configuration });
            }
            Phase::Fence
            | Phase::OwnPromise
            | Phase::Cut { .. }
            | Phase::Fetch { .. }
            | Phase::Flush { .. }
            | Phase::Save { .. }
            | Phase::Start => {}
        }
    }

    pub(super) fn candidacy_deadline(&self) -> Option<u64> {
        self.candidacy.as_ref().map(|candidacy| match candidacy.phase {
            Phase::OwnPromise | Phase::Cut { .. } | Phase::Flush { .. } | Phase::Save { .. } => {
                candidacy.again_at
            }
            Phase::PreVote { .. } | Phase::Fence | Phase::Fetch { .. } | Phase::Start => {
                candidacy.deadline.min(candidacy.again_at)
            }
        })
    }
}
