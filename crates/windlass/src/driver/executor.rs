//! Work on the store that may wait for the disk, and who does it: threads in production, the caller in a simulation.
//!
//! Work of one lane is done in the order submitted; lanes are independent of each other. Flushing has a lane of its own, since
//! commits wait for it; making segments has one, since it takes long.

use std::sync::Arc;

use windlass_engine::{Persisted, StopReason, Token};
use windlass_log::{Lsn, Superblock};
use windlass_store::disk::Disk;
use windlass_store::{Damage, DiskError, PrepareError, Prepared, ScrubPlace, Scrubbed, Store, TrimError};

/// Which lane work belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Flushes of log bytes.
    Flush,
    /// Changes of the superblock, and what goes with them.
    Superblock,
    /// Segments ahead of need.
    Prepare,
    /// Reading what nobody waits for.
    Scrub,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Lane; 4] = [Lane::Flush, Lane::Superblock, Lane::Prepare, Lane::Scrub];
}

/// A change of the superblock.
pub(crate) type Change = Box<dyn FnOnce(&mut Superblock) + Send>;

pub(crate) enum Job {
    /// `is_short`: it holds few bytes, and somebody waits for it.
    Flush {
        token: Token,
        to: Lsn,
        is_short: bool,
    },
    Save {
        token: Token,
        change: Change,
    },
    Cut {
        token: Token,
        at: Lsn,
        change: Change,
    },
    Reset {
        token: Token,
        at: Lsn,
        change: Change,
    },
    Trim {
        to: Lsn,
        drained: Lsn,
        change: Change,
    },
    Prepare {
        tail: Lsn,
    },
    /// The live mark is made durable.
    SyncMark,
    Scrub {
        place: ScrubPlace,
        until: Lsn,
        bytes_max: u64,
    },
    Distrust {
        damage: Damage,
    },
}

/// One piece of work.
pub struct Work<D: Disk> {
    pub(crate) store: Arc<Store<D>>,
    pub(crate) job: Job,
}

/// What became of it.
pub struct Done(pub(crate) Outcome);

impl Done {
    /// The medium can't be trusted any more.
    pub(crate) fn failed(cause: &str) -> Done {
        Done(Outcome::Failed { reason: StopReason::FlushFailed, cause: cause.to_owned() })
    }
}

pub(crate) enum Outcome {
    Flushed {
        token: Token,
        persisted: Persisted,
    },
    Saved {
        token: Token,
    },
    Cut {
        token: Token,
    },
    Trimmed,
    /// Why not, and where it may be tried again.
    NotTrimmed {
        cause: String,
        again: Option<Lsn>,
    },
    Prepared(Result<Prepared, PrepareError>),
    Scrubbed(Result<Scrubbed, DiskError>),
    MarkSynced,
    /// The persisted mark is lowered to this damage; `None`: what was damaged was cut off or trimmed since it was found.
    Distrusted {
        damage: Option<Damage>,
    },
    /// The medium failed: nothing can be acknowledged any more.
    Failed {
        reason: StopReason,
        cause: String,
    },
}

impl<D: Disk> Work<D> {
    /// Where it belongs.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self.job {
            Job::Flush { .. } => Lane::Flush,
            Job::Save { .. }
            | Job::Cut { .. }
            | Job::Reset { .. }
            | Job::Trim { .. }
            | Job::Distrust { .. } => Lane::Superblock,
            Job::Prepare { .. } | Job::SyncMark => Lane::Prepare,
            Job::Scrub { .. } => Lane::Scrub,
        }
    }

    /// What it is, for a simulator's trace.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.job {
            Job::Flush { .. } => "flush",
            Job::Save { .. } => "save",
            Job::Cut { .. } => "cut",
            Job::Reset { .. } => "reset",
            Job::Trim { .. } => "trim",
            Job::Prepare { .. } => "prepare",
            Job::SyncMark => "mark",
            Job::Scrub { .. } => "scrub",
            Job::Distrust { .. } => "distrust",
        }
    }

    /// Whether it is so short that handing it to another thread costs more than making it.
    pub(crate) fn is_errand(&self) -> bool {
        matches!(self.job, Job::Flush { is_short: true, .. })
    }

    /// Does it; waits for the disk.
    #[must_use]
    pub fn run(self) -> Done {
        let Work { store, job } = self;
        let failed = |cause: String| Outcome::Failed { reason: StopReason::FlushFailed, cause };
        Done(match job {
            Job::Flush { token, to, .. } => match store.flush(to) {
                Ok(persisted) => Outcome::Flushed { token, persisted: Persisted(persisted.lsn()) },
                Err(error) => failed(error.to_string()),
            },
            Job::Save { token, change } => match store.update(change) {
                Ok(()) => Outcome::Saved { token },
                Err(error) => failed(error.to_string()),
            },
            Job::Cut { token, at, change } => match store.cut_with(at, change) {
                Ok(()) => Outcome::Cut { token },
                Err(error) => failed(error.to_string()),
            },
            Job::Reset { token, at, change } => match store.reset_with(at, change) {
                Ok(()) => Outcome::Cut { token },
                Err(error) => failed(error.to_string()),
            },
            Job::Trim { to, drained, change } => match store.trim_with(to, drained, change) {
                Ok(()) => Outcome::Trimmed,
                Err(error @ (TrimError::Store(_) | TrimError::Update(_))) => failed(error.to_string()),
                // What stays costs space and nothing else; the next trim takes it along.
                Err(error @ (TrimError::BeyondEnd { .. } | TrimError::InsideRecord { .. })) => {
                    Outcome::NotTrimmed { cause: error.to_string(), again: None }
                }
                // A medium that does not read now may later.
                Err(error @ TrimError::Disk(_)) => {
                    Outcome::NotTrimmed { cause: error.to_string(), again: Some(to) }
                }
            },
            Job::Prepare { tail } => match store.prepare_step(tail) {
                // Not another try later: the first failure of the medium is final for all that this store does.
                Err(error @ PrepareError::Store(_)) => failed(error.to_string()),
                prepared => Outcome::Prepared(prepared),
            },
            Job::SyncMark => match store.sync_live_mark() {
                Ok(_) => Outcome::MarkSynced,
                Err(error) => failed(error.to_string()),
            },
            Job::Scrub { place, until, bytes_max } => Outcome::Scrubbed(store.scrub(place, until, bytes_max)),
            Job::Distrust { damage } => match store.distrust(damage.start..damage.end) {
                Ok(start) => Outcome::Distrusted { damage: start.map(|start| Damage { start, ..damage }) },
                Err(error) => failed(error.to_string()),
            },
        })
    }
}

/// Does work and hands back what became of it.
pub trait Executor<D: Disk>: Send + 'static {
    /// Takes work on. Never waits.
    fn submit(&mut self, work: Work<D>);

    /// What is done, if anything. Never waits.
    fn poll(&mut self) -> Option<Done>;
}

/// Does each piece of work as soon as it is submitted, on the caller's thread.
pub struct InlineExecutor(std::collections::VecDeque<Done>);

impl InlineExecutor {
    /// An executor with nothing to do.
    #[must_use]
    pub fn new() -> InlineExecutor {
        InlineExecutor(std::collections::VecDeque::new())
    }
}

impl Default for InlineExecutor {
    fn default() -> InlineExecutor {
        InlineExecutor::new()
    }
}

impl<D: Disk> Executor<D> for InlineExecutor {
    fn submit(&mut self, work: Work<D>) {
        self.0.push_back(work.run());
    }

    fn poll(&mut self) -> Option<Done> {
        self.0.pop_front()
    }
}
