//! Members that come and go: an operator who adds, removes and replaces them and chooses the sizes of quorums, what the group bears in each configuration
//! that may count, and whose word makes an append durable.

use std::collections::BTreeMap;

use windlass::MemberId;
use windlass::engine::{Change, Configuration, Input, Quorums};

use super::member::Member;
use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::MS;
use crate::oracle::configurations;
use crate::setting::Setting;

/// An operator keeps a group at least this large, mostly, and never makes it larger than the other.
const VOTERS_MIN: usize = 3;
const VOTERS_MAX: usize = 6;

/// The configurations of the group, as the world knows them.
#[derive(Debug)]
pub(super) struct Group {
    /// Those that some member knows to be committed, by number.
    committed: BTreeMap<u64, Configuration>,
    /// Asked for or met, with a higher number than those: any of them may become the next.
    open: Vec<Configuration>,
}

/// Voters by index, and how many of them must hold what is durable.
pub(crate) struct Counted {
    pub(crate) voters: Vec<usize>,
    pub(crate) quorum: usize,
}

impl Group {
    pub(super) fn of(setting: &Setting) -> Group {
        Group { committed: BTreeMap::from([(0, setting.founding(0))]), open: Vec::new() }
    }

    /// The newest one that somebody knows to be committed.
    pub(super) fn newest(&self) -> &Configuration {
        self.committed.values().next_back().expect("the founding one is committed")
    }

    fn note(&mut self, configuration: &Configuration, is_committed: bool) {
        let number = configuration.number();
        if is_committed {
            self.committed.entry(number).or_insert_with(|| configuration.clone());
            let newest = self.newest().number();
            self.open.retain(|open| open.number() > newest);
        } else if number > self.newest().number() && !self.open.contains(configuration) {
            self.open.push(configuration.clone());
        }
    }

    /// A tenure begins with this one in its log, behind an operator's word: what others call by its number or by a higher one was given up, or may be. It stays
    /// among those that may become the next.
    fn led_behind_a_word(&mut self, newest: &Configuration, is_committed: bool) {
        let number = newest.number();
        let mut others = self.committed.split_off(&number);
        let was_known = others.get(&number) == Some(newest);
        if is_committed || was_known {
            others.remove(&number);
            self.committed.insert(number, newest.clone());
        } else if !self.open.contains(newest) {
            self.open.push(newest.clone());
        }
        for other in others.into_values().filter(|other| other != newest) {
            if !self.open.contains(&other) {
                self.open.push(other);
            }
        }
        let newest = self.newest().number();
        self.open.retain(|open| open.number() > newest);
    }

    /// The configurations that count, or may soon: each with its voters, who learns in it left out, and one more in which that one votes.
    fn may_count(&self) -> impl Iterator<Item = (Configuration, Option<MemberId>)> {
        std::iter::once(self.newest()).chain(&self.open).flat_map(|configuration| {
            let learner = configuration.learner().map(|learner| learner.id);
            let later = configuration.promoted(1).map(|later| (later, learner));
            std::iter::once((configuration.clone(), None)).chain(later)
        })
    }

    /// Whether the group bears it that this member is out, and those of whom `is_out` is true: the others still lead and commit, and hold what was committed.
    /// Who learns has everything by the time that it votes. The configuration before the newest is asked for, too, until somebody who is not out has it in writing that it
    /// is not in force any more (`is_sure`, of a number): what was only heard dies with the processes.
    fn bears(&self, at: usize, is_out: &dyn Fn(usize) -> bool, is_sure: &dyn Fn(usize, u64) -> bool) -> bool {
        let newest = self.newest();
        let others = newest.voters().map(|voter| usize::from(voter.0)).filter(|index| *index != at);
        let is_alone = others.filter(|index| !is_out(*index)).any(|index| is_sure(index, newest.number()));
        let before = self.committed.range(..newest.number()).next_back().filter(|_| !is_alone);
        let before = before.map(|(_, before)| (before.clone(), None));
        self.may_count().chain(before).all(|(configuration, learner)| {
            let out = configuration.voters().filter(|voter| {
                let index = usize::from(voter.0);
                index == at || learner != Some(*voter) && is_out(index)
            });
            out.count() <= borne(&configuration)
        })
    }
}

