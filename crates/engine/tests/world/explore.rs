//! Breadth first through every state. What is equal is kept once: members, packets and oracles are numbered by their whole
//! content, and a step of a member that was made once is not made again. A state is known by 128 bits of a hash.
//! A single walk (`explore/walk.rs`) keeps nothing that it has left behind.

pub mod walk;

use std::collections::{HashMap, HashSet};
use std::fmt::{Debug, Write};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant};

use windlass_engine::{Message, Role, Session};
use windlass_log::MemberId;

use super::Setting;
use super::image::holds;
use super::member::{Action, Facts, Member, step};
use super::oracle::{Oracle, Seen};
use super::packet::{LANES, Lane, Packet};

// ---- numbers for contents ----------------------------------------------------------------------------------------------

/// Two hashes of a text that is never held.
#[derive(Default)]
struct TextHash(std::hash::DefaultHasher, u64);

impl Write for TextHash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        for byte in text.bytes() {
            self.1 = (self.1 ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        Ok(())
    }
}

/// Numbers values by what they show of themselves: all types here derive `Debug`, so that is all of them.
#[derive(Clone)]
struct Numbered<T> {
    /// None where everything gets a number of its own: on a single walk little comes twice.
    known: Option<HashMap<(u64, u64), u32>>,
    /// None: it was taken out.
    values: Vec<Option<Rc<T>>>,
}

impl<T: Clone + Debug> Numbered<T> {
    fn new(merges: bool) -> Numbered<T> {
        Numbered { known: merges.then(HashMap::new), values: Vec::new() }
    }

    fn number(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.values.len()).expect("fewer than 2^32 different values");
        let Some(known) = &mut self.known else {
            self.values.push(Some(Rc::new(value)));
            return next;
        };
        let mut hash = TextHash::default();
        write!(hash, "{value:?}").expect("a hash takes any text");
        let values = &mut self.values;
        *known.entry((hash.0.finish(), hash.1)).or_insert_with(|| {
            values.push(Some(Rc::new(value)));
            next
        })
    }

    fn get(&self, number: u32) -> &Rc<T> {
        self.values[number as usize].as_ref().expect("what is behind a walk is not looked at again")
    }

    /// To be changed: a copy, or on a walk, which never comes back to it, the thing itself.
    fn take(&mut self, number: u32) -> T {
        if self.known.is_some() {
            return T::clone(self.get(number));
        }
        Rc::unwrap_or_clone(self.values[number as usize].take().expect("taken once"))
    }
}

/// For keys that are few words.
#[derive(Default)]
struct WordHash(u64);

impl Hasher for WordHash {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (self.0 >> 32)
    }
}

type Words = BuildHasherDefault<WordHash>;

// ---- the world ---------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Spent {
    /// Epochs that were ever asked for.
    epochs: u8,
    records: u8,
    crashes: u8,
    power_losses: u8,
    breaks: u8,
    cuts: u8,
    beats: u8,
    resigns: u8,
    handovers: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    members: Vec<u32>,
    /// By lane, in order within each.
    packets: Vec<(u8, u32)>,
    oracle: u32,
    spent: Spent,
    /// Pairs whose control connection ends at a process that is gone: what is sent into it is lost.
    stale: u32,
}

/// What happens in a world; with the state before, it says all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Event {
    /// At which member.
    at: u8,
    what: What,
    dies_after: Option<u8>,
}

impl Event {
    /// Whether it is a step of a member that its death can cut short.
    fn may_die(self) -> bool {
        !matches!(self.what, What::Crash | What::LosePower { .. } | What::Cut { .. })
    }

