//! Taking away from either end, and closing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slog::info;
use windlass_log::{Chain, Epoch, EpochHistory, HistoryError, Lsn, Salt, Tenure as Start};

use super::Log;
use super::open::{self, Owner};
use super::shared::{OnMedia, Shared};
use super::tenure::{Drained, Tenure};
use crate::commit::{Failure, Level, Stopped, Turn};
use crate::error::{CloseError, ReadError, TrimError, TruncateError};

/// How often a reservation in flight is looked at while a tenure ends.
const PAUSE: Duration = Duration::from_micros(100);

impl Log {
    /// Releases everything before `lsn`, a record's start or the tail: readers below it get `Purged`, and segments wholly below it are
    /// reused. Durable before it returns; at or below the present trim point it does nothing. Works on a full disk.
    ///
    /// A lone log may be trimmed beyond what is flushed: whoever trims vouches that nothing below is needed. In a group nothing above
    /// `Durable` is trimmed, and the call leaves a wish: it is fulfilled soon, but for what a backup still needs within the
    /// retention.
    ///
    /// # Errors
    ///
    /// [`TrimError`]; nothing was released, except that after `Failed` the next opening tells.
    pub fn trim(&self, lsn: Lsn) -> Result<(), TrimError> {
        self.shared.own_process().map_err(TrimError::Failed)?;
        let turn = Turn::take(&self.shared.changing);
        self.shared.meters.trims.add(1);
        let trimmed = self.trim_in_turn(lsn, *turn);
        if trimmed.is_err() {
            self.shared.meters.trim_failures.add(1);
        }
        trimmed
    }

    fn trim_in_turn(&self, lsn: Lsn, cut: Option<Lsn>) -> Result<(), TrimError> {
        if let Some(port) = self.shared.port() {
            if port.is_stopped() {
                return Err(TrimError::Closed);
            }
            let end = self.tenure.watermarks.durable.value();
            let media = &self.shared.media;
            check_member_trim(lsn, end, || media.starts_record(lsn), || media.record_around(lsn, end))?;
            port.ask(crate::driver::Request::Engine(windlass_engine::Input::Trim { to: lsn }));
            return Ok(());
        }
        if self.owner.is_closed() {
            return Err(TrimError::Closed);
        }
        if let Some(end) = cut.filter(|cut| lsn > *cut) {
            return Err(TrimError::Beyond { lsn, end });
        }
        self.shared.settle().map_err(TrimError::Failed)?;
        // Of the tenure that goes on, also through a handle of one that ended: the end of that one may have been cut since.
        let tenure = self.shared.tenure();
        let end = self.shared.drain(&tenure).map_err(TrimError::Failed)?.lsn();
        let before = self.shared.media.trimmed();
        self.shared.media.trim(lsn, end).map_err(|error| match error {
            windlass_store::TrimError::BeyondEnd { .. } => TrimError::Beyond { lsn, end },
            windlass_store::TrimError::InsideRecord { lsn, record } => {
                TrimError::InsideRecord { lsn, record }
            }
            windlass_store::TrimError::Disk(error) => TrimError::Io { lsn, cause: error.to_string() },
            error @ (windlass_store::TrimError::Store(_) | windlass_store::TrimError::Update(_)) => {
                let failure = Failure::Store { what: "trimming the log", cause: error.to_string().into() };
                self.shared.fail(failure.clone());
                TrimError::Failed(failure)
            }
        })?;
        self.shared.learn_trim_lag(end.0.saturating_sub(before.0));
        // The trim point stands for the bytes below it.
        tenure.watermarks.persisted.advance(lsn).wake();
        self.shared.raise_limit();
        self.shared.watch_retention(&tenure);
        self.shared.helper.look_afresh();
        Ok(())
    }

