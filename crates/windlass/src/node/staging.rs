//! The folder for images of live segments, on a memory filesystem (DESIGN.md section 9.2).

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slog::{Logger, info};
use windlass_fabric::Capabilities;
use windlass_log::Superblock;
use windlass_store::disk::{Disk, Errno, FilesystemClass, RealDisk};

use super::{NodeError, NodeOptions, folder_error};

/// The member's own folder for images, if the device needs them for this store's disk.
pub(super) fn open(
    options: &NodeOptions,
    capabilities: &Capabilities,
    disk: &RealDisk,
    superblock: &Superblock,
    logger: &Logger,
) -> Result<Option<RealDisk>, NodeError> {
    let in_memory = disk.filesystem().is_ok_and(|found| found.class() == FilesystemClass::Memory);
    if !capabilities.staged_image || in_memory {
        return Ok(None);
    }
    let disk = make(&options.staging_folder.join(name(superblock)))?;
    let path = disk.path();
    info!(logger, "images of segments are written into, which are copied to the log's files"; "folder" => %path.display());
    Ok(Some(disk))
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

    use super::*;

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
