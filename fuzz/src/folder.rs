//! Opening a whole folder: what the real store wrote, on a disk in memory that dies, loses power, stops in the middle of a call,
//! and is damaged behind everybody's back.
//!
//! ```text
//!  input  | how many deeds | deed (what, a number, a byte) ... | how | damage (what, which file, where, a byte) ...
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_log::{
    Appended, Drain, DrainState, Epoch, Extent, Handoff, LogId, Lsn, MemberId, OpenMode, RecordKind,
    ReserveError, SEGMENT_BYTES_MIN,
};
use windlass_store::disk::testing::{Call, Survive, TestDisk};
use windlass_store::testing::{hand_off, install};
use windlass_store::{Founding, Inspection, OpenError, Options, Prepared, Read, Store, Surroundings};

use crate::input::Input;

/// The most deeds of one input, and the most damages.
const DEEDS_MAX: u8 = 16;
const DAMAGES_MAX: u8 = 4;
const AROUND: Surroundings = Surroundings { boot_id: [1; 16], incarnation: 77 };

/// What the folder of a log goes through, and what is found when it is opened again.
pub fn folder(data: &[u8]) {
    let mut input = Input::new(data);
    let disk = TestDisk::new();
    let (store, opened) =
        Store::create(disk.clone(), &founding(), &AROUND, &options(OpenMode::Tail, Extent::FromMark))
            .expect("an empty folder on a good disk");
    let mut written = Written { records: BTreeMap::new(), flushed: Lsn(0), trimmed: opened.tail };
    let mut log = Log::over(disk, store, &opened).expect("the disk is good");
    for _ in 0..input.u8() % (DEEDS_MAX + 1) {
        let (what, number, byte) = (input.u8(), input.u16(), input.u8());
        log = log.deed(&mut written, what, number, byte);
    }
    let disk = log.disk.after_kill();
    drop(log);
    damaged(&disk, &mut input, &written);
}

/// What the log must hold.
struct Written {
    /// The payloads of data records by LSN, as they stand: of an LSN that was used twice, the later one.
    records: BTreeMap<Lsn, Vec<u8>>,
    /// Everything below was said to be on the medium.
    flushed: Lsn,
    /// The trim point that the application asked for last, whether or not it was told that it is durable.
    trimmed: Lsn,
}

/// As `windlass_store::testing::LoneLog`, whose errors are not told apart from those of a disk that was told to stop.
struct Log {
    disk: TestDisk,
    store: Arc<Store<TestDisk>>,
    handoff: Arc<Handoff>,
    drain: Drain,
}

/// The disk has stopped in the middle of something, as it was told to.
#[derive(Debug)]
struct Stopped;

impl Log {
    /// An open log with memory to append to. Errors are the disk's, which must have been told to stop.
    fn over(disk: TestDisk, store: Store<TestDisk>, opened: &windlass_store::Opened) -> Result<Log, Stopped> {
        let store = Arc::new(store);
        stopped(&disk, store.begin())?;
        let epoch = opened.epoch.expect("a lone log has an epoch");
        let chain = opened.chain.expect("a lone log's chain is known");
        let (handoff, drain) = hand_off(&store, opened.tail, epoch, chain);
        let log = Log { disk, store, handoff, drain };
        log.prepare()?;
        Ok(log)
    }

    fn prepare(&self) -> Result<(), Stopped> {
        while !matches!(stopped(&self.disk, self.store.prepare_step(self.handoff.tail()))?, Prepared::Idle) {}
        install(&self.store, &self.handoff);
        Ok(())
    }

