//! An operator by hand: hands the tenure over to whom it chooses, promotes across a cut, over a primary that stands still and a member that is alone, and gives its
//! word to lead with what is left (DESIGN.md section 8.5): where that is called for, once more was lost than the group survives, and where it is not.
//!
//! It draws from a generator of its own.

mod exceeded;

use std::collections::BTreeMap;

use windlass::engine::{Input, LossError, Role, Undecided};
use windlass::{Epoch, Lsn, MemberId};
use windlass_store::Read;

use super::member::SimDriver;
use super::readers::Application;
use super::step::content;
use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::MS;
use crate::oracle::word_answers::Stood;
use crate::oracle::words::Left;
use crate::oracle::{alone, word_answers};
use crate::random::Random;

/// Who is slow, stands still, or is cut off may have missed its primary's beats for so long afterwards.
const UNDISTURBED: u64 = 400 * MS;

/// How good a log is: the epoch of its last record, and its end.
type Rank = (Epoch, Lsn);

/// What an operator has done by hand, and waits for.
#[derive(Debug)]
pub(super) struct Hands {
    random: Random,
    deed: Option<Deed>,
    /// Who was asked to take a word, as it stood then.
    asked: BTreeMap<usize, (u64, Asked)>,
    words: BTreeMap<usize, Word>,
    /// The member that a word was refused for, since it can't take one before it is restarted; the one that a word is to be given to instead.
    refused: Option<usize>,
    named: Option<usize>,
    /// A voter of a configuration whose record was lost has not answered; at the end it may never do so.
    missing: Option<usize>,
    is_missing_gone: bool,
    is_missing_back: bool,
    /// The highest epoch of a tenure behind a word.
    led: Epoch,
    /// Away while a word is given at the end.
    away: Vec<usize>,
    /// When everything got through again.
    mended_at: u64,
}

/// A word that a member has taken, in this life.
#[derive(Debug)]
struct Word {
    life: u64,
    memory_only: bool,
    /// Its member has found more damage since, which may have ended it: nothing tells.
    is_doubtful: bool,
    /// The logs of those who have promised it an epoch since, as each was then.
    promised: BTreeMap<(Epoch, usize), Rank>,
}

/// How a member stood when it was asked to take a word.
#[derive(Clone, Copy, Debug)]
struct Asked {
    memory_only: bool,
    before: Stood,
    /// Nobody has led it, as its superblock says.
    is_empty: bool,
}

#[derive(Clone, Copy, Debug)]
struct Deed {
    kind: Kind,
    at: usize,
    before: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    HandedOver,
    AcrossCut,
    OverFrozen,
    Alone,
    WordAlone,
}

impl Hands {
    pub(super) fn of(seed: u64) -> Hands {
        Hands {
            random: Random::new(seed ^ 0x0062_795f_6861_6e64),
            deed: None,
            asked: BTreeMap::new(),
            words: BTreeMap::new(),
            refused: None,
            named: None,
            missing: None,
            is_missing_gone: false,
            is_missing_back: false,
            led: Epoch::NONE,
            away: Vec::new(),
            mended_at: 0,
        }
    }
}

impl World {
    /// One deed.
    pub(super) fn by_hand(&mut self) {
        let Some(hands) = self.setting.hands.filter(|_| self.is_faulty) else { return };
        let after = self.hands.random.range(hands.deed_ns / 4, hands.deed_ns * 7 / 4);
        self.plan(after, What::ByHand);
        self.judge_alone();
        self.hands.deed = None;
        if !self.cut.is_empty() && self.hands.random.percent(40) {
            return self.mend();
        }
        let Some(before) = self.leaders().first().copied() else { return };
        let Some(at) = self.chosen_voter(before) else { return };
        self.events += 1;
        if hands.in_changes && self.word_in_a_change(before, at) {
            return;
        }
        match self.hands.random.range(0, if hands.gives_words { 12 } else { 8 }) {
            0..=2 => {
                self.say(format_args!("operator hands over from m{before} to m{at}"));
                self.hands.deed = Some(Deed { kind: Kind::HandedOver, at, before });
                self.ask(before, Input::Handover { to: MemberId(self.members[at].id) });
            }
            3 | 4 => {
                self.isolate(before);
                self.promote_by_hand(Deed { kind: Kind::AcrossCut, at, before });
            }
            5 | 6 => {
                let pause = self.hands.random.range(50 * MS, 300 * MS);
                let member = &mut self.members[before];
                member.paused_until = member.paused_until.max(self.now + pause);
                self.mark(Mark::Paused);
                self.say(format_args!("m{before} stands still for {} ms", pause / MS));
                self.promote_by_hand(Deed { kind: Kind::OverFrozen, at, before });
            }
            7 => {
                self.isolate(at);
                if self.members[at].status().is_some_and(|status| status.role == Role::Backup) {
                    self.promote_by_hand(Deed { kind: Kind::Alone, at, before });
                }
            }
            8 => self.give_word(at),
            9 => self.give_word(before),
            _ => {
                self.isolate(at);
                let life = self.members[at].life;
                let after = self.hands.random.range(0, 250 * MS);
                self.plan(after, What::Word { member: at, life, is_alone: true });
            }
        }
    }

