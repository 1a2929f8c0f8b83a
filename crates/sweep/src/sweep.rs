//! The sweep: each life, stopped at each of its steps, with whatever a disk may make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use windlass_store::disk::testing::{Lie, Survive, TestDisk, Unit};

use crate::check::{self, Opens};
use crate::life::Workload;
use crate::lone::{BOOT, Gone};
use crate::oracle::Oracle;
use crate::random::{Random, mix};
use crate::salvage;

/// What becomes of what was not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The power goes: all of it is lost.
    Lost,
    /// All of it is kept.
    Kept,
    /// Each sector of 512 bytes, each length and each name is lost or kept on its own.
    TornSectors,
    /// The same of pages of 4 KiB.
    TornPages,
    /// Before the power goes the system has written pages and names of its own accord, at any time and in any order across files; then torn as before.
    Reordered,
    /// The process dies; the page cache stays.
    Killed,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Lost, Kind::Kept, Kind::TornSectors, Kind::TornPages, Kind::Reordered, Kind::Killed];

    /// The boot in which what it leaves is opened: another one where the power went.
    pub(crate) fn boot(self) -> u8 {
        if self == Kind::Killed { BOOT } else { BOOT + 1 }
    }

    /// Its name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lost => "lost",
            Kind::Kept => "kept",
            Kind::TornSectors => "torn-512",
            Kind::TornPages => "torn-4096",
            Kind::Reordered => "reordered",
            Kind::Killed => "killed",
        }
    }
}

/// Counts of one workload and kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Count {
    /// States of a disk that a crash of the workload left.
    pub images: u64,
    /// States that a crash of their recovery left.
    pub again: u64,
    /// How they were opened.
    pub opens: Opens,
}

/// At which of its steps the recovery of a workload's and a kind's images was stopped.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stops {
    /// Steps of the longest recovery.
    pub longest: u64,
    /// Counted from its first step, which is 0.
    pub from_first: BTreeSet<u64>,
    /// Counted from its last step, which is 0.
    pub from_last: BTreeSet<u64>,
}

impl Stops {
    /// Whether none was stopped there yet.
    fn is_new(&self, at: u64, steps: u64) -> bool {
        !self.from_first.contains(&at) || !self.from_last.contains(&(steps - 1 - at))
    }

    fn add(&mut self, at: u64, steps: u64) {
        self.from_first.insert(at);
        self.from_last.insert(steps - 1 - at);
    }

    /// Steps that nothing was stopped at.
    fn missed(&self) -> u64 {
        let missed = |stopped: &BTreeSet<u64>| (0..self.longest).filter(|at| !stopped.contains(at)).count();
        missed(&self.from_first).max(missed(&self.from_last)) as u64
    }
}

/// Something that a crash did and must not do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// Replays it: workload, variation, step and round.
    pub place: String,
    /// What.
    pub text: String,
}

/// What to sweep.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many images, of all workloads together.
    pub images: u64,
    /// The first two rounds go to the end of the workload, also where that takes more images.
    pub whole: bool,
    /// What chance begins with.
    pub seed: u64,
    /// A fault that is planted.
    pub lie: Option<Lie>,
    /// How many findings end the sweep of a workload.
    pub wrong_max: usize,
}

/// What a sweep came to.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Report {
    /// By workload and kind.
    pub counts: BTreeMap<(Workload, Kind), Count>,
    /// Steps of each workload's first life that were stopped at.
    pub steps: BTreeMap<Workload, u64>,
    /// By workload: crash points of which every subset of sectors, and of pages, was tried, and all of that round so far.
    pub exhausted: BTreeMap<Workload, (u64, u64, u64)>,
    /// Where recovery was stopped, by workload and kind.
    pub stops: BTreeMap<(Workload, Kind), Stops>,
    /// What is wrong.
    pub wrong: Vec<Wrong>,
}

impl Report {
    /// All images.
    #[must_use]
    pub fn images(&self) -> u64 {
        self.counts.values().map(|count| count.images + count.again).sum()
    }

