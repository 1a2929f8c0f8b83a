//! What the engine asks of a driver.

use alloc::boxed::Box;
use alloc::vec::Vec;

use windlass_log::{Epoch, Lsn, MemberId};

use crate::{
    Acknowledgement, Change, ChangeError, CommitProof, Configuration, DurableState, FenceQuorum, Heartbeat,
    LsnRange, MemberEntry, Message, Notice,
};

/// Names a command that is answered. Never reused by one engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// One fabric connection: a primary's (or a candidate's, for fetching) epoch, and which attempt within it. A connection
/// is never used again after it broke; the next attempt is another session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Session {
    /// The tenure.
    pub epoch: Epoch,
    /// 1 and up, for each peer and epoch.
    pub attempt: u32,
}

impl core::fmt::Display for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}#{}", self.epoch, self.attempt)
    }
}

/// One thing to do. Execute commands in the order in which they are polled. `Save`, `Cut`, `Reset`, `Trim`, `Revoke`,
/// `StartTenure` and `Seal` take effect one after the other in that order; everything else that a command starts may complete in any
/// order.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(PartialEq, Debug)]
pub enum Command {
    // ---- control plane -------------------------------------------------------------------------------------------
    /// Send a message on the peer's control connection. May be dropped when that is down: the engine sends again.
    Send {
        /// To whom.
        peer: MemberId,
        /// What.
        message: Box<Message>,
    },

    // ---- the local store -----------------------------------------------------------------------------------------
    /// Write the superblock, both copies, each flushed, the clean mark cleared. Answer: [`crate::Input::Saved`].
    Save {
        /// To answer with.
        token: Token,
        /// The engine's share.
        state: Box<DurableState>,
    },
    /// Make everything below `to` durable. Answer: [`crate::Input::Flushed`], or [`crate::Input::Failed`]. At most one
    /// is unanswered at any time.
    Flush {
        /// To answer with.
        token: Token,
        /// At or below the valid (or drained) tail.
        to: Lsn,
    },
    /// Cut the log at `at` and save this state in one superblock update; nothing is zeroed, since what lies beyond does
    /// not belong to the new history. Only sent while no window is granted and no reservation in flight. Answer:
    /// [`crate::Input::Saved`].
    ///
    /// The fate of appends: what this member appended as primary at or beyond `at` is fenced and will never commit.
    Cut {
        /// To answer with.
        token: Token,
        /// The new valid tail, at or below the old one.
        at: Lsn,
        /// The state that goes with it.
        state: Box<DurableState>,
    },
    /// Throw the whole log away and start again, empty, at `at` (which may lie beyond the old tail), saving this state.
    /// Follows [`crate::Input::SnapshotInstalled`]. Answer: [`crate::Input::Saved`].
    Reset {
        /// To answer with.
        token: Token,
        /// Trim point and tail of the empty log.
        at: Lsn,
        /// The state that goes with it.
        state: Box<DurableState>,
    },
    /// Save this state, then release everything below its `trimmed` by whole segments. No posted request reaches below
    /// . No answer.
    Trim {
        /// The state with the new trim point.
        state: Box<DurableState>,
    },

