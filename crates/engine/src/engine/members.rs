//! Which configurations count, and how a primary changes them. DESIGN.md section 8.11.
//!
//! A member's configuration is the newest one in its valid log; the founding one stands before the log. While the newest is not known
//! to be committed its predecessor is *in force*, too, and everything is counted over both: commits, promises, votes, who was heard.
//!
//! Invariants: a configuration is only proposed when the one before it is committed, and a record of this tenure (I-2, R-20); the superblock
//! has each configuration record before anything behind its start is flushed, so that what is persisted is never behind an unknown
//! configuration.

use alloc::boxed::Box;
use alloc::vec::Vec;

use windlass_log::{Lsn, MemberId};

use super::Engine;
use super::core::Core;
use super::peer::{Peer, Phase};
use crate::{
    Change, ChangeError, Command, Configuration, ConfigurationRecord, Event, MemberEntry, Message, Persisted,
    StopReason, Token,
};

/// Those of a log that count: the newest that it holds whole, and the one before it unless the newest is committed. `records` by position;
/// the first is committed.
pub(super) fn in_force(records: &[ConfigurationRecord], tail: Lsn, durable: Lsn) -> &[ConfigurationRecord] {
    let newest = records.iter().rposition(|record| record.end <= tail).unwrap_or(0);
    let is_committed = records.get(newest).is_none_or(|record| record.end <= durable);
    let is_alone = is_committed || windlass_log::planted!(PredecessorForgotten);
    let first = if is_alone { newest } else { newest.saturating_sub(1) };
    records.get(first..=newest).unwrap_or(&[])
}

/// A save of configurations that were found, not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unsaved {
    token: Token,
    /// Nothing at or behind the first of their records is flushed meanwhile.
    start: Lsn,
}

#[cfg(feature = "explore")]
impl Unsaved {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        visit(&mut self.token);
    }
}

impl Core {
    /// The configurations that count here and now, oldest first: one or two.
    pub(super) fn in_force(&self) -> &[ConfigurationRecord] {
        in_force(&self.state.configurations, self.log.tail, self.durable)
    }

