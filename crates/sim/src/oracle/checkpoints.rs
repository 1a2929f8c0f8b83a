//! A checkpoint that a member gives to another ends where something committed does (DESIGN.md section 9.10).

use windlass::Lsn;

use super::{Checked, Invariant, Oracle, violated};

impl Oracle {
    /// A member gives a checkpoint that ends at `end`: of what is committed, and where a record ends.
    pub(crate) fn may_be_given(&self, member: u8, end: Lsn) -> Checked {
        if self.is_committed_end(end) {
            return Ok(());
        }
        violated(
            Invariant::Checkpoints,
            format!("member {member} gives a checkpoint up to {end}, where nothing committed ends"),
        )
    }
}
