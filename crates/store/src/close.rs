//! Closing: everything on the medium, then the clean mark, then the lock.

use std::sync::atomic::Ordering;

use windlass_log::{Class, Extent, Holder, Lsn, Superblock};

use crate::disk::Disk;
use crate::error::StoreError;
use crate::examine;
use crate::names;
use crate::store::{Store, UpdateError, locked};

impl<D: Disk> Store<D> {
    /// Closes the log cleanly: flushes up to `tail`, the sealed and drained end of the log, writes the clean mark, gives the lock up. Afterwards every call that
    /// writes answers [`StoreError::Closed`]; a second call does nothing. Memory that somebody still holds stays mapped, and must not be written any more.
    ///
    /// A member's log gets no mark where whole records lie behind its end, of which the ones before never arrived, nor behind damage that is not yet cut off.
    ///
    /// Without it the next opening takes the stop for a crash: nothing flushed is lost, and a lone log goes on in a new epoch.
    ///
    /// # Errors
    ///
    /// [`StoreError::MediumFailed`]: no clean mark was written; the folder is unlocked all the same.
    pub fn close(&self, tail: Lsn) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = self.close_cleanly(tail);
        let rewriting = locked(&self.rewriting);
        self.closed.store(true, Ordering::Release);
        drop(rewriting);
        // A child that was forked off shares the lock and must not give up its parent's.
        if !matches!(result, Err(StoreError::Forked { .. })) {
            self.live.give_up();
            *locked(&self.lock) = None;
        }
        result
    }

    /// Gives the folder up as a crash would: no flush, no clean mark, but the lock is free. Every later call that writes answers
    /// [`StoreError::Closed`]. Nobody may write to the log's memory any more.
    pub fn abandon(&self) {
        // No helper's step may be under way when the lock is given up.
        let _preparing = locked(&self.preparing);
        // Nor may a flush be writing.
        let rewriting = locked(&self.rewriting);
        self.closed.store(true, Ordering::Release);
        drop(rewriting);
        if self.disk.process_id() == self.opener {
            self.live.give_up();
            *locked(&self.lock) = None;
        }
    }

    fn close_cleanly(&self, tail: Lsn) -> Result<(), StoreError> {
        // No helper's step may be under way when the lock is given up.
        let mut preparing = locked(&self.preparing);
        if let Some(making) = preparing.making.take() {
            // If it stays the next opening removes it.
            let _ = self.disk.remove(&names::temporary(self.geometry, making.number));
        }
        self.flush(tail)?;
        self.see_name()?;
        let now = self.superblock();
        if now.clean == Some(tail) {
            return Ok(());
        }
        let is_unrepaired = self.mark_max.load(Ordering::Acquire) < tail.0;
        if is_unrepaired || !self.ends_at(tail, &now) {
            return Ok(());
        }
        let marked = self.rewrite(|superblock| {
            superblock.persisted = tail;
            superblock.clean = Some(tail);
        });
        match marked {
            Ok(()) => Ok(()),
            Err(UpdateError::Store(error)) => Err(error),
            Err(UpdateError::Encode(error)) => unreachable!("a mark changes no length: {error}"),
        }
    }
}

impl<D: Disk> Store<D> {
    /// Whether an opening would find the clean end that a mark at `tail` promises. A member's log may have whole records behind a hole: bytes of its primary's last
    /// message, of which the first never arrived. Without the mark they are what a crash leaves; behind one they would be damage.
    fn ends_at(&self, tail: Lsn, now: &Superblock) -> bool {
        if examine::holder_of(now) == Holder::Lone {
            return true;
        }
        let marked = Superblock { persisted: tail, clean: Some(tail), ..now.clone() };
        let verdict = examine::judge_folder(&self.disk, &marked, tail, self.geometry, Extent::FromMark);
        verdict.is_ok_and(|verdict| verdict.class() == Class::End && verdict.tail() == tail)
    }
}

impl<D: Disk> Drop for Store<D> {
    /// Gives the lock up without a clean mark, like a crash.
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}
