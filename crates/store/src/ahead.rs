//! Reading ahead of a reader: a thread of the caller's copies out the next pieces of the log while the reader checks and lends the ones before. The
//! store makes no thread itself.
//!
//! ```text
//!  the reader's thread                     the other thread
//!  takes piece n, checks its records       copies piece n + 1 out of the file, n + 2, ... up to PIECES
//!  piece n not there: copies it itself
//! ```
//!
//! Nothing but time depends on it: a reader that finds anything amiss in a piece that was read ahead forgets it and looks itself, so every answer comes from
//! what it has read on its own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use windlass_log::{AHEAD_HEAD, Geometry, Lsn};

use crate::disk::Disk;
use crate::image::Files;
use crate::store::{Store, locked};

/// Bytes of a piece: enough that handing it over costs little beside copying it, few enough that it is still in a cache when it is checked.
const PIECE_BYTES: u64 = 128 << 10;
/// Pieces ahead of the reader, at most.
const PIECES: usize = 12;
/// How often the reader looks whether the piece is there that the thread is copying, about as long as copying takes. It never sleeps for one: the
/// thread may have lost its processor, and waking up takes longer than copying.
const LOOKS: u32 = 32;
/// Bytes of a piece that the reader copies itself, because the thread has not come to it.
const OWN_BYTES: u64 = 64 << 10;

/// What reader and thread share.
struct Shared {
    state: Mutex<State>,
    /// The thread may go on.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Where the next piece begins that nobody has begun.
    next: Lsn,
    /// Nothing is read from here on.
    until: Lsn,
    pieces: VecDeque<Piece>,
    /// The piece that the thread is copying, if it is still wanted: where it begins and how long it is.
    copying: Option<(Lsn, u64)>,
    /// The thread sleeps until there is room. Waking nobody costs a system call, too.
    thread_sleeps: bool,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    stopped: bool,
}

/// Bytes of the log, behind [`AHEAD_HEAD`] free ones.
struct Piece {
    start: Lsn,
    bytes: Vec<u8>,
    held: u64,
}

/// What a reader gets.
pub(crate) enum Taken {
    /// A piece that was read ahead.
    Read {
        /// Its bytes, behind [`AHEAD_HEAD`] free ones.
        bytes: Vec<u8>,
        /// How many.
        held: u64,
    },
    /// A piece that is now the reader's to read.
    Unread {
        /// A buffer, of any length.
        bytes: Vec<u8>,
        /// How many bytes to read.
        held: u64,
    },
}

/// The reader's end.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
}

/// The thread's end: what [`Reader::read_ahead`](crate::Reader::read_ahead) gives to run.
pub struct AheadWork<D: Disk> {
    store: Arc<Store<D>>,
    shared: Arc<Shared>,
}

impl<D: Disk> std::fmt::Debug for AheadWork<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AheadWork").finish_non_exhaustive()
    }
}

impl State {
    /// The next piece that nobody has begun, of at most `bytes_max`: where it begins and how long it is.
    fn begin(&mut self, geometry: Geometry, bytes_max: u64) -> Option<(Lsn, u64)> {
        let start = geometry.normalize(self.next);
        if self.stopped || start >= self.until {
            return None;
        }
        let bytes = bytes_max.min(geometry.room(start)).min(self.until.0 - start.0);
        self.next = Lsn(start.0 + bytes);
        Some((start, bytes))
    }
}

/// Reading ahead of `start`, up to `until`, a record's end.
pub(crate) fn read_ahead<D: Disk>(store: &Arc<Store<D>>, start: Lsn, until: Lsn) -> (Ahead, AheadWork<D>) {
    let state = State { next: start, until, ..State::default() };
    let shared = Arc::new(Shared { state: Mutex::new(state), room: Condvar::new() });
    (Ahead { shared: shared.clone() }, AheadWork { store: store.clone(), shared })
}

impl Ahead {
    /// The piece that begins at `start`. `None`: it is past what was to be read ahead, or something is amiss; nothing more comes.
    pub(crate) fn take(&mut self, geometry: Geometry, start: Lsn) -> Option<Taken> {
        let mut state = locked(&self.shared.state);
        let copied = |state: &State| state.copying.filter(|(at, _)| *at == start);
        let mut looks = 0;
        while copied(&state).is_some() && looks < LOOKS {
            looks += 1;
            drop(state);
            (0..64).for_each(|_| std::hint::spin_loop());
            state = locked(&self.shared.state);
        }
        if let Some((_, held)) = copied(&state) {
            state.copying = None;
            return Some(Taken::Unread { bytes: state.spare.pop().unwrap_or_default(), held });
        }
        if state.pieces.is_empty() && geometry.normalize(state.next) == start {
            if let Some((_, held)) = state.begin(geometry, OWN_BYTES) {
                return Some(Taken::Unread { bytes: state.spare.pop().unwrap_or_default(), held });
            }
        } else if let Some(piece) = state.pieces.pop_front().filter(|piece| piece.start == start) {
            if state.pieces.len() <= PIECES / 2 && state.thread_sleeps {
                self.shared.room.notify_one();
            }
            return Some(Taken::Read { bytes: piece.bytes, held: piece.held });
        }
        state.stopped = true;
        self.shared.room.notify_one();
        None
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        locked(&self.shared.state).stopped
    }

    /// A buffer that is used no more.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        locked(&self.shared.state).spare.push(bytes);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        locked(&self.shared.state).stopped = true;
        self.shared.room.notify_one();
    }
}

/// Room for a piece, behind [`AHEAD_HEAD`] free bytes. `false`: no memory.
pub(crate) fn make_room(bytes: &mut Vec<u8>, held: u64) -> bool {
    let len = usize::try_from(held).expect("a piece fits memory") + AHEAD_HEAD;
    if bytes.try_reserve_exact(len.saturating_sub(bytes.len())).is_err() {
        return false;
    }
    bytes.resize(len.max(bytes.len()), 0);
    true
}

impl<D: Disk> AheadWork<D> {
    /// Reads ahead until the reader is gone or has all there was to read. To be run by a thread of its own.
    pub fn run(self) {
        let mut file = None;
        let mut state = locked(&self.shared.state);
        loop {
            while state.pieces.len() >= PIECES && !state.stopped {
                state.thread_sleeps = true;
                state = self.shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.thread_sleeps = false;
            }
            let Some((start, held)) = state.begin(self.store.geometry, PIECE_BYTES) else { return };
            state.copying = Some((start, held));
            let mut bytes = state.spare.pop().unwrap_or_default();
            drop(state);
            let whole = self.copy(&mut file, start, held, &mut bytes);
            state = locked(&self.shared.state);
            if state.copying.take().is_none() {
                // The reader did not wait for it.
                state.spare.push(bytes);
            } else if whole {
                state.pieces.push_back(Piece { start, bytes, held });
            } else {
                // The reader finds out what is the matter with it.
                state.stopped = true;
            }
        }
    }

    fn copy(&self, file: &mut crate::image::OpenFile<D>, start: Lsn, held: u64, bytes: &mut Vec<u8>) -> bool {
        let mut files = Files::new(&self.store.disk, self.store.geometry, file);
        make_room(bytes, held) && files.read_behind_head(start, held, bytes)
    }
}
