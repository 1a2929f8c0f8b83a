//! Unknown is never shown as success, nor settled wrongly: an append whose outcome was unknown may be in the log or not, and what
//! a member answers when it is asked is what is so, and stays so (I-6): its client may have sent it again.

use windlass::{Epoch, Lsn};

use super::order::Fate;
use super::{Checked, Invariant, Oracle, violated};

/// What a member answers about an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is in the log, durably.
    Committed,
    /// It never will be.
    Cut,
    /// Not decided, or nobody can tell any more.
    Open,
}

impl Oracle {
    /// A commit ended without success.
    pub(crate) fn not_confirmed(&mut self, epoch: Epoch, start: Lsn) {
        if let Some(append) = self.fate(epoch, start)
            && append.fate == Fate::Open
        {
            append.fate = Fate::Unknown;
            self.unknown_count += 1;
        }
    }

    /// The appends that a member may be asked about, from this LSN on.
    pub(crate) fn questions(&self, from: Lsn) -> Vec<(Epoch, Lsn)> {
        self.appends.keys().copied().filter(|(_, start)| *start >= from).collect()
    }

    /// What a member answers about one of them.
    pub(crate) fn answered(&mut self, member: u8, (epoch, start): (Epoch, Lsn), answer: Answer) -> Checked {
        let Some(append) = self.appends.get(&(epoch, start)) else { return Ok(()) };
        if self.is_unheard(member, epoch, start) {
            // So it is in the line that a word has given up.
            return Ok(());
        }
        let is_in = self.committed.get(&start) == Some(&append.content);
        match answer {
            Answer::Committed if !is_in => violated(
                Invariant::Unknown,
                format!(
                    "member {member} says that {:?} at {start} is committed, and it is not",
                    append.content
                ),
            ),
            Answer::Cut
                if is_in
                    || append.fate == Fate::Acknowledged
                        && self.acknowledged.contains_key(&start)
                        && self.acknowledged[&start].1 == epoch =>
            {
                violated(
                    Invariant::Unknown,
                    format!("member {member} says that {append:?} at {start} was cut"),
                )
            }
            Answer::Cut => {
                self.cuts.entry((epoch, start)).or_insert(member);
                Ok(())
            }
            Answer::Committed | Answer::Open => Ok(()),
        }
    }

    /// A record is published for the first time, or acknowledged: nobody has said that it was cut.
    pub(super) fn was_not_cut(&self, epoch: Epoch, start: Lsn) -> Checked {
        match self.cuts.get(&(epoch, start)) {
            Some(member) => violated(
                Invariant::Unknown,
                format!(
                    "member {member} has said that the append at {start} of {epoch:?} was cut, and it is committed"
                ),
            ),
            None => Ok(()),
        }
    }
}
