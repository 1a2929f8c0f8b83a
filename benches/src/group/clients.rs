//! Clients over TCP, the same for both groups: a process with many connections, each with one put under way. A put is a record of fixed
//! length, its answer 8 bytes. How they are served is each group's own affair: the raw quorum log's primary has a thread for each
//! connection, which is the least that works; the one of windlass serves all of them from one thread, which its commit futures are for.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use serde::{Deserialize, Serialize};

use crate::child;
use crate::durable::{Driven, drive};
use crate::error::{BenchError, During};
use crate::group::{Answer, RECORD_BYTES, Wanted};
use crate::measure::median_of;

/// The role of the process of clients.
pub(crate) const ROLE: &str = "clients";

#[derive(Serialize, Deserialize)]
pub(crate) struct Drive {
    pub(crate) address: SocketAddr,
    pub(crate) callers: usize,
    pub(crate) how_ms: u64,
}

/// What a primary offers to those who drive it.
pub(crate) trait Put: Send + Sync + 'static {
    /// Appends a record and returns once it has reached the level.
    fn put(&self, record: &[u8], wanted: Wanted) -> Result<(), BenchError>;
}

/// Puts from threads of this process.
pub(crate) fn drive_here(
    log: &impl Put,
    callers: usize,
    how_ms: u64,
    wanted: Wanted,
) -> Result<Answer, BenchError> {
    let record = [0xA5; RECORD_BYTES];
    let driven = drive(callers, Duration::from_millis(how_ms), &|| log.put(&record, wanted))?;
    Ok(Answer::Driven { rate: driven.rate, p50_us: driven.p50_us })
}

/// Takes connections from clients for as long as this process lives.
pub(crate) fn serve(log: Arc<impl Put>, wanted: Wanted) -> Result<Answer, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").during("listening for clients")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = log.clone();
            thread::spawn(move || {
                // A client that goes has had its answers; a put that fails ends its connection, which the client reports.
                let _ = serve_one(stream, &*log, wanted);
            });
        }
    });
    Ok(Answer::Address(address))
}

fn serve_one(mut stream: TcpStream, log: &impl Put, wanted: Wanted) -> Result<(), BenchError> {
    stream.set_nodelay(true)?;
    let mut record = [0; RECORD_BYTES];
    loop {
        stream.read_exact(&mut record)?;
        log.put(&record, wanted)?;
        stream.write_all(&[1; 8])?;
    }
}

/// The body of [`ROLE`].
pub(crate) fn role() -> Result<(), BenchError> {
    child::serve(|Drive { address, callers, how_ms }| {
        let mut clients = Clients::connect(address, callers)?;
        let driven = clients.drive(Duration::from_millis(how_ms))?;
        Ok(Answer::Driven { rate: driven.rate, p50_us: driven.p50_us })
    })
}

/// Connections that each have one put under way. One thread serves them all, so that the load takes as little as it can of the processors that
/// the groups share with it.
struct Clients {
    events: OwnedFd,
    clients: Vec<Client>,
}

struct Client {
    stream: TcpStream,
    answer: [u8; 8],
    filled: usize,
    since: Instant,
}

impl Clients {
    fn connect(address: SocketAddr, callers: usize) -> Result<Clients, BenchError> {
        let events = epoll::create(CreateFlags::CLOEXEC).during("epoll")?;
        let mut clients = Vec::new();
        for at in 0..callers {
            let stream = TcpStream::connect(address).during("connecting to the primary")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&events, &stream, EventData::new_u64(at as u64), EventFlags::IN).during("epoll")?;
            clients.push(Client { stream, answer: [0; 8], filled: 0, since: Instant::now() });
        }
        Ok(Clients { events, clients })
    }

    /// Puts again and again over each connection, until each has had its last answer.
    fn drive(&mut self, how_long: Duration) -> Result<Driven, BenchError> {
        let record = [0xA5; RECORD_BYTES];
        let (begin, mut times) = (Instant::now(), Vec::new());
        let mut under_way = self.clients.len();
        for client in &mut self.clients {
            client.send(&record)?;
        }
        let mut found = Vec::with_capacity(128);
        while under_way > 0 {
            found.clear();
            match epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut found), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno)).during("waiting for answers"),
            }
            for event in &found {
                let at = usize::try_from(event.data.u64()).expect("a place");
                let client = &mut self.clients[at];
                if !client.has_answer()? {
                    continue;
                }
                times.push(client.since.elapsed().as_secs_f64() * 1e6);
                if begin.elapsed() < how_long {
                    client.send(&record)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok(Driven { rate: times.len() as f64 / begin.elapsed().as_secs_f64(), p50_us: median_of(&mut times) })
    }
}

impl Client {
    fn send(&mut self, record: &[u8]) -> Result<(), BenchError> {
        self.since = Instant::now();
        // One record is under way at most, so the socket has room.
        self.stream.write_all(record).during("sending a put")
    }

    fn has_answer(&mut self) -> Result<bool, BenchError> {
        match self.stream.read(&mut self.answer[self.filled..]) {
            Ok(0) => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof)).during("waiting for an answer");
            }
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).during("waiting for an answer"),
        }
        let is_whole = self.filled == self.answer.len();
        if is_whole {
            self.filled = 0;
        }
        Ok(is_whole)
    }
}
