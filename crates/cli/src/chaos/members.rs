//! The members' processes: each with a group's file of its own, in which the others are reached through links that can be cut.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::proxy::Links;
use crate::client::{self, Pass, Reply, Request, Standing};
use crate::exit::{Failure, Status};
use crate::node::config::{Config, MemberConfig, SCRUB_BYTES_PER_SECOND, random_hex, write_private};
use crate::view::View;
use windlass::MemberId;
use windlass::engine::Change;

/// How long a question may take: a frozen member never answers.
const ANSWER: Duration = Duration::from_millis(300);
/// How long a clean end may take.
const CLOSING: Duration = Duration::from_secs(20);

/// Where clients reach each member, and with what.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) paths: Vec<PathBuf>,
    pub(super) pass: Pass,
}

impl Sockets {
    /// Where a member stands; `None` while it does not answer.
    pub(super) fn standing(&self, at: usize) -> Option<Standing> {
        match client::ask(&self.paths[at], &self.pass, &Request::Status, ANSWER) {
            Ok(Reply::Status(standing)) => Some(*standing),
            Ok(_) | Err(_) => None,
        }
    }

    /// The member that says it leads, in the newest epoch of those that say so.
    pub(super) fn primary(&self) -> Option<(usize, Standing)> {
        let standings = (0..self.paths.len()).filter_map(|at| Some((at, self.standing(at)?)));
        standings
            .filter(|(_, standing)| standing.role == "primary")
            .max_by_key(|(_, standing)| counter(&standing.epoch))
    }

    pub(super) fn connect(&self, at: usize) -> std::io::Result<std::os::unix::net::UnixStream> {
        client::connect(&self.paths[at], &self.pass, ANSWER)
    }
}

/// The counter of an epoch as people read it: `e7.m2`.
pub(super) fn counter(epoch: &str) -> u64 {
    epoch.strip_prefix('e').and_then(|rest| rest.split('.').next()?.parse().ok()).unwrap_or(0)
}

struct Member {
    /// Its number now: a member that lost its disk comes back under another one.
    number: u8,
    config_file: PathBuf,
    /// Where its control plane listens, and where the others reach it.
    control: SocketAddr,
    through: SocketAddr,
    folder: PathBuf,
    fabric_bind: SocketAddr,
    fabric_advertise: SocketAddr,
    child: Option<Child>,
    is_frozen: bool,
}

pub(super) struct Members {
    links: Arc<Links>,
    run: PathBuf,
    members: Vec<Member>,
    /// The group's file as all members have it, but for how each is reached.
    config: Config,
    replacement: Option<Replacement>,
    pub(super) replaced: u64,
    pub(super) sockets: Sockets,
}

/// A member that lost its disk, and the one that is to take its place.
struct Replacement {
    at: usize,
    old: u8,
    new: u8,
    look_at: Instant,
    asking: Option<JoinHandle<()>>,
}

/// How often is looked how far a replacement is.
const TEND: Duration = Duration::from_millis(100);
/// How long a primary may take to commit a change.
const CHANGING: Duration = Duration::from_secs(6);

