//! The initiator's end of a session: a primary that replicates to a backup, or a candidate that reads from a member.
//!
//! ```text
//!  Connect/Fetch → offer ──────▶ ... ◀── accept → connect → ready → bind the acknowledgement slot → its key ──▶
//!                                    ◀── keys: windows of the segments and slots → Granted
//!  Replicate → [write][write][write with immediate: notice]   one doorbell; before the first one the peer's page may have to be read
//! ```
//!
//! A session is never used again after it broke. What a broken or destroyed session still completes does not count (R-16).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use windlass_engine::{Acknowledgement, Heartbeat, Input, LsnRange, Notice, Placed, Session, Token};
use windlass_fabric::{
    Access, Completion, Connection, ConnectionId, ConnectionState, Counters, ErrorCause, Fabric, Local,
    Memory, Operation, PostError, Receive, RemoteRange, Request, Source, Transfer, Window,
};
use windlass_log::{Geometry, Lsn, MemberId, SEGMENT_HEADER_BYTES};

use super::first_page::{FirstPage, Held, split};
use super::head::PAGE_BYTES_MAX;
use super::memory::Segment;
use super::prefetch::Prefetched;
use super::sessions::{End, Making, Target};
use super::slots::{self, ACKNOWLEDGEMENT_RECEIVES, Buffer};
use super::windows::Lasts;
use super::work::{self, WorkKind};
use crate::control::Purpose;

/// Every so many unsignalled requests one is signalled, so that their slots come back.
const SIGNAL_EVERY: u32 = 16;
/// Slots of a session's send queue.
pub(crate) const SEND_DEPTH: u32 = 128;
/// A signalled request whose completion has not come for so long won't complete any more: a provider gives up sooner. Devices do
/// lose completions.
const COMPLETION_NS: u64 = 6_000_000_000;
/// The most bytes of one read.
const READ_BYTES: u32 = 256 << 10;
/// Reads posted at once.
const READS_MAX: u32 = 16;

/// Why a session can't be made or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the connection can't be made: {0}")]
    Create(#[from] windlass_fabric::CreateError),
    #[error("its memory can't be registered: {0}")]
    Register(#[from] windlass_fabric::RegisterError),
    #[error("no window for it: {0}")]
    Window(#[from] windlass_fabric::AllocateError),
    #[error("it can't be opened: {0}")]
    Way(#[from] super::windows::WayError),
    #[error("connecting failed: {0}")]
    Connect(#[from] windlass_fabric::ConnectError),
    #[error("posting failed: {0}")]
    Post(#[from] PostError),
    #[error("binding a window failed: {0}")]
    Bind(#[from] windlass_fabric::BindError),
    #[error("the peer grants {found} bytes of slots, {needed} are needed: give every member the same limits")]
    Slots { found: u64, needed: u64 },
    #[error("the window of segment {segment} is not granted")]
    NotGranted { segment: u64 },
    #[error("{}", broken(*.0))]
    Broken(windlass_fabric::ErrorCause),
    #[error("{0}")]
    Segment(#[from] super::memory::SegmentError),
    #[error("a request failed: {0:?}")]
    Failed(windlass_fabric::Status),
    #[error(
        "the two devices move whole pages of {page_bytes} bytes: segments begin with {SEGMENT_HEADER_BYTES}"
    )]
    Pages { page_bytes: u32 },
    #[error(
        "what is to be sent does not hold at LSN {lsn}: it is looked at, and not written over what the peer has"
    )]
    Damaged { lsn: Lsn },
    #[error(
        "the head of the page at LSN {page} is not what was sent before, and this log begins in it: the next session sends it as the peer has it"
    )]
    Head { page: Lsn },
    #[error("it was not ready in time")]
    TooSlow,
    #[error(
        "a write of {} bytes did not arrive: the other end is gone, or the path drops long packets, and then every batch would fail: \
         compare the MTU of both interfaces and of the switch between them, or set a smaller path MTU",
        slots::TRIAL_BYTES
    )]
    Path,
    #[error("a request of it has neither completed nor failed for {} s: its completion was lost", COMPLETION_NS / 1_000_000_000)]
    CompletionLost,
}

