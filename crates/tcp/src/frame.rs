//! The frames of an authenticated connection: pure functions over bytes, no IO, no allocation.
//!
//! A connection has two streams of bytes per direction of requests (DESIGN.md section 7.2):
//!
//! ```text
//! requester → agent    header, 32 bytes                                   payload of a write or send
//!   0      1      2      4        8          16     20          24          32
//!   ├ kind ┼ flags┼ zero ┼ bytes  ┼ address  ┼ key  ┼ immediate ┼ sequence  ┤ …
//!
//! agent → requester    header, 16 bytes      payload of a read
//!   0      1      2      4        8          16
//!   ├ kind ┼ code ┼ zero ┼ bytes  ┼ sequence ┤ …
//! ```
//!
//! All numbers are little-endian. Fields that a kind does not use are zero; anything else is refused, so that each frame has one
//! form. Lengths are checked here, before anyone acts on them, and nothing is ever allocated by them.

/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 32;
/// Bytes of an answer's header.
pub const ANSWER_HEADER_BYTES: usize = 16;
/// Longest payload of one request.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 30;
/// Longest payload of one answer: a read is answered in pieces of at most this.
pub const ANSWER_BYTES_MAX: u32 = 1 << 16;

const FLAG_ACKNOWLEDGE: u8 = 1;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// Place the payload.
    Write = 1,
    /// Place the payload and consume a receive.
    WriteImmediate = 2,
    /// Answer with bytes.
    Read = 3,
    /// Place the payload in the next receive's buffer.
    Send = 4,
    /// The same with an immediate.
    SendImmediate = 5,
    /// Nothing but an acknowledgement of all before it.
    Barrier = 6,
}

/// A checked header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// What is asked for.
    pub kind: RequestKind,
    /// Whether success is to be acknowledged.
    pub acknowledge: bool,
    /// Length of the payload; of a read, how many bytes are wanted.
    pub bytes: u32,
    /// Where in the region: bytes from its start.
    pub address: u64,
    /// The key that opens it.
    pub key: u32,
    /// The immediate of the kinds that have one.
    pub immediate: u32,
    /// One more than that of the request before it; the first is 1.
    pub sequence: u64,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All requests up to and with `sequence` have been carried out.
    Done,
    /// Bytes of the read `sequence`; all before it have been carried out.
    Data {
        /// How many follow.
        bytes: u32,
        /// Whether they are its last.
        last: bool,
    },
    /// The request `sequence` was refused, all before it were carried out, none behind it will be.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// Key, range or access.
    #[error("nothing that is open to it has this key and range")]
    Access = 1,
    /// No receive was posted in time.
    #[error("no receive was posted in time")]
    ReceiverNotReady = 2,
    /// Longer than the receive's buffer.
    #[error("it is longer than the receive's buffer")]
    Invalid = 3,
    /// The peer could not carry it out.
    #[error("it could not be carried out")]
    Failure = 4,
}

/// A checked header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHeader {
    /// What it says.
    pub answer: Answer,
    /// Which request it speaks of.
    pub sequence: u64,
}

/// Bytes that are no frame. The connection they came on is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No such kind of frame.
    #[error("unknown frame kind {kind}")]
    Kind {
        /// What stood there.
        kind: u8,
    },
    /// No such flag or code.
    #[error("unknown flags or code {code} in a frame of kind {kind}")]
    Code {
        /// The kind.
        kind: u8,
        /// What stood there.
        code: u8,
    },
    /// A field that must be zero is not.
    #[error("a field unused by frame kind {kind} is not zero")]
    NotZero {
        /// The kind.
        kind: u8,
    },
    /// Longer than a frame may be.
    #[error("a frame of {bytes} bytes, the most is {bytes_max}")]
    TooLong {
        /// What it claims.
        bytes: u32,
        /// The most.
        bytes_max: u32,
    },
    /// A request out of order.
    #[error("request {found} where {expected} was due")]
    Sequence {
        /// What was due.
        expected: u64,
        /// What came.
        found: u64,
    },
}

