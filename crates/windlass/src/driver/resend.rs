//! What a primary sends again is checked before it is sent: rot here must not be written over what is whole there. From cold segments that is
//! whatever is sent, and the heads of pages from any. The head of a page that this log begins in is not this log's to check ([`super::first_page`]).

use std::ops::Range;

use windlass_engine::{LsnRange, Session};
use windlass_fabric::{Fabric, Transfer};
use windlass_log::{Fetched, Geometry, Image, Lsn, MemberId, Scan, ScanError, Shape, Step};
use windlass_store::Store;
use windlass_store::disk::Disk;

use super::head::{self, Head, Looked};
use super::local::Local;
use super::memory::{SegmentError, Segments, Use};
use super::outgoing::SessionError;

/// One session's ranges, which follow each other.
#[derive(Debug)]
struct Check {
    peer: MemberId,
    session: Session,
    next: Lsn,
    /// `None` while nothing is checked: what was sent last was just written, or ended inside a record.
    scan: Option<Scan>,
    /// How the page was sent that the last range ended in.
    head: Option<Head>,
}

/// The checks of each peer's newest session.
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

fn shape<F: Fabric, D: Disk>(local: &Local<F, D>) -> Shape {
    Shape { geometry: local.geometry(), log_id: local.log_id(), history: local.history.clone() }
}

impl Check {
    /// Looks at the head of the page that the range begins in. One whose page is `peers` is not sent from here.
    fn look_at_head<F: Fabric, D: Disk>(
        &mut self,
        fabric: &F,
        local: &mut Local<F, D>,
        range: LsnRange,
        page: u64,
        peers: Option<Range<Lsn>>,
    ) -> Result<(), SessionError> {
        let next = head::Next { page, range: range.start..range.end, last: self.head.take(), peers };
        let looked = next.compare(fabric, local)?;
        if let Looked::Unknown(_) = looked {
            let shape = shape(local);
            let (geometry, begins) = (shape.geometry, local.begins());
            let mut image = Sent { segments: &mut local.segments, fabric, store: &local.store, geometry };
            match next.damage(&mut image, &shape, begins) {
                Ok(None) => {}
                Ok(Some(lsn)) => return Err(SessionError::Damaged { lsn }),
                Err(ScanError::Image { error, .. }) => return Err(error.into()),
                // As below: a flat scan needs no more than its buffer.
                Err(ScanError::Memory { .. }) => {}
            }
            // The log was trimmed up into a page that the session has sent of.
            if let Some(Range { start: page, .. }) = head::page_before(geometry, page, range.start, begins) {
                return Err(SessionError::Head { page });
            }
        }
        let (Looked::Same(head) | Looked::Unknown(head)) = looked;
        self.head = head;
        Ok(())
    }
}

impl Resend {
    /// Looks at what is to be sent. Ranges that begin in the segment of the persisted mark, or behind, are not looked at: they were just written. What a
    /// device sends along that moves whole pages is looked at: the head of the first page wherever it lies, unless that page is `peers`, whose head is the
    /// peer's own; the rest of the last one in cold segments.
    ///
    /// A session's first range begins where the peer's valid log ends, which is a record's end. The bytes here are not asked whether a record
    /// begins there: the first header may be what is rotten.
    ///
    /// # Errors
    ///
    /// [`SessionError::Damaged`] where it does not hold: then everything behind in that session does not, either. [`SessionError::Head`] where a head
    /// differs from what was sent and begins below this log. Either ends the session, and nothing is sent.
    pub(super) fn look<F: Fabric, D: Disk>(
        &mut self,
        fabric: &F,
        local: &mut Local<F, D>,
        (peer, session): (MemberId, Session),
        range: LsnRange,
        transfer: Transfer,
        peers: Option<Range<Lsn>>,
    ) -> Result<(), SessionError> {
        if range.is_empty() {
            return Ok(());
        }
        self.0.retain(|check| check.peer != peer || check.session == session);
        let known = self.0.iter().position(|check| check.peer == peer);
        let at = known.unwrap_or_else(|| {
            self.0.push(Check { peer, session, next: range.start, scan: None, head: None });
            self.0.len() - 1
        });
        let check = &mut self.0[at];
        let follows = check.next == range.start;
        check.next = range.end;
        let page = head::page_bytes(transfer);
        if let Some(page) = page {
            check.look_at_head(fabric, local, range, page, peers)?;
        }
        let cold_end = local.store.cold_end();
        if range.start >= cold_end {
            check.scan = None;
            return Ok(());
        }
        let geometry = local.geometry();
        let scan = match check.scan.take().filter(|_| follows) {
            Some(scan) => scan,
            // The persisted mark has overtaken a session that sent what was just written. A range that begins inside a record can't be
            // checked: wait for one that begins with one.
            None if known.is_some() && !local.store.starts_record(range.start).unwrap_or(false) => {
                return Ok(());
            }
            None => Scan::new(shape(local), range.start, None).flat(),
        };
        let scan = check.scan.insert(scan);
        let end = page.map(|page| head::page_end(geometry, page, range.end));
        let end = end.filter(|end| *end <= cold_end).unwrap_or(range.end);
        let mut image = Sent { segments: &mut local.segments, fabric, store: &local.store, geometry };
        while scan.at() < end {
            match scan.step(&mut image) {
                Ok(Step::Record(_)) => {}
                // It stands there for whatever else was ordered of this session.
                Ok(Step::Stop(stop)) => return Err(SessionError::Damaged { lsn: stop.lsn }),
                Err(ScanError::Image { error, .. }) => return Err(error.into()),
                // A flat scan needs no more than its buffer; without memory what comes is checked by who gets it.
                Err(ScanError::Memory { .. }) => return Ok(()),
            }
        }
        Ok(())
    }
}
