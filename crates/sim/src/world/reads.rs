//! Read errors of members that run (kind 7): any `pread` that a member, its application or its client makes may be answered `IO`, and succeed when it is asked for again.
//!
//! What a member reads by its mapped memory is not met: there the system says SIGBUS, not an error. The oracle's own looks at a log never fail. It draws from a generator of its own.
//!
//! A read error is no loss: nothing but the reader's call says so ([`World::reads_held`]), and no damage may be told of where there is none ([`crate::oracle::damage`]).

use super::World;
use crate::coverage::Mark;
use crate::oracle::read_errors;
use crate::random::Random;

/// Damage that a running member finds is rare, and one read is made for it: it fails so often at least, in millionths.
const RARE: u32 = 500_000;

#[derive(Debug)]
pub(super) struct Reads(Random);

impl Reads {
    pub(super) fn of(seed: u64) -> Reads {
        Reads(Random::new(seed ^ 0x7265_6164_2065_7272))
    }
}

impl World {
    /// From here on reads of this member's disk may fail, until [`World::reads_held`].
    pub(super) fn reads_may_fail(&mut self, at: usize) {
        self.reads_may_fail_so_often(at, self.setting.read_failed);
    }

    fn reads_may_fail_so_often(&mut self, at: usize, millionths: u32) {
        if self.is_faulty && self.setting.read_failed > 0 {
            self.members[at].disk.fail_reads(millionths, self.reads.0.number());
        }
    }

    /// Reads do not fail any more. How many have, which is counted as this.
    pub(super) fn reads_held(&mut self, at: usize, mark: Mark) -> u64 {
        let failed = self.members[at].disk.end_failing_reads();
        if failed > 0 {
            self.mark(mark);
            self.say(format_args!("m{at}'s disk gives {failed} read errors: {}", mark.name()));
        }
        failed
    }

    /// A member's disk does the oldest work of a lane, and may give read errors meanwhile. What reads nowhere else has no name here, and is none.
    pub(super) fn work(&mut self, at: usize, lane: usize) {
        let Some(driver) = &self.members[at].driver else { return };
        let Some(work) = driver.executor().next(lane) else { return };
        match work {
            "distrust" => self.reads_may_fail_so_often(at, self.setting.read_failed.max(RARE)),
            _ => self.reads_may_fail(at),
        }
        if let Some(driver) = &mut self.members[at].driver {
            driver.executor_mut().work(lane);
        }
        match work {
            "scrub" => {
                let failed = self.reads_held(at, Mark::ScrubUnread);
                self.members[at].scrubs_failed += u64::from(failed > 0);
            }
            "distrust" => {
                self.reads_held(at, Mark::DistrustUnread);
            }
            "trim" => {
                self.reads_held(at, Mark::OwnTrimUnread);
            }
            _ => {
                let failed = self.members[at].disk.end_failing_reads();
                self.check(read_errors::elsewhere(at, work, failed));
            }
        }
    }

    /// A member tells of no scrub that could not read where its disk gave all.
    pub(super) fn scrubs_told(&mut self, at: usize) {
        let member = &self.members[at];
        let Some(driver) = &member.driver else { return };
        let (told, failed) = (driver.scrub_metrics().failures, member.scrubs_failed);
        self.check(read_errors::scrubs(at, told, failed));
    }
}
