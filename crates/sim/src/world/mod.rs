//! The world: members, what lies between them, their clients, and one queue of events on virtual time.
//!
//! Everything happens in the order of time and, at one time, in the order in which it was planned; every choice comes from one generator. So a seed is a
//! run, byte for byte, as long as the code is the same.
//!
//! * [`member`]: a member's lives: opening, dying, the medium under it; * [`rotten`]: what has rotted there; * [`step`]: one turn of a driver, and what comes of it;
//! * [`reads`]: read errors of members that run; * [`members`]: the group that changes; * [`hands`]: an operator who promotes, hands over and gives words; * [`streams`]: checkpoints in pieces; * [`control`]: the control connections; * [`clients`]: appenders, trimmers; [`readers`]: readers and subscriptions; * [`strike`]: the faults;
//! * [`phase`]: where in a takeover a member stands.

mod clients;
mod control;
mod hands;
mod member;
mod members;
mod phase;
mod readers;
mod reads;
mod rotten;
mod step;
mod streams;
mod strike;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex};

use windlass::engine::{Role, Status};
use windlass::{Epoch, Lsn};
use windlass_store::disk::testing::Survive;

use self::clients::Pending;
use self::control::Pair;
use self::hands::Hands;
use self::member::Member;
use self::members::Group;
use self::phase::Phase;
use self::reads::Reads;
use self::streams::Streams;
use crate::coverage::{Coverage, Mark};
use crate::fabric::{FabricFaults, FabricNet, MS};
use crate::harms::Harms;
use crate::minimum::Minimum;
use crate::oracle::{Checked, Oracle, Violation, hash_of};
use crate::random::Random;
use crate::setting::{ControlFaults, Setting, Strike};
use crate::trace::Trace;

/// What happens.
#[derive(Debug)]
enum What {
    /// A member's driver takes a turn.
    Step { member: usize },
    /// A piece of disk work is done.
    Disk { member: usize, life: u64, lane: usize },
    /// Something of a control connection.
    Control(control::What),
    /// A member is opened.
    Open { member: usize },
    /// A member dies.
    Die { member: usize, life: u64, has_power: bool },
    /// The application of a backup has installed the checkpoint that it lacked.
    Snapshot { member: usize, life: u64, at: Lsn, epoch: Epoch },
    /// Somebody appends.
    Append,
    /// The primary takes many long records, and so many times more.
    Burst { left: u32 },
    /// Somebody reads.
    Read,
    /// Somebody trims.
    Trim,
    /// The world strikes.
    Strike,
    /// An operator looks whether to change the group.
    Operate,
    /// An operator does something by hand.
    ByHand,
    /// An operator gives its word at a member that was cut off, or wherever it stands.
    Word { member: usize, life: u64, is_alone: bool },
    /// What brings a checkpoint in pieces takes its next step.
    Bring { member: usize, life: u64 },
    /// The primary is reminded to keep its log for it.
    Remind { member: usize, life: u64 },
    /// A member dies while its log begins again behind one.
    DieInReset { member: usize, life: u64 },
    /// A member is cut off by an operator.
    Isolate { member: usize },
    /// Something that was slow or full for a while is not any more.
    Recover { member: usize },
}

struct Scheduled {
    at: u64,
    order: u64,
    what: What,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A group, and everything around it.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) events: u64,
    pub(crate) oracle: Oracle,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    pub(crate) violation: Option<Violation>,
    random: Random,
    pub(crate) setting: Setting,
    fabric: FabricNet,
    queue: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    members: Vec<Member>,
    group: Group,
    hands: Hands,
    streams: Streams,
    reads: Reads,
    harms: Harms,
    pairs: BTreeMap<(u8, u8), Pair>,
    cut: BTreeSet<(u8, u8)>,
    /// There are faults.
    is_faulty: bool,
    /// Clients ask for more.
    is_busy: bool,
    /// A client keeps a reservation while the world goes on.
    is_holding: bool,
    /// Whoever comes into this step of a takeover dies, with power or without.
    armed: Option<(Phase, bool)>,
    pending: BTreeMap<u64, Pending>,
    rung: Arc<Mutex<Vec<u64>>>,
    next_append: u64,
    touched: Vec<u8>,
}

