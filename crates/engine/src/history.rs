//! Which epoch owns which LSNs, from the trim point on.
//!
//! A record is valid at an LSN only if its epoch is the one that the history assigns to it (R-4). Two logs hold the same
//! bytes wherever their histories agree and both reach: an epoch never carries two contents at one LSN.
//!
//! ```text
//!  entries   (e1, 4096)      (e3, 900)         (e4, 2000)
//!  LSN       |---- e1 -------|------ e3 -------|---- e4 ----- ...
//! ```

use alloc::vec::Vec;

use windlass_log::{Epoch, Lsn};

/// One tenure and the LSN at which it starts: the valid tail when its primary took over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tenure {
    /// The epoch.
    pub epoch: Epoch,
    /// Its first LSN.
    pub start: Lsn,
}

/// The tenures of a log in order: epochs and starts both strictly ascend.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    tenures: Vec<Tenure>,
}

/// Why bytes are no history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HistoryError {
    /// Epochs or starts do not ascend.
    #[error("tenure {index} ({epoch} from {start}) does not ascend: the history is damaged or forged")]
    NotAscending {
        /// Which one.
        index: usize,
        /// Its epoch.
        epoch: Epoch,
        /// Its start.
        start: Lsn,
    },
    /// More than [`History::TENURES_MAX`].
    #[error("{tenures} tenures, at most {max} are kept: trim the log", max = History::TENURES_MAX)]
    TooLong {
        /// How many.
        tenures: usize,
    },
}

impl History {
    /// The most tenures that a history holds; a trim drops those that it leaves behind.
    pub const TENURES_MAX: usize = 1024;

    /// The history of a new, empty log.
    #[must_use]
    pub fn new() -> History {
        History { tenures: Vec::new() }
    }

    /// The history with these tenures, from a disk or a peer.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]: the source is damaged or forged; refuse it.
    pub fn from_tenures(tenures: Vec<Tenure>) -> Result<History, HistoryError> {
        if tenures.len() > History::TENURES_MAX {
            return Err(HistoryError::TooLong { tenures: tenures.len() });
        }
        let mut before = Tenure { epoch: Epoch::NONE, start: Lsn(0) };
        for (index, tenure) in tenures.iter().enumerate() {
            if tenure.epoch <= before.epoch || (index > 0 && tenure.start <= before.start) {
                return Err(HistoryError::NotAscending { index, epoch: tenure.epoch, start: tenure.start });
            }
            before = *tenure;
        }
        Ok(History { tenures })
    }

    /// The tenures in order.
    #[must_use]
    pub fn tenures(&self) -> &[Tenure] {
        &self.tenures
    }

    /// The epoch that owns the byte at `lsn`; [`Epoch::NONE`] before the first tenure.
    #[must_use]
    pub fn epoch_at(&self, lsn: Lsn) -> Epoch {
        let behind = self.tenures.partition_point(|tenure| tenure.start <= lsn);
        if behind == 0 { Epoch::NONE } else { self.tenures[behind - 1].epoch }
    }

    /// The epoch that owns the byte just before `lsn`.
    #[must_use]
    pub fn epoch_before(&self, lsn: Lsn) -> Epoch {
        let behind = self.tenures.partition_point(|tenure| tenure.start < lsn);
        if behind == 0 { Epoch::NONE } else { self.tenures[behind - 1].epoch }
    }

    /// The newest epoch; [`Epoch::NONE`] if there is none.
    #[must_use]
    pub fn newest(&self) -> Epoch {
        self.tenures.last().map_or(Epoch::NONE, |tenure| tenure.epoch)
    }

    /// Starts a tenure at `start`. Tenures that hold nothing before it (they start at or behind it) are dropped: they
    /// never had a record in this log.
    ///
    /// # Panics
    ///
    /// If `epoch` is not above every epoch in the history.
    pub fn begin(&mut self, epoch: Epoch, start: Lsn) {
        assert!(epoch > self.newest(), "tenure {epoch} would start after {}", self.newest());
        self.tenures.retain(|tenure| tenure.start < start);
        self.tenures.push(Tenure { epoch, start });
    }

    /// Drops the tenures that lie wholly below `to`. The one that owns the byte just before `to` stays, so that the epoch
    /// of the last record is known in an empty log, too.
    pub fn trim(&mut self, to: Lsn) {
        let keep = self.tenures.partition_point(|tenure| tenure.start < to).saturating_sub(1);
        self.tenures.drain(..keep);
    }

