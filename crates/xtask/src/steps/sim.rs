//! The simulator: a bounded number of seeds, each a world of its own.

use std::time::Duration;

use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;
use crate::tally::Tally;

/// How many seeds, from the first.
const SEEDS: u64 = 2_400;
/// What its build and run may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);

pub(super) fn run(context: &Context) -> Outcome {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let seeds = SEEDS.to_string();
    let words = [
        "run",
        "--release",
        "--quiet",
        "--locked",
        "-p",
        "windlass-sim",
        "--",
        "--seeds",
        &seeds,
        "--jobs",
        &jobs,
    ];
    let run = Run::cargo(context, &words).limit(LIMIT).show(worth_reading);
    let finished = run.finish(context, "sim");
    if finished.success {
        return Outcome::Passed(Tally { passed: SEEDS, ..Tally::default() });
    }
    let failed =
        u64::try_from(finished.output.lines().filter(|line| is_violation(line)).count()).unwrap_or(1);
    let tally = Tally { passed: SEEDS.saturating_sub(failed), failed: failed.max(1), skipped: 0 };
    Outcome::Failed {
        tally,
        why: format!("commit {}: how seeds came to it is in target/xtask/sim.log", commit(context)),
    }
}

/// What the build with planted bugs is made with, and where.
pub(crate) const PLANTED_FLAGS: &str = "--cfg planted";
pub(crate) const PLANTED_FOLDER: &str = "target/planted";

/// Whether a line tells what a seed found.
fn is_violation(line: &str) -> bool {
    line.starts_with("seed ") && line.contains(": VIOLATION ")
}

fn worth_reading(line: &str) -> bool {
    let is_missing = line.starts_with("never met") || line.starts_with("not switched off");
    is_violation(line) || is_missing || line.contains(" records acknowledged, ")
}

/// The commit that is checked out, with a `+` where files differ from it: with its seed it replays a run.
pub(crate) fn commit(context: &Context) -> String {
    let git = |words: &[&str]| {
        let output = std::process::Command::new("git").args(words).current_dir(&context.root).output();
        output
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changed| !changed.is_empty());
    if is_changed { commit + "+" } else { commit }
}
