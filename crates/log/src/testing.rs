//! A log of real records in exact-size heap blocks, for the tests of everything that reads.

use std::sync::Arc;
use std::vec::Vec;

use crate::{
    Appended, Chain, Drain, DrainState, Epoch, EpochHistory, Geometry, Handoff, LogId, Lsn, Marks, MemberId,
    Memory, MemoryImage, RecordKind, ReserveError, SEGMENT_BYTES_MIN, Salt, SegmentHeader, Shape, Tenure,
};

pub(crate) const S: u64 = SEGMENT_BYTES_MIN;
pub(crate) const GENESIS: Lsn = Lsn(crate::SEGMENT_HEADER_BYTES);
pub(crate) const LOG: LogId = LogId(*b"a log for a test");
pub(crate) const SLOTS: usize = 8;

pub(crate) fn epoch(counter: u64) -> Epoch {
    Epoch::new(counter, MemberId(0))
}

/// A blank segment with its header.
pub(crate) fn segment(log_id: LogId, segment: u64) -> Memory {
    let memory = Memory::heap(S);
    let header = SegmentHeader { log_id, base: Lsn(segment * S), segment_bytes: S, features: 0 };
    memory.copy_in(0, &header.encode());
    memory
}

/// A log under construction.
pub(crate) struct Log {
    pub(crate) shape: Shape,
    pub(crate) segments: Vec<Option<Memory>>,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) drain: Drain,
}

impl Log {
    /// A log of epoch 1 with this many segments.
    pub(crate) fn new(segments: u64) -> Log {
        let segments: Vec<_> = (0..segments).map(|n| Some(segment(LOG, n))).collect();
        let shape = Shape { geometry: Geometry::new(S).unwrap(), log_id: LOG, history: EpochHistory::new() };
        Log::lead(shape, segments, epoch(1), GENESIS)
    }

    /// Begins `epoch` at `tail` in these segments.
    pub(crate) fn lead(mut shape: Shape, segments: Vec<Option<Memory>>, epoch: Epoch, tail: Lsn) -> Log {
        shape.history.cut(tail);
        shape.history.extend(epoch, tail).unwrap();
        let chain = Chain::begin(&Salt::new(LOG).key(epoch), tail);
        let geometry = shape.geometry;
        let tenure = Tenure { geometry, log_id: LOG, epoch, tail, chain, persisted: GENESIS, slots: SLOTS };
        let (handoff, drain) = Handoff::new(tenure);
        for (number, memory) in (0..).zip(&segments).skip(index(geometry.segment_of(tail))).take(SLOTS) {
            handoff.install(number, memory.clone().unwrap()).unwrap();
        }
        handoff.set_limit(Lsn(u64::MAX));
        Log { shape, segments, handoff, drain }
    }

    /// Seals the log where it is and begins the next epoch at `tail`, which may cut a suffix.
    pub(crate) fn next_epoch(self, tail: Lsn) -> Log {
        self.handoff.seal();
        let next = epoch(self.handoff.epoch().counter() + 1);
        Log::lead(self.shape, self.segments, next, tail)
    }

    pub(crate) fn append(&mut self, payload: &[u8]) -> Appended {
        let at = self.handoff.append(RecordKind::Data, payload).unwrap();
        self.drain();
        at
    }

    pub(crate) fn try_append(&mut self, payload: &[u8]) -> Result<Appended, ReserveError> {
        let at = self.handoff.append(RecordKind::Data, payload);
        self.drain();
        at
    }

    pub(crate) fn drain(&mut self) {
        while self.drain.poll(1000).unwrap().state == DrainState::More {}
    }

    pub(crate) fn tail(&self) -> Lsn {
        self.handoff.tail()
    }

    pub(crate) fn image(&self) -> MemoryImage {
        MemoryImage::new(self.shape.geometry, 0, self.segments.clone())
    }

    /// The memory of the segment of `lsn`, and where in it `lsn` is.
    pub(crate) fn place(&self, lsn: Lsn) -> (&Memory, u64) {
        let segment = index(self.shape.geometry.segment_of(lsn));
        (self.segments[segment].as_ref().unwrap(), self.shape.geometry.offset_of(lsn))
    }

    /// Changes the byte at `lsn`.
    pub(crate) fn flip(&self, lsn: Lsn) {
        let (memory, offset) = self.place(lsn);
        let mut byte = [0];
        memory.copy_out(offset, &mut byte);
        memory.copy_in(offset, &[byte[0] ^ 0x10]);
    }

    /// Sets bytes to zero, as if their sectors had never reached the medium.
    pub(crate) fn lose(&self, lsn: Lsn, bytes: u64) {
        let (memory, offset) = self.place(lsn);
        memory.zero(offset, bytes);
    }
}

/// Marks of a log of which nothing is known to be flushed.
pub(crate) fn no_marks() -> Marks {
    Marks { trimmed: GENESIS, persisted: GENESIS, live: Lsn(0), clean: None, member: MemberId(0) }
}

pub(crate) fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}
