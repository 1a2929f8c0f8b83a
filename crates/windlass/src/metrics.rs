//! What a log counts: counters and histograms that cost an atomic add at most, and a snapshot to read them by.
//!
//! Nothing here is touched per append: records and bytes are counted by the drain, everything else happens once a flush,
//! a segment or an error. No allocation except in [`Histogram::snapshot`] and the text.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_log::Lsn;

use crate::scrub::{ScrubMeters, ScrubMetrics};

/// Sub-buckets for each power of two: values are kept to within a quarter of their size.
const STEPS: usize = 4;
const BUCKETS: usize = 64 * STEPS;

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of fixed buckets, four for each power of two.
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("sum", &self.sum).field("max", &self.max).finish_non_exhaustive()
    }
}

/// The bucket of a value: values below 4 have one each, above that the two bits behind the leading one choose.
fn bucket_of(value: u64) -> usize {
    if value < 4 {
        return usize::try_from(value).unwrap_or(0);
    }
    let log2 = value.ilog2();
    let step = (value >> (log2 - 2)) & 3;
    usize::try_from(log2).unwrap_or(0) * STEPS + usize::try_from(step).unwrap_or(0)
}

/// The largest value of a bucket.
fn bucket_max(bucket: usize) -> u64 {
    if bucket < 2 * STEPS {
        return bucket as u64;
    }
    let (log2, step) = ((bucket / STEPS) as u64, (bucket % STEPS) as u64);
    let width = 1u64 << (log2 - 2);
    (1u64 << log2) + step * width + (width - 1)
}

impl Histogram {
    pub(crate) fn record(&self, value: u64) {
        self.buckets[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Vec<(u64, u64)> = self
            .buckets
            .iter()
            .enumerate()
            .map(|(bucket, count)| (bucket_max(bucket), count.load(Ordering::Relaxed)))
            .filter(|&(_, count)| count > 0)
            .collect();
        HistogramSnapshot {
            count: buckets.iter().map(|&(_, count)| count).sum(),
            sum: self.sum.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            buckets,
        }
    }
}

/// A histogram at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HistogramSnapshot {
    /// How many values were recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest.
    pub max: u64,
    /// For each bucket that holds any: its largest value, and how many it holds.
    pub buckets: Vec<(u64, u64)>,
}

impl HistogramSnapshot {
    /// The value below which `q` (0 to 1) of all values lie, to within a quarter; 0 if there are none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        let mut seen = 0;
        for &(max, count) in &self.buckets {
            seen += count;
            // Counts are far below 2^52.
            if seen as f64 >= q * self.count as f64 {
                return max.min(self.max);
            }
        }
        self.max
    }

    /// The mean; 0 if there are no values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// What a log counts while it runs.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) records: Counter,
    pub(crate) payload_bytes: Counter,
    pub(crate) append_not_ready: Counter,
    pub(crate) append_full: Counter,
    pub(crate) pool_misses: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_failures: Counter,
    pub(crate) flush_ns: Histogram,
    pub(crate) flush_bytes: Histogram,
    pub(crate) group_commits: Histogram,
    pub(crate) group_wait_ns: Histogram,
    pub(crate) background_flushes: Counter,
    pub(crate) trims: Counter,
    pub(crate) trim_failures: Counter,
    pub(crate) retention_warnings: Counter,
    pub(crate) scrub: ScrubMeters,
}

