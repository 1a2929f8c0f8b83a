//! `windlass-log` and `windlass-engine` linked into a static library without std, with an allocator and a panic handler of
//! its own.
//!
//! `#![no_std]` on a crate says nothing of its dependencies. Here a dependency that brings std brings std's panic handler
//! too, and two panic handlers in one artifact are an error.
#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

// An extern crate that nothing names is not linked at all.
use crc32fast as _;
use windlass_engine as _;

const ARENA_BYTES: usize = 1 << 16;

/// Hands out an arena from its start to its end and takes nothing back: enough to prove that one can be brought along.
struct Bump {
    arena: core::cell::UnsafeCell<[u8; ARENA_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: the arena is only handed out in pieces that don't overlap (`used` only grows).
unsafe impl Sync for Bump {}

// SAFETY: every piece lies inside the arena, aligned as asked, and is handed out once.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.arena.get().cast::<u8>();
        let mut piece = core::ptr::null_mut();
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let begin = (start as usize).checked_add(used)?.checked_next_multiple_of(layout.align())?;
                let end = begin.checked_add(layout.size())? - start as usize;
                piece = start.wrapping_add(begin - start as usize);
                (end <= ARENA_BYTES).then_some(end)
            })
            .map_err(|_| piece = core::ptr::null_mut());
        piece
    }

    unsafe fn dealloc(&self, _piece: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Bump =
    Bump { arena: core::cell::UnsafeCell::new([0; ARENA_BYTES]), used: AtomicUsize::new(0) };

#[panic_handler]
fn panicked(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Something of the log that a linker can't drop: the segment that holds `lsn`, by way of the heap.
#[unsafe(no_mangle)]
pub extern "C" fn windlass_no_std_check(segment_bytes: u64, lsn: u64) -> u64 {
    let geometry = windlass_log::Geometry::new(segment_bytes).map(Box::new);
    geometry.map_or(u64::MAX, |geometry| geometry.segment_of(windlass_log::Lsn(lsn)))
}
