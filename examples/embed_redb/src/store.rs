//! The store: the order in which log and tables are written.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass::{
    AppendError, Committed, Epoch, Level, Log, Lsn, OpenOrCreateError, Outcome, ReadError, Reader,
};

use crate::Op;
use crate::error::{ApplyError, CheckpointError, CloseError, OpenError, WriteError};
use crate::tables::{Commit, Mark, Tables};

/// The first LSN of a log: where replay starts for tables that have applied nothing.
const FIRST: Lsn = Lsn(4096);
/// How many bytes of operations one redb transaction applies before it is committed and the next one begins.
const RUN_BYTES: usize = 4 << 20;
/// How long a write waits for the log to have room.
const ROOM_LIMIT: Duration = Duration::from_secs(10);
const ROOM_PAUSE: Duration = Duration::from_micros(200);

/// Options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// What a write waits for. Default [`Level::Durable`]; with [`Level::Buffered`] a write survives the process but not the machine.
    pub level: Level,
    /// A checkpoint is made whenever the log has grown by so many bytes since the last one. Default 64 MiB.
    pub checkpoint_bytes: u64,
    /// Options of the log.
    pub log: windlass::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options { level: Level::Durable, checkpoint_bytes: 64 << 20, log: windlass::Options::new() }
    }
}

/// What a store has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Everything in the log below it is in the tables.
    pub applied: Lsn,
    /// Everything in the log below it is in the tables durably.
    pub checkpointed: Lsn,
    /// Operations that opening replayed.
    pub replayed: u64,
    /// Operations applied since, by all writers.
    pub operations: u64,
    /// redb transactions they took.
    pub transactions: u64,
    /// Checkpoints since opening.
    pub checkpoints: u64,
    /// Why the last checkpoint that the store made by itself failed, if it did.
    pub checkpoint_failure: Option<String>,
}

/// A key-value store: tables in redb, log in windlass. See the crate's page for what holds.
///
/// All methods take `&self`: share it between threads, writers form groups by themselves.
pub struct Store {
    log: Log,
    /// `None` once closed.
    tables: Option<Tables>,
    applier: Mutex<Applier>,
    /// Set when the tables can't follow the log any more; nothing is acknowledged afterwards.
    failed: AtomicBool,
    level: Level,
}

/// What moves the tables forward. Its lock is the one order in which the tables change.
struct Applier {
    reader: Reader,
    mark: Mark,
    /// A record that was read and belongs to the next transaction.
    carried: Option<Carried>,
    checkpoint_bytes: u64,
    stats: Stats,
}

struct Carried {
    lsn: Lsn,
    end: Lsn,
    epoch: Epoch,
    payload: Vec<u8>,
}

impl Store {
    /// Opens the store in `folder`, making it where there is none: brings the log to its end and the tables to the log's end.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: each variant says what to do.
    pub fn open(folder: &Path, options: Options) -> Result<Store, OpenError> {
        std::fs::create_dir_all(folder)
            .map_err(|cause| OpenError::Folder { folder: folder.to_path_buf(), cause })?;
        let tables = Tables::open(&folder.join("tables.redb"))?;
        let mark = tables.mark()?;
        let log_folder = folder.join("log");
        let log = match mark {
            // Tables that have a mark had a log: a new one in its place would hide that it is gone.
            Some(_) => options.log.open(&log_folder).map_err(OpenOrCreateError::from)?,
            None => options.log.open_or_create(&log_folder)?,
        };
        let mark = mark.unwrap_or(Mark { log_id: log.info().log_id, applied: FIRST, last: None });
        let reader = reader_from(&log, mark, options.level)?;
        let stats = Stats { applied: mark.applied, checkpointed: mark.applied, ..Stats::default() };
        let checkpoint_bytes = options.checkpoint_bytes.max(1);
        let mut applier = Applier { reader, mark, carried: None, checkpoint_bytes, stats };
        applier.advance(&log, &tables)?;
        applier.stats.replayed = std::mem::take(&mut applier.stats.operations);
        applier.stats.transactions = 0;
        Ok(Store {
            log,
            tables: Some(tables),
            applier: Mutex::new(applier),
            failed: AtomicBool::new(false),
            level: options.level,
        })
    }

