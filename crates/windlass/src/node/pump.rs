//! The pump: the thread that steps a node's driver.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slog::{error, warn};
use windlass_engine::{Input, Role, Status, StopReason};
use windlass_fabric::Fabric;
use windlass_log::MemberId;
use windlass_store::disk::{Disk, RealDisk};

use super::helm::{Helm, Steered};
use super::ready::Ready;
use super::{Ending, Inner, NodeEvent, PumpMode, staging};
use crate::clock::Clock;
use crate::commit::Hush;
use crate::control::ControlPlane;
use crate::driver::{Attend, Driver, DriverEvent, Executor};

/// How long a closing primary waits for reservations in flight.
const QUIET: Duration = Duration::from_secs(1);
/// How long it waits for its heir to lead.
const HEIR: Duration = Duration::from_millis(500);

/// Steps the driver until the node is to end, then ends it.
pub(super) fn run<F, C, N>(
    driver: Steered<F, C, N>,
    inner: &Arc<Inner>,
    mode: PumpMode,
    is_shared: bool,
    relief: Ready,
) where
    F: Fabric,
    C: Clock + Clone,
    N: ControlPlane,
{
    let on_panic = EndOnPanic(inner);
    let helm = Arc::new(Helm::new(driver, Arc::clone(inner), is_shared));
    helm.i_am_pump();
    let attends: Arc<dyn Attend> = helm.clone();
    inner.port.attend(Arc::downgrade(&attends));
    drop(attends);
    let of_relief = Arc::clone(&helm);
    let relief = relief.begin(move || of_relief.relieve());
    let stepped = steer(&helm, inner, mode);
    let taken = helm.take();
    // A panic there has been reported by the panic hook.
    let _ = relief.join();
    let Some(driver) = taken.filter(|_| stepped.is_some()) else {
        panic!("a thread that stepped the driver has panicked");
    };
    end(driver, inner, inner.ending() != Some(Ending::Abrupt));
    drop(on_panic);
}

/// The pump's turns. `None` after a panic of another thread within one.
fn steer<F, C, N>(helm: &Helm<F, C, N>, inner: &Inner, mode: PumpMode) -> Option<()>
where
    F: Fabric,
    C: Clock + Clone,
    N: ControlPlane,
{
    let unusable = |error: &dyn std::fmt::Display| {
        error!(inner.logger, "the fabric is unusable; open the node again"; "cause" => %error);
        Some(())
    };
    let mut leaving: Option<Leaving> = None;
    let mut seat = helm.claim()?;
    loop {
        let driver = seat.as_mut()?;
        let worked = match helm.turn(driver) {
            Ok(worked) => worked,
            Err(error) => return unusable(&error),
        };
        if Hush::is_owed() {
            // Not with the driver: a waker may run its task here and now, and that may wait for a commit.
            driver.executor_mut().leave_errand();
            helm.leave_to_relief();
            drop(seat);
            seat = helm.claim()?;
            helm.back();
            continue;
        }
        match inner.ending() {
            Some(Ending::Abrupt) => return Some(()),
            Some(Ending::Clean) => {
                let leaving = leaving.get_or_insert_with(|| Leaving::new(driver.others()));
                let is_over = leaving.turn(&driver.status());
                if (is_over && driver.may_end()) || leaving.since.elapsed() > QUIET {
                    return Some(());
                }
                if let Some(input) = leaving.ask.take() {
                    driver.ask(input);
                    continue;
                }
            }
            None => {}
        }
        if let Some(errand) = driver.executor_mut().take_errand() {
            helm.leave_to_relief();
            drop(seat);
            errand.run();
            seat = helm.claim()?;
            helm.back();
            continue;
        }
        let is_claimed = helm.is_claimed();
        if !is_claimed && (worked || mode == PumpMode::Busy) {
            continue;
        }
        if is_claimed || (leaving.is_none() && helm.may_stand_by(driver)) {
            drop(seat);
            helm.stand_by();
            seat = helm.claim()?;
            continue;
        }
        let longest = if leaving.is_some() { Duration::from_millis(1) } else { Duration::MAX };
        if let Err(error) = driver.wait(longest) {
            return unusable(&error);
        }
    }
}

