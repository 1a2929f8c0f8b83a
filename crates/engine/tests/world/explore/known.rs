//! What was come to, and what is still to be looked at, in little memory: 9 to 18 bytes for a state that is known and 5 for how it
//! was come to, some 60 more while it waits.

use std::collections::VecDeque;

use super::world::World;

/// The states that were come to, each by 76 bits of a hash: 12 say which table, 64 are in it.
pub(super) struct Known {
    tables: Vec<Table>,
    count: usize,
}

/// Open addressing; 0 is no entry.
struct Table {
    slots: Vec<u64>,
    used: usize,
}

const TABLES: usize = 1 << 12;

impl Known {
    pub(super) fn new() -> Known {
        Known { tables: (0..TABLES).map(|_| Table { slots: vec![0; 8], used: 0 }).collect(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether it is new.
    pub(super) fn insert(&mut self, (which, word): (u64, u64)) -> bool {
        let is_new = self.tables[which as usize % TABLES].insert(word.max(1));
        self.count += usize::from(is_new);
        is_new
    }
}

impl Table {
    fn insert(&mut self, word: u64) -> bool {
        if self.used * 8 >= self.slots.len() * 7 {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![0; old.len() * 2];
            old.into_iter().filter(|word| *word != 0).for_each(|word| _ = self.put(word));
        }
        let is_new = self.put(word);
        self.used += usize::from(is_new);
        is_new
    }

    fn put(&mut self, word: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = word as usize & mask;
        while self.slots[at] != 0 {
            if self.slots[at] == word {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = word;
        true
    }
}

/// How each state was come to: from which, and by which of its events.
pub(super) struct Ways {
    from: Vec<u32>,
    by: Vec<u8>,
}

impl Ways {
    /// The first state is number 0.
    pub(super) fn new() -> Ways {
        Ways { from: vec![0], by: vec![0] }
    }

    /// The next state's number.
    pub(super) fn push(&mut self, from: u32, by: u8) -> u32 {
        let number = u32::try_from(self.from.len()).expect("fewer than 2^32 states");
        self.from.push(from);
        self.by.push(by);
        number
    }

    /// Which event to take at each state on the way from the first to this one.
    pub(super) fn to(&self, mut number: u32) -> Vec<u8> {
        let mut way = Vec::new();
        while number != 0 {
            way.push(self.by[number as usize]);
            number = self.from[number as usize];
        }
        way.reverse();
        way
    }
}

/// States that wait, in order, packed.
#[derive(Default)]
pub(super) struct Queue {
    blocks: VecDeque<Vec<u8>>,
    read: usize,
}

const BLOCK_BYTES: usize = 1 << 20;

impl Queue {
    pub(super) fn push(&mut self, number: u32, world: &World) {
        if self.blocks.back().is_none_or(|block| block.len() + 4096 > BLOCK_BYTES) {
            self.blocks.push_back(Vec::with_capacity(BLOCK_BYTES));
        }
        let block = self.blocks.back_mut().expect("pushed");
        block.extend_from_slice(&number.to_le_bytes());
        world.pack(block);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The oldest, into `world`, and its number.
    pub(super) fn pop(&mut self, world: &mut World) -> Option<u32> {
        let block = self.blocks.front()?;
        let mut rest = &block[self.read..];
        let (number, behind) = rest.split_first_chunk::<4>().expect("packed here");
        let number = u32::from_le_bytes(*number);
        rest = behind;
        world.unpack(&mut rest);
        self.read = block.len() - rest.len();
        if rest.is_empty() {
            self.blocks.pop_front();
            self.read = 0;
        }
        Some(number)
    }
}
