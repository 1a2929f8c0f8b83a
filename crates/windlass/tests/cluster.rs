//! Three nodes in one process replicate, are read everywhere, survive a killed primary and take it back.

mod support;

use std::time::{Duration, Instant};

use support::{Group, PATIENCE, append_all, read_all, wait_event};
use windlass::engine::{Event, PeerMarks, Role, StopReason};
use windlass::{
    BarrierError, CommitError, Level, Lsn, NodeEvent, OpenError, OpenMode, Options, Outcome, ReadOnly,
    TrimError, TruncateError,
};

fn payload(number: u64) -> Vec<u8> {
    format!("record {number} {}", "x".repeat(usize::try_from(number % 300).unwrap())).into_bytes()
}

#[test]
fn what_one_member_commits_every_member_reads() {
    let group = Group::start(3);
    let (_, log) = group.primary();
    let end = append_all(&log, (0..1000).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..1000).map(payload).collect();
    for at in 0..3 {
        assert_eq!(read_all(group.node(at)), expected, "member {at}");
    }
}

#[test]
fn a_killed_primary_is_replaced_nothing_acknowledged_is_lost_and_it_rejoins() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..500).map(payload), Level::Durable);
    drop(log);
    // The survivors know that it is durable: nothing is left to be settled by the takeover.
    group.wait_durable(end);
    group.kill(first);
    let (second, log) = group.primary();
    assert_ne!(first, second);
    append_all(&log, (500..1000).map(payload), Level::Durable);
    group.open(first);
    let end = append_all(&log, (1000..1500).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..1500).map(payload).collect();
    for at in 0..3 {
        let all = read_all(group.node(at));
        assert!(all == expected, "member {at} has {} records", all.len());
    }
}

#[test]
fn an_old_primarys_uncommitted_suffix_is_cut_when_it_rejoins() {
    // Without `Replicated`: a backup that dies before it has written down that it caught up would else wait for the third.
    let mut group = Group::start_with(3, |options| options.allow_replicated(false));
    let (first, log) = group.primary();
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    group.wait_durable(end);
    let others: Vec<usize> = (0..3).filter(|at| *at != first).collect();
    for at in &others {
        group.kill(*at);
    }
    // Alone, so none of these can be committed; but they reach the old primary's disk.
    let mut appended = Vec::new();
    while appended.len() < 50 {
        match log.append(b"never committed") {
            Ok(record) => appended.push(record),
            Err(error) => panic!("{error}"),
        }
    }
    let epoch = log.info().epoch;
    let last = appended.last().unwrap();
    let outcome = log.commit_until(last.end, Level::Durable, Instant::now() + PATIENCE);
    assert!(matches!(outcome, Err(CommitError::Fenced { .. })), "{outcome:?}");
    drop(log);
    group.kill(first);
    // Its folder alone can't tell what is committed of it (I-6), though all of it is on the medium.
    let alone = ReadOnly::open(&group.folder_of(first), OpenMode::Tail).unwrap();
    assert_eq!(alone.outcome(epoch, appended[0].start), Outcome::Unknown, "{:?}", alone.info());
    assert!(alone.info().persisted > appended[0].start, "{:?}", alone.info());
    assert_eq!(alone.info().durable, alone.info().trimmed);
    for at in &others {
        group.open(*at);
    }
    let (_, log) = group.primary();
    append_all(&log, (100..200).map(payload), Level::Durable);
    group.open(first);
    let end = append_all(&log, (200..300).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..300).map(payload).collect();
    for at in 0..3 {
        assert!(read_all(group.node(at)) == expected, "member {at}");
        assert_eq!(group.node(at).outcome(epoch, last.start), Outcome::Cut, "member {at}");
    }
    assert!(group.node(first).metrics().group.cuts > 0, "the suffix was on the old primary's disk");
}

