//! All sessions of a member, at either end, and the offers that wait for a grant.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use windlass_engine::{Input, LsnRange, Session, Token};
use windlass_fabric::{
    Access, Completion, Connection, ConnectionOptions, Fabric, Receive, Region as _, RemoteRange,
};
use windlass_log::{Geometry, Lsn, MemberId};

use super::incoming::Incoming;
use super::memory::bindable;
use super::meters::GroupMeters;
use super::outgoing::{Outgoing, SEND_DEPTH, SessionError};
use super::slots::{Buffer, POST_BYTES};
use super::windows::{Lasts, Windows};
use super::work::{self, WorkKind};
use crate::control::{ControlPlane, Frame, Purpose};

/// A grant that waits: for the peer's offer, or for segments that are still being made.
#[derive(Clone, Debug)]
pub(crate) struct PendingGrant {
    /// `None` for a read, which nobody answers.
    pub(crate) token: Option<Token>,
    pub(crate) peer: MemberId,
    pub(crate) session: Session,
    pub(crate) purpose: Purpose,
    pub(crate) range: LsnRange,
    pub(crate) deadline_ns: u64,
}

/// A fetch that waits for segments that are still being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingFetch {
    pub(crate) token: Token,
    pub(crate) peer: MemberId,
    pub(crate) session: Session,
    pub(crate) range: LsnRange,
    pub(crate) deadline_ns: u64,
}

/// Either end of a session.
pub(crate) trait End {
    /// Whether it is that of this session, for this purpose.
    fn is(&self, peer: MemberId, session: Session, purpose: Purpose) -> bool;
}

/// Takes the end of a session out, if it is there.
fn take<E: End>(ends: &mut Vec<E>, peer: MemberId, session: Session, purpose: Purpose) -> Option<E> {
    let at = ends.iter().position(|end| end.is(peer, session, purpose))?;
    Some(ends.swap_remove(at))
}

/// Memory of an end that its peer writes to.
pub(crate) struct Target<F: Fabric> {
    pub(crate) buffer: Buffer<F>,
    pub(crate) window: Option<F::Window>,
    pub(crate) key: Option<RemoteRange>,
}

/// What either end of a session is made with.
pub(crate) struct Making<'a, F: Fabric> {
    pub(crate) fabric: &'a F,
    pub(crate) queue: &'a F::CompletionQueue,
    pub(crate) windows: &'a Arc<Windows<F>>,
    pub(crate) geometry: Geometry,
    pub(crate) notice_slots: u32,
    pub(crate) peer: MemberId,
    pub(crate) session: Session,
    pub(crate) purpose: Purpose,
    /// When it must be ready.
    pub(crate) deadline_ns: u64,
}

impl<F: Fabric> Making<'_, F> {
    /// A connection with room for so many receives, so many of them posted, and whether what is posted goes inline.
    pub(crate) fn connection(
        &self,
        receive_depth: u32,
        posted: u32,
    ) -> Result<(F::Connection, bool), SessionError> {
        let inline_bytes = u32::try_from(POST_BYTES).expect("a slot is short");
        let inline = self.fabric.capabilities().inline_bytes_max >= inline_bytes;
        let inline_bytes = if inline { inline_bytes } else { 0 };
        let options = ConnectionOptions { send_depth: SEND_DEPTH, receive_depth, inline_bytes };
        let mut connection = self.fabric.connection(self.queue, &options)?;
        for _ in 0..posted {
            connection.post_receives(&[Receive { id: work::id(WorkKind::Receive, 0), into: None }])?;
        }
        Ok((connection, inline))
    }

    /// Memory of the end's own that the peer writes to, where this session has such: through a window, or, on a device without, by the key that
    /// comes with it.
    pub(crate) fn target(&self, bytes: u64, lasts: Lasts) -> Result<Target<F>, SessionError> {
        let (has_windows, writes) = (self.windows.are_there(), self.purpose == Purpose::Replicate);
        let access = if writes && !has_windows {
            Access::LOCAL_WRITE | Access::REMOTE_WRITE
        } else {
            bindable(self.fabric)
        };
        let buffer = Buffer::new(self.fabric, bytes, access)?;
        let window =
            if writes && has_windows { Some(self.windows.obtain(self.fabric, lasts)?) } else { None };
        let key = buffer.region.remote();
        Ok(Target { buffer, window, key })
    }
}

/// The initiator's end of a peer's session, not yet taken.
struct Offer {
    session: Session,
    endpoint: Vec<u8>,
}

pub(crate) struct Sessions<F: Fabric> {
    pub(crate) outgoing: Vec<Outgoing<F>>,
    pub(crate) incoming: Vec<Incoming<F>>,
    #[cfg(planted)]
    left_open: Vec<Incoming<F>>,
    pub(crate) grants: Vec<PendingGrant>,
    pub(crate) fetches: Vec<PendingFetch>,
    /// The newest of each peer and purpose.
    offers: BTreeMap<(MemberId, Purpose), Offer>,
    geometry: Geometry,
    notice_slots: u32,
    windows: Arc<Windows<F>>,
    meters: Arc<GroupMeters>,
}

