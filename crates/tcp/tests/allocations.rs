//! Posting, carrying out, acknowledging and polling requests allocates nothing, in any thread. Alone in its binary: it
//! counts the whole process's allocations.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region as Count, StatsAlloc};
use windlass_fabric::{
    Access, Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric, HeapMemory,
    Local, Operation, Receive, RemoteRange, Request, Source,
};
use windlass_tcp::auth::Secret;
use windlass_tcp::{Options, TcpCompletionQueue, TcpConnection, TcpFabric, TcpRegion};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn open() -> TcpFabric {
    let secret = Secret::new(b"the secret of the allocations").expect("long enough");
    TcpFabric::open(Options::new(secret, [1; 16]), slog::Logger::root(slog::Discard, slog::o!()))
        .expect("loopback")
}

/// Polls until a completion is there; sleeps at each turn, so that sleeping is counted too.
fn next(queue: &mut TcpCompletionQueue) -> Completion {
    let mut one = [Completion::BLANK];
    while queue.poll(&mut one).expect("to poll") == 0 {
        queue.wait(Duration::from_secs(5)).expect("to wait");
    }
    assert!(one[0].status.is_success(), "{:?}", one[0]);
    one[0]
}

/// A batch as the log sends it: a write from a region, one inline, a notice; then a read.
fn round(
    queue: &mut TcpCompletionQueue,
    connection: &mut TcpConnection,
    region: &TcpRegion,
    to: RemoteRange,
) {
    let source = Source::Region(Local { region, offset: 0, bytes: 300_000 });
    let inline = Source::Inline(&[7; 64]);
    let into = Local { region, offset: 0, bytes: 100_000 };
    let chain = [
        Request { id: 1, operation: Operation::Write { source, to: to.at(0) }, signalled: false },
        Request { id: 2, operation: Operation::Write { source: inline, to: to.at(8) }, signalled: false },
        Request {
            id: 3,
            operation: Operation::WriteImmediate { source: inline, to: to.at(64), immediate: 9 },
            signalled: true,
        },
        Request { id: 4, operation: Operation::Read { into, from: to.at(0) }, signalled: true },
    ];
    connection.post(&chain).expect("to post");
    for id in [3, 4] {
        assert_eq!(next(queue).id, id);
    }
}

#[test]
fn requests_allocate_nothing() {
    const AREA: u64 = 1 << 20;
    let fabrics = [open(), open()];
    let mut ends = fabrics.each_ref().map(|fabric| {
        let queue = fabric.completion_queue(256).expect("a queue");
        let connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
        (queue, connection)
    });
    let endpoints = ends.each_ref().map(|(_, connection)| connection.endpoint().to_vec());
    ends[0].1.connect(&endpoints[1]).expect("to connect");
    ends[1].1.connect(&endpoints[0]).expect("to connect");
    while ends.iter().any(|(_, connection)| connection.state() != ConnectionState::Ready) {
        for (queue, _) in &mut ends {
            queue.poll(&mut []).expect("to poll");
        }
    }
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let regions = fabrics
        .each_ref()
        .map(|fabric| fabric.register(Arc::new(HeapMemory::new(AREA)), access).expect("a region"));
    let mut window = fabrics[1].allocate_window().expect("a window");
    let [(mut queue, mut connection), (mut peer_queue, mut peer)] = ends;
    let both = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let range = peer.bind(0, &mut window, &regions[1], 0..AREA, both).expect("a bind");
    assert_eq!(next(&mut peer_queue).id, 0);
    let receives: Vec<_> = (0..64).map(|id| Receive { id, into: None }).collect();
    peer.post_receives(&receives).expect("receives");

    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                let mut one = [Completion::BLANK];
                if peer_queue.poll(&mut one).expect("to poll") == 1 {
                    peer.post_receives(&[Receive { id: 0, into: None }]).expect("a receive");
                } else {
                    peer_queue.wait(Duration::from_millis(5)).expect("to wait");
                }
            }
        });
        for _ in 0..20 {
            round(&mut queue, &mut connection, &regions[0], range);
        }
        let count = Count::new(ALLOCATOR);
        for _ in 0..100 {
            round(&mut queue, &mut connection, &regions[0], range);
        }
        let change = count.change();
        over.store(true, Ordering::Release);
        assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
    });
}
