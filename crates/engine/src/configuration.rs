//! A group's configuration: who its members are, who of them votes, and how many make a quorum.
//!
//! A configuration is a value: a change makes the next one, with the next number. What each size means:
//!
//! * a *write quorum* of voters holds whatever is committed;
//! * a *takeover quorum* of voters promises an epoch before it leads.
//!
//! Every write quorum meets every takeover quorum, `write + takeover > voters`, and that is all that safety needs of them:
//! two write quorums need not meet, nor two takeover quorums. [`Configuration`] can't be made otherwise. DESIGN.md section 8.11.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use windlass_log::MemberId;

mod codec;

pub use codec::{CONFIGURATION_BYTES_MAX, CONFIGURATION_VERSION, ConfigurationDecodeError};

/// How many voters make a quorum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Quorums {
    /// More than half, for commits and takeovers alike.
    #[default]
    Majority,
    /// Sizes of their own, both durable: in a configuration of another size they follow as [`Configuration::after`] says.
    Sizes {
        /// What commits: 1 to the number of voters.
        write: u8,
        /// What fences: 1 to the number of voters, and together with `write` more than the voters.
        takeover: u8,
    },
}

/// Sizes of quorums that can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum QuorumError {
    /// A write quorum and a takeover quorum could have no member in common: a takeover could miss what was committed.
    #[error(
        "a write quorum of {write} and a takeover quorum of {takeover} of {voters} voters can miss each other: \
         make them {} together at least, such as a write quorum of {write} and a takeover quorum of {}",
        voters + 1, (voters + 1).saturating_sub(usize::from(*write))
    )]
    Disjoint {
        /// The voters.
        voters: usize,
        /// The write quorum.
        write: u8,
        /// The takeover quorum.
        takeover: u8,
    },
    /// A size that no quorum can have.
    #[error("a {which} quorum of {found} of {voters} voters: choose 1 to {voters}")]
    Size {
        /// Which of the two.
        which: &'static str,
        /// Its size.
        found: u8,
        /// The voters.
        voters: usize,
    },
}

impl Quorums {
    /// The sizes for so many voters, write quorum first.
    #[must_use]
    pub fn sizes(self, voters: usize) -> (usize, usize) {
        match self {
            Quorums::Majority => (voters / 2 + 1, voters / 2 + 1),
            Quorums::Sizes { write, takeover } => (usize::from(write), usize::from(takeover)),
        }
    }

    /// Whether these sizes can be used for so many voters.
    ///
    /// # Errors
    ///
    /// [`QuorumError`], with sizes that could.
    pub fn check(self, voters: usize) -> Result<(), QuorumError> {
        let Quorums::Sizes { write, takeover } = self else { return Ok(()) };
        for (which, found) in [("write", write), ("takeover", takeover)] {
            if found == 0 || usize::from(found) > voters {
                return Err(QuorumError::Size { which, found, voters });
            }
        }
        if usize::from(write) + usize::from(takeover) <= voters {
            return Err(QuorumError::Disjoint { voters, write, takeover });
        }
        Ok(())
    }

    /// The sizes that go with one voter more, or with one less: the write quorum stays where it can, and the two still meet.
    fn resized(self, voters: usize, grows: bool) -> Quorums {
        match self {
            Quorums::Majority => Quorums::Majority,
            Quorums::Sizes { write, takeover } if grows => {
                Quorums::Sizes { write, takeover: takeover.saturating_add(1) }
            }
            Quorums::Sizes { write, takeover } => Quorums::Sizes {
                write: write.min(u8::try_from(voters).unwrap_or(u8::MAX)),
                takeover: takeover.saturating_sub(1).max(1),
            },
        }
    }
}

/// What a member is in its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// Counts for quorums, and may lead.
    Voter,
    /// Takes the log and counts for nothing. Its primary makes it a voter once it has caught up.
    Learner {
        /// The voter that leaves the moment this one votes.
        replaces: Option<MemberId>,
    },
}

