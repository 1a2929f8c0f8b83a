//! No hole: the drain waits for a reservation only if a client keeps one, a reservation that is never published ends the tenure at its limit, and
//! a primary whose work stands still is replaced in time.
//!
//! The last two hide each other: whichever limit is shorter ends the tenure, so each has seeds in which it is.

use windlass::engine::StopReason;

use super::{Checked, Invariant, violated};
use crate::fabric::MS;
use crate::world::World;

/// A group whose primary stands still has another within this time, if nothing else is wrong.
const REPLACED: u64 = 2_500 * MS;

/// A tenure is over within this time after the reservation's limit: the next heartbeat looks, by a clock that may be slow. It is less than what is left until
/// the others lose patience.
const GIVEN_UP: u64 = 40 * MS;

/// A tenure ended for a reservation that was never published.
pub(crate) fn stuck(member: usize, reason: &StopReason, was_leaked: bool) -> Checked {
    let is_stuck = matches!(reason, StopReason::StuckReservation | StopReason::SealStuck);
    if is_stuck && !was_leaked {
        return violated(Invariant::NoHole, format!("member {member}: {reason}, and no client kept one"));
    }
    Ok(())
}

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

/// The primary itself ends its tenure, before the others do.
fn given_up(world: &mut World, at: usize) {
    let until = world.now + world.setting.reservation_ns + GIVEN_UP;
    while world.violation.is_none() && world.is_leading(at) && world.now < until {
        let next = (world.now + 5 * MS).min(until);
        world.run(next);
    }
    if world.violation.is_none() && world.is_leading(at) {
        let limit = world.setting.reservation_ns / MS;
        let what =
            format!("member {at} leads on, with a reservation that is never published past its {limit} ms");
        world.note(violated(Invariant::GivenUp, what));
    }
}
