//! The ways to wait: nothing is lost in any of them.

use std::time::{Duration, Instant};

use windlass_fabric::conformance::{Case as Conformance, Outcome, run_pair};
use windlass_fabric::{CompletionQueue, Wake, Woken};
use windlass_verbs::{CompletionMode, VerbsFabric, VerbsOptions};

use crate::pair::End;
use crate::{Case, Ended};

const MODES: [(&str, CompletionMode); 3] = [
    ("busy", CompletionMode::Busy),
    ("event", CompletionMode::Event),
    ("adaptive", CompletionMode::Adaptive { spin_max: Duration::from_millis(1) }),
];

/// Cases of the suite that wait, in each mode.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let waiting = [
        Conformance::Waits,
        Conformance::WritesBeforeNotice,
        Conformance::CloseAndDrain,
        Conformance::PeerDeath,
    ];
    MODES.into_iter().flat_map(move |(name, mode)| {
        let suite = waiting.into_iter().map(move |case| Case {
            name: format!("{name}_waits_conformance_{}", case.name()),
            run: Box::new(move || match run_pair(case, open(mode), open(mode)) {
                Outcome::Passed => Ended::Passed,
                Outcome::Skipped(why) => Ended::Skipped(why.into()),
            }),
        });
        let ends = Case { name: format!("{name}_waits_end"), run: Box::new(move || waits_end(mode)) };
        suite.chain([ends])
    })
}

fn options(completion: CompletionMode) -> VerbsOptions {
    VerbsOptions { completion, ..VerbsOptions::default() }
}

fn open(mode: CompletionMode) -> VerbsFabric {
    VerbsFabric::open(&options(mode)).expect("a device")
}

/// By time, when nothing comes; by a waker from before and from another thread.
fn waits_end(mode: CompletionMode) -> Ended {
    let mut end = End::with(&options(mode));
    for timeout in [Duration::ZERO, Duration::from_millis(30)] {
        let begun = Instant::now();
        assert_eq!(end.queue.wait(timeout).expect("to wait"), Woken::Timeout);
        assert!(begun.elapsed() >= timeout, "it ended after {:?}", begun.elapsed());
    }
    let waker = end.queue.waker();
    for round in 0..50 {
        waker.wake();
        assert_eq!(end.queue.wait(Duration::from_secs(60)).expect("to wait"), Woken::Wake, "round {round}");
    }
    for _ in 0..5 {
        let waker = end.queue.waker();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                waker.wake();
            });
            assert_eq!(end.queue.wait(Duration::from_secs(60)).expect("to wait"), Woken::Wake);
        });
    }
    Ended::Passed
}
