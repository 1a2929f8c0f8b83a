//! Serving clients: each connection has a thread that appends and one that answers, so that appends are pipelined and answered in order.

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use slog::{Logger, warn};
use windlass::control::Exclusion;
use windlass::engine::{Change, ChangeError, Event, Standing as Part};
use windlass::{
    AppendError, Appended, BarrierError, Level, Log, Lsn, MemberId, Node, NodeChangeError, NodeCloseError,
    NodeEvent, NodeEvents, ReadError,
};

use super::clients::{Clients, Place, Seldom};
use super::{End, thread};
use crate::client::{
    self, Batches, NotChanged, PAYLOAD_BYTES_MAX, Pass, Refusal, Reply, Request, Standing, Windows,
    read_frame, write_all,
};
use crate::exit::lack;
use crate::view::View;
use crate::words::{WAY_OUT, Words};

/// Appends of one connection that may wait for their commit.
const PIPELINE: usize = 1024;
/// How long an append waits for the next segment.
const APPEND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may take to prove itself.
const ADMISSION_PATIENCE: Duration = Duration::from_secs(10);
/// How long nobody is taken where the system has no descriptor or no thread to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a handover may take to begin.
const HANDOVER_PATIENCE: Duration = Duration::from_secs(5);
/// Encoded answers are written once there are so many bytes of them.
const WRITE_BYTES: usize = 1 << 16;
/// How long a change of the group may take to be committed, before it is called unknown: short enough that a member which ends waits for it.
const CHANGE_PATIENCE: Duration = Duration::from_secs(4);
/// How long a read waits for what a barrier has promised.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// The member, as its connections see it. They hold it only while they work on a request, so that it can be ended.
#[derive(Clone)]
pub(super) struct Service {
    node: Weak<Node>,
    /// The member's log.
    folder: PathBuf,
    level: Level,
    pass: Pass,
    words: Words,
    logger: Logger,
    refusals: Arc<Seldom>,
}

/// A client that asked for the end, and waits for it.
pub(super) struct Asked {
    answer: Arc<UnixStream>,
}

/// What the answering thread does next.
enum Next {
    Commit { log: Log, sequence: u64, appended: Appended },
    Answer(Reply),
    Barrier,
    Read { from: Lsn, to: Lsn },
    HandOver { to: MemberId },
    AcceptLoss,
    Change(Change),
}

impl Asked {
    /// Tells the client how the member has ended.
    pub(super) fn tell(self, closed: &Result<(), NodeCloseError>) {
        let reply = match closed {
            Ok(()) => Reply::Closed,
            Err(error) => Reply::Failed { why: error.to_string() },
        };
        let mut encoded = Vec::new();
        reply.encode(&mut encoded);
        // The client may be gone: nobody to tell.
        let _ = write_all(&mut &*self.answer, &mut encoded);
    }
}

impl Service {
    pub(super) fn new(
        node: &Arc<Node>,
        folder: &Path,
        level: Level,
        pass: Pass,
        words: Words,
        logger: Logger,
    ) -> Service {
        Service {
            node: Arc::downgrade(node),
            folder: folder.to_path_buf(),
            level,
            pass,
            words,
            logger,
            refusals: Arc::default(),
        }
    }