fn broken(cause: windlass_fabric::ErrorCause) -> &'static str {
    use windlass_fabric::ErrorCause as C;
    match cause {
        C::RequestFailed => "a request on it failed",
        C::PeerRefused => "the peer asked for what it may not",
        C::PeerGone => "the other end closed it, as a member does that promises a new primary, or is gone",
        C::ConnectFailed => "the other end was not reached, or did not prove who it is",
        C::PeerBroken => "the other end broke the fabric's protocol",
        C::Closed => "this end closed it",
        C::Device => "the device is gone, or its port down",
    }
}

/// What a turn of a session found out.
pub(crate) enum Turn {
    /// The acknowledgement slot's window is bound: tell the peer.
    AcknowledgeKey(RemoteRange),
    /// The session is ready, or more was granted: nothing at or beyond may be written.
    Granted(Lsn),
    /// The slot changed.
    Acknowledged(Acknowledgement),
    /// All reads of the fetch are done.
    ReadsDone,
    /// These batches have waited for the first page, which is here.
    PageRead(Vec<Held>),
}

/// Since when a session expects completions and has seen none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expecting(Option<u64>);

impl Expecting {
    /// Looks, once a turn.
    pub(crate) fn look(&mut self, expects: bool, now: u64) -> Result<(), SessionError> {
        if !expects {
            self.0 = None;
            return Ok(());
        }
        let since = *self.0.get_or_insert(now);
        if now.saturating_sub(since) >= COMPLETION_NS { Err(SessionError::CompletionLost) } else { Ok(()) }
    }

    /// One has come.
    pub(crate) fn seen(&mut self) {
        self.0 = None;
    }
}

struct InFlight<F: Fabric> {
    /// Counts up; the id of its completion says it.
    number: u64,
    to: Lsn,
    /// Keeps what the requests read from (R-2).
    _segments: [Option<Arc<Segment<F>>>; 2],
}

/// A fetch in progress.
pub(crate) struct Fetching<F: Fabric> {
    pub(crate) token: Token,
    pub(crate) range: LsnRange,
    /// Everything below is asked for.
    posted: Lsn,
    under_way: u32,
    segments: Vec<Arc<Segment<F>>>,
    /// Where in the first segment what is read apart belongs, and where that begins in the scratch memory.
    apart: Option<(Range<u64>, u64)>,
}

impl<F: Fabric> Fetching<F> {
    /// All is read: what was read apart goes to its place.
    fn join(&mut self, scratch: &Buffer<F>) {
        let Some((place, from)) = self.apart.take() else { return };
        let mut page = [0; PAGE_BYTES_MAX];
        let bytes =
            &mut page[..usize::from(u16::try_from(place.end - place.start).expect("less than a page"))];
        scratch.memory.read(from, bytes);
        self.segments[0].bring(place.start, bytes);
    }
}

/// An initiator's session. See the module.
pub(crate) struct Outgoing<F: Fabric> {
    pub(crate) peer: MemberId,
    pub(crate) session: Session,
    pub(crate) purpose: Purpose,
    /// When it must be ready.
    pub(crate) deadline_ns: u64,
    geometry: Geometry,
    notice_slots: u32,
    inline: bool,
    // Requests and windows go before the regions that they reach.
    connection: F::Connection,
    in_flight: VecDeque<InFlight<F>>,
    first: FirstPage,
    batches: u64,
    expecting: Expecting,
    pub(crate) fetching: Option<Fetching<F>>,
    acknowledgement_window: Option<F::Window>,
    acknowledgement: Buffer<F>,
    /// Where the peer may write its acknowledgements, once the bind is posted.
    acknowledgement_key: Option<RemoteRange>,
    acknowledgement_bound: bool,
    acknowledgement_told: bool,
    acknowledgement_last: [u8; Acknowledgement::BYTES],
    scratch: Buffer<F>,
    slots: Option<RemoteRange>,
    windows: BTreeMap<u64, RemoteRange>,
    up_to: Lsn,
    told_up_to: Option<Lsn>,
    unsignalled: u32,
    /// The segment that is being sent from, and what the device was asked to bring in of it.
    prefetched: (u64, Prefetched),
    /// The device takes advice to bring in memory ahead, as far as is known.
    prefetches: bool,
    /// Receives posted again since the session began.
    returned: u64,
    trial: Trial,
}

