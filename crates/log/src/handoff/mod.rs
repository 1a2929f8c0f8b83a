//! The append hand-off: many producers, no lock, one drain.
//!
//! ```text
//!  producer                                   drain (the pump)
//!  1 CAS on the tail word: a claim            1 load the publish word at its position, acquire
//!  2 copy the payload, checksum it            2 not the expected one: stop
//!  3 write the header behind the word         3 check the header, take it into the chain
//!  4 store the publish word, release          4 move on; publish segment-start records on the way
//! ```
//!
//! The log is its own completion structure: there is no queue beside it. One [`Handoff`] serves one tenure. A seal ends it; what
//! comes after (another primary, a cut, a truncation) gets a new hand-off under a new epoch, so that no LSN ever carries two
//! contents in one epoch.
//!
//! Rules: R-8 (a refusal is an error, never a hole), R-9 (a reservation that is never published is seen and named), R-10 (sealed and
//! drained to the tail means that nothing is in flight). DESIGN.md section 3.

mod drain;
#[cfg(all(test, loom))]
mod loom_tests;
mod reservation;
#[cfg(all(test, not(loom)))]
mod tests;

use alloc::sync::Arc;

pub use drain::{Drain, DrainError, DrainState, Drained};
pub use reservation::Reservation;

use crate::batch::{FRAME, frame, frame_bytes};
use crate::bytes::length;
use crate::memory::{Claim, InstallError, Memory, Refusal, Window};
use crate::record::{Lag, RecordHeader, RecordKind, WORDS, zeros_checksum};
use crate::salt::{EpochKey, Salt};
use crate::{Chain, Epoch, Geometry, HEADER_BYTES, LogId, Lsn};

/// For longer payloads the tail is read after the sum was taken.
const EARLY_LOOK_BYTES_MAX: u32 = 1024;

/// What a tenure starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// The log's segment size.
    pub geometry: Geometry,
    /// The log.
    pub log_id: LogId,
    /// The epoch of every record appended; the history assigns it to everything from `tail` on (R-4).
    pub epoch: Epoch,
    /// The end of the log so far.
    pub tail: Lsn,
    /// The chain at `tail`: [`Chain::begin`] for an epoch that starts there, what the scan found for one that goes on.
    pub chain: Chain,
    /// Everything below is flushed.
    pub persisted: Lsn,
    /// Segments that can be installed at once, a power of two from 2 up.
    pub slots: usize,
}

/// Where an append went: `[start, end)`. `end` is the next record's start, which may lie in the next segment (R-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The record's LSN.
    pub start: Lsn,
    /// What to commit.
    pub end: Lsn,
}

/// Why nothing was appended. Nothing was reserved either, and the log goes on (R-8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReserveError {
    /// The next segment is still being made: wait for it.
    #[error("the log is at LSN {tail} and segments are ready up to LSN {ready}: wait for the next one")]
    NotReady {
        /// The tail.
        tail: Lsn,
        /// The end of the last segment that is ready.
        ready: Lsn,
    },
    /// The retention limit or the disk's space is reached: trim the log.
    #[error("the log is at LSN {tail} and may not go beyond LSN {limit}: trim it, or raise its retention")]
    Full {
        /// The tail.
        tail: Lsn,
        /// The limit.
        limit: Lsn,
    },
    /// The tenure is over.
    #[error("the log is sealed at LSN {tail}")]
    Sealed {
        /// The final tail.
        tail: Lsn,
    },
    /// Longer than the longest record: split it.
    #[error("a payload of {payload_bytes} bytes, the longest has {payload_bytes_max}")]
    TooLarge {
        /// What was asked for.
        payload_bytes: u64,
        /// The longest there is, [`Geometry::payload_bytes_max`].
        payload_bytes_max: u64,
    },
}

/// One tenure's appends. Shared between all producers; the [`Drain`] is its other end.
#[derive(Debug)]
pub struct Handoff {
    window: Window,
    key: EpochKey,
    payload_bytes_max: u32,
    /// To be cloned: making one asks what the processor can do.
    hasher: crc32fast::Hasher,
}

impl Handoff {
    /// A hand-off for this tenure and its one drain. Install the segment of the tail next, and set a limit.
    ///
    /// # Panics
    ///
    /// If the tail is not normalised (R-1), there are too few slots, or the epoch is none.
    #[must_use]
    pub fn new(tenure: Tenure) -> (Arc<Handoff>, Drain) {
        assert!(tenure.epoch != Epoch::NONE, "appends belong to an epoch");
        let key = Salt::new(tenure.log_id).key(tenure.epoch);
        let window = Window::new(tenure.geometry, tenure.tail, tenure.persisted, tenure.slots);
        let payload_bytes_max =
            u32::try_from(tenure.geometry.payload_bytes_max()).expect("a segment has 4 GiB at most");
        let hasher = crc32fast::Hasher::new();
        let handoff = Arc::new(Handoff { window, key, payload_bytes_max, hasher });
        let drain = Drain::new(Arc::clone(&handoff), tenure.tail, tenure.chain);
        (handoff, drain)
    }

