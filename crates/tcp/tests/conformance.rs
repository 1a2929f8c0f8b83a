//! The fabric's conformance suite on `tcp`, both ends in one process.

use windlass_tcp::auth::Secret;
use windlass_tcp::{Options, TcpFabric};

fn open() -> TcpFabric {
    let secret = Secret::new(b"the secret of the conformance suite").expect("long enough");
    TcpFabric::open(Options::new(secret, [1; 16]), slog::Logger::root(slog::Discard, slog::o!()))
        .expect("loopback")
}

windlass_fabric::conformance_tests!((open(), open()));
