//! What every phase shares: the configuration, the durable state, the local log's positions, the command queue.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use windlass_log::{Epoch, EpochHistory, HistoryError, Lsn, MemberId};

use super::members::{Unsaved, in_force};
use crate::history::{divergence, epoch_before, mark_at, newest, trim};
use crate::{
    Command, Config, ConfigurationRecord, DurableState, Event, Mark, Message, Opening, Persisted, Stall,
    StopReason, Summary, Token, Witness,
};

/// Stalls that are remembered until they are asked for.
const STALLS_MAX: usize = 64;
/// Places behind damage that are remembered. What lies behind the others is sent again.
const WHOLE_BEHIND_MAX: usize = 64;

#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: Config,
    pub(super) commands: VecDeque<Command>,
    /// Stalls that are over, until they are asked for.
    pub(super) stalls: VecDeque<Stall>,
    /// As it is, or as the last command that saves it will make it. What must not leave before it is durable waits for
    /// that command's answer.
    pub(super) state: DurableState,
    pub(super) log: LocalLog,
    /// The newest commit watermarks published here.
    pub(super) replicated: Lsn,
    pub(super) durable: Lsn,
    /// Where `durable` stood when this process opened the log: its readers were shown what lies beyond, and nothing else.
    opened_durable: Lsn,
    /// The highest `durable` heard of, not clamped to what this member holds.
    pub(super) durable_known: Lsn,
    /// The highest epoch seen anywhere: a candidate asks for more.
    pub(super) epoch_seen: Epoch,
    /// What this member, as a primary, saw acknowledged.
    pub(super) witnessed: BTreeMap<MemberId, Mark>,
    /// Where the log was found damaged, until what lies beyond is written again.
    pub(super) damage: Option<Lsn>,
    /// Where whole records begin again behind damage, lowest first.
    pub(super) whole_behind: VecDeque<Lsn>,
    /// Damage was found while something may have been placed here that was not looked at yet: until the windows are gone and the log is scanned
    /// nobody can tell how far.
    is_placed_unseen: bool,
    /// Committed bytes were lost here by damage: the published watermarks run ahead of the tail until it is repaired.
    lost_committed: bool,
    /// The newest configuration whose record damage took from this log: known from the superblock, kept there while this member is damaged.
    lost_configuration: Option<ConfigurationRecord>,
    /// Configurations on their way to the superblock.
    pub(super) unsaved: Option<Unsaved>,
    pub(super) now: u64,
    /// The commit rule is broken on purpose: what is placed counts as persisted.
    #[cfg(feature = "explore")]
    pub(super) commits_placed: bool,
    pub(super) next_token: u64,
    pub(super) random: u64,
}

/// The local log's positions.
#[cfg_attr(feature = "explore", derive(Clone))]
#[derive(Debug)]
pub(super) struct LocalLog {
    /// The drained LSN as primary, the valid tail otherwise.
    pub(super) tail: Lsn,
    pub(super) persisted: Persisted,
    /// The flush in flight, and how far it goes.
    pub(super) flush: Option<(Token, Lsn)>,
    /// Since when there is something unflushed.
    pub(super) unpersisted_since: Option<u64>,
}

/// What this log has released is of one epoch here and of another in the log that is to be followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GivenUp {
    /// The own trim point.
    pub(super) released: Lsn,
    /// The epoch of the byte below in the other log.
    pub(super) expected: Epoch,
    /// In this one.
    pub(super) found: Epoch,
}

/// How this member's log becomes a prefix of another one.
pub(super) enum Adoption {
    /// Cut here and take this history and mark.
    Cut { at: Lsn, history: EpochHistory, mark: Persisted },
    /// The other log no longer has what is needed.
    NeedsSnapshot,
    /// It would cut what is committed.
    Contradiction { at: Lsn },
}

impl Core {
    pub(super) fn new(config: Config, opening: Opening, now: u64) -> Core {
        let Opening { mut state, valid_tail } = opening;
        assert!(
            state.promised >= newest(&state.history),
            "R-5: promised {} is below epoch {} in the log",
            state.promised,
            newest(&state.history)
        );
        assert!(state.trimmed <= valid_tail, "valid tail {valid_tail} below trim point {}", state.trimmed);
        assert!(config.geometry.normalize(valid_tail) == valid_tail, "R-1: {valid_tail} has another name");
        let is_damaged = Persisted(valid_tail) < state.mark;
        state.mark = state.mark.max(Persisted(valid_tail));
        if state.configurations.is_empty() {
            state.configurations.push(ConfigurationRecord::founding(config.founding.clone()));
        }
        // What the log has lost with its torn end is none of its configurations any more; what damage took may be committed.
        let newest =
            in_force(&state.configurations, valid_tail, state.trimmed).last().map(|record| record.end);
        let lost = state.configurations.iter().rfind(|record| Some(record.end) > newest);
        let lost_configuration = lost.filter(|_| is_damaged).cloned();
        state.configurations.retain(|record| Some(record.end) <= newest);
        let random = config.seed;
        Core {
            config,
            commands: VecDeque::new(),
            stalls: VecDeque::new(),
            log: LocalLog {
                tail: valid_tail,
                persisted: Persisted(valid_tail),
                flush: None,
                unpersisted_since: None,
            },
            replicated: state.trimmed,
            durable: state.trimmed,
            opened_durable: state.trimmed,
            durable_known: state.trimmed,
            epoch_seen: state.promised,
            witnessed: BTreeMap::new(),
            damage: None,
            whole_behind: VecDeque::new(),
            is_placed_unseen: false,
            lost_committed: false,
            lost_configuration,
            unsaved: None,
            now,
            #[cfg(feature = "explore")]
            commits_placed: false,
            next_token: 1,
            random,
            state,
        }
    }

