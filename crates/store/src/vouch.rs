//! The end of an opening: what no mark vouches for is written again and flushed, and only then does the superblock say so, with a lone log's new epoch
//! . It comes before anything is claimed of those bytes and before anything is written behind them; reading needs none of it.
//!
//! An opening does it before it returns, or leaves it to [`Store::vouch`]. Then every call that flushes or changes something does it first, and whoever comes while
//! it is under way waits for it. Until it is done:
//!
//! * [`Store::persisted`] is the mark as it was found, and the superblock is as the last process left it: a crash now is a crash before the opening;
//! * no memory is given out: the pages that are written again end behind the tail, and what was appended there meanwhile would be lost;
//! * a failure is final for this opening, like that of any flush (kind 24).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_log::{EpochHistory, Lsn, Superblock};

use crate::disk::Disk;
use crate::error::{DiskError, StoreError};
use crate::open::rewrite_in_place;
use crate::store::{Store, locked};
use crate::superblock;

/// What is left of an opening.
pub(crate) struct Unvouched {
    /// No mark vouches for what was found here.
    pub(crate) rewrite: Range<Lsn>,
    /// The end of the log as it was found.
    pub(crate) tail: Lsn,
    /// What the superblock is to say then.
    pub(crate) next: Superblock,
    /// The same, encoded.
    pub(crate) bytes: Vec<u8>,
}

impl<D: Disk> Store<D> {
    /// Whether nothing is left of the opening: everything below its tail is on the medium.
    #[must_use]
    pub fn is_vouched(&self) -> bool {
        self.vouched.load(Ordering::Acquire)
    }

    /// Does what the opening has left, once: whoever comes meanwhile waits. Answers how many bytes this call wrote again. Any thread may call it.
    ///
    /// # Errors
    ///
    /// [`StoreError::MediumFailed`]: final for this opening; what was found may not be on the medium. [`StoreError::Forked`], [`StoreError::Closed`]: see there.
    pub fn vouch(&self) -> Result<u64, StoreError> {
        if self.is_vouched() {
            return Ok(0);
        }
        self.usable()?;
        self.vouch_once().map_err(|error| self.fail(error))
    }

    /// [`Store::vouch`], in the words of the disk.
    pub(crate) fn vouch_once(&self) -> Result<u64, DiskError> {
        let _turn = locked(&self.vouching);
        let Some(rest) = self.unvouched() else { return Ok(0) };
        // Who waited here while it failed must not try again: a second flush of the same pages could succeed without them (kind 24).
        if let Some(cause) = self.failed.get() {
            return Err(cause.clone());
        }
        let rewritten = self.vouch_for(&rest);
        match &rewritten {
            Ok(_) => {
                self.persisted.fetch_max(rest.tail.0, Ordering::AcqRel);
                self.vouched.store(true, Ordering::Release);
                *locked(&self.unvouched) = None;
            }
            // Before the turn is given up.
            Err(error) => drop(self.fail(error.clone())),
        }
        rewritten
    }

    fn vouch_for(&self, rest: &Unvouched) -> Result<u64, DiskError> {
        let rewritten = rewrite_in_place(&self.disk, self.geometry, rest.rewrite.start, rest.rewrite.end)?;
        let mut control = locked(&self.superblock);
        superblock::write_both(&self.disk, &control.file, &rest.bytes)?;
        control.now = rest.next.clone();
        self.live.follow(&control.now.history);
        Ok(rewritten)
    }

    fn unvouched(&self) -> Option<Arc<Unvouched>> {
        locked(&self.unvouched).clone()
    }

    /// The epoch history, with the epoch that a lone log goes on in. Waits for no flush that the opening has left.
    pub(crate) fn history(&self) -> EpochHistory {
        match self.unvouched() {
            Some(rest) => rest.next.history.clone(),
            None => locked(&self.superblock).now.history.clone(),
        }
    }

    /// Asserts that R-11 is done: of whatever writes behind the tail or claims what lies below it.
    pub(crate) fn assert_vouched(&self) {
        assert!(
            self.is_vouched(),
            "R-11: the log is to be written before what no mark vouches for is on the medium"
        );
    }
}
