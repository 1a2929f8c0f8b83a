//! What a driver tells of itself, and lends: to its node, and to a simulator.

use std::sync::Arc;

use windlass_engine::{Identity, SnapshotNeed, SnapshotState, Status};
use windlass_fabric::Fabric;
use windlass_log::{Epoch, Lsn, MemberId};
use windlass_store::Store;
use windlass_store::disk::Disk;

use super::{Driver, Executor, GroupMeters, GroupMetrics, Port};
use crate::clock::Clock;
use crate::commit::Level;
use crate::control::ControlPlane;
use crate::metrics::Meters;

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    /// Where the engine stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Whether this member's log waits for a checkpoint of the application.
    #[must_use]
    pub fn snapshot_state(&self) -> SnapshotState {
        self.engine.snapshot_state()
    }

    /// What a checkpoint must keep to be of use here; `None` where none is needed.
    #[must_use]
    pub fn snapshot_need(&self) -> Option<SnapshotNeed> {
        self.engine.snapshot_need()
    }

    /// Who this process is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What this member counts of the group.
    #[must_use]
    pub fn group_metrics(&self) -> GroupMetrics {
        self.group_meters.snapshot(self.engine.status().peers)
    }

    /// What this member has checked of its cold segments, and found in its log.
    #[must_use]
    pub fn scrub_metrics(&self) -> crate::ScrubMetrics {
        self.meters.scrub.snapshot()
    }

    /// The control plane, for a simulator.
    pub fn control_mut(&mut self) -> &mut N {
        &mut self.control
    }

    /// The executor, for a simulator that looks at what the disk is to do.
    #[must_use]
    pub fn executor(&self) -> &X {
        &self.executor
    }

    /// The executor, for a simulator that decides when the disk answers.
    pub fn executor_mut(&mut self) -> &mut X {
        &mut self.executor
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store<D>> {
        &self.local.store
    }

    /// Reads the durable prefix of this member's log, as [`crate::Node::read_from`] does.
    ///
    /// # Errors
    ///
    /// [`crate::ReadError::Purged`].
    #[cfg(feature = "tcp")]
    pub fn read_from(&self, from: Lsn) -> Result<crate::NodeReader, crate::ReadError> {
        let at = (Level::Durable, from);
        crate::NodeReader::new(&self.local.store, self.folder.clone(), &self.port, at, false)
    }

    /// Persisted on a quorum, as far as readers of this member are told.
    #[must_use]
    pub fn published(&self) -> Lsn {
        self.port.durable.value()
    }

    /// Up to where this member gives a checkpoint of its application to another one, whose application held `at_start` when this life began, as a node does. For a simulator.
    #[cfg(feature = "tcp")]
    #[must_use]
    pub fn committed(&self, at_start: Option<crate::CheckpointPosition>) -> Lsn {
        let (durable, tail) = (self.published(), self.status().tail);
        crate::node::checkpoint::committed(durable, tail, &self.store().superblock().history, at_start)
    }

    /// Up to where this member has found bytes of its log valid, for a simulator: nobody may change them any more.
    #[must_use]
    pub fn found_valid(&self) -> Lsn {
        self.local.valid_tail()
    }

    /// What became of an append of this epoch at this LSN, as far as this member knows.
    #[must_use]
    pub fn outcome(&self, epoch: Epoch, lsn: Lsn) -> crate::Outcome {
        crate::log::outcome(&self.local.store.superblock(), self.port.durable.value(), epoch, lsn)
    }

    /// The other members.
    pub(crate) fn others(&self) -> Vec<MemberId> {
        self.engine.members().iter().map(|entry| entry.id).collect()
    }

    /// Whether anybody waits for a commit that is not answered yet.
    pub(crate) fn has_committers(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| {
            let marks = &lead.tenure.watermarks;
            [&marks.persisted, &marks.replicated, &marks.durable].iter().any(|watch| watch.is_waited_for())
        })
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    pub(crate) fn meters(&self) -> (&Arc<Meters>, &Arc<GroupMeters>) {
        (&self.meters, &self.group_meters)
    }
}
