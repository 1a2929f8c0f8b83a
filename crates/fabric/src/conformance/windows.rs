//! Binding, invalidating, and what passes through a window.

use std::time::{Duration, Instant};

use super::Outcome;
use super::one_sided::lacking;
use super::side::{LIMIT, Side, bytes_of, fill, holds, local, pattern, unsignalled, untouched, write};
use crate::{
    Access, BindProblem, Connection, ConnectionState, Fabric, InvalidateError, PostProblem, RemoteRange,
    Status, Window,
};

/// Active's part: one write to `at` behind the range's start, which ends with `status`.
fn write_once<F: Fabric>(
    side: &mut Side<'_, F>,
    connection: &mut F::Connection,
    remote: RemoteRange,
    at: u64,
    bytes: u32,
    status: Status,
) {
    let (_memory, region) = side.region(8192, 0x77, Access::NONE);
    side.post(connection, &[write(1, local(&region, 0, bytes), remote.at(at))]);
    side.sent(connection, 1, status);
    if !status.is_success() {
        side.in_error(connection);
    }
}

pub(super) fn bind<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    // Where the window begins, how long it is, and the length of a write.
    let (start, len, one) = if side.in_pages() { (4096, 3 * 4096, side.whole(1)) } else { (1000, 1000, 1) };
    let (area, last) = (side.area(4096), len - one);
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let remote = side.hear_range();
        let bytes = side.whole_u32(1);
        let chain = [
            unsignalled(write(1, local(&region, 0, bytes), remote.at(0))),
            write(2, local(&region, 0, bytes), remote.at(last)),
        ];
        side.post(&mut connection, &chain);
        side.sent(&connection, 2, Status::Success);
        side.agree("written");
    } else {
        let (memory, region) = side.open_region(area, 0);
        let mut window = side.fabric.allocate_window().expect("a window");
        assert!(!window.is_bound());
        let before = window.binds_left();
        let remote = connection
            .bind(1, &mut window, &region, start..start + len, Access::REMOTE_WRITE)
            .expect("a bind");
        assert!(window.is_bound());
        assert_eq!(window.binds_left(), before - 1);
        side.sent(&connection, 1, Status::Success);
        side.say_range(remote);
        side.agree("written");
        untouched(&*memory, 0..start, 0);
        untouched(&*memory, start..start + one, 0x77);
        untouched(&*memory, start + one..start + last, 0);
        untouched(&*memory, start + last..start + len, 0x77);
        untouched(&*memory, start + len..area, 0);
    }
    Outcome::Passed
}

