//! How the command ends: one status for each kind of outcome, the same in every subcommand that works on a log.

use std::fmt;
use std::io::Write as _;

use rustix::io::Errno;

/// The table of statuses, as `--help` prints it. (`doctor` has one of its own, since it is about the machine.)
pub(crate) const TABLE: &str = "\
Exit status:
  0   done; verify: the log is clean
  1   a torn tail above the durable watermark: nothing durable is lost, nothing is to be restored (verify; with --mode
      strict, also what reads or opens the log. --mode tail, the default, reads up to it and cuts it when opening)
  2   damage: bytes that were durable no longer hold. verify checks every record, read those that it prints; append, trim
      and truncate open the log, which checks records from the persisted mark on (see info), with --mode strict all
  3   refused: the request doesn't fit the log (trimmed or unknown LSN, record too large, log full, no log there, ...)
  4   the folder is in use by another process
  5   the system failed: reading, writing, flushing or access
  64  the command line is wrong
  141 nobody reads standard output any more, as after `| head`";

/// Why the command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Verify found a torn tail above the durable watermark.
    Torn,
    /// Doctor found what will work, and worse than it could.
    Warned,
    /// Doctor found what will not work, or not hold.
    Wrong,
    /// Durable bytes no longer hold.
    Damage,
    /// The request doesn't fit the log.
    Refused,
    /// Another process holds the folder.
    InUse,
    /// The system failed.
    System,
    /// The command line is wrong.
    Usage,
    /// Nobody reads standard output any more: no message. What a shell makes of a death by SIGPIPE.
    Pipe,
}

impl Status {
    pub(crate) fn code(self) -> u8 {
        match self {
            Status::Torn | Status::Warned => 1,
            Status::Damage | Status::Wrong => 2,
            Status::Refused => 3,
            Status::InUse => 4,
            Status::System => 5,
            Status::Usage => 64,
            Status::Pipe => 141,
        }
    }
}

/// A failure with its words; the message says what happened, where, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// Empty where all has been said on standard output.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl fmt::Display) -> Failure {
        Failure { status, message: message.to_string() }
    }

    /// A failure of reading or writing the command's own input and output.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        Failure::new(Status::System, format_args!("{what}: {error}"))
    }
}

/// A line on standard error. Where that can't be written, as to a full disk or a pipe that nobody reads any more, there is nobody to tell, and the command goes on.
pub(crate) fn tell(line: impl fmt::Display) {
    // In one write, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("windlass: {line}\n").as_bytes());
}

/// What to raise where the system gives no thread.
pub(crate) const LACKS_THREAD: &str = "; raise the limit of threads (RLIMIT_NPROC, TasksMax= of a systemd unit, the pids limit of a container) or of address space (RLIMIT_AS)";

/// What to raise where the system gives no descriptor or no thread, as the end of a sentence.
pub(crate) fn lack(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "; raise this process's limit of open files (RLIMIT_NOFILE)",
        Some(Errno::NFILE) => "; raise the system's limit of open files (`sysctl fs.file-max`)",
        // pthread_create(3).
        Some(Errno::AGAIN) => LACKS_THREAD,
        Some(_) | None => "",
    }
}

/// So many of them, in words.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
