//! The fuzz targets: a bounded run of each, from the seeds that are committed.
//!
//! `fuzz/` is in cargo-fuzz's layout, so `cargo +nightly fuzz run TARGET` hunts for as long as one likes. The smoke run here
//! builds the same with plain cargo, the flags that cargo-fuzz would set, and the pinned toolchain. `cargo xtask fuzz` ([`by_hand`]) runs longer, and says how much
//! of the code an input has reached.

pub(crate) mod by_hand;

use std::path::PathBuf;
use std::time::Duration;

use super::cargo::tests;
use super::layout::told;
use crate::Context;
use crate::exec::{Run, find};
use crate::install;
use crate::report::{Cure, Outcome};

const MANIFEST: &str = "fuzz/Cargo.toml";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Coverage as libFuzzer reads it, and assertions of debug builds (arithmetic that overflows included).
const FLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0";
/// Operands of comparisons, which libFuzzer tries in an input.
const COMPARISONS: &str = "-Cllvm-args=-sanitizer-coverage-trace-compares";
const ADDRESSES: &str = "-Zsanitizer=address";
/// AddressSanitizer keeps freed blocks apart for a while, 256 MiB of them unless told otherwise, and where each came from: most of what a target does that makes a
/// world of segments per input was to fault in fresh pages. Frames are not kept apart: no unsafe code here hands out pointers to a stack.
const SANITIZER: (&str, &str) =
    ("ASAN_OPTIONS", "quarantine_size_mb=4:malloc_context_size=1:detect_stack_use_after_return=0");
/// The system's allocator gives freed memory back and faults it in again with each input, unless told otherwise.
const ALLOCATOR: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.trim_threshold=268435456:glibc.malloc.mmap_threshold=33554432:glibc.malloc.top_pad=1048576",
);
/// Targets whose input chooses what happens, and is no bytes of any format, and the longest input of which each byte counts. There is nothing in such an input that a comparison's operand
/// could be tried in.
const CHOICES: &[(&str, u32)] = &[("engine_peers", 601), ("engine_world", 801), ("folder", 87)];
/// Beside those the target that takes bytes and does so much with them that the sanitizer takes four fifths of its time.
const SLOW: &str = "segment_scan";

/// What a program of a target is built with. Those without the sanitizer are for long runs: the two targets with an engine reach no unsafe code at all; `folder` and `segment_scan` reach
/// the log's memory, whose bounds are asserted in every build, and have the sanitizer in each smoke run, and in a long one that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    /// With comparisons and AddressSanitizer: as the smoke run has all of them. Its allocator also refuses what a length from outside would make too large.
    Sanitized,
    /// With comparisons: [`SLOW`].
    Compared,
    /// For targets whose input is [`CHOICES`].
    Plain,
}

impl Build {
    /// Where it is built: two builds of one folder would take turns.
    fn folder(self) -> &'static str {
        match self {
            Build::Sanitized => "target/fuzz",
            Build::Compared => "target/fuzz-compared",
            Build::Plain => "target/fuzz-plain",
        }
    }

    /// What its programs are run with.
    fn environment(self) -> (&'static str, &'static str) {
        match self {
            Build::Sanitized => SANITIZER,
            Build::Compared | Build::Plain => ALLOCATOR,
        }
    }

    /// What of a long run's programs this one is built with.
    fn of(target: &str) -> Build {
        if CHOICES.iter().any(|(name, _)| *name == target) {
            Build::Plain
        } else if target == SLOW {
            Build::Compared
        } else {
            Build::Sanitized
        }
    }
}

/// The longest input worth making.
fn longest(target: &str) -> Option<String> {
    let found = CHOICES.iter().find(|(name, _)| *name == target);
    found.map(|(_, bytes)| format!("-max_len={bytes}"))
}
/// A smoke run ends at whichever comes first.
const RUNS: &str = "-runs=200000";
const SECONDS: &str = "-max_total_time=15";

/// The seeds, replayed without a fuzzer.
pub(super) fn seeds(context: &Context) -> Outcome {
    if let Some(skipped) = no_compiler() {
        return skipped;
    }
    let words = ["test", "--no-fail-fast", "--manifest-path", MANIFEST, "--lib"];
    let run = Run::cargo(context, &words).env("CARGO_TARGET_DIR", context.root.join("target/fuzz"));
    tests(run, context, "fuzz-seeds")
}

/// Lints of the fuzz workspace.
pub(super) fn lint(context: &Context) -> Outcome {
    if let Some(skipped) = no_compiler() {
        return skipped;
    }
    let words = ["clippy", "--quiet", "--manifest-path", MANIFEST, "--all-targets", "--", "-D", "warnings"];
    let run = Run::cargo(context, &words).env("CARGO_TARGET_DIR", context.root.join("target/fuzz"));
    let finished = run.finish(context, "fuzz-clippy");
    if finished.success { Outcome::passed() } else { Outcome::failed("mend what clippy says") }
}

