//! `windlass node …`: one member of a group as a process, served to clients over a Unix socket.

mod clients;
pub(crate) mod config;
pub(crate) mod fabric;
mod opening;
mod serve;
mod socket;

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use slog::{Drain as _, LevelFilter, Logger, info, o, warn};
use windlass::{Node, NodeCloseError, NodeEvent};

use self::config::Config;
use self::fabric::FabricArgs;
use self::opening::Opening;
use self::serve::Service;
use self::socket::BindError;
use crate::exit::{Failure, Status, lack};
use crate::words::{Worded, Words};

/// How the process ends, as its `--help` prints it.
const STATUSES: &str = "\
Exit status:
  0   ended well, by SIGTERM, SIGINT or a client: the log is flushed and marked clean
  2   damage: bytes of the member's log that were durable no longer hold
  3   refused: the folder is another member's or a lone log, or the folder above it is not there
  4   the folder, or the socket for clients, is in use by another process
  5   the system failed: the medium, the network, the device; or the member has ended by itself
  64  the command line or the group's file is wrong
  130 or 143: a second SIGINT or SIGTERM ended it at once, like a crash

The log lines on standard error: README.md, \"Run a group\".";

/// `windlass node`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUSES)]
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
    /// Where --fabric tcp listens. Default: the address of the control plane, at a free port
    #[arg(long, value_name = "ADDRESS", conflicts_with = "device")]
    fabric_bind: Option<SocketAddr>,
    /// What other members dial to reach --fabric tcp, where it is not what it listens on: a forwarded port
    #[arg(long, value_name = "ADDRESS", conflicts_with = "device")]
    fabric_advertise: Option<SocketAddr>,
    #[command(flatten)]
    fabric: FabricArgs,
}

/// Why the process ends.
enum End {
    /// A client asked; it is told once the member has ended.
    Asked(serve::Asked),
    /// The parent is gone.
    Orphaned,
    /// The member has ended by itself: its device is gone, for one.
    Gone,
    /// SIGTERM or SIGINT.
    Signal(i32),
}

/// After how long it is said that the folder is still being opened.
const OPENING: Duration = Duration::from_secs(1);
/// How long a clean end waits for requests that are being worked on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the member until a client closes it, or SIGTERM or SIGINT asks for its end.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = Config::read(&args.config)?;
    let member = config.member(args.member)?;
    check_parent(&member.folder, "the member's folder")?;
    check_parent(&member.client, "the member's socket")?;
    let words = Words::of_member(&args.config, args.member, &member.folder);
    let logger = logger(words.clone());
    let options = args.fabric.apply(config.options(args.member, logger.clone())?)?;
    let options = match args.fabric_bind {
        Some(address) => options.fabric_bind(address),
        None => options,
    };
    let options = match args.fabric_advertise {
        Some(address) => options.fabric_advertise(address),
        None => options,
    };
    let level = config.level()?;

    let opening = Opening::new(&member.folder, OPENING, logger.clone());
    let node =
        Node::open_or_create(&member.folder, options).map_err(|error| failure(&error, args, &words))?;
    drop(opening);
    let node = Arc::new(node);
    let (listener, socket) = socket::bind(&member.client).map_err(|error| socket_failure(&error, args))?;
    let (ends, ended) = channel();
    if args.exit_with_stdin {
        let ends = ends.clone();
        start("stdin", move || {
            // Whatever comes: only the end counts.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            let _ = ends.send(End::Orphaned);
        })?;
    }
    listen_for_the_end(&node, &ends)?;
    listen_for_signals(&ends)?;
    let service = Service::new(&node, &member.folder, level, config.pass()?, words, logger.clone());
    start("listen", move || service.listen(&listener, &ends))?;
    info!(
        logger,
        "member {} is ready: control {}, clients {}",
        node.info().member,
        node.info().address,
        member.client.display()
    );
    if member.joins && node.members().configuration.is_unknown() {
        let file = args.config.canonicalize().unwrap_or_else(|_| args.config.clone());
        let add = crate::group::adding(&file, args.member);
        info!(
            logger,
            "m{} takes part once the group has it; where it was not added yet: {}", args.member, add
        );
    }
    let end = ended.recv().unwrap_or(End::Orphaned);
    // While the folder's lock is held: whoever opens the folder next puts its own there. Clients that come now are told at once that nobody serves them.
    if let Err(error) = socket.remove() {
        warn!(logger, "{} was not removed", member.client.display(); "cause" => %error);
    }
    finish(node, end, &logger)
}

