//! How a member of a group is made and opened.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slog::Logger;
use windlass_engine::{Configuration, Limits, Quorums, Timing};
use windlass_log::{LogId, MemberId, OpenMode};

use super::checkpoint::{Checkpoints, Hook};
use crate::commit::Level;
use crate::control::{Member, Secret};

/// How the pump waits when it has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PumpMode {
    /// It never sleeps: lowest latency for a core of its own.
    Busy,
    /// It sleeps at once.
    Event,
    /// It spins for a moment, then sleeps.
    #[default]
    Adaptive,
}

/// What a member's log bytes travel by.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum FabricChoice {
    /// The software fabric over TCP, which runs everywhere.
    #[default]
    Tcp,
    /// A device, through libibverbs.
    #[cfg(feature = "verbs")]
    Verbs(Box<windlass_verbs::VerbsOptions>),
}

/// Options of a [`Node`](crate::Node). What has no default is asked for by [`NodeOptions::new`].
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub(crate) me: MemberId,
    pub(crate) members: Vec<Member>,
    pub(crate) joined: Vec<Member>,
    pub(crate) quorums: Quorums,
    pub(crate) log_id: LogId,
    pub(crate) secret: Secret,
    pub(crate) segment_bytes: u64,
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) level: Level,
    pub(crate) replicated: bool,
    pub(crate) mode: OpenMode,
    pub(crate) timing: Timing,
    pub(crate) limits: Limits,
    pub(crate) reservation_limit: Duration,
    pub(crate) full_disk_limit: Duration,
    pub(crate) any_filesystem: bool,
    pub(crate) scrub_bytes_per_second: u64,
    pub(crate) fabric: FabricChoice,
    pub(crate) without_windows: bool,
    #[cfg(any(test, feature = "faults"))]
    pub(crate) lose_completions: super::losing::LoseCompletions,
    pub(crate) fabric_bind: Option<SocketAddr>,
    pub(crate) fabric_advertise: Option<SocketAddr>,
    pub(crate) staging_folder: PathBuf,
    pub(crate) pump: PumpMode,
    pub(crate) spin: Duration,
    pub(crate) pin: Option<usize>,
    pub(crate) checkpoints: Option<Hook>,
    pub(crate) logger: Logger,
}

impl NodeOptions {
    /// Options of member `me` of the group that began with these members (1 to 15, each with the address of its control
    /// plane; `me` is among them, or [joined](NodeOptions::joined)), this log id and this secret. All members are given the same members, log id and secret.
    #[must_use]
    pub fn new(me: MemberId, members: Vec<Member>, log_id: LogId, secret: Secret) -> NodeOptions {
        NodeOptions {
            me,
            members,
            joined: Vec::new(),
            quorums: Quorums::Majority,
            log_id,
            secret,
            segment_bytes: 64 << 20,
            retention_bytes: None,
            level: Level::Durable,
            replicated: false,
            mode: OpenMode::Tail,
            timing: Timing::default(),
            limits: Limits::default(),
            reservation_limit: Duration::from_secs(10),
            full_disk_limit: Duration::from_secs(2),
            any_filesystem: false,
            scrub_bytes_per_second: crate::scrub::BYTES_PER_SECOND,
            fabric: FabricChoice::default(),
            without_windows: false,
            #[cfg(any(test, feature = "faults"))]
            lose_completions: super::losing::LoseCompletions::default(),
            fabric_bind: None,
            fabric_advertise: None,
            staging_folder: super::staging::default_folder(),
            pump: PumpMode::default(),
            spin: Duration::from_micros(50),
            pin: None,
            checkpoints: None,
            logger: Logger::root(slog::Discard, slog::o!()),
        }
    }

    /// Members that the group did not begin with: they were [added](crate::Node::change) later, or are to be, under numbers above all that were given
    /// before. Their addresses, for those who dial them; a member whose own number is among them makes its folder as one that knows
    /// nothing of the group, and waits to be added. Those that have left may stay. Default: none.
    #[must_use]
    pub fn joined(mut self, joined: Vec<Member>) -> NodeOptions {
        self.joined = joined;
        self
    }

    /// How many members commit, and how many must promise before another one leads: the same for all members of a new group. Later the log
    /// decides. Default: more than half, for both.
    #[must_use]
    pub fn quorums(mut self, quorums: Quorums) -> NodeOptions {
        self.quorums = quorums;
        self
    }

