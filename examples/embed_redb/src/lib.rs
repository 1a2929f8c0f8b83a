//! The smallest honest embedding of windlass in a database: a key-value store whose tables live in redb and whose log is
//! windlass.
//!
//! ```text
//!  write ── append ──► log ── commit (one flush for all who wait) ──► apply, in the log's order ──► acknowledge
//!                       │                                              │
//!                       │                                    redb, Durability::None: no flush
//!                       │
//!  checkpoint: redb, Durability::Immediate, tables and applied LSN in one transaction ──► trim the log up to it
//!  open:       read the applied LSN from redb ──► replay the log from there
//! ```
//!
//! redb alone flushes at least once for each durable transaction, and one transaction runs at a time. Here the flush is the
//! log's, which all writers share; redb flushes at checkpoints alone.
//!
//! # What holds
//!
//! 1. **The tables are never durable ahead of the log.** Nothing is applied that has not reached the log's medium (or, at
//!    `Buffered`, the log is flushed up to the applied LSN before redb is). So whatever redb still has after a crash, the log has too.
//! 2. **The log is never trimmed ahead of the tables.** [`Store::checkpoint`] trims up to an LSN that a durable commit of
//!    redb holds. So whatever redb lost in a crash, the log still has.
//! 3. **A record is applied once, in the log's order, and with it the LSN behind it,** in the same redb transaction. There is no
//!    moment at which the tables and the applied LSN disagree, so replay never repeats and never skips.
//! 4. **Running and recovering are one code path**: the tables change by reading the log, never by what a writer still has in its
//!    memory.
//! 5. **A batch is one record** of the log, and a redb transaction never ends inside one: after a crash it is there or not.
//!
//! From 1 and 2, `trimmed ≤ applied (as redb has it) ≤ durable end of the log`. [`Store::open`] checks both ends and that
//! the record that was applied last is still the log's own; each has its own error ([`OpenError::TablesBehind`],
//! [`OpenError::TablesAhead`], [`OpenError::TablesOfAnotherLog`]).
//!
//! # Where a crash may fall
//!
//! | between | what is there afterwards |
//! |---|---|
//! | append and the end of its commit | the operation, or not: it was not acknowledged |
//! | commit and apply | the operation, by replay; it was not acknowledged |
//! | apply and the next checkpoint | the operation, by replay: redb falls back to its last durable commit, applied LSN included |
//! | redb's durable commit and the trim | records in the log that the tables have: replay starts behind them |
//! | any two steps of opening | the same as before opening: replay changes redb non-durably, the log it reads not at all |
#![forbid(unsafe_code)]

mod error;
mod op;
mod store;
mod tables;

pub use error::{ApplyError, CheckpointError, CloseError, OpenError, ReadError, WriteError};
pub use op::{MalformedOp, Op};
pub use store::{Options, Stats, Store};
pub use tables::Mark;
