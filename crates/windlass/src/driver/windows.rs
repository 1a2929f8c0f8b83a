//! The windows of a member, from session to session.
//!
//! A window whose invalidation was seen to succeed is bound again by whoever needs one next, each time with another key. When its keys are
//! used up it goes, and another takes its place (failure kind 66). One whose invalidation proved nothing goes at once.
//!
//! A device without windows has none of this: what peers write into is registered for each session by itself, and that registration is ended
//! after the session's connection (DESIGN.md section 9.2).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_fabric::{Access, AllocateError, Fabric, Region as _, RegisterError, RemoteRange, Window};

use super::memory::Segment;
use super::meters::GroupMeters;

/// Windows kept for the next session; more than a session needs.
const SPARE_MAX: usize = 64;

/// The windows that are bound nowhere. Shared by the sessions, which give theirs back when they end; the pump alone uses it.
pub(crate) struct Windows<F: Fabric> {
    /// The last one given back is taken first.
    spare: Mutex<Vec<F::Window>>,
    /// Whether the device has windows.
    are_there: bool,
    meters: Arc<GroupMeters>,
}

impl<F: Fabric> Windows<F> {
    pub(crate) fn new(fabric: &F, meters: Arc<GroupMeters>) -> Windows<F> {
        Windows { spare: Mutex::default(), are_there: fabric.capabilities().windows, meters }
    }

    /// Whether the device has windows; where not, [`Way::Registration`] is the way.
    pub(crate) fn are_there(&self) -> bool {
        self.are_there
    }

    /// A window to bind. One for a `Once` is new and is not given back: it would take one away that has many binds before it.
    pub(crate) fn obtain(&self, fabric: &F, lasts: Lasts) -> Result<F::Window, AllocateError> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match spare.pop_if(|_| lasts == Lasts::Long) {
            Some(window) => Ok(window),
            None => {
                self.meters.windows_allocated.add(1);
                fabric.allocate_window()
            }
        }
    }

    /// A bind was posted.
    pub(crate) fn bound(&self) {
        self.meters.window_binds.add(1);
    }

    /// Takes back a window whose invalidation was seen to succeed, or that was never bound. Another goes.
    pub(crate) fn give_back(&self, window: F::Window) {
        if window.binds_left() == 0 {
            self.meters.windows_used_up.add(1);
            return;
        }
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if window.is_free() && spare.len() < SPARE_MAX {
            spare.push(window);
        }
    }
}

/// How a window will be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lasts {
    /// By an invalidation whose completion is seen: it can be bound again.
    Long,
    /// With its connection.
    Once,
}

/// How a stretch of memory is open to the peer of a session.
pub(crate) enum Way<F: Fabric> {
    Window(F::Window),
    /// On a device without windows: a registration of the session's own. It ends when this is dropped, which the session does behind its
    /// connection's end.
    Registration(F::Region),
}

impl<F: Fabric> Way<F> {
    /// The way to a stretch of a segment, and its key where it is open at once.
    pub(crate) fn to(
        fabric: &F,
        windows: &Windows<F>,
        segment: &Segment<F>,
        range: &Range<u64>,
        access: Access,
        lasts: Lasts,
    ) -> Result<(Way<F>, Option<RemoteRange>), WayError> {
        if windows.are_there() {
            return Ok((Way::Window(windows.obtain(fabric, lasts)?), None));
        }
        let region = segment.expose(fabric, range.clone(), access)?;
        let key = region.remote();
        Ok((Way::Registration(region), key))
    }

    pub(crate) fn window(&mut self) -> Option<&mut F::Window> {
        match self {
            Way::Window(window) => Some(window),
            Way::Registration(_) => None,
        }
    }

    /// Gives a window back that is bound nowhere any more; a registration ends.
    pub(crate) fn done(self, windows: &Windows<F>) {
        match self {
            Way::Window(window) => windows.give_back(window),
            Way::Registration(region) => drop(region),
        }
    }
}

/// Why a stretch can't be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WayError {
    #[error(transparent)]
    Window(#[from] AllocateError),
    #[error(transparent)]
    Register(#[from] RegisterError),
}
