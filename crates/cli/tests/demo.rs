//! `windlass demo` and `windlass node` as a user runs them: real processes, real kills.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn windlass(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs a demo that must go well; its JSON.
fn demo(args: &[&str]) -> Value {
    let out = windlass(&[&["demo", "--json", "--any-filesystem"], args].concat());
    let (said, complained) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{:?}\n{said}\n{complained}", out.status);
    serde_json::from_str(&said).unwrap()
}

fn assert_nothing_lost(report: &Value) {
    assert_eq!(report["ok"], true, "{report}");
    for wrong in ["lost", "duplicated", "altered", "extra", "unreadable"] {
        assert_eq!(report[wrong], 0, "{wrong}: {report}");
    }
    assert_eq!(report["records"], report["acknowledged"], "{report}");
    assert!(report["acknowledged"].as_u64().unwrap() > 100, "{report}");
}

#[test]
fn two_killed_primaries_lose_nothing_at_level_durable() {
    let report = demo(&["--seconds", "4", "--kills", "2"]);
    assert_nothing_lost(&report);
    let takeovers = report["takeovers"].as_array().unwrap();
    let killed = takeovers.iter().filter(|takeover| takeover["killed"] == true);
    assert_eq!(killed.count(), 2, "{report}");
    // Of the processes that ran last, each batch to a backup one doorbell and one completion at most.
    let members = report["batches"].as_array().unwrap();
    let sum = |of: &str| members.iter().map(|member| member[of].as_u64().unwrap()).sum::<u64>();
    let (sent, doorbells, signalled) = (sum("sent"), sum("doorbells"), sum("signalled"));
    assert!(members.len() == 3 && 0 < doorbells && doorbells <= sent && signalled <= doorbells, "{report}");
    for takeover in takeovers {
        assert!(takeover["kill_to_commit_ms"].as_f64().unwrap() > 0.0, "{report}");
        assert_eq!(takeover["suspicion_ms"], 400);
    }
    assert_eq!(report["level"], "durable");
    assert!(report["throughput_per_s"].as_f64().unwrap() > 0.0, "{report}");
    let (p50, p99) = (report["p50_us"].as_u64().unwrap(), report["p99_us"].as_u64().unwrap());
    assert!(0 < p50 && p50 <= p99, "{report}");
}

#[test]
fn ten_primaries_frozen_through_a_takeover_commit_nothing_more_and_rejoin() {
    let report = demo(&["--faults", "freeze", "--kills", "10", "--seconds", "3", "--in-flight", "32"]);
    assert_nothing_lost(&report);
    let takeovers = report["takeovers"].as_array().unwrap();
    let late: Vec<&Value> = takeovers
        .iter()
        .filter(|takeover| takeover["fault"] == "freeze")
        .inspect(|takeover| assert_ne!(takeover["from"], takeover["to"], "{report}"))
        .map(|takeover| &takeover["late"])
        .collect();
    assert_eq!(late.len(), 10, "{report}");
    let sum = |what: &str| late.iter().map(|late| late[what].as_u64().unwrap()).sum::<u64>();
    // 32 were sent to each while it was frozen: none of these can be in the group's log.
    assert!(sum("unknown") + sum("refused") >= 320, "{report}");
}

