//! A member's lives: opening, running, dying, and the disk that outlives them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use windlass::driver::{
    Driver, DriverOptions, Parts, committed_configuration, founding_bytes, note_configuration,
};
use windlass::engine::{Config, Configuration, Identity, Status};
use windlass::{Level, Log, LogId, Lsn, MemberId};
use windlass_log::{EpochStart, Geometry, Superblock};
use windlass_store::disk::Errno;
use windlass_store::disk::testing::{Call, Survive, TestDisk};
use windlass_store::{Configure, Founding, Opened, Options, Store, Surroundings};

use super::phase::Phase;
use super::readers::{Application, Subscriber};
use super::rotten::Rotten;
use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::{Device, MS, SimFabric};
use crate::harms::Whole;
use crate::oracle::older::is_refused;
use crate::oracle::{Floors, Violation, liveness};
use crate::parts::{LANES, Lines, SimClock, SimControl, SimExecutor};
use crate::random::Random;
use crate::rows;
use crate::setting::{SEGMENT_BYTES, Setting, Strike};

pub(super) type SimDriver = Driver<SimFabric, TestDisk, SimClock, SimControl, SimExecutor>;

/// One member.
pub(super) struct Member {
    pub(super) id: u8,
    pub(super) disk: TestDisk,
    pub(super) driver: Option<SimDriver>,
    /// While it is primary.
    pub(super) log: Option<Log>,
    pub(super) control: SimControl,
    pub(super) lines: Lines,
    pub(super) clock: SimClock,
    pub(super) identity: Option<Identity>,
    /// Counts openings and deaths: what was planned for an earlier one does not happen.
    pub(super) life: u64,
    /// When its driver is to take its next turn.
    pub(super) step_at: u64,
    pub(super) paused_until: u64,
    /// How many times as long everything here takes, and everything of its disk.
    pub(super) slowness: u64,
    pub(super) disk_slowness: u64,
    pub(super) lane_free_at: [u64; LANES.len()],
    pub(super) phase: Phase,
    pub(super) before: Option<Status>,
    /// Published as durable and looked at up to here.
    pub(super) published: Lsn,
    pub(super) is_publish_due: bool,
    /// How far it was done with its segments when that was looked at last.
    pub(super) cold_to: u64,
    pub(super) application: Option<Application>,
    /// While it is primary.
    pub(super) subscriber: Option<Subscriber>,
    pub(super) read_to: Lsn,
    pub(super) floors: Floors,
    /// Its memory was lost, and it may not have caught up since.
    pub(super) has_lost_memory: bool,
    lost_power: bool,
    /// The superblock's file after the opening before.
    older: Option<Vec<u8>>,
    /// Its disk was lost: it stays out.
    pub(super) is_emptied: bool,
    /// It belongs to the group, or did: it runs.
    pub(super) has_joined: bool,
    /// Its disk is lost, and it was to go: it is never started again.
    pub(super) is_retired: bool,
    /// The number of its newest configuration, as it was told, and before its last turn.
    pub(super) configured: u64,
    pub(super) configured_before: u64,
    /// The number of the newest one that its superblock knows to be committed.
    pub(super) sure_of: u64,
    /// A client has kept a reservation of this process for ever.
    pub(super) has_leaked: bool,
    /// It was told in this life that it has left the group.
    pub(super) has_left: bool,
    /// A dead process's memory may be held still, by whoever never gave it back: it is this machine's until it loses power.
    pub(super) has_ghosts: bool,
    /// Where synced data is not what it was, until it was had again or released.
    pub(super) rot: Option<Lsn>,
    /// What the sector there held, and what it holds since.
    rotten: Option<Rotten>,
    /// It knows.
    pub(super) is_rot_found: bool,
    /// Trimmed and persisted by its superblock when it died.
    pub(super) provable: (Lsn, Lsn),
    /// Persisted and looked at up to here.
    pub(super) medium_checked: Lsn,
    /// Where images of segments are, if the device needs them.
    pub(super) staging: Option<TestDisk>,
    /// It has led or followed, by its own word: before, it says nothing of a log (kind 55).
    pub(super) has_begun: bool,
    /// The next opening finds a read error.
    pub(super) read_fails: bool,
    /// Scrubs of this life that met a read error.
    pub(super) scrubs_failed: u64,
    /// The superblock was not being written when it died: both copies are whole.
    pub(super) has_whole_superblock: bool,
    boot: u64,
    pub(super) incarnation: u64,
    offset_ns: u64,
    drift: i64,
}

