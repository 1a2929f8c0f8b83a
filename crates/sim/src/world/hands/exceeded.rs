//! More is lost than the group survives: who is away, what rots at those who are left, and the word that an operator gives then (DESIGN.md section 8.5).

use windlass::Lsn;

use super::super::{What, World, strike};
use super::Word;
use crate::coverage::Mark;
use crate::fabric::MS;
use crate::setting::Excess;

impl World {
    /// Loses more than the group survives, of the kinds that are an operator's own. `false`: there is nothing to lose.
    pub(in crate::world) fn exceed_by_hand(&mut self, excess: Excess) -> bool {
        let mut whole = self.whole_voters();
        let first = self.hands.random.index(whole.len());
        whole.rotate_left(first);
        let away = whole.split_off(self.useful_quorum().min(whole.len()));
        if excess == Excess::MemoryLost && self.useful_quorum() >= self.voter_count() {
            // All of them answer, and what is left is what there is.
            return false;
        }
        if excess == Excess::RotOfMajority && !self.rot_some(&whole) {
            return false;
        }
        self.hands.away.clone_from(&away);
        self.hands.is_missing_gone = self.changes_before_loss() && self.hands.random.percent(45);
        let is_cut = excess == Excess::RotOfMajority && self.hands.random.percent(60);
        for at in away {
            if is_cut {
                self.isolate(at);
            } else {
                self.members[at].is_retired = true;
                self.die(at, true);
                self.say(format_args!("m{at} is away"));
            }
        }
        if excess == Excess::MemoryLost {
            for at in whole {
                self.die(at, false);
                self.plan(5 * MS, What::Open { member: at });
            }
            for at in self.joined_members() {
                self.recover(at);
            }
        }
        true
    }

    /// Each of these has rot where it is done with it, all in one place or each in its own.
    fn rot_some(&mut self, whole: &[usize]) -> bool {
        let is_one_place = self.hands.random.percent(50);
        let pick = self.hands.random.number();
        let bounds: Option<Vec<(u64, u64)>> = whole.iter().map(|at| self.members[*at].cold()).collect();
        let Some(bounds) = bounds else { return false };
        let common = bounds.iter().copied().reduce(|a, b| (a.0.max(b.0), a.1.min(b.1))).unwrap_or_default();
        let mut places = Vec::new();
        for bounds in bounds {
            let (from, to) = if is_one_place { common } else { bounds };
            let pick = if is_one_place { pick } else { self.hands.random.number() };
            let Some(offset) = pick.checked_rem(to.saturating_sub(from)) else { return false };
            let place = (from + offset) & !7;
            let Some((name, offset)) = strike::rottable_at(place) else { return false };
            places.push((name, offset, Lsn(place)));
        }
        for (at, (name, offset, place)) in whole.iter().zip(places) {
            self.members[*at].rot_at(&name, place, |disk| disk.rot(&name, offset, 0x40));
            self.mark(Mark::Rotted);
            self.say(format_args!("m{at}'s disk has rot at {place}"));
        }
        true
    }

    /// The operator looks: where nobody leads, it gives its word at one member, as that member's lines tell it to.
    pub(crate) fn goes_on_by_word(&mut self, excess: Excess) {
        if !self.leaders().is_empty() {
            return;
        }
        if let Some(at) = self.hands.refused.take() {
            // It has shown what it lost: restarted, it has not.
            self.die(at, true);
            self.hands.named = Some(at);
            return self.plan(MS, What::Open { member: at });
        }
        if excess == Excess::DisksEmptied && self.word_at_emptied() {
            return;
        }
        // One who has left since leads nothing with its word.
        let whole = self.whole_voters();
        let is_held = |at: &usize, word: &Word| {
            let is_of_use = !word.memory_only || excess == Excess::MemoryLost;
            word.life == self.members[*at].life && !word.is_doubtful && is_of_use && whole.contains(at)
        };
        if self.hands.words.iter().any(|(at, word)| is_held(at, word)) {
            return;
        }
        let runs = |at: &usize| self.members[*at].driver.is_some() && !self.hands.away.contains(at);
        let voters: Vec<usize> = whole.iter().copied().filter(runs).collect();
        let named = self.hands.named.filter(|named| voters.contains(named));
        if voters.is_empty() {
            return;
        }
        let drawn = voters[self.hands.random.index(voters.len())];
        let at = named.unwrap_or(drawn);
        self.events += 1;
        // A damaged one is asked for the wrong word, too, which it refuses.
        let is_damaged = self.members[at].status().is_some_and(|status| status.persisted < status.mark);
        let memory_only = match excess {
            Excess::MemoryLost => self.hands.random.percent(70),
            Excess::DisksEmptied | Excess::RotEverywhere | Excess::RotOfMajority => {
                is_damaged && self.hands.random.percent(25)
            }
        };
        self.give_word_for(at, memory_only);
    }

