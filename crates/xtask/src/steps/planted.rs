//! Bugs on purpose: each is planted and looked for near the seeds where it is known to be found, and those of the engine in its small worlds as well.

use std::time::Duration;

use super::sim::{PLANTED_FLAGS, PLANTED_FOLDER, commit};
use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;
use crate::tally::Tally;

/// What its build and run may take, of the simulator and of the worlds.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// What a line about a bug says that was not found.
const NOT_FOUND: &str = "NOT FOUND";
/// The tests of `crates/engine/tests/worlds.rs` that are there in a build with planted bugs alone.
const WORLDS: u64 = 2;

pub(super) fn run(context: &Context) -> Outcome {
    let mut tally = Tally::default();
    for part in [seeds, worlds] {
        match part(context) {
            Ok(part) => tally += part,
            Err((part, why)) => {
                tally += part;
                return Outcome::Failed { tally, why: format!("commit {}: {why}", commit(context)) };
            }
        }
    }
    Outcome::Passed(tally)
}

/// What passed, or what failed and why.
type Part = Result<Tally, (Tally, String)>;

/// In the simulator, near the seed that is known.
fn seeds(context: &Context) -> Part {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let words = ["run", "--release", "--quiet", "--locked", "-p", "windlass-sim", "--"];
    let run = planted(context, &[&words[..], &["--known", "--jobs", &jobs]].concat());
    let finished = run.finish(context, "planted");
    match (finished.success, counts(&finished.output)) {
        (true, Some(tally)) if tally.passed > 0 => Ok(tally),
        (_, tally) => Err((
            tally.unwrap_or_default(),
            format!(
                "{}; `cargo xtask planted NAME --seeds COUNT` looks in more seeds than an ordinary run has",
                finished.how
            ),
        )),
    }
}

/// In the engine's small worlds, one test after the other: what is planted is the whole process's.
fn worlds(context: &Context) -> Part {
    let words = ["test", "--release", "--quiet", "--locked", "-p", "windlass-engine", "--test", "worlds"];
    let run = planted(context, &[&words[..], &["planted_", "--", "--test-threads=1"]].concat());
    let finished = run.finish(context, "planted-worlds");
    judge_worlds(finished.success, &finished.how, Tally::from_output(&finished.output))
}

/// Without the flag neither test is there, and their filter succeeds with none.
fn judge_worlds(success: bool, how: &str, tally: Tally) -> Part {
    let is_whole = tally == Tally { passed: WORLDS, failed: 0, skipped: 0 };
    if success && is_whole {
        return Ok(tally);
    }
    Err((tally, format!("small worlds: {} of {WORLDS} tests passed: {how}", tally.passed)))
}

/// Cargo in a build whose rules can be taken away, in a folder of its own.
fn planted(context: &Context, words: &[&str]) -> Run {
    Run::cargo(context, words)
        .env("RUSTFLAGS", PLANTED_FLAGS)
        .env("CARGO_TARGET_DIR", context.root.join(PLANTED_FOLDER))
        .limit(LIMIT)
        .show(worth_reading)
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
    use super::{WORLDS, counts, judge_worlds, worth_reading};
    use crate::tally::Tally;

    #[test]
    fn the_bugs_are_counted_from_the_summary() {
        let output = "R-1    1  liveness: no\nR-2    -  NOT FOUND\n24 planted bugs found, 1 not, 9.9 seconds: not R-2\n";
        assert_eq!(counts(output), Some(Tally { passed: 24, failed: 1, skipped: 0 }));
        assert_eq!(counts("error: could not compile"), None);
        assert_eq!(output.lines().filter(|line| worth_reading(line)).count(), 2);
    }

    #[test]
    fn worlds_that_were_not_gone_through_are_not_taken_for_held() {
        let of = |passed, failed, skipped| Tally { passed, failed, skipped };
        let none = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 18 filtered out; finished in 0.00s\n";
        let (_, why) = judge_worlds(true, "exit status: 0", Tally::from_output(none)).unwrap_err();
        assert_eq!(why, "small worlds: 0 of 2 tests passed: exit status: 0");
        assert_eq!(judge_worlds(true, "exit status: 0", of(WORLDS, 0, 0)), Ok(of(WORLDS, 0, 0)));
        for (success, tally) in [
            (true, of(WORLDS - 1, 0, 0)),
            (true, of(WORLDS - 1, 0, 1)),
            (true, of(WORLDS + 1, 0, 0)),
            (false, of(WORLDS, 0, 0)),
        ] {
            judge_worlds(success, "", tally).unwrap_err();
        }
        // The tests are where the filter looks for them, under the flag, and as many as are asked for.
        let text = include_str!("../../../engine/tests/worlds.rs");
        let there = text.split("#[cfg(planted)]\n#[test]\nfn planted_").count() - 1;
        assert_eq!(u64::try_from(there), Ok(WORLDS));
    }
}