fn options() -> Options {
    let configure = Some(Configure(note_configuration));
    Options { retention_bytes: 16 * SEGMENT_BYTES, segments_ahead: 2, configure, ..Options::default() }
}

impl Member {
    pub(super) fn new(id: u8, random: &mut Random, setting: &Setting) -> Member {
        let incarnation = 100 + u64::from(id);
        let drift = random.range(0, 2 * setting.drift_millionths + 1);
        let drift = i64::try_from(drift).unwrap_or(0) - i64::try_from(setting.drift_millionths).unwrap_or(0);
        Member {
            id,
            disk: made(id, incarnation, &setting.founding(id)),
            driver: None,
            log: None,
            control: SimControl::default(),
            lines: Lines::default(),
            clock: SimClock::default(),
            identity: None,
            life: 0,
            step_at: u64::MAX,
            paused_until: 0,
            slowness: 1,
            disk_slowness: 1,
            lane_free_at: [0; LANES.len()],
            phase: Phase::Idle,
            before: None,
            published: Lsn(0),
            is_publish_due: false,
            cold_to: 0,
            application: None,
            subscriber: None,
            read_to: Lsn(0),
            floors: Floors::default(),
            has_lost_memory: true,
            lost_power: false,
            older: None,
            is_emptied: false,
            has_joined: id < setting.members,
            is_retired: false,
            configured: 0,
            configured_before: 0,
            sure_of: 0,
            has_leaked: false,
            has_left: false,
            has_ghosts: false,
            rot: None,
            rotten: None,
            is_rot_found: false,
            provable: (Lsn(0), Lsn(0)),
            medium_checked: Lsn(0),
            staging: (setting.devices[usize::from(id)] == Device::Staged).then(staging),
            has_begun: false,
            read_fails: false,
            scrubs_failed: 0,
            has_whole_superblock: false,
            boot: 1,
            incarnation,
            offset_ns: 1_000_000 * MS + random.range(0, 1_000_000 * MS),
            drift,
        }
    }

    /// What its disk has really done of what goes wrong with one.
    pub(super) fn happened(&self) -> [(Mark, u64); 4] {
        let happened = self.disk.happened();
        [
            (Mark::ReadShort, happened.reads_short),
            (Mark::FlushFailed, happened.flushes_failed),
            (Mark::DiskFull, happened.full),
            (Mark::WrittenBack, happened.written_back),
        ]
    }

    /// This member's clock at a time of the world: it runs fast or slow.
    pub(super) fn local(&self, now: u64) -> u64 {
        let skewed = i128::from(now) + i128::from(now) * i128::from(self.drift) / 1_000_000;
        self.offset_ns + u64::try_from(skewed).unwrap_or(0)
    }

    /// From now on this clock runs at another rate, and never steps.
    pub(super) fn set_rate(&mut self, now: u64, drift: i64) {
        let told = self.local(now);
        self.drift = drift;
        let told_so = self.local(now);
        self.offset_ns = (self.offset_ns + told).saturating_sub(told_so);
    }

    /// The time of the world until this clock has gone on by `local_ns`, not less.
    pub(super) fn until(&self, local_ns: u64) -> u64 {
        let scaled = i128::from(local_ns) * 1_000_000 / i128::from(1_000_000 + self.drift);
        u64::try_from(scaled).unwrap_or(0) + 1
    }

