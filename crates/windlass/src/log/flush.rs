//! Group commit: who flushes, and for whom.
//!
//! Leader–follower without a thread of its own: a blocking committer that finds nobody flushing leads (drains, flushes,
//! wakes everyone its flush covered); others sleep on one word of the persisted watermark's [`Watch`] and are woken together. A hop to
//! another thread would cost more than the flush. Futures can't flush, so a flush thread leads for them.
//!
//! ```text
//!           full, or nobody is expected
//!  FREE ──────────────────────────────────► FLUSHING ──► FREE, those whom it covered are woken
//!    └────► GATHERING ─────────────────────────▲
//!           until the last one comes, who flushes, or the time is over
//! ```
//!
//! Groups really fill: followers that were just woken need longer to come back with their next append than the next leader
//! needs to start. So after a flush as many are expected as it served and as came meanwhile; the first who comes lets the group form, and
//! the last who is expected flushes at once, whoever it is. After the time of a flush the first does so, and for a while only as many
//! are expected as the flush before served. Behind a group of one nobody is expected, so a lone committer never waits.
//!
//! Invariants: one flush at a time; `persisted` advances to what was sampled before the flush, never further; the first
//! error is final for this opening and reaches everyone, now and later (kind 24). DESIGN.md section 5. Gone through by loom (`loom_tests`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use windlass_log::Lsn;

use crate::commit::{self, CommitError, Failure, Level, Stopped, Watch};
use crate::metrics::Meters;
use crate::sync::{AtomicU8, AtomicU64, Condvar, Instant, Mutex, thread};

/// What a flush is made of. The log's own; a fake in tests.
pub(crate) trait Medium {
    /// Drains what is published. Returns the drained LSN, to which everything is whole.
    fn drain(&self) -> Result<Lsn, Failure>;

    /// Makes `[start, end)` durable, and says up to where all is: what is acknowledged. Once it has failed it is not called again.
    fn flush(&self, start: Lsn, end: Lsn) -> Result<Lsn, Failure>;

    /// Whether anybody waits for the drain itself.
    fn drain_awaited(&self) -> bool;

    /// Up to where to flush while nobody waits, so that the persisted mark doesn't fall far behind.
    fn background(&self) -> Option<Lsn>;
}

/// The longest a leader waits for its group to form, however slow the device.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// For how many flushes nobody is expected but as many as the last one served, once others were in vain.
const DOUBTS: u64 = 16;
/// How long a committer sleeps that waits for another producer to publish.
const UNPUBLISHED_PAUSE: Duration = Duration::from_micros(50);

/// Nobody flushes.
const FREE: u8 = 0;
/// Somebody lets a group form. Whoever makes it full flushes.
const GATHERING: u8 = 1;
/// Somebody flushes.
const FLUSHING: u8 = 2;

/// The one place where flushes are led from.
#[derive(Debug)]
pub(crate) struct Gate {
    persisted: Arc<Watch>,
    lead: AtomicU8,
    /// Commits that have asked for a flush.
    arrivals: AtomicU64,
    /// How many had when the last flush for commits began.
    served: AtomicU64,
    /// The highest end that was asked for.
    wanted: AtomicU64,
    /// Commits that the next flush is to serve.
    expected: AtomicU64,
    /// For how many flushes more only as many are expected as the last one served.
    doubts: AtomicU64,
    /// How long a flush takes, a running mean in nanoseconds.
    flush_ns: AtomicU64,
    thread: FlushThread,
    meters: Arc<Meters>,
}

/// Where the flush thread sleeps.
#[derive(Debug, Default)]
struct FlushThread {
    wanted: Mutex<Wanted>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    flush: bool,
    drain: bool,
    background: bool,
    stop: bool,
}

/// What leading achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Led {
    /// A flush was made.
    Flushed,
    /// Nothing new was drained.
    Nothing,
    /// Somebody else leads.
    Busy,
}

/// Leadership, given back on drop. If the flush panics the log fails, since nobody knows what was flushed.
struct Lead<'a> {
    gate: &'a Gate,
    /// The thread was unwinding already when it took the lead: a commit in a destructor.
    was_panicking: bool,
}

impl Lead<'_> {
    fn new(gate: &Gate) -> Lead<'_> {
        Lead { gate, was_panicking: thread::panicking() }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            let cause = "the flush panicked".into();
            self.gate.persisted.stop(Stopped::Failed(Failure::Store { what: "a flush", cause }));
        }
        self.gate.lead.store(FREE, Ordering::SeqCst);
    }
}

impl Gate {
    pub(crate) fn new(persisted: Arc<Watch>, meters: Arc<Meters>) -> Gate {
        Gate {
            persisted,
            lead: AtomicU8::new(FREE),
            arrivals: AtomicU64::new(0),
            served: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            expected: AtomicU64::new(1),
            doubts: AtomicU64::new(0),
            flush_ns: AtomicU64::new(0),
            thread: FlushThread::default(),
            meters,
        }
    }