    /// One deed. What a disk that stopped leaves behind loses power and is opened again.
    fn deed(mut self, written: &mut Written, what: u8, number: u16, byte: u8) -> Log {
        let done = match what % 12 {
            0..=2 => self.append(written, usize::from(number % 900), byte),
            3 => self.append(written, usize::from(number), byte),
            4 => self.flush(written),
            5 => self.trim(written, number),
            6 => {
                self.disk.stop_at(self.disk.steps() + u64::from(byte % 32));
                Ok(())
            }
            7 => {
                self.handoff.seal();
                self.drain();
                let tail = self.handoff.tail();
                let closed = stopped(&self.disk, self.store.close(tail));
                if closed.is_ok() {
                    written.flushed = tail;
                    let disk = self.disk.after_kill();
                    drop(self);
                    return reopened(disk, written, true);
                }
                closed
            }
            8 if !self.disk.stopped() => {
                let disk = self.disk.after_kill();
                drop(self);
                return reopened(disk, written, true);
            }
            10 => match self.cut(written, number) {
                Ok(true) => {
                    // The next tenure is the next opening's.
                    let disk = self.disk.after_kill();
                    drop(self);
                    return reopened(disk, written, true);
                }
                Ok(false) => Ok(()),
                Err(stopped) => Err(stopped),
            },
            11 if !self.disk.stopped() => {
                // The opening itself is cut short, up to three times, each with a loss of power: as if it had been done once (I-7).
                let survive = |turn: u64| match byte % 3 {
                    0 => Survive::Nothing,
                    1 => Survive::Everything,
                    _ => Survive::Seeded(u64::from(number) + turn),
                };
                let mut disk = self.disk.after_power_loss(survive(0));
                drop(self);
                for turn in 1..=u64::from(byte % 4) {
                    disk.stop_at(disk.steps() + u64::from(number % 64));
                    let opened =
                        Store::open(disk.clone(), &AROUND, &options(OpenMode::Tail, Extent::FromMark));
                    if let Err(error) = &opened {
                        assert!(disk.stopped(), "a crash alone must not keep a log from opening: {error}");
                    }
                    drop(opened);
                    disk = disk.after_power_loss(survive(turn));
                }
                return reopened(disk, written, false);
            }
            _ => Err(Stopped),
        };
        match done {
            Ok(()) => self,
            Err(Stopped) => {
                let survive = match byte % 4 {
                    0 => Survive::Nothing,
                    1 => Survive::Everything,
                    _ => Survive::Seeded(u64::from(number)),
                };
                let disk = self.disk.after_power_loss(survive);
                drop(self);
                reopened(disk, written, false)
            }
        }
    }

    fn append(&mut self, written: &mut Written, length: usize, fill: u8) -> Result<(), Stopped> {
        let payload = vec![fill; length];
        loop {
            match self.handoff.append(RecordKind::Data, &payload) {
                Ok(Appended { start, .. }) => {
                    self.drain();
                    // What was lost may be appended over.
                    written.records.split_off(&start);
                    written.records.insert(start, payload);
                    return Ok(());
                }
                Err(ReserveError::NotReady { .. }) => {
                    self.drain();
                    self.handoff.retire();
                    self.prepare()?;
                }
                Err(ReserveError::TooLarge { .. }) => return Ok(()),
                Err(error @ (ReserveError::Full { .. } | ReserveError::Sealed { .. })) => panic!("{error}"),
            }
        }
    }

    fn drain(&mut self) {
        while matches!(self.drain.poll(1000).expect("nothing is damaged yet").state, DrainState::More) {}
    }

    fn flush(&mut self, written: &mut Written) -> Result<(), Stopped> {
        let persisted = stopped(&self.disk, self.store.flush(self.handoff.drained()))?;
        written.flushed = persisted.lsn();
        Ok(())
    }