/// How far the trial of the path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trial {
    /// To be written once the peer has opened its slots.
    Due,
    UnderWay,
    /// It has arrived, or there is none: whoever reads finds out by reading.
    Passed,
}

impl<F: Fabric> End for Outgoing<F> {
    fn is(&self, peer: MemberId, session: Session, purpose: Purpose) -> bool {
        (self.peer, self.session, self.purpose) == (peer, session, purpose)
    }
}

impl<F: Fabric> Outgoing<F> {
    /// Makes this end. Its endpoint is to be offered to the peer.
    pub(crate) fn new(making: &Making<'_, F>) -> Result<Outgoing<F>, SessionError> {
        let Making { fabric, geometry, notice_slots, peer, session, purpose, deadline_ns, .. } = *making;
        let posted = match purpose {
            Purpose::Replicate => ACKNOWLEDGEMENT_RECEIVES,
            Purpose::Fetch => 0,
        };
        let (connection, inline) = making.connection(ACKNOWLEDGEMENT_RECEIVES, posted)?;
        let Target { buffer: acknowledgement, window: acknowledgement_window, key: acknowledgement_key } =
            making.target(slots::STRIDE_BYTES, Lasts::Once)?;
        // A page may be read into it.
        let scratch = Buffer::new(fabric, slots::slots_bytes(notice_slots), Access::LOCAL_WRITE)?;
        Ok(Outgoing {
            peer,
            session,
            purpose,
            deadline_ns,
            geometry,
            notice_slots,
            inline,
            connection,
            in_flight: VecDeque::with_capacity(8),
            first: FirstPage::default(),
            batches: 0,
            expecting: Expecting::default(),
            fetching: None,
            // On a device without windows it is open already.
            acknowledgement_bound: acknowledgement_window.is_none(),
            acknowledgement_window,
            acknowledgement,
            acknowledgement_key,
            acknowledgement_told: false,
            acknowledgement_last: [0; Acknowledgement::BYTES],
            scratch,
            slots: None,
            windows: BTreeMap::new(),
            up_to: Lsn(0),
            told_up_to: None,
            unsignalled: 0,
            prefetched: (0, Prefetched::default()),
            prefetches: true,
            returned: 0,
            trial: if purpose == Purpose::Replicate { Trial::Due } else { Trial::Passed },
        })
    }

    pub(crate) fn connection_id(&self) -> ConnectionId {
        self.connection.id()
    }

    pub(crate) fn endpoint(&self) -> Vec<u8> {
        self.connection.endpoint().to_vec()
    }

    /// How the devices of both ends move mapped files.
    pub(crate) fn transfer(&self) -> Transfer {
        self.connection.transfer()
    }

    /// Whether the engine was told that it may be used.
    pub(crate) fn is_up(&self) -> bool {
        self.told_up_to.is_some()
    }

    /// Up to where the peer may be written to, once it may be at all.
    pub(crate) fn granted_to(&self) -> Option<Lsn> {
        self.told_up_to
    }

