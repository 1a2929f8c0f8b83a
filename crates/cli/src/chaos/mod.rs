//! `windlass chaos`: a group of real processes under random faults, clients that write down what they see, and a check that one log explains it.
//!
//! `cargo xtask chaos` runs it. DESIGN.md section 9.8.
#![allow(clippy::print_stdout, reason = "a test's own output, which `cargo xtask chaos` reads to its end")]

mod clients;
mod faults;
mod history;
mod members;
mod proxy;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use windlass::{Lsn, OpenMode, ReadError, ReadOnly};

use self::clients::{Shared, appender, id_of, reader};
use self::faults::{Disks, Faults};
use self::history::{History, Verdict};
use self::members::Members;
use self::proxy::Links;
use crate::exit::{Failure, Status};

/// How long the group may take to be whole again once all faults have ended.
const HEALING: Duration = Duration::from_secs(60);
/// How long it may take to have its first primary.
const BEGINNING: Duration = Duration::from_secs(60);

/// `windlass chaos`'s arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long faults are made, in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seconds: u64,
    /// Which faults, and when; what the processes make of them is up to the machine
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many members
    #[arg(long, value_name = "3|5", default_value = "3", value_parser = ["3", "5"])]
    members: String,
    /// How many clients append, each with a reader beside it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    clients: u8,
    /// Appends of each client in a second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// Silence after which a primary is suspected
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    suspicion_ms: u64,
    /// The size of each member's disk, a filesystem in memory, that is filled up at times; 0 for folders that are not
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    disk_mib: u64,
    /// Empty a member's disk at times, and have a new member take its place
    #[arg(long)]
    empty_disks: bool,
}

/// Runs it. The folder stays if something is wrong.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let temporary = tempfile::Builder::new()
        .prefix("windlass-chaos-")
        .tempdir()
        .map_err(|error| Failure::io("a temporary folder", &error))?;
    let count = if args.members == "5" { 5 } else { 3 };
    let disks = Disks::make(temporary.path(), count, args.disk_mib)?;
    match run_in(args, temporary.path(), &disks) {
        Ok(()) => Ok(()),
        Err(mut failure) => {
            let kept = temporary.keep();
            disks.keep();
            failure.message =
                format!("{}\nwindlass: everything is kept in {}", failure.message, kept.display());
            Err(failure)
        }
    }
}

fn run_in(args: &Args, run: &Path, disks: &Disks) -> Result<(), Failure> {
    println!(
        "seed {}, {} s of faults, {} members, {} clients",
        args.seed,
        args.seconds,
        disks.folders.len(),
        args.clients
    );
    if let Some(why) = &disks.skipped {
        println!("SKIPPED full disks: {why}");
    }
    let links = Links::new(disks.folders.len());
    let mut members = Members::start(disks.folders.len(), &disks.folders, run, args.suspicion_ms, &links)?;
    let start = first_primary(&mut members)?;
    let shared = Arc::new(Shared {
        sockets: members.sockets.clone(),
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
        start,
        rate: args.rate,
    });
    let clients = u64::from(args.clients);
    let mut threads: Vec<_> = (0..clients).map(|first| appender(&shared, first, clients)).collect();
    threads.extend((0..clients).map(|_| reader(&shared)));

    let mut faults = Faults::new(args.seed, &links, disks, args.empty_disks);
    let struck = faults.run(&mut members, Duration::from_secs(args.seconds), &shared.acknowledged);
    shared.is_over.store(true, Ordering::SeqCst);
    let mut history = History::default();
    for thread in threads {
        let seen = thread.join().map_err(|_| Failure::new(Status::System, "a client has panicked"))?;
        history.merge(seen);
    }
    struck?;
    let healed = heal(&mut members, history.end())?;
    links.end();
    (0..members.len()).try_for_each(|at| members.close(at))?;

    let mut verdict: Option<Verdict> = None;
    for at in 0..members.len() {
        let log = read(members.folder(at), start);
        let log = log.map_err(|why| Failure::new(Status::Damage, format_args!("m{}: {why}", at + 1)))?;
        let judged = history.judge(&log);
        // Every member's log has to explain all of it: they are one.
        let known = verdict.get_or_insert_with(|| judged.clone());
        if *known != judged {
            known.violations.push(format!("m{} has another log than m1: {judged:?}", at + 1));
        }
    }
    let mut verdict = verdict.unwrap_or_default();
    if members.panics() > 0 {
        verdict.violations.push(format!("{} panics in the members' lines", members.panics()));
    }
    report(args, &faults, &members, &verdict, healed, links.strangers());
    if verdict.lost == 0 && verdict.violations.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Status::Damage, "no one log explains what the clients saw"))
}

