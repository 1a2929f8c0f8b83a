//! A process that forks while it runs a node (kind 60): what the child can do to its parent's node, by a child that really is one. See `fork.rs`.

mod support;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use support::{Group, append_all, read_all};
use windlass::store::{OpenError as StoreOpenError, StoreError};
use windlass::{Failure, Level, Node, NodeCloseError, NodeError, NodeOptions, TrimError};

const REFUSED: i32 = 1001;
const OTHERWISE: i32 = 1002;

/// What a child answers that does this before it becomes another program: whether it was refused.
fn forked(act: impl Fn() -> bool + Send + Sync + 'static) -> bool {
    let mut command = Command::new("/bin/true");
    // SAFETY: only what is refused before it takes a lock, or takes one that none of the node's threads holds for long enough to be met, is done in the child; it allocates, and
    // the allocator is glibc's, which makes its own locks good in a child.
    unsafe {
        command.pre_exec(move || Err(io::Error::from_raw_os_error(if act() { REFUSED } else { OTHERWISE })));
    }
    command.spawn().unwrap_err().raw_os_error() == Some(REFUSED)
}

fn payload(number: u64) -> Vec<u8> {
    format!("record {number}").into_bytes()
}

#[test]
fn a_child_that_is_forked_off_can_do_nothing_to_its_parents_node_kind_60() {
    let mut group = Group::start(3);
    let (at, log) = group.primary();
    let before = append_all(&log, (0..100).map(payload), Level::Durable);
    let node = Arc::new(Mutex::new(group.nodes[at].take()));
    let taken = |node: &Mutex<Option<Node>>| node.lock().unwrap().take().expect("each child has its own");

    let in_child = Arc::clone(&node);
    let close = move || {
        let closed = taken(&in_child).close();
        matches!(closed, Err(NodeCloseError::Store(StoreError::Forked { .. })))
    };
    assert!(forked(close), "closing is refused, and nothing of the parent's ends with it");
    let in_child = Arc::clone(&node);
    let dropped = move || {
        drop(taken(&in_child));
        true
    };
    assert!(forked(dropped), "dropping ends, and waits for none of its parent's threads");
    let here = log.clone();
    assert!(forked(move || matches!(here.trim(before), Err(TrimError::Failed(Failure::Forked { .. })))));
    let (path, options): (_, NodeOptions) = (group.folder_of(at), group.options(at));
    let open = move || {
        let opened = Node::open_or_create(&path, options.clone());
        matches!(opened, Err(NodeError::Open(StoreOpenError::InUse { .. })))
    };
    assert!(forked(open), "the folder is its parent's");

    // The parent's node goes on, as primary of the same tenure.
    group.nodes[at] = Some(taken(&node));
    let epoch = log.info().epoch;
    let end = append_all(&log, (100..200).map(payload), Level::Durable);
    assert_eq!(log.info().epoch, epoch);
    group.wait_durable(end);
    for member in 0..3 {
        assert_eq!(read_all(group.node(member)), (0..200).map(payload).collect::<Vec<_>>());
    }
    drop(log);
    group.nodes[at].take().unwrap().close().unwrap();
}
