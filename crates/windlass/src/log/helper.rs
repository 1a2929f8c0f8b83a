//! The helper: what has to happen ahead of the tail and behind the trim point, so that an append never waits for it.
//!
//! One step at a time, by a thread of its own or by whoever steps the log: drain, prepare and install segments, make pages
//! present ahead of the tail, reuse trimmed segments, note where background flushes may end, watch the retention.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use slog::{info, warn};
use windlass_store::{PrepareError, Prepared, StoreError};

use super::open::install_ready;
use super::shared::{Shared, locked};
use super::tenure::Tenure;
use crate::commit::{Failure, Turn};

/// How often the helper looks while appends come.
const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// How often it looks while nothing happens.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// How long it waits after a failure before it tries again.
const FAILED_PAUSE: Duration = Duration::from_millis(100);
/// How long a log that was just opened is left to its readers before more segments are made than the one with its tail.
const READING_FIRST: Duration = Duration::from_secs(1);
/// How often the helper looks meanwhile whether anything is appended.
const READING_PAUSE: Duration = Duration::from_millis(5);
/// How often the live mark is made durable, at most.
const MARK_PAUSE: Duration = Duration::from_secs(1);
/// Looks without news before it slows down.
const BUSY_LOOKS: u32 = 200;

/// What the helper remembers.
#[derive(Debug, Default)]
pub(crate) struct Helper {
    /// Held for a whole step, which may take as long as making a segment: never by who answers a producer.
    turn: Mutex<()>,
    state: Mutex<State>,
    wanted: Mutex<Wanted>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Why the next segment is not there.
    failure: Option<NoSegment>,
    /// When the live mark is made durable next, at the earliest.
    mark_at: Duration,
}

/// Why the next segment is not there for appends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoSegment {
    /// It could not be made.
    #[error(transparent)]
    Make(PrepareError),
    /// It is there, and can't be used: the device of a group's primary does not take it, say.
    #[error("{0}")]
    Unusable(String),
}

#[derive(Debug, Default)]
struct Wanted {
    look: bool,
    stop: bool,
}

/// How a pause ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Slept,
    Asked,
    Stop,
}

/// What one step of the helper came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something was done; step again.
    Progress,
    /// Nothing to do until more is appended or trimmed.
    Idle,
    /// A segment could not be made; try again later. `append` says why.
    Failed,
}

impl Helper {
    /// Why the next segment is not there, if it failed.
    pub(crate) fn failure(&self) -> Option<NoSegment> {
        locked(&self.state).failure.clone()
    }

    /// Forgets, or notes, why the next segment is not there. Who waits has to be told of a failure: [`Shared::note_prepared`].
    fn set_failure(&self, failure: Option<NoSegment>) {
        locked(&self.state).failure = failure;
    }

    /// Does something to the hand-off that it takes from one thread at a time.
    pub(crate) fn alone<T>(&self, body: impl FnOnce() -> T) -> T {
        let _turn = Turn::take(&self.turn);
        body()
    }

    /// Makes the thread look now.
    pub(crate) fn look(&self) {
        locked(&self.wanted).look = true;
        self.wake.notify_one();
    }

    /// Makes the thread look now, for there may be room again: what it failed at before says nothing any more.
    pub(crate) fn look_afresh(&self) {
        self.set_failure(None);
        self.look();
    }

    pub(crate) fn stop(&self) {
        locked(&self.wanted).stop = true;
        self.wake.notify_one();
    }

    /// Sleeps at most `longest`.
    fn pause(&self, longest: Duration) -> Woken {
        let wanted = locked(&self.wanted);
        let pausing = self.wake.wait_timeout_while(wanted, longest, |wanted| !wanted.look && !wanted.stop);
        let (mut wanted, _) = pausing.unwrap_or_else(std::sync::PoisonError::into_inner);
        match (std::mem::take(&mut wanted.look), wanted.stop) {
            (_, true) => Woken::Stop,
            (true, false) => Woken::Asked,
            (false, false) => Woken::Slept,
        }
    }
}

impl Shared {
    /// Notes whether segments can be made. Who waits for one in `tenure` hears of a failure at once: the ready mark may never move again.
    pub(crate) fn note_prepared(&self, tenure: &Tenure, failure: Option<NoSegment>) {
        let has_failed = failure.is_some();
        // Before they are woken: who looks after that finds it.
        self.helper.set_failure(failure);
        if has_failed {
            tenure.watermarks.ready.rouse();
        }
    }

    /// One bounded step of the helper's work.
    pub(crate) fn step(&self) -> Step {
        // Whoever steps by hand may do so when it is closed: nothing is left to do, and nothing has failed.
        if self.media.is_closed() || self.settle().is_err() {
            return Step::Idle;
        }
        let tenure = self.tenure();
        let Ok(drained) = self.drain(&tenure) else { return Step::Idle };
        self.note_stretch(&tenure, drained.lsn());
        self.flush_behind(&tenure);
        self.watch_retention(&tenure);
        self.sync_mark();
        self.prepare(&tenure)
    }