    /// Takes clients for as long as the process lives. What the system does not give, a descriptor or a thread, is said seldom and tried again.
    pub(super) fn listen(&self, listener: &UnixListener, ends: &Sender<End>) {
        let clients = Clients::new(getrlimit(Resource::Nofile).current);
        let lacking = Seldom::default();
        for stream in listener.incoming() {
            let error = match stream {
                Ok(stream) => match self.start(Arc::new(stream), &clients, ends) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if let Some(unsaid) = lacking.take(Instant::now()) {
                let hint = lack(&error);
                warn!(self.logger, "a client was not taken{}", hint; "cause" => %error, "unsaid_before" => unsaid);
            }
            // Else whoever waits to be taken is met again at once, and again.
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }

    /// Serves one client on a thread of its own, or tells it why it is not served.
    fn start(
        &self,
        stream: Arc<UnixStream>,
        clients: &Arc<Clients>,
        ends: &Sender<End>,
    ) -> std::io::Result<()> {
        let mut place = match clients.take(&stream) {
            Ok(place) => place,
            Err(crowded) => {
                turn_away(&stream, &crowded);
                self.say_refused(&crowded);
                return Ok(());
            }
        };
        let (service, ends, to) = (self.clone(), ends.clone(), Arc::clone(&stream));
        let serving = thread("client").spawn(move || service.serve(&stream, &mut place, &ends));
        serving.map(drop).inspect_err(|error| turn_away(&to, &no_thread(error)))
    }

    fn say_refused(&self, why: &dyn std::fmt::Display) {
        if let Some(unsaid) = self.refusals.take(Instant::now()) {
            warn!(self.logger, "a client was refused"; "cause" => %why, "unsaid_before" => unsaid);
        }
    }

    /// Serves one client until it leaves.
    fn serve(&self, stream: &Arc<UnixStream>, place: &mut Place, ends: &Sender<End>) {
        let refused = match client::admit(stream, &self.pass, ADMISSION_PATIENCE) {
            Ok(None) => None,
            Ok(Some(Refusal::Left)) => return,
            Ok(Some(Refusal::NoProof)) => {
                Some(String::from("it sent something else than its proof; its connection is closed"))
            }
            Ok(Some(Refusal::Stranger(why))) => Some(why),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = refused {
            return self.say_refused(&why);
        }
        place.prove();
        let (next, answers) = sync_channel(PIPELINE);
        let (service, to) = (self.clone(), Arc::clone(stream));
        let answering = match thread("answers").spawn(move || service.answer(&to, &answers)) {
            Ok(answering) => answering,
            Err(error) => return turn_away(stream, &no_thread(&error)),
        };
        let asked = self.take(stream, &next);
        drop(next);
        // Everything that was asked before is answered first.
        let _ = answering.join();
        if asked {
            let _ = ends.send(End::Asked(Asked { answer: Arc::clone(stream) }));
        }
    }

    /// Reads requests and appends. `true` if the client asked for the member's end.
    fn take(&self, from: &UnixStream, next: &SyncSender<Next>) -> bool {
        let mut from = BufReader::with_capacity(1 << 16, from);
        let (mut frame, mut log) = (Vec::new(), None);
        // What was sent behind a refused append must not be appended in its stead: this connection appends no more.
        let mut is_refused = false;
        loop {
            match read_frame(&mut from, &mut frame) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    warn!(self.logger, "a client's connection broke"; "cause" => %error);
                    return false;
                }
            }
            let work = match Request::decode(&frame) {
                Some(Request::Append { sequence, .. }) if is_refused => {
                    let why = String::from("an append before it on this connection was refused");
                    Next::Answer(Reply::Refused { sequence, passes: true, why })
                }
                Some(Request::Append { sequence, payload }) => self.append(&mut log, sequence, &payload),
                Some(Request::Status) => self.standing().map_or(Next::Answer(gone()), Next::Answer),
                Some(Request::Barrier) => Next::Barrier,
                Some(Request::Read { from, to }) => Next::Read { from: Lsn(from), to: Lsn(to) },
                Some(Request::HandOver { to }) => Next::HandOver { to: MemberId(to) },
                Some(Request::Members) => {
                    let view = self.node.upgrade().map(|node| Reply::Members(View::of(&node)));
                    Next::Answer(view.unwrap_or_else(gone))
                }
                Some(Request::Change(change)) => Next::Change(change),
                Some(Request::AcceptLoss) => Next::AcceptLoss,
                Some(Request::Close) => return true,
                Some(Request::Prove { .. }) | None => {
                    warn!(self.logger, "a client sent what is no request; its connection is closed");
                    return false;
                }
            };
            is_refused |= matches!(work, Next::Answer(Reply::Refused { .. }));
            if next.send(work).is_err() {
                return false;
            }
        }
    }

    /// Appends one record with the tenure's log, which is looked up again when it has ended.
    fn append(&self, log: &mut Option<Log>, sequence: u64, payload: &[u8]) -> Next {
        let refused = |passes, why: &dyn std::fmt::Display| {
            Next::Answer(Reply::Refused { sequence, passes, why: why.to_string() })
        };
        if log.is_none() {
            let Some(node) = self.node.upgrade() else { return Next::Answer(gone()) };
            match node.log() {
                Ok(found) => *log = Some(found),
                Err(error) => return refused(true, &error),
            }
        }
        let Some(handle) = log.as_ref() else { return Next::Answer(gone()) };
        match handle.append_wait_blocking(payload, Instant::now() + APPEND_PATIENCE) {
            Ok(appended) => Next::Commit { log: handle.clone(), sequence, appended },
            Err(error) => {
                *log = None;
                refused(passes(&error), &append_words(&error))
            }
        }
    }

    fn standing(&self) -> Option<Reply> {
        let node = self.node.upgrade()?;
        let (status, log, group) = (node.status(), node.log().ok(), node.metrics().group);
        let (configuration, info) = (node.members().configuration, node.info());
        let me = info.member;
        let outside = node.outside();
        Some(Reply::Status(Box::new(Standing {
            by: me.0,
            role: format!("{:?}", status.role).to_lowercase(),
            // A member may have promised the next tenure already; a primary's own is what it leads in.
            epoch: log.as_ref().map_or(status.promised, |log| log.info().epoch).to_string(),
            durable: status.durable.0,
            trimmed: status.trimmed.0,
            tail: status.tail.0,
            payload_bytes_max: log.map(|log| log.payload_bytes_max().min(PAYLOAD_BYTES_MAX as u64)),
            damaged: status.damaged,
            // Whom a member followed that has left since is no word of who leads.
            follows: status.primary.filter(|at| *at != me && outside.is_none()).map(|primary| primary.0),
            standing: String::from(match configuration.member(me).map(|entry| entry.standing) {
                _ if outside.is_some() => "outside",
                Some(Part::Voter) => "voter",
                Some(Part::Learner { .. }) => "learner",
                None => "outside",
            }),
            // Who waits to be added is told by which command where the group's file is known.
            outside: outside.map(|why| self.words.put(&why)),
            voters: configuration.voters().map(|voter| voter.0).collect(),
            quorum: configuration.useful_quorum(),
            kept_out: self.kept_out(&node),
            stopped: status.stopped.map(|reason| self.words.put(&reason)),
            checkpoint_from: info.checkpoints.needed_from.map(|from| from.0),
            void_batches: group.void_batches,
            windows: Windows {
                binds: group.window_binds,
                allocated: group.windows_allocated,
                used_up: group.windows_used_up,
            },
            batches: Batches {
                sent: group.batches,
                doorbells: group.batch_doorbells,
                requests: group.batch_requests,
                signalled: group.batch_signalled,
                copied_bytes: group.batch_copied_bytes,
            },
            #[cfg(feature = "faults")]
            completions_lost: client::LostCompletions {
                requests: node.lost_completions().requests,
                receives: node.lost_completions().receives,
            },
            #[cfg(not(feature = "faults"))]
            completions_lost: client::LostCompletions::default(),
        })))
    }

    /// Answers in order, several in one write where they are there already.
    fn answer(&self, to: &UnixStream, answers: &Receiver<Next>) {
        let mut encoded = Vec::new();
        while let Ok(first) = answers.recv() {
            let mut work = Some(first);
            while let Some(next) = work {
                if self.work_off(next, &mut encoded, to).is_err() {
                    return;
                }
                work = (encoded.len() < WRITE_BYTES).then(|| answers.try_recv().ok()).flatten();
            }
            if write_all(&mut { to }, &mut encoded).is_err() {
                // The client is gone; what it appended takes its course.
                return;
            }
        }
    }

    /// Encodes the answer, or answers; a long one is written as it goes.
    fn work_off(&self, next: Next, encoded: &mut Vec<u8>, to: &UnixStream) -> std::io::Result<()> {
        match next {
            Next::Answer(reply) => reply.encode(encoded),
            Next::Commit { log, sequence, appended } => {
                let reply = match log.commit_blocking(appended.end, self.level) {
                    Ok(_committed) => {
                        Reply::Acknowledged { sequence, start: appended.start.0, end: appended.end.0 }
                    }
                    Err(error) => Reply::Unknown { sequence, why: error.to_string() },
                };
                reply.encode(encoded);
            }
            Next::Barrier => self.barrier().unwrap_or_else(gone).encode(encoded),
            Next::Read { from, to: end } => {
                let reply = self.read(from, end, encoded, to)?.unwrap_or_else(gone);
                reply.encode(encoded);
            }
            Next::HandOver { to } => self.hand_over(to).unwrap_or_else(gone).encode(encoded),
            Next::Change(change) => self.change(change).unwrap_or_else(gone).encode(encoded),
            Next::AcceptLoss => self.accept_loss().unwrap_or_else(gone).encode(encoded),
        }
        Ok(())
    }

    /// Gives the tenure up in `to`'s favour; answers once it has ended here.
    fn hand_over(&self, to: MemberId) -> Option<Reply> {
        let node = self.node.upgrade()?;
        if let Err(error) = node.log() {
            return Some(Reply::Failed { why: error.to_string() });
        }
        let mut events = node.events();
        node.hand_over(to);
        // Not held while it takes its course, so that the member can be ended.
        drop(node);
        let late = format!("{to} has not taken over within {} s", HANDOVER_PATIENCE.as_secs());
        answer(&mut events, late, |event| {
            if let NodeEvent::Group(Event::HandoverFailed { to, reason }) = event {
                Some(Reply::Failed { why: format!("the handover to {to} did not come about: {reason}") })
            } else {
                matches!(event, NodeEvent::SteppedDown { .. }).then_some(Reply::HandedOver)
            }
        })
    }

    /// Has this member lead with what is left; answers once it has taken the word.
    fn accept_loss(&self) -> Option<Reply> {
        let node = self.node.upgrade()?;
        let mut events = node.events();
        node.accept_loss();
        drop(node);
        let late = format!("this member did not answer within {} s", HANDOVER_PATIENCE.as_secs());
        answer(&mut events, late, |event| {
            let NodeEvent::Group(event) = event else { return None };
            if let Event::LossAccepted { lost } = event {
                Some(Reply::LossAccepted { from: lost.start.0, to: lost.end.0 })
            } else if let Event::LossNotAccepted { reason } = event {
                Some(Reply::Failed { why: self.words.put(reason) })
            } else {
                None
            }
        })
    }

    fn change(&self, change: Change) -> Option<Reply> {
        let deadline = Instant::now() + CHANGE_PATIENCE;
        Some(match self.node.upgrade()?.change_blocking(change, Some(deadline)) {
            Ok(made) => Reply::Changed { number: made.number() },
            Err(error) => Reply::NotChanged { what: not_changed(&error), why: change_words(&error) },
        })
    }

    fn barrier(&self) -> Option<Reply> {
        Some(match self.node.upgrade()?.read_barrier_blocking(Some(Instant::now() + READ_PATIENCE)) {
            Ok(end) => Reply::Barrier { end: end.0 },
            Err(BarrierError::Append(error @ AppendError::Full { .. })) => {
                Reply::Full { why: append_words(&error) }
            }
            Err(error) => Reply::Failed { why: error.to_string() },
        })
    }

    /// Who keeps this member out, and why.
    fn kept_out(&self, node: &Node) -> Vec<String> {
        kept_out(&node.exclusions()).iter().map(|line| self.words.put(line)).collect()
    }

    /// The records of `[from, to)`, read at the cluster's level.
    fn read(
        &self,
        from: Lsn,
        to: Lsn,
        encoded: &mut Vec<u8>,
        mut stream: &UnixStream,
    ) -> std::io::Result<Option<Reply>> {
        let Some(node) = self.node.upgrade() else { return Ok(None) };
        let failed = |error: &dyn std::fmt::Display| Ok(Some(Reply::Failed { why: error.to_string() }));
        // Whose folder was emptied has nothing to read.
        let emptied = || {
            let by = self.kept_out(&node);
            let is_emptied = node.members().configuration.is_unknown() && !by.is_empty();
            is_emptied.then(|| format!("it is kept out {}", by.join("; ")))
        };
        if let Some(why) = node.outside().map(|why| self.words.put(&why)).or_else(emptied) {
            return failed(&format_args!(
                "{why}. Read the group's log from a member; what this one's folder has is printed by `windlass log read {}`",
                self.folder.display()
            ));
        }
        let reader = if self.level == Level::Replicated {
            node.read_replicated_from(from)
        } else {
            node.read_from(from)
        };
        // Not held while a long range goes out, so that the member can be ended.
        drop(node);
        let mut reader = match reader {
            Ok(reader) => reader,
            Err(error) => return failed(&read_words(&error)),
        };
        let patience = Instant::now() + READ_PATIENCE;
        loop {
            match reader.next() {
                Ok(record) if record.lsn < to && record.payload.len() > PAYLOAD_BYTES_MAX => {
                    return Ok(Some(too_long(record.lsn, record.payload.len(), &self.folder)));
                }
                Ok(record) if record.lsn < to => {
                    let (start, end) = (record.lsn.0, record.end.0);
                    Reply::Record { start, end, payload: record.payload.to_vec() }.encode(encoded);
                    if encoded.len() >= WRITE_BYTES {
                        write_all(&mut stream, encoded)?;
                    }
                }
                Ok(_) => return Ok(Some(Reply::ReadEnd)),
                Err(ReadError::AtEnd { end }) if end >= to => return Ok(Some(Reply::ReadEnd)),
                Err(ReadError::AtEnd { .. }) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return failed(&read_words(&error)),
            }
        }
    }
}

/// The answer in the place of a record that no frame holds: another program, as a member of the group or in this folder before, has appended it.
fn too_long(lsn: Lsn, bytes: usize, folder: &Path) -> Reply {
    let why = format!(
        "the record at LSN {lsn} has {bytes} bytes, and a client of `windlass node` is sent at most {PAYLOAD_BYTES_MAX}: `windlass log read {} --from {lsn}` prints it",
        folder.display()
    );
    Reply::Failed { why }
}

/// A failure of an append, in words: the library's are for whoever has the log's handle.
fn append_words(error: &AppendError) -> String {
    if let AppendError::Full { retained_bytes, retention_bytes, trimmed } = error {
        return format!(
            "the log is full: it has {retained_bytes} bytes from the trim point {trimmed} on, and may have {retention_bytes} (retention_bytes): {WAY_OUT}"
        );
    }
    error.to_string()
}

/// A failure of a change, in words.
fn change_words(error: &NodeChangeError) -> String {
    if let NodeChangeError::Full { tail, limit } = error {
        return format!(
            "the log is full: it ends at LSN {tail} and may not go beyond {limit}, so that the configuration found no room: {WAY_OUT}"
        );
    }
    error.to_string()
}

/// A failure of a reader, in words.
fn read_words(error: &ReadError) -> String {
    if let ReadError::InsideRecord { lsn, record } = error {
        return crate::log::errors::inside_record(*lsn, *record);
    }
    error.to_string()
}

/// One line for each reason, with all who have it.
fn kept_out(exclusions: &[(MemberId, Exclusion)]) -> Vec<String> {
    // Who is outside says so by itself, and who has been let in since by others is not.
    let exclusions: Vec<_> = exclusions.iter().filter(|(_, why)| *why != Exclusion::Outside).collect();
    let mut lines = Vec::new();
    for (at, (_, why)) in exclusions.iter().enumerate() {
        if exclusions[..at].iter().all(|(_, earlier)| earlier != why) {
            let by: Vec<String> =
                exclusions.iter().filter(|(_, also)| also == why).map(|(by, _)| by.to_string()).collect();
            lines.push(format!("by {}: {why}", by.join(", ")));
        }
    }
    lines
}

/// Whether the same change may be made later without anybody's doing.
fn not_changed(error: &NodeChangeError) -> NotChanged {
    match error {
        NodeChangeError::NotPrimary(_)
        | NodeChangeError::Refused(
            ChangeError::NotPrimary
            | ChangeError::Pending { .. }
            | ChangeError::TenureTooYoung
            | ChangeError::OutOfReach { .. },
        ) => NotChanged::Passes,
        NodeChangeError::Refused(
            ChangeError::LearnerPending { .. }
            | ChangeError::NumberUsed { .. }
            | ChangeError::NotAMember { .. }
            | ChangeError::NotAVoter { .. }
            | ChangeError::TooMany { .. }
            | ChangeError::LastVoter { .. }
            | ChangeError::Quorums(_),
        )
        | NodeChangeError::Full { .. } => NotChanged::Refused,
        NodeChangeError::Unknown { .. } | NodeChangeError::Deadline | NodeChangeError::Ended => {
            NotChanged::Unknown
        }
    }
}

/// Whether the same append may be taken later, here or by another primary, without anybody's doing.
fn passes(error: &AppendError) -> bool {
    match error {
        // A primary whose disk is full hands over to a member that has room.
        AppendError::NotReady { .. }
        | AppendError::DiskFull { .. }
        | AppendError::NoSegment { .. }
        | AppendError::Sealed { .. }
        | AppendError::Failed(_)
        | AppendError::Deadline { .. } => true,
        AppendError::Full { .. } | AppendError::TooLarge { .. } => false,
    }
}

/// What the first event says that answers, `late` if none does in time. `None` once the node has ended.
fn answer(
    events: &mut NodeEvents,
    late: String,
    answers: impl Fn(&NodeEvent) -> Option<Reply>,
) -> Option<Reply> {
    let deadline = Instant::now() + HANDOVER_PATIENCE;
    loop {
        let Some(event) = events.next_blocking(Some(deadline)) else {
            return Some(Reply::Failed { why: late });
        };
        if matches!(event, NodeEvent::Ended) {
            return None;
        }
        if let Some(reply) = answers(&event) {
            return Some(reply);
        }
    }
}

/// Tells a client that it is not served.
fn turn_away(mut stream: &UnixStream, why: &dyn std::fmt::Display) {
    let mut encoded = Vec::new();
    Reply::Failed { why: why.to_string() }.encode(&mut encoded);
    // It may have left, and a few bytes find room at once.
    let _ = write_all(&mut stream, &mut encoded);
}

fn no_thread(error: &std::io::Error) -> String {
    format!("no thread to serve this client: {error}{}", lack(error))
}

fn gone() -> Reply {
    Reply::Failed { why: String::from("this member is ending: ask another") }
}
