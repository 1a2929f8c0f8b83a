//! The lives of a group's member: its superblock, and a log that other primaries write into.

use std::sync::Arc;

use windlass_log::{Epoch, Lsn, MemberId};
use windlass_store::disk::testing::TestDisk;
use windlass_store::{Founding, MemoryError, Prepared, Store};

use crate::lone::{AROUND, Gone, Lone, SEGMENT, founding, gone, options};
use crate::oracle::{Content, Entry, Oracle};
use crate::random::Random;

const SECTOR: u64 = 512;

fn create(disk: &TestDisk, oracle: &mut Oracle) -> Result<Arc<Store<TestDisk>>, Gone> {
    let member = Founding { epoch: None, configuration: note(0), ..founding(0) };
    let (store, _) = Store::create(disk.clone(), &member, &AROUND, &options()).map_err(gone)?;
    oracle.created = true;
    oracle.trimmed = (Lsn(4096), Lsn(4096));
    oracle.acknowledged = Lsn(4096);
    store.begin().map_err(gone)?;
    Ok(Arc::new(store))
}

/// A configuration that says its number in every byte, of a length that goes with it.
pub(crate) fn note(number: u64) -> Vec<u8> {
    let bytes = usize::try_from(8 + number * 1700 % 16_000).expect("a configuration fits memory");
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// The number of a configuration, if it is whole.
pub(crate) fn number_of(configuration: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(configuration.get(..8)?.try_into().ok()?);
    (configuration == note(number)).then_some(number)
}

/// Promises and configurations.
pub(crate) fn superblock(disk: &TestDisk, oracle: &mut Oracle, mut random: Random) -> Result<(), Gone> {
    let mut store = create(disk, oracle)?;
    let mut number = 0;
    for round in 0..14 {
        if random.below(3) == 0 {
            let epoch = store.superblock().promised.next_for(MemberId(1));
            let update =
                store.update(|superblock| (superblock.promised, superblock.caught_up) = (epoch, true));
            update.map_err(gone)?;
            (oracle.promised, oracle.caught_up) = (epoch, true);
        } else {
            number += 1 + random.below(5);
            oracle.note.1 = number;
            let update = store.update(|superblock| superblock.configuration = note(number));
            update.map_err(gone)?;
            oracle.note.0 = number;
        }
        if round == 8 {
            drop(store);
            let (opened, _) = Store::open(disk.clone(), &AROUND, &options()).map_err(gone)?;
            opened.begin().map_err(gone)?;
            store = Arc::new(opened);
        }
    }
    Ok(())
}

/// A member whose log a primary writes, as a device does: straight into its memory.
struct Member<'o> {
    oracle: &'o mut Oracle,
    store: Arc<Store<TestDisk>>,
    disk: TestDisk,
    /// The primary's log, on a disk of its own.
    primary: Lone,
    entries: Vec<Entry>,
    /// Everything below has arrived.
    tail: Lsn,
    random: Random,
}

/// Two takeovers: each cuts the member's suffix and brings another primary's.
pub(crate) fn takeover(disk: &TestDisk, oracle: &mut Oracle, random: Random) -> Result<(), Gone> {
    let store = create(disk, oracle)?;
    let primary = Lone::create(&TestDisk::new(), 1)?;
    let mut member =
        Member { oracle, store, disk: disk.clone(), primary, entries: Vec::new(), tail: Lsn(4096), random };
    member.adopt(Lsn(4096))?;
    member.lead(4, 3000)?;
    member.push()?;
    member.flush()?;
    member.lead(4, 5000)?;
    member.push()?;
    member.lead(2, 5000)?;
    member.push_parts()?;
    // The next primary has not all of what the member has.
    member.take_over(3)?;
    member.lead(3, 3000)?;
    member.push()?;
    member.flush()?;
    member.lead(12, 9000)?;
    member.push()?;
    member.flush()?;
    member.trim(14)?;
    member.lead(2, 2000)?;
    member.push()?;
    let (tail, held) = (member.tail, member.entries.len());
    let Member { oracle, store, primary, entries, random, .. } = member;
    // The process dies and comes back.
    drop(store);
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).map_err(gone)?;
    assert_eq!((opened.tail, entries.len()), (tail, held), "what had arrived is in the page cache");
    oracle.acknowledged = oracle.acknowledged.max(opened.tail);
    store.begin().map_err(gone)?;
    let (store, disk, tail) = (Arc::new(store), disk.clone(), opened.tail);
    let mut member = Member { oracle, store, disk, primary, entries, tail, random };
    member.take_over(5)?;
    member.lead(6, 9000)?;
    member.push_parts()?;
    member.push()?;
    member.flush()
}