    /// Makes the next segment available to producers: in order, the segment of the tail first. One thread at a time.
    ///
    /// The memory stays in use until the drain has left the segment and it is replaced or [retired](Self::retire).
    ///
    /// # Errors
    ///
    /// [`InstallError::RingFull`]: the drain has to go on first.
    ///
    /// # Panics
    ///
    /// If the segment is out of order or has another size, or two threads install at once.
    pub fn install(&self, segment: u64, memory: Memory) -> Result<(), InstallError> {
        self.window.install(segment, memory)
    }

    /// Lets go of the memory of segments that lie wholly below the drained LSN. One thread at a time, installing included.
    pub fn retire(&self) {
        self.window.retire();
    }

    /// Raises the limit that no append reaches beyond (retention, credit, space). A lower limit than before changes nothing.
    pub fn set_limit(&self, limit: Lsn) {
        self.window.raise_limit(limit);
    }

    /// Raises the persisted watermark that records are stamped with as their durable lag. Orders nothing and promises nothing.
    pub fn set_persisted(&self, persisted: Lsn) {
        self.window.raise_persisted(persisted);
    }

    /// The tenure's epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.key.epoch()
    }

    /// The log's segment size.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.window.geometry()
    }

    /// The end of the log: everything below is published or reserved.
    #[must_use]
    pub fn tail(&self) -> Lsn {
        self.window.tail().0
    }

    /// Everything below is published, whole, and part of the chain.
    #[must_use]
    pub fn drained(&self) -> Lsn {
        self.window.drained()
    }

    /// The end of the last installed segment.
    #[must_use]
    pub fn ready(&self) -> Lsn {
        self.window.ready()
    }

    /// The limit set last.
    #[must_use]
    pub fn limit(&self) -> Lsn {
        self.window.limit()
    }

    /// Ends the tenure's appends; returns the final tail. Sealing again returns it again.
    ///
    /// Reservations made before may still be published. Nothing is in flight once [`is_quiet`](Self::is_quiet) (R-10).
    pub fn seal(&self) -> Lsn {
        self.window.seal()
    }

    /// Whether the tail is final.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.window.tail().1
    }

    /// Whether the log is sealed and drained to its tail: no reservation is in flight and none can follow (R-10). Only then may
    /// segments of this tenure be cut, granted to another, recycled or unmapped (R-2).
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let (tail, sealed) = self.window.tail();
        sealed && self.window.drained() == tail
    }

    /// Reserves a record with a payload of this length. Publish it soon: the drain waits for it.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing was reserved.
    #[inline]
    pub fn reserve(&self, payload_bytes: u64) -> Result<Reservation<'_>, ReserveError> {
        let payload_bytes = self.checked(payload_bytes)?;
        Ok(Reservation::new(self, self.claim(payload_bytes)?, payload_bytes))
    }

    /// Appends one record: reserve, copy, publish. One copy of the payload, no allocation, no system call.
    ///
    /// The record is in the log for every reader of the memory when this returns; the drain passes it once everything before it is whole.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing was appended.
    ///
    /// # Panics
    ///
    /// If `kind` is one that only the log writes itself: pad, segment-start.
    #[inline]
    pub fn append(&self, kind: RecordKind, payload: &[u8]) -> Result<Appended, ReserveError> {
        assert_appendable(kind);
        let payload_bytes = self.checked(length(payload.len()))?;
        // Who appends at the same time shows between this look and the claim, and the line is here by then. What takes longer is looked for later.
        let mut look = self.window.look();
        // Before the place is known: what is claimed holds up the drain until it is published, and the processor overlaps the sum with the
        // stores of the record before, which the claim's atomic waits for.
        let mut hasher = self.hasher.clone();
        hasher.update(payload);
        let sum = hasher.finalize();
        if payload_bytes > EARLY_LOOK_BYTES_MAX {
            look = self.window.look();
        }
        let claim = match self.window.claim_plain(look, Geometry::record_bytes(u64::from(payload_bytes))) {
            Some(claim) => claim,
            None => return self.append_anywhere(kind, payload, payload_bytes, sum),
        };
        Ok(self.publish_whole(claim, kind, payload, payload_bytes, sum))
    }

    /// As [`append`](Self::append), wherever the tail is.
    #[cold]
    fn append_anywhere(
        &self,
        kind: RecordKind,
        payload: &[u8],
        payload_bytes: u32,
        sum: u32,
    ) -> Result<Appended, ReserveError> {
        let claim = self.claim(payload_bytes)?;
        Ok(self.publish_whole(claim, kind, payload, payload_bytes, sum))
    }

    /// Fills a claim with a payload, whose length and CRC-32 are known, and publishes it.
    #[inline]
    fn publish_whole(
        &self,
        claim: Claim<'_>,
        kind: RecordKind,
        payload: &[u8],
        payload_bytes: u32,
        sum: u32,
    ) -> Appended {
        let (start, end) = (claim.start(), claim.end());
        let checksum = sum ^ self.key.salt().payload_salt(start);
        claim.publish_whole(payload, self.words(start, kind, payload_bytes, checksum));
        Appended { start, end }
    }

    /// The words of a record's header.
    #[inline]
    fn words(&self, lsn: Lsn, kind: RecordKind, payload_bytes: u32, payload_checksum: u32) -> [u64; WORDS] {
        let lag = Lag::between(self.window.persisted(), lsn);
        let epoch = self.key.epoch();
        let header = RecordHeader { lsn, epoch, kind, lag, payload_bytes, payload_checksum };
        header.words(&self.key, kind.number())
    }

    /// Appends several items as one record: all of them or none is ever read back. Readers yield each with its own LSN.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing was appended. The longest batch is the longest record: each item takes 8 bytes more than its length,
    /// rounded up to 8.
    pub fn append_batch(&self, items: &[&[u8]]) -> Result<Appended, ReserveError> {
        let payload_bytes_max = self.geometry().payload_bytes_max();
        let mut payload_bytes: u64 = 0;
        for item in items {
            let too_large = ReserveError::TooLarge { payload_bytes: u64::MAX, payload_bytes_max };
            payload_bytes = payload_bytes.saturating_add(frame_bytes(item.len()).ok_or(too_large)?);
        }
        let mut reservation = self.reserve(payload_bytes)?;
        let mut at = 0;
        for (number, item) in (0_u32..).zip(items) {
            reservation.write(at, &frame(item.len(), number));
            reservation.write(at + length(FRAME), item);
            let end = at + length(FRAME) + length(item.len());
            at = end.next_multiple_of(8);
            reservation.write(end, &[0; 8][..crate::bytes::index(at - end)]);
        }
        Ok(reservation.publish(RecordKind::Batch))
    }

    /// The length of a payload, if a record can hold it.
    #[inline]
    fn checked(&self, payload_bytes: u64) -> Result<u32, ReserveError> {
        let payload_bytes_max = self.payload_bytes_max;
        match u32::try_from(payload_bytes) {
            Ok(short) if short <= payload_bytes_max => Ok(short),
            Ok(_) | Err(_) => {
                let payload_bytes_max = u64::from(payload_bytes_max);
                Err(ReserveError::TooLarge { payload_bytes, payload_bytes_max })
            }
        }
    }

    /// Claims a record and publishes the pad in front of it, if it crosses into a new segment.
    #[inline]
    fn claim(&self, payload_bytes: u32) -> Result<Claim<'_>, ReserveError> {
        let record_bytes = Geometry::record_bytes(u64::from(payload_bytes));
        let claimed = self.window.claim(record_bytes).map_err(ReserveError::from)?;
        if let Some(pad) = claimed.pad {
            self.publish_pad(pad);
        }
        Ok(claimed.record)
    }

    /// Publishes `claim` as a pad of its length, all zeros.
    #[cold]
    fn publish_pad(&self, claim: Claim<'_>) -> Appended {
        let body = claim.bytes() - HEADER_BYTES;
        claim.zero(HEADER_BYTES, body);
        let checksum = zeros_checksum(self.key.salt(), claim.start(), body);
        let payload_bytes =
            u32::try_from(body).expect("a pad is shorter than a segment, and that 4 GiB at most");
        self.publish(claim, RecordKind::Pad, payload_bytes, checksum)
    }

    /// Zeros up to the alignment, the header, and last its publish word.
    #[inline]
    fn publish(
        &self,
        claim: Claim<'_>,
        kind: RecordKind,
        payload_bytes: u32,
        payload_checksum: u32,
    ) -> Appended {
        let (start, end, bytes) = (claim.start(), claim.end(), claim.bytes());
        let payload_end = HEADER_BYTES + u64::from(payload_bytes);
        if payload_end < bytes {
            claim.zero(payload_end, bytes - payload_end);
        }
        claim.publish(self.words(start, kind, payload_bytes, payload_checksum));
        Appended { start, end }
    }
}

#[inline]
fn assert_appendable(kind: RecordKind) {
    let own = matches!(kind, RecordKind::Pad | RecordKind::SegmentStart);
    assert!(!own, "the log writes records of kind {kind:?} itself");
}

impl From<Refusal> for ReserveError {
    fn from(refusal: Refusal) -> ReserveError {
        match refusal {
            Refusal::Sealed { tail } => ReserveError::Sealed { tail },
            Refusal::Full { tail, limit } => ReserveError::Full { tail, limit },
            Refusal::NotReady { tail, ready } => ReserveError::NotReady { tail, ready },
        }
    }
}
