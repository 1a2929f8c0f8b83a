//! The crowd under the model checker, below the watermark whose advances it hears of and with the checker's futex. Who sleeps for ever fails a test.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use loom::thread;
use windlass_fabric::model::{AtomicBool, check, check_preempted};
use windlass_log::Lsn;

use crate::commit::{CommitError, Level, Stopped, Watch, wait_in_crowd};
use crate::sync::Instant;

struct Mark {
    watch: Watch,
    /// What the driver has made durable: the watermark alone orders it.
    flushed: AtomicU64,
    /// Whether nobody leads: what is changed before one who sleeps is roused.
    is_free: AtomicBool,
}

impl Mark {
    fn new() -> Arc<Mark> {
        Arc::new(Mark {
            watch: Watch::new(Lsn(0)),
            flushed: AtomicU64::new(0),
            is_free: AtomicBool::new(false),
        })
    }

    fn wait(&self, end: u64, deadline: Option<Instant>) -> Result<(), CommitError> {
        let answer = wait_in_crowd(&self.watch, Lsn(end), Level::Durable, deadline);
        if answer.is_ok() {
            assert!(self.flushed.load(Ordering::Relaxed) >= end, "acknowledged beyond what is flushed");
        }
        answer
    }

    fn wait_beside(self: &Arc<Mark>, end: u64) -> thread::JoinHandle<Result<(), CommitError>> {
        let mark = Arc::clone(self);
        thread::spawn(move || mark.wait(end, None))
    }

    /// Sleeps unless nobody leads, until it is roused once.
    fn wait_for_free_beside(self: &Arc<Mark>) -> thread::JoinHandle<()> {
        let mark = Arc::clone(self);
        thread::spawn(move || {
            let looked = mark.watch.look();
            if !mark.is_free.load(Ordering::SeqCst) {
                mark.watch.sleep(looked, Lsn(16), None);
            }
        })
    }

    /// Nobody leads from here on.
    fn give_back(&self) {
        self.is_free.store(true, Ordering::SeqCst);
        self.watch.rouse_one();
    }

    /// One turn of the drain and the flush of what it passed. How many it has woken.
    fn advance(&self, to: u64) -> usize {
        self.watch.drained(Lsn(to));
        self.flush(to)
    }

    fn advance_once(&self) {
        assert!(self.advance(8) <= 1);
    }

    fn flush(&self, to: u64) -> usize {
        self.flushed.store(to, Ordering::Relaxed);
        self.watch.advance(Lsn(to)).wake()
    }
}

#[test]
fn an_advance_is_never_slept_through_and_comes_with_what_was_flushed_before_it() {
    check(50, || {
        let mark = Mark::new();
        let waits = mark.wait_beside(8);
        let woken = mark.advance(8);
        assert!(woken <= 1);
        assert_eq!(waits.join().unwrap(), Ok(()));
        assert_eq!(mark.watch.waiting(), 0);
    });
}

/// Who has its bit before the drain has closed the first cohort is woken with the other, is not covered, sleeps again, and hears the next advance.
#[test]
fn two_of_different_cohorts_are_both_woken_by_what_covers_them() {
    check_preempted(2, 500, || {
        let mark = Mark::new();
        let waits = [8, 16].map(|end| mark.wait_beside(end));
        mark.watch.drained(Lsn(8));
        mark.advance(8);
        mark.advance(16);
        waits.into_iter().for_each(|waits| assert_eq!(waits.join().unwrap(), Ok(())));
        assert_eq!(mark.watch.waiting(), 0);
    });
}

#[test]
fn who_is_covered_is_woken_where_the_others_of_its_cohort_are_not() {
    check(50, || {
        let mark = Mark::new();
        let waits = mark.wait_beside(8);
        mark.watch.drained(Lsn(16));
        mark.flush(8);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_stop_is_heard_by_who_sleeps_and_who_is_about_to() {
    check(400, || {
        let mark = Mark::new();
        let waits = mark.wait_beside(16);
        mark.advance(8);
        mark.watch.stop(Stopped::Closed);
        assert_eq!(waits.join().unwrap(), Err(CommitError::Closed { end: Lsn(16) }));
    });
}

#[test]
fn one_that_is_roused_looks_again() {
    check(20, || {
        let mark = Mark::new();
        let looks = mark.wait_for_free_beside();
        mark.give_back();
        looks.join().unwrap();
    });
}

/// Else the word would be again as it was when the sleeper looked.
#[test]
fn no_change_of_the_word_is_undone_by_another() {
    let others: [fn(&Mark); 2] = [|mark| mark.watch.rouse_one(), Mark::advance_once];
    for other in others {
        check_preempted(3, 2_000, move || {
            let mark = Mark::new();
            let looks = mark.wait_for_free_beside();
            let changes = {
                let mark = Arc::clone(&mark);
                thread::spawn(move || other(&mark))
            };
            mark.watch.rouse_one();
            mark.give_back();
            looks.join().unwrap();
            changes.join().unwrap();
        });
    }
}

/// A sleep that ends by its time leaves nothing behind that the next wake would go to.
#[test]
fn a_deadline_ends_a_sleep_and_the_others_are_still_woken() {
    check_preempted(2, 200, || {
        let mark = Mark::new();
        let waits = mark.wait_beside(8);
        let late = {
            let mark = Arc::clone(&mark);
            thread::spawn(move || mark.wait(16, Some(Instant::now() + Duration::from_nanos(9))))
        };
        mark.advance(8);
        assert_eq!(waits.join().unwrap(), Ok(()));
        assert!(matches!(late.join().unwrap(), Err(CommitError::Deadline { .. })));
        assert_eq!(mark.watch.waiting(), 0);
    });
}
