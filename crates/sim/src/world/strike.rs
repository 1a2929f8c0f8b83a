//! The faults that the world strikes with, within what the durability levels promise.

use windlass::Lsn;
use windlass::engine::{Input, Role, Status, StopReason};
use windlass_store::disk::Errno;
use windlass_store::disk::testing::Call;

use super::member::sector_of;
use super::phase::Phase;
use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::{MS, US};
use crate::setting::{Excess, SEGMENT_BYTES, Strike};

impl World {
    /// One of the setting's faults, by weight.
    pub(super) fn strike(&mut self) {
        if !self.is_faulty {
            return;
        }
        let after = self.random.range(self.setting.fault_ns / 4, self.setting.fault_ns * 7 / 4);
        self.plan(after, What::Strike);
        let sum: u32 = self.setting.process.iter().map(|(_, weight)| weight).sum();
        if sum == 0 {
            return;
        }
        let mut drawn = self.random.range(0, u64::from(sum));
        let struck = self.setting.process.iter().find(|(_, weight)| {
            let is_it = drawn < u64::from(*weight);
            drawn = drawn.saturating_sub(u64::from(*weight));
            is_it
        });
        if let Some((strike, _)) = struck.copied() {
            self.events += 1;
            self.struck(strike);
        }
    }

    /// A member that runs; the primary if it is asked for and there is one.
    fn victim(&mut self, is_primary: bool) -> Option<usize> {
        let leaders = self.leaders();
        if is_primary && !leaders.is_empty() {
            return Some(leaders[self.random.index(leaders.len())]);
        }
        let running = self.running();
        if running.is_empty() { None } else { Some(running[self.random.index(running.len())]) }
    }

    fn struck(&mut self, strike: Strike) {
        let at = self.some_member();
        match strike {
            Strike::Kill | Strike::KillPrimary => {
                if let Some(at) = self.victim(strike == Strike::KillPrimary) {
                    self.die_for_a_while(at, true);
                }
            }
            Strike::KillInTakeover => {
                let phase = Phase::STRUCK[self.random.index(Phase::STRUCK.len())];
                self.armed = Some((phase, self.random.percent(50)));
                // Some takeover that it can strike in.
                match self.leaders().first().copied() {
                    Some(leader) if phase == Phase::Sealing => {
                        let to = self.other(leader);
                        self.ask(leader, Input::Handover { to });
                    }
                    Some(_) if self.random.percent(50) => self.ask(at, Input::Suspect),
                    Some(_) | None => {}
                }
            }
            Strike::Rot => self.rot(at),
            Strike::RotWhileDown => {
                self.die_for_a_while(at, true);
                self.rot(at);
            }
            Strike::Stop => self.stop(at),
            Strike::Drift => {
                let most = i64::try_from(self.setting.drift_millionths.max(20_000)).unwrap_or(0);
                let drawn = self.random.range(0, 2 * u64::try_from(most).unwrap_or(0) + 1);
                let rate = i64::try_from(drawn).unwrap_or(0) - most;
                self.members[at].set_rate(self.now, rate);
                self.mark(Mark::Drifted);
            }
            Strike::PowerLoss => {
                if let Some(at) = self.victim(false)
                    && self.may_lose_memory(at)
                {
                    self.die_for_a_while(at, false);
                }
            }
            Strike::PowerLossEverywhere => {
                if !self.setting.replicated_allowed {
                    self.mark(Mark::PowerLostEverywhere);
                    for at in self.running() {
                        self.die_for_a_while(at, false);
                    }
                }
            }
            Strike::Pause | Strike::PausePrimary => {
                if let Some(at) = self.victim(strike == Strike::PausePrimary) {
                    let longest = if strike == Strike::Pause { 100 * MS } else { 400 * MS };
                    let pause = self.random.range(2 * MS, longest);
                    self.members[at].paused_until = self.now + pause;
                    self.mark(Mark::Paused);
                    self.say(format_args!("m{at} stands still for {} ms", pause / MS));
                }
            }
            Strike::Cut | Strike::CutOff => self.cut_some(at, strike == Strike::CutOff),
            Strike::Mend => self.mend(),
            Strike::BreakConnection => {
                let pick = self.random.number();
                self.fabric.break_some(pick);
            }
            Strike::LoseControl => {
                let other = self.other(at);
                self.mark(Mark::ControlLost);
                let id = self.members[at].id;
                self.lose(id, other.0);
            }
            Strike::SlowMember => {
                let times = self.random.range(5, 60);
                self.members[at].slowness = times;
                let id = self.members[at].id;
                self.fabric.set_slowness(id, times);
                self.recover_later(at);
            }
            Strike::SlowDisk => {
                self.members[at].disk_slowness = self.random.range(10, 200);
                self.recover_later(at);
            }
            Strike::FlushFails => self.flush_fails(at),
            Strike::ReadFails => self.members[at].read_fails = true,
            Strike::DiskFull => {
                let disk = &self.members[at].disk;
                disk.set_capacity(Some(disk.used_bytes() + self.random.range(0, 100_000)));
                self.say(format_args!("m{at}'s disk is full"));
                self.recover_later(at);
            }
            Strike::SuperblockDamaged => {
                if let Some(at) = self.victim(false) {
                    self.die_for_a_while(at, true);
                    if self.damage_superblock(at) {
                        self.mark(Mark::SuperblockDamaged);
                        self.say(format_args!("m{at}'s superblock has a damaged copy"));
                    }
                }
            }
            Strike::DiskEmptied => self.lose_disk(at),
            Strike::Promote => {
                self.mark(Mark::Promoted);
                // While long messages are under way to those that will revoke.
                self.plan(0, What::Burst { left: 40 });
                self.ask(at, Input::Suspect);
            }
            Strike::HandOver => {
                if let Some(at) = self.leaders().first().copied() {
                    let to = self.other(at);
                    self.mark(Mark::HandedOver);
                    self.ask(at, Input::Handover { to });
                }
            }
            Strike::Resign => {
                if let Some(at) = self.leaders().first().copied() {
                    self.mark(Mark::Resigned);
                    self.ask(at, Input::Resign { reason: StopReason::Asked });
                }
            }
        }
    }