    /// The same without their places.
    pub(super) fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        self.in_force().iter().map(|record| &record.configuration)
    }

    /// The newest configuration of the log.
    pub(super) fn newest(&self) -> &ConfigurationRecord {
        self.in_force().last().expect("a member always has a configuration")
    }

    /// Whether the newest one is known to be committed.
    pub(super) fn is_newest_committed(&self) -> bool {
        self.newest().end <= self.durable
    }

    /// Whether this member votes in a configuration that counts.
    pub(super) fn is_voter(&self, member: MemberId) -> bool {
        self.configurations().any(|configuration| configuration.is_voter(member))
    }

    /// All members of the configurations that count but this one.
    pub(super) fn other_members(&self) -> Vec<MemberEntry> {
        let mut members: Vec<MemberEntry> = Vec::new();
        // The newest entry of each: an address may have changed.
        for configuration in self.in_force().iter().rev().map(|record| &record.configuration) {
            for entry in configuration.members() {
                if entry.id != self.config.me && !members.iter().any(|known| known.id == entry.id) {
                    members.push(*entry);
                }
            }
        }
        members.sort_unstable_by_key(|entry| entry.id);
        members
    }

    /// The voters of the configurations that count but this member.
    pub(super) fn others(&self) -> Vec<MemberId> {
        let members = self.other_members();
        members.iter().map(|entry| entry.id).filter(|member| self.is_voter(*member)).collect()
    }

    /// The same, where the disks of voters are named that no record has named yet and that this member knows: its own, and those that it has met (kind 55).
    fn with_known_disks(&self, next: Configuration) -> Configuration {
        let met = |member: MemberId| self.state.peers.iter().find(|record| record.member == member);
        next.naming(|member| match member == self.me() {
            true => Some(self.config.identity.incarnation),
            false => met(member).map(|record| record.incarnation),
        })
    }

    /// A configuration record of the log. Known ones change nothing; whatever lies behind it was of a suffix that is gone.
    fn configuration_found(&mut self, found: ConfigurationRecord) {
        found.configuration.check();
        let start = found.start;
        if !self.state.note_configuration(found) {
            return;
        }
        let start = self.unsaved.map_or(start, |unsaved| unsaved.start.min(start));
        let token = self.save();
        self.unsaved = Some(Unsaved { token, start });
    }

    /// The log ends at `at` from now on: configurations behind it are gone, and the former one holds again.
    pub(super) fn cut_configurations(&mut self, at: Lsn) {
        let mut index = 0;
        self.state.configurations.retain(|record| {
            index += 1;
            index == 1 || record.end <= at
        });
        self.unsaved = self.unsaved.filter(|unsaved| unsaved.start < at);
    }

    /// A save was answered. Whether it was the one of configurations that were found.
    pub(super) fn configuration_saved(&mut self, token: Token) -> bool {
        let is_it = self.unsaved.is_some_and(|unsaved| unsaved.token == token);
        if is_it {
            self.unsaved = None;
        }
        is_it
    }

    /// Whether a configuration is on its way to the superblock: what lies behind it can't be flushed yet.
    pub(super) fn is_saving_configuration(&self) -> bool {
        self.unsaved.is_some()
    }

    /// Up to where the log may be flushed now.
    pub(super) fn flushable(&self) -> Lsn {
        self.unsaved.map_or(self.log.tail, |unsaved| unsaved.start.min(self.log.tail))
    }

    /// Once the newest is committed nothing asks for those before it. That is written down, or a restart of all would ask for the voters of the one before again,
    /// who may be gone for good: that is what they were replaced for.
    fn forget_predecessors(&mut self) {
        let durable = self.durable;
        let records = &mut self.state.configurations;
        let known = records.len();
        while records.get(1).is_some_and(|next| next.end <= durable) {
            records.remove(0);
        }
        if records.len() < known {
            self.save();
        }
    }
}

/// What the newest configuration is, as far as it was told.
pub(super) type Told = (u64, bool);

