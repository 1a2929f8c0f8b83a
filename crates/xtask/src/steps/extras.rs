//! The members of the workspace that a plain build leaves out: benchmarks and examples (`windlass-verbs` has steps of its own).

use super::cargo::tests;
use crate::Context;
use crate::exec::Run;
use crate::metadata::Metadata;
use crate::report::Outcome;
use crate::tally::Tally;

/// Lints and tests each, as one run of cargo each for all.
pub(super) fn run(context: &Context) -> Outcome {
    let metadata = match Metadata::read(context) {
        Ok(metadata) => metadata,
        Err(why) => return Outcome::failed(why),
    };
    let packages = left_out(&metadata);
    if packages.is_empty() {
        return Outcome::failed("no benchmarks and no examples in the workspace");
    }
    let chosen: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();

    let mut words = vec!["clippy", "--quiet", "--locked", "--all-targets"];
    words.extend(&chosen);
    words.extend(["--", "-D", "warnings"]);
    let linted = Run::cargo(context, &words).finish(context, "extras-clippy");
    let mut words = vec!["test", "--locked", "--no-fail-fast"];
    words.extend(&chosen);
    let outcome = tests(Run::cargo(context, &words), context, "extras");

    if linted.success {
        return outcome;
    }
    let tally = match outcome {
        Outcome::Passed(tally) | Outcome::Failed { tally, .. } => tally,
        Outcome::Skipped { .. } => Tally::default(),
    };
    let failed = tally.failed + 1;
    Outcome::Failed { tally: Tally { failed, ..tally }, why: "mend what clippy says".to_string() }
}

fn left_out(metadata: &Metadata) -> Vec<&str> {
    let by_default = &metadata.workspace_default_members;
    let others = metadata.packages.iter().filter(|package| !by_default.contains(&package.id));
    others.map(|package| package.name.as_str()).filter(|name| *name != "windlass-verbs").collect()
}
