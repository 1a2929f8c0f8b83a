//! The driver: joins the engine, a fabric, the store and a control plane. DESIGN.md section 9.2.
//!
//! A [`Driver`] does what the engine orders and tells it what happened. It is stepped: [`Driver::step`] takes one turn and never
//! waits, [`Driver::wait`] waits for the next reason to take one. There is no thread, no real time and no randomness in here: work
//! that may wait for the disk goes to an [`Executor`], time comes from a [`Clock`], frames from a [`ControlPlane`]. A pump thread
//! steps it in production (`node`), a simulator by hand; both run this code.
//!
//! ```text
//!                    ┌────────────── Driver ──────────────┐
//!  appends ─ drain ─▶│                                    │◀─▶ fabric: sessions (outgoing, incoming), windows
//!  commits ◀─ marks ─│ inputs ─▶ Engine ─▶ commands ─▶ ...│◀─▶ control plane: frames
//!  requests ────────▶│                                    │──▶ executor: flush, superblock, segments
//!                    └────────────────────────────────────┘
//! ```
//!
//! A turn, in order: completions, finished work, frames, requests, the drain, the sessions; then the engine; then its commands.
//! Commands that must take effect one after the other (`Save`, `Cut`, `Reset`, `Trim`, `Revoke`, `StartTenure`) queue.
//!
//! Rules kept here: R-2 (a connection is destroyed before a segment is recycled or cut; what a request may still touch is held by
//! it), R-4 (arrived bytes are parsed against the history), R-6 (memory comes from a store that has begun), R-9 and R-10 (deadlines of
//! reservations and seals), R-13 (a notice is read before its credit goes back), R-16 (nothing of a session that was
//! disconnected counts).

mod answer;
mod arrivals;
mod execute;
mod executor;
mod first_page;
mod full;
mod gather;
mod head;
mod incoming;
mod lead;
mod local;
mod look;
mod members;
mod memory;
mod meters;
mod news;
mod outgoing;
mod port;
mod prefetch;
mod provider;
mod quiet;
mod requests;
mod resend;
mod scrub;
mod sessions;
mod slots;
mod staging;
pub(crate) mod state;
mod trim_again;
mod windows;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, warn};
use windlass_engine::{
    Config, Configuration, DurableState, Engine, Event, Identity, Input, Opening, Persisted, Refusal, Role,
    StallCause, StopReason,
};
use windlass_fabric::{Completion, CompletionQueue, CompletionQueueError, Fabric, PollError, Wake};
use windlass_log::{Epoch, Lsn, MemberId};
use windlass_store::disk::Disk;
use windlass_store::{Damage, Opened, Store, UpdateError};

pub(crate) use answer::{Asked, question};
pub use executor::{Done, Executor, InlineExecutor, Lane, Work};
pub(crate) use members::ChangeFailure;
pub(crate) use meters::GroupMeters;
pub use meters::GroupMetrics;
pub(crate) use port::{Attend, Port, Request};
pub use state::{ConfigurationError, committed_configuration, founding_bytes, note_configuration};

use self::executor::Outcome;
use self::lead::Lead;
use self::local::Local;
use self::memory::{SegmentError, Use};
use self::news::{Call, News};
use self::provider::{check_capabilities, memory_error, note_found, segments};
use self::sessions::Sessions;
use crate::clock::Clock;
use crate::commit::{Failure, Level, Stopped};
use crate::control::{ControlPlane, Exclusion, Frame};
use crate::log::{Log, NoSegment};
use crate::metrics::Meters;

/// Completions taken in one turn.
const COMPLETIONS: usize = 128;
/// Room for completions in all.
const QUEUE_CAPACITY: u32 = 8192;
/// How long a session may take to become ready.
const SESSION_NS: u64 = 2_000_000_000;
/// How long invalidations and draining may take before connections are destroyed without. They complete behind what was posted before,
/// which a frozen primary never answers: a takeover waits this long then, at each member in turn.
const REVOKE_NS: u64 = 50_000_000;
/// The longest wait, whatever the engine says.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// What a driver is made with, beside its parts.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// What the engine is to be: this member, its group, times and limits.
    pub config: Config,
    /// The level of commits that name none.
    pub level: Level,
    /// The cap on bytes between trim point and tail that the application may use.
    pub retention_bytes: u64,
    /// How long a reservation may stay unpublished (R-9), and a seal wait for one (R-10).
    pub reservation_limit: Duration,
    /// How long a primary bears that its disk is full before it hands over to a member that has room.
    pub full_disk_limit: Duration,
    /// How many bytes of cold segments are read and checked a second; 0: none.
    pub scrub_bytes_per_second: u64,
    /// For the few lines.
    pub logger: Logger,
}