    /// What an operator does in a group that changes alone: it asks one for its word that has no vote, or has the group change, cuts the primary off and gives its word
    /// elsewhere. Whether it did.
    fn word_in_a_change(&mut self, before: usize, at: usize) -> bool {
        match self.hands.random.range(0, 4) {
            0 => {
                let is_stranger = |at: &usize| self.votes(*at) == Some(false);
                let strangers: Vec<usize> = self.running().into_iter().filter(is_stranger).collect();
                if strangers.is_empty() {
                    return false;
                }
                let stranger = strangers[self.hands.random.index(strangers.len())];
                self.give_word(stranger);
                true
            }
            1 => {
                if self.change_some() != Some(before) {
                    return false;
                }
                let after = self.hands.random.range(0, 2 * MS);
                let life = self.members[at].life;
                self.plan(after, What::Isolate { member: before });
                let after = self.hands.random.range(60 * MS, 200 * MS);
                self.plan(after, What::Word { member: at, life, is_alone: false });
                true
            }
            _ => false,
        }
    }

    /// Whether a member votes, as far as it says; `None` where that can't be told from outside.
    fn votes(&self, at: usize) -> Option<bool> {
        let member = &self.members[at];
        let (newest, is_committed) = member.driver.as_ref()?.configuration();
        let votes = newest.is_voter(MemberId(member.id));
        match member.has_left {
            // It may have come back since, or not know yet.
            true => (!votes && is_committed).then_some(false),
            // Where it is open the one before counts, too.
            false => (votes || is_committed).then_some(votes),
        }
    }

    pub(super) fn isolate_later(&mut self, at: usize) {
        if self.is_faulty {
            self.isolate(at);
        }
    }

    fn promote_by_hand(&mut self, deed: Deed) {
        self.say(format_args!("operator promotes m{}", deed.at));
        self.hands.deed = Some(deed);
        self.ask(deed.at, Input::Suspect);
    }

    /// A voter that runs, whose disk was never lost, other than this one.
    fn chosen_voter(&mut self, but: usize) -> Option<usize> {
        let voters = self.whole_voters().into_iter();
        let voters: Vec<usize> =
            voters.filter(|at| *at != but && self.members[*at].driver.is_some()).collect();
        (!voters.is_empty()).then(|| voters[self.hands.random.index(voters.len())])
    }

    /// A member is cut off from all others, both ways.
    fn isolate(&mut self, at: usize) {
        let id = self.members[at].id;
        for other in (0..self.setting.all()).filter(|other| *other != id) {
            self.cut(id, other);
            self.cut(other, id);
        }
        self.mark(Mark::Cut);
        self.say(format_args!("m{at} is cut off from all by hand"));
    }

    fn is_isolated(&self, at: usize) -> bool {
        let id = self.members[at].id;
        let mut others = (0..self.setting.all()).filter(|other| *other != id);
        others.all(|other| self.cut.contains(&(id, other)) && self.cut.contains(&(other, id)))
    }

    /// Everything gets through again: who was alone may lead from here on.
    pub(super) fn is_mended(&mut self) {
        if !self.cut.is_empty() {
            self.hands.mended_at = self.now;
        }
        self.judge_alone();
        if self.hands.deed.is_some_and(|deed| matches!(deed.kind, Kind::Alone | Kind::WordAlone)) {
            self.hands.deed = None;
        }
    }

    /// A member that was told to lead and is cut off from all others has not got to.
    fn judge_alone(&mut self) {
        let Some(deed) = self.hands.deed.filter(|deed| self.is_isolated(deed.at)) else { return };
        match deed.kind {
            Kind::Alone => self.mark(Mark::PromotedAlone),
            Kind::WordAlone => self.mark(Mark::WordAlone),
            Kind::HandedOver | Kind::AcrossCut | Kind::OverFrozen => {}
        }
    }

