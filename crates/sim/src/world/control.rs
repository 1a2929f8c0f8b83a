//! The control connections, one for each pair: frames in order, or none of them; lost, made again, cut in one direction or both.

use std::collections::VecDeque;

use windlass::MemberId;
use windlass::control::{ControlEvent, Frame};

use super::World;
use crate::coverage::Mark;
use crate::fabric::{MS, US};
use crate::oracle::frames;

/// A pair of members and what lies between them. Direction 0 is from the lower to the higher.
#[derive(Debug, Default)]
pub(super) struct Pair {
    /// The connection that there is; counts up.
    live: Option<u64>,
    made: u64,
    /// Which connection each end knows of.
    known: [Option<u64>; 2],
    /// What is cut waits here, as in a socket that sends again.
    held: [VecDeque<Frame>; 2],
    /// Arrivals are in order.
    last_at: [u64; 2],
}

/// Something of a control connection.
#[derive(Debug)]
pub(super) enum What {
    /// A frame arrives.
    Arrive { from: u8, to: u8, connection: u64, frame: Frame },
    /// An end hears that its connection is up.
    Up { at: u8, peer: u8, connection: u64 },
    /// An end hears that it is lost.
    Down { at: u8, peer: u8, connection: u64 },
    /// Two members try to connect.
    Connect { low: u8, high: u8 },
    /// A connection that was cut is given up, if it still is.
    GiveUp { low: u8, high: u8, connection: u64 },
}

fn ordered(a: u8, b: u8) -> (u8, u8) {
    (a.min(b), a.max(b))
}

fn direction(from: u8, to: u8) -> usize {
    usize::from(from > to)
}

/// The index of an end in its pair.
fn end(at: u8, peer: u8) -> usize {
    usize::from(at > peer)
}

impl World {
    pub(super) fn make_pairs(&mut self) {
        for low in 0..self.setting.all() {
            for high in low + 1..self.setting.all() {
                self.pairs.insert((low, high), Pair::default());
            }
        }
    }

    fn pair(&mut self, a: u8, b: u8) -> &mut Pair {
        self.pairs.entry(ordered(a, b)).or_default()
    }

    pub(super) fn control(&mut self, what: What) {
        match what {
            What::Arrive { from, to, connection, frame } => self.arrive(from, to, connection, frame),
            What::Up { at, peer, connection } => self.up(at, peer, connection),
            What::Down { at, peer, connection } => self.down(at, peer, connection),
            What::Connect { low, high } => self.connect(low, high),
            What::GiveUp { low, high, connection } => {
                let is_cut = self.is_cut(low, high) || self.is_cut(high, low);
                if is_cut && self.pair(low, high).live == Some(connection) {
                    self.lose(low, high);
                }
            }
        }
    }

    fn is_cut(&self, from: u8, to: u8) -> bool {
        self.cut.contains(&(from, to))
    }

    /// When something sent now arrives: in order.
    fn arrival(&mut self, from: u8, to: u8) -> u64 {
        let delay = self.random.range(15 * US, 200 * US);
        let slowness = self.members[usize::from(from)].slowness.max(self.members[usize::from(to)].slowness);
        let wanted = self.now + delay * slowness;
        let last = &mut self.pair(from, to).last_at[direction(from, to)];
        *last = (*last).max(wanted);
        *last - self.now
    }

    pub(super) fn send(&mut self, at: usize, to: u8, frame: &Frame) {
        let from = self.members[at].id;
        let Some(connection) = self.pair(from, to).known[end(from, to)] else { return };
        // Through its bytes: what a driver sends must come back from the wire.
        let frame = match frames::sent(from, frame) {
            Ok(frame) => frame,
            Err(violation) => return self.check(Err(violation)),
        };
        if self.random.happens(self.setting.control.lost) {
            self.mark(Mark::ControlLost);
            return self.lose(from, to);
        }
        let twice = matches!(frame, Frame::Engine(_)) && self.random.happens(self.setting.control.duplicated);
        if twice {
            self.mark(Mark::FrameTwice);
            let after = self.arrival(from, to);
            let frame = frame.clone();
            self.plan(after, super::What::Control(What::Arrive { from, to, connection, frame }));
        }
        let after = self.arrival(from, to);
        self.plan(after, super::What::Control(What::Arrive { from, to, connection, frame }));
    }

    fn arrive(&mut self, from: u8, to: u8, connection: u64, frame: Frame) {
        let is_cut = self.is_cut(from, to);
        let pair = self.pair(from, to);
        if pair.known[end(to, from)] != Some(connection) {
            return;
        }
        let held = &mut pair.held[direction(from, to)];
        if is_cut || !held.is_empty() {
            held.push_back(frame);
            return;
        }
        self.deliver(from, to, frame);
    }

