//! Taking: a thread of the node that waits until a checkpoint is needed and brings one, from one member after the other, until the log goes on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slog::{Logger, info, warn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use windlass_engine::{Event, Input, SnapshotNeed, SnapshotState};
use windlass_log::{Epoch, Geometry, LogId, Lsn, MemberId};

use super::give::{PING, SILENCE};
use super::wire::{self, ALIVE, CREDITS, Frame, HEADER_BYTES, Header, Order, TAKEN, WireError};
use super::{
    AtStart, CheckpointError, CheckpointPosition, CheckpointStep, Hook, Ledger, OfferedCheckpoint, Taking,
};
use crate::control::Streams;
use crate::driver::{GroupMeters, Port, Request};
use crate::node::events::{Events, NodeEvent, NodeEvents};

/// The first pause behind a failure; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// How long the first attempt waits for members that are not connected yet.
const GATHER: Duration = Duration::from_millis(500);
/// How long the engine may leave a checkpoint lying before it is offered again.
const SETTLE: Duration = Duration::from_secs(5);
/// Chunks, and what else a giver may say between them.
const ARRIVED: usize = CREDITS + 4;

/// What brings checkpoints to this member's application.
pub(crate) struct Bringer {
    pub(crate) hook: Hook,
    pub(crate) me: MemberId,
    pub(crate) log_id: LogId,
    pub(crate) geometry: Geometry,
    /// How often the primary is reminded to keep its log.
    pub(crate) remind: Duration,
    pub(crate) port: Arc<Port>,
    pub(crate) events: Arc<Events>,
    pub(crate) streams: Streams,
    pub(crate) ledger: Arc<Ledger>,
    /// To be asked for first; `None`: the log is empty, and has shown nobody anything.
    pub(crate) at_start: Option<Arc<AtStart>>,
    pub(crate) meters: Arc<GroupMeters>,
    pub(crate) logger: Logger,
}

/// A checkpoint that the application holds durably.
struct Taken {
    /// `None`: it had it already.
    giver: Option<MemberId>,
    at: Lsn,
    /// Of the last byte below.
    epoch: Epoch,
    bytes: u64,
}

/// The thread's body: until the node ends.
pub(crate) fn run(bringer: &Bringer) {
    let mut events = bringer.events.listen();
    if let Some(at_start) = &bringer.at_start {
        at_start.ask(&bringer.hook, &bringer.logger);
    }
    loop {
        if bringer.bring(&mut events).is_none() {
            return;
        }
        match events.next_blocking(None) {
            Some(NodeEvent::Ended) | None => return,
            Some(_) => {}
        }
    }
}

impl Bringer {
    /// Brings what is needed. `None`: the node has ended.
    fn bring(&self, events: &mut NodeEvents) -> Option<()> {
        let (mut pause, mut turn) = (PAUSE_FIRST, 0);
        // With what the application has had in vain it is not tried again.
        let mut refused = None;
        if self.port.snapshot_need().is_some() {
            self.gather(events)?;
        }
        while let Some(need) = self.port.snapshot_need() {
            let giver = self.giver(&need, turn);
            let attempt = || self.attempt(&need, giver, refused);
            let taken = std::panic::catch_unwind(AssertUnwindSafe(attempt));
            self.ledger.take(None);
            let failure = match taken.unwrap_or(Err(CheckpointError::Panicked)) {
                Ok(taken) => match self.install(&taken, events)? {
                    Ok(()) => {
                        self.tell(&taken);
                        pause = PAUSE_FIRST;
                        continue;
                    }
                    Err(error) => {
                        refused = Some(CheckpointPosition { at: taken.at, epoch: taken.epoch });
                        error
                    }
                },
                Err(CheckpointError::NotNeeded) => {
                    info!(self.logger, "the log goes on without the checkpoint that was on its way");
                    continue;
                }
                Err(error) => error,
            };
            self.fail(giver, failure);
            turn += 1;
            self.rest(pause, events)?;
            pause = (pause * 2).min(PAUSE_LAST);
        }
        Some(())
    }

    /// A member that has just started has met its primary first, as a rule: waits a moment for the others. `None`: the node has ended.
    fn gather(&self, events: &mut NodeEvents) -> Option<()> {
        let until = Instant::now() + GATHER;
        while !self.streams.are_all_connected() && Instant::now() < until {
            self.rest(GATHER / 50, events)?;
        }
        Some(())
    }

