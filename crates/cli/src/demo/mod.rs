//! `windlass demo`: three members on this machine, the primary killed or frozen mid-stream, everything acknowledged checked.
//!
//! The members are processes of this same program; this process is their one client. It alone knows what was acknowledged, and at the
//! end it reads every member's files and compares. DESIGN.md section 9.3.

mod check;
mod cluster;
mod feed;
mod input;
mod ledger;
mod report;
mod strike;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use self::check::Checked;
use self::cluster::{Cluster, Plan};
use self::feed::{Feed, Until};
use self::input::Input;
use self::report::{OfMember, Progress, Report, Takeover};
use self::strike::{Fault, Faults, Late};
use crate::client::Standing;
use crate::exit::{Failure, Status};
use crate::log::frame::Framing;
use crate::log::output::{Output, say};
use crate::node::fabric::FabricArgs;

/// How long members may take to learn what is durable, at the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the demo ends, as its `--help` prints it.
const STATUSES: &str = "\
Exit status:
  0   every acknowledged record is on every member: once, in order, unaltered
  2   an acknowledged record is missing, altered, repeated or out of order; the folders are kept
  3   refused: the folder is not empty, the input is empty or has too long a record
  5   the system failed, or no primary was found, or a member ended by itself; the folders are kept
  64  the command line is wrong";

/// `windlass demo`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUSES)]
pub(crate) struct Args {
    /// How many members
    #[arg(long, value_name = "3|5", default_value = "3", value_parser = ["3", "5"])]
    members: String,
    /// How long to send records, in seconds; longer if the kills take longer
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How often to strike the primary
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    kills: u32,
    /// Strike the last time, and end, only once so many of the windows that open members' memory to primaries have come to the end of their
    /// keys and were replaced, summed over the processes that run
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "no_windows")]
    used_up_windows: u64,
    /// What is done to the primary
    #[arg(long, value_enum, default_value_t = Fault::Kill, value_name = "FAULT")]
    faults: Fault,
    /// A shell command that is run as `CMD begin N` to strike primary N, and as `CMD end N` to take that away: around a freeze,
    /// or, with `--faults command`, by itself
    #[arg(long, value_name = "CMD", required_if_eq("faults", "command"))]
    fault_command: Option<String>,
    /// How long a fault of kind `command` lasts
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    fault_ms: u64,
    /// Words before each member's command, `{}` standing for its number: `ip netns exec host{}`
    #[arg(long, value_name = "WORDS")]
    launch: Option<String>,
    /// Where the members' control planes listen, `{}` standing for the number: `10.0.0.{}:7400`. Default: free ports on loopback
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// What an acknowledgement means: `durable` on the disks of a majority, `replicated` in the memory of a majority
    #[arg(long, value_enum, default_value_t = Level::Durable)]
    level: Level,
    /// Records from this file, a record a line, repeated as needed; `-` is standard input. Default: windlass's own sources,
    /// in records of --payload bytes
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// With --input: a record every BYTES bytes instead of a record a line
    #[arg(long, value_name = "BYTES", requires = "input", value_parser = clap::value_parser!(u64).range(1..))]
    frame: Option<u64>,
    /// Bytes of a record of the default input
    #[arg(long, value_name = "BYTES", default_value_t = 256, conflicts_with = "input",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    payload: u64,
    /// Records in flight at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    in_flight: u16,
    /// Bytes of a segment: a power of two from 64 KiB on. The default is small enough to roll over while one watches
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = segment_bytes)]
    segment_bytes: u64,
    /// Silence after which a primary is suspected
    #[arg(long, value_name = "MS", default_value_t = 400, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    suspicion_ms: u64,
    /// Where the members keep their logs: an absent or empty folder, which stays. Default: a temporary one
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Accept a filesystem on which preallocation or locks are not known to hold
    #[arg(long)]
    any_filesystem: bool,
    #[command(flatten)]
    fabric: FabricArgs,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Level {
    Replicated,
    Durable,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Replicated => "replicated",
            Level::Durable => "durable",
        }
    }
}

/// A size that a segment can have, before any member is started that would have to refuse it.
fn segment_bytes(word: &str) -> Result<u64, String> {
    let bytes: u64 = word.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    if !(64 << 10..=4 << 30).contains(&bytes) || !bytes.is_power_of_two() {
        return Err("use a power of two from 65536 (64 KiB) to 4294967296 (4 GiB)".to_owned());
    }
    Ok(bytes)
}

/// Runs the demo. The temporary folder goes if all went well, and stays to be looked at if not.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = match &args.input {
        Some(file) => Input::read(file, args.frame.map_or(Framing::Lines, Framing::Bytes))?,
        None => Input::default(args.payload)?,
    };
    let temporary = tempfile::Builder::new()
        .prefix("windlass-demo-")
        .tempdir()
        .map_err(|error| Failure::io("a temporary folder", &error))?;
    let folder = match &args.folder {
        Some(folder) => absent_or_empty(folder)?,
        None => temporary.path().to_path_buf(),
    };
    match run_in(args, &input, &folder, temporary.path()) {
        Ok(()) => Ok(()),
        Err(mut failure) => {
            let kept = temporary.keep();
            failure.message = format!(
                "{}\nwindlass: the members' logs are kept in {}, their log lines in {}",
                failure.message,
                folder.display(),
                kept.join("m*.log").display()
            );
            Err(failure)
        }
    }
}

