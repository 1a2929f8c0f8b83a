//! What a member of a group counts beyond its log.

use windlass_engine::PeerMarks;

use crate::metrics::{Counter, Histogram, HistogramSnapshot, write_histogram};

/// Counted while the driver runs.
#[derive(Debug, Default)]
pub(crate) struct GroupMeters {
    pub(crate) batches: Counter,
    pub(crate) batch_bytes: Histogram,
    pub(crate) credit_stall_ns: Histogram,
    pub(crate) window_stall_ns: Histogram,
    pub(crate) batch_doorbells: Counter,
    pub(crate) batch_requests: Counter,
    pub(crate) batch_signalled: Counter,
    pub(crate) batch_copied_bytes: Counter,
    pub(crate) acknowledgements: Counter,
    pub(crate) parses: Counter,
    pub(crate) parsed_records: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) takeover_ns: Histogram,
    pub(crate) step_downs: Counter,
    pub(crate) sessions: Counter,
    pub(crate) sessions_broken: Counter,
    pub(crate) revocations: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) cuts: Counter,
    pub(crate) refused: Counter,
    pub(crate) void_batches: Counter,
    pub(crate) window_binds: Counter,
    pub(crate) windows_allocated: Counter,
    pub(crate) windows_used_up: Counter,
    pub(crate) checkpoints_given: Counter,
    pub(crate) checkpoint_given_bytes: Counter,
    pub(crate) checkpoints_taken: Counter,
    pub(crate) checkpoint_taken_bytes: Counter,
    pub(crate) checkpoints_failed: Counter,
}

/// What a member of a group counts, at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GroupMetrics {
    /// Batches written to backups.
    pub batches: u64,
    /// Log bytes of a batch.
    pub batch_bytes: HistogramSnapshot,
    /// How long batches waited for a credit, each slot of the backup's notice ring holding a notice that it had not consumed, in nanoseconds. One for
    /// each wait that is over.
    pub credit_stall_ns: HistogramSnapshot,
    /// How long batches waited for the backup to grant the next segment, in nanoseconds.
    pub window_stall_ns: HistogramSnapshot,
    /// Doorbells rung for batches: as many as batches.
    pub batch_doorbells: u64,
    /// Requests posted for them: the data in one or two writes, and the notice.
    pub batch_requests: u64,
    /// Those among them that asked for a completion: as many as batches.
    pub batch_signalled: u64,
    /// Bytes that the processor copied to post them, beyond the one copy into the log: with a device the notices, with `tcp` everything.
    pub batch_copied_bytes: u64,
    /// Acknowledgements written to a primary.
    pub acknowledgements: u64,
    /// Times that arrived bytes were parsed.
    pub parses: u64,
    /// Records found valid among them.
    pub parsed_records: u64,
    /// Tenures begun by this member.
    pub takeovers: u64,
    /// How long each took, from when this member became a candidate to its epoch-start record, in nanoseconds. What was suspected before is not in it.
    pub takeover_ns: HistogramSnapshot,
    /// Tenures of this member that ended.
    pub step_downs: u64,
    /// Sessions made, at either end.
    pub sessions: u64,
    /// Sessions that broke.
    pub sessions_broken: u64,
    /// Times that all windows were taken back.
    pub revocations: u64,
    /// Bytes fetched as a candidate.
    pub fetched_bytes: u64,
    /// Times that the local log was cut.
    pub cuts: u64,
    /// Peers refused by the engine.
    pub refused: u64,
    /// Batches under way when their session ended: refused by the backup's end, or lost with the connection. None of them counts as
    /// placed.
    pub void_batches: u64,
    /// Binds of windows that open segments and slots to primaries. Each has a key that its window had not before.
    pub window_binds: u64,
    /// Windows allocated for that; the others were bound again after their invalidation was seen.
    pub windows_allocated: u64,
    /// Windows given up because their keys would have repeated, after 255 binds each.
    pub windows_used_up: u64,
    /// Checkpoints of the application streamed to a peer, to their end.
    pub checkpoints_given: u64,
    /// Their bytes, and those of streams that were cut short.
    pub checkpoint_given_bytes: u64,
    /// Checkpoints streamed here, behind which the log has gone on.
    pub checkpoints_taken: u64,
    /// Bytes that the application took, also of streams that were cut short.
    pub checkpoint_taken_bytes: u64,
    /// Attempts to bring one that failed.
    pub checkpoints_failed: u64,
    /// As primary: the peers that take batches, and how far the slowest of them are.
    pub peers: PeerMarks,
}

