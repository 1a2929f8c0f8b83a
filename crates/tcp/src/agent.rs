//! The passive side of a connection: reads the peer's requests, carries them out and answers, without the engine.
//!
//! A thread for each connection does so, so that one-sided operations need nobody else. While requests come densely and the owner of the
//! completion queue polls it or waits on it all the time, the thread *lends* its socket to the owner: a request is then carried out by the
//! thread that acts on it next, without a wake-up in between. The thread looks each [`LOOK`] whether the owner still comes by, and takes
//! the socket back when it does not, when a request has to wait for something, or when requests come rarely.
//!
//! Invariants:
//! * Nothing is written to or read from memory outside a grant that is in force at that moment: each piece is copied while the grants'
//!   guard is held (DESIGN.md section 7.2).
//! * Nothing is allocated by a length that the peer sent.
//! * An answer leaves only after what it acknowledges has been done, receive completions included.
//! * Whoever serves holds the lock on the [`Agent`]; the queue's owner never waits for it, nor within it.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use windlass_fabric::{Access, Opcode, Status};

use crate::domain::lock;
use crate::frame::{
    ANSWER_BYTES_MAX, ANSWER_HEADER_BYTES, Answer, AnswerHeader, FrameError, Piece, Refusal, RequestHeader,
    RequestKind, RequestSplitter,
};
use crate::link::{AgentEnd, Link, NextReceive, Placing, Target};
use crate::socket::{Received, receive_now, receive_waiting, send_all, send_now};
use crate::spin::Spin;

const IN_BYTES: usize = 256 << 10;
const OUT_BYTES: usize = ANSWER_HEADER_BYTES + ANSWER_BYTES_MAX as usize;
/// How long a refused peer may take to read its refusal and close.
const LINGER: Duration = Duration::from_secs(1);
/// Full reads after which the queue's owner goes on with its own work, however much more has come.
const READS_AT_ONCE: u32 = 4;
/// How often the thread looks after a socket that it has lent.
pub(crate) const LOOK: Duration = Duration::from_millis(2);
/// Looks without a request after which it takes the socket back.
const LOOKS_IDLE: u32 = 6;
/// The socket is lent once two reads in a row came after less than this.
const DENSE: Duration = Duration::from_millis(1);

/// Why the agent stops.
#[derive(Debug)]
enum Stop {
    /// The peer closed, or the socket failed, or this end closed.
    Gone,
    Refused {
        sequence: u64,
        refusal: Refusal,
        /// The request came late: what it names was open to the peer, and was taken back.
        is_late: bool,
    },
    Broken(FrameError),
}

impl Stop {
    fn refused(sequence: u64, refusal: Refusal) -> Self {
        Self::Refused { sequence, refusal, is_late: false }
    }

    /// The request names what is not open to the peer.
    fn no_access(link: &Link, header: &RequestHeader) -> Self {
        let is_late = link.grants().is_taken_back(header.key);
        Self::Refused { sequence: header.sequence, refusal: Refusal::Access, is_late }
    }
}

