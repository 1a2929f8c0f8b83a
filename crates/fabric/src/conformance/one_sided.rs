//! Writes, writes with immediate, reads.

use super::Outcome;
use super::side::{
    Side, fill, holds, local, pattern, read as read_of, unsignalled, untouched, write as write_of,
    write_immediate as write_immediate_of,
};
use crate::{
    Access, Connection, ConnectionOptions, Fabric, Opcode, Operation, Receive, Region, Request, Source,
    Status,
};

const WINDOWS: &str = "no type-2 windows";
const IMMEDIATE: &str = "no write with immediate";

/// Why a case that needs windows, and perhaps write with immediate, cannot be played.
pub(super) fn lacking<F: Fabric>(side: &Side<'_, F>, immediate: bool) -> Option<Outcome> {
    let capabilities = side.fabric.capabilities();
    if !capabilities.windows {
        return Some(Outcome::Skipped(WINDOWS));
    }
    if immediate && !capabilities.immediate {
        return Some(Outcome::Skipped(IMMEDIATE));
    }
    None
}

pub(super) fn write<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let inline = if side.in_pages() { 0 } else { 32.min(side.fabric.capabilities().inline_bytes_max) };
    let (from, to) = (side.odd(100), side.odd(8));
    let options = ConnectionOptions { inline_bytes: inline, ..Side::<F>::options() };
    let mut connection = side.connect_with(&options, |_| {});
    let payload = pattern(4096, 1);
    if side.is_active() {
        let (memory, region) = side.region(8192, 0, Access::NONE);
        crate::Memory::write(&*memory, from, &payload);
        let remote = side.hear_range();
        side.post(&mut connection, &[write_of(7, local(&region, from, 4096), remote.at(to))]);
        let completion = side.sent(&connection, 7, Status::Success);
        assert_eq!(completion.opcode, Opcode::Write);
        let mut bytes = pattern(usize::try_from(inline).expect("short"), 2);
        let operation = Operation::Write { source: Source::Inline(&bytes), to: remote.at(5000) };
        connection.post(&[Request { id: 8, operation, signalled: true }]).expect("to post inline");
        // The slice is free at once.
        bytes.fill(0xee);
        side.sent(&connection, 8, Status::Success);
        side.quiet();
        side.agree("written");
    } else {
        let (memory, region) = side.open_region(16384, 0xaa);
        let (_window, remote) = side.bound(&mut connection, &region, 4096..12288, Access::REMOTE_WRITE);
        side.say_range(remote);
        side.agree("written");
        holds(&*memory, 4096 + to, &payload);
        let bytes = pattern(usize::try_from(inline).expect("short"), 2);
        holds(&*memory, 4096 + 5000, &bytes);
        untouched(&*memory, 0..4096 + to, 0xaa);
        untouched(&*memory, 8192 + to..9096, 0xaa);
        untouched(&*memory, 9096 + u64::from(inline)..16384, 0xaa);
        side.quiet();
    }
    Outcome::Passed
}

pub(super) fn write_immediate<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let (len, area) = (side.whole_u32(1000), side.area(4096));
    let (first_at, second_at) = (side.odd(16), side.whole(2000));
    let payload = pattern(usize::try_from(len).expect("short"), 3);
    let mut connection = side.connect_receiving(2);
    if side.is_active() {
        let (memory, region) = side.region(area, 0, Access::NONE);
        crate::Memory::write(&*memory, 0, &payload);
        let remote = side.hear_range();
        let chain = [
            write_immediate_of(1, local(&region, 0, len), remote.at(first_at), 0xfedc_ba98),
            write_immediate_of(2, local(&region, 0, len), remote.at(second_at), 0),
        ];
        side.post(&mut connection, &chain);
        assert_eq!(side.sent(&connection, 1, Status::Success).opcode, Opcode::Write);
        side.sent(&connection, 2, Status::Success);
    } else {
        let (memory, region) = side.open_region(area, 0xaa);
        let (_window, remote) = side.bound(&mut connection, &region, 0..area, Access::REMOTE_WRITE);
        side.say_range(remote);
        let first = side.received(&connection, 0, Status::Success);
        assert_eq!((first.opcode, first.immediate), (Opcode::ReceiveWrite, Some(0xfedc_ba98)));
        assert_eq!(first.bytes, len);
        holds(&*memory, first_at, &payload);
        let second = side.received(&connection, 1, Status::Success);
        assert_eq!((second.opcode, second.immediate), (Opcode::ReceiveWrite, Some(0)));
        holds(&*memory, second_at, &payload);
        side.quiet();
    }
    side.agree("seen");
    Outcome::Passed
}