    /// The peer has made its end.
    pub(crate) fn accepted(&mut self, endpoint: &[u8]) -> Result<(), SessionError> {
        match self.connection.state() {
            ConnectionState::Initial => Ok(self.connection.connect(endpoint)?),
            // Said twice.
            ConnectionState::Connecting | ConnectionState::Ready | ConnectionState::Error(_) => Ok(()),
        }
    }

    /// The peer has opened these windows.
    pub(crate) fn granted(
        &mut self,
        slots: RemoteRange,
        up_to: Lsn,
        segments: &[(u64, RemoteRange)],
    ) -> Result<(), SessionError> {
        if self.purpose == Purpose::Replicate {
            let needed = slots::slots_bytes(self.notice_slots);
            if slots.bytes < needed {
                return Err(SessionError::Slots { found: slots.bytes, needed });
            }
        }
        self.slots = Some(slots);
        // The peer repeats all that is open; what it does not name is closed.
        self.windows.clear();
        self.windows.extend(segments.iter().copied());
        self.up_to = self.up_to.max(up_to);
        Ok(())
    }

    /// Goes on as far as it can without waiting; answers what is new, one thing at a time.
    pub(crate) fn turn(&mut self, now: u64) -> Result<Option<Turn>, SessionError> {
        match self.connection.state() {
            // Whatever the device calls it: the trial was the only request that could fail.
            ConnectionState::Error(
                ErrorCause::RequestFailed | ErrorCause::PeerGone | ErrorCause::PeerRefused,
            ) if self.trial == Trial::UnderWay => return Err(SessionError::Path),
            ConnectionState::Error(cause) => return Err(SessionError::Broken(cause)),
            ConnectionState::Initial | ConnectionState::Connecting => {
                return if now >= self.deadline_ns { Err(SessionError::TooSlow) } else { Ok(None) };
            }
            ConnectionState::Ready => {}
        }
        self.bind_acknowledgement()?;
        let reads = self.fetching.as_ref().is_some_and(|fetching| fetching.under_way > 0);
        self.expecting.look(reads || !self.in_flight.is_empty(), now)?;
        if self.acknowledgement_bound && !self.acknowledgement_told {
            self.acknowledgement_told = true;
            return Ok(self.acknowledgement_key.map(Turn::AcknowledgeKey));
        }
        let is_prepared = self.purpose == Purpose::Fetch || self.acknowledgement_told;
        if self.slots.is_some() && is_prepared && !self.try_path()? {
            return if now >= self.deadline_ns { Err(SessionError::Path) } else { Ok(None) };
        }
        if self.slots.is_some() && is_prepared && self.told_up_to != Some(self.up_to) {
            self.told_up_to = Some(self.up_to);
            return Ok(Some(Turn::Granted(self.up_to)));
        }
        if self.told_up_to.is_none() && now >= self.deadline_ns {
            return Err(SessionError::TooSlow);
        }
        if self.purpose == Purpose::Fetch {
            return self.read_on();
        }
        if self.first.is_late(now) {
            return Err(SessionError::TooSlow);
        }
        let ready = self.first.take_ready();
        if !ready.is_empty() {
            return Ok(Some(Turn::PageRead(ready)));
        }
        Ok(self.look_at_slot())
    }

    fn bind_acknowledgement(&mut self) -> Result<(), SessionError> {
        let Some(window) = self.acknowledgement_window.as_mut().filter(|window| !window.is_bound()) else {
            return Ok(());
        };
        let region = &self.acknowledgement.region;
        let range = 0..slots::STRIDE_BYTES;
        let id = work::id(WorkKind::Bind, 0);
        self.acknowledgement_key =
            Some(self.connection.bind(id, window, region, range, Access::REMOTE_WRITE)?);
        Ok(())
    }