/// How many voters may be out for good.
fn borne(configuration: &Configuration) -> usize {
    let voters = configuration.voters().count();
    (voters - configuration.useful_quorum()).min(configuration.write_quorum() - 1)
}

impl World {
    /// Whether the group bears it that this member is out, beside those of whom this is true.
    pub(super) fn bears(&self, at: usize, is_out: impl Fn(&Member) -> bool) -> bool {
        let is_sure = |other: usize, number| self.members[other].sure_of >= number;
        self.group.bears(at, &|other| is_out(&self.members[other]), &is_sure)
    }

    /// Those that belong to the group, or did, by index.
    pub(super) fn joined_members(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|at| self.members[*at].has_joined).collect()
    }

    /// One of them.
    pub(super) fn some_member(&mut self) -> usize {
        let joined = self.joined_members();
        joined[self.random.index(joined.len())]
    }

    /// The voters of the newest committed configuration whose disk was never emptied, by index.
    pub(super) fn whole_voters(&self) -> Vec<usize> {
        let voters = self.group.newest().voters().map(|voter| usize::from(voter.0));
        voters.filter(|voter| !self.members[*voter].is_emptied).collect()
    }

    /// How many of the newest committed configuration's voters lead and commit.
    pub(super) fn useful_quorum(&self) -> usize {
        self.group.newest().useful_quorum()
    }

    pub(super) fn voter_count(&self) -> usize {
        self.group.newest().voters().count()
    }

    /// The number of the newest committed configuration.
    pub(crate) fn newest_number(&self) -> u64 {
        self.group.newest().number()
    }

    /// Whether this member votes in a configuration of this number, or may: a primary can have written one, stood still, and died before it told of it.
    pub(super) fn may_vote_in(&self, number: u64, member: MemberId) -> bool {
        let known = self.group.committed.get(&number).into_iter().chain(&self.group.open);
        let mut told = known.into_iter().filter(|known| known.number() == number).peekable();
        told.peek().is_none() || told.any(|known| known.is_voter(member))
    }

    /// A tenure begins, and an operator's word has been carried out: by this one, or before.
    pub(super) fn led_behind_a_word(&mut self, at: usize) {
        let Some(driver) = &self.members[at].driver else { return };
        let (newest, is_committed) = driver.configuration();
        self.group.led_behind_a_word(newest, is_committed);
        self.oracle.configuration_left(newest);
    }

    pub(super) fn is_voter(&self, at: usize) -> bool {
        self.group.newest().is_voter(MemberId(self.members[at].id))
    }

    /// Whether nobody learns, and every voter that runs knows the newest configuration to be committed.
    pub(super) fn is_settled(&self) -> bool {
        let newest = self.group.newest();
        let knows = |at: &usize| {
            let driver = self.members[*at].driver.as_ref();
            driver.is_none_or(|driver| driver.configuration() == (newest, true))
        };
        newest.learner().is_none() && self.whole_voters().iter().all(knows)
    }

    /// A member's newest configuration, or whether it is committed, has changed.
    pub(super) fn configured(&mut self, at: usize, configuration: &Configuration, is_committed: bool) {
        let number = configuration.number();
        let text = if is_committed { ", committed" } else { "" };
        self.say(format_args!("m{at} has configuration {number}{text}"));
        if number < self.members[at].configured {
            self.mark(Mark::ConfigurationCut);
        }
        self.members[at].configured = number;
        if configuration.is_unknown() {
            return;
        }
        let newest = self.group.newest();
        if is_committed && number > newest.number() {
            let has_learnt = newest.learner().is_some_and(|learner| configuration.is_voter(learner.id));
            if has_learnt {
                self.mark(Mark::LearnerVotes);
            }
        }
        if self.oracle.has_not_heard(self.members[at].id) {
            // In a line that an operator's word has given up.
            return;
        }
        self.group.note(configuration, is_committed);
        if is_committed {
            let member = self.members[at].id;
            self.oracle.calls_committed(member, configuration);
            let checked = self.oracle.configuration_known(member, configuration);
            self.check(checked);
        }
    }

    /// A tenure begins: its member votes, as far as its own log says.
    pub(super) fn leads_as_voter(&mut self, at: usize) {
        let member = &self.members[at];
        let Some(driver) = &member.driver else { return };
        let (newest, is_committed) = driver.configuration();
        let id = MemberId(member.id);
        let before = newest.number().checked_sub(1).and_then(|number| self.group.committed.get(&number));
        let votes = configurations::votes(id, newest, before.filter(|_| !is_committed));
        let named = self.group.newest().member(id).map_or(0, |entry| entry.incarnation);
        let is_named = configurations::leads_with(id, member.incarnation, named);
        if !is_committed {
            self.mark(Mark::TakenOverOpen);
        }
        self.check(votes.and(is_named));
    }

    /// Over whom an append was counted that this member calls durable: by its newest configuration once that is committed, else by the one before, and by both
    /// where it `saw` this come into force before the append became durable.
    pub(crate) fn counted(&self, at: usize, saw: bool) -> Vec<Counted> {
        let member = &self.members[at];
        let Some(driver) = &member.driver else { return Vec::new() };
        if self.oracle.has_not_heard(member.id) {
            // What it calls the one before may be of another line since.
            return Vec::new();
        }
        let (newest, is_committed) = driver.configuration();
        let mut counted = Vec::new();
        if is_committed || saw && member.configured_before == newest.number() {
            counted.push(newest);
        }
        if !is_committed {
            let before = newest.number().checked_sub(1);
            counted.extend(before.and_then(|number| self.group.committed.get(&number)));
        }
        let of = |configuration: &Configuration| Counted {
            voters: configuration.voters().map(|voter| usize::from(voter.0)).collect(),
            quorum: configuration.write_quorum(),
        };
        counted.into_iter().filter(|configuration| !configuration.is_unknown()).map(of).collect()
    }

    /// An operator changes the group, if that leaves it with enough members that are whole.
    pub(super) fn operate(&mut self) {
        if !self.is_faulty {
            return;
        }
        let after = self.random.range(self.setting.change_ns / 4, self.setting.change_ns * 7 / 4);
        self.plan(after, What::Operate);
        let Some(at) = self.change_some() else { return };
        if self.random.percent(20) && self.may_die() {
            // While it is not known to be committed.
            let life = self.members[at].life;
            let after = self.random.range(0, 3 * MS);
            self.plan(after, What::Die { member: at, life, has_power: true });
        }
    }

    /// An operator asks for a change. Whom it has asked.
    pub(super) fn change_some(&mut self) -> Option<usize> {
        let at = self.leaders().first().copied()?;
        let (mark, change) = self.chosen_change(at)?;
        self.ask_change(at, mark, change)
    }

    /// An operator has majorities count again, or asks for another change where they do.
    pub(super) fn change_to_majorities(&mut self) -> Option<usize> {
        if self.group.newest().quorums() == Quorums::Majority {
            return self.change_some();
        }
        let at = self.leaders().first().copied()?;
        self.ask_change(at, Mark::QuorumsChanged, Change::Quorums { quorums: Quorums::Majority })
    }

    fn ask_change(&mut self, at: usize, mark: Mark, change: Change) -> Option<usize> {
        let driver = self.members[at].driver.as_ref()?;
        let Ok(next) = driver.check_change(&change) else {
            self.mark(Mark::ChangeRefused);
            return None;
        };
        let memory_counts = self.setting.replicated_allowed;
        let mut group = Group { committed: BTreeMap::from([(0, next.clone())]), open: Vec::new() };
        group.open.extend(self.group.open.iter().cloned());
        if !group.bears(usize::MAX, &|other| self.members[other].lacks_some(memory_counts), &|_, _| true) {
            return None;
        }
        self.events += 1;
        self.say(format_args!("operator asks m{at}: {change:?}"));
        self.mark(mark);
        self.group.note(&next, false);
        match change {
            Change::Add { member, .. } => self.join(member),
            Change::Replace { old, new, .. } => {
                self.join(new);
                self.retire(old);
            }
            Change::Remove { member } => self.retire(member),
            Change::Quorums { .. } => {}
        }
        self.ask(at, Input::Change(change));
        Some(at)
    }

    fn may_die(&self) -> bool {
        self.has(crate::setting::Strike::KillPrimary)
    }

    /// What the operator wants of the one that leads.
    fn chosen_change(&mut self, at: usize) -> Option<(Mark, Change)> {
        let configuration = self.members[at].driver.as_ref()?.configuration().0.clone();
        let voters: Vec<MemberId> = configuration.voters().collect();
        let some = voters[self.random.index(voters.len())];
        let spare = self.members.iter().find(|member| !member.has_joined).map(|member| MemberId(member.id));
        let lost = voters.iter().copied().find(|voter| self.members[usize::from(voter.0)].is_emptied);
        if let (Some(old), true) = (lost, self.random.percent(70)) {
            // Its disk is gone: another one takes its place, or it goes.
            return Some(match spare {
                Some(new) => (Mark::EmptiedReplaced, Change::Replace { old, new, address: None }),
                None => (Mark::MemberRemoved, Change::Remove { member: old }),
            });
        }
        let change = match (self.random.range(0, 10), spare, configuration.learner()) {
            (0, _, Some(learner)) => (Mark::LearnerRemoved, Change::Remove { member: learner.id }),
            (0..=3, Some(member), _) if voters.len() < VOTERS_MAX => {
                (Mark::MemberAdded, Change::Add { member, address: None })
            }
            (4, Some(new), _) => (Mark::MemberReplaced, Change::Replace { old: some, new, address: None }),
            (5..=7, _, _) if voters.len() > VOTERS_MIN || voters.len() > 2 && self.random.percent(20) => {
                let is_leader = some.0 == self.members[at].id;
                let mark = if is_leader { Mark::PrimaryRemoved } else { Mark::MemberRemoved };
                (mark, Change::Remove { member: some })
            }
            _ => (Mark::QuorumsChanged, Change::Quorums { quorums: self.chosen_quorums(voters.len()) }),
        };
        Some(change)
    }

    fn chosen_quorums(&mut self, voters: usize) -> Quorums {
        if self.random.percent(40) || !self.setting.changes_sizes {
            return Quorums::Majority;
        }
        let size = |size: usize| u8::try_from(size).unwrap_or(u8::MAX);
        let write = 1 + self.random.index(voters);
        let takeover = voters + 1 - write + self.random.index(write);
        Quorums::Sizes { write: size(write), takeover: size(takeover) }
    }

    /// A new member is started.
    fn join(&mut self, member: MemberId) {
        let at = usize::from(member.0);
        self.members[at].has_joined = true;
        self.plan(0, What::Open { member: at });
    }

    /// A member whose disk was emptied leads those that have never met its old one, which no record names either, and whoever has met it keeps it out and so can't
    /// follow. That is told at both, and an operator does what the line says: the folder goes. Whether it had to.
    pub(crate) fn stop_who_is_kept_out(&mut self) -> bool {
        let leads = |at: &usize| self.members[*at].is_emptied;
        let Some(leader) = self.leaders().into_iter().find(leads) else { return false };
        let id = self.members[leader].id;
        let follows = |at: &usize| {
            let status = self.members[*at].status();
            status.is_none_or(|status| status.primary == Some(MemberId(id)))
        };
        let is_kept_out = !self.whole_voters().iter().all(follows);
        if is_kept_out {
            self.say(format_args!("operator stops m{leader}, which others keep out"));
            self.retire(MemberId(id));
        }
        is_kept_out
    }

    /// A member whose disk was emptied and that is to go is never started again: with another such one of the first members it would be a group of its own.
    fn retire(&mut self, member: MemberId) {
        let at = usize::from(member.0);
        if self.members[at].is_emptied {
            self.die(at, true);
            self.members[at].is_retired = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds 100767 and 200519: the member that a new one has replaced is gone, and of those who know that it need not be asked any more nobody has it in writing.
    #[test]
    fn the_configuration_before_counts_until_somebody_who_is_left_has_it_in_writing_that_it_does_not() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let replace = Change::Replace { old: MemberId(1), new: MemberId(3), address: None };
        let learning = founding.after(&replace).unwrap();
        let newest = learning.promoted(7).unwrap();
        let committed = [founding, learning, newest].map(|one| (one.number(), one));
        let group = Group { committed: BTreeMap::from(committed), open: Vec::new() };
        let is_gone = |index: usize| index == 1;
        let bears = |at, sure: &[usize]| {
            group.bears(at, &is_gone, &|index, number| number == 2 && sure.contains(&index))
        };
        assert!(!bears(0, &[]) && !bears(2, &[]) && bears(3, &[]));
        assert!(bears(0, &[2]) && bears(3, &[2]) && bears(0, &[3]));
        assert!(!bears(2, &[2]), "the only one that was sure");
        assert!(!bears(0, &[1]), "one that is gone");
    }
}
