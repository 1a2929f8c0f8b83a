//! How long a wait polls before it sleeps.

use std::time::Duration;

use crate::options::CompletionMode;

/// A wait that took this many times the longest spin weighs as if it had taken no longer: one long pause is not remembered for ever.
const OUTLIER: u32 = 8;

/// Decides by what waits have lately been like.
#[derive(Debug)]
pub(crate) struct Spin {
    mode: CompletionMode,
    /// Running means of how long waits took: for something to happen, and for an answer that is due. A round trip stays what it is however
    /// rarely there is one.
    means: [Duration; 2],
}

impl Spin {
    pub(crate) fn new(mode: CompletionMode) -> Spin {
        Spin { mode, means: [Duration::ZERO; 2] }
    }

    /// How long the next wait polls at most; `None` not at all. `is_due`: the device owes an answer.
    pub(crate) fn limit(&self, is_due: bool) -> Option<Duration> {
        match self.mode {
            CompletionMode::Busy => Some(Duration::MAX),
            CompletionMode::Event => None,
            CompletionMode::Adaptive { spin_max } => {
                (self.means[usize::from(is_due)] < spin_max).then_some(spin_max)
            }
        }
    }

    pub(crate) fn never_sleeps(&self) -> bool {
        self.mode == CompletionMode::Busy
    }

    /// Notes how long a wait took.
    pub(crate) fn learn(&mut self, is_due: bool, took: Duration) {
        if let CompletionMode::Adaptive { spin_max } = self.mode {
            let mean = &mut self.means[usize::from(is_due)];
            *mean = (*mean * 7 + took.min(spin_max * OUTLIER)) / 8;
        }
    }

    /// Between two turns: a busy thread has its core for itself, another gives way.
    pub(crate) fn pause(&self) {
        match self.mode {
            CompletionMode::Busy => std::hint::spin_loop(),
            CompletionMode::Event | CompletionMode::Adaptive { .. } => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);

    #[test]
    fn busy_never_sleeps_and_event_never_spins() {
        assert_eq!(Spin::new(CompletionMode::Busy).limit(false), Some(Duration::MAX));
        assert_eq!(Spin::new(CompletionMode::Event).limit(false), None);
    }

    #[test]
    fn adaptive_stops_spinning_when_waits_get_long_and_begins_again() {
        let mut spin = Spin::new(CompletionMode::Adaptive { spin_max: SPIN });
        assert_eq!(spin.limit(false), Some(SPIN));
        for _ in 0..20 {
            spin.learn(false, Duration::from_secs(10));
        }
        assert_eq!(spin.limit(false), None, "waits took seconds");
        let mut short = 0;
        while spin.limit(false).is_none() {
            spin.learn(false, Duration::from_micros(5));
            short += 1;
            assert!(short < 100, "it never begins again");
        }
        assert!(short > 1, "one short wait says little");
    }

    #[test]
    fn an_answer_that_is_due_is_waited_for_by_polling_however_long_nothing_happened_before() {
        let mut spin = Spin::new(CompletionMode::Adaptive { spin_max: SPIN });
        for _ in 0..20 {
            spin.learn(false, Duration::from_millis(20));
            spin.learn(true, Duration::from_micros(5));
        }
        assert_eq!((spin.limit(false), spin.limit(true)), (None, Some(SPIN)));
        for _ in 0..20 {
            spin.learn(true, Duration::from_millis(1));
        }
        assert_eq!(spin.limit(true), None, "this device takes longer than it is polled for");
    }

    #[test]
    fn no_spin_at_all_is_event_driven() {
        assert_eq!(Spin::new(CompletionMode::Adaptive { spin_max: Duration::ZERO }).limit(false), None);
    }
}
