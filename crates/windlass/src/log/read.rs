//! Reading records and following the tail.
//!
//! A reader copies records out of the segment files and checks the copy: publish word, both checksums, epoch. It never reads
//! above the watermark of its level, so what it yields has survived what that level promises. `AtEnd`, `Purged` and
//! `Damaged` are three different answers.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use windlass_log::{Epoch, Geometry, HEADER_BYTES, Lsn, Placed, RecordKind, batch_items};

use super::Log;
use super::media::Cursor;
use super::shared::Shared;
use super::tenure::Tenure;
use crate::commit::{CommitError, Level, Reached, Watch, Who, wait_blocking};
use crate::error::ReadError;

/// Bytes in front of each item of a batch.
const FRAME_BYTES: usize = 8;

/// One record, or one item of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Where it starts; an item's LSN lies inside its batch's record.
    pub lsn: Lsn,
    /// Where the next record starts: read on from there. All items of a batch have the batch's end.
    pub end: Lsn,
    /// The tenure that appended it.
    pub epoch: Epoch,
    /// Its number in its batch, from 0; `None` for a record of its own.
    pub item: Option<u32>,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Takes records from a cursor, one item at a time. The cursor checks them in runs; their payloads are lent from where they were checked.
#[derive(Debug)]
pub(crate) struct Items<'c> {
    cursor: Box<dyn Cursor + 'c>,
    position: Lsn,
    /// The record or item that was found last: where it starts, its number in its batch, its payload's place; and its record's epoch and end.
    lsn: Lsn,
    item: Option<u32>,
    payload: Range<usize>,
    epoch: Epoch,
    end: Lsn,
    /// Records that were checked together, and how many of them were taken.
    run: Vec<Placed>,
    taken: usize,
    /// What is left of a batch.
    items: VecDeque<(Lsn, u32, Range<usize>)>,
}

impl<'c> Items<'c> {
    pub(crate) fn new(cursor: Box<dyn Cursor + 'c>, from: Lsn) -> Items<'c> {
        Items {
            cursor,
            position: from,
            lsn: from,
            item: None,
            payload: 0..0,
            epoch: Epoch::NONE,
            end: from,
            run: Vec::new(),
            taken: 0,
            items: VecDeque::new(),
        }
    }

    /// Where the next record is looked for.
    pub(crate) fn position(&self) -> Lsn {
        self.position
    }

    /// Whether no item of a batch is left to hand out.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Finds the next record or item, and stands before it. `limit` is asked whenever more has to be read: only what lies below it is.
    #[inline]
    pub(crate) fn look(
        &mut self,
        limit: impl Fn() -> Lsn,
        folder: &Path,
        geometry: Geometry,
    ) -> Result<(), ReadError> {
        while self.items.is_empty() {
            let Some(placed) = self.run.get(self.taken) else {
                self.refill(limit())?;
                continue;
            };
            // A run is checked at once and handed out record by record: what was trimmed meanwhile is gone.
            let (lsn, first) = (placed.lsn, self.cursor.trimmed());
            if lsn < first {
                return Err(ReadError::Purged { lsn, first });
            }
            match placed.kind {
                RecordKind::Data => return Ok(()),
                RecordKind::Batch => {
                    let payload = placed.payload.clone();
                    self.pass();
                    self.unpack(lsn, payload, folder, geometry)?;
                }
                RecordKind::Pad
                | RecordKind::SegmentStart
                | RecordKind::EpochStart
                | RecordKind::Configuration => self.pass(),
            }
        }
        Ok(())
    }

    /// Moves behind the next record of the run.
    #[inline]
    fn pass(&mut self) {
        let placed = &self.run[self.taken];
        (self.end, self.position, self.epoch) = (placed.end, placed.end, placed.epoch);
        self.taken += 1;
    }

    /// Where the record or item starts that it stands before, and its epoch.
    #[inline]
    pub(crate) fn next(&self) -> (Lsn, Epoch) {
        match self.items.front() {
            Some((lsn, _, _)) => (*lsn, self.epoch),
            None => (self.run[self.taken].lsn, self.run[self.taken].epoch),
        }
    }

    /// Takes the record or item that it stands before, for [`record`](Self::record) to lend out.
    #[inline]
    pub(crate) fn take(&mut self) {
        if let Some((lsn, item, payload)) = self.items.pop_front() {
            (self.lsn, self.item, self.payload) = (lsn, Some(item), payload);
        } else {
            let placed = &self.run[self.taken];
            (self.lsn, self.item, self.payload) = (placed.lsn, None, placed.payload.clone());
            self.pass();
        }
    }

    /// Finds the next record or item, for [`record`](Self::record) to lend out, and moves behind it.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        limit: impl Fn() -> Lsn,
        folder: &Path,
        geometry: Geometry,
    ) -> Result<(), ReadError> {
        self.look(limit, folder, geometry)?;
        self.take();
        Ok(())
    }

