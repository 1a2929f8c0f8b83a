//! `windlass-sim`: runs seeds. `cargo xtask sim` calls it.
//!
//! * `--seed N` runs one and shows its last lines, all of them with `--lines`.
//! * `--seeds COUNT [--first N]` runs many on `--jobs` threads and ends with one summary line; of the first seeds that fail the last lines are shown, and a run
//!   whose seeds never met something on the list of [`windlass_sim::coverage`], or met a fault that its switch leaves there ([`windlass_sim::switches`]), fails.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use windlass_sim::coverage::{Coverage, Mark};
use windlass_sim::setting::Setting;
use windlass_sim::switches::Densest;
use windlass_sim::{Report, run, run_with};

/// Lines shown of a seed that failed.
const LINES: usize = 60;
/// Of a run over many seeds so many that failed are run again, to show their lines.
const SEEDS_SHOWN: usize = 3;
/// A run over fewer seeds than this need not have switched every fault off.
const SEEDS_FOR_SWITCHES: u64 = 600;

#[derive(Parser)]
#[command(name = "windlass-sim", about = "Runs windlass in a simulated world, from seeds")]
struct Arguments {
    /// Run this seed and show what happened
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// With --seed: every line instead of the last ones
    #[arg(long, requires = "seed")]
    lines: bool,
    /// With --seed: switch this fault off (may be given more than once), to see which one matters: a name as in `fabric.broken` or `Kill`
    #[arg(long, requires = "seed", value_name = "FAULT")]
    off: Vec<String>,
    /// Run so many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// On so many threads
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Show how often each fault and step was met
    #[arg(long)]
    coverage: bool,
}

/// Looks for the bugs that are planted on purpose.
#[cfg(planted)]
#[derive(Parser)]
struct Planted {
    /// Those whose name contains this
    #[arg(default_value = "")]
    of: String,
    /// Look only near the seeds where each is known to be found
    #[arg(long, conflicts_with_all = ["seeds", "first", "only"])]
    known: bool,
    /// Seeds to look in for each
    #[arg(long, default_value_t = 2400)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// On so many threads
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Plant only this one and go on as an ordinary build does, with the arguments behind it
    #[arg(long)]
    only: bool,
    /// Arguments for the ordinary build
    #[arg(last = true)]
    rest: Vec<String>,
}

