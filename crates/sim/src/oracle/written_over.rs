//! What a member counts of its log nobody can still write to (I-4): what is whole behind damage counts once the session that fills the damage is over (DESIGN.md section 6.3).

use windlass::Lsn;

use super::{Checked, Invariant, violated};

/// Bytes of a primary land at `lsn` of a member's log, where they do not belong. The member counts its log up to `valid`.
pub(crate) fn lands(member: u8, lsn: Lsn, valid: Lsn) -> Checked {
    if lsn < valid {
        return violated(
            Invariant::WrittenOver,
            format!(
                "member {member} counts its log up to LSN {valid}, and its primary still writes at {lsn}"
            ),
        );
    }
    Ok(())
}