    /// Whom to ask this time: backups before the primary, which has enough to do.
    fn giver(&self, need: &SnapshotNeed, turn: usize) -> Option<MemberId> {
        let mut givers = self.streams.connected();
        givers.retain(|member| *member != self.me);
        givers.sort_by_key(|member| (*member == need.primary, *member));
        let count = givers.len();
        givers.get(turn.checked_rem(count)?).copied()
    }

    /// Waits for a while. `None`: the node has ended.
    fn rest(&self, pause: Duration, events: &mut NodeEvents) -> Option<()> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            match events.next_blocking(Some(until)) {
                Some(NodeEvent::Ended) => return None,
                None if self.port.is_stopped() => return None,
                Some(_) | None => {}
            }
        }
        Some(())
    }

    /// The application's own word first, then a stream.
    fn attempt(
        &self,
        need: &SnapshotNeed,
        giver: Option<MemberId>,
        refused: Option<CheckpointPosition>,
    ) -> Result<Taken, CheckpointError> {
        let keeps = Keeping::start(self, need.from);
        let has = self.hook.0.position().map_err(CheckpointError::application(CheckpointStep::Position))?;
        if refused != Some(has) && self.is_enough(need, has) {
            // From a checkpoint that was finished before a crash, or by hand.
            return Ok(Taken { giver: None, at: has.at, epoch: has.epoch, bytes: 0 });
        }
        let giver = giver.ok_or(CheckpointError::Nobody)?;
        let mut arriving = Arriving::start(self, giver, need.from);
        let (at, epoch, bytes) = match arriving.next()? {
            (_, Frame::Begin { at, epoch, bytes }) => (at, epoch, bytes),
            (_, Frame::Refused(reason)) => return Err(reason.into()),
            (sequence, frame @ (Frame::Chunk(_) | Frame::End { .. } | Frame::Ping)) => {
                return Err(WireError::Place { sequence, kind: frame.kind() }.into());
            }
        };
        if !self.geometry.is_position(at) {
            return Err(CheckpointError::NoPosition { at });
        }
        let mut judge = Judge { port: &self.port, at, epoch, session: None };
        judge.still()?;
        keeps.from(at);
        info!(self.logger, "taking the checkpoint of {} that reaches LSN {}", giver, at);
        self.ledger.take(Some(Taking { giver, at, taken_bytes: 0, bytes }));
        let offered = OfferedCheckpoint { log_id: self.log_id, giver, at, epoch, bytes };
        let begun = self.hook.0.begin(&offered);
        let mut sink = begun.map_err(CheckpointError::application(CheckpointStep::Begin))?;
        loop {
            let (_, frame) = arriving.next()?;
            judge.still()?;
            match frame {
                Frame::Chunk(chunk) => {
                    sink.chunk(&chunk).map_err(CheckpointError::application(CheckpointStep::Chunk))?;
                    self.meters.checkpoint_taken_bytes.add(chunk.len() as u64);
                    self.ledger.taken(arriving.order.bytes());
                    arriving.took();
                }
                Frame::End { .. } => break,
                Frame::Refused(reason) => return Err(reason.into()),
                // Its order lets no second beginning pass.
                Frame::Begin { .. } | Frame::Ping => {}
            }
        }
        let bytes = arriving.order.bytes();
        drop(arriving);
        sink.finish().map_err(CheckpointError::application(CheckpointStep::Finish))?;
        Ok(Taken { giver: Some(giver), at, epoch, bytes })
    }

    /// Whether the log may go on behind what the application has already. One of another line never will (kind 52): what the group has is brought in its
    /// place. Beyond the tail that the primary offered, in its epoch or a later one, the engine asks for a newer offer, and judges.
    fn is_enough(&self, need: &SnapshotNeed, has: CheckpointPosition) -> bool {
        let CheckpointPosition { at, epoch } = has;
        if at < need.from || !self.geometry.is_position(at) {
            return false;
        }
        let other = need.other_line(at, epoch);
        if let Some(expected) = other {
            warn!(
                self.logger,
                "the application is at LSN {} of a line that the group has given up (epoch {} there, {} at the primary): it is brought a checkpoint",
                at,
                epoch,
                expected
            );
        }
        other.is_none()
    }

    /// Has the log begin again behind what the application holds, and waits for it. An error: it can't; `None`: the node has ended.
    fn install(&self, taken: &Taken, events: &mut NodeEvents) -> Option<Result<(), CheckpointError>> {
        while let Some(event) = events.try_next() {
            if event == NodeEvent::Ended {
                return None;
            }
        }
        let keeps = Keeping::start(self, taken.at);
        self.port.ask(Request::Engine(Input::SnapshotInstalled { at: taken.at, epoch: taken.epoch }));
        let since = Instant::now();
        let refused = Err(CheckpointError::Refused { at: taken.at });
        let settled = loop {
            let state = self.port.snapshot_state();
            if state == SnapshotState::None {
                break Ok(());
            }
            match events.next_blocking(Some(Instant::now() + Duration::from_millis(20))) {
                Some(NodeEvent::Ended) => return None,
                Some(NodeEvent::Group(Event::SnapshotOtherLine { at, expected, found, .. })) => {
                    break Err(CheckpointError::OtherLine { at, expected, found });
                }
                Some(NodeEvent::Group(Event::SnapshotNeeded { .. })) => break refused,
                None if self.port.is_stopped() => return None,
                Some(_) | None => {}
            }
            // Once it is being used, it takes as long as it takes: its primary may be away.
            if matches!(state, SnapshotState::Needed { .. }) && since.elapsed() > SETTLE {
                break refused;
            }
        };
        drop(keeps);
        Some(settled)
    }

    fn tell(&self, taken: &Taken) {
        let Taken { giver, at, epoch: _, bytes } = *taken;
        match giver {
            Some(giver) => {
                self.meters.checkpoints_taken.add(1);
                info!(
                    self.logger,
                    "the log goes on at LSN {}, behind a checkpoint of {} bytes from {}", at, bytes, giver
                );
            }
            None => info!(self.logger, "the log goes on at LSN {}, up to which the application had it", at),
        }
        self.events.push(NodeEvent::CheckpointTaken { giver, at, bytes });
    }

    fn fail(&self, giver: Option<MemberId>, error: CheckpointError) {
        self.meters.checkpoints_failed.add(1);
        let from = giver.map_or_else(|| "nobody".to_owned(), |giver| giver.to_string());
        warn!(self.logger, "no checkpoint was taken: {}", error; "giver" => from);
        self.events.push(NodeEvent::CheckpointFailed { giver, error });
    }
}

