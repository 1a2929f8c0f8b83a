//! The crash sweep: a life of a log, stopped at every call that changes or flushes something, with what was not flushed lost, kept, or lost, kept and torn
//! by seed; and killed there with the page cache kept. After each, the log must open with everything acknowledged, nothing altered, nothing of what was
//! cut, however often opening itself is interrupted (I-7, kinds 1, 4, 6, 10, 15, 27 to 30, 34, 42 to 46).

use std::sync::Arc;

use windlass_log::{Epoch, Lsn, MemberId};

use super::payload;
use super::testlog::{AROUND, TestLog, hand_off, options};
use crate::disk::testing::{Survive, TestDisk};
use crate::{OpenError, Options, Read, Store, Vouch};

/// What a crash must leave.
#[derive(Default)]
struct Oracle {
    /// Start and number of every record that was appended and not cut, in order.
    appended: Vec<(Lsn, u32)>,
    /// The same before the cut that is under way.
    before_cut: Option<Vec<(Lsn, u32)>>,
    /// Everything below was acknowledged as durable.
    acknowledged: Lsn,
    /// The trim point is at least and at most here.
    trimmed: (Lsn, Lsn),
    created: bool,
    /// The promise is at least this one.
    promised: Epoch,
    next: u32,
}

/// The power went while the log lived.
struct Gone(String);

fn gone<E: std::fmt::Display>(error: E) -> Gone {
    Gone(error.to_string())
}

struct Life<'o> {
    oracle: &'o mut Oracle,
    log: TestLog<TestDisk>,
}

impl Life<'_> {
    fn append(&mut self, count: u32) -> Result<(), Gone> {
        for _ in 0..count {
            let number = self.oracle.next;
            self.oracle.next += 1;
            let appended = self.log.append(&payload(number * 5 + 6)).map_err(gone)?;
            self.oracle.appended.push((appended.start, number * 5 + 6));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let persisted = self.log.flush().map_err(gone)?;
        self.oracle.acknowledged = self.oracle.acknowledged.max(persisted.lsn());
        Ok(())
    }

    fn trim(&mut self, keep: usize) -> Result<(), Gone> {
        let lsn = self.oracle.appended[self.oracle.appended.len() - keep].0;
        self.oracle.trimmed.1 = lsn;
        self.log.handoff.retire();
        self.log.store.trim(lsn, self.log.handoff.drained()).map_err(gone)?;
        self.oracle.trimmed.0 = lsn;
        Ok(())
    }

    fn cut(&mut self, back: usize) -> Result<(), Gone> {
        let lsn = self.oracle.appended[self.oracle.appended.len() - back].0;
        self.log.handoff.seal();
        self.log.drain();
        self.oracle.before_cut = Some(self.oracle.appended.clone());
        self.oracle.appended.retain(|record| record.0 < lsn);
        let acknowledged = self.oracle.acknowledged;
        self.oracle.acknowledged = acknowledged.min(lsn);
        let superblock = self.log.store.superblock();
        let epoch = superblock.promised.next_for(MemberId(0));
        let mut history = superblock.history;
        history.cut(lsn);
        history.extend(epoch, lsn).unwrap();
        let store = Arc::clone(&self.log.store);
        store.cut(lsn, history, epoch).map_err(gone)?;
        self.oracle.before_cut = None;
        let key = windlass_log::Salt::new(store.log_id()).key(epoch);
        let (handoff, drain) = hand_off(&store, lsn, epoch, windlass_log::Chain::begin(&key, lsn));
        self.log.handoff = handoff;
        self.log.drain = drain;
        Ok(())
    }

    fn promise(&mut self) -> Result<(), Gone> {
        let epoch = self.log.store.superblock().promised.next_for(MemberId(3));
        self.log.store.update(|superblock| superblock.promised = epoch).map_err(gone)?;
        self.oracle.promised = epoch;
        Ok(())
    }
}

