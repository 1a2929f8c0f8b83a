//! The store as a command.
#![forbid(unsafe_code)]

mod bench;
mod serve;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use embed_redb::{Options, Store};

/// A key-value store with its tables in redb and its log in windlass
#[derive(Debug, Parser)]
#[command(name = "embed_redb", version)]
struct Cli {
    /// The store's folder; made where there is none
    dir: PathBuf,
    /// What a write waits for: buffered or durable
    #[arg(long, default_value = "durable")]
    level: windlass::Level,
    /// Bytes of log after which a checkpoint is made
    #[arg(long, default_value_t = 64 << 20)]
    checkpoint_bytes: u64,
    /// The size of a log segment, for a new store: a power of two from 64 KiB to 4 GiB
    #[arg(long, default_value_t = 64 << 20)]
    segment_bytes: u64,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Store a value
    Put { key: String, value: String },
    /// Print a value; status 1 if the key is not there
    Get { key: String },
    /// Take a key away
    Delete { key: String },
    /// Print every pair, key and value with a tab in between
    List,
    /// Make the tables durable and trim the log
    Checkpoint,
    /// Carry out operations from standard input, acknowledging each on standard output
    Serve(serve::Args),
    /// Measure puts, beside redb alone with a durable transaction for each
    Bench(bench::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("embed_redb: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Box<dyn Error>> {
    let options = Options {
        level: cli.level,
        checkpoint_bytes: cli.checkpoint_bytes,
        log: windlass::Options::new().segment_bytes(cli.segment_bytes),
    };
    let store = Store::open(&cli.dir, options)?;
    let mut status = ExitCode::SUCCESS;
    let mut out = std::io::stdout().lock();
    match cli.command {
        Command::Put { key, value } => store.put(key.as_bytes(), value.as_bytes())?,
        Command::Get { key } => match store.get(key.as_bytes())? {
            Some(value) => {
                out.write_all(&value)?;
                out.write_all(b"\n")?;
            }
            None => status = ExitCode::from(1),
        },
        Command::Delete { key } => store.delete(key.as_bytes())?,
        Command::List => {
            let mut written = Ok(());
            store.scan(|key, value| {
                written = [key, b"\t", value, b"\n"].iter().try_for_each(|bytes| out.write_all(bytes));
                written.is_ok()
            })?;
            written?;
        }
        Command::Checkpoint => writeln!(out, "trimmed up to LSN {}", store.checkpoint()?)?,
        Command::Serve(args) => {
            drop(out);
            serve::run(&store, &args)?;
        }
        Command::Bench(args) => bench::run(&store, &cli.dir, &args, &mut out)?,
    }
    store.close()?;
    Ok(status)
}
