//! What failed, in a few lines: the part of a command's output that has to stand at the end, where somebody sees it who
//! is shown only the end.
//!
//! * Cases that Rust's test harness (or one that prints like it) calls FAILED, each with the message of its panic.
//! * Tests that never ended, where the whole program was ended.
//! * Errors of the compiler and of lints, each with its place; a program that ended by a signal; a sanitizer's summary.
//! * Where there is none of these, the last lines.

/// Lines of one failed step that are repeated, its heading included.
const STEP_LINES_MAX: usize = 25;
/// Lines of all failed steps together, so that the end of the output holds them all with the closing line.
const LINES_MAX: usize = 50;
/// Lines of a message that are kept.
const MESSAGE_LINES_MAX: usize = 8;
/// Characters of a line that are kept.
const LINE_CHARACTERS_MAX: usize = 240;
/// Lines that stand for an output in which nothing was recognised.
const LAST_LINES: usize = 8;

/// Something that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The case, or the error.
    pub(crate) name: String,
    /// What it said.
    pub(crate) message: Vec<String>,
}

impl Failure {
    /// One without more to say.
    pub(crate) fn named(name: &str) -> Failure {
        Failure { name: shortened(name), message: Vec::new() }
    }
}

/// What failed in a command, by its output.
pub(crate) fn in_output(output: &str) -> Vec<Failure> {
    let mut reading = Reading::default();
    for line in output.lines() {
        reading.line(line);
    }
    reading.end(output)
}

/// The lines to repeat for one of `steps` failed steps: each name, and as much of what each said as there is room for.
pub(crate) fn told(step: &str, log: &str, failures: &[Failure], steps: usize) -> Vec<String> {
    let room = (LINES_MAX / steps.max(1)).clamp(2, STEP_LINES_MAX) - 1;
    let mut lines = vec![format!("failed in {step} (whole output: {log}):")];
    let shown = if failures.len() <= room { failures.len() } else { room - 1 };
    let mut left = room.min(failures.len());
    for (at, failure) in failures[..shown].iter().enumerate() {
        lines.push(format!("  {}", failure.name));
        // What the names take is kept back; the rest is shared by those still to come.
        let share = (room - left).div_ceil(shown - at).min(failure.message.len());
        lines.extend(failure.message[..share].iter().map(|line| format!("      {line}")));
        left += share;
    }
    if shown < failures.len() {
        lines.push(format!("  and {} more", failures.len() - shown));
    }
    lines
}

/// Where a reading stands between two lines.
#[derive(Default)]
struct Reading {
    /// Failed cases, as they came.
    cases: Vec<Failure>,
    /// Errors that are no case.
    errors: Vec<Failure>,
    /// Tests that have been running for long and have not ended.
    running: Vec<String>,
    /// The case that the harness repeats the output of.
    section: Option<usize>,
    /// Panics outside any section since the last case ended: a harness that captures nothing prints them first.
    pending: Vec<String>,
    /// A panic's message goes on, in so many lines at most.
    panic_lines: usize,
    /// The last line was an error, whose place may follow.
    error_place: bool,
}

