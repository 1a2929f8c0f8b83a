//! How long a wait polls before it sleeps.

use std::time::Duration;

use crate::options::CompletionMode;

/// A wait that took this many times the longest spin weighs as if it had taken no longer: one long pause is not remembered for ever.
const OUTLIER: u32 = 8;

/// Decides by what waits have lately been like.
#[derive(Debug)]
pub(crate) struct Spin {
    mode: CompletionMode,
    /// Running mean of how long waits took.
    mean: Duration,
}

impl Spin {
    pub(crate) fn new(mode: CompletionMode) -> Spin {
        Spin { mode, mean: Duration::ZERO }
    }

    /// How long the next wait polls at most; `None` not at all.
    pub(crate) fn limit(&self) -> Option<Duration> {
        match self.mode {
            CompletionMode::Busy => Some(Duration::MAX),
            CompletionMode::Event => None,
            CompletionMode::Adaptive { spin_max } => (self.mean < spin_max).then_some(spin_max),
        }
    }

    pub(crate) fn never_sleeps(&self) -> bool {
        self.mode == CompletionMode::Busy
    }

    /// Notes how long a wait took.
    pub(crate) fn learn(&mut self, took: Duration) {
        if let CompletionMode::Adaptive { spin_max } = self.mode {
            self.mean = (self.mean * 7 + took.min(spin_max * OUTLIER)) / 8;
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
        assert_eq!(Spin::new(CompletionMode::Busy).limit(), Some(Duration::MAX));
        assert_eq!(Spin::new(CompletionMode::Event).limit(), None);
    }

    #[test]
    fn adaptive_stops_spinning_when_waits_get_long_and_begins_again() {
        let mut spin = Spin::new(CompletionMode::Adaptive { spin_max: SPIN });
        assert_eq!(spin.limit(), Some(SPIN));
        for _ in 0..20 {
            spin.learn(Duration::from_secs(10));
        }
        assert_eq!(spin.limit(), None, "waits took seconds");
        let mut short = 0;
        while spin.limit().is_none() {
            spin.learn(Duration::from_micros(5));
            short += 1;
            assert!(short < 100, "it never begins again");
        }
        assert!(short > 1, "one short wait says little");
    }

    #[test]
    fn no_spin_at_all_is_event_driven() {
        assert_eq!(Spin::new(CompletionMode::Adaptive { spin_max: Duration::ZERO }).limit(), None);
    }
}
