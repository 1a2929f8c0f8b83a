//! What a giver knows to be committed: what its group has told it in this life, and what its application held when this life began.
//!
//! 1. **An application holds nothing but what was committed**: a node shows it nothing else at [`Level::Durable`](crate::Level::Durable). A member that was started again
//!    may have been told less since; what its application said *before this life could show it anything* is committed all the same.
//! 2. **On one line alone**: an operator's word may have given up what the application was shown. Two logs that give a byte to the same epoch are the same up to there (I-6,
//!    R-4), so the position counts only while this member's log gives the byte below it to the position's epoch.
//!
//! DESIGN.md section 9.10.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use slog::{Logger, warn};
use windlass_log::{EpochHistory, Lsn};

use super::{CheckpointPosition, Hook};

/// Up to where this member's log is known to be committed: its watermark `durable`, or beyond it what the application held when it started, as far as the
/// log, of this history and up to `tail`, is of the same line.
pub(crate) fn committed(
    durable: Lsn,
    tail: Lsn,
    history: &EpochHistory,
    at_start: Option<CheckpointPosition>,
) -> Lsn {
    let is_of_line = |held: &CheckpointPosition| history.epoch_before(held.at) == Some(held.epoch);
    at_start.filter(is_of_line).map_or(durable, |held| durable.max(held.at.min(tail)))
}

/// Up to where the application held the log before this life of the member could show it anything, once it has said so.
#[derive(Debug, Default)]
pub(crate) struct AtStart {
    held: OnceLock<CheckpointPosition>,
    is_over: AtomicBool,
}

impl AtStart {
    /// Asks the application. An answer that comes once this member has led does not count.
    pub(super) fn ask(&self, hook: &Hook, logger: &Logger) {
        let told = catch_unwind(AssertUnwindSafe(|| hook.0.position()));
        let without = "checkpoints beyond what its group tells it to be committed are not given";
        match told {
            Ok(Ok(_)) if self.is_over.load(Ordering::Acquire) => {
                warn!(
                    logger,
                    "the application said how far it is only when this member led already: {}", without
                );
            }
            Ok(Ok(held)) => {
                // Asked once.
                let _ = self.held.set(held);
            }
            Ok(Err(fault)) => {
                warn!(logger, "the application did not say how far it is when it started: {}", without; "cause" => %fault);
            }
            Err(_) => warn!(logger, "the application panicked when it was asked how far it is: {}", without),
        }
    }

    /// From here on the application may be shown what is not committed: a primary's own log. Called before it is.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn held(&self) -> Option<CheckpointPosition> {
        self.held.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use windlass_log::{Epoch, MemberId};

    use super::super::{Checkpoint, CheckpointFault, CheckpointSink, Checkpoints, OfferedCheckpoint};
    use super::*;

    fn epoch(counter: u64) -> Epoch {
        Epoch::new(counter, MemberId(1))
    }

    fn history(starts: &[(u64, u64)]) -> EpochHistory {
        let mut history = EpochHistory::new();
        for &(counter, start) in starts {
            history.extend(epoch(counter), Lsn(start)).unwrap();
        }
        history
    }

    /// With a watermark of 5000 and a log up to 9000.
    fn up_to(starts: &[(u64, u64)], at: u64, counter: u64) -> u64 {
        let held = CheckpointPosition { at: Lsn(at), epoch: epoch(counter) };
        committed(Lsn(5000), Lsn(9000), &history(starts), Some(held)).0
    }

    #[test]
    fn what_the_application_held_is_committed_as_far_as_the_log_is_of_its_line() {
        let log = [(1, 4096), (3, 6000)];
        assert_eq!(committed(Lsn(5000), Lsn(9000), &history(&log), None), Lsn(5000));
        assert_eq!(up_to(&log, 6000, 1), 6000, "the byte below counts");
        assert_eq!(up_to(&log, 7000, 3), 7000);
        assert_eq!(up_to(&log, 9000, 3), 9000);
        assert_eq!(up_to(&log, 9500, 3), 9000, "the log ends before");
        assert_eq!(up_to(&log, 4500, 1), 5000, "the watermark is beyond");
    }

