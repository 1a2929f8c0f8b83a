//! Checkpoints that take their time: what brings one to a member whose log ends below what the group has released (DESIGN.md section 9.10), at the driver's interface,
//! without threads and sockets. A member asks one after the other, backups before the primary; a checkpoint comes in pieces, and at any piece its giver or taker may
//! die, stand still or be cut off; then it begins at its first byte again, at another giver. Meanwhile the primary is reminded to keep its log, and the others trim.
//!
//! Some applications keep older checkpoints, others the newest alone, which a giver that was started again may only know to be committed by what they held then.
//!
//! It draws from a generator of its own.

use std::collections::BTreeMap;

use windlass::engine::{Input, SnapshotNeed, SnapshotState};
use windlass::{CheckpointPosition, Epoch, Lsn, MemberId};

use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::{MS, US};
use crate::random::Random;

/// Either end that has heard nothing of the other for so long is gone.
const SILENCE: u64 = 150 * MS;
/// Where applications keep their newest checkpoint alone, so many of a hundred takers are left with those who have just been started again.
const STRANDED: u64 = 50;
/// What waits looks again after this time.
const AGAIN: u64 = 5 * MS;

/// What is on its way, and how far the applications are that have taken something.
#[derive(Debug)]
pub(super) struct Streams {
    random: Random,
    /// By taker.
    bringing: BTreeMap<usize, Bringing>,
    /// Up to where an application holds a checkpoint durably, and the epoch below that.
    held: BTreeMap<usize, (Lsn, Epoch)>,
    /// The same of what it has read, where applications keep their newest checkpoint alone.
    read: BTreeMap<usize, (Lsn, Epoch)>,
    /// What it held when its member was opened.
    at_start: BTreeMap<usize, CheckpointPosition>,
}

/// A member needs a checkpoint, in this life.
#[derive(Debug)]
struct Bringing {
    life: u64,
    turn: usize,
    stream: Option<Stream>,
    /// Something of one has arrived in this life.
    has_begun: bool,
}

/// A checkpoint that is being taken.
#[derive(Clone, Copy, Debug)]
struct Stream {
    giver: usize,
    giver_life: u64,
    at: Lsn,
    epoch: Epoch,
    pieces_left: u64,
    /// When a piece came last.
    moved_at: u64,
    /// How far the primary had released the log when it began.
    released: Lsn,
    was_still: bool,
}

/// Why there is no checkpoint this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// Nobody can be asked, or who was asked has none that would do.
    Refused,
    /// The path to the giver is cut, or it said nothing for too long.
    Cut,
    GiverDied,
    /// The log goes on without.
    NotNeeded,
    /// The primary has released more than it holds.
    Superseded,
}

impl Streams {
    pub(super) fn of(seed: u64) -> Streams {
        let random = Random::new(seed ^ 0x7374_7265_616d_7321);
        Streams {
            random,
            bringing: BTreeMap::new(),
            held: BTreeMap::new(),
            read: BTreeMap::new(),
            at_start: BTreeMap::new(),
        }
    }
}

impl World {
    /// A member was told that it needs a checkpoint.
    pub(super) fn bring_checkpoint(&mut self, at: usize) {
        let life = self.members[at].life;
        if self.streams.bringing.get(&at).is_some_and(|bringing| bringing.life == life) {
            return;
        }
        self.streams.bringing.insert(at, Bringing { life, turn: 0, stream: None, has_begun: false });
        self.plan(MS, What::Bring { member: at, life });
        self.plan(0, What::Remind { member: at, life });
        if self.setting.newest_alone && self.is_faulty && self.streams.random.percent(STRANDED) {
            self.strand(at);
        }
    }

    /// The others die. Of these only as many come back soon as make a quorum with this one: until it has its checkpoint nothing more is committed, and they know of no more than
    /// what they have released and what their applications held.
    fn strand(&mut self, at: usize) {
        let others: Vec<usize> = self.running().into_iter().filter(|other| *other != at).collect();
        let quorum = self.useful_quorum();
        for (count, other) in others.into_iter().enumerate() {
            self.die(other, true);
            let is_soon = count + 1 < quorum;
            let (from, to) = if is_soon { (MS, 20 * MS) } else { (250 * MS, 500 * MS) };
            let after = self.streams.random.range(from, to);
            self.plan(after, What::Open { member: other });
        }
    }

