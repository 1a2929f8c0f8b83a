//! Spin a little before sleeping, where that has been worth it.
//!
//! Waking a thread costs more than a small exchange over loopback takes. But a thread that spins in vain takes the processor from
//! the one it waits for. So: spin only while waits have lately been short, and give way to others at each turn.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// Running mean of how long waits took, each counted as at most four limits.
    mean: Duration,
}

impl Spin {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, mean: Duration::ZERO }
    }

    /// Calls `ready` until it gives something, for as long as it is worth to spin; `None`: sleep.
    pub(crate) fn turn<T>(&mut self, start: Instant, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = ready() {
            return Some(found);
        }
        if !self.is_worth_it() {
            return None;
        }
        loop {
            std::thread::yield_now();
            if let Some(found) = ready() {
                return Some(found);
            }
            if start.elapsed() > self.limit {
                return None;
            }
        }
    }

    /// Whether waits have lately been short.
    pub(crate) fn is_worth_it(&self) -> bool {
        !self.limit.is_zero() && self.mean <= self.limit
    }

    /// Learns how long a wait took in the end.
    pub(crate) fn learn(&mut self, waited: Duration) {
        let waited = waited.min(self.limit * 4);
        self.mean = (self.mean * 7 + waited) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_end_the_spinning_and_short_ones_bring_it_back() {
        let mut spin = Spin::new(Duration::from_micros(50));
        for _ in 0..32 {
            spin.learn(Duration::from_millis(10));
        }
        assert!(!spin.is_worth_it());
        let mut turns = 0;
        let slept: Option<()> = spin.turn(Instant::now(), || {
            turns += 1;
            None
        });
        assert_eq!((slept, turns), (None, 1), "one look, no spinning");
        for _ in 0..32 {
            spin.learn(Duration::from_micros(10));
        }
        assert!(spin.is_worth_it());
        assert!(!Spin::new(Duration::ZERO).is_worth_it());
    }

    #[test]
    fn spinning_ends_with_what_it_waits_for_or_with_its_time() {
        let mut turns = 0;
        let found = Spin::new(Duration::from_secs(60)).turn(Instant::now(), || {
            turns += 1;
            (turns == 3).then_some(turns)
        });
        assert_eq!(found, Some(3));
        let never: Option<()> = Spin::new(Duration::from_micros(50)).turn(Instant::now(), || None);
        assert_eq!(never, None);
    }
}
