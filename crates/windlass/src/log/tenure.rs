//! One tenure of the log: its hand-off between producers and the drain, and its watermarks.
//!
//! A [`crate::Log`] handle belongs to one tenure. When the tenure ends (truncation, takeover, close) its tail is sealed and
//! the handle's appends answer `Sealed`; who carries on holds a handle of the next tenure. So a producer can't slip a record of
//! the old tenure into the new one, and no append has to ask which tenure it is.
//!
//! Invariants: `persisted ≤ drained ≤ tail` (I-1); after [`Tenure::fail`] no watermark moves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_log::{Drain, DrainState, Epoch, Handoff, Lsn};

use super::flush::Gate;
use crate::clock::Clock;
use crate::commit::{Covered, Failure, Hush, Stopped, Watch};
use crate::metrics::Meters;

/// How many records a drain takes before it looks up: bounds how long the lock is held.
const DRAIN_RECORDS: usize = 4096;

/// One tenure.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) epoch: Epoch,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) watermarks: Watermarks,
    pub(crate) gate: Gate,
    drain: Mutex<Draining>,
}

/// The watermarks of a tenure, each with who waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Watermarks {
    /// Published without a gap: `Buffered`.
    pub(crate) drained: Arc<Watch>,
    /// Flushed here: `Local`.
    pub(crate) persisted: Arc<Watch>,
    /// Placed on a quorum: `Replicated`. Moved by the driver; on a lone log it stands still.
    pub(crate) replicated: Arc<Watch>,
    /// Persisted on a quorum: `Durable`. Moved by the driver; on a lone log it is `persisted` itself.
    pub(crate) durable: Arc<Watch>,
    /// Up to where segments are installed: what `append_wait` waits for.
    pub(crate) ready: Arc<Watch>,
}

impl Watermarks {
    /// Those of a lone log: durable on a quorum of one is persisted.
    pub(crate) fn lone(persisted: Lsn, tail: Lsn, ready: Lsn) -> Watermarks {
        let persisted = Arc::new(Watch::new(persisted));
        Watermarks {
            drained: Arc::new(Watch::new(tail)),
            durable: persisted.clone(),
            persisted,
            replicated: Arc::new(Watch::new(Lsn(0))),
            ready: Arc::new(Watch::new(ready)),
        }
    }

    /// Those of a group's primary: the driver moves them all.
    pub(crate) fn member(persisted: Lsn, tail: Lsn, durable: Lsn, ready: Lsn) -> Watermarks {
        Watermarks {
            drained: Arc::new(Watch::new(tail)),
            durable: Arc::new(Watch::new(durable)),
            persisted: Arc::new(Watch::new(persisted.min(tail))),
            replicated: Arc::new(Watch::new(durable)),
            ready: Arc::new(Watch::new(ready)),
        }
    }

    pub(crate) fn stop(&self, why: &Stopped) {
        // Whoever is woken by the first finds all of them stopped.
        let _hush = Hush::begin();
        for watch in [&self.drained, &self.persisted, &self.replicated, &self.durable, &self.ready] {
            watch.stop(why.clone());
        }
    }
}

#[derive(Debug)]
struct Draining {
    drain: Drain,
    /// Where the drain has been waiting, and since when.
    waiting: Option<(Lsn, Duration)>,
}

/// Where the drain stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drained {
    /// Nothing is in flight up to here.
    Idle(Lsn),
    /// A reservation that starts here is not published yet.
    Waiting(Lsn),
    /// The tenure is sealed and everything up to its tail is drained.
    Closed(Lsn),
}

impl Drained {
    pub(crate) fn lsn(self) -> Lsn {
        match self {
            Drained::Idle(lsn) | Drained::Waiting(lsn) | Drained::Closed(lsn) => lsn,
        }
    }
}

impl Tenure {
    pub(crate) fn new(drain: Drain, watermarks: Watermarks, meters: Arc<Meters>) -> Tenure {
        let handoff = drain.handoff().clone();
        let gate = Gate::new(watermarks.persisted.clone(), meters);
        Tenure {
            epoch: handoff.epoch(),
            handoff,
            watermarks,
            gate,
            drain: Mutex::new(Draining { drain, waiting: None }),
        }
    }

    fn draining(&self) -> MutexGuard<'_, Draining> {
        // The drain's own steps leave it consistent.
        self.drain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes everything that is published and moves `drained` over it. `limit` bounds how long a reservation may stay
    /// unpublished.
    pub(crate) fn drain(
        &self,
        clock: &dyn Clock,
        limit: Duration,
        meters: &Meters,
    ) -> Result<Drained, Failure> {
        loop {
            let mut draining = self.draining();
            let round = match draining.drain.poll(DRAIN_RECORDS) {
                Ok(round) => round,
                Err(error) => return Err(Failure::Scribbled { cause: error.to_string().into() }),
            };
            meters.records.add(round.records as u64);
            meters.payload_bytes.add(round.payload_bytes);
            let covered = if round.to > round.from {
                self.watermarks.drained.advance(round.to)
            } else {
                Covered::default()
            };
            let stands = match round.state {
                DrainState::More => None,
                DrainState::Idle => {
                    draining.waiting = None;
                    Some(Ok(Drained::Idle(round.to)))
                }
                DrainState::Closed { tail } => Some(Ok(Drained::Closed(tail))),
                DrainState::Waiting { lsn } => Some(wait_at(&mut draining, lsn, clock.now(), limit)),
            };
            drop(draining);
            // With no lock held: a waker may run its task at once, and that may drain.
            covered.wake();
            if let Some(stands) = stands {
                return stands;
            }
        }
    }

    /// Nothing is taken or acknowledged any more.
    pub(crate) fn fail(&self, failure: &Failure) {
        self.handoff.seal();
        self.watermarks.stop(&Stopped::Failed(failure.clone()));
    }
}

fn wait_at(draining: &mut Draining, lsn: Lsn, now: Duration, limit: Duration) -> Result<Drained, Failure> {
    match draining.waiting {
        Some((at, since)) if at == lsn => {
            let waited = now.saturating_sub(since);
            if waited > limit && !windlass_log::planted!(R9) {
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Err(Failure::StuckReservation { lsn, waited_ms });
            }
        }
        Some(_) | None => draining.waiting = Some((lsn, now)),
    }
    Ok(Drained::Waiting(lsn))
}