    /// The last step of connecting: a write longer than a packet, into room that the peer has for it. Its completion says that long packets arrive, before
    /// anything is counted on it. Whether it has come; at once where nothing is written.
    fn try_path(&mut self) -> Result<bool, SessionError> {
        if self.trial == Trial::Due
            && let Some(slots) = self.slots
        {
            let at = slots::trial_at(self.notice_slots);
            let local = Local { region: &self.scratch.region, offset: at, bytes: short(slots::TRIAL_BYTES) };
            let operation = Operation::Write { source: Source::Region(local), to: slots.at(at) };
            let id = work::id(WorkKind::Trial, 0);
            self.connection.post(&[Request { id, operation, signalled: true }])?;
            self.trial = Trial::UnderWay;
        }
        Ok(self.trial == Trial::Passed)
    }

    /// The acknowledgement, if it changed and is whole.
    fn look_at_slot(&mut self) -> Option<Turn> {
        let mut bytes = [0; Acknowledgement::BYTES];
        self.acknowledgement.memory.read(0, &mut bytes);
        if bytes == self.acknowledgement_last {
            return None;
        }
        // Torn: the next turn sees it whole.
        let acknowledgement = Acknowledgement::decode(&bytes).ok()?;
        self.acknowledgement_last = bytes;
        (acknowledgement.session == self.session).then_some(Turn::Acknowledged(acknowledgement))
    }

    /// Whether no batch has begun in a page yet.
    pub(crate) fn is_unsent(&self) -> bool {
        self.first.is_unsent()
    }

    /// The first batch begins in a page of this log, or in one that is to be read from the peer first, by then.
    pub(crate) fn begin(&mut self, peers: Option<(Range<Lsn>, u64)>) -> Result<(), SessionError> {
        if let Some((page, _)) = &peers {
            let number = self.geometry.segment_of(page.start);
            let window = self.windows.get(&number).ok_or(SessionError::NotGranted { segment: number })?;
            let from = window.at(self.geometry.offset_of(page.start) - SEGMENT_HEADER_BYTES);
            let bytes = short(page.end.0 - page.start.0);
            let offset = slots::page_at(self.notice_slots);
            let into = Local { region: &self.scratch.region, offset, bytes };
            let operation = Operation::Read { into, from };
            self.connection.post(&[Request {
                id: work::id(WorkKind::Read, 0),
                operation,
                signalled: true,
            }])?;
        }
        self.first.begin(peers);
        Ok(())
    }

    /// Whether batches have to wait for the first page.
    pub(crate) fn is_page_awaited(&self) -> bool {
        self.first.is_awaited()
    }

    /// A batch waits for it: it comes back with [`Turn::PageRead`].
    pub(crate) fn hold(&mut self, held: Held) {
        self.first.hold(held);
    }

    /// The page whose head is sent as the peer has it.
    pub(crate) fn peers_page(&self) -> Option<Range<Lsn>> {
        self.first.peers()
    }