    /// Whether it brings on what is under way, and is no fault or wish.
    fn is_quiet(self) -> bool {
        matches!(
            self.what,
            What::Deliver { .. } | What::Notice | What::Ordered | What::Free { .. } | What::Restart
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum What {
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

/// The outcome of a member's step, in numbers.
struct Stepped {
    member: u32,
    packets: Vec<(u8, u32)>,
    seen: Option<u32>,
    acknowledges: bool,
    operations: u8,
    campaigns: bool,
}

type Step = Result<Stepped, String>;

/// A member, what arrives at it, what happens, and the death that ends it: all that a step depends on.
type Case = (u32, u32, What, Option<u8>);

/// What came of an exploration.
#[derive(Debug)]
pub struct Report {
    pub states: usize,
    pub transitions: u64,
    pub depth: usize,
    /// Different states of one member, and steps of one member that were made.
    pub member_states: usize,
    pub member_steps: usize,
    /// Transitions that would have left the bounds.
    pub beyond: u64,
    pub is_complete: bool,
    pub took: Duration,
    pub tenures: u64,
    pub violation: Option<Violation>,
}

#[derive(Debug)]
pub struct Violation {
    pub what: String,
    pub trace: String,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} states, {} transitions, depth {}, {}; {} states and {} steps of single members, {} transitions beyond the bounds, {} tenures begun; {:.1} s",
            self.states,
            self.transitions,
            self.depth,
            if self.is_complete { "complete" } else { "NOT COMPLETE" },
            self.member_states,
            self.member_steps,
            self.beyond,
            self.tenures,
            self.took.as_secs_f64()
        )
    }
}

/// A property of every state, beside what always must hold.
pub type Property = fn(&[&Facts]) -> Result<(), String>;

#[derive(Clone)]
struct Explorer {
    setting: Setting,
    /// Whether what is equal is one, and what was done once is not done again: not on a walk.
    merges: bool,
    property: Option<Property>,
    members: Numbered<Member>,
    facts: Vec<Rc<Facts>>,
    packets: Numbered<Packet>,
    seen: Numbered<Vec<Seen>>,
    oracles: Numbered<Oracle>,
    steps: HashMap<Case, Rc<Step>, Words>,
    sights: HashMap<(u32, u32), Result<u32, String>, Words>,
    tenures: u64,
    /// For a trace: what happened, and where.
    applied: Option<Vec<(World, Event)>>,
    beginning: Vec<(World, Event)>,
}

/// Goes through the world that the setting bounds.
pub fn explore(setting: &Setting, property: Option<Property>) -> Report {
    let begun = Instant::now();
    let mut explorer = Explorer::new(setting, property, true);
    let root = explorer.root();
    let mut known: HashSet<u128> = HashSet::from([fingerprint(&root)]);
    // How each state was come to: from which, by what.
    let mut from: Vec<(u32, Option<Event>)> = vec![(0, None)];
    let mut frontier = vec![(0_u32, root.clone())];
    let (mut transitions, mut beyond, mut depth) = (0_u64, 0_u64, 0);
    let mut violation = None;
    let mut is_complete = true;
    'search: while !frontier.is_empty() {
        let mut next = Vec::new();
        for (index, world) in frontier {
            for event in explorer.events(&world) {
                transitions += 1;
                let after = match explorer.happen(&world, event) {
                    Ok(Some(after)) => after,
                    Ok(None) => {
                        beyond += 1;
                        continue;
                    }
                    Err(what) => {
                        let mut events = vec![event];
                        let mut at = index;
                        while let (before, Some(event)) = from[at as usize] {
                            events.push(event);
                            at = before;
                        }
                        events.reverse();
                        violation = Some(Violation { trace: explorer.trace(&root, &events), what });
                        is_complete = false;
                        break 'search;
                    }
                };
                if known.insert(fingerprint(&after)) {
                    let number = u32::try_from(from.len()).expect("fewer than 2^32 states");
                    from.push((index, Some(event)));
                    next.push((number, after));
                }
            }
            if known.len() >= setting.states_max {
                is_complete = false;
                break 'search;
            }
        }
        depth += usize::from(!next.is_empty());
        frontier = next;
    }
    Report {
        states: known.len(),
        transitions,
        depth,
        member_states: explorer.members.values.len(),
        member_steps: explorer.steps.len(),
        beyond,
        is_complete,
        took: begun.elapsed(),
        tenures: explorer.tenures,
        violation,
    }
}

