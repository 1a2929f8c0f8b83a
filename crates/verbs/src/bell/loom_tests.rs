//! The bell under the model checker, with an event of the checker's for the descriptor.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::thread;
use windlass_fabric::model::{Event, check};

use super::*;
use crate::sync::SlotU64;

struct Tower {
    bell: Bell,
    event: Event,
    rings: AtomicUsize,
    /// Who wakes has written it before, and the bell alone orders it.
    news: SlotU64,
    /// Reasons to wake so far.
    reasons: AtomicUsize,
}

impl Tower {
    fn new() -> Arc<Tower> {
        Arc::new(Tower {
            bell: Bell::new(),
            event: Event::new(),
            rings: AtomicUsize::new(0),
            news: SlotU64::new(0),
            reasons: AtomicUsize::new(0),
        })
    }

    fn wake(&self) {
        self.reasons.fetch_add(1, Ordering::Relaxed);
        if self.bell.wake() {
            self.rings.fetch_add(1, Ordering::Relaxed);
            self.event.ring();
        }
    }

    /// One wait as the completion queue does it: whether it was woken.
    fn wait(&self) -> bool {
        if self.bell.take() {
            return true;
        }
        if self.bell.begin() {
            self.event.wait();
        }
        self.bell.end()
    }

    /// Waits until there were so many reasons. How often.
    fn wait_for(&self, reasons: usize) -> usize {
        let mut waits = 0;
        while self.reasons.load(Ordering::Relaxed) < reasons {
            self.wait();
            waits += 1;
        }
        waits
    }
}

#[test]
fn a_wake_ends_a_wait_once_and_brings_what_was_written_before_it() {
    check(5, || {
        let tower = Tower::new();
        let other = {
            let tower = Arc::clone(&tower);
            thread::spawn(move || {
                tower.news.store(1, Ordering::Relaxed);
                tower.wake();
            })
        };
        while !tower.wait() {}
        assert_eq!(tower.news.load(Ordering::Relaxed), 1);
        other.join().unwrap();
        assert!(!tower.bell.take(), "a wake is taken once");
        assert!(tower.bell.begin() && !tower.bell.end());
    });
}

/// A wake that comes while the last one's ring is still under way is another one, also where a completion's event has ended the wait.
#[test]
fn a_second_wake_is_not_lost_to_the_ring_of_the_first() {
    check(20, || {
        let tower = Tower::new();
        let other = {
            let tower = Arc::clone(&tower);
            thread::spawn(move || {
                tower.event.ring();
                tower.wake();
                tower.wake();
            })
        };
        tower.wait_for(2);
        other.join().unwrap();
    });
}

#[test]
fn two_who_wake_at_once_are_both_heard_and_one_rings() {
    check(50, || {
        let tower = Tower::new();
        let others = [(), ()].map(|()| {
            let tower = Arc::clone(&tower);
            thread::spawn(move || tower.wake())
        });
        let waits = tower.wait_for(2);
        others.into_iter().for_each(|other| other.join().unwrap());
        let rings = tower.rings.load(Ordering::Relaxed);
        assert!(rings <= waits, "{rings} rings for {waits} waits");
    });
}
