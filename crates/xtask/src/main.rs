//! What continuous integration runs, and what a contributor runs before a change is proposed.
//!
//! * `cargo xtask test` runs every check there is, as a list of named steps ([`steps`]). A step passes, fails, or is
//!   SKIPPED with the reason and the command that would cure it; with `--install` the cures are applied first
//!   ([`install`]). At the end stands what failed ([`failures`]). The last line is `N passed, N failed, N skipped`: test cases as their runners count them, and one
//!   for each step that has none.
//! * `cargo xtask guest` boots a virtual machine with a kernel RDMA device and runs what needs one ([`guest`]).
//! * `cargo xtask bench` runs the benchmarks of `benches/`.
//! * `cargo xtask fuzz` runs the fuzz targets for long, and says what they reach.
//! * `cargo xtask chaos` runs a group of processes under random faults.
//! * `cargo xtask worlds` goes through small worlds of the engine, whole ([`worlds`]).
//! * `cargo xtask sim` runs the simulator ([`steps`] has its step).
//! * `cargo xtask planted` plants bugs and looks for them with the simulator ([`steps`] has its step).
//! * `cargo xtask sweep` crashes the store ([`steps`] has its step).
//!
//! Nothing here links against the other crates of the workspace: they are driven from outside, as a user would.
#![forbid(unsafe_code)]

mod exec;
mod failures;
mod guest;
mod install;
mod metadata;
mod report;
mod source;
mod steps;
mod tally;
mod worlds;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{Parser, Subcommand};

