//! Type-2 memory windows.
//!
//! A window is touched by its owner, by the connection that it is bound on (which must free it before its queue pair: a
//! queue pair with a bound window can take the kernel most of a minute to destroy) and by the region below it (which can't
//! be ended under a bound window). They share the [`WindowCore`].
//!
//! Invariants:
//! 1. A key is invalidated at most once: twice is a fault in at least one driver's kernel code.
//! 2. `mw->rkey` is the key of the last bind posted, since drivers read it while posting the next.
//! 3. A window whose invalidation is not known to have succeeded is freed, never bound again.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibverbs_sys as sys;
use windlass_fabric::AllocateError;

use crate::error::VerbError;
use crate::region::{Domain, RegionCore};
use crate::slots::Slots;

/// The changing part of a key has 8 bits: after so many binds it would repeat (failure kind 66).
const BINDS_MAX: u32 = 255;

/// A type-2 memory window.
pub struct VerbsWindow {
    core: Arc<WindowCore>,
}

pub(crate) struct WindowCore {
    pub(crate) domain: Arc<Domain>,
    state: Mutex<State>,
}

struct State {
    /// Null when the window was freed by its connection or region: allocated again by the next bind.
    raw: *mut sys::ibv_mw,
    binds: u32,
    bind: Option<Bind>,
    /// Binds before the last one whose invalidation was posted and not yet seen: as far as is known they still hold their region.
    earlier: Vec<Bind>,
    closed: bool,
}

/// The last bind that was posted.
struct Bind {
    slots: Arc<Slots>,
    region: *mut sys::ibv_mr,
    /// Holds the bound stretch's own registration, on devices whose windows open all of the registration below them.
    _stretch: Option<Arc<RegionCore>>,
    /// Where in the send queue the invalidation was posted, if it was.
    invalidated_at: Option<u64>,
}

impl Bind {
    /// Whether its invalidation was seen to succeed.
    fn is_undone(&self) -> bool {
        self.invalidated_at.is_some_and(|at| self.slots.sends.has_succeeded(at))
    }
}

impl State {
    /// Whether some bind that may still be in force is one of those.
    fn has(&self, which: impl Fn(&Bind) -> bool) -> bool {
        self.bind.iter().chain(&self.earlier).any(|bind| !bind.is_undone() && which(bind))
    }
}

// SAFETY: verbs may be called from any thread on any object; the raw pointers are used under the lock.
unsafe impl Send for WindowCore {}
// SAFETY: as above.
unsafe impl Sync for WindowCore {}

/// Why a window can't be bound now.
pub(crate) enum NotBindable {
    /// Bound, or its invalidation on another connection has not completed yet.
    StillBound,
    /// Its keys are used up.
    KeysExhausted,
    /// It could not be allocated again.
    Allocate(VerbError),
}

impl VerbsWindow {
    pub(crate) fn allocate(domain: &Arc<Domain>) -> Result<VerbsWindow, AllocateError> {
        let raw = allocate(domain)
            .map_err(|error| AllocateError::Os { call: error.verb, source: io::Error::from(error) })?;
        let state = State { raw, binds: 0, bind: None, earlier: Vec::new(), closed: false };
        Ok(VerbsWindow {
            core: Arc::new(WindowCore { domain: Arc::clone(domain), state: Mutex::new(state) }),
        })
    }

    pub(crate) fn core(&self) -> &Arc<WindowCore> {
        &self.core
    }
}

impl windlass_fabric::Window for VerbsWindow {
    fn is_bound(&self) -> bool {
        self.core.lock().bind.as_ref().is_some_and(|bind| bind.invalidated_at.is_none())
    }

    fn binds_left(&self) -> u32 {
        BINDS_MAX - self.core.lock().binds
    }

    fn is_free(&self) -> bool {
        let mut state = self.core.lock();
        if state.has(|_| true) {
            return false;
        }
        // The stretch's own registration ends with it, where there is one.
        state.bind = None;
        state.earlier.clear();
        true
    }
}

impl Drop for VerbsWindow {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.closed = true;
        self.core.free(&mut state);
    }
}