    // ---- being primary -------------------------------------------------------------------------------------------
    /// Open the local log for appends in this tenure: append the epoch-start record at the tail and drain it. The
    /// history that has this epoch is saved already. Answer: [`crate::Input::TenureStarted`].
    StartTenure {
        /// To answer with.
        token: Token,
        /// The proof that a quorum has fenced all older epochs.
        quorum: FenceQuorum,
        /// Where: the valid tail.
        at: Lsn,
    },
    /// Take no more reservations; answer [`crate::Input::Sealed`] once none is in flight, or [`crate::Input::Failed`]
    /// past the deadline.
    Seal {
        /// To answer with.
        token: Token,
    },
    /// The tenure is over. Commits that wait for more than has been committed end as unknown, never as success;
    /// a later [`Command::Cut`] or a watermark tells their fate.
    StepDown {
        /// The tenure that ends.
        epoch: Epoch,
        /// Why.
        reason: StopReason,
    },
    /// Make the fabric connection of this session to the peer (which answers a grant with its keys over the control
    /// plane). Answer: [`crate::Input::Granted`] or [`crate::Input::FabricDown`].
    Connect {
        /// The peer.
        peer: MemberId,
        /// The session.
        session: Session,
    },
    /// Destroy this session's connection, as primary or as a fetching candidate: stop posting, count no more
    /// completions, drain, destroy. No answer; nothing that it still completes counts.
    Disconnect {
        /// The peer.
        peer: MemberId,
        /// The session.
        session: Session,
    },
    /// Write the range into the peer's segments, then the notice with immediate into slot `slot` of its ring: one
    /// doorbell, the last work request signalled. The range may be empty, may end inside a record, and spans at most two
    /// segments. Answer: [`crate::Input::Placed`] or [`crate::Input::FabricDown`].
    Replicate {
        /// The peer.
        peer: MemberId,
        /// The session.
        session: Session,
        /// The bytes.
        range: LsnRange,
        /// The slot's content. The immediate is [`Notice::immediate`].
        notice: Notice,
        /// Which slot, `0..notice_slots`.
        slot: u32,
    },
    /// Write the heartbeat slot of the peer: a plain write that needs no credit. No answer.
    Beat {
        /// The peer.
        peer: MemberId,
        /// The session.
        session: Session,
        /// The slot's content.
        heartbeat: Heartbeat,
    },
    /// Append a record of kind configuration with this payload ([`Configuration::encode`]) among the application's. Answer:
    /// [`crate::Input::ConfigurationFound`] before the drain that covers it is told, or [`crate::Input::ConfigurationRefused`].
    AppendConfiguration(Box<Configuration>),
    /// As primary: the commit watermarks moved. Waiting commits at or below succeed by this value alone.
    Committed(CommitProof),

    // ---- being backup --------------------------------------------------------------------------------------------
    /// Invalidate every window granted to anybody (a grant asked for before and not yet made never comes into force), see
    /// the completions, drain and destroy the queue pair, and only then
    /// scan the log from the trim point or a position known to be valid. Answer: [`crate::Input::Revoked`].
    Revoke {
        /// To answer with.
        token: Token,
    },
    /// Take the primary's connection for this session if it is new, bind windows for the segments from the one that
    /// holds `from` up to `up_to`, and send the keys over the control plane. Again, with the same session, to grant
    /// more. Answer: [`crate::Input::GrantDone`], or [`crate::Input::FabricDown`].
    Grant {
        /// To answer with.
        token: Token,
        /// The primary.
        primary: MemberId,
        /// The session.
        session: Session,
        /// The first LSN that the primary will write.
        from: Lsn,
        /// A segment's base: the first LSN that stays out of reach.
        up_to: Lsn,
    },
    /// Invalidate the windows of the segments that lie wholly below: they are persisted here. No answer.
    Ungrant {
        /// The session.
        session: Session,
        /// Segments that end at or below this LSN.
        below: Lsn,
    },
    /// Parse and checksum what arrived, from the valid tail up to `to` at most, against the history. Answer:
    /// [`crate::Input::Parsed`]. At most one is unanswered at any time.
    Parse {
        /// To answer with.
        token: Token,
        /// Where to stop: the primary has sent all below.
        to: Lsn,
    },
    /// Write the acknowledgement slot at the primary. At most one is unanswered at any time. Answer:
    /// [`crate::Input::AcknowledgeDone`].
    Acknowledge {
        /// The primary.
        primary: MemberId,
        /// The slot's content.
        acknowledgement: Acknowledgement,
    },
    /// As backup: the primary's watermarks, clamped to this member's own valid tail. For readers and subscriptions.
    Learned {
        /// Placed on a quorum; revocable.
        replicated: Lsn,
        /// Persisted on a quorum.
        durable: Lsn,
    },

    // ---- a takeover ----------------------------------------------------------------------------------------------
    /// As candidate: read this range of the peer's log with RDMA Reads over a connection of this session, verify it
    /// against the history saved last, and put it into the local log. Answer: [`crate::Input::Fetched`] or
    /// [`crate::Input::FetchFailed`].
    Fetch {
        /// To answer with.
        token: Token,
        /// Whose log.
        peer: MemberId,
        /// The session; the same for all fetches from one peer in a row.
        session: Session,
        /// Starts at the local valid tail; may end inside a record.
        range: LsnRange,
    },
    /// Let this candidate read the range, over a connection of this session. No answer; revoked like a window.
    GrantRead {
        /// The candidate.
        peer: MemberId,
        /// The session.
        session: Session,
        /// What it may read.
        range: LsnRange,
    },

