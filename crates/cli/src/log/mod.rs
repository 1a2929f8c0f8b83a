//! `windlass log …`: the log in a folder.

mod append;
mod cut;
pub(crate) mod errors;
pub(crate) mod frame;
mod inspect;
pub(crate) mod output;
mod read;
mod repair;
pub(crate) mod source;

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use windlass::{Level, Lsn, OpenMode, Options};

use crate::exit::{Failure, Status, TABLE};
use crate::words::Words;

/// `windlass log`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = TABLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON: one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a new log in an absent or empty folder
    #[command(after_help = TABLE)]
    Create {
        /// The folder
        folder: PathBuf,
        /// Bytes of a segment, the log's unit of disk space: a power of two from 65536 (64 KiB) to 4294967296 (4 GiB). An
        /// empty log takes about three, because segments are prepared ahead
        #[arg(long, value_name = "N", default_value_t = 64 << 20)]
        segment_bytes: u64,
        /// Accept a copy-on-write or network filesystem too (btrfs, zfs, nfs, fuse, ...), where preallocation or locks don't hold
        #[arg(long)]
        any_filesystem: bool,
    },
    /// Append records and print the LSN range of each, `START END`, once its level is reached
    #[command(after_help = TABLE)]
    Append {
        /// The folder
        folder: PathBuf,
        #[command(flatten)]
        source: source::Source,
        /// What a printed record has survived: `buffered` a crash of this process, `local` loss of power
        #[arg(long, value_enum, default_value_t = AppendLevel::Local)]
        level: AppendLevel,
        /// Cap on bytes between the trim point and the tail, rounded up to whole segments, at least 4 of them; default 64
        /// segments, at least 1 GiB
        #[arg(long, value_name = "BYTES", value_parser = at_least_one, allow_negative_numbers = true)]
        retention_bytes: Option<u64>,
        #[command(flatten)]
        open: Open,
    },
    /// Print the records from an LSN on; needs no write access and works beside a running process
    #[command(after_help = TABLE)]
    Read {
        /// The folder
        folder: PathBuf,
        /// The LSN of the first record to print; default the trim point
        #[arg(long, value_name = "LSN", value_parser = lsn, allow_negative_numbers = true)]
        from: Option<Lsn>,
        /// How records are printed: `lines` (the default) payload and newline, also where the input's last line had none, `raw`
        /// payload alone, `hex` and `json` with their LSNs
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// What to do about a torn tail: `tail` reads up to it, `strict` refuses
        #[arg(long, value_enum, default_value_t = Mode::Tail)]
        mode: Mode,
    },
    /// Print what the log is: identity, epoch, watermarks; needs no write access
    ///
    /// `persisted` is the persisted mark: all below it is on the medium, as was last written down in the superblock (the small file
    /// with the log's identity and marks); more may be. Opening checks records from its segment on.
    #[command(after_help = TABLE)]
    Info {
        /// The folder
        folder: PathBuf,
    },
    /// Check every record: 0 clean, 1 torn tail, 2 damage; needs no write access and works beside a running process
    ///
    /// Every record from the trim point on, the headers of their segments and both copies of the superblock are checked; one
    /// damaged copy is a warning. Bytes that no record needs are not looked at: the rest of a header's page, unused segments, and
    /// the files `reserve` and `owner`. With --json, `verdict` says in words what `row` names: the row of the recovery table in
    /// DESIGN.md section 6 that decided.
    #[command(after_help = TABLE)]
    Verify {
        /// The folder
        folder: PathBuf,
        /// Accepted as everywhere: every record is checked, and a torn tail is status 1, in both modes
        #[arg(long, value_enum, default_value_t = Mode::Tail)]
        mode: Mode,
    },
    /// Release everything before an LSN: whole segments below it are given back
    ///
    /// What is released is not checked, but the log has to open: opening checks records from the segment of the persisted mark on, which
    /// may be the only one (with `--mode strict` everything), and refuses damage there. Older damage below the LSN goes with what is
    /// released, above it it stays: `windlass log verify` finds it. A log that does not open because it has had too many epochs since its
    /// trim point, one for each opening after a crash, is trimmed as it is opened; the words that refuse to open it say up to which START it has to be.
    #[command(after_help = TABLE)]
    Trim {
        /// The folder
        folder: PathBuf,
        /// The LSN of the first record to keep; the tail releases everything
        #[arg(long, value_name = "LSN", value_parser = lsn, allow_negative_numbers = true)]
        before: Lsn,
        #[command(flatten)]
        open: Open,
    },
    /// Cut the log: the record at this LSN and all behind it are gone, durably, and a new epoch begins
    ///
    /// What is cut is not checked: a damage at this LSN or above it goes with it, also one that keeps the log from being opened. Damage
    /// below it refuses where opening checks, from the persisted mark on (with `--mode strict` everything); older damage stays, and
    /// `windlass log verify` finds it.
    #[command(after_help = TABLE)]
    Truncate {
        /// The folder
        folder: PathBuf,
        /// The LSN of the first record to cut
        #[arg(long, value_name = "LSN", value_parser = lsn, allow_negative_numbers = true)]
        from: Lsn,
        #[command(flatten)]
        open: Open,
    },
    /// Bring a log that is damaged back to opening: mend what nothing is lost by, and give up what is named
    ///
    /// What loses nothing is always mended: a damaged copy of the superblock, damaged headers of segments, a torn tail. What was durable
    /// and is lost is given up only where --give-up names every range of it, as --dry-run prints them: whole records behind it stay,
    /// and filler takes its place. Whatever changes is copied into the quarantine first, with a note of what, from where, when and why;
    /// nothing is ever deleted. A repair that was cut short is gone on with by the next one. Nobody may have the log open.
    #[command(after_help = repair::TABLE)]
    Repair(repair::Repair),
    /// Read everything readable of a damaged log into a new one, passing over damage; the damaged log is never changed
    ///
    /// Records keep their order and get new LSNs; batches stay batches. Whole records behind a torn end come too, though nobody may
    /// ever have been told of them. Needs no write access to the folder; nobody may have the log open.
    #[command(after_help = repair::TABLE)]
    Salvage {
        /// The folder of the damaged log
        folder: PathBuf,
        /// The folder of the new log: absent or empty
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
        /// Accept a copy-on-write or network filesystem for the new log too
        #[arg(long)]
        any_filesystem: bool,
    },
}

