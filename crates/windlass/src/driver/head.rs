//! The head of a partly filled page: what a device that moves whole pages sends again, over bytes that the peer has flushed.
//!
//! ```text
//!  page  |  record  |  record | re ······ |
//!        '------- head -------'-- range --'   the write goes out from the page's start
//! ```
//!
//! Invariant: no head goes out that differs from what went out before in its session, or, at the session's start, whose records do not hold, or that this log
//! has not all of ([`super::first_page`]).
//! What is compared is at most a page for each batch; records are looked at only where there is nothing to compare with, or where it differs.

use std::ops::Range;

use windlass_fabric::{Fabric, Transfer};
use windlass_log::{Geometry, Image, Lsn, Memory, SEGMENT_HEADER_BYTES, Scan, ScanError, Shape, Step, Stop};
use windlass_store::disk::Disk;

use super::local::Local;
use super::memory::{SegmentError, Use};

pub(super) const PAGE_BYTES_MAX: usize = 4096;
const _: () = assert!(SEGMENT_HEADER_BYTES == PAGE_BYTES_MAX as u64);
/// So far before the page a record is looked for at first.
const BACK_BYTES: u64 = 64 << 10;
/// Where none is found, so many times as far.
const BACK_TIMES: u64 = 8;

/// A page's head as it was when it was sent, or went over what the peer has from a place that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Where what was sent ended.
    end: Lsn,
    checksum: u32,
}

/// The bytes of a page, where the devices move whole ones that a batch can be made of.
pub(super) fn page_bytes(transfer: Transfer) -> Option<u64> {
    match transfer {
        Transfer::Any => None,
        // Longer ones are refused when a batch is posted.
        Transfer::WholePages { page_bytes } => {
            Some(u64::from(page_bytes)).filter(|page| *page <= SEGMENT_HEADER_BYTES)
        }
    }
}

/// Where the page of `lsn` begins: `lsn` itself, if it has no head.
fn page_of(geometry: Geometry, page: u64, lsn: Lsn) -> Lsn {
    let base = geometry.base(geometry.segment_of(lsn)).0;
    Lsn(base + (lsn.0 - base) / page * page)
}

/// Where the last page of what ends at `end` ends.
pub(super) fn page_end(geometry: Geometry, page: u64, end: Lsn) -> Lsn {
    let start = page_of(geometry, page, end);
    if start == end { end } else { Lsn(start.0 + page) }
}

/// The page that a range begins in, if a part of its head lies below where this log begins: that part need not be this log's, and nobody looks at it.
pub(super) fn page_before(geometry: Geometry, page: u64, start: Lsn, begins: Lsn) -> Option<Range<Lsn>> {
    let first = page_of(geometry, page, start);
    (first < start && first < begins).then_some(first..Lsn(first.0 + page))
}

/// What a session sends next, and what it sent last.
pub(super) struct Next {
    pub(super) page: u64,
    pub(super) range: Range<Lsn>,
    pub(super) last: Option<Head>,
    /// The page whose head is sent as the peer has it: nothing here is looked at of that.
    pub(super) peers: Option<Range<Lsn>>,
}

/// How the head of what is sent next stands.
pub(super) enum Looked {
    /// It is what it was: this is what the next one has to be.
    Same(Option<Head>),
    /// There is nothing to compare it with, or it differs.
    Unknown(Option<Head>),
}