    /// Whether its engine has stopped until it is opened again.
    pub(super) fn is_stopped(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.status().stopped.is_some())
    }

    pub(super) fn status(&self) -> Option<Status> {
        self.driver.as_ref().map(Driver::status)
    }

    /// Whether a majority can't count on what it has: its disk or memory was lost, or some of what was synced.
    pub(super) fn lacks_some(&self, memory_counts: bool) -> bool {
        self.is_emptied || memory_counts && self.has_lost_memory || self.rot.is_some() || !self.has_begun
    }

    /// A file and a place in it, at or above `least`, that were synced and are known to have been; of a member that runs only in segments that it is done with.
    pub(super) fn rottable(&mut self, pick: u64, least: Lsn) -> Option<(String, Lsn)> {
        let provable = (self.provable.0.0, self.provable.1.0);
        let (from, to) = if self.driver.is_some() { self.cold()? } else { provable };
        let from = from.max(least.0);
        let place = (from + pick.checked_rem(to.checked_sub(from)?)?) & !7;
        let is_header = place % SEGMENT_BYTES < 4096;
        // A whole sector inside of what was synced.
        let sector = sector_of(Lsn(place));
        let is_inside = sector.start >= from && sector.end <= to;
        let name = format!("{:016x}.segment", place / SEGMENT_BYTES * SEGMENT_BYTES);
        (!is_header && is_inside && self.disk.is_durable(&name, 0..512) == Some(true))
            .then_some((name, Lsn(place)))
    }

    /// Whole segments that a running member is done with, and knows to be on its medium.
    pub(super) fn cold(&self) -> Option<(u64, u64)> {
        let superblock = self.driver.as_ref()?.store().superblock();
        let cold = superblock.persisted.0 / SEGMENT_BYTES * SEGMENT_BYTES;
        Some((superblock.trimmed.0.next_multiple_of(SEGMENT_BYTES), cold))
    }

    /// Rots: `change` is what becomes of the sector that holds `place`, in the file of that name.
    pub(super) fn rot_at(&mut self, name: &str, place: Lsn, change: impl FnOnce(&TestDisk)) {
        let start = place.0 % SEGMENT_BYTES / 512 * 512;
        let was = self.disk.live_bytes(name, start..start + 512).unwrap_or_default();
        change(&self.disk);
        let is = self.disk.live_bytes(name, start..start + 512).unwrap_or_default();
        (self.rot, self.is_rot_found) = (Some(place), false);
        self.rotten = Some(Rotten { name: name.to_owned(), start, was, is });
    }

    /// What this member may have written to a file there: what is there, and that with what has rotted put back. What was written over rot may look like it, a pad like a
    /// sector that was lost. `None` if there is no such file.
    pub(super) fn written(&self, name: &str, range: std::ops::Range<u64>) -> Option<Vec<Vec<u8>>> {
        let start = range.start;
        let bytes = self.disk.live_bytes(name, range)?;
        Some(match &self.rotten {
            Some(rotten) => rotten.versions(name, start, bytes),
            None => vec![bytes],
        })
    }

    /// Whether its medium holds one of these bytes of a file, also where they have rotted since without any harm: in what no record's checksum covers.
    fn holds(&self, name: &str, start: u64, versions: &[Vec<u8>]) -> bool {
        let is_as_rotten = |rotten: &Rotten, bytes: &[u8]| {
            let mut redone = bytes.to_vec();
            rotten.redo(name, start, &mut redone);
            self.disk.holds(name, start, &redone)
        };
        versions.iter().any(|bytes| {
            self.disk.holds(name, start, bytes)
                || self.rotten.as_ref().is_some_and(|rotten| is_as_rotten(rotten, bytes))
        })
    }

    /// What was released is not missed, once the member knows, also after its next opening; what was had again is whole. Whether it is that since now.
    pub(super) fn forget_rot(&mut self) -> bool {
        let (Some(driver), Some(place)) = (&self.driver, self.rot) else { return false };
        let (store, status) = (driver.store(), driver.status());
        let counts = !status.damaged && store.superblock().acknowledged <= status.tail;
        match rot_is(place, counts, store.trimmed()) {
            RotIs::Missed => return false,
            RotIs::Released => {
                self.rot = None;
                return false;
            }
            RotIs::WhatReads => {}
        }
        // Cut off with what was never committed, had again, or whole all the same: it changed nothing, or was written over before anybody met it.
        let mut reader = store.reader(store.trimmed());
        while let Ok(windlass_store::Read::Record(_)) = reader.next(status.tail) {}
        if reader.at() < status.tail {
            return false;
        }
        self.rot = None;
        self.is_rot_found
    }

    fn around(&self) -> Surroundings {
        let mut boot_id = [7; 16];
        boot_id[..8].copy_from_slice(&self.boot.to_le_bytes());
        Surroundings { boot_id, incarnation: self.incarnation }
    }
}