/// A byte position in a log.
fn lsn(text: &str) -> Result<Lsn, &'static str> {
    text.parse()
        .map(Lsn)
        .map_err(|_| "must be an LSN: a whole number, as `append` and `read --format hex` print them")
}

fn at_least_one(text: &str) -> Result<u64, &'static str> {
    match text.parse() {
        Ok(0) => Err("must be at least 1"),
        Ok(number) => Ok(number),
        Err(_) => Err("must be a whole number, at least 1"),
    }
}

/// How the log is opened for writing.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Open {
    /// What to do about a torn tail: `tail` cuts it, `strict` refuses to open, and checks every record
    #[arg(long, value_enum, default_value_t = Mode::Tail)]
    mode: Mode,
    /// Accept a copy-on-write or network filesystem too (btrfs, zfs, nfs, fuse, ...), where preallocation or locks don't hold
    #[arg(long)]
    any_filesystem: bool,
}

impl Open {
    fn options(self) -> Options {
        Options::new().mode(self.mode.into()).any_filesystem(self.any_filesystem)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Mode {
    Strict,
    Tail,
}

impl From<Mode> for OpenMode {
    fn from(mode: Mode) -> OpenMode {
        match mode {
            Mode::Strict => OpenMode::Strict,
            Mode::Tail => OpenMode::Tail,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum AppendLevel {
    Buffered,
    Local,
}

impl From<AppendLevel> for Level {
    fn from(level: AppendLevel) -> Level {
        match level {
            AppendLevel::Buffered => Level::Buffered,
            AppendLevel::Local => Level::Local,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Lines,
    Raw,
    Hex,
    Json,
}

impl Command {
    /// The log's folder.
    fn folder(&self) -> &Path {
        match self {
            Command::Repair(orders) => &orders.folder,
            Command::Create { folder, .. }
            | Command::Append { folder, .. }
            | Command::Read { folder, .. }
            | Command::Info { folder }
            | Command::Verify { folder, .. }
            | Command::Trim { folder, .. }
            | Command::Truncate { folder, .. }
            | Command::Salvage { folder, .. } => folder,
        }
    }
}

/// Runs one subcommand.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let words = Words::of_log(args.command.folder());
    dispatch(args).map_err(|failure| Failure { message: words.put(&failure.message), ..failure })
}

fn dispatch(args: Args) -> Result<(), Failure> {
    let json = args.json;
    match args.command {
        Command::Create { folder, segment_bytes, any_filesystem } => {
            let options = Options::new().segment_bytes(segment_bytes).any_filesystem(any_filesystem);
            cut::create(&folder, options, json)
        }
        Command::Append { folder, source, level, retention_bytes, open } => {
            let mut options = open.options();
            if let Some(bytes) = retention_bytes {
                options = options.retention_bytes(bytes);
            }
            append::run(&append::Append { folder, options, source, level: level.into(), json })
        }
        Command::Read { folder, from, format, mode } => {
            let format = match (format, json) {
                (None | Some(Format::Json), true) => Format::Json,
                (Some(Format::Lines | Format::Raw | Format::Hex), true) => {
                    let message = "--json prints JSON, and --format names another: leave one of them out";
                    return Err(Failure::new(Status::Usage, message));
                }
                (format, false) => format.unwrap_or(Format::Lines),
            };
            read::run(&folder, from, format, mode.into())
        }
        Command::Info { folder } => inspect::info(&folder, json),
        Command::Verify { folder, mode } => inspect::verify(&folder, mode.into(), json),
        Command::Trim { folder, before, open } => cut::trim(&folder, open.options(), before, json),
        Command::Repair(orders) => repair::repair(&orders, json),
        Command::Salvage { folder, to, any_filesystem } => {
            repair::salvage(&folder, &to, any_filesystem, json)
        }
        Command::Truncate { folder, from, open } => cut::truncate(&folder, open.options(), from, json),
    }
}