    /// Waits on this thread until everything below `end` is persisted, flushing itself whenever nobody else does.
    pub(crate) fn commit_blocking(
        &self,
        medium: &impl Medium,
        end: Lsn,
        level: Level,
        deadline: Option<Instant>,
    ) -> Result<(), CommitError> {
        if let Some(answer) = self.persisted.answer(end) {
            return answer;
        }
        self.arrive(end);
        // Since when this thread lets a group form, and until when.
        let mut gathering: Option<(Instant, Instant)> = None;
        loop {
            let looked = self.persisted.look();
            let answer = self.persisted.answer(end);
            let answer = answer.or_else(|| {
                let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                is_late.then_some(Err(CommitError::Deadline { end, level }))
            });
            if let Some(answer) = answer {
                let stopped = gathering.is_some() && self.turn(GATHERING, FREE);
                if stopped || answer.is_err() {
                    self.hand_over();
                }
                return answer;
            }
            let lead = self.lead.load(Ordering::SeqCst);
            let is_full = || self.is_full();
            let may_flush = match lead {
                FREE if is_full() => self.turn(FREE, FLUSHING),
                FREE => {
                    if self.turn(FREE, GATHERING) {
                        let now = Instant::now();
                        gathering = Some((now, now + self.gather_max()));
                    }
                    continue;
                }
                GATHERING => match gathering {
                    Some(_) if is_full() => self.turn(GATHERING, FLUSHING),
                    Some((_, until)) if Instant::now() >= until => {
                        self.doubts.store(DOUBTS, Ordering::SeqCst);
                        self.turn(GATHERING, FLUSHING)
                    }
                    Some(_) => {
                        thread::yield_now();
                        continue;
                    }
                    None => is_full() && self.turn(GATHERING, FLUSHING),
                },
                _ => false,
            };
            if let Some((since, _)) = gathering.take() {
                self.meters.group_wait_ns.record(nanos(since.elapsed()));
            }
            if may_flush {
                let led = self.flush(medium, None, Lead::new(self));
                self.hand_over();
                if led == Led::Nothing {
                    // Another producer has not published yet.
                    commit::park(deadline, Some(UNPUBLISHED_PAUSE));
                }
            } else if lead != FREE {
                self.persisted.sleep(looked, end, deadline);
            }
        }
    }