impl World {
    /// A group of new members, all of them opening.
    pub(crate) fn new(seed: u64, setting: Setting, keeps_trace: bool) -> World {
        let mut random = Random::new(seed);
        let fabric = FabricNet::timed(random.number());
        let members = (0..setting.all()).map(|id| Member::new(id, &mut random, &setting)).collect();
        let mut world = World {
            now: 1_000 * MS,
            events: 0,
            oracle: Oracle::default(),
            trace: Trace::new(keeps_trace),
            coverage: Coverage::default(),
            violation: None,
            random,
            fabric,
            queue: BinaryHeap::new(),
            order: 0,
            members,
            group: Group::of(&setting),
            hands: Hands::of(seed),
            streams: Streams::of(seed),
            reads: Reads::of(seed),
            harms: Harms::of(seed),
            pairs: BTreeMap::new(),
            cut: BTreeSet::new(),
            is_faulty: true,
            is_busy: true,
            is_holding: false,
            armed: None,
            pending: BTreeMap::new(),
            rung: Arc::default(),
            next_append: 0,
            touched: Vec::new(),
            setting,
        };
        world.fabric.set_faults(world.setting.fabric);
        if world.random.percent(world.setting.keys_near_end) {
            world.fabric.near_the_wrap();
        }
        world.make_pairs();
        let known = world.oracle.configuration_known(0, world.group.newest());
        world.check(known);
        for member in world.joined_members() {
            let after = world.random.range(0, MS);
            world.plan(after, What::Open { member });
        }
        world.plan(MS, What::Append);
        world.plan(2 * MS, What::Read);
        world.plan(50 * MS, What::Trim);
        let first = 60 * MS + world.setting.fault_ns;
        world.plan(first, What::Strike);
        if world.setting.change_ns > 0 {
            let first = 40 * MS + world.random.range(0, world.setting.change_ns);
            world.plan(first, What::Operate);
        }
        if let Some(hands) = world.setting.hands {
            world.plan(40 * MS + hands.deed_ns, What::ByHand);
        }
        world
    }

