//! Chains, limits, slots, states, waits.

use std::time::{Duration, Instant};

use super::Outcome;
use super::one_sided::lacking;
use super::side::{LIMIT, Side, local, read, unsignalled, untouched, write, write_immediate};
use crate::{
    Access, Completion, CompletionQueue, CompletionQueueError, ConnectError, Connection, ConnectionOptions,
    ConnectionState, Counters, CreateError, Fabric, Local, Operation, PostProblem, Receive, RegisterError,
    RemoteKey, RemoteRange, Request, Source, Status, Wake, Woken,
};

pub(super) fn chained_posts<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    let depth = u64::from(Side::<F>::options().send_depth);
    let (len, one) = (side.whole(8), side.whole_u32(8));
    let area = (depth * len).max(4096);
    if side.is_active() {
        let (memory, region) = side.region(area, 0, Access::NONE);
        let remote = side.hear_range();
        connection.post(&[]).expect("an empty chain does nothing");
        // Each request its own source bytes: they are not all the last one's.
        for at in 0..depth {
            crate::Memory::store(&*memory, len * at, at + 1);
        }
        let mut chain: Vec<_> = (0..depth)
            .map(|at| unsignalled(write(at, local(&region, len * at, one), remote.at(len * at))))
            .collect();
        chain.last_mut().expect("a deep queue").signalled = true;
        side.post(&mut connection, &chain);
        side.sent(&connection, depth - 1, Status::Success);
        side.quiet();
        assert_eq!(connection.outstanding().sends, 0);
        side.agree("written");
    } else {
        let (memory, _region, _window) = side.opens(&mut connection, area, Access::REMOTE_WRITE);
        side.agree("written");
        for at in 0..depth {
            assert_eq!(crate::Memory::load(&*memory, len * at), at + 1);
        }
        untouched(&*memory, len * depth..area, 0);
    }
    Outcome::Passed
}

pub(super) fn counted_batch<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const BATCHES: u64 = 5;
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let inline = if side.in_pages() { 0 } else { 16.min(side.fabric.capabilities().inline_bytes_max) };
    let options = ConnectionOptions { inline_bytes: inline, ..Side::<F>::options() };
    let mut connection = side.connect_with(&options, |connection| {
        let receives: Vec<_> = (0..BATCHES).map(|id| Receive { id, into: None }).collect();
        connection.post_receives(&receives).expect("receives");
    });
    assert_eq!(connection.counters(), Counters::default());
    assert_eq!(connection.transfer(), connection.transfer().and(side.fabric.capabilities().transfer));
    if side.is_active() {
        let (_memory, region) = side.region(8192, 0x77, Access::NONE);
        let remote = side.hear_range();
        let notice = vec![0x55; usize::try_from(inline).expect("short")];
        for batch in 1..=BATCHES {
            let data = unsignalled(write(0, local(&region, 0, 4096), remote.at(0)));
            let source = if side.in_pages() {
                Source::Region(local(&region, 0, 4096))
            } else {
                Source::Inline(&notice)
            };
            let operation = Operation::WriteImmediate { source, to: remote.at(4096), immediate: 1 };
            let notice = Request { id: batch, operation, signalled: true };
            side.post(&mut connection, &[data, data, data, notice]);
            side.sent(&connection, batch, Status::Success);
            let counters = connection.counters();
            assert_eq!(
                (counters.doorbells, counters.requests, counters.signalled),
                (batch, 4 * batch, batch)
            );
            assert!(counters.copied_bytes >= batch * u64::from(inline), "{counters:?}");
        }
        // An empty chain costs nothing, one that is refused neither.
        let before = connection.counters();
        connection.post(&[]).expect("an empty chain");
        let out = write(9, local(&region, 8192, 1), remote.at(0));
        connection.post(&[out]).expect_err("outside its region");
        assert_eq!(connection.counters(), before);
        side.quiet();
    } else {
        let (_memory, region) = side.open_region(8192, 0);
        let (_window, remote) = side.bound(&mut connection, &region, 0..8192, Access::REMOTE_WRITE);
        side.say_range(remote);
        for id in 0..BATCHES {
            side.received(&connection, id, Status::Success);
        }
        // The bind alone: writes cost their target's end nothing.
        let counters = connection.counters();
        assert_eq!((counters.doorbells, counters.requests, counters.signalled), (1, 1, 1));
    }
    side.agree("counted");
    Outcome::Passed
}

