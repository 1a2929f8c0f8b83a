//! N engines in one process and in virtual time: control links and fabric connections with delays, cuts and losses, stores
//! whose flushes take time, members that crash, lose power, sleep, and come back on what is durable.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use windlass_engine::{
    Acknowledgement, Command, Config, Configuration, ConfigurationRecord, DurableState, Engine, Event,
    Heartbeat, Identity, Input, Limits, LossError, LsnRange, Message, Notice, Opening, Persisted, Placed,
    Quorums, Role, Session, Status, StopReason, Timing, Token,
};
use windlass_log::{Epoch, Geometry, Lsn, MemberId};

use super::image::{Image, Record};
use super::oracle::Oracle;
use super::rng::Rng;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// What differs from run to run.
#[derive(Clone, Debug)]
pub struct Setting {
    pub members: u8,
    /// Members that may be added later.
    pub spares: u8,
    pub replicated_allowed: bool,
    pub quorums: Quorums,
    pub limits: Limits,
    pub geometry: Geometry,
    /// Bytes of a batch may land elsewhere.
    pub misplace: bool,
}

pub struct Node {
    id: MemberId,
    /// A founding member, or one that was added.
    pub has_joined: bool,
    pub engine: Option<Engine>,
    life: u64,
    pub image: Image,
    /// The superblock on the medium.
    pub superblock: DurableState,
    identity: Identity,
    nonce: u64,
    pub memory_lost: bool,
    pub paused_until: u64,
    timer_at: u64,
    // The driver's volatile state.
    store_free_at: u64,
    /// Grants asked for before the newest revocation never come into force.
    revocations: u64,
    pub tenure: Option<(Epoch, bool)>,
    /// The newest tenure that was stepped down from.
    ended: Epoch,
    pub tail: Lsn,
    waiting: Vec<(Record, bool)>,
    pub published: Lsn,
    before: Option<Status>,
    pub flush_ns: u64,
    pub stalled: bool,
}

#[derive(Debug)]
struct Connection {
    session: Session,
    primary: MemberId,
    backup: MemberId,
    /// The fabric at either end still knows it.
    primary_knows: bool,
    backup_knows: bool,
    granted_to: Lsn,
    broken: bool,
    /// Arrivals are in order, in either direction.
    last_there: u64,
    last_back: u64,
    last_read: u64,
    ring: BTreeMap<u32, Notice>,
}

#[derive(Debug)]
enum What {
    Timer,
    Input(Input),
    /// A store's job is done: make it so, then say so.
    Saved {
        token: Option<Token>,
        state: Box<DurableState>,
        reset: Option<Lsn>,
    },
    Flushed {
        token: Token,
        to: Lsn,
    },
    Revoked {
        token: Token,
    },
    Sealed {
        token: Token,
    },
    Start {
        token: Token,
        epoch: Epoch,
        at: Lsn,
    },
    Parse {
        token: Token,
        to: Lsn,
    },
    Granted {
        token: Token,
        primary: MemberId,
        session: Session,
        revocations: u64,
        up_to: Lsn,
    },
    Fetch {
        token: Token,
        peer: MemberId,
        session: Session,
        range: LsnRange,
    },
    // On the wire, to this node.
    Message {
        from: MemberId,
        message: Box<Message>,
    },
    Write {
        connection: usize,
        range: LsnRange,
        bytes: Vec<u8>,
        notice: Notice,
        slot: u32,
        misplaced: bool,
    },
    Beat {
        connection: usize,
        heartbeat: Heartbeat,
    },
    Acknowledge {
        connection: usize,
        acknowledgement: Acknowledgement,
    },
    ReadSlot {
        connection: usize,
        slot: u32,
        torn: bool,
    },
    LinkUp {
        peer: MemberId,
    },
    LinkDown {
        peer: MemberId,
    },
}

struct Scheduled {
    at: u64,
    order: u64,
    node: usize,
    /// For a life of the node; `None` for whichever is there.
    life: Option<u64>,
    what: What,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.order == other.order
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub setting: Setting,
    pub nodes: Vec<Node>,
    pub oracle: Oracle,
    queue: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    /// `cut[a][b]`: nothing gets from a to b.
    cut: Vec<Vec<bool>>,
    connections: Vec<Connection>,
    next_id: u64,
    /// Those that were appended, by what their records' ids say.
    pub configurations: Vec<Configuration>,
    pub changes: u64,
    /// The configurations that are committed, by where their records start.
    pub committed_configurations: BTreeMap<Lsn, u64>,
    pub replicated_commits: u64,
    pub snapshots: u64,
    /// Words of an operator that were refused by members whose log is empty.
    pub words_refused: u64,
    pub unknown: u64,
    /// A running hash of all that happened, if it is asked for: the same seed gives the same run.
    pub trace: Option<u64>,
    pub print: bool,
}

