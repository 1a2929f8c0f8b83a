//! A table of keys and values that each member of a group keeps from the log, and whose checkpoints the members give each other.
//!
//! ```text
//!  put ── append, commit ──▶ log ──▶ reader of each member ──▶ Table (memory)
//!                             ▲                                  │ checkpoint: a file, durable; then trim the log up to it
//!                             └────────── trim ◀─────────────────┘
//!  a member beyond the retention:   log is gone ──▶ the file of another member, streamed ──▶ Table, log goes on behind it
//! ```
//!
//! What an application has to keep, and where it is kept here:
//!
//! 1. **A checkpoint says by itself up to where it holds the log, and which line of it**: the file's first line, an LSN and an epoch, and not its name or another file.
//! 2. **It appears whole or not at all**: written under another name, synced, renamed, folder synced (`put_in_place`).
//! 3. **The log is never trimmed ahead of it**: [`Table::checkpoint`] is durable before it answers the LSN to trim at.
//! 4. **What was streamed is the table from then on**: [`Incoming::finish`] first makes the file durable, then swaps what is in memory, and whoever applies
//!    records begins a new reader there ([`Table::follow`]).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass::{
    Checkpoint, CheckpointFault, CheckpointPosition, CheckpointSink, Checkpoints, Epoch, Lsn, Node,
    OfferedCheckpoint, ReadError,
};

const FILE: &str = "checkpoint";
const INCOMING: &str = "checkpoint.incoming";
const OUTGOING: &str = "checkpoint.new";

/// The table of one member.
pub struct Table {
    folder: PathBuf,
    state: Mutex<State>,
}

struct State {
    pairs: BTreeMap<String, String>,
    /// Everything below is in `pairs`.
    applied: CheckpointPosition,
    /// Everything below is in the checkpoint's file, durably.
    durable: CheckpointPosition,
    /// How many checkpoints have come from others: a reader of before is past what holds.
    brought: u64,
}

