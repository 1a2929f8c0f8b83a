//! What a device is tried for when it is opened, because its word is not enough.

mod folder;
mod loopback;
mod scratch;

use std::sync::Arc;

use windlass_fabric::{Access, Connection, Fabric, HeapMemory, Memory, PAGE_BYTES, Status};

pub(crate) use folder::choose;

use crate::fabric::VerbsFabric;
use crate::probe::loopback::Loopback;

/// Whether a write behind a window's end, and inside the region below it, is refused. Soft-RoCE checks the region's ends alone.
/// `false` where it can't be tried: then nothing is built on it.
pub(crate) fn windows_hold(fabric: &VerbsFabric) -> bool {
    try_windows(fabric).unwrap_or(false)
}

fn try_windows(fabric: &VerbsFabric) -> Option<bool> {
    let memory: Arc<dyn Memory> = Arc::new(HeapMemory::new(2 * PAGE_BYTES));
    memory.store(PAGE_BYTES, 1);
    let region = fabric.register(Arc::clone(&memory), Access::LOCAL_WRITE | Access::WINDOW_BIND).ok()?;
    let mut pair = Loopback::new(fabric).ok()?;
    let mut window = fabric.allocate_window().ok()?;
    let range = pair.owner.bind(1, &mut window, &region, 0..PAGE_BYTES, Access::REMOTE_WRITE).ok()?;
    (pair.next().ok()? == Status::Success).then_some(())?;
    // Eight zero bytes over the one that stands behind the window.
    let status = pair.write(&region, 0, 8, range.at(PAGE_BYTES)).ok()?;
    Some(status == Status::RemoteAccess && memory.load(PAGE_BYTES) == 1)
}
