//! Every option has a range, and what is out of it is refused before anything is touched.
#![allow(missing_docs, reason = "a test")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::{Group, secret};
use windlass::engine::{Limits, Timing};
use windlass::{
    CreateError, LogId, Node, NodeError, NodeOptions, OpenError, OpenTruncatedError, OptionError,
    OptionValue, Options,
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

type Field = fn(&mut Timing) -> &mut u64;
type Set = fn(&mut Limits, u64);

#[test]
fn an_option_of_a_log_beyond_its_range_is_refused_by_name_and_its_range_ends_are_taken() {
    let refused = |option, options: Options| {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("log");
        let options = options.segment_bytes(64 << 10).any_filesystem(true);
        let Err(CreateError::Option(error)) = options.clone().create(&absent) else { panic!("{option}") };
        assert_eq!(error.option, option, "{error}");
        assert!(!absent.exists(), "{error}");
        assert!(error.value < error.min || error.value > error.max, "{error}");
        let opened = options.clone().open(&absent);
        assert!(matches!(opened, Err(OpenError::Option(found)) if found == error), "{opened:?}");
        let cut = options.open_truncated(&absent, windlass::Lsn(4096));
        assert!(matches!(cut, Err(OpenTruncatedError::Open(OpenError::Option(_)))), "{cut:?}");
    };
    let taken = |options: Options| {
        let folder = tempfile::tempdir().unwrap();
        let log = options.segment_bytes(64 << 10).any_filesystem(true).create(folder.path()).unwrap();
        let appended = log.append_wait_blocking(b"x", std::time::Instant::now() + HOUR).unwrap();
        let _proof = log.commit_blocking(appended.end, windlass::Level::Local).unwrap();
        log.close().unwrap();
    };
    let new = Options::new;
    for bytes in [0, (1 << 62) + 1, u64::MAX] {
        refused("retention_bytes", new().retention_bytes(bytes));
    }
    for bytes in [1, 1 << 62] {
        taken(new().retention_bytes(bytes));
    }
    for segments in [0, 65, u64::MAX] {
        refused("ahead_segments", new().ahead_segments(segments));
    }
    for segments in [1, 64] {
        taken(new().ahead_segments(segments));
    }
    for limit in [Duration::ZERO, MS - Duration::from_nanos(1), DAY + Duration::from_nanos(1), Duration::MAX]
    {
        refused("reservation_limit", new().reservation_limit(limit));
    }
    taken(new().reservation_limit(DAY));
    let folder = tempfile::tempdir().unwrap();
    for bytes in [0, 4096, (64 << 10) + 1, 96 << 10, 8 << 30, u64::MAX] {
        let made = new().segment_bytes(bytes).any_filesystem(true).create(folder.path());
        assert!(matches!(made, Err(CreateError::Store(_))), "{bytes}: {made:?}");
    }
}

#[test]
fn an_option_of_a_member_beyond_its_range_is_refused_by_name_before_its_folder_is_made() {
    let group = Group::prepare(1, |options| options);
    let base = || {
        NodeOptions::new(group.members[0].id, group.members.clone(), LogId([9; 16]), secret())
            .segment_bytes(64 << 10)
            .any_filesystem(true)
    };
    let refused = |option, options: NodeOptions| -> OptionError {
        let folder: &Path = &group.folder_of(0);
        let Err(NodeError::Option(error)) = Node::open_or_create(folder, options) else { panic!("{option}") };
        assert_eq!(error.option, option, "{error}");
        assert!(!folder.exists(), "{error}");
        error
    };
    for suspicion in [Duration::ZERO, 3 * MS, HOUR + MS, Duration::from_millis(u64::MAX), Duration::MAX] {
        let error = refused("suspicion", base().suspicion(suspicion));
        assert_eq!(error.max, OptionValue::Time(HOUR));
    }
    let few_beats = Timing { suspicion_ns: 79_000_000, heartbeat_ns: 20_000_000, ..Timing::default() };
    let error = refused("suspicion", base().timing(few_beats));
    assert_eq!(error.to_string(), "the option suspicion is 79ms: use 80ms to 3600s");
    let timings: [(&str, Field); 5] = [
        ("timing.heartbeat_ns", |timing| &mut timing.heartbeat_ns),
        ("timing.backoff_ns", |timing| &mut timing.backoff_ns),
        ("timing.stall_ns", |timing| &mut timing.stall_ns),
        ("timing.retry_ns", |timing| &mut timing.retry_ns),
        ("timing.flush_idle_ns", |timing| &mut timing.flush_idle_ns),
    ];
    for (option, field) in timings {
        for ns in [0, 3_600_000_000_001, u64::MAX] {
            let mut timing = Timing::default();
            *field(&mut timing) = ns;
            refused(option, base().timing(timing));
        }
    }
    let limits: [(&str, Set, &[u64]); 9] = [
        ("limits.batch_bytes", |limits, to| limits.batch_bytes = to, &[0, 4095, (1 << 30) + 1, u64::MAX]),
        ("limits.fetch_bytes", |limits, to| limits.fetch_bytes = to, &[0, 4095, (1 << 30) + 1, u64::MAX]),
        ("limits.flush_lag_bytes", |limits, to| limits.flush_lag_bytes = to, &[0, (1 << 62) + 1, u64::MAX]),
        ("limits.notice_slots", |limits, to| limits.notice_slots = narrow(to), &[0, 65, u64::MAX]),
        ("limits.batches_in_flight", |limits, to| limits.batches_in_flight = narrow(to), &[0, 17, u64::MAX]),
        ("limits.stream_bytes", |limits, to| limits.stream_bytes = to, &[0, (1 << 62) + 1, u64::MAX]),
        (
            "limits.stream_batches_in_flight",
            |limits, to| limits.stream_batches_in_flight = narrow(to),
            &[0, 17, u64::MAX],
        ),
        ("limits.segments_ahead", |limits, to| limits.segments_ahead = to, &[0, 65, u64::MAX]),
        ("backup_retention_bytes", |limits, to| limits.retention_bytes = to, &[0, 65_535, u64::MAX]),
    ];
    for (option, set, values) in limits {
        for value in values {
            let mut limits = Limits::default();
            set(&mut limits, *value);
            refused(option, base().limits(limits));
        }
    }
    for bytes in [0, 1, 65_536, 131_071, (1 << 62) + 1, u64::MAX] {
        refused("retention_bytes", base().retention_bytes(bytes));
    }
    for limit in [Duration::ZERO, DAY + MS, Duration::MAX] {
        refused("reservation_limit", base().reservation_limit(limit));
    }
    for spin in [Duration::from_millis(1001), Duration::MAX] {
        refused("spin", base().spin(spin));
    }
    // The widest that each may be.
    let timing = Timing {
        heartbeat_ns: 900_000_000_000,
        suspicion_ns: 3_600_000_000_000,
        backoff_ns: 3_600_000_000_000,
        stall_ns: 3_600_000_000_000,
        retry_ns: 3_600_000_000_000,
        flush_idle_ns: 3_600_000_000_000,
    };
    let limits = Limits {
        batch_bytes: 1 << 30,
        batches_in_flight: 16,
        stream_bytes: 1 << 62,
        stream_batches_in_flight: 16,
        notice_slots: 64,
        segments_ahead: 64,
        retention_bytes: 1 << 62,
        fetch_bytes: 1 << 30,
        flush_lag_bytes: 1 << 62,
    };
    let widest = base()
        .timing(timing)
        .limits(limits)
        .retention_bytes(1 << 62)
        .reservation_limit(DAY)
        .full_disk_limit(Duration::MAX)
        .spin(Duration::from_secs(1));
    let node = Node::open_or_create(&group.folder_of(0), widest).unwrap();
    let log = node.wait_primary(std::time::Instant::now() + support::PATIENCE).unwrap();
    support::append_all(&log, (0..10).map(|_| vec![7; 100]), windlass::Level::Durable);
    drop(log);
    node.close().unwrap();
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