/// A bounded run of each target.
pub(super) fn smoke(context: &Context) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        let why = format!("the fuzzers are built for {TARGET} alone");
        return Outcome::Skipped { why, cure: Cure::Elsewhere("run it there".into()) };
    }
    if let Some(skipped) = no_compiler() {
        return skipped;
    }
    let targets = match targets(context) {
        Ok(targets) if targets.is_empty() => return Outcome::failed("no fuzz target"),
        Ok(targets) => targets,
        Err(error) => return Outcome::failed(format!("cannot read fuzz/fuzz_targets: {error}")),
    };
    let programs = match build(context, Build::Sanitized, &targets, None) {
        Ok(programs) => programs,
        Err(outcome) => return outcome,
    };
    let complaints: Vec<String> =
        targets.iter().filter_map(|target| run(context, &programs, target)).collect();
    told(context, &complaints, targets.len())
}

/// Builds these targets as libFuzzer wants them, `planted` in a build whose rules can be taken away; where the programs are.
fn build(
    context: &Context,
    how: Build,
    targets: &[String],
    planted: Option<&str>,
) -> Result<PathBuf, Outcome> {
    let folder = format!("{}{}", how.folder(), if planted.is_some() { "-planted" } else { "" });
    let built = context.root.join(folder);
    let mut words = vec!["build", "--quiet", "--release", "--manifest-path", MANIFEST, "--target", TARGET];
    // Programs without libFuzzer do not link where no sanitizer's runtime is.
    words.extend(targets.iter().flat_map(|target| ["--bin", target]));
    let more: &[&str] = match how {
        Build::Sanitized => &[COMPARISONS, ADDRESSES],
        Build::Compared => &[COMPARISONS],
        Build::Plain => &[],
    };
    let planting: &[&str] = if planted.is_some() { &["--cfg planted"] } else { &[] };
    let flags = [&[FLAGS], more, planting].concat().join(" ");
    let build = Run::cargo(context, &words)
        .env("CARGO_TARGET_DIR", &built)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags)
        .finish(context, "fuzz-build");
    if build.success {
        return Ok(built.join(TARGET).join("release"));
    }
    Err(Outcome::failed(format!("the fuzz targets do not build: {}", build.how)))
}

/// Folders of inputs that are committed for `target`, those that are there.
fn committed(context: &Context, target: &str) -> Vec<PathBuf> {
    let folders =
        ["seeds", "corpus", "regressions"].map(|kind| context.root.join("fuzz").join(kind).join(target));
    folders.into_iter().filter(|folder| folder.is_dir()).collect()
}

/// What a run of `target` found, if anything.
fn run(context: &Context, programs: &std::path::Path, target: &str) -> Option<String> {
    let folder = |kind: &str| -> PathBuf { context.root.join("target/fuzz").join(kind).join(target) };
    let (corpus, artifacts) = (folder("corpus"), folder("artifacts"));
    for made in [&corpus, &artifacts] {
        if let Err(error) = std::fs::create_dir_all(made) {
            return Some(format!("{target}: cannot make {}: {error}", made.display()));
        }
    }
    let program = programs.join(target);
    let prefix = format!("-artifact_prefix={}/", artifacts.display());
    let words: Vec<String> =
        [RUNS, SECONDS, "-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=256", &prefix]
            .into_iter()
            .map(String::from)
            .chain(["-print_final_stats=1".to_string()])
            .chain(longest(target))
            .chain([corpus.display().to_string()])
            .chain(committed(context, target).iter().map(|folder| folder.display().to_string()))
            .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let finished = Run::new(context, &program.display().to_string(), &words)
        .env(SANITIZER.0, SANITIZER.1)
        .limit(Duration::from_secs(120))
        .show(|line| line.starts_with("stat::number_of_executed_units"))
        .finish(context, &format!("fuzz-{target}"));
    (!finished.success).then(|| {
        format!(
            "{target}: {}; the input is in {}: replay it with the program above",
            finished.how,
            artifacts.display()
        )
    })
}

/// The names of the targets: one file each.
fn targets(context: &Context) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(context.root.join("fuzz/fuzz_targets"))? {
        let name = entry?.file_name();
        names.extend(name.to_string_lossy().strip_suffix(".rs").map(str::to_string));
    }
    names.sort_unstable();
    Ok(names)
}

fn no_compiler() -> Option<Outcome> {
    if find("g++").is_some() || find("c++").is_some() {
        return None;
    }
    let why = "libFuzzer is built with a C++ compiler, and there is none".to_string();
    Some(Outcome::Skipped { why, cure: Cure::Install(install::apt_cure(&["g++"])) })
}
