//! The cases.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_fabric::conformance::{self, Outcome};
use windlass_fabric::{
    Access, Backing, BindProblem, CompletionQueue, Connection, ConnectionOptions, ConnectionState,
    ErrorCause, Fabric, HeapMemory, InvalidateError, Local, Memory, Opcode, Operation, Receive,
    RegisterError, Remote, Request, Source, Status, Window, Woken,
};
use windlass_verbs::{VerbsFabric, VerbsRegion};

use crate::memory::MappedMemory;
use crate::pair::{End, connect};
use crate::{Case, Ended, modes, open, revoking, waiting};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const OPEN: Access = Access::REMOTE_WRITE;

/// What a case does.
type Play = fn() -> Ended;

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let own: [(&str, Play); 9] = [
        ("kind_58_what_may_be_locked_is_named", kind_58_what_may_be_locked_is_named),
        ("tmpfs_memory_is_written_by_the_device", tmpfs_memory_is_written_by_the_device),
        ("kind_61_a_mapped_file_is_a_source_and_no_target", kind_61_a_mapped_file_is_a_source_and_no_target),
        (
            "a_window_outlives_its_connection_and_binds_again",
            a_window_outlives_its_connection_and_binds_again,
        ),
        ("a_region_ends_under_a_bound_window", a_region_ends_under_a_bound_window),
        ("an_invalidation_is_posted_once", an_invalidation_is_posted_once),
        ("kind_66_keys_of_one_window_never_repeat", kind_66_keys_of_one_window_never_repeat),
        ("parts_are_dropped_in_any_order", parts_are_dropped_in_any_order),
        ("room_of_destroyed_connections_comes_back", room_of_destroyed_connections_comes_back),
    ];
    let revoking: [(&str, Play); 4] = [
        (
            "kind_66_a_flushed_invalidation_frees_the_window",
            revoking::kind_66_a_flushed_invalidation_frees_the_window,
        ),
        (
            "a_window_of_a_connection_in_error_is_closed_by_dropping_it",
            revoking::a_window_of_a_connection_in_error_is_closed_by_dropping_it,
        ),
        (
            "kind_66_a_used_up_window_is_replaced_by_one_with_other_keys",
            revoking::kind_66_a_used_up_window_is_replaced_by_one_with_other_keys,
        ),
        (
            "kind_65_without_windows_the_connection_and_the_region_are_ended",
            revoking::kind_65_without_windows_the_connection_and_the_region_are_ended,
        ),
    ];
    let modes: [(&str, Play); 5] = [
        (
            "kind_61_the_mode_is_chosen_by_trial_in_the_folder",
            modes::kind_61_the_mode_is_chosen_by_trial_in_the_folder,
        ),
        ("kind_69_two_ends_come_to_the_same_path_mtu", modes::kind_69_two_ends_come_to_the_same_path_mtu),
        (
            "kind_69_whole_pages_need_a_path_that_carries_a_page",
            modes::kind_69_whole_pages_need_a_path_that_carries_a_page,
        ),
        (
            "kind_62_a_file_of_a_disk_is_never_pinned_for_writing",
            modes::kind_62_a_file_of_a_disk_is_never_pinned_for_writing,
        ),
        (
            "a_configured_mode_that_misplaces_bytes_is_refused",
            modes::a_configured_mode_that_misplaces_bytes_is_refused,
        ),
    ];
    let own = own.into_iter().chain(revoking).chain(modes);
    let suite = conformance::Case::ALL
        .iter()
        .map(|case| Case { name: format!("conformance_{}", case.name()), run: Box::new(|| conform(*case)) });
    let own = own.map(|(name, run)| Case { name: name.into(), run: Box::new(run) });
    own.chain(suite).chain(modes::suites()).chain(waiting::cases()).collect()
}

/// One case of the suite that every provider passes.
fn conform(case: conformance::Case) -> Ended {
    let (active, passive) = (open().expect("a device"), open().expect("a device"));
    match conformance::run_pair(case, active, passive) {
        Outcome::Passed => Ended::Passed,
        Outcome::Skipped(why) => Ended::Skipped(why.into()),
    }
}

