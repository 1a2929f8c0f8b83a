//! What the application's threads and the driver share: wishes go in without a lock where they are frequent, marks come out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use windlass_engine::{Change, Configuration, Input, PeerStatus, SnapshotNeed, SnapshotState, Status};
use windlass_log::{Lsn, MemberId};

use super::answer::Answer;
use super::gather::{Gather, Gathered};
use super::members::ChangeFailure;
use super::requests::Requests;
use crate::commit::{Hush, Level, Stopped, Watch};
use crate::control::Exclusion;

/// What an application asks of the driver, rarely.
#[derive(Debug)]
pub(crate) enum Request {
    /// An input for the engine.
    Engine(Input),
    /// The next segment is needed.
    Prepare,
    /// A reader met damage there.
    Look(Lsn),
    /// Change the group; answered with the configuration that is committed.
    Change(Change, Answer<Result<Configuration, ChangeFailure>>),
}

/// What this member knows of the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    /// The newest configuration of its log, and whether it is known to be committed.
    pub(crate) configuration: Configuration,
    pub(crate) committed: bool,
    /// As primary: how the others stand, as far as they were told of.
    pub(crate) peers: BTreeMap<MemberId, PeerStatus>,
}

/// Who sees to it that the driver is stepped, where several threads may.
pub(crate) trait Attend: Send + Sync {
    /// The driver is to take a turn.
    fn woken(&self);

    /// Steps the driver on this thread until `is_done`, or for a while; `false` if somebody else steps it.
    fn step_until(&self, is_done: &dyn Fn() -> bool) -> bool;
}

/// The shared part. See the module.
pub(crate) struct Port {
    gather: Gather,
    requests: Requests<Request>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    attends: OnceLock<Weak<dyn Attend>>,
    /// Persisted on a quorum, as far as this member knows and holds. Never goes back.
    pub(crate) durable: Arc<Watch>,
    replicated: Mutex<Arc<Watch>>,
    status: Mutex<Option<Status>>,
    /// Who keeps this member out, and why.
    excluded: Mutex<BTreeMap<MemberId, Exclusion>>,
    known: Mutex<Known>,
    /// The configuration with which this member has left, 0 for one that it never was in, as its log or a primary says.
    left: Mutex<Option<u64>>,
    /// Whether the log waits for a checkpoint, and for what sort of one.
    snapshot: Mutex<(SnapshotState, Option<SnapshotNeed>)>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("durable", &self.durable.value()).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    pub(crate) fn new(durable: Lsn) -> Port {
        Port {
            gather: Gather::default(),
            requests: Requests::new(),
            wake: OnceLock::new(),
            attends: OnceLock::new(),
            durable: Arc::new(Watch::new(durable)),
            replicated: Mutex::new(Arc::new(Watch::new(durable))),
            status: Mutex::default(),
            excluded: Mutex::default(),
            left: Mutex::default(),
            snapshot: Mutex::new((SnapshotState::None, None)),
            known: Mutex::new(Known {
                configuration: Configuration::unknown(),
                committed: false,
                peers: BTreeMap::new(),
            }),
        }
    }

    /// How to make the driver take a turn.
    pub(crate) fn set_wake(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // Set once, by the driver.
        let _ = self.wake.set(wake);
    }

