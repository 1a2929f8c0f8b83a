use super::*;
use crate::commit::{Reached, Who};
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

/// A medium whose tail is a number, and whose flush takes as long as `flush` takes.
struct Fake<F> {
    tail: AtomicU64,
    flush: F,
}

impl<F: Fn(Lsn, Lsn) -> Result<(), Failure>> Medium for Fake<F> {
    fn drain(&self) -> Result<Lsn, Failure> {
        Ok(Lsn(self.tail.load(Ordering::SeqCst)))
    }
    fn flush(&self, start: Lsn, end: Lsn) -> Result<Lsn, Failure> {
        (self.flush)(start, end).map(|()| end)
    }
    fn drain_awaited(&self) -> bool {
        false
    }
    fn background(&self) -> Option<Lsn> {
        None
    }
}

fn gate() -> (Gate, Arc<Meters>) {
    let meters = Arc::new(Meters::default());
    (Gate::new(Arc::new(Watch::new(Lsn(0))), meters.clone()), meters)
}

#[test]
fn a_lone_committer_flushes_on_its_own_thread_and_never_waits() {
    let me = std::thread::current().id();
    let medium = Fake {
        tail: AtomicU64::new(0),
        flush: |_, _| {
            assert_eq!(std::thread::current().id(), me);
            Ok(())
        },
    };
    let (gate, meters) = gate();
    for _ in 0..100 {
        let end = Lsn(medium.tail.fetch_add(8, Ordering::SeqCst) + 8);
        gate.commit_blocking(&medium, end, Level::Local, None).unwrap();
        assert_eq!(gate.persisted.value(), end);
    }
    assert_eq!(meters.flushes.value(), 100);
    assert_eq!(meters.group_wait_ns.snapshot().count, 0);
}

/// A medium of which each flush makes 8 bytes durable.
struct Slow;

impl Medium for Slow {
    fn drain(&self) -> Result<Lsn, Failure> {
        Ok(Lsn(24))
    }
    fn flush(&self, start: Lsn, _end: Lsn) -> Result<Lsn, Failure> {
        Ok(Lsn(start.0 + 8))
    }
    fn drain_awaited(&self) -> bool {
        false
    }
    fn background(&self) -> Option<Lsn> {
        None
    }
}

#[test]
fn what_a_flush_says_to_be_durable_is_acknowledged_and_no_more() {
    let (gate, meters) = gate();
    assert_eq!(gate.lead(&Slow), Led::Flushed);
    assert_eq!(gate.persisted.value(), Lsn(8));
    gate.commit_blocking(&Slow, Lsn(20), Level::Local, None).unwrap();
    assert_eq!((gate.persisted.value(), meters.flushes.value()), (Lsn(24), 3));
}

#[test]
fn who_makes_a_group_full_flushes_at_once_whoever_lets_it_form() {
    let me = std::thread::current().id();
    let medium = Fake {
        tail: AtomicU64::new(16),
        flush: |_, _| {
            assert_eq!(std::thread::current().id(), me);
            Ok(())
        },
    };
    let (gate, meters) = gate();
    // Two are expected. The first has come, lets the group form, and has lost its core.
    gate.expected.store(2, Ordering::SeqCst);
    gate.arrive(Lsn(8));
    assert!(gate.turn(FREE, GATHERING));
    gate.commit_blocking(&medium, Lsn(16), Level::Local, None).unwrap();
    assert_eq!(meters.group_commits.snapshot().sum, 2);
    assert_eq!(gate.lead.load(Ordering::SeqCst), FREE);
}

#[test]
fn who_came_during_a_flush_is_expected_beside_those_whom_it_served_but_not_after_waiting_in_vain() {
    let (gate, meters) = gate();
    let medium = Fake {
        tail: AtomicU64::new(0),
        flush: |_, _| {
            gate.arrive(Lsn(0));
            Ok(())
        },
    };
    let commit = || {
        let end = Lsn(medium.tail.fetch_add(8, Ordering::SeqCst) + 8);
        gate.commit_blocking(&medium, end, Level::Local, None).unwrap();
        gate.expected.load(Ordering::SeqCst)
    };
    assert_eq!(commit(), 2, "the committer and who came meanwhile");
    assert_eq!(commit(), 3);
    assert_eq!(meters.group_wait_ns.snapshot().count, 0);
    gate.expected.store(9, Ordering::SeqCst);
    gate.flush_ns.store(1, Ordering::SeqCst);
    assert_eq!(commit(), 2, "the others did not come in time");
    assert_eq!(meters.group_wait_ns.snapshot().count, 1);
    for _ in 1..DOUBTS {
        assert_eq!(commit(), 2);
    }
    assert_eq!(commit(), 3);
}

