//! [`TestDisk`]: a disk in memory that loses power, fails and fills up on request.
//!
//! Each file has a live image (what processes see: the page cache) and a durable one (what the medium holds); each name likewise.
//! A loss of power keeps the durable images and, of what was not made durable, whatever [`Survive`] says: by page, torn by sector of
//! 512 bytes, and by name. A failed flush behaves like Linux (kind 24): the pages are clean afterwards, and a second flush
//! succeeds without writing them.

mod happened;
mod holes;
mod inner;
mod inode;
mod meanwhile;
mod random;
mod rot;
mod unsure;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use windlass_log::Memory;

pub use self::happened::Happened;
use self::inode::Inode;
use self::meanwhile::Meanwhiles;
use self::random::Random;
pub use self::unsure::Lie;
use super::{Access, Disk, DiskFile, DiskMap, Entry, Errno, FileIdentity, Filesystem, Locked};

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// What of the bytes and names that were not made durable survives a loss of power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survive {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// For each page, and each change of a name, decided by this seed: lost, kept or (pages) torn by sector.
    Seeded(u64),
    /// Each name, each length and each such unit of bytes on its own, decided by this seed.
    By {
        /// What survives or is lost as a whole.
        unit: Unit,
        /// Decides.
        seed: u64,
    },
    /// The same, decided by the bits of a mask, from the lowest on: names first, then file by file its length and its bytes; from the 64th on by the last bit.
    Chosen {
        /// What survives or is lost as a whole.
        unit: Unit,
        /// A set bit: it survives.
        mask: u64,
    },
}

/// What a medium writes as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// 4 KiB.
    Page,
    /// 512 bytes.
    Sector,
}

/// The calls that change or flush something: the steps that a crash sweep stops at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    /// [`Disk::create`].
    Create,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::sync_folder`].
    SyncFolder,
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::allocate`].
    Allocate,
    /// [`DiskFile::sync`].
    Sync,
    /// [`DiskMap::flush_range`].
    FlushRange,
    /// [`DiskFile::read_at`]; not a step.
    Read,
    /// [`Disk::open`]; not a step.
    Open,
    /// [`DiskFile::map`]; not a step.
    Map,
    /// [`DiskMap::populate`]; not a step.
    Populate,
}

#[derive(Clone)]
enum NameChange {
    Created(String, u64),
    Renamed(String, String),
    Removed(String),
}

struct State {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    inodes: BTreeMap<u64, Inode>,
    inode_next: u64,
    lock_holder: Option<u64>,
    lock_next: u64,
    process: u32,
    steps: u64,
    stop_at: Option<u64>,
    calls: BTreeMap<Call, u64>,
    faults: BTreeMap<(Call, u64), Errno>,
    capacity_bytes: Option<u64>,
    magic: u64,
    written_bytes: u64,
    lie: Option<Lie>,
    /// The system writes on its own between steps, decided by this.
    restless: Option<u64>,
    /// Flushes that were answered and not done yet.
    late: Vec<(u64, Range<u64>)>,
    given_away: Option<String>,
    /// Of 256 `pread`s so many give less than they are asked for.
    reads_cut: u8,
    preads: u64,
    happened: Happened,
    /// Sectors of files that the medium does not give.
    spoilt: BTreeSet<(u64, u64)>,
    failing: Option<rot::Failing>,
}

/// Holds flushes up until it is dropped: [`TestDisk::hold_syncs`].
#[derive(Debug)]
pub struct HeldSyncs(Arc<(Mutex<bool>, Condvar)>);

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.1.notify_all();
    }
}

/// A folder on a disk in memory. Clones are the same folder.
#[derive(Clone)]
pub struct TestDisk {
    path: PathBuf,
    /// Of a folder inside: what its files' names begin with in the disk's.
    inside: String,
    state: Arc<Mutex<State>>,
    held: Arc<(Mutex<bool>, Condvar)>,
    meanwhiles: Arc<Meanwhiles>,
}

