//! Running a command: its whole output into a log file, the part worth reading to the terminal, and an end to it when
//! it takes too long.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::Context;
use crate::failures;

/// Lines of a failed command that go to the terminal.
const TAIL_LINES: usize = 120;
/// How long to wait for output after a command has ended: a child it left behind may hold the pipe.
const LINGER: Duration = Duration::from_secs(3);

/// A command to run.
pub(crate) struct Run {
    command: Command,
    text: String,
    limit: Duration,
    show: fn(&str) -> bool,
    quiet_failure: bool,
}

/// How a command ended.
pub(crate) struct Finished {
    /// It ended by itself with status 0.
    pub(crate) success: bool,
    /// Why not, where not.
    pub(crate) how: String,
    /// Standard output and standard error, line by line as they came.
    pub(crate) output: String,
}

impl Run {
    /// A command with its arguments, run at the top of the workspace.
    pub(crate) fn new(context: &Context, program: &str, arguments: &[&str]) -> Run {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&context.root).stdin(Stdio::null());
        command.env("CARGO_TERM_COLOR", "never");
        let text = format!("{program} {}", arguments.join(" "));
        Run { command, text, limit: Duration::from_secs(15 * 60), show: |_| false, quiet_failure: false }
    }

    /// Cargo with these arguments.
    pub(crate) fn cargo(context: &Context, arguments: &[&str]) -> Run {
        Run::new(context, "cargo", arguments)
    }

    /// Sets a variable of the command's environment.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Run {
        let value = value.into();
        self.text = format!("{name}='{}' {}", value.to_string_lossy(), self.text);
        self.command.env(name, value);
        self
    }

    /// Runs it in this folder instead.
    pub(crate) fn folder(mut self, folder: &Path) -> Run {
        self.command.current_dir(folder);
        self
    }

    /// Ends the command, and what it started, after this time (15 minutes unless set).
    pub(crate) fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Which lines go to the terminal as they come; none unless set.
    pub(crate) fn show(mut self, show: fn(&str) -> bool) -> Run {
        self.show = show;
        self
    }

    /// A failure is expected or judged by the caller: its output is neither printed nor noted.
    pub(crate) fn quiet_failure(mut self) -> Run {
        self.quiet_failure = true;
        self
    }

    /// Runs it. The output is kept as `target/xtask/NAME.log`; what failed in it is noted for the end of the report.
    pub(crate) fn finish(mut self, context: &Context, name: &str) -> Finished {
        println!("   $ {}", self.text);
        let log_path = context.logs.join(format!("{name}.log"));
        let finished = self.drive(&log_path);
        if !finished.success && !self.quiet_failure {
            let lines: Vec<&str> = finished.output.lines().collect();
            let skipped = lines.len().saturating_sub(TAIL_LINES);
            for line in &lines[skipped..] {
                println!("   | {line}");
            }
            println!("   {}; whole output: {}", finished.how, log_path.display());
            context.note(failures::in_output(&finished.output));
        }
        finished
    }

    fn drive(&mut self, log_path: &Path) -> Finished {
        let failed = |how: String| Finished { success: false, how, output: String::new() };
        let mut log = match File::create(log_path) {
            Ok(file) => file,
            Err(error) => return failed(format!("cannot write {}: {error}", log_path.display())),
        };
        let spawned = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return failed(format!("cannot start: {error}")),
        };
        let (sender, lines) = mpsc::channel();
        forward(child.stdout.take().expect("piped"), sender.clone());
        forward(child.stderr.take().expect("piped"), sender);

        let start = Instant::now();
        let mut output = String::new();
        let mut ended: Option<Instant> = None;
        let mut late = false;
        loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    if (self.show)(&line) {
                        println!("   {line}");
                    }
                    // A full disk must not hide the command's own outcome.
                    let _ = writeln!(log, "{line}");
                    output.push_str(&line);
                    output.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !late && start.elapsed() > self.limit {
                late = true;
                kill_tree(&mut child);
            }
            if ended.is_none() && matches!(child.try_wait(), Ok(Some(_))) {
                ended = Some(Instant::now());
            }
            if ended.is_some_and(|at| at.elapsed() > LINGER) {
                break;
            }
        }
        match child.wait() {
            _ if late => Finished {
                success: false,
                how: format!("ended after its limit of {} s", self.limit.as_secs()),
                output,
            },
            Ok(status) => Finished { success: status.success(), how: format!("{status}"), output },
            Err(error) => Finished { success: false, how: format!("cannot wait for it: {error}"), output },
        }
    }
}

fn forward(pipe: impl Read + Send + 'static, sender: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_string();
            bytes.clear();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
}

/// Ends a child and all its descendants: test programs that cargo started would otherwise go on.
fn kill_tree(child: &mut Child) {
    let mut doomed = vec![child.id()];
    let parents = parents();
    let mut next = 0;
    while let Some(parent) = doomed.get(next).copied() {
        doomed.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        next += 1;
    }
    let words: Vec<String> = doomed.iter().skip(1).map(u32::to_string).collect();
    // The direct child through its own handle: its number can't have been given to another process.
    let _ = child.kill();
    if !words.is_empty() {
        let _ = Command::new("kill").arg("-KILL").args(words).stderr(Stdio::null()).status();
    }
}

/// Each process and its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // pid (name) state ppid …: the name may hold anything, also brackets.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((process, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

/// Where a program is found on PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether a command ends with status 0; its output is dropped.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> (tempfile::TempDir, Context) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_path_buf();
        (folder, Context::new(path.clone(), path))
    }

    #[test]
    fn output_of_both_streams_is_kept_and_the_status_told() {
        let (_folder, context) = context();
        let finished = Run::new(&context, "sh", &["-c", "echo out; echo err >&2; exit 3"])
            .quiet_failure()
            .finish(&context, "both");
        assert!(!finished.success);
        assert!(finished.how.contains('3'), "{}", finished.how);
        let mut lines: Vec<&str> = finished.output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["err", "out"]);
        assert_eq!(std::fs::read_to_string(context.logs.join("both.log")).unwrap(), finished.output);
    }

    #[test]
    fn a_late_command_and_its_children_are_ended() {
        let (folder, context) = context();
        let mark = folder.path().join("grandchild");
        let script = format!("sh -c 'echo $$ > {}; sleep 60; :' ; :", mark.display());
        let start = Instant::now();
        let finished = Run::new(&context, "sh", &["-c", &script])
            .limit(Duration::from_millis(700))
            .quiet_failure()
            .finish(&context, "late");
        assert!(!finished.success);
        assert!(finished.how.contains("limit"), "{}", finished.how);
        assert!(start.elapsed() < Duration::from_secs(30));
        let grandchild = std::fs::read_to_string(&mark).unwrap();
        // Where nobody reaps orphans it stays as a zombie: dead all the same.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", grandchild.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "the grandchild lives on: {stat}");
    }

    #[test]
    fn a_missing_program_is_a_failure_not_a_panic() {
        let (_folder, context) = context();
        let finished =
            Run::new(&context, "no-such-program-anywhere", &[]).quiet_failure().finish(&context, "missing");
        assert!(!finished.success);
        assert!(finished.how.contains("cannot start"), "{}", finished.how);
    }
}