    /// Cuts the record at `lsn` and everything behind it off a lone log, and returns the handle of the tenure that follows. The new epoch and
    /// the cut are durable before it returns; no crash brings back what was cut (kind 42). `lsn` may be the tail. What is cut is not looked at: it may be damaged, also
    /// in its first record. Damage that keeps the log from being opened is cut by [`Options::open_truncated`](crate::Options::open_truncated).
    ///
    /// This handle and its clones are sealed by it, and commits that wait through them are flushed first. Drop old handles: they keep their
    /// segments from being reused.
    ///
    /// # Errors
    ///
    /// [`TruncateError`]; nothing was cut, except that after `Failed` the next opening tells.
    pub fn truncate(&self, lsn: Lsn) -> Result<Log, TruncateError> {
        self.shared.own_process().map_err(TruncateError::Failed)?;
        let mut turn = Turn::take(&self.shared.changing);
        self.check_cut(lsn)?;
        // An LSN in a segment's header page stands for the record that follows.
        let lsn = self.shared.geometry.normalize(lsn);
        // Before anything is sealed: a history that has no room for another epoch leaves the log as it is. What room is left near its end is for openings after a crash,
        // which can't be refused: a log that does not open can't be trimmed either.
        let _ = self.next_epoch(lsn)?;
        let tail = self.tenure.handoff.seal();
        *turn = Some(lsn);
        let ended = end_tenure(&self.shared, &self.tenure, &mut turn, || self.owner.is_closed());
        *turn = None;
        if self.owner.is_closed() {
            // It waited, and closing came meanwhile.
            return Err(TruncateError::Sealed { epoch: self.tenure.epoch });
        }
        ended.map_err(|error| match error {
            CloseError::Failed(failure) => TruncateError::Failed(failure),
            CloseError::StuckReservation { lsn } => TruncateError::StuckReservation { lsn },
        })?;
        // A trim that came meanwhile has shortened the history.
        let (epoch, history) = self.next_epoch(lsn)?;
        self.shared.media.cut(lsn, history, epoch).map_err(|error| {
            let failure = Failure::Store { what: "cutting the log", cause: error.to_string().into() };
            self.shared.fail(failure.clone());
            TruncateError::Failed(failure)
        })?;
        info!(self.shared.logger, "the log was cut"; "folder" => %self.shared.folder.display(), "lsn" => %lsn, "tail" => %tail,
            "epoch" => %epoch);
        self.shared.retire(&self.tenure);
        let chain = Chain::begin(&Salt::new(self.shared.log_id).key(epoch), lsn);
        let slots = self.owner.slots();
        let (geometry, log_id) = (self.shared.geometry, self.shared.log_id);
        let start = Start { geometry, log_id, epoch, tail: lsn, chain, persisted: lsn, slots };
        let tenure = open::lone_tenure(start, &self.shared.meters);
        tenure.install_ready(&*self.shared.media);
        let tenure = Arc::new(tenure);
        self.shared.succeed(tenure.clone());
        self.tenure.watermarks.stop(&Stopped::Fenced(self.tenure.epoch));
        self.tenure.gate.stop_flush_thread();
        self.owner.follow(&tenure);
        Ok(Log { owner: self.owner.clone(), shared: self.shared.clone(), tenure })
    }

    /// The epoch that follows where the log is cut at `lsn`, and the history with it.
    fn next_epoch(&self, lsn: Lsn) -> Result<(Epoch, EpochHistory), TruncateError> {
        let before = self.shared.media.superblock();
        let epoch = before.promised.next_for(before.member);
        let mut history = before.history;
        history.cut(lsn);
        if history.is_nearly_full() {
            return Err(TruncateError::History(HistoryError::NearlyFull));
        }
        history.extend(epoch, lsn).map_err(TruncateError::History)?;
        Ok((epoch, history))
    }

    /// Refuses what can't be cut, before anything is sealed.
    fn check_cut(&self, lsn: Lsn) -> Result<(), TruncateError> {
        if !self.shared.is_lone() {
            return Err(TruncateError::Group);
        }
        if let Some(failure) = self.shared.failure() {
            return Err(TruncateError::Failed(failure.clone()));
        }
        self.shared.settle().map_err(TruncateError::Failed)?;
        if self.tenure.handoff.is_sealed() {
            return Err(TruncateError::Sealed { epoch: self.tenure.epoch });
        }
        let drained = self.shared.drain(&self.tenure).map_err(TruncateError::Failed)?.lsn();
        let (first, tail) = (self.shared.media.trimmed(), self.tenure.handoff.tail());
        if lsn < first {
            return Err(TruncateError::Purged { lsn, first });
        }
        if lsn > drained {
            return Err(TruncateError::Beyond { lsn, tail });
        }
        if lsn == drained {
            return Ok(());
        }
        match self.shared.media.reader(lsn, false).next_run(drained, &mut Vec::new()) {
            Ok(_) => Ok(()),
            Err(ReadError::InsideRecord { record, .. }) => Err(TruncateError::InsideRecord { lsn, record }),
            Err(error) => {
                // What is cut need not be whole: where the records before it are, a damaged one may be cut at its own start.
                let damaged = matches!(&error, ReadError::Damaged { lsn: at, .. } if *at == lsn);
                if damaged && self.shared.media.is_whole_up_to(lsn, drained).map_err(TruncateError::Read)? {
                    return Ok(());
                }
                Err(TruncateError::Read(error))
            }
        }
    }

    /// Closes the log: no more appends, everything flushed, the clean mark set, threads ended, the folder's lock given up. Commits that wait are
    /// answered first. Handles and readers that are left answer that the log is closed. When this returns the log is closed and can be opened again, also where
    /// another handle's call had begun to close it. Only a waker that closes while the log runs it is not kept waiting for a closing that has begun: what it
    /// waits for might be its own end.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: the log is closed all the same and the next opening recovers it. After a stuck reservation the
    /// folder stays locked until this process ends.
    pub fn close(self) -> Result<(), CloseError> {
        self.owner.close()
    }
}

