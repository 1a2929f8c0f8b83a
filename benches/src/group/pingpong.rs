//! A loopback ping-pong: the least that hearing from another process takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::child;
use crate::error::{BenchError, During};
use crate::group::RECORD_BYTES;

/// The role of the process that echoes.
pub(crate) const ROLE: &str = "echo";

/// The body of [`ROLE`]: answers where it listens, and echoes on each connection.
pub(crate) fn role() -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").during("listening")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo(stream));
        }
    });
    child::serve(|()| Ok(address))
}

/// Until the other side closes the connection.
fn echo(mut stream: TcpStream) {
    let mut record = [0; RECORD_BYTES];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while stream.read_exact(&mut record).is_ok() && stream.write_all(&record[..8]).is_ok() {}
}

/// The other end.
#[derive(Debug)]
pub(crate) struct PingPong(TcpStream);

impl PingPong {
    pub(crate) fn connect(address: SocketAddr) -> Result<PingPong, BenchError> {
        let stream = TcpStream::connect(address).during("connecting to the echo")?;
        stream.set_nodelay(true)?;
        Ok(PingPong(stream))
    }

    /// Sends a record and waits for the short answer.
    pub(crate) fn once(&mut self, record: &[u8]) -> Result<(), BenchError> {
        self.0.write_all(record)?;
        let mut answer = [0; 8];
        self.0.read_exact(&mut answer)?;
        Ok(())
    }
}