#[test]
fn a_planned_handover_moves_the_tenure_without_waiting_for_suspicion() {
    // A debug build on a busy machine may stand still for longer than a primary is given by default.
    let group = Group::start_with(3, |options| options.suspicion(Duration::from_secs(2)));
    let (first, log) = group.primary();
    append_all(&log, (0..100).map(payload), Level::Durable);
    let to = (first + 1) % 3;
    let mut events = group.node(first).events();
    let let_go = StopReason::HandedOver { to: group.members[to].id };
    // The heir must stream to be one: until then it is refused, and the tenure goes on.
    loop {
        group.node(first).hand_over(group.members[to].id);
        let answer = wait_event(&mut events, |event| {
            let is_answer = matches!(
                event,
                NodeEvent::SteppedDown { .. } | NodeEvent::Group(Event::HandoverFailed { .. })
            );
            is_answer.then_some(event)
        });
        match answer {
            Some(NodeEvent::SteppedDown { reason, .. }) => break assert_eq!(reason, let_go),
            Some(_) => std::thread::sleep(Duration::from_millis(10)),
            None => panic!("nothing happens: {:?}", group.statuses()),
        }
    }
    let log = group.node(to).wait_primary(Instant::now() + PATIENCE).expect("the heir leads");
    let end = append_all(&log, (100..200).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..200).map(payload).collect();
    for at in 0..3 {
        assert!(read_all(group.node(at)) == expected, "member {at}");
    }
    assert_eq!(group.node(first).log().unwrap_err().primary, Some(group.members[to].id));
}

#[test]
fn a_reader_on_a_backup_follows_across_a_takeover() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let third = (first + 2) % 3;
    let reader = {
        let mut reader = group.node(third).read_from(group.node(third).status().trimmed).unwrap();
        std::thread::spawn(move || {
            let mut all = Vec::new();
            while all.len() < 400 {
                match reader.next_blocking(Some(Instant::now() + PATIENCE)) {
                    Ok(record) => all.push(record.payload.to_vec()),
                    Err(error) => panic!("after {} records: {error}", all.len()),
                }
            }
            all
        })
    };
    let end = append_all(&log, (0..200).map(payload), Level::Durable);
    drop(log);
    group.wait_durable(end);
    group.kill(first);
    let (_, log) = group.primary();
    append_all(&log, (200..400).map(payload), Level::Durable);
    let expected: Vec<Vec<u8>> = (0..400).map(payload).collect();
    assert!(reader.join().unwrap() == expected);
}

#[test]
fn a_read_barrier_covers_what_was_acknowledged_and_no_reader_sees_it() {
    let group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..10).map(payload), Level::Replicated);
    let barrier = group.node(first).read_barrier_blocking(Some(Instant::now() + PATIENCE)).unwrap();
    assert!(barrier >= end);
    let other = (first + 1) % 3;
    assert!(group.node(other).read_barrier_blocking(None).is_err(), "only a primary knows");
    let end = append_all(&log, (10..20).map(payload), Level::Durable);
    group.wait_durable(end);
    assert_eq!(read_all(group.node(other)), (0..20).map(payload).collect::<Vec<_>>());
}

/// What a group has may be cut by its takeovers alone: a suffix that one member cuts could be committed.
#[test]
fn a_groups_log_is_not_truncated_and_a_members_folder_is_no_lone_log() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let record = log.append(&payload(0)).unwrap();
    let end = append_all(&log, (1..50).map(payload), Level::Durable);
    assert!(matches!(log.truncate(record.start), Err(TruncateError::Group)));
    assert!(matches!(log.truncate(end), Err(TruncateError::Group)));
    let more = append_all(&log, (50..60).map(payload), Level::Durable);
    group.wait_durable(more);
    drop(log);
    let third = (first + 2) % 3;
    // Killed: an opening would write to its superblock, and as no member's pass over the configurations behind its mark.
    group.kill(third);
    let folder = group.folder_of(third);
    let files = || -> Vec<_> {
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
        files.sort();
        files
    };
    let before = files();
    let lone = || Options::new().any_filesystem(true);
    let refused = lone().open(&folder);
    assert!(matches!(refused, Err(OpenError::Member { .. })), "{refused:?}");
    let cut = lone().open_truncated(&folder, record.start).map(|_| ());
    assert!(cut.is_err(), "{cut:?}");
    let trimmed = lone().open_trimmed(&folder, end).map(|_| ());
    assert!(trimmed.is_err(), "{trimmed:?}");
    assert!(files() == before, "nothing has changed");
    group.open(third);
    group.wait_durable(more);
    for at in 0..3 {
        assert!(read_all(group.node(at)) == (0..60).map(payload).collect::<Vec<_>>(), "member {at}");
    }
}

