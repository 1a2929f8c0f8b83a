//! A primary's clients, all on one thread: what has arrived is appended, then committed by one future, then answered.
//!
//! This is how a server that embeds the log may serve many connections; the log's commits need no thread for each of them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use windlass::{Commit, Level, Log};

use crate::error::{BenchError, During};
use crate::group::RECORD_BYTES;
use crate::group::member::soon;

/// What the listener and the commits are known by; a connection by its place.
const LISTENER: u64 = u64::MAX;
const COMMITS: u64 = u64::MAX - 1;
/// Events taken at once.
const EVENTS: usize = 128;

struct Connection {
    stream: TcpStream,
    record: [u8; RECORD_BYTES],
    filled: usize,
}

/// A commit under way, and whom to answer then.
struct Round {
    commit: Pin<Box<Commit>>,
    connections: Vec<usize>,
}

/// Ends the wait for events when a commit may be done.
struct Ring(OwnedFd);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        // It fails only when the counter is full, and then the wait ends anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

pub(super) struct Server {
    pub(super) listener: TcpListener,
    log: Log,
    level: Level,
    events: OwnedFd,
    ring: Arc<Ring>,
    connections: Vec<Option<Connection>>,
    rounds: VecDeque<Round>,
}

impl Server {
    pub(super) fn new(log: Log, level: Level) -> Result<Server, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0").during("listening for clients")?;
        listener.set_nonblocking(true)?;
        let events = epoll::create(CreateFlags::CLOEXEC).during("epoll")?;
        let ring =
            Arc::new(Ring(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).during("eventfd")?));
        epoll::add(&events, &listener, EventData::new_u64(LISTENER), EventFlags::IN).during("epoll")?;
        epoll::add(&events, &ring.0, EventData::new_u64(COMMITS), EventFlags::IN).during("epoll")?;
        Ok(Server { listener, log, level, events, ring, connections: Vec::new(), rounds: VecDeque::new() })
    }

    /// Serves for as long as this process lives. A client that goes has had its answers.
    pub(super) fn run(mut self) -> Result<(), BenchError> {
        let waker = Waker::from(Arc::clone(&self.ring));
        let mut context = Context::from_waker(&waker);
        let mut found = Vec::with_capacity(EVENTS);
        loop {
            found.clear();
            match epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut found), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(std::io::Error::from(errno)).during("waiting for clients"),
            }
            let (mut appended, mut connections) = (None, Vec::new());
            for event in &found {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    COMMITS => {
                        // Empty when an earlier look has taken it.
                        let _ = rustix::io::read(&self.ring.0, &mut [0_u8; 8]);
                    }
                    at => {
                        let at = usize::try_from(at).expect("a place");
                        if let Some(end) = self.take(at)? {
                            appended = Some(end);
                            connections.push(at);
                        }
                    }
                }
            }
            if let Some(end) = appended {
                // The last one's end is the highest: one thread appends.
                let commit = Box::pin(self.log.commit(end, self.level));
                self.rounds.push_back(Round { commit, connections });
            }
            self.answer(&mut context, appended.is_some())?;
        }
    }

    fn accept(&mut self) -> Result<(), BenchError> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).during("taking a client's connection"),
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let at = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        epoll::add(&self.events, &stream, EventData::new_u64(at as u64), EventFlags::IN).during("epoll")?;
        let connection = Some(Connection { stream, record: [0; RECORD_BYTES], filled: 0 });
        if at == self.connections.len() {
            self.connections.push(connection);
        } else {
            self.connections[at] = connection;
        }
        Ok(())
    }

    /// Reads what a client has sent and appends it if it is whole. A client waits for its answer before it sends the next.
    fn take(&mut self, at: usize) -> Result<Option<windlass::Lsn>, BenchError> {
        let Some(Some(connection)) = self.connections.get_mut(at) else { return Ok(None) };
        match connection.stream.read(&mut connection.record[connection.filled..]) {
            Ok(count) if count > 0 => connection.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            // It closes itself as it is dropped.
            Ok(_) | Err(_) => {
                self.connections[at] = None;
                return Ok(None);
            }
        }
        if connection.filled < RECORD_BYTES {
            return Ok(None);
        }
        connection.filled = 0;
        let appended = match self.log.append(&connection.record) {
            Ok(appended) => appended,
            Err(_) => self.log.append_wait_blocking(&connection.record, soon()).during("appending")?,
        };
        Ok(Some(appended.end))
    }

    /// Answers whose commits are done. A new one is asked for its answer once, so that it is worked on.
    fn answer(&mut self, context: &mut Context<'_>, has_new: bool) -> Result<(), BenchError> {
        if has_new && self.rounds.len() > 1 {
            let newest = self.rounds.back_mut().expect("just made");
            // It can't be done before those in front of it; asked again then, it says so again.
            let _ = newest.commit.as_mut().poll(context);
        }
        while let Some(round) = self.rounds.front_mut() {
            let Poll::Ready(committed) = round.commit.as_mut().poll(context) else { return Ok(()) };
            let _committed = committed.during("committing")?;
            for at in &round.connections {
                if let Some(Some(connection)) = self.connections.get_mut(*at) {
                    // A client that is gone waits for nothing.
                    let _ = connection.stream.write_all(&[1; 8]);
                }
            }
            self.rounds.pop_front();
        }
        Ok(())
    }
}
