//! A member of a `windlass` group, as a process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass::control::{Member, Secret};
use windlass::{Level, Log, LogId, MemberId, Node, NodeOptions};

use crate::child;
use crate::error::{BenchError, During};
use crate::group::clients::{self, Put};
use crate::group::server::Server;
use crate::group::{Answer, Request, Wanted, lag, latency};

/// The role of a member.
pub(crate) const ROLE: &str = "member";

/// A primary on a busy machine is not to be replaced in the middle of a round.
const SUSPICION: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
pub(crate) struct Argument {
    pub(crate) me: usize,
    pub(crate) members: Vec<SocketAddr>,
    pub(crate) folder: PathBuf,
    pub(crate) any_filesystem: bool,
}

impl Put for Log {
    fn put(&self, record: &[u8], wanted: Wanted) -> Result<(), BenchError> {
        let appended = match self.append(record) {
            Ok(appended) => appended,
            Err(_) => self.append_wait_blocking(record, soon()).during("appending")?,
        };
        let _committed = self.commit_until(appended.end, wanted.level(), soon()).during("committing")?;
        Ok(())
    }
}

impl Wanted {
    fn level(self) -> Level {
        match self {
            Wanted::Replicated => Level::Replicated,
            Wanted::Durable => Level::Durable,
        }
    }
}

/// Takes connections from clients for as long as this process lives.
fn serve(log: Log, wanted: Wanted) -> Result<Answer, BenchError> {
    let server = Server::new(log, wanted.level())?;
    let address = server.listener.local_addr()?;
    std::thread::spawn(move || {
        // Clients whose server is gone get no answer, and say so.
        let _ = server.run();
    });
    Ok(Answer::Address(address))
}

/// How long anything may take.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// The body of [`ROLE`].
pub(crate) fn role(argument: &Argument) -> Result<(), BenchError> {
    let node = open(argument)?;
    let current: Mutex<Option<Log>> = Mutex::new(None);
    // The handle of this tenure, kept: asking for it is not what is measured.
    let log = || {
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(log) => Ok(log.clone()),
            None => {
                let log = node.log().during("asking for the log")?;
                *current = Some(log.clone());
                Ok::<_, BenchError>(log)
            }
        }
    };
    child::serve(|request| match request {
        Request::Drive { callers, how_ms, wanted } => clients::drive_here(&log()?, callers, how_ms, wanted),
        Request::Serve { wanted } => serve(log()?, wanted),
        Request::Latency(round) => latency::round(&log()?, &round),
        Request::Trim => {
            let log = log()?;
            log.trim(log.info().durable).during("trimming")?;
            Ok(Answer::Yes(true))
        }
        Request::IsPrimary { stand } => {
            let primary = node.log().is_ok();
            if stand && !primary {
                node.promote();
            }
            Ok(Answer::Yes(primary))
        }
        Request::Bulk { bytes } => lag::bulk(&log()?, bytes),
    })
}

fn open(argument: &Argument) -> Result<Node, BenchError> {
    let ids = (1..).map(MemberId);
    let members: Vec<Member> =
        ids.zip(&argument.members).map(|(id, address)| Member { id, address: *address }).collect();
    let me = members[argument.me].id;
    let secret = Secret::new(*b"of one benchmark").during("making a secret")?;
    let options = NodeOptions::new(me, members, LogId([7; 16]), secret)
        .allow_replicated(true)
        .suspicion(SUSPICION)
        .any_filesystem(argument.any_filesystem);
    Node::open_or_create(&argument.folder, options).during("opening a member")
}
