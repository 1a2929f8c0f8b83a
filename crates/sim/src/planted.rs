//! The bugs that are planted on purpose (`windlass_log::planted`): each must be found by the seeds of an ordinary run. Only with `--cfg planted`.
//!
//! [`find`] looks from the first seed on, for as many as it is told: minutes, by hand. [`find_known`] looks where [`KNOWN`] says that each is found, and in all
//! seeds of the ordinary run if it is not there any more: a step of `cargo xtask test`. A seed that fails without the bug, too, has found nothing.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use windlass_log::planted::{Bug, plant};

use crate::{Report, run};

/// Most are found within a few seeds.
const EARLY: RangeInclusive<u64> = 1..=60;

/// The seeds of the ordinary run.
const ORDINARY: RangeInclusive<u64> = 1..=2_400;

/// Where each bug is found. A change to what a seed does may move it: then looking takes longer, and says where to.
const KNOWN: &[(Bug, RangeInclusive<u64>)] = &[
    (Bug::R1, EARLY),
    (Bug::R2, EARLY),
    (Bug::R3, EARLY),
    (Bug::R4, 85..=100),
    (Bug::R5, EARLY),
    (Bug::R6, EARLY),
    (Bug::R7, 65..=72),
    (Bug::R8, 135..=150),
    (Bug::R9, EARLY),
    (Bug::R10, EARLY),
    (Bug::R11, EARLY),
    (Bug::R12, EARLY),
    (Bug::R13, EARLY),
    (Bug::R14, EARLY),
    (Bug::R15, EARLY),
    (Bug::R16, EARLY),
    (Bug::R17, 205..=220),
    (Bug::R18, 230..=236),
    (Bug::R19, EARLY),
    (Bug::R20, EARLY),
    (Bug::LearnerCounted, EARLY),
    (Bug::PredecessorForgotten, EARLY),
    (Bug::PlaceLost, EARLY),
    (Bug::CommitByPlaced, EARLY),
    (Bug::ColdPlaced, 325..=340),
    (Bug::SkippedDrain, 245..=255),
    (Bug::UncheckedAcknowledgement, EARLY),
    (Bug::ReusedKey, EARLY),
    (Bug::BehindOpen, EARLY),
    (Bug::FlushRetried, EARLY),
    (Bug::WordUnchecked, EARLY),
];

/// Runs the bugs whose name contains `of`, all of them if it is empty, each for up to `seeds` seeds from `first` on; one line for each. Whether all were found.
#[must_use]
pub fn find(of: &str, first: u64, seeds: u64, jobs: u64) -> bool {
    each(of, |bug| first_in(bug, first..=(first + seeds).saturating_sub(1), jobs))
}

/// The same, each in its range of [`KNOWN`], and where it is not there in all seeds of the ordinary run.
#[must_use]
pub fn find_known(of: &str, jobs: u64) -> bool {
    each(of, |bug| {
        let known = KNOWN.iter().find(|(known, _)| *known == bug).map(|(_, range)| range.clone());
        known.and_then(|range| first_in(bug, range, jobs)).or_else(|| {
            println!("{} is not where it was: looking in all", bug.name());
            first_in(bug, ORDINARY, jobs)
        })
    })
}

/// The first of these seeds that fails with this bug and passes without.
fn first_in(bug: Bug, seeds: RangeInclusive<u64>, jobs: u64) -> Option<Report> {
    let mut from = *seeds.start();
    while seeds.contains(&from) {
        let report = search(bug, from..=*seeds.end(), jobs)?;
        if search(Bug::None, report.seed..=report.seed, 1).is_none() {
            return Some(report);
        }
        println!("seed {} fails without a bug, too", report.seed);
        from = report.seed + 1;
    }
    None
}

/// Looks for each bug and says what came of it. Whether all were found.
fn each(of: &str, mut look: impl FnMut(Bug) -> Option<Report>) -> bool {
    let start = Instant::now();
    let (mut found, mut missed) = (0, Vec::new());
    println!("{:<24} {:>6}  found by", "planted bug", "seed");
    for bug in Bug::ALL.iter().copied().filter(|bug| bug.name().contains(of)) {
        match look(bug) {
            Some(report) => {
                found += 1;
                let violation = report.violation.map_or(String::new(), |violation| violation.to_string());
                let line = violation.lines().next().unwrap_or_default();
                let line: String = line.chars().take(140).collect();
                println!("{:<24} {:>6}  {line}", bug.name(), report.seed);
            }
            None => {
                missed.push(bug.name());
                println!("{:<24} {:>6}  NOT FOUND", bug.name(), "-");
            }
        }
    }
    plant(Bug::None);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{found} planted bugs found, {} not, {seconds:.1} seconds: {}",
        missed.len(),
        if missed.is_empty() { "all found".to_owned() } else { format!("not {}", missed.join(", ")) }
    );
    missed.is_empty() && found > 0
}

/// The first of these seeds that fails with this bug.
fn search(bug: Bug, seeds: RangeInclusive<u64>, jobs: u64) -> Option<Report> {
    plant(bug);
    let next = AtomicU64::new(*seeds.start());
    let is_found = AtomicBool::new(false);
    let failed: Mutex<Option<Report>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !is_found.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let report = run(seed, false);
                    if report.violation.is_some() {
                        is_found.store(true, Ordering::Relaxed);
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        if failed.as_ref().is_none_or(|other| other.seed > seed) {
                            *failed = Some(report);
                        }
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}
