//! What a driver tells the engine.

use alloc::boxed::Box;

use windlass_log::{Epoch, Lsn, MemberId};

use crate::{
    Acknowledgement, Change, ConfigurationRecord, Heartbeat, Identity, Message, Notice, Persisted, Placed,
    Session, StopReason, Token,
};

/// Everything that can happen to an engine except the passing of time.
///
/// An input that answers a command carries that command's [`Token`] or [`Session`]; answers to what has been superseded
/// are ignored, so a driver reports everything and decides nothing.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    // ---- control plane -------------------------------------------------------------------------------------------
    /// The control connection to a peer is up, both ways, and its handshake named this identity.
    PeerUp {
        /// The peer.
        peer: MemberId,
        /// What its handshake said.
        identity: Identity,
    },
    /// The control connection to a peer is lost; messages may be lost with it.
    PeerDown {
        /// The peer.
        peer: MemberId,
    },
    /// A message arrived from a peer whose control connection is up.
    Message {
        /// The peer.
        peer: MemberId,
        /// The decoded message.
        message: Box<Message>,
    },

    // ---- the local log, while primary ----------------------------------------------------------------------------
    /// The drain has passed every record below `to`; producers have reserved up to `tail`.
    Drained {
        /// A record end, never below an earlier one of the same tenure.
        to: Lsn,
        /// The end of the last reservation, at or above `to`.
        tail: Lsn,
    },
    /// Somebody waits for `Durable` up to here.
    DurableWanted {
        /// A record end at or below the drained LSN, or one that will be.
        to: Lsn,
    },
    /// Answers [`crate::Command::StartTenure`]: the epoch-start record is appended and drained.
    TenureStarted {
        /// The command's.
        token: Token,
        /// The end of the epoch-start record.
        end: Lsn,
    },
    /// Answers [`crate::Command::Seal`]: the log takes no reservation, and none is in flight (drained equals tail, R-10).
    Sealed {
        /// The command's.
        token: Token,
        /// The sealed tail: the end of the last whole record, a pad's for reservations that were dropped.
        tail: Lsn,
    },

    // ---- the local store, in any role ----------------------------------------------------------------------------
    /// Answers [`crate::Command::Flush`]: everything below is on the medium. May reach further than asked.
    Flushed {
        /// The command's.
        token: Token,
        /// How far.
        persisted: Persisted,
    },
    /// Answers [`crate::Command::Save`], [`crate::Command::Cut`] and [`crate::Command::Reset`]: both superblock copies
    /// are written and flushed, and the log is cut.
    Saved {
        /// The command's.
        token: Token,
    },
    /// This node can't go on until it is opened again: a flush failed, a seal's deadline passed with a reservation still
    /// in flight, the disk is gone. Nothing is acknowledged, promised or granted afterwards.
    Failed {
        /// Why.
        reason: StopReason,
    },
    /// A scrub or a reader found damage at `at`, below the persisted LSN, and no mark of the superblock lies beyond any more. The
    /// member repairs it from the group and does not lead until it has. What lies elsewhere by now (trimmed, or cut already) is
    /// ignored.
    Damaged {
        /// The start of the first damaged record.
        at: Lsn,
    },
    /// Behind damage that the opening or [`Input::Damaged`] told of, whole records of this log's history lie from here on, on the
    /// medium: once the primary has filled up what is before them they are taken as they are, in place of being sent again, by the scan of the next
    /// [`crate::Command::Revoke`], under which nobody can write them any more.
    WholeBehind {
        /// A record's start behind the damage.
        from: Lsn,
    },

    // ---- the fabric, as primary ----------------------------------------------------------------------------------
    /// The fabric connection of this session is ready and the peer's windows reach up to (not including) `up_to`. Again
    /// each time the peer grants more.
    Granted {
        /// The peer.
        peer: MemberId,
        /// The command's ([`crate::Command::Connect`]).
        session: Session,
        /// The first LSN that may not be written: a segment's base.
        up_to: Lsn,
    },
    /// Completion of the signalled last work request of a [`crate::Command::Replicate`]: its bytes and notice are in the
    /// peer's memory.
    Placed {
        /// The peer.
        peer: MemberId,
        /// The command's.
        session: Session,
        /// The end of the command's range.
        to: Placed,
    },
    /// The acknowledgement slot of this peer changed; it decoded well.
    Acknowledged {
        /// The peer.
        peer: MemberId,
        /// What it says.
        acknowledgement: Acknowledgement,
    },
    /// The fabric connection of this session broke (remote access error, flushed queue, peer death) or could not be
    /// made. Also for sessions as backup: the primary's queue pair is gone.
    FabricDown {
        /// The peer.
        peer: MemberId,
        /// Which connection.
        session: Session,
    },

    // ---- the fabric, as backup -----------------------------------------------------------------------------------
    /// A write-with-immediate arrived, its receive is posted again, and its slot was read. `None` if the slot did not
    /// decode (torn, misplaced): the credit still goes back, and the next notice tells the truth.
    Notice {
        /// The primary's session.
        session: Session,
        /// The slot's content.
        notice: Option<Notice>,
    },
    /// The heartbeat slot changed; it decoded well. Look at it on each turn of the pump.
    Heartbeat {
        /// What it says.
        heartbeat: Heartbeat,
    },
    /// A configuration record of the local log: met by a scan (of a [`crate::Command::Parse`], [`crate::Command::Revoke`] or
    /// [`crate::Command::Fetch`]), or appended for [`crate::Command::AppendConfiguration`]. It comes before the first input whose tail
    /// reaches its end, and as often as it is met.
    ConfigurationFound(ConfigurationRecord),
    /// Answers [`crate::Command::AppendConfiguration`]: the log takes no record now.
    ConfigurationRefused {
        /// The number of the configuration.
        number: u64,
    },
    /// Answers [`crate::Command::Parse`].
    Parsed {
        /// The command's.
        token: Token,
        /// The end of the last valid record.
        valid_tail: Lsn,
    },
    /// Answers [`crate::Command::Grant`]: bound, and the keys are on their way to the primary.
    GrantDone {
        /// The command's.
        token: Token,
    },
    /// Answers [`crate::Command::Revoke`]: every window's invalidation has completed, the queue pair is drained and
    /// destroyed, and only then the log was scanned.
    Revoked {
        /// The command's.
        token: Token,
        /// The end of the last valid record.
        valid_tail: Lsn,
    },
    /// The write of the last [`crate::Command::Acknowledge`] of this session has completed.
    AcknowledgeDone {
        /// The command's.
        session: Session,
    },

    // ---- a takeover ----------------------------------------------------------------------------------------------
    /// Answers [`crate::Command::Fetch`]: the range is read, verified against the history, and in the local log.
    Fetched {
        /// The command's.
        token: Token,
        /// The end of the last valid record now; below the asked end only if more is to be fetched to complete a
        /// record.
        valid_tail: Lsn,
    },
    /// Answers [`crate::Command::Fetch`]: the peer is gone, refused, or its bytes were not valid.
    FetchFailed {
        /// The command's.
        token: Token,
    },

    // ---- the application and the operator ------------------------------------------------------------------------
    /// The application here needs nothing below. Bounded by `durable`, by peers that lag (within the retention limit);
    /// [`crate::Command::Trim`] says what may really go.
    Trim {
        /// A record end.
        to: Lsn,
    },
    /// The application has installed a checkpoint that stands for everything below `at`, after
    /// [`crate::Event::SnapshotNeeded`].
    SnapshotInstalled {
        /// The LSN at which the log goes on: a record end of the primary's log.
        at: Lsn,
        /// The epoch of the last byte below, in the log that the checkpoint was made from: an LSN alone doesn't say of which line it is. One of another
        /// line is refused by [`crate::Event::SnapshotOtherLine`].
        epoch: Epoch,
    },
    /// A checkpoint that stands for everything below `at` is on its way to the application, after [`crate::Event::SnapshotNeeded`]: the primary is asked to
    /// keep its log from there on, within the retention. It does so for 16 times the suspicion timeout; say it again as long as that is so.
    SnapshotComing {
        /// The LSN at which the log is to go on.
        at: Lsn,
    },
    /// As primary: change the group. What becomes of it is told by [`crate::Event::Configuration`] or [`crate::Event::ChangeRefused`].
    Change(Change),
    /// Become primary if that is possible: an operator or an external elector suspects the primary.
    Suspect,
    /// Give the tenure to this member, without waiting for suspicion.
    Handover {
        /// The member.
        to: MemberId,
    },
    /// Stop being primary: the application asks, or a reservation was not published within its deadline.
    Resign {
        /// Why.
        reason: StopReason,
    },
    /// An operator's word that the members which lost memory may count when this one chooses a log: it campaigns at once. **Appends that were
    /// acknowledged at level `Replicated` alone may be lost by it.** Holds until somebody leads or this process ends. Answered by
    /// [`crate::Event::MemoryLossAccepted`] or [`crate::Event::LossNotAccepted`]; what it waits for then is told by [`crate::Event::Undecided`].
    AcceptMemoryLoss,
    /// An operator's word that this member may lead with what is left: from the best log among a takeover quorum that answers, though some of them may have
    /// acknowledged more. What this member itself lacks by damage it gives up. **Acknowledged appends may be lost by it**, at any level. Holds
    /// until somebody leads, more is found damaged here, or this process ends. Answered by [`crate::Event::LossAccepted`] or [`crate::Event::LossNotAccepted`]; what it
    /// waits for then is told by [`crate::Event::Undecided`].
    AcceptLoss,
}