impl Reading {
    fn line(&mut self, line: &str) {
        let bare = line.trim();
        if let Some(name) = bare.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.section = self.cases.iter().rposition(|case| case.name == name);
            self.panic_lines = 0;
            if let Some(at) = self.section {
                // What was printed before was somebody else's: a child's, or another thread's.
                self.cases[at].message.clear();
            }
        } else if bare == "failures:" || bare.starts_with("test result: ") {
            self.section = None;
            self.panic_lines = 0;
        } else if self.section.is_none() && self.case(bare) {
            self.panic_lines = 0;
        } else if bare.starts_with("thread '") && bare.contains(" panicked at ") {
            self.panic_lines = MESSAGE_LINES_MAX;
            let (_, place) = bare.split_once(" panicked at ").unwrap_or(("", bare));
            self.says(&format!("panicked at {place}"));
        } else if self.panic_lines > 0 {
            if ends_message(bare) {
                self.panic_lines = 0;
            } else {
                self.says(line.trim_end());
            }
        } else if self.section.is_some() && bare.starts_with("Error: ") {
            self.says(bare);
        } else {
            self.error(bare);
        }
    }

    /// `test NAME ... HOW`, and `test NAME has been running for over 60 seconds`.
    fn case(&mut self, line: &str) -> bool {
        let Some(rest) = line.strip_prefix("test ") else { return false };
        if let Some((name, _)) = rest.split_once(" has been running for over ") {
            self.running.push(name.to_string());
            return true;
        }
        let Some((name, how)) = rest.rsplit_once(" ... ") else { return false };
        self.running.retain(|running| running != name);
        let pending = std::mem::take(&mut self.pending);
        if how.starts_with("FAILED") {
            let mut message = pending;
            if let Some((_, why)) = how.split_once(", ") {
                message.insert(0, shortened(why));
            }
            self.cases.push(Failure { name: name.to_string(), message });
        }
        true
    }

    fn says(&mut self, line: &str) {
        self.panic_lines = self.panic_lines.saturating_sub(1);
        let message = match self.section {
            Some(at) => &mut self.cases[at].message,
            None => &mut self.pending,
        };
        message.push(shortened(line));
    }

    /// Errors of the compiler, of lints, of cargo, of a sanitizer.
    fn error(&mut self, line: &str) {
        if std::mem::take(&mut self.error_place)
            && line.starts_with("--> ")
            && let Some(error) = self.errors.last_mut()
        {
            error.message.push(shortened(line));
            return;
        }
        let is_summary = ["could not compile", "test failed, to rerun", "target failed", "targets failed"];
        let is_error = line.starts_with("error: ") || line.starts_with("error[");
        if is_error && !is_summary.iter().any(|words| line.contains(words)) {
            self.errors.push(Failure::named(line));
            self.error_place = true;
        } else if line.starts_with("process didn't exit successfully") && line.contains("signal: ") {
            // The path of the program may be long, and the signal stands behind it.
            let (program, how) = line.rsplit_once(" (").unwrap_or((line, ""));
            let name = program.rsplit('/').next().unwrap_or(program).trim_end_matches('`');
            self.errors.push(Failure::named(&format!("{name} ended by {}", how.trim_end_matches(')'))));
        } else if line.starts_with("SUMMARY: ") {
            self.errors.push(Failure::named(line));
        }
    }

    fn end(self, output: &str) -> Vec<Failure> {
        let mut failures = self.cases;
        failures.extend(self.running.iter().map(|name| Failure {
            name: name.clone(),
            message: vec!["had run for over a minute and not ended".to_string()],
        }));
        failures.extend(self.errors);
        if failures.is_empty() && !self.pending.is_empty() {
            failures.push(Failure { name: "a panic".to_string(), message: self.pending });
        }
        if failures.is_empty() {
            let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
            failures.extend(last.iter().map(|line| Failure::named(line)));
        }
        failures
    }
}

