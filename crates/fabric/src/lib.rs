//! The verbs model as a trait: regions, windows, connections, work requests, completions; and the conformance suite of its providers.
#![forbid(unsafe_code)]