    /// A tenure begins: what the operator has done for it, and by which word.
    pub(super) fn led_by_hand(&mut self, at: usize, epoch: Epoch) {
        if let Some(deed) = self.hands.deed {
            let is_it = deed.at == at;
            let mark = match deed.kind {
                Kind::HandedOver if is_it => Some(Mark::HandedToChosen),
                Kind::AcrossCut if is_it && self.is_isolated(deed.before) => Some(Mark::PromotedAcrossCut),
                Kind::OverFrozen if is_it && self.members[deed.before].paused_until > self.now => {
                    Some(Mark::PromotedOverFrozen)
                }
                Kind::Alone | Kind::WordAlone if is_it => {
                    self.check(alone::leads(at, self.is_isolated(at), self.takeover_quorum_of(at)));
                    None
                }
                Kind::HandedOver | Kind::AcrossCut | Kind::OverFrozen | Kind::Alone | Kind::WordAlone => None,
            };
            if let Some(mark) = mark {
                self.mark(mark);
            }
            if !matches!(deed.kind, Kind::Alone | Kind::WordAlone) {
                self.hands.deed = None;
            }
        }
        if let Some(word) = self.hands.words.remove(&at)
            && word.life == self.members[at].life
        {
            self.carried_out(at, epoch, &word);
        }
    }

    // ---- words

    /// An operator gives its word at a member that was cut off from all others for a while, or wherever it stands.
    pub(super) fn word_later(&mut self, at: usize, life: u64, is_alone: bool) {
        if !self.is_faulty || self.members[at].life != life || is_alone && !self.is_isolated(at) {
            return;
        }
        if is_alone {
            self.hands.deed = Some(Deed { kind: Kind::WordAlone, at, before: at });
        }
        self.give_word(at);
    }

    /// How many must promise an epoch to a member, by its own newest configuration.
    fn takeover_quorum_of(&self, at: usize) -> usize {
        let driver = self.members[at].driver.as_ref();
        driver.map_or(usize::MAX, |driver| driver.configuration().0.takeover_quorum())
    }

    fn give_word(&mut self, at: usize) {
        self.give_word_for(at, false);
    }

    fn give_word_for(&mut self, at: usize, memory_only: bool) {
        let member = &self.members[at];
        let Some(status) = member.status() else { return };
        if self.hands.asked.get(&at).is_some_and(|(life, _)| *life == member.life) {
            // It has not answered yet.
            return;
        }
        let before = Stood { status, votes: self.votes(at) };
        let asked = Asked { memory_only, before, is_empty: self.is_of_no_epoch(at) };
        self.hands.asked.insert(at, (member.life, asked));
        let (kind, input) = match memory_only {
            true => (" for lost memory", Input::AcceptMemoryLoss),
            false => ("", Input::AcceptLoss),
        };
        self.say(format_args!("operator gives its word{kind} at m{at}"));
        self.ask(at, input);
    }

    /// A member has stopped: an operator who does not know it asks.
    pub(super) fn word_at_stopped(&mut self, at: usize) {
        if self.setting.hands.is_some_and(|hands| hands.gives_words) {
            self.give_word(at);
        }
    }

    /// A member answers a word, taken with whether it is for lost memory: refused as section 8.5 says, and only so.
    pub(super) fn word_answered(&mut self, at: usize, answer: Result<bool, LossError>) {
        let asked = self.hands.asked.remove(&at).filter(|(life, asked)| {
            *life == self.members[at].life && answer.unwrap_or(asked.memory_only) == asked.memory_only
        });
        let (Some((life, asked)), Some(status)) = (asked, self.members[at].status()) else {
            return self.check(word_answers::unasked(at, answer));
        };
        let Asked { memory_only, before, is_empty } = asked;
        let holds_all = self.hands.words.get(&at).is_some_and(|word| word.life == life && !word.memory_only);
        let now = Stood { status, votes: self.votes(at) };
        let hears_primary = self.hears_primary(at);
        let told = word_answers::Asked { at, memory_only, before, now, is_empty, hears_primary, holds_all };
        let checked = word_answers::answered(&told, answer);
        match answer {
            Ok(_) => self.say(format_args!("m{at} takes the word")),
            Err(reason) => self.say(format_args!("m{at} refuses the word: {reason}")),
        }
        if checked.is_err() {
            return self.check(checked);
        }
        match answer {
            Ok(_) => {
                if self.is_open(at) {
                    self.mark(Mark::WordWhileOpen);
                }
                if !(memory_only && holds_all) {
                    let word = Word { life, memory_only, is_doubtful: false, promised: BTreeMap::new() };
                    self.hands.words.insert(at, word);
                }
            }
            Err(LossError::Led) => self.mark(Mark::WordRefusedLed),
            Err(LossError::Damaged { .. }) => self.mark(Mark::MemoryWordRefusedDamaged),
            Err(LossError::Published) => {
                self.mark(Mark::WordRefusedShown);
                self.hands.refused = Some(at);
            }
            Err(LossError::Stopped) => self.mark(Mark::WordRefusedStopped),
            Err(LossError::NoVoter) => self.mark(Mark::WordRefusedNoVoter),
            Err(LossError::Empty { .. }) => self.mark(Mark::WordRefusedEmpty),
        }
    }

