//! Group commit: who flushes, and for whom.
//!
//! Leader–follower without a thread of its own: a blocking committer that finds nobody flushing leads (drains, flushes,
//! wakes everyone its flush covered); others queue in the [`Watch`] of the persisted watermark. A hop to another thread would
//! cost more than the flush. Futures can't flush, so a flush thread leads for them.
//!
//! Groups really fill: followers that were just woken need longer to come back with their next append than the next leader
//! needs to start, so a leader whose predecessor served n commits lets arrivals register first, until n are there again
//! or half the time of a flush has passed. Behind a group of one nobody waits, so a lone committer never does, and a
//! prediction that fails once is not made again.
//!
//! Invariants: one flush at a time; `persisted` advances to what was sampled before the flush, never further; the first
//! error is final for this opening and reaches everyone, now and later (kind 24). DESIGN.md section 5.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_log::Lsn;

use crate::commit::{self, CommitError, Failure, Level, Next, Stopped, Watch, Who};
use crate::metrics::Meters;

/// What a flush is made of. The log's own; a fake in tests.
pub(crate) trait Medium {
    /// Drains what is published. Returns the drained LSN, to which everything is whole.
    fn drain(&self) -> Result<Lsn, Failure>;

    /// Makes `[start, end)` durable. Once it has failed it is not called again.
    fn flush(&self, start: Lsn, end: Lsn) -> Result<(), Failure>;

    /// Whether anybody waits for the drain itself.
    fn drain_awaited(&self) -> bool;

    /// Up to where to flush while nobody waits, so that the persisted mark doesn't fall far behind.
    fn background(&self) -> Option<Lsn>;
}

/// The longest a leader waits for its group to form, however slow the device.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// How long a committer sleeps that waits for another producer to publish.
const UNPUBLISHED_PAUSE: Duration = Duration::from_micros(50);

/// The one place where flushes are led from.
#[derive(Debug)]
pub(crate) struct Gate {
    persisted: Arc<Watch>,
    leading: AtomicBool,
    /// Commits that the last flush served.
    last_group: AtomicUsize,
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
        Lead { gate, was_panicking: std::thread::panicking() }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            let cause = "the flush panicked".into();
            self.gate.persisted.stop(Stopped::Failed(Failure::Store { what: "a flush", cause }));
        }
        self.gate.leading.store(false, Ordering::SeqCst);
    }
}