/// One member of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberEntry {
    /// Its number. A number is given to one disk, once.
    pub id: MemberId,
    /// What it is.
    pub standing: Standing,
    /// The incarnation of its disk; 0 while no record of the log names one: then the one that was met first counts. A record names a voter's once its primary
    /// knows it ([`Configuration::naming`]), and what is named stays.
    pub incarnation: u64,
    /// Where its control plane listens, if that is known.
    pub address: Option<SocketAddr>,
}

/// Who belongs to a group. See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Configuration {
    number: u64,
    highest: MemberId,
    quorums: Quorums,
    /// By number.
    members: Vec<MemberEntry>,
}

/// What an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// A new member, as a learner first.
    Add {
        /// Its number, above all that were ever given.
        member: MemberId,
        /// Where its control plane listens.
        address: Option<SocketAddr>,
    },
    /// A member leaves: a voter, or a learner that is not to become one.
    Remove {
        /// Which.
        member: MemberId,
    },
    /// A new member takes the place of an old one: as a learner first, then both in one change.
    Replace {
        /// The voter that leaves.
        old: MemberId,
        /// The new one's number, above all that were ever given.
        new: MemberId,
        /// Where its control plane listens.
        address: Option<SocketAddr>,
    },
    /// Other sizes of quorums.
    Quorums {
        /// The sizes.
        quorums: Quorums,
    },
}

/// The number that a new member takes, above the highest that was given.
struct Next(MemberId);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0.checked_add(1) {
            Some(next) => write!(f, "the next free number is {next}"),
            None => f.write_str("there is no free one any more: make a new group, and take the records over"),
        }
    }
}

/// Why a change is refused. Nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum ChangeError {
    /// Only a primary changes the configuration.
    #[error("this member is not primary: ask the primary")]
    NotPrimary,
    /// One change at a time.
    #[error("configuration {number} is not committed yet: wait until it is")]
    Pending {
        /// Its number.
        number: u64,
    },
    /// A learner is still catching up.
    #[error("{learner} is still catching up: wait until it votes, or remove it")]
    LearnerPending {
        /// Which.
        learner: MemberId,
    },
    /// No record of this tenure is committed yet.
    #[error("the tenure has committed nothing yet: try again in a moment")]
    TenureTooYoung,
    /// The number was given before, or one above it.
    #[error("{member} can't be given: numbers rise, since each belongs to one disk for ever, and m{} is the highest that was ever given; {}", highest.0, Next(*highest))]
    NumberUsed {
        /// The number.
        member: MemberId,
        /// The highest that was ever given.
        highest: MemberId,
    },
    /// Too few of its voters follow: with it nothing would be committed.
    #[error(
        "{reached} voters of the new configuration follow, and {needed} must hold what is committed: wait until they do"
    )]
    OutOfReach {
        /// How many follow, the primary among them if it votes.
        reached: usize,
        /// The write quorum.
        needed: usize,
    },
    /// No such member.
    #[error("{member} is no member of configuration {number}")]
    NotAMember {
        /// The number asked for.
        member: MemberId,
        /// The configuration's.
        number: u64,
    },
    /// It does not vote.
    #[error("{member} does not vote: remove it instead of replacing it")]
    NotAVoter {
        /// Which.
        member: MemberId,
    },
    /// There are as many as can be.
    #[error("a group has at most {max} voters: remove one first")]
    TooMany {
        /// The most.
        max: usize,
    },
    /// Nobody would be left.
    #[error("{member} is the last voter: a group has at least one")]
    LastVoter {
        /// Which.
        member: MemberId,
    },
    /// The sizes can't be used.
    #[error(transparent)]
    Quorums(#[from] QuorumError),
}

impl Configuration {
    /// The most voters of a group.
    pub const VOTERS_MAX: usize = 15;
    /// The most members: the voters, and one that learns.
    pub const MEMBERS_MAX: usize = Configuration::VOTERS_MAX + 1;

