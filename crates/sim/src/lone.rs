//! A log of one node, without the group: opened, appended to, flushed, killed or without power, and opened again. What was flushed is there, what is read is what
//! was appended, and no place carries other content in the same epoch (R-12, I-6).

use std::sync::Arc;

use windlass::{Epoch, LogId, Lsn, MemberId};
use windlass_log::{Chain, Handoff, Holder, Onward, RecordKind, Row, Salt, Tenure};
use windlass_store::disk::testing::{Survive, TestDisk};
use windlass_store::testing::install;
use windlass_store::{Founding, Options, Prepared, Read, Store, Surroundings};

use crate::coverage::Coverage;
use crate::oracle::lone_log::{Known, failed, wrong};
use crate::oracle::{Checked, Violation, decision_table, hash_of};
use crate::random::Random;
use crate::rows;

const SEGMENT_BYTES: u64 = 64 << 10;
const LOG: LogId = LogId([9; 16]);

fn options() -> Options {
    Options { retention_bytes: 8 * SEGMENT_BYTES, segments_ahead: 1, ..Options::default() }
}

/// One lone log's lives.
pub(crate) fn live(random: &mut Random, coverage: &mut Coverage) -> Checked {
    let member = MemberId(0);
    let first = Epoch::NONE.next_for(member);
    let founding = Founding {
        log_id: LOG,
        member,
        incarnation: 7,
        segment_bytes: SEGMENT_BYTES,
        epoch: Some(first),
        configuration: Vec::new(),
    };
    let mut boot = 1_u8;
    let around = |boot: u8| Surroundings { boot_id: [boot; 16], incarnation: 7 };
    let mut disk = TestDisk::new();
    if let Err(error) = Store::create(disk.clone(), &founding, &around(boot), &options()) {
        return failed("creating", &error);
    }
    let mut known = Known::from(Lsn(4096));
    // The superblock's file behind a clean end, and where that was.
    let mut closed: Option<(Vec<u8>, Lsn)> = None;
    for _ in 0..random.range(3, 7) {
        let (store, opened) = match Store::open(disk.clone(), &around(boot), &options()) {
            Ok((store, opened)) => (Arc::new(store), opened),
            Err(error) => return failed("opening", &error),
        };
        rows::opened(&opened, |mark| coverage.add(mark));
        known.opened(opened.tail)?;
        read_all(&store, opened.tail, &known)?;
        if let Err(error) = store.begin() {
            return failed("beginning", &error);
        }
        let tail = append_some(&store, &opened, &mut known, random)?;
        let ends_cleanly = random.percent(20);
        if ends_cleanly {
            known.flushed = tail;
            if let Err(error) = store.close(tail) {
                return failed("closing", &error);
            }
        }
        let epoch = store.superblock().history.last().map(|last| last.epoch);
        drop(store);
        copies_open_by_their_rows(&disk, &around(boot), closed.take().as_ref(), tail, coverage)?;
        closed = ends_cleanly.then(|| (disk.read_file("superblock"), tail));
        if ends_cleanly && let Some(epoch) = epoch {
            goes_on_without_its_chain(&disk, &around(boot), &known, (epoch, tail), coverage)?;
        }
        disk = if ends_cleanly || random.percent(60) {
            disk.after_kill()
        } else {
            boot = boot.wrapping_add(1);
            disk.after_power_loss(Survive::Seeded(random.number()))
        };
    }
    Ok(())
}

/// Copies of a log that has just ended, all of it there: the folder, copied, and the log with the superblock from before what was appended behind a clean end.
fn copies_open_by_their_rows(
    disk: &TestDisk,
    around: &Surroundings,
    closed: Option<&(Vec<u8>, Lsn)>,
    tail: Lsn,
    coverage: &mut Coverage,
) -> Checked {
    decision_table::goes_on(Onward::Copied, disk.copied(), around, &options())?;
    coverage.add(rows::went_on(Onward::Copied));
    let Some((superblock, _)) = closed.filter(|(_, clean)| *clean < tail) else { return Ok(()) };
    let copy = disk.copied_in_place();
    copy.write_file("superblock", superblock);
    decision_table::comes_to(Row::PastCleanMark, Holder::Lone, copy, around, &options())?;
    coverage.add(rows::found(Row::PastCleanMark));
    Ok(())
}