pub(super) fn writes_before_notice<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const ROUNDS: u64 = 200;
    const AREA: u64 = 1 << 16;
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let notice_bytes = side.whole_u32(8);
    let mut connection = side.connect_receiving(32);
    if side.is_active() {
        let (memory, region) = side.region(AREA, 0, Access::NONE);
        let remote = side.hear_range();
        for round in 0..ROUNDS {
            let sizes = sizes(round).map(|size| side.whole_u32(size));
            let mut offset = 0;
            let mut chain = Vec::new();
            for size in sizes {
                crate::Memory::write(
                    &*memory,
                    offset,
                    &pattern(usize::try_from(size).expect("short"), round * 3 + offset),
                );
                chain.push(unsignalled(write_of(round, local(&region, offset, size), remote.at(offset))));
                offset += u64::from(size);
            }
            let immediate = u32::try_from(round).expect("few rounds");
            let end = remote.at(AREA - u64::from(notice_bytes));
            chain.push(write_immediate_of(round, local(&region, 0, notice_bytes), end, immediate));
            side.post(&mut connection, &chain);
            side.sent(&connection, round, Status::Success);
            // The area is used again: the reader has seen it.
            side.hear();
        }
    } else {
        let (memory, _region, _window) = side.opens(&mut connection, AREA, Access::REMOTE_WRITE);
        for round in 0..ROUNDS {
            let notice = side.received(&connection, round, Status::Success);
            assert_eq!(notice.immediate, Some(u32::try_from(round).expect("few rounds")));
            let mut offset = 0;
            for size in sizes(round).map(|size| side.whole_u32(size)) {
                holds(&*memory, offset, &pattern(usize::try_from(size).expect("short"), round * 3 + offset));
                offset += u64::from(size);
            }
            let receive = Receive { id: round + 32, into: None };
            connection.post_receives(&[receive]).expect("a receive");
            side.say(b"seen");
        }
    }
    Outcome::Passed
}

/// Sizes of the writes of a round, of every alignment.
fn sizes(round: u64) -> [u32; 3] {
    let round = u32::try_from(round).expect("few rounds");
    [64 + round, 1 + round % 7, 9000 + 61 * round]
}

pub(super) fn long_write<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const AREA: u64 = 6 << 20;
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let bytes = side.whole_u32((5u32 << 20).min(side.fabric.capabilities().message_bytes_max) - 77);
    let (from, to) = (side.odd(13), side.odd(4093));
    let payload = pattern(usize::try_from(bytes).expect("fits"), 5);
    let mut connection = side.connect_receiving(1);
    if side.is_active() {
        let (memory, region) = side.region(AREA, 0, Access::NONE);
        crate::Memory::write(&*memory, from, &payload);
        let remote = side.hear_range();
        let chain = [
            unsignalled(write_of(1, local(&region, from, bytes), remote.at(to))),
            write_immediate_of(2, local(&region, 0, 0), remote.at(0), 5),
        ];
        side.post(&mut connection, &chain);
        side.sent(&connection, 2, Status::Success);
    } else {
        let (memory, region) = side.open_region(AREA, 0x55);
        let (_window, remote) = side.bound(&mut connection, &region, 0..AREA, Access::REMOTE_WRITE);
        side.say_range(remote);
        side.received(&connection, 0, Status::Success);
        untouched(&*memory, 0..to, 0x55);
        holds(&*memory, to, &payload);
        untouched(&*memory, to + u64::from(bytes)..AREA, 0x55);
    }
    side.agree("seen");
    Outcome::Passed
}

