//! The pace of a scrub: how much is read when, so that a log's cold segments are gone through again and again at a rate that disturbs nobody. And what it counts.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_log::{Geometry, Lsn};
use windlass_store::ScrubPlace;

use crate::metrics::Counter;

/// The rate of a scrub where nothing else is said: 1 MiB a second, a percent of what a slow disk gives. 64 GiB take 18 hours.
pub(crate) const BYTES_PER_SECOND: u64 = 1 << 20;
/// The most that is read in one go.
const PIECE_BYTES_MAX: u64 = 256 << 10;
const PIECE_BYTES_MIN: u64 = 4 << 10;
/// From the end of a pass to the next one, at least.
const PAUSE_NS: u64 = 1_000_000_000;
/// How long a part of the medium that can't be read is left alone.
pub(crate) const FAILED_NS: u64 = 10_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Where a pass stands and when it goes on. Times are nanoseconds of the caller's clock.
#[derive(Debug)]
pub(crate) struct Pace {
    /// 0: nothing is read.
    bytes_per_second: u64,
    place: ScrubPlace,
    /// Read in this pass.
    bytes: u64,
    due_at: u64,
    /// A failure was told of in this pass.
    has_failed: bool,
    /// Where the last piece could not be read.
    failed_at: Option<Lsn>,
}

/// What a piece that could not be read leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// It is read again later. Whether it is the first failure of this pass.
    Later { is_first: bool },
    /// It is the second failure there: the rest of the segment is left to the next pass, and this one goes on behind it.
    PassedOver { from: Lsn, to: Lsn },
}

impl Pace {
    pub(crate) fn new(bytes_per_second: u64) -> Pace {
        Pace {
            bytes_per_second,
            place: ScrubPlace::new(Lsn(0)),
            bytes: 0,
            due_at: 0,
            has_failed: false,
            failed_at: None,
        }
    }

    pub(crate) fn due_at(&self) -> Option<u64> {
        (self.bytes_per_second > 0).then_some(self.due_at)
    }

    /// What to read now, if it is time: from where, and about how much.
    pub(crate) fn next(&mut self, now: u64, trimmed: Lsn) -> Option<(ScrubPlace, u64)> {
        if self.bytes_per_second == 0 || now < self.due_at {
            return None;
        }
        if self.place.lsn() < trimmed {
            self.place = ScrubPlace::new(trimmed);
        }
        // About four pieces a second.
        let bytes = (self.bytes_per_second / 4).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Some((self.place, bytes))
    }

    /// So much was read, and the pass goes on there.
    pub(crate) fn read(&mut self, now: u64, place: ScrubPlace, bytes: u64) {
        self.place = place;
        self.bytes += bytes;
        self.due_at = now + self.pause_ns(bytes.max(PIECE_BYTES_MIN));
    }

    /// The end is reached. Whether anything was read in this pass.
    pub(crate) fn ended(&mut self, now: u64, bytes: u64) -> bool {
        let is_pass = self.bytes + bytes > 0;
        self.place = ScrubPlace::new(Lsn(0));
        (self.bytes, self.has_failed, self.failed_at) = (0, false, None);
        self.due_at = now + self.pause_ns(bytes).max(PAUSE_NS);
        is_pass
    }

    /// The log is another than it was: what is known of it is forgotten, and the pass begins again.
    pub(crate) fn restart(&mut self) {
        self.place = ScrubPlace::new(Lsn(0));
        self.failed_at = None;
    }

    /// The piece that [`Pace::next`] gave can't be read: later again, and after the second time at the same place the pass goes on at the next segment.
    /// One bad sector does not keep what lies behind it from being checked.
    pub(crate) fn failed(&mut self, now: u64, geometry: Geometry) -> Failed {
        let from = self.place.lsn();
        if self.failed_at.replace(from) != Some(from) {
            let is_first = self.delay(now);
            return Failed::Later { is_first };
        }
        let to = geometry.first_record(geometry.segment_of(geometry.normalize(from)) + 1);
        self.read(now, ScrubPlace::new(to), 0);
        Failed::PassedOver { from, to }
    }

    /// Something beside the pass can't be read: the pass waits as well, where it is. Whether it is the first failure of this pass.
    pub(crate) fn delay(&mut self, now: u64) -> bool {
        self.due_at = now + FAILED_NS;
        !std::mem::replace(&mut self.has_failed, true)
    }

    fn pause_ns(&self, bytes: u64) -> u64 {
        u64::try_from(u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.bytes_per_second.max(1)))
            .unwrap_or(u64::MAX)
    }
}

/// What a scrub counts.
#[derive(Debug, Default)]
pub(crate) struct ScrubMeters {
    pub(crate) bytes: Counter,
    pub(crate) passes: Counter,
    pub(crate) failures: Counter,
    pub(crate) passed_over: Counter,
    pub(crate) damage_found: Counter,
    pub(crate) damage_repaired: Counter,
    passed_at: Mutex<Option<Instant>>,
}