pub(super) fn queue_full<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let options = ConnectionOptions { send_depth: 8, ..Side::<F>::options() };
    let mut connection = side.connect_with(&options, |_| {});
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let remote = side.hear_range();
        let one = write(0, local(&region, 0, side.whole_u32(8)), remote.at(0));
        for round in 0..3 {
            side.post(&mut connection, &[unsignalled(one); 7]);
            // Unsignalled slots don't come back by themselves.
            side.quiet();
            assert_eq!(connection.outstanding().sends, 7, "round {round}");
            let full = connection.post(&[one; 2]).expect_err("one slot is free");
            assert_eq!(full.posted, 0, "a chain that does not fit is refused whole");
            let PostProblem::QueueFull { asked: 2, free: 1, depth: 8 } = full.problem else {
                panic!("{full}");
            };
            side.post(&mut connection, &[Request { id: 5, ..one }]);
            let full = connection.post(&[one]).expect_err("no slot is free");
            assert!(matches!(full.problem, PostProblem::QueueFull { free: 0, .. }), "{full}");
            side.sent(&connection, 5, Status::Success);
            assert_eq!(connection.outstanding().sends, 0);
            // A bind takes a slot too, and completes behind unsignalled requests.
            side.post(&mut connection, &[unsignalled(one); 7]);
            let (_local, open) = side.open_region(4096, 0);
            let mut window = side.fabric.allocate_window().expect("a window");
            connection.bind(6, &mut window, &open, 0..8, Access::REMOTE_READ).expect("a bind");
            side.sent(&connection, 6, Status::Success);
            assert_eq!(connection.outstanding().sends, 0);
        }
        side.quiet();
        side.agree("over");
    } else {
        let (_memory, _region, _window) = side.opens(&mut connection, 4096, Access::REMOTE_WRITE);
        side.agree("over");
        assert_eq!(connection.state(), ConnectionState::Ready);
    }
    Outcome::Passed
}

pub(super) fn receive_queue_full<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let options = ConnectionOptions { receive_depth: 4, ..Side::<F>::options() };
    let receive = |id| Receive { id, into: None };
    let mut connection = side.connect_with(&options, |connection| {
        connection.post_receives(&[receive(0), receive(1), receive(2)]).expect("three of four");
        let full = connection.post_receives(&[receive(3), receive(4)]).expect_err("one is free");
        assert_eq!(full.posted, 0);
        assert!(matches!(full.problem, PostProblem::QueueFull { asked: 2, free: 1, depth: 4 }), "{full}");
        connection.post_receives(&[receive(3)]).expect("the fourth");
        assert_eq!(connection.outstanding().receives, 4);
    });
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let remote = side.hear_range();
        let len = side.whole_u32(8);
        for id in 0..2 {
            side.post(&mut connection, &[write_immediate(id, local(&region, 0, len), remote.at(0), 0)]);
            side.sent(&connection, id, Status::Success);
        }
    } else {
        let (_memory, _region, _window) = side.opens(&mut connection, 4096, Access::REMOTE_WRITE);
        for id in 0..2 {
            side.received(&connection, id, Status::Success);
        }
        assert_eq!(connection.outstanding().receives, 2);
        connection.post_receives(&[receive(4), receive(5)]).expect("two came back");
        connection.post_receives(&[receive(6)]).expect_err("full again");
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn polled_one_by_one<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const COUNT: u64 = 20;
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let remote = side.hear_range();
        let len = side.whole_u32(8);
        let chain: Vec<_> = (0..COUNT).map(|id| write(id, local(&region, 0, len), remote.at(0))).collect();
        side.post(&mut connection, &chain);
        let end = Instant::now() + LIMIT;
        let mut next = 0;
        while next < COUNT {
            assert!(Instant::now() < end, "completion {next} did not come");
            assert_eq!(side.queue.poll(&mut []).expect("to poll"), 0, "no room, nothing is lost");
            let mut one = [Completion::BLANK];
            if side.queue.poll(&mut one).expect("to poll") == 1 {
                assert_eq!((one[0].id, one[0].status), (next, Status::Success));
                next += 1;
                let left = u32::try_from(COUNT - next).expect("few");
                assert_eq!(connection.outstanding().sends, left, "a slot comes back when it is polled");
            }
        }
        side.agree("over");
    } else {
        let (_memory, _region, _window) = side.opens(&mut connection, 4096, Access::REMOTE_WRITE);
        side.agree("over");
    }
    Outcome::Passed
}

