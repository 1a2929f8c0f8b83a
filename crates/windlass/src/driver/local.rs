//! The local log while somebody else writes it: registered segments, the scan of what arrives, segments ahead of need.

use std::sync::Arc;

use windlass_fabric::Fabric;
use windlass_log::{
    EpochHistory, Fetched, Geometry, Image, LogId, Lsn, RecordKind, SEGMENT_HEADER_BYTES, Scan, Shape, Step,
    StopReason,
};
use windlass_store::disk::Disk;
use windlass_store::{MemoryError, PrepareError, Store};

use super::executor::{Executor, Job, Work};
use super::members::RawConfiguration;
use super::memory::{Segment, SegmentError, Segments, Use};

/// Registered segments beyond which cold ones are let go before another one is had.
const SEGMENTS_KEPT: usize = 32;
/// How long to wait after a segment could not be made.
const RETRY_NS: u64 = 100_000_000;
/// How often the live mark is made durable, at most.
const MARK_NS: u64 = 1_000_000_000;

/// The local log. See the module.
pub(crate) struct Local<F: Fabric, D: Disk> {
    pub(crate) store: Arc<Store<D>>,
    pub(crate) segments: Segments<F, D>,
    geometry: Geometry,
    log_id: LogId,
    /// The history saved last.
    pub(crate) history: EpochHistory,
    scan: Scan,
    /// Configuration records that scans have met, until they are taken.
    configurations: Vec<RawConfiguration>,
    preparing: Preparing,
}

#[derive(Debug)]
struct Preparing {
    /// Work is under way for this tail.
    busy: Option<Lsn>,
    /// Where the tail was when nothing more was due.
    idle_at: Option<Lsn>,
    /// The highest segment that somebody waits for.
    needed: u64,
    is_due: bool,
    retry_at_ns: u64,
    failure: Option<PrepareError>,
    /// When the live mark is made durable next, at the earliest.
    mark_at_ns: u64,
    is_marking: bool,
}

/// What has arrived, as an image to scan: the segments' memory, or that of their images.
struct Arrived<'a, F: Fabric, D: Disk> {
    segments: &'a mut Segments<F, D>,
    fabric: &'a F,
    store: &'a Store<D>,
    geometry: Geometry,
}

impl<F: Fabric, D: Disk> Image for Arrived<'_, F, D> {
    type Error = SegmentError;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, SegmentError> {
        let number = self.geometry.segment_of(lsn);
        match self.segments.obtain(self.fabric, self.store, number, Use::Scan) {
            Ok(segment) => {
                segment.copy_arrived(self.geometry.offset_of(lsn), into);
                Ok(Fetched::Whole)
            }
            Err(SegmentError::NotReady { .. } | SegmentError::Store(MemoryError::Purged { .. })) => {
                Ok(Fetched::Missing)
            }
            Err(error) => Err(error),
        }
    }
}

/// The end of what a scan found valid, and why it went no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scanned {
    pub(crate) valid_tail: Lsn,
    pub(crate) reason: StopReason,
    pub(crate) records: u64,
}

impl<F: Fabric, D: Disk> Local<F, D> {
    pub(crate) fn new(
        store: Arc<Store<D>>,
        segments: Segments<F, D>,
        history: EpochHistory,
        tail: Lsn,
    ) -> Local<F, D> {
        let (geometry, log_id) = (store.geometry(), store.log_id());
        let scan = Scan::new(Shape { geometry, log_id, history: history.clone() }, tail, None);
        let preparing = Preparing {
            busy: None,
            idle_at: None,
            needed: 0,
            is_due: true,
            retry_at_ns: 0,
            failure: None,
            mark_at_ns: 0,
            is_marking: false,
        };
        let configurations = Vec::new();
        Local { store, segments, geometry, log_id, history, scan, configurations, preparing }
    }

