//! The window of the log that producers may write: the tail word, its limits, and a ring of the segments behind them.
//!
//! ```text
//!            drained            tail                ready        limit
//!  |---------|==================|-------------------|............|
//!   retired    claims in flight   free, installed     not yet here
//!
//!  tail word   | LSN, a multiple of 8 .................. | 0 | 0 | seal |
//!  ring        slot = segment number mod slots; [drained's segment, drained's segment + slots) fit
//! ```
//!
//! Invariants:
//!
//! 1. Each byte of `[drained, tail)` belongs to one claim, or was published by one. A claim is given out once, by the CAS that
//!    moved the tail over it, and ends by being published.
//! 2. The drain moves `drained` over a claim only after it has loaded the claim's publish word with acquire ordering: the claim's
//!    last access, made with release ordering, happens before.
//! 3. A slot is only written while the segment in it lies wholly below `drained`, or while it is empty and its segment is not yet below
//!    `ready`: never while a claim or the drain can read it. That is why a claim needs no reference count (R-2).
//! 4. `ready` and `limit` only rise, so a stale value refuses too much, never too little (R-8).
//! 5. Once the seal bit is set the tail never moves again (R-10).

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::bytes::{index, length};
use crate::lsn::{Geometry, HEADER_BYTES, Lsn, SEGMENT_HEADER_BYTES, SEGMENT_START_BYTES};
use crate::memory::Memory;
use crate::record::{HEADER, WORDS};
use crate::sync::{AtomicBool, AtomicU64, Line, UnsafeCell};

const SEAL: u64 = 1;

/// How long a producer gives way in its first turn, in pauses of the processor (one takes 3 to 50 ns), and in the longest; each is four times as long as
/// the one before.
const PAUSES_MIN: u64 = 4;
const PAUSES_MAX: u64 = 64;
/// At most how many turns it gives way: a few microseconds.
const TURNS_MAX: u32 = if cfg!(loom) { 0 } else { 12 };
/// Who appends a record in so many pauses appends without a break.
const PAUSES_PER_RECORD: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    geometry: Geometry,
    /// The segment's size, less one: the bits of an LSN that are an offset.
    offset_mask: u64,
    slots: Box<[UnsafeCell<Option<Held>>]>,
    tail: Line<AtomicU64>,
    limits: Line<Limits>,
    drained: Line<AtomicU64>,
}

#[derive(Debug)]
struct Held {
    segment: u64,
    memory: Memory,
}

/// Read by every producer, written rarely.
#[derive(Debug)]
struct Limits {
    /// The end of the last installed segment. Stored by the installer, which never loads it.
    ready: AtomicU64,
    /// No claim ends beyond it.
    limit: AtomicU64,
    /// Stamped into records as the durable lag.
    persisted: AtomicU64,
    installing: AtomicBool,
    /// The segment to install next; the installer's alone.
    next: AtomicU64,
}

// SAFETY: the slots are the only part that is not `Sync` by itself. Invariant 3 orders each write of a slot against every read.
unsafe impl Sync for Window {}
// SAFETY: a window owns what it holds, and `Memory` is `Send`.
unsafe impl Send for Window {}

/// Why nothing was claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Sealed { tail: Lsn },
    Full { tail: Lsn, limit: Lsn },
    NotReady { tail: Lsn, ready: Lsn },
}

/// Why a segment can't be installed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstallError {
    /// The ring is full: install again once the drain has left the segment that holds the slot, or use a larger ring.
    #[error(
        "segment {segment} needs the slot of segment {held}, which is not drained yet (drained: LSN {drained})"
    )]
    RingFull {
        /// The segment to install.
        segment: u64,
        /// The segment in its slot.
        held: u64,
        /// The drained LSN.
        drained: Lsn,
    },
}

/// The tail word as it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look(u64);

/// What one CAS claimed: the record, and in front of it what crossing into a new segment needs.
#[derive(Debug)]
pub(crate) struct Claimed<'w> {
    /// The rest of the old segment, to be published as a pad.
    pub(crate) pad: Option<Claim<'w>>,
    /// The record itself.
    pub(crate) record: Claim<'w>,
}

