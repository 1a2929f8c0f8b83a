//! With the superblock that a member had before an epoch of its records its log does not open: no promise is below an epoch of the log (R-5, kind 11).

use windlass::Epoch;
use windlass_log::{EpochStart, Row};
use windlass_store::{OpenError, Opened};

use super::{Checked, Invariant, violated};

/// A copy of a member's log, whose superblock promised `promised` and whose records are of `first`'s epoch there, was opened.
pub(crate) fn is_refused(
    member: u8,
    promised: Epoch,
    first: &EpochStart,
    opened: Result<Opened, OpenError>,
) -> Checked {
    match opened {
        Err(error) if error.row() == Some(Row::SuperblockOlder) => Ok(()),
        found => {
            let what = format!(
                "member {member} opens with the superblock that promised {promised}, though its records are of epoch {} from {} on: {found:?}",
                first.epoch, first.start
            );
            violated(Invariant::OlderSuperblock, what)
        }
    }
}