impl Gate {
    pub(crate) fn new(persisted: Arc<Watch>, meters: Arc<Meters>) -> Gate {
        Gate {
            persisted,
            leading: AtomicBool::new(false),
            last_group: AtomicUsize::new(1),
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
        let waker = commit::thread_waker();
        let mut ticket = None;
        loop {
            if let Some(answer) = self.persisted.answer(end) {
                return answer;
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                if let Some(ticket) = ticket {
                    self.persisted.cancel(ticket);
                }
                self.hand_over();
                return Err(CommitError::Deadline { end, level });
            }
            if !self.leading.load(Ordering::SeqCst) {
                if let Some(ticket) = ticket.take() {
                    self.persisted.cancel(ticket);
                }
                match self.lead(medium, 1) {
                    // Another producer has not published yet.
                    Led::Nothing => commit::park(deadline, Some(UNPUBLISHED_PAUSE)),
                    Led::Flushed | Led::Busy => {}
                }
                continue;
            }
            ticket = self.persisted.register(end, ticket, &waker, Who::Thread);
            // Who leads looks at the queue after giving up leadership; we look at leadership after joining the queue.
            if ticket.is_some() && self.leading.load(Ordering::SeqCst) {
                commit::park(deadline, None);
            }
        }
    }

    /// Leads one flush, if nobody else does. `own` is 1 if the caller is a committer itself, 0 if it only serves others.
    pub(crate) fn lead(&self, medium: &impl Medium, own: usize) -> Led {
        if self.leading.swap(true, Ordering::SeqCst) {
            return Led::Busy;
        }
        let lead = Lead::new(self);
        self.gather(own);
        let led = self.flush(medium, own, None, lead);
        self.hand_over();
        led
    }

    /// Flushes up to `end` at most, if nobody else flushes and `end` is drained: sealed segments in the background. A commit
    /// that comes meanwhile waits for this flush, so the caller takes short stretches.
    pub(crate) fn lead_up_to(&self, medium: &impl Medium, end: Lsn) -> Led {
        if self.leading.swap(true, Ordering::SeqCst) {
            return Led::Busy;
        }
        let led = self.flush(medium, 0, Some(end), Lead::new(self));
        self.hand_over();
        led
    }

    /// Lets those register who the last flush woke.
    fn gather(&self, own: usize) {
        let expected = self.last_group.load(Ordering::Relaxed);
        if expected <= 1 || self.persisted.waiting() + own >= expected {
            return;
        }
        let longest = Duration::from_nanos(self.flush_ns.load(Ordering::Relaxed) / 2).min(GATHER_MAX);
        let start = Instant::now();
        while self.persisted.waiting() + own < expected && start.elapsed() < longest {
            std::thread::yield_now();
        }
        self.meters.group_wait_ns.record(nanos(start.elapsed()));
    }

    fn flush(&self, medium: &impl Medium, own: usize, up_to: Option<Lsn>, lead: Lead<'_>) -> Led {
        let start = self.persisted.value();
        let before = Instant::now();
        let flushed = medium.drain().and_then(|drained| {
            let end = up_to.map_or(drained, |end| end.min(drained));
            if end > start && self.persisted.stopped().is_none() {
                medium.flush(start, end).map(|()| Some(end))
            } else {
                Ok(None)
            }
        });
        match flushed {
            Ok(None) => Led::Nothing,
            Ok(Some(end)) => {
                let covered = self.persisted.advance(end);
                let group = covered.committers() + own;
                self.meter(nanos(before.elapsed()), end.0 - start.0, group, up_to.is_some());
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

    fn meter(&self, took_ns: u64, bytes: u64, group: usize, background: bool) {
        self.meters.flush_ns.record(took_ns);
        self.meters.flush_bytes.record(bytes);
        if background {
            self.meters.background_flushes.add(1);
            return;
        }
        self.meters.flushes.add(1);
        self.meters.group_commits.record(group as u64);
        self.last_group.store(group, Ordering::Relaxed);
        let mean = self.flush_ns.load(Ordering::Relaxed);
        let mean = if mean == 0 { took_ns } else { mean - mean / 8 + took_ns / 8 };
        self.flush_ns.store(mean, Ordering::Relaxed);
    }

    /// Sees to it that somebody leads for those who still wait.
    fn hand_over(&self) {
        if self.leading.load(Ordering::SeqCst) {
            return;
        }
        match self.persisted.next() {
            Next::Nobody => {}
            Next::FlushThread => self.want_flush_thread(),
            Next::Thread(waker) => waker.wake(),
        }
    }

    /// A future has registered: somebody has to flush for it.
    pub(crate) fn future_waits(&self) {
        if !self.leading.load(Ordering::SeqCst) {
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
                std::thread::sleep(UNPUBLISHED_PAUSE);
            }
        }
    }

    /// One round of the flush thread, for those who run without it too: a group flush if any future waits, else one
    /// stretch in the background. Answers whether somebody waits for another producer to publish.
    pub(crate) fn serve(&self, medium: &impl Medium, flush: bool) -> bool {
        let mut led = Led::Busy;
        if flush && self.persisted.waiting() > 0 {
            led = self.lead(medium, 0);
        } else if let Some(end) = medium.background() {
            self.lead_up_to(medium, end);
        } else {
            // An error has reached everyone already.
            let _ = medium.drain();
        }
        // Does somebody wait for another producer to publish?
        let unpublished = led == Led::Nothing && self.persisted.waiting() > 0;
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

#[cfg(test)]
#[path = "flush_tests.rs"]
mod tests;
