//! Members are added, removed and replaced while the group works; each wrong use is refused with what to do. DESIGN.md section 8.11.

mod support;

use std::time::{Duration, Instant};

use support::{Group, PATIENCE, append_all, read_all};
use windlass::engine::{Change, ChangeError, Configuration, PeerStatus, QuorumError, Quorums, Standing};
use windlass::{Level, MemberId, NodeChangeError, NodeError};

fn payload(number: u64) -> Vec<u8> {
    format!("record {number} {}", "x".repeat(usize::try_from(number % 300).unwrap())).into_bytes()
}

fn voters(configuration: &Configuration) -> Vec<u8> {
    configuration.voters().map(|voter| voter.0).collect()
}

/// Asks the primary for a change, for as long as what stands against it passes.
fn change(group: &Group, change: Change) -> Result<Configuration, NodeChangeError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (primary, _) = group.primary();
        match group.node(primary).change_blocking(change, Some(deadline)) {
            Err(
                NodeChangeError::NotPrimary(_)
                | NodeChangeError::Refused(
                    ChangeError::TenureTooYoung
                    | ChangeError::Pending { .. }
                    | ChangeError::OutOfReach { .. },
                ),
            ) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            answer => return answer,
        }
    }
}

/// Waits until these vote, at each running member that is one of them, and all know that it is committed.
fn wait_voters(group: &Group, expected: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    for node in group.nodes.iter().flatten() {
        loop {
            let members = node.members();
            let is_voter = expected.contains(&node.info().member.0);
            if !is_voter || members.committed && voters(&members.configuration) == expected {
                break;
            }
            assert!(Instant::now() < deadline, "{members:?}\n{:#?}", group.statuses());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_fourth_member_is_added_while_records_are_appended_and_another_one_leaves() {
    let mut group = Group::start(3);
    let (_, log) = group.primary();
    append_all(&log, (0..300).map(payload), Level::Durable);
    let fourth = group.announce();
    // It may run before the group knows of it.
    group.open(fourth);
    assert!(group.node(fourth).members().configuration.is_unknown());
    let made = change(&group, Change::Add { member: MemberId(4), address: None }).unwrap();
    assert_eq!((made.number(), made.learner().map(|entry| entry.id)), (1, Some(MemberId(4))));
    append_all(&log, (300..600).map(payload), Level::Durable);
    wait_voters(&group, &[1, 2, 3, 4]);
    let end = append_all(&log, (600..700).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..700).map(payload).collect();
    assert!(read_all(group.node(fourth)) == expected, "the new one has it all");

    // A primary that leaves hands over.
    let (first, _) = group.primary();
    let id = group.id(first);
    let made = change(&group, Change::Remove { member: id }).unwrap();
    assert!(made.member(id).is_none(), "{made:?}");
    let others: Vec<u8> = (1..=4).filter(|other| *other != id.0).collect();
    wait_voters(&group, &others);
    group.kill(first);
    let (second, log) = group.primary();
    assert_ne!(first, second);
    let end = append_all(&log, (700..800).map(payload), Level::Durable);
    group.wait_durable(end);
    // Two of three are a majority again, and one of them is the new one.
    let victim = (0..3).find(|at| *at != first).unwrap();
    group.kill(victim);
    let (_, log) = group.primary();
    let end = append_all(&log, (800..900).map(payload), Level::Durable);
    group.wait_durable(end);
    let expected: Vec<Vec<u8>> = (0..900).map(payload).collect();
    assert!(read_all(group.node(fourth)) == expected);
}

#[test]
fn a_member_that_lost_its_disk_is_replaced_and_all_restart_with_what_they_had() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..200).map(payload), Level::Durable);
    group.wait_durable(end);
    let lost = (first + 1) % 3;
    group.kill(lost);
    std::fs::remove_dir_all(group.folder_of(lost)).unwrap();
    let new = group.announce();
    let old = group.id(lost);
    change(&group, Change::Replace { old, new: MemberId(4), address: Some(group.joined[0].address) })
        .unwrap();
    let (first, _) = group.primary();
    let learner = *group.node(first).members().configuration.learner().unwrap();
    assert_eq!(learner.standing, Standing::Learner { replaces: Some(old) });
    assert_eq!(learner.address, Some(group.joined[0].address));
    group.open(new);
    let expected: Vec<u8> = (1..=4).filter(|id| *id != old.0).collect();
    wait_voters(&group, &expected);
    let (first, log) = group.primary();
    let end = append_all(&log, (200..300).map(payload), Level::Durable);
    group.wait_durable(end);
    let peers = group.node(first).members().peers;
    assert_eq!(
        peers.get(&MemberId(4)).copied().filter(|_| first != new),
        Some(PeerStatus::Streaming).filter(|_| first != new)
    );
    drop(log);
    // All end and come back: what they begin with is in their folders and their logs, not in their options.
    for at in [0, 1, 2, 3] {
        group.kill(at);
    }
    for at in (0..4).filter(|at| *at != lost) {
        group.open(at);
        assert_eq!(voters(&group.node(at).members().configuration), expected, "member {at}");
    }
    let (_, log) = group.primary();
    let end = append_all(&log, (300..400).map(payload), Level::Durable);
    group.wait_durable(end);
    let all: Vec<Vec<u8>> = (0..400).map(payload).collect();
    for at in (0..4).filter(|at| *at != lost) {
        assert!(read_all(group.node(at)) == all, "member {at}");
    }
}