    /// Stores a value.
    ///
    /// # Errors
    ///
    /// As [`Store::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.write(&[Op::put(key, value)])
    }

    /// Takes a key away, if it is there.
    ///
    /// # Errors
    ///
    /// As [`Store::write`].
    pub fn delete(&self, key: &[u8]) -> Result<(), WriteError> {
        self.write(&[Op::delete(key)])
    }

    /// Writes several operations as one: after a crash all of them are there or none, and no reader sees some of them. Returns once they have
    /// reached the store's level and readers see them. Later operations of a batch win over earlier ones.
    ///
    /// # Errors
    ///
    /// [`WriteError`]: each variant says whether the write happened, or that this is unknown until the store is opened again.
    pub fn write(&self, ops: &[Op]) -> Result<(), WriteError> {
        if ops.is_empty() {
            return Ok(());
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(WriteError::Failed);
        }
        let end = self.append(ops)?;
        // The order of these two is what keeps the tables behind the log. Whoever comes here during a flush joins the next one.
        let committed = self.log.commit_blocking(end, self.level)?;
        self.apply_to(&committed)
    }

    /// Appends one record, waiting for room.
    fn append(&self, ops: &[Op]) -> Result<Lsn, WriteError> {
        let encoded: Vec<Vec<u8>> = ops.iter().map(Op::encode).collect();
        let items: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
        let deadline = Instant::now() + ROOM_LIMIT;
        loop {
            let appended = match items.as_slice() {
                [one] => self.log.append_wait_blocking(one, deadline),
                several => self.log.append_batch_wait_blocking(several, deadline),
            };
            match appended {
                Ok(appended) => return Ok(appended.end),
                // The log's cap is reached: what the tables have needn't stay in it.
                Err(AppendError::Full { .. }) if Instant::now() < deadline => {
                    self.checkpoint()?;
                }
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(ROOM_PAUSE);
        }
    }

    /// Brings the tables up to a committed end at least. The first of a group does it for all of them: the others find it done.
    fn apply_to(&self, committed: &Committed) -> Result<(), WriteError> {
        let end = committed.end();
        let mut applier = self.applier();
        if applier.mark.applied >= end {
            return Ok(());
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(WriteError::Failed);
        }
        self.advance(&mut applier)?;
        debug_assert!(applier.mark.applied >= end, "what is committed can be read");
        Ok(())
    }

    /// Makes the tables durable and trims the log up to what is in them. Writers go on appending meanwhile; they are acknowledged
    /// when it is done. Returns the LSN up to which the log was trimmed.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]; whatever fails, nothing is lost.
    pub fn checkpoint(&self) -> Result<Lsn, CheckpointError> {
        let mut applier = self.applier();
        if self.failed.load(Ordering::Acquire) {
            return Err(CheckpointError::Failed);
        }
        self.advance(&mut applier)?;
        let made = applier.checkpoint(&self.log, self.tables());
        if let Err(CheckpointError::Apply(_)) = &made {
            self.failed.store(true, Ordering::Release);
        }
        made
    }

    /// Advances, and never again after a failure: the reader may stand behind what did not reach the tables.
    fn advance(&self, applier: &mut Applier) -> Result<(), ApplyError> {
        let advanced = applier.advance(&self.log, self.tables());
        if advanced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        advanced
    }

    /// The value of a key, as the writes that were acknowledged left it.
    ///
    /// # Errors
    ///
    /// redb's own.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, redb::Error> {
        self.tables().get(key)
    }

    /// Calls `each` with all pairs of one moment in the order of their keys, until it answers `false`.
    ///
    /// # Errors
    ///
    /// redb's own.
    pub fn scan(&self, each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), redb::Error> {
        self.tables().scan(each)
    }

    /// What the store has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let applier = self.applier();
        Stats { applied: applier.mark.applied, ..applier.stats.clone() }
    }

    /// The log's own figures.
    #[must_use]
    pub fn log_metrics(&self) -> windlass::MetricsSnapshot {
        self.log.metrics()
    }

    /// Makes a checkpoint and closes tables and log. A store that is dropped instead is recovered by the next opening.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: the store is closed all the same.
    pub fn close(mut self) -> Result<(), CloseError> {
        let checkpoint = self.checkpoint();
        self.settle();
        if let Some(tables) = self.tables.take() {
            tables.close()?;
        }
        self.log.clone().close()?;
        checkpoint?;
        Ok(())
    }

    /// Before redb closes, by [`Store::close`] or by being dropped: it then makes its last transactions durable by itself. They may be ahead of
    /// the log's medium if the level is `Buffered`. So the log is flushed first, and where that fails redb is left as a crash would
    /// leave it.
    fn settle(&mut self) {
        let applied = self.applier().mark.applied;
        let flushed =
            self.log.info().durable >= applied || self.log.commit_blocking(applied, Level::Durable).is_ok();
        if !flushed {
            std::mem::forget(self.tables.take());
        }
    }

    fn applier(&self) -> MutexGuard<'_, Applier> {
        self.applier.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            self.failed.store(true, Ordering::Release);
            poisoned.into_inner()
        })
    }

    fn tables(&self) -> &Tables {
        self.tables.as_ref().expect("the tables are there until the store is closed")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.tables.is_some() {
            self.settle();
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("log", &self.log).field("level", &self.level).finish_non_exhaustive()
    }
}

