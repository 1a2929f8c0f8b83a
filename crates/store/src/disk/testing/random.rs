//! Chance after a loss of power.

use super::Survive;

/// What becomes of a page that was not flushed.
pub(super) enum Fate {
    Lost,
    Kept,
    Torn,
}

/// Decides what survives.
pub(super) struct Random {
    survive: Survive,
    state: u64,
}

impl Random {
    pub(super) fn new(survive: Survive) -> Random {
        let state = match survive {
            Survive::Nothing | Survive::Everything => 0,
            Survive::Seeded(seed) => seed,
        };
        Random { survive, state }
    }

    /// The next number of splitmix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn keeps(&mut self) -> bool {
        match self.survive {
            Survive::Nothing => false,
            Survive::Everything => true,
            Survive::Seeded(_) => self.next() & 1 == 0,
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
        }
    }
}
