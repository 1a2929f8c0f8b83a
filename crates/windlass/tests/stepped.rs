//! Three production drivers stepped by hand on one thread, over a fabric, a control plane, disks and a clock in memory: the same seed
//! gives the same run, and whatever the order of things nothing acknowledged is lost.

#[path = "support/world.rs"]
mod world;

#[path = "support/damage_cases.rs"]
mod damage_cases;

#[path = "support/head_cases.rs"]
mod head_cases;

#[path = "support/lines.rs"]
mod lines;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lines::Lines;
use windlass::control::{ControlEvent, ControlPlane, Frame};
use windlass::driver::{Done, Driver, DriverEvent, DriverOptions, Executor, Lane, Parts, Work};
use windlass::engine::{Config, Event, Identity, Input, Limits, Role, StopReason, Timing};
use windlass::{AppendError, Clock, Epoch, Level, Log, LogId, Lsn, MemberId, Outcome};
use windlass_log::{Geometry, RecordKind};
use windlass_store::disk::testing::{Call, Survive, TestDisk};
use windlass_store::disk::{Access, Disk, DiskFile, Errno};
use windlass_store::{Founding, Options as StoreOptions, Read, Store, Surroundings};
use world::{Files, World, WorldFabric};

const MEMBERS: usize = 3;
const SEGMENT_BYTES: u64 = 64 << 10;
/// The lane of superblock updates and cuts.
const SUPERBLOCK: usize = 1;

/// A small generator (splitmix64), so that a seed is a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

#[derive(Clone, Debug, Default)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Frames on their way, and what each member is to hear.
#[derive(Default)]
struct Net {
    under_way: BTreeMap<(u8, u8), VecDeque<Frame>>,
    inboxes: BTreeMap<u8, VecDeque<ControlEvent>>,
    running: BTreeMap<u8, Identity>,
}

impl Net {
    fn join(&mut self, id: u8, identity: Identity) {
        self.leave(id);
        let others: Vec<(u8, Identity)> =
            self.running.iter().map(|(id, identity)| (*id, *identity)).collect();
        self.running.insert(id, identity);
        self.inboxes.insert(id, VecDeque::new());
        for (other, of_other) in others {
            let up = |peer, identity| ControlEvent::Up { peer: MemberId(peer), identity };
            self.inboxes.entry(id).or_default().push_back(up(other, of_other));
            self.inboxes.entry(other).or_default().push_back(up(id, identity));
        }
    }

    fn leave(&mut self, id: u8) {
        if self.running.remove(&id).is_some() {
            self.under_way.retain(|(from, to), _| *from != id && *to != id);
            for other in self.running.keys() {
                let down = ControlEvent::Down { peer: MemberId(id) };
                self.inboxes.entry(*other).or_default().push_back(down);
            }
        }
    }

    fn pending(&self) -> Vec<(u8, u8)> {
        self.under_way.iter().filter(|(_, frames)| !frames.is_empty()).map(|(pair, _)| *pair).collect()
    }

    fn deliver(&mut self, pair: (u8, u8)) {
        if let Some(frame) = self.under_way.get_mut(&pair).and_then(VecDeque::pop_front) {
            let event = ControlEvent::Frame { peer: MemberId(pair.0), frame };
            self.inboxes.entry(pair.1).or_default().push_back(event);
        }
    }
}

struct TestControl {
    net: Arc<Mutex<Net>>,
    me: u8,
}

impl ControlPlane for TestControl {
    fn set_members(&mut self, _: u64, _: &[windlass_engine::MemberEntry]) {}

    fn poll(&mut self) -> Option<ControlEvent> {
        self.net.lock().unwrap().inboxes.get_mut(&self.me)?.pop_front()
    }

    fn send(&mut self, peer: MemberId, frame: Frame) {
        let mut net = self.net.lock().unwrap();
        if net.running.contains_key(&peer.0) {
            // Through its bytes: what a driver sends must come back from the wire.
            let bytes = frame.encode();
            let frame = Frame::decode(&bytes[4..]).unwrap();
            net.under_way.entry((self.me, peer.0)).or_default().push_back(frame);
        }
    }
}

/// Work waits until the simulation does it; each lane in order.
#[derive(Default)]
struct StepExecutor {
    lanes: [VecDeque<Work<TestDisk>>; Lane::ALL.len()],
    done: VecDeque<Done>,
}

impl StepExecutor {
    fn pending(&self) -> Vec<usize> {
        (0..Lane::ALL.len()).filter(|lane| !self.lanes[*lane].is_empty()).collect()
    }

    fn work(&mut self, lane: usize) {
        if let Some(work) = self.lanes[lane].pop_front() {
            self.done.push_back(work.run());
        }
    }
}

impl Executor<TestDisk> for StepExecutor {
    fn submit(&mut self, work: Work<TestDisk>) {
        let lane = match work.lane() {
            Lane::Flush => 0,
            Lane::Superblock => SUPERBLOCK,
            Lane::Prepare => 2,
            Lane::Scrub => 3,
        };
        self.lanes[lane].push_back(work);
    }

    fn poll(&mut self) -> Option<Done> {
        self.done.pop_front()
    }
}

type TestDriver = Driver<WorldFabric, TestDisk, TestClock, TestControl, StepExecutor>;

struct Member {
    id: u8,
    disk: TestDisk,
    /// Memory of the member's machine, for images of segments.
    staging: TestDisk,
    driver: Option<TestDriver>,
    /// What its fabric is in the world.
    fabric: u64,
    log: Option<Log>,
    /// What it appended in its tenure and is not known to be durable: end, payload.
    open: VecDeque<(Lsn, Vec<u8>)>,
}

struct Sim {
    replicated_allowed: bool,
    batch_bytes: u64,
    random: Random,
    clock: TestClock,
    world: World,
    net: Arc<Mutex<Net>>,
    members: Vec<Member>,
    acknowledged: Vec<Vec<u8>>,
    appended: u64,
    openings: u64,
    trace: Vec<String>,
    stopped: Vec<(u8, StopReason)>,
    /// A member whose superblock takes its time: its lane is worked by the test alone.
    held: Option<usize>,
    /// Nobody appends.
    is_idle: bool,
    /// What the members have logged.
    lines: Lines,
}

