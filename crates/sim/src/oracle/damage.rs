//! Damage is told of where something has rotted, and nowhere else: neither a read error, nor a cut or a trim that overtook a look, is damage (DESIGN.md section 6.3).

use std::fmt::Display;

use windlass::Lsn;

use super::{Checked, Invariant, violated};

/// A member tells of damage. `rot`: where something has rotted on its medium.
pub(crate) fn is_there(at: usize, rot: Option<Lsn>, damage: &dyn Display) -> Checked {
    match rot {
        Some(_) => Ok(()),
        None => {
            violated(Invariant::Damage, format!("member {at} finds damage where there is none: {damage}"))
        }
    }
}