pub(super) fn invalidated_window_takes_no_write<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let (len, area) = (side.whole(64), side.area(4096));
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let remote = side.hear_range();
        let bytes = side.whole_u32(64);
        side.post(&mut connection, &[write(1, local(&region, 0, bytes), remote.at(0))]);
        side.sent(&connection, 1, Status::Success);
        side.agree("written");
        side.agree("invalidated");
        side.post(&mut connection, &[write(2, local(&region, 0, bytes), remote.at(len))]);
        side.sent(&connection, 2, Status::RemoteAccess);
        side.in_error(&connection);
    } else {
        let (memory, _region, mut window) = side.opens(&mut connection, area, Access::REMOTE_WRITE);
        side.agree("written");
        side.invalidated(&mut connection, &mut window);
        assert!(!window.is_bound());
        untouched(&*memory, 0..len, 0x77);
        side.agree("invalidated");
        side.in_error(&connection);
        untouched(&*memory, len..area, 0);
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn rebind_has_a_new_key<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let (old, new) = (side.hear_range(), side.hear_range());
        let bytes = side.whole_u32(64);
        side.post(&mut connection, &[write(1, local(&region, 0, bytes), new.at(0))]);
        side.sent(&connection, 1, Status::Success);
        side.post(&mut connection, &[write(2, local(&region, 0, bytes), old.at(0))]);
        side.sent(&connection, 2, Status::RemoteAccess);
    } else {
        let (memory, region) = side.open_region(8192, 0);
        let (mut window, old) = side.bound(&mut connection, &region, 0..4096, Access::REMOTE_WRITE);
        // Both posted before either has completed: they are carried out in order.
        connection.invalidate(1, &mut window).expect("an invalidation");
        let new = connection.bind(2, &mut window, &region, 4096..8192, Access::REMOTE_WRITE);
        let new = new.expect("a bind");
        side.sent(&connection, 1, Status::Success);
        side.sent(&connection, 2, Status::Success);
        assert_ne!(old.key, new.key);
        side.say_range(old);
        side.say_range(new);
        side.in_error(&connection);
        untouched(&*memory, 0..4096, 0);
        assert_eq!(bytes_of(&*memory, 4096..4160), [0x77; 64]);
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn out_of_bounds<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const CASES: [(u64, u32); 6] =
        [(4096, 1), (4000, 97), (0, 4097), (u64::MAX, 1), (u64::MAX - 3, 8), (1 << 40, 64)];
    const IN_PAGES: [(u64, u32); 4] = [(4096, 4096), (0, 8192), (u64::MAX - 4095, 4096), (1 << 40, 4096)];
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let cases = if side.in_pages() { &IN_PAGES[..] } else { &CASES };
    for &(at, bytes) in cases {
        let mut connection = side.connect();
        if side.is_active() {
            let remote = side.hear_range();
            write_once(side, &mut connection, remote, at, bytes, Status::RemoteAccess);
        } else {
            let (memory, region) = side.open_region(12288, 0);
            let (_window, remote) = side.bound(&mut connection, &region, 4096..8192, Access::REMOTE_WRITE);
            side.say_range(remote);
            side.in_error(&connection);
            untouched(&*memory, 0..12288, 0);
        }
        side.agree("refused");
    }
    Outcome::Passed
}

