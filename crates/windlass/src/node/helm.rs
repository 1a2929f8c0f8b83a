//! Who steps a node's driver: one thread at a time, whichever has most to gain from it.
//!
//! ```text
//!  pump ──────── steps, waits, and makes short flushes itself, between two turns, with the driver let go
//!  relief ────── steps while the pump is in a flush that takes long (kind 31: a slow device stops no heartbeat)
//!  committers ── a blocking committer that finds the pump standing by steps until its commit is answered
//! ```
//!
//! Nobody who waits for a commit or an event is woken by a thread that has the driver: a waker may run its task there and then, and that may append, commit and wait.
//! The pump lets go of the driver first, leaves it to the relief, as for a flush, and has the thread for flushes do what is to be flushed. A committer, whose
//! own time that would be, and the relief, since the pump may be in a waker that waits for another's, leave waking to a thread that is there for nothing else.
//!
//! Each hand-over of work to another thread costs a wake-up, which on an idle processor takes as long as a flush. A lone committer
//! therefore posts its batch, flushes and hears the backups itself; the pump stands by, looks each [`LOOK`] whether anybody steps, and
//! steps again as soon as nobody does, or whoever leaves the driver leaves something undone.
//!
//! Invariants: the driver is stepped by who holds the lock on it; nobody flushes, or wakes a task, while holding it; it is left alone for [`RELIEF_LOOK`] at most, and
//! not at all once somebody was told to wake it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError, mpsc};
use std::task::Waker;
use std::thread::Thread;
use std::time::{Duration, Instant};

use windlass_fabric::{Fabric, PollError};
use windlass_store::disk::RealDisk;

use super::threads::Threads;
use super::{Inner, pump};
use crate::clock::Clock;
use crate::commit::{self, Hush};
use crate::control::ControlPlane;
use crate::driver::{Attend, Driver};

/// The driver of a node.
pub(super) type Steered<F, C, N> = Driver<F, RealDisk, C, N, Threads<RealDisk>>;

/// The right to step it. Whoever is to be woken meanwhile is when it is let go of.
pub(super) struct Seat<'a, F: Fabric, C, N> {
    // Goes before the hush.
    driver: MutexGuard<'a, Option<Steered<F, C, N>>>,
    _hush: Hush,
}

impl<'a, F: Fabric, C, N> Seat<'a, F, C, N> {
    fn of(driver: MutexGuard<'a, Option<Steered<F, C, N>>>) -> Seat<'a, F, C, N> {
        Seat { driver, _hush: Hush::begin() }
    }
}

impl<F: Fabric, C, N> Deref for Seat<'_, F, C, N> {
    type Target = Option<Steered<F, C, N>>;

    fn deref(&self) -> &Self::Target {
        &self.driver
    }
}

impl<F: Fabric, C, N> DerefMut for Seat<'_, F, C, N> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.driver
    }
}

/// How often one who stands by looks whether anybody steps.
const LOOK: Duration = Duration::from_millis(2);
/// How often the relief looks whether the pump is in a long flush: far below any suspicion.
const RELIEF_LOOK: Duration = Duration::from_millis(5);
/// How long a committer steps at most; what takes longer is the pump's.
const COMMITTER: Duration = Duration::from_millis(2);
/// Looks without a flush after which the relief sleeps.
const LOOKS_IDLE: u32 = 8;

/// No committer has asked.
const NOBODY: usize = 0;
/// More than one have.
const MANY: usize = 1;