impl From<std::io::Error> for Stop {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// Why whoever serves can't go on.
#[derive(Debug)]
enum Halt {
    Stop(Stop),
    /// Only the thread may do what comes next, since it may have to wait.
    Thread,
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<std::io::Error> for Halt {
    fn from(error: std::io::Error) -> Self {
        Self::Stop(error.into())
    }
}

/// What the request whose payload is coming is about.
#[derive(Debug)]
enum Current {
    /// Nothing is coming.
    None,
    Write(RequestHeader),
    Send {
        header: RequestHeader,
        into: Option<Target>,
    },
}

/// What was left to the thread.
#[derive(Clone, Copy, Debug)]
enum Held {
    Begin(RequestHeader),
    /// The bytes of this write are placed; it needs a receive.
    Written(RequestHeader),
}

/// The state of the passive side. See the module.
#[derive(Debug)]
pub(crate) struct Agent {
    socket: Arc<TcpStream>,
    splitter: RequestSplitter,
    current: Current,
    /// What has been read and not been looked at yet.
    input: Box<[u8]>,
    unread: Range<usize>,
    held: Option<Held>,
    /// The last request to be acknowledged, once the input is used up.
    acknowledge: Option<u64>,
    /// The part of an answer that the socket did not take.
    unsent: Option<([u8; ANSWER_HEADER_BYTES], usize)>,
    /// A completion was pushed since the queue was told.
    tell: bool,
    /// Found by the queue's owner, for the thread to act on.
    stop: Option<Stop>,
    out: Box<[u8]>,
    /// Reads that brought something.
    reads: u64,
    /// Whether the thread serves: it may wait.
    may_wait: bool,
}

impl Agent {
    pub(crate) fn new(socket: Arc<TcpStream>) -> Agent {
        Agent {
            socket,
            splitter: RequestSplitter::default(),
            current: Current::None,
            input: vec![0; IN_BYTES].into(),
            unread: 0..0,
            held: None,
            acknowledge: None,
            unsent: None,
            tell: false,
            stop: None,
            out: vec![0; OUT_BYTES].into(),
            reads: 0,
            may_wait: true,
        }
    }

    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }
}

/// The thread's body: runs until the connection ends.
pub(crate) fn run(link: &Link, address: SocketAddr) {
    let guard = EndOnPanic(link);
    let stop = serve(link);
    match stop {
        Stop::Gone => {
            link.close_grants();
            link.agent_ends(AgentEnd::Gone);
        }
        Stop::Refused { sequence, refusal, is_late } => {
            link.close_grants();
            if is_late {
                slog::info!(link.logger, "a late request of the peer found its memory window taken back, as at the end of a tenure";
                    "peer" => %address, "request" => sequence);
            } else {
                slog::info!(link.logger, "refused a request of the peer: {}", refusal;
                    "peer" => %address, "request" => sequence);
            }
            if let Some(agent) = &mut *lock(&link.serving) {
                agent.say_last(link, sequence, refusal);
            }
        }
        Stop::Broken(error) => {
            link.close_grants();
            slog::warn!(link.logger, "closed a fabric connection"; "peer" => %address, "reason" => %error);
            if let Some(agent) = &*lock(&link.serving) {
                // It fails only where the socket is not connected any more.
                let _ = agent.socket.shutdown(Shutdown::Both);
            }
            link.agent_ends(AgentEnd::Broken);
        }
    }
    std::mem::forget(guard);
}

/// A panic in here (a programmer's error) must not leave a connection that looks alive.
struct EndOnPanic<'a>(&'a Link);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.close_grants();
        self.0.agent_ends(AgentEnd::Gone);
    }
}

/// Serves, lends the socket, takes it back.
fn serve(link: &Link) -> Stop {
    let mut spin = Spin::new(link.domain.options.spin);
    loop {
        // A panic of the queue's owner has left the agent in the middle of something: there is no way to go on with this connection.
        let Ok(mut serving) = link.serving.lock() else { return Stop::Gone };
        let Some(agent) = &mut *serving else { return Stop::Gone };
        match agent.serve_alone(link, &mut spin) {
            Ok(()) => {}
            Err(stop) => return stop,
        }
        agent.may_wait = false;
        let reads = agent.reads;
        link.lent.store(true, Ordering::Release);
        drop(serving);
        // It may sleep, and not on this socket.
        link.queue.changed();
        watch(link, reads);
        link.lent.store(false, Ordering::Release);
    }
}

/// Looks after a socket that is lent, until it is to be taken back.
fn watch(link: &Link, mut reads: u64) {
    let (mut idle, mut visits) = (0, link.queue.visits());
    while !link.take_back.swap(false, Ordering::AcqRel) {
        std::thread::park_timeout(LOOK);
        let now = link.queue.visits();
        if now == visits && !link.queue.is_waited_on() {
            return;
        }
        visits = now;
        let serving = match link.serving.try_lock() {
            Ok(serving) => serving,
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Poisoned(_)) => return,
        };
        let Some(agent) = &*serving else { return };
        idle = if agent.reads == reads { idle + 1 } else { 0 };
        reads = agent.reads;
        if idle >= LOOKS_IDLE {
            return;
        }
    }
}

