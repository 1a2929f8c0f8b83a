//! A drain that keeps what is logged, for tests of lines, here and in the crate itself.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::{Arc, Mutex, PoisonError};

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record};

/// The lines of whatever logs with [`Lines::logger`], in their order, without their keys and values.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Lines {
    pub(crate) fn logger(&self) -> Logger {
        Logger::root(self.clone(), slog::o!())
    }

    /// The lines of this level and above, which are forgotten with all others.
    pub(crate) fn take(&self, least: Level) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        lines.into_iter().filter(|(level, _)| level.is_at_least(least)).map(|(_, line)| line).collect()
    }

    /// How many lines are of this level or above.
    pub(crate) fn count(&self, least: Level) -> usize {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|(level, _)| level.is_at_least(least)).count()
    }

    /// Whether a line has these words.
    pub(crate) fn have(&self, words: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(_, line)| line.contains(words))
    }
}

impl Drain for Lines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let line = (record.level(), record.msg().to_string());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok(())
    }
}