    /// Whether nobody has ever led a member, as its superblock says.
    fn is_of_no_epoch(&self, at: usize) -> bool {
        let driver = self.members[at].driver.as_ref();
        driver.is_some_and(|driver| driver.store().superblock().history.entries().is_empty())
    }

    /// Whether a member's newest configuration is not known to it to be committed.
    fn is_open(&self, at: usize) -> bool {
        self.members[at].driver.as_ref().is_some_and(|driver| !driver.configuration().1)
    }

    /// Whether a member follows one that leads, and nothing has kept it from hearing that for long.
    fn hears_primary(&self, at: usize) -> bool {
        let primary = self.members[at].status().and_then(|status| status.primary);
        let Some(leader) =
            primary.map(|id| usize::from(id.0)).filter(|leader| self.leaders().contains(leader))
        else {
            return false;
        };
        let is_sound = |at: usize| {
            let member = &self.members[at];
            let is_slow = member.slowness > 1 || member.disk_slowness > 1 || member.has_leaked;
            !is_slow && member.paused_until + UNDISTURBED < self.now
        };
        // A voter takes no word of one that has left.
        let driver = self.members[at].driver.as_ref();
        let is_voter =
            |driver: &SimDriver| driver.configuration().0.is_voter(MemberId(self.members[leader].id));
        let is_heard = driver.is_some_and(is_voter);
        let of_one_epoch = [at, leader].map(|at| self.members[at].status().map(|status| status.promised));
        let is_calm = self.cut.is_empty() && self.hands.mended_at + UNDISTURBED < self.now;
        is_calm && is_heard && is_sound(at) && is_sound(leader) && of_one_epoch[0] == of_one_epoch[1]
    }

    /// A member has found damage: where that is more than it was told when it took a word, the word has ended.
    pub(super) fn word_in_doubt(&mut self, at: usize) {
        if let Some(word) = self.hands.words.get_mut(&at).filter(|word| !word.memory_only) {
            word.is_doubtful = true;
        }
    }

    /// A candidate can't choose: a word may have lapsed, and belong to another member.
    pub(super) fn word_undecided(&mut self, at: usize, reason: &Undecided) {
        match *reason {
            Undecided::Released { member, .. } | Undecided::NoVote { member, .. } => {
                self.hands.words.remove(&at);
                self.hands.named = Some(usize::from(member.0));
            }
            Undecided::ConfigurationLost { missing, .. } => {
                self.mark(Mark::WordConfigurationLost);
                self.hands.missing = Some(usize::from(missing.0));
            }
            Undecided::TooFewVotes { .. }
            | Undecided::MemoryLost
            | Undecided::MarkNotReached { .. }
            | Undecided::DurableNotReached { .. }
            | Undecided::Lost { .. }
            | Undecided::Damaged { .. }
            | Undecided::TooFewPromises { .. }
            | Undecided::OtherConfiguration { .. }
            | Undecided::HistoryFull => {}
        }
        let may_vote = |number, missing| self.may_vote_in(number, missing);
        let has_word = self.hands.words.contains_key(&at);
        self.check(word_answers::undecided(at, reason, has_word, &may_vote));
    }

    /// A member follows: a word that it has taken holds no more.
    pub(super) fn word_lapses(&mut self, at: usize) {
        if self.hands.words.remove(&at).is_some_and(|word| word.life == self.members[at].life) {
            self.mark(Mark::WordLapsed);
            self.say(format_args!("m{at} follows, its word has lapsed"));
        }
    }

