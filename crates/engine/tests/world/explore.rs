//! Breadth first through every state. What is equal is kept once: members, packets and oracles are numbered by their whole
//! content, and a step of a member that was made once is not made again. A state is known by 76 bits of a hash.
//! A single walk (`explore/walk.rs`) keeps nothing that it has left behind.

mod brief;
mod happen;
mod known;
mod numbers;
mod reduce;
mod trace;
pub mod walk;
mod world;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use windlass_engine::{Change, Configuration, Role};
use windlass_log::MemberId;

use super::Setting;
use super::member::{Facts, Member};
use super::oracle::{Oracle, Seen};
use super::packet::{LANES, Lane, Packet};
use brief::{Brief, Kind, Label, Sessions};
use known::{Known, Queue, Ways};
use numbers::{Fingerprint, Numbered, Words};
use world::{Case, Event, Spent, What, World};

/// The outcome of a member's step, in numbers.
#[derive(PartialEq, Eq)]
struct Stepped {
    member: u32,
    packets: Vec<(u8, u32)>,
    seen: Option<u32>,
    acknowledges: bool,
    operations: u8,
    campaigns: bool,
}

type Step = Result<Stepped, String>;

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
    /// The highest number of a configuration that was committed.
    pub configuration: u64,
    /// Arrivals without effect that the reduction of orders rests on, each looked at (`explore/reduce.rs`).
    pub absorbed: usize,
    /// Members, oracle and what was spent, each by its content, as they were in one state; where that was asked for.
    pub reached: HashSet<(u64, u64)>,
    pub violation: Option<Violation>,
    /// All that does not hold, where `reached` was asked for.
    pub violations: BTreeSet<String>,
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
            "{} states, {} transitions, depth {}, {}; {} states and {} steps of single members, {} transitions beyond the bounds, {} tenures begun, configuration {}, {} arrivals without effect; {:.1} s",
            self.states,
            self.transitions,
            self.depth,
            if self.is_complete { "complete" } else { "NOT COMPLETE" },
            self.member_states,
            self.member_steps,
            self.beyond,
            self.tenures,
            self.configuration,
            self.absorbed,
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
    founding: Configuration,
    /// All that an operator may ask for.
    changes: Vec<Change>,
    members: Numbered<Member>,
    facts: Vec<Rc<Facts>>,
    briefs: Vec<Brief>,
    packets: Numbered<Packet>,
    labels: Vec<Label>,
    sessions: Sessions,
    seen: Numbered<Vec<Seen>>,
    oracles: Numbered<Oracle>,
    steps: HashMap<Case, Rc<Step>, Words>,
    sights: HashMap<(u32, u32), Result<u32, String>, Words>,
    /// Whether what says nothing new is taken away: not on the way to the first state.
    reduces: bool,
    reduction: reduce::Reduction,
    tenures: u64,
    /// For a trace: what happened, and where.
    applied: Option<Vec<(World, Event)>>,
    beginning: Vec<(World, Event)>,
}