    // ---- for the application -------------------------------------------------------------------------------------
    /// Whom to keep a control connection with from now on, besides those that dial: every member of the configurations in force but this one.
    Members(Vec<MemberEntry>),
    /// Something that the application or the operator should see.
    Event(Event),
}

/// What the application or the operator should see.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// This member's role changed.
    Role {
        /// The new one.
        role: Role,
        /// The tenure it belongs to.
        epoch: Epoch,
    },
    /// This engine has stopped until the folder is opened again: it acknowledges, promises and grants nothing more.
    Stopped {
        /// Why.
        reason: StopReason,
    },
    /// As primary: how a peer stands.
    Peer {
        /// The peer.
        peer: MemberId,
        /// How it stands.
        status: PeerStatus,
    },
    /// As backup: by an operator's word, which has accepted a loss, the group has gone on without records that this member had released. The application here was told
    /// that they are durable, and has kept what follows from them; they are in nobody's log any more, and other records may be in their places. Whatever was done with
    /// them outside has to be set right by hand. What the application holds is to be replaced by a checkpoint of the primary's line: [`Event::SnapshotNeeded`] follows,
    /// and says how far that has to reach. (If no operator has given such a word, stop this member and compare the members' logs.)
    ReleasedGivenUp {
        /// The primary.
        primary: MemberId,
        /// Up to where this member had released its log.
        released: Lsn,
        /// The epoch of the last byte below in the primary's log.
        expected: Epoch,
        /// In the log that was released here.
        found: Epoch,
    },
    /// As backup: the primary has released what this member lacks. Install a checkpoint and answer with
    /// [`crate::Input::SnapshotInstalled`].
    SnapshotNeeded {
        /// The primary.
        primary: MemberId,
        /// The checkpoint must reach at least here: the primary's trim point, or, behind an [`Event::ReleasedGivenUp`], beyond what this member has shown as durable
        /// (8 bytes behind, which need not be a record's end).
        from: Lsn,
        /// The epoch of the last byte below, in the primary's log.
        epoch: Epoch,
    },
    /// As backup: the checkpoint that was installed holds another line than the primary's log, so the log can't go on behind it: records in it were given up
    /// by the group, and others lack. Take another checkpoint. Nothing was changed; [`Event::SnapshotNeeded`] follows.
    SnapshotOtherLine {
        /// The primary.
        primary: MemberId,
        /// Where the checkpoint ends.
        at: Lsn,
        /// The epoch of the last byte below in the primary's log.
        expected: Epoch,
        /// In the log that the checkpoint was made from.
        found: Epoch,
    },
    /// A peer was refused: close that connection, and feed nothing of it to the engine.
    Refused {
        /// The peer.
        peer: MemberId,
        /// Why.
        reason: Refusal,
    },
    /// A handover did not come about; this member's tenure has ended all the same if its log was sealed already.
    HandoverFailed {
        /// Who was to have it.
        to: MemberId,
        /// Why it has not.
        reason: HandoverError,
    },
    /// The newest configuration of this member's log, or whether it is committed, has changed.
    Configuration {
        /// It.
        configuration: Box<Configuration>,
        /// Whether it is known here to be committed: then its predecessor counts no more.
        committed: bool,
    },
    /// A change that was asked for can't be made.
    ChangeRefused {
        /// The change.
        change: Change,
        /// Why.
        reason: ChangeError,
    },
    /// This member has left the group: a configuration without it is committed. It takes part in nothing until a primary comes for it.
    NotAMember {
        /// The number of that configuration; 0 if it never was in the group, which began with others than this member has it.
        configuration: u64,
    },
    /// An operator has this member lead with what is left ([`crate::Input::AcceptLoss`]): it campaigns.
    LossAccepted {
        /// What this member may have acknowledged and gives up: from the end of its log to its mark. Empty if it lacks nothing; ends at `u64::MAX` if
        /// nobody can tell where.
        lost: LsnRange,
    },
    /// An operator has members that lost their memory count ([`crate::Input::AcceptMemoryLoss`]): this one campaigns.
    MemoryLossAccepted,
    /// An operator's word was not taken.
    LossNotAccepted {
        /// Why.
        reason: LossError,
    },
    /// A takeover can't choose a log from those who answered; it goes on trying.
    Undecided {
        /// The candidate's epoch.
        epoch: Epoch,
        /// Why.
        reason: Undecided,
    },
}

