//! Durability levels, and who waits for which watermark.
//!
//! A [`Watch`] is one watermark with the commits that wait for it, ordered by LSN: when the watermark moves from a to b
//! exactly the commits with an end in `(a, b]` are woken, nobody else, so a group of a thousand waiters costs a thousand
//! wake-ups in all and no herd. After a failure everyone who waits, and everyone who comes later, gets the error.
//!
//! Invariants: a watermark never goes back; a waiter is woken by success only if the watermark covers it (I-2); after a
//! failure the watermark stands still for ever (DESIGN.md section 5).
//!
//! Not for deciding *when* to flush: that is `log::flush`.

mod crowd;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use windlass_log::{Epoch, Lsn};

use self::crowd::Crowd;
pub(crate) use self::turn::{Hush, Turn, run, wake};
use crate::sync::{AtomicU64, AtomicUsize, Instant, Mutex, MutexGuard, OnceLock, thread, thread_local};

/// What a commit promises. DESIGN.md section 5 has the table of what each level survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The record and all before it are whole in the local mapping: survives a crash of this process.
    Buffered,
    /// Flushed here: survives loss of power here.
    Local,
    /// Placed in the memory of a quorum: survives a crash of any processes and the loss of a minority of machines. Only
    /// in a group that allows it; a lone log refuses it.
    Replicated,
    /// Persisted on the media of a quorum: survives loss of power everywhere and the loss of a minority of media. A lone
    /// log is a quorum of one, so there it is exactly [`Level::Local`].
    Durable,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Buffered => "buffered",
            Level::Local => "local",
            Level::Replicated => "replicated",
            Level::Durable => "durable",
        })
    }
}

/// A word that names no level.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown level `{word}`: use buffered, local, replicated or durable")]
pub struct UnknownLevel {
    /// The word that was given.
    pub word: String,
}

impl std::str::FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Level, UnknownLevel> {
        match word {
            "buffered" => Ok(Level::Buffered),
            "local" => Ok(Level::Local),
            "replicated" => Ok(Level::Replicated),
            "durable" => Ok(Level::Durable),
            _ => Err(UnknownLevel { word: word.to_owned() }),
        }
    }
}

/// Proof that everything below [`Committed::end`] reached [`Committed::level`]: only a commit makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "acknowledge on the strength of this value, not before it"]
pub struct Committed {
    end: Lsn,
    level: Level,
}

impl Committed {
    pub(crate) fn new(end: Lsn, level: Level) -> Committed {
        Committed { end, level }
    }

    /// The end (exclusive) of what is committed.
    #[must_use]
    pub fn end(self) -> Lsn {
        self.end
    }

    /// The level that was reached.
    #[must_use]
    pub fn level(self) -> Level {
        self.level
    }
}

/// Why a commit was not confirmed. Except for [`CommitError::NoGroup`] and [`CommitError::BeyondTail`] the appends
/// concerned have an unknown outcome: they may or may not be in the log after the next opening. Ask
/// `Log::outcome` then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// Open the log as a member of a group, or commit at `Local` or `Durable`.
    #[error("level replicated needs a group: this log is alone; commit at local or durable instead")]
    NoGroup,
    /// Commit an end that `append` returned.
    #[error("commit up to LSN {end} is beyond the tail {tail}: commit an end that an append returned")]
    BeyondTail {
        /// The end that was asked for.
        end: Lsn,
        /// The tail at that moment.
        tail: Lsn,
    },
    /// Nothing is acknowledged again until the log is opened anew; recovery then decides what is in it.
    #[error(
        "{failure}; the outcome of LSNs up to {end} is unknown: open the log again and ask for the outcome"
    )]
    Failed {
        /// The end that was asked for.
        end: Lsn,
        /// What broke.
        failure: Failure,
    },
    /// The primary of a later epoch decides: ask for the outcome once it leads.
    #[error(
        "epoch {epoch} has ended before LSN {end} was committed: its outcome is unknown; ask the new primary's log"
    )]
    Fenced {
        /// The end that was asked for.
        end: Lsn,
        /// The epoch that ended.
        epoch: Epoch,
    },
    /// The records keep their place and may still be committed: wait again, or ask for the outcome later.
    #[error(
        "LSN {end} was not committed at level {level} before the deadline: its outcome is still open; wait again"
    )]
    Deadline {
        /// The end that was asked for.
        end: Lsn,
        /// The level that was asked for.
        level: Level,
    },
    /// The log was closed while the commit waited. Closing flushes: open it again and ask for the outcome.
    #[error(
        "the log was closed while LSN {end} waited to be committed: open it again and ask for the outcome"
    )]
    Closed {
        /// The end that was asked for.
        end: Lsn,
    },
}

