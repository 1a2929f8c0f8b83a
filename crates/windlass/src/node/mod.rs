//! A member of a group: [`Node`]. DESIGN.md section 9.3.
//!
//! ```text
//!  application ── Node::log ──▶ Log (append, commit)        while this member is primary
//!              ── Node::read_from ──▶ NodeReader            in any role: the durable prefix
//!              ◀─ Node::events ── roles, peers, refusals
//!
//!  threads: pump (driver) · control plane · flush, superblock, segments · the fabric's agents
//! ```

mod affinity;
pub(crate) mod checkpoint;
mod close;
mod events;
mod helm;
#[cfg(any(test, feature = "faults"))]
pub(crate) mod losing;
mod members;
mod options;
mod pump;
mod read;
mod ready;
mod staging;
mod start;
mod threads;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use slog::Logger;
use windlass_engine::{
    Config, Configuration, Identity, Input, QuorumError, Quorums, Role, Status, StopReason,
};
use windlass_fabric::Fabric;
use windlass_log::{Epoch, GeometryError, LogId, Lsn, MemberId, Superblock};
use windlass_store::disk::{Errno, RealDisk};
use windlass_store::{DiskCall, DiskError, Founding, Store, StoreError};

pub use close::NodeCloseError;
pub use events::{NodeEvent, NodeEvents};
pub use members::{Members, NodeChangeError, Outside};
pub use options::{FabricChoice, NodeOptions, PumpMode};
pub use read::NodeReader;

use self::checkpoint::{AtStart, CheckpointStatus, Ledger};
use self::events::Events;
use self::helm::Steered;
use crate::clock::Clock;
use crate::commit::{CommitError, Committed, Level, Stopped};
use crate::control::ControlPlane;
use crate::control::{ControlError, Exclusion};
use crate::driver::{DriverError, GroupMeters, GroupMetrics, Port, Request};
use crate::error::{AppendError, OptionError, Outcome, ReadError, SnapshotError, TrimError};
use crate::log::{Log, random_surroundings};
use crate::metrics::{Meters, MetricsSnapshot};