    /// Lends out what was checked together, from where it stands; of epochs up to `epoch_max`.
    fn run(&mut self, epoch_max: Epoch) -> Run<'_> {
        let Items { cursor, position, epoch, end, run, taken, items, .. } = self;
        Run {
            placed: run,
            bytes: cursor.held_bytes(),
            items,
            taken,
            position,
            end: *end,
            epoch: *epoch,
            epoch_max,
        }
    }

    /// The next run, when the last one is used up.
    #[cold]
    fn refill(&mut self, limit: Lsn) -> Result<(), ReadError> {
        self.taken = 0;
        let at = self.cursor.next_run(limit, &mut self.run)?;
        if self.run.is_empty() { Err(ReadError::AtEnd { end: at }) } else { Ok(()) }
    }

    /// What was found last.
    #[inline]
    pub(crate) fn record(&self) -> Record<'_> {
        let payload = self.cursor.held(self.payload.clone());
        Record { lsn: self.lsn, end: self.end, epoch: self.epoch, item: self.item, payload }
    }

    fn unpack(
        &mut self,
        batch: Lsn,
        payload: Range<usize>,
        folder: &Path,
        geometry: Geometry,
    ) -> Result<(), ReadError> {
        let base = payload.start;
        for (number, item) in (0..).zip(batch_items(self.cursor.held(payload), batch)) {
            let (lsn, bytes) = item.map_err(|error| ReadError::Damaged {
                file: segment_file(folder, geometry, batch),
                offset: geometry.offset_of(batch),
                lsn: batch,
                what: error.to_string(),
            })?;
            let frame = lsn.0 - batch.0 - HEADER_BYTES;
            let start = base + usize::try_from(frame).unwrap_or(usize::MAX) + FRAME_BYTES;
            self.items.push_back((lsn, number, start..start + bytes.len()));
        }
        Ok(())
    }
}

/// Records that lie behind each other and were checked together: what [`Reader::next_run`] lends. Those that are not taken come again.
#[derive(Debug)]
pub struct Run<'r> {
    placed: &'r [Placed],
    bytes: &'r [u8],
    items: &'r mut VecDeque<(Lsn, u32, Range<usize>)>,
    taken: &'r mut usize,
    position: &'r mut Lsn,
    /// Of the batch that `items` are left of.
    end: Lsn,
    epoch: Epoch,
    epoch_max: Epoch,
}

impl<'r> Iterator for Run<'r> {
    type Item = Record<'r>;

    #[inline]
    fn next(&mut self) -> Option<Record<'r>> {
        if !self.items.is_empty() {
            let (lsn, item, payload) = self.items.pop_front()?;
            let payload = &self.bytes[payload];
            return Some(Record { lsn, end: self.end, epoch: self.epoch, item: Some(item), payload });
        }
        loop {
            let placed = self.placed.get(*self.taken)?;
            // A batch is taken apart by the next call, which can say if it can't be.
            if placed.kind == RecordKind::Batch || placed.epoch > self.epoch_max {
                return None;
            }
            *self.taken += 1;
            *self.position = placed.end;
            if placed.kind == RecordKind::Data {
                let Placed { lsn, end, epoch, payload, .. } = placed;
                let payload = &self.bytes[payload.clone()];
                return Some(Record { lsn: *lsn, end: *end, epoch: *epoch, item: None, payload });
            }
        }
    }
}

