//! What comes of an event: the step of a member, what it sends, and what must hold after it.

use std::rc::Rc;

use windlass_log::MemberId;

use super::super::image::holds;
use super::super::member::{Action, Facts, step};
use super::super::oracle::Seen;
use super::super::packet::{Lane, Packet};
use super::brief::Kind;
use super::world::{Case, Event, What, World};
use super::{Explorer, Step, Stepped};

impl Explorer {
    /// What of the world an event's step depends on, beside the member.
    pub(super) fn operand(&self, world: &World, event: Event) -> (u32, What) {
        match event.what {
            // By content, wherever it stands.
            What::Deliver { lane } | What::DeliverDown { lane } => {
                let mut in_lane =
                    world.packets.iter().filter(|(other, _)| *other == lane).map(|(_, packet)| *packet);
                let is_down = |packet: &u32| self.label(*packet).kind == Kind::Down;
                let packet = match event.what {
                    What::DeliverDown { .. } => in_lane.find(is_down),
                    _ => in_lane.next(),
                };
                (packet.expect("an event of this state"), What::Deliver { lane })
            }
            What::Append => (u32::from(world.spent.records), What::Append),
            what => (0, what),
        }
    }

    /// The member's action that an event is.
    pub(super) fn action(&self, operand: u32, what: What) -> Action {
        match what {
            What::Deliver { lane } | What::DeliverDown { lane } => {
                let (from, _) = self.ends(lane);
                Action::Deliver { from: MemberId(from), packet: Rc::clone(self.packets.get(operand)) }
            }
            What::Notice => Action::Notice,
            What::Ordered => Action::Ordered,
            What::Free { which } => Action::Free(usize::from(which)),
            What::Append => Action::Append { id: u8::try_from(operand).expect("few records") + 1 },
            What::Suspect => Action::Suspect,
            What::Resign => Action::Resign,
            What::Handover { to } => Action::Handover { to: MemberId(to) },
            What::Change { which } => Action::Change(self.changes[usize::from(which)]),
            What::Beat => Action::Beat,
            What::Break { peer, .. } => Action::Broken { peer: MemberId(peer) },
            What::FetchLate => Action::FetchLate,
            What::Cut { .. } => unreachable!("a cut is no step of a member"),
            What::Crash => Action::Crash,
            What::LosePower { kept } => Action::LosePower { kept },
            What::Restart => Action::Restart,
        }
    }

    pub(super) fn stepped(&mut self, world: &World, event: Event) -> Rc<Step> {
        let number = world.members[usize::from(event.at)];
        let (operand, what) = self.operand(world, event);
        if !self.merges {
            return Rc::new(self.step(event.at, number, operand, what, event.dies_after));
        }
        let key = Case { member: number, operand, what, dies_after: event.dies_after };
        if let Some(step) = self.steps.get(&key) {
            return Rc::clone(step);
        }
        let step = Rc::new(self.step(event.at, number, operand, what, event.dies_after));
        self.steps.insert(key, Rc::clone(&step));
        step
    }

    pub(super) fn step(
        &mut self,
        at: u8,
        number: u32,
        operand: u32,
        what: What,
        dies_after: Option<u8>,
    ) -> Step {
        let action = self.action(operand, what);
        let member = self.members.take(number);
        step(&self.setting, member, &action, dies_after, false).map(|outcome| {
            let packets = outcome.packets.into_iter();
            let packets = packets.map(|(to, packet)| {
                let lane = self.lane(at, to.0, packet.lane());
                (lane, self.packet(packet))
            });
            let packets = packets.collect();
            let acknowledges = outcome.seen.iter().any(|seen| matches!(seen, Seen::Acknowledged { .. }));
            let seen = (!outcome.seen.is_empty()).then(|| self.seen.number(outcome.seen));
            Stepped {
                member: self.member(outcome.member),
                packets,
                seen,
                acknowledges,
                operations: outcome.operations,
                campaigns: outcome.campaigns,
            }
        })
    }

    /// What `world` is after the event and what follows from it at once; `false` if that lies beyond the bounds.
    pub(super) fn happen(&mut self, world: &mut World, event: Event) -> Result<bool, String> {
        if !self.apply(world, event)? {
            return Ok(false);
        }
        while let Some(lane) = self.completion(world) {
            let what = What::Deliver { lane };
            if !self.apply(world, Event { at: self.ends(lane).1, what, dies_after: None })? {
                return Ok(false);
            }
        }
        if self.reduces {
            self.absorb(world);
        }
        Ok(true)
    }

