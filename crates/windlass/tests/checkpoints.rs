//! A member beyond the retention is brought a checkpoint by its group, and goes on behind it: whoever dies meanwhile, and whatever a giver does wrong.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use support::{Group, append_all};
use windlass::{
    Checkpoint, CheckpointError, CheckpointFault, CheckpointPosition, CheckpointSink, Checkpoints, Epoch,
    Level, Log, Lsn, MemberId, Node, NodeEvent, NotGiven, OfferedCheckpoint, ReadError,
};

/// How long anything may take before a test fails, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a checkpoint.
const CONTENT: usize = 3 << 20;

/// Lets pass up to a number.
#[derive(Default)]
struct Gate {
    limit: Mutex<u64>,
    moved: Condvar,
}

impl Gate {
    fn open_to(&self, limit: u64) {
        *self.limit.lock().unwrap() = limit;
        self.moved.notify_all();
    }

    fn pass(&self, number: u64) {
        let limit = self.limit.lock().unwrap();
        let wait = self.moved.wait_timeout_while(limit, PATIENCE, |limit| *limit < number).unwrap();
        assert!(!wait.1.timed_out(), "nobody opens the gate");
    }
}

/// An application of one member: what it holds is one file, of an LSN, the epoch below, and bytes that follow from it.
struct Vault {
    folder: PathBuf,
    /// What it would give, and the epoch of its last record.
    newest: AtomicU64,
    line: AtomicU64,
    /// Reads of what it gives wait here, by bytes.
    giving: Gate,
    /// Its last step as taker waits here: 1 before the file has its name, 2 behind it.
    finishing: Gate,
    finished: AtomicU64,
    /// How often it was asked how far it is.
    asked: AtomicU64,
}

fn content(at: Lsn) -> Vec<u8> {
    (0..CONTENT as u64).map(|n| (n.wrapping_mul(at.0 | 1) >> 11).to_le_bytes()[0]).collect()
}

impl Vault {
    fn new(folder: &Path, name: &str) -> Arc<Vault> {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let vault = Vault {
            folder,
            newest: AtomicU64::new(0),
            line: AtomicU64::new(Epoch::NONE.to_bits()),
            giving: Gate::default(),
            finishing: Gate::default(),
            finished: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        };
        vault.giving.open_to(u64::MAX);
        vault.finishing.open_to(u64::MAX);
        Arc::new(vault)
    }

    fn give(&self, at: Lsn) {
        self.newest.store(at.0, Ordering::SeqCst);
    }

    /// Of this line is what it gives.
    fn follow(&self, line: Epoch) {
        self.line.store(line.to_bits(), Ordering::SeqCst);
    }

    /// What it holds, durably: an LSN, and the bytes that belong to it.
    fn held(&self) -> Option<Lsn> {
        Some(self.position()?.at)
    }

    fn position(&self) -> Option<CheckpointPosition> {
        let bytes = std::fs::read(self.folder.join("state")).ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (at, epoch) = (Lsn(number(0)), Epoch::from_bits(number(8)));
        assert!(bytes[16..] == content(at), "not the bytes that were given");
        Some(CheckpointPosition { at, epoch })
    }

    /// It holds this without having taken it.
    fn hold(&self, held: CheckpointPosition) {
        let head = [held.at.0.to_le_bytes(), held.epoch.to_bits().to_le_bytes()].concat();
        std::fs::write(self.folder.join("state"), [head, content(held.at)].concat()).unwrap();
    }
}

/// What a member gives and takes; the vault outlives the member.
struct Hook(Arc<Vault>);

