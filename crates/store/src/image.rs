//! Reading log bytes from the segment files: by `pread`, never through a mapping, so that an error of the device is a value (kinds 7 and 23).

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
}

/// The file that was read last, and its segment's number.
pub(crate) type OpenFile<D> = Option<(u64, <D as Disk>::File)>;

impl<'a, D: Disk> Files<'a, D> {
    pub(crate) fn new(disk: &'a D, geometry: Geometry, open: &'a mut OpenFile<D>) -> Files<'a, D> {
        Files { disk, geometry, open, ahead: None }
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
        let count =
            file.read_at(into, self.geometry.offset_of(lsn)).at(DiskCall::Read, self.disk.path(), &name())?;
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