impl GroupMetrics {
    /// The snapshot in the Prometheus text format; `labels` is put between the braces as it is (`member="1"`), and may be empty.
    #[must_use]
    pub fn to_prometheus(&self, labels: &str) -> String {
        use std::fmt::Write as _;
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let mut text = String::with_capacity(2048);
        for (name, help, value) in [
            ("batches", "Batches written to backups.", self.batches),
            ("batch_bytes", "Log bytes written to backups.", self.batch_bytes.sum),
            ("credit_stalls", "Times that a batch waited for a credit.", self.credit_stall_ns.count),
            ("credit_stall_ns", "Nanoseconds that batches waited for a credit.", self.credit_stall_ns.sum),
            ("window_stalls", "Times that a batch waited for a granted segment.", self.window_stall_ns.count),
            ("window_stall_ns", "Nanoseconds that batches waited for one.", self.window_stall_ns.sum),
            ("batch_doorbells", "Doorbells rung for batches.", self.batch_doorbells),
            ("batch_requests", "Requests posted for batches.", self.batch_requests),
            ("batch_signalled", "Requests of batches that asked for a completion.", self.batch_signalled),
            (
                "batch_copied_bytes",
                "Bytes that the processor copied to post batches.",
                self.batch_copied_bytes,
            ),
            ("acknowledgements", "Acknowledgements written to a primary.", self.acknowledgements),
            ("parses", "Times that arrived bytes were parsed.", self.parses),
            ("parsed_records", "Records found valid among arrived bytes.", self.parsed_records),
            ("takeovers", "Tenures begun by this member.", self.takeovers),
            ("step_downs", "Tenures of this member that ended.", self.step_downs),
            ("sessions", "Sessions made.", self.sessions),
            ("sessions_broken", "Sessions that broke.", self.sessions_broken),
            ("revocations", "Times that all windows were taken back.", self.revocations),
            ("fetched_bytes", "Bytes fetched as a candidate.", self.fetched_bytes),
            ("cuts", "Times that the local log was cut.", self.cuts),
            ("refused_peers", "Peers refused.", self.refused),
            ("void_batches", "Batches refused by a backup, or lost with the connection.", self.void_batches),
            ("window_binds", "Binds of windows.", self.window_binds),
            ("windows_allocated", "Windows allocated.", self.windows_allocated),
            ("windows_used_up", "Windows given up because their keys were used up.", self.windows_used_up),
            ("checkpoints_given", "Checkpoints streamed to peers.", self.checkpoints_given),
            (
                "checkpoint_given_bytes",
                "Bytes of checkpoints streamed to peers.",
                self.checkpoint_given_bytes,
            ),
            ("checkpoints_taken", "Checkpoints streamed from peers and installed.", self.checkpoints_taken),
            ("checkpoint_taken_bytes", "Bytes of checkpoints streamed here.", self.checkpoint_taken_bytes),
            ("checkpoints_failed", "Attempts to bring a checkpoint that failed.", self.checkpoints_failed),
        ] {
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "# HELP windlass_group_{name}_total {help}\n# TYPE windlass_group_{name}_total counter\n\
                 windlass_group_{name}_total{braces} {value}"
            );
        }
        let PeerMarks { streaming, posted, placed, persisted } = self.peers;
        for (name, help, value) in [
            ("streaming_peers", "Peers that take batches.", streaming as u64),
            ("peers_posted_lsn", "Handed to the fabric for all of them.", posted.0),
            ("peers_placed_lsn", "In the memory of all of them.", placed.0.0),
            ("peers_persisted_lsn", "On the media of all of them.", persisted.0.0),
        ] {
            // As above.
            let _ = writeln!(
                text,
                "# HELP windlass_group_{name} {help}\n# TYPE windlass_group_{name} gauge\n\
                 windlass_group_{name}{braces} {value}"
            );
        }
        for (name, help, histogram, unit) in [
            ("group_takeover_seconds", "From candidate to primary.", &self.takeover_ns, 1e-9),
            ("group_batch_bytes", "Log bytes of a batch.", &self.batch_bytes, 1.0),
        ] {
            write_histogram(&mut text, name, help, histogram, unit, labels);
        }
        text
    }
}

impl GroupMeters {
    pub(crate) fn snapshot(&self, peers: PeerMarks) -> GroupMetrics {
        GroupMetrics {
            batches: self.batches.value(),
            batch_bytes: self.batch_bytes.snapshot(),
            credit_stall_ns: self.credit_stall_ns.snapshot(),
            window_stall_ns: self.window_stall_ns.snapshot(),
            batch_doorbells: self.batch_doorbells.value(),
            batch_requests: self.batch_requests.value(),
            batch_signalled: self.batch_signalled.value(),
            batch_copied_bytes: self.batch_copied_bytes.value(),
            acknowledgements: self.acknowledgements.value(),
            parses: self.parses.value(),
            parsed_records: self.parsed_records.value(),
            takeovers: self.takeovers.value(),
            takeover_ns: self.takeover_ns.snapshot(),
            step_downs: self.step_downs.value(),
            sessions: self.sessions.value(),
            sessions_broken: self.sessions_broken.value(),
            revocations: self.revocations.value(),
            fetched_bytes: self.fetched_bytes.value(),
            cuts: self.cuts.value(),
            refused: self.refused.value(),
            void_batches: self.void_batches.value(),
            window_binds: self.window_binds.value(),
            windows_allocated: self.windows_allocated.value(),
            windows_used_up: self.windows_used_up.value(),
            checkpoints_given: self.checkpoints_given.value(),
            checkpoint_given_bytes: self.checkpoint_given_bytes.value(),
            checkpoints_taken: self.checkpoints_taken.value(),
            checkpoint_taken_bytes: self.checkpoint_taken_bytes.value(),
            checkpoints_failed: self.checkpoints_failed.value(),
            peers,
        }
    }
}
