//! A scratch file of the log's folder, mapped: the memory on which registration is tried.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;

use rustix::fs::{Mode, OFlags};
use windlass_fabric::{Backing, Memory, copy_in, copy_out};

/// A file without a name, mapped shared; it goes away with the value.
#[derive(Debug)]
pub(super) struct Scratch {
    map: memmap2::MmapRaw,
    file: File,
}

impl Scratch {
    /// `bytes` zero bytes in `folder`.
    pub(super) fn new(folder: &Path, bytes: u64) -> io::Result<Scratch> {
        let file = nameless(folder)?;
        // Written and not only made longer: the log's segments have their blocks before anybody writes to them.
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        file.write_all_at(&zeros, 0)?;
        file.sync_all()?;
        let map = memmap2::MmapRaw::map_raw(&file)?;
        Ok(Scratch { map, file })
    }

    /// Makes what was written durable, as the log does it; the kernel then learns anew of the next write to each page.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.map.flush()?;
        self.file.sync_data()
    }

    /// What the disk holds, past the page cache; `None` where the filesystem can't be read that way.
    pub(super) fn on_medium(&self) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.map.len();
        let page = rustix::param::page_size();
        let mut buffer = vec![0; bytes + page];
        let start = (page - buffer.as_ptr().addr() % page) % page;
        let into = &mut buffer[start..start + bytes];
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        if rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT).is_err() {
            return Ok(None);
        }
        let read = self.file.read_exact_at(into, 0);
        rustix::fs::fcntl_setfl(&self.file, flags)?;
        match read {
            Ok(()) => Ok(Some(into.to_vec())),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is so long, readable and writable, begins at a page and lives as long as `self`; the file is nobody else's, so
        // it keeps its length; every access of this process goes through atomics, and a device's changes are like those of another
        // thread.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / 8) }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "offset {offset} is not a multiple of 8");
        &self.slice()[usize::try_from(offset / 8).unwrap_or(usize::MAX)]
    }
}

/// A new file of that folder which no folder names.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // Not every filesystem can.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
            let path = folder.join(format!(".windlass-probe-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the folder is on a filesystem that keeps its files in memory alone (tmpfs).
pub(super) fn is_memory_filesystem(folder: &Path) -> io::Result<bool> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let found = rustix::fs::statfs(folder)?.f_type;
    Ok(u64::try_from(found).is_ok_and(|found| found == TMPFS_MAGIC))
}

impl Memory for Scratch {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        copy_out(self.slice(), offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        copy_in(self.slice(), offset, from);
    }

    fn load(&self, offset: u64) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    fn store(&self, offset: u64, word: u64) {
        self.word(offset).store(word.to_le(), Ordering::Release);
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        Some(self.slice())
    }

    fn backing(&self) -> Backing {
        Backing::MappedFile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_file_has_no_name_and_reaches_the_medium() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path(), 8192).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        scratch.write(4090, b"across a page");
        let mut bytes = [0; 13];
        scratch.read(4090, &mut bytes);
        assert_eq!(&bytes, b"across a page");
        scratch.flush().unwrap();
        if let Some(medium) = scratch.on_medium().unwrap() {
            assert_eq!(&medium[4090..4103], b"across a page");
        }
    }

    #[test]
    fn a_memory_filesystem_is_known() {
        assert!(is_memory_filesystem(Path::new("/dev/shm")).unwrap());
        assert!(!is_memory_filesystem(Path::new("/proc")).unwrap());
    }
}
