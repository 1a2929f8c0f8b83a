//! What needs a kernel's RDMA device: cases of this provider.
//!
//! A harness of its own, because a case that did not run may not be called passed: without a device every case is `ignored`, with
//! the reason and the command that runs them. Where `WINDLASS_VERBS_DEVICE=required` is set (in the guest) that is a failure.
//! Words on the command line that don't begin with `-` select the cases whose names hold one of them.

mod cases;
mod memory;
mod pair;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use windlass_verbs::{DeviceChoice, OpenError, VerbsFabric};

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
    VerbsFabric::open(&DeviceChoice::default())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut cases = cases::all();
    cases.retain(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str())));
    let start = Instant::now();
    println!("\nrunning {} tests", cases.len());
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    match open() {
        Err(error) if std::env::var("WINDLASS_VERBS_DEVICE").is_ok_and(|word| word == "required") => {
            println!("FAILED: a device is required: {error}");
            failed = cases.len();
        }
        Err(error) => {
            println!("SKIPPED: {error}\n         on a virtual machine with a device, run: cargo xtask guest");
            ignored = cases.len();
            cases.iter().for_each(|case| println!("test {} ... ignored", case.name));
        }
        Ok(fabric) => {
            println!("{}; {:?}", fabric.description(), windlass_fabric::Fabric::capabilities(&fabric));
            drop(fabric);
            for case in cases {
                let name = case.name.clone();
                let begun = Instant::now();
                let (how, count) = match run(case) {
                    Ok(Ended::Passed) => ("ok".to_string(), &mut passed),
                    Ok(Ended::Skipped(why)) => (format!("ignored, {why}"), &mut ignored),
                    Err(why) => (format!("FAILED, {why}"), &mut failed),
                };
                *count += 1;
                println!("test {name} ... {how} ({:.1} s)", begun.elapsed().as_secs_f64());
            }
        }
    }
    let leaked = windlass_verbs::leaked_regions();
    if leaked > 0 {
        println!("FAILED: {leaked} registrations could not be ended");
        failed += 1;
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        start.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
