//! The tables in redb: the pairs, and the mark that says how much of which log is in them.
//!
//! The mark is written in every transaction that applies records, durable or not. redb rolls a crash back to its last durable
//! commit as a whole, so the mark that comes back always describes the pairs that come back.

use std::path::Path;

use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, TableHandle,
    WriteTransaction,
};
use windlass::{Epoch, LogId, Lsn};

use crate::error::OpenError;
use crate::{ApplyError, Op};

const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");
const MARK: TableDefinition<&str, &[u8]> = TableDefinition::new("windlass");
const MARK_KEY: &str = "mark";
const MARK_BYTES: usize = 40;

/// How much of which log is in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The log that the pairs come from.
    pub log_id: LogId,
    /// Everything below it is applied; replay starts here.
    pub applied: Lsn,
    /// The record (or item) that was applied last, with its epoch: by them a log that was cut and went on otherwise is told from the
    /// one that was applied. `None` before the first.
    pub last: Option<(Epoch, Lsn)>,
}

impl Mark {
    fn encode(self) -> [u8; MARK_BYTES] {
        let (epoch, lsn) = self.last.unwrap_or((Epoch::NONE, Lsn(0)));
        let mut bytes = [0; MARK_BYTES];
        bytes[..16].copy_from_slice(&self.log_id.0);
        bytes[16..24].copy_from_slice(&self.applied.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&epoch.to_bits().to_le_bytes());
        bytes[32..].copy_from_slice(&lsn.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Mark> {
        let (log_id, rest) = bytes.split_first_chunk()?;
        let (applied, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let lsn = u64::from_le_bytes(rest.try_into().ok()?);
        let epoch = Epoch::from_bits(u64::from_le_bytes(*epoch));
        let last = (epoch != Epoch::NONE).then_some((epoch, Lsn(lsn)));
        Some(Mark { log_id: LogId(*log_id), applied: Lsn(u64::from_le_bytes(*applied)), last })
    }
}

/// What flushing a transaction costs and buys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commit {
    /// Seen by all readers of this process, gone after a crash: the log brings it back.
    Volatile,
    /// Flushed, and able to be opened after a crash without walking the whole file.
    Durable,
}

pub(crate) struct Tables(Database);

impl Tables {
    /// Opens the file, making it where there is none. redb takes care of a crash: it goes back to its last durable commit.
    pub(crate) fn open(file: &Path) -> Result<Tables, redb::Error> {
        let tables = Tables(Database::create(file)?);
        // Readers need the tables to exist.
        let transaction = tables.0.begin_write()?;
        let fresh = transaction.list_tables()?.all(|table| table.name() != MARK.name());
        if fresh {
            transaction.open_table(PAIRS)?;
            transaction.open_table(MARK)?;
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(tables)
    }

    pub(crate) fn mark(&self) -> Result<Option<Mark>, OpenError> {
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let table = self.0.begin_read()?.open_table(MARK)?;
            Ok(table.get(MARK_KEY)?.map(|value| value.value().to_vec()))
        };
        let Some(bytes) = read()? else { return Ok(None) };
        let mark = Mark::decode(&bytes).ok_or(OpenError::UnknownMark { bytes: bytes.len() })?;
        Ok(Some(mark))
    }

    pub(crate) fn begin(&self) -> Result<Change, redb::Error> {
        Ok(Change(self.0.begin_write()?))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, redb::Error> {
        let table = self.0.begin_read()?.open_table(PAIRS)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }

    /// Calls `each` with every pair of one snapshot, in the order of the keys, until it answers `false`.
    pub(crate) fn scan(&self, mut each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), redb::Error> {
        let table = self.0.begin_read()?.open_table(PAIRS)?;
        for pair in table.iter()? {
            let (key, value) = pair?;
            if !each(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn close(self) -> Result<(), redb::Error> {
        Ok(self.0.close()?)
    }
}

/// A transaction of redb. Dropped, it never happened.
pub(crate) struct Change(WriteTransaction);

impl Change {
    /// The pairs, for a run of operations.
    pub(crate) fn pairs(&self) -> Result<Pairs<'_>, redb::Error> {
        Ok(Pairs(self.0.open_table(PAIRS)?))
    }

    /// Commits the pairs and the mark that goes with them.
    pub(crate) fn commit(mut self, mark: Mark, how: Commit) -> Result<(), redb::Error> {
        self.0.open_table(MARK)?.insert(MARK_KEY, mark.encode().as_slice())?;
        match how {
            Commit::Volatile => self.0.set_durability(Durability::None)?,
            Commit::Durable => self.0.set_quick_repair(true),
        }
        Ok(self.0.commit()?)
    }
}

pub(crate) struct Pairs<'t>(Table<'t, &'static [u8], &'static [u8]>);

impl Pairs<'_> {
    /// Applies what one record or item says.
    pub(crate) fn apply(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), ApplyError> {
        let (key, value) = Op::decode(payload).map_err(|cause| ApplyError::Malformed { lsn, cause })?;
        let done = match value {
            Some(value) => self.0.insert(key, value).map(drop),
            None => self.0.remove(key).map(drop),
        };
        done.map_err(|error| ApplyError::Tables(error.into()))
    }
}
