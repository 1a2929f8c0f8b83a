//! The scan: reads an image record by record and says where and why it stops.
//!
//! Bytes are copied out in pieces that stay in the cache, then the copy is checked, never the original. A record is yielded only if
//! everything about it holds: publish word, both checksums, lengths, zeros behind the payload, its epoch the one that the history assigns
//! its segment's header, and, for the first record of a segment, the chain.
//!
//! Memory is flat: one buffer, which grows only to a record whose whole header asked for it, and not at all in a
//! [flat](Scan::flat) scan. Every step advances or stops. DESIGN.md sections 2.3 and 6.

#[cfg(all(test, not(loom)))]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use crate::bytes::{ZEROS_BYTES, index, is_zero, length, u64_at};
use crate::image::{AHEAD_HEAD, Fetched, Image, Shape};
use crate::record::{HEADER, HeaderError, RecordHeader, RecordKind, WORDS};
use crate::salt::{EpochKey, Salt};
use crate::segment::{SEGMENT_HEADER, SegmentHeader, SegmentHeaderError};
use crate::superblock::LSN_MAX;
use crate::{Chain, Epoch, HEADER_BYTES, Lsn, RECORD_ALIGN, SEGMENT_START_BYTES};

/// The longest record that a flat scan keeps whole.
const FLAT_BYTES: u64 = 64 << 10;

/// A record that was found whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'s> {
    /// Its header.
    pub header: RecordHeader,
    /// Its payload; `None` only in a flat scan, for a record longer than the buffer, whose payload was checked all the same.
    pub payload: Option<&'s [u8]>,
    /// Where the next record starts.
    pub end: Lsn,
}

/// What a step of a scan came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'s> {
    /// A whole record.
    Record(Record<'s>),
    /// No further. Another step stops at the same place again, unless the image, the history or the end has changed.
    Stop(Stop),
}

/// Where a scan stopped, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// Everything before is whole; no valid record starts here.
    pub lsn: Lsn,
    /// What is here instead.
    pub reason: StopReason,
}

/// Why a scan stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StopReason {
    /// The end that the scan was given.
    #[error("the end asked for is reached")]
    Reached,
    /// Memory that nobody wrote: the header's place is all zeros.
    #[error("nothing was ever written here")]
    Blank,
    /// The header is not that of a valid record.
    #[error("{0}")]
    Header(HeaderError),
    /// The payload is not what was written: torn or damaged.
    #[error(
        "the payload of {payload_bytes} bytes has checksum {found:#010x}, its header says {expected:#010x}"
    )]
    Payload {
        /// The payload's length.
        payload_bytes: u32,
        /// What the header says.
        expected: u32,
        /// What the payload's bytes give.
        found: u32,
    },
    /// The bytes between the payload's end and the record's are not zeros: torn or damaged.
    #[error("the filler behind the payload is not zero")]
    Filler,
    /// The record reaches beyond the end that the scan was given, which is not a record's end.
    #[error("the record ends at LSN {end}, beyond the end asked for, LSN {until}")]
    BeyondEnd {
        /// The record's end.
        end: Lsn,
        /// The end given.
        until: Lsn,
    },
    /// The record reaches beyond the start of the next epoch: left over from a suffix that was cut.
    #[error("the record ends at LSN {end}, beyond the start of the next epoch at LSN {next}")]
    BeyondEpoch {
        /// The record's end.
        end: Lsn,
        /// Where the next epoch starts.
        next: Lsn,
    },
    /// The history assigns no epoch to this LSN.
    #[error("the epoch history has no epoch for this LSN")]
    NoEpoch,
    /// The segment of this LSN is not there.
    #[error("segment {segment} is missing")]
    SegmentMissing {
        /// Its number.
        segment: u64,
    },
    /// The segment's file is too short.
    #[error("the file of segment {segment} is cut short")]
    SegmentShort {
        /// Its number.
        segment: u64,
    },
    /// The segment's header is blank, damaged or of another version.
    #[error("segment {segment}: {error}")]
    SegmentHeader {
        /// Its number.
        segment: u64,
        /// What is wrong with it.
        error: SegmentHeaderError,
    },
    /// The segment's header is whole and not of this log and place.
    #[error("segment {segment} says that it is the one at LSN {} of {} bytes in log {}", .found.base, .found.segment_bytes, .found.log_id)]
    SegmentForeign {
        /// The number of the segment that should be here.
        segment: u64,
        /// What its header says.
        found: SegmentHeader,
    },
    /// A whole record where none of its kind may be: a segment's first record is its segment-start record, and no other is.
    #[error("a whole record of kind {kind:?}, which may not be here")]
    Misplaced {
        /// Its kind.
        kind: RecordKind,
    },
    /// The segment-start record is whole and says that other records came before.
    #[error("the chain is {:#018x} after {} records, the segment-start record says {:#018x} after {}", .expected.hash, .expected.records, .found.hash, .found.records)]
    ChainBroken {
        /// What the records before give.
        expected: Chain,
        /// What the segment-start record says.
        found: Chain,
    },
}