/// What this member is in its group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Follows a primary, or waits for one.
    Backup,
    /// Tries to become primary.
    Candidate,
    /// Appends are taken here.
    Primary,
    /// Was primary; the log is sealed or being sealed.
    Sealing,
    /// Cannot go on until the folder is opened again.
    Stopped,
}

/// How a peer stands with this primary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PeerStatus {
    /// Not reachable, or not yet adopted.
    Away,
    /// Takes batches.
    Streaming,
    /// What it lacks is released: it needs the application's checkpoint.
    NeedsSnapshot,
}

/// Why a handover did not come about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum HandoverError {
    /// It would lead nothing.
    #[error("it is no member of the group: it has left, or was never added")]
    NoMember,
    /// Nor would this one.
    #[error("it learns, and does not vote yet: wait until it has caught up")]
    Learner,
    /// There is no session in which it takes batches; or none any more.
    #[error("it does not follow: it is down or out of reach, or not adopted yet")]
    Away,
    /// What it lacks is released.
    #[error("it needs a checkpoint of the application first: what it lacks is trimmed")]
    NeedsSnapshot,
    /// It had not all of the sealed log on its medium within the suspicion timeout, or not all of that was committed.
    #[error("it had not all of the log on its medium in time: try again once it has caught up")]
    TooSlow,
}

/// What a batch for a peer waited for, beyond the placement of those before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StallCause {
    /// A credit: every slot of the notice ring holds a notice that the peer has not consumed.
    Credits,
    /// A window: the peer has not granted the segment that comes next.
    Window,
}

/// A primary had bytes for a peer that it could not send for a while. It is over: the batch went out, or the session ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stall {
    /// The peer.
    pub peer: MemberId,
    /// What was missing first.
    pub cause: StallCause,
    /// How long it lasted, in nanoseconds of the clock that is passed in.
    pub waited_ns: u64,
}

/// Why a peer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// It calls itself by this member's number.
    #[error("it has this member's own number: give each member its own")]
    Myself,
    /// It was founded with other members or quorums.
    #[error(
        "it has another configuration {number}: give all members of a new group the same members and quorums"
    )]
    OtherConfiguration {
        /// The number that both have.
        number: u64,
    },
    /// It came back with another disk: it must join as a new member.
    #[error(
        "its incarnation is {found:016x}, known is {known:016x}: its disk was replaced, it must join as a new member"
    )]
    OtherIncarnation {
        /// What the configuration names, or this member's superblock has.
        known: u64,
        /// What the peer said.
        found: u64,
    },
    /// Two processes run from copies of one folder.
    #[error(
        "opening {found} of its folder, but {known} is known: the folder was copied or set back, remove one of the two"
    )]
    Clone {
        /// The opening known.
        known: u64,
        /// What the peer said.
        found: u64,
    },
}

/// Why an operator's word is not taken: to lead with what is left, or that lost memory counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum LossError {
    /// This engine has stopped: it leads nothing any more.
    #[error("this member has stopped and leads nothing until it is opened again: restart it, then ask again")]
    Stopped,
    /// Somebody leads, or this member follows: nothing has to be given up.
    #[error("a primary leads: nothing is lost, and what a member lacks it gets from there")]
    Led,
    /// Of a word for lost memory: this member lacks what it may have acknowledged, which that word does not give up.
    #[error(
        "this member has lost what it may have acknowledged {}, which a word for lost memory does not give up: give it at a member that lacks nothing, or accept the loss here (`Node::accept_loss`)", Lost(*from, *mark)
    )]
    Damaged {
        /// Where its log ends.
        from: Lsn,
        /// What it may have acknowledged ends here; `u64::MAX`: nobody can tell where.
        mark: Lsn,
    },
    /// This process has published as durable what its log has lost since.
    #[error(
        "this process has shown its readers what its log has lost since: restart the member, then ask again"
    )]
    Published,
    /// This member has no vote.
    #[error("this member has no vote in the group: ask one that has")]
    NoVoter,
    /// This member's log is empty and of no epoch: nobody has led it yet, or its disk was emptied (kind 55). With another such one it would begin a new group, in epochs
    /// that the old one may have used.
    #[error(
        "this member's log is empty, at LSN {end}, and nobody has led it: its folder is new, or was emptied, and there is nothing that it could lead with. A new group begins once all of its members are reached (where one never will be, found the group again without it); in any other, give the word to a member that has a log (`Node::status` shows where each ends), and have this one replaced"
    )]
    Empty {
        /// Where it begins and ends.
        end: Lsn,
    },
}