pub(super) fn post_errors<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let remote = side.hear_range();
        let good = unsignalled(write(1, local(&region, 0, side.whole_u32(8)), remote.at(0)));
        if side.in_pages() {
            for (offset, bytes) in [(8, 4088), (0, 8)] {
                let error = connection.post(&[write(2, local(&region, offset, bytes), remote.at(0))]);
                let error = error.expect_err("not a whole page of a mapped file");
                assert!(matches!(error.problem, PostProblem::NotWholePages { .. }), "{error}");
            }
        }
        for (offset, bytes) in [(4096, 1), (0, 4097), (u64::MAX, 8)] {
            let bad = write(2, local(&region, offset, bytes), remote.at(0));
            let error = connection.post(&[good, good, bad, good]).expect_err("outside its region");
            assert_eq!(error.posted, 2);
            assert!(matches!(error.problem, PostProblem::OutOfRegion { .. }), "{error}");
        }
        let into = read(2, local(&region, 0, 8), remote.at(0));
        let error = connection.post(&[into]).expect_err("the region cannot be written");
        assert!(matches!(error.problem, PostProblem::RegionAccess), "{error}");
        let long = [0; 1];
        let operation = Operation::Write { source: Source::Inline(&long), to: remote.at(0) };
        let error = connection.post(&[Request { id: 2, operation, signalled: true }]);
        let error = error.expect_err("the connection has no inline bytes");
        assert!(matches!(error.problem, PostProblem::InlineTooLong { bytes: 1, inline_bytes: 0 }), "{error}");
        let receive = Receive { id: 1, into: Some(local(&region, 0, 8)) };
        let error = connection.post_receives(&[receive]).expect_err("the region cannot be written");
        assert!(matches!(error.problem, PostProblem::RegionAccess), "{error}");
        // What was posted before the bad ones was posted.
        assert_eq!(connection.outstanding().sends, 6);
        side.post(&mut connection, &[Request { id: 3, signalled: true, ..good }]);
        side.sent(&connection, 3, Status::Success);
        side.agree("over");
    } else {
        let (_memory, _region, _window) = side.opens(&mut connection, 4096, Access::REMOTE_WRITE);
        side.agree("over");
    }
    Outcome::Passed
}

pub(super) fn limits<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let capabilities = side.fabric.capabilities().clone();
    let over = capabilities.completions_max.saturating_add(1);
    for capacity in [Some(0), (over > capabilities.completions_max).then_some(over)].into_iter().flatten() {
        let Err(error) = side.fabric.completion_queue(capacity) else { panic!("a queue of {capacity}") };
        assert!(matches!(error, CompletionQueueError::Capacity { .. }), "{error}");
    }
    let small = side.fabric.completion_queue(10).expect("a small queue");
    let options = ConnectionOptions { send_depth: 4, receive_depth: 4, inline_bytes: 0 };
    let first = side.fabric.connection(&small, &options).expect("eight of ten");
    let Err(error) = side.fabric.connection(&small, &options) else { panic!("sixteen of ten") };
    assert!(matches!(error, CreateError::QueueTooSmall { needed: 8, left: 2 }), "{error}");
    first.destroy();
    side.fabric.connection(&small, &options).expect("the first one's room is free again").destroy();

    let bad = [
        ConnectionOptions { send_depth: 0, ..options },
        ConnectionOptions { send_depth: capabilities.send_depth_max.saturating_add(1), ..options },
        ConnectionOptions { receive_depth: capabilities.receive_depth_max.saturating_add(1), ..options },
        ConnectionOptions { inline_bytes: capabilities.inline_bytes_max.saturating_add(1), ..options },
    ];
    for options in bad {
        let Err(error) = side.fabric.connection(&side.queue, &options) else { panic!("{options:?}") };
        assert!(matches!(error, CreateError::Option { .. }), "{options:?}: {error}");
    }
    let memory = std::sync::Arc::new(crate::HeapMemory::new(4096));
    let Err(error) = side.fabric.register(memory, Access::REMOTE_WRITE) else {
        panic!("remote write without local write")
    };
    assert!(matches!(error, RegisterError::AccessCombination), "{error}");
    Outcome::Passed
}

