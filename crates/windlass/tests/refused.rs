//! Peers and folders that must stay out, and that harm nobody.

mod support;

use std::io::Write as _;
use std::time::{Duration, Instant};

use support::{Group, PATIENCE, append_all, read_all, wait_event};
use windlass::control::{Exclusion, Secret};
use windlass::engine::{Event, Refusal, Role};
use windlass::{Level, LogId, Lsn, Node, NodeError, NodeEvent, NodeOptions};

fn payload(number: u64) -> Vec<u8> {
    format!("record {number}").into_bytes()
}

/// A stranger takes the place of the third member, and must stay out while the two others go on.
fn stays_out(change: impl Fn(NodeOptions, &Group) -> NodeOptions) {
    let mut group = Group::start(3);
    let (_, log) = group.primary();
    append_all(&log, (0..100).map(payload), Level::Durable);
    group.kill(2);
    let (_, log) = group.primary();
    let end = append_all(&log, (100..110).map(payload), Level::Durable);
    let epoch = log.info().epoch;
    let folder = group.folder.path().join("stranger");
    let stranger = Node::create(&folder, change(group.options(2), &group)).unwrap();
    std::thread::sleep(Duration::from_millis(900));
    let end = append_all(&log, (100..200).map(payload), Level::Durable).max(end);
    assert_eq!(log.info().epoch, epoch, "nobody was disturbed");
    assert_eq!(stranger.status().durable, Lsn(4096), "it has learned nothing");
    assert_eq!(stranger.status().primary, None);
    assert_ne!(stranger.status().role, Role::Primary);
    group.wait_durable(end);
}

#[test]
fn a_member_with_a_wrong_secret_stays_out() {
    stays_out(|_, group| {
        let secret = Secret::new(*b"not the group's secret").unwrap();
        NodeOptions::new(group.members[2].id, group.members.clone(), LogId([9; 16]), secret)
            .segment_bytes(1 << 20)
            .backup_retention_bytes(8 << 20)
            .logger(support::logger())
            .any_filesystem(true)
    });
}

#[test]
fn a_member_with_other_options_stays_out_and_a_folder_keeps_its_segment_size() {
    let options = |group: &Group| {
        NodeOptions::new(group.members[2].id, group.members.clone(), LogId([9; 16]), support::secret())
            .backup_retention_bytes(8 << 20)
            .logger(support::logger())
            .any_filesystem(true)
    };
    stays_out(move |_, group| options(group).segment_bytes(2 << 20).allow_replicated(true));
    stays_out(move |_, group| options(group).segment_bytes(1 << 20).allow_replicated(false));
    let mut group = Group::start(3);
    let _primary = group.primary();
    group.kill(0);
    let other = group.options(0).segment_bytes(2 << 20);
    let error = Node::open_or_create(&group.folder_of(0), other).unwrap_err();
    let found = matches!(error, NodeError::SegmentBytes { expected: 2_097_152, found: 1_048_576, .. });
    assert!(found, "{error}");
}

#[test]
fn a_member_of_another_log_stays_out() {
    stays_out(|_, group| {
        NodeOptions::new(group.members[2].id, group.members.clone(), LogId([8; 16]), support::secret())
            .segment_bytes(1 << 20)
            .backup_retention_bytes(8 << 20)
            .logger(support::logger())
            .any_filesystem(true)
    });
}

#[test]
fn garbage_at_the_control_port_harms_nobody() {
    let group = Group::start(3);
    let (_, log) = group.primary();
    let epoch = log.info().epoch;
    for round in 0u8..20 {
        for member in &group.members {
            let mut stream = std::net::TcpStream::connect(member.address).unwrap();
            let _ = stream.write_all(&vec![round.wrapping_mul(37); 10_000]);
        }
        append_all(&log, (0..10).map(payload), Level::Durable);
    }
    assert_eq!(log.info().epoch, epoch);
}

#[test]
fn kind_55_a_member_back_with_an_empty_disk_under_its_old_name_is_refused() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let third = (first + 1) % 3;
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    group.wait_durable(end);
    group.kill(third);
    std::fs::remove_dir_all(group.folder_of(third)).unwrap();
    let mut events = group.node(first).events();
    group.open(third);
    let refused = wait_event(&mut events, |event| {
        let NodeEvent::Group(Event::Refused { peer, reason }) = event else { return None };
        matches!(reason, Refusal::OtherIncarnation { .. }).then_some(peer)
    });
    assert_eq!(refused, Some(group.members[third].id), "{:#?}", group.statuses());
    append_all(&log, (100..200).map(payload), Level::Durable);
    assert_eq!(group.node(third).status().durable, Lsn(4096));
    // It knows itself by whom it is kept out, and why.
    let (known, found) = wait_kept_out_by_both(&group, third);
    assert_eq!(found, group.node(third).info().identity.incarnation);
    assert_ne!(known, found);
    // As the same one again, which its peers have told of already, it is told again.
    group.kill(third);
    group.open(third);
    assert_eq!(wait_kept_out_by_both(&group, third), (known, found));
    assert!(group.node(first).exclusions().is_empty());
}

