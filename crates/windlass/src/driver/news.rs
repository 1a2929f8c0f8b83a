//! What the log lines of a member tell of its group: whether a majority is reached, whom it follows, why it wants to lead, what keeps a takeover.
//!
//! A member that waits tries again and again; its lines say so once and then seldom. Nothing here has an effect on anything but lines.

use std::collections::{BTreeMap, BTreeSet};

use slog::{Logger, debug, error, info, warn};
use windlass_engine::{Config, Configuration, Event, PeerStatus, Role, Status, Undecided};
use windlass_log::{Epoch, Lsn, MemberId};

use crate::control::Exclusion;

/// How often is looked.
const LOOK_NS: u64 = 100_000_000;
/// How long something has to last before it is worth a line.
const LASTS_NS: u64 = 1_000_000_000;
/// How long until the same is said again.
const AGAIN_NS: u64 = 10_000_000_000;

/// How long until one more vain attempt to lead is told.
const ATTEMPTS_NS: u64 = 60_000_000_000;

/// Something that lasts: since when, and when it was said.
#[derive(Clone, Copy, Debug)]
struct Lasting {
    since: u64,
    said: Option<u64>,
}

impl Lasting {
    fn new(since: u64) -> Lasting {
        Lasting { since, said: None }
    }

    /// Whether it is time for a line.
    fn is_due(&mut self, now: u64) -> bool {
        let is_due = match self.said {
            None => now >= self.since.saturating_add(LASTS_NS),
            Some(said) => now >= said.saturating_add(AGAIN_NS),
        };
        if is_due {
            self.said = Some(now);
        }
        is_due
    }
}

/// Why this member wants to lead, beside silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// The application, or an operator.
    Asked,
    /// A member that leads, or that may not: a handover, or a log that alone reaches far enough.
    By(MemberId),
}

/// The news of one member.
#[derive(Debug)]
pub(super) struct News {
    me: MemberId,
    others: Vec<MemberId>,
    /// Whom it counts, and how many of them it needs.
    quorum: usize,
    is_voter: bool,
    /// Whether it knows a configuration of its group: who joins does not, until a primary comes for it.
    is_known: bool,
    /// The configuration with which it has left, as it was told.
    left: Option<u64>,
    strange: Option<Lasting>,
    suspicion_ns: u64,
    look_at: u64,
    reached: BTreeSet<MemberId>,
    primary: Option<MemberId>,
    /// When a primary was known last, or this member began.
    led_at: u64,
    call: Option<Call>,
    /// When a candidacy was told of, since a primary was known.
    candidacy_told: Option<u64>,
    lonely: Option<Lasting>,
    looked_at: u64,
    /// When it was said that the process did not run.
    starved_said: Option<u64>,
    undecided: Option<(Lasting, Epoch, Undecided)>,
    /// Who keeps this member out, and when that was said last.
    excluded: BTreeMap<MemberId, Exclusion>,
    excluded_said: u64,
}

impl News {
    pub(super) fn new(config: &Config, now: u64) -> News {
        let voters: Vec<MemberId> = config.founding.voters().collect();
        News::of(config.me, &voters, config.founding.useful_quorum(), config.timing.suspicion_ns, now)
    }

    fn of(me: MemberId, voters: &[MemberId], quorum: usize, suspicion_ns: u64, now: u64) -> News {
        News {
            me,
            others: voters.iter().copied().filter(|voter| *voter != me).collect(),
            quorum,
            is_voter: voters.contains(&me),
            is_known: !voters.is_empty(),
            left: None,
            strange: None,
            suspicion_ns,
            look_at: 0,
            reached: BTreeSet::new(),
            primary: None,
            led_at: now,
            call: None,
            candidacy_told: None,
            lonely: None,
            looked_at: now,
            starved_said: None,
            undecided: None,
            excluded: BTreeMap::new(),
            excluded_said: now,
        }
    }

    pub(super) fn up(&mut self, peer: MemberId) {
        self.reached.insert(peer);
        self.excluded.remove(&peer);
    }

    /// A peer keeps this member out: said at once, and then seldom.
    pub(super) fn excluded(&mut self, logger: &Logger, by: MemberId, exclusion: Exclusion) {
        if self.excluded.insert(by, exclusion) != Some(exclusion) {
            warn!(logger, "{} keeps this member out: {}", by, exclusion);
        }
    }

