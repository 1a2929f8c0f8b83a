//! What a forked child finds where its parent's mappings were: addresses that nothing can be read from, stored to or mapped at.
//!
//! The kernel gives a child none of the mappings (`MADV_DONTFORK`), which leaves holes that it would hand to whatever the child maps next: an append
//! there would write over the child's own memory. So a handler of `fork` fills the holes in the child, before anything else of it runs, and what touches
//! them is a SIGSEGV. That costs the parent nothing, and the child one system call for each mapping.
//!
//! Other threads of the parent may be anywhere when one of them forks, so the handler and all that it shares with them take no lock. A mapping is listed
//! after it was kept from children, and struck off before it is unmapped: a child that finds it unlisted has no way to its addresses. The list is
//! gone through by loom (`loom_tests`).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU8};
#[cfg(loom)]
use model::{SlotBase, SlotBytes};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU8};

use super::Errno;

#[cfg(not(loom))]
type SlotBase = AtomicPtr<c_void>;
#[cfg(not(loom))]
type SlotBytes = std::sync::atomic::AtomicUsize;

/// Nobody's: may be taken.
const FREE: u8 = 0;
/// Being filled in.
const TAKEN: u8 = 1;
/// A mapping that children do not inherit.
const MAPPED: u8 = 2;
/// In a child: the hole has been filled, which its own children do inherit.
const FILLED: u8 = 3;

/// Where a mapping lies. Never freed, as a handler may stand on it; taken again.
struct Slot {
    state: AtomicU8,
    base: SlotBase,
    bytes: SlotBytes,
    next: AtomicPtr<Slot>,
}

#[cfg(not(loom))]
static FIRST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

#[cfg(loom)]
loom::lazy_static! {
    static ref FIRST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(at(&FIRST), |slot| at(&slot.next))
}

fn at(pointer: &AtomicPtr<Slot>) -> Option<&'static Slot> {
    // SAFETY: null, or a slot that was leaked once it was complete (`take`); all of a slot is atomic.
    unsafe { pointer.load(Acquire).as_ref() }
}

/// A mapping's entry in the list; struck off when it is dropped, which has to be before the mapping goes.
pub(super) struct Listed(&'static Slot);

impl Listed {
    /// Lists a mapping that children do not inherit.
    pub(super) fn new(base: *mut u8, bytes: usize) -> Result<Listed, Errno> {
        handle_forks()?;
        Ok(Listed::list(base, bytes))
    }

    fn list(base: *mut u8, bytes: usize) -> Listed {
        let slot = take();
        slot.base.store(base.cast(), Relaxed);
        slot.bytes.store(bytes, Relaxed);
        slot.state.store(MAPPED, Release);
        Listed(slot)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.state.store(FREE, Release);
    }
}

/// A slot of one's own: a free one, or one more.
fn take() -> &'static Slot {
    let mut free = slots().filter(|slot| slot.state.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).is_ok());
    if let Some(slot) = free.next() {
        return slot;
    }
    let slot: &'static Slot = Box::leak(Box::new(Slot {
        state: AtomicU8::new(TAKEN),
        base: SlotBase::new(ptr::null_mut()),
        bytes: SlotBytes::new(0),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let new = ptr::from_ref(slot).cast_mut();
    let mut first = FIRST.load(Relaxed);
    loop {
        slot.next.store(first, Relaxed);
        match FIRST.compare_exchange_weak(first, new, AcqRel, Relaxed) {
            Ok(_) => return slot,
            Err(other) => first = other,
        }
    }
}

/// Sees to it that children have their holes filled. Two threads may both do it: the handler does its work once.
fn handle_forks() -> Result<(), Errno> {
    static HANDLED: AtomicBool = AtomicBool::new(false);
    if HANDLED.load(Acquire) {
        return Ok(());
    }
    // SAFETY: `fill_holes` may be called in a child at any time: it takes no lock and allocates nothing.
    let errno = unsafe { libc::pthread_atfork(None, None, Some(fill_holes)) };
    if errno != 0 {
        // The one error that it has (pthread_atfork(3)).
        return Err(Errno::NOMEM);
    }
    HANDLED.store(true, Release);
    Ok(())
}

/// What is listed, each with its base and length.
fn mapped() -> impl Iterator<Item = (&'static Slot, *mut c_void, usize)> {
    slots()
        .filter(|slot| slot.state.load(Acquire) == MAPPED)
        .map(|slot| (slot, slot.base.load(Relaxed), slot.bytes.load(Relaxed)))
}

/// In the child, before `fork` returns there.
extern "C" fn fill_holes() {
    for (slot, base, bytes) in mapped() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: it changes no mapping that is there already (mmap(2)), and nothing of Rust's refers to what is not mapped.
        let filled = unsafe { libc::mmap(base, bytes, libc::PROT_NONE, flags, -1, 0) };
        if filled != base {
            // Another handler of `fork` has mapped something there. The child can't go on: what it has left of the log leads into that.
            let _ = rustix::io::write(std::io::stderr(), OCCUPIED);
            std::process::abort();
        }
        slot.state.store(FILLED, Release);
    }
}

const OCCUPIED: &[u8] =
    b"windlass: a forked child has mapped other memory where its parent's log is mapped; it ends. \
    Open the log before what maps memory in forked children is set up, or fork before the log is opened\n";

#[cfg(loom)]
mod model;

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_that_is_gone_leaves_its_place_in_the_list_to_another() {
        let listed = |mapping: &Listed| slots().any(|slot| ptr::eq(slot, mapping.0));
        let page = |number: usize| ptr::without_provenance_mut(number << 12);
        // Not handled as forks of this process are: nothing is mapped there.
        let first = Listed(take());
        let second = Listed(take());
        assert!(!ptr::eq(first.0, second.0) && listed(&first) && listed(&second));
        first.0.base.store(page(1), Relaxed);
        drop(first);
        let all = slots().count();
        for number in 2..1000 {
            let again = Listed(take());
            again.0.base.store(page(number), Relaxed);
            assert_eq!(again.0.state.load(Relaxed), TAKEN);
        }
        // Other tests of this process map files meanwhile.
        assert!(slots().count() < all + 100, "{} slots, {all} before", slots().count());
    }
}
