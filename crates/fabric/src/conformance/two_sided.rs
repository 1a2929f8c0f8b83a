//! Sends, receives, and what happens when there are none.

use super::Outcome;
use super::one_sided::lacking;
use super::side::{Side, holds, local, pattern, send, untouched, write_immediate};
use crate::{Access, Connection, Fabric, Opcode, Operation, Receive, Request, Source, Status};

pub(super) fn send_receive<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let (memory, region) = side.plain_region(8192, 0x22, Access::LOCAL_WRITE);
    let mut connection = side.connect_with(&Side::<F>::options(), |connection| {
        let receives = [
            Receive { id: 1, into: Some(local(&region, 0, 1000)) },
            Receive { id: 2, into: Some(local(&region, 1024, 1000)) },
            Receive { id: 3, into: None },
        ];
        connection.post_receives(&receives).expect("receives");
    });
    if side.is_active() {
        let (source, source_region) = side.plain_region(4096, 0, Access::NONE);
        source.write(0, &pattern(1000, 6));
        let empty = Operation::Send { source: Source::Inline(&[]), immediate: Some(9) };
        let chain = [
            send(11, local(&source_region, 0, 999), None),
            send(12, local(&source_region, 0, 1000), Some(0x8000_0001)),
            Request { id: 13, operation: empty, signalled: true },
        ];
        side.post(&mut connection, &chain);
        for id in 11..=13 {
            assert_eq!(side.sent(&connection, id, Status::Success).opcode, Opcode::Send);
        }
    } else {
        let first = side.received(&connection, 1, Status::Success);
        assert_eq!((first.opcode, first.bytes, first.immediate), (Opcode::Receive, 999, None));
        holds(&*memory, 0, &pattern(1000, 6)[..999]);
        untouched(&*memory, 999..1024, 0x22);
        let second = side.received(&connection, 2, Status::Success);
        assert_eq!((second.bytes, second.immediate), (1000, Some(0x8000_0001)));
        holds(&*memory, 1024, &pattern(1000, 6));
        let third = side.received(&connection, 3, Status::Success);
        assert_eq!((third.bytes, third.immediate), (0, Some(9)));
        assert_eq!(connection.outstanding().receives, 0);
    }
    side.agree("seen");
    Outcome::Passed
}

pub(super) fn send_too_long<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let (memory, region) = side.plain_region(4096, 0x22, Access::LOCAL_WRITE);
    let mut connection = side.connect_with(&Side::<F>::options(), |connection| {
        let receives = [
            Receive { id: 1, into: Some(local(&region, 0, 100)) },
            Receive { id: 2, into: Some(local(&region, 0, 100)) },
        ];
        connection.post_receives(&receives).expect("receives");
    });
    if side.is_active() {
        let (_source, source_region) = side.plain_region(4096, 0x77, Access::NONE);
        side.post(&mut connection, &[send(1, local(&source_region, 0, 101), None)]);
        // Devices differ in what they call it.
        let sent = side.next(connection.id(), false);
        assert_eq!(sent.id, 1);
        assert!(matches!(sent.status, Status::RemoteInvalid | Status::RemoteFailure), "{sent:?}");
    } else {
        side.received(&connection, 1, Status::LocalAccess);
        side.received(&connection, 2, Status::Flushed);
        untouched(&*memory, 100..4096, 0x22);
    }
    side.in_error(&connection);
    side.agree("over");
    Outcome::Passed
}

pub(super) fn receiver_not_ready<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let (len, area) = (side.whole(8), side.area(4096));
    let one = side.whole_u32(8);
    let mut connection = side.connect_receiving(3);
    if side.is_active() {
        let (_memory, region) = side.region(area, 0x77, Access::NONE);
        let remote = side.hear_range();
        for id in 0..3 {
            let chain = [write_immediate(id, local(&region, 0, one), remote.at(len * id), 0)];
            side.post(&mut connection, &chain);
            side.sent(&connection, id, Status::Success);
        }
        side.post(&mut connection, &[write_immediate(3, local(&region, 0, one), remote.at(3 * len), 0)]);
        side.sent(&connection, 3, Status::ReceiverNotReady);
        side.in_error(&connection);
    } else {
        let (_memory, _region, _window) = side.opens(&mut connection, area, Access::REMOTE_WRITE);
        for id in 0..3 {
            side.received(&connection, id, Status::Success);
        }
        // The window stays until the fourth has been answered.
        side.agree("over");
        return Outcome::Passed;
    }
    side.agree("over");
    Outcome::Passed
}