    /// Takes over what the process before has left in images: it was placed, so it is part of this log. The valid tail.
    pub(crate) fn adopt(&mut self, fabric: &F) -> Result<Lsn, SegmentError> {
        let tail = self.valid_tail();
        let is_left = self.segments.last_left().is_some_and(|last| last >= self.geometry.segment_of(tail));
        if is_left { Ok(self.scan(fabric, None)?.valid_tail) } else { Ok(tail) }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Where the log here begins. Where the store has refused a trim the history begins above its trim point, and says nothing of what lies between.
    pub(crate) fn begins(&self) -> Lsn {
        let owned = self.history.entries().first().map_or(Lsn(0), |first| first.start);
        self.store.trimmed().max(owned)
    }

    /// The end of what was found valid so far.
    pub(crate) fn valid_tail(&self) -> Lsn {
        self.scan.at()
    }

    /// Goes on from `tail` under the history saved last.
    pub(crate) fn restart(&mut self, tail: Lsn) {
        let shape = Shape { geometry: self.geometry, log_id: self.log_id, history: self.history.clone() };
        self.scan = Scan::new(shape, tail, None);
    }

    /// Parses and checksums what lies behind the valid tail, up to `until` at most.
    pub(crate) fn scan(&mut self, fabric: &F, until: Option<Lsn>) -> Result<Scanned, SegmentError> {
        let from = self.scan.at();
        self.scan.set_until(until.unwrap_or(Lsn(u64::MAX)).max(from));
        let mut image =
            Arrived { segments: &mut self.segments, fabric, store: &self.store, geometry: self.geometry };
        let mut records = 0;
        loop {
            match self.scan.step(&mut image) {
                Ok(Step::Record(record)) => {
                    records += 1;
                    if record.header.kind == RecordKind::Configuration {
                        let payload = record.payload.map_or_else(Vec::new, <[u8]>::to_vec);
                        let (start, end) = (record.header.lsn, record.end);
                        self.configurations.push(RawConfiguration { start, end, payload });
                    }
                }
                Ok(Step::Stop(stop)) => {
                    if stop.reason != StopReason::Reached {
                        // What was copied out here may change: the next look takes it afresh.
                        self.restart(stop.lsn);
                    }
                    self.keep(fabric, from, stop.lsn)?;
                    return Ok(Scanned { valid_tail: stop.lsn, reason: stop.reason, records });
                }
                Err(windlass_log::ScanError::Image { error, .. }) => return Err(error),
                // As if it were not there yet: the engine has it sent again.
                Err(windlass_log::ScanError::Memory { lsn, .. }) => {
                    self.restart(lsn);
                    self.keep(fabric, from, lsn)?;
                    return Ok(Scanned { valid_tail: lsn, reason: StopReason::Blank, records });
                }
            }
        }
    }

    /// The configuration records that scans have met since the last call.
    pub(crate) fn take_configurations(&mut self) -> Vec<RawConfiguration> {
        std::mem::take(&mut self.configurations)
    }

    /// What was found valid goes from the images, if there are any, to the segment files, where it is flushed; the flush writes
    /// again what a process before may have left there.
    fn keep(&mut self, fabric: &F, from: Lsn, to: Lsn) -> Result<(), SegmentError> {
        if from >= to {
            return Ok(());
        }
        if !self.segments.is_staged() {
            self.store.take_over(to);
            return Ok(());
        }
        let geometry = self.geometry;
        // A tail at a segment's first record has nothing of that segment, which may not be there yet.
        let end = geometry.segment_of(to) + u64::from(!geometry.is_first_record(to));
        for number in geometry.segment_of(from)..end {
            let segment = self.segments.obtain(fabric, &self.store, number, Use::Scan)?;
            let base = geometry.base(number).0;
            let start = from.0.saturating_sub(base).max(SEGMENT_HEADER_BYTES);
            let end = (to.0 - base).min(geometry.segment_bytes());
            segment.keep(start..end.max(start));
        }
        self.store.take_over(to);
        Ok(())
    }

    /// The segment, registered for this use. When it is not ready it is asked for.
    pub(crate) fn segment(
        &mut self,
        fabric: &F,
        number: u64,
        purpose: Use,
    ) -> Result<Arc<Segment<F>>, SegmentError> {
        if self.segments.len() > SEGMENTS_KEPT {
            // A backup that catches up goes through many.
            self.release_cold();
        }
        let found = self.segments.obtain(fabric, &self.store, number, purpose);
        if let Err(SegmentError::NotReady { .. }) = found {
            self.need(number);
        }
        found
    }

    /// Somebody waits for this segment.
    pub(crate) fn need(&mut self, number: u64) {
        self.preparing.needed = self.preparing.needed.max(number);
        self.preparing.is_due = true;
    }

    /// Something has changed that may leave work for the helper: a trim, a cut, a refused append.
    pub(crate) fn look(&mut self) {
        self.preparing.is_due = true;
    }

    /// Why no segment could be made, if so.
    pub(crate) fn prepare_failure(&self) -> Option<&PrepareError> {
        self.preparing.failure.as_ref()
    }

    /// Whether no segment could be made for want of room.
    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self.preparing.failure, Some(PrepareError::Full { .. }))
    }

    /// Submits the next piece of preparation, if one is due.
    pub(crate) fn prepare(&mut self, executor: &mut impl Executor<D>, tail: Lsn, now: u64) {
        let preparing = &mut self.preparing;
        if preparing.busy.is_some() || now < preparing.retry_at_ns {
            return;
        }
        // The store keeps two segments ready beyond the tail that it is told.
        let reach = self.geometry.first_record(preparing.needed.saturating_sub(1));
        let tail = tail.max(reach);
        let quarter = self.geometry.segment_bytes() / 4;
        let has_moved = preparing.idle_at.is_none_or(|idle| tail.0 >= idle.0 + quarter);
        if !preparing.is_due && !has_moved {
            return;
        }
        preparing.busy = Some(tail);
        executor.submit(Work { store: Arc::clone(&self.store), job: Job::Prepare { tail } });
    }

    /// Has the live mark made durable, if it has moved, at most once a second.
    pub(crate) fn sync_mark(&mut self, executor: &mut impl Executor<D>, now: u64) {
        if self.preparing.is_marking || now < self.preparing.mark_at_ns {
            return;
        }
        self.preparing.mark_at_ns = now + MARK_NS;
        if self.store.is_live_mark_moved() {
            self.preparing.is_marking = true;
            executor.submit(Work { store: Arc::clone(&self.store), job: Job::SyncMark });
        }
    }

    /// The live mark is durable.
    pub(crate) fn mark_synced(&mut self) {
        self.preparing.is_marking = false;
    }

    /// A piece of preparation is done. Whether a segment is new.
    pub(crate) fn prepared(
        &mut self,
        result: Result<windlass_store::Prepared, PrepareError>,
        now: u64,
    ) -> bool {
        let tail = self.preparing.busy.take();
        match result {
            Ok(windlass_store::Prepared::Idle) => {
                self.preparing.idle_at = tail;
                self.preparing.is_due = false;
                self.preparing.needed = 0;
                self.preparing.failure = None;
                false
            }
            Ok(windlass_store::Prepared::Segment { .. }) => {
                self.preparing.is_due = true;
                self.preparing.failure = None;
                true
            }
            Ok(
                windlass_store::Prepared::Allocated { .. }
                | windlass_store::Prepared::Populated { .. }
                | windlass_store::Prepared::Marked { .. }
                | windlass_store::Prepared::Recycled { .. },
            ) => {
                self.preparing.is_due = true;
                false
            }
            Err(error) => {
                self.preparing.failure = Some(error);
                self.preparing.is_due = true;
                self.preparing.retry_at_ns = now + RETRY_NS;
                false
            }
        }
    }

    /// When preparation is to be tried again after a failure.
    pub(crate) fn retry_at(&self) -> Option<u64> {
        self.preparing.failure.as_ref().map(|_| self.preparing.retry_at_ns)
    }

    /// Lets go of segments that are persisted here and that nobody holds.
    pub(crate) fn release_cold(&mut self) {
        let persisted = self.store.persisted().lsn().max(self.store.trimmed());
        // What can't be removed from the folder of images costs space alone; the next opening tries again.
        let _ = self.segments.release_below(self.geometry.segment_of(persisted));
    }
}
