//! No member counts with an older configuration than one that it has called committed: alone, or beside that one. A life begins with what its superblock knows to be
//! committed, and that never becomes older either. Looked at after every turn of every driver, at each opening and each end of a life.
//!
//! An operator's word may give up the place of a configuration's record; the configuration counts on. Where who leads behind a word has another one, or only the one before,
//! since nobody that answered knew better, the configuration itself is given up, and its members may count with what the group goes on with.

use std::collections::BTreeMap;

use windlass::engine::Configuration;

use super::{Checked, Invariant, Oracle, violated};

/// What a member may not count below.
#[derive(Debug, Default)]
struct Floor {
    /// The number of the newest configuration that it knows to be committed.
    number: u64,
    /// That one, if it was called committed in this life: then it counts alone.
    called: Option<Configuration>,
    /// The number of the one that its superblock knew to be committed when it was looked at last.
    written: u64,
}

/// By member.
#[derive(Debug, Default)]
pub(super) struct InForce(BTreeMap<u8, Floor>);

impl InForce {
    /// Behind an operator's word the group goes on with this one: what else has its number, or a higher one, was given up.
    pub(super) fn give_up(&mut self, left: &Configuration) {
        for floor in self.0.values_mut() {
            floor.number = floor.number.min(left.number());
            floor.written = floor.written.min(left.number());
            let stays = |called: &Configuration| called == left || called.number() < left.number();
            floor.called = floor.called.take().filter(stays);
        }
    }
}

impl Oracle {
    /// A member calls a configuration committed.
    pub(crate) fn calls_committed(&mut self, member: u8, configuration: &Configuration) {
        let floor = self.in_force.0.entry(member).or_default();
        if configuration.number() >= floor.number {
            (floor.number, floor.called) = (configuration.number(), Some(configuration.clone()));
        }
    }

    /// A member counts with this one, and with the one before, too, unless it calls this one committed.
    pub(crate) fn counts_with(&self, member: u8, newest: u64, is_committed: bool) -> Checked {
        let Some(floor) = self.in_force.0.get(&member) else { return Ok(()) };
        let is_reopened = newest == floor.number && !is_committed && floor.called.is_some();
        if newest >= floor.number && !is_reopened {
            return Ok(());
        }
        let beside = if is_committed { "" } else { ", not known to be committed" };
        violated(
            Invariant::InForce,
            format!(
                "member {member} counts with configuration {newest}{beside}, and has called {} committed",
                floor.number
            ),
        )
    }

    /// A member's superblock knows this one to be committed, at the end of a life or the beginning of the next (`begins`): what was only heard before is not known
    /// any more.
    pub(crate) fn has_in_writing(&mut self, member: u8, number: u64, begins: bool) -> Checked {
        let floor = self.in_force.0.entry(member).or_default();
        if number < floor.written {
            let what = format!(
                "member {member} has configuration {number} in writing as committed, and had {}",
                floor.written
            );
            return violated(Invariant::InForce, what);
        }
        floor.written = number;
        if begins {
            (floor.number, floor.called) = (number, None);
        }
        Ok(())
    }

    /// A member's disk is lost: it knows nothing.
    pub(crate) fn forgets_configurations(&mut self, member: u8) {
        self.in_force.0.remove(&member);
    }
}

#[cfg(test)]
mod tests {
    use windlass::MemberId;
    use windlass::engine::Change;

    use super::*;

    /// The founding configuration and those behind it, each without one more member.
    fn chain() -> [Configuration; 3] {
        let founding = Configuration::founding([0, 1, 2, 3].map(MemberId));
        let without = |of: &Configuration, member| of.after(&Change::Remove { member: MemberId(member) });
        let next = without(&founding, 3).unwrap();
        let last = without(&next, 2).unwrap();
        [founding, next, last]
    }

    /// Member 0 has called the last of the chain committed, and has the one before in writing.
    fn called() -> Oracle {
        let mut oracle = Oracle::default();
        oracle.has_in_writing(0, 1, true).unwrap();
        for configuration in &chain()[1..] {
            oracle.calls_committed(0, configuration);
        }
        oracle
    }

    /// Seed 7103421: what had come again with the log took the place of a configuration that was known to be committed.
    #[test]
    fn who_has_called_a_configuration_committed_counts_with_none_before_r20() {
        let oracle = called();
        assert!(oracle.counts_with(0, 2, true).is_ok());
        assert!(oracle.counts_with(0, 3, false).is_ok(), "the next one beside it");
        assert!(oracle.counts_with(0, 1, true).is_err());
        assert!(oracle.counts_with(0, 1, false).is_err());
        assert!(oracle.counts_with(0, 2, false).is_err(), "the one before counts, too");
        assert!(oracle.counts_with(1, 0, true).is_ok(), "another one has not heard of it");
    }

    #[test]
    fn a_life_knows_what_is_in_writing_and_no_less_than_the_life_before_r20() {
        let mut oracle = called();
        oracle.has_in_writing(0, 1, false).unwrap();
        assert!(oracle.counts_with(0, 1, true).is_err(), "this life has heard more");
        oracle.has_in_writing(0, 1, true).unwrap();
        assert!(oracle.counts_with(0, 1, false).is_ok() && oracle.counts_with(0, 0, true).is_err());
        oracle.has_in_writing(0, 2, false).unwrap();
        assert!(oracle.has_in_writing(0, 1, true).is_err());
        oracle.forgets_configurations(0);
        assert!(oracle.has_in_writing(0, 0, true).is_ok() && oracle.counts_with(0, 0, false).is_ok());
    }

    #[test]
    fn a_word_gives_up_a_configuration_only_where_the_group_goes_on_with_another_r20() {
        let [founding, next, last] = chain();
        let other = next.after(&Change::Remove { member: MemberId(1) }).unwrap();
        let left = |configuration: &Configuration| {
            let mut oracle = called();
            oracle.has_in_writing(0, 2, false).unwrap();
            oracle.configuration_left(configuration);
            oracle
        };
        assert!(left(&last).counts_with(0, 1, true).is_err(), "its place alone was given up");
        assert!(left(&last).counts_with(0, 2, false).is_err());
        assert!(left(&last).has_in_writing(0, 1, true).is_err());
        assert!(
            left(&other).counts_with(0, 2, false).is_ok() && left(&other).counts_with(0, 1, true).is_err()
        );
        assert!(left(&next).counts_with(0, 1, true).is_ok() && left(&next).counts_with(0, 0, true).is_err());
        assert!(left(&next).has_in_writing(0, 1, true).is_ok());
        assert!(left(&founding).counts_with(0, 0, true).is_ok());
    }
}
