//! The protection domain and registered memory.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ibverbs_sys as sys;
use rustix::io::Errno;
use windlass_fabric::{
    Access, Backing, Memory, PostProblem, RegisterError, RemoteKey, RemoteRange, Transfer,
};

use crate::device::Context;
use crate::error::{Locked, VerbError};
use crate::extended::{self, AdviseMr, PREFETCH, PREFETCH_WRITE};
use crate::mode::Registration;
use crate::window::WindowCore;

/// A protection domain: only what was made from one domain works together. Closes after all that was made from it.
pub(crate) struct Domain {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: *mut sys::ibv_pd,
    /// `ibv_advise_mr`, where the library has it.
    advise: Option<AdviseMr>,
}

// SAFETY: verbs may be called from any thread on any object.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: Arc<Context>) -> Result<Domain, VerbError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.alloc_pd)(context.raw) };
        if raw.is_null() {
            return Err(VerbError::last("ibv_alloc_pd"));
        }
        let advise = extended::advise(context.raw);
        Ok(Domain { context, raw, advise })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: `raw` came from `ibv_alloc_pd` and is freed here only; regions, windows and queue pairs hold this value,
        // so they are gone. A refusal leaves it to the kernel, which frees it with the device's file.
        let _ = unsafe { (self.context.library.dealloc_pd)(self.raw) };
    }
}

/// Registered memory.
pub struct VerbsRegion {
    core: Arc<RegionCore>,
}

/// What is to be registered: `[address, address + bytes)` lies inside `memory`.
struct Ground {
    memory: Arc<dyn Memory>,
    address: u64,
    bytes: u64,
    access: Access,
    /// Taken in on demand; pinned otherwise.
    on_demand: bool,
    /// Transfers are right in whole pages of so many bytes alone.
    pages_alone: Option<u32>,
}

/// The registration itself.
pub(crate) struct RegionCore {
    pub(crate) domain: Arc<Domain>,
    raw: *mut sys::ibv_mr,
    ground: Ground,
    local_key: u32,
    remote_key: u32,
    /// Windows that were bound over the region: the device refuses to end a registration under a bound window.
    windows: Mutex<Vec<Arc<WindowCore>>>,
}

// SAFETY: verbs may be called from any thread on any object, and `Memory` is `Send + Sync`.
unsafe impl Send for RegionCore {}
// SAFETY: as above.
unsafe impl Sync for RegionCore {}

/// Registrations that the device would not end: their memory is kept for ever, since the device may still use it.
static LEAKED_REGIONS: AtomicU64 = AtomicU64::new(0);

/// How many registrations of this process could not be ended; their memory is never freed, because the device may still
/// read or write it. Anything but 0 is a fault of the device or its driver.
#[must_use]
pub fn leaked_regions() -> u64 {
    LEAKED_REGIONS.load(Ordering::Relaxed)
}

impl VerbsRegion {
    pub(crate) fn register(
        domain: &Arc<Domain>,
        memory: Arc<dyn Memory>,
        access: Access,
        mode: Registration,
    ) -> Result<VerbsRegion, RegisterError> {
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::AccessCombination);
        }
        let mapped = memory.backing() == Backing::MappedFile;
        // A mapped file can be pinned for reading alone; for writing (and the kernel takes windows for that) it is refused, and where it is
        // not there is harm: writeback would not learn of the device's writes.
        let writes = access.intersects(Access::LOCAL_WRITE | Access::WINDOW_BIND);
        if mapped && mode == Registration::Staged && writes {
            return Err(RegisterError::StagedImageWanted);
        }
        let on_demand = mapped && mode.is_on_demand();
        let pages_alone = match mode.transfer() {
            Transfer::WholePages { page_bytes } if on_demand => Some(page_bytes),
            Transfer::WholePages { .. } | Transfer::Any => None,
        };
        let bytes = memory.len();
        let bytes_max = domain.context.limits.max_mr_size;
        if bytes > bytes_max {
            return Err(RegisterError::TooLong { bytes, bytes_max });
        }
        let (Some(words), Ok(length)) = (memory.words(), usize::try_from(bytes)) else {
            return Err(RegisterError::NoAddress);
        };
        assert!(size_of_val(words) >= length, "Memory::words is shorter than Memory::len");
        let address = words.as_ptr().addr() as u64;
        let ground = Ground { memory, address, bytes, access, on_demand, pages_alone };
        let core = RegionCore::register(domain, ground)
            .map_err(|error| refusal(error, bytes, on_demand, Locked::now()))?;
        Ok(VerbsRegion { core: Arc::new(core) })
    }

    pub(crate) fn core(&self) -> &Arc<RegionCore> {
        &self.core
    }
}

