//! Who leads a flush, under the model checker: the gate over its watermark and its crowd, with the checker's futex. Who sleeps for ever
//! fails a test, and the medium fails it where two flush at once or where a flush begins elsewhere than at what was flushed before.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::sync::atomic::AtomicU64 as Word;
use loom::thread::{JoinHandle, spawn};
use windlass_fabric::model::{Event, check_preempted};

use super::*;
use crate::commit::{Reached, Who};

/// A gate and its medium. What the medium counts is ordered by the gate alone: by the lead and the watermark.
struct Rig {
    gate: Gate,
    /// Up to where records are whole.
    published: Word,
    flushed: Word,
    flushing: Word,
    /// Its flushes fail.
    is_broken: bool,
}

impl Medium for Rig {
    fn drain(&self) -> Result<Lsn, Failure> {
        Ok(Lsn(self.published.load(Ordering::Acquire)))
    }

    fn flush(&self, start: Lsn, end: Lsn) -> Result<Lsn, Failure> {
        assert_eq!(self.flushing.swap(1, Ordering::Relaxed), 0, "two flush at once");
        assert_eq!(
            self.flushed.load(Ordering::Relaxed),
            start.0,
            "begins elsewhere than the flush before has ended"
        );
        if self.is_broken {
            return Err(Failure::Flush { start, end, cause: "EIO".into() });
        }
        self.flushed.store(end.0, Ordering::Relaxed);
        self.flushing.store(0, Ordering::Relaxed);
        Ok(end)
    }

    fn drain_awaited(&self) -> bool {
        false
    }

    fn background(&self) -> Option<Lsn> {
        None
    }
}

/// What a future's task sleeps on.
struct Alarm(Event);

impl std::task::Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}

/// What a thread does with the rig.
type Does = fn(&Rig);

impl Rig {
    fn new(is_broken: bool) -> Rig {
        let gate = Gate::new(Arc::new(Watch::new(Lsn(0))), Arc::new(Meters::default()));
        Rig { gate, published: Word::new(0), flushed: Word::new(0), flushing: Word::new(0), is_broken }
    }

    /// As if the flush before had served so many, and had taken a few looks at the clock.
    fn expecting(commits: u64) -> Rig {
        let rig = Rig::new(false);
        rig.gate.expected.store(commits, Ordering::SeqCst);
        rig.gate.flush_ns.store(3, Ordering::SeqCst);
        rig
    }

    /// Each on a thread of its own, but for the last. Nobody leads when all are done.
    fn run(self, others: &[Does], last: Does) -> Arc<Rig> {
        let rig = Arc::new(self);
        let begin = |does: &Does| {
            let (rig, does) = (Arc::clone(&rig), *does);
            spawn(move || does(&rig))
        };
        let others: Vec<JoinHandle<()>> = others.iter().map(begin).collect();
        last(&rig);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(rig.gate.lead.load(Ordering::SeqCst), FREE);
        assert_eq!(rig.gate.persisted.waiting(), 0);
        rig
    }

    fn append(&self) -> Lsn {
        Lsn(self.published.fetch_add(8, Ordering::AcqRel) + 8)
    }

    fn publish(&self) {
        let _ = self.append();
    }

    /// What is acknowledged is flushed.
    fn acknowledge(&self, end: Lsn) {
        assert!(self.flushed.load(Ordering::Relaxed) >= end.0, "acknowledged beyond what is flushed");
    }

    fn commit_to(&self, end: Lsn) {
        self.gate.commit_blocking(self, end, Level::Local, None).unwrap();
        self.acknowledge(end);
    }

    fn commit(&self) {
        self.commit_to(self.append());
    }

