//! Measuring in turn, and telling what came out.
//!
//! A benchmark runs its contenders one after the other, round by round, so that drift of the machine falls on all alike. A
//! [`Series`] holds one number for each round; a [`Judged`] figure is the ratio of two series, round by round, beside the
//! target it is held to. The first series of a [`Comparison`] is the base that the others are shown against.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// What one contender came to: a number for each round.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What it is, for the table.
    pub(crate) name: String,
    /// In the order they ran.
    pub(crate) runs: Vec<f64>,
}

impl Series {
    pub(crate) fn new(name: impl Into<String>) -> Series {
        Series { name: name.into(), runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.runs.push(value);
    }

    /// The run in the middle.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        sorted[sorted.len() / 2]
    }

    /// The lowest and the highest run.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted[0], sorted[sorted.len() - 1])
    }

    fn sorted(&self) -> Vec<f64> {
        assert!(!self.runs.is_empty(), "{}: a series without a run", self.name);
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// This divided by `base`, round by round.
    pub(crate) fn over(&self, base: &Series) -> Vec<f64> {
        self.with(base, |own, base| own / base)
    }

    /// Both joined round by round.
    pub(crate) fn with(&self, other: &Series, join: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        assert_eq!(self.runs.len(), other.runs.len(), "{} and {} ran in turn", self.name, other.name);
        self.runs.iter().zip(&other.runs).map(|(own, other)| join(*own, *other)).collect()
    }
}

/// The figures of contenders that ran in turn.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// What was compared.
    pub(crate) title: String,
    /// The unit of every figure, such as `µs` or `records/s`.
    pub(crate) unit: &'static str,
    /// One for each contender; the first is the base.
    pub(crate) series: Vec<Series>,
}

/// What a figure is held to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn met_by(self, value: f64) -> bool {
        match self {
            Target::AtLeast(least) => value >= least,
            Target::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::AtLeast(least) => write!(f, "≥ {least}"),
            Target::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

/// A figure that has a target.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) figure: Series,
    pub(crate) target: Target,
}

impl Judged {
    pub(crate) fn new(figure: impl Into<String>, target: Target, runs: Vec<f64>) -> Judged {
        Judged { figure: Series { name: figure.into(), runs }, target }
    }

    pub(crate) fn met(&self) -> bool {
        self.target.met_by(self.figure.median())
    }
}

/// What one benchmark found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) judged: Vec<Judged>,
}

impl Report {
    /// Keeps what was compared, the base first.
    pub(crate) fn compare<'a>(
        &mut self,
        title: impl Into<String>,
        unit: &'static str,
        series: impl IntoIterator<Item = &'a Series>,
    ) {
        let series = series.into_iter().cloned().collect();
        self.comparisons.push(Comparison { title: title.into(), unit, series });
    }

    pub(crate) fn judge(&mut self, figure: impl Into<String>, target: Target, runs: Vec<f64>) {
        self.judged.push(Judged::new(figure, target, runs));
    }
}

