//! The responder's end of a session: a backup that lets a primary write, or a member that lets a candidate read.
//!
//! ```text
//!  offer + Grant → accept ──▶ → ready → bind slots and segments → bound → keys ──▶ → GrantDone
//!  receive completion → read the slot, post the receive again → Notice
//!  Acknowledge → [write (with immediate): acknowledgement] → AcknowledgeDone
//!  Revoke → invalidate every window → completions seen → close → drained → destroy → only then the log is scanned
//! ```
//!
//! Windows leave out the segments' header pages, and belong to this one connection: a deposed primary can reach neither the log
//! nor a watermark. They go from session to session ([`super::windows`]). Where the device has none, each stretch is registered for the
//! session, and the registrations end behind the connection.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use windlass_engine::{Acknowledgement, Heartbeat, Input, Notice, Session, Token};
use windlass_fabric::{
    Access, Completion, Connection, ConnectionId, ConnectionState, Fabric, Memory, Operation, Receive,
    RemoteRange, Request, Window,
};
use windlass_log::{Geometry, Lsn, MemberId, SEGMENT_HEADER_BYTES};

use super::head::page_bytes;
use super::memory::Segment;
use super::outgoing::{Expecting, SEND_DEPTH, SessionError};
use super::prefetch::Prefetched;
use super::sessions::{End, Making, Target};
use super::slots::{self, ACKNOWLEDGEMENT_RECEIVES, Buffer, RETURNED_AT};
use super::windows::{Lasts, Way, Windows};
use super::work::{self, WorkKind};
use crate::control::{Frame, Purpose};

/// The id of the slots' bind: above every segment number.
const SLOTS_BIND: u64 = (1 << 56) - 1;
/// Receives beyond one for each notice slot.
const RECEIVES_SPARE: u32 = 4;
/// Slots of the send queue kept free for acknowledgements and invalidations.
const SENDS_KEPT: u32 = 32;
/// Every so many acknowledgements one is signalled, so that their slots come back. Where their bytes are posted inline nothing else waits for
/// an answer, which would wake this side for each.
const SIGNAL_EVERY: u32 = 8;

/// A stretch that is, or is about to be, open to the peer. The way to it goes before the region.
struct Granted<F: Fabric> {
    way: Way<F>,
    /// What the peer needs, once the bind is posted.
    key: Option<RemoteRange>,
    is_bound: bool,
    /// The part of the segment that is open.
    range: Range<u64>,
    prefetched: Prefetched,
    segment: Arc<Segment<F>>,
}

/// A grant that waits to be bound.
struct Grant {
    token: Option<Token>,
    up_to: Lsn,
}

/// How far the end of a session has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// It has not begun.
    Open,
    /// Invalidations are under way.
    Invalidating { under_way: u32 },
    /// Closed; its queues drain.
    Draining,
}

/// A responder's session. See the module.
pub(crate) struct Incoming<F: Fabric> {
    pub(crate) peer: MemberId,
    pub(crate) session: Session,
    pub(crate) purpose: Purpose,
    /// When it must be connected.
    deadline_ns: u64,
    geometry: Geometry,
    notice_slots: u32,
    inline: bool,
    windows: Arc<Windows<F>>,
    connection: F::Connection,
    slots_window: Option<F::Window>,
    slots_key: Option<RemoteRange>,
    slots_bound: bool,
    slots: Buffer<F>,
    scratch: Buffer<F>,
    segments: BTreeMap<u64, Granted<F>>,
    /// Windows whose invalidation is under way, oldest first: kept until its completion was seen.
    closing: VecDeque<Granted<F>>,
    grants: VecDeque<Grant>,
    up_to: Lsn,
    /// Where the primary takes acknowledgements.
    acknowledgement_slot: Option<RemoteRange>,
    acknowledgement: Option<Acknowledgement>,
    acknowledging: bool,
    /// The device takes advice to bring in memory ahead of writes, as far as is known.
    prefetches: bool,
    /// One was posted whose completion nobody waits for.
    is_posted: bool,
    unsignalled: u32,
    /// Acknowledgements sent with an immediate.
    immediates: u64,
    /// Notices taken.
    consumed: u64,
    heartbeat_last: [u8; Heartbeat::BYTES],
    ending: Ending,
    expecting: Expecting,
    /// Requests whose completion was not seen, oldest first: a later one's completion stands for those before it.
    posted: VecDeque<u64>,
    /// Counts what has no number of its own.
    numbers: u64,
    /// The connection or a posted window operation failed: its windows are dropped, not invalidated.
    is_broken: bool,
    /// Every invalidation was seen to succeed: its windows are bound nowhere, and may be bound again.
    is_proven: bool,
}

