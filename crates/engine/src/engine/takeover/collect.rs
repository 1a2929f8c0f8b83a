//! Collect: which of the logs that answered the new tenure goes on from, and whether enough have answered to say so.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use windlass_log::{Epoch, Lsn, MemberId};

use super::super::Engine;
use super::super::core::Adoption;
use super::super::members::in_force;
use super::{Chosen, Phase};
use crate::history::{epoch_before, mark_at};
use crate::{
    Config, Configuration, ConfigurationRecord, Event, FenceQuorum, Mark, Message, Summary, Undecided,
};

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
pub(super) fn holds(log: &Summary, mark: Mark) -> bool {
    mark.lsn <= log.trimmed
        || (log.valid_tail >= mark.lsn && epoch_before(&log.history, mark.lsn) == mark.epoch)
}

/// Which losses an operator has accepted for the next choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) enum Accepted {
    /// None.
    Nothing,
    /// That of memory.
    Memory,
    /// Any: what is left is what there is.
    All,
}

/// Chooses a log, or says why those that answered are not enough.
///
/// # Errors
///
/// [`Undecided`]: wait for more members, or an operator.
pub(super) fn choose(
    config: &Config,
    promises: &BTreeMap<MemberId, Summary>,
    accepted: Accepted,
) -> Result<MemberId, Undecided> {
    let Some(member) = best(promises, config.me) else {
        return Err(Undecided::DurableNotReached { durable: Lsn(0) });
    };
    let log = &promises[&member];
    // what counts is what is in force in the chosen log. (A log of lower rank may hold another configuration, which was never committed.)
    let in_force = in_force_of(promises, log);
    let promised: Vec<MemberId> = promises.keys().copied().collect();
    if let Some(lacking) = in_force.iter().find(|record| !record.configuration.is_takeover_quorum(&promised))
    {
        let configuration = &lacking.configuration;
        return Err(Undecided::TooFewPromises {
            number: configuration.number(),
            promised: configuration.count(&promised),
            needed: configuration.takeover_quorum(),
        });
    }
    if let Some(lost) = lost_configuration(promises, log).filter(|_| accepted == Accepted::All) {
        return Err(lost);
    }
    if let Some((member, number)) = contradicting(promises, log) {
        return Err(Undecided::OtherConfiguration { member, number });
    }
    // What is known to be committed is in every log that may be chosen (I-2).
    let lost = promises.values().map(|summary| summary.durable).find(|mark| !holds(log, *mark));
    if let Some(lost) = lost.filter(|_| accepted < Accepted::All) {
        return Err(Undecided::DurableNotReached { durable: lost.lsn });
    }
    let mut counted = Vec::new();
    let mut why = None;
    for (member, summary) in promises {
        // its own mark, and what primaries remember of its acknowledgements.
        let remembered = promises.values().flat_map(|other| &other.witnessed);
        let of_member = remembered.filter(|witness| witness.member == *member).map(|witness| witness.mark);
        let lost =
            of_member.chain([summary.mark]).find(|mark| !reaches(summary, *mark) && !reaches(log, *mark));
        let lost = lost.filter(|_| !windlass_log::planted!(R18) && accepted < Accepted::All);
        // where placed counts, a member that lost its memory may have lost what was placed there. A member that has never
        // followed anybody may be one that came back with an empty disk (kind 55) to members that had not met it before: it, too,
        // may have lost what it acknowledged. So a new group begins with all of its members.
        let is_fresh = summary.history.entries().is_empty();
        let lost_memory = (is_fresh
            || config.replicated_allowed && summary.memory_lost && !windlass_log::planted!(R19))
            && accepted == Accepted::Nothing;
        match lost {
            Some(mark) => {
                why = Some(Undecided::MarkNotReached {
                    member: *member,
                    from: summary.valid_tail,
                    mark: mark.lsn,
                });
            }
            None if lost_memory => why = why.or(Some(Undecided::MemoryLost)),
            None => counted.push(*member),
        }
    }
    let all_answered =
        in_force.iter().flat_map(|r| r.configuration.voters()).all(|voter| promises.contains_key(&voter));
    // Whoever counts has met every write quorum: with a takeover quorum of all, one that lost something would keep the group out for ever.
    let is_enough = in_force.iter().all(|record| record.configuration.meets_write_quorums(&counted));
    match why {
        Some(why) if !is_enough => match why {
            Undecided::MemoryLost if all_answered => Ok(member),
            Undecided::MarkNotReached { member, from, mark } if all_answered => {
                Err(Undecided::Lost { member, from, mark })
            }
            Undecided::MemoryLost
            | Undecided::Lost { .. }
            | Undecided::Damaged { .. }
            | Undecided::MarkNotReached { .. }
            | Undecided::DurableNotReached { .. }
            | Undecided::TooFewPromises { .. }
            | Undecided::TooFewVotes { .. }
            | Undecided::NoVote { .. }
            | Undecided::ConfigurationLost { .. }
            | Undecided::Released { .. }
            | Undecided::OtherConfiguration { .. }
            | Undecided::HistoryFull => Err(why),
        },
        Some(_) | None => Ok(member),
    }
}