/// Whether a checkpoint is still of use.
struct Judge<'a> {
    port: &'a Port,
    at: Lsn,
    epoch: Epoch,
    /// The offer that it was held against last.
    session: Option<windlass_engine::Session>,
}

impl Judge<'_> {
    fn still(&mut self) -> Result<(), CheckpointError> {
        let SnapshotState::Needed { session } = self.port.snapshot_state() else {
            return Err(CheckpointError::NotNeeded);
        };
        if self.session == Some(session) {
            return Ok(());
        }
        let need = self.port.snapshot_need().ok_or(CheckpointError::NotNeeded)?;
        let (at, from, found) = (self.at, need.from, self.epoch);
        if at < from {
            // What was asked for was less: the primary has gone on.
            return Err(CheckpointError::Superseded { at, from });
        }
        if let Some(expected) = need.other_line(at, found) {
            return Err(CheckpointError::OtherLine { at, expected, found });
        }
        self.session = Some(need.session);
        Ok(())
    }
}

/// Reminds the primary to keep its log from somewhere on, until it is dropped.
struct Keeping {
    from: Arc<AtomicU64>,
    reminder: tokio::task::AbortHandle,
}

impl Keeping {
    fn start(bringer: &Bringer, from: Lsn) -> Keeping {
        let at = Arc::new(AtomicU64::new(from.0));
        let (of_task, port, remind) = (Arc::clone(&at), Arc::clone(&bringer.port), bringer.remind);
        port.ask(Request::Engine(Input::SnapshotComing { at: from }));
        let reminder = bringer.streams.runtime().spawn(async move {
            loop {
                tokio::time::sleep(remind).await;
                let at = Lsn(of_task.load(Ordering::Relaxed));
                port.ask(Request::Engine(Input::SnapshotComing { at }));
            }
        });
        Keeping { from: at, reminder: reminder.abort_handle() }
    }