    #[test]
    fn what_was_given_up_is_not_committed_any_more_kind_52() {
        // It held 7000 of epoch 1; a word has had the log go on at 6000, in epoch 2, and at 6800 in 3.
        for starts in [&[(1, 4096), (2, 6000)][..], &[(1, 4096), (2, 6000), (3, 6800)], &[(2, 4096)]] {
            assert_eq!(up_to(starts, 7000, 1), 5000, "{starts:?}");
        }
        // Of an epoch that the log has, elsewhere.
        assert_eq!(up_to(&[(1, 4096), (3, 6000)], 6008, 1), 5000);
        assert_eq!(up_to(&[(1, 4096), (3, 6000)], 5992, 3), 5000);
    }

    #[test]
    fn what_says_nothing_of_a_line_counts_for_nothing() {
        assert_eq!(up_to(&[], 7000, 1), 5000);
        assert_eq!(up_to(&[(1, 8000)], 7000, 1), 5000, "the history begins behind it");
        let log = history(&[(1, 4096)]);
        let nothing = Some(CheckpointPosition::NOTHING);
        assert_eq!(committed(Lsn(5000), Lsn(9000), &log, nothing), Lsn(5000));
        let no_epoch = Some(CheckpointPosition { at: Lsn(7000), epoch: Epoch::NONE });
        assert_eq!(committed(Lsn(5000), Lsn(9000), &log, no_epoch), Lsn(5000));
        let beyond = Some(CheckpointPosition { at: Lsn(u64::MAX), epoch: epoch(1) });
        assert_eq!(committed(Lsn(5000), Lsn(9000), &log, beyond), Lsn(9000));
    }

    type Answer = Box<dyn FnMut() -> Result<CheckpointPosition, CheckpointFault> + Send>;

    struct Says(Mutex<Answer>);

    impl Checkpoints for Says {
        fn position(&self) -> Result<CheckpointPosition, CheckpointFault> {
            (self.0.lock().unwrap())()
        }

        fn open(&self, _least: Lsn) -> Result<Checkpoint, CheckpointFault> {
            unreachable!("not asked")
        }

        fn begin(&self, _offered: &OfferedCheckpoint) -> Result<Box<dyn CheckpointSink>, CheckpointFault> {
            unreachable!("not asked")
        }
    }

    fn asked(
        at_start: &AtStart,
        answer: impl FnMut() -> Result<CheckpointPosition, CheckpointFault> + Send + 'static,
    ) -> Option<CheckpointPosition> {
        let hook = Hook(Arc::new(Says(Mutex::new(Box::new(answer)))));
        at_start.ask(&hook, &Logger::root(slog::Discard, slog::o!()));
        at_start.held()
    }

    #[test]
    fn only_what_is_said_before_this_member_leads_counts() {
        let held = CheckpointPosition { at: Lsn(7000), epoch: epoch(1) };
        assert_eq!(asked(&AtStart::default(), move || Ok(held)), Some(held));
        // It answers while the member begins to lead: it may count what it has appended itself.
        let late = Arc::new(AtStart::default());
        let leads = Arc::clone(&late);
        let answer = move || {
            leads.end();
            Ok(held)
        };
        assert_eq!(asked(&late, answer), None);
        // It has answered before.
        let early = AtStart::default();
        asked(&early, move || Ok(held));
        early.end();
        assert_eq!(early.held(), Some(held));
    }

    #[test]
    fn an_application_that_says_nothing_holds_nothing_back() {
        assert_eq!(asked(&AtStart::default(), || Err("not yet".into())), None);
        assert_eq!(asked(&AtStart::default(), || panic!("a defect of the application's")), None);
    }
}