/// Who led has left the next flush to the flush thread, for a future; then the future is gone, and a thread sleeps.
#[test]
fn a_future_that_is_dropped_before_the_flush_thread_comes_leaves_nobody_asleep_kind_82() {
    let (gate, _) = gate();
    let medium = Fake { tail: AtomicU64::new(16), flush: |_, _| Ok(()) };
    std::thread::scope(|scope| {
        let lead = Lead::new(&gate);
        assert!(gate.turn(FREE, FLUSHING));
        let committer = scope.spawn(|| gate.commit_blocking(&medium, Lsn(8), Level::Local, None));
        while gate.persisted.waiting() == 0 {
            std::thread::yield_now();
        }
        let mut future = Reached::new(gate.persisted.clone(), Lsn(16), Who::Future);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut future).poll(&mut context).is_pending());
        gate.future_waits(Lsn(16));
        drop(lead);
        gate.hand_over();
        drop(future);
        assert!(gate.thread.wanted.lock().unwrap().flush, "left to the flush thread");
        gate.serve(&medium, true);
        assert_eq!(committer.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_commit_in_a_destructor_of_a_thread_that_panics_fails_nothing() {
    struct Commits<'a, M: Medium>(&'a Gate, &'a M, Lsn);
    impl<M: Medium> Drop for Commits<'_, M> {
        fn drop(&mut self) {
            self.0.commit_blocking(self.1, self.2, Level::Local, None).unwrap();
        }
    }
    let medium = Fake { tail: AtomicU64::new(8), flush: |_, _| Ok(()) };
    let (gate, _) = gate();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _commits = Commits(&gate, &medium, Lsn(8));
        std::panic::resume_unwind(Box::new("the application's own"));
    }));
    assert!(unwound.is_err() && gate.persisted.stopped().is_none());
    medium.tail.store(16, Ordering::SeqCst);
    gate.commit_blocking(&medium, Lsn(16), Level::Local, None).unwrap();

    // A flush that panics does: nobody knows what it has flushed.
    let medium = Fake { tail: AtomicU64::new(24), flush: |_, _| panic!("a defect") };
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gate.lead(&medium)));
    assert!(unwound.is_err() && gate.persisted.stopped().is_some());
}

#[test]
fn persisted_never_passes_what_was_sampled_before_the_flush() {
    let tail = AtomicU64::new(8);
    let medium = Fake {
        tail: AtomicU64::new(8),
        flush: |_, end| {
            assert_eq!(end, Lsn(8));
            tail.store(64, Ordering::SeqCst);
            Ok(())
        },
    };
    let (gate, _) = gate();
    gate.commit_blocking(&medium, Lsn(8), Level::Local, None).unwrap();
    assert_eq!(gate.persisted.value(), Lsn(8));
}

#[test]
fn after_one_failed_flush_everyone_gets_the_error_for_ever_kind_24() {
    let calls = AtomicU64::new(0);
    let medium = Fake {
        tail: AtomicU64::new(0),
        flush: |start, end| {
            calls.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            Err(Failure::Flush { start, end, cause: "EIO".into() })
        },
    };
    let (gate, meters) = gate();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let end = Lsn(medium.tail.fetch_add(8, Ordering::SeqCst) + 8);
                let error = gate.commit_blocking(&medium, end, Level::Local, None).unwrap_err();
                assert!(matches!(error, CommitError::Failed { .. }), "{error}");
            });
        }
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a failed flush is never tried again");
    assert_eq!(meters.flush_failures.value(), 1);
    let end = Lsn(medium.tail.fetch_add(8, Ordering::SeqCst) + 8);
    gate.commit_blocking(&medium, end, Level::Local, None).unwrap_err();
    assert_eq!(gate.persisted.value(), Lsn(0));
}

#[test]
fn futures_are_served_by_the_flush_thread_and_dropping_one_harms_nobody_kind_82() {
    let medium = Fake {
        tail: AtomicU64::new(0),
        flush: |_, _| {
            std::thread::sleep(Duration::from_micros(200));
            Ok(())
        },
    };
    let (gate, _) = gate();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| gate.run_flush_thread(&medium));
        runtime.block_on(async {
            for round in 0..50u32 {
                let end = Lsn(medium.tail.fetch_add(8, Ordering::SeqCst) + 8);
                let mut future = Reached::new(gate.persisted.clone(), end, Who::Future);
                if round % 3 == 0 {
                    let first = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
                    assert!(first.is_pending());
                    gate.future_waits(end);
                    drop(future);
                    continue;
                }
                std::future::poll_fn(|cx: &mut Context<'_>| {
                    let poll = Pin::new(&mut future).poll(cx);
                    if poll.is_pending() {
                        gate.future_waits(end);
                    }
                    poll
                })
                .await
                .unwrap();
                assert!(gate.persisted.value() >= end);
            }
        });
        gate.stop_flush_thread();
    });
}

