//! The messages of the control plane: few, rare, and each safe to repeat.

use alloc::vec::Vec;

use windlass_log::{Epoch, EpochHistory, Lsn, MemberId};

use crate::{ConfigurationRecord, LsnRange, Persisted, Session};

mod codec;

pub use codec::{EPOCH_COUNTER_MAX, MESSAGE_BYTES_MAX, MESSAGE_VERSION, MessageError};

/// What a member says when it promises: what its log holds, and what may be missing from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The epoch of the last valid record: with `valid_tail`, the rank of the log.
    pub last_epoch: Epoch,
    /// The end of the last valid record, in memory and on the medium.
    pub valid_tail: Lsn,
    /// The trim point.
    pub trimmed: Lsn,
    /// The highest LSN that this member may have acknowledged as persisted, and its epoch.
    pub mark: Mark,
    /// Memory was lost and the member has not caught up since.
    pub memory_lost: bool,
    /// The highest `durable` watermark that this member knows of, and its epoch.
    pub durable: Mark,
    /// What this member, as a primary, saw acknowledged by others.
    pub witnessed: Vec<Witness>,
    /// Which epoch owns which LSNs. Never ranks.
    pub history: EpochHistory,
    /// The newest configurations of the log: over those of the chosen log promises are counted.
    pub configurations: Vec<ConfigurationRecord>,
}

/// A position and whose bytes lie below it: two logs that reach the same mark hold the same bytes below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark {
    /// The epoch of the byte just below `lsn`.
    pub epoch: Epoch,
    /// The position.
    pub lsn: Lsn,
}

/// An acknowledgement of `persisted` that a primary saw.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Witness {
    /// Who acknowledged.
    pub member: MemberId,
    /// What.
    pub mark: Mark,
}

/// One message of the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Would you promise this epoch, or do you hear a primary? Changes nothing at the receiver.
    PreVote {
        /// The epoch that the sender would ask for.
        epoch: Epoch,
        /// The number of the sender's newest configuration.
        configuration: u64,
    },
    /// The answer.
    PreVoteReply {
        /// The question's.
        epoch: Epoch,
        /// The receiver hears no primary either.
        granted: bool,
        /// What the receiver has promised: ask for more.
        promised: Epoch,
    },
    /// Promise this epoch: revoke every window, and take part in no older epoch again.
    Fence {
        /// The sender's.
        epoch: Epoch,
        /// The number of the sender's newest configuration.
        configuration: u64,
    },
    /// Promised, durably; every window is revoked and the log is scanned and flushed.
    Promise {
        /// The question's.
        epoch: Epoch,
        /// The log.
        summary: Summary,
    },
    /// The receiver has promised a higher epoch than the one it was asked for.
    Rejected {
        /// What was asked for.
        epoch: Epoch,
        /// What is promised.
        promised: Epoch,
    },
    /// A candidate that has its fence quorum is at work: do not start a rival takeover while `progress` grows.
    Working {
        /// The candidate's epoch.
        epoch: Epoch,
        /// Grows as the work goes on.
        progress: u64,
    },
    /// Become a candidate now: a handover, or the sender can't reach down to the best log's trim point.
    Campaign {
        /// The epoch of the sender: take a higher one.
        epoch: Epoch,
    },
    /// From a primary: take this history, cut what diverges, and grant. Also its announcement.
    Adopt {
        /// The connection to be made.
        session: Session,
        /// The primary's history.
        history: EpochHistory,
        /// The primary's drained tail.
        tail: Lsn,
        /// The primary's trim point.
        trimmed: Lsn,
        /// The primary's watermark.
        durable: Lsn,
        /// The newest configurations of the primary's log.
        configurations: Vec<ConfigurationRecord>,
    },
    /// Adopted and cut, durably; windows are granted from `valid_tail` on.
    Adopted {
        /// The question's.
        session: Session,
        /// Where to go on.
        valid_tail: Lsn,
        /// What of it is on the medium.
        persisted: Persisted,
    },
    /// What this member lacks is released at the primary.
    SnapshotNeeded {
        /// The question's.
        session: Session,
        /// What this member has.
        valid_tail: Lsn,
    },
    /// From a member that needs a checkpoint, which is on its way there: keep the log from `from` on, within the retention, for some time. Said again
    /// as long as that is so.
    Keep {
        /// The tenure.
        epoch: Epoch,
        /// Where the log is to go on.
        from: Lsn,
    },
    /// Make a new session: this member's log has changed below what it had, or its connection broke.
    Resync {
        /// The session that is no longer good; [`Epoch::NONE`] of attempt 0 if there was none.
        session: Session,
    },
    /// A primary's sign of life to a peer that does not stream.
    Alive {
        /// The tenure.
        epoch: Epoch,
        /// Grows with each.
        sequence: u64,
        /// How long the oldest pending work has waited without progress.
        pending_ns: u64,
        /// The drained LSN.
        drained: Lsn,
    },
    /// The answer.
    AliveReply {
        /// The question's.
        epoch: Epoch,
        /// The question's.
        sequence: u64,
    },
    /// From a candidate that this member has promised: let me read this range.
    FetchRequest {
        /// The connection to be made.
        session: Session,
        /// What.
        range: LsnRange,
    },
    /// The receiver is no member of the group any more: a configuration that it has not got is committed.
    NotAMember {
        /// That configuration's number; 0 if the receiver's number was never given.
        configuration: u64,
    },
}
