//! What streams are under way, for people, and how many there may be.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_log::{Lsn, MemberId};

/// Streams that one member gives at the same time.
pub(crate) const GIVEN_MAX: usize = 2;

/// The checkpoints that come and go at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CheckpointStatus {
    /// The primary has released what this member lacks: a checkpoint has to reach at least here.
    pub needed_from: Option<Lsn>,
    /// The one that comes here.
    pub taking: Option<Taking>,
    /// Those that peers are given.
    pub giving: Vec<Giving>,
}

/// A checkpoint that is being taken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Taking {
    /// From whom.
    pub giver: MemberId,
    /// Where the log goes on behind it.
    pub at: Lsn,
    /// Bytes that the application has taken.
    pub taken_bytes: u64,
    /// Of how many, if the giver knows.
    pub bytes: Option<u64>,
}

/// A checkpoint that is being given.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Giving {
    /// To whom.
    pub taker: MemberId,
    /// Where its log goes on behind it; 0 while the application opens it.
    pub at: Lsn,
    /// Bytes that have been read from the application.
    pub given_bytes: u64,
    /// Of how many, if the application has said so.
    pub bytes: Option<u64>,
}

/// The streams of one member.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    taking: Mutex<Option<Taking>>,
    giving: Mutex<BTreeMap<u64, Giving>>,
    made: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(crate) fn status(&self, needed_from: Option<Lsn>) -> CheckpointStatus {
        let giving = locked(&self.giving).values().cloned().collect();
        CheckpointStatus { needed_from, taking: locked(&self.taking).clone(), giving }
    }

    pub(crate) fn take(&self, taking: Option<Taking>) {
        *locked(&self.taking) = taking;
    }

    pub(crate) fn taken(&self, bytes: u64) {
        if let Some(taking) = locked(&self.taking).as_mut() {
            taking.taken_bytes = bytes;
        }
    }

    /// A place for one more that is given, if there is one. A member has one at most: one that asks again while the application still opens what it has left
    /// must not hold up the others, and waits itself until that call is back.
    pub(crate) fn give(self: &Arc<Ledger>, taker: MemberId) -> Option<Given> {
        let mut giving = locked(&self.giving);
        if giving.len() >= GIVEN_MAX || giving.values().any(|given| given.taker == taker) {
            return None;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        giving.insert(number, Giving { taker, at: Lsn(0), given_bytes: 0, bytes: None });
        Some(Given { ledger: Arc::clone(self), number })
    }
}

/// A place among those that are given; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Given {
    ledger: Arc<Ledger>,
    number: u64,
}

impl Given {
    pub(crate) fn note(&self, change: impl FnOnce(&mut Giving)) {
        if let Some(giving) = locked(&self.ledger.giving).get_mut(&self.number) {
            change(giving);
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        locked(&self.ledger.giving).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_asks_again_while_its_first_call_is_open_takes_no_place_of_the_others() {
        let ledger = Arc::new(Ledger::default());
        let (one, two, three) = (MemberId(1), MemberId(2), MemberId(3));
        let first = ledger.give(one).expect("a place");
        assert!(ledger.give(one).is_none(), "it has left that one, and the application still opens it");
        let second = ledger.give(two).expect("a place for another member");
        assert!(ledger.give(three).is_none(), "all are taken");
        drop(first);
        let again = ledger.give(one).expect("its own is free again");
        drop((second, again));
        assert_eq!(ledger.status(None).giving, []);
    }
}