pub(crate) fn region(
    fabric: &VerbsFabric,
    memory: &Arc<impl Memory + 'static>,
    access: Access,
) -> VerbsRegion {
    fabric.register(Arc::clone(memory) as Arc<dyn Memory>, access).expect("a region")
}

pub(crate) fn target(fabric: &VerbsFabric) -> (Arc<HeapMemory>, VerbsRegion) {
    let memory = Arc::new(HeapMemory::new(4 * PAGE));
    let region = region(fabric, &memory, Access::LOCAL_WRITE | Access::WINDOW_BIND);
    (memory, region)
}

pub(crate) fn write<'a>(id: u64, bytes: &'a [u8], to: Remote) -> Request<'a, VerbsRegion> {
    Request { id, operation: Operation::Write { source: Source::Inline(bytes), to }, signalled: true }
}

pub(crate) fn bytes_of(memory: &dyn Memory, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes);
    bytes
}

/// The core of the provider on memory of a tmpfs file: bind, a write at an odd offset across a page, a write with immediate, a
/// refused write after the invalidation.
fn tmpfs_memory_is_written_by_the_device() -> Ended {
    let (mut active, mut passive) = (End::new(), End::new());
    let memory = Arc::new(MappedMemory::new(Path::new("/dev/shm"), 4 * PAGE, Backing::Anonymous));
    let opened = region(&passive.fabric, &memory, Access::LOCAL_WRITE | Access::WINDOW_BIND);
    let source = Arc::new(HeapMemory::new(2 * PAGE));
    let payload: Vec<u8> = (0..5000_u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    source.write(100, &payload);
    let from = region(&active.fabric, &source, Access::NONE);
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    owner.post_receives(&[Receive { id: 7, into: None }]).expect("a receive");
    connect(&mut writer, &mut owner);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let range = owner.bind(1, &mut window, &opened, PAGE..4 * PAGE, OPEN).expect("a bind");
    assert_eq!(passive.done(1, Status::Success).opcode, Opcode::Bind);
    let local = Local { region: &from, offset: 100, bytes: 5000 };
    let bulk = Operation::Write { source: Source::Region(local), to: range.at(33) };
    let notice = Operation::WriteImmediate {
        source: Source::Inline(b"notice"),
        to: range.at(0),
        immediate: 0xdead_beef,
    };
    let chain = [
        Request { id: 2, operation: bulk, signalled: false },
        Request { id: 3, operation: notice, signalled: true },
    ];
    writer.post(&chain).expect("to post");
    active.done(3, Status::Success);
    assert_eq!(writer.outstanding().sends, 0, "the unsignalled slot came back");
    let received = passive.done(7, Status::Success);
    assert_eq!((received.opcode, received.immediate), (Opcode::ReceiveWrite, Some(0xdead_beef)));
    assert_eq!(bytes_of(&*memory, PAGE + 33, 5000), payload);
    assert_eq!(bytes_of(&*memory, PAGE, 6), b"notice");
    assert_eq!(bytes_of(&*memory, 0, 4096), [0; 4096], "below the window nothing changed");
    owner.invalidate(4, &mut window).expect("an invalidation");
    passive.done(4, Status::Success);
    writer.post(&[write(5, b"too late", range.at(0))]).expect("to post");
    active.done(5, Status::RemoteAccess);
    assert_eq!(writer.state(), ConnectionState::Error(ErrorCause::RequestFailed));
    assert_eq!(bytes_of(&*memory, PAGE, 6), b"notice");
    Ended::Passed
}

/// Pinned memory beyond the limit is refused with what is needed, what is allowed and the setting; on demand needs none of it.
fn kind_58_what_may_be_locked_is_named() -> Ended {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    const LIMIT: u64 = 1 << 20;
    let fabric = open().expect("a device");
    let on_demand = modes::open(windlass_verbs::Registration::OdpPage);
    let folder = std::env::var_os("WINDLASS_DISK_FOLDER").unwrap_or("/dev/shm".into());
    let file = Arc::new(MappedMemory::new(Path::new(&folder), 4 * LIMIT, Backing::MappedFile));
    let before = getrlimit(Resource::Memlock);
    // This thread's alone, which ends with the case.
    let mut sets = capabilities(None).expect("capabilities");
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).expect("to give one up");
    setrlimit(Resource::Memlock, Rlimit { current: Some(LIMIT), maximum: before.maximum }).expect("a limit");
    let long: Arc<dyn Memory> = Arc::new(HeapMemory::new(4 * LIMIT));
    let refused = fabric.register(long, Access::LOCAL_WRITE).map(drop);
    let short = fabric.register(Arc::new(HeapMemory::new(LIMIT / 2)), Access::LOCAL_WRITE).map(drop);
    let mapped = on_demand.register(file, Access::LOCAL_WRITE).map(drop);
    setrlimit(Resource::Memlock, before).expect("the limit as it was");
    let Err(RegisterError::MemoryLockLimit { bytes, limit_bytes }) = &refused else { panic!("{refused:?}") };
    assert!(*bytes >= 4 * LIMIT && *limit_bytes == LIMIT, "{refused:?}");
    let text = refused.expect_err("just looked at").to_string();
    assert!(text.contains("ulimit -l") && text.contains(&LIMIT.to_string()), "{text}");
    println!("   {text}");
    short.expect("what fits is registered");
    mapped.expect("on demand nothing is locked");
    Ended::Passed
}