    /// One whose disk was emptied is asked to take a word of either kind, or none: with another such one it would begin a new group. Whether it was.
    fn word_at_emptied(&mut self) -> bool {
        let is_empty = |at: &usize| self.members[*at].is_emptied && self.is_of_no_epoch(*at);
        let emptied: Vec<usize> = self.running().into_iter().filter(is_empty).collect();
        if emptied.is_empty() || self.hands.random.percent(60) {
            return false;
        }
        let at = emptied[self.hands.random.index(emptied.len())];
        let memory_only = self.hands.random.percent(50);
        self.events += 1;
        self.give_word_for(at, memory_only);
        true
    }

    /// Whether the group changes once more before more is lost than it survives.
    pub(crate) fn changes_before_loss(&self) -> bool {
        self.setting.hands.is_some_and(|hands| hands.changes_before_loss)
    }

    /// An operator asks for a change, where that can be. Whether it did.
    pub(crate) fn change_by_hand(&mut self) -> bool {
        self.change_to_majorities().is_some()
    }

    /// Whether nobody learns, and every voter knows the newest configuration to be committed: one behind this number. In writing: the one before would count again
    /// after a restart, and may ask for more than there will be.
    pub(crate) fn has_changed(&mut self, since: u64) -> bool {
        self.refresh();
        let newest = self.newest_number();
        let is_sure = |at: &usize| self.members[*at].sure_of >= newest;
        newest > since && self.is_settled() && self.whole_voters().iter().all(is_sure)
    }

    /// A voter of a configuration whose record was lost is to answer: it comes back. Whether there is one that never does.
    pub(crate) fn waits_for_who_is_gone(&mut self) -> bool {
        let Some(missing) = self.hands.missing.filter(|_| self.leaders().is_empty()) else { return false };
        if self.hands.is_missing_gone && self.hands.away.contains(&missing)
            || self.members[missing].is_emptied
        {
            return true;
        }
        self.hands.missing = None;
        if self.hands.away.contains(&missing) {
            self.say(format_args!("m{missing}, which is missed, comes back"));
            self.hands.is_missing_back = true;
            self.mend();
            self.hands.away.retain(|at| *at != missing);
            self.members[missing].is_retired = false;
            self.plan(MS, What::Open { member: missing });
        }
        false
    }

    /// Somebody leads again.
    pub(crate) fn is_led_again(&mut self) {
        if std::mem::take(&mut self.hands.is_missing_back) {
            self.mark(Mark::WordConfigurationBack);
        }
    }

    /// Who is missing of a lost configuration is gone, and nobody leads.
    pub(crate) fn nobody_leads_without_who_is_gone(&mut self) {
        self.mark(Mark::WordConfigurationGone);
    }

    /// Who was away comes back.
    pub(crate) fn all_come_back(&mut self) {
        self.say(format_args!("who was away comes back"));
        self.mend();
        for at in std::mem::take(&mut self.hands.away) {
            self.members[at].is_retired = false;
            self.plan(MS, What::Open { member: at });
        }
    }
}
