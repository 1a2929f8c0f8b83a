//! The real thing: raw pointers into a mapping or a heap block.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::bytes::{index, length};
use crate::record::HEADER;

/// A stretch of memory that others may change at any time, and a share in what keeps it alive.
///
/// A clone refers to the same bytes; the mapping or block goes when the last clone does. Offsets and lengths are in bytes
/// from the start. Words are little-endian. Methods take `&self`: there is no exclusive access to such memory.
///
/// Whoever holds one sees to it that copies of this process that meet, of which one writes, are ordered (see [`Memory::new`]): two threads that copy to the same bytes at once race, though
/// each calls a safe method. So it is for the crates that the log is made of, which order what they do; an application has no way to one.
#[derive(Clone)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: u64,
    owner: Arc<dyn Send + Sync>,
}

// SAFETY: the pointer is only used for raw copies and atomic accesses, which the contract of `Memory::new` allows from any
// thread, and the owner, itself `Send + Sync`, keeps it valid.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` gives nothing but raw copies and atomic accesses.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("address", &self.base).field("bytes", &self.bytes).finish()
    }
}

impl Memory {
    /// Memory that starts at `base` and that `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// As long as `owner` or a clone of it lives, all `bytes` bytes from `base` must stay mapped and readable, and writable
    /// unless no method that writes is ever called. Nobody in this process may hold a reference into them. Accesses
    /// of this process that meet must be ordered by the caller or be through the atomic methods.
    ///
    /// # Panics
    ///
    /// If `base` is not aligned to 8 bytes, or the range wraps round the address space.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: u64, owner: Arc<dyn Send + Sync>) -> Memory {
        let address = length(base.as_ptr().addr());
        assert!(address.is_multiple_of(8), "memory at {address:#x} is not aligned to 8 bytes");
        assert!(address.checked_add(bytes).is_some_and(|end| end <= u64::MAX >> 1), "memory wraps round");
        Memory { base, bytes, owner }
    }

    /// A zeroed heap block of exactly this size, aligned to a page: for tests, where a sanitizer then sees the first byte too
    /// many, and for buffers that a device is to reach.
    ///
    /// # Panics
    ///
    /// If `bytes` is 0.
    #[must_use]
    pub fn heap(bytes: u64) -> Memory {
        assert!(bytes > 0, "a heap block has at least one byte");
        let layout = Layout::from_size_align(index(bytes), 4096).expect("a size below the address space");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        let owner = Arc::new(Block { base, layout });
        // SAFETY: the block lives as long as its owner, is readable and writable, and no reference into it is made.
        unsafe { Memory::new(base, bytes, owner) }
    }

    /// A part of this memory, which shares its owner.
    ///
    /// # Panics
    ///
    /// If the range is outside or `offset` is not a multiple of 8.
    #[must_use]
    pub fn slice(&self, offset: u64, bytes: u64) -> Memory {
        let base = self.at(offset, bytes);
        assert!(offset.is_multiple_of(8), "a slice starts on a multiple of 8, not at {offset}");
        Memory { base, bytes, owner: Arc::clone(&self.owner) }
    }

    /// How many hold what keeps this memory alive: this one, its clones and slices, and holders of the owner itself.
    #[must_use]
    pub fn holders(&self) -> usize {
        let holders = Arc::strong_count(&self.owner);
        // What those who let go did with the bytes before happens before what is done with them on the strength of this count.
        fence(Ordering::Acquire);
        holders
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of the first byte, for registration with a device.
    #[must_use]
    pub fn address(&self) -> u64 {
        length(self.base.as_ptr().addr())
    }

    /// The first byte as a pointer, for a system call on the range. Dereferencing it is the caller's unsafe business.
    #[must_use]
    pub fn pointer(&self) -> NonNull<u8> {
        self.base
    }

    /// The pointer to `offset`, once `bytes` bytes from there are inside.
    #[inline]
    fn at(&self, offset: u64, bytes: u64) -> NonNull<u8> {
        let inside = offset <= self.bytes && bytes <= self.bytes - offset;
        assert!(inside, "{bytes} bytes at offset {offset} of a memory of {}", self.bytes);
        // SAFETY: just checked: at most one past the end of what the owner keeps mapped.
        unsafe { self.base.add(index(offset)) }
    }

    /// Copies `source` to `offset`. Orders nothing.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    #[inline]
    pub fn copy_in(&self, offset: u64, source: &[u8]) {
        let to = self.at(offset, length(source.len()));
        // SAFETY: `at` checked the range, the owner keeps it mapped; `source` is a reference and no reference leads into the
        // memory, so they don't overlap.
        unsafe { to.as_ptr().copy_from_nonoverlapping(source.as_ptr(), source.len()) }
    }

    /// Copies a record to `offset` but for its publish word, the first 8 bytes: `header` behind that, `payload` behind the header, then zeros up to
    /// a multiple of 8. As [`copy_in`](Self::copy_in) for each of them, with one check for all.
    #[inline]
    pub(super) fn copy_record_in(&self, offset: u64, header: &[u8; HEADER - 8], payload: &[u8]) {
        let filled = HEADER + payload.len();
        let bytes = filled.next_multiple_of(8);
        let to = self.at(offset, length(bytes)).as_ptr();
        let (header_to, payload_to) = (to.wrapping_add(8), to.wrapping_add(HEADER));
        // SAFETY: `at` checked the range from `offset` to behind the zeros, which holds header, payload and zeros one behind the other, and the owner
        // keeps it mapped; `header` is a reference and none leads into the memory, so they don't overlap.
        unsafe { header_to.copy_from_nonoverlapping(header.as_ptr(), header.len()) };
        // SAFETY: as for the header.
        unsafe { payload_to.copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
        if filled < bytes {
            // SAFETY: in the same range; any byte pattern is fine there.
            unsafe { to.wrapping_add(filled).write_bytes(0, bytes - filled) };
        }
    }

    /// Copies from `offset` into `into`, all of it. What others write meanwhile may be in it in part: check the copy.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    #[inline]
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) {
        let from = self.at(offset, length(into.len()));
        // SAFETY: as in `copy_in`, the other way round.
        unsafe { from.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    /// Sets `bytes` bytes from `offset` to zero. Orders nothing.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    #[inline]
    pub fn zero(&self, offset: u64, bytes: u64) {
        let to = self.at(offset, bytes);
        // SAFETY: `at` checked the range and the owner keeps it mapped; any byte pattern is fine there.
        unsafe { to.as_ptr().write_bytes(0, index(bytes)) }
    }

    /// The word at `offset`, loaded with this ordering.
    ///
    /// # Panics
    ///
    /// If the word is outside or `offset` is not a multiple of 8; if the ordering is not one of a load.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, offset: u64, ordering: Ordering) -> u64 {
        u64::from_le(self.word(offset).load(ordering))
    }

    /// Stores the word at `offset` with this ordering.
    ///
    /// # Panics
    ///
    /// If the word is outside or `offset` is not a multiple of 8; if the ordering is not one of a store.
    #[inline]
    pub fn store_u64(&self, offset: u64, value: u64, ordering: Ordering) {
        self.word(offset).store(value.to_le(), ordering);
    }

    /// The half word at `offset`, loaded with this ordering.
    ///
    /// # Panics
    ///
    /// If it is outside or `offset` is not a multiple of 4; if the ordering is not one of a load.
    #[inline]
    #[must_use]
    pub fn load_u32(&self, offset: u64, ordering: Ordering) -> u32 {
        u32::from_le(self.half(offset).load(ordering))
    }

    /// Stores the half word at `offset` with this ordering.
    ///
    /// # Panics
    ///
    /// If it is outside or `offset` is not a multiple of 4; if the ordering is not one of a store.
    #[inline]
    pub fn store_u32(&self, offset: u64, value: u32, ordering: Ordering) {
        self.half(offset).store(value.to_le(), ordering);
    }

    /// All of it as atomic words, in the machine's byte order, but for a remainder below 8 bytes: what a device's registration takes its
    /// address and length from.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let count = index(self.bytes / 8);
        // SAFETY: the words are inside what the owner keeps mapped for as long as `self` lives, and aligned, since the base is. Atomics
        // may be referred to while others change them: they promise nothing about their values.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast(), count) }
    }

    #[inline]
    pub(super) fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at offset {offset}, not a multiple of 8");
        let at = self.at(offset, 8);
        // SAFETY: in range, mapped as long as `self` lives, and aligned: the base is, and the offset is a multiple of 8. An
        // atomic is the one thing that may be referred to here: it promises nothing about its value.
        unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
    }

    #[inline]
    fn half(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "a half word at offset {offset}, not a multiple of 4");
        let at = self.at(offset, 4);
        // SAFETY: as in `word`, with 4 for 8.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
    }
}

/// A heap block, freed when the last memory that refers to it goes.
struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block only frees its pointer, once, in whichever thread is last.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives access to nothing.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `Memory::heap` with this layout and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
