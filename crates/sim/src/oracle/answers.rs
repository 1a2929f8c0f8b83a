//! What a commit of something that was appended is answered with: success at what was asked for or beyond, or an error that leaves the outcome unknown.

use windlass::{CommitError, Committed, Lsn};

use super::{Checked, Invariant, violated};

/// A commit up to `end` succeeded.
pub(crate) fn covers(committed: &Committed, end: Lsn) -> Checked {
    if committed.end() < end {
        return violated(Invariant::Answers, format!("a commit up to {end} was answered with {committed:?}"));
    }
    Ok(())
}

/// A commit of what was appended in a group failed.
pub(crate) fn may_fail(error: &CommitError) -> Checked {
    match error {
        CommitError::NoGroup | CommitError::BeyondTail { .. } => {
            violated(Invariant::Answers, format!("a commit of what was appended was answered with: {error}"))
        }
        CommitError::Failed { .. }
        | CommitError::Fenced { .. }
        | CommitError::Closed { .. }
        | CommitError::Deadline { .. } => Ok(()),
    }
}
