//! A request on its way: arrival, pieces that land, completions that come back.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;
use std::sync::Arc;

use windlass_fabric::{Access, ConnectionState, ErrorCause, Memory, Opcode, Status};
use windlass_log::{Lsn, SEGMENT_HEADER, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::state::{Executed, Key, Payload, Posted, State, Work, keep};
use super::{MS, US};
use crate::coverage::Mark;
use crate::oracle::{notices, revoked, written_over};

/// Bytes of a packet: what lands as one.
const PACKET_BYTES: usize = 512;
/// Between two tries of a request that gets no answer.
const RETRY: u64 = 5 * MS;

/// Something that happens at a time.
pub(super) struct Due {
    at: u64,
    order: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// The first request of this end arrives.
    Arrive { end: u64 },
    /// A piece of this message lands.
    Land { landing: u64, piece: usize },
    /// The oldest carried-out request of this end completes there.
    Complete { end: u64 },
    /// This end finds its peer gone.
    Gone { end: u64 },
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.order == other.order
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A write that has arrived and is landing.
pub(super) struct Landing {
    pub(super) from: u64,
    target: u64,
    key: u32,
    region: u64,
    memory: Arc<dyn Memory>,
    /// Where it begins in the memory.
    start: u64,
    /// Offset and bytes; what has landed is taken out.
    pieces: Vec<Option<(u64, Vec<u8>)>>,
    left: usize,
    length: u32,
    immediate: Option<u32>,
    /// To complete when all has landed; `None` if it was completed before.
    pub(super) request: Option<Executed>,
    /// The poster was told that it is done: whatever happens, it lands.
    is_promised: bool,
}

impl State {
    fn schedule(&mut self, after: u64, what: What) {
        self.order += 1;
        self.due.push(Reverse(Due { at: self.now + after, order: self.order, what }));
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    pub(super) fn gone(&mut self, end: u64, after: u64) {
        self.schedule(after, What::Gone { end });
    }

    /// Everything up to `now` happens.
    pub(super) fn advance(&mut self, now: u64) -> u64 {
        let mut count = 0;
        while let Some(Reverse(due)) = self.due.peek() {
            if due.at > now {
                break;
            }
            let Some(Reverse(due)) = self.due.pop() else { break };
            self.now = self.now.max(due.at);
            count += 1;
            match due.what {
                What::Arrive { end } => self.arrive(end),
                What::Land { landing, piece } => self.land(landing, piece),
                What::Complete { end } => self.come_back(end),
                What::Gone { end } => self.set_error(end, ErrorCause::PeerGone),
            }
        }
        self.now = self.now.max(now);
        count
    }

    /// A little time passes: for those who poll without a world.
    pub(super) fn pass(&mut self) {
        if self.is_automatic {
            let now = self.now + 2 * US;
            self.advance(now);
        }
    }

    /// How long the transport tries before it gives up.
    pub(super) fn give_up_after(&mut self) -> u64 {
        if self.is_automatic { 10 * MS } else { self.random.range(10 * MS, 400 * MS) }
    }

    fn delay(&mut self, from: u8, to: u8) -> u64 {
        let times =
            self.slowness.get(&from).copied().unwrap_or(1).max(self.slowness.get(&to).copied().unwrap_or(1));
        let base = if self.is_automatic { US } else { self.random.range(2 * US, 20 * US) };
        if self.random.happens(self.faults.delayed) {
            self.counts.add(Mark::Delayed);
            return base * times * 100;
        }
        if times > 1 {
            self.counts.add(Mark::SlowMember);
        }
        base * times
    }

    /// Sends the next request of this end on its way, if none is.
    pub(super) fn pump(&mut self, end: u64) {
        let Some(link) = self.links.get_mut(&end) else { return };
        if link.state != ConnectionState::Ready || link.is_under_way || link.sends.is_empty() {
            return;
        }
        link.is_under_way = true;
        let (from, peer) = (link.member, link.peer);
        let to = peer.and_then(|peer| self.links.get(&peer)).map_or(from, |peer| peer.member);
        let after = self.delay(from, to);
        self.schedule(after, What::Arrive { end });
    }

    fn arrive(&mut self, end: u64) {
        let Some(link) = self.links.get(&end) else { return };
        if link.state != ConnectionState::Ready {
            return;
        }
        let (from, peer) = (link.member, link.peer);
        let Some(first) = link.sends.front() else { return };
        let is_local = matches!(first.work, Work::Bind { .. } | Work::Invalidate { .. });
        let to = peer.and_then(|peer| self.links.get(&peer));
        let is_there = to.is_some_and(|to| to.state == ConnectionState::Ready);
        let to = to.map_or(from, |to| to.member);
        let is_cut = self.cut.contains(&(from, to));
        if !is_local && (is_cut || !is_there) {
            return self.try_again(end, is_cut);
        }
        if !is_local && self.random.happens(self.faults.broken) {
            self.counts.add(Mark::ConnectionBroken);
            return self.fail(end, ErrorCause::PeerGone);
        }
        let wants_receive = first.wants_receive();
        let peer = peer.unwrap_or(0);
        if wants_receive {
            let is_injected = self.random.happens(self.faults.receiver_not_ready);
            if is_injected || self.links.get(&peer).is_none_or(|peer| peer.receives.is_empty()) {
                self.counts.add(Mark::ReceiverNotReady);
                return self.refuse(end, peer, Status::ReceiverNotReady);
            }
        }
        let Some(link) = self.links.get_mut(&end) else { return };
        link.gives_up_at = None;
        let Some(posted) = link.sends.pop_front() else { return };
        self.carry_out(end, peer, posted);
    }

    /// The request got no answer.
    fn try_again(&mut self, end: u64, is_cut: bool) {
        let after = self.give_up_after();
        let now = self.now;
        let Some(link) = self.links.get_mut(&end) else { return };
        let until = *link.gives_up_at.get_or_insert(now + after);
        if now < until {
            return self.schedule(RETRY.min(until - now), What::Arrive { end });
        }
        if is_cut {
            self.counts.add(Mark::Partitioned);
        }
        let Some(posted) = self.links.get_mut(&end).and_then(|link| link.sends.pop_front()) else { return };
        self.tell_executed(end);
        self.complete(end, posted.id, posted.opcode(), Status::PeerGone, 0);
        self.set_error(end, ErrorCause::RequestFailed);
    }

    /// The first request of this end is refused, which ends the connection at both ends.
    fn refuse(&mut self, end: u64, peer: u64, status: Status) {
        if let Some(posted) = self.links.get_mut(&end).and_then(|link| link.sends.pop_front()) {
            self.refused(end, peer, posted.id, posted.opcode(), status);
        }
    }

    fn refused(&mut self, end: u64, peer: u64, id: u64, opcode: Opcode, status: Status) {
        self.tell_executed(end);
        self.complete(end, id, opcode, status, 0);
        let is_refused = matches!(status, Status::RemoteAccess | Status::RemoteInvalid);
        if is_refused {
            self.counts.add(Mark::AccessRefused);
        }
        let cause = if is_refused { ErrorCause::PeerRefused } else { ErrorCause::PeerGone };
        self.set_error(end, ErrorCause::RequestFailed);
        self.set_error(peer, cause);
    }

    /// The stretch that a peer's key opens to `from`'s other end, if it does.
    fn resolve(&self, peer: u64, key: u32, address: u64, bytes: u64, access: Access) -> Option<(&Key, u64)> {
        let owner = self.links.get(&peer)?;
        let key = self.keys.get(&key)?;
        let is_its = match key.link {
            Some(link) => link == peer,
            None => key.fabric == owner.fabric,
        };
        let start = address.checked_sub(key.address)?;
        let fits = start <= key.bytes && bytes <= key.bytes - start;
        (is_its && fits && key.access.contains(access)).then_some((key, key.offset + start))
    }

    fn carry_out(&mut self, end: u64, peer: u64, posted: Posted) {
        let opcode = posted.opcode();
        let mut request = Executed { id: posted.id, opcode, bytes: 0, signalled: posted.signalled };
        match posted.work {
            Work::Write { payload, address, key, immediate } => {
                let bytes = payload.take();
                self.write(end, peer, request, bytes, (address, key), immediate);
            }
            Work::Read { into, address, key } => {
                let length = u64::from(into.bytes);
                let mut bytes = vec![0; usize::try_from(into.bytes).unwrap_or(0)];
                if !bytes.is_empty() {
                    let Some((found, offset)) = self.resolve(peer, key, address, length, Access::REMOTE_READ)
                    else {
                        return self.refused(end, peer, posted.id, opcode, Status::RemoteAccess);
                    };
                    found.memory.read(offset, &mut bytes);
                    into.memory.write(into.offset, &bytes);
                    if self.links.get(&peer).is_some_and(|link| link.takes_notices) {
                        self.counts.add(Mark::FirstPageRead);
                    }
                }
                request.bytes = into.bytes;
                self.done(end, request);
            }
            Work::Send { payload, immediate } => {
                let bytes = payload.take();
                let Some((id, into)) = self.links.get_mut(&peer).and_then(|peer| peer.receives.pop_front())
                else {
                    return self.refused(end, peer, posted.id, opcode, Status::ReceiverNotReady);
                };
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                if length > into.as_ref().map_or(0, |place| place.bytes) {
                    self.complete_receive(peer, id, Status::LocalAccess);
                    return self.refused(end, peer, posted.id, opcode, Status::RemoteInvalid);
                }
                if let Some(place) = into {
                    place.memory.write(place.offset, &bytes);
                }
                self.received(peer, id, Opcode::Receive, length, immediate);
                self.done(end, request);
            }
            Work::Bind { key, range, region, access, memory, offset } => {
                let fabric = self.links.get(&end).map_or(0, |link| link.fabric);
                let (address, bytes) = (range.address, range.bytes);
                let opened = Key { memory, region, link: Some(end), fabric, address, bytes, offset, access };
                keep(&mut self.violation, revoked::opens(key, self.closed_keys.contains(&key)));
                self.keys.insert(key, opened);
                self.done(end, request);
            }
            Work::Invalidate { key } => {
                if self.keys.remove(&key).is_some() {
                    self.closed_keys.insert(key);
                }
                self.done(end, request);
            }
        }
    }

    fn write(
        &mut self,
        end: u64,
        peer: u64,
        request: Executed,
        bytes: Vec<u8>,
        (address, key): (u64, u32),
        immediate: Option<u32>,
    ) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if bytes.is_empty() {
            return self.landed(end, peer, length, immediate, Some(request));
        }
        let found = self.resolve(peer, key, address, u64::from(length), Access::REMOTE_WRITE);
        let Some((found, region, offset)) =
            found.map(|(key, offset)| (Arc::clone(&key.memory), key.region, offset))
        else {
            return self.refused(end, peer, request.id, request.opcode, Status::RemoteAccess);
        };
        if immediate.is_some() {
            self.notice_arrives(peer, address);
        }
        let window_end = self.keys.get(&key).map_or(0, |key| key.offset + key.bytes);
        let mut pieces = Vec::new();
        let mut at = offset;
        for piece in bytes.chunks(PACKET_BYTES) {
            let piece_bytes = u64::try_from(piece.len()).unwrap_or(0);
            let behind = (offset + u64::from(length)).next_multiple_of(8);
            let to = if self.random.happens(self.faults.misplaced) && behind + piece_bytes <= window_end {
                self.counts.add(Mark::Misplaced);
                behind
            } else {
                at
            };
            pieces.push(Some((to, piece.to_vec())));
            at += piece_bytes;
        }
        let is_early = self.random.happens(self.faults.completed_early);
        let in_pieces = pieces.len() > 1 && self.random.happens(self.faults.landed_in_pieces);
        let mut landing = Landing {
            from: end,
            target: peer,
            key,
            region,
            memory: found,
            start: offset,
            left: pieces.len(),
            pieces,
            length,
            immediate,
            request: Some(request),
            is_promised: false,
        };
        if !is_early && !in_pieces {
            for piece in 0..landing.pieces.len() {
                self.place(&mut landing, piece);
            }
            return self.landed(end, peer, length, immediate, landing.request);
        }
        if is_early && let Some(request) = landing.request.take() {
            self.counts.add(Mark::CompletedEarly);
            landing.is_promised = true;
            self.executed(end, request);
        }
        if in_pieces {
            self.counts.add(Mark::LandedInPieces);
        }
        let number = self.number();
        let count = landing.pieces.len();
        self.landings.insert(number, landing);
        let longest = if self.random.happens(self.faults.landed_slowly) {
            self.counts.add(Mark::LandedSlowly);
            4 * MS
        } else if self.random.percent(20) {
            600 * US
        } else {
            40 * US
        };
        for piece in 0..count {
            let after = self.random.range(US, longest);
            self.schedule(after, What::Land { landing: number, piece });
        }
    }

    /// One piece of a message lands.
    fn land(&mut self, number: u64, piece: usize) {
        let Some(mut landing) = self.landings.remove(&number) else { return };
        if !self.keys.contains_key(&landing.key) {
            let goes_on = landing.is_promised || self.random.happens(self.faults.landed_after_invalidation);
            if !goes_on {
                self.breaks_off(&landing);
                if let Some(request) = landing.request {
                    self.refused(
                        landing.from,
                        landing.target,
                        request.id,
                        request.opcode,
                        Status::RemoteAccess,
                    );
                }
                return;
            }
            self.counts.add(Mark::LandedAfterInvalidation);
        }
        self.place(&mut landing, piece);
        if landing.left > 0 {
            self.landings.insert(number, landing);
        } else {
            self.landed(landing.from, landing.target, landing.length, landing.immediate, landing.request);
        }
    }

    /// What has not landed of this message never does.
    fn breaks_off(&mut self, landing: &Landing) {
        if (1..landing.pieces.len()).contains(&landing.left) {
            self.counts.add(Mark::LandedInPart);
        }
    }

    fn place(&mut self, landing: &mut Landing, piece: usize) {
        let Some((offset, bytes)) = landing.pieces[piece].take() else { return };
        landing.left -= 1;
        if let Some(target) = self.links.get(&landing.target)
            && let (Some(epoch), Some(promised)) = (target.epoch, self.promised.get(&target.member))
        {
            keep(&mut self.violation, revoked::lands(target.member, epoch, *promised));
        }
        let belongs = landing.start + u64::try_from(piece * PACKET_BYTES).unwrap_or(u64::MAX);
        if offset != belongs
            && let Some(target) = self.links.get(&landing.target)
            && let Some(holds) = self.holds.get(&target.member)
            && let Some(lsn) = log_place(&*landing.memory, offset)
        {
            keep(&mut self.violation, written_over::lands(target.member, lsn, holds.valid));
            if lsn >= holds.valid && lsn < holds.missed {
                self.counts.add(Mark::MisplacedBehind);
            }
        }
        landing.memory.write(offset, &bytes);
    }

    /// A notice arrives at this address: the one before was read.
    fn notice_arrives(&mut self, at: u64, address: u64) {
        let Some(link) = self.links.get_mut(&at).filter(|link| link.takes_notices) else { return };
        keep(&mut self.violation, notices::lands(link.member, link.unread.contains(&address)));
        link.unread.push_back(address);
    }

    /// All of a write is there.
    fn landed(
        &mut self,
        end: u64,
        peer: u64,
        length: u32,
        immediate: Option<u32>,
        request: Option<Executed>,
    ) {
        if let Some(immediate) = immediate {
            match self.links.get_mut(&peer).and_then(|peer| peer.receives.pop_front()) {
                Some((id, _)) => self.received(peer, id, Opcode::ReceiveWrite, length, Some(immediate)),
                None => {
                    if let Some(request) = request {
                        return self.refused(end, peer, request.id, request.opcode, Status::ReceiverNotReady);
                    }
                }
            }
        }
        match request {
            Some(request) => self.done(end, request),
            None => self.next(end),
        }
    }

    /// The request was carried out: its completion comes back, the next one goes.
    fn done(&mut self, end: u64, request: Executed) {
        self.executed(end, request);
        self.next(end);
    }

    /// The completion of a request that was carried out goes on its way.
    fn executed(&mut self, end: u64, request: Executed) {
        let Some(link) = self.links.get(&end) else { return };
        let (from, peer) = (link.member, link.peer);
        if link.state != ConnectionState::Ready {
            return;
        }
        let to = peer.and_then(|peer| self.links.get(&peer)).map_or(from, |peer| peer.member);
        let after = self.delay(to, from);
        let now = self.now;
        let Some(link) = self.links.get_mut(&end) else { return };
        link.executed.push_back(request);
        link.completes_at = link.completes_at.max(now + after);
        let after = link.completes_at - now;
        self.schedule(after, What::Complete { end });
    }

    fn landings_from(&self, end: u64) -> bool {
        self.landings.values().any(|landing| landing.from == end)
    }

    fn next(&mut self, end: u64) {
        if let Some(link) = self.links.get_mut(&end) {
            link.is_under_way = false;
            self.pump(end);
        }
    }

    /// A completion comes back to its poster.
    fn come_back(&mut self, end: u64) {
        let Some(link) = self.links.get(&end) else { return };
        if link.state != ConnectionState::Ready || link.executed.is_empty() {
            return;
        }
        let (from, peer) = (link.member, link.peer);
        let is_local = link
            .executed
            .front()
            .is_some_and(|request| matches!(request.opcode, Opcode::Bind | Opcode::Invalidate));
        let to = peer.and_then(|peer| self.links.get(&peer)).map_or(from, |peer| peer.member);
        if !is_local && self.cut.contains(&(to, from)) {
            let after = self.give_up_after();
            let now = self.now;
            let Some(link) = self.links.get_mut(&end) else { return };
            let until = *link.answer_by.get_or_insert(now + after);
            if now < until {
                return self.schedule(RETRY.min(until - now), What::Complete { end });
            }
            // Done, and nobody here knows: the answer never came.
            self.counts.add(Mark::FailedButDone);
            self.counts.add(Mark::AnswerCut);
            let Some(request) = self.links.get_mut(&end).and_then(|link| link.executed.pop_front()) else {
                return;
            };
            self.complete(end, request.id, request.opcode, Status::PeerGone, 0);
            return self.set_error(end, ErrorCause::RequestFailed);
        }
        if let Some(link) = self.links.get_mut(&end) {
            link.answer_by = None;
        }
        let is_lost = self.random.happens(self.faults.completion_lost);
        let Some(link) = self.links.get_mut(&end) else { return };
        let Some(request) = link.executed.pop_front() else { return };
        if is_lost && request.signalled {
            link.unfreed += 1;
            self.counts.add(Mark::CompletionLost);
            return;
        }
        self.tell(end, &request);
    }

    /// The poster hears of a success, if it asked to.
    pub(super) fn tell(&mut self, end: u64, request: &Executed) {
        if request.signalled {
            self.complete(end, request.id, request.opcode, Status::Success, request.bytes);
        } else if let Some(link) = self.links.get_mut(&end) {
            link.unfreed += 1;
        }
    }

    /// What was carried out before a failed request is told first.
    fn tell_executed(&mut self, end: u64) {
        let Some(link) = self.links.get_mut(&end) else { return };
        for request in std::mem::take(&mut link.executed) {
            self.tell(end, &request);
        }
    }

    /// Of the requests that are queued on an end that fails, some may have gone out already: they are carried out, and nobody is told.
    pub(super) fn carry_out_unseen(&mut self, end: u64) {
        if self.faults.failed_but_done == 0 {
            return;
        }
        let Some(peer) = self.links.get(&end).and_then(|link| link.peer) else { return };
        loop {
            let Some(link) = self.links.get(&end) else { return };
            let Some(first) = link.sends.front() else { return };
            let Work::Write { payload, address, key, immediate } = &first.work else { return };
            let Some(target) = self.links.get(&peer) else { return };
            let is_cut = self.cut.contains(&(link.member, target.member));
            let has_receive = immediate.is_none() || !target.receives.is_empty();
            if target.state != ConnectionState::Ready || is_cut || !has_receive || self.landings_from(end) {
                return;
            }
            let (bytes, address, key, immediate) = (payload.take(), *address, *key, *immediate);
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            if !self.random.happens(self.faults.failed_but_done) {
                return;
            }
            if !bytes.is_empty() {
                let found = self.resolve(peer, key, address, u64::from(length), Access::REMOTE_WRITE);
                let Some((memory, region, offset)) =
                    found.map(|(key, offset)| (Arc::clone(&key.memory), key.region, offset))
                else {
                    return;
                };
                let mut landing = Landing {
                    from: end,
                    target: peer,
                    key,
                    region,
                    memory,
                    start: offset,
                    pieces: vec![Some((offset, bytes))],
                    left: 1,
                    length,
                    immediate: None,
                    request: None,
                    is_promised: false,
                };
                self.place(&mut landing, 0);
            }
            if let Some(immediate) = immediate
                && let Some((id, _)) = self.links.get_mut(&peer).and_then(|peer| peer.receives.pop_front())
            {
                self.received(peer, id, Opcode::ReceiveWrite, length, Some(immediate));
            }
            self.counts.add(Mark::FailedButDone);
            let Some(posted) = self.links.get_mut(&end).and_then(|link| link.sends.pop_front()) else {
                return;
            };
            let opcode = posted.opcode();
            let request = Executed { id: posted.id, opcode, bytes: 0, signalled: posted.signalled };
            // It stays unknown to its poster: flushed with the rest, in its place.
            if let Some(link) = self.links.get_mut(&end) {
                link.executed.push_back(request);
            }
        }
    }

    /// See [`super::FabricNet::sends_again`].
    pub(super) fn sends_again(&self, member: u8, stretch: &Range<u64>) -> bool {
        let ends = self.links.values().filter(|link| link.member == member);
        ends.flat_map(|link| &link.sends).any(|posted| {
            let Work::Write { payload: Payload::Place(place), .. } = &posted.work else { return false };
            is_in_first_page(&*place.memory, place.offset, stretch)
        })
    }

    /// A connection end is being destroyed: what was promised to have landed lands, of the rest some does.
    pub(super) fn end_landings(&mut self, number: u64) {
        let is_its = |landing: &Landing| landing.target == number || landing.from == number;
        let ending = self.landings.iter().filter(|(_, landing)| is_its(landing));
        let ending: Vec<u64> = ending.map(|(at, _)| *at).collect();
        self.end(ending);
    }

    /// A region ends: nothing lands in it once this returns.
    pub(super) fn end_region(&mut self, region: u64) {
        let ending = self.landings.iter().filter(|(_, landing)| landing.region == region);
        let ending: Vec<u64> = ending.map(|(at, _)| *at).collect();
        self.end(ending);
        self.keys.retain(|_, key| key.region != region);
    }

    fn end(&mut self, landings: Vec<u64>) {
        for at in landings {
            let Some(mut landing) = self.landings.remove(&at) else { continue };
            for piece in 0..landing.pieces.len() {
                let is_open = self.keys.contains_key(&landing.key);
                let goes_on = if is_open {
                    self.random.percent(50)
                } else {
                    self.random.happens(self.faults.landed_after_invalidation)
                };
                let is_left = landing.pieces[piece].is_some();
                if is_left && (landing.is_promised || goes_on) {
                    if !is_open {
                        self.counts.add(Mark::LandedAfterInvalidation);
                    }
                    self.place(&mut landing, piece);
                }
            }
            self.breaks_off(&landing);
            let Landing { from, target, length, immediate, request, left, .. } = landing;
            match request {
                Some(request) if left > 0 => {
                    self.refused(from, target, request.id, request.opcode, Status::RemoteAccess);
                }
                request => self.landed(from, target, length, immediate, request),
            }
        }
    }
}

/// Where in the log that lies. A segment's memory says itself where it belongs; images and slots hold nothing that counts.
fn log_place(memory: &dyn Memory, offset: u64) -> Option<Lsn> {
    let mut header = [0; SEGMENT_HEADER];
    if memory.len() < SEGMENT_HEADER_BYTES {
        return None;
    }
    memory.read(0, &mut header);
    SegmentHeader::decode(&header).ok().map(|header| Lsn(header.base.0 + offset))
}

/// Whether a write of a log that begins there begins with a page in which `stretch` has bytes. Of it the head may be what its target has already.
fn is_in_first_page(memory: &dyn Memory, offset: u64, stretch: &Range<u64>) -> bool {
    let Some(Lsn(first)) = log_place(memory, offset) else { return false };
    let page = first..first + SEGMENT_HEADER_BYTES;
    first.is_multiple_of(SEGMENT_HEADER_BYTES) && page.start < stretch.end && stretch.start < page.end
}

impl Posted {
    fn wants_receive(&self) -> bool {
        match &self.work {
            Work::Write { immediate, .. } => immediate.is_some(),
            Work::Send { .. } => true,
            Work::Read { .. } | Work::Bind { .. } | Work::Invalidate { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_fabric::HeapMemory;
    use windlass_log::LogId;

    use super::*;

    #[test]
    fn a_segment_says_where_it_belongs_and_images_and_slots_do_not() {
        let segment = HeapMemory::new(64 << 10);
        let (base, segment_bytes) = (Lsn(1 << 16), 64 << 10);
        let header = SegmentHeader { log_id: LogId([1; 16]), base, segment_bytes, features: 0 };
        segment.write(0, &header.encode());
        assert_eq!(log_place(&segment, 32_768), Some(Lsn(base.0 + 32_768)));
        let image = HeapMemory::new(64 << 10);
        assert_eq!(log_place(&image, 32_768), None);
        assert_eq!(log_place(&HeapMemory::new(64), 0), None, "a slot");
    }

    /// Seed 7001158: rot struck the head of a page between the look at it and the device's reading, and went over what a backup had flushed.
    #[test]
    fn what_goes_along_with_a_write_is_the_first_page_of_one_that_begins_with_a_page() {
        let segment = HeapMemory::new(64 << 10);
        let (base, segment_bytes) = (Lsn(1 << 16), 64 << 10);
        let header = SegmentHeader { log_id: LogId([1; 16]), base, segment_bytes, features: 0 };
        segment.write(0, &header.encode());
        let is_in = |offset, stretch: Range<u64>| {
            let stretch = base.0 + stretch.start..base.0 + stretch.end;
            is_in_first_page(&segment, offset, &stretch)
        };
        assert!(is_in(8192, 8192..8704) && is_in(8192, 11776..12288));
        assert!(!is_in(8192, 7680..8192) && !is_in(8192, 12288..12800));
        assert!(!is_in(8200, 8192..8704), "it has no head");
        assert!(!is_in_first_page(&HeapMemory::new(64 << 10), 8192, &(8192..8704)), "no log");
    }
}