/// The configurations in force in a log, as far as those who answered know what is committed.
pub(super) fn in_force_of<'a>(
    promises: &BTreeMap<MemberId, Summary>,
    log: &'a Summary,
) -> &'a [ConfigurationRecord] {
    let durable = promises.values().map(|summary| summary.durable).filter(|mark| holds(log, *mark));
    // The first one that a member knows is committed: it has forgotten those before.
    let committed = promises.values().filter_map(|summary| summary.configurations.first());
    let committed = committed.filter(|record| log.configurations.contains(record)).map(|record| record.end);
    let durable = durable.map(|mark| mark.lsn).chain(committed).max().unwrap_or(Lsn(0));
    in_force(&log.configurations, log.valid_tail, durable)
}

/// Whether damage took this record from who answered, and the chosen log does not reach it.
fn is_lost(summary: &Summary, record: &ConfigurationRecord, log: &Summary) -> bool {
    let mark = Mark { epoch: epoch_before(&summary.history, record.end), lsn: record.end };
    record.end > summary.valid_tail && !reaches(log, mark)
}

/// The newest of the configurations of [`lost_configuration`], all of whose voters have answered, that is known to be committed: the first that a member knows is.
/// Where this member would not vote in it, it can't lead with it.
pub(super) fn committed_and_lost(
    promises: &BTreeMap<MemberId, Summary>,
    log: &Summary,
    me: MemberId,
) -> Option<Configuration> {
    let first = promises.values().filter_map(|summary| Some((summary, summary.configurations.first()?)));
    let lost = first.filter(|(summary, record)| is_lost(summary, record, log));
    let newest = lost.map(|(_, record)| &record.configuration).max_by_key(|lost| lost.number())?;
    newest.is_voter(me).then(|| newest.clone())
}

/// A configuration whose record somebody who answered has lost, and which the chosen log does not reach. It may be committed, and whoever holds its log may
/// lead with others of it, now or later, past every promise of the configuration before. That is impossible only where all of its voters have
/// answered: the log of none of them has it.
fn lost_configuration(promises: &BTreeMap<MemberId, Summary>, log: &Summary) -> Option<Undecided> {
    let all = promises.iter().flat_map(|(member, s)| s.configurations.iter().map(move |r| (*member, s, r)));
    let mut lost = all.filter(|(_, summary, record)| is_lost(summary, record, log));
    lost.find_map(|(member, _, record)| {
        let missing = record.configuration.voters().find(|voter| !promises.contains_key(voter))?;
        let number = record.configuration.number();
        Some(Undecided::ConfigurationLost { member, number, end: record.end, missing })
    })
}

/// Who has another configuration at the place where the chosen log has one: they were founded differently.
fn contradicting(promises: &BTreeMap<MemberId, Summary>, log: &Summary) -> Option<(MemberId, u64)> {
    let founding = log.configurations.first().filter(|record| record.end == Lsn(0))?;
    let differs = |summary: &Summary| {
        let other = summary.configurations.first().filter(|record| record.end == Lsn(0));
        other.is_some_and(|other| !founding.configuration.is_alike(&other.configuration))
    };
    let other = promises.iter().find(|(_, summary)| differs(summary));
    other.map(|(member, _)| (*member, founding.configuration.number()))
}

