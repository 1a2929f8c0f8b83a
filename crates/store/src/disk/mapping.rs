//! The one module of the store that maps files, and its only unsafe code.
//!
//! A mapping is shared: what is stored through it is in the file's page cache, seen by every reader of the file, and survives
//! the process, but not a loss of power before [`DiskMap::flush_range`] has returned.
//!
//! Why a mapping can't be cut short or run out of space under its users: the folder is locked against other stores, the store
//! never shortens a mapped file, and maps only files whose blocks have all been written (DESIGN.md section 4). What remains is
//! an error of the device under a load or a store through the mapping: the kernel answers it with SIGBUS, which is why cold segments
//! are read by `pread` instead.

#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe: its bytes change under us; every use goes through `Memory`"
)]

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Acquire, fence};

use memmap2::{Advice, MmapOptions, MmapRaw};
use windlass_log::Memory;

use super::{DiskMap, Errno};

mod fork;

/// The mapping of a [`super::RealFile`].
pub struct RealMap {
    map: Arc<Mapped>,
    memory: Memory,
}

/// Keeps the mapping; what the memory type holds on to.
struct Mapped {
    /// Struck off before the mapping goes.
    _listed: fork::Listed,
    map: MmapRaw,
}

impl std::fmt::Debug for RealMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealMap").field("bytes", &self.map.map.len()).finish_non_exhaustive()
    }
}

impl RealMap {
    pub(super) fn new(file: BorrowedFd<'_>, len_bytes: u64) -> Result<RealMap, Errno> {
        let len = usize::try_from(len_bytes).map_err(|_| Errno::NOMEM)?;
        let mut options = MmapOptions::new();
        options.len(len);
        let map = options.map_raw(&file).map_err(|error| errno(&error))?;
        // No readahead: it brings in large folios, and one byte stored then costs a flush of the whole folio (DESIGN.md section 5).
        map.advise(Advice::Random).map_err(|error| errno(&error))?;
        // A child must not write into the parent's log; touching the addresses there is a fault (kind 60).
        map.advise(Advice::DontFork).map_err(|error| errno(&error))?;
        let base = NonNull::new(map.as_mut_ptr()).ok_or(Errno::FAULT)?;
        let map = Arc::new(Mapped { _listed: fork::Listed::new(base.as_ptr(), len)?, map });
        let owner: Arc<dyn Send + Sync> = map.clone();
        #[cfg(loom)]
        let memory = {
            // The model of the memory has words of its own. No model maps a file.
            drop(owner);
            Memory::heap(len_bytes)
        };
        // SAFETY: `base` is the start of a mapping of `len` bytes that lives as long as `owner`; it is page-aligned, readable and writable;
        // nothing else of this process makes a reference into it, and only `Memory` touches it.
        #[cfg(not(loom))]
        let memory = unsafe { Memory::new(base, len_bytes, owner) };
        Ok(RealMap { map, memory })
    }
}

impl DiskMap for RealMap {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn is_shared(&self) -> bool {
        // One is `map`, one is the owner inside `memory`; each clone or slice of the memory is one more.
        let is_shared = Arc::strong_count(&self.map) > 2;
        // What the others did with the memory before they let go of it happens before what is done with it now.
        fence(Acquire);
        is_shared
    }

    fn flush_range(&self, range: Range<u64>) -> Result<(), Errno> {
        let (offset, len) = within(&range, self.map.map.len());
        self.map.map.flush_range(offset, len).map_err(|error| errno(&error))
    }

    fn populate(&self, range: Range<u64>) -> Result<(), Errno> {
        let (offset, len) = within(&range, self.map.map.len());
        self.map.map.advise_range(Advice::PopulateWrite, offset, len).map_err(|error| errno(&error))
    }
}

/// The range as `usize`, which fits because the mapping does.
fn within(range: &Range<u64>, len: usize) -> (usize, usize) {
    assert!(
        range.start <= range.end && range.end <= len as u64,
        "range {range:?} outside a mapping of {len} bytes"
    );
    let start = usize::try_from(range.start).expect("within the mapping");
    (start, usize::try_from(range.end).expect("within the mapping") - start)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