fn index(member: MemberId) -> usize {
    usize::from(member.0)
}

impl World {
    pub fn new(seed: u64, setting: Setting) -> World {
        let rng = Rng::new(seed);
        let founders = usize::from(setting.members);
        let count = founders + usize::from(setting.spares);
        let mut world = World {
            now: 1_000 * MS,
            rng,
            nodes: Vec::new(),
            oracle: Oracle::default(),
            queue: BinaryHeap::new(),
            order: 0,
            cut: vec![vec![false; count]; count],
            connections: Vec::new(),
            next_id: 1,
            configurations: Vec::new(),
            changes: 0,
            committed_configurations: BTreeMap::new(),
            replicated_commits: 0,
            snapshots: 0,
            words_refused: 0,
            unknown: 0,
            trace: None,
            print: std::env::var_os("WINDLASS_TRACE").is_some(),
            setting,
        };
        for id in 0..world.setting.members + world.setting.spares {
            let geometry = world.setting.geometry;
            let has_joined = id < world.setting.members;
            let mut superblock = DurableState::genesis(geometry);
            superblock.configurations = vec![ConfigurationRecord::founding(world.founding(has_joined))];
            world.nodes.push(Node {
                id: MemberId(id),
                has_joined,
                engine: None,
                life: 0,
                image: Image::new(geometry),
                superblock,
                identity: Identity { incarnation: 100 + u64::from(id), opening: 0, nonce: 0 },
                nonce: 0,
                memory_lost: false,
                paused_until: 0,
                timer_at: u64::MAX,
                store_free_at: 0,
                revocations: 0,
                tenure: None,
                ended: Epoch::NONE,
                tail: geometry.first_record(0),
                waiting: Vec::new(),
                published: geometry.first_record(0),
                before: None,
                flush_ns: 200 * US,
                stalled: false,
            });
        }
        for node in 0..founders {
            world.start(node);
        }
        world
    }

    /// What a member is founded with: the group's first configuration, or for one that is to be added none.
    fn founding(&self, is_founder: bool) -> Configuration {
        let founding = Configuration::founding((0..self.setting.members).map(MemberId));
        if is_founder {
            founding.with_quorums(self.setting.quorums).unwrap()
        } else {
            Configuration::unknown()
        }
    }

    pub fn say(&mut self, text: impl FnOnce() -> String) {
        if self.print {
            println!("{:>10.3} {}", (self.now as f64) / 1e6, text());
        }
    }

    // ---- lives of a member -----------------------------------------------------------------------------------------

    pub fn start(&mut self, at: usize) {
        let (now, geometry) = (self.now, self.setting.geometry);
        let seed = self.rng.next();
        let founding = self.founding(at < usize::from(self.setting.members));
        let node = &mut self.nodes[at];
        assert!(node.engine.is_none());
        node.life += 1;
        node.nonce += 1;
        node.identity.opening += 1;
        node.identity.nonce = node.nonce;
        let mut state = node.superblock.clone();
        let valid_tail = node.image.valid_tail(false, state.trimmed, Lsn(u64::MAX), &state.history);
        if state.mark > Persisted(valid_tail) && state.mark != DurableState::MARK_UNKNOWN {
            // As the store does: records that are whole behind the damage tell how far the log went.
            let last = node.image.last_end(valid_tail, &state.history).filter(|last| *last >= state.mark.0);
            state.mark = last.map_or(DurableState::MARK_UNKNOWN, Persisted);
        }
        // What lies behind the store's mark may hold configurations that no save has: opening notes them before it moves the mark.
        let is_unknown = state.mark == DurableState::MARK_UNKNOWN;
        let known = if is_unknown { state.trimmed } else { state.mark.0.min(valid_tail) };
        for found in self.configurations_in(at, state.trimmed, valid_tail) {
            if found.end > known {
                state.note_configuration(found);
            }
        }
        let node = &mut self.nodes[at];
        node.superblock.configurations = state.configurations.clone();
        // written again in place and flushed before anything is said.
        node.image.flush(valid_tail);
        state.memory_lost |= node.memory_lost;
        node.superblock.memory_lost = state.memory_lost;
        node.memory_lost = false;
        let config = Config {
            me: node.id,
            identity: node.identity,
            founding,
            geometry,
            replicated_allowed: self.setting.replicated_allowed,
            seed,
            timing: timing(),
            limits: self.setting.limits,
        };
        node.engine = Some(Engine::new(config, Opening { state, valid_tail }, now));
        node.store_free_at = now;
        node.tenure = None;
        node.tail = valid_tail;
        node.waiting.clear();
        node.published = node.superblock.trimmed;
        node.before = None;
        node.stalled = false;
        node.timer_at = u64::MAX;
        self.say(|| format!("m{at} starts, valid tail {valid_tail}"));
        for peer in 0..self.nodes.len() {
            if peer != at && self.nodes[peer].engine.is_some() {
                self.link_up(at, peer);
            }
        }
        self.drain(at);
    }

