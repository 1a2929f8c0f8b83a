//! The control plane over TCP: a thread with a current-thread runtime, on which everything here runs.
//!
//! For each pair the member with the higher number dials and owns reconnecting (back-off with jitter, capped); the other one
//! listens. A connection that says nothing for [`SILENCE`] is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slog::{Logger, info, warn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use windlass_engine::{Identity, MemberEntry};
use windlass_log::{LogId, MemberId};
use windlass_tcp::Ration;

use super::auth::{self, End, Kind, OPENING_BYTES, OpeningError, PROOF_BYTES, Secret};
use super::hello::{HELLO_BYTES, Hello};
use super::peers::{Connection, Peers};
use super::{ControlEvent, ControlPlane, FRAME_BYTES_MAX, Frame, Member, Refused, Terms};

/// The whole handshake takes no longer.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// A connection that has said nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(3);
/// An idle connection says something this often.
const PING: Duration = Duration::from_millis(700);
/// The first pause before dialling again; it doubles up to the last.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_LAST: Duration = Duration::from_millis(500);
/// Frames to one peer that wait to be written; more are dropped.
const OUTGOING_MAX: usize = 256;
/// Events that wait for the driver; beyond that reading stops.
const EVENTS_MAX: usize = 1024;
/// Connections in the middle of their handshake; beyond that the oldest makes room, so that silent strangers keep no member out.
const HANDSHAKES_MAX: usize = 32;
/// The same refusal from the same place is one log line in this time.
const REPEAT: Duration = Duration::from_secs(30);
/// The byte with which a listener accepts a dialler's hello.
const WELCOME: u8 = 1;
/// The byte with which it tells one whose number is none of its group's.
const OUTSIDE: u8 = 2;
/// How long no member with a higher number has dialled this one before it asks whether it is still a member.
const ASK: Duration = Duration::from_secs(5);

/// What a control plane is made with.
#[derive(Debug)]
pub struct ControlOptions {
    /// This member.
    pub me: MemberId,
    /// All members, this one may be among them.
    pub members: Vec<Member>,
    /// The group's log.
    pub log_id: LogId,
    /// This process.
    pub identity: Identity,
    /// What all members must have alike.
    pub terms: Terms,
    /// The group's secret.
    pub secret: Secret,
    /// Where to listen, bound already.
    pub listener: TcpListener,
    /// For the few lines.
    pub logger: Logger,
}

/// The control plane could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the control plane can't start ({step}): {source}")]
pub struct ControlError {
    /// What was being done.
    pub step: &'static str,
    /// The system's answer.
    pub source: std::io::Error,
}

/// The control plane over TCP.
#[derive(Debug)]
pub struct TcpControl {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TcpControl {
    /// Starts the thread. `wake` is called from it whenever there is an event to poll.
    ///
    /// # Errors
    ///
    /// [`ControlError`]: the system gives no thread, no runtime or no socket.
    pub fn start(
        options: ControlOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<TcpControl, ControlError> {
        let at = |step| move |source| ControlError { step, source };
        options.listener.set_nonblocking(true).map_err(at("preparing the listener"))?;
        let address = options.listener.local_addr().map_err(at("asking for the listener's address"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(at("making the runtime"))?;
        let shared = Arc::new(Shared {
            me: options.me,
            given: options.members.clone(),
            log_id: options.log_id,
            identity: options.identity,
            terms: options.terms,
            secret: options.secret,
            logger: options.logger,
            wake: Box::new(wake),
            is_news: AtomicBool::new(false),
            serve: OnceLock::new(),
            state: Mutex::new(State {
                peers: Peers::new(),
                events: VecDeque::new(),
                said: BTreeMap::new(),
                ration: Ration::default(),
                members: Vec::new(),
                configuration: 0,
                hint: Hint::default(),
                dialled: Vec::new(),
                outside: BTreeSet::new(),
            }),
        });
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("windlass-ctl-{}", options.me.0))
            .spawn(move || runtime.block_on(run(of_thread, options.listener, stopped)))
            .map_err(at("starting its thread"))?;
        let control = TcpControl { shared, address, runtime: handle, stop: Some(stop), thread: Some(thread) };
        control.shared.keep(&mut control.shared.state(), &control.runtime, 0, options.members);
        control.runtime.spawn(ask(Arc::clone(&control.shared)));
        Ok(control)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections of their own between members, beside the frames.
    pub(crate) fn streams(&self) -> Streams {
        Streams { shared: Arc::clone(&self.shared), runtime: self.runtime.clone() }
    }
}

impl Drop for TcpControl {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook; there is nothing left to do about it.
            let _ = thread.join();
        }
    }
}

impl ControlPlane for TcpControl {
    fn poll(&mut self) -> Option<ControlEvent> {
        if !self.shared.is_news.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.shared.state();
        let event = state.events.pop_front();
        self.shared.is_news.store(!state.events.is_empty(), Ordering::Release);
        event
    }

