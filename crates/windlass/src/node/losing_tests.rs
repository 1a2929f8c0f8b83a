use std::collections::VecDeque;
use std::time::Instant;

use windlass_fabric::{ConnectionId, Opcode, Status, Wake};
use windlass_log::{LogId, Lsn, MemberId};

use super::*;
use crate::commit::Level;
use crate::control::{Member, Secret};
use crate::error::ReadError;
use crate::node::{Node, NodeOptions};

#[path = "../../tests/support/addresses.rs"]
mod addresses;

/// How long anything may take before a test fails: a session whose completion is lost ends after six seconds.
const PATIENCE: Duration = Duration::from_secs(120);

fn every(number: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(number)
}

/// A queue in which completions lie ready.
struct Ready(VecDeque<Completion>);

#[derive(Clone)]
struct NoWaker;

impl Wake for NoWaker {
    fn wake(&self) {}
}

impl CompletionQueue for Ready {
    type Waker = NoWaker;

    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        let count = into.len().min(self.0.len());
        for (to, completion) in into.iter_mut().zip(self.0.drain(..count)) {
            *to = completion;
        }
        Ok(count)
    }

    fn wait(&mut self, _timeout: Duration) -> Result<Woken, PollError> {
        Ok(Woken::Ready)
    }

    fn waker(&self) -> NoWaker {
        NoWaker
    }
}

fn completion(id: u64, opcode: Opcode, status: Status) -> Completion {
    Completion { id, connection: ConnectionId::NONE, opcode, status, bytes: 0, immediate: None }
}

/// The ids that are polled in buffers of so many.
fn polled(lose: LoseCompletions, ready: Vec<Completion>, room: usize) -> (Vec<Vec<u64>>, LostCompletions) {
    let losses = Arc::<Losses>::default();
    let (requests, receives) = (Countdown::of(lose.every_request), Countdown::of(lose.every_receive));
    let mut queue =
        LosingQueue { inner: Ready(ready.into()), requests, receives, losses: Arc::clone(&losses) };
    let (mut turns, mut into) = (Vec::new(), vec![Completion::BLANK; room]);
    loop {
        let count = queue.poll(&mut into).unwrap();
        turns.push(into[..count].iter().map(|completion| completion.id).collect());
        if count < room {
            assert!(queue.inner.0.is_empty(), "a buffer that is not full says that nothing is left");
            return (turns, losses.counts());
        }
    }
}

#[test]
fn every_so_manieth_success_of_its_kind_is_lost_and_the_rest_comes_in_order() {
    let mixed = || {
        vec![
            completion(1, Opcode::Write, Status::Success),
            completion(2, Opcode::ReceiveWrite, Status::Success),
            completion(3, Opcode::Bind, Status::Success),
            completion(4, Opcode::Write, Status::Flushed),
            completion(5, Opcode::Receive, Status::Success),
            completion(6, Opcode::Read, Status::Success),
            completion(7, Opcode::Invalidate, Status::Success),
            completion(8, Opcode::Receive, Status::Flushed),
            completion(9, Opcode::ReceiveWrite, Status::Success),
        ]
    };
    let lose = LoseCompletions { every_request: every(2), every_receive: every(3) };
    let lost = LostCompletions { requests: 2, receives: 1 };
    assert_eq!(polled(lose, mixed(), 9), (vec![vec![1, 2, 4, 5, 6, 8]], lost));
    // What is lost leaves no hole in a buffer: one that is not full is the end.
    assert_eq!(polled(lose, mixed(), 2), (vec![vec![1, 2], vec![4, 5], vec![6, 8], vec![]], lost));
    let all = (vec![(1..=9).collect(), vec![]], LostCompletions::default());
    assert_eq!(polled(LoseCompletions::default(), mixed(), 9), all);
    let lose = LoseCompletions { every_request: every(1), every_receive: every(1) };
    let (turns, lost) = polled(lose, mixed(), 3);
    assert_eq!((turns, lost.requests, lost.receives), (vec![vec![4, 8]], 4, 3));
}

/// Three members that lose completions, each of its own, over the `tcp` fabric, and the folder of their logs.
fn group(lose: [LoseCompletions; 3]) -> (Vec<Node>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let members: Vec<Member> =
        (1..=3).map(|id| Member { id: MemberId(id), address: addresses::unused() }).collect();
    let open = |(member, lose): (&Member, LoseCompletions)| {
        let secret = Secret::new(*b"a secret for the tests").unwrap();
        let options = NodeOptions::new(member.id, members.clone(), LogId([9; 16]), secret)
            .segment_bytes(1 << 20)
            .any_filesystem(true)
            .suspicion(Duration::from_secs(1))
            .lose_completions(lose);
        Node::create(&folder.path().join(member.id.to_string()), options).unwrap()
    };
    (members.iter().zip(lose).map(open).collect(), folder)
}

/// The record's end, if it was acknowledged. After an error it may be in the log or not.
fn append(nodes: &[Node], payload: &[u8], deadline: Instant) -> Option<Lsn> {
    let log = nodes.iter().find_map(|node| node.log().ok())?;
    let end = log.append_wait_blocking(payload, deadline).ok()?.end;
    log.commit_until(end, Level::Durable, deadline).ok().map(|_| end)
}

fn read_all(node: &Node) -> Vec<Vec<u8>> {
    let mut reader = node.read_from(node.status().trimmed).unwrap();
    let mut all = Vec::new();
    loop {
        match reader.next() {
            Ok(record) => all.push(record.payload.to_vec()),
            Err(ReadError::AtEnd { .. }) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Completions that never come cost time, sessions and perhaps tenures, and no record that was acknowledged. A backup whose acknowledgement is never
/// known to be written is given up after `suspicion`, and so is one that has lost as many receives as it has slots.
#[test]
fn a_group_whose_members_lose_completions_loses_nothing_and_goes_on() {
    let lose = [(61, 67), (53, 59), (47, 41)].map(|(requests, receives)| LoseCompletions {
        every_request: every(requests),
        every_receive: every(receives),
    });
    let (nodes, _folder) = group(lose);
    let deadline = Instant::now() + PATIENCE;
    let lost = |node: &Node| node.lost_completions();
    let (mut acknowledged, mut number, mut end) = (Vec::new(), 0_u32, Lsn(0));
    let is_enough = |count: usize| {
        let receives = nodes.iter().map(|node| lost(node).receives).sum::<u64>();
        let requests = nodes.iter().map(|node| lost(node).requests).sum::<u64>();
        count >= 150 && receives >= 3 && requests >= 5
    };
    while !is_enough(acknowledged.len()) {
        let payload = number.to_le_bytes().repeat(25);
        number += 1;
        if let Some(at) = append(&nodes, &payload, deadline) {
            acknowledged.push(payload);
            end = at;
        } else {
            assert!(Instant::now() < deadline, "it does not go on after {} records", acknowledged.len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for node in &nodes {
        while node.status().durable < end {
            assert!(Instant::now() < deadline, "{:?} stays behind {end}", node.status());
            std::thread::sleep(Duration::from_millis(1));
        }
        // What was not acknowledged may be among it.
        let all = read_all(node);
        let mut rest = all.iter();
        for payload in &acknowledged {
            assert!(rest.any(|there| there == payload), "{:?} is missing, or out of order", &payload[..4]);
        }
    }
}
