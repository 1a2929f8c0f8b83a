//! A deterministic world that runs the production engine, driver, store and log over a simulated fabric, disk and clock
//! (DESIGN.md section 9.7).
#![forbid(unsafe_code)]

pub mod coverage;
pub mod fabric;
mod harms;
mod lone;
mod minimum;
mod oracle;
mod parts;
#[cfg(planted)]
pub mod planted;
pub mod random;
mod rows;
mod run;
pub mod setting;
pub mod switches;
mod trace;
mod world;

pub use minimum::Minimum;
pub use oracle::{Invariant, Violation};
pub use run::{Report, run, run_with};
