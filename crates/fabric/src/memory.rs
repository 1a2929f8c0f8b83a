//! Memory that others change under us, as the fabric sees it.
//!
//! A peer, a device or another thread may change the bytes at any time, so there are no references to them: they are copied in
//! and out, and words that order others are atomic.

use std::fmt::Debug;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page of [`HeapMemory`]'s alignment.
pub const PAGE_BYTES: u64 = 4096;

const WORD_BYTES: usize = 8;

/// What lies behind a piece of memory; a device registers the two in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of this process alone, or of a memory file system: it can be pinned.
    Anonymous,
    /// A shared mapping of a file on a disk. It cannot be pinned for writing; a device needs on-demand paging for it.
    MappedFile,
}

/// Bytes that peers, devices and other threads change while we look at them.
///
/// Offsets and lengths are bytes from its start; ranges are half-open. The length never changes.
///
/// Ordering: `read` and `write` order nothing by themselves and may be seen torn; `load` and `store` are atomic, with the
/// ordering of their docs. Bytes placed by a peer are visible after the completion that says so has been polled.
pub trait Memory: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes from `offset` on out of the memory.
    ///
    /// # Panics
    /// If the range is not inside `[0, len)`: a programmer's error. A provider checks what a peer asked for before it calls this.
    fn read(&self, offset: u64, into: &mut [u8]);

    /// Copies `from` into the memory at `offset`.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    fn write(&self, offset: u64, from: &[u8]);

    /// Loads the eight bytes at `offset` as one little-endian word, with acquire ordering.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8, or as [`read`](Self::read).
    fn load(&self, offset: u64) -> u64;

    /// Stores `word` in little-endian order at `offset` as one atomic word, with release ordering.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    fn store(&self, offset: u64, word: u64);

    /// The memory itself as words, from which a real device takes the address it registers; the same slice at each call.
    /// `None` where there is no such memory (a simulated disk's image), which a real device refuses to register.
    ///
    /// A slice rather than a bare address, so that an implementation without `unsafe` cannot name memory that is not its own.
    fn words(&self) -> Option<&[AtomicU64]>;

    /// What lies behind it.
    fn backing(&self) -> Backing;
}

/// Memory on the heap, aligned to a page: notice rings, acknowledgement slots, tests.
#[derive(Debug)]
pub struct HeapMemory {
    words: Box<[AtomicU64]>,
    first: usize,
    count: usize,
}

impl HeapMemory {
    /// `bytes` zero bytes, aligned to [`PAGE_BYTES`].
    ///
    /// # Panics
    /// If `bytes` is not a multiple of 8, or the heap has no room.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).expect("the length fits the address space");
        assert!(bytes.is_multiple_of(WORD_BYTES), "length {bytes} is not a multiple of 8");
        let page = usize::try_from(PAGE_BYTES).expect("a page fits the address space");
        let count = bytes / WORD_BYTES;
        let words: Box<[AtomicU64]> = (0..count + page / WORD_BYTES).map(|_| AtomicU64::new(0)).collect();
        let first = (page - words.as_ptr().addr() % page) % page / WORD_BYTES;
        Self { words, first, count }
    }

    fn slice(&self) -> &[AtomicU64] {
        &self.words[self.first..self.first + self.count]
    }
}

