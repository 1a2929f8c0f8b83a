//! Real processes under random faults, for a minute.

use std::time::Duration;

use super::sim::commit;
use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;
use crate::tally::Tally;

const SECONDS: &str = "60";
/// What its build, its run and a group that heals slowly may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);

pub(super) fn run(context: &Context) -> Outcome {
    // Another seed for each commit: a fault that depends on the moment is not found by the same moments.
    let commit = commit(context);
    let seed = commit.bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let seed = (seed % 1_000_000).to_string();
    let words = ["run", "--release", "--quiet", "--locked", "-p", "windlass-cli", "--"];
    let chaos = ["chaos", "--seconds", SECONDS, "--seed", &seed];
    let run = Run::cargo(context, &[&words[..], &chaos].concat()).limit(LIMIT).show(worth_reading);
    let finished = run.finish(context, "chaos");
    let summary = finished.output.lines().find(|line| line.starts_with("chaos: "));
    if !finished.success {
        return Outcome::failed(format!("commit {commit}, seed {seed}: {}", finished.how));
    }
    // A run in which nothing happened shows nothing.
    match summary.and_then(takeovers) {
        Some(takeovers) if takeovers > 0 => Outcome::Passed(Tally { passed: 1, ..Tally::default() }),
        Some(_) | None => {
            Outcome::failed(format!("commit {commit}, seed {seed}: no takeover in {SECONDS} s"))
        }
    }
}

fn takeovers(summary: &str) -> Option<u64> {
    let words: Vec<&str> = summary.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("takeovers"))?;
    words[at.checked_sub(1)?].parse().ok()
}

fn worth_reading(line: &str) -> bool {
    ["chaos: ", "VIOLATION", "SKIPPED", "windlass: "].iter().any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::takeovers;

    #[test]
    fn the_takeovers_are_read_from_the_summary() {
        let line = "chaos: seed 1, 60 s: 14 takeovers, 8 acknowledged, 0 unknown (0 of them in the log), 0 refused, 0 lost, 0 violations";
        assert_eq!(takeovers(line), Some(14));
        assert_eq!(takeovers("chaos: nothing"), None);
    }
}