/// What ended this opening of the log for good.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The medium can't be trusted: the kernel may have dropped the pages. Check the device, then open the log again.
    #[error("flushing LSNs {start} to {end} failed ({cause}); nothing is acknowledged after a failed flush")]
    Flush {
        /// Where the flush started.
        start: Lsn,
        /// Where it was to end (exclusive).
        end: Lsn,
        /// The system's or store's words for it.
        cause: Arc<str>,
    },
    /// Writing the superblock or preparing a segment failed in a way that leaves its state unknown.
    #[error("{what} failed ({cause})")]
    Store {
        /// What was being done.
        what: &'static str,
        /// The store's words for it.
        cause: Arc<str>,
    },
    /// A producer kept a reservation unpublished too long, or leaked it.
    #[error(
        "the reservation at LSN {lsn} has stayed unpublished for {waited_ms} ms; publish or drop reservations promptly"
    )]
    StuckReservation {
        /// The first unpublished LSN.
        lsn: Lsn,
        /// How long the drain has waited there, in milliseconds.
        waited_ms: u64,
    },
    /// This is a child of the process that opened the log. It has none of the log's memory: it may run another program or end, and open the log
    /// itself once its parent has closed it.
    #[error("{cause}")]
    Forked {
        /// The store's words for it.
        cause: Arc<str>,
    },
    /// Memory that only this process writes has changed under the drain: a stray store, or failing memory.
    #[error("the log's memory changed under it ({cause}): a stray store in this process, or failing memory")]
    Scribbled {
        /// What no longer holds, and where.
        cause: Arc<str>,
    },
}

/// Why a [`Watch`] stands still for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// The medium or the tenure broke.
    Failed(Failure),
    /// A later epoch was promised.
    Fenced(Epoch),
    /// The log was closed.
    Closed,
}

impl Stopped {
    /// The error of a commit up to `end`.
    pub(crate) fn error(&self, end: Lsn) -> CommitError {
        match self {
            Stopped::Failed(failure) => CommitError::Failed { end, failure: failure.clone() },
            Stopped::Fenced(epoch) => CommitError::Fenced { end, epoch: *epoch },
            Stopped::Closed => CommitError::Closed { end },
        }
    }
}

/// One watermark and the commits that wait for it, by LSN.
#[derive(Debug)]
pub(crate) struct Watch {
    value: AtomicU64,
    /// How many committers wait, readable without the queue's lock.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
    /// Up to where threads have asked a driver to move it.
    asked: AtomicU64,
    /// Threads that wait for what a driver moves.
    crowd: Crowd,
    stopped: OnceLock<Stopped>,
}

#[derive(Debug, Default)]
struct Queue {
    /// By end, then by arrival.
    by_end: BTreeMap<(Lsn, u64), Waiter>,
    arrivals: u64,
    /// How many of each kind `by_end` holds.
    threads: usize,
    futures: usize,
}

impl Queue {
    fn committers(&self) -> usize {
        self.threads + self.futures
    }

    fn count(&mut self, who: Who, joins: bool) {
        let counter = match who {
            Who::Thread => &mut self.threads,
            Who::Future => &mut self.futures,
            Who::Observer => return,
        };
        *counter = if joins { *counter + 1 } else { *counter - 1 };
    }
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    who: Who,
}

impl Waiter {
    /// One more for the same place.
    fn again(&self) -> Waiter {
        Waiter { waker: self.waker.clone(), who: self.who }
    }

    fn wake(self) {
        wake(self.waker);
    }
}

