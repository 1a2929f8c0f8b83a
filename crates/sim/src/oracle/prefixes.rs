//! Committed prefixes agree on all members: whatever two members call durable at one LSN is the same record.

use std::collections::BTreeSet;

use windlass::{Epoch, Lsn};

use super::{Checked, Content, Oracle, violated};
use crate::fabric::PAGE_BYTES;

const NAME: &str = "committed prefixes agree";

impl Oracle {
    /// A member, which has promised `promised`, publishes the record at `start` as durable.
    pub(crate) fn published(&mut self, member: u8, promised: Epoch, start: Lsn, found: Content) -> Checked {
        match self.committed.get(&start) {
            Some(known) if *known == found => Ok(()),
            Some(_) | None if self.is_unheard(member, found.epoch, start) => Ok(()),
            Some(known) => {
                violated(NAME, format!("member {member} has {found:?} at {start}, committed is {known:?}"))
            }
            None if start < self.committed_end => violated(
                NAME,
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
        violated(NAME, format!("member {member} can't read its durable log at {at}: {why}"))
    }

    /// Whether the record at `start` has a part in the head of a page in which some log began, with a checkpoint, at one of `begun`: its member has nothing of
    /// that head, and as primary sends it over what a backup has, if devices move whole pages (DESIGN.md section 9.2).
    pub(crate) fn is_in_head(&self, begun: &BTreeSet<Lsn>, start: Lsn) -> bool {
        let Some(content) = self.committed.get(&start) else { return false };
        let page_bytes = u64::from(PAGE_BYTES);
        let next = begun.range(Lsn(start.0 + 1)..).next();
        next.is_some_and(|begun| begun.0 / page_bytes * page_bytes < content.end.0)
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

#[cfg(test)]
mod tests {
    use windlass_log::RecordKind;

    use super::*;

    /// Seed 10000719: a log began at 1014136, and the record at 1011624 ends in the page before.
    #[test]
    fn what_has_a_part_in_the_head_of_a_page_that_a_log_began_in_may_be_sent_over() {
        let mut oracle = Oracle::default();
        let starts = [1_011_528, 1_011_624, 1_011_720, 1_014_040, 1_014_136, 1_014_200];
        for pair in starts.windows(2) {
            let content = Content { end: Lsn(pair[1]), epoch: Epoch::NONE, kind: RecordKind::Data, hash: 0 };
            oracle.committed.insert(Lsn(pair[0]), content);
        }
        let begun = BTreeSet::from([Lsn(1_014_136)]);
        let is_in = |start| oracle.is_in_head(&begun, Lsn(start));
        assert!(is_in(1_011_624) && is_in(1_011_720) && is_in(1_014_040));
        assert!(!is_in(1_011_528), "it ends before the page");
        assert!(!is_in(1_014_136), "the log that began there has it");
        assert!(!oracle.is_in_head(&BTreeSet::new(), Lsn(1_011_720)));
    }
}
