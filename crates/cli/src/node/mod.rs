//! `windlass node …`: one member of a group as a process, served to clients over a Unix socket.

pub(crate) mod config;
mod serve;

use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use slog::{Drain as _, Logger, info, o};
use windlass::Node;

use self::config::Config;
use self::serve::Service;
use crate::exit::{Failure, Status, TABLE};

/// `windlass node`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = TABLE)]
pub(crate) struct Args {
    /// The group, as TOML: the same file for every member
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// This member's number
    #[arg(long, value_name = "N")]
    member: u8,
    /// End, like a crash, when standard input ends: a parent that dies takes its members with it
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Why the process ends.
enum End {
    /// A client asked; it is told once the member has ended.
    Asked(serve::Asked),
    /// The parent is gone.
    Orphaned,
}

/// Runs the member until a client closes it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = Config::read(&args.config)?;
    let member = config.member(args.member)?;
    let logger = logger();
    let options = config.options(args.member, logger.clone())?;
    let level = config.level()?;

    let node = Node::open_or_create(&member.folder, options).map_err(|error| failure(&error))?;
    let node = Arc::new(node);
    // A member that was killed leaves its socket behind; the folder's lock says that nobody serves it.
    match std::fs::remove_file(&member.client) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::io(member.client.display(), &error)),
    }
    let listener =
        UnixListener::bind(&member.client).map_err(|error| Failure::io(member.client.display(), &error))?;
    let (ends, ended) = channel();
    if args.exit_with_stdin {
        let ends = ends.clone();
        std::thread::spawn(move || {
            // Whatever comes: only the end counts.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            let _ = ends.send(End::Orphaned);
        });
    }
    let service = Service::new(&node, level, logger.clone());
    std::thread::spawn(move || service.listen(&listener, &ends));
    wait(node, &ended, &logger)
}

fn wait(node: Arc<Node>, ended: &Receiver<End>, logger: &Logger) -> Result<(), Failure> {
    match ended.recv() {
        Ok(End::Asked(asked)) => {
            let closed = asked.close(node);
            info!(logger, "the member has ended"; "well" => closed.is_ok());
            closed.map_err(|error| Failure::new(Status::System, error))
        }
        Ok(End::Orphaned) | Err(_) => {
            info!(logger, "standard input has ended: the member ends at once");
            Ok(())
        }
    }
}

/// The exit status of a member that did not start.
fn failure(error: &windlass::NodeError) -> Failure {
    use windlass::NodeError as E;
    let status = match error {
        E::Open(error) => crate::log::errors::open_status(error),
        E::Members { .. } | E::Geometry(_) | E::Option { .. } => Status::Usage,
        E::OtherMember { .. } | E::Lone { .. } | E::Create(_) => Status::Refused,
        E::Disk(_) | E::Listen { .. } | E::Fabric(_) | E::Control(_) | E::Driver(_) | E::System { .. } => {
            Status::System
        }
    };
    Failure::new(status, error)
}

/// Log lines on standard error, each written at once: a killed process loses none.
fn logger() -> Logger {
    let plain = slog_term::PlainSyncDecorator::new(std::io::stderr());
    Logger::root(slog_term::FullFormat::new(plain).build().fuse(), o!())
}
