//! The suite that every provider passes (DESIGN.md section 7.1).
//!
//! A [`Case`] is played by two ends, each with a fabric of its own: [`Role::Active`] posts, [`Role::Passive`] owns the memory that is
//! written to. They talk beside the fabric over a [`Control`] line, so both may be threads of one process, two processes, or two machines:
//! each runs [`Case::run`] for its role, with the same cases in the same order.
//!
//! The memory that is registered is the heap's, or what the caller makes ([`Case::run_over`]): the mapped files of a folder, with the
//! transfers that the provider says are right there.
//!
//! What does not hold panics, with the case's words; an end whose other end has panicked panics too. What a provider's
//! capabilities exclude is [`Outcome::Skipped`], never passed.
//!
//! For one process, [`conformance_tests!`](crate::conformance_tests) makes a `#[test]` of each case.

mod control;
mod failing;
mod one_sided;
mod queues;
mod side;
mod two_sided;
mod windows;

use std::panic::resume_unwind;
use std::sync::Arc;

pub use control::{ChannelControl, Control, StreamControl};
pub use side::Side;

use crate::memory::{HeapMemory, Memory};
use crate::provider::Fabric;

/// Makes zeroed memory of a length in bytes.
pub type MakeMemory<'a> = &'a (dyn Fn(u64) -> Arc<dyn Memory> + Sync);

/// Which end of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Posts the requests.
    Active,
    /// Owns the memory.
    Passive,
}

/// How a case ended, if it did not panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything held.
    Passed,
    /// The provider does not offer what it needs.
    Skipped(&'static str),
}

/// The list of cases; one place for the enum, its dispatch and the tests made from it.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    (@ define [] $($(#[$doc:meta])* $variant:ident $name:ident $module:ident $core:literal;)*) => {
        /// One case of the suite.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Case {
            $($(#[$doc])* $variant,)*
        }

        impl Case {
            /// All cases.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name, in snake case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)* }
            }

            /// Whether it is one of the few that a first, thin provider has to pass.
            #[must_use]
            pub const fn is_core(self) -> bool {
                match self { $(Self::$variant => $core,)* }
            }

            fn play<F: Fabric>(self, side: &mut Side<'_, F>) -> Outcome {
                match self { $(Self::$variant => $module::$name(side),)* }
            }
        }
    };
    (@ tests [$pair:expr] $($(#[$doc:meta])* $variant:ident $name:ident $module:ident $core:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let (active, passive) = $pair;
                let case = $crate::conformance::Case::$variant;
                let outcome = $crate::conformance::run_pair(case, active, passive);
                if let $crate::conformance::Outcome::Skipped(why) = outcome {
                    eprintln!("SKIPPED {}: {why}", case.name());
                }
            }
        )*
    };
    ($mode:ident $($args:tt)*) => {
        $crate::__conformance_cases! { @ $mode [$($args)*]
            /// A write lands where it should and nowhere else, with a completion; inline and from a region.
            Write write one_sided true;
            /// A write with immediate consumes a receive, and its bytes are there when the notice is.
            WriteImmediate write_immediate one_sided true;
            /// A window opens just its stretch; its key is there when the bind completes.
            Bind bind windows true;
            /// An invalidated window takes no write: remote access error, memory untouched, both ends in error.
            InvalidatedWindowTakesNoWrite invalidated_window_takes_no_write windows true;
            /// A rebind has a new key that works, and the old key stays dead.
            RebindHasANewKey rebind_has_a_new_key windows true;
            /// Writes before, across and behind a window's ends are refused whole.
            OutOfBounds out_of_bounds windows false;
            /// A window gives only its own access.
            AccessOfTheWindow access_of_the_window windows false;
            /// A key is no good on another connection, and its own connection lives on.
            WrongConnection wrong_connection windows false;
            /// Invalidating one window leaves the others.
            OtherWindowsStay other_windows_stay windows false;
            /// Windows are invalidated while writes stream in: when the connection is destroyed, the memory stands still.
            RevokedUnderFire revoked_under_fire windows false;
            /// A dropped window is closed.
            DroppedWindow dropped_window windows false;
            /// Keys are used up after a known number of binds, and no two were the same.
            KeysRunOut keys_run_out windows false;
            /// What cannot be bound or invalidated is refused before it is posted.
            BindErrors bind_errors windows false;
            /// Bytes of writes are visible at the notice behind them, every time.
            WritesBeforeNotice writes_before_notice one_sided false;
            /// A write of several MiB at an odd offset.
            LongWrite long_write one_sided false;
            /// Requests without bytes.
            ZeroLength zero_length one_sided false;
            /// Reads fetch what is there, also much of it.
            Read read one_sided false;
            /// One window takes writes and reads.
            ReadAndWritten read_and_written one_sided false;
            /// Reads of what is not open are refused.
            ReadRefused read_refused one_sided false;
            /// Both ends write and notify at the same time.
            BothDirections both_directions one_sided false;
            /// A region with remote access is open by its own key until it is dropped.
            RegionKey region_key one_sided false;
            /// Sends fill receives in order, with and without immediate.
            SendReceive send_receive two_sided false;
            /// A send longer than the receive is refused.
            SendTooLong send_too_long two_sided false;
            /// Receives run out: receiver not ready, within a bounded time.
            ReceiverNotReady receiver_not_ready two_sided false;
            /// One doorbell, many requests, one completion.
            ChainedPosts chained_posts queues false;
            /// A batch costs one doorbell and one completion, by the connection's own counters, and nothing is copied beyond what is inline.
            CountedBatch counted_batch queues false;
            /// A full queue refuses a chain whole; unsignalled slots come back with a later signalled one.
            QueueFull queue_full queues false;
            /// A full receive queue refuses; consumed receives give their slots back.
            ReceiveQueueFull receive_queue_full queues false;
            /// Completions polled one by one come in order.
            PolledOneByOne polled_one_by_one queues false;
            /// What cannot be posted is refused, with what was posted before it.
            PostErrors post_errors queues false;
            /// Queues and options out of range are refused.
            Limits limits queues false;
            /// A connection's states, and what each refuses.
            States states queues false;
            /// A wait ends by a waker, by time, and by what arrives.
            Waits waits queues false;
            /// After the first failure the rest is flushed, in order, unsignalled and receives included.
            FlushInOrder flush_in_order failing false;
            /// Closing flushes, draining ends at nothing outstanding, and the peer notices.
            CloseAndDrain close_and_drain failing false;
            /// Nothing of a destroyed connection is polled.
            Destroyed destroyed failing false;
            /// The peer goes away with requests outstanding: all complete.
            PeerDeath peer_death failing false;
        }
    };
}