    fn send(&mut self, peer: MemberId, frame: Frame) {
        let state = self.shared.state();
        if let Some((_, sender)) = state.peers.sender_of(peer) {
            // Full: the peer does not drain. The engine sends again what matters.
            let _ = sender.try_send(frame.encode());
        }
    }

    fn set_members(&mut self, configuration: u64, members: &[MemberEntry]) {
        let given = &self.shared.given;
        let address_of = |entry: &MemberEntry| {
            let given = given.iter().find(|member| member.id == entry.id).map(|member| member.address);
            given.or(entry.address).map(|address| Member { id: entry.id, address })
        };
        let members = members.iter().filter_map(address_of).collect();
        let mut state = self.shared.state();
        self.shared.keep(&mut state, &self.runtime, configuration, members);
        let told = self.shared.hint(&state);
        for sender in state.peers.senders() {
            // Full: it does not drain, and is told again when it connects anew.
            let _ = told.iter().try_for_each(|frame| sender.try_send(frame.clone()));
        }
    }
}

/// What serves a stream of a member, to its end.
type Serve = Box<dyn Fn(TcpStream, MemberId) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Connections of their own between two members, made and proved like the control connection, for what takes long: one for each checkpoint. They end
/// with the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    shared: Arc<Shared>,
    runtime: Handle,
}

impl Streams {
    /// Where its tasks run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// What serves those that members dial here; until it is set they are refused.
    pub(crate) fn serve_by(&self, serve: Serve) {
        // Set once, by the node.
        let _ = self.shared.serve.set(serve);
    }

    /// The members that are connected.
    pub(crate) fn connected(&self) -> Vec<MemberId> {
        let state = self.shared.state();
        let ids = state.wanted().map(|member| member.id);
        ids.filter(|id| state.peers.sender_of(*id).is_some()).collect()
    }

    /// Whether that is all of them but this one.
    pub(crate) fn are_all_connected(&self) -> bool {
        let others = self.shared.state().wanted().filter(|member| member.id != self.shared.me).count();
        self.connected().len() >= others
    }

    /// Makes one to a member; `None` where that does not succeed, a line says why if anybody answered.
    pub(crate) async fn dial(&self, to: MemberId) -> Option<TcpStream> {
        let found = self.shared.state().wanted().find(|member| member.id == to);
        let member = found?;
        match connect(&self.shared, member, Kind::Stream).await {
            Ok((stream, _)) => Some(stream),
            Err(refused) => {
                if let Some(refused) = refused {
                    self.shared.refuse(member.address, refused);
                }
                None
            }
        }
    }
}

struct Shared {
    me: MemberId,
    /// Those that it was started with, whose addresses count.
    given: Vec<Member>,
    log_id: LogId,
    identity: Identity,
    terms: Terms,
    secret: Secret,
    logger: Logger,
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    /// Whether there are events, readable without the lock: the driver asks on each turn.
    is_news: AtomicBool,
    /// For streams.
    serve: OnceLock<Serve>,
}

struct State {
    peers: Peers<mpsc::Sender<Vec<u8>>>,
    events: VecDeque<ControlEvent>,
    /// When which refusal was logged last.
    said: BTreeMap<IpAddr, (Refused, Instant)>,
    ration: Ration,
    /// Those to keep a connection with: the members of this configuration, and, where peers have a newer one, of that.
    members: Vec<Member>,
    /// The number of the configuration; 0 also where none is known.
    configuration: u64,
    hint: Hint,
    /// Those that a task of this member's dials or serves: one for each. It ends when it finds its member no longer wanted, which is after its
    /// connection.
    dialled: Vec<Member>,
    /// Those that don't have this member in their group, as they said last.
    outside: BTreeSet<MemberId>,
}

/// The newest configuration that a peer has told of: whom to dial besides those of the own one while that is older. A member that was away knows no more of
/// its group than its log does, and who could tell it the rest may be one that it does not know.
#[derive(Debug, Default)]
struct Hint {
    configuration: u64,
    members: Vec<Member>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}

impl State {
    /// Whom to dial, or to be dialled by: each once.
    fn wanted(&self) -> impl Iterator<Item = Member> + '_ {
        let is_known = |member: &&Member| !self.members.iter().any(|known| known.id == member.id);
        self.members.iter().chain(self.hint.members.iter().filter(is_known)).copied()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is whole before anything in it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: &mut State, event: ControlEvent) {
        state.events.push_back(event);
        self.is_news.store(true, Ordering::Release);
    }

