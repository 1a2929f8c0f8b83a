//! What a member calls persisted is on its medium (I-4), and what is called durable, to who appended it or to who reads, is on a quorum's; also what is held to be free of use is.

use windlass::Lsn;

use super::{Checked, violated};
use crate::world::World;

const NAME: &str = "persisted is on the medium";

/// The file of the segment with this base.
fn segment_name(base: Lsn) -> String {
    format!("{:016x}.segment", base.0)
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
    let Some((disk, from, to)) = world.newly_persisted(at) else { return };
    for (base, range) in stretches(crate::setting::SEGMENT_BYTES, from, to) {
        let name = segment_name(base);
        // No such file: released meanwhile.
        if disk.is_durable(&name, range.clone()) == Some(false) {
            let what = format!("member {at} calls {from}..{to} persisted, and {range:?} of {name} is not");
            return world.note(violated(NAME, what));
        }
    }
}

/// An append was acknowledged as durable, or a record published as that: a quorum's media hold its bytes.
pub(crate) fn durable(world: &mut World, at: usize, start: Lsn, end: Lsn) {
    let segment_bytes = crate::setting::SEGMENT_BYTES;
    let Some((base, range)) = stretches(segment_bytes, start, end).next() else { return };
    let name = segment_name(base);
    let (media, quorum) = world.media();
    let Some(bytes) = media[at].0.live_bytes(&name, range.clone()) else { return };
    // Whose disk was lost, or has lied, held it once.
    let holds = |(disk, is_excused): &(windlass_store::disk::testing::TestDisk, bool)| {
        *is_excused || disk.durable_bytes(&name, range.clone()).is_some_and(|found| found == bytes)
    };
    let holding = media.iter().filter(|medium| holds(medium)).count();
    if holding < quorum {
        let what = format!("{start}..{end} is called durable and is on {holding} media of {}", media.len());
        world.note(violated(NAME, what));
    }
}

/// No file was given another use while others held its memory.
pub(crate) fn given_away(world: &World, at: usize) -> Checked {
    match world.given_away(at) {
        Some(name) => {
            violated("nothing in use is recycled", format!("member {at} gave {name} away while it was held"))
        }
        None => Ok(()),
    }
}