impl RequestHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut to = [0; REQUEST_HEADER_BYTES];
        to[0] = self.kind as u8;
        to[1] = u8::from(self.acknowledge) * FLAG_ACKNOWLEDGE;
        to[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        to[8..16].copy_from_slice(&self.address.to_le_bytes());
        to[16..20].copy_from_slice(&self.key.to_le_bytes());
        to[20..24].copy_from_slice(&self.immediate.to_le_bytes());
        to[24..].copy_from_slice(&self.sequence.to_le_bytes());
        to
    }

    /// Checks and reads a header. The order of sequences is [`RequestSplitter`]'s to check.
    ///
    /// # Errors
    /// [`FrameError`]: close the connection.
    pub fn parse(from: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self, FrameError> {
        let kind = match from[0] {
            1 => RequestKind::Write,
            2 => RequestKind::WriteImmediate,
            3 => RequestKind::Read,
            4 => RequestKind::Send,
            5 => RequestKind::SendImmediate,
            6 => RequestKind::Barrier,
            kind => return Err(FrameError::Kind { kind }),
        };
        if from[1] & !FLAG_ACKNOWLEDGE != 0 {
            return Err(FrameError::Code { kind: from[0], code: from[1] });
        }
        let header = Self {
            kind,
            acknowledge: from[1] & FLAG_ACKNOWLEDGE != 0,
            bytes: u32_at(from, 4),
            address: u64_at(from, 8),
            key: u32_at(from, 16),
            immediate: u32_at(from, 20),
            sequence: u64_at(from, 24),
        };
        if header.bytes > MESSAGE_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: header.bytes, bytes_max: MESSAGE_BYTES_MAX });
        }
        let (placed, immediate, bytes) = match kind {
            RequestKind::Write | RequestKind::Read => (true, false, true),
            RequestKind::WriteImmediate => (true, true, true),
            RequestKind::Send => (false, false, true),
            RequestKind::SendImmediate => (false, true, true),
            RequestKind::Barrier => (false, false, false),
        };
        let stray = from[2] != 0
            || from[3] != 0
            || (!placed && (header.address != 0 || header.key != 0))
            || (!immediate && header.immediate != 0)
            || (!bytes && header.bytes != 0);
        if stray {
            return Err(FrameError::NotZero { kind: from[0] });
        }
        Ok(header)
    }

    /// How many payload bytes follow the header.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        match self.kind {
            RequestKind::Write
            | RequestKind::WriteImmediate
            | RequestKind::Send
            | RequestKind::SendImmediate => self.bytes,
            RequestKind::Read | RequestKind::Barrier => 0,
        }
    }
}

impl AnswerHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_HEADER_BYTES] {
        let (kind, code, bytes) = match self.answer {
            Answer::Done => (1, 0, 0),
            Answer::Data { bytes, last } => (2, u8::from(last), bytes),
            Answer::Refused(refusal) => (3, refusal as u8, 0),
        };
        let mut to = [0; ANSWER_HEADER_BYTES];
        to[0] = kind;
        to[1] = code;
        to[4..8].copy_from_slice(&bytes.to_le_bytes());
        to[8..].copy_from_slice(&self.sequence.to_le_bytes());
        to
    }

    /// Checks and reads a header. Whether `sequence` names an outstanding request is the requester's to check.
    ///
    /// # Errors
    /// [`FrameError`]: close the connection.
    pub fn parse(from: &[u8; ANSWER_HEADER_BYTES]) -> Result<Self, FrameError> {
        let (kind, code, bytes) = (from[0], from[1], u32_at(from, 4));
        let answer = match (kind, code) {
            (1, 0) => Answer::Done,
            (2, 0 | 1) => Answer::Data { bytes, last: code == 1 },
            (3, 1) => Answer::Refused(Refusal::Access),
            (3, 2) => Answer::Refused(Refusal::ReceiverNotReady),
            (3, 3) => Answer::Refused(Refusal::Invalid),
            (3, 4) => Answer::Refused(Refusal::Failure),
            (1..=3, code) => return Err(FrameError::Code { kind, code }),
            (kind, _) => return Err(FrameError::Kind { kind }),
        };
        if from[2] != 0 || from[3] != 0 || (kind != 2 && bytes != 0) {
            return Err(FrameError::NotZero { kind });
        }
        if bytes > ANSWER_BYTES_MAX {
            return Err(FrameError::TooLong { bytes, bytes_max: ANSWER_BYTES_MAX });
        }
        Ok(Self { answer, sequence: u64_at(from, 8) })
    }
}

