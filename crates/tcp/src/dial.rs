//! The dialer's side of the handshake, one step at a time on the caller's thread.
//!
//! ```text
//! dialer → acceptor   hello      magic 4, nonce 32
//! acceptor → dialer   challenge  magic 4, nonce 32
//! dialer → acceptor   proof      token of the acceptor's end 16, of the dialer's end 16, proof 32
//! acceptor → dialer   accepted   proof 32
//! ```

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::auth::{NONCE_BYTES, NotProven, PROOF_BYTES, Role, Secret, Transcript, nonce};
use crate::endpoint::{Endpoint, MAGIC, TOKEN_BYTES, Token};
use crate::socket::{Received, receive_now, send_now, tune};

pub(crate) const HELLO_BYTES: usize = MAGIC.len() + NONCE_BYTES;
pub(crate) const PROOF_MESSAGE_BYTES: usize = 2 * TOKEN_BYTES + PROOF_BYTES;
pub(crate) const PURPOSE: &[u8] = b"windlass fabric over tcp, version 1";

#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) socket: Arc<TcpStream>,
    pub(crate) peer: Endpoint,
    own: Token,
    nonce: [u8; NONCE_BYTES],
    stage: Stage,
    buffer: [u8; HELLO_BYTES],
    filled: usize,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Connect,
    ExpectChallenge,
    ExpectAccepted { acceptor_nonce: [u8; NONCE_BYTES] },
}

/// Connecting came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(
        "the peer closed during the handshake (another secret or group there, or the end it was to reach is gone)"
    )]
    Closed,
    #[error("the peer speaks another protocol or version")]
    Magic,
    #[error(transparent)]
    NotProven(#[from] NotProven),
}

impl From<Errno> for DialError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// The handshake's messages both speak of the two ends.
pub(crate) fn context(acceptor: &Token, dialer: &Token) -> [u8; 2 * TOKEN_BYTES] {
    let mut context = [0; 2 * TOKEN_BYTES];
    context[..TOKEN_BYTES].copy_from_slice(acceptor);
    context[TOKEN_BYTES..].copy_from_slice(dialer);
    context
}

/// Magic and nonce: a hello or a challenge.
pub(crate) fn greeting(nonce: &[u8; NONCE_BYTES]) -> [u8; HELLO_BYTES] {
    let mut greeting = [0; HELLO_BYTES];
    greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
    greeting[MAGIC.len()..].copy_from_slice(nonce);
    greeting
}

/// The nonce of a hello or a challenge; `None`: another protocol or version.
pub(crate) fn greeted(greeting: &[u8; HELLO_BYTES]) -> Option<[u8; NONCE_BYTES]> {
    let (magic, rest) = greeting.split_at(MAGIC.len());
    if magic != MAGIC {
        return None;
    }
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(rest);
    Some(nonce)
}

impl Dial {
    /// Begins to connect; does not wait.
    pub(crate) fn start(peer: Endpoint, own: Token) -> io::Result<Self> {
        let nonce = nonce().map_err(io::Error::other)?;
        let family = match peer.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        match rustix::net::connect(&fd, &peer.address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let socket = Arc::new(TcpStream::from(fd));
        let buffer = [0; HELLO_BYTES];
        Ok(Self { socket, peer, own, nonce, stage: Stage::Connect, buffer, filled: 0 })
    }

    /// Whether it waits for the connection itself, and not for the peer's word.
    pub(crate) fn awaits_connect(&self) -> bool {
        matches!(self.stage, Stage::Connect)
    }

    /// Goes as far as it can without waiting; `true`: both ends have proved themselves.
    pub(crate) fn step(&mut self, secret: &Secret, group: [u8; 16]) -> Result<bool, DialError> {
        loop {
            match self.stage {
                Stage::Connect => {
                    if let Err(errno) = rustix::net::sockopt::socket_error(&*self.socket)? {
                        return Err(errno.into());
                    }
                    match rustix::net::getpeername(&*self.socket) {
                        Ok(_) => {}
                        Err(Errno::NOTCONN) => return Ok(false),
                        Err(errno) => return Err(errno.into()),
                    }
                    tune(&self.socket)?;
                    self.say(&greeting(&self.nonce))?;
                    self.stage = Stage::ExpectChallenge;
                }
                Stage::ExpectChallenge => {
                    if !self.hear(HELLO_BYTES)? {
                        return Ok(false);
                    }
                    let acceptor_nonce = greeted(&self.buffer).ok_or(DialError::Magic)?;
                    let context = context(&self.peer.token, &self.own);
                    let proof = self.transcript(group, acceptor_nonce, &context).prove(secret, Role::Dialer);
                    let mut message = [0; PROOF_MESSAGE_BYTES];
                    message[..context.len()].copy_from_slice(&context);
                    message[context.len()..].copy_from_slice(&proof);
                    self.say(&message)?;
                    self.stage = Stage::ExpectAccepted { acceptor_nonce };
                }
                Stage::ExpectAccepted { acceptor_nonce } => {
                    if !self.hear(PROOF_BYTES)? {
                        return Ok(false);
                    }
                    let mut proof = [0; PROOF_BYTES];
                    proof.copy_from_slice(&self.buffer[..PROOF_BYTES]);
                    let context = context(&self.peer.token, &self.own);
                    self.transcript(group, acceptor_nonce, &context).verify(
                        secret,
                        Role::Acceptor,
                        &proof,
                    )?;
                    return Ok(true);
                }
            }
        }
    }

    fn transcript<'a>(
        &self,
        group: [u8; 16],
        acceptor_nonce: [u8; NONCE_BYTES],
        context: &'a [u8],
    ) -> Transcript<'a> {
        Transcript { purpose: PURPOSE, group, dialer_nonce: self.nonce, acceptor_nonce, context }
    }

    /// Sends one message. A fresh socket has room for it; where not, something is wrong.
    fn say(&mut self, message: &[u8]) -> Result<(), DialError> {
        if send_now(&self.socket, message)? == message.len() {
            Ok(())
        } else {
            Err(DialError::Io(io::ErrorKind::WriteZero.into()))
        }
    }

    /// Reads on towards a message of `bytes`, and not a byte further; `true`: it is whole.
    fn hear(&mut self, bytes: usize) -> Result<bool, DialError> {
        while self.filled < bytes {
            match receive_now(&self.socket, &mut self.buffer[self.filled..bytes])? {
                Received::Bytes(count) => self.filled += count,
                Received::Nothing => return Ok(false),
                Received::End => return Err(DialError::Closed),
            }
        }
        self.filled = 0;
        Ok(true)
    }
}