/// This thread, as no other one that lives is called.
fn me() -> usize {
    thread_local!(static HERE: u64 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// See the module.
pub(super) struct Helm<F: Fabric, C, N> {
    driver: Mutex<Option<Steered<F, C, N>>>,
    inner: std::sync::Arc<Inner>,
    /// Whether committers may step, and the pump flush.
    is_shared: bool,
    /// Who waits for the driver: whoever has it gives it up.
    claims: AtomicU32,
    /// Turns taken, by anybody.
    turns: AtomicU64,
    /// Somebody wants a turn since the last one began.
    woken: AtomicBool,
    /// The pump stands by, and nobody else steps.
    is_alone: AtomicBool,
    /// Who would have stepped since the pump last looked: [`NOBODY`], one committer's [`me`], or [`MANY`].
    asker: AtomicUsize,
    /// The pump is in a flush, or in a waker.
    is_away: AtomicBool,
    errands: AtomicU64,
    relief_watches: AtomicBool,
    has_ended: AtomicBool,
    pump: OnceLock<Thread>,
    relief: OnceLock<Thread>,
    /// The thread that wakes for those who don't themselves, once there is anybody to wake; `None` where none could be started.
    waking: OnceLock<Option<mpsc::Sender<Waker>>>,
}

impl<F, C, N> Helm<F, C, N>
where
    F: Fabric,
    C: Clock + Clone,
    N: ControlPlane,
{
    pub(super) fn new(
        driver: Steered<F, C, N>,
        inner: std::sync::Arc<Inner>,
        is_shared: bool,
    ) -> Helm<F, C, N> {
        Helm {
            driver: Mutex::new(Some(driver)),
            inner,
            is_shared,
            claims: AtomicU32::new(0),
            turns: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
            asker: AtomicUsize::new(NOBODY),
            is_away: AtomicBool::new(false),
            errands: AtomicU64::new(0),
            relief_watches: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            pump: OnceLock::new(),
            relief: OnceLock::new(),
            waking: OnceLock::new(),
        }
    }

    /// This thread is the pump.
    pub(super) fn i_am_pump(&self) {
        // Once, by the pump.
        let _ = self.pump.set(std::thread::current());
    }

    /// Takes a turn.
    pub(super) fn turn(&self, driver: &mut Steered<F, C, N>) -> Result<bool, PollError> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.woken.store(false, Ordering::SeqCst);
        let worked = driver.step()?;
        if worked {
            pump::forward(driver, &self.inner);
        }
        Ok(worked)
    }

    /// Leaves it to a thread of its own to wake whom this one would when it lets go of the driver.
    fn leave_waking(&self) {
        if !Hush::is_owed() {
            return;
        }
        let waking = self.waking.get_or_init(|| {
            let (sender, wakers) = mpsc::channel::<Waker>();
            // It ends with this helm, and nobody waits for it: what it wakes may wait for the end of the node.
            let body = move || wakers.into_iter().for_each(commit::run);
            let thread = std::thread::Builder::new().name(String::from("windlass-wake")).spawn(body);
            thread.is_ok().then_some(sender)
        });
        if let Some(waking) = waking {
            // It listens as long as there is a sender.
            Hush::take_owed().into_iter().for_each(|waker| drop(waking.send(waker)));
        }
    }

    /// The driver, from whoever has it. `None` after a panic of one who stepped it.
    pub(super) fn claim(&self) -> Option<Seat<'_, F, C, N>> {
        let seat = match self.driver.try_lock() {
            Ok(seat) => Some(Seat::of(seat)),
            Err(TryLockError::Poisoned(_)) => None,
            Err(TryLockError::WouldBlock) => {
                self.claims.fetch_add(1, Ordering::SeqCst);
                self.inner.port.wake();
                let seat = self.driver.lock().ok().map(Seat::of);
                self.claims.fetch_sub(1, Ordering::SeqCst);
                seat
            }
        };
        self.is_alone.store(false, Ordering::SeqCst);
        seat
    }

    /// Whether somebody waits for the driver.
    pub(super) fn is_claimed(&self) -> bool {
        self.claims.load(Ordering::SeqCst) > 0
    }

    /// The driver, if nobody has it.
    fn try_claim(&self) -> Option<Seat<'_, F, C, N>> {
        self.driver.try_lock().ok().map(Seat::of)
    }

    /// The driver, to be ended. Nobody steps it any more.
    pub(super) fn take(&self) -> Option<Steered<F, C, N>> {
        self.has_ended.store(true, Ordering::SeqCst);
        self.claims.fetch_add(1, Ordering::SeqCst);
        self.inner.port.wake();
        let taken = match self.driver.lock() {
            Ok(mut seat) => seat.take(),
            Err(poisoned) => poisoned.into_inner().take(),
        };
        self.claims.fetch_sub(1, Ordering::SeqCst);
        if let Some(relief) = self.relief.get() {
            relief.unpark();
        }
        taken
    }

    // ---- the pump ------------------------------------------------------------------------------------------------

    /// Whether the pump should stand by: one committer would step, and nobody waits. For many the pump posts what all of them have appended.
    pub(super) fn may_stand_by(&self, driver: &Steered<F, C, N>) -> bool {
        if !self.is_shared || self.asker.load(Ordering::SeqCst) == NOBODY || driver.has_committers() {
            return false;
        }
        self.asker.swap(NOBODY, Ordering::SeqCst) != MANY
    }

    /// This committer would step next time.
    fn ask(&self) {
        let me = me();
        if let Err(asker) = self.asker.compare_exchange(NOBODY, me, Ordering::SeqCst, Ordering::SeqCst)
            && asker != me
        {
            self.asker.store(MANY, Ordering::SeqCst);
        }
    }

    /// Returns once nobody else steps, or something was left undone.
    pub(super) fn stand_by(&self) {
        self.is_alone.store(true, Ordering::SeqCst);
        let mut turns = self.turns.load(Ordering::Relaxed);
        while !self.woken.load(Ordering::SeqCst) && self.inner.ending().is_none() {
            std::thread::park_timeout(LOOK);
            let now = self.turns.load(Ordering::Relaxed);
            if now == turns {
                return;
            }
            turns = now;
        }
    }

    /// The pump goes to flush, or to wake somebody; the relief looks after the driver.
    pub(super) fn leave_to_relief(&self) {
        self.errands.fetch_add(1, Ordering::Relaxed);
        self.is_away.store(true, Ordering::SeqCst);
        if !self.relief_watches.swap(true, Ordering::SeqCst)
            && let Some(relief) = self.relief.get()
        {
            relief.unpark();
        }
    }

    /// The pump is back, and has the driver again.
    pub(super) fn back(&self) {
        self.is_away.store(false, Ordering::SeqCst);
    }

    // ---- the relief ----------------------------------------------------------------------------------------------

    /// The relief's body.
    pub(super) fn relieve(&self) {
        // Once, by the relief.
        let _ = self.relief.set(std::thread::current());
        while !self.has_ended.load(Ordering::SeqCst) {
            if !self.relief_watches.load(Ordering::SeqCst) {
                std::thread::park();
                continue;
            }
            self.watch();
            let errands = self.errands.load(Ordering::SeqCst);
            self.relief_watches.store(false, Ordering::SeqCst);
            if self.errands.load(Ordering::SeqCst) != errands || self.is_away.load(Ordering::SeqCst) {
                self.relief_watches.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Looks after the driver until the pump has not flushed for a while.
    fn watch(&self) {
        let (mut idle, mut errands) = (0, self.errands.load(Ordering::Relaxed));
        while idle < LOOKS_IDLE && !self.has_ended.load(Ordering::SeqCst) {
            let turns = self.turns.load(Ordering::Relaxed);
            std::thread::park_timeout(RELIEF_LOOK);
            if self.is_away.load(Ordering::SeqCst) && self.turns.load(Ordering::Relaxed) == turns {
                self.cover();
            }
            let now = self.errands.load(Ordering::Relaxed);
            idle = if now == errands { idle + 1 } else { 0 };
            errands = now;
        }
    }

    /// Steps until the pump is back.
    fn cover(&self) {
        let Some(mut seat) = self.try_claim() else { return };
        while self.is_away.load(Ordering::SeqCst) && !self.is_claimed() {
            let Some(driver) = seat.as_mut() else { return };
            let turn = self.turn(driver);
            // The pump need not be in a flush, and comes back for this one or not.
            driver.executor_mut().leave_errand();
            self.leave_waking();
            match turn {
                Ok(true) => {}
                // An error meets the pump, too.
                Ok(false) if driver.wait(10 * LOOK).is_ok() => {}
                Ok(false) | Err(_) => return,
            }
        }
    }
}

impl<F, C, N> Attend for Helm<F, C, N>
where
    F: Fabric,
    C: Clock + Clone,
    N: ControlPlane,
{
    fn woken(&self) {
        self.woken.store(true, Ordering::SeqCst);
        if self.is_alone.load(Ordering::SeqCst)
            && self.is_alone.swap(false, Ordering::SeqCst)
            && let Some(pump) = self.pump.get()
        {
            pump.unpark();
        }
    }

    fn step_until(&self, is_done: &dyn Fn() -> bool) -> bool {
        // Whoever claims it has waited longer.
        if !self.is_shared || self.has_ended.load(Ordering::SeqCst) || self.is_claimed() {
            return false;
        }
        let Some(mut seat) = self.try_claim() else {
            self.ask();
            return false;
        };
        self.is_alone.store(false, Ordering::SeqCst);
        let until = Instant::now() + COMMITTER;
        let mut leaves_work = true;
        while let Some(driver) = seat.as_mut() {
            let Ok(worked) = self.turn(driver) else { break };
            self.leave_waking();
            if let Some(errand) = driver.executor_mut().take_errand() {
                drop(seat);
                errand.run();
                match self.try_claim() {
                    Some(again) => seat = again,
                    // The pump has taken over meanwhile.
                    None => return true,
                }
                continue;
            }
            if is_done() {
                leaves_work = driver.has_committers();
                break;
            }
            if self.is_claimed() || Instant::now() >= until {
                break;
            }
            if !worked && driver.wait(LOOK).is_err() {
                break;
            }
        }
        drop(seat);
        self.ask();
        self.is_alone.store(true, Ordering::SeqCst);
        if leaves_work || self.woken.load(Ordering::SeqCst) {
            self.woken();
        }
        true
    }
}

#[cfg(test)]
#[path = "helm_tests.rs"]
mod tests;
