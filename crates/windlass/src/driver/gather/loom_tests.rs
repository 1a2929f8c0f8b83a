//! Gathering under the model checker: committers as `Log::commit_blocking` of a group has them, on the watermark that a driver moves, and
//! a driver that sleeps when there is nothing to do, for ever if nobody wakes it.

use std::sync::Arc;

use loom::thread;
use windlass_fabric::model::{Event, check_preempted};

use super::*;
use crate::commit::{Level, Watch, wait_in_crowd};

struct Group {
    gather: Gather,
    wake: Event,
    durable: Watch,
}

impl Group {
    fn new() -> Arc<Group> {
        Arc::new(Group { gather: Gather::default(), wake: Event::new(), durable: Watch::new(Lsn(0)) })
    }

    fn commit(&self, end: u64) {
        if self.gather.ask(Lsn(end)) {
            self.wake.ring();
        }
        wait_in_crowd(&self.durable, Lsn(end), Level::Durable, None).unwrap();
    }

    fn commit_beside(self: &Arc<Group>, ends: &'static [u64]) -> thread::JoinHandle<()> {
        let group = Arc::clone(self);
        thread::spawn(move || ends.iter().for_each(|end| group.commit(*end)))
    }

    /// Steps the driver until everything below `end` is durable. After a turn that has found nothing to do it sleeps until it is woken. It waits for the group that
    /// the first flush wakes, if that goes to `first` and wakes so many: each of them is covered then, and comes back. Who is woken with the others and is not
    /// covered does not: there the real driver waits until the group's time is over.
    fn drive(&self, end: u64, first: u64, group: u64) {
        while self.durable.value() < Lsn(end) {
            let is_waiting = self.gather.is_waiting();
            let wanted = self.gather.wanted();
            if is_waiting || wanted <= self.durable.value() {
                self.wake.wait();
                continue;
            }
            let is_first = self.durable.value() == Lsn(0);
            self.durable.drained(wanted);
            let wake = || u64::try_from(self.durable.advance(wanted).wake()).unwrap();
            match self.gather.wake_group(wake, |woken| is_first && wanted == Lsn(first) && woken == group) {
                Gathered::Goes { is_owed: true } => self.wake.ring(),
                Gathered::Goes { is_owed: false } | Gathered::Waits => {}
            }
        }
    }
}

#[test]
fn a_commit_that_asks_while_others_are_woken_is_seen() {
    check_preempted(1, 100, || {
        let group = Group::new();
        let commits = [&[8][..], &[16]].map(|ends| group.commit_beside(ends));
        group.drive(16, 0, 0);
        commits.into_iter().for_each(|commit| commit.join().unwrap());
    });
}

/// Nothing but those who were woken ends the wait here: there is no time that is over.
#[test]
fn the_last_one_of_a_group_that_is_waited_for_wakes_the_driver() {
    check_preempted(2, 300, || {
        let group = Group::new();
        let commits = group.commit_beside(&[8, 16]);
        group.drive(16, 8, 1);
        commits.join().unwrap();
    });
}

#[test]
fn of_a_group_of_two_nobody_is_left_out() {
    check_preempted(1, 500, || {
        let group = Group::new();
        let commits = [&[8, 24][..], &[16, 32]].map(|ends| group.commit_beside(ends));
        group.drive(32, 16, 2);
        commits.into_iter().for_each(|commit| commit.join().unwrap());
    });
}