#[test]
fn threads_and_futures_together_all_get_through() {
    let medium = Fake {
        tail: AtomicU64::new(0),
        flush: |_, _| {
            std::thread::sleep(Duration::from_micros(100));
            Ok(())
        },
    };
    let (gate, meters) = gate();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| gate.run_flush_thread(&medium));
        let committers: Vec<_> = (0..6)
            .map(|i| {
                let (gate, medium) = (&gate, &medium);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for _ in 0..200 {
                        let end = Lsn(medium.tail.fetch_add(8, Ordering::SeqCst) + 8);
                        if i % 2 == 0 {
                            gate.commit_blocking(medium, end, Level::Local, None).unwrap();
                        } else {
                            let mut future = Reached::new(gate.persisted.clone(), end, Who::Future);
                            runtime
                                .block_on(std::future::poll_fn(|cx| {
                                    let poll = Pin::new(&mut future).poll(cx);
                                    if poll.is_pending() {
                                        gate.future_waits(end);
                                    }
                                    poll
                                }))
                                .unwrap();
                        }
                    }
                })
            })
            .collect();
        committers.into_iter().for_each(|c| c.join().unwrap());
        gate.stop_flush_thread();
        server.join().unwrap();
    });
    assert_eq!(gate.persisted.value(), Lsn(6 * 200 * 8));
    assert!(meters.flushes.value() < 1200);
}

/// The plain scheme to compare with: whoever finds nobody flushing flushes; the others sleep on a condition variable.
struct Plain {
    state: Mutex<(Lsn, bool)>,
    changed: Condvar,
}

impl Plain {
    fn commit(&self, medium: &impl Medium, end: Lsn) {
        let mut state = self.state.lock().unwrap();
        while state.0 < end {
            if state.1 {
                state = self.changed.wait(state).unwrap();
                continue;
            }
            state.1 = true;
            let start = state.0;
            drop(state);
            let to = medium.drain().unwrap();
            medium.flush(start, to).unwrap();
            state = self.state.lock().unwrap();
            *state = (to, false);
            self.changed.notify_all();
        }
    }
}

/// Prints commits per second of both schemes over the same file. Run with `--release -- --ignored --nocapture groups`.
#[test]
#[ignore = "a measurement"]
fn groups_fill_better_than_with_plain_leader_follower() {
    const BYTES: u64 = 64 << 20;
    let folder = tempfile::tempdir_in(".").unwrap();
    let file = std::fs::File::create(folder.path().join("log")).unwrap();
    (0..BYTES / 4096).for_each(|page| file.write_all_at(&[0; 4096], page * 4096).unwrap());
    file.sync_all().unwrap();
    let payload = vec![7u8; 1 << 20];
    let write = |start: Lsn, end: Lsn| {
        let length = usize::try_from(end.0 - start.0).unwrap();
        let at = start.0 % (BYTES - (1 << 20));
        file.write_all_at(&payload[..length], at).unwrap();
        file.sync_data().unwrap();
        Ok(())
    };
    for committers in [1, 4, 16] {
        for round in 0..3 {
            let rates = [false, true].map(|gated| {
                let medium = Fake { tail: AtomicU64::new(0), flush: write };
                let (gate, meters) = gate();
                let plain = Plain { state: Mutex::new((Lsn(0), false)), changed: Condvar::new() };
                let stop = AtomicBool::new(false);
                let begin = Instant::now();
                let done: u64 = std::thread::scope(|scope| {
                    let threads: Vec<_> = (0..committers)
                        .map(|_| {
                            scope.spawn(|| {
                                let mut n = 0;
                                while !stop.load(Ordering::Relaxed) {
                                    let end = Lsn(medium.tail.fetch_add(288, Ordering::SeqCst) + 288);
                                    if gated {
                                        gate.commit_blocking(&medium, end, Level::Local, None).unwrap();
                                    } else {
                                        plain.commit(&medium, end);
                                    }
                                    n += 1;
                                }
                                n
                            })
                        })
                        .collect();
                    std::thread::sleep(Duration::from_millis(700));
                    stop.store(true, Ordering::Relaxed);
                    threads.into_iter().map(|t| t.join().unwrap()).sum()
                });
                let rate = done as f64 / begin.elapsed().as_secs_f64();
                if gated {
                    println!(
                        "   group mean {:.1}, flush p50 {} us, gathered p50 {} us",
                        meters.group_commits.snapshot().mean(),
                        meters.flush_ns.snapshot().quantile(0.5) / 1000,
                        meters.group_wait_ns.snapshot().quantile(0.5) / 1000,
                    );
                }
                rate
            });
            println!(
                "{committers} committers, round {round}: plain {:.0}/s, gate {:.0}/s, ratio {:.2}",
                rates[0],
                rates[1],
                rates[1] / rates[0]
            );
        }
    }
}
