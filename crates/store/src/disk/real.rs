//! [`RealDisk`]: a folder of the operating system.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, Advice, AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, RenameFlags, SeekFrom, StatxFlags,
};
use rustix::process::{Resource, getrlimit};

use super::mapping::RealMap;
use super::{Access, Disk, DiskFile, Entry, Errno, FileIdentity, Filesystem, Locked};

/// Zeros are written in pieces of this size: a larger `pwrite` would leave large folios in the page cache, and one byte
/// stored through a mapping would then cost a flush of the whole folio (DESIGN.md section 5).
const ZERO_PIECE: usize = 4096;
/// Zeros written between two flushes while a file is being made, so that the flush of a commit never waits for a whole segment.
const ZERO_FLUSH_EVERY: u64 = 4 << 20;

/// A folder of the operating system, held open by its descriptor: renaming it changes nothing.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    folder: OwnedFd,
}

impl RealDisk {
    /// The folder at this path, which must exist.
    ///
    /// # Errors
    ///
    /// What `open` answers: `NOENT`, `ACCESS`, `NOTDIR` and the rest stay apart (kind 37).
    pub fn open(path: &Path) -> Result<RealDisk, Errno> {
        let folder = fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(RealDisk { path: path.to_path_buf(), folder })
    }

    /// Makes the folder at this path if there is none, and opens it, its name durable in the folder above: also of one that is there, for who made it may have been killed before that was so. Where this
    /// process may not read the folder above, the name of one that is there is its maker's care.
    ///
    /// # Errors
    ///
    /// What `mkdir`, `open` and `fsync` answer.
    pub fn create(path: &Path) -> Result<RealDisk, Errno> {
        RealDisk::create_by(path, |parent| fs::fsync(parent))
    }

    fn create_by(path: &Path, flush: impl FnOnce(&OwnedFd) -> Result<(), Errno>) -> Result<RealDisk, Errno> {
        let is_new = match fs::mkdir(path, Mode::from_raw_mode(0o750)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error),
        };
        let disk = RealDisk::open(path)?;
        // Not the path's parent: the path may be a link.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = fs::openat(&disk.folder, "..", flags, Mode::empty());
        match parent.and_then(|parent| flush(&parent)) {
            // What may not be written, or is of a filesystem without such a call, as a mount point's folder may be, was there before.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::INVAL | Errno::OPNOTSUPP) if !is_new => {
                Ok(disk)
            }
            flushed => flushed.map(|()| disk),
        }
    }
}

/// The kernel's lock on the folder; given up when dropped, by the process that took it.
#[derive(Debug)]
pub struct RealLock {
    folder: OwnedFd,
    holder: u32,
}

impl Drop for RealLock {
    /// Closing alone is not enough: a child that this process has just forked holds the same lock until it runs its own program (flock(2)). A forked child that goes on with
    /// this one's memory must not give up its parent's lock.
    fn drop(&mut self) {
        if self.holder == std::process::id() {
            // It fails on no descriptor that holds a lock; closing comes next.
            let _ = fs::flock(&self.folder, FlockOperation::Unlock);
        }
    }
}

impl Disk for RealDisk {
    type File = RealFile;
    type Lock = RealLock;

    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> Result<Vec<Entry>, Errno> {
        // A descriptor of its own: reading a folder moves the descriptor's position.
        let folder = fs::openat(
            &self.folder,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); 8 << 10];
        let mut entries = Vec::new();
        let mut names = RawDir::new(&folder, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Removed since it was listed: a running store recycles while a tool looks.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            entries.push(Entry {
                name: OsStr::from_bytes(name.to_bytes()).to_string_lossy().into_owned(),
                len_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                is_file: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            });
        }
        Ok(entries)
    }

    fn create(&self, name: &str) -> Result<RealFile, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(RealFile::new(fs::openat(&self.folder, name, flags, Mode::from_raw_mode(0o640))?))
    }

    fn open(&self, name: &str, access: Access) -> Result<RealFile, Errno> {
        let mode = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        // NONBLOCK does nothing to a regular file. A pipe in its place is an error of the first read, not a wait for a writer.
        let flags = mode | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(RealFile::new(fs::openat(&self.folder, name, flags, Mode::empty())?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        match fs::renameat_with(&self.folder, from, &self.folder, to, RenameFlags::NOREPLACE) {
            // The filesystem doesn't know the flag. The folder is locked, so looking first is as good.
            Err(Errno::INVAL) => match fs::statat(&self.folder, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => fs::renameat(&self.folder, from, &self.folder, to),
                Err(error) => Err(error),
            },
            result => result,
        }
    }

    fn remove(&self, name: &str) -> Result<(), Errno> {
        fs::unlinkat(&self.folder, name, AtFlags::empty())
    }

    fn sync_folder(&self) -> Result<(), Errno> {
        fs::fsync(&self.folder)
    }

    fn lock(&self) -> Result<Locked<RealLock>, Errno> {
        // An open file description of its own, so that a second opener in this process is refused too.
        let folder = fs::openat(
            &self.folder,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        match fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Locked::Held(RealLock { folder, holder: std::process::id() })),
            Err(Errno::WOULDBLOCK) => Ok(Locked::Busy),
            Err(error) => Err(error),
        }
    }

    fn is_locked(&self) -> Option<bool> {
        // proc_locks(5): `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; locks of other process namespaces are left out.
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let stat = fs::fstat(&self.folder).ok()?;
        let place = format!("{:02x}:{:02x}:{}", fs::major(stat.st_dev), fs::minor(stat.st_dev), stat.st_ino);
        let ours =
            |line: &str| line.contains(" FLOCK ") && line.split_ascii_whitespace().any(|word| word == place);
        Some(locks.lines().any(ours))
    }

    fn filesystem(&self) -> Result<Filesystem, Errno> {
        let magic = fs::fstatfs(&self.folder)?.f_type.to_le_bytes();
        // A machine word whose upper half is a sign extension on some architectures.
        Ok(Filesystem { magic: u64::from_le_bytes(magic) & 0xFFFF_FFFF })
    }

    fn device_written_bytes(&self) -> Option<u64> {
        let device = fs::fstat(&self.folder).ok()?.st_dev;
        let path = format!("/sys/dev/block/{}:{}/stat", fs::major(device), fs::minor(device));
        let stat = std::fs::read_to_string(path).ok()?;
        // The seventh field counts sectors of 512 bytes (Documentation/block/stat.rst).
        stat.split_ascii_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(512)
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }
}