/// A reader at the point that the tables have reached, if log and tables belong together.
fn reader_from(log: &Log, mark: Mark, level: Level) -> Result<Reader, OpenError> {
    let info = log.info();
    if mark.log_id != info.log_id {
        return Err(OpenError::TablesOfAnotherLog { tables: mark.log_id, log: info.log_id });
    }
    let ahead = |end| OpenError::TablesAhead { applied: mark.applied, end };
    let reader = match log.read_at(mark.applied, level) {
        Ok(reader) => reader,
        Err(ReadError::Purged { first, .. }) => {
            return Err(OpenError::TablesBehind { applied: mark.applied, first });
        }
        Err(ReadError::Beyond { end, .. }) => return Err(ahead(end)),
        Err(error) => return Err(ApplyError::Log(error).into()),
    };
    // Ahead can hide: a log that lost its end may since have grown past the mark with other records.
    match mark.last.map(|(epoch, lsn)| log.outcome(epoch, lsn)) {
        None | Some(Outcome::Committed | Outcome::Purged) => Ok(reader),
        Some(Outcome::Cut | Outcome::Unknown) => Err(ahead(info.tail)),
    }
}

impl Applier {
    /// Applies everything that has reached the reader's level.
    fn advance(&mut self, log: &Log, tables: &Tables) -> Result<(), ApplyError> {
        loop {
            let more = self.run(tables)?;
            // During a long replay too: a store that is killed again and again while it opens comes further each time (kind 83).
            if self.mark.applied.0 - self.stats.checkpointed.0 >= self.checkpoint_bytes {
                match self.checkpoint(log, tables) {
                    Ok(_) => self.stats.checkpoint_failure = None,
                    Err(CheckpointError::Apply(error)) => return Err(error),
                    Err(error) => self.stats.checkpoint_failure = Some(error.to_string()),
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Applies whole records in one transaction: all there are, or [`RUN_BYTES`] of them and answers that there are more.
    fn run(&mut self, tables: &Tables) -> Result<bool, ApplyError> {
        let change = tables.begin()?;
        let mut mark = self.mark;
        let (mut bytes, mut operations) = (0, 0);
        let more = {
            let mut pairs = change.pairs()?;
            if let Some(first) = self.carried.take() {
                pairs.apply(first.lsn, &first.payload)?;
                (mark.applied, mark.last) = (first.end, Some((first.epoch, first.lsn)));
                (bytes, operations) = (first.payload.len(), 1);
            }
            loop {
                let record = match self.reader.next() {
                    Ok(record) => record,
                    Err(ReadError::AtEnd { .. }) => break false,
                    // Purged: only this store trims, and never above its mark. Damaged, Io: what was durable can't be read, and skipping it
                    // would silently lose writes. All of them end this opening.
                    Err(error) => return Err(ApplyError::Log(error)),
                };
                // A transaction may end in front of a record, not between two items of a batch: both have the batch's end.
                let begins = record.item.is_none_or(|number| number == 0);
                if begins && bytes >= RUN_BYTES {
                    let (lsn, end, epoch) = (record.lsn, record.end, record.epoch);
                    self.carried = Some(Carried { lsn, end, epoch, payload: record.payload.to_vec() });
                    break true;
                }
                pairs.apply(record.lsn, record.payload)?;
                (mark.applied, mark.last) = (record.end, Some((record.epoch, record.lsn)));
                (bytes, operations) = (bytes + record.payload.len(), operations + 1);
            }
        };
        if operations > 0 {
            change.commit(mark, Commit::Volatile)?;
            self.mark = mark;
            self.stats.operations += operations;
            self.stats.transactions += 1;
        }
        Ok(more)
    }

    /// Makes the tables as they are durable, then trims the log. In this order: between the two the log has too much, never
    /// too little.
    fn checkpoint(&mut self, log: &Log, tables: &Tables) -> Result<Lsn, CheckpointError> {
        let applied = self.mark.applied;
        if applied > self.stats.checkpointed {
            // The log first, so that the tables are never durable ahead of it. Nothing is left to do where writes are `Durable`.
            let _durable = log.commit_blocking(applied, Level::Durable)?;
            let change = tables.begin().map_err(ApplyError::from)?;
            change.commit(self.mark, Commit::Durable).map_err(ApplyError::from)?;
            self.stats.checkpointed = applied;
            self.stats.checkpoints += 1;
        }
        log.trim(applied)?;
        Ok(applied)
    }
}
