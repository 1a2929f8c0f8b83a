//! What one machine stands for: an append acknowledged at `Local` is in its log after a loss of power there, one at `Buffered` after
//! its process was killed; until a later primary cuts it.

use windlass::{Epoch, Level, Lsn};
use windlass_log::EpochHistory;

use super::{Checked, Invariant, violated};

/// A place that a log must reach, and the tenure that acknowledged it.
type Floor = (Lsn, Epoch);

/// What a member's log must reach when it is opened again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floors {
    buffered: Floor,
    local: Floor,
}

impl Default for Floors {
    fn default() -> Floors {
        Floors { buffered: (Lsn(0), Epoch::NONE), local: (Lsn(0), Epoch::NONE) }
    }
}

impl Floors {
    /// A commit of this member's tenure succeeded.
    pub(crate) fn acknowledged(&mut self, level: Level, epoch: Epoch, end: Lsn) {
        raise(&mut self.buffered, epoch, end);
        match level {
            Level::Local => raise(&mut self.local, epoch, end),
            // A quorum of others stands for it.
            Level::Durable | Level::Replicated | Level::Buffered => {}
        }
    }

    /// Nobody stands for it any more.
    pub(crate) fn forget(&mut self) {
        *self = Floors::default();
    }

    /// The member was opened again with this log. A later primary may have cut it: then its epoch begins there, by the same update of the superblock, or, where it
    /// had never heard of this tenure, the history has this tenure's epoch no more and another one lies there (seed 2144).
    pub(crate) fn opened(&self, member: u8, tail: Lsn, history: &EpochHistory, lost_power: bool) -> Checked {
        let ((floor, epoch), level) =
            if lost_power { (self.local, Level::Local) } else { (self.buffered, Level::Buffered) };
        let later = history.entries().iter().find(|entry| entry.epoch > epoch);
        let is_there = history.entries().iter().any(|entry| entry.epoch == epoch);
        let kept = match later {
            Some(_) if !is_there => Lsn(0),
            Some(entry) => floor.min(entry.start),
            None => floor,
        };
        if tail < kept {
            return violated(
                Invariant::Levels,
                format!("member {member} opens with a log up to {tail}, acknowledged at {level} was {floor}"),
            );
        }
        Ok(())
    }
}

/// A later tenure of the same member begins behind what is still there of the ones before.
fn raise(floor: &mut Floor, epoch: Epoch, end: Lsn) {
    *floor = if epoch > floor.1 { (end, epoch) } else { (floor.0.max(end), floor.1) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64) -> Epoch {
        Epoch::from_bits(number << 8)
    }

    fn history(entries: &[(u64, u64)]) -> EpochHistory {
        let mut history = EpochHistory::default();
        for (number, start) in entries {
            history.extend(epoch(*number), Lsn(*start)).expect("entries rise");
        }
        history
    }

    /// Heard and not done: a primary that stands still may acknowledge after the word that cuts it has arrived, and die when it has cut (seed 7040).
    #[test]
    fn a_cut_by_a_later_primary_takes_back_what_one_machine_stood_for_and_nothing_else_does() {
        let mut floors = Floors::default();
        floors.acknowledged(Level::Buffered, epoch(1), Lsn(9_000));
        let (own, cut) = (history(&[(1, 4096)]), history(&[(1, 4096), (2, 6_000)]));
        assert!(floors.opened(0, Lsn(9_000), &own, false).is_ok());
        assert!(floors.opened(0, Lsn(6_000), &own, false).is_err(), "nobody cut it");
        assert!(floors.opened(0, Lsn(6_000), &cut, false).is_ok());
        assert!(floors.opened(0, Lsn(5_000), &cut, false).is_err(), "cut lower than its primary said");
        // Power takes what was not flushed.
        assert!(floors.opened(0, Lsn(5_000), &own, true).is_ok());
    }

    /// Seed 2144: its log has records of an older epoch there, and the member died before they had arrived.
    #[test]
    fn a_primary_that_never_heard_of_a_tenure_takes_all_of_it_back() {
        let mut floors = Floors::default();
        floors.acknowledged(Level::Buffered, epoch(2), Lsn(9_000));
        let (own, others) = (history(&[(1, 4096), (2, 5_000)]), history(&[(1, 4096), (3, 9_500)]));
        assert!(floors.opened(0, Lsn(8_000), &own, false).is_err());
        assert!(floors.opened(0, Lsn(5_000), &others, false).is_ok());
    }

    #[test]
    fn a_later_tenure_of_the_same_member_stands_for_its_own() {
        let mut floors = Floors::default();
        floors.acknowledged(Level::Local, epoch(1), Lsn(9_000));
        // Cut to 6,000 by somebody, and led again.
        floors.acknowledged(Level::Local, epoch(3), Lsn(7_000));
        let led = history(&[(1, 4096), (2, 6_000), (3, 6_500)]);
        assert!(floors.opened(0, Lsn(7_000), &led, true).is_ok());
        assert!(floors.opened(0, Lsn(6_900), &led, true).is_err());
    }
}
