//! Giving: one connection, one task for its socket, one thread that calls the application.
//!
//! A chunk leaves only for a credit, so the task never waits long in a write; it says every [`PING`] that the giver is there while the application works.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, info, warn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use windlass_log::{Epoch, Lsn, MemberId};
use windlass_store::Store;
use windlass_store::disk::RealDisk;

use super::wire::{self, ALIVE, ASK_BYTES, CHECKPOINT_CHUNK_BYTES_MAX, CREDITS, Frame, Order, TAKEN};
use super::{AtStart, Checkpoint, CheckpointPosition, Given, Hook, Ledger, NotGiven, committed};
use crate::driver::{GroupMeters, Port};

/// Either end that has said nothing for so long is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// Each end says this often that it is there.
pub(super) const PING: Duration = Duration::from_millis(700);

/// Frames that were made and wait to be written.
const READY: usize = 2;

/// What gives this member's checkpoints.
pub(crate) struct Giver {
    pub(crate) hook: Option<Hook>,
    pub(crate) store: Arc<Store<RealDisk>>,
    pub(crate) port: Arc<Port>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) at_start: Arc<AtStart>,
    pub(crate) meters: Arc<GroupMeters>,
    pub(crate) logger: Logger,
}

/// A frame to be written, and whether it takes a credit.
pub(super) struct Ready {
    bytes: Vec<u8>,
    is_chunk: bool,
}

impl Giver {
    /// Serves a member on a connection of its own, to the end.
    pub(crate) async fn serve(self: Arc<Giver>, mut stream: TcpStream, taker: MemberId) {
        let mut question = [0; ASK_BYTES];
        let Ok(Ok(_)) = timeout(SILENCE, stream.read_exact(&mut question)).await else { return };
        let Some(least) = wire::asked(&question) else {
            return warn!(self.logger, "{} asks for a checkpoint by what is no question", taker);
        };
        let (frames, ready) = mpsc::channel(READY);
        if let Err(reason) = self.start(taker, least, frames) {
            info!(self.logger, "{} is given no checkpoint: {}", taker, reason);
            let refusal = Frame::Refused(reason).encode(0);
            // A taker that is gone needs no answer.
            let _ = timeout(SILENCE, stream.write_all(&refusal)).await;
            let _ = timeout(SILENCE, stream.shutdown()).await;
            return;
        }
        pass_on(stream, ready).await;
    }

    /// Starts the thread that calls the application.
    fn start(
        self: &Arc<Giver>,
        taker: MemberId,
        least: Lsn,
        frames: mpsc::Sender<Ready>,
    ) -> Result<(), NotGiven> {
        let hook = self.hook.clone().ok_or(NotGiven::NoHook)?;
        let place = self.ledger.give(taker).ok_or(NotGiven::Busy)?;
        let giver = Arc::clone(self);
        let thread = std::thread::Builder::new().name(format!("windlass-give-{}", taker.0));
        let started = thread.spawn(move || giver.give(&hook, taker, least, &place, &frames));
        started.map(drop).map_err(|_| NotGiven::Busy)
    }

    fn give(&self, hook: &Hook, taker: MemberId, least: Lsn, place: &Given, frames: &mpsc::Sender<Ready>) {
        let mut stream = Stream { frames, order: Order::default(), sequence: 0 };
        let given = self.open(hook, least).and_then(|checkpoint| {
            let at = checkpoint.position.at;
            info!(self.logger, "{} is given a checkpoint that reaches LSN {}", taker, at);
            place.note(|giving| (giving.at, giving.bytes) = (at, checkpoint.bytes));
            self.pass(checkpoint, place, &mut stream)
        });
        match given {
            Ok(true) => {
                self.meters.checkpoints_given.add(1);
                info!(self.logger, "{} was given a checkpoint of {} bytes", taker, stream.order.bytes());
            }
            Ok(false) => {
                info!(self.logger, "{} has left after {} bytes of a checkpoint", taker, stream.order.bytes());
            }
            Err(reason) => {
                warn!(self.logger, "{} is given no checkpoint: {}", taker, reason);
                stream.send(&Frame::Refused(reason));
            }
        }
    }

    /// The application's checkpoint, of what is committed and of the log's line.
    fn open(&self, hook: &Hook, least: Lsn) -> Result<Checkpoint, NotGiven> {
        let checkpoint = hook.0.open(least).map_err(|fault| {
            warn!(self.logger, "the application opens no checkpoint"; "cause" => %fault);
            NotGiven::Application
        })?;
        let CheckpointPosition { at, epoch: found } = checkpoint.position;
        let durable = self.port.durable.value();
        // In this order, and one history for all: a log that goes on in another line meanwhile has another epoch below.
        let tail = self.port.status().map_or(durable, |status| status.tail);
        let history = self.store.superblock().history;
        let committed = committed(durable, tail, &history, self.at_start.held());
        if at > committed {
            return Err(NotGiven::NotCommitted { at, durable: committed });
        }
        let least = least.max(self.store.trimmed());
        if at < least {
            return Err(NotGiven::TooOld { at, least });
        }
        let expected = history.epoch_before(at).unwrap_or(Epoch::NONE);
        if found != expected {
            return Err(NotGiven::OtherLine { at, expected, found });
        }
        // The durable LSN and the tail are records' ends, with or without a record behind them.
        let is_start = at == durable
            || at == tail
            || self.store.starts_record(at).map_err(|error| {
                warn!(self.logger, "a checkpoint's end can't be looked at"; "cause" => %error);
                NotGiven::Application
            })?;
        if !is_start {
            return Err(NotGiven::InsideRecord { at });
        }
        Ok(checkpoint)
    }

