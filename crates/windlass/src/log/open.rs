//! Making and opening a log, and the threads that run behind one.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use slog::{info, warn};
use windlass_log::{
    Epoch, HISTORY_ENTRIES_MAX, HISTORY_ENTRIES_NEARLY_FULL, Handoff, InstallError, LogId, Lsn, MemberId,
    Tenure as Start,
};
pub use windlass_store::Surroundings;
use windlass_store::disk::{Disk, Errno, RealDisk};
use windlass_store::{
    DiskCall, DiskError, Founding, Holder, OpenCutError, OpenTrimError, Opened, Store, UnsafeFilesystem,
    Vouch,
};

use super::closing::Closing;
use super::media::Media;
use super::shared::{Fixed, OnMedia, Shared, Standing, locked};
use super::tenure::{Tenure, Watermarks};
use super::{Log, NoSegment};
use crate::clock::{Clock, MonotonicClock};
use crate::error::{CreateError, OpenError};
use crate::metrics::Meters;
use crate::options::{Options, default_retention};

/// Where a log lives and what time it goes by: real by default, simulated where a simulator wants it.
#[derive(Debug)]
pub struct Place<D> {
    /// The folder.
    pub disk: D,
    /// The machine's boot and a random number.
    pub around: Surroundings,
    /// A random identity for a log that is to be made.
    pub log_id: LogId,
    /// The clock.
    pub clock: Box<dyn Clock>,
}

impl Place<RealDisk> {
    fn real(disk: RealDisk) -> Result<Place<RealDisk>, DiskError> {
        let mut log_id = [0; 16];
        random(&mut log_id)?;
        Ok(Place {
            disk,
            around: random_surroundings()?,
            log_id: LogId(log_id),
            clock: Box::new(MonotonicClock::new()),
        })
    }
}

fn random(bytes: &mut [u8]) -> Result<(), DiskError> {
    let failed = |_| DiskError { call: DiskCall::Read, file: "/dev/urandom".into(), errno: Errno::IO };
    getrandom::fill(bytes).map_err(failed)
}

/// This machine's boot and a random incarnation.
pub(crate) fn random_surroundings() -> Result<Surroundings, DiskError> {
    let mut incarnation = [0; 8];
    random(&mut incarnation)?;
    Ok(Surroundings { boot_id: boot_id(), incarnation: u64::from_le_bytes(incarnation) })
}