/// A pump that panics (a defect) must not leave a node that looks alive.
struct EndOnPanic<'a>(&'a Inner);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.log() = None;
            self.0.is_unclean.store(true, Ordering::Release);
            self.0.events.end();
        }
    }
}

/// A clean end: a primary hands over to whoever streams, so that the group need not suspect it first.
struct Leaving {
    since: Instant,
    heirs: Vec<MemberId>,
    /// An heir was asked to take over and has not refused at once.
    has_heir: bool,
    /// What to ask the driver for next.
    ask: Option<Input>,
}

impl Leaving {
    fn new(heirs: Vec<MemberId>) -> Leaving {
        Leaving { since: Instant::now(), heirs, has_heir: false, ask: None }
    }

    /// Looks at where the node stands, once a turn. `true` once it may end.
    fn turn(&mut self, status: &Status) -> bool {
        match status.role {
            Role::Primary => {
                // Still primary after an heir was asked: that one does not stream.
                let heir = self.heirs.pop();
                self.has_heir = heir.is_some();
                self.ask = Some(match heir {
                    Some(to) => Input::Handover { to },
                    None => Input::Resign { reason: StopReason::Asked },
                });
                false
            }
            Role::Sealing => false,
            // The word to the heir may still be on its way: it has arrived once the heir leads.
            Role::Backup | Role::Candidate => {
                !self.has_heir || status.primary.is_some() || self.since.elapsed() > HEIR
            }
            Role::Stopped => true,
        }
    }
}

/// Passes on what the driver has to say.
pub(super) fn forward<F, D, C, N, X>(driver: &mut Driver<F, D, C, N, X>, inner: &Inner)
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    inner.port.set_status(driver.status());
    inner.port.set_snapshot(driver.snapshot_state(), || driver.snapshot_need());
    while let Some(event) = driver.poll_event() {
        match event {
            DriverEvent::Role { role, epoch, log } => {
                if log.is_some() {
                    inner.at_start.end();
                }
                *inner.log() = log;
                inner.events.push(NodeEvent::Role { role, epoch });
            }
            DriverEvent::SteppedDown { epoch, reason } => {
                *inner.log() = None;
                inner.events.push(NodeEvent::SteppedDown { epoch, reason });
            }
            DriverEvent::Damaged { damage } => inner.events.push(NodeEvent::Damaged { damage }),
            DriverEvent::Repaired { tail } => inner.events.push(NodeEvent::Repaired { tail }),
            DriverEvent::Excluded { by, exclusion } => {
                inner.events.push(NodeEvent::Excluded { by, exclusion });
            }
            DriverEvent::Engine(event) => inner.events.push(NodeEvent::Group(event)),
        }
    }
}

/// Ends the driver and, if that is wanted and may be, marks the folder clean.
fn end<F, C, N, X>(mut driver: Driver<F, RealDisk, C, N, X>, inner: &Inner, is_wanted: bool)
where
    F: Fabric,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<RealDisk>,
{
    *inner.log() = None;
    // Whoever is woken finds everything ended.
    let hush = Hush::begin();
    let ended = driver.end();
    drop(hush);
    let (store, staging) = (Arc::clone(driver.store()), driver.take_staging());
    // Threads that work on the store end here; no window is open any more.
    drop(driver);
    if is_wanted && ended.is_clean {
        match store.close(ended.tail) {
            Ok(()) => {
                if let Some(staging) = staging {
                    staging::remove(&staging);
                }
            }
            Err(error) => {
                warn!(inner.logger, "the folder was not closed cleanly"; "cause" => %error);
                *inner.close_error() = Some(error);
            }
        }
    } else {
        inner.is_unclean.store(true, Ordering::Release);
        if ended.is_quiet {
            store.abandon();
        }
        // otherwise a producer may still write into the mapping, so the folder stays locked until this process ends.
    }
    inner.events.end();
}
