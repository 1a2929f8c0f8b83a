//! Bugs on purpose, to see that the simulator finds them: each takes one rule of the protocol away (DESIGN.md section 9.7).
//!
//! They exist only where everything is built with `--cfg planted`. Elsewhere `planted!` is the word `false`, and neither this module nor the
//! list of bugs is there.

use core::sync::atomic::{AtomicU8, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A bug.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Bug {
            /// None.
            None,
            $($(#[$doc])* $variant,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$variant,)*];

            /// What it is called: the rule that is taken away.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { Bug::None => "none", $(Bug::$variant => $name,)* }
            }
        }
    };
}

bugs! {
    /// A record's end is not normalised.
    R1 = "R-1";
    /// A segment is recycled while its memory is held.
    R2 = "R-2";
    /// A record is bound to log and epoch, not to its place.
    R3 = "R-3";
    /// A record counts whatever epoch the history assigns to its place.
    R4 = "R-4";
    /// A superblock is written to one copy alone.
    R5 = "R-5";
    /// The clean mark stays when the log is put to use.
    R6 = "R-6";
    /// Members share epochs: a promise holds for all of one number.
    R7 = "R-7";
    /// An append that is refused for the limit leaves a hole.
    R8 = "R-8";
    /// A reservation may stay unpublished for ever.
    R9 = "R-9";
    /// A seal does not wait for reservations in flight.
    R10 = "R-10";
    /// What an opening finds counts as flushed.
    R11 = "R-11";
    /// A lone log goes on in its epoch after a crash.
    R12 = "R-12";
    /// Notices are posted without credits.
    R13 = "R-13";
    /// Readers of the durable prefix are shown what is only replicated.
    R14 = "R-14";
    /// A primary whose work stands still is heard all the same.
    R15 = "R-15";
    /// A primary promises a higher epoch and goes on.
    R16 = "R-16";
    /// The longest log is the best.
    R17 = "R-17";
    /// A member counts for the choice whatever it may have acknowledged.
    R18 = "R-18";
    /// A member that lost its memory counts for the choice.
    R19 = "R-19";
    /// One promise less than a quorum fences.
    R20 = "R-20";
    /// Commits are counted over all members, also one that learns.
    LearnerCounted = "learner counted";
    /// A configuration is alone in force before it is committed.
    PredecessorForgotten = "predecessor forgotten";
    /// A committed configuration whose record lies beyond where a log goes on counts from there, as if all that comes again with the log lay behind it.
    PlaceLost = "place lost";
    /// What is placed counts as persisted.
    CommitByPlaced = "commit by placed";
    /// What is placed counts, however long ago its bytes were written and checked.
    ColdPlaced = "placed from cold segments";
    /// A revocation does not wait until the connection is drained and destroyed.
    SkippedDrain = "skipped drain";
    /// Payloads are acknowledged before their checksum was looked at.
    UncheckedAcknowledgement = "acknowledged unchecked";
    /// A window that was taken back opens again under its old key.
    ReusedKey = "reused window key";
    /// An operator's word is taken whoever leads, and whatever was shown.
    WordUnchecked = "word taken unchecked";
    /// What is whole behind damage counts while the session that filled the damage may still write there.
    BehindOpen = "taken behind damage, windows open";
    /// A flush that failed is tried again, and then counts.
    FlushRetried = "failed flush retried";
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// From here on the process has this bug, and no other.
pub fn plant(bug: Bug) {
    PLANTED.store(bug as u8, Ordering::Relaxed);
}

/// Whether the process has this bug.
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8
}
