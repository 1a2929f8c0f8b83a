//! What the client knows of its appends: which were acknowledged and where, and which are unknown.
//!
//! Invariants: sequence numbers are sent in order and acknowledged in order, so the acknowledged ones are `0..acknowledged()`; what is unknown
//! follows them without a gap, and what is new follows that.

use std::collections::VecDeque;

use crate::session::Sent;

/// What the cluster said that it must never say.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Defect {
    #[error("record {got} was acknowledged when record {want} was next")]
    AcknowledgedOutOfOrder { want: u64, got: u64 },
    #[error("after a takeover the log has a record at LSN {lsn} that was not sent there")]
    NotSent { lsn: u64 },
    #[error("after a takeover record {sequence} at LSN {lsn} has other bytes than were sent")]
    OtherBytes { sequence: u64, lsn: u64 },
    #[error(
        "a deposed primary acknowledged record {sequence} at LSN {lsn}, which the group's log does not have there"
    )]
    AcknowledgedByDeposed { sequence: u64, lsn: u64 },
}

/// The client's book.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The LSN of each acknowledged record, by sequence number.
    starts: Vec<u64>,
    /// Everything below is acknowledged.
    pub(super) end: u64,
    /// Sent and neither acknowledged nor sent again, oldest first.
    pub(super) unknown: VecDeque<Sent>,
    /// The next new record.
    pub(super) next: u64,
}

impl Ledger {
    /// An empty book of a log that begins at `start`.
    pub(super) fn new(start: u64) -> Ledger {
        Ledger { starts: Vec::new(), end: start, unknown: VecDeque::new(), next: 0 }
    }

    /// How many records were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Where each acknowledged record is.
    pub(super) fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// An acknowledgement came.
    pub(super) fn acknowledge(&mut self, sequence: u64, start: u64, end: u64) -> Result<(), Defect> {
        let want = self.acknowledged();
        if sequence != want || start < self.end {
            return Err(Defect::AcknowledgedOutOfOrder { want, got: sequence });
        }
        self.starts.push(start);
        self.end = end;
        Ok(())
    }

    /// The new primary's log, whose prefix is committed, has this record behind what was acknowledged: it must be the oldest unknown one.
    pub(super) fn found(
        &mut self,
        sequence: Option<u64>,
        start: u64,
        same_bytes: bool,
    ) -> Result<(), Defect> {
        let Some(oldest) = self.unknown.front() else { return Err(Defect::NotSent { lsn: start }) };
        if sequence != Some(oldest.sequence) || start < self.end {
            return Err(Defect::NotSent { lsn: start });
        }
        if !same_bytes {
            return Err(Defect::OtherBytes { sequence: oldest.sequence, lsn: start });
        }
        self.unknown.pop_front();
        self.starts.push(start);
        self.end = start.saturating_add(1);
        Ok(())
    }

    /// A primary that was deposed meanwhile says that it had committed this record: then the log that was read since must have it there.
    pub(super) fn acknowledged_late(&self, sequence: u64, start: u64) -> Result<(), Defect> {
        let known = usize::try_from(sequence).ok().and_then(|at| self.starts.get(at));
        if known == Some(&start) {
            Ok(())
        } else {
            Err(Defect::AcknowledgedByDeposed { sequence, lsn: start })
        }
    }

    /// All of the log below `end` was read: what is unknown still is not in it and, the prefix being committed in a newer epoch, never will be.
    pub(super) fn settled(&mut self, end: u64) {
        self.end = self.end.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn acknowledgements_come_in_order_and_only_what_was_sent_is_found() {
        let mut ledger = Ledger::new(4096);
        ledger.acknowledge(0, 4096, 4200).unwrap();
        let defect = Defect::AcknowledgedOutOfOrder { want: 1, got: 2 };
        assert_eq!(ledger.acknowledge(2, 4200, 4300), Err(defect));
        assert!(ledger.acknowledge(1, 4096, 4300).is_err(), "the place of another record");
        assert_eq!(ledger.found(Some(1), 4200, true), Err(Defect::NotSent { lsn: 4200 }));
        ledger.unknown.extend((1..4).map(|sequence| Sent { sequence, at: Instant::now() }));
        assert_eq!(ledger.found(Some(2), 4200, true), Err(Defect::NotSent { lsn: 4200 }));
        assert_eq!(ledger.found(Some(1), 4200, false), Err(Defect::OtherBytes { sequence: 1, lsn: 4200 }));
        ledger.found(Some(1), 4200, true).unwrap();
        let mut last = Ledger::new(0);
        last.unknown.push_back(Sent { sequence: 0, at: Instant::now() });
        assert_eq!(last.found(Some(0), u64::MAX, true), Ok(()), "whatever LSN a member answers");
        ledger.settled(5000);
        assert_eq!((ledger.acknowledged(), ledger.end, ledger.unknown.len()), (2, 5000, 2));
        assert_eq!(ledger.acknowledged_late(1, 4200), Ok(()));
        for (sequence, lsn) in [(1, 4300), (2, 4300), (u64::MAX, 0)] {
            let defect = Defect::AcknowledgedByDeposed { sequence, lsn };
            assert_eq!(ledger.acknowledged_late(sequence, lsn), Err(defect));
        }
    }
}