/// A driver could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The provider lacks what replication needs. Remedy: another provider, or another device.
    #[error("the {provider} provider can't be used: {lack}")]
    Unsuitable {
        /// The provider.
        provider: &'static str,
        /// What it lacks.
        lack: &'static str,
    },
    /// No completion queue.
    #[error(transparent)]
    Queue(#[from] CompletionQueueError),
    /// The superblock's configuration can't be read.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The folder for images of segments is not on a memory filesystem, where alone they can be pinned. Remedy: one on a tmpfs, such as
    /// `/dev/shm`.
    #[error("{} is not on a memory filesystem: name a folder on a tmpfs (such as /dev/shm) for the images of segments", folder.display())]
    StagingFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// Memory for the device could not be made or registered.
    #[error("memory for the device: {source}")]
    Memory {
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The clean mark could not be taken away (R-6).
    #[error("the folder can't be put to use: {0}")]
    Begin(#[from] UpdateError),
}

/// What a driver tells whoever steps it.
#[derive(Debug)]
pub enum DriverEvent {
    /// This member's role changed. As primary, with the log to append to.
    Role {
        /// The new one.
        role: Role,
        /// The tenure it belongs to.
        epoch: Epoch,
        /// The log, if the role is primary.
        log: Option<Log>,
    },
    /// A tenure of this member is over.
    SteppedDown {
        /// The tenure.
        epoch: Epoch,
        /// Why.
        reason: StopReason,
    },
    /// Something that was on this member's medium is damaged: it is had again from the group, and the member does not lead until it has it.
    Damaged {
        /// What, and where.
        damage: Damage,
    },
    /// Everything that was damaged or lost here is on the medium again.
    Repaired {
        /// The end of the log by now.
        tail: Lsn,
    },
    /// A peer keeps this member out.
    Excluded {
        /// Who.
        by: MemberId,
        /// Why, and what to do.
        exclusion: Exclusion,
    },
    /// Anything else that the engine has to say.
    Engine(Event),
}

/// The parts that a driver joins.
#[derive(Debug)]
pub struct Parts<F, D: Disk, C, N, X> {
    /// The fabric.
    pub fabric: F,
    /// The open store. [`Store::begin`] is called by the driver.
    pub store: Arc<Store<D>>,
    /// How it was opened.
    pub opened: Opened,
    /// The clock.
    pub clock: C,
    /// The control plane.
    pub control: N,
    /// Who does what waits for the disk.
    pub executor: X,
    /// A folder on a memory filesystem, this member's alone, for images of live segments: used where the device can't write into mapped
    /// files of the store's disk, and needed there.
    pub staging: Option<D>,
}

/// How a driver has ended, for whoever closes its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The end of the local log.
    pub tail: Lsn,
    /// No producer can write into the log's memory any more. If not, the store may be neither closed nor let go of (R-10).
    pub is_quiet: bool,
    /// The log ends at the tail, and all work on the store that is still under way leaves it there: [`Store::close`] is right. Otherwise
    /// [`Store::abandon`] is: the next opening finds the end.
    pub is_clean: bool,
}

/// One member's driver. See the module.
pub struct Driver<F: Fabric, D: Disk, C, N, X> {
    // Sessions go before the queue and the fabric that they were made from.
    sessions: Sessions<F>,
    local: Local<F, D>,
    queue: F::CompletionQueue,
    fabric: F,
    engine: Engine,
    clock: C,
    control: N,
    executor: X,
    port: Arc<Port>,
    meters: Arc<Meters>,
    group_meters: Arc<GroupMeters>,
    lead: Option<Lead>,
    /// The handle for the application, while a tenure lasts.
    log: Option<Log>,
    ordered: VecDeque<execute::Ordered>,
    running: Option<execute::Running>,
    inputs: VecDeque<Input>,
    events: VecDeque<DriverEvent>,
    completions: Box<[Completion]>,
    frames: Vec<Frame>,
    wanted_told: Lsn,
    flush_since: u64,
    /// Records that arrived here since the last flush was ordered.
    parsed_unflushed: u64,
    /// Commit watermarks that the engine has moved and nobody was told of.
    committed: Option<(Lsn, Lsn)>,
    /// Until when the next group may fill.
    gather_until_ns: Option<u64>,
    /// How long a flush takes, a running mean.
    flush_mean_ns: u64,
    unsound: quiet::Unsound,
    /// A configuration that the engine wants in the log, until the log takes it.
    appending: Option<Configuration>,
    trim_again: trim_again::TrimAgain,
    /// A change of the group that somebody waits for.
    waiting: Option<members::Waiting>,
    full_disk: full::FullDisk,
    scrubber: scrub::Scrubber,
    /// Since when this member is a candidate.
    candidate_since: Option<u64>,
    identity: Identity,
    folder: PathBuf,
    options: DriverOptions,
    stopped: Option<StopReason>,
    news: News,
    /// Why the device does not take the next segment.
    segment_refused: Option<String>,
    /// The peers that are kept out, as they were when that was decided.
    excluded: BTreeMap<MemberId, Refusal>,
}

impl<F, D, C, N, X> std::fmt::Debug for Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl<F, D, C, N, X> Drop for Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
{
    /// However it goes, nobody waits for it for ever. [`Driver::end`] has said so already, unless the pump panicked.
    fn drop(&mut self) {
        if let Some(lead) = &self.lead {
            lead.tenure.fail(&Failure::Store { what: "the node's pump", cause: "it is gone".into() });
        }
        self.port.stop(&Stopped::Closed);
    }
}

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    /// Joins the parts. The store begins (R-6); the engine starts as a backup that hears nobody.
    ///
    /// # Errors
    ///
    /// [`DriverError`].
    ///
    /// # Panics
    ///
    /// If the configuration contradicts itself or the store (another member, another segment size).
    pub fn new(
        parts: Parts<F, D, C, N, X>,
        mut options: DriverOptions,
    ) -> Result<Driver<F, D, C, N, X>, DriverError> {
        let Parts { fabric, store, mut opened, clock, control, executor, staging } = parts;
        check_capabilities(&fabric)?;
        let superblock = store.superblock();
        assert_eq!(superblock.member, options.config.me, "the folder is another member's");
        assert_eq!(store.geometry(), options.config.geometry, "the folder has another segment size");
        store.begin()?;
        let message_max = u64::from(fabric.capabilities().message_bytes_max);
        options.config.limits.batch_bytes = options.config.limits.batch_bytes.min(message_max);
        let queue = fabric.completion_queue(QUEUE_CAPACITY.min(fabric.capabilities().completions_max))?;
        let mut state = state::take(&store.superblock(), opened.memory_lost)?;
        let trimmed = state.trimmed;
        let ahead = options.config.limits.segments_ahead;
        let segments = segments(&fabric, &store, staging, ahead)?;
        // R-18: what was placed in an image and not written to the log's files is not seen by the opening.
        let is_seen = segments.last_left().is_none() || !options.config.replicated_allowed;
        state.mark = match opened.acknowledged_max.filter(|_| is_seen || opened.damage.is_empty()) {
            Some(most) => Persisted(most),
            None => DurableState::MARK_UNKNOWN,
        };
        let mut local = Local::new(store, segments, state.history.clone(), opened.tail);
        // What was placed in an image before the process died.
        let tail = local.adopt(&fabric).map_err(memory_error)?;
        if tail > opened.tail {
            let found = local.take_configurations();
            note_found(&local.store, &found, &mut state)?;
            // R-11: the engine takes all below the tail for persisted, and what came from an image is in the page cache alone.
            local.store.flush(tail).map_err(UpdateError::from)?;
        }
        let now = nanos(clock.now());
        let engine = Engine::new(options.config.clone(), Opening { state, valid_tail: tail }, now);
        let port = Arc::new(Port::new(trimmed));
        let waker = queue.waker();
        port.set_wake(Box::new(move || waker.wake()));
        let folder = local.store.disk().path().to_path_buf();
        let group_meters = Arc::<GroupMeters>::default();
        let sessions = Sessions::new(
            &fabric,
            options.config.geometry,
            options.config.limits.notice_slots,
            Arc::clone(&group_meters),
        );
        let damage = std::mem::take(&mut opened.damage);
        let mut driver = Driver {
            sessions,
            local,
            queue,
            fabric,
            engine,
            clock,
            control,
            executor,
            port,
            meters: Arc::default(),
            group_meters,
            lead: None,
            log: None,
            ordered: VecDeque::new(),
            running: None,
            inputs: VecDeque::new(),
            events: VecDeque::new(),
            completions: vec![Completion::BLANK; COMPLETIONS].into_boxed_slice(),
            frames: Vec::new(),
            wanted_told: Lsn(0),
            flush_since: 0,
            parsed_unflushed: 0,
            committed: None,
            gather_until_ns: None,
            flush_mean_ns: 0,
            unsound: quiet::Unsound::default(),
            appending: None,
            trim_again: trim_again::TrimAgain::default(),
            waiting: None,
            scrubber: scrub::Scrubber::new(options.scrub_bytes_per_second),
            full_disk: full::FullDisk::new(nanos(options.full_disk_limit)),
            candidate_since: None,
            identity: options.config.identity,
            folder,
            news: News::new(&options.config, now),
            options,
            stopped: None,
            segment_refused: None,
            excluded: BTreeMap::new(),
        };
        driver.opened_damaged(damage);
        let (newest, committed) = (driver.engine.configuration(), driver.engine.is_configuration_committed());
        driver.port.set_configuration(newest, committed);
        // Who is to be added to a group knows it by its options alone.
        if !driver.engine.configuration().is_unknown() {
            driver.news.configured(driver.engine.configuration());
            driver.control.set_members(driver.engine.configuration().number(), &driver.engine.members());
        }
        Ok(driver)
    }

    /// Takes one turn: everything that can be done now is done. Whether anything was; if not, [`Driver::wait`] before the next one.
    ///
    /// # Errors
    ///
    /// [`PollError`]: the fabric is unusable. Drop the driver and open the node again.
    pub fn step(&mut self) -> Result<bool, PollError> {
        let now = self.now();
        let mut worked = self.take_completions()?;
        worked |= self.take_done(now);
        worked |= self.take_frames();
        worked |= self.take_requests();
        worked |= self.drain();
        self.turn_sessions(now);
        worked |= !self.inputs.is_empty();
        while let Some(input) = self.inputs.pop_front() {
            self.engine.handle_input(now, input);
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        while let Some(command) = self.engine.poll_command() {
            worked = true;
            self.execute(command, now);
        }
        self.publish();
        self.settle_change();
        while let Some(stall) = self.engine.poll_stall() {
            match stall.cause {
                StallCause::Credits => self.group_meters.credit_stall_ns.record(stall.waited_ns),
                StallCause::Window => self.group_meters.window_stall_ns.record(stall.waited_ns),
            }
        }
        worked |= self.go_on_with_ordered(now);
        self.go_on_with_pending(now);
        let tail = self.tail();
        self.local.prepare(&mut self.executor, tail, now);
        self.local.sync_mark(&mut self.executor, now);
        self.leave_full_disk(now);
        self.care(now);
        if self.news.is_due(now) {
            let (status, is_new) = (self.engine.status(), self.local.history.entries().is_empty());
            self.news.look(&self.options.logger, &status, is_new, now);
        }
        Ok(worked || !self.inputs.is_empty())
    }

    /// Waits until a turn may be worth while: something happened, a waker was used, the engine's time has come, or `longest` is over.
    ///
    /// # Errors
    ///
    /// As [`Driver::step`].
    pub fn wait(&mut self, longest: Duration) -> Result<(), PollError> {
        let now = self.now();
        let until = [
            self.engine.poll_timeout(),
            self.local.retry_at(),
            self.gather_until_ns,
            self.scrubber.due_at(),
            self.trim_again.due_at(),
        ]
        .into_iter()
        .flatten()
        .min();
        let timeout = until.map_or(WAIT_MAX, |at| Duration::from_nanos(at.saturating_sub(now)));
        self.queue.wait(timeout.min(longest).min(WAIT_MAX)).map(|_| ())
    }

    /// What happened that the application should see, oldest first.
    pub fn poll_event(&mut self) -> Option<DriverEvent> {
        self.events.pop_front()
    }

    /// When the engine wants its next turn at the latest, in nanoseconds of the clock.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.engine.poll_timeout()
    }

    /// Feeds the engine: what an operator or an application asks for.
    pub fn ask(&mut self, input: Input) {
        self.inputs.push_back(input);
    }

    /// Whether nothing of this node may be written any more: no tenure whose reservations are in flight.
    fn is_quiet(&self) -> bool {
        self.lead.as_ref().is_none_or(Lead::is_quiet)
    }

    /// Whether no command is taking effect, or waits to: a cut, for example, after which the log ends elsewhere.
    fn is_settled(&self) -> bool {
        self.running.is_none() && self.ordered.is_empty()
    }

    /// Whether a clean end is possible now: no reservation is in flight and nothing is taking effect.
    #[must_use]
    pub fn may_end(&self) -> bool {
        self.is_quiet() && self.is_settled()
    }

    /// Ends everything: sessions are destroyed, whoever waits is answered. The store is left to the caller.
    pub fn end(&mut self) -> Ended {
        // What is taking effect may move the log's end: a clean mark would be set at the old one.
        // A clean mark would vouch for what damage has taken.
        let status = self.engine.status();
        let is_whole = status.stopped.is_none() && !status.damaged && self.is_settled();
        let tail = self.shut_down();
        let is_quiet = self.is_quiet();
        // A clean mark would vouch for a configuration that the superblock has not.
        let is_told = !self.inputs.iter().any(|input| matches!(input, Input::ConfigurationFound(_)));
        Ended { tail, is_quiet, is_clean: is_whole && is_quiet && is_told }
    }

    fn shut_down(&mut self) -> Lsn {
        self.log = None;
        if let Some(lead) = &self.lead {
            lead.tenure.handoff.seal();
            // A failure is no news any more.
            let _ = lead.tenure.drain(&self.clock, self.options.reservation_limit, &self.meters);
            lead.tenure.watermarks.stop(&Stopped::Closed);
            lead.tenure.handoff.retire();
        }
        self.sessions.end_all();
        self.port.stop(&Stopped::Closed);
        if self.lead.is_none() {
            // What has arrived and was not looked at yet belongs to the log, too.
            let _ = self.scan(None);
        }
        self.tail()
    }

    /// The folder of images, if there is one, whose files are not needed any more once the store is closed cleanly. Nothing else is done with
    /// the driver after this but to drop it.
    pub(crate) fn take_staging(&mut self) -> Option<D> {
        self.local.segments.take_staging()
    }

    fn now(&self) -> u64 {
        nanos(self.clock.now())
    }

    /// The end of the local log: drained as primary, valid otherwise.
    fn tail(&self) -> Lsn {
        match &self.lead {
            Some(lead) => lead.tenure.watermarks.drained.value(),
            None => self.local.valid_tail(),
        }
    }

    fn take_completions(&mut self) -> Result<bool, PollError> {
        let mut any = false;
        loop {
            let count = self.queue.poll(&mut self.completions)?;
            for completion in &self.completions[..count] {
                any = true;
                self.sessions.completed(completion, &mut self.inputs);
            }
            if count < self.completions.len() {
                return Ok(any);
            }
        }
    }

    fn take_done(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(Done(outcome)) = self.executor.poll() {
            any = true;
            match outcome {
                Outcome::Flushed { token, persisted } => {
                    self.flushed(persisted.0, now.saturating_sub(self.flush_since));
                    self.inputs.push_back(Input::Flushed { token, persisted });
                }
                Outcome::Saved { token } | Outcome::Cut { token } => self.ordered_done(Some(token)),
                Outcome::Trimmed => self.ordered_done(None),
                Outcome::NotTrimmed { cause, again } => {
                    self.meters.trim_failures.add(1);
                    warn!(self.options.logger, "the log was not trimmed"; "cause" => cause);
                    again.into_iter().for_each(|to| self.trim_again.refused(to, now));
                    self.ordered_done(None);
                }
                Outcome::Prepared(result) => self.prepared(result, now),
                Outcome::MarkSynced => self.local.mark_synced(),
                Outcome::Scrubbed(result) => self.scrubbed(result, now),
                Outcome::Distrusted { damage } => {
                    self.ordered_done(None);
                    self.distrusted(damage);
                }
                Outcome::Failed { reason, cause } => self.medium_failed(reason, &cause),
            }
        }
        any
    }

    fn flushed(&mut self, persisted: Lsn, took_ns: u64) {
        self.meters.flushes.add(1);
        self.meters.flush_ns.record(took_ns);
        self.flush_mean_ns = self.flush_mean_ns - self.flush_mean_ns / 8 + took_ns / 8;
        if let Some(lead) = &self.lead {
            lead.tenure.handoff.set_persisted(persisted);
            let marks = &lead.tenure.watermarks;
            marks.persisted.advance(persisted.min(marks.drained.value())).wake();
        }
    }

    /// Nothing is acknowledged any more (kind 24): whoever waits is told, and so is the engine.
    fn medium_failed(&mut self, reason: StopReason, cause: &str) {
        warn!(self.options.logger, "the medium failed; this member stops until it is opened again";
            "folder" => %self.folder.display(), "cause" => cause);
        self.meters.flush_failures.add(1);
        self.trim_again.forget();
        if let Some(lead) = &self.lead {
            let failure = Failure::Store { what: "flushing", cause: cause.into() };
            lead.tenure.fail(&failure);
        }
        self.running = None;
        self.ordered.clear();
        self.inputs.push_back(Input::Failed { reason });
    }

    fn prepared(&mut self, result: Result<windlass_store::Prepared, windlass_store::PrepareError>, now: u64) {
        if let Err(error) = &result
            && self.local.prepare_failure() != Some(error)
        {
            warn!(self.options.logger, "no segment could be made"; "folder" => %self.folder.display(), "cause" => %error);
        }
        self.local.prepared(result, now);
        if let Some(log) = &self.log {
            log.set_prepare_failure(self.local.prepare_failure().cloned().map(NoSegment::Make));
        }
        self.install_segments();
    }

    /// Hands the segments that are ready to the tenure's producers, registered ahead of their use.
    fn install_segments(&mut self) {
        let Some(lead) = &self.lead else { return };
        loop {
            let next = lead.next_segment();
            match self.local.segments.obtain(&self.fabric, &self.local.store, next, Use::Send) {
                Ok(segment) => {
                    if !lead.install(next, segment.memory.clone()) {
                        return;
                    }
                }
                Err(SegmentError::NotReady { .. }) => break,
                Err(error) => return self.segment_refused(next, error.to_string()),
            }
        }
        self.segment_refused = None;
    }

    /// The device does not take a segment that is there: whoever waits for it is told at once, as of one that can't be made. It is tried again at each append.
    fn segment_refused(&mut self, segment: u64, cause: String) {
        if self.segment_refused.as_ref() != Some(&cause) {
            warn!(self.options.logger, "a segment can't be used"; "segment" => segment, "cause" => &cause);
        }
        if let Some(log) = &self.log {
            log.set_prepare_failure(Some(NoSegment::Unusable(cause.clone())));
        }
        self.segment_refused = Some(cause);
    }

    fn take_requests(&mut self) -> bool {
        let mut any = false;
        while let Some(request) = self.port.take() {
            any = true;
            match request {
                Request::Engine(input) => {
                    if matches!(input, Input::Suspect) {
                        self.news.called(Call::Asked);
                    }
                    self.inputs.push_back(input);
                }
                Request::Prepare => self.local.look(),
                Request::Look(lsn) => self.scrubber.look(lsn),
                Request::Change(change, answer) => self.ask_change(change, answer),
            }
        }
        any
    }

    /// Looks at what producers published and what committers want.
    fn drain(&mut self) -> bool {
        if self.is_gathering() {
            return false;
        }
        self.append_configuration();
        let Some(lead) = &mut self.lead else { return false };
        // What is wanted goes first, so that the batch with the bytes says it, too.
        // Not more than there is: a handle of an earlier tenure may have asked for what was cut since.
        let wanted = self.port.wanted().min(lead.tenure.handoff.tail());
        let is_wanted = wanted > self.wanted_told;
        if is_wanted {
            self.wanted_told = wanted;
            self.inputs.push_back(Input::DurableWanted { to: wanted });
        }
        let before = lead.tenure.watermarks.drained.value();
        let input = lead.turn(&self.clock, self.options.reservation_limit, &self.meters);
        let after = lead.tenure.watermarks.drained.value();
        if after > before {
            let marks = &lead.tenure.watermarks;
            [&marks.persisted, &marks.replicated, &marks.durable].iter().for_each(|mark| mark.drained(after));
        }
        let geometry = self.local.geometry();
        if geometry.segment_of(before) != geometry.segment_of(after) {
            lead.tenure.handoff.retire();
            self.local.release_cold();
            self.install_segments();
        }
        let any = input.is_some() || is_wanted;
        self.inputs.extend(input);
        self.end_lead();
        any
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