impl<F: Fabric> End for Incoming<F> {
    fn is(&self, peer: MemberId, session: Session, purpose: Purpose) -> bool {
        (self.peer, self.session, self.purpose) == (peer, session, purpose)
    }
}

impl<F: Fabric> Incoming<F> {
    /// Makes this end and begins to connect it to the peer's.
    pub(crate) fn new(making: &Making<'_, F>, endpoint: &[u8]) -> Result<Incoming<F>, SessionError> {
        let Making { fabric, geometry, notice_slots, peer, session, purpose, deadline_ns, .. } = *making;
        let receives = match purpose {
            Purpose::Replicate => notice_slots + RECEIVES_SPARE,
            Purpose::Fetch => 1,
        };
        let (mut connection, inline) = making.connection(receives, receives)?;
        let Target { buffer: slots, window: slots_window, key: slots_key } =
            making.target(slots::slots_bytes(notice_slots), Lasts::Long)?;
        let scratch = Buffer::new(fabric, slots::STRIDE_BYTES, Access::NONE)?;
        connection.connect(endpoint)?;
        Ok(Incoming {
            peer,
            session,
            purpose,
            deadline_ns,
            geometry,
            notice_slots,
            inline,
            windows: Arc::clone(making.windows),
            connection,
            // Open already, or not to be opened.
            slots_bound: slots_window.is_none(),
            slots_window,
            slots_key,
            slots,
            scratch,
            segments: BTreeMap::new(),
            closing: VecDeque::new(),
            grants: VecDeque::new(),
            up_to: Lsn(0),
            acknowledgement_slot: None,
            acknowledgement: None,
            acknowledging: false,
            prefetches: purpose == Purpose::Replicate,
            is_posted: false,
            unsignalled: 0,
            immediates: 0,
            consumed: 0,
            heartbeat_last: [0; Heartbeat::BYTES],
            ending: Ending::Open,
            expecting: Expecting::default(),
            posted: VecDeque::with_capacity(usize::try_from(SEND_DEPTH).unwrap_or(0)),
            numbers: 0,
            is_broken: false,
            is_proven: false,
        })
    }

    pub(crate) fn connection_id(&self) -> ConnectionId {
        self.connection.id()
    }

    pub(crate) fn endpoint(&self) -> Vec<u8> {
        self.connection.endpoint().to_vec()
    }

    /// Whether a segment is open, or about to be.
    pub(crate) fn has(&self, segment: u64) -> bool {
        self.segments.contains_key(&segment)
    }

    /// Opens `[from, to)` of a segment's bytes to the peer, once it can.
    pub(crate) fn open(
        &mut self,
        fabric: &F,
        number: u64,
        segment: Arc<Segment<F>>,
    ) -> Result<(), SessionError> {
        let range = SEGMENT_HEADER_BYTES..self.geometry.segment_bytes();
        let (way, key) = Way::to(fabric, &self.windows, &segment, &range, self.access(), self.lasts())?;
        let is_bound = key.is_some();
        let prefetched = Prefetched::default();
        self.segments.insert(number, Granted { way, key, is_bound, range, prefetched, segment });
        Ok(())
    }

    /// How its windows are given up. A candidate that has read all ends the session from its side.
    fn lasts(&self) -> Lasts {
        match self.purpose {
            Purpose::Replicate => Lasts::Long,
            Purpose::Fetch => Lasts::Once,
        }
    }

    /// What the peer may do with what is opened to it. A primary that writes whole pages may have to read the first one ([`super::first_page`]).
    fn access(&self) -> Access {
        let is_read = self.purpose == Purpose::Fetch || page_bytes(self.connection.transfer()).is_some();
        let reads = if is_read { Access::REMOTE_READ } else { Access::NONE };
        match self.purpose {
            Purpose::Replicate if self.windows.are_there() => Access::REMOTE_WRITE | reads,
            Purpose::Replicate => Access::LOCAL_WRITE | Access::REMOTE_WRITE | reads,
            Purpose::Fetch => reads,
        }
    }

