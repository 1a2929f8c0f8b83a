//! The disk at the level of system calls: one folder, its files, their mappings.
//!
//! The store does everything through [`Disk`], so that a simulated disk runs the real store. A `Disk` is bound to one folder
//! that exists; names are single path components. Calls answer with an [`Errno`]; the store adds which file and why.
//!
//! What a disk promises, and nothing more: bytes written are durable after [`DiskFile::sync`] or [`DiskMap::flush_range`]
//! has returned `Ok`; a name created, renamed or removed is durable after [`Disk::sync_folder`] has; before that each page
//! and each name may or may not survive a loss of power, on its own. After an error of these calls nothing is known.

mod filesystem;
#[cfg(any(test, feature = "testing"))]
pub mod flushing;
mod mapping;
mod real;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

pub use filesystem::{Filesystem, FilesystemClass};
pub use mapping::RealMap;
pub use real::{RealDisk, RealFile, RealLock};
/// The error number of a failed system call.
pub use rustix::io::Errno;
use windlass_log::Memory;

/// One entry of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file's name; bytes that are not UTF-8 are replaced, so that such a name is never one of the store's.
    pub name: String,
    /// The file's length in bytes.
    pub len_bytes: u64,
    /// Whether it is a plain file.
    pub is_file: bool,
}

/// What an open file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading alone; needs no write permission.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// What ties a file to its place: a copied file has another one, a moved or renamed file keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// The inode's number.
    pub inode: u64,
    /// When the inode was made, in nanoseconds since 1970, or 0 where the filesystem doesn't say.
    pub born_ns: u64,
}

/// How an attempt to lock a folder ended.
#[derive(Debug)]
pub enum Locked<L> {
    /// The folder is ours until this is dropped or the process dies.
    Held(L),
    /// Another opener has it.
    Busy,
}