/// What a stream of frames consists of. A frame with `bytes` of payload is one `Begin`, then payload pieces until they add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a, H> {
    /// A checked header. Where no payload follows, it is the whole frame.
    Begin(H),
    /// The next bytes of the payload.
    Payload {
        /// How many bytes of this payload came before.
        offset: u32,
        /// The bytes; at least one.
        bytes: &'a [u8],
        /// Whether the payload ends with them.
        last: bool,
    },
}

/// Cuts what a requester sends into pieces, however the stream was cut by the network.
#[derive(Debug)]
pub struct RequestSplitter {
    cut: Cut<REQUEST_HEADER_BYTES>,
    due: u64,
}

impl Default for RequestSplitter {
    fn default() -> Self {
        Self { cut: Cut::default(), due: 1 }
    }
}

impl RequestSplitter {
    /// Takes the next piece off the front of `input`; `None` when all of it is used up.
    ///
    /// # Errors
    /// [`FrameError`]: close the connection; there is no way to go on.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a, RequestHeader>>, FrameError> {
        match self.cut.next(input) {
            Some(CutPiece::Header(bytes)) => {
                let header = RequestHeader::parse(&bytes)?;
                if header.sequence != self.due {
                    return Err(FrameError::Sequence { expected: self.due, found: header.sequence });
                }
                self.due = self.due.wrapping_add(1);
                self.cut.payload(header.payload_bytes());
                Ok(Some(Piece::Begin(header)))
            }
            Some(CutPiece::Payload { offset, bytes, last }) => {
                Ok(Some(Piece::Payload { offset, bytes, last }))
            }
            None => Ok(None),
        }
    }
}

/// Cuts what an agent sends into pieces.
#[derive(Debug, Default)]
pub struct AnswerSplitter {
    cut: Cut<ANSWER_HEADER_BYTES>,
}

impl AnswerSplitter {
    /// As [`RequestSplitter::next`].
    ///
    /// # Errors
    /// [`FrameError`]: close the connection.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a, AnswerHeader>>, FrameError> {
        match self.cut.next(input) {
            Some(CutPiece::Header(bytes)) => {
                let header = AnswerHeader::parse(&bytes)?;
                if let Answer::Data { bytes, .. } = header.answer {
                    self.cut.payload(bytes);
                }
                Ok(Some(Piece::Begin(header)))
            }
            Some(CutPiece::Payload { offset, bytes, last }) => {
                Ok(Some(Piece::Payload { offset, bytes, last }))
            }
            None => Ok(None),
        }
    }
}

#[derive(Debug)]
struct Cut<const HEADER: usize> {
    header: [u8; HEADER],
    filled: usize,
    payload: u32,
    passed: u32,
}

enum CutPiece<'a, const HEADER: usize> {
    Header([u8; HEADER]),
    Payload { offset: u32, bytes: &'a [u8], last: bool },
}

impl<const HEADER: usize> Default for Cut<HEADER> {
    fn default() -> Self {
        Self { header: [0; HEADER], filled: 0, payload: 0, passed: 0 }
    }
}

impl<const HEADER: usize> Cut<HEADER> {
    fn payload(&mut self, bytes: u32) {
        self.payload = bytes;
        self.passed = 0;
    }

    fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<CutPiece<'a, HEADER>> {
        if input.is_empty() {
            return None;
        }
        let left = self.payload - self.passed;
        if left > 0 {
            let take = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (bytes, rest) = input.split_at(take);
            *input = rest;
            let offset = self.passed;
            // `take` is at most `left`, so it fits.
            self.passed += u32::try_from(take).unwrap_or(left);
            return Some(CutPiece::Payload { offset, bytes, last: self.passed == self.payload });
        }
        let take = input.len().min(HEADER - self.filled);
        let (bytes, rest) = input.split_at(take);
        *input = rest;
        self.header[self.filled..self.filled + take].copy_from_slice(bytes);
        self.filled += take;
        if self.filled < HEADER {
            return None;
        }
        self.filled = 0;
        Some(CutPiece::Header(self.header))
    }
}

