//! What must hold, whatever happens: one file for each invariant. The oracle knows everything and tells nobody; what does not hold becomes
//! the run's [`Violation`], with the invariant's name.

mod acknowledged;
pub(crate) mod alone;
pub(crate) mod answers;
mod checkpoints;
pub(crate) mod configurations;
pub(crate) mod damage;
pub(crate) mod decision_table;
pub(crate) mod exceeded;
pub(crate) mod frames;
mod given_up;
pub(crate) mod goes_on;
mod in_force;
mod invariant;
mod levels;
pub(crate) mod liveness;
pub(crate) mod lone_log;
pub(crate) mod medium;
pub(crate) mod no_hole;
pub(crate) mod notices;
pub(crate) mod older;
mod order;
pub(crate) mod panics;
mod prefixes;
mod primaries;
pub(crate) mod read_errors;
pub(crate) mod recycled;
pub(crate) mod revoked;
pub(crate) mod shown;
pub(crate) mod standing_still;
pub(crate) mod unknown;
pub(crate) mod watermarks;
pub(crate) mod word_answers;
pub(crate) mod words;
pub(crate) mod written_over;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass::{Epoch, Lsn};
use windlass_log::RecordKind;

pub use invariant::Invariant;
pub(crate) use levels::Floors;
pub(crate) use order::Append;

/// What did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The invariant, by its file here.
    pub invariant: Invariant,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// A check's answer.
pub(crate) type Checked = Result<(), Violation>;

pub(crate) fn violated(invariant: Invariant, what: String) -> Checked {
    Err(Violation { invariant, what })
}

/// A record as it is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) end: Lsn,
    pub(crate) epoch: Epoch,
    pub(crate) kind: RecordKind,
    pub(crate) hash: u64,
}

/// A running hash of bytes, to compare them by.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ u64::try_from(bytes.len()).unwrap_or(0);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().unwrap_or([0; 8]));
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    for byte in words.remainder() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

/// The hash of a batch: of its items in order.
pub(crate) fn batch_hash<'a>(items: impl Iterator<Item = &'a [u8]>) -> u64 {
    items.fold(0, |hash, item| batch_with(hash, hash_of(item)))
}

/// The hash of a batch with one more item, by that item's.
fn batch_with(hash: u64, item: u64) -> u64 {
    hash.rotate_left(7).wrapping_mul(0x100_0000_01b3) ^ item
}

/// What the oracle knows.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// What some member has published as durable, by start.
    committed: BTreeMap<Lsn, Content>,
    /// The epochs in which, or before which, each of these became so.
    committed_by: BTreeMap<Lsn, Epoch>,
    committed_end: Lsn,
    /// What was acknowledged at a quorum's level, by start, and in which epoch.
    acknowledged: BTreeMap<Lsn, (Content, Epoch)>,
    /// Which of these at `Replicated` alone.
    replicated_only: BTreeSet<Lsn>,
    /// Everything that an append returned, by epoch and start.
    appends: BTreeMap<(Epoch, Lsn), Append>,
    /// What a member has said to be cut, by epoch and start, and which member: it never comes back.
    cuts: BTreeMap<(Epoch, Lsn), u8>,
    /// Who led each epoch.
    primaries: BTreeMap<Epoch, u8>,
    configurations: configurations::Configurations,
    in_force: in_force::InForce,
    words: words::Losses,
    /// What each member has promised to others, by its own word.
    promises: BTreeMap<u8, Epoch>,
    /// How many were acknowledged, at any level.
    pub(crate) acknowledged_count: u64,
    /// How many ended as unknown.
    pub(crate) unknown_count: u64,
}
