//! No hole: the drain waits for a reservation only if a client keeps one, and a primary whose work stands still is replaced in time.

use windlass::engine::StopReason;

use super::{Checked, violated};
use crate::fabric::MS;
use crate::world::World;

/// A group whose primary stands still has another within this time, if nothing else is wrong.
const REPLACED: u64 = 2_500 * MS;

/// A tenure ended for a reservation that was never published.
pub(crate) fn stuck(member: usize, reason: &StopReason, was_leaked: bool) -> Checked {
    let is_stuck = matches!(reason, StopReason::StuckReservation | StopReason::SealStuck);
    if is_stuck && !was_leaked {
        return violated("no hole", format!("member {member}: {reason}, and no client kept one"));
    }
    Ok(())
}

/// A client of a sound group's primary never publishes what it reserved: others replace that primary.
pub(crate) fn replaced(world: &mut World) {
    let Some(tenures) = world.leak_on_primary() else { return };
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
        world.note(violated("standing still is silence", what));
    }
}
