//! What is said only so often: a member that nobody lets lead tries again and again, and bytes that do not hold come again.

use windlass_engine::Role;
use windlass_log::{Epoch, Lsn};

/// Changes between backup and candidate of one epoch that are all logged.
const ATTEMPTS_TOLD: u32 = 4;
/// Beyond that, one in this time.
const ATTEMPTS_TOLD_EVERY_NS: u64 = 60_000_000_000;

/// Which changes of the role are worth a line.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    epoch: Option<Epoch>,
    count: u32,
    told_at_ns: u64,
}

impl Attempts {
    /// Whether this change is to be logged. Candidates whose epoch never rises and who never lead are told a few times, then rarely.
    pub(crate) fn tells(&mut self, role: Role, epoch: Epoch, now_ns: u64) -> bool {
        let is_attempt = matches!(role, Role::Candidate | Role::Backup);
        if !is_attempt || self.epoch != Some(epoch) {
            *self = Attempts { epoch: is_attempt.then_some(epoch), count: 1, told_at_ns: now_ns };
            return true;
        }
        self.count = self.count.saturating_add(1);
        let tells =
            self.count <= ATTEMPTS_TOLD || now_ns.saturating_sub(self.told_at_ns) >= ATTEMPTS_TOLD_EVERY_NS;
        if tells {
            self.told_at_ns = now_ns;
        }
        tells
    }
}

/// Where bytes from the primary did not hold.
#[derive(Debug, Default)]
pub(crate) struct Unsound {
    at: Option<Lsn>,
    count: u32,
}

impl Unsound {
    /// Whether bytes at `lsn` that do not hold are to be logged: once, when they have come again no better.
    pub(crate) fn tells(&mut self, lsn: Lsn) -> bool {
        if self.at != Some(lsn) {
            *self = Unsound { at: Some(lsn), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count == 2
    }
}

#[cfg(test)]
mod tests {
    use windlass_log::MemberId;

    use super::*;

    #[test]
    fn a_member_that_never_gets_to_lead_fills_no_log() {
        let mut attempts = Attempts::default();
        let epoch = Epoch::new(3, MemberId(1));
        // Ten minutes of attempts, five lines of them each second.
        let told = (0..3000_u64)
            .filter(|at| {
                let role = if at % 2 == 0 { Role::Candidate } else { Role::Backup };
                attempts.tells(role, epoch, at * 200_000_000)
            })
            .count();
        assert!((4..20).contains(&told), "{told} lines");
        // Whatever is news is told.
        assert!(attempts.tells(Role::Candidate, Epoch::new(4, MemberId(1)), 600_000_000_000));
        assert!(attempts.tells(Role::Primary, Epoch::new(4, MemberId(1)), 600_000_000_001));
        assert!(attempts.tells(Role::Backup, Epoch::new(4, MemberId(1)), 600_000_000_002));
    }

    #[test]
    fn bytes_that_stay_unsound_are_told_once_and_those_that_come_right_never() {
        let mut unsound = Unsound::default();
        assert!(!unsound.tells(Lsn(4096)));
        assert!(!unsound.tells(Lsn(8192)));
        assert!(unsound.tells(Lsn(8192)));
        assert!(!unsound.tells(Lsn(8192)));
    }
}
