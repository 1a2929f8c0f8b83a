//! The signal's flags under the model checker, with an event of the checker's for the descriptor.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::thread;
use windlass_fabric::model::{Event, check};

use super::*;

struct Bedside {
    flags: Flags,
    event: Event,
    rings: AtomicUsize,
    /// What those who raised have done before: it is ordered by nothing but the signal.
    done: AtomicUsize,
}

impl Bedside {
    fn new() -> Arc<Bedside> {
        Arc::new(Bedside {
            flags: Flags::new(),
            event: Event::new(),
            rings: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        })
    }

    fn raise(&self, flag: u32) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.flags.raise(flag) {
            self.rings.fetch_add(1, Ordering::Relaxed);
            self.event.ring();
        }
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Sleeps, if no flag is up.
    fn sleep(&self) {
        if self.flags.begin_sleep() {
            self.event.wait();
        }
        self.flags.end_sleep();
    }
}

#[test]
fn a_flag_is_never_slept_through_and_comes_with_what_was_done_before_it() {
    check(10, || {
        let bedside = Bedside::new();
        let raiser = {
            let bedside = Arc::clone(&bedside);
            thread::spawn(move || bedside.raise(CHANGED))
        };
        let woken = loop {
            if let Some(woken) = bedside.flags.take() {
                break woken;
            }
            bedside.sleep();
        };
        assert_eq!((woken, bedside.done()), (Woken::Ready, 1));
        raiser.join().unwrap();
        assert_eq!(bedside.flags.take(), None, "a flag is taken once");
    });
}

#[test]
fn of_two_who_raise_neither_is_lost_and_one_rings() {
    check(100, || {
        let bedside = Bedside::new();
        let raisers = [CHANGED, WOKEN].map(|flag| {
            let bedside = Arc::clone(&bedside);
            thread::spawn(move || bedside.raise(flag))
        });
        let mut sleeps = 0;
        loop {
            let woken = bedside.flags.take();
            if woken == Some(Woken::Wake) {
                break;
            }
            if woken.is_none() {
                bedside.sleep();
                sleeps += 1;
            }
        }
        raisers.into_iter().for_each(|raiser| raiser.join().unwrap());
        let rings = bedside.rings.load(Ordering::Relaxed);
        assert!(rings <= sleeps, "{rings} rings for {sleeps} sleeps");
    });
}

/// A ring that comes when its sleep has ended for another reason, a socket's, ends the next one and not more.
#[test]
fn the_next_sleep_hears_its_own_flag() {
    check(100, || {
        let bedside = Bedside::new();
        let raiser = {
            let bedside = Arc::clone(&bedside);
            thread::spawn(move || {
                bedside.event.ring();
                bedside.raise(CHANGED);
                bedside.raise(WOKEN);
            })
        };
        while bedside.flags.take() != Some(Woken::Wake) {
            bedside.sleep();
        }
        assert_eq!(bedside.done(), 2);
        raiser.join().unwrap();
        assert_eq!(bedside.flags.take(), None);
    });
}
