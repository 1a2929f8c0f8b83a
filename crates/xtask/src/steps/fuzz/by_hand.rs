//! `cargo xtask fuzz`: long runs with counts, a small corpus out of a large one, and how much of the code the inputs reach.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Build, MANIFEST, build, committed, longest, no_compiler, targets};
use crate::exec::{Finished, Run};
use crate::report::Outcome;
use crate::{Context, steps};

/// Nothing that ends by its count ends by this.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// A corpus that is committed keeps inputs of at most so many bytes, and so many of them.
const KEPT_BYTES: u64 = 1500;
const KEPT: usize = 60;

/// What `cargo xtask fuzz` is given.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only these targets; all of them otherwise
    targets: Vec<String>,
    /// Executions of each target
    #[arg(long, default_value_t = 1_000_000)]
    executions: u64,
    /// End each target after so many seconds at the latest
    #[arg(long)]
    seconds: Option<u64>,
    /// So many processes at once share the executions of a target and what they find; as many as there are processors otherwise
    #[arg(long)]
    jobs: Option<usize>,
    /// AddressSanitizer for every target: the slow ones go without it otherwise, and are five times as fast
    #[arg(long)]
    sanitizer: bool,
    /// Take this rule away, as R-4, and see that each target finds it, beginning from the seeds and what is committed
    #[arg(long, conflicts_with_all = ["coverage", "minimise"])]
    planted: Option<String>,
    /// Do not fuzz: report which lines the inputs reach that are committed or were found here. Needs the component llvm-tools
    #[arg(long)]
    coverage: bool,
    /// Do not fuzz: take the fewest small inputs that reach what those found here reach into fuzz/corpus, to be committed
    #[arg(long, conflicts_with = "coverage")]
    minimise: bool,
}

