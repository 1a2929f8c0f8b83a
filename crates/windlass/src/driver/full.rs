//! A primary whose disk is full: appends are refused here while another member may have room. After a while it hands over.
//!
//! That another member has room shows in what it has granted: windows reach over segments that are really there, some ahead of its tail.
//! One that is open to a segment which this member cannot make can take more than this member can. A member with a full disk grants no such window, so
//! leadership does not come back before there is room again.

use slog::warn;
use windlass_engine::Input;
use windlass_fabric::Fabric;
use windlass_log::{Lsn, MemberId};
use windlass_store::disk::Disk;

use super::Driver;
use super::executor::Executor;
use crate::clock::Clock;
use crate::control::{ControlPlane, Purpose};

/// After a hand-over was asked for, it is not asked for again for so many times the limit: it may fail.
const AGAIN: u32 = 10;

/// How long this member's disk has been full.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullDisk {
    limit_ns: u64,
    since: Option<u64>,
    again_at: u64,
}

impl FullDisk {
    pub(super) fn new(limit_ns: u64) -> FullDisk {
        FullDisk { limit_ns, since: None, again_at: 0 }
    }

    /// Who is to take over, if this member's disk has been full for longer than the limit. `ready`: where the last segment ends that is there;
    /// `granted`: the members that may be written to, and up to where; who of them does not `vote` can't take over.
    pub(super) fn heir(
        &mut self,
        is_full: bool,
        ready: Lsn,
        granted: impl Iterator<Item = (MemberId, Lsn)>,
        votes: impl Fn(MemberId) -> bool,
        now: u64,
    ) -> Option<MemberId> {
        if !is_full {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now < since.saturating_add(self.limit_ns).max(self.again_at) {
            return None;
        }
        let heirs = granted.filter(|(member, up_to)| *up_to > ready && votes(*member));
        let (heir, _) = heirs.max_by_key(|(_, up_to)| *up_to)?;
        self.again_at = now.saturating_add(self.limit_ns.saturating_mul(u64::from(AGAIN)));
        Some(heir)
    }
}

impl<F, D, C, N, X> Driver<F, D, C, N, X>
where
    F: Fabric,
    D: Disk,
    C: Clock + Clone,
    N: ControlPlane,
    X: Executor<D>,
{
    /// Hands over if this member's disk has been full for long and another member has room.
    pub(super) fn leave_full_disk(&mut self, now: u64) {
        let Some(lead) = self.lead.as_ref().filter(|lead| !lead.is_sealed()) else { return };
        let links = self.sessions.outgoing.iter().filter(|link| link.purpose == Purpose::Replicate);
        let granted = links.filter_map(|link| Some((link.peer, link.granted_to()?)));
        let ready = lead.tenure.handoff.ready();
        let (is_full, votes) = (self.local.is_disk_full(), |member| self.engine.is_voter(member));
        if let Some(to) = self.full_disk.heir(is_full, ready, granted, votes, now) {
            warn!(self.options.logger, "the disk is full and {} has room: it is asked to take over", to;
                "folder" => %self.folder.display());
            self.inputs.push_back(Input::Handover { to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000;
    const READY: Lsn = Lsn(8_192);
    const LEARNER: MemberId = MemberId(3);

    fn heir(full: &mut FullDisk, is_full: bool, granted: &[(u8, u64)], now: u64) -> Option<u8> {
        let granted = granted.iter().map(|(member, up_to)| (MemberId(*member), Lsn(*up_to)));
        full.heir(is_full, READY, granted, |member| member != LEARNER, now).map(|member| member.0)
    }

    #[test]
    fn kind_20_a_full_disk_is_borne_for_the_limit_and_counted_from_when_it_became_full() {
        let mut full = FullDisk::new(LIMIT);
        let room = [(1, 10_000), (2, 12_000)];
        assert_eq!(heir(&mut full, true, &room, 500), None);
        assert_eq!(heir(&mut full, true, &room, 1_499), None);
        assert_eq!(heir(&mut full, false, &room, 1_500), None, "there was room for a moment");
        assert_eq!(heir(&mut full, true, &room, 1_600), None);
        assert_eq!(heir(&mut full, true, &room, 2_600), Some(2), "the one with the most room");
        assert_eq!(heir(&mut full, true, &room, 12_599), None, "asked for once");
        assert_eq!(heir(&mut full, true, &room, 12_600), Some(2));
    }

    #[test]
    fn kind_20_nobody_takes_over_who_has_no_more_room() {
        let mut full = FullDisk::new(0);
        assert_eq!(heir(&mut full, true, &[], 1), None);
        assert_eq!(heir(&mut full, true, &[(1, READY.0), (2, 4_096)], 2), None);
        assert_eq!(heir(&mut full, true, &[(1, READY.0 + 8), (2, 4_096)], 3), Some(1), "as soon as one has");
    }

    #[test]
    fn kind_20_nobody_takes_over_who_does_not_vote() {
        let mut full = FullDisk::new(0);
        assert_eq!(heir(&mut full, true, &[(LEARNER.0, 20_000)], 1), None);
        assert_eq!(heir(&mut full, true, &[(LEARNER.0, 20_000), (1, 10_000)], 2), Some(1));
    }

    #[test]
    fn a_limit_without_end_is_never() {
        let mut full = FullDisk::new(u64::MAX);
        assert_eq!(heir(&mut full, true, &[(1, 10_000)], 7), None);
        assert_eq!(heir(&mut full, true, &[(1, 10_000)], u64::MAX - 1), None);
    }
}