/// Whoever can't be told from a primary that others have replaced gives no barrier: what it has may be old.
#[test]
fn a_primary_that_nobody_hears_gives_no_read_barrier() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..10).map(payload), Level::Durable);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(group.node(first).read_barrier()).unwrap() >= end);
    for at in (0..3).filter(|at| *at != first) {
        group.kill(at);
    }
    let alone = group.node(first);
    let blocking = alone.read_barrier_blocking(Some(Instant::now() + PATIENCE));
    // By the end of its tenure, which may have come between the two kills.
    let is_over = matches!(
        blocking,
        Err(BarrierError::Commit(CommitError::Fenced { .. })
            | BarrierError::Append(_)
            | BarrierError::NotPrimary(_))
    );
    assert!(is_over, "{blocking:?}");
    // Between the end of the tenure and the word of it its log is sealed already.
    let deadline = Instant::now() + PATIENCE;
    while !matches!(runtime.block_on(alone.read_barrier()).unwrap_err(), BarrierError::NotPrimary(_)) {
        assert!(Instant::now() < deadline, "{:?}", alone.status());
    }
}

#[test]
fn a_closed_group_comes_back_with_everything_and_a_clean_mark() {
    let mut group = Group::start(3);
    let (_, log) = group.primary();
    let end = append_all(&log, (0..300).map(payload), Level::Durable);
    drop(log);
    group.wait_durable(end);
    for at in 0..3 {
        group.nodes[at].take().unwrap().close().unwrap();
    }
    for at in 0..3 {
        group.open(at);
    }
    let (_, log) = group.primary();
    let end = append_all(&log, (300..400).map(payload), Level::Durable);
    group.wait_durable(end);
    for at in 0..3 {
        assert!(read_all(group.node(at)) == (0..400).map(payload).collect::<Vec<_>>(), "member {at}");
    }
}

#[test]
fn r9_a_leaked_reservation_ends_the_tenure_and_the_group_goes_on() {
    let mut group = Group::start_with(3, |options| options.reservation_limit(Duration::from_millis(200)));
    let (first, log) = group.primary();
    let end = append_all(&log, (0..50).map(payload), Level::Durable);
    let mut events = group.node(first).events();
    std::mem::forget(log.reserve(100).unwrap());
    let stuck = log.append(b"behind the hole").unwrap();
    let outcome = log.commit_until(stuck.end, Level::Durable, Instant::now() + PATIENCE);
    assert!(matches!(outcome, Err(CommitError::Failed { .. } | CommitError::Fenced { .. })), "{outcome:?}");
    // the log stays closed until the folder is opened again.
    let stuck = NodeEvent::Group(Event::Stopped { reason: StopReason::SealStuck });
    let stopped = wait_event(&mut events, |event| (event == stuck).then_some(()));
    assert!(stopped.is_some(), "it does not stop: {:?}", group.statuses());
    let (second, log2) = group.primary();
    assert_ne!(first, second);
    let end = append_all(&log2, (50..100).map(payload), Level::Durable).max(end);
    let stopped = group.nodes[first].take().unwrap();
    assert!(stopped.close().is_err(), "no clean mark");
    assert!(
        group.try_open(first).is_err(),
        "R-10: locked until this process ends, a producer may still write"
    );
    group.wait_durable(end);
    for at in (0..3).filter(|at| *at != first) {
        assert!(read_all(group.node(at)) == (0..100).map(payload).collect::<Vec<_>>(), "member {at}");
    }
}