pub(super) fn zero_length<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let mut connection = side.connect_receiving(3);
    if side.is_active() {
        let (_memory, region) = side.region(4096, 0x11, Access::LOCAL_WRITE);
        let remote = side.hear_range();
        let send = Operation::Send { source: Source::Inline(&[]), immediate: None };
        let chain = [
            write_of(1, local(&region, 4096, 0), remote.at(0)),
            write_immediate_of(2, local(&region, 0, 0), remote.at(4096), 77),
            read_of(3, local(&region, 0, 0), remote.at(0)),
            Request { id: 4, operation: send, signalled: true },
        ];
        side.post(&mut connection, &chain);
        for id in 1..=4 {
            side.sent(&connection, id, Status::Success);
        }
    } else {
        let (memory, region) = side.open_region(4096, 0x55);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (_window, remote) = side.bound(&mut connection, &region, 0..4096, access);
        side.say_range(remote);
        let notice = side.received(&connection, 0, Status::Success);
        assert_eq!((notice.bytes, notice.immediate), (0, Some(77)));
        let sent = side.received(&connection, 1, Status::Success);
        assert_eq!((sent.opcode, sent.bytes, sent.immediate), (Opcode::Receive, 0, None));
        untouched(&*memory, 0..4096, 0x55);
    }
    side.agree("seen");
    Outcome::Passed
}

pub(super) fn read<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const AREA: u64 = 1 << 20;
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let stored = pattern(1 << 20, 8);
    let mut connection = side.connect();
    if side.is_active() {
        let (memory, region) = side.region(AREA, 0x33, Access::LOCAL_WRITE);
        let remote = side.hear_range();
        let (into, from, len) = (side.odd(11), side.odd(7), side.whole_u32(100));
        side.post(&mut connection, &[read_of(1, local(&region, into, len), remote.at(from))]);
        let completion = side.sent(&connection, 1, Status::Success);
        assert_eq!((completion.opcode, completion.bytes), (Opcode::Read, len));
        let start = usize::try_from(from).expect("short");
        holds(&*memory, into, &stored[start..start + usize::try_from(len).expect("short")]);
        untouched(&*memory, 0..into, 0x33);
        untouched(&*memory, into + u64::from(len)..AREA, 0x33);
        let most = u32::try_from(AREA).expect("fits").min(side.fabric.capabilities().message_bytes_max);
        let chain = [
            unsignalled(read_of(2, local(&region, 0, side.whole_u32(64)), remote.at(0))),
            read_of(3, local(&region, 0, most), remote.at(0)),
        ];
        side.post(&mut connection, &chain);
        side.sent(&connection, 3, Status::Success);
        holds(&*memory, 0, &stored[..usize::try_from(most).expect("fits")]);
        assert_eq!(connection.outstanding().sends, 0);
        side.agree("read");
    } else {
        let (memory, region) = side.open_region(AREA, 0);
        crate::Memory::write(&*memory, 0, &stored);
        let (_window, remote) = side.bound(&mut connection, &region, 0..AREA, Access::REMOTE_READ);
        side.say_range(remote);
        side.agree("read");
        holds(&*memory, 0, &stored);
    }
    Outcome::Passed
}

pub(super) fn read_and_written<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    let (len, area) = (side.whole(64), side.area(4096));
    let mut connection = side.connect();
    if side.is_active() {
        let (memory, region) = side.region(area, 0x77, Access::LOCAL_WRITE);
        let (remote, bytes) = (side.hear_range(), side.whole_u32(64));
        let requests = [
            read_of(1, local(&region, len, bytes), remote.at(0)),
            write_of(2, local(&region, 0, bytes), remote.at(0)),
            read_of(3, local(&region, 2 * len, bytes), remote.at(0)),
        ];
        for (id, request) in (1..).zip(requests) {
            side.post(&mut connection, &[request]);
            side.sent(&connection, id, Status::Success);
        }
        untouched(&*memory, len..2 * len, 0x55);
        untouched(&*memory, 2 * len..area, 0x77);
        side.agree("read");
    } else {
        let (memory, region) = side.open_region(area, 0x55);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (_window, remote) = side.bound(&mut connection, &region, 0..area, access);
        side.say_range(remote);
        side.agree("read");
        untouched(&*memory, 0..len, 0x77);
        untouched(&*memory, len..area, 0x55);
    }
    Outcome::Passed
}