/// The bytes of one record to be, and the only right to write them. Gone without [`publish`](Claim::publish), it stops the
/// drain for ever (R-9): the holder sees to that.
#[derive(Debug)]
pub(crate) struct Claim<'w> {
    /// The handle in the ring. No reference: from the publish word's store on the handle may go while the function that stored it still has the
    /// claim, and a reference that is an argument, or in one, says that it does not.
    memory: NonNull<Memory>,
    offset: u64,
    start: Lsn,
    bytes: u64,
    end: Lsn,
    window: PhantomData<&'w Window>,
}

// SAFETY: the pointer stands for `&'w Memory`, and `Memory` is `Sync`.
unsafe impl Send for Claim<'_> {}
// SAFETY: as above.
unsafe impl Sync for Claim<'_> {}

/// Where a record of some length goes when the tail is at some place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placement {
    /// A pad from the tail to the end of its segment, in bytes; 0 for none.
    pub(crate) pad_bytes: u64,
    /// Where the record starts.
    pub(crate) start: Lsn,
    /// Its last byte's successor, not normalised: at most the end of a segment.
    pub(crate) reach: Lsn,
    /// The tail behind it.
    pub(crate) end: Lsn,
}

impl Placement {
    /// Places a record of `bytes` bytes at `tail`, or in the next segment if it does not fit.
    #[inline]
    pub(crate) fn of(geometry: Geometry, tail: Lsn, bytes: u64) -> Placement {
        let room = geometry.room(tail);
        let (pad_bytes, start) = if geometry.is_first_record(tail) {
            (0, Lsn(tail.0 + SEGMENT_START_BYTES))
        } else if bytes <= room {
            (0, tail)
        } else {
            (room, Lsn(geometry.first_record(geometry.segment_of(tail) + 1).0 + SEGMENT_START_BYTES))
        };
        let reach = Lsn(start.0 + bytes);
        Placement { pad_bytes, start, reach, end: geometry.record_end(start, bytes) }
    }
}

impl Window {
    /// A window with nothing installed, whose tail and drained LSN are `tail`.
    pub(crate) fn new(geometry: Geometry, tail: Lsn, persisted: Lsn, slots: usize) -> Window {
        assert!(
            slots.is_power_of_two() && slots >= 2,
            "a ring of {slots} slots: use a power of two from 2 up"
        );
        assert_eq!(geometry.normalize(tail), tail, "R-1: the tail is not normalised");
        Window {
            geometry,
            offset_mask: geometry.segment_bytes() - 1,
            slots: (0..slots).map(|_| UnsafeCell::new(None)).collect(),
            tail: Line(AtomicU64::new(tail.0)),
            limits: Line(Limits {
                ready: AtomicU64::new(geometry.base(geometry.segment_of(tail)).0),
                limit: AtomicU64::new(0),
                persisted: AtomicU64::new(persisted.0),
                installing: AtomicBool::new(false),
                next: AtomicU64::new(geometry.segment_of(tail)),
            }),
            drained: Line(AtomicU64::new(tail.0)),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The tail word, to [claim](Self::claim_plain) at.
    #[inline]
    pub(crate) fn look(&self) -> Look {
        Look(self.tail.0.load(Acquire))
    }

    /// Claims the next `bytes` bytes for a record where nearly every record goes: right at the tail, with no pad and nothing else in front of it.
    /// `None` if that is not how it is, or if another producer was faster since `look`.
    #[inline]
    pub(crate) fn claim_plain(&self, Look(word): Look, bytes: u64) -> Option<Claim<'_>> {
        let offset = word & self.offset_mask;
        let reach = word + bytes;
        // Not sealed, not a segment's first record, and room for it and for one more header behind it: the next record starts where it ends (R-1).
        let is_plain = word & SEAL == 0
            && offset > SEGMENT_HEADER_BYTES
            && offset + bytes + HEADER_BYTES <= self.offset_mask + 1;
        if !is_plain || self.within_limits(Lsn(word), Lsn(reach)).is_err() {
            return None;
        }
        match self.tail.0.compare_exchange(word, reach, AcqRel, Acquire) {
            Ok(_) => Some(self.given(Lsn(word), bytes, Lsn(reach))),
            Err(now) => {
                self.give_way(now, bytes);
                None
            }
        }
    }

    /// Claims the next `bytes` bytes for a record, which is at most the longest there is.
    pub(crate) fn claim(&self, bytes: u64) -> Result<Claimed<'_>, Refusal> {
        let mut word = self.tail.0.load(Acquire);
        let placement = loop {
            let tail = Lsn(word & !SEAL);
            if word & SEAL != 0 {
                return Err(Refusal::Sealed { tail });
            }
            let placement = Placement::of(self.geometry, tail, bytes);
            if let Err(refusal) = self.within_limits(tail, placement.reach) {
                if crate::planted!(R8)
                    && matches!(refusal, Refusal::Full { .. })
                    && placement.reach <= self.ready()
                {
                    self.tail.0.store(placement.end.0, Release);
                }
                return Err(refusal);
            }
            // Not the weak form: a failure is to mean that somebody else was faster.
            match self.tail.0.compare_exchange(word, placement.end.0, AcqRel, Acquire) {
                Ok(_) => break placement,
                Err(now) => word = self.give_way(now, bytes),
            }
        };
        let Placement { pad_bytes, start, end, .. } = placement;
        let pad = (pad_bytes > 0).then(|| self.given(Lsn(word), pad_bytes, Lsn(word + pad_bytes)));
        Ok(Claimed { pad, record: self.given(start, bytes, end) })
    }