/// What was read and checked of a log's cold segments, and found in them, since the opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ScrubMetrics {
    /// Bytes that were checked.
    pub bytes: u64,
    /// Passes over everything that was cold, but for what could not be read: `passed_over`.
    pub passes: u64,
    /// How long ago the last one ended, if there was one.
    pub since_pass: Option<Duration>,
    /// Pieces that could not be read: the medium answered with an error.
    pub failures: u64,
    /// Times that a pass left the rest of a segment out, because it could not be read twice in a row. The next pass tries again.
    pub passed_over: u64,
    /// Damaged ranges found: by the opening, by readers, by scrubbing.
    pub damage_found: u64,
    /// Times that a member of a group was whole again after damage.
    pub damage_repaired: u64,
}

impl ScrubMeters {
    pub(crate) fn pass_ended(&self) {
        self.passes.add(1);
        *self.passed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(crate) fn snapshot(&self) -> ScrubMetrics {
        let passed_at = *self.passed_at.lock().unwrap_or_else(PoisonError::into_inner);
        ScrubMetrics {
            bytes: self.bytes.value(),
            passes: self.passes.value(),
            since_pass: passed_at.map(|at| at.elapsed()),
            failures: self.failures.value(),
            passed_over: self.passed_over.value(),
            damage_found: self.damage_found.value(),
            damage_repaired: self.damage_repaired.value(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_begins_again_in_a_log_that_was_cut_or_began_anew() {
        let mut pace = Pace::new(1 << 20);
        pace.read(0, ScrubPlace::new(Lsn(300_000)), 100);
        pace.restart();
        // The chain that was known at 300,000 is of what was there before.
        assert_eq!(pace.next(1_000_000_000, Lsn(4096)).unwrap().0, ScrubPlace::new(Lsn(4096)));
    }

    #[test]
    fn a_pass_goes_on_behind_a_segment_that_fails_twice_and_comes_back_to_it_kind_7() {
        let (geometry, mut pace) = (Geometry::new(64 << 10).unwrap(), Pace::new(1 << 20));
        let at = |lsn| ScrubPlace::new(Lsn(lsn));
        let mut now = 0;
        for _pass in 0..2 {
            pace.read(now, at(70_000), 100);
            assert_eq!(pace.failed(now, geometry), Failed::Later { is_first: true });
            assert_eq!(pace.next(now + FAILED_NS - 1, Lsn(4096)), None, "left alone for a while");
            now += FAILED_NS;
            assert_eq!(pace.next(now, Lsn(4096)).unwrap().0, at(70_000));
            let to = Lsn((128 << 10) + 4096);
            assert_eq!(pace.failed(now, geometry), Failed::PassedOver { from: Lsn(70_000), to });
            now += SECOND_NS;
            assert_eq!(pace.next(now, Lsn(4096)).unwrap().0, ScrubPlace::new(to), "no chain is known there");
            // Each place has its two trials, and is told of once.
            assert_eq!(pace.failed(now, geometry), Failed::Later { is_first: false });
            pace.read(now, at(200_000), 100);
            assert_eq!(pace.failed(now, geometry), Failed::Later { is_first: false });
            // What somebody else looks at counts for no place.
            assert!(!pace.delay(now));
            now += FAILED_NS;
            assert_eq!(pace.next(now, Lsn(4096)).unwrap().0, at(200_000));
            assert!(pace.ended(now, 0));
            now += SECOND_NS;
            assert_eq!(pace.next(now, Lsn(4096)).unwrap().0, at(4096));
        }
    }

    #[test]
    fn the_rate_is_kept_and_a_pass_begins_again_at_the_trim_point() {
        let mut pace = Pace::new(1 << 20);
        let (place, bytes) = pace.next(0, Lsn(4096)).unwrap();
        assert_eq!((place.lsn(), bytes), (Lsn(4096), 256 << 10));
        pace.read(0, ScrubPlace::new(Lsn(300_000)), 256 << 10);
        assert_eq!(pace.next(249_999_999, Lsn(4096)), None);
        assert_eq!(pace.next(250_000_000, Lsn(4096)).unwrap().0.lsn(), Lsn(300_000));
        assert_eq!(pace.next(250_000_000, Lsn(400_000)).unwrap().0.lsn(), Lsn(400_000));
        assert!(pace.ended(250_000_000, 100));
        assert_eq!(pace.next(1_249_999_999, Lsn(4096)), None, "a pass at most each second");
        assert_eq!(pace.next(1_250_000_000, Lsn(4096)).unwrap().0.lsn(), Lsn(4096));
        assert!(!pace.ended(1_250_000_000, 0), "nothing was cold");
        assert_eq!(Pace::new(0).next(u64::MAX, Lsn(4096)), None);
    }
}
