//! Each example as a user runs it: two ends, or a ring of them, as processes of their own.
//!
//! Over TCP unless `WINDLASS_EXAMPLES_FABRIC` says `verbs` (in the guest, where there is a device). `WINDLASS_EXAMPLES_FOLDER` says where the programs are, if
//! they are not where they were built.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

fn program(name: &str, built: &str) -> PathBuf {
    std::env::var_os("WINDLASS_EXAMPLES_FOLDER")
        .map_or_else(|| built.into(), |folder| PathBuf::from(folder).join(name))
}

fn fabric() -> String {
    std::env::var("WINDLASS_EXAMPLES_FABRIC").unwrap_or_else(|_| "tcp".into())
}

/// A process that is ended with the test, whatever the test comes to.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(program: &PathBuf, words: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(words).args(["--fabric", &fabric()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("to start");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, output }
    }

    /// The address of its first line.
    fn address(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_string()
    }

    /// Waits for its end, which has to be a success; the rest of its output.
    fn done(mut self) -> String {
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).expect("its output");
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("its errors");
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}: {printed}{said}");
        printed
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Server and client of one program; what each printed.
fn pair(program: &PathBuf, server: &[&str], client: &[&str]) -> (String, String) {
    let mut serving = Running::start(program, &[&["server", "127.0.0.1:0"], server].concat());
    let address = serving.address();
    let asking = Running::start(program, &[&["client", &address], client].concat());
    let asked = asking.done();
    (serving.done(), asked)
}

#[test]
fn write_once_places_its_text() {
    let program = program("write_once", env!("CARGO_BIN_EXE_write_once"));
    let (server, client) = pair(&program, &[], &["some words, and some more"]);
    assert!(server.contains("received: some words, and some more\n"), "{server}");
    assert!(client.contains("written: 25 bytes\n"), "{client}");
}

#[test]
fn write_once_is_refused_where_the_window_was_taken_back() {
    let program = program("write_once", env!("CARGO_BIN_EXE_write_once"));
    let (server, client) = pair(&program, &["--window"], &["words"]);
    assert!(server.contains("received: words\n") && server.contains("window taken back"), "{server}");
    assert!(client.contains("written: 5 bytes\n") && client.contains("RemoteAccess"), "{client}");
}

#[test]
fn write_once_refuses_a_text_that_does_not_fit() {
    let program = program("write_once", env!("CARGO_BIN_EXE_write_once"));
    let mut serving = Running::start(&program, &["server", "127.0.0.1:0"]);
    let text = "x".repeat(4097);
    let refused = Command::new(&program)
        .args(["client", &serving.address(), &text, "--fabric", &fabric()])
        .output()
        .expect("to start");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("4097"), "{refused:?}");
}

#[test]
fn echo_brings_every_message_back() {
    let program = program("echo", env!("CARGO_BIN_EXE_echo"));
    for (count, bytes) in [("200", "64"), ("20", "4096"), ("3", "1")] {
        let (server, client) = pair(&program, &[], &["--count", count, "--bytes", bytes]);
        assert!(server.contains(&format!("{count} messages written back\n")), "{server}");
        assert!(
            client.contains(&format!("{count} messages of {bytes} bytes came back unaltered")),
            "{client}"
        );
    }
}

#[test]
fn batch_prints_a_rate_for_each_length_of_chain() {
    let program = program("batch", env!("CARGO_BIN_EXE_batch"));
    let (_, client) = pair(&program, &[], &["--requests", "1000"]);
    let rows: Vec<Vec<u64>> = client
        .lines()
        .filter_map(|line| line.split_whitespace().map(|word| word.parse().ok()).collect())
        .collect();
    let lengths: Vec<u64> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64], "{client}");
    assert!(rows.iter().all(|row| row.len() == 3 && row[1] > 0 && row[2] > 0), "{client}");
}

#[test]
fn ring_allreduce_in_one_process_is_the_plain_sum() {
    let program = program("ring_allreduce", env!("CARGO_BIN_EXE_ring_allreduce"));
    // Fewer words than ranks: some chunks are empty. And a length that no number of ranks divides.
    for (ranks, words) in [("2", "1"), ("5", "3"), ("3", "10007"), ("4", "50000")] {
        let printed = Running::start(&program, &["--here", ranks, "--words", words]).done();
        let right = printed.lines().filter(|line| line.contains("equal to the plain sum")).count();
        assert_eq!(right.to_string(), ranks, "{printed}");
    }
}

#[test]
fn ring_allreduce_between_processes_is_the_plain_sum() {
    let program = program("ring_allreduce", env!("CARGO_BIN_EXE_ring_allreduce"));
    // Ports that have to be known beforehand: on a loopback address of this process's own, below those that the system gives away.
    let [first, second, third, _] = (std::process::id() | 0x80_0000).to_le_bytes();
    let ranks = [7471, 7472, 7473].map(|port| format!("127.{third}.{second}.{first}:{port}")).join(",");
    let start = |rank| Running::start(&program, &["--ranks", &ranks, "--rank", rank, "--words", "4099"]);
    let running = ["0", "1", "2"].map(start);
    for (rank, process) in running.into_iter().enumerate() {
        let printed = process.done();
        assert!(printed.contains(&format!("rank {rank}: 4099 words over 3 ranks in 4 steps")), "{printed}");
    }
}

#[cfg(not(feature = "verbs"))]
#[test]
fn without_verbs_built_in_the_command_that_builds_them_is_named() {
    let program = program("ring_allreduce", env!("CARGO_BIN_EXE_ring_allreduce"));
    let refused =
        Command::new(&program).args(["--here", "2", "--fabric", "verbs"]).output().expect("to start");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--features verbs"), "{refused:?}");
}

#[cfg(not(feature = "verbs"))]
#[test]
fn a_server_without_verbs_refuses_them_before_it_waits_for_anybody() {
    let program = env!("CARGO_BIN_EXE_write_once");
    let out = Command::new(program)
        .args(["server", "127.0.0.1:0", "--fabric", "verbs"])
        .output()
        .expect("to start");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("--features verbs") && out.stdout.is_empty(), "{said}");
}