    /// Keeps a connection with these: this member dials those with a lower number.
    fn keep(self: &Arc<Self>, state: &mut State, runtime: &Handle, configuration: u64, members: Vec<Member>) {
        (state.configuration, state.members) = (configuration, members);
        if state.hint.configuration <= configuration {
            state.hint = Hint::default();
        }
        self.dial_all(state, runtime);
    }

    /// A peer tells of its configuration. To be called on the runtime.
    fn hinted(self: &Arc<Self>, configuration: u64, members: Vec<Member>) {
        let mut state = self.state();
        if configuration <= state.configuration.max(state.hint.configuration) {
            return;
        }
        let given = |member: &Member| self.given.iter().find(|given| given.id == member.id).copied();
        let members = members.into_iter().filter(|member| member.id != self.me);
        let members = members.map(|member| given(&member).unwrap_or(member)).collect();
        state.hint = Hint { configuration, members };
        self.dial_all(&mut state, &Handle::current());
    }

    fn dial_all(self: &Arc<Self>, state: &mut State, runtime: &Handle) {
        let wanted: Vec<Member> = state.wanted().filter(|member| member.id < self.me).collect();
        for member in wanted {
            // One that was left out and is here again may still be dialled from before: two at once would throw each other out for ever.
            if !state.dialled.contains(&member) {
                state.dialled.push(member);
                runtime.spawn(dial(Arc::clone(self), member));
            }
        }
    }

    /// What to tell peers of the own configuration. None of the one that the group began with: all have that.
    fn hint(&self, state: &State) -> Option<Vec<u8>> {
        let configuration = state.configuration;
        let members = state.members.clone();
        (configuration > 0).then(|| Frame::Members { configuration, members }.encode())
    }

    /// Whether a member of this number may connect: it is known, or it was added while this one was away, with a number above all before it.
    fn is_member(&self, id: MemberId) -> bool {
        let state = self.state();
        let highest = state.members.iter().map(|member| member.id).max().unwrap_or(MemberId(0)).max(self.me);
        id > highest || state.wanted().any(|member| member.id == id)
    }

    /// Whether this member is still to be dialled, at this address. If not, the task that asks is no longer counted as dialling it.
    fn is_wanted(&self, member: &Member) -> bool {
        let mut state = self.state();
        let is_wanted = state.wanted().any(|wanted| wanted == *member);
        if !is_wanted {
            state.dialled.retain(|dialled| dialled != member);
        }
        is_wanted
    }

    /// A member does not have this one in its group, or refuses it for another reason.
    fn refused_by(&self, member: Member, refused: Refused) {
        if let Refused::Outside { by } = refused {
            let mut state = self.state();
            if state.outside.insert(by) {
                self.tell(&mut state, ControlEvent::Outside { by });
                drop(state);
                (self.wake)();
            }
        }
        self.refuse(member.address, refused);
    }

    /// One line per refusal, as long as there are few; the same one from the same place not again for a while.
    fn refuse(&self, from: SocketAddr, refused: Refused) {
        let unsaid = {
            let mut state = self.state();
            let now = Instant::now();
            state.said.retain(|_, (_, when)| now.duration_since(*when) < REPEAT);
            match state.said.get(&from.ip()) {
                Some((before, _)) if *before == refused => return state.ration.leave_out(),
                Some(_) | None => {}
            }
            let Some(unsaid) = state.ration.take(now) else { return };
            if state.said.len() < HANDSHAKES_MAX {
                state.said.insert(from.ip(), (refused, now));
            }
            unsaid
        };
        let what = if matches!(refused, Refused::Outside { .. }) {
            "a control connection was refused"
        } else {
            "refused a control connection"
        };
        warn!(self.logger, "{}: {}", what, refused; "from" => from, "unsaid_before" => unsaid);
    }

