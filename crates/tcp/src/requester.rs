//! The active side of a connection: what is posted goes out on its socket, answers come back on the same one, all on the
//! thread that posts and polls.
//!
//! Posted requests stand in a ring until they have completed. Their bytes are staged into one fixed buffer, header and payload after
//! one another, so that a chain of small requests is one system call and a long payload needs no buffer of its length.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use windlass_fabric::{Completion, ConnectionState, ErrorCause, Opcode, Status};

use crate::agent::{Agent, LOOK};
use crate::dial::Dial;
use crate::domain::lock;
use crate::frame::{
    Answer, AnswerHeader, AnswerSplitter, FrameError, Piece, REQUEST_HEADER_BYTES, Refusal, RequestHeader,
    RequestKind,
};
use crate::link::{AgentEnd, Link, Target};
use crate::queue::{Interest, Ready};
use crate::socket::{Received, limit_waits, receive_now, send_now};

const OUT_BYTES: usize = 256 << 10;
const IN_BYTES: usize = 128 << 10;
/// How long answers that are still under way may take once the peer's other socket has ended.
const LAST_WORD: Duration = Duration::from_millis(200);

/// Of so many looks one looks for a refusal where no answer is due.
const LOOK_EVERY: u32 = 32;

/// Where a request's payload is.
#[derive(Debug)]
pub(crate) enum Payload {
    None,
    Region(Target),
    /// In the ring of inline payloads.
    Inline,
}

/// A posted request.
#[derive(Debug)]
struct Slot {
    id: u64,
    opcode: Opcode,
    signalled: bool,
    header: RequestHeader,
    payload: Payload,
    into: Option<Target>,
}

impl Slot {
    /// Whether the peer answers it.
    fn is_answered(&self) -> bool {
        self.header.acknowledge || self.into.is_some()
    }
}

/// What the poster hands over.
#[derive(Debug)]
pub(crate) struct Posting<'a> {
    pub(crate) id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) signalled: bool,
    pub(crate) kind: RequestKind,
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) immediate: u32,
    pub(crate) bytes: u32,
    pub(crate) region: Option<Target>,
    pub(crate) inline: &'a [u8],
    pub(crate) into: Option<Target>,
}

impl Posting<'_> {
    /// A write of nothing to nowhere, to be filled in.
    pub(crate) fn blank(id: u64, signalled: bool) -> Posting<'static> {
        Posting {
            id,
            opcode: Opcode::Write,
            signalled,
            kind: RequestKind::Write,
            address: 0,
            key: 0,
            immediate: 0,
            bytes: 0,
            region: None,
            inline: &[],
            into: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) state: ConnectionState,
    dial: Option<Dial>,
    connect_until: Instant,
    socket: Option<Arc<TcpStream>>,
    /// Outstanding requests, oldest first, with sequences that follow each other.
    slots: VecDeque<Slot>,
    /// How many of `slots` the peer answers.
    awaited: usize,
    looks: u32,
    /// How many of `slots` have been staged whole.
    staged: usize,
    /// How many payload bytes of the next are staged, once its header is.
    partial: Option<u32>,
    sequence: u64,
    /// Slots of unsignalled requests that have been carried out; the next completion gives them back.
    owed: u32,
    inline: Box<[u8]>,
    inline_stride: usize,
    out: Box<[u8]>,
    out_start: usize,
    out_end: usize,
    input: Box<[u8]>,
    splitter: AnswerSplitter,
    /// Bytes of the oldest read that have come, and whether the piece that is coming is its last.
    read_bytes: u32,
    read_last: bool,
    /// The socket no longer takes bytes; answers may still be in it.
    broken: bool,
    last_progress: Instant,
    gone_since: Option<Instant>,
}

/// Why the answers end the connection.
enum End {
    Gone,
    Refused {
        sequence: u64,
        refusal: Refusal,
    },
    Local {
        sequence: u64,
    },
    Frame(FrameError),
    /// An answer to something that was not asked.
    Unasked {
        sequence: u64,
    },
}

impl Requester {
    pub(crate) fn new(send_depth: usize, inline_bytes: usize) -> Self {
        let now = Instant::now();
        Self {
            state: ConnectionState::Initial,
            dial: None,
            connect_until: now,
            socket: None,
            slots: VecDeque::with_capacity(send_depth),
            awaited: 0,
            looks: 0,
            staged: 0,
            partial: None,
            sequence: 0,
            owed: 0,
            inline: vec![0; send_depth * inline_bytes].into(),
            inline_stride: inline_bytes,
            out: vec![0; OUT_BYTES].into(),
            out_start: 0,
            out_end: 0,
            input: vec![0; IN_BYTES].into(),
            splitter: AnswerSplitter::default(),
            read_bytes: 0,
            read_last: false,
            broken: false,
            last_progress: now,
            gone_since: None,
        }
    }