    /// Notes that `token` is to be answered, and the peer told, once everything opened so far is bound.
    pub(crate) fn announce(&mut self, token: Option<Token>, up_to: Lsn) {
        self.grants.push_back(Grant { token, up_to });
    }

    /// The primary's acknowledgement slot is open.
    pub(crate) fn set_acknowledgement_slot(&mut self, slot: RemoteRange) {
        self.acknowledgement_slot = Some(slot);
    }

    /// Writes this acknowledgement as soon as the slot is known and the one before is done.
    pub(crate) fn acknowledge(&mut self, acknowledgement: Acknowledgement) -> Result<(), SessionError> {
        self.acknowledgement = Some(acknowledgement);
        self.post_acknowledgement()
    }

    fn post_acknowledgement(&mut self) -> Result<(), SessionError> {
        let (Some(slot), false) = (self.acknowledgement_slot, self.acknowledging) else { return Ok(()) };
        if self.connection.state() != ConnectionState::Ready {
            return Ok(());
        }
        let Some(acknowledgement) = self.acknowledgement.take() else { return Ok(()) };
        let bytes = acknowledgement.encode();
        let source = self.scratch.source(0, &bytes, self.inline);
        let to = slot.at(0);
        let wakes = self.immediates < self.returned() + u64::from(ACKNOWLEDGEMENT_RECEIVES);
        let operation = if wakes {
            Operation::WriteImmediate { source, to, immediate: 0 }
        } else {
            Operation::Write { source, to }
        };
        self.numbers += 1;
        let id = work::id(WorkKind::Acknowledge, self.numbers);
        self.unsignalled += 1;
        let signalled = !self.inline || self.unsignalled >= SIGNAL_EVERY;
        self.connection.post(&[Request { id, operation, signalled }])?;
        self.immediates += u64::from(wakes);
        if signalled {
            self.unsignalled = 0;
            self.acknowledging = true;
            self.posted.push_back(id);
        } else {
            self.is_posted = true;
        }
        Ok(())
    }

    /// Receives that the primary says it has posted again: the largest count in any slot that is no nonsense.
    fn returned(&self) -> u64 {
        (0..=self.notice_slots)
            .map(|slot| self.slots.memory.load(u64::from(slot) * slots::STRIDE_BYTES + RETURNED_AT))
            .filter(|returned| *returned <= self.immediates)
            .max()
            .unwrap_or(0)
    }