/// What kind of waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// A committer parked on its thread, which can flush by itself.
    Thread,
    /// A committer's future, for which somebody has to flush.
    Future,
    /// Somebody who wants to know and asks for nothing: a subscription.
    Observer,
}

/// Who a watermark's advance covers: out of the queue, not yet woken.
#[derive(Debug, Default)]
#[must_use = "they sleep until they are woken"]
pub(crate) struct Covered<'a> {
    by_end: BTreeMap<(Lsn, u64), Waiter>,
    /// Threads by the bits of their cohorts.
    crowd: Option<(&'a Crowd, u32)>,
}

impl Covered<'_> {
    /// Wakes them, the threads together, then the others, lowest LSN first. How many threads were woken.
    pub(crate) fn wake(self) -> usize {
        let woken = self.crowd.map_or(0, |(crowd, bits)| crowd.wake(bits));
        self.by_end.into_values().for_each(Waiter::wake);
        woken
    }
}

/// A place in a [`Watch`]'s queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(Lsn, u64);

impl Watch {
    pub(crate) fn new(at: Lsn) -> Watch {
        Watch {
            value: AtomicU64::new(at.0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
            asked: AtomicU64::new(0),
            crowd: Crowd::default(),
            stopped: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panicking waker leaves the queue consistent: entries are removed before they are woken.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watermark. Acquire: who sees it sees everything that happened before it was advanced.
    pub(crate) fn value(&self) -> Lsn {
        Lsn(self.value.load(Ordering::Acquire))
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed) + self.crowd.threads()
    }

    /// A thread is about to have a driver move the watermark to `end`, or to wait until it has.
    pub(crate) fn ask(&self, end: Lsn) {
        self.asked.fetch_max(end.0, Ordering::SeqCst);
    }

    /// Whether somebody waits whom the watermark does not cover. Other than [`Watch::waiting`] it counts threads that have asked and do not sleep yet, and none that are
    /// covered and have not run since.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.asked.load(Ordering::SeqCst) > self.value().0 || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The drain has passed everything below `to`: who waits for it is told together.
    pub(crate) fn drained(&self, to: Lsn) {
        self.crowd.drained(to);
    }

    pub(crate) fn stopped(&self) -> Option<&Stopped> {
        self.stopped.get()
    }

    /// Moves the watermark up to `to` (never down) and hands back exactly who is covered, still to be woken. After
    /// [`Watch::stop`] it does nothing.
    pub(crate) fn advance(&self, to: Lsn) -> Covered<'_> {
        let mut queue = self.lock();
        if self.stopped.get().is_some() || to <= self.value() {
            return Covered::default();
        }
        self.value.store(to.0, Ordering::Release);
        let crowd = Some((&self.crowd, self.crowd.advanced(to)));
        if queue.by_end.is_empty() {
            return Covered { crowd, ..Covered::default() };
        }
        let rest = queue.by_end.split_off(&(Lsn(to.0.saturating_add(1)), 0));
        let by_end = std::mem::replace(&mut queue.by_end, rest);
        by_end.values().for_each(|waiter| queue.count(waiter.who, false));
        self.waiting.store(queue.committers(), Ordering::Relaxed);
        Covered { by_end, crowd }
    }

    /// The watermark never moves again, and everyone gets `why`, now and later. The first reason stays.
    pub(crate) fn stop(&self, why: Stopped) {
        let mut queue = self.lock();
        if self.stopped.set(why).is_err() {
            return;
        }
        let all = std::mem::take(&mut *queue);
        self.waiting.store(0, Ordering::Relaxed);
        drop(queue);
        self.crowd.stopped();
        all.by_end.into_values().for_each(Waiter::wake);
    }

    /// Wakes everyone in the queue, for news of another kind than the watermark's, which stays where it is. They keep their places.
    pub(crate) fn rouse(&self) {
        let woken: Vec<Waiter> = self.lock().by_end.values().map(Waiter::again).collect();
        woken.into_iter().for_each(Waiter::wake);
    }

    /// The answer for `end`, if there is one yet: success counts before failure, since what is flushed stays flushed.
    pub(crate) fn answer(&self, end: Lsn) -> Option<Result<(), CommitError>> {
        if self.value() >= end {
            return Some(Ok(()));
        }
        self.stopped.get().map(|stopped| Err(stopped.error(end)))
    }

    /// Registers `waker` for `end`, or renews it if `ticket` is still in the queue. `None`: there is an answer now.
    pub(crate) fn register(
        &self,
        end: Lsn,
        ticket: Option<Ticket>,
        waker: &Waker,
        who: Who,
    ) -> Option<Ticket> {
        let mut queue = self.lock();
        if self.answer(end).is_some() {
            return None;
        }
        if let Some(Ticket(lsn, arrival)) = ticket
            && let Some(waiter) = queue.by_end.get_mut(&(lsn, arrival))
        {
            let before = std::mem::replace(&mut waiter.waker, waker.clone());
            drop(queue);
            // Not under the lock: with a waker its task may go, and with that another place in this queue.
            drop(before);
            return ticket;
        }
        queue.arrivals += 1;
        let arrival = queue.arrivals;
        queue.by_end.insert((end, arrival), Waiter { waker: waker.clone(), who });
        queue.count(who, true);
        self.waiting.store(queue.committers(), Ordering::Relaxed);
        Some(Ticket(end, arrival))
    }

    /// Gives up a place. The append itself is not touched (kind 82).
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut queue = self.lock();
        let waiter = queue.by_end.remove(&(ticket.0, ticket.1));
        if let Some(waiter) = &waiter {
            queue.count(waiter.who, false);
            self.waiting.store(queue.committers(), Ordering::Relaxed);
        }
        drop(queue);
        // Not under the lock, as in `register`.
        drop(waiter);
    }

