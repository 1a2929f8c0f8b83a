//! Committed prefixes agree on all members: whatever two members call durable at one LSN is the same record.

use windlass::{Epoch, Lsn};

use super::{Checked, Content, Invariant, Oracle, violated};

impl Oracle {
    /// A member, which has promised `promised`, publishes the record at `start` as durable.
    pub(crate) fn published(&mut self, member: u8, promised: Epoch, start: Lsn, found: Content) -> Checked {
        match self.committed.get(&start) {
            Some(known) if *known == found => Ok(()),
            Some(_) | None if self.is_unheard(member, found.epoch, start) => Ok(()),
            Some(known) => violated(
                Invariant::Prefixes,
                format!("member {member} has {found:?} at {start}, committed is {known:?}"),
            ),
            None if start < self.committed_end => violated(
                Invariant::Prefixes,
                format!(
                    "member {member} has a record at {start}, inside what is committed up to {}",
                    self.committed_end
                ),
            ),
            None => {
                self.ordered(start, &found)?;
                self.was_not_cut(found.epoch, start)?;
                self.committed.insert(start, found);
                self.committed_by.insert(start, promised);
                self.committed_end = self.committed_end.max(found.end);
                Ok(())
            }
        }
    }

    /// Whether no member has published the record at `start` before that `member` publishes, of this epoch.
    pub(crate) fn is_news(&self, member: u8, epoch: Epoch, start: Lsn) -> bool {
        !self.committed.contains_key(&start) && !self.is_unheard(member, epoch, start)
    }

    /// A member can't read what it publishes.
    pub(crate) fn unreadable(&self, member: u8, at: Lsn, why: &str) -> Checked {
        violated(Invariant::Prefixes, format!("member {member} can't read its durable log at {at}: {why}"))
    }

    /// Whether a committed record ends there.
    pub(crate) fn is_committed_end(&self, lsn: Lsn) -> bool {
        let before = self.committed.range(..lsn).next_back();
        self.committed.contains_key(&lsn) || before.is_some_and(|(_, content)| content.end == lsn)
    }

    /// The last committed record that starts at or below this LSN.
    pub(crate) fn record_below(&self, lsn: Lsn) -> Option<Lsn> {
        self.committed.range(..=lsn).next_back().map(|(start, _)| *start)
    }
}