impl Members {
    /// Writes each member's file and starts its process.
    pub(super) fn start(
        count: usize,
        folders: &[PathBuf],
        run: &Path,
        suspicion_ms: u64,
        links: &Arc<Links>,
    ) -> Result<Members, Failure> {
        let mut addresses = Vec::new();
        for _ in 0..2 * count {
            addresses.push(free_address(&addresses)?);
        }
        let (control, fabric) = addresses.split_at(count);
        let proxied = |member: usize, target| {
            links.listen(member, target).map_err(|error| Failure::io("a port of a link", &error))
        };
        let through: Vec<SocketAddr> =
            (0..count).map(|at| proxied(at, control[at])).collect::<Result<_, _>>()?;
        let (log_id, secret) = (random_hex()?, random_hex()?);
        let sockets: Vec<PathBuf> = (1..=count).map(|number| run.join(format!("m{number}.sock"))).collect();
        let entries = (0..count).map(|other| MemberConfig {
            number: u8::try_from(other + 1).expect("few members"),
            control: through[other],
            client: sockets[other].clone(),
            folder: folders[other].clone(),
            joins: false,
        });
        let config = Config {
            log_id,
            secret,
            level: "durable".into(),
            segment_bytes: 1 << 20,
            retention_bytes: 1 << 40,
            suspicion_ms,
            scrub_bytes_per_second: SCRUB_BYTES_PER_SECOND,
            any_filesystem: true,
            quorums: None,
            members: entries.collect(),
        };
        let mut members = Vec::new();
        for at in 0..count {
            let number = config.members[at].number;
            members.push(Member {
                number,
                config_file: write_config(&config, run, number, control[at])?,
                control: control[at],
                through: through[at],
                folder: folders[at].clone(),
                fabric_bind: fabric[at],
                fabric_advertise: proxied(at, fabric[at])?,
                child: None,
                is_frozen: false,
            });
        }
        let sockets = Sockets { paths: sockets, pass: config.pass()? };
        let mut members = Members {
            links: Arc::clone(links),
            run: run.to_path_buf(),
            members,
            config,
            replacement: None,
            replaced: 0,
            sockets,
        };
        (0..count).try_for_each(|at| members.spawn(at))?;
        Ok(members)
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn folder(&self, at: usize) -> &Path {
        &self.members[at].folder
    }

    pub(super) fn lines(&self, at: usize) -> PathBuf {
        self.run.join(format!("m{}.log", at + 1))
    }

    fn spawn(&mut self, at: usize) -> Result<(), Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("the program file", &error))?;
        let lines = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.lines(at))
            .map_err(|error| Failure::io(self.lines(at).display(), &error))?;
        let member = &mut self.members[at];
        let child = Command::new(program)
            .arg("node")
            .arg("--config")
            .arg(&member.config_file)
            .args(["--member", &member.number.to_string(), "--exit-with-stdin", "--wait", "event"])
            .args(["--fabric-bind", &member.fabric_bind.to_string()])
            .args(["--fabric-advertise", &member.fabric_advertise.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(lines)
            // As in the demo: what is frozen stays so when the shell ends.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::io("starting a member", &error))?;
        self.links.is_process(at, child.id());
        member.child = Some(child);
        member.is_frozen = false;
        Ok(())
    }

    /// Whether it has a process that is not frozen.
    pub(super) fn is_whole(&self, at: usize) -> bool {
        self.members[at].child.is_some() && !self.members[at].is_frozen
    }

    /// Kills its process with SIGKILL, frozen or not, and sees it dead.
    pub(super) fn kill(&mut self, at: usize) -> Result<(), Failure> {
        self.links.is_process(at, 0);
        if let Some(mut child) = self.members[at].child.take() {
            let killed = child.kill().and_then(|()| child.wait());
            killed.map_err(|error| Failure::io("killing a member", &error))?;
        }
        self.members[at].is_frozen = false;
        Ok(())
    }

    pub(super) fn freeze(&mut self, at: usize, is_frozen: bool) -> Result<(), Failure> {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        let process =
            self.members[at].child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()));
        if let Some(process) = process {
            kill_process(process, signal).map_err(|errno| Failure::io("freezing a member", &errno.into()))?;
            self.members[at].is_frozen = is_frozen;
        }
        Ok(())
    }

    /// Whether another member may lose its disk: the last one has its place taken, and all run and have everything.
    pub(super) fn may_lose_a_disk(&self) -> bool {
        let has_all = |at| {
            self.is_whole(at)
                && self.sockets.standing(at).is_some_and(|s| !s.damaged && s.standing == "voter")
        };
        self.replacement.is_none() && (0..self.len()).all(has_all)
    }

    /// Kills its process, empties its disk, and starts a new member there, which is to take its place.
    pub(super) fn lose_disk(&mut self, at: usize) -> Result<(), Failure> {
        self.kill(at)?;
        let folder = self.members[at].folder.clone();
        std::fs::remove_dir_all(&folder).map_err(|error| Failure::io(folder.display(), &error))?;
        let highest = self.config.members.iter().map(|member| member.number).max().unwrap_or(0);
        let new = highest.checked_add(1).ok_or_else(|| Failure::new(Status::System, "no number is left"))?;
        let member = &mut self.members[at];
        let old = std::mem::replace(&mut member.number, new);
        let (control, client) = (member.through, self.sockets.paths[at].clone());
        self.config.members.push(MemberConfig { number: new, control, client, folder, joins: true });
        member.config_file = write_config(&self.config, &self.run, new, member.control)?;
        self.spawn(at)?;
        self.replacement = Some(Replacement { at, old, new, look_at: Instant::now(), asking: None });
        Ok(())
    }

    /// Sees that a new member takes the place of the one that lost its disk: asks primaries until one has done it. `true` while that goes on.
    pub(super) fn tend_replacement(&mut self) -> bool {
        let Some(replacement) = &mut self.replacement else { return false };
        if Instant::now() < replacement.look_at {
            return true;
        }
        replacement.look_at = Instant::now() + TEND;
        let Some((primary, _)) = self.sockets.primary() else { return true };
        let (path, pass) = (&self.sockets.paths[primary], &self.sockets.pass);
        let Ok(Reply::Members(view)) = client::ask(path, pass, &Request::Members, ANSWER) else {
            return true;
        };
        if view.committed && has_place(&view, replacement) {
            self.replacement = None;
            self.replaced += 1;
            return false;
        }
        let is_asking = replacement.asking.as_ref().is_some_and(|asking| !asking.is_finished());
        if view.committed && view.member(replacement.new).is_none() && !is_asking {
            let change = Change::Replace {
                old: MemberId(replacement.old),
                new: MemberId(replacement.new),
                address: Some(self.members[replacement.at].through),
            };
            let (path, pass) = (path.clone(), pass.clone());
            // What came of it is seen in the members.
            replacement.asking = Some(std::thread::spawn(move || {
                let _ = client::ask(&path, &pass, &Request::Change(change), CHANGING);
            }));
        }
        true
    }

    /// Starts its process if it has none.
    pub(super) fn restart(&mut self, at: usize) -> Result<(), Failure> {
        if self.members[at].child.is_none() { self.spawn(at) } else { Ok(()) }
    }

    /// Members whose process has ended by itself since the last call, and the last line of each. They are started again by [`Members::restart`].
    pub(super) fn ended(&mut self) -> Vec<(usize, String)> {
        let mut ended = Vec::new();
        for at in 0..self.members.len() {
            let Some(child) = &mut self.members[at].child else { continue };
            if let Ok(Some(status)) = child.try_wait() {
                self.members[at].child = None;
                self.links.is_process(at, 0);
                let said = std::fs::read_to_string(self.lines(at)).unwrap_or_default();
                let last = said.lines().last().unwrap_or("nothing").to_owned();
                ended.push((at, format!("{status}: {last}")));
            }
        }
        ended
    }

    /// How often a member's lines tell of a panic.
    pub(super) fn panics(&self) -> u64 {
        let count = |at| {
            let said = std::fs::read_to_string(self.lines(at)).unwrap_or_default();
            said.lines().filter(|line| line.contains("panicked at")).count() as u64
        };
        (0..self.members.len()).map(count).sum()
    }

    /// Ends a member well and waits for its process.
    pub(super) fn close(&mut self, at: usize) -> Result<(), Failure> {
        let failed = |what: String| Failure::new(Status::System, format_args!("m{}: {what}", at + 1));
        match client::ask(&self.sockets.paths[at], &self.sockets.pass, &Request::Close, CLOSING) {
            Ok(Reply::Closed) => {}
            Ok(other) => return Err(failed(format!("did not end well: {other:?}"))),
            Err(error) => return Err(failed(format!("asked to end: {error}"))),
        }
        if let Some(mut child) = self.members[at].child.take() {
            let status = child.wait().map_err(|error| Failure::io("waiting for a member", &error))?;
            if !status.success() {
                return Err(failed(format!("its process ended with {status}")));
            }
        }
        Ok(())
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn has_place(view: &View, replacement: &Replacement) -> bool {
    view.member(replacement.old).is_none() && view.member(replacement.new).is_some_and(|new| new.votes())
}

/// The group's file for one member: where itself listens, and how it reaches the others.
fn write_config(config: &Config, run: &Path, number: u8, control: SocketAddr) -> Result<PathBuf, Failure> {
    let mut own = config.clone();
    for member in own.members.iter_mut().filter(|member| member.number == number) {
        member.control = control;
    }
    let file = run.join(format!("group{number}.toml"));
    let text = toml::to_string(&own).map_err(|error| Failure::new(Status::System, error))?;
    write_private(&file, &text).map_err(|error| Failure::io(file.display(), &error))?;
    Ok(file)
}

/// As the demo's: outside the range from which the system takes ports for outgoing connections.
fn free_address(taken: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    for _ in 0..1000 {
        let random = getrandom::u32().map_err(|error| Failure::new(Status::System, error))?;
        let port = 10_000 + u16::try_from(random % 20_000).expect("below 20,000");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if !taken.contains(&address) && TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(Failure::new(Status::System, "no free port between 10000 and 30000 on loopback"))
}