    /// Cuts at the start of one of the records, in a next epoch. `false` if there is none.
    fn cut(&mut self, written: &mut Written, number: u16) -> Result<bool, Stopped> {
        let kept: Vec<Lsn> = written.records.range(self.store.trimmed()..).map(|(lsn, _)| *lsn).collect();
        let Some(lsn) = kept.get(usize::from(number) % kept.len().max(1)).copied() else { return Ok(false) };
        self.handoff.seal();
        self.drain();
        let superblock = self.store.superblock();
        let epoch = superblock.promised.next_for(MemberId(0));
        let mut history = superblock.history;
        history.cut(lsn);
        if history.extend(epoch, lsn).is_err() {
            // It has no room for another epoch: nothing is cut, and the log is closed as it is.
            return Err(Stopped);
        }
        // Cut or not, if this stops in the middle: nothing behind is promised any more.
        written.flushed = written.flushed.min(lsn);
        stopped(&self.disk, self.store.cut(lsn, history, epoch))?;
        written.records.split_off(&lsn);
        Ok(true)
    }

    /// Trims to the start of one of the records.
    fn trim(&mut self, written: &mut Written, number: u16) -> Result<(), Stopped> {
        let kept: Vec<Lsn> = written.records.range(self.store.trimmed()..).map(|(lsn, _)| *lsn).collect();
        let Some(lsn) = kept.get(usize::from(number) % kept.len().max(1)) else { return Ok(()) };
        written.trimmed = written.trimmed.max(*lsn);
        stopped(&self.disk, self.store.trim(*lsn, self.handoff.drained()))
    }
}

/// An error is only right where the disk was told to stop.
fn stopped<T, E: std::fmt::Debug>(disk: &TestDisk, result: Result<T, E>) -> Result<T, Stopped> {
    match result {
        Ok(done) => Ok(done),
        Err(_) if disk.stopped() => Err(Stopped),
        Err(error) => panic!("an error on a good disk: {error:?}"),
    }
}

/// Opens after a crash: a crash alone never refuses, loses nothing that was flushed (and, where the machine lived on, nothing at
/// all), and brings nothing that was not written.
fn reopened(disk: TestDisk, written: &mut Written, machine_lived: bool) -> Log {
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options(OpenMode::Tail, Extent::FromMark))
        .unwrap_or_else(|error| panic!("a crash alone must not keep a log from opening: {error}"));
    assert!(opened.tail >= written.flushed, "flushed to {}, opened at {}", written.flushed, opened.tail);
    let Ok(log) = Log::over(disk, store, &opened) else { panic!("nobody told the disk to stop") };
    let (found, error) = payloads(&log.store, log.handoff.drained());
    assert!(error.is_none(), "{error:?}");
    let trimmed = log.store.trimmed();
    assert!(trimmed <= written.trimmed, "trimmed to {trimmed}, asked for {}", written.trimmed);
    let must = |lsn: &Lsn| machine_lived || *lsn < written.flushed;
    let expected = written.records.range(trimmed..);
    for ((lsn, payload), position) in expected.zip(0..) {
        match found.get(position) {
            Some(record) => assert!(record.0 == *lsn && record.1 == *payload, "another record at {lsn}"),
            None => assert!(!must(lsn), "the record at {lsn} is lost, flushed to {}", written.flushed),
        }
    }
    let kept = written.records.range(trimmed..).count();
    assert!(found.len() <= kept, "records that nobody wrote");
    written.records.split_off(&opened.tail);
    // Opening makes durable what it found.
    written.flushed = opened.tail;
    log
}

/// Damages the folder and opens it: whatever is read was written, and opening twice finds the same (I-7).
fn damaged(disk: &TestDisk, input: &mut Input<'_>, written: &Written) {
    let how = input.u8();
    for _ in 0..input.u8() % (DAMAGES_MAX + 1) {
        damage(disk, input.u8(), input.u8(), input.u16(), input.u8());
    }
    inspect(disk);
    let mode = if how & 1 == 0 { OpenMode::Tail } else { OpenMode::Strict };
    let extent = if how & 2 == 0 { Extent::FromMark } else { Extent::Whole };
    let first = read_all(disk, mode, extent, written);
    let second = read_all(&disk.after_kill(), mode, extent, written);
    match (first, second) {
        (Ok(first), Ok(second)) => assert_eq!(first, second, "I-7: the second opening found another log"),
        (Ok(_), Err(error)) => panic!("I-7: opened once, and then not: {error}"),
        // Nothing in the folder has changed.
        (Err(_), Ok(_)) => panic!("I-7: refused, and then opened"),
        (Err(_), Err(_)) => {}
    }
}

