//! The durable media of the windlass log: mapped segment files, superblock, preallocation, flushing, locking.
//!
//! In the order to read it:
//!
//! * [`disk`]: the folder at the level of system calls: a trait, the real one, and (feature `testing`) one in memory that fails and loses power;
//! * [`Store::create`] and [`Store::open`]: all or nothing, and recovery;
//! * [`Store::begin`], [`Store::ready`], [`Store::memory`]: memory to append to;
//! * [`Store::flush`]: durability; [`Store::prepare_step`]: what a helper does ahead of need;
//! * [`Store::trim`] and [`Store::cut`]: either end; [`Store::reader`]: reading back;
//! * [`Store::update`]: promises, histories, configurations; [`Store::close`];
//! * [`Inspection`]: looking at a folder without write access, beside the process that has it open.
//!
//! For tests (feature `testing`) there is `testing::LoneLog`, which joins a store with what appends to it.
//!
//! Nothing here makes a thread, asks a clock or draws a random number: those are the caller's (DESIGN.md section 4).
#![deny(unsafe_code)]

mod ahead;
mod close;
mod counters;
mod create;
pub mod disk;
mod error;
mod examine;
mod flush;
mod folder;
mod guess;
mod image;
mod inspect;
mod live;
mod names;
mod newer;
mod open;
mod open_cut;
mod open_damaged;
mod open_trim;
mod options;
mod past;
mod pool;
mod prepare;
mod read;
mod repair;
mod scrub;
mod segment;
mod store;
mod superblock;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trim;
mod vouch;

pub use ahead::AheadWork;
pub use counters::Counters;
pub use create::CreateError;
pub use error::{DiskCall, DiskError, MediumFailed, StoreError};
pub use windlass_log::Holder;

pub use image::Unreadable;
pub use inspect::{Condition, Inspection, Report, Walk, stop_offset};
pub use open::{BadHeader, OpenError, Opened};
pub use open_cut::OpenCutError;
pub use open_trim::OpenTrimError;
pub use options::{Configure, CopiedFolder, Founding, Options, Surroundings, UnsafeFilesystem, Vouch};
pub use prepare::{PrepareError, Prepared};
pub use read::{Read, ReadError, Reader};
pub use repair::{Finding, Make, QuarantinePlace, RepairError, RepairOrders, Repaired, Tally};
pub use scrub::{Damage, ScrubPlace, Scrubbed};
pub use store::{MemoryError, Persisted, Store, UpdateError};
pub use trim::{CutError, TrimError};

#[cfg(test)]
mod tests;