/// Why the device would not register, in the fabric's words.
fn refusal(error: VerbError, bytes: u64, on_demand: bool, locked: Locked) -> RegisterError {
    let needed_bytes = locked.pinned_bytes.saturating_add(bytes);
    if error.is(Errno::NOMEM)
        && !on_demand
        && let Some(limit_bytes) = locked.bytes_max
        && needed_bytes > limit_bytes
    {
        return RegisterError::MemoryLockLimit { bytes: needed_bytes, limit_bytes };
    }
    let error = error.of_region(bytes, on_demand, locked);
    RegisterError::Os { call: error.verb, bytes, source: io::Error::from(error) }
}

/// The device's flags of an access.
pub(crate) fn access_flags(access: Access) -> u32 {
    let pairs = [
        (Access::LOCAL_WRITE, sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_READ, sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_WRITE, sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE),
        (Access::WINDOW_BIND, sys::ibv_access_flags::IBV_ACCESS_MW_BIND),
    ];
    pairs.iter().filter(|(flag, _)| access.contains(*flag)).fold(0, |flags, (_, bit)| flags | bit.0)
}

impl RegionCore {
    fn register(domain: &Arc<Domain>, ground: Ground) -> Result<RegionCore, VerbError> {
        let on_demand = if ground.on_demand { sys::ibv_access_flags::IBV_ACCESS_ON_DEMAND.0 } else { 0 };
        let flags = i32::try_from(access_flags(ground.access) | on_demand).unwrap_or(0);
        let length = usize::try_from(ground.bytes).unwrap_or(usize::MAX);
        // `Memory` is safe to implement, so its word is checked each time: the device will write wherever this says.
        let words = ground.memory.words().unwrap_or_default();
        let offset = ground.address.checked_sub(words.as_ptr().addr() as u64);
        let offset = offset.and_then(|offset| usize::try_from(offset).ok()).unwrap_or(usize::MAX);
        let inside = offset.checked_add(length).is_some_and(|end| end <= size_of_val(words));
        assert!(inside, "Memory::words gave another slice than before");
        let start = words.as_ptr().cast::<u8>().wrapping_add(offset).cast_mut();
        // SAFETY: `[start, start + length)` is memory of `ground.memory`, inside the slice that it gave, as was just checked; words in it may be changed by
        // others through shared references (they are atomics), which is what the device will do. The registration holds
        // the memory until it has ended, or for ever.
        let raw = unsafe { (domain.context.library.reg_mr)(domain.raw, start.cast(), length, flags) };
        if raw.is_null() {
            return Err(VerbError::last("ibv_reg_mr"));
        }
        // SAFETY: a registration that succeeded is a whole `ibv_mr`.
        let registered = unsafe { *raw };
        Ok(RegionCore {
            domain: Arc::clone(domain),
            raw,
            ground,
            local_key: registered.lkey,
            remote_key: registered.rkey,
            windows: Mutex::new(Vec::new()),
        })
    }