pub(super) fn access_of_the_window<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (remote, bytes) = (side.hear_range(), side.whole_u32(64));
        write_once(side, &mut connection, remote, 0, bytes, Status::RemoteAccess);
    } else {
        let (memory, _region, _window) = side.opens(&mut connection, 4096, Access::REMOTE_READ);
        side.in_error(&connection);
        untouched(&*memory, 0..4096, 0);
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn wrong_connection<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let (len, area) = (side.whole(64), side.area(4096));
    let mut owner = side.connect();
    let mut other = side.connect();
    if side.is_active() {
        let (remote, bytes) = (side.hear_range(), side.whole_u32(64));
        write_once(side, &mut other, remote, 0, bytes, Status::RemoteAccess);
        side.agree("refused");
        write_once(side, &mut owner, remote, 2 * len, bytes, Status::Success);
    } else {
        let (memory, _region, _window) = side.opens(&mut owner, area, Access::REMOTE_WRITE);
        side.in_error(&other);
        untouched(&*memory, 0..area, 0);
        side.agree("refused");
        side.agree("over");
        assert_eq!(owner.state(), ConnectionState::Ready);
        untouched(&*memory, 2 * len..3 * len, 0x77);
        return Outcome::Passed;
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn other_windows_stay<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x77, Access::NONE);
        let (first, second) = (side.hear_range(), side.hear_range());
        let bytes = side.whole_u32(64);
        side.post(&mut connection, &[write(1, local(&region, 0, bytes), second.at(0))]);
        side.sent(&connection, 1, Status::Success);
        side.agree("written");
        side.post(&mut connection, &[write(2, local(&region, 0, bytes), first.at(0))]);
        side.sent(&connection, 2, Status::RemoteAccess);
    } else {
        // Two windows over the same bytes: only the key tells them apart.
        let (memory, region) = side.open_region(4096, 0);
        let (mut window, first) = side.bound(&mut connection, &region, 0..4096, Access::REMOTE_WRITE);
        let (_stays, second) = side.bound(&mut connection, &region, 0..4096, Access::REMOTE_WRITE);
        assert_ne!(first.key, second.key);
        side.invalidated(&mut connection, &mut window);
        side.say_range(first);
        side.say_range(second);
        side.agree("written");
        let len = side.whole(64);
        untouched(&*memory, 0..len, 0x77);
        fill(&*memory, 0..len, 0);
        side.in_error(&connection);
        untouched(&*memory, 0..4096, 0);
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn revoked_under_fire<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const AREA: u64 = 1 << 20;
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    for round in 0..5u64 {
        let mut connection = side.connect();
        if side.is_active() {
            let (memory, region) = side.region(AREA, 0, Access::NONE);
            memory.write(0, &pattern(1 << 20, round + 1));
            let remote = side.hear_range();
            let bytes = u32::try_from(AREA).expect("fits");
            let end = Instant::now() + LIMIT;
            let status = loop {
                match connection.post(&[write(1, local(&region, 0, bytes), remote.at(0))]) {
                    Ok(()) => {}
                    Err(error) if matches!(error.problem, PostProblem::QueueFull { .. }) => {}
                    // The peer went away between two writes.
                    Err(error) if matches!(error.problem, PostProblem::State { .. }) => {
                        break Status::PeerGone;
                    }
                    Err(error) => panic!("{error}"),
                }
                let completion = side.next(connection.id(), false);
                if !completion.status.is_success() {
                    break completion.status;
                }
                assert!(Instant::now() < end, "never revoked");
            };
            // Refused, or the peer was quicker to go away than to say so.
            assert!(
                matches!(status, Status::RemoteAccess | Status::PeerGone | Status::Flushed),
                "{status:?}"
            );
        } else {
            let (memory, _region, mut window) = side.opens(&mut connection, AREA, Access::REMOTE_WRITE);
            std::thread::sleep(Duration::from_millis(2 + 3 * round));
            side.invalidated(&mut connection, &mut window);
            connection.close();
            side.drained(&connection);
            connection.destroy();
            // From here on the bytes are this end's alone.
            fill(&*memory, 0..AREA, 0x99);
            std::thread::sleep(Duration::from_millis(20));
            untouched(&*memory, 0..AREA, 0x99);
        }
        side.agree("stands still");
    }
    Outcome::Passed
}

