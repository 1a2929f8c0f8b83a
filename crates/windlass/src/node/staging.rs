//! The folder for images of live segments, on a memory filesystem (DESIGN.md section 9.2).

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slog::{Logger, info, warn};
use windlass_fabric::Capabilities;
use windlass_log::Superblock;
use windlass_store::disk::{Disk, Errno, FilesystemClass, RealDisk};
use windlass_store::{Opened, Store, UpdateError};

use super::{NodeError, NodeOptions, folder_error};
use crate::driver::DriverError;

/// The member's own folder for images, if the device needs them for this store's disk.
pub(super) fn open(
    options: &NodeOptions,
    capabilities: &Capabilities,
    store: &Store<RealDisk>,
    opened: &mut Opened,
    logger: &Logger,
) -> Result<Option<RealDisk>, NodeError> {
    let in_memory = store.disk().filesystem().is_ok_and(|found| found.class() == FilesystemClass::Memory);
    if !capabilities.staged_image || in_memory {
        return Ok(None);
    }
    let path = options.staging_folder.join(name(&store.superblock()));
    if note_lost(store, opened, &path).map_err(DriverError::Begin)? {
        warn!(logger, "the images of the process before are gone, without a clean end: this member's memory counts as lost"; "folder" => %path.display());
    }
    let disk = make(&path)?;
    let path = disk.path();
    info!(logger, "images of segments are written into, which are copied to the log's files"; "folder" => %path.display());
    Ok(Some(disk))
}

/// Where the folder of the process before is gone, and its end was not a clean one, what was placed in it is gone, too, whichever boot this is: the
/// memory filesystem may have been a container's, or another one was named. That counts as memory lost, durably and before the folder is made anew. Whether
/// it is so.
fn note_lost(store: &Store<RealDisk>, opened: &mut Opened, path: &Path) -> Result<bool, UpdateError> {
    // A member that has not caught up, as one that is new, has nothing to lose.
    let is_lost = !opened.clean && store.superblock().caught_up && !path.try_exists().unwrap_or(false);
    if is_lost {
        opened.memory_lost = true;
        store.update(|superblock| superblock.caught_up = false)?;
    }
    Ok(is_lost)
}

/// Makes the folder, or takes the one that is there.
fn make(path: &Path) -> Result<RealDisk, NodeError> {
    let disk = RealDisk::create(path).map_err(|errno| folder_error(path, errno))?;
    let refused = |what| Err(NodeError::Staging { folder: path.to_path_buf(), what });
    // Anybody may make folders in /dev/shm, and what an image holds becomes part of the log.
    let found = std::fs::symlink_metadata(path)
        .map_err(|error| folder_error(path, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return refused("it is another user's, or a link: remove it");
    }
    if found.mode() & 0o022 != 0 {
        return refused("others may write there: remove it, or take that right away");
    }
    Ok(disk)
}

/// A name that no other member, and no other life of this one, has: the next opening of the same folder finds it again.
fn name(superblock: &Superblock) -> PathBuf {
    let mut name = String::from("windlass-");
    for byte in superblock.log_id.0 {
        // Writing to a String can't fail.
        let _ = write!(name, "{byte:02x}");
    }
    let _ = write!(name, "-m{}-{:016x}", superblock.member.0, superblock.incarnation);
    PathBuf::from(name)
}

/// Removes the images: all that was in them is in the log's files, and durable.
pub(super) fn remove(disk: &RealDisk) {
    // What stays costs memory, and the next opening looks at it.
    for entry in disk.list().unwrap_or_default() {
        let _ = disk.remove(&entry.name);
    }
    let _ = std::fs::remove_dir(disk.path());
}

/// Where images go unless told otherwise.
pub(super) fn default_folder() -> PathBuf {
    Path::new("/dev/shm").to_path_buf()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use windlass_log::{LogId, MemberId};
    use windlass_store::{Founding, Options, Surroundings};

    use super::*;

    #[test]
    fn images_that_are_gone_without_a_clean_end_are_memory_lost_also_in_the_same_boot_r19() {
        let folder = tempfile::tempdir().unwrap();
        let (log, images) = (folder.path().join("log"), folder.path().join("images"));
        let around = Surroundings { boot_id: [1; 16], incarnation: 5 };
        let options =
            Options { unsafe_filesystem: windlass_store::UnsafeFilesystem::Use, ..Options::default() };
        let founding = Founding {
            log_id: LogId([9; 16]),
            member: MemberId(1),
            incarnation: 5,
            segment_bytes: 64 << 10,
            epoch: None,
            configuration: vec![0],
        };
        let (store, _) =
            Store::create(RealDisk::create(&log).unwrap(), &founding, &around, &options).unwrap();
        store.begin().unwrap();
        store.update(|superblock| superblock.caught_up = true).unwrap();
        drop(store);
        let open = || Store::open(RealDisk::open(&log).unwrap(), &around, &options).unwrap();

        std::fs::create_dir(&images).unwrap();
        let (store, mut opened) = open();
        assert!(!opened.clean);
        assert!(!note_lost(&store, &mut opened, &images).unwrap(), "they are there");
        assert!(!opened.memory_lost && store.superblock().caught_up);
        drop(store);

        std::fs::remove_dir(&images).unwrap();
        let (store, mut opened) = open();
        assert!(note_lost(&store, &mut opened, &images).unwrap());
        assert!(opened.memory_lost);
        drop(store);
        // The next opening finds a folder again, and what was written down.
        std::fs::create_dir(&images).unwrap();
        let (store, _) = open();
        assert!(!store.superblock().caught_up);
        store.begin().unwrap();
        store.update(|superblock| superblock.caught_up = true).unwrap();
        store.close(store.superblock().trimmed).unwrap();
        drop(store);

        // A clean end takes the images along.
        std::fs::remove_dir(&images).unwrap();
        let (store, mut opened) = open();
        assert!(opened.clean && !note_lost(&store, &mut opened, &images).unwrap());
        assert!(store.superblock().caught_up);
    }

    #[test]
    fn images_are_taken_from_nobody_elses_folder() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = memory.path().join("images");
        assert!(make(&folder).is_ok());
        assert!(make(&folder).is_ok(), "it is taken again");
        let why = |path: &Path| match make(path) {
            Err(NodeError::Staging { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let link = memory.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(why(&link).contains("a link"));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(why(&folder).contains("others may write"));
    }
}
