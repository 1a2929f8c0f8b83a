//! Where every choice of a run comes from.

/// A small generator: a seed is a run. The numbers are those of splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Of a million: what probabilities are given in.
pub const MILLION: u32 = 1_000_000;

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[from, to)`; `from` where that is empty.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        if to <= from { from } else { from + self.number() % (to - from) }
    }

    /// A place in something of this length, which is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.range(0, len)).unwrap_or(0)
    }

    /// Whether something of this probability, in millionths, happens. Nothing is drawn for what can't: a fault that is switched off
    /// changes no other choice.
    pub fn happens(&mut self, millionths: u32) -> bool {
        millionths > 0 && self.number() % u64::from(MILLION) < u64::from(millionths)
    }

    /// Whether something of this probability, in percent, happens.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }
}