pub(crate) fn command(context: &Context, arguments: &Arguments) -> ExitCode {
    println!("commit {}", steps::commit(context));
    if let Some(Outcome::Skipped { why, .. }) = no_compiler() {
        println!("SKIPPED: {why}");
        return ExitCode::SUCCESS;
    }
    let known = match targets(context) {
        Ok(known) => known,
        Err(error) => return failed(&format!("cannot read fuzz/fuzz_targets: {error}")),
    };
    if let Some(unknown) = arguments.targets.iter().find(|target| !known.contains(target)) {
        return failed(&format!("no target is called {unknown}; there are {}", known.join(", ")));
    }
    let chosen = if arguments.targets.is_empty() { known } else { arguments.targets.clone() };
    let done = match (arguments.coverage, arguments.minimise) {
        (true, _) => coverage(context, &chosen),
        (false, true) => minimise(context, &chosen),
        (false, false) => fuzz(context, &chosen, arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// The targets, each with how it is built and its program.
fn programs(
    context: &Context,
    chosen: &[String],
    sanitizer: bool,
    planted: Option<&str>,
) -> Result<Vec<(String, Build, PathBuf)>, String> {
    let of = |target: &String| if sanitizer { Build::Sanitized } else { Build::of(target) };
    let mut programs = Vec::new();
    for how in [Build::Sanitized, Build::Compared, Build::Plain] {
        let targets: Vec<String> = chosen.iter().filter(|target| of(target) == how).cloned().collect();
        if targets.is_empty() {
            continue;
        }
        crate::say_building("the targets");
        let folder = build(context, how, &targets, planted).map_err(|outcome| match outcome {
            Outcome::Failed { why, .. } | Outcome::Skipped { why, .. } => why,
            Outcome::Passed(_) => String::new(),
        })?;
        programs.extend(targets.into_iter().map(|target| {
            let program = folder.join(&target);
            (target, how, program)
        }));
    }
    Ok(programs)
}

/// Inputs of `target` that were found on this machine.
fn found(context: &Context, target: &str) -> PathBuf {
    context.root.join("target/fuzz/corpus").join(target)
}

fn fuzz(context: &Context, chosen: &[String], arguments: &Arguments) -> Result<(), String> {
    let planted = arguments.planted.as_deref();
    let mut complaints = Vec::new();
    let programs = programs(context, chosen, arguments.sanitizer, planted)?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = arguments.jobs.unwrap_or(processors).max(1);
    println!("{:<18} {:>12} {:>8} {:>8}  finding", "target", "executions", "seconds", "inputs");
    for (target, how, program) in &programs {
        let kind = if planted.is_some() { "planted" } else { "corpus" };
        let corpus = context.root.join("target/fuzz").join(kind).join(target);
        let artifacts = context.root.join("target/fuzz/artifacts").join(target);
        if planted.is_some() {
            // What another bug has led to is no help with this one.
            let _ = std::fs::remove_dir_all(&corpus);
        }
        for made in [&corpus, &artifacts] {
            std::fs::create_dir_all(made)
                .map_err(|error| format!("cannot make {}: {error}", made.display()))?;
        }
        let mut words = vec![
            format!("-runs={}", arguments.executions.div_ceil(u64::try_from(jobs).unwrap_or(1))),
            // By the clock, also of a process that was stopped meanwhile.
            "-timeout=120".to_owned(),
            "-rss_limit_mb=2048".to_owned(),
            "-malloc_limit_mb=256".to_owned(),
            "-print_final_stats=1".to_owned(),
            format!("-artifact_prefix={}/", artifacts.display()),
        ];
        words.extend(longest(target));
        words.extend(arguments.seconds.map(|seconds| format!("-max_total_time={seconds}")));
        words.push(corpus.display().to_string());
        words.extend(committed(context, target).iter().map(|folder| folder.display().to_string()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let program = program.display().to_string();
        let (name, value) = how.environment();
        let one = |job: usize| {
            let run = Run::new(context, &program, &words).env(name, value).limit(NEVER);
            let run = match planted {
                Some(bug) => run.env("WINDLASS_PLANTED", bug).quiet_failure(),
                None => run,
            };
            run.finish(context, &format!("fuzz-{target}-{job}"))
        };
        let finished: Vec<Finished> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..jobs)
                .map(|job| {
                    let one = &one;
                    scope.spawn(move || one(job))
                })
                .collect();
            running.into_iter().map(|job| job.join().expect("a run does not panic")).collect()
        });
        let executions: u64 = finished.iter().map(|run| executed(&run.output)).sum();
        let inputs = std::fs::read_dir(&corpus).map_or(0, Iterator::count);
        let failed = finished.iter().find(|run| !run.success);
        let finding = if failed.is_some() { "FOUND" } else { "none" };
        let seconds = begun.elapsed().as_secs();
        println!("{target:<18} {executions:>12} {seconds:>8} {inputs:>8}  {finding}");
        match (planted, failed) {
            (None, Some(failed)) => {
                complaints.push(format!("{target}: {}; the input is in {}", failed.how, artifacts.display()));
            }
            (Some(bug), None) => {
                complaints.push(format!("{target}: {bug} was taken away, and nothing found"))
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

/// How many inputs a run took: what it says at its end, or where it found something.
fn executed(output: &str) -> u64 {
    let told = statistic(output, "stat::number_of_executed_units:");
    let last =
        || output.lines().rev().find_map(|line| line.strip_prefix('#')?.split(['\t', ' ', ':']).next());
    if told > 0 { told } else { last().and_then(|number| number.parse().ok()).unwrap_or(0) }
}

fn statistic(output: &str, name: &str) -> u64 {
    let last = output.lines().rev().find_map(|line| line.trim().strip_prefix(name));
    last.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// The fewest small inputs that reach what those found here reach.
fn minimise(context: &Context, chosen: &[String]) -> Result<(), String> {
    for (target, how, program) in &programs(context, chosen, false, None)? {
        let merged = context.root.join("target/fuzz/merged").join(target);
        let kept = context.root.join("fuzz/corpus").join(target);
        let told =
            |what: &str, path: &Path, error: &std::io::Error| format!("{what} {}: {error}", path.display());
        let _ = std::fs::remove_dir_all(&merged);
        for made in [&merged, &kept] {
            std::fs::create_dir_all(made).map_err(|error| told("cannot make", made, &error))?;
        }
        let folders =
            [merged.clone(), kept.clone(), found(context, target)].map(|folder| folder.display().to_string());
        let longest = format!("-max_len={KEPT_BYTES}");
        let words: Vec<&str> =
            ["-merge=1", &longest].into_iter().chain(folders.iter().map(String::as_str)).collect();
        let program = program.display().to_string();
        let (name, value) = how.environment();
        let run = Run::new(context, &program, &words).env(name, value).limit(NEVER);
        let finished = run.finish(context, &format!("fuzz-merge-{target}"));
        if !finished.success {
            return Err(format!("{target}: {}", finished.how));
        }
        // The shortest: what they reach is in the fewest bytes.
        let mut inputs: Vec<(u64, PathBuf)> = std::fs::read_dir(&merged)
            .map_err(|error| told("cannot read", &merged, &error))?
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.len(), entry.path())))
            .filter(|(bytes, _)| (1..=KEPT_BYTES).contains(bytes))
            .collect();
        inputs.sort_unstable();
        inputs.truncate(KEPT);
        std::fs::remove_dir_all(&kept).map_err(|error| told("cannot empty", &kept, &error))?;
        std::fs::create_dir_all(&kept).map_err(|error| told("cannot make", &kept, &error))?;
        for (_, input) in &inputs {
            let name = input.file_name().unwrap_or_default();
            std::fs::copy(input, kept.join(name)).map_err(|error| told("cannot copy", input, &error))?;
        }
        println!("{target:<18} {:>4} inputs in {}", inputs.len(), kept.display());
    }
    Ok(())
}

/// Replays all inputs in a build that counts, and prints what they reach of each file.
fn coverage(context: &Context, chosen: &[String]) -> Result<(), String> {
    let Some(tools) = tools(context) else {
        println!(
            "SKIPPED: rustc's own llvm-profdata and llvm-cov are not there: `rustup component add llvm-tools`"
        );
        return Ok(());
    };
    let built = context.root.join("target/fuzz-coverage");
    println!("building the replay with counters, where that is not done yet");
    let words = ["build", "--quiet", "--manifest-path", MANIFEST, "--bin", "replay"];
    let build = Run::cargo(context, &words)
        .env("CARGO_TARGET_DIR", &built)
        .env("RUSTFLAGS", "-Cinstrument-coverage --cfg fuzzing")
        // Build scripts count, too, and would leave what they count in the crates' folders.
        .env("LLVM_PROFILE_FILE", built.join("build-%p.profraw"))
        .finish(context, "fuzz-coverage-build");
    if !build.success {
        return Err(format!("the replay does not build: {}", build.how));
    }
    let program = built.join("debug/replay").display().to_string();
    let mut profiles = Vec::new();
    for target in chosen {
        let profile = built.join(format!("{target}.profraw"));
        let mut folders = committed(context, target);
        folders.extend(Some(found(context, target)).filter(|folder| folder.is_dir()));
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let words: Vec<&str> =
            std::iter::once(&target[..]).chain(folders.iter().map(String::as_str)).collect();
        let run = Run::new(context, &program, &words).env("LLVM_PROFILE_FILE", &profile).limit(NEVER);
        let finished = run.finish(context, &format!("fuzz-replay-{target}"));
        if !finished.success {
            return Err(format!("{target}: an input fails: {}", finished.how));
        }
        profiles.push(profile.display().to_string());
    }
    let merged = built.join("all.profdata").display().to_string();
    let words: Vec<&str> =
        ["merge", "-sparse", "-o", &merged].into_iter().chain(profiles.iter().map(String::as_str)).collect();
    let profdata = tools.join("llvm-profdata").display().to_string();
    let finished = Run::new(context, &profdata, &words).finish(context, "fuzz-profdata");
    if !finished.success {
        return Err(finished.how);
    }
    let profile = format!("-instr-profile={merged}");
    // Only what is windlass's own, without what is made for tests.
    let ignored = "-ignore-filename-regex=(registry|rustc|/fuzz/|/tests/|testing)";
    let words = ["report", &program, &profile, ignored];
    let cov = tools.join("llvm-cov").display().to_string();
    let finished = Run::new(context, &cov, &words).finish(context, "fuzz-coverage");
    println!("{}", finished.output);
    if finished.success { Ok(()) } else { Err(finished.how) }
}

/// Where the compiler's own tools are; those of another version can't read what it writes.
fn tools(context: &Context) -> Option<PathBuf> {
    let output = std::process::Command::new("rustc")
        .args(["--print", "target-libdir"])
        .current_dir(&context.root)
        .output()
        .ok()?;
    let library = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim().to_owned());
    let tools = library.parent()?.join("bin");
    tools.join("llvm-cov").is_file().then_some(tools)
}

#[cfg(test)]
mod tests {
    use super::{executed, statistic};

    #[test]
    fn the_last_count_is_read() {
        let output = "#2 INITED\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec: 9\n";
        assert_eq!(statistic(output, "stat::number_of_executed_units:"), 1234);
        assert_eq!(statistic("", "stat::number_of_executed_units:"), 0);
    }

    #[test]
    fn a_run_that_found_something_says_how_far_it_came() {
        let whole =
            "#2 INITED\n#8192\tpulse  cov: 3\n#9000\tDONE   cov: 3\nstat::number_of_executed_units: 9000\n";
        assert_eq!(executed(whole), 9000);
        let found =
            "#2\tINITED cov: 1\n#8192\tpulse  cov: 3\nthread '<unnamed>' panicked at a.rs:1\n    #0 0x5\n";
        assert_eq!(executed(found), 8192);
        assert_eq!(executed(""), 0);
    }
}