/// A file of a disk can be pinned for reading only; the folder is given by the guest.
fn kind_61_a_mapped_file_is_a_source_and_no_target() -> Ended {
    let Some(folder) = std::env::var_os("WINDLASS_DISK_FOLDER") else {
        return Ended::Skipped("WINDLASS_DISK_FOLDER names no folder on a disk".into());
    };
    let (mut active, mut passive) = (End::new(), End::new());
    let file = Arc::new(MappedMemory::new(Path::new(&folder), PAGE, Backing::MappedFile));
    file.write(50, b"straight from the segment");
    let refused = active.fabric.register(Arc::clone(&file) as Arc<dyn Memory>, Access::LOCAL_WRITE);
    assert!(matches!(refused, Err(RegisterError::StagedImageWanted)), "a mapped file became a target");
    let from = region(&active.fabric, &file, Access::NONE);
    let (memory, opened) = target(&passive.fabric);
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let range = owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    passive.done(1, Status::Success);
    let source = Source::Region(Local { region: &from, offset: 50, bytes: 25 });
    writer
        .post(&[Request { id: 2, operation: Operation::Write { source, to: range.at(8) }, signalled: true }])
        .expect("to post");
    active.done(2, Status::Success);
    assert_eq!(bytes_of(&*memory, 8, 25), b"straight from the segment");
    Ended::Passed
}

/// A connection with a bound window is destroyed without waiting for the window; the window then binds elsewhere.
fn a_window_outlives_its_connection_and_binds_again() -> Ended {
    let (mut active, mut passive) = (End::new(), End::new());
    let (memory, opened) = target(&passive.fabric);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let first = owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    passive.done(1, Status::Success);
    let begun = Instant::now();
    owner.destroy();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "destroying waited {:?} for the window",
        begun.elapsed()
    );
    assert!(!window.is_bound());
    writer.destroy();
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let second = owner.bind(2, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    passive.done(2, Status::Success);
    assert_ne!(first.key, second.key);
    writer.post(&[write(3, b"again", second.at(16))]).expect("to post");
    active.done(3, Status::Success);
    assert_eq!(bytes_of(&*memory, 16, 5), b"again");
    writer.post(&[write(4, b"never", first.at(16))]).expect("to post");
    active.done(4, Status::RemoteAccess);
    assert_eq!(bytes_of(&*memory, 16, 5), b"again");
    Ended::Passed
}

/// Dropping a region under a bound window ends the registration all the same: no write lands after.
fn a_region_ends_under_a_bound_window() -> Ended {
    let (mut active, mut passive) = (End::new(), End::new());
    let (memory, opened) = target(&passive.fabric);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let range = owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    passive.done(1, Status::Success);
    drop(opened);
    assert_eq!(windlass_verbs::leaked_regions(), 0, "the device did not end the registration");
    writer.post(&[write(2, b"never", range.at(0))]).expect("to post");
    active.done(2, Status::RemoteAccess);
    assert_eq!(bytes_of(&*memory, 0, 5), [0; 5]);
    Ended::Passed
}