    /// The primary is told that a checkpoint is on its way, again and again.
    pub(super) fn remind_to_keep(&mut self, at: usize, life: u64) {
        let Some(bringing) = self.streams.bringing.get(&at).filter(|bringing| bringing.life == life) else {
            return;
        };
        let end = bringing.stream.map(|stream| stream.at);
        let member = &mut self.members[at];
        let Some(driver) = member.driver.as_mut().filter(|_| member.life == life) else { return };
        let from = end.or_else(|| driver.snapshot_need().map(|need| need.from));
        if let Some(from) = from.filter(|_| member.paused_until <= self.now) {
            driver.ask(Input::SnapshotComing { at: from });
            self.wake(at);
        }
        let after = 4 * self.setting.timing.suspicion_ns;
        self.plan(after, What::Remind { member: at, life });
    }

    /// The next step of what brings a checkpoint.
    pub(super) fn bring(&mut self, at: usize, life: u64) {
        let Some(mut bringing) = self.streams.bringing.remove(&at) else { return };
        if bringing.life != life {
            // Of a life that is over; there may be another one.
            self.streams.bringing.insert(at, bringing);
            return;
        }
        if self.members[at].life != life {
            if bringing.stream.is_some() {
                self.mark(Mark::StreamTakerDied);
            }
            return;
        }
        if self.members[at].paused_until > self.now {
            if bringing.stream.is_some() {
                self.mark(Mark::StreamPaused);
            }
            let after = self.members[at].paused_until - self.now + MS;
            self.streams.bringing.insert(at, bringing);
            return self.plan(after, What::Bring { member: at, life });
        }
        self.events += 1;
        let after = match bringing.stream {
            None => self.begin_stream(at, &mut bringing),
            Some(_) => self.take_piece(at, &mut bringing),
        };
        let after = match after {
            Ok(after) => after,
            Err(Failure::NotNeeded) => return,
            Err(failure) => {
                self.mark(match failure {
                    Failure::Refused | Failure::Superseded | Failure::NotNeeded => Mark::StreamRefused,
                    Failure::Cut => Mark::StreamCut,
                    Failure::GiverDied => Mark::StreamGiverDied,
                });
                self.say(format_args!("m{at} takes no checkpoint: {failure:?}"));
                (bringing.stream, bringing.turn) = (None, bringing.turn + 1);
                self.streams.random.range(10 * MS, 60 * MS)
            }
        };
        self.streams.bringing.insert(at, bringing);
        self.plan(after, What::Bring { member: at, life });
    }

    fn need(&self, at: usize) -> Result<SnapshotNeed, Failure> {
        let driver = self.members[at].driver.as_ref();
        driver.and_then(|driver| driver.snapshot_need()).ok_or(Failure::NotNeeded)
    }

    /// Whether a member holds, or takes, what its log can go on behind.
    fn is_enough(need: &SnapshotNeed, (at, epoch): (Lsn, Epoch)) -> bool {
        at >= need.from && need.other_line(at, epoch).is_none()
    }

