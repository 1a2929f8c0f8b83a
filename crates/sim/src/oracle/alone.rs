//! Who is cut off from all others leads nothing, whatever an operator tells it: an epoch is a quorum's promise (I-3). Where a quorum is one member it leads, and commits
//! nothing: all voters hold what is committed.

use super::{Checked, Invariant, violated};

/// A member that was told to lead begins a tenure. `quorum`: how many must promise it an epoch, itself among them.
pub(crate) fn leads(at: usize, is_isolated: bool, quorum: usize) -> Checked {
    if is_isolated && quorum > 1 {
        return violated(
            Invariant::Alone,
            format!("m{at} is cut off from all others, was told to lead, and does"),
        );
    }
    Ok(())
}
