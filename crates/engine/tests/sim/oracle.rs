//! What must hold, whatever happens. Knows everything; tells nobody.

use std::collections::BTreeMap;

use windlass_engine::Status;
use windlass_log::{Epoch, EpochHistory, Lsn, MemberId};

use super::image::{Image, Record};

#[derive(Default)]
pub struct Oracle {
    /// What some member has published as durable, by start, and in which epoch it was committed.
    committed: BTreeMap<Lsn, (Record, Epoch)>,
    /// What was acknowledged to the application, by start, and in which epoch.
    acknowledged: BTreeMap<Lsn, (Record, Epoch)>,
    /// Who committed in an epoch.
    committers: BTreeMap<Epoch, MemberId>,
    pub takeovers: u64,
}

impl Oracle {
    pub fn committed_end(&self) -> Lsn {
        self.committed.values().next_back().map_or(Lsn(0), |(record, _)| record.end)
    }

    pub fn acknowledged_count(&self) -> usize {
        self.acknowledged.len()
    }

    /// At most one primary commits in an epoch.
    pub fn commits_in(&mut self, member: MemberId, epoch: Epoch) {
        let known = *self.committers.entry(epoch).or_insert(member);
        assert_eq!(known, member, "two primaries commit in {epoch}");
    }

    /// A member publishes `[from, durable)` as committed, as primary of this epoch or following one: all must agree on it.
    pub fn publish(
        &mut self,
        member: MemberId,
        epoch: Epoch,
        image: &Image,
        history: &EpochHistory,
        (from, durable): (Lsn, Lsn),
    ) {
        let mut at = from;
        while at < durable {
            let Some(record) = image.record(false, at, history) else {
                panic!("{member} publishes durable {durable}, its log is not valid at {at}");
            };
            let known = *self.committed.entry(at).or_insert((record, epoch));
            assert_eq!(known.0, record, "{member} disagrees about what is committed at {at}");
            at = record.end;
        }
        assert_eq!(at, durable, "{member}: durable is no record end");
    }

    pub fn acknowledge(&mut self, record: Record, epoch: Epoch) {
        self.acknowledged.insert(record.start, (record, epoch));
    }

    /// A tenure starts at `at`: nothing that was acknowledged in an older one may be missing from its log. (A newer one may
    /// have fenced it already, while its start was on its way.)
    pub fn tenure(&mut self, member: MemberId, image: &Image, history: &EpochHistory, trimmed: Lsn, at: Lsn) {
        self.takeovers += 1;
        let epoch = history.last().map_or(Epoch::NONE, |last| last.epoch);
        let known = self.acknowledged.range(trimmed..).chain(self.committed.range(trimmed..));
        for (start, (record, _)) in known.filter(|(_, (_, committed_in))| *committed_in < epoch) {
            let found = image.record(false, *start, history).filter(|found| found.end <= at);
            assert_eq!(
                found.as_ref(),
                Some(record),
                "{member} leads from {at} without what was acknowledged at {start}"
            );
        }
    }

    /// Everything acknowledged is in this log, which has just proved to be whole.
    pub fn finish(
        &self,
        member: MemberId,
        image: &Image,
        history: &EpochHistory,
        trimmed: Lsn,
        durable: Lsn,
    ) {
        for (start, (record, _)) in self.acknowledged.range(trimmed..) {
            let found = image.record(false, *start, history);
            assert_eq!(found.as_ref(), Some(record), "{member} has lost what was acknowledged at {start}");
            assert!(record.end <= durable, "{member}: acknowledged {record:?} is beyond durable {durable}");
        }
    }

    /// I-1, seen from outside; and published watermarks never go back (`replicated` may).
    pub fn watermarks(before: Option<&Status>, now: &Status) {
        assert!(now.trimmed <= now.durable, "trimmed beyond durable: {now:?}");
        assert!(now.durable <= now.replicated, "durable beyond replicated: {now:?}");
        let peers = &now.peers;
        if peers.streaming > 0 {
            assert!(peers.persisted.0 <= peers.placed.0, "peers' persisted beyond placed: {now:?}");
            assert!(peers.placed.0 <= peers.posted, "peers' placed beyond posted: {now:?}");
            assert!(peers.posted <= now.tail, "posted beyond the tail: {now:?}");
        }
        if let Some(before) = before {
            assert!(before.durable <= now.durable, "durable went back: {before:?} {now:?}");
            assert!(before.trimmed <= now.trimmed, "trimmed went back: {before:?} {now:?}");
            assert!(before.promised <= now.promised, "a promise was taken back: {before:?} {now:?}");
        }
    }
}