/// The store's answer in the reader's words.
pub(super) fn read_error(error: windlass_store::ReadError, at: Lsn) -> ReadError {
    match error {
        windlass_store::ReadError::Purged { lsn, first } => ReadError::Purged { lsn, first },
        windlass_store::ReadError::InsideRecord { lsn, start, .. } => {
            ReadError::InsideRecord { lsn, record: start }
        }
        windlass_store::ReadError::Damaged { file, offset, lsn, reason } => {
            ReadError::Damaged { file, offset, lsn, what: reason.to_string() }
        }
        error @ windlass_store::ReadError::Memory { .. } => {
            ReadError::Io { lsn: at, cause: error.to_string() }
        }
        windlass_store::ReadError::Disk(error) => ReadError::Io { lsn: at, cause: error.to_string() },
    }
}

/// The file of a segment, as the store names it.
pub(super) fn segment_file(folder: &Path, geometry: Geometry, lsn: Lsn) -> PathBuf {
    folder.join(format!("{:016x}.segment", geometry.base(geometry.segment_of(lsn)).0))
}

/// Reads the records of a log in order.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    level: Level,
    items: Items<'static>,
}

impl Reader {
    /// The next record below the reader's level. An error leaves the reader where it is: at the end it can be asked again.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; `AtEnd`, `Purged` and `Damaged` are three different answers.
    #[expect(clippy::should_implement_trait, reason = "a record borrows from the reader")]
    pub fn next(&mut self) -> Result<Record<'_>, ReadError> {
        self.look_settled()?;
        self.items.take();
        Ok(self.items.record())
    }

    /// The next records below the reader's level, at least one: as many as were checked in one go. The fastest way to read much; what is not taken of a run comes again.
    /// What a run lends was there when it was lent: a trim meanwhile ends none.
    ///
    /// # Errors
    ///
    /// As [`Reader::next`].
    pub fn next_run(&mut self) -> Result<Run<'_>, ReadError> {
        self.look_settled()?;
        Ok(self.items.run(self.tenure.epoch))
    }

    /// Stands before the next record. Where it has come to what no mark vouches for it goes on when that is on the medium.
    #[inline]
    fn look_settled(&mut self) -> Result<(), ReadError> {
        loop {
            let settled = self.shared.is_settled();
            match self.look() {
                Ok(()) => return Ok(()),
                Err(ReadError::AtEnd { end }) if !settled && self.level != Level::Buffered => {
                    self.settle(end)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    #[cold]
    fn settle(&self, end: Lsn) -> Result<(), ReadError> {
        self.shared.settle().map_err(|failure| ReadError::Io { lsn: end, cause: failure.to_string() })
    }

    /// Stands before the next record that is there now.
    #[inline]
    fn look(&mut self) -> Result<(), ReadError> {
        let Reader { shared, tenure, level, items } = self;
        let limit = || limit_at(shared, tenure, *level);
        match items.look(limit, &shared.folder, shared.geometry) {
            Ok(()) => {
                // This tenure's watermark does not speak for what the next one appends there.
                let (lsn, epoch) = items.next();
                if epoch > tenure.epoch { Err(ReadError::Ended { end: lsn }) } else { Ok(()) }
            }
            // The next owner may have trimmed, cut or filled what is there: not damage, but the end of what this reader can know.
            Err(ReadError::Damaged { lsn, .. } | ReadError::InsideRecord { lsn, .. })
                if shared.media.is_closed() =>
            {
                Err(ReadError::Ended { end: lsn })
            }
            // What this tenure had there was cut: not damage, but the end of what this reader can know.
            Err(ReadError::Damaged { lsn, .. })
                if shared.media.superblock().history.epoch_at(lsn) > Some(tenure.epoch) =>
            {
                Err(ReadError::Ended { end: lsn })
            }
            Err(error) => {
                if let (ReadError::Damaged { lsn, .. }, Some(port)) = (&error, shared.port()) {
                    // As a member's other readers do.
                    port.ask(crate::driver::Request::Look(*lsn));
                }
                Err(error)
            }
        }
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        self.look()?;
        self.items.take();
        Ok(())
    }

    /// Where the next record is looked for.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.items.position()
    }

    fn watch(&self) -> &Arc<Watch> {
        watch_of(&self.tenure, self.level)
    }
}

/// Up to where a level may be read now.
fn limit_at(shared: &Shared, tenure: &Tenure, level: Level) -> Lsn {
    if level == Level::Buffered {
        // A failure stops the watermarks; what was drained may still be read.
        let _ = shared.drain(tenure);
    }
    watch_of(tenure, level).value()
}

fn watch_of(tenure: &Tenure, level: Level) -> &Arc<Watch> {
    let marks = &tenure.watermarks;
    match level {
        Level::Buffered => &marks.drained,
        Level::Local => &marks.persisted,
        Level::Replicated => &marks.replicated,
        Level::Durable => &marks.durable,
    }
}

/// Follows a log: like a [`Reader`] that waits at the end, across segments, for as long as the tenure lasts.
#[derive(Debug)]
pub struct Subscription {
    reader: Reader,
}

impl Subscription {
    /// The next record, waiting for it on this thread until `deadline`.
    ///
    /// # Errors
    ///
    /// [`ReadError::AtEnd`] when the deadline has passed; [`ReadError::Ended`] when the tenure has ended and everything is read; else as
    /// [`Reader::next`].
    pub fn next_blocking(&mut self, deadline: Option<Instant>) -> Result<Record<'_>, ReadError> {
        loop {
            let end = match self.reader.advance() {
                Ok(()) => break,
                Err(ReadError::AtEnd { end }) => end,
                Err(error) => return Err(error),
            };
            let watch = self.reader.watch().clone();
            match wait_blocking(&watch, Lsn(end.0 + 1), self.reader.level, Who::Observer, deadline) {
                Ok(()) => {}
                Err(CommitError::Deadline { .. }) => return Err(ReadError::AtEnd { end }),
                Err(_) if watch.value() > end => {}
                Err(_) => return Err(ReadError::Ended { end }),
            }
        }
        Ok(self.reader.items.record())
    }

    /// The next record, as a future.
    ///
    /// # Errors
    ///
    /// As [`Subscription::next_blocking`] without a deadline.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point; the next call gives the same record.
    pub async fn next(&mut self) -> Result<Record<'_>, ReadError> {
        loop {
            let end = match self.reader.advance() {
                Ok(()) => break,
                Err(ReadError::AtEnd { end }) => end,
                Err(error) => return Err(error),
            };
            let watch = self.reader.watch().clone();
            let reached = Reached::new(watch.clone(), Lsn(end.0 + 1), Who::Observer).await;
            if reached.is_err() && watch.value() <= end {
                return Err(ReadError::Ended { end });
            }
        }
        Ok(self.reader.items.record())
    }

    /// Where the next record is looked for.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.reader.position()
    }
}