    /// Whether anybody waits, observers included.
    pub(crate) fn is_watched(&self) -> bool {
        !self.lock().by_end.is_empty()
    }

    /// How many futures wait.
    pub(crate) fn futures(&self) -> usize {
        self.lock().futures
    }

    /// To be called before looking at the watermark; what it answers goes to [`Watch::sleep`].
    pub(crate) fn look(&self) -> u32 {
        self.crowd.look()
    }

    /// Sleeps on this thread until the watermark may have reached `end`, or has moved since `looked`, or [`Watch::rouse_one`] chose this thread. May
    /// return early.
    pub(crate) fn sleep(&self, looked: u32, end: Lsn, deadline: Option<Instant>) {
        self.crowd.sleep(looked, end, deadline);
    }

    /// Wakes one of the threads that sleep.
    pub(crate) fn rouse_one(&self) {
        self.crowd.rouse_one();
    }
}

/// A future that is ready when a watermark has reached an LSN, and nothing more: it drives no flush.
#[derive(Debug)]
pub(crate) struct Reached {
    watch: Arc<Watch>,
    end: Lsn,
    who: Who,
    ticket: Option<Ticket>,
}

impl Reached {
    pub(crate) fn new(watch: Arc<Watch>, end: Lsn, who: Who) -> Reached {
        Reached { watch, end, who, ticket: None }
    }
}

impl Future for Reached {
    type Output = Result<(), CommitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Some(answer) = this.watch.answer(this.end) {
                return Poll::Ready(answer);
            }
            this.ticket = this.watch.register(this.end, this.ticket, cx.waker(), this.who);
            if this.ticket.is_some() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.watch.cancel(ticket);
        }
    }
}

/// A waker that unparks the thread that made it; one per thread, so that waiting allocates nothing after the first time.
pub(crate) fn thread_waker() -> Waker {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    WAKER.with(Waker::clone)
}

/// Parks this thread until it is woken, `deadline` passes, or `longest` is over; may also return early.
pub(crate) fn park(deadline: Option<Instant>, longest: Option<Duration>) {
    let until_deadline = deadline.map(|d| d.saturating_duration_since(Instant::now()));
    match until_deadline.into_iter().chain(longest).min() {
        Some(timeout) => thread::park_timeout(timeout),
        None => thread::park(),
    }
}

