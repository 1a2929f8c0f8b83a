//! What the engine asks of a log's [`EpochHistory`] beyond what the log itself needs.
//!
//! Two logs hold the same bytes wherever their histories agree and both reach: an epoch never carries two contents at one
//! LSN. A trimmed history keeps the epoch that owns the byte just below the trim point, so that the rank of an emptied
//! log is known.

use windlass_log::{Epoch, EpochHistory, HistoryError, Lsn};

use crate::Mark;

/// The epoch that owns the byte just before `lsn`; [`Epoch::NONE`] before the first tenure.
pub(crate) fn epoch_before(history: &EpochHistory, lsn: Lsn) -> Epoch {
    history.epoch_before(lsn).unwrap_or(Epoch::NONE)
}

/// The position `lsn` and whose bytes lie below it.
pub(crate) fn mark_at(history: &EpochHistory, lsn: Lsn) -> Mark {
    Mark { epoch: epoch_before(history, lsn), lsn }
}

/// The newest epoch; [`Epoch::NONE`] if there is none.
pub(crate) fn newest(history: &EpochHistory) -> Epoch {
    history.last().map_or(Epoch::NONE, |entry| entry.epoch)
}

/// Starts a tenure at `start`. Entries that start at or behind it are dropped: they never had a record in this log.
///
/// # Errors
///
/// [`HistoryError::TooMany`]: the log must be trimmed first.
///
/// # Panics
///
/// If `epoch` is not above every epoch in the history: a tenure below a promise.
pub(crate) fn begin(history: &mut EpochHistory, epoch: Epoch, start: Lsn) -> Result<(), HistoryError> {
    assert!(epoch > newest(history), "tenure {epoch} would start after {}", newest(history));
    history.cut(start);
    history.extend(epoch, start)
}

/// Drops the entries that own nothing at or beyond the byte just below `to`.
pub(crate) fn trim(history: &mut EpochHistory, to: Lsn) {
    if let Some(before) = to.0.checked_sub(1) {
        history.trim(Lsn(before));
    }
}

/// Up to where a log of `one`, valid up to `one_tail`, holds the bytes of one of `other`, valid up to `other_tail`, looking
/// at LSNs from `from` on: the first LSN at which the histories differ or one log ends. Both histories must be known from
/// `from` on.
pub(crate) fn divergence(
    one: &EpochHistory,
    one_tail: Lsn,
    other: &EpochHistory,
    other_tail: Lsn,
    from: Lsn,
) -> Lsn {
    let end = one_tail.min(other_tail);
    if end <= from {
        return end;
    }
    if one.epoch_at(from) != other.epoch_at(from) {
        return from;
    }
    // Epochs change only where an entry starts: look at those inside (from, end).
    one.entries()
        .iter()
        .chain(other.entries())
        .map(|entry| entry.start)
        .filter(|start| *start > from && *start < end)
        .filter(|start| one.epoch_at(*start) != other.epoch_at(*start))
        .min()
        .unwrap_or(end)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use windlass_log::MemberId;

    pub(crate) fn epoch(counter: u64) -> Epoch {
        Epoch::new(counter, MemberId(1))
    }

    pub(crate) fn history(entries: &[(u64, u64)]) -> EpochHistory {
        let mut history = EpochHistory::new();
        for (counter, start) in entries {
            history.extend(epoch(*counter), Lsn(*start)).unwrap();
        }
        history
    }

    #[test]
    fn r4_each_lsn_belongs_to_one_epoch() {
        let h = history(&[(1, 4096), (3, 900 + 4096), (4, 9000)]);
        assert_eq!(h.epoch_at(Lsn(0)), None);
        assert_eq!(h.epoch_at(Lsn(4096)), Some(epoch(1)));
        assert_eq!(h.epoch_at(Lsn(4996)), Some(epoch(3)));
        assert_eq!(epoch_before(&h, Lsn(4996)), epoch(1));
        assert_eq!(epoch_before(&h, Lsn(4096)), Epoch::NONE);
        assert_eq!(h.epoch_at(Lsn(u64::MAX)), Some(epoch(4)));
        assert_eq!(newest(&h), epoch(4));
    }

    #[test]
    fn a_tenure_that_left_no_record_is_dropped_by_the_next() {
        let mut h = history(&[(1, 4096), (3, 5000)]);
        begin(&mut h, epoch(5), Lsn(5000)).unwrap();
        assert_eq!(h, history(&[(1, 4096), (5, 5000)]));
        begin(&mut h, epoch(6), Lsn(4500)).unwrap();
        assert_eq!(h, history(&[(1, 4096), (6, 4500)]));
    }

    #[test]
    fn divergence_is_where_epochs_first_differ_or_a_log_ends() {
        let a = history(&[(1, 4096), (2, 6000)]);
        let b = history(&[(1, 4096), (3, 5000)]);
        let from = Lsn(4096);
        assert_eq!(divergence(&a, Lsn(7000), &b, Lsn(8000), from), Lsn(5000));
        assert_eq!(divergence(&b, Lsn(8000), &a, Lsn(7000), from), Lsn(5000));
        assert_eq!(divergence(&a, Lsn(4500), &b, Lsn(8000), from), Lsn(4500));
        assert_eq!(divergence(&a, Lsn(7000), &a, Lsn(6500), from), Lsn(6500));
        // A later point of agreement does not heal an earlier difference.
        let c = history(&[(1, 4096), (2, 5000), (3, 5500)]);
        assert_eq!(divergence(&b, Lsn(9000), &c, Lsn(9000), from), Lsn(5000));
        // An empty newest tenure changes nothing below it.
        let d = history(&[(1, 4096), (2, 6000), (9, 7000)]);
        assert_eq!(divergence(&a, Lsn(7000), &d, Lsn(7000), from), Lsn(7000));
    }

    #[test]
    fn kind_46_the_last_epoch_survives_an_emptied_log() {
        let mut h = history(&[(1, 4096), (2, 6000), (3, 8000)]);
        trim(&mut h, Lsn(8000));
        assert_eq!(h, history(&[(2, 6000), (3, 8000)]));
        assert_eq!(epoch_before(&h, Lsn(8000)), epoch(2));
        trim(&mut h, Lsn(8008));
        assert_eq!(h, history(&[(3, 8000)]));
    }
}