/// Why a node was not made or opened.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Neither the members nor those that joined include this one, or one of them is there twice, or the members are none or too many.
    #[error(
        "{me} is neither among the members that the group began with nor among those that joined it, or the first are not 1 to {}, or a number is there twice: give every member the same list",
        Config::VOTERS_MAX
    )]
    Members {
        /// This member.
        me: MemberId,
    },
    /// The sizes of quorums can't be used.
    #[error(transparent)]
    Quorums(#[from] QuorumError),
    /// The folder's group never changed, and has other members or quorums than the options say: give every member what the group was made
    /// with; to change the group, ask its primary.
    #[error(
        "the group of {} has the members {found} and the options say {expected}: give the options what the group was made with, and change its members through its primary",
        folder.display()
    )]
    OtherGroup {
        /// The folder.
        folder: PathBuf,
        /// The options': members and quorums.
        expected: String,
        /// The folder's.
        found: String,
    },
    /// The folder was made for a member of a new group, and the options say that this member joins one: it holds nothing of the group's. Remove it,
    /// and start the member again.
    #[error(
        "{} was made for a new group of {found}, and this member is to join one that is there: remove the folder, and start the member again",
        folder.display()
    )]
    Founded {
        /// The folder.
        folder: PathBuf,
        /// The folder's members and quorums.
        found: String,
    },
    /// The folder was made for another member: check the folder and the options.
    #[error("{} belongs to {found}, not to {expected}: check the folder and the member's number; a new member begins with an empty folder", folder.display())]
    OtherMember {
        /// The folder.
        folder: PathBuf,
        /// This member.
        expected: MemberId,
        /// Whose it is.
        found: MemberId,
    },
    /// The folder was made with segments of another size: give the member's options this size, as all members.
    #[error(
        "{} has segments of {found} bytes, the options say {expected}: a log keeps the size it was made with, the same for all members",
        folder.display()
    )]
    SegmentBytes {
        /// The folder.
        folder: PathBuf,
        /// The options'.
        expected: u64,
        /// The folder's.
        found: u64,
    },
    /// The folder holds the log of one node alone.
    #[error("{} holds a log that belongs to no group: open it as a log, or start the member in an empty folder", folder.display())]
    Lone {
        /// The folder.
        folder: PathBuf,
    },
    /// Not a segment size.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// An option is out of its range.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The folder was not made.
    #[error(transparent)]
    Create(#[from] windlass_store::CreateError),
    /// The folder was not opened.
    #[error(transparent)]
    Open(#[from] windlass_store::OpenError),
    /// A system call on the folder failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The folder for images of segments is not one to trust bytes from: remove it, or name another one.
    #[error("{}: images of segments can't lie there: {what}", folder.display())]
    Staging {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The address can't be listened on: use one of this machine, and a free port.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The fabric was not opened.
    #[error("the fabric can't be opened: {0}")]
    Fabric(#[from] windlass_tcp::OpenError),
    /// The device was not opened.
    #[cfg(feature = "verbs")]
    #[error("the verbs device can't be used: {0}")]
    Verbs(#[from] windlass_verbs::OpenError),
    /// The control plane did not start.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The driver was not made.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The system gives no thread: raise the limit that it names.
    #[error(
        "the system gives no thread ({0}): raise the limit of threads (RLIMIT_NPROC, TasksMax= of a systemd unit, the pids limit of a container) or of address space (RLIMIT_AS)"
    )]
    Thread(#[source] std::io::Error),
    /// The system has no random numbers to give.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}

/// The options of a group that never changed are those that it was made with; afterwards its log decides, and the options only say where members
/// are reached.
fn same_group(folder: &Path, superblock: &Superblock, options: &NodeOptions) -> Result<(), NodeError> {
    let state = crate::driver::state::take(superblock, false).map_err(DriverError::Configuration)?;
    let [founding] = state.configurations.as_slice() else { return Ok(()) };
    let (found, expected) = (&founding.configuration, options.founding());
    if expected.is_unknown() && !found.is_unknown() && founding.end == Lsn(0) {
        return Err(NodeError::Founded { folder: folder.to_path_buf(), found: group_text(found) });
    }
    if founding.end > Lsn(0) || found.is_alike(&expected) {
        return Ok(());
    }
    let (expected, found) = (group_text(&expected), group_text(found));
    Err(NodeError::OtherGroup { folder: folder.to_path_buf(), expected, found })
}

/// The voters and the quorums of a configuration, for people.
fn group_text(configuration: &Configuration) -> String {
    let voters: Vec<String> = configuration.voters().map(|voter| voter.to_string()).collect();
    match configuration.quorums() {
        Quorums::Majority => voters.join(", "),
        Quorums::Sizes { write, takeover } => {
            format!("{} (write quorum {write}, takeover quorum {takeover})", voters.join(", "))
        }
    }
}

/// This member is not primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this member is not primary ({role:?}){}", primary_text(*primary))]
pub struct NotPrimary {
    /// What it is.
    pub role: Role,
    /// Whom it follows, if anybody: ask there.
    pub primary: Option<MemberId>,
}

fn primary_text(primary: Option<MemberId>) -> String {
    primary.map_or(String::from("; no primary is known: wait for one"), |primary| format!("; ask {primary}"))
}

/// Why a barrier was not reached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BarrierError {
    /// Ask the primary.
    #[error(transparent)]
    NotPrimary(#[from] NotPrimary),
    /// The log takes no records now.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The tenure ended, or its quorum was lost.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// How a node is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Resign, flush, mark the folder clean.
    Clean,
    /// At once, like a crash of the process.
    Abrupt,
}

/// What the handle and the pump share.
pub(crate) struct Inner {
    port: Arc<Port>,
    store: Arc<Store<RealDisk>>,
    folder: PathBuf,
    events: Arc<Events>,
    log: Mutex<Option<Log>>,
    ending: AtomicU8,
    is_unclean: AtomicBool,
    close_error: Mutex<Option<StoreError>>,
    meters: Arc<Meters>,
    group_meters: Arc<GroupMeters>,
    ledger: Arc<Ledger>,
    at_start: Arc<AtStart>,
    logger: Logger,
}

impl Inner {
    /// What is shared of this driver's node, before anything has happened to it.
    fn of<F: Fabric, C: Clock + Clone, N: ControlPlane>(
        driver: &Steered<F, C, N>,
        store: Arc<Store<RealDisk>>,
        folder: PathBuf,
        logger: Logger,
    ) -> Arc<Inner> {
        let (meters, group_meters) = driver.meters();
        Arc::new(Inner {
            port: Arc::clone(driver.port()),
            store,
            folder,
            events: Arc::new(Events::new()),
            log: Mutex::new(None),
            ending: AtomicU8::new(0),
            is_unclean: AtomicBool::new(false),
            close_error: Mutex::new(None),
            meters: Arc::clone(meters),
            group_meters: Arc::clone(group_meters),
            ledger: Arc::default(),
            at_start: Arc::default(),
            logger,
        })
    }

    fn ending(&self) -> Option<Ending> {
        match self.ending.load(Ordering::Acquire) {
            1 => Some(Ending::Clean),
            2 => Some(Ending::Abrupt),
            _ => None,
        }
    }

    fn end(&self, ending: Ending) {
        let word = match ending {
            Ending::Clean => 1,
            Ending::Abrupt => 2,
        };
        self.ending.fetch_max(word, Ordering::AcqRel);
        self.port.wake();
    }

    fn log(&self) -> MutexGuard<'_, Option<Log>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_error(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.close_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a node is, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeInfo {
    /// This member.
    pub member: MemberId,
    /// The group's log.
    pub log_id: LogId,
    /// This process.
    pub identity: Identity,
    /// Where its control plane listens.
    pub address: SocketAddr,
    /// Where it stands: role, primary, watermarks.
    pub status: Status,
    /// The application's checkpoints that come and go.
    pub checkpoints: CheckpointStatus,
}

/// What a node counts, at one moment.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// Of its log.
    pub log: MetricsSnapshot,
    /// Of the group.
    pub group: GroupMetrics,
}

/// A member of a group. Dropping it ends it like a crash of the process, without a clean mark; [`Node::close`] ends it well.
pub struct Node {
    inner: Arc<Inner>,
    member: MemberId,
    identity: Identity,
    address: SocketAddr,
    level: Level,
    replicated: bool,
    first_status: Status,
    pump: Mutex<Option<JoinHandle<()>>>,
    /// Brings checkpoints, where the application takes them.
    bringer: Mutex<Option<JoinHandle<()>>>,
    #[cfg(any(test, feature = "faults"))]
    losses: Arc<losing::Losses>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("member", &self.member)
            .field("folder", &self.inner.folder)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Makes a new member in an absent or empty folder and starts it. One that [joins](NodeOptions::joined) knows no configuration, and waits to be
    /// [added](Node::change); until a primary comes for it, it can be started as often as need be. A member that comes back with an empty folder is another
    /// incarnation, which its peers refuse under the old name (kind 55).
    ///
    /// # Errors
    ///
    /// [`NodeError`]: each variant says what to do.
    pub fn create(folder: &Path, options: NodeOptions) -> Result<Node, NodeError> {
        start::check(&options)?;
        let disk = RealDisk::create(folder).map_err(|errno| folder_error(folder, errno))?;
        let around = random_surroundings()?;
        let founding = Founding {
            log_id: options.log_id,
            member: options.me,
            incarnation: around.incarnation,
            segment_bytes: options.segment_bytes,
            epoch: None,
            configuration: crate::driver::founding_bytes(&options.founding()),
        };
        let (store, opened) = Store::create(disk, &founding, &around, &start::store_options(&options))?;
        start::start(store, opened, options)
    }

    /// Opens the member in `folder` and starts it.
    ///
    /// # Errors
    ///
    /// [`NodeError`]: each variant says what to do.
    pub fn open(folder: &Path, options: NodeOptions) -> Result<Node, NodeError> {
        start::check(&options)?;
        let disk = RealDisk::open(folder).map_err(|errno| folder_error(folder, errno))?;
        let around = random_surroundings()?;
        let (store, opened) = Store::open(disk, &around, &start::store_options(&options))?;
        let superblock = store.superblock();
        if superblock.configuration.is_empty() {
            return Err(NodeError::Lone { folder: folder.to_path_buf() });
        }
        if superblock.member != options.me {
            let (expected, found) = (options.me, superblock.member);
            return Err(NodeError::OtherMember { folder: folder.to_path_buf(), expected, found });
        }
        if superblock.segment_bytes != options.segment_bytes {
            let (expected, found) = (options.segment_bytes, superblock.segment_bytes);
            return Err(NodeError::SegmentBytes { folder: folder.to_path_buf(), expected, found });
        }
        same_group(folder, &superblock, &options)?;
        start::start(store, opened, options)
    }

    /// Opens the member in `folder`, or makes one if the folder is absent or empty.
    ///
    /// # Errors
    ///
    /// [`NodeError`].
    pub fn open_or_create(folder: &Path, options: NodeOptions) -> Result<Node, NodeError> {
        match Node::open(folder, options.clone()) {
            Err(NodeError::Open(windlass_store::OpenError::NoLog { empty: true, .. })) => {
                Node::create(folder, options)
            }
            Err(NodeError::Disk(error)) if error.errno == Errno::NOENT && error.file == folder => {
                Node::create(folder, options)
            }
            opened => opened,
        }
    }

    /// The log to append to, while this member is primary. A handle belongs to one tenure: when that ends its appends answer `Sealed`
    /// and its commits that wait end as unknown.
    ///
    /// # Errors
    ///
    /// [`NotPrimary`], with whom to ask.
    pub fn log(&self) -> Result<Log, NotPrimary> {
        let log = self.inner.log().clone();
        log.ok_or_else(|| self.not_primary())
    }

    fn not_primary(&self) -> NotPrimary {
        let status = self.status();
        NotPrimary { role: status.role, primary: status.primary.filter(|primary| *primary != self.member) }
    }

    /// What happens from now on: roles, peers, refusals.
    #[must_use]
    pub fn events(&self) -> NodeEvents {
        self.inner.events.listen()
    }

    /// Waits on this thread until this member is primary, or until the deadline.
    ///
    /// # Errors
    ///
    /// [`NotPrimary`], past the deadline.
    pub fn wait_primary(&self, deadline: Instant) -> Result<Log, NotPrimary> {
        let mut events = self.events();
        loop {
            match self.log() {
                Ok(log) => return Ok(log),
                Err(not) if events.next_blocking(Some(deadline)).is_none() => {
                    return self.log().map_err(|_| not);
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until this member, as primary, is known to be the only one, and answers an LSN: everything that was acknowledged by anybody before
    /// the call lies below it and is committed. Read up to there for a linearizable read.
    ///
    /// It appends a filler record of 32 bytes that no reader sees and commits it, so it costs what a commit costs.
    ///
    /// # Errors
    ///
    /// [`BarrierError`].
    pub async fn read_barrier(&self) -> Result<Lsn, BarrierError> {
        let (log, end) = self.barrier()?;
        let committed: Committed = log.commit(end, self.barrier_level()).await?;
        Ok(committed.end())
    }

    /// As [`Node::read_barrier`], on this thread.
    ///
    /// # Errors
    ///
    /// As [`Node::read_barrier`].
    pub fn read_barrier_blocking(&self, deadline: Option<Instant>) -> Result<Lsn, BarrierError> {
        let (log, end) = self.barrier()?;
        let committed: Committed = match deadline {
            Some(deadline) => log.commit_until(end, self.barrier_level(), deadline)?,
            None => log.commit_blocking(end, self.barrier_level())?,
        };
        Ok(committed.end())
    }

    fn barrier(&self) -> Result<(Log, Lsn), BarrierError> {
        let log = self.log()?;
        // Dropped unpublished: it becomes filler.
        let end = log.reserve(0)?.end();
        Ok((log, end))
    }

    fn barrier_level(&self) -> Level {
        if self.replicated { Level::Replicated } else { Level::Durable }
    }

    /// Reads the durable prefix of this member's log from the record that starts at `from`, in any role, and follows it across takeovers.
    ///
    /// # Errors
    ///
    /// [`ReadError::Purged`].
    pub fn read_from(&self, from: Lsn) -> Result<NodeReader, ReadError> {
        let (inner, at) = (&self.inner, (Level::Durable, from));
        NodeReader::new(&inner.store, inner.folder.clone(), &inner.port, at, true)
    }

    /// As [`Node::read_from`], up to what is known to be replicated. What is read above the durable LSN may be revoked by a takeover (R-14); the
    /// reader then ends.
    ///
    /// # Errors
    ///
    /// [`ReadError::Purged`].
    pub fn read_replicated_from(&self, from: Lsn) -> Result<NodeReader, ReadError> {
        let (inner, at) = (&self.inner, (Level::Replicated, from));
        NodeReader::new(&inner.store, inner.folder.clone(), &inner.port, at, true)
    }

    /// The application needs nothing below `to`, a record's start, of this member's log any more. What backups still need is kept within the
    /// retention; nothing above the durable LSN goes. The call leaves a wish, which is fulfilled soon.
    ///
    /// # Errors
    ///
    /// [`TrimError::Beyond`], [`TrimError::InsideRecord`]: another LSN; [`TrimError::Io`]: try again; [`TrimError::Closed`]: the node has ended. Nothing was
    /// asked for.
    pub fn trim(&self, to: Lsn) -> Result<(), TrimError> {
        self.inner.meters.trims.add(1);
        if self.inner.port.is_stopped() {
            self.inner.meters.trim_failures.add(1);
            return Err(TrimError::Closed);
        }
        if to > self.inner.store.trimmed() {
            let durable = self.inner.port.durable.value();
            let store = &self.inner.store;
            let record_around = || store.record_around(to, durable);
            crate::log::check_member_trim(to, durable, || store.starts_record(to), record_around)
                .inspect_err(|_| self.inner.meters.trim_failures.add(1))?;
        }
        self.ask(Input::Trim { to });
        Ok(())
    }

    /// The application has installed a checkpoint that stands for everything below `at`, after
    /// [`windlass_engine::Event::SnapshotNeeded`]. `at` is the end of the last record that the checkpoint knows of, and
    /// `epoch` that record's ([`Record::epoch`](crate::Record)): one of another line than the group's log is refused by
    /// [`windlass_engine::Event::SnapshotOtherLine`], and another checkpoint has to be taken. The epoch comes from where the checkpoint does, with its
    /// LSN, and not from this member's log.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`]: another LSN; nothing was asked for. One inside a record is found out only when the primary sends what is there: this
    /// member then doesn't catch up, and its lines say so.
    pub fn snapshot_installed(&self, at: Lsn, epoch: Epoch) -> Result<(), SnapshotError> {
        if !self.inner.store.geometry().is_position(at) {
            return Err(SnapshotError::NoPosition { lsn: at });
        }
        self.ask(Input::SnapshotInstalled { at, epoch });
        Ok(())
    }

    /// As primary: gives the tenure to this member without waiting for suspicion. The role events tell how it went.
    pub fn hand_over(&self, to: MemberId) {
        self.ask(Input::Handover { to });
    }

    /// Tries to become primary now: an operator or an external elector suspects the primary. Safe at any time.
    pub fn promote(&self) {
        self.ask(Input::Suspect);
    }

    /// As primary: stops being it.
    pub fn resign(&self) {
        self.ask(Input::Resign { reason: StopReason::Asked });
    }

    /// An operator's word that members which lost their memory may count when this one chooses a log (R-19): it campaigns at once. **What was acknowledged at
    /// `Replicated` alone may be lost by it.** [`windlass_engine::Event::MemoryLossAccepted`] or [`windlass_engine::Event::LossNotAccepted`] answers it, and
    /// [`windlass_engine::Event::Undecided`] tells what it waits for then. The word holds until somebody leads or this process ends. A member that is damaged, or whose
    /// log is empty and was never led, refuses it ([`windlass_engine::LossError`]).
    pub fn accept_memory_loss(&self) {
        self.ask(Input::AcceptMemoryLoss);
    }

    /// An operator's word that this member may lead with what is left, where too much was lost for any log to be chosen (R-18, R-19): it goes on from
    /// the best log among a takeover quorum that answers, and gives up what it lacks itself. **What was acknowledged may be lost by it, at any level**; so salvage
    /// or copy the members' folders first. [`windlass_engine::Event::LossAccepted`] or [`windlass_engine::Event::LossNotAccepted`] answers it, and
    /// [`windlass_engine::Event::Undecided`] tells what it waits for then. The word holds until somebody leads or this process ends.
    /// A member whose log is empty and was never led refuses it ([`windlass_engine::LossError::Empty`]): give it to one that has a log. A new group begins without.
    pub fn accept_loss(&self) {
        self.ask(Input::AcceptLoss);
    }

    fn ask(&self, input: Input) {
        self.inner.port.ask(Request::Engine(input));
    }

    /// What became of the append that got `lsn` in `epoch`, by whichever member.
    #[must_use]
    pub fn outcome(&self, epoch: Epoch, lsn: Lsn) -> Outcome {
        crate::log::outcome(&self.inner.store.superblock(), self.inner.port.durable.value(), epoch, lsn)
    }

    /// Where this member stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.port.status().unwrap_or(self.first_status)
    }

    /// Who keeps this member out of the group, and why, with what to do about it. Empty for a member that takes part.
    #[must_use]
    pub fn exclusions(&self) -> Vec<(MemberId, Exclusion)> {
        self.inner.port.excluded()
    }

    /// What this node is now.
    #[must_use]
    pub fn info(&self) -> NodeInfo {
        NodeInfo {
            member: self.member,
            log_id: self.inner.store.log_id(),
            identity: self.identity,
            address: self.address,
            status: self.status(),
            checkpoints: self.inner.ledger.status(self.inner.port.snapshot_need().map(|need| need.from)),
        }
    }

    /// The level of commits that name none.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// How many completions it has thrown away, as [`NodeOptions::lose_completions`] asks, since it was opened.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn lost_completions(&self) -> losing::LostCompletions {
        self.losses.counts()
    }

    /// What the node counts.
    #[must_use]
    pub fn metrics(&self) -> NodeMetrics {
        let log = match self.log() {
            Ok(log) => log.metrics(),
            Err(_) => {
                let status = self.status();
                let (meters, store) = (&self.inner.meters, self.inner.store.counters());
                let history = self.inner.store.superblock().history;
                MetricsSnapshot {
                    history_epochs: history.entries().len() as u64,
                    history_warning: history.is_nearly_full(),
                    trimmed: status.trimmed,
                    persisted: status.persisted.0,
                    durable: status.durable,
                    replicated: status.replicated,
                    drained: status.tail,
                    tail: status.tail,
                    records: meters.records.value(),
                    flushes: meters.flushes.value(),
                    flush_failures: meters.flush_failures.value(),
                    flush_ns: meters.flush_ns.snapshot(),
                    device_bytes: store.device_bytes,
                    flush_page_bytes: store.flushed_page_bytes,
                    superblock_writes: store.superblock_writes,
                    scrub: meters.scrub.snapshot(),
                    ..MetricsSnapshot::default()
                }
            }
        };
        NodeMetrics { log, group: self.inner.group_meters.snapshot(self.status().peers) }
    }

    /// Ends the node: as primary it hands over to a member that streams, or resigns; then it flushes, marks the folder clean, gives up its
    /// lock. Commits that wait are answered. Waits for about a second at most.
    ///
    /// # Errors
    ///
    /// [`NodeCloseError`]: but for `Within` it has ended all the same, and the next opening recovers.
    pub fn close(self) -> Result<(), NodeCloseError> {
        self.inner.store.own_process()?;
        if self.is_pump() {
            // What closes is to end, and can't wait for itself. Without a thread it ends abruptly.
            let name = format!("windlass-close-{}", self.member.0);
            let _ = std::thread::Builder::new().name(name).spawn(move || self.close());
            return Err(NodeCloseError::Within);
        }
        self.inner.end(Ending::Clean);
        self.join();
        if let Some(error) = self.inner.close_error().take() {
            return Err(NodeCloseError::Store(error));
        }
        if self.inner.is_unclean.load(Ordering::Acquire) {
            return Err(NodeCloseError::Unclean { stopped: self.status().stopped });
        }
        Ok(())
    }

    /// Whether this is the node's pump, in a waker.
    fn is_pump(&self) -> bool {
        let pump = self.pump.lock().unwrap_or_else(PoisonError::into_inner);
        pump.as_ref().is_some_and(|pump| pump.thread().id() == std::thread::current().id())
    }

    fn join(&self) {
        let pump = self.pump.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pump) = pump {
            // A panic there has been reported by the panic hook.
            let _ = pump.join();
        }
        let bringer = self.bringer.lock().unwrap_or_else(PoisonError::into_inner).take();
        checkpoint::join(bringer, &self.inner.ledger, &self.inner.logger);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.inner.store.own_process().is_err() {
            // A child that was forked off has none of the threads and none of the memory: both are its parent's.
            std::mem::forget(Arc::clone(&self.inner));
            return;
        }
        self.inner.end(Ending::Abrupt);
        if self.is_pump() {
            // In a waker, after which it ends.
            return;
        }
        self.join();
        self.inner.port.stop(&Stopped::Closed);
    }
}

fn folder_error(folder: &Path, errno: Errno) -> DiskError {
    DiskError { call: DiskCall::Open, file: folder.to_path_buf(), errno }
}
