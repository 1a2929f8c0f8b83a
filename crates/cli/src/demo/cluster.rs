//! The demo's members: processes of this same program, started, killed and started again, or frozen and thawed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::{self, Pass, Reply, Request, Standing};
use crate::exit::{Failure, Status};
use crate::node::config::{Config, MemberConfig, SCRUB_BYTES_PER_SECOND, random_hex, write_private};
use crate::node::fabric::FabricArgs;

/// How long a question to a member may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a process may take to stop after SIGSTOP.
const STOPPING: Duration = Duration::from_secs(10);

/// The processes and what they were started with.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) config: Config,
    pass: Pass,
    config_file: PathBuf,
    /// Words before each member's command, `{}` standing for its number.
    launch: Vec<String>,
    fabric: FabricArgs,
    members: Vec<Option<Child>>,
    /// The member that is frozen: it answers nothing, and asking it would wait.
    frozen: Option<usize>,
}

/// What a cluster is made with.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) members: u8,
    pub(super) level: String,
    pub(super) segment_bytes: u64,
    pub(super) suspicion_ms: u64,
    pub(super) any_filesystem: bool,
    /// Where the members' control planes listen, `{}` standing for the number; without it free ports on loopback.
    pub(super) address: Option<String>,
    pub(super) launch: Vec<String>,
    pub(super) fabric: FabricArgs,
}

impl Cluster {
    /// Writes the group's file and starts every member. `folder` gets the logs, `run` the sockets (whose paths have to be short).
    pub(super) fn start(folder: &Path, run: &Path, plan: &Plan) -> Result<Cluster, Failure> {
        let mut members = Vec::new();
        for number in 1..=plan.members {
            members.push(MemberConfig {
                number,
                control: match &plan.address {
                    Some(address) => named_address(address, number)?,
                    None => free_address(&members)?,
                },
                client: run.join(format!("m{number}.sock")),
                folder: folder.join(format!("m{number}")),
                joins: false,
            });
        }
        let config = Config {
            log_id: random_hex()?,
            secret: random_hex()?,
            level: plan.level.clone(),
            segment_bytes: plan.segment_bytes,
            retention_bytes: 1 << 40,
            suspicion_ms: plan.suspicion_ms,
            scrub_bytes_per_second: SCRUB_BYTES_PER_SECOND,
            any_filesystem: plan.any_filesystem,
            quorums: None,
            members,
        };
        let config_file = run.join("group.toml");
        let text = toml::to_string(&config).map_err(|error| Failure::new(Status::System, error))?;
        write_private(&config_file, &text).map_err(|error| Failure::io(config_file.display(), &error))?;
        let (launch, fabric) = (plan.launch.clone(), plan.fabric.clone());
        let pass = config.pass()?;
        let mut cluster =
            Cluster { members: Vec::new(), config, pass, config_file, launch, fabric, frozen: None };
        for at in 0..cluster.config.members.len() {
            let child = cluster.spawn(at)?;
            cluster.members.push(Some(child));
        }
        Ok(cluster)
    }

    pub(super) fn len(&self) -> usize {
        self.config.members.len()
    }

    pub(super) fn name(&self, at: usize) -> String {
        format!("m{}", self.config.members[at].number)
    }

    pub(super) fn folder(&self, at: usize) -> &Path {
        &self.config.members[at].folder
    }

    /// Where a member writes its log lines.
    pub(super) fn lines(&self, at: usize) -> PathBuf {
        self.config_file.with_file_name(format!("m{}.log", self.config.members[at].number))
    }

