//! The passive side of a connection: a thread that reads the peer's requests, carries them out and answers, without the engine.
//!
//! Invariants:
//! * Nothing is written to or read from memory outside a grant that is in force at that moment: each piece is copied while the grants'
//!   guard is held (DESIGN.md section 7.2).
//! * Nothing is allocated by a length that the peer sent.
//! * An answer leaves only after what it acknowledges has been done, receive completions included.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use windlass_fabric::{Access, Opcode, Status};

use crate::frame::{
    ANSWER_BYTES_MAX, ANSWER_HEADER_BYTES, Answer, AnswerHeader, FrameError, Piece, Refusal, RequestHeader,
    RequestKind, RequestSplitter,
};
use crate::link::{AgentEnd, Link, NextReceive, Target};
use crate::socket::{Received, receive_now, receive_waiting, send_all};
use crate::spin::Spin;

const IN_BYTES: usize = 256 << 10;
const OUT_BYTES: usize = ANSWER_HEADER_BYTES + ANSWER_BYTES_MAX as usize;
/// How long a refused peer may take to read its refusal and close.
const LINGER: Duration = Duration::from_secs(1);

/// Why the agent stops.
enum Stop {
    /// The peer closed, or the socket failed, or this end closed.
    Gone,
    Refused {
        sequence: u64,
        refusal: Refusal,
    },
    Broken(FrameError),
}

impl From<std::io::Error> for Stop {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// What the request whose payload is coming is about.
enum Current {
    /// Nothing is coming.
    None,
    Write(RequestHeader),
    Send {
        header: RequestHeader,
        into: Option<Target>,
    },
}

struct Agent<'a> {
    link: &'a Link,
    socket: &'a TcpStream,
    current: Current,
    /// The last request to be acknowledged, once the input is used up.
    acknowledge: Option<u64>,
    /// A completion was pushed since the queue was told.
    tell: bool,
    out: Box<[u8]>,
}

