//! Test cases, as the runners themselves count them.

use std::ops::AddAssign;

/// Cases counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Cases that passed.
    pub(crate) passed: u64,
    /// Cases that failed.
    pub(crate) failed: u64,
    /// Cases that were there and did not run.
    pub(crate) skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Tally {
    /// Sums the `test result:` lines that Rust's test harness prints, one for each test program.
    ///
    /// Criterion-like filtered runs and other lines count nothing.
    pub(crate) fn from_output(output: &str) -> Tally {
        let mut sum = Tally::default();
        for line in output.lines() {
            let Some((_, counts)) =
                line.trim_start().strip_prefix("test result: ").and_then(|l| l.split_once(". "))
            else {
                continue;
            };
            for part in counts.split(';') {
                let mut words = part.split_whitespace();
                let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
                match words.next() {
                    Some("passed") => sum.passed += count,
                    Some("failed") => sum.failed += count,
                    Some("ignored") => sum.skipped += count,
                    _ => {}
                }
            }
        }
        sum
    }

    /// Cases of any outcome.
    pub(crate) fn total(self) -> u64 {
        self.passed + self.failed + self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed() {
        let output = "\
running 3 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
noise: 99 passed; 99 failed
test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s
";
        assert_eq!(Tally::from_output(output), Tally { passed: 5, failed: 5, skipped: 1 });
    }

    #[test]
    fn no_result_line_counts_nothing() {
        assert_eq!(Tally::from_output("test result: \nerror: could not compile\n"), Tally::default());
    }
}
