//! The steps of `cargo xtask test`, in the order they run: cheap ones first.

mod cargo;
mod chaos;
mod checked;
mod design;
mod extras;
mod fuzz;
mod graph;
mod layout;
mod no_std;
mod planted;
mod sim;
mod sweep;

use crate::report::Step;

#[cfg(test)]
pub(crate) use cargo::tests;
pub(crate) use fuzz::by_hand::{Arguments as FuzzArguments, command as fuzz_by_hand};
#[cfg(test)]
pub(crate) use layout::told;
pub(crate) use sim::{PLANTED_FLAGS, PLANTED_FOLDER, commit};

/// Every step.
pub(crate) const ALL: &[Step] = &[
    Step { name: "fmt", about: "every file is as rustfmt would write it", run: cargo::fmt },
    Step {
        name: "layout",
        about: "file sizes, places of unsafe code, words that don't belong",
        run: layout::run,
    },
    Step { name: "design", about: "what cites DESIGN.md and what it cites are there", run: design::run },
    Step {
        name: "graph",
        about: "dependencies point one way; log and engine pull in no std",
        run: graph::run,
    },
    Step { name: "deny", about: "licences, sources and bans of the dependencies", run: cargo::deny },
    Step { name: "clippy", about: "no lint, all targets of the default members", run: cargo::clippy },
    Step { name: "no_std", about: "log and engine link into a library without std", run: no_std::run },
    Step { name: "test", about: "tests of the default members", run: cargo::test },
    Step { name: "doctest", about: "examples in the documentation", run: cargo::doctest },
    Step { name: "doc", about: "the documentation builds without a warning", run: cargo::doc },
    Step { name: "extras", about: "lints and tests of the benchmarks and examples", run: extras::run },
    Step {
        name: "sim",
        about: "seeds of the simulator, and that they met every fault and step",
        run: sim::run,
    },
    Step {
        name: "planted",
        about: "each bug on purpose is found by the simulator near its seed, and nothing without it",
        run: planted::run,
    },
    Step {
        name: "sweep",
        about: "the store crashed at each write and flush, in each way a disk may, and opened again",
        run: sweep::run,
    },
    Step {
        name: "chaos",
        about: "processes under random faults for a minute, and one log that explains what clients saw",
        run: chaos::run,
    },
    Step { name: "loom", about: "what is shared without a lock, gone through by loom", run: checked::loom },
    Step { name: "address", about: "the log's tests under AddressSanitizer", run: checked::address },
    Step { name: "fuzz-lint", about: "no lint in the fuzz targets", run: fuzz::lint },
    Step {
        name: "fuzz-seeds",
        about: "the seeds are as made, and every target takes them",
        run: fuzz::seeds,
    },
    Step { name: "fuzz", about: "a bounded run of every fuzz target", run: fuzz::smoke },
    Step { name: "clippy-verbs", about: "no lint in windlass-verbs", run: cargo::clippy_verbs },
    Step { name: "test-verbs", about: "tests of windlass-verbs that need no device", run: cargo::test_verbs },
    Step {
        name: "doc-verbs",
        about: "the documentation of windlass-verbs builds without a warning",
        run: cargo::doc_verbs,
    },
    Step {
        name: "guest",
        about: "windlass-verbs on a kernel's RDMA device, in a virtual machine",
        run: crate::guest::step,
    },
];