    /// A member promises an epoch to one that may have taken a word.
    pub(super) fn promised_to(&mut self, at: usize, candidate: usize, epoch: Epoch) {
        let is_out = |word: &Word| word.life == self.members[candidate].life && !word.memory_only;
        if !self.hands.words.get(&candidate).is_some_and(is_out) {
            return;
        }
        let rank = self.log_before(at, epoch).and_then(|left| self.rank(at, &left));
        if let (Some(rank), Some(word)) = (rank, self.hands.words.get_mut(&candidate)) {
            word.promised.insert((epoch, at), rank);
        }
    }

    /// What a member's log has of the epochs before this one, as far as it reads.
    fn log_before(&self, at: usize, epoch: Epoch) -> Option<Left> {
        let driver = self.members[at].driver.as_ref()?;
        let (trimmed, tail) = (driver.store().trimmed(), driver.status().tail);
        let history = driver.store().superblock().history;
        let begun = history.entries().iter().find(|entry| entry.epoch == epoch).map(|entry| entry.start);
        let end = begun.unwrap_or(tail);
        let mut left = Left { trimmed, read_to: trimmed, end, history, records: BTreeMap::new() };
        let mut reader = driver.store().reader(trimmed);
        let mut failures = 0;
        while left.read_to < left.end {
            match reader.next(left.end) {
                Ok(Read::Record(record)) => {
                    left.read_to = record.end;
                    let found = content(record.end, &record.header, record.payload);
                    left.records.insert(record.header.lsn, found);
                }
                // A read that was made to fail, once.
                Err(windlass_store::ReadError::Disk(_)) if failures < 3 => failures += 1,
                Ok(Read::AtEnd { .. }) | Err(_) => break,
            }
        }
        Some(left)
    }

    /// How good a member's log is: by its last record; by its history where that has rotted, and the member does not know of it yet.
    fn rank(&self, at: usize, left: &Left) -> Option<Rank> {
        if left.read_to >= left.end
            && let Some(last) = left.records.values().next_back()
        {
            return Some((last.epoch, left.end));
        }
        let history = self.members[at].driver.as_ref()?.store().superblock().history;
        let last = history.entries().iter().rfind(|entry| entry.start < left.end);
        Some((last.map_or(Epoch::NONE, |entry| entry.epoch), left.end))
    }

    /// A member leads by a word: with the best log of a takeover quorum that has answered. What that lacks is not owed any more.
    fn carried_out(&mut self, at: usize, epoch: Epoch, word: &Word) {
        let Some(left) = self.log_before(at, epoch) else { return };
        let id = self.members[at].id;
        if !word.memory_only {
            let Some(own) = self.rank(at, &left) else { return };
            let Some(driver) = &self.members[at].driver else { return };
            let newest = driver.configuration().0;
            let votes = |member: usize| newest.is_voter(MemberId(self.members[member].id));
            let of_epoch = word.promised.iter().filter(|((of, member), _)| *of == epoch && votes(*member));
            // Its own promise it tells nobody where that is enough.
            let others = of_epoch.filter(|((_, member), _)| *member != at);
            let not_better = 1 + others.filter(|(_, rank)| **rank <= own).count();
            let quorum = newest.takeover_quorum();
            let told = format!("{own:?} of {:?}", word.promised);
            let checked = self.oracle.is_best(id, not_better, quorum, &told);
            self.check(checked);
        }
        let number = self.members[at].driver.as_ref().map(|driver| driver.configuration().0.number());
        if self
            .oracle
            .configuration_place()
            .is_some_and(|(start, of)| start >= left.end && Some(of) == number)
        {
            self.mark(Mark::WordConfigurationKept);
        }
        let given_up = self.oracle.give_up(id, epoch, &left, word.memory_only);
        let count = match given_up {
            Ok(count) => count,
            Err(violation) => return self.check(Err(violation)),
        };
        let (end, kind) = (left.end, if word.memory_only { " for lost memory" } else { "" });
        self.say(format_args!("m{at} leads by a word{kind} from {end} on, {count} records are given up"));
        let (led, lost) = if word.memory_only {
            (Mark::MemoryWordCarriedOut, Mark::MemoryWordGaveUp)
        } else {
            (Mark::WordCarriedOut, Mark::WordGaveUp)
        };
        self.mark(led);
        if self.is_open(at) {
            self.mark(Mark::WordLedOpen);
        }
        if count > 0 {
            self.mark(lost);
        }
        self.reads_again(at, end);
    }