    /// Makes the live mark durable, if it has moved, at most once a second.
    fn sync_mark(&self) {
        let now = self.clock.now();
        let mut state = locked(&self.helper.state);
        if now < state.mark_at {
            return;
        }
        state.mark_at = now.saturating_add(MARK_PAUSE);
        drop(state);
        if let Err(error) = self.media.sync_live_mark()
            && error != StoreError::Closed
        {
            self.fail(Failure::Store { what: "writing the live mark", cause: error.to_string().into() });
        }
    }

    fn prepare(&self, tenure: &Tenure) -> Step {
        // One at a time: the hand-off insists on it.
        let turn = Turn::take(&self.helper.turn);
        tenure.handoff.retire();
        let before = tenure.handoff.ready();
        if self.geometry.segment_of(before)
            <= self.geometry.segment_of(tenure.handoff.tail()) + self.ahead_segments
        {
            // Also what was there before a cut.
            install_ready(&*self.media, &tenure.handoff);
        }
        let mut failure = None;
        let step = match self.media.prepare_step(tenure.handoff.tail()) {
            Ok(Prepared::Segment { .. }) => {
                if locked(&self.helper.state).failure.take().is_some() {
                    info!(self.logger, "segments can be made again"; "folder" => %self.folder.display());
                }
                install_ready(&*self.media, &tenure.handoff);
                Step::Progress
            }
            Ok(
                Prepared::Allocated { .. }
                | Prepared::Populated { .. }
                | Prepared::Marked { .. }
                | Prepared::Recycled { .. },
            ) => Step::Progress,
            Ok(Prepared::Idle) => {
                self.helper.set_failure(None);
                Step::Idle
            }
            // Closed meanwhile.
            Err(PrepareError::Store(StoreError::Closed)) => return Step::Idle,
            Err(PrepareError::Store(error)) => {
                self.fail(Failure::Store { what: "preparing a segment", cause: error.to_string().into() });
                return Step::Idle;
            }
            Err(error @ (PrepareError::Full { .. } | PrepareError::Disk(_))) => {
                let error = NoSegment::Make(error);
                if self.helper.failure().as_ref() != Some(&error) {
                    warn!(self.logger, "no segment could be made; appends will be refused when the ready ones are full";
                        "folder" => %self.folder.display(), "cause" => %error);
                }
                failure = Some(error);
                Step::Failed
            }
        };
        let ready = tenure.handoff.ready();
        drop(turn);
        if ready > before {
            tenure.watermarks.ready.advance(ready).wake();
        }
        if failure.is_some() {
            self.note_prepared(tenure, failure);
        }
        step
    }

    /// Lets go of the memory that a tenure has drained, beside the helper, which does the same: the hand-off takes one at a time.
    pub(crate) fn retire(&self, tenure: &Tenure) {
        let _turn = Turn::take(&self.helper.turn);
        tenure.handoff.retire();
    }

    /// The helper thread's body.
    pub(crate) fn run_helper(self: &Arc<Shared>) {
        if self.leave_to_readers() == Woken::Stop {
            return;
        }
        let mut quiet = 0;
        let mut tail = self.tenure().handoff.tail();
        loop {
            let step = self.step();
            let now = self.tenure().handoff.tail();
            // Whoever watches the drain is told by our looking.
            let watched = self.tenure().watermarks.drained.is_watched();
            quiet = if now == tail && step != Step::Progress && !watched { quiet + 1 } else { 0 };
            tail = now;
            let pause = match step {
                Step::Progress => continue,
                Step::Failed => FAILED_PAUSE,
                Step::Idle if quiet < BUSY_LOOKS => BUSY_PAUSE,
                Step::Idle => IDLE_PAUSE,
            };
            if self.helper.pause(pause) == Woken::Stop {
                return;
            }
        }
    }

    /// What was just opened is most often read first, and segments being made would take a core and the device from that. So nothing is made
    /// before something is appended or asked for, or some time has passed. What an opening has left is done first.
    fn leave_to_readers(&self) -> Woken {
        let _ = self.settle();
        let (tenure, opened) = (self.tenure(), self.clock.now());
        let tail = tenure.handoff.tail();
        // Nothing to read, or nowhere to append to.
        if self.media.trimmed() >= tail || tenure.handoff.ready() <= tail {
            return Woken::Asked;
        }
        while tenure.handoff.tail() == tail && self.clock.now().saturating_sub(opened) < READING_FIRST {
            match self.helper.pause(READING_PAUSE) {
                Woken::Slept => {}
                woken @ (Woken::Asked | Woken::Stop) => return woken,
            }
        }
        Woken::Slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_that_is_refused_never_waits_for_the_segment_that_is_being_made_r8() {
        let helper = Helper::default();
        let _making = locked(&helper.turn);
        // What `append` asks for to say why.
        assert_eq!(helper.failure(), None);
        helper.look();
    }
}