/// Waits on this thread until `watch` reaches `end`.
pub(crate) fn wait_blocking(
    watch: &Watch,
    end: Lsn,
    level: Level,
    who: Who,
    deadline: Option<Instant>,
) -> Result<(), CommitError> {
    let waker = thread_waker();
    let mut ticket = None;
    loop {
        if let Some(answer) = watch.answer(end) {
            return answer;
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            if let Some(ticket) = ticket {
                watch.cancel(ticket);
            }
            return Err(CommitError::Deadline { end, level });
        }
        ticket = watch.register(end, ticket, &waker, who);
        if ticket.is_some() {
            park(deadline, None);
        }
    }
}

/// As [`wait_blocking`], for a watermark that a driver moves for many: see [`crowd`].
pub(crate) fn wait_in_crowd(
    watch: &Watch,
    end: Lsn,
    level: Level,
    deadline: Option<Instant>,
) -> Result<(), CommitError> {
    loop {
        let looked = watch.look();
        if let Some(answer) = watch.answer(end) {
            return answer;
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return Err(CommitError::Deadline { end, level });
        }
        watch.sleep(looked, end, deadline);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_crowd_is_woken_by_what_covers_it_by_a_stop_and_by_its_deadlines() {
        let watch = Arc::new(Watch::new(Lsn(0)));
        let threads: Vec<_> = (1..=8_u64)
            .map(|n| {
                let watch = watch.clone();
                std::thread::spawn(move || wait_in_crowd(&watch, Lsn(n * 8), Level::Durable, None))
            })
            .collect();
        for n in 1..=6 {
            watch.drained(Lsn(n * 8));
            watch.advance(Lsn(n * 8)).wake();
        }
        let deadline = Some(Instant::now() + Duration::from_millis(5));
        let error = wait_in_crowd(&watch, Lsn(64), Level::Durable, deadline).unwrap_err();
        assert_eq!(error, CommitError::Deadline { end: Lsn(64), level: Level::Durable });
        watch.stop(Stopped::Closed);
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for (n, answer) in (1_u64..).zip(answers) {
            let end = Lsn(n * 8);
            assert_eq!(answer, if n <= 6 { Ok(()) } else { Err(CommitError::Closed { end }) });
        }
        assert_eq!(watch.waiting(), 0);
    }

    /// One that is covered and has not run since would keep the pump from standing by for it; one that has asked and does not sleep yet would be left
    /// alone with what it asked for.
    #[test]
    fn who_has_asked_is_waited_for_until_the_watermark_covers_it_asleep_or_not() {
        let watch = Watch::new(Lsn(8));
        assert!(!watch.is_waited_for());
        watch.ask(Lsn(16));
        watch.ask(Lsn(8));
        assert!(watch.is_waited_for() && watch.waiting() == 0);
        watch.advance(Lsn(16)).wake();
        assert!(!watch.is_waited_for());
        let ticket = watch.register(Lsn(24), None, Waker::noop(), Who::Future);
        assert!(watch.is_waited_for());
        watch.cancel(ticket.unwrap());
        assert!(!watch.is_waited_for());
    }

    struct Counted(AtomicU32);
    impl std::task::Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Counted>, Waker) {
        let counted = Arc::new(Counted(AtomicU32::new(0)));
        (counted.clone(), Waker::from(counted))
    }

    #[test]
    fn advancing_wakes_exactly_who_is_covered() {
        let watch = Watch::new(Lsn(100));
        let wakers: Vec<_> = (1..=10).map(|_| counted()).collect();
        for (i, waker) in (1u64..).zip(wakers.iter().map(|(_, w)| w)).collect::<Vec<_>>().into_iter().rev() {
            assert!(
                watch
                    .register(
                        Lsn(100 + i * 8),
                        None,
                        waker,
                        [Who::Future, Who::Thread][usize::from(i % 2 == 0)]
                    )
                    .is_some()
            );
        }
        watch.advance(Lsn(100 + 4 * 8)).wake();
        let woken: Vec<_> = wakers.iter().map(|(c, _)| c.0.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(watch.waiting(), 6);
        assert_eq!(watch.advance(Lsn(104)).by_end.len(), 0, "never back");
        assert_eq!(watch.value(), Lsn(132));
        assert_eq!(watch.futures(), 3);
    }

    #[test]
    fn after_a_failure_everyone_gets_the_error_and_the_watermark_stands_still() {
        let watch = Arc::new(Watch::new(Lsn(100)));
        let (counted, waker) = counted();
        let _ = watch.register(Lsn(200), None, &waker, Who::Future);
        let failure = Failure::Flush { start: Lsn(100), end: Lsn(200), cause: "EIO".into() };
        watch.stop(Stopped::Failed(failure.clone()));
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
        assert_eq!(watch.advance(Lsn(300)).by_end.len(), 0);
        assert_eq!(watch.value(), Lsn(100));
        let want = CommitError::Failed { end: Lsn(200), failure };
        assert_eq!(wait_blocking(&watch, Lsn(200), Level::Local, Who::Thread, None), Err(want.clone()));
        watch.stop(Stopped::Closed);
        assert_eq!(watch.answer(Lsn(200)), Some(Err(want)), "the first reason stays");
        assert_eq!(watch.answer(Lsn(100)), Some(Ok(())), "what was flushed stays flushed");
    }

    #[test]
    fn dropping_a_future_drops_only_the_notification_kind_82() {
        let watch = Arc::new(Watch::new(Lsn(0)));
        let (_, waker) = counted();
        let mut future = Reached::new(watch.clone(), Lsn(8), Who::Future);
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(watch.waiting(), 1, "polling twice holds one place");
        drop(future);
        assert_eq!(watch.waiting(), 0);
        assert_eq!(watch.futures(), 0);
    }

    #[test]
    fn a_task_may_go_with_its_waker_and_give_up_another_place_kind_82() {
        struct Task(#[expect(dead_code, reason = "dropped with its waker")] Reached);
        impl std::task::Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let watch = Arc::new(Watch::new(Lsn(0)));
        let (_, waker) = counted();
        let task = || {
            let mut other = Reached::new(watch.clone(), Lsn(16), Who::Future);
            assert!(Pin::new(&mut other).poll(&mut Context::from_waker(&waker)).is_pending());
            Waker::from(Arc::new(Task(other)))
        };
        // Renewed for another task, and given up: in both cases the queue holds the last share of the old one.
        let mut future = Reached::new(watch.clone(), Lsn(8), Who::Future);
        let first = task();
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&first)).is_pending());
        drop(first);
        let second = task();
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&second)).is_pending());
        drop(second);
        drop(future);
        assert_eq!(watch.waiting(), 0);
    }

    #[test]
    fn an_observer_is_woken_and_asks_for_no_flush() {
        let watch = Watch::new(Lsn(0));
        let (counted, waker) = counted();
        assert!(watch.register(Lsn(8), None, &waker, Who::Observer).is_some());
        assert_eq!(watch.waiting(), 0);
        assert_eq!(watch.futures(), 0);
        assert!(watch.is_watched());
        watch.advance(Lsn(16)).wake();
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_waker_that_panics_costs_nobody_else_anything() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let watch = Watch::new(Lsn(0));
        let (behind, waker) = counted();
        let bad = Waker::from(Arc::new(Panics));
        for end in [8, 24] {
            assert!(watch.register(Lsn(end), None, &bad, Who::Future).is_some());
            assert!(watch.register(Lsn(end + 8), None, &waker, Who::Future).is_some());
        }
        watch.advance(Lsn(16)).wake();
        assert_eq!(behind.0.load(Ordering::Relaxed), 1);
        watch.stop(Stopped::Closed);
        assert_eq!(behind.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_deadline_gives_the_place_back() {
        let watch = Watch::new(Lsn(0));
        let deadline = Some(Instant::now() + Duration::from_millis(5));
        let error = wait_blocking(&watch, Lsn(8), Level::Durable, Who::Thread, deadline).unwrap_err();
        assert_eq!(error, CommitError::Deadline { end: Lsn(8), level: Level::Durable });
        assert_eq!(watch.waiting(), 0);
    }

    #[test]
    fn an_unknown_level_says_which_there_are() {
        assert_eq!("local".parse::<Level>(), Ok(Level::Local));
        let error = "fsync".parse::<Level>().unwrap_err();
        assert_eq!(error.to_string(), "unknown level `fsync`: use buffered, local, replicated or durable");
    }
}
