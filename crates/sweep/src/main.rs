//! `windlass-sweep`: crashes the store. `cargo xtask sweep` calls it.
//!
//! `--images N --seed S` spreads N images over the workloads, on `--jobs` threads, and ends with a table and one summary line. `--replay` takes what a finding says.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use windlass_sweep::{Count, Kind, Plan, Report, Workload, replay, sweep};

/// Findings shown.
const SHOWN: usize = 20;

#[derive(Parser)]
#[command(
    name = "windlass-sweep",
    about = "Crashes the store in every way a disk may, and opens what is left"
)]
struct Arguments {
    /// How many images, of all workloads together
    #[arg(long, default_value_t = 20_000)]
    images: u64,
    /// More than that where it takes more to stop each workload at each of its steps with every subset, and recovery at each of its own; fails where that is missed
    #[arg(long)]
    whole: bool,
    /// What chance begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On so many threads
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Only this workload
    #[arg(long)]
    workload: Option<String>,
    /// One crash point again, as a finding names it
    #[arg(long, value_name = "WORKLOAD,ROUND,STEP")]
    replay: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic in the code under test is told as a finding.
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let report = match &arguments.replay {
        Some(place) => match replayed(place, &arguments) {
            Some(report) => report,
            None => {
                eprintln!(
                    "--replay takes what a finding says: a workload, a round and a step, with commas between"
                );
                return ExitCode::from(2);
            }
        },
        None => match swept(&arguments) {
            Some(report) => report,
            None => {
                let names: Vec<_> = Workload::ALL.iter().map(|workload| workload.name()).collect();
                eprintln!("no workload is called so; there are {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
    };
    table(&report);
    for wrong in report.wrong.iter().take(SHOWN) {
        println!("WRONG {} ({})", wrong.text, wrong.place);
    }
    let missed = if arguments.replay.is_none() { report.missed() } else { Vec::new() };
    for missed in &missed {
        println!("NOT REACHED {missed}");
    }
    println!(
        "{} images of {} workloads opened, {} wrong, seed {}, {:.1} s",
        report.images(),
        report.counts.keys().map(|key| key.0).collect::<std::collections::BTreeSet<_>>().len(),
        report.wrong.len(),
        arguments.seed,
        start.elapsed().as_secs_f64()
    );
    if report.wrong.is_empty() && (missed.is_empty() || !arguments.whole) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn named(name: &str) -> Option<Workload> {
    Workload::ALL.into_iter().find(|workload| workload.name() == name)
}

fn replayed(place: &str, arguments: &Arguments) -> Option<Report> {
    let mut parts = place.split(',');
    let workload = named(parts.next()?)?;
    let (round, step) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let plan = Plan { images: u64::MAX, whole: true, seed: arguments.seed, lie: None, wrong_max: usize::MAX };
    Some(replay(workload, &plan, round, step))
}

fn swept(arguments: &Arguments) -> Option<Report> {
    let workloads = match &arguments.workload {
        Some(name) => vec![named(name)?],
        None => Workload::ALL.to_vec(),
    };
    let images = arguments.images.div_ceil(workloads.len() as u64);
    let plan = Plan { images, whole: arguments.whole, seed: arguments.seed, lie: None, wrong_max: SHOWN };
    let next = AtomicUsize::new(0);
    let sum = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some(workload) = workloads.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = sweep(*workload, &plan);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(report);
                }
            });
        }
    });
    Some(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn table(report: &Report) {
    println!(
        "workload    kind        images   recovery   read-only    verify    strict   refused      tail      full"
    );
    let mut before = None;
    for ((workload, kind), count) in &report.counts {
        let name = if before == Some(*workload) { "" } else { workload.name() };
        before = Some(*workload);
        line(name, kind.name(), count);
    }
    for kind in Kind::ALL {
        let mut all = Report::default();
        let of = report.counts.iter().filter(|(key, _)| key.1 == kind);
        for (_, count) in of {
            all.add(Report { counts: [((Workload::Create, kind), *count)].into(), ..Report::default() });
        }
        if let Some(count) = all.counts.values().next() {
            line("all", kind.name(), count);
        }
    }
    for (workload, steps) in &report.steps {
        let (sectors, pages, points) = report.exhausted.get(workload).copied().unwrap_or_default();
        let name = workload.name();
        let of = report.stops.iter().filter(|(key, _)| key.0 == *workload);
        let longest = of.map(|(_, stops)| stops.longest).max().unwrap_or_default();
        println!(
            "{name:<11} {steps} crash points; every subset of sectors at {sectors}, of pages at {pages} of {points}; of recovery at most {longest}"
        );
    }
}

fn line(workload: &str, kind: &str, count: &Count) {
    let opens = &count.opens;
    println!(
        "{workload:<11} {kind:<9} {:>8} {:>10} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
        count.images,
        count.again,
        opens.read_only,
        opens.verify,
        opens.strict,
        opens.refused,
        opens.tail,
        opens.full
    );
}
