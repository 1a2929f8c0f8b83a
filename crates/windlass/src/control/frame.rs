//! What travels on an authenticated control connection: the engine's messages, and what the drivers need to make and open
//! fabric connections.
//!
//! ```text
//!  0        4     5
//!  length   kind  body             length counts kind and body; at most FRAME_BYTES_MAX
//! ```
//!
//! Little-endian. Decoding never panics and never allocates by a length that was not checked against the bytes at hand.

use std::net::{IpAddr, SocketAddr};

use windlass_engine::{Configuration, MESSAGE_BYTES_MAX, Message, MessageError, Refusal, Session};
use windlass_fabric::{REMOTE_RANGE_BYTES, RemoteRange};
use windlass_log::{Epoch, Lsn, MemberId};

use super::Member;

/// No frame is longer, its kind included.
pub const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1;
/// The longest endpoint of a provider.
pub const ENDPOINT_BYTES_MAX: usize = 256;
/// The most segments of one [`Frame::Keys`].
pub const KEYS_MAX: usize = 1024;

/// The most members of one [`Frame::Members`]: those of two configurations that count.
pub const MEMBERS_MAX: usize = 2 * Configuration::MEMBERS_MAX;

const SESSION_BYTES: usize = 12;
/// Number (1), 4 or 6 (1), port (2), IP address (16): IPv4 in the first 4 bytes.
const MEMBER_BYTES: usize = 20;
const SEGMENT_KEY_BYTES: usize = 8 + REMOTE_RANGE_BYTES;

/// What a fabric connection is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// A primary writes to a backup.
    Replicate,
    /// A candidate reads from a member that has promised it.
    Fetch,
}

/// Why a member keeps another one out, told to the one that is kept out: it would otherwise wait, and its own lines not say for what.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Exclusion {
    /// The folder was made anew: who comes back with an empty disk has lost what it promised and acknowledged. Or the peer has taken one that was made anew, and has
    /// counted with that.
    #[error(
        "this member's folder was made anew, or another one was taken in its place (incarnation {found:016x}, known is {known:016x}): have a new member take its place, with a number and a folder of its own (`Change::Replace`), or, if all other members keep this one out, put its old folder back"
    )]
    OtherDisk {
        /// What the peer has met, or its configuration names.
        known: u64,
        /// This folder's.
        found: u64,
    },
    /// The folder is a copy, or was set back.
    #[error(
        "this folder has been opened {found} times, and the group has met opening {known} of it: it was copied or set back: start the newest one, and remove the others"
    )]
    Copied {
        /// The opening that the group has met.
        known: u64,
        /// This one.
        found: u64,
    },
    /// It is in nobody's configuration, or was given another one.
    #[error(
        "this member's configuration is not the group's: give every member of the group the same members and quorums"
    )]
    Configuration,
    /// The other one's group does not have this member: it was taken out of it, another took its place, or it never was in it.
    #[error(
        "its group does not have this member: if it has left, or another took its place, stop it, and its folder can be removed; otherwise check the members that it was given"
    )]
    Outside,
}

impl From<Refusal> for Exclusion {
    fn from(refusal: Refusal) -> Exclusion {
        match refusal {
            Refusal::OtherIncarnation { known, found } => Exclusion::OtherDisk { known, found },
            Refusal::Clone { known, found } => Exclusion::Copied { known, found },
            Refusal::Myself | Refusal::OtherConfiguration { .. } => Exclusion::Configuration,
        }
    }
}

