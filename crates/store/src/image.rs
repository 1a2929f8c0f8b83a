//! Reading log bytes from the segment files: by `pread`, never through a mapping, so that an error of the device is a value (kinds 7 and 23).

use std::ops::Range;

use windlass_log::{AHEAD_HEAD, Fetched, Geometry, Image, Lsn};

use crate::ahead::{Ahead, Taken, make_room};
use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::names;

/// The bytes of a log, for a scan. Holds at most one open file.
pub(crate) struct Files<'a, D: Disk> {
    disk: &'a D,
    geometry: Geometry,
    open: &'a mut OpenFile<D>,
    ahead: Option<&'a mut Ahead>,
    /// What the medium does not give is taken for zeros, and noted here.
    unreadable: Option<&'a mut Vec<Range<Lsn>>>,
}

/// Reads page by page; those that the medium does not give are zeros.
fn read_pages<D: Disk>(
    file: &D::File,
    offset: u64,
    into: &mut [u8],
    mut lost: impl FnMut(Range<u64>),
) -> Result<usize, Errno> {
    const PAGE_BYTES: u64 = 4096;
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
        Files { disk, geometry, open, ahead: None, unreadable: None }
    }

    /// The same, for salvage: pages that can't be read count as zeros, and are noted.
    pub(crate) fn forgiving(self, unreadable: Option<&'a mut Vec<Range<Lsn>>>) -> Files<'a, D> {
        Files { unreadable, ..self }
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

impl<D: Disk> Image for Files<'_, D> {
    type Error = DiskError;

    const PIECE_BYTES: u64 = 64 << 10;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, DiskError> {
        let number = self.geometry.segment_of(lsn);
        let name = || names::segment(self.geometry, number);
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            *self.open = match self.disk.open(&name(), Access::Read) {
                Ok(file) => Some((number, file)),
                Err(Errno::NOENT) => return Ok(Fetched::Missing),
                Err(errno) => return Err(errno).at(DiskCall::Open, self.disk.path(), &name()),
            };
        }
        let Some((_, file)) = &*self.open else { return Ok(Fetched::Missing) };
        let offset = self.geometry.offset_of(lsn);
        let read = file.read_at(into, offset);
        let count = match (read, &mut self.unreadable) {
            (Err(Errno::IO), Some(unreadable)) => read_pages::<D>(file, offset, into, |page| {
                let base = self.geometry.base(number).0;
                let range = Lsn(base + page.start)..Lsn(base + page.end);
                match unreadable
                    .iter_mut()
                    .find(|known| known.start <= range.start && range.start <= known.end)
                {
                    Some(known) => known.end = known.end.max(range.end),
                    None => unreadable.push(range),
                }
            }),
            (read, _) => read,
        };
        let count = count.at(DiskCall::Read, self.disk.path(), &name())?;
        Ok(if count == into.len() { Fetched::Whole } else { Fetched::Short })
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
