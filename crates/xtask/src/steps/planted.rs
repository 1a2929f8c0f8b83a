//! Bugs on purpose: each is planted and looked for near the seeds where it is known to be found.

use std::time::Duration;

use super::sim::{PLANTED_FLAGS, PLANTED_FOLDER, commit};
use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;
use crate::tally::Tally;

/// What its build and run may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// What a line about a bug says that was not found.
const NOT_FOUND: &str = "NOT FOUND";

pub(super) fn run(context: &Context) -> Outcome {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let words = ["run", "--release", "--quiet", "--locked", "-p", "windlass-sim", "--"];
    let run = Run::cargo(context, &[&words[..], &["--known", "--jobs", &jobs]].concat())
        .env("RUSTFLAGS", PLANTED_FLAGS)
        .env("CARGO_TARGET_DIR", context.root.join(PLANTED_FOLDER))
        .limit(LIMIT)
        .show(worth_reading);
    let finished = run.finish(context, "planted");
    match (finished.success, counts(&finished.output)) {
        (true, Some(tally)) if tally.passed > 0 => Outcome::Passed(tally),
        (_, tally) => Outcome::Failed {
            tally: tally.unwrap_or_default(),
            why: format!(
                "commit {}: {}; `cargo xtask planted NAME --seeds COUNT` looks in more seeds than an ordinary run has",
                commit(context),
                finished.how
            ),
        },
    }
}

/// `N planted bugs found, N not, …`, a case for each.
fn counts(output: &str) -> Option<Tally> {
    let line = output.lines().find(|line| line.contains(" planted bugs found, "))?;
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    Some(Tally { passed: numbers.next()?, failed: numbers.next()?, skipped: 0 })
}

fn worth_reading(line: &str) -> bool {
    let said = [" without a bug", " is not where it was", " planted bugs found, "];
    line.ends_with(NOT_FOUND) || said.iter().any(|said| line.contains(said))
}

#[cfg(test)]
mod tests {
    use super::{counts, worth_reading};
    use crate::tally::Tally;

    #[test]
    fn the_bugs_are_counted_from_the_summary() {
        let output = "R-1    1  liveness: no\nR-2    -  NOT FOUND\n24 planted bugs found, 1 not, 9.9 seconds: not R-2\n";
        assert_eq!(counts(output), Some(Tally { passed: 24, failed: 1, skipped: 0 }));
        assert_eq!(counts("error: could not compile"), None);
        assert_eq!(output.lines().filter(|line| worth_reading(line)).count(), 2);
    }
}
