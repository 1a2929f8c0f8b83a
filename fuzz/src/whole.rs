//! A whole group from an input: production engines, their driver, media and network, and an oracle that has seen everything. The input is the order of
//! what happens: messages, landing writes, flushes, deaths at any step of the store, losses of power, cuts, suspicions, appends.
//!
//! ```text
//!  input  | how (members, level, what takes its time, how it begins) | step (what, whether a member dies in it) ...
//! ```
//!
//! The world is that of `crates/engine/tests/world`, which goes through small bounds whole; here the bounds are wide and the way is one.

#[allow(
    dead_code,
    unused_imports,
    missing_docs,
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "the tests' own code, of which a walk is a part"
)]
#[path = "../../crates/engine/tests/world/mod.rs"]
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use world::Setting;
use world::explore::Violation;
use world::explore::walk::{Beginning, Walked, walk};

/// The most bytes of one input that count.
const BYTES_MAX: usize = 800;

/// The world that an input makes, gone through as it says.
pub fn engine_world(data: &[u8]) {
    let _ = walked(data);
}

thread_local! {
    /// Where the walks of each kind of world begin.
    static BEGINNINGS: RefCell<BTreeMap<u8, Rc<Beginning>>> = const { RefCell::new(BTreeMap::new()) };
}

fn walked(data: &[u8]) -> Walked {
    let Some((how, steps)) = data.split_first() else { return Walked::default() };
    let how = how & 0x7f;
    let beginning = BEGINNINGS.with_borrow_mut(|known| {
        Rc::clone(known.entry(how).or_insert_with(|| Rc::new(Beginning::new(&setting(how)))))
    });
    match walk(&beginning, &steps[..steps.len().min(BYTES_MAX)]) {
        Ok(walked) => walked,
        Err(Violation { what, trace }) => panic!("{what}\n{:?}\n{trace}", setting(how)),
    }
}

fn setting(how: u8) -> Setting {
    let has = |bit: u8| how & (1 << bit) != 0;
    Setting {
        members: if has(0) { 5 } else { 3 },
        replicated: has(1),
        flush_apart: has(2),
        completions_apart: has(3),
        notices_apart: has(4),
        store_in_steps: has(5),
        from_genesis: has(6),
        // At `Replicated` a loss of power may be more than the level survives.
        power_losses: if has(1) { 0 } else { u8::MAX },
        ..Setting::wide()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_take_over_die_and_acknowledge() {
        let mut total = Walked::default();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/engine_world");
        for seed in std::fs::read_dir(folder).unwrap() {
            let walked = walked(&std::fs::read(seed.unwrap().path()).unwrap());
            total.tenures += walked.tenures;
            total.deaths += walked.deaths;
            total.acknowledged += walked.acknowledged;
        }
        assert!(total.tenures > 20 && total.deaths > 20 && total.acknowledged > 10, "{total:?}");
    }
}
