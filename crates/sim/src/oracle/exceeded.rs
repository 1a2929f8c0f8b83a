//! Beyond the budget: once more is lost than the levels survive, the group says so. No member leads without what was acknowledged (that is looked at whenever a tenure
//! begins), no reader is shown anything else, and somebody refuses, finds damage or can't choose.

use super::{Invariant, violated};
use crate::fabric::MS;
use crate::setting::Excess;
use crate::world::World;

/// How long the members have to say so: a scrub that could not read waits 10 s.
const SAID_WITHIN: u64 = 20_000 * MS;

/// Loses more than the group survives, and waits for its word. `false`: there was nothing to lose.
pub(crate) fn is_told(world: &mut World, excess: Excess) -> bool {
    let said = world.said();
    if !world.exceed(excess) {
        return false;
    }
    let until = world.now + SAID_WITHIN;
    while world.violation.is_none() && world.said() == said && world.now < until {
        let next = world.now + 50 * MS;
        world.run(next);
    }
    if world.violation.is_none() && world.said() == said && world.has_released_rot() {
        // Trimmed before anybody has looked at it: nobody misses it.
        return false;
    }
    if world.violation.is_none() && world.said() == said {
        let what = format!("{excess:?}, and {} ms later nobody says so: {}", SAID_WITHIN / MS, world.told());
        world.note(violated(Invariant::Told, what));
        return true;
    }
    // What comes of it: whoever leads has all of it, and whoever reads finds it or an error.
    let until = world.now + 500 * MS;
    world.run(until);
    world.told_so();
    true
}
