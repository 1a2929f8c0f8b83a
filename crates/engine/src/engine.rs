//! The state machine's own file: what an engine is made of, where each input goes, and what follows from it.
//!
//! The phases live in files of their own and never call each other's leaves: an input changes one phase's state, then
//! [`Engine::pump`] derives what is to be done from where everything stands.

use alloc::collections::BTreeMap;

use windlass_log::{Epoch, Lsn, MemberId};

use crate::history::newest;
use crate::{
    Command, Config, ConfigurationRecord, Event, Input, Message, Opening, Persisted, Placed, Refusal, Role,
    Session, Stall, StopReason, Undecided,
};

mod append;
mod backup;
mod commit;
mod core;
#[cfg(feature = "explore")]
mod explore;
mod links;
mod members;
mod peer;
mod snapshot;
mod takeover;
mod tenure;
mod work;

use self::backup::Following;
use self::core::Core;
use self::links::Links;
use self::members::Told;
use self::peer::Peer;
use self::snapshot::Reset;
pub use self::snapshot::{SnapshotNeed, SnapshotState};
use self::takeover::{Accepted, Candidacy, Suspicion};
use self::tenure::{Sealing, Tenure};
use self::work::{Offer, Request, Work};

/// One member's share of the replication protocol. See the crate's documentation for the order of the calls.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub struct Engine {
    core: Core,
    links: Links,
    refused: BTreeMap<MemberId, Refusal>,
    // What is durable before an answer leaves.
    work: Option<Work>,
    next: Option<Request>,
    // As backup.
    following: Option<Following>,
    /// The newest session that this member has followed in.
    followed: Option<Session>,
    resync: Option<(MemberId, Session)>,
    snapshot: Option<Offer>,
    /// The application's checkpoint, until the log has started again there.
    installed: Option<(Lsn, Epoch)>,
    /// Where the checkpoint ends that is on its way.
    coming: Option<Lsn>,
    /// A newer offer was asked for, since the checkpoint lies beyond the one at hand.
    asked_for_newer: bool,
    reset: Option<Reset>,
    // As primary.
    tenure: Option<Tenure>,
    sealing: Option<Sealing>,
    // Between them.
    suspicion: Suspicion,
    candidacy: Option<Candidacy>,
    /// What an operator has accepted for the next choice. It outlives attempts that come to nothing, since members to answer them may come later. It ends where somebody leads, here or
    /// elsewhere; where this member is no use; and where more is damaged here than was told when the word was taken. What else may be lost by it, others' acknowledgements beyond what answers,
    /// nobody could tell then, whenever the choice is made.
    accepted: Accepted,
    undecided_said: Option<(Epoch, Undecided)>,
    /// What was told of the newest configuration.
    configuration_told: Told,
    /// The configuration with which this member has left, as it was told.
    left: Option<u64>,
    // The application's.
    trim_wanted: Option<Lsn>,
    stopped: Option<StopReason>,
    role_said: (Role, Epoch),
    // Time.
    called_at: u64,
    tick_at: u64,
    resync_at: u64,
}

/// Where an engine stands, for metrics and for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The role.
    pub role: Role,
    /// The highest epoch promised.
    pub promised: Epoch,
    /// Who is followed, if anybody (as primary: this member). Nobody at a damaged member once the one that it followed was not heard for the suspicion timeout: it
    /// suspects nobody itself.
    pub primary: Option<MemberId>,
    /// The drained tail as primary, the valid tail otherwise.
    pub tail: Lsn,
    /// On this member's medium.
    pub persisted: Persisted,
    /// Watermark.
    pub replicated: Lsn,
    /// Watermark.
    pub durable: Lsn,
    /// Released below.
    pub trimmed: Lsn,
    /// Bytes below what this member acknowledged are missing: it does not lead until they are repaired. Or, behind damage, below what it has published as durable:
    /// of those it owes nothing, but it is not whole before it has them again.
    pub damaged: bool,
    /// Everything that this member may have acknowledged lies below; `u64::MAX`: nobody can tell where it ends. Beyond `persisted` where it is damaged.
    pub mark: Persisted,
    /// Why the engine has stopped, if it has.
    pub stopped: Option<StopReason>,
    /// As primary: the peers that take batches, and how far the slowest of them are.
    pub peers: PeerMarks,
}

/// What a primary knows of the peers that take its batches: `persisted ≤ placed ≤ posted` (I-1). Where there are none the marks say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerMarks {
    /// How many there are.
    pub streaming: usize,
    /// The lowest LSN below which all is handed to the fabric.
    pub posted: Lsn,
    /// The lowest LSN below which all is in a peer's memory.
    pub placed: Placed,
    /// The lowest LSN below which all is on a peer's medium.
    pub persisted: Persisted,
}