/// Create, append over several segments, roll over, promise, trim, recycle, cut, close, open, and go on.
fn live(disk: &TestDisk, oracle: &mut Oracle) -> Result<(), Gone> {
    oracle.trimmed = (Lsn(4096), Lsn(4096));
    let log = TestLog::try_create(disk.clone()).map_err(gone);
    oracle.created = log.is_ok();
    let log = log?.map_err(gone)?;
    let mut life = Life { oracle, log };
    life.append(30)?;
    life.flush()?;
    life.append(40)?;
    life.promise()?;
    life.flush()?;
    life.append(3)?;
    life.cut(7)?;
    life.append(10)?;
    life.flush()?;
    life.trim(5)?;
    life.append(60)?;
    life.flush()?;
    life.append(2)?;
    life.flush()?;
    let Life { oracle, log } = life;
    log.close().map_err(gone)?;
    let log = TestLog::try_open(disk.clone(), &options()).map_err(gone)?.map_err(gone)?;
    let mut life = Life { oracle, log };
    life.append(30)?;
    life.flush()?;
    life.append(5)?;
    life.trim(20)?;
    life.cut(30 - 12)?;
    life.append(4)?;
    life.flush()?;
    let counters = life.log.store.counters();
    assert!(counters.segments_recycled > 0, "the life recycles: {counters:?}");
    Ok(())
}

/// Opens what a crash left and compares; then goes on appending.
fn check(disk: &TestDisk, oracle: &Oracle, context: &str) {
    let opened = Store::open(disk.clone(), &AROUND, &options());
    match opened {
        Ok((store, _)) => drop(store),
        Err(OpenError::NoLog { .. }) => {
            assert!(!oracle.created, "{context}: the log is gone");
            let log = TestLog::create(disk.clone());
            drop(log.unwrap_or_else(|error| {
                panic!("{context}: kind 34: create left what create minds: {error}")
            }));
            return;
        }
        Err(error) => panic!("{context}: {error}"),
    }
    // Opened once above and then crashed: the second opening must see the same.
    let mut log = TestLog::open(disk.after_power_loss(Survive::Nothing))
        .unwrap_or_else(|error| panic!("{context}, again: {error}"));
    let trimmed = log.store.trimmed();
    let (low, high) = oracle.trimmed;
    assert!(
        !oracle.created || (low <= trimmed && trimmed <= high),
        "{context}: trimmed at {trimmed}, not in {low}..={high}"
    );
    assert!(log.store.superblock().promised >= oracle.promised, "{context}: R-5: a promise is gone");
    let found = log.payloads();
    let is_right = |expected: &[(Lsn, u32)]| {
        let kept: Vec<_> = expected.iter().filter(|record| record.0 >= trimmed).collect();
        let acknowledged = kept.iter().filter(|record| record.0 < oracle.acknowledged).count();
        let same = found.iter().zip(&kept).all(|(found, record)| *found == payload(record.1));
        same && found.len() >= acknowledged && found.len() <= kept.len() + 1
    };
    let right = is_right(&oracle.appended) || oracle.before_cut.as_deref().is_some_and(is_right);
    assert!(right, "{context}: {} records from LSN {trimmed} on are not those appended", found.len());
    // Kind 4: what is appended behind a mended tail is still there after the next crash.
    let before = found.len();
    log.append(b"after the crash").unwrap();
    log.flush().unwrap();
    let disk = log.store.disk().clone();
    drop(log);
    let log = TestLog::open(disk.after_power_loss(Survive::Nothing))
        .unwrap_or_else(|error| panic!("{context}, third: {error}"));
    let after = log.payloads();
    assert_eq!(after.len(), before + 1, "{context}: kind 4");
    assert_eq!(after.last().map(Vec::as_slice), Some(&b"after the crash"[..]), "{context}: kind 4");
}

fn sweep(mut after: impl FnMut(&TestDisk, u64, &Oracle)) -> u64 {
    let mut step = 0;
    loop {
        let disk = TestDisk::new();
        disk.stop_at(step);
        let mut oracle = Oracle::default();
        let lived = live(&disk, &mut oracle);
        if !disk.stopped() {
            if let Err(Gone(error)) = lived {
                panic!("the life itself failed without a crash: {error}");
            }
            return step;
        }
        after(&disk, step, &oracle);
        step += 1;
    }
}

#[test]
fn i_7_power_lost_at_every_call_loses_nothing_acknowledged() {
    let steps = sweep(|disk, step, oracle| {
        let modes = [
            Survive::Nothing,
            Survive::Everything,
            Survive::Seeded(step),
            Survive::Seeded(!step),
            Survive::Seeded(step << 8),
        ];
        for survive in modes {
            check(&disk.after_power_loss(survive), oracle, &format!("step {step}, {survive:?}"));
        }
    });
    assert!(steps > 80, "the life has only {steps} steps");
}

