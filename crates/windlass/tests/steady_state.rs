//! An append in steady state allocates nothing and makes no system call.
//!
//! Allocations are counted by the global allocator of this test program. System calls are not counted but forbidden: the appends run in a
//! child process of this test under a seccomp filter that kills the process at the first call. Unlike a count in
//! `/proc`, this catches every call, on every kernel that has seccomp.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use windlass::{Level, Log, Options};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // While a thread ends its counter may be gone; nothing is measured then.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const APPENDS: usize = 20_000;
/// Set in the child that forbids itself system calls: which kind of append it makes.
const CHILD: &str = "WINDLASS_STEADY_STATE";
/// The child's folder, which the parent removes: the child ends in the middle, and its log makes segments until then.
const FOLDER: &str = "WINDLASS_STEADY_STATE_FOLDER";

fn open(folder: &std::path::Path) -> Log {
    // Several segments are crossed on the way.
    let log = Options::new().segment_bytes(4 << 20).ahead_segments(3).open_or_create(folder).unwrap();
    while log.metrics().segments_made < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    log
}

fn append(log: &Log, kind: &str) {
    match kind {
        "append" => drop(log.append(&[1; 256]).unwrap()),
        "batch" => drop(log.append_batch(&[&[2; 100], &[3; 50]]).unwrap()),
        "reserve" => {
            let mut reservation = log.reserve(200).unwrap();
            reservation.write(0, &[4; 200]);
            reservation.publish();
        }
        // What a test that can fail looks like: each must be caught.
        "allocates" => drop(std::hint::black_box(vec![log.append(&[5; 8]).unwrap()])),
        "calls" => {
            log.append(&[6; 8]).unwrap();
            std::thread::yield_now();
        }
        _ => panic!("no kind of append: {kind}"),
    }
}

/// Everything an append only does once: the thread's first use, the first segment's pages.
fn warm_up(log: &Log, kind: &str) {
    for _ in 0..1000 {
        append(log, kind);
    }
    let _proof = log.commit_blocking(log.info().tail, Level::Local).unwrap();
}

fn allocations(kind: &str) -> u64 {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = open(folder.path());
    warm_up(&log, kind);
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..APPENDS {
        append(&log, kind);
    }
    let count = ALLOCATIONS.with(Cell::get) - before;
    log.close().unwrap();
    count
}

#[test]
fn an_append_allocates_nothing() {
    assert_eq!(allocations("append"), 0);
    assert_eq!(allocations("batch"), 0);
    assert_eq!(allocations("reserve"), 0);
    assert_eq!(allocations("allocates"), APPENDS as u64, "the count counts");
}

/// A filter that kills the process at any call (but the end of the process, since a filter has to allow something).
fn no_calls() -> BpfProgram {
    let exit_group = if cfg!(target_arch = "x86_64") { 231 } else { 94 };
    let allowed: BTreeMap<i64, Vec<_>> = [(exit_group, Vec::new())].into();
    let arch = if cfg!(target_arch = "x86_64") { TargetArch::x86_64 } else { TargetArch::aarch64 };
    let filter = SeccompFilter::new(allowed, SeccompAction::KillProcess, SeccompAction::Allow, arch).unwrap();
    filter.try_into().unwrap()
}

/// Runs this test program again as the child; the signal that killed it, if one did.
fn child(kind: &str) -> Result<(), i32> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_that_makes_no_system_call", "--nocapture"])
        .env(CHILD, kind)
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let status = ended.status;
    match status.signal() {
        Some(signal) => Err(signal),
        None => {
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(status.success(), "the child failed before it began: {status}: {said}");
            Ok(())
        }
    }
}

#[test]
fn an_append_makes_no_system_call() {
    const SIGSYS: i32 = 31;
    for kind in ["append", "batch", "reserve"] {
        assert_eq!(child(kind), Ok(()), "{kind}");
    }
    assert_eq!(child("calls"), Err(SIGSYS), "the filter catches");
}

#[test]
fn the_child_that_makes_no_system_call() {
    // Without the variable this is the ordinary test run, in which the parent test starts it.
    let Ok(kind) = std::env::var(CHILD) else { return };
    let folder = std::env::var_os(FOLDER).expect("the parent test names the folder");
    let log = open(folder.as_ref());
    warm_up(&log, &kind);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The filter is this thread's alone: the log's own threads go on.
            apply_filter(&no_calls()).unwrap();
            for _ in 0..APPENDS {
                append(&log, &kind);
            }
            done.store(true, Ordering::Release);
            // Even ending the thread would be a call.
            loop {
                std::hint::spin_loop();
            }
        });
        while !done.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::process::exit(0);
    });
}
