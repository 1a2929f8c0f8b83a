//! What a device is tried for when it is opened, because its word is not enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, Fabric, HeapMemory, Local, Memory,
    Operation, PAGE_BYTES, Request, Source, Status,
};

use crate::fabric::VerbsFabric;
use crate::queue::VerbsCompletionQueue;

/// No loop-back write takes so long.
const LIMIT: Duration = Duration::from_secs(5);
const DEPTHS: ConnectionOptions = ConnectionOptions { send_depth: 2, receive_depth: 1, inline_bytes: 0 };

/// Whether a write behind a window's end, and inside the region below it, is refused. Soft-RoCE checks the region's ends alone.
/// `false` where it can't be tried: then nothing is built on it.
pub(crate) fn windows_hold(fabric: &VerbsFabric) -> bool {
    try_windows(fabric).unwrap_or(false)
}

fn try_windows(fabric: &VerbsFabric) -> Option<bool> {
    let memory: Arc<dyn Memory> = Arc::new(HeapMemory::new(2 * PAGE_BYTES));
    memory.store(PAGE_BYTES, 1);
    let region = fabric.register(Arc::clone(&memory), Access::LOCAL_WRITE | Access::WINDOW_BIND).ok()?;
    let mut queue = fabric.completion_queue(8).ok()?;
    let mut window = fabric.allocate_window().ok()?;
    let mut owner = fabric.connection(&queue, &DEPTHS).ok()?;
    let mut writer = fabric.connection(&queue, &DEPTHS).ok()?;
    owner.connect(writer.endpoint()).ok()?;
    writer.connect(owner.endpoint()).ok()?;
    let range = owner.bind(1, &mut window, &region, 0..PAGE_BYTES, Access::REMOTE_WRITE).ok()?;
    (next(&mut queue)? == Status::Success).then_some(())?;
    // Eight zero bytes over the one that stands behind the window.
    let source = Source::Region(Local { region: &region, offset: 0, bytes: 8 });
    let write = Operation::Write { source, to: range.at(PAGE_BYTES) };
    writer.post(&[Request { id: 2, operation: write, signalled: true }]).ok()?;
    let status = next(&mut queue)?;
    Some(status == Status::RemoteAccess && memory.load(PAGE_BYTES) == 1)
}

/// How the next request ended; `None` if none did in time.
fn next(queue: &mut VerbsCompletionQueue) -> Option<Status> {
    let end = Instant::now() + LIMIT;
    let mut one = [Completion::BLANK];
    while queue.poll(&mut one).ok()? == 0 {
        queue.wait(end.checked_duration_since(Instant::now())?).ok()?;
    }
    Some(one[0].status)
}
