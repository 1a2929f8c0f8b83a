//! What the handles, the helper and the flush thread of one opening share.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use slog::{Logger, error, info, warn};
use windlass_log::{Geometry, LogId, Lsn};

use super::flush::Medium;
use super::helper::Helper;
use super::media::Media;
use super::open::install_ready;
use super::scrub::LoneScrub;
use super::tenure::{Drained, Tenure};
use crate::clock::Clock;
use crate::commit::{CommitError, Failure, Level, Watch};
use crate::driver::Port;
use crate::metrics::Meters;

/// Above this share of the cap the application is warned.
const WARN_PERCENT: u64 = 80;
/// Below this share the warning is over.
const CALM_PERCENT: u64 = 70;
/// An application that trims within so many segments of its tail is taken to do so again.
const TRIM_LAG_SEGMENTS_MAX: u64 = 16;
/// About how many bytes a background flush takes at once: a commit that comes meanwhile waits for it.
const STRETCH_BYTES: u64 = 1 << 20;

thread_local! {
    /// Which log this thread is behind, by its address.
    static BEHIND: Cell<usize> = const { Cell::new(0) };
}

/// Whose log this is.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// Alone: a quorum of one.
    Lone,
    /// A member of a group: its driver drains, flushes, and moves `replicated` and `durable`. This is how it hears what is wanted.
    Member(Arc<Port>),
}

/// One opening of a log: what it was opened with, which reads as its own fields, and what changes.
#[derive(Debug)]
pub(crate) struct Shared {
    fixed: Fixed,
    pub(crate) helper: Helper,
    /// Serialises trims, truncations and closing; let go of while they wait for a reservation in flight. Where a truncation that waits will cut.
    pub(crate) changing: Mutex<Option<Lsn>>,
    current: Mutex<Arc<Tenure>>,
    failed: OnceLock<Failure>,
    /// Nothing is left of the opening: are done, and appends have segments.
    settled: AtomicBool,
    settling: Mutex<()>,
    warned: AtomicBool,
    /// How many bytes the application lets pile up before it trims, as far as it trims soon; 0 if it doesn't.
    trim_lag_bytes: AtomicU64,
    /// Drained LSNs about a stretch apart, oldest first: where background flushes may end.
    stretches: Mutex<VecDeque<Lsn>>,
    pub(crate) scrub: LoneScrub,
}

/// What an opening was made with; it stays as it is until the end.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) folder: PathBuf,
    pub(crate) media: Box<dyn Media>,
    pub(crate) geometry: Geometry,
    pub(crate) log_id: LogId,
    pub(crate) standing: Standing,
    pub(crate) level: Level,
    pub(crate) retention_bytes: u64,
    pub(crate) ahead_segments: u64,
    pub(crate) scrub_bytes_per_second: u64,
    pub(crate) reservation_limit: Duration,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) logger: Logger,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Shared {
    type Target = Fixed;

    fn deref(&self) -> &Fixed {
        &self.fixed
    }
}

impl Shared {
    pub(crate) fn new(fixed: Fixed, tenure: Arc<Tenure>) -> Shared {
        let settled = AtomicBool::new(fixed.media.is_vouched());
        let scrub = LoneScrub::new(fixed.scrub_bytes_per_second);
        let shared = Shared {
            fixed,
            scrub,
            settled,
            settling: Mutex::new(()),
            helper: Helper::default(),
            changing: Mutex::default(),
            current: Mutex::new(tenure),
            failed: OnceLock::new(),
            warned: AtomicBool::new(false),
            trim_lag_bytes: AtomicU64::new(0),
            stretches: Mutex::default(),
        };
        shared.raise_limit();
        shared
    }

    pub(crate) fn is_lone(&self) -> bool {
        matches!(self.standing, Standing::Lone)
    }

    /// How the driver hears what is wanted, in a group.
    pub(crate) fn port(&self) -> Option<&Port> {
        match &self.standing {
            Standing::Lone => None,
            Standing::Member(port) => Some(port),
        }
    }

    /// The tenure that appends go to.
    pub(crate) fn tenure(&self) -> Arc<Tenure> {
        locked(&self.current).clone()
    }

    /// Puts the next tenure in place of a sealed one.
    pub(crate) fn succeed(&self, tenure: Arc<Tenure>) {
        let mut current = locked(&self.current);
        assert!(current.handoff.is_quiet(), "R-10: a tenure is succeeded while reservations are in flight");
        *current = tenure.clone();
        drop(current);
        locked(&self.stretches).clear();
        // Whoever failed the log meanwhile found the tenure before.
        if let Some(failure) = self.failure() {
            tenure.fail(failure);
        }
        self.raise_limit();
    }