pub(super) fn read_refused<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    if let Some(skipped) = lacking(side, false) {
        return skipped;
    }
    // Past the end; through a window for writing alone.
    let (past, len) = (side.whole(4000), side.whole_u32(100));
    for (access, offset) in [(Access::REMOTE_READ, past), (Access::REMOTE_WRITE, 0)] {
        let mut connection = side.connect();
        if side.is_active() {
            let (memory, region) = side.region(4096, 0x33, Access::LOCAL_WRITE);
            let remote = side.hear_range();
            side.post(&mut connection, &[read_of(1, local(&region, 0, len), remote.at(offset))]);
            side.sent(&connection, 1, Status::RemoteAccess);
            side.in_error(&connection);
            untouched(&*memory, 0..4096, 0x33);
        } else {
            let (_memory, region) = side.open_region(8192, 0);
            let (_window, remote) = side.bound(&mut connection, &region, 0..4096, access);
            side.say_range(remote);
            side.in_error(&connection);
        }
        side.agree("refused");
    }
    Outcome::Passed
}

pub(super) fn both_directions<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    const ROUNDS: u64 = 300;
    const AREA: u64 = 32 * 4096;
    if let Some(skipped) = lacking(side, true) {
        return skipped;
    }
    let len = side.whole_u32(3000);
    let bytes = |round: u64| pattern(usize::try_from(len).expect("short"), round + 1);
    let mut connection = side.connect_receiving(32);
    let (memory, region) = side.open_region(AREA, 0);
    let (_window, own) = side.bound(&mut connection, &region, 0..AREA, Access::REMOTE_WRITE);
    let (source, source_region) = side.region(AREA, 0, Access::NONE);
    side.say_range(own);
    let remote = side.hear_range();
    // Each notice consumes a receive of the other end, which posts it again before it notifies in turn: at most 16 ahead.
    let (mut posted, mut completed, mut noticed) = (0u64, 0u64, 0u64);
    while completed < ROUNDS || noticed < ROUNDS {
        while posted < ROUNDS && posted < noticed + 16 && posted < completed + 16 {
            let at = posted % 32 * 4096;
            let slot = bytes(posted);
            crate::Memory::write(&*source, at, &slot);
            let immediate = u32::try_from(posted).expect("few rounds");
            let chain =
                [write_immediate_of(posted, local(&source_region, at, len), remote.at(at), immediate)];
            side.post(&mut connection, &chain);
            posted += 1;
        }
        let id = connection.id();
        let mut news = Vec::new();
        side.until("a completion of either kind", |stash| {
            news.extend(stash.drain(..));
            !news.is_empty()
        });
        for completion in news {
            assert_eq!((completion.connection, completion.status), (id, Status::Success));
            if completion.opcode.is_receive() {
                assert_eq!(completion.immediate, Some(u32::try_from(noticed).expect("few rounds")));
                holds(&*memory, noticed % 32 * 4096, &bytes(noticed));
                connection.post_receives(&[Receive { id: 0, into: None }]).expect("a receive");
                noticed += 1;
            } else {
                assert_eq!(completion.id, completed);
                completed += 1;
            }
        }
    }
    side.agree("done");
    Outcome::Passed
}

pub(super) fn region_key<F: Fabric>(side: &mut Side<'_, F>) -> Outcome {
    let (len, area) = (side.whole(64), side.area(4096));
    let one = side.whole_u32(64);
    let mut connection = side.connect();
    if side.is_active() {
        let (_memory, region) = side.region(area, 0x44, Access::NONE);
        let remote = side.hear_range();
        side.post(&mut connection, &[write_of(1, local(&region, 0, one), remote.at(len))]);
        side.sent(&connection, 1, Status::Success);
        side.agree("written");
        side.agree("dropped");
        side.post(&mut connection, &[write_of(2, local(&region, 0, one), remote.at(0))]);
        side.sent(&connection, 2, Status::RemoteAccess);
    } else {
        let (memory, region) = side.region(area, 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let (_closed_memory, closed) = side.open_region(4096, 0);
        assert_eq!(closed.remote(), None, "no remote access, no key");
        let remote = region.remote().expect("a region with remote access has a key");
        assert_eq!(remote.bytes, area);
        side.say_range(remote);
        side.agree("written");
        untouched(&*memory, len..2 * len, 0x44);
        drop(region);
        fill(&*memory, 0..area, 0x55);
        side.agree("dropped");
        side.in_error(&connection);
        untouched(&*memory, 0..area, 0x55);
    }
    side.agree("over");
    Outcome::Passed
}
