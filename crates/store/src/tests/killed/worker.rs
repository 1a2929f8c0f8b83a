//! A process that does one thing to a folder, and stops where it is told to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use windlass_log::{Epoch, LogId, Lsn, MemberId};

use super::gate::{Gate, GatedDisk, SAYS, say, wait};
use super::{accepting_epoch, accepting_tail, orders_of_crossing};
use crate::disk::RealDisk;
use crate::tests::payload;
use crate::tests::testlog::{AROUND, TestLog, founding, options};
use crate::{DiskCall, DiskError, Founding, Make, RepairOrders, ScrubPlace, Scrubbed, Store};

const DO: &str = "WINDLASS_STORE_KILLED_DO";
const IN: &str = "WINDLASS_STORE_KILLED_IN";
const AT: &str = "WINDLASS_STORE_KILLED_AT";

/// What a process is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Repair, taking this as the newest epoch.
    AcceptEpoch(Epoch),
    /// Repair, taking this as the log's tail.
    AcceptTail(Lsn),
    /// Open with the log trimmed to there.
    OpenTrimmed(Lsn),
    /// Make a log of this number, and append to it.
    Make(u8),
    /// Open a member's log, meet the damage between the first and the last of these, and trim it to the one between, before or after.
    Cross([Lsn; 3], bool),
}

impl Task {
    fn words(self) -> String {
        match self {
            Task::AcceptEpoch(epoch) => format!("accept-epoch {}", epoch.counter()),
            Task::AcceptTail(tail) => format!("accept-tail {}", tail.0),
            Task::OpenTrimmed(lsn) => format!("open-trimmed {}", lsn.0),
            Task::Make(number) => format!("make {number}"),
            Task::Cross([start, trim, end], trims_first) => {
                format!("cross {} {} {} {}", start.0, trim.0, end.0, u8::from(trims_first))
            }
        }
    }
}

/// How many records a maker appends.
pub(super) const RECORDS: u32 = 3;

pub(super) fn founded_by(number: u8) -> Founding {
    Founding { log_id: LogId([number; 16]), ..founding() }
}

/// What a process that [`Worker`] has started does.
#[test]
fn child_of_the_tests_that_kill() {
    let Ok(task) = std::env::var(DO) else { return };
    let folder = std::env::var_os(IN).expect("set beside the task");
    let at = std::env::var(AT).expect("set beside the task").parse().expect("a number");
    let gate = Gate::new(at);
    let words: Vec<&str> = task.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let disk = || GatedDisk { disk: RealDisk::open(Path::new(&folder)).unwrap(), gate: Arc::clone(&gate) };
    match words[0] {
        "accept-epoch" => repair(&disk(), &accepting_epoch(Epoch::new(number(1), MemberId(0)))),
        "accept-tail" => repair(&disk(), &accepting_tail(Lsn(number(1)))),
        "open-trimmed" => drop(Store::open_trimmed(disk(), &AROUND, &options(), Lsn(number(1))).unwrap()),
        "make" => make(Path::new(&folder), &gate, u8::try_from(number(1)).unwrap()),
        "cross" => cross(disk(), [Lsn(number(1)), Lsn(number(2)), Lsn(number(3))], number(4) == 1),
        other => panic!("{other} is no task"),
    }
    say(&format!("done {}", gate.calls()));
    wait();
}

fn repair(disk: &GatedDisk, orders: &RepairOrders) {
    let gate = &disk.gate;
    let place = crate::disk::Disk::path(disk).join("quarantine");
    let failed = |errno| DiskError { call: DiskCall::Open, file: place.clone(), errno };
    let quarantine = |make| {
        gate.pass("the quarantine's folder");
        let opened = match make {
            Make::IfAbsent => RealDisk::create(&place).map(Some),
            Make::Never if place.exists() => RealDisk::open(&place).map(Some),
            Make::Never => Ok(None),
        };
        Ok(opened.map_err(failed)?.map(|disk| GatedDisk { disk, gate: Arc::clone(gate) }))
    };
    Store::repair(disk, &quarantine, orders).unwrap();
}

