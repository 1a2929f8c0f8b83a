//! A record that is reserved and not yet published.

use crate::bytes::{index, length};
use crate::handoff::{Appended, Handoff, assert_appendable};
use crate::memory::Claim;
use crate::record::RecordKind;
use crate::{HEADER_BYTES, Lsn};

/// The shortest piece that is checksummed as it is written: shorter ones don't reach the fast path of the checksum.
const PIECE_BYTES_MIN: usize = 128;

/// A record's place in the log, to be filled in any order and published. Dropped, it becomes a pad of its length.
///
/// Everything behind it waits: the drain stops here until the record is published. A reservation that is leaked
/// (`core::mem::forget`) ends the tenure.
#[derive(Debug)]
pub struct Reservation<'h> {
    handoff: &'h Handoff,
    /// `None` only once published.
    claim: Option<Claim<'h>>,
    start: Lsn,
    payload_bytes: u32,
    /// The payload's first `checked` bytes are in `hasher`.
    hasher: crc32fast::Hasher,
    checked: u64,
}

impl<'h> Reservation<'h> {
    pub(super) fn new(handoff: &'h Handoff, claim: Claim<'h>, payload_bytes: u32) -> Reservation<'h> {
        let start = claim.start();
        let hasher = handoff.hasher.clone();
        Reservation { handoff, claim: Some(claim), start, payload_bytes, hasher, checked: 0 }
    }

    /// The record's LSN.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The start of the record behind it: what to commit.
    #[must_use]
    pub fn end(&self) -> Lsn {
        let geometry = self.handoff.geometry();
        geometry.record_end(self.start, crate::Geometry::record_bytes(self.payload_bytes()))
    }

    /// The length reserved for the payload.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        u64::from(self.payload_bytes)
    }

    /// Copies `source` to byte `offset` of the payload. Pieces may come in any order and may overlap; in order and from 128
    /// bytes up is fastest. A byte that is never written is whatever the memory held.
    ///
    /// # Panics
    ///
    /// If it does not fit the payload.
    pub fn write(&mut self, offset: u64, source: &[u8]) {
        let bytes = length(source.len());
        let inside = offset <= self.payload_bytes() && bytes <= self.payload_bytes() - offset;
        assert!(inside, "{bytes} bytes at offset {offset} of a payload of {}", self.payload_bytes);
        let claim = self.claim.as_ref().expect("not yet published");
        claim.write(HEADER_BYTES + offset, source);
        if offset < self.checked {
            // What was taken in is no longer what is there.
            self.hasher = self.handoff.hasher.clone();
            self.checked = 0;
        }
        if offset == self.checked && source.len() >= PIECE_BYTES_MIN {
            self.hasher.update(source);
            self.checked += bytes;
        }
    }

    /// Publishes the record: from now on readers see it, and the drain goes on.
    ///
    /// # Panics
    ///
    /// If `kind` is one that only the log writes itself: pad, segment-start.
    pub fn publish(mut self, kind: RecordKind) -> Appended {
        assert_appendable(kind);
        let checksum = self.checksum();
        let claim = self.claim.take().expect("not yet published");
        self.handoff.publish(claim, kind, self.payload_bytes, checksum)
    }

    /// The payload's checksum. What was not taken in on the way is read back, a piece at a time.
    fn checksum(&self) -> u32 {
        let claim = self.claim.as_ref().expect("not yet published");
        let mut hasher = self.hasher.clone();
        let mut at = self.checked;
        let mut piece = [0; 2048];
        while at < self.payload_bytes() {
            let now = (self.payload_bytes() - at).min(length(piece.len()));
            let piece = &mut piece[..index(now)];
            claim.read(HEADER_BYTES + at, piece);
            hasher.update(piece);
            at += now;
        }
        hasher.finalize() ^ self.handoff.key.salt().payload_salt(self.start)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.handoff.publish_pad(claim);
        }
    }
}