/// What there is to know of rot without a look at the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RotIs {
    /// Its member counts for nobody.
    Missed,
    /// Released, and so missed by nobody.
    Released,
    /// Gone if the log reads whole.
    WhatReads,
}

/// What is so of rot at `place`, in a log that is trimmed there; whether its member `counts`, by its own word and its superblock's. Until a primary has told it what it
/// lacks, it counts for nobody, also where all of that was trimmed; and as long as its superblock does not say that it counts again, its next opening finds it damaged.
fn rot_is(place: Lsn, counts: bool, trimmed: Lsn) -> RotIs {
    if !counts {
        RotIs::Missed
    } else if sector_of(place).end <= trimmed.0 {
        RotIs::Released
    } else {
        RotIs::WhatReads
    }
}

/// What rots with a byte there: a medium loses no less. So of a sector that is released in part the rest is still rotten.
pub(super) fn sector_of(place: Lsn) -> std::ops::Range<u64> {
    let start = place.0 / 512 * 512;
    start..start + 512
}

/// An empty folder on a memory filesystem.
fn staging() -> TestDisk {
    let disk = TestDisk::new();
    disk.set_filesystem(0x0102_1994);
    disk
}

/// A new member's folder.
fn made(id: u8, incarnation: u64, configuration: &Configuration) -> TestDisk {
    let disk = TestDisk::new();
    let founding = Founding {
        log_id: LogId([5; 16]),
        member: MemberId(id),
        incarnation,
        segment_bytes: SEGMENT_BYTES,
        epoch: None,
        configuration: founding_bytes(configuration),
    };
    let around = Surroundings { boot_id: [7; 16], incarnation };
    drop(Store::create(disk.clone(), &founding, &around, &options()).expect("an empty disk takes a log"));
    disk
}

/// Kind 11: with the superblock that it had after the opening before, whose promise is below an epoch of its records, a member's log does not open. Tried on a copy, so that the run is the same without it.
/// Whether there was something to try.
fn refuses_older(member: &Member, now: &Superblock, opened: &Opened) -> Result<bool, Violation> {
    let Some(bytes) = &member.older else { return Ok(false) };
    let Ok(older) = Superblock::decode(&bytes[..64 << 10]) else { return Ok(false) };
    let is_newer = |entry: &&EpochStart| entry.epoch > older.promised;
    let Some(first) = now.history.entries().iter().find(is_newer) else { return Ok(false) };
    // Where an opening begins to read.
    let read_from = older.persisted.0 / SEGMENT_BYTES * SEGMENT_BYTES;
    let first_read = first.start.max(now.trimmed).max(Lsn(read_from + windlass_log::SEGMENT_HEADER_BYTES));
    let is_there = first_read < opened.tail;
    if !is_there || !opened.damage.is_empty() || member.rot.is_some() {
        return Ok(false);
    }
    let copy = member.disk.copied_in_place();
    copy.write_file("superblock", bytes);
    let opened = Store::open(copy, &member.around(), &options()).map(|(_, opened)| opened);
    is_refused(member.id, older.promised, first, opened).map(|()| true)
}

