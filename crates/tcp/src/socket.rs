//! System calls on sockets. None raises SIGPIPE; all descriptors are close-on-exec.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

/// What a look at a socket gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// Nothing there now.
    Nothing,
    /// The peer will send nothing more.
    End,
}

/// Reads what is there, without waiting.
pub(crate) fn receive_now(socket: &TcpStream, into: &mut [u8]) -> io::Result<Received> {
    receive(socket, into, RecvFlags::DONTWAIT)
}

/// Reads, waiting for at least a byte (or as long as the socket's own time limit).
pub(crate) fn receive_waiting(socket: &TcpStream, into: &mut [u8]) -> io::Result<Received> {
    receive(socket, into, RecvFlags::empty())
}

fn receive(socket: &TcpStream, into: &mut [u8], flags: RecvFlags) -> io::Result<Received> {
    loop {
        return match rustix::net::recv(socket, &mut *into, flags) {
            Ok((0, _)) => Ok(Received::End),
            Ok((count, _)) => Ok(Received::Bytes(count)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Sends what fits, without waiting; 0 when nothing does.
pub(crate) fn send_now(socket: &TcpStream, from: &[u8]) -> io::Result<usize> {
    loop {
        return match rustix::net::send(socket, from, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Sends all, waiting for room at most as long as the socket's own time limit.
pub(crate) fn send_all(socket: &TcpStream, mut from: &[u8]) -> io::Result<()> {
    while !from.is_empty() {
        match rustix::net::send(socket, from, SendFlags::NOSIGNAL) {
            Ok(count) => from = &from[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// What every socket of a connection gets: small messages leave at once, and a peer that is gone without a word is noticed in
/// the end even when nothing is sent.
pub(crate) fn tune(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(5))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(())
}

/// Bounds how long sending may wait, and how long sent bytes may stay without an answer of the peer's machine.
pub(crate) fn limit_waits(socket: &TcpStream, limit: Duration) -> io::Result<()> {
    socket.set_write_timeout(Some(limit))?;
    let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, millis)?;
    Ok(())
}
