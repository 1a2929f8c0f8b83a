//! An embedded write-ahead-log replication engine.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "its users land next")]
mod commit;
pub mod control;
#[allow(dead_code, reason = "its users land next")]
mod log;
#[allow(dead_code, reason = "its users land next")]
mod metrics;

pub use commit::{CommitError, Committed, Failure, Level, UnknownLevel};
pub use metrics::{HistogramSnapshot, MetricsSnapshot};
pub use windlass_log::{Epoch, LogId, Lsn, MemberId};
