//! What the passive side does where something is in the middle of something else.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use windlass_fabric::{Access, ConnectionOptions, Fabric, HeapMemory, Local, Memory, Receive};

use super::{Agent, Halt, Stop, run};
use crate::auth::Secret;
use crate::connection::TcpConnection;
use crate::domain::lock;
use crate::frame::{Answer, AnswerHeader, Refusal, RequestHeader, RequestKind};
use crate::link::{AgentEnd, Grant, NextReceive, Placing};
use crate::{Options, TcpCompletionQueue, TcpFabric};

struct Ends {
    fabric: TcpFabric,
    _queue: TcpCompletionQueue,
    connection: TcpConnection,
}

fn ends() -> Ends {
    let options = Options::new(Secret::new(&[1; 32]).unwrap(), [7; 16]);
    let fabric = TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!())).unwrap();
    let queue = fabric.completion_queue(8).unwrap();
    let depths = ConnectionOptions { send_depth: 4, receive_depth: 4, inline_bytes: 0 };
    let connection = fabric.connection(&queue, &depths).unwrap();
    Ends { fabric, _queue: queue, connection }
}

fn sockets() -> (Arc<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mine = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(mine), listener.accept().unwrap().0)
}

/// Half of an acknowledgement and then a refusal would be neither, and the peer would not know why its requests ended.
#[test]
fn a_refusal_follows_the_whole_of_an_acknowledgement_that_was_half_sent() {
    let (mine, mut peer) = sockets();
    let mut agent = Agent::new(mine);
    let done = AnswerHeader { answer: Answer::Done, sequence: 7 }.encode();
    agent.unsent = Some((done, 5));
    let refused = AnswerHeader { answer: Answer::Refused(Refusal::Access), sequence: 8 };
    agent.say(&refused).unwrap();
    drop(agent);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, [&done[5..], &refused.encode()[..]].concat());
}

/// Once a receive is known to be flushed its buffer is its owner's, whatever of the message is still to come.
#[test]
fn no_piece_of_a_message_lands_in_a_receive_that_was_flushed() {
    let mut ends = ends();
    let memory = Arc::new(HeapMemory::new(4096));
    let region = ends.fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, Access::LOCAL_WRITE).unwrap();
    let into = Some(Local { region: &region, offset: 8, bytes: 16 });
    windlass_fabric::Connection::post_receives(&mut ends.connection, &[Receive { id: 1, into }]).unwrap();
    let link = &ends.connection.link;
    let NextReceive::Posted(Some(target)) = link.next_receive(std::time::Duration::ZERO) else {
        panic!("it is posted");
    };
    assert_eq!(link.fill_receive(&target, 0, &[1; 8]), Placing::Done);
    link.flush_receives();
    assert_eq!(link.fill_receive(&target, 8, &[2; 8]), Placing::Flushed);
    let mut bytes = [9; 32];
    memory.read(0, &mut bytes);
    assert_eq!(bytes[8..16], [1; 8]);
    assert_eq!(bytes[16..], [0; 16], "nothing behind the flush");
}

/// A panic of whoever served on the queue owner's thread ends the connection: it neither lives on half served, nor does its thread look after it for ever.
#[test]
fn a_panic_of_the_queues_owner_within_serving_ends_the_connection() {
    let ends = ends();
    let link = &ends.connection.link;
    let (mine, peer) = sockets();
    let address = peer.local_addr().unwrap();
    *lock(&link.serving) = Some(Agent::new(mine));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _serving = link.serving.lock();
        panic!("a bug within serving");
    }));
    assert!(panicked.is_err());
    run(link, address);
    assert_eq!(link.agent_end(), Some(AgentEnd::Gone));
}

/// What was under way when its window was taken back is told for what it is, and not as an error.
#[test]
fn a_write_that_comes_after_its_window_was_taken_back_is_told_as_late_and_any_other_as_refused() {
    let ends = ends();
    let link = &ends.connection.link;
    let memory = Arc::new(HeapMemory::new(4096));
    let region = ends.fabric.register(Arc::clone(&memory) as Arc<dyn Memory>, Access::LOCAL_WRITE).unwrap();
    let grant = |key| Grant {
        key,
        region: Arc::clone(&region.inner),
        start: 0,
        end: 64,
        access: Access::REMOTE_WRITE,
    };
    let write = |key| RequestHeader {
        kind: RequestKind::Write,
        acknowledge: true,
        bytes: 1,
        address: 8,
        key,
        immediate: 0,
        sequence: 1,
    };
    let stopped = |key| {
        let (mine, _peer) = sockets();
        Agent::new(mine).begin(link, write(key))
    };
    let is_late = |key| match stopped(key) {
        Err(Halt::Stop(Stop::Refused { refusal: Refusal::Access, is_late, .. })) => Some(is_late),
        _ => None,
    };
    link.grant(grant(7));
    assert_eq!((is_late(7), is_late(8)), (None, Some(false)));
    link.withdraw(7);
    assert_eq!((is_late(7), is_late(8)), (Some(true), Some(false)));
    // The key may come again, and many others go.
    link.grant(grant(7));
    (1000..1100).for_each(|key| link.withdraw(key));
    assert_eq!((is_late(7), is_late(1099), is_late(1000)), (None, Some(true), Some(false)));
    link.close_grants();
    assert_eq!(is_late(8), Some(true));
}
