//! Looking at a log's folder: is it one, on what filesystem, who has it open, which files are there.

use std::collections::BTreeMap;
use std::path::Path;

use windlass_log::{Geometry, Lsn};

use crate::disk::{Access, Disk, DiskFile, FileIdentity, Filesystem, FilesystemClass, Locked};
use crate::error::{At, DiskCall, DiskError};
use crate::names::{self, Name};
use crate::open::OpenError;
use crate::options::UnsafeFilesystem;

/// The store's files in a folder, by what their names say.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) superblock: bool,
    /// Segment files by base LSN, with their lengths.
    pub(crate) segments: BTreeMap<Lsn, u64>,
    /// What has a segment's name and is no plain file, by base LSN.
    pub(crate) no_files: Vec<Lsn>,
    /// Free files by number, with their lengths.
    pub(crate) free: BTreeMap<u32, u64>,
    /// Left by a crash.
    pub(crate) temporaries: Vec<String>,
    /// Not the store's. A mount point's `lost+found` is none of these.
    pub(crate) foreign: Vec<String>,
}

pub(crate) fn list<D: Disk>(disk: &D) -> Result<Listing, DiskError> {
    let mut listing = Listing::default();
    for entry in disk.list().at(DiskCall::List, disk.path(), "")? {
        match Name::parse(&entry.name) {
            Name::Superblock => listing.superblock = true,
            Name::Segment(base) if entry.is_file => drop(listing.segments.insert(base, entry.len_bytes)),
            Name::Segment(base) => listing.no_files.push(base),
            Name::Free(number) => drop(listing.free.insert(number, entry.len_bytes)),
            Name::Temporary => listing.temporaries.push(entry.name),
            Name::Reserve | Name::Owner => {}
            Name::Foreign if entry.name == LOST_AND_FOUND => {}
            Name::Foreign => listing.foreign.push(entry.name),
        }
    }
    Ok(listing)
}

/// Whether a log may be made here by whoever opens or makes one: nothing is there but what the making of one leaves that was cut off before
/// its superblock had its name, and what a mount point has. A log that lost its superblock has more.
pub(crate) fn is_empty<D: Disk>(disk: &D) -> Result<bool, DiskError> {
    let entries = disk.list().at(DiskCall::List, disk.path(), "")?;
    let of_a_start = [names::OWNER, names::SUPERBLOCK_TMP, names::FIRST_TMP, LOST_AND_FOUND];
    Ok(entries.iter().all(|entry| of_a_start.contains(&entry.name.as_str())))
}

/// What the root of a filesystem has.
const LOST_AND_FOUND: &str = "lost+found";

impl Listing {
    /// Refuses what has a segment's name and can't be one: no plain file, of another length, or at a base that is no multiple of the segment size.
    pub(crate) fn check(&self, folder: &Path, geometry: Geometry) -> Result<(), OpenError> {
        if let Some(base) = self.no_files.iter().min() {
            return Err(OpenError::SegmentNoFile {
                file: folder.join(names::segment_at(*base)),
                base: *base,
            });
        }
        let fits = |base: Lsn, len: u64| geometry.offset_of(base) == 0 && len == geometry.segment_bytes();
        let misfit =
            self.segments.iter().map(|(base, len)| (*base, *len)).find(|(base, len)| !fits(*base, *len));
        match misfit {
            None => Ok(()),
            Some((base, len_bytes)) => Err(OpenError::SegmentFile {
                file: folder.join(names::segment_at(base)),
                base,
                len_bytes,
                segment_bytes: geometry.segment_bytes(),
            }),
        }
    }
}

/// The filesystem, if it is one to use.
pub(crate) fn check_filesystem<D: Disk>(
    disk: &D,
    policy: UnsafeFilesystem,
) -> Result<Result<Filesystem, Filesystem>, DiskError> {
    let filesystem = disk.filesystem().at(DiskCall::Stat, disk.path(), "")?;
    let safe = match filesystem.class() {
        FilesystemClass::Local
        | FilesystemClass::Memory
        | FilesystemClass::Layered
        | FilesystemClass::Unknown => true,
        FilesystemClass::CopyOnWrite | FilesystemClass::Network => policy == UnsafeFilesystem::Use,
    };
    Ok(if safe { Ok(filesystem) } else { Err(filesystem) })
}

/// Locks the folder and writes down who has it.
pub(crate) fn lock<D: Disk>(disk: &D) -> Result<Result<D::Lock, Option<u32>>, DiskError> {
    match disk.lock().at(DiskCall::Lock, disk.path(), "")? {
        Locked::Held(lock) => {
            write_owner(disk);
            Ok(Ok(lock))
        }
        Locked::Busy => Ok(Err(read_owner(disk))),
    }
}

/// Information for the next opener alone: the lock decides. So a full or read-only disk is no obstacle.
fn write_owner<D: Disk>(disk: &D) {
    let text = format!("{:>10}\n", disk.process_id());
    let file = disk.open(names::OWNER, Access::ReadWrite).or_else(|_| disk.create(names::OWNER));
    if let Ok(file) = file {
        let _ = file.write_at(text.as_bytes(), 0);
    }
}

/// The process that last locked the folder.
pub(crate) fn read_owner<D: Disk>(disk: &D) -> Option<u32> {
    let mut text = [0; 11];
    let count = disk.open(names::OWNER, Access::Read).ok()?.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..count]).ok()?.trim().parse().ok()
}

/// A fingerprint of the superblock file's identity (FNV-1a, 64 bits): a copy of the folder has another one, also under the same path.
pub(crate) fn place_of(identity: FileIdentity) -> u64 {
    let bytes = identity.inode.to_le_bytes().into_iter().chain(identity.born_ns.to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