/// What the member misses is released everywhere: it throws its log away and goes on behind its application's checkpoint, twice.
pub(crate) fn reset(disk: &TestDisk, oracle: &mut Oracle, random: Random) -> Result<(), Gone> {
    let store = create(disk, oracle)?;
    let primary = Lone::create(&TestDisk::new(), 1)?;
    let mut member =
        Member { oracle, store, disk: disk.clone(), primary, entries: Vec::new(), tail: Lsn(4096), random };
    member.adopt(Lsn(4096))?;
    member.lead(6, 9000)?;
    member.push()?;
    member.flush()?;
    for missed in [30, 3] {
        member.lead(2, 3000)?;
        member.push()?;
        member.lead(missed, 9000)?;
        member.start_again()?;
        member.lead(4, 9000)?;
        member.push()?;
        member.flush()?;
    }
    Ok(())
}

/// Damage below the mark, found by opening: the log is had again from its primary (DESIGN.md section 6.3).
pub(crate) fn repair(disk: &TestDisk, oracle: &mut Oracle, random: Random) -> Result<(), Gone> {
    let store = create(disk, oracle)?;
    let primary = Lone::create(&TestDisk::new(), 1)?;
    let mut member =
        Member { oracle, store, disk: disk.clone(), primary, entries: Vec::new(), tail: Lsn(4096), random };
    member.adopt(Lsn(4096))?;
    member.lead(22, 9000)?;
    member.push()?;
    member.flush()?;
    member.lead(3, 2000)?;
    member.push()?;
    member.flush()?;
    member.note_mark()?;
    let Member { oracle, store, primary, entries, tail, mut random, .. } = member;
    let closed = random.below(2) == 0;
    if closed {
        store.close(tail).map_err(gone)?;
    }
    drop(store);
    let lost = damage(disk, tail, &entries, &mut random);
    oracle.damaged = true;
    oracle.answered = tail;
    oracle.acknowledged = oracle.acknowledged.min(lost);
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options()).map_err(gone)?;
    assert!(opened.tail <= lost, "damaged at {lost}: {opened:?}");
    store.begin().map_err(gone)?;
    let (store, disk, tail) = (Arc::new(store), disk.clone(), opened.tail);
    let mut member = Member { oracle, store, disk, primary, entries, tail, random };
    // As the engine does it: what lies behind the damage is cut away, valid or not, and had again.
    member.store.cut_with(opened.tail, |_| {}).map_err(gone)?;
    member.push_parts()?;
    member.push()?;
    member.flush()?;
    member.note_mark()?;
    member.oracle.damaged = false;
    member.lead(2, 3000)?;
    member.push()?;
    member.flush()
}

/// Rots a record in the segment of the mark, or takes a segment before it away, or its header. Answers the first LSN that is lost.
fn damage(disk: &TestDisk, tail: Lsn, entries: &[Entry], random: &mut Random) -> Lsn {
    let number = tail.0 / SEGMENT;
    let name = |number: u64| format!("{:016x}.segment", number * SEGMENT);
    let last: Vec<Lsn> =
        entries.iter().map(|entry| entry.start).filter(|start| start.0 / SEGMENT == number).collect();
    let older = random.below(number);
    match random.below(3) {
        0 if number > 0 => disk.remove_file(&name(older)),
        1 if number > 0 => disk.flip(&name(older), 30, 4),
        _ => {
            let lsn = last[usize::try_from(random.below(last.len() as u64)).expect("small")];
            disk.flip(&name(number), lsn.0 % SEGMENT + random.below(32), 4);
            return lsn;
        }
    }
    Lsn(older * SEGMENT + 4096)
}

