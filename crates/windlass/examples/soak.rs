//! A group of three nodes in one process under load: throughput, latency, and how often the tenure moved although nothing failed.
//!
//! `cargo run --release -p windlass --example soak -- SECONDS WRITERS LEVEL [FOLDER]`

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass::control::{Member, Secret};
use windlass::engine::Role;
use windlass::{Level, Log, LogId, MemberId, Node, NodeEvent, NodeOptions};

const PAYLOAD_BYTES: usize = 256;

fn write(log: &Log, level: Level, stop: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let appended = log.append_wait_blocking(&[7; PAYLOAD_BYTES], start + Duration::from_secs(5)).unwrap();
        let committed = log.commit_blocking(appended.end, level).unwrap();
        times.push(start.elapsed());
        // One of the writers keeps the log short, as checkpoints would.
        if times.len().is_multiple_of(5000) {
            let _ = log.trim(committed.end().min(log.info().durable));
        }
    }
    times
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let argument =
        |at: usize, default: &str| arguments.get(at).cloned().unwrap_or_else(|| default.to_owned());
    let seconds: u64 = argument(1, "10").parse().unwrap();
    let writers: usize = argument(2, "16").parse().unwrap();
    let level: Level = argument(3, "durable").parse().unwrap();
    let folder = tempfile::tempdir_in(PathBuf::from(argument(4, "."))).unwrap();
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members: Vec<Member> = (1..)
        .zip(&listeners)
        .map(|(id, l)| Member { id: MemberId(id), address: l.local_addr().unwrap() })
        .collect();
    drop(listeners);
    let nodes: Vec<Node> = members
        .iter()
        .map(|member| {
            let secret = Secret::new(*b"a secret for the measurement").unwrap();
            let options = NodeOptions::new(member.id, members.clone(), LogId([1; 16]), secret)
                .segment_bytes(16 << 20)
                .backup_retention_bytes(64 << 20)
                .allow_replicated(true);
            Node::create(&folder.path().join(member.id.to_string()), options).unwrap()
        })
        .collect();
    let log = loop {
        if let Some(log) = nodes.iter().find_map(|node| node.log().ok()) {
            break log;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut events: Vec<_> = nodes.iter().map(Node::events).collect();
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..writers).map(|_| scope.spawn(|| write(&log, level, &stop))).collect();
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let took = start.elapsed().as_secs_f64();
    times.sort();
    let at = |q: usize| times[times.len() * q / 1000].as_secs_f64() * 1e6;
    let mut tenures = 0;
    for events in &mut events {
        while let Some(event) = events.try_next() {
            tenures += usize::from(matches!(event, NodeEvent::Role { role: Role::Primary, .. }));
        }
    }
    let primary = nodes.iter().find(|node| node.log().is_ok()).unwrap().metrics();
    println!(
        "{level}, {writers} writers, {took:.0} s: {:.0}/s, p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, new tenures {tenures}, \
         records per batch {:.1}, per flush {:.1}",
        times.len() as f64 / took,
        at(500),
        at(990),
        at(999),
        primary.log.records as f64 / (primary.group.batches as f64 / 2.0),
        primary.log.records as f64 / primary.log.flushes as f64,
    );
}