    /// Takes a connection over; answers its name and what is to be written to it.
    fn admit(
        &self,
        peer: MemberId,
        identity: Identity,
    ) -> Result<(Connection, mpsc::Receiver<Vec<u8>>), Refused> {
        let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
        let mut state = self.state();
        // The first that it hears, since nothing else was sent on this connection: there is room.
        let told = self.hint(&state);
        let _ = told.into_iter().try_for_each(|frame| sender.try_send(frame));
        let connection = state.peers.admit(peer, identity, sender)?;
        state.outside.remove(&peer);
        self.tell(&mut state, ControlEvent::Up { peer, identity });
        drop(state);
        (self.wake)();
        Ok((connection, receiver))
    }

    /// A stream is served for the process that is connected as the member, and for no other.
    fn admit_stream(&self, peer: MemberId, identity: Identity) -> Result<&Serve, Refused> {
        if !self.state().peers.is_connected(peer, identity) {
            return Err(Refused::NotConnected { member: peer });
        }
        self.serve.get().ok_or(Refused::NotConnected { member: peer })
    }

    fn lost(&self, peer: MemberId, connection: Connection) {
        let mut state = self.state();
        if state.peers.remove(peer, connection) {
            self.tell(&mut state, ControlEvent::Down { peer });
            drop(state);
            info!(self.logger, "the connection with {} is lost", peer);
            (self.wake)();
        }
    }

    /// Hands a frame to the driver. `None`: this connection no longer speaks for the peer. `Some(false)`: no room, try again.
    fn deliver(&self, peer: MemberId, connection: Connection, frame: &mut Option<Frame>) -> Option<bool> {
        let mut state = self.state();
        if !state.peers.is_live(peer, connection) {
            return None;
        }
        if state.events.len() >= EVENTS_MAX {
            return Some(false);
        }
        if let Some(frame) = frame.take() {
            self.tell(&mut state, ControlEvent::Frame { peer, frame });
        }
        drop(state);
        (self.wake)();
        Some(true)
    }
}

async fn run(shared: Arc<Shared>, listener: TcpListener, stopped: oneshot::Receiver<()>) {
    tokio::spawn(listen(shared, listener));
    // Answers when the sender is dropped; the runtime then drops every task.
    let _ = stopped.await;
}

async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            warn!(shared.logger, "the control plane can't listen: {}", error);
            return;
        }
    };
    // Oldest first. The receiver of one that is through, either way, is gone.
    let mut greeted: VecDeque<oneshot::Sender<()>> = VecDeque::with_capacity(HANDSHAKES_MAX);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or the peer was gone already: go on, but not at full speed.
                warn!(shared.logger, "accepting a control connection failed: {}", error);
                tokio::time::sleep(BACKOFF_LAST).await;
                continue;
            }
        };
        greeted.retain(|handshake| !handshake.is_closed());
        if greeted.len() >= HANDSHAKES_MAX {
            // Dropping the sender tells it.
            drop(greeted.pop_front());
        }
        let (room, crowded) = oneshot::channel::<()>();
        greeted.push_back(room);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let greeting = tokio::select! {
                greeting = greet(&shared, stream, End::Listener, None) => greeting,
                _ = crowded => Err(Refused::Crowded),
            };
            let (mut stream, peer, kind) = match greeting {
                Ok(greeted) => greeted,
                Err(refused) => return shared.refuse(from, refused),
            };
            if kind == Kind::Stream {
                return match shared.admit_stream(peer.from, peer.identity) {
                    Ok(serve) => {
                        if stream.write_all(&[WELCOME]).await.is_ok() {
                            serve(stream, peer.from).await;
                        }
                    }
                    Err(refused) => shared.refuse(from, refused),
                };
            }
            match shared.admit(peer.from, peer.identity) {
                Ok((connection, outgoing)) => {
                    if stream.write_all(&[WELCOME]).await.is_ok() {
                        info!(shared.logger, "{} connected", peer.from; "from" => from);
                        serve(&shared, stream, peer.from, connection, outgoing, from).await;
                    }
                    shared.lost(peer.from, connection);
                }
                Err(refused) => shared.refuse(from, refused),
            }
        });
    }
}

