//! Numbers for contents, and hashes.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// Two hashes of a text that is never held.
#[derive(Default)]
struct TextHash(std::hash::DefaultHasher, u64);

impl Write for TextHash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        for byte in text.bytes() {
            self.1 = (self.1 ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        Ok(())
    }
}

/// Numbers values by what they show of themselves: all types here derive `Debug`, so that is all of them.
#[derive(Clone)]
pub(super) struct Numbered<T> {
    /// None where everything gets a number of its own: on a single walk little comes twice.
    known: Option<HashMap<(u64, u64), u32>>,
    /// None: it was taken out.
    values: Vec<Option<Rc<T>>>,
}

impl<T: Clone + Debug> Numbered<T> {
    pub(super) fn new(merges: bool) -> Numbered<T> {
        Numbered { known: merges.then(HashMap::new), values: Vec::new() }
    }

    pub(super) fn number(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.values.len()).expect("fewer than 2^32 different values");
        let Some(known) = &mut self.known else {
            self.values.push(Some(Rc::new(value)));
            return next;
        };
        let mut hash = TextHash::default();
        write!(hash, "{value:?}").expect("a hash takes any text");
        let values = &mut self.values;
        *known.entry((hash.0.finish(), hash.1)).or_insert_with(|| {
            values.push(Some(Rc::new(value)));
            next
        })
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn get(&self, number: u32) -> &Rc<T> {
        self.values[number as usize].as_ref().expect("what is behind a walk is not looked at again")
    }

    /// To be changed: a copy, or on a walk, which never comes back to it, the thing itself.
    pub(super) fn take(&mut self, number: u32) -> T {
        if self.known.is_some() {
            return T::clone(self.get(number));
        }
        Rc::unwrap_or_clone(self.values[number as usize].take().expect("taken once"))
    }

    /// By number what everything shows of itself, where that is kept.
    pub(super) fn contents(&self) -> HashMap<u32, (u64, u64)> {
        self.known.iter().flatten().map(|(content, number)| (*number, *content)).collect()
    }
}

/// For keys that are few words.
#[derive(Default)]
pub(super) struct WordHash(u64);

impl Hasher for WordHash {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (self.0 >> 32)
    }
}

pub(super) type Words = BuildHasherDefault<WordHash>;

/// 128 bits of a sequence of words.
pub(super) struct Fingerprint(u64, u64);

impl Fingerprint {
    pub(super) fn new() -> Fingerprint {
        Fingerprint(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344)
    }

    pub(super) fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
        self.1 = (self.1.rotate_left(27) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.1 ^= self.1 >> 32;
    }

    pub(super) fn finish(self) -> (u64, u64) {
        let mix = |word: u64| {
            let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        };
        (mix(self.0), mix(self.1))
    }
}