/// Why a choice could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Undecided {
    /// Members that answered lost memory, or never had any: a new group begins with all of its members.
    #[error(
        "members that answered have lost their memory, or are new: wait for a majority without loss or for all members, or accept the loss"
    )]
    MemoryLost,
    /// A member has lost bytes that it may have acknowledged, and no log among those that answered reaches them.
    #[error("{member} has lost what it may have acknowledged {}: wait for more members", Lost(*from, *mark))]
    MarkNotReached {
        /// Who.
        member: MemberId,
        /// Where its log ends.
        from: Lsn,
        /// What it may have acknowledged ends here; `u64::MAX`: nobody can tell where.
        mark: Lsn,
    },
    /// A member knows of a commit that no log among those that answered holds.
    #[error(
        "durable is known to be {durable}, but no log among those that answered reaches it: wait for more members"
    )]
    DurableNotReached {
        /// The highest known.
        durable: Lsn,
    },
    /// All members have answered, and a member may have acknowledged what no log among them reaches: nobody else can come who has it.
    #[error(
        "all members have answered, and {member} has lost what no log among them is known to hold, and it may have acknowledged, {}: restore the folder of a member from a copy; or accept the loss at the member that is to lead (`Node::accept_loss`)", Lost(*from, *mark)
    )]
    Lost {
        /// Who.
        member: MemberId,
        /// Where its log ends.
        from: Lsn,
        /// What it may have acknowledged ends here; `u64::MAX`: nobody can tell where.
        mark: Lsn,
    },
    /// This member lacks what it may have acknowledged, and hears no primary: it does not lead, and can't be repaired until another member does.
    #[error(
        "this member has lost what it may have acknowledged {}, and hears no primary that could send it again: start the other members; where all are damaged, restore the folder of one from a copy, or accept the loss at the one that is to lead (`Node::accept_loss`)", Lost(*from, *mark)
    )]
    Damaged {
        /// Where its log ends.
        from: Lsn,
        /// What it may have acknowledged ends here; `u64::MAX`: nobody can tell where.
        mark: Lsn,
    },
    /// The chosen log has a configuration of which too few have promised.
    #[error(
        "the best log has configuration {number}, of which {promised} voters have promised and {needed} must: wait for more members"
    )]
    TooFewPromises {
        /// The configuration's number.
        number: u64,
        /// How many of its voters have promised.
        promised: usize,
        /// Its takeover quorum.
        needed: usize,
    },
    /// An operator's word is held, and too few voters answer that they hear no primary. It is tried again.
    #[error(
        "an operator's word waits for more members: {granted} voters of configuration {number} say that they hear no primary, and {needed} must"
    )]
    TooFewVotes {
        /// The number of the newest configuration here.
        number: u64,
        /// How many of its voters say so, this member among them.
        granted: usize,
        /// As many as it takes to lead and to commit.
        needed: usize,
    },
    /// An operator's word was given at a member that has no vote in the best log. The word has lapsed.
    #[error(
        "the best log has configuration {number}, in which this member has no vote: give the word at {member} instead"
    )]
    NoVote {
        /// The configuration's number.
        number: u64,
        /// Who votes in it, and has the best log if that one does.
        member: MemberId,
    },
    /// An operator has accepted a loss, and a configuration's record is in what was lost: its voters may lead without this member.
    #[error(
        "{member} has lost the record of configuration {number}, which ends at LSN {end}, and {missing}, which votes in it, has not answered: two parts of the group could lead at once. Start {missing}; if it is gone for good, restore a folder that has the record from a copy, or salvage the log and found a new group"
    )]
    ConfigurationLost {
        /// Who has lost it.
        member: MemberId,
        /// The configuration's number.
        number: u64,
        /// Where its record ended.
        end: Lsn,
        /// A voter of it that has not answered.
        missing: MemberId,
    },
    /// An operator's word was given at a member whose log ends below what the best log has released: it would need a checkpoint of a primary. The word
    /// has lapsed.
    #[error(
        "the best log is {member}'s, which has released all below LSN {trimmed}, beyond the end of this member's: give the word at {member} instead (`Node::accept_loss`, or `Node::accept_memory_loss` where only memory was lost)"
    )]
    Released {
        /// Whose log is the best.
        member: MemberId,
        /// Where that log begins.
        trimmed: Lsn,
    },
    /// Two members began with different configurations.
    #[error(
        "{member} has another configuration {number} than this member: give all members of a new group the same members and quorums"
    )]
    OtherConfiguration {
        /// Whose is another.
        member: MemberId,
        /// The number that both have.
        number: u64,
    },
    /// The chosen log's history holds as many epochs as it can, and what its member's application has released and this member knows to be committed leaves no room.
    #[error(
        "the log's history is full: trim the log on each member, and open all of them, so that what is committed is known; then one can lead"
    )]
    HistoryFull,
}

