//! An operator's word gives up what was owed, and no more than it says (DESIGN.md section 8.5): the log is the best of a takeover quorum that answered
//! (`World::carried_out`), what it does not hold is owed no more, and everything it holds still is. By a word for lost memory alone, only what was acknowledged at
//! `Replicated` and is known by nobody to be durable.
//!
//! Who has not followed since knows nothing of it, and goes on showing what it has; whoever has heard of it does not.

use std::collections::{BTreeMap, BTreeSet};

use windlass::{Epoch, Lsn};
use windlass_log::EpochHistory;

use super::{Checked, Content, Invariant, Oracle, Violation};

/// What was given up by one word.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// From here on,
    from: Lsn,
    /// of the epochs before this one,
    epoch: Epoch,
    /// of what is not durable.
    memory_only: bool,
}

/// What words have given up.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    losses: Vec<Loss>,
    /// Who has led or followed since the last one.
    heard: BTreeSet<u8>,
}

/// A log as it is led from by a word: what there is to read of it ends at `read_to`, before `end` where something has rotted that its member does not know of yet.
/// What lies between is told by `history` alone: what another epoch had there is not in this log.
pub(crate) struct Left {
    pub(crate) trimmed: Lsn,
    pub(crate) read_to: Lsn,
    pub(crate) end: Lsn,
    pub(crate) history: EpochHistory,
    pub(crate) records: BTreeMap<Lsn, Content>,
}

impl Oracle {
    /// A member begins to lead `epoch` with this log, by an operator's word: what of that was owed and is not in it is not owed any more. How many records that were.
    pub(crate) fn give_up(
        &mut self,
        member: u8,
        epoch: Epoch,
        left: &Left,
        memory_only: bool,
    ) -> Result<usize, Violation> {
        let unread = left.read_to..left.end;
        let is_lost = |start: &Lsn, content: &Content| match unread.contains(start) {
            true => left.history.epoch_at(*start) != Some(content.epoch),
            false => left.records.get(start) != Some(content),
        };
        let of_committed =
            self.committed.range(left.trimmed..).find(|(start, content)| is_lost(start, content));
        let of_acknowledged =
            self.acknowledged.range(left.trimmed..).filter(|(start, (content, _))| is_lost(start, content));
        let mut of_acknowledged = of_acknowledged.map(|(start, _)| *start);
        if memory_only {
            let durable = of_committed.map(|(start, _)| *start);
            let durable =
                durable.or_else(|| of_acknowledged.find(|start| !self.replicated_only.contains(start)));
            if let Some(start) = durable {
                let what = format!(
                    "member {member} leads {epoch:?} by a word for lost memory without {start}, which was durable"
                );
                return Err(Violation { invariant: Invariant::Word, what });
            }
        }
        let first = of_committed.map(|(start, _)| *start).into_iter().chain(of_acknowledged).min();
        let from = first.unwrap_or(left.end).min(left.end);
        let gone = self.acknowledged.split_off(&from);
        let committed = if memory_only { BTreeMap::new() } else { self.committed.split_off(&from) };
        if !memory_only {
            self.committed_by.split_off(&from);
            self.committed_end = self.committed.values().next_back().map_or(Lsn(0), |last| last.end);
            self.cuts.retain(|(_, start), _| *start < from);
            self.configurations.give_up(from);
        }
        let count = committed.keys().chain(gone.keys()).collect::<BTreeSet<_>>().len();
        self.words.losses.push(Loss { from, epoch, memory_only });
        self.words.heard = BTreeSet::from([member]);
        Ok(count)
    }

    /// A member leads or follows this epoch. From where on it may show other records than before, if it has heard of a word by that.
    pub(crate) fn hears_of_words(&mut self, member: u8, epoch: Epoch) -> Option<Lsn> {
        let last = self.words.losses.last()?;
        if epoch < last.epoch || !self.words.heard.insert(member) {
            return None;
        }
        self.words.losses.iter().map(|loss| loss.from).min()
    }

    /// Whether a member shows, or acknowledges, what a word has given up without having heard of it.
    pub(crate) fn is_unheard(&self, member: u8, epoch: Epoch, start: Lsn) -> bool {
        !self.words.heard.contains(&member) && self.is_given_up(epoch, start, true)
    }

    /// Whether what an epoch had at this place, or puts there late, is not owed any more.
    pub(crate) fn is_given_up(&self, epoch: Epoch, start: Lsn, is_durable: bool) -> bool {
        let is_it =
            |loss: &Loss| start >= loss.from && epoch < loss.epoch && !(is_durable && loss.memory_only);
        self.words.losses.iter().any(is_it)
    }

    /// Whether a word was carried out.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.words.losses.is_empty()
    }

    /// Whether anything was given up, and this member has not heard of it.
    pub(crate) fn has_not_heard(&self, member: u8) -> bool {
        !self.words.losses.is_empty() && !self.words.heard.contains(&member)
    }

    /// From where on a member that has not heard of a word may show another line than the group's; `None` if it has heard of all.
    pub(super) fn given_up_from(&self, member: u8) -> Option<Lsn> {
        let of_all = self.words.losses.iter().map(|loss| loss.from);
        of_all.min().filter(|_| self.has_not_heard(member))
    }

    /// A log that was led from by a word is at least as good as the best of a takeover quorum's, as each was when it promised: `better` of those that answered were not.
    pub(crate) fn is_best(&self, member: u8, not_better: usize, quorum: usize, told: &str) -> Checked {
        if not_better >= quorum {
            return Ok(());
        }
        super::violated(
            Invariant::Word,
            format!(
                "member {member} leads by a word with a log that is the best of {not_better} members' that have promised, {quorum} are needed: {told}"
            ),
        )
    }
}

