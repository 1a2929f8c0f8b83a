//! What was posted on a queue pair and has not come back: slots, the caller's ids, the first error. No foreign call.
//!
//! The thread that posts and the thread that polls meet here without a lock (gone through by loom, `loom_tests`). A request's number on its queue (its
//! sequence) travels through the device in the work request's id:
//!
//! ```text
//!  63            32  31  30            0
//! ┌────────────────┬───┬───────────────┐
//! │ connection id  │ r │ sequence      │   r: 1 for receives
//! └────────────────┴───┴───────────────┘
//! ```
//!
//! A device completes the requests of one queue in order, and an unsignalled success gives no completion; so a completion
//! with sequence `s` gives back every slot up to and including `s`. Requests that fail or are flushed always complete.
//! The connection's id, and not the queue pair's number, names the queue: numbers are used again by later queue pairs,
//! while completions of an earlier one may still lie in the completion queue.

use std::sync::atomic::Ordering;

use windlass_fabric::{ConnectionId, ErrorCause, Opcode};

use crate::sync::{AtomicBool, AtomicU8, AtomicU64, SlotU8, SlotU64};

const RECEIVE_BIT: u64 = 1 << 31;
const SEQUENCE_MASK: u64 = RECEIVE_BIT - 1;

/// The larger of the depths that the encoding can tell apart with room to spare.
pub(crate) const DEPTH_MAX: u32 = 1 << 20;

/// One queue's slots: a ring of `depth` places, indexed by sequence.
pub(crate) struct Ring {
    ids: Box<[SlotU64]>,
    opcodes: Box<[SlotU8]>,
    /// Sequence of the next request to be posted. Stored (release) before the device learns of the requests below it.
    posted: AtomicU64,
    /// Sequence behind the last one given back. Stored by the polling thread (release).
    completed: AtomicU64,
    /// Sequence behind the last one that completed with success.
    succeeded: AtomicU64,
    /// Sequence behind the last one that was posted to be completed, signalled: the device owes an answer while that is not given back.
    expected: AtomicU64,
}

impl Ring {
    fn new(depth: u32) -> Ring {
        Ring {
            ids: (0..depth).map(|_| SlotU64::new(0)).collect(),
            opcodes: (0..depth).map(|_| SlotU8::new(0)).collect(),
            posted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            expected: AtomicU64::new(0),
        }
    }

    fn depth(&self) -> u64 {
        self.ids.len() as u64
    }

    fn index(&self, sequence: u64) -> usize {
        // The remainder is below the slice's length, so it fits.
        usize::try_from(sequence % self.depth().max(1)).unwrap_or(0)
    }

    /// Slots in use.
    pub(crate) fn outstanding(&self) -> u32 {
        let used = self.posted.load(Ordering::Acquire) - self.completed.load(Ordering::Acquire);
        u32::try_from(used).unwrap_or(u32::MAX)
    }

    /// Free slots.
    pub(crate) fn free(&self) -> u32 {
        u32::try_from(self.depth()).unwrap_or(u32::MAX) - self.outstanding()
    }

    /// The sequence of the next request.
    pub(crate) fn next(&self) -> u64 {
        self.posted.load(Ordering::Relaxed)
    }

    /// Fills the slot of a request that is about to be posted.
    pub(crate) fn fill(&self, sequence: u64, id: u64, opcode: Opcode) {
        let index = self.index(sequence);
        self.ids[index].store(id, Ordering::Relaxed);
        self.opcodes[index].store(encode_opcode(opcode), Ordering::Relaxed);
    }

    /// Makes every filled slot below `next` count. Called before the device is told, and again with what the device took.
    pub(crate) fn publish(&self, next: u64) {
        self.posted.store(next, Ordering::Release);
    }

    /// Notes that the request asks for a completion.
    pub(crate) fn expect(&self, sequence: u64) {
        self.expected.store(sequence + 1, Ordering::Relaxed);
    }

