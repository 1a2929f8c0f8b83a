//! One seed: faults for a while, then healing, then the group must come back to life.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coverage::Coverage;
use crate::fabric::MS;
use crate::minimum::{self, Minimum};
use crate::oracle::{Violation, panics};
use crate::setting::Setting;
use crate::world::World;

/// How long a healed group may take until it is whole again, in virtual time.
pub(crate) const LIVENESS: u64 = 20_000 * MS;
/// How long clients go on after the faults.
pub(crate) const CALM: u64 = 30 * MS;

/// How a seed went.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// What was counted.
    pub coverage: Coverage,
    /// Turns of drivers, disk work, frames, requests: everything that happened but timers that found nothing to do.
    pub events: u64,
    /// What the run has had of what every run must have.
    pub minimum: Minimum,
    /// Commits that ended as unknown.
    pub unknown: u64,
    /// The time of the world at the end, in nanoseconds.
    pub virtual_ns: u64,
    /// A hash of everything that happened and of what is on the disks at the end, and how many lines there were.
    pub digest: (u64, u64),
    /// The lines, if they were asked for.
    pub lines: Vec<String>,
}

impl Report {
    /// Whether the run has ended well and had too little in it.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        self.violation.is_none() && !self.minimum.is_met()
    }
}

/// Runs a seed. A panic in the code under test is a violation like any other.
#[must_use]
pub fn run(seed: u64, keeps_lines: bool) -> Report {
    run_with(seed, Setting::of(seed), keeps_lines)
}

/// Runs a seed in a setting of its own.
#[must_use]
pub fn run_with(seed: u64, setting: Setting, keeps_lines: bool) -> Report {
    let mut world = World::new(seed, setting.clone(), keeps_lines);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let lived =
            crate::lone::live(&mut crate::random::Random::new(seed ^ 0x10e_1095), &mut world.coverage);
        world.note(lived);
        live(&mut world, &setting);
    }));
    if let Err(cause) = caught {
        world.violation.get_or_insert(panics::caught(&*cause));
    }
    let minimum = world.minimum();
    world.count_parts();
    world.fold_media();
    Report {
        seed,
        violation: world.violation.take(),
        coverage: std::mem::take(&mut world.coverage),
        events: world.events,
        minimum,
        unknown: world.oracle.unknown_count,
        virtual_ns: world.now,
        digest: world.trace.digest(),
        lines: world.trace.take(),
    }
}

fn live(world: &mut World, setting: &Setting) {
    let start = world.now;
    world.run(start + setting.faulty_ns);
    if setting.has_faults() {
        minimum::until_met(world, minimum::FAULTY_MAX);
    }
    if world.violation.is_some() {
        return;
    }
    world.heal();
    if setting.has_faults() {
        minimum::until_met(world, minimum::CALM_MAX);
    }
    crate::oracle::liveness::comes_back(world, CALM, LIVENESS);
    if world.violation.is_none() {
        world.finish();
    }
    if world.violation.is_none()
        && let Some(excess) = setting.hands.and_then(|hands| hands.excess)
    {
        return crate::oracle::goes_on::goes_on(world, excess);
    }
    if world.violation.is_none()
        && let Some(excess) = setting.exceeds
    {
        crate::oracle::exceeded::is_told(world, excess);
        return;
    }
    if world.violation.is_none() && setting.leaks_at_the_end {
        crate::oracle::standing_still::replaced(world);
    }
}