impl Engine {
    /// Chooses as soon as enough have promised, and repairs the own log if another is chosen.
    pub(super) fn collect(&mut self) {
        let Some(candidacy) = &self.candidacy else { return };
        let epoch = candidacy.epoch;
        let member = match choose(&self.core.config, &candidacy.promises, self.accepted) {
            Ok(member) => member,
            Err(reason) => return self.undecided(epoch, reason),
        };
        let log = candidacy.promises[&member].clone();
        let in_force = in_force_of(&candidacy.promises, &log);
        let promised = candidacy.promises.keys().copied().collect();
        let fence = FenceQuorum::new(epoch, promised, in_force.iter().map(|record| &record.configuration));
        let configuration = in_force.last().map_or(0, |record| record.configuration.number());
        if !in_force.iter().any(|record| record.configuration.is_voter(self.core.me())) {
            // Its log says that this member has left: one that votes there is to lead.
            let heir = in_force.iter().flat_map(|record| record.configuration.voters());
            let heir = if in_force.iter().any(|r| r.configuration.is_voter(member)) {
                Some(member)
            } else {
                heir.last()
            };
            if let Some(heir) = heir {
                self.core.send(heir, Message::Campaign { epoch });
                self.word_is_no_use(epoch, Undecided::NoVote { number: configuration, member: heir });
            }
            return self.give_up();
        }
        let Summary { valid_tail: tail, trimmed, history, configurations, .. } = log;
        if member == self.core.me() {
            return self.flush_before_lead(fence, configuration);
        }
        match self.core.plan_adoption(&history, tail, trimmed) {
            Adoption::NeedsSnapshot => {
                // This log ends below what the best one has released: that member is to lead.
                let epoch = fence.epoch();
                self.core.send(member, Message::Campaign { epoch });
                self.word_is_no_use(epoch, Undecided::Released { member, trimmed });
                self.give_up();
            }
            Adoption::Contradiction { at } => self.stop(self.core.contradiction(at)),
            Adoption::Cut { at, history: merged, mark } => {
                if self.core.log.flush.is_some() {
                    return;
                }
                // By an operator's word the choice proves nothing about what is lacked: until this member leads it stays missed, also after a crash. Who lacks nothing has
                // all of its log here to be ranked: what the best one parts from was never committed.
                let is_given_up = self.accepted == Accepted::All && self.core.damaged();
                let mark = if is_given_up { mark.max(self.core.state.mark) } else { mark };
                self.core.keep_durable_known(&history, tail, trimmed);
                let token = self.core.adopt(at, merged, mark, &configurations);
                let chosen = Chosen { member, tail, trimmed, history, configuration };
                self.set_phase(Phase::Cut { fence, chosen, token });
                self.extend();
                self.say_again();
            }
        }
    }

    pub(super) fn undecided(&mut self, epoch: Epoch, reason: Undecided) {
        let is_ordinary = matches!(reason, Undecided::TooFewPromises { number, .. } if number <= self.core.newest().configuration.number());
        if !is_ordinary {
            self.say_undecided(epoch, reason);
        }
    }

    pub(super) fn say_undecided(&mut self, epoch: Epoch, reason: Undecided) {
        if self.undecided_said != Some((epoch, reason)) {
            self.undecided_said = Some((epoch, reason));
            self.core.event(Event::Undecided { epoch, reason });
        }
    }

