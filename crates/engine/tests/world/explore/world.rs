//! A state of the world in numbers, and what may happen in it.

use std::hash::{Hash, Hasher};

use super::numbers::Fingerprint;

/// How much of each kind of event was spent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Spent {
    /// Epochs that were ever asked for.
    pub(super) epochs: u8,
    pub(super) records: u8,
    pub(super) crashes: u8,
    pub(super) power_losses: u8,
    pub(super) breaks: u8,
    pub(super) cuts: u8,
    pub(super) beats: u8,
    pub(super) resigns: u8,
    pub(super) handovers: u8,
    pub(super) changes: u8,
}

impl Spent {
    pub(super) fn bytes(self) -> [u8; 10] {
        let Spent {
            epochs,
            records,
            crashes,
            power_losses,
            breaks,
            cuts,
            beats,
            resigns,
            handovers,
            changes,
        } = self;
        [epochs, records, crashes, power_losses, breaks, cuts, beats, resigns, handovers, changes]
    }

    fn from_bytes(bytes: [u8; 10]) -> Spent {
        let [epochs, records, crashes, power_losses, breaks, cuts, beats, resigns, handovers, changes] =
            bytes;
        Spent { epochs, records, crashes, power_losses, breaks, cuts, beats, resigns, handovers, changes }
    }
}

#[derive(PartialEq, Eq, Debug)]
pub(super) struct World {
    pub(super) members: Vec<u32>,
    /// By lane, in order within each.
    pub(super) packets: Vec<(u8, u32)>,
    pub(super) oracle: u32,
    pub(super) spent: Spent,
    /// Pairs whose control connection ends at a process that is gone: what is sent into it is lost.
    pub(super) stale: u32,
}

impl Clone for World {
    fn clone(&self) -> World {
        let World { members, packets, oracle, spent, stale } = self;
        let (members, packets) = (members.clone(), packets.clone());
        World { members, packets, oracle: *oracle, spent: *spent, stale: *stale }
    }

    /// Into the memory that it has.
    fn clone_from(&mut self, other: &World) {
        self.members.clone_from(&other.members);
        self.packets.clone_from(&other.packets);
        (self.oracle, self.spent, self.stale) = (other.oracle, other.spent, other.stale);
    }
}

impl World {
    pub(super) fn fingerprint(&self) -> (u64, u64) {
        let mut hash = Fingerprint::new();
        self.members.iter().for_each(|member| hash.add(u64::from(*member)));
        let [first @ .., before_last, last] = self.spent.bytes();
        hash.add(u64::from_le_bytes(first));
        hash.add(u64::from(self.oracle) << 32 | u64::from(self.stale));
        hash.add(u64::from(last) << 48 | u64::from(before_last) << 32 | self.packets.len() as u64);
        self.packets.iter().for_each(|(lane, packet)| hash.add(u64::from(*lane) << 32 | u64::from(*packet)));
        hash.finish()
    }

    /// Behind what is in `bytes`.
    pub(super) fn pack(&self, bytes: &mut Vec<u8>) {
        self.members.iter().for_each(|member| bytes.extend_from_slice(&member.to_le_bytes()));
        bytes.extend_from_slice(&self.oracle.to_le_bytes());
        bytes.extend_from_slice(&self.stale.to_le_bytes());
        bytes.extend_from_slice(&self.spent.bytes());
        bytes.push(u8::try_from(self.packets.len()).expect("a small world"));
        for (lane, packet) in &self.packets {
            bytes.push(*lane);
            bytes.extend_from_slice(&packet.to_le_bytes());
        }
    }

    /// What `pack` made of a world with as many members as this one has.
    pub(super) fn unpack(&mut self, bytes: &mut &[u8]) {
        fn next<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
            let (first, rest) = bytes.split_first_chunk::<N>().expect("packed here");
            *bytes = rest;
            *first
        }
        let mut word = || u32::from_le_bytes(next(bytes));
        self.members.iter_mut().for_each(|member| *member = word());
        (self.oracle, self.stale) = (word(), word());
        self.spent = Spent::from_bytes(next(bytes));
        let [count] = next(bytes);
        self.packets.clear();
        for _ in 0..count {
            let [lane] = next(bytes);
            self.packets.push((lane, u32::from_le_bytes(next(bytes))));
        }
    }
}

/// What happens in a world; with the state before, it says all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    /// At which member.
    pub(super) at: u8,
    pub(super) what: What,
    pub(super) dies_after: Option<u8>,
}

impl Event {
    /// Whether it is a step of a member that its death can cut short.
    pub(super) fn may_die(self) -> bool {
        !matches!(self.what, What::Crash | What::LosePower { .. } | What::Cut { .. })
    }

    /// Whether it brings on what is under way, and is no fault or wish.
    pub(super) fn is_quiet(self) -> bool {
        matches!(
            self.what,
            What::Deliver { .. } | What::Notice | What::Ordered | What::Free { .. } | What::Restart
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The head of this lane arrives.
    Deliver {
        lane: u8,
    },
    /// The end of a control connection arrives before what was sent on it.
    DeliverDown {
        lane: u8,
    },
    Notice,
    Ordered,
    Free {
        which: u8,
    },
    Append,
    Suspect,
    Resign,
    Handover {
        to: u8,
    },
    Change {
        which: u8,
    },
    Beat,
    Break {
        peer: u8,
        loses: bool,
    },
    FetchLate,
    Cut {
        peer: u8,
    },
    Crash,
    LosePower {
        kept: u8,
    },
    Restart,
}

impl What {
    /// Its kind and its operand.
    fn code(self) -> u16 {
        let (kind, operand) = match self {
            What::Deliver { lane } => (0, lane),
            What::DeliverDown { lane } => (1, lane),
            What::Notice => (2, 0),
            What::Ordered => (3, 0),
            What::Free { which } => (4, which),
            What::Append => (5, 0),
            What::Suspect => (6, 0),
            What::Resign => (7, 0),
            What::Handover { to } => (8, to),
            What::Beat => (9, 0),
            What::Break { peer, loses: false } => (10, peer),
            What::Break { peer, loses: true } => (11, peer),
            What::FetchLate => (12, 0),
            What::Cut { peer } => (13, peer),
            What::Crash => (14, 0),
            What::LosePower { kept } => (15, kept),
            What::Restart => (16, 0),
            What::Change { which } => (17, which),
        };
        kind << 8 | u16::from(operand)
    }
}

/// A member, what arrives at it, what happens, and the death that ends it: all that a step depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Case {
    pub(super) member: u32,
    /// The packet that arrives, or how many records were appended before.
    pub(super) operand: u32,
    pub(super) what: What,
    pub(super) dies_after: Option<u8>,
}

impl Hash for Case {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.member) << 32 | u64::from(self.operand));
        state.write_u32(
            u32::from(self.what.code()) << 8 | u32::from(self.dies_after.map_or(0, |after| after + 1)),
        );
    }
}