    /// What the application has already, or a giver. After which time to look again.
    fn begin_stream(&mut self, at: usize, bringing: &mut Bringing) -> Result<u64, Failure> {
        let state = self.members[at].driver.as_ref().map(|driver| driver.snapshot_state());
        if state == Some(SnapshotState::Installing) {
            return Ok(AGAIN);
        }
        let need = self.need(at)?;
        let held = self.application_holds(at);
        if let Some(held) = held.filter(|held| Self::is_enough(&need, *held)) {
            // From one that was finished before a crash, or read before damage took it from the log.
            self.mark(Mark::StreamSpared);
            self.install(at, held);
            return Ok(20 * MS);
        }
        let giver = self.giver(at, &need, bringing.turn).ok_or(Failure::Refused)?;
        self.reads_may_fail(giver);
        let opened = self.opened_by(giver, need.from);
        self.reads_held(giver, Mark::GiverUnread);
        let (end, epoch) = opened.ok_or(Failure::Refused)?;
        let checked = self.oracle.may_be_given(self.members[giver].id, end);
        self.check(checked);
        if !Self::is_enough(&need, (end, epoch)) {
            return Err(Failure::Superseded);
        }
        let published = self.members[giver].driver.as_ref().map(|driver| driver.published());
        if published.is_some_and(|published| published < end) {
            self.mark(Mark::StreamOfHeld);
        }
        let pieces = self.streams.random.range(1, 30);
        self.say(format_args!("m{at} takes a checkpoint up to {end} from m{giver} in {pieces} pieces"));
        self.mark(if bringing.has_begun { Mark::StreamAgain } else { Mark::StreamBegun });
        bringing.has_begun = true;
        bringing.stream = Some(Stream {
            giver,
            giver_life: self.members[giver].life,
            at: end,
            epoch,
            pieces_left: pieces,
            moved_at: self.now,
            released: need.from,
            was_still: false,
        });
        if let Some(driver) = &mut self.members[at].driver {
            driver.ask(Input::SnapshotComing { at: end });
            self.wake(at);
        }
        Ok(self.piece_takes(at, giver))
    }

    fn piece_takes(&mut self, taker: usize, giver: usize) -> u64 {
        let slowness = self.members[taker].slowness.max(self.members[giver].slowness).min(10);
        self.streams.random.range(MS / 2, 12 * MS) * slowness
    }