    /// What a producer does that lost the tail to another one, for a record of `bytes` bytes, with the tail word that it found: while others
    /// append without a break it lets them. Answers the tail word then.
    ///
    /// Between cores a cache line takes as long as several records do. Two that append at once would pass the tail's line, and those that their
    /// records share, to and fro for each record, and get less done together than one alone does. So one goes on while the others wait, a
    /// few microseconds each. Where appends come apart, nobody waits for more than the first turn.
    #[cold]
    fn give_way(&self, mut word: u64, bytes: u64) -> u64 {
        let mut pauses = PAUSES_MIN;
        for _ in 0..TURNS_MAX {
            for _ in 0..pauses {
                core::hint::spin_loop();
            }
            let now = self.tail.0.load(Acquire);
            let moved = (now & !SEAL) - (word & !SEAL);
            word = now;
            if moved < bytes * (pauses / PAUSES_PER_RECORD) {
                break;
            }
            pauses = (pauses * 4).min(PAUSES_MAX);
        }
        word
    }

    #[inline]
    fn within_limits(&self, tail: Lsn, reach: Lsn) -> Result<(), Refusal> {
        let limit = Lsn(self.limits.0.limit.load(Relaxed));
        if reach > limit {
            return Err(Refusal::Full { tail, limit });
        }
        let ready = Lsn(self.limits.0.ready.load(Acquire));
        if reach > ready {
            return Err(Refusal::NotReady { tail, ready });
        }
        Ok(())
    }

