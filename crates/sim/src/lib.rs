//! A deterministic world that runs the production engine, driver, store and log over a simulated fabric, disk and clock
//! (DESIGN.md section 9.5).
#![forbid(unsafe_code)]

pub mod coverage;
pub mod fabric;
pub mod random;
