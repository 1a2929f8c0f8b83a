//! Three members of a group in one process, each with a table of its own. One is stopped until its group has released what it lacks, started again,
//! and brought a checkpoint. `cargo run -p checkpoint-example [FOLDER]`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use checkpoint_example::{Shared, Table};
use windlass::control::{Member, Secret};
use windlass::{Level, Log, LogId, Lsn, MemberId, Node, NodeEvent, NodeOptions, ReadError};

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node, its table, and the thread that keeps the table up with the log.
struct Site {
    node: Arc<Node>,
    table: Arc<Table>,
    stop: Arc<AtomicBool>,
    follower: JoinHandle<Result<(), ReadError>>,
}

impl Site {
    fn start(folder: &Path, members: &[Member], me: usize) -> Result<Site, Box<dyn Error>> {
        let folder = folder.join(format!("member-{}", members[me].id.0));
        let table = Table::open(&folder.join("table"))?;
        // Small, so that the example has soon gone past them; and wherever it is tried.
        let secret = Secret::new(*b"a secret of this example")?;
        let options = NodeOptions::new(members[me].id, members.to_vec(), LogId([5; 16]), secret)
            .segment_bytes(64 << 10)
            .backup_retention_bytes(256 << 10)
            .any_filesystem(true)
            .checkpoints(Arc::new(Shared(Arc::clone(&table))));
        let node = Arc::new(Node::open_or_create(&folder.join("log"), options)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (of_follower, kept, ending) = (Arc::clone(&node), Arc::clone(&table), Arc::clone(&stop));
        let follower = std::thread::spawn(move || kept.follow(&of_follower, &ending));
        Ok(Site { node, table, stop, follower })
    }

    /// Ends it like a crash of its process: the table in memory is gone, its last checkpoint and the log are there.
    fn stop(self) -> Result<(), Box<dyn Error>> {
        self.stop.store(true, Ordering::Release);
        self.follower.join().map_err(|_| "the thread that follows the log panicked")??;
        Ok(())
    }

    fn wait_applied(&self, end: Lsn) -> Result<(), Box<dyn Error>> {
        wait(|| (self.table.applied() >= end).then_some(()))
    }
}

fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> Result<T, Box<dyn Error>> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if Instant::now() > until {
            return Err("it takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Puts `key-N` = a value for each number, and waits until all are durable.
fn put(log: &Log, numbers: std::ops::Range<u32>) -> Result<Lsn, Box<dyn Error>> {
    let mut end = Lsn(0);
    for number in numbers {
        let record = format!("key-{:04}={number} {}", number % 1500, "x".repeat(400));
        end = log.append_wait_blocking(record.as_bytes(), Instant::now() + PATIENCE)?.end;
    }
    let _committed = log.commit_until(end, Level::Durable, Instant::now() + PATIENCE)?;
    Ok(end)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).map_or_else(|| "checkpoint-example".into(), Into::into);
    let members = addresses()?;
    let start = |me: usize| Site::start(&folder, &members, me);
    let mut sites = vec![start(0)?, start(1)?, start(2)?];
    let (leads, log) =
        wait(|| sites.iter().enumerate().find_map(|(at, site)| Some((at, site.node.log().ok()?))))?;
    let end = put(&log, 0..1000)?;
    for site in &sites {
        site.wait_applied(end)?;
    }
    println!("1000 records, applied by all three; member {} leads", members[leads].id.0);

    // One of the backups is gone for a while.
    let gone = (leads + 1) % 3;
    let backup = sites.swap_remove(gone);
    backup.stop()?;
    let had = end;
    println!("member {} is stopped, with the log up to LSN {had}", members[gone].id.0);

    // The others go on, and trim: first the table's checkpoint, then the log below it.
    let mut number = 1000;
    wait(|| {
        put(&log, number..number + 500).ok()?;
        number += 500;
        for site in &sites {
            site.node.trim(site.table.checkpoint().ok()?).ok()?;
        }
        (log.info().trimmed > had).then_some(())
    })?;
    println!(
        "{number} records; by now the log begins at LSN {}, behind the end of member {}'s: what that lacks is trimmed",
        log.info().trimmed,
        members[gone].id.0
    );

    let back = start(gone)?;
    let mut events = back.node.events();
    let (bytes, giver) = wait(|| {
        while let Some(event) = events.try_next() {
            if let NodeEvent::CheckpointFailed { error, .. } = event {
                println!("member {}: {error}", members[gone].id.0);
            }
        }
        let metrics = back.node.metrics().group;
        // Who has streamed it counts that.
        let gave = |site: &&Site| site.node.metrics().group.checkpoints_given > 0;
        let giver = sites.iter().find(gave)?;
        (metrics.checkpoints_taken > 0).then_some((metrics.checkpoint_taken_bytes, giver))
    })?;
    let role = if giver.node.log().is_ok() { "the primary" } else { "a backup" };
    let at = back.node.status().trimmed;
    println!(
        "member {} is brought a checkpoint of {bytes} bytes by member {}, {role}: its log goes on at LSN {at}",
        members[gone].id.0,
        giver.node.info().member.0
    );

    let end = put(&log, number..number + 500)?;
    back.wait_applied(end)?;
    sites.push(back);
    for site in &sites {
        site.wait_applied(end)?;
        if site.table.pairs() != sites[0].table.pairs() {
            return Err("the tables differ".into());
        }
    }
    println!(
        "{} records, applied by all three: their tables of {} keys are the same",
        number + 500,
        sites[0].table.pairs().len()
    );
    for site in sites {
        site.stop()?;
    }
    Ok(())
}

/// Three free addresses on loopback.
fn addresses() -> std::io::Result<Vec<Member>> {
    let listeners = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    (1..).zip(&listeners).map(|(id, l)| Ok(Member { id: MemberId(id), address: l.local_addr()? })).collect()
}
