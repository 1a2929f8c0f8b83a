//! What every seed has in it, however short it is: a run that misses one of these proves nothing, and counts as failed.

use std::fmt;

use crate::fabric::MS;
use crate::world::World;

/// Records acknowledged, at any level.
pub(crate) const ACKNOWLEDGED: u64 = 1_000;
/// Epochs with a primary: the first one, and a takeover.
pub(crate) const TENURES: u64 = 2;
/// Kinds of fault that happened.
pub(crate) const FAULT_KINDS: u64 = 3;
/// How long a run goes on for the sake of what is missing while there are faults, and once they are over.
pub(crate) const FAULTY_MAX: u64 = 3_000 * MS;
pub(crate) const CALM_MAX: u64 = 12_000 * MS;

/// What a run has had of what every run must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Minimum {
    /// Records acknowledged, at any level.
    pub acknowledged: u64,
    /// Epochs with a primary.
    pub tenures: u64,
    /// Kinds of fault that happened.
    pub fault_kinds: u64,
}

impl Minimum {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.acknowledged >= ACKNOWLEDGED && self.tenures >= TENURES && self.fault_kinds >= FAULT_KINDS
    }
}

impl fmt::Display for Minimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {ACKNOWLEDGED} records acknowledged, {} of {TENURES} tenures, {} of {FAULT_KINDS} kinds of fault",
            self.acknowledged, self.tenures, self.fault_kinds
        )
    }
}

/// The run goes on until the minimum is met; where no member has taken over yet, an operator has one do so.
pub(crate) fn until_met(world: &mut World, longest: u64) {
    let end = world.now + longest;
    let mut asks_at = world.now;
    while world.violation.is_none() && !world.minimum().is_met() && world.now < end {
        if world.minimum().tenures < TENURES && world.now >= asks_at {
            asks_at = world.now + 100 * MS;
            world.provoke();
        }
        let until = world.now + 10 * MS;
        world.run(until);
    }
}
