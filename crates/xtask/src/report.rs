//! What the steps came to: a line for each as it ends, a table at the end, what failed, and the closing line.

use std::time::{Duration, Instant};

use crate::Context;
use crate::failures::{self, Failure};
use crate::tally::Tally;

/// A named part of `cargo xtask test`.
pub(crate) struct Step {
    /// What `--only` takes.
    pub(crate) name: &'static str,
    /// What it checks, for `--list`.
    pub(crate) about: &'static str,
    /// Runs it.
    pub(crate) run: fn(&Context) -> Outcome,
}

/// How a step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All of it held; the cases that its runner counted, where it counts any.
    Passed(Tally),
    /// Something did not.
    Failed {
        /// The cases that its runner counted, where it got that far.
        tally: Tally,
        /// What did not hold, in a line.
        why: String,
    },
    /// It can't run here.
    Skipped {
        /// What is missing.
        why: String,
        /// What would bring it.
        cure: Cure,
    },
}

/// What would let a skipped step run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cure {
    /// This command: packages or tools that `--install` installs. Where CI is set, skipping for want of them is a failure.
    Install(String),
    /// Nothing that can be installed (hardware, a kernel, a part not in this checkout).
    Elsewhere(String),
}

impl Outcome {
    /// A step without cases of its own.
    pub(crate) fn passed() -> Outcome {
        Outcome::Passed(Tally::default())
    }

    /// A failed step without cases of its own.
    pub(crate) fn failed(why: impl Into<String>) -> Outcome {
        Outcome::Failed { tally: Tally::default(), why: why.into() }
    }
}

/// The outcomes so far.
pub(crate) struct Report {
    strict: bool,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    outcome: Outcome,
    failures: Vec<Failure>,
    time: Duration,
}

impl Report {
    /// `strict`: skipping for want of something installable is a failure.
    pub(crate) fn new(strict: bool) -> Report {
        Report { strict, rows: Vec::new() }
    }

    /// Runs a step and says how it ended.
    pub(crate) fn run(&mut self, step: &Step, context: &Context) {
        println!("== {}: {}", step.name, step.about);
        let start = Instant::now();
        let outcome = (step.run)(context);
        let (outcome, failures) = (self.judge(outcome), context.noted());
        let row = Row { name: step.name, outcome, failures, time: start.elapsed() };
        println!("== {}", row.line());
        self.rows.push(row);
    }

    fn judge(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Skipped { why, cure: Cure::Install(command) } if self.strict => {
                Outcome::failed(format!("may not be skipped where CI is set: {why}; run: {command}"))
            }
            Outcome::Passed(tally) if tally.failed > 0 => {
                Outcome::Failed { tally, why: format!("{} cases failed", tally.failed) }
            }
            other @ (Outcome::Passed(_) | Outcome::Failed { .. } | Outcome::Skipped { .. }) => other,
        }
    }

    /// Nothing failed, and something ran.
    pub(crate) fn good(&self) -> bool {
        self.sum().failed == 0 && !self.rows.is_empty()
    }

    /// Cases where a step has them, else one for the step. A step that failed without a failed case (it did not
    /// compile, it ran out of time) counts one failure.
    fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        for row in &self.rows {
            sum += match &row.outcome {
                Outcome::Passed(tally) if tally.total() > 0 => *tally,
                Outcome::Passed(_) => Tally { passed: 1, ..Tally::default() },
                Outcome::Failed { tally, .. } => Tally { failed: tally.failed.max(1), ..*tally },
                Outcome::Skipped { .. } => Tally { skipped: 1, ..Tally::default() },
            };
        }
        sum
    }

    /// Prints the table, what failed, and the closing line.
    pub(crate) fn print(&self, context: &Context) {
        println!();
        for line in self.lines(context) {
            println!("{line}");
        }
    }

    /// What failed stands behind the table: whoever sees only the end of a long output sees that.
    fn lines(&self, context: &Context) -> Vec<String> {
        let mut lines: Vec<String> = self.rows.iter().map(Row::line).collect();
        let failed = self.rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed { .. }));
        let failed: Vec<&Row> = failed.filter(|row| !row.failures.is_empty()).collect();
        let logs = context.logs.display().to_string();
        for row in &failed {
            lines.extend(failures::told(row.name, &logs, &row.failures, failed.len()));
        }
        let sum = self.sum();
        lines.push(format!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped));
        lines
    }
}

