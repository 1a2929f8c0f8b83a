//! Time, injected: it decides timeouts and nothing else.

use std::fmt;
use std::time::{Duration, Instant};

/// A monotonic clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock; steps of the wall clock don't touch it.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock(Instant);

impl MonotonicClock {
    /// A clock that starts at zero now.
    #[must_use]
    pub fn new() -> MonotonicClock {
        MonotonicClock(Instant::now())
    }
}

impl Default for MonotonicClock {
    fn default() -> MonotonicClock {
        MonotonicClock::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