    /// The process dies; what it had written to memory stays in the page cache.
    pub fn crash(&mut self, at: usize) {
        self.say(|| format!("m{at} crashes"));
        self.nodes[at].engine = None;
        self.nodes[at].life += 1;
        self.unknown += self.nodes[at].waiting.len() as u64;
        for peer in 0..self.nodes.len() {
            if peer != at {
                let delay = self.rng.range(MS / 10, 5 * MS);
                let what = What::LinkDown { peer: MemberId(u8::try_from(at).unwrap()) };
                self.schedule_alive(delay, peer, what);
            }
        }
        for connection in 0..self.connections.len() {
            let c = &self.connections[connection];
            if index(c.primary) == at || index(c.backup) == at {
                self.break_connection(connection);
            }
        }
    }

    pub fn lose_power(&mut self, at: usize) {
        self.crash(at);
        self.say(|| format!("m{at} loses power"));
        let World { nodes, rng, .. } = self;
        nodes[at].image.lose_power(rng);
        nodes[at].memory_lost = true;
    }

    /// While it is down, the medium loses a record below what it may have acknowledged. Whether there was one.
    pub fn rot(&mut self, at: usize) -> bool {
        let trimmed = self.nodes[at].superblock.trimmed;
        let mark = self.nodes[at].superblock.mark.0;
        if mark <= trimmed || Persisted(mark) == DurableState::MARK_UNKNOWN {
            return false;
        }
        let mut record = trimmed;
        let skip = self.rng.range(0, 20);
        for _ in 0..skip {
            match self.nodes[at].image.record(false, record, &self.nodes[at].superblock.history) {
                Some(found) if found.end < mark => record = found.end,
                Some(_) | None => break,
            }
        }
        self.nodes[at].image.rot(record);
        self.say(|| format!("m{at} rots at {record}"));
        true
    }

    fn link_up(&mut self, a: usize, b: usize) {
        for (at, peer) in [(a, b), (b, a)] {
            let delay = self.rng.range(MS / 5, 3 * MS);
            self.schedule_alive(delay, at, What::LinkUp { peer: MemberId(u8::try_from(peer).unwrap()) });
        }
    }

    // ---- the network -----------------------------------------------------------------------------------------------

    pub fn cut(&mut self, from: usize, to: usize) {
        self.say(|| format!("cut m{from} -> m{to}"));
        self.cut[from][to] = true;
        if self.rng.chance(50) {
            let delay = self.rng.range(10 * MS, 80 * MS);
            let down = |peer: usize| What::LinkDown { peer: MemberId(u8::try_from(peer).unwrap()) };
            self.schedule_alive(delay, from, down(to));
            self.schedule_alive(delay, to, down(from));
        }
    }

