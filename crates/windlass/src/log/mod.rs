//! The log of one node: [`Log`], its readers, and what runs behind it.
//!
//! ```text
//!  producers ── append ──► hand-off memory ──► drain ──► flush ──► commits woken by LSN
//!                (no lock, no call,             └── by a committer that leads, or the flush thread
//!                 no allocation)
//!  helper: prepares, populates and reuses segments ahead of the tail, so that producers never wait for the disk
//! ```
//!
//! A primary's log in a group is this same type with the same append path: there the driver moves the watermarks of
//! `Replicated` and `Durable`. DESIGN.md section 9.1.

mod append;
mod change;
mod closing;
mod flush;
mod helper;
mod media;
mod open;
mod read;
mod readonly;
mod salvage;
mod scrub;
mod shared;
mod status;
pub(crate) mod tenure;
mod wait;

use std::fmt;
use std::sync::Arc;

pub use append::Reservation;
pub(crate) use change::check_member_trim;
pub(crate) use helper::NoSegment;
pub use helper::Step;
pub(crate) use media::{Cursor, Reading};
pub(crate) use open::random_surroundings;
pub use open::{OpenOrCreateError, OpenTrimmedError, OpenTruncatedError, Place, Surroundings};
pub(crate) use read::Items;
pub use read::{Reader, Record, Run, Subscription};
pub use readonly::{ReadOnly, ReadOnlyReader, Verified, VerifyReport};
pub use salvage::{Lost, SalvageError, Salvaged, salvage};
pub(crate) use shared::{Fixed, Standing};
pub use status::Info;
pub(crate) use status::outcome;
pub use wait::Commit;
pub use windlass_log::Appended;

use open::Owner;
use shared::Shared;
use tenure::Tenure;

/// A log that is open for writing: one tenure of it. Cheap to clone; every clone may append from any thread.
///
/// It belongs to the process that opened it. A child that was forked off, and goes on without running another program, does not have the log's memory (kind
/// 60): trimming, truncating and closing answer that there ([`Failure::Forked`](crate::Failure)), dropping the handles does nothing, and an append or a commit ends
/// the child by SIGSEGV, since looking first would cost each of them. Whatever it does, the parent's log stays as it is; no other process can open it meanwhile.
///
/// When the tenure ends (by [`Log::truncate`], [`Log::close`] or a takeover) appends through this handle and its clones answer
/// `Sealed`. When the last handle is dropped the log is closed as by [`Log::close`], errors being logged.
#[derive(Clone)]
pub struct Log {
    owner: Arc<Owner>,
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shape = f.debug_struct("Log");
        shape.field("folder", &self.shared.folder).field("log_id", &self.shared.log_id);
        shape
            .field("epoch", &self.tenure.epoch)
            .field("tail", &self.tenure.handoff.tail())
            .finish_non_exhaustive()
    }
}