/// Everything a log counts, at one moment. LSNs are read one after the other, lowest watermark first, so that
/// `trimmed ≤ persisted ≤ drained ≤ tail` holds within a snapshot (I-1).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// Released by the application.
    pub trimmed: Lsn,
    /// Flushed here.
    pub persisted: Lsn,
    /// Persisted on a quorum.
    pub durable: Lsn,
    /// Placed on a quorum.
    pub replicated: Lsn,
    /// Everything before it is published.
    pub drained: Lsn,
    /// The end of the log.
    pub tail: Lsn,
    /// Bytes between the trim point and the tail.
    pub retained_bytes: u64,
    /// The cap on them.
    pub retention_bytes: u64,
    /// 1 while more than 80 % of the cap is in use, 0 otherwise: trim, or raise the cap.
    pub retention_warning: bool,
    /// How many times that began.
    pub retention_warnings: u64,
    /// Epochs of the log's history, from the trim point on; it can hold 2,048. A trim drops those that end below it.
    pub history_epochs: u64,
    /// 1 while the history is three quarters full, 0 otherwise: trim, or a lone log that is killed often will not open, and a group that takes over often will not be led.
    pub history_warning: bool,
    /// Records drained since the opening.
    pub records: u64,
    /// Their payload in bytes.
    pub payload_bytes: u64,
    /// Appends refused with `NotReady`.
    pub append_not_ready: u64,
    /// Appends refused with `Full`.
    pub append_full: u64,
    /// Times a producer reached a segment that was not prepared yet.
    pub pool_misses: u64,
    /// Flushes that a commit asked for.
    pub flushes: u64,
    /// Flushes of sealed segments in the background.
    pub background_flushes: u64,
    /// Flushes that failed: never more than one in an opening.
    pub flush_failures: u64,
    /// How long a flush took, in nanoseconds.
    pub flush_ns: HistogramSnapshot,
    /// Log bytes a flush covered.
    pub flush_bytes: HistogramSnapshot,
    /// Bytes of the pages that flushes covered.
    pub flush_page_bytes: u64,
    /// Commits served by a flush.
    pub group_commits: HistogramSnapshot,
    /// How long a leader waited for its group to form, in nanoseconds.
    pub group_wait_ns: HistogramSnapshot,
    /// Bytes written to the block device under the log by everybody since the log was opened, where the kernel tells: on a device of the
    /// log's own, what the log cost.
    pub device_bytes: Option<u64>,
    /// Segments made from new blocks; in steady state none.
    pub segments_made: u64,
    /// Trimmed segments kept for reuse.
    pub segments_recycled: u64,
    /// Trimmed segments removed, because enough are kept.
    pub segments_removed: u64,
    /// Trimmed segments that can't be reused yet, because somebody holds their memory: an old handle, perhaps.
    pub segments_held: u64,
    /// Trimmed segments that could not be renamed or removed: their files stay until the next opening.
    pub recycle_failures: u64,
    /// Times the superblock was written.
    pub superblock_writes: u64,
    /// Times no segment could be made because the disk was full.
    pub disk_full: u64,
    /// Bytes whose pages were made present ahead of the tail.
    pub populated_bytes: u64,
    /// Trims.
    pub trims: u64,
    /// Trims that failed.
    pub trim_failures: u64,
    /// What was read and checked of cold segments, and found in them.
    pub scrub: ScrubMetrics,
}

impl MetricsSnapshot {
    /// Device bytes for each payload byte: the write amplification. `None` before the first payload or where the system
    /// doesn't tell.
    #[must_use]
    pub fn device_bytes_per_payload_byte(&self) -> Option<f64> {
        let device = self.device_bytes?;
        (self.payload_bytes > 0).then(|| device as f64 / self.payload_bytes as f64)
    }

    /// The snapshot in the Prometheus text format; `labels` is put between the braces as it is (`log="orders"`), and may be
    /// empty.
    #[must_use]
    pub fn to_prometheus(&self, labels: &str) -> String {
        let mut text = String::with_capacity(4096);
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let mut line = |kind: &str, name: &str, help: &str, value: f64| {
            // Writing to a String can't fail.
            let _ = writeln!(
                text,
                "# HELP windlass_{name} {help}\n# TYPE windlass_{name} {kind}\nwindlass_{name}{braces} {value}"
            );
        };
        for (name, help, value) in self.gauges() {
            line("gauge", name, help, value);
        }
        if let Some(since) = self.scrub.since_pass {
            line("gauge", "scrub_pass_age_seconds", "Since the last full pass.", since.as_secs_f64());
        }
        for (name, help, value) in self.counters() {
            line("counter", name, help, value as f64);
        }
        for (name, help, histogram, unit) in [
            ("flush_seconds", "Time of a flush.", &self.flush_ns, 1e-9),
            ("flush_bytes", "Log bytes a flush covered.", &self.flush_bytes, 1.0),
            ("group_commits", "Commits served by a flush.", &self.group_commits, 1.0),
            ("group_wait_seconds", "Time a leader waited for its group.", &self.group_wait_ns, 1e-9),
        ] {
            write_histogram(&mut text, name, help, histogram, unit, labels);
        }
        text
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let mut gauges = vec![
            ("trimmed_lsn", "Released by the application.", self.trimmed.0 as f64),
            ("persisted_lsn", "Flushed here.", self.persisted.0 as f64),
            ("durable_lsn", "Persisted on a quorum.", self.durable.0 as f64),
            ("replicated_lsn", "Placed on a quorum.", self.replicated.0 as f64),
            ("drained_lsn", "Published without a gap.", self.drained.0 as f64),
            ("tail_lsn", "End of the log.", self.tail.0 as f64),
            ("retained_bytes", "Bytes between trim point and tail.", self.retained_bytes as f64),
            ("retention_bytes", "The cap on them.", self.retention_bytes as f64),
            ("segments_held", "Trimmed segments still held.", self.segments_held as f64),
            ("retention_warning", "1 above 80 % of the cap.", f64::from(u8::from(self.retention_warning))),
            ("history_epochs", "Epochs since the trim point, of 2048.", self.history_epochs as f64),
            ("history_warning", "1 from 1536 of them on: trim.", f64::from(u8::from(self.history_warning))),
        ];
        if let Some(ratio) = self.device_bytes_per_payload_byte() {
            gauges.push(("device_bytes_per_payload_byte", "Write amplification.", ratio));
        }
        gauges
    }

    fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut counters = vec![
            ("records_total", "Records drained.", self.records),
            ("payload_bytes_total", "Their payload.", self.payload_bytes),
            ("append_not_ready_total", "Appends refused: segment not prepared.", self.append_not_ready),
            ("append_full_total", "Appends refused: retention or disk.", self.append_full),
            ("pool_misses_total", "Segments that were not prepared in time.", self.pool_misses),
            ("flushes_total", "Flushes for commits.", self.flushes),
            ("background_flushes_total", "Flushes of sealed segments.", self.background_flushes),
            ("flush_failures_total", "Failed flushes.", self.flush_failures),
            ("flush_page_bytes_total", "Bytes of the pages flushed.", self.flush_page_bytes),
            ("segments_made_total", "Segments made from new blocks.", self.segments_made),
            ("segments_recycled_total", "Trimmed segments kept for reuse.", self.segments_recycled),
            ("segments_removed_total", "Trimmed segments removed.", self.segments_removed),
            ("recycle_failures_total", "Trimmed segments that stay for now.", self.recycle_failures),
            ("superblock_writes_total", "Writes of the superblock.", self.superblock_writes),
            ("disk_full_total", "Segments not made: disk full.", self.disk_full),
            ("populated_bytes_total", "Bytes made present ahead of the tail.", self.populated_bytes),
            ("trims_total", "Trims.", self.trims),
            ("trim_failures_total", "Trims that failed.", self.trim_failures),
            ("retention_warnings_total", "Times the cap was used to 80 %.", self.retention_warnings),
            ("scrubbed_bytes_total", "Bytes of cold segments checked.", self.scrub.bytes),
            ("scrub_passes_total", "Full passes over what was cold.", self.scrub.passes),
            ("scrub_failures_total", "Pieces that could not be read.", self.scrub.failures),
            (
                "scrub_passed_over_total",
                "Times the rest of a segment could not be read.",
                self.scrub.passed_over,
            ),
            ("damage_found_total", "Damaged ranges found.", self.scrub.damage_found),
            ("damage_repaired_total", "Times a member was whole again.", self.scrub.damage_repaired),
        ];
        if let Some(device_bytes) = self.device_bytes {
            counters.push(("device_bytes_total", "Bytes written to the device by everybody.", device_bytes));
        }
        counters
    }
}

pub(crate) fn write_histogram(
    text: &mut String,
    name: &str,
    help: &str,
    histogram: &HistogramSnapshot,
    unit: f64,
    labels: &str,
) {
    let comma = if labels.is_empty() { "" } else { "," };
    let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "# HELP windlass_{name} {help}\n# TYPE windlass_{name} histogram");
    let mut seen = 0;
    for &(max, count) in &histogram.buckets {
        seen += count;
        let le = max as f64 * unit;
        let _ = writeln!(text, "windlass_{name}_bucket{{{labels}{comma}le=\"{le}\"}} {seen}");
    }
    let _ = writeln!(
        text,
        "windlass_{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}",
        count = histogram.count
    );
    let _ = writeln!(text, "windlass_{name}_sum{braces} {}", histogram.sum as f64 * unit);
    let _ = writeln!(text, "windlass_{name}_count{braces} {}", histogram.count);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_are_ordered() {
        let mut last = None;
        for value in (0..5000).chain([1 << 20, (1 << 20) + 1, u64::MAX / 3, u64::MAX]) {
            let bucket = bucket_of(value);
            assert!(value <= bucket_max(bucket), "{value}");
            assert!(bucket_max(bucket) - value <= value / 4, "{value} in {}", bucket_max(bucket));
            assert!(last <= Some(bucket));
            last = Some(bucket);
        }
    }

    #[test]
    fn quantiles_come_from_the_recorded_values() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|v| histogram.record(v));
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count, snapshot.sum, snapshot.max), (1000, 500_500, 1000));
        assert!((500..=625).contains(&snapshot.quantile(0.5)));
        assert!((990..=1000).contains(&snapshot.quantile(0.999)));
        assert_eq!(Histogram::default().snapshot().quantile(0.5), 0);
    }

    #[test]
    fn the_text_has_cumulative_buckets_and_one_type_line_each() {
        let histogram = Histogram::default();
        [1, 1, 3].into_iter().for_each(|v| histogram.record(v));
        let snapshot = MetricsSnapshot { group_commits: histogram.snapshot(), ..MetricsSnapshot::default() };
        let text = snapshot.to_prometheus("log=\"a\"");
        assert!(text.contains("windlass_group_commits_bucket{log=\"a\",le=\"1\"} 2\n"), "{text}");
        assert!(text.contains("windlass_group_commits_bucket{log=\"a\",le=\"3\"} 3\n"));
        assert!(text.contains("windlass_group_commits_bucket{log=\"a\",le=\"+Inf\"} 3\n"));
        assert_eq!(text.matches("# TYPE windlass_tail_lsn gauge").count(), 1);
        assert!(text.contains("windlass_tail_lsn{log=\"a\"} 0\n"));
    }
}