    /// Commits, and gives up after so many looks at the clock.
    fn commit_within(&self, looks: u64) {
        let deadline = Some(Instant::now() + Duration::from_nanos(looks));
        match self.gate.commit_blocking(self, self.append(), Level::Local, deadline) {
            Ok(()) | Err(CommitError::Deadline { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    /// As the flush thread does with a stretch of what is sealed.
    fn flush_behind(&self, end: Lsn) {
        self.gate.lead_up_to(self, end);
    }

    /// Commits as a future, which has been polled once.
    fn begin_future(&self, end: Lsn, waker: &Waker) -> (Reached, Poll<Result<(), CommitError>>) {
        let mut reached = Reached::new(Arc::clone(&self.gate.persisted), end, Who::Future);
        let poll = Pin::new(&mut reached).poll(&mut Context::from_waker(waker));
        if poll.is_pending() {
            self.gate.future_waits(end);
        }
        (reached, poll)
    }

    /// Commits as a future whose task has a thread of its own.
    fn commit_as_future(&self) {
        let alarm = Arc::new(Alarm(Event::new()));
        let waker = Waker::from(Arc::clone(&alarm));
        let end = self.append();
        let (mut reached, mut poll) = self.begin_future(end, &waker);
        while poll.is_pending() {
            alarm.0.wait();
            poll = Pin::new(&mut reached).poll(&mut Context::from_waker(&waker));
        }
        assert_eq!(poll, Poll::Ready(Ok(())));
        self.acknowledge(end);
    }
}

#[test]
fn of_two_committers_one_flushes_at_a_time_and_nobody_sleeps_for_ever() {
    check_preempted(3, 1_500, || {
        let rig = Rig::new(false).run(&[Rig::commit], Rig::commit);
        assert_eq!(rig.gate.persisted.value(), Lsn(16));
    });
}

#[test]
fn of_three_committers_who_leads_is_roused_for_those_who_still_wait() {
    check_preempted(2, 5_000, || {
        let rig = Rig::new(false).run(&[Rig::commit, Rig::commit], Rig::commit);
        assert_eq!(rig.gate.persisted.value(), Lsn(24));
    });
}

/// The group forms, or its time is over.
#[test]
fn a_group_that_forms_is_flushed_by_somebody() {
    check_preempted(3, 700, || {
        Rig::expecting(2).run(&[Rig::commit], Rig::commit);
    });
}

#[test]
fn a_group_of_which_not_all_come_is_flushed_too() {
    check_preempted(3, 200, || {
        Rig::expecting(3).run(&[Rig::commit], Rig::commit);
    });
}

/// Who flushes in the background waits for nobody.
#[test]
fn who_flushes_for_nobody_leaves_nobody_asleep() {
    check_preempted(3, 800, || {
        Rig::new(false).run(&[Rig::commit], |rig| rig.flush_behind(rig.append()));
    });
}

#[test]
fn who_waits_for_a_record_that_is_not_published_yet_flushes_it_then() {
    check_preempted(3, 10, || {
        Rig::new(false).run(&[|rig| rig.publish()], |rig| rig.commit_to(Lsn(8)));
    });
}

/// Its time is over while it lets a group form, or while it sleeps.
#[test]
fn who_gives_up_leaves_nobody_asleep() {
    let does: [Does; 3] =
        [|rig| rig.commit_within(2), |rig| rig.commit_within(3), |rig| rig.commit_within(4)];
    for gives_up in does {
        check_preempted(3, 200, move || drop(Rig::expecting(3).run(&[Rig::commit], gives_up)));
    }
}

/// The second look at the clock is too late.
#[test]
fn who_is_roused_to_lead_and_gives_up_rouses_another() {
    check_preempted(2, 5_000, || {
        let rig = Rig::new(false);
        let first = rig.append();
        assert_eq!(first, Lsn(8));
        rig.run(&[Rig::commit, |rig| rig.commit_within(2)], |rig| rig.flush_behind(Lsn(8)));
    });
}

#[test]
fn a_flush_that_fails_is_told_to_everyone() {
    check_preempted(3, 2_000, || {
        let fails: Does = |rig| {
            let answer = rig.gate.commit_blocking(rig, rig.append(), Level::Local, None);
            assert!(matches!(answer, Err(CommitError::Failed { .. })));
        };
        Rig::new(true).run(&[fails], fails);
    });
}

#[test]
fn the_flush_thread_flushes_for_a_future_beside_a_committer() {
    check_preempted(2, 2_000, || {
        Rig::new(false).run(&[|rig| rig.gate.run_flush_thread(rig), Rig::commit], |rig| {
            rig.commit_as_future();
            rig.gate.stop_flush_thread();
        });
    });
}

/// Who led has left the next flush to the flush thread, for a future that is gone when it comes (kind 82).
#[test]
fn a_future_that_is_dropped_leaves_nobody_asleep() {
    check_preempted(2, 3_000, || {
        let rig = Rig::new(false);
        let first = rig.append();
        assert_eq!(first, Lsn(8));
        let commits: Does = |rig| {
            rig.commit();
            rig.gate.stop_flush_thread();
        };
        rig.run(&[commits, |rig| rig.gate.run_flush_thread(rig)], |rig| {
            let future = rig.begin_future(rig.append(), Waker::noop());
            rig.flush_behind(Lsn(8));
            drop(future);
        });
    });
}
