//! The lives that a log leads until it is stopped, one for each workload, and what each step promises.

use std::mem;
use std::sync::Arc;

use windlass_log::Lsn;
use windlass_store::disk::Errno;
use windlass_store::disk::testing::{Call, TestDisk};
use windlass_store::{Options, Store, Vouch};

use crate::lone::{AROUND, Gone, Lone, SEGMENT, gone, options, records};
use crate::member;
use crate::oracle::{Content, Entry, Oracle};
use crate::random::{Random, mix};

/// What a log does while it is crashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Workload {
    /// It is made.
    Create,
    /// Records are appended and flushed, in groups.
    Append,
    /// Batches, each of which is there as a whole or not at all.
    Batch,
    /// Segment follows segment.
    Rollover,
    /// Trimmed segments come round again.
    Recycle,
    /// Its beginning is released, also beyond what was flushed.
    Trim,
    /// Its end is cut off and it goes on in a new epoch.
    Truncate,
    /// Promises and configurations are written down.
    Superblock,
    /// A member's suffix is cut and another primary's comes in its place.
    Takeover,
    /// A member's log is damaged below its mark, opened for repair and filled again.
    Repair,
    /// A member throws its log away and goes on behind a checkpoint.
    Reset,
    /// It is opened with R-11 left for later.
    Deferred,
    /// It is closed and opened.
    Close,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 13] = [
        Workload::Create,
        Workload::Append,
        Workload::Batch,
        Workload::Rollover,
        Workload::Recycle,
        Workload::Trim,
        Workload::Truncate,
        Workload::Superblock,
        Workload::Takeover,
        Workload::Repair,
        Workload::Reset,
        Workload::Deferred,
        Workload::Close,
    ];

    /// Its name on a command line and in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Create => "create",
            Workload::Append => "append",
            Workload::Batch => "batch",
            Workload::Rollover => "rollover",
            Workload::Recycle => "recycle",
            Workload::Trim => "trim",
            Workload::Truncate => "truncate",
            Workload::Superblock => "superblock",
            Workload::Takeover => "takeover",
            Workload::Repair => "repair",
            Workload::Reset => "reset",
            Workload::Deferred => "deferred",
            Workload::Close => "close",
        }
    }

    /// Lives it, until the power goes. The variation decides lengths and places, never the order of the steps' kinds.
    pub(crate) fn live(self, disk: &TestDisk, oracle: &mut Oracle, variation: u64) -> Result<(), Gone> {
        let random = Random::new(mix(&[variation, self as u64]));
        match self {
            Workload::Superblock => return member::superblock(disk, oracle, random),
            Workload::Takeover => return member::takeover(disk, oracle, random),
            Workload::Repair => return member::repair(disk, oracle, random),
            Workload::Reset => return member::reset(disk, oracle, random),
            Workload::Create
            | Workload::Append
            | Workload::Batch
            | Workload::Rollover
            | Workload::Recycle
            | Workload::Trim
            | Workload::Truncate
            | Workload::Deferred
            | Workload::Close => {}
        }
        let log = Lone::create(disk, 0)?;
        oracle.created = true;
        oracle.trimmed = (Lsn(4096), Lsn(4096));
        oracle.acknowledged = Lsn(4096);
        let mut life = Life { oracle, log, random, disk: disk.clone() };
        match self {
            Workload::Create
            | Workload::Superblock
            | Workload::Takeover
            | Workload::Repair
            | Workload::Reset => life.append(2, 100),
            Workload::Append => life.appending(),
            Workload::Batch => life.batching(),
            Workload::Rollover => life.rolling(),
            Workload::Recycle => life.recycling(),
            Workload::Trim => life.trimming(),
            Workload::Truncate => life.truncating(),
            Workload::Deferred => life.deferring(),
            Workload::Close => life.closing(),
        }
    }
}

struct Life<'o> {
    oracle: &'o mut Oracle,
    log: Lone,
    random: Random,
    disk: TestDisk,
}

