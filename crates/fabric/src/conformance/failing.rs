//! The first failure, and everything after it.

use std::time::Instant;

use super::Outcome;
use super::one_sided::lacking;
use super::side::{LIMIT, Side, local, send, unsignalled, untouched, write};
use crate::{
    Access, Connection, ConnectionOptions, ConnectionState, Fabric, Opcode, PostProblem, Receive, RemoteKey,
    RemoteRange, Status,
};

pub(super) fn flush_in_order<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let (len, area) = (side.whole(8), side.area(4096));
    let one_bytes = side.whole_u32(8);
    let mut connection = side.connect_receiving(3);
    if side.is_active() {
        let (_memory, region) = side.region(area, 0x77, Access::NONE);
        let remote = side.hear_range();
        let bad = RemoteRange { key: RemoteKey(remote.key.0 ^ 0x0000_ff00), ..remote };
        let to_bad = write(2, local(&region, 0, one_bytes), bad.at(0));
        let one = |id| write(id, local(&region, 0, one_bytes), remote.at(8 * len));
        // Unsignalled and good, bad, then good ones that must not land.
        let good = write(0, local(&region, 0, one_bytes), remote.at(0));
        let chain = [unsignalled(good), one(1), to_bad, unsignalled(one(3)), one(4), unsignalled(one(5))];
        let chain = chain.map(|request| match request.id {
            1 => write(1, local(&region, 0, one_bytes), remote.at(len)),
            _ => request,
        });
        side.post(&mut connection, &chain);
        side.sent(&connection, 1, Status::Success);
        side.sent(&connection, 2, Status::RemoteAccess);
        for id in 3..=5 {
            assert_eq!(side.sent(&connection, id, Status::Flushed).opcode, Opcode::Write);
        }
        for id in 0..3 {
            assert_eq!(side.received(&connection, id, Status::Flushed).opcode, Opcode::Receive);
        }
        assert!(matches!(connection.state(), ConnectionState::Error(_)));
        assert_eq!((connection.outstanding().sends, connection.outstanding().receives), (0, 0));
        side.quiet();
        let refused = connection.post(&[one(6)]).expect_err("in error");
        assert!(matches!(refused.problem, PostProblem::State { .. }), "{refused}");
    } else {
        let (memory, _region, _window) = side.opens(&mut connection, area, Access::REMOTE_WRITE);
        side.in_error(&connection);
        for id in 0..3 {
            side.received(&connection, id, Status::Flushed);
        }
        side.agree("flushed");
        untouched(&*memory, 0..2 * len, 0x77);
        untouched(&*memory, 2 * len..area, 0);
        return Outcome::Passed;
    }
    side.agree("flushed");
    Outcome::Passed
}

pub(super) fn close_and_drain<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let mut connection = side.connect_receiving(4);
    if side.is_active() {
        let (_memory, region) = side.plain_region(4096, 0x77, Access::NONE);
        side.agree("closed");
        // The peer's end is over: this one learns of it, at the latest by a request.
        let refused = connection.post(&[send(1, local(&region, 0, 8), None)]);
        match refused {
            Ok(()) => {
                let completion = side.next(connection.id(), false);
                assert!(!completion.status.is_success(), "{completion:?}");
            }
            Err(error) => assert!(matches!(error.problem, PostProblem::State { .. }), "{error}"),
        }
        side.in_error(&connection);
        for id in 0..4 {
            side.received(&connection, id, Status::Flushed);
        }
        side.drained(&connection);
    } else {
        connection.close();
        for id in 0..4 {
            side.received(&connection, id, Status::Flushed);
        }
        side.drained(&connection);
        side.agree("closed");
    }
    side.agree("over");
    connection.destroy();
    side.quiet();
    Outcome::Passed
}

pub(super) fn destroyed<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let connection = side.connect_receiving(4);
    let mut stays = side.connect_with(&Side::<F>::options(), |connection| {
        let receive = Receive { id: 40, into: None };
        connection.post_receives(&[receive]).expect("a receive");
    });
    connection.destroy();
    side.quiet();
    side.agree("destroyed");
    // Others over the same queue are not disturbed.
    let (_memory, region) = side.region(4096, 0x77, Access::NONE);
    if side.is_active() {
        side.post(&mut stays, &[send(1, local(&region, 0, 0), Some(4))]);
        side.sent(&stays, 1, Status::Success);
    } else {
        assert_eq!(side.received(&stays, 40, Status::Success).immediate, Some(4));
    }
    side.agree("over");
    Outcome::Passed
}

pub(super) fn peer_death<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const COUNT: u64 = 8;
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let options = ConnectionOptions { send_depth: 16, ..Side::<F>::options() };
    let mut connection = side.connect_with(&options, |_| {});
    if side.is_active() {
        const AREA: u64 = 1 << 20;
        let (_memory, region) = side.region(AREA, 0x77, Access::NONE);
        let remote = side.hear_range();
        let bytes = u32::try_from(AREA).expect("fits");
        let chain: Vec<_> = (0..COUNT).map(|id| write(id, local(&region, 0, bytes), remote.at(0))).collect();
        side.post(&mut connection, &chain);
        side.say(b"posted");
        // Some may have been carried out; the first that was not says why, the rest are flushed.
        let mut failed = false;
        for id in 0..COUNT {
            let completion = side.next(connection.id(), false);
            assert_eq!(completion.id, id);
            match completion.status {
                Status::Success => assert!(!failed, "success behind a failure: {completion:?}"),
                Status::Flushed
                | Status::PeerGone
                | Status::RemoteAccess
                | Status::RemoteFailure
                | Status::Fault { .. } => failed = true,
                Status::ReceiverNotReady
                | Status::RemoteInvalid
                | Status::LocalAccess
                | Status::BindRefused => panic!("{completion:?}"),
            }
        }
        // All may have been carried out before the peer went, and some of the next: one of them cannot be.
        let deadline = Instant::now() + LIMIT;
        while !failed {
            assert!(Instant::now() < deadline, "requests go on succeeding at a peer that is gone");
            match connection.post(&chain[..1]) {
                Ok(()) => failed = !side.next(connection.id(), false).status.is_success(),
                Err(error) => {
                    assert!(matches!(error.problem, PostProblem::State { .. }), "{error}");
                    failed = true;
                }
            }
        }
        side.in_error(&connection);
        assert_eq!(connection.outstanding().sends, 0);
    } else {
        let (_memory, region) = side.open_region(1 << 20, 0);
        let (window, remote) = side.bound(&mut connection, &region, 0..1 << 20, Access::REMOTE_WRITE);
        side.say_range(remote);
        side.hear();
        connection.destroy();
        drop(window);
    }
    side.agree("over");
    Outcome::Passed
}
