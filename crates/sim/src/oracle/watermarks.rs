//! The watermarks (I-1): `trimmed ≤ durable ≤ replicated ≤ tail`; and those that may not go back don't. `replicated` may, by a takeover. A
//! member that was found damaged lacks some of it until its peers have sent it again.

use windlass::engine::Status;

use super::{Checked, violated};

const NAME: &str = "watermarks";

/// Looks at a member's status, and the one before in the same life.
pub(crate) fn check(member: u8, before: Option<&Status>, now: &Status) -> Checked {
    let is_ordered = now.trimmed <= now.durable
        && now.durable <= now.replicated
        && (now.damaged || now.replicated <= now.tail);
    if !is_ordered {
        return violated(NAME, format!("member {member}: {now:?}"));
    }
    let Some(before) = before else { return Ok(()) };
    let stays =
        before.durable <= now.durable && before.trimmed <= now.trimmed && before.promised <= now.promised;
    if stays { Ok(()) } else { violated(NAME, format!("member {member} went back: {before:?} then {now:?}")) }
}
