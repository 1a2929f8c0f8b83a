//! Wakers that use the log on the thread that wakes them: no lock is held there (DESIGN.md section 13.1).
#![allow(missing_docs, reason = "a test")]

use std::future::Future;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use windlass::store::disk::Errno;
use windlass::{
    CloseError, Level, Log, LogId, Lsn, MonotonicClock, Options, Place, Surroundings, TrimError,
    TruncateError,
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
    for closes in [false, true] {
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
                }
                None => assert_eq!(truncated.unwrap().info().tail, two.start),
            }
        });
    }
}
