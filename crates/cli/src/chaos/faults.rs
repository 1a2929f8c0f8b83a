//! What is done to the group, and when: from one seed. Each kind is made once, in an order of the seed, before any is drawn freely: no run is without one.
//! Several faults may hold at a time; at the end none does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::folder;
use super::members::{Members, counter};
use super::proxy::Links;
use crate::exit::{Failure, Status};

/// How often the group is looked at, for takeovers.
const LOOK: Duration = Duration::from_millis(10);
/// How often a member loses its disk, at most.
const EMPTIED: Duration = Duration::from_secs(4);
/// How often a line says how it goes.
const LINE: Duration = Duration::from_secs(10);

/// The members' disks: filesystems in memory of a fixed size, where this process may mount some.
pub(super) struct Disks {
    pub(super) folders: Vec<PathBuf>,
    mounts: Vec<PathBuf>,
    /// Why disks can't be filled.
    pub(super) skipped: Option<String>,
    is_kept: AtomicBool,
}

impl Disks {
    pub(super) fn make(run: &Path, count: usize, mib: u64) -> Result<Disks, Failure> {
        let mut disks =
            Disks { folders: Vec::new(), mounts: Vec::new(), skipped: None, is_kept: AtomicBool::new(false) };
        for at in 0..count {
            let disk = folder(run, at);
            std::fs::create_dir(&disk).map_err(|error| Failure::io(disk.display(), &error))?;
            if mib == 0 {
                disks.skipped = Some("--disk-mib 0".into());
            } else if disks.skipped.is_none() {
                match mount(&disk, mib) {
                    Ok(()) => disks.mounts.push(disk.clone()),
                    Err(why) => disks.skipped = Some(why),
                }
            }
            disks.folders.push(disk.join("log"));
        }
        Ok(disks)
    }

    /// Takes all that is free on a member's disk, or gives it back. `false` if that can't be done.
    fn fill(&self, at: usize, is_full: bool) -> bool {
        let Some(disk) = self.mounts.get(at) else { return false };
        let filler = disk.join("filler");
        if !is_full {
            return std::fs::remove_file(&filler).is_ok();
        }
        let Ok(file) = std::fs::File::create(&filler) else { return false };
        let Ok(space) = rustix::fs::statvfs(disk) else { return false };
        let free = space.f_bavail * space.f_frsize;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free).is_ok()
    }

    /// Leaves them mounted, to be looked at.
    pub(super) fn keep(&self) {
        self.is_kept.store(true, Ordering::SeqCst);
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::SeqCst) {
            return;
        }
        for disk in &self.mounts {
            // Busy while a member still ends.
            let _ = Command::new("umount").arg("-l").arg(disk).stderr(Stdio::null()).status();
        }
    }
}

fn mount(disk: &Path, mib: u64) -> Result<(), String> {
    let size = format!("size={mib}m");
    let output = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(disk).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("a filesystem in memory can't be mounted ({said}): run it as root"))
        }
        Err(error) => Err(format!("mount(8): {error}")),
    }
}

/// What holds for a while.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fault {
    Kill,
    Freeze,
    Cut,
    CutOneWay,
    Isolate,
    Delay,
    Reset,
    FullDisk,
}

impl Fault {
    const ALL: [Fault; 8] = [
        Fault::Kill,
        Fault::Freeze,
        Fault::Cut,
        Fault::CutOneWay,
        Fault::Isolate,
        Fault::Delay,
        Fault::Reset,
        Fault::FullDisk,
    ];

    fn name(self) -> &'static str {
        match self {
            Fault::Kill => "killed (SIGKILL)",
            Fault::Freeze => "frozen (SIGSTOP)",
            Fault::Cut => "link cut, both ways",
            Fault::CutOneWay => "link cut, one way",
            Fault::Isolate => "cut off from all",
            Fault::Delay => "link slowed",
            Fault::Reset => "link reset",
            Fault::FullDisk => "disk full",
        }
    }
}

struct Held {
    fault: Fault,
    member: usize,
    other: usize,
    until: Instant,
}

pub(super) struct Faults<'a> {
    random: u64,
    links: &'a Arc<Links>,
    disks: &'a Disks,
    held: Vec<Held>,
    /// Kinds that are still to be made once; the last one is next.
    due: Vec<Fault>,
    times: BTreeMap<Fault, u64>,
    epochs: BTreeSet<u64>,
    /// Whether members lose their disks, too.
    empties: bool,
    pub(super) ended: u64,
}

