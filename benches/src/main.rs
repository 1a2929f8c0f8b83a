//! Benchmarks of windlass: `cargo xtask bench [--only NAME] [--json FILE]`.
//!
//! What windlass does and the raw operation underneath alternate within one loop, five times over ([`measure`]), since
//! a machine's speed drifts more from hour to hour than the two differ: ratios within a run hold, absolute
//! times don't. Medians and the spread of the five runs are printed as a table, and written as JSON.
#![forbid(unsafe_code)]

mod flush;
mod measure;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use measure::Comparison;

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "What windlass measures of itself")]
struct Arguments {
    /// Run only this benchmark (may be given more than once)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the benchmarks and run none
    #[arg(long)]
    list: bool,
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
}

/// A benchmark: a set of things measured in turn.
struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(&Settings) -> std::io::Result<Comparison>,
}

const ALL: &[Benchmark] = &[Benchmark {
    name: "raw-flush",
    about: "256 B made durable, by the system calls alone",
    run: flush::raw,
}];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for benchmark in ALL {
            println!("{:14} {}", benchmark.name, benchmark.about);
        }
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(name) = arguments.only.iter().find(|name| ALL.iter().all(|known| known.name != **name)) {
        return Err(format!("no benchmark is called {name}: `cargo xtask bench --list` names them"));
    }
    std::fs::create_dir_all(&arguments.dir)
        .map_err(|error| format!("cannot make {}: {error}", arguments.dir.display()))?;
    let settings = Settings { dir: arguments.dir.clone() };
    let mut comparisons = Vec::new();
    for benchmark in ALL {
        if arguments.only.is_empty() || arguments.only.iter().any(|name| name == benchmark.name) {
            println!("{}: {}", benchmark.name, benchmark.about);
            let comparison =
                (benchmark.run)(&settings).map_err(|error| format!("{}: {error}", benchmark.name))?;
            println!("{comparison}");
            comparisons.push((benchmark.name, comparison));
        }
    }
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&measure::json(&comparisons)).expect("plain values");
        std::fs::write(file, text + "\n")
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(())
}
