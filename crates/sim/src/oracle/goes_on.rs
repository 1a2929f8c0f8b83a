//! Beyond the budget, and an operator gives its word (DESIGN.md section 8.5): the group goes on with what is left and is whole again once those who were away are back. Where no
//! word helps, since a majority's disks are empty or a voter of a lost configuration never comes back, nobody leads.

use super::exceeded::is_told;
use super::liveness::is_whole_by;
use super::{Invariant, violated};
use crate::fabric::MS;
use crate::setting::Excess;
use crate::world::World;

/// How long the group may take until it goes on by an operator's word, and until it is whole.
const GOES_ON: u64 = 20_000 * MS;
/// Clients ask for so long before more is lost than the group survives, and once it is whole again.
const LOADED: u64 = 40 * MS;
const BUSY_AFTER: u64 = 30 * MS;
/// How long a group that nobody asks for more is left alone before something of it is lost: it is trimmed until it has settled, and who is released of what hears so later. No bound,
/// since a member may be behind for longer: what rots may still be trimmed before anybody has looked at it ([`is_told`]).
const SETTLED: u64 = 40 * MS;
/// A change takes so long at most before more is lost.
const CHANGES_WITHIN: u64 = 2_000 * MS;
/// What has to be acknowledged by who leads by a word.
const ACKNOWLEDGED: u64 = 20;

/// More is lost than the group survives, and an operator gives its word as it is told to: the group goes on with what is left, and is whole again once those who were away are back. Where a
/// majority's disks are empty no word helps: those who are whole are too few.
pub(crate) fn goes_on(world: &mut World, excess: Excess) {
    if excess == Excess::MemoryLost {
        // Much is placed and not flushed.
        world.slow_disks();
    }
    world.busy();
    let until = world.now + LOADED;
    world.run(until);
    if world.changes_before_loss() {
        change(world);
    }
    // Nothing of what is lost is to be trimmed away before anybody looks.
    world.quiet();
    if excess != Excess::MemoryLost {
        let until = world.now + SETTLED;
        world.run(until);
    }
    if world.violation.is_some() || !is_told(world, excess) || world.violation.is_some() {
        return;
    }
    if excess == Excess::DisksEmptied {
        return goes_on_without(world, excess);
    }
    world.busy();
    let before = world.oracle.acknowledged_count;
    let until = world.now + GOES_ON;
    while world.violation.is_none() && world.now < until {
        if world.oracle.acknowledged_count >= before + ACKNOWLEDGED && !world.is_without_primary() {
            break;
        }
        if world.waits_for_who_is_gone() {
            return waits_for_ever(world);
        }
        world.goes_on_by_word(excess);
        let next = world.now + 100 * MS;
        world.run(next);
    }
    if world.violation.is_none() && world.now >= until {
        let what =
            format!("{excess:?}, and {} ms later nothing is acknowledged: {}", GOES_ON / MS, world.told());
        return world.note(violated(Invariant::GoesOn, what));
    }
    if world.violation.is_none() {
        world.is_led_again();
    }
    world.all_come_back();
    let until = world.now + BUSY_AFTER;
    world.run(until);
    // Who has released more than what the word has left begins again at a checkpoint, once the new line has come so far, or is trimmed beyond.
    let until = world.now + GOES_ON;
    while world.violation.is_none() && world.is_released_beyond() && world.now < until {
        world.goes_on_by_word(excess);
        let next = world.now + 100 * MS;
        world.run(next);
    }
    let until = world.now + GOES_ON;
    let is_whole = is_whole_by(world, until, |world| {
        // What each has lost is found one after the other.
        world.goes_on_by_word(excess);
        let next = world.now + 100 * MS;
        world.run(next);
    });
    if world.violation.is_none() && !is_whole {
        let what = format!(
            "{excess:?}, and {} ms after who was away is back the group is not whole: {}",
            GOES_ON / MS,
            world.told()
        );
        return world.note(violated(Invariant::GoesOn, what));
    }
    if world.violation.is_none() {
        world.finish();
    }
}

/// The group changes, and all of it knows that.
fn change(world: &mut World) {
    let until = world.now + CHANGES_WITHIN;
    let before = world.newest_number();
    let mut is_asked = false;
    while world.violation.is_none() && world.now < until && !world.has_changed(before) {
        is_asked = is_asked || world.change_by_hand();
        let next = world.now + 10 * MS;
        world.run(next);
    }
}

/// A voter of a lost configuration is gone for good: whoever has taken a word leads nothing.
fn waits_for_ever(world: &mut World) {
    let until = world.now + 1_000 * MS;
    while world.violation.is_none() && world.now < until && world.is_without_primary() {
        let next = world.now + 20 * MS;
        world.run(next);
    }
    if world.violation.is_none() && !world.is_without_primary() {
        let what = format!("a voter of a lost configuration is gone, and somebody leads: {}", world.told());
        return world.note(violated(Invariant::GoesOn, what));
    }
    world.nobody_leads_without_who_is_gone();
}

/// Those who are whole are too few for a takeover quorum: whoever takes the word leads nothing.
fn goes_on_without(world: &mut World, excess: Excess) {
    let until = world.now + 2_000 * MS;
    while world.violation.is_none() && world.now < until && !world.has_word_out() {
        world.goes_on_by_word(excess);
        let next = world.now + 50 * MS;
        world.run(next);
    }
    let has_word = world.has_word_out();
    let until = world.now + 1_000 * MS;
    world.run(until);
    if world.violation.is_none() && has_word {
        if world.is_without_primary() {
            return world.led_nobody();
        }
        let what = format!("{excess:?}, and by a word somebody leads: {}", world.told());
        world.note(violated(Invariant::GoesOn, what));
    }
}
