//! Tests under tools that see what a plain run can't: loom (every interleaving of what is shared without a lock) and
//! AddressSanitizer (bytes outside what was allocated).

use super::cargo::tests;
use crate::Context;
use crate::exec::Run;
use crate::report::Outcome;

/// The sanitizer's runtime comes with this target alone of those that windlass is tested on.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The packages that have models.
const MODELS: [&str; 6] =
    ["windlass-log", "windlass-store", "windlass-fabric", "windlass-tcp", "windlass-verbs", "windlass"];

pub(super) fn loom(context: &Context) -> Outcome {
    // Optimized: loom runs each model thousands of times. Models stand in modules called `loom_tests`; other tests hold for the real
    // thing alone.
    let mut words = vec!["test", "--locked", "--release", "--lib"];
    MODELS.iter().for_each(|package| words.extend(["-p", package]));
    words.push("loom_tests");
    let run = Run::cargo(context, &words)
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", context.root.join("target/loom"));
    at_least_one(tests(run, context, "loom"), "no test ran under loom")
}

pub(super) fn address(context: &Context) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        let why = format!("AddressSanitizer is run on {TARGET} alone");
        return Outcome::Skipped { why, cure: crate::report::Cure::Elsewhere("run it there".into()) };
    }
    let words = ["test", "--locked", "-p", "windlass-log", "--lib", "--tests", "--target", TARGET];
    let run = Run::cargo(context, &words)
        // The pinned toolchain takes unstable flags with this, so that no nightly of an unknown day is needed.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("CARGO_TARGET_DIR", context.root.join("target/address"));
    at_least_one(tests(run, context, "address"), "no test ran under AddressSanitizer")
}

/// A run that found no test has shown nothing.
fn at_least_one(outcome: Outcome, why: &str) -> Outcome {
    match outcome {
        Outcome::Passed(tally) if tally.passed == 0 => Outcome::failed(why),
        other @ (Outcome::Passed(_) | Outcome::Failed { .. } | Outcome::Skipped { .. }) => other,
    }
}