/// An open file of the operating system.
#[derive(Debug)]
pub struct RealFile {
    file: OwnedFd,
}

impl RealFile {
    fn new(file: OwnedFd) -> RealFile {
        // Readahead would bring in large folios. With this advice a large read still becomes one large request, but of small
        // folios. A filesystem that takes no advice is used without.
        let _ = fs::fadvise(&file, 0, None, Advice::Random);
        RealFile { file }
    }
}

/// Refuses to write a file up to there where this process may not (`RLIMIT_FSIZE`): the system's answer would be SIGXFSZ, which ends the process, and the signal's handling is not the
/// library's to change.
fn may_reach(end: u64) -> Result<(), Errno> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if end > limit => Err(Errno::FBIG),
        Some(_) | None => Ok(()),
    }
}

impl DiskFile for RealFile {
    type Map = RealMap;

    fn len_bytes(&self) -> Result<u64, Errno> {
        Ok(u64::try_from(fs::fstat(&self.file)?.st_size).unwrap_or(0))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        super::read_whole(buffer, offset, |piece, at| rustix::io::pread(&self.file, piece, at))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), Errno> {
        may_reach(offset.saturating_add(buffer.len() as u64))?;
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pwrite(&self.file, &buffer[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn allocate_part(&self, part: Range<u64>, len_bytes: u64) -> Result<(), Errno> {
        may_reach(len_bytes)?;
        // First the blocks, so that a full disk is found before anything is written, then zeros, because an allocated but
        // unwritten extent would make each first flush change metadata. Where blocks can't be had at once the zeros bring them.
        if part.start == 0 {
            match fs::fallocate(&self.file, fs::FallocateFlags::empty(), 0, len_bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error),
            }
        }
        let zeros = [0; ZERO_PIECE];
        let mut offset = part.start;
        while offset < part.end {
            let piece = usize::try_from(part.end - offset).map_or(ZERO_PIECE, |left| left.min(ZERO_PIECE));
            self.write_at(&zeros[..piece], offset)?;
            offset += piece as u64;
            if offset.is_multiple_of(ZERO_FLUSH_EVERY) {
                self.sync()?;
            }
        }
        Ok(())
    }

    fn allocated_bytes(&self) -> Result<u64, Errno> {
        // In units of 512 bytes, whatever the filesystem's blocks are (stat(3type)); blocks that are only reserved so far count, and so do those behind the file's end and, on some filesystems, those that
        // say where its blocks are: a file can have as many as it has bytes, and a hole.
        let blocks = u64::try_from(fs::fstat(&self.file)?.st_blocks).unwrap_or(0).saturating_mul(512);
        // Blocks that were never written may be called a hole, too (lseek(2)). An empty file has none, and not every filesystem can tell.
        let hole = fs::seek(&self.file, SeekFrom::Hole(0)).unwrap_or(u64::MAX);
        Ok(blocks.min(hole))
    }

    fn fill_holes(&self, len_bytes: u64) -> Result<(), Errno> {
        may_reach(len_bytes)?;
        match fs::fallocate(&self.file, fs::FallocateFlags::empty(), 0, len_bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error),
        }
        let mut page = [0; ZERO_PIECE];
        for offset in (0..len_bytes).step_by(ZERO_PIECE) {
            let count = self.read_at(&mut page, offset)?;
            self.write_at(&page[..count], offset)?;
        }
        Ok(())
    }

    fn shorten(&self, len_bytes: u64) -> Result<(), Errno> {
        if self.len_bytes()? <= len_bytes {
            return Ok(());
        }
        fs::ftruncate(&self.file, len_bytes)?;
        // A length is metadata, which `fdatasync` need not write where the file got shorter.
        fs::fsync(&self.file)
    }

    fn sync(&self) -> Result<(), Errno> {
        fs::fdatasync(&self.file)
    }

    fn map(&self, len_bytes: u64) -> Result<RealMap, Errno> {
        RealMap::new(self.file.as_fd(), len_bytes)
    }

    fn will_need(&self, range: Range<u64>) {
        let len = std::num::NonZeroU64::new(range.end.saturating_sub(range.start));
        if len.is_some() {
            let _ = fs::fadvise(&self.file, range.start, len, Advice::WillNeed);
        }
    }

    fn forget(&self, range: Range<u64>) {
        let len = std::num::NonZeroU64::new(range.end.saturating_sub(range.start));
        if len.is_some() {
            let _ = fs::fadvise(&self.file, range.start, len, Advice::DontNeed);
        }
    }

    fn identity(&self) -> Result<FileIdentity, Errno> {
        let stat = fs::statx(&self.file, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
        let born = if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
            0
        } else {
            let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or(0);
            seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(stat.stx_btime.tv_nsec))
        };
        Ok(FileIdentity { inode: stat.stx_ino, born_ns: born })
    }

