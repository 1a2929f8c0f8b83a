//! A primary whose work stands still is replaced in time.
//!
//! This and R-9 ([`super::given_up`]) hide each other: whichever limit is shorter ends the tenure, so each has seeds in which it is.

use super::given_up::given_up;
use super::{Invariant, violated};
use crate::fabric::MS;
use crate::world::World;

/// A group whose primary stands still has another within this time, if nothing else is wrong.
const REPLACED: u64 = 2_500 * MS;

/// A client of a sound group's primary never publishes what it reserved: others replace that primary.
pub(crate) fn replaced(world: &mut World) {
    let Some((at, tenures)) = world.leak_on_primary() else { return };
    if world.setting.reservation_ns < world.setting.timing.stall_ns {
        given_up(world, at);
    }
    let until = world.now + REPLACED;
    while world.violation.is_none() && world.oracle.tenures() == tenures && world.now < until {
        let next = world.now + 20 * MS;
        world.run(next);
    }
    if world.oracle.tenures() > tenures {
        return world.replaced();
    }
    if world.violation.is_none() {
        let what = format!(
            "a primary whose work stands still leads on after {} ms: {}",
            REPLACED / MS,
            world.told()
        );
        world.note(violated(Invariant::StandingStill, what));
    }
}