impl<F: Fabric> Sessions<F> {
    pub(crate) fn new(
        fabric: &F,
        geometry: Geometry,
        notice_slots: u32,
        meters: Arc<GroupMeters>,
    ) -> Sessions<F> {
        Sessions {
            windows: Arc::new(Windows::new(fabric, Arc::clone(&meters))),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            #[cfg(planted)]
            left_open: Vec::new(),
            grants: Vec::new(),
            fetches: Vec::new(),
            offers: BTreeMap::new(),
            geometry,
            notice_slots,
            meters,
        }
    }

    pub(crate) fn outgoing(
        &mut self,
        peer: MemberId,
        session: Session,
        purpose: Purpose,
    ) -> Option<&mut Outgoing<F>> {
        self.outgoing.iter_mut().find(|link| link.is(peer, session, purpose))
    }

    pub(crate) fn incoming(
        &mut self,
        peer: MemberId,
        session: Session,
        purpose: Purpose,
    ) -> Option<&mut Incoming<F>> {
        self.incoming.iter_mut().find(|link| link.is(peer, session, purpose))
    }

    /// Makes the initiator's end and offers it.
    #[expect(clippy::too_many_arguments, reason = "who, what, where and with what")]
    pub(crate) fn connect(
        &mut self,
        fabric: &F,
        queue: &F::CompletionQueue,
        control: &mut impl ControlPlane,
        peer: MemberId,
        session: Session,
        purpose: Purpose,
        deadline_ns: u64,
    ) -> Result<(), SessionError> {
        let (geometry, notice_slots) = (self.geometry, self.notice_slots);
        let link = Outgoing::new(&Making {
            fabric,
            queue,
            windows: &self.windows,
            geometry,
            notice_slots,
            peer,
            session,
            purpose,
            deadline_ns,
        })?;
        control.send(peer, Frame::Offer { session, purpose, endpoint: link.endpoint() });
        self.outgoing.push(link);
        Ok(())
    }

    /// Ends the initiator's end of a session, whatever it is for.
    pub(crate) fn disconnect(&mut self, control: &mut impl ControlPlane, peer: MemberId, session: Session) {
        self.fetches.retain(|fetch| (fetch.peer, fetch.session) != (peer, session));
        while let Some(at) =
            self.outgoing.iter().position(|link| link.peer == peer && link.session == session)
        {
            let link = self.outgoing.swap_remove(at);
            let purpose = link.purpose;
            self.destroy(link);
            control.send(peer, Frame::Broken { session, purpose, by_initiator: true });
        }
    }

    /// Notes the peer's end of a session; the newest counts.
    pub(crate) fn offered(&mut self, peer: MemberId, session: Session, purpose: Purpose, endpoint: Vec<u8>) {
        let known = self.offers.get(&(peer, purpose));
        if known.is_none_or(|offer| offer.session <= session) {
            self.offers.insert((peer, purpose), Offer { session, endpoint });
        }
    }

    /// The offer for a grant, if it has come.
    fn take_offer(&mut self, peer: MemberId, session: Session, purpose: Purpose) -> Option<Vec<u8>> {
        let key = (peer, purpose);
        self.offers.get(&key).filter(|offer| offer.session == session)?;
        self.offers.remove(&key).map(|offer| offer.endpoint)
    }

    /// Makes the responder's end for a grant, if it is not there and the peer has offered its own. Whether it is there now.
    pub(crate) fn accept(
        &mut self,
        fabric: &F,
        queue: &F::CompletionQueue,
        control: &mut impl ControlPlane,
        grant: &PendingGrant,
    ) -> Result<bool, SessionError> {
        let PendingGrant { peer, session, purpose, deadline_ns, .. } = *grant;
        if self.incoming(peer, session, purpose).is_some() {
            return Ok(true);
        }
        let Some(endpoint) = self.take_offer(peer, session, purpose) else { return Ok(false) };
        // An older session of the same peer is over: nothing may arrive through it any more.
        while let Some(at) =
            self.incoming.iter().position(|link| link.peer == peer && link.purpose == purpose)
        {
            self.incoming.swap_remove(at).destroy();
        }
        let (geometry, notice_slots) = (self.geometry, self.notice_slots);
        let windows = &self.windows;
        let making =
            Making { fabric, queue, windows, geometry, notice_slots, peer, session, purpose, deadline_ns };
        let link = Incoming::new(&making, &endpoint)?;
        control.send(peer, Frame::Accept { session, purpose, endpoint: link.endpoint() });
        self.incoming.push(link);
        Ok(true)
    }

