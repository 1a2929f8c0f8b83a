//! A client's connection to the primary: appends in flight, in order, and the thread that hears the answers. The demo and `windlass group` share it.

use std::collections::VecDeque;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::client::{Reply, Request, next_reply, write_all};

/// An append that is not yet known to be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) sequence: u64,
    /// When it was sent first.
    pub(crate) at: Instant,
}

/// A connection to the member that was primary when it was made.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) member: usize,
    to: UnixStream,
    replies: Receiver<std::io::Result<Reply>>,
    encoded: Vec<u8>,
    /// Sent on this connection and not answered yet, oldest first.
    pub(crate) in_flight: VecDeque<Sent>,
}

impl Session {
    pub(crate) fn new(member: usize, stream: UnixStream) -> std::io::Result<Session> {
        stream.set_read_timeout(None)?;
        let from = stream.try_clone()?;
        let (heard, replies) = sync_channel(4096);
        std::thread::spawn(move || {
            let (mut from, mut frame) = (BufReader::with_capacity(1 << 16, from), Vec::new());
            loop {
                let reply = next_reply(&mut from, &mut frame);
                let is_over = reply.is_err();
                if heard.send(reply).is_err() || is_over {
                    return;
                }
            }
        });
        Ok(Session { member, to: stream, replies, encoded: Vec::new(), in_flight: VecDeque::new() })
    }

    /// Takes an append into the next write.
    pub(crate) fn append(&mut self, sent: Sent, payload: Vec<u8>) {
        Request::Append { sequence: sent.sequence, payload }.encode(&mut self.encoded);
        self.in_flight.push_back(sent);
    }

    /// Writes what was taken.
    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        if self.encoded.is_empty() { Ok(()) } else { write_all(&mut self.to, &mut self.encoded) }
    }

    /// Sends a question whose answer is read by [`Session::hear`].
    pub(crate) fn ask(&mut self, request: &Request) -> std::io::Result<()> {
        request.encode(&mut self.encoded);
        self.flush()
    }

    /// The next answer, if it comes within `patience`.
    pub(crate) fn hear(&mut self, patience: Duration) -> Option<std::io::Result<Reply>> {
        match self.replies.recv_timeout(patience) {
            Ok(reply) => Some(reply),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// The next answer if it is there.
    pub(crate) fn hear_now(&mut self) -> Option<std::io::Result<Reply>> {
        self.replies.try_recv().ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Ends the hearing thread; the peer may have closed already.
        let _ = self.to.shutdown(std::net::Shutdown::Both);
    }
}
