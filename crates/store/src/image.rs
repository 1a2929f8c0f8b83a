//! Reading log bytes from the segment files: by `pread`, never through a mapping, so that an error of the device is a value (kinds 7 and 23).

use windlass_log::{Fetched, Geometry, Image, Lsn};

use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::names;

/// The bytes of a log, for a scan. Holds at most one open file.
pub(crate) struct Files<'a, D: Disk> {
    disk: &'a D,
    geometry: Geometry,
    open: &'a mut OpenFile<D>,
}

/// The file that was read last, and its segment's number.
pub(crate) type OpenFile<D> = Option<(u64, <D as Disk>::File)>;

impl<'a, D: Disk> Files<'a, D> {
    pub(crate) fn new(disk: &'a D, geometry: Geometry, open: &'a mut OpenFile<D>) -> Files<'a, D> {
        Files { disk, geometry, open }
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
}