impl Memory for HeapMemory {
    fn len(&self) -> u64 {
        u64::try_from(self.count * WORD_BYTES).expect("an address fits 64 bits")
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        copy_out(self.slice(), offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        copy_in(self.slice(), offset, from);
    }

    fn load(&self, offset: u64) -> u64 {
        let (word, skip) = place(self.slice(), offset, WORD_BYTES);
        assert!(skip == 0, "offset {offset} is not a multiple of 8");
        u64::from_le(self.slice()[word].load(Ordering::Acquire))
    }

    fn store(&self, offset: u64, value: u64) {
        let (word, skip) = place(self.slice(), offset, WORD_BYTES);
        assert!(skip == 0, "offset {offset} is not a multiple of 8");
        self.slice()[word].store(value.to_le(), Ordering::Release);
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        Some(self.slice())
    }

    fn backing(&self) -> Backing {
        Backing::Anonymous
    }
}

/// Position of `offset` as (word, byte inside it), after checking that `bytes` from there on are inside.
fn place(words: &[AtomicU64], offset: u64, bytes: usize) -> (usize, usize) {
    let len = words.len() * WORD_BYTES;
    let start = usize::try_from(offset).ok().filter(|start| *start <= len && bytes <= len - *start);
    let start = start.unwrap_or_else(|| panic!("{bytes} bytes at {offset} are not inside [0, {len})"));
    (start / WORD_BYTES, start % WORD_BYTES)
}

/// Copies bytes out of words that others change: [`Memory::read`] for memory that has [`words`](Memory::words).
///
/// # Panics
/// If the range is not inside the words.
pub fn copy_out(words: &[AtomicU64], offset: u64, into: &mut [u8]) {
    let (mut word, skip) = place(words, offset, into.len());
    let head = if skip == 0 { 0 } else { into.len().min(WORD_BYTES - skip) };
    let (head_bytes, rest) = into.split_at_mut(head);
    if head > 0 {
        head_bytes.copy_from_slice(&words[word].load(Ordering::Relaxed).to_ne_bytes()[skip..skip + head]);
        word += 1;
    }
    let mut whole = rest.chunks_exact_mut(WORD_BYTES);
    let source = &words[word..];
    for (bytes, from) in whole.by_ref().zip(source) {
        bytes.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        word += 1;
    }
    let tail = whole.into_remainder();
    if !tail.is_empty() {
        let len = tail.len();
        tail.copy_from_slice(&words[word].load(Ordering::Relaxed).to_ne_bytes()[..len]);
    }
}

/// Copies bytes into words that others change, and leaves the neighbours' bytes alone: [`Memory::write`] for memory that has
/// [`words`](Memory::words).
///
/// # Panics
/// If the range is not inside the words.
pub fn copy_in(words: &[AtomicU64], offset: u64, from: &[u8]) {
    let (mut word, skip) = place(words, offset, from.len());
    let head = if skip == 0 { 0 } else { from.len().min(WORD_BYTES - skip) };
    let (head_bytes, rest) = from.split_at(head);
    if head > 0 {
        splice(&words[word], skip, head_bytes);
        word += 1;
    }
    let whole = rest.chunks_exact(WORD_BYTES);
    let tail = whole.remainder();
    for (bytes, into) in whole.zip(&words[word..]) {
        let mut value = [0; WORD_BYTES];
        value.copy_from_slice(bytes);
        into.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        word += 1;
    }
    if !tail.is_empty() {
        splice(&words[word], 0, tail);
    }
}

/// Replaces some bytes of one word and leaves its neighbours' concurrent changes alone.
fn splice(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let mut value = seen.to_ne_bytes();
        value[skip..skip + bytes.len()].copy_from_slice(bytes);
        match word.compare_exchange_weak(
            seen,
            u64::from_ne_bytes(value),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn words(count: usize) -> Arc<Vec<AtomicU64>> {
        Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// Two agents write what meets inside a word, in any order of their steps: neither takes back the other's bytes.
    #[test]
    fn writers_that_meet_in_a_word_leave_each_other_alone() {
        loom::model(|| {
            let words = words(3);
            let other = Arc::clone(&words);
            let low = thread::spawn(move || copy_in(&other, 2, &[1; 8]));
            copy_in(&words, 10, &[2; 9]);
            low.join().unwrap();
            let mut found = [0; 24];
            copy_out(&words, 0, &mut found);
            assert_eq!(found[..2], [0; 2]);
            assert_eq!(found[2..10], [1; 8]);
            assert_eq!(found[10..19], [2; 9]);
            assert_eq!(found[19..], [0; 5]);
        });
    }

    /// A word that orders others: who reads it new reads what was written before it.
    #[test]
    fn what_was_written_before_a_word_is_there_with_it() {
        loom::model(|| {
            let words = words(3);
            let other = Arc::clone(&words);
            let writer = thread::spawn(move || {
                copy_in(&other, 4, &[7; 8]);
                other[2].store(1, Ordering::Release);
            });
            if words[2].load(Ordering::Acquire) == 1 {
                let mut found = [0; 8];
                copy_out(&words, 4, &mut found);
                assert_eq!(found, [7; 8]);
            }
            writer.join().unwrap();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_every_offset_and_length() {
        const LEN: usize = 72;
        let memory = HeapMemory::new(72);
        let mut model = vec![0u8; LEN];
        let mut next = 1u8;
        for start in 0..=LEN {
            for end in start..=LEN {
                let bytes: Vec<u8> = (start..end)
                    .map(|_| {
                        next = next.wrapping_mul(5).wrapping_add(3);
                        next
                    })
                    .collect();
                let offset = u64::try_from(start).unwrap();
                memory.write(offset, &bytes);
                model[start..end].copy_from_slice(&bytes);
                let mut whole = vec![0; LEN];
                memory.read(0, &mut whole);
                assert_eq!(whole, model, "written [{start}, {end})");
                let mut part = vec![0; end - start];
                memory.read(offset, &mut part);
                assert_eq!(part, bytes, "read [{start}, {end})");
            }
        }
    }

    #[test]
    fn words_are_little_endian_and_start_on_a_page() {
        let memory = HeapMemory::new(4096);
        memory.store(8, 0x0102_0304_0506_0708);
        let mut bytes = [0; 8];
        memory.read(8, &mut bytes);
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(memory.load(8), 0x0102_0304_0506_0708);
        let words = memory.words().unwrap();
        assert_eq!(words.len(), 512);
        assert!(words.as_ptr().addr().is_multiple_of(usize::try_from(PAGE_BYTES).unwrap()));
        assert_eq!(u64::from_le(words[1].load(Ordering::Relaxed)), 0x0102_0304_0506_0708);
    }

    #[test]
    fn writers_of_one_word_leave_each_others_bytes() {
        let memory = HeapMemory::new(8);
        std::thread::scope(|scope| {
            for at in 0..4u64 {
                let memory = &memory;
                scope.spawn(move || {
                    for round in 0..5000u32 {
                        let [low, high, ..] = round.to_le_bytes();
                        memory.write(2 * at, &[low, high]);
                        let mut seen = [0; 2];
                        memory.read(2 * at, &mut seen);
                        assert_eq!(seen, [low, high], "bytes {at} were changed by a neighbour");
                    }
                });
            }
        });
    }

    #[test]
    fn a_range_that_is_not_inside_is_the_callers_error() {
        let memory = HeapMemory::new(16);
        memory.read(16, &mut []);
        for (offset, bytes) in [(16, 1), (9, 8), (u64::MAX, 1), (0, 17)] {
            let read = || memory.read(offset, &mut vec![0; bytes]);
            assert!(std::panic::catch_unwind(read).is_err(), "{bytes} bytes at {offset}");
            let write = || memory.write(offset, &vec![0; bytes]);
            assert!(std::panic::catch_unwind(write).is_err(), "{bytes} bytes at {offset}");
        }
        assert!(std::panic::catch_unwind(|| memory.load(4)).is_err(), "not a word's place");
        assert!(std::panic::catch_unwind(|| memory.store(16, 1)).is_err(), "behind the end");
    }
}