    /// The claim of `bytes` bytes at `start`, which the caller's CAS has just taken or which the drain owns.
    #[inline]
    fn given(&self, start: Lsn, bytes: u64, end: Lsn) -> Claim<'_> {
        let memory = NonNull::from(self.memory_at(start));
        Claim { memory, offset: start.0 & self.offset_mask, start, bytes, end, window: PhantomData }
    }

    /// The memory of the segment of `lsn`, which lies in `[drained, tail)` and stays there while the result is used.
    #[inline]
    fn memory_at(&self, lsn: Lsn) -> &Memory {
        let segment = self.geometry.segment_of(lsn);
        // SAFETY: `lsn` lies in `[drained, tail)`, hence below a `ready` that was loaded with acquire ordering before the tail moved
        // over it: the slot's write happens before. By invariant 3 the slot is not written until the drain has passed the bytes, and
        // the drain passes a claim only after its last access (invariant 2). The reference leads to the handle, not to the bytes.
        let held = self.slot(segment).with(|slot| unsafe { (*slot).as_ref() });
        match held {
            Some(held) if held.segment == segment => &held.memory,
            _ => panic!("segment {segment} is below the ready limit and not in the ring"),
        }
    }

    #[inline]
    fn slot(&self, segment: u64) -> &UnsafeCell<Option<Held>> {
        &self.slots[index(segment & (length(self.slots.len()) - 1))]
    }

    /// Puts the next segment into the ring and raises the ready limit to its end.
    ///
    /// # Panics
    ///
    /// If it is not the next one, has another size, or two threads install at once.
    pub(crate) fn install(&self, segment: u64, memory: Memory) -> Result<(), InstallError> {
        assert_eq!(memory.bytes(), self.geometry.segment_bytes(), "a segment has another size");
        self.alone(|| {
            let next = self.limits.0.next.load(Relaxed);
            assert_eq!(next, segment, "segments are installed in order");
            let drained = Lsn(self.drained.0.load(Acquire));
            // SAFETY: only the one installer writes slots, and that is this thread.
            let held = self.slot(segment).with(|slot| unsafe { (*slot).as_ref().map(|held| held.segment) });
            if let Some(held) = held.filter(|held| *held >= self.geometry.segment_of(drained)) {
                return Err(InstallError::RingFull { segment, held, drained });
            }
            // SAFETY: the slot is empty, with its segment not yet below `ready`, or its segment is below `drained`, which was loaded
            // with acquire ordering: nobody reads it (invariant 3).
            self.slot(segment).with_mut(|slot| unsafe { *slot = Some(Held { segment, memory }) });
            self.limits.0.next.store(segment + 1, Relaxed);
            self.limits.0.ready.store(self.geometry.base(segment + 1).0, Release);
            Ok(())
        })
    }

    /// Lets go of the segments that lie wholly below the drained LSN.
    pub(crate) fn retire(&self) {
        self.alone(|| {
            let drained = self.geometry.segment_of(Lsn(self.drained.0.load(Acquire)));
            for slot in &self.slots {
                // SAFETY: only the one installer writes slots, and that is this thread.
                let held = slot.with(|slot| unsafe { (*slot).as_ref().map(|held| held.segment) });
                if held.is_some_and(|held| held < drained) {
                    // SAFETY: as in `install`: the segment is below `drained`.
                    slot.with_mut(|slot| unsafe { *slot = None });
                }
            }
        });
    }

    /// Runs `work` as the one installer.
    fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(false, Release);
            }
        }
        let taken = self.limits.0.installing.swap(true, Acquire);
        assert!(!taken, "two threads install or retire segments at once");
        let _done = Done(&self.limits.0.installing);
        work()
    }

    /// Raises the limit that no claim ends beyond. A lower one than before changes nothing.
    pub(crate) fn raise_limit(&self, limit: Lsn) {
        self.limits.0.limit.fetch_max(limit.0, AcqRel);
    }

    pub(crate) fn limit(&self) -> Lsn {
        Lsn(self.limits.0.limit.load(Acquire))
    }

    pub(crate) fn ready(&self) -> Lsn {
        Lsn(self.limits.0.ready.load(Acquire))
    }

    /// Raises the persisted watermark that records are stamped with.
    pub(crate) fn raise_persisted(&self, persisted: Lsn) {
        self.limits.0.persisted.fetch_max(persisted.0, AcqRel);
    }

    #[inline]
    pub(crate) fn persisted(&self) -> Lsn {
        Lsn(self.limits.0.persisted.load(Relaxed))
    }

    /// The tail, and whether it is sealed.
    #[inline]
    pub(crate) fn tail(&self) -> (Lsn, bool) {
        let word = self.tail.0.load(Acquire);
        (Lsn(word & !SEAL), word & SEAL != 0)
    }

    /// Sets the seal bit; the tail at that moment is final.
    pub(crate) fn seal(&self) -> Lsn {
        Lsn(self.tail.0.fetch_or(SEAL, AcqRel) & !SEAL)
    }

    pub(crate) fn drained(&self) -> Lsn {
        Lsn(self.drained.0.load(Acquire))
    }

    /// The header of the record at `at`, as words, once it carries this publish word; for the drain, with `at` in `[drained, tail)`.
    #[inline]
    pub(crate) fn published(&self, at: Lsn, word: u64) -> Option<[u64; WORDS]> {
        let memory = self.memory_at(at);
        let offset = self.geometry.offset_of(at);
        if memory.load_u64(offset, Acquire) != word {
            return None;
        }
        let plain = |at: u64| {
            let mut bytes = [0; 8];
            memory.copy_out(offset + at, &mut bytes);
            u64::from_le_bytes(bytes)
        };
        Some([word, plain(8), plain(16), plain(24)])
    }

    /// The claim of the segment-start record at `at`, which crossing producers leave to the drain.
    pub(crate) fn segment_start(&self, at: Lsn) -> Claim<'_> {
        assert!(self.geometry.is_first_record(at), "a segment-start record at LSN {at}");
        self.given(at, SEGMENT_START_BYTES, Lsn(at.0 + SEGMENT_START_BYTES))
    }

    /// Moves the drained LSN to `to`: everything below is published, and every claim below has ended.
    pub(crate) fn pass(&self, to: Lsn) {
        assert!(to >= self.drained(), "the drained LSN never goes back");
        self.drained.0.store(to.0, Release);
    }
}