pub(super) fn states<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let (_memory, region) = side.region(4096, 0, Access::LOCAL_WRITE | Access::WINDOW_BIND);
    let nowhere = RemoteRange { address: 0, bytes: 8, key: RemoteKey(0) };
    let request = write(1, local(&region, 0, 8), nowhere.at(0));
    let mut connection = side.connect_with(&Side::<F>::options(), |connection| {
        let error = connection.post(&[request]).expect_err("not connected yet");
        assert!(matches!(error.problem, PostProblem::State { state: ConnectionState::Initial }), "{error}");
        for endpoint in [&b""[..], b"nonsense", &[0xff; 256]] {
            let error = connection.connect(endpoint).expect_err("no endpoint");
            assert!(matches!(error, ConnectError::Endpoint { .. }), "{error}");
        }
        assert_eq!(connection.state(), ConnectionState::Initial, "as before");
        assert_eq!(connection.endpoint(), connection.endpoint().to_vec(), "the same at each call");
    });
    let endpoint = connection.endpoint().to_vec();
    let error = connection.connect(&endpoint).expect_err("connected already");
    assert!(matches!(error, ConnectError::State { .. }), "{error}");
    side.agree("both are ready");
    let other = side.fabric.connection(&side.queue, &Side::<F>::options()).expect("another");
    assert_ne!(other.id(), connection.id());
    other.destroy();

    connection.close();
    assert!(matches!(connection.state(), ConnectionState::Error(_)));
    connection.close();
    let error = connection.post(&[request]).expect_err("closed");
    assert!(matches!(error.problem, PostProblem::State { state: ConnectionState::Error(_) }), "{error}");
    let into: Option<Local<'_, F::Region>> = None;
    let error = connection.post_receives(&[Receive { id: 1, into }]).expect_err("closed");
    assert!(matches!(error.problem, PostProblem::State { state: ConnectionState::Error(_) }), "{error}");
    side.agree("closed");
    Outcome::Passed
}

pub(super) fn waits<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let mut connection = side.connect_receiving(1);
    // A wake before the wait is not lost, and counts once.
    side.queue.waker().wake();
    side.queue.waker().wake();
    let mut wakes = 0;
    for _ in 0..10 {
        if side.queue.wait(Duration::from_millis(1)).expect("to wait") == Woken::Wake {
            wakes += 1;
        }
    }
    assert_eq!(wakes, 1);
    // A wake during the wait ends it.
    let waker = side.queue.waker();
    let woken = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let end = Instant::now() + LIMIT;
        loop {
            match side.queue.wait(LIMIT).expect("to wait") {
                Woken::Wake => break true,
                Woken::Ready | Woken::Timeout if Instant::now() < end => {}
                Woken::Ready | Woken::Timeout => break false,
            }
        }
    });
    assert!(woken, "the waker did not end the wait");
    side.agree("waited");
    if side.is_active() {
        side.hear();
        std::thread::sleep(Duration::from_millis(20));
        let send = Operation::Send { source: Source::Inline(&[]), immediate: None };
        connection.post(&[Request { id: 1, operation: send, signalled: true }]).expect("to post");
        side.sent(&connection, 1, Status::Success);
    } else {
        side.say(b"waiting");
        // What arrives ends it, long before the time is over.
        let start = Instant::now();
        let mut one = [Completion::BLANK];
        while side.queue.poll(&mut one).expect("to poll") == 0 {
            assert!(start.elapsed() < LIMIT, "nothing came");
            side.queue.wait(LIMIT).expect("to wait");
        }
        assert!(start.elapsed() < LIMIT / 2, "the arrival did not end the wait");
        assert_eq!((one[0].id, one[0].connection), (0, connection.id()));
    }
    side.agree("over");
    Outcome::Passed
}
