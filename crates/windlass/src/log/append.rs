//! Appending, and the commits that follow.

use std::pin::pin;
use std::task::Context;
use std::time::Instant;

use windlass_log::{Appended, Lsn, RecordKind, ReserveError};
use windlass_store::PrepareError;

use super::Log;
use super::helper::NoSegment;
use super::shared::OnMedia;
use super::wait::{Commit, SegmentNews};
use crate::commit::{self, CommitError, Committed, Level, Who, thread_waker, wait_blocking, wait_in_crowd};
use crate::error::AppendError;

/// How long a committer that waits for another producer yields before it sleeps.
const YIELDS: u32 = 64;

/// How long a committer looks again before it sleeps, where the answer is a network exchange away.
const SPIN: std::time::Duration = std::time::Duration::from_micros(50);

/// Looks until it is so, giving way to others at each turn, for a short while.
fn spin_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() && start.elapsed() < SPIN {
        std::thread::yield_now();
    }
}

impl Log {
    /// Appends one record. It is in the log for every local reader when this returns, and has survived whatever level is then committed;
    /// an empty payload is legal. One copy of the payload, no allocation, no system call, no lock; only right after an opening that has found what no mark
    /// vouches for the first append waits until that is flushed.
    ///
    /// # Errors
    ///
    /// [`AppendError`]; nothing was appended and the log goes on, except after `Failed` and `Sealed`.
    #[inline]
    pub fn append(&self, payload: &[u8]) -> Result<Appended, AppendError> {
        loop {
            match self.tenure.handoff.append(RecordKind::Data, payload) {
                Ok(appended) => return Ok(appended),
                Err(error) => self.refused_for_good(error)?,
            }
        }
    }

    /// Appends several items as one record: after a crash all of them are there or none. Readers yield each with its own LSN.
    ///
    /// # Errors
    ///
    /// As [`Log::append`]. The largest batch is the largest record; each item takes 8 bytes more than its length, rounded up to 8.
    pub fn append_batch(&self, items: &[&[u8]]) -> Result<Appended, AppendError> {
        loop {
            match self.tenure.handoff.append_batch(items) {
                Ok(appended) => return Ok(appended),
                Err(error) => self.refused_for_good(error)?,
            }
        }
    }