    /// Writes the range and the notice behind it, with one doorbell. What it cost.
    ///
    /// `segments` are those of the range's start and, if it crosses, of its end.
    pub(crate) fn replicate(
        &mut self,
        range: LsnRange,
        notice: &Notice,
        slot: u32,
        segments: [Option<Arc<Segment<F>>>; 2],
    ) -> Result<Counters, SessionError> {
        let before = self.connection.counters();
        let slots = self.slots.ok_or(SessionError::NotGranted { segment: 0 })?;
        let bytes = slots::with_returned(&notice.encode(), self.returned);
        let at = slots::notice_at(slot);
        self.batches += 1;
        let number = self.batches;
        let notice_request = Request {
            id: work::id(WorkKind::Batch, number),
            operation: Operation::WriteImmediate {
                source: self.scratch.source(at, &bytes, self.inline),
                to: slots.at(at),
                immediate: notice.immediate(),
            },
            signalled: true,
        };
        let mut chain = [notice_request; 4];
        let mut length = 0;
        let peers = self.first.peers();
        for (part, segment) in parts(self.geometry, range).into_iter().flatten().zip(&segments) {
            let number = self.geometry.segment_of(part.start);
            let window = self.windows.get(&number).ok_or(SessionError::NotGranted { segment: number })?;
            let segment = segment.as_ref().ok_or(SessionError::NotGranted { segment: number })?;
            if self.prefetched.0 != number {
                self.prefetched = (number, Prefetched::default());
            }
            let (offset, end) = (self.geometry.offset_of(part.start), self.geometry.segment_bytes());
            self.prefetched.1.ask(segment.source(), offset, end, &mut self.prefetches);
            for piece in split(part, peers.as_ref()).into_iter().flatten() {
                let offset = self.geometry.offset_of(piece.start);
                let range = offset..offset + piece.bytes();
                let stretch = widened(self.connection.transfer(), range.clone())?;
                let bytes = short(stretch.end - stretch.start);
                let local = if peers.as_ref().is_some_and(|page| page.contains(&piece.start)) {
                    let at = slots::page_at(self.notice_slots);
                    add_to_page(&self.scratch, at + range.start - stretch.start, segment, range);
                    Local { region: &self.scratch.region, offset: at, bytes }
                } else {
                    Local { region: segment.source(), offset: stretch.start, bytes }
                };
                let to = window.at(stretch.start - SEGMENT_HEADER_BYTES);
                chain[length] = Request {
                    id: work::id(WorkKind::Batch, 0),
                    operation: Operation::Write { source: Source::Region(local), to },
                    signalled: false,
                };
                length += 1;
            }
        }
        chain[length] = notice_request;
        self.connection.post(&chain[..=length])?;
        self.unsignalled = 0;
        self.in_flight.push_back(InFlight { number, to: range.end, _segments: segments });
        Ok(self.connection.counters().since(&before))
    }

