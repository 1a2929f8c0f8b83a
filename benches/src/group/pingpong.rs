//! A loopback ping-pong: the least that hearing from another process takes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

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

/// How an end waits for the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// In a blocking read: whoever hears something has been asleep.
    Asleep,
    /// As windlass waits while answers come soon: it looks again and again, giving way to others at each turn, for [`SPIN`], and sleeps then.
    Awake,
}

/// As long as windlass looks before it sleeps, by default.
const SPIN: Duration = Duration::from_micros(50);

impl Wait {
    fn read(self, stream: &mut TcpStream, into: &mut [u8]) -> io::Result<()> {
        if self == Wait::Asleep {
            return stream.read_exact(into);
        }
        let start = Instant::now();
        loop {
            match read_now(stream, into)? {
                true => return Ok(()),
                false if start.elapsed() < SPIN => thread::yield_now(),
                false => return stream.read_exact(into),
            }
        }
    }
}

/// Reads, if anything has come, and then all.
fn read_now(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<bool> {
    match recv(&*stream, &mut *into, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((count, _)) => stream.read_exact(&mut into[count..]).map(|()| true),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Until the other side closes the connection. Its first byte says how to wait.
fn echo(mut stream: TcpStream) {
    let mut record = [0; RECORD_BYTES];
    let mut how = [0];
    if stream.set_nodelay(true).is_err() || stream.read_exact(&mut how).is_err() {
        return;
    }
    let wait = if how == [0] { Wait::Asleep } else { Wait::Awake };
    while wait.read(&mut stream, &mut record).is_ok() && stream.write_all(&record[..8]).is_ok() {}
}

/// The other end.
#[derive(Debug)]
pub(crate) struct PingPong(TcpStream, Wait);

impl PingPong {
    pub(crate) fn connect(address: SocketAddr, wait: Wait) -> Result<PingPong, BenchError> {
        let mut stream = TcpStream::connect(address).during("connecting to the echo")?;
        stream.set_nodelay(true)?;
        stream.write_all(&[u8::from(wait == Wait::Awake)])?;
        Ok(PingPong(stream, wait))
    }

    /// Sends a record and waits for the short answer.
    pub(crate) fn once(&mut self, record: &[u8]) -> Result<(), BenchError> {
        self.0.write_all(record)?;
        let mut answer = [0; 8];
        self.1.read(&mut self.0, &mut answer)?;
        Ok(())
    }
}

/// Two processes that echo the same record, each by itself: the first answer counts.
#[derive(Debug)]
pub(crate) struct Both {
    streams: [TcpStream; 2],
    /// Answers that are still to come, of each.
    behind: [usize; 2],
}

impl Both {
    pub(crate) fn connect(addresses: [SocketAddr; 2]) -> Result<Both, BenchError> {
        let [one, other] = addresses.map(|address| PingPong::connect(address, Wait::Awake));
        Ok(Both { streams: [one?.0, other?.0], behind: [0; 2] })
    }

    /// Sends a record to both and waits for the first answer. The other answer is read when its turn comes.
    pub(crate) fn once(&mut self, record: &[u8]) -> Result<(), BenchError> {
        for (stream, behind) in self.streams.iter_mut().zip(&mut self.behind) {
            stream.write_all(record)?;
            *behind += 1;
        }
        loop {
            for (stream, behind) in self.streams.iter_mut().zip(&mut self.behind) {
                while *behind > 0 && read_now(stream, &mut [0; 8])? {
                    *behind -= 1;
                }
            }
            if self.behind.contains(&0) {
                return Ok(());
            }
            thread::yield_now();
        }
    }
}
