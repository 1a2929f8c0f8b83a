//! The control plane: one authenticated connection for each pair of members, for the handshake and the rare messages.
//!
//! A driver sees it through [`ControlPlane`] alone, so that a simulator can put its own network there. [`TcpControl`] is the
//! real one: a thread with a small runtime of its own, one TCP connection for each pair, the member with the higher number
//! dials. Nothing is read from a connection before it has proved the group's secret (`auth`), nothing of the engine before
//! its hello was judged (`hello`), and no frame allocates by a length that was not checked (`frame`). DESIGN.md section 9.3.

#[cfg(feature = "tcp")]
mod auth;
mod frame;
#[cfg(feature = "tcp")]
mod hello;
#[cfg(feature = "tcp")]
mod peers;
#[cfg(feature = "tcp")]
mod tcp;

use std::net::SocketAddr;

#[cfg(feature = "tcp")]
pub use auth::{NONCE_BYTES, PROOF_BYTES, Secret, SecretTooShort};
pub use frame::{
    ENDPOINT_BYTES_MAX, Exclusion, FRAME_BYTES_MAX, Frame, FrameError, KEYS_MAX, MEMBERS_MAX, Purpose,
};
#[cfg(feature = "tcp")]
pub(crate) use tcp::Streams;
#[cfg(feature = "tcp")]
pub use tcp::{ControlError, ControlOptions, TcpControl};
use windlass_engine::{Identity, MemberEntry};
use windlass_log::{LogId, MemberId};

/// What a control plane tells its driver.
#[derive(Clone, PartialEq, Debug)]
pub enum ControlEvent {
    /// The connection to a peer is up, both ways, and its hello named this identity. If it was up before, it was lost and what was under way with it.
    Up {
        /// The peer.
        peer: MemberId,
        /// Who it is.
        identity: Identity,
    },
    /// The connection to a peer is lost; what was under way is lost with it.
    Down {
        /// The peer.
        peer: MemberId,
    },
    /// A member that does not let this one in, because its group does not have it. Told once, until it lets it in again.
    Outside {
        /// Who says so.
        by: MemberId,
    },
    /// A frame from a peer that is up.
    Frame {
        /// The peer.
        peer: MemberId,
        /// What it says.
        frame: Frame,
    },
}

/// A way to exchange frames with every other member of the group.
///
/// Frames to one peer arrive in order, or not at all when the connection is lost between; an [`ControlEvent::Up`] follows then.
pub trait ControlPlane: Send + 'static {
    /// Takes out what happened next, if anything. Never waits.
    fn poll(&mut self) -> Option<ControlEvent>;

    /// Sends a frame. Never waits: it is dropped when the peer's connection is down or does not drain.
    fn send(&mut self, peer: MemberId, frame: Frame);

    /// Keeps a connection with these members, those of the `configuration` of this number but this one, from now on, whatever it was told before.
    /// Connections that are up stay up.
    fn set_members(&mut self, configuration: u64, members: &[MemberEntry]);
}

/// What all members of a group must have been given alike, and tell each other in the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The segment size of the member's log, in bytes: a power of two.
    pub segment_bytes: u64,
    /// Whether the group allows the level `Replicated`.
    pub replicated: bool,
    /// Slots of a notice ring.
    pub notice_slots: u32,
}

