//! The suite between two processes, on two hosts or in two network namespaces: `--passive ADDRESS:PORT` listens there,
//! `--active ADDRESS:PORT` connects to it. Both play the same cases in the same order.

use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use windlass_fabric::conformance::{Case, Outcome, Role, StreamControl};
use windlass_verbs::Registration;

use crate::{modes, open};

/// No step of a case takes so long.
const SILENCE: Duration = Duration::from_secs(90);
/// How long the other process may take to start.
const START: Duration = Duration::from_secs(60);

/// How the cases ended. A case that fails leaves the two ends at different points, so it is the last one.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

/// The line to the other end.
pub(crate) fn line(role: Role, address: &str) -> TcpStream {
    let stream = match role {
        Role::Passive => {
            TcpListener::bind(address).expect("to listen").accept().expect("the other process").0
        }
        Role::Active => reach(address),
    };
    stream.set_read_timeout(Some(SILENCE)).expect("a time limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}

pub(crate) fn run(role: Role, address: &str, words: &[String]) -> Tally {
    let mut control = StreamControl(line(role, address));
    let mut tally = Tally::default();
    let wanted =
        |case: &&Case| words.is_empty() || words.iter().any(|word| case.name().contains(word.as_str()));
    // On the heap; and, where there is a disk, over its files in whole pages, which needs the most of a path.
    let disk = modes::folder_of(Registration::OdpPage).ok();
    let rounds = [None, disk].into_iter().enumerate().filter(|(round, disk)| *round == 0 || disk.is_some());
    let plays =
        rounds.flat_map(|(_, disk)| Case::ALL.iter().filter(wanted).map(move |case| (disk.clone(), case)));
    for (disk, case) in plays {
        let begun = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| match &disk {
            None => case.run(role, &open().expect("a device"), &mut control),
            Some(disk) => {
                let fabric = modes::open(Registration::OdpPage);
                case.run_over(role, &fabric, &mut control, &|bytes| modes::mapped(disk, bytes))
            }
        }));
        let (how, count) = match ended {
            Ok(Outcome::Passed) => ("ok".to_string(), &mut tally.passed),
            Ok(Outcome::Skipped(why)) => (format!("ignored, {why}"), &mut tally.ignored),
            Err(_) => ("FAILED, see its panic above; the rest was not run".to_string(), &mut tally.failed),
        };
        *count += 1;
        let seconds = begun.elapsed().as_secs_f64();
        let mode = if disk.is_some() { "odp_page_" } else { "" };
        println!("test hosts_{role:?}_{mode}{} ... {how} ({seconds:.1} s)", case.name());
        if tally.failed > 0 {
            break;
        }
    }
    tally
}

fn reach(address: &str) -> TcpStream {
    let end = Instant::now() + START;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