/// Why a scan failed. Says nothing of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScanError<E> {
    /// The image could not be read: mend what keeps it from being read.
    #[error("reading the log at LSN {lsn}: {error}")]
    Image {
        /// Where.
        lsn: Lsn,
        /// Why.
        error: E,
    },
    /// No memory for the record: scan it flat, or give the process more.
    #[error("no memory for the record of {bytes} bytes at LSN {lsn}")]
    Memory {
        /// The record's LSN.
        lsn: Lsn,
        /// Its length.
        bytes: u64,
    },
}

/// The part of the log that one epoch owns.
#[derive(Clone, Copy, Debug)]
struct Span {
    key: EpochKey,
    start: Lsn,
    next: Option<Lsn>,
}

impl Span {
    fn holds(&self, lsn: Lsn) -> bool {
        lsn >= self.start && self.next.is_none_or(|next| lsn < next)
    }
}

/// Makes `span` the one that holds `lsn`.
#[inline]
fn renew(span: &mut Option<Span>, shape: &Shape, salt: Salt, lsn: Lsn) {
    if !span.is_some_and(|span| span.holds(lsn)) {
        let found = shape.history.span_at(lsn);
        *span = found.map(|(entry, next)| Span { key: salt.key(entry.epoch), start: entry.start, next });
    }
}

/// A scan in progress. See the module.
#[derive(Clone, Debug)]
pub struct Scan {
    shape: Shape,
    salt: Salt,
    at: Lsn,
    until: Lsn,
    chain: Option<Chain>,
    span: Option<Span>,
    entered: Option<u64>,
    /// Up to here the place needs no further look than at its record.
    clear: Lsn,
    /// To be cloned: making one asks what the processor can do.
    hasher: crc32fast::Hasher,
    flat: bool,
    /// Whether the headers of segments are read and must be right.
    headers: bool,
    buffer: Buffer,
}

/// A record that was found whole, with the place of its payload in what the scan [holds](Scan::held): for readers that check many records
/// in one go and lend them out later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where it starts.
    pub lsn: Lsn,
    /// Where the next record starts.
    pub end: Lsn,
    /// The tenure that appended it.
    pub epoch: Epoch,
    /// What it is.
    pub kind: RecordKind,
    /// Its payload, until the scan goes on.
    pub payload: Range<usize>,
}

/// What [`Scan::advance`] found: the payload is that part of the buffer.
struct Found {
    header: RecordHeader,
    payload: Option<Range<usize>>,
    end: Lsn,
}

/// What ends a step early.
enum Halt<E> {
    Stop(StopReason),
    Fail(ScanError<E>),
}

impl<E> From<StopReason> for Halt<E> {
    fn from(reason: StopReason) -> Halt<E> {
        Halt::Stop(reason)
    }
}

