//! What a provider must be able to do, and the memory that it is given.

use windlass_engine::DurableState;
use windlass_fabric::{Backing, Fabric, Transfer};
use windlass_log::SEGMENT_HEADER_BYTES;
use windlass_store::Store;
use windlass_store::disk::{Disk, FilesystemClass};

use super::members::RawConfiguration;
use super::memory::{SegmentError, Segments};
use super::staging::Staging;
use super::{ConfigurationError, DriverError, state};

/// What must be true of a provider.
pub(super) fn check_capabilities(fabric: &impl Fabric) -> Result<(), DriverError> {
    let capabilities = fabric.capabilities();
    let provider = capabilities.provider;
    if !capabilities.immediate {
        let lack = "it has no write with immediate, which notices need";
        return Err(DriverError::Unsuitable { provider, lack });
    }
    match capabilities.transfer {
        Transfer::WholePages { page_bytes } if u64::from(page_bytes) > SEGMENT_HEADER_BYTES => {
            Err(DriverError::Unsuitable { provider, lack: "its pages are longer than a segment's header" })
        }
        Transfer::Any | Transfer::WholePages { .. } => Ok(()),
    }
}

/// The memory that the device is given: the store's mappings, or images where it can't write into those.
pub(super) fn segments<F: Fabric, D: Disk>(
    fabric: &F,
    store: &Store<D>,
    staging: Option<D>,
    segments_ahead: u64,
) -> Result<Segments<F, D>, DriverError> {
    let in_memory = store.disk().filesystem().is_ok_and(|found| found.class() == FilesystemClass::Memory);
    let backing = if in_memory { Backing::Anonymous } else { Backing::MappedFile };
    if !fabric.capabilities().staged_image || in_memory {
        return Ok(Segments::new(backing, None));
    }
    let Some(disk) = staging else {
        let provider = fabric.capabilities().provider;
        let lack = "it can't write into mapped files, and there is no folder for images of them";
        return Err(DriverError::Unsuitable { provider, lack });
    };
    let in_memory = disk.filesystem().is_ok_and(|found| found.class() == FilesystemClass::Memory);
    if !in_memory {
        return Err(DriverError::StagingFolder { folder: disk.path().to_path_buf() });
    }
    let keep = usize::try_from(segments_ahead + 2).expect("few segments are granted ahead");
    let staging = Staging::open(fabric, disk, store.geometry().segment_bytes(), keep);
    Ok(Segments::new(backing, Some(staging.map_err(memory_error)?)))
}

/// Configurations that came with an image: in the superblock before anything behind them is flushed.
pub(super) fn note_found<D: Disk>(
    store: &Store<D>,
    found: &[RawConfiguration],
    state: &mut DurableState,
) -> Result<(), DriverError> {
    for raw in found {
        let bytes = raw.payload.len();
        let found = raw.decode().map_err(|_| ConfigurationError { bytes })?;
        if state.note_configuration(found) {
            store.update(|superblock| state::put(superblock, state))?;
        }
    }
    Ok(())
}

pub(super) fn memory_error(error: SegmentError) -> DriverError {
    DriverError::Memory { source: Box::new(error) }
}