    /// A member dies and is started again.
    pub(super) fn die_for_a_while(&mut self, at: usize, has_power: bool) {
        self.die(at, has_power);
        let after = self.random.range(MS, 250 * MS);
        self.plan(after, What::Open { member: at });
    }

    fn cut_some(&mut self, at: usize, from_all: bool) {
        let id = self.members[at].id;
        let chosen = self.other(at).0;
        let both_ways = self.random.percent(50);
        let outward = self.random.percent(50);
        for other in 0..self.setting.all() {
            if other == id || !(from_all || other == chosen) {
                continue;
            }
            if both_ways || outward {
                self.cut(id, other);
            }
            if both_ways || !outward {
                self.cut(other, id);
            }
        }
        let whom = if from_all { "all".to_owned() } else { format!("m{chosen}") };
        let how = if both_ways { "both ways" } else { "one way" };
        self.mark(if both_ways { Mark::Cut } else { Mark::CutOneWay });
        self.say(format_args!("m{at} is cut off from {whom}, {how}"));
    }

    fn flush_fails(&mut self, at: usize) {
        let disk = &self.members[at].disk;
        let call = if self.random.percent(70) { Call::FlushRange } else { Call::Sync };
        disk.fail(call, self.random.range(0, 4), Errno::IO);
        self.say(format_args!("m{at}'s disk will fail a flush"));
    }

    /// A voter's disk is lost, if enough others keep their own and have something in it: that member stays out for good.
    fn lose_disk(&mut self, at: usize) {
        let is_mute =
            |member: &super::member::Member| member.is_emptied || !member.has_begun || member.rot.is_some();
        self.refresh();
        let is_within = self.is_voter(at) && self.bears(at, is_mute) && self.may_lose_memory(at);
        if !is_within || self.members[at].is_emptied || self.oracle.tenures() == 0 {
            return;
        }
        self.die(at, false);
        self.empty_disk(at);
        self.mark(Mark::DiskEmptied);
        self.say(format_args!("m{at} comes back with an empty disk"));
        self.plan(5 * MS, What::Open { member: at });
    }

    /// A primary may have come to be done with a segment before its peers have all of it: what they still lack rots, and soon after the primary dies.
    pub(super) fn turned_cold(&mut self, at: usize, status: &Status) {
        let replicated = status.replicated;
        let is_unsent = replicated.0 / SEGMENT_BYTES < status.persisted.0.0 / SEGMENT_BYTES;
        if !(self.setting.rots_unsent && self.is_faulty && is_unsent && status.role == Role::Primary) {
            return;
        }
        let Some((_, cold_to)) = self.members[at].cold() else { return };
        if cold_to <= self.members[at].cold_to.max(replicated.0) {
            return;
        }
        self.members[at].cold_to = cold_to;
        if self.random.percent(50) && self.rot_from(at, replicated) {
            self.mark(Mark::RottedUnsent);
            let (life, after) = (self.members[at].life, self.random.range(500 * US, 5 * MS));
            self.plan(after, What::Die { member: at, life, has_power: true });
        }
    }

