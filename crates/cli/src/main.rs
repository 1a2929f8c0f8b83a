//! The `windlass` command.
//!
//! `windlass log …` works on the folder of one log. Every failure is one plain line on standard error that says what to do, and
//! an exit status from one table ([`exit::TABLE`]).
#![forbid(unsafe_code)]
// Both panic where their stream can't be written: see `exit::tell` and `log::output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod chaos;
mod client;
mod demo;
mod doctor;
mod exit;
mod group;
mod log;
mod node;
mod session;
mod view;
mod words;

use std::process::ExitCode;

use clap::Parser;

/// An embedded write-ahead-log replication engine: tools and the demo cluster.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true, after_help = BEGIN)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Where to begin, and where the rest is told.
const BEGIN: &str = "\
Begin with `windlass demo`: some seconds, and it leaves nothing behind. Each command's --help tells its exit statuses; all have
  0   done
  5   the system failed
  64  the command line is wrong
README.md goes through a group of three, and through what can be done about a damaged log.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make, fill, read, check and cut the log in a folder
    Log(log::Args),
    /// Run three members on this machine, kill the primary mid-stream, and check that nothing acknowledged is lost
    Demo(demo::Args),
    /// Run a group under random faults for a time, and check what its clients saw
    #[command(hide = true)]
    Chaos(chaos::Args),
    /// Run one member of a group
    Node(node::Args),
    /// Make a group's file; ask, fill and read a group that runs
    Group(group::Args),
    /// Say what this machine offers windlass, what is wrong with it, and the command that changes it
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no failures. If standard error is gone there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(exit::Status::Usage.code())
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let outcome = match cli.command {
        Command::Log(args) => log::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Group(args) => group::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // As other tools, whom the signal SIGPIPE ends.
            if failure.status != exit::Status::Pipe && !failure.message.is_empty() {
                exit::tell(failure.message);
            }
            ExitCode::from(failure.status.code())
        }
    }
}
