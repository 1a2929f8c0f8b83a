//! The drain: the one reader that follows the producers and finds out what is whole.

use alloc::sync::Arc;

use crate::handoff::Handoff;
use crate::record::{HeaderError, Lag, RecordHeader, RecordKind};
use crate::{Chain, Lsn};

/// The single consumer of a [`Handoff`], owned by the pump.
#[derive(Debug)]
pub struct Drain {
    handoff: Arc<Handoff>,
    at: Lsn,
    chain: Chain,
}

/// What one call of [`Drain::poll`] passed: `[from, to)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// The drained LSN before.
    pub from: Lsn,
    /// The drained LSN now: everything below is published and whole in memory, and level `Buffered` is reached there.
    pub to: Lsn,
    /// Records passed, of every kind.
    pub records: usize,
    /// Bytes of payload that the application's records among them hold, with the frames of its batches.
    pub payload_bytes: u64,
    /// Why it stopped.
    pub state: DrainState,
}

/// Why a drain stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainState {
    /// The bound of the call was reached: there may be more.
    More,
    /// Everything reserved is drained.
    Idle,
    /// The record at this LSN is reserved and not yet published. If it stays so past a deadline, the tenure ends.
    Waiting {
        /// The record's LSN.
        lsn: Lsn,
    },
    /// Sealed, and drained to the tail: nothing is in flight and nothing will follow.
    Closed {
        /// The final tail.
        tail: Lsn,
    },
}

/// The memory of the log does not hold what a producer published. Nothing behind can be trusted: end the tenure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrainError {
    /// The header at the drain's position is not whole.
    #[error("a published record is damaged in memory: {error}")]
    Header {
        /// Where, and what is there.
        error: HeaderError,
    },
    /// The record reaches beyond what was reserved.
    #[error("the record at LSN {lsn} ends at LSN {end}, beyond the tail at LSN {tail}")]
    BeyondTail {
        /// The record's LSN.
        lsn: Lsn,
        /// Its end.
        end: Lsn,
        /// The tail.
        tail: Lsn,
    },
}

impl Drain {
    pub(super) fn new(handoff: Arc<Handoff>, at: Lsn, chain: Chain) -> Drain {
        Drain { handoff, at, chain }
    }

    /// The hand-off that this drain belongs to.
    #[must_use]
    pub fn handoff(&self) -> &Arc<Handoff> {
        &self.handoff
    }

    /// The chain at the drained LSN.
    #[must_use]
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// Passes up to `records_max` published records and stops at the first that is not.
    ///
    /// Publishes the segment-start records that crossing producers left to it. Acquires what the producers released: the bytes of
    /// `[from, to)` are visible to this thread, and to any that reads the drained LSN from the hand-off.
    ///
    /// # Errors
    ///
    /// [`DrainError`]: the memory is damaged. The drained LSN stands before the record; calling again gives the same error.
    pub fn poll(&mut self, records_max: usize) -> Result<Drained, DrainError> {
        let from = self.at;
        let (mut records, mut payload_bytes) = (0, 0);
        let result = self.pass(records_max, &mut records, &mut payload_bytes);
        if self.at != from {
            self.handoff.window.pass(self.at);
        }
        Ok(Drained { from, to: self.at, records, payload_bytes, state: result? })
    }

    fn pass(
        &mut self,
        records_max: usize,
        records: &mut usize,
        payload_bytes: &mut u64,
    ) -> Result<DrainState, DrainError> {
        let (tail, sealed) = self.handoff.window.tail();
        loop {
            if self.at == tail {
                return Ok(if sealed { DrainState::Closed { tail } } else { DrainState::Idle });
            }
            if *records == records_max {
                return Ok(DrainState::More);
            }
            if self.handoff.geometry().is_first_record(self.at) {
                self.start_segment();
            } else {
                match self.pass_record(tail)? {
                    Some(bytes) => *payload_bytes += bytes,
                    None => return Ok(DrainState::Waiting { lsn: self.at }),
                }
            }
            *records += 1;
        }
    }

    /// Passes the record at the drain's position, if it is published, and answers the bytes of payload that are the application's.
    #[inline]
    fn pass_record(&mut self, tail: Lsn) -> Result<Option<u64>, DrainError> {
        let Handoff { window, key, .. } = &*self.handoff;
        let Some(words) = window.published(self.at, key.publish_word(self.at)) else { return Ok(None) };
        let geometry = window.geometry();
        let header = RecordHeader::decode_words(words, self.at, geometry.room(self.at), key)
            .map_err(|error| DrainError::Header { error })?;
        let end = geometry.record_end(self.at, header.record_bytes());
        if end > tail {
            return Err(DrainError::BeyondTail { lsn: self.at, end, tail });
        }
        self.chain.extend_words(words);
        self.at = end;
        let own = matches!(header.kind, RecordKind::Data | RecordKind::Batch);
        Ok(Some(if own { u64::from(header.payload_bytes) } else { 0 }))
    }

    /// Publishes the segment-start record at the drain's position: only here is the chain known.
    #[cold]
    fn start_segment(&mut self) {
        let Handoff { window, key, .. } = &*self.handoff;
        let claim = window.segment_start(self.at);
        let payload = self.chain.encode();
        claim.write(crate::HEADER_BYTES, &payload);
        let header = RecordHeader {
            lsn: self.at,
            epoch: key.epoch(),
            kind: RecordKind::SegmentStart,
            lag: Lag::between(window.persisted(), self.at),
            payload_bytes: u32::try_from(payload.len()).expect("16 bytes"),
            payload_checksum: key.salt().payload_checksum(self.at, &payload),
        };
        let words = header.words(key, header.kind.number());
        self.at = Lsn(self.at.0 + claim.bytes());
        claim.publish(words);
        self.chain.extend_words(words);
    }
}