impl Next {
    /// Compares the head with what it was when it was sent last.
    pub(super) fn compare<F: Fabric, D: Disk>(
        &self,
        fabric: &F,
        local: &mut Local<F, D>,
    ) -> Result<Looked, SegmentError> {
        let geometry = local.geometry();
        let Range { start, end } = self.range;
        let (before, behind) = (page_of(geometry, self.page, start), page_of(geometry, self.page, end));
        let mut hasher = crc32fast::Hasher::new();
        let mut is_same = true;
        if before < start && !self.is_peers(before) {
            let segment = local.segment(fabric, geometry.segment_of(start), Use::Send)?;
            add(&mut hasher, &segment.memory, geometry, before..start);
            let head = Head { end: start, checksum: hasher.clone().finalize() };
            is_same = self.last == Some(head);
        }
        let mut next = None;
        if behind < end && !self.is_peers(behind) {
            let from = if before == behind {
                start
            } else {
                hasher = crc32fast::Hasher::new();
                behind
            };
            let segment = local.segment(fabric, geometry.segment_of(end), Use::Send)?;
            add(&mut hasher, &segment.memory, geometry, from..end);
            next = Some(Head { end, checksum: hasher.finalize() });
        }
        Ok(if is_same { Looked::Same(next) } else { Looked::Unknown(next) })
    }

    fn is_peers(&self, page: Lsn) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.start == page)
    }

    /// Looks at the records that the head consists of. Where it does not hold, if anywhere: `trimmed` and what lies below counts for nothing.
    pub(super) fn damage<I: Image>(
        &self,
        image: &mut I,
        shape: &Shape,
        trimmed: Lsn,
    ) -> Result<Option<Lsn>, ScanError<I::Error>> {
        let geometry = shape.geometry;
        let start = self.range.start;
        let number = geometry.segment_of(start);
        let first = geometry.first_record(number).max(geometry.normalize(trimmed));
        let page = page_of(geometry, self.page, start);
        let mut back = BACK_BYTES;
        let mut scan = loop {
            let from = Lsn(page.0.saturating_sub(back)).max(first);
            let scan = Scan::new(shape.clone(), from, None).flat();
            if from == first {
                break scan;
            }
            let mut scan = scan.until(start);
            if scan.resync(image, number + 1)?.is_some_and(|found| found <= page) {
                scan.set_until(Lsn(u64::MAX));
                break scan;
            }
            // The record that the page begins in is longer than that, or does not hold.
            back = back.saturating_mul(BACK_TIMES);
        };
        while scan.at() < start {
            match scan.step(image)? {
                Step::Record(_) => {}
                Step::Stop(Stop { lsn, .. }) => return Ok(Some(lsn)),
            }
        }
        Ok(None)
    }
}

