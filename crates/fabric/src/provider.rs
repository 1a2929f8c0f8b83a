//! An opened provider, its regions and its windows.

use std::ops::Range;
use std::sync::Arc;

use crate::capability::{Access, Capabilities};
use crate::completion::CompletionQueue;
use crate::connection::{Connection, ConnectionOptions};
use crate::error::{AllocateError, CompletionQueueError, CreateError, RegisterError};
use crate::memory::Memory;
use crate::request::RemoteRange;

/// An opened provider: a device and its protection domain.
///
/// What is made from one fabric works only with what is made from the same one. The parts keep what they need
/// alive: they may be dropped in any order.
pub trait Fabric: Send + 'static {
    /// Registered memory.
    type Region: Region;
    /// Memory windows.
    type Window: Window;
    /// Completion queues.
    type CompletionQueue: CompletionQueue;
    /// Connections.
    type Connection: Connection<Region = Self::Region, Window = Self::Window>;

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Registers all of `memory`. Dropping the region ends the registration: when `drop` returns, no byte of the memory is read or written by the fabric
    /// any more. A request still under way over it then fails. Drop the windows bound over it first.
    ///
    /// # Errors
    /// [`RegisterError`], with the remedy per variant.
    fn register(&self, memory: Arc<dyn Memory>, access: Access) -> Result<Self::Region, RegisterError>;

    /// Allocates a window, bound to nothing. Dropping it closes it like a completed invalidation.
    ///
    /// # Errors
    /// [`AllocateError::NotSupported`] where [`Capabilities::windows`] is false; [`AllocateError::Os`]: too many.
    fn allocate_window(&self) -> Result<Self::Window, AllocateError>;

    /// Makes a completion queue with room for `capacity` completions.
    ///
    /// # Errors
    /// [`CompletionQueueError`].
    fn completion_queue(&self, capacity: u32) -> Result<Self::CompletionQueue, CompletionQueueError>;

    /// Makes a connection whose completions go to `queue`, in state `Initial`.
    ///
    /// The depths of all living connections over a queue must fit its capacity together, so that it never overruns.
    ///
    /// # Errors
    /// [`CreateError`].
    ///
    /// # Panics
    /// If the queue is another fabric's, where that would be no memory of the provider's own.
    fn connection(
        &self,
        queue: &Self::CompletionQueue,
        options: &ConnectionOptions,
    ) -> Result<Self::Connection, CreateError>;
}

/// Registered memory.
pub trait Region: Send + Sync + 'static {
    /// The memory behind it.
    fn memory(&self) -> &Arc<dyn Memory>;

    /// What it allows.
    fn access(&self) -> Access;

    /// The whole region as its peers name it, where it was registered with remote access; good on every connection of the
    /// fabric until the region is dropped. For devices without windows; otherwise hand out windows.
    fn remote(&self) -> Option<RemoteRange>;

    /// Asks the device to bring the bytes `[start, end)` in ahead of transfers with them, where it takes memory in on demand: the first transfer
    /// with a page then does not wait for a fault. Advice alone: it does not wait, changes no byte, and a page may go again. Whether
    /// the device took it; `false` where there is nothing to bring in.
    fn prefetch(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }
}

/// A type-2 memory window.
pub trait Window: Send + 'static {
    /// Whether a bind was posted and no invalidation since.
    fn is_bound(&self) -> bool;

    /// How many binds are left before its keys would repeat (a key's changing part has 8 bits). At 0 drop it and allocate another.
    fn binds_left(&self) -> u32;

    /// Whether it is bound nowhere, as far as the completions that were seen say: it was never bound, or its last invalidation was seen to succeed. A window
    /// that says so holds no region any more, and can be bound again on any connection. Meant for windows whose every completion was polled: one
    /// whose invalidation may be under way, or was flushed, is to be dropped.
    fn is_free(&self) -> bool {
        !self.is_bound()
    }
}