    /// Whether a request that asked for a completion has not had it.
    pub(crate) fn is_reply_due(&self) -> bool {
        self.expected.load(Ordering::Relaxed) > self.completed.load(Ordering::Relaxed)
    }

    /// Whether the request has completed with success.
    pub(crate) fn has_succeeded(&self, sequence: u64) -> bool {
        self.succeeded.load(Ordering::Acquire) > sequence
    }

    /// Takes a completion: the caller's id and the kind of request. `None` for a sequence that is not outstanding.
    fn complete(&self, low: u64, success: bool) -> Option<(u64, Opcode)> {
        let completed = self.completed.load(Ordering::Relaxed);
        let sequence = completed + (low.wrapping_sub(completed) & SEQUENCE_MASK);
        if sequence >= self.posted.load(Ordering::Acquire) {
            return None;
        }
        let index = self.index(sequence);
        let id = self.ids[index].load(Ordering::Relaxed);
        let opcode = decode_opcode(self.opcodes[index].load(Ordering::Relaxed));
        if success {
            self.succeeded.store(sequence + 1, Ordering::Release);
        }
        self.completed.store(sequence + 1, Ordering::Release);
        Some((id, opcode))
    }
}

/// What a queue pair, its completion queue and the device's event reader share.
pub(crate) struct Slots {
    pub(crate) connection: u32,
    pub(crate) sends: Ring,
    pub(crate) receives: Ring,
    /// 0 while there is none, else an [`ErrorCause`]; the first one stays (failure kind 72).
    cause: AtomicU8,
    flushed: AtomicBool,
    destroyed: AtomicBool,
}