impl Link {
    /// Carries out what the peer has sent, on the thread of the queue's owner and without waiting, if the socket is lent. Whether anything came.
    pub(crate) fn serve_lent(&self) -> bool {
        if !self.lent.load(Ordering::Acquire) {
            return false;
        }
        let Ok(mut serving) = self.serving.try_lock() else { return false };
        // The thread may have taken it back meanwhile.
        let Some(agent) = serving.as_mut().filter(|_| self.lent.load(Ordering::Acquire)) else {
            return false;
        };
        match agent.serve_now(self) {
            Ok(came) => came,
            Err(halt) => {
                if let Halt::Stop(stop) = halt {
                    agent.stop = Some(stop);
                }
                self.lent.store(false, Ordering::Release);
                drop(serving);
                self.recall();
                true
            }
        }
    }
}

impl Agent {
    /// On the thread: until the socket is to be lent.
    fn serve_alone(&mut self, link: &Link, spin: &mut Spin) -> Result<(), Stop> {
        self.may_wait = true;
        let stopped = |halt| match halt {
            Halt::Stop(stop) => stop,
            Halt::Thread => unreachable!("the thread may wait"),
        };
        if let Some(stop) = self.stop.take() {
            return Err(stop);
        }
        self.carry_out(link).map_err(stopped)?;
        let (mut was_dense, mut visits) = (false, link.queue.visits());
        loop {
            let start = Instant::now();
            let count = self.receive(spin)?;
            let is_dense = start.elapsed() < DENSE;
            self.unread = 0..count;
            self.reads += 1;
            self.carry_out(link).map_err(stopped)?;
            let now = link.queue.visits();
            if was_dense && is_dense && now != visits {
                return Ok(());
            }
            (was_dense, visits) = (is_dense, now);
        }
    }

    /// On the thread of the queue's owner.
    fn serve_now(&mut self, link: &Link) -> Result<bool, Halt> {
        let mut came = false;
        for _ in 0..READS_AT_ONCE {
            let count = match receive_now(&self.socket, &mut self.input)? {
                Received::Bytes(count) => count,
                Received::Nothing => return Ok(came),
                Received::End => return Err(Stop::Gone.into()),
            };
            came = true;
            self.unread = 0..count;
            self.reads += 1;
            self.carry_out(link)?;
            if count < self.input.len() {
                break;
            }
        }
        Ok(came)
    }

    /// Carries out all that has been read, and answers.
    fn carry_out(&mut self, link: &Link) -> Result<(), Halt> {
        let carried_out = self.carry_on(link);
        // The acknowledgement first: the peer's wait is the longer one.
        let answered = self.answer_done();
        if std::mem::take(&mut self.tell) && self.may_wait {
            link.queue.changed();
        }
        carried_out.and(answered)
    }

    fn carry_on(&mut self, link: &Link) -> Result<(), Halt> {
        match self.held.take() {
            None => {}
            Some(Held::Begin(header)) => self.begin(link, header)?,
            Some(Held::Written(header)) => self.written(link, &header)?,
        }
        // Lent out for the time of the loop; no allocation is made for an empty box.
        let input = std::mem::take(&mut self.input);
        let carried_out = self.take_pieces(link, &input);
        self.input = input;
        carried_out
    }