    fn say_excluded(&mut self, logger: &Logger, now: u64) {
        if self.excluded.is_empty() {
            self.excluded_said = now;
        } else if now >= self.excluded_said.saturating_add(ATTEMPTS_NS) {
            self.excluded_said = now;
            for (by, exclusion) in &self.excluded {
                warn!(logger, "{} still keeps this member out: {}", by, exclusion);
            }
        }
    }

    pub(super) fn down(&mut self, peer: MemberId) {
        self.reached.remove(&peer);
    }

    /// The next candidacy is not for silence.
    pub(super) fn called(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// The group has another configuration.
    pub(super) fn configured(&mut self, configuration: &Configuration) {
        self.others = configuration.voters().filter(|voter| *voter != self.me).collect();
        self.is_voter = configuration.is_voter(self.me);
        self.is_known = !configuration.is_unknown();
        self.quorum = configuration.useful_quorum();
    }

    /// This member was told that it has left, or belongs to the group after all.
    pub(super) fn left(&mut self, configuration: Option<u64>) {
        self.left = configuration.filter(|number| *number > 0);
    }

    /// Whether somebody knows this member, and keeps it out: it was in its group, and comes back with an emptied folder, or a copy. It waits for nobody to add it.
    fn comes_back(&self) -> bool {
        let was_in = |why: &Exclusion| matches!(why, Exclusion::OtherDisk { .. } | Exclusion::Copied { .. });
        self.excluded.values().any(was_in)
    }

    fn has_majority(&self) -> bool {
        let reached = self.others.iter().filter(|other| self.reached.contains(other)).count();
        // Who does not vote has nothing to lack.
        !self.is_voter || self.left.is_some() || reached + 1 >= self.quorum
    }

    fn missing(&self) -> String {
        let missing = self.others.iter().filter(|other| !self.reached.contains(other));
        missing.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Whether [`News::look`] has something to do.
    pub(super) fn is_due(&self, now: u64) -> bool {
        now >= self.look_at
    }

    /// Looks at where the member stands, and says what has lasted. `is_new`: its log has never had an epoch.
    pub(super) fn look(&mut self, logger: &Logger, status: &Status, is_new: bool, now: u64) {
        self.look_at = now + LOOK_NS;
        self.starved(logger, now);
        self.say_excluded(logger, now);
        if status.primary != self.primary {
            self.primary = status.primary;
            if let Some(primary) = status.primary.filter(|primary| *primary != self.me) {
                match self.left {
                    None => info!(logger, "{} is followed as primary", primary; "epoch" => %status.promised),
                    Some(number) => info!(
                        logger,
                        "{} leads and does not know yet that configuration {} is committed: this member, which has left, takes the log until it does", primary, number;
                        "epoch" => %status.promised
                    ),
                }
            }
        }
        if status.primary.is_some() {
            self.led_at = now;
            // Not at once: whoever was followed is still known while it is suspected.
            self.candidacy_told = self.candidacy_told.filter(|told| now < told.saturating_add(AGAIN_NS));
            self.undecided = None;
        }
        if self.has_majority() || status.stopped.is_some() {
            let was_said = self.lonely.take().is_some_and(|lonely| lonely.said.is_some());
            if was_said && status.stopped.is_none() && self.left.is_none() {
                info!(logger, "a majority is reached");
            }
        } else if self.lonely.get_or_insert(Lasting::new(now)).is_due(now) {
            warn!(logger, "no majority: {} not reached", self.missing());
        }
        if self.is_known || self.comes_back() {
            self.strange = None;
        } else if self.strange.get_or_insert(Lasting::new(now)).is_due(now) {
            info!(
                logger,
                "this member belongs to no group yet: it waits for a primary that has added it (`Node::change`)"
            );
        }
        let has_majority = self.has_majority();
        let waits = self.waits_for();
        if let Some((lasting, epoch, reason)) = &mut self.undecided
            && has_majority
            // Who keeps this member out answers nothing: that is what is to be mended.
            && self.excluded.is_empty()
            && lasting.is_due(now)
        {
            match reason {
                Undecided::MemoryLost if is_new => {
                    info!(
                        logger,
                        "a new group begins once all of its members have been reached: waiting for {}", waits
                    );
                }
                Undecided::MemoryLost
                | Undecided::Lost { .. }
                | Undecided::Damaged { .. }
                | Undecided::MarkNotReached { .. }
                | Undecided::DurableNotReached { .. }
                | Undecided::TooFewPromises { .. }
                | Undecided::TooFewVotes { .. }
                | Undecided::NoVote { .. }
                | Undecided::ConfigurationLost { .. }
                | Undecided::Released { .. }
                | Undecided::OtherConfiguration { .. }
                | Undecided::HistoryFull => {
                    warn!(logger, "a takeover is undecided: {}", reason; "epoch" => %epoch);
                }
            }
        }
    }

    /// The pump takes a turn at least each 100 ms: a longer gap tells why others heard nothing of this member.
    fn starved(&mut self, logger: &Logger, now: u64) {
        let gap_ns = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        let was_said = self.starved_said.is_some_and(|said| now < said.saturating_add(AGAIN_NS));
        if gap_ns > (self.suspicion_ns / 2).max(2 * LOOK_NS) && !was_said {
            self.starved_said = Some(now);
            warn!(logger, "this member took no turn for {} ms: its machine is overloaded, or the process was stopped", gap_ns / 1_000_000;
                "suspicion_ms" => self.suspicion_ns / 1_000_000);
        }
    }

    fn waits_for(&self) -> String {
        let missing = self.missing();
        if missing.is_empty() { String::from("their answers") } else { missing }
    }

    /// A takeover can't choose: worth a line if it lasts, through however many attempts.
    pub(super) fn undecided(&mut self, epoch: Epoch, reason: Undecided, now: u64) {
        let lasting = self.undecided.map_or(Lasting::new(now), |(lasting, ..)| lasting);
        self.undecided = Some((lasting, epoch, reason));
    }

    /// The role has changed.
    pub(super) fn role(&mut self, logger: &Logger, role: Role, epoch: Epoch, now: u64) {
        match role {
            Role::Candidate => self.candidate(logger, epoch, now),
            Role::Primary => {
                self.undecided = None;
                info!(logger, "this member is primary"; "epoch" => %epoch);
            }
            Role::Backup => debug!(logger, "this member is a backup"; "epoch" => %epoch),
            Role::Sealing => {
                info!(logger, "the log is being sealed: appends go to the next primary"; "epoch" => %epoch)
            }
            // Said with its reason, as an event of its own.
            Role::Stopped => debug!(logger, "this member has stopped"; "epoch" => %epoch),
        }
    }

    fn candidate(&mut self, logger: &Logger, epoch: Epoch, now: u64) {
        let call = self.call.take();
        let was_told = self.candidacy_told.is_some_and(|told| now < told.saturating_add(ATTEMPTS_NS));
        if !self.has_majority() || was_told && call.is_none() {
            return debug!(logger, "this member is a candidate"; "epoch" => %epoch);
        }
        self.candidacy_told = Some(now);
        let silent_ms = now.saturating_sub(self.led_at) / 1_000_000;
        let suspicion_ms = self.suspicion_ns / 1_000_000;
        match (call, self.primary.filter(|primary| *primary != self.me)) {
            (Some(Call::Asked), _) => {
                info!(logger, "a takeover begins: it was asked for"; "promised" => %epoch)
            }
            (Some(Call::By(peer)), _) => {
                info!(logger, "a takeover begins: {} asked this member to lead", peer; "promised" => %epoch);
            }
            (None, Some(primary)) => {
                info!(logger, "a takeover begins: {} was silent for more than {} ms", primary, suspicion_ms;
                    "promised" => %epoch, "connected" => self.reached.contains(&primary));
            }
            (None, None) => {
                info!(logger, "a takeover begins: no primary is known for {} ms", silent_ms; "promised" => %epoch);
            }
        }
    }
}

/// A line for what the engine says beside roles, refusals and its end.
pub(super) fn event(logger: &Logger, event: &Event) {
    match event {
        Event::Peer { peer, status: PeerStatus::Away } => {
            info!(logger, "{} does not follow: it is away, or not adopted yet", peer);
        }
        Event::Peer { peer, status: PeerStatus::Streaming } => info!(logger, "{} follows", peer),
        Event::Peer { peer, status: PeerStatus::NeedsSnapshot } => {
            warn!(
                logger,
                "{} can't follow: what it lacks is trimmed; it needs a checkpoint of the application", peer
            );
        }
        Event::ReleasedGivenUp { primary, released, expected, found } => {
            error!(
                logger,
                "records that the application here holds were given up: by an operator's word the group has gone on without some that this member had released; the byte \
                 below LSN {} is of epoch {} here and of {} at the primary {}. What the application holds has to be replaced by a checkpoint of another member's, and what was \
                 done with these records outside to be set right by hand. If no operator has accepted a loss, stop this member and compare the members' logs",
                released,
                found,
                expected,
                primary
            );
        }
        Event::SnapshotNeeded { primary, from, .. } => {
            warn!(
                logger,
                "the primary {} has no log that this member's could go on with: a checkpoint of the application that reaches at least LSN {} is needed",
                primary,
                from
            );
        }
        Event::SnapshotOtherLine { primary, at, expected, found } => {
            warn!(
                logger,
                "the application's checkpoint holds what the group has given up: the byte below LSN {} is of epoch {} there and of {} at the primary {}; take another one",
                at,
                found,
                expected,
                primary
            );
        }
        Event::HandoverFailed { to, reason } => {
            warn!(logger, "the handover to {} did not come about: {}", to, reason);
        }
        Event::LossAccepted { lost } if lost.is_empty() => {
            warn!(
                logger,
                "an operator has this member lead with what is left: what others may have acknowledged beyond is given up"
            );
        }
        Event::LossAccepted { lost } => {
            let to = if lost.end == Lsn(u64::MAX) {
                String::from("nobody can tell where")
            } else {
                lost.end.to_string()
            };
            warn!(
                logger,
                "an operator has this member lead with what is left: what it and others may have acknowledged beyond is given up";
                "from" => %lost.start, "to" => to
            );
        }
        Event::MemoryLossAccepted => {
            warn!(
                logger,
                "an operator has this member lead with members that lost their memory: what was acknowledged as replicated alone may be given up"
            );
        }
        Event::LossNotAccepted { reason } => warn!(logger, "a loss is not accepted: {}", reason),
        Event::ChangeRefused { reason, .. } => warn!(logger, "a change of the group is refused: {}", reason),
        Event::NotAMember { configuration: 0 } => {
            warn!(
                logger,
                "this member never was in its group, or not among those that it began with: have it join (`NodeOptions::joined`), with an empty folder, and add it \
                 (`Node::change`)"
            );
        }
        Event::NotAMember { configuration } => {
            warn!(
                logger,
                "this member has left the group with configuration {}: stop it; its folder can be removed",
                configuration
            );
        }
        Event::Role { .. }
        | Event::Refused { .. }
        | Event::Stopped { .. }
        | Event::Undecided { .. }
        | Event::Configuration { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_engine::HandoverError;

    use crate::lines::Lines;

    const MS: u64 = 1_000_000;

    struct Fixture {
        news: News,
        lines: Lines,
        logger: Logger,
        status: Status,
        now: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let voters = [1, 2, 3].map(MemberId);
            let lines = Lines::default();
            let status = Status {
                role: Role::Backup,
                promised: Epoch::NONE,
                primary: None,
                tail: windlass_log::Lsn(4096),
                persisted: windlass_engine::Persisted::default(),
                replicated: windlass_log::Lsn(4096),
                durable: windlass_log::Lsn(4096),
                trimmed: windlass_log::Lsn(4096),
                damaged: false,
                mark: windlass_engine::Persisted::default(),
                stopped: None,
                peers: windlass_engine::PeerMarks::default(),
            };
            Fixture {
                news: News::of(MemberId(1), &voters, 2, 400 * MS, 0),
                logger: lines.logger(),
                lines,
                status,
                now: 0,
            }
        }

        /// Lets time pass, with a candidacy that comes to nothing each 200 ms.
        fn wait(&mut self, ms: u64) {
            let until = self.now + ms * MS;
            while self.now < until {
                self.now += 100 * MS;
                let role = if self.now.is_multiple_of(200 * MS) { Role::Candidate } else { Role::Backup };
                if self.status.primary.is_none() {
                    self.news.role(&self.logger, role, Epoch::NONE, self.now);
                }
                self.news.look(&self.logger, &self.status, true, self.now);
            }
        }

        fn lines(&self) -> Vec<String> {
            // Those that a release shows.
            self.lines.take(slog::Level::Info)
        }
    }

    #[test]
    fn a_lone_member_says_once_whom_it_lacks_and_then_seldom() {
        let mut one = Fixture::new();
        one.wait(900);
        assert_eq!(one.lines(), Vec::<String>::new());
        one.wait(9_000);
        assert_eq!(one.lines(), ["no majority: m2, m3 not reached"]);
        one.wait(20_000);
        assert_eq!(one.lines(), ["no majority: m2, m3 not reached"; 2]);
        one.news.up(MemberId(3));
        one.news.look(&one.logger, &one.status, true, one.now);
        assert_eq!(one.lines(), ["a majority is reached"]);
    }

    #[test]
    fn a_new_group_says_for_whom_it_waits_and_nothing_if_they_come_at_once() {
        let mut one = Fixture::new();
        one.news.up(MemberId(2));
        one.news.undecided(Epoch::NONE, Undecided::MemoryLost, 0);
        one.wait(500);
        assert_eq!(one.lines(), ["a takeover begins: no primary is known for 200 ms"]);
        one.wait(1_000);
        let waits = "a new group begins once all of its members have been reached: waiting for m3";
        assert_eq!(one.lines(), [waits]);
        one.wait(9_000);
        one.news.undecided(Epoch::NONE, Undecided::MemoryLost, one.now);
        one.wait(1_500);
        assert_eq!(one.lines(), [waits]);
        one.status.primary = Some(MemberId(2));
        one.wait(20_000);
        assert_eq!(one.lines(), ["m2 is followed as primary"]);
    }

    #[test]
    fn who_is_kept_out_says_by_whom_and_what_to_do_once_and_then_seldom_kind_55() {
        let mut one = Fixture::new();
        let exclusion = Exclusion::OtherDisk { known: 0xA, found: 0xB };
        for peer in [2, 3].map(MemberId) {
            one.news.up(peer);
            one.news.excluded(&one.logger, peer, exclusion);
            one.news.excluded(&one.logger, peer, exclusion);
        }
        one.news.undecided(Epoch::NONE, Undecided::MemoryLost, 0);
        one.wait(59_000);
        let lines = one.lines();
        let said = |by: &str, verb: &str| {
            format!(
                "{by} {verb} this member out: this member's folder was made anew, or another one was taken in its place (incarnation \
                 000000000000000b, known is 000000000000000a): have a new member take its place, with a number and a folder of its own \
                 (`Change::Replace`), or, if all other members keep this one out, put its old folder back"
            )
        };
        assert_eq!(lines[..2], [said("m2", "keeps"), said("m3", "keeps")]);
        assert!(lines[2..].iter().all(|line| line.starts_with("a takeover begins")), "{lines:?}");
        one.wait(2_000);
        let again: Vec<String> = one.lines().into_iter().filter(|line| line.contains("keeps")).collect();
        assert_eq!(again, [said("m2", "still keeps"), said("m3", "still keeps")]);
        // Taken in again by both.
        [2, 3].map(MemberId).into_iter().for_each(|peer| one.news.up(peer));
        one.wait(61_000);
        assert!(one.lines().iter().all(|line| !line.contains("keeps")));
    }

    #[test]
    fn who_had_released_what_a_word_gave_up_is_told_of_it_as_an_error_r_18() {
        let one = Fixture::new();
        let (expected, found) = (Epoch::new(3, MemberId(2)), Epoch::new(1, MemberId(1)));
        let given_up = Event::ReleasedGivenUp { primary: MemberId(2), released: Lsn(8000), expected, found };
        event(&one.logger, &given_up);
        event(&one.logger, &Event::SnapshotNeeded { primary: MemberId(2), from: Lsn(8008), epoch: expected });
        let errors = one.lines.take(slog::Level::Error);
        assert_eq!(errors.len(), 1, "{errors:?}");
        let said = format!("below LSN 8000 is of epoch {found} here and of {expected} at the primary m2.");
        assert!(errors[0].contains(&said), "{errors:?}");
    }

    #[test]
    fn who_is_to_join_says_that_it_waits_to_be_added() {
        let mut one = Fixture::new();
        one.news = News::of(MemberId(4), &[], 0, 400 * MS, 0);
        one.status.primary = Some(MemberId(4));
        let waits =
            "this member belongs to no group yet: it waits for a primary that has added it (`Node::change`)";
        one.wait(5_000);
        assert_eq!(one.lines(), [waits]);
        one.wait(10_000);
        assert_eq!(one.lines(), [waits]);
        one.news.configured(&Configuration::founding([1, 2, 4].map(MemberId)));
        one.wait(20_000);
        assert!(one.lines().iter().all(|line| line != waits));
    }

    /// It knows of no configuration either, and nobody is to add it (kind 55).
    #[test]
    fn who_comes_back_with_an_emptied_folder_is_not_said_to_wait_to_be_added_kind_55() {
        let mut one = Fixture::new();
        one.news = News::of(MemberId(4), &[], 0, 400 * MS, 0);
        one.status.primary = Some(MemberId(4));
        one.news.excluded(&one.logger, MemberId(2), Exclusion::OtherDisk { known: 0xA, found: 0xB });
        one.wait(20_000);
        let lines = one.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("m2 keeps this member out"), "{lines:?}");
        // Its place is taken by a new one: let in after all.
        one.news.up(MemberId(2));
        one.wait(2_000);
        assert!(one.lines()[0].starts_with("this member belongs to no group yet"));
        // Who is outside of a group has still to come.
        one.news.excluded(&one.logger, MemberId(2), Exclusion::Outside);
        one.lines();
        one.wait(20_000);
        assert!(one.lines().iter().any(|line| line.starts_with("this member belongs to no group yet")));
    }

    #[test]
    fn a_handover_that_does_not_come_about_says_why() {
        let one = Fixture::new();
        event(&one.logger, &Event::HandoverFailed { to: MemberId(2), reason: HandoverError::Learner });
        assert_eq!(
            one.lines(),
            [
                "the handover to m2 did not come about: it learns, and does not vote yet: wait until it has caught up"
            ]
        );
    }

    /// A primary that does not know yet that the configuration without it is committed comes for it.
    #[test]
    fn a_member_that_has_left_is_not_said_to_follow_as_others_do() {
        let mut one = Fixture::new();
        one.news.up(MemberId(2));
        one.status.primary = Some(MemberId(2));
        one.wait(1_000);
        assert_eq!(one.lines(), ["m2 is followed as primary"]);
        one.news.left(Some(3));
        // Nor does it miss anybody.
        one.news.down(MemberId(2));
        one.status.primary = Some(MemberId(3));
        one.wait(1_000);
        let lines = one.lines();
        assert!(
            lines.len() == 1 && lines[0].starts_with("m3 leads and does not know yet that configuration 3"),
            "{lines:?}"
        );
        assert!(lines[0].contains("this member, which has left,"), "{lines:?}");
        // It belongs to the group after all.
        one.news.up(MemberId(2));
        one.news.left(None);
        one.status.primary = Some(MemberId(2));
        one.wait(1_000);
        assert_eq!(one.lines(), ["m2 is followed as primary"]);
    }

    #[test]
    fn a_member_that_never_gets_to_lead_fills_no_log() {
        let mut one = Fixture::new();
        one.news.up(MemberId(2));
        one.wait(600_000);
        let lines = one.lines();
        assert!((5..=11).contains(&lines.len()), "{lines:?}");
        // Whatever is news is told.
        one.news.role(&one.logger, Role::Primary, Epoch::new(4, MemberId(1)), one.now);
        assert_eq!(one.lines(), ["this member is primary"]);
    }

    #[test]
    fn a_takeover_says_why_it_begins() {
        let mut one = Fixture::new();
        one.news.up(MemberId(2));
        one.status.primary = Some(MemberId(2));
        one.wait(1_000);
        one.lines();
        one.news.role(&one.logger, Role::Candidate, Epoch::NONE, one.now);
        assert_eq!(one.lines(), ["a takeover begins: m2 was silent for more than 400 ms"]);
        one.news.called(Call::By(MemberId(2)));
        one.news.role(&one.logger, Role::Candidate, Epoch::NONE, one.now);
        assert_eq!(one.lines(), ["a takeover begins: m2 asked this member to lead"]);
        one.news.called(Call::Asked);
        one.news.role(&one.logger, Role::Candidate, Epoch::NONE, one.now);
        assert_eq!(one.lines(), ["a takeover begins: it was asked for"]);
        one.now += 900 * MS;
        one.news.look(&one.logger, &one.status, false, one.now);
        let starved =
            "this member took no turn for 900 ms: its machine is overloaded, or the process was stopped";
        assert_eq!(one.lines(), [starved]);
    }
}