fn ends_message(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("note: ")
        || line.starts_with("stack backtrace:")
        || line.starts_with("thread '")
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARNESS: &str = "\
     Running unittests src/lib.rs (target/debug/deps/embed_redb-1)
running 3 tests
test kept ... ok
thread 'helper' (7) panicked at src/child.rs:1:1:
a child's, whose case passed
test one::lost ... FAILED
test two ... FAILED

failures:

---- one::lost stdout ----
started with seed 7

thread 'one::lost' (99) panicked at src/kill.rs:45:9:
assertion `left == right` failed: 3 of 9 are there
  left: 3
 right: 9
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
test inside ... FAILED

---- two stdout ----
Error: Full { retained_bytes: 9 }

failures:
    one::lost
    two

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: test failed, to rerun pass `-p embed_redb --lib`
error: 1 target failed:
    `-p embed_redb --lib`
";

    fn names(failures: &[Failure]) -> Vec<&str> {
        failures.iter().map(|failure| failure.name.as_str()).collect()
    }

    #[test]
    fn failed_cases_come_with_the_message_of_their_panic_or_their_error() {
        let failures = in_output(HARNESS);
        assert_eq!(names(&failures), ["one::lost", "two"]);
        assert_eq!(
            failures[0].message,
            [
                "panicked at src/kill.rs:45:9:",
                "assertion `left == right` failed: 3 of 9 are there",
                "  left: 3",
                " right: 9"
            ]
        );
        assert_eq!(failures[1].message, ["Error: Full { retained_bytes: 9 }"]);
    }

    #[test]
    fn the_same_name_in_two_programs_keeps_its_own_message() {
        let other = HARNESS.replace("3 of 9", "4 of 9");
        let failures = in_output(&format!("{HARNESS}{other}"));
        assert_eq!(names(&failures), ["one::lost", "two", "one::lost", "two"]);
        assert!(failures[0].message[1].contains("3 of 9"));
        assert!(failures[2].message[1].contains("4 of 9"));
    }

    #[test]
    fn a_harness_that_captures_nothing_prints_the_panic_first() {
        let output = "\
test a ... ok (0.1 s)
thread '<unnamed>' (12) panicked at src/windows.rs:5:5:
a revoked write landed
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
test device_revoked ... FAILED, see its panic above (1.0 s)
test result: FAILED. 1 passed; 1 failed; 0 ignored
windlass-guest: status 1
";
        let failures = in_output(output);
        assert_eq!(names(&failures), ["device_revoked"]);
        let message =
            ["see its panic above (1.0 s)", "panicked at src/windows.rs:5:5:", "a revoked write landed"];
        assert_eq!(failures[0].message, message);
    }

    #[test]
    fn a_test_that_never_ended_is_named_and_one_that_did_is_not() {
        let output = "\
test slow has been running for over 60 seconds
test stuck has been running for over 60 seconds
test slow ... ok
";
        assert_eq!(names(&in_output(output)), ["stuck"]);
    }

    #[test]
    fn errors_of_a_compiler_come_with_their_place() {
        let output = "\
error[E0308]: mismatched types
   --> crates/log/src/lsn.rs:3:5
    |
error: unused variable: `x`
  --> a.rs:1:1
error: could not compile `windlass-log` (lib) due to 2 previous errors
";
        let failures = in_output(output);
        assert_eq!(names(&failures), ["error[E0308]: mismatched types", "error: unused variable: `x`"]);
        assert_eq!(failures[0].message, ["--> crates/log/src/lsn.rs:3:5"]);
        assert_eq!(failures[1].message, ["--> a.rs:1:1"]);
    }

    #[test]
    fn a_program_that_a_signal_ended_is_named() {
        let output = "\
error: test failed, to rerun pass `-p windlass --test world`
Caused by:
  process didn't exit successfully: `/a/b/deps/world-12ab` (signal: 11, SIGSEGV: invalid memory reference)
";
        let name = "world-12ab ended by signal: 11, SIGSEGV: invalid memory reference";
        assert_eq!(names(&in_output(output)), [name]);
    }

    #[test]
    fn where_nothing_is_recognised_the_last_lines_stand() {
        let output: String = (0..20).map(|number| format!("line {number}\n\n")).collect();
        let failures = in_output(&output);
        assert_eq!(failures.len(), LAST_LINES);
        assert_eq!(failures[0].name, "line 12");
        assert_eq!(failures[LAST_LINES - 1].name, "line 19");
    }

    #[test]
    fn what_is_told_is_bounded_and_names_come_before_messages() {
        let failure = |number: usize| Failure {
            name: format!("case {number}"),
            message: vec![format!("message {number}"); MESSAGE_LINES_MAX],
        };
        for cases in [1, 2, 5, 20, 24, 25, 300] {
            let failures: Vec<Failure> = (0..cases).map(failure).collect();
            for steps in [1, 2, 3, 10, 40] {
                let lines = told("extras", "target/xtask", &failures, steps);
                assert!(lines.len() <= STEP_LINES_MAX.min((LINES_MAX / steps).max(2)), "{cases} in {steps}");
                let named = lines.iter().filter(|line| line.starts_with("  case ")).count();
                let whole = lines.last().is_some_and(|line| line.starts_with("  and "));
                assert!(named == cases || whole, "{cases} in {steps}: {lines:?}");
            }
        }
        let lines = told("extras", "target/xtask", &[failure(0)], 1);
        assert_eq!(lines.len(), 2 + MESSAGE_LINES_MAX);
        assert_eq!(lines[0], "failed in extras (whole output: target/xtask):");
        assert_eq!(lines[2], "      message 0");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let failures = in_output(&format!("test x ... FAILED, {}", "ä".repeat(10_000)));
        assert_eq!(failures[0].message[0].chars().count(), LINE_CHARACTERS_MAX + 1);
    }
}
