//! Who belongs to the group, and changing it: [`Node::members`], [`Node::change`]. DESIGN.md section 8.11.

use std::collections::BTreeMap;
use std::time::Instant;

use windlass_engine::{Change, ChangeError, Configuration, PeerStatus};
use windlass_log::{Lsn, MemberId};

use super::{Node, NotPrimary};
use crate::control::Exclusion;
use crate::driver::{Asked, ChangeFailure, Request, question};

/// What a member knows of its group, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Members {
    /// The newest configuration of its log: who belongs to the group, who votes, and the sizes of quorums. Of a member that is to be
    /// added and was not yet: nobody ([`Configuration::is_unknown`]).
    pub configuration: Configuration,
    /// Whether it is known here to be committed: then no takeover takes it back.
    pub committed: bool,
    /// As primary: how those others stand that it has heard of in its tenure. Empty at any other member.
    pub peers: BTreeMap<MemberId, PeerStatus>,
}

/// Why a member is none of its group's, so that what it knows of the log may be long out of date: [`Node::outside`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Outside {
    /// It has left, or another took its place, as its own log or a primary says.
    #[error("it has left the group with configuration {configuration}: stop it; its folder can be removed")]
    Left {
        /// The configuration without it.
        configuration: u64,
    },
    /// It was founded as if the group had begun with it, which a primary denies.
    #[error(
        "it never was in its group, or not among those that it began with: start it with an empty folder as one that joins (`NodeOptions::joined`), and have it added (`Node::change`)"
    )]
    NeverIn,
    /// It is to be added, and was not yet: it knows of no configuration.
    #[error("it waits to be added to its group, or to take a member's place")]
    NotYet,
    /// It follows nobody, and these members don't have it in their group.
    #[error(
        "it follows no primary, and {} not have it in the group: if it has left, or another took its place, stop it, and its folder can be removed; otherwise check the members that it was given",
        said_by(by)
    )]
    SaidBy {
        /// Who says so.
        by: Vec<MemberId>,
    },
}

fn said_by(members: &[MemberId]) -> String {
    let names: Vec<String> = members.iter().map(ToString::to_string).collect();
    format!("{} {}", names.join(", "), if names.len() == 1 { "does" } else { "do" })
}

/// Why a change of the group is not known to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeChangeError {
    /// Nothing has happened: ask the primary.
    #[error(transparent)]
    NotPrimary(#[from] NotPrimary),
    /// Nothing has happened; the reason says what to do.
    #[error(transparent)]
    Refused(ChangeError),
    /// The log is full, so that the configuration's record found no room in it. Nothing has happened: trim the log, or open it with a larger
    /// retention, and ask again.
    #[error(
        "the log is at LSN {tail} and may not go beyond {limit}, so the configuration found no room: trim it, and ask again"
    )]
    Full {
        /// The log's end.
        tail: Lsn,
        /// Where its cap is.
        limit: Lsn,
    },
    /// The tenure ended before the configuration was committed: the next primary has it, or not. Ask that one for its
    /// [`members`](Node::members); the same change may be asked for again, since no number is given twice and no member leaves twice.
    #[error(
        "the tenure ended before configuration {number} was committed: ask the next primary for its members, and for the change again if they don't show it"
    )]
    Unknown {
        /// The configuration's number.
        number: u64,
    },
    /// The deadline passed: the change takes its course. As with [`NodeChangeError::Unknown`], the members tell what came of it.
    #[error(
        "the change was not committed by the deadline, and takes its course: the group's members will show it, or not"
    )]
    Deadline,
    /// This node has ended: what came of the change, the other members tell.
    #[error("this node has ended: ask another member for the group's members")]
    Ended,
}

impl Node {
    /// Why this member is none of the group's, as far as it knows: who reads here may read what is long out of date. `None` for a member of the group, for
    /// one that nobody has told otherwise, and for one that came back with an emptied folder or a copy: [`Node::exclusions`] say what that one is to do.
    #[must_use]
    pub fn outside(&self) -> Option<Outside> {
        match self.inner.port.left() {
            Some(0) => return Some(Outside::NeverIn),
            Some(configuration) => return Some(Outside::Left { configuration }),
            None => {}
        }
        if self.status().primary.is_some() {
            return None;
        }
        if self.members().configuration.is_unknown() {
            // A member whose folder was emptied knows of no configuration either, and is told that it does not come back so (kind 55): it waits for nothing.
            let is_kept_out = self
                .exclusions()
                .iter()
                .any(|(_, why)| matches!(why, Exclusion::OtherDisk { .. } | Exclusion::Copied { .. }));
            return (!is_kept_out).then_some(Outside::NotYet);
        }
        let said = self.exclusions().into_iter().filter(|(_, why)| *why == Exclusion::Outside);
        let by: Vec<MemberId> = said.map(|(by, _)| by).collect();
        (!by.is_empty()).then_some(Outside::SaidBy { by })
    }

    /// Who belongs to the group, as this member knows.
    #[must_use]
    pub fn members(&self) -> Members {
        let known = self.inner.port.known();
        Members { configuration: known.configuration, committed: known.committed, peers: known.peers }
    }

    /// As primary: changes the group, one change at a time, and answers the configuration that was made once it is committed: no takeover takes
    /// it back.
    ///
    /// A member that is added, or that replaces another one, is a learner in that configuration. Once it has caught up the primary, this
    /// one or a later, makes another one in which it votes; [`Node::members`] shows it, and a
    /// [`Configuration`](windlass_engine::Event::Configuration) event tells of it. It is started with options that have it among those that
    /// [joined](super::NodeOptions::joined), before or after the change. A primary that is removed hands over to a voter first.
    ///
    /// # Errors
    ///
    /// [`NodeChangeError`]: each variant says what has happened, and what to do.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nobody waits any more; the change takes its course.
    pub async fn change(&self, change: Change) -> Result<Configuration, NodeChangeError> {
        let answer = self.ask_change(change).await;
        self.changed(answer)
    }

    /// As [`Node::change`], on this thread.
    ///
    /// # Errors
    ///
    /// As [`Node::change`], and [`NodeChangeError::Deadline`].
    pub fn change_blocking(
        &self,
        change: Change,
        deadline: Option<Instant>,
    ) -> Result<Configuration, NodeChangeError> {
        match self.ask_change(change).wait(deadline) {
            Ok(answer) => self.changed(answer),
            Err(_) => Err(NodeChangeError::Deadline),
        }
    }

    fn ask_change(&self, change: Change) -> Asked<Result<Configuration, ChangeFailure>> {
        let (answer, asked) = question();
        if !self.inner.port.is_stopped() {
            self.inner.port.ask(Request::Change(change, answer));
        }
        asked
    }

    fn changed(
        &self,
        answer: Option<Result<Configuration, ChangeFailure>>,
    ) -> Result<Configuration, NodeChangeError> {
        match answer {
            Some(Ok(configuration)) => Ok(configuration),
            Some(Err(ChangeFailure::Refused(ChangeError::NotPrimary))) => {
                Err(NodeChangeError::NotPrimary(self.not_primary()))
            }
            Some(Err(ChangeFailure::Refused(reason))) => Err(NodeChangeError::Refused(reason)),
            Some(Err(ChangeFailure::Full { tail, limit })) => Err(NodeChangeError::Full { tail, limit }),
            Some(Err(ChangeFailure::Unknown { number })) => Err(NodeChangeError::Unknown { number }),
            None => Err(NodeChangeError::Ended),
        }
    }
}
