//! Ends of connections, keys, queues, and how a connection ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use windlass_fabric::{
    Access, Completion, ConnectionId, ConnectionOptions, ConnectionState, ErrorCause, Memory, Opcode,
    RemoteRange, Status,
};

use super::transit::{Due, Landing};
use super::{Counts, Device, FabricFaults, Holds, MS, US};
use crate::coverage::Mark;
use crate::oracle::{Checked, Violation, revoked};
use crate::random::Random;

/// Keeps what did not hold, if it is the first such thing.
pub(super) fn keep(first: &mut Option<Violation>, checked: Checked) {
    if let Err(violation) = checked {
        first.get_or_insert(violation);
    }
}

pub(super) struct State {
    /// Time passes with each poll, and ends find out at once.
    pub(super) is_automatic: bool,
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) faults: FabricFaults,
    pub(super) next: u64,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) keys: BTreeMap<u32, Key>,
    /// Counts 24 bits round.
    pub(super) next_key: u32,
    /// How many binds a new window has behind it.
    pub(super) binds_before: u32,
    /// Keys that were taken back.
    pub(super) closed_keys: BTreeSet<u32>,
    #[cfg(planted)]
    pub(super) dropped_windows: Vec<u32>,
    pub(super) queues: BTreeMap<u64, Queue>,
    pub(super) due: BinaryHeap<Reverse<Due>>,
    pub(super) order: u64,
    pub(super) landings: BTreeMap<u64, Landing>,
    pub(super) cut: BTreeSet<(u8, u8)>,
    pub(super) slowness: BTreeMap<u8, u64>,
    pub(super) promised: BTreeMap<u8, u64>,
    /// What each member's log is worth.
    pub(super) holds: BTreeMap<u8, Holds>,
    pub(super) touched: BTreeSet<u8>,
    /// The first thing that did not hold.
    pub(super) violation: Option<Violation>,
    pub(super) counts: Counts,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) member: u8,
    pub(super) capacity: u32,
    pub(super) used: u32,
    pub(super) is_woken: bool,
    /// Its connections, and whether one of them has something to tell.
    pub(super) links: Vec<u64>,
    pub(super) is_ready: bool,
}

/// One end of a connection.
pub(super) struct Link {
    pub(super) queue: u64,
    pub(super) fabric: u64,
    pub(super) member: u8,
    pub(super) device: Device,
    /// Writes with immediate are notices, which must not be overwritten before they were read.
    pub(super) takes_notices: bool,
    /// Where those are that have arrived and whose completion was not polled.
    pub(super) unread: VecDeque<u64>,
    pub(super) peer: Option<u64>,
    pub(super) state: ConnectionState,
    /// As far as polling has found out.
    pub(super) seen: ConnectionState,
    pub(super) options: ConnectionOptions,
    pub(super) sends: VecDeque<Posted>,
    /// The first of `sends` is on its way.
    pub(super) is_under_way: bool,
    /// When the transport gives up the first of `sends`.
    pub(super) gives_up_at: Option<u64>,
    /// When it gives up waiting for the answer to the first of `executed`.
    pub(super) answer_by: Option<u64>,
    /// Carried out; their completions are on their way back.
    pub(super) executed: VecDeque<Executed>,
    pub(super) completes_at: u64,
    pub(super) sends_used: u32,
    /// Slots of executed unsignalled requests, to be given back with the next completion.
    pub(super) unfreed: u32,
    pub(super) receives: VecDeque<(u64, Option<Place>)>,
    pub(super) receives_used: u32,
    pub(super) done: VecDeque<(Completion, u32)>,
    /// Which tenure it serves, where the world knows.
    pub(super) epoch: Option<u64>,
}

pub(super) struct Place {
    pub(super) memory: Arc<dyn Memory>,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

pub(super) enum Payload {
    Inline(Vec<u8>),
    Place(Place),
}

impl Payload {
    pub(super) fn take(&self) -> Vec<u8> {
        match self {
            Payload::Inline(bytes) => bytes.clone(),
            Payload::Place(place) => {
                let mut bytes = vec![0; usize::try_from(place.bytes).unwrap_or(0)];
                place.memory.read(place.offset, &mut bytes);
                bytes
            }
        }
    }
}

pub(super) enum Work {
    Write { payload: Payload, address: u64, key: u32, immediate: Option<u32> },
    Read { into: Place, address: u64, key: u32 },
    Send { payload: Payload, immediate: Option<u32> },
    Bind { key: u32, range: RemoteRange, region: u64, access: Access, memory: Arc<dyn Memory>, offset: u64 },
    Invalidate { key: u32 },
}

pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) work: Work,
    pub(super) signalled: bool,
}