    /// Goes on as far as it can without waiting. Frames for the peer and inputs for the engine are added.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        frames: &mut Vec<Frame>,
        inputs: &mut VecDeque<Input>,
    ) -> Result<(), SessionError> {
        if self.ending != Ending::Open {
            return Ok(());
        }
        match self.connection.state() {
            ConnectionState::Error(cause) => return Err(SessionError::Broken(cause)),
            ConnectionState::Initial | ConnectionState::Connecting => {
                return if now >= self.deadline_ns { Err(SessionError::TooSlow) } else { Ok(()) };
            }
            ConnectionState::Ready => {}
        }
        self.bind()?;
        self.expecting.look(!self.posted.is_empty(), now)?;
        if self.is_bound()
            && let Some(up_to) = self.grants.iter().map(|grant| grant.up_to).max()
        {
            self.up_to = self.up_to.max(up_to);
            frames.push(self.keys());
            for grant in self.grants.drain(..) {
                inputs.extend(grant.token.map(|token| Input::GrantDone { token }));
            }
        }
        self.post_acknowledgement()?;
        if std::mem::take(&mut self.is_posted) {
            inputs.push_back(Input::AcknowledgeDone { session: self.session });
        }
        if self.purpose == Purpose::Replicate {
            inputs.extend(self.look_at_heartbeat());
        }
        Ok(())
    }

    /// Posts the binds that are due, as far as the queue has room.
    fn bind(&mut self) -> Result<(), SessionError> {
        if let Some(window) = self.slots_window.as_mut().filter(|window| !window.is_bound()) {
            let range = 0..slots::slots_bytes(self.notice_slots);
            let id = work::id(WorkKind::Bind, SLOTS_BIND);
            let region = &self.slots.region;
            self.slots_key = Some(self.connection.bind(id, window, region, range, Access::REMOTE_WRITE)?);
            self.windows.bound();
            self.posted.push_back(id);
        }
        let access = self.access();
        for (number, granted) in &mut self.segments {
            let (None, Some(window)) = (granted.key, granted.way.window()) else { continue };
            if self.connection.outstanding().sends + SENDS_KEPT >= SEND_DEPTH {
                break;
            }
            let id = work::id(WorkKind::Bind, *number);
            let range = granted.range.clone();
            let region = granted.segment.target();
            granted.key = Some(self.connection.bind(id, window, region, range, access)?);
            self.windows.bound();
            self.posted.push_back(id);
        }
        Ok(())
    }

    fn is_bound(&self) -> bool {
        self.slots_bound && self.segments.values().all(|granted| granted.is_bound)
    }

    /// Everything that is open, for the peer. Also again after the control connection was lost.
    pub(crate) fn keys(&self) -> Frame {
        let none = RemoteRange { address: 0, bytes: 0, key: windlass_fabric::RemoteKey(0) };
        let bound = self.segments.iter().filter(|(_, granted)| granted.is_bound);
        Frame::Keys {
            session: self.session,
            purpose: self.purpose,
            slots: self.slots_key.unwrap_or(none),
            up_to: self.up_to,
            segments: bound.filter_map(|(number, granted)| Some((*number, granted.key?))).collect(),
        }
    }

    /// Whether the peer was told anything yet.
    pub(crate) fn has_keys(&self) -> bool {
        self.up_to > Lsn(0)
    }

    fn look_at_heartbeat(&mut self) -> Option<Input> {
        let mut bytes = [0; Heartbeat::BYTES];
        self.slots.memory.read(slots::heartbeat_at(self.notice_slots), &mut bytes);
        if bytes == self.heartbeat_last {
            return None;
        }
        // Torn: the next turn sees it whole.
        let heartbeat = Heartbeat::decode(&bytes).ok()?;
        self.heartbeat_last = bytes;
        (heartbeat.session == self.session).then_some(Input::Heartbeat { heartbeat })
    }

    /// Takes back the windows of segments below `first`: they are persisted here.
    pub(crate) fn close_below(&mut self, first: u64) -> Result<(), SessionError> {
        let below: Vec<u64> = self.segments.range(..first).map(|(number, _)| *number).collect();
        for number in below {
            if self.connection.outstanding().sends + SENDS_KEPT / 2 >= SEND_DEPTH {
                // Asked again with the next segment.
                return Ok(());
            }
            let Some(mut granted) = self.segments.remove(&number) else { continue };
            match granted.way.window().filter(|window| window.is_bound()) {
                Some(window) => {
                    self.numbers += 1;
                    let id = work::id(WorkKind::Invalidate, self.numbers);
                    match self.connection.invalidate(id, window) {
                        Ok(()) => self.posted.push_back(id),
                        Err(_) => self.is_broken = true,
                    }
                    self.closing.push_back(granted);
                }
                None => granted.way.done(&self.windows),
            }
        }
        Ok(())
    }

    /// Takes a completion of this connection.
    pub(crate) fn completed(
        &mut self,
        completion: &Completion,
        inputs: &mut VecDeque<Input>,
    ) -> Result<(), SessionError> {
        let success = completion.status.is_success();
        if completion.opcode.is_receive() {
            if success && self.ending == Ending::Open {
                self.noticed(inputs)?;
            }
        } else if success {
            self.expecting.seen();
            // Requests are carried out in order: those before it are done, too, also where their completion was lost. One that comes
            // a second time says nothing of those behind it.
            if !self.posted.contains(&completion.id) {
                return Ok(());
            }
            while let Some(id) = self.posted.pop_front() {
                self.done(id, inputs);
                if id == completion.id {
                    break;
                }
            }
        } else {
            self.posted.clear();
            if work::kind(completion.id) == Some(WorkKind::Invalidate) {
                self.is_broken = true;
                self.invalidated();
            }
        }
        if success { Ok(()) } else { Err(SessionError::Failed(completion.status)) }
    }

    /// A request of this end was carried out.
    fn done(&mut self, id: u64, inputs: &mut VecDeque<Input>) {
        match work::kind(id) {
            Some(WorkKind::Invalidate) => self.invalidated(),
            Some(WorkKind::Acknowledge) => {
                self.acknowledging = false;
                inputs.push_back(Input::AcknowledgeDone { session: self.session });
            }
            Some(WorkKind::Bind) => {
                let low = work::low(id);
                if low == SLOTS_BIND {
                    self.slots_bound = true;
                } else if let Some(granted) = self.segments.get_mut(&low) {
                    granted.is_bound = true;
                    let start = granted.range.start;
                    self.prefetch(low, start);
                }
            }
            Some(WorkKind::Batch | WorkKind::Beat | WorkKind::Read | WorkKind::Receive | WorkKind::Trial)
            | None => {}
        }
    }

    fn invalidated(&mut self) {
        if let Some(closed) = self.closing.pop_front()
            && !self.is_broken
        {
            closed.way.done(&self.windows);
        }
        if let Ending::Invalidating { under_way } = &mut self.ending {
            *under_way = under_way.saturating_sub(1);
        }
    }

    /// A notice has arrived: its slot is read before its credit goes back (R-13).
    fn noticed(&mut self, inputs: &mut VecDeque<Input>) -> Result<(), SessionError> {
        let slot = u32::try_from(self.consumed % u64::from(self.notice_slots)).expect("below a u32");
        let mut bytes = [0; Notice::BYTES];
        self.slots.memory.read(slots::notice_at(slot), &mut bytes);
        self.consumed += 1;
        self.connection.post_receives(&[Receive { id: work::id(WorkKind::Receive, 0), into: None }])?;
        let notice = Notice::decode(&bytes).ok().filter(|notice| notice.session == self.session);
        if let Some(notice) = &notice {
            self.prefetch(self.geometry.segment_of(notice.tail), self.geometry.offset_of(notice.tail));
        }
        inputs.push_back(Input::Notice { session: self.session, notice });
        Ok(())
    }

    /// Has the device bring in what the next batches will be written to.
    fn prefetch(&mut self, segment: u64, tail: u64) {
        if let Some(Granted { segment, range, prefetched, .. }) = self.segments.get_mut(&segment) {
            prefetched.ask(segment.target(), tail, range.end, &mut self.prefetches);
        }
    }

    /// Begins to take everything back.
    pub(crate) fn begin_end(&mut self) {
        if self.ending != Ending::Open {
            return;
        }
        let mut under_way = u32::try_from(self.closing.len()).unwrap_or(u32::MAX);
        if self.connection.state() == ConnectionState::Ready && !self.is_broken {
            let windows = self.segments.values_mut().filter_map(|granted| granted.way.window());
            for window in windows.chain(&mut self.slots_window) {
                if window.is_bound() {
                    self.numbers += 1;
                    let id = work::id(WorkKind::Invalidate, self.numbers);
                    match self.connection.invalidate(id, window) {
                        Ok(()) => {
                            self.posted.push_back(id);
                            under_way += 1;
                        }
                        Err(_) => self.is_broken = true,
                    }
                }
            }
        }
        self.ending = Ending::Invalidating { under_way };
    }

    /// Every invalidation's completion was seen.
    #[cfg(planted)]
    pub(crate) fn is_invalidated(&self) -> bool {
        matches!(self.ending, Ending::Invalidating { under_way: 0 }) && !self.is_broken
    }

    /// Goes on with the end. `true` once it may be destroyed: every invalidation's completion was seen, or proves nothing because the
    /// connection broke, and the queues are drained.
    pub(crate) fn end(&mut self) -> bool {
        if let Ending::Invalidating { under_way } = self.ending {
            let is_error = matches!(self.connection.state(), ConnectionState::Error(_));
            if under_way > 0 && !self.is_broken && !is_error {
                return false;
            }
            self.is_proven = under_way == 0 && !self.is_broken;
            self.connection.close();
            self.ending = Ending::Draining;
        }
        let outstanding = self.connection.outstanding();
        outstanding.sends == 0 && outstanding.receives == 0
    }

    /// Ends the session: when this returns no byte lands any more, and no window of it opens anything.
    pub(crate) fn destroy(self) {
        let Incoming { connection, slots_window, mut segments, closing, is_proven, windows, .. } = self;
        if windows.are_there() && !is_proven {
            // Flushed invalidations, or none, prove nothing: dropping a window unbinds it, and it must not outlive the connection bound.
            drop(slots_window);
            drop((segments, closing));
            connection.destroy();
            return;
        }
        connection.destroy();
        if let Some(window) = slots_window {
            windows.give_back(window);
        }
        while let Some((_, granted)) = segments.pop_first() {
            granted.way.done(&windows);
        }
    }
}