    pub fn heal(&mut self) {
        self.say(|| "heal".into());
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                if std::mem::take(&mut self.cut[from][to]) {
                    self.link_up(from, to);
                }
            }
        }
    }

    fn is_cut(&self, a: MemberId, b: MemberId) -> bool {
        self.cut[index(a)][index(b)] || self.cut[index(b)][index(a)]
    }

    fn break_connection(&mut self, connection: usize) {
        if std::mem::replace(&mut self.connections[connection].broken, true) {
            return;
        }
        let Connection { session, primary, backup, .. } = self.connections[connection];
        for (node, peer) in [(primary, backup), (backup, primary)] {
            let delay = self.rng.range(MS / 5, 10 * MS);
            self.schedule_alive(delay, index(node), What::Input(Input::FabricDown { peer, session }));
        }
    }

    fn connection(&self, primary: MemberId, backup: MemberId, session: Session) -> Option<usize> {
        self.connections
            .iter()
            .rposition(|c| c.session == session && c.primary == primary && c.backup == backup)
    }

    fn connect(&mut self, primary: MemberId, backup: MemberId, session: Session) -> usize {
        self.connection(primary, backup, session).unwrap_or_else(|| {
            self.connections.push(Connection {
                session,
                primary,
                backup,
                primary_knows: false,
                backup_knows: false,
                granted_to: Lsn(0),
                broken: false,
                last_there: 0,
                last_back: 0,
                last_read: 0,
                ring: BTreeMap::new(),
            });
            self.connections.len() - 1
        })
    }

    /// Sends something over a fabric connection, in order. A cut path breaks the connection in the end.
    fn over_fabric(&mut self, connection: usize, to_backup: bool, what: What) {
        let c = &self.connections[connection];
        if c.broken {
            return;
        }
        if self.is_cut(c.primary, c.backup) {
            return self.break_connection(connection);
        }
        let delay = self.rng.range(5 * US, 60 * US);
        let now = self.now;
        let c = &mut self.connections[connection];
        let (last, to) =
            if to_backup { (&mut c.last_there, c.backup) } else { (&mut c.last_back, c.primary) };
        *last = (*last).max(now + delay);
        let at = *last;
        self.schedule(at, index(to), None, what);
    }

    // ---- the queue -------------------------------------------------------------------------------------------------

    fn schedule(&mut self, at: u64, node: usize, life: Option<u64>, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Scheduled { at, order: self.order, node, life, what }));
    }

    fn schedule_alive(&mut self, delay: u64, node: usize, what: What) {
        self.schedule(self.now + delay, node, None, what);
    }

    fn schedule_own(&mut self, delay: u64, node: usize, what: What) {
        let life = self.nodes[node].life;
        self.schedule(self.now + delay, node, Some(life), what);
    }

    /// After everything that the store was asked for before.
    fn schedule_store(&mut self, delay: u64, node: usize, what: What) {
        let at = self.nodes[node].store_free_at.max(self.now) + delay;
        self.nodes[node].store_free_at = at;
        let life = self.nodes[node].life;
        self.schedule(at, node, Some(life), what);
    }

    /// Runs until `until`.
    pub fn run(&mut self, until: u64) {
        while let Some(Reverse(next)) = self.queue.peek() {
            if next.at > until {
                break;
            }
            let Some(Reverse(event)) = self.queue.pop() else { break };
            self.now = self.now.max(event.at);
            let node = &self.nodes[event.node];
            if node.engine.is_none() || event.life.is_some_and(|life| life != node.life) {
                continue;
            }
            if node.paused_until > self.now {
                let at = node.paused_until;
                self.schedule(at, event.node, event.life, event.what);
                continue;
            }
            self.happen(event.node, event.what);
            self.drain(event.node);
        }
        self.now = self.now.max(until);
    }

    pub fn input(&mut self, at: usize, input: Input) {
        let now = self.now;
        if self.print && !matches!(input, Input::Heartbeat { .. } | Input::AcknowledgeDone { .. }) {
            self.say(|| format!("m{at} <- {input:?}"));
        }
        if let Some(engine) = &mut self.nodes[at].engine {
            engine.handle_input(now, input);
        }
    }

    fn happen(&mut self, at: usize, what: What) {
        match what {
            What::Timer => {
                let now = self.now;
                self.nodes[at].timer_at = u64::MAX;
                if let Some(engine) = &mut self.nodes[at].engine {
                    engine.handle_timeout(now);
                }
            }
            What::Input(input) => self.input(at, input),
            What::Saved { token, state, reset } => {
                self.nodes[at].superblock = *state;
                if let Some(lsn) = reset {
                    self.nodes[at].image.erase();
                    self.nodes[at].published = lsn;
                }
                if let Some(token) = token {
                    self.input(at, Input::Saved { token });
                }
            }
            What::Flushed { token, to } => {
                let geometry = self.setting.geometry;
                let node = &mut self.nodes[at];
                node.image.flush(to);
                // The store's own provable mark trails by a segment.
                let mark = Persisted(geometry.base(geometry.segment_of(to)));
                node.superblock.mark = node.superblock.mark.max(mark);
                self.input(at, Input::Flushed { token, persisted: Persisted(to) });
            }
            What::Revoked { token } => {
                for c in &mut self.connections {
                    if index(c.backup) == at {
                        c.backup_knows = false;
                    }
                }
                let node = &self.nodes[at];
                let state = &node.superblock;
                let (trimmed, valid_tail) = (
                    state.trimmed,
                    node.image.valid_tail(false, state.trimmed, Lsn(u64::MAX), &state.history),
                );
                self.tell_configurations(at, trimmed, valid_tail);
                self.input(at, Input::Revoked { token, valid_tail });
            }
            What::Sealed { token } => {
                let tail = self.nodes[at].tail;
                self.input(at, Input::Sealed { token, tail });
            }
            What::Start { token, epoch, at: lsn } => self.start_tenure(at, token, epoch, lsn),
            What::Parse { token, to } => {
                let node = &self.nodes[at];
                let from = node.engine.as_ref().map_or(Lsn(0), |engine| engine.status().tail);
                let valid_tail = node.image.valid_tail(false, from, to, &node.superblock.history);
                self.tell_configurations(at, from, valid_tail);
                self.input(at, Input::Parsed { token, valid_tail });
            }
            What::Granted { token, primary, session, revocations, up_to } => {
                if revocations == self.nodes[at].revocations {
                    self.granted(at, token, primary, session, up_to);
                }
            }
            What::Fetch { token, peer, session, range } => self.fetch(at, token, peer, session, range),
            What::Message { from, message } => self.input(at, Input::Message { peer: from, message }),
            What::LinkUp { peer } => {
                if self.nodes[index(peer)].engine.is_some() && !self.is_cut(peer, self.nodes[at].id) {
                    let identity = self.nodes[index(peer)].identity;
                    self.input(at, Input::PeerUp { peer, identity });
                }
            }
            What::LinkDown { peer } => {
                if self.nodes[index(peer)].engine.is_none() || self.is_cut(peer, self.nodes[at].id) {
                    self.input(at, Input::PeerDown { peer });
                }
            }
            What::Write { .. } | What::Beat { .. } | What::Acknowledge { .. } | What::ReadSlot { .. } => {
                self.fabric_arrival(at, what);
            }
        }
    }

    fn fabric_arrival(&mut self, at: usize, what: What) {
        match what {
            What::Write { connection, range, bytes, notice, slot, misplaced } => {
                let c = &mut self.connections[connection];
                if c.broken {
                    return;
                }
                if !c.backup_knows {
                    // A remote access error: the write is refused in the device.
                    return self.break_connection(connection);
                }
                assert!(
                    range.is_empty() || range.end.0 - 4096 <= c.granted_to.0,
                    "{range} beyond the window"
                );
                let unread = c.ring.insert(slot, notice);
                assert!(unread.is_none(), "R-13: a notice was overwritten before it was read");
                let (session, peer) = (c.session, c.backup);
                if !misplaced {
                    self.nodes[at].image.write(range.start, &bytes);
                }
                let torn = self.rng.chance(2);
                // Receives complete in order, whenever the pump looks at them.
                let delay = self.rng.range(US, 30 * US);
                let read_at = self.connections[connection].last_read.max(self.now + delay);
                self.connections[connection].last_read = read_at;
                self.schedule_own(read_at - self.now, at, What::ReadSlot { connection, slot, torn });
                let done = What::Input(Input::Placed { peer, session, to: Placed(range.end) });
                self.over_fabric(connection, false, done);
            }
            What::ReadSlot { connection, slot, torn } => {
                let c = &mut self.connections[connection];
                let notice = c.ring.remove(&slot);
                if c.backup_knows {
                    let session = c.session;
                    let bytes = notice.map(|notice| notice.encode());
                    let notice = bytes.filter(|_| !torn).map(|bytes| Notice::decode(&bytes).unwrap());
                    self.input(at, Input::Notice { session, notice });
                }
            }
            What::Beat { connection, heartbeat } => {
                if self.connections[connection].backup_knows && !self.connections[connection].broken {
                    self.input(at, Input::Heartbeat { heartbeat });
                } else {
                    self.break_connection(connection);
                }
            }
            What::Acknowledge { connection, acknowledgement } => {
                let Connection { broken, primary_knows, backup, session, .. } = self.connections[connection];
                if broken {
                    return;
                }
                if !primary_knows {
                    return self.break_connection(connection);
                }
                self.input(at, Input::Acknowledged { peer: backup, acknowledgement });
                self.over_fabric(connection, true, What::Input(Input::AcknowledgeDone { session }));
            }
            _ => unreachable!("not of the fabric"),
        }
    }

    fn start_tenure(&mut self, at: usize, token: Token, epoch: Epoch, lsn: Lsn) {
        let World { nodes, oracle, .. } = self;
        let node = &mut nodes[at];
        let state = &node.superblock;
        assert!(state.promised == epoch, "a tenure whose epoch is not promised");
        assert!(state.history.last().is_some_and(|last| last.epoch == epoch && last.start == lsn));
        assert_eq!(
            node.image.valid_tail(true, state.trimmed, Lsn(u64::MAX), &state.history),
            lsn,
            "R-11: the log that a tenure starts from is flushed"
        );
        oracle.tenure(node.id, &node.image, &state.history, state.trimmed, lsn);
        let record = node.image.append(lsn, epoch, 1, 16);
        node.tail = record.end;
        node.tenure = (epoch > node.ended).then_some((epoch, false));
        self.input(at, Input::TenureStarted { token, end: record.end });
    }

    fn granted(&mut self, at: usize, token: Token, primary: MemberId, session: Session, up_to: Lsn) {
        let me = self.nodes[at].id;
        assert_eq!(
            self.nodes[at].superblock.promised, session.epoch,
            "a window for an epoch that is not promised"
        );
        assert_eq!(self.nodes[at].superblock.history.last().unwrap().epoch, session.epoch);
        let connection = self.connect(primary, me, session);
        let c = &mut self.connections[connection];
        if c.broken {
            return self.input(at, Input::FabricDown { peer: primary, session });
        }
        let is_first = c.granted_to == Lsn(0);
        c.backup_knows |= is_first;
        c.granted_to = up_to;
        self.input(at, Input::GrantDone { token });
        if self.is_cut(primary, me) {
            return self.break_connection(connection);
        }
        let delay = self.rng.range(50 * US, 400 * US);
        self.schedule_alive(delay, index(primary), What::Input(Input::Granted { peer: me, session, up_to }));
    }

    fn fetch(&mut self, at: usize, token: Token, peer: MemberId, session: Session, range: LsnRange) {
        let me = self.nodes[at].id;
        let source = &mut self.nodes[index(peer)];
        let may_read = source.superblock.promised == session.epoch && source.engine.is_some();
        if !may_read || self.is_cut(me, peer) || self.rng.chance(3) {
            return self.input(at, Input::FetchFailed { token });
        }
        let bytes = self.nodes[index(peer)].image.read(range);
        let node = &mut self.nodes[at];
        node.image.write(range.start, &bytes);
        let valid_tail = node.image.valid_tail(false, range.start, range.end, &node.superblock.history);
        self.tell_configurations(at, range.start, valid_tail);
        self.input(at, Input::Fetched { token, valid_tail });
    }

    // ---- commands --------------------------------------------------------------------------------------------------

    fn drain(&mut self, at: usize) {
        while let Some(command) = self.nodes[at].engine.as_mut().and_then(Engine::poll_command) {
            let is_noise = matches!(command, Command::Beat { .. } | Command::Acknowledge { .. });
            if self.print && !is_noise {
                self.say(|| format!("m{at} -> {command:?}"));
            }
            if let Some(trace) = self.trace {
                let text = format!("{at}{command:?}");
                let hash = text.bytes().fold(trace ^ self.now, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
                });
                self.trace = Some(hash);
            }
            self.execute(at, command);
        }
        self.watch(at);
        let Some(timeout) = self.nodes[at].engine.as_ref().and_then(Engine::poll_timeout) else { return };
        if timeout < self.nodes[at].timer_at {
            self.nodes[at].timer_at = timeout.max(self.now);
            let delay = timeout.saturating_sub(self.now);
            self.schedule_own(delay, at, What::Timer);
        }
    }

    fn watch(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(engine) = &node.engine else { return };
        let status = engine.status();
        Oracle::watermarks(node.before.as_ref(), &status);
        if let Some(StopReason::Contradiction { at, durable }) = status.stopped {
            panic!("{}: a cut at {at} below durable {durable} was asked for", node.id);
        }
        node.before = Some(status);
    }

    fn execute(&mut self, at: usize, command: Command) {
        let me = self.nodes[at].id;
        let flush_ns = self.nodes[at].flush_ns;
        match command {
            Command::Send { peer, message } => self.send(at, peer, &message),
            Command::Save { token, state } => {
                let delay = self.rng.range(flush_ns / 2, flush_ns * 2);
                self.schedule_store(delay, at, What::Saved { token: Some(token), state, reset: None });
            }
            Command::Cut { token, at: lsn, state } => {
                self.nodes[at].tail = lsn;
                let delay = self.rng.range(flush_ns / 2, flush_ns * 2);
                self.schedule_store(delay, at, What::Saved { token: Some(token), state, reset: None });
            }
            Command::Reset { token, at: lsn, state } => {
                self.schedule_store(
                    flush_ns,
                    at,
                    What::Saved { token: Some(token), state, reset: Some(lsn) },
                );
            }
            Command::Trim { state } => {
                self.schedule_store(flush_ns, at, What::Saved { token: None, state, reset: None });
            }
            Command::Flush { token, to } => {
                if !self.nodes[at].stalled {
                    let delay = self.rng.range(flush_ns / 2, flush_ns * 2);
                    self.schedule_own(delay, at, What::Flushed { token, to });
                }
            }
            Command::StartTenure { token, quorum, at: lsn } => {
                let epoch = quorum.epoch();
                self.schedule_store(10 * US, at, What::Start { token, epoch, at: lsn });
            }
            Command::Seal { token } => {
                if let Some((_, sealed)) = &mut self.nodes[at].tenure {
                    *sealed = true;
                }
                let delay = self.rng.range(US, 200 * US);
                self.schedule_store(delay, at, What::Sealed { token });
            }
            Command::StepDown { epoch, .. } => {
                self.nodes[at].ended = epoch;
                self.unknown += self.nodes[at].waiting.len() as u64;
                self.nodes[at].waiting.clear();
                self.nodes[at].tenure = None;
            }
            Command::Connect { peer, session } => {
                let connection = self.connect(me, peer, session);
                self.connections[connection].primary_knows = true;
            }
            Command::Disconnect { peer, session } => {
                if let Some(connection) = self.connection(me, peer, session) {
                    self.connections[connection].primary_knows = false;
                    self.break_connection(connection);
                }
            }
            Command::Replicate { peer, session, range, notice, slot } => {
                let bytes = self.nodes[at].image.read(range);
                if let Some(connection) = self.connection(me, peer, session) {
                    assert!(
                        self.connections[connection].primary_knows,
                        "a batch over a destroyed connection"
                    );
                    let misplaced = self.setting.misplace && self.rng.chance(1);
                    let what = What::Write { connection, range, bytes, notice, slot, misplaced };
                    self.over_fabric(connection, true, what);
                }
            }
            Command::Beat { peer, session, heartbeat } => {
                if let Some(connection) = self.connection(me, peer, session) {
                    let heartbeat = Heartbeat::decode(&heartbeat.encode()).unwrap();
                    self.over_fabric(connection, true, What::Beat { connection, heartbeat });
                }
            }
            Command::Acknowledge { primary, acknowledgement } => {
                self.check_acknowledgement(at, &acknowledgement);
                let acknowledgement = Acknowledgement::decode(&acknowledgement.encode()).unwrap();
                if let Some(connection) = self.connection(primary, me, acknowledgement.session) {
                    self.over_fabric(connection, false, What::Acknowledge { connection, acknowledgement });
                }
            }
            Command::Committed(proof) => {
                self.committed(at, proof.epoch(), proof.replicated(), proof.durable());
            }
            Command::Learned { durable, .. } => {
                let epoch = self.nodes[at].superblock.promised;
                self.publish(at, epoch, durable);
            }
            Command::Revoke { token } => {
                self.nodes[at].revocations += 1;
                let delay = self.rng.range(50 * US, 500 * US);
                self.schedule_store(delay, at, What::Revoked { token });
            }
            Command::Grant { token, primary, session, from: _, up_to } => {
                let delay = self.rng.range(50 * US, 300 * US);
                let revocations = self.nodes[at].revocations;
                self.schedule_own(delay, at, What::Granted { token, primary, session, revocations, up_to });
            }
            Command::Ungrant { .. } | Command::GrantRead { .. } => {}
            Command::Parse { token, to } => self.schedule_own(US, at, What::Parse { token, to }),
            Command::Fetch { token, peer, session, range } => {
                let delay = self.rng.range(200 * US, 900 * US);
                self.schedule_own(delay, at, What::Fetch { token, peer, session, range });
            }
            Command::AppendConfiguration(configuration) => self.append_configuration(at, *configuration),
            // Every member that runs is linked with every other one here.
            Command::Members(_) => {}
            Command::Event(event) => self.event(at, event),
        }
    }

    /// Whatever a message says is durable must be.
    fn send(&mut self, at: usize, peer: MemberId, message: &Message) {
        let node = &self.nodes[at];
        let state = &node.superblock;
        match message {
            Message::Promise { epoch, summary } => {
                assert!(state.promised >= *epoch, "R-5: {} promises what is not durable", node.id);
                let on_disk = node.image.valid_tail(true, state.trimmed, summary.valid_tail, &state.history);
                assert_eq!(on_disk, summary.valid_tail, "R-11: {} reports what is not durable", node.id);
                assert!(node.tenure.is_none(), "R-16: a promise by a primary that has not sealed");
                let windows = self.connections.iter().filter(|c| c.backup == node.id && c.backup_knows);
                assert_eq!(windows.count(), 0, "a promise beside a window");
            }
            Message::Adopted { session, .. } => {
                assert_eq!(state.promised, session.epoch, "adopted before it was durable");
                assert_eq!(state.history.last().map(|last| last.epoch), Some(session.epoch));
            }
            _ => {}
        }
        let from = node.id;
        let decoded = Message::decode(&message.encode()).expect("what was encoded decodes");
        assert_eq!(decoded, *message);
        if self.cut[at][index(peer)] {
            return;
        }
        let delay = self.rng.range(30 * US, 500 * US);
        self.schedule_alive(delay, index(peer), What::Message { from, message: Box::new(decoded) });
    }

    fn check_acknowledgement(&self, at: usize, word: &Acknowledgement) {
        let node = &self.nodes[at];
        let state = &node.superblock;
        // From the start of its segment, to keep the check cheap.
        let geometry = self.setting.geometry;
        let segment = geometry.segment_of(word.persisted.0);
        let from = geometry.first_record(segment).max(state.trimmed);
        let on_disk = node.image.valid_tail(true, from, word.persisted.0, &state.history);
        assert!(on_disk >= word.persisted.0, "{} acknowledges {:?}, on disk is {on_disk}", node.id, word);
    }

    fn publish(&mut self, at: usize, epoch: Epoch, durable: Lsn) {
        let World { nodes, oracle, .. } = self;
        let node = &mut nodes[at];
        let from = node.published.max(node.superblock.trimmed);
        if durable > from {
            oracle.publish(node.id, epoch, &node.image, &node.superblock.history, (from, durable));
            node.published = durable;
            self.check_chain(at, from, durable);
        }
    }

    fn committed(&mut self, at: usize, epoch: Epoch, replicated: Lsn, durable: Lsn) {
        assert_eq!(self.nodes[at].tenure.map(|tenure| tenure.0), Some(epoch), "a commit outside a tenure");
        self.oracle.commits_in(self.nodes[at].id, epoch);
        self.publish(at, epoch, durable);
        let World { nodes, oracle, replicated_commits, .. } = self;
        nodes[at].waiting.retain(|(record, wants_durable)| {
            let reached = if *wants_durable { durable } else { replicated };
            if record.end <= reached {
                oracle.acknowledge(*record, epoch);
                *replicated_commits += u64::from(record.end > durable);
            }
            record.end > reached
        });
    }

    fn event(&mut self, at: usize, event: Event) {
        match event {
            Event::SnapshotNeeded { from, epoch, .. } => {
                self.snapshots += 1;
                self.schedule_own(MS, at, What::Input(Input::SnapshotComing { at: from }));
                self.schedule_own(5 * MS, at, What::Input(Input::SnapshotInstalled { at: from, epoch }));
            }
            Event::ReleasedGivenUp { released, expected, found, .. } => {
                panic!(
                    "m{at} had released {released} of {found}, which is {expected}, and nobody gave a word"
                )
            }
            Event::SnapshotOtherLine { at: end, expected, found, .. } => {
                panic!("m{at} refuses its primary's checkpoint at {end}: {found} instead of {expected}")
            }
            Event::Refused { peer, reason } => panic!("m{at} refuses {peer}: {reason}"),
            Event::LossAccepted { .. } | Event::MemoryLossAccepted => {
                panic!("m{at} takes a word, and its log is empty: kind 55")
            }
            Event::LossNotAccepted { reason: LossError::Empty { .. } } => self.words_refused += 1,
            Event::Role { .. }
            | Event::Stopped { .. }
            | Event::Peer { .. }
            | Event::Configuration { .. }
            | Event::ChangeRefused { .. }
            | Event::NotAMember { .. }
            | Event::HandoverFailed { .. }
            | Event::LossNotAccepted { .. }
            | Event::Undecided { .. } => {}
        }
    }

    // ---- the application -------------------------------------------------------------------------------------------

    /// Appends where a log is open. Whether one was.
    pub fn append(&mut self, at: usize, payload: usize, wants_durable: bool) -> bool {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some((epoch, false)) = node.tenure else { return false };
        if node.engine.is_none() || node.paused_until > now || node.waiting.len() > 200 {
            return false;
        }
        let id = self.next_id + 1;
        self.next_id = id;
        let record = node.image.append(node.tail, epoch, id, payload);
        node.tail = record.end;
        let wants_durable = wants_durable || !self.setting.replicated_allowed;
        node.waiting.push((record, wants_durable));
        let tail = record.end;
        if wants_durable {
            self.input(at, Input::DurableWanted { to: tail });
        }
        self.input(at, Input::Drained { to: tail, tail });
        self.drain(at);
        true
    }

    pub fn tell(&mut self, at: usize, input: Input) {
        if self.nodes[at].engine.is_some() && self.nodes[at].paused_until <= self.now {
            self.input(at, input);
            self.drain(at);
        }
    }

    /// An operator gives its words to a member that has promised nothing yet: its log is empty, or its disk was emptied (kind 55).
    pub fn give_words_where_nothing_is(&mut self, at: usize) {
        if self.status(at).is_some_and(|status| status.promised == Epoch::NONE) {
            self.tell(at, Input::AcceptLoss);
            self.tell(at, Input::AcceptMemoryLoss);
        }
    }

    pub fn stall(&mut self, at: usize) {
        self.nodes[at].stalled = true;
    }

    pub fn status(&self, at: usize) -> Option<Status> {
        self.nodes[at].engine.as_ref().map(Engine::status)
    }

    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |at: &usize| self.status(*at).is_some_and(|status| status.role == Role::Primary);
        (0..self.nodes.len()).filter(is_primary).collect()
    }
}

pub fn timing() -> Timing {
    Timing {
        heartbeat_ns: 10 * MS,
        suspicion_ns: 80 * MS,
        backoff_ns: 10 * MS,
        stall_ns: 300 * MS,
        retry_ns: 20 * MS,
        flush_idle_ns: 10 * MS,
    }
}