    /// Registers a part of the region by itself, as the ground of one window, on devices whose windows open all of it.
    pub(crate) fn stretch(&self, range: &Range<u64>) -> Result<Arc<RegionCore>, PostProblem> {
        let ground = Ground {
            memory: Arc::clone(&self.ground.memory),
            address: self.ground.address + range.start,
            bytes: range.end - range.start,
            access: self.ground.access,
            on_demand: self.ground.on_demand,
            pages_alone: self.ground.pages_alone,
        };
        let (bytes, on_demand) = (ground.bytes, ground.on_demand);
        RegionCore::register(&self.domain, ground).map(Arc::new).map_err(|error| {
            let error = error.of_region(bytes, on_demand, Locked::now());
            PostProblem::Os { call: error.verb, source: error.into() }
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.ground.bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.ground.address
    }

    pub(crate) fn local_key(&self) -> u32 {
        self.local_key
    }

    pub(crate) fn allows(&self, access: Access) -> bool {
        self.ground.access.contains(access)
    }

    /// Transfers with this region are right in whole pages of so many bytes alone.
    pub(crate) fn pages_alone(&self) -> Option<u32> {
        self.ground.pages_alone
    }

    /// Asks the device to bring the stretch in, for writing where the region is written to, without waiting.
    pub(crate) fn prefetch(&self, range: &Range<u64>) -> Result<(), VerbError> {
        let Some(advise) = self.domain.advise else {
            return Err(VerbError::plain("ibv_advise_mr", Errno::OPNOTSUPP.raw_os_error()));
        };
        let bytes = range.end.min(self.ground.bytes).saturating_sub(range.start);
        let mut place = sys::ibv_sge {
            addr: self.ground.address + range.start.min(self.ground.bytes),
            length: u32::try_from(bytes).unwrap_or(u32::MAX),
            lkey: self.local_key,
        };
        let advice = if self.allows(Access::LOCAL_WRITE) { PREFETCH_WRITE } else { PREFETCH };
        // SAFETY: the domain is alive; the one place lies inside this registration, which is alive, and is read before the call returns.
        let returned = unsafe { advise(self.domain.raw, advice, 0, &raw mut place, 1) };
        VerbError::check("ibv_advise_mr", returned)
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_mr {
        self.raw
    }

    /// Remembers a window that is about to be bound.
    pub(crate) fn note_window(&self, window: &Arc<WindowCore>) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|known| !known.is_closed());
        if !windows.iter().any(|known| Arc::ptr_eq(known, window)) {
            windows.push(Arc::clone(window));
        }
    }

    /// Ends the registration; when it returns with success the device no longer touches the memory.
    fn end(&self) -> Result<(), VerbError> {
        for window in self.windows.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            window.unbind_from(self.raw);
        }
        // SAFETY: `raw` came from `ibv_reg_mr`, and this runs once: from the drop of the only owner.
        let returned = unsafe { (self.domain.context.library.dereg_mr)(self.raw) };
        VerbError::check("ibv_dereg_mr", returned)
    }
}

impl Drop for RegionCore {
    fn drop(&mut self) {
        if self.end().is_err() {
            // The device may still write: freeing the memory would give it to somebody else.
            LEAKED_REGIONS.fetch_add(1, Ordering::Relaxed);
            std::mem::forget(Arc::clone(&self.ground.memory));
        }
    }
}

impl windlass_fabric::Region for VerbsRegion {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.core.ground.memory
    }

    fn access(&self) -> Access {
        self.core.ground.access
    }

    fn prefetch(&self, range: Range<u64>) -> bool {
        self.core.ground.on_demand && !range.is_empty() && self.core.prefetch(&range).is_ok()
    }

    fn remote(&self) -> Option<RemoteRange> {
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.core.ground.access.intersects(remote).then_some(RemoteRange {
            address: self.core.ground.address,
            bytes: self.core.ground.bytes,
            key: RemoteKey(self.core.remote_key),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_becomes_the_devices_flags() {
        assert_eq!(access_flags(Access::NONE), 0);
        assert_eq!(access_flags(Access::LOCAL_WRITE | Access::WINDOW_BIND), 0x11);
        assert_eq!(access_flags(Access::REMOTE_READ | Access::REMOTE_WRITE), 0x06);
    }

    #[test]
    fn kind_58_a_refusal_for_lack_of_memory_says_what_is_pinned() {
        let refused = |bytes, on_demand, bytes_max| {
            let error = VerbError::plain("ibv_reg_mr", Errno::NOMEM.raw_os_error());
            refusal(error, bytes, on_demand, Locked { bytes_max, pinned_bytes: 6 << 20 })
        };
        let over = refused(3 << 20, false, Some(8 << 20));
        let RegisterError::MemoryLockLimit { bytes, limit_bytes } = over else { panic!("{over}") };
        assert_eq!((bytes, limit_bytes), (9 << 20, 8 << 20), "what is pinned already counts");
        let text = over.to_string();
        for part in ["9437184", "8388608", "ulimit -l", "LimitMEMLOCK"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        // Within the limit, or without one, or on demand, it is not what the memory lacks.
        for (bytes, on_demand, bytes_max) in
            [(2 << 20, false, Some(8 << 20)), (3 << 20, false, None), (3 << 20, true, Some(8 << 20))]
        {
            let other = refused(bytes, on_demand, bytes_max);
            assert!(matches!(other, RegisterError::Os { call: "ibv_reg_mr", .. }), "{other}");
        }
        let text = refused(3 << 20, false, None).to_string();
        assert!(text.contains("unlimited"), "{text}");
    }
}
