//! A fabric in memory, on virtual time, with the semantics of the model (DESIGN.md section 7.1) and the faults of devices.
//!
//! What is posted lies in its connection's queue and travels there: it arrives after a delay, its bytes land in pieces and in any order
//! within the message, and its completion comes back after another delay. Members' processors have no part in it: a member that
//! is paused takes writes, as with a device.
//!
//! ```text
//!  post ─▶ queue ─▶ arrives (key looked up) ─▶ pieces land ─▶ receive completes at the peer
//!                        │ cut: again, until the transport gives up      └─▶ completion at the poster
//! ```
//!
//! * `transit`: what happens to a request on its way, and the faults of it; `state`: ends, keys and errors; `provider`: the trait.
//! * It passes the conformance suite that every provider passes (`tests/conformance.rs`), as an *automatic* fabric: there each poll lets a little
//!   time pass, so that no world is needed.

mod provider;
mod state;
mod transit;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use provider::{SimConnection, SimFabric, SimQueue, SimRegion, SimWaker, SimWindow};

use windlass_log::Lsn;

use self::state::State;
use crate::coverage::{Coverage, Mark};
use crate::oracle::Violation;
use crate::random::Random;

/// Probabilities in millionths, each for the event that it is named after. Zero is off.
#[derive(Clone, Copy, Debug, Default)]
pub struct FabricFaults {
    /// Every immediate arrives with another number than it was sent with: wrapped ones are among them, and nobody may care.
    pub immediates_garbled: bool,
    /// A request takes a hundred times as long, for each request.
    pub delayed: u32,
    /// The completion comes before the bytes are visible, for each write.
    pub completed_early: u32,
    /// A long message lands piece by piece, in any order, for each message longer than a packet.
    pub landed_in_pieces: u32,
    /// Its pieces take milliseconds, for each message that lands in pieces: some are still under way once its window was taken back.
    pub landed_slowly: u32,
    /// What is left of a message goes on landing after its window was invalidated, for each piece.
    pub landed_after_invalidation: u32,
    /// A request that ends with an error was carried out, for each one that was queued when its connection failed.
    pub failed_but_done: u32,
    /// The peer's receives are found wanting though they are there, for each write with immediate.
    pub receiver_not_ready: u32,
    /// A completion of the send queue never comes, for each.
    pub completion_lost: u32,
    /// A receive that was consumed never completes, for each.
    pub receive_lost: u32,
    /// The bytes of a packet land elsewhere behind the message, for each packet.
    pub misplaced: u32,
    /// The connection breaks, for each request.
    pub broken: u32,
}

/// What a member's device can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Device {
    /// It writes anywhere, and into mapped files.
    #[default]
    Any,
    /// It moves whole pages.
    Pages,
    /// It can't write into mapped files: images stand in for them.
    Staged,
}

/// What a member's log is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds {
    /// It has found all below valid, and counts for it: nobody may write there any more.
    pub(crate) valid: Lsn,
    /// Damaged, it may have vouched for all below: what lies behind `valid` may be whole.
    pub(crate) missed: Lsn,
}

/// What devices move that move whole pages.
pub(crate) const PAGE_BYTES: u32 = 4096;
/// The time of members, fabric and control plane: nanoseconds.
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// All fabrics that can reach each other.
#[derive(Clone)]
pub struct FabricNet(Arc<Mutex<State>>);

impl std::fmt::Debug for FabricNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricNet").field("now", &self.state().now).finish_non_exhaustive()
    }
}

impl FabricNet {
    /// A fabric whose time is moved by the world that it belongs to.
    #[must_use]
    pub fn timed(seed: u64) -> FabricNet {
        FabricNet(Arc::new(Mutex::new(State::new(Random::new(seed), false))))
    }

