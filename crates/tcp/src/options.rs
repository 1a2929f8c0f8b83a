//! What a fabric is opened with.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::auth::Secret;

/// Options of [`TcpFabric::open`](crate::TcpFabric::open). Start from [`Options::new`], change what differs. Times above a day count as
/// a day.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen for peers. Default: loopback, a free port.
    pub bind: SocketAddr,
    /// What peers dial, where it differs from what is listened on (a wildcard address, a forwarded port). The port 0 stands for the one
    /// listened on. Default: the address listened on.
    pub advertise: Option<SocketAddr>,
    /// The group's secret.
    pub secret: Secret,
    /// The group's log id. Ends of different groups do not connect.
    pub group: [u8; 16],
    /// How long a connection may take to prove itself before it is closed. Default 2 s.
    pub handshake_timeout: Duration,
    /// Most connections that have not proved themselves yet; the oldest is closed to make room. 0 counts as 1. Default 64.
    pub unproven_max: usize,
    /// How long connecting may take in all, the peer's part included. Default 10 s.
    pub connect_timeout: Duration,
    /// How long outstanding requests may make no progress before the peer counts as gone. Default 5 s. Not the failure
    /// detector: it only ends every wait.
    pub stall_timeout: Duration,
    /// How long a request that needs a receive waits for one to be posted. Default 10 ms; less than `stall_timeout`.
    pub receiver_wait: Duration,
    /// How long to spin before sleeping, at most; zero never spins. Default 50 µs.
    pub spin: Duration,
    /// Leave windows alone, as on a device that has none: then permission is taken back by destroying the connection and dropping the region. Default no.
    pub no_windows: bool,
}

impl Options {
    /// The defaults, for this secret and this group's log id.
    #[must_use]
    pub fn new(secret: Secret, group: [u8; 16]) -> Self {
        Self {
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            advertise: None,
            secret,
            group,
            handshake_timeout: Duration::from_secs(2),
            unproven_max: 64,
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(5),
            receiver_wait: Duration::from_millis(10),
            spin: Duration::from_micros(50),
            no_windows: false,
        }
    }

    /// Nothing lasts longer than a day, so that every time can be added to any other.
    pub(crate) fn bounded(self) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            handshake_timeout: self.handshake_timeout.min(DAY),
            connect_timeout: self.connect_timeout.min(DAY),
            stall_timeout: self.stall_timeout.clamp(Duration::from_millis(1), DAY),
            receiver_wait: self.receiver_wait.min(DAY),
            spin: self.spin.min(DAY),
            ..self
        }
    }
}

/// A fabric was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address cannot be listened on. Remedy: one of this machine, a free port.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// Listening on all addresses, and nothing said what peers should dial. Remedy: set [`Options::advertise`].
    #[error("listening on the wildcard {address}: say by Options::advertise what peers are to dial")]
    AdvertiseWanted {
        /// The address listened on.
        address: SocketAddr,
    },
    /// The system refused a thread, an event descriptor or random numbers.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unless_told_otherwise_only_this_machine_is_listened_to() {
        let options = Options::new(Secret::new(&[1; 32]).unwrap(), [7; 16]);
        assert!(options.bind.ip().is_loopback() && options.advertise.is_none());
        let fabric = crate::TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!())).unwrap();
        assert!(fabric.address().ip().is_loopback());
    }
}
