//! Segment files that hold no log any more: free ones to reuse, and released ones that somebody still holds.
//!
//! How many are kept follows from the retention (kind 19): as many files as a log of `retention_bytes` has segments, and those ahead. A log that
//! is trimmed to nothing and grows again to its retention then never allocates.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_log::Lsn;

use crate::counters::Counting;
use crate::disk::{Disk, Errno};
use crate::error::{At, DiskCall, DiskError, StoreError};
use crate::folder;
use crate::names;
use crate::segment::Segment;
use crate::store::{Store, locked};

/// A file to reuse.
pub(crate) struct Free<D: Disk> {
    /// The number in its name.
    pub(crate) number: u32,
    /// The file and its mapping, if they were kept. Nobody else holds them. Its pages are present and, unless they were flushed, writable: the
    /// next segment in it costs no faults.
    pub(crate) open: Option<Arc<Segment<D>>>,
}

/// How many free files stay mapped beyond as many as are kept ahead of the tail: unmapping one, and bringing its pages back, costs
/// as much as writing it. An application that trims several segments at once frees so many before the first is used again.
const OPEN_FREE_MAX: u64 = 14;

/// Files without log.
pub(crate) struct Pool<D: Disk> {
    /// The free files, of a segment's size each; those last freed are reused first.
    pub(crate) free: Vec<Free<D>>,
    /// Segments below the trim point whose files still have their names, oldest first; with the open segment if it was open.
    pub(crate) released: Vec<(u64, Option<Arc<Segment<D>>>)>,
    /// Files of segments that are retained or ready.
    pub(crate) live: u64,
    /// Segments whose files get their names just now: until the folder is flushed nobody may have their memory (kind 29).
    pub(crate) naming: RangeInclusive<u64>,
}

/// No segments.
#[expect(clippy::reversed_empty_ranges, reason = "an inclusive range that holds nothing")]
pub(crate) const NOT_NAMING: RangeInclusive<u64> = 1..=0;

impl<D: Disk> Pool<D> {
    pub(crate) fn held(&self) -> u64 {
        self.released.len() as u64
    }

    /// A free file to use, one that is still mapped if there is any.
    pub(crate) fn take_free(&mut self) -> Option<Free<D>> {
        let mapped = self.free.iter().rposition(|free| free.open.is_some());
        mapped.map(|at| self.free.remove(at)).or_else(|| self.free.pop())
    }

    /// A free file that is still mapped, if there is any: its number and the segment that it was.
    pub(crate) fn take_mapped(&mut self) -> Option<(u32, Arc<Segment<D>>)> {
        let at = self.free.iter().rposition(|free| free.open.is_some())?;
        let Free { number, open } = self.free.remove(at);
        open.map(|open| (number, open))
    }

    /// The lowest number that no free file has.
    pub(crate) fn number_unused(&self) -> u32 {
        (0..)
            .find(|number| self.free.iter().all(|free| free.number != *number))
            .expect("fewer than 2^32 free files")
    }
}

impl<D: Disk> Store<D> {
    /// At most how many segment files there are with the free ones counted.
    fn files_max(&self) -> u64 {
        self.options.retention_bytes.div_ceil(self.geometry.segment_bytes())
            + self.options.segments_ahead.max(1)
            + 1
    }

    /// Moves the segments wholly below the trim point, which is durable, to the released ones.
    pub(crate) fn release(&self, trimmed: Lsn) {
        let first = self.geometry.segment_of(trimmed);
        let mut pool = locked(&self.pool);
        let mut segments = self.segments_mut();
        let kept = segments.split_off(&first);
        let mut open = std::mem::replace(&mut *segments, kept);
        drop(segments);
        // A trim that went further may have come before: nothing is left to release then.
        let from = self.released_below.fetch_max(first, Ordering::AcqRel);
        // Those that have a file: after a reset the log may begin far behind where it ended.
        let Ok(listing) = folder::list(&self.disk) else {
            // The next opening finds them below the trim point (kind 47).
            Counting::add(&self.counting.recycle_failures, 1);
            return;
        };
        for number in listing.segments.keys().map(|base| self.geometry.segment_of(*base)) {
            if (from..first).contains(&number) {
                pool.released.push((number, open.remove(&number)));
                pool.live = pool.live.saturating_sub(1);
            }
        }
    }

    /// Makes free files of the released segments that nobody holds, oldest first, or removes them if enough are kept. Answers how many.
    ///
    /// Only names change here, and only of segments below a trim point that is durable: a crash leaves each under its old name, below the trim point, or under its new one.
    pub(crate) fn recycle(&self) -> Result<u64, StoreError> {
        let mut pool = locked(&self.pool);
        let mut done = 0;
        let mut failed = 0;
        while let Some((number, segment)) = pool.released.get(failed) {
            // Oldest first and contiguous: the ones behind a held one wait (kind 45).
            if segment.as_ref().is_some_and(Segment::is_held) && !windlass_log::planted!(R2) {
                break;
            }
            let name = names::segment(self.geometry, *number);
            let keep = pool.live + (pool.free.len() as u64) < self.files_max();
            let moved = if keep {
                let free = pool.number_unused();
                self.disk.rename(&name, &names::free(free)).map(|()| Some(free)).at(
                    DiskCall::Rename,
                    self.disk.path(),
                    &name,
                )
            } else {
                self.disk.remove(&name).map(|()| None).at(DiskCall::Remove, self.disk.path(), &name)
            };
            match moved {
                Ok(free) => {
                    let (_, open) = pool.released.remove(failed);
                    let kept = pool.free.iter().filter(|free| free.open.is_some()).count() as u64;
                    // Descriptors and mappings stay bounded (kind 36).
                    let open = open.filter(|_| kept < self.options.segments_ahead + OPEN_FREE_MAX);
                    pool.free.extend(free.map(|number| Free { number, open }));
                    let counter = if free.is_some() {
                        &self.counting.segments_recycled
                    } else {
                        &self.counting.segments_removed
                    };
                    Counting::add(counter, 1);
                    done += 1;
                }
                // Gone already: removed by hand, or by an earlier opening.
                Err(DiskError { errno: Errno::NOENT, .. }) => {
                    pool.released.remove(failed);
                }
                // Tried again at the next step; meanwhile the file costs space and nothing else (kind 47).
                Err(_) => {
                    Counting::add(&self.counting.recycle_failures, 1);
                    failed += 1;
                }
            }
        }
        drop(pool);
        if done > 0 {
            self.disk
                .sync_folder()
                .at(DiskCall::SyncFolder, self.disk.path(), "")
                .map_err(|error| self.fail(error))?;
        }
        Ok(done)
    }
}