/// The machine's boot. Where it can't be told, each opening counts as another boot, which only makes recovery more careful.
fn boot_id() -> [u8; 16] {
    let mut id = [0; 16];
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let parsed = digits
        .chunks_exact(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let count = id.iter_mut().zip(parsed).map(|(byte, value)| *byte = value).count();
    if count < id.len() && getrandom::fill(&mut id).is_err() {
        id = [0; 16];
    }
    id
}

impl Log {
    /// Makes a new log in an absent or empty folder. All of it or nothing, durable before it returns.
    ///
    /// # Errors
    ///
    /// [`CreateError`]: each variant says what to do.
    pub fn create(folder: &Path, options: Options) -> Result<Log, CreateError> {
        // Before the folder is made.
        options.check()?;
        windlass_log::Geometry::new(options.segment_bytes).map_err(windlass_store::CreateError::from)?;
        let disk = RealDisk::create(folder).map_err(|errno| folder_error(folder, errno));
        let place = disk.and_then(Place::real).map_err(windlass_store::CreateError::from)?;
        Log::create_in(place, options)
    }

    /// Opens the log in `folder` and recovers it, if it was not closed cleanly: finds its end, and refuses damage. It then goes on in a new epoch.
    ///
    /// What the last process had appended and no mark says to be on the medium is written again and flushed in the background: the log can be read at
    /// once. What needs it waits for it: the first append, commits, a reader that has come to what no mark vouches for, [`outcome`](Log::outcome), trimming,
    /// truncating and closing; futures and subscriptions without blocking their thread. If it fails the log has failed, as by any failed flush.
    /// `info().persisted` is the mark as it was found until it is done. Without [threads](Options::threads) it is done before this returns.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: each variant says what to do.
    pub fn open(folder: &Path, options: Options) -> Result<Log, OpenError> {
        options.check()?;
        let disk = RealDisk::open(folder).map_err(|errno| folder_error(folder, errno));
        let place = disk.and_then(Place::real).map_err(windlass_store::OpenError::from)?;
        Log::open_in(place, options)
    }

    /// Opens the log in `folder`, or makes one if the folder is absent or empty. Everything else that can't be opened is an error,
    /// never a reason to make a new log (kind 37).
    ///
    /// # Errors
    ///
    /// [`OpenError`]; what keeps a log from being made is [`OpenOrCreateError::Create`].
    pub fn open_or_create(folder: &Path, options: Options) -> Result<Log, OpenOrCreateError> {
        match Log::open(folder, options.clone()) {
            Err(OpenError::Store(windlass_store::OpenError::NoLog { empty: true, .. })) => {
                Ok(Log::create(folder, options)?)
            }
            Err(OpenError::Store(windlass_store::OpenError::Disk(error)))
                if error.errno == Errno::NOENT && error.file == folder =>
            {
                Ok(Log::create(folder, options)?)
            }
            opened => Ok(opened?),
        }
    }

    /// Opens the log in `folder`, which is damaged at `lsn` or behind it, by giving up everything from `lsn` on: a record's start or end, and no older than the trim
    /// point. What is cut is not looked at; what is kept must be whole from where an opening begins to check. The cut and the new epoch are durable before it
    /// returns, and no crash brings back what was cut. A log that opens is cut by [`Log::truncate`].
    ///
    /// # Errors
    ///
    /// [`OpenTruncatedError`]: nothing was cut, unless a system call failed, after which the next opening tells.
    pub fn open_truncated(folder: &Path, options: Options, lsn: Lsn) -> Result<Log, OpenTruncatedError> {
        options.check().map_err(OpenError::from)?;
        let disk = RealDisk::open(folder).map_err(|errno| folder_error(folder, errno));
        let place = disk
            .and_then(Place::real)
            .map_err(|error| OpenError::Store(windlass_store::OpenError::from(error)))?;
        let Place { disk, around, clock, .. } = place;
        let store_options = opening_options(&options);
        let (store, opened) =
            Store::open_cut(disk, &around, &store_options, lsn).map_err(|error| match error {
                OpenCutError::Open(error) => OpenTruncatedError::Open(error.into()),
                OpenCutError::Member { folder } => OpenTruncatedError::Open(OpenError::Member { folder }),
                OpenCutError::Trimmed { lsn, trimmed: first } => OpenTruncatedError::Purged { lsn, first },
                OpenCutError::InsideRecord { lsn } => OpenTruncatedError::InsideRecord { lsn },
                OpenCutError::Beyond { lsn, end } => OpenTruncatedError::Beyond { lsn, end },
            })?;
        Ok(start(store, &opened, clock, &options)?)
    }

    /// Opens a log of one node as [`Log::open`] does, having released everything before `lsn`, a record's start or the tail: the way out where the log has had so many openings
    /// after a crash since its trim point that its superblock holds no more epochs. As with [`Log::trim`], whoever orders it vouches that nothing before is needed.
    ///
    /// # Errors
    ///
    /// [`OpenTrimmedError`]: each variant says what to do.
    pub fn open_trimmed(folder: &Path, options: Options, lsn: Lsn) -> Result<Log, OpenTrimmedError> {
        options.check().map_err(OpenError::from)?;
        let disk = RealDisk::open(folder).map_err(|errno| folder_error(folder, errno));
        let place = disk
            .and_then(Place::real)
            .map_err(|error| OpenError::Store(windlass_store::OpenError::from(error)))?;
        Log::open_trimmed_in(place, options, lsn)
    }

    /// As [`Log::open_trimmed`], in a place of the caller's making.
    ///
    /// # Errors
    ///
    /// As [`Log::open_trimmed`].
    pub fn open_trimmed_in<D: Disk>(
        place: Place<D>,
        options: Options,
        lsn: Lsn,
    ) -> Result<Log, OpenTrimmedError> {
        options.check().map_err(OpenError::from)?;
        let Place { disk, around, clock, .. } = place;
        let opened = Store::open_trimmed(disk, &around, &opening_options(&options), lsn);
        let (store, opened) = opened.map_err(|error| match error {
            OpenTrimError::Open(error) => OpenTrimmedError::Open(error.into()),
            OpenTrimError::Member { folder } => OpenTrimmedError::Open(OpenError::Member { folder }),
            OpenTrimError::InsideRecord { lsn, record } => OpenTrimmedError::InsideRecord { lsn, record },
            OpenTrimError::Beyond { lsn, end } => OpenTrimmedError::Beyond { lsn, end },
        })?;
        Ok(start(store, &opened, clock, &options)?)
    }

    /// As [`Log::create`], in a place of the caller's making.
    ///
    /// # Errors
    ///
    /// As [`Log::create`].
    pub fn create_in<D: Disk>(place: Place<D>, options: Options) -> Result<Log, CreateError> {
        options.check()?;
        let Place { disk, around, log_id, clock } = place;
        let member = MemberId(0);
        let founding = Founding {
            log_id: options.log_id.unwrap_or(log_id),
            member,
            incarnation: around.incarnation,
            segment_bytes: options.segment_bytes,
            epoch: Some(Epoch::NONE.next_for(member)),
            configuration: Vec::new(),
        };
        let geometry =
            windlass_log::Geometry::new(options.segment_bytes).map_err(windlass_store::CreateError::from)?;
        let store_options = store_options(&options, options.retention_for(geometry));
        let (store, opened) = Store::create(disk, &founding, &around, &store_options)?;
        Ok(start(store, &opened, clock, &options)?)
    }

    /// As [`Log::open`], in a place of the caller's making.
    ///
    /// # Errors
    ///
    /// As [`Log::open`].
    pub fn open_in<D: Disk>(place: Place<D>, options: Options) -> Result<Log, OpenError> {
        options.check()?;
        let Place { disk, around, clock, .. } = place;
        // Before anything is written: an opening moves the persisted mark, and a member's has to note the configurations behind it.
        if Store::holder(&disk)? == Holder::Member {
            return Err(OpenError::Member { folder: disk.path().to_path_buf() });
        }
        let (store, opened) = Store::open(disk, &around, &opening_options(&options))?;
        start(store, &opened, clock, &options)
    }
}

/// Why [`Log::open_or_create`] came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpenOrCreateError {
    /// There is a log, or something else, and it can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no log, and none could be made.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Why [`Log::open_truncated`] came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpenTruncatedError {
    /// It can't be opened, cut or not: what is kept has damage too, or something else is amiss. Cut at the damage that is named, or before it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The LSN was trimmed: cut at `first` or behind it.
    #[error("LSN {lsn} has been trimmed, the log starts at LSN {first}")]
    Purged {
        /// What was asked for.
        lsn: Lsn,
        /// The first LSN of the log.
        first: Lsn,
    },
    /// The LSN lies inside a record. Use one that an append or a reader gave.
    #[error("no record starts at LSN {lsn}: use an LSN that an append or a reader gave")]
    InsideRecord {
        /// What was asked for.
        lsn: Lsn,
    },
    /// The log ends before.
    #[error("LSN {lsn} is beyond the end of the log at LSN {end}")]
    Beyond {
        /// What was asked for.
        lsn: Lsn,
        /// The end of the log.
        end: Lsn,
    },
}