pub(super) fn dropped_window<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (remote, bytes) = (side.hear_range(), side.whole_u32(64));
        write_once(side, &mut connection, remote, 0, bytes, Status::RemoteAccess);
    } else {
        let (memory, region) = side.open_region(4096, 0);
        let (window, remote) = side.bound(&mut connection, &region, 0..4096, Access::REMOTE_WRITE);
        drop(window);
        side.say_range(remote);
        side.in_error(&connection);
        untouched(&*memory, 0..4096, 0);
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn keys_run_out<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    if side.is_active() {
        let (memory, region) = side.region(4096, 0, Access::NONE);
        memory.write(0, &pattern(64, 4));
        let (dead, last) = (side.hear_range(), side.hear_range());
        let bytes = side.whole_u32(64);
        side.post(&mut connection, &[write(1, local(&region, 0, bytes), last.at(0))]);
        side.sent(&connection, 1, Status::Success);
        side.post(&mut connection, &[write(2, local(&region, 0, bytes), dead.at(side.odd(64)))]);
        side.sent(&connection, 2, Status::RemoteAccess);
    } else {
        let (memory, region) = side.open_region(4096, 0);
        let mut window = side.fabric.allocate_window().expect("a window");
        let mut ranges: Vec<RemoteRange> = Vec::new();
        while window.binds_left() > 0 {
            if window.is_bound() {
                side.invalidated(&mut connection, &mut window);
            }
            let left = window.binds_left();
            let range = connection.bind(1, &mut window, &region, 0..4096, Access::REMOTE_WRITE);
            ranges.push(range.expect("a bind"));
            side.sent(&connection, 1, Status::Success);
            assert_eq!(window.binds_left(), left - 1);
            assert!(ranges.len() < 1024, "the keys never run out");
        }
        let mut keys: Vec<_> = ranges.iter().map(|range| range.key.0).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), ranges.len(), "a key came twice");
        side.say_range(ranges[0]);
        side.say_range(ranges[ranges.len() - 1]);
        side.in_error(&connection);
        holds(&*memory, 0, &pattern(64, 4));
        untouched(&*memory, 64..4096, 0);
        // The refusal does not need a living connection; it is found before the state is looked at, or the state is.
        let mut fresh = side.fabric.allocate_window().expect("another window");
        assert!(fresh.binds_left() > 0);
        let refused = connection.bind(2, &mut fresh, &region, 0..4096, Access::REMOTE_WRITE);
        let problem = refused.expect_err("the connection is in error").problem;
        assert!(matches!(problem, BindProblem::Post(PostProblem::State { .. })), "{problem}");
        assert!(!fresh.is_bound());
    }
    side.agree("over");
    // Used up and not bound.
    let mut connection = side.connect();
    if !side.is_active() {
        let (_memory, region) = side.open_region(4096, 0);
        let mut window = side.fabric.allocate_window().expect("a window");
        while window.binds_left() > 0 {
            let range = connection.bind(1, &mut window, &region, 0..4096, Access::REMOTE_WRITE);
            range.expect("a bind");
            side.sent(&connection, 1, Status::Success);
            side.invalidated(&mut connection, &mut window);
        }
        let refused = connection.bind(1, &mut window, &region, 0..4096, Access::REMOTE_WRITE);
        let problem = refused.expect_err("no keys are left").problem;
        assert!(matches!(problem, BindProblem::KeysExhausted), "{problem}");
        assert_eq!(connection.outstanding().sends, 0, "nothing was posted");
    }
    side.agree("used up");
    Outcome::Passed
}

pub(super) fn bind_errors<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let mut connection = side.connect();
    let mut other = side.connect();
    let (_memory, region) = side.open_region(4096, 0);
    let (_closed_memory, closed) = side.region(4096, 0, Access::LOCAL_WRITE);
    let (_fixed_memory, fixed) = side.region(4096, 0, Access::WINDOW_BIND);
    let write_access = Access::REMOTE_WRITE;
    let mut window = side.fabric.allocate_window().expect("a window");

    let not_bound = connection.invalidate(1, &mut window).expect_err("not bound");
    assert!(matches!(not_bound, InvalidateError::NotBound), "{not_bound}");
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is to be refused")]
    for range in [0..0, 8..4, 0..4097, 4096..4097, 0..u64::MAX] {
        let refused = connection.bind(1, &mut window, &region, range, write_access).expect_err("a bad range");
        assert!(matches!(refused.problem, BindProblem::Range { .. }), "{refused}");
    }
    for shut in [&closed, &fixed] {
        let refused = connection.bind(1, &mut window, shut, 0..4096, write_access).expect_err("no access");
        assert!(matches!(refused.problem, BindProblem::RegionAccess), "{refused}");
    }
    assert!(!window.is_bound());
    connection.bind(1, &mut window, &region, 0..4096, write_access).expect("a bind");
    let bound = connection.bind(2, &mut window, &region, 0..4096, write_access).expect_err("still bound");
    assert!(matches!(bound.problem, BindProblem::StillBound), "{bound}");
    let elsewhere = other.invalidate(2, &mut window).expect_err("bound on the first");
    assert!(matches!(elsewhere, InvalidateError::OtherConnection), "{elsewhere}");
    side.sent(&connection, 1, Status::Success);
    side.invalidated(&mut connection, &mut window);
    // Free again, it may go to another connection.
    other.bind(3, &mut window, &region, 0..4096, write_access).expect("a bind elsewhere");
    side.sent(&other, 3, Status::Success);
    side.quiet();
    side.agree("over");
    Outcome::Passed
}