fn surroundings(boot: u8, incarnation: u64) -> Surroundings {
    Surroundings { boot_id: [boot; 16], incarnation }
}

fn store_options() -> StoreOptions {
    StoreOptions { retention_bytes: 16 * SEGMENT_BYTES, segments_ahead: 2, ..StoreOptions::default() }
}

/// Empty memory of a machine.
fn tmpfs() -> TestDisk {
    let disk = TestDisk::new();
    disk.set_filesystem(0x0102_1994);
    disk
}

impl Sim {
    fn new(seed: u64) -> Sim {
        Sim::with(seed, Files::Any)
    }

    fn with(seed: u64, files: Files) -> Sim {
        Sim::over(seed, World::stepped(files))
    }

    fn over(seed: u64, world: World) -> Sim {
        Sim::over_with(seed, world, false)
    }

    /// Where `Replicated` is allowed members flush soon, whatever is wanted.
    fn over_with(seed: u64, world: World, replicated_allowed: bool) -> Sim {
        Sim::in_batches(seed, world, replicated_allowed, Limits::default().batch_bytes)
    }

    fn in_batches(seed: u64, world: World, replicated_allowed: bool, batch_bytes: u64) -> Sim {
        let members = (0..MEMBERS)
            .map(|at| {
                let disk = TestDisk::new();
                let id = u8::try_from(at).unwrap();
                let founding = Founding {
                    log_id: LogId([5; 16]),
                    member: MemberId(id),
                    incarnation: 100 + u64::from(id),
                    segment_bytes: SEGMENT_BYTES,
                    epoch: None,
                    configuration: vec![1, 0, 0],
                };
                let around = surroundings(1, founding.incarnation);
                drop(Store::create(disk.clone(), &founding, &around, &store_options()).unwrap());
                Member {
                    id,
                    disk,
                    staging: tmpfs(),
                    driver: None,
                    fabric: 0,
                    log: None,
                    open: VecDeque::new(),
                }
            })
            .collect();
        let mut sim = Sim {
            replicated_allowed,
            batch_bytes,
            random: Random(seed),
            clock: TestClock::default(),
            world,
            net: Arc::default(),
            members,
            acknowledged: Vec::new(),
            appended: 0,
            openings: 0,
            trace: Vec::new(),
            stopped: Vec::new(),
            held: None,
            is_idle: false,
            lines: Lines::default(),
        };
        for at in 0..MEMBERS {
            sim.open(at, 1);
        }
        sim
    }

    fn open(&mut self, at: usize, boot: u8) {
        self.openings += 1;
        let id = self.members[at].id;
        let around = surroundings(boot, 100 + u64::from(id));
        let (store, opened) = Store::open(self.members[at].disk.clone(), &around, &store_options()).unwrap();
        store.begin().unwrap();
        let superblock = store.superblock();
        let identity = Identity {
            incarnation: superblock.incarnation,
            opening: superblock.generation,
            nonce: self.openings,
        };
        let batch_bytes = self.batch_bytes;
        let mut limits = Limits { batch_bytes, retention_bytes: 16 * SEGMENT_BYTES, ..Limits::default() };
        if self.replicated_allowed {
            limits.flush_lag_bytes = 4096;
        }
        let config = Config {
            me: MemberId(id),
            identity,
            founding: windlass_engine::Configuration::founding(
                (0..MEMBERS).map(|at| MemberId(u8::try_from(at).unwrap())),
            ),
            geometry: Geometry::new(SEGMENT_BYTES).unwrap(),
            replicated_allowed: self.replicated_allowed,
            seed: self.random.next(),
            timing: Timing::default(),
            limits,
        };
        let fabric = self.world.fabric();
        self.members[at].fabric = fabric.number();
        let parts = Parts {
            fabric,
            store: Arc::new(store),
            opened,
            clock: self.clock.clone(),
            control: TestControl { net: Arc::clone(&self.net), me: id },
            executor: StepExecutor::default(),
            staging: Some(self.members[at].staging.clone()),
        };
        let options = DriverOptions {
            config,
            level: Level::Durable,
            retention_bytes: 64 * SEGMENT_BYTES,
            reservation_limit: Duration::from_secs(5),
            full_disk_limit: Duration::from_secs(1),
            scrub_bytes_per_second: 1 << 20,
            logger: self.lines.logger(),
        };
        self.members[at].driver = Some(Driver::new(parts, options).unwrap());
        self.net.lock().unwrap().join(id, identity);
    }

    /// Ends a member: like a killed process, or with a loss of power of its machine.
    fn kill(&mut self, at: usize, power: Option<Survive>) {
        let member = &mut self.members[at];
        self.net.lock().unwrap().leave(member.id);
        member.log = None;
        member.open.clear();
        drop(member.driver.take());
        if power.is_some() {
            member.staging = tmpfs();
        }
        member.disk = match power {
            None => member.disk.after_kill(),
            Some(survive) => member.disk.after_power_loss(survive),
        };
        self.trace.push(format!("{} dies, power {}", member.id, power.is_some()));
    }

    /// One thing happens, whatever the seed says.
    fn turn(&mut self) {
        match self.random.below(16) {
            0..=5 => {
                let at = self.random.below(MEMBERS);
                self.step(at);
            }
            6..=9 => {
                let pending = self.world.pending();
                if !pending.is_empty() {
                    self.world.step(pending[self.random.below(pending.len())]);
                }
            }
            10..=11 => {
                let pending = self.net.lock().unwrap().pending();
                if !pending.is_empty() {
                    let pair = pending[self.random.below(pending.len())];
                    self.net.lock().unwrap().deliver(pair);
                }
            }
            12..=13 => {
                let at = self.random.below(MEMBERS);
                let Some(driver) = &mut self.members[at].driver else { return };
                let mut pending = driver.executor_mut().pending();
                pending.retain(|lane| self.held != Some(at) || *lane != SUPERBLOCK);
                if !pending.is_empty() {
                    driver.executor_mut().work(pending[self.random.below(pending.len())]);
                }
            }
            14 => {
                let passed = self.random.next() % 400_000;
                self.clock.0.fetch_add(passed, Ordering::Relaxed);
            }
            _ => {
                let at = self.random.below(MEMBERS);
                if !self.is_idle {
                    self.append(at);
                }
            }
        }
    }