/// Why [`Log::open_trimmed`] came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpenTrimmedError {
    /// It can't be opened. Where the store says that the history has too many epochs, it is trimmed, and not far enough: trim it further.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The LSN lies inside a record. Use one that an append or a reader gave.
    #[error("no record starts at LSN {lsn}: use an LSN that an append or a reader gave")]
    InsideRecord {
        /// What was asked for.
        lsn: Lsn,
        /// The record that holds it, where that is known.
        record: Option<std::ops::Range<Lsn>>,
    },
    /// The log ends before.
    #[error("LSN {lsn} is beyond the end of the log at LSN {end}")]
    Beyond {
        /// What was asked for.
        lsn: Lsn,
        /// The end of the log.
        end: Lsn,
    },
}

fn folder_error(folder: &Path, errno: Errno) -> DiskError {
    DiskError { call: DiskCall::Open, file: folder.to_path_buf(), errno }
}

/// The store's options for a log that exists.
fn opening_options(options: &Options) -> windlass_store::Options {
    // The default cap counts in segments, whose size is only known once the log is open: assume the largest pool.
    let assumed = options.retention_bytes.unwrap_or_else(|| default_retention(options.segment_bytes));
    let vouch = if options.threads { Vouch::Later } else { Vouch::Opening };
    windlass_store::Options { vouch, ..store_options(options, assumed) }
}

fn store_options(options: &Options, retention_bytes: u64) -> windlass_store::Options {
    windlass_store::Options {
        mode: options.mode,
        log_id: options.log_id,
        retention_bytes,
        segments_ahead: options.ahead_segments,
        segments_ahead_max: options.ahead_segments + AHEAD_MORE,
        unsafe_filesystem: if options.any_filesystem {
            UnsafeFilesystem::Use
        } else {
            UnsafeFilesystem::Refuse
        },
        ..windlass_store::Options::default()
    }
}