impl<'a> Faults<'a> {
    pub(super) fn new(seed: u64, links: &'a Arc<Links>, disks: &'a Disks, empties: bool) -> Faults<'a> {
        let mut faults = Faults {
            random: seed,
            links,
            disks,
            held: Vec::new(),
            due: Vec::new(),
            times: BTreeMap::new(),
            epochs: BTreeSet::new(),
            empties,
            ended: 0,
        };
        faults.due = faults.dealt();
        faults
    }

    /// Each kind that can be made here, in an order of the seed.
    fn dealt(&mut self) -> Vec<Fault> {
        let mut left = Fault::ALL.to_vec();
        left.retain(|fault| *fault != Fault::FullDisk || self.disks.skipped.is_none());
        let mut dealt = Vec::new();
        while !left.is_empty() {
            let at = usize::try_from(self.below(left.len() as u64)).unwrap_or(0);
            dealt.push(left.remove(at));
        }
        dealt
    }

    /// How often each kind was made.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Fault::ALL.iter().map(|fault| (fault.name(), self.times.get(fault).copied().unwrap_or(0)))
    }

    /// Tenures that were seen beyond the first.
    pub(super) fn takeovers(&self) -> usize {
        self.epochs.len().saturating_sub(1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        // splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    fn between_ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }

    /// Makes faults for so long, and ends them all.
    pub(super) fn run(
        &mut self,
        members: &mut Members,
        length: Duration,
        acknowledged: &AtomicU64,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut next = begun + self.between_ms(300, 1000);
        let (mut line, mut empty) = (begun + LINE, begun + EMPTIED / 2);
        while begun.elapsed() < length {
            std::thread::sleep(LOOK);
            let primary = self.look(members)?;
            let now = Instant::now();
            self.end_those(members, |held| held.until <= now)?;
            members.tend_replacement();
            if now >= empty {
                empty = now + Duration::from_secs(1);
                if self.empties && members.may_lose_a_disk() {
                    empty = now + EMPTIED;
                    self.empty_a_disk(members, primary)?;
                }
            }
            if now >= next {
                self.strike(members, primary)?;
                next = now + self.between_ms(200, 1800);
            }
            if now >= line {
                line = now + LINE;
                println!(
                    "{:>6} s  {} takeovers, {} acknowledged",
                    begun.elapsed().as_secs(),
                    self.takeovers(),
                    acknowledged.load(Ordering::Relaxed)
                );
            }
        }
        self.end_those(members, |_| true)
    }

    /// Sees who leads, and who has ended by itself.
    fn look(&mut self, members: &mut Members) -> Result<Option<usize>, Failure> {
        for (at, last) in members.ended() {
            // A member without room for its superblock may end; so may one whose medium refuses it.
            let is_full = self.held.iter().any(|held| held.fault == Fault::FullDisk && held.member == at);
            println!(
                "        m{} has ended by itself{}: {last}",
                at + 1,
                if is_full { ", its disk being full" } else { "" }
            );
            self.ended += 1;
            members.restart(at)?;
        }
        let whole: Vec<usize> = (0..members.len()).filter(|at| members.is_whole(*at)).collect();
        let mut primary = None;
        for at in whole {
            let Some(standing) = members.sockets.standing(at).filter(|standing| standing.role == "primary")
            else {
                continue;
            };
            self.epochs.insert(counter(&standing.epoch));
            primary = Some(at);
        }
        Ok(primary)
    }

    /// Each second time the primary's.
    fn empty_a_disk(&mut self, members: &mut Members, primary: Option<usize>) -> Result<(), Failure> {
        let chosen = usize::try_from(self.below(members.len() as u64)).unwrap_or(0);
        let member = if self.below(2) == 0 { primary.unwrap_or(chosen) } else { chosen };
        if self.held.iter().any(|held| held.member == member) {
            return Ok(());
        }
        members.lose_disk(member)
    }

    fn any(&mut self) -> Fault {
        match self.below(16) {
            0..=3 => Fault::Kill,
            4..=6 => Fault::Freeze,
            7 | 8 => Fault::Cut,
            9 | 10 => Fault::CutOneWay,
            11 => Fault::Isolate,
            12 => Fault::Delay,
            13 | 14 => Fault::Reset,
            _ => Fault::FullDisk,
        }
    }

    /// Makes the next fault that is due, or any, unless it has to wait for others to end.
    fn strike(&mut self, members: &mut Members, primary: Option<usize>) -> Result<(), Failure> {
        let count = members.len() as u64;
        let chosen = usize::try_from(self.below(count)).unwrap_or(0);
        // The primary more often than others.
        let member = if self.below(10) < 6 { primary.unwrap_or(chosen) } else { chosen };
        let other = (member + 1 + usize::try_from(self.below(count - 1)).unwrap_or(0)) % members.len();
        let fault = self.due.last().copied().unwrap_or_else(|| self.any());
        // Two at a time at most, and one of a kind: the group is to get on in between.
        let is_held = |held: &Held| held.fault == fault || held.member == member;
        if self.held.len() >= 2 || self.held.iter().any(is_held) {
            return Ok(());
        }
        let lasts = match fault {
            Fault::Kill => self.between_ms(10, 1500),
            Fault::Freeze => self.between_ms(20, 2500),
            Fault::Cut | Fault::CutOneWay | Fault::Isolate => self.between_ms(100, 3000),
            Fault::Delay => self.between_ms(500, 3000),
            Fault::Reset => Duration::ZERO,
            Fault::FullDisk => self.between_ms(500, 4000),
        };
        match fault {
            Fault::Kill => members.kill(member)?,
            Fault::Freeze => members.freeze(member, true)?,
            Fault::Cut | Fault::CutOneWay | Fault::Isolate | Fault::Delay => {
                self.link(members.len(), fault, member, other, true)
            }
            Fault::Reset => self.links.reset(member, other),
            Fault::FullDisk => {
                if !self.disks.fill(member, true) {
                    return Ok(());
                }
            }
        }
        self.due.pop_if(|due| *due == fault);
        *self.times.entry(fault).or_insert(0) += 1;
        self.held.push(Held { fault, member, other, until: Instant::now() + lasts });
        Ok(())
    }

    fn link(&mut self, count: usize, fault: Fault, member: usize, other: usize, is_on: bool) {
        let links = self.links;
        match fault {
            Fault::Cut => {
                links.cut(member, other, is_on);
                links.cut(other, member, is_on);
            }
            Fault::CutOneWay => links.cut(member, other, is_on),
            Fault::Isolate => {
                for other in (0..count).filter(|other| *other != member) {
                    links.cut(member, other, is_on);
                    links.cut(other, member, is_on);
                }
            }
            Fault::Delay => {
                let delay = if is_on { self.between_ms(1, 60) } else { Duration::ZERO };
                links.delay(member, other, delay);
                links.delay(other, member, delay);
            }
            Fault::Kill | Fault::Freeze | Fault::Reset | Fault::FullDisk => {}
        }
    }

    fn end_those(&mut self, members: &mut Members, is_over: impl Fn(&Held) -> bool) -> Result<(), Failure> {
        let (over, held): (Vec<Held>, Vec<Held>) =
            std::mem::take(&mut self.held).into_iter().partition(is_over);
        self.held = held;
        for Held { fault, member, other, .. } in over {
            match fault {
                Fault::Kill => members.restart(member)?,
                Fault::Freeze => members.freeze(member, false)?,
                Fault::FullDisk => {
                    if !self.disks.fill(member, false) {
                        let message = format_args!("the filler of m{}'s disk can't be removed", member + 1);
                        return Err(Failure::new(Status::System, message));
                    }
                }
                Fault::Cut | Fault::CutOneWay | Fault::Isolate | Fault::Delay => {
                    self.link(members.len(), fault, member, other, false);
                    // A link that another fault has cut meanwhile stays so until that ends.
                    let still: Vec<(Fault, usize, usize)> =
                        self.held.iter().map(|held| (held.fault, held.member, held.other)).collect();
                    for (fault, member, other) in still {
                        if fault != Fault::Delay {
                            self.link(members.len(), fault, member, other, true);
                        }
                    }
                }
                Fault::Reset => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(skipped: Option<String>) -> Disks {
        Disks { folders: Vec::new(), mounts: Vec::new(), skipped, is_kept: AtomicBool::new(false) }
    }

    #[test]
    fn each_kind_that_can_be_made_is_due_once_in_an_order_of_the_seed() {
        let links = Links::new(3);
        let (can, can_not) = (disks(None), disks(Some("no root".to_owned())));
        let mut orders = BTreeSet::new();
        for seed in 0..50 {
            let due = Faults::new(seed, &links, &can, false).due;
            assert_eq!(due, Faults::new(seed, &links, &can, false).due, "a seed is an order");
            assert_eq!(BTreeSet::from_iter(due.clone()), BTreeSet::from(Fault::ALL));
            assert_eq!(due.len(), Fault::ALL.len());
            orders.insert(due);
            let due = Faults::new(seed, &links, &can_not, false).due;
            assert!(due.len() == Fault::ALL.len() - 1 && !due.contains(&Fault::FullDisk), "{due:?}");
        }
        assert!(orders.len() > 40, "{} orders", orders.len());
    }

    #[test]
    fn a_kind_that_was_never_made_is_counted_with_nothing() {
        let (links, disks) = (Links::new(3), disks(None));
        let mut faults = Faults::new(1, &links, &disks, false);
        faults.times.insert(Fault::Reset, 2);
        let counts: Vec<_> = faults.counts().filter(|(_, times)| *times == 0).collect();
        assert_eq!(counts.len(), Fault::ALL.len() - 1);
    }
}
