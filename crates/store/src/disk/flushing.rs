//! Ways to make a small append durable, to compare on the medium at hand: what DESIGN.md section 5 chose from. Not used by the store.
//!
//! Each way fills a file with zeros, then appends records of 256 B one by one, each made durable before the next, and says what the median took and how
//! many bytes the block device wrote for each. The clock is the caller's.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::{Disk, DiskFile, DiskMap, Errno, RealDisk};

const RECORD_BYTES: u64 = 256;
const PAGE_BYTES: u64 = 4096;
const FILE: &str = "flushing";

/// A way to make an append durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The store's: zeros by writes of a page each, stored through the mapping, `msync` of the page.
    SmallFoliosMsync,
    /// The same with zeros by writes of 1 MiB each, which leave large folios in the page cache.
    LargeFoliosMsync,
    /// Zeros by `O_DIRECT` writes, so that the page cache holds nothing, then as the first.
    DirectZerosMsync,
    /// Zeros by writes of a page each, then `pwrite` and `fdatasync`.
    PwriteFdatasync,
    /// Whole pages written again and again with `O_DIRECT` and `O_DSYNC`.
    DirectDsync,
}

impl Way {
    /// All ways, the store's first.
    pub const ALL: [Way; 5] = [
        Way::SmallFoliosMsync,
        Way::LargeFoliosMsync,
        Way::DirectZerosMsync,
        Way::PwriteFdatasync,
        Way::DirectDsync,
    ];
}

/// What a way came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The median of one append and flush, in nanoseconds.
    pub median_ns: u64,
    /// Bytes that the block device wrote for each append, everybody's included; `None` where the kernel doesn't tell.
    pub device_bytes_each: Option<u64>,
    /// Filling the file with zeros and flushing it, in nanoseconds.
    pub fill_ns: u64,
}

/// Runs one way in an empty folder: a file of `file_bytes`, `appends` appends. `now_ns` is a clock that only goes forward.
///
/// # Errors
///
/// What the system answers, for example `INVAL` where the filesystem has no `O_DIRECT`.
pub fn run(
    way: Way,
    folder: &Path,
    file_bytes: u64,
    appends: u64,
    now_ns: &dyn Fn() -> u64,
) -> std::io::Result<Outcome> {
    let disk = RealDisk::open(folder)?;
    let start = now_ns();
    let mut appender = Appender::new(way, folder, file_bytes)?;
    let fill_ns = now_ns() - start;
    let before = disk.device_written_bytes();
    let mut times = Vec::new();
    for _ in 0..appends {
        let start = now_ns();
        appender.append()?;
        times.push(now_ns() - start);
    }
    let device =
        disk.device_written_bytes().zip(before).map(|(after, before)| (after - before) / appends.max(1));
    disk.remove(FILE)?;
    times.sort_unstable();
    Ok(Outcome { median_ns: times[times.len() / 2], device_bytes_each: device, fill_ns })
}

/// One way at work on a file of its own, for those who let several take turns.
pub struct Appender {
    append: Append,
    file_bytes: u64,
    number: u64,
}

impl std::fmt::Debug for Appender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Appender").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Appender {
    /// Makes the file in an empty folder and fills it.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn new(way: Way, folder: &Path, file_bytes: u64) -> std::io::Result<Appender> {
        let disk = RealDisk::open(folder)?;
        let path = folder.join(FILE);
        fill(way, &disk, &path, file_bytes)?;
        Ok(Appender { append: appender(way, &disk, &path, file_bytes)?, file_bytes, number: 0 })
    }

    /// Appends one record of 256 B and makes it durable; at the file's end it begins again.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn append(&mut self) -> std::io::Result<()> {
        let at = PAGE_BYTES + self.number * RECORD_BYTES % (self.file_bytes - PAGE_BYTES);
        self.number += 1;
        (self.append)(at)
    }
}

fn fill(way: Way, disk: &RealDisk, path: &Path, file_bytes: u64) -> std::io::Result<()> {
    match way {
        Way::SmallFoliosMsync | Way::PwriteFdatasync | Way::DirectDsync => {
            let file = disk.create(FILE)?;
            file.allocate(file_bytes)?;
            file.sync()?;
        }
        Way::LargeFoliosMsync => {
            let file = File::create_new(path)?;
            write_zeros(&file, &vec![0; 1 << 20], file_bytes)?;
        }
        Way::DirectZerosMsync => {
            let file = open(path, OFlags::DIRECT | OFlags::CREATE)?;
            let buffer = Aligned::new(1 << 20);
            write_zeros(&file, buffer.bytes(), file_bytes)?;
        }
    }
    Ok(())
}

fn write_zeros(file: &File, zeros: &[u8], file_bytes: u64) -> std::io::Result<()> {
    let mut offset = 0;
    while offset < file_bytes {
        file.write_all_at(zeros, offset)?;
        offset += zeros.len() as u64;
    }
    file.sync_all()
}

type Append = Box<dyn FnMut(u64) -> std::io::Result<()>>;

fn appender(way: Way, disk: &RealDisk, path: &Path, file_bytes: u64) -> std::io::Result<Append> {
    let record = [0xA5; 256];
    Ok(match way {
        Way::SmallFoliosMsync | Way::LargeFoliosMsync | Way::DirectZerosMsync => {
            let map = disk.open(FILE, super::Access::ReadWrite)?.map(file_bytes)?;
            Box::new(move |at| {
                map.memory().copy_in(at, &record);
                let page = at / PAGE_BYTES * PAGE_BYTES;
                Ok(map.flush_range(page..page + PAGE_BYTES)?)
            })
        }
        Way::PwriteFdatasync => {
            let file = disk.open(FILE, super::Access::ReadWrite)?;
            Box::new(move |at| {
                file.write_at(&record, at)?;
                Ok(file.sync()?)
            })
        }
        Way::DirectDsync => {
            let file = open(path, OFlags::DIRECT | OFlags::DSYNC)?;
            let mut page = Aligned::new(4096);
            Box::new(move |at| {
                let offset = usize::try_from(at % PAGE_BYTES).map_err(|_| Errno::INVAL)?;
                page.bytes_mut()[offset..offset + record.len()].copy_from_slice(&record);
                file.write_all_at(page.bytes(), at / PAGE_BYTES * PAGE_BYTES)
            })
        }
    })
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    let create = flags.contains(OFlags::CREATE);
    let flags = i32::try_from((flags - OFlags::CREATE).bits()).map_err(|_| Errno::INVAL)?;
    OpenOptions::new().write(true).create(create).custom_flags(flags).open(path)
}

/// Zeros that begin on a page, as `O_DIRECT` wants them.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Aligned { bytes, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