impl Engine {
    /// The newest configuration of this member's log.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.core.newest().configuration
    }

    /// Whether [`Engine::configuration`] is known here to be committed.
    #[must_use]
    pub fn is_configuration_committed(&self) -> bool {
        self.core.is_newest_committed()
    }

    /// Whether a member votes in a configuration that counts: who does not is handed nothing over.
    #[must_use]
    pub fn is_voter(&self, member: MemberId) -> bool {
        self.core.is_voter(member)
    }

    /// The other members of the configurations that count, with their addresses.
    #[must_use]
    pub fn members(&self) -> Vec<MemberEntry> {
        self.core.other_members()
    }

    /// What a change would make of the configuration now.
    ///
    /// # Errors
    ///
    /// [`ChangeError`]: why it can't be made.
    pub fn check_change(&self, change: &Change) -> Result<Configuration, ChangeError> {
        let Some(tenure) = self.tenure.as_ref().filter(|tenure| tenure.handover.is_none()) else {
            return Err(ChangeError::NotPrimary);
        };
        let Some(start_end) = tenure.start_end else { return Err(ChangeError::NotPrimary) };
        let newest = self.core.newest();
        if let Some(number) = tenure.proposed {
            return Err(ChangeError::Pending { number });
        }
        if !self.core.is_newest_committed() {
            return Err(ChangeError::Pending { number: newest.configuration.number() });
        }
        if self.core.durable < start_end {
            return Err(ChangeError::TenureTooYoung);
        }
        let next = self.core.with_known_disks(newest.configuration.after(change)?);
        self.in_reach(&next)?;
        Ok(next)
    }

    /// Whether a write quorum of it follows: without, nothing would be committed any more.
    fn in_reach(&self, next: &Configuration) -> Result<(), ChangeError> {
        let Some(tenure) = &self.tenure else { return Err(ChangeError::NotPrimary) };
        let follows = |member: &MemberId| {
            *member == self.core.me() || tenure.peers.get(member).is_some_and(Peer::is_streaming)
        };
        let (reached, needed) = (next.voters().filter(follows).count(), next.write_quorum());
        if reached < needed { Err(ChangeError::OutOfReach { reached, needed }) } else { Ok(()) }
    }

    pub(super) fn change(&mut self, change: Change) {
        match self.check_change(&change) {
            Ok(next) => self.propose(next),
            Err(reason) => self.core.event(Event::ChangeRefused { change, reason }),
        }
    }

    fn propose(&mut self, next: Configuration) {
        next.check();
        let durable = self.core.durable;
        assert!(
            self.core.is_newest_committed(),
            "R-20: configuration {} is proposed before the one before it is committed",
            next.number()
        );
        let Some(tenure) = &mut self.tenure else { return };
        assert!(
            tenure.start_end.is_some_and(|end| end <= durable),
            "R-20: configuration {} is proposed before a record of its tenure is committed",
            next.number()
        );
        tenure.proposed = Some(next.number());
        self.core.push(Command::AppendConfiguration(Box::new(next)));
    }

    pub(super) fn found(&mut self, found: ConfigurationRecord) {
        self.core.configuration_found(found);
    }

    /// The log is full or sealed: it may take the record later.
    pub(super) fn refused_by_log(&mut self, number: u64) {
        let propose_at = self.core.now + self.core.config.timing.retry_ns;
        if let Some(tenure) = self.tenure.as_mut().filter(|tenure| tenure.proposed == Some(number)) {
            tenure.proposed = None;
            tenure.propose_at = propose_at;
        }
    }

    // ---- who is listened to --------------------------------------------------------------------------------------

    /// Whether to do what a candidate or primary asks whose newest configuration has this number: a voter as far as is known here, or one
    /// that knows better. (A member that was away while others were added has not heard of them; whom it has not heard of became a
    /// voter by two records that it lacks, so its number is higher.)
    pub(super) fn obeys(&self, from: MemberId, number: u64) -> bool {
        let newest = &self.core.newest().configuration;
        self.core.is_voter(from) || number > newest.number() || newest.is_unknown()
    }

    /// Whether a sign of life of this member counts as one.
    pub(super) fn is_heard(&self, from: MemberId) -> bool {
        self.core.is_voter(from) || !self.core.is_voter(self.core.me())
    }

    /// Tells a member that has left with which configuration, and one whose number was never given that it never was one: 0.
    pub(super) fn not_a_member(&mut self, to: MemberId) {
        let newest = &self.core.newest().configuration;
        let configuration = if to > newest.highest() { 0 } else { newest.number() };
        self.core.send(to, Message::NotAMember { configuration });
    }

    /// Somebody says that this member has left.
    pub(super) fn told_not_a_member(&mut self, number: u64) {
        let newest = &self.core.newest().configuration;
        let known = newest.number();
        // Who says so has a configuration that is committed. It may be the one that this member has, and does not know to be; or this member was
        // founded with others than the group was.
        let me = self.core.me();
        let is_out = newest.member(me).is_none() && me <= newest.highest() && !newest.is_unknown();
        let is_founded_otherwise = known == 0 && newest.member(me).is_some();
        let is_told = number > known || number == known && (is_out || is_founded_otherwise);
        if is_told && self.tenure.is_none() && self.left != Some(number) {
            self.left = Some(number);
            self.abandon_candidacy();
            self.core.event(Event::NotAMember { configuration: number });
        }
    }

    /// Whether this member may lead: it votes, and has not been told that it has left.
    pub(super) fn may_lead(&self) -> bool {
        self.left.is_none() && self.core.is_voter(self.core.me())
    }

    // ---- what follows from a configuration -----------------------------------------------------------------------

    pub(super) fn pump_members(&mut self) {
        self.core.forget_predecessors();
        let number = self.core.newest().configuration.number();
        if let Some(tenure) = &mut self.tenure {
            // It is under way until the drained log holds it.
            tenure.proposed = tenure.proposed.filter(|proposed| *proposed > number);
        }
        let newest = self.core.newest();
        let told = (newest.configuration.number(), self.core.is_newest_committed());
        if told != self.configuration_told {
            self.configuration_told = told;
            self.configuration_changed(told.1);
        }
        let newest = &self.core.newest().configuration;
        let (number, is_member) = (newest.number(), newest.member(self.core.me()).is_some());
        // A member whose number no configuration had given yet has still to come, as one does that takes the log up at a checkpoint.
        let was_one = self.core.me() <= newest.highest();
        if is_member && self.left.is_some_and(|left| left < number) {
            self.left = None;
        }
        if told.1
            && !is_member
            && was_one
            && !newest.is_unknown()
            && self.tenure.is_none()
            && self.left.is_none()
        {
            self.left = Some(number);
            self.abandon_candidacy();
            self.core.event(Event::NotAMember { configuration: number });
        }
        if self.stopped.is_none() && self.tenure.as_ref().is_some_and(|tenure| tenure.start_end.is_some()) {
            self.let_leavers_go();
            self.promote();
            self.leave();
        }
    }

    fn configuration_changed(&mut self, committed: bool) {
        let configuration = Box::new(self.core.newest().configuration.clone());
        let identity = self.core.config.identity;
        let own = configuration.member(self.core.me()).map(|entry| entry.incarnation);
        if let Some(known) = own.filter(|known| *known != 0 && *known != identity.incarnation) {
            return self.stop(StopReason::OtherDisk { known, found: identity.incarnation });
        }
        self.core.event(Event::Configuration { configuration, committed });
        self.core.push(Command::Members(self.core.other_members()));
        self.refuse_disowned();
        for (member, identity) in self.links.guests(&self.core) {
            self.peer_up(member, identity);
        }
        self.sync_peers();
    }

    /// A primary's peers are the members that count.
    fn sync_peers(&mut self) {
        let now = self.core.now;
        let leaves_at = now + 4 * self.core.config.timing.suspicion_ns;
        let members = self.core.other_members();
        let Some(tenure) = &mut self.tenure else { return };
        let epoch = tenure.epoch;
        for entry in &members {
            tenure.peers.entry(entry.id).or_insert_with(|| Peer::new(epoch, now)).leaves_at = None;
        }
        for (_, peer) in
            tenure.peers.iter_mut().filter(|(id, _)| !members.iter().any(|entry| entry.id == **id))
        {
            peer.leaves_at = peer.leaves_at.or(Some(leaves_at));
        }
    }

    /// Members that have left are written to until they know it, or for a while: then their connections are destroyed.
    fn let_leavers_go(&mut self) {
        let now = self.core.now;
        let newest = self.core.newest();
        let (known, configuration) = (Persisted(newest.end), newest.configuration.number());
        let Some(tenure) = &mut self.tenure else { return };
        let is_gone = |peer: &Peer| {
            let knows = peer.phase == Phase::Streaming && peer.persisted() >= known;
            peer.leaves_at.is_some_and(|at| knows || now >= at || peer.phase != Phase::Streaming)
        };
        let gone: Vec<MemberId> =
            tenure.peers.iter().filter(|(_, peer)| is_gone(peer)).map(|(member, _)| *member).collect();
        for member in gone {
            let Some(peer) = tenure.peers.remove(&member) else { continue };
            if peer.has_connection() {
                self.core.push(Command::Disconnect { peer: member, session: peer.session });
            }
            self.core.send(member, Message::NotAMember { configuration });
        }
    }

    /// A learner that has caught up votes from the next configuration on.
    fn promote(&mut self) {
        let core = &self.core;
        let Some(tenure) = &self.tenure else { return };
        let newest = core.newest();
        let is_idle = tenure.proposed.is_none() && tenure.handover.is_none();
        let is_quiet = is_idle && core.is_newest_committed() && core.now >= tenure.propose_at;
        let Some(learner) = newest.configuration.learner() else { return };
        if !is_quiet || tenure.start_end.is_none_or(|end| core.durable < end) {
            return;
        }
        let Some(peer) = tenure.peers.get(&learner.id).filter(|peer| peer.is_streaming()) else { return };
        let persisted = peer.persisted().0;
        let is_near = core.log.tail.0 - persisted.0 <= core.config.limits.batch_bytes;
        let Some(record) = core.state.peers.iter().find(|record| record.member == learner.id) else { return };
        let Some(next) = newest.configuration.promoted(record.incarnation) else { return };
        let next = core.with_known_disks(next);
        if is_near && persisted >= core.durable && persisted >= newest.end && self.in_reach(&next).is_ok() {
            self.propose(next);
        }
    }

    /// A primary that has left hands over.
    fn leave(&mut self) {
        let (core, me) = (&self.core, self.core.me());
        let newest = core.newest();
        if !core.is_newest_committed() || newest.configuration.is_voter(me) {
            return;
        }
        let Some(tenure) = self.tenure.as_ref().filter(|tenure| tenure.handover.is_none()) else { return };
        let number = newest.configuration.number();
        let streaming = |member: &MemberId| tenure.peers.get(member).is_some_and(Peer::is_streaming);
        let heirs = newest.configuration.voters().filter(streaming);
        let heir = heirs.max_by_key(|member| tenure.peers.get(member).map(Peer::persisted));
        match heir {
            Some(heir) => self.hand_over(heir),
            None => self.step_down(StopReason::Removed { configuration: number }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::tests::{core, opening, records};
    use super::*;

    fn numbers(core: &Core) -> Vec<u64> {
        core.state.configurations.iter().map(|record| record.configuration.number()).collect()
    }

    #[test]
    fn a_cut_takes_the_configurations_behind_it_and_never_the_first_r20() {
        let at = |lsn| {
            let mut core = core(false);
            core.state.configurations = records(5096).to_vec();
            core.unsaved = Some(Unsaved { token: Token(1), start: Lsn(5000) });
            core.cut_configurations(Lsn(lsn));
            (numbers(&core), core.is_saving_configuration())
        };
        assert_eq!(at(5096), ([0, 1].to_vec(), true));
        assert_eq!(at(5088), ([0].to_vec(), true));
        assert_eq!(at(5000), ([0].to_vec(), false), "nothing waits for a record that is gone");
        let mut core = core(false);
        core.state.configurations = records(5096)[1..].to_vec();
        core.cut_configurations(Lsn(4500));
        assert_eq!(numbers(&core), [1], "at a checkpoint the first comes again with the log");
    }

    /// Member 0 with a log whose last configuration removes member 2.
    fn removed() -> Engine {
        let (config, opening) = opening(false, 6000, 6000, &records(5096));
        Engine::new(config, opening, 0)
    }

    #[test]
    fn a_member_that_has_left_is_written_to_for_four_timeouts() {
        let mut engine = removed();
        engine.core.learn(Lsn(6000), Lsn(6000));
        engine.core.now = 7000;
        let peers = [1, 2].map(MemberId);
        let tenure =
            super::super::tenure::Tenure::new(windlass_log::Epoch::NONE, Token(1), &peers, Lsn(6000), 0);
        engine.tenure = Some(tenure);
        engine.sync_peers();
        engine.core.now = 8000;
        engine.sync_peers();
        let leaves_at = |member| engine.tenure.as_ref().unwrap().peers[&MemberId(member)].leaves_at;
        assert_eq!(leaves_at(2), Some(7000 + 4 * engine.core.config.timing.suspicion_ns));
        assert_eq!(leaves_at(1), None);
    }

    #[test]
    fn an_engine_tells_who_is_in_its_group() {
        let mut engine = removed();
        let members = |engine: &Engine| engine.members().iter().map(|entry| entry.id.0).collect::<Vec<_>>();
        // What is not committed counts beside its predecessor.
        assert_eq!((engine.configuration().number(), engine.is_configuration_committed()), (1, false));
        assert_eq!(members(&engine), [1, 2]);
        assert!([0, 1, 2].map(MemberId).into_iter().all(|member| engine.is_voter(member)));
        assert!(!engine.is_voter(MemberId(3)));
        engine.core.learn(Lsn(6000), Lsn(6000));
        assert!(engine.is_configuration_committed() && !engine.is_voter(MemberId(2)));
        assert_eq!(members(&engine), [1]);
    }

    #[test]
    fn who_has_left_is_told_with_which_configuration_and_who_never_came_that() {
        let mut engine = removed();
        engine.core.learn(Lsn(6000), Lsn(6000));
        engine.core.commands.clear();
        let mut told = |to| {
            engine.not_a_member(MemberId(to));
            match engine.poll_command() {
                Some(Command::Send { message, .. }) => *message,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(told(2), Message::NotAMember { configuration: 1 });
        assert_eq!(told(3), Message::NotAMember { configuration: 0 });
    }

    #[test]
    fn kind_55_a_member_stops_where_its_number_belongs_to_another_disk() {
        let founding = Configuration::founding([1, 2, 3].map(MemberId));
        let learns = founding.after(&Change::Replace { old: MemberId(1), new: MemberId(4), address: None });
        let votes = learns.as_ref().unwrap().promoted(104).unwrap();
        let stops = |incarnation, configuration: &Configuration| {
            let record = |end| ConfigurationRecord {
                start: Lsn(end - 96),
                end: Lsn(end),
                configuration: configuration.clone(),
            };
            let (mut config, opening) = opening(false, 6000, 6000, &[record(5000)]);
            (config.me, config.founding) = (MemberId(4), Configuration::unknown());
            config.identity.incarnation = incarnation;
            let mut engine = Engine::new(config, opening, 0);
            engine.configuration_changed(true);
            engine.status().stopped
        };
        assert_eq!(stops(104, &votes), None);
        assert_eq!(stops(105, &votes), Some(StopReason::OtherDisk { known: 104, found: 105 }));
        assert_eq!(stops(105, &learns.unwrap()), None, "no disk is named yet");
    }

    #[test]
    fn what_is_committed_ends_its_predecessors_say_r20() {
        let mut core = core(false);
        core.state.configurations = records(5096).to_vec();
        core.durable = Lsn(5088);
        core.forget_predecessors();
        assert_eq!(numbers(&core), [0, 1]);
        core.durable = Lsn(5096);
        core.forget_predecessors();
        assert_eq!(numbers(&core), [1]);
    }

    #[test]
    fn what_counts_follows_the_tail_and_the_commit_r20() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let next = founding.after(&Change::Remove { member: MemberId(2) }).unwrap();
        let last = next.after(&Change::Remove { member: MemberId(1) }).unwrap();
        let record = |start, end, configuration: &Configuration| ConfigurationRecord {
            start: Lsn(start),
            end: Lsn(end),
            configuration: configuration.clone(),
        };
        let records = [record(0, 0, &founding), record(5000, 5100, &next), record(6000, 6100, &last)];
        let numbers = |tail, durable| {
            let force = in_force(&records, Lsn(tail), Lsn(durable));
            force.iter().map(|record| record.configuration.number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(5099, 4096), [0]);
        assert_eq!(numbers(5100, 5099), [0, 1]);
        assert_eq!(numbers(5100, 5100), [1]);
        assert_eq!(numbers(6100, 5100), [1, 2]);
        assert_eq!(numbers(6100, 6100), [2]);
        // Cut by a takeover: the former one holds again.
        assert_eq!(numbers(6099, 5100), [1]);
    }
}