fn u32_at<const N: usize>(from: &[u8; N], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&from[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at<const N: usize>(from: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&from[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sequence: u64, bytes: u32) -> RequestHeader {
        RequestHeader {
            kind: RequestKind::Write,
            acknowledge: true,
            bytes,
            address: 0x0102_0304_0506_0708,
            key: 0x1112_1314,
            immediate: 0,
            sequence,
        }
    }

    #[test]
    fn a_request_header_has_these_bytes() {
        let bytes = write(0x21, 0x0a0b).encode();
        let golden: [u8; 32] = [
            1, 1, 0, 0, 0x0b, 0x0a, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0, 0, 0, 0, 0x21,
            0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, golden);
        assert_eq!(RequestHeader::parse(&bytes), Ok(write(0x21, 0x0a0b)));
    }

    #[test]
    fn an_answer_header_has_these_bytes() {
        let answer = AnswerHeader { answer: Answer::Data { bytes: 0x1234, last: true }, sequence: 9 };
        let golden = [2, 1, 0, 0, 0x34, 0x12, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(answer.encode(), golden);
        assert_eq!(AnswerHeader::parse(&golden), Ok(answer));
    }

    #[test]
    fn each_frame_has_one_form() {
        // Every header that parses encodes to the same bytes again: no field is ignored.
        for at in 0..REQUEST_HEADER_BYTES {
            for flip in 1..=255u8 {
                for kind in 0..=7u8 {
                    let mut bytes = write(5, 64).encode();
                    bytes[0] = kind;
                    bytes[at] ^= flip;
                    if let Ok(header) = RequestHeader::parse(&bytes) {
                        assert_eq!(header.encode(), bytes);
                        assert!(header.bytes <= MESSAGE_BYTES_MAX);
                    }
                }
            }
        }
        for at in 0..ANSWER_HEADER_BYTES {
            for value in 0..=255u8 {
                for kind in 0..=4u8 {
                    let mut bytes = [kind, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
                    bytes[at] = value;
                    if let Ok(header) = AnswerHeader::parse(&bytes) {
                        assert_eq!(header.encode(), bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_anyone_acts_on_it() {
        let mut bytes = write(1, 0).encode();
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let refused = FrameError::TooLong { bytes: u32::MAX, bytes_max: MESSAGE_BYTES_MAX };
        assert_eq!(RequestHeader::parse(&bytes), Err(refused));
    }

    #[test]
    fn frames_come_out_the_same_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for (sequence, bytes) in [(1u64, 5u32), (2, 0), (3, 40)] {
            stream.extend_from_slice(&write(sequence, bytes).encode());
            stream.extend((0..bytes).map(|byte| u8::try_from(byte).unwrap()));
        }
        for step in 1..=stream.len() {
            let mut splitter = RequestSplitter::default();
            let mut seen: Vec<(u64, Vec<u8>)> = Vec::new();
            for part in stream.chunks(step) {
                let mut input = part;
                while let Some(piece) = splitter.next(&mut input).unwrap() {
                    match piece {
                        Piece::Begin(header) => seen.push((header.sequence, Vec::new())),
                        Piece::Payload { offset, bytes, last } => {
                            let (sequence, payload) = seen.last_mut().unwrap();
                            assert_eq!(payload.len(), usize::try_from(offset).unwrap());
                            payload.extend_from_slice(bytes);
                            let whole = if *sequence == 1 { 5 } else { 40 };
                            assert_eq!(last, payload.len() == whole);
                        }
                    }
                }
            }
            let lens: Vec<_> = seen.iter().map(|(sequence, payload)| (*sequence, payload.len())).collect();
            assert_eq!(lens, [(1, 5), (2, 0), (3, 40)], "cut every {step} bytes");
        }
    }

    #[test]
    fn a_request_out_of_order_is_refused() {
        let mut splitter = RequestSplitter::default();
        let bytes = write(2, 0).encode();
        let refused = splitter.next(&mut bytes.as_slice());
        assert_eq!(refused, Err(FrameError::Sequence { expected: 1, found: 2 }));
    }
}