impl WindowCore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Makes the window ready for a bind on the given connection, and holds it: nobody frees it before the bind is noted.
    pub(crate) fn prepare(&self, slots: &Arc<Slots>) -> Result<Held<'_>, NotBindable> {
        let mut state = self.lock();
        if let Some(bind) = &state.bind {
            match bind.invalidated_at {
                None => return Err(NotBindable::StillBound),
                Some(sequence) => {
                    let same = Arc::ptr_eq(&bind.slots, slots);
                    if !same && !bind.slots.sends.has_succeeded(sequence) {
                        // Flushed, or not executed yet. In the first case only freeing the window unbinds it.
                        if bind.slots.cause().is_none() {
                            return Err(NotBindable::StillBound);
                        }
                        self.free(&mut state);
                    }
                }
            }
        }
        if state.binds >= BINDS_MAX {
            return Err(NotBindable::KeysExhausted);
        }
        if state.raw.is_null() {
            state.raw = allocate(&self.domain).map_err(NotBindable::Allocate)?;
        }
        Ok(Held { state })
    }

    /// Holds the window for an invalidation on that connection. `None`: not bound; `Some(None)`: bound on another connection.
    pub(crate) fn hold_bound(&self, slots: &Arc<Slots>) -> Option<Option<Held<'_>>> {
        let state = self.lock();
        let bind = state.bind.as_ref().filter(|bind| bind.invalidated_at.is_none())?;
        let here = Arc::ptr_eq(&bind.slots, slots);
        Some(here.then_some(Held { state }))
    }

    /// Frees the window if it may be bound on that connection, which is about to be destroyed.
    pub(crate) fn unbind_on(&self, slots: &Arc<Slots>) {
        let mut state = self.lock();
        if state.has(|bind| Arc::ptr_eq(&bind.slots, slots)) {
            self.free(&mut state);
        }
    }

    /// Frees the window if it may be bound over that registration, which is about to end.
    pub(crate) fn unbind_from(&self, region: *mut sys::ibv_mr) {
        let mut state = self.lock();
        if state.has(|bind| bind.region == region) {
            self.free(&mut state);
        }
    }

    /// Frees the device's window, which also unbinds it. The next bind allocates another, with other keys.
    fn free(&self, state: &mut State) {
        state.binds = 0;
        let raw = std::mem::replace(&mut state.raw, std::ptr::null_mut());
        if let Some((_, dealloc_mw)) = self.domain.context.ops.windows
            && !raw.is_null()
        {
            // SAFETY: `raw` came from `alloc_mw` of the same context; the field was cleared, so it is freed once. A refusal (a device in
            // reset) leaves the window to the kernel, which frees it with the device's file; the queue pair's destruction still
            // closes it.
            let _ = unsafe { dealloc_mw(raw) };
        }
        // Only now: a registration does not end under a bound window.
        state.bind = None;
        state.earlier.clear();
    }
}

/// A window that is allocated, and that nobody else frees or binds meanwhile.
pub(crate) struct Held<'a> {
    state: MutexGuard<'a, State>,
}

impl Held<'_> {
    pub(crate) fn raw(&self) -> *mut sys::ibv_mw {
        self.state.raw
    }

    /// The key of the last bind that was posted; of the window as allocated, if none was.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: `raw` is a window that is not freed: whoever frees it needs the lock that is held here.
        unsafe { (*self.state.raw).rkey }
    }

    /// Notes that a bind with that key was posted.
    pub(crate) fn bound(
        mut self,
        slots: &Arc<Slots>,
        region: *mut sys::ibv_mr,
        stretch: Option<Arc<RegionCore>>,
        key: u32,
    ) {
        // SAFETY: as in `key`; the field is this side's to write (the device's driver reads it while a bind is posted).
        unsafe { (*self.state.raw).rkey = key };
        self.state.binds += 1;
        let bind = Bind { slots: Arc::clone(slots), region, _stretch: stretch, invalidated_at: None };
        let last = self.state.bind.replace(bind);
        let earlier = &mut self.state.earlier;
        earlier.extend(last);
        earlier.retain(|bind| !bind.is_undone());
    }

    /// Notes that the invalidation was posted, and where.
    pub(crate) fn invalidated(mut self, sequence: u64) {
        if let Some(bind) = &mut self.state.bind {
            bind.invalidated_at = Some(sequence);
        }
    }
}

fn allocate(domain: &Domain) -> Result<*mut sys::ibv_mw, VerbError> {
    let Some((alloc_mw, _)) = domain.context.ops.windows else {
        return Err(VerbError::plain("ibv_alloc_mw", rustix::io::Errno::OPNOTSUPP.raw_os_error()));
    };
    // SAFETY: the protection domain is alive.
    let raw = unsafe { alloc_mw(domain.raw, sys::IBV_MW_TYPE_2) };
    if raw.is_null() {
        return Err(VerbError::last("ibv_alloc_mw"));
    }
    Ok(raw)
}

/// The next key of a window: only the low 8 bits count up (`ibv_inc_rkey` of the header).
pub(crate) fn next_key(key: u32) -> u32 {
    (key & !0xff) | (key.wrapping_add(1) & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_66_a_key_counts_in_its_low_byte_and_repeats_after_256() {
        assert_eq!(next_key(0x1234_56fe), 0x1234_56ff);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
        let mut key = 0xabcd_ef42;
        let mut seen = std::collections::HashSet::from([key]);
        for _ in 0..BINDS_MAX {
            key = next_key(key);
            assert!(seen.insert(key), "a key came back within the binds that a window allows");
        }
        assert!(!seen.insert(next_key(key)));
    }
}