async fn dial(shared: Arc<Shared>, member: Member) {
    let mut backoff = BACKOFF_FIRST;
    while shared.is_wanted(&member) {
        match connect(&shared, member, Kind::Control).await {
            Ok((stream, peer)) => match shared.admit(peer.from, peer.identity) {
                Ok((connection, outgoing)) => {
                    info!(shared.logger, "connected to {}", member.id; "at" => member.address);
                    backoff = BACKOFF_FIRST;
                    serve(&shared, stream, member.id, connection, outgoing, member.address).await;
                    shared.lost(member.id, connection);
                }
                Err(refused) => shared.refuse(member.address, refused),
            },
            Err(Some(refused)) => shared.refused_by(member, refused),
            Err(None) => {}
        }
        tokio::time::sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_LAST);
    }
}

/// Asks those that are to dial this member, and do not: who has left is dialled by nobody, and is to be told.
async fn ask(shared: Arc<Shared>) {
    let unheard = |shared: &Shared| {
        let state = shared.state();
        let is_unheard =
            |member: &&Member| member.id > shared.me && state.peers.sender_of(member.id).is_none();
        state.members.iter().filter(is_unheard).copied().collect::<Vec<_>>()
    };
    loop {
        let before = unheard(&shared);
        tokio::time::sleep(ASK).await;
        for member in unheard(&shared).into_iter().filter(|member| before.contains(member)) {
            // Otherwise it is away, or has this one as a member and will dial it; what else is wrong between them the one that dials says.
            if let Err(Some(refused @ Refused::Outside { .. })) = connect(&shared, member, Kind::Stream).await
            {
                shared.refused_by(member, refused);
            }
        }
    }
}

/// Between half of `pause` and all of it.
fn jittered(pause: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(0);
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Dials and shakes hands. `Err(None)`: nobody answers there.
async fn connect(shared: &Shared, member: Member, kind: Kind) -> Result<(TcpStream, Hello), Option<Refused>> {
    let connecting = timeout(HANDSHAKE, TcpStream::connect(member.address)).await;
    let Ok(Ok(stream)) = connecting else { return Err(None) };
    let (mut stream, peer, _) = greet(shared, stream, End::Dialler, Some((member.id, kind))).await?;
    let mut welcome = [0];
    match timeout(HANDSHAKE, stream.read_exact(&mut welcome)).await {
        Ok(Ok(_)) if welcome == [WELCOME] => Ok((stream, peer)),
        Ok(Ok(_)) if welcome == [OUTSIDE] => Err(Some(Refused::Outside { by: member.id })),
        Ok(Ok(_) | Err(_)) | Err(_) => Err(Some(Refused::Handshake)),
    }
}

/// The handshake, within its time.
async fn greet(
    shared: &Shared,
    stream: TcpStream,
    end: End,
    to: Option<(MemberId, Kind)>,
) -> Result<(TcpStream, Hello, Kind), Refused> {
    match timeout(HANDSHAKE, handshake(shared, stream, end, to)).await {
        Ok(greeted) => greeted,
        Err(_) => Err(Refused::Handshake),
    }
}

async fn handshake(
    shared: &Shared,
    mut stream: TcpStream,
    end: End,
    to: Option<(MemberId, Kind)>,
) -> Result<(TcpStream, Hello, Kind), Refused> {
    let lost = |_| Refused::Handshake;
    stream.set_nodelay(true).map_err(lost)?;
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Refused::Handshake)?;
    let own_kind = to.map_or(Kind::Control, |(_, kind)| kind);
    let ours = auth::opening(own_kind, nonce);
    stream.write_all(&ours).await.map_err(lost)?;
    let mut theirs = [0; OPENING_BYTES];
    stream.read_exact(&mut theirs).await.map_err(lost)?;
    let their_kind = auth::check_opening(&theirs).map_err(|error| match error {
        OpeningError::Magic => Refused::NotWindlass,
        OpeningError::Version { found } => Refused::WireVersion { expected: auth::WIRE_VERSION, found },
    })?;
    if end == End::Dialler && their_kind != Kind::Control {
        return Err(Refused::NotWindlass);
    }
    let (dialler, listener) = match end {
        End::Dialler => (&ours, &theirs),
        End::Listener => (&theirs, &ours),
    };
    // The dialler proves first, so that a listener answers nothing to who does not know the secret.
    if end == End::Dialler {
        stream.write_all(&auth::prove(&shared.secret, end, dialler, listener)).await.map_err(lost)?;
    }
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await.map_err(lost)?;
    if !auth::proves(&shared.secret, end.other(), dialler, listener, &proof) {
        return Err(Refused::Secret);
    }
    if end == End::Listener {
        stream.write_all(&auth::prove(&shared.secret, end, dialler, listener)).await.map_err(lost)?;
    }
    let (stream, peer) = exchange_hellos(shared, stream, to.map(|(to, _)| to)).await?;
    Ok((stream, peer, if end == End::Dialler { own_kind } else { their_kind }))
}