impl Row {
    fn line(&self) -> String {
        let (word, detail) = match &self.outcome {
            Outcome::Passed(tally) => ("PASS", cases(*tally)),
            Outcome::Failed { tally, why } => {
                let cases = cases(*tally);
                ("FAIL", if cases.is_empty() { why.clone() } else { format!("{why} ({cases})") })
            }
            Outcome::Skipped { why, cure: Cure::Install(command) } => {
                ("SKIPPED", format!("{why}; run: {command}"))
            }
            Outcome::Skipped { why, cure: Cure::Elsewhere(remedy) } => {
                ("SKIPPED", format!("{why}; {remedy}"))
            }
        };
        format!("{word:8} {:14} {:5.0} s  {detail}", self.name, self.time.as_secs_f64())
            .trim_end()
            .to_string()
    }
}

fn cases(tally: Tally) -> String {
    if tally.total() == 0 {
        return String::new();
    }
    format!("{} passed, {} failed, {} skipped cases", tally.passed, tally.failed, tally.skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Run;

    fn report(strict: bool, outcomes: &[Outcome]) -> Report {
        let mut report = Report::new(strict);
        for outcome in outcomes {
            let outcome = report.judge(outcome.clone());
            report.rows.push(Row { name: "step", outcome, failures: Vec::new(), time: Duration::ZERO });
        }
        report
    }

    #[test]
    fn cases_count_where_known_and_steps_where_not() {
        let passed = Outcome::Passed(Tally { passed: 40, failed: 0, skipped: 2 });
        let built = Outcome::failed("did not compile");
        let report = report(false, &[passed, Outcome::passed(), built]);
        assert_eq!(report.sum(), Tally { passed: 41, failed: 1, skipped: 2 });
        assert!(!report.good());
    }

    #[test]
    fn a_curable_skip_fails_only_where_strict() {
        let skip =
            Outcome::Skipped { why: "no g++".into(), cure: Cure::Install("apt-get install g++".into()) };
        let lenient = report(false, std::slice::from_ref(&skip));
        assert!(lenient.good());
        assert_eq!(lenient.sum().skipped, 1);
        let strict = report(true, &[skip]);
        assert!(!strict.good());
        assert_eq!(strict.sum(), Tally { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_failed_case_fails_a_step_that_calls_itself_passed() {
        let report = report(false, &[Outcome::Passed(Tally { passed: 9, failed: 1, skipped: 0 })]);
        assert!(!report.good());
    }

    /// A step that runs this command as Rust's tests are run.
    fn step(name: &'static str, run: fn(&Context) -> Outcome) -> Step {
        Step { name, about: "", run }
    }

    fn failing(context: &Context) -> Outcome {
        let script = "echo 'test kept ... ok'; echo 'test a::lost ... FAILED'
            printf '%s\\n' 'failures:' '---- a::lost stdout ----'
            echo \"thread 'a::lost' (3) panicked at src/kill.rs:45:9:\"; echo '3 of 9 are there'
            echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'
            for line in $(seq 200); do echo noise $line; done; exit 101";
        crate::steps::tests(Run::new(context, "sh", &["-c", script]), context, "failing")
    }

    #[test]
    fn what_failed_stands_between_the_table_and_the_counts() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(folder.path().to_path_buf(), folder.path().to_path_buf());
        let mut report = Report::new(false);
        report.run(&step("failing", failing), &context);
        report.run(&step("passing", |_| Outcome::passed()), &context);
        let told = |context: &Context| crate::steps::told(context, &["a.rs: too long".to_string()], 7);
        report.run(&step("told", told), &context);
        let lines = report.lines(&context);
        let logs = folder.path().display();
        assert_eq!(
            lines[3..],
            [
                format!("failed in failing (whole output: {logs}):"),
                "  a::lost".to_string(),
                "      panicked at src/kill.rs:45:9:".to_string(),
                "      3 of 9 are there".to_string(),
                format!("failed in told (whole output: {logs}):"),
                "  a.rs: too long".to_string(),
                "2 passed, 2 failed, 0 skipped".to_string(),
            ]
        );
    }

    #[test]
    fn what_a_step_that_passed_has_noted_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(folder.path().to_path_buf(), folder.path().to_path_buf());
        let noting = |context: &Context| {
            Run::new(context, "sh", &["-c", "exit 1"]).finish(context, "tried");
            context.note([Failure::named("only tried")]);
            Outcome::passed()
        };
        let mut report = Report::new(false);
        report.run(&step("noting", noting), &context);
        assert!(context.noted().is_empty(), "it would count against the next step");
        assert_eq!(report.lines(&context).len(), 2);
    }

    #[test]
    fn nothing_run_is_not_good() {
        assert!(!Report::new(false).good());
    }
}