    pub(crate) fn connect(&mut self, dial: Dial, until: Instant) {
        self.dial = Some(dial);
        self.connect_until = until;
        self.state = ConnectionState::Connecting;
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Puts one request in the ring. The caller has seen to it that there is a slot, and flushes after the last.
    pub(crate) fn push(&mut self, posting: Posting<'_>) {
        if self.slots.is_empty() {
            self.last_progress = Instant::now();
        }
        self.sequence += 1;
        let header = RequestHeader {
            kind: posting.kind,
            acknowledge: posting.signalled,
            bytes: posting.bytes,
            address: posting.address,
            key: posting.key,
            immediate: posting.immediate,
            sequence: self.sequence,
        };
        let payload = match posting.region {
            Some(target) => Payload::Region(target),
            None if posting.inline.is_empty() => Payload::None,
            None => {
                let at = self.inline_at(self.sequence);
                self.inline[at..at + posting.inline.len()].copy_from_slice(posting.inline);
                Payload::Inline
            }
        };
        let slot = Slot {
            id: posting.id,
            opcode: posting.opcode,
            signalled: posting.signalled,
            header,
            payload,
            into: posting.into,
        };
        self.awaited += usize::from(slot.is_answered());
        self.slots.push_back(slot);
    }

    /// Start of a request's place in the ring of inline payloads.
    fn inline_at(&self, sequence: u64) -> usize {
        let depth = self.inline.len().checked_div(self.inline_stride).unwrap_or(1).max(1);
        let depth = u64::try_from(depth).unwrap_or(u64::MAX);
        usize::try_from(sequence % depth).unwrap_or(0) * self.inline_stride
    }

    /// Sends what the socket takes now. A failure is noted; the next look at the answers acts on it.
    pub(crate) fn flush(&mut self, link: &Link) {
        let Some(socket) = self.socket.clone() else { return };
        while !self.broken {
            if self.out_start == self.out_end {
                self.out_start = 0;
                self.out_end = 0;
                if let Err(sequence) = self.stage() {
                    self.end(link, End::Local { sequence });
                    return;
                }
                if self.out_end == 0 {
                    return;
                }
            }
            match send_now(&socket, &self.out[self.out_start..self.out_end]) {
                Ok(0) => return,
                Ok(count) => {
                    self.out_start += count;
                    self.last_progress = Instant::now();
                }
                Err(_) => self.broken = true,
            }
        }
    }

    /// Fills the empty out buffer from the ring. Fails with the request whose region is gone.
    fn stage(&mut self) -> Result<(), u64> {
        while let Some(slot) = self.slots.get(self.staged) {
            let sequence = slot.header.sequence;
            let done = match self.partial {
                Some(done) => done,
                None => {
                    let Some(to) = self.out.get_mut(self.out_end..self.out_end + REQUEST_HEADER_BYTES) else {
                        return Ok(());
                    };
                    to.copy_from_slice(&slot.header.encode());
                    self.out_end += REQUEST_HEADER_BYTES;
                    0
                }
            };
            let left = slot.header.payload_bytes() - done;
            let room = self.out.len() - self.out_end;
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(room);
            let to = self.out_end..self.out_end + take;
            match &slot.payload {
                Payload::None => {}
                Payload::Region(from) => {
                    let offset = from.offset + u64::from(done);
                    from.region.read(offset, &mut self.out[to]).map_err(|_| sequence)?;
                }
                Payload::Inline => {
                    let at = self.inline_at(sequence) + usize::try_from(done).unwrap_or(usize::MAX);
                    self.out[to].copy_from_slice(&self.inline[at..at + take]);
                }
            }
            self.out_end += take;
            // `take` is at most `left`, which has 32 bits.
            let taken = u32::try_from(take).unwrap_or(left);
            if taken < left {
                self.partial = Some(done + taken);
                return Ok(());
            }
            self.partial = None;
            self.staged += 1;
        }
        Ok(())
    }

    /// Moves the connection on as far as it goes without waiting; whether something came of it.
    fn progress(&mut self, link: &Link) -> bool {
        match self.state {
            ConnectionState::Initial | ConnectionState::Error(_) => return false,
            ConnectionState::Connecting | ConnectionState::Ready => {}
        }
        let mut changed = false;
        if let Some(dial) = &mut self.dial {
            let options = &link.domain.options;
            let stepped = dial.step(&options.secret, options.group).and_then(|done| {
                if done {
                    limit_waits(&dial.socket, options.stall_timeout)?;
                }
                Ok(done)
            });
            match stepped {
                Ok(true) => self.socket = self.dial.take().map(|dial| dial.socket),
                Ok(false) => {}
                Err(error) => {
                    slog::warn!(link.logger, "no fabric connection";
                        "peer" => %dial.peer.address, "reason" => %error);
                    self.fail(link, ErrorCause::ConnectFailed, None);
                    return true;
                }
            }
        }
        if self.state == ConnectionState::Connecting {
            if self.socket.is_some() && link.attached.load(Ordering::Acquire) {
                self.state = ConnectionState::Ready;
                changed = true;
            } else if Instant::now() >= self.connect_until {
                slog::warn!(link.logger, "no fabric connection"; "reason" => "the peer took too long");
                self.fail(link, ErrorCause::ConnectFailed, None);
                return true;
            }
        }
        if self.socket.is_some() {
            self.flush(link);
            let look = link.look.swap(false, Ordering::Relaxed);
            let ended = link.agent_ended.load(Ordering::Acquire);
            if look || ended || self.broken || self.awaits_answer() {
                changed |= self.take_answers(link);
            }
        }
        changed | self.check_ends(link)
    }

    /// Whether a look at the answers may be worth a system call: one is due, or it is time to see whether the peer has refused a request that it need not
    /// answer.
    fn awaits_answer(&mut self) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        self.awaited > 0 || self.looks.is_multiple_of(LOOK_EVERY)
    }