/// The dialler speaks first, since the listener does not know whom it hears.
async fn exchange_hellos(
    shared: &Shared,
    mut stream: TcpStream,
    to: Option<MemberId>,
) -> Result<(TcpStream, Hello), Refused> {
    let lost = |_| Refused::Handshake;
    let mine = |to| Hello::new(shared.log_id, shared.me, to, shared.identity, shared.terms);
    let mut bytes = [0; HELLO_BYTES];
    if let Some(to) = to {
        stream.write_all(&mine(to).encode()).await.map_err(lost)?;
    }
    stream.read_exact(&mut bytes).await.map_err(lost)?;
    let peer = Hello::decode(&bytes);
    if to.is_none() {
        // Also to one that will be refused: both sides then name the same reason in their logs.
        stream.write_all(&mine(peer.from).encode()).await.map_err(lost)?;
    }
    let checked = mine(to.unwrap_or(peer.from)).check(&peer, |member| shared.is_member(member));
    if to.is_none() && matches!(checked, Err(Refused::NotAMember { .. })) {
        stream.write_all(&[OUTSIDE]).await.map_err(lost)?;
    }
    checked?;
    match to {
        Some(to) if to != peer.from => Err(Refused::OtherMember { expected: to, found: peer.from }),
        Some(_) | None => Ok((stream, peer)),
    }
}

/// Moves frames both ways until the connection is lost or replaced.
async fn serve(
    shared: &Arc<Shared>,
    stream: TcpStream,
    peer: MemberId,
    connection: Connection,
    outgoing: mpsc::Receiver<Vec<u8>>,
    from: SocketAddr,
) {
    let (reading, writing) = stream.into_split();
    tokio::select! {
        refused = read(shared, reading, peer, connection) => {
            if let Some(refused) = refused {
                shared.refuse(from, refused);
            }
        }
        () = write(writing, outgoing) => {}
    }
}

async fn write(mut stream: tokio::net::tcp::OwnedWriteHalf, mut outgoing: mpsc::Receiver<Vec<u8>>) {
    let ping = Frame::Ping.encode();
    loop {
        let written = match timeout(PING, outgoing.recv()).await {
            Ok(Some(frame)) => stream.write_all(&frame).await,
            // Replaced by a newer connection.
            Ok(None) => return,
            Err(_) => stream.write_all(&ping).await,
        };
        if written.is_err() {
            return;
        }
    }
}

/// Reads frames. Answers why the peer was cut off, if it was.
async fn read(
    shared: &Arc<Shared>,
    stream: tokio::net::tcp::OwnedReadHalf,
    peer: MemberId,
    connection: Connection,
) -> Option<Refused> {
    let mut stream = tokio::io::BufReader::new(stream);
    let mut body = Vec::new();
    loop {
        let Ok(Ok(length)) = timeout(SILENCE, stream.read_u32_le()).await else { return None };
        match usize::try_from(length) {
            Ok(bytes) if bytes <= FRAME_BYTES_MAX => body.resize(bytes, 0),
            Ok(_) | Err(_) => return Some(Refused::FrameTooLong { bytes: length }),
        }
        let Ok(Ok(_)) = timeout(SILENCE, stream.read_exact(&mut body)).await else { return None };
        let mut frame = match Frame::decode(&body) {
            Ok(Frame::Ping) => continue,
            Ok(Frame::Members { configuration, members }) => {
                if shared.state().peers.is_live(peer, connection) {
                    shared.hinted(configuration, members);
                }
                continue;
            }
            Ok(frame) => Some(frame),
            Err(error) => return Some(Refused::Frame(error)),
        };
        loop {
            match shared.deliver(peer, connection, &mut frame) {
                Some(true) => break,
                Some(false) => tokio::time::sleep(Duration::from_millis(1)).await,
                None => return None,
            }
        }
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
