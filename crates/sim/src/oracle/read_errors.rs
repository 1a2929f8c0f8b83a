//! A read error is no loss, no end and no damage (kind 7): who asked for what could not be read is told exactly that, and who could read all is not.

use windlass::{Lsn, ReadError, TrimError};

use super::{Checked, Invariant, violated};

/// An application's reader says that it could not read if that is so, and never that the log ends, was trimmed or is damaged.
pub(crate) fn reader(at: usize, failed: u64, answer: Option<&ReadError>) -> Checked {
    let is_told = matches!(answer, Some(ReadError::Io { .. }));
    if is_told == (failed > 0) {
        return Ok(());
    }
    violated(
        Invariant::ReadErrors,
        format!("the disk of member {at} gave {failed} read errors, and its reader says {answer:?}"),
    )
}

/// A member has told of this many scrubs that could not read, and `failed` have met an error.
pub(crate) fn scrubs(at: usize, told: u64, failed: u64) -> Checked {
    if told <= failed {
        return Ok(());
    }
    violated(
        Invariant::ReadErrors,
        format!("member {at} tells of {told} scrubs that could not read, and {failed} met an error"),
    )
}

/// A client's trim has met this many read errors.
pub(crate) fn trim<T: std::fmt::Debug>(
    at: usize,
    to: Lsn,
    failed: u64,
    trimmed: &Result<T, TrimError>,
) -> Checked {
    if failed == 0 || matches!(trimmed, Err(TrimError::Io { .. })) {
        return Ok(());
    }
    violated(
        Invariant::ReadErrors,
        format!("the disk of member {at} gave a read error, and a trim at {to} says {trimmed:?}"),
    )
}

/// Work that reads in no place that is known has met this many: the list of those that are struck is whole.
pub(crate) fn elsewhere(at: usize, work: &str, failed: u64) -> Checked {
    if failed == 0 {
        return Ok(());
    }
    violated(Invariant::ReadErrors, format!("{work} of member {at} has read, which is counted nowhere"))
}