#[test]
fn each_wrong_use_is_refused_and_says_why() {
    let mut group = Group::start(3);
    let (first, log) = group.primary();
    let end = append_all(&log, (0..10).map(payload), Level::Durable);
    group.wait_durable(end);
    let refused = |asked| match change(&group, asked) {
        Err(NodeChangeError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let add = |member| Change::Add { member: MemberId(member), address: None };
    let used = ChangeError::NumberUsed { member: MemberId(3), highest: MemberId(3) };
    assert_eq!(refused(add(3)), used);
    let unknown = ChangeError::NotAMember { member: MemberId(9), number: 0 };
    assert_eq!(refused(Change::Remove { member: MemberId(9) }), unknown);
    assert_eq!(refused(Change::Replace { old: MemberId(9), new: MemberId(10), address: None }), unknown);
    let quorums = Quorums::Sizes { write: 1, takeover: 2 };
    assert_eq!(
        refused(Change::Quorums { quorums }),
        ChangeError::Quorums(QuorumError::Disjoint { voters: 3, write: 1, takeover: 2 })
    );
    let backup = (first + 1) % 3;
    match group.node(backup).change_blocking(add(4), None) {
        Err(NodeChangeError::NotPrimary(not)) => assert_eq!(not.primary, Some(group.id(first))),
        other => panic!("{other:?}"),
    }
    // One at a time: until the learner votes, or is taken back.
    change(&group, add(4)).unwrap();
    assert_eq!(refused(add(5)), ChangeError::LearnerPending { learner: MemberId(4) });
    let back = change(&group, Change::Remove { member: MemberId(4) }).unwrap();
    assert_eq!((voters(&back), back.highest()), (vec![1, 2, 3], MemberId(4)));
    // With one of three away, two of two is all that could follow.
    let away = (first + 2) % 3;
    group.kill(away);
    let made = change(&group, Change::Remove { member: group.id(away) }).unwrap();
    assert_eq!(made.voters().count(), 2);
    // The other one away, too: nobody leads, and whoever still does refuses it.
    group.kill(backup);
    let (id, asked) =
        (group.id(backup), group.node(first).change_blocking(add(5), Some(Instant::now() + PATIENCE)));
    let told = asked.unwrap_err();
    assert!(
        matches!(
            told,
            NodeChangeError::NotPrimary(_)
                | NodeChangeError::Unknown { number: 4 }
                | NodeChangeError::Refused(ChangeError::OutOfReach { reached: 1, needed: 2 })
        ),
        "{told} ({id})"
    );
    let node = group.nodes[first].take().unwrap();
    drop(node);
}

#[test]
fn a_folder_founded_by_mistake_does_not_join_and_numbers_are_given_once_in_the_options() {
    let mut group = Group::start(3);
    group.primary();
    let fourth = group.announce();
    let mut founders = group.members.clone();
    founders.extend(&group.joined);
    let founded =
        windlass::NodeOptions::new(MemberId(4), founders, windlass::LogId([9; 16]), support::secret())
            .segment_bytes(1 << 20)
            .any_filesystem(true)
            .allow_replicated(true);
    let node = windlass::Node::create(&group.folder_of(fourth), founded).unwrap();
    drop(node);
    let error = group.try_open(fourth).unwrap_err();
    assert!(matches!(error, NodeError::Founded { .. }), "{error}");
    assert!(error.to_string().contains("remove the folder"), "{error}");
    std::fs::remove_dir_all(group.folder_of(fourth)).unwrap();
    let twice = group.options(fourth).joined(group.members.clone());
    assert!(matches!(
        windlass::Node::create(&group.folder_of(fourth), twice),
        Err(NodeError::Members { .. })
    ));
    group.open(fourth);
}
