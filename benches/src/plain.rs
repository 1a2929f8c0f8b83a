//! A plain group commit, as most logs have it: records gather in memory under a mutex; a committer that finds nobody
//! flushing writes what has gathered by `pwrite` and makes it durable by `fdatasync`; the others wait on a condition.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};

/// A file of zeros that is written round and round.
pub(crate) struct PlainLog {
    file: File,
    file_bytes: u64,
    state: Mutex<State>,
    flushed: Condvar,
}

#[derive(Default)]
struct State {
    gathered: Vec<u8>,
    spare: Vec<u8>,
    tail: u64,
    durable: u64,
    is_flushing: bool,
    failure: Option<io::ErrorKind>,
}

impl PlainLog {
    /// Over a file whose `file_bytes` bytes have all been written before.
    pub(crate) fn new(file: File, file_bytes: u64) -> PlainLog {
        PlainLog { file, file_bytes, state: Mutex::default(), flushed: Condvar::new() }
    }

    /// Appends a record and returns once it is durable.
    pub(crate) fn put(&self, record: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.gathered.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
        state.gathered.extend_from_slice(record);
        state.tail += record.len() as u64 + 4;
        let end = state.tail;
        while state.durable < end {
            if let Some(kind) = state.failure {
                return Err(kind.into());
            }
            if state.is_flushing {
                state = self.flushed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_flushing = true;
            let spare = std::mem::take(&mut state.spare);
            let mut group = std::mem::replace(&mut state.gathered, spare);
            let (from, upto) = (state.durable, state.tail);
            drop(state);
            let written = self.write(&group, from);
            group.clear();
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.spare = group;
            state.is_flushing = false;
            match written {
                Ok(()) => state.durable = upto,
                Err(error) => state.failure = Some(error.kind()),
            }
            self.flushed.notify_all();
        }
        Ok(())
    }

    fn write(&self, group: &[u8], at: u64) -> io::Result<()> {
        let room = self.file_bytes - group.len() as u64;
        self.file.write_all_at(group, at % room)?;
        self.file.sync_data()
    }
}