fn fingerprint(world: &World) -> u128 {
    let mut low = WordHash(0x243f_6a88_85a3_08d3);
    let mut high = WordHash(0x1319_8a2e_0370_7344);
    world.hash(&mut low);
    (&world.packets, &world.members, world.oracle, world.spent, world.stale, 1_u8).hash(&mut high);
    u128::from(low.finish()) << 64 | u128::from(high.finish())
}

impl Explorer {
    fn new(setting: &Setting, property: Option<Property>, merges: bool) -> Explorer {
        Explorer {
            setting: setting.clone(),
            merges,
            property,
            members: Numbered::new(merges),
            facts: Vec::new(),
            packets: Numbered::new(merges),
            seen: Numbered::new(merges),
            oracles: Numbered::new(merges),
            steps: HashMap::default(),
            sights: HashMap::default(),
            tenures: 0,
            applied: None,
            beginning: Vec::new(),
        }
    }

    fn count(&self) -> u8 {
        self.setting.members
    }

    fn lane(&self, from: u8, to: u8, lane: Lane) -> u8 {
        (from * self.count() + to) * 3
            + LANES.iter().position(|other| *other == lane).map_or(0, |at| at as u8)
    }

    fn ends(&self, lane: u8) -> (u8, u8) {
        (lane / 3 / self.count(), lane / 3 % self.count())
    }

    fn member(&mut self, member: Member) -> u32 {
        let number = self.members.number(member);
        if number as usize == self.facts.len() {
            self.facts.push(Rc::new(self.members.get(number).facts()));
        }
        number
    }

    fn facts(&self, world: &World, at: u8) -> &Facts {
        &self.facts[world.members[usize::from(at)] as usize]
    }

    /// The first state. Members that have just met are brought there by delivering everything, in one order.
    fn root(&mut self) -> World {
        self.applied = Some(Vec::new());
        let members = (0..self.count()).map(|id| self.member(Member::new(MemberId(id)))).collect();
        let oracle = self.oracles.number(Oracle::default());
        let mut world = World { members, packets: Vec::new(), oracle, spent: Spent::default(), stale: 0 };
        for at in 0..self.count() {
            world = self.must(&world, Event { at, what: What::Restart, dies_after: None });
            world = self.run_quiet(world);
        }
        if !self.setting.from_genesis {
            world = self.must(&world, Event { at: 0, what: What::Suspect, dies_after: None });
            world = self.run_quiet(world);
        }
        world.spent = Spent { epochs: world.spent.epochs, ..Spent::default() };
        self.beginning = self.applied.take().unwrap_or_default();
        world
    }

    fn must(&mut self, world: &World, event: Event) -> World {
        let after = self.happen(world, event).expect("the way to the first state keeps all that must hold");
        after.expect("the first state lies within the bounds")
    }

    /// Delivers and completes until nothing is under way.
    fn run_quiet(&mut self, mut world: World) -> World {
        loop {
            let is_quiet = |event: &Event| {
                matches!(event.what, What::Deliver { .. } | What::Notice | What::Ordered | What::Free { .. })
            };
            let Some(event) = self.whole_events(&world).into_iter().find(is_quiet) else { return world };
            world = self.must(&world, event);
        }
    }

    // ---- what may happen -------------------------------------------------------------------------------------------

    fn events(&mut self, world: &World) -> Vec<Event> {
        let mut events = self.whole_events(world);
        if world.spent.crashes < self.setting.crashes && !self.setting.store_in_steps {
            // A death between two operations of the store that one step brings about.
            for event in events.clone() {
                if !event.may_die() {
                    continue;
                }
                let operations = match &*self.stepped(world, event) {
                    Ok(stepped) => stepped.operations,
                    Err(_) => 0,
                };
                events.extend((0..operations).map(|after| Event { dies_after: Some(after), ..event }));
            }
        }
        events
    }

