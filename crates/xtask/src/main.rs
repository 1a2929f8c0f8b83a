//! What continuous integration runs.
#![forbid(unsafe_code)]

fn main() {}