    /// Synced data of one member changes: within the budget, as long as a majority keeps its own.
    fn rot(&mut self, at: usize) {
        self.rot_from(at, Lsn(0));
    }

    /// The same, at or above `least`. Whether it did.
    fn rot_from(&mut self, at: usize, least: Lsn) -> bool {
        self.refresh();
        let memory_counts = self.setting.replicated_allowed;
        let is_borne = self.bears(at, |member| member.lacks_some(memory_counts));
        if !is_borne || self.members[at].lacks_some(memory_counts) {
            return false;
        }
        let (number, kind) = (self.random.number(), self.random.range(0, 3));
        let Some((name, place)) = self.members[at].rottable(number, least) else { return false };
        // Nothing in writing stands against rot between the look at a page's head and the device's reading of it (DESIGN.md section 14), and it goes over what peers have flushed.
        if self.fabric.sends_again(self.members[at].id, sector_of(place)) {
            return false;
        }
        let offset = place.0 % SEGMENT_BYTES;
        let mark = match kind {
            0 => Mark::Rotted,
            1 => Mark::SectorLost,
            _ => Mark::SectorMisdirected,
        };
        self.members[at].rot_at(&name, place, |disk| match kind {
            0 => disk.rot(&name, offset, u8::try_from(1 + (number >> 8) % 255).unwrap_or(1)),
            1 => disk.rot_sector(&name, offset / 512, &[0; 512]),
            _ => {
                let other = SEGMENT_BYTES - 512 * (1 + number % 8);
                let bytes = disk.live_bytes(&name, other..other + 512);
                let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0xff; 512]);
                disk.rot_sector(&name, offset / 512, &bytes);
            }
        });
        self.mark(mark);
        self.say(format_args!("m{at}'s disk has rot at {place}"));
        true
    }

    /// Loses more than the group survives. `false`: there is nothing to lose yet.
    pub(crate) fn exceed(&mut self, excess: Excess) -> bool {
        self.say(format_args!("beyond the budget: {excess:?}"));
        match excess {
            Excess::DisksEmptied => {
                let majority = self.group.newest().voters().count() / 2 + 1;
                // Not all of the first members: with new folders these would be a new group, as when it was founded.
                let founders = 0..usize::from(self.setting.members);
                let spared = founders.rev().find(|at| !self.members[*at].is_emptied);
                let whole = self.whole_voters().into_iter().filter(|at| Some(*at) != spared);
                let chosen: Vec<usize> = whole.take(majority).collect();
                for at in chosen {
                    self.die(at, false);
                    self.empty_disk(at);
                    self.mark(Mark::DiskEmptied);
                    self.plan(5 * MS, What::Open { member: at });
                }
                true
            }
            Excess::RotEverywhere => {
                // Where every whole member is done with it.
                let whole = self.whole_voters();
                let pick = self.random.number();
                let bounds = whole.iter().filter_map(|at| self.members[*at].cold());
                let Some((from, to)) = bounds.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1))) else {
                    return false;
                };
                let Some(place) =
                    pick.checked_rem(to.saturating_sub(from)).map(|offset| (from + offset) & !7)
                else {
                    return false;
                };
                let Some((name, offset)) = rottable_at(place) else { return false };
                for at in whole {
                    self.members[at].disk.rot(&name, offset, 0x40);
                    self.members[at].rot = Some(Lsn(place));
                    self.mark(Mark::Rotted);
                }
                true
            }
            Excess::RotOfMajority | Excess::MemoryLost => self.exceed_by_hand(excess),
        }
    }

    /// Whether a voter has rot that nobody has met in the segment that it writes: a cut has brought its tail back there, behind what an opening had looked at. A scrub reads
    /// what is cold, and a segment grows cold by being filled.
    fn has_warm_rot(&mut self) -> bool {
        self.refresh();
        self.whole_voters().into_iter().any(|at| {
            let member = &self.members[at];
            let cold_to = member.cold().map(|(_, to)| to);
            !member.is_rot_found
                && matches!((member.rot, cold_to), (Some(place), Some(to)) if is_warm(place, to))
        })
    }

    /// Clients ask for more as long as a voter has such rot, and for nothing otherwise.
    pub(crate) fn asks_while_rot_is_warm(&mut self) {
        match self.has_warm_rot() {
            true if self.is_busy => {}
            true => self.busy(),
            false => self.quiet(),
        }
    }

    /// Whether there was rot, and all of it was released since.
    pub(crate) fn has_released_rot(&mut self) -> bool {
        let was_struck = matches!(self.coverage.count(Mark::Rotted), 1..);
        self.refresh();
        was_struck && self.members.iter().all(|member| member.rot.is_none())
    }

    /// How often a member has said that something is wrong.
    pub(crate) fn said(&self) -> u64 {
        let words = [Mark::DamageFound, Mark::Refused, Mark::Undecided, Mark::Stopped];
        words.iter().map(|mark| self.coverage.count(*mark)).sum()
    }

    /// The group has said that too much was lost.
    pub(crate) fn told_so(&mut self) {
        self.mark(Mark::Exceeded);
    }

    fn recover_later(&mut self, at: usize) {
        let after = self.random.range(30 * MS, 300 * MS);
        self.plan(after, What::Recover { member: at });
    }

    pub(super) fn recover(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.slowness = 1;
        member.disk_slowness = 1;
        member.disk.set_capacity(None);
        if !self.is_faulty {
            member.read_fails = false;
        }
        let id = member.id;
        self.fabric.set_slowness(id, 1);
    }
}

