//! Completion queues: where results are collected, and how a thread sleeps until there are some.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use windlass_fabric::{Completion, CompletionQueue, ConnectionId, PollError, Wake, Woken};

use crate::domain::lock;
use crate::link::Link;
use crate::signal::{CHANGED, Signal, WOKEN};
use crate::spin::Spin;

/// A completion that waits to be polled, and how many slots of its connection it gives back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) completion: Completion,
    pub(crate) slots: u32,
}

#[derive(Debug)]
pub(crate) struct QueueShared {
    ready: Mutex<VecDeque<Ready>>,
    /// Length of `ready`, to look at without the lock.
    count: AtomicUsize,
    links: Mutex<Vec<Arc<Link>>>,
    capacity: u32,
    reserved: AtomicU32,
    /// How often the owner has looked, and whether it sleeps here: agents lend their sockets to an owner that comes by.
    visits: AtomicU64,
    waited_on: AtomicBool,
    signal: Signal,
}

impl QueueShared {
    pub(crate) fn new(capacity: u32) -> io::Result<Self> {
        let room = usize::try_from(capacity).map_err(io::Error::other)?;
        Ok(Self {
            ready: Mutex::new(VecDeque::with_capacity(room)),
            count: AtomicUsize::new(0),
            links: Mutex::default(),
            capacity,
            reserved: AtomicU32::new(0),
            visits: AtomicU64::new(0),
            waited_on: AtomicBool::new(false),
            signal: Signal::new()?,
        })
    }

    /// Takes room for a connection; otherwise says how much is left.
    pub(crate) fn reserve(&self, needed: u32) -> Result<(), u32> {
        let fits = |reserved: u32| reserved.checked_add(needed).filter(|sum| *sum <= self.capacity);
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(|_| ())
            .map_err(|reserved| self.capacity - reserved)
    }

