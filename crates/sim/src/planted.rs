//! The bugs that are planted on purpose (`windlass_log::planted`): each must be found by the seeds of an ordinary run. Only with `--cfg planted`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use windlass_log::planted::{Bug, plant};

use crate::{Report, run};

/// Runs the bugs whose name contains `of`, all of them if it is empty, each for up to `seeds` seeds from `first` on; one line for each. Whether all were found.
#[must_use]
pub fn find(of: &str, first: u64, seeds: u64, jobs: u64) -> bool {
    let start = Instant::now();
    let (mut found, mut missed) = (0, 0);
    println!("{:<24} {:>6}  found by", "planted bug", "seed");
    for bug in Bug::ALL.iter().copied().filter(|bug| bug.name().contains(of)) {
        match search_for(bug, first, seeds, jobs) {
            Some(report) => {
                found += 1;
                let violation = report.violation.map_or(String::new(), |violation| violation.to_string());
                let line = violation.lines().next().unwrap_or_default();
                let line: String = line.chars().take(140).collect();
                println!("{:<24} {:>6}  {line}", bug.name(), report.seed);
            }
            None => {
                missed += 1;
                println!("{:<24} {:>6}  NOT FOUND in {seeds} seeds", bug.name(), "-");
            }
        }
    }
    plant(Bug::None);
    println!("{found} planted bugs found, {missed} not, {:.1} seconds", start.elapsed().as_secs_f64());
    missed == 0
}

/// The first seed that fails with this bug and passes without it: one that fails anyhow has not found it.
fn search_for(bug: Bug, first: u64, seeds: u64, jobs: u64) -> Option<Report> {
    let end = first + seeds;
    let mut from = first;
    while from < end {
        plant(bug);
        let report = search(from, end - from, jobs)?;
        plant(Bug::None);
        if run(report.seed, false).violation.is_none() {
            return Some(report);
        }
        println!("seed {} fails without a bug, too", report.seed);
        from = report.seed + 1;
    }
    None
}

/// The first seed that fails, by number.
fn search(first: u64, seeds: u64, jobs: u64) -> Option<Report> {
    let next = AtomicU64::new(first);
    let is_found = AtomicBool::new(false);
    let failed: Mutex<Option<Report>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !is_found.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
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