    /// What a [whole](Plan::whole) sweep does and this one has not, a line each: crash points of the exhaustive round, kinds, and steps of recovery.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (workload, steps) in &self.steps {
            let name = workload.name();
            let tried = self.exhausted.get(workload).map_or(0, |exhausted| exhausted.2);
            if tried < *steps || *steps == 0 {
                missed.push(format!("{name}: every subset at {tried} of {steps} crash points"));
            }
            for kind in Kind::ALL {
                match self.stops.get(&(*workload, kind)) {
                    None => missed.push(format!("{name}: no recovery of {}", kind.name())),
                    Some(stops) if stops.missed() > 0 => missed.push(format!(
                        "{name}: {} of {} steps of the recovery of {}",
                        stops.longest - stops.missed(),
                        stops.longest,
                        kind.name()
                    )),
                    Some(_) => {}
                }
            }
        }
        missed
    }

    /// Takes another report in.
    pub fn add(&mut self, other: Report) {
        for (key, count) in other.counts {
            let sum = self.counts.entry(key).or_default();
            sum.images += count.images;
            sum.again += count.again;
            sum.opens.add(&count.opens);
        }
        self.steps.extend(other.steps);
        self.exhausted.extend(other.exhausted);
        for (key, stops) in other.stops {
            let sum = self.stops.entry(key).or_default();
            sum.longest = sum.longest.max(stops.longest);
            sum.from_first.extend(stops.from_first);
            sum.from_last.extend(stops.from_last);
        }
        self.wrong.extend(other.wrong);
    }
}

/// Up to so many decisions every subset is tried.
const EXHAUSTIVE_MAX: u32 = 7;
/// Torn images of each unit in a round behind the exhaustive one.
const TORN_EACH: u64 = 3;

/// Sweeps one workload with its share of the images.
///
/// Round 0 stops its first life at each step and takes an image of each kind; round 1 takes all subsets where few things are undecided, and stops recovery at each
/// of its steps; the rounds after lead other lives, and take what seeds say.
#[must_use]
pub fn sweep(workload: Workload, plan: &Plan) -> Report {
    let mut sweep = Sweep { workload, plan, report: Report::default(), left: plan.images, goes_on: false };
    for round in 0.. {
        sweep.goes_on = plan.whole && round < 2;
        let mut step = first_step(workload, variation(plan, round));
        let from = step;
        while !sweep.is_over() && sweep.crash(round, step) {
            step += 1;
        }
        if round == 0 {
            sweep.report.steps.insert(workload, step - from);
        }
        if sweep.is_over() {
            break;
        }
    }
    sweep.report
}

/// Runs one crash point again.
#[must_use]
pub fn replay(workload: Workload, plan: &Plan, round: u64, step: u64) -> Report {
    let mut sweep = Sweep { workload, plan, report: Report::default(), left: u64::MAX, goes_on: true };
    sweep.crash(round, step);
    sweep.report
}

/// Round 0 at so many of the workload's steps, evenly from the first to the last.
///
/// # Panics
///
/// If there are fewer than two, or the workload has fewer steps.
#[must_use]
pub fn sample(workload: Workload, plan: &Plan, points: u64) -> Report {
    let mut sweep = Sweep { workload, plan, report: Report::default(), left: u64::MAX, goes_on: true };
    let first = first_step(workload, variation(plan, 0));
    let last = sweep.live(0, u64::MAX, None).0.steps() - 1;
    assert!((2..=last - first + 1).contains(&points), "{points} of the steps {first} to {last}");
    for point in 0..points {
        let step = first + point * (last - first) / (points - 1);
        assert!(sweep.crash(0, step), "the life goes on to step {last}, and has no step {step}");
    }
    sweep.report.steps.insert(workload, points);
    sweep.report
}

/// The first two rounds are about the same life.
fn variation(plan: &Plan, round: u64) -> u64 {
    mix(&[plan.seed, round.saturating_sub(1)])
}

