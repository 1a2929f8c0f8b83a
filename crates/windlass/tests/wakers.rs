//! Wakers that use the log on the thread that wakes them: no lock is held there (DESIGN.md section 13.1).
#![allow(missing_docs, reason = "a test")]

mod support;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use support::Group;
use windlass::store::disk::Errno;
use windlass::{
    CloseError, CommitError, Level, Log, LogId, Lsn, MonotonicClock, NodeCloseError, Options, Place,
    Surroundings, TrimError, TruncateError,
};
use windlass_store::disk::testing::{Call, TestDisk};

/// How long what must come back may take; only a test that fails waits so long.
const IN_TIME: Duration = Duration::from_secs(120);

fn create(disk: &TestDisk) -> Log {
    let around = Surroundings { boot_id: [1; 16], incarnation: 7 };
    let place =
        Place { disk: disk.clone(), around, log_id: LogId([3; 16]), clock: Box::new(MonotonicClock::new()) };
    let options = Options::new().segment_bytes(64 << 10).threads(false).reservation_limit(IN_TIME);
    Log::create_in(place, options).unwrap()
}

type Act = Box<dyn FnOnce() + Send>;

/// Does something once, when it is woken.
struct Then(Mutex<Option<Act>>);

impl Wake for Then {
    fn wake(self: Arc<Self>) {
        let act = self.0.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
    }
}

fn then(act: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Then(Mutex::new(Some(Box::new(act))))))
}

fn is_pending(future: &mut (impl Future + Unpin), waker: &Waker) -> bool {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker)).is_pending()
}

/// On a thread of its own, which would never come back from a lock that it holds.
fn in_time(what: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        what();
        let _ = done.send(());
    });
    is_done.recv_timeout(IN_TIME).expect("it comes back");
}

#[test]
fn a_waker_may_trim_where_a_trim_has_woken_it() {
    let log = create(&TestDisk::new());
    let one = log.append(b"one").unwrap();
    let reserved = log.reserve(8).unwrap();
    let end = reserved.end();
    let (trims, is_trimmed) = mpsc::channel();
    let there = log.clone();
    let waker = then(move || trims.send(there.trim(end)).unwrap());
    let mut commit = log.commit(end, Level::Buffered);
    assert!(is_pending(&mut commit, &waker));
    reserved.publish();
    // Its own look drains, and that wakes.
    let here = log.clone();
    in_time(move || here.trim(one.end).unwrap());
    assert_eq!(is_trimmed.recv_timeout(IN_TIME).unwrap(), Ok(()));
    assert_eq!(log.info().trimmed, end);
}

/// A commit that waits, whose waker closes the log, and what the closing answers.
fn closes_when_woken(
    log: &Log,
    end: Lsn,
) -> (impl Future + Unpin + use<>, mpsc::Receiver<Result<(), CloseError>>) {
    let (closes, is_closed) = mpsc::channel();
    let there = log.clone();
    let waker = then(move || closes.send(there.close()).unwrap());
    let mut commit = log.commit(end, Level::Local);
    assert!(is_pending(&mut commit, &waker));
    (commit, is_closed)
}

#[test]
fn a_waker_may_close_where_closing_has_woken_it() {
    let log = create(&TestDisk::new());
    let one = log.append(b"one").unwrap();
    let (_commit, is_closed) = closes_when_woken(&log, one.end);
    in_time(move || log.close().unwrap());
    assert_eq!(is_closed.recv_timeout(IN_TIME).unwrap(), Ok(()));
}

#[test]
fn a_waker_may_close_where_the_helper_has_failed() {
    let disk = TestDisk::new();
    let log = create(&disk);
    let one = log.append(b"one").unwrap();
    let (_commit, is_closed) = closes_when_woken(&log, one.end);
    // The flush of the folder when the next segment gets its name.
    disk.fail(Call::SyncFolder, 1, Errno::IO);
    in_time(move || {
        let failed = (0..1000).any(|_| {
            let _ = log.step();
            log.info().failure.is_some()
        });
        assert!(failed);
    });
    assert!(is_closed.recv_timeout(IN_TIME).unwrap().is_err());
}

/// Who is woken by a closing that waits may be whom it waits for.
#[test]
fn closing_wakes_before_it_waits() {
    let log = create(&TestDisk::new());
    let (first, second) = (log.reserve(8).unwrap(), log.reserve(8).unwrap());
    let end = first.end();
    let (wakes, is_woken) = mpsc::channel();
    let waker = then(move || wakes.send(()).unwrap());
    let mut commit = log.commit(end, Level::Buffered);
    assert!(is_pending(&mut commit, &waker));
    let here = log.clone();
    thread::scope(|scope| {
        let closing = scope.spawn(move || here.close());
        first.publish();
        is_woken.recv_timeout(IN_TIME).unwrap();
        second.publish();
        closing.join().unwrap().unwrap();
    });
}

