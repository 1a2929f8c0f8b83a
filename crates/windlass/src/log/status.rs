//! What the log is and does: information, metrics, the outcome of an append; and stepping it by hand.

use windlass_log::{Epoch, LogId, Lsn, Superblock};

use super::Log;
use super::helper::Step;
use super::shared::OnMedia;
use crate::commit::Failure;
use crate::error::Outcome;
use crate::metrics::MetricsSnapshot;

/// What a log is, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Info {
    /// Its identity.
    pub log_id: LogId,
    /// The epoch of new records.
    pub epoch: Epoch,
    /// The size of a segment in bytes.
    pub segment_bytes: u64,
    /// The first LSN that is retained.
    pub trimmed: Lsn,
    /// Flushed here up to this LSN, as far as is known: see [`Log::open`].
    pub persisted: Lsn,
    /// Persisted on a quorum up to this LSN.
    pub durable: Lsn,
    /// Published without a gap up to this LSN.
    pub drained: Lsn,
    /// The end of the log.
    pub tail: Lsn,
    /// The cap on bytes from `trimmed` to `tail`.
    pub retention_bytes: u64,
    /// Whether appends are over for this handle.
    pub sealed: bool,
    /// Why the log has failed, if it has.
    pub failure: Option<Failure>,
}

impl Log {
    /// What the log is now. Watermarks are read lowest first, so that `trimmed ≤ persisted ≤ drained ≤ tail` holds (I-1).
    #[must_use]
    pub fn info(&self) -> Info {
        let marks = &self.tenure.watermarks;
        // A failure stops the watermarks, which still say how far they came.
        let _ = self.shared.drain(&self.tenure);
        let trimmed = self.shared.media.trimmed();
        let (durable, persisted) = (marks.durable.value(), marks.persisted.value());
        let drained = marks.drained.value();
        Info {
            log_id: self.shared.log_id,
            epoch: self.tenure.epoch,
            segment_bytes: self.shared.geometry.segment_bytes(),
            trimmed,
            persisted,
            durable,
            drained,
            tail: self.tenure.handoff.tail(),
            retention_bytes: self.shared.retention_bytes,
            sealed: self.tenure.handoff.is_sealed(),
            failure: self.shared.failure().cloned(),
        }
    }

    /// What became of the append that got `lsn` in `epoch`: in this opening or an earlier one, by this member or another.
    ///
    /// Right after an opening it waits until everything that was found is on the medium; if that fails, what no mark vouches for stays unknown.
    #[must_use]
    pub fn outcome(&self, epoch: Epoch, lsn: Lsn) -> Outcome {
        let _ = self.shared.settle();
        let durable = self.tenure.watermarks.durable.value();
        outcome(&self.shared.media.superblock(), durable, epoch, lsn)
    }

    /// What the log counts.
    #[must_use]
    pub fn metrics(&self) -> MetricsSnapshot {
        let info = self.info();
        let (shared, meters) = (&self.shared, &self.shared.meters);
        let store = shared.media.counters();
        shared.watch_retention(&self.tenure);
        let history = shared.media.superblock().history;
        MetricsSnapshot {
            trimmed: info.trimmed,
            persisted: info.persisted,
            durable: info.durable,
            replicated: self.tenure.watermarks.replicated.value(),
            drained: info.drained,
            tail: info.tail,
            retained_bytes: shared.retained_bytes(&self.tenure),
            retention_bytes: shared.retention_bytes,
            retention_warning: shared.is_warned(),
            retention_warnings: meters.retention_warnings.value(),
            history_epochs: history.entries().len() as u64,
            history_warning: history.is_nearly_full(),
            records: meters.records.value(),
            payload_bytes: meters.payload_bytes.value(),
            append_not_ready: meters.append_not_ready.value(),
            append_full: meters.append_full.value(),
            pool_misses: meters.pool_misses.value(),
            flushes: meters.flushes.value(),
            background_flushes: meters.background_flushes.value(),
            flush_failures: meters.flush_failures.value(),
            flush_ns: meters.flush_ns.snapshot(),
            flush_bytes: meters.flush_bytes.snapshot(),
            flush_page_bytes: store.flushed_page_bytes,
            scrub: meters.scrub.snapshot(),
            group_commits: meters.group_commits.snapshot(),
            group_wait_ns: meters.group_wait_ns.snapshot(),
            device_bytes: store.device_bytes,
            segments_made: store.segments_made,
            segments_recycled: store.segments_recycled,
            segments_removed: store.segments_removed,
            segments_held: store.segments_held,
            recycle_failures: store.recycle_failures,
            superblock_writes: store.superblock_writes,
            disk_full: store.disk_full,
            populated_bytes: store.populated_bytes,
            trims: meters.trims.value(),
            trim_failures: meters.trim_failures.value(),
        }
    }

