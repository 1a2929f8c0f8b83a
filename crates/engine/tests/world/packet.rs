//! What is on its way from one member to another, and in which order it arrives.

use windlass_engine::{Acknowledgement, Heartbeat, Identity, LsnRange, Message, Notice, Session};
use windlass_log::Lsn;

use super::image::Record;

/// What travels in order among its own kind, and in any order beside the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// The control connection: messages, keys, and its ends.
    Control,
    /// Requests of a queue pair.
    Requests,
    /// What comes back for them.
    Completions,
}

pub const LANES: [Lane; 3] = [Lane::Control, Lane::Requests, Lane::Completions];

#[derive(Clone, PartialEq, Debug)]
pub enum Packet {
    // Control.
    Message(Message),
    Keys {
        session: Session,
        up_to: Lsn,
    },
    /// A connection to a process that has just begun, and whether it wants to know who is here.
    Up {
        identity: Identity,
        asks: bool,
    },
    /// The process at the other end is gone.
    Down,
    // Requests.
    Write {
        session: Session,
        range: LsnRange,
        records: Vec<Record>,
        notice: Notice,
    },
    Beat(Heartbeat),
    Acknowledgement(Acknowledgement),
    Read {
        session: Session,
        range: LsnRange,
    },
    // Completions.
    Placed {
        session: Session,
        to: Lsn,
    },
    Refused {
        session: Session,
    },
    ReadDone {
        session: Session,
        range: LsnRange,
        records: Vec<Record>,
    },
    ReadFailed {
        session: Session,
    },
}

impl Packet {
    pub fn lane(&self) -> Lane {
        match self {
            Packet::Message(_) | Packet::Keys { .. } | Packet::Up { .. } | Packet::Down => Lane::Control,
            Packet::Write { .. } | Packet::Beat(_) | Packet::Acknowledgement(_) | Packet::Read { .. } => {
                Lane::Requests
            }
            Packet::Placed { .. }
            | Packet::Refused { .. }
            | Packet::ReadDone { .. }
            | Packet::ReadFailed { .. } => Lane::Completions,
        }
    }

    /// What the fabric answers where nobody takes a request any more.
    pub fn refused(&self) -> Option<Packet> {
        match self {
            Packet::Write { session, .. } => Some(Packet::Refused { session: *session }),
            Packet::Beat(heartbeat) => Some(Packet::Refused { session: heartbeat.session }),
            Packet::Read { session, .. } => Some(Packet::ReadFailed { session: *session }),
            _ => None,
        }
    }
}