    /// Without deaths in the middle of something.
    fn whole_events(&self, world: &World) -> Vec<Event> {
        let mut events = Vec::new();
        let setting = &self.setting;
        let spent = world.spent;
        let mut push = |at: u8, what: What| events.push(Event { at, what, dies_after: None });
        let mut last = None;
        for (lane, _) in &world.packets {
            if last == Some(*lane) {
                continue;
            }
            last = Some(*lane);
            let (from, to) = self.ends(*lane);
            push(to, What::Deliver { lane: *lane });
            let behind = world.packets.iter().filter(|(other, _)| other == lane).skip(1);
            let is_down = |packet: &u32| matches!(**self.packets.get(*packet), Packet::Down);
            if behind.clone().any(|(_, packet)| is_down(packet)) {
                push(to, What::DeliverDown { lane: *lane });
            }
            let _ = from;
        }
        for at in 0..self.count() {
            let facts = self.facts(world, at);
            if !facts.is_up {
                push(at, What::Restart);
                continue;
            }
            if facts.notices {
                push(at, What::Notice);
            }
            if facts.ordered {
                push(at, What::Ordered);
            }
            for which in 0..facts.free {
                push(at, What::Free { which: which as u8 });
            }
            if facts.may_append && spent.records < setting.records {
                push(at, What::Append);
            }
            if facts.role == Some(Role::Backup) && spent.epochs < setting.epochs {
                push(at, What::Suspect);
            }
            let leads = facts.role == Some(Role::Primary);
            if leads && spent.resigns < setting.resigns {
                push(at, What::Resign);
            }
            if leads && spent.beats < setting.beats {
                push(at, What::Beat);
            }
            for peer in 0..self.count() {
                if peer == at {
                    continue;
                }
                if leads && spent.handovers < setting.handovers {
                    push(at, What::Handover { to: peer });
                }
                if facts.connections.contains_key(&MemberId(peer)) && spent.breaks < setting.breaks {
                    let requests = self.lane(at, peer, Lane::Requests);
                    push(at, What::Break { peer, loses: false });
                    if world.packets.iter().any(|(lane, _)| *lane == requests) {
                        push(at, What::Break { peer, loses: true });
                    }
                }
                if peer > at
                    && spent.cuts < setting.cuts
                    && self.facts(world, peer).is_up
                    && !self.is_stale(world, at, peer)
                {
                    push(at, What::Cut { peer });
                }
            }
            if facts.fetching.is_some() && spent.breaks < setting.breaks {
                push(at, What::FetchLate);
            }
            if spent.crashes < setting.crashes {
                push(at, What::Crash);
            }
            if spent.power_losses < setting.power_losses {
                for kept in 0..1_u8 << facts.dirty.min(4) {
                    push(at, What::LosePower { kept });
                }
            }
        }
        events
    }

    fn is_stale(&self, world: &World, from: u8, to: u8) -> bool {
        let bit = |from: u8, to: u8| 1_u32 << (from * self.count() + to);
        world.stale & (bit(from, to) | bit(to, from)) != 0
    }

    // ---- what comes of it ------------------------------------------------------------------------------------------