/// Making the log is stopped at in the workload that is about it.
fn first_step(workload: Workload, variation: u64) -> u64 {
    if workload == Workload::Create {
        return 0;
    }
    let mut step = 0;
    let mut oracle = Oracle::default();
    while !oracle.created {
        let disk = TestDisk::new();
        disk.stop_at(step);
        oracle = Oracle::default();
        let _ = catch_unwind(AssertUnwindSafe(|| workload.live(&disk, &mut oracle, variation)));
        step += 1;
    }
    step - 1
}

struct Sweep<'p> {
    workload: Workload,
    plan: &'p Plan,
    report: Report,
    left: u64,
    /// Also when no image is left.
    goes_on: bool,
}

impl Sweep<'_> {
    fn is_over(&self) -> bool {
        self.left == 0 && !self.goes_on || self.report.wrong.len() >= self.plan.wrong_max
    }

    fn live(&self, round: u64, step: u64, restless: Option<u64>) -> (TestDisk, Oracle, Option<String>) {
        let disk = TestDisk::new();
        if let Some(lie) = self.plan.lie {
            disk.lie(lie);
        }
        disk.write_back_between(restless);
        disk.stop_at(step);
        let mut oracle = Oracle::default();
        let variation = variation(self.plan, round);
        let lived = catch_unwind(AssertUnwindSafe(|| self.workload.live(&disk, &mut oracle, variation)));
        disk.write_back_between(None);
        let wrong = match lived {
            Ok(Ok(())) => None,
            Ok(Err(Gone(_))) if disk.stopped() => None,
            Ok(Err(Gone(error))) => Some(format!("the life itself failed: {error}")),
            Err(panic) => Some(format!("PANIC {}", text(&*panic))),
        };
        (disk, oracle, wrong)
    }

    /// Whether the life has this step.
    fn crash(&mut self, round: u64, step: u64) -> bool {
        let (disk, oracle, wrong) = self.live(round, step, None);
        if let Some(wrong) = wrong {
            self.wrong(round, step, Kind::Killed, wrong);
        }
        if !disk.stopped() {
            return false;
        }
        let mut random = Random::new(mix(&[self.plan.seed, self.workload as u64, round, step]));
        let by = |unit, random: &mut Random| Survive::By { unit, seed: random.next() };
        let mut images = Vec::new();
        if round == 1 {
            let so_far = self.report.exhausted.entry(self.workload).or_default();
            so_far.2 += 1;
            for (kind, unit, exhausted) in [
                (Kind::TornSectors, Unit::Sector, &mut so_far.0),
                (Kind::TornPages, Unit::Page, &mut so_far.1),
            ] {
                let undecided = disk.undecided(unit);
                if undecided <= EXHAUSTIVE_MAX {
                    *exhausted += 1;
                    images.extend((0..1 << undecided).map(|mask| (kind, Survive::Chosen { unit, mask })));
                } else {
                    images.extend((0..1 << EXHAUSTIVE_MAX.min(4)).map(|_| (kind, by(unit, &mut random))));
                }
            }
        } else {
            images.extend([(Kind::Lost, Survive::Nothing), (Kind::Kept, Survive::Everything)]);
            for _ in 0..if round == 0 { 1 } else { TORN_EACH } {
                images.push((Kind::TornSectors, by(Unit::Sector, &mut random)));
                images.push((Kind::TornPages, by(Unit::Page, &mut random)));
            }
        }
        for (kind, survive) in images {
            let image = disk.after_power_loss(survive);
            self.image(round, step, kind, &image, &oracle, &mut random);
        }
        // A second life with the same steps, in which the system has written what it liked.
        let (restless, oracle_there, _) = self.live(round, step, Some(random.next()));
        for survive in [Survive::Nothing, by(Unit::Sector, &mut random), by(Unit::Page, &mut random)] {
            let image = restless.after_power_loss(survive);
            self.image(round, step, Kind::Reordered, &image, &oracle_there, &mut random);
        }
        self.image(round, step, Kind::Killed, &disk.after_kill(), &oracle, &mut random);
        true
    }

    fn image(
        &mut self,
        round: u64,
        step: u64,
        kind: Kind,
        disk: &TestDisk,
        oracle: &Oracle,
        random: &mut Random,
    ) {
        if self.is_over() {
            return;
        }
        self.left = self.left.saturating_sub(1);
        let (before, full) = (disk.copied_in_place(), random.below(3) == 0);
        let mut opens = Opens::default();
        let found =
            catch_unwind(AssertUnwindSafe(|| check::image(disk, oracle, kind.boot(), full, &mut opens)));
        let count = self.report.counts.entry((self.workload, kind)).or_default();
        count.images += 1;
        count.opens.add(&opens);
        match found {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return,
            Ok(Err(wrong)) => return self.wrong(round, step, kind, wrong),
            Err(panic) => return self.wrong(round, step, kind, format!("PANIC {}", text(&*panic))),
        }
        let copy = || before.copied_in_place();
        self.held(round, step, kind, || salvage::salvaged(&copy(), oracle, &[]));
        if kind == Kind::Killed {
            let by_file = random.below(2) == 0;
            self.held(round, step, kind, || check::harmed(&copy(), oracle, by_file));
            self.held(round, step, kind, || check::older(&copy(), oracle));
            self.held(round, step, kind, || salvage::without_superblock(&copy(), oracle));
        }
        self.crash_recovery(round, step, kind, &before, oracle, random);
    }

    /// Recovery is crashed too: at each of its steps where that is the round's matter, elsewhere at one by chance and, in a whole sweep, at those that none of the kind was stopped at before. What survives is the same for each step, wherever else it is stopped,
    /// so that a replay meets it again.
    fn crash_recovery(
        &mut self,
        round: u64,
        step: u64,
        kind: Kind,
        image: &TestDisk,
        oracle: &Oracle,
        random: &mut Random,
    ) {
        let mut undisturbed = None;
        self.held(round, step, kind, || {
            check::undisturbed(image, kind.boot()).map(|end| undisturbed = Some(end))
        });
        let Some(undisturbed) = undisturbed else { return };
        let steps = undisturbed.steps;
        let seed = random.next();
        let drawn = Random::new(seed).below(steps);
        let every = round == 1 && matches!(kind, Kind::Reordered | Kind::Killed);
        let stops = self.report.stops.entry((self.workload, kind)).or_default();
        stops.longest = stops.longest.max(steps);
        let is_place = |at: &u64| every || *at == drawn || self.plan.whole && stops.is_new(*at, steps);
        let places: Vec<u64> = (0..steps).filter(is_place).collect();
        for at in places {
            let mut random = Random::new(mix(&[seed, at]));
            let survive = match random.below(4) {
                0 => Some(Survive::Nothing),
                1 => Some(Survive::By { unit: Unit::Sector, seed: random.next() }),
                2 => Some(Survive::By { unit: Unit::Page, seed: random.next() }),
                _ => None,
            };
            self.held(round, step, kind, || {
                check::again(image, &undisturbed, oracle, kind.boot(), at, survive)
            });
            if let Some(count) = self.report.counts.get_mut(&(self.workload, kind)) {
                count.again += 1;
            }
            if let Some(stops) = self.report.stops.get_mut(&(self.workload, kind)) {
                stops.add(at, steps);
            }
            self.left = self.left.saturating_sub(1);
            if self.report.wrong.len() >= self.plan.wrong_max {
                return;
            }
        }
    }

    /// What does not hold, or panics, is wrong.
    fn held(&mut self, round: u64, step: u64, kind: Kind, check: impl FnOnce() -> Result<(), String>) {
        match catch_unwind(AssertUnwindSafe(check)) {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => self.wrong(round, step, kind, wrong),
            Err(panic) => self.wrong(round, step, kind, format!("PANIC {}", text(&*panic))),
        }
    }

    fn wrong(&mut self, round: u64, step: u64, kind: Kind, text: String) {
        let place = format!("--replay {},{round},{step} --seed {}", self.workload.name(), self.plan.seed);
        self.report.wrong.push(Wrong { place, text: format!("{}: {text}", kind.name()) });
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("in the code under test").to_owned()
}