/// A member had released more than what the group goes on with, of another line: somebody has given a word (`by_word`).
pub(crate) fn released_given_up(
    at: usize,
    released: Lsn,
    found: Epoch,
    expected: Epoch,
    by_word: bool,
) -> Checked {
    if by_word {
        return Ok(());
    }
    super::violated(
        Invariant::Word,
        format!(
            "m{at} had released up to {released} of {found}, the group goes on in {expected}, and nobody gave a word"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::unknown::Answer;
    use super::*;
    use windlass_log::RecordKind;

    fn epoch(number: u64) -> Epoch {
        Epoch::from_bits(number << 8)
    }

    fn record(start: u64, of: u64) -> (Lsn, Content) {
        (Lsn(start), Content { end: Lsn(start + 100), epoch: epoch(of), kind: RecordKind::Data, hash: start })
    }

    fn history(entries: &[(u64, u64)]) -> EpochHistory {
        let mut history = EpochHistory::new();
        for (of, start) in entries {
            history.extend(epoch(*of), Lsn(*start)).unwrap();
        }
        history
    }

    /// Three records of an epoch, published by member 1: the last is acknowledged at `Replicated` alone.
    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        for start in [4096, 4196, 4296] {
            let (start, content) = record(start, 1);
            oracle.appended(start, content).unwrap();
            oracle.acknowledge(epoch(1), start, start < Lsn(4296)).unwrap();
            if start < Lsn(4296) {
                oracle.published(1, epoch(1), start, content).unwrap();
            }
        }
        oracle
    }

    fn left(to: u64) -> Left {
        let records = [4096, 4196, 4296].into_iter().filter(|start| *start < to);
        Left {
            trimmed: Lsn(4096),
            read_to: Lsn(to),
            end: Lsn(to),
            history: history(&[(1, 4096)]),
            records: records.map(|start| record(start, 1)).collect(),
        }
    }

    #[test]
    fn a_word_gives_up_what_its_log_lacks_and_everything_before_stays_owed() {
        let mut oracle = oracle();
        assert_eq!(oracle.give_up(0, epoch(2), &left(4196), false).unwrap(), 2);
        let holds = |oracle: &Oracle, to: u64| {
            oracle.holds_all(0, epoch(2), Lsn(4096), &|lsn| left(to).records.get(&lsn).copied())
        };
        assert!(holds(&oracle, 4196).is_ok());
        assert!(holds(&oracle, 4096).is_err(), "the first one was not given up");
    }

    #[test]
    fn behind_rot_a_word_gives_up_what_another_epoch_had_there() {
        let left = |begun: u64| Left {
            read_to: Lsn(4096),
            history: history(&[(1, 4096), (2, begun)]),
            records: BTreeMap::new(),
            ..left(4396)
        };
        let given_up = |begun| oracle().give_up(0, epoch(3), &left(begun), false).unwrap();
        assert_eq!(given_up(4196), 2);
        assert_eq!(given_up(4396), 0, "of the same epoch it is the same");
    }

    /// Seed 7200506: an append was cut in the line that a word gives up, and is in the one that it takes.
    #[test]
    fn who_has_not_heard_of_a_word_says_what_was_cut_in_its_own_line() {
        let mut oracle = oracle();
        let (start, content) = record(4196, 2);
        oracle.appended(start, content).unwrap();
        let says = |oracle: &mut Oracle, answer| oracle.answered(1, (epoch(2), start), answer);
        says(&mut oracle, Answer::Cut).unwrap();
        oracle.give_up(0, epoch(3), &left(4196), false).unwrap();
        says(&mut oracle, Answer::Cut).unwrap();
        assert!(oracle.published(0, epoch(3), start, content).is_ok());
        says(&mut oracle, Answer::Cut).unwrap();
        oracle.hears_of_words(1, epoch(3));
        assert!(says(&mut oracle, Answer::Committed).is_ok());
        assert!(says(&mut oracle, Answer::Cut).is_err(), "whoever has heard of it knows better");
    }

    #[test]
    fn who_has_not_heard_of_a_word_shows_what_it_has_and_who_has_does_not() {
        let mut oracle = oracle();
        oracle.give_up(0, epoch(2), &left(4196), false).unwrap();
        let (start, old) = record(4196, 1);
        assert!(oracle.published(1, epoch(1), start, old).is_ok());
        let new = Content { hash: 7, epoch: epoch(2), ..old };
        oracle.appended(start, new).unwrap();
        assert!(oracle.published(0, epoch(2), start, new).is_ok());
        assert!(oracle.published(1, epoch(1), start, old).is_ok());
        assert_eq!(oracle.hears_of_words(1, epoch(2)), Some(Lsn(4196)));
        assert!(oracle.published(1, epoch(2), start, old).is_err());
    }

    #[test]
    fn a_word_for_lost_memory_gives_up_nothing_that_was_durable() {
        assert_eq!(oracle().give_up(0, epoch(2), &left(4296), true).unwrap(), 1);
        assert!(oracle().give_up(0, epoch(2), &left(4196), true).is_err());
    }

    #[test]
    fn what_a_frozen_primary_acknowledges_late_is_owed_only_where_the_word_has_left_it() {
        let mut oracle = oracle();
        let (start, content) = record(4396, 1);
        oracle.appended(start, content).unwrap();
        oracle.give_up(0, epoch(2), &left(4196), false).unwrap();
        assert!(oracle.acknowledge(epoch(1), start, true).is_ok());
        assert!(oracle.all_committed().is_ok());
    }
}