    pub(crate) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
        if let Some(attends) = self.attends.get().and_then(Weak::upgrade) {
            attends.woken();
        }
    }

    /// Who steps the driver.
    pub(crate) fn attend(&self, who: Weak<dyn Attend>) {
        // Set once, by the pump.
        let _ = self.attends.set(who);
    }

    /// Somebody waits for everything below `end` to reach this level.
    pub(crate) fn want(&self, end: Lsn, level: Level) {
        if self.note_wanted(end, level) {
            self.wake();
        }
    }

    /// Whether the driver is to be woken for it.
    fn note_wanted(&self, end: Lsn, level: Level) -> bool {
        match level {
            Level::Buffered | Level::Replicated => {
                // Nobody but flushes waits for a group to fill.
                self.gather.stop();
                true
            }
            Level::Local | Level::Durable => self.gather.ask(end),
        }
    }

    /// Wakes a group by `wake`, which answers how many were woken. Commits that ask to be flushed wake the driver meanwhile no more, and again once as many have
    /// asked as were woken, if so many are worth waiting for, else at once. Whether they are.
    pub(crate) fn wake_group(&self, wake: impl FnOnce() -> u64, is_worth: impl FnOnce(u64) -> bool) -> bool {
        match self.gather.wake_group(wake, is_worth) {
            Gathered::Waits => true,
            Gathered::Goes { is_owed } => {
                if is_owed {
                    self.wake();
                }
                false
            }
        }
    }

    /// Whether the driver still waits for commits to ask.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gather.is_waiting()
    }

    /// Commits wake the driver again at once.
    pub(crate) fn stop_gathering(&self) {
        self.gather.stop();
    }

    /// As [`Port::want`], by a thread that has nothing else to do: it steps the driver until `is_done` if nobody else does. Whether it did.
    pub(crate) fn want_and_step(&self, end: Lsn, level: Level, is_done: &dyn Fn() -> bool) -> bool {
        self.note_wanted(end, level);
        let stepped =
            self.attends.get().and_then(Weak::upgrade).is_some_and(|attends| attends.step_until(is_done));
        if !stepped {
            self.wake();
        }
        stepped
    }

    /// What was wanted in the tenure before counts no more.
    pub(crate) fn forget_wanted(&self) {
        self.gather.forget();
    }

    /// The highest end that somebody waits for to be durable.
    pub(crate) fn wanted(&self) -> Lsn {
        self.gather.wanted()
    }

    /// Leaves a request for the driver's next turn.
    pub(crate) fn ask(&self, request: Request) {
        self.requests.ask(request, || self.wake(), || self.is_stopped());
    }

    pub(crate) fn take(&self) -> Option<Request> {
        self.requests.take()
    }

    /// The watermark of `Replicated`, until it is revoked.
    pub(crate) fn replicated(&self) -> Arc<Watch> {
        Arc::clone(&locked(&self.replicated))
    }

    /// Publishes the commit watermarks as this member knows them. A `replicated` that went back revokes the old one.
    pub(crate) fn publish(&self, replicated: Lsn, durable: Lsn) {
        self.durable.advance(durable).wake();
        let mut current = locked(&self.replicated);
        let before = current.clone();
        let goes_back = replicated < before.value();
        if goes_back {
            *current = Arc::new(Watch::new(replicated));
        }
        // Whoever is woken may ask for the watermark at once.
        drop(current);
        if goes_back {
            before.stop(Stopped::Closed);
        } else {
            before.advance(replicated).wake();
        }
    }

    pub(crate) fn set_status(&self, status: Status) {
        *locked(&self.status) = Some(status);
    }

    /// Whether the log waits for a checkpoint. `need` is asked for where that has changed.
    pub(crate) fn set_snapshot(&self, state: SnapshotState, need: impl FnOnce() -> Option<SnapshotNeed>) {
        let mut snapshot = locked(&self.snapshot);
        if snapshot.0 != state {
            *snapshot = (state, need());
        }
    }

    pub(crate) fn snapshot_state(&self) -> SnapshotState {
        locked(&self.snapshot).0
    }

    /// What a checkpoint must keep, while one is needed and none is being installed.
    pub(crate) fn snapshot_need(&self) -> Option<SnapshotNeed> {
        let snapshot = locked(&self.snapshot);
        matches!(snapshot.0, SnapshotState::Needed { .. }).then(|| snapshot.1.clone())?
    }

    /// A peer keeps this member out, or has connected anew and does not say so yet.
    pub(crate) fn set_excluded(&self, by: MemberId, exclusion: Option<Exclusion>) {
        let mut excluded = locked(&self.excluded);
        match exclusion {
            Some(exclusion) => drop(excluded.insert(by, exclusion)),
            None => drop(excluded.remove(&by)),
        }
    }

    pub(crate) fn excluded(&self) -> Vec<(MemberId, Exclusion)> {
        locked(&self.excluded).iter().map(|(by, exclusion)| (*by, *exclusion)).collect()
    }

    pub(crate) fn set_left(&self, configuration: Option<u64>) {
        *locked(&self.left) = configuration;
    }

    pub(crate) fn left(&self) -> Option<u64> {
        *locked(&self.left)
    }

    pub(crate) fn set_configuration(&self, configuration: &Configuration, committed: bool) {
        let mut known = locked(&self.known);
        known.configuration.clone_from(configuration);
        known.committed = committed;
        known.peers.retain(|peer, _| configuration.member(*peer).is_some());
    }

    /// How a peer stands with this primary.
    pub(crate) fn set_peer(&self, peer: MemberId, status: PeerStatus) {
        locked(&self.known).peers.insert(peer, status);
    }

    /// This member is not primary: it does not know how the others stand.
    pub(crate) fn forget_peers(&self) {
        locked(&self.known).peers.clear();
    }

    pub(crate) fn known(&self) -> Known {
        locked(&self.known).clone()
    }

    pub(crate) fn status(&self) -> Option<Status> {
        *locked(&self.status)
    }

    /// Nobody is served any more.
    pub(crate) fn stop(&self, why: &Stopped) {
        // Whoever is woken by the first finds both stopped.
        let _hush = Hush::begin();
        self.durable.stop(why.clone());
        self.replicated().stop(why.clone());
        self.requests.forget();
    }

    /// Whether nobody is served any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.durable.stopped().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Waker;

    use crate::commit::Who;

    #[test]
    fn a_commit_that_asks_while_nobody_is_to_be_woken_is_made_up_for() {
        let port = Port::new(Lsn(8));
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        port.set_wake(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let heard = || woken.swap(0, Ordering::Relaxed);
        port.want(Lsn(16), Level::Durable);
        assert_eq!(heard(), 1);
        // Nobody asks meanwhile: nobody is woken for nothing.
        assert!(!port.wake_group(|| 0, |_| false));
        assert_eq!(heard(), 0);
        let wake = || {
            port.want(Lsn(24), Level::Durable);
            assert_eq!(heard(), 0);
            1
        };
        assert!(!port.wake_group(wake, |woken| woken > 1));
        assert_eq!(heard(), 1);
        // Where a group is waited for the last one of it wakes.
        let wake = || {
            port.want(Lsn(32), Level::Durable);
            2
        };
        assert!(port.wake_group(wake, |woken| woken > 1) && port.is_gathering());
        assert_eq!(heard(), 0);
        port.want(Lsn(40), Level::Durable);
        assert_eq!((heard(), port.wanted(), port.is_gathering()), (1, Lsn(40), false));
    }

    /// Whoever is woken by the watermark may ask for it at once: with a lock held this would never come back.
    #[test]
    fn a_waker_may_ask_for_the_watermark_that_woke_it() {
        struct Asks(Arc<Port>, AtomicU64);
        impl std::task::Wake for Asks {
            fn wake(self: Arc<Self>) {
                self.1.store(self.0.replicated().value().0 + 1, Ordering::Relaxed);
            }
        }
        let port = Arc::new(Port::new(Lsn(8)));
        let asks = Arc::new(Asks(Arc::clone(&port), AtomicU64::new(0)));
        let waker = Waker::from(Arc::clone(&asks));
        let heard = || asks.1.swap(0, Ordering::Relaxed);
        let wait = |end| assert!(port.replicated().register(end, None, &waker, Who::Observer).is_some());
        wait(Lsn(16));
        port.publish(Lsn(16), Lsn(8));
        assert_eq!(heard(), 17);
        wait(Lsn(24));
        port.publish(Lsn(12), Lsn(8));
        assert_eq!(heard(), 13, "revoked: the next watermark stands where the group is");
        wait(Lsn(24));
        port.stop(&Stopped::Closed);
        assert_eq!(heard(), 13);
        assert!(port.is_stopped());
    }
}