    /// Whether this member joins a group that is there.
    pub(crate) fn joins(&self) -> bool {
        self.joined.iter().any(|member| member.id == self.me)
    }

    /// All whose addresses are known.
    pub(crate) fn all_members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(&self.joined)
    }

    /// The configuration that a new folder begins with.
    pub(crate) fn founding(&self) -> Configuration {
        if self.joins() {
            return Configuration::unknown();
        }
        let founding = Configuration::founding(self.members.iter().map(|member| member.id));
        // The check of the options comes first.
        let founding = founding.clone().with_quorums(self.quorums).unwrap_or(founding);
        let address =
            |founding: Configuration, member: &Member| founding.with_address(member.id, member.address);
        self.members.iter().fold(founding, address)
    }

    /// The size of a segment, the same for all members: a power of two from 64 KiB to 4 GiB. Default 64 MiB.
    #[must_use]
    pub fn segment_bytes(mut self, segment_bytes: u64) -> NodeOptions {
        self.segment_bytes = segment_bytes;
        self
    }

    /// The cap on bytes that the application keeps between its trim point and the tail, two segments to 2^62. With one, a log at its cap could have nothing left
    /// to trim while a member is away, for which whole segments are kept, and no room to fill the next one. Default: 64 segments.
    #[must_use]
    pub fn retention_bytes(mut self, retention_bytes: u64) -> NodeOptions {
        self.retention_bytes = Some(retention_bytes);
        self
    }

    /// Trimmed bytes that are kept for backups that lag; one that is further behind needs a snapshot. A
    /// segment to 2^62; default 1 GiB.
    #[must_use]
    pub fn backup_retention_bytes(mut self, bytes: u64) -> NodeOptions {
        self.limits.retention_bytes = bytes;
        self
    }

    /// The level of commits that name none. Default [`Level::Durable`].
    #[must_use]
    pub fn level(mut self, level: Level) -> NodeOptions {
        self.level = level;
        self
    }

    /// Whether the group allows the level `Replicated`, the same for all members. Members that lost their memory then don't count
    /// when a log is chosen. Default: no.
    #[must_use]
    pub fn allow_replicated(mut self, replicated: bool) -> NodeOptions {
        self.replicated = replicated;
        self
    }

    /// What opening does with a tail that doesn't hold. Default [`OpenMode::Tail`].
    #[must_use]
    pub fn mode(mut self, mode: OpenMode) -> NodeOptions {
        self.mode = mode;
        self
    }

    /// After how much silence a primary is suspected, 4 ms to an hour. Heartbeats come twenty times as often, at most each ms. Default 400 ms.
    #[must_use]
    pub fn suspicion(mut self, suspicion: Duration) -> NodeOptions {
        let ns = u64::try_from(suspicion.as_nanos()).unwrap_or(u64::MAX);
        self.timing.suspicion_ns = ns;
        self.timing.heartbeat_ns = (ns / 20).max(1_000_000);
        self
    }

    /// All times of the protocol: each from 1 ns to an hour, `suspicion_ns` from 4 ms and at least four times `heartbeat_ns`.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> NodeOptions {
        self.timing = timing;
        self
    }

    /// All sizes of the protocol, the same for all members: `batch_bytes` and `fetch_bytes` from 4096 to 1 GiB, `notice_slots` and `segments_ahead` from 1 to
    /// 64, `batches_in_flight` and `stream_batches_in_flight` from 1 to 16, `stream_bytes` from 1 to 2^62, `flush_lag_bytes` from 1 to 2^62, `retention_bytes` from a segment to 2^62.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> NodeOptions {
        self.limits = limits;
        self
    }

    /// How long a reservation may stay unpublished before the tenure ends, and how long its end waits for one. 1 ms to a day. Default
    /// 10 s.
    #[must_use]
    pub fn reservation_limit(mut self, limit: Duration) -> NodeOptions {
        self.reservation_limit = limit;
        self
    }

    /// How long a primary bears that its disk is full, refusing appends, before it hands over to a member that has room for more. Where all
    /// disks are full nothing changes. Default 2 s; [`Duration::MAX`] is never.
    #[must_use]
    pub fn full_disk_limit(mut self, limit: Duration) -> NodeOptions {
        self.full_disk_limit = limit;
        self
    }

    /// Use a filesystem on which the store's promises are not known to hold. Default: refuse.
    #[must_use]
    pub fn any_filesystem(mut self, any_filesystem: bool) -> NodeOptions {
        self.any_filesystem = any_filesystem;
        self
    }

    /// How many bytes of cold segments, those behind the persisted mark's, are read from the medium and checked a second, on a thread of their own, again and
    /// again; 0: none. What is found damaged is had again from the group. Default 1 MiB: 64 GiB in 18 hours.
    #[must_use]
    pub fn scrub_bytes_per_second(mut self, bytes: u64) -> NodeOptions {
        self.scrub_bytes_per_second = bytes;
        self
    }

    /// What log bytes travel by, the same for all members. Default [`FabricChoice::Tcp`].
    ///
    /// Of a device's options the log's folder is filled in: how its files are registered is tried there.
    #[must_use]
    pub fn fabric(mut self, fabric: FabricChoice) -> NodeOptions {
        self.fabric = fabric;
        self
    }

    /// Runs as on a device that has no memory windows: what peers write into is registered for each session by itself, which ends with it. Members
    /// with and without can be mixed. Default: windows, where the device has them.
    #[must_use]
    pub fn without_windows(mut self, without_windows: bool) -> NodeOptions {
        self.without_windows = without_windows;
        self
    }

    /// For tests: throws completions away, as a device does that loses them. What they would have told is done all the same. Default: none.
    #[cfg(any(test, feature = "faults"))]
    #[must_use]
    pub fn lose_completions(mut self, lose: super::losing::LoseCompletions) -> NodeOptions {
        self.lose_completions = lose;
        self
    }

    /// A folder on a memory filesystem (tmpfs), in which the member makes one of its own for images of live segments, where the device can't
    /// write into the log's files: a few segments of memory. They outlive a process that crashes, whose next opening takes them over,
    /// and go with a clean end. Default `/dev/shm`.
    #[must_use]
    pub fn staging_folder(mut self, folder: PathBuf) -> NodeOptions {
        self.staging_folder = folder;
        self
    }

    /// Where the `tcp` fabric listens. Default: the address of this member's control plane, at a free port.
    #[must_use]
    pub fn fabric_bind(mut self, address: SocketAddr) -> NodeOptions {
        self.fabric_bind = Some(address);
        self
    }

    /// What peers dial to reach the `tcp` fabric, where that is not what it listens on: a forwarded port. Default: what it listens on.
    #[must_use]
    pub fn fabric_advertise(mut self, address: SocketAddr) -> NodeOptions {
        self.fabric_advertise = Some(address);
        self
    }

    /// How the pump waits. Default [`PumpMode::Adaptive`].
    #[must_use]
    pub fn pump(mut self, pump: PumpMode) -> NodeOptions {
        self.pump = pump;
        self
    }

    /// How long to spin before sleeping, in mode [`PumpMode::Adaptive`], at most 1 s. Default 50 µs.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> NodeOptions {
        self.spin = spin;
        self
    }

    /// Keep the pump on this processor. One that is not there is said in a line, and changes nothing. Default: with a device, on those of its NUMA node, where the machine has several.
    #[must_use]
    pub fn pin(mut self, processor: usize) -> NodeOptions {
        self.pin = Some(processor);
        self
    }

    /// How the application gives and takes checkpoints: a member whose log can't go on, because its group has released what it lacks, is then brought one by
    /// the node. Default: none is given, and what is needed the application brings by itself ([`Node::snapshot_installed`](crate::Node::snapshot_installed)).
    #[must_use]
    pub fn checkpoints(mut self, checkpoints: Arc<dyn Checkpoints>) -> NodeOptions {
        self.checkpoints = Some(Hook(checkpoints));
        self
    }

    /// Where the node writes its few lines. Default: nowhere.
    ///
    /// Unlike wakers its drain is called by whoever steps the node, while it does: it must not use the node or its log, and while it blocks no heartbeat goes out.
    /// One that writes to what may block, such as a pipe, belongs behind a thread of its own (`slog-async`).
    #[must_use]
    pub fn logger(mut self, logger: Logger) -> NodeOptions {
        self.logger = logger;
        self
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.all_members().find(|member| member.id == self.me).map(|member| member.address)
    }

    pub(crate) fn fabric_address(&self, control: IpAddr) -> SocketAddr {
        self.fabric_bind.unwrap_or(SocketAddr::new(control, 0))
    }

    pub(crate) fn fabric_advertised(&self) -> Option<SocketAddr> {
        self.fabric_advertise
    }

    pub(crate) fn retention(&self) -> u64 {
        self.retention_bytes.unwrap_or(self.segment_bytes.saturating_mul(64))
    }
}
