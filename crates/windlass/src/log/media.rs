//! The store as the log sees it: without the type of its disk, so that one [`crate::Log`] type serves every disk.
//!
//! Nothing here is on the append path: producers meet the hand-off's memory alone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use windlass_log::{Epoch, EpochHistory, Geometry, Lsn, Memory, Placed, Superblock};
use windlass_store::disk::Disk;
use windlass_store::{
    Counters, CutError, DiskError, MemoryError, Persisted, PrepareError, Prepared, Reader, ScrubPlace,
    Scrubbed, Store, StoreError, TrimError, UpdateError,
};

use super::read::read_error;
use crate::error::ReadError;

/// An open store.
pub(crate) trait Media: fmt::Debug + Send + Sync {
    /// See [`Store::geometry`].
    fn geometry(&self) -> Geometry;
    /// See [`Store::begin`].
    fn begin(&self) -> Result<(), UpdateError>;
    /// See [`Store::persisted`].
    fn persisted(&self) -> Lsn;
    /// See [`Store::is_vouched`].
    fn is_vouched(&self) -> bool;
    /// See [`Store::vouch`].
    fn vouch(&self) -> Result<u64, StoreError>;
    /// See [`Store::own_process`].
    fn own_process(&self) -> Result<(), StoreError>;
    /// See [`Store::flush`].
    fn flush(&self, upto: Lsn) -> Result<Persisted, StoreError>;
    /// See [`Store::sync_live_mark`].
    fn sync_live_mark(&self) -> Result<bool, StoreError>;
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
    /// See [`Store::record_around`].
    fn record_around(&self, lsn: Lsn, end: Lsn) -> Option<Range<Lsn>>;
    /// See [`Store::is_whole_up_to`].
    fn is_whole_up_to(&self, lsn: Lsn, end: Lsn) -> Result<bool, ReadError>;
    /// See [`Store::cut`].
    fn cut(&self, lsn: Lsn, history: EpochHistory, promised: Epoch) -> Result<(), CutError>;
    /// See [`Store::close`].
    fn close(&self, tail: Lsn) -> Result<(), StoreError>;
    /// See [`Store::is_closed`].
    fn is_closed(&self) -> bool;
    /// See [`Store::reader`]; `threads`: one may be made to read ahead.
    fn reader(&self, from: Lsn, threads: bool) -> Box<dyn Cursor>;
    /// See [`Store::superblock`].
    fn superblock(&self) -> Superblock;
    /// See [`Store::counters`].
    fn counters(&self) -> Counters;
    /// See [`Store::scrub`]: up to the last [cold](Store::cold_end) segment.
    fn scrub(&self, place: ScrubPlace, bytes_max: u64) -> Result<Scrubbed, DiskError>;
}

/// A position in the store's log.
pub(crate) trait Cursor: fmt::Debug + Send {
    /// The records at the position that lie below `end`, as many as are checked in one go, in place of those in `run`; moves behind them, and answers
    /// where it then stands. None are left below `end` if there are none.
    fn next_run(&mut self, end: Lsn, run: &mut Vec<Placed>) -> Result<Lsn, ReadError>;
    /// The payload of a record of the last run.
    fn held(&self, place: Range<usize>) -> &[u8];
    /// What payloads of the last run are places in.
    fn held_bytes(&self) -> &[u8];
    /// The first LSN that is retained.
    fn trimmed(&self) -> Lsn;
}

impl<D: Disk> Media for Arc<Store<D>> {
    fn geometry(&self) -> Geometry {
        Store::geometry(self)
    }

    fn begin(&self) -> Result<(), UpdateError> {
        Store::begin(self)
    }

    fn scrub(&self, place: ScrubPlace, bytes_max: u64) -> Result<Scrubbed, DiskError> {
        Store::scrub(self, place, self.cold_end(), bytes_max)
    }

    fn persisted(&self) -> Lsn {
        Store::persisted(self).lsn()
    }

