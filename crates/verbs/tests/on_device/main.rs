//! What needs a kernel's RDMA device: cases of this provider.
//!
//! A harness of its own, because a case that did not run may not be called passed: without a device every case is `ignored`, with
//! the reason and the command that runs them. Where `WINDLASS_VERBS_DEVICE=required` is set (in the guest) that is a failure.
//! Words on the command line that don't begin with `-` select the cases whose names hold one of them. With `--active` or
//! `--passive` it is one of two ends ([`hosts`], with `--fault` [`faults`]), and so with `--held-owner` or `--held-writer` ([`held`]); with
//! `--measure` it measures ([`measure`]).

mod cases;
mod faults;
mod held;
mod hosts;
mod measure;
mod memory;
mod modes;
mod pair;
mod revoking;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hosts::Tally;
use windlass_fabric::conformance::Role;
use windlass_verbs::{OpenError, VerbsFabric, VerbsOptions};

/// No case takes so long, on the slowest guest.
const CASE_LIMIT: Duration = Duration::from_secs(180);

/// How a case ended, if it did not panic.
pub(crate) enum Ended {
    Passed,
    Skipped(String),
}

/// A named case.
pub(crate) struct Case {
    name: String,
    run: Box<dyn FnOnce() -> Ended + Send>,
}

/// A fabric of its own over the first device.
pub(crate) fn open() -> Result<VerbsFabric, OpenError> {
    VerbsFabric::open(&VerbsOptions::default())
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let end = words.iter().position(|word| word == "--active" || word == "--passive");
    let end = end.filter(|at| at + 1 < words.len()).map(|at| {
        let role = if words[at] == "--active" { Role::Active } else { Role::Passive };
        let address = words.remove(at + 1);
        (role, address)
    });
    let fault = words.iter().position(|word| word == "--fault").map(|at| {
        let command = if at + 1 < words.len() { words.remove(at + 1) } else { String::new() };
        words.remove(at);
        command
    });
    let held = words.iter().position(|word| word == "--held-owner" || word == "--held-writer");
    let held = held.filter(|at| at + 1 < words.len()).map(|at| {
        let role = if words[at] == "--held-writer" { Role::Active } else { Role::Passive };
        (role, words.remove(at + 1))
    });
    let measures = words.iter().any(|word| word == "--measure");
    words.retain(|word| !word.starts_with('-'));
    let start = Instant::now();
    let mut tally = Tally::default();
    match open() {
        Err(error) if std::env::var("WINDLASS_VERBS_DEVICE").is_ok_and(|word| word == "required") => {
            println!("FAILED: a device is required: {error}");
            tally.failed = 1;
        }
        Err(error) => {
            println!("SKIPPED: {error}\n         on a virtual machine with a device, run: cargo xtask guest");
            for case in selected(&words) {
                println!("test {} ... ignored", case.name);
                tally.ignored += 1;
            }
        }
        Ok(fabric) => {
            println!("{}; windows keep their ends: {}", fabric.description(), fabric.windows_hold());
            println!("{:?}", windlass_fabric::Fabric::capabilities(&fabric));
            drop(fabric);
            tally = match (held, end) {
                _ if measures => {
                    measure::run();
                    Tally::default()
                }
                (Some((role, socket)), _) => held::run(role, &socket),
                (None, Some((role, address))) => match &fault {
                    Some(command) => faults::run(role, hosts::line(role, &address), command),
                    None => hosts::run(role, &address, &words),
                },
                (None, None) => here(selected(&words)),
            };
        }
    }
    let leaked = windlass_verbs::leaked_regions();
    // Of a device that was taken away nothing can be ended any more.
    if leaked > 0 && fault.is_none() {
        println!("FAILED: {leaked} registrations could not be ended");
        tally.failed += 1;
    }
    let Tally { passed, failed, ignored } = tally;
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        start.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn selected(words: &[String]) -> Vec<Case> {
    let mut cases = cases::all();
    cases.retain(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str())));
    cases
}

/// Runs cases in this process.
fn here(cases: Vec<Case>) -> Tally {
    println!("\nrunning {} tests", cases.len());
    let mut tally = Tally::default();
    for case in cases {
        let name = case.name.clone();
        let begun = Instant::now();
        let (how, count) = match run(case) {
            Ok(Ended::Passed) => ("ok".to_string(), &mut tally.passed),
            Ok(Ended::Skipped(why)) => (format!("ignored, {why}"), &mut tally.ignored),
            Err(why) => (format!("FAILED, {why}"), &mut tally.failed),
        };
        *count += 1;
        println!("test {name} ... {how} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    tally
}

/// Runs a case on a thread, so that one that hangs does not hang the rest. Its panic has been printed by then.
fn run(case: Case) -> Result<Ended, String> {
    let (say, hear) = channel();
    let body = case.run;
    std::thread::spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(body));
        // The harness may have given the case up.
        let _ = say.send(ended);
    });
    match hear.recv_timeout(CASE_LIMIT) {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err("see its panic above".into()),
        Err(RecvTimeoutError::Timeout) => Err(format!("not done within {} s", CASE_LIMIT.as_secs())),
    }
}