    /// Whether nothing is left of the opening.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Does what the opening has left, once; whoever comes meanwhile waits. Before it is done nothing is appended, flushed, trimmed or cut, and
    /// nothing is claimed of what no mark vouches for. A failure ends this opening, like that of any flush.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        if self.is_settled() {
            return Ok(());
        }
        let turn = locked(&self.settling);
        if self.is_settled() {
            return Ok(());
        }
        if let Some(failure) = self.failure() {
            return Err(failure.clone());
        }
        let rewritten_bytes = match self.vouch() {
            Ok(bytes) => bytes,
            Err(cause) => {
                // Who comes now hears the same from the store. Wakers run with no lock held.
                drop(turn);
                let what = "writing again what no mark vouches for";
                let failure = Failure::Store { what, cause: cause.into() };
                self.fail(failure.clone());
                return Err(failure);
            }
        };
        let (tenure, persisted) = (self.tenure(), self.media.persisted());
        tenure.handoff.set_persisted(persisted);
        self.helper.alone(|| install_ready(&*self.media, &tenure.handoff));
        // The marks first: who finds this settled takes them for what they are.
        let marks = &tenure.watermarks;
        let covered = [marks.persisted.advance(persisted), marks.ready.advance(tenure.handoff.ready())];
        self.settled.store(true, Ordering::Release);
        drop(turn);
        info!(self.logger, "all that was found is on the medium"; "folder" => %self.folder.display(),
            "persisted" => %persisted, "rewritten_bytes" => rewritten_bytes);
        for covered in covered {
            covered.wake();
        }
        Ok(())
    }

    /// then R-6. How many bytes were written again, or what failed.
    fn vouch(&self) -> Result<u64, String> {
        let rewritten = self.media.vouch().map_err(|error| error.to_string())?;
        self.media.begin().map_err(|error| error.to_string())?;
        Ok(rewritten)
    }

    /// Refuses a child that was forked off, before it meets a lock that another thread of its parent held, or memory that it does not have (kind 60).
    pub(crate) fn own_process(&self) -> Result<(), Failure> {
        self.media.own_process().map_err(|error| Failure::Forked { cause: error.to_string().into() })
    }

    /// This thread is one behind this log from here on.
    pub(super) fn begin_behind(&self) {
        BEHIND.set(std::ptr::from_ref(self).addr());
    }

    /// Whether this thread is one behind this log.
    pub(super) fn is_behind(&self) -> bool {
        BEHIND.try_with(|behind| behind.get() == std::ptr::from_ref(self).addr()).unwrap_or(false)
    }

    /// Why nothing more is taken, if so.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failed.get()
    }

    /// Ends this opening: nothing is taken or acknowledged from here on. The first failure stays.
    pub(crate) fn fail(&self, failure: Failure) {
        if self.failed.set(failure.clone()).is_ok() {
            error!(self.logger, "the log has failed and acknowledges nothing more; open it again";
                "folder" => %self.folder.display(), "cause" => %failure);
        }
        self.tenure().fail(self.failure().unwrap_or(&failure));
    }

    /// Drains what is published.
    pub(crate) fn drain(&self, tenure: &Tenure) -> Result<Drained, Failure> {
        if let Some(failure) = self.failure() {
            return Err(failure.clone());
        }
        let drained = tenure.drain(&*self.clock, self.reservation_limit, &self.meters);
        if let Err(failure) = &drained {
            self.fail(failure.clone());
        }
        drained
    }

    /// The watermark that a commit of this level waits for.
    pub(crate) fn watch_for(
        &self,
        tenure: &Tenure,
        end: Lsn,
        level: Level,
    ) -> Result<Arc<Watch>, CommitError> {
        let tail = tenure.handoff.tail();
        if end > tail {
            return Err(CommitError::BeyondTail { end, tail });
        }
        let marks = &tenure.watermarks;
        match level {
            Level::Buffered => Ok(marks.drained.clone()),
            Level::Local => Ok(marks.persisted.clone()),
            Level::Durable => Ok(marks.durable.clone()),
            Level::Replicated if self.is_lone() => Err(CommitError::NoGroup),
            Level::Replicated => Ok(marks.replicated.clone()),
        }
    }

    /// Lets appends go on up to the retention cap.
    pub(crate) fn raise_limit(&self) {
        let limit = self.media.trimmed().0.saturating_add(self.retention_bytes);
        self.tenure().handoff.set_limit(Lsn(limit));
    }

    /// Bytes from the trim point to the tail.
    pub(crate) fn retained_bytes(&self, tenure: &Tenure) -> u64 {
        tenure.handoff.tail().0.saturating_sub(self.media.trimmed().0)
    }

    /// Warns once when the cap is nearly used up, and says when that is over.
    pub(crate) fn watch_retention(&self, tenure: &Tenure) {
        let retained = self.retained_bytes(tenure);
        let percent = |share: u64| self.retention_bytes / 100 * share;
        if retained > percent(WARN_PERCENT) {
            if !self.warned.swap(true, Ordering::Relaxed) {
                self.meters.retention_warnings.add(1);
                warn!(self.logger, "the log is nearly full: trim it (`Log::trim`) or open it with a larger retention_bytes, or appends will be refused";
                    "folder" => %self.folder.display(), "retained_bytes" => retained,
                    "retention_bytes" => self.retention_bytes, "trimmed" => %self.media.trimmed());
            }
        } else if retained < percent(CALM_PERCENT) && self.warned.swap(false, Ordering::Relaxed) {
            info!(self.logger, "the log has room again"; "folder" => %self.folder.display(), "retained_bytes" => retained);
        }
    }

    pub(crate) fn is_warned(&self) -> bool {
        self.warned.load(Ordering::Relaxed)
    }

    /// Notes where the drain stands, so that background flushes find record ends to stop at. A tenure that has been succeeded since counts no
    /// more: no record of the next one need end where one of its did.
    pub(crate) fn note_stretch(&self, tenure: &Arc<Tenure>, drained: Lsn) {
        let mut stretches = locked(&self.stretches);
        if !Arc::ptr_eq(tenure, &self.tenure()) {
            return;
        }
        let last = stretches.back().map_or(0, |lsn| lsn.0);
        // Small segments, as tests have them, in quarters.
        if drained.0 >= last + STRETCH_BYTES.min(self.geometry.segment_bytes() / 4) {
            stretches.push_back(drained);
        }
    }

    /// Learns how far behind its tail the application trims: `retained_bytes` is what was there when it did.
    pub(crate) fn learn_trim_lag(&self, retained_bytes: u64) {
        let soon = retained_bytes <= TRIM_LAG_SEGMENTS_MAX * self.geometry.segment_bytes();
        let before = self.trim_lag_bytes.load(Ordering::Relaxed);
        let lag = if soon { retained_bytes.max(before - before / 8) } else { 0 };
        self.trim_lag_bytes.store(lag, Ordering::Relaxed);
    }

    /// The next stretch to flush in the background: one that lies a segment behind the drain and is neither flushed nor trimmed. So the mark
    /// trails by about one segment. For an application that trims within a few segments it trails by a little more than that, so that what
    /// is about to be trimmed is never written at all.
    fn background_stretch(&self, tenure: &Tenure) -> Option<Lsn> {
        if self.failure().is_some() {
            return None;
        }
        let done = tenure.watermarks.persisted.value().max(self.media.trimmed());
        let lag = self.trim_lag_bytes.load(Ordering::Relaxed);
        let trail = self.geometry.segment_bytes().max(lag + lag / 2);
        let behind = tenure.watermarks.drained.value().0.saturating_sub(trail);
        let mut stretches = locked(&self.stretches);
        while stretches.front().is_some_and(|end| *end <= done) {
            stretches.pop_front();
        }
        stretches.front().copied().filter(|end| end.0 <= behind)
    }

    /// Asks the flush thread for background work, if there is any.
    pub(crate) fn flush_behind(&self, tenure: &Tenure) {
        if self.background_stretch(tenure).is_some() {
            tenure.gate.background_waits();
        }
    }
}

/// A tenure of an opening, as group commit sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnMedia<'a>(pub(crate) &'a Shared, pub(crate) &'a Tenure);

impl Medium for OnMedia<'_> {
    fn drain(&self) -> Result<Lsn, Failure> {
        self.0.drain(self.1).map(Drained::lsn)
    }

    fn flush(&self, start: Lsn, end: Lsn) -> Result<Lsn, Failure> {
        self.0.settle()?;
        match self.0.media.flush(end) {
            Ok(persisted) => {
                let persisted = persisted.lsn();
                self.1.handoff.set_persisted(persisted.min(end));
                Ok(persisted)
            }
            Err(error) => {
                let failure = Failure::Flush { start, end, cause: error.to_string().into() };
                self.0.fail(failure.clone());
                Err(failure)
            }
        }
    }

    fn drain_awaited(&self) -> bool {
        self.1.watermarks.drained.waiting() > 0 && self.1.handoff.tail() > self.1.watermarks.drained.value()
    }

    fn background(&self) -> Option<Lsn> {
        self.0.background_stretch(self.1)
    }
}
