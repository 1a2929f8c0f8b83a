//! The `windlass` command.
#![forbid(unsafe_code)]

fn main() {}