    fn step(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(driver) = &mut member.driver else { return };
        driver.step().unwrap();
        while let Some(event) = driver.poll_event() {
            self.trace.push(format!("{} {}: {event:?}", self.clock.now().as_nanos(), member.id));
            match event {
                DriverEvent::Role { role: Role::Primary, log, .. } => {
                    assert!(log.is_some(), "a primary has a log");
                    member.log = log;
                    member.open.clear();
                }
                DriverEvent::Role { .. } | DriverEvent::SteppedDown { .. } => member.log = None,
                DriverEvent::Engine(Event::Stopped { reason }) => self.stopped.push((member.id, reason)),
                DriverEvent::Engine(_)
                | DriverEvent::Excluded { .. }
                | DriverEvent::Damaged { .. }
                | DriverEvent::Repaired { .. } => {}
            }
        }
        // What is durable may be acknowledged.
        if let Some(log) = &member.log {
            let durable = log.info().durable;
            while let Some((_, payload)) = member.open.pop_front_if(|(end, _)| *end <= durable) {
                self.acknowledged.push(payload);
            }
        }
    }

    fn append(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(log) = &member.log else { return };
        self.appended += 1;
        let mut payload = self.appended.to_le_bytes().to_vec();
        payload.resize(8 + self.random.below(1500), 0xa5);
        if let Ok(appended) = log.append(&payload) {
            // Registering the wish is what a commit's first poll does.
            let mut commit = std::pin::pin!(log.commit(appended.end, Level::Durable));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = std::future::Future::poll(commit.as_mut(), &mut context);
            member.open.push_back((appended.end, payload));
        }
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// All that can happen now happens once, in a fixed order, and a millisecond passes.
    fn round(&mut self) {
        for at in 0..MEMBERS {
            self.step(at);
            for lane in 0..3 {
                if let Some(driver) = &mut self.members[at].driver {
                    driver.executor_mut().work(lane);
                }
            }
        }
        for link in self.world.pending() {
            for _ in 0..4 {
                self.world.step(link);
            }
        }
        let pending = self.net.lock().unwrap().pending();
        for pair in pending {
            self.net.lock().unwrap().deliver(pair);
        }
        self.clock.0.fetch_add(1_000_000, Ordering::Relaxed);
    }

    fn driver(&mut self, at: usize) -> &mut TestDriver {
        self.members[at].driver.as_mut().unwrap()
    }

    /// Goes on until the held member has work for its superblock, and says what.
    fn until_held_work(&mut self) -> &'static str {
        let at = self.held.unwrap();
        self.until("work for the superblock", |sim| sim.held_work(at).is_some());
        self.held_work(at).unwrap()
    }

    fn held_work(&self, at: usize) -> Option<&'static str> {
        let driver = self.members[at].driver.as_ref()?;
        driver.executor().lanes[SUPERBLOCK].front().map(Work::name)
    }

    /// Does one piece of it, and lets the driver see that it is done.
    fn work_held(&mut self) {
        let at = self.held.unwrap();
        self.driver(at).executor_mut().work(SUPERBLOCK);
        self.step(at);
    }

    fn primary(&self) -> Option<usize> {
        self.members.iter().position(|member| member.log.is_some())
    }

    /// Goes on until something is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&Sim) -> bool) {
        for _ in 0..2_000_000 {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        let statuses: Vec<_> = self.members.iter().map(|m| m.driver.as_ref().map(Driver::status)).collect();
        panic!("never: {what}; {statuses:#?}\n{}", self.trace.join("\n"));
    }

    /// Ends the appending, and goes on until all members have the whole log, and know that it is durable.
    fn idle_until_all_have_all(&mut self) {
        self.is_idle = true;
        self.until("all have all", |sim| {
            let all: Vec<_> = sim.members.iter().map(|m| m.driver.as_ref().unwrap().status()).collect();
            all.iter().all(|status| (status.tail, status.durable) == (all[0].tail, all[0].tail))
        });
    }

    /// Has what is under way land, while no member has a turn.
    fn land(&mut self) {
        for link in self.world.pending() {
            for _ in 0..8 {
                self.world.step(link);
            }
        }
    }

    /// The payloads of a member's durable log, read as an application reads.
    fn read(&self, at: usize) -> Vec<Vec<u8>> {
        let driver = self.members[at].driver.as_ref().unwrap();
        let durable = driver.status().durable;
        let mut reader = driver.store().reader(driver.store().trimmed());
        let mut all = Vec::new();
        loop {
            match reader.next(durable).unwrap() {
                Read::Record(record) if record.header.kind == RecordKind::Data => {
                    all.push(record.payload.unwrap().to_vec());
                }
                Read::Record(_) => {}
                Read::AtEnd { .. } => return all,
            }
        }
    }

    /// Everything runs; one more record is committed and known everywhere; then the logs are compared.
    fn settle(&mut self) {
        self.until("a primary", |sim| sim.primary().is_some());
        let before = self.acknowledged.len();
        self.until("another acknowledgement", |sim| sim.acknowledged.len() > before + 3);
        let target = self.members.iter().filter_map(|m| m.driver.as_ref()).map(|d| d.status().durable).max();
        self.until("all know what is durable", |sim| {
            sim.members.iter().all(|m| m.driver.as_ref().is_some_and(|d| Some(d.status().durable) >= target))
        });
        let logs: Vec<Vec<Vec<u8>>> = (0..MEMBERS).map(|at| self.read(at)).collect();
        let shortest = logs.iter().map(Vec::len).min().unwrap();
        for log in &logs {
            assert!(log[..shortest] == logs[0][..shortest], "the members' logs differ");
        }
        let longest = logs.iter().max_by_key(|log| log.len()).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for payload in longest {
            assert!(seen.insert(payload[..8].to_vec()), "a record is there twice");
        }
        let number = |payload: &[u8]| u64::from_le_bytes(payload[..8].try_into().unwrap());
        let lost: Vec<u64> =
            self.acknowledged.iter().filter(|p| !seen.contains(&p[..8])).map(|p| number(p)).collect();
        assert!(lost.is_empty(), "{} acknowledged are lost: {lost:?}", lost.len());
        self.trace.push(format!("settled with {shortest} records, {} acknowledged", self.acknowledged.len()));
    }
}