impl World {
    /// A member's process starts.
    pub(super) fn open(&mut self, at: usize) {
        if self.members[at].driver.is_some() || self.members[at].is_retired {
            return;
        }
        self.members[at].disk.cut_reads(self.setting.reads_cut);
        let stirs = self.is_faulty && self.setting.writes_back;
        let stirred_by = stirs.then(|| self.random.number());
        self.members[at].disk.write_back_between(stirred_by);
        let breaks_off =
            self.is_faulty && self.has(Strike::Kill) && self.random.percent(self.setting.openings_cut);
        let stranger = (at + 1) % self.members.len();
        let harm = self.harms.next();
        let harm = harm.map(|harm| (harm, self.members[stranger].disk.read_file("superblock")));
        let member = &mut self.members[at];
        if breaks_off {
            let steps = member.disk.steps();
            member.disk.stop_at(steps + self.random.range(0, 30));
        }
        if std::mem::take(&mut member.read_fails) {
            member.disk.fail(Call::Read, self.random.range(0, 6), Errno::IO);
        }
        let read_errors = member.disk.happened().reads_failed;
        let opened = Store::open(member.disk.clone(), &member.around(), &options());
        if member.disk.happened().reads_failed > read_errors {
            self.coverage.add(Mark::ReadFailed);
        }
        let (store, opened) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.opening_failed(at, &error.to_string()),
        };
        rows::opened(&opened, |mark| self.coverage.add(mark));
        if let Err(error) = store.begin() {
            drop(store);
            return self.opening_failed(at, &error.to_string());
        }
        member.disk.stop_at(u64::MAX);
        (member.has_leaked, member.has_left, member.scrubs_failed) = (false, false, 0);
        let superblock = store.superblock();
        member.life += 1;
        let identity = Identity {
            incarnation: superblock.incarnation,
            opening: superblock.generation,
            nonce: self.random.number(),
        };
        let tail = opened.tail;
        let harmed = match harm {
            Some((harm, stranger)) if opened.damage.is_empty() && member.rot.is_none() => {
                let (disk, around) = (&member.disk, member.around());
                let log = Whole { disk, around, options: options(), superblock: &superblock, tail, stranger };
                harm.tried(&log, |mark| self.coverage.add(mark))
            }
            Some(_) | None => Ok(()),
        };
        let older = refuses_older(member, &superblock, &opened);
        member.older = Some(member.disk.read_file("superblock"));
        let floors = if member.rot.is_some() { Floors::default() } else { member.floors };
        let checked = floors.opened(member.id, tail, &superblock.history, member.lost_power).and_then(|()| {
            let is_same = !member.is_emptied;
            if is_same { self.oracle.opened_with(member.id, superblock.promised) } else { Ok(()) }
        });
        member.lost_power = false;
        member.floors.forget();
        member.clock.set(member.local(self.now));
        member.control = SimControl::default();
        member.identity = Some(identity);
        member.step_at = u64::MAX;
        member.lane_free_at = [self.now; LANES.len()];
        member.phase = Phase::Idle;
        member.before = None;
        member.published = superblock.trimmed;
        member.medium_checked = superblock.trimmed;
        let device = self.setting.devices[at];
        let opened_as = match device {
            Device::Any => None,
            Device::Pages => Some(Mark::PagesOpened),
            Device::Staged => Some(Mark::StagedOpened),
        };
        let parts = Parts {
            fabric: self.fabric.fabric_of(member.id, device),
            store: Arc::new(store),
            opened,
            clock: member.clock.clone(),
            control: member.control.clone(),
            executor: SimExecutor::default(),
            staging: member.staging.clone(),
        };
        let config = Config {
            me: MemberId(member.id),
            identity,
            founding: self.setting.founding(member.id),
            geometry: Geometry::new(SEGMENT_BYTES).expect("a power of two"),
            replicated_allowed: self.setting.replicated_allowed,
            seed: self.random.number(),
            timing: self.setting.timing,
            limits: self.setting.limits,
        };
        let options = DriverOptions {
            config,
            level: Level::Durable,
            retention_bytes: self.setting.retention_bytes,
            reservation_limit: Duration::from_nanos(self.setting.reservation_ns),
            full_disk_limit: Duration::from_millis(500),
            scrub_bytes_per_second: 16 << 20,
            logger: if self.trace.is_kept() {
                member.lines.logger()
            } else {
                slog::Logger::root(slog::Discard, slog::o!())
            },
        };
        let driver = match Driver::new(parts, options) {
            Ok(driver) => driver,
            Err(error) => return self.opening_failed(at, &error.to_string()),
        };
        member.read_to = member.read_to.max(superblock.trimmed);
        member.application = Application::at(&driver, member.read_to);
        member.configured = driver.configuration().0.number();
        member.configured_before = member.configured;
        let written = committed_configuration(&superblock).unwrap_or(0);
        let (newest, is_committed) = driver.configuration();
        let known = self.oracle.has_in_writing(member.id, written, true);
        let counts = self.oracle.counts_with(member.id, newest.number(), is_committed);
        let checked = checked.and(known).and(counts);
        member.driver = Some(driver);
        if let Some(mark) = opened_as {
            self.mark(mark);
        }
        self.check(checked);
        self.check(harmed);
        match older {
            Ok(false) => {}
            Ok(true) => self.mark(Mark::OlderSuperblock),
            Err(wrong) => self.check(Err(wrong)),
        }
        self.say(format_args!("m{at} opens with a log up to {tail}"));
        self.application_starts(at);
        self.joined(at);
        self.wake(at);
    }

    fn opening_failed(&mut self, at: usize, why: &str) {
        self.say(format_args!("m{at} does not open: {why}"));
        let member = &self.members[at];
        let was_cut_short = member.disk.stopped();
        let loses_power = was_cut_short && self.random.percent(50) && self.may_lose_memory(at);
        if was_cut_short {
            self.mark(Mark::CrashInRecovery);
        }
        let survive = self.survive();
        let member = &mut self.members[at];
        member.life += 1;
        if loses_power {
            member.disk = member.disk.after_power_loss(survive);
            member.staging = member.staging.is_some().then(staging);
            member.boot += 1;
            member.has_ghosts = false;
            member.has_lost_memory = true;
            member.lost_power = true;
            self.lost_power(survive);
        } else {
            member.disk = member.disk.after_kill();
            member.staging = member.staging.as_ref().map(TestDisk::after_kill);
        }
        if !self.is_faulty && !was_cut_short {
            self.check(liveness::does_not_open(at, why));
        }
        let after = self.random.range(MS, 20 * MS);
        self.plan(after, What::Open { member: at });
    }

    /// What a loss of power leaves of what was not flushed.
    fn survive(&mut self) -> Survive {
        match self.random.range(0, 6) {
            0 => Survive::Nothing,
            1 => Survive::Everything,
            _ => Survive::Seeded(self.random.number()),
        }
    }

    fn lost_power(&mut self, survive: Survive) {
        self.mark(Mark::PowerLost);
        self.mark(match survive {
            Survive::Nothing => Mark::UnflushedLost,
            Survive::Everything => Mark::UnflushedKept,
            Survive::Seeded(_) | Survive::By { .. } | Survive::Chosen { .. } => Mark::UnflushedTorn,
        });
    }

    /// A member's process dies; without power what was not flushed may be gone.
    pub(super) fn die(&mut self, at: usize, has_power: bool) {
        if self.members[at].driver.is_none() {
            return;
        }
        self.publish(at);
        self.scrubs_told(at);
        let phase = self.members[at].phase;
        let work = self.random.range(0, 8);
        let survive = self.survive();
        let member = &mut self.members[at];
        member.life += 1;
        member.has_ghosts |= member.has_leaked || self.is_holding;
        (member.log, member.application, member.subscriber) = (None, None, None);
        member.has_whole_superblock = true;
        let mut was_at_work = false;
        let mut under_way = Vec::new();
        if let Some(mut driver) = member.driver.take() {
            let superblock = driver.store().superblock();
            member.provable = (superblock.trimmed, superblock.persisted);
            member.sure_of = committed_configuration(&superblock).unwrap_or(0);
            let executor = driver.executor_mut();
            under_way = (0..LANES.len()).filter_map(|lane| executor.next(lane)).collect();
            member.has_whole_superblock = !executor.is_busy(1);
            if work < self.setting.work_cut {
                // The disk was in the middle of something.
                let steps = member.disk.steps();
                member.disk.stop_at(steps + work);
                for lane in 0..LANES.len() {
                    if executor.is_busy(lane) {
                        was_at_work |= !member.disk.stopped();
                        executor.work(lane);
                    }
                }
                was_at_work &= member.disk.stopped();
            }
            drop(driver);
        }
        let is_in_update = !member.has_whole_superblock;
        if has_power {
            member.disk = member.disk.after_kill();
            member.staging = member.staging.as_ref().map(TestDisk::after_kill);
        } else {
            member.disk = member.disk.after_power_loss(survive);
            member.staging = member.staging.is_some().then(staging);
            member.boot += 1;
            member.has_ghosts = false;
            member.has_lost_memory = true;
            member.lost_power = true;
        }
        if has_power {
            self.mark(Mark::Killed);
        } else {
            self.lost_power(survive);
        }
        if was_at_work {
            self.mark(if is_in_update { Mark::KilledInUpdate } else { Mark::KilledInWork });
        }
        self.mark(phase.mark(has_power));
        for mark in under_way.into_iter().filter_map(|work| phase.mark_with(work)) {
            self.mark(mark);
        }
        self.say(format_args!("m{at} dies, {phase:?}{}", if has_power { "" } else { ", without power" }));
        self.left(at);
        self.leaves_in_writing(at);
        self.settle_pending();
    }

    /// A member's process ends as it should: its log is closed.
    pub(super) fn stop(&mut self, at: usize) {
        if self.members[at].driver.as_ref().is_none_or(|driver| !driver.may_end()) {
            return;
        }
        self.publish(at);
        self.scrubs_told(at);
        let member = &mut self.members[at];
        member.life += 1;
        member.has_ghosts |= member.has_leaked || self.is_holding;
        (member.log, member.application, member.subscriber) = (None, None, None);
        member.has_whole_superblock = true;
        if let Some(mut driver) = member.driver.take() {
            let executor = driver.executor_mut();
            for lane in 0..3 {
                while executor.is_busy(lane) {
                    executor.work(lane);
                }
            }
            let ended = driver.end();
            let store = Arc::clone(driver.store());
            drop(driver);
            // What fails leaves a folder as after a crash.
            self.reads_may_fail(at);
            let is_closed = ended.is_clean && store.close(ended.tail).is_ok();
            self.reads_held(at, Mark::CloseUnread);
            if is_closed {
                self.mark(Mark::StoppedCleanly);
            }
            let superblock = store.superblock();
            self.members[at].provable = (superblock.trimmed, superblock.persisted);
            self.members[at].sure_of = committed_configuration(&superblock).unwrap_or(0);
        }
        let member = &mut self.members[at];
        member.disk = member.disk.after_kill();
        member.staging = member.staging.as_ref().map(TestDisk::after_kill);
        self.say(format_args!("m{at} is stopped"));
        self.left(at);
        self.leaves_in_writing(at);
        self.settle_pending();
        let after = self.random.range(MS, 100 * MS);
        self.plan(after, What::Open { member: at });
    }

    /// A life has ended: what its superblock knew to be committed, its next one does, too.
    fn leaves_in_writing(&mut self, at: usize) {
        let member = &self.members[at];
        let checked = self.oracle.has_in_writing(member.id, member.sure_of, false);
        self.check(checked);
    }

    /// What a member calls persisted and was not looked at: from where and up to where.
    pub(crate) fn newly_persisted(&mut self, at: usize) -> Option<(Lsn, Lsn)> {
        let member = &mut self.members[at];
        let status = member.before?;
        let (from, to) = (member.medium_checked.max(status.trimmed), status.persisted.0);
        member.medium_checked = to;
        (from < to).then_some((from, to))
    }

    /// What a member may have written to a file there, whatever has rotted since; `None` if there is no such file.
    pub(crate) fn written(&self, at: usize, name: &str, range: std::ops::Range<u64>) -> Option<Vec<Vec<u8>>> {
        self.members[at].written(name, range)
    }

    /// A member's disk.
    pub(crate) fn disk(&self, at: usize) -> &TestDisk {
        &self.members[at].disk
    }

    /// Whether a member's medium holds one of these bytes of a file, or may lack what it once held below this LSN: it was lost, or has lied, or the member has released
    /// that, as it does only with what is durable.
    pub(crate) fn has_held(&self, at: usize, end: Lsn, name: &str, start: u64, versions: &[Vec<u8>]) -> bool {
        let member = &self.members[at];
        let trimmed = member.driver.as_ref().map_or(member.provable.0, |driver| driver.store().trimmed());
        let is_excused = member.is_emptied || member.rot.is_some() || end <= trimmed;
        is_excused || member.holds(name, start, versions)
    }

    pub(super) fn given_away(&self, at: usize) -> Option<String> {
        let member = &self.members[at];
        if member.has_leaked || member.has_ghosts { None } else { member.disk.given_away() }
    }

    /// Whether a member may lose its memory now, within what the group's levels promise.
    pub(super) fn may_lose_memory(&mut self, at: usize) -> bool {
        if !self.setting.replicated_allowed {
            return true;
        }
        self.refresh();
        self.bears(at, |member| member.has_lost_memory || member.is_emptied || member.rot.is_some())
    }

    /// Looks who has caught up, and what of the rot was released.
    pub(super) fn refresh(&mut self) {
        let mut repaired = 0;
        for member in &mut self.members {
            repaired += u64::from(member.forget_rot());
            let Some(superblock) = member.driver.as_ref().map(|driver| driver.store().superblock()) else {
                continue;
            };
            member.sure_of = committed_configuration(&superblock).unwrap_or(0);
            member.has_lost_memory &= member.is_emptied || !superblock.caught_up;
        }
        self.coverage.merge([(Mark::DamageRepaired, repaired)]);
    }

    /// A member that is down comes back with an empty disk.
    pub(super) fn empty_disk(&mut self, at: usize) {
        let incarnation = self.random.number() | 1;
        self.forget_checkpoint(at);
        self.coverage.merge(self.members[at].happened());
        let member = &mut self.members[at];
        member.incarnation = incarnation;
        member.disk = made(member.id, incarnation, &self.setting.founding(member.id));
        member.staging = member.staging.is_some().then(staging);
        member.is_emptied = true;
        member.older = None;
        member.sure_of = 0;
        (member.rot, member.rotten) = (None, None);
        member.has_lost_memory = true;
        member.floors.forget();
        self.oracle.forgets_configurations(member.id);
        member.read_to = Lsn(0);
    }

    /// A member that is down has one of its superblock's copies damaged.
    pub(super) fn damage_superblock(&mut self, at: usize) -> bool {
        let pick = self.random.number();
        let member = &self.members[at];
        if member.driver.is_some() || !member.has_whole_superblock {
            return false;
        }
        let copy = (64 << 10) * (pick & 1);
        let mask = u8::try_from(1 + (pick >> 8) % 255).unwrap_or(1);
        member.disk.flip("superblock", copy + (pick >> 16) % 152, mask);
        true
    }

    /// The members that do something now.
    pub(super) fn running(&self) -> VecDeque<usize> {
        (0..self.members.len()).filter(|at| self.members[*at].driver.is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds 2121 and 8579: a member that does not count yet is found damaged again.
    #[test]
    fn rot_is_missed_until_its_member_counts_again_also_where_it_was_released() {
        let of = |counts, trimmed| rot_is(Lsn(5_000), counts, Lsn(trimmed));
        assert_eq!(of(true, 5_120), RotIs::Released);
        assert_eq!(of(true, 5_112), RotIs::WhatReads, "a part of the sector is there still");
        assert_eq!(of(true, 4_096), RotIs::WhatReads);
        assert_eq!(of(false, 6_000), RotIs::Missed);
    }

    #[test]
    fn rot_takes_the_whole_sector_of_its_place() {
        assert_eq!(sector_of(Lsn(4_096 + 511)), 4_096..4_608);
        assert_eq!(sector_of(Lsn(4_608)), 4_608..5_120);
    }

    #[test]
    fn what_was_written_is_told_from_what_has_rotted_since_and_from_what_was_written_over_it() {
        let rotten = Rotten { name: "one".to_owned(), start: 512, was: vec![1; 512], is: vec![2; 512] };
        let seen = |name: &str, start: u64, byte: u8, bytes: usize| {
            let mut found = vec![byte; bytes];
            rotten.undo(name, start, &mut found);
            found
        };
        assert_eq!(seen("one", 512, 2, 512), [1; 512]);
        // In part, at either end.
        assert_eq!(seen("one", 1_000, 2, 100), [vec![1; 24], vec![2; 76]].concat());
        assert_eq!(seen("one", 500, 2, 100), [vec![2; 12], vec![1; 88]].concat());
        // Somewhere else, another file, written anew.
        for (name, start, byte) in [("one", 0, 2), ("one", 1_024, 2), ("two", 512, 2), ("one", 512, 3)] {
            assert_eq!(seen(name, start, byte, 512), vec![byte; 512], "{name} {start} {byte}");
        }
    }

    /// Seed 300080: what a later tenure wrote over a lost sector began with zeros there.
    #[test]
    fn what_looks_like_rot_may_have_been_written_so() {
        let rotten = Rotten { name: "one".to_owned(), start: 512, was: vec![1; 512], is: vec![0; 512] };
        assert_eq!(rotten.versions("one", 512, vec![0; 80]), [vec![0; 80], vec![1; 80]]);
        assert_eq!(rotten.versions("one", 512, vec![3; 80]), [vec![3; 80]]);
        // What others hold, as it is here now.
        let mut redone = vec![1; 80];
        rotten.redo("one", 1_000, &mut redone);
        assert_eq!(redone, [vec![0; 24], vec![1; 56]].concat());
    }
}