/// One frame between two drivers.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// Nothing: keeps an idle connection known to be alive.
    Ping,
    /// A message of the engine.
    Engine(Box<Message>),
    /// The initiator's end of a fabric connection.
    Offer {
        /// The session.
        session: Session,
        /// What for.
        purpose: Purpose,
        /// The provider's endpoint.
        endpoint: Vec<u8>,
    },
    /// The other end, in answer to an offer.
    Accept {
        /// The session.
        session: Session,
        /// What for.
        purpose: Purpose,
        /// The provider's endpoint.
        endpoint: Vec<u8>,
    },
    /// The windows that are open to the initiator; also says that this end is ready to receive. Repeats what was said before.
    Keys {
        /// The session.
        session: Session,
        /// What for.
        purpose: Purpose,
        /// The notice ring and, behind it, the heartbeat slot; empty for a fetch.
        slots: RemoteRange,
        /// Nothing at or beyond is open.
        up_to: Lsn,
        /// The segments' windows: everything behind the header page.
        segments: Vec<(u64, RemoteRange)>,
    },
    /// The window over the initiator's acknowledgement slot for this backup; also says that the initiator is ready to receive.
    AcknowledgeKey {
        /// The session.
        session: Session,
        /// The slot.
        slot: RemoteRange,
    },
    /// This end of the session is gone.
    Broken {
        /// The session.
        session: Session,
        /// What it was for.
        purpose: Purpose,
        /// Whether the sender was its initiator.
        by_initiator: bool,
    },
    /// The sender does not listen to the receiver, until it connects anew.
    Excluded(Exclusion),
    /// Where the other members of the sender's configuration are reached: for who has fallen behind the one that tells it of the primary. A hint for
    /// dialling alone, which the control plane keeps to itself: whom a member counts with its log says.
    Members {
        /// The number of the configuration.
        configuration: u64,
        /// Its members as far as the sender knows addresses, itself left out: at most [`MEMBERS_MAX`].
        members: Vec<Member>,
    },
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It ends inside a field, or bytes follow it.
    #[error("a frame of kind {kind} has {bytes} bytes, which does not fit its fields")]
    Length {
        /// The kind.
        kind: u8,
        /// Its bytes.
        bytes: usize,
    },
    /// No such kind in this version.
    #[error("frame kind {kind} is unknown")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A field can't be what it says.
    #[error("the frame's {field} can't be right")]
    Field {
        /// Which.
        field: &'static str,
    },
    /// The engine's message in it is none.
    #[error("the frame's message can't be read: {0}")]
    Message(#[from] MessageError),
}

impl Frame {
    /// The frame as bytes, its length word included.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        match self {
            Frame::Ping => bytes.push(0),
            Frame::Engine(message) => {
                bytes.push(1);
                bytes.extend_from_slice(&message.encode());
            }
            Frame::Offer { session, purpose, endpoint } => {
                bytes.push(2);
                put_session(&mut bytes, *session);
                bytes.push(purpose_bits(*purpose));
                bytes.extend_from_slice(endpoint);
            }
            Frame::Accept { session, purpose, endpoint } => {
                bytes.push(3);
                put_session(&mut bytes, *session);
                bytes.push(purpose_bits(*purpose));
                bytes.extend_from_slice(endpoint);
            }
            Frame::Keys { session, purpose, slots, up_to, segments } => {
                bytes.push(4);
                put_session(&mut bytes, *session);
                bytes.push(purpose_bits(*purpose));
                bytes.extend_from_slice(&slots.encode());
                bytes.extend_from_slice(&up_to.0.to_le_bytes());
                for (segment, range) in segments {
                    bytes.extend_from_slice(&segment.to_le_bytes());
                    bytes.extend_from_slice(&range.encode());
                }
            }
            Frame::AcknowledgeKey { session, slot } => {
                bytes.push(5);
                put_session(&mut bytes, *session);
                bytes.extend_from_slice(&slot.encode());
            }
            Frame::Broken { session, purpose, by_initiator } => {
                bytes.push(6);
                put_session(&mut bytes, *session);
                bytes.push(purpose_bits(*purpose));
                bytes.push(u8::from(*by_initiator));
            }
            Frame::Excluded(exclusion) => {
                let (kind, known, found) = match exclusion {
                    Exclusion::OtherDisk { known, found } => (1, *known, *found),
                    Exclusion::Copied { known, found } => (2, *known, *found),
                    Exclusion::Configuration => (3, 0, 0),
                    Exclusion::Outside => (4, 0, 0),
                };
                bytes.extend_from_slice(&[7, kind]);
                bytes.extend_from_slice(&known.to_le_bytes());
                bytes.extend_from_slice(&found.to_le_bytes());
            }
            Frame::Members { configuration, members } => {
                bytes.push(8);
                bytes.extend_from_slice(&configuration.to_le_bytes());
                for member in members.iter().take(MEMBERS_MAX) {
                    put_member(&mut bytes, *member);
                }
            }
        }
        // Longer than any reader takes can't be: its parts are bounded.
        let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// The frame in these bytes: kind and body, without the length word.
    ///
    /// # Errors
    ///
    /// [`FrameError`]: close the connection, nothing of it can be believed.
    pub fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
        let Some((&kind, body)) = bytes.split_first() else {
            return Err(FrameError::Length { kind: 0, bytes: 0 });
        };
        let mut reader = Reader { kind, bytes: body.len(), rest: body };
        let frame = match kind {
            0 => Frame::Ping,
            1 => Frame::Engine(Box::new(Message::decode(std::mem::take(&mut reader.rest))?)),
            2 => {
                let (session, purpose) = (reader.session()?, reader.purpose()?);
                Frame::Offer { session, purpose, endpoint: reader.endpoint()? }
            }
            3 => {
                let (session, purpose) = (reader.session()?, reader.purpose()?);
                Frame::Accept { session, purpose, endpoint: reader.endpoint()? }
            }
            4 => Frame::Keys {
                session: reader.session()?,
                purpose: reader.purpose()?,
                slots: reader.range()?,
                up_to: Lsn(reader.u64()?),
                segments: reader.segments()?,
            },
            5 => Frame::AcknowledgeKey { session: reader.session()?, slot: reader.range()? },
            6 => Frame::Broken {
                session: reader.session()?,
                purpose: reader.purpose()?,
                by_initiator: reader.flag()?,
            },
            7 => Frame::Excluded(reader.exclusion()?),
            8 => Frame::Members { configuration: reader.u64()?, members: reader.members()? },
            _ => return Err(FrameError::Kind { kind }),
        };
        if reader.rest.is_empty() { Ok(frame) } else { Err(reader.length()) }
    }
}

