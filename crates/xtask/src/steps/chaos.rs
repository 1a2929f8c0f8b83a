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
    let place = format!("commit {commit}, seed {seed}");
    if !finished.success {
        return Outcome::failed(format!("{place}: {}", finished.how));
    }
    match judge(&finished.output, crate::is_strict()) {
        Ok(tally) => Outcome::Passed(tally),
        Err(why) => Outcome::failed(format!("{place}: {why}")),
    }
}

/// A run in which nothing happened shows nothing: a leader has to have fallen, and each kind of fault to have been made. What can't be made on this
/// machine counts as skipped, which is a failure where `strict`.
fn judge(output: &str, strict: bool) -> Result<Tally, String> {
    let skipped: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("SKIPPED ")).collect();
    if strict && !skipped.is_empty() {
        return Err(format!("may not be skipped where CI is set: {}", skipped.join("; ")));
    }
    let skips = u64::try_from(skipped.len()).unwrap_or(u64::MAX);
    let Some(summary) = output.lines().find_map(summary) else { return Err("no summary".to_owned()) };
    if summary.takeovers == 0 {
        return Err(format!("no takeover in {SECONDS} s"));
    }
    if summary.made + skips < summary.kinds {
        return Err(format!("{} of {} kinds of fault in {SECONDS} s", summary.made, summary.kinds));
    }
    Ok(Tally { passed: 1, failed: 0, skipped: skips })
}

struct Summary {
    takeovers: u64,
    /// Kinds of fault that were made.
    made: u64,
    kinds: u64,
}

/// `chaos: …: N takeovers, N of N kinds of fault, …`.
fn summary(line: &str) -> Option<Summary> {
    let words: Vec<&str> = line.strip_prefix("chaos: ")?.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("takeovers"))?;
    let number = |at: usize| words.get(at)?.parse().ok();
    let [takeovers, made, kinds] = [number(at.checked_sub(1)?)?, number(at + 1)?, number(at + 3)?];
    (words.get(at + 4) == Some(&"kinds")).then_some(Summary { takeovers, made, kinds })
}

fn worth_reading(line: &str) -> bool {
    ["chaos: ", "VIOLATION", "SKIPPED", "never made: ", "windlass: "]
        .iter()
        .any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::tally::Tally;

    fn output(takeovers: u64, made: u64) -> String {
        format!(
            "disk full   0\nchaos: seed 1, 60 s: {takeovers} takeovers, {made} of 8 kinds of fault, 8 acknowledged, 0 unknown (0 of them in the log), 0 refused, 0 lost, 0 violations\n"
        )
    }

    #[test]
    fn a_run_without_a_takeover_or_a_kind_of_fault_shows_nothing() {
        assert_eq!(judge(&output(14, 8), true), Ok(Tally { passed: 1, failed: 0, skipped: 0 }));
        assert_eq!(judge(&output(0, 8), false), Err("no takeover in 60 s".to_owned()));
        assert_eq!(judge(&output(14, 7), false), Err("7 of 8 kinds of fault in 60 s".to_owned()));
        assert_eq!(judge("chaos: nothing", false), Err("no summary".to_owned()));
    }

    #[test]
    fn full_disks_that_can_not_be_made_are_skipped_but_where_ci_is_set() {
        let skipped = format!("SKIPPED full disks: run it as root\n{}", output(14, 7));
        assert_eq!(judge(&skipped, false), Ok(Tally { passed: 1, failed: 0, skipped: 1 }));
        let why = judge(&skipped, true).unwrap_err();
        assert_eq!(why, "may not be skipped where CI is set: full disks: run it as root");
        let fewer = format!("SKIPPED full disks: run it as root\n{}", output(14, 6));
        assert!(judge(&fewer, false).is_err(), "another kind is missing, too");
    }
}