impl PeerMarks {
    fn of<'a>(streaming: impl Iterator<Item = &'a Peer>) -> PeerMarks {
        let mut marks = PeerMarks::default();
        for peer in streaming {
            let is_first = marks.streaming == 0;
            let lower = |so_far: Lsn, of_peer: Lsn| if is_first { of_peer } else { so_far.min(of_peer) };
            marks = PeerMarks {
                streaming: marks.streaming + 1,
                posted: lower(marks.posted, peer.posted()),
                placed: Placed(lower(marks.placed.0, peer.placed().0)),
                persisted: Persisted(lower(marks.persisted.0, peer.persisted().0)),
            };
        }
        marks
    }
}

impl Engine {
    /// An engine for a member whose folder has just been opened. It starts as a backup that hears nobody.
    ///
    /// # Panics
    ///
    /// If the configuration is impossible (this member is no voter, a limit is zero, …) or the opening contradicts
    /// itself (a valid tail below the trim point, a log with an epoch above the promised one: R-5).
    #[must_use]
    pub fn new(config: Config, opening: Opening, now: u64) -> Engine {
        config.check();
        let promised = opening.state.promised;
        let core = Core::new(config, opening, now);
        core.configurations().for_each(crate::Configuration::check);
        let is_lone = core.is_voter(core.me()) && core.others().is_empty();
        let configuration_told = (core.newest().configuration.number(), core.is_newest_committed());
        let mut engine = Engine {
            core,
            links: Links::default(),
            refused: BTreeMap::new(),
            work: None,
            next: None,
            following: None,
            followed: None,
            resync: None,
            snapshot: None,
            installed: None,
            coming: None,
            asked_for_newer: false,
            reset: None,
            tenure: None,
            sealing: None,
            suspicion: Suspicion::new(now),
            candidacy: None,
            accepted: Accepted::Nothing,
            undecided_said: None,
            configuration_told,
            left: None,
            trim_wanted: None,
            stopped: None,
            role_said: (Role::Backup, promised),
            called_at: now,
            tick_at: now,
            resync_at: now,
        };
        if !is_lone {
            engine.wait_for_primary();
        }
        engine
    }

    /// Something happened at `now`, nanoseconds of a monotonic clock. A clock that goes back stands still.
    pub fn handle_input(&mut self, now: u64, input: Input) {
        self.arrive(now);
        if self.stopped.is_none() {
            self.dispatch(input);
            self.pump();
        } else if matches!(input, Input::AcceptLoss | Input::AcceptMemoryLoss) {
            // An operator waits for the answer.
            self.dispatch(input);
        }
    }

    /// The time that [`Engine::poll_timeout`] named has come. Calling it early or often does no harm.
    pub fn handle_timeout(&mut self, now: u64) {
        self.arrive(now);
        if self.stopped.is_some() {
            return;
        }
        let timing = self.core.config.timing;
        if self.core.now >= self.tick_at {
            self.tick_at = self.core.now + timing.heartbeat_ns;
        }
        self.tend_suspicion();
        self.tend_candidacy();
        self.tend_tenure();
        if self.core.now >= self.resync_at {
            self.resync_at = self.core.now + timing.retry_ns;
            self.send_resync();
        }
        self.pump();
    }

