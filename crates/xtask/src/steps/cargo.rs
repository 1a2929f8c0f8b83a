//! Steps that are one call of cargo.

use std::time::Duration;

use crate::Context;
use crate::exec::{Finished, Run};
use crate::install::{self, BUILD_PACKAGES, CARGO_DENY};
use crate::report::{Cure, Outcome};
use crate::tally::Tally;

/// A test program that hangs is ended after this time.
const TEST_LIMIT: Duration = Duration::from_secs(30 * 60);

pub(super) fn fmt(context: &Context) -> Outcome {
    // Workspaces of their own are not in `--all`.
    let manifests = [None, Some("fuzz/Cargo.toml"), Some("crates/xtask/no_std_check/Cargo.toml")];
    for manifest in manifests {
        let mut words = vec!["fmt", "--check"];
        words.extend(manifest.map_or(vec!["--all"], |manifest| vec!["--manifest-path", manifest]));
        let finished = Run::cargo(context, &words).finish(context, "fmt");
        if !finished.success {
            let remedy = format!("cargo {}", words.join(" ").replace(" --check", ""));
            return plain(finished, &remedy);
        }
    }
    Outcome::passed()
}

pub(super) fn clippy(context: &Context) -> Outcome {
    let words = ["clippy", "--quiet", "--locked", "--all-targets", "--", "-D", "warnings"];
    plain(Run::cargo(context, &words).finish(context, "clippy"), "mend what clippy says")
}

pub(super) fn clippy_verbs(context: &Context) -> Outcome {
    if let Some(skipped) = verbs_skipped() {
        return skipped;
    }
    let packages = [
        "-p",
        "windlass",
        "-p",
        "windlass-verbs",
        "-p",
        "windlass-cli",
        "-p",
        "windlass-benches",
        "-p",
        "fabric-examples",
    ];
    // What has it behind a feature.
    let features = "windlass-cli/verbs,windlass-cli/faults,windlass-benches/verbs,fabric-examples/verbs";
    let words = [&["clippy", "--quiet", "--locked"], &packages[..], &["--features", features]].concat();
    let words = [&words[..], &["--all-targets", "--", "-D", "warnings"]].concat();
    plain(Run::cargo(context, &words).finish(context, "clippy-verbs"), "mend what clippy says")
}

pub(super) fn test(context: &Context) -> Outcome {
    let words = ["test", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"];
    tests(Run::cargo(context, &words), context, "test")
}

pub(super) fn doctest(context: &Context) -> Outcome {
    tests(Run::cargo(context, &["test", "--locked", "--no-fail-fast", "--doc"]), context, "doctest")
}

pub(super) fn test_verbs(context: &Context) -> Outcome {
    if let Some(skipped) = verbs_skipped() {
        return skipped;
    }
    tests(
        Run::cargo(context, &["test", "--locked", "--no-fail-fast", "-p", "windlass-verbs"]),
        context,
        "test-verbs",
    )
}

pub(super) fn doc(context: &Context) -> Outcome {
    let run = Run::cargo(context, &["doc", "--quiet", "--locked", "--no-deps", "--document-private-items"]);
    plain(run.env("RUSTDOCFLAGS", "-D warnings").finish(context, "doc"), "mend what rustdoc says")
}

pub(super) fn doc_verbs(context: &Context) -> Outcome {
    if let Some(skipped) = verbs_skipped() {
        return skipped;
    }
    let words =
        ["doc", "--quiet", "--locked", "--no-deps", "--document-private-items", "-p", "windlass-verbs"];
    let run = Run::cargo(context, &words).env("RUSTDOCFLAGS", "-D warnings");
    plain(run.finish(context, "doc-verbs"), "mend what rustdoc says")
}

pub(super) fn deny(context: &Context) -> Outcome {
    if !CARGO_DENY.present() {
        return Outcome::Skipped { why: "no cargo-deny".into(), cure: Cure::Install(CARGO_DENY.cure()) };
    }
    let words = ["deny", "--log-level", "error", "check", "bans", "licenses", "sources"];
    plain(Run::cargo(context, &words).finish(context, "deny"), "see deny.toml")
}

/// A run of Rust's test harness: the result lines are shown and summed.
pub(crate) fn tests(run: Run, context: &Context, name: &str) -> Outcome {
    let finished = run.limit(TEST_LIMIT).show(worth_reading).finish(context, name);
    let tally = Tally::from_output(&finished.output);
    if finished.success { Outcome::Passed(tally) } else { Outcome::Failed { tally, why: finished.how } }
}

fn worth_reading(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Running ")
        || line.starts_with("Doc-tests ")
        || (line.starts_with("test result: ") && !line.contains(" 0 passed; 0 failed; 0 ignored"))
        || (line.starts_with("test ") && line.ends_with("FAILED"))
}

fn plain(finished: Finished, remedy: &str) -> Outcome {
    if finished.success { Outcome::passed() } else { Outcome::failed(format!("{}; {remedy}", finished.how)) }
}

pub(super) fn verbs_skipped() -> Option<Outcome> {
    let missing = install::missing_packages(BUILD_PACKAGES);
    if missing.is_empty() {
        return None;
    }
    let why = format!("windlass-verbs needs {} to build", missing.join(", "));
    Some(Outcome::Skipped { why, cure: Cure::Install(install::apt_cure(&missing)) })
}
