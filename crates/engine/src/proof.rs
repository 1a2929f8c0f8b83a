//! Values that only the right code can make: becoming primary consumes a [`FenceQuorum`], acknowledging consumes a
//! [`CommitProof`]. Neither can be built or copied outside this crate.

use alloc::vec::Vec;

use windlass_log::{Epoch, Lsn, MemberId};

use crate::Configuration;

/// A quorum has promised `epoch`, durably, and revoked every window: no older epoch can commit again.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(PartialEq, Eq, Debug)]
pub struct FenceQuorum {
    epoch: Epoch,
    promised: Vec<MemberId>,
}

impl FenceQuorum {
    /// Made only where promises are counted.
    ///
    /// # Panics
    ///
    /// If they are no takeover quorum of each configuration in force in the chosen log: the caller counted wrong.
    pub(crate) fn new<'a>(
        epoch: Epoch,
        promised: Vec<MemberId>,
        in_force: impl Iterator<Item = &'a Configuration>,
    ) -> FenceQuorum {
        let mut counted = 0;
        for configuration in in_force {
            counted += 1;
            assert!(
                configuration.is_takeover_quorum(&promised),
                "R-20: promises of {promised:?} fence nothing in configuration {}, whose takeover quorum is {}",
                configuration.number(),
                configuration.takeover_quorum()
            );
        }
        assert!(counted > 0, "R-20: promises are counted over some configuration");
        FenceQuorum { epoch, promised }
    }

    /// The epoch that may now lead.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Who has promised, the candidate among them.
    #[must_use]
    pub fn promised(&self) -> &[MemberId] {
        &self.promised
    }
}

/// The commit watermarks of a primary, counted over a quorum of its own tenure.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(PartialEq, Eq, Debug)]
pub struct CommitProof {
    epoch: Epoch,
    replicated: Lsn,
    durable: Lsn,
}

impl CommitProof {
    /// Made only where peers are counted.
    pub(crate) fn new(epoch: Epoch, replicated: Lsn, durable: Lsn) -> CommitProof {
        assert!(durable <= replicated, "durable {durable} ahead of replicated {replicated}");
        CommitProof { epoch, replicated, durable }
    }

    /// The tenure.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Everything below is placed on a quorum. Equal to [`CommitProof::durable`] where the group does not allow the level.
    #[must_use]
    pub fn replicated(&self) -> Lsn {
        self.replicated
    }

    /// Everything below is persisted on a quorum.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
    }
}
