//! A client's connection to the primary: appends in flight, in order, and the thread that hears the answers. The demo and `windlass group` share it.
//!
//! Sending never waits: a member that is frozen reads nothing, and whoever waited for room in its socket would not hear of the next primary. What
//! there is no room for is sent while answers are waited for.

use std::collections::VecDeque;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::client::{Reply, Request, next_reply};

/// How often room for the rest is looked for while an answer is waited for.
const ROOM: Duration = Duration::from_millis(1);
/// So many answers are heard ahead of who asks for them: each may be a record of a mebibyte.
const HEARD: usize = 64;

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
    /// Taken and not sent yet, from `sent` on.
    encoded: Vec<u8>,
    sent: usize,
    /// Sent on this connection and not answered yet, oldest first.
    pub(crate) in_flight: VecDeque<Sent>,
}

impl Session {
    pub(crate) fn new(member: usize, stream: UnixStream) -> std::io::Result<Session> {
        stream.set_read_timeout(None)?;
        let from = stream.try_clone()?;
        let (heard, replies) = sync_channel(HEARD);
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
        Ok(Session { member, to: stream, replies, encoded: Vec::new(), sent: 0, in_flight: VecDeque::new() })
    }

    /// Takes an append into the next write.
    pub(crate) fn append(&mut self, sent: Sent, payload: Vec<u8>) {
        Request::Append { sequence: sent.sequence, payload }.encode(&mut self.encoded);
        self.in_flight.push_back(sent);
    }

    /// Sends what was taken, as far as there is room for it at once.
    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        while self.sent < self.encoded.len() {
            match send(&self.to, &self.encoded[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.encoded.clear();
        self.sent = 0;
        Ok(())
    }

    /// Sends a question whose answer is read by [`Session::hear`].
    pub(crate) fn ask(&mut self, request: &Request) -> std::io::Result<()> {
        request.encode(&mut self.encoded);
        self.flush()
    }

    /// The next answer, if it comes within `patience`.
    pub(crate) fn hear(&mut self, patience: Duration) -> Option<std::io::Result<Reply>> {
        let deadline = Instant::now() + patience;
        loop {
            self.send_rest();
            let left = deadline.saturating_duration_since(Instant::now());
            let slice = if self.encoded.is_empty() { left } else { left.min(ROOM) };
            match self.replies.recv_timeout(slice) {
                Ok(reply) => return Some(reply),
                Err(RecvTimeoutError::Timeout) if slice == left => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Err(std::io::ErrorKind::UnexpectedEof.into()));
                }
            }
        }
    }

    /// The next answer if it is there.
    pub(crate) fn hear_now(&mut self) -> Option<std::io::Result<Reply>> {
        self.send_rest();
        self.replies.try_recv().ok()
    }

    fn send_rest(&mut self) {
        // A broken connection is heard of by the next answer.
        let _ = self.flush();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Ends the hearing thread; the peer may have closed already.
        let _ = self.to.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::read_frame;

    /// More than any socket holds: a frozen member takes none of it, and gets all of it once it goes on.
    #[test]
    fn sending_does_not_wait_for_a_peer_that_reads_nothing() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut session = Session::new(0, near).unwrap();
        let payload = vec![7; 1 << 20];
        for sequence in 0..8 {
            session.append(Sent { sequence, at: Instant::now() }, payload.clone());
        }
        session.flush().unwrap();
        assert!(session.hear(Duration::from_millis(5)).is_none());
        assert!(!session.encoded.is_empty(), "there was room for all of it: this shows nothing");
        let heard = std::thread::spawn(move || {
            let (mut from, mut frame) = (BufReader::new(far), Vec::new());
            let next =
                || read_frame(&mut from, &mut frame).unwrap().then(|| Request::decode(&frame).unwrap());
            std::iter::from_fn(next).take(8).collect::<Vec<_>>()
        });
        while !heard.is_finished() {
            assert!(session.hear(Duration::from_millis(5)).is_none_or(|reply| reply.is_err()));
        }
        let expected = (0..8).map(|sequence| Request::Append { sequence, payload: payload.clone() });
        assert_eq!(heard.join().unwrap(), expected.collect::<Vec<_>>());
    }
}