/// Fills `into` from the image, or says what is not there.
fn fetch<I: Image>(image: &mut I, lsn: Lsn, segment: u64, into: &mut [u8]) -> Result<(), Halt<I::Error>> {
    match image.read(lsn, into) {
        Ok(Fetched::Whole) => Ok(()),
        Ok(Fetched::Missing) => Err(StopReason::SegmentMissing { segment }.into()),
        Ok(Fetched::Short) => Err(StopReason::SegmentShort { segment }.into()),
        Err(error) => Err(Halt::Fail(ScanError::Image { lsn, error })),
    }
}

/// A copy of `[start, start + held)` of the image, inside one segment.
#[derive(Clone, Debug)]
struct Buffer {
    bytes: Vec<u8>,
    /// Where the byte at `start` is.
    first: usize,
    start: Lsn,
    held: u64,
}

impl Scan {
    /// A scan from `from`, where a record must start, with the chain there if it is known. Where it is not, the next segment-start record or epoch
    /// start gives it.
    ///
    /// # Panics
    ///
    /// If `from` is not normalised.
    #[must_use]
    pub fn new(shape: Shape, from: Lsn, chain: Option<Chain>) -> Scan {
        assert_eq!(shape.geometry.normalize(from), from, "R-1: the start of a scan is not normalised");
        let salt = shape.salt();
        let buffer = Buffer { bytes: Vec::new(), first: 0, start: from, held: 0 };
        let until = Lsn(LSN_MAX);
        let hasher = crc32fast::Hasher::new();
        let clear = Lsn(0);
        Scan {
            shape,
            salt,
            at: from,
            until,
            chain,
            span: None,
            entered: None,
            clear,
            hasher,
            flat: false,
            headers: true,
            buffer,
        }
    }

    /// The same scan, which takes the headers of segments for right: for what lies in a segment whose header is damaged. Each record says itself which log and LSN it is of.
    #[must_use]
    pub fn without_headers(mut self) -> Scan {
        self.headers = false;
        self
    }

    /// The same scan, ending at `until`, a record's end: nothing from there on is looked at.
    #[must_use]
    pub fn until(mut self, until: Lsn) -> Scan {
        self.set_until(until);
        self
    }

    /// The same scan in 64 KiB of memory at most: payloads of longer records are checked and not yielded.
    #[must_use]
    pub fn flat(mut self) -> Scan {
        self.flat = true;
        self
    }

    /// Moves the end; a tailing reader sets it to its watermark. Bytes below it never change.
    pub fn set_until(&mut self, until: Lsn) {
        let until = Lsn(until.0.min(LSN_MAX));
        if until != self.until {
            self.until = until;
            self.clear = Lsn(0);
        }
    }

    /// Adopts a newer history, from the same log.
    pub fn set_history(&mut self, history: crate::EpochHistory) {
        self.shape.history = history;
        self.span = None;
        self.clear = Lsn(0);
    }

    /// Where the scan stands: everything before is whole, or was skipped.
    #[must_use]
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// The chain there, if it is known.
    #[must_use]
    pub fn chain(&self) -> Option<Chain> {
        self.chain
    }

    /// What the scan knows of the log.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Goes on from `lsn`, with the chain unknown.
    ///
    /// # Panics
    ///
    /// If `lsn` is not normalised.
    pub fn seek(&mut self, lsn: Lsn) {
        assert_eq!(self.shape.geometry.normalize(lsn), lsn, "R-1: the place to seek is not normalised");
        self.at = lsn;
        self.chain = None;
        self.clear = Lsn(0);
    }

