//! An embedded write-ahead-log replication engine.
#![forbid(unsafe_code)]

mod commit;
pub mod control;
mod log;
mod metrics;

pub use commit::{CommitError, Committed, Failure, Level, UnknownLevel};
pub use metrics::{HistogramSnapshot, MetricsSnapshot};
pub use windlass_log::{Epoch, LogId, Lsn, MemberId};