impl Member<'_> {
    /// Behind everything that the primary has now.
    fn start_again(&mut self) -> Result<(), Gone> {
        let lsn = self.primary.handoff.drained();
        let mut history = self.primary.store.superblock().history;
        history.trim(lsn);
        self.oracle.trimmed.1 = lsn;
        let reset = self.store.reset_with(lsn, |superblock| {
            superblock.history = history;
            superblock.acknowledged = lsn;
        });
        reset.map_err(gone)?;
        self.oracle.trimmed.0 = lsn;
        self.oracle.acknowledged = lsn;
        self.tail = lsn;
        self.entries.clear();
        self.prepare(lsn)
    }

    /// What the member has answered for is written down, as the engine does with what it saves.
    fn note_mark(&mut self) -> Result<(), Gone> {
        let mark = self.store.persisted().lsn();
        self.store.update(|superblock| superblock.acknowledged = mark).map_err(gone)
    }

    /// The primary appends, at home.
    fn lead(&mut self, count: u32, bytes_max: u64) -> Result<(), Gone> {
        for _ in 0..count {
            let bytes = u32::try_from(self.random.below(bytes_max)).expect("a record's length");
            let content = Content { number: self.oracle.next, bytes, items: 0 };
            self.oracle.next += 1;
            let start = self.primary.append(&content)?.start;
            self.entries.push(Entry { start, content });
        }
        // What may arrive from now on.
        self.oracle.records.clone_from(&self.entries);
        Ok(())
    }

    /// The promise of the primary's epoch, then its history in the same update that cuts.
    fn adopt(&mut self, cut: Lsn) -> Result<(), Gone> {
        let superblock = self.primary.store.superblock();
        let (history, epoch): (_, Epoch) = (superblock.history, superblock.promised);
        let older = self.disk.read_file("superblock");
        // It has caught up, so that memory that is lost has something to take back.
        let update =
            self.store.update(|superblock| (superblock.promised, superblock.caught_up) = (epoch, true));
        update.map_err(gone)?;
        (self.oracle.promised, self.oracle.caught_up) = (epoch, true);
        self.store.cut(cut, history, epoch).map_err(gone)?;
        self.oracle.older = Some((older, cut));
        self.tail = self.tail.min(cut);
        Ok(())
    }

    /// Another primary, whose log ends before the last records that the member may have.
    fn take_over(&mut self, back: usize) -> Result<(), Gone> {
        let cut = self.entries[self.entries.len() - back].start;
        let cut = cut.min(self.tail);
        self.primary.cut(cut)?;
        self.oracle.before_cut = Some(self.entries.clone());
        self.entries.retain(|entry| entry.start < cut);
        self.oracle.records.clone_from(&self.entries);
        self.oracle.acknowledged = self.oracle.acknowledged.min(cut);
        self.adopt(cut)?;
        self.oracle.before_cut = None;
        Ok(())
    }

    /// Everything that the primary has arrives.
    fn push(&mut self) -> Result<(), Gone> {
        let upto = self.primary.handoff.drained();
        self.copy(upto, false)?;
        self.tail = upto;
        Ok(())
    }

    /// Parts of it arrive, in no order: every other sector.
    fn push_parts(&mut self) -> Result<(), Gone> {
        self.copy(self.primary.handoff.drained(), true)
    }

    fn copy(&mut self, upto: Lsn, parts: bool) -> Result<(), Gone> {
        let geometry = self.store.geometry();
        for number in geometry.segment_of(self.tail)..=geometry.segment_of(upto) {
            let base = geometry.base(number).0;
            let (start, end) = (
                self.tail.0.max(base + 4096) - base,
                upto.0.min(base + geometry.segment_bytes()).saturating_sub(base),
            );
            if start >= end {
                continue;
            }
            let from = self.primary.store.memory(number).map_err(gone)?;
            let to = loop {
                match self.store.memory(number) {
                    Ok(memory) => break memory,
                    Err(MemoryError::NotReady { .. }) => self.prepare(geometry.base(number))?,
                    Err(error) => return Err(gone(error)),
                }
            };
            let mut at = start;
            while at < end {
                let next = ((at / SECTOR + 1) * SECTOR).min(end);
                if !parts || self.random.below(2) == 0 {
                    let mut bytes = vec![0; usize::try_from(next - at).expect("a sector")];
                    from.copy_out(at, &mut bytes);
                    to.copy_in(at, &bytes);
                }
                at = next;
            }
        }
        self.prepare(self.tail)
    }

    fn prepare(&self, tail: Lsn) -> Result<(), Gone> {
        while !matches!(self.store.prepare_step(tail).map_err(gone)?, Prepared::Idle) {}
        Ok(())
    }

    /// The member answers for what has arrived.
    fn flush(&mut self) -> Result<(), Gone> {
        let persisted = self.store.flush(self.tail).map_err(gone)?.lsn();
        self.oracle.acknowledged = self.oracle.acknowledged.max(persisted);
        if self.oracle.next.is_multiple_of(3) {
            self.store.sync_live_mark().map_err(gone)?;
        }
        Ok(())
    }

    fn trim(&mut self, keep: usize) -> Result<(), Gone> {
        let lsn = self.entries[self.entries.len() - keep].start;
        self.oracle.trimmed.1 = lsn;
        self.store.trim_with(lsn, self.tail, |superblock| superblock.history.trim(lsn)).map_err(gone)?;
        self.oracle.trimmed.0 = lsn;
        self.prepare(self.tail)
    }
}
