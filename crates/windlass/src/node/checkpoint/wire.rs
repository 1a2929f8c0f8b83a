//! What travels on a checkpoint's connection, behind the handshake. Little-endian.
//!
//! ```text
//!  taker → giver, first:  0       8       12
//!                         least   CRC-32
//!  then one byte for each chunk that was taken (1), and now and then one that says nothing (2)
//!
//!  giver → taker:         0      1      4       8          16      20      24
//!                         kind   zeros  bytes   sequence   CRC-32  zeros   bytes…        the CRC is over bytes 0–15 and all behind 24
//! ```
//!
//! Frames are numbered from 0. The length of each is checked before anything is allocated for it: a chunk has 1 to
//! [`CHECKPOINT_CHUNK_BYTES_MAX`] bytes, everything else a fixed size.

use windlass_log::{Epoch, Lsn};

use super::NotGiven;

/// The most bytes of a chunk.
pub const CHECKPOINT_CHUNK_BYTES_MAX: usize = 64 << 10;
/// Chunks that may be under way: sent, and not taken by the application yet.
pub(crate) const CREDITS: usize = 8;
/// Bytes of a frame's header.
pub(crate) const HEADER_BYTES: usize = 24;
/// Bytes of the question.
pub(crate) const ASK_BYTES: usize = 12;
/// The taker's byte for a chunk that was taken.
pub(crate) const TAKEN: u8 = 1;
/// The taker's byte that says that it is there.
pub(crate) const ALIVE: u8 = 2;

const BEGIN_BYTES: usize = 24;
const END_BYTES: usize = 16;
const REFUSED_BYTES: usize = 32;

/// Why what arrived is no checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// No such kind of frame.
    #[error("frame {sequence} has kind {kind}, which is unknown")]
    Kind {
        /// Which frame.
        sequence: u64,
        /// Its kind.
        kind: u8,
    },
    /// A length that no frame of this kind has.
    #[error("frame {sequence} of kind {kind} has {bytes} bytes")]
    Length {
        /// Which frame.
        sequence: u64,
        /// Its kind.
        kind: u8,
        /// Its length.
        bytes: u32,
    },
    /// A frame is missing, or there twice.
    #[error("frame {expected} should come, and {found} did")]
    Sequence {
        /// The next one's number.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// A frame was changed on its way.
    #[error("frame {sequence} has checksum {expected:#010x}, and what arrived has {found:#010x}")]
    Checksum {
        /// Which frame.
        sequence: u64,
        /// In the frame.
        expected: u32,
        /// Of what arrived.
        found: u32,
    },
    /// A field can't be what it says.
    #[error("frame {sequence}: its {field} can't be right")]
    Field {
        /// Which frame.
        sequence: u64,
        /// Which field.
        field: &'static str,
    },
    /// A chunk before the beginning, or a second beginning.
    #[error("frame {sequence} of kind {kind} is out of place")]
    Place {
        /// Which frame.
        sequence: u64,
        /// Its kind.
        kind: u8,
    },
    /// More chunks than the taker has asked for.
    #[error("frame {sequence} is one more than was asked for")]
    Uncalled {
        /// Which frame.
        sequence: u64,
    },
    /// What arrived is not what left, as a whole.
    #[error(
        "{found_bytes} bytes with checksum {found:#010x} arrived, {expected_bytes} with {expected:#010x} left"
    )]
    Whole {
        /// Bytes that left.
        expected_bytes: u64,
        /// Their checksum.
        expected: u32,
        /// Bytes that arrived.
        found_bytes: u64,
        /// Their checksum.
        found: u32,
    },
}

/// A frame from the giver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    /// The giver is at work.
    Ping,
    /// What comes.
    Begin { at: Lsn, epoch: Epoch, bytes: Option<u64> },
    /// A part of it.
    Chunk(Vec<u8>),
    /// That was all.
    End { bytes: u64, checksum: u32 },
    /// Nothing comes.
    Refused(NotGiven),
}

