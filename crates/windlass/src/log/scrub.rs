//! The scrub of a lone log: a thread of its own reads and checks cold segments at a low rate, or whoever steps the log does. What it finds is told; nobody can make it good.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use slog::warn;
use windlass_store::{Damage, ScrubPlace, Scrubbed};

use super::Log;
use super::shared::{Shared, locked};
use crate::driver::nanos;
use crate::scrub::{Failed, Pace};

/// Damaged ranges that are remembered.
const DAMAGE_MAX: usize = 64;
/// How often the thread looks whether there is something to do, at the least.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the scrub remembers.
#[derive(Debug)]
pub(crate) struct LoneScrub {
    state: Mutex<State>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// Somebody reads the next piece, without the lock: the medium may take its time.
    is_reading: bool,
    damage: Vec<Damage>,
}

impl LoneScrub {
    pub(crate) fn new(bytes_per_second: u64) -> LoneScrub {
        let state = State { pace: Pace::new(bytes_per_second), is_reading: false, damage: Vec::new() };
        LoneScrub { state: Mutex::new(state), stop: Mutex::new(false), stopped: Condvar::new() }
    }

    pub(crate) fn stop(&self) {
        *locked(&self.stop) = true;
        self.stopped.notify_all();
    }

    /// Sleeps; `true` once it is to end.
    fn pause(&self, longest: Duration) -> bool {
        let stop = locked(&self.stop);
        let woken = self.stopped.wait_timeout_while(stop, longest, |stop| !*stop);
        *woken.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Shared {
    /// Reads the next piece if one is due. Whether anything was read.
    pub(crate) fn step_scrub(&self) -> bool {
        if !self.is_settled() || self.failure().is_some() {
            return false;
        }
        let now = nanos(self.clock.now());
        let (place, bytes_max) = {
            let mut state = locked(&self.scrub.state);
            if state.is_reading {
                return false;
            }
            let Some(next) = state.pace.next(now, self.media.trimmed()) else { return false };
            state.is_reading = true;
            next
        };
        let scrubbed = self.media.scrub(place, bytes_max);
        let mut state = locked(&self.scrub.state);
        state.is_reading = false;
        let meters = &self.meters.scrub;
        match scrubbed {
            Ok(Scrubbed::Whole { next, bytes }) => {
                meters.bytes.add(bytes);
                state.pace.read(now, next, bytes);
            }
            Ok(Scrubbed::End { bytes }) => {
                meters.bytes.add(bytes);
                if state.pace.ended(now, bytes) {
                    meters.pass_ended();
                }
                return bytes > 0;
            }
            Ok(Scrubbed::Damaged(damage)) => {
                state.pace.read(now, ScrubPlace::new(damage.end), 0);
                let is_new = state.damage.iter().all(|known| known.start != damage.start);
                if is_new && state.damage.len() < DAMAGE_MAX {
                    meters.damage_found.add(1);
                    warn!(self.logger, "damage in what was on the medium: restore the file from a copy, or see by a dry run of `windlass::store::repair` what can be kept";
                        "file" => %damage.file.display(), "offset" => damage.offset, "lsn" => %damage.start,
                        "to" => %damage.end, "cause" => %damage.reason);
                    state.damage.push(damage);
                }
            }
            Err(error) => {
                meters.failures.add(1);
                match state.pace.failed(now, self.media.geometry()) {
                    Failed::Later { is_first: false } => {}
                    Failed::Later { is_first: true } => {
                        warn!(self.logger, "a part of the log can't be read from the medium: is its disk failing? copy the log elsewhere";
                            "cause" => %error);
                    }
                    Failed::PassedOver { from, to } => {
                        meters.passed_over.add(1);
                        warn!(self.logger, "a part of the log can't be read from the medium, again: the rest of its segment is not checked in this pass; copy the log elsewhere";
                            "lsn" => %from, "to" => %to, "cause" => %error);
                    }
                }
            }
        }
        true
    }

    /// The thread's body.
    pub(crate) fn run_scrub(self: &Arc<Shared>) {
        loop {
            self.step_scrub();
            let due_at = locked(&self.scrub.state).pace.due_at();
            let now = nanos(self.clock.now());
            let pause = due_at.map_or(PAUSE_MAX, |at| Duration::from_nanos(at.saturating_sub(now)));
            // Not at once in a log that is being read for the first time.
            if self.scrub.pause(pause.clamp(Duration::from_millis(1), PAUSE_MAX)) {
                return;
            }
        }
    }
}

impl Log {
    /// Damage that the scrub has found in cold segments since the opening, oldest first, at most 64 ranges: records that were on the medium and can't be read any
    /// more. A copy of the file can be put back, or see what [`store::repair`](crate::store::repair) can keep. Of a primary's log it is empty: its node tells of damage, and its peers repair it.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.shared.scrub.state).damage.clone()
    }

    /// Reads and checks the next piece of cold segments if one is due, for a log without threads ([`crate::Options::threads`]). Whether anything was read. A log with threads does
    /// this by itself.
    pub fn step_scrub(&self) -> bool {
        self.shared.step_scrub()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use windlass_log::LogId;
    use windlass_store::disk::testing::TestDisk;

    use super::*;
    use crate::clock::Clock;
    use crate::{AppendError, Level, Options, Place, Surroundings};

    #[derive(Clone, Debug, Default)]
    struct Hand(Arc<AtomicU64>);

    impl Clock for Hand {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::Relaxed))
        }
    }

    /// A log of some segments, and the starts of its records.
    fn filled(disk: &TestDisk, clock: &Hand) -> (Log, Vec<windlass_log::Lsn>) {
        filled_with(disk, clock, Options::new())
    }

    fn filled_with(disk: &TestDisk, clock: &Hand, options: Options) -> (Log, Vec<windlass_log::Lsn>) {
        let around = Surroundings { boot_id: [1; 16], incarnation: 1 };
        let place =
            Place { disk: disk.clone(), around, log_id: LogId([3; 16]), clock: Box::new(clock.clone()) };
        let options = options.segment_bytes(64 << 10).threads(false);
        let log = Log::create_in(place, options).unwrap();
        let mut starts = Vec::new();
        while starts.len() < 300 {
            match log.append(&[7; 1000]) {
                Ok(appended) => starts.push(appended.start),
                Err(AppendError::NotReady { .. }) => {
                    let _ = log.step();
                }
                Err(error) => panic!("{error}"),
            }
        }
        let _committed = log.commit_blocking(log.info().tail, Level::Local).unwrap();
        (log, starts)
    }

    /// Steps until a pass has ended.
    fn pass(log: &Log, clock: &Hand) {
        let before = log.metrics().scrub.passes;
        for _ in 0..10_000 {
            if log.metrics().scrub.passes > before {
                return;
            }
            log.step_scrub();
            clock.0.fetch_add(100_000_000, Ordering::Relaxed);
        }
        panic!("no pass ends: {:?}", log.metrics().scrub);
    }

    /// As if there were nothing else to do: steps through two seconds. How much is read in them.
    fn read_in_two_seconds(options: Options) -> u64 {
        let (disk, clock) = (TestDisk::new(), Hand::default());
        let (log, _) = filled_with(&disk, &clock, options);
        for _ in 0..200 {
            clock.0.fetch_add(10_000_000, Ordering::Relaxed);
            log.step_scrub();
        }
        log.metrics().scrub.bytes
    }

    #[test]
    fn a_log_is_read_at_the_rate_that_its_options_say_and_not_at_all_at_none() {
        for rate in [20_000, 60_000] {
            let read = read_in_two_seconds(Options::new().scrub_bytes_per_second(rate));
            // In pieces of a quarter of a second.
            assert!(read.abs_diff(2 * rate) <= rate / 2, "{read} bytes at {rate} a second");
        }
        assert_eq!(read_in_two_seconds(Options::new().scrub_bytes_per_second(0)), 0);
    }

    #[test]
    fn nobody_who_asks_for_damage_waits_for_the_medium() {
        let (disk, clock) = (TestDisk::new(), Hand::default());
        let (log, _) = filled(&disk, &clock);
        let asked = Arc::new(Mutex::new(None));
        let (here, there) = (log.clone(), Arc::clone(&asked));
        disk.before_read(move || {
            let is_free = here.shared.scrub.state.try_lock().is_ok();
            // Nor does another one read the same piece meanwhile.
            *locked(&there) = Some((is_free, here.step_scrub()));
        });
        clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
        assert!(log.step_scrub());
        assert_eq!(*locked(&asked), Some((true, false)));
        assert!(log.damage().is_empty());
    }

    #[test]
    fn a_bad_sector_keeps_nothing_behind_it_from_being_checked_kind_7() {
        let (disk, clock) = (TestDisk::new(), Hand::default());
        let (log, starts) = filled(&disk, &clock);
        let file = |lsn: windlass_log::Lsn| format!("{:016x}.segment", lsn.0 >> 16 << 16);
        let (bad, hurt) = (starts[70], starts[200]);
        assert!(bad.0 >> 16 < hurt.0 >> 16, "segments of their own");
        disk.spoil(&file(bad), bad.0 % (64 << 10));
        pass(&log, &clock);
        let first = log.metrics().scrub;
        assert!(log.damage().is_empty(), "what can't be read is no damage");
        assert_eq!((first.failures, first.passed_over), (2, 1), "{first:?}");
        disk.rot(&file(hurt), hurt.0 % (64 << 10) + 500, 1);
        pass(&log, &clock);
        assert_eq!(log.damage().iter().map(|damage| damage.start).collect::<Vec<_>>(), [hurt]);
        assert_eq!(log.metrics().scrub.passed_over, 2, "each pass comes back to it");
        assert!(log.metrics().to_prometheus("").contains("windlass_scrub_passed_over_total 2\n"));
        disk.unspoil();
        let before = log.metrics().scrub;
        pass(&log, &clock);
        let after = log.metrics().scrub;
        assert_eq!((after.failures, after.passed_over), (before.failures, 2));
        assert!(after.bytes - before.bytes > first.bytes, "all of it: {after:?}");
    }

    #[test]
    fn what_rots_in_a_cold_segment_of_a_lone_log_is_told_once_with_its_place() {
        let (disk, clock) = (TestDisk::new(), Hand::default());
        let (log, starts) = filled(&disk, &clock);
        pass(&log, &clock);
        let whole = log.metrics().scrub;
        assert!(
            log.damage().is_empty() && whole.damage_found == 0 && whole.since_pass.is_some(),
            "{whole:?}"
        );
        assert!(whole.bytes > 3 * (60 << 10), "{whole:?}");
        let hurt = starts[100];
        disk.rot(&format!("{:016x}.segment", hurt.0 >> 16 << 16), hurt.0 % (64 << 10) + 500, 1);
        pass(&log, &clock);
        pass(&log, &clock);
        let damage = log.damage();
        assert_eq!((damage.len(), damage[0].start, damage[0].end), (1, hurt, starts[101]), "{damage:?}");
        assert_eq!(log.metrics().scrub.damage_found, 1, "told once");
        assert!(log.metrics().to_prometheus("").contains("windlass_damage_found_total 1\n"));
        // Appending goes on.
        let _ = log.append(&[8; 10]).unwrap();
    }
}