fn report(
    args: &Args,
    faults: &Faults<'_>,
    members: &Members,
    verdict: &Verdict,
    healed: Duration,
    strangers: u64,
) {
    println!("\n{:<28} {:>8}", "fault", "times");
    for (name, times) in faults.counts() {
        println!("{name:<28} {times:>8}");
    }
    if args.empty_disks {
        println!("{:<28} {:>8}", "disk emptied, replaced", members.replaced);
    }
    println!("{:<28} {:>8}", "processes ended by themselves", faults.ended);
    if strangers > 0 {
        println!("{:<28} {:>8}", "connections of nobody", strangers);
    }
    println!("whole again {:.1} s after the last fault; {} reads", healed.as_secs_f64(), verdict.reads);
    for violation in verdict.violations.iter().take(20) {
        println!("VIOLATION {violation}");
    }
    let kinds = faults.counts().count();
    let never: Vec<&str> = faults.counts().filter(|(_, times)| *times == 0).map(|(name, _)| name).collect();
    if !never.is_empty() {
        println!("never made: {}", never.join("; "));
    }
    println!(
        "chaos: seed {}, {} s: {} takeovers, {} of {kinds} kinds of fault, {} acknowledged, {} unknown ({} of them in the log), {} refused, {} lost, {} violations",
        args.seed,
        args.seconds,
        faults.takeovers(),
        kinds - never.len(),
        verdict.acknowledged,
        verdict.unknown,
        verdict.unknown_there,
        verdict.refused,
        verdict.lost,
        verdict.violations.len()
    );
}

/// Waits for a primary. Where the log begins.
fn first_primary(members: &mut Members) -> Result<u64, Failure> {
    let deadline = Instant::now() + BEGINNING;
    loop {
        if let Some((_, standing)) = members.sockets.primary() {
            return Ok(standing.trimmed);
        }
        if let Some((at, last)) = members.ended().first() {
            return Err(Failure::new(Status::System, format_args!("m{} has ended: {last}", at + 1)));
        }
        if Instant::now() > deadline {
            return Err(Failure::new(Status::System, "the group has no primary"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until every member has all that was acknowledged, and all have the same. How long that took.
fn heal(members: &mut Members, end: u64) -> Result<Duration, Failure> {
    let begun = Instant::now();
    loop {
        for (at, _) in members.ended() {
            members.restart(at)?;
        }
        let is_replacing = members.tend_replacement();
        let standings: Vec<_> = (0..members.len()).map(|at| members.sockets.standing(at)).collect();
        let durable: Vec<_> =
            standings.iter().map(|standing| standing.as_ref().map(|s| (s.durable, s.tail))).collect();
        let is_whole =
            durable.iter().all(|d| d.is_some_and(|(durable, tail)| durable >= end && durable == tail));
        let leads = standings.iter().flatten().filter(|standing| standing.role == "primary").count();
        if is_whole && !is_replacing && leads == 1 && durable.iter().all(|d| *d == durable[0]) {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > HEALING {
            let stands = standings.iter().map(|standing| match standing {
                Some(s) => format!("{} {} durable {} of {}", s.role, s.epoch, s.durable, s.tail),
                None => "does not answer".to_owned(),
            });
            let stands: Vec<String> = stands.collect();
            let message = format_args!(
                "not whole {} s after the last fault, with {end} acknowledged: {}",
                HEALING.as_secs(),
                stands.join("; ")
            );
            return Err(Failure::new(Status::System, message));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A member's log from its files: start and number of each record.
fn read(folder: &Path, start: u64) -> Result<Vec<(u64, Option<u64>)>, String> {
    let log = ReadOnly::open(folder, OpenMode::Strict).map_err(|error| error.to_string())?;
    let mut reader = log.read_from(Lsn(start)).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(record) => records.push((record.lsn.0, id_of(record.payload))),
            Err(ReadError::AtEnd { .. }) => return Ok(records),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The folders below this one, by number.
fn folder(run: &Path, at: usize) -> PathBuf {
    run.join(format!("m{}", at + 1))
}
