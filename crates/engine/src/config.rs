//! What an engine is told when it is made: who it is, its group, its limits, and what its disk remembers.

use alloc::vec::Vec;

use windlass_log::{Epoch, EpochHistory, Geometry, Lsn, MemberId};

use crate::{Configuration, Persisted};

/// Who and what this engine is. Nothing here changes while the engine lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// This member.
    pub me: MemberId,
    /// Who this process is, told to every peer in the handshake.
    pub identity: Identity,
    /// The configuration that the group began with: 1 to [`Config::VOTERS_MAX`] voters, this member among them. Used while the durable state
    /// has none. [`Configuration::unknown`] for a member that is to be added to a group: it takes part in nothing until a primary comes.
    pub founding: Configuration,
    /// The segment size of the log.
    pub geometry: Geometry,
    /// Whether the group allows the level `Replicated`. If not, `replicated` never runs ahead of `durable`; if so,
    /// members that lost their memory do not count when a log is chosen.
    pub replicated_allowed: bool,
    /// Seed of the random back-off. Take it from the system's randomness; a test gives its own.
    pub seed: u64,
    /// Times.
    pub timing: Timing,
    /// Sizes.
    pub limits: Limits,
}

impl Config {
    /// The most voters of a group.
    pub const VOTERS_MAX: usize = Configuration::VOTERS_MAX;

    pub(crate) fn check(&self) {
        self.founding.check();
        assert!(
            self.founding.is_voter(self.me) || self.founding.is_unknown(),
            "{} is no voter of its own group",
            self.me
        );
        let t = &self.timing;
        assert!(
            t.heartbeat_ns > 0 && t.suspicion_ns >= 4 * t.heartbeat_ns,
            "suspicion below four heartbeats"
        );
        assert!(
            t.backoff_ns > 0 && t.retry_ns > 0 && t.stall_ns > 0 && t.flush_idle_ns > 0,
            "a time of zero"
        );
        let l = &self.limits;
        assert!(
            l.batch_bytes >= 4096 && l.fetch_bytes >= 4096,
            "batches and fetches move at least 4096 bytes"
        );
        assert!(l.notice_slots > 0 && l.batches_in_flight > 0 && l.segments_ahead > 0, "a limit of zero");
        assert!(l.retention_bytes >= self.geometry.segment_bytes(), "retention below one segment");
    }
}

/// Who a process is. Two live processes with one incarnation are clones of each other (a copied folder): the second is
/// refused by whoever sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Random, made with the member's folder and kept in its superblock. A member back with an empty disk has another.
    pub incarnation: u64,
    /// A number that grows with each opening of the folder and is durable before the engine is made (the superblock's
    /// generation does).
    pub opening: u64,
    /// Random for each opening.
    pub nonce: u64,
}

/// Times, all in nanoseconds of the monotonic clock that is passed in. Safety never depends on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between two heartbeats.
    pub heartbeat_ns: u64,
    /// Silence after which a primary is suspected, and without a quorum steps down. At least four heartbeats.
    pub suspicion_ns: u64,
    /// The first random back-off of a candidate lies in `0..backoff_ns`; it doubles with each failure, up to
    /// `suspicion_ns`.
    pub backoff_ns: u64,
    /// Pending work that has not moved for this long counts as silence.
    pub stall_ns: u64,
    /// An unanswered message is sent again after this, and a learner's vote proposed again that the log refused.
    pub retry_ns: u64,
    /// Bytes that nobody asked to be durable are flushed after this at the latest.
    pub flush_idle_ns: u64,
}

impl Default for Timing {
    /// Heartbeats each 20 ms, suspicion after 400 ms, back-off from 20 ms, stall 2 s, retry 50 ms, idle flush 20 ms.
    fn default() -> Timing {
        const MS: u64 = 1_000_000;
        Timing {
            heartbeat_ns: 20 * MS,
            suspicion_ns: 400 * MS,
            backoff_ns: 20 * MS,
            stall_ns: 2000 * MS,
            retry_ns: 50 * MS,
            flush_idle_ns: 20 * MS,
        }
    }
}

/// Sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of one [`crate::Command::Replicate`].
    pub batch_bytes: u64,
    /// Batches to one peer whose placement is not known yet; while so many are in flight the next grows.
    pub batches_in_flight: u32,
    /// Another batch goes out behind those in flight, up to [`Limits::stream_batches_in_flight`], where it would carry at least so many bytes: small
    /// ones are better gathered, and large ones keep the link busy.
    pub stream_bytes: u64,
    /// Batches to one peer whose placement is not known yet, where they are that large; at least `batches_in_flight`.
    pub stream_batches_in_flight: u32,
    /// Slots of a backup's notice ring; each is a credit. The backup posts at least as many receives.
    pub notice_slots: u32,
    /// Segments granted beyond the one that holds the backup's valid tail.
    pub segments_ahead: u64,
    /// Trimmed bytes kept for peers that lag; a peer further behind needs a snapshot.
    pub retention_bytes: u64,
    /// The most bytes of one [`crate::Command::Fetch`].
    pub fetch_bytes: u64,
    /// Bytes that nobody asked to be durable are flushed once there are so many. 1 where most commits are `Durable`: each
    /// batch is then flushed as it arrives, without waiting to hear that somebody wants it.
    pub flush_lag_bytes: u64,
}

impl Default for Limits {
    /// 1 MiB batches, one in flight, four of 64 KiB or more, 16 slots, two segments ahead, 1 GiB retention, 4 MiB fetches, 1 MiB flush lag.
    fn default() -> Limits {
        Limits {
            batch_bytes: 1 << 20,
            batches_in_flight: 1,
            stream_bytes: 64 << 10,
            stream_batches_in_flight: 4,
            notice_slots: 16,
            segments_ahead: 2,
            retention_bytes: 1 << 30,
            fetch_bytes: 4 << 20,
            flush_lag_bytes: 1 << 20,
        }
    }
}

/// The engine's share of the superblock: what must survive a crash for the group to be safe.
///
/// The driver writes it whole, both copies, each flushed, and with the clean mark cleared, before it completes the
/// command that carried it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurableState {
    /// No older epoch is ever granted, promised or used again.
    pub promised: Epoch,
    /// Which epoch owns which LSNs, from the trim point on.
    pub history: EpochHistory,
    /// Everything below is released.
    pub trimmed: Lsn,
    /// What this member may have acknowledged ends here at most: where it has persisted, unless damage took some of that. Then it is an upper bound,
    /// above the tail, or [`DurableState::MARK_UNKNOWN`] until the member has caught up. The superblock's `acknowledged` is the same as it was when it was
    /// written; what a member has acknowledged since is told by its log, at opening.
    pub mark: Persisted,
    /// Memory was lost and the member has not caught up since. The superblock's `caught_up`, negated.
    pub memory_lost: bool,
    /// The peers this member has met.
    pub peers: Vec<PeerRecord>,
    /// The newest configurations of the log, by position, at most two: the last that is known to be committed, and the one behind it. Empty:
    /// [`Config::founding`]. Those that end beyond the valid tail are not in the log.
    /// A damaged member's may be three: the one whose record damage took stays known, as the last.
    pub configurations: Vec<ConfigurationRecord>,
}

/// A configuration, and the record of the log that has it. The founding one has none: it stands from LSN 0 to 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationRecord {
    /// Where the record starts.
    pub start: Lsn,
    /// Where it ends: a log whose valid tail reaches here holds it.
    pub end: Lsn,
    /// What it says.
    pub configuration: Configuration,
}

impl ConfigurationRecord {
    /// The founding one, which stands before the log.
    #[must_use]
    pub fn founding(configuration: Configuration) -> ConfigurationRecord {
        ConfigurationRecord { start: Lsn(0), end: Lsn(0), configuration }
    }
}

impl DurableState {
    /// The mark of a member that has lost bytes which it may have acknowledged.
    pub const MARK_UNKNOWN: Persisted = Persisted(Lsn(u64::MAX));

    /// Notes a configuration record of the log. Whether it was new: then it must be in the superblock before anything behind its start is
    /// flushed.
    ///
    /// What lies behind it was of a suffix that is gone. Of what lies before it only the last counts: its primary proposed it when that one was
    /// committed. The list has the founding configuration at least, unless the group had none yet.
    pub fn note_configuration(&mut self, found: ConfigurationRecord) -> bool {
        let records = &mut self.configurations;
        let base_end = records.first().map_or(Lsn(0), |base| base.end);
        if found.end <= base_end || records.contains(&found) {
            return false;
        }
        let start = found.start;
        let mut at = 0;
        records.retain(|record| {
            at += 1;
            at == 1 || record.end <= start
        });
        records.push(found);
        let surplus = records.len().saturating_sub(2);
        records.drain(..surplus);
        true
    }