impl Table {
    /// The table as its last checkpoint has it, or an empty one.
    ///
    /// # Errors
    ///
    /// The folder can't be made, or its checkpoint can't be read.
    pub fn open(folder: &Path) -> io::Result<Arc<Table>> {
        std::fs::create_dir_all(folder)?;
        let state = match File::open(folder.join(FILE)) {
            Ok(file) => {
                let (applied, pairs) = read(file)?;
                State { pairs, applied, durable: applied, brought: 0 }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let nothing = CheckpointPosition::NOTHING;
                State { pairs: BTreeMap::new(), applied: nothing, durable: nothing, brought: 0 }
            }
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Table { folder: folder.into(), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything in the log below is in the table.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.state().applied.at
    }

    /// What is in it.
    #[must_use]
    pub fn pairs(&self) -> BTreeMap<String, String> {
        self.state().pairs.clone()
    }

    /// Applies the log's records as they become durable, until `stop`.
    ///
    /// # Errors
    ///
    /// The log can't be read.
    pub fn follow(&self, node: &Node, stop: &AtomicBool) -> Result<(), ReadError> {
        'reader: while !stop.load(Ordering::Acquire) {
            let (from, brought) = {
                let state = self.state();
                // A log begins at its trim point, a table without a checkpoint at nothing.
                (
                    if state.applied.at == Lsn(0) { node.status().trimmed } else { state.applied.at },
                    state.brought,
                )
            };
            let mut reader = match node.read_from(from) {
                Ok(reader) => reader,
                // The log has gone on behind a checkpoint of which the table does not know yet: it comes.
                Err(ReadError::Purged { .. }) => {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                }
                Err(error) => return Err(error),
            };
            while !stop.load(Ordering::Acquire) {
                match reader.next_blocking(Some(Instant::now() + Duration::from_millis(50))) {
                    Ok(record) => {
                        let mut state = self.state();
                        if state.brought != brought {
                            continue 'reader;
                        }
                        let text = String::from_utf8_lossy(record.payload);
                        if let Some((key, value)) = text.split_once('=') {
                            state.pairs.insert(key.into(), value.into());
                        }
                        state.applied = CheckpointPosition { at: record.end, epoch: record.epoch };
                    }
                    // Nothing new; or the log went away below the reader, since a checkpoint stands for it.
                    Err(ReadError::AtEnd { .. }) if self.state().brought == brought => {}
                    Err(ReadError::AtEnd { .. } | ReadError::Purged { .. }) => continue 'reader,
                    Err(ReadError::Ended { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Makes the table durable; answers the LSN up to which the log is not needed any more.
    ///
    /// # Errors
    ///
    /// The file can't be written. The one before holds.
    pub fn checkpoint(&self) -> io::Result<Lsn> {
        // Writers wait: a table of some size would write from a copy.
        let mut state = self.state();
        let mut file = File::create(self.folder.join(OUTGOING))?;
        let mut text = format!("{} {}\n", state.applied.at.0, state.applied.epoch.to_bits());
        for (key, value) in &state.pairs {
            text.extend([key, "=", value, "\n"]);
        }
        file.write_all(text.as_bytes())?;
        put_in_place(&self.folder, OUTGOING, &file)?;
        state.durable = state.applied;
        Ok(state.applied.at)
    }
}

/// A checkpoint's first line: where it ends, and the epoch of the last record.
fn position(line: &str) -> Option<CheckpointPosition> {
    let (at, epoch) = line.trim_end().split_once(' ')?;
    Some(CheckpointPosition { at: Lsn(at.parse().ok()?), epoch: Epoch::from_bits(epoch.parse().ok()?) })
}

/// A checkpoint's file: its position, then a pair on each line.
fn read(file: File) -> io::Result<(CheckpointPosition, BTreeMap<String, String>)> {
    let mut lines = BufReader::new(file).lines();
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no checkpoint of a table");
    let at = position(&lines.next().ok_or_else(wrong)??).ok_or_else(wrong)?;
    let mut pairs = BTreeMap::new();
    for line in lines {
        let line = line?;
        let (key, value) = line.split_once('=').ok_or_else(wrong)?;
        pairs.insert(key.into(), value.into());
    }
    Ok((at, pairs))
}

/// Gives a written file its name: after a crash there is the one before, or this one whole.
fn put_in_place(folder: &Path, name: &str, file: &File) -> io::Result<()> {
    file.sync_all()?;
    std::fs::rename(folder.join(name), folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

/// What the node asks of the table: `NodeOptions::checkpoints(Arc::new(Shared(table)))`.
pub struct Shared(pub Arc<Table>);

impl Checkpoints for Shared {
    /// What is durable, and not what is applied: after a crash the table begins there.
    fn position(&self) -> Result<CheckpointPosition, CheckpointFault> {
        Ok(self.0.state().durable)
    }

    fn open(&self, least: Lsn) -> Result<Checkpoint, CheckpointFault> {
        if self.0.state().durable.at < least {
            self.0.checkpoint()?;
        }
        // Open, it stays as it is, whatever takes its name meanwhile.
        let mut file = File::open(self.0.folder.join(FILE))?;
        let mut first = String::new();
        BufReader::new(&file).read_line(&mut first)?;
        file.rewind()?;
        let held = position(&first).ok_or("its first line is no position")?;
        let bytes = file.metadata()?.len();
        Ok(Checkpoint { position: held, bytes: Some(bytes), content: Box::new(file) })
    }

    fn begin(&self, offered: &OfferedCheckpoint) -> Result<Box<dyn CheckpointSink>, CheckpointFault> {
        let file = File::create(self.0.folder.join(INCOMING))?;
        Ok(Box::new(Incoming {
            table: Arc::clone(&self.0),
            at: CheckpointPosition { at: offered.at, epoch: offered.epoch },
            file,
        }))
    }
}

/// A checkpoint that comes from another member, in a file of its own.
pub struct Incoming {
    table: Arc<Table>,
    at: CheckpointPosition,
    file: File,
}

impl CheckpointSink for Incoming {
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), CheckpointFault> {
        Ok(self.file.write_all(bytes)?)
    }

    fn finish(self: Box<Self>) -> Result<(), CheckpointFault> {
        let folder = &self.table.folder;
        let (at, pairs) = read(File::open(folder.join(INCOMING))?)?;
        if at != self.at {
            return Err(format!("its first line says {at:?}, its giver {:?}", self.at).into());
        }
        // No checkpoint of this member's own may come between the file and what is in memory.
        let mut state = self.table.state();
        put_in_place(folder, INCOMING, &self.file)?;
        (state.pairs, state.applied, state.durable) = (pairs, at, at);
        state.brought += 1;
        Ok(())
    }
}