use crate::failures::Failure;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What continuous integration runs")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check: formatting, lints, tests, sanitizers, loom, fuzzing, and what this repository promises of itself
    Test {
        /// Install what is missing first: Debian packages (as root) and cargo tools
        #[arg(long)]
        install: bool,
        /// Run only this step (may be given more than once)
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// List the steps and run none
        #[arg(long)]
        list: bool,
    },
    /// Boot a virtual machine with a kernel RDMA device and run the tests of windlass-verbs in it, or a command
    Guest(guest::Arguments),
    /// Run the benchmarks (release build), all or those named; arguments go to them: `cargo xtask bench -- --help`
    Bench {
        /// What the benchmarks' own program is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fuzz for long, with counts: `--executions N [TARGET]...`; or `--coverage`, `--minimise`
    Fuzz(steps::FuzzArguments),
    /// Run a group of processes under random faults and check what its clients saw (release build): `--seconds N --seed S`; `cargo xtask chaos --help`
    #[command(disable_help_flag = true)]
    Chaos {
        /// What `windlass chaos` is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Go through every state of a small world of the engine (release build): members, epochs, records and faults as given
    Worlds(worlds::Arguments),
    /// Run the simulator (release build): `--seed N` replays one seed, `--seeds COUNT` runs many; `cargo xtask sim --help`
    #[command(disable_help_flag = true)]
    Sim {
        /// What the simulator's own program is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Plant each bug in turn and look for it with the simulator (release build with `--cfg planted`): `cargo xtask planted R-7`;
    /// `cargo xtask planted --help`
    #[command(disable_help_flag = true)]
    Planted {
        /// What the simulator's own program is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Crash the store at each of its writes and flushes (release build): `--images N --seed S`; `cargo xtask sweep --help`
    #[command(disable_help_flag = true)]
    Sweep {
        /// What the sweep's own program is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// What every step is given.
pub(crate) struct Context {
    /// The top of the workspace.
    pub(crate) root: PathBuf,
    /// Where the whole output of each command is kept: `target/xtask`.
    pub(crate) logs: PathBuf,
    /// What failed in the step that is running, to be repeated at the end.
    failures: Mutex<Vec<Failure>>,
}

impl Context {
    /// Where nothing has failed yet.
    pub(crate) fn new(root: PathBuf, logs: PathBuf) -> Context {
        Context { root, logs, failures: Mutex::default() }
    }

    /// Notes what failed, for the end of the report.
    pub(crate) fn note(&self, failures: impl IntoIterator<Item = Failure>) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).extend(failures);
    }

    /// What was noted since the last call.
    pub(crate) fn noted(&self) -> Vec<Failure> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn main() -> ExitCode {
    let root = workspace_root();
    let logs = root.join("target/xtask");
    if let Err(error) = std::fs::create_dir_all(&logs) {
        eprintln!("cannot make {}: {error}", logs.display());
        return ExitCode::FAILURE;
    }
    let context = Context::new(root, logs);
    match Arguments::parse().task {
        Task::Test { list: true, .. } => {
            for step in steps::ALL {
                println!("{:14} {}", step.name, step.about);
            }
            ExitCode::SUCCESS
        }
        Task::Test { install, only, list: false } => test(&context, install, &only),
        Task::Guest(arguments) => guest::command(&context, &arguments),
        Task::Bench { arguments } => program(&context, "windlass-benches", &arguments),
        Task::Fuzz(arguments) => steps::fuzz_by_hand(&context, &arguments),
        Task::Chaos { arguments } => {
            println!("commit {}", steps::commit(&context));
            let arguments = [vec!["chaos".to_owned()], arguments].concat();
            program(&context, "windlass-cli", &arguments)
        }
        Task::Worlds(arguments) => worlds::command(&context, &arguments),
        Task::Sim { arguments } => {
            println!("commit {}", steps::commit(&context));
            program(&context, "windlass-sim", &arguments)
        }
        Task::Planted { arguments } => {
            println!("commit {}", steps::commit(&context));
            let folder = context.root.join(steps::PLANTED_FOLDER);
            let flags: [(&str, OsString); 2] =
                [("RUSTFLAGS", steps::PLANTED_FLAGS.into()), ("CARGO_TARGET_DIR", folder.into())];
            program_with(&context, "windlass-sim", &arguments, &flags)
        }
        Task::Sweep { arguments } => {
            println!("commit {}", steps::commit(&context));
            program(&context, "windlass-sweep", &arguments)
        }
    }
}

/// The workspace is where this package's manifest says, not where the command was called.
fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("crates/xtask lies two folders below the workspace").to_path_buf()
}

fn test(context: &Context, install: bool, only: &[String]) -> ExitCode {
    let unknown = only.iter().find(|name| steps::ALL.iter().all(|step| step.name != **name));
    if let Some(name) = unknown {
        eprintln!("no step is called {name}: `cargo xtask test --list` names them");
        return ExitCode::from(2);
    }
    if install {
        install::everything(context);
    }
    let mut report = report::Report::new(is_strict());
    for step in steps::ALL {
        if only.is_empty() || only.iter().any(|name| name == step.name) {
            report.run(step, context);
        }
    }
    report.print(context);
    if report.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether what could run, and does not, is a failure: in continuous integration.
pub(crate) fn is_strict() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

/// Before a build: cargo is quiet, so that what is built for is read.
pub(crate) fn say_building(what: &str) {
    eprintln!(
        "building {what} in release mode, where that is not done yet: it takes some minutes the first time"
    );
}

/// Runs a program of the workspace, built for speed.
fn program(context: &Context, package: &str, arguments: &[String]) -> ExitCode {
    program_with(context, package, arguments, &[])
}

fn program_with(
    context: &Context,
    package: &str,
    arguments: &[String],
    environment: &[(&str, OsString)],
) -> ExitCode {
    say_building(package);
    let status = std::process::Command::new("cargo")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .args(["run", "--release", "--quiet", "--package", package, "--"])
        .args(arguments)
        .current_dir(&context.root)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, workspace_root};

    /// What README.md and CONTRIBUTING.md tell people to run is there.
    #[test]
    fn the_commands_that_are_written_down_are_commands() {
        let mut count = 0;
        for file in ["README.md", "CONTRIBUTING.md"] {
            let text = std::fs::read_to_string(workspace_root().join(file)).unwrap();
            for line in text.lines().filter(|line| line.starts_with("cargo xtask ")) {
                let command = line.split('#').next().unwrap_or_default();
                let words: Vec<&str> = command.split_whitespace().skip(1).collect();
                // The words of an optional argument's own placeholder.
                let words = words.into_iter().filter(|word| !word.starts_with('['));
                if let Err(error) = Arguments::try_parse_from(words) {
                    panic!("{file}: {line}: {error}");
                }
                count += 1;
            }
        }
        assert!(count >= 10, "only {count} commands were found");
    }
}
