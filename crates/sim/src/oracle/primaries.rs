//! One primary for each epoch: nobody else leads or acknowledges in it (I-3).
//!
//! Leading an epoch older than one that a quorum has promised is no violation: its primary may begin late, not knowing it. What counts is that it commits nothing new: who has
//! promised more lets nothing land in its memory for it and posts and acknowledges nothing in it ([`super::revoked`]), and whatever it did commit is in the later tenure's
//! log ([`super::acknowledged`]).

use windlass::Epoch;

use super::{Checked, Invariant, Oracle, violated};

impl Oracle {
    /// A member leads this epoch, or acknowledges in it.
    pub(crate) fn leads(&mut self, member: u8, epoch: Epoch) -> Checked {
        let known = *self.primaries.entry(epoch).or_insert(member);
        if known == member {
            return Ok(());
        }
        violated(Invariant::OnePrimary, format!("members {known} and {member} both lead {epoch:?}"))
    }

    /// How many epochs had a primary.
    pub(crate) fn tenures(&self) -> u64 {
        u64::try_from(self.primaries.len()).unwrap_or(0)
    }
}