crate::__conformance_cases!(define);

impl Case {
    /// Plays one end of the case.
    ///
    /// # Panics
    /// If the provider does not conform, or the other end has panicked.
    pub fn run<F: Fabric>(self, role: Role, fabric: &F, control: &mut dyn Control) -> Outcome {
        self.run_over(role, fabric, control, &|bytes| Arc::new(HeapMemory::new(bytes)))
    }

    /// Plays one end of the case over other memory: `memory` makes some, zeroed, of the given length in bytes.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_over<F: Fabric>(
        self,
        role: Role,
        fabric: &F,
        control: &mut dyn Control,
        memory: MakeMemory<'_>,
    ) -> Outcome {
        let mut side = Side::new(role, fabric, control, memory);
        side.agree(self.name());
        let outcome = self.play(&mut side);
        side.agree("the case is over");
        outcome
    }
}

/// Plays both ends of a case in this process, on two threads.
///
/// # Panics
/// As [`Case::run`].
pub fn run_pair<F: Fabric + Sync>(case: Case, active: F, passive: F) -> Outcome {
    run_pair_over(case, active, passive, &|bytes| Arc::new(HeapMemory::new(bytes)))
}

/// The same over other memory ([`Case::run_over`]).
///
/// # Panics
/// As [`Case::run`].
pub fn run_pair_over<F: Fabric + Sync>(case: Case, active: F, passive: F, memory: MakeMemory<'_>) -> Outcome {
    let (mut at_active, mut at_passive) = ChannelControl::pair();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || case.run_over(Role::Passive, &passive, &mut at_passive, memory));
        let own = scope.spawn(move || case.run_over(Role::Active, &active, &mut at_active, memory));
        match (own.join(), other.join()) {
            (Ok(own), Ok(other)) => {
                assert_eq!(own, other, "both ends skip, or none");
                own
            }
            (Err(panic), _) | (_, Err(panic)) => resume_unwind(panic),
        }
    })
}

/// Makes a `#[test]` of each case. The argument is an expression that gives two fabrics that can reach each other, as a tuple; it
/// is evaluated per test.
#[macro_export]
macro_rules! conformance_tests {
    ($pair:expr) => {
        $crate::__conformance_cases!(tests $pair);
    };
}
