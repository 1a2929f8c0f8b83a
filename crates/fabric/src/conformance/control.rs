//! How the two ends of a case talk beside the fabric: what a control plane would carry.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longest message.
const MESSAGE_BYTES_MAX: u32 = 1 << 16;

/// A reliable, ordered line of messages between the two ends.
pub trait Control {
    /// Sends one message.
    ///
    /// # Panics
    /// If the other end is gone: its case has failed.
    fn say(&mut self, message: &[u8]);

    /// Waits for the next message.
    ///
    /// # Panics
    /// If none comes within `limit`, or the other end is gone: its case has failed.
    fn hear(&mut self, limit: Duration) -> Vec<u8>;
}

/// A line inside one process.
#[derive(Debug)]
pub struct ChannelControl {
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
}

impl ChannelControl {
    /// Both ends of a line.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
        (Self { to: to_b, from: from_b }, Self { to: to_a, from: from_a })
    }
}

impl Control for ChannelControl {
    fn say(&mut self, message: &[u8]) {
        assert!(self.to.send(message.to_vec()).is_ok(), "the other end is gone");
    }

    fn hear(&mut self, limit: Duration) -> Vec<u8> {
        match self.from.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("the other end said nothing for {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the other end is gone"),
        }
    }
}

/// A line over a stream of bytes, such as a socket between two processes. Set the stream's own time limit; the one of `hear` is not used.
#[derive(Debug)]
pub struct StreamControl<S>(pub S);

impl<S: Read + Write> Control for StreamControl<S> {
    fn say(&mut self, message: &[u8]) {
        let bytes = u32::try_from(message.len()).expect("a short message");
        assert!(bytes <= MESSAGE_BYTES_MAX, "a message of {bytes} bytes");
        let mut framed = bytes.to_le_bytes().to_vec();
        framed.extend_from_slice(message);
        let sent = self.0.write_all(&framed).and_then(|()| self.0.flush());
        sent.unwrap_or_else(|error| panic!("the other end is gone: {error}"));
    }

    fn hear(&mut self, _limit: Duration) -> Vec<u8> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes).unwrap_or_else(|error| panic!("the other end is gone: {error}"));
        let bytes = u32::from_le_bytes(bytes);
        assert!(bytes <= MESSAGE_BYTES_MAX, "a message of {bytes} bytes");
        let mut message = vec![0; usize::try_from(bytes).expect("checked")];
        self.0.read_exact(&mut message).unwrap_or_else(|error| panic!("the other end is gone: {error}"));
        message
    }
}
