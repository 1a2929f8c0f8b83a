//! The handle of a connection: checks what is posted, and hands it to the requester.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use windlass_fabric::{
    Access, BindError, BindProblem, Completion, ConnectError, Connection, ConnectionId, ConnectionState,
    Counters, ErrorCause, InvalidateError, Local, Opcode, Operation, Outstanding, PostError, PostProblem,
    Receive, Remote, RemoteKey, RemoteRange, Request, Source, Status, Transfer, Window,
};

use crate::dial::Dial;
use crate::domain::{TcpRegion, TcpWindow, lock};
use crate::endpoint::{ENDPOINT_BYTES, Endpoint};
use crate::frame::{MESSAGE_BYTES_MAX, RequestKind};
use crate::link::{Grant, Link, PostedReceive, Target};
use crate::listener::Acceptor;
use crate::queue::Ready;
use crate::requester::{Posting, Requester};

/// A connection of a [`TcpFabric`](crate::TcpFabric).
#[derive(Debug)]
pub struct TcpConnection {
    pub(crate) link: Arc<Link>,
    endpoint: [u8; ENDPOINT_BYTES],
    counters: Counters,
    /// Keeps the acceptor at work until the last connection is gone.
    _acceptor: Arc<Acceptor>,
}

impl TcpConnection {
    pub(crate) fn new(link: Arc<Link>, endpoint: &Endpoint, acceptor: Arc<Acceptor>) -> Self {
        Self { link, endpoint: endpoint.encode(), counters: Counters::default(), _acceptor: acceptor }
    }

    fn post_one(
        &self,
        requester: &mut Requester,
        request: &Request<'_, TcpRegion>,
    ) -> Result<(), PostProblem> {
        let Request { id, operation, signalled } = *request;
        let blank = Posting::blank(id, signalled);
        let placed = |to: Remote| (to.address, to.key.0);
        let posting = match operation {
            Operation::Write { source, to } => {
                let (address, key) = placed(to);
                Posting { address, key, ..self.with_payload(blank, source)? }
            }
            Operation::WriteImmediate { source, to, immediate } => {
                let (address, key) = placed(to);
                let kind = RequestKind::WriteImmediate;
                Posting { kind, address, key, immediate, ..self.with_payload(blank, source)? }
            }
            Operation::Read { into, from } => {
                let (address, key) = placed(from);
                let into = checked(&into, Access::LOCAL_WRITE)?;
                let (opcode, kind, bytes) = (Opcode::Read, RequestKind::Read, into.bytes);
                Posting { opcode, kind, address, key, bytes, into: Some(into), ..blank }
            }
            Operation::Send { source, immediate: None } => {
                let (opcode, kind) = (Opcode::Send, RequestKind::Send);
                Posting { opcode, kind, ..self.with_payload(blank, source)? }
            }
            Operation::Send { source, immediate: Some(immediate) } => {
                let (opcode, kind) = (Opcode::Send, RequestKind::SendImmediate);
                Posting { opcode, kind, immediate, ..self.with_payload(blank, source)? }
            }
        };
        requester.push(posting);
        self.link.sends_used.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn with_payload<'a>(
        &self,
        posting: Posting<'a>,
        source: Source<'a, TcpRegion>,
    ) -> Result<Posting<'a>, PostProblem> {
        match source {
            Source::Region(local) => {
                let target = checked(&local, Access::NONE)?;
                let bytes = target.bytes;
                let region = (bytes > 0).then_some(target);
                Ok(Posting { bytes, region, ..posting })
            }
            Source::Inline(inline) => {
                let inline_bytes = self.link.options.inline_bytes;
                let bytes = u32::try_from(inline.len()).unwrap_or(u32::MAX);
                if bytes > inline_bytes {
                    return Err(PostProblem::InlineTooLong { bytes: inline.len(), inline_bytes });
                }
                Ok(Posting { bytes, inline, ..posting })
            }
        }
    }

    /// Whether a request can be posted, and there are slots for `asked`.
    fn check_send(&self, requester: &Requester, asked: usize) -> Result<(), PostProblem> {
        let state = requester.state;
        if state != ConnectionState::Ready {
            return Err(PostProblem::State { state });
        }
        room(asked, self.link.options.send_depth, self.link.sends_used.load(Ordering::Relaxed))
    }

    /// Posts a request that this end carries out itself: done already, it completes after all before it.
    fn post_local(&self, requester: &mut Requester, id: u64, opcode: Opcode) {
        let link = &self.link;
        link.sends_used.fetch_add(1, Ordering::Relaxed);
        if requester.is_idle() {
            let completion = Completion {
                id,
                connection: link.id,
                opcode,
                status: Status::Success,
                bytes: 0,
                immediate: None,
            };
            link.queue.push(Ready { completion, slots: 1 });
            link.queue.changed();
            return;
        }
        requester.push(Posting { opcode, kind: RequestKind::Barrier, ..Posting::blank(id, true) });
        requester.flush(link);
    }

    fn end(&mut self) {
        self.close();
        let link = &self.link;
        link.shut_incoming(true);
        link.join_agent();
        lock(&link.domain.links).remove(&link.token);
        link.queue.remove(link.id);
        link.queue.release(link.options.send_depth + link.options.receive_depth);
    }
}