    /// A lane whose head says that a write has landed, where that is seen at once.
    fn completion(&self, world: &World) -> Option<u8> {
        if self.setting.completions_apart {
            return None;
        }
        let is_head = |at: usize| at == 0 || world.packets[at - 1].0 != world.packets[at].0;
        let is_placed = |at: usize| self.label(world.packets[at].1).kind == Kind::Placed;
        (0..world.packets.len()).find(|at| is_placed(*at) && is_head(*at)).map(|at| world.packets[at].0)
    }

    fn apply(&mut self, world: &mut World, event: Event) -> Result<bool, String> {
        if let Some(applied) = &mut self.applied {
            applied.push((world.clone(), event));
        }
        if let What::Cut { peer } = event.what {
            self.cut(world, event.at, peer);
            return Ok(true);
        }
        let step = self.stepped(world, event);
        let stepped = step.as_ref().as_ref().map_err(Clone::clone)?;
        let epochs = world.spent.epochs.saturating_add(u8::from(stepped.campaigns));
        if epochs > self.setting.epochs {
            return Ok(false);
        }
        world.spent.epochs = epochs;
        let at = usize::from(event.at);
        self.take(world, event);
        let before = std::mem::replace(&mut world.members[at], stepped.member);
        let was_up = self.briefs[before as usize].is_up;
        for (lane, packet) in &stepped.packets {
            self.send(world, *lane, *packet);
        }
        if was_up && !self.brief(world, event.at).is_up {
            self.gone(world, event.at);
            world.spent.crashes = world.spent.crashes.saturating_add(u8::from(event.dies_after.is_some()));
        }
        if let Some(seen) = stepped.seen {
            world.oracle = self.see(world.oracle, seen)?;
        }
        self.forget_stale(world);
        self.check(before, world, at, stepped.acknowledges)?;
        Ok(true)
    }

    /// Takes away what would be ignored whenever it arrived. What arrives at a window that is closed is refused at once instead of
    /// later.
    fn forget_stale(&mut self, world: &mut World) {
        let mut refused = Vec::new();
        let mut at = 0;
        while at < world.packets.len() {
            let (lane, packet) = world.packets[at];
            let (from, to) = self.ends(lane);
            let (sender, label) = (self.brief(world, from), self.label(packet));
            if !label.is_stale(from, sender, self.brief(world, to)) {
                at += 1;
                continue;
            }
            if label.kind == Kind::Write && sender.connections[usize::from(to)] == label.session {
                let answer = self.packets.get(packet).refused().expect("a write is a request");
                refused.push((self.lane(to, from, Lane::Completions), answer));
            }
            world.packets.remove(at);
        }
        for (lane, packet) in refused {
            let packet = self.packet(packet);
            if !world.packets.contains(&(lane, packet)) {
                self.send(world, lane, packet);
            }
        }
    }

    /// Takes away what the event uses up.
    fn take(&mut self, world: &mut World, event: Event) {
        let spent = &mut world.spent;
        match event.what {
            What::Deliver { lane } => {
                let at = world
                    .packets
                    .iter()
                    .position(|(other, _)| *other == lane)
                    .expect("an event of this state");
                let (_, packet) = world.packets.remove(at);
                if self.label(packet).kind == Kind::Up {
                    let (from, to) = self.ends(lane);
                    world.stale &= !(1 << (to * self.count() + from));
                }
            }
            What::DeliverDown { lane } => {
                let mut is_over = false;
                let labels = &self.labels;
                world.packets.retain(|(other, packet)| {
                    let is_before = *other == lane && !is_over;
                    is_over |= is_before && labels[*packet as usize].kind == Kind::Down;
                    !is_before
                });
            }
            What::Append => spent.records += 1,
            What::Resign => spent.resigns += 1,
            What::Handover { .. } => spent.handovers += 1,
            What::Change { .. } => spent.changes += 1,
            What::Beat => spent.beats += 1,
            What::Break { peer, loses } => {
                spent.breaks += 1;
                if loses {
                    let requests = self.lane(event.at, peer, Lane::Requests);
                    world.packets.retain(|(lane, _)| *lane != requests);
                }
            }
            What::FetchLate => spent.breaks += 1,
            What::Crash => spent.crashes += 1,
            What::LosePower { .. } => spent.power_losses += 1,
            What::Notice
            | What::Ordered
            | What::Free { .. }
            | What::Suspect
            | What::Cut { .. }
            | What::Restart => {}
        }
    }