    /// Reads it to its end. `false`: the taker is gone.
    fn pass(&self, checkpoint: Checkpoint, place: &Given, stream: &mut Stream<'_>) -> Result<bool, NotGiven> {
        let Checkpoint { position: CheckpointPosition { at, epoch }, bytes, mut content } = checkpoint;
        if !stream.send(&Frame::Begin { at, epoch, bytes }) {
            return Ok(false);
        }
        loop {
            let chunk = read_chunk(&mut *content).map_err(|error| {
                warn!(self.logger, "the application's checkpoint can't be read"; "cause" => %error);
                NotGiven::Application
            })?;
            if chunk.is_empty() {
                let end = stream.order.end();
                return Ok(stream.send(&end));
            }
            stream.order.leaves(&chunk);
            let (len, given) = (chunk.len() as u64, stream.order.bytes());
            if !stream.send(&Frame::Chunk(chunk)) {
                return Ok(false);
            }
            self.meters.checkpoint_given_bytes.add(len);
            place.note(|giving| giving.given_bytes = given);
        }
    }
}

/// The frames of one stream, numbered.
struct Stream<'a> {
    frames: &'a mpsc::Sender<Ready>,
    order: Order,
    sequence: u64,
}

impl Stream<'_> {
    /// Waits for room. `false`: the taker is gone.
    fn send(&mut self, frame: &Frame) -> bool {
        let ready = ready(frame, self.sequence);
        self.sequence += 1;
        self.frames.blocking_send(ready).is_ok()
    }
}

/// As much as a chunk holds, less at the end alone.
fn read_chunk(content: &mut (dyn Read + Send)) -> std::io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(CHECKPOINT_CHUNK_BYTES_MAX);
    content.take(CHECKPOINT_CHUNK_BYTES_MAX as u64).read_to_end(&mut chunk)?;
    Ok(chunk)
}

/// Writes what is ready to a taker, for its credits, until it leaves.
pub(super) async fn pass_on(stream: TcpStream, ready: mpsc::Receiver<Ready>) {
    let credits = Semaphore::new(CREDITS);
    let (reading, writing) = stream.into_split();
    tokio::select! {
        () = hear(reading, &credits) => {}
        () = write(writing, ready, &credits) => {}
    }
}

/// A frame as it is written, under this number.
pub(super) fn ready(frame: &Frame, sequence: u64) -> Ready {
    Ready { bytes: frame.encode(sequence), is_chunk: matches!(frame, Frame::Chunk(_)) }
}

/// Counts what the taker has taken, until it leaves, falls silent, or says what no taker says.
async fn hear(mut reading: OwnedReadHalf, credits: &Semaphore) {
    let mut said = [0; 64];
    loop {
        let Ok(Ok(count @ 1..)) = timeout(SILENCE, reading.read(&mut said)).await else { return };
        for byte in &said[..count] {
            match *byte {
                ALIVE => {}
                TAKEN if credits.available_permits() < CREDITS => credits.add_permits(1),
                _ => return,
            }
        }
    }
}

/// Writes what is ready, each chunk for a credit, then waits for the taker to leave.
async fn write(mut writing: OwnedWriteHalf, mut ready: mpsc::Receiver<Ready>, credits: &Semaphore) {
    let mut sequence = 0;
    loop {
        let Ok(next) = timeout(PING, ready.recv()).await else {
            if !ping(&mut writing, sequence).await {
                return;
            }
            continue;
        };
        let Some(Ready { bytes, is_chunk }) = next else { break };
        if is_chunk && !credit(&mut writing, credits, sequence).await {
            return;
        }
        if !matches!(timeout(SILENCE, writing.write_all(&bytes)).await, Ok(Ok(()))) {
            return;
        }
        sequence += 1;
    }
    // Closed before the taker has read all of it, the connection would take the rest with it.
    if matches!(timeout(SILENCE, writing.shutdown()).await, Ok(Ok(()))) {
        std::future::pending().await
    }
}

/// Waits for a credit, saying meanwhile that the giver is there. `false`: the taker is gone.
async fn credit(writing: &mut OwnedWriteHalf, credits: &Semaphore, sequence: u64) -> bool {
    loop {
        match timeout(PING, credits.acquire()).await {
            Ok(Ok(credit)) => {
                credit.forget();
                return true;
            }
            // Nobody closes it.
            Ok(Err(_)) => return false,
            Err(_) if !ping(writing, sequence).await => return false,
            Err(_) => {}
        }
    }
}

/// Says that the giver is there, under the next frame's number.
async fn ping(writing: &mut OwnedWriteHalf, sequence: u64) -> bool {
    let ping = Frame::Ping.encode(sequence);
    matches!(timeout(SILENCE, writing.write_all(&ping)).await, Ok(Ok(())))
}