/// Refuses a trim of a member that can't be fulfilled. All members take over where their primary trims: no store would take a place inside a record.
pub(crate) fn check_member_trim(
    lsn: Lsn,
    durable: Lsn,
    starts_record: impl FnOnce() -> Result<bool, windlass_store::DiskError>,
    record_around: impl FnOnce() -> Option<Range<Lsn>>,
) -> Result<(), TrimError> {
    if lsn > durable {
        return Err(TrimError::Beyond { lsn, end: durable });
    }
    // The durable LSN is a record's end, with or without a record behind it.
    let is_start =
        lsn == durable || starts_record().map_err(|error| TrimError::Io { lsn, cause: error.to_string() })?;
    if is_start { Ok(()) } else { Err(TrimError::InsideRecord { lsn, record: record_around() }) }
}

/// Waits until a sealed tenure has nothing in flight and flushes it to its tail. Nothing is done any more once the log `is_closed` by whoever came while it waited: the folder may be
/// another opening's by then, and a flush of it would be told as a failure of the log.
fn end_tenure(
    shared: &Shared,
    tenure: &Tenure,
    turn: &mut Turn<'_, Option<Lsn>>,
    is_closed: impl Fn() -> bool,
) -> Result<(), CloseError> {
    let tail = tenure.handoff.seal();
    loop {
        if is_closed() {
            return Ok(());
        }
        match shared.drain(tenure) {
            Ok(Drained::Closed(_)) => break,
            Ok(Drained::Idle(_) | Drained::Waiting(_)) => turn.pause(PAUSE),
            Err(Failure::StuckReservation { lsn, .. }) => return Err(CloseError::StuckReservation { lsn }),
            Err(failure) => return Err(CloseError::Failed(failure)),
        }
    }
    let here = OnMedia(shared, tenure);
    match tenure.gate.commit_blocking(&here, tail, Level::Local, None) {
        Ok(()) => Ok(()),
        Err(error) => Err(CloseError::Failed(shared.failure().cloned().unwrap_or_else(|| Failure::Store {
            what: "flushing the tail",
            cause: error.to_string().into(),
        }))),
    }
}

/// Where a sealed tenure still has a reservation in flight, once it was given its time: after a failure, too, a producer may
/// be writing. `None`: nobody writes into its memory any more.
fn in_flight(shared: &Shared, tenure: &Tenure, turn: &mut Turn<'_, Option<Lsn>>) -> Option<Lsn> {
    loop {
        // Not by way of the log, which drains nothing once it has failed.
        match tenure.drain(&*shared.clock, shared.reservation_limit, &shared.meters) {
            Ok(Drained::Closed(_)) => return None,
            Ok(Drained::Idle(_) | Drained::Waiting(_)) => turn.pause(PAUSE),
            Err(_) => return Some(tenure.handoff.drained()),
        }
    }
}

impl Owner {
    /// Closes once. Whoever calls meanwhile or later waits for the end of that and gets the same answer.
    pub(super) fn close(&self) -> Result<(), CloseError> {
        if let Err(forked) = self.shared.own_process() {
            // The parent's folder, threads and mapping: nothing of them is this child's to end.
            self.closed.store(true, Ordering::Release);
            std::mem::forget(Arc::clone(&self.shared));
            return Err(CloseError::Failed(forked));
        }
        if let Some(closed) = self.closing.begin(|| self.shared.is_behind()) {
            return closed;
        }
        let ends = self.closing.ends();
        ends.with(self.close_once())
    }

    fn close_once(&self) -> Result<(), CloseError> {
        let shared = &self.shared;
        let mut turn = Turn::take(&shared.changing);
        self.closed.store(true, Ordering::Release);
        // A failure is the log's, and what follows says so.
        let _ = shared.settle();
        let tenure = shared.tenure();
        let ended = end_tenure(shared, &tenure, &mut turn, || false);
        tenure.watermarks.stop(&Stopped::Closed);
        let in_flight = in_flight(shared, &tenure, &mut turn);
        drop(turn);
        self.join(&tenure);
        if let Some(lsn) = in_flight {
            // a producer may still write into the mapping, so neither it nor the folder's lock is given up.
            std::mem::forget(Arc::clone(shared));
            return ended.and(Err(CloseError::StuckReservation { lsn }));
        }
        shared.retire(&tenure);
        // After a failure too: the store gives up the folder, without a clean mark.
        let closed = shared.media.close(tenure.handoff.tail()).map_err(|error| {
            CloseError::Failed(Failure::Store { what: "closing the log", cause: error.to_string().into() })
        });
        ended.and(closed)
    }
}