    /// One bounded step of the helper's work, for a log without threads ([`crate::Options::threads`]): drains, prepares and reuses
    /// segments. A log with threads does this by itself.
    pub fn step(&self) -> Step {
        self.shared.step()
    }

    /// One round of the flush thread's work, for a log without threads: a group flush if any future waits, else one stretch in the
    /// background. Answers whether somebody waits for another producer to publish.
    pub fn step_flush(&self) -> bool {
        self.tenure.gate.serve(&OnMedia(&self.shared, &self.tenure), true)
    }
}

/// The outcome by the epoch history: a record is in the log for ever if it is durable and its LSN still belongs to its epoch, and out of it for ever if what a
/// later epoch put in its place is durable.
pub(crate) fn outcome(superblock: &Superblock, durable: Lsn, epoch: Epoch, lsn: Lsn) -> Outcome {
    if lsn < superblock.trimmed {
        return Outcome::Purged;
    }
    // A later epoch's part. In a group that is settled once something of it is committed: before, another member's log may be chosen, without that epoch and with
    // this record (I-6).
    let later = superblock.history.entries().iter().find(|entry| entry.epoch > epoch && entry.start <= lsn);
    if let Some(later) = later {
        let is_settled = superblock.configuration.is_empty() || durable > later.start;
        return if is_settled { Outcome::Cut } else { Outcome::Unknown };
    }
    match superblock.history.epoch_at(lsn) {
        Some(owner) if owner == epoch && lsn < durable => Outcome::Committed,
        // Of this epoch and not yet durable, or of an epoch that this member hasn't heard of.
        Some(_) | None => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::{EpochHistory, MemberId};

    fn superblock() -> Superblock {
        Superblock {
            generation: 1,
            log_id: LogId([1; 16]),
            member: MemberId(0),
            incarnation: 1,
            place: 0,
            boot_id: [0; 16],
            promised: Epoch::NONE,
            history: EpochHistory::new(),
            trimmed: Lsn(4096),
            persisted: Lsn(4096),
            clean: None,
            acknowledged: Lsn(0),
            caught_up: true,
            segment_bytes: 65536,
            features: 0,
            configuration: Vec::new(),
        }
    }

    #[test]
    fn an_outcome_follows_from_the_history_and_the_durable_mark() {
        let first = Epoch::NONE.next_for(MemberId(0));
        let (second, third) =
            (first.next_for(MemberId(0)), first.next_for(MemberId(0)).next_for(MemberId(0)));
        let mut history = EpochHistory::new();
        history.extend(first, Lsn(4096)).unwrap();
        history.extend(second, Lsn(8192)).unwrap();
        history.trim(Lsn(4200));
        let superblock = Superblock { promised: second, history, trimmed: Lsn(4200), ..superblock() };
        let durable = Lsn(9000);
        let ask = |epoch, lsn| outcome(&superblock, durable, epoch, Lsn(lsn));
        assert_eq!(ask(first, 4144), Outcome::Purged);
        assert_eq!(ask(first, 4200), Outcome::Committed);
        assert_eq!(ask(first, 8192), Outcome::Cut);
        assert_eq!(ask(first, 1 << 40), Outcome::Cut, "the epoch ended below it");
        assert_eq!(ask(second, 8192), Outcome::Committed);
        assert_eq!(ask(second, 9000), Outcome::Unknown);
        assert_eq!(ask(third, 8192), Outcome::Unknown);
    }

    #[test]
    fn a_members_record_is_cut_only_once_a_later_epochs_record_is_committed_in_its_place_i6() {
        let (first, second) = (Epoch::new(1, MemberId(0)), Epoch::new(2, MemberId(1)));
        let mut superblock = superblock();
        superblock.history.extend(first, Lsn(4096)).unwrap();
        superblock.history.extend(second, Lsn(8192)).unwrap();
        let ask = |superblock: &Superblock, durable, lsn| outcome(superblock, Lsn(durable), first, Lsn(lsn));
        assert_eq!(
            ask(&superblock, 8000, 8192),
            Outcome::Cut,
            "a lone log's own cut is durable before it is answered"
        );
        superblock.configuration = vec![1];
        for durable in [4096, 8000, 8192] {
            assert_eq!(ask(&superblock, durable, 8192), Outcome::Unknown, "durable {durable}");
            assert_eq!(ask(&superblock, durable, 9000), Outcome::Unknown, "durable {durable}");
        }
        assert_eq!(ask(&superblock, 8232, 8192), Outcome::Cut);
        assert_eq!(
            ask(&superblock, 8232, 9000),
            Outcome::Cut,
            "beyond what is committed: the epoch has ended before it"
        );
        assert_eq!(ask(&superblock, 8232, 8000), Outcome::Committed);
    }
}