    /// The next record, or why there is none.
    ///
    /// # Errors
    ///
    /// [`ScanError`]: the image could not be read, or memory was short. The scan stands where it stood.
    #[inline(always)]
    pub fn step<I: Image>(&mut self, image: &mut I) -> Result<Step<'_>, ScanError<I::Error>> {
        let found = self.advance(image);
        self.stepped(found)
    }

    /// As [`step`](Self::step), of an image that is repaired meanwhile: what does not hold in bytes that an earlier step copied out is copied out again first.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    pub fn step_afresh<I: Image>(&mut self, image: &mut I) -> Result<Step<'_>, ScanError<I::Error>> {
        let was_held = self.holds_some();
        let mut found = self.advance(image);
        if was_held && found.is_err() {
            self.forget();
            found = self.advance(image);
        }
        self.stepped(found)
    }

    #[inline(always)]
    fn stepped<E>(&self, found: Result<Found, Halt<E>>) -> Result<Step<'_>, ScanError<E>> {
        match found {
            Ok(Found { header, payload, end }) => {
                let payload = payload.map(|place| &self.buffer.bytes[place]);
                Ok(Step::Record(Record { header, payload, end }))
            }
            Err(Halt::Stop(reason)) => Ok(Step::Stop(Stop { lsn: self.at, reason })),
            Err(Halt::Fail(error)) => Err(error),
        }
    }

    /// As [`step`](Self::step), of a scan that is not flat, with the payload's place instead of the payload.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    ///
    /// # Panics
    ///
    /// If the scan is flat.
    pub fn step_placed<I: Image>(
        &mut self,
        image: &mut I,
    ) -> Result<Result<Placed, Stop>, ScanError<I::Error>> {
        match self.advance(image) {
            Ok(Found { header, payload, end }) => {
                let payload = payload.expect("only a flat scan leaves payloads out");
                let RecordHeader { lsn, epoch, kind, .. } = header;
                Ok(Ok(Placed { lsn, end, epoch, kind, payload }))
            }
            Err(Halt::Stop(reason)) => Ok(Err(Stop { lsn: self.at, reason })),
            Err(Halt::Fail(error)) => Err(error),
        }
    }

    /// Takes up to `count` further records that are copied out already, checked like any other. Ends before whatever needs another look: more
    /// bytes, another segment or epoch, the end, anything that does not hold. [`step`](Self::step) says what that is.
    #[inline]
    pub fn step_held(&mut self, count: usize, mut take: impl FnMut(Placed)) {
        let Some(span) = self.span else { return };
        for _ in 0..count {
            let lsn = self.at;
            if lsn >= self.clear || !self.buffer.holds(lsn, HEADER_BYTES) {
                return;
            }
            let words = self.buffer.words_at(lsn);
            let room = self.shape.geometry.room(lsn);
            let Ok(header) = RecordHeader::decode_words(words, lsn, room, &span.key) else { return };
            let Ok(end) = self.place(&header, span.next) else { return };
            // A segment-start record is compared with the chain first.
            if header.kind == RecordKind::SegmentStart || !self.buffer.holds(lsn, header.record_bytes()) {
                return;
            }
            let Ok(payload) = self.whole(&header) else { return };
            if let Some(chain) = &mut self.chain {
                chain.extend_words(words);
            }
            self.at = end;
            take(Placed { lsn, end, epoch: header.epoch, kind: header.kind, payload });
        }
    }

    /// The payload of the record that was [placed](Placed) there by the last step, or by the steps that were taken of what was
    /// [held](Self::step_held) since.
    ///
    /// # Panics
    ///
    /// If it is no such place.
    #[must_use]
    #[inline]
    pub fn held(&self, place: Range<usize>) -> &[u8] {
        &self.buffer.bytes[place]
    }

    /// What the places are places in.
    #[must_use]
    pub fn held_bytes(&self) -> &[u8] {
        &self.buffer.bytes
    }

    /// Checks the record at the scan's place and moves behind it.
    #[inline(always)]
    fn advance<I: Image>(&mut self, image: &mut I) -> Result<Found, Halt<I::Error>> {
        if self.at >= self.clear {
            self.enter(image)?;
        }
        if !self.buffer.holds(self.at, HEADER_BYTES) {
            self.fill(image, HEADER_BYTES)?;
        }
        let words = self.buffer.words_at(self.at);
        let span = self.span.as_ref().ok_or(StopReason::NoEpoch)?;
        let room = self.shape.geometry.room(self.at);
        let header = match RecordHeader::decode_words(words, self.at, room, &span.key) {
            Ok(header) => header,
            Err(_) if words == [0; WORDS] => return Err(StopReason::Blank.into()),
            Err(error) => return Err(StopReason::Header(error).into()),
        };
        let end = self.place(&header, span.next)?;
        let payload = self.payload(image, &header)?;
        self.link(&header, payload.clone(), words)?;
        self.at = end;
        Ok(Found { header, payload, end })
    }

    /// Makes sure that the scan's place is before the end, and in a segment with the right header; finds its epoch. All of that holds up to
    /// `clear`.
    #[cold]
    fn enter<I: Image>(&mut self, image: &mut I) -> Result<(), Halt<I::Error>> {
        if self.at >= self.until {
            return Err(StopReason::Reached.into());
        }
        renew(&mut self.span, &self.shape, self.salt, self.at);
        if let Some(span) = self.span.filter(|span| span.start == self.at) {
            self.chain = Some(Chain::begin(&span.key, span.start));
        }
        let segment = self.shape.geometry.segment_of(self.at);
        if self.entered != Some(segment) {
            self.enter_segment(image, segment)?;
        }
        let segment_end = self.shape.geometry.base(segment + 1);
        let next = self.span.and_then(|span| span.next).unwrap_or(segment_end);
        self.clear = segment_end.min(next).min(self.until);
        Ok(())
    }

    #[cold]
    fn enter_segment<I: Image>(&mut self, image: &mut I, segment: u64) -> Result<(), Halt<I::Error>> {
        let base = self.shape.geometry.base(segment);
        let mut bytes = [0; SEGMENT_HEADER];
        fetch(image, base, segment, &mut bytes)?;
        if !self.headers {
            self.entered = Some(segment);
            return Ok(());
        }
        let found =
            SegmentHeader::decode(&bytes).map_err(|error| StopReason::SegmentHeader { segment, error })?;
        let right = found.log_id == self.shape.log_id
            && found.base == base
            && found.segment_bytes == self.shape.geometry.segment_bytes();
        if !right {
            return Err(StopReason::SegmentForeign { segment, found }.into());
        }
        self.entered = Some(segment);
        Ok(())
    }

    /// Whether a whole header's record may be where it is, and where it ends.
    #[inline(always)]
    fn place(&self, header: &RecordHeader, next: Option<Lsn>) -> Result<Lsn, StopReason> {
        let geometry = self.shape.geometry;
        let is_start = header.kind == RecordKind::SegmentStart;
        let fits = header.record_bytes() == SEGMENT_START_BYTES || !is_start;
        if geometry.is_first_record(self.at) != is_start || !fits {
            return Err(StopReason::Misplaced { kind: header.kind });
        }
        let end = geometry.record_end(self.at, header.record_bytes());
        if let Some(next) = next.filter(|next| end > *next) {
            return Err(StopReason::BeyondEpoch { end, next });
        }
        if end > self.until {
            return Err(StopReason::BeyondEnd { end, until: self.until });
        }
        Ok(end)
    }

    /// Checks the payload and the filler behind it. The payload's place in the buffer, if it is there whole.
    #[inline(always)]
    fn payload<I: Image>(
        &mut self,
        image: &mut I,
        header: &RecordHeader,
    ) -> Result<Option<Range<usize>>, Halt<I::Error>> {
        let bytes = header.record_bytes();
        if !self.buffer.holds(self.at, bytes) {
            if self.flat && bytes > FLAT_BYTES {
                self.stream(image, header)?;
                return Ok(None);
            }
            self.fill(image, bytes)?;
        }
        Ok(Some(self.whole(header)?))
    }

    /// Checks the payload and the filler behind it, which the buffer holds.
    #[inline(always)]
    fn whole(&self, header: &RecordHeader) -> Result<Range<usize>, StopReason> {
        let record = self.buffer.index_of(self.at);
        let payload = record + HEADER..record + HEADER + index(u64::from(header.payload_bytes));
        let filler = payload.end..record + index(header.record_bytes());
        let mut hasher = self.hasher.clone();
        hasher.update(&self.buffer.bytes[payload.clone()]);
        let found = hasher.finalize() ^ self.salt.payload_salt(self.at);
        if found != header.payload_checksum && !crate::planted!(UncheckedAcknowledgement) {
            return Err(wrong_payload(header, found));
        }
        if self.buffer.bytes[filler].iter().any(|byte| *byte != 0) {
            return Err(StopReason::Filler);
        }
        Ok(payload)
    }

    /// Checks a long payload piece by piece.
    #[cold]
    fn stream<I: Image>(&mut self, image: &mut I, header: &RecordHeader) -> Result<(), Halt<I::Error>> {
        let record = self.at;
        let mut hasher = self.hasher.clone();
        let payload_end = record.0 + HEADER_BYTES + u64::from(header.payload_bytes);
        let record_end = record.0 + header.record_bytes();
        let mut at = record.0 + HEADER_BYTES;
        let mut filler = 0;
        while at < record_end {
            let bytes = (record_end - at).min(FLAT_BYTES);
            self.fill_at(image, Lsn(at), bytes)?;
            let split = index(payload_end.saturating_sub(at).min(bytes));
            let (payload, rest) = self.buffer.bytes[..index(bytes)].split_at(split);
            hasher.update(payload);
            filler |= rest.iter().fold(0, |all, byte| all | byte);
            at += bytes;
        }
        let found = hasher.finalize() ^ self.salt.payload_salt(record);
        if found != header.payload_checksum && !crate::planted!(UncheckedAcknowledgement) {
            return Err(wrong_payload(header, found).into());
        }
        if filler != 0 {
            return Err(StopReason::Filler.into());
        }
        Ok(())
    }

    /// Takes the record into the chain; a segment-start record is compared with it first.
    #[inline(always)]
    fn link(
        &mut self,
        header: &RecordHeader,
        payload: Option<Range<usize>>,
        words: [u64; WORDS],
    ) -> Result<(), StopReason> {
        if header.kind == RecordKind::SegmentStart {
            let payload = payload.and_then(|place| self.buffer.bytes.get(place));
            let misplaced = StopReason::Misplaced { kind: header.kind };
            let found = payload.and_then(Chain::decode).ok_or(misplaced)?;
            match self.chain {
                Some(expected) if expected != found => {
                    return Err(StopReason::ChainBroken { expected, found });
                }
                Some(_) => {}
                None => self.chain = Some(found),
            }
        }
        if let Some(chain) = &mut self.chain {
            chain.extend_words(words);
        }
        Ok(())
    }

    /// Copies out at least `need` bytes from the scan's place on, and more if they are in the segment and before the end.
    fn fill<I: Image>(&mut self, image: &mut I, need: u64) -> Result<(), Halt<I::Error>> {
        if self.take_ahead(image) && self.buffer.holds(self.at, need) {
            return Ok(());
        }
        let room = self.shape.geometry.room(self.at);
        // Bytes at or beyond the end may still change: they are not kept.
        let below = room.min(self.until.0 - self.at.0);
        self.fill_at(image, self.at, need.max(I::PIECE_BYTES.min(below)).min(room))
    }

    /// Goes on in the next piece, if it was copied out ahead: the part of a record that the last one ends with is put in front of it.
    fn take_ahead<I: Image>(&mut self, image: &mut I) -> bool {
        let Buffer { bytes, start, held, .. } = &self.buffer;
        let end = Lsn(start.0 + held);
        let left = if self.buffer.holds(self.at, 0) { index(end.0 - self.at.0) } else { 0 };
        if left > AHEAD_HEAD {
            return false;
        }
        let Some((mut piece, held)) = image.take_ahead(if left == 0 { self.at } else { end }) else {
            return false;
        };
        if left > 0 {
            let from = self.buffer.index_of(self.at);
            piece[AHEAD_HEAD - left..AHEAD_HEAD].copy_from_slice(&bytes[from..from + left]);
        }
        image.give_back(core::mem::replace(&mut self.buffer.bytes, piece));
        self.buffer.first = AHEAD_HEAD - left;
        self.buffer.start = self.at;
        self.buffer.held = held + length(left);
        true
    }

    /// Where what the scan takes next from the image begins: behind what it has copied out already, or where it stands.
    #[must_use]
    pub fn held_end(&self) -> Lsn {
        let end = Lsn(self.buffer.start.0 + self.buffer.held);
        if self.buffer.holds(self.at, 0) && end > self.at { end } else { self.at }
    }

    /// Whether something from where it stands on was copied out already.
    #[must_use]
    pub fn holds_some(&self) -> bool {
        self.held_end() > self.at
    }

    /// Forgets what was copied out.
    pub fn forget(&mut self) {
        self.buffer.held = 0;
    }

    fn fill_at<I: Image>(&mut self, image: &mut I, lsn: Lsn, bytes: u64) -> Result<(), Halt<I::Error>> {
        let segment = self.shape.geometry.segment_of(lsn);
        (self.buffer.held, self.buffer.first) = (0, 0);
        if !self.buffer.reserve(bytes) {
            return Err(Halt::Fail(ScanError::Memory { lsn, bytes }));
        }
        fetch(image, lsn, segment, &mut self.buffer.bytes[..index(bytes)])?;
        self.buffer.start = lsn;
        self.buffer.held = bytes;
        Ok(())
    }

    /// The next whole record at or behind the scan's place, which need not be a record's start; the scan then stands before it. For
    /// salvage, and for telling damage from a tail. Segments that are missing or have no valid header are passed over, up to `segment_end`
    /// (not included). Nothing is looked for at or behind the scan's [end](Scan::set_until), and no more than a buffer read.
    ///
    /// # Errors
    ///
    /// [`ScanError`].
    pub fn resync<I: Image>(
        &mut self,
        image: &mut I,
        segment_end: u64,
    ) -> Result<Option<Lsn>, ScanError<I::Error>> {
        let geometry = self.shape.geometry;
        while geometry.segment_of(self.at) < segment_end && self.at < self.until {
            let next_segment = geometry.first_record(geometry.segment_of(self.at) + 1);
            let candidate = match self.enter(image).and_then(|()| self.candidate(image)) {
                Ok(candidate) => candidate,
                Err(Halt::Stop(_)) => None,
                Err(Halt::Fail(error)) => return Err(error),
            };
            let Some(lsn) = candidate else {
                self.seek(next_segment);
                continue;
            };
            let mut probe = Scan::new(self.shape.clone(), lsn, None).until(self.until).flat();
            probe.headers = self.headers;
            if matches!(probe.step(image)?, Step::Record(_)) {
                self.seek(lsn);
                return Ok(Some(lsn));
            }
            self.seek(geometry.normalize(Lsn(lsn.0 + RECORD_ALIGN)));
        }
        Ok(None)
    }

    /// The next place in this segment, at or behind the scan's, whose publish word is that of a record there.
    fn candidate<I: Image>(&mut self, image: &mut I) -> Result<Option<Lsn>, Halt<I::Error>> {
        let base = self.shape.geometry.base(self.shape.geometry.segment_of(self.at));
        let segment_end = Lsn(base.0 + self.shape.geometry.segment_bytes());
        let mut at = self.at;
        while at < self.until && segment_end.0 - at.0 >= HEADER_BYTES {
            let bytes = (segment_end.0 - at.0).min(I::PIECE_BYTES);
            self.fill_at(image, at, bytes)?;
            let Scan { buffer, span, shape, salt, .. } = self;
            for block in buffer.bytes[..index(bytes)].chunks(ZEROS_BYTES) {
                // Most of what is behind a log's end nobody ever wrote.
                if is_zero(block) {
                    at = Lsn(at.0 + length(block.len()));
                    continue;
                }
                for word in block.chunks_exact(8) {
                    let found = u64_at(word, 0).unwrap_or(0);
                    if found != 0 {
                        renew(span, shape, *salt, at);
                        if span.is_some_and(|span| span.key.publish_word(at) == found) {
                            return Ok((segment_end.0 - at.0 >= HEADER_BYTES).then_some(at));
                        }
                    }
                    at = Lsn(at.0 + RECORD_ALIGN);
                }
            }
        }
        Ok(None)
    }
}