    fn from(&self, at: Lsn) {
        self.from.store(at.0, Ordering::Relaxed);
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.reminder.abort();
    }
}

type Arrived = Result<(u64, Frame), CheckpointError>;

/// What comes from a giver, in order.
struct Arriving {
    frames: mpsc::Receiver<Arrived>,
    taken: mpsc::Sender<()>,
    order: Order,
}

impl Arriving {
    /// Dials, and asks for a checkpoint that reaches at least `least`.
    fn start(bringer: &Bringer, giver: MemberId, least: Lsn) -> Arriving {
        let (sender, frames) = mpsc::channel(ARRIVED);
        let (taken, credits) = mpsc::channel(ARRIVED);
        let streams = bringer.streams.clone();
        bringer.streams.runtime().spawn(async move {
            let outcome = match streams.dial(giver).await {
                Some(stream) => serve(stream, least, &sender, credits).await,
                None => Err(CheckpointError::Unreachable),
            };
            if let Err(error) = outcome {
                // Whoever waited is gone, or hears it.
                let _ = sender.send(Err(error)).await;
            }
        });
        Arriving { frames, taken, order: Order::default() }
    }

    /// The next frame that says something.
    fn next(&mut self) -> Result<(u64, Frame), CheckpointError> {
        let lost = CheckpointError::Lost { bytes: self.order.bytes() };
        match self.frames.blocking_recv() {
            Some(Ok((sequence, frame))) => {
                self.order.arrives(&frame, sequence)?;
                Ok((sequence, frame))
            }
            Some(Err(CheckpointError::Lost { .. })) | None => Err(lost),
            Some(Err(error)) => Err(error),
        }
    }

    /// The application has taken a chunk: the giver may send another one.
    fn took(&self) {
        // A connection that is gone is met by the next frame.
        let _ = self.taken.try_send(());
    }
}

/// Moves frames from the socket to the application's thread, and its credits back.
async fn serve(
    mut stream: TcpStream,
    least: Lsn,
    frames: &mpsc::Sender<Arrived>,
    taken: mpsc::Receiver<()>,
) -> Result<(), CheckpointError> {
    let lost = CheckpointError::Lost { bytes: 0 };
    if !matches!(timeout(SILENCE, stream.write_all(&wire::ask(least))).await, Ok(Ok(()))) {
        return Err(lost);
    }
    let (reading, writing) = stream.into_split();
    tokio::select! {
        outcome = read(reading, frames) => outcome,
        () = answer(writing, taken) => Err(lost),
    }
}

/// Reads frames up to the end, a refusal, or the connection's end.
async fn read(mut reading: OwnedReadHalf, frames: &mpsc::Sender<Arrived>) -> Result<(), CheckpointError> {
    let lost = || CheckpointError::Lost { bytes: 0 };
    let mut sequence = 0;
    loop {
        let mut header = [0; HEADER_BYTES];
        let Ok(Ok(_)) = timeout(SILENCE, reading.read_exact(&mut header)).await else { return Err(lost()) };
        let header = Header::decode(&header, sequence)?;
        let mut body = vec![0; header.bytes];
        let Ok(Ok(_)) = timeout(SILENCE, reading.read_exact(&mut body)).await else { return Err(lost()) };
        let frame = header.frame(body)?;
        if frame == Frame::Ping {
            continue;
        }
        let is_last = matches!(frame, Frame::End { .. } | Frame::Refused(_));
        match frames.try_send(Ok((sequence, frame))) {
            Ok(()) if is_last => return Ok(()),
            Ok(()) => sequence += 1,
            Err(mpsc::error::TrySendError::Full(_)) => return Err(WireError::Uncalled { sequence }.into()),
            // Given up here.
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
        }
    }
}

/// Tells the giver what was taken, and that this end is there.
async fn answer(mut writing: OwnedWriteHalf, mut taken: mpsc::Receiver<()>) {
    loop {
        let byte = match timeout(PING, taken.recv()).await {
            Ok(Some(())) => TAKEN,
            // Given up here: the connection goes with it.
            Ok(None) => return,
            Err(_) => ALIVE,
        };
        if !matches!(timeout(SILENCE, writing.write_all(&[byte])).await, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
