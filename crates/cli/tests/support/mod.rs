//! Groups of real processes on this machine, started one by one with `windlass node` and worked with by `windlass group`, as a user does it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked whether it has come about.
const LOOK: Duration = Duration::from_millis(20);
/// Ports of a group: one for each of the three members that it begins with, and for two that join.
const PORTS: u16 = 5;

/// Runs the command to its end.
pub(crate) fn windlass(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// The first of five free ports, outside the range from which the system takes ports for outgoing connections.
fn ports() -> u16 {
    // Each test of this process gets others, and each process begins elsewhere.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let step = u32::from(PORTS);
    for _ in 0..2000 {
        let next = std::process::id().wrapping_mul(7 * step) + step * NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + u16::try_from(next % 20_000).unwrap();
        if (port..port + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
    panic!("no {PORTS} free ports");
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    #[track_caller]
    pub(crate) fn refused(self, code: i32, words: &str) {
        assert!(self.code == Some(code) && self.err.contains(words), "{words}: {self:?}");
    }
}

/// A group that begins with three on this machine. Its processes end with it.
pub(crate) struct Group {
    _folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
    /// The group's file.
    pub(crate) config: String,
    port: u16,
    /// By number, from 1 on.
    members: Vec<Option<Child>>,
}

impl Group {
    /// Its file, and nobody who runs.
    pub(crate) fn init() -> Group {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("g");
        let port = ports();
        let at = root.to_str().unwrap();
        let words = ["group", "init", "--folder", at, "--ports", &port.to_string(), "--any-filesystem"];
        Said::of(windlass(&words)).well();
        let config = root.join("group.toml").to_str().unwrap().to_owned();
        Group { _folder: folder, root, config, port, members: Vec::new() }
    }

    /// The same, with segments of 64 KiB.
    pub(crate) fn init_small() -> Group {
        let group = Group::init();
        group.change_file(|text| {
            let small = text.replace("# segment_bytes = 67108864", "segment_bytes = 65536");
            assert_ne!(small, text);
            small
        });
        group
    }

    /// Starts all three.
    pub(crate) fn start_all(mut self) -> Group {
        for number in 1..=3 {
            self.start(number);
        }
        self
    }

    pub(crate) fn change_file(&self, change: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, change(text)).unwrap();
    }

    /// The table of a member that joins, in the file that everybody has.
    pub(crate) fn announce(&self, number: u16) {
        assert!(number <= PORTS);
        let (port, root) = (self.port + number - 1, self.root.display());
        self.change_file(|text| {
            format!(
                "{text}\n[[members]]\nnumber = {number}\njoins = true\ncontrol = \"127.0.0.1:{port}\"\n\
                 client = \"{root}/m{number}.sock\"\nfolder = \"{root}/m{number}\"\n"
            )
        });
    }

    // ---- its processes -------------------------------------------------------------------------------------------

    pub(crate) fn start(&mut self, number: usize) {
        let mut command = self.node(number);
        self.start_as(number, &mut command);
    }

    /// A member's command.
    pub(crate) fn node(&self, number: usize) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["node", "--config", &self.config, "--member", &number.to_string()]);
        command
    }

    /// Starts a member as this command, whose lines are kept.
    pub(crate) fn start_as(&mut self, number: usize, command: &mut Command) {
        let lines = std::fs::OpenOptions::new().create(true).append(true).open(self.lines(number)).unwrap();
        self.start_telling(number, command, lines.into());
    }

    /// Starts a member as this command, whose lines go there.
    pub(crate) fn start_telling(&mut self, number: usize, command: &mut Command, lines: Stdio) {
        let child = command.stdin(Stdio::null()).stderr(lines).spawn().unwrap();
        if self.members.len() < number {
            self.members.resize_with(number, || None);
        }
        assert!(self.members[number - 1].replace(child).is_none(), "m{number} runs already");
    }

    pub(crate) fn kill(&mut self, number: usize) {
        let mut child = self.members[number - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        kill_process(self.process(number), signal).unwrap();
    }

    pub(crate) fn process(&self, number: usize) -> Pid {
        Pid::from_child(self.members[number - 1].as_ref().unwrap())
    }

    /// Waits for the end of a member; its status, `None` if a signal ended it.
    pub(crate) fn ended(&mut self, number: usize) -> Option<i32> {
        let mut child = self.members[number - 1].take().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "m{number} goes on: {}", self.said(number));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn lines(&self, number: usize) -> PathBuf {
        self.root.join(format!("m{number}.log"))
    }

    /// The lines of a member, of all its processes.
    pub(crate) fn said(&self, number: usize) -> String {
        std::fs::read_to_string(self.lines(number)).unwrap_or_default()
    }

    fn all_said(&self) -> String {
        (1..=self.members.len()).map(|number| self.said(number)).collect()
    }

    // ---- working with it -----------------------------------------------------------------------------------------

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["group", "--config", &self.config]).args(args).stdin(Stdio::null());
        command
    }

    /// Runs `windlass group`, whose output is text.
    pub(crate) fn group(&self, args: &[&str]) -> Said {
        Said::of(self.output(args))
    }

    /// Runs `windlass group`.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Appends these lines.
    #[track_caller]
    pub(crate) fn append(&self, text: &[u8]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let appended = self.output(&["append", "--file", file.path().to_str().unwrap(), "--quiet"]);
        assert!(appended.status.success(), "{appended:?}\n{}", self.all_said());
    }

    /// Where each member of the file stands, in its order.
    pub(crate) fn status(&self) -> Vec<Value> {
        let status = self.group(&["status", "--json"]).out;
        status.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until a member is primary; its number.
    #[track_caller]
    pub(crate) fn primary(&self) -> usize {
        self.wait(|group| {
            let rows = group.status();
            let leads = rows.iter().find(|row| row["role"] == "primary")?;
            usize::try_from(leads["member"].as_u64().unwrap()).ok()
        })
    }

    /// Waits until one of three is primary, the others follow, and all know all to be durable.
    #[track_caller]
    pub(crate) fn wait_even(&self) {
        self.wait_even_or(|| false);
    }

    /// As `wait_even`, or until this holds.
    #[track_caller]
    pub(crate) fn wait_even_or(&self, holds: impl Fn() -> bool) {
        self.wait(|group| {
            if holds() {
                return Some(());
            }
            let rows = group.status();
            let roles = |role: &str| rows.iter().filter(|row| row["role"] == role).count();
            let (tail, is_even) = (&rows[0]["tail"], roles("primary") == 1 && roles("backup") == 2);
            let is_even = is_even && rows.iter().all(|row| row["tail"] == *tail && row["durable"] == *tail);
            is_even.then_some(())
        });
    }

    /// Waits until this member has these records, as it knows the log.
    #[track_caller]
    pub(crate) fn wait_read(&self, member: usize, want: &[u8]) {
        let number = member.to_string();
        self.wait(|group| (group.output(&["read", "--member", &number]).stdout == want).then_some(()));
    }

    #[track_caller]
    pub(crate) fn wait<T>(&self, holds: impl Fn(&Group) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = holds(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{:?}\n{}", self.status(), self.all_said());
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
