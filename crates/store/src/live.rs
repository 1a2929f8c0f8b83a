//! The live mark's two slots, behind the superblock's copies in its file: how far the log is on the medium, by the flushes of the process that has it open. DESIGN.md section 4.3.
//!
//! ```text
//!  superblock   |copy, 64 KiB|copy, 64 KiB|slot, in a page of its own|slot|
//! ```
//!
//! Slots are stored through a mapping, with no system call, after each flush and before anybody hears of it. So what a killed process leaves in the page cache is exact, and what a loss of power
//! leaves is older than the truth by what was not yet written back: [`Store::sync_live_mark`] bounds that.
//!
//! Invariants:
//!
//! * a slot is never ahead of what was flushed, and the one before it is whole while it is written;
//! * before the log is cut or thrown away below a mark, no slot says more, durably: what goes must not be missed by the next opening;
//! * slots that are absent, unreadable, torn, another log's, another folder's or of another history say nothing, and are never an error.

use std::sync::Mutex;

use windlass_log::{EpochHistory, LIVE_MARK_BYTES, LiveMark, Lsn, Superblock};

use crate::disk::{Disk, DiskFile, DiskMap, Errno};
use crate::error::{At, DiskCall, DiskError, StoreError};
use crate::folder;
use crate::names;
use crate::segment::MapOf;
use crate::store::{Store, locked};
use crate::superblock::COPY_BYTES;

/// Of a slot: so that a device that tears a page takes one of the two.
const PAGE_BYTES: u64 = 4096;
/// Where the slots begin in the superblock's file.
pub(crate) const SLOTS_AT: u64 = 2 * COPY_BYTES;
/// Where they end.
pub(crate) const FILE_BYTES: u64 = SLOTS_AT + 2 * PAGE_BYTES;

fn slot_at(sequence: u64) -> u64 {
    SLOTS_AT + sequence % 2 * PAGE_BYTES
}

/// The two slots as they were found, if they are this log's and this folder's.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    slots: [Option<LiveMark>; 2],
    /// The highest sequence of any whole slot, also of one that is not this folder's.
    sequence: u64,
    place: u64,
}

/// Reads the slots in the superblock's file.
pub(crate) fn read<D: Disk>(disk: &D, file: &D::File, now: &Superblock) -> Result<Found, DiskError> {
    let place = folder::place_of(file.identity().at(DiskCall::Stat, disk.path(), names::SUPERBLOCK)?);
    let mut found = Found { slots: [None; 2], sequence: 0, place };
    for (number, slot) in (0..).zip(&mut found.slots) {
        let mut bytes = [0; LIVE_MARK_BYTES];
        let count = match file.read_at(&mut bytes, slot_at(number)) {
            // The other slot may say something, and the next opening writes this one again.
            Err(Errno::IO) => continue,
            read => read.at(DiskCall::Read, disk.path(), names::SUPERBLOCK)?,
        };
        let Some(mark) = LiveMark::decode(&bytes[..count]) else { continue };
        found.sequence = found.sequence.max(mark.sequence);
        let is_own = mark.log_id == now.log_id && mark.incarnation == now.incarnation && mark.place == place;
        *slot = is_own.then_some(mark);
    }
    Ok(found)
}

impl Found {
    /// The newest mark that speaks of the log with this history.
    fn newest(&self, history: &EpochHistory) -> Option<LiveMark> {
        let of = self.slots.iter().flatten().filter(|mark| mark.is_of(history));
        of.max_by_key(|mark| mark.sequence).copied()
    }

    /// Everything below was flushed; 0 if nothing is known.
    pub(crate) fn flushed(&self, history: &EpochHistory) -> Lsn {
        self.newest(history).map_or(Lsn(0), |mark| mark.persisted)
    }

    /// The highest mark in a slot.
    fn highest(&self) -> Lsn {
        self.slots.iter().flatten().map(|mark| mark.persisted).max().unwrap_or(Lsn(0))
    }

