//! `windlass group` and `windlass node` as a user runs them: members started one by one, killed, stopped by signals.

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use support::{Group, PATIENCE, windlass};

/// What the kernel refuses a member.
#[derive(Clone, Copy)]
enum Fails {
    /// Every flush of log bytes (msync: EIO).
    Flushing,
    /// Room for another segment (fallocate: ENOSPC).
    Allocating,
    /// Preallocating at all, as on a filesystem that can't (fallocate: EOPNOTSUPP).
    Preallocating,
}

impl Fails {
    fn call_and_errno(self) -> (i64, i32) {
        let is_x86 = cfg!(target_arch = "x86_64");
        match self {
            Fails::Flushing => (if is_x86 { 26 } else { 227 }, 5),
            Fails::Allocating => (if is_x86 { 285 } else { 47 }, 28),
            Fails::Preallocating => (if is_x86 { 285 } else { 47 }, 95),
        }
    }
}

/// Makes of a command that runs this very program one whose only test to run becomes `windlass` with these words, for which the kernel refuses a call.
fn becomes(command: &mut Command, fails: Fails, args: &[&str]) {
    command.args(["--exact", "becomes_a_process_whose_calls_fail", "--nocapture", "--test-threads=1"]);
    let (call, errno) = fails.call_and_errno();
    command.env(BECOMES, format!("{call}\n{errno}\n{}", args.join("\n")));
}

/// Starts a member for which the kernel refuses this call.
fn start_failing(group: &mut Group, number: usize, fails: Fails) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    becomes(&mut command, fails, &["node", "--config", &group.config, "--member", &number.to_string()]);
    command.stdout(Stdio::null());
    group.start_as(number, &mut command);
}

fn lines(from: u32, to: u32) -> Vec<u8> {
    let mut text = String::new();
    for number in from..to {
        // Some equal to their neighbours, some empty.
        let line = if number % 5 == 0 { String::new() } else { format!("line {} of the input", number / 3) };
        writeln!(text, "{line}").unwrap();
    }
    text.into_bytes()
}

