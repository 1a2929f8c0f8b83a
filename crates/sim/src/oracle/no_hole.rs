//! No hole: the drain waits for a reservation only if a client keeps one.

use windlass::engine::StopReason;

use super::{Checked, Invariant, violated};

/// A tenure ended, or a member stopped, for this. `was_leaked`: a client of this life never comes back to a reservation.
pub(crate) fn ended(member: usize, reason: &StopReason, was_leaked: bool) -> Checked {
    let is_stuck = matches!(reason, StopReason::StuckReservation | StopReason::SealStuck);
    if is_stuck && !was_leaked {
        return violated(Invariant::NoHole, format!("member {member}: {reason}, and no client kept one"));
    }
    Ok(())
}