    /// Up to where a log of this history that is valid up to `tail` holds the bytes of one of `other` that is valid up to
    /// `other_tail`, looking at LSNs from `from` on: the first LSN at which the histories differ or one log ends. Both
    /// histories must be known from `from` on.
    #[must_use]
    pub fn divergence(&self, tail: Lsn, other: &History, other_tail: Lsn, from: Lsn) -> Lsn {
        let end = tail.min(other_tail);
        if end <= from {
            return end;
        }
        if self.epoch_at(from) != other.epoch_at(from) {
            return from;
        }
        // Epochs change only where a tenure starts: look at those inside (from, end).
        self.tenures
            .iter()
            .chain(&other.tenures)
            .map(|tenure| tenure.start)
            .filter(|start| *start > from && *start < end)
            .filter(|start| self.epoch_at(*start) != other.epoch_at(*start))
            .min()
            .unwrap_or(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use windlass_log::MemberId;

    fn epoch(counter: u64) -> Epoch {
        Epoch::new(counter, MemberId(1))
    }

    fn history(entries: &[(u64, u64)]) -> History {
        let tenures = entries.iter().map(|(e, s)| Tenure { epoch: epoch(*e), start: Lsn(*s) }).collect();
        History::from_tenures(tenures).unwrap()
    }

    #[test]
    fn r4_each_lsn_belongs_to_one_epoch() {
        let h = history(&[(1, 4096), (3, 900 + 4096), (4, 9000)]);
        assert_eq!(h.epoch_at(Lsn(0)), Epoch::NONE);
        assert_eq!(h.epoch_at(Lsn(4096)), epoch(1));
        assert_eq!(h.epoch_at(Lsn(4996)), epoch(3));
        assert_eq!(h.epoch_before(Lsn(4996)), epoch(1));
        assert_eq!(h.epoch_before(Lsn(4096)), Epoch::NONE);
        assert_eq!(h.epoch_at(Lsn(u64::MAX)), epoch(4));
        assert_eq!(h.newest(), epoch(4));
    }

    #[test]
    fn a_tenure_that_left_no_record_is_dropped_by_the_next() {
        let mut h = history(&[(1, 4096), (3, 5000)]);
        h.begin(epoch(5), Lsn(5000));
        assert_eq!(h, history(&[(1, 4096), (5, 5000)]));
        h.begin(epoch(6), Lsn(4500));
        assert_eq!(h, history(&[(1, 4096), (6, 4500)]));
    }

    #[test]
    fn divergence_is_where_epochs_first_differ_or_a_log_ends() {
        let a = history(&[(1, 4096), (2, 6000)]);
        let b = history(&[(1, 4096), (3, 5000)]);
        let from = Lsn(4096);
        assert_eq!(a.divergence(Lsn(7000), &b, Lsn(8000), from), Lsn(5000));
        assert_eq!(b.divergence(Lsn(8000), &a, Lsn(7000), from), Lsn(5000));
        assert_eq!(a.divergence(Lsn(4500), &b, Lsn(8000), from), Lsn(4500));
        assert_eq!(a.divergence(Lsn(7000), &a, Lsn(6500), from), Lsn(6500));
        // A later point of agreement does not heal an earlier difference.
        let c = history(&[(1, 4096), (2, 5000), (3, 5500)]);
        assert_eq!(b.divergence(Lsn(9000), &c, Lsn(9000), from), Lsn(5000));
        // An empty newest tenure changes nothing below it.
        let d = history(&[(1, 4096), (2, 6000), (9, 7000)]);
        assert_eq!(a.divergence(Lsn(7000), &d, Lsn(7000), from), Lsn(7000));
    }

    #[test]
    fn kind_46_the_last_epoch_survives_an_emptied_log() {
        let mut h = history(&[(1, 4096), (2, 6000), (3, 8000)]);
        h.trim(Lsn(8000));
        assert_eq!(h, history(&[(2, 6000), (3, 8000)]));
        assert_eq!(h.epoch_before(Lsn(8000)), epoch(2));
        h.trim(Lsn(8008));
        assert_eq!(h, history(&[(3, 8000)]));
    }

    #[test]
    fn forged_histories_are_refused() {
        let t = |e, s| Tenure { epoch: epoch(e), start: Lsn(s) };
        assert!(History::from_tenures(vec![t(2, 1), t(2, 3)]).is_err());
        assert!(History::from_tenures(vec![t(2, 5), t(3, 5)]).is_err());
        assert!(History::from_tenures(vec![Tenure { epoch: Epoch::NONE, start: Lsn(0) }]).is_err());
        let long = (1..=History::TENURES_MAX as u64 + 1).map(|n| t(n, n)).collect();
        assert!(matches!(History::from_tenures(long), Err(HistoryError::TooLong { .. })));
    }
}