/// Adds a stretch of a page.
fn add(hasher: &mut crc32fast::Hasher, memory: &Memory, geometry: Geometry, stretch: Range<Lsn>) {
    let mut bytes = [0; PAGE_BYTES_MAX];
    let count = usize::try_from(stretch.end.0 - stretch.start.0).unwrap_or(usize::MAX);
    let bytes = &mut bytes[..count];
    memory.copy_out(geometry.offset_of(stretch.start), bytes);
    hasher.update(bytes);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_log::{
        Chain, DrainState, Epoch, EpochHistory, Handoff, LogId, MemberId, MemoryImage, RecordKind, Salt,
        SegmentHeader, Tenure,
    };

    use super::*;

    const SEGMENT_BYTES: u64 = 1 << 20;
    const PAGE: u64 = 4096;

    /// A segment with records of these payloads, and where each one lies.
    fn log(payloads: &[usize]) -> (MemoryImage, Shape, Vec<Range<Lsn>>) {
        let (geometry, log_id) = (Geometry::new(SEGMENT_BYTES).unwrap(), LogId([7; 16]));
        let (epoch, tail) = (Epoch::new(1, MemberId(0)), geometry.first_record(0));
        let mut history = EpochHistory::new();
        history.extend(epoch, tail).unwrap();
        let memory = Memory::heap(SEGMENT_BYTES);
        let header = SegmentHeader { log_id, base: Lsn(0), segment_bytes: SEGMENT_BYTES, features: 0 };
        memory.copy_in(0, &header.encode());
        let chain = Chain::begin(&Salt::new(log_id).key(epoch), tail);
        let tenure = Tenure { geometry, log_id, epoch, tail, chain, persisted: tail, slots: 4 };
        let (handoff, mut drain): (Arc<Handoff>, _) = Handoff::new(tenure);
        handoff.install(0, memory.clone()).unwrap();
        handoff.set_limit(Lsn(u64::MAX));
        let mut records = Vec::new();
        for payload in payloads {
            let appended = handoff.append(RecordKind::Data, &vec![0xa5; *payload]).unwrap();
            records.push(appended.start..appended.end);
            while drain.poll(1000).unwrap().state == DrainState::More {}
        }
        let image = MemoryImage::new(geometry, 0, vec![Some(memory)]);
        (image, Shape { geometry, log_id, history }, records)
    }

    fn rot(image: &MemoryImage, offset: u64) {
        let mut byte = [0];
        let memory = image.segment(0).unwrap();
        memory.copy_out(offset, &mut byte);
        memory.copy_in(offset, &[byte[0] ^ 1]);
    }

    fn damage(image: &mut MemoryImage, shape: &Shape, start: Lsn, trimmed: Lsn) -> Option<Lsn> {
        let next = Next { page: PAGE, range: start..start, last: None, peers: None };
        next.damage(image, shape, trimmed).unwrap()
    }

    #[test]
    fn pages_begin_and_end_inside_their_segment() {
        let geometry = Geometry::new(64 << 10).unwrap();
        let base = 64 << 10;
        for (lsn, start, end) in [
            (base + 4096, base + 4096, base + 4096),
            (base + 4104, base + 4096, base + 8192),
            (base + 8184, base + 4096, base + 8192),
            (2 * base - 8, 2 * base - 4096, 2 * base),
        ] {
            assert_eq!(page_of(geometry, PAGE, Lsn(lsn)), Lsn(start));
            assert_eq!(page_end(geometry, PAGE, Lsn(lsn)), Lsn(end));
        }
        assert_eq!(page_bytes(Transfer::Any), None);
        assert_eq!(page_bytes(Transfer::WholePages { page_bytes: 4096 }), Some(4096));
        assert_eq!(page_bytes(Transfer::WholePages { page_bytes: 64 << 10 }), None);
    }

    #[test]
    fn a_page_that_the_log_begins_in_has_a_head_that_is_not_the_logs() {
        let geometry = Geometry::new(64 << 10).unwrap();
        let base = 64 << 10;
        let page = |start, begins| page_before(geometry, PAGE, Lsn(base + start), Lsn(base + begins));
        let second = Some(Lsn(base + 8192)..Lsn(base + 12_288));
        assert_eq!(page(8200, 8200), second, "the first batch behind a checkpoint");
        assert_eq!(page(12_280, 8200), second, "the log has a part of the head");
        assert_eq!(page(8200, 8192), None, "and all of it");
        assert_eq!(page(8192, 8192), None, "there is no head");
        assert_eq!(page(12_296, 8200), None);
        assert_eq!(page(4096, 0), None, "a segment's first record");
    }

    /// Also where the page begins inside a record that is longer than what is looked back at first, and where the log begins in it.
    #[test]
    fn a_head_holds_as_long_as_each_record_that_has_a_part_in_it() {
        for payloads in [&[100, 200, 300][..], &[700; 900], &[100, 300_000, 40, 500], &[600_000, 40]] {
            let (mut image, shape, records) = log(payloads);
            let end = records.last().unwrap().end;
            let page = page_of(shape.geometry, PAGE, end);
            assert!(page < end, "a page with a head");
            assert_eq!(damage(&mut image, &shape, end, Lsn(0)), None);
            for record in records.iter().filter(|record| record.end > page) {
                // Its header, or its payload, in the page or before.
                for offset in [record.start.0 + 9, record.end.0 - 8] {
                    rot(&image, offset);
                    assert_eq!(damage(&mut image, &shape, end, Lsn(0)), Some(record.start), "{offset}");
                    // What is trimmed counts for nothing.
                    assert_eq!(damage(&mut image, &shape, end, record.end), None);
                    rot(&image, offset);
                }
            }
        }
    }
}