/// Twice would be a fault in a driver's kernel code.
fn an_invalidation_is_posted_once() -> Ended {
    let (active, mut passive) = (End::new(), End::new());
    let (_memory, opened) = target(&passive.fabric);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    assert!(matches!(owner.invalidate(9, &mut window), Err(InvalidateError::NotBound)));
    owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
    let again = owner.bind(2, &mut window, &opened, 0..PAGE, OPEN).expect_err("bound twice");
    assert!(matches!(again.problem, BindProblem::StillBound));
    owner.invalidate(3, &mut window).expect("an invalidation");
    assert!(matches!(owner.invalidate(4, &mut window), Err(InvalidateError::NotBound)));
    // Bound again at once, without having seen the completions.
    owner.bind(5, &mut window, &opened, PAGE..2 * PAGE, OPEN).expect("a bind");
    for id in [1, 3, 5] {
        passive.done(id, Status::Success);
    }
    assert_eq!(owner.state(), ConnectionState::Ready);
    Ended::Passed
}

fn kind_66_keys_of_one_window_never_repeat() -> Ended {
    let (active, mut passive) = (End::new(), End::new());
    let (_memory, opened) = target(&passive.fabric);
    let mut window = passive.fabric.allocate_window().expect("a window");
    let (mut writer, mut owner) = (active.connection(), passive.connection());
    connect(&mut writer, &mut owner);
    let mut keys = std::collections::HashSet::new();
    let mut id = 0;
    while window.binds_left() > 0 {
        let range = owner.bind(id, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
        assert!(keys.insert(range.key), "a key came back");
        owner.invalidate(id + 1, &mut window).expect("an invalidation");
        passive.done(id, Status::Success);
        passive.done(id + 1, Status::Success);
        id += 2;
    }
    assert_eq!(keys.len(), 255);
    let refused = owner.bind(id, &mut window, &opened, 0..PAGE, OPEN).expect_err("keys were used up");
    assert!(matches!(refused.problem, BindProblem::KeysExhausted));
    Ended::Passed
}

/// Whatever is dropped first, nothing is freed under what needs it, and dropping is quick.
fn parts_are_dropped_in_any_order() -> Ended {
    for order in 0..6 {
        let (active, passive) = (End::new(), End::new());
        let (_memory, opened) = target(&passive.fabric);
        let mut window = passive.fabric.allocate_window().expect("a window");
        let (mut writer, mut owner) = (active.connection(), passive.connection());
        connect(&mut writer, &mut owner);
        owner.bind(1, &mut window, &opened, 0..PAGE, OPEN).expect("a bind");
        let begun = Instant::now();
        let mut parts: Vec<Box<dyn FnOnce()>> = vec![
            Box::new(move || drop(passive.fabric)),
            Box::new(move || drop(passive.queue)),
            Box::new(move || drop(opened)),
            Box::new(move || drop(window)),
            Box::new(move || drop(owner)),
            Box::new(move || drop(writer)),
        ];
        parts.rotate_left(order);
        parts.into_iter().for_each(|part| part());
        assert!(begun.elapsed() < Duration::from_secs(10), "order {order} took {:?}", begun.elapsed());
    }
    assert_eq!(windlass_verbs::leaked_regions(), 0);
    Ended::Passed
}

/// Completions of destroyed connections neither appear nor use up the queue.
fn room_of_destroyed_connections_comes_back() -> Ended {
    let (active, mut passive) = (End::new(), End::new());
    let options = ConnectionOptions { send_depth: 100, receive_depth: 100, inline_bytes: 0 };
    for round in 0..5 {
        let mut owner = passive.fabric.connection(&passive.queue, &options).expect("room for a connection");
        let receives: Vec<_> = (0..100).map(|id| Receive { id, into: None }).collect();
        owner.post_receives(&receives).expect("receives");
        let mut writer = active.connection();
        connect(&mut writer, &mut owner);
        owner.close();
        owner.destroy();
        let mut polled = [windlass_fabric::Completion::BLANK; 16];
        assert_eq!(
            passive.queue.poll(&mut polled).expect("to poll"),
            0,
            "round {round}: of a destroyed connection"
        );
        assert_eq!(passive.queue.wait(Duration::from_millis(1)).expect("to wait"), Woken::Timeout);
    }
    Ended::Passed
}
