//! Making a log in an empty folder: all of it or nothing (kind 34).
//!
//! ```text
//!  lock → superblock.tmp, first segment and reserve under temporary names, all flushed → flush folder
//!       → rename superblock → flush folder           from here on it is a log
//!       → rename segment, reserve → flush folder → open it
//! ```
//!
//! A crash before the superblock has its name leaves files under temporary names, which the next `create` removes; after it, a log whose first segment
//! opening makes if its name was lost. A failure removes what this call made, and nothing else. The folder itself is never renamed or removed (kind 35).

use windlass_log::{
    EpochHistory, FEATURES_KNOWN, Geometry, GeometryError, HistoryError, Lsn, SegmentHeader, Superblock,
    SuperblockEncodeError,
};

use crate::disk::{Access, Disk, DiskFile, Errno, Filesystem};
use crate::error::{At, DiskCall, DiskError};
use crate::folder;
use crate::names;
use crate::open::{self, OpenError, Opened};
use crate::options::{Founding, Options, Surroundings};
use crate::prepare::{make_reserve, write_header};
use crate::store::Store;
use crate::superblock;

/// Why no log was made. The folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is a log already: open it.
    #[error("{} already holds a log: open it instead", folder.display())]
    Exists {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// The folder holds something else: use an empty one.
    #[error("{} is not empty (it holds {name:?}): a log is only made in an empty folder", folder.display())]
    NotEmpty {
        /// The folder.
        folder: std::path::PathBuf,
        /// One of the names in it.
        name: String,
    },
    /// Another process is at work in the folder.
    #[error("{} is in use by {}", folder.display(), open::holder_text(*holder))]
    InUse {
        /// The folder.
        folder: std::path::PathBuf,
        /// The process that says that it has it.
        holder: Option<u32>,
    },
    /// The store's promises don't hold on this filesystem: use another, or allow it by name.
    #[error("{} is on {filesystem}, where preallocated blocks, locks or shared mappings can't be relied on: use a local filesystem such as ext4 or xfs, or allow unsafe filesystems", folder.display())]
    Filesystem {
        /// The folder.
        folder: std::path::PathBuf,
        /// The filesystem.
        filesystem: Filesystem,
    },
    /// Use a power of two from 64 KiB to 4 GiB.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Use a smaller configuration.
    #[error(transparent)]
    Encode(#[from] SuperblockEncodeError),
    /// Use an epoch that is one.
    #[error(transparent)]
    Epoch(#[from] HistoryError),
    /// A system call failed; what had been made was removed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The log was made and can't be opened.
    #[error("the log was made, but: {0}")]
    Open(#[from] OpenError),
}

impl<D: Disk> Store<D> {
    /// Makes a new log in an empty folder and opens it. Durable when it returns; after a failure or a crash the folder holds either all of the log
    /// or nothing that a next attempt minds.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn create(
        disk: D,
        founding: &Founding,
        around: &Surroundings,
        options: &Options,
    ) -> Result<(Store<D>, Opened), CreateError> {
        let folder = || disk.path().to_path_buf();
        let geometry = Geometry::new(founding.segment_bytes)?;
        if let Err(filesystem) = folder::check_filesystem(&disk, options.unsafe_filesystem)? {
            return Err(CreateError::Filesystem { folder: folder(), filesystem });
        }
        // Before the lock, so that a folder that holds something stays untouched.
        check_empty(&disk)?;
        let lock = match folder::lock(&disk)? {
            Ok(lock) => lock,
            Err(holder) => return Err(CreateError::InUse { folder: folder(), holder }),
        };
        // And again under it: somebody else may have made a log here meanwhile.
        check_empty(&disk)?;
        let superblock = first_superblock(founding, around, geometry)?;
        let mut made = Made::default();
        if let Err(error) = make(&disk, superblock, geometry, &mut made) {
            made.undo(&disk);
            return Err(error);
        }
        Ok(open::open_locked(disk, lock, around, options)?)
    }
}

/// Refuses a folder that holds a log or anything else but what the making of one leaves that was cut off.
fn check_empty<D: Disk>(disk: &D) -> Result<(), CreateError> {
    let folder = || disk.path().to_path_buf();
    let listing = folder::list(disk)?;
    if listing.superblock {
        return Err(CreateError::Exists { folder: folder() });
    }
    let segment =
        listing.segments.keys().chain(&listing.no_files).next().map(|base| names::segment_at(*base));
    let free = listing.free.keys().next().map(|number| names::free(*number));
    match listing.foreign.into_iter().next().or(segment).or(free) {
        Some(name) => Err(CreateError::NotEmpty { folder: folder(), name }),
        None => Ok(()),
    }
}

fn first_superblock(
    founding: &Founding,
    around: &Surroundings,
    geometry: Geometry,
) -> Result<Superblock, CreateError> {
    let first = geometry.first_record(0);
    let mut history = EpochHistory::new();
    if let Some(epoch) = founding.epoch {
        history.extend(epoch, first)?;
    }
    Ok(Superblock {
        generation: 1,
        log_id: founding.log_id,
        member: founding.member,
        incarnation: founding.incarnation,
        place: 0,
        boot_id: around.boot_id,
        promised: founding.epoch.unwrap_or_default(),
        history,
        trimmed: first,
        persisted: first,
        clean: Some(first),
        acknowledged: first,
        caught_up: founding.epoch.is_some(),
        segment_bytes: founding.segment_bytes,
        features: FEATURES_KNOWN,
        configuration: founding.configuration.clone(),
    })
}

fn make<D: Disk>(
    disk: &D,
    mut superblock: Superblock,
    geometry: Geometry,
    made: &mut Made,
) -> Result<(), CreateError> {
    let folder = disk.path();
    for name in folder::list(disk)?.temporaries {
        disk.remove(&name).at(DiskCall::Remove, folder, &name)?;
    }
    let name = names::temporary(geometry, 0);
    let segment = disk.create(&name).at(DiskCall::Create, folder, &name)?;
    made.segment = Some(MadeFile::new(&name));
    segment.allocate(geometry.segment_bytes()).at(DiskCall::Allocate, folder, &name)?;
    let header = SegmentHeader {
        log_id: superblock.log_id,
        base: Lsn(0),
        segment_bytes: geometry.segment_bytes(),
        features: FEATURES_KNOWN,
    };
    write_header::<D>(&segment, header).at(DiskCall::Write, folder, &name)?;
    segment.sync().at(DiskCall::Sync, folder, &name)?;

    let file = superblock::create(disk, || made.superblock = Some(MadeFile::new(names::SUPERBLOCK_TMP)))?;
    superblock.place = folder::place_of(file.identity().at(DiskCall::Stat, folder, names::SUPERBLOCK_TMP)?);
    superblock::write_both(disk, &file, &superblock.encode()?)?;
    disk.sync_folder().at(DiskCall::SyncFolder, folder, "")?;

    made.superblock.as_mut().expect("it was just made").rename(disk, names::SUPERBLOCK)?;
    disk.sync_folder().at(DiskCall::SyncFolder, folder, "")?;
    made.segment.as_mut().expect("it was made first").rename(disk, &names::segment(geometry, 0))?;
    let had_reserve = disk.open(names::RESERVE, Access::Read).is_ok();
    made.reserve = make_reserve(disk) && !had_reserve;
    disk.sync_folder().at(DiskCall::SyncFolder, folder, "")?;
    Ok(())
}

/// What one call of [`Store::create`] has made, so that it takes away nothing else.
#[derive(Default)]
struct Made {
    segment: Option<MadeFile>,
    superblock: Option<MadeFile>,
    reserve: bool,
}

/// A file that was made, and the name that it was to get where its renaming failed.
struct MadeFile {
    name: String,
    perhaps: Option<String>,
}

impl MadeFile {
    fn new(name: &str) -> MadeFile {
        MadeFile { name: name.to_owned(), perhaps: None }
    }

    fn rename<D: Disk>(&mut self, disk: &D, to: &str) -> Result<(), DiskError> {
        let renamed = disk.rename(&self.name, to);
        match renamed {
            Ok(()) => to.clone_into(&mut self.name),
            // Another file has that name, for certain.
            Err(Errno::EXIST) => {}
            Err(_) => self.perhaps = Some(to.to_owned()),
        }
        renamed.at(DiskCall::Rename, disk.path(), to)
    }

    fn undo<D: Disk>(&self, disk: &D) {
        let removed = disk.remove(&self.name);
        // It has its new name in spite of the error.
        if let (Err(Errno::NOENT), Some(perhaps)) = (removed, &self.perhaps) {
            let _ = disk.remove(perhaps);
        }
    }
}

impl Made {
    /// Leaves the folder as it was, as far as the disk lets us: the superblock's name goes last, as long as it is there the folder is a whole log.
    fn undo<D: Disk>(&self, disk: &D) {
        if let Some(segment) = &self.segment {
            segment.undo(disk);
        }
        if self.reserve {
            let _ = disk.remove(names::RESERVE);
        }
        // What locking the folder left; nobody else has locked it since.
        let _ = disk.remove(names::OWNER);
        if let Some(superblock) = &self.superblock {
            superblock.undo(disk);
        }
        let _ = disk.sync_folder();
    }
}
