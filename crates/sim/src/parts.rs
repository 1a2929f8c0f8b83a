//! What a driver is given beside its fabric and disk: a clock that drifts, one end of the control plane, and an executor whose work is done
//! when the world says so.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass::control::{ControlEvent, ControlPlane, Frame};
use windlass::driver::{Done, Executor, Lane, Work};
use windlass::{Clock, MemberId};
use windlass_store::disk::testing::TestDisk;

/// One member's clock, as the world has set it last.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimClock(Arc<AtomicU64>);

impl SimClock {
    pub(crate) fn set(&self, ns: u64) {
        self.0.store(ns, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// One member's end of the control plane.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) inbox: VecDeque<ControlEvent>,
    pub(crate) outbox: VecDeque<(u8, Frame)>,
}

/// A [`Wire`] that the member's driver holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimControl(Arc<Mutex<Wire>>);

impl SimControl {
    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlPlane for SimControl {
    fn set_members(&mut self, _: u64, _: &[windlass::engine::MemberEntry]) {}

    fn poll(&mut self) -> Option<ControlEvent> {
        self.wire().inbox.pop_front()
    }

    fn send(&mut self, peer: MemberId, frame: Frame) {
        self.wire().outbox.push_back((peer.0, frame));
    }
}

/// A member's log lines, until the world puts them into its trace.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn logger(&self) -> slog::Logger {
        slog::Logger::root(slog::Drain::ignore_res(self.clone()), slog::o!())
    }
}

impl slog::Drain for Lines {
    type Ok = ();
    type Err = slog::Error;

    fn log(&self, record: &slog::Record<'_>, values: &slog::OwnedKVList) -> Result<(), slog::Error> {
        struct Text(String);
        impl slog::Serializer for Text {
            fn emit_arguments(&mut self, key: slog::Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
                self.0 += &format!(" {key}={value}");
                Ok(())
            }
        }
        let mut text = Text(record.msg().to_string());
        slog::KV::serialize(values, record, &mut text)?;
        slog::KV::serialize(&record.kv(), record, &mut text)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
        Ok(())
    }
}

/// The lanes of [`SimExecutor`].
pub(crate) const LANES: [Lane; 4] = Lane::ALL;

/// Work waits until the world does it; each lane in order.
#[derive(Default)]
pub(crate) struct SimExecutor {
    lanes: [VecDeque<Work<TestDisk>>; LANES.len()],
    /// Lanes of what was submitted since the world looked last.
    fresh: VecDeque<usize>,
    done: VecDeque<Done>,
}

impl std::fmt::Debug for SimExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimExecutor").finish_non_exhaustive()
    }
}

impl SimExecutor {
    /// The lane of something submitted that the world does not know of yet.
    pub(crate) fn fresh(&mut self) -> Option<usize> {
        self.fresh.pop_front()
    }

    /// Whether something of this lane is not done yet.
    pub(crate) fn is_busy(&self, lane: usize) -> bool {
        !self.lanes[lane].is_empty()
    }

    /// What the oldest work of a lane is.
    pub(crate) fn next(&self, lane: usize) -> Option<&'static str> {
        self.lanes[lane].front().map(Work::name)
    }

    /// Does the oldest work of a lane.
    pub(crate) fn work(&mut self, lane: usize) {
        if let Some(work) = self.lanes[lane].pop_front() {
            self.done.push_back(work.run());
        }
    }
}

impl Executor<TestDisk> for SimExecutor {
    fn submit(&mut self, work: Work<TestDisk>) {
        let lane = LANES.iter().position(|lane| *lane == work.lane()).unwrap_or(0);
        self.lanes[lane].push_back(work);
        self.fresh.push_back(lane);
    }

    fn poll(&mut self) -> Option<Done> {
        self.done.pop_front()
    }
}