/// A request that was carried out.
pub(super) struct Executed {
    pub(super) id: u64,
    pub(super) opcode: Opcode,
    pub(super) bytes: u32,
    pub(super) signalled: bool,
}

/// What a peer may name.
pub(super) struct Key {
    pub(super) memory: Arc<dyn Memory>,
    pub(super) region: u64,
    /// The connection end that it was bound on; `None`: good on every connection of its fabric.
    pub(super) link: Option<u64>,
    pub(super) fabric: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Offset in the memory of `address`.
    pub(super) offset: u64,
    pub(super) access: Access,
}

impl Posted {
    pub(super) fn opcode(&self) -> Opcode {
        match &self.work {
            Work::Write { .. } => Opcode::Write,
            Work::Read { .. } => Opcode::Read,
            Work::Send { .. } => Opcode::Send,
            Work::Bind { .. } => Opcode::Bind,
            Work::Invalidate { .. } => Opcode::Invalidate,
        }
    }
}

/// The opaque bytes that name a connection end.
pub(super) fn endpoint(number: u64) -> [u8; 16] {
    let mut bytes = *b"sim.............";
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

pub(super) fn number_of(bytes: &[u8]) -> Option<u64> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let number = u64::from_le_bytes(bytes[8..].try_into().ok()?);
    (bytes == endpoint(number)).then_some(number)
}

/// Another number than this one.
fn garbled(immediate: u32) -> u32 {
    !immediate
}

