//! Small worlds of the engine by hand, larger than those that the ordinary tests go through (`crates/engine/tests/worlds.rs`).

use std::process::{Command, ExitCode};

use clap::Args;

use crate::{Context, steps};

/// The bounds of a world: how often each kind of event happens at most.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Members
    #[arg(long, default_value_t = 3)]
    members: u8,
    /// Epochs that are asked for, the first among them
    #[arg(long, default_value_t = 3)]
    epochs: u8,
    /// Appends, beside the records that begin a tenure
    #[arg(long, default_value_t = 3)]
    records: u8,
    /// Deaths of a process, at any step of its store
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Losses of power, each with any part kept of what was not flushed
    #[arg(long, default_value_t = 0)]
    power_losses: u8,
    /// Fabric connections that break, and fetches that take too long
    #[arg(long, default_value_t = 0)]
    breaks: u8,
    /// Control connections that are cut and made again
    #[arg(long, default_value_t = 0)]
    cuts: u8,
    /// Heartbeats
    #[arg(long, default_value_t = 0)]
    beats: u8,
    /// Tenures that end by themselves
    #[arg(long, default_value_t = 0)]
    resigns: u8,
    /// Handovers
    #[arg(long, default_value_t = 0)]
    handovers: u8,
    /// Of the members those that are not in the group at first
    #[arg(long, default_value_t = 0)]
    spares: u8,
    /// Changes of members that a primary is asked for
    #[arg(long, default_value_t = 0)]
    changes: u8,
    /// A change adds a member
    #[arg(long)]
    adds: bool,
    /// A change removes a member
    #[arg(long)]
    removes: bool,
    /// A change replaces a member
    #[arg(long)]
    replaces: bool,
    /// The group allows `Replicated`: every second record is asked for at that level
    #[arg(long)]
    replicated: bool,
    /// Operations of the store take effect one by one, with anything else in between
    #[arg(long)]
    store_in_steps: bool,
    /// A flush takes its time
    #[arg(long)]
    flush_apart: bool,
    /// A completion takes its time
    #[arg(long)]
    completions_apart: bool,
    /// A notice is read some time after its write has landed
    #[arg(long)]
    notices_apart: bool,
    /// Begin with members that have just met, in place of a primary whose first record is durable
    #[arg(long)]
    from_genesis: bool,
    /// Go through orders that come to the same one by one, too
    #[arg(long)]
    every_order: bool,
    /// Stop after so many states; some 25 bytes of memory each
    #[arg(long, default_value_t = 400_000_000)]
    states: u64,
}

pub(crate) fn command(context: &Context, arguments: &Arguments) -> ExitCode {
    println!("commit {}", steps::commit(context));
    let a = arguments;
    let bounds: [(&str, u64); 23] = [
        ("MEMBERS", a.members.into()),
        ("EPOCHS", a.epochs.into()),
        ("RECORDS", a.records.into()),
        ("CRASHES", a.crashes.into()),
        ("POWER_LOSSES", a.power_losses.into()),
        ("BREAKS", a.breaks.into()),
        ("CUTS", a.cuts.into()),
        ("BEATS", a.beats.into()),
        ("RESIGNS", a.resigns.into()),
        ("HANDOVERS", a.handovers.into()),
        ("SPARES", a.spares.into()),
        ("CHANGES", a.changes.into()),
        ("ADDS", a.adds.into()),
        ("REMOVES", a.removes.into()),
        ("REPLACES", a.replaces.into()),
        ("REPLICATED", a.replicated.into()),
        ("STORE_IN_STEPS", a.store_in_steps.into()),
        ("FLUSH_APART", a.flush_apart.into()),
        ("COMPLETIONS_APART", a.completions_apart.into()),
        ("NOTICES_APART", a.notices_apart.into()),
        ("FROM_GENESIS", a.from_genesis.into()),
        ("REDUCED", (!a.every_order).into()),
        ("STATES", a.states),
    ];
    crate::say_building("the engine's small worlds");
    let test = ["test", "--release", "--quiet", "-p", "windlass-engine", "--test", "worlds", "--"];
    let status = Command::new("cargo")
        .args(test)
        .args(["--ignored", "--exact", "by_hand", "--nocapture"])
        .envs(bounds.map(|(name, value)| (format!("WORLD_{name}"), value.to_string())))
        .current_dir(&context.root)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
