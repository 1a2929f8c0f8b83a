//! Replicated appends: a group of three `windlass` nodes, each a process, over the `tcp` provider on loopback, against a
//! loopback ping-pong and against a raw quorum log ([`quorum`]) of three processes.
//!
//! Both groups are driven by the same callers in two ways: from threads of the primary's process, as a database that embeds the log
//! has them, and over TCP connections by a process of clients ([`clients`]).

pub(crate) mod clients;
pub(crate) mod lag;
mod latency;
pub(crate) mod member;
pub(crate) mod pingpong;
pub(crate) mod quorum;
mod server;
mod throughput;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub(crate) use self::latency::run as latency;
pub(crate) use self::throughput::run as throughput;
use crate::Settings;
use crate::child::Child;
use crate::error::{BenchError, During};

/// Payload bytes of a record.
pub(crate) const RECORD_BYTES: usize = 256;

/// When a put is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// Two of three have it in memory.
    Replicated,
    /// Two of three have flushed it.
    Durable,
}

/// What both groups' primaries are asked.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// Puts from so many threads of the process for so long.
    Drive { callers: usize, how_ms: u64, wanted: Wanted },
    /// Takes clients' connections; answers where.
    Serve { wanted: Wanted },
    /// One round of single puts, see [`latency`].
    Latency(latency::Round),
    /// Trims what is durable.
    Trim,
    /// Whether this member is primary; if `stand`, it asks to become it.
    IsPrimary { stand: bool },
    /// See [`lag`].
    Bulk { bytes: u64 },
}

/// What they answer.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Driven { rate: f64, p50_us: f64 },
    Address(SocketAddr),
    Latency(latency::Outcome),
    Yes(bool),
    Bulk { seconds: f64, grown_bytes: u64 },
}

/// A group that was started, whichever it is.
pub(crate) struct Group {
    pub(crate) primary: Child,
    pub(crate) others: Vec<Child>,
}

impl Group {
    /// Three members of a `windlass` group, the first one primary.
    pub(crate) fn windlass(settings: &Settings, folder: &Path) -> Result<Group, BenchError> {
        let addresses = free_addresses(3)?;
        let argument = |me: usize| member::Argument {
            me,
            members: addresses.clone(),
            folder: folder.join(format!("member-{me}")),
            any_filesystem: settings.quick,
        };
        let mut members = Vec::new();
        for me in 0..3 {
            members.push(Child::start(member::ROLE, &argument(me))?);
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            for at in 0..members.len() {
                if let Answer::Yes(true) = members[at].ask(&Request::IsPrimary { stand: at == 0 })? {
                    let primary = members.remove(at);
                    return Ok(Group { primary, others: members });
                }
            }
            if Instant::now() > deadline {
                return Err(std::io::Error::other("the group has no primary after 30 s").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The raw quorum log: a primary and two backups.
    pub(crate) fn quorum(settings: &Settings, folder: &Path) -> Result<Group, BenchError> {
        let file_bytes = settings.choose(64 << 20, 4 << 20);
        let mut others = Vec::new();
        let mut backups = Vec::new();
        for number in 0..2 {
            let file = folder.join(format!("quorum-backup-{number}"));
            let mut backup = Child::start(quorum::BACKUP_ROLE, &quorum::BackupArgument { file, file_bytes })?;
            backups.push(backup.ask::<SocketAddr>(&())?);
            others.push(backup);
        }
        let file = folder.join("quorum-primary");
        let primary = Child::start(quorum::ROLE, &quorum::Argument { file, file_bytes, backups })?;
        Ok(Group { primary, others })
    }

    /// Puts until all three members take part: a backup follows its primary once its first segments are made.
    pub(crate) fn warm_up(&mut self) -> Result<(), BenchError> {
        for _ in 0..4 {
            let how_ms = 100;
            self.ask(&Request::Drive { callers: 2, how_ms, wanted: Wanted::Durable })?;
            std::thread::sleep(Duration::from_millis(how_ms));
        }
        Ok(())
    }

    /// Processor time of all of its processes so far, in µs.
    pub(crate) fn work_us(&self) -> Result<f64, BenchError> {
        let primary = self.primary.work_us()?;
        self.others.iter().try_fold(primary, |sum, other| Ok(sum + other.work_us()?))
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, BenchError> {
        self.primary.ask(request)
    }
}

/// Ports that are free now, on loopback.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, BenchError> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| listener.local_addr().during("asking for an address")).collect()
}