#[cold]
fn wrong_payload(header: &RecordHeader, found: u32) -> StopReason {
    StopReason::Payload { payload_bytes: header.payload_bytes, expected: header.payload_checksum, found }
}

impl Buffer {
    #[inline]
    fn holds(&self, lsn: Lsn, bytes: u64) -> bool {
        lsn >= self.start && lsn.0 - self.start.0 + bytes <= self.held
    }

    /// The header at `lsn` as words, once the buffer [holds](Self::holds) it.
    #[inline]
    fn words_at(&self, lsn: Lsn) -> [u64; WORDS] {
        let header = &self.bytes[self.index_of(lsn)..][..HEADER];
        let word = |at| u64_at(header, at).unwrap_or(0);
        [word(0), word(8), word(16), word(24)]
    }

    /// Where `lsn` is in the buffer, once it [holds](Self::holds) it.
    #[inline]
    fn index_of(&self, lsn: Lsn) -> usize {
        self.first + index(lsn.0 - self.start.0)
    }

    /// Makes room for `bytes`; `false` if there is no memory.
    fn reserve(&mut self, bytes: u64) -> bool {
        let now = length(self.bytes.len());
        if now >= bytes {
            return true;
        }
        if self.bytes.try_reserve_exact(index(bytes - now)).is_err() {
            return false;
        }
        self.bytes.resize(index(bytes), 0);
        true
    }
}