/// A file is made, but not the folder in which it is to be.
fn check_parent(file: &Path, what: &str) -> Result<(), Failure> {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => Err(Failure::new(
            Status::Refused,
            format_args!(
                "{what} is to be {}, but the folder {} does not exist: make it first (`mkdir -p {}`)",
                file.display(),
                parent.display(),
                parent.display()
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

/// A member that can't go on ends, and its process with it, so that whoever watches over it can start it again.
fn listen_for_the_end(node: &Node, ends: &Sender<End>) -> Result<(), Failure> {
    let (mut events, ends) = (node.events(), ends.clone());
    start("events", move || {
        while let Some(event) = events.next_blocking(None) {
            if matches!(event, NodeEvent::Ended) {
                let _ = ends.send(End::Gone);
                return;
            }
        }
    })
}

/// From now on the first SIGTERM or SIGINT asks for a clean end, and the second one ends the process at once.
fn listen_for_signals(ends: &Sender<End>) -> Result<(), Failure> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| missing("listening for signals", &error))?;
    let ends = ends.clone();
    start("signals", move || {
        let mut is_asked = false;
        for signal in signals.forever() {
            if is_asked {
                // As a shell shows a process that died of it.
                std::process::exit(128 + signal);
            }
            is_asked = true;
            let _ = ends.send(End::Signal(signal));
        }
    })
}

/// A thread that nobody waits for.
fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    thread(name).spawn(body).map(drop).map_err(|error| missing("starting a thread", &error))
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(format!("windlass-{name}"))
}

/// What the system does not give, with what to raise.
fn missing(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Status::System, format_args!("{what}: {error}{}", lack(error)))
}

/// Why the member's socket was not made.
fn socket_failure(error: &BindError, args: &Args) -> Failure {
    let status = match error {
        BindError::Served { .. } => Status::InUse,
        BindError::NoSocket { .. } => Status::Usage,
        BindError::System { .. } => Status::System,
    };
    let hint = format_args!("give m{} another `client` in {}", args.member, args.config.display());
    match error {
        BindError::Served { .. } | BindError::NoSocket { .. } => {
            Failure::new(status, format_args!("{error}: {hint}"))
        }
        BindError::System { source, .. } => Failure::new(status, format_args!("{error}{}", lack(source))),
    }
}