    fn spawn(&self, at: usize) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("the program file", &error))?;
        let lines = self.lines(at);
        let lines = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&lines)
            .map_err(|error| Failure::io(lines.display(), &error))?;
        let number = self.config.members[at].number.to_string();
        let mut words = self.launch.iter().map(|word| OsString::from(word.replace("{}", &number)));
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
            None => Command::new(program),
        };
        command
            .arg("node")
            .arg("--config")
            .arg(&self.config_file)
            .args(["--member", &number, "--exit-with-stdin"])
            .args(self.fabric.words(self.config.members[at].number))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(lines)
            // One that is frozen stays so: where a group of processes loses its shell the kernel sends SIGCONT to those that are stopped.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::io("starting a member", &error))
    }

    /// Kills a member's process with SIGKILL, and sees it dead.
    pub(super) fn kill(&mut self, at: usize) -> Result<(), Failure> {
        if let Some(mut child) = self.members[at].take() {
            let killed = child.kill().and_then(|()| child.wait());
            killed.map_err(|error| Failure::io("killing a member", &error))?;
        }
        Ok(())
    }

    /// Stops a member's process with SIGSTOP, and sees it stopped. What it has handed to the kernel takes its course.
    pub(super) fn freeze(&mut self, at: usize) -> Result<(), Failure> {
        assert!(self.frozen.is_none(), "one member is frozen at a time");
        let pid = self.signal(at, Signal::STOP, "freezing a member")?;
        self.frozen = Some(at);
        let deadline = Instant::now() + STOPPING;
        while !is_stopped(pid) {
            if Instant::now() > deadline {
                let message = format_args!("{} does not stop on SIGSTOP", self.name(at));
                return Err(Failure::new(Status::System, message));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Lets a frozen member go on.
    pub(super) fn thaw(&mut self, at: usize) -> Result<(), Failure> {
        assert_eq!(self.frozen.take(), Some(at), "{} is not frozen", self.name(at));
        self.signal(at, Signal::CONT, "thawing a member").map(|_| ())
    }

    fn signal(&self, at: usize, signal: Signal, what: &str) -> Result<Pid, Failure> {
        let pid = self.members[at].as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()));
        let Some(pid) = pid else {
            return Err(Failure::new(Status::System, format_args!("{} does not run", self.name(at))));
        };
        kill_process(pid, signal).map_err(|errno| Failure::io(what, &errno.into()))?;
        Ok(pid)
    }

    /// Whether a member has a process.
    pub(super) fn runs(&self, at: usize) -> bool {
        self.members[at].is_some()
    }

    /// Starts a killed member again, on its folder as the kill left it.
    pub(super) fn restart(&mut self, at: usize) -> Result<(), Failure> {
        assert!(self.members[at].is_none(), "{} runs", self.name(at));
        self.members[at] = Some(self.spawn(at)?);
        Ok(())
    }

    /// Starts a member again whose process has ended by itself.
    pub(super) fn revive(&mut self, at: usize) -> Result<(), Failure> {
        if let Some(child) = &mut self.members[at]
            && let Ok(Some(_)) = child.try_wait()
        {
            self.members[at] = None;
            self.restart(at)?;
        }
        Ok(())
    }

    /// Fails if a member has ended by itself, other than one that may.
    pub(super) fn check_alive(&mut self, may_end: Option<usize>) -> Result<(), Failure> {
        for at in (0..self.members.len()).filter(|at| Some(*at) != may_end) {
            let lines = self.lines(at);
            let Some(child) = &mut self.members[at] else { continue };
            if let Ok(Some(status)) = child.try_wait() {
                let said = std::fs::read_to_string(&lines).unwrap_or_default();
                let last = said.lines().last().unwrap_or("nothing").to_owned();
                let message =
                    format_args!("{} has ended by itself ({status}); its last line: {last}", self.name(at));
                return Err(Failure::new(Status::System, message));
            }
        }
        Ok(())
    }

    /// Where a member stands; `None` while it does not answer.
    pub(super) fn standing(&self, at: usize) -> Option<Standing> {
        if self.frozen == Some(at) {
            return None;
        }
        match self.ask(at, &Request::Status) {
            Ok(Reply::Status(standing)) => Some(*standing),
            Ok(_) | Err(_) => None,
        }
    }

    /// Asks a member one question over a connection of its own.
    pub(super) fn ask(&self, at: usize, request: &Request) -> std::io::Result<Reply> {
        client::ask(&self.config.members[at].client, &self.pass, request, ANSWER)
    }

    pub(super) fn connect(&self, at: usize) -> std::io::Result<UnixStream> {
        client::connect(&self.config.members[at].client, &self.pass, ANSWER)
    }

    /// Ends a member well and waits for its process.
    pub(super) fn close(&mut self, at: usize) -> Result<(), Failure> {
        let name = self.name(at);
        let failed =
            |what: &dyn std::fmt::Display| Failure::new(Status::System, format_args!("{name}: {what}"));
        match self.ask(at, &Request::Close) {
            Ok(Reply::Closed) => {}
            Ok(other) => return Err(failed(&format_args!("did not end well: {other:?}"))),
            Err(error) => return Err(failed(&format_args!("asked to end: {error}"))),
        }
        let Some(mut child) = self.members[at].take() else { return Ok(()) };
        let deadline = Instant::now() + ANSWER;
        loop {
            match child.try_wait().map_err(|error| Failure::io("waiting for a member", &error))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(failed(&format_args!("its process ended with {status}"))),
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                None => {
                    self.members[at] = Some(child);
                    return Err(failed(&"its process goes on although it was closed"));
                }
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether the kernel shows every thread of a process as stopped.
fn is_stopped(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    tasks.into_iter().flatten().flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name in brackets may hold anything; the state follows it.
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

/// The address that the user gave for all members, of this one.
fn named_address(address: &str, number: u8) -> Result<SocketAddr, Failure> {
    let address = address.replace("{}", &number.to_string());
    address.parse().map_err(|error| {
        Failure::new(Status::Usage, format_args!("--address {address}: {error}: it is like 10.0.0.{{}}:7400"))
    })
}

/// A free address on loopback, outside the range from which the system takes ports for outgoing connections: a member that is down must find its own
/// port free when it comes back.
fn free_address(taken: &[MemberConfig]) -> Result<SocketAddr, Failure> {
    for _ in 0..1000 {
        let random = getrandom::u32().map_err(|error| Failure::new(Status::System, error))?;
        let port = 10_000 + u16::try_from(random % 20_000).expect("below 20,000");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let is_taken = taken.iter().any(|member| member.control == address);
        if !is_taken && TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(Failure::new(Status::System, "no free port between 10000 and 30000 on loopback"))
}
