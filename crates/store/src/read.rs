//! Reading the log record by record.
//!
//! Three answers that must never be mistaken for each other (kind 48): a record; the end, to wait at; and "gone", with the first LSN that is still there. Damage is
//! a fourth, with file, offset and LSN, and a failure to read a fifth: neither is ever the end (kinds 2 and 7).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_log::{Located, Lsn, Placed, Record, Scan, ScanError, Shape, Step, Stop, StopReason, locate};

use crate::ahead::{Ahead, AheadWork, read_ahead};
use crate::disk::Disk;
use crate::error::DiskError;
use crate::image::{Files, OpenFile};
use crate::names;
use crate::store::Store;

/// The most records of a run: bounds what is kept of each.
pub(crate) const RUN_RECORDS: usize = 128;

/// What a reader found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read<'r> {
    /// The next record, of whatever kind: pads and segment starts too.
    Record(Record<'r>),
    /// Everything below the end given was read: ask again with a later one.
    AtEnd {
        /// Where the next record will be.
        lsn: Lsn,
    },
}

/// Why a reader can't go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The log was trimmed past the reader: go on at `first`, or from a snapshot.
    #[error("LSN {lsn} was released by a trim: the log starts at LSN {first}")]
    Purged {
        /// Where the reader stood.
        lsn: Lsn,
        /// The first LSN that is still there.
        first: Lsn,
    },
    /// No record starts there: read from a record's start.
    #[error("LSN {lsn} lies inside the record from {start} to {end}: read from one of these")]
    InsideRecord {
        /// The LSN asked for.
        lsn: Lsn,
        /// The record's start.
        start: Lsn,
        /// Its end.
        end: Lsn,
    },
    /// A record below the end given can't be read: damage.
    #[error("{}: damage at LSN {lsn}, offset {offset}: {reason}; restore the file from a copy, or repair the range from a peer", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// The LSN.
        lsn: Lsn,
        /// What is wrong.
        reason: StopReason,
    },
    /// No memory for a record.
    #[error("no memory for the record of {bytes} bytes at LSN {lsn}")]
    Memory {
        /// The record's LSN.
        lsn: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// A system call failed; the reader stands where it stood.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Reads the log of a store that is open, from one LSN on. Holds at most one file and one buffer that grows to the largest record met.
pub struct Reader<D: Disk> {
    store: Arc<Store<D>>,
    scan: Scan,
    file: OpenFile<D>,
    /// What is read ahead, as long as it is.
    ahead: Option<Ahead>,
    /// Whether a record is known to start at the scan's place.
    on_start: bool,
}

impl<D: Disk> std::fmt::Debug for Reader<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("at", &self.scan.at()).finish_non_exhaustive()
    }
}

impl<D: Disk> Store<D> {
    /// What must be known to read the log as it is now.
    pub(crate) fn shape(&self) -> Shape {
        Shape { geometry: self.geometry, log_id: self.log_id, history: self.history() }
    }

    /// A reader that starts at `from`, a record's start; an LSN in a segment's header page, or at its end, stands for the record that follows.
    #[must_use]
    pub fn reader(self: &Arc<Self>, from: Lsn) -> Reader<D> {
        let scan = Scan::new(self.shape(), self.geometry.normalize(from), None);
        Reader { store: Arc::clone(self), scan, file: None, ahead: None, on_start: false }
    }
}

impl<D: Disk> Store<D> {
    /// Whether the records of its segment below `lsn` are whole, one behind the other, and the last of them ends there: then a record starts at `lsn`, also if it
    /// can't be read. `end` is a record's end at or behind it.
    ///
    /// # Errors
    ///
    /// [`ReadError::Memory`], [`ReadError::Disk`]: it could not be read.
    pub fn is_whole_up_to(&self, lsn: Lsn, end: Lsn) -> Result<bool, ReadError> {
        let mut file = None;
        let mut files = Files::new(&self.disk, self.geometry, &mut file);
        match locate(&mut files, &self.shape(), self.trimmed(), lsn, end).map_err(scan_failed)? {
            Located::Start => Ok(true),
            Located::Inside { .. } | Located::Unreadable(_) => Ok(false),
        }
    }
}

impl<D: Disk> Reader<D> {
    /// Where the next record will be read.
    #[must_use]
    pub fn at(&self) -> Lsn {
        self.scan.at()
    }

    /// Goes on from `lsn` instead.
    pub fn seek(&mut self, lsn: Lsn) {
        self.ahead = None;
        self.scan.seek(self.store.geometry.normalize(lsn));
        self.on_start = false;
    }

    /// Adopts the history as it is now: needed after a cut, a takeover or a trim past the reader.
    pub fn refresh(&mut self) {
        self.scan.set_history(self.store.history());
    }

    /// Lets a thread of the caller's read ahead of this reader, up to `until`, a record's end below which nothing changes any more: it has to
    /// [run](AheadWork::run) what this answers, and ends with the reader or when all is read. Takes some 2 MiB of memory. It only saves
    /// time: whatever a reader answers it has from what it checked itself.
    #[must_use]
    pub fn read_ahead(&mut self, until: Lsn) -> AheadWork<D> {
        let (ahead, work) = read_ahead(&self.store, self.scan.held_end(), until);
        self.ahead = Some(ahead);
        work
    }

    /// Whether something is read ahead.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// The first LSN of the log that is retained.
    #[must_use]
    pub fn trimmed(&self) -> Lsn {
        self.store.trimmed()
    }

