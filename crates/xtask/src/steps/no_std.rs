//! `log` and `engine` without std: linked into a static library that has none (`no_std_check/`).

use super::layout::told;
use crate::Context;
use crate::exec::{Finished, Run};
use crate::report::Outcome;

const FOLDER: &str = "crates/xtask/no_std_check";

/// Links it, and then once more with a dependency that brings std: that must fail, and for the right reason, or the first
/// result proves nothing.
pub(super) fn run(context: &Context) -> Outcome {
    // The same versions as the workspace; cargo drops what isn't needed.
    let lock = context.root.join(FOLDER).join("Cargo.lock");
    if let Err(error) = std::fs::copy(context.root.join("Cargo.lock"), &lock) {
        return Outcome::failed(format!("cannot write {}: {error}", lock.display()));
    }
    let mut complaints = Vec::new();
    let linked = build(context, "no_std", &[], false);
    if !linked.success {
        complaints.push(format!("log and engine do not link without std: {}", linked.how));
    }
    let control = build(context, "no_std-control", &["--features", "std_dependency"], true);
    if control.success || !control.output.contains("`panic_impl`") {
        complaints.push("a dependency that brings std was not found out: the check is blind".to_string());
    }
    told(context, &complaints, 2)
}

fn build(context: &Context, name: &str, more: &[&str], expected_to_fail: bool) -> Finished {
    let manifest = format!("{FOLDER}/Cargo.toml");
    let mut words = vec!["build", "--quiet", "--manifest-path", &manifest];
    words.extend(more);
    let run = Run::cargo(context, &words).env("CARGO_TARGET_DIR", context.root.join("target/no_std"));
    let run = if expected_to_fail { run.quiet_failure() } else { run };
    run.finish(context, name)
}
