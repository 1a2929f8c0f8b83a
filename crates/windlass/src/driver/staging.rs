//! Pinned images of live segments, where the device can't write into mapped files of a disk (DESIGN.md section 9.2).
//!
//! ```text
//!  primary ── writes ──▶ image (tmpfs, pinned) ── scan, copy of what is valid ──▶ segment file (mapped) ── flush
//! ```
//!
//! An image is a file on a memory filesystem, named by its segment. It survives the process, as the segment file's page cache does: what
//! was placed is found in it by the next opening, so `placed` keeps its promise. It is gone with the machine's memory, as that is.
//!
//! Invariants:
//! 1. Bytes at or above the valid tail arrive in the image alone; bytes below it are in the segment file.
//! 2. An image's old bytes need no clearing: they are not valid at another LSN (R-3), nor under another history (R-4).

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_fabric::{Backing, Fabric};
use windlass_log::Memory;
use windlass_store::disk::{self, Disk, DiskFile, DiskMap, Errno};
use windlass_store::{DiskCall, DiskError};

use super::memory::{Mapped, SegmentError, bindable};

/// A registered image.
pub(crate) struct Image<F: Fabric> {
    pub(crate) memory: Memory,
    pub(crate) region: F::Region,
    name: String,
}

/// The folder of images.
pub(crate) struct Staging<F: Fabric, D: Disk> {
    disk: D,
    segment_bytes: u64,
    /// Segments whose image the process before has left.
    left: BTreeSet<u64>,
    spare: Vec<Image<F>>,
    keep: usize,
    /// Numbers the names of spares.
    next: u64,
}

fn image_name(segment: u64) -> String {
    format!("image-{segment:016x}")
}

fn image_of(name: &str) -> Option<u64> {
    let segment = u64::from_str_radix(name.strip_prefix("image-")?, 16).ok()?;
    // Nothing else that reads as this number: no sign, no other length.
    (image_name(segment) == name).then_some(segment)
}

impl<F: Fabric, D: Disk> Staging<F, D> {
    /// Looks at what the process before has left, and makes `keep` images ahead: making one takes too long for the pump.
    pub(crate) fn open(
        fabric: &F,
        disk: D,
        segment_bytes: u64,
        keep: usize,
    ) -> Result<Staging<F, D>, SegmentError> {
        let mut staging =
            Staging { disk, segment_bytes, left: BTreeSet::new(), spare: Vec::new(), keep, next: 0 };
        let entries = staging.disk.list().map_err(|errno| staging.error(DiskCall::List, "", errno))?;
        for entry in entries {
            match image_of(&entry.name) {
                // Shorter: it was still being made, and nothing was ever placed in it.
                Some(segment) if entry.len_bytes == segment_bytes => {
                    staging.left.insert(segment);
                }
                Some(_) | None => staging.remove(&entry.name)?,
            }
        }
        while staging.spare.len() < keep {
            let name = staging.spare_name();
            let image = staging.make(fabric, name)?;
            staging.spare.push(image);
        }
        Ok(staging)
    }

    /// The segments whose image the process before has left.
    pub(crate) fn left(&self) -> impl Iterator<Item = u64> + '_ {
        self.left.iter().copied()
    }

    /// Whether the process before has left an image of this segment that was not taken yet.
    pub(crate) fn has_left(&self, segment: u64) -> bool {
        self.left.contains(&segment)
    }

    /// An image of this segment: the one that was left, a spare one, or a new one.
    pub(crate) fn obtain(&mut self, fabric: &F, segment: u64) -> Result<Image<F>, SegmentError> {
        let name = image_name(segment);
        if self.left.contains(&segment) {
            let file = self
                .disk
                .open(&name, disk::Access::ReadWrite)
                .map_err(|errno| self.error(DiskCall::Open, &name, errno))?;
            let image = self.register(fabric, &file, name)?;
            self.left.remove(&segment);
            return Ok(image);
        }
        let Some(mut image) = self.spare.pop() else { return self.make(fabric, name) };
        self.rename(&mut image, name)?;
        Ok(image)
    }

    /// Takes back an image whose segment is persisted here.
    pub(crate) fn release(&mut self, mut image: Image<F>) -> Result<(), SegmentError> {
        if self.spare.len() < self.keep {
            let name = self.spare_name();
            self.rename(&mut image, name)?;
            self.spare.push(image);
            return Ok(());
        }
        let name = image.name.clone();
        drop(image);
        self.remove(&name)
    }

    /// Forgets what the process before has left: it is all in the segment files, and flushed.
    pub(crate) fn forget_left(&mut self, below: u64) -> Result<(), SegmentError> {
        while let Some(segment) = self.left.first().copied().filter(|segment| *segment < below) {
            self.left.remove(&segment);
            self.remove(&image_name(segment))?;
        }
        Ok(())
    }

    /// The folder, whose files are not needed any more once the log is closed cleanly.
    pub(crate) fn into_disk(self) -> D {
        self.disk
    }

    fn make(&mut self, fabric: &F, name: String) -> Result<Image<F>, SegmentError> {
        let file = self.disk.create(&name).map_err(|errno| self.error(DiskCall::Create, &name, errno))?;
        file.allocate(self.segment_bytes).map_err(|errno| self.error(DiskCall::Allocate, &name, errno))?;
        self.register(fabric, &file, name)
    }

    fn register(&self, fabric: &F, file: &D::File, name: String) -> Result<Image<F>, SegmentError> {
        let map = file.map(self.segment_bytes).map_err(|errno| self.error(DiskCall::Map, &name, errno))?;
        let memory = map.memory().clone();
        let target = Mapped::whole(memory.clone(), Backing::Anonymous);
        let region = fabric
            .register(Arc::new(target), bindable(fabric))
            .map_err(|cause| SegmentError::Image { image: name.clone(), cause })?;
        Ok(Image { memory, region, name })
    }

    fn spare_name(&mut self) -> String {
        self.next += 1;
        format!("spare-{}", self.next)
    }

    fn rename(&self, image: &mut Image<F>, name: String) -> Result<(), SegmentError> {
        self.disk.rename(&image.name, &name).map_err(|errno| self.error(DiskCall::Rename, &name, errno))?;
        image.name = name;
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), SegmentError> {
        match self.disk.remove(name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error(DiskCall::Remove, name, errno)),
        }
    }

    fn error(&self, call: DiskCall, name: &str, errno: Errno) -> SegmentError {
        SegmentError::Staging(DiskError { call, file: self.disk.path().join(name), errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_name_says_its_segment() {
        for segment in [0, 1, 0x1234_5678_9abc, u64::MAX] {
            assert_eq!(image_of(&image_name(segment)), Some(segment));
        }
        for other in ["image-1", "spare-0000000000000001", "image-000000000000000g", "image-+000000000000001"]
        {
            assert_eq!(image_of(other), None, "{other}");
        }
    }
}
