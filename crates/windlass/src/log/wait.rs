//! Waiting for a commit, for room, for records: as futures and on the calling thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use windlass_log::Lsn;

use super::Shared;
use super::tenure::Tenure;
use crate::commit::{CommitError, Committed, Level, Ticket, Watch, Who};

/// A commit on its way: ready once everything below its end has reached its level, or never will.
///
/// The append was made before this future existed. Dropping it drops the notification, nothing else (kind 82).
///
/// # Cancel safety
///
/// May be dropped at any point.
#[derive(Debug)]
#[must_use = "a commit is only known to be reached once it has been awaited"]
pub struct Commit {
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    /// What is waited for, or why that can't be.
    watch: Result<Arc<Watch>, CommitError>,
    end: Lsn,
    level: Level,
    ticket: Option<Ticket>,
}

impl Commit {
    pub(super) fn new(shared: Arc<Shared>, tenure: Arc<Tenure>, end: Lsn, level: Level) -> Commit {
        let watch = shared.watch_for(&tenure, end, level);
        Commit { shared, tenure, watch, end, level, ticket: None }
    }

    /// Sees to it that somebody works on what this waits for.
    fn ask(&self) {
        if let Some(port) = self.shared.port() {
            return port.want(self.end, self.level);
        }
        match self.level {
            Level::Buffered => self.tenure.gate.drain_waits(),
            Level::Local => self.tenure.gate.future_waits(self.end),
            Level::Durable if self.shared.is_lone() => self.tenure.gate.future_waits(self.end),
            // The driver moves these.
            Level::Durable | Level::Replicated => {}
        }
    }
}

impl Future for Commit {
    type Output = Result<Committed, CommitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let watch = match &this.watch {
            Ok(watch) => watch.clone(),
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        if this.level == Level::Buffered && watch.value() < this.end {
            // Usually everything is published and one look is enough. A failure reaches us through the watch.
            let _ = this.shared.drain(&this.tenure);
        }
        loop {
            if let Some(answer) = watch.answer(this.end) {
                this.ticket = None;
                return Poll::Ready(answer.map(|()| Committed::new(this.end, this.level)));
            }
            let first = this.ticket.is_none();
            this.ticket = watch.register(this.end, this.ticket, cx.waker(), Who::Future);
            if this.ticket.is_some() {
                if first {
                    this.ask();
                }
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if let (Some(ticket), Ok(watch)) = (self.ticket, &self.watch) {
            watch.cancel(ticket);
        }
    }
}

/// Ready when an append that found no segment may be tried again: one more is ready, or it is known that none can be made, or the tenure has ended.
///
/// A failure must end the wait as much as a segment does: on a full disk the ready mark may never move again (kind 22).
#[derive(Debug)]
pub(super) struct SegmentNews {
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    /// What the ready mark has to reach.
    ready: Lsn,
    ticket: Option<Ticket>,
}

impl SegmentNews {
    pub(super) fn new(shared: Arc<Shared>, tenure: Arc<Tenure>, ready: Lsn) -> SegmentNews {
        SegmentNews { shared, tenure, ready, ticket: None }
    }
}

impl Future for SegmentNews {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let watch = &this.tenure.watermarks.ready;
        this.ticket = watch.register(this.ready, this.ticket, cx.waker(), Who::Observer);
        // The look comes after the place in the queue: whoever notes a failure then either is seen here or wakes this.
        if this.ticket.is_none() || this.shared.helper.failure().is_some() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for SegmentNews {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.tenure.watermarks.ready.cancel(ticket);
        }
    }
}