    /// The state of a member of a new group whose log is empty.
    #[must_use]
    pub fn genesis(geometry: Geometry) -> DurableState {
        let start = geometry.first_record(0);
        DurableState {
            promised: Epoch::NONE,
            history: EpochHistory::new(),
            trimmed: start,
            mark: Persisted(start),
            memory_lost: false,
            peers: Vec::new(),
            configurations: Vec::new(),
        }
    }
}

/// Whom this member has met under a peer's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerRecord {
    /// The peer.
    pub member: MemberId,
    /// Its incarnation when it was first met.
    pub incarnation: u64,
    /// The highest opening seen of it.
    pub opening: u64,
}

/// What recovery found when the folder was opened.
///
/// Before the engine is made the driver has written `[mark, valid_tail)` again in place and flushed it, and it
/// knows no epoch in the log above `state.promised`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The superblock's share. `memory_lost` is true already if the boot id differs and there is no clean mark.
    pub state: DurableState,
    /// The end of the last valid record: valid as R-4 has it, so the history tells its epoch. Everything below is
    /// persisted. Below `state.mark` where there is damage: that is then an upper bound of what was acknowledged, or unknown, never a lower one.
    pub valid_tail: Lsn,
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::SEGMENT_BYTES_MIN;

    fn config() -> Config {
        Config {
            me: MemberId(0),
            identity: Identity { incarnation: 1, opening: 1, nonce: 1 },
            founding: Configuration::founding([0, 1, 2].map(MemberId)),
            geometry: Geometry::new(SEGMENT_BYTES_MIN).unwrap(),
            replicated_allowed: false,
            seed: 1,
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    #[test]
    fn what_just_does_is_taken() {
        let mut config = config();
        config.timing.suspicion_ns = 4 * config.timing.heartbeat_ns;
        (config.limits.batch_bytes, config.limits.fetch_bytes) = (4096, 4096);
        config.limits.retention_bytes = config.geometry.segment_bytes();
        config.check();
        config.founding = Configuration::unknown();
        config.check();
    }

    #[test]
    #[should_panic(expected = "is no voter of its own group")]
    fn a_member_votes_in_its_own_group() {
        Config { me: MemberId(3), ..config() }.check();
    }

    #[test]
    #[should_panic(expected = "suspicion below four heartbeats")]
    fn suspicion_takes_four_heartbeats() {
        let mut config = config();
        config.timing.suspicion_ns = 4 * config.timing.heartbeat_ns - 1;
        config.check();
    }

    #[test]
    #[should_panic(expected = "retention below one segment")]
    fn a_segment_is_kept_at_least() {
        let mut config = config();
        config.limits.retention_bytes = config.geometry.segment_bytes() - 1;
        config.check();
    }

    #[test]
    fn a_configuration_record_takes_the_place_of_what_lies_behind_it_r20() {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let record = |end: u64| ConfigurationRecord {
            start: Lsn(end - 96),
            end: Lsn(end),
            configuration: founding.clone(),
        };
        let mut state = DurableState::genesis(config().geometry);
        state.configurations = [ConfigurationRecord::founding(founding.clone())].to_vec();
        let mut noted = |end| {
            let is_new = state.note_configuration(record(end));
            (is_new, state.configurations.iter().map(|record| record.end.0).collect::<Vec<_>>())
        };
        assert_eq!(noted(5096), (true, [0, 5096].to_vec()));
        assert_eq!(noted(5096), (false, [0, 5096].to_vec()), "known");
        assert_eq!(noted(4896), (true, [0, 4896].to_vec()), "what lay behind was of a suffix that is gone");
        assert_eq!(noted(5096), (true, [4896, 5096].to_vec()), "the last before it was committed");
        assert_eq!(noted(4896), (false, [4896, 5096].to_vec()));
        assert_eq!(noted(4800), (false, [4896, 5096].to_vec()), "before the first");
    }
}
