//! The raw quorum log: about the least that can be called one. The primary gathers records under a mutex; one thread writes what
//! has gathered to its own file, and one thread per backup sends it and waits for the answer; a put is done when two of the three have
//! it. A group that is to be durable is flushed once, by `fdatasync`, at each of the three. No epochs, no recovery, no reading.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::child;
use crate::durable::filled;
use crate::error::{BenchError, During};
use crate::group::clients::{self, Put};
use crate::group::{Answer, Request, Wanted, latency};

/// The role of the primary.
pub(crate) const ROLE: &str = "quorum-primary";
/// The role of a backup.
pub(crate) const BACKUP_ROLE: &str = "quorum-backup";

#[derive(Serialize, Deserialize)]
pub(crate) struct Argument {
    pub(crate) file: PathBuf,
    pub(crate) file_bytes: u64,
    pub(crate) backups: Vec<SocketAddr>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct BackupArgument {
    pub(crate) file: PathBuf,
    pub(crate) file_bytes: u64,
}

/// A file of zeros that is written round and round.
struct Ring {
    file: File,
    file_bytes: u64,
}

impl Ring {
    fn write(&self, group: &[u8], at: u64, flush: bool) -> io::Result<()> {
        let room = self.file_bytes - group.len() as u64;
        self.file.write_all_at(group, at % room)?;
        if flush { self.file.sync_data() } else { Ok(()) }
    }
}

#[derive(Default)]
struct State {
    /// Bytes from `base` to `tail` that not everybody has.
    gathered: Vec<u8>,
    base: u64,
    tail: u64,
    /// Up to where each of the three has it.
    marks: [u64; 3],
    failure: Option<io::ErrorKind>,
}

impl State {
    /// Up to where two of three have it.
    fn quorum(&self) -> u64 {
        let mut marks = self.marks;
        marks.sort_unstable();
        marks[1]
    }

    fn forget(&mut self) {
        let all_have = self.marks.into_iter().min().expect("three");
        let count = usize::try_from(all_have - self.base).expect("in memory");
        // Rarely, so that moving the rest costs nothing.
        if count >= self.gathered.len() / 2 {
            self.gathered.drain(..count);
            self.base = all_have;
        }
    }
}

struct Primary {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    flush: AtomicBool,
}

impl Primary {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member's thread: hands it group after group.
    fn feed(&self, member: usize, mut give: impl FnMut(&[u8], u64, bool) -> io::Result<()>) {
        let mut group = Vec::new();
        let mut from = 0;
        loop {
            let mut state = self.state();
            while state.tail == from {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let upto = state.tail;
            group.clear();
            let start = usize::try_from(from - state.base).expect("in memory");
            group.extend_from_slice(&state.gathered[start..]);
            drop(state);
            let given = give(&group, from, self.flush.load(Ordering::Relaxed));
            let mut state = self.state();
            match given {
                Ok(()) => state.marks[member] = upto,
                Err(error) => state.failure = Some(error.kind()),
            }
            state.forget();
            let failed = state.failure.is_some();
            drop(state);
            self.done.notify_all();
            if failed {
                return;
            }
            from = upto;
        }
    }
}

impl Put for Primary {
    fn put(&self, record: &[u8], wanted: Wanted) -> Result<(), BenchError> {
        // All callers of a round want the same.
        self.flush.store(wanted == Wanted::Durable, Ordering::Relaxed);
        let mut state = self.state();
        state.gathered.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
        state.gathered.extend_from_slice(record);
        state.tail += record.len() as u64 + 4;
        let end = state.tail;
        self.work.notify_all();
        while state.quorum() < end {
            if let Some(kind) = state.failure {
                return Err(io::Error::from(kind)).during("the raw quorum log");
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

/// The body of [`ROLE`].
pub(crate) fn role(argument: &Argument) -> Result<(), BenchError> {
    let primary = Arc::new(Primary {
        state: Mutex::default(),
        work: Condvar::new(),
        done: Condvar::new(),
        flush: AtomicBool::new(false),
    });
    let ring = Ring { file: filled(&argument.file, argument.file_bytes)?, file_bytes: argument.file_bytes };
    let own = primary.clone();
    thread::spawn(move || own.feed(0, |group, at, flush| ring.write(group, at, flush)));
    for (member, address) in (1..).zip(&argument.backups) {
        let mut stream = TcpStream::connect(address).during("connecting to a backup")?;
        stream.set_nodelay(true)?;
        let primary = primary.clone();
        thread::spawn(move || {
            let mut frame = Vec::new();
            primary.feed(member, |group, at, flush| send(&mut stream, &mut frame, group, at, flush));
        });
    }
    child::serve(|request| match request {
        Request::Drive { callers, how_ms, wanted } => clients::drive_here(&*primary, callers, how_ms, wanted),
        Request::Serve { wanted } => clients::serve(primary.clone(), wanted),
        Request::Latency(round) => latency::round(&*primary, &round),
        Request::Trim | Request::IsPrimary { .. } => Ok(Answer::Yes(true)),
        Request::Bulk { .. } => Err(io::Error::other("the raw quorum log takes single records").into()),
    })
}

/// Length, place, whether to flush; then the group. The answer is 8 bytes.
fn send(stream: &mut TcpStream, frame: &mut Vec<u8>, group: &[u8], at: u64, flush: bool) -> io::Result<()> {
    frame.clear();
    frame.extend_from_slice(&(group.len() as u64).to_le_bytes());
    frame.extend_from_slice(&at.to_le_bytes());
    frame.push(u8::from(flush));
    frame.extend_from_slice(group);
    stream.write_all(frame)?;
    stream.read_exact(&mut [0; 8])
}

/// The body of [`BACKUP_ROLE`]: answers where it listens, and serves one primary.
pub(crate) fn backup_role(argument: &BackupArgument) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").during("listening")?;
    let address = listener.local_addr()?;
    let ring = Ring { file: filled(&argument.file, argument.file_bytes)?, file_bytes: argument.file_bytes };
    thread::spawn(move || {
        // The primary reports what it misses.
        let _ = listener.accept().and_then(|(stream, _)| back_up(stream, &ring));
    });
    child::serve(|()| Ok(address))
}

fn back_up(mut stream: TcpStream, ring: &Ring) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 17];
    let mut group = Vec::new();
    loop {
        stream.read_exact(&mut head)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        group.resize(usize::try_from(word(0)).expect("our own primary sends it"), 0);
        stream.read_exact(&mut group)?;
        ring.write(&group, word(8), head[16] != 0)?;
        stream.write_all(&[1; 8])?;
    }
}