    pub(super) fn me(&self) -> MemberId {
        self.config.me
    }

    pub(super) fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    pub(super) fn push(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    pub(super) fn send(&mut self, peer: MemberId, message: Message) {
        self.push(Command::Send { peer, message: Box::new(message) });
    }

    /// A stall is over. Whoever does not ask for them loses the oldest.
    pub(super) fn stalled(&mut self, stall: Stall) {
        if self.stalls.len() == STALLS_MAX {
            self.stalls.pop_front();
        }
        self.stalls.push_back(stall);
    }

    pub(super) fn event(&mut self, event: Event) {
        self.push(Command::Event(event));
    }

    /// A number in `0..bound`, from the seed (splitmix64).
    pub(super) fn random_below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    /// Starts a flush up to the tail, or as far as may be, unless one is in flight.
    pub(super) fn flush(&mut self) {
        let to = self.flushable();
        if self.log.flush.is_none() && self.log.persisted.0 < to {
            let token = self.token();
            self.log.flush = Some((token, to));
            self.push(Command::Flush { token, to });
        }
    }

    /// A flush ended. Whether it was the one in flight.
    pub(super) fn flushed(&mut self, token: Token, persisted: Persisted) -> bool {
        if self.log.flush.is_none_or(|(in_flight, _)| in_flight != token) {
            return false;
        }
        self.log.flush = None;
        // The flush may have reached further than what is known to be valid here: count only that.
        self.log.persisted = self.log.persisted.max(persisted.min(Persisted(self.log.tail)));
        self.state.mark = self.state.mark.max(self.log.persisted);
        self.log.unpersisted_since = None;
        true
    }

    /// The state, to be saved: with the invariants that every saved state has.
    pub(super) fn saved_state(&self) -> Box<DurableState> {
        let state = &self.state;
        assert!(state.promised >= newest(&state.history), "R-5: a promise below an epoch in the log");
        Box::new(DurableState { configurations: self.known_configurations(), ..state.clone() })
    }

    /// The log's configurations, and behind its end the one that damage took.
    fn known_configurations(&self) -> Vec<ConfigurationRecord> {
        let mut records = self.state.configurations.clone();
        // Where the log has come to its place again it is among them, or other bytes are there.
        let lost = self.lost_configuration.iter().filter(|lost| self.damaged() && lost.end > self.log.tail);
        for record in lost.filter(|lost| !self.state.configurations.contains(lost)) {
            records.push(record.clone());
        }
        records.sort_by_key(|record| record.end);
        records
    }

    /// The log goes on from `at` with this history and mark. What damage took of its configurations stays known while it is damaged, unless the history
    /// gives another epoch's bytes to that place.
    pub(super) fn keep_lost_configuration(&mut self, at: Lsn, history: &EpochHistory, mark: Persisted) {
        let behind = self.state.configurations.iter().rfind(|record| record.end > at).cloned();
        let own = &self.state.history;
        let is_same = |end: Lsn| epoch_before(own, end) == epoch_before(history, end);
        self.lost_configuration = behind
            .or(self.lost_configuration.take())
            .filter(|record| mark.0 > at && record.end > at && is_same(record.end));
    }

    /// The log goes on from `at` with this history, which may give the place of the configuration that is known to be committed to another epoch's bytes: after an
    /// operator's word. It counts on from where the two lines part: whatever is written from there on comes behind it, and what a damaged log has to have again
    /// before that place lies before it, older configurations among it.
    fn place_committed_configuration(&mut self, at: Lsn, history: &EpochHistory) {
        let own = &self.state.history;
        let is_lost = windlass_log::planted!(PlaceLost);
        if let Some(first) = self.state.configurations.first_mut()
            && first.end > at
            && (is_lost || epoch_before(own, first.end) != epoch_before(history, first.end))
        {
            let parts = if is_lost { at } else { divergence(own, first.end, history, first.end, at) };
            (first.start, first.end) = (parts, parts);
        }
    }

    /// The configurations of the log that this one goes on with. One without a record stands there since an operator's word gave up the place that it had: no byte of the
    /// log brings it to who has not heard that it is committed.
    pub(super) fn take_placed_configuration(&mut self, of_other: &[ConfigurationRecord]) {
        let Some(placed) = of_other.first().filter(|first| first.start == first.end && first.end > Lsn(0))
        else {
            return;
        };
        let records = &mut self.state.configurations;
        let number = placed.configuration.number();
        if records.first().is_some_and(|first| first.configuration.number() < number) {
            records.retain(|record| record.end > placed.end);
            records.insert(0, placed.clone());
        }
    }

    pub(super) fn save(&mut self) -> Token {
        let (token, state) = (self.token(), self.saved_state());
        self.push(Command::Save { token, state });
        token
    }

    /// The valid tail changed by a scan or a cut: what is known to be persisted shrinks with it, the mark does not.
    pub(super) fn set_tail(&mut self, tail: Lsn) {
        let tail = self.damage.map_or(tail, |damage| damage.min(tail));
        self.log.tail = tail;
        self.lost_committed |= tail < self.durable;
        self.log.persisted = self.log.persisted.min(Persisted(tail));
        let replicated = self.replicated.min(tail).max(self.durable);
        if replicated < self.replicated {
            // whoever reads at `replicated` is told that what lies behind is revoked, before other bytes come to its place.
            self.replicated = replicated;
            self.push(Command::Learned { replicated, durable: self.durable });
        }
    }

    /// Bytes that were flushed are gone, and with them, it may be, some that were only placed: how far this member had acknowledged can't be told
    /// any more.
    pub(super) fn lose_mark(&mut self) {
        self.state.mark = DurableState::MARK_UNKNOWN;
    }

    /// Damage begins at `at`. What was persisted is known, and so the mark is; where what is placed counts, too, it is once that has been scanned.
    pub(super) fn found_damage(&mut self, at: Lsn) {
        self.damage = Some(self.damage.map_or(at, |known| known.min(at)));
        if self.config.replicated_allowed {
            self.is_placed_unseen = true;
            self.state.mark = self.state.mark.max(Persisted(self.log.tail));
        }
    }

    /// The own tenure is over: its log ends at `tail`.
    pub(super) fn sealed_at(&mut self, tail: Lsn) {
        if self.is_placed_unseen {
            // A primary counts for what it has appended.
            self.state.mark = self.state.mark.max(Persisted(tail));
        }
        self.set_tail(tail);
    }

    /// Nothing can be placed here any more, and the log was scanned up to `valid_tail`, also behind its damage.
    pub(super) fn saw_placed(&mut self, valid_tail: Lsn) {
        if core::mem::take(&mut self.is_placed_unseen) {
            self.state.mark = self.state.mark.max(Persisted(valid_tail));
        }
    }

    /// What a damaged member may have acknowledged of a log with this history and tail, of which it holds all below `at`. What it had acknowledged
    /// behind the place where the two part was never committed.
    fn mark_in(&self, history: &EpochHistory, tail: Lsn, from: Lsn, at: Lsn) -> Persisted {
        if self.state.mark == DurableState::MARK_UNKNOWN || self.is_placed_unseen {
            return DurableState::MARK_UNKNOWN;
        }
        let own = &self.state.history;
        let parts = if epoch_before(own, from) == epoch_before(history, from) {
            divergence(own, self.state.mark.0, history, tail, from)
        } else {
            from
        };
        Persisted(parts.max(at))
    }

    /// The mark behind a checkpoint at `at`, with which a log of this history and tail goes on.
    pub(super) fn mark_behind(&self, history: &EpochHistory, tail: Lsn, trimmed: Lsn, at: Lsn) -> Persisted {
        if self.damaged() {
            self.mark_in(history, tail, self.state.trimmed.max(trimmed), at)
        } else {
            Persisted(at)
        }
    }

    /// Whole records begin again here, behind damage.
    pub(super) fn whole_behind(&mut self, from: Lsn) {
        let places = &mut self.whole_behind;
        let index = places.partition_point(|place| *place < from);
        if places.get(index) != Some(&from) && from > self.log.tail.min(self.damage.unwrap_or(self.log.tail))
        {
            places.insert(index, from);
            places.truncate(WHOLE_BEHIND_MAX);
        }
    }

    /// How much may be whole from the end of the log on, which has been filled up to whole records behind damage: up to the next place behind other damage, and no
    /// further than `end`. `None` if the log ends before all of them.
    pub(super) fn whole_behind_most(&self, end: Lsn) -> Option<u64> {
        let tail = self.log.tail;
        self.whole_behind.front().filter(|from| **from <= tail)?;
        let next = self.whole_behind.iter().find(|from| **from > tail);
        Some(next.map_or(end, |next| end.min(*next)).0.saturating_sub(tail.0))
    }

    /// Forgets the places behind damage that the log has reached.
    pub(super) fn pass_whole(&mut self) {
        let tail = self.log.tail;
        self.whole_behind.retain(|from| *from > tail);
    }

    /// Everything that this member may ever have vouched for is on its medium again.
    pub(super) fn caught_up(&mut self) {
        if self.state.memory_lost || self.damaged() {
            self.state.memory_lost = false;
            self.state.mark = self.log.persisted;
            self.save();
        }
    }

    /// Whether this member lacks bytes that it may have acknowledged: it does not lead until it has them on its medium again.
    pub(super) fn damaged(&self) -> bool {
        self.log.persisted < self.state.mark
    }

    /// Whether this member is not whole: damaged, or without something that it has published as durable. Of what lies beyond its mark it has vouched for nothing,
    /// so that it may count, and lead; but its log ends before what its readers were told of.
    pub(super) fn lacks_shown(&self) -> bool {
        self.damaged() || self.log.tail < self.durable
    }

    /// Epoch of the last valid record, and tail: what ranks a log. By R-4 a record's epoch is the one that the
    /// history assigns to its bytes; an entry that owns no byte ranks nothing.
    pub(super) fn rank(&self) -> (Epoch, Lsn) {
        (epoch_before(&self.state.history, self.log.tail), self.log.tail)
    }

    pub(super) fn summary(&self) -> Summary {
        let history = self.state.history.clone();
        // Those of members that are gone say nothing of those that count.
        let is_member = |member: &MemberId| self.configurations().any(|c| c.member(*member).is_some());
        let witnessed = self
            .witnessed
            .iter()
            .filter(|(member, _)| is_member(member))
            .map(|(member, mark)| Witness { member: *member, mark: *mark });
        Summary {
            last_epoch: self.rank().0,
            valid_tail: self.log.tail,
            trimmed: self.state.trimmed,
            mark: mark_at(&history, self.state.mark.0),
            memory_lost: self.state.memory_lost,
            durable: mark_at(&history, self.durable_known),
            witnessed: witnessed.collect(),
            configurations: self.known_configurations(),
            history,
        }
    }

    /// How this log becomes a prefix of one with this history, tail and trim point.
    pub(super) fn plan_adoption(&self, history: &EpochHistory, tail: Lsn, trimmed: Lsn) -> Adoption {
        let own = &self.state.history;
        let from = self.state.trimmed.max(trimmed);
        let is_one_line = epoch_before(own, from) == epoch_before(history, from);
        // What this process has shown its readers is in every line but one that an operator's word has chosen, also where damage has taken it here, or the other log has
        // released it. Such a line is not followed by who would go on showing it up to where the old one was durable. A process that has shown nothing since it was opened has
        // nothing to go on with: its application is told what it holds (`released_and_given_up`), and has that replaced.
        if self.durable >= from && self.durable > self.opened_durable {
            let shown = self.durable.max(self.log.tail);
            let parts = if is_one_line { divergence(own, shown, history, tail, from) } else { from };
            if !is_one_line || parts < self.durable {
                return Adoption::Contradiction { at: parts };
            }
        }
        if self.log.tail < trimmed {
            return Adoption::NeedsSnapshot;
        }
        // Below `from` one of the logs is released: only the byte before it can be compared. If that is another epoch's,
        // they part somewhere in what is released.
        if !is_one_line {
            return Adoption::NeedsSnapshot;
        }
        let at = divergence(own, self.log.tail, history, tail, from);
        // What was acknowledged of another tenure and is cut now was never committed. What damage took stays missed.
        let mark = if self.damaged() {
            self.mark_in(history, tail, from, at)
        } else {
            self.state.mark.min(Persisted(at))
        };
        match merge(own, history, self.state.trimmed) {
            Ok(history) => Adoption::Cut { at, history, mark },
            // The epochs of both are more than a history holds. The other's older ones are released there: so this log goes on from a checkpoint, as behind them.
            Err(HistoryError::TooMany) => Adoption::NeedsSnapshot,
            Err(
                HistoryError::Order { .. }
                | HistoryError::NoEpoch { .. }
                | HistoryError::NearlyFull
                | HistoryError::Length { .. },
            ) => Adoption::Contradiction { at: from },
        }
    }

    /// Whether what this log has released is not in the log of this history, which an operator's word has chosen: the epochs of the byte below the own trim point, here
    /// and there. `None` also where the other history does not reach down to it.
    pub(super) fn released_and_given_up(&self, history: &EpochHistory) -> Option<GivenUp> {
        let released = self.state.trimmed;
        let (found, expected) =
            (epoch_before(&self.state.history, released), epoch_before(history, released));
        (expected != Epoch::NONE && found != expected).then_some(GivenUp { released, expected, found })
    }

    /// Takes a planned history, so that the next command that saves the state carries it, and of the other log's configurations what it does not have as a record.
    /// Returns that command's token.
    pub(super) fn adopt(
        &mut self,
        at: Lsn,
        history: EpochHistory,
        mark: Persisted,
        of_other: &[ConfigurationRecord],
    ) -> Token {
        assert!(self.log.flush.is_none(), "a cut under a flush in flight");
        assert!(at >= self.durable.min(self.log.tail), "I-2: a cut at {at} below durable {}", self.durable);
        assert!(self.damage.is_none_or(|damage| at <= damage), "a log that goes on behind its damage");
        let was_damaged = self.damage.take().is_some();
        self.keep_lost_configuration(at, &history, mark);
        self.cut_configurations(at);
        self.place_committed_configuration(at, &history);
        self.take_placed_configuration(of_other);
        self.state.history = history;
        self.state.mark = mark;
        let history = &self.state.history;
        self.witnessed.retain(|_, mark| epoch_before(history, mark.lsn) == mark.epoch);
        // Behind damage the medium still has bytes that were flushed once. What is had again in their place counts as flushed only after a flush of its
        // own, so they are cut away, too, although nothing valid is.
        if at == self.log.tail && !was_damaged {
            return self.save();
        }
        self.set_tail(at);
        let (token, state) = (self.token(), self.saved_state());
        self.push(Command::Cut { token, at, state });
        token
    }

    /// The log goes on in this line: what is known to be durable is so up to where the two part.
    pub(super) fn keep_durable_known(&mut self, history: &EpochHistory, tail: Lsn, trimmed: Lsn) {
        let from = self.state.trimmed.max(trimmed);
        if self.durable_known > from {
            let parts = divergence(&self.state.history, self.durable_known, history, tail, from);
            self.durable_known = self.durable_known.min(parts.max(from));
        }
    }

    /// The log goes on in a line that parts from this one below what is released here: nothing known of this one is required of any choice any more.
    pub(super) fn give_up_durable_known(&mut self) {
        self.durable_known = Lsn(0);
    }

    /// What this member lacks of what it may have acknowledged is given up, by an operator's word. Whether there was something: then its log is to be cut
    /// where it ends now ([`Core::save_with_cut`]), for behind that whole records may follow.
    pub(super) fn give_up_lost(&mut self) -> bool {
        // What is known to be durable goes with it: as a voter this member would otherwise name a mark that no log reaches any more, and nobody could be chosen without another word. What this
        // process has published stays (`durable`): a word is refused where that lies beyond the log.
        self.durable_known = self.durable_known.min(self.log.tail);
        let tail = self.log.tail;
        // What is known to be committed counts on, before whatever is written from here on. It may lie beyond the end of a log that lacks nothing of its own, too: one that had
        // heard of it and lost it with its torn end.
        if let Some(first) = self.state.configurations.first_mut().filter(|first| first.end > tail) {
            (first.start, first.end) = (tail, tail);
        }
        if !self.damaged() {
            return false;
        }
        self.state.mark = self.log.persisted;
        (self.damage, self.is_placed_unseen, self.lost_configuration) = (None, false, None);
        self.whole_behind.clear();
        true
    }

    /// Saves the state with a cut at the tail, from where on its history has a new epoch.
    pub(super) fn save_with_cut(&mut self) -> Token {
        let (token, at, state) = (self.token(), self.log.tail, self.saved_state());
        self.push(Command::Cut { token, at, state });
        token
    }

    /// Publishes watermarks learned from a primary, clamped to what this member holds.
    pub(super) fn learn(&mut self, replicated: Lsn, durable: Lsn) {
        self.durable_known = self.durable_known.max(durable);
        let tail = self.log.tail;
        let durable = durable.min(tail).max(self.durable);
        let replicated = replicated.min(tail).max(self.replicated).max(durable);
        if (replicated, durable) != (self.replicated, self.durable) {
            (self.replicated, self.durable) = (replicated, durable);
            self.push(Command::Learned { replicated, durable });
        }
        self.check();
    }

    /// Releases everything below `to`, which must be durable and consumed.
    pub(super) fn trim(&mut self, to: Lsn) {
        if to <= self.state.trimmed {
            return;
        }
        assert!(to <= self.durable && to <= self.log.persisted.0, "I-1: a trim at {to} beyond durable");
        self.state.trimmed = to;
        trim(&mut self.state.history, to);
        let state = self.saved_state();
        self.push(Command::Trim { state });
    }

    /// I-1: `trimmed ≤ durable ≤ replicated ≤ tail`, persisted at most tail. Damage found later may lower the tail.
    pub(super) fn check(&self) {
        assert!(self.state.trimmed <= self.durable, "I-1: trimmed beyond durable");
        assert!(self.durable <= self.replicated, "I-1: durable beyond replicated");
        assert!(self.lost_committed || self.replicated <= self.log.tail, "I-1: replicated beyond tail");
        assert!(self.log.persisted.0 <= self.log.tail, "I-1: persisted beyond tail");
    }

    pub(super) fn contradiction(&self, at: Lsn) -> StopReason {
        StopReason::Contradiction { at, durable: self.durable }
    }
}

#[cfg(feature = "explore")]
impl Core {
    pub(super) fn visit_tokens(&mut self, visit: &mut dyn FnMut(&mut Token)) {
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.visit_tokens(visit);
        }
        if let Some((token, _)) = &mut self.log.flush {
            visit(token);
        }
    }
}