impl Slots {
    pub(crate) fn new(connection: u32, send_depth: u32, receive_depth: u32) -> Slots {
        Slots {
            connection,
            sends: Ring::new(send_depth),
            receives: Ring::new(receive_depth),
            cause: AtomicU8::new(0),
            flushed: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        ConnectionId(u64::from(self.connection))
    }

    /// The work request's id for a request.
    pub(crate) fn send_id(&self, sequence: u64) -> u64 {
        (u64::from(self.connection) << 32) | (sequence & SEQUENCE_MASK)
    }

    /// The work request's id for a receive.
    pub(crate) fn receive_id(&self, sequence: u64) -> u64 {
        self.send_id(sequence) | RECEIVE_BIT
    }

    /// Takes a completion of either queue.
    pub(crate) fn complete(&self, work_request: u64, success: bool) -> Option<(u64, Opcode)> {
        let ring = if work_request & RECEIVE_BIT == 0 { &self.sends } else { &self.receives };
        ring.complete(work_request & SEQUENCE_MASK, success)
    }

    /// Notes a cause, unless there is one already.
    pub(crate) fn fail(&self, cause: ErrorCause) {
        let _ = self.cause.compare_exchange(0, encode_cause(cause), Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn cause(&self) -> Option<ErrorCause> {
        decode_cause(self.cause.load(Ordering::Acquire))
    }

    /// Notes that a request or receive was flushed.
    pub(crate) fn mark_flushed(&self) {
        self.flushed.store(true, Ordering::Release);
    }

    pub(crate) fn was_flushed(&self) -> bool {
        self.flushed.load(Ordering::Acquire)
    }

    pub(crate) fn mark_destroyed(&self) {
        self.destroyed.store(true, Ordering::Release);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }
}

/// The connection that a work request's id names.
pub(crate) fn connection_of(work_request: u64) -> u32 {
    u32::try_from(work_request >> 32).unwrap_or(0)
}

fn encode_opcode(opcode: Opcode) -> u8 {
    match opcode {
        Opcode::Write => 0,
        Opcode::Read => 1,
        Opcode::Send => 2,
        Opcode::Bind => 3,
        Opcode::Invalidate => 4,
        Opcode::Receive => 5,
        Opcode::ReceiveWrite => 6,
    }
}

fn decode_opcode(code: u8) -> Opcode {
    match code {
        0 => Opcode::Write,
        1 => Opcode::Read,
        3 => Opcode::Bind,
        4 => Opcode::Invalidate,
        5 => Opcode::Receive,
        6 => Opcode::ReceiveWrite,
        _ => Opcode::Send,
    }
}

const CAUSES: [ErrorCause; 7] = [
    ErrorCause::RequestFailed,
    ErrorCause::PeerRefused,
    ErrorCause::PeerGone,
    ErrorCause::ConnectFailed,
    ErrorCause::PeerBroken,
    ErrorCause::Closed,
    ErrorCause::Device,
];

fn encode_cause(cause: ErrorCause) -> u8 {
    match cause {
        ErrorCause::RequestFailed => 1,
        ErrorCause::PeerRefused => 2,
        ErrorCause::PeerGone => 3,
        ErrorCause::ConnectFailed => 4,
        ErrorCause::PeerBroken => 5,
        ErrorCause::Closed => 6,
        ErrorCause::Device => 7,
    }
}

fn decode_cause(code: u8) -> Option<ErrorCause> {
    CAUSES.get(usize::from(code.checked_sub(1)?)).copied()
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn post(slots: &Slots, id: u64) -> u64 {
        let sequence = slots.sends.next();
        slots.sends.fill(sequence, id, Opcode::Write);
        slots.sends.publish(sequence + 1);
        slots.send_id(sequence)
    }

    #[test]
    fn kind_71_a_signalled_completion_gives_back_the_unsignalled_slots_before_it() {
        let slots = Slots::new(7, 4, 4);
        post(&slots, 10);
        post(&slots, 11);
        let signalled = post(&slots, 12);
        let later = post(&slots, 13);
        assert_eq!((slots.sends.free(), slots.sends.outstanding()), (0, 4));
        assert_eq!(connection_of(signalled), 7);
        assert_eq!(slots.complete(signalled, true), Some((12, Opcode::Write)));
        assert_eq!(slots.sends.free(), 3);
        assert!(slots.sends.has_succeeded(2) && !slots.sends.has_succeeded(3));
        assert_eq!(slots.complete(later, false), Some((13, Opcode::Write)));
        assert!(!slots.sends.has_succeeded(3), "a flushed request has not succeeded");
        assert_eq!(slots.sends.free(), 4);
    }

    #[test]
    fn a_completion_that_answers_nothing_is_refused() {
        let slots = Slots::new(1, 2, 2);
        assert_eq!(slots.complete(slots.send_id(0), true), None);
        let once = post(&slots, 5);
        assert!(slots.complete(once, true).is_some());
        assert_eq!(slots.complete(once, true), None, "the same completion twice");
        assert_eq!(slots.complete(slots.receive_id(0), true), None);
    }

    #[test]
    fn sequences_go_on_behind_the_31_bits_that_travel() {
        let slots = Slots::new(1, 2, 2);
        let start = SEQUENCE_MASK - 1;
        slots.sends.posted.store(start, Ordering::Relaxed);
        slots.sends.completed.store(start, Ordering::Relaxed);
        for id in 0..4 {
            let work_request = post(&slots, id);
            assert_eq!(slots.complete(work_request, true), Some((id, Opcode::Write)));
        }
        assert_eq!(slots.sends.outstanding(), 0);
    }

    #[test]
    fn kind_72_the_first_cause_stays() {
        let slots = Slots::new(1, 1, 1);
        assert_eq!(slots.cause(), None);
        slots.fail(ErrorCause::PeerRefused);
        slots.fail(ErrorCause::Closed);
        assert_eq!(slots.cause(), Some(ErrorCause::PeerRefused));
        for cause in CAUSES {
            assert_eq!(decode_cause(encode_cause(cause)), Some(cause));
        }
    }

    #[test]
    fn opcodes_survive_the_ring() {
        for opcode in [
            Opcode::Write,
            Opcode::Read,
            Opcode::Send,
            Opcode::Bind,
            Opcode::Invalidate,
            Opcode::Receive,
            Opcode::ReceiveWrite,
        ] {
            assert_eq!(decode_opcode(encode_opcode(opcode)), opcode);
        }
    }
}