impl std::fmt::Debug for TestDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestDisk")
            .field("names", &self.state().names.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Default for TestDisk {
    fn default() -> TestDisk {
        TestDisk::new()
    }
}

impl TestDisk {
    /// An empty folder on a disk without limits or faults.
    #[must_use]
    pub fn new() -> TestDisk {
        TestDisk::with(BTreeMap::new(), BTreeMap::new(), 1)
    }

    fn with(names: BTreeMap<String, u64>, inodes: BTreeMap<u64, Inode>, inode_next: u64) -> TestDisk {
        TestDisk {
            path: PathBuf::from("/test-disk"),
            inside: String::new(),
            held: Arc::default(),
            meanwhiles: Arc::default(),
            state: Arc::new(Mutex::new(State {
                durable_names: names.clone(),
                names,
                unsynced_names: Vec::new(),
                inodes,
                inode_next,
                lock_holder: None,
                lock_next: 1,
                process: 1,
                steps: 0,
                stop_at: None,
                calls: BTreeMap::new(),
                faults: BTreeMap::new(),
                capacity_bytes: None,
                magic: 0xEF53,
                written_bytes: 0,
                lie: None,
                restless: None,
                late: Vec::new(),
                given_away: None,
                reads_cut: 0,
                preads: 0,
                happened: Happened::default(),
                spoilt: BTreeSet::new(),
                failing: None,
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps so far: calls that change or flush something.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// From step number `step` (0 is the first ever) on, no call has an effect that is sure: that one, if it writes, may have written
    /// a part; each answers `IO`. What a process sees whose machine is losing power.
    pub fn stop_at(&self, step: u64) {
        self.state().stop_at = Some(step);
    }

    /// Whether the step given to [`TestDisk::stop_at`] has been reached.
    #[must_use]
    pub fn stopped(&self) -> bool {
        let state = self.state();
        state.stop_at.is_some_and(|stop| state.steps > stop)
    }

    /// The `nth` call of this kind from now (0 is the next) answers `errno`.
    pub fn fail(&self, call: Call, nth: u64, errno: Errno) {
        let mut state = self.state();
        let done = state.calls.get(&call).copied().unwrap_or(0);
        state.faults.insert((call, done + nth), errno);
    }

    /// A device that takes its time: [`DiskFile::sync`] waits until the answer is dropped.
    #[must_use]
    pub fn hold_syncs(&self) -> HeldSyncs {
        *self.held.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        HeldSyncs(self.held.clone())
    }

    /// From here on so many of 256 `pread`s, spread evenly, give fewer bytes than they are asked for, and than there are.
    pub fn cut_reads(&self, of_256: u8) {
        self.state().reads_cut = of_256;
    }

    /// Nothing that [`TestDisk::fail`] asked for and that has not happened yet happens any more.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// How often a call of this kind was made.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.state().calls.get(&call).copied().unwrap_or(0)
    }

    /// The disk's size; `None` is without a limit.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// Bytes that files take.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// The filesystem's magic number as `statfs` would answer; at first that of ext4.
    pub fn set_filesystem(&self, magic: u64) {
        self.state().magic = magic;
    }

    /// A child process's view after a fork: [`Disk::process_id`] answers another number from now on.
    pub fn fork(&self) {
        self.state().process += 1;
    }

    /// The process dies (`kill -9`): its lock is free, everything that it wrote is still in the page cache. Faults are gone.
    #[must_use]
    pub fn after_kill(&self) -> TestDisk {
        let mut state = self.state();
        state.lock_holder = None;
        state.stop_at = None;
        state.faults.clear();
        state.process += 1;
        for inode in state.inodes.values_mut() {
            inode.mapped = false;
        }
        drop(state);
        self.clone()
    }

    /// The machine loses power and comes back: a new disk of what was durable and what of the rest survived.
    #[must_use]
    pub fn after_power_loss(&self, survive: Survive) -> TestDisk {
        self.after_power_loss_counting(survive).0
    }

    fn after_power_loss_counting(&self, survive: Survive) -> (TestDisk, u32) {
        let state = self.state();
        let mut random = Random::new(survive);
        let mut names = state.durable_names.clone();
        for change in &state.unsynced_names {
            if random.keeps() {
                apply(&mut names, change);
            }
        }
        let mut inodes = BTreeMap::new();
        for number in names.values().copied().collect::<BTreeSet<_>>() {
            let bytes = state.inodes[&number].after_power_loss(&mut random);
            inodes.insert(number, Inode::durable(bytes));
        }
        let disk = TestDisk::with(names, inodes, state.inode_next);
        disk.state().happened = state.happened;
        (disk, random.asked())
    }

    /// The folder copied file by file, as `cp -a` does: new inodes, same bytes, no lock.
    #[must_use]
    pub fn copied(&self) -> TestDisk {
        let state = self.state();
        let mut names = BTreeMap::new();
        let mut inodes = BTreeMap::new();
        let mut next = state.inode_next + 1000;
        for (name, number) in &state.names {
            names.insert(name.clone(), next);
            inodes.insert(next, Inode::durable(state.inodes[number].live_bytes()));
            next += 1;
        }
        TestDisk::with(names, inodes, next)
    }

    /// As [`TestDisk::copied`], just now: bytes and names of the copy are in the page cache alone.
    #[must_use]
    pub fn copied_just_now(&self) -> TestDisk {
        let copy = self.copied();
        let mut state = copy.state();
        let names = std::mem::take(&mut state.durable_names);
        state.unsynced_names =
            names.into_iter().map(|(name, number)| NameChange::Created(name, number)).collect();
        for inode in state.inodes.values_mut() {
            inode.durable = Vec::new();
        }
        drop(state);
        copy
    }

    /// The same disk once more, durable as it is now, with its inodes: to try several things from one state.
    #[must_use]
    pub fn copied_in_place(&self) -> TestDisk {
        let state = self.state();
        let inodes =
            state.names.values().map(|number| (*number, Inode::durable(state.inodes[number].live_bytes())));
        TestDisk::with(state.names.clone(), inodes.collect(), state.inode_next)
    }

    /// What the file holds now.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    #[must_use]
    pub fn read_file(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.inodes[&state.names[name]].live_bytes()
    }

    /// Damages or makes a file behind everybody's back: these bytes are its content, durably.
    pub fn write_file(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let number = match state.names.get(name) {
            Some(number) => *number,
            None => {
                let number = state.new_inode();
                state.names.insert(name.to_owned(), number);
                state.durable_names.insert(name.to_owned(), number);
                number
            }
        };
        state.inodes.insert(number, Inode::durable(bytes.to_vec()));
    }

    /// Removes a file behind everybody's back, durably.
    pub fn remove_file(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    /// The names of the folder's files, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }
}

impl State {
    /// Counts a call; answers the fault that is due, and whether the power is going: then the call's effect is not sure.
    fn call(&mut self, call: Call) -> Result<(), Failure> {
        let done = self.calls.entry(call).or_insert(0);
        let fault = self.faults.get(&(call, *done)).copied();
        *done += 1;
        let step = !matches!(call, Call::Read | Call::Open | Call::Map | Call::Populate);
        let now = self.steps;
        self.steps += u64::from(step);
        if step {
            self.stir();
        }
        match (self.stop_at, fault) {
            (Some(stop), _) if now == stop && step => Err(Failure::Stopping),
            (Some(stop), _) if now > stop => Err(Failure::Stopped),
            (_, Some(errno)) => {
                self.happened.reads_failed += u64::from(call == Call::Read);
                Err(Failure::Fault(errno))
            }
            (_, None) => Ok(()),
        }
    }

    /// What one `pread` gives: now and then less than it is asked for, or the word that it was interrupted.
    fn pread(&mut self, number: u64, piece: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let sectors = offset / SECTOR..(offset + piece.len() as u64).div_ceil(SECTOR);
        if self.spoilt.range((number, sectors.start)..(number, sectors.end)).next().is_some() {
            return Err(Errno::IO);
        }
        let inode = &self.inodes[&number];
        let mut count = index(inode.live_len.saturating_sub(offset)).min(piece.len());
        if self.reads_cut > 0 {
            self.preads += 1;
            let drawn = self.preads.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            if drawn & 0xff < u64::from(self.reads_cut) {
                self.happened.reads_short += 1;
                if drawn & 0x300 == 0 {
                    return Err(Errno::INTR);
                }
                count = count.min(1 + index(drawn >> 10) % piece.len());
            }
        }
        inode.live.copy_out(offset.min(inode.live_len), &mut piece[..count]);
        Ok(count)
    }

    fn new_inode(&mut self) -> u64 {
        let number = self.inode_next;
        self.inode_next += 1;
        self.inodes.insert(number, Inode::durable(Vec::new()));
        number
    }

    fn grow(&mut self, number: u64, len: u64) -> Result<(), Errno> {
        let now = self.inodes[&number].live_len;
        if len <= now {
            return Ok(());
        }
        let more = len.next_multiple_of(PAGE) - now.next_multiple_of(PAGE);
        if self.capacity_bytes.is_some_and(|capacity| self.used_bytes() + more > capacity) {
            self.happened.full += 1;
            return Err(Errno::NOSPC);
        }
        let inode = self.inodes.get_mut(&number).expect("an open file has an inode");
        assert!(!inode.mapped, "the store grew a mapped file");
        if len > inode.live.bytes() {
            let grown = Memory::heap(len.next_power_of_two().max(PAGE));
            grown.copy_in(0, &inode.live_bytes());
            inode.live = grown;
        }
        inode.live_len = len;
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.unsynced_names.push(change);
    }
}

enum Failure {
    Fault(Errno),
    /// The power goes during this call.
    Stopping,
    /// It is gone.
    Stopped,
}

impl Failure {
    fn errno(&self) -> Errno {
        match self {
            Failure::Fault(errno) => *errno,
            Failure::Stopping | Failure::Stopped => Errno::IO,
        }
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &NameChange) {
    match change {
        NameChange::Created(name, number) => {
            names.insert(name.clone(), *number);
        }
        NameChange::Renamed(from, to) => {
            if let Some(number) = names.remove(from) {
                names.insert(to.clone(), number);
            }
        }
        NameChange::Removed(name) => {
            names.remove(name);
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a test disk fits memory")
}

impl Disk for TestDisk {
    type File = TestFile;
    type Lock = TestLock;

    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> Result<Vec<Entry>, Errno> {
        Ok(self.entries())
    }

    fn create(&self, name: &str) -> Result<TestFile, Errno> {
        let mut state = self.state();
        state.call(Call::Create).map_err(|failure| failure.errno())?;
        let name = &self.full(name);
        if state.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let number = state.new_inode();
        state.change_name(NameChange::Created(name.to_owned(), number));
        Ok(TestFile { disk: self.clone(), number, access: Access::ReadWrite })
    }

    fn open(&self, name: &str, access: Access) -> Result<TestFile, Errno> {
        let mut state = self.state();
        state.call(Call::Open).map_err(|failure| failure.errno())?;
        let number = *state.names.get(&self.full(name)).ok_or(Errno::NOENT)?;
        Ok(TestFile { disk: self.clone(), number, access })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let mut state = self.state();
        state.call(Call::Rename).map_err(|failure| failure.errno())?;
        let (from, to) = (&self.full(from), &self.full(to));
        if !state.names.contains_key(from) {
            return Err(Errno::NOENT);
        }
        if state.names.contains_key(to) {
            return Err(Errno::EXIST);
        }
        state.watch_held(from);
        state.change_name(NameChange::Renamed(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), Errno> {
        let mut state = self.state();
        state.call(Call::Remove).map_err(|failure| failure.errno())?;
        let name = &self.full(name);
        if !state.names.contains_key(name) {
            return Err(Errno::NOENT);
        }
        state.watch_held(name);
        state.change_name(NameChange::Removed(name.to_owned()));
        Ok(())
    }

    fn sync_folder(&self) -> Result<(), Errno> {
        meanwhile::happens(&self.meanwhiles.before_sync_folder);
        let mut state = self.state();
        state.call(Call::SyncFolder).map_err(|failure| failure.errno())?;
        if state.lie == Some(Lie::FolderForgotten) {
            return Ok(());
        }
        self.flush_names(&mut state);
        Ok(())
    }

    fn lock(&self) -> Result<Locked<TestLock>, Errno> {
        meanwhile::happens(&self.meanwhiles.before_lock);
        let mut state = self.state();
        if state.lock_holder.is_some() {
            return Ok(Locked::Busy);
        }
        let holder = state.lock_next;
        state.lock_next += 1;
        state.lock_holder = Some(holder);
        Ok(Locked::Held(TestLock { disk: self.clone(), holder }))
    }

    fn is_locked(&self) -> Option<bool> {
        Some(self.state().lock_holder.is_some())
    }

    fn filesystem(&self) -> Result<Filesystem, Errno> {
        Ok(Filesystem { magic: self.state().magic })
    }

    fn device_written_bytes(&self) -> Option<u64> {
        Some(self.state().written_bytes)
    }

    fn process_id(&self) -> u32 {
        self.state().process
    }
}

/// The lock of a [`TestDisk`].
#[derive(Debug)]
pub struct TestLock {
    disk: TestDisk,
    holder: u64,
}

impl Drop for TestLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.lock_holder == Some(self.holder) {
            state.lock_holder = None;
        }
    }
}

/// An open file of a [`TestDisk`].
#[derive(Debug)]
pub struct TestFile {
    disk: TestDisk,
    number: u64,
    access: Access,
}

impl TestFile {
    fn flush(&self, call: Call, range: &Range<u64>) -> Result<(), Errno> {
        let mut state = self.disk.state();
        let failure = state.call(call).err();
        if failure.is_none() && state.lies_of(call, self.number, range) {
            return Ok(());
        }
        let inode = state.inodes.get_mut(&self.number).expect("an open file has an inode");
        match failure {
            None => {
                let written = inode.flush(range);
                state.written_bytes += written;
                state.catch_up();
                Ok(())
            }
            Some(Failure::Fault(errno)) => {
                inode.fail_flush(range);
                state.happened.flushes_failed += 1;
                Err(errno)
            }
            Some(failure @ (Failure::Stopping | Failure::Stopped)) => Err(failure.errno()),
        }
    }
}

impl DiskFile for TestFile {
    type Map = TestMap;

    fn len_bytes(&self) -> Result<u64, Errno> {
        Ok(self.disk.state().inodes[&self.number].live_len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        meanwhile::happens(&self.disk.meanwhiles.before_read);
        let mut state = self.disk.state();
        state.call(Call::Read).map_err(|failure| failure.errno())?;
        state.read_fails()?;
        super::read_whole(buffer, offset, |piece, at| state.pread(self.number, piece, at))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), Errno> {
        let mut state = self.disk.state();
        if self.access == Access::Read {
            return Err(Errno::BADF);
        }
        let failure = state.call(Call::Write).err();
        if matches!(failure, Some(Failure::Fault(_) | Failure::Stopped)) {
            return Err(failure.map_or(Errno::IO, |failure| failure.errno()));
        }
        let end = offset + buffer.len() as u64;
        state.write_spoilt(self.number, offset..end)?;
        state.grow(self.number, end)?;
        let forgets = state.lie == Some(Lie::RewriteForgotten);
        let inode = state.inodes.get_mut(&self.number).expect("an open file has an inode");
        inode.live.copy_in(offset, buffer);
        // Written again, if only with the same bytes: dirty once more.
        inode.stuck.retain(|page, _| forgets || !(offset / PAGE..end.div_ceil(PAGE)).contains(page));
        failure.map_or(Ok(()), |failure| Err(failure.errno()))
    }

    fn allocate_part(&self, part: Range<u64>, _len_bytes: u64) -> Result<(), Errno> {
        let mut state = self.disk.state();
        let failure = state.call(Call::Allocate).err();
        if matches!(failure, Some(Failure::Fault(_) | Failure::Stopped)) {
            return Err(failure.map_or(Errno::IO, |failure| failure.errno()));
        }
        state.grow(self.number, part.end)?;
        let inode = state.inodes.get_mut(&self.number).expect("an open file has an inode");
        inode.live.zero(part.start, part.end - part.start);
        failure.map_or(Ok(()), |failure| Err(failure.errno()))
    }

    fn allocated_bytes(&self) -> Result<u64, Errno> {
        let inode = &self.disk.state().inodes[&self.number];
        Ok(inode.live_len - inode.hole_bytes)
    }

    fn fill_holes(&self, _len_bytes: u64) -> Result<(), Errno> {
        self.fill()
    }

    fn shorten(&self, len_bytes: u64) -> Result<(), Errno> {
        let mut state = self.disk.state();
        let failure = state.call(Call::Allocate).err();
        if matches!(failure, Some(Failure::Fault(_) | Failure::Stopped)) {
            return Err(failure.map_or(Errno::IO, |failure| failure.errno()));
        }
        let inode = state.inodes.get_mut(&self.number).expect("an open file has an inode");
        assert!(!inode.mapped, "the store shortened a mapped file: SIGBUS");
        if len_bytes < inode.live_len {
            inode.live.zero(len_bytes, inode.live_len - len_bytes);
            inode.live_len = len_bytes;
        }
        failure.map_or(Ok(()), |failure| Err(failure.errno()))
    }

    fn sync(&self) -> Result<(), Errno> {
        let (held, wake) = &*self.disk.held;
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(wake.wait_while(held, |held| *held).unwrap_or_else(PoisonError::into_inner));
        self.flush(Call::Sync, &(0..u64::MAX))
    }

    fn map(&self, len_bytes: u64) -> Result<TestMap, Errno> {
        let mut state = self.disk.state();
        state.call(Call::Map).map_err(|failure| failure.errno())?;
        let inode = state.inodes.get_mut(&self.number).expect("an open file has an inode");
        assert!(len_bytes <= inode.live_len, "the store mapped past the end of a file: SIGBUS");
        assert_eq!(self.access, Access::ReadWrite, "the store mapped a file that it opened for reading");
        assert_eq!(inode.hole_bytes, 0, "the store mapped a file with holes: SIGBUS on a full disk");
        inode.mapped = true;
        let memory = inode.live.slice(0, len_bytes);
        drop(state);
        let file = TestFile { disk: self.disk.clone(), number: self.number, access: self.access };
        Ok(TestMap { file, memory })
    }

    fn will_need(&self, _range: Range<u64>) {}

    fn identity(&self) -> Result<FileIdentity, Errno> {
        Ok(FileIdentity { inode: self.number, born_ns: self.number })
    }

    fn has_name(&self) -> Result<bool, Errno> {
        Ok(self.disk.state().names.values().any(|number| *number == self.number))
    }
}

/// A mapping of a [`TestFile`]: the live image itself.
pub struct TestMap {
    file: TestFile,
    memory: Memory,
}

impl DiskMap for TestMap {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn is_shared(&self) -> bool {
        self.memory.holders() > 2
    }

    fn flush_range(&self, range: Range<u64>) -> Result<(), Errno> {
        assert!(range.end <= self.memory.bytes(), "the store flushed past a mapping's end");
        self.file.flush(Call::FlushRange, &range)
    }

    fn populate(&self, range: Range<u64>) -> Result<(), Errno> {
        assert!(range.end <= self.memory.bytes(), "the store populated past a mapping's end");
        self.file.disk.state().call(Call::Populate).map_err(|failure| failure.errno())
    }
}
