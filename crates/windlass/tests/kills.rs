//! The primary is killed again and again under load: what was acknowledged stays, once and in order, on every member.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Group, PATIENCE, read_all};
use windlass::{CommitError, Level, Log};

/// Who appends: every writer waits for a log, uses it until its tenure ends, and waits for the next.
struct Feed {
    log: Mutex<Option<Log>>,
    stop: AtomicBool,
    acknowledged: Mutex<Vec<(u64, u64)>>,
}

fn write(feed: &Feed, writer: u64, level: Level) {
    let mut number = 0_u64;
    while !feed.stop.load(Ordering::Relaxed) {
        let log = feed.log.lock().unwrap().clone();
        let Some(log) = log else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        number += 1;
        let mut payload = [writer.to_le_bytes(), number.to_le_bytes()].concat();
        payload.resize(16 + usize::try_from(number * 7 % 900).unwrap(), 0x5a);
        let Ok(appended) = log.append_wait_blocking(&payload, Instant::now() + Duration::from_millis(500))
        else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        match log.commit_until(appended.end, level, Instant::now() + Duration::from_secs(5)) {
            Ok(_) => feed.acknowledged.lock().unwrap().push((writer, number)),
            // Unknown: a record that is never sent again may be there or not.
            Err(CommitError::Fenced { .. } | CommitError::Closed { .. } | CommitError::Deadline { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn kill_again_and_again(kills: usize, level: Level) {
    let mut group = Group::start_with(3, |options| options.suspicion(Duration::from_millis(200)));
    let feed = Arc::new(Feed {
        log: Mutex::new(Some(group.primary().1)),
        stop: AtomicBool::new(false),
        acknowledged: Mutex::new(Vec::new()),
    });
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let feed = Arc::clone(&feed);
            std::thread::spawn(move || write(&feed, writer, level))
        })
        .collect();
    let mut away = None;
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(300));
        let (primary, _) = group.primary();
        *feed.log.lock().unwrap() = None;
        group.kill(primary);
        if let Some(at) = away.replace(primary) {
            assert_ne!(at, primary);
        }
        let (_, log) = group.primary();
        *feed.log.lock().unwrap() = Some(log);
        std::thread::sleep(Duration::from_millis(50));
        // The folder is locked until writers have let go of their handles of the old tenure.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match group.try_open(primary) {
                Ok(node) => break group.nodes[primary] = Some(node),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        away = None;
    }
    std::thread::sleep(Duration::from_millis(300));
    feed.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    let acknowledged = feed.acknowledged.lock().unwrap().clone();
    *feed.log.lock().unwrap() = None;
    assert!(acknowledged.len() > 100, "only {} were acknowledged", acknowledged.len());
    // Whatever is committed now is durable everywhere soon after another commit.
    let (_, log) = group.primary();
    let end = log.append(b"end").unwrap().end;
    let _ = log.commit_until(end, Level::Durable, Instant::now() + PATIENCE).unwrap();
    group.wait_durable(end);
    let mut first: Option<Vec<Vec<u8>>> = None;
    for at in 0..3 {
        let all = read_all(group.node(at));
        if let Some(first) = &first {
            assert!(all == *first, "members differ");
            continue;
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let seen: Vec<(u64, u64)> =
            all.iter().filter(|p| p.len() >= 16).map(|p| (word(&p[..8]), word(&p[8..16]))).collect();
        let set: BTreeSet<(u64, u64)> = seen.iter().copied().collect();
        assert_eq!(set.len(), seen.len(), "a record is there twice");
        for writer in 0..4 {
            let numbers: Vec<u64> = seen.iter().filter(|(w, _)| *w == writer).map(|(_, n)| *n).collect();
            assert!(numbers.is_sorted(), "writer {writer} is out of order");
        }
        let lost: Vec<_> = acknowledged.iter().filter(|record| !set.contains(record)).collect();
        assert!(lost.is_empty(), "{} of {} acknowledged are lost: {lost:?}", lost.len(), acknowledged.len());
        first = Some(all);
    }
}

#[test]
fn nothing_durable_is_lost() {
    kill_again_and_again(4, Level::Durable);
}

#[test]
fn nothing_replicated_is_lost_when_processes_die() {
    kill_again_and_again(4, Level::Replicated);
}
