//! What really happened in a run: each fault and each step of the protocol that the simulator claims to cover counts itself here. A run
//! over many seeds that has never met one of them fails ([`Coverage::missing`]): a simulator that does nothing proves nothing.

use std::collections::BTreeMap;
use std::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// One thing that happened.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mark {
            $($(#[$doc])* $variant,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$(Mark::$variant,)*];

            /// In words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Mark::$variant => $name,)* }
            }
        }
    };
}

marks! {
    // ---- fabric
    /// A request took much longer than others.
    Delayed = "fabric: delayed";
    /// Requests to or from a slow member.
    SlowMember = "fabric: slow member";
    /// A connection broke.
    ConnectionBroken = "fabric: connection broken";
    /// A request never arrived: the path was cut.
    Partitioned = "fabric: request cut";
    /// A request arrived and its answer did not: cut in one direction.
    AnswerCut = "fabric: answer cut";
    /// A completion came before its bytes were visible.
    CompletedEarly = "fabric: completed before placed";
    /// A message landed in pieces.
    LandedInPieces = "fabric: landed in pieces";
    /// A message went on landing after its window had been invalidated.
    LandedAfterInvalidation = "fabric: landed after invalidation";
    /// A request was carried out and its poster heard of an error, or of nothing.
    FailedButDone = "fabric: error, but done";
    /// A request was refused for want of a receive.
    ReceiverNotReady = "fabric: receiver not ready";
    /// A completion was lost.
    CompletionLost = "fabric: completion lost";
    /// A packet landed elsewhere.
    Misplaced = "fabric: misplaced";
    /// A window refused a write: fencing at work.
    AccessRefused = "fabric: access refused";
}

/// How often each mark was met.
#[derive(Clone, Default, Debug)]
pub struct Coverage(BTreeMap<Mark, u64>);

impl Coverage {
    /// It happened.
    pub fn add(&mut self, mark: Mark) {
        *self.0.entry(mark).or_insert(0) += 1;
    }

    /// Takes what was counted out.
    pub fn take(&mut self) -> BTreeMap<Mark, u64> {
        std::mem::take(&mut self.0)
    }

    /// Adds what others counted.
    pub fn merge(&mut self, others: impl IntoIterator<Item = (Mark, u64)>) {
        for (mark, count) in others {
            *self.0.entry(mark).or_insert(0) += count;
        }
    }

    /// How often.
    #[must_use]
    pub fn count(&self, mark: Mark) -> u64 {
        self.0.get(&mark).copied().unwrap_or(0)
    }

    /// The marks that were never met.
    #[must_use]
    pub fn missing(&self) -> Vec<Mark> {
        Mark::ALL.iter().copied().filter(|mark| self.count(*mark) == 0).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mark in Mark::ALL {
            writeln!(f, "{:>12}  {}", self.count(*mark), mark.name())?;
        }
        Ok(())
    }
}
