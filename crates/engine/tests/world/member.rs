//! One member: the production engine, the driver that executes its commands, its medium and its network card. A step depends
//! on this member and on what arrives alone; what it does elsewhere is a packet.

mod store;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use windlass_engine::{
    Change, Command, Config, ConfigurationRecord, DurableState, Engine, Identity, Input, Limits, LsnRange,
    Message, Notice, Opening, Placed, Role, Session, StopReason, Timing, Token,
};
use windlass_log::{Epoch, Geometry, Lsn, MemberId};

use super::Setting;
use super::image::{Image, Record};
use super::oracle::{Seen, watermarks};
use super::packet::Packet;
use super::show;

/// What happens at a member.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// The head of a lane arrives.
    Deliver {
        from: MemberId,
        packet: Rc<Packet>,
    },
    /// The pump looks at the oldest notice that has landed.
    Notice,
    /// The oldest of the operations that take effect in order is done.
    Ordered,
    /// One of the others is done.
    Free(usize),
    /// The application appends.
    Append {
        id: u8,
    },
    /// Someone suspects the primary: silence, or an operator.
    Suspect,
    /// The tenure ends: no quorum is heard, or an operator asks.
    Resign,
    Handover {
        to: MemberId,
    },
    /// An operator asks for another group.
    Change(Change),
    /// A primary's timer: heartbeats.
    Beat,
    /// The fabric connection to this peer breaks.
    Broken {
        peer: MemberId,
    },
    /// A fetch takes too long.
    FetchLate,
    /// The process dies.
    Crash,
    /// The machine loses power; of what was not flushed these records were kept.
    LosePower {
        kept: u8,
    },
    Restart,
}

/// What a step came to.
pub struct Outcome {
    pub member: Member,
    pub packets: Vec<(MemberId, Packet)>,
    pub seen: Vec<Seen>,
    /// How many operations of the store took effect.
    pub operations: u8,
    /// It asks for an epoch of its own.
    pub campaigns: bool,
    pub lines: Vec<String>,
}

#[derive(Clone, PartialEq, Debug)]
enum Operation {
    Save { token: Token, state: Box<DurableState> },
    Trim { state: Box<DurableState> },
    Revoke { token: Token },
    Start { token: Token, epoch: Epoch, at: Lsn },
    Seal { token: Token },
    Flush { token: Token, to: Lsn },
    Grant { token: Token, primary: MemberId, session: Session, up_to: Lsn },
}