    /// The configuration that a group begins with: these voters, and majorities.
    #[must_use]
    pub fn founding(voters: impl IntoIterator<Item = MemberId>) -> Configuration {
        let entry = |id| MemberEntry { id, standing: Standing::Voter, incarnation: 0, address: None };
        let mut members: Vec<MemberEntry> = voters.into_iter().map(entry).collect();
        members.sort_unstable_by_key(|member| member.id);
        let highest = members.last().map_or(MemberId(0), |member| member.id);
        Configuration { number: 0, highest, quorums: Quorums::Majority, members }
    }

    /// The configuration of a member that is to be added to a group and knows nothing of it yet: nobody votes.
    #[must_use]
    pub fn unknown() -> Configuration {
        Configuration::founding([])
    }

    /// The same with these sizes.
    ///
    /// # Errors
    ///
    /// [`QuorumError`].
    pub fn with_quorums(mut self, quorums: Quorums) -> Result<Configuration, QuorumError> {
        quorums.check(self.voters_len())?;
        self.quorums = quorums;
        Ok(self)
    }

    /// The same with the address of a member; of no member, the same.
    #[must_use]
    pub fn with_address(mut self, member: MemberId, address: SocketAddr) -> Configuration {
        for entry in self.members.iter_mut().filter(|entry| entry.id == member) {
            entry.address = Some(plain(address));
        }
        self
    }

    /// How many changes came before it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The highest number that was ever given to a member.
    #[must_use]
    pub fn highest(&self) -> MemberId {
        self.highest
    }

    /// How the quorums are chosen.
    #[must_use]
    pub fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// The members, by number.
    #[must_use]
    pub fn members(&self) -> &[MemberEntry] {
        &self.members
    }

    /// The voters, by number.
    pub fn voters(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.members.iter().filter(|member| member.standing == Standing::Voter).map(|member| member.id)
    }

    /// The member that learns, if one does.
    #[must_use]
    pub fn learner(&self) -> Option<&MemberEntry> {
        self.members.iter().find(|member| member.standing != Standing::Voter)
    }

    /// The member of this number.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&MemberEntry> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Whether this member votes.
    #[must_use]
    pub fn is_voter(&self, id: MemberId) -> bool {
        self.member(id).is_some_and(|member| member.standing == Standing::Voter)
    }

