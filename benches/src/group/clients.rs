//! Clients over TCP, the same for both groups: one thread and one connection each. A put is a record of fixed length, its answer 8 bytes. The raw
//! quorum log's primary has a thread per connection; the one of windlass serves all of them from one thread, by commit futures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child;
use crate::durable::drive;
use crate::error::{BenchError, During};
use crate::group::{Answer, RECORD_BYTES, Wanted};

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
        let streams: Result<Vec<TcpStream>, BenchError> = (0..callers)
            .map(|_| {
                let stream = TcpStream::connect(address).during("connecting to the primary")?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .collect();
        let idle = Mutex::new(streams?);
        let record = [0xA5; RECORD_BYTES];
        let driven = drive_with(callers, Duration::from_millis(how_ms), &idle, &record)?;
        Ok(Answer::Driven { rate: driven.rate, p50_us: driven.p50_us })
    })
}

fn drive_with(
    callers: usize,
    how_long: Duration,
    idle: &Mutex<Vec<TcpStream>>,
    record: &[u8],
) -> Result<crate::durable::Driven, BenchError> {
    // Each caller takes a connection for one put; there are as many as callers, so none ever waits for one.
    let take = || idle.lock().expect("no panic").pop().expect("as many connections as callers");
    drive(callers, how_long, &|| {
        let mut stream = take();
        stream.write_all(record)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).during("waiting for the primary's answer")?;
        idle.lock().expect("no panic").push(stream);
        Ok(())
    })
}