/// What a member has lost, for people.
struct Lost(Lsn, Lsn);

impl core::fmt::Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.1 {
            Lsn(u64::MAX) => write!(f, "from LSN {} on, nobody can tell how far", self.0),
            to => write!(f, "from LSN {} to {to}", self.0),
        }
    }
}

/// Why a tenure, or this engine, ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum StopReason {
    /// A peer has promised, or asked to promise, a higher epoch.
    #[error("a member has promised the higher epoch {promised}")]
    HigherEpoch {
        /// The epoch.
        promised: Epoch,
    },
    /// No quorum was heard from for the suspicion timeout.
    #[error("no quorum of the group was heard from for the suspicion timeout")]
    NoQuorum,
    /// The log took no epoch-start record for the suspicion timeout.
    #[error("the log took no record for the suspicion timeout: see whether this member's disk is full")]
    NotStarted,
    /// A configuration without this member is committed.
    #[error("this member has left the group with configuration {configuration}")]
    Removed {
        /// Its number.
        configuration: u64,
    },
    /// The log's configuration names another disk under this member's number: its primary has counted with that one.
    #[error(
        "the group knows another folder under this member's number (incarnation {known:016x}, this one's is {found:016x}): have a new member take its place, with a number and a folder of its own (`Change::Replace`)"
    )]
    OtherDisk {
        /// The configuration's.
        known: u64,
        /// This member's.
        found: u64,
    },
    /// A configuration record that this release can't read.
    #[error("the configuration record at {at} can't be read: run the release that the group runs")]
    ConfigurationUnreadable {
        /// Where.
        at: Lsn,
    },
    /// Handed over as asked.
    #[error("the tenure was handed over to {to}")]
    HandedOver {
        /// To whom.
        to: MemberId,
    },
    /// The application or an operator asked.
    #[error("it was asked to resign")]
    Asked,
    /// A reservation stayed unpublished past its deadline.
    #[error("a reservation was not published within its deadline")]
    StuckReservation,
    /// A seal's deadline passed with reservations still in flight.
    #[error(
        "reservations stayed in flight past the deadline of the seal; the log stays closed until restart"
    )]
    SealStuck,
    /// A flush failed: nothing can be acknowledged any more.
    #[error("a flush failed; nothing is acknowledged until the folder is opened again")]
    FlushFailed,
    /// A primary asks for a cut below what is known to be committed: an operator's word has given that up, or some member has broken the protocol. The process has told
    /// its readers of what is to be cut; once the folder is opened again the member follows.
    #[error(
        "the primary's log is another one from {at} on, and this process has shown its readers what is durable here up to {durable}: if an operator has accepted that loss, \
         open the folder again (start the member again), and it follows; if nobody has, compare the members' logs first"
    )]
    Contradiction {
        /// Where the histories part.
        at: Lsn,
        /// This member's durable watermark.
        durable: Lsn,
    },
    /// The log is damaged below what this member has persisted.
    #[error("the log is damaged at {at}")]
    Damaged {
        /// Where.
        at: Lsn,
    },
}
