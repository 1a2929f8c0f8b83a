//! An embedded write-ahead-log replication engine.
//!
//! A database links it in as its log layer: [`Log::append`], [`Log::commit`], [`Log::read_from`] at start, [`Log::trim`]
//! after a checkpoint. [`Options`] makes and opens a log; [`ReadOnly`] looks at one beside the process that has it open.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use windlass::{Level, Options, ReadError};
//!
//! let log = Options::new().open_or_create("/var/lib/db/log".as_ref())?;
//! let mut reader = log.read_from(log.info().trimmed)?;
//! loop {
//!     match reader.next() {
//!         Ok(record) => println!("replay {} bytes", record.payload.len()),
//!         Err(ReadError::AtEnd { .. }) => break,
//!         Err(error) => return Err(error.into()),
//!     }
//! }
//! let appended = log.append(b"put k v")?;
//! let _proof = log.commit_blocking(appended.end, Level::Durable)?;
//! log.close()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "tcp"),
    allow(
        dead_code,
        unused_imports,
        reason = "without a provider there is no node, and the node alone uses some of it"
    )
)]

mod clock;
mod commit;
pub mod control;
pub mod driver;
mod error;
mod log;
mod metrics;
#[cfg(feature = "tcp")]
mod node;
mod options;

pub use clock::{Clock, MonotonicClock};
pub use commit::{CommitError, Committed, Failure, Level, UnknownLevel};
pub use error::{
    AppendError, CloseError, CreateError, OpenError, Outcome, ReadError, TrimError, TruncateError,
};
pub use log::{
    Appended, Commit, Info, Log, OpenOrCreateError, Place, ReadOnly, ReadOnlyReader, Reader, Record,
    Reservation, Step, Subscription, Surroundings, Verified, VerifyReport,
};
pub use metrics::{HistogramSnapshot, MetricsSnapshot};
#[cfg(feature = "tcp")]
pub use node::{
    BarrierError, Node, NodeCloseError, NodeError, NodeEvent, NodeEvents, NodeInfo, NodeMetrics, NodeOptions,
    NodeReader, NotPrimary, PumpMode,
};
pub use options::Options;
pub use windlass_engine as engine;
pub use windlass_log::{Class, Epoch, LogId, Lsn, MemberId, OpenMode, Row};
pub use windlass_store as store;
