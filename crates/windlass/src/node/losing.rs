//! A fabric that loses completions, for tests: [`Losing`] throws away every so manieth that another provider brings. DESIGN.md section 7.3.
//!
//! What a request did is done, its slot is given back and a receive is used up; only whoever polls is never told. A completion that says how
//! something failed is not thrown away: it is the connection that fails, which its state tells as well.
//!
//! Behind the feature `faults`, which nothing turns on by default. With nothing to lose it passes on what there is.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_fabric::{
    Access, AllocateError, Capabilities, Completion, CompletionQueue, CompletionQueueError,
    ConnectionOptions, CreateError, Fabric, Memory, PollError, RegisterError, Woken,
};

/// Which completions a member throws away: see [`NodeOptions::lose_completions`](crate::NodeOptions::lose_completions).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoseCompletions {
    /// Every so manieth of the successful requests that have one, over all connections; `None`: none of them.
    pub every_request: Option<NonZeroU64>,
    /// The same of the receives that were used.
    pub every_receive: Option<NonZeroU64>,
}

/// How many completions a member has thrown away since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LostCompletions {
    /// Of requests.
    pub requests: u64,
    /// Of receives.
    pub receives: u64,
}

/// What was thrown away, as the node and the thread that polls share it.
#[derive(Debug, Default)]
pub(super) struct Losses {
    requests: AtomicU64,
    receives: AtomicU64,
}

impl Losses {
    pub(super) fn counts(&self) -> LostCompletions {
        LostCompletions {
            requests: self.requests.load(Ordering::Relaxed),
            receives: self.receives.load(Ordering::Relaxed),
        }
    }
}

/// Any provider, but for completions that are lost.
pub(super) struct Losing<F> {
    inner: F,
    lose: LoseCompletions,
    losses: Arc<Losses>,
}

impl<F: Fabric> Losing<F> {
    pub(super) fn new(inner: F, lose: LoseCompletions) -> (Losing<F>, Arc<Losses>) {
        let losses = Arc::<Losses>::default();
        (Losing { inner, lose, losses: Arc::clone(&losses) }, losses)
    }
}

impl<F: Fabric> Fabric for Losing<F> {
    type Region = F::Region;
    type Window = F::Window;
    type CompletionQueue = LosingQueue<F::CompletionQueue>;
    type Connection = F::Connection;

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn register(&self, memory: Arc<dyn Memory>, access: Access) -> Result<F::Region, RegisterError> {
        self.inner.register(memory, access)
    }

    fn allocate_window(&self) -> Result<F::Window, AllocateError> {
        self.inner.allocate_window()
    }

    fn completion_queue(&self, capacity: u32) -> Result<Self::CompletionQueue, CompletionQueueError> {
        let inner = self.inner.completion_queue(capacity)?;
        Ok(LosingQueue {
            inner,
            requests: Countdown::of(self.lose.every_request),
            receives: Countdown::of(self.lose.every_receive),
            losses: Arc::clone(&self.losses),
        })
    }

    fn connection(
        &self,
        queue: &Self::CompletionQueue,
        options: &ConnectionOptions,
    ) -> Result<F::Connection, CreateError> {
        self.inner.connection(&queue.inner, options)
    }
}

/// Counts to every so manieth.
struct Countdown {
    every: Option<NonZeroU64>,
    seen: u64,
}

impl Countdown {
    fn of(every: Option<NonZeroU64>) -> Countdown {
        Countdown { every, seen: 0 }
    }

    /// One more has come: whether it is lost.
    fn hits(&mut self) -> bool {
        self.seen += 1;
        self.every.is_some_and(|every| self.seen.is_multiple_of(every.get()))
    }
}

/// The queue of a [`Losing`] fabric.
pub(super) struct LosingQueue<Q> {
    inner: Q,
    requests: Countdown,
    receives: Countdown,
    losses: Arc<Losses>,
}

impl<Q> LosingQueue<Q> {
    fn is_lost(&mut self, completion: &Completion) -> bool {
        if !completion.status.is_success() {
            return false;
        }
        let (countdown, lost) = if completion.opcode.is_receive() {
            (&mut self.receives, &self.losses.receives)
        } else {
            (&mut self.requests, &self.losses.requests)
        };
        let is_lost = countdown.hits();
        if is_lost {
            lost.fetch_add(1, Ordering::Relaxed);
        }
        is_lost
    }
}

impl<Q: CompletionQueue> CompletionQueue for LosingQueue<Q> {
    type Waker = Q::Waker;

    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        let mut kept = 0;
        // Fewer than asked for means that the queue is empty: what was lost leaves room that is filled again.
        while kept < into.len() {
            let asked = into.len() - kept;
            let came = self.inner.poll(&mut into[kept..])?;
            let first = kept;
            for at in first..first + came {
                let completion = into[at];
                if !self.is_lost(&completion) {
                    into[kept] = completion;
                    kept += 1;
                }
            }
            if came < asked {
                break;
            }
        }
        Ok(kept)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Woken, PollError> {
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Q::Waker {
        self.inner.waker()
    }
}

#[cfg(test)]
#[path = "losing_tests.rs"]
mod tests;
