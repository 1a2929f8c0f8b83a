//! Revoked means revoked (I-5): once a member's promise has left it, no byte lands in its memory on behalf of an older epoch, and it posts and acknowledges
//! nothing in one; and a promise is never taken back, also not by a crash.

use windlass::Epoch;

use super::{Checked, Invariant, Oracle, violated};

impl Oracle {
    /// A member's word that it has promised leaves it.
    pub(crate) fn promises(&mut self, member: u8, epoch: Epoch) {
        let known = self.promises.entry(member).or_insert(epoch);
        *known = (*known).max(epoch);
    }

    /// A member was opened with this promise on its medium.
    pub(crate) fn opened_with(&self, member: u8, promised: Epoch) -> Checked {
        match self.promises.get(&member) {
            Some(told) if *told > promised => violated(
                Invariant::Revoked,
                format!(
                    "member {member} told others that it has promised {told:?} and opens with {promised:?}"
                ),
            ),
            Some(_) | None => Ok(()),
        }
    }

    /// A member acknowledges an append of this epoch at a quorum's level: it has promised no higher one.
    pub(crate) fn may_acknowledge(&self, member: u8, epoch: Epoch) -> Checked {
        match self.promises.get(&member) {
            Some(promised) if *promised > epoch => violated(
                Invariant::Revoked,
                format!("member {member} has promised {promised:?} and acknowledges in {epoch:?}"),
            ),
            Some(_) | None => Ok(()),
        }
    }

    /// What the fabric saw land where it may not.
    pub(crate) fn landed(&self, what: String) -> Checked {
        violated(Invariant::Revoked, what)
    }
}
