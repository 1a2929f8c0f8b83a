//! A member of a `windlass` group, as a process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass::control::{Member, Secret};
use windlass::{Level, Log, LogId, MemberId, Node, NodeOptions};

use crate::child;
use crate::error::{BenchError, During};
use crate::group::clients::{self, Put};
use crate::group::{Answer, RECORD_BYTES, Request, Wanted, lag, latency};

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

/// Takes connections from clients for as long as this process lives: all on one thread, each waiting for its commits as futures.
fn serve(log: Log, wanted: Wanted) -> Result<Answer, BenchError> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").during("listening for clients")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        // Without a listener no client gets an answer, and says so.
        let _ = runtime.block_on(accept(listener, &log, wanted));
    });
    Ok(Answer::Address(address))
}

async fn accept(listener: std::net::TcpListener, log: &Log, wanted: Wanted) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let log = log.clone();
        // A client that goes has had its answers; a put that fails ends its connection, which the client reports.
        tokio::spawn(async move { serve_one(stream, &log, wanted).await });
    }
}

async fn serve_one(mut stream: TcpStream, log: &Log, wanted: Wanted) -> Result<(), BenchError> {
    stream.set_nodelay(true)?;
    let mut record = [0; RECORD_BYTES];
    loop {
        stream.read_exact(&mut record).await?;
        let appended = log.append_wait(&record, soon()).await.during("appending")?;
        let _committed = log.commit(appended.end, wanted.level()).await.during("committing")?;
        stream.write_all(&[1; 8]).await?;
    }
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
