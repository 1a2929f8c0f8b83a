//! The crash sweep of the store: each workload stopped at each of its steps with every subset and in recovery at each of its own, and other lives as far as the images go.

use std::time::Duration;

use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;
use crate::tally::Tally;

/// How many images, of all workloads together, where the first rounds do not need more.
const IMAGES: &str = "60000";
/// What its build and run may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);

pub(super) fn run(context: &Context) -> Outcome {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let words = [
        "run",
        "--release",
        "--quiet",
        "--locked",
        "-p",
        "windlass-sweep",
        "--",
        "--images",
        IMAGES,
        "--whole",
        "--jobs",
        &jobs,
    ];
    let finished = Run::cargo(context, &words).limit(LIMIT).show(worth_reading).finish(context, "sweep");
    if finished.success {
        return Outcome::Passed(Tally { passed: 1, ..Tally::default() });
    }
    Outcome::failed(format!("commit {}: see target/xtask/sweep.log", super::commit(context)))
}

fn worth_reading(line: &str) -> bool {
    line.starts_with("WRONG ") || line.starts_with("NOT REACHED ") || line.contains(" workloads opened, ")
}
