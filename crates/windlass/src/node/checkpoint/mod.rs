//! Checkpoints of the application, streamed from a member that has one to a member whose log can't go on without.
//!
//! ```text
//!  taker                                                            giver (a backup first, the primary last)
//!  event: snapshot needed ── keep the log from there ──▶ primary
//!  Checkpoints::position: reaches as far already? then no stream
//!                            ── a connection of its own: the group's proof, hello, "at least LSN" ──▶ Checkpoints::open
//!  Checkpoints::begin ◀────── at LSN, epoch, bytes ────────────────────────────────────────────────── checked: committed, a record's start
//!  CheckpointSink::chunk ◀─── chunks, each with its sum; at most CREDITS under way ────────────────── Checkpoint::content
//!  CheckpointSink::finish ◀── end: bytes and sum of all
//!  SnapshotInstalled ───────▶ engine: history and configurations of the primary, log reset, durable; then it resumes at LSN
//! ```
//!
//! 1. **The log is reset after the application's word alone**: [`CheckpointSink::finish`] has returned, so the checkpoint is durable. A crash before
//!    finds the old log, which asks again; a crash between the two finds it again, and [`Checkpoints::position`] then says that nothing has to be streamed.
//! 2. **A checkpoint is of what is committed**: its giver checks that it ends at a record's start at or below what it knows to be [`committed`](committed()), its taker that its epoch there is
//!    the primary's. History and configurations (R-20) are the primary's own, from the offer that the log goes on with, and never the giver's.
//! 3. **Nothing is believed**: every length is checked before anything is allocated, memory is bounded by [`wire::CREDITS`] chunks at each end.
//! 4. **The pump waits for nothing here**: sockets are tasks of the control plane's thread, the application is called by threads of this module.
//!
//! Not for incremental checkpoints: a stream that was cut begins anew, at another member if there is one. DESIGN.md section 9.10.

mod committed;
mod give;
mod status;
mod take;
mod wire;

use std::fmt;
use std::io::Read;

use windlass_log::{Epoch, LogId, Lsn, MemberId};

pub(crate) use committed::{AtStart, committed};
pub(crate) use give::Giver;
pub use status::{CheckpointStatus, Giving, Taking};
pub(crate) use status::{Given, Ledger};
pub(crate) use take::{Bringer, run as bring};
pub use wire::{CHECKPOINT_CHUNK_BYTES_MAX, WireError};

/// What went wrong in the application. Its text is shown to the operator of this member, and told to no peer.
pub type CheckpointFault = Box<dyn std::error::Error + Send + Sync>;

/// What an application does about checkpoints, as giver and as taker: [`NodeOptions::checkpoints`](crate::NodeOptions::checkpoints).
///
/// Every call comes from a thread that may wait as long as it likes, never from the node's pump; calls may come at the same time. A call that
/// never returns keeps its thread, and the [end of the node](crate::Node::close) waits for it for a second.
pub trait Checkpoints: Send + Sync + 'static {
    /// Up to where what is **durable** in the application holds the log: everything that was committed below, at [`Level::Durable`](crate::Level::Durable), is in it, and nothing
    /// else. What was read or subscribed to at a lower level counts once it is durable, and not before: others take it for committed. It may lie beyond the end of this
    /// member's log, after a crash between [`CheckpointSink::finish`] and the log's reset.
    ///
    /// Asked when the node starts, unless its log is empty, and again where a checkpoint is needed here. What it says at the start is known to be committed: checkpoints up
    /// to there are given to others although the group has told this member less since.
    ///
    /// # Errors
    ///
    /// Anything: it is told as [`CheckpointError::Application`], and asked again.
    fn position(&self) -> Result<CheckpointPosition, CheckpointFault>;

    /// Opens a checkpoint that reaches at least `least`, to be read from its beginning to its end while it stays as it is. A peer needs one: make a new one
    /// where the last one is too old. Meanwhile the peer keeps the connection; there is no deadline.
    ///
    /// # Errors
    ///
    /// Anything: the peer is told that this member has none, and asks another one.
    fn open(&self, least: Lsn) -> Result<Checkpoint, CheckpointFault>;

    /// A checkpoint is about to come: opens what takes it. Nothing of it may be seen before it is [finished](CheckpointSink::finish).
    ///
    /// # Errors
    ///
    /// Anything: the stream is given up, and begun again after a while.
    fn begin(&self, offered: &OfferedCheckpoint) -> Result<Box<dyn CheckpointSink>, CheckpointFault>;
}