/// The other history, with this log's older entries below its first one kept, from `trimmed` on.
///
/// # Errors
///
/// They do not fit each other, which agreeing logs do; or together they are too many.
fn merge(own: &EpochHistory, other: &EpochHistory, trimmed: Lsn) -> Result<EpochHistory, HistoryError> {
    let mut merged = EpochHistory::new();
    let first = other.entries().first().map_or(Lsn(u64::MAX), |entry| entry.start);
    let older = own.entries().iter().filter(|entry| entry.start < first);
    for entry in older.chain(other.entries()) {
        if merged.last().is_some_and(|last| last.epoch == entry.epoch) {
            continue;
        }
        merged.extend(entry.epoch, entry.start)?;
    }
    trim(&mut merged, trimmed);
    Ok(merged)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::history::tests::{epoch, history};
    use crate::{Change, Configuration, Identity, Limits, StallCause, Timing};
    use windlass_log::{Geometry, SEGMENT_BYTES_MIN};

    /// Member 0 of three, with a log of epoch 1 up to 6000, all of it flushed and acknowledged.
    pub(in super::super) fn core(replicated_allowed: bool) -> Core {
        opened(replicated_allowed, 6000, 6000, &[])
    }

    fn opened(replicated_allowed: bool, valid_tail: u64, mark: u64, records: &[ConfigurationRecord]) -> Core {
        let (config, opening) = opening(replicated_allowed, valid_tail, mark, records);
        Core::new(config, opening, 0)
    }

    /// Of member 0, with these configurations in its log.
    pub(in super::super) fn opening(
        replicated_allowed: bool,
        valid_tail: u64,
        mark: u64,
        records: &[ConfigurationRecord],
    ) -> (Config, Opening) {
        let geometry = Geometry::new(SEGMENT_BYTES_MIN).unwrap();
        let config = Config {
            me: MemberId(0),
            identity: Identity { incarnation: 1, opening: 1, nonce: 1 },
            founding: Configuration::founding([0, 1, 2].map(MemberId)),
            geometry,
            replicated_allowed,
            seed: 1,
            timing: Timing::default(),
            limits: Limits::default(),
        };
        let mut state = DurableState::genesis(geometry);
        (state.promised, state.history) = (epoch(1), history(&[(1, 4096)]));
        (state.mark, state.configurations) = (Persisted(Lsn(mark)), records.to_vec());
        (config, Opening { state, valid_tail: Lsn(valid_tail) })
    }

    /// The founding configuration, and the one after it, whose record ends at `end`.
    pub(in super::super) fn records(end: u64) -> [ConfigurationRecord; 2] {
        let founding = Configuration::founding([0, 1, 2].map(MemberId));
        let configuration = founding.after(&Change::Remove { member: MemberId(2) }).unwrap();
        let next = ConfigurationRecord { start: Lsn(end - 96), end: Lsn(end), configuration };
        [ConfigurationRecord::founding(founding), next]
    }

    fn known(core: &Core) -> Vec<u64> {
        core.known_configurations().iter().map(|record| record.configuration.number()).collect()
    }

    fn mark(core: &Core) -> u64 {
        core.state.mark.0.0
    }

    #[test]
    fn damage_cuts_the_log_where_it_begins_first_r18() {
        let mut core = core(false);
        core.found_damage(Lsn(5000));
        core.set_tail(Lsn(6000));
        assert_eq!((core.log.tail, core.log.persisted), (Lsn(5000), Persisted(Lsn(5000))));
        core.found_damage(Lsn(5400));
        core.set_tail(Lsn(6000));
        assert_eq!(core.log.tail, Lsn(5000), "what lies behind damage counts for nothing");
        core.found_damage(Lsn(4500));
        core.set_tail(Lsn(4800));
        assert_eq!(core.log.tail, Lsn(4500));
        core.set_tail(Lsn(4400));
        assert_eq!(core.log.tail, Lsn(4400), "a cut before it");
        assert!(core.damaged() && mark(&core) == 6000);
    }

    #[test]
    fn where_only_what_is_persisted_counts_the_mark_ends_with_it_r18() {
        let mut core = core(false);
        core.log.tail = Lsn(7000);
        core.found_damage(Lsn(5000));
        core.saw_placed(Lsn(8000));
        assert_eq!(mark(&core), 6000);
        core.sealed_at(Lsn(7500));
        assert_eq!((mark(&core), core.log.tail), (6000, Lsn(5000)));
    }

    #[test]
    fn where_placed_counts_the_mark_is_known_once_what_was_placed_is_seen_r18() {
        let mut core = core(true);
        core.log.tail = Lsn(7000);
        core.found_damage(Lsn(5000));
        core.set_tail(Lsn(7000));
        assert_eq!(mark(&core), 7000, "what this member has parsed it may have vouched for");
        let behind = |core: &Core| core.mark_behind(&history(&[(1, 4096)]), Lsn(9000), Lsn(4096), Lsn(4096));
        assert_eq!(behind(&core), DurableState::MARK_UNKNOWN);
        core.saw_placed(Lsn(8000));
        assert_eq!((mark(&core), behind(&core)), (8000, Persisted(Lsn(8000))));
        // Seen once: what a later scan meets was placed, and noted, by somebody else.
        core.saw_placed(Lsn(8500));
        assert_eq!(mark(&core), 8000);
        core.found_damage(Lsn(4800));
        core.saw_placed(Lsn(7500));
        assert_eq!(mark(&core), 8000, "a mark goes down by adoption alone");
    }

    #[test]
    fn a_primary_counts_for_what_it_has_appended_r18() {
        let mut core = core(true);
        core.found_damage(Lsn(5000));
        core.sealed_at(Lsn(7000));
        assert_eq!((mark(&core), core.log.tail), (7000, Lsn(5000)));
        core.sealed_at(Lsn(6500));
        assert_eq!(mark(&core), 7000);
        core.saw_placed(Lsn(6000));
        core.sealed_at(Lsn(7500));
        assert_eq!(mark(&core), 7000, "what is seen is seen");
    }

    #[test]
    fn a_lost_mark_is_unknown_until_all_is_had_again_r18() {
        let mut core = core(true);
        core.lose_mark();
        assert!(core.damaged() && core.state.mark == DurableState::MARK_UNKNOWN);
        let behind = core.mark_behind(&history(&[(1, 4096)]), Lsn(9000), Lsn(4096), Lsn(5000));
        assert_eq!(behind, DurableState::MARK_UNKNOWN);
        core.caught_up();
        assert!(!core.damaged() && mark(&core) == 6000);
    }

    #[test]
    fn what_a_damaged_member_may_have_acknowledged_ends_where_the_logs_part_r18() {
        let mut core = core(false);
        core.found_damage(Lsn(5000));
        core.set_tail(Lsn(6000));
        let behind = |other: &[(u64, u64)], trimmed, at| {
            core.mark_behind(&history(other), Lsn(9000), Lsn(trimmed), Lsn(at)).0.0
        };
        assert_eq!(behind(&[(1, 4096)], 4096, 5000), 6000, "all of it is in the other log");
        assert_eq!(behind(&[(1, 4096), (2, 5400)], 4096, 5000), 5400, "what lies behind was never committed");
        assert_eq!(behind(&[(1, 4096), (2, 5400)], 4096, 5800), 5800, "what is held is held");
        // Released below 5600 there, and already another epoch's at its end.
        assert_eq!(behind(&[(2, 4096)], 5600, 5000), 5600);
        assert_eq!(behind(&[(1, 4096), (2, 5600)], 5600, 5000), 5600);
    }

    #[test]
    fn a_sound_member_lacks_nothing_behind_a_checkpoint_r18() {
        let core = core(false);
        let behind = core.mark_behind(&history(&[(1, 4096)]), Lsn(9000), Lsn(4096), Lsn(8000));
        assert_eq!(behind, Persisted(Lsn(8000)));
    }

    #[test]
    fn places_behind_damage_are_kept_in_order_once_each_and_the_nearest_of_many() {
        let mut core = core(false);
        core.whole_behind(Lsn(6000));
        assert!(core.whole_behind.is_empty(), "not behind the end of the log");
        core.found_damage(Lsn(5000));
        for from in [7000, 5000, 6500, 7000, 5040] {
            core.whole_behind(Lsn(from));
        }
        assert_eq!(core.whole_behind, [5040, 6500, 7000].map(Lsn));
        for from in (8000..).step_by(8).take(100) {
            core.whole_behind(Lsn(from));
        }
        assert_eq!(core.whole_behind.len(), WHOLE_BEHIND_MAX);
        assert_eq!(core.whole_behind.back(), Some(&Lsn(8000 + 8 * 60)));
        core.log.tail = Lsn(5000);
        core.whole_behind(Lsn(5008));
        assert_eq!(core.whole_behind.front(), Some(&Lsn(5008)));
    }

    #[test]
    fn a_place_behind_damage_is_reached_with_its_first_byte_and_then_forgotten() {
        let mut core = core(false);
        core.found_damage(Lsn(5000));
        core.set_tail(Lsn(6000));
        core.whole_behind(Lsn(5400));
        core.whole_behind(Lsn(5800));
        let most = |core: &Core| core.whole_behind_most(Lsn(7000));
        assert_eq!(most(&core), None);
        core.log.tail = Lsn(5392);
        assert_eq!(most(&core), None);
        core.log.tail = Lsn(5400);
        assert_eq!(most(&core), Some(400), "up to the next place");
        assert_eq!(core.whole_behind_most(Lsn(5480)), Some(80), "no more than the primary has");
        core.pass_whole();
        assert_eq!(core.whole_behind, [Lsn(5800)]);
        assert_eq!(most(&core), None);
        core.log.tail = Lsn(5808);
        assert_eq!(most(&core), Some(1192));
        core.log.tail = Lsn(7008);
        assert_eq!(most(&core), Some(0));
        core.pass_whole();
        assert!(core.whole_behind.is_empty());
    }
    #[test]
    fn a_configuration_that_damage_took_is_known_until_its_place_is_had_again_r20() {
        let mut core = opened(false, 4500, 6000, &records(5096));
        assert_eq!(known(&core), [0, 1]);
        assert_eq!(core.newest().configuration.number(), 0, "it counts for nothing here");
        core.log.tail = Lsn(5088);
        assert_eq!(known(&core), [0, 1]);
        // There are other bytes in its place.
        core.log.tail = Lsn(5096);
        assert_eq!(known(&core), [0]);
        core.log.tail = Lsn(5048);
        core.log.persisted = Persisted(Lsn(6000));
        assert_eq!(known(&core), [0], "nothing is missed any more");
    }

    #[test]
    fn a_configuration_of_a_torn_end_is_not_known_any_more_r20() {
        let mut core = opened(false, 4500, 4500, &records(5096));
        core.found_damage(Lsn(4200));
        core.set_tail(Lsn(4200));
        assert!(core.damaged());
        assert_eq!(known(&core), [0]);
    }

    #[test]
    fn what_damage_took_of_the_configurations_is_kept_with_the_bytes_that_are_missed_r20() {
        let kept = |core: &mut Core, at, other: &[(u64, u64)], mark| {
            core.keep_lost_configuration(Lsn(at), &history(other), Persisted(Lsn(mark)));
            core.lost_configuration.as_ref().map(|record| record.end.0)
        };
        let same = &[(1, 4096)];
        // Of the log itself, which is cut before it.
        let whole = || opened(false, 6000, 6000, &records(5096));
        assert_eq!(kept(&mut whole(), 5088, same, 6000), Some(5096));
        assert_eq!(kept(&mut whole(), 5096, same, 6000), None, "it is not behind");
        assert_eq!(kept(&mut whole(), 4500, same, 4500), None, "nothing is missed");
        assert_eq!(kept(&mut whole(), 4500, &[(1, 4096), (2, 5000)], 6000), None, "another epoch's place");
        // Taken by damage before.
        let lost = || opened(false, 4500, 6000, &records(5096));
        assert_eq!(kept(&mut lost(), 4500, same, 6000), Some(5096));
        assert_eq!(kept(&mut lost(), 5088, same, 6000), Some(5096));
        assert_eq!(kept(&mut lost(), 5096, same, 6000), None, "its place is here again");
        assert_eq!(kept(&mut lost(), 4500, same, 4500), None);
        assert_eq!(
            opened(false, 5096, 6000, &records(5096)).lost_configuration,
            None,
            "whole at the opening"
        );
        // One that ends just where the log goes on hides none that is lost behind it.
        let mut both = lost();
        both.state.configurations[0].end = Lsn(4500);
        assert_eq!(kept(&mut both, 4500, same, 6000), Some(5096));
    }

    #[test]
    fn published_watermarks_run_ahead_of_the_tail_only_where_damage_took_what_was_committed() {
        let mut core = core(false);
        core.learn(Lsn(6000), Lsn(6000));
        core.found_damage(Lsn(5000));
        core.set_tail(Lsn(6000));
        core.set_tail(Lsn(6000));
        core.learn(Lsn(6000), Lsn(6000));
        assert_eq!((core.durable, core.log.tail), (Lsn(6000), Lsn(5000)));
    }

    #[test]
    #[should_panic(expected = "I-1: replicated beyond tail")]
    fn a_watermark_beyond_the_tail_is_the_end_where_nothing_was_lost() {
        let mut core = core(false);
        core.learn(Lsn(6000), Lsn(6000));
        core.set_tail(Lsn(6000));
        core.replicated = Lsn(6040);
        core.check();
    }

    #[test]
    fn stalls_are_told_in_order_and_the_newest_of_many() {
        let mut core = core(false);
        let mut stall = |waited_ns| {
            core.stalled(Stall { peer: MemberId(1), cause: StallCause::Credits, waited_ns });
            core.stalls.iter().map(|stall| stall.waited_ns).collect::<Vec<_>>()
        };
        assert_eq!(stall(1), [1]);
        assert_eq!(stall(2), [1, 2]);
        let most = u64::try_from(STALLS_MAX).unwrap();
        let told = (3..=most + 2).map(&mut stall).last().unwrap();
        assert_eq!(told, (3..=most + 2).collect::<Vec<_>>());
    }
    #[test]
    fn an_adopted_history_keeps_what_the_own_log_has_from_before_it() {
        let merged = |own: &[(u64, u64)], other: &[(u64, u64)], trimmed| {
            merge(&history(own), &history(other), Lsn(trimmed)).ok()
        };
        let whole = [(1, 4096), (2, 5000), (3, 6000)];
        assert_eq!(merged(&whole[..2], &whole[1..], 4096), Some(history(&whole)));
        assert_eq!(merged(&whole[..1], &whole[1..], 4096), Some(history(&whole)));
        // A tenure that left no record there gives way.
        assert_eq!(merged(&[(1, 5000)], &[(2, 5000)], 4096), Some(history(&[(2, 5000)])));
        let newer = [(1, 4096), (2, 5000), (4, 6000)];
        assert_eq!(merged(&[(1, 4096), (3, 5000)], &newer[1..], 4096), Some(history(&newer)));
        assert_eq!(merged(&[(1, 4096), (3, 4500)], &[(2, 5000)], 4096), None, "epochs go up");
        assert_eq!(merged(&whole[..2], &whole[1..], 5500), Some(history(&whole[1..])));
    }
    #[test]
    fn what_a_primary_saw_acknowledged_is_forgotten_where_the_log_has_other_bytes_r18() {
        let mut core = core(false);
        for (member, lsn) in [(1, 5000), (2, 5200)] {
            core.witnessed.insert(MemberId(member), Mark { epoch: epoch(1), lsn: Lsn(lsn) });
        }
        core.state.promised = epoch(2);
        core.adopt(Lsn(5000), history(&[(1, 4096), (2, 5000)]), Persisted(Lsn(5000)), &[]);
        assert_eq!(core.witnessed.keys().collect::<Vec<_>>(), [&MemberId(1)]);
    }
    #[test]
    fn a_committed_configuration_whose_place_another_epoch_has_counts_from_there_r20() {
        let placed = |at, other: &[(u64, u64)]| {
            let mut core = core(false);
            core.state.configurations = records(5096)[1..].to_vec();
            core.place_committed_configuration(Lsn(at), &history(other));
            (core.state.configurations[0].start.0, core.state.configurations[0].end.0)
        };
        assert_eq!(placed(5040, &[(1, 4096), (2, 5040)]), (5040, 5040));
        assert_eq!(
            placed(4500, &[(1, 4096), (2, 5040)]),
            (5040, 5040),
            "damaged below: not where it goes on"
        );
        assert_eq!(placed(5040, &[(1, 4096)]), (5000, 5096), "it comes again with the log");
        assert_eq!(placed(5200, &[(1, 4096), (2, 5200)]), (5000, 5096), "it is here");
    }

    /// Seed 7103421, and what would have become of its member as a candidate.
    #[test]
    fn a_configuration_whose_place_a_word_gave_up_comes_with_the_log_that_it_counts_in_r20() {
        let [founding, next] = records(5096);
        let placed = |at| ConfigurationRecord { start: Lsn(at), end: Lsn(at), ..next.clone() };
        let taken = |own: &[ConfigurationRecord], other: &[ConfigurationRecord]| {
            let mut core = opened(false, 6000, 6000, own);
            core.state.promised = epoch(2);
            core.adopt(Lsn(4500), history(&[(1, 4096), (2, 5000)]), Persisted(Lsn(5000)), other);
            let newest = core.newest().configuration.number();
            (newest, core.state.configurations.iter().map(|record| record.end.0).collect::<Vec<_>>())
        };
        assert_eq!(
            taken(&[], &[placed(5000)]),
            (1, [5000].to_vec()),
            "it counts before the log has come so far"
        );
        assert_eq!(taken(&[], &[founding]), (0, [0].to_vec()));
        assert_eq!(taken(&[], core::slice::from_ref(&next)), (0, [0].to_vec()), "it comes with the log");
        assert_eq!(
            taken(core::slice::from_ref(&next), &[placed(5000)]),
            (1, [5000].to_vec()),
            "who knew it has it there, too"
        );
    }

    #[test]
    fn a_configuration_without_a_record_takes_the_place_of_older_ones_alone_r20() {
        let [founding, first] = records(5096);
        let after = |record: &ConfigurationRecord, change: Change, end| ConfigurationRecord {
            start: Lsn(end - 96),
            end: Lsn(end),
            configuration: record.configuration.after(&change).unwrap(),
        };
        let second = after(&first, Change::Add { member: MemberId(3), address: None }, 5296);
        let third = after(&second, Change::Remove { member: MemberId(3) }, 5496);
        let taken = |own: &[&ConfigurationRecord], of: &ConfigurationRecord, at| {
            let mut core = core(false);
            core.state.configurations = own.iter().map(|record| (*record).clone()).collect();
            core.take_placed_configuration(&[ConfigurationRecord {
                start: Lsn(at),
                end: Lsn(at),
                ..of.clone()
            }]);
            let records = core.state.configurations.iter();
            records.map(|record| (record.configuration.number(), record.end.0)).collect::<Vec<_>>()
        };
        assert_eq!(taken(&[&founding, &first, &third], &second, 5096), [(2, 5096), (3, 5496)]);
        assert_eq!(taken(&[&founding, &first], &second, 5200), [(2, 5200)]);
        assert_eq!(taken(&[&second], &second, 5200), [(2, 5296)], "who knows it has it where its log says");
        assert_eq!(taken(&[&second], &first, 5200), [(2, 5296)], "nor an older one");
    }

    #[test]
    fn what_is_given_up_takes_no_committed_configuration_with_it_r20() {
        let given_up = |valid_tail| {
            let mut core = core(false);
            core.state.configurations = records(5096)[1..].to_vec();
            (core.log.tail, core.log.persisted) = (Lsn(valid_tail), Persisted(Lsn(valid_tail)));
            core.durable_known = Lsn(6000);
            let had_lost = core.give_up_lost();
            assert_eq!(
                (core.durable_known, mark(&core), core.damaged()),
                (Lsn(valid_tail), valid_tail, false)
            );
            (had_lost, core.state.configurations[0].start.0, core.state.configurations[0].end.0)
        };
        assert_eq!(given_up(4500), (true, 4500, 4500));
        assert_eq!(given_up(5096), (true, 5000, 5096));
        assert_eq!(given_up(6000), (false, 5000, 5096));
        // One that lacks nothing, and had heard of it before its torn end was lost.
        let mut core = opened(false, 4500, 4500, &[]);
        core.state.configurations = records(5096)[1..].to_vec();
        assert!(!core.give_up_lost());
        assert_eq!(core.state.configurations[0].end, Lsn(4500));
    }
}