/// Does `work` in so many threads at once, each given its number. Answers the time from the first one's start to the last one's end.
pub(crate) fn side_by_side<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> (Duration, Vec<T>) {
    let barrier = Barrier::new(threads);
    let ended: Vec<(Instant, Instant, T)> = thread::scope(|scope| {
        let (barrier, work) = (&barrier, &work);
        let running: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    let answer = work(number);
                    (start, Instant::now(), answer)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let first = ended.iter().map(|(start, _, _)| *start).min().expect("a thread at least");
    let last = ended.iter().map(|(_, end, _)| *end).max().expect("a thread at least");
    (last - first, ended.into_iter().map(|(_, _, answer)| answer).collect())
}

/// Processor time of this process so far, in nanoseconds.
pub(crate) fn work_ns() -> f64 {
    clock_ns(ClockId::ProcessCPUTime)
}

/// Processor time of this thread so far, in nanoseconds.
pub(crate) fn own_work_ns() -> f64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    // Below 2^52 for 50 days.
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The value below which half of the samples lie (the upper of two middles).
pub(crate) fn median_of(samples: &mut [f64]) -> f64 {
    assert!(!samples.is_empty(), "no samples");
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        writeln!(f, "  {}, {}: median (lowest – highest), ratio to the first", self.title, self.unit)?;
        let base = self.series.first().map_or(f64::NAN, Series::median);
        for series in &self.series {
            let (lowest, highest) = series.spread();
            let spread = format!("({} – {})", short(lowest), short(highest));
            let (median, ratio) = (short(series.median()), short(series.median() / base));
            writeln!(f, "    {:width$}  {median:>10}  {spread:>23}  {ratio:>7}", series.name)?;
        }
        Ok(())
    }
}

/// A number with about three digits that say something.
pub(crate) fn short(value: f64) -> String {
    if value.abs() >= 1e6 {
        format!("{:.2} M", value / 1e6)
    } else if value.abs() >= 1e5 {
        format!("{:.0} k", value / 1e3)
    } else if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// The judged figures as one table in Markdown.
pub(crate) fn table(reports: &[(&str, Report)]) -> String {
    let mut text = String::from("| figure | target | median (lowest – highest) | |\n|---|---|---|---|\n");
    for judged in reports.iter().flat_map(|(_, report)| &report.judged) {
        let (lowest, highest) = judged.figure.spread();
        let (name, target, median) = (&judged.figure.name, judged.target, short(judged.figure.median()));
        let verdict = if judged.met() { "ok" } else { "miss" };
        text += &format!(
            "| {name} | {target} | {median} ({} – {}) | {verdict} |\n",
            short(lowest),
            short(highest)
        );
    }
    text
}

/// All reports as one object: benchmark → comparisons and judged figures, each with its runs.
pub(crate) fn json(reports: &[(&str, Report)]) -> Value {
    let series =
        |series: &Series| json!({ "name": series.name, "median": series.median(), "runs": series.runs });
    let mut all = serde_json::Map::new();
    for (name, report) in reports {
        let comparisons: Vec<Value> = report
            .comparisons
            .iter()
            .map(|comparison| {
                let contenders: Vec<Value> = comparison.series.iter().map(series).collect();
                json!({ "title": comparison.title, "unit": comparison.unit, "contenders": contenders })
            })
            .collect();
        let judged: Vec<Value> = report
            .judged
            .iter()
            .map(|judged| {
                json!({
                    "figure": judged.figure.name,
                    "target": judged.target.to_string(),
                    "median": judged.figure.median(),
                    "runs": judged.figure.runs,
                    "met": judged.met(),
                })
            })
            .collect();
        all.insert((*name).to_string(), json!({ "comparisons": comparisons, "figures": judged }));
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, runs: &[f64]) -> Series {
        Series { name: name.into(), runs: runs.to_vec() }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round_before_its_median() {
        let raw = series("raw", &[1.0, 10.0, 2.0]);
        let measured = series("measured", &[2.0, 10.0, 1.0]);
        assert_eq!(measured.over(&raw), [2.0, 1.0, 0.5]);
        let judged = Judged::new("a figure", Target::AtLeast(1.0), measured.over(&raw));
        assert_eq!(judged.figure.spread(), (0.5, 2.0));
        assert!(judged.met());
        assert!(!Judged::new("a figure", Target::AtMost(0.9), measured.over(&raw)).met());
    }

    #[test]
    fn the_table_and_the_object_hold_every_figure() {
        let mut report = Report::default();
        let raw = series("raw", &[100.0; 5]);
        let measured = series("measured", &[120.0, 90.0, 110.0, 300.0, 110.0]);
        report.compare("times", "µs", [&raw, &measured]);
        report.judge("measured ÷ raw", Target::AtMost(1.1), measured.over(&raw));
        let reports = [("x", report)];
        assert!(table(&reports).contains("| measured ÷ raw | ≤ 1.1 | 1.10 (0.90 – 3.00) | ok |"));
        let json = json(&reports);
        assert_eq!(json["x"]["figures"][0]["met"], true);
        assert_eq!(json["x"]["comparisons"][0]["contenders"][1]["runs"].as_array().unwrap().len(), 5);
        assert!(reports[0].1.comparisons[0].to_string().lines().last().unwrap().trim_end().ends_with("1.10"));
    }
}