    /// The next record below `end`: the drained LSN, or a lower watermark; always a record's end.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. The reader stands where it stood.
    pub fn next(&mut self, end: Lsn) -> Result<Read<'_>, ReadError> {
        let at = self.scan.at();
        let shape = self.look(end)?;
        if at >= end {
            return Ok(Read::AtEnd { lsn: at });
        }
        let Reader { store, scan, file, on_start, .. } = self;
        match scan.step_afresh(&mut Files::new(&store.disk, store.geometry, file)) {
            Ok(Step::Record(record)) => {
                *on_start = true;
                Ok(Read::Record(record))
            }
            Ok(Step::Stop(stop)) => Err(stopped(store, file, shape.as_ref(), end, stop)?),
            Err(error) => {
                *file = None;
                Err(scan_failed(error))
            }
        }
    }

    /// The next records below `end`, as many as were copied out and checked in one go, in place of those in `run`; none at `end`, and then the reader
    /// [stands](Self::at) there. Their payloads are [held](Self::held) until the reader goes on. A trim may release them meanwhile: whoever must not
    /// yield what is [trimmed](Self::trimmed) looks before it does.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. The reader stands where it stood, and the run is empty.
    pub fn next_run(&mut self, end: Lsn, run: &mut Vec<Placed>) -> Result<(), ReadError> {
        run.clear();
        let shape = self.look(end)?;
        if self.scan.at() >= end {
            return Ok(());
        }
        let Reader { store, scan, file, ahead, on_start } = self;
        let was_held = scan.holds_some() || ahead.is_some();
        let mut stepped =
            scan.step_placed(&mut Files::new(&store.disk, store.geometry, file).with_ahead(ahead.as_mut()));
        let is_amiss = !matches!(stepped, Ok(Ok(_)));
        if is_amiss || ahead.as_ref().is_some_and(Ahead::is_over) {
            *ahead = None;
        }
        if is_amiss && was_held {
            // What is amiss in something that was read ahead, or copied out with what lies before it, has to be seen as it is now: it may have been repaired.
            scan.forget();
            stepped = scan.step_placed(&mut Files::new(&store.disk, store.geometry, file));
        }
        match stepped {
            Ok(Ok(placed)) => {
                *on_start = true;
                run.push(placed);
                scan.step_held(RUN_RECORDS - 1, |placed| run.push(placed));
                Ok(())
            }
            Ok(Err(stop)) => Err(stopped(store, file, shape.as_ref(), end, stop)?),
            Err(error) => {
                *file = None;
                Err(scan_failed(error))
            }
        }
    }

    /// The payload of a record of the last run.
    ///
    /// # Panics
    ///
    /// If it is of no such record.
    #[must_use]
    pub fn held(&self, place: Range<usize>) -> &[u8] {
        self.scan.held(place)
    }

    /// What the payloads of the last run are places in.
    #[must_use]
    pub fn held_bytes(&self) -> &[u8] {
        self.scan.held_bytes()
    }

    /// What is looked at before each step: whether the place was released. Answers the log's shape if it is not known whether a record starts there.
    fn look(&mut self, end: Lsn) -> Result<Option<Shape>, ReadError> {
        purged(&self.store, self.scan.at())?;
        self.scan.set_until(end);
        Ok(if self.on_start { None } else { Some(self.scan.shape().clone()) })
    }
}

/// Why a reader stopped.
fn stopped<D: Disk>(
    store: &Store<D>,
    file: &mut OpenFile<D>,
    shape: Option<&Shape>,
    end: Lsn,
    stop: Stop,
) -> Result<ReadError, ReadError> {
    // A trim publishes its LSN before it lets a file be reused, so a reader that was overtaken sees it now.
    *file = None;
    purged(store, stop.lsn)?;
    explain(store, file, shape, end, stop)
}

/// Whether `lsn` was released.
fn purged<D: Disk>(store: &Store<D>, lsn: Lsn) -> Result<(), ReadError> {
    let first = store.trimmed();
    if lsn < first { Err(ReadError::Purged { lsn, first }) } else { Ok(()) }
}

fn scan_failed(error: ScanError<DiskError>) -> ReadError {
    match error {
        ScanError::Image { error, .. } => error.into(),
        ScanError::Memory { lsn, bytes } => ReadError::Memory { lsn, bytes },
    }
}

/// Why no record starts at `stop.lsn`: damage, or an LSN inside of one where the caller gave it (`shape`).
fn explain<D: Disk>(
    store: &Store<D>,
    file: &mut OpenFile<D>,
    shape: Option<&Shape>,
    end: Lsn,
    stop: Stop,
) -> Result<ReadError, ReadError> {
    if let Some(shape) = shape {
        let mut files = Files::new(&store.disk, store.geometry, file);
        match locate(&mut files, shape, store.trimmed(), stop.lsn, end).map_err(scan_failed)? {
            Located::Inside { start, end } => {
                return Ok(ReadError::InsideRecord { lsn: stop.lsn, start, end });
            }
            Located::Start | Located::Unreadable(_) => {}
        }
    }
    let number = store.geometry.segment_of(stop.lsn);
    Ok(ReadError::Damaged {
        file: store.disk.path().join(names::segment(store.geometry, number)),
        offset: store.geometry.offset_of(stop.lsn),
        lsn: stop.lsn,
        reason: stop.reason,
    })
}