/// Whether rot at `place` lies behind what a member that is done with everything below `cold_to` reads again by itself.
fn is_warm(place: Lsn, cold_to: u64) -> bool {
    sector_of(place).end > cold_to
}

/// The file of a place in the log and the place in it, if no segment's header is there.
pub(super) fn rottable_at(place: u64) -> Option<(String, u64)> {
    let offset = place % SEGMENT_BYTES;
    (offset >= 4096).then(|| (format!("{:016x}.segment", place - offset), offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::liveness::is_whole_by;
    use crate::setting::Setting;

    /// Seed 10004458: rot at 406648 in a cold segment of a member that was down; its log ended at 523424, and after a cut at 428152.
    #[test]
    fn rot_in_the_segment_that_a_log_was_cut_back_into_is_met_once_that_is_full() {
        let cold_to = |persisted: u64| persisted / SEGMENT_BYTES * SEGMENT_BYTES;
        let place = Lsn(406_648);
        assert!(!is_warm(place, cold_to(523_424)));
        assert!(is_warm(place, cold_to(428_152)) && is_warm(place, cold_to(455_720)));
        assert!(!is_warm(place, cold_to(458_752)));
    }

    /// The same where the cut comes once the clients are silent, as behind an operator's word, or at a member that comes back late.
    #[test]
    fn rot_that_comes_to_lie_in_the_segment_that_is_written_is_met_also_once_clients_are_silent() {
        let mut world = World::new(1, Setting::of(1), false);
        world.run(world.now + 300 * MS);
        world.heal();
        let comes_back = |world: &mut World| {
            let until = world.now + 20_000 * MS;
            is_whole_by(world, until, |world| world.run(world.now + 20 * MS))
        };
        assert!(comes_back(&mut world), "{:?}", world.violation);
        // As a cut leaves it: two pages into the segment of its tail, far below that.
        let is_far = |at: &usize| {
            let status = world.members[*at].status();
            status.is_some_and(|s| s.role == Role::Backup && s.persisted.0.0 % SEGMENT_BYTES > 4 * 4096)
        };
        let at = world.whole_voters().into_iter().find(is_far).expect("a log that ends far in a segment");
        let end = world.members[at].status().map_or(0, |status| status.persisted.0.0);
        let place = Lsn(end / SEGMENT_BYTES * SEGMENT_BYTES + 2 * 4096);
        let (name, offset) = rottable_at(place.0).expect("behind the header");
        world.members[at].rot_at(&name, place, |disk| disk.rot(&name, offset, 0x40));
        assert!(!world.is_busy && world.has_warm_rot());
        assert!(comes_back(&mut world), "{:?} {}", world.violation, world.told());
        assert!(world.coverage.count(Mark::DamageRepaired) > 0 && !world.is_busy);
    }
}
