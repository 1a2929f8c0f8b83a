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
//!
//! A member of a group is a [`Node`]. While it is primary, [`Node::log`] gives the same kind of [`Log`], whose commits may ask for
//! [`Level::Replicated`] and [`Level::Durable`]; in every role it reads the durable prefix and follows it. [`Node::events`] says when roles change.
//!
//! ```no_run
//! # #[cfg(feature = "tcp")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use windlass::control::{Member, Secret};
//! use windlass::{Level, LogId, MemberId, Node, NodeEvent, NodeOptions};
//!
//! let members = vec![
//!     Member { id: MemberId(1), address: "10.0.0.1:7001".parse()? },
//!     Member { id: MemberId(2), address: "10.0.0.2:7001".parse()? },
//!     Member { id: MemberId(3), address: "10.0.0.3:7001".parse()? },
//! ];
//! # let (log_id, secret) = (LogId([7; 16]), [7; 32]);
//! let options = NodeOptions::new(MemberId(1), members, log_id, Secret::new(secret)?);
//! let node = Node::open_or_create("/var/lib/db/log".as_ref(), options)?;
//! let mut events = node.events();
//! loop {
//!     if let Ok(log) = node.log() {
//!         // Primary: apply what is durable up to here, then take requests.
//!         let _read_up_to = node.read_barrier_blocking(None)?;
//!         let appended = log.append(b"put k v")?;
//!         // An error here says unknown, never failed: settle it by the next primary's log.
//!         let _proof = log.commit_blocking(appended.end, Level::Durable)?;
//!     }
//!     // Wait for the next change of roles.
//!     match events.next_blocking(None) {
//!         Some(NodeEvent::Ended) | None => break,
//!         Some(event) => println!("{event:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tcp"))]
//! # fn main() {}
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    any(loom, not(feature = "tcp")),
    allow(
        dead_code,
        unused_imports,
        reason = "without a provider there is no node, and the node alone uses some of it; under loom there are the models"
    )
)]
// Under loom the library is what threads share without a lock, and what that is made of: the rest needs a network, which tokio lacks there.

#[cfg(not(loom))]
mod clock;
mod commit;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod driver;
#[cfg(loom)]
mod driver {
    mod gather;
    mod requests;
}
#[cfg(not(loom))]
mod error;
#[cfg(all(test, not(loom)))]
#[path = "../tests/support/lines.rs"]
mod lines;
#[cfg(not(loom))]
mod log;
#[cfg(loom)]
mod log {
    mod flush;
}
mod metrics;
#[cfg(all(feature = "tcp", not(loom)))]
mod node;
#[cfg(not(loom))]
mod options;
mod scrub;
#[cfg(not(loom))]
pub mod store;
mod sync;

pub use commit::{CommitError, Committed, Failure, Level, UnknownLevel};
pub use metrics::{HistogramSnapshot, MetricsSnapshot};
#[cfg(all(feature = "tcp", not(loom), any(test, feature = "faults")))]
pub use node::losing::{LoseCompletions, LostCompletions};
#[cfg(all(feature = "tcp", not(loom)))]
pub use node::{
    BarrierError, FabricChoice, Members, Node, NodeChangeError, NodeCloseError, NodeError, NodeEvent,
    NodeEvents, NodeInfo, NodeMetrics, NodeOptions, NodeReader, NotPrimary, Outside, PumpMode,
    checkpoint::{
        CHECKPOINT_CHUNK_BYTES_MAX, Checkpoint, CheckpointError, CheckpointFault, CheckpointPosition,
        CheckpointSink, CheckpointStatus, CheckpointStep, Checkpoints, Giving, NotGiven, OfferedCheckpoint,
        Taking, WireError,
    },
};
pub use scrub::ScrubMetrics;
pub use windlass_log::{Class, Epoch, LogId, Lsn, MemberId, OpenMode, Row};
#[cfg(all(feature = "verbs", not(loom)))]
pub use windlass_verbs as verbs;
#[cfg(not(loom))]
pub use {
    clock::{Clock, MonotonicClock},
    error::{
        AppendError, CloseError, CreateError, OpenError, OptionError, OptionValue, Outcome, ReadError,
        SnapshotError, TrimError, TruncateError,
    },
    log::{
        Appended, Commit, Info, Log, Lost, OpenOrCreateError, OpenTrimmedError, OpenTruncatedError, Place,
        ReadOnly, ReadOnlyReader, Reader, Record, Reservation, Run, SalvageError, Salvaged, Step,
        Subscription, Surroundings, Verified, VerifyReport, salvage,
    },
    options::Options,
    windlass_engine as engine,
};
