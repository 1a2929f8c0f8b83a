//! A member that is away for long: commits go on, memory and disk stay bounded, it catches up or is told to take a snapshot.

mod support;

use std::time::{Duration, Instant};

use support::{Group, PATIENCE, append_all, read_all, wait_event};
use windlass::engine::{Event, PeerStatus};
use windlass::{Epoch, Level, Lsn, NodeEvent, SnapshotError};

fn payload(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(1000 + usize::try_from(number % 50).unwrap(), b'.');
    bytes
}

/// Anonymous memory of this process in bytes.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_member_that_was_away_within_the_retention_catches_up_by_the_ordinary_writes() {
    // A debug build on a busy machine may stand still for longer than a primary is given by default.
    let mut group = Group::start_with(3, |options| options.suspicion(Duration::from_secs(2)));
    let (first, log) = group.primary();
    let third = (first + 1) % 3;
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    group.wait_durable(end);
    group.kill(third);
    append_all(&log, (100..5000).map(payload), Level::Durable);
    group.open(third);
    let end = append_all(&log, (5000..5100).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..5100).map(payload).collect();
    for at in 0..3 {
        assert!(read_all(group.node(at)) == expected, "member {at}");
    }
    assert_eq!(group.node(third).metrics().group.cuts, 0);
}

#[test]
fn beyond_the_retention_a_member_needs_a_snapshot_and_goes_on_behind_it() {
    // A debug build on a busy machine may stand still for longer than a primary is given by default.
    let mut group = Group::start_with(3, |options| options.suspicion(Duration::from_secs(2)));
    let (first, log) = group.primary();
    let third = (first + 1) % 3;
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    group.wait_durable(end);
    group.kill(third);
    let mut events = group.node(first).events();
    let before = memory_bytes();
    // 64 MiB through a group that keeps 8 MiB for who lags.
    for round in 0..64 {
        let end = append_all(&log, (0..1024).map(|n| payload(100 + round * 1024 + n)), Level::Durable);
        log.trim(end).unwrap();
    }
    let grown = memory_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "memory grew by {grown} bytes");
    let deadline = Instant::now() + PATIENCE;
    while log.info().trimmed.0 < 40 << 20 {
        assert!(Instant::now() < deadline, "nothing is released: {:?}", log.info());
        std::thread::sleep(Duration::from_millis(5));
    }
    let folder = std::fs::read_dir(group.folder_of(first)).unwrap();
    let held: u64 = folder.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(held < 200 << 20, "{held} bytes on disk");

    group.open(third);
    let mut of_third = group.node(third).events();
    let needed = wait_event(&mut of_third, |event| {
        let NodeEvent::Group(Event::SnapshotNeeded { primary, from, .. }) = event else { return None };
        Some((primary, from))
    });
    let Some((primary, from)) = needed else { panic!("no word of a snapshot: {:#?}", group.statuses()) };
    assert_eq!(primary, group.members[first].id);
    let needs =
        NodeEvent::Group(Event::Peer { peer: group.members[third].id, status: PeerStatus::NeedsSnapshot });
    let said = wait_event(&mut events, |event| (event == needs).then_some(()));
    assert!(said.is_some(), "the primary does not say so");
    // The application's checkpoint reaches up to here.
    let checkpoint = append_all(&log, std::iter::once(b"checkpoint".to_vec()), Level::Durable);
    assert!(checkpoint >= from);
    let epoch = log.info().epoch;
    // Where no record can start nothing begins.
    for lsn in [checkpoint.0 + 1, 0] {
        let refused = group.node(third).snapshot_installed(Lsn(lsn), epoch);
        assert_eq!(refused, Err(SnapshotError::NoPosition { lsn: Lsn(lsn) }));
    }
    // Nor behind a checkpoint of another line (kind 52): the member says so, and its log stays as it is.
    let other = Epoch::new(epoch.counter() + 7, epoch.member());
    group.node(third).snapshot_installed(checkpoint, other).unwrap();
    let told = wait_event(&mut of_third, |event| {
        if let NodeEvent::Group(Event::SnapshotOtherLine { at, expected, found, .. }) = event {
            return Some((at, expected, found));
        }
        // The tail that the member knew lay before it.
        if let NodeEvent::Group(Event::SnapshotNeeded { .. }) = event {
            group.node(third).snapshot_installed(checkpoint, other).unwrap();
        }
        None
    });
    assert_eq!(told, Some((checkpoint, epoch, other)), "{:#?}", group.statuses());
    group.node(third).snapshot_installed(checkpoint, epoch).unwrap();
    let end = append_all(&log, (0..50).map(payload), Level::Durable);
    let deadline = Instant::now() + PATIENCE;
    while group.node(third).status().durable < end {
        // A checkpoint may have been refused because the tail that the member knew lay before it.
        while let Some(event) = of_third.try_next() {
            if let NodeEvent::Group(Event::SnapshotNeeded { .. }) = event {
                group.node(third).snapshot_installed(checkpoint, epoch).unwrap();
            }
        }
        assert!(Instant::now() < deadline, "it does not go on: {:#?}", group.statuses());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read_all(group.node(third)), (0..50).map(payload).collect::<Vec<_>>());
    // And it is a good member: it survives a restart, and the loss of another one.
    group.kill(third);
    group.open(third);
    group.kill((first + 2) % 3);
    let end = append_all(&log, (50..60).map(payload), Level::Durable);
    group.wait_durable(end);
    assert_eq!(read_all(group.node(third)), (0..60).map(payload).collect::<Vec<_>>());
}