fn main() -> ExitCode {
    #[cfg(planted)]
    {
        let planted = Planted::parse();
        if !planted.only {
            std::panic::set_hook(Box::new(|_| {}));
            let is_good = if planted.known {
                windlass_sim::planted::find_known(&planted.of, planted.jobs)
            } else {
                windlass_sim::planted::find(&planted.of, planted.first, planted.seeds, planted.jobs)
            };
            return if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        let named = windlass_log::planted::Bug::ALL.iter().find(|bug| bug.name() == planted.of);
        windlass_log::planted::plant(named.copied().unwrap_or(windlass_log::planted::Bug::None));
        let words = std::iter::once("windlass-sim".to_owned()).chain(planted.rest);
        return run_ordinary(&Arguments::parse_from(words));
    }
    #[cfg(not(planted))]
    run_ordinary(&Arguments::parse())
}

fn run_ordinary(arguments: &Arguments) -> ExitCode {
    // A panic in the code under test is told as a violation.
    std::panic::set_hook(Box::new(|_| {}));
    let is_good = match arguments.seed {
        Some(seed) => one(seed, arguments),
        None => many(arguments),
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, arguments: &Arguments) -> bool {
    let mut setting = Setting::of(seed);
    for name in &arguments.off {
        if !setting.switch_off(name) {
            println!("no fault is called {name}");
            return false;
        }
    }
    let report = run_with(seed, setting, true);
    for line in last_lines(&report, if arguments.lines { usize::MAX } else { LINES }) {
        println!("{line}");
    }
    if arguments.coverage {
        print!("{}", report.coverage);
    }
    println!(
        "seed {seed}: {} events in {} virtual ms, {} acknowledged, {} unknown, {} tenures, digest {:016x}",
        report.events,
        report.virtual_ns / 1_000_000,
        report.minimum.acknowledged,
        report.unknown,
        report.minimum.tenures,
        report.digest.0
    );
    match &report.violation {
        Some(violation) => println!("VIOLATION {violation}"),
        None if report.is_thin() => println!("it does too little: {}", report.minimum),
        None => println!("no violation"),
    }
    report.violation.is_none() && !report.is_thin()
}

/// What a run has said at its end, and how much it has said before.
fn last_lines(report: &Report, most: usize) -> Vec<String> {
    let skipped = report.lines.len().saturating_sub(most);
    let told = (skipped > 0).then(|| format!("... {skipped} lines before (--lines shows them)"));
    told.into_iter().chain(report.lines[skipped..].iter().cloned()).collect()
}

/// The first seeds that failed once more, by `again` with their lines kept: how each came to its end.
fn traces(failed: &BTreeSet<u64>, again: impl Fn(u64) -> Report) -> Vec<String> {
    let shown = failed.iter().take(SEEDS_SHOWN).flat_map(|seed| {
        let report = again(*seed);
        let mut lines = vec![format!("---- seed {seed}, run again, at its end:")];
        lines.extend(last_lines(&report, LINES));
        lines.push(match &report.violation {
            Some(violation) => format!("---- seed {seed}: {violation}"),
            None if report.is_thin() => format!("---- seed {seed} does too little: {}", report.minimum),
            None => format!("---- seed {seed} has not failed again: a run is not its seed any more"),
        });
        lines
    });
    shown.collect()
}

#[derive(Default)]
struct Sum {
    seeds: u64,
    events: u64,
    acknowledged: u64,
    unknown: u64,
    tenures: u64,
    failed: BTreeSet<u64>,
    densest: Densest,
    coverage: Coverage,
}

impl Sum {
    fn add(&mut self, report: Report) {
        self.densest.note(&report);
        self.seeds += 1;
        self.events += report.events;
        self.acknowledged += report.minimum.acknowledged;
        self.unknown += report.unknown;
        self.tenures += report.minimum.tenures;
        if report.is_thin() {
            println!("seed {}: VIOLATION it does too little: {}", report.seed, report.minimum);
            self.failed.insert(report.seed);
        }
        if let Some(violation) = report.violation {
            println!("seed {}: VIOLATION {violation}", report.seed);
            self.failed.insert(report.seed);
        }
        self.coverage.merge(report.coverage.counts());
    }
}

fn many(arguments: &Arguments) -> bool {
    let start = Instant::now();
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.seeds;
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let report = run(seed, false);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(report);
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    for line in traces(&sum.failed, |seed| run(seed, true)) {
        println!("{line}");
    }
    if arguments.coverage {
        print!("{}", sum.coverage);
    }
    let missing = sum.coverage.missing(sum.seeds);
    let not_gone = if sum.seeds >= SEEDS_FOR_SWITCHES { sum.densest.not_gone() } else { Vec::new() };
    for fault in &not_gone {
        println!("not switched off: {fault}");
    }
    for mark in &missing {
        println!("never met in {} seeds: {}", sum.seeds, mark.name());
    }
    for seed in &sum.failed {
        println!("cargo xtask sim --seed {seed}");
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} records acknowledged, {} unknown, {} takeovers, {} faults of {} kinds, {} events ({:.0} a second), \
         {} violations, {:.1} seconds",
        sum.seeds,
        sum.acknowledged,
        sum.unknown,
        sum.tenures.saturating_sub(sum.seeds),
        faults(&sum.coverage, |count| count),
        faults(&sum.coverage, |count| u64::from(count > 0)),
        sum.events,
        f64_of(sum.events) / seconds.max(0.001),
        sum.failed.len(),
        seconds
    );
    sum.failed.is_empty() && missing.is_empty() && not_gone.is_empty()
}

fn faults(coverage: &Coverage, of: impl Fn(u64) -> u64) -> u64 {
    Mark::ALL.iter().filter(|mark| mark.is_fault()).map(|mark| of(coverage.count(*mark))).sum()
}

fn f64_of(count: u64) -> f64 {
    // Shown with no digits behind the point.
    u32::try_from(count / 1_000).map_or(f64::MAX, |thousands| f64::from(thousands) * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_sim::{Invariant, Violation};

    /// What a seed says is there, its end alone, and how it failed; of three seeds at most.
    #[test]
    fn the_first_seeds_that_fail_are_run_again_and_show_how_they_came_to_their_end() {
        let failing = |seed: u64| {
            let violation = Violation { invariant: Invariant::Liveness, what: format!("by {seed}") };
            Report { violation: Some(violation), ..run(seed, true) }
        };
        let lines = traces(&[5, 2, 4, 3].into(), failing);
        let of_seeds: Vec<&String> = lines.iter().filter(|line| line.starts_with("---- ")).collect();
        let said = |seed| {
            [
                format!("---- seed {seed}, run again, at its end:"),
                format!("---- seed {seed}: liveness (9.7): by {seed}"),
            ]
        };
        assert_eq!(of_seeds, [2, 3, 4].map(said).as_flattened().iter().collect::<Vec<_>>());
        let whole = run(2, true).lines;
        assert_eq!(lines[2..2 + LINES], whole[whole.len() - LINES..]);
        assert_eq!(lines[1], format!("... {} lines before (--lines shows them)", whole.len() - LINES));
        assert_eq!(lines.len(), SEEDS_SHOWN * (LINES + 3));
    }

    #[test]
    fn a_seed_that_does_not_fail_again_is_told() {
        let told = traces(&[1].into(), |seed| run(seed, true));
        assert_eq!(told.last().unwrap(), "---- seed 1 has not failed again: a run is not its seed any more");
        assert!(traces(&BTreeSet::new(), |_| unreachable!("nothing failed")).is_empty());
    }
}
