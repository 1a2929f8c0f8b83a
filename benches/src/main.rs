//! Benchmarks of windlass: `cargo xtask bench [NAME..] [--quick] [--json FILE]`. DESIGN.md section 12.
//!
//! What windlass does and the raw operation underneath run in turn, five rounds of each ([`measure`]), since a machine's
//! speed drifts more from hour to hour than the two differ: ratios within a round hold, absolute times don't. All
//! series are printed, and at the end one table of the figures that have a target; `--json` writes both.
#![forbid(unsafe_code)]

mod append;
mod child;
mod durable;
mod error;
mod flushing;
mod group;
mod measure;
mod opening;
mod plain;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use error::{BenchError, During};
use measure::Report;
use serde::de::DeserializeOwned;

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "What windlass measures of itself")]
struct Arguments {
    /// Run only these benchmarks
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the benchmarks and run none
    #[arg(long)]
    list: bool,
    /// A small run of everything, to see that it works; its figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Rounds of each contender
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// In `throughput`, only this number of callers
    #[arg(long, value_name = "N")]
    callers: Option<usize>,
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where files are made; it must lie on the medium to be measured (a folder in memory flushes nothing)
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    dir: PathBuf,
}

/// What every benchmark is given.
pub(crate) struct Settings {
    /// A folder on the medium to be measured.
    pub(crate) dir: PathBuf,
    /// Whether this is only to see that everything works.
    pub(crate) quick: bool,
    rounds: Option<usize>,
    callers: Option<usize>,
}

impl Settings {
    /// Rounds of each contender.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(self.choose(5, 1)).max(1)
    }

    /// Whether so many callers are to be measured.
    pub(crate) fn has_callers(&self, callers: usize) -> bool {
        self.callers.is_none_or(|only| only == callers)
    }

    /// One amount for a full run, another one for a quick run.
    pub(crate) fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long one round of a contender that is measured by its rate takes.
    pub(crate) fn slice(&self) -> Duration {
        self.choose(Duration::from_millis(500), Duration::from_millis(60))
    }

    /// A new folder that goes when it is dropped.
    pub(crate) fn folder(&self) -> Result<tempfile::TempDir, BenchError> {
        tempfile::tempdir_in(&self.dir).during("making a folder to measure in")
    }
}

/// A benchmark: a set of things measured in turn.
struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(&Settings) -> Result<Report, BenchError>,
}

const ALL: &[Benchmark] = &[
    Benchmark {
        name: "append",
        about: "buffered append, against copying and checksumming into pages already present",
        run: append::run,
    },
    Benchmark {
        name: "flushing",
        about: "ways to make 256 B durable, with the device's own counters",
        run: flushing::run,
    },
    Benchmark {
        name: "durable",
        about: "durable append alone, against the raw ways to flush",
        run: durable::alone,
    },
    Benchmark {
        name: "committers",
        about: "durable appends by 4, 16 and 64 committers, against a plain group commit",
        run: durable::committers,
    },
    Benchmark {
        name: "opening",
        about: "opening and reading 1 GiB after SIGKILL, against checksumming the same bytes",
        run: opening::run,
    },
    Benchmark {
        name: "latency",
        about: "one replicated append at a time, against a loopback ping-pong",
        run: group::latency,
    },
    Benchmark {
        name: "throughput",
        about: "replicated appends by 1, 16 and 64 callers, against a raw quorum log",
        run: group::throughput,
    },
    Benchmark { name: "lag", about: "a group with one of three members stopped", run: group::lag::run },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, first, role, argument] = &words[..]
        && first == child::ROLE
    {
        return ended(in_role(role, argument));
    }
    let arguments = Arguments::parse();
    if arguments.list {
        for benchmark in ALL {
            println!("{:12} {}", benchmark.name, benchmark.about);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(name) = arguments.names.iter().find(|name| ALL.iter().all(|known| known.name != **name)) {
        eprintln!("no benchmark is called {name}: `cargo xtask bench -- --list` names them");
        return ExitCode::from(2);
    }
    ended(run(&arguments))
}

/// A process that the benchmarks have started.
fn in_role(role: &str, argument: &str) -> Result<(), BenchError> {
    match role {
        opening::LOG_ROLE => opening::log_role(&parsed(argument)?),
        opening::RAW_ROLE => opening::raw_role(&parsed(argument)?),
        group::member::ROLE => group::member::role(&parsed(argument)?),
        group::quorum::ROLE => group::quorum::role(&parsed(argument)?),
        group::quorum::BACKUP_ROLE => group::quorum::backup_role(&parsed(argument)?),
        group::clients::ROLE => group::clients::role(),
        group::pingpong::ROLE => group::pingpong::role(),
        _ => panic!("no role is called {role}"),
    }
}

fn parsed<A: DeserializeOwned>(argument: &str) -> Result<A, BenchError> {
    serde_json::from_str(argument).during("reading a role's argument")
}

fn ended(outcome: Result<(), BenchError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    std::fs::create_dir_all(&arguments.dir).during("making the folder to measure in")?;
    let settings = Settings {
        dir: arguments.dir.clone(),
        quick: arguments.quick,
        rounds: arguments.rounds,
        callers: arguments.callers,
    };
    let mut reports = Vec::new();
    for benchmark in ALL {
        if arguments.names.is_empty() || arguments.names.iter().any(|name| name == benchmark.name) {
            println!("{}: {}", benchmark.name, benchmark.about);
            let start = Instant::now();
            let report = (benchmark.run)(&settings).during(benchmark.name)?;
            for comparison in &report.comparisons {
                println!("{comparison}");
            }
            println!("  ({:.0} s)\n", start.elapsed().as_secs_f64());
            reports.push((benchmark.name, report));
        }
    }
    println!("{}", measure::table(&reports));
    if settings.quick {
        println!("A quick run: these figures say only that the benchmarks work.");
    }
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&measure::json(&reports)).expect("plain values");
        std::fs::write(file, text + "\n").during("writing the figures")?;
    }
    Ok(())
}