    fn has_name(&self) -> Result<bool, Errno> {
        Ok(fs::fstat(&self.file)?.st_nlink > 0)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::FallocateFlags;

    use super::*;

    /// Killed between the making of the folder and the flushing of its name, and made again.
    #[test]
    fn kind_29_the_name_of_the_folder_is_made_durable_by_each_who_makes_it() {
        let above = tempfile::tempdir().unwrap();
        let (place, link) = (above.path().join("log"), tempfile::tempdir().unwrap());
        let inode = |path: &Path| fs::stat(path).unwrap().st_ino;
        let killed = RealDisk::create_by(&place, |_| Err(Errno::INTR));
        assert_eq!(killed.map(|_| ()).unwrap_err(), Errno::INTR);
        let path = link.path().join("link");
        std::os::unix::fs::symlink(&place, &path).unwrap();
        for path in [&place, &path] {
            let mut flushed = None;
            let disk = RealDisk::create_by(path, |parent| {
                flushed = Some(fs::fstat(parent)?.st_ino);
                fs::fsync(parent)
            });
            assert_eq!(disk.unwrap().path(), path);
            assert_eq!(flushed, Some(inode(above.path())), "{}", path.display());
        }
        // Somebody else's folder above is no obstacle, and an error of the medium is one.
        for errno in [Errno::ACCESS, Errno::ROFS, Errno::INVAL] {
            drop(RealDisk::create_by(&place, |_| Err(errno)).unwrap());
        }
        assert_eq!(RealDisk::create_by(&place, |_| Err(Errno::IO)).map(|_| ()).unwrap_err(), Errno::IO);
    }

    /// A hole at the beginning, in the middle and at the end of a file that has as many blocks as bytes: what it lacks there it has behind its end, as on ext4 it may have in its tree of extents.
    #[test]
    fn kind_20_a_file_with_a_hole_is_told_whatever_its_count_of_blocks() {
        const LEN: u64 = 256 << 10;
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        for at in [0, 100 << 10, LEN - 4096] {
            let file = disk.create("file").unwrap();
            file.allocate(LEN).unwrap();
            file.sync().unwrap();
            assert!(file.allocated_bytes().unwrap() >= LEN, "a whole file");
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fs::fallocate(&file.file, punch, at, 4096).unwrap();
            fs::fallocate(&file.file, FallocateFlags::KEEP_SIZE, LEN, 64 << 10).unwrap();
            assert!(fs::fstat(&file.file).unwrap().st_blocks * 512 >= LEN.cast_signed(), "blocks enough");
            assert_eq!(file.allocated_bytes().unwrap(), at, "up to the hole");
            file.fill_holes(LEN).unwrap();
            let mut page = [1; 4096];
            assert_eq!(file.read_at(&mut page, at).unwrap(), page.len());
            assert_eq!(page, [0; 4096]);
            disk.remove("file").unwrap();
        }
    }

    #[test]
    fn kind_32_a_lock_is_given_up_by_its_holder_alone_and_at_once_whoever_shares_it() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(folder.path()).unwrap();
        let locked = || disk.lock().unwrap();
        let held = |locked| match locked {
            Locked::Held(lock) => lock,
            Locked::Busy => panic!("the lock is held"),
        };
        // What a forked child has between `fork` and `exec`: the same open file description.
        let lock = held(locked());
        let childs = rustix::io::dup(&lock.folder).unwrap();
        assert!(matches!(locked(), Locked::Busy));
        drop(lock);
        let mut lock = held(locked());
        drop(childs);
        assert!(matches!(locked(), Locked::Busy), "an older description gives up nothing of a newer one");

        // A child that goes on with this memory, and drops it.
        let parents = RealLock { folder: rustix::io::dup(&lock.folder).unwrap(), holder: lock.holder };
        lock.holder = std::process::id() + 1;
        drop(lock);
        assert!(matches!(locked(), Locked::Busy), "the parent's lock stays");
        drop(parents);
        held(locked());
    }
}
