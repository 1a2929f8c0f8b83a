//! What is asked of members and packets at every transition, in few words.

use std::collections::HashMap;

use windlass_engine::{Message, Session};

use super::super::member::Facts;
use super::super::packet::Packet;

/// Sessions by number, from 1; 0 is none.
#[derive(Clone, Default)]
pub(super) struct Sessions(HashMap<Session, u32>);

impl Sessions {
    fn number(&mut self, session: Session) -> u32 {
        let next = u32::try_from(self.0.len()).expect("few") + 1;
        *self.0.entry(session).or_insert(next)
    }
}

pub(super) const MEMBERS_MAX: usize = 6;

#[derive(Clone, Copy)]
pub(super) struct Brief {
    pub(super) is_up: bool,
    /// To each member.
    pub(super) connections: [u32; MEMBERS_MAX],
    pub(super) window: u32,
    pub(super) fetching: u32,
}

impl Brief {
    pub(super) fn new(facts: &Facts, sessions: &mut Sessions) -> Brief {
        let mut connections = [0; MEMBERS_MAX];
        for (peer, session) in &facts.connections {
            connections[usize::from(peer.0)] = sessions.number(*session);
        }
        Brief {
            is_up: facts.is_up,
            connections,
            window: facts.window.map_or(0, |session| sessions.number(session)),
            fetching: facts.fetching.map_or(0, |session| sessions.number(session)),
        }
    }
}

/// What a packet is to who carries it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Keys,
    Placed,
    Refused,
    Adopted,
    Acknowledgement,
    Write,
    Read,
    /// What comes back for a `Read`.
    ReadEnd,
    Promise,
    Rejected,
    Up,
    Down,
    Other,
}

#[derive(Clone, Copy)]
pub(super) struct Label {
    pub(super) kind: Kind,
    /// The session that it belongs to, if any.
    pub(super) session: u32,
}

impl Label {
    pub(super) fn new(packet: &Packet, sessions: &mut Sessions) -> Label {
        let (kind, session) = match packet {
            Packet::Keys { session, .. } => (Kind::Keys, Some(session)),
            Packet::Placed { session, .. } => (Kind::Placed, Some(session)),
            Packet::Refused { session } => (Kind::Refused, Some(session)),
            Packet::Message(Message::Adopted { session, .. }) => (Kind::Adopted, Some(session)),
            Packet::Acknowledgement(acknowledgement) => {
                (Kind::Acknowledgement, Some(&acknowledgement.session))
            }
            Packet::Write { session, .. } => (Kind::Write, Some(session)),
            Packet::Read { session, .. } => (Kind::Read, Some(session)),
            Packet::ReadDone { session, .. } | Packet::ReadFailed { session } => {
                (Kind::ReadEnd, Some(session))
            }
            Packet::Message(Message::Promise { .. }) => (Kind::Promise, None),
            Packet::Message(Message::Rejected { .. }) => (Kind::Rejected, None),
            Packet::Up { .. } => (Kind::Up, None),
            Packet::Down => (Kind::Down, None),
            Packet::Message(_) | Packet::Beat(_) => (Kind::Other, None),
        };
        Label { kind, session: session.map_or(0, |session| sessions.number(*session)) }
    }

    /// Whether it would be ignored, or in the case of a write refused, whenever it arrived: a session that is over is never used
    /// again.
    pub(super) fn is_stale(self, from: u8, sender: &Brief, receiver: &Brief) -> bool {
        match self.kind {
            Kind::Keys | Kind::Placed | Kind::Refused | Kind::Adopted | Kind::Acknowledgement => {
                receiver.connections[usize::from(from)] != self.session
            }
            Kind::Write => receiver.window != self.session,
            Kind::ReadEnd => receiver.fetching != self.session,
            Kind::Read => sender.fetching != self.session,
            Kind::Promise | Kind::Rejected | Kind::Up | Kind::Down | Kind::Other => false,
        }
    }
}