/// Where in the log an LSN given by somebody lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Located {
    /// A record starts there.
    Start,
    /// Inside the record `[start, end)`.
    Inside {
        /// The record's start.
        start: Lsn,
        /// Its end.
        end: Lsn,
    },
    /// The log can't be read up to there.
    Unreadable(Stop),
}

/// Finds out where `lsn` lies, by going through its segment from the start, or from `known` where that lies in between: a record's start, such as the trim point, below which neither
/// records nor the history need be there any more. A place in a header page counts as inside something. `until` is a record's end at or behind `lsn`.
///
/// # Errors
///
/// [`ScanError`].
pub fn locate<I: Image>(
    image: &mut I,
    shape: &Shape,
    known: Lsn,
    lsn: Lsn,
    until: Lsn,
) -> Result<Located, ScanError<I::Error>> {
    let geometry = shape.geometry;
    let first = geometry.first_record(geometry.segment_of(lsn));
    if lsn < first {
        return Ok(Located::Inside { start: geometry.base(geometry.segment_of(lsn)), end: first });
    }
    let is_between = (first..=lsn).contains(&known) && geometry.normalize(known) == known;
    let from = if is_between { known } else { first };
    let mut scan = Scan::new(shape.clone(), from, None).until(until).flat();
    loop {
        if scan.at() == lsn {
            return Ok(Located::Start);
        }
        match scan.step(image)? {
            Step::Record(record) if record.end > lsn => {
                return Ok(Located::Inside { start: record.header.lsn, end: record.end });
            }
            Step::Record(_) => {}
            Step::Stop(stop) => return Ok(Located::Unreadable(stop)),
        }
    }
}