    fn plan(&mut self, after: u64, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Scheduled { at: self.now + after, order: self.order, what }));
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        self.trace.say(self.now, line);
    }

    /// Notes what did not hold; the first such thing ends the run.
    pub(crate) fn note(&mut self, checked: Checked) {
        self.check(checked);
    }

    fn check(&mut self, checked: Checked) {
        if let Err(violation) = checked
            && self.violation.is_none()
        {
            self.say(format_args!("VIOLATION {violation}"));
            self.violation = Some(violation);
        }
    }

    /// Goes on until `until`, or a violation.
    pub(crate) fn run(&mut self, until: u64) {
        while self.violation.is_none() {
            let planned = self.queue.peek().map_or(u64::MAX, |Reverse(next)| next.at);
            let of_fabric = self.fabric.next_at().unwrap_or(u64::MAX);
            let next = planned.min(of_fabric);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            if of_fabric <= planned {
                self.fabric_moves();
            } else if let Some(Reverse(scheduled)) = self.queue.pop() {
                self.happen(scheduled.what);
            }
        }
        self.now = self.now.max(until);
    }

    fn fabric_moves(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        self.events += self.fabric.advance(self.now, &mut touched);
        self.trace.note(self.now, u64::try_from(touched.len()).unwrap_or(0));
        for member in touched.drain(..) {
            self.wake(usize::from(member));
        }
        self.touched = touched;
        if let Some(violation) = self.fabric.take_violation() {
            self.check(Err(violation));
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Step { member } => self.step(member),
            What::Disk { member, life, lane } => self.disk_done(member, life, lane),
            What::Control(what) => {
                self.events += 1;
                self.control(what);
            }
            What::Open { member } => {
                self.events += 1;
                self.open(member);
            }
            What::Die { member, life, has_power } => {
                if self.members[member].life == life {
                    self.die_for_a_while(member, has_power);
                }
            }
            What::Snapshot { member, life, at, epoch } => self.snapshot_installed(member, life, at, epoch),
            What::Append => self.append_some(),
            What::Burst { left } => self.burst(left),
            What::Read => self.read_some(),
            What::Trim => self.trim_some(),
            What::Strike => self.strike(),
            What::Operate => self.operate(),
            What::ByHand => self.by_hand(),
            What::Word { member, life, is_alone } => self.word_later(member, life, is_alone),
            What::Bring { member, life } => self.bring(member, life),
            What::Remind { member, life } => self.remind_to_keep(member, life),
            What::DieInReset { member, life } => self.die_in_reset(member, life),
            What::Isolate { member } => self.isolate_later(member),
            What::Recover { member } => self.recover(member),
        }
    }

    /// Faults end; everything comes back and stays.
    pub(crate) fn heal(&mut self) {
        self.say(format_args!("everything is healed"));
        self.is_faulty = false;
        self.armed = None;
        self.fabric.set_faults(FabricFaults::default());
        self.setting.control = ControlFaults::default();
        self.mend();
        for member in self.joined_members() {
            self.recover(member);
            self.members[member].paused_until = 0;
            self.members[member].disk.clear_faults();
            self.wake(member);
            if self.members[member].is_stopped() {
                self.die(member, true);
            }
            if self.members[member].driver.is_none() {
                self.plan(MS, What::Open { member });
            }
        }
    }

    /// What the run has had so far of what every run must have.
    pub(crate) fn minimum(&self) -> Minimum {
        let of_fabric = self.fabric.kinds();
        let of_disks = self.members.iter().flat_map(Member::happened).filter(|(_, count)| *count > 0);
        let of_disks: BTreeSet<Mark> = of_disks.map(|(mark, _)| mark).collect();
        let is_met = |mark: &&Mark| {
            self.coverage.count(**mark) > 0 || of_fabric.contains(mark) || of_disks.contains(mark)
        };
        let fault_kinds = Mark::ALL.iter().filter(|mark| mark.is_fault()).filter(is_met).count();
        Minimum {
            acknowledged: self.oracle.acknowledged_count,
            tenures: self.oracle.tenures(),
            fault_kinds: u64::try_from(fault_kinds).unwrap_or(0),
        }
    }

    /// An operator has some member take over.
    pub(crate) fn provoke(&mut self) {
        let at = self.some_member();
        self.ask(at, windlass::engine::Input::Suspect);
    }

    /// No more appends.
    pub(crate) fn quiet(&mut self) {
        self.is_busy = false;
    }

    /// Where the voters stand that run and whose disk was never emptied.
    pub(crate) fn statuses(&self) -> Vec<Option<Status>> {
        self.whole_voters().into_iter().map(|at| self.members[at].status()).collect()
    }

    /// The members' standing, in a line each.
    pub(crate) fn told(&self) -> String {
        let mut told = String::new();
        for member in &self.members {
            let caught_up = member.driver.as_ref().map(|driver| driver.store().superblock().caught_up);
            if let Some(place) = member.rot {
                told += &format!("\n  m{} has rot at {place}, found {}", member.id, member.is_rot_found);
            }
            if !member.has_joined {
                continue;
            }
            let group = member
                .driver
                .as_ref()
                .map(|driver| (driver.configuration().0.number(), driver.configuration().1));
            told += &format!("\n  m{}'s configuration {group:?}, retired {}", member.id, member.is_retired);
            told += &format!(
                "\n  m{} {:?}, emptied {}, lost memory {}, caught up {caught_up:?}: ",
                member.id, member.phase, member.is_emptied, member.has_lost_memory
            );
            told += &member.status().map_or("down".to_owned(), |s| {
                format!(
                    "{:?}, promised {}, follows {:?}, trimmed {} durable {} replicated {} persisted {} tail {}, damaged {}, {:?}",
                    s.role, s.promised, s.primary, s.trimmed, s.durable, s.replicated, s.persisted.0, s.tail, s.damaged, s.stopped
                )
            });
        }
        told + &format!("\n  the group is {:?}", self.group.newest()) + &self.fabric.told()
    }

    /// Whether exactly one member leads, all voters follow it, each has and knows all that is committed, and the group is not about to change.
    pub(crate) fn is_whole(&mut self) -> bool {
        self.refresh();
        let has_rot = |at: &usize| self.members[*at].rot.is_some();
        if self.whole_voters().iter().any(has_rot) || !self.is_settled() {
            return false;
        }
        let statuses = self.statuses();
        let all = self.members.iter().filter_map(Member::status);
        let leaders = all.filter(|status| status.role == Role::Primary).count();
        let end = statuses.iter().flatten().map(|status| status.tail).max().unwrap_or_default();
        let is_whole = |status: &Option<Status>| {
            status.is_some_and(|status| status.durable == end && status.tail == end && !status.damaged)
        };
        leaders == 1 && statuses.iter().all(is_whole) && self.pending.is_empty()
    }

    /// Everything there is to compare once the run is over.
    pub(crate) fn finish(&mut self) {
        for member in 0..self.members.len() {
            self.publish(member);
            self.scrubs_told(member);
            if self.violation.is_none() && !self.members[member].is_emptied && self.is_voter(member) {
                self.check_whole_log(member);
                self.ask_outcomes(member);
            }
        }
        let checked = self.oracle.all_committed().and_then(|()| self.oracle.nothing_left_out());
        self.check(checked);
    }

    /// What the parts have counted.
    pub(crate) fn count_parts(&mut self) {
        let counts = self.fabric.take_counts();
        self.coverage.merge(counts);
        let of_disks: Vec<(Mark, u64)> = self.members.iter().flat_map(Member::happened).collect();
        self.coverage.merge(of_disks);
    }

    /// What the disks hold at the end, and what a loss of power would leave of that, becomes a part of the run's digest.
    pub(crate) fn fold_media(&mut self) {
        for member in &self.members {
            for disk in [&member.disk, &member.disk.after_power_loss(Survive::Nothing)] {
                for name in disk.names() {
                    self.trace.note(hash_of(name.as_bytes()), hash_of(&disk.read_file(&name)));
                }
            }
        }
    }

    /// What switches a fault on for the regression of a seed: struck whenever the world's generator says so.
    fn has(&self, strike: Strike) -> bool {
        self.setting.process.iter().any(|(of, _)| *of == strike)
    }

    fn mark(&mut self, mark: Mark) {
        self.coverage.add(mark);
    }
}

