//! Threads that wait for a watermark in a group's primary: many of them, woken together by one system call.
//!
//! The driver moves a watermark batch by batch, so who waits for one batch is told at once. All sleep on one word; each waits with the bit of its
//! *cohort*, the records of one turn of the drain, and an advance wakes the cohorts that it covers. Waking each by itself
//! costs a system call and, on an idle processor, an interrupt for each; waking all costs those whom it does not cover as much.
//!
//! Invariants: nobody sleeps on a word that has changed since it looked at the watermark; the word changes before a cohort is forgotten, so
//! that who takes its bit after that does not sleep; a cohort that is covered in part is woken whole, and who is not covered sleeps again.
//! Gone through by loom (`loom_tests`).

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use windlass_log::Lsn;

use crate::sync::{AtomicU32, AtomicUsize, Instant, Mutex, MutexGuard, futex};

/// Cohorts that are told apart; beyond, the open one takes in what follows.
const COHORTS_MAX: usize = 24;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Changes with each advance.
    word: AtomicU32,
    threads: AtomicUsize,
    cohorts: Mutex<Cohorts>,
}

#[derive(Debug, Default)]
struct Cohorts {
    /// Where each ends that the drain has passed and the watermark has not, oldest first. Behind them one is open.
    ends: VecDeque<Lsn>,
    /// The number of the oldest.
    first: u32,
}

impl Cohorts {
    fn bit(&self, at: usize) -> u32 {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        1 << (self.first.wrapping_add(at) % u32::BITS)
    }

    /// The bit of who waits for `end`.
    fn bit_of(&self, end: Lsn) -> u32 {
        self.bit(self.ends.partition_point(|cohort| *cohort < end))
    }

    /// Forgets what a watermark at `to` covers; the bits of all whom it covers, if only in part.
    fn pass(&mut self, to: Lsn) -> u32 {
        let mut bits = 0;
        let mut is_partial = true;
        while let Some(end) = self.ends.front().filter(|end| **end <= to) {
            is_partial = *end < to;
            bits |= self.bit(0);
            self.ends.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        if is_partial { bits | self.bit(0) } else { bits }
    }
}

impl Crowd {
    fn cohorts(&self) -> MutexGuard<'_, Cohorts> {
        self.cohorts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many sleep, or are about to.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    /// The drain has passed everything below `to`.
    pub(super) fn drained(&self, to: Lsn) {
        let mut cohorts = self.cohorts();
        if cohorts.ends.back().is_some_and(|last| *last >= to) {
            return;
        }
        // Its bit stays the open one's: who sleeps with it is woken by whatever passes the newest end.
        if cohorts.ends.len() < COHORTS_MAX {
            cohorts.ends.push_back(to);
        }
    }

    /// To be called before looking at the watermark; what it answers goes to [`Crowd::sleep`].
    pub(super) fn look(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Sleeps until the watermark may have reached `end`, unless it has moved since `looked`. May return early.
    pub(super) fn sleep(&self, looked: u32, end: Lsn, deadline: Option<Instant>) {
        let bit = self.cohorts().bit_of(end);
        let bits = NonZeroU32::new(bit).expect("one bit");
        let until = deadline.map(futex::monotonic);
        self.threads.fetch_add(1, Ordering::SeqCst);
        futex::wait(&self.word, looked, bits, until.as_ref());
        self.threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// The watermark has reached `to`, which who looks from here on sees. Whom to [`Crowd::wake`].
    pub(super) fn advanced(&self, to: Lsn) -> u32 {
        self.word.fetch_add(1, Ordering::SeqCst);
        self.cohorts().pass(to)
    }

    /// Wakes who sleeps with one of these bits. How many were woken.
    pub(super) fn wake(&self, bits: u32) -> usize {
        self.wake_some(bits, u32::MAX >> 1)
    }

    /// The watermark has stopped.
    pub(super) fn stopped(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        self.wake(u32::MAX);
    }

    /// Wakes one of those who sleep, if any does. Who is about to sleep looks again.
    pub(super) fn rouse_one(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        self.wake_some(u32::MAX, 1);
    }

    fn wake_some(&self, bits: u32, count_max: u32) -> usize {
        let Some(bits) = NonZeroU32::new(bits).filter(|_| self.threads() > 0) else { return 0 };
        futex::wake(&self.word, bits, count_max)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_advance_names_the_cohorts_that_it_covers_if_only_in_part() {
        let crowd = Crowd::default();
        let bit = |end| crowd.cohorts().bit_of(Lsn(end));
        let open = bit(50);
        crowd.drained(Lsn(100));
        assert_eq!(bit(50), open, "the cohort that was open is the one that the drain has closed");
        crowd.drained(Lsn(100));
        crowd.drained(Lsn(200));
        let (first, second, third) = (bit(100), bit(101), bit(201));
        assert!(first != second && second != third && first != third);
        assert_eq!(bit(200), second);
        let passed = crowd.cohorts().pass(Lsn(100));
        assert_eq!(passed, first, "exactly one batch");
        assert_eq!(bit(200), second, "who sleeps keeps its bit");
        let passed = crowd.cohorts().pass(Lsn(250));
        assert_eq!(passed, second | third, "the open cohort is covered in part");
    }

    /// Else it would sleep with the bit of a cohort that is still to come, and what covers it has been.
    #[test]
    fn who_takes_its_bit_after_the_advance_that_covers_it_finds_the_word_changed() {
        let crowd = Crowd::default();
        let looked = crowd.look();
        let bits = crowd.advanced(Lsn(100));
        let late = crowd.cohorts().bit_of(Lsn(100));
        crowd.drained(Lsn(200));
        assert!(bits & late != 0 || crowd.look() != looked);
        crowd.sleep(looked, Lsn(100), None);
    }

    /// While a flush takes as long as many turns of the drain, who sleeps by then keeps the bit that it went to sleep with.
    #[test]
    fn who_sleeps_when_there_are_as_many_cohorts_as_are_told_apart_is_woken_by_what_covers_it() {
        let crowd = Crowd::default();
        let mut asleep = Vec::new();
        for end in 1..=3 * u64::from(u32::BITS) {
            // Each goes to sleep before the drain has passed its record.
            asleep.push((end, crowd.cohorts().bit_of(Lsn(end))));
            crowd.drained(Lsn(end));
        }
        for to in [5, 30, asleep.len() as u64] {
            let bits = crowd.cohorts().pass(Lsn(to));
            for (end, bit) in asleep.extract_if(.., |(end, _)| *end <= to) {
                assert_ne!(bits & bit, 0, "the watermark at {to} covers {end}");
            }
        }
    }

    #[test]
    fn cohorts_are_bounded_and_nobody_is_forgotten() {
        let crowd = Crowd::default();
        for end in 1..=1000 {
            crowd.drained(Lsn(end));
        }
        assert!(crowd.cohorts().ends.len() <= COHORTS_MAX);
        let bit = crowd.cohorts().bit_of(Lsn(1000));
        assert_ne!(crowd.cohorts().pass(Lsn(1000)) & bit, 0);
    }
}
