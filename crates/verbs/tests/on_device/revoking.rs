//! Taking permission back where the usual way is closed: a queue pair in error, keys used up, no windows at all.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use windlass_fabric::{
    Access, AllocateError, BindProblem, Connection, ConnectionState, Fabric, HeapMemory, Local, Memory,
    Operation, Region, Request, Source, Status, Window,
};
use windlass_verbs::{VerbsOptions, leaked_regions};

use crate::Ended;
use crate::cases::{OPEN, PAGE, bytes_of, region, target, write};
use crate::pair::{End, connect};

/// The owner's queue pair is in error already, and it does not know: its invalidation is flushed, which proves nothing. The window is
/// then freed, not bound again, and whatever comes next starts with other keys; the region can be ended.
pub(crate) fn kind_66_a_flushed_invalidation_frees_the_window() -> Ended {
    let (mut active, mut passive) = (End::new(), End::new());
    let (memory, opened) = target(&passive.fabric);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let first = owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    passive.done(1, Status::Success);
    let mut wrong = first.at(0);
    wrong.key.0 ^= 0xff00;
    writer.post(&[write(2, b"refused", wrong)]).expect("to post");
    active.done(2, Status::RemoteAccess);
    // Both ends are in error; the owner has not polled and posts.
    owner.invalidate(3, &mut window).expect("the owner does not know yet");
    passive.done(3, Status::Flushed);
    assert!(matches!(owner.state(), ConnectionState::Error(_)));
    assert!(!window.is_bound());

    let (mut writer, mut second_owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut second_owner);
    let left = window.binds_left();
    let second = second_owner.bind(4, &mut window, &opened, 0..PAGE, OPEN).expect("the window is made anew");
    passive.done(4, Status::Success);
    assert!(window.binds_left() >= left, "a new window has all of its keys");
    assert_ne!(first.key, second.key);
    writer.post(&[write(5, b"good", second.at(8)), write(6, b"dead", first.at(0))]).expect("to post");
    active.done(5, Status::Success);
    active.done(6, Status::RemoteAccess);
    assert_eq!(bytes_of(&*memory, 0, 12), b"\0\0\0\0\0\0\0\0good");
    let begun = Instant::now();
    drop(opened);
    owner.destroy();
    second_owner.destroy();
    assert!(begun.elapsed() < Duration::from_secs(5), "ending took {:?}", begun.elapsed());
    assert_eq!(leaked_regions(), 0);
    Ended::Passed
}

/// The connection knows that it is in error: nothing can be posted on it. Dropping the window closes it all the same.
pub(crate) fn a_window_of_a_connection_in_error_is_closed_by_dropping_it() -> Ended {
    let (active, mut passive) = (End::new(), End::new());
    let (_memory, opened) = target(&passive.fabric);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    passive.done(1, Status::Success);
    owner.close();
    owner.invalidate(2, &mut window).expect_err("nothing is posted in error");
    assert!(window.is_bound(), "nothing was invalidated");
    drop(window);
    drop(opened);
    assert_eq!(leaked_regions(), 0, "the device still held the registration");
    let begun = Instant::now();
    owner.destroy();
    assert!(begun.elapsed() < Duration::from_secs(5), "destroying took {:?}", begun.elapsed());
    Ended::Passed
}

/// The 256th bind would repeat a key: it is refused, and the window that takes its place has keys of its own.
pub(crate) fn kind_66_a_used_up_window_is_replaced_by_one_with_other_keys() -> Ended {
    let (active, mut passive) = (End::new(), End::new());
    let (_memory, opened) = target(&passive.fabric);
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let mut keys = HashSet::new();
    for round in 0..2 {
        let mut window = passive.fabric.allocate_window().expect("a window");
        assert_eq!(window.binds_left(), 255);
        while window.binds_left() > 0 {
            let range = owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
            assert!(keys.insert(range.key), "round {round}: {:?} came twice", range.key);
            owner.invalidate(2, &mut window).expect("an invalidation");
            passive.done(1, Status::Success);
            passive.done(2, Status::Success);
        }
        let refused = owner.bind(3, &mut window, &opened, 0..PAGE, OPEN).expect_err("no key is left");
        assert!(matches!(refused.problem, BindProblem::KeysExhausted), "{refused}");
    }
    assert_eq!(keys.len(), 510);
    Ended::Passed
}

/// A device without type-2 windows: what a peer is given is the region's own key, and taking it back is the end of the connection and of
/// the registration. Writes are under way meanwhile.
pub(crate) fn kind_65_without_windows_the_connection_and_the_region_are_ended() -> Ended {
    let options = VerbsOptions { no_windows: true, ..VerbsOptions::default() };
    let (mut active, passive) = (End::with(&options), End::with(&options));
    assert!(!passive.fabric.capabilities().windows);
    assert!(matches!(passive.fabric.allocate_window(), Err(AllocateError::NotSupported)));
    let memory = std::sync::Arc::new(HeapMemory::new(16 * PAGE));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let source = std::sync::Arc::new(HeapMemory::new(16 * PAGE));
    source.write(0, &[0x77; 4096]);
    let from = region(&active.fabric, &source, Access::NONE);
    let mut dead = None;
    for round in 0..5 {
        let opened = region(&passive.fabric, &memory, access);
        let range = opened.remote().expect("its own key");
        let (mut writer, owner) = {
            let (mut writer, mut owner) = (active.connection(), passive.connection());
            connect(&mut writer, &mut owner);
            (writer, owner)
        };
        let local = Local { region: &from, offset: 0, bytes: 4096 };
        let whole = |id, to| Request {
            id,
            operation: Operation::Write { source: Source::Region(local), to },
            signalled: true,
        };
        writer.post(&[whole(1, range.at(0))]).expect("to post");
        active.done(1, Status::Success);
        assert_eq!(bytes_of(&*memory, 0, 4096), [0x77; 4096]);
        let burst: Vec<_> = (0..8).map(|at| whole(2, range.at(at * PAGE))).collect();
        writer.post(&burst).expect("to post");
        // Revoked with writes under way.
        owner.destroy();
        drop(opened);
        memory.write(0, &vec![0x99; 16 * 4096]);
        for _ in 0..burst.len() {
            active.next();
        }
        assert!(
            bytes_of(&*memory, 0, 16 * 4096).iter().all(|byte| *byte == 0x99),
            "round {round}: a write landed behind the revocation"
        );
        writer.destroy();
        dead = Some(range);
    }
    // A new connection does not bring an old key back.
    let dead = dead.expect("five rounds");
    let opened = region(&passive.fabric, &memory, access);
    assert_ne!(opened.remote().expect("its own key").key, dead.key);
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    writer.post(&[write(9, b"never", dead.at(0))]).expect("to post");
    active.done(9, Status::RemoteAccess);
    assert_eq!(bytes_of(&*memory, 0, 5), [0x99; 5]);
    Ended::Passed
}