/// Up to where an application holds a log, and which line of it: an LSN alone says nothing of that, since a group that has lost members may have gone on
/// with other records at the same LSNs (failure kind 52).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointPosition {
    /// The end of the last record that it holds, [`Record::end`](crate::Record); `Lsn(0)` if it holds nothing.
    pub at: Lsn,
    /// That record's [`Record::epoch`](crate::Record), or [`OfferedCheckpoint::epoch`] of a checkpoint that was taken, kept durably with the LSN;
    /// [`Epoch::NONE`] if it holds nothing. One that is not the primary's there has another checkpoint brought.
    pub epoch: Epoch,
}

impl CheckpointPosition {
    /// Of an application that holds nothing.
    pub const NOTHING: CheckpointPosition = CheckpointPosition { at: Lsn(0), epoch: Epoch::NONE };
}

/// A checkpoint that is open to be read.
pub struct Checkpoint {
    /// Up to where it holds the log: everything below is in it, nothing at or above. A record's start at or below the durable LSN, or at or below what
    /// [`Checkpoints::position`] said when the node started. Its epoch is kept in the checkpoint, and not asked of the log: an application may have stayed in a line that its
    /// group has given up while its member's log went on in another, and is refused by it ([`NotGiven::OtherLine`]).
    pub position: CheckpointPosition,
    /// How many bytes it has, if that is known: for progress alone.
    pub bytes: Option<u64>,
    /// Its bytes. Read in pieces of at most [`CHECKPOINT_CHUNK_BYTES_MAX`]; dropped when the stream is over, whichever way.
    pub content: Box<dyn Read + Send>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("position", &self.position)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// What a peer offers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OfferedCheckpoint {
    /// The group's log.
    pub log_id: LogId,
    /// Whose it is.
    pub giver: MemberId,
    /// Where the log goes on behind it.
    pub at: Lsn,
    /// The epoch of the last byte below.
    pub epoch: Epoch,
    /// How many bytes it has, if the giver knows.
    pub bytes: Option<u64>,
}

/// What takes a checkpoint. Dropped without [`finish`](CheckpointSink::finish), the stream was given up: what was taken is to be thrown away, now or when
/// the application opens the next time.
pub trait CheckpointSink: Send {
    /// The next bytes, in order, 1 to [`CHECKPOINT_CHUNK_BYTES_MAX`]. They have arrived as they left.
    ///
    /// # Errors
    ///
    /// Anything: the stream is given up, and begun again after a while.
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), CheckpointFault>;

    /// That was all of it: length and sum hold. Makes it **durable** and what the application holds from now on, in one step that a crash can't split, before it
    /// returns; [`Checkpoints::position`] then answers its LSN and epoch. The log is thrown away after that.
    ///
    /// # Errors
    ///
    /// Anything: the log stays as it is. The stream is begun again after a while, unless `position` says that it was finished after all.
    fn finish(self: Box<Self>) -> Result<(), CheckpointFault>;
}

/// What the application was asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CheckpointStep {
    /// [`Checkpoints::position`].
    Position,
    /// [`Checkpoints::begin`].
    Begin,
    /// [`CheckpointSink::chunk`].
    Chunk,
    /// [`CheckpointSink::finish`].
    Finish,
}

impl fmt::Display for CheckpointStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CheckpointStep::Position => "saying how far it is",
            CheckpointStep::Begin => "beginning to take it",
            CheckpointStep::Chunk => "taking a chunk",
            CheckpointStep::Finish => "making it durable",
        })
    }
}

/// Why a peer gives no checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum NotGiven {
    /// Give its node the application's checkpoints.
    #[error("its application gives no checkpoints: give them to its node (NodeOptions::checkpoints)")]
    NoHook,
    /// It gives to others, still has its application open one for this member from before, or is not up yet.
    #[error(
        "it gives checkpoints to as many as it may already, has one open for this member from before, or is only starting"
    )]
    Busy,
    /// The application's newest one does not reach far enough.
    #[error("its checkpoint reaches LSN {at}, at least {least} is needed")]
    TooOld {
        /// How far it reaches.
        at: Lsn,
        /// What was asked for.
        least: Lsn,
    },
    /// The checkpoint holds what is not known to be committed: a defect of its application, or of what [`Checkpoints::position`] said when its node started (nothing, or of a
    /// line that the group has given up). Have its application open one that ends at `durable` or before.
    #[error("its checkpoint reaches LSN {at}, beyond what is known to be committed there ({durable})")]
    NotCommitted {
        /// How far it reaches.
        at: Lsn,
        /// Up to where it would be given: the durable LSN there, or what its application held when its node started.
        durable: Lsn,
    },
    /// The checkpoint is of another line than the member's log: it holds what the group has given up, and its application has not followed. Give that application a checkpoint of
    /// a member whose application has, or have a new member take that one's place.
    #[error(
        "its application holds what the group has given up: the byte below LSN {at} is of epoch {found} in its checkpoint and of {expected} in its log; give that application the \
         checkpoint of another member, or have a new member take its place"
    )]
    OtherLine {
        /// The checkpoint's end.
        at: Lsn,
        /// The log's.
        expected: Epoch,
        /// The checkpoint's.
        found: Epoch,
    },
    /// A defect of its application: the checkpoint ends inside a record.
    #[error("its checkpoint ends at LSN {at}, where no record starts")]
    InsideRecord {
        /// Where.
        at: Lsn,
    },
    /// Opening or reading it failed there; its own lines say why.
    #[error("its application could not open or read it: its own log says why")]
    Application,
}