impl Operation {
    fn token(&mut self) -> Option<&mut Token> {
        match self {
            Operation::Save { token, .. }
            | Operation::Revoke { token }
            | Operation::Start { token, .. }
            | Operation::Seal { token }
            | Operation::Flush { token, .. }
            | Operation::Grant { token, .. } => Some(token),
            Operation::Trim { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Fetching {
    token: Token,
    peer: MemberId,
    session: Session,
    range: LsnRange,
}

#[derive(Clone, Debug)]
pub struct Member {
    id: MemberId,
    /// None while the process is down.
    engine: Option<Engine>,
    image: Image,
    superblock: DurableState,
    memory_lost: bool,
    opening: u64,
    // The network card.
    window: Option<(Session, Lsn)>,
    ring: VecDeque<(Session, Notice)>,
    connections: BTreeMap<MemberId, Session>,
    fetching: Option<Fetching>,
    // The log.
    tenure: Option<(Epoch, bool)>,
    ended: Epoch,
    tail: Lsn,
    waiting: Vec<Record>,
    published: Lsn,
    // The store.
    ordered: VecDeque<Operation>,
    free: Vec<Operation>,
    beats: u8,
}

/// What the explorer asks of a member's state.
#[derive(Clone, Debug)]
pub struct Facts {
    pub is_up: bool,
    pub role: Option<Role>,
    pub promised: Epoch,
    pub may_append: bool,
    pub ordered: bool,
    pub free: usize,
    pub notices: bool,
    pub fetching: Option<Session>,
    pub connections: BTreeMap<MemberId, Session>,
    pub window: Option<Session>,
    pub dirty: usize,
    pub on_disk: Vec<Record>,
    pub in_memory: Vec<Record>,
    pub identity: Identity,
    /// Those changes of the group that it would take, by their place among all.
    pub changes: Vec<u8>,
}

fn geometry() -> Geometry {
    Geometry::new(64 << 10).expect("a power of two")
}

/// The one moment of every clock; heartbeats alone make time pass.
const NOW: u64 = 1_000_000_000;
/// Time that is longer than any world lasts.
const LONG: u64 = 1_000_000;

fn timing() -> Timing {
    // A session that broke is tried again at once: in a world without time, later is never.
    Timing {
        heartbeat_ns: LONG,
        suspicion_ns: 100 * LONG,
        backoff_ns: 1,
        stall_ns: 200 * LONG,
        retry_ns: 1,
        flush_idle_ns: 400 * LONG,
    }
}

impl Member {
    /// A member of a new group whose process has not begun.
    pub fn new(id: MemberId, setting: &Setting) -> Member {
        let start = geometry().first_record(0);
        Member {
            id,
            engine: None,
            image: Image::default(),
            superblock: DurableState {
                configurations: vec![ConfigurationRecord::founding(setting.founding(id))],
                ..DurableState::genesis(geometry())
            },
            memory_lost: false,
            opening: 0,
            window: None,
            ring: VecDeque::new(),
            connections: BTreeMap::new(),
            fetching: None,
            tenure: None,
            ended: Epoch::NONE,
            tail: start,
            waiting: Vec::new(),
            published: start,
            ordered: VecDeque::new(),
            free: Vec::new(),
            beats: 0,
        }
    }

    fn identity(&self) -> Identity {
        Identity { incarnation: 100 + u64::from(self.id.0), opening: self.opening, nonce: self.opening }
    }

    /// What the log holds of configurations in `[from, to)`.
    fn configurations_in(&self, from: Lsn, to: Lsn) -> Vec<ConfigurationRecord> {
        let records = self.image.in_memory(from, &self.superblock.history).into_iter();
        records.take_while(|record| record.end <= to).filter_map(|record| record.configuration()).collect()
    }

    /// `changes`: all that may be asked for.
    pub fn facts(&self, changes: &[Change]) -> Facts {
        let status = self.engine.as_ref().map(Engine::status);
        let state = &self.superblock;
        Facts {
            is_up: self.engine.is_some(),
            role: status.map(|status| status.role),
            promised: status.map_or(state.promised, |status| status.promised),
            may_append: matches!(self.tenure, Some((_, false))),
            ordered: !self.ordered.is_empty(),
            free: self.free.len(),
            notices: !self.ring.is_empty(),
            fetching: self.fetching.as_ref().map(|fetching| fetching.session),
            connections: self.connections.clone(),
            window: self.window.map(|(session, _)| session),
            dirty: self.image.dirty().count(),
            on_disk: self.image.on_disk(state.trimmed, &state.history),
            in_memory: self.image.in_memory(state.trimmed, &state.history),
            identity: self.identity(),
            changes: self.engine.as_ref().map_or(Vec::new(), |engine| {
                let all = (0..).zip(changes);
                all.filter(|(_, change)| engine.check_change(change).is_ok()).map(|(at, _)| at).collect()
            }),
        }
    }
}

/// What a member does at `action`, and if `dies_after` is there, its death once so many operations of the store have taken
/// effect.
///
/// # Errors
///
/// What does not hold.
pub fn step(
    setting: &Setting,
    member: Member,
    action: &Action,
    dies_after: Option<u8>,
    traces: bool,
) -> Result<Outcome, String> {
    let id = member.id;
    let run = || {
        let engine = member.engine.as_ref().map(Engine::status);
        let promised_before = engine.map_or(member.superblock.promised, |status| status.promised);
        let outcome = Outcome {
            member,
            packets: Vec::new(),
            seen: Vec::new(),
            operations: 0,
            campaigns: false,
            lines: Vec::new(),
        };
        let mut runner = Runner { setting, outcome, dies_after, traces, promised_before };
        runner.act(action)?;
        Ok(runner.finish())
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("{id}: {}", text.unwrap_or_else(|| "a panic".into())))
    })
}

struct Runner<'a> {
    setting: &'a Setting,
    outcome: Outcome,
    dies_after: Option<u8>,
    traces: bool,
    promised_before: Epoch,
}

type Done = Result<(), String>;

impl Runner<'_> {
    fn act(&mut self, action: &Action) -> Done {
        let id = self.outcome.member.id;
        match action {
            Action::Deliver { from, packet } => self.arrive(*from, packet)?,
            Action::Notice => {
                if let Some((session, notice)) = self.outcome.member.ring.pop_front() {
                    self.input(Input::Notice { session, notice: Some(notice) })?;
                }
            }
            Action::Ordered => {
                if let Some(operation) = self.outcome.member.ordered.pop_front() {
                    self.complete(operation)?;
                }
            }
            Action::Free(at) => {
                let operation = self.outcome.member.free.remove(*at);
                self.complete(operation)?;
            }
            Action::Append { id } => self.append(*id)?,
            Action::Suspect => self.input(Input::Suspect)?,
            Action::Resign => self.input(Input::Resign { reason: StopReason::Asked })?,
            Action::Handover { to } => self.input(Input::Handover { to: *to })?,
            Action::Change(change) => self.input(Input::Change(*change))?,
            Action::Beat => {
                self.outcome.member.beats += 1;
                let now = self.now();
                self.line(|| "@ 1ms".to_owned());
                if let Some(engine) = &mut self.outcome.member.engine {
                    engine.handle_timeout(now);
                }
                self.execute_all()?;
            }
            Action::Broken { peer } => {
                let session = self.outcome.member.connections.remove(peer);
                if let Some(session) = session {
                    self.input(Input::FabricDown { peer: *peer, session })?;
                }
            }
            Action::FetchLate => self.fetch_failed()?,
            Action::Crash => self.die(),
            Action::LosePower { kept } => {
                self.die();
                self.line(|| format!("# {id} loses power"));
                self.outcome.member.image.lose_power(*kept);
                self.outcome.member.memory_lost = true;
            }
            Action::Restart => self.begin()?,
        }
        self.settle()
    }

