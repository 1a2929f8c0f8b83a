//! Two connections of one fabric, joined, that take turns.

use std::time::{Duration, Instant};

use windlass_fabric::{
    Completion, CompletionQueue, Connection, ConnectionOptions, Fabric, Local, Operation, Remote, Request,
    Source, Status,
};

use crate::connection::VerbsConnection;
use crate::fabric::VerbsFabric;
use crate::mode::{Failure, TrialFault};
use crate::queue::VerbsCompletionQueue;
use crate::region::VerbsRegion;

/// No loop-back transfer takes so long.
const LIMIT: Duration = Duration::from_secs(5);
const DEPTHS: ConnectionOptions = ConnectionOptions { send_depth: 2, receive_depth: 1, inline_bytes: 0 };

/// The fault of a step that gave an error.
pub(super) fn step<E: std::error::Error>(step: &'static str) -> impl FnOnce(E) -> TrialFault {
    move |error| TrialFault::Step { step, source: Failure::of(&error) }
}

pub(super) struct Loopback {
    queue: VerbsCompletionQueue,
    /// Opens memory to the other.
    pub(super) owner: VerbsConnection,
    /// Posts the transfers.
    pub(super) writer: VerbsConnection,
}

impl Loopback {
    pub(super) fn new(fabric: &VerbsFabric) -> Result<Loopback, TrialFault> {
        let queue = fabric.completion_queue(8).map_err(step("making a completion queue"))?;
        let mut owner = fabric.connection(&queue, &DEPTHS).map_err(step("making a queue pair"))?;
        let mut writer = fabric.connection(&queue, &DEPTHS).map_err(step("making a queue pair"))?;
        owner.connect(writer.endpoint()).map_err(step("connecting to itself"))?;
        writer.connect(owner.endpoint()).map_err(step("connecting to itself"))?;
        Ok(Loopback { queue, owner, writer })
    }

    /// How the next request ended.
    pub(super) fn next(&mut self) -> Result<Status, TrialFault> {
        let end = Instant::now() + LIMIT;
        let mut one = [Completion::BLANK];
        while self.queue.poll(&mut one).map_err(step("polling"))? == 0 {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return Ok(Status::PeerGone) };
            self.queue.wait(left).map_err(step("waiting"))?;
        }
        Ok(one[0].status)
    }

    /// Writes a stretch of a region to a place of the other end; how it ended.
    pub(super) fn write(
        &mut self,
        from: &VerbsRegion,
        offset: u64,
        bytes: u32,
        to: Remote,
    ) -> Result<Status, TrialFault> {
        let source = Source::Region(Local { region: from, offset, bytes });
        self.post(Operation::Write { source, to })
    }

    /// Reads from a place of the other end into a region; how it ended.
    pub(super) fn read(
        &mut self,
        into: &VerbsRegion,
        offset: u64,
        bytes: u32,
        from: Remote,
    ) -> Result<Status, TrialFault> {
        self.post(Operation::Read { into: Local { region: into, offset, bytes }, from })
    }

    fn post(&mut self, operation: Operation<'_, VerbsRegion>) -> Result<Status, TrialFault> {
        self.writer.post(&[Request { id: 0, operation, signalled: true }]).map_err(step("posting"))?;
        self.next()
    }
}
