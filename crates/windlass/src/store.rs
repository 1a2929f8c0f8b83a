//! What the store says and is told: its errors and findings, the disk that a log lies on, inspection and repair.
//!
//! Not the store itself, nor a disk's files and mappings: they lead to the log's memory, whose plain copies nothing orders but the append hand-off, the engine and the
//! store's own turns (DESIGN.md section 3). Two threads that copied into it at once would race, in code that says nowhere that it is unsafe. Who builds on that, a simulator or a benchmark,
//! takes the crate `windlass-store` and its contract.
//!
//! ```compile_fail,E0432
//! use windlass::store::Store;
//! ```
//!
//! ```compile_fail,E0432
//! use windlass::store::disk::{Disk, DiskFile, DiskMap};
//! ```

pub use windlass_store::{
    BadHeader, Condition, Configure, CopiedFolder, Counters, CreateError, CutError, Damage, DiskCall,
    DiskError, Finding, Founding, Holder, Inspection, Make, MediumFailed, MemoryError, OpenCutError,
    OpenError, OpenTrimError, Opened, Options, Persisted, PrepareError, Prepared, QuarantinePlace, Read,
    ReadError, RepairError, RepairOrders, Repaired, Report, ScrubPlace, Scrubbed, StoreError, Surroundings,
    Tally, TrimError, Unreadable, UnsafeFilesystem, UpdateError, Vouch, Walk, stop_offset,
};

/// The disk that a log lies on.
pub mod disk {
    pub use windlass_store::disk::{
        Access, Entry, Errno, FileIdentity, Filesystem, FilesystemClass, Locked, RealDisk,
    };
}

use windlass_store::disk::Disk;

/// Repairs the log in a folder that nobody has open: see [`windlass_store::Store::repair`].
///
/// # Errors
///
/// [`RepairError`].
pub fn repair<D: Disk>(
    disk: &D,
    quarantine: QuarantinePlace<'_, D>,
    orders: &RepairOrders,
) -> Result<Repaired, RepairError> {
    windlass_store::Store::repair(disk, quarantine, orders)
}