    /// The member's action that an event is.
    fn action(&self, world: &World, event: Event) -> (Action, u32) {
        let action = match event.what {
            What::Deliver { lane } | What::DeliverDown { lane } => {
                let (from, _) = self.ends(lane);
                let mut in_lane =
                    world.packets.iter().filter(|(other, _)| *other == lane).map(|(_, packet)| *packet);
                let is_down = |packet: &u32| matches!(**self.packets.get(*packet), Packet::Down);
                let packet = match event.what {
                    What::DeliverDown { .. } => in_lane.find(is_down),
                    _ => in_lane.next(),
                };
                let packet = packet.expect("an event of this state");
                return (
                    Action::Deliver { from: MemberId(from), packet: Rc::clone(self.packets.get(packet)) },
                    packet,
                );
            }
            What::Notice => Action::Notice,
            What::Ordered => Action::Ordered,
            What::Free { which } => Action::Free(usize::from(which)),
            What::Append => {
                return (Action::Append { id: world.spent.records + 1 }, u32::from(world.spent.records));
            }
            What::Suspect => Action::Suspect,
            What::Resign => Action::Resign,
            What::Handover { to } => Action::Handover { to: MemberId(to) },
            What::Beat => Action::Beat,
            What::Break { peer, .. } => Action::Broken { peer: MemberId(peer) },
            What::FetchLate => Action::FetchLate,
            What::Cut { .. } => unreachable!("a cut is no step of a member"),
            What::Crash => Action::Crash,
            What::LosePower { kept } => Action::LosePower { kept },
            What::Restart => Action::Restart,
        };
        (action, 0)
    }

    fn stepped(&mut self, world: &World, event: Event) -> Rc<Step> {
        let number = world.members[usize::from(event.at)];
        if !self.merges {
            return Rc::new(self.step(world, event, number));
        }
        let (operand, what) = match event.what {
            // By content, wherever it stands.
            What::Deliver { lane } | What::DeliverDown { lane } => {
                let (_, packet) = self.action(world, event);
                (packet, What::Deliver { lane })
            }
            What::Append => (u32::from(world.spent.records), What::Append),
            what => (0, what),
        };
        let key = (number, operand, what, event.dies_after);
        if let Some(step) = self.steps.get(&key) {
            return Rc::clone(step);
        }
        let step = Rc::new(self.step(world, event, number));
        self.steps.insert(key, Rc::clone(&step));
        step
    }