    /// Before a log that nobody has open is cut at `lsn`: no slot says more any longer, durably.
    pub(crate) fn lower<D: Disk>(
        &self,
        disk: &D,
        file: &D::File,
        now: &Superblock,
        lsn: Lsn,
    ) -> Result<(), DiskError> {
        if self.highest() <= lsn {
            return Ok(());
        }
        State::new(self, now).lower_in(disk, file, lsn)
    }
}

/// What the slots say.
struct State {
    /// The newest.
    mark: LiveMark,
    /// The highest that one of the two says.
    highest: Lsn,
    history: EpochHistory,
    /// The medium may have older slots.
    is_dirty: bool,
    /// Which slots were found to say anything.
    is_found: [bool; 2],
    /// The folder may be another's: nothing is stored any more.
    is_given_up: bool,
}

impl State {
    fn new(found: &Found, now: &Superblock) -> State {
        let newest = found.newest(&now.history);
        let mark = LiveMark {
            log_id: now.log_id,
            incarnation: now.incarnation,
            place: found.place,
            sequence: found.sequence,
            persisted: newest.map_or(Lsn(0), |mark| mark.persisted),
            epoch: newest.map_or_else(Default::default, |mark| mark.epoch),
        };
        State {
            mark,
            highest: found.highest(),
            history: now.history.clone(),
            is_dirty: false,
            is_found: found.slots.map(|slot| slot.is_some()),
            is_given_up: false,
        }
    }

    /// The next mark, in the other slot; `None` if it would say nothing new, or the history has no epoch there, or the folder was given up.
    fn raised(&mut self, persisted: Lsn) -> Option<LiveMark> {
        if self.is_given_up || persisted <= self.mark.persisted {
            return None;
        }
        self.mark.epoch = LiveMark::epoch_below(&self.history, persisted)?;
        self.mark.sequence += 1;
        self.mark.persisted = persisted;
        self.highest = self.highest.max(persisted);
        self.is_dirty = true;
        Some(self.mark)
    }

    /// What both slots are to say, that no more than `lsn` is known.
    fn lowered(&mut self, lsn: Lsn) -> [LiveMark; 2] {
        let persisted = self.mark.persisted.min(lsn);
        let epoch = LiveMark::epoch_below(&self.history, persisted);
        (self.mark.persisted, self.mark.epoch) = (persisted, epoch.unwrap_or_default());
        self.highest = persisted;
        self.is_dirty = false;
        [(); 2].map(|()| {
            self.mark.sequence += 1;
            self.mark
        })
    }

    /// Lowers both slots durably, with no mapping.
    fn lower_in<D: Disk>(&mut self, disk: &D, file: &D::File, lsn: Lsn) -> Result<(), DiskError> {
        let is_found = self.is_found;
        for mark in self.lowered(lsn) {
            match file.write_at(&mark.encode(), slot_at(mark.sequence)) {
                // It said nothing, and still does.
                Err(Errno::NOSPC | Errno::DQUOT) if !is_found[usize::from(mark.sequence % 2 == 1)] => {}
                written => written.at(DiskCall::Write, disk.path(), names::SUPERBLOCK)?,
            }
        }
        file.sync().at(DiskCall::Sync, disk.path(), names::SUPERBLOCK)
    }
}

/// The slots of a store that is open.
pub(crate) struct LiveMarks<D: Disk> {
    /// `None` where the disk was too full for them when the log was opened.
    map: Option<MapOf<D>>,
    state: Mutex<State>,
}

