//! A trim that was refused for want of a read is asked for again: nobody else does, since what the engine has released it never releases a second time.

use windlass_log::Lsn;

use crate::scrub::FAILED_NS;

/// Where the store is to be trimmed again, and when.
#[derive(Debug, Default)]
pub(super) struct TrimAgain(Option<(Lsn, u64)>);

impl TrimAgain {
    /// A trim to `to` was refused: it is due after as long as a scrub that could not read waits.
    pub(super) fn refused(&mut self, to: Lsn, now: u64) {
        self.0 = Some((to, now.saturating_add(FAILED_NS)));
    }

    /// The log begins anew, a further trim takes this one along, or the medium has failed.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    pub(super) fn due_at(&self) -> Option<u64> {
        self.0.map(|(_, at)| at)
    }

    /// What is due, which is asked for once.
    pub(super) fn take(&mut self, now: u64) -> Option<Lsn> {
        self.0.take_if(|(_, at)| *at <= now).map(|(to, _)| to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_trim_is_due_once_after_the_pause_and_the_last_one_counts() {
        let mut again = TrimAgain::default();
        assert_eq!((again.due_at(), again.take(u64::MAX)), (None, None));
        again.refused(Lsn(4096), 5);
        again.refused(Lsn(8192), 7);
        assert_eq!(again.due_at(), Some(7 + FAILED_NS));
        assert_eq!(again.take(6 + FAILED_NS), None);
        assert_eq!(again.take(7 + FAILED_NS), Some(Lsn(8192)));
        assert_eq!((again.due_at(), again.take(u64::MAX)), (None, None));
        again.refused(Lsn(8192), 0);
        again.forget();
        assert_eq!(again.take(u64::MAX), None);
    }
}