impl Claim<'_> {
    #[inline]
    fn memory(&self) -> &Memory {
        // SAFETY: the claim's bytes lie in `[drained, tail)` until its publish word is stored, which is the last thing that a claim does; by invariant 3
        // nobody writes the slot until then, and the window outlives the claim.
        unsafe { self.memory.as_ref() }
    }

    #[inline]
    pub(crate) fn start(&self) -> Lsn {
        self.start
    }

    /// The bytes of the whole record.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The start of the record behind this one (R-1). Behind a pad that is the header page, which no record starts in.
    #[inline]
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Where in the segment `bytes` bytes at `at` of the record lie; header bytes are not for the taking.
    #[inline]
    fn inside(&self, at: u64, bytes: u64) -> u64 {
        let inside = at >= HEADER_BYTES && at <= self.bytes && bytes <= self.bytes - at;
        assert!(inside, "{bytes} bytes at {at} of a record of {} bytes", self.bytes);
        self.offset + at
    }

    /// Copies `source` to byte `at` of the record, counted from its header's start.
    #[inline]
    pub(crate) fn write(&self, at: u64, source: &[u8]) {
        self.memory().copy_in(self.inside(at, length(source.len())), source);
    }

    /// Copies from byte `at` of the record.
    #[inline]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        self.memory().copy_out(self.inside(at, length(into.len())), into);
    }

    /// Sets `bytes` bytes from byte `at` of the record to zero.
    #[inline]
    pub(crate) fn zero(&self, at: u64, bytes: u64) {
        self.memory().zero(self.inside(at, bytes), bytes);
    }

    /// Writes the header and, last and with release ordering, its publish word: whoever loads that word with acquire ordering
    /// sees the whole record. The claim ends.
    #[inline]
    pub(crate) fn publish(self, [word, rest @ ..]: [u64; WORDS]) {
        self.memory().copy_in(self.offset + 8, &rest_bytes(rest));
        self.store(word);
    }

    /// Writes the whole record, which this payload fills: payload, zeros up to the alignment, header, and the publish word as
    /// [`publish`](Self::publish) does.
    ///
    /// # Panics
    ///
    /// If the claim is of another length.
    #[inline]
    pub(crate) fn publish_whole(self, payload: &[u8], [word, rest @ ..]: [u64; WORDS]) {
        assert_eq!(
            Geometry::record_bytes(length(payload.len())),
            self.bytes,
            "a payload of {} bytes for a record of another length",
            payload.len()
        );
        self.memory().copy_record_in(self.offset, &rest_bytes(rest), payload);
        self.store(word);
    }

    #[inline]
    fn store(self, word: u64) {
        // From here on the drain may pass this record, and the handle be dropped, and the mapping with it, before this function has returned: so no call
        // that the handle is an argument of may last beyond the store. The atomic alone may go under a reference to it.
        #[cfg(not(loom))]
        {
            let place = self.memory().word(self.offset);
            place.store(word.to_le(), Release);
        }
        #[cfg(loom)]
        self.memory().store_u64(self.offset, word, Release);
    }
}

/// A header's words behind the publish word, as bytes.
#[inline]
fn rest_bytes([epoch, lengths, checksums]: [u64; WORDS - 1]) -> [u8; HEADER - 8] {
    let mut rest = [0; HEADER - 8];
    rest[..8].copy_from_slice(&epoch.to_le_bytes());
    rest[8..16].copy_from_slice(&lengths.to_le_bytes());
    rest[16..].copy_from_slice(&checksums.to_le_bytes());
    rest
}