/// A run with kills, losses of power and cut connections.
fn run(seed: u64, world: World) -> Vec<String> {
    let mut sim = Sim::over(seed, world);
    sim.until("a first primary", |sim| sim.primary().is_some());
    for _ in 0..5 {
        let turns = 5_000 + sim.random.below(20_000);
        sim.turns(turns);
        let at =
            if sim.random.below(3) > 0 { sim.primary() } else { None }.unwrap_or(sim.random.below(MEMBERS));
        match sim.random.below(4) {
            0 => {
                let pending = sim.world.pending();
                if !pending.is_empty() {
                    let link = pending[sim.random.below(pending.len())];
                    sim.world.cut(link);
                    sim.trace.push("a connection is cut".to_owned());
                }
            }
            choice => {
                let survive = if sim.random.below(2) == 0 { Survive::Nothing } else { Survive::Everything };
                sim.kill(at, (choice == 1).then_some(survive));
                let turns = sim.random.below(40_000);
                sim.turns(turns);
                let boot = u8::try_from(2 + sim.openings).unwrap();
                sim.open(at, if choice == 1 { boot } else { 1 });
            }
        }
    }
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
    sim.trace
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| run(seed, World::stepped(Files::Any));
    let (one, two, other) = (run(7), run(7), run(8));
    assert!(one.len() > 10, "{one:?}");
    assert_eq!(one, two);
    assert_ne!(one, other);
}

#[test]
fn whatever_the_order_nothing_acknowledged_is_lost() {
    seeds(100, 8, || World::stepped(Files::Any));
}

#[test]
fn nothing_acknowledged_is_lost_where_devices_place_whole_pages_alone() {
    seeds(200, 8, || World::stepped(Files::WholePages));
}

#[test]
fn nothing_acknowledged_is_lost_where_devices_write_into_images() {
    seeds(300, 8, || World::stepped(Files::Staged));
}

/// What peers write into is registered for each session, and the registration ends behind its connection.
#[test]
fn kind_65_nothing_acknowledged_is_lost_where_devices_have_no_windows() {
    seeds(400, 4, || World::without_windows(Files::Any));
    seeds(500, 4, || World::without_windows(Files::Staged));
    let (mut sim, primary) = led_over(13, World::without_windows(Files::Any));
    sim.settle();
    let group = sim.driver(primary).group_metrics();
    assert_eq!((group.window_binds, group.windows_allocated), (0, 0));
}