    pub(crate) fn release(&self, reserved: u32) {
        self.reserved.fetch_sub(reserved, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, link: Arc<Link>) {
        lock(&self.links).push(link);
    }

    /// Forgets a connection and its completions.
    pub(crate) fn remove(&self, id: ConnectionId) {
        lock(&self.links).retain(|link| link.id != id);
        let mut ready = lock(&self.ready);
        ready.retain(|ready| ready.completion.connection != id);
        self.count.store(ready.len(), Ordering::Release);
    }

    /// Adds a completion. There is room: every connection's slots were reserved. The one who adds it from another thread calls
    /// [`changed`](Self::changed) afterwards.
    pub(crate) fn push(&self, completion: Ready) {
        let mut ready = lock(&self.ready);
        ready.push_back(completion);
        self.count.store(ready.len(), Ordering::Release);
    }

    /// Tells a sleeping thread to look.
    pub(crate) fn changed(&self) {
        self.signal.raise(CHANGED);
    }

    /// A number that changes whenever the owner looks.
    pub(crate) fn visits(&self) -> u64 {
        self.visits.load(Ordering::Relaxed)
    }

    /// Whether the owner sleeps here, and so wakes for every socket.
    pub(crate) fn is_waited_on(&self) -> bool {
        self.waited_on.load(Ordering::Relaxed)
    }

    fn is_ready(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Moves all connections on; whether something came of it.
    fn progress(&self) -> bool {
        self.visits.fetch_add(1, Ordering::Relaxed);
        let mut changed = false;
        for link in &*lock(&self.links) {
            changed |= link.progress();
            changed |= link.serve_lent();
        }
        changed
    }
}

/// Up to so many sockets a sleep needs no allocation.
const SOCKETS_INLINE: usize = 16;

/// Ends a wait on a [`TcpCompletionQueue`].
#[derive(Clone, Debug)]
pub struct TcpWaker(Arc<QueueShared>);

impl Wake for TcpWaker {
    fn wake(&self) {
        self.0.signal.raise(WOKEN);
    }
}

/// A socket that ends a sleep.
#[derive(Debug)]
pub(crate) struct Interest {
    pub(crate) socket: Arc<TcpStream>,
    pub(crate) flags: PollFlags,
    /// Whose answers come by it.
    pub(crate) answers_of: Option<ConnectionId>,
}

/// A completion queue of a [`TcpFabric`](crate::TcpFabric). Polling it is what sends, reads answers and connects, on the caller's thread.
#[derive(Debug)]
pub struct TcpCompletionQueue {
    pub(crate) shared: Arc<QueueShared>,
    spin: Spin,
    sockets: Vec<Interest>,
}

impl TcpCompletionQueue {
    pub(crate) fn new(shared: QueueShared, spin: Duration) -> Self {
        Self { shared: Arc::new(shared), spin: Spin::new(spin), sockets: Vec::new() }
    }

    /// Sleeps until a socket, a flag or the time ends it.
    fn sleep(&mut self, timeout: Duration) -> Result<(), PollError> {
        let mut timeout = timeout;
        self.sockets.clear();
        for link in &*lock(&self.shared.links) {
            // A clock of the connection's own may end sooner.
            timeout = timeout.min(link.interest(&mut self.sockets));
        }
        let signal = &self.shared.signal;
        let entry = |at: usize| match at.checked_sub(1).and_then(|at| self.sockets.get(at)) {
            Some(interest) => PollFd::new(&*interest.socket, interest.flags),
            None => PollFd::new(signal.event(), PollFlags::IN),
        };
        let count = self.sockets.len() + 1;
        self.shared.waited_on.store(true, Ordering::Relaxed);
        let links = &self.shared.links;
        // Whoever looks next looks where something came.
        let look = |polled: &[PollFd<'_>]| {
            let came = |link: &Link| {
                let entries = self.sockets.iter().zip(&polled[1..]);
                entries
                    .filter(|(of, _)| of.answers_of == Some(link.id))
                    .any(|(_, fd)| !fd.revents().is_empty())
            };
            for link in lock(links).iter().filter(|link| came(link)) {
                link.look.store(true, Ordering::Relaxed);
            }
        };
        let slept = if count <= SOCKETS_INLINE {
            let mut polled: [PollFd<'_>; SOCKETS_INLINE] = std::array::from_fn(entry);
            signal.sleep(&mut polled[..count], timeout).map(|()| look(&polled[..count]))
        } else {
            let mut polled: Vec<_> = (0..count).map(entry).collect();
            signal.sleep(&mut polled, timeout).map(|()| look(&polled))
        };
        self.shared.waited_on.store(false, Ordering::Relaxed);
        self.sockets.clear();
        slept.map_err(|errno| PollError::Device { call: "poll", source: errno.into() })
    }
}

impl CompletionQueue for TcpCompletionQueue {
    type Waker = TcpWaker;

    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        // What has completed is handed out first; each look costs system calls.
        if into.is_empty() || !self.shared.is_ready() {
            self.shared.progress();
        }
        if into.is_empty() || !self.shared.is_ready() {
            return Ok(0);
        }
        let links = lock(&self.shared.links);
        let mut ready = lock(&self.shared.ready);
        let count = ready.len().min(into.len());
        for (to, from) in into.iter_mut().zip(ready.drain(..count)) {
            *to = from.completion;
            if let Some(link) = links.iter().find(|link| link.id == from.completion.connection) {
                let used =
                    if from.completion.opcode.is_receive() { &link.receives_used } else { &link.sends_used };
                used.fetch_sub(from.slots, Ordering::Relaxed);
            }
        }
        self.shared.count.store(ready.len(), Ordering::Release);
        Ok(count)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Woken, PollError> {
        let start = Instant::now();
        let shared = &self.shared;
        let spun = if self.spin.is_worth_it() {
            self.spin.turn(start, || {
                if let Some(woken) = shared.signal.take() {
                    return Some(woken);
                }
                if shared.progress() || shared.is_ready() {
                    return Some(Woken::Ready);
                }
                (start.elapsed() >= timeout).then_some(Woken::Timeout)
            })
        } else {
            // What a look would find ends the sleep at once.
            shared.signal.take().or_else(|| shared.is_ready().then_some(Woken::Ready))
        };
        let woken = match spun {
            Some(woken) => woken,
            None => loop {
                let left = timeout.saturating_sub(start.elapsed());
                self.sleep(left)?;
                if let Some(woken) = self.shared.signal.take() {
                    break woken;
                }
                if self.shared.progress() || self.shared.is_ready() {
                    break Woken::Ready;
                }
                if start.elapsed() >= timeout {
                    break Woken::Timeout;
                }
            },
        };
        self.spin.learn(start.elapsed());
        Ok(woken)
    }

    fn waker(&self) -> TcpWaker {
        TcpWaker(Arc::clone(&self.shared))
    }
}
