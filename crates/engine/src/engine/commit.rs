//! Counting a quorum: the only place where commit watermarks move, and where a [`CommitProof`] is made.

use alloc::vec::Vec;

use windlass_log::{Lsn, MemberId};

use super::Engine;
use crate::{Command, CommitProof, Mark, MemberEntry, Persisted, Placed, Standing};

/// The highest value that `quorum` of the members, a write quorum, have reached.
fn reached<T: Ord + Copy>(mut members: Vec<T>, quorum: usize) -> Option<T> {
    members.sort_unstable_by(|a, b| b.cmp(a));
    members.get(quorum - 1).copied()
}

impl Engine {
    /// Counts again, after anything that a watermark depends on has moved.
    pub(super) fn count_commits(&mut self) {
        // A configuration that is committed by it ends its predecessor's say: count once more then.
        while self.count_commits_over_what_is_in_force() {}
    }

    /// What a write quorum of each configuration in force has placed, and persisted.
    fn reached_by_quorums(&self) -> Option<(Placed, Persisted)> {
        let (core, tenure) = (&self.core, self.tenure.as_ref()?);
        let mut least: Option<(Placed, Persisted)> = None;
        for configuration in core.configurations() {
            let of = |member: MemberId| match tenure.peers.get(&member) {
                _ if member == core.me() => (Placed(core.log.tail), core.log.persisted),
                Some(peer) => (peer.placed(), peer.persisted()),
                None => (Placed(Lsn(0)), Persisted(Lsn(0))),
            };
            let counts = |entry: &&MemberEntry| {
                windlass_log::planted!(LearnerCounted) || entry.standing == Standing::Voter
            };
            let counted = configuration.members().iter().filter(counts).map(|entry| entry.id);
            let (placed, persisted): (Vec<Placed>, Vec<Persisted>) = counted.map(of).unzip();
            #[cfg(feature = "explore")]
            let persisted =
                if core.commits_placed { placed.iter().map(|p| Persisted(p.0)).collect() } else { persisted };
            let persisted = if windlass_log::planted!(CommitByPlaced) {
                placed.iter().map(|placed| Persisted(placed.0)).collect()
            } else {
                persisted
            };
            let quorum = configuration.write_quorum();
            let (placed, persisted) = (reached(placed, quorum)?, reached(persisted, quorum)?);
            least = Some(least.map_or((placed, persisted), |(a, b)| (a.min(placed), b.min(persisted))));
        }
        least
    }

    /// Whether a watermark has moved.
    fn count_commits_over_what_is_in_force(&mut self) -> bool {
        let Some((placed, persisted)) = self.reached_by_quorums() else { return false };
        let Some(tenure) = &mut self.tenure else { return false };
        let Some(start_end) = tenure.start_end else { return false };
        // Nothing counts before a record of this tenure is persisted on a quorum: an older record on a quorum may still
        // be overwritten by a log that ranks higher.
        if persisted < Persisted(start_end) {
            return false;
        }
        let durable = tenure.boundaries.floor(persisted.0).max(self.core.durable);
        let replicated = match self.core.config.replicated_allowed {
            true => tenure.boundaries.floor(placed.0).max(self.core.replicated).max(durable),
            false => durable,
        };
        if (replicated, durable) == (self.core.replicated, self.core.durable) {
            return false;
        }
        (self.core.replicated, self.core.durable) = (replicated, durable);
        self.core.durable_known = self.core.durable_known.max(durable);
        tenure.boundaries.forget_below(durable);
        tenure.progress_at = self.core.now;
        self.core.push(Command::Committed(CommitProof::new(tenure.epoch, replicated, durable)));
        self.core.check();
        true
    }

    /// Remembers what peers acknowledged in the tenure that ends.
    pub(super) fn remember_witnessed(&mut self) {
        let Some(tenure) = &self.tenure else { return };
        for (member, peer) in &tenure.peers {
            if let Some(persisted) = peer.acknowledged {
                let mark: Mark = crate::history::mark_at(&self.core.state.history, persisted.0);
                self.core.witnessed.insert(*member, mark);
            }
        }
    }
}

/// The record ends that this primary knows of above its durable watermark: every watermark lies on one.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    ends: alloc::collections::VecDeque<Lsn>,
}

impl Boundaries {
    /// Bounds the memory; beyond it every second end is forgotten, which only makes watermarks move in larger steps.
    const ENDS_MAX: usize = 4096;

    /// A record ends at `end`, at or above all before.
    pub(super) fn push(&mut self, end: Lsn) {
        if self.ends.back() == Some(&end) {
            return;
        }
        if self.ends.len() == Boundaries::ENDS_MAX {
            let mut index = 0;
            self.ends.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
        self.ends.push_back(end);
    }

    /// The highest known record end at or below `lsn`; 0 if none is known.
    pub(super) fn floor(&self, lsn: Lsn) -> Lsn {
        let behind = self.ends.partition_point(|end| *end <= lsn);
        if behind == 0 { Lsn(0) } else { self.ends[behind - 1] }
    }

    fn forget_below(&mut self, lsn: Lsn) {
        let below = self.ends.partition_point(|end| *end < lsn);
        self.ends.drain(..below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_quorum_has_reached_what_its_slowest_member_has() {
        assert_eq!(reached(vec![5, 9, 1], 2), Some(5));
        assert_eq!(reached(vec![5, 9, 1, 7, 7], 3), Some(7));
        assert_eq!(reached(vec![5], 1), Some(5));
        assert_eq!(reached(vec![5], 2), None);
    }

    #[test]
    fn watermarks_lie_on_record_ends_in_bounded_memory() {
        let mut b = Boundaries::default();
        for n in 1..=100_000_u64 {
            b.push(Lsn(n * 40));
            assert!(b.ends.len() <= Boundaries::ENDS_MAX);
        }
        let found = b.floor(Lsn(80_017));
        assert!(found <= Lsn(80_017) && found.0 % 40 == 0);
        assert_eq!(b.floor(Lsn(u64::MAX)), Lsn(4_000_000), "the newest end is never forgotten");
        assert_eq!(b.floor(Lsn(0)), Lsn(0));
    }

    #[test]
    fn where_there_is_no_room_every_second_end_is_forgotten_and_the_newest_stays() {
        let mut b = Boundaries::default();
        let most = u64::try_from(Boundaries::ENDS_MAX).unwrap();
        for n in 1..=most {
            b.push(Lsn(n * 40));
            // One end, once.
            b.push(Lsn(n * 40));
        }
        assert_eq!(b.ends.len(), Boundaries::ENDS_MAX);
        assert_eq!(b.floor(Lsn(120)), Lsn(120));
        b.push(Lsn(most * 40 + 8));
        assert_eq!(b.ends.len(), Boundaries::ENDS_MAX / 2 + 1);
        assert_eq!(b.floor(Lsn(80)), Lsn(80));
        assert_eq!(b.floor(Lsn(120)), Lsn(80));
        // The newest of before is one of those that stay: a watermark that has reached it does not go back.
        assert_eq!(b.floor(Lsn(most * 40)), Lsn(most * 40));
        assert_eq!(b.floor(Lsn(u64::MAX)), Lsn(most * 40 + 8));
    }

    #[test]
    fn what_is_forgotten_lies_below() {
        let mut b = Boundaries::default();
        for end in [40, 80, 120] {
            b.push(Lsn(end));
        }
        b.forget_below(Lsn(80));
        assert_eq!(b.floor(Lsn(79)), Lsn(0));
        assert_eq!(b.floor(Lsn(80)), Lsn(80));
        assert_eq!(b.floor(Lsn(130)), Lsn(120));
    }
}