/// A folder on a disk.
pub trait Disk: Send + Sync + 'static {
    /// An open file.
    type File: DiskFile;
    /// A held lock.
    type Lock: Send + Sync + 'static;

    /// The folder's path, for messages.
    fn path(&self) -> &Path;

    /// The folder's entries, in no order, without `.` and `..`.
    ///
    /// # Errors
    ///
    /// What `readdir` answers.
    fn list(&self) -> Result<Vec<Entry>, Errno>;

    /// Makes an empty file and opens it for reading and writing. The name is durable after [`Disk::sync_folder`].
    ///
    /// # Errors
    ///
    /// What `open` answers; `EXIST` when the name is taken.
    fn create(&self, name: &str) -> Result<Self::File, Errno>;

    /// Opens a file that exists.
    ///
    /// # Errors
    ///
    /// What `open` answers; `NOENT` when there is none.
    fn open(&self, name: &str, access: Access) -> Result<Self::File, Errno>;

    /// Renames a file within the folder; never replaces another. Durable after [`Disk::sync_folder`].
    ///
    /// # Errors
    ///
    /// What `renameat2` answers; `EXIST` when `to` is taken.
    fn rename(&self, from: &str, to: &str) -> Result<(), Errno>;

    /// Removes a file. Durable after [`Disk::sync_folder`].
    ///
    /// # Errors
    ///
    /// What `unlink` answers.
    fn remove(&self, name: &str) -> Result<(), Errno>;

    /// Makes every creation, renaming and removal before it durable (`fsync` of the folder).
    ///
    /// # Errors
    ///
    /// What `fsync` answers. After an error none of them is known to be durable, nor known not to be.
    fn sync_folder(&self) -> Result<(), Errno>;

    /// Locks the folder against other openers, this process's included, without waiting. A kernel lock: it dies with the process
    /// (and with children that it forked without `exec`, which share it).
    ///
    /// # Errors
    ///
    /// What `flock` answers, except that a folder in use is [`Locked::Busy`].
    fn lock(&self) -> Result<Locked<Self::Lock>, Errno>;

    /// Whether somebody has the folder locked, without locking it; `None` where the kernel doesn't tell.
    fn is_locked(&self) -> Option<bool>;

    /// Which filesystem the folder lies on.
    ///
    /// # Errors
    ///
    /// What `fstatfs` answers.
    fn filesystem(&self) -> Result<Filesystem, Errno>;

    /// Bytes written so far to the block device under the folder by everybody, where the kernel tells.
    fn device_written_bytes(&self) -> Option<u64>;

    /// This process's number; a child that was forked off has another one.
    fn process_id(&self) -> u32;
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// A mapping of this file.
    type Map: DiskMap;

    /// The file's length in bytes.
    ///
    /// # Errors
    ///
    /// What `fstat` answers.
    fn len_bytes(&self) -> Result<u64, Errno>;

    /// Reads at an offset up to the buffer's length; fewer bytes only at the end of the file.
    ///
    /// # Errors
    ///
    /// What `pread` answers. An error is never the end of the file (kind 7).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno>;

    /// Writes the whole buffer at an offset. Durable after [`DiskFile::sync`].
    ///
    /// # Errors
    ///
    /// What `pwrite` answers; a part may have been written. `FBIG` where this process may not write there (`RLIMIT_FSIZE`), before anything is.
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), Errno>;

    /// Gives the file `len_bytes` bytes of zeros on real, written blocks, so that a store through a mapping can neither run out of
    /// space nor change metadata, and leaves no large folios in the page cache. Durable after [`DiskFile::sync`].
    ///
    /// # Errors
    ///
    /// What `fallocate` and `pwrite` answer; `NOSPC` when the disk is full, `FBIG` where this process may not make a file so long (`RLIMIT_FSIZE`). The file then has any length.
    fn allocate(&self, len_bytes: u64) -> Result<(), Errno> {
        self.allocate_part(0..len_bytes, len_bytes)
    }

    /// As [`allocate`](DiskFile::allocate), a part at a time, from the first to the last: the blocks of all `len_bytes` bytes with the first part, the zeros of
    /// this part alone.
    ///
    /// # Errors
    ///
    /// As [`allocate`](DiskFile::allocate).
    fn allocate_part(&self, part: Range<u64>, len_bytes: u64) -> Result<(), Errno>;

    /// How many bytes of blocks the file has, or how many bytes lie before its first hole, if these are fewer. Fewer than its length: it has holes, and a store through a mapping may find no room for one, which is a SIGBUS (kind 20). A filesystem that compresses, or
    /// finds its blocks elsewhere, may say anything.
    ///
    /// # Errors
    ///
    /// What `fstat` answers. Who can't tell holes says what `fstat` says.
    fn allocated_bytes(&self) -> Result<u64, Errno>;

    /// Gives the holes among the file's first `len_bytes` bytes blocks, and changes no byte. The file must not be mapped. Durable after [`DiskFile::sync`].
    ///
    /// # Errors
    ///
    /// As [`allocate`](DiskFile::allocate).
    fn fill_holes(&self, len_bytes: u64) -> Result<(), Errno>;

    /// Cuts off what lies behind the file's first `len_bytes` bytes. The file must not be mapped. Durable after [`DiskFile::sync`].
    ///
    /// # Errors
    ///
    /// What `ftruncate` answers.
    fn shorten(&self, len_bytes: u64) -> Result<(), Errno>;

    /// Makes every write before it durable (`fdatasync`).
    ///
    /// # Errors
    ///
    /// What `fdatasync` answers. After an error the bytes are neither known to be durable nor known not to be, and a second call may
    /// succeed without writing them (kind 24).
    fn sync(&self) -> Result<(), Errno>;

    /// Maps the file's first `len_bytes` bytes, shared, for reading and writing. The file must be open for both. Children don't inherit the mapping.
    ///
    /// # Errors
    ///
    /// What `mmap` answers.
    fn map(&self, len_bytes: u64) -> Result<Self::Map, Errno>;

    /// Asks for these bytes to be in the page cache soon, in small folios. A hint.
    fn will_need(&self, range: Range<u64>);

    /// Lets go of what the page cache holds of these bytes, if nobody maps them and they need not be written: the next read asks the medium. A hint.
    fn forget(&self, range: Range<u64>) {
        let _ = range;
    }

    /// What ties the file to its place.
    ///
    /// # Errors
    ///
    /// What `statx` answers.
    fn identity(&self) -> Result<FileIdentity, Errno>;

    /// Whether the file still has a name in any folder: one that was removed takes writes like any other, and is gone once it is closed.
    ///
    /// # Errors
    ///
    /// What `fstat` answers.
    fn has_name(&self) -> Result<bool, Errno>;
}

/// A shared mapping of a file.
pub trait DiskMap: Send + Sync + 'static {
    /// The mapped bytes. The memory stays mapped at least until the last clone of it has been dropped, also when this is dropped before.
    fn memory(&self) -> &Memory;

    /// Whether a clone or slice of the memory is held outside of this mapping (R-2: its bytes must not get another meaning yet).
    fn is_shared(&self) -> bool;

    /// Makes the bytes in `range`, widened to whole pages, durable (`msync`).
    ///
    /// # Errors
    ///
    /// As [`DiskFile::sync`].
    fn flush_range(&self, range: Range<u64>) -> Result<(), Errno>;

    /// Makes the pages of `range` present and writable, so that stores to them don't fault.
    ///
    /// # Errors
    ///
    /// What `madvise` answers: `FAULT` or `HWPOISON` where a store would be a SIGBUS, as the medium does not give a page. Whatever else it is, the store goes on without.
    fn populate(&self, range: Range<u64>) -> Result<(), Errno>;
}

/// Reads until the buffer is full or the file ends, by a `pread` that may give less than it is asked for at any time, or be interrupted.
fn read_whole(
    buffer: &mut [u8],
    offset: u64,
    mut pread: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