/// Waits until both others keep this member out for its disk: the incarnations that they and it have.
fn wait_kept_out_by_both(group: &Group, at: usize) -> (u64, u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match group.node(at).exclusions()[..] {
            [(one, by_one @ Exclusion::OtherDisk { known, found }), (other, by_other)] => {
                assert_eq!(by_one, by_other);
                assert!(one != other && ![one, other].contains(&group.members[at].id));
                return (known, found);
            }
            ref some => assert!(Instant::now() < deadline, "kept out by {some:?}: {:#?}", group.statuses()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn kind_55_a_new_group_begins_with_all_of_its_members() {
    let mut group = Group::prepare(3, |options| options.allow_replicated(false));
    group.open(0);
    group.open(1);
    let mut events = group.node(0).events();
    let mut others = group.node(1).events();
    let deadline = Instant::now() + PATIENCE;
    // One of the two may be back with an empty disk, for all that they know.
    loop {
        let undecided = |event| matches!(event, NodeEvent::Group(Event::Undecided { .. }));
        let mut told =
            std::iter::from_fn(|| events.try_next()).chain(std::iter::from_fn(|| others.try_next()));
        if told.any(undecided) {
            break;
        }
        assert!(Instant::now() < deadline, "nobody tries: {:#?}", group.statuses());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(group.nodes.iter().flatten().all(|node| node.log().is_err()), "two of three must not begin");
    group.open(2);
    let (_, log) = group.primary();
    append_all(&log, (0..10).map(payload), Level::Durable);
    // From then on two are enough.
    group.kill(2);
    let (_, log) = group.primary();
    append_all(&log, (10..20).map(payload), Level::Durable);
}

#[test]
fn a_copied_folder_is_found_out_before_it_votes() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let third = (first + 1) % 3;
    let end = append_all(&log, (0..100).map(payload), Level::Durable);
    group.wait_durable(end);
    group.nodes[third].take().unwrap().close().unwrap();
    let original = group.folder_of(third);
    let copy = group.folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&original).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let refused = Node::open(&copy, group.options(third));
    assert!(
        matches!(refused, Err(NodeError::Open(windlass::store::OpenError::Copied { .. }))),
        "{refused:?}"
    );
    group.open(third);
    let end = append_all(&log, (100..200).map(payload), Level::Durable);
    group.wait_durable(end);
    assert_eq!(read_all(group.node(third)).len(), 200);
}

#[test]
fn folders_that_are_not_this_members_are_refused() {
    let mut group = Group::prepare(3, |options| options);
    group.open(0);
    group.kill(0);
    let other = Node::open(&group.folder_of(0), group.options(1));
    assert!(matches!(other, Err(NodeError::OtherMember { .. })), "{other:?}");
    let lone = group.folder.path().join("lone");
    windlass::Options::new()
        .segment_bytes(1 << 20)
        .any_filesystem(true)
        .create(&lone)
        .unwrap()
        .close()
        .unwrap();
    let options = group.options(1);
    let refused = Node::open(&lone, options);
    assert!(
        matches!(refused, Err(NodeError::Open(windlass::store::OpenError::ForeignLog { .. }))),
        "{refused:?}"
    );
    group.open(0);
    let second = group.try_open(0);
    assert!(matches!(second, Err(NodeError::Open(windlass::store::OpenError::InUse { .. }))), "{second:?}");
    let nowhere = Node::open(&group.folder.path().join("nowhere"), group.options(2));
    assert!(nowhere.is_err());
}

/// A file that names one member alone would let that one lead without the others, and lose what they have acknowledged.
#[test]
fn a_member_started_with_other_members_than_its_group_was_made_with_is_refused() {
    let mut group = Group::start(3);
    let (_, log) = group.primary();
    append_all(&log, (0..20).map(payload), Level::Durable);
    drop(log);
    group.kill(2);
    let (members, folder) = (group.members.clone(), group.folder_of(2));
    let more = [&members[..], &support::members(4)[3..]].concat();
    for others in [&members[2..], &members[1..], &more[..]] {
        let options = NodeOptions::new(members[2].id, others.to_vec(), LogId([9; 16]), support::secret())
            .segment_bytes(1 << 20)
            .backup_retention_bytes(8 << 20)
            .allow_replicated(true)
            .any_filesystem(true);
        let refused = Node::open_or_create(&folder, options);
        assert!(matches!(refused, Err(NodeError::OtherGroup { .. })), "{refused:?}");
    }
    group.open(2);
    let (_, log) = group.primary();
    let end = append_all(&log, (20..40).map(payload), Level::Durable);
    group.wait_durable(end);
}
