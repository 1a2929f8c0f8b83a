//! Collect: which of the logs that answered the new tenure goes on from, and whether enough have answered to say so.

use alloc::collections::BTreeMap;

use windlass_log::{Epoch, Lsn, MemberId};

use super::super::Engine;
use super::super::core::Adoption;
use super::{Chosen, Phase};
use crate::history::{epoch_before, mark_at};
use crate::{Config, Event, FenceQuorum, Mark, Message, Summary, Undecided};

/// The best log among those that answered: highest (epoch of the last valid record, tail). Of equal ones the
/// candidate's own, which needs no fetching.
fn best(promises: &BTreeMap<MemberId, Summary>, me: MemberId) -> Option<MemberId> {
    let rank = |member: &MemberId, summary: &Summary| {
        let last_epoch = if windlass_log::planted!(R17) { Epoch::NONE } else { summary.last_epoch };
        (last_epoch, summary.valid_tail, *member == me)
    };
    promises.iter().max_by_key(|(member, summary)| rank(member, summary)).map(|(member, _)| *member)
}

/// Whether the log holds the bytes below the mark, or more: those of an epoch whose primary was chosen when the mark was
/// already there.
fn reaches(log: &Summary, mark: Mark) -> bool {
    log.last_epoch > mark.epoch || holds(log, mark)
}

/// Whether the log holds exactly the bytes below the mark.
fn holds(log: &Summary, mark: Mark) -> bool {
    mark.lsn <= log.trimmed
        || (log.valid_tail >= mark.lsn && epoch_before(&log.history, mark.lsn) == mark.epoch)
}

/// Chooses a log, or says why those that answered are not enough.
///
/// # Errors
///
/// [`Undecided`]: wait for more members, or an operator.
pub(super) fn choose(
    config: &Config,
    promises: &BTreeMap<MemberId, Summary>,
    accept_memory_loss: bool,
) -> Result<MemberId, Undecided> {
    let Some(member) = best(promises, config.me) else {
        return Err(Undecided::DurableNotReached { durable: Lsn(0) });
    };
    let log = &promises[&member];
    // What is known to be committed is in every log that may be chosen (I-2).
    if let Some(lost) = promises.values().map(|summary| summary.durable).find(|mark| !holds(log, *mark)) {
        return Err(Undecided::DurableNotReached { durable: lost.lsn });
    }
    let mut counted = 0;
    let mut why = None;
    for (member, summary) in promises {
        // its own mark, and what primaries remember of its acknowledgements.
        let remembered = promises.values().flat_map(|other| &other.witnessed);
        let of_member = remembered.filter(|witness| witness.member == *member).map(|witness| witness.mark);
        let lost =
            of_member.chain([summary.mark]).find(|mark| !reaches(summary, *mark) && !reaches(log, *mark));
        let lost = if windlass_log::planted!(R18) { None } else { lost };
        // where placed counts, a member that lost its memory may have lost what was placed there. A member that has never
        // followed anybody may be one that came back with an empty disk (kind 55) to members that had not met it before: it, too,
        // may have lost what it acknowledged. So a new group begins with all of its members.
        let is_fresh = summary.history.entries().is_empty();
        let lost_memory = (is_fresh
            || config.replicated_allowed && summary.memory_lost && !windlass_log::planted!(R19))
            && !accept_memory_loss;
        match lost {
            Some(mark) => why = Some(Undecided::MarkNotReached { member: *member, mark: mark.lsn }),
            None if lost_memory => why = why.or(Some(Undecided::MemoryLost)),
            None => counted += 1,
        }
    }
    let all_answered = config.founding.voters().all(|voter| promises.contains_key(&voter));
    match why {
        Some(why) if counted < config.founding.takeover_quorum() => match why {
            Undecided::MemoryLost if all_answered => Ok(member),
            Undecided::MarkNotReached { member, .. } if all_answered => Err(Undecided::Lost { member }),
            Undecided::MemoryLost
            | Undecided::Lost { .. }
            | Undecided::Damaged
            | Undecided::MarkNotReached { .. }
            | Undecided::DurableNotReached { .. }
            | Undecided::HistoryFull => Err(why),
        },
        Some(_) | None => Ok(member),
    }
}

impl Engine {
    /// A quorum has promised: choose, and repair the own log if another is chosen.
    pub(super) fn collect(&mut self, fence: FenceQuorum) {
        let Some(candidacy) = &self.candidacy else { return };
        let member = match choose(&self.core.config, &candidacy.promises, self.accept_memory_loss) {
            Ok(member) => member,
            Err(reason) => return self.undecided(fence.epoch(), reason),
        };
        let Summary { valid_tail: tail, trimmed, history, .. } = candidacy.promises[&member].clone();
        if member == self.core.me() {
            return self.flush_before_lead(fence);
        }
        match self.core.plan_adoption(&history, tail, trimmed) {
            Adoption::NeedsSnapshot => {
                // This log ends below what the best one has released: that member is to lead.
                let epoch = fence.epoch();
                self.core.send(member, Message::Campaign { epoch });
                self.give_up();
            }
            Adoption::Contradiction { at } => self.stop(self.core.contradiction(at)),
            Adoption::Cut { at, history: merged, mark } => {
                if self.core.log.flush.is_some() {
                    return;
                }
                let token = self.core.adopt(at, merged, mark);
                let chosen = Chosen { member, tail, trimmed, history };
                self.set_phase(Phase::Cut { fence, chosen, token });
                self.extend();
                self.say_again();
            }
        }
    }

    pub(super) fn undecided(&mut self, epoch: windlass_log::Epoch, reason: Undecided) {
        if self.undecided_said != Some((epoch, reason)) {
            self.undecided_said = Some((epoch, reason));
            self.core.event(Event::Undecided { epoch, reason });
        }
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.phase = phase;
        }
    }

    /// The own log has changed since it was summed up.
    pub(super) fn refresh_own_summary(&mut self) {
        let (me, summary) = (self.core.me(), self.core.summary());
        if let Some(candidacy) = &mut self.candidacy {
            debug_assert!(mark_at(&summary.history, summary.valid_tail).epoch == summary.last_epoch);
            candidacy.promises.insert(me, summary);
        }
    }
}