/// Ends the member well.
fn close(mut node: Arc<Node>) -> Result<(), NodeCloseError> {
    let patience = Instant::now() + PATIENCE;
    loop {
        match Arc::try_unwrap(node) {
            Ok(owned) => return owned.close(),
            // A request holds it for good: the next opening recovers.
            Err(_) if Instant::now() > patience => return Err(NodeCloseError::Unclean { stopped: None }),
            Err(shared) => node = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn finish(node: Arc<Node>, end: End, logger: &Logger) -> Result<(), Failure> {
    match end {
        End::Asked(asked) => {
            let closed = close(node);
            asked.tell(&closed);
            ended(closed, logger)
        }
        End::Signal(signal) => {
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            info!(logger, "{} came: the member ends well; a second signal ends it at once", name);
            ended(close(node), logger)
        }
        End::Gone => {
            drop(node);
            let message = "the member can't go on, as its lines say: start it again once that is mended";
            Err(Failure::new(Status::System, message))
        }
        End::Orphaned => {
            info!(logger, "standard input has ended: the member ends at once");
            Ok(())
        }
    }
}

fn ended(closed: Result<(), NodeCloseError>, logger: &Logger) -> Result<(), Failure> {
    info!(logger, "the member has ended {}", if closed.is_ok() { "well" } else { "without a clean mark" });
    closed.map_err(|error| Failure::new(Status::System, error))
}

/// The exit status of a member that did not start.
fn failure(error: &windlass::NodeError, args: &Args, words: &Words) -> Failure {
    use windlass::NodeError as E;
    use windlass::store::OpenError as StoreError;
    let number = args.member;
    let status = match error {
        E::Open(error) => crate::log::errors::open_status(error),
        E::Members { .. } | E::Quorums(_) | E::Geometry(_) | E::Option(_) => Status::Usage,
        E::OtherMember { .. }
        | E::OtherGroup { .. }
        | E::Founded { .. }
        | E::SegmentBytes { .. }
        | E::Lone { .. }
        | E::Staging { .. }
        | E::Create(_) => Status::Refused,
        #[cfg(feature = "verbs")]
        E::Verbs(_) => Status::System,
        E::Disk(_)
        | E::Listen { .. }
        | E::Fabric(_)
        | E::Control(_)
        | E::Driver(_)
        | E::Thread(_)
        | E::System { .. } => Status::System,
    };
    let file = args.config.display();
    let hint = if let E::Open(
        StoreError::SuperblockMissing { .. }
        | StoreError::Superblock { .. }
        | StoreError::SuperblockOlder { .. }
        | StoreError::PastCleanMark { .. },
    ) = error
    {
        // What it had promised is gone with it.
        format!(
            "; where a majority of the group runs without m{number}, nothing is to be restored: a new member takes its place ({}; README, \"Members come and go\")",
            crate::group::command(&args.config, &format_args!("replace {number} NEW"))
        )
    } else if let E::Open(StoreError::SegmentFile { .. }) = error {
        format!(
            " (with --dry-run it only says what that is); then start m{number} again, and its peers send it what is lost"
        )
    } else if let E::Open(StoreError::SegmentNoFile { .. }) = error {
        format!(
            "; where there is none, start m{number} all the same once it is away: its peers send it what is lost"
        )
    } else if let E::Listen { source, .. } = error {
        if source.kind() == std::io::ErrorKind::AddrInUse {
            format!(
                "; another process has this port: end that, or give m{number} another one (`control` in {file}, the same in each member's file; `windlass \
                 group init --ports N` makes a group with ports from N on)"
            )
        } else {
            format!("; start m{number} where this address is, or change `control` in {file}")
        }
    } else if let E::Thread(_) = error {
        // It says so itself.
        String::new()
    } else {
        lacking(error).to_owned()
    };
    Failure::new(status, format_args!("{}{hint}", words.put(error)))
}

/// What to raise where the system has not given what the member needs, which the error itself may not say.
fn lacking(error: &windlass::NodeError) -> &'static str {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return lack(error);
        }
        cause = error.source();
    }
    ""
}

/// Log lines on standard error, each written at once: a killed process loses none. One that can't be written, to a full disk or a pipe that nobody reads any
/// more, is left out: the member goes on, and so do its lines once they can be written again.
fn logger(words: Words) -> Logger {
    let plain = slog_term::PlainSyncDecorator::new(Worded { to: std::io::stderr(), words });
    let format =
        slog_term::FullFormat::new(plain).use_custom_timestamp(timestamp).use_original_order().build();
    Logger::root(LevelFilter::new(format, slog::Level::Info).ignore_res(), o!())
}

/// Date and time to the millisecond, in UTC, as RFC 3339 has them.
fn timestamp(to: &mut dyn std::io::Write) -> std::io::Result<()> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (seconds, of_day) = (since.as_secs(), since.as_secs() % 86_400);
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    write!(
        to,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
}

/// The Gregorian date so many days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_hold_across_leap_years_and_centuries() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (364, (1970, 12, 31)),
            (789, (1972, 2, 29)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_722, (2023, 12, 31)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(super::date(days), date, "{days}");
        }
    }
}