    /// Reserves a record to be filled in place and published: no copy but the caller's own.
    ///
    /// Everything behind it waits for it: publish or drop it promptly. Past
    /// [`reservation_limit`](crate::Options::reservation_limit) the log fails.
    ///
    /// # Errors
    ///
    /// As [`Log::append`]; nothing was reserved.
    #[inline]
    pub fn reserve(&self, payload_bytes: usize) -> Result<Reservation<'_>, AppendError> {
        loop {
            match self.tenure.handoff.reserve(payload_bytes as u64) {
                Ok(reserved) => return Ok(Reservation(reserved)),
                Err(error) => self.refused_for_good(error)?,
            }
        }
    }

    /// As [`Log::append`], but waits on this thread while the next segment is not prepared yet. What waiting can't mend is
    /// answered at once.
    ///
    /// # Errors
    ///
    /// As [`Log::append`], with `Deadline` in place of `NotReady`.
    pub fn append_wait_blocking(&self, payload: &[u8], deadline: Instant) -> Result<Appended, AppendError> {
        self.wait_ready_blocking(deadline, || self.tenure.handoff.append(RecordKind::Data, payload))
    }

    /// As [`Log::append_wait_blocking`], as a future. The append happens within a poll: whoever drops the future before it is ready
    /// has appended nothing. Needs a tokio runtime with time.
    ///
    /// # Errors
    ///
    /// As [`Log::append_wait_blocking`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point.
    pub async fn append_wait(&self, payload: &[u8], deadline: Instant) -> Result<Appended, AppendError> {
        self.wait_ready(deadline, || self.tenure.handoff.append(RecordKind::Data, payload)).await
    }

    /// [`Log::append_batch`] that waits like [`Log::append_wait_blocking`].
    ///
    /// # Errors
    ///
    /// As [`Log::append_batch`], with `Deadline` in place of `NotReady`.
    pub fn append_batch_wait_blocking(
        &self,
        items: &[&[u8]],
        deadline: Instant,
    ) -> Result<Appended, AppendError> {
        self.wait_ready_blocking(deadline, || self.tenure.handoff.append_batch(items))
    }

    /// [`Log::append_batch`] that waits like [`Log::append_wait`].
    ///
    /// # Errors
    ///
    /// As [`Log::append_batch_wait_blocking`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point.
    pub async fn append_batch_wait(
        &self,
        items: &[&[u8]],
        deadline: Instant,
    ) -> Result<Appended, AppendError> {
        self.wait_ready(deadline, || self.tenure.handoff.append_batch(items)).await
    }

    /// [`Log::reserve`] that waits like [`Log::append_wait_blocking`].
    ///
    /// # Errors
    ///
    /// As [`Log::reserve`], with `Deadline` in place of `NotReady`.
    pub fn reserve_wait_blocking(
        &self,
        payload_bytes: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, AppendError> {
        self.wait_ready_blocking(deadline, || {
            self.tenure.handoff.reserve(payload_bytes as u64).map(Reservation)
        })
    }

    /// [`Log::reserve`] that waits like [`Log::append_wait`].
    ///
    /// # Errors
    ///
    /// As [`Log::reserve_wait_blocking`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point: nothing is reserved before the future is ready.
    pub async fn reserve_wait(
        &self,
        payload_bytes: usize,
        deadline: Instant,
    ) -> Result<Reservation<'_>, AppendError> {
        self.wait_ready(deadline, || self.tenure.handoff.reserve(payload_bytes as u64).map(Reservation)).await
    }

    fn wait_ready_blocking<T>(
        &self,
        deadline: Instant,
        attempt: impl Fn() -> Result<T, ReserveError>,
    ) -> Result<T, AppendError> {
        let waker = thread_waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            let mut news = match self.attempt_until(deadline, &attempt)? {
                Ok(done) => return Ok(done),
                Err(news) => pin!(news),
            };
            while news.as_mut().poll(&mut cx).is_pending() && Instant::now() < deadline {
                commit::park(Some(deadline), None);
            }
        }
    }

    async fn wait_ready<T>(
        &self,
        deadline: Instant,
        attempt: impl Fn() -> Result<T, ReserveError>,
    ) -> Result<T, AppendError> {
        loop {
            let news = match self.attempt_until(deadline, &attempt)? {
                Ok(done) => return Ok(done),
                Err(news) => news,
            };
            // In time or not: the next attempt tells.
            let _ = tokio::time::timeout_at(deadline.into(), news).await;
        }
    }

    /// An attempt, or the news to wait for before the next one; at the deadline the last attempt has been made.
    fn attempt_until<T>(
        &self,
        deadline: Instant,
        attempt: impl Fn() -> Result<T, ReserveError>,
    ) -> Result<Result<T, SegmentNews>, AppendError> {
        // Before the attempt: a segment installed in between ends the wait at once.
        let ready = self.tenure.handoff.ready();
        let refused = match attempt() {
            Ok(done) => return Ok(Ok(done)),
            Err(error) => self.refused(error),
        };
        let AppendError::NotReady { needed } = refused else { return Err(refused) };
        if Instant::now() >= deadline {
            return Err(self.deadline(needed));
        }
        Ok(Err(SegmentNews::new(self.shared.clone(), self.tenure.clone(), Lsn(ready.0 + 1))))
    }

    /// Why an append was refused; but where nothing but the rest of the opening is in its way, that is waited for, and the append may be tried again.
    #[cold]
    fn refused_for_good(&self, error: ReserveError) -> Result<(), AppendError> {
        match error {
            ReserveError::NotReady { ready, .. } => {
                self.shared.settle().map_err(AppendError::Failed)?;
                if self.tenure.handoff.ready() > ready { Ok(()) } else { Err(self.refused(error)) }
            }
            ReserveError::Full { .. } | ReserveError::Sealed { .. } | ReserveError::TooLarge { .. } => {
                Err(self.refused(error))
            }
        }
    }

    fn deadline(&self, needed: Lsn) -> AppendError {
        let cause = match self.shared.helper.failure() {
            Some(_) => "the next segment could not be made",
            None => "the next segment was not prepared in time",
        };
        AppendError::Deadline { needed, cause }
    }

    /// Says why an append was refused, and asks for what would mend it.
    #[cold]
    fn refused(&self, error: ReserveError) -> AppendError {
        let meters = &self.shared.meters;
        match error {
            ReserveError::TooLarge { payload_bytes, payload_bytes_max } => {
                AppendError::TooLarge { payload_bytes, payload_bytes_max }
            }
            ReserveError::Sealed { tail } => match self.shared.failure() {
                Some(failure) => AppendError::Failed(failure.clone()),
                None => AppendError::Sealed { epoch: self.tenure.epoch, tail },
            },
            ReserveError::Full { .. } => {
                meters.append_full.add(1);
                self.shared.watch_retention(&self.tenure);
                AppendError::Full {
                    retained_bytes: self.shared.retained_bytes(&self.tenure),
                    retention_bytes: self.shared.retention_bytes,
                    trimmed: self.shared.media.trimmed(),
                }
            }
            ReserveError::NotReady { ready, .. } => {
                meters.append_not_ready.add(1);
                self.shared.helper.look();
                if let Some(port) = self.shared.port() {
                    port.ask(crate::driver::Request::Prepare);
                }
                let needed = ready;
                match self.shared.helper.failure() {
                    None => {
                        meters.pool_misses.add(1);
                        AppendError::NotReady { needed }
                    }
                    Some(NoSegment::Make(failure @ PrepareError::Full { .. })) => {
                        AppendError::DiskFull { needed, cause: failure.to_string() }
                    }
                    // No room for a name is no room.
                    Some(NoSegment::Make(PrepareError::Disk(error))) if error.is_full() => {
                        AppendError::DiskFull { needed, cause: error.to_string() }
                    }
                    Some(NoSegment::Make(failure @ (PrepareError::Store(_) | PrepareError::Disk(_)))) => {
                        AppendError::NoSegment { needed, cause: failure.to_string() }
                    }
                    Some(NoSegment::Unusable(cause)) => AppendError::NoSegment { needed, cause },
                }
            }
        }
    }

    /// The longest payload a record of this log can hold, in bytes.
    #[must_use]
    pub fn payload_bytes_max(&self) -> u64 {
        self.shared.geometry.payload_bytes_max()
    }

    /// A future that is ready when everything below `end` (as an append returned it) has reached `level`. The level is worked on
    /// from the first poll; dropping the future drops the notification alone. On a lone log [`Level::Durable`] is
    /// [`Level::Local`] and [`Level::Replicated`] is refused.
    ///
    /// # Errors
    ///
    /// [`CommitError`]: except for `NoGroup` and `BeyondTail` the outcome is unknown, never "did not happen" (kind 25).
    pub fn commit(&self, end: Lsn, level: Level) -> Commit {
        Commit::new(self.shared.clone(), self.tenure.clone(), end, level)
    }

    /// [`Log::commit`] at the level of the options.
    pub fn commit_default(&self, end: Lsn) -> Commit {
        self.commit(end, self.shared.level)
    }

    /// As [`Log::commit`], on this thread: a committer that finds nobody flushing flushes itself, for all who wait.
    ///
    /// # Errors
    ///
    /// As [`Log::commit`].
    pub fn commit_blocking(&self, end: Lsn, level: Level) -> Result<Committed, CommitError> {
        self.commit_by(end, level, None)
    }

    /// As [`Log::commit_blocking`], until a deadline. A flush that has begun is not given up: the deadline may be passed by the
    /// time of one.
    ///
    /// # Errors
    ///
    /// As [`Log::commit`], and [`CommitError::Deadline`].
    pub fn commit_until(&self, end: Lsn, level: Level, deadline: Instant) -> Result<Committed, CommitError> {
        self.commit_by(end, level, Some(deadline))
    }

    fn commit_by(&self, end: Lsn, level: Level, deadline: Option<Instant>) -> Result<Committed, CommitError> {
        let watch = self.shared.watch_for(&self.tenure, end, level)?;
        if let Some(port) = self.shared.port().filter(|_| level != Level::Buffered && watch.value() < end) {
            let is_done = || watch.answer(end).is_some();
            watch.ask(end);
            let stepped = port.want_and_step(end, level, &is_done);
            if !stepped && level == Level::Replicated && watch.waiting() == 0 {
                spin_until(is_done);
            }
            wait_in_crowd(&watch, end, level, deadline)?;
            return Ok(Committed::new(end, level));
        }
        let here = OnMedia(&self.shared, &self.tenure);
        match level {
            Level::Buffered => self.wait_drained(end, deadline)?,
            Level::Local => self.tenure.gate.commit_blocking(&here, end, level, deadline)?,
            Level::Durable if self.shared.is_lone() => {
                self.tenure.gate.commit_blocking(&here, end, level, deadline)?;
            }
            Level::Durable | Level::Replicated => wait_blocking(&watch, end, level, Who::Thread, deadline)?,
        }
        Ok(Committed::new(end, level))
    }

    /// Drains until `end` is passed; waits for other producers' reservations.
    fn wait_drained(&self, end: Lsn, deadline: Option<Instant>) -> Result<(), CommitError> {
        let drained = &self.tenure.watermarks.drained;
        let mut yields = 0;
        loop {
            if let Some(answer) = drained.answer(end) {
                return answer;
            }
            // A failure reaches us through the watch.
            let _ = self.shared.drain(&self.tenure);
            if let Some(answer) = drained.answer(end) {
                return answer;
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(CommitError::Deadline { end, level: Level::Buffered });
            }
            if yields < YIELDS {
                yields += 1;
                std::thread::yield_now();
            } else {
                commit::park(deadline, Some(std::time::Duration::from_micros(50)));
            }
        }
    }
}

/// A record that is reserved and not yet published: fill it with [`Reservation::write`], then [`Reservation::publish`] it. Dropped, it
/// becomes filler that no reader sees.
#[derive(Debug)]
#[must_use = "everything behind a reservation waits for it to be published or dropped"]
pub struct Reservation<'a>(windlass_log::Reservation<'a>);

impl Reservation<'_> {
    /// The record's LSN.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.0.start()
    }

    /// The start of the record behind it: what to commit.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.0.end()
    }

    /// The length reserved for the payload, in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.0.payload_bytes()
    }

    /// Copies `source` to byte `offset` of the payload. Pieces may come in any order and overlap; in order is fastest. A byte that is never
    /// written is whatever the memory held: write them all.
    ///
    /// # Panics
    ///
    /// If it doesn't fit the payload.
    pub fn write(&mut self, offset: u64, source: &[u8]) {
        self.0.write(offset, source);
    }

    /// Publishes the record.
    pub fn publish(self) -> Appended {
        self.0.publish(RecordKind::Data)
    }
}