/// A copy of a log that was closed is trimmed, and a record that was released is damaged, in the segment that the next opening begins in: the chain can't be known.
fn goes_on_without_its_chain(
    disk: &TestDisk,
    around: &Surroundings,
    known: &Known,
    (epoch, tail): (Epoch, Lsn),
    coverage: &mut Coverage,
) -> Checked {
    let base = (tail.0 - 8) / SEGMENT_BYTES * SEGMENT_BYTES;
    let of_epoch = known.places().filter(|(of, lsn)| *of == epoch && lsn.0 >= base);
    let starts: Vec<Lsn> = of_epoch.map(|(_, lsn)| *lsn).collect();
    let [released, .., first] = starts[..] else { return Ok(()) };
    let copy = disk.copied_in_place();
    let trimmed = Store::open(copy.clone(), around, &options()).map_err(|error| error.to_string());
    let trimmed = trimmed.and_then(|(store, opened)| {
        store.trim(first, opened.tail).map_err(|error| error.to_string())?;
        store.close(opened.tail).map_err(|error| error.to_string())
    });
    if let Err(error) = trimmed {
        return failed("trimming a copy", &error);
    }
    copy.flip(&format!("{base:016x}.segment"), released.0 - base + 24, 1);
    decision_table::goes_on(Onward::ClosedUnchained, copy, around, &options())?;
    coverage.add(rows::went_on(Onward::ClosedUnchained));
    Ok(())
}

/// What the log has is what was appended there, in that epoch.
fn read_all(store: &Arc<Store<TestDisk>>, tail: Lsn, known: &Known) -> Checked {
    let mut reader = store.reader(store.trimmed());
    loop {
        match reader.next(tail) {
            Ok(Read::Record(record)) => {
                if !matches!(record.header.kind, RecordKind::Data) {
                    continue;
                }
                let found = hash_of(record.payload.unwrap_or_default());
                known.read(record.header.epoch, record.header.lsn, found)?;
            }
            Ok(Read::AtEnd { .. }) => return Ok(()),
            Err(error) => return failed("it can't be read", &error),
        }
    }
}

fn append_some(
    store: &Store<TestDisk>,
    opened: &windlass_store::Opened,
    known: &mut Known,
    random: &mut Random,
) -> Result<Lsn, Violation> {
    while !matches!(store.prepare_step(opened.tail), Ok(Prepared::Idle) | Err(_)) {}
    let superblock = store.superblock();
    let Some(last) = superblock.history.last() else { return Err(wrong("it has no epoch".to_owned())) };
    let (epoch, geometry) = (last.epoch, store.geometry());
    let chain = match opened.chain {
        Some(chain) if last.start < opened.tail => chain,
        Some(_) | None => Chain::begin(&Salt::new(LOG).key(epoch), opened.tail),
    };
    let persisted = store.persisted().lsn();
    let tenure = Tenure { geometry, log_id: LOG, epoch, tail: opened.tail, chain, persisted, slots: 4 };
    let (handoff, mut drain) = Handoff::new(tenure);
    install(store, &handoff);
    handoff.set_limit(Lsn(u64::MAX >> 2));
    for _ in 0..random.range(1, 40) {
        let mut payload = vec![0; 8 + 8 * usize::try_from(random.range(0, 12)).unwrap_or(0)];
        payload.iter_mut().for_each(|byte| *byte = random.number().to_le_bytes()[0]);
        let Ok(appended) = handoff.append(RecordKind::Data, &payload) else { break };
        known.appended(epoch, appended.start, hash_of(&payload))?;
        if random.percent(20) {
            let drained = drain.poll(usize::MAX).map_err(|error| wrong(error.to_string()))?.to;
            if store.flush(drained).is_ok() {
                known.flushed = drained;
            }
        }
    }
    let tail = drain.poll(usize::MAX).map_err(|error| wrong(error.to_string()))?.to;
    if random.percent(40) && store.flush(tail).is_ok() {
        known.flushed = tail;
    }
    Ok(tail)
}
