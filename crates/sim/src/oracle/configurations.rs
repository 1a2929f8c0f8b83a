//! Configurations: what is committed has each of them once, each one change away from the one before, and all members that call one committed call the
//! same one that. Who leads votes in its own log; what is called durable is on a write quorum of its configuration's voters, and
//! nobody else's medium counts ([`super::medium`]).

use std::collections::BTreeMap;

use windlass::engine::{Change, Configuration, Standing};
use windlass::{Lsn, MemberId};

use super::{Checked, Invariant, Oracle, violated};

/// What was seen of them.
#[derive(Debug, Default)]
pub(crate) struct Configurations {
    /// By number: what is committed, or called that.
    known: BTreeMap<u64, Configuration>,
    /// The last one that was published, by its place.
    last: Option<(Lsn, u64)>,
}

impl Configurations {
    /// What is committed from here on was given up by an operator's word.
    pub(super) fn give_up(&mut self, from: Lsn) {
        if let Some((_, number)) = self.last.take_if(|(at, _)| *at >= from) {
            self.known.split_off(&number);
        }
    }
}

impl Oracle {
    /// Where the newest one was published.
    pub(crate) fn configuration_place(&self) -> Option<(Lsn, u64)> {
        self.configurations.last
    }

    /// Behind an operator's word a tenure begins with this one: whatever else has its number, or a higher one, was given up.
    pub(crate) fn configuration_left(&mut self, newest: &Configuration) {
        self.in_force.give_up(newest);
        let known = &mut self.configurations.known;
        let others = known.split_off(&newest.number());
        known.extend(others.into_iter().filter(|(_, other)| other == newest));
        if self.configurations.last.is_some_and(|(_, number)| number > newest.number()) {
            self.configurations.last = None;
        }
    }

    /// A member calls a configuration committed.
    pub(crate) fn configuration_known(&mut self, member: u8, configuration: &Configuration) -> Checked {
        let number = configuration.number();
        if let Err(error) = configuration.quorums().check(configuration.voters().count()) {
            return violated(Invariant::Configurations, format!("configuration {number}: {error}"));
        }
        let known = self.configurations.known.entry(number).or_insert_with(|| configuration.clone());
        if known != configuration {
            return violated(
                Invariant::Configurations,
                format!("member {member} calls {configuration:?} committed, others {known:?}"),
            );
        }
        let before = number.checked_sub(1).and_then(|number| self.configurations.known.get(&number));
        match before {
            Some(before) if !follows(before, configuration) => violated(
                Invariant::Configurations,
                format!("{configuration:?} is more than one change away from {before:?}"),
            ),
            Some(_) | None => Ok(()),
        }
    }

    /// A record that carries a configuration is published as durable for the first time.
    pub(crate) fn configuration_published(&mut self, member: u8, start: Lsn, payload: &[u8]) -> Checked {
        let configuration = match Configuration::decode(payload) {
            Ok(configuration) => configuration,
            Err(error) => {
                return violated(
                    Invariant::Configurations,
                    format!("the record at {start} can't be read: {error}"),
                );
            }
        };
        let number = configuration.number();
        if let Some((at, last)) = self.configurations.last
            && (last >= number) == (at < start)
        {
            return violated(
                Invariant::Configurations,
                format!("configuration {number} is committed at {start}, and {last} at {at}"),
            );
        }
        self.configurations.last = Some((start, number));
        self.configuration_known(member, &configuration)
    }
}

/// Who leads votes: in its newest configuration, or, where that is not known to be committed, in the one before.
pub(crate) fn votes(member: MemberId, newest: &Configuration, before: Option<&Configuration>) -> Checked {
    if newest.is_voter(member) || before.is_some_and(|before| before.is_voter(member)) {
        return Ok(());
    }
    violated(Invariant::Configurations, format!("member {} leads and does not vote in {newest:?}", member.0))
}

/// Who leads has the disk that the group has `named`, if it has (kind 55): a quorum has that record, and keeps any other one out. 0: none is named.
pub(crate) fn leads_with(member: MemberId, own: u64, named: u64) -> Checked {
    if named == 0 || named == own {
        return Ok(());
    }
    violated(
        Invariant::Configurations,
        format!("member {} leads with the disk {own:x}, and the group has named {named:x}", member.0),
    )
}