fn put_session(bytes: &mut Vec<u8>, session: Session) {
    bytes.extend_from_slice(&session.epoch.to_bits().to_le_bytes());
    bytes.extend_from_slice(&session.attempt.to_le_bytes());
}

fn put_member(bytes: &mut Vec<u8>, member: Member) {
    let mut ip = [0; 16];
    let family = match member.address.ip() {
        IpAddr::V4(v4) => {
            ip[..4].copy_from_slice(&v4.octets());
            4
        }
        IpAddr::V6(v6) => {
            ip = v6.octets();
            6
        }
    };
    bytes.extend_from_slice(&[member.id.0, family]);
    bytes.extend_from_slice(&member.address.port().to_le_bytes());
    bytes.extend_from_slice(&ip);
}

fn purpose_bits(purpose: Purpose) -> u8 {
    match purpose {
        Purpose::Replicate => 1,
        Purpose::Fetch => 2,
    }
}

struct Reader<'a> {
    kind: u8,
    bytes: usize,
    rest: &'a [u8],
}

impl Reader<'_> {
    fn length(&self) -> FrameError {
        FrameError::Length { kind: self.kind, bytes: self.bytes + 1 }
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], FrameError> {
        let (taken, rest) = self.rest.split_first_chunk::<BYTES>().ok_or(self.length())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn session(&mut self) -> Result<Session, FrameError> {
        let bytes: [u8; SESSION_BYTES] = self.take()?;
        let mut reader = Reader { kind: self.kind, bytes: self.bytes, rest: &bytes };
        let epoch = Epoch::from_bits(reader.u64()?);
        Ok(Session { epoch, attempt: u32::from_le_bytes(reader.take()?) })
    }

    fn purpose(&mut self) -> Result<Purpose, FrameError> {
        match self.take()? {
            [1] => Ok(Purpose::Replicate),
            [2] => Ok(Purpose::Fetch),
            [_] => Err(FrameError::Field { field: "purpose" }),
        }
    }

    fn flag(&mut self) -> Result<bool, FrameError> {
        match self.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err(FrameError::Field { field: "flag" }),
        }
    }

    fn exclusion(&mut self) -> Result<Exclusion, FrameError> {
        let [kind] = self.take()?;
        match (kind, self.u64()?, self.u64()?) {
            (1, known, found) => Ok(Exclusion::OtherDisk { known, found }),
            (2, known, found) => Ok(Exclusion::Copied { known, found }),
            (3, 0, 0) => Ok(Exclusion::Configuration),
            (4, 0, 0) => Ok(Exclusion::Outside),
            _ => Err(FrameError::Field { field: "exclusion" }),
        }
    }

    fn members(&mut self) -> Result<Vec<Member>, FrameError> {
        if !self.rest.len().is_multiple_of(MEMBER_BYTES) {
            return Err(self.length());
        }
        let count = self.rest.len() / MEMBER_BYTES;
        if count > MEMBERS_MAX {
            return Err(FrameError::Field { field: "list of members" });
        }
        (0..count).map(|_| self.member()).collect()
    }

    fn member(&mut self) -> Result<Member, FrameError> {
        let ([id, family], port) = (self.take()?, u16::from_le_bytes(self.take()?));
        let ip: [u8; 16] = self.take()?;
        let ip = match (family, ip) {
            (4, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => IpAddr::from([a, b, c, d]),
            (6, ip) => IpAddr::from(ip),
            _ => return Err(FrameError::Field { field: "address" }),
        };
        Ok(Member { id: MemberId(id), address: SocketAddr::new(ip, port) })
    }

    fn range(&mut self) -> Result<RemoteRange, FrameError> {
        Ok(RemoteRange::decode(self.take()?))
    }

    fn endpoint(&mut self) -> Result<Vec<u8>, FrameError> {
        let endpoint = std::mem::take(&mut self.rest);
        if endpoint.len() > ENDPOINT_BYTES_MAX {
            return Err(FrameError::Field { field: "endpoint" });
        }
        Ok(endpoint.to_vec())
    }

    fn segments(&mut self) -> Result<Vec<(u64, RemoteRange)>, FrameError> {
        if !self.rest.len().is_multiple_of(SEGMENT_KEY_BYTES) {
            return Err(self.length());
        }
        let count = self.rest.len() / SEGMENT_KEY_BYTES;
        if count > KEYS_MAX {
            return Err(FrameError::Field { field: "list of segments" });
        }
        (0..count).map(|_| Ok((self.u64()?, self.range()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_fabric::RemoteKey;

    fn samples() -> Vec<Frame> {
        let session = Session { epoch: Epoch::new(7, MemberId(2)), attempt: 3 };
        let range = RemoteRange { address: 0x1_0000_0000, bytes: 4096, key: RemoteKey(77) };
        let purpose = Purpose::Replicate;
        vec![
            Frame::Ping,
            Frame::Engine(Box::new(Message::PreVote { epoch: session.epoch, configuration: 3 })),
            Frame::Offer { session, purpose, endpoint: vec![1, 2, 3] },
            Frame::Accept { session, purpose: Purpose::Fetch, endpoint: Vec::new() },
            Frame::Keys {
                session,
                purpose,
                slots: range,
                up_to: Lsn(1 << 40),
                segments: vec![(5, range), (6, range)],
            },
            Frame::AcknowledgeKey { session, slot: range },
            Frame::Broken { session, purpose, by_initiator: true },
            Frame::Excluded(Exclusion::OtherDisk { known: 1, found: u64::MAX }),
            Frame::Excluded(Exclusion::Copied { known: 2, found: 1 }),
            Frame::Excluded(Exclusion::Configuration),
            Frame::Excluded(Exclusion::Outside),
            Frame::Members {
                configuration: 7,
                members: vec![
                    Member { id: MemberId(1), address: "10.1.2.3:65535".parse().unwrap() },
                    Member { id: MemberId(255), address: "[fe80::1]:1".parse().unwrap() },
                ],
            },
        ]
    }

    #[test]
    fn frames_come_back_as_they_went() {
        for frame in samples() {
            let bytes = frame.encode();
            let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(usize::try_from(length).unwrap(), bytes.len() - 4);
            assert_eq!(Frame::decode(&bytes[4..]), Ok(frame));
        }
    }

    #[test]
    fn a_frame_cut_anywhere_or_with_a_byte_more_is_refused_or_another_whole_frame() {
        for frame in samples() {
            let bytes = frame.encode();
            for end in 4..bytes.len() {
                assert_ne!(Frame::decode(&bytes[4..end]).as_ref(), Ok(&frame));
            }
            let longer = [&bytes[4..], &[0][..]].concat();
            assert_ne!(Frame::decode(&longer).as_ref(), Ok(&frame));
        }
        assert_eq!(Frame::decode(&[99]), Err(FrameError::Kind { kind: 99 }));
        let exclusion = FrameError::Field { field: "exclusion" };
        assert_eq!(Frame::decode(&[&[7, 5][..], &[0; 16]].concat()), Err(exclusion));
        assert_eq!(Frame::decode(&[&[7, 3][..], &[1; 16]].concat()), Err(exclusion));
        let address = FrameError::Field { field: "address" };
        for wrong in [[&[1, 5][..], &[0; 18]].concat(), [&[1, 4][..], &[9; 18]].concat()] {
            assert_eq!(Frame::decode(&[&[8][..], &[0; 8], &wrong].concat()), Err(address));
        }
        let many = [&[8][..], &[0; 8], &[6; MEMBER_BYTES * (MEMBERS_MAX + 1)]].concat();
        assert_eq!(Frame::decode(&many), Err(FrameError::Field { field: "list of members" }));
        let endpoint = [&[2][..], &[0; 12], &[1], &[0; ENDPOINT_BYTES_MAX + 1]].concat();
        assert_eq!(Frame::decode(&endpoint), Err(FrameError::Field { field: "endpoint" }));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..9) {
            let _ = Frame::decode(&bytes);
            let _ = Frame::decode(&[&[kind][..], &bytes].concat());
        }
    }
}