    /// Whether nobody votes: it is the one of a member that knows of none.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.voters_len() == 0
    }

    /// How many voters hold what is committed.
    #[must_use]
    pub fn write_quorum(&self) -> usize {
        self.quorums.sizes(self.voters_len()).0
    }

    /// How many voters promise an epoch before it leads.
    #[must_use]
    pub fn takeover_quorum(&self) -> usize {
        self.quorums.sizes(self.voters_len()).1
    }

    /// How many voters it needs to lead and to commit: whoever reaches fewer need not try.
    #[must_use]
    pub fn useful_quorum(&self) -> usize {
        self.write_quorum().max(self.takeover_quorum())
    }

    /// Whether these members hold a write quorum.
    #[must_use]
    pub fn is_write_quorum(&self, members: &[MemberId]) -> bool {
        self.count(members) >= self.write_quorum() && !self.is_unknown()
    }

    /// Whether these members hold a takeover quorum.
    #[must_use]
    pub fn is_takeover_quorum(&self, members: &[MemberId]) -> bool {
        let missing = usize::from(windlass_log::planted!(R20));
        self.count(members) + missing >= self.takeover_quorum() && !self.is_unknown()
    }

    /// Whether these members have one in common with every write quorum. A takeover quorum has.
    #[must_use]
    pub fn meets_write_quorums(&self, members: &[MemberId]) -> bool {
        self.count(members) + self.write_quorum() > self.voters_len() && !self.is_unknown()
    }

    /// How many of these members vote.
    #[must_use]
    pub fn count(&self, members: &[MemberId]) -> usize {
        self.voters().filter(|voter| members.contains(voter)).count()
    }

    /// Whether the other one is the same but for addresses and the disks that are named; one of nobody is like every other.
    #[must_use]
    pub fn is_alike(&self, other: &Configuration) -> bool {
        let same = |a: &MemberEntry, b: &MemberEntry| (a.id, a.standing) == (b.id, b.standing);
        self.is_unknown()
            || other.is_unknown()
            || (self.quorums, self.number) == (other.quorums, other.number)
                && self.members.len() == other.members.len()
                && self.members.iter().zip(&other.members).all(|(a, b)| same(a, b))
    }

    fn voters_len(&self) -> usize {
        self.voters().count()
    }

    /// The next configuration. Sizes follow the number of voters: majorities stay majorities; a write quorum keeps its size where
    /// it can, and the takeover quorum grows and shrinks by one with the voters.
    ///
    /// # Errors
    ///
    /// [`ChangeError`]; never [`ChangeError::NotPrimary`], [`ChangeError::Pending`], [`ChangeError::TenureTooYoung`] or
    /// [`ChangeError::OutOfReach`], which are the primary's to say.
    pub fn after(&self, change: &Change) -> Result<Configuration, ChangeError> {
        let mut next = Configuration { number: self.number + 1, ..self.clone() };
        match *change {
            Change::Add { member, address } => next.learn(member, address, None)?,
            Change::Replace { old, new, address } => match self.member(old).map(|entry| entry.standing) {
                Some(Standing::Voter) => next.learn(new, address, Some(old))?,
                Some(Standing::Learner { .. }) => return Err(ChangeError::NotAVoter { member: old }),
                None => return Err(ChangeError::NotAMember { member: old, number: self.number }),
            },
            Change::Remove { member } => next.remove(member)?,
            Change::Quorums { quorums } => {
                quorums.check(self.voters_len())?;
                next.quorums = quorums;
            }
        }
        Ok(next)
    }

    fn learn(
        &mut self,
        id: MemberId,
        address: Option<SocketAddr>,
        replaces: Option<MemberId>,
    ) -> Result<(), ChangeError> {
        if let Some(learner) = self.learner() {
            return Err(ChangeError::LearnerPending { learner: learner.id });
        }
        // So a number is never given twice, and the new member is the one that dials: members that have not heard of it need no address.
        if id <= self.highest {
            return Err(ChangeError::NumberUsed { member: id, highest: self.highest });
        }
        if replaces.is_none() && self.voters_len() == Configuration::VOTERS_MAX {
            return Err(ChangeError::TooMany { max: Configuration::VOTERS_MAX });
        }
        self.highest = id;
        let (standing, address) = (Standing::Learner { replaces }, address.map(plain));
        self.members.push(MemberEntry { id, standing, incarnation: 0, address });
        Ok(())
    }

    fn remove(&mut self, member: MemberId) -> Result<(), ChangeError> {
        let Some(entry) = self.member(member) else {
            return Err(ChangeError::NotAMember { member, number: self.number - 1 });
        };
        let is_voter = entry.standing == Standing::Voter;
        if is_voter && self.voters_len() == 1 {
            return Err(ChangeError::LastVoter { member });
        }
        // The one that was to replace it just joins now: the group's size stays as it was asked for by neither, so nobody replaces nobody.
        if let Some(learner) = self.learner().filter(|learner| is_voter && learner.id != member) {
            return Err(ChangeError::LearnerPending { learner: learner.id });
        }
        self.members.retain(|entry| entry.id != member);
        if is_voter {
            self.quorums = self.quorums.resized(self.voters_len(), false);
        }
        Ok(())
    }

    /// The next configuration, in which the learner votes, with this incarnation of its disk, and whom it replaces is gone. `None`: nobody
    /// learns.
    #[must_use]
    pub fn promoted(&self, incarnation: u64) -> Option<Configuration> {
        let learner = *self.learner()?;
        let Standing::Learner { replaces } = learner.standing else { return None };
        let mut next = Configuration { number: self.number + 1, ..self.clone() };
        for entry in next.members.iter_mut().filter(|entry| entry.id == learner.id) {
            (entry.standing, entry.incarnation) = (Standing::Voter, incarnation);
        }
        match replaces {
            Some(old) => next.members.retain(|entry| entry.id != old),
            None => next.quorums = next.quorums.resized(next.voters_len(), true),
        }
        Some(next)
    }

    /// The same, where each voter whose disk no record has named is named with the incarnation that `known` has of it; `None`: nobody knows. What is named stays, and
    /// who learns is named when it votes ([`Configuration::promoted`]).
    ///
    /// So who joins later, and has never met a first member's disk, refuses another one under that member's number (kind 55).
    #[must_use]
    pub fn naming(mut self, known: impl Fn(MemberId) -> Option<u64>) -> Configuration {
        let is_unnamed =
            |entry: &&mut MemberEntry| entry.standing == Standing::Voter && entry.incarnation == 0;
        for entry in self.members.iter_mut().filter(is_unnamed) {
            entry.incarnation = known(entry.id).unwrap_or(0);
        }
        self
    }

    /// What must be true of every configuration: asserted wherever one comes into being or is counted with.
    ///
    /// # Panics
    ///
    /// If a write quorum and a takeover quorum could miss each other, or the members contradict each other.
    pub(crate) fn check(&self) {
        let voters = self.voters_len();
        assert!(
            voters <= Configuration::VOTERS_MAX,
            "{voters} voters, at most {} may be",
            Configuration::VOTERS_MAX
        );
        assert!(
            self.members.windows(2).all(|pair| pair[0].id < pair[1].id),
            "a member is there twice, or they are not in order: {:?}",
            self.members
        );
        if voters > 0 {
            quorums_meet(self);
        }
    }
}