    /// Whether the two can talk.
    fn is_path_cut(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.members[one].id, self.members[other].id);
        self.cut.contains(&(one, other)) || self.cut.contains(&(other, one))
    }

    /// Whom to ask this time: backups before the primary.
    fn giver(&self, taker: usize, need: &SnapshotNeed, turn: usize) -> Option<usize> {
        let may_give =
            |at: &usize| *at != taker && !self.is_path_cut(taker, *at) && !self.members[*at].is_emptied;
        let mut givers: Vec<usize> = self.running().into_iter().filter(may_give).collect();
        givers.sort_by_key(|at| (MemberId(self.members[*at].id) == need.primary, *at));
        let count = givers.len();
        givers.get(turn.checked_rem(count)?).copied()
    }

    /// What a giver's application has: up to where, and the epoch below by the giver's history. `None`: none that would do (as `give::Giver::open`).
    fn opened_by(&self, giver: usize, least: Lsn) -> Option<(Lsn, Epoch)> {
        let member = &self.members[giver];
        let driver = member.driver.as_ref()?;
        let store = driver.store();
        let committed = driver.committed(self.streams.at_start.get(&giver).copied());
        // Restarted, it may know less to be committed than its application has read: one that keeps older ones gives one of these.
        let newest = member.read_to;
        let at = if self.setting.newest_alone { newest } else { newest.min(driver.published()) };
        if at > committed || at < least.max(store.trimmed()) {
            return None;
        }
        let is_an_end = at == driver.published() || at == driver.status().tail;
        if !is_an_end && !store.starts_record(at).ok()? {
            return None;
        }
        Some((at, store.superblock().history.epoch_before(at).unwrap_or(Epoch::NONE)))
    }

    /// A piece arrives, or does not. After which time the next one does.
    fn take_piece(&mut self, at: usize, bringing: &mut Bringing) -> Result<u64, Failure> {
        let Some(mut stream) = bringing.stream else { return Ok(AGAIN) };
        let need = self.need(at)?;
        if !Self::is_enough(&need, (stream.at, stream.epoch)) {
            return Err(Failure::Superseded);
        }
        if self.members[stream.giver].life != stream.giver_life {
            return Err(Failure::GiverDied);
        }
        let is_still = self.members[stream.giver].paused_until > self.now;
        if is_still || self.is_path_cut(at, stream.giver) {
            if is_still && !stream.was_still {
                self.mark(Mark::StreamPaused);
            }
            if self.now - stream.moved_at > SILENCE {
                return Err(Failure::Cut);
            }
            stream.was_still |= is_still;
            bringing.stream = Some(stream);
            return Ok(AGAIN);
        }
        if self.is_faulty && self.streams.random.happens(self.setting.stream_cut) {
            return Err(Failure::Cut);
        }
        stream.moved_at = self.now;
        stream.pieces_left -= 1;
        bringing.stream = Some(stream);
        if stream.pieces_left > 0 {
            return Ok(self.piece_takes(at, stream.giver));
        }
        bringing.stream = None;
        self.finish_stream(at, &stream);
        Ok(20 * MS)
    }

    /// The application holds it durably. Its process may die before its log begins again there, or while it does.
    fn finish_stream(&mut self, at: usize, stream: &Stream) {
        self.mark(Mark::StreamTaken);
        self.say(format_args!("m{at} has taken the checkpoint up to {}", stream.at));
        let primary = self.leaders().first().and_then(|leader| self.members[*leader].status());
        if primary.is_some_and(|primary| primary.trimmed > stream.released) {
            self.mark(Mark::StreamTrimmedMeanwhile);
        }
        self.streams.held.insert(at, (stream.at, stream.epoch));
        let dies = self.is_faulty && self.streams.random.happens(self.setting.stream_deaths);
        if dies && self.streams.random.percent(50) {
            self.mark(Mark::StreamDiedFinished);
            return self.die_for_a_while(at, true);
        }
        self.install(at, (stream.at, stream.epoch));
        if dies {
            let (life, after) = (self.members[at].life, self.streams.random.range(20 * US, 200 * US));
            self.plan(after, What::DieInReset { member: at, life });
        }
    }

    fn install(&mut self, at: usize, (end, epoch): (Lsn, Epoch)) {
        let life = self.members[at].life;
        self.snapshot_installed(at, life, end, epoch);
    }

    /// A member dies where its log is about to begin again, if it still is.
    pub(super) fn die_in_reset(&mut self, at: usize, life: u64) {
        if self.members[at].life != life {
            return;
        }
        let state = self.members[at].driver.as_ref().map(|driver| driver.snapshot_state());
        if state == Some(SnapshotState::Installing) {
            self.mark(Mark::StreamDiedInReset);
            let has_power = self.streams.random.percent(50) || !self.may_lose_memory(at);
            self.die_for_a_while(at, has_power);
        }
    }

    /// A member's disk is lost, and what its application held with it.
    pub(super) fn forget_checkpoint(&mut self, at: usize) {
        self.streams.held.remove(&at);
        self.streams.read.remove(&at);
    }

    /// A member's application has read on, and holds that durably.
    pub(super) fn holds(&mut self, at: usize) {
        let member = &self.members[at];
        let read = self.streams.read.get(&at).map_or(Lsn(0), |(read, _)| *read);
        let Some(driver) = member.driver.as_ref().filter(|_| self.setting.newest_alone) else { return };
        if member.read_to > read {
            let epoch = driver.store().superblock().history.epoch_before(member.read_to);
            let epoch = epoch.unwrap_or(Epoch::NONE);
            self.streams.read.insert(at, (member.read_to, epoch));
        }
    }

    /// What an application holds durably: what it has taken, or read beyond that.
    fn application_holds(&self, at: usize) -> Option<(Lsn, Epoch)> {
        let (taken, read) = (self.streams.held.get(&at), self.streams.read.get(&at));
        taken.into_iter().chain(read).max_by_key(|(end, _)| *end).copied()
    }

    /// A member is open, and has shown its application nothing yet: it is asked what it holds, unless the log is empty (as `committed::AtStart`).
    pub(super) fn application_starts(&mut self, at: usize) {
        self.holds(at);
        let driver = self.members[at].driver.as_ref();
        let is_empty = driver.is_none_or(|driver| driver.store().superblock().history.last().is_none());
        let held = self.application_holds(at).filter(|_| self.setting.newest_alone && !is_empty);
        self.streams.at_start.remove(&at);
        if let Some((held, epoch)) = held {
            self.streams.at_start.insert(at, CheckpointPosition { at: held, epoch });
        }
    }
}