fn run_in(args: &Args, input: &Input, folder: &Path, run: &Path) -> Result<(), Failure> {
    let mut progress = Progress::new(args.json);
    let members = if args.members == "5" { 5 } else { 3 };
    let stays = if args.folder.is_some() { "" } else { " (removed at the end unless something is wrong)" };
    progress.plain(&format!("{members} members on this machine, their logs in {}{stays}", folder.display()));
    progress.plain(&format!(
        "{} records from {}, used over and over, each with its number (8 bytes) in front",
        input.records(),
        input.name
    ));
    let plan = Plan {
        members,
        level: args.level.name().to_owned(),
        segment_bytes: args.segment_bytes,
        suspicion_ms: args.suspicion_ms,
        any_filesystem: args.any_filesystem,
        address: args.address.clone(),
        fabric: args.fabric.clone(),
        launch: args.launch.iter().flat_map(|words| words.split_whitespace()).map(str::to_owned).collect(),
    };
    let faults = Faults {
        fault: args.faults,
        command: args.fault_command.clone(),
        lasts: Duration::from_millis(args.fault_ms),
    };
    let mut cluster = Cluster::start(folder, run, &plan)?;
    let mut feed = Feed::new(&mut cluster, input, &mut progress, usize::from(args.in_flight), faults)?;
    let start = feed.ledger.end;
    let until = Until {
        length: Duration::from_secs(args.seconds),
        strikes: args.kills,
        used_up: args.used_up_windows,
    };
    let fed = feed.run(&until)?;
    let Feed { ledger, latency_us, takeovers, .. } = feed;

    progress.say("sending is over; every member ends, and its log is read from its files");
    let last = end(&mut cluster, ledger.end)?;
    let checked: Vec<(String, Checked)> = (0..cluster.len())
        .map(|member| {
            let checked = check::check(cluster.folder(member), start, input, &ledger);
            (cluster.name(member), checked)
        })
        .collect();
    let sum = |of: fn(&Checked) -> u64| checked.iter().map(|(_, c)| of(c)).sum();
    let acknowledged = ledger.acknowledged();
    let report = Report {
        records: ledger.next,
        acknowledged,
        lost: sum(|c| c.lost),
        duplicated: sum(|c| c.duplicated),
        altered: sum(|c| c.altered),
        extra: sum(|c| c.extra),
        unreadable: sum(|c| u64::from(c.unreadable.is_some())),
        late: late_sum(&takeovers),
        takeovers,
        windows: last
            .iter()
            .map(|standing| OfMember { member: standing.by, counted: standing.windows })
            .collect(),
        batches: last
            .iter()
            .map(|standing| OfMember { member: standing.by, counted: standing.batches })
            .collect(),
        completions_lost: last.iter().map(|standing| standing.completions_lost).collect(),
        level: args.level.name().to_owned(),
        members: cluster.len(),
        seconds: fed.as_secs_f64(),
        throughput_per_s: rate(acknowledged, fed),
        p50_us: latency_us.value_at_quantile(0.5),
        p99_us: latency_us.value_at_quantile(0.99),
        input: input.name.clone(),
        ok: acknowledged == ledger.next && checked.iter().all(|(_, c)| c.is_right()),
    };
    if args.json {
        let json = serde_json::to_string(&report).map_err(|error| Failure::new(Status::System, error))?;
        say(format_args!("{json}"))?;
    } else {
        let mut output = Output::new();
        output.bytes(report::table(&report, &checked).as_bytes())?;
        output.flush()?;
    }
    if report.ok {
        Ok(())
    } else {
        Err(Failure::new(Status::Damage, "the members' logs are not what was acknowledged"))
    }
}

/// What all thawed primaries said and did, together.
fn late_sum(takeovers: &[Takeover]) -> Late {
    takeovers.iter().filter_map(|takeover| takeover.late).fold(Late::default(), |sum, late| Late {
        acknowledged: sum.acknowledged + late.acknowledged,
        unknown: sum.unknown + late.unknown,
        refused: sum.refused + late.refused,
        void_batches: sum.void_batches.saturating_add(late.void_batches),
    })
}

/// Waits until every member knows that all of it is durable, and ends them well. Where each then stood.
fn end(cluster: &mut Cluster, end: u64) -> Result<Vec<Standing>, Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = Vec::new();
    for member in 0..cluster.len() {
        loop {
            let standing = cluster.standing(member).filter(|standing| standing.durable >= end);
            if let Some(standing) = standing {
                last.push(standing);
                break;
            }
            cluster.check_alive(None)?;
            if Instant::now() > deadline {
                let message = format_args!(
                    "{} does not learn within {} s that all acknowledged records are durable",
                    cluster.name(member),
                    PATIENCE.as_secs()
                );
                return Err(Failure::new(Status::System, message));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    (0..cluster.len()).try_for_each(|member| cluster.close(member))?;
    Ok(last)
}

/// The folder, if nothing in it can be mistaken for this run's.
fn absent_or_empty(folder: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder.display(), &error))?;
    let mut entries = std::fs::read_dir(folder).map_err(|error| Failure::io(folder.display(), &error))?;
    if entries.next().is_some() {
        let message = format_args!("{} is not empty: name an absent or empty folder", folder.display());
        return Err(Failure::new(Status::Refused, message));
    }
    std::path::absolute(folder).map_err(|error| Failure::io(folder.display(), &error))
}

#[expect(clippy::cast_precision_loss, reason = "a rate, for people")]
fn rate(events: u64, time: Duration) -> f64 {
    events as f64 / time.as_secs_f64().max(1e-9)
}