/// Checks that there are `asked` slots.
fn room(asked: usize, depth: u32, used: u32) -> Result<(), PostProblem> {
    let free = depth.saturating_sub(used);
    let fits = u32::try_from(asked).is_ok_and(|asked| asked <= free);
    if fits { Ok(()) } else { Err(PostProblem::QueueFull { asked, free, depth }) }
}

/// Checks a stretch of a region.
fn checked(local: &Local<'_, TcpRegion>, access: Access) -> Result<Target, PostProblem> {
    let region = &local.region.inner;
    let end = local.offset.checked_add(u64::from(local.bytes));
    if end.is_none_or(|end| end > region.bytes) {
        return Err(PostProblem::OutOfRegion {
            offset: local.offset,
            bytes: local.bytes,
            region_bytes: region.bytes,
        });
    }
    if local.bytes > MESSAGE_BYTES_MAX {
        return Err(PostProblem::MessageTooLong { bytes: local.bytes, bytes_max: MESSAGE_BYTES_MAX });
    }
    if !region.access.contains(access) {
        return Err(PostProblem::RegionAccess);
    }
    Ok(Target { region: Arc::clone(region), offset: local.offset, bytes: local.bytes })
}

impl Connection for TcpConnection {
    type Region = TcpRegion;
    type Window = TcpWindow;

    fn id(&self) -> ConnectionId {
        self.link.id
    }

    fn endpoint(&self) -> &[u8] {
        &self.endpoint
    }

    fn connect(&mut self, peer: &[u8]) -> Result<(), ConnectError> {
        let state = self.state();
        if state != ConnectionState::Initial {
            return Err(ConnectError::State { state });
        }
        let peer = Endpoint::parse(peer).map_err(|what| ConnectError::Endpoint { what })?;
        if peer.token == self.link.token {
            return Err(ConnectError::Endpoint { what: "it is this end's own" });
        }
        let dial = Dial::start(peer, self.link.token)
            .map_err(|source| ConnectError::Os { call: "connect", source })?;
        let until = Instant::now() + self.link.domain.options.connect_timeout;
        lock(&self.link.requester).connect(dial, until);
        self.link.expect(peer.token);
        Ok(())
    }

    fn state(&self) -> ConnectionState {
        lock(&self.link.requester).state
    }

    fn outstanding(&self) -> Outstanding {
        Outstanding {
            sends: self.link.sends_used.load(Ordering::Relaxed),
            receives: self.link.receives_used.load(Ordering::Relaxed),
        }
    }