    fn deliver(&mut self, from: u8, to: u8, frame: Frame) {
        let at = usize::from(to);
        if self.members[at].driver.is_none() {
            return;
        }
        if let Frame::Engine(message) = &frame {
            self.hears(at, message);
        }
        let event = ControlEvent::Frame { peer: MemberId(from), frame };
        self.members[at].control.wire().inbox.push_back(event);
        self.wake(at);
    }

    fn up(&mut self, at: u8, peer: u8, connection: u64) {
        let identity = self.members[usize::from(peer)].identity;
        let pair = self.pair(at, peer);
        let (Some(identity), true) = (identity, pair.live == Some(connection)) else { return };
        pair.known[end(at, peer)] = Some(connection);
        let member = &mut self.members[usize::from(at)];
        if member.driver.is_some() {
            member.control.wire().inbox.push_back(ControlEvent::Up { peer: MemberId(peer), identity });
            self.wake(usize::from(at));
        }
    }

    fn down(&mut self, at: u8, peer: u8, connection: u64) {
        let pair = self.pair(at, peer);
        if pair.known[end(at, peer)] != Some(connection) {
            return;
        }
        pair.known[end(at, peer)] = None;
        pair.held[direction(peer, at)].clear();
        let member = &mut self.members[usize::from(at)];
        if member.driver.is_some() {
            member.control.wire().inbox.push_back(ControlEvent::Down { peer: MemberId(peer) });
            self.wake(usize::from(at));
        }
    }

    fn connect(&mut self, low: u8, high: u8) {
        let both_run = [low, high].iter().all(|id| self.members[usize::from(*id)].driver.is_some());
        let is_cut = self.is_cut(low, high) || self.is_cut(high, low);
        let pair = self.pair(low, high);
        if !both_run || is_cut || pair.live.is_some() {
            return;
        }
        pair.made += 1;
        let connection = pair.made;
        pair.live = Some(connection);
        pair.held = Default::default();
        for (at, peer) in [(low, high), (high, low)] {
            let after = self.arrival(peer, at);
            self.plan(after, super::What::Control(What::Up { at, peer, connection }));
        }
    }

    /// The connection between two members is lost; each hears of it, and it is made again.
    pub(super) fn lose(&mut self, a: u8, b: u8) {
        let (low, high) = ordered(a, b);
        let Some(connection) = self.pair(low, high).live.take() else { return };
        for (at, peer) in [(low, high), (high, low)] {
            let after = self.arrival(peer, at) + self.random.range(0, 2 * MS);
            let last = &mut self.pairs.entry((low, high)).or_default().last_at[direction(peer, at)];
            *last = (*last).max(self.now + after);
            self.plan(after, super::What::Control(What::Down { at, peer, connection }));
        }
        self.connect_soon(low, high);
    }

    fn connect_soon(&mut self, low: u8, high: u8) {
        let after = self.random.range(5 * MS, 60 * MS);
        self.plan(after, super::What::Control(What::Connect { low, high }));
    }

    /// A member runs: it connects to all others.
    pub(super) fn joined(&mut self, at: usize) {
        let id = self.members[at].id;
        for other in 0..self.setting.all() {
            if other != id {
                let (low, high) = ordered(id, other);
                let after = self.random.range(100 * US, 3 * MS);
                self.plan(after, super::What::Control(What::Connect { low, high }));
            }
        }
    }

    /// A member is gone: others find out.
    pub(super) fn left(&mut self, at: usize) {
        let id = self.members[at].id;
        for other in 0..self.setting.all() {
            if other != id {
                self.lose(id, other);
                self.pair(id, other).known[end(id, other)] = None;
            }
        }
    }

    /// From here on nothing gets from one to the other.
    pub(super) fn cut(&mut self, from: u8, to: u8) {
        self.cut.insert((from, to));
        self.fabric.set_cut(from, to, true);
        let (low, high) = ordered(from, to);
        if let Some(connection) = self.pair(low, high).live {
            let after = self.random.range(20 * MS, 600 * MS);
            self.plan(after, super::What::Control(What::GiveUp { low, high, connection }));
        }
    }

    /// Everything gets through again.
    pub(super) fn mend(&mut self) {
        self.is_mended();
        for (from, to) in std::mem::take(&mut self.cut) {
            self.fabric.set_cut(from, to, false);
            let held = std::mem::take(&mut self.pair(from, to).held[direction(from, to)]);
            for frame in held {
                self.deliver(from, to, frame);
            }
        }
        let pairs: Vec<(u8, u8)> = self.pairs.keys().copied().collect();
        for (low, high) in pairs {
            if self.pair(low, high).live.is_none() {
                self.connect_soon(low, high);
            }
        }
    }
}
