//! A mapped file as fabric memory.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use windlass_fabric::{Backing, Memory, copy_in, copy_out};

/// A file of some folder, mapped; the file goes away with the value.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    map: MmapRaw,
    backing: Backing,
    _file: File,
}

impl MappedMemory {
    pub(crate) fn new(folder: &Path, bytes: u64, backing: Backing) -> MappedMemory {
        let file = tempfile::tempfile_in(folder).expect("a file");
        file.set_len(bytes).expect("its length");
        let map = MmapRaw::map_raw(&file).expect("a mapping");
        MappedMemory { map, backing, _file: file }
    }

    /// Makes a stretch durable.
    pub(crate) fn flush(&self, offset: u64, bytes: u64) {
        let range = [offset, bytes].map(|value| usize::try_from(value).expect("it is inside"));
        self.map.flush_range(range[0], range[1]).expect("to flush");
    }

    fn slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is so long, readable and writable, begins at a page and lives as long as `self`; every access goes through
        // atomics.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / 8) }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "offset {offset} is not a multiple of 8");
        &self.slice()[usize::try_from(offset / 8).expect("an offset")]
    }
}

impl Memory for MappedMemory {
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
        self.backing
    }
}
