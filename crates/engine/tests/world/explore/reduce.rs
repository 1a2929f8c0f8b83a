//! Orders that come to the same, gone through once: a packet that says nothing new to its receiver is gone as soon as it is at the
//! head of its lane, and not at every later moment too.
//!
//! That is sound where its arrival stays without effect for as long as it could have been on its way, whatever else happens
//! there. Nothing is assumed of that. `Explorer::certify` looks, after everything was gone through, at each state that the
//! receiver can come to from there by the steps that were made, up to where the packet would have arrived at last or been
//! lost, and delivers it. DESIGN.md, section 8.10, says why that is enough.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::brief::Kind;
use super::world::{Case, Event, What, World};
use super::{Explorer, Step};

/// A packet that was taken away: who would have had it, in which state, the packet and its lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Absorbed {
    member: u32,
    packet: u32,
    lane: u8,
}

#[derive(Clone, Default)]
pub(super) struct Reduction {
    absorbed: HashSet<Absorbed>,
}

impl Explorer {
    /// Takes away what says nothing new.
    pub(super) fn absorb(&mut self, world: &mut World) {
        let mut at = 0;
        while at < world.packets.len() {
            let (lane, packet) = world.packets[at];
            let is_head = at == 0 || world.packets[at - 1].0 != lane;
            if is_head && self.is_absorbed(world, lane, packet) {
                world.packets.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn is_absorbed(&mut self, world: &World, lane: u8, packet: u32) -> bool {
        if !self.may_be_absorbed(world, lane, packet) {
            return false;
        }
        let (_, at) = self.ends(lane);
        let step = self.stepped(world, Event { at, what: What::Deliver { lane }, dies_after: None });
        let member = world.members[usize::from(at)];
        if !self.is_without_effect(member, &step) {
            return false;
        }
        self.reduction.absorbed.insert(Absorbed { member, packet, lane });
        true
    }

    /// Kinds that are worth a look, and stay without effect as far as is known. A wrong one here is found by `certify`.
    fn may_be_absorbed(&self, world: &World, lane: u8, packet: u32) -> bool {
        let (_, to) = self.ends(lane);
        match self.label(packet).kind {
            // One that overtakes what makes the session stream counts once that has arrived.
            Kind::Acknowledgement => {
                let is_adopted = |packet: u32| self.label(packet).kind == Kind::Adopted;
                !world.packets.iter().any(|(other, packet)| other + 1 == lane && is_adopted(*packet))
            }
            // If the fetch fails it counts for the next choice.
            Kind::Promise => self.brief(world, to).fetching == 0,
            Kind::Rejected => true,
            // A session that streams or ends, a log that changes, an answer that is due once something else is done.
            Kind::Keys
            | Kind::Placed
            | Kind::Refused
            | Kind::Adopted
            | Kind::Write
            | Kind::Read
            | Kind::ReadEnd
            | Kind::Up
            | Kind::Down => false,
            Kind::Other => self.setting.absorbs_too_much,
        }
    }

    fn is_without_effect(&self, member: u32, step: &Step) -> bool {
        let may_die = self.setting.crashes > 0;
        step.as_ref().is_ok_and(|stepped| {
            stepped.member == member
                && stepped.packets.is_empty()
                && stepped.seen.is_none()
                && !stepped.campaigns
                && !(may_die && stepped.operations > 0)
        })
    }

    /// Whether all that was absorbed stays without effect. How many arrivals that took.
    ///
    /// # Errors
    ///
    /// What was absorbed and has an effect after all.
    pub(super) fn certify(&mut self) -> Result<usize, String> {
        // From each state of a member, the steps that were made.
        let mut onward: HashMap<u32, Vec<(Case, u32)>> = HashMap::new();
        for (case, step) in &self.steps {
            if let Ok(stepped) = &**step {
                onward.entry(case.member).or_default().push((*case, stepped.member));
            }
        }
        let mut known = std::mem::take(&mut self.reduction.absorbed);
        let mut left: Vec<Absorbed> = known.iter().copied().collect();
        while let Some(absorbed) = left.pop() {
            for &(Case { operand, what, .. }, member) in onward.get(&absorbed.member).into_iter().flatten() {
                // What comes behind it in its lane comes when it is gone, and a process that dies has what is on its way to it lost.
                let is_behind = what == What::Deliver { lane: absorbed.lane };
                let next = Absorbed { member, ..absorbed };
                if is_behind
                    || !self.briefs[member as usize].is_up
                    || self.is_over(next)
                    || !known.insert(next)
                {
                    continue;
                }
                let arrival = What::Deliver { lane: absorbed.lane };
                let case = Case { member, operand: absorbed.packet, what: arrival, dies_after: None };
                let step = match self.steps.get(&case) {
                    Some(step) => Rc::clone(step),
                    None => {
                        let (_, at) = self.ends(absorbed.lane);
                        Rc::new(self.step(at, member, absorbed.packet, arrival, None))
                    }
                };
                if !self.is_without_effect(member, &step) {
                    let packet = self.packets.get(absorbed.packet);
                    let before = match what {
                        What::Deliver { .. } => format!("{:?}", self.packets.get(operand)),
                        what => format!("{what:?}"),
                    };
                    return Err(format!(
                        "not sound: {packet:?} was taken for one without effect, which it has after {before}"
                    ));
                }
                left.push(next);
            }
        }
        Ok(known.len())
    }

    /// Whether this packet is forgotten in all worlds in which its receiver is in this state.
    fn is_over(&self, absorbed: Absorbed) -> bool {
        let (from, _) = self.ends(absorbed.lane);
        let (brief, label) = (&self.briefs[absorbed.member as usize], self.label(absorbed.packet));
        label.kind == Kind::Acknowledgement && label.is_stale(from, brief, brief)
    }
}
