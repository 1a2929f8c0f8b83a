//! The folder for images of live segments, on a memory filesystem (DESIGN.md section 9.2).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use slog::{Logger, info};
use windlass_fabric::Capabilities;
use windlass_log::Superblock;
use windlass_store::disk::{Disk, FilesystemClass, RealDisk};

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
    let path = options.staging_folder.join(name(superblock));
    let disk = RealDisk::create(&path).map_err(|errno| folder_error(&path, errno))?;
    info!(logger, "images of segments are written into, which are copied to the log's files"; "folder" => %path.display());
    Ok(Some(disk))
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