#[test]
fn a_truncation_that_waits_keeps_what_it_cuts_from_a_trim_and_gives_way_to_closing() {
    // Who comes first at the end is chance.
    for closes in [false].into_iter().chain([true; 50]) {
        let log = create(&TestDisk::new());
        let (one, two) = (log.append(b"one").unwrap(), log.append(b"two").unwrap());
        let reserved = log.reserve(8).unwrap();
        thread::scope(|scope| {
            let here = &log;
            let truncating = scope.spawn(move || here.truncate(two.start));
            while !matches!(log.append(b"three"), Err(windlass::AppendError::Sealed { .. })) {
                thread::yield_now();
            }
            assert_eq!(log.trim(one.end), Ok(()));
            assert_eq!(log.trim(two.end), Err(TrimError::Beyond { lsn: two.end, end: two.start }));
            let closing = closes.then(|| {
                let there = log.clone();
                let closing = scope.spawn(move || there.close());
                while log.trim(one.end) != Err(TrimError::Closed) {
                    thread::yield_now();
                }
                closing
            });
            reserved.publish();
            let truncated = truncating.join().unwrap();
            match closing {
                Some(closing) => {
                    assert!(matches!(truncated, Err(TruncateError::Sealed { .. })), "{truncated:?}");
                    closing.join().unwrap().unwrap();
                    assert_eq!(log.info().failure, None, "nothing has failed, and no line says so");
                }
                None => assert_eq!(truncated.unwrap().info().tail, two.start),
            }
        });
    }
}

const LEVELS: [Level; 4] = [Level::Buffered, Level::Local, Level::Replicated, Level::Durable];

/// Appends a record and commits it on this thread, as a waker may.
fn append_and_commit(log: &Log, level: Level) -> Result<Lsn, CommitError> {
    let end = log.append(b"by a waker").unwrap().end;
    log.commit_until(end, level, Instant::now() + IN_TIME).map(windlass::Committed::end)
}

/// A record with a commit that waits: the commit, and what its waker answers. It is published once the commit has a waker.
fn committed_then<T: Send + 'static>(
    log: &Log,
    level: Level,
    act: impl FnOnce(&Log) -> T + Send + 'static,
) -> (windlass::Commit, mpsc::Receiver<T>) {
    let reserved = log.reserve(8).unwrap();
    let mut commit = log.commit(reserved.end(), level);
    let (answers, answered) = mpsc::channel();
    let there = log.clone();
    let waker = then(move || answers.send(act(&there)).unwrap());
    assert!(is_pending(&mut commit, &waker));
    reserved.publish();
    (commit, answered)
}

/// Whoever steps the driver wakes it, and the driver is what it then waits for: with the driver kept it would wait for itself. Once with nobody else about,
/// once with committers that step.
#[test]
fn a_groups_waker_may_append_and_commit_blocking_at_each_level() {
    let group = Group::start(3);
    let (_, log) = group.primary();
    for committers in [0, 2] {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..committers {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        append_and_commit(&log, Level::Replicated).unwrap();
                    }
                });
            }
            for (outer, inner) in LEVELS.into_iter().flat_map(|outer| LEVELS.map(|inner| (outer, inner))) {
                let (_commit, answered) =
                    committed_then(&log, outer, move |log| append_and_commit(log, inner));
                let answer = answered.recv_timeout(IN_TIME);
                stop.store(!matches!(answer, Ok(Ok(_))), Ordering::Relaxed);
                answer.unwrap_or_else(|_| panic!("{outer}, then {inner}: it waits for itself")).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// The pump is in one and what wakes for the relief in another, behind which more wait: the heartbeats go on, and so do commits.
#[test]
fn wakers_that_block_stop_no_heartbeat() {
    let group = Group::start(3);
    let (_, log) = group.primary();
    let (gates, waits): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel::<()>()).unzip();
    let mut blocked = Vec::new();
    // Not `Buffered`: whoever drains, such as a committer, wakes for it.
    for (number, (level, wait)) in LEVELS.into_iter().rev().zip(waits).enumerate() {
        let (begins, has_begun) = mpsc::channel();
        let waits = committed_then(&log, level, move |_| {
            let _ = begins.send(());
            wait.recv_timeout(IN_TIME)
        });
        if number < 2 {
            // The second is woken while the first blocks.
            has_begun.recv_timeout(IN_TIME).unwrap();
        }
        blocked.push(waits);
    }
    // Longer than a member bears that its primary is silent.
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        for level in LEVELS {
            append_and_commit(&log, level).unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    for gate in gates {
        gate.send(()).unwrap();
    }
    for (_commit, answered) in blocked {
        assert_eq!(answered.recv_timeout(IN_TIME).unwrap(), Ok(()));
    }
}

#[test]
fn an_events_waker_may_append_and_commit() {
    let mut group = Group::start(3);
    let (at, log) = group.primary();
    append_and_commit(&log, Level::Durable).unwrap();
    let mut events = group.node(at).events();
    let (answers, answered) = mpsc::channel();
    let there = log.clone();
    let waker = then(move || answers.send(append_and_commit(&there, Level::Durable)).unwrap());
    // A peer may connect only now, and its event be there before anybody waits.
    let _next = loop {
        let mut next = Box::pin(events.next());
        if is_pending(&mut next, &waker) {
            break next;
        }
    };
    group.kill((at + 1) % 3);
    answered.recv_timeout(IN_TIME).expect("it comes back").unwrap();
}

#[test]
fn a_waker_that_closes_its_node_is_told_that_the_node_ends_behind_it() {
    let mut group = Group::start(1);
    let (at, log) = group.primary();
    let node = group.nodes[at].take().unwrap();
    let mut events = node.events();
    let (_commit, answered) = committed_then(&log, Level::Durable, move |_| node.close());
    let answer = answered.recv_timeout(IN_TIME).expect("it comes back");
    // On any other thread it waits for the end.
    assert!(matches!(answer, Ok(()) | Err(NodeCloseError::Within)), "{answer:?}");
    let until = Instant::now() + IN_TIME;
    while events.next_blocking(Some(until)).is_some() {}
    assert!(Instant::now() < until, "it ends");
    drop(log);
    // The thread that closes it has let go of the folder before it says that it has ended.
    group.open(at);
    let (_, log) = group.primary();
    append_and_commit(&log, Level::Durable).unwrap();
}
