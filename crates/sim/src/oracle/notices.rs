//! A notice is never overwritten while it is read.

use super::{Checked, Invariant, violated};

/// A notice lands in a member's slot. `is_unread`: the member has not read the one that was there.
pub(crate) fn lands(member: u8, is_unread: bool) -> Checked {
    if is_unread {
        return violated(
            Invariant::Notices,
            format!("a notice of member {member} is overwritten before it was read"),
        );
    }
    Ok(())
}