    /// A fabric that lets time pass whenever somebody polls: for those who have no world around it.
    #[must_use]
    pub fn automatic(seed: u64) -> FabricNet {
        FabricNet(Arc::new(Mutex::new(State::new(Random::new(seed), true))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One member's fabric. Each opening has one of its own.
    #[must_use]
    pub fn fabric(&self, member: u8) -> SimFabric {
        self.fabric_of(member, Device::Any)
    }

    /// One member's fabric, over a device of this kind.
    #[must_use]
    pub fn fabric_of(&self, member: u8, device: Device) -> SimFabric {
        SimFabric::new(self.clone(), member, device)
    }

    /// Keys are handed out from close to the end of their numbers on.
    pub(crate) fn near_the_wrap(&self) {
        let mut state = self.state();
        state.next_key = (1 << 24) - 40;
        state.binds_before = 254;
    }

    /// What may happen to requests from here on.
    pub fn set_faults(&self, faults: FabricFaults) {
        self.state().faults = faults;
    }

    /// When something happens next.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.state().next_at()
    }

    /// Time is `now`: everything due happens. The members whose queues have something new are added to `touched`. How many things happened.
    pub(crate) fn advance(&self, now: u64, touched: &mut Vec<u8>) -> u64 {
        let mut state = self.state();
        let count = state.advance(now);
        touched.extend(std::mem::take(&mut state.touched));
        count
    }

    /// Whether requests of `from` reach `to`.
    pub(crate) fn set_cut(&self, from: u8, to: u8, is_cut: bool) {
        let mut state = self.state();
        if is_cut {
            state.cut.insert((from, to));
        } else {
            state.cut.remove(&(from, to));
        }
    }

    /// Everything to and from this member takes so many times as long.
    pub(crate) fn set_slowness(&self, member: u8, times: u64) {
        self.state().slowness.insert(member, times);
    }

    /// The connection end that this endpoint names serves this epoch: what lands over it is held against what its owner has promised.
    /// Of the two, the responder's end takes notices.
    pub(crate) fn serves(&self, endpoint: &[u8], epoch: u64, takes_notices: bool) {
        self.state().serves(endpoint, epoch, takes_notices);
    }

    /// This member has promised: nothing of an older epoch may land in its memory any more.
    pub(crate) fn promised(&self, member: u8, epoch: u64) {
        let mut state = self.state();
        let known = state.promised.entry(member).or_insert(0);
        *known = (*known).max(epoch);
    }

    /// What this member's log is worth by now.
    pub(crate) fn holds(&self, member: u8, holds: Holds) {
        self.state().holds.insert(member, holds);
    }

    /// What did not hold since it was asked last, the first of it.
    pub(crate) fn take_violation(&self) -> Option<Violation> {
        self.state().violation.take()
    }

    /// Whether a page of this member's log with bytes of `stretch` in it is the first of a write that its device has not read yet: what of it the peer has already goes along, and was looked at.
    pub(crate) fn sends_again(&self, member: u8, stretch: Range<u64>) -> bool {
        self.state().sends_again(member, &stretch)
    }

    /// Breaks some connection between two members, as a lost cable does: both ends find out on their own.
    pub(crate) fn break_some(&self, pick: u64) -> bool {
        self.state().break_some(pick)
    }

    /// The connections' ends, in a line each.
    pub(crate) fn told(&self) -> String {
        let state = self.state();
        let mut told = String::new();
        for (number, link) in &state.links {
            let peer = link.peer.and_then(|peer| state.links.get(&peer)).map(|peer| peer.member);
            told += &format!(
                "\n  end {number} of m{} to {peer:?}: {:?}, {} queued, under way {}, {} executed, {} used, {} receives",
                link.member,
                link.state,
                link.sends.len(),
                link.is_under_way,
                link.executed.len(),
                link.sends_used,
                link.receives.len(),
            );
        }
        told
    }

    /// The kinds of fault that have happened so far.
    pub(crate) fn kinds(&self) -> BTreeSet<Mark> {
        self.state().counts.counts().into_keys().collect()
    }

    /// What has happened so far.
    pub(crate) fn take_counts(&self) -> BTreeMap<Mark, u64> {
        self.state().counts.take()
    }
}

/// Where faults count themselves.
pub(crate) type Counts = Coverage;