    /// The agent's end, and the time that requests may make no progress.
    fn check_ends(&mut self, link: &Link) -> bool {
        if matches!(self.state, ConnectionState::Error(_)) {
            return true;
        }
        match link.agent_end() {
            None => {}
            Some(AgentEnd::Refused) => {
                self.fail(link, ErrorCause::PeerRefused, None);
                return true;
            }
            Some(AgentEnd::Broken) => {
                self.fail(link, ErrorCause::PeerBroken, None);
                return true;
            }
            Some(AgentEnd::Gone) => {
                // What ended the peer may be its answer to one of our requests, and that comes by the other socket.
                let since = *self.gone_since.get_or_insert_with(Instant::now);
                if self.slots.is_empty() || since.elapsed() >= LAST_WORD {
                    self.end(link, End::Gone);
                    return true;
                }
            }
        }
        if !self.slots.is_empty() && self.last_progress.elapsed() >= link.domain.options.stall_timeout {
            slog::warn!(link.logger, "closed a fabric connection";
                "reason" => "requests made no progress", "outstanding" => self.slots.len());
            self.end(link, End::Gone);
            return true;
        }
        false
    }

    /// How long a sleep may last for this connection's sake.
    fn clock(&self, link: &Link) -> Option<Duration> {
        let now = Instant::now();
        if self.state == ConnectionState::Connecting {
            return Some(self.connect_until.saturating_duration_since(now));
        }
        if self.slots.is_empty() {
            return None;
        }
        let stall = self.last_progress + link.domain.options.stall_timeout;
        let until = self.gone_since.map_or(stall, |since| stall.min(since + LAST_WORD));
        Some(until.saturating_duration_since(now))
    }

    fn take_answers(&mut self, link: &Link) -> bool {
        let Some(socket) = self.socket.clone() else { return false };
        let mut changed = false;
        loop {
            let (count, more) = match receive_now(&socket, &mut self.input) {
                Ok(Received::Bytes(count)) => (count, count == self.input.len()),
                Ok(Received::Nothing) if !self.broken => return changed,
                Ok(Received::Nothing | Received::End) | Err(_) => {
                    self.end(link, End::Gone);
                    return true;
                }
            };
            self.last_progress = Instant::now();
            changed = true;
            // Lent out for the time of the loop; no allocation is made for an empty box.
            let input = std::mem::take(&mut self.input);
            let taken = self.take_pieces(link, &input[..count]);
            self.input = input;
            if let Err(end) = taken {
                self.end(link, end);
                return true;
            }
            if !more && !self.broken && !link.agent_ended.load(Ordering::Acquire) {
                return changed;
            }
        }
    }

