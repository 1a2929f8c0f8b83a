//! What happens to a node, for whoever listens: each listener sees every event from when it began to listen, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use windlass_engine::{Event, Role, StopReason};
use windlass_log::{Epoch, Lsn, MemberId};

use super::checkpoint::CheckpointError;
use crate::commit::{CommitError, Level, Reached, Stopped, Watch, Who, wait_blocking};
use crate::control::Exclusion;

/// Events that are kept for slow listeners.
const KEPT: usize = 1024;

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeEvent {
    /// This member's role changed. As primary, `Node::log` has the log.
    Role {
        /// The new one.
        role: Role,
        /// The tenure it belongs to.
        epoch: Epoch,
    },
    /// A tenure of this member is over; what it had not committed is unknown.
    SteppedDown {
        /// The tenure.
        epoch: Epoch,
        /// Why.
        reason: StopReason,
    },
    /// Something that was on this member's medium is damaged: it is had again from the group, and the member does not lead until it has it.
    Damaged {
        /// What, and where.
        damage: windlass_store::Damage,
    },
    /// Everything that was damaged or lost here is on the medium again, or given up (`Node::accept_loss`): this member counts as any other.
    Repaired {
        /// The end of its log by now.
        tail: Lsn,
    },
    /// The log goes on at `at`, behind a checkpoint of the application: readers below are past what is kept, begin anew there.
    CheckpointTaken {
        /// Whose; `None` where the application had it already.
        giver: Option<MemberId>,
        /// Where the log goes on.
        at: Lsn,
        /// How long it was.
        bytes: u64,
    },
    /// A checkpoint that is needed was not taken this time; it is tried again.
    CheckpointFailed {
        /// Who was asked, if anybody.
        giver: Option<MemberId>,
        /// Why.
        error: CheckpointError,
    },
    /// A peer keeps this member out.
    Excluded {
        /// Who.
        by: MemberId,
        /// Why, and what to do.
        exclusion: Exclusion,
    },
    /// Something else that the application or the operator should see.
    Group(Event),
    /// This node has ended: it was closed, or its fabric failed.
    Ended,
}

/// The events of a node, numbered from 1. `count` is the number of the newest: a watermark like any other.
#[derive(Debug)]
pub(crate) struct Events {
    kept: Mutex<VecDeque<(u64, NodeEvent)>>,
    count: Arc<Watch>,
}

impl Events {
    pub(crate) fn new() -> Events {
        Events { kept: Mutex::default(), count: Arc::new(Watch::new(Lsn(0))) }
    }

    pub(crate) fn push(&self, event: NodeEvent) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.count.value().0 + 1;
        kept.push_back((number, event));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        // Under the lock, so that numbers and order agree.
        let covered = self.count.advance(Lsn(number));
        drop(kept);
        covered.wake();
    }

    pub(crate) fn end(&self) {
        self.push(NodeEvent::Ended);
        self.count.stop(Stopped::Closed);
    }

    pub(crate) fn listen(self: &Arc<Events>) -> NodeEvents {
        NodeEvents { events: Arc::clone(self), seen: self.count.value().0 }
    }

    /// The first event behind number `seen`, and its number: higher than the next one if the listener was too slow.
    fn after(&self, seen: u64) -> Option<(u64, NodeEvent)> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(number, _)| *number > seen).cloned()
    }
}

/// A listener of a node's events.
#[derive(Debug)]
pub struct NodeEvents {
    events: Arc<Events>,
    seen: u64,
}

impl NodeEvents {
    /// The next event if there is one.
    pub fn try_next(&mut self) -> Option<NodeEvent> {
        let (number, event) = self.events.after(self.seen)?;
        self.seen = number;
        Some(event)
    }

    /// The next event, waiting for it on this thread until `deadline`. `None` past the deadline, or once the node has ended and
    /// everything was seen.
    pub fn next_blocking(&mut self, deadline: Option<Instant>) -> Option<NodeEvent> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            let wanted = Lsn(self.seen + 1);
            match wait_blocking(&self.events.count, wanted, Level::Buffered, Who::Observer, deadline) {
                Ok(()) => {}
                Err(
                    CommitError::Deadline { .. }
                    | CommitError::Closed { .. }
                    | CommitError::Failed { .. }
                    | CommitError::Fenced { .. }
                    | CommitError::NoGroup
                    | CommitError::BeyondTail { .. },
                ) => return self.try_next(),
            }
        }
    }

    /// The next event. `None` once the node has ended and everything was seen.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point; no event is lost.
    pub async fn next(&mut self) -> Option<NodeEvent> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            let wanted = Lsn(self.seen + 1);
            if Reached::new(Arc::clone(&self.events.count), wanted, Who::Observer).await.is_err() {
                return self.try_next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_listener_sees_all_events_from_its_beginning_in_order_and_then_the_end() {
        let events = Arc::new(Events::new());
        let mut early = events.listen();
        let role = |role| NodeEvent::Role { role, epoch: Epoch::NONE };
        events.push(role(Role::Candidate));
        let mut late = events.listen();
        events.push(role(Role::Primary));
        assert_eq!(early.try_next(), Some(role(Role::Candidate)));
        assert_eq!(early.next_blocking(None), Some(role(Role::Primary)));
        assert_eq!(early.next_blocking(Some(Instant::now() + Duration::from_millis(5))), None);
        let waiting = std::thread::spawn(move || {
            (late.next_blocking(None), late.next_blocking(None), late.next_blocking(None))
        });
        events.end();
        let seen = waiting.join().unwrap();
        assert_eq!(seen, (Some(role(Role::Primary)), Some(NodeEvent::Ended), None));
        assert_eq!(early.next_blocking(None), Some(NodeEvent::Ended));
        assert_eq!(early.next_blocking(None), None);
    }
}