    /// Somebody asks for everything below `end`.
    fn arrive(&self, end: Lsn) {
        self.wanted.fetch_max(end.0, Ordering::SeqCst);
        self.arrivals.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether as many wait for the next flush as the last one served. Behind a group of one nobody else is expected.
    fn is_full(&self) -> bool {
        let expected = self.expected.load(Ordering::SeqCst);
        let waiting = self.arrivals.load(Ordering::SeqCst).wrapping_sub(self.served.load(Ordering::SeqCst));
        expected <= 1 || waiting >= expected
    }

    /// How long a group may take to form.
    fn gather_max(&self) -> Duration {
        Duration::from_nanos(self.flush_ns.load(Ordering::Relaxed)).min(GATHER_MAX)
    }

    fn turn(&self, from: u8, to: u8) -> bool {
        self.lead.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Leads one flush for futures, if nobody else does.
    pub(crate) fn lead(&self, medium: &impl Medium) -> Led {
        if !self.turn(FREE, FLUSHING) {
            return Led::Busy;
        }
        let lead = Lead::new(self);
        self.gather();
        let led = self.flush(medium, None, lead);
        self.hand_over();
        led
    }

    /// Flushes up to `end` at most, if nobody else flushes and `end` is drained: sealed segments in the background. A commit
    /// that comes meanwhile waits for this flush, so the caller takes short stretches.
    pub(crate) fn lead_up_to(&self, medium: &impl Medium, end: Lsn) -> Led {
        if !self.turn(FREE, FLUSHING) {
            return Led::Busy;
        }
        let led = self.flush(medium, Some(end), Lead::new(self));
        self.hand_over();
        led
    }

    /// Lets those come who the last flush woke.
    fn gather(&self) {
        if self.is_full() {
            return;
        }
        let (start, longest) = (Instant::now(), self.gather_max());
        while !self.is_full() {
            if start.elapsed() >= longest {
                self.doubts.store(DOUBTS, Ordering::SeqCst);
                break;
            }
            thread::yield_now();
        }
        self.meters.group_wait_ns.record(nanos(start.elapsed()));
    }

    fn flush(&self, medium: &impl Medium, up_to: Option<Lsn>, lead: Lead<'_>) -> Led {
        let start = self.persisted.value();
        let before = Instant::now();
        // Whoever has asked by now has appended before.
        let arrivals = self.arrivals.load(Ordering::SeqCst);
        let flushed = medium.drain().and_then(|drained| {
            let end = up_to.map_or(drained, |end| end.min(drained));
            if end > start && self.persisted.stopped().is_none() {
                // Who comes from here on is not woken with them.
                self.persisted.drained(end);
                let persisted = medium.flush(start, end)?.min(end);
                Ok((persisted > start).then_some(persisted))
            } else {
                Ok(None)
            }
        });
        match flushed {
            Ok(None) => Led::Nothing,
            Ok(Some(end)) => {
                self.meter(nanos(before.elapsed()), end.0 - start.0);
                if up_to.is_some() {
                    self.meters.background_flushes.add(1);
                } else {
                    self.served_group(arrivals, nanos(before.elapsed()));
                }
                let covered = self.persisted.advance(end);
                // Leadership first: the first one woken may lead while the others are still being woken.
                drop(lead);
                covered.wake();
                Led::Flushed
            }
            Err(failure) => {
                self.meters.flush_failures.add(1);
                self.persisted.stop(Stopped::Failed(failure));
                Led::Nothing
            }
        }
    }

    fn meter(&self, took_ns: u64, bytes: u64) {
        self.meters.flush_ns.record(took_ns);
        self.meters.flush_bytes.record(bytes);
    }

    /// A flush has served who had come before it began.
    fn served_group(&self, arrivals: u64, took_ns: u64) {
        let group = arrivals.wrapping_sub(self.served.swap(arrivals, Ordering::SeqCst));
        // Those who are woken now come back, to those who have come meanwhile; but not where that was expected in vain of late.
        let meanwhile = self.arrivals.load(Ordering::SeqCst).wrapping_sub(arrivals);
        let doubts = self.doubts.load(Ordering::SeqCst);
        self.doubts.store(doubts.saturating_sub(1), Ordering::SeqCst);
        self.expected.store(if doubts == 0 { group + meanwhile } else { group }, Ordering::SeqCst);
        self.meters.flushes.add(1);
        self.meters.group_commits.record(group.max(1));
        let mean = self.flush_ns.load(Ordering::Relaxed);
        let mean = if mean == 0 { took_ns } else { mean - mean / 8 + took_ns / 8 };
        self.flush_ns.store(mean, Ordering::Relaxed);
    }

    /// Sees to it that somebody leads for those who still wait. A committer that is about to sleep either is seen here or sees that nobody leads.
    fn hand_over(&self) {
        if self.lead.load(Ordering::SeqCst) != FREE
            || self.wanted.load(Ordering::SeqCst) <= self.persisted.value().0
        {
            return;
        }
        if self.persisted.futures() > 0 {
            self.want_flush_thread();
        } else {
            self.persisted.rouse_one();
        }
    }

    /// A future has registered for `end`: somebody has to flush for it.
    pub(crate) fn future_waits(&self, end: Lsn) {
        self.arrive(end);
        if self.lead.load(Ordering::SeqCst) == FREE {
            self.want_flush_thread();
        }
    }

    /// A future waits for the drain: somebody has to look again soon.
    pub(crate) fn drain_waits(&self) {
        let mut wanted = self.thread.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.drain = true;
        drop(wanted);
        self.thread.wake.notify_one();
    }

    /// There is something to flush in the background.
    pub(crate) fn background_waits(&self) {
        let mut wanted = self.thread.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !wanted.background {
            wanted.background = true;
            drop(wanted);
            self.thread.wake.notify_one();
        }
    }

    fn want_flush_thread(&self) {
        let mut wanted = self.thread.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !wanted.flush {
            wanted.flush = true;
            drop(wanted);
            self.thread.wake.notify_one();
        }
    }

    /// The flush thread's body: leads for futures until [`Gate::stop_flush_thread`].
    pub(crate) fn run_flush_thread(&self, medium: &impl Medium) {
        loop {
            let mut wanted = self.thread.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            while !(wanted.flush || wanted.drain || wanted.background || wanted.stop) {
                wanted = self.thread.wake.wait(wanted).unwrap_or_else(PoisonError::into_inner);
            }
            if wanted.stop {
                return;
            }
            let flush = std::mem::take(&mut *wanted).flush;
            drop(wanted);
            if self.serve(medium, flush) {
                thread::sleep(UNPUBLISHED_PAUSE);
            }
        }
    }

    /// One round of the flush thread, for those who run without it too: a group flush if any future waits, else one
    /// stretch in the background. Answers whether somebody waits for another producer to publish.
    pub(crate) fn serve(&self, medium: &impl Medium, flush: bool) -> bool {
        let mut led = Led::Busy;
        if flush && self.persisted.futures() > 0 {
            led = self.lead(medium);
        } else if let Some(end) = medium.background() {
            self.lead_up_to(medium, end);
        } else {
            // An error has reached everyone already.
            let _ = medium.drain();
        }
        if flush && led == Led::Busy {
            // The future that it was for is gone: who left its turn to it may have left threads that sleep.
            self.hand_over();
        }
        // Does somebody wait for another producer to publish?
        let unpublished = led == Led::Nothing && self.persisted.futures() > 0;
        let (drain, background) = (medium.drain_awaited(), medium.background().is_some());
        let mut wanted = self.thread.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.flush |= unpublished;
        wanted.drain |= drain;
        wanted.background |= background;
        unpublished || drain
    }

    /// Makes [`Gate::run_flush_thread`] return.
    pub(crate) fn stop_flush_thread(&self) {
        self.thread.wanted.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.thread.wake.notify_all();
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
#[path = "flush_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