    fn step(&mut self, world: &World, event: Event, number: u32) -> Step {
        let (action, _) = self.action(world, event);
        let member = self.members.take(number);
        step(&self.setting, member, &action, event.dies_after, false).map(|outcome| {
            let packets = outcome.packets.into_iter();
            let packets = packets.map(|(to, packet)| {
                let lane = self.lane(event.at, to.0, packet.lane());
                (lane, self.packets.number(packet))
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

    /// The state after the event and what follows from it at once; none if it lies beyond the bounds.
    fn happen(&mut self, world: &World, event: Event) -> Result<Option<World>, String> {
        let mut after = self.apply(world, event)?;
        while let Some(world) = after.take_if(|_| !self.setting.completions_apart) {
            let Some(lane) = self.completion(&world) else {
                after = Some(world);
                break;
            };
            after = self.apply(
                &world,
                Event { at: self.ends(lane).1, what: What::Deliver { lane }, dies_after: None },
            )?;
        }
        Ok(after)
    }

    /// A lane whose head says that a write has landed.
    fn completion(&self, world: &World) -> Option<u8> {
        let is_head = |at: usize| at == 0 || world.packets[at - 1].0 != world.packets[at].0;
        let is_placed = |at: usize| matches!(**self.packets.get(world.packets[at].1), Packet::Placed { .. });
        (0..world.packets.len()).find(|at| is_head(*at) && is_placed(*at)).map(|at| world.packets[at].0)
    }

    fn apply(&mut self, world: &World, event: Event) -> Result<Option<World>, String> {
        if let Some(applied) = &mut self.applied {
            applied.push((world.clone(), event));
        }
        if let What::Cut { peer } = event.what {
            return Ok(Some(self.cut(world, event.at, peer)));
        }
        let step = self.stepped(world, event);
        let stepped = step.as_ref().as_ref().map_err(Clone::clone)?;
        let mut after = world.clone();
        after.spent.epochs = after.spent.epochs.saturating_add(u8::from(stepped.campaigns));
        if after.spent.epochs > self.setting.epochs {
            return Ok(None);
        }
        let at = usize::from(event.at);
        self.take(&mut after, event);
        let was_up = self.facts(world, event.at).is_up;
        after.members[at] = stepped.member;
        let is_up = self.facts(&after, event.at).is_up;
        for (lane, packet) in &stepped.packets {
            self.send(&mut after, *lane, *packet);
        }
        if was_up && !is_up {
            self.gone(&mut after, event.at);
            after.spent.crashes = after.spent.crashes.saturating_add(u8::from(event.dies_after.is_some()));
        }
        if let Some(seen) = stepped.seen {
            after.oracle = self.see(after.oracle, seen)?;
        }
        self.forget_stale(&mut after);
        self.check(world, &after, at, stepped.acknowledges)?;
        Ok(Some(after))
    }

    /// Takes away what would be ignored whenever it arrived: a session that is over is never used again. What arrives at a window
    /// that is closed is refused at once instead of later.
    fn forget_stale(&mut self, world: &mut World) {
        let mut refused = Vec::new();
        let mut kept = Vec::with_capacity(world.packets.len());
        for (lane, number) in std::mem::take(&mut world.packets) {
            let (from, to) = self.ends(lane);
            let (sender, receiver) = (self.facts(world, from), self.facts(world, to));
            let packet = &**self.packets.get(number);
            let is_of = |facts: &Facts, peer: u8, session: Session| {
                facts.connections.get(&MemberId(peer)) == Some(&session)
            };
            let is_stale = match packet {
                Packet::Keys { session, .. }
                | Packet::Placed { session, .. }
                | Packet::Refused { session }
                | Packet::Message(Message::Adopted { session, .. }) => !is_of(receiver, from, *session),
                Packet::Acknowledgement(acknowledgement) => !is_of(receiver, from, acknowledgement.session),
                Packet::Write { session, .. } if receiver.window != Some(*session) => {
                    if is_of(sender, to, *session) {
                        refused.push((
                            self.lane(to, from, Lane::Completions),
                            Packet::Refused { session: *session },
                        ));
                    }
                    true
                }
                Packet::ReadDone { session, .. } | Packet::ReadFailed { session } => {
                    receiver.fetching != Some(*session)
                }
                Packet::Read { session, .. } => sender.fetching != Some(*session),
                Packet::Write { .. }
                | Packet::Beat(_)
                | Packet::Message(_)
                | Packet::Up { .. }
                | Packet::Down => false,
            };
            if !is_stale {
                kept.push((lane, number));
            }
        }
        world.packets = kept;
        refused.dedup();
        for (lane, packet) in refused {
            let packet = self.packets.number(packet);
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
                if matches!(**self.packets.get(packet), Packet::Up { .. }) {
                    let (from, to) = self.ends(lane);
                    world.stale &= !(1 << (to * self.count() + from));
                }
            }
            What::DeliverDown { lane } => {
                let mut is_over = false;
                let packets = &self.packets;
                world.packets.retain(|(other, packet)| {
                    let is_before = *other == lane && !is_over;
                    is_over |= is_before && matches!(**packets.get(*packet), Packet::Down);
                    !is_before
                });
            }
            What::Append => spent.records += 1,
            What::Resign => spent.resigns += 1,
            What::Handover { .. } => spent.handovers += 1,
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
        let value = &**self.packets.get(packet);
        if self.facts(world, to).is_up {
            let is_stale = world.stale & (1 << (from * self.count() + to)) != 0;
            if value.lane() == Lane::Control && is_stale && !matches!(value, Packet::Up { .. }) {
                return;
            }
            let behind = world.packets.partition_point(|(other, _)| *other <= lane);
            world.packets.insert(behind, (lane, packet));
        } else if let Some(refused) = value.refused() {
            let back = self.lane(to, from, Lane::Completions);
            let refused = self.packets.number(refused);
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
                let refused = self.packets.number(refused);
                self.send(world, self.lane(dead, from, Lane::Completions), refused);
            }
        }
        let down = self.packets.number(Packet::Down);
        for peer in (0..self.count()).filter(|peer| *peer != dead) {
            if self.facts(world, peer).is_up {
                world.stale &= !(1 << (dead * self.count() + peer));
                self.send(world, self.lane(dead, peer, Lane::Control), down);
                world.stale |= 1 << (peer * self.count() + dead);
            }
        }
    }

    /// The control connection of two members is cut, and made again.
    fn cut(&mut self, world: &World, one: u8, other: u8) -> World {
        let mut after = world.clone();
        after.spent.cuts += 1;
        let lanes = [self.lane(one, other, Lane::Control), self.lane(other, one, Lane::Control)];
        after.packets.retain(|(lane, _)| !lanes.contains(lane));
        let down = self.packets.number(Packet::Down);
        for (from, lane) in [(one, lanes[0]), (other, lanes[1])] {
            let identity = self.facts(world, from).identity;
            let up = self.packets.number(Packet::Up { identity, asks: false });
            self.send(&mut after, lane, down);
            self.send(&mut after, lane, up);
        }
        after
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
    fn check(&self, before: &World, after: &World, at: usize, acknowledges: bool) -> Result<(), String> {
        let facts_of = |world: &World| &*self.facts[world.members[at] as usize];
        let (was, is) = (facts_of(before), facts_of(after));
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
        let quorum = facts.len() / 2 + 1;
        let oracle = self.oracles.get(world.oracle);
        for record in oracle.durable() {
            let holders = facts.iter().filter(|facts| holds(&facts.on_disk, record)).count();
            if holders < quorum {
                return Err(format!("I-2: {record:?} is acknowledged as durable, and on {holders} media"));
            }
        }
        if world.spent.power_losses == 0 {
            for record in oracle.replicated() {
                let holders = facts.iter().filter(|facts| holds(&facts.in_memory, record)).count();
                if holders < quorum {
                    return Err(format!(
                        "I-2: {record:?} is acknowledged as replicated, and held by {holders}"
                    ));
                }
            }
        }
        Ok(())
    }

    // ---- a counterexample ------------------------------------------------------------------------------------------

    /// The way to a violation from the beginning, as the lines of each member's scenario file in the order of what happened.
    fn trace(&mut self, root: &World, events: &[Event]) -> String {
        let mut text = String::new();
        let mut members: Vec<Member> = (0..self.count()).map(|id| Member::new(MemberId(id))).collect();
        text += "# how it begins\n";
        for (before, event) in std::mem::take(&mut self.beginning) {
            self.show(&mut text, &mut members, &before, event);
        }
        let mut world = root.clone();
        for (number, event) in events.iter().enumerate() {
            text += &format!("# step {}\n", number + 1);
            self.applied = Some(Vec::new());
            let result = self.happen(&world, *event);
            for (before, event) in self.applied.take().unwrap_or_default() {
                self.show(&mut text, &mut members, &before, event);
            }
            match result {
                Ok(Some(after)) => world = after,
                Ok(None) => {}
                Err(why) => text += &format!("# VIOLATION {why}\n"),
            }
        }
        text
    }

    /// What a member does, by itself and not by what is known of its like: its tokens are those that it gave out.
    fn show(&self, text: &mut String, members: &mut [Member], world: &World, event: Event) {
        let at = event.at;
        let how =
            event.dies_after.map_or(String::new(), |after| format!(", and dies after {after} operations"));
        let what = match event.what {
            What::Deliver { lane } | What::DeliverDown { lane } => {
                format!("hears from m{}", self.ends(lane).0)
            }
            What::Free { .. } => "a flush or a grant is done".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        };
        *text += &format!("# m{at}: {what}{how}\n");
        if matches!(event.what, What::Cut { .. }) {
            return;
        }
        let (action, _) = self.action(world, event);
        match step(&self.setting, members[usize::from(at)].clone(), &action, event.dies_after, true) {
            Ok(outcome) => {
                outcome.lines.iter().for_each(|line| *text += &format!("{line}\n"));
                members[usize::from(at)] = outcome.member;
            }
            Err(why) => *text += &format!("# {why}\n"),
        }
    }
}
