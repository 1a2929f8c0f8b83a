//! The steps of `cargo xtask test`, in the order they run: cheap ones first.

mod cargo;

use crate::report::Step;

/// Every step.
pub(crate) const ALL: &[Step] = &[
    Step { name: "fmt", about: "every file is as rustfmt would write it", run: cargo::fmt },
    Step { name: "clippy", about: "no lint, all targets of the default members", run: cargo::clippy },
    Step { name: "clippy-verbs", about: "no lint in windlass-verbs", run: cargo::clippy_verbs },
    Step { name: "test", about: "tests of the default members", run: cargo::test },
    Step { name: "doctest", about: "examples in the documentation", run: cargo::doctest },
    Step { name: "test-verbs", about: "tests of windlass-verbs that need no device", run: cargo::test_verbs },
    Step { name: "doc", about: "the documentation builds without a warning", run: cargo::doc },
    Step { name: "deny", about: "licences, sources and bans of the dependencies", run: cargo::deny },
];
