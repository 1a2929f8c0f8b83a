//! Processes of the benchmarks' own: this program, started again in a role, asked by lines of JSON over its standard input
//! and answering by one line each. It ends when its input does, so nothing outlives a benchmark that dies.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{BenchError, During};

/// The first argument of a process in a role; the second one is the role, the third its argument.
pub(crate) const ROLE: &str = "--in-the-role-of";

/// A process in a role. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Child {
    role: &'static str,
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn start(role: &'static str, argument: &impl Serialize) -> Result<Child, BenchError> {
        let argument = serde_json::to_string(argument).during("writing a role's argument")?;
        let mut process = Command::new(std::env::current_exe()?)
            .args([ROLE, role, &argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .during("starting a process")?;
        let input = process.stdin.take().expect("asked for");
        let output = BufReader::new(process.stdout.take().expect("asked for"));
        Ok(Child { role, process, input, output })
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<A, BenchError> {
        let mut line = serde_json::to_string(request).during("writing a request")?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).during("asking a process")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        let answer: Result<A, String> = serde_json::from_str(&answer).during("reading a process's answer")?;
        answer.map_err(|said| BenchError::Child { role: self.role, said })
    }

    /// Processor time it has used so far, ended threads included, in µs. The kernel counts it in ticks.
    pub(crate) fn work_us(&self) -> Result<f64, BenchError> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // Behind the name, which may hold anything, in user mode the 12th, in system mode the 13th (proc_pid_stat(5)).
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        // Below 2^52 for ages.
        Ok(ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Ends it by SIGKILL and waits until it is gone.
    pub(crate) fn kill(mut self) -> Result<(), BenchError> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Stops it where it is (`SIGSTOP`), or lets it go on.
    pub(crate) fn stop(&self, stopped: bool) -> Result<(), BenchError> {
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.process), signal).during("stopping a process")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The body of a role: answers requests until there are no more.
pub(crate) fn serve<R: DeserializeOwned, A: Serialize>(
    mut answer: impl FnMut(R) -> Result<A, BenchError>,
) -> Result<(), BenchError> {
    for line in io::stdin().lock().lines() {
        let request: R = serde_json::from_str(&line?).during("reading a request")?;
        let answer: Result<A, String> = answer(request).map_err(|error| error.to_string());
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&answer).during("writing an answer")?)?;
        out.flush()?;
    }
    Ok(())
}

/// Anonymous memory of this process in bytes: what is neither mapped from files nor shared.
pub(crate) fn anonymous_bytes() -> Result<u64, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| io::Error::other("/proc/self/status says nothing of RssAnon"))?;
    Ok(kib * 1024)
}