#[test]
fn a_trim_inside_a_record_is_refused_and_harms_no_member_kind_44() {
    let group = Group::start(3);
    let (first, log) = group.primary();
    append_all(&log, (0..50).map(payload), Level::Durable);
    let appended = log.append(&payload(50)).unwrap();
    let end = append_all(&log, (51..100).map(payload), Level::Durable);
    group.wait_durable(end);
    // Taken on, it would reach every member's store, and end every one of them.
    let inside = Lsn(appended.start.0 + 8);
    let refused = TrimError::InsideRecord { lsn: inside, record: Some(appended.start..appended.end) };
    assert_eq!(log.trim(inside), Err(refused.clone()));
    let beyond = Lsn(end.0 + 8);
    for at in 0..3 {
        assert_eq!(group.node(at).trim(inside), Err(refused.clone()), "member {at}");
        assert!(matches!(group.node(at).trim(beyond), Err(TrimError::Beyond { lsn, .. }) if lsn == beyond));
    }
    log.trim(appended.start).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while group.node(first).status().trimmed < appended.start {
        assert!(Instant::now() < deadline, "{:#?}", group.statuses());
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = append_all(&log, (100..120).map(payload), Level::Durable);
    group.wait_durable(end);
    assert!(group.nodes.iter().flatten().all(|node| node.status().stopped.is_none()));
}

#[test]
fn a_group_of_one_leads_itself_and_a_group_of_five_survives_two() {
    let group = Group::start(1);
    let (_, log) = group.primary();
    let end = append_all(&log, (0..50).map(payload), Level::Durable);
    group.wait_durable(end);
    assert_eq!(read_all(group.node(0)).len(), 50);

    let mut group = Group::start(5);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    drop(log);
    group.wait_durable(end);
    group.kill(first);
    group.kill((first + 1) % 5);
    let (_, log) = group.primary();
    let end = append_all(&log, (100..200).map(payload), Level::Durable);
    group.wait_durable(end);
    for node in group.nodes.iter().flatten() {
        assert!(read_all(node) == (0..200).map(payload).collect::<Vec<_>>());
    }
}

#[test]
fn a_trim_in_a_group_is_checked_and_reaches_every_member() {
    let group = Group::start(3);
    let (first, log) = group.primary();
    let record = log.append(b"the first of many").unwrap();
    let end = append_all(&log, (0..5000).map(payload), Level::Durable);
    assert!(matches!(log.trim(Lsn(record.start.0 + 8)), Err(TrimError::InsideRecord { .. })));
    assert!(matches!(log.trim(Lsn(end.0 + 8)), Err(TrimError::Beyond { .. })));
    group.wait_durable(end);
    assert!(group.node(first).trim(Lsn(record.start.0 + 8)).is_err());
    for at in 0..3 {
        group.node(at).trim(end).unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while group.nodes.iter().flatten().any(|node| node.status().trimmed < end) {
        assert!(Instant::now() < deadline, "it is not released: {:#?}", group.statuses());
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = append_all(&log, (0..10).map(payload), Level::Durable);
    group.wait_durable(end);
    // A primary knows how far its backups are; nobody else has any.
    loop {
        let marks = |at: usize| (group.node(at).status().role, group.node(at).metrics().group.peers);
        let is_known = |(role, peers): (Role, PeerMarks)| match role {
            Role::Primary => peers.streaming == 2 && peers.persisted.0 >= end,
            Role::Backup | Role::Candidate | Role::Sealing | Role::Stopped => peers == PeerMarks::default(),
        };
        if (0..3).all(|at| is_known(marks(at))) {
            break;
        }
        assert!(Instant::now() < deadline, "{:#?}", group.statuses());
        std::thread::sleep(Duration::from_millis(5));
    }
    for at in 0..3 {
        assert_eq!(read_all(group.node(at)).len(), 10, "member {at}");
        let metrics = group.node(at).metrics().group;
        let text = metrics.to_prometheus("member=\"x\"");
        assert!(text.contains("windlass_group_batches_total{member=\"x\"} "), "{text}");
        let takeovers =
            format!("windlass_group_takeover_seconds_count{{member=\"x\"}} {}\n", metrics.takeovers);
        assert!(text.contains(&takeovers), "each tenure that began was timed: {text}");
        assert!(metrics.takeovers == 0 || metrics.takeover_ns.max > 0);
        assert_eq!(metrics.batch_bytes.count, metrics.batches);
        let peers = metrics.peers;
        let persisted =
            format!("windlass_group_peers_persisted_lsn{{member=\"x\"}} {}\n", peers.persisted.0.0);
        assert!(text.contains(&persisted), "{text}");
        assert!(peers.persisted.0 <= peers.placed.0 && peers.placed.0 <= peers.posted);
        // One doorbell and one completion for each batch and backup; the data is one write, or two across segments, or none.
        assert_eq!((metrics.batch_doorbells, metrics.batch_signalled), (metrics.batches, metrics.batches));
        assert!((metrics.batches..=3 * metrics.batches).contains(&metrics.batch_requests));
    }
}

#[test]
fn a_primary_that_is_closed_hands_over_first() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    group.wait_durable(end);
    let epoch = log.info().epoch;
    drop(log);
    let mut events = group.node(first).events();
    group.nodes[first].take().unwrap().close().unwrap();
    let reason = loop {
        match events.try_next() {
            Some(NodeEvent::SteppedDown { epoch: ended, reason }) if ended == epoch => break reason,
            Some(_) => {}
            None => panic!("it did not step down"),
        }
    };
    assert!(matches!(reason, StopReason::HandedOver { .. }), "{reason}");
    let (_, log) = group.primary();
    let end = append_all(&log, (100..200).map(payload), Level::Durable);
    group.wait_durable(end);
}