    /// Puts a packet on its way, where there is one.
    fn send(&mut self, world: &mut World, lane: u8, packet: u32) {
        let (from, to) = self.ends(lane);
        if self.brief(world, to).is_up {
            let is_stale = world.stale & (1 << (from * self.count() + to)) != 0;
            if self.kind(lane) == Lane::Control && is_stale && self.label(packet).kind != Kind::Up {
                return;
            }
            let behind = world.packets.partition_point(|(other, _)| *other <= lane);
            world.packets.insert(behind, (lane, packet));
        } else if let Some(refused) = self.packets.get(packet).refused() {
            let back = self.lane(to, from, Lane::Completions);
            let refused = self.packet(refused);
            self.send(world, back, refused);
        }
    }

    /// A process is gone: what was on its way to it is lost or refused, the others will see the ends of their connections.
    fn gone(&mut self, world: &mut World, dead: u8) {
        let (to_dead, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut world.packets).into_iter().partition(|(lane, _)| self.ends(*lane).1 == dead);
        world.packets = others;
        for (lane, packet) in to_dead {
            let (from, _) = self.ends(lane);
            if let Some(refused) = self.packets.get(packet).refused() {
                let refused = self.packet(refused);
                self.send(world, self.lane(dead, from, Lane::Completions), refused);
            }
        }
        let down = self.packet(Packet::Down);
        for peer in (0..self.count()).filter(|peer| *peer != dead) {
            if self.brief(world, peer).is_up {
                world.stale &= !(1 << (dead * self.count() + peer));
                self.send(world, self.lane(dead, peer, Lane::Control), down);
                world.stale |= 1 << (peer * self.count() + dead);
            }
        }
    }

    /// The control connection of two members is cut, and made again.
    fn cut(&mut self, world: &mut World, one: u8, other: u8) {
        world.spent.cuts = world.spent.cuts.saturating_add(1);
        let lanes = [self.lane(one, other, Lane::Control), self.lane(other, one, Lane::Control)];
        world.packets.retain(|(lane, _)| !lanes.contains(lane));
        let down = self.packet(Packet::Down);
        for (from, lane) in [(one, lanes[0]), (other, lanes[1])] {
            let identity = self.facts(world, from).identity;
            let up = self.packet(Packet::Up { identity, asks: false });
            self.send(world, lane, down);
            self.send(world, lane, up);
        }
    }

    fn see(&mut self, oracle: u32, seen: u32) -> Result<u32, String> {
        if let Some(known) = self.sights.get(&(oracle, seen)) {
            return known.clone();
        }
        let list = Rc::clone(self.seen.get(seen));
        let mut after = self.oracles.take(oracle);
        let result = list.iter().try_for_each(|seen| after.see(seen)).map(|()| self.oracles.number(after));
        self.tenures += list.iter().filter(|seen| matches!(seen, Seen::Tenure { .. })).count() as u64;
        if self.merges {
            self.sights.insert((oracle, seen), result.clone());
        }
        result
    }

    /// What holds in every state. It held in the one before, and since then this member alone has taken a step: where that lost none of its records, and nothing
    /// more was acknowledged, as many hold each as did.
    fn check(&self, before: u32, after: &World, at: usize, acknowledges: bool) -> Result<(), String> {
        let facts_of = |member: u32| &*self.facts[member as usize];
        let (was, is) = (facts_of(before), facts_of(after.members[at]));
        if acknowledges || !is.on_disk.starts_with(&was.on_disk) || !is.in_memory.starts_with(&was.in_memory)
        {
            self.check_all(after)?;
        }
        let Some(property) = self.property else { return Ok(()) };
        let facts: Vec<&Facts> = after.members.iter().map(|member| &*self.facts[*member as usize]).collect();
        property(&facts)
    }

    fn check_all(&self, world: &World) -> Result<(), String> {
        let facts: Vec<&Facts> = world.members.iter().map(|member| &*self.facts[*member as usize]).collect();
        let oracle = self.oracles.get(world.oracle);
        // Those of the newest configuration that is committed: its quorum holds its record, and so what was committed before it.
        let configuration = oracle.configuration().unwrap_or_else(|| self.founding.clone());
        let quorum = configuration.write_quorum();
        let voters: Vec<&Facts> = configuration.voters().map(|voter| facts[usize::from(voter.0)]).collect();
        for record in oracle.durable() {
            let holders = voters.iter().filter(|facts| holds(&facts.on_disk, record)).count();
            if holders < quorum {
                return Err(format!("I-2: {record:?} is acknowledged as durable, and on {holders} media"));
            }
        }
        if world.spent.power_losses == 0 {
            for record in oracle.replicated() {
                let holders = voters.iter().filter(|facts| holds(&facts.in_memory, record)).count();
                if holders < quorum {
                    return Err(format!(
                        "I-2: {record:?} is acknowledged as replicated, and held by {holders}"
                    ));
                }
            }
        }
        Ok(())
    }
}