    fn take_pieces(&mut self, link: &Link, input: &[u8]) -> Result<(), Halt> {
        let end = self.unread.end;
        let mut rest = &input[self.unread.clone()];
        loop {
            let next = self.splitter.next(&mut rest);
            self.unread = end - rest.len()..end;
            match next {
                Ok(Some(Piece::Begin(header))) => self.begin(link, header)?,
                Ok(Some(Piece::Payload { offset, bytes, last })) => self.place(link, offset, bytes, last)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Stop::Broken(error).into()),
            }
        }
    }

    fn receive(&mut self, spin: &mut Spin) -> Result<usize, Stop> {
        let start = Instant::now();
        let (socket, buffer) = (&self.socket, &mut self.input);
        let spun = spin.turn(start, || match receive_now(socket, buffer) {
            Ok(Received::Nothing) => None,
            other => Some(other),
        });
        let received = match spun {
            Some(received) => received,
            None => receive_waiting(&self.socket, &mut self.input),
        };
        spin.learn(start.elapsed());
        match received? {
            Received::Bytes(count) => Ok(count),
            // A receive without a time limit does not come back with nothing.
            Received::Nothing | Received::End => Err(Stop::Gone),
        }
    }

    fn begin(&mut self, link: &Link, header: RequestHeader) -> Result<(), Halt> {
        let sequence = header.sequence;
        match header.kind {
            RequestKind::Write | RequestKind::WriteImmediate => {
                let access = Access::REMOTE_WRITE;
                let grants = link.grants();
                let open = header.bytes == 0
                    || grants
                        .open(&link.domain, header.key, access, header.address, header.bytes, |_| Some(()))
                        .is_some();
                drop(grants);
                if !open {
                    return Err(Stop::no_access(link, &header).into());
                }
                if header.bytes == 0 {
                    return self.written(link, &header);
                }
                self.current = Current::Write(header);
                Ok(())
            }
            RequestKind::Send | RequestKind::SendImmediate => {
                let into = self.receiver(link, sequence, Held::Begin(header))?;
                let room = into.as_ref().map_or(0, |into| into.bytes);
                if header.bytes > room {
                    self.finish_receive(link, Opcode::Receive, Status::LocalAccess, 0, None);
                    return Err(Stop::refused(sequence, Refusal::Invalid).into());
                }
                if header.bytes == 0 {
                    self.sent(link, &header);
                    return Ok(());
                }
                self.current = Current::Send { header, into };
                Ok(())
            }
            // Its answer may be long, and wait for room.
            RequestKind::Read if !self.may_wait => {
                self.held = Some(Held::Begin(header));
                Err(Halt::Thread)
            }
            RequestKind::Read => self.read(link, &header),
            RequestKind::Barrier => {
                self.done(&header);
                Ok(())
            }
        }
    }

    /// Places a piece of the current payload.
    fn place(&mut self, link: &Link, offset: u32, bytes: &[u8], last: bool) -> Result<(), Halt> {
        // The splitter gives no payload without a header before it, and only these two have one.
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => Err(Stop::Gone.into()),
            Current::Write(header) => {
                // Inside the message, whose whole range was found to fit when it began; the grant may have gone since.
                let at = header.address + u64::from(offset);
                let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let grants = link.grants();
                let placed =
                    grants.open(&link.domain, header.key, Access::REMOTE_WRITE, at, count, |region| {
                        region.write(at, bytes).ok()
                    });
                drop(grants);
                placed.ok_or_else(|| Stop::no_access(link, &header))?;
                if last {
                    return self.written(link, &header);
                }
                self.current = Current::Write(header);
                Ok(())
            }
            Current::Send { header, into } => {
                // Longer than the receive's buffer it would have been refused when it began.
                match into.as_ref().map_or(Placing::Done, |into| link.fill_receive(into, offset, bytes)) {
                    Placing::Done => {}
                    Placing::Flushed => return Err(Stop::Gone.into()),
                    Placing::Outside => {
                        self.finish_receive(link, Opcode::Receive, Status::LocalAccess, 0, None);
                        let sequence = header.sequence;
                        return Err(Stop::refused(sequence, Refusal::Failure).into());
                    }
                }
                if last {
                    self.sent(link, &header);
                } else {
                    self.current = Current::Send { header, into };
                }
                Ok(())
            }
        }
    }

    /// A write's bytes have been placed.
    fn written(&mut self, link: &Link, header: &RequestHeader) -> Result<(), Halt> {
        if header.kind == RequestKind::WriteImmediate {
            self.receiver(link, header.sequence, Held::Written(*header))?;
            let immediate = Some(header.immediate);
            self.finish_receive(link, Opcode::ReceiveWrite, Status::Success, header.bytes, immediate);
        }
        self.done(header);
        Ok(())
    }

    fn sent(&mut self, link: &Link, header: &RequestHeader) {
        let immediate = (header.kind == RequestKind::SendImmediate).then_some(header.immediate);
        self.finish_receive(link, Opcode::Receive, Status::Success, header.bytes, immediate);
        self.done(header);
    }

    fn done(&mut self, header: &RequestHeader) {
        if header.acknowledge {
            self.acknowledge = Some(header.sequence);
        }
    }

    /// The next receive, which stays in its place until it is finished. Where none is posted and the thread alone may wait for one, `held` is left
    /// to it.
    fn receiver(&mut self, link: &Link, sequence: u64, held: Held) -> Result<Option<Target>, Halt> {
        match link.next_receive(Duration::ZERO) {
            NextReceive::Posted(into) => return Ok(into),
            NextReceive::Closed => return Err(Stop::Gone.into()),
            NextReceive::NotReady => {}
        }
        if !self.may_wait {
            self.held = Some(held);
            return Err(Halt::Thread);
        }
        // Before waiting say what there is to say: it may be what the receives wait for.
        self.answer_done()?;
        if std::mem::take(&mut self.tell) {
            link.queue.changed();
        }
        match link.next_receive(link.domain.options.receiver_wait) {
            NextReceive::Posted(into) => Ok(into),
            NextReceive::NotReady => Err(Stop::refused(sequence, Refusal::ReceiverNotReady).into()),
            NextReceive::Closed => Err(Stop::Gone.into()),
        }
    }

    fn finish_receive(
        &mut self,
        link: &Link,
        opcode: Opcode,
        status: Status,
        bytes: u32,
        immediate: Option<u32>,
    ) {
        link.finish_receive(opcode, status, bytes, immediate);
        self.tell = true;
    }

    /// Answers a read, piece by piece.
    fn read(&mut self, link: &Link, header: &RequestHeader) -> Result<(), Halt> {
        let refused = || Stop::no_access(link, header);
        self.answer_done()?;
        let mut done = 0;
        loop {
            let bytes = (header.bytes - done).min(ANSWER_BYTES_MAX);
            let end = ANSWER_HEADER_BYTES + usize::try_from(bytes).unwrap_or(0);
            let last = done + bytes == header.bytes;
            let piece = AnswerHeader { answer: Answer::Data { bytes, last }, sequence: header.sequence };
            self.out[..ANSWER_HEADER_BYTES].copy_from_slice(&piece.encode());
            if bytes > 0 {
                // The whole message, so that nothing is sent of one that does not fit.
                let whole = header.bytes - done;
                let at = header.address.checked_add(u64::from(done)).ok_or_else(refused)?;
                let into = &mut self.out[ANSWER_HEADER_BYTES..end];
                let grants = link.grants();
                let copied =
                    grants.open(&link.domain, header.key, Access::REMOTE_READ, at, whole, |region| {
                        region.read(at, into).ok()
                    });
                drop(grants);
                copied.ok_or_else(refused)?;
            }
            send_all(&self.socket, &self.out[..end])?;
            done += bytes;
            if last {
                return Ok(());
            }
        }
    }

    /// Sends the acknowledgement that is due. What the socket does not take is left to the thread, if it is another one that serves.
    fn answer_done(&mut self) -> Result<(), Halt> {
        if let Some((answer, from)) = self.unsent.take() {
            send_all(&self.socket, &answer[from..])?;
        }
        let Some(sequence) = self.acknowledge.take() else { return Ok(()) };
        let answer = AnswerHeader { answer: Answer::Done, sequence };
        if self.may_wait {
            return Ok(self.say(&answer)?);
        }
        let answer = answer.encode();
        let sent = send_now(&self.socket, &answer)?;
        if sent < answer.len() {
            self.unsent = Some((answer, sent));
            return Err(Halt::Thread);
        }
        Ok(())
    }

    /// Sends an answer behind what the socket has not taken yet of the one before: a half of that and then another would be no answer at all.
    fn say(&mut self, answer: &AnswerHeader) -> std::io::Result<()> {
        if let Some((before, from)) = self.unsent.take() {
            send_all(&self.socket, &before[from..])?;
        }
        send_all(&self.socket, &answer.encode())
    }

    /// Tells the peer of its refusal, and waits a bounded time for it to close, so that nothing overtakes the word.
    fn say_last(&mut self, link: &Link, sequence: u64, refusal: Refusal) {
        let said = self.say(&AnswerHeader { answer: Answer::Refused(refusal), sequence });
        // Only now may this end's own closing be seen by the peer.
        link.agent_ends(AgentEnd::Refused);
        if said.is_err() || self.socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + LINGER;
        while Instant::now() < until && self.socket.set_read_timeout(Some(LINGER)).is_ok() {
            match receive_waiting(&self.socket, &mut self.out) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Nothing | Received::End) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
