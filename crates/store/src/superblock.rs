//! The superblock file: two copies, one behind the other, each at a fixed place; behind them the [live mark](crate::live).
//!
//! Invariants: at any moment at least one copy on the medium is whole, because a copy is flushed before the other one is touched, and
//! opening mends a damaged or older copy before anything else is written; nothing is answered before both are. A file that can't be read
//! or understood is refused, never made anew (kind 11).

use std::path::Path;

use windlass_log::{LogId, NoSuperblock, SUPERBLOCK_BYTES_MAX, Superblock, SuperblockError, newest};

use crate::disk::{Access, Disk, DiskFile, Errno};
use crate::error::{At, DiskCall, DiskError};
use crate::image::read_pages;
use crate::names;

/// From one copy's first byte to the other's.
pub(crate) const COPY_BYTES: u64 = 64 << 10;
const _: () = assert!(SUPERBLOCK_BYTES_MAX <= COPY_BYTES);

/// The two copies as they were found.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    copies: [Result<Superblock, SuperblockError>; 2],
    /// Whether the medium did not give all of it, of a [forgiving](read_forgiving) reading.
    unreadable: [bool; 2],
}

impl Copies {
    /// The copy that counts.
    pub(crate) fn newest(&self) -> Result<Superblock, NoSuperblock> {
        newest(self.copies[0].clone(), self.copies[1].clone())
    }

    /// The newest copy that is of this log.
    pub(crate) fn of_log(&self, log_id: LogId) -> Option<Superblock> {
        let whole = self.copies.iter().filter_map(|copy| copy.as_ref().ok());
        whole.filter(|copy| copy.log_id == log_id).max_by_key(|copy| copy.generation).cloned()
    }

    /// How many of the two are whole. One may be older than the other: a crash between the two writes leaves that.
    pub(crate) fn whole(&self) -> u32 {
        self.copies.iter().map(|copy| u32::from(copy.is_ok())).sum()
    }

    /// The place of a copy that is damaged or older than `newest`, if there is one.
    pub(crate) fn stale(&self, newest: &Superblock) -> Option<usize> {
        self.copies.iter().position(|copy| copy.as_ref().ok() != Some(newest))
    }

    /// The places of copies that a repair writes again: damaged ones, older ones, and those that the medium does not give as a whole.
    pub(crate) fn to_mend(&self, newest: &Superblock) -> Vec<usize> {
        let is_bad =
            |place: &usize| self.copies[*place].as_ref().ok() != Some(newest) || self.unreadable[*place];
        // One that is whole is touched last: until then it is all there is.
        let mut places: Vec<usize> = [0, 1].into_iter().filter(is_bad).collect();
        places.sort_by_key(|place| self.copies[*place].as_ref().ok() == Some(newest));
        places
    }
}

/// Reads both copies.
pub(crate) fn read<D: Disk>(disk: &D, file: &D::File) -> Result<Copies, DiskError> {
    read_by(disk, |bytes, offset| Ok((file.read_at(bytes, offset)?, false)))
}

/// Reads both copies, for repair and salvage: what the medium does not give counts as zeros.
pub(crate) fn read_forgiving<D: Disk>(disk: &D, file: &D::File) -> Result<Copies, DiskError> {
    read_by(disk, |bytes, offset| match file.read_at(bytes, offset) {
        Err(Errno::IO) => {
            let mut is_lost = false;
            let count = read_pages::<D>(file, offset, bytes, |_| is_lost = true)?;
            Ok((count, is_lost))
        }
        read => Ok((read?, false)),
    })
}

fn read_by<D: Disk>(
    disk: &D,
    read: impl Fn(&mut [u8], u64) -> Result<(usize, bool), Errno>,
) -> Result<Copies, DiskError> {
    let one = |place: usize| -> Result<(Result<Superblock, SuperblockError>, bool), DiskError> {
        let mut bytes = vec![0; usize::try_from(COPY_BYTES).expect("a superblock fits memory")];
        let read = read(&mut bytes, place as u64 * COPY_BYTES);
        let (count, is_lost) = read.at(DiskCall::Read, disk.path(), names::SUPERBLOCK)?;
        Ok((Superblock::decode(&bytes[..count]), is_lost))
    };
    let ((first, first_is_lost), (second, second_is_lost)) = (one(0)?, one(1)?);
    Ok(Copies { copies: [first, second], unreadable: [first_is_lost, second_is_lost] })
}

/// Writes one copy and flushes it.
fn write_copy<D: Disk>(folder: &Path, file: &D::File, place: usize, bytes: &[u8]) -> Result<(), DiskError> {
    file.write_at(bytes, place as u64 * COPY_BYTES).at(DiskCall::Write, folder, names::SUPERBLOCK)?;
    file.sync().at(DiskCall::Sync, folder, names::SUPERBLOCK)
}

/// Writes and flushes both copies, one after the other. Durable when it returns. Both must be whole before ([`mend`]). An error where the file was removed meanwhile: what is
/// written to it then goes with its last opener.
pub(crate) fn write_both<D: Disk>(disk: &D, file: &D::File, bytes: &[u8]) -> Result<(), DiskError> {
    write_copy::<D>(disk.path(), file, 0, bytes)?;
    if windlass_log::planted!(R5) {
        return Ok(());
    }
    write_copy::<D>(disk.path(), file, 1, bytes)?;
    named(disk, file)
}

/// An error where the superblock's file was removed from its folder: the log then runs on files that go with it.
pub(crate) fn named<D: Disk>(disk: &D, file: &D::File) -> Result<(), DiskError> {
    let named = file.has_name().and_then(|has_name| if has_name { Ok(()) } else { Err(Errno::NOENT) });
    named.at(DiskCall::Name, disk.path(), names::SUPERBLOCK)
}

/// Writes and flushes the copy at `place` alone: mends a damaged or older one.
pub(crate) fn mend<D: Disk>(disk: &D, file: &D::File, place: usize, bytes: &[u8]) -> Result<(), DiskError> {
    write_copy::<D>(disk.path(), file, place, bytes)
}

/// As [`mend`], with zeros behind, so that whole pages are written: what the medium does not give of them is not asked for.
pub(crate) fn mend_whole<D: Disk>(
    disk: &D,
    file: &D::File,
    place: usize,
    bytes: &[u8],
) -> Result<(), DiskError> {
    let mut copy = vec![0; usize::try_from(COPY_BYTES).expect("a superblock fits memory")];
    copy[..bytes.len()].copy_from_slice(bytes);
    write_copy::<D>(disk.path(), file, place, &copy)
}

/// Makes an empty superblock file under a temporary name; `made` is told once the file is there.
pub(crate) fn create<D: Disk>(disk: &D, made: impl FnOnce()) -> Result<D::File, DiskError> {
    let file = disk.create(names::SUPERBLOCK_TMP).at(DiskCall::Create, disk.path(), names::SUPERBLOCK_TMP)?;
    made();
    file.allocate(crate::live::FILE_BYTES).at(DiskCall::Allocate, disk.path(), names::SUPERBLOCK_TMP)?;
    Ok(file)
}

/// Opens the superblock file.
pub(crate) fn open<D: Disk>(disk: &D, access: Access) -> Result<D::File, DiskError> {
    disk.open(names::SUPERBLOCK, access).at(DiskCall::Open, disk.path(), names::SUPERBLOCK)
}
