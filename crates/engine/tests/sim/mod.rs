//! The harness: see `simulation.rs`.
#![allow(
    unreachable_pub,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    reason = "a test harness"
)]

pub mod image;
pub mod members;
pub mod oracle;
pub mod rng;
pub mod world;
