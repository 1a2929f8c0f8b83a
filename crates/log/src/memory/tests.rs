//! On exact-size heap blocks, so that a sanitizer sees the first byte too many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::vec;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::Memory;

#[test]
fn bytes_go_in_and_come_out_up_to_the_last() {
    for bytes in [1, 7, 8, 100, 4096, 5000] {
        let memory = Memory::heap(bytes);
        assert_eq!(memory.bytes(), bytes);
        let all = usize::try_from(bytes).unwrap();
        let mut out = vec![1; all];
        memory.copy_out(0, &mut out);
        assert_eq!(out, vec![0; all], "a heap block is zeroed");
        memory.copy_in(0, &vec![7; all]);
        memory.copy_in(bytes - 1, &[9]);
        memory.copy_out(0, &mut out);
        assert_eq!(out.last(), Some(&9));
        memory.zero(0, bytes);
        memory.copy_out(bytes - 1, &mut out[..1]);
        assert_eq!(out[0], 0);
        memory.copy_in(bytes, &[]);
        memory.copy_out(bytes, &mut []);
    }
}

#[test]
fn nothing_reaches_outside() {
    let memory = Memory::heap(64);
    let panics = |work: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    panics(&|| memory.copy_in(60, &[0; 5]));
    panics(&|| memory.copy_in(65, &[]));
    panics(&|| memory.copy_in(u64::MAX, &[0]));
    panics(&|| memory.copy_out(64, &mut [0]));
    panics(&|| memory.copy_out(u64::MAX - 3, &mut [0; 8]));
    panics(&|| memory.zero(1, 64));
    panics(&|| memory.zero(0, u64::MAX));
    panics(&|| memory.store_u64(64, 0, Ordering::Relaxed));
    panics(&|| memory.store_u64(57, 0, Ordering::Relaxed));
    panics(&|| memory.store_u32(62, 0, Ordering::Relaxed));
    panics(&|| _ = memory.load_u64(4, Ordering::Relaxed));
    panics(&|| _ = memory.slice(8, 57));
    panics(&|| _ = memory.slice(4, 8));
    panics(&|| _ = Memory::heap(0));
}

#[test]
fn kind_81_words_are_little_endian_whatever_the_machine() {
    let memory = Memory::heap(16);
    memory.store_u64(8, 0x0102_0304_0506_0708, Ordering::Release);
    let mut bytes = [0; 8];
    memory.copy_out(8, &mut bytes);
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(memory.load_u64(8, Ordering::Acquire), 0x0102_0304_0506_0708);
    assert_eq!(memory.load_u32(12, Ordering::Acquire), 0x0102_0304);
    memory.store_u32(12, 5, Ordering::Relaxed);
    assert_eq!(memory.load_u64(8, Ordering::Relaxed), 0x0000_0005_0506_0708);
}

#[test]
fn a_slice_and_a_clone_share_the_bytes_and_keep_the_owner() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Owner(Memory);
    impl Drop for Owner {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let block = Memory::heap(4096);
    let owner = Arc::new(Owner(block));
    let base = NonNull::new(owner.0.pointer().as_ptr()).unwrap();
    // SAFETY: the owner keeps the block, and no reference into it exists.
    let memory = unsafe { Memory::new(base, 4096, owner) };
    let slice = memory.slice(8, 16);
    assert_eq!((slice.address(), slice.bytes()), (memory.address() + 8, 16));
    drop(memory.clone());
    slice.store_u64(8, 77, Ordering::Relaxed);
    assert_eq!(memory.load_u64(16, Ordering::Relaxed), 77);
    drop(memory);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    assert_eq!(slice.load_u64(8, Ordering::Relaxed), 77);
    drop(slice);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}