fn make(folder: &Path, gate: &Arc<Gate>, number: u8) {
    gate.pass("make the folder");
    let disk = GatedDisk { disk: RealDisk::create(folder).unwrap(), gate: Arc::clone(gate) };
    let (store, opened) = match Store::create(disk, &founded_by(number), &AROUND, &options()) {
        Ok(made) => made,
        Err(error) => return say(&format!("refused {error}")),
    };
    say("made");
    let mut log = TestLog::over(store, opened).unwrap();
    for number in 0..RECORDS {
        log.append(&payload(number)).unwrap();
        log.flush().unwrap();
        say("acknowledged");
    }
    // Killed or not, nobody closes it.
    say(&format!("done {}", gate.calls()));
    wait();
}

fn cross(disk: GatedDisk, [start, trim, end]: [Lsn; 3], trims_first: bool) {
    let (store, opened) = Store::open(disk, &AROUND, &options()).unwrap();
    store.begin().unwrap();
    let trims = || {
        store.trim(trim, opened.tail).unwrap();
        say("trimmed");
    };
    let tells = || {
        let found = store.scrub(ScrubPlace::new(store.trimmed()), opened.tail, 1 << 20).unwrap();
        let Scrubbed::Damaged(damage) = found else { panic!("{found:?}") };
        assert_eq!(damage.start..damage.end, store.trimmed().max(start)..end);
        // As it was found before the trim.
        assert!(store.distrust(start..end).unwrap().is_some());
        say("told");
    };
    orders_of_crossing(trims_first, trims, tells);
    let _ = store.flush(opened.tail).unwrap();
    store.close(opened.tail).unwrap();
    say("closed");
}

/// A process at work, or stopped at a call. Dropping it kills it.
pub(super) struct Worker {
    child: Child,
    words: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
    /// What it has said so far, but for where it stands.
    pub(super) said: Vec<String>,
}

/// Where a process stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// Before or in this call.
    At(String),
    /// At its end, after so many calls.
    Done(u64),
}

impl Worker {
    /// Starts a process that stops at the call with this number, counted from 0.
    pub(super) fn start(folder: &Path, task: Task, at: u64) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["tests::killed::worker::child_of_the_tests_that_kill", "--exact", "--nocapture"])
            .env(DO, task.words())
            .env(IN, folder)
            .env(AT, at.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Worker { words: child.stdin.take(), child, says, said: Vec::new() }
    }

    /// Runs until the process stops.
    pub(super) fn stands(&mut self) -> Stands {
        loop {
            let mut line = String::new();
            let count = self.says.read_line(&mut line).unwrap();
            assert!(count > 0, "the process has ended by itself, having said {:?}", self.said);
            let Some((_, said)) = line.trim_end().split_once(SAYS) else { continue };
            match said.split_once(' ') {
                Some(("at", call)) => return Stands::At(call.to_owned()),
                Some(("done", calls)) => return Stands::Done(calls.parse().unwrap()),
                Some(_) | None => self.said.push(said.to_owned()),
            }
        }
    }

    /// Lets it go on from where it stands.
    pub(super) fn go_on(&mut self) {
        writeln!(self.words.as_ref().unwrap()).unwrap();
    }

    pub(super) fn has_said(&self, what: &str) -> usize {
        self.said.iter().filter(|said| said.split(' ').next() == Some(what)).count()
    }

    /// SIGKILL. Answers what it had said.
    pub(super) fn kill(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut self.said)
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// How many calls a task makes that nobody stops.
pub(super) fn calls_of(folder: &Path, task: Task) -> u64 {
    let mut worker = Worker::start(folder, task, u64::MAX);
    match worker.stands() {
        Stands::Done(calls) => calls,
        Stands::At(call) => unreachable!("nothing stops at {call}"),
    }
}