    /// A tenure begins, by a word or behind one.
    pub(super) fn led_in_line(&mut self, at: usize, epoch: Epoch) {
        let life = self.members[at].life;
        let is_by_word = self.hands.words.get(&at).is_some_and(|word| word.life == life);
        if (is_by_word || self.oracle.has_given_up()) && epoch > self.hands.led {
            self.hands.led = epoch;
            self.led_behind_a_word(at);
        }
    }

    /// A member leads or follows: what it shows from here on is what a word has left.
    pub(super) fn heard_of_words(&mut self, at: usize, epoch: Epoch) {
        let id = self.members[at].id;
        if let Some(from) = self.oracle.hears_of_words(id, epoch) {
            self.reads_again(at, from);
        }
    }

    /// A member's application reads on where the log was left.
    fn reads_again(&mut self, at: usize, from: Lsn) {
        let member = &mut self.members[at];
        if member.published > from {
            // Also where nothing is new to it: what it shows, a word that others have not followed may have given up.
            (member.published, member.is_publish_due) = (from, true);
        }
        if member.read_to <= from {
            return;
        }
        let trimmed = member.driver.as_ref().map_or(from, |driver| driver.store().trimmed());
        // Below the trim point it has a checkpoint.
        member.read_to = from.max(trimmed);
        member.application =
            member.driver.as_ref().and_then(|driver| Application::at(driver, member.read_to));
        if trimmed > from {
            self.mark(Mark::WordReadFromTrim);
        }
    }

    // ---- at the end

    /// All disks are slow, until memory is lost.
    pub(crate) fn slow_disks(&mut self) {
        for at in self.joined_members() {
            self.members[at].disk_slowness = 150;
        }
    }

    /// Clients ask for more again.
    pub(crate) fn busy(&mut self) {
        self.is_busy = true;
        self.plan(MS, What::Append);
    }

    /// Whether nobody leads.
    pub(crate) fn is_without_primary(&self) -> bool {
        self.leaders().is_empty()
    }

    pub(crate) fn led_nobody(&mut self) {
        self.mark(Mark::WordWithoutQuorum);
    }

    /// Whether a member's log begins beyond that of who leads, in a line that was given up there; or nobody leads.
    pub(crate) fn is_released_beyond(&self) -> bool {
        let of = |at: &usize| self.members[*at].driver.as_ref().map(|driver| driver.store().superblock());
        let Some(led) = self.leaders().first().and_then(of) else { return true };
        self.whole_voters().iter().any(|at| match of(at) {
            Some(own) => {
                let below = Lsn(own.trimmed.0.saturating_sub(1));
                own.trimmed > led.trimmed && own.history.epoch_at(below) != led.history.epoch_at(below)
            }
            None => self.members[*at].provable.0 > led.trimmed,
        })
    }

    /// Whether a word holds at some member.
    pub(crate) fn has_word_out(&self) -> bool {
        self.hands.words.iter().any(|(at, word)| word.life == self.members[*at].life)
    }

    /// A member has stopped that has not heard of what a word has given up.
    pub(super) fn shows_more(&mut self, at: usize) {
        let id = self.members[at].id;
        if self.oracle.has_not_heard(id) {
            self.mark(Mark::ShownMoreStopped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    /// A word may have left a line that ends below what a member has trimmed since, as a primary that had not heard of the word had it do.
    #[test]
    fn an_application_whose_place_was_given_up_and_trimmed_reads_on_where_the_log_begins() {
        let mut world = World::new(1, Setting::of(1), false);
        world.run(world.now + 100 * MS);
        world.heal();
        let first = Lsn(4096);
        let trimmed = |world: &World| world.members[1].driver.as_ref().map(|driver| driver.store().trimmed());
        while trimmed(&world).is_none_or(|trimmed| trimmed <= first || trimmed >= world.members[1].read_to) {
            assert!(world.violation.is_none() && world.now < 20_000 * MS, "{:?}", world.violation);
            world.run(world.now + 10 * MS);
        }
        let (begins, read_to) = (trimmed(&world), world.members[1].read_to);
        world.reads_again(1, first);
        assert!(world.members[1].application.is_some(), "trimmed at {begins:?}, read up to {read_to}");
        assert_eq!(Some(world.members[1].read_to), begins);
        world.run(world.now + 100 * MS);
        assert!(world.violation.is_none() && world.members[1].read_to > read_to, "{:?}", world.violation);
    }
}