#[test]
fn r_11_killed_at_every_call_and_power_lost_after_the_next_opening() {
    sweep(|disk, step, oracle| {
        let killed = disk.after_kill();
        let Ok((store, opened)) = Store::open(killed.clone(), &AROUND, &options()) else {
            assert!(!oracle.created, "step {step}: the log is gone");
            return;
        };
        drop(store);
        // Kind 30: what this opening answered for must be on the medium, not in the page cache alone.
        let lost = killed.after_power_loss(Survive::Nothing);
        let (store, again) = Store::open(lost.clone(), &AROUND, &options()).unwrap();
        assert_eq!(again.tail, opened.tail, "step {step}: R-11");
        drop(store);
        check(&lost, oracle, &format!("step {step}, killed"));
    });
}

#[test]
fn r_11_left_for_later_nothing_is_claimed_before_it_is_done_and_a_crash_at_any_call_is_one_before_the_opening()
 {
    let later = Options { vouch: Vouch::Later, ..options() };
    let (mut left, mut stopped) = (0, 0);
    sweep(|disk, step, oracle| {
        if step % 3 != 0 {
            return;
        }
        let killed = disk.after_kill();
        let Ok((store, opened)) = Store::open(killed.copied_in_place(), &AROUND, &later) else {
            assert!(!oracle.created, "step {step}: the log is gone");
            return;
        };
        assert!(store.persisted().lsn() <= opened.tail, "step {step}");
        left += u32::from(!store.is_vouched());
        // Read to the end, and lose power: what was found need not be there, what was acknowledged is.
        let disk = store.disk().clone();
        let store = Arc::new(store);
        let mut reader = store.reader(store.trimmed());
        while let Read::Record(_) = reader.next(opened.tail).unwrap() {}
        drop((reader, store));
        check(&disk.after_power_loss(Survive::Nothing), oracle, &format!("step {step}, read and lost"));
        check(&disk.after_kill(), oracle, &format!("step {step}, read and killed"));
        for call in 0.. {
            let attempt = killed.copied_in_place();
            let (store, opened) = Store::open(attempt.clone(), &AROUND, &later).unwrap();
            attempt.stop_at(attempt.steps() + call);
            let vouched = store.vouch();
            assert_eq!(store.is_vouched(), vouched.is_ok(), "step {step}, call {call}");
            drop(store);
            if !attempt.stopped() {
                vouched.unwrap();
                // Kind 30.
                let lost = attempt.after_power_loss(Survive::Nothing);
                let (_store, again) = Store::open(lost.clone(), &AROUND, &options()).unwrap();
                assert_eq!(again.tail, opened.tail, "step {step}: R-11");
                break;
            }
            stopped += 1;
            for survive in [Survive::Nothing, Survive::Seeded(step ^ call << 8)] {
                let again = attempt.after_power_loss(survive);
                check(&again, oracle, &format!("step {step}, stopped at call {call} of R-11, {survive:?}"));
            }
            let (_store, again) = Store::open(attempt.after_kill(), &AROUND, &options()).unwrap();
            assert_eq!(again.tail, opened.tail, "step {step}, killed at call {call} of R-11: I-7");
        }
    });
    assert!(left > 20 && stopped > 100, "R-11 was left {left} times and stopped {stopped} times");
}

#[test]
fn kind_10_opening_interrupted_at_every_call_comes_to_the_same_end() {
    // Late enough that there are torn tails, free files and ready segments.
    let mut steps = 0;
    for seed in 0..12 {
        let disk = TestDisk::new();
        let mut oracle = Oracle::default();
        disk.stop_at(40 + seed * 4);
        let _ = live(&disk, &mut oracle);
        assert!(disk.stopped(), "a life of {} steps", disk.steps());
        let crashed = disk.after_power_loss(Survive::Seeded(seed));
        let expected = {
            let (_store, opened) = Store::open(crashed.copied_in_place(), &AROUND, &options()).unwrap();
            opened.tail
        };
        let mut step = 0;
        loop {
            let attempt = crashed.copied_in_place();
            attempt.stop_at(step);
            drop(Store::open(attempt.clone(), &AROUND, &options()));
            if !attempt.stopped() {
                break;
            }
            for survive in [Survive::Nothing, Survive::Everything, Survive::Seeded(step)] {
                let again = attempt.after_power_loss(survive);
                let (store, opened) = Store::open(again.clone(), &AROUND, &options()).unwrap();
                assert_eq!(opened.tail, expected, "seed {seed}, step {step}, {survive:?}");
                drop(store);
                check(&again, &oracle, &format!("seed {seed}, opening stopped at {step}, {survive:?}"));
            }
            step += 1;
        }
        steps += step;
    }
    assert!(steps > 80, "opening after a crash changes things: {steps} calls in 12 openings");
}
