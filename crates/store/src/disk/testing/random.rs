//! Chance after a loss of power.

use super::{Survive, Unit};

/// What becomes of a page that was not flushed.
pub(super) enum Fate {
    Lost,
    Kept,
    Torn,
}

/// Of eight units so many survive, by seed.
const KEPT_OF_EIGHT: [u64; 4] = [1, 4, 4, 7];

/// The next number of splitmix64 (Steele, Lea and Flood, 2014).
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Decides what survives.
pub(super) struct Random {
    survive: Survive,
    state: u64,
    /// How many questions were asked.
    asked: u32,
}

impl Random {
    pub(super) fn new(survive: Survive) -> Random {
        let state = match survive {
            Survive::Nothing | Survive::Everything | Survive::Chosen { .. } => 0,
            Survive::Seeded(seed) | Survive::By { seed, .. } => seed,
        };
        let mut random = Random { survive, state, asked: 0 };
        if let Survive::By { .. } = survive {
            // A power cut early or late in the device's work: some seeds keep little, some nearly everything.
            random.state = random.next();
        }
        random
    }

    /// How many questions were answered so far.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// Whether bytes that are the same on the medium need no question.
    pub(super) fn skips_equal(&self) -> bool {
        matches!(self.survive, Survive::By { .. } | Survive::Chosen { .. })
    }

    fn next(&mut self) -> u64 {
        next(&mut self.state)
    }

    pub(super) fn keeps(&mut self) -> bool {
        self.asked += 1;
        match self.survive {
            Survive::Nothing => false,
            Survive::Everything => true,
            Survive::Seeded(_) => self.next() & 1 == 0,
            Survive::By { seed, .. } => {
                self.next() % 8 < KEPT_OF_EIGHT[usize::try_from(seed % 4).expect("below four")]
            }
            Survive::Chosen { mask, .. } => mask >> (self.asked - 1).min(63) & 1 == 1,
        }
    }

    pub(super) fn fate(&mut self) -> Fate {
        match self.survive {
            Survive::Nothing => Fate::Lost,
            Survive::Everything => Fate::Kept,
            Survive::Seeded(_) => match self.next() % 3 {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => Fate::Torn,
            },
            Survive::By { unit: Unit::Sector, .. } | Survive::Chosen { unit: Unit::Sector, .. } => Fate::Torn,
            Survive::By { unit: Unit::Page, .. } | Survive::Chosen { unit: Unit::Page, .. } => {
                if self.keeps() { Fate::Kept } else { Fate::Lost }
            }
        }
    }
}
