//! Nothing in use is recycled: no file gets another use while somebody holds its memory.

use super::{Checked, Invariant, violated};

/// A member's disk has done some work. `given_away`: the file that was given another use while others held its memory, if there is one.
pub(crate) fn given_away(at: usize, given_away: Option<String>) -> Checked {
    match given_away {
        Some(name) => {
            violated(Invariant::Recycled, format!("member {at} gave {name} away while it was held"))
        }
        None => Ok(()),
    }
}
