//! Making log bytes durable. DESIGN.md section 5.
//!
//! Invariants: `persisted` advances contiguously, and only to an LSN that was given to [`Store::flush`] before the flush began; an
//! older segment is flushed before a newer one, so that no acknowledged record lies behind a hole (kind 27); the first error is final (kind 24).

use std::sync::atomic::Ordering;

use windlass_log::{Lsn, SEGMENT_HEADER_BYTES};

use crate::counters::Counting;
use crate::disk::{Disk, DiskFile, DiskMap};
use crate::error::{At, DiskCall, StoreError};
use crate::names;
use crate::store::{Persisted, Store, locked};

const PAGE_BYTES: u64 = 4096;
/// What is written again at a time.
const PIECE_BYTES: u64 = 64 << 10;

impl<D: Disk> Store<D> {
    /// Makes every byte of the log below `upto` durable and says how far the log now is. `upto` must be whole: an LSN that the drain
    /// has passed, or on a backup the end of what it has parsed and checksummed; sample it just before the call, so that all who wait are served.
    ///
    /// Any thread may call it: a committer that leads a group, or a flush thread. Calls take turns; one whose LSN a former call has covered costs two loads.
    /// No lock is held that an append, a reader or a grant needs. Only the pages with these bytes are written.
    ///
    /// # Errors
    ///
    /// [`StoreError::MediumFailed`]: this or an earlier flush of this opening failed, nothing later is acknowledged; close and open again.
    /// [`StoreError::Forked`], [`StoreError::Closed`]: see there. After an error the bytes may or may not be durable.
    ///
    /// # Panics
    ///
    /// If `upto` is beyond the segments that were made ready.
    pub fn flush(&self, upto: Lsn) -> Result<Persisted, StoreError> {
        self.usable()?;
        if self.persisted().lsn() >= upto {
            return Ok(self.persisted());
        }
        self.vouch()?;
        let _turn = locked(&self.flushing);
        // While this waited for its turn a flush may have failed, or covered it. It is still the same process.
        self.going_on()?;
        let from = self.persisted().lsn();
        if from >= upto {
            return Ok(self.persisted());
        }
        self.write_again(from, upto)?;
        let upto = self.flush_range(from, upto)?;
        // Before anybody hears of it: a process that is killed from here on leaves a mark that covers all that was answered for. Not once the folder was given up: it may be another's.
        self.live.raise(upto);
        // A trim may have raised it further meanwhile.
        self.persisted.fetch_max(upto.0, Ordering::AcqRel);
        Counting::add(&self.counting.flushes, 1);
        Counting::add(&self.counting.flushed_bytes, upto.0.saturating_sub(from.0));
        Ok(Persisted::new(upto))
    }

    /// Writes `[from, upto)` again, as far as it was [taken over](Store::take_over) from files that a process before has left. Just these bytes, as others may be writing beside them. On the
    /// way of all other flushes it costs a load.
    fn write_again(&self, from: Lsn, upto: Lsn) -> Result<(), StoreError> {
        let to = upto.min(self.left_end).min(Lsn(self.taken_over.load(Ordering::Acquire)));
        if from >= to || windlass_log::planted!(R11) {
            return Ok(());
        }
        let geometry = self.geometry;
        let mut buffer = vec![0; usize::try_from(PIECE_BYTES).expect("a piece fits memory")];
        for number in geometry.segment_of(from)..=geometry.segment_of(to) {
            let base = geometry.base(number).0;
            // Not there: released by a trim, which stands for it, or lost, and then it is not flushed either.
            let Some(segment) = self.segments().get(&number).cloned() else { continue };
            // While it is held the file is not made another segment's.
            let mut at = from.0.max(base + SEGMENT_HEADER_BYTES) - base;
            let end = to.0.min(base + geometry.segment_bytes()).saturating_sub(base);
            while at < end {
                let count = (PIECE_BYTES - at % PIECE_BYTES).min(end - at);
                let piece = &mut buffer[..usize::try_from(count).expect("at most a piece")];
                let _rewriting = locked(&self.rewriting);
                // Once the folder is given up it may be another's.
                self.going_on()?;
                // Brings the pages in, one by one: a write over them makes no larger folios than there are (DESIGN.md section 5).
                segment.memory().copy_out(at, piece);
                let written = segment.file.write_at(piece, at);
                written
                    .at(DiskCall::Write, self.disk.path(), &names::segment(geometry, number))
                    .map_err(|error| self.fail(error))?;
                at += count;
            }
        }
        Ok(())
    }

    /// Flushes the pages of `[from, upto)`, segment by segment, oldest first. What a trim has released meanwhile is passed over: the trim point,
    /// durable before anything is released, stands for it. Answers how far that is: less only where damage has taken a segment.
    fn flush_range(&self, from: Lsn, upto: Lsn) -> Result<Lsn, StoreError> {
        let geometry = self.geometry;
        for number in geometry.segment_of(from)..=geometry.segment_of(upto) {
            let base = geometry.base(number).0;
            let start = from.0.max(base + SEGMENT_HEADER_BYTES) - base;
            let end = upto.0.min(base + geometry.segment_bytes()).saturating_sub(base);
            // At the first record of a segment nothing lies in it yet, and it need not be there.
            if start >= end {
                continue;
            }
            let found = self.segments().get(&number).cloned();
            let Some(segment) = found else {
                let released = geometry.segment_of(self.trimmed()) > number;
                if !released && self.distrusted.load(Ordering::Acquire) {
                    return Ok(geometry.first_record(number).max(from));
                }
                assert!(released, "a flush stays within the segments that were made ready");
                continue;
            };
            let pages = start / PAGE_BYTES * PAGE_BYTES..end.next_multiple_of(PAGE_BYTES);
            Counting::add(&self.counting.flushed_page_bytes, pages.end - pages.start);
            // A page that was written is clean, and the next store to it a fault.
            segment.present.store(false, Ordering::Relaxed);
            let name = || names::segment(geometry, number);
            let mut flushed = segment.map.flush_range(pages.clone());
            if windlass_log::planted!(FlushRetried) && flushed.is_err() {
                flushed = segment.map.flush_range(pages);
            }
            if let Err(errno) = flushed {
                let error = Err::<(), _>(errno).at(DiskCall::FlushRange, self.disk.path(), &name());
                return error.map(|()| upto).map_err(|error| self.fail(error));
            }
        }
        Ok(upto)
    }
}