/// Starts a lone log on an open store.
fn start<D: Disk>(
    store: Store<D>,
    opened: &Opened,
    clock: Box<dyn Clock>,
    options: &Options,
) -> Result<Log, OpenError> {
    let (Some(epoch), Some(chain)) = (opened.epoch, opened.chain) else {
        return Err(OpenError::Member { folder: store.disk().path().to_path_buf() });
    };
    let settled = store.is_vouched();
    if settled {
        // no append before the clean mark is gone.
        store
            .begin()
            .map_err(|error| OpenError::Begin { folder: store.disk().path().to_path_buf(), cause: error })?;
    }
    let persisted = store.persisted().lsn();
    let (geometry, log_id, folder) = (store.geometry(), store.log_id(), store.disk().path().to_path_buf());
    let is_nearly_full = store.superblock().history.is_nearly_full();
    let meters = Arc::new(Meters::default());
    let media: Box<dyn Media> = Box::new(Arc::new(store));
    let slots = slots(options);
    let begins = Start { geometry, log_id, epoch, tail: opened.tail, chain, persisted, slots };
    let tenure = lone_tenure(begins, &meters);
    if settled {
        tenure.install_ready(&*media);
    }
    let fixed = Fixed {
        folder,
        media,
        geometry,
        log_id,
        standing: Standing::Lone,
        level: options.level,
        retention_bytes: options.retention_for(geometry),
        ahead_segments: options.ahead_segments,
        scrub_bytes_per_second: options.scrub_bytes_per_second,
        reservation_limit: options.reservation_limit,
        clock,
        meters,
        logger: options.logger.clone(),
    };
    info!(options.logger, "the log is open"; "folder" => %fixed.folder.display(), "log" => %log_id, "epoch" => %epoch,
        "tail" => %opened.tail, "clean" => opened.clean, "rewritten_bytes" => opened.rewritten_bytes,
        "cut" => opened.cut, "persisted" => %persisted);
    if is_nearly_full {
        warn!(options.logger, "the log has had at least {} epochs since its trim point, it can hold {}: trim it (`Log::trim`), or it will not open after a crash", HISTORY_ENTRIES_NEARLY_FULL,
            HISTORY_ENTRIES_MAX; "folder" => %fixed.folder.display());
    }
    Ok(Owner::start(Shared::new(fixed, Arc::new(tenure)), slots, options.threads))
}

impl Log {
    /// The handle of a group's primary for one tenure: same append path, and a driver behind it instead of threads. The node owns
    /// the folder, so closing the handle closes nothing.
    pub(crate) fn member(fixed: Fixed, tenure: Arc<Tenure>) -> Log {
        let shared = Arc::new(Shared::new(fixed, tenure.clone()));
        let owner = Owner {
            shared: shared.clone(),
            closed: AtomicBool::new(true),
            closing: Closing::done(),
            slots: 0,
            threads: false,
            running: Mutex::default(),
        };
        Log { owner: Arc::new(owner), shared, tenure }
    }

    /// Lets appends go on after a trim.
    pub(crate) fn raise_limit(&self) {
        self.shared.raise_limit();
    }

    /// Why the next segment is not there, for the errors of appends and for those that wait for it.
    pub(crate) fn set_prepare_failure(&self, failure: Option<NoSegment>) {
        self.shared.note_prepared(&self.tenure, failure);
    }
}

/// How many segments more are ready ahead while appends come fast and trimmed ones are there to be used again. A thread that the scheduler takes off its
/// core in the middle of an append, or the helper, may be away for several milliseconds, and producers fill a segment of the default size in 6.
const AHEAD_MORE: u64 = 8;

/// Slots of the hand-off's ring: the tail's segment, those ahead, and those that are still being drained.
fn slots(options: &Options) -> usize {
    usize::try_from(options.ahead_segments + AHEAD_MORE + 2)
        .unwrap_or(usize::MAX / 2)
        .next_power_of_two()
        .max(4)
}

/// A tenure of a lone log, with no segment installed yet.
pub(super) fn lone_tenure(start: Start, meters: &Arc<Meters>) -> Tenure {
    let (tail, persisted) = (start.tail, start.persisted);
    let (handoff, drain) = Handoff::new(start);
    let marks = Watermarks::lone(persisted, tail, handoff.ready());
    Tenure::new(drain, marks, meters.clone())
}

impl Tenure {
    /// Installs the segments that are there, and lets those go on who wait for them.
    pub(super) fn install_ready(&self, media: &dyn Media) {
        install_ready(media, &self.handoff);
        self.watermarks.ready.advance(self.handoff.ready()).wake();
    }
}

