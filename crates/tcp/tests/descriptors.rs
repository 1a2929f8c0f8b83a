//! A process that forks and executes another program hands no descriptor of the fabric on. Alone in its binary: it looks at
//! all descriptors of the process.

use std::collections::BTreeMap;
use std::fs;

use windlass_fabric::{CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric};
use windlass_tcp::auth::Secret;
use windlass_tcp::{Options, TcpFabric};

const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// The process's sockets and event descriptors, and whether each is closed on exec.
fn descriptors() -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").expect("/proc") {
        let number = entry.expect("an entry").file_name().into_string().expect("a number");
        // The folder's own descriptor is gone by now.
        let Ok(target) = fs::read_link(format!("/proc/self/fd/{number}")) else { continue };
        let target = target.to_string_lossy().into_owned();
        if !target.starts_with("socket:") && !target.contains("[eventfd]") {
            continue;
        }
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).expect("its state");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("its flags");
        let flags = u32::from_str_radix(flags.trim(), 8).expect("octal flags");
        found.insert(format!("{number} {target}"), flags & CLOSE_ON_EXEC != 0);
    }
    found
}

#[test]
fn every_descriptor_is_closed_on_exec() {
    let before = descriptors();
    let open = || {
        let secret = Secret::new(b"the secret of the descriptors").expect("long enough");
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        TcpFabric::open(Options::new(secret, [1; 16]), logger).expect("loopback")
    };
    let fabrics = [open(), open()];
    let mut ends = fabrics.each_ref().map(|fabric| {
        let queue = fabric.completion_queue(256).expect("a queue");
        let connection = fabric.connection(&queue, &ConnectionOptions::default()).expect("a connection");
        (queue, connection)
    });
    let endpoints = ends.each_ref().map(|(_, connection)| connection.endpoint().to_vec());
    ends[0].1.connect(&endpoints[1]).expect("to connect");
    ends[1].1.connect(&endpoints[0]).expect("to connect");
    while ends.iter().any(|(_, connection)| connection.state() != ConnectionState::Ready) {
        for (queue, _) in &mut ends {
            queue.poll(&mut []).expect("to poll");
        }
    }
    let mut ours = descriptors();
    ours.retain(|name, _| !before.contains_key(name));
    // Per fabric: what listens, what stops the acceptor, a queue's event, two sockets.
    assert_eq!(ours.len(), 10, "{ours:#?}");
    assert!(ours.values().all(|closed| *closed), "{ours:#?}");
    drop(ends);
    drop(fabrics);
    let mut left = descriptors();
    left.retain(|name, _| !before.contains_key(name));
    assert!(left.is_empty(), "left open: {left:#?}");
}
