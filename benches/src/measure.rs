//! Measuring in turn, and telling what came out.
//!
//! A [`Contender`] yields one number each time it is run. [`compare`] runs all contenders one after the other, [`RUNS`]
//! times over, so that drift of the machine falls on all alike. The first contender is the base that ratios refer to.

use std::fmt;

use serde_json::{Value, json};

/// How often each contender is run.
pub(crate) const RUNS: usize = 5;

/// One thing to measure.
pub(crate) struct Contender<'a> {
    /// What it is, for the table.
    pub(crate) name: String,
    /// One run of it: the figure, in the comparison's unit.
    pub(crate) run: Box<dyn FnMut() -> std::io::Result<f64> + 'a>,
}

/// The figures of contenders that ran in turn.
pub(crate) struct Comparison {
    /// The unit of every figure, such as `µs` or `records/s`.
    pub(crate) unit: &'static str,
    /// One for each contender, in their order.
    pub(crate) figures: Vec<Figure>,
}

/// What one contender came to.
pub(crate) struct Figure {
    /// The contender's name.
    pub(crate) name: String,
    /// The figure of each run, in the order they ran.
    pub(crate) runs: Vec<f64>,
}

impl Figure {
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
        assert!(!self.runs.is_empty(), "a figure without a run");
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Runs all contenders in turn, [`RUNS`] times over.
///
/// # Errors
///
/// The first error of any run, with nothing measured.
pub(crate) fn compare(unit: &'static str, mut contenders: Vec<Contender<'_>>) -> std::io::Result<Comparison> {
    let mut figures: Vec<Figure> = contenders
        .iter()
        .map(|contender| Figure { name: contender.name.clone(), runs: Vec::with_capacity(RUNS) })
        .collect();
    for _ in 0..RUNS {
        for (contender, figure) in contenders.iter_mut().zip(&mut figures) {
            figure.runs.push((contender.run)()?);
        }
    }
    Ok(Comparison { unit, figures })
}

/// The value below which half of the samples lie (the upper of two middles).
pub(crate) fn median_of(samples: &mut [f64]) -> f64 {
    assert!(!samples.is_empty(), "no samples");
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        let head = format!("median, {}", self.unit);
        writeln!(f, "  {:width$}  {head:>16}  {:>27}  {:>7}", "", "lowest – highest of 5", "ratio")?;
        let base = self.figures.first().map(Figure::median);
        for figure in &self.figures {
            let (lowest, highest) = figure.spread();
            let spread = format!("{} – {}", short(lowest), short(highest));
            let ratio = base.map_or(f64::NAN, |base| figure.median() / base);
            let median = short(figure.median());
            writeln!(f, "  {:width$}  {median:>16}  {spread:>27}  {ratio:>7.2}", figure.name)?;
        }
        Ok(())
    }
}

/// A number with about three digits that say something.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// All comparisons as one object: benchmark → unit and contenders, each with its runs.
pub(crate) fn json(comparisons: &[(&str, Comparison)]) -> Value {
    let mut all = serde_json::Map::new();
    for (name, comparison) in comparisons {
        let figures: Vec<Value> = comparison
            .figures
            .iter()
            .map(|figure| json!({ "name": figure.name, "median": figure.median(), "runs": figure.runs }))
            .collect();
        all.insert((*name).to_string(), json!({ "unit": comparison.unit, "figures": figures }));
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn contenders_alternate_and_the_median_and_spread_are_of_five() {
        let order = RefCell::new(String::new());
        let mut values = [9.0, 1.0, 5.0, 3.0, 7.0].into_iter();
        let first = Contender {
            name: "first".into(),
            run: Box::new(|| {
                order.borrow_mut().push('a');
                Ok(values.next().unwrap())
            }),
        };
        let second = Contender {
            name: "second".into(),
            run: Box::new(|| {
                order.borrow_mut().push('b');
                Ok(10.0)
            }),
        };
        let comparison = compare("µs", vec![first, second]).unwrap();
        assert_eq!(*order.borrow(), "ababababab");
        assert!((comparison.figures[0].median() - 5.0).abs() < 1e-9);
        assert_eq!(comparison.figures[0].spread(), (1.0, 9.0));
        let table = comparison.to_string();
        assert!(table.lines().last().unwrap().trim_end().ends_with("2.00"), "{table}");
        let json = json(&[("x", comparison)]);
        assert_eq!(json["x"]["figures"][0]["runs"].as_array().unwrap().len(), RUNS);
    }

    #[test]
    fn an_error_of_a_run_is_the_comparison_s() {
        let failing =
            Contender { name: "fails".into(), run: Box::new(|| Err(std::io::Error::other("no medium"))) };
        assert!(compare("µs", vec![failing]).is_err());
    }
}
