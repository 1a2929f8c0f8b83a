//! The acceptor: one thread that takes connections and lets none pass that has not proved itself.
//!
//! Before the proof nothing is read but messages of a fixed length into a fixed buffer. How many may be in that stage, and for how
//! long, is bounded. Each connection that is closed here makes one log line.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

use crate::auth::{NONCE_BYTES, PROOF_BYTES, Role, Transcript, nonce};
use crate::dial::{HELLO_BYTES, PROOF_MESSAGE_BYTES, PURPOSE, context, greeted, greeting};
use crate::domain::{Domain, lock};
use crate::endpoint::{TOKEN_BYTES, Token};
use crate::socket::{Received, limit_waits, receive_now, send_now, tune};

/// How long to leave the listening socket alone when the system has no descriptor to give.
const PAUSE: Duration = Duration::from_millis(100);

/// The acceptor's thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Acceptor {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    event: OwnedFd,
}

impl Acceptor {
    pub(crate) fn start(listener: TcpListener, domain: Arc<Domain>) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), event });
        listener.set_nonblocking(true)?;
        let watch = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("windlass-tcp-accept".into())
            .spawn(move || run(&listener, &domain, &watch))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::Release);
        // It fails only when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.stop.event, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A connection that has not proved itself.
struct Unproven {
    socket: TcpStream,
    address: SocketAddr,
    until: Instant,
    stage: Stage,
    buffer: [u8; PROOF_MESSAGE_BYTES],
    filled: usize,
}

#[derive(Clone, Copy)]
enum Stage {
    ExpectHello,
    ExpectProof { dialer_nonce: [u8; NONCE_BYTES], acceptor_nonce: [u8; NONCE_BYTES] },
}

/// What a look at an unproven connection came to.
enum Step {
    Wait,
    Proved(Proved),
}

/// A dialer that knows the secret: the ends it named, and our own proof for it.
struct Proved {
    target: Token,
    source: Token,
    answer: [u8; PROOF_BYTES],
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("closed before it proved itself")]
    Closed,
    #[error("speaks another protocol or version")]
    Magic,
    #[error("does not know the secret, or is of another group")]
    NotProven,
    #[error("no end of that name here")]
    UnknownEnd,
    #[error("{0}")]
    NotWelcome(&'static str),
    #[error("took too long to prove itself")]
    Late,
    #[error("made room for another: too many that have not proved themselves")]
    Crowded,
}