    /// Where the store's operations are whole steps, all but the flush are done before anything else happens.
    fn settle(&mut self) -> Done {
        while !self.setting.store_in_steps && self.outcome.member.engine.is_some() {
            if let Some(operation) = self.outcome.member.ordered.pop_front() {
                if self.dies_after == Some(self.outcome.operations) {
                    self.die();
                    return Ok(());
                }
                self.outcome.operations += 1;
                self.complete(operation)?;
                continue;
            }
            let flush_apart = self.setting.flush_apart;
            let is_flush =
                |operation: &Operation| flush_apart && matches!(operation, Operation::Flush { .. });
            let Some(at) = self.outcome.member.free.iter().position(|operation| !is_flush(operation)) else {
                break;
            };
            let operation = self.outcome.member.free.remove(at);
            self.complete(operation)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        let member = &mut self.outcome.member;
        let operations = member.ordered.iter_mut().chain(&mut member.free).filter_map(Operation::token);
        let fetching = member.fetching.as_mut().map(|fetching| &mut fetching.token);
        let mut tokens: Vec<&mut Token> = operations.chain(fetching).collect();
        if let Some(engine) = &mut member.engine {
            if self.setting.counts_tokens {
                let known = engine.token_count();
                let shown = format!("{engine:?}");
                let shown = shown.matches("Token(").count() - shown.matches("Token(0)").count();
                assert_eq!(shown, known, "tokens that the canonical form does not know: {engine:#?}");
            }
            if !self.traces {
                engine.canonicalise(&mut tokens);
            }
            let promised = engine.status().promised;
            self.outcome.campaigns = promised > self.promised_before && promised.member() == member.id;
        }
        self.outcome
    }

    fn now(&self) -> u64 {
        NOW + u64::from(self.outcome.member.beats) * LONG
    }

    fn line(&mut self, text: impl FnOnce() -> String) {
        if self.traces {
            self.outcome.lines.push(text());
        }
    }

    fn send(&mut self, to: MemberId, packet: Packet) {
        self.outcome.packets.push((to, packet));
    }

    // ---- lives -----------------------------------------------------------------------------------------------------

    fn die(&mut self) {
        let id = self.outcome.member.id;
        self.line(|| format!("# {id} dies"));
        let member = &mut self.outcome.member;
        member.engine = None;
        member.window = None;
        member.ring.clear();
        member.connections.clear();
        member.fetching = None;
        member.tenure = None;
        member.ended = Epoch::NONE;
        member.waiting.clear();
        member.ordered.clear();
        member.free.clear();
        member.beats = 0;
    }

    fn begin(&mut self) -> Done {
        let setting = self.setting;
        let member = &mut self.outcome.member;
        let mut state = member.superblock.clone();
        let valid_tail = member.image.valid_tail(state.trimmed, Lsn(u64::MAX), &state.history);
        // What lies behind the mark may hold configurations that no save has.
        let known = state.mark.0.min(valid_tail);
        let found = member.configurations_in(state.trimmed, valid_tail);
        for found in found.into_iter().filter(|found| found.end > known) {
            state.note_configuration(found);
        }
        member.superblock.configurations.clone_from(&state.configurations);
        // written again in place and flushed before anything is said.
        member.image.flush(valid_tail);
        state.memory_lost |= std::mem::take(&mut member.memory_lost);
        member.superblock.memory_lost = state.memory_lost;
        member.opening += 1;
        (member.tail, member.published) = (valid_tail, state.trimmed);
        let config = Config {
            me: member.id,
            identity: member.identity(),
            founding: setting.founding(member.id),
            geometry: geometry(),
            replicated_allowed: setting.replicated,
            seed: 0,
            timing: timing(),
            // Each batch is flushed as it arrives.
            limits: Limits { flush_lag_bytes: 1, notice_slots: 4, ..Limits::default() },
        };
        let line = self.traces.then(|| show::opening(&state, valid_tail));
        member.engine = Some(Engine::new(config, Opening { state, valid_tail }, NOW));
        if let Some(engine) = member.engine.as_mut().filter(|_| setting.placed_is_durable) {
            engine.call_placed_durable();
        }
        self.outcome.lines.extend(line);
        let (me, identity) = (self.outcome.member.id, self.outcome.member.identity());
        for peer in (0..setting.members).map(MemberId).filter(|peer| *peer != me) {
            self.send(peer, Packet::Up { identity, asks: true });
        }
        self.execute_all()
    }

    // ---- the network -----------------------------------------------------------------------------------------------

    fn arrive(&mut self, from: MemberId, packet: &Packet) -> Done {
        let member = &mut self.outcome.member;
        match packet {
            Packet::Message(message) => {
                self.input(Input::Message { peer: from, message: Box::new(message.clone()) })
            }
            Packet::Keys { session, up_to } => {
                if member.connections.get(&from) == Some(session) {
                    self.input(Input::Granted { peer: from, session: *session, up_to: *up_to })?;
                }
                Ok(())
            }
            Packet::Up { identity, asks } => {
                if *asks {
                    let identity = member.identity();
                    self.send(from, Packet::Up { identity, asks: false });
                }
                self.input(Input::PeerUp { peer: from, identity: *identity })
            }
            Packet::Down => {
                let as_primary = member.connections.remove(&from);
                let as_backup = member
                    .window
                    .map(|(session, _)| session)
                    .filter(|session| session.epoch.member() == from);
                let is_source = member.fetching.as_ref().is_some_and(|fetching| fetching.peer == from);
                self.input(Input::PeerDown { peer: from })?;
                for session in as_primary.into_iter().chain(as_backup) {
                    self.input(Input::FabricDown { peer: from, session })?;
                }
                if is_source { self.fetch_failed() } else { Ok(()) }
            }
            Packet::Write { session, range, records, notice } => {
                let (open, up_to) = member.window.map_or((None, Lsn(0)), |(open, up_to)| (Some(open), up_to));
                if open != Some(*session) {
                    self.send(from, Packet::Refused { session: *session });
                    return Ok(());
                }
                self.still_promised(*session)?;
                if range.end > up_to {
                    return Err(format!("I-5: {range} lands beyond its window, which ends at {up_to}"));
                }
                for record in records {
                    self.outcome.member.image.write(*record);
                }
                self.line(|| format!("# {range} of {session} lands"));
                self.send(from, Packet::Placed { session: *session, to: range.end });
                if self.setting.notices_apart {
                    self.outcome.member.ring.push_back((*session, *notice));
                    return Ok(());
                }
                self.input(Input::Notice { session: *session, notice: Some(*notice) })
            }
            Packet::Beat(heartbeat) => match member.window {
                Some((session, _)) if session == heartbeat.session => {
                    self.input(Input::Heartbeat { heartbeat: *heartbeat })
                }
                Some(_) | None => {
                    self.send(from, Packet::Refused { session: heartbeat.session });
                    Ok(())
                }
            },
            Packet::Acknowledgement(acknowledgement) => {
                if member.connections.get(&from) == Some(&acknowledgement.session) {
                    self.input(Input::Acknowledged { peer: from, acknowledgement: *acknowledgement })?;
                }
                Ok(())
            }
            Packet::Read { session, range } => {
                let packet = if member.engine.is_some() && member.superblock.promised == session.epoch {
                    let records = member.image.read(range.start, range.end);
                    Packet::ReadDone { session: *session, range: *range, records }
                } else {
                    Packet::ReadFailed { session: *session }
                };
                self.send(from, packet);
                Ok(())
            }
            Packet::Placed { session, to } => {
                if member.connections.get(&from) == Some(session) {
                    self.input(Input::Placed { peer: from, session: *session, to: Placed(*to) })?;
                }
                Ok(())
            }
            Packet::Refused { session } => {
                if member.connections.get(&from) == Some(session) {
                    member.connections.remove(&from);
                    self.input(Input::FabricDown { peer: from, session: *session })?;
                }
                Ok(())
            }
            Packet::ReadDone { session, range, records } => {
                let Some(fetching) = &member.fetching else { return Ok(()) };
                if (fetching.peer, fetching.session, fetching.range) != (from, *session, *range) {
                    return Ok(());
                }
                let token = fetching.token;
                member.fetching = None;
                for record in records {
                    member.image.write(*record);
                }
                let valid_tail = member.image.valid_tail(range.start, range.end, &member.superblock.history);
                self.tell_configurations(range.start, valid_tail)?;
                self.input(Input::Fetched { token, valid_tail })
            }
            Packet::ReadFailed { session } => {
                let is_it = |fetching: &Fetching| fetching.peer == from && fetching.session == *session;
                if member.fetching.as_ref().is_some_and(is_it) { self.fetch_failed() } else { Ok(()) }
            }
        }
    }

    fn fetch_failed(&mut self) -> Done {
        match self.outcome.member.fetching.take() {
            Some(fetching) => self.input(Input::FetchFailed { token: fetching.token }),
            None => Ok(()),
        }
    }

    /// Nothing is open to an epoch that is not the promised one (I-3, I-5).
    fn still_promised(&self, session: Session) -> Done {
        let member = &self.outcome.member;
        if member.superblock.promised == session.epoch {
            return Ok(());
        }
        Err(format!(
            "I-5: {} has promised {} and is open to {session}",
            member.id, member.superblock.promised
        ))
    }

    // ---- the engine ------------------------------------------------------------------------------------------------

    fn input(&mut self, input: Input) -> Done {
        let now = self.now();
        self.line(|| format!("< {}", show::input(&input)));
        let Some(engine) = &mut self.outcome.member.engine else { return Ok(()) };
        let before = engine.status();
        engine.handle_input(now, input);
        let after = engine.status();
        watermarks(&before, &after)?;
        self.execute_all()
    }

    fn execute_all(&mut self) -> Done {
        while let Some(command) = self.outcome.member.engine.as_mut().and_then(Engine::poll_command) {
            self.line(|| format!("> {}", show::command(&command)));
            self.execute(command)?;
        }
        Ok(())
    }

    fn execute(&mut self, command: Command) -> Done {
        let member = &mut self.outcome.member;
        match command {
            Command::Send { peer, message } => return self.say(peer, *message),
            Command::Save { token, state } | Command::Cut { token, state, .. } => {
                member.ordered.push_back(Operation::Save { token, state });
            }
            Command::Trim { state } => member.ordered.push_back(Operation::Trim { state }),
            Command::Reset { .. } => return Err("a log is reset in a world without checkpoints".into()),
            Command::Revoke { token } => {
                // A grant asked for before and not yet made never comes into force.
                member.free.retain(|operation| !matches!(operation, Operation::Grant { .. }));
                member.ordered.push_back(Operation::Revoke { token });
            }
            Command::StartTenure { token, quorum, at } => {
                member.ordered.push_back(Operation::Start { token, epoch: quorum.epoch(), at });
            }
            Command::Seal { token } => {
                if let Some((_, is_sealed)) = &mut member.tenure {
                    *is_sealed = true;
                }
                member.ordered.push_back(Operation::Seal { token });
            }
            Command::Flush { token, to } => member.free.push(Operation::Flush { token, to }),
            Command::Grant { token, primary, session, up_to, .. } => {
                member.free.push(Operation::Grant { token, primary, session, up_to });
            }
            Command::StepDown { epoch, .. } => {
                member.ended = epoch;
                member.waiting.clear();
                member.tenure = None;
            }
            Command::Connect { peer, session } => {
                member.connections.insert(peer, session);
            }
            Command::Disconnect { peer, session } => {
                if member.connections.get(&peer) == Some(&session) {
                    member.connections.remove(&peer);
                }
                if member.fetching.as_ref().is_some_and(|fetching| fetching.session == session) {
                    member.fetching = None;
                }
            }
            Command::Replicate { peer, session, range, notice, .. } => {
                if member.connections.get(&peer) != Some(&session) {
                    return Err(format!("R-2: a batch over {session}, which is destroyed"));
                }
                let records = member.image.read(range.start, range.end);
                self.send(peer, Packet::Write { session, range, records, notice });
            }
            Command::Beat { peer, heartbeat, .. } => self.send(peer, Packet::Beat(heartbeat)),
            Command::Acknowledge { primary, acknowledgement } => {
                let on_disk = member.image.on_disk(member.superblock.trimmed, &member.superblock.history);
                let reached = on_disk.last().map_or(member.superblock.trimmed, |record| record.end);
                if reached < acknowledgement.persisted.0 {
                    let (id, said) = (member.id, acknowledgement.persisted);
                    return Err(format!("I-4: {id} acknowledges {said}, its medium ends at {reached}"));
                }
                let session = acknowledgement.session;
                self.send(primary, Packet::Acknowledgement(acknowledgement));
                return self.input(Input::AcknowledgeDone { session });
            }
            Command::Committed(proof) => {
                let (member, epoch) = (member.id, proof.epoch());
                self.outcome.seen.push(Seen::Committed { member, epoch });
                self.publish(epoch, proof.durable())?;
                self.acknowledge(epoch, proof.replicated(), proof.durable());
            }
            Command::Learned { durable, .. } => {
                let epoch = member.superblock.promised;
                return self.publish(epoch, durable);
            }
            Command::Parse { token, to } => {
                let from = member.engine.as_ref().map_or(Lsn(0), |engine| engine.status().tail);
                let valid_tail = member.image.valid_tail(from, to, &member.superblock.history);
                self.tell_configurations(from, valid_tail)?;
                return self.input(Input::Parsed { token, valid_tail });
            }
            Command::Fetch { token, peer, session, range } => {
                member.fetching = Some(Fetching { token, peer, session, range });
                self.send(peer, Packet::Read { session, range });
            }
            Command::AppendConfiguration(configuration) => return self.append_configuration(&configuration),
            Command::Members(_) | Command::Ungrant { .. } | Command::GrantRead { .. } | Command::Event(_) => {
            }
        }
        Ok(())
    }

    /// What a message says must be durable is.
    fn say(&mut self, to: MemberId, message: Message) -> Done {
        let member = &self.outcome.member;
        let state = &member.superblock;
        match &message {
            // About time alone.
            Message::PreVote { .. }
            | Message::PreVoteReply { .. }
            | Message::Working { .. }
            | Message::AliveReply { .. } => return Ok(()),
            Message::Promise { epoch, summary } => {
                let on_disk = member.image.on_disk(state.trimmed, &state.history);
                let reached = on_disk.last().map_or(state.trimmed, |record| record.end);
                if state.promised < *epoch {
                    return Err(format!(
                        "R-5: {} promises {epoch}, durable is {}",
                        member.id, state.promised
                    ));
                }
                if reached < summary.valid_tail {
                    return Err(format!(
                        "R-11: {} reports {}, its medium ends at {reached}",
                        member.id, summary.valid_tail
                    ));
                }
                if member.window.is_some() || member.tenure.is_some() {
                    return Err(format!("R-16: {} promises {epoch} beside a window or a tenure", member.id));
                }
            }
            Message::Adopted { session, .. } => {
                self.still_promised(*session)?;
                if state.history.last().map(|last| last.epoch) != Some(session.epoch) {
                    return Err(format!("R-5: {} has adopted {session} without its history", member.id));
                }
            }
            _ => {}
        }
        self.send(to, Packet::Message(message));
        Ok(())
    }
}