    fn transfer(&self) -> Transfer {
        Transfer::Any
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn post(&mut self, chain: &[Request<'_, TcpRegion>]) -> Result<(), PostError> {
        if chain.is_empty() {
            return Ok(());
        }
        let mut requester = lock(&self.link.requester);
        self.check_send(&requester, chain.len()).map_err(|problem| PostError { posted: 0, problem })?;
        let mut result = Ok(());
        for (posted, request) in chain.iter().enumerate() {
            if let Err(problem) = self.post_one(&mut requester, request) {
                result = Err(PostError { posted, problem });
                break;
            }
        }
        requester.flush(&self.link);
        drop(requester);
        let posted = result.as_ref().map_or_else(|error: &PostError| error.posted, |()| chain.len());
        self.counters.count(&chain[..posted]);
        // No device: what is not inline is copied too, into the socket.
        let sources = chain[..posted].iter().filter_map(|request| request.operation.source());
        self.counters.copied_bytes += sources
            .map(|source| if matches!(source, Source::Region(_)) { source.bytes() } else { 0 })
            .sum::<u64>();
        result
    }

    fn post_receives(&mut self, receives: &[Receive<'_, TcpRegion>]) -> Result<(), PostError> {
        let state = self.state();
        if matches!(state, ConnectionState::Error(_)) {
            return Err(PostError { posted: 0, problem: PostProblem::State { state } });
        }
        let used = self.link.receives_used.load(Ordering::Relaxed);
        room(receives.len(), self.link.options.receive_depth, used)
            .map_err(|problem| PostError { posted: 0, problem })?;
        for (posted, receive) in receives.iter().enumerate() {
            let into = receive.into.as_ref().map(|into| checked(into, Access::LOCAL_WRITE)).transpose();
            let into = into.map_err(|problem| PostError { posted, problem })?;
            let added = self.link.add_receives(std::iter::once(PostedReceive { id: receive.id, into }));
            if !added {
                let state = self.state();
                return Err(PostError { posted, problem: PostProblem::State { state } });
            }
        }
        Ok(())
    }

    fn bind(
        &mut self,
        id: u64,
        window: &mut TcpWindow,
        region: &TcpRegion,
        range: Range<u64>,
        access: Access,
    ) -> Result<RemoteRange, BindError> {
        if window.is_bound() {
            return Err(BindProblem::StillBound.into());
        }
        if window.binds_left() == 0 {
            return Err(BindProblem::KeysExhausted.into());
        }
        let inner = &region.inner;
        if range.start >= range.end || range.end > inner.bytes {
            return Err(BindProblem::Range {
                start: range.start,
                end: range.end,
                region_bytes: inner.bytes,
                window_bytes_max: u64::MAX,
            }
            .into());
        }
        let writes = access.contains(Access::REMOTE_WRITE);
        let allowed = inner.access.contains(Access::WINDOW_BIND)
            && (!writes || inner.access.contains(Access::LOCAL_WRITE));
        if !allowed {
            return Err(BindProblem::RegionAccess.into());
        }
        let mut requester = lock(&self.link.requester);
        self.check_send(&requester, 1).map_err(BindProblem::Post)?;
        let key = window.next_key();
        window.bound = Some(Arc::downgrade(&self.link));
        self.counters.count_one();
        self.link.grant(Grant { key, region: Arc::clone(inner), start: range.start, end: range.end, access });
        self.post_local(&mut requester, id, Opcode::Bind);
        Ok(RemoteRange { address: range.start, bytes: range.end - range.start, key: RemoteKey(key) })
    }

    fn invalidate(&mut self, id: u64, window: &mut TcpWindow) -> Result<(), InvalidateError> {
        let Some(bound) = &window.bound else { return Err(InvalidateError::NotBound) };
        if !std::ptr::eq(bound.as_ptr(), Arc::as_ptr(&self.link)) {
            return Err(InvalidateError::OtherConnection);
        }
        let mut requester = lock(&self.link.requester);
        self.check_send(&requester, 1).map_err(InvalidateError::Post)?;
        // Waits for the piece that is landing, if there is one; what is left of its message is refused.
        self.counters.count_one();
        self.link.withdraw(window.key());
        window.bound = None;
        self.post_local(&mut requester, id, Opcode::Invalidate);
        Ok(())
    }

    fn close(&mut self) {
        let mut requester = lock(&self.link.requester);
        requester.fail(&self.link, ErrorCause::Closed, None);
    }

    fn destroy(self) {
        drop(self);
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use windlass_fabric::{ConnectionOptions, Fabric};

    use crate::agent::LOOK;
    use crate::auth::Secret;
    use crate::domain::lock;
    use crate::{Options, TcpFabric};

    /// The owner of the queue finds the lent socket in the hands of the agent's thread, which looks at it and leaves it lent: it sleeps without that socket.
    #[test]
    fn a_sleep_that_can_not_hear_a_lent_socket_is_a_short_one() {
        let options = Options::new(Secret::new(&[1; 32]).unwrap(), [7; 16]);
        let fabric = TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!())).unwrap();
        let queue = fabric.completion_queue(8).unwrap();
        let depths = ConnectionOptions { send_depth: 4, receive_depth: 4, inline_bytes: 0 };
        let connection = fabric.connection(&queue, &depths).unwrap();
        let link = &connection.link;
        link.lent.store(true, Ordering::Release);
        let looking = lock(&link.serving);
        assert_eq!(link.interest(&mut Vec::new()), LOOK);
        drop(looking);
        assert_eq!(link.interest(&mut Vec::new()), Duration::MAX);
    }
}
