//! Reading log bytes from the segment files: by `pread`, never through a mapping, so that an error of the device is a value (kinds 7 and 23).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use windlass_log::{AHEAD_HEAD, Fetched, Geometry, HEADER_BYTES, Image, Lsn, RECORD_ALIGN, Stop, StopReason};

use crate::ahead::{Ahead, Taken, make_room};
use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::folder::Listing;
use crate::names;

/// The bytes of a log, for a scan. Holds at most one open file.
pub(crate) struct Files<'a, D: Disk> {
    disk: &'a D,
    geometry: Geometry,
    open: &'a mut OpenFile<D>,
    ahead: Option<&'a mut Ahead>,
    /// What the medium does not give, and what a file that is cut short lacks, is taken for zeros, and noted here.
    forgiving: Option<&'a mut Forgiving>,
}

pub(crate) const PAGE_BYTES: u64 = 4096;

/// What a medium does not give of a log, in whole pages, in order and without overlap. Bounded: of more than [`Unreadable::LISTED_MAX`] stretches only that there are more is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unreadable {
    ranges: Vec<Range<Lsn>>,
    has_more: bool,
}

impl Unreadable {
    /// As many stretches are listed.
    pub const LISTED_MAX: usize = 10_000;

    /// The stretches, in order.
    #[must_use]
    pub fn ranges(&self) -> &[Range<Lsn>] {
        &self.ranges
    }

    /// Whether there are more than are listed.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    pub(crate) fn note(&mut self, range: Range<Lsn>) {
        // Those that it touches are `[first, end)`.
        let first = self.ranges.partition_point(|known| known.end < range.start);
        let end = first + self.ranges[first..].partition_point(|known| known.start <= range.end);
        if first < end {
            let joined = range.start.min(self.ranges[first].start)..range.end.max(self.ranges[end - 1].end);
            self.ranges[first] = joined;
            drop(self.ranges.drain(first + 1..end));
        } else if self.ranges.len() < Unreadable::LISTED_MAX {
            self.ranges.insert(first, range);
        } else {
            self.has_more = true;
        }
    }
}

/// Reads page by page; those that the medium does not give are zeros. Fewer bytes only at the end of the file.
pub(crate) fn read_pages<D: Disk>(
    file: &D::File,
    offset: u64,
    into: &mut [u8],
    mut lost: impl FnMut(Range<u64>),
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done as u64;
        let left = PAGE_BYTES - at % PAGE_BYTES;
        let end = into.len().min(done + usize::try_from(left).expect("a page fits memory"));
        let piece = &mut into[done..end];
        let count = match file.read_at(piece, at) {
            Ok(count) => count,
            Err(Errno::IO) => {
                piece.fill(0);
                lost(at / PAGE_BYTES * PAGE_BYTES..(at / PAGE_BYTES + 1) * PAGE_BYTES);
                piece.len()
            }
            Err(errno) => return Err(errno),
        };
        done += count;
        if done < end {
            break;
        }
    }
    Ok(done)
}

/// The file that was read last, and its segment's number.
pub(crate) type OpenFile<D> = Option<(u64, <D as Disk>::File)>;

impl<'a, D: Disk> Files<'a, D> {
    pub(crate) fn new(disk: &'a D, geometry: Geometry, open: &'a mut OpenFile<D>) -> Files<'a, D> {
        Files { disk, geometry, open, ahead: None, forgiving: None }
    }

    /// The same, for salvage and repair: pages that can't be read count as zeros, and are noted; so does what a file that is cut short lacks, which is not noted; and
    /// what has a segment's name and is no plain file, or may not be read, counts as missing.
    pub(crate) fn forgiving(self, forgiving: Option<&'a mut Forgiving>) -> Files<'a, D> {
        Files { forgiving, ..self }
    }

    /// The same, with pieces that were read ahead.
    pub(crate) fn with_ahead(self, ahead: Option<&'a mut Ahead>) -> Files<'a, D> {
        Files { ahead, ..self }
    }

    /// Reads `held` bytes behind [`AHEAD_HEAD`] free ones; whether they are all there.
    pub(crate) fn read_behind_head(&mut self, start: Lsn, held: u64, bytes: &mut [u8]) -> bool {
        let end = AHEAD_HEAD + usize::try_from(held).expect("a piece fits memory");
        matches!(self.read(start, &mut bytes[AHEAD_HEAD..end]), Ok(Fetched::Whole))
    }
}

/// What opening or reading something answers that is no file for us to read.
fn is_no_segment(errno: Errno) -> bool {
    matches!(errno, Errno::ISDIR | Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NXIO | Errno::NODEV)
}

/// What a forgiving reader knows of the files before it reads, and notes while it does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forgiving {
    pub(crate) unreadable: Unreadable,
    /// Segments that count as missing: what has their names is no plain file, or another's.
    pub(crate) absent: BTreeSet<u64>,
    /// The lengths of files that are shorter than a segment.
    short: BTreeMap<u64, u64>,
}

