//! The model of [`Memory`] for the model checker: each 8-byte word is an atomic and a tracked cell.
//!
//! A word is either used as an atomic or copied plainly, never both: the first use decides and a later one of the other sort
//! is a failure of the test. That is what the production code does too: a publish word is only ever loaded and stored, the
//! rest of a record only ever copied.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::Mutex;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

use crate::bytes::{index, length};
use crate::record::HEADER;

/// The model of the real `Memory`.
#[derive(Clone, Debug)]
pub struct Memory {
    words: Arc<Vec<Word>>,
    /// The part of `words` that this is.
    part: Range<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    None,
    Atomic,
    Plain,
}

#[derive(Debug)]
struct Word {
    atomic: AtomicU64,
    plain: UnsafeCell<[u8; 8]>,
    used: Mutex<Use>,
}

// SAFETY: `plain` is only reached through the tracked accesses of the model checker, which fails the test when two meet.
unsafe impl Sync for Word {}
// SAFETY: as above.
unsafe impl Send for Word {}

impl Word {
    fn claim(&self, wanted: Use) {
        let mut used = self.used.lock().expect("no test panics in here");
        assert!(*used == Use::None || *used == wanted, "a word is used both as an atomic and plainly");
        *used = wanted;
    }
}

impl Memory {
    /// Zeroed memory of this size, a multiple of 8.
    #[must_use]
    pub fn heap(bytes: u64) -> Memory {
        let word = || Word {
            atomic: AtomicU64::new(0),
            plain: UnsafeCell::new([0; 8]),
            used: Mutex::new(Use::None),
        };
        let words: Vec<Word> = (0..bytes / 8).map(|_| word()).collect();
        let part = 0..words.len();
        Memory { words: Arc::new(words), part }
    }

    /// A part of it, in whole words.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    #[must_use]
    pub fn slice(&self, offset: u64, bytes: u64) -> Memory {
        let start = self.part.start + index(offset / 8);
        let part = start..start + index(bytes / 8);
        assert!(part.end <= self.part.end, "a part outside the memory");
        Memory { words: Arc::clone(&self.words), part }
    }

    /// How many values share it.
    #[must_use]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.words)
    }

    fn words(&self) -> &[Word] {
        &self.words[self.part.clone()]
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        length(self.part.len()) * 8
    }

    /// Copies `source` to `offset`.
    ///
    /// # Panics
    ///
    /// If the range is outside, or an access of another thread meets this one.
    pub fn copy_in(&self, offset: u64, source: &[u8]) {
        let mut at = index(offset);
        let mut source = source;
        while !source.is_empty() {
            let (now, rest) = source.split_at(source.len().min(8 - at % 8));
            let word = &self.words()[at / 8];
            word.claim(Use::Plain);
            let place = at % 8..at % 8 + now.len();
            // SAFETY: the model checker fails the test if another access meets this one.
            word.plain.with_mut(|bytes| unsafe { (&mut *bytes)[place].copy_from_slice(now) });
            at += now.len();
            source = rest;
        }
    }

    /// Copies a record to `offset` but for its publish word.
    pub(super) fn copy_record_in(&self, offset: u64, header: &[u8; HEADER - 8], payload: &[u8]) {
        let filled = offset + length(HEADER + payload.len());
        self.copy_in(offset + 8, header);
        self.copy_in(offset + length(HEADER), payload);
        self.zero(filled, filled.next_multiple_of(8) - filled);
    }

    /// Copies from `offset` into `into`.
    ///
    /// # Panics
    ///
    /// If the range is outside, or a write of another thread meets this one.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) {
        let mut at = index(offset);
        let mut into = into;
        while !into.is_empty() {
            let bytes = into.len().min(8 - at % 8);
            let (now, rest) = into.split_at_mut(bytes);
            let word = &self.words()[at / 8];
            word.claim(Use::Plain);
            let place = at % 8..at % 8 + bytes;
            // SAFETY: the model checker fails the test if a write meets this read.
            word.plain.with(|bytes| unsafe { now.copy_from_slice(&(&*bytes)[place]) });
            at += bytes;
            into = rest;
        }
    }

    /// Sets `bytes` bytes from `offset` to zero.
    pub fn zero(&self, offset: u64, bytes: u64) {
        for at in offset..offset + bytes {
            self.copy_in(at, &[0]);
        }
    }

    /// The word at `offset`, loaded with this ordering.
    #[must_use]
    pub fn load_u64(&self, offset: u64, ordering: Ordering) -> u64 {
        let word = &self.words()[index(offset / 8)];
        word.claim(Use::Atomic);
        word.atomic.load(ordering)
    }

    /// Stores the word at `offset` with this ordering.
    pub fn store_u64(&self, offset: u64, value: u64, ordering: Ordering) {
        let word = &self.words()[index(offset / 8)];
        word.claim(Use::Atomic);
        word.atomic.store(value, ordering);
    }
}