/// Why a checkpoint was not taken. It is tried again, from another member if there is one, until the log goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// No member that is connected can be asked: start one.
    #[error("no other member is connected: start one that has what this one lacks")]
    Nobody,
    /// The giver could not be reached, or did not let this member in: its own lines say why.
    #[error("the connection for it was not made: the giver is down, or its own log says why")]
    Unreachable,
    /// The connection was lost, or the giver fell silent.
    #[error("the connection was lost after {bytes} bytes")]
    Lost {
        /// What had arrived.
        bytes: u64,
    },
    /// The giver has said why not.
    #[error(transparent)]
    NotGiven(#[from] NotGiven),
    /// What arrived is not what a giver sends: a defect there, or on the way.
    #[error("what arrived is no checkpoint: {0}")]
    Wire(#[from] WireError),
    /// The checkpoint, a giver's or what the application had, is of another line than the primary's log: it holds what the group has given up.
    #[error("the byte below LSN {at} is of epoch {found} in the checkpoint and of {expected} at the primary")]
    OtherLine {
        /// The checkpoint's end.
        at: Lsn,
        /// The primary's.
        expected: Epoch,
        /// The checkpoint's.
        found: Epoch,
    },
    /// The checkpoint ends where no record can start.
    #[error("no record starts at LSN {at}")]
    NoPosition {
        /// Its end.
        at: Lsn,
    },
    /// The primary has released what comes behind it: the retention for backups is shorter than the stream takes.
    #[error(
        "it reaches LSN {at}, and the primary has released what lies below {from} by now: raise backup_retention_bytes"
    )]
    Superseded {
        /// The checkpoint's end.
        at: Lsn,
        /// The primary's trim point.
        from: Lsn,
    },
    /// The log can't go on there: the primary has released more by now, or its log does not reach there.
    #[error("the log can't go on at LSN {at}: the primary has released more by now, or its log ends before")]
    Refused {
        /// Where the application is.
        at: Lsn,
    },
    /// The log went on without it.
    #[error("it is not needed any more")]
    NotNeeded,
    /// This application's answer.
    #[error("the application failed {step}: {message}")]
    Application {
        /// What it was asked to do.
        step: CheckpointStep,
        /// What it said.
        message: String,
    },
    /// The application panicked.
    #[error("the application panicked while it took it")]
    Panicked,
}

impl CheckpointError {
    fn application(step: CheckpointStep) -> impl FnOnce(CheckpointFault) -> CheckpointError {
        move |fault| CheckpointError::Application { step, message: fault.to_string() }
    }
}

/// The application's checkpoints, among a node's options.
#[derive(Clone)]
pub(crate) struct Hook(pub(crate) std::sync::Arc<dyn Checkpoints>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checkpoints(..)")
    }
}

/// How long the end of a node waits for what the application was called to do.
const LEAVE: std::time::Duration = std::time::Duration::from_secs(1);

/// Waits for the threads that call the application; its connections are closed already.
pub(crate) fn join(bringer: Option<std::thread::JoinHandle<()>>, ledger: &Ledger, logger: &slog::Logger) {
    let until = std::time::Instant::now() + LEAVE;
    let is_idle = || ledger.status(None).giving.is_empty();
    while !(is_idle() && bringer.as_ref().is_none_or(std::thread::JoinHandle::is_finished)) {
        if std::time::Instant::now() >= until {
            return slog::warn!(
                logger,
                "the application still works on a checkpoint: the node has ended without it"
            );
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    if let Some(bringer) = bringer {
        // A panic there has been reported by the panic hook.
        let _ = bringer.join();
    }
}