    /// Writes the heartbeat slot; skipped while the send queue is full.
    pub(crate) fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), SessionError> {
        let Some(slots) = self.slots.filter(|_| self.trial == Trial::Passed) else { return Ok(()) };
        if self.connection.outstanding().sends + 4 > SEND_DEPTH {
            return Ok(());
        }
        let bytes = slots::with_returned(&heartbeat.encode(), self.returned);
        let at = slots::heartbeat_at(self.notice_slots);
        self.unsignalled += 1;
        let request = Request {
            id: work::id(WorkKind::Beat, 0),
            operation: Operation::Write {
                source: self.scratch.source(at, &bytes, self.inline),
                to: slots.at(at),
            },
            signalled: self.unsignalled >= SIGNAL_EVERY,
        };
        if request.signalled {
            self.unsignalled = 0;
        }
        Ok(self.connection.post(&[request])?)
    }

    /// Begins to read a range into the local log. `segments` are all that it touches.
    pub(crate) fn fetch(
        &mut self,
        token: Token,
        range: LsnRange,
        segments: Vec<Arc<Segment<F>>>,
        deadline_ns: u64,
    ) {
        self.deadline_ns = deadline_ns;
        self.fetching =
            Some(Fetching { token, range, posted: range.start, under_way: 0, segments, apart: None });
    }

    /// Posts reads as far as windows are granted and the queue has room.
    ///
    /// Where the devices move whole pages, the page that the log here ends in is read apart, and only what lies behind that end is taken of it: its head is here, and the peer's may have rotted.
    fn read_on(&mut self) -> Result<Option<Turn>, SessionError> {
        let Some(fetching) = &mut self.fetching else { return Ok(None) };
        // A window that is open already may show what was asked for before, and no more, until the peer has said so.
        if self.up_to < fetching.range.end {
            return Ok(None);
        }
        while fetching.posted < fetching.range.end && fetching.under_way < READS_MAX {
            let geometry = self.geometry;
            let number = geometry.segment_of(fetching.posted);
            let Some(window) = self.windows.get(&number) else { break };
            let offset = geometry.offset_of(fetching.posted);
            let end = fetching.range.end.0.min(geometry.base(number + 1).0);
            let mut bytes = short(end - fetching.posted.0).min(READ_BYTES);
            let transfer = self.connection.transfer();
            let page = widened(transfer, offset..offset + 1)?;
            let is_apart = page.start < offset && fetching.posted == fetching.range.start;
            if is_apart {
                bytes = bytes.min(short(page.end - offset));
            }
            let stretch = widened(transfer, offset..offset + u64::from(bytes))?;
            // What was granted may begin behind the header page only, and end before the segment does.
            let from = stretch.start - SEGMENT_HEADER_BYTES;
            let length = short(stretch.end - stretch.start);
            if from + u64::from(length) > window.bytes {
                break;
            }
            let first = geometry.segment_of(fetching.range.start);
            let index = usize::try_from(number - first).expect("segments of one fetch");
            let segment = &fetching.segments[index];
            let into = if is_apart {
                fetching.apart = Some((offset..offset + u64::from(bytes), offset - stretch.start));
                Local { region: &self.scratch.region, offset: 0, bytes: length }
            } else {
                Local { region: segment.target(), offset: stretch.start, bytes: length }
            };
            let request = Request {
                id: work::id(WorkKind::Read, 0),
                operation: Operation::Read { into, from: window.at(from) },
                signalled: true,
            };
            self.connection.post(&[request])?;
            fetching.under_way += 1;
            fetching.posted = geometry.normalize(Lsn(fetching.posted.0 + u64::from(bytes)));
        }
        let is_done = fetching.posted >= fetching.range.end && fetching.under_way == 0;
        if is_done {
            fetching.join(&self.scratch);
        }
        Ok(is_done.then_some(Turn::ReadsDone))
    }

    /// Takes a completion of this connection.
    pub(crate) fn completed(
        &mut self,
        completion: &Completion,
        inputs: &mut VecDeque<Input>,
    ) -> Result<(), SessionError> {
        if !completion.status.is_success() {
            return Err(SessionError::Failed(completion.status));
        }
        match work::kind(completion.id) {
            Some(WorkKind::Batch) => {
                self.expecting.seen();
                // Those before it are placed, too, also where their completion was lost.
                let number = work::low(completion.id);
                while let Some(batch) = self.in_flight.pop_front_if(|batch| batch.number <= number) {
                    let (peer, session, to) = (self.peer, self.session, Placed(batch.to));
                    inputs.push_back(Input::Placed { peer, session, to });
                }
            }
            Some(WorkKind::Receive) => {
                self.connection
                    .post_receives(&[Receive { id: work::id(WorkKind::Receive, 0), into: None }])?;
                self.returned += 1;
            }
            Some(WorkKind::Bind) => {
                self.acknowledgement_bound = true;
            }
            Some(WorkKind::Trial) => {
                self.trial = Trial::Passed;
            }
            Some(WorkKind::Read) => {
                self.expecting.seen();
                self.first.arrived();
                if let Some(fetching) = &mut self.fetching {
                    fetching.under_way = fetching.under_way.saturating_sub(1);
                }
            }
            Some(WorkKind::Beat | WorkKind::Acknowledge | WorkKind::Invalidate) | None => {}
        }
        Ok(())
    }

    /// Batches ordered whose completion was not seen.
    pub(crate) fn batches_in_flight(&self) -> u64 {
        self.in_flight.len() as u64 + self.first.held()
    }

    /// Ends the session: when this returns no request of it touches any memory, here or there (R-2).
    pub(crate) fn destroy(self) {
        let Outgoing { connection, .. } = self;
        connection.destroy();
    }
}