fn run(listener: &TcpListener, domain: &Domain, stop: &Stop) {
    let mut unproven: VecDeque<Unproven> = VecDeque::new();
    let mut pause: Option<Instant> = None;
    while !stop.asked.load(Ordering::Acquire) {
        wait(listener, stop, &unproven, pause);
        let now = Instant::now();
        if pause.is_none_or(|until| until <= now) {
            pause = accept(listener, domain, &mut unproven, now);
        }
        for _ in 0..unproven.len() {
            let Some(mut connection) = unproven.pop_front() else { break };
            let address = connection.address;
            let outcome = match connection.step(domain) {
                Ok(Step::Wait) if connection.until <= now => Err(Refusal::Late),
                Ok(Step::Wait) => {
                    unproven.push_back(connection);
                    Ok(())
                }
                Ok(Step::Proved(proved)) => connection.hand_over(domain, &proved),
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = outcome {
                refuse(domain, address, &refusal);
            }
        }
    }
}

fn refuse(domain: &Domain, address: SocketAddr, refusal: &Refusal) {
    let ration = domain.refusals.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    if let Some(unsaid) = ration {
        slog::warn!(domain.logger, "refused a fabric connection"; "peer" => %address, "reason" => %refusal,
            "unsaid_before" => unsaid);
    }
}

/// Sleeps until there is something to do.
fn wait(listener: &TcpListener, stop: &Stop, unproven: &VecDeque<Unproven>, pause: Option<Instant>) {
    let mut polled = Vec::with_capacity(unproven.len() + 2);
    polled.push(PollFd::new(&stop.event, PollFlags::IN));
    if pause.is_none() {
        polled.push(PollFd::new(listener, PollFlags::IN));
    }
    polled.extend(unproven.iter().map(|connection| PollFd::new(&connection.socket, PollFlags::IN)));
    let next = unproven.iter().map(|connection| connection.until).chain(pause).min();
    // A millisecond more, so that the time is past when we look.
    let left = next.map(|next| next.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    // Interrupted, or out of memory for a moment: look around and come back.
    if rustix::event::poll(&mut polled, timeout.as_ref()).is_err() {
        std::thread::yield_now();
    }
}

/// Takes all connections that wait. Gives a time before which not to try again, when the system has nothing to give.
fn accept(
    listener: &TcpListener,
    domain: &Domain,
    unproven: &mut VecDeque<Unproven>,
    now: Instant,
) -> Option<Instant> {
    loop {
        let (socket, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) =>
            {
                continue;
            }
            Err(error) => {
                slog::error!(domain.logger, "cannot take fabric connections for a moment"; "error" => %error);
                return Some(now + PAUSE);
            }
        };
        let prepared = tune(&socket).and_then(|()| limit_waits(&socket, domain.options.stall_timeout));
        if let Err(error) = prepared {
            refuse(domain, address, &error.into());
            continue;
        }
        if unproven.len() >= domain.options.unproven_max
            && let Some(oldest) = unproven.pop_front()
        {
            refuse(domain, oldest.address, &Refusal::Crowded);
        }
        unproven.push_back(Unproven {
            socket,
            address,
            until: now + domain.options.handshake_timeout,
            stage: Stage::ExpectHello,
            buffer: [0; PROOF_MESSAGE_BYTES],
            filled: 0,
        });
    }
}

impl Unproven {
    fn step(&mut self, domain: &Domain) -> Result<Step, Refusal> {
        loop {
            match self.stage {
                Stage::ExpectHello => {
                    if !self.hear(HELLO_BYTES)? {
                        return Ok(Step::Wait);
                    }
                    let mut hello = [0; HELLO_BYTES];
                    hello.copy_from_slice(&self.buffer[..HELLO_BYTES]);
                    let dialer_nonce = greeted(&hello).ok_or(Refusal::Magic)?;
                    let acceptor_nonce = nonce().map_err(io::Error::other)?;
                    self.say(&greeting(&acceptor_nonce))?;
                    self.stage = Stage::ExpectProof { dialer_nonce, acceptor_nonce };
                }
                Stage::ExpectProof { dialer_nonce, acceptor_nonce } => {
                    if !self.hear(PROOF_MESSAGE_BYTES)? {
                        return Ok(Step::Wait);
                    }
                    let (ends, proof) = self.buffer.split_at(2 * TOKEN_BYTES);
                    let transcript = Transcript {
                        purpose: PURPOSE,
                        group: domain.options.group,
                        dialer_nonce,
                        acceptor_nonce,
                        context: ends,
                    };
                    let secret = &domain.options.secret;
                    let proof = proof.try_into().map_err(|_| Refusal::NotProven)?;
                    // Nothing of the message is looked at before this.
                    transcript.verify(secret, Role::Dialer, proof).map_err(|_| Refusal::NotProven)?;
                    let (mut target, mut source) = ([0; TOKEN_BYTES], [0; TOKEN_BYTES]);
                    target.copy_from_slice(&ends[..TOKEN_BYTES]);
                    source.copy_from_slice(&ends[TOKEN_BYTES..]);
                    debug_assert_eq!(ends, context(&target, &source));
                    let answer = transcript.prove(secret, Role::Acceptor);
                    return Ok(Step::Proved(Proved { target, source, answer }));
                }
            }
        }
    }

    /// Gives the socket to the connection it is for.
    fn hand_over(self, domain: &Domain, proved: &Proved) -> Result<(), Refusal> {
        let link = lock(&domain.links).get(&proved.target).and_then(Weak::upgrade);
        let link = link.ok_or(Refusal::UnknownEnd)?;
        link.welcomes(&proved.source).map_err(Refusal::NotWelcome)?;
        self.say(&proved.answer)?;
        self.socket.set_nonblocking(false)?;
        link.attach(proved.source, self.socket, self.address);
        Ok(())
    }

    fn say(&self, message: &[u8]) -> Result<(), Refusal> {
        if send_now(&self.socket, message)? == message.len() { Ok(()) } else { Err(Refusal::Closed) }
    }

    fn hear(&mut self, bytes: usize) -> Result<bool, Refusal> {
        while self.filled < bytes {
            match receive_now(&self.socket, &mut self.buffer[self.filled..bytes])? {
                Received::Bytes(count) => self.filled += count,
                Received::Nothing => return Ok(false),
                Received::End => return Err(Refusal::Closed),
            }
        }
        self.filled = 0;
        Ok(true)
    }
}
