//! Nothing acknowledged at a quorum's level is lost or altered: every later tenure's log holds it, and so does every member that has caught up (I-2).

use windlass::{Epoch, Lsn};

use super::order::Fate;
use super::{Checked, Content, Invariant, Oracle, violated};

impl Oracle {
    /// A commit succeeded at `Replicated` or `Durable`.
    pub(crate) fn acknowledge(&mut self, epoch: Epoch, start: Lsn, is_durable: bool) -> Checked {
        let Some(append) = self.fate(epoch, start) else {
            return violated(
                Invariant::NothingLost,
                format!("{start} of {epoch:?} was acknowledged and never appended"),
            );
        };
        if append.fate != Fate::Open {
            let fate = append.fate;
            return violated(
                Invariant::NothingLost,
                format!("{start} of {epoch:?} is acknowledged after it was told to be {fate:?}"),
            );
        }
        append.fate = Fate::Acknowledged;
        let content = append.content;
        self.acknowledged_count += 1;
        if self.is_given_up(epoch, start, is_durable) && self.committed.get(&start) != Some(&content) {
            // By a primary that has not heard of an operator's word yet.
            return Ok(());
        }
        self.was_not_cut(epoch, start)?;
        match self.committed.get(&start) {
            Some(committed) if *committed != content => {
                return violated(
                    Invariant::NothingLost,
                    format!("{content:?} at {start} is acknowledged, committed there is {committed:?}"),
                );
            }
            Some(_) | None => {}
        }
        self.acknowledged.insert(start, (content, epoch));
        if is_durable {
            self.replicated_only.remove(&start);
        } else {
            self.replicated_only.insert(start);
        }
        Ok(())
    }

    /// A commit succeeded at a level that this member's machine alone stands for.
    pub(crate) fn acknowledge_here(&mut self, epoch: Epoch, start: Lsn) -> Checked {
        match self.fate(epoch, start) {
            Some(append) => {
                append.fate = Fate::Acknowledged;
                self.acknowledged_count += 1;
                Ok(())
            }
            None => violated(
                Invariant::NothingLost,
                format!("{start} of {epoch:?} was acknowledged and never appended"),
            ),
        }
    }

    /// A member's log from `trimmed` on, as it begins to lead `epoch` or has caught up: everything acknowledged in older epochs is in it.
    /// `found` says what it has at an LSN.
    pub(crate) fn holds_all(
        &self,
        member: u8,
        epoch: Epoch,
        trimmed: Lsn,
        found: &dyn Fn(Lsn) -> Option<Content>,
    ) -> Checked {
        let acknowledged =
            self.acknowledged.range(trimmed..).map(|(start, (content, of))| (start, content, of));
        // Not by the epoch of the record: an older tenure that comes late and can't commit any more need not have what a later one
        // has committed of a yet older one.
        let by = self.committed_by.range(trimmed..).map(|(_, by)| by);
        let committed =
            self.committed.range(trimmed..).zip(by).map(|((start, content), by)| (start, content, by));
        for (start, content, of) in acknowledged.chain(committed) {
            if *of < epoch && found(*start).as_ref() != Some(content) {
                return violated(
                    Invariant::NothingLost,
                    format!(
                        "member {member} leads or follows {epoch:?} without {content:?} at {start}: it has {:?}",
                        found(*start)
                    ),
                );
            }
        }
        Ok(())
    }

    /// Everything acknowledged lies in what is committed now.
    pub(crate) fn all_committed(&self) -> Checked {
        for (start, (content, _)) in &self.acknowledged {
            if self.committed.get(start) != Some(content) {
                let found = self.committed.get(start);
                return violated(
                    Invariant::NothingLost,
                    format!("{content:?} at {start} was acknowledged, committed is {found:?}"),
                );
            }
        }
        Ok(())
    }
}