impl State {
    pub(super) fn new(random: Random, is_automatic: bool) -> State {
        State {
            is_automatic,
            now: 0,
            random,
            faults: FabricFaults::default(),
            next: 1,
            links: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_key: 1,
            binds_before: 0,
            closed_keys: BTreeSet::new(),
            #[cfg(planted)]
            dropped_windows: Vec::new(),
            queues: BTreeMap::new(),
            due: BinaryHeap::new(),
            order: 0,
            landings: BTreeMap::new(),
            cut: BTreeSet::new(),
            slowness: BTreeMap::new(),
            promised: BTreeMap::new(),
            holds: BTreeMap::new(),
            touched: BTreeSet::new(),
            violation: None,
            counts: Counts::default(),
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The upper 24 bits of new keys, which come round to the first after the last.
    pub(super) fn key_base(&mut self) -> u32 {
        let base = self.next_key << 8;
        self.next_key = if self.next_key + 1 < 1 << 24 { self.next_key + 1 } else { 1 };
        if self.next_key == 1 {
            self.counts.add(Mark::KeysWrapped);
        }
        base
    }

    pub(super) fn serves(&mut self, of: &[u8], epoch: u64, takes_notices: bool) {
        if let Some(link) = number_of(of).and_then(|number| self.links.get_mut(&number)) {
            link.epoch = Some(epoch);
            link.takes_notices = takes_notices;
        }
    }

    /// Takes a posted request; where the connection is over and nobody has polled that yet, it is flushed at once.
    pub(super) fn take(&mut self, end: u64, posted: Posted) {
        let Some(link) = self.links.get_mut(&end) else { return };
        if let (Work::Write { .. }, Some(epoch)) = (&posted.work, link.epoch)
            && let Some(promised) = self.promised.get(&link.member)
        {
            keep(&mut self.violation, revoked::posts(link.member, epoch, *promised));
        }
        link.sends_used += 1;
        if matches!(link.state, ConnectionState::Error(_)) {
            let (opcode, connection) = (posted.opcode(), ConnectionId(end));
            let (id, status) = (posted.id, Status::Flushed);
            link.done
                .push_back((Completion { id, connection, opcode, status, bytes: 0, immediate: None }, 1));
            return self.touch(end);
        }
        link.sends.push_back(posted);
        self.pump(end);
    }

    /// This end has something new to tell: its queue is worth a poll.
    pub(super) fn touch(&mut self, end: u64) {
        let Some(queue) = self.links.get(&end).map(|link| link.queue) else { return };
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.is_ready = true;
            self.touched.insert(queue.member);
        }
    }

    pub(super) fn complete(&mut self, end: u64, id: u64, opcode: Opcode, status: Status, bytes: u32) {
        if let Some(link) = self.links.get_mut(&end) {
            let frees = 1 + std::mem::take(&mut link.unfreed);
            let connection = ConnectionId(end);
            let completion = Completion { id, connection, opcode, status, bytes, immediate: None };
            link.done.push_back((completion, frees));
            self.touch(end);
        }
    }

    pub(super) fn received(&mut self, end: u64, id: u64, opcode: Opcode, bytes: u32, immediate: Option<u32>) {
        if self.random.happens(self.faults.receive_lost) {
            self.counts.add(Mark::ReceiveLost);
            return;
        }
        let immediate = if self.faults.immediates_garbled { immediate.map(garbled) } else { immediate };
        if immediate.is_some() && self.faults.immediates_garbled {
            self.counts.add(Mark::ImmediateGarbled);
        }
        if let Some(link) = self.links.get_mut(&end) {
            let (connection, status) = (ConnectionId(end), Status::Success);
            link.done.push_back((Completion { id, connection, opcode, status, bytes, immediate }, 1));
            self.touch(end);
        }
    }

    pub(super) fn complete_receive(&mut self, end: u64, id: u64, status: Status) {
        if let Some(link) = self.links.get_mut(&end) {
            let (connection, opcode) = (ConnectionId(end), Opcode::Receive);
            link.done
                .push_back((Completion { id, connection, opcode, status, bytes: 0, immediate: None }, 1));
            self.touch(end);
        }
    }

    /// This end is over: what was carried out may still be told as success, oldest first; everything behind it is flushed.
    pub(super) fn set_error(&mut self, end: u64, cause: ErrorCause) {
        let Some(link) = self.links.get(&end) else { return };
        if matches!(link.state, ConnectionState::Error(_)) {
            return;
        }
        let all = link.executed.len();
        let told = if self.is_automatic { all } else { self.random.index(all + 1) };
        let Some(link) = self.links.get_mut(&end) else { return };
        link.state = ConnectionState::Error(cause);
        let executed = std::mem::take(&mut link.executed);
        let sends = std::mem::take(&mut link.sends);
        let receives = std::mem::take(&mut link.receives);
        for (at, request) in executed.into_iter().enumerate() {
            if at < told {
                self.tell(end, &request);
            } else {
                self.counts.add(Mark::FlushedButDone);
                self.complete(end, request.id, request.opcode, Status::Flushed, 0);
            }
        }
        // Whether a request that is landing gets through is not known to its poster any more; what lands does so all the same.
        let landing = self.landings.values_mut().filter(|landing| landing.from == end);
        let landing: Vec<Executed> = landing.filter_map(|landing| landing.request.take()).collect();
        for request in landing {
            self.complete(end, request.id, request.opcode, Status::Flushed, 0);
        }
        for posted in sends {
            self.counts.add(Mark::FailedNotDone);
            self.complete(end, posted.id, posted.opcode(), Status::Flushed, 0);
        }
        for (id, _) in receives {
            self.complete_receive(end, id, Status::Flushed);
        }
        // Unsignalled slots whose request was executed come back with the error, too.
        if let Some(link) = self.links.get_mut(&end) {
            link.sends_used -= std::mem::take(&mut link.unfreed);
        }
        self.touch(end);
    }

    /// An end goes; its peer finds out: at once, soon, or when its own transport gives up.
    pub(super) fn fail(&mut self, end: u64, cause: ErrorCause) {
        let Some(link) = self.links.get(&end) else { return };
        let peer = link.peer;
        if link.state == ConnectionState::Ready {
            self.carry_out_unseen(end);
        }
        self.set_error(end, cause);
        let Some(peer) = peer else { return };
        if self.is_automatic {
            self.set_error(peer, ErrorCause::PeerGone);
        } else {
            let after =
                if self.random.percent(70) { self.random.range(5 * US, MS) } else { self.give_up_after() };
            self.gone(peer, after);
        }
    }

    pub(super) fn break_some(&mut self, pick: u64) -> bool {
        let ready: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.state == ConnectionState::Ready)
            .map(|(number, _)| *number)
            .collect();
        let Some(at) = pick.checked_rem(u64::try_from(ready.len()).unwrap_or(0)) else { return false };
        let end = ready[usize::try_from(at).unwrap_or(0)];
        self.counts.add(Mark::ConnectionBroken);
        self.fail(end, ErrorCause::PeerGone);
        true
    }

    /// A connection is destroyed: nothing lands on its behalf once this returns.
    pub(super) fn destroy(&mut self, number: u64) {
        self.fail(number, ErrorCause::Closed);
        self.end_landings(number);
        self.keys.retain(|_, key| key.link != Some(number));
        if let Some(link) = self.links.remove(&number)
            && let Some(queue) = self.queues.get_mut(&link.queue)
        {
            queue.used -= link.options.send_depth + link.options.receive_depth;
            queue.links.retain(|link| *link != number);
        }
    }
}