#[cfg(test)]
mod tests {
    use windlass_store::disk::testing::TestDisk;

    use super::*;
    use crate::oracle::{Invariant, liveness};
    use crate::run::{CALM, LIVENESS};

    /// What is said of a healed group of three in which `harm` is done, and when, counted from then on.
    fn liveness_said(harm: impl Fn(&mut World)) -> (Option<Violation>, u64) {
        let mut world = World::new(1, Setting { members: 3, ..Setting::of(1) }, false);
        world.run(world.now + 100 * MS);
        world.heal();
        world.run(world.now + 1_000 * MS);
        assert!(world.violation.is_none() && world.oracle.acknowledged_count > 0, "{:?}", world.violation);
        let healed = world.now;
        harm(&mut world);
        liveness::comes_back(&mut world, CALM, LIVENESS);
        (world.violation.take(), world.now - healed)
    }

    /// A member is away for so long.
    fn away(world: &mut World, member: usize, ns: u64) {
        world.die(member, true);
        world.plan(ns, What::Open { member });
    }

    #[test]
    fn a_group_that_is_whole_too_late_or_never_is_found() {
        let is_found = |said: &Option<Violation>, what: &str| {
            let said = said.as_ref();
            said.is_some_and(|said| said.invariant == Invariant::Liveness && said.what.starts_with(what))
        };
        let (said, after) = liveness_said(|_| {});
        assert!(said.is_none() && after < LIVENESS / 10, "{said:?} after {after} ns");
        // A second of the bound is left, and none.
        let (said, after) = liveness_said(|world| away(world, 1, LIVENESS - 1_000 * MS));
        assert!(said.is_none() && after > LIVENESS - 1_000 * MS, "{said:?} after {after} ns");
        let (said, after) = liveness_said(|world| away(world, 1, LIVENESS + 100 * MS));
        assert!(is_found(&said, "the group is not whole 20000 ms after healing: "), "{said:?}");
        assert!((LIVENESS..LIVENESS + 100 * MS).contains(&after), "after {after} ns");
        let (said, _) = liveness_said(|world| {
            for member in [1, 2] {
                away(world, member, u64::MAX / 2);
            }
        });
        assert!(is_found(&said, "nothing is acknowledged 20000 ms after healing: "), "{said:?}");
    }

    /// The digest of a short run that ends with this in place of a member's disk.
    fn digest(of: impl Fn(&TestDisk) -> TestDisk) -> (u64, u64) {
        let mut world = World::new(1, Setting::of(1), false);
        world.run(world.now + 20 * MS);
        world.members[1].disk = of(&world.members[1].disk);
        world.fold_media();
        world.trace.digest()
    }

    #[test]
    fn what_differs_on_a_medium_alone_is_another_digest() {
        let changed = |change: fn(&TestDisk)| {
            digest(|disk| {
                let copy = disk.copied();
                change(&copy);
                copy
            })
        };
        let digests = [
            digest(TestDisk::copied),
            changed(|disk| disk.flip("superblock", 0, 1)),
            changed(|disk| disk.flip("superblock", 100_000, 1)),
            changed(|disk| {
                disk.write_file("another", &disk.read_file("superblock"));
                disk.remove_file("superblock");
            }),
            // The same bytes under the same names, of which a loss of power leaves nothing.
            digest(TestDisk::copied_just_now),
        ];
        assert_eq!(digests[0], digest(TestDisk::copied), "the same media");
        for (at, (hash, lines)) in digests.iter().enumerate() {
            assert_eq!(*lines, digests[0].1, "the runs are the same");
            assert!(digests[..at].iter().all(|(other, _)| other != hash), "number {at} of {digests:?}");
        }
    }
}
