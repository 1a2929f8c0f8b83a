//! The store as the log sees it: without the type of its disk, so that one [`crate::Log`] type serves every disk.
//!
//! Nothing here is on the append path: producers meet the hand-off's memory alone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use windlass_log::{Epoch, EpochHistory, Geometry, Lsn, Memory, Placed, Superblock};
use windlass_store::disk::Disk;
use windlass_store::{
    Counters, CutError, DiskError, MemoryError, Persisted, PrepareError, Prepared, Reader, Store, StoreError,
    TrimError,
};

use super::read::read_error;
use crate::error::ReadError;

/// An open store.
pub(crate) trait Media: fmt::Debug + Send + Sync {
    /// See [`Store::geometry`].
    fn geometry(&self) -> Geometry;
    /// See [`Store::flush`].
    fn flush(&self, upto: Lsn) -> Result<Persisted, StoreError>;
    /// See [`Store::prepare_step`].
    fn prepare_step(&self, tail: Lsn) -> Result<Prepared, PrepareError>;
    /// See [`Store::memory`].
    fn memory(&self, segment: u64) -> Result<Memory, MemoryError>;
    /// See [`Store::trim`].
    fn trim(&self, lsn: Lsn, drained: Lsn) -> Result<(), TrimError>;
    /// See [`Store::trimmed`].
    fn trimmed(&self) -> Lsn;
    /// See [`Store::starts_record`].
    fn starts_record(&self, lsn: Lsn) -> Result<bool, DiskError>;
    /// See [`Store::cut`].
    fn cut(&self, lsn: Lsn, history: EpochHistory, promised: Epoch) -> Result<(), CutError>;
    /// See [`Store::close`].
    fn close(&self, tail: Lsn) -> Result<(), StoreError>;
    /// See [`Store::reader`].
    fn reader(&self, from: Lsn) -> Box<dyn Cursor>;
    /// See [`Store::superblock`].
    fn superblock(&self) -> Superblock;
    /// See [`Store::counters`].
    fn counters(&self) -> Counters;
}

/// A position in the store's log.
pub(crate) trait Cursor: fmt::Debug + Send {
    /// The records at the position that lie below `end`, as many as are checked in one go, in place of those in `run`; moves behind them, and answers
    /// where it then stands. None are left below `end` if there are none.
    fn next_run(&mut self, end: Lsn, run: &mut Vec<Placed>) -> Result<Lsn, ReadError>;
    /// The payload of a record of the last run.
    fn held(&self, place: Range<usize>) -> &[u8];
    /// The first LSN that is retained.
    fn trimmed(&self) -> Lsn;
}

impl<D: Disk> Media for Arc<Store<D>> {
    fn geometry(&self) -> Geometry {
        Store::geometry(self)
    }

    fn flush(&self, upto: Lsn) -> Result<Persisted, StoreError> {
        Store::flush(self, upto)
    }

    fn prepare_step(&self, tail: Lsn) -> Result<Prepared, PrepareError> {
        Store::prepare_step(self, tail)
    }

    fn memory(&self, segment: u64) -> Result<Memory, MemoryError> {
        Store::memory(self, segment)
    }

    fn trim(&self, lsn: Lsn, drained: Lsn) -> Result<(), TrimError> {
        Store::trim(self, lsn, drained)
    }

    fn trimmed(&self) -> Lsn {
        Store::trimmed(self)
    }

    fn starts_record(&self, lsn: Lsn) -> Result<bool, DiskError> {
        Store::starts_record(self, lsn)
    }

    fn cut(&self, lsn: Lsn, history: EpochHistory, promised: Epoch) -> Result<(), CutError> {
        Store::cut(self, lsn, history, promised)
    }

    fn close(&self, tail: Lsn) -> Result<(), StoreError> {
        Store::close(self, tail)
    }

    fn reader(&self, from: Lsn) -> Box<dyn Cursor> {
        Box::new(Store::reader(self, from))
    }

    fn superblock(&self) -> Superblock {
        Store::superblock(self)
    }

    fn counters(&self) -> Counters {
        Store::counters(self)
    }
}

impl<D: Disk> Cursor for Reader<D> {
    fn next_run(&mut self, end: Lsn, run: &mut Vec<Placed>) -> Result<Lsn, ReadError> {
        match Reader::next_run(self, end, run) {
            Ok(()) => Ok(self.at()),
            Err(error) => Err(read_error(error, self.at())),
        }
    }

    fn held(&self, place: Range<usize>) -> &[u8] {
        Reader::held(self, place)
    }

    fn trimmed(&self) -> Lsn {
        Reader::trimmed(self)
    }
}