/// Goes through the world that the setting bounds.
pub fn explore(setting: &Setting, property: Option<Property>) -> Report {
    let begun = Instant::now();
    let mut explorer = Explorer::new(setting, property, true);
    let mut root = explorer.root();
    explorer.reduces = setting.reduced;
    if setting.reduced {
        explorer.absorb(&mut root);
    }
    let (mut known, mut ways, mut frontier) = (Known::new(), Ways::new(), Queue::default());
    known.insert(root.fingerprint());
    frontier.push(0, &root);
    let (mut transitions, mut beyond, mut depth) = (0_u64, 0_u64, 0);
    let mut violation = None;
    let mut is_complete = true;
    let (mut together, mut violations) = (HashSet::new(), BTreeSet::new());
    let (mut world, mut after, mut events) = (root.clone(), root.clone(), Vec::new());
    'search: while !frontier.is_empty() {
        let mut next = Queue::default();
        while let Some(number) = frontier.pop(&mut world) {
            if setting.lists_reached {
                together.insert((world.members.clone(), world.oracle, world.spent, world.stale));
            }
            explorer.events(&world, &mut events);
            for (by, event) in (0_u8..).zip(&events) {
                transitions += 1;
                after.clone_from(&world);
                match explorer.happen(&mut after, *event) {
                    Ok(true) => {}
                    Ok(false) => {
                        beyond += 1;
                        continue;
                    }
                    Err(what) if setting.lists_reached => {
                        violations.insert(what);
                        continue;
                    }
                    Err(what) => {
                        let way = ways.to(number).into_iter().chain([by]).collect::<Vec<u8>>();
                        let events = explorer.events_on(&root, &way);
                        violation = Some(Violation { trace: explorer.trace(&root, &events), what });
                        is_complete = false;
                        break 'search;
                    }
                }
                if known.insert(after.fingerprint()) {
                    next.push(ways.push(number, by), &after);
                }
            }
            if known.len() >= setting.states_max {
                is_complete = false;
                break 'search;
            }
        }
        depth += usize::from(!next.is_empty());
        frontier = next;
        if setting.says_how_far {
            eprintln!(
                "depth {depth}: {} states, {transitions} transitions, {} s",
                known.len(),
                begun.elapsed().as_secs()
            );
        }
    }
    let reached = explorer.by_content(together);
    let mut absorbed = 0;
    if violation.is_none() && is_complete && setting.reduced {
        match explorer.certify() {
            Ok(count) => absorbed = count,
            Err(what) => {
                is_complete = false;
                violation = Some(Violation { what, trace: String::new() });
            }
        }
    }
    Report {
        absorbed,
        reached,
        violations,
        states: known.len(),
        transitions,
        depth,
        member_states: explorer.members.len(),
        member_steps: explorer.steps.len(),
        beyond,
        is_complete,
        took: begun.elapsed(),
        tenures: explorer.tenures,
        configuration: explorer.configuration(),
        violation,
    }
}

fn changes(setting: &Setting) -> Vec<Change> {
    let members = (0..setting.members).map(MemberId);
    let spares = || members.clone().skip(setting.founders().count());
    let mut changes = Vec::new();
    if setting.adds {
        changes.extend(spares().map(|member| Change::Add { member, address: None }));
    }
    if setting.removes {
        changes.extend(members.clone().map(|member| Change::Remove { member }));
    }
    if setting.replaces {
        let replaced = |new| setting.founders().map(move |old| Change::Replace { old, new, address: None });
        changes.extend(spares().flat_map(replaced));
    }
    changes
}