impl Life<'_> {
    fn appending(mut self) -> Result<(), Gone> {
        self.append(1, 3000)?;
        self.flush()?;
        for _ in 0..24 {
            let count = 1 + self.random.below(5);
            self.append(count, 2500)?;
            self.flush()?;
        }
        self.append(3, 6000)?;
        self.flush()?;
        self.append(4, 200)?;
        self.dangle();
        self.flush()
    }

    fn batching(mut self) -> Result<(), Gone> {
        for _ in 0..4 {
            for _ in 0..1 + self.random.below(3) {
                let items = 1 + u32::try_from(self.random.below(40)).expect("small");
                let bytes = u32::try_from(self.random.below(700)).expect("small");
                self.put(Content { number: 0, bytes, items })?;
            }
            self.append(1, 100)?;
            self.flush()?;
        }
        self.put(Content { number: 0, bytes: 3000, items: 12 })?;
        self.flush()?;
        self.put(Content { number: 0, bytes: 2000, items: 20 })?;
        self.put(Content { number: 0, bytes: 0, items: 3 })?;
        self.flush()
    }

    fn rolling(mut self) -> Result<(), Gone> {
        for _ in 0..4 {
            // Up to where a segment ends, with and without a rest that is too small for a header.
            self.fill()?;
            let flushes = self.random.below(3);
            if flushes > 0 {
                self.flush()?;
            }
            self.append(1 + self.random.clone().below(3), 9000)?;
            if flushes > 1 {
                self.flush()?;
            }
        }
        self.flush()?;
        // Several segments in one flush.
        self.append(24, 9000)?;
        self.flush()
    }

    fn recycling(mut self) -> Result<(), Gone> {
        for _ in 0..4 {
            self.append(14, 9000)?;
            self.flush()?;
            self.append(2, 5000)?;
            self.trim_keeping(1 + self.random.clone().below(4))?;
        }
        self.append(20, 9000)?;
        self.flush()?;
        let counters = self.log.store.counters();
        assert!(counters.segments_recycled > 0, "it recycles: {counters:?}");
        Ok(())
    }

    fn trimming(mut self) -> Result<(), Gone> {
        self.append(12, 9000)?;
        self.flush()?;
        self.trim_keeping(3)?;
        self.append(6, 9000)?;
        // Beyond what was flushed.
        self.trim_keeping(2)?;
        self.append(2, 1000)?;
        self.flush()?;
        // Everything.
        let tail = self.log.handoff.tail();
        self.trim(tail)?;
        self.append(3, 1000)?;
        self.flush()?;
        self.fill()?;
        let tail = self.log.handoff.tail();
        self.trim(tail)?;
        self.append(2, 1000)?;
        self.flush()
    }

    fn truncating(mut self) -> Result<(), Gone> {
        self.append(5, 3000)?;
        self.flush()?;
        self.append(3, 3000)?;
        self.cut(2)?;
        self.append(2, 3000)?;
        self.flush()?;
        // Below the last flush, and of the same lengths again, so that what went ends where something new begins.
        self.append(6, 500)?;
        self.flush()?;
        self.cut(6)?;
        self.append(2, 500)?;
        self.cut(1)?;
        self.flush()?;
        // Across a segment's end.
        self.append(9, 9000)?;
        self.flush()?;
        let back = 4 + usize::try_from(self.random.below(4)).expect("small");
        self.cut(back)?;
        self.append(4, 9000)?;
        self.flush()?;
        let all = self.log.handoff.tail();
        self.cut_at(all)?;
        self.append(1, 100)?;
        self.flush()
    }

    fn deferring(mut self) -> Result<(), Gone> {
        self.append(4, 5000)?;
        self.flush()?;
        for round in 0..3 {
            self.append(5, 7000)?;
            if round == 1 {
                // Its pages count as clean from now on (kind 24).
                self.disk.fail(Call::FlushRange, 0, Errno::IO);
                let failed = self.flush();
                if self.disk.stopped() {
                    return failed;
                }
                assert!(failed.is_err(), "the flush was made to fail");
            }
            if round == 2 {
                self.dangle();
            }
            let Life { oracle, log, random, disk } = self;
            // The process dies, and what it wrote stays in the page cache.
            drop(log);
            let older = disk.read_file("superblock");
            let later = Options { vouch: Vouch::Later, ..options() };
            let (store, opened) = Store::open(disk.clone(), &AROUND, &later).map_err(gone)?;
            let store = Arc::new(store);
            records(&store, opened.tail).map_err(Gone)?;
            store.vouch().map_err(gone)?;
            oracle.acknowledged = oracle.acknowledged.max(opened.tail);
            oracle.older = Some((older, opened.tail));
            let store = Arc::into_inner(store).expect("nobody else has it");
            let log = Lone::over(store, opened)?;
            self = Life { oracle, log, random, disk };
            self.append(2, 3000)?;
            self.flush()?;
        }
        Ok(())
    }

    fn closing(mut self) -> Result<(), Gone> {
        for round in 0..4 {
            let count = self.random.below(4);
            self.append(count, 5000)?;
            if round == 2 {
                self.fill()?;
            }
            let Life { oracle, log, random, disk } = self;
            let tail = log.handoff.tail();
            log.close()?;
            oracle.acknowledged = tail;
            oracle.clean = true;
            oracle.closed = Some((disk.read_file("superblock"), tail));
            let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).map_err(gone)?;
            assert!(opened.clean && opened.tail == tail, "closed at {tail}: {opened:?}");
            oracle.clean = false;
            let log = Lone::over(store, opened)?;
            self = Life { oracle, log, random, disk };
        }
        self.append(2, 1000)?;
        self.flush()
    }

    /// Appends records of at most so many bytes.
    fn append(&mut self, count: u64, bytes_max: u64) -> Result<(), Gone> {
        for _ in 0..count {
            let bytes = u32::try_from(self.random.below(bytes_max)).expect("a record's length");
            self.put(Content { number: 0, bytes, items: 0 })?;
        }
        Ok(())
    }

    fn put(&mut self, content: Content) -> Result<(), Gone> {
        let content = Content { number: self.oracle.next, ..content };
        self.oracle.next += 1;
        let start = self.log.append(&content)?.start;
        self.oracle.records.push(Entry { start, content });
        Ok(())
    }

    /// Fills the segment, nearly or exactly.
    fn fill(&mut self) -> Result<(), Gone> {
        let geometry = self.log.store.geometry();
        let left = [0, 8, 24, 32, 40, 1000][usize::try_from(self.random.below(6)).expect("small")];
        loop {
            let room = geometry.room(self.log.handoff.tail());
            if room <= left + 64 || room == SEGMENT - 4096 {
                return Ok(());
            }
            let bytes = u32::try_from((room - left - 32).min(20_000) / 8 * 8).expect("a record's length");
            self.put(Content { number: 0, bytes, items: 0 })?;
        }
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let persisted = self.log.flush()?;
        self.oracle.acknowledged = self.oracle.acknowledged.max(persisted);
        // The helper comes round now and then.
        if self.oracle.next.is_multiple_of(3) {
            self.log.store.sync_live_mark().map_err(gone)?;
        }
        Ok(())
    }

    /// Leaves a record that its producer never finishes.
    fn dangle(&mut self) {
        let Ok(mut reservation) = self.log.handoff.reserve(3000) else { return };
        reservation.write(0, &[0xEE; 1100]);
        mem::forget(reservation);
    }

    fn trim_keeping(&mut self, keep: u64) -> Result<(), Gone> {
        let place = self.oracle.records.len() - usize::try_from(keep).expect("small");
        self.trim(self.oracle.records[place].start)
    }

    fn trim(&mut self, lsn: Lsn) -> Result<(), Gone> {
        self.oracle.trimmed.1 = lsn;
        self.log.handoff.retire();
        self.log.store.trim(lsn, self.log.handoff.drained()).map_err(gone)?;
        self.oracle.trimmed.0 = lsn;
        self.log.prepare()
    }

    /// Takes the last records away.
    fn cut(&mut self, back: usize) -> Result<(), Gone> {
        self.cut_at(self.oracle.records[self.oracle.records.len() - back].start)
    }

    fn cut_at(&mut self, lsn: Lsn) -> Result<(), Gone> {
        self.oracle.before_cut = Some(self.oracle.records.clone());
        self.oracle.records.retain(|entry| entry.start < lsn);
        self.oracle.acknowledged = self.oracle.acknowledged.min(lsn);
        let older = self.disk.read_file("superblock");
        self.log.cut(lsn)?;
        self.oracle.before_cut = None;
        self.oracle.older = Some((older, lsn));
        self.oracle.closed = None;
        Ok(())
    }
}