#[test]
fn what_is_appended_while_the_primary_is_killed_is_read_back_once_in_order_and_byte_for_byte() {
    let mut group = Group::init().start_all();
    let victim = group.primary();
    let mut append = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["group", "--config", &group.config, "append", "--file", "-", "--in-flight", "64"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = append.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        for block in 0..40 {
            input.write_all(&lines(block * 100, block * 100 + 100)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    group.kill(victim);
    feeding.join().unwrap();
    let out = append.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let ranges = String::from_utf8(out.stdout).unwrap();
    assert_eq!(ranges.lines().count(), 4000);
    let numbers: Vec<u64> = ranges.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers.is_sorted(), "the ranges go back");

    let want = lines(0, 4000);
    let read = group.output(&["read"]);
    assert!(read.status.success() && read.stdout == want, "{} of {} bytes", read.stdout.len(), want.len());
    assert_ne!(group.primary(), victim);
    // The victim comes back and knows all of it.
    group.start(victim);
    let deadline = Instant::now() + PATIENCE;
    let number = victim.to_string();
    while group.output(&["read", "--member", &number]).stdout != want {
        assert!(Instant::now() < deadline, "m{victim} does not catch up: {:?}", group.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    // From the last record on, in the other formats.
    let start = numbers[numbers.len() - 2].to_string();
    assert_eq!(
        group.output(&["read", "--from", &start, "--format", "raw"]).stdout,
        b"line 1333 of the input"
    );
    let json = group.output(&["read", "--from", &start, "--format", "json"]).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(
        (json["lsn"].to_string(), &json["text"]),
        (start.clone(), &Value::from("line 1333 of the input"))
    );
    let hex = String::from_utf8(group.output(&["read", "--from", &start, "--format", "hex"]).stdout).unwrap();
    assert!(hex.starts_with(&format!("{start} ")) && hex.trim_end().ends_with("6e707574"), "{hex}");
    let inside = (numbers[numbers.len() - 2] + 1).to_string();
    assert_eq!(group.output(&["read", "--from", &inside]).status.code(), Some(3));
    assert_eq!(group.output(&["read", "--from", "99999999999"]).status.code(), Some(3));
}

/// Kinds 2 and 12, with real files: a member is killed, a byte of a cold segment flips and another segment is gone; started again it is repaired by its peers.
#[test]
fn kind_12_a_killed_member_whose_cold_segments_are_damaged_is_repaired_and_nothing_is_lost() {
    let mut group = Group::init_small().start_all();
    let primary = group.primary();
    let mut want = Vec::new();
    for round in 0..4 {
        let text = lines(round * 4000, round * 4000 + 4000);
        group.append(&text);
        want.extend(text);
    }
    group.wait_even();
    let victim = if primary == 3 { 1 } else { primary + 1 };
    let tail = group.status()[victim - 1]["tail"].as_u64().unwrap();
    assert!(tail > 6 * 65536, "{tail}");
    group.kill(victim);
    let folder = group.root.join(format!("m{victim}"));
    let file = |number: u64| folder.join(format!("{:016x}.segment", number * 65536));
    let mut bytes = std::fs::read(file(1)).unwrap();
    bytes[30_000] ^= 1;
    std::fs::write(file(1), bytes).unwrap();
    std::fs::remove_file(file(3)).unwrap();
    let verify = || windlass(&["log", "verify", folder.to_str().unwrap()]);
    assert_eq!(verify().status.code(), Some(2), "{:?}", verify());

    group.start(victim);
    let deadline = Instant::now() + PATIENCE;
    // By the opening the one that is gone, by the scrub the one that has changed.
    while verify().status.code() == Some(2) || !group.said(victim).contains("is here again") {
        assert!(Instant::now() < deadline, "{}\n{:?}", group.said(victim), verify());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(group.said(victim).contains("damage in what was on the medium"), "{}", group.said(victim));
    let more = lines(16_000, 17_000);
    group.append(&more);
    want.extend(more);
    group.wait_even();
    assert!(group.status().iter().all(|row| row["damaged"] == false), "{:?}", group.status());
    for number in 1..=3 {
        let read = group.output(&["read", "--member", &number.to_string()]);
        assert!(read.stdout == want, "m{number}: {} of {} bytes", read.stdout.len(), want.len());
    }
    // It may lead again.
    let deadline = Instant::now() + PATIENCE;
    while !group.output(&["hand-over", "--to", &victim.to_string()]).status.success() {
        assert!(Instant::now() < deadline, "{}", group.said(victim));
        std::thread::sleep(Duration::from_millis(50));
    }
    group.signal(victim, Signal::TERM);
    assert_eq!(group.ended(victim), Some(0), "{}", group.said(victim));
    let clean = verify();
    assert!(clean.status.success(), "{clean:?}");
}

/// Kind 2 of whole files: a member whose segment was cut short stays closed, and what it says leads to a member that has all again.
#[test]
fn kind_2_a_member_with_a_file_cut_short_names_the_repair_and_its_peers_and_both_bring_it_back() {
    let mut group = Group::init_small().start_all();
    let victim = group.primary() % 3 + 1;
    let want = lines(0, 6000);
    group.append(&want);
    group.wait_even();
    group.kill(victim);
    let folder = group.root.join(format!("m{victim}"));
    let file = folder.join(format!("{:016x}.segment", 65536));
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(30_000).unwrap();
    group.start(victim);
    assert_eq!(group.ended(victim), Some(2), "{}", group.said(victim));
    let said = group.said(victim);
    let repair = format!("`windlass log repair {}`", folder.display());
    for words in [repair.as_str(), &format!("start m{victim} again, and its peers"), "30000 bytes"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let folder = folder.to_str().unwrap();
    let verified = windlass(&["log", "verify", folder]);
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(
        said.contains(&format!("where a file's length keeps it from starting, {repair} first")),
        "{said}"
    );
    let repaired = windlass(&["log", "repair", folder]);
    let said = String::from_utf8_lossy(&repaired.stderr);
    assert!(said.contains("start the member, and its peers send again what it lacks"), "{repaired:?}");
    group.start(victim);
    let (deadline, number) = (Instant::now() + PATIENCE, victim.to_string());
    while group.output(&["read", "--member", &number]).stdout != want {
        assert!(Instant::now() < deadline, "{}", group.said(victim));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One record is damaged on the medium of every member: nobody leads, each says what it has lost and what can be done, and an operator's word gets the group on with what is left.
#[test]
fn where_every_member_is_damaged_the_group_waits_for_an_operators_word_r18() {
    let mut group = Group::init().start_all();
    group.primary();
    group.append(&lines(0, 4000));
    group.wait_even();
    // While a primary leads there is nothing to accept.
    let out = group.output(&["accept-loss", "--member", "2", "--yes"]);
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(3) && why.contains("a primary leads"), "{out:?}");
    let tail = group.status()[0]["tail"].as_u64().unwrap();
    for number in 1..=3 {
        group.kill(number);
        let file = group.root.join(format!("m{number}")).join("0000000000000000.segment");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[usize::try_from(tail / 2).unwrap()] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }
    for number in 1..=3 {
        group.start(number);
    }
    let deadline = Instant::now() + PATIENCE;
    let says = |group: &Group, number: usize| {
        let said = group.said(number);
        said.contains("lost what it may have acknowledged from LSN")
            && said
                .contains(&format!("`windlass group --config {} accept-loss --member N --yes`", group.config))
    };
    while !(1..=3).all(|number| says(&group, number)) {
        assert!(Instant::now() < deadline, "{}{}{}", group.said(1), group.said(2), group.said(3));
        std::thread::sleep(Duration::from_millis(50));
    }
    // Nobody can send anything again, and enough members run: the way out is named.
    let out = group.output(&["status"]);
    let (table, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(5));
    assert!(table.contains("damaged: lacks") && !table.contains("its peers send"), "{table}");
    for words in ["3 of m1, m2, m3 run", " accept-loss --member N --yes`", "lines say who lacks"] {
        assert!(why.contains(words) && !why.contains("have to run"), "{words}: {why}");
    }
    // Not by a slip.
    assert_eq!(group.output(&["accept-loss", "--member", "2"]).status.code(), Some(64));
    let out = group.output(&["accept-loss", "--member", "2", "--yes"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{out:?} {}", group.said(2));
    assert!(
        said.contains("m2 gives up what it may have acknowledged from LSN") && said.contains("m2 is primary"),
        "{said}"
    );
    group.append(&lines(4000, 4010));
    group.wait_even();
    assert!(group.status().iter().all(|row| row["damaged"] == false), "{:?}", group.status());
    // What was given up is not said to be here again.
    for number in 1..=3 {
        let (said, words) = (
            group.said(number),
            if number == 2 { "is given up from LSN" } else { "the group's log goes on without" },
        );
        assert!(said.contains(words) && !said.contains("is here again"), "{words}: {said}");
    }
    let (before, after) = (lines(0, 4000), lines(4000, 4010));
    for number in 1..=3 {
        let read = group.output(&["read", "--member", &number.to_string()]).stdout;
        let kept = read.strip_suffix(after.as_slice()).expect("what was appended since");
        assert!(before.starts_with(kept) && kept.len() > before.len() / 4, "{} bytes are kept", kept.len());
    }
}

#[test]
fn frames_are_appended_and_a_tenure_is_handed_over_on_demand() {
    let group = Group::init().start_all();
    let first = group.primary();
    let file = group.root.join("input");
    let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &bytes).unwrap();
    let appended = group.output(&["append", "--file", file.to_str().unwrap(), "--frame", "1000", "--json"]);
    assert!(appended.status.success(), "{}", String::from_utf8_lossy(&appended.stderr));
    let said = String::from_utf8(appended.stdout).unwrap();
    let summary: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(summary["records"], 40, "{said}");
    // Backups stream a moment after the primary leads.
    let to = if first == 3 { 1 } else { first + 1 };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let handed = group.output(&["hand-over", "--to", &to.to_string()]);
        if handed.status.success() {
            break;
        }
        assert_eq!(handed.status.code(), Some(3), "{}", String::from_utf8_lossy(&handed.stderr));
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&handed.stderr));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(group.primary(), to);
    let again = group.output(&["hand-over", "--to", &to.to_string()]);
    assert_eq!(again.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&again.stdout).contains("is primary already"), "{again:?}");
    assert_eq!(group.output(&["hand-over", "--to", "9"]).status.code(), Some(64));
    assert!(group.output(&["read", "--format", "raw"]).stdout == bytes);
    let table = String::from_utf8(group.output(&["status"]).stdout).unwrap();
    assert!(table.starts_with("member  answers") && table.lines().count() == 4, "{table}");
    // Whose backup each is, and the same word in JSON.
    group.wait(|group| {
        let (table, rows) = (group.output(&["status"]).stdout, group.status());
        let table = String::from_utf8(table).unwrap();
        let backups = rows.iter().filter(|row| row["state"] == "backup" && row["follows"] == to);
        let is_said = table.matches(&format!(" backup of m{to} ")).count() == 2;
        (is_said && backups.count() == 2 && rows[to - 1]["state"] == "primary").then_some(())
    });
    // What was under way at the end of a tenure is no error.
    let said = (1..=3).map(|number| group.said(number)).collect::<String>();
    assert!(!said.contains("refused a request"), "{said}");
}

#[test]
fn sigterm_and_sigint_end_a_member_well_and_its_socket_goes() {
    let mut group = Group::init().start_all();
    let first = group.primary();
    assert!(group.root.join(format!("m{first}.sock")).exists());
    group.signal(first, Signal::TERM);
    assert_eq!(group.ended(first), Some(0), "{}", group.said(first));
    assert!(!group.root.join(format!("m{first}.sock")).exists());
    let folder = group.root.join(format!("m{first}"));
    let info = windlass(&["log", "verify", folder.to_str().unwrap()]);
    assert!(info.status.success(), "{info:?}");
    let second = group.primary();
    assert_ne!(first, second);
    group.signal(second, Signal::INT);
    assert_eq!(group.ended(second), Some(0), "{}", group.said(second));
    // The last one is alone, and ends well all the same.
    let last = 6 - first - second;
    let deadline = Instant::now() + PATIENCE;
    let out = loop {
        // It may have been made primary by the second one, until it finds nobody.
        let out = group.output(&["status"]);
        if !out.status.success() {
            break out;
        }
        assert!(Instant::now() < deadline, "{}", group.said(last));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(out.status.code(), Some(5));
    // Who stands how is said once, in the table.
    let (table, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(table.contains(&format!("\nm{first}      no ")), "{table}");
    assert!(!why.contains("does not answer ("), "{why}");
    while !group.said(last).contains("no majority: ") {
        assert!(Instant::now() < deadline, "{}", group.said(last));
        std::thread::sleep(Duration::from_millis(20));
    }
    group.signal(last, Signal::TERM);
    assert_eq!(group.ended(last), Some(0), "{}", group.said(last));
    for number in 1..=3 {
        let said = group.said(number);
        assert!(said.contains(&format!("member m{number} is ready: control 127.0.0.1:")), "{said}");
        assert!(said.contains("the member has ended well"), "{said}");
        assert!(said.starts_with("20") && said.contains('Z'), "a date: {said}");
    }
}

/// The configuration and the number of the member that a process of this program becomes.
const BECOMES: &str = "WINDLASS_TEST_BECOMES";

/// No test by itself: where the variable is set, this process takes `msync` away from itself and becomes a member.
#[test]
fn becomes_a_process_whose_calls_fail() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    use std::os::unix::process::CommandExt as _;
    let Ok(becomes) = std::env::var(BECOMES) else { return };
    let words: Vec<&str> = becomes.lines().collect();
    let [call, errno, ref args @ ..] = words[..] else { panic!("{becomes}") };
    let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let refused = SeccompAction::Errno(errno.parse().unwrap());
    let rules = [(call.parse().unwrap(), Vec::new())].into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).expect("a kernel with seccomp");
    panic!("{}", Command::new(env!("CARGO_BIN_EXE_windlass")).args(args).exec());
}

/// Real files, real processes: the kernel answers each flush of the log's bytes with an error.
#[test]
fn kind_24_a_member_whose_real_files_refuse_to_be_flushed_stops_and_the_group_goes_on() {
    let mut group = Group::init().start_all();
    let old = group.primary();
    group.append(&lines(0, 50));
    let failing = old % 3 + 1;
    let deadline = Instant::now() + PATIENCE;
    // With all that the primary has on its own medium it has nothing to flush before it leads itself.
    group.wait_even();
    group.kill(failing);
    start_failing(&mut group, failing, Fails::Flushing);
    // On a machine so busy that the primary has changed meanwhile, it has had a new epoch's start to flush already.
    let has_failed = || group.said(failing).contains("the medium failed; this member stops");
    group.wait_even_or(has_failed);
    // As primary it has a record of its own to flush, and can't: this command would wait for it to lead.
    let mut hand_over = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["group", "--config", &group.config, "hand-over", "--to", &failing.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    group.append(&lines(50, 100));
    while !has_failed() {
        assert!(Instant::now() < deadline, "{}", group.said(failing));
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = hand_over.kill();
    hand_over.wait().unwrap();
    assert_ne!(group.primary(), failing);
    // On a medium that works it is a member like any other, with all that was acknowledged meanwhile.
    group.kill(failing);
    group.start(failing);
    group.append(&lines(100, 150));
    loop {
        let read = group.output(&["read", "--member", &failing.to_string()]);
        if read.stdout == lines(0, 150) {
            break;
        }
        let shown = String::from_utf8_lossy(&read.stdout);
        assert!(Instant::now() < deadline, "{shown}\n{}", group.said(failing));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Both signals are there before the member can do anything about the first; and its clean end would take its time, since its heirs stand still.
#[test]
fn a_second_signal_ends_a_member_at_once() {
    let mut group = Group::init().start_all();
    let first = group.primary();
    for number in (1..=3).filter(|number| *number != first) {
        group.signal(number, Signal::STOP);
    }
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        group.signal(first, signal);
    }
    let code = group.ended(first);
    assert!(matches!(code, Some(130 | 143)), "{code:?}: {}", group.said(first));
    let said = group.said(first);
    assert!(!said.contains("the member has ended"), "{said}");
    // Its folder is found as after a kill.
    let folder = group.root.join(format!("m{first}"));
    let info = windlass(&["log", "info", folder.to_str().unwrap(), "--json"]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert!(info["clean_tail"].is_null(), "{info}");
}

#[test]
fn init_writes_a_private_file_that_is_never_overwritten_and_different_each_time() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let init = |name: &str, more: &[&str]| {
        let at = folder.path().join(name);
        windlass(&[&["group", "init", "--folder", at.to_str().unwrap()], more].concat())
    };
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name).join("group.toml")).unwrap();
    assert!(init("a", &[]).status.success());
    assert!(init("b", &["--members", "5", "--ports", "8000"]).status.success());
    let mode = std::fs::metadata(folder.path().join("a/group.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let of = |text: &str, key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .map(|line| line.split('"').nth(1).unwrap().to_owned())
            .unwrap()
    };
    let (a, b) = (text("a"), text("b"));
    assert_eq!((of(&a, "secret").len(), of(&a, "log_id").len()), (64, 32));
    assert!(of(&a, "secret") != of(&b, "secret") && of(&a, "log_id") != of(&b, "log_id"));
    assert!(b.contains("127.0.0.1:8004") && b.matches("[[members]]").count() == 5);
    assert_eq!(init("a", &[]).status.code(), Some(3));
    assert_eq!(text("a"), a);
    assert_eq!(init("c", &["--members", "4"]).status.code(), Some(64));
    // It would be ignored, and the file another one than was meant.
    assert_eq!(init("d", &["--config", "other.toml"]).status.code(), Some(64));
    assert!(!folder.path().join("d").exists());
    assert_eq!(init(&"long".repeat(40), &[]).status.code(), Some(3));
}

#[test]
fn who_waits_for_a_primary_says_so_and_whom_it_does_not_reach() {
    use std::io::{BufRead as _, BufReader};
    let group = Group::init();
    let mut append = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["group", "--config", &group.config, "append", "--file", "-"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(append.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let _ = append.kill();
    append.wait().unwrap();
    assert!(said.contains("waiting for a primary") && said.contains("m3 does not answer"), "{said}");
    let lacks = "no majority: none of m1, m2, m3 answers as a voter";
    assert!(said.contains(lacks), "{said}");
    let out = group.group(&["status"]);
    assert!(out.out.contains("\nm3      no       down\n"), "{out:?}");
    let remedy = format!(
        "m3.sock): start it, on its machine, with `windlass node --config {} --member 3`",
        group.config
    );
    assert!(out.out.contains(&remedy), "{out:?}");
    assert!(out.err.contains(&format!("{lacks}: 2 of m1, m2, m3 have to run")), "{out:?}");
}

#[test]
fn a_folder_whose_parent_is_missing_is_named_with_what_to_do() {
    let group = Group::init();
    let change = |from: &str, to: &str| {
        let file = group.root.join("changed.toml");
        let text = std::fs::read_to_string(&group.config).unwrap();
        let (from, to) = (group.root.join(from), group.root.join(to));
        std::fs::write(&file, text.replace(from.to_str().unwrap(), to.to_str().unwrap())).unwrap();
        file
    };
    let refused = |file: &Path| {
        let out = windlass(&["node", "--config", file.to_str().unwrap(), "--member", "1"]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains("none does not exist") && said.contains("mkdir -p"), "{said}");
    };
    refused(&change("m1.sock", "none/m1.sock"));
    refused(&change("m1\"", "none/m1\""));
}

#[test]
fn who_reads_a_member_that_follows_nobody_is_told_of_what_is_not_printed() {
    let mut group = Group::init().start_all();
    group.append(&lines(0, 50));
    let member = group.primary();
    let number = member.to_string();
    group.wait_even();
    // Nothing is said where nothing is missing.
    group.wait(|group| {
        let read = group.output(&["read", "--member", &number]);
        (read.stdout == lines(0, 50) && read.stderr.is_empty()).then_some(())
    });
    (1..=3).for_each(|number| group.kill(number));
    group.start(member);
    let read = group.wait(|group| {
        let read = group.output(&["read", "--member", &number]);
        read.status.success().then_some(read)
    });
    let said = String::from_utf8_lossy(&read.stderr);
    assert!(read.stdout.len() < lines(0, 50).len(), "{read:?}");
    assert!(
        said.contains(&format!("m{number} follows no primary now")) && said.contains("not printed"),
        "{said}"
    );
}

#[test]
fn a_full_log_is_told_at_once_with_what_was_not_appended_how_to_read_it_and_the_way_out() {
    let group = Group::init();
    group.change_file(|text| {
        text.replace("# segment_bytes = 67108864", "segment_bytes = 65536")
            .replace("# retention_bytes = 4294967296", "retention_bytes = 196608")
    });
    let mut group = group.start_all();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines(0, 20_000)).unwrap();
    let append = || {
        let out = group.output(&["append", "--file", file.path().to_str().unwrap()]);
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let way_out = "raise retention_bytes in the file of every member";
    let (status, out, said) = append();
    let taken = out.lines().count();
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("may have 196608 (retention_bytes)") && said.contains(way_out), "{said}");
    assert!(said.contains(&format!("record {} was refused: the log is full", taken + 1)), "{said}");
    assert!(said.contains(&format!("{taken} records are acknowledged; the next ")), "{said}");
    assert!(said.contains("not in the log") && !said.contains("unknown"), "{said}");
    let tail = group.status().iter().filter_map(|row| row["tail"].as_u64()).max().unwrap();
    assert!((131_072..=4096 + 196_608).contains(&tail), "the file's number is the cap: {tail}");
    // Filled up to where not even a barrier has room.
    group.wait(|group| (group.output(&["read"]).status.code() == Some(3)).then_some(()));
    let (status, out, said) = append();
    assert!(status == Some(3) && out.is_empty(), "{said}");
    assert!(said.contains("the primary: the log is full") && said.contains(way_out), "{said}");
    let primary = group.primary();
    let read = group.output(&["read"]);
    let said = String::from_utf8_lossy(&read.stderr);
    let command = format!("`windlass group --config {} read --member {primary}`", group.config);
    assert!(read.status.code() == Some(3) && said.contains(&command), "{said}");
    let want: Vec<u8> =
        lines(0, 20_000).split_inclusive(|byte| *byte == b'\n').take(taken).flatten().copied().collect();
    assert!(group.output(&["read", "--member", &primary.to_string()]).stdout == want, "{taken} records");
    // As it says: with more in the file of each member, each started again, it takes more.
    group.change_file(|text| text.replace("retention_bytes = 196608", "retention_bytes = 393216"));
    for number in 1..=3 {
        group.kill(number);
        group.start(number);
        group.wait_even();
    }
    group.append(&lines(0, 100));
}

#[test]
fn an_append_waits_for_the_primary_whose_disk_is_full_to_hand_over_kind_20() {
    let mut group = Group::init_small().start_all();
    let full = group.primary() % 3 + 1;
    group.append(&lines(0, 50));
    group.wait_even();
    group.kill(full);
    start_failing(&mut group, full, Fails::Allocating);
    group.wait_even();
    // On a busy machine the one that starts again may not be followed closely enough yet.
    let until = Instant::now() + PATIENCE;
    loop {
        let asked = group.output(&["hand-over", "--to", &full.to_string()]);
        if asked.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(Instant::now() < until, "{said}\n{}", group.said(full));
    }
    // More than the segments that it has ready take.
    let much = lines(50, 20_000);
    assert!(much.len() + 32 * 19_950 > 10 * 65_536, "headers of 32 bytes included");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &much).unwrap();
    let appended = group.output(&["append", "--file", file.path().to_str().unwrap(), "--quiet", "--json"]);
    let said = String::from_utf8_lossy(&appended.stderr);
    assert!(appended.status.success(), "{said}\n{}", group.said(full));
    assert!(group.said(full).contains("the disk is full and "), "{}", group.said(full));
    assert_ne!(group.primary(), full);
    let read = group.output(&["read"]);
    assert!(read.stdout == lines(0, 20_000), "{} bytes", read.stdout.len());
}

/// Where two of three come back with empty folders, an operator's word at one of them would begin a new group beside the third one's log (kind 55).
#[test]
fn an_operators_word_is_not_taken_by_a_member_whose_log_is_empty_kind_55() {
    let mut group = Group::init_small().start_all();
    group.primary();
    group.append(&lines(0, 10));
    group.wait_even();
    for number in 1..=3 {
        group.kill(number);
        if number < 3 {
            std::fs::remove_dir_all(group.root.join(format!("m{number}"))).unwrap();
        }
    }
    for number in [1, 2] {
        group.start(number);
        // Until it answers: then as it stands.
        let out = group.wait(|group| {
            let out = group.output(&["accept-loss", "--member", &number.to_string(), "--yes"]);
            (out.status.code() != Some(5)).then_some(out)
        });
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(3) && why.contains("this member's log is empty"), "{out:?}");
    }
    assert!(!group.said(1).contains("an operator has this member lead"), "{}", group.said(1));
}

#[test]
fn status_says_that_it_is_by_the_file_where_nobody_answers() {
    let group = Group::init();
    let said = |group: &Group| String::from_utf8(group.output(&["status"]).stdout).unwrap();
    let words = format!("nobody answers, so this is what {} says", group.config);
    assert!(said(&group).contains(&words), "{}", said(&group));
    let group = group.start_all();
    group.primary();
    assert!(!said(&group).contains("nobody answers"), "{}", said(&group));
}

#[test]
fn a_client_with_another_groups_file_gets_nothing_from_the_members_whose_sockets_it_names() {
    let group = Group::init().start_all();
    group.primary();
    group.append(b"one\n");
    let text = std::fs::read_to_string(&group.config).unwrap();
    let value =
        |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap().split('"').nth(1).unwrap();
    for (key, other, words) in [
        ("log_id", "0123456789abcdef0123456789abcdef", "this member's log is "),
        ("secret", "another secret, long enough", "has another secret than this member's"),
    ] {
        let file = group.root.join(format!("other-{key}.toml"));
        std::fs::write(&file, text.replace(value(key), other)).unwrap();
        let lines = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(lines.path(), b"two\n").unwrap();
        for args in [
            &["append", "--file", lines.path().to_str().unwrap()][..],
            &["read"],
            &["read", "--member", "1"],
            &["hand-over", "--to", "2"],
            &["accept-loss", "--member", "2", "--yes"],
            &["remove", "3"],
            &["quorums", "--majority"],
            &["members"],
            &["members", "--member", "1"],
            &["status"],
        ] {
            let began = Instant::now();
            let out = windlass(&[&["group", "--config", file.to_str().unwrap()], args].concat());
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(64), "{args:?}: {said}");
            assert!(said.contains(words), "{args:?}: {said}");
            // Well below the 30 s for which a primary is waited for.
            assert!(began.elapsed() < Duration::from_secs(20), "{args:?} waited for nothing");
        }
    }
    assert_eq!(group.output(&["read"]).stdout, b"one\n");
    assert!((1..=3).any(|number| group.said(number).contains("a client was refused, cause: ")));
}

#[test]
fn a_member_back_with_an_empty_disk_says_by_whom_it_is_kept_out_and_what_to_do_kind_55() {
    let mut group = Group::init().start_all();
    let lost = group.primary() % 3 + 1;
    group.append(&lines(0, 20));
    group.wait_even();
    group.kill(lost);
    std::fs::remove_dir_all(group.root.join(format!("m{lost}"))).unwrap();
    group.start(lost);
    let others: Vec<String> = (1..=3).filter(|n| *n != lost).map(|n| format!("m{n}")).collect();
    let why = "this member's folder was made anew";
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = format!("m{lost} is kept out by {}: {why}", others.join(", "));
        let status = String::from_utf8(group.output(&["status"]).stdout).unwrap();
        if status.contains(&told) {
            let replace = format!("`windlass group --config {} replace {lost} NEW`", group.config);
            assert!(status.contains(&replace), "{status}");
            break;
        }
        assert!(Instant::now() < deadline, "{told}\n{status}\n{}", group.said(lost));
        std::thread::sleep(Duration::from_millis(20));
    }
    for other in others {
        let line = format!("{other} keeps this member out: {why}");
        assert_eq!(group.said(lost).matches(&line).count(), 1, "{}", group.said(lost));
    }
    assert!(!group.said(lost).contains("a new group begins once"), "{}", group.said(lost));
    group.append(&lines(20, 40));
    // Where nobody else is left, each command says that this is no majority, and what who was asked has answered.
    let others: Vec<usize> = (1..=3).filter(|number| *number != lost).collect();
    others.iter().for_each(|number| group.kill(*number));
    let lacks = "no majority: none of m1, m2, m3 answers as a voter";
    let (kept, down) = (format!("m{lost} is kept out ("), format!("m{} does not answer (", others[0]));
    let out = group.wait(|group| {
        let out = group.group(&["status"]);
        (out.code == Some(5) && out.err.contains(lacks)).then_some(out)
    });
    let row = format!("\nm{lost}      yes      kept out   ");
    assert!(out.out.contains(&row), "{row}{out:?}");
    let out = group.group(&["members"]);
    assert!([lacks, &kept, &down].iter().all(|words| out.err.contains(words)), "{out:?}");
    let mut append = group.command(&["append", "--file", "-"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(append.stderr.take().unwrap()), &mut said)
        .unwrap();
    let _ = append.kill();
    append.wait().unwrap();
    assert!([lacks, &kept, &down].iter().all(|words| said.contains(words)), "{said}");
}

#[test]
fn where_nothing_can_be_preallocated_real_zeros_are_written_kind_16() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let log = log.to_str().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        becomes(&mut command, Fails::Preallocating, args);
        let out = command.stdin(Stdio::null()).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    run(&["log", "create", log, "--segment-bytes", "65536", "--any-filesystem"]);
    // Blocks, and not a hole: a full disk is found before it is mapped (kind 20).
    let blocks =
        |path: &Path| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap()) * 512;
    let segments = || {
        std::fs::read_dir(log)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
    };
    let input = folder.path().join("input");
    std::fs::write(&input, lines(0, 10_000)).unwrap();
    run(&["log", "append", log, "--file", input.to_str().unwrap(), "--quiet", "--any-filesystem"]);
    assert!(segments().count() > 3);
    for segment in segments() {
        assert!(blocks(&segment) >= 65_536, "{}: {} bytes of blocks", segment.display(), blocks(&segment));
    }
    let read = windlass(&["log", "read", log]);
    assert!(read.stdout == lines(0, 10_000), "{} bytes", read.stdout.len());
    assert!(windlass(&["log", "verify", log]).status.success());
}