impl Forgiving {
    pub(crate) fn new(listing: &Listing, geometry: Geometry) -> Forgiving {
        let is_place = |base: Lsn| geometry.offset_of(base) == 0;
        let absent = listing.no_files.iter().filter(|base| is_place(**base));
        let short = listing
            .segments
            .iter()
            .filter(|(base, len)| is_place(**base) && **len < geometry.segment_bytes());
        Forgiving {
            unreadable: Unreadable::default(),
            absent: absent.map(|base| geometry.segment_of(*base)).collect(),
            short: short.map(|(base, len)| (geometry.segment_of(*base), *len)).collect(),
        }
    }

    /// Where a scan has stopped that took zeros for what is not there: whether the record there lacks some of that, and then up to where that goes.
    pub(crate) fn lacking(&self, geometry: Geometry, stop: &Stop) -> Option<Lacking> {
        let bytes = match stop.reason {
            StopReason::Payload { payload_bytes, .. } => {
                HEADER_BYTES + u64::from(payload_bytes).next_multiple_of(RECORD_ALIGN)
            }
            StopReason::Reached
            | StopReason::Blank
            | StopReason::Header(_)
            | StopReason::Filler
            | StopReason::BeyondEnd { .. }
            | StopReason::BeyondEpoch { .. }
            | StopReason::NoEpoch
            | StopReason::SegmentMissing { .. }
            | StopReason::SegmentShort { .. }
            | StopReason::SegmentHeader { .. }
            | StopReason::SegmentForeign { .. }
            | StopReason::Misplaced { .. }
            | StopReason::ChainBroken { .. } => HEADER_BYTES,
        };
        let (number, end) = (geometry.segment_of(stop.lsn), Lsn(stop.lsn.0 + bytes));
        let unreadable = self.unreadable.ranges();
        let at = unreadable.partition_point(|range| range.end <= stop.lsn);
        if let Some(range) = unreadable.get(at).filter(|range| range.start < end) {
            return Some(Lacking::Unreadable { end: range.end });
        }
        let len = self.short.get(&number)?;
        let is_cut_off = end.0 > geometry.base(number).0 + len;
        is_cut_off.then(|| Lacking::CutOff { segment: number, end: geometry.base(number + 1) })
    }
}

/// Why bytes are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lacking {
    /// The medium does not give them.
    Unreadable { end: Lsn },
    /// The file was cut short.
    CutOff { segment: u64, end: Lsn },
}

impl<D: Disk> Image for Files<'_, D> {
    type Error = DiskError;

    const PIECE_BYTES: u64 = 64 << 10;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, DiskError> {
        let number = self.geometry.segment_of(lsn);
        let name = || names::segment(self.geometry, number);
        if self.forgiving.as_ref().is_some_and(|forgiving| forgiving.absent.contains(&number)) {
            return Ok(Fetched::Missing);
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            *self.open = match self.disk.open(&name(), Access::Read) {
                Ok(file) => Some((number, file)),
                Err(Errno::NOENT) => return Ok(Fetched::Missing),
                Err(errno) if self.forgiving.is_some() && is_no_segment(errno) => {
                    return Ok(Fetched::Missing);
                }
                Err(errno) => return Err(errno).at(DiskCall::Open, self.disk.path(), &name()),
            };
        }
        let Some((_, file)) = &*self.open else { return Ok(Fetched::Missing) };
        let offset = self.geometry.offset_of(lsn);
        let read = file.read_at(into, offset);
        let Some(forgiving) = &mut self.forgiving else {
            let count = read.at(DiskCall::Read, self.disk.path(), &name())?;
            return Ok(if count == into.len() { Fetched::Whole } else { Fetched::Short });
        };
        let count = match read {
            Err(Errno::IO) => read_pages::<D>(file, offset, into, |page| {
                let base = self.geometry.base(number).0;
                forgiving.unreadable.note(Lsn(base + page.start)..Lsn(base + page.end));
            }),
            Err(errno) if is_no_segment(errno) => return Ok(Fetched::Missing),
            read => read,
        };
        let count = count.at(DiskCall::Read, self.disk.path(), &name())?;
        into[count..].fill(0);
        Ok(Fetched::Whole)
    }

    fn take_ahead(&mut self, start: Lsn) -> Option<(Vec<u8>, u64)> {
        match self.ahead.as_mut()?.take(self.geometry, start)? {
            Taken::Read { bytes, held } => Some((bytes, held)),
            Taken::Unread { mut bytes, held } => {
                let whole = make_room(&mut bytes, held) && self.read_behind_head(start, held, &mut bytes);
                whole.then_some((bytes, held))
            }
        }
    }

    fn give_back(&mut self, bytes: Vec<u8>) {
        if let Some(ahead) = &mut self.ahead {
            ahead.give_back(bytes);
        }
    }
}