    /// Takes a completion. Failures show in the connection's state, which the next turn looks at.
    pub(crate) fn completed(&mut self, completion: &Completion, inputs: &mut VecDeque<Input>) {
        let id = completion.connection;
        if let Some(link) = self.outgoing.iter_mut().find(|link| link.connection_id() == id) {
            // As its doc says.
            let _ = link.completed(completion, inputs);
        } else if let Some(link) = self.incoming.iter_mut().find(|link| link.connection_id() == id) {
            let _ = link.completed(completion, inputs);
        }
    }

    /// The control connection to a peer is lost: what was being negotiated over it is lost, too.
    pub(crate) fn control_lost(&mut self, peer: MemberId, inputs: &mut VecDeque<Input>) {
        self.offers.retain(|(from, _), _| *from != peer);
        let mut lost: Vec<(Session, Purpose)> = Vec::new();
        for link in self.outgoing.iter().filter(|link| link.peer == peer && !link.is_up()) {
            lost.push((link.session, link.purpose));
        }
        for (session, purpose) in lost {
            self.drop_outgoing(peer, session, purpose, inputs);
        }
    }

    /// The control connection to a peer is up again: repeat what may have been lost.
    pub(crate) fn control_up(&mut self, control: &mut impl ControlPlane, peer: MemberId) {
        for link in self.incoming.iter().filter(|link| link.peer == peer && link.has_keys()) {
            control.send(peer, link.keys());
        }
    }

    /// Ends an initiator's end; what it had under way counts for nothing.
    fn destroy(&self, link: Outgoing<F>) {
        self.meters.void_batches.add(link.batches_in_flight());
        link.destroy();
    }

    /// Ends every session, at either end: what it had under way counts for nothing, and no window is open any more.
    pub(crate) fn end_all(&mut self) {
        self.grants.clear();
        self.fetches.clear();
        for link in std::mem::take(&mut self.outgoing) {
            self.destroy(link);
        }
        for link in self.incoming.drain(..) {
            link.destroy();
        }
    }

    /// Drops an initiator's end that broke, and says so.
    pub(crate) fn drop_outgoing(
        &mut self,
        peer: MemberId,
        session: Session,
        purpose: Purpose,
        inputs: &mut VecDeque<Input>,
    ) {
        let Some(mut link) = take(&mut self.outgoing, peer, session, purpose) else { return };
        let fetching = link.fetching.take();
        self.destroy(link);
        match purpose {
            Purpose::Replicate => inputs.push_back(Input::FabricDown { peer, session }),
            Purpose::Fetch => inputs.extend(fetching.map(|fetch| Input::FetchFailed { token: fetch.token })),
        }
    }

    /// Drops a responder's end that broke, and says so. Its connection and windows are gone when this returns.
    pub(crate) fn drop_incoming(
        &mut self,
        peer: MemberId,
        session: Session,
        purpose: Purpose,
        inputs: &mut VecDeque<Input>,
    ) {
        if let Some(link) = take(&mut self.incoming, peer, session, purpose) {
            link.destroy();
        }
        self.grants.retain(|grant| (grant.peer, grant.session, grant.purpose) != (peer, session, purpose));
        if purpose == Purpose::Replicate {
            inputs.push_back(Input::FabricDown { peer, session });
        }
    }

    /// Begins to take back every window, from everybody.
    pub(crate) fn begin_revoke(&mut self) {
        self.grants.clear();
        for link in &mut self.incoming {
            link.begin_end();
        }
    }

    /// Goes on with it. `true` once every connection that had a window is destroyed.
    pub(crate) fn revoke(&mut self, is_late: bool) -> bool {
        let mut at = 0;
        while at < self.incoming.len() {
            // Past the deadline destroying alone has to do: it, too, ends everything.
            #[cfg(planted)]
            if windlass_log::planted!(SkippedDrain) && self.incoming[at].is_invalidated() {
                self.left_open.push(self.incoming.swap_remove(at));
                continue;
            }
            if self.incoming[at].end() || is_late {
                self.incoming.swap_remove(at).destroy();
            } else {
                at += 1;
            }
        }
        self.incoming.is_empty()
    }

    /// The lowest LSN that a grant or fetch still waits for a segment of, as a hint for preparation.
    pub(crate) fn has_pending(&self) -> bool {
        !self.grants.is_empty() || !self.fetches.is_empty()
    }

    /// The segments that a range touches, first and last.
    pub(crate) fn segments_of(&self, range: LsnRange) -> (u64, u64) {
        let first = self.geometry.segment_of(range.start);
        // An end at the first record of a segment touches nothing of it.
        let end = if range.end > range.start && self.geometry.is_first_record(range.end) {
            Lsn(self.geometry.base(self.geometry.segment_of(range.end)).0 - 1)
        } else {
            Lsn(range.end.0.saturating_sub(1).max(range.start.0))
        };
        (first, self.geometry.segment_of(end))
    }
}
