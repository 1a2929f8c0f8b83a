//! Beyond the budget: once more is lost than the levels survive, the group says so. No member leads without what was acknowledged (that is looked at whenever a tenure
//! begins), no reader is shown anything else, and somebody refuses, finds damage or can't choose.

use super::violated;
use crate::fabric::MS;
use crate::setting::Excess;
use crate::world::World;

/// How long the members have to say so.
const SAID_WITHIN: u64 = 8_000 * MS;

/// Loses more than the group survives, and waits for its word.
pub(crate) fn is_told(world: &mut World, excess: Excess) {
    let said = world.said();
    if !world.exceed(excess) {
        return;
    }
    let until = world.now + SAID_WITHIN;
    while world.violation.is_none() && world.said() == said && world.now < until {
        let next = world.now + 50 * MS;
        world.run(next);
    }
    if world.violation.is_none() && world.said() == said {
        let what = format!("{excess:?}, and {} ms later nobody says so: {}", SAID_WITHIN / MS, world.told());
        return world.note(violated("never silently wrong", what));
    }
    // What comes of it: whoever leads has all of it, and whoever reads finds it or an error.
    let until = world.now + 500 * MS;
    world.run(until);
    world.told_so();
}