    fn is_vouched(&self) -> bool {
        Store::is_vouched(self)
    }

    fn vouch(&self) -> Result<u64, StoreError> {
        Store::vouch(self)
    }

    fn own_process(&self) -> Result<(), StoreError> {
        Store::own_process(self)
    }

    fn flush(&self, upto: Lsn) -> Result<Persisted, StoreError> {
        Store::flush(self, upto)
    }

    fn sync_live_mark(&self) -> Result<bool, StoreError> {
        Store::sync_live_mark(self)
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

    fn record_around(&self, lsn: Lsn, end: Lsn) -> Option<Range<Lsn>> {
        Store::record_around(self, lsn, end)
    }

    fn is_whole_up_to(&self, lsn: Lsn, end: Lsn) -> Result<bool, ReadError> {
        Store::is_whole_up_to(self, lsn, end).map_err(|error| read_error(error, lsn))
    }

    fn cut(&self, lsn: Lsn, history: EpochHistory, promised: Epoch) -> Result<(), CutError> {
        Store::cut(self, lsn, history, promised)
    }

    fn close(&self, tail: Lsn) -> Result<(), StoreError> {
        Store::close(self, tail)
    }

    fn is_closed(&self) -> bool {
        Store::is_closed(self)
    }

    fn reader(&self, from: Lsn, threads: bool) -> Box<dyn Cursor> {
        Box::new(Reading::new(self, from, threads))
    }

    fn superblock(&self) -> Superblock {
        Store::superblock(self)
    }

    fn counters(&self) -> Counters {
        Store::counters(self)
    }
}

/// So much must have been read in order before a thread reads ahead, and so much must be left.
const AHEAD_AFTER_BYTES: u64 = 2 << 20;
const AHEAD_BYTES_MIN: u64 = 8 << 20;

/// A store's reader; where much is read in order, a thread may read ahead of it.
pub(crate) struct Reading<D: Disk> {
    reader: Reader<D>,
    /// Since where everything was read in order; `None` where no thread may be made.
    since: Option<Lsn>,
}

impl<D: Disk> fmt::Debug for Reading<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reader.fmt(f)
    }
}

impl<D: Disk> Reading<D> {
    pub(crate) fn new(store: &Arc<Store<D>>, from: Lsn, threads: bool) -> Reading<D> {
        let reader = store.reader(from);
        let since = threads.then(|| reader.at());
        Reading { reader, since }
    }

    /// See [`Reader::refresh`].
    pub(crate) fn refresh(&mut self) {
        self.reader.refresh();
    }

    #[cold]
    fn read_ahead(&mut self, end: Lsn) {
        self.since = Some(end);
        let work = self.reader.read_ahead(end);
        // Without a thread the reader does all of it itself.
        let _ = std::thread::Builder::new().name("windlass-ahead".to_owned()).spawn(move || work.run());
    }
}

impl<D: Disk> Cursor for Reading<D> {
    fn next_run(&mut self, end: Lsn, run: &mut Vec<Placed>) -> Result<Lsn, ReadError> {
        let at = self.reader.at();
        let due = |since: Lsn| at.0.saturating_sub(since.0) >= AHEAD_AFTER_BYTES;
        if end.0.saturating_sub(at.0) >= AHEAD_BYTES_MIN
            && self.since.is_some_and(due)
            && !self.reader.is_ahead()
        {
            self.read_ahead(end);
        }
        match self.reader.next_run(end, run) {
            Ok(()) => Ok(self.reader.at()),
            Err(error) => Err(read_error(error, at)),
        }
    }

    fn held(&self, place: Range<usize>) -> &[u8] {
        self.reader.held(place)
    }

    fn held_bytes(&self) -> &[u8] {
        self.reader.held_bytes()
    }

    fn trimmed(&self) -> Lsn {
        self.reader.trimmed()
    }
}
