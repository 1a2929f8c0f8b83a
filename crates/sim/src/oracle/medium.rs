//! What a member calls persisted is on its medium (I-4), and what is called durable, to who appended it or to who reads, is on a quorum's.

use windlass::Lsn;

use super::{Invariant, violated};
use crate::world::World;

/// The file of the segment with this base.
fn segment_name(base: Lsn) -> String {
    // By hand: it is asked for with each record, and `format!` of it was a fortieth of a run.
    let mut name = String::with_capacity(24);
    let nibbles = base.0.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    name.extend(nibbles.map(|nibble| char::from(b"0123456789abcdef"[usize::from(nibble)])));
    name + ".segment"
}

/// The stretches of `[from, to)` as a segment's base and the bytes in it, header pages left out.
fn stretches(segment_bytes: u64, from: Lsn, to: Lsn) -> impl Iterator<Item = (Lsn, std::ops::Range<u64>)> {
    (from.0 / segment_bytes..=to.0 / segment_bytes).filter_map(move |number| {
        let base = number * segment_bytes;
        let start = from.0.max(base + 4096) - base;
        let end = to.0.min(base + segment_bytes).saturating_sub(base);
        (start < end).then_some((Lsn(base), start..end))
    })
}

/// Looks at what a member calls persisted since the last look.
pub(crate) fn persisted(world: &mut World, at: usize) {
    let Some((from, to)) = world.newly_persisted(at) else { return };
    for (base, range) in stretches(crate::setting::SEGMENT_BYTES, from, to) {
        let name = segment_name(base);
        // No such file: released meanwhile.
        if world.disk(at).is_durable(&name, range.clone()) == Some(false) {
            let what = format!("member {at} calls {from}..{to} persisted, and {range:?} of {name} is not");
            return world.note(violated(Invariant::Medium, what));
        }
    }
}

/// An append was acknowledged as durable, or a record published as that: the media of a write quorum hold its bytes, of the voters of each configuration that it was
/// counted over. Whoever learns or has left does not count. `saw`: what is in force at `at` was that before the append became durable.
pub(crate) fn durable(world: &mut World, at: usize, start: Lsn, end: Lsn, saw: bool) {
    let segment_bytes = crate::setting::SEGMENT_BYTES;
    let Some((base, range)) = stretches(segment_bytes, start, end).next() else { return };
    let name = segment_name(base);
    let Some(versions) = world.written(at, &name, range.clone()) else { return };
    // Whose disk was lost, or has lied, or who has released it since, held it once. The others are held against what was written, also where it has rotted since.
    let holds = |at: &&usize| world.has_held(**at, end, &name, range.start, &versions);
    for counted in world.counted(at, saw) {
        let holding = counted.voters.iter().filter(holds).count();
        if holding < counted.quorum {
            let (quorum, voters) = (counted.quorum, &counted.voters);
            let lacking = voters.iter().filter(|at| !holds(at)).map(|at| {
                let found = world.disk(*at).live_bytes(&name, range.clone());
                let differs = found.map(|found| found.iter().zip(&versions[0]).position(|(a, b)| a != b));
                format!("m{at}, whose file differs {differs:?} bytes in")
            });
            let lacking: Vec<String> = lacking.collect();
            let what = format!(
                "{start}..{end} is called durable by m{at}, needs {quorum} media of {voters:?} and is on {holding}; lacking are {lacking:?}"
            );
            return world.note(violated(Invariant::Medium, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_named_as_the_store_names_it() {
        for base in [0, 0x10_0000, 0xfedc_ba98_7654_3210] {
            assert_eq!(segment_name(Lsn(base)), format!("{base:016x}.segment"));
        }
    }
}