fn read_all(
    disk: &TestDisk,
    mode: OpenMode,
    extent: Extent,
    written: &Written,
) -> Result<Vec<(Lsn, Vec<u8>)>, Box<OpenError>> {
    let (store, opened) = Store::open(disk.clone(), &AROUND, &options(mode, extent)).map_err(Box::new)?;
    let store = Arc::new(store);
    let (found, _) = payloads(&store, opened.tail);
    for (lsn, payload) in &found {
        assert_eq!(Some(payload), written.records.get(lsn), "the record at {lsn} is not the one written");
    }
    if let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) {
        let between = written.records.range(first..=last).count();
        assert_eq!(between, found.len(), "a record in the middle is gone, and nothing was said");
    }
    Ok(found)
}

/// The data records from the trim point up to `end`, or to the first that can't be read.
fn payloads(
    store: &Arc<Store<TestDisk>>,
    end: Lsn,
) -> (Vec<(Lsn, Vec<u8>)>, Option<windlass_store::ReadError>) {
    let mut reader = store.reader(store.trimmed());
    let mut found = Vec::new();
    loop {
        match reader.next(end) {
            Ok(Read::Record(record)) if record.header.kind == RecordKind::Data => {
                let payload = record.payload.expect("not a flat scan").to_vec();
                found.push((record.header.lsn, payload));
            }
            Ok(Read::Record(_)) => {}
            Ok(Read::AtEnd { .. }) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// Looking at a folder without opening it never panics, and changes nothing.
fn inspect(disk: &TestDisk) {
    // Nothing but a step changes names or files, or else somebody who has mapped one.
    let changes = || (disk.steps(), disk.calls(Call::Map));
    let before = changes();
    if let Ok(mut inspection) = Inspection::open(disk.clone(), None) {
        let _ = inspection.verify();
        let _ = inspection.files();
    }
    assert_eq!(changes(), before, "an inspection changed the folder");
}

/// Changes, cuts short, empties, removes or swaps files.
fn damage(disk: &TestDisk, what: u8, which: u8, place: u16, byte: u8) {
    let names = disk.names();
    let Some(name) = names.get(usize::from(which) % names.len().max(1)) else { return };
    let mut bytes = disk.read_file(name);
    match what % 8 {
        // In the part of a file where its records begin, most often.
        0..=3 => {
            let at = if what & 128 == 0 { 4096 + usize::from(place % 8192) } else { usize::from(place) };
            if let Some(there) = bytes.get_mut(at) {
                *there ^= byte;
                disk.write_file(name, &bytes);
            }
        }
        4 => {
            bytes.truncate(usize::from(place));
            disk.write_file(name, &bytes);
        }
        5 => disk.remove_file(name),
        6 => {
            let other = &names[usize::from(byte) % names.len()];
            let others = disk.read_file(other);
            disk.write_file(other, &bytes);
            disk.write_file(name, &others);
        }
        _ => {
            let at = usize::from(place).min(bytes.len());
            let end = (at + 512).min(bytes.len());
            bytes[at..end].fill(byte);
            disk.write_file(name, &bytes);
        }
    }
}

fn founding() -> Founding {
    Founding {
        log_id: LogId([9; 16]),
        member: MemberId(0),
        incarnation: 5,
        segment_bytes: SEGMENT_BYTES_MIN,
        epoch: Some(Epoch::new(1, MemberId(0))),
        configuration: Vec::new(),
    }
}

fn options(mode: OpenMode, extent: Extent) -> Options {
    Options { mode, extent, retention_bytes: 4 * SEGMENT_BYTES_MIN, segments_ahead: 1, ..Options::default() }
}