    fn take_pieces(&mut self, link: &Link, mut input: &[u8]) -> Result<(), End> {
        while let Some(piece) = self.splitter.next(&mut input).map_err(End::Frame)? {
            match piece {
                Piece::Begin(AnswerHeader { answer, sequence }) => {
                    let staged = self.staged.checked_sub(1).and_then(|last| self.slots.get(last));
                    if staged.is_none_or(|last| sequence > last.header.sequence) {
                        return Err(End::Unasked { sequence });
                    }
                    self.take_answer(link, answer, sequence)?;
                }
                Piece::Payload { offset, bytes, last } => self.take_data(link, offset, bytes, last)?,
            }
        }
        Ok(())
    }

    fn take_answer(&mut self, link: &Link, answer: Answer, sequence: u64) -> Result<(), End> {
        match answer {
            Answer::Done => self.complete_through(link, sequence),
            Answer::Refused(refusal) => {
                self.complete_through(link, sequence.saturating_sub(1))?;
                match self.slots.front() {
                    Some(front) if front.header.sequence == sequence => {
                        Err(End::Refused { sequence, refusal })
                    }
                    Some(_) | None => Err(End::Unasked { sequence }),
                }
            }
            Answer::Data { bytes, last } => {
                self.complete_through(link, sequence.saturating_sub(1))?;
                let front = self.slots.front().filter(|front| front.header.sequence == sequence);
                let into = front.and_then(|front| front.into.as_ref());
                let wanted = into.map(|into| into.bytes - self.read_bytes);
                let fits = wanted.is_some_and(|wanted| if last { bytes == wanted } else { bytes < wanted });
                // A piece that brings nothing and is not the last would be no answer at all.
                if !fits || (bytes == 0 && !last) {
                    return Err(End::Unasked { sequence });
                }
                self.read_last = last;
                if bytes == 0 { self.complete_read(link) } else { Ok(()) }
            }
        }
    }

    /// Places bytes of the oldest read.
    fn take_data(&mut self, link: &Link, offset: u32, bytes: &[u8], last: bool) -> Result<(), End> {
        let Some((sequence, into)) =
            self.slots.front().and_then(|front| Some((front.header.sequence, front.into.as_ref()?)))
        else {
            return Err(End::Gone);
        };
        let at = into.offset + u64::from(self.read_bytes) + u64::from(offset);
        into.region.write(at, bytes).map_err(|_| End::Local { sequence })?;
        if last {
            // The piece is whole: its length was checked against the read's when it began.
            self.read_bytes += offset + u32::try_from(bytes.len()).unwrap_or(0);
            if self.read_last {
                return self.complete_read(link);
            }
        }
        Ok(())
    }

    fn complete_read(&mut self, link: &Link) -> Result<(), End> {
        let Some(slot) = self.pop() else { return Err(End::Gone) };
        let bytes = std::mem::take(&mut self.read_bytes);
        self.complete(link, &slot, Status::Success, bytes);
        Ok(())
    }