/// Runs until the connection ends.
pub(crate) fn run(link: &Link, socket: &TcpStream, address: SocketAddr) {
    let guard = EndOnPanic(link);
    let mut agent = Agent {
        link,
        socket,
        current: Current::None,
        acknowledge: None,
        tell: false,
        out: vec![0; OUT_BYTES].into(),
    };
    match agent.serve() {
        Stop::Gone => {
            link.close_grants();
            link.agent_ends(AgentEnd::Gone);
        }
        Stop::Refused { sequence, refusal } => {
            link.close_grants();
            slog::info!(link.logger, "refused a request of the peer";
                "peer" => %address, "request" => sequence, "refusal" => ?refusal);
            agent.say_last(sequence, refusal);
        }
        Stop::Broken(error) => {
            link.close_grants();
            slog::warn!(link.logger, "closed a fabric connection"; "peer" => %address, "reason" => %error);
            // It fails only where the socket is not connected any more.
            let _ = socket.shutdown(Shutdown::Both);
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

impl Agent<'_> {
    fn serve(&mut self) -> Stop {
        let mut splitter = RequestSplitter::default();
        let mut buffer = vec![0; IN_BYTES];
        let mut spin = Spin::new(self.link.domain.options.spin);
        loop {
            let count = match self.receive(&mut buffer, &mut spin) {
                Ok(count) => count,
                Err(stop) => return stop,
            };
            let mut input = &buffer[..count];
            let carried_out = loop {
                match splitter.next(&mut input) {
                    Ok(Some(Piece::Begin(header))) => {
                        if let Err(stop) = self.begin(header) {
                            break Err(stop);
                        }
                    }
                    Ok(Some(Piece::Payload { offset, bytes, last })) => {
                        if let Err(stop) = self.place(offset, bytes, last) {
                            break Err(stop);
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(Stop::Broken(error)),
                }
            };
            // The acknowledgement first: the peer's wait is the longer one.
            let answered = self.answer_done();
            if std::mem::take(&mut self.tell) {
                self.link.queue.changed();
            }
            if let Err(stop) = carried_out.and(answered) {
                return stop;
            }
        }
    }

    fn receive(&self, buffer: &mut [u8], spin: &mut Spin) -> Result<usize, Stop> {
        let start = Instant::now();
        let spun = spin.turn(start, || match receive_now(self.socket, buffer) {
            Ok(Received::Nothing) => None,
            other => Some(other),
        });
        let received = match spun {
            Some(received) => received,
            None => receive_waiting(self.socket, buffer),
        };
        spin.learn(start.elapsed());
        match received? {
            Received::Bytes(count) => Ok(count),
            // A receive without a time limit does not come back with nothing.
            Received::Nothing | Received::End => Err(Stop::Gone),
        }
    }

    fn begin(&mut self, header: RequestHeader) -> Result<(), Stop> {
        let sequence = header.sequence;
        match header.kind {
            RequestKind::Write | RequestKind::WriteImmediate => {
                let access = Access::REMOTE_WRITE;
                let grants = self.link.grants();
                let open = header.bytes == 0
                    || grants
                        .open(&self.link.domain, header.key, access, header.address, header.bytes, |_| {
                            Some(())
                        })
                        .is_some();
                drop(grants);
                if !open {
                    return Err(Stop::Refused { sequence, refusal: Refusal::Access });
                }
                if header.bytes == 0 {
                    return self.written(&header);
                }
                self.current = Current::Write(header);
                Ok(())
            }
            RequestKind::Send | RequestKind::SendImmediate => {
                let into = self.receiver(sequence)?;
                let room = into.as_ref().map_or(0, |into| into.bytes);
                if header.bytes > room {
                    self.finish_receive(Opcode::Receive, Status::LocalAccess, 0, None);
                    return Err(Stop::Refused { sequence, refusal: Refusal::Invalid });
                }
                if header.bytes == 0 {
                    self.sent(&header);
                    return Ok(());
                }
                self.current = Current::Send { header, into };
                Ok(())
            }
            RequestKind::Read => self.read(&header),
            RequestKind::Barrier => {
                self.done(&header);
                Ok(())
            }
        }
    }

    /// Places a piece of the current payload.
    fn place(&mut self, offset: u32, bytes: &[u8], last: bool) -> Result<(), Stop> {
        // The splitter gives no payload without a header before it, and only these two have one.
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => Err(Stop::Gone),
            Current::Write(header) => {
                let refused = Stop::Refused { sequence: header.sequence, refusal: Refusal::Access };
                // Inside the message, whose whole range was found to fit when it began; the grant may have gone since.
                let at = header.address + u64::from(offset);
                let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let grants = self.link.grants();
                let placed =
                    grants.open(&self.link.domain, header.key, Access::REMOTE_WRITE, at, count, |region| {
                        region.write(at, bytes).ok()
                    });
                drop(grants);
                placed.ok_or(refused)?;
                if last {
                    return self.written(&header);
                }
                self.current = Current::Write(header);
                Ok(())
            }
            Current::Send { header, into } => {
                // Longer than the receive's buffer it would have been refused when it began.
                if let Some(into) = &into
                    && into.region.write(into.offset + u64::from(offset), bytes).is_err()
                {
                    self.finish_receive(Opcode::Receive, Status::LocalAccess, 0, None);
                    return Err(Stop::Refused { sequence: header.sequence, refusal: Refusal::Failure });
                }
                if last {
                    self.sent(&header);
                } else {
                    self.current = Current::Send { header, into };
                }
                Ok(())
            }
        }
    }

    /// A write's bytes have been placed.
    fn written(&mut self, header: &RequestHeader) -> Result<(), Stop> {
        if header.kind == RequestKind::WriteImmediate {
            self.receiver(header.sequence)?;
            let immediate = Some(header.immediate);
            self.finish_receive(Opcode::ReceiveWrite, Status::Success, header.bytes, immediate);
        }
        self.done(header);
        Ok(())
    }

    fn sent(&mut self, header: &RequestHeader) {
        let immediate = (header.kind == RequestKind::SendImmediate).then_some(header.immediate);
        self.finish_receive(Opcode::Receive, Status::Success, header.bytes, immediate);
        self.done(header);
    }

    fn done(&mut self, header: &RequestHeader) {
        if header.acknowledge {
            self.acknowledge = Some(header.sequence);
        }
    }

    /// The next receive, which stays in its place until it is finished.
    fn receiver(&mut self, sequence: u64) -> Result<Option<Target>, Stop> {
        match self.link.next_receive(Duration::ZERO) {
            NextReceive::Posted(into) => return Ok(into),
            NextReceive::Closed => return Err(Stop::Gone),
            NextReceive::NotReady => {}
        }
        // Before waiting say what there is to say: it may be what the receives wait for.
        self.answer_done()?;
        if std::mem::take(&mut self.tell) {
            self.link.queue.changed();
        }
        match self.link.next_receive(self.link.domain.options.receiver_wait) {
            NextReceive::Posted(into) => Ok(into),
            NextReceive::NotReady => Err(Stop::Refused { sequence, refusal: Refusal::ReceiverNotReady }),
            NextReceive::Closed => Err(Stop::Gone),
        }
    }

    fn finish_receive(&mut self, opcode: Opcode, status: Status, bytes: u32, immediate: Option<u32>) {
        self.link.finish_receive(opcode, status, bytes, immediate);
        self.tell = true;
    }

    /// Answers a read, piece by piece.
    fn read(&mut self, header: &RequestHeader) -> Result<(), Stop> {
        let refused = || Stop::Refused { sequence: header.sequence, refusal: Refusal::Access };
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
                let grants = self.link.grants();
                let copied =
                    grants.open(&self.link.domain, header.key, Access::REMOTE_READ, at, whole, |region| {
                        region.read(at, into).ok()
                    });
                drop(grants);
                copied.ok_or_else(refused)?;
            }
            send_all(self.socket, &self.out[..end])?;
            done += bytes;
            if last {
                return Ok(());
            }
        }
    }

    /// Sends the acknowledgement that is due.
    fn answer_done(&mut self) -> Result<(), Stop> {
        if let Some(sequence) = self.acknowledge.take() {
            send_all(self.socket, &AnswerHeader { answer: Answer::Done, sequence }.encode())?;
        }
        Ok(())
    }

    /// Tells the peer of its refusal, and waits a bounded time for it to close, so that nothing overtakes the word.
    fn say_last(&mut self, sequence: u64, refusal: Refusal) {
        let answer = AnswerHeader { answer: Answer::Refused(refusal), sequence };
        let said = send_all(self.socket, &answer.encode());
        // Only now may this end's own closing be seen by the peer.
        self.link.agent_ends(AgentEnd::Refused);
        if said.is_err() || self.socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + LINGER;
        while Instant::now() < until && self.socket.set_read_timeout(Some(LINGER)).is_ok() {
            match receive_waiting(self.socket, &mut self.out) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Nothing | Received::End) | Err(_) => return,
            }
        }
    }
}