    /// Another member is to lead. It may need a word, too, and has none: this one lapses, since it would keep disturbing whom that is given to.
    fn word_is_no_use(&mut self, epoch: Epoch, reason: Undecided) {
        if self.accepted > Accepted::Nothing {
            self.accepted = Accepted::Nothing;
            self.say_undecided(epoch, reason);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, Limits, Timing, Witness};
    use windlass_log::{EpochHistory, Geometry, SEGMENT_BYTES_MIN};

    const START: u64 = 4096;

    fn config(replicated_allowed: bool) -> Config {
        Config {
            me: MemberId(0),
            identity: Identity { incarnation: 1, opening: 1, nonce: 1 },
            founding: Configuration::founding([0, 1, 2].map(MemberId)),
            geometry: Geometry::new(SEGMENT_BYTES_MIN).unwrap(),
            replicated_allowed,
            seed: 1,
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    fn epoch(counter: u64) -> Epoch {
        Epoch::new(counter, MemberId(0))
    }

    /// A log of these epochs, each from its LSN on, up to `tail`, whose owner has acknowledged all of it.
    fn log(epochs: &[(u64, u64)], tail: u64) -> Summary {
        let mut history = EpochHistory::new();
        for (counter, start) in epochs {
            history.extend(epoch(*counter), Lsn(*start)).unwrap();
        }
        Summary {
            last_epoch: epoch_before(&history, Lsn(tail)),
            valid_tail: Lsn(tail),
            trimmed: Lsn(START),
            mark: mark_at(&history, Lsn(tail)),
            memory_lost: false,
            durable: Mark { epoch: Epoch::NONE, lsn: Lsn(START) },
            witnessed: Vec::new(),
            history,
            configurations: [ConfigurationRecord::founding(config(false).founding)].to_vec(),
        }
    }

    fn chosen(replicated_allowed: bool, logs: &[(u8, &Summary)]) -> Result<MemberId, Undecided> {
        let promises = logs.iter().map(|(member, log)| (MemberId(*member), (*log).clone())).collect();
        choose(&config(replicated_allowed), &promises, Accepted::Nothing)
    }

    #[test]
    fn the_latest_epoch_then_the_longest_log_then_the_candidates_own_is_chosen_r17() {
        let old = log(&[(1, START)], 9000);
        let new = log(&[(1, START), (2, 5000)], 5040);
        assert_eq!(chosen(false, &[(0, &old), (1, &new)]), Ok(MemberId(1)));
        let longer = log(&[(1, START)], 9040);
        assert_eq!(chosen(false, &[(0, &old), (2, &longer)]), Ok(MemberId(2)));
        assert_eq!(chosen(false, &[(0, &old), (2, &old)]), Ok(MemberId(0)));
    }

    #[test]
    fn a_mark_is_reached_by_a_later_epoch_or_the_same_bytes_r18() {
        let log = log(&[(1, START), (3, 5000)], 5400);
        let mark = |counter, lsn| Mark { epoch: epoch(counter), lsn: Lsn(lsn) };
        assert!(reaches(&log, mark(2, 9000)), "chosen when the mark was already there");
        assert!(reaches(&log, mark(3, 5400)) && reaches(&log, mark(1, 4900)));
        assert!(!reaches(&log, mark(3, 5440)) && !reaches(&log, mark(4, 5040)));
        assert!(reaches(&log, mark(4, START)), "what was trimmed was durable");
    }

    #[test]
    fn who_lacks_what_it_acknowledged_counts_only_where_the_chosen_log_has_it_r18() {
        let best = log(&[(1, START)], 6000);
        let lacks = |lsn| Summary {
            valid_tail: Lsn(5000),
            mark: Mark { epoch: epoch(1), lsn: Lsn(lsn) },
            ..log(&[(1, START)], 5000)
        };
        assert_eq!(chosen(false, &[(0, &best), (1, &lacks(6000))]), Ok(MemberId(0)));
        let why = Undecided::MarkNotReached { member: MemberId(1), from: Lsn(5000), mark: Lsn(6040) };
        assert_eq!(chosen(false, &[(0, &best), (1, &lacks(6040))]), Err(why));
        // A third sound one makes enough; all three and still not enough is a loss.
        assert_eq!(chosen(false, &[(0, &best), (1, &lacks(6040)), (2, &best)]), Ok(MemberId(0)));
        let lost = chosen(false, &[(0, &best), (1, &lacks(6040)), (2, &lacks(6080))]);
        assert!(matches!(lost, Err(Undecided::Lost { .. })), "{lost:?}");
    }

    #[test]
    fn a_witness_speaks_of_its_own_member_r18() {
        let witnessed = |member| {
            let mark = Mark { epoch: epoch(1), lsn: Lsn(7000) };
            let witness = Witness { member: MemberId(member), mark };
            Summary { witnessed: [witness].to_vec(), ..log(&[(1, START)], 6000) }
        };
        let other = log(&[(1, START)], 6000);
        let why = Undecided::MarkNotReached { member: MemberId(1), from: Lsn(6000), mark: Lsn(7000) };
        assert_eq!(chosen(false, &[(0, &witnessed(1)), (1, &other)]), Err(why));
        // Of one that has not answered nothing is asked.
        assert_eq!(chosen(false, &[(0, &witnessed(2)), (1, &other)]), Ok(MemberId(0)));
    }

    #[test]
    fn who_lost_its_memory_counts_only_where_placed_does_not_or_all_answered_r19() {
        let sound = log(&[(1, START)], 6000);
        let lost = Summary { memory_lost: true, ..sound.clone() };
        assert_eq!(chosen(false, &[(0, &sound), (1, &lost)]), Ok(MemberId(0)));
        assert_eq!(chosen(true, &[(0, &sound), (1, &lost)]), Err(Undecided::MemoryLost));
        assert_eq!(chosen(true, &[(0, &sound), (1, &lost), (2, &sound)]), Ok(MemberId(0)));
        assert_eq!(chosen(true, &[(0, &sound), (1, &lost), (2, &lost)]), Ok(MemberId(0)));
        // One that has never followed may have had another disk, at any level.
        let fresh = log(&[], START);
        assert_eq!(chosen(false, &[(0, &fresh), (1, &fresh)]), Err(Undecided::MemoryLost));
        assert_eq!(chosen(false, &[(0, &fresh), (1, &fresh), (2, &fresh)]), Ok(MemberId(0)));
    }

    #[test]
    fn who_was_founded_differently_is_named_and_nobody_is_chosen() {
        let one = log(&[(1, START)], 6000);
        let mut other = one.clone();
        let founding = Configuration::founding([0, 1, 3].map(MemberId));
        other.configurations = [ConfigurationRecord::founding(founding)].to_vec();
        let why = Undecided::OtherConfiguration { member: MemberId(1), number: 0 };
        assert_eq!(chosen(false, &[(0, &one), (1, &other)]), Err(why));
        assert_eq!(chosen(false, &[(0, &one), (1, &one)]), Ok(MemberId(0)));
    }

    #[test]
    fn under_a_word_all_voters_of_a_lost_configuration_answer_or_the_chosen_log_reaches_it_r20() {
        let short = log(&[(1, START)], 4500);
        let mut lost = short.clone();
        let next = Configuration::founding([0, 1, 3].map(MemberId));
        lost.configurations.push(ConfigurationRecord {
            start: Lsn(5000),
            end: Lsn(5096),
            configuration: next,
        });
        let decide = |logs: &[(u8, &Summary)]| {
            let promises = logs.iter().map(|(member, log)| (MemberId(*member), (*log).clone())).collect();
            choose(&config(false), &promises, Accepted::All)
        };
        let missing = |member, missing| {
            let (member, missing) = (MemberId(member), MemberId(missing));
            Err(Undecided::ConfigurationLost { member, number: 0, end: Lsn(5096), missing })
        };
        assert_eq!(decide(&[(0, &lost), (2, &short)]), missing(0, 1));
        assert_eq!(decide(&[(0, &short), (2, &lost)]), missing(2, 1), "another's counts as much");
        assert_eq!(decide(&[(0, &lost), (1, &short), (2, &short)]), missing(0, 3));
        assert_eq!(decide(&[(0, &lost), (1, &short), (2, &short), (3, &short)]), Ok(MemberId(0)));
        let later = log(&[(1, START), (2, 4600)], 4700);
        assert_eq!(decide(&[(0, &lost), (2, &later)]), Ok(MemberId(2)), "its place is another epoch's");
    }

    /// Two of four members are gone, one that was replaced and then another: who knows that the replacement is committed says so, also after a restart, and the voters
    /// of the configuration before are asked no more.
    #[test]
    fn who_knows_a_configuration_to_be_committed_frees_the_chosen_log_of_the_one_before_r20() {
        let record = |configuration: &Configuration| ConfigurationRecord {
            start: Lsn(5000),
            end: Lsn(5096),
            configuration: configuration.clone(),
        };
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let next = Configuration::founding([0, 3, 4].map(MemberId));
        let mut best = log(&[(1, START)], 6000);
        best.configurations.push(record(&next));
        let mut knows = log(&[(1, START)], 5400);
        knows.configurations = [record(&next)].to_vec();
        let lacking = Undecided::TooFewPromises { number: 0, promised: 1, needed: 2 };
        assert_eq!(chosen(false, &[(0, &best), (3, &best)]), Err(lacking));
        assert_eq!(chosen(false, &[(0, &best), (3, &knows)]), Ok(MemberId(0)));
        // Another one at another place says nothing of this one.
        let mut other = knows.clone();
        other.configurations = [ConfigurationRecord { start: Lsn(4900), ..record(&founding) }].to_vec();
        assert_eq!(chosen(false, &[(0, &best), (3, &other)]), Err(lacking));
    }

    #[test]
    fn what_is_known_to_be_durable_is_in_whatever_is_chosen_i2() {
        let best = log(&[(1, START), (2, 5000)], 5400);
        let knows =
            |epoch, lsn| Summary { durable: Mark { epoch, lsn: Lsn(lsn) }, ..log(&[(1, START)], 5000) };
        assert_eq!(chosen(false, &[(0, &best), (1, &knows(epoch(1), 5000))]), Ok(MemberId(0)));
        let why = Undecided::DurableNotReached { durable: Lsn(5200) };
        assert_eq!(chosen(false, &[(0, &best), (1, &knows(epoch(1), 5200))]), Err(why));
    }
}