impl Frame {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Frame::Ping => 0,
            Frame::Begin { .. } => 1,
            Frame::Chunk(_) => 2,
            Frame::End { .. } => 3,
            Frame::Refused(_) => 4,
        }
    }

    /// The frame as bytes, under this number.
    pub(crate) fn encode(&self, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        match self {
            Frame::Ping => {}
            Frame::Begin { at, epoch, bytes: total } => {
                put(&mut bytes, at.0);
                put(&mut bytes, epoch.to_bits());
                put(&mut bytes, total.unwrap_or(u64::MAX));
            }
            Frame::Chunk(chunk) => bytes.extend_from_slice(chunk),
            Frame::End { bytes: total, checksum } => {
                put(&mut bytes, *total);
                put(&mut bytes, u64::from(*checksum));
            }
            Frame::Refused(reason) => {
                let words = match reason {
                    NotGiven::NoHook => [1, 0, 0, 0],
                    NotGiven::Busy => [2, 0, 0, 0],
                    NotGiven::TooOld { at, least } => [3, at.0, least.0, 0],
                    NotGiven::NotCommitted { at, durable } => [4, at.0, durable.0, 0],
                    NotGiven::InsideRecord { at } => [5, at.0, 0, 0],
                    NotGiven::Application => [6, 0, 0, 0],
                    NotGiven::OtherLine { at, expected, found } => {
                        [7, at.0, expected.to_bits(), found.to_bits()]
                    }
                };
                words.into_iter().for_each(|word| put(&mut bytes, word));
            }
        }
        // A chunk's length was checked by who made it.
        let length = u32::try_from(bytes.len() - HEADER_BYTES).unwrap_or(u32::MAX);
        bytes[0] = self.kind();
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        let checksum = sum(&bytes[..16], &bytes[HEADER_BYTES..]);
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// A frame's header, whose length is one that its kind may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    kind: u8,
    sequence: u64,
    checksum: u32,
    /// What follows.
    pub(crate) bytes: usize,
    raw: [u8; 16],
}

