//! A reservation that is never published ends the tenure at its limit.

use super::{Invariant, violated};
use crate::fabric::MS;
use crate::world::World;

/// A tenure is over within this time after the reservation's limit: the next heartbeat looks, by a clock that may be slow. It is less than what is left until
/// the others lose patience.
const GIVEN_UP: u64 = 40 * MS;

/// The primary itself ends its tenure, before the others do.
pub(super) fn given_up(world: &mut World, at: usize) {
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