impl Log {
    /// Reads from the record that starts at `from`, up to what has reached the level of the options (default: `Durable`).
    ///
    /// # Errors
    ///
    /// [`ReadError::Purged`], [`ReadError::Beyond`] at once; what doesn't hold at `from` when reading.
    pub fn read_from(&self, from: Lsn) -> Result<Reader, ReadError> {
        self.read_at(from, self.shared.level)
    }

    /// As [`Log::read_from`], up to what has reached `level`. In a group, what is read above `Durable` may be revoked by a takeover.
    ///
    /// # Errors
    ///
    /// As [`Log::read_from`].
    pub fn read_at(&self, from: Lsn, level: Level) -> Result<Reader, ReadError> {
        let first = self.shared.media.trimmed();
        if from < first {
            return Err(ReadError::Purged { lsn: from, first });
        }
        let tail = self.tenure.handoff.tail();
        if from > tail {
            return Err(ReadError::Beyond { lsn: from, end: tail });
        }
        let level = if level == Level::Replicated && self.shared.is_lone() { Level::Local } else { level };
        let items = Items::new(self.shared.media.reader(from, self.owner.threads()), from);
        Ok(Reader { shared: self.shared.clone(), tenure: self.tenure.clone(), level, items })
    }

    /// Follows the log from the record that starts at `from`, at `level`. At `Buffered` news may take some 100 ms on an idle log; at the
    /// other levels they come with the watermark.
    ///
    /// # Errors
    ///
    /// As [`Log::read_from`].
    pub fn subscribe(&self, from: Lsn, level: Level) -> Result<Subscription, ReadError> {
        Ok(Subscription { reader: self.read_at(from, level)? })
    }
}