impl<D: Disk> LiveMarks<D> {
    /// Makes the slots in a superblock's file that has none yet, and maps them. `next` is the superblock as the opening leaves it.
    ///
    /// Both pages are written once, with what they hold: a file that was put back may have a hole there, and a store through a mapping must never run out of space (kind 20). In a copied folder they
    /// are the original's, and `found` has nothing of them.
    pub(crate) fn open(
        disk: &D,
        file: &D::File,
        found: &Found,
        next: &Superblock,
    ) -> Result<LiveMarks<D>, DiskError> {
        let state = Mutex::new(State::new(found, next));
        for (number, slot) in (0..).zip(&found.slots) {
            let mut page = [0; 4096];
            if let Some(mark) = slot {
                page[..LIVE_MARK_BYTES].copy_from_slice(&mark.encode());
            }
            match file.write_at(&page, slot_at(number)) {
                // A log opens on a full disk, too.
                Err(Errno::NOSPC | Errno::DQUOT) => return Ok(LiveMarks { map: None, state }),
                written => written.at(DiskCall::Write, disk.path(), names::SUPERBLOCK)?,
            }
        }
        let map = file.map(FILE_BYTES).at(DiskCall::Map, disk.path(), names::SUPERBLOCK)?;
        Ok(LiveMarks { map: Some(map), state })
    }

    /// Everything below `persisted` was just flushed. No system call; a kill in the middle leaves the mark before.
    pub(crate) fn raise(&self, persisted: Lsn) {
        let Some(map) = &self.map else { return };
        let mut state = locked(&self.state);
        if let Some(mark) = state.raised(persisted) {
            map.memory().copy_in(slot_at(mark.sequence), &mark.encode());
        }
    }

    /// The superblock has this history now.
    pub(crate) fn follow(&self, history: &EpochHistory) {
        let mut state = locked(&self.state);
        if state.history != *history {
            state.history = history.clone();
            if !state.mark.is_of(history) {
                // Void by itself: what is flushed from here on counts from the start.
                state.mark.persisted = Lsn(0);
            }
        }
    }

    /// The folder is about to be given up, and may be another's next: no slot is stored to from here on, also by a flush that has come to it already.
    pub(crate) fn give_up(&self) {
        locked(&self.state).is_given_up = true;
    }

    /// Before the log is cut at `lsn`, with no flush under way: no slot says more any longer, durably. `file` is the superblock's.
    pub(crate) fn lower(&self, disk: &D, file: &D::File, lsn: Lsn) -> Result<(), DiskError> {
        let mut state = locked(&self.state);
        if state.highest <= lsn {
            return Ok(());
        }
        // A slot may say something all the same: the other one found no room.
        let Some(map) = &self.map else { return state.lower_in(disk, file, lsn) };
        for mark in state.lowered(lsn) {
            map.memory().copy_in(slot_at(mark.sequence), &mark.encode());
        }
        drop(state);
        map.flush_range(SLOTS_AT..FILE_BYTES).at(DiskCall::FlushRange, disk.path(), names::SUPERBLOCK)
    }

    /// Makes the slots durable, if they have changed since.
    fn sync(&self, disk: &D) -> Result<bool, DiskError> {
        let Some(map) = &self.map else { return Ok(false) };
        if !std::mem::take(&mut locked(&self.state).is_dirty) {
            return Ok(false);
        }
        map.flush_range(SLOTS_AT..FILE_BYTES).at(DiskCall::FlushRange, disk.path(), names::SUPERBLOCK)?;
        Ok(true)
    }
}

impl<D: Disk> Store<D> {
    /// Whether the live mark has moved since it was last made durable.
    #[must_use]
    pub fn is_live_mark_moved(&self) -> bool {
        locked(&self.live.state).is_dirty
    }

    /// Makes the live mark durable, if it has moved since the last time: whether it has. To be called about once a second by whoever has the time: after a loss of power it then says what
    /// was flushed up to a second before. No flush of the log waits for it, and none is waited for.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: final, as any failure of the medium.
    pub fn sync_live_mark(&self) -> Result<bool, StoreError> {
        self.usable()?;
        self.live.sync(&self.disk).map_err(|error| self.fail(error))
    }
}
