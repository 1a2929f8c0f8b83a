//! How long a commit takes in a group of three nodes in one process, beside a raw loopback exchange in the same run.
//!
//! `cargo run --release -p windlass --example latency [FOLDER]`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use windlass::control::{Member, Secret};
use windlass::{Level, LogId, MemberId, Node, NodeOptions};

const ROUNDS: usize = 3000;
const PAYLOAD_BYTES: usize = 256;

fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |q: usize| times[times.len() * q / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}

fn ping_pong() -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bytes = [0; PAYLOAD_BYTES];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes).unwrap();
        }
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut bytes = [1; PAYLOAD_BYTES];
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut bytes).unwrap();
        start.elapsed()
    });
    percentiles(times.collect())
}

fn raw_flush(folder: &std::path::Path) -> (f64, f64) {
    let log = windlass::Options::new().segment_bytes(16 << 20).create(&folder.join("lone")).unwrap();
    let times = (0..ROUNDS / 3).map(|_| {
        let start = Instant::now();
        let end = log.append(&[7; PAYLOAD_BYTES]).unwrap().end;
        let _ = log.commit_blocking(end, Level::Durable).unwrap();
        start.elapsed()
    });
    percentiles(times.collect())
}

fn main() {
    let folder =
        tempfile::tempdir_in(std::env::args_os().nth(1).map_or(PathBuf::from("."), PathBuf::from)).unwrap();
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members: Vec<Member> = (1..)
        .zip(&listeners)
        .map(|(id, l)| Member { id: MemberId(id), address: l.local_addr().unwrap() })
        .collect();
    drop(listeners);
    let spin = std::env::var("SPIN_US").ok().and_then(|text| text.parse().ok()).unwrap_or(50);
    let nodes: Vec<Node> = members
        .iter()
        .map(|member| {
            let secret = Secret::new(*b"a secret for the measurement").unwrap();
            let options = NodeOptions::new(member.id, members.clone(), LogId([1; 16]), secret)
                .segment_bytes(16 << 20)
                .spin(Duration::from_micros(spin))
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
    for round in 0..3 {
        let ping = ping_pong();
        let mut line = format!("round {round}: ping-pong p50 {:.0} p99 {:.0} us", ping.0, ping.1);
        for level in [Level::Replicated, Level::Durable] {
            let count = if level == Level::Durable { ROUNDS / 3 } else { ROUNDS };
            let times = (0..count).map(|_| {
                let start = Instant::now();
                let end = log
                    .append_wait_blocking(&[7; PAYLOAD_BYTES], start + Duration::from_secs(5))
                    .unwrap()
                    .end;
                let _ = log.commit_blocking(end, level).unwrap();
                start.elapsed()
            });
            let (p50, p99) = percentiles(times.collect());
            line += &format!(" | {level} p50 {p50:.0} p99 {p99:.0}");
            if level == Level::Replicated {
                line += &format!(" ({:.2}x)", p50 / ping.0);
            }
        }
        let inner = tempfile::tempdir_in(folder.path()).unwrap();
        let flush = raw_flush(inner.path());
        println!("{line} | lone durable p50 {:.0} p99 {:.0}", flush.0, flush.1);
    }
}