/// A stretch of a segment as the two devices move it: as it is, or widened to whole pages.
///
/// The head of a partly filled page is sent again with the bytes that it was sent with before, or that the peer has ([`super::head`] sees to that). What travels along behind the end is no
/// valid record until it is sent for itself, or is one: a record that was published meanwhile (R-3, R-4). Segments and windows begin
/// and end at pages, so that a widened stretch stays inside.
fn widened(transfer: Transfer, stretch: Range<u64>) -> Result<Range<u64>, SessionError> {
    match transfer {
        Transfer::Any => Ok(stretch),
        Transfer::WholePages { page_bytes } if u64::from(page_bytes) > SEGMENT_HEADER_BYTES => {
            Err(SessionError::Pages { page_bytes })
        }
        Transfer::WholePages { page_bytes } => {
            let page = u64::from(page_bytes);
            Ok(stretch.start / page * page..stretch.end.next_multiple_of(page))
        }
    }
}

/// Puts a batch's bytes behind the head of the page that it begins in. Batches before it that are still under way end before them.
fn add_to_page<F: Fabric>(scratch: &Buffer<F>, at: u64, segment: &Segment<F>, range: Range<u64>) {
    let mut page = [0; PAGE_BYTES_MAX];
    let count = usize::try_from(range.end - range.start).expect("less than a page");
    segment.memory.copy_out(range.start, &mut page[..count]);
    scratch.memory.write(at, &page[..count]);
}

fn short(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("a batch is shorter than 4 GiB")
}

/// The range as at most two stretches, each inside one segment and behind its header page.
///
/// # Panics
///
/// If it spans more than two segments: the engine's to keep.
pub(crate) fn parts(geometry: Geometry, range: LsnRange) -> [Option<LsnRange>; 2] {
    let some = |start: Lsn, end: Lsn| (start < end).then(|| LsnRange::new(start, end));
    let first = geometry.segment_of(range.start);
    let next = geometry.base(first + 1);
    if range.end <= next {
        return [some(range.start, range.end), None];
    }
    let second = geometry.first_record(first + 1);
    // The end of a full segment is the next one's first record (R-1): nothing of that is sent yet.
    assert!(range.end <= geometry.first_record(first + 2), "a batch spans at most two segments, not {range}");
    let head = some(range.start, next);
    let tail = some(second, range.end.clamp(second, geometry.base(first + 2)));
    if head.is_some() { [head, tail] } else { [tail, None] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_hold_the_stretch_and_stay_behind_the_header_and_inside_the_segment() {
        let pages = Transfer::WholePages { page_bytes: 4096 };
        assert_eq!(widened(Transfer::Any, 4100..4200).unwrap(), 4100..4200);
        let segment = 64 << 10;
        for (stretch, wide) in [
            (4096..4128, 4096..8192),
            (5000..8192, 4096..8192),
            (8192..8193, 8192..12288),
            (12000..12400, 8192..16384),
            (segment - 8..segment, segment - 4096..segment),
        ] {
            assert_eq!(widened(pages, stretch).unwrap(), wide);
        }
        let large = Transfer::WholePages { page_bytes: 64 << 10 };
        assert!(matches!(widened(large, 4096..4128), Err(SessionError::Pages { .. })));
    }

    #[test]
    fn a_batch_is_one_write_and_two_where_a_segment_ends() {
        let g = Geometry::new(64 << 10).unwrap();
        let range = |start, end| LsnRange::new(Lsn(start), Lsn(end));
        let s = 64 << 10;
        assert_eq!(parts(g, range(4096, 4096)), [None, None]);
        assert_eq!(parts(g, range(4096, 5000)), [Some(range(4096, 5000)), None]);
        // A full segment: its end is the next one's first record (R-1), of which nothing is sent yet.
        assert_eq!(parts(g, range(5000, s + 4096)), [Some(range(5000, s)), None]);
        let both = [Some(range(5000, s)), Some(range(s + 4096, s + 4200))];
        assert_eq!(parts(g, range(5000, s + 4200)), both);
        // Both to their ends.
        let full = [Some(range(5000, s)), Some(range(s + 4096, 2 * s))];
        assert_eq!(parts(g, range(5000, 2 * s + 4096)), full);
    }
}