/// An address as a record keeps it: without the scope and flow that a version 6 one has on one machine alone.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// R-20, and the ground of I-2: whoever takes over meets somebody who holds what was committed.
///
/// # Panics
///
/// If they need not meet.
fn quorums_meet(configuration: &Configuration) {
    let (write, takeover) = (configuration.write_quorum(), configuration.takeover_quorum());
    let voters = configuration.voters_len();
    assert!(
        write + takeover > voters && write <= voters && takeover <= voters,
        "R-20: a write quorum of {write} and a takeover quorum of {takeover} of {voters} voters can miss each other"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn founding(voters: u8) -> Configuration {
        Configuration::founding((0..voters).map(MemberId))
    }

    fn sized(voters: u8, write: u8, takeover: u8) -> Result<Configuration, QuorumError> {
        founding(voters).with_quorums(Quorums::Sizes { write, takeover })
    }

    /// All subsets of so many voters.
    fn subsets(voters: u8) -> impl Iterator<Item = Vec<MemberId>> {
        (0_u32..1 << voters)
            .map(move |bits| (0..voters).filter(|v| bits & 1 << v != 0).map(MemberId).collect())
    }

    #[test]
    fn quorums_of_every_accepted_configuration_meet_and_of_every_refused_one_some_do_not() {
        for voters in 1..=6 {
            for (write, takeover) in (0..=voters + 1).flat_map(|w| (0..=voters + 1).map(move |t| (w, t))) {
                let meets = || {
                    subsets(voters).filter(|set| set.len() >= usize::from(write)).all(|a| {
                        subsets(voters)
                            .filter(|set| set.len() >= usize::from(takeover))
                            .all(|b| a.iter().any(|member| b.contains(member)))
                    })
                };
                let range = 1..=voters;
                match sized(voters, write, takeover) {
                    Ok(configuration) => {
                        assert!(meets(), "{voters} voters, {write}/{takeover}");
                        configuration.check();
                    }
                    Err(QuorumError::Disjoint { .. }) => {
                        assert!(!meets(), "{voters} voters, {write}/{takeover}")
                    }
                    Err(QuorumError::Size { .. }) => {
                        assert!(!range.contains(&write) || !range.contains(&takeover))
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_that_miss_each_other_are_refused_with_the_remedy() {
        assert!(sized(3, 3, 1).is_ok() && sized(5, 2, 4).is_ok() && sized(5, 4, 2).is_ok());
        let refused = sized(5, 2, 3).unwrap_err();
        assert_eq!(refused, QuorumError::Disjoint { voters: 5, write: 2, takeover: 3 });
        let text = alloc::format!("{refused}");
        assert!(
            text.ends_with(
                "make them 6 together at least, such as a write quorum of 2 and a takeover quorum of 4"
            ),
            "{text}"
        );
        assert_eq!(sized(3, 4, 1), Err(QuorumError::Size { which: "write", found: 4, voters: 3 }));
        assert_eq!(sized(3, 3, 0), Err(QuorumError::Size { which: "takeover", found: 0, voters: 3 }));
    }

    #[test]
    fn a_number_is_given_once_and_one_member_learns_at_a_time() {
        let add = |member| Change::Add { member: MemberId(member), address: None };
        let one = founding(3).after(&add(3)).unwrap();
        assert_eq!((one.number(), one.highest(), one.write_quorum()), (1, MemberId(3), 2));
        assert_eq!(one.after(&add(4)), Err(ChangeError::LearnerPending { learner: MemberId(3) }));
        assert_eq!(
            one.after(&Change::Remove { member: MemberId(0) }),
            Err(ChangeError::LearnerPending { learner: MemberId(3) })
        );
        let two = one.promoted(77).unwrap();
        assert_eq!((two.write_quorum(), two.takeover_quorum()), (3, 3));
        assert_eq!(two.member(MemberId(3)).unwrap().incarnation, 77);
        let three = two.after(&Change::Remove { member: MemberId(3) }).unwrap();
        let used = ChangeError::NumberUsed { member: MemberId(3), highest: MemberId(3) };
        assert_eq!(three.after(&add(3)), Err(used));
        let replace = Change::Replace { old: MemberId(1), new: MemberId(9), address: None };
        let four = three.after(&replace).unwrap().promoted(5).unwrap();
        assert_eq!(four.voters().collect::<Vec<_>>(), [0, 2, 9].map(MemberId));
        let mut last = four;
        for gone in [0, 2] {
            last = last.after(&Change::Remove { member: MemberId(gone) }).unwrap();
        }
        let refused = last.after(&Change::Remove { member: MemberId(9) });
        assert_eq!(refused, Err(ChangeError::LastVoter { member: MemberId(9) }));
    }

    #[test]
    fn sizes_follow_the_number_of_voters_and_still_meet() {
        for (voters, write, takeover) in [(3, 3, 1), (5, 2, 4), (5, 4, 2), (3, 2, 2), (1, 1, 1), (4, 1, 4)] {
            let mut configuration = sized(voters, write, takeover).unwrap();
            for member in voters..voters + 4 {
                let add = Change::Add { member: MemberId(member), address: None };
                configuration = configuration.after(&add).unwrap();
                configuration.check();
                configuration = configuration.promoted(1).unwrap();
                configuration.check();
            }
            for member in (1..voters + 4).rev() {
                configuration = configuration.after(&Change::Remove { member: MemberId(member) }).unwrap();
                configuration.check();
            }
        }
    }

    #[test]
    fn a_write_quorum_keeps_its_size_where_it_can_and_the_takeover_quorum_follows_the_voters() {
        let sizes =
            |configuration: &Configuration| (configuration.write_quorum(), configuration.takeover_quorum());
        let add = Change::Add { member: MemberId(5), address: None };
        let six = sized(5, 2, 4).unwrap().after(&add).unwrap().promoted(1).unwrap();
        assert_eq!((sizes(&six), six.quorums()), ((2, 5), Quorums::Sizes { write: 2, takeover: 5 }));
        let mut fewer = sized(3, 3, 1).unwrap();
        for (gone, left) in [(2, (2, 1)), (1, (1, 1))] {
            fewer = fewer.after(&Change::Remove { member: MemberId(gone) }).unwrap();
            assert_eq!(sizes(&fewer), left);
        }
        let seven = founding(7).after(&Change::Remove { member: MemberId(6) }).unwrap();
        assert_eq!((sizes(&seven), seven.quorums()), ((4, 4), Quorums::Majority));
    }

    #[test]
    fn who_meets_every_write_quorum_is_exactly_who_misses_none() {
        for (voters, write, takeover) in [(5, 2, 4), (5, 4, 2), (3, 2, 2), (3, 3, 1), (1, 1, 1)] {
            let configuration = sized(voters, write, takeover).unwrap();
            for set in subsets(voters) {
                let meets = subsets(voters)
                    .filter(|other| configuration.is_write_quorum(other))
                    .all(|other| other.iter().any(|member| set.contains(member)));
                assert_eq!(
                    configuration.meets_write_quorums(&set),
                    meets,
                    "{set:?} of {voters}, {write}/{takeover}"
                );
                assert!(meets || !configuration.is_takeover_quorum(&set));
                assert_eq!(configuration.is_write_quorum(&set), set.len() >= usize::from(write));
                assert_eq!(configuration.is_takeover_quorum(&set), set.len() >= usize::from(takeover));
            }
        }
    }

    #[test]
    fn kind_55_voters_are_named_once_and_who_learns_is_not() {
        let disks = |configuration: &Configuration| {
            configuration.members().iter().map(|entry| entry.incarnation).collect::<Vec<_>>()
        };
        let add = Change::Add { member: MemberId(3), address: None };
        let known = |member: MemberId| (member != MemberId(1)).then(|| 100 + u64::from(member.0));
        let learns = founding(3).after(&add).unwrap().naming(known);
        assert_eq!(disks(&learns), [100, 0, 102, 0], "whom nobody has met stays without a name");
        let votes = learns.promoted(203).unwrap().naming(|member| Some(300 + u64::from(member.0)));
        assert_eq!(disks(&votes), [100, 301, 102, 203], "what is named stays");
        let fewer = votes.after(&Change::Remove { member: MemberId(0) }).unwrap().naming(|_| None);
        assert_eq!(disks(&fewer), [301, 102, 203], "it goes along in every change");
        assert!(learns.is_alike(&founding(3).after(&add).unwrap()));
    }

    #[test]
    fn configurations_are_alike_but_for_addresses() {
        let three = founding(3);
        let address = Some(SocketAddr::from(([127, 0, 0, 1], 7000)));
        let mut moved = three.clone();
        moved.members[1].address = address;
        assert!(three.is_alike(&moved) && three.is_alike(&three));
        let mut numbered = three.clone();
        numbered.number += 1;
        let mut standing = three.clone();
        standing.members[2].standing = Standing::Learner { replaces: None };
        let mut other = three.clone();
        other.members[2].id = MemberId(9);
        for different in [founding(5), sized(3, 3, 1).unwrap(), numbered, standing, other] {
            assert!(!three.is_alike(&different) && !different.is_alike(&three), "{different:?}");
        }
    }

    #[test]
    #[should_panic(expected = "R-20: a write quorum of 2 and a takeover quorum of 1")]
    fn sizes_that_miss_each_other_are_never_counted_with_r20() {
        let mut configuration = founding(3);
        configuration.quorums = Quorums::Sizes { write: 2, takeover: 1 };
        configuration.check();
    }

    #[test]
    #[should_panic(expected = "R-20: a write quorum of 4")]
    fn a_write_quorum_of_more_than_there_are_is_never_counted_with_r20() {
        let mut configuration = founding(3);
        configuration.quorums = Quorums::Sizes { write: 4, takeover: 1 };
        configuration.check();
    }

    #[test]
    #[should_panic(expected = "a member is there twice, or they are not in order")]
    fn members_are_in_order_and_there_once() {
        let mut configuration = founding(3);
        configuration.members[2].id = MemberId(1);
        configuration.check();
    }
}
