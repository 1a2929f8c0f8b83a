//! Liveness: once the faults are over, and within a bound, one member leads, appends are acknowledged, and every member whose disk was never lost
//! has and knows all that is committed.

use std::cell::Cell;
use std::fmt::Display;

use windlass::{Epoch, Lsn, MemberId};

use super::{Checked, Invariant, violated};
use crate::fabric::MS;
use crate::world::World;

/// What has to be acknowledged after healing.
const ACKNOWLEDGED: u64 = 20;

/// A checkpoint that was brought to a member is of its primary's line.
pub(crate) fn checkpoint_refused(at: usize, end: Lsn, found: Epoch, expected: Epoch) -> Checked {
    violated(
        Invariant::Liveness,
        format!("m{at} refuses its primary's checkpoint at {end}: {found} instead of {expected}"),
    )
}

/// A member refuses another one: the disk of either was emptied.
pub(crate) fn peer_refused(at: usize, peer: MemberId, reason: &dyn Display, is_emptied: bool) -> Checked {
    if is_emptied {
        return Ok(());
    }
    violated(
        Invariant::Liveness,
        format!("member {at} refuses member {}, whose disk was never lost: {reason}", peer.0),
    )
}

/// A member's log could not be opened once all faults are over.
pub(crate) fn does_not_open(at: usize, why: &str) -> Checked {
    violated(Invariant::Liveness, format!("member {at} does not open after everything is healed: {why}"))
}

/// Clients go on for `calm`, then fall silent, and the group must be whole within `bound` of healing; within twice that where an operator had to stop a member that others
/// keep out.
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
        return world.note(violated(Invariant::Liveness, what));
    }
    let has_stopped = Cell::new(false);
    let goes_on = |world: &mut World| {
        world.run(world.now + 20 * MS);
        if world.now >= healed + bound {
            has_stopped.set(world.stop_who_is_kept_out() || has_stopped.get());
        }
    };
    let mut within = bound;
    let mut is_whole = is_whole_by(world, healed + within, goes_on);
    if !is_whole && has_stopped.get() {
        // An operator had to, once the bound had passed: it may take as long again.
        within = 2 * bound;
        is_whole = is_whole_by(world, healed + within, goes_on);
    }
    if world.violation.is_none() && !is_whole {
        let statuses = world.told();
        let what = format!("the group is not whole {} ms after healing: {statuses}", within / MS);
        world.note(violated(Invariant::Liveness, what));
    }
}

/// Clients fall silent, and `goes_on` is called until the group is whole, a violation, or this time. Whether it is whole. Rot in the segment that is written is met by
/// nobody until that is full: whenever a cut has brought a tail back there, also after they have fallen silent, clients go on until it is.
pub(crate) fn is_whole_by(world: &mut World, until: u64, mut goes_on: impl FnMut(&mut World)) -> bool {
    loop {
        world.asks_while_rot_is_warm();
        if world.violation.is_some() {
            return false;
        }
        if world.is_whole() {
            return true;
        }
        if world.now >= until {
            return false;
        }
        goes_on(world);
    }
}