/// Why a connection was refused. Each is one line in the log; the peer stays out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The first bytes are not this protocol's.
    #[error("it does not speak windlass's control protocol: something at that address dials the wrong port")]
    NotWindlass,
    /// Another framing version.
    #[error(
        "its control protocol has version {found}, this release speaks {expected}: run compatible releases"
    )]
    WireVersion {
        /// This release's.
        expected: u16,
        /// The peer's.
        found: u16,
    },
    /// The proof does not fit.
    #[error("it does not know the group's secret: give every member the same one")]
    Secret,
    /// It closed or fell silent before the handshake was over; a peer that refuses us does just that.
    #[error(
        "it closed the connection or fell silent during the handshake: a member's own lines say why, and whatever is no member has nothing to look for at this port"
    )]
    Handshake,
    /// Too many connections were in the middle of their handshake, and this one was the oldest of them.
    #[error(
        "it had to make room for another: too many connections that have not proved themselves: see what connects to this port"
    )]
    Crowded,
    /// A member of another group.
    #[error("its log is {found}, this group's is {expected}: check its address and folder")]
    LogId {
        /// This group's.
        expected: LogId,
        /// The peer's.
        found: LogId,
    },
    /// Another disk format.
    #[error("its disk format has version {found}, this release's is {expected}: run compatible releases")]
    FormatVersion {
        /// This release's.
        expected: u32,
        /// The peer's.
        found: u32,
    },
    /// Other messages or slots.
    #[error(
        "its protocol has version {found:#010x}, this release's is {expected:#010x}: run compatible releases"
    )]
    ProtocolVersion {
        /// This release's.
        expected: u32,
        /// The peer's.
        found: u32,
    },
    /// Features that this release does not know.
    #[error("it uses features {unknown:#x} that this release does not know: upgrade this member")]
    Features {
        /// The unknown bits.
        unknown: u64,
    },
    /// It calls itself by our own number.
    #[error("it is {member} as this member is: the folder was copied, or an address is this member's own")]
    Myself {
        /// The number.
        member: MemberId,
    },
    /// No member of the group.
    #[error(
        "{member} is no member of this group, as far as is known here: stop it if it has left, otherwise check the members that it was given"
    )]
    NotAMember {
        /// Its number.
        member: MemberId,
    },
    /// The peer answers that this member is none of its group.
    #[error(
        "{by} does not have this member in its group: if it has left, or another took its place, stop it, and its folder can be removed; otherwise check the members that it was given"
    )]
    Outside {
        /// Who answers so.
        by: MemberId,
    },
    /// It wanted to speak to somebody else.
    #[error("it looks for {expected} at the address of {found}: check the addresses of the members")]
    OtherMember {
        /// Whom it looks for.
        expected: MemberId,
        /// Who this is.
        found: MemberId,
    },
    /// It was given other options.
    #[error(
        "its segments have {} bytes, its level replicated is {}, its notice slots are {}; here {}, {}, {}: give all members the same options",
        found.segment_bytes, allowed(found.replicated), found.notice_slots,
        expected.segment_bytes, allowed(expected.replicated), expected.notice_slots
    )]
    Terms {
        /// This member's.
        expected: Terms,
        /// The peer's.
        found: Terms,
    },
    /// Another process from a copy of the same folder is, or was, connected.
    #[error(
        "{member} is known from opening {known} of its folder, this is opening {found} of it or a copy: \
         remove the copied or set-back folder"
    )]
    Clone {
        /// The member.
        member: MemberId,
        /// The opening known.
        known: u64,
        /// The peer's.
        found: u64,
    },
    /// It asks for a checkpoint, and the process that is connected as this member is another one, or none.
    #[error(
        "it asks for a checkpoint, or whether it is a member, and is not the process that is connected as {member}"
    )]
    NotConnected {
        /// The member.
        member: MemberId,
    },
    /// Its disk was replaced while the old one's process is still connected.
    #[error("another process of {member} with another disk is still connected: stop one of the two")]
    OtherDisk {
        /// The member.
        member: MemberId,
    },
    /// A frame that is none, after the handshake.
    #[error("it sent what is no frame ({0})")]
    Frame(FrameError),
    /// A frame longer than any.
    #[error("it announced a frame of {bytes} bytes, the longest is {FRAME_BYTES_MAX}")]
    FrameTooLong {
        /// What it announced.
        bytes: u32,
    },
}

/// Where a member is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its number in the group.
    pub id: MemberId,
    /// The address of its control plane.
    pub address: SocketAddr,
}

fn allowed(replicated: bool) -> &'static str {
    if replicated { "allowed" } else { "not allowed" }
}
