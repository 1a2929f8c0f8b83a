//! Addresses on loopback that nobody else takes between being named and being listened at, nor while their member is down: each process has an IP address of 127.0.0.0/8 of its own, and
//! names each of its ports once. Of a port that was bound to be found free, and let go, the system may make anybody's next one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Where nobody listens, or ever did.
pub(crate) fn unused() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    // An id of a process has 22 bits. 127.0.0.0/16, where everybody looks for a free port, is left out.
    let [_, high, mid, low] = std::process::id().to_be_bytes();
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(port >= 10_000, "each port is named once");
    SocketAddr::from((Ipv4Addr::new(127, 64 | high, mid, low), port))
}