    /// Completes all requests up to and with `sequence`.
    fn complete_through(&mut self, link: &Link, sequence: u64) -> Result<(), End> {
        while let Some(front) = self.slots.front().filter(|front| front.header.sequence <= sequence) {
            if front.into.is_some() {
                // Reads are done when their bytes are here.
                return Err(End::Unasked { sequence });
            }
            if let Some(slot) = self.pop() {
                if slot.signalled {
                    self.complete(link, &slot, Status::Success, 0);
                } else {
                    self.owed += 1;
                }
            }
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.staged = self.staged.saturating_sub(1);
        self.awaited -= usize::from(slot.is_answered());
        Some(slot)
    }

    fn complete(&mut self, link: &Link, slot: &Slot, status: Status, bytes: u32) {
        if slot.opcode == Opcode::Read && !slot.signalled && status.is_success() {
            self.owed += 1;
            return;
        }
        let slots = std::mem::take(&mut self.owed) + 1;
        let completion = Completion {
            id: slot.id,
            connection: link.id,
            opcode: slot.opcode,
            status,
            bytes,
            immediate: None,
        };
        link.queue.push(Ready { completion, slots });
    }

    /// Ends the connection for what came, or did not come, on the requester's socket.
    fn end(&mut self, link: &Link, end: End) {
        let oldest = self.slots.front().map(|front| front.header.sequence);
        match end {
            End::Gone => {
                let cause = if self.state == ConnectionState::Connecting {
                    ErrorCause::ConnectFailed
                } else {
                    ErrorCause::PeerGone
                };
                self.fail(link, cause, oldest.map(|oldest| (oldest, Status::PeerGone)));
            }
            End::Refused { sequence, refusal } => {
                let status = match refusal {
                    Refusal::Access => Status::RemoteAccess,
                    Refusal::ReceiverNotReady => Status::ReceiverNotReady,
                    Refusal::Invalid => Status::RemoteInvalid,
                    Refusal::Failure => Status::RemoteFailure,
                };
                self.fail(link, ErrorCause::RequestFailed, Some((sequence, status)));
            }
            End::Local { sequence } => {
                self.fail(link, ErrorCause::RequestFailed, Some((sequence, Status::LocalAccess)));
            }
            End::Frame(error) => {
                slog::warn!(link.logger, "closed a fabric connection"; "reason" => %error);
                self.fail(link, ErrorCause::PeerBroken, oldest.map(|oldest| (oldest, Status::PeerGone)));
            }
            End::Unasked { sequence } => {
                slog::warn!(link.logger, "closed a fabric connection";
                    "reason" => "an answer to what was not asked", "sequence" => sequence);
                self.fail(link, ErrorCause::PeerBroken, oldest.map(|oldest| (oldest, Status::PeerGone)));
            }
        }
    }

    /// Moves the connection to error: nothing of the peer lands any more, and all that is posted completes, `first` with its own status.
    pub(crate) fn fail(&mut self, link: &Link, cause: ErrorCause, first: Option<(u64, Status)>) {
        if matches!(self.state, ConnectionState::Error(_)) {
            return;
        }
        self.state = ConnectionState::Error(cause);
        link.close_grants();
        if let Some(socket) = self.socket.take() {
            // It fails only where the socket is not connected any more.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.dial = None;
        link.shut_incoming(false);
        while let Some(slot) = self.pop() {
            let status = match first {
                Some((sequence, status)) if sequence == slot.header.sequence => status,
                Some(_) | None => Status::Flushed,
            };
            self.complete(link, &slot, status, 0);
        }
        link.sends_used.fetch_sub(std::mem::take(&mut self.owed), Ordering::Relaxed);
        // Behind the requests, so that the cause is polled first.
        link.flush_receives();
        link.queue.changed();
    }
}

impl Link {
    pub(crate) fn progress(&self) -> bool {
        lock(&self.requester).progress(self)
    }

    /// Adds the sockets to sleep on, and says how long at most.
    pub(crate) fn interest(&self, sockets: &mut Vec<Interest>) -> Duration {
        let mut longest = Duration::MAX;
        if self.lent.load(Ordering::Acquire) {
            match self.serving.try_lock() {
                Ok(serving) => {
                    let interest = |agent: &Agent| Interest {
                        socket: Arc::clone(agent.socket()),
                        flags: PollFlags::IN,
                        answers_of: None,
                    };
                    sockets.extend(serving.iter().map(interest));
                }
                // The agent's thread looks at it just now, and need not take it back: a sleep that does not hear it is to be short.
                Err(_) => longest = LOOK,
            }
        }
        let requester = lock(&self.requester);
        if let Some(dial) = &requester.dial {
            let flags = if dial.awaits_connect() { PollFlags::OUT } else { PollFlags::IN };
            sockets.push(Interest { socket: Arc::clone(&dial.socket), flags, answers_of: None });
        } else if let Some(socket) = &requester.socket {
            let backlog = requester.out_start < requester.out_end || requester.staged < requester.slots.len();
            let flags = if backlog { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            sockets.push(Interest { socket: Arc::clone(socket), flags, answers_of: Some(self.id) });
        }
        requester.clock(self).map_or(longest, |clock| clock.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_an_answer_are_made_while_one_is_due_and_rarely_where_only_a_refusal_can_come() {
        let mut requester = Requester::new(4, 0);
        assert!(!requester.awaits_answer(), "nothing is outstanding");
        requester.push(Posting::blank(1, false));
        let looks = (0..10 * LOOK_EVERY).filter(|_| requester.awaits_answer()).count();
        assert_eq!(looks, 10);
        requester.push(Posting::blank(1, true));
        assert!((0..10).all(|_| requester.awaits_answer()));
        while requester.pop().is_some() {}
        assert_eq!(requester.awaited, 0);
    }
}