struct Slowly {
    vault: Arc<Vault>,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Slowly {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        // An odd length: chunks need not meet reads.
        let count = into.len().min(10_007).min(self.bytes.len() - self.at);
        self.vault.giving.pass((self.at + count) as u64);
        into[..count].copy_from_slice(&self.bytes[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

struct Sink {
    vault: Arc<Vault>,
    file: File,
}

impl Checkpoints for Hook {
    fn position(&self) -> Result<CheckpointPosition, CheckpointFault> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.0.position().unwrap_or(CheckpointPosition::NOTHING))
    }

    fn open(&self, _least: Lsn) -> Result<Checkpoint, CheckpointFault> {
        let at = Lsn(self.0.newest.load(Ordering::SeqCst));
        if at == Lsn(0) {
            return Err("no checkpoint here".into());
        }
        let content = Slowly { vault: Arc::clone(&self.0), bytes: content(at), at: 0 };
        let position = CheckpointPosition { at, epoch: Epoch::from_bits(self.0.line.load(Ordering::SeqCst)) };
        Ok(Checkpoint { position, bytes: Some(CONTENT as u64), content: Box::new(content) })
    }

    fn begin(&self, offered: &OfferedCheckpoint) -> Result<Box<dyn CheckpointSink>, CheckpointFault> {
        let mut file = File::create(self.0.folder.join("coming"))?;
        file.write_all(&offered.at.0.to_le_bytes())?;
        file.write_all(&offered.epoch.to_bits().to_le_bytes())?;
        Ok(Box::new(Sink { vault: Arc::clone(&self.0), file }))
    }
}

impl CheckpointSink for Sink {
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), CheckpointFault> {
        Ok(self.file.write_all(bytes)?)
    }

    fn finish(self: Box<Self>) -> Result<(), CheckpointFault> {
        self.vault.finishing.pass(1);
        self.file.sync_all()?;
        std::fs::rename(self.vault.folder.join("coming"), self.vault.folder.join("state"))?;
        File::open(&self.vault.folder)?.sync_all()?;
        self.vault.finished.fetch_add(1, Ordering::SeqCst);
        self.vault.finishing.pass(2);
        Ok(())
    }
}

fn payload(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(64 << 10, b'.');
    bytes
}

/// A group of three of which one was away for too long: what it lacks is released, and the others have a checkpoint.
struct World {
    group: Group,
    vaults: Vec<Arc<Vault>>,
    log: Log,
    primary: usize,
    backup: usize,
    behind: usize,
    /// Where the checkpoints of the others end.
    at: Lsn,
}

impl World {
    fn new() -> World {
        let mut group = Group::prepare(3, |options| options.suspicion(Duration::from_secs(2)));
        let vaults: Vec<Arc<Vault>> =
            (0..3).map(|at| Vault::new(group.folder.path(), &format!("vault-{at}"))).collect();
        for (at, vault) in vaults.iter().enumerate() {
            open(&mut group, at, vault);
        }
        let (primary, log) = group.primary_by(Instant::now() + PATIENCE);
        let (behind, backup) = ((primary + 1) % 3, (primary + 2) % 3);
        let end = append_all(&log, (0..10).map(payload), Level::Durable);
        group.wait_durable(end);
        group.kill(behind);
        for round in 0..8 {
            let end = append_all(&log, (0..64).map(|n| payload(round * 64 + n)), Level::Durable);
            log.trim(end).unwrap();
        }
        wait("the log is released", || log.info().trimmed.0 > 16 << 20);
        let at = append_all(&log, std::iter::once(payload(0)), Level::Durable);
        group.wait_durable(at);
        vaults.iter().for_each(|vault| vault.follow(log.info().epoch));
        // The primary would be asked last, but may be the first that is connected.
        vaults[backup].give(at);
        World { group, vaults, log, primary, backup, behind, at }
    }

    fn start(&mut self, at: usize) {
        open(&mut self.group, at, &self.vaults[at]);
    }

    /// Starts the one that is behind, and waits until it takes the checkpoint, as much of it as the gate lets pass.
    fn start_taking(&mut self) {
        self.start(self.behind);
        let node = self.group.node(self.behind);
        wait("it takes a checkpoint", || {
            node.info().checkpoints.taking.is_some_and(|taking| taking.taken_bytes >= 512 << 10)
        });
    }

    fn behind(&self) -> &Node {
        self.group.node(self.behind)
    }