/// The windows of a member go from segment to segment and from session to session, each bind with another key, until their keys are used up.
#[test]
fn kind_66_windows_are_bound_again_until_their_keys_are_used_up_and_then_replaced() {
    let (mut sim, primary) = led(17);
    let backup = (primary + 1) % MEMBERS;
    let group = |sim: &Sim| sim.members[backup].driver.as_ref().unwrap().group_metrics();
    let mut payload = vec![0xa5; 20 << 10];
    let mut number = u64::MAX;
    while group(&sim).windows_used_up == 0 {
        assert!(group(&sim).window_binds < 4000, "{:?}", group(&sim));
        assert_eq!(sim.primary(), Some(primary));
        let Some(log) = sim.members[primary].log.clone() else { break };
        number -= 1;
        payload[..8].copy_from_slice(&number.to_le_bytes());
        let _ = log.append(&payload);
        // The application needs nothing below what is durable.
        let _ = log.trim(log.info().durable);
        sim.round();
    }
    let group = group(&sim);
    assert!(group.window_binds > 255, "{group:?}");
    assert!(group.windows_allocated <= 32, "{group:?}");
    // Trimmed meanwhile.
    sim.acknowledged.clear();
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// A path that drops long packets is found where it is connected, before a batch is counted on it.
#[test]
fn kind_69_a_path_that_drops_long_packets_is_found_before_the_first_batch() {
    let (mut sim, primary) = led(19);
    let behind = (primary + 1) % MEMBERS;
    sim.kill(behind, None);
    sim.open(behind, 1);
    let narrow = sim.members[behind].fabric;
    sim.world.narrow(Some((narrow, 4096)));
    let group = |sim: &Sim| sim.members[primary].driver.as_ref().unwrap().group_metrics();
    let (first, tail) = (group(&sim).sessions_broken, sim.driver(behind).status().tail);
    // The one before may have had a batch under way when the member was killed.
    sim.until("a session ends", |sim| group(sim).sessions_broken > first);
    let before = group(&sim);
    sim.until("more do", |sim| group(sim).sessions_broken > before.sessions_broken + 3);
    let acknowledged = sim.acknowledged.len();
    sim.until("the others go on", |sim| sim.acknowledged.len() > acknowledged + 10);
    assert_eq!(sim.primary(), Some(primary), "nobody needed to take over");
    assert_eq!(sim.driver(behind).status().tail, tail, "nothing was sent there");
    assert_eq!(group(&sim).void_batches, before.void_batches, "and nothing was lost");
    sim.world.narrow(None);
    sim.until("it catches up", |sim| {
        sim.members[behind].driver.as_ref().is_some_and(|driver| driver.status().durable > tail)
    });
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// A write to a page that the device does not have waits for a fault.
#[test]
fn what_a_primary_writes_into_was_brought_in_before() {
    for files in [Files::Any, Files::WholePages] {
        let mut sim = Sim::with(11, files);
        sim.settle();
        let ahead = sim.world.ahead();
        assert!(ahead.asked_for > 0 && ahead.unasked == 0, "{ahead:?}");
    }
}

fn seeds(first: u64, count: u64, world: fn() -> World) {
    // `WINDLASS_SEEDS=FIRST:COUNT` runs others.
    let seeds = std::env::var("WINDLASS_SEEDS").unwrap_or_else(|_| format!("{first}:{count}"));
    let (first, count) = seeds.split_once(':').expect("FIRST:COUNT");
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    let mut failed = Vec::new();
    for seed in first..first + count {
        if std::panic::catch_unwind(|| run(seed, world())).is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "of {count} seeds from {first} these failed: {failed:?}");
}

/// `placed` promises to survive the process; a record may lie in an image that nobody has looked at yet.
#[test]
fn what_was_placed_in_an_image_is_found_by_the_next_opening_of_the_process_and_not_after_a_loss_of_power() {
    for power in [None, Some(Survive::Nothing)] {
        let mut sim = Sim::with(41, Files::Staged);
        sim.until("a primary", |sim| sim.primary().is_some());
        sim.until("acknowledgements", |sim| sim.acknowledged.len() > 5);
        sim.idle_until_all_have_all();
        let at = sim.primary().unwrap();
        let backup = (at + 1) % MEMBERS;
        let before = sim.driver(backup).status().tail;
        sim.append(at);
        sim.step(at);
        sim.land();
        // Its bytes have landed; it has had no turn.
        let end = sim.members[at].open.back().unwrap().0;
        sim.kill(backup, power);
        sim.open(backup, if power.is_some() { 9 } else { 1 });
        let after = sim.driver(backup).status().tail;
        if power.is_some() {
            assert!(after <= before, "{after} after a loss of power, {before} before");
        } else {
            assert_eq!(after, end, "{before} before the record");
            // by then it is in the segment's file, and on the medium: the engine counts it as persisted.
            sim.kill(backup, Some(Survive::Nothing));
            sim.open(backup, 9);
            assert_eq!(sim.driver(backup).status().tail, end);
        }
        sim.is_idle = false;
        sim.settle();
        assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
    }
}

/// What a process before has left behind the tail may count as clean though no flush ever got it to the medium. It becomes part of the log again once what is
/// missing before it has come, and what is there of it already looks the same whether it came again or not.
#[test]
fn what_a_failed_flush_has_left_behind_the_tail_is_written_again_before_it_counts_r11() {
    for files in [Files::Any, Files::WholePages] {
        let mut sim = Sim::with(43, files);
        sim.until("a primary", |sim| sim.primary().is_some());
        sim.until("acknowledgements", |sim| sim.acknowledged.len() > 5);
        sim.idle_until_all_have_all();
        let at = sim.primary().unwrap();
        let backup = (at + 1) % MEMBERS;
        let before = sim.driver(backup).status().tail;
        // Over several pages.
        for _ in 0..24 {
            sim.append(at);
        }
        let end = sim.members[at].open.back().unwrap().0;
        assert_eq!(before.0 / SEGMENT_BYTES, end.0 / SEGMENT_BYTES, "all in one segment");
        sim.step(at);
        sim.land();
        // It has had no turn, and has flushed nothing. Of the first record the beginning is not there, and what is was written by a flush that failed.
        sim.kill(backup, None);
        let name = format!("{:016x}.segment", before.0 / SEGMENT_BYTES * SEGMENT_BYTES);
        let file = sim.members[backup].disk.open(&name, Access::ReadWrite).unwrap();
        file.write_at(&[0; 8], before.0 % SEGMENT_BYTES).unwrap();
        sim.members[backup].disk.fail(Call::Sync, 0, Errno::IO);
        assert_eq!(file.sync(), Err(Errno::IO));
        sim.open(backup, 1);
        assert_eq!(sim.driver(backup).status().tail, before, "{files:?}");
        sim.until("it has all again", |sim| {
            sim.members[backup].driver.as_ref().unwrap().status().persisted.0 >= end
        });
        sim.kill(backup, Some(Survive::Nothing));
        sim.open(backup, 9);
        let after = sim.driver(backup).status().tail;
        assert!(after >= end, "{files:?}: {after}, {end} was persisted");
        sim.is_idle = false;
        sim.settle();
        assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
    }
}

#[test]
fn kind_24_a_failing_flush_on_the_primary_ends_its_tenure_and_the_group_goes_on() {
    let mut sim = Sim::new(3);
    sim.until("a primary", |sim| sim.primary().is_some());
    sim.until("acknowledgements", |sim| sim.acknowledged.len() > 20);
    let at = sim.primary().unwrap();
    let epoch_before: Epoch = sim.members[at].log.as_ref().unwrap().info().epoch;
    let next = sim.members[at].disk.calls(Call::FlushRange) + 1;
    sim.members[at].disk.fail(Call::FlushRange, next, Errno::IO);
    sim.until("the member stops", |sim| !sim.stopped.is_empty());
    assert_eq!(sim.stopped, [(u8::try_from(at).unwrap(), StopReason::FlushFailed)]);
    sim.until("another primary", |sim| sim.primary().is_some_and(|primary| primary != at));
    let epoch = sim.members[sim.primary().unwrap()].log.as_ref().unwrap().info().epoch;
    assert!(epoch > epoch_before);
    // Opened again on a disk that works, it is a member like any other.
    sim.kill(at, None);
    sim.open(at, 1);
    sim.settle();
}

/// Three members, a primary, and a few acknowledgements.
fn led(seed: u64) -> (Sim, usize) {
    led_over(seed, World::stepped(Files::Any))
}

fn led_over(seed: u64, world: World) -> (Sim, usize) {
    led_in(Sim::over(seed, world))
}

fn led_in(mut sim: Sim) -> (Sim, usize) {
    sim.until("a primary", |sim| sim.primary().is_some());
    sim.until("acknowledgements", |sim| sim.acknowledged.len() > 5);
    let at = sim.primary().unwrap();
    (sim, at)
}

/// Whoever waits for `Replicated` would otherwise wait for the next heartbeat, which is the next time that a backup says how far it has parsed.
#[test]
fn r14_a_batch_that_the_primarys_flush_overtook_at_a_segments_end_is_placed_once_it_is_parsed_and_no_heartbeat_later()
 {
    let mut sim = Sim::over_with(7, World::stepped(Files::Any), true);
    let heartbeat = Duration::from_nanos(Timing::default().heartbeat_ns);
    let mut reached = 0;
    for _ in 0..200 {
        sim.until("a primary", |sim| sim.primary().is_some());
        let at = sim.primary().unwrap();
        for _ in 0..50 {
            sim.round();
        }
        if sim.primary() != Some(at) {
            continue;
        }
        let log = sim.members[at].log.clone().unwrap();
        let (geometry, before) = (Geometry::new(SEGMENT_BYTES).unwrap(), log.info().tail);
        let appended = log.append(&vec![0x5a; 20_000]).unwrap();
        let crosses = geometry.segment_of(appended.end) > geometry.segment_of(before);
        // The batch goes out, and the primary flushes beside it.
        for _ in 0..4 {
            sim.step(at);
            for lane in 0..3 {
                sim.driver(at).executor_mut().work(lane);
            }
        }
        if log.metrics().persisted < appended.end {
            continue;
        }
        // It lands, and the backups parse it; they do not flush, and no time passes.
        let now = sim.clock.now();
        let mut turns = 0;
        while log.metrics().replicated < appended.end && turns < 100 {
            turns += 1;
            sim.land();
            (0..MEMBERS).for_each(|member| sim.step(member));
        }
        assert_eq!(sim.clock.now(), now);
        assert!(
            turns < 100,
            "it waits for a heartbeat, {heartbeat:?}: {crosses} {} {}",
            log.metrics().replicated,
            appended.end
        );
        reached += usize::from(crosses);
    }
    assert!(reached > 10, "{reached} batches at a segment's end");
}

/// A clean mark at the end before the cut would make of the shorter log a damaged one.
#[test]
fn r13_a_batch_that_waits_for_a_credit_is_counted_with_how_long_it_waited() {
    let (mut sim, primary) = led(11);
    let metrics = |sim: &mut Sim| sim.driver(primary).group_metrics();
    let before = metrics(&mut sim);
    // The backups' memory takes everything, and nobody there looks at it: no notice is consumed.
    for _ in 0..64 {
        sim.append(primary);
        sim.step(primary);
        for link in sim.world.pending() {
            sim.world.step(link);
        }
        sim.step(primary);
    }
    let posted = metrics(&mut sim).batches - before.batches;
    let slots = u64::from(Limits::default().notice_slots);
    assert!(posted <= 2 * slots, "R-13: {posted} notices to two backups with {slots} slots each");
    sim.clock.0.fetch_add(3_000_000, Ordering::Relaxed);
    sim.until("the stall is over", |sim| {
        let driver = sim.members[primary].driver.as_ref().unwrap();
        driver.group_metrics().credit_stall_ns.count > before.credit_stall_ns.count
    });
    let after = metrics(&mut sim);
    assert!(after.credit_stall_ns.max >= 3_000_000, "{:?}", after.credit_stall_ns);
    assert!(after.to_prometheus("").contains("windlass_group_credit_stalls_total"));
    sim.settle();
}

#[test]
fn kind_42_a_member_that_ends_under_a_cut_leaves_no_clean_mark() {
    let (mut sim, at) = led(11);
    // Records that nobody else gets: on its own medium, and to be cut.
    for _ in 0..20 {
        sim.append(at);
        sim.step(at);
        for lane in [0, 2] {
            sim.driver(at).executor_mut().work(lane);
        }
        sim.step(at);
    }
    sim.kill(at, None);
    sim.until("another primary", |sim| sim.primary().is_some());
    let before = sim.acknowledged.len();
    sim.until("more acknowledgements", |sim| sim.acknowledged.len() > before + 3);
    sim.open(at, 1);
    sim.held = Some(at);
    while sim.until_held_work() != "cut" {
        sim.work_held();
    }

    let driver = sim.driver(at);
    assert!(!driver.may_end());
    let ended = driver.end();
    assert!(ended.is_quiet && !ended.is_clean, "{ended:?}");
    // Threads do what they were given before they end.
    while let Some(lane) = driver.executor_mut().pending().first().copied() {
        driver.executor_mut().work(lane);
    }
    let store = Arc::clone(driver.store());
    drop(sim.members[at].driver.take());
    // What the pump does.
    if ended.is_clean {
        store.close(ended.tail).unwrap();
    } else {
        store.abandon();
    }
    drop(store);
    sim.held = None;
    sim.kill(at, None);
    sim.open(at, 1);
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// The order to begin a tenure waits behind a superblock update; before it has its turn, the tenure is over.
#[test]
fn r_10_a_tenure_that_is_sealed_before_its_turn_never_begins() {
    let (mut sim, old) = led(12);
    let [at, other] = [(old + 1) % MEMBERS, (old + 2) % MEMBERS];
    // With logs of one length nobody has anything to fetch or to adopt before it leads.
    sim.idle_until_all_have_all();
    sim.held = Some(at);
    sim.driver(at).ask(Input::Suspect);
    assert_eq!(sim.until_held_work(), "save", "its own promise");
    sim.work_held();
    assert_eq!(sim.until_held_work(), "save", "its history, once it is fenced and its log is flushed");
    // A member that comes back is noted: one more update, behind the history's.
    sim.kill(other, None);
    sim.open(other, 1);
    sim.step(at);
    sim.work_held();
    assert_eq!((sim.held_work(at), sim.driver(at).status().role), (Some("save"), Role::Candidate));
    assert!(sim.members[at].log.is_none());
    // The next candidate asks for more.
    sim.driver(old).ask(Input::Suspect);
    let steps_down = format!("{}: SteppedDown", sim.members[at].id);
    sim.until("it has given way", |sim| sim.trace.iter().any(|line| line.contains(&steps_down)));
    assert!(sim.members[at].log.is_none());
    (sim.held, sim.is_idle) = (None, false);
    sim.until("another tenure", |sim| sim.primary().is_some_and(|primary| primary != at));
    sim.until("nothing is under way any more", |sim| {
        // Were its tenure begun by now, it would have a log that is open, with nobody to lead it or to seal it.
        sim.members[at].driver.as_ref().unwrap().may_end()
    });
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// What a backup has again from its primary in place of damaged bytes had been flushed once: it counts only after a flush of its own.
#[test]
fn r18_what_is_had_again_behind_damage_is_flushed_before_it_counts() {
    let (mut sim, primary) = led(13);
    sim.until("a few records", |sim| sim.acknowledged.len() > 20);
    sim.is_idle = true;
    let at = (primary + 1) % MEMBERS;
    sim.until("all is flushed", |sim| {
        let mut all = sim.members.iter().map(|member| member.driver.as_ref().unwrap().status());
        let first = all.next().unwrap();
        let is_whole = |status: &windlass::engine::Status| {
            (status.tail, status.durable, status.persisted.0) == (first.tail, first.tail, first.tail)
        };
        is_whole(&first) && all.all(|status| is_whole(&status))
    });
    let tail = sim.driver(at).status().tail;
    let mut reader = sim.driver(at).store().reader(Lsn(4096));
    let mut starts = Vec::new();
    while let Read::Record(record) = reader.next(tail).unwrap() {
        starts.push(record.header.lsn);
    }
    let hurt = starts[starts.len() / 2];
    sim.members[at].disk.rot("0000000000000000.segment", hurt.0 + 33, 1);
    sim.driver(at).ask(Input::Damaged { at: hurt });
    sim.step(at);
    assert!(sim.driver(at).status().damaged);
    sim.until("it has all again", |sim| {
        let status = sim.members[at].driver.as_ref().unwrap().status();
        !status.damaged && status.persisted.0 == tail && status.primary.is_some()
    });
    // What it has acknowledged again survives a loss of power.
    sim.kill(at, Some(Survive::Nothing));
    sim.open(at, 2);
    assert_eq!(sim.driver(at).status().tail, tail, "its log ends where it was hurt, at {hurt}");
    sim.is_idle = false;
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// Whose first header is rotten here is checked all the same: what a session sends first begins where the backup's log ends.
#[test]
fn r18_a_header_that_rotted_is_not_sent_to_a_backup_that_catches_up() {
    let (mut sim, primary) = led(15);
    let at = (primary + 1) % MEMBERS;
    sim.kill(at, None);
    sim.until("what it lacks is cold at the primary", |sim| {
        let store = sim.members[primary].driver.as_ref().unwrap().store();
        store.cold_end().0 >= 3 * SEGMENT_BYTES
    });
    sim.open(at, 1);
    let hurt = sim.driver(at).status().tail;
    assert!(hurt.0 > 4096 && hurt.0 < 2 * SEGMENT_BYTES, "its log ends at {hurt}");
    let segment = format!("{:016x}.segment", hurt.0 / SEGMENT_BYTES * SEGMENT_BYTES);
    let header = |disk: &TestDisk| {
        let mut header = [0; 32];
        let file = disk.open(&segment, Access::Read).unwrap();
        assert_eq!(file.read_at(&mut header, hurt.0 % SEGMENT_BYTES).unwrap(), header.len());
        header
    };
    sim.members[primary].disk.rot(&segment, hurt.0 % SEGMENT_BYTES + 9, 1);
    let rotten = header(&sim.members[primary].disk);
    let damaged = format!("{}: Damaged", sim.members[primary].id);
    sim.until("the primary finds it", |sim| {
        assert_ne!(header(&sim.members[at].disk), rotten, "rot was sent");
        sim.trace.iter().any(|line| line.contains(&damaged))
    });
    sim.until("another leads", |sim| sim.primary().is_some_and(|leads| leads != primary));
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// Fills the disks of these members up: what their files have now is all they get.
fn fill_up(sim: &Sim, members: &[usize]) {
    for at in members {
        sim.members[*at].disk.set_capacity(Some(0));
    }
}

#[test]
fn kind_20_a_primary_whose_disk_is_full_hands_over_to_a_member_with_room() {
    let (mut sim, full) = led(14);
    fill_up(&sim, &[full]);
    sim.until("another primary", |sim| sim.primary().is_some_and(|primary| primary != full));
    let handed_over = format!("{}: SteppedDown", sim.members[full].id);
    let line = sim.trace.iter().find(|line| line.contains(&handed_over)).unwrap();
    assert!(line.contains("HandedOver"), "{line}");
    // Segments more than anybody had, so that there was real need of room.
    let end = sim.members[full].driver.as_ref().unwrap().status().tail.0 + 6 * SEGMENT_BYTES;
    sim.until("the group goes on without it", |sim| {
        sim.members.iter().any(|member| member.driver.as_ref().unwrap().status().durable.0 > end)
    });
    assert!(sim.primary().is_some_and(|primary| primary != full));
    sim.members[full].disk.set_capacity(None);
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

#[test]
fn kind_20_who_waits_for_a_segment_of_a_group_is_told_that_the_disk_is_full() {
    let (mut sim, full) = led(16);
    fill_up(&sim, &[0, 1, 2]);
    let log = sim.members[full].log.clone().unwrap();
    // Before the driver has found that there is no room.
    // Numbers that the simulation's own records don't get.
    let refused =
        (1u64 << 32..).find_map(|number| log.append(&number.to_le_bytes().repeat(125)).err()).unwrap();
    assert!(matches!(refused, AppendError::NotReady { .. }), "{refused}");
    let late = Instant::now() + Duration::from_secs(60);
    let answer = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| log.append_wait_blocking(&[7; 1000], late));
        // Whoever isn't parked by then gets the same answer without.
        std::thread::sleep(Duration::from_millis(30));
        while !waiting.is_finished() {
            sim.turn();
        }
        waiting.join().unwrap()
    });
    assert!(matches!(answer, Err(AppendError::DiskFull { .. })), "{answer:?}");
    for at in 0..MEMBERS {
        sim.members[at].disk.set_capacity(None);
    }
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// A device that takes no more memory is told of like a disk that has no more room: at once, and not at the deadline.
#[test]
fn who_waits_for_a_segment_that_the_device_does_not_take_is_told_at_once_kind_58() {
    let (mut sim, primary) = led(17);
    let log = sim.members[primary].log.clone().unwrap();
    sim.world.lock_up(true);
    let mut records = (1u64 << 32..).map(|number| number.to_le_bytes().repeat(125));
    let refused = records.find_map(|record| log.append(&record).err()).unwrap();
    assert!(matches!(refused, AppendError::NotReady { .. }), "{refused}");
    let wait = |sim: &mut Sim| {
        let late = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| log.append_wait_blocking(&[7; 1000], late));
            std::thread::sleep(Duration::from_millis(30));
            while !waiting.is_finished() {
                sim.turn();
            }
            waiting.join().unwrap()
        })
    };
    let answer = wait(&mut sim);
    let Err(AppendError::NoSegment { cause, .. }) = &answer else { panic!("{answer:?}") };
    assert!(cause.contains("ulimit -l"), "{cause}");
    // Once it takes memory again, appends go on by themselves.
    sim.world.lock_up(false);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !matches!(wait(&mut sim), Ok(_) | Err(AppendError::Sealed { .. })) {
        assert!(Instant::now() < deadline, "still refused");
        // An answer at once leaves the members' own clocks no time to ask the device again.
        sim.turns(200);
    }
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// It has the best log, and its disk is full exactly where that ends: no record of its tenure has a place there. It held the group for ever.
#[test]
fn kind_20_a_member_that_wins_and_has_no_room_for_a_record_lets_another_lead() {
    let (mut sim, primary) = led(18);
    let (full, other) = ((primary + 1) % MEMBERS, (primary + 2) % MEMBERS);
    sim.kill(other, None);
    fill_up(&sim, &[full]);
    let start = sim.clock.now();
    sim.until("it has no room", |sim| sim.clock.now() > start + Duration::from_secs(10));
    let tail = sim.driver(full).status().tail;
    assert_eq!(tail.0 % SEGMENT_BYTES, 4096, "{tail} is no segment's start");
    assert!(sim.driver(primary).status().tail > tail, "there is more that it has no room for");
    sim.kill(primary, None);
    sim.open(other, 1);
    sim.driver(full).ask(Input::Suspect);
    let is_given_up = |sim: &Sim| sim.trace.iter().any(|line| line.contains("NotStarted"));
    sim.until("its tenure does not begin", is_given_up);
    sim.until("the other leads", |sim| sim.primary() == Some(other));
    sim.members[full].disk.set_capacity(None);
    sim.open(primary, 1);
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

#[test]
fn kind_20_where_all_disks_are_full_nobody_hands_over() {
    let (mut sim, primary) = led(15);
    fill_up(&sim, &[0, 1, 2]);
    let start = sim.clock.now();
    sim.until("ten seconds", |sim| sim.clock.now() > start + Duration::from_secs(10));
    let handed_over = sim.trace.iter().filter(|line| line.contains("HandedOver")).count();
    assert_eq!(handed_over, 0, "{primary}: {}", sim.trace.join("\n"));
    for at in 0..MEMBERS {
        sim.members[at].disk.set_capacity(None);
    }
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// A machine that was suspended, or a clock that leaps: everybody has been silent for an hour, all at once, in the middle of things.
#[test]
fn kind_56_clocks_that_leap_lose_nothing_and_the_group_goes_on() {
    let mut sim = Sim::new(17);
    for _ in 0..6 {
        sim.until("a primary", |sim| sim.primary().is_some());
        let before = sim.acknowledged.len();
        sim.until("acknowledgements", |sim| sim.acknowledged.len() > before + 10);
        let turns = sim.random.below(2_000);
        sim.turns(turns);
        sim.clock.0.fetch_add(3_600_000_000_000, Ordering::Relaxed);
    }
    sim.settle();
    assert!(sim.stopped.is_empty(), "{:?}", sim.stopped);
}

/// The store is done for as a whole when a flush fails, also that of a segment that is being made: a primary that went on would take appends
/// that nobody can get.
#[test]
fn kind_24_a_failing_flush_of_a_segment_ahead_ends_the_tenure_too() {
    let mut sim = Sim::new(4);
    sim.until("a primary", |sim| sim.primary().is_some());
    sim.until("acknowledgements", |sim| sim.acknowledged.len() > 20);
    let at = sim.primary().unwrap();
    sim.members[at].disk.fail(Call::Sync, 0, Errno::IO);
    sim.until("the member stops", |sim| !sim.stopped.is_empty());
    assert_eq!(sim.stopped, [(u8::try_from(at).unwrap(), StopReason::FlushFailed)]);
    sim.until("another primary", |sim| sim.primary().is_some_and(|primary| primary != at));
    sim.kill(at, None);
    sim.open(at, 1);
    sim.settle();
}

/// I-6: what a member has said to be cut never comes back, whoever leads next: its client may have sent it again.
#[test]
fn what_was_said_to_be_cut_never_comes_back_i6() {
    let (mut sim, old) = led(12);
    sim.idle_until_all_have_all();
    // A record that nobody else gets, on the primary's own medium.
    let epoch = sim.driver(old).status().promised;
    let payload = b"unknown to its client".to_vec();
    let start = sim.members[old].log.as_ref().unwrap().append(&payload).unwrap().start;
    for _ in 0..20 {
        sim.step(old);
        for lane in [0, 2] {
            sim.driver(old).executor_mut().work(lane);
        }
    }
    sim.kill(old, None);
    sim.until("another primary", |sim| sim.primary().is_some());
    let next = sim.primary().unwrap();
    assert!(sim.driver(next).status().durable <= start, "nothing of the new tenure is committed yet");
    // The client asks the new primary, as `CommitError::Fenced` tells it: a later epoch's start record is in the place, and may be cut itself.
    assert_eq!(sim.members[next].log.as_ref().unwrap().outcome(epoch, start), Outcome::Unknown);
    assert_eq!(sim.driver(next).outcome(epoch, start), Outcome::Unknown);
    // It dies, and the old one is back: its log is chosen.
    sim.kill(next, None);
    sim.open(old, 1);
    sim.until("a primary", |sim| sim.primary().is_some());
    let last = sim.primary().unwrap();
    sim.until("its tenure has committed", |sim| {
        let status = sim.members[last].driver.as_ref().unwrap().status();
        status.durable > start && status.durable == status.tail
    });
    assert!(sim.read(last).contains(&payload), "the log that has it was not chosen: {last} leads");
    assert_eq!(sim.driver(last).outcome(epoch, start), Outcome::Committed);
}