    /// The next thing to do, in order; `None` if there is nothing until the next input or timeout.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.core.commands.pop_front()
    }

    /// A stall of a batch that is over, oldest first, for metrics; `None` if there is none to tell of. Of those that nobody asks for the newest 64 are
    /// kept.
    pub fn poll_stall(&mut self) -> Option<Stall> {
        self.core.stalls.pop_front()
    }

    /// When [`Engine::handle_timeout`] is to be called at the latest; `None` for never.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.stopped.is_some() {
            return None;
        }
        let tenure = self.tenure.as_ref().filter(|tenure| tenure.start_end.is_some());
        [
            Some(self.tick_at),
            self.suspicion_deadline(),
            self.candidacy_deadline(),
            tenure.map(|tenure| tenure.beat_at),
            self.flush_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Where this engine stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let core = &self.core;
        let now = Status {
            role: self.role(),
            promised: core.state.promised,
            primary: match self.role() {
                Role::Primary => Some(core.me()),
                Role::Backup | Role::Candidate | Role::Sealing | Role::Stopped => {
                    let following = self.following.as_ref().filter(|_| !self.is_helpless());
                    following.map(|following| following.primary)
                }
            },
            tail: core.log.tail,
            persisted: core.log.persisted,
            replicated: core.replicated,
            durable: core.durable,
            trimmed: core.state.trimmed,
            damaged: core.lacks_shown(),
            mark: core.state.mark,
            stopped: self.stopped,
            peers: self.tenure.as_ref().map_or(PeerMarks::default(), |tenure| {
                PeerMarks::of(tenure.peers.values().filter(|peer| peer.is_streaming()))
            }),
        };
        match &self.reset {
            None => now,
            Some(Reset { before, .. }) => Status {
                tail: before.tail,
                persisted: before.persisted,
                replicated: before.replicated,
                durable: before.durable,
                trimmed: before.trimmed,
                damaged: before.damaged,
                ..now
            },
        }
    }

    /// What this engine was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    fn arrive(&mut self, now: u64) {
        self.core.now = self.core.now.max(now);
        // Calls come at least once per heartbeat: a longer gap means that this process did not run.
        if self.core.now - self.called_at > 4 * self.core.config.timing.heartbeat_ns {
            self.look_again();
        }
        self.called_at = self.core.now;
    }

    fn dispatch(&mut self, input: Input) {
        match input {
            Input::PeerUp { peer, identity } => self.peer_up(peer, identity),
            Input::PeerDown { peer } => self.peer_down(peer),
            Input::Message { peer, message } => {
                if self.links.is_up(peer) {
                    self.message(peer, *message);
                }
            }
            Input::Drained { to, tail } => self.drained(to, tail),
            Input::DurableWanted { to } => self.durable_wanted(to),
            Input::TenureStarted { token, end } => self.tenure_started(token, end),
            Input::Sealed { token, tail } => self.sealed(token, tail),
            Input::Flushed { token, persisted } => {
                if self.core.flushed(token, persisted) {
                    self.work_flushed();
                    self.candidacy_flushed();
                }
            }
            Input::Saved { token } => {
                if !self.link_saved(token) {
                    self.work_saved(token);
                    self.candidacy_saved(token);
                    self.reset_saved(token);
                    if self.core.configuration_saved(token) {
                        self.work_flushed();
                        self.candidacy_flushed();
                    }
                }
            }
            Input::Failed { reason } => self.stop(reason),
            Input::Damaged { at } => self.damaged(at),
            Input::WholeBehind { from } => self.core.whole_behind(from),
            Input::Granted { peer, session, up_to } => self.granted(peer, session, up_to),
            Input::Placed { peer, session, to } => self.placed(peer, session, to),
            Input::Acknowledged { peer, acknowledgement } => self.acknowledged(peer, &acknowledgement),
            Input::FabricDown { peer, session } => {
                self.tenure_fabric_down(peer, session);
                self.backup_fabric_down(session);
                self.candidacy_fabric_down(peer, session);
            }
            Input::Notice { session, notice } => self.notice(session, notice),
            Input::Heartbeat { heartbeat } => self.heartbeat(heartbeat),
            Input::ConfigurationFound(found) => self.found(found),
            Input::ConfigurationRefused { number } => self.refused_by_log(number),
            Input::Change(change) => self.change(change),
            Input::Parsed { token, valid_tail } => self.parsed(token, valid_tail),
            Input::GrantDone { token } => self.grant_done(token),
            Input::Revoked { token, valid_tail } => self.revoked(token, valid_tail),
            Input::AcknowledgeDone { session } => self.acknowledge_done(session),
            Input::Fetched { token, valid_tail } => self.fetched(token, valid_tail),
            Input::FetchFailed { token } => self.fetch_failed(token),
            Input::Trim { to } => self.trim_wanted = self.trim_wanted.max(Some(to)),
            Input::SnapshotInstalled { at, epoch } => self.snapshot_installed(at, epoch),
            Input::SnapshotComing { at } => self.snapshot_coming(at),
            Input::Suspect => {
                if self.candidacy.is_none() && self.sealing.is_none() {
                    self.campaign();
                }
            }
            Input::Handover { to } => self.hand_over(to),
            Input::Resign { reason } => self.step_down(reason),
            Input::AcceptMemoryLoss => self.accept_memory_loss(),
            Input::AcceptLoss => self.accept_loss(),
        }
    }

    /// What a peer says. Whatever it is, it may be late, repeated, or from a broken peer.
    fn message(&mut self, from: MemberId, message: Message) {
        let promised = self.core.state.promised;
        match message {
            Message::PreVote { epoch, configuration } => self.vote_asked(from, epoch, configuration),
            Message::PreVoteReply { epoch, granted, promised } => {
                self.vote_answered(from, epoch, granted, promised);
            }
            Message::Fence { epoch, configuration } => self.fence_asked(from, epoch, configuration),
            Message::Promise { epoch, summary } => self.promised(from, epoch, summary),
            Message::Rejected { epoch, promised } => self.rejected(epoch, promised),
            Message::Working { epoch, progress } => {
                if epoch.member() == from && self.is_heard(from) {
                    self.candidate_working(epoch, progress);
                }
            }
            Message::Campaign { epoch } => {
                // Or of whom it follows: a primary that has removed itself votes no more once the heir has learned that this is committed.
                let is_followed = self.following.as_ref().is_some_and(|following| following.primary == from);
                if epoch >= promised && self.sealing.is_none() && (is_followed || self.core.is_voter(from)) {
                    self.core.epoch_seen = self.core.epoch_seen.max(epoch);
                    self.campaign();
                }
            }
            Message::Adopt { session, history, tail, trimmed, durable, configurations } => {
                let offer = Offer { primary: from, session, history, tail, trimmed, durable, configurations };
                self.adopt_asked(offer);
            }
            Message::Adopted { session, valid_tail, persisted } => {
                self.adopted(from, session, valid_tail, persisted);
            }
            Message::SnapshotNeeded { session, valid_tail: _ } => self.snapshot_needed(from, session),
            Message::Keep { epoch, from: at } => self.keep(from, epoch, at),
            Message::Resync { session } => self.resynced(from, session),
            Message::Alive { epoch, sequence, pending_ns, drained: _ } => {
                if epoch < promised {
                    return self.core.send(from, Message::Rejected { epoch, promised });
                }
                // R-15, as for heartbeats.
                let stands = pending_ns >= self.core.config.timing.stall_ns && !windlass_log::planted!(R15);
                if epoch.member() == from && self.is_heard(from) && !stands {
                    self.heard();
                }
                self.core.send(from, Message::AliveReply { epoch, sequence });
            }
            Message::AliveReply { epoch, sequence } => self.alive_answered(from, epoch, sequence),
            Message::FetchRequest { session, range } => self.fetch_asked(from, session, range),
            Message::NotAMember { configuration } => self.told_not_a_member(configuration),
        }
    }

    fn adopt_asked(&mut self, offer: Offer) {
        let (epoch, promised) = (offer.session.epoch, self.core.state.promised);
        let geometry = self.core.config.geometry;
        let is_sound = epoch.member() == offer.primary
            && offer.session.attempt > 0
            && newest(&offer.history) == epoch
            && offer.trimmed <= offer.durable
            && offer.durable <= offer.tail
            && geometry.normalize(offer.tail) == offer.tail
            && geometry.normalize(offer.trimmed) == offer.trimmed
            && !offer.configurations.is_empty();
        if epoch < promised {
            self.core.send(offer.primary, Message::Rejected { epoch, promised });
        } else if is_sound {
            let number = offer.configurations.last().map_or(0, |record| record.configuration.number());
            if !self.obeys(offer.primary, number) {
                return self.not_a_member(offer.primary);
            }
            if let Some(number) = self.founded_otherwise(&offer.configurations) {
                let (peer, reason) = (offer.primary, Refusal::OtherConfiguration { number });
                self.refuse(peer, reason);
                return;
            }
            // A primary that does not know yet that its newest configuration is committed comes for the members of its predecessor, too: who was told that it
            // has left by that one follows for so long, and leads nothing all the same.
            let newest = offer.configurations.last().map(|record| &record.configuration);
            let is_told = self.left.is_some_and(|left| 0 < left && left <= number);
            if !is_told || newest.is_none_or(|newest| newest.member(self.core.me()).is_some()) {
                self.left = None;
            }
            self.offered(offer);
        }
    }

    /// Damage below what was flushed: as primary the tenure ends, for the peer that is furthest; in any role the range is had again
    /// from the group.
    fn damaged(&mut self, at: Lsn) {
        if at < self.core.state.trimmed || at >= self.core.log.persisted.0 {
            return;
        }
        let heir = self.furthest_peer();
        let epoch = self.core.state.promised;
        self.step_down(StopReason::Damaged { at });
        if let Some(heir) = heir {
            // Its promise is asked for once it campaigns, and waits for the seal.
            self.core.send(heir, Message::Campaign { epoch });
        }
        self.core.found_damage(at);
        if self.accepted == Accepted::All {
            // An operator was told what the word gives up, and that is more by now.
            self.accepted = Accepted::Nothing;
        }
        self.core.save();
        if self.sealing.is_none() {
            self.core.set_tail(self.core.log.tail);
        }
        let followed = self.following.take().map(|following| (following.primary, following.session));
        if let Some(followed) = followed.or_else(|| self.work_damaged()) {
            self.resync = Some(followed);
            self.send_resync();
        }
        self.abandon_candidacy();
    }

    /// Everything that follows from where things stand now.
    fn pump(&mut self) {
        if self.stopped.is_none() {
            self.count_commits();
            self.pump_members();
            self.pump_handover();
            self.trim_as_primary();
            self.pump_sessions();
            self.pump_batches();
            self.pump_snapshot();
            self.pump_backup();
            self.pump_members();
            self.pump_flush();
            self.watch_pending();
        }
        self.say_role();
    }

    /// Flushes what somebody waits for, what has become much, and what has waited long.
    fn pump_flush(&mut self) {
        let limits = self.core.config.limits;
        let Some(wanted) = self.flush_wanted() else { return };
        let (tail, persisted) = (self.core.log.tail, self.core.log.persisted.0);
        if self.core.log.flush.is_some() {
            return;
        }
        if persisted == tail || persisted >= self.core.flushable() && self.core.is_saving_configuration() {
            self.core.log.unpersisted_since = None;
            return;
        }
        self.core.log.unpersisted_since = self.core.log.unpersisted_since.or(Some(self.core.now));
        let is_late = self.flush_deadline().is_some_and(|deadline| self.core.now >= deadline);
        if wanted > persisted || tail.0 - persisted.0 >= limits.flush_lag_bytes || is_late {
            self.core.flush();
        }
    }

    fn flush_wanted(&self) -> Option<Lsn> {
        let as_primary = self.tenure.as_ref().filter(|t| t.start_end.is_some()).map(|tenure| tenure.wanted);
        as_primary.or(self.following.as_ref().map(|following| following.wanted))
    }

    fn flush_deadline(&self) -> Option<u64> {
        self.flush_wanted()?;
        if self.core.log.flush.is_some() || self.core.is_saving_configuration() {
            return None;
        }
        Some(self.core.log.unpersisted_since? + self.core.config.timing.flush_idle_ns)
    }

    /// The number of the configuration that this member and a primary have both, and which is not the same in both.
    fn founded_otherwise(&self, theirs: &[ConfigurationRecord]) -> Option<u64> {
        let own = self.core.state.configurations.first().filter(|record| record.end == Lsn(0))?;
        let other = theirs.first().filter(|record| record.end == Lsn(0))?;
        (!own.configuration.is_alike(&other.configuration)).then(|| own.configuration.number())
    }

    fn role(&self) -> Role {
        if self.stopped.is_some() {
            return Role::Stopped;
        }
        match &self.tenure {
            Some(tenure) if tenure.start_end.is_none() => Role::Candidate,
            Some(tenure) if tenure.handover.is_some() => Role::Sealing,
            Some(_) => Role::Primary,
            None if self.sealing.is_some() => Role::Sealing,
            None if self.candidacy.is_some() => Role::Candidate,
            None => Role::Backup,
        }
    }

    fn say_role(&mut self) {
        let epoch = match (&self.tenure, &self.following) {
            (Some(tenure), _) => tenure.epoch,
            (None, Some(following)) => following.session.epoch,
            (None, None) => self.core.state.promised,
        };
        let now = (self.role(), epoch);
        if now != self.role_said {
            self.role_said = now;
            self.core.event(Event::Role { role: now.0, epoch });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_log::MemberId;

    #[test]
    fn of_the_peers_that_stream_the_slowest_marks_are_shown_i1() {
        let peer = |posted, persisted| {
            let mut peer = Peer::new(Epoch::new(1, MemberId(0)), 0);
            peer.adopted(Lsn(posted), Persisted(Lsn(persisted)), 0);
            peer
        };
        let (fast, slow, late) = (peer(6000, 5600), peer(5400, 5400), peer(5800, 5000));
        assert_eq!(PeerMarks::of([].into_iter()), PeerMarks::default());
        let one = PeerMarks::of([&fast].into_iter());
        assert_eq!((one.streaming, one.posted, one.persisted.0), (1, Lsn(6000), Lsn(5600)));
        for order in [[&fast, &slow, &late], [&late, &fast, &slow], [&slow, &late, &fast]] {
            let all = PeerMarks::of(order.into_iter());
            assert_eq!((all.streaming, all.posted), (3, Lsn(5400)));
            assert_eq!((all.placed.0, all.persisted.0), (Lsn(5400), Lsn(5000)));
        }
    }
}
