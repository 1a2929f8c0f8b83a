//! What the machine does to `windlass`: nobody reads what it says.

mod support;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use support::Group;

/// Where nothing can be written.
#[derive(Clone, Copy, Debug)]
enum Deaf {
    /// A disk that is full.
    Full,
    /// A pipe that nobody reads any more.
    Gone,
}

impl Deaf {
    fn stream(self) -> Stdio {
        match self {
            Deaf::Full => File::options().write(true).open("/dev/full").unwrap().into(),
            Deaf::Gone => {
                let (near, far) = UnixStream::pair().unwrap();
                drop(far);
                OwnedFd::from(near).into()
            }
        }
    }

    /// The status of a command that could not write what was asked for.
    fn status(self) -> i32 {
        match self {
            Deaf::Full => 5,
            Deaf::Gone => 141,
        }
    }
}

/// Lines are for whoever reads them: a member goes on without, through a takeover too, and ends well.
#[test]
fn a_member_whose_lines_can_not_be_written_goes_on_and_ends_well() {
    for deaf in [Deaf::Full, Deaf::Gone] {
        let mut group = Group::init_small();
        for number in 1..=3 {
            let mut command = group.node(number);
            group.start_telling(number, &mut command, deaf.stream());
        }
        let first = group.primary();
        group.append(b"before\n");
        group.kill(first);
        group.append(b"behind\n");
        for number in (1..=3).filter(|number| *number != first) {
            group.signal(number, Signal::TERM);
            assert_eq!(group.ended(number), Some(0), "{deaf:?}, m{number}");
        }
    }
}

/// Whatever a command has done is what its status says, and none ends in a panic.
#[test]
fn a_command_ends_as_its_help_says_where_its_output_can_not_be_written() {
    let group = Group::init_small().start_all();
    let root = group.root.display().to_string();
    let primary = group.primary().to_string();
    let missing = format!("{root}/missing");
    let run = |mut command: Command| command.stdin(Stdio::null()).status().unwrap().code();
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(args);
        command
    };
    for deaf in [Deaf::Full, Deaf::Gone] {
        // What goes wrong is told on standard error, and in the status.
        for (args, status) in [
            (&["log", "info", &missing][..], 3),
            (&["group", "--config", &missing, "status"], 64),
            (&["node", "--config", &missing, "--member", "1"], 64),
            (&["log", "append", &missing, "--file", "/dev/null"], 3),
        ] {
            let mut command = command(args);
            command.stderr(deaf.stream()).stdout(Stdio::null());
            assert_eq!(run(command), Some(status), "{deaf:?}: {args:?}");
        }
        let made = format!("{root}/made-{deaf:?}");
        for args in [
            &["init", "--folder", &made, "--any-filesystem"][..],
            &["hand-over", "--to", &primary],
            &["status"],
            &["members"],
        ] {
            let mut command = if args[0] == "init" { command(&["group"]) } else { group.command(&[]) };
            command.args(args).stdout(deaf.stream()).stderr(Stdio::null());
            assert_eq!(run(command), Some(deaf.status()), "{deaf:?}: {args:?}");
        }
        assert!(Path::new(&made).join("group.toml").exists());
    }
}
