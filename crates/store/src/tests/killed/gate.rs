//! The operating system's own disk behind a gate: at one of its calls the process stops and waits for word from outside, which may be SIGKILL.

use std::io::BufRead as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_log::Memory;

use crate::disk::{
    Access, Disk, DiskFile, DiskMap, Entry, Errno, FileIdentity, Filesystem, Locked, RealDisk, RealFile,
    RealLock, RealMap,
};

/// What a process says to who started it begins with this.
pub(super) const SAYS: &str = "~ ";

/// Tells who started this process something.
pub(super) fn say(what: &str) {
    println!("\n{SAYS}{what}");
}

/// Waits until who started this process says to go on.
pub(super) fn wait() {
    let mut word = String::new();
    // The end of the words is a word, too.
    let _ = std::io::stdin().lock().read_line(&mut word);
}

/// Counts calls, and stops at one.
pub(super) struct Gate {
    calls: AtomicU64,
    at: u64,
}

impl Gate {
    pub(super) fn new(at: u64) -> Arc<Gate> {
        Arc::new(Gate { calls: AtomicU64::new(0), at })
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A call is about to be made, or half done.
    pub(super) fn pass(&self, what: &str) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            say(&format!("at {what}"));
            wait();
        }
    }
}

pub(super) struct GatedDisk {
    pub(super) disk: RealDisk,
    pub(super) gate: Arc<Gate>,
}

impl GatedDisk {
    fn file(&self, file: RealFile) -> GatedFile {
        GatedFile { file, gate: Arc::clone(&self.gate) }
    }
}

impl Disk for GatedDisk {
    type File = GatedFile;
    type Lock = RealLock;

    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn list(&self) -> Result<Vec<Entry>, Errno> {
        self.gate.pass("list");
        self.disk.list()
    }

    fn create(&self, name: &str) -> Result<GatedFile, Errno> {
        self.gate.pass("create");
        Ok(self.file(self.disk.create(name)?))
    }

    fn open(&self, name: &str, access: Access) -> Result<GatedFile, Errno> {
        self.gate.pass("open");
        Ok(self.file(self.disk.open(name, access)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.gate.pass("rename");
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), Errno> {
        self.gate.pass("remove");
        self.disk.remove(name)
    }

    fn sync_folder(&self) -> Result<(), Errno> {
        self.gate.pass("sync folder");
        self.disk.sync_folder()
    }

    fn lock(&self) -> Result<Locked<RealLock>, Errno> {
        self.gate.pass("lock");
        self.disk.lock()
    }

    fn is_locked(&self) -> Option<bool> {
        self.disk.is_locked()
    }

    fn filesystem(&self) -> Result<Filesystem, Errno> {
        self.disk.filesystem()
    }

    fn device_written_bytes(&self) -> Option<u64> {
        self.disk.device_written_bytes()
    }

    fn process_id(&self) -> u32 {
        self.disk.process_id()
    }
}

pub(super) struct GatedFile {
    file: RealFile,
    gate: Arc<Gate>,
}

impl DiskFile for GatedFile {
    type Map = GatedMap;

    fn len_bytes(&self) -> Result<u64, Errno> {
        self.file.len_bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.file.read_at(buffer, offset)
    }

    /// In two halves, as a process may be killed in the middle of a `pwrite`.
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), Errno> {
        self.gate.pass("write");
        let (first, second) = buffer.split_at(buffer.len() / 2);
        self.file.write_at(first, offset)?;
        self.gate.pass("half a write");
        self.file.write_at(second, offset + first.len() as u64)
    }

    fn allocate_part(&self, part: Range<u64>, len_bytes: u64) -> Result<(), Errno> {
        self.gate.pass("allocate");
        let middle = part.start + (part.end - part.start) / 2;
        self.file.allocate_part(part.start..middle, len_bytes)?;
        self.gate.pass("half an allocation");
        self.file.allocate_part(middle..part.end, len_bytes)
    }

    fn allocated_bytes(&self) -> Result<u64, Errno> {
        self.file.allocated_bytes()
    }

    fn fill_holes(&self, len_bytes: u64) -> Result<(), Errno> {
        self.gate.pass("fill holes");
        self.file.fill_holes(len_bytes)
    }

    fn shorten(&self, len_bytes: u64) -> Result<(), Errno> {
        self.gate.pass("shorten");
        self.file.shorten(len_bytes)
    }

    fn sync(&self) -> Result<(), Errno> {
        self.gate.pass("sync");
        self.file.sync()
    }

    fn map(&self, len_bytes: u64) -> Result<GatedMap, Errno> {
        self.gate.pass("map");
        Ok(GatedMap { map: self.file.map(len_bytes)?, gate: Arc::clone(&self.gate) })
    }

    fn will_need(&self, range: Range<u64>) {
        self.file.will_need(range);
    }

    fn forget(&self, range: Range<u64>) {
        self.file.forget(range);
    }

    fn identity(&self) -> Result<FileIdentity, Errno> {
        self.file.identity()
    }

    fn has_name(&self) -> Result<bool, Errno> {
        self.file.has_name()
    }
}

pub(super) struct GatedMap {
    map: RealMap,
    gate: Arc<Gate>,
}

impl DiskMap for GatedMap {
    fn memory(&self) -> &Memory {
        self.map.memory()
    }

    fn is_shared(&self) -> bool {
        self.map.is_shared()
    }

    fn flush_range(&self, range: Range<u64>) -> Result<(), Errno> {
        self.gate.pass("flush a range");
        self.map.flush_range(range)
    }

    fn populate(&self, range: Range<u64>) -> Result<(), Errno> {
        self.map.populate(range)
    }
}
