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

/// A client's trim has met this many read errors. That no record starts there is told also where the record around could not be read: it has to be `again`, with nothing unread.
pub(crate) fn trim(
    at: usize,
    to: Lsn,
    failed: u64,
    trimmed: &Result<(), TrimError>,
    again: impl FnOnce() -> Result<(), TrimError>,
) -> Checked {
    let is_told = match trimmed {
        _ if failed == 0 => true,
        Err(TrimError::Io { .. }) => true,
        Err(TrimError::InsideRecord { record: None, .. }) => {
            matches!(again(), Err(TrimError::InsideRecord { .. }))
        }
        _ => false,
    };
    if is_told {
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

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Lsn = Lsn(8192);

    fn io() -> Result<(), TrimError> {
        Err(TrimError::Io { lsn: TO, cause: "unread".into() })
    }

    fn inside(record: Option<std::ops::Range<Lsn>>) -> Result<(), TrimError> {
        Err(TrimError::InsideRecord { lsn: TO, record })
    }

    fn is_accepted(trimmed: &Result<(), TrimError>, again: Result<(), TrimError>) -> bool {
        trim(0, TO, 1, trimmed, || again).is_ok()
    }

    /// Seed 14013451: behind an operator's word a client asked for a record of the line that was given up, and only the record around could not be read.
    #[test]
    fn kind_7_a_trim_that_could_not_read_says_so_or_that_no_record_starts_there_where_that_is_so() {
        let around = Some(Lsn(8000)..Lsn(8400));
        assert!(is_accepted(&io(), Ok(())));
        assert!(is_accepted(&inside(None), inside(around.clone())));
        assert!(is_accepted(&inside(None), inside(None)));
        for untrue in [Ok(()), io()] {
            assert!(!is_accepted(&inside(None), untrue));
        }
        // A record that was found was read.
        assert!(!is_accepted(&inside(around.clone()), inside(around)));
        assert!(!is_accepted(&Err(TrimError::Beyond { lsn: TO, end: Lsn(4096) }), io()));
        assert!(!is_accepted(&Ok(()), Ok(())));
        assert!(trim(0, TO, 0, &Ok(()), || unreachable!("nothing was unread")).is_ok());
    }

    #[test]
    fn kind_7_a_reader_says_that_it_could_not_read_exactly_where_that_is_so() {
        let io = ReadError::Io { lsn: TO, cause: "unread".into() };
        assert!(reader(0, 1, Some(&io)).is_ok() && reader(0, 0, None).is_ok());
        assert!(reader(0, 0, Some(&io)).is_err() && reader(0, 1, None).is_err());
        let purged = ReadError::Purged { lsn: TO, first: TO };
        assert!(reader(0, 1, Some(&purged)).is_err());
        assert!(scrubs(0, 1, 1).is_ok() && scrubs(0, 2, 1).is_err());
        assert!(elsewhere(0, "flush", 0).is_ok() && elsewhere(0, "flush", 1).is_err());
    }
}