/// Whether one change makes the second of the first. It names the disks that the first names, and may name those of voters whose disk nobody has named yet (kind 55).
fn follows(before: &Configuration, after: &Configuration) -> bool {
    let named = |next: Configuration| next.naming(|voter| after.member(voter).map(|entry| entry.incarnation));
    let removed = before.members().iter().map(|entry| Change::Remove { member: entry.id });
    let learner = after.learner().map(|entry| match entry.standing {
        Standing::Learner { replaces: Some(old) } => {
            Change::Replace { old, new: entry.id, address: entry.address }
        }
        Standing::Learner { replaces: None } | Standing::Voter => {
            Change::Add { member: entry.id, address: entry.address }
        }
    });
    let sizes = Change::Quorums { quorums: after.quorums() };
    let is_change = removed
        .chain(learner)
        .chain([sizes])
        .any(|change| before.after(&change).is_ok_and(|next| named(next) == *after));
    let promoted = before
        .learner()
        .and_then(|learner| after.member(learner.id))
        .and_then(|entry| before.promoted(entry.incarnation));
    is_change || promoted.is_some_and(|next| named(next) == *after)
}

#[cfg(test)]
mod tests {
    use windlass::engine::Quorums;

    use super::*;

    #[test]
    fn one_change_makes_the_next_configuration_and_two_do_not() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let changes = [
            Change::Add { member: MemberId(3), address: None },
            Change::Replace { old: MemberId(1), new: MemberId(4), address: None },
            Change::Remove { member: MemberId(0) },
            Change::Quorums { quorums: Quorums::Sizes { write: 2, takeover: 3 } },
        ];
        for change in &changes {
            let next = founding.after(change).unwrap();
            assert!(follows(&founding, &next), "{change:?}");
            if let Some(later) = next.promoted(7) {
                assert!(follows(&next, &later) && !follows(&founding, &later), "{change:?}");
            } else {
                let later = next.after(&Change::Remove { member: MemberId(2) }).unwrap();
                assert!(!follows(&founding, &later), "{change:?}");
            }
        }
        assert!(!follows(&founding, &founding));
    }

    #[test]
    fn kind_55_a_change_may_name_disks_and_takes_no_name_back() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let add = Change::Add { member: MemberId(3), address: None };
        let named = |configuration: Configuration, from: u64| {
            configuration.naming(|member| (member != MemberId(2)).then(|| from + u64::from(member.0)))
        };
        let learns = named(founding.after(&add).unwrap(), 100);
        assert!(follows(&founding, &learns));
        let votes = learns.promoted(103).unwrap();
        assert!(follows(&learns, &votes));
        assert!(follows(&learns, &votes.clone().naming(|_| Some(102))), "who is met later");
        let other = named(founding.after(&add).unwrap(), 200);
        assert!(follows(&founding, &other) && !follows(&other, &votes), "another disk under its number");
        let unnamed = founding.after(&add).unwrap();
        assert!(!follows(&learns, &unnamed.promoted(103).unwrap()), "none any more");
    }

    #[test]
    fn another_configuration_of_one_number_and_one_that_comes_twice_are_violations() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let one = founding.after(&Change::Remove { member: MemberId(0) }).unwrap();
        let other = founding.after(&Change::Remove { member: MemberId(1) }).unwrap();
        let mut oracle = Oracle::default();
        assert!(oracle.configuration_known(0, &founding).is_ok());
        assert!(oracle.configuration_known(1, &one).is_ok());
        assert!(oracle.configuration_known(2, &other).is_err());
        assert!(oracle.configuration_published(0, Lsn(5000), &one.encode()).is_ok());
        assert!(oracle.configuration_published(0, Lsn(6000), &one.encode()).is_err());
        let two = one.after(&Change::Remove { member: MemberId(1) }).unwrap();
        assert!(oracle.configuration_published(0, Lsn(4500), &two.encode()).is_err());
    }
}