impl Header {
    /// Judges the header of the frame that should have this number.
    pub(crate) fn decode(raw: &[u8; HEADER_BYTES], expected: u64) -> Result<Header, WireError> {
        let kind = raw[0];
        let (bytes, sequence) = (half(raw, 4), word(raw, 8));
        if sequence != expected {
            return Err(WireError::Sequence { expected, found: sequence });
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let is_right = match kind {
            0 => length == 0,
            1 => length == BEGIN_BYTES,
            2 => (1..=CHECKPOINT_CHUNK_BYTES_MAX).contains(&length),
            3 => length == END_BYTES,
            4 => length == REFUSED_BYTES,
            _ => return Err(WireError::Kind { sequence, kind }),
        };
        if !is_right {
            return Err(WireError::Length { sequence, kind, bytes });
        }
        if raw[1..4] != [0; 3] || raw[20..] != [0; 4] {
            return Err(WireError::Field { sequence, field: "header" });
        }
        let mut first = [0; 16];
        first.copy_from_slice(&raw[..16]);
        Ok(Header { kind, sequence, checksum: half(raw, 16), bytes: length, raw: first })
    }

    /// The frame, with what followed its header.
    pub(crate) fn frame(&self, body: Vec<u8>) -> Result<Frame, WireError> {
        let (sequence, expected, found) = (self.sequence, self.checksum, sum(&self.raw, &body));
        if expected != found {
            return Err(WireError::Checksum { sequence, expected, found });
        }
        let word = |at| word(&body, at);
        let field = |field| WireError::Field { sequence, field };
        match self.kind {
            1 => {
                let bytes = Some(word(16)).filter(|bytes| *bytes != u64::MAX);
                Ok(Frame::Begin { at: Lsn(word(0)), epoch: Epoch::from_bits(word(8)), bytes })
            }
            2 => Ok(Frame::Chunk(body)),
            3 => {
                let checksum = u32::try_from(word(8)).map_err(|_| field("checksum"))?;
                Ok(Frame::End { bytes: word(0), checksum })
            }
            4 => {
                let (one, other) = (Lsn(word(8)), Lsn(word(16)));
                Ok(Frame::Refused(match word(0) {
                    1 => NotGiven::NoHook,
                    2 => NotGiven::Busy,
                    3 => NotGiven::TooOld { at: one, least: other },
                    4 => NotGiven::NotCommitted { at: one, durable: other },
                    5 => NotGiven::InsideRecord { at: one },
                    6 => NotGiven::Application,
                    7 => NotGiven::OtherLine {
                        at: one,
                        expected: Epoch::from_bits(word(16)),
                        found: Epoch::from_bits(word(24)),
                    },
                    _ => return Err(field("reason")),
                }))
            }
            // Its header let no other kind pass.
            _ => Ok(Frame::Ping),
        }
    }
}

/// The question for a checkpoint that reaches at least `least`.
pub(crate) fn ask(least: Lsn) -> [u8; ASK_BYTES] {
    let mut bytes = [0; ASK_BYTES];
    bytes[..8].copy_from_slice(&least.0.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..8]);
    bytes[8..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What was asked for; `None` if that is no question.
pub(crate) fn asked(bytes: &[u8; ASK_BYTES]) -> Option<Lsn> {
    (half(bytes, 8) == crc32fast::hash(&bytes[..8])).then(|| Lsn(word(bytes, 0)))
}

fn put(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

fn sum(header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    hasher.finalize()
}

/// Holds the frames of one stream against each other: beginning, chunks, end, and the sum over all.
#[derive(Debug, Default)]
pub(crate) struct Order {
    has_begun: bool,
    bytes: u64,
    whole: crc32fast::Hasher,
}

impl Order {
    /// Counts a chunk that leaves.
    pub(crate) fn leaves(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.whole.update(chunk);
    }

    /// The end behind all that has left.
    pub(crate) fn end(&self) -> Frame {
        Frame::End { bytes: self.bytes, checksum: self.whole.clone().finalize() }
    }

    /// Judges a frame that arrives.
    pub(crate) fn arrives(&mut self, frame: &Frame, sequence: u64) -> Result<(), WireError> {
        let place = Err(WireError::Place { sequence, kind: frame.kind() });
        match frame {
            Frame::Ping => Ok(()),
            Frame::Begin { .. } if !self.has_begun => {
                self.has_begun = true;
                Ok(())
            }
            Frame::Chunk(chunk) if self.has_begun => {
                self.leaves(chunk);
                Ok(())
            }
            Frame::End { bytes, checksum } if self.has_begun => {
                let (found_bytes, found) = (self.bytes, self.whole.clone().finalize());
                if (*bytes, *checksum) == (found_bytes, found) {
                    return Ok(());
                }
                Err(WireError::Whole { expected_bytes: *bytes, expected: *checksum, found_bytes, found })
            }
            // Also in the middle: what it reads may have failed.
            Frame::Refused(_) => Ok(()),
            Frame::Begin { .. } | Frame::Chunk(_) | Frame::End { .. } => place,
        }
    }

    /// Bytes that have passed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_log::MemberId;

    fn samples() -> Vec<Frame> {
        let (at, least) = (Lsn(1 << 40), Lsn(4096));
        let mut all = vec![
            Frame::Ping,
            Frame::Begin { at, epoch: Epoch::new(7, MemberId(2)), bytes: Some(12) },
            Frame::Begin { at, epoch: Epoch::NONE, bytes: None },
            Frame::Chunk(vec![7]),
            Frame::Chunk(vec![9; CHECKPOINT_CHUNK_BYTES_MAX]),
            Frame::End { bytes: u64::MAX, checksum: u32::MAX },
        ];
        all.extend(
            [
                NotGiven::NoHook,
                NotGiven::Busy,
                NotGiven::TooOld { at, least },
                NotGiven::NotCommitted { at, durable: least },
                NotGiven::InsideRecord { at },
                NotGiven::Application,
                NotGiven::OtherLine {
                    at,
                    expected: Epoch::new(7, MemberId(2)),
                    found: Epoch::new(5, MemberId(1)),
                },
            ]
            .map(Frame::Refused),
        );
        all
    }

    fn decode(bytes: &[u8], expected: u64) -> Result<Frame, WireError> {
        let (header, body) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(header, expected)?;
        assert_eq!(header.bytes, body.len(), "the sample is whole");
        header.frame(body.to_vec())
    }

    #[test]
    fn frames_come_back_as_they_went_and_no_changed_byte_passes() {
        for (sequence, frame) in (3..).zip(samples()) {
            let bytes = frame.encode(sequence);
            assert_eq!(decode(&bytes, sequence), Ok(frame.clone()));
            let expected = sequence + 1;
            assert_eq!(decode(&bytes, expected), Err(WireError::Sequence { expected, found: sequence }));
            for at in (0..bytes.len()).filter(|at| *at < 64 || at % 997 == 0) {
                let mut changed = bytes.clone();
                changed[at] ^= 0x20;
                let (header, body) = changed.split_first_chunk().unwrap();
                let passed = Header::decode(header, sequence).and_then(|header| header.frame(body.to_vec()));
                assert!(passed.is_err(), "{frame:?} with byte {at} changed: {passed:?}");
            }
        }
        assert_eq!(asked(&ask(Lsn(77))), Some(Lsn(77)));
        assert_eq!(asked(&[1; ASK_BYTES]), None);
    }

    #[test]
    fn a_stream_has_one_beginning_and_one_end_and_all_its_bytes() {
        let begin = Frame::Begin { at: Lsn(4096), epoch: Epoch::NONE, bytes: None };
        let (one, two) = (Frame::Chunk(vec![1; 10]), Frame::Chunk(vec![2; 20]));
        let mut leaving = Order::default();
        leaving.leaves(&[1; 10]);
        leaving.leaves(&[2; 20]);
        let end = leaving.end();

        let mut order = Order::default();
        assert_eq!(order.arrives(&one, 0), Err(WireError::Place { sequence: 0, kind: 2 }));
        assert_eq!(order.arrives(&end, 0), Err(WireError::Place { sequence: 0, kind: 3 }));
        order.arrives(&begin, 0).unwrap();
        assert_eq!(order.arrives(&begin, 1), Err(WireError::Place { sequence: 1, kind: 1 }));
        order.arrives(&one, 1).unwrap();
        assert!(matches!(order.arrives(&end, 2), Err(WireError::Whole { found_bytes: 10, .. })));
        order.arrives(&two, 2).unwrap();
        order.arrives(&end, 3).unwrap();
        assert_eq!(order.bytes(), 30);

        let mut swapped = Order::default();
        for frame in [&begin, &two, &one] {
            swapped.arrives(frame, 0).unwrap();
        }
        assert!(
            matches!(swapped.arrives(&end, 3), Err(WireError::Whole { .. })),
            "as many bytes, in another order"
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_asks_for_no_more_than_a_chunk(
            header in any::<[u8; HEADER_BYTES]>(), kind in 0u8..6, bytes in 0u32..70_000, sequence in 0u64..3,
        ) {
            let mut header = header;
            header[0] = kind;
            header[1..4].fill(0);
            header[4..8].copy_from_slice(&bytes.to_le_bytes());
            header[8..16].copy_from_slice(&sequence.to_le_bytes());
            header[20..].fill(0);
            if let Ok(header) = Header::decode(&header, sequence) {
                prop_assert!(header.bytes <= CHECKPOINT_CHUNK_BYTES_MAX);
                let _ = header.frame(vec![0x5a; header.bytes]);
            }
        }
    }
}
