//! Revoked means revoked (I-5): a window that was taken back does not open again, and once a member's promise has left it, no byte lands in its memory on behalf of
//! an older epoch, and it posts and acknowledges nothing in one; and a promise is never taken back, also not by a crash.

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
}

/// A member that has promised this posts a write of an epoch.
pub(crate) fn posts(member: u8, epoch: u64, promised: u64) -> Checked {
    if epoch < promised {
        return violated(
            Invariant::Revoked,
            format!("member {member} posts for epoch {epoch:#x} and has promised {promised:#x}"),
        );
    }
    Ok(())
}

/// Bytes of an epoch land in the memory of a member that has promised this.
pub(crate) fn lands(member: u8, epoch: u64, promised: u64) -> Checked {
    if epoch < promised {
        return violated(
            Invariant::Revoked,
            format!("bytes of epoch {epoch:#x} land at member {member} which has promised {promised:#x}"),
        );
    }
    Ok(())
}

/// A window opens under this key.
pub(crate) fn opens(key: u32, was_taken_back: bool) -> Checked {
    if was_taken_back {
        return violated(Invariant::Revoked, format!("key {key:#x}, which was taken back, opens again"));
    }
    Ok(())
}
