//! What a primary sends again from cold segments is checked before it is sent: rot here must not be written over what is whole there.

use windlass_engine::{LsnRange, Session};
use windlass_fabric::Fabric;
use windlass_log::{Fetched, Geometry, Image, Lsn, MemberId, Scan, ScanError, Shape, Step};
use windlass_store::Store;
use windlass_store::disk::Disk;

use super::local::Local;
use super::memory::{SegmentError, Segments, Use};

/// One session's ranges, which follow each other.
#[derive(Debug)]
struct Check {
    peer: MemberId,
    session: Session,
    next: Lsn,
    scan: Scan,
}

/// The checks of the sessions that catch up.
#[derive(Debug, Default)]
pub(super) struct Resend(Vec<Check>);

/// The log as it is sent.
struct Sent<'a, F: Fabric, D: Disk> {
    segments: &'a mut Segments<F, D>,
    fabric: &'a F,
    store: &'a Store<D>,
    geometry: Geometry,
}

impl<F: Fabric, D: Disk> Image for Sent<'_, F, D> {
    type Error = SegmentError;

    fn read(&mut self, lsn: Lsn, into: &mut [u8]) -> Result<Fetched, SegmentError> {
        let number = self.geometry.segment_of(lsn);
        match self.segments.obtain(self.fabric, self.store, number, Use::Send) {
            Ok(segment) => {
                segment.memory.copy_out(self.geometry.offset_of(lsn), into);
                Ok(Fetched::Whole)
            }
            Err(SegmentError::NotReady { .. }) => Ok(Fetched::Missing),
            Err(error) => Err(error),
        }
    }
}

impl Resend {
    /// Where what is to be sent does not hold, if anywhere. Ranges that begin in the segment of the persisted mark, or behind, are not looked at: they were just written.
    pub(super) fn damage<F: Fabric, D: Disk>(
        &mut self,
        fabric: &F,
        local: &mut Local<F, D>,
        (peer, session): (MemberId, Session),
        range: LsnRange,
    ) -> Result<Option<Lsn>, SegmentError> {
        if range.is_empty() || range.start >= local.store.cold_end() {
            self.0.retain(|check| check.peer != peer);
            return Ok(None);
        }
        self.0.retain(|check| check.peer != peer || (check.session == session && check.next == range.start));
        let at = match self.0.iter().position(|check| check.peer == peer) {
            Some(at) => at,
            // A range that begins inside a record is not the first of its session: wait for one that begins with one.
            None if !local.store.starts_record(range.start).unwrap_or(false) => return Ok(None),
            None => {
                let shape = Shape {
                    geometry: local.geometry(),
                    log_id: local.log_id(),
                    history: local.history.clone(),
                };
                let scan = Scan::new(shape, range.start, None).flat();
                self.0.push(Check { peer, session, next: range.start, scan });
                self.0.len() - 1
            }
        };
        let geometry = local.geometry();
        let check = &mut self.0[at];
        check.next = range.end;
        let mut image = Sent { segments: &mut local.segments, fabric, store: &local.store, geometry };
        while check.scan.at() < range.end {
            match check.scan.step(&mut image) {
                Ok(Step::Record(_)) => {}
                Ok(Step::Stop(stop)) => {
                    self.0.remove(at);
                    return Ok(Some(stop.lsn));
                }
                Err(ScanError::Image { error, .. }) => return Err(error),
                // A flat scan needs no more than its buffer; without memory what comes is checked by who gets it.
                Err(ScanError::Memory { .. }) => return Ok(None),
            }
        }
        Ok(None)
    }
}
