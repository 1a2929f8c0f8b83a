//! How far ahead of the log's tail a device is asked to bring in memory that it takes in on demand. Otherwise the first transfer with
//! each page waits for a fault, which costs a device from microseconds to milliseconds.

use std::ops::Range;

use windlass_fabric::Region;

/// Bytes that are asked for ahead of the tail; asked again when half of it is used up, so that it is one call for each few MiB.
const AHEAD_BYTES: u64 = 4 << 20;

/// What was asked for of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefetched {
    up_to: u64,
}

impl Prefetched {
    /// What is to be asked for now that the tail is there; `end` is the segment's.
    fn next(self, tail: u64, end: u64) -> Option<Range<u64>> {
        let goal = (tail + AHEAD_BYTES).min(end);
        let start = self.up_to.max(tail);
        let is_enough = start >= goal || (goal < end && start >= tail + AHEAD_BYTES / 2);
        (!is_enough).then_some(start..goal)
    }

    /// Asks, if it is time to. `is_taken` is whether the device takes such advice, as far as is known: once it declines, nobody asks
    /// again.
    pub(crate) fn ask(&mut self, region: &impl Region, tail: u64, end: u64, is_taken: &mut bool) {
        if let Some(range) = self.next(tail, end).filter(|_| *is_taken) {
            self.up_to = range.end;
            *is_taken = region.prefetch(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn it_is_asked_for_in_steps_and_never_past_the_end() {
        let mut prefetched = Prefetched::default();
        let mut step = |tail| {
            let range = prefetched.next(tail, 10 * MIB);
            prefetched.up_to = range.clone().map_or(prefetched.up_to, |range| range.end);
            range
        };
        assert_eq!(step(4096), Some(4096..4 * MIB + 4096));
        assert_eq!(step(MIB), None, "there is enough");
        assert_eq!(step(3 * MIB), Some(4 * MIB + 4096..7 * MIB), "half is used up");
        assert_eq!(step(5 * MIB + 1), Some(7 * MIB..9 * MIB + 1));
        assert_eq!(step(8 * MIB), Some(9 * MIB + 1..10 * MIB), "the last bytes of the segment");
        assert_eq!(step(9 * MIB), None);
        assert_eq!(step(10 * MIB), None);
    }

    #[test]
    fn what_was_jumped_over_is_not_asked_for() {
        let prefetched = Prefetched { up_to: MIB };
        assert_eq!(prefetched.next(6 * MIB, 64 * MIB), Some(6 * MIB..10 * MIB));
    }
}