/// A shell that ends behind a demo leaves its group of processes without a parent, and the kernel then thaws what is stopped in it.
#[test]
fn a_frozen_primary_stays_frozen_when_the_shell_ends_that_started_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let (said, complained) = (folder.path().join("out"), folder.path().join("err"));
    let script = "trap '' HUP; \"$0\" demo --json --any-filesystem --faults freeze --kills 3 --seconds 1 >\"$1\" 2>\"$2\" & echo $!; read _";
    let mut shell = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_windlass")])
        .args([&said, &complained])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let demo: u32 = line.trim().parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_stopped_child(demo) {
        assert!(Instant::now() < deadline, "{}", std::fs::read_to_string(&complained).unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(shell.stdin.take());
    shell.wait().unwrap();
    // Its parent is another process now, which may take its time to see that it has ended.
    let ended = || stat(demo).is_none_or(|(state, _)| state == 'Z');
    while !ended() {
        let patience = Duration::from_secs(120);
        assert!(Instant::now() < deadline + patience, "{}", std::fs::read_to_string(&complained).unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = std::fs::read_to_string(&said).unwrap();
    let report = serde_json::from_str::<Value>(&report)
        .unwrap_or_else(|_| panic!("{report}{}", std::fs::read_to_string(&complained).unwrap()));
    assert_nothing_lost(&report);
    let frozen = report["takeovers"].as_array().unwrap().iter().filter(|of| of["fault"] == "freeze");
    assert_eq!(frozen.count(), 3, "{report}");
}

/// A process's state and its parent (proc_pid_stat(5)).
fn stat(process: u32) -> Option<(char, u32)> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = line.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn has_stopped_child(parent: u32) -> bool {
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let processes = names.filter_map(|name| name.to_str()?.parse().ok());
    processes.filter_map(stat).any(|(state, of)| state == 'T' && of == parent)
}

/// What is sent to a frozen primary beyond what its socket holds stays with the client, which goes on with the next primary.
#[test]
fn a_primary_frozen_with_more_under_way_than_its_socket_holds_does_not_hold_its_client() {
    let long = ["--segment-bytes", "65536", "--payload", "60000", "--in-flight", "16"];
    let report = demo(&[&["--faults", "freeze", "--kills", "2", "--seconds", "1"], &long[..]].concat());
    // So few records that nothing else is to be said of them.
    assert_eq!(report["ok"], true, "{report}");
    let late = &report["late"];
    let unacknowledged = late["unknown"].as_u64().unwrap() + late["refused"].as_u64().unwrap();
    // 16 were sent to each while it was frozen, a million bytes.
    assert!(unacknowledged >= 32, "{report}");
}

/// Failure kind 65: what is open to a deposed primary is taken back by ending its connection and its registrations.
#[test]
fn without_windows_frozen_primaries_commit_nothing_more_either() {
    let report = demo(&["--no-windows", "--faults", "freeze", "--kills", "2", "--seconds", "1"]);
    assert_nothing_lost(&report);
    let frozen =
        report["takeovers"].as_array().unwrap().iter().filter(|takeover| takeover["fault"] == "freeze");
    assert_eq!(frozen.count(), 2, "{report}");
    for (number, member) in (1..).zip(report["windows"].as_array().unwrap()) {
        assert_eq!(member["member"], number, "{report}");
        assert_eq!((&member["binds"], &member["allocated"]), (&Value::from(0), &Value::from(0)), "{report}");
    }
}

/// Nobody waits for the end of keys that no window has.
#[test]
fn the_end_of_windows_is_not_waited_for_where_there_are_none() {
    let out = windlass(&["demo", "--no-windows", "--used-up-windows", "1"]);
    assert_eq!(out.status.code(), Some(64), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_faults_command_is_run_around_the_fault_with_the_primarys_number() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let command = format!("echo >>{}", told.display());
    let strike = ["--kills", "1", "--seconds", "1", "--fault-ms", "100", "--fault-command", &command];
    for faults in ["freeze", "command"] {
        let report = demo(&[&["--faults", faults], &strike[..]].concat());
        assert_nothing_lost(&report);
        let lines = std::fs::read_to_string(&told).unwrap();
        let words: Vec<&str> = lines.split_whitespace().collect();
        let [begin, first, end, last] = words[..] else { panic!("{lines}") };
        assert_eq!((begin, end, first), ("begin", "end", last));
        std::fs::remove_file(&told).unwrap();
    }
    let refused = demo_fails(&["--faults", "command", "--fault-command", "false"]);
    assert!(refused.contains("false begin"), "{refused}");
    let out = windlass(&["demo", "--faults", "command"]);
    assert_eq!(out.status.code(), Some(64), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Runs a demo that the system fails; what it says.
fn demo_fails(args: &[&str]) -> String {
    let out = windlass(&[&["demo", "--json", "--any-filesystem"], args].concat());
    assert_eq!(out.status.code(), Some(5));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let kept = said.lines().find_map(|line| line.split("kept in ").nth(1)?.split(',').next());
    if let Some(kept) = kept {
        // Kept for people to look at.
        let _ = std::fs::remove_dir_all(kept);
    }
    said
}

#[test]
fn five_members_lose_nothing_at_level_replicated() {
    let report = demo(&["--members", "5", "--level", "replicated", "--seconds", "3", "--kills", "1"]);
    assert_nothing_lost(&report);
    assert_eq!((&report["members"], &report["level"]), (&Value::from(5), &Value::from("replicated")));
}

/// The demo's last word can fail: a byte that is changed in one member's files before they are read is found.
#[test]
fn one_changed_byte_in_one_members_files_fails_the_demo_and_keeps_the_folders() {
    let place = tempfile::tempdir().unwrap();
    let (logs, launch) = (place.path().join("logs"), place.path().join("launch.sh"));
    // As each member's process: once member 2 has ended well, a byte of a record's payload is another.
    let script = "n=$1; shift; \"$@\"; status=$?; file=\"$LOGS/m2/0000000000000000.segment\"\n\
                  if [ \"$n\" = 2 ]; then printf '\\377' | dd of=\"$file\" bs=1 seek=9000 conv=notrunc 2>/dev/null; fi\n\
                  exit $status\n";
    std::fs::write(&launch, script).unwrap();
    let launch = format!("sh {} {{}}", launch.display());
    let out = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["demo", "--json", "--any-filesystem", "--seconds", "1", "--kills", "0", "--folder"])
        .arg(&logs)
        .args(["--launch", &launch])
        .env("LOGS", &logs)
        // Text alone, so that no byte of it is 255.
        .args(["--input", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (said, complained) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(2), "{said}\n{complained}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["ok"], false, "{report}");
    assert_eq!(report["unreadable"], 1, "{report}");
    assert!(report["lost"].as_u64().unwrap() > 0, "{report}");
    assert!(complained.contains("are not what was acknowledged"), "{complained}");
    assert!(complained.contains(logs.to_str().unwrap()) && logs.join("m2").is_dir(), "{complained}");
}

#[test]
fn lines_of_standard_input_are_records_and_the_folder_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args([
            "demo",
            "--json",
            "--any-filesystem",
            "--seconds",
            "1",
            "--kills",
            "0",
            "--input",
            "-",
            "--folder",
        ])
        .arg(&logs)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"first\n\nthird").unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_nothing_lost(&report);
    let read = windlass(&["log", "read", logs.join("m2").to_str().unwrap(), "--format", "raw"]);
    assert!(read.status.success());
    let mut want = Vec::new();
    for sequence in 0..report["acknowledged"].as_u64().unwrap() {
        want.extend_from_slice(&sequence.to_le_bytes());
        let line: &[u8] = [b"first".as_slice(), b"", b"third"][usize::try_from(sequence % 3).unwrap()];
        want.extend_from_slice(line);
    }
    assert!(read.stdout == want, "the log has {} bytes, {} were acknowledged", read.stdout.len(), want.len());
    let verified = windlass(&["log", "verify", logs.join("m1").to_str().unwrap()]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // A member's log is no lone one: nothing is appended to it, cut from it or released by hand.
    let member = logs.join("m2");
    let member = member.to_str().unwrap();
    for args in [
        &["log", "append", member, "--file", "-"][..],
        &["log", "truncate", member, "--from", "4096"],
        &["log", "trim", member, "--before", "4096"],
    ] {
        let out = windlass(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let read = windlass(&["log", "read", member, "--format", "raw"]);
    assert!(read.stdout == want, "nothing has changed");
    // Its files are somebody's: no second demo writes there.
    let again = windlass(&["demo", "--folder", logs.to_str().unwrap(), "--seconds", "1"]);
    assert_eq!(again.status.code(), Some(3));
}

/// As somebody runs it who gives nothing but the input: what is printed meanwhile and at the end, and what every log then holds.
#[test]
fn a_demo_of_a_files_frames_kills_two_primaries_says_how_it_goes_and_ends_with_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let out = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["demo", "--any-filesystem", "--seconds", "2", "--frame", "1000", "--input"])
        .arg(&input)
        .arg("--folder")
        .arg(&logs)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("3 members on this machine"), "{said}");
    assert_eq!(said.matches(" is killed (SIGKILL)").count(), 2, "{said}");
    assert_eq!(said.matches(" was started again and had caught up").count(), 2, "{said}");
    assert!(said.contains("records acknowledged, "), "how far it is, once a second: {said}");
    assert!(said.contains(" records at level durable"), "{said}");
    assert!(said.contains("Nothing acknowledged was lost, altered, repeated or put out of order."), "{said}");
    // The table: all three have as many, and nothing else.
    let row = |name: &str| -> Vec<u64> {
        let line = said.lines().find(|line| line.trim_start().starts_with(&format!("{name}  "))).unwrap();
        line.split_whitespace().skip(1).map(|word| word.replace(',', "").parse().unwrap()).collect()
    };
    let rows = ["m1", "m2", "m3"].map(row);
    let acknowledged = rows[0][0];
    assert!(acknowledged > 100, "{said}");
    assert!(rows.iter().all(|row| row[..] == [acknowledged, 0, 0, 0, 0]), "{said}");
    // And what they hold is the input, 1000 bytes at a time, each behind its number.
    let bytes = std::fs::read(&input).unwrap();
    let frames: Vec<&[u8]> = bytes.chunks(1000).collect();
    let mut want = Vec::new();
    for (sequence, frame) in (0..acknowledged).zip(frames.iter().cycle()) {
        want.extend_from_slice(&sequence.to_le_bytes());
        want.extend_from_slice(frame);
    }
    for member in ["m1", "m2", "m3"] {
        let read = windlass(&["log", "read", logs.join(member).to_str().unwrap(), "--format", "raw"]);
        assert!(
            read.status.success() && read.stdout == want,
            "{member}: {} bytes of {}",
            read.stdout.len(),
            want.len()
        );
    }
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_started() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["demo", "--members", "4"], 64, "possible values: 3, 5"),
        (&["demo", "--members", "2"], 64, "2"),
        (&["demo", "--input", "/nonexistent/file"], 5, "/nonexistent/file"),
        (&["demo", "--input", empty.path().to_str().unwrap()], 3, "is empty"),
        (&["demo", "--frame", "10"], 64, "--input"),
        (&["demo", "--level", "local"], 64, "durable"),
        (&["demo", "--segment-bytes", "1000"], 64, "power of two"),
        (&["demo", "--segment-bytes", "32768"], 64, "65536"),
        (&["demo", "--segment-bytes", "100000"], 64, "power of two"),
        (&["demo", "--segment-bytes", "8589934592"], 64, "4 GiB"),
        (&["node", "--config", "/nonexistent/file", "--member", "1"], 64, "/nonexistent/file"),
        (&["node", "--config", "/", "--member", "1"], 64, "group init"),
        (&["group", "--config", "/dev/null/file", "status"], 64, "group init"),
    ];
    for (args, status, words) in cases {
        let out = windlass(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(*status), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

fn group(folder: &Path, change: impl Fn(String) -> String) -> std::path::PathBuf {
    let file = folder.join("group.toml");
    let member = |number: u8| {
        format!(
            "[[members]]\nnumber = {number}\ncontrol = \"127.0.0.1:0\"\nclient = \"{0}/m{number}.sock\"\nfolder = \"{0}/m{number}\"\n",
            folder.display()
        )
    };
    let text = format!(
        "log_id = \"000102030405060708090a0b0c0d0e0f\"\nsecret = \"a secret for the tests\"\nlevel = \"durable\"\nsegment_bytes = 65536\n\
         retention_bytes = 1048576\nsuspicion_ms = 400\nany_filesystem = true\n{}{}{}",
        member(1),
        member(2),
        member(3)
    );
    std::fs::write(&file, change(text)).unwrap();
    file
}

#[test]
fn a_group_file_that_does_not_hold_is_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let node = |file: &Path, member: &str| {
        windlass(&["node", "--config", file.to_str().unwrap(), "--member", member])
    };
    let cases: &[(&str, &str, i32, &str)] = &[
        ("a secret for the tests", "short", 64, "secret"),
        ("000102030405060708090a0b0c0d0e0f", "00", 64, "log_id"),
        ("\"durable\"", "\"eventual\"", 64, "eventual"),
        ("65536", "65537", 64, "power of two"),
        ("1048576", "131072", 64, "retention_bytes is 131072: use at least 196608, three segments"),
        ("suspicion_ms", "suspicion_hours", 64, "suspicion_hours"),
        ("suspicion_ms = 400", "suspicion_ms = 3", 64, "the option suspicion is 3ms: use 4ms to 3600s"),
        ("suspicion_ms = 400", "suspicion_ms = 9223372036854775807", 64, "use 4ms to 3600s"),
    ];
    for (from, to, status, words) in cases {
        let file = group(folder.path(), |text| text.replace(from, to));
        let out = node(&file, "1");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(*status), "{to}: {said}");
        assert!(said.contains(words), "{to}: {said}");
    }
    let out = node(&group(folder.path(), |text| text), "9");
    assert_eq!(out.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&out.stderr).contains("1, 2, 3"));
}

#[test]
fn a_second_process_on_a_members_folder_is_told_who_has_it_and_orphans_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = group(folder.path(), |text| text);
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["node", "--config", file.to_str().unwrap(), "--member", "1", "--exit-with-stdin"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut first = start();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !folder.path().join("m1.sock").exists() {
        assert!(Instant::now() < deadline, "the member does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = start().wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&second.stderr).contains(&first.id().to_string()));
    drop(first.stdin.take());
    while first.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "an orphan goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}
