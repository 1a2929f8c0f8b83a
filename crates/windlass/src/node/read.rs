//! Reading a member's log, in whatever role: the durable prefix, or with the caller's consent what is replicated.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use windlass_log::{Geometry, Lsn, Placed};
use windlass_store::Store;
use windlass_store::disk::Disk;

use crate::commit::{CommitError, Level, Reached, Watch, Who, wait_blocking};
use crate::driver::{Port, Request};
use crate::error::ReadError;
use crate::log::{Cursor, Items, Reading, Record};

/// A cursor that adopts the log's history whenever it has grown past what it knew.
struct Fresh<D: Disk> {
    reader: Reading<D>,
    fresh_until: Lsn,
}

impl<D: Disk> fmt::Debug for Fresh<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl<D: Disk> Cursor for Fresh<D> {
    fn next_run(&mut self, end: Lsn, run: &mut Vec<Placed>) -> Result<Lsn, ReadError> {
        if end > self.fresh_until {
            // A takeover since then has begun another epoch below the new end.
            self.reader.refresh();
            self.fresh_until = end;
        }
        Cursor::next_run(&mut self.reader, end, run)
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

/// Reads a member's log, in any role, and follows it across takeovers: what is durable is never taken back.
#[derive(Debug)]
pub struct NodeReader {
    port: Arc<Port>,
    watch: Arc<Watch>,
    level: Level,
    folder: PathBuf,
    geometry: Geometry,
    items: Items<'static>,
}

impl NodeReader {
    /// `threads`: whether a thread may read ahead of it.
    pub(crate) fn new<D: Disk>(
        store: &Arc<Store<D>>,
        folder: PathBuf,
        port: &Arc<Port>,
        (level, from): (Level, Lsn),
        threads: bool,
    ) -> Result<NodeReader, ReadError> {
        let first = store.trimmed();
        if from < first {
            return Err(ReadError::Purged { lsn: from, first });
        }
        let watch = if level == Level::Replicated { port.replicated() } else { Arc::clone(&port.durable) };
        let port = Arc::clone(port);
        let cursor = Fresh { reader: Reading::new(store, from, threads), fresh_until: Lsn(0) };
        let items = Items::new(Box::new(cursor), from);
        Ok(NodeReader { port, watch, level, folder, geometry: store.geometry(), items })
    }

    /// The next record below the reader's level. An error leaves the reader where it is: at the end it can be asked again.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; `AtEnd`, `Purged` and `Damaged` are three different answers. What is `Damaged` the member has sent again by its group, and the reader
    /// can be asked again once the node says that it is [repaired](crate::NodeEvent::Repaired). A reader at `Replicated` whose level was revoked by a
    /// takeover answers [`ReadError::Ended`] at its end: go back to what is durable and read on from there.
    #[expect(clippy::should_implement_trait, reason = "a record borrows from the reader")]
    pub fn next(&mut self) -> Result<Record<'_>, ReadError> {
        self.find()?;
        Ok(self.items.record())
    }

    fn find(&mut self) -> Result<(), ReadError> {
        let limit = self.watch.value();
        if self.items.position() >= limit && self.items.is_empty() {
            let end = self.items.position();
            return Err(if self.watch.stopped().is_some() {
                ReadError::Ended { end }
            } else {
                ReadError::AtEnd { end }
            });
        }
        let found = self.items.advance(|| limit, &self.folder, self.geometry);
        if let Err(ReadError::Damaged { lsn, .. }) = &found {
            // The driver looks for itself, and has it sent again by the group.
            self.port.ask(Request::Look(*lsn));
        }
        found
    }

    /// The next record, waiting for it on this thread until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`NodeReader::next`]; `AtEnd` when the deadline has passed, `Ended` when the node was closed and everything is read.
    pub fn next_blocking(&mut self, deadline: Option<Instant>) -> Result<Record<'_>, ReadError> {
        loop {
            while let Some(end) = self.at_end() {
                let watch = Arc::clone(&self.watch);
                match wait_blocking(&watch, Lsn(end.0 + 1), self.level, Who::Observer, deadline) {
                    Ok(()) => {}
                    Err(CommitError::Deadline { .. }) => return Err(ReadError::AtEnd { end }),
                    Err(_) => return self.next(),
                }
            }
            match self.find() {
                // What came was filler (an epoch's start, a barrier), which is no record: wait on.
                Err(ReadError::AtEnd { .. }) => {}
                Ok(()) => return Ok(self.items.record()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next record, as a future.
    ///
    /// # Errors
    ///
    /// As [`NodeReader::next_blocking`] without a deadline.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point; the next call gives the same record.
    pub async fn next_async(&mut self) -> Result<Record<'_>, ReadError> {
        loop {
            while let Some(end) = self.at_end() {
                if Reached::new(Arc::clone(&self.watch), Lsn(end.0 + 1), Who::Observer).await.is_err() {
                    return self.next();
                }
            }
            match self.find() {
                // As in `next_blocking`.
                Err(ReadError::AtEnd { .. }) => {}
                Ok(()) => return Ok(self.items.record()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Where the next record is looked for.
    #[must_use]
    pub fn position(&self) -> Lsn {
        self.items.position()
    }

    /// The end, if nothing is left to read below it now.
    fn at_end(&self) -> Option<Lsn> {
        let at = self.items.position();
        (self.items.is_empty() && at >= self.watch.value()).then_some(at)
    }
}