impl Explorer {
    fn new(setting: &Setting, property: Option<Property>, merges: bool) -> Explorer {
        Explorer {
            setting: setting.clone(),
            merges,
            property,
            founding: Configuration::founding(setting.founders()),
            changes: changes(setting),
            members: Numbered::new(merges),
            facts: Vec::new(),
            briefs: Vec::new(),
            packets: Numbered::new(merges),
            labels: Vec::new(),
            sessions: Sessions::default(),
            seen: Numbered::new(merges),
            oracles: Numbered::new(merges),
            steps: HashMap::default(),
            sights: HashMap::default(),
            reduces: false,
            reduction: reduce::Reduction::default(),
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

    fn kind(&self, lane: u8) -> Lane {
        LANES[usize::from(lane % 3)]
    }

    fn ends(&self, lane: u8) -> (u8, u8) {
        (lane / 3 / self.count(), lane / 3 % self.count())
    }

    fn member(&mut self, member: Member) -> u32 {
        let number = self.members.number(member);
        if number as usize == self.facts.len() {
            let facts = self.members.get(number).facts(&self.changes);
            self.briefs.push(Brief::new(&facts, &mut self.sessions));
            self.facts.push(Rc::new(facts));
        }
        number
    }

    fn packet(&mut self, packet: Packet) -> u32 {
        let number = self.packets.number(packet);
        if number as usize == self.labels.len() {
            self.labels.push(Label::new(self.packets.get(number), &mut self.sessions));
        }
        number
    }

    fn label(&self, packet: u32) -> Label {
        self.labels[packet as usize]
    }

    fn brief(&self, world: &World, at: u8) -> &Brief {
        &self.briefs[world.members[usize::from(at)] as usize]
    }

    fn facts(&self, world: &World, at: u8) -> &Facts {
        &self.facts[world.members[usize::from(at)] as usize]
    }

    /// The first state. Members that have just met are brought there by delivering everything, in one order.
    fn root(&mut self) -> World {
        self.applied = Some(Vec::new());
        let members =
            (0..self.count()).map(|id| self.member(Member::new(MemberId(id), &self.setting))).collect();
        let oracle = self.oracles.number(Oracle::default());
        let mut world = World { members, packets: Vec::new(), oracle, spent: Spent::default(), stale: 0 };
        for at in 0..self.count() {
            self.must(&mut world, Event { at, what: What::Restart, dies_after: None });
            self.run_quiet(&mut world);
        }
        if !self.setting.from_genesis {
            self.must(&mut world, Event { at: 0, what: What::Suspect, dies_after: None });
            self.run_quiet(&mut world);
        }
        world.spent = Spent { epochs: world.spent.epochs, ..Spent::default() };
        self.beginning = self.applied.take().unwrap_or_default();
        world
    }

    fn must(&mut self, world: &mut World, event: Event) {
        let within = self.happen(world, event).expect("the way to the first state keeps all that must hold");
        assert!(within, "the first state lies within the bounds");
    }

    /// Delivers and completes until nothing is under way.
    fn run_quiet(&mut self, world: &mut World) {
        let mut events = Vec::new();
        loop {
            let is_quiet = |event: &&Event| event.is_quiet() && event.what != What::Restart;
            self.whole_events(world, &mut events);
            let Some(event) = events.iter().find(is_quiet) else { return };
            self.must(world, *event);
        }
    }

    fn configuration(&self) -> u64 {
        let all =
            (0..self.oracles.len() as u32).filter_map(|oracle| self.oracles.get(oracle).configuration());
        all.map(|configuration| configuration.number()).max().unwrap_or(0)
    }

    /// The same whatever has which number.
    fn by_content(&self, together: HashSet<(Vec<u32>, u32, Spent, u32)>) -> HashSet<(u64, u64)> {
        let (of_member, of_oracle) = (self.members.contents(), self.oracles.contents());
        let fingerprint = |(members, oracle, spent, stale): (Vec<u32>, u32, Spent, u32)| {
            let mut hash = Fingerprint::new();
            let contents = members.iter().map(|member| of_member[member]).chain([of_oracle[&oracle]]);
            contents.for_each(|(one, other)| [one, other].into_iter().for_each(|word| hash.add(word)));
            spent.bytes().into_iter().for_each(|byte| hash.add(u64::from(byte)));
            hash.add(u64::from(stale));
            hash.finish()
        };
        together.into_iter().map(fingerprint).collect()
    }

    // ---- what may happen -------------------------------------------------------------------------------------------

    fn events(&mut self, world: &World, events: &mut Vec<Event>) {
        self.whole_events(world, events);
        if world.spent.crashes >= self.setting.crashes || self.setting.store_in_steps {
            return;
        }
        // A death between two operations of the store that one step brings about.
        for at in 0..events.len() {
            let event = events[at];
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

    /// Without deaths in the middle of something.
    fn whole_events(&self, world: &World, events: &mut Vec<Event>) {
        events.clear();
        let setting = &self.setting;
        let spent = world.spent;
        let mut push = |at: u8, what: What| events.push(Event { at, what, dies_after: None });
        let mut last = None;
        for (at, (lane, _)) in world.packets.iter().enumerate() {
            if last == Some(*lane) {
                continue;
            }
            last = Some(*lane);
            let (_, to) = self.ends(*lane);
            push(to, What::Deliver { lane: *lane });
            let mut behind = world.packets[at + 1..].iter().take_while(|(other, _)| other == lane);
            if behind.any(|(_, packet)| self.label(*packet).kind == Kind::Down) {
                push(to, What::DeliverDown { lane: *lane });
            }
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
            if leads && spent.changes < setting.changes {
                facts.changes.iter().for_each(|which| push(at, What::Change { which: *which }));
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
    }

    fn is_stale(&self, world: &World, from: u8, to: u8) -> bool {
        let bit = |from: u8, to: u8| 1_u32 << (from * self.count() + to);
        world.stale & (bit(from, to) | bit(to, from)) != 0
    }
}
