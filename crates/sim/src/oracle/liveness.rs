//! Liveness: once the faults are over, and within a bound, one member leads, appends are acknowledged, and every member whose disk was never lost
//! has and knows all that is committed.

use super::violated;
use crate::fabric::MS;
use crate::world::World;

const NAME: &str = "liveness";
/// What has to be acknowledged after healing.
const ACKNOWLEDGED: u64 = 20;

/// Clients go on for `calm`, then fall silent, and the group must be whole within `bound`.
pub(crate) fn comes_back(world: &mut World, calm: u64, bound: u64) {
    let healed = world.now;
    let before = world.oracle.acknowledged_count;
    let is_served = |world: &World| world.oracle.acknowledged_count >= before + ACKNOWLEDGED;
    world.run(healed + calm);
    while world.violation.is_none() && !is_served(world) && world.now < healed + bound {
        let until = world.now + 20 * MS;
        world.run(until);
    }
    if world.violation.is_none() && !is_served(world) {
        let statuses = world.told();
        let what = format!("nothing is acknowledged {} ms after healing: {statuses}", bound / MS);
        return world.note(violated(NAME, what));
    }
    // Rot in the segment that is written is met by nobody until that is full.
    while world.violation.is_none() && world.has_warm_rot() && world.now < healed + bound {
        let until = world.now + 20 * MS;
        world.run(until);
    }
    world.quiet();
    while world.violation.is_none() && !world.is_whole() && world.now < healed + 2 * bound {
        let until = world.now + 20 * MS;
        world.run(until);
        if world.now >= healed + bound {
            world.stop_who_is_kept_out();
        }
    }
    if world.violation.is_none() && !world.is_whole() {
        let statuses = world.told();
        let what = format!("the group is not whole {} ms after healing: {statuses}", 2 * bound / MS);
        world.note(violated(NAME, what));
    }
}