/// Installs the segments that are there, from the next one on. The helper goes on from there.
pub(super) fn install_ready(media: &dyn Media, handoff: &Handoff) {
    let geometry = media.geometry();
    loop {
        let next = geometry.segment_of(handoff.ready());
        let Ok(memory) = media.memory(next) else { return };
        match handoff.install(next, memory) {
            Ok(()) => {}
            Err(InstallError::RingFull { .. }) => return,
        }
    }
}

/// Owns the threads behind a log; closes it when the last handle is gone.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    pub(super) closed: AtomicBool,
    pub(super) closing: Closing,
    slots: usize,
    threads: bool,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Owner {
    /// Starts the threads behind a log, if it is to have any, and makes the first handle.
    pub(super) fn start(shared: Shared, slots: usize, threads: bool) -> Log {
        let shared = Arc::new(shared);
        let tenure = shared.tenure();
        let owner = Owner {
            shared: shared.clone(),
            closed: AtomicBool::new(false),
            closing: Closing::default(),
            slots,
            threads,
            running: Mutex::default(),
        };
        if threads {
            let helped = shared.clone();
            owner.spawn("windlass-helper", move || helped.run_helper());
            if shared.scrub_bytes_per_second > 0 {
                let scrubbed = shared.clone();
                owner.spawn("windlass-scrub", move || scrubbed.run_scrub());
            }
            owner.follow(&tenure);
        }
        Log { owner: Arc::new(owner), shared, tenure }
    }

    /// Whether closing has begun; always so for the handle of a group's primary, whose node closes the folder.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether threads may be made.
    pub(super) fn threads(&self) -> bool {
        self.threads
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Lets a flush thread serve this tenure's futures, in place of the one before.
    pub(super) fn follow(&self, tenure: &Arc<Tenure>) {
        if self.threads {
            let (shared, tenure) = (self.shared.clone(), tenure.clone());
            self.spawn("windlass-flush", move || tenure.gate.run_flush_thread(&OnMedia(&shared, &tenure)));
        }
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) {
        // Without its helper or flush thread a log would keep whoever waits waiting for ever.
        struct FailOnPanic(Arc<Shared>);
        impl Drop for FailOnPanic {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    let cause = "it panicked".into();
                    self.0.fail(crate::commit::Failure::Store { what: "a thread behind the log", cause });
                }
            }
        }
        let guard = FailOnPanic(self.shared.clone());
        let body = move || {
            guard.0.begin_behind();
            let _guard = guard;
            body();
        };
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        match spawned {
            Ok(handle) => {
                let mut running = locked(&self.running);
                // A thread that has ended keeps its stack for as long as its handle is kept: each truncation ends a flush thread.
                running.retain(|before| !before.is_finished());
                running.push(handle);
            }
            Err(error) => {
                let cause = error.to_string().into();
                self.shared.fail(crate::commit::Failure::Store { what: "starting a thread", cause });
            }
        }
    }

    /// Ends the threads. A thread that drops the last handle itself is not waited for.
    pub(super) fn join(&self, tenure: &Tenure) {
        self.shared.helper.stop();
        self.shared.scrub.stop();
        tenure.gate.stop_flush_thread();
        let me = std::thread::current().id();
        for handle in locked(&self.running).drain(..) {
            if handle.thread().id() != me && handle.join().is_err() {
                slog::error!(self.shared.logger, "a thread behind the log panicked"; "folder" => %self.shared.folder.display());
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.is_closed() {
            // Whoever closed it was told how that went.
            return;
        }
        if let Err(error) = self.close() {
            slog::error!(self.shared.logger, "the log was not closed cleanly"; "folder" => %self.shared.folder.display(),
                "cause" => %error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_log_that_is_cut_again_and_again_keeps_no_thread_of_the_tenures_that_ended() {
        let place = tempfile::tempdir().unwrap();
        let mut log = Options::new()
            .segment_bytes(64 << 10)
            .any_filesystem(true)
            .create(&place.path().join("log"))
            .unwrap();
        let deadline = Instant::now() + std::time::Duration::from_secs(300);
        let first = log.append_wait_blocking(b"first", deadline).unwrap();
        for _ in 0..20 {
            log = log.truncate(first.end).unwrap();
        }
        // The helper, the flush threads of this tenure and of the last one, and those that have not come to their end yet.
        loop {
            log = log.truncate(first.end).unwrap();
            if locked(&log.owner.running).len() <= 4 {
                break;
            }
            assert!(Instant::now() < deadline, "{} threads are kept", locked(&log.owner.running).len());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        log.close().unwrap();
    }
}