    /// The one that was behind has the log up to here, and nothing below the checkpoint.
    fn goes_on(&self, end: Lsn, payloads: &[Vec<u8>]) {
        wait("the log goes on", || self.behind().status().durable >= end);
        assert_eq!(self.vaults[self.behind].held(), Some(self.at));
        let read = read(self.behind());
        // The primary's application may have trimmed again.
        assert!(
            !read.is_empty() && payloads.ends_with(&read),
            "{} records instead of {}",
            read.len(),
            payloads.len()
        );
        assert_eq!(self.behind().info().checkpoints.needed_from, None);
    }
}

fn open(group: &mut Group, at: usize, vault: &Arc<Vault>) {
    let options = group.options(at).checkpoints(Arc::new(Hook(Arc::clone(vault))));
    group.nodes[at] = Some(Node::open_or_create(&group.folder_of(at), options).unwrap());
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything that a member has, while its primary may go on trimming.
fn read(node: &Node) -> Vec<Vec<u8>> {
    'again: loop {
        let Ok(mut reader) = node.read_from(node.info().status.trimmed) else { continue };
        let mut all = Vec::new();
        loop {
            match reader.next() {
                Ok(record) => all.push(record.payload.to_vec()),
                Err(ReadError::AtEnd { .. }) => return all,
                Err(ReadError::Purged { .. }) => continue 'again,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Who gave it, up to where, how long; or who failed, and why.
type Told = Result<(Option<MemberId>, Lsn, u64), (Option<MemberId>, CheckpointError)>;

/// What is told next of a checkpoint.
fn next(events: &mut windlass::NodeEvents) -> Told {
    let until = Instant::now() + PATIENCE;
    loop {
        let event = events.next_blocking(Some(until)).expect("something is told of a checkpoint");
        if let NodeEvent::CheckpointTaken { giver, at, bytes } = event {
            return Ok((giver, at, bytes));
        } else if let NodeEvent::CheckpointFailed { giver, error } = event {
            return Err((giver, error));
        }
    }
}

/// What is told of the next that is taken: whom it meets late, or who has none, may have been asked in vain before.
fn next_taken(events: &mut windlass::NodeEvents) -> Told {
    let until = Instant::now() + PATIENCE;
    loop {
        let told = next(events);
        if told.is_ok() {
            return told;
        }
        assert!(Instant::now() < until, "none is taken: {told:?}");
    }
}

#[test]
fn a_member_beyond_the_retention_is_brought_a_checkpoint_while_the_log_behind_it_is_kept() {
    let mut world = World::new();
    world.vaults[world.backup].giving.open_to(1 << 20);
    world.start_taking();
    let mut events = world.behind().events();
    let giving = world.group.node(world.backup).info().checkpoints.giving;
    let taker = world.group.members[world.behind].id;
    assert!(giving.len() == 1 && giving[0].taker == taker && giving[0].at == world.at, "{giving:?}");
    // The application of the primary goes on releasing: what lies behind the checkpoint is kept all the same.
    let more: Vec<Vec<u8>> = (1000..1064).map(payload).collect();
    let end = append_all(&world.log, more.iter().cloned(), Level::Durable);
    world.log.trim(end).unwrap();
    let last = append_all(&world.log, std::iter::once(b"last".to_vec()), Level::Durable);
    let trimmed = world.log.info().trimmed;
    assert!(trimmed <= world.at, "released up to {trimmed}, the checkpoint ends at {}", world.at);

    world.vaults[world.backup].giving.open_to(u64::MAX);
    let (giver, at) = (Some(world.group.members[world.backup].id), world.at);
    assert_eq!(next(&mut events), Ok((giver, at, CONTENT as u64)));
    world.goes_on(last, &[more, vec![b"last".to_vec()]].concat());
    let (taken, given) = (world.behind().metrics().group, world.group.node(world.backup).metrics().group);
    assert_eq!((taken.checkpoints_taken, taken.checkpoint_taken_bytes), (1, CONTENT as u64));
    assert_eq!((given.checkpoints_given, given.checkpoint_given_bytes), (1, CONTENT as u64));
    // Then it is released.
    wait("it is released", || world.log.info().trimmed > at);
    // And it is a member like any other.
    world.group.kill(world.behind);
    world.start(world.behind);
    world.group.kill(world.backup);
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    wait("it counts for the quorum", || world.behind().status().durable >= end);
}

#[test]
fn a_giver_that_dies_in_the_middle_is_replaced_by_another_member() {
    let mut world = World::new();
    world.vaults[world.backup].giving.open_to(1 << 20);
    world.start_taking();
    let mut events = world.behind().events();
    world.vaults[world.primary].give(world.at);
    world.group.kill(world.backup);
    let giver = world.group.members[world.backup].id;
    let told = next(&mut events);
    let Err((Some(of), CheckpointError::Lost { bytes })) = told else { panic!("{told:?}") };
    assert!(of == giver && (512 << 10..CONTENT as u64).contains(&bytes), "{of} {bytes}");
    let (giver, at) = (Some(world.group.members[world.primary].id), world.at);
    assert_eq!(next_taken(&mut events), Ok((giver, at, CONTENT as u64)));
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
    world.vaults[world.backup].giving.open_to(u64::MAX);
}

#[test]
fn a_primary_that_dies_while_the_checkpoint_comes_from_a_backup_is_no_reason_to_begin_anew() {
    let mut world = World::new();
    // Three must be two without the primary: the one that is behind has to vote.
    world.vaults[world.backup].giving.open_to(1 << 20);
    world.start_taking();
    let mut events = world.behind().events();
    let primary = world.primary;
    world.group.kill(primary);
    world.vaults[world.backup].giving.open_to(u64::MAX);
    let (giver, at) = (Some(world.group.members[world.backup].id), world.at);
    assert_eq!(next(&mut events), Ok((giver, at, CONTENT as u64)));
    let (_, log) = world.group.primary_by(Instant::now() + PATIENCE);
    let end = append_all(&log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
}

#[test]
fn a_taker_that_dies_at_any_step_begins_again_or_goes_on() {
    let mut world = World::new();
    // In the middle of the stream; before what it took has its name; behind that, before its log was thrown away.
    for (stream, finish, is_held) in [(1 << 20, u64::MAX, false), (u64::MAX, 0, false), (u64::MAX, 1, true)] {
        world.vaults[world.backup].giving.open_to(stream);
        let vault = Arc::clone(&world.vaults[world.behind]);
        vault.finishing.open_to(finish);
        world.start_taking();
        if stream == u64::MAX {
            wait("all of it is there", || {
                world
                    .behind()
                    .info()
                    .checkpoints
                    .taking
                    .is_some_and(|taking| taking.taken_bytes == CONTENT as u64)
            });
        }
        if is_held {
            wait("it is finished", || vault.finished.load(Ordering::SeqCst) > 0);
        }
        // What died does nothing more: not even when its gate opens.
        let dead = Vault::new(world.group.folder.path(), &format!("vault-{}", world.behind));
        world.group.kill(world.behind);
        assert_eq!(vault.held().is_some(), is_held);
        if !is_held {
            std::fs::remove_file(vault.folder.join("coming")).unwrap();
        }
        world.vaults[world.behind] = dead;
        if !is_held {
            // The old one's thread fails on its file that is gone.
            vault.finishing.open_to(u64::MAX);
        }
        world.vaults[world.backup].giving.open_to(u64::MAX);
    }
    // It has the checkpoint and an old log: nothing is streamed again.
    for vault in &world.vaults {
        vault.give(Lsn(0));
    }
    world.start(world.behind);
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
    let metrics = world.behind().metrics().group;
    assert_eq!((metrics.checkpoints_taken, metrics.checkpoint_taken_bytes), (0, 0));
}

#[test]
fn an_application_of_another_line_is_brought_a_checkpoint_though_it_reaches_far_enough_kind_52() {
    let mut world = World::new();
    // As far as the group's checkpoint, but of a line that it has given up: by the epoch alone that can be told.
    let epoch = world.log.info().epoch;
    let other = Epoch::new(epoch.counter() + 7, epoch.member());
    world.vaults[world.behind].hold(CheckpointPosition { at: world.at, epoch: other });
    world.start(world.behind);
    let mut events = world.behind().events();
    let giver = Some(world.group.members[world.backup].id);
    assert_eq!(next_taken(&mut events), Ok((giver, world.at, CONTENT as u64)));
    let held = CheckpointPosition { at: world.at, epoch };
    assert_eq!(world.vaults[world.behind].position(), Some(held));
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
}

#[test]
fn a_giver_that_has_none_or_a_wrong_one_says_why_and_another_is_asked() {
    let mut world = World::new();
    let backup = world.group.members[world.backup].id;
    let durable = world.group.node(world.backup).status().durable;
    let wrong = [
        (Lsn(0), NotGiven::Application),
        (Lsn(8192), NotGiven::TooOld { at: Lsn(8192), least: Lsn(0) }),
        (Lsn(durable.0 + 8), NotGiven::NotCommitted { at: Lsn(durable.0 + 8), durable }),
        (Lsn(durable.0 - 8), NotGiven::InsideRecord { at: Lsn(durable.0 - 8) }),
    ];
    world.vaults[world.backup].give(Lsn(0));
    world.start(world.behind);
    let mut events = world.behind().events();
    for (at, expected) in wrong {
        world.vaults[world.backup].give(at);
        let until = Instant::now() + PATIENCE;
        loop {
            let told = next(&mut events);
            let Err((giver, CheckpointError::NotGiven(found))) = told else { panic!("{told:?}") };
            let is_it = match (found, expected) {
                (NotGiven::TooOld { at: found, .. }, NotGiven::TooOld { at, .. }) => found == at,
                (found, expected) => found == expected,
            };
            if giver == Some(backup) && is_it {
                break;
            }
            assert!(Instant::now() < until, "never said: {expected:?}");
        }
    }
    world.vaults[world.backup].give(world.at);
    wait("it is taken", || world.behind().metrics().group.checkpoints_taken == 1);
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
}

/// Its member's log has gone on in the group's line; the LSN is a record's end in both, and committed.
#[test]
fn an_application_that_stayed_in_a_line_that_was_given_up_gives_nothing_of_it_kind_52() {
    let mut world = World::new();
    let backup = world.group.id(world.backup);
    let expected = world.log.info().epoch;
    let others = [
        Epoch::new(expected.counter() + 7, expected.member()),
        Epoch::new(expected.counter(), MemberId(expected.member().0 + 1)),
        Epoch::NONE,
    ];
    world.vaults[world.backup].follow(others[0]);
    world.start(world.behind);
    let mut events = world.behind().events();
    for found in others {
        world.vaults[world.backup].follow(found);
        let other = CheckpointError::NotGiven(NotGiven::OtherLine { at: world.at, expected, found });
        let until = Instant::now() + PATIENCE;
        loop {
            let told = next(&mut events);
            assert!(told.is_err() && Instant::now() < until, "{found}: {told:?}");
            if told == Err((Some(backup), other.clone())) {
                break;
            }
        }
    }
    // It has followed since.
    world.vaults[world.backup].follow(expected);
    wait("it is taken", || world.behind().metrics().group.checkpoints_taken == 1);
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
}

#[test]
fn a_new_member_beyond_the_retention_is_brought_a_checkpoint_and_votes() {
    let mut world = World::new();
    std::fs::remove_dir_all(world.group.folder_of(world.behind)).unwrap();
    let (old, new) = (world.group.id(world.behind), world.group.announce());
    world.vaults.push(Vault::new(world.group.folder.path(), "vault-of-the-new-one"));
    world.behind = new;
    world.start(new);
    let mut events = world.behind().events();
    let (member, address) = (world.group.id(new), Some(world.group.joined[0].address));
    let until = Instant::now() + PATIENCE;
    let change = windlass::engine::Change::Replace { old, new: member, address };
    let made = world.group.node(world.primary).change_blocking(change, Some(until)).unwrap();
    assert_eq!(made.learner().map(|entry| entry.id), Some(member));
    assert_eq!(next_taken(&mut events), Ok((Some(world.group.id(world.backup)), world.at, CONTENT as u64)));
    wait("it votes", || world.behind().members().configuration.voters().any(|voter| voter == member));
    let end = append_all(&world.log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
}

impl World {
    /// All are started again but the backup, which stays away: the one that is behind has to vote and to count, and nothing is known to be committed beyond what is released.
    /// The application of the primary holds this when it starts, and would give a checkpoint up to there.
    fn restarted(mut self, held: CheckpointPosition) -> World {
        let primary = self.primary;
        self.vaults[primary].hold(held);
        self.vaults[primary].give(held.at);
        self.group.kill(self.backup);
        self.group.kill(primary);
        self.start(primary);
        self
    }

    fn held(&self) -> CheckpointPosition {
        CheckpointPosition { at: self.at, epoch: self.log.info().epoch }
    }

    /// Why the member that was the primary gives nothing, once it leads again and says so.
    fn refuses(&mut self) -> NotGiven {
        self.start(self.behind);
        let primary = self.group.id(self.primary);
        let mut events = self.behind().events();
        loop {
            let told = next(&mut events);
            if let Err((Some(giver), CheckpointError::NotGiven(reason))) = &told
                && *giver == primary
            {
                return *reason;
            }
            assert!(told.is_err(), "{told:?}");
        }
    }
}

#[test]
fn a_group_that_needs_a_checkpoint_to_commit_is_given_what_an_application_held_before_the_restart() {
    let world = World::new();
    let held = world.held();
    let vault = Arc::clone(&world.vaults[world.primary]);
    assert_eq!(
        vault.asked.load(Ordering::SeqCst),
        0,
        "a log that began empty has shown nothing before (kind 55)"
    );
    let mut world = world.restarted(held);
    world.start(world.behind);
    let mut events = world.behind().events();
    let (giver, at) = (Some(world.group.id(world.primary)), world.at);
    assert_eq!(next_taken(&mut events), Ok((giver, at, CONTENT as u64)));
    let (_, log) = world.group.primary_by(Instant::now() + PATIENCE);
    let end = append_all(&log, std::iter::once(b"more".to_vec()), Level::Durable);
    world.goes_on(end, &[b"more".to_vec()]);
    assert_eq!(vault.asked.load(Ordering::SeqCst), 1, "at its start");
}

#[test]
fn nothing_beyond_what_an_application_held_before_the_restart_is_given() {
    let world = World::new();
    let held = world.held();
    // Committed, and in the log of the one that starts again; its application had not come so far.
    let end = append_all(&world.log, (1..3).map(payload), Level::Durable);
    let mut world = world.restarted(held);
    world.vaults[world.primary].give(end);
    let not_committed = NotGiven::NotCommitted { at: end, durable: held.at };
    assert_eq!(world.refuses(), not_committed);
    // What it says later is what it may have counted itself.
    world.vaults[world.primary].hold(CheckpointPosition { at: end, ..held });
    world.group.kill(world.behind);
    assert_eq!(world.refuses(), not_committed);
    // And below a record starts, or does not.
    world.vaults[world.primary].give(Lsn(held.at.0 - 8));
    world.group.kill(world.behind);
    assert_eq!(world.refuses(), NotGiven::InsideRecord { at: Lsn(held.at.0 - 8) });
    world.vaults[world.primary].give(held.at);
    wait("it is taken", || world.behind().metrics().group.checkpoints_taken == 1);
}

#[test]
fn what_an_application_held_of_a_line_that_was_given_up_is_not_given_kind_52() {
    let world = World::new();
    let held = world.held();
    // By the epoch alone that can be told: its log is of another one there.
    let other = Epoch::new(held.epoch.counter() + 7, held.epoch.member());
    let mut world = world.restarted(CheckpointPosition { epoch: other, ..held });
    let reason = world.refuses();
    let trimmed = world.group.node(world.primary).status().trimmed;
    assert_eq!(reason, NotGiven::NotCommitted { at: held.at, durable: trimmed });
}
