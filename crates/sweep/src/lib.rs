//! The crash sweep of the store (DESIGN.md section 6.4): the real store over a disk in memory, stopped at every call that writes or flushes something, with what was not flushed
//! lost, kept, torn or reordered, and opened again in every mode. An oracle knows what was acknowledged. Recovery is crashed as well.
//!
//! * [`Workload`]: what the log does meanwhile; [`Kind`]: what the crash does;
//! * [`sweep()`]: one workload's images; [`Report`]: counts, and what is wrong.
#![forbid(unsafe_code)]

mod check;
mod life;
mod lone;
mod member;
mod oracle;
mod random;
mod salvage;
mod sweep;

pub use check::Opens;
pub use life::Workload;
pub use sweep::{Count, Kind, Plan, Report, Stops, Wrong, replay, sample, sweep};
pub use windlass_store::disk::testing::Lie;
