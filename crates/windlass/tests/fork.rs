//! A process that forks after it opened a log (kind 60): what the child can do to its parent's log, by a child that really is one.
//!
//! `pre_exec` runs in the forked child before it becomes another program: everything that the parent has in memory is there, but for the log's mapping. What it
//! answers reaches the parent as the error of `spawn`, a number. The log has no threads of its own, so that no lock is held by one that the child does not have.
#![allow(missing_docs, reason = "a test")]

#[path = "support/records.rs"]
mod records;

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use windlass::store::OpenError as StoreOpenError;
use windlass::{CloseError, Failure, Level, Log, Lsn, OpenError, Options, TrimError, TruncateError};

const REFUSED: i32 = 1001;
const OTHERWISE: i32 = 1002;
const SIGSEGV: i32 = 11;

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).any_filesystem(true).threads(false)
}

/// How a child ended that did this before it became another program.
#[derive(Debug, PartialEq, Eq)]
enum Child {
    Answered(i32),
    Killed(i32),
    Went,
}

fn forked(act: impl Fn() -> bool + Send + Sync + 'static) -> Child {
    let mut command = Command::new("/bin/true");
    // SAFETY: the child allocates and takes locks, which is sound where no other thread can hold any that it needs: the log has no threads, the allocator is
    // glibc's, which makes its own locks good in a child, and nothing else of the process is touched.
    unsafe {
        command.pre_exec(move || Err(io::Error::from_raw_os_error(if act() { REFUSED } else { OTHERWISE })));
    }
    match command.spawn() {
        Err(error) => Child::Answered(error.raw_os_error().unwrap()),
        Ok(mut child) => {
            let status = child.wait().unwrap();
            status.signal().map_or(Child::Went, Child::Killed)
        }
    }
}

fn payloads(folder: &Path) -> Vec<Vec<u8>> {
    let log = options().open(folder).unwrap();
    records::rest(log.read_from(log.info().trimmed).unwrap())
}

#[test]
fn a_child_that_is_forked_off_can_do_nothing_to_its_parents_log_kind_60() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("log");
    let log = options().create(&folder).unwrap();
    let append = |log: &Log, payload: &[u8]| {
        log.append_wait_blocking(payload, Instant::now() + Duration::from_secs(60)).unwrap()
    };
    while log.step() == windlass::Step::Progress {}
    let first = append(&log, b"durable before");
    let _proof = log.commit_blocking(first.end, Level::Local).unwrap();
    // Not flushed yet: the child could only harm it.
    let second = append(&log, b"not flushed");

    // Everything that would claim or change something is refused by a typed error.
    let (here, at) = (log.clone(), second.start);
    let trim = move || matches!(here.trim(at), Err(TrimError::Failed(Failure::Forked { .. })));
    assert_eq!(forked(trim), Child::Answered(REFUSED));
    let (here, at) = (log.clone(), first.start);
    let truncate = move || matches!(here.truncate(at), Err(TruncateError::Failed(Failure::Forked { .. })));
    assert_eq!(forked(truncate), Child::Answered(REFUSED));
    let here = log.clone();
    let close = move || matches!(here.clone().close(), Err(CloseError::Failed(Failure::Forked { .. })));
    assert_eq!(forked(close), Child::Answered(REFUSED));
    // Its parent has the folder, also for the child.
    let path = folder.clone();
    let open = move || matches!(options().open(&path), Err(OpenError::Store(StoreOpenError::InUse { .. })));
    assert_eq!(forked(open), Child::Answered(REFUSED));
    // A commit and an append meet memory that is not there.
    let (here, end) = (log.clone(), second.end);
    assert_eq!(forked(move || here.commit_blocking(end, Level::Local).is_ok()), Child::Killed(SIGSEGV));
    let here = log.clone();
    assert_eq!(forked(move || here.append(b"a child's").is_ok()), Child::Killed(SIGSEGV));

    // The parent goes on, alone in its folder, with nothing lost and nothing added.
    let again = options().open(&folder);
    assert!(matches!(again, Err(OpenError::Store(StoreOpenError::InUse { .. }))), "{again:?}");
    let third = append(&log, b"after the children");
    let _proof = log.commit_blocking(third.end, Level::Local).unwrap();
    log.close().unwrap();
    let kept: [&[u8]; 3] = [b"durable before", b"not flushed", b"after the children"];
    assert_eq!(payloads(&folder), kept);
}

/// A child that goes on and drops what it has of the log's handles gives up nothing of its parent's.
#[test]
fn a_child_that_drops_the_last_handle_leaves_its_parent_the_folder_kind_60() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("log");
    let log = options().create(&folder).unwrap();
    let handle = std::sync::Mutex::new(Some(log));
    let handle = std::sync::Arc::new(handle);
    let in_child = std::sync::Arc::clone(&handle);
    let dropped = move || {
        let last = in_child.lock().unwrap().take();
        drop(last);
        true
    };
    assert_eq!(forked(dropped), Child::Answered(REFUSED));
    let log = handle.lock().unwrap().take().expect("the parent's is there");
    let again = options().open(&folder);
    assert!(matches!(again, Err(OpenError::Store(StoreOpenError::InUse { .. }))), "{again:?}");
    while log.step() == windlass::Step::Progress {}
    let appended = log.append_wait_blocking(b"x", Instant::now() + Duration::from_secs(60)).unwrap();
    let _proof = log.commit_blocking(appended.end, Level::Local).unwrap();
    assert!(appended.end > Lsn(4096));
    log.close().unwrap();
    assert_eq!(payloads(&folder), [b"x"]);
}

/// Where the mapping was there is nothing in the child, nor in the child's own children, and nothing that a child maps comes to lie there.
#[test]
fn a_childs_append_writes_over_nothing_of_its_own_kind_60() {
    let place = tempfile::tempdir().unwrap();
    let (folder, childs) = (place.path().join("log"), place.path().join("child's"));
    let log = options().segment_bytes(4 << 20).create(&folder).unwrap();
    let _ = log.append(b"the parent's").unwrap();
    let appends_to = |log: &Log| {
        let here = log.clone();
        forked(move || {
            let mine: Vec<Vec<u8>> = (0..64).map(|_| vec![0; 1 << 20]).collect();
            let is_appended = here.append(&[7; 100]).is_ok();
            is_appended && mine.iter().any(|piece| piece.iter().any(|byte| *byte != 0))
        })
    };
    assert_eq!(appends_to(&log), Child::Killed(SIGSEGV));
    let here = log.clone();
    let in_grandchild = move || {
        let own = options().create(&childs).unwrap();
        let _ = own.append(b"the child's").unwrap();
        let ends = [appends_to(&here), appends_to(&own)];
        let _ = own.append(b"another").unwrap();
        own.close().unwrap();
        ends == [Child::Killed(SIGSEGV), Child::Killed(SIGSEGV)] && payloads(&childs).len() == 2
    };
    assert_eq!(forked(in_grandchild), Child::Answered(REFUSED));
    let _ = log.append(b"more").unwrap();
    log.close().unwrap();
    assert_eq!(payloads(&folder), [&b"the parent's"[..], b"more"]);
}
