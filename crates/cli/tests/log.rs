//! `windlass log …` as a user runs it: the binary, its output and its exit statuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const TORN: i32 = 1;
const DAMAGE: i32 = 2;
const REFUSED: i32 = 3;
const IN_USE: i32 = 4;
const SYSTEM: i32 = 5;
const USAGE: i32 = 64;
const PIPE: i32 = 141;

/// A folder for one test's log.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// With a log of the smallest segments in it.
    fn with_log() -> Place {
        let place = Place::new();
        place.ok(&["create", "LOG", "--segment-bytes", "65536"], b"");
        place
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_windlass").as_ref(), args)
    }

    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("log");
        let log = self.log();
        command.args(args.iter().map(|arg| if *arg == "LOG" { log.as_os_str() } else { arg.as_ref() }));
        command
    }

    fn run(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A command that refuses doesn't read its input to the end.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().unwrap()
        })
    }

    fn ok(&self, args: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.run(args, input);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Runs what must fail with `status`; what it says.
    fn fails(&self, args: &[&str], input: &[u8], status: i32) -> String {
        let output = self.run(args, input);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.starts_with("windlass: ") || status == USAGE, "plain words: {said}");
        assert!(said.len() > 20, "says what to do: {said}");
        said
    }

    /// Appends lines; their LSN ranges.
    fn append(&self, lines: &[u8]) -> Vec<(u64, u64)> {
        ranges(&self.ok(&["append", "LOG", "--file", "-"], lines))
    }

    /// A copy of the log in a folder of this name.
    fn copy(&self, name: &str) -> String {
        let copy = self.folder.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        for (name, bytes) in snapshot(&self.log()) {
            std::fs::write(copy.join(name), bytes).unwrap();
        }
        copy.into_os_string().into_string().unwrap()
    }

    fn segment(&self, number: u64) -> PathBuf {
        self.log().join(format!("{:016x}.segment", number * 65536))
    }
}

fn ranges(stdout: &[u8]) -> Vec<(u64, u64)> {
    let text = std::str::from_utf8(stdout).unwrap();
    let number = |word: Option<&str>| word.unwrap().parse().unwrap();
    text.lines().map(|line| (number(line.split(' ').next()), number(line.split(' ').nth(1)))).collect()
}

/// A file that is really there.
fn real_input() -> (PathBuf, Vec<u8>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

/// So much in one range, as `repair` and `salvage` say it.
fn range_of(bytes: u64) -> String {
    format!("1 range, {bytes} bytes of records with their headers; how many records can't be told")
}

#[test]
fn lines_come_back_byte_for_byte_across_segments() {
    let place = Place::with_log();
    let (path, bytes) = real_input();
    let odd = b"\n\ncarriage\r\n\x00\xff\xfe binary\n   spaces \n";
    let printed = place.ok(&["append", "LOG", "--file", path.to_str().unwrap()], b"");
    let ranges_of_file = ranges(&printed);
    assert_eq!(ranges_of_file.len(), bytes.iter().filter(|byte| **byte == b'\n').count());
    assert!(ranges_of_file.windows(2).all(|pair| pair[0].1 <= pair[1].0), "in order");
    assert!(ranges_of_file.last().unwrap().1 > 65536, "more than one segment");
    let ranges_of_odd = place.append(odd);
    assert_eq!(place.ok(&["read", "LOG"], b""), [&bytes[..], odd].concat());
    let from = ranges_of_odd[0].0.to_string();
    assert_eq!(place.ok(&["read", "LOG", "--from", &from], b""), odd);
    assert_eq!(place.ok(&["append", "LOG", "--file", "-", "--quiet"], b"no newline"), b"");
    let all = place.ok(&["read", "LOG", "--from", &from], b"");
    assert_eq!(all, [&odd[..], b"no newline\n"].concat());
    place.ok(&["verify", "LOG"], b"");
}

#[test]
fn frames_come_back_raw() {
    let place = Place::with_log();
    let (_, bytes) = real_input();
    let printed =
        place.ok(&["append", "LOG", "--file", "-", "--frame", "1000", "--level", "buffered"], &bytes);
    assert_eq!(ranges(&printed).len(), bytes.len().div_ceil(1000));
    assert_eq!(place.ok(&["read", "LOG", "--format", "raw"], b""), bytes);
}

#[test]
fn hex_and_json_say_where_each_record_is() {
    let place = Place::with_log();
    let ranges = place.append(b"ab\n\n\xff\n");
    let hex = String::from_utf8(place.ok(&["read", "LOG", "--format", "hex"], b"")).unwrap();
    let want: Vec<String> =
        ranges.iter().zip(["6162", "", "ff"]).map(|((s, e), hex)| format!("{s} {e} {hex}")).collect();
    assert_eq!(hex.lines().collect::<Vec<_>>(), want);
    let json = String::from_utf8(place.ok(&["read", "LOG", "--json"], b"")).unwrap();
    let objects: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    assert_eq!((objects[0]["lsn"].as_u64(), objects[0]["text"].as_str()), (Some(ranges[0].0), Some("ab")));
    assert_eq!((objects[1]["bytes"].as_u64(), objects[1]["text"].as_str()), (Some(0), Some("")));
    assert_eq!((objects[2]["end"].as_u64(), objects[2]["hex"].as_str()), (Some(ranges[2].1), Some("ff")));
    place.fails(&["read", "LOG", "--json", "--format", "hex"], b"", USAGE);
}

#[test]
fn every_subcommand_speaks_json() {
    let place = Place::new();
    let one = |args: &[&str], input: &[u8]| -> serde_json::Value {
        let stdout = place.ok(args, input);
        let text = std::str::from_utf8(&stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    };
    let created = one(&["create", "LOG", "--segment-bytes", "65536", "--json"], b"");
    assert_eq!(created["segment_bytes"], 65536);
    let appended = one(&["append", "LOG", "--file", "-", "--json", "--quiet"], b"one\ntwo\nthree\n");
    assert_eq!((appended["records"].as_u64(), appended["payload_bytes"].as_u64()), (Some(3), Some(11)));
    assert_eq!(appended["level"], "local");
    let info = one(&["info", "LOG", "--json"], b"");
    assert_eq!(info["log_id"], created["log_id"]);
    assert_eq!(info["clean_tail"], appended["end"]);
    assert_eq!(info["in_use"], false);
    let verified = one(&["verify", "LOG", "--json"], b"");
    assert_eq!((verified["result"].as_str(), &verified["end"]), (Some("clean"), &appended["end"]));
    let second = one(&["read", "LOG", "--json"], b"")["lsn"].as_u64().unwrap().to_string();
    assert_eq!(one(&["trim", "LOG", "--before", &second, "--json"], b"")["trimmed"].to_string(), second);
    let cut = one(&["truncate", "LOG", "--from", &second, "--json"], b"");
    assert_eq!(cut["tail"].to_string(), second);
    assert_ne!(cut["epoch"], info["epoch"], "a cut begins a new epoch");
}

#[test]
fn what_was_acknowledged_survives_sigkill_in_the_middle() {
    let place = Place::with_log();
    let mut acknowledged: Vec<(u64, u64)> = Vec::new();
    let mut next = 0u64;
    for round in 0..3u64 {
        let mut command = place.command(&["append", "LOG", "--file", "-", "--level", "buffered"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let first = next;
        let writer = std::thread::spawn(move || {
            // Until the pipe breaks: the reader is dead then.
            (first..).try_for_each(|i| {
                stdin.write_all(
                    format!("record {i} {}\n", "x".repeat(usize::try_from(i % 90).unwrap())).as_bytes(),
                )
            })
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..3000 + round * 1000 {
            acknowledged.extend(ranges(lines.next().unwrap().unwrap().as_bytes()));
            next += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(writer.join().unwrap().is_err());
        // Lines that were on their way out when it died.
        for line in lines.map_while(Result::ok).filter(|line| line.split(' ').count() == 2) {
            if let (Ok(start), Ok(end)) =
                (line.split(' ').next().unwrap().parse(), line.split(' ').nth(1).unwrap().parse())
            {
                acknowledged.push((start, end));
                next += 1;
            }
        }
        let status = place.run(&["verify", "LOG"], b"").status.code().unwrap();
        assert!(status == 0 || status == TORN, "a kill tears at most the tail: {status}");
        let read = String::from_utf8(place.ok(&["read", "LOG"], b"")).unwrap();
        let records: Vec<&str> = read.lines().collect();
        assert!(records.len() as u64 >= next, "{} of {next}", records.len());
        for (i, record) in records.iter().enumerate() {
            assert!(record.starts_with(&format!("record {i} ")), "in order, once, none missing: {record}");
        }
        // What was not acknowledged may be there all the same; the next round goes on behind it.
        next = records.len() as u64;
        let hex = String::from_utf8(place.ok(&["read", "LOG", "--format", "hex"], b"")).unwrap();
        let starts: std::collections::BTreeSet<u64> =
            hex.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert!(acknowledged.iter().all(|(start, _)| starts.contains(start)), "each where it was said to be");
    }
    assert!(place.append(b"after\n").len() == 1);
    place.ok(&["verify", "LOG", "--mode", "strict"], b"");
}

#[test]
fn after_a_clean_close_any_changed_byte_is_damage_and_named() {
    let place = Place::with_log();
    let ranges = place.append(b"first\nsecond record\n\n");
    let end = usize::try_from(ranges[2].1).unwrap();
    let file = place.segment(0);
    let good = std::fs::read(&file).unwrap();
    let mut damaged = 0;
    for at in 4096..end {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&file, &bad).unwrap();
        let said = place.fails(&["verify", "LOG"], b"", DAMAGE);
        let lsn: usize = said.split("(LSN ").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
        assert!(lsn <= at && at < lsn + 64, "names the record at fault: {at}: {said}");
        assert!(said.contains(&format!("{} at offset {lsn} ", file.display())), "{said}");
        damaged += 1;
    }
    assert_eq!(damaged, end - 4096);
    let mut bad = good.clone();
    bad[usize::try_from(ranges[1].0).unwrap() + 40] ^= 1;
    std::fs::write(&file, &bad).unwrap();
    let said = place.fails(&["read", "LOG"], b"", DAMAGE);
    assert!(said.contains(&format!("LSN {}", ranges[1].0)), "{said}");
    place.fails(&["append", "LOG", "--file", "-"], b"more\n", DAMAGE);
    let json = place.run(&["verify", "LOG", "--json"], b"");
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((report["result"].as_str(), report["lsn"].as_u64()), (Some("damaged"), Some(ranges[1].0)));
    std::fs::write(&file, &good).unwrap();
    place.ok(&["verify", "LOG"], b"");
    // Bytes behind the end are nobody's.
    let mut beyond = good.clone();
    beyond[end + 100] ^= 1;
    std::fs::write(&file, &beyond).unwrap();
    place.ok(&["verify", "LOG"], b"");
}

#[test]
fn verifying_takes_the_same_memory_however_long_the_log_or_a_record_is() {
    let place = Place::new();
    place.ok(&["create", "LOG", "--segment-bytes", "33554432"], b"");
    let big = vec![b'b'; 24 << 20];
    place.ok(&["append", "LOG", "--file", "-", "--frame", "25165824", "--quiet"], &big);
    place.ok(&["append", "LOG", "--file", "-", "--quiet"], &b"a line of text in a log\n".repeat(300_000));
    let run = |limit_kib: u32, what: &str| {
        let script = format!("ulimit -v {limit_kib} && exec \"$0\" log {what} \"$1\" > /dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_windlass")]).arg(place.log());
        command.output().unwrap()
    };
    // What the program itself takes.
    let bare = (1..).map(|mib| mib << 10).find(|kib| run(*kib, "info").status.success()).unwrap();
    assert!(run(bare + 2048, "verify").status.success(), "2 MiB more than `info` are enough");
    assert!(
        !run(bare + 2048, "read").status.success(),
        "reading takes the record's length: the limit limits"
    );
}

/// Every file of a folder with what is in it.
fn snapshot(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn looking_works_beside_a_running_process_without_write_access_and_changes_nothing() {
    let place = Place::with_log();
    let mut child = place
        .command(&["append", "LOG", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"one\ntwo\n").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = ranges(lines.next().unwrap().unwrap().as_bytes())[0].0;
    lines.next().unwrap().unwrap();

    let said = place.fails(&["append", "LOG", "--file", "-"], b"three\n", IN_USE);
    assert!(said.contains(&format!("process {}", child.id())), "says who has it: {said}");
    place.fails(&["trim", "LOG", "--before", &first.to_string()], b"", IN_USE);
    place.fails(&["truncate", "LOG", "--from", &first.to_string()], b"", IN_USE);
    place.fails(&["create", "LOG"], b"", REFUSED);

    // As somebody who may read and nothing else, where this test may become somebody else.
    std::fs::set_permissions(place.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(place.log(), PermissionsExt::from_mode(0o755)).unwrap();
    for entry in std::fs::read_dir(place.log()).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), PermissionsExt::from_mode(0o444)).unwrap();
    }
    let root = rustix::process::geteuid().is_root();
    // The workspace may lie where nobody else may look, in root's own home.
    let program = place.folder.path().join("windlass");
    std::fs::copy(env!("CARGO_BIN_EXE_windlass"), &program).unwrap();
    let before = snapshot(&place.log());
    for (args, want) in [
        (&["read", "LOG"][..], "one\ntwo\n"),
        (&["verify", "LOG"], "clean: "),
        (&["verify", "LOG", "--mode", "strict"], "a process has it open"),
        (&["info", "LOG"], "in use by process "),
    ] {
        let mut command = place.command_of(&program, args);
        if root {
            command.uid(65534);
        }
        let output = command.output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.contains(want), "{args:?}: {stdout}");
    }
    assert_eq!(snapshot(&place.log()), before, "nothing created, nothing changed");
    drop(stdin);
    assert!(child.wait().unwrap().success());
    place.ok(&["verify", "LOG"], b"");
}

/// A folder that is mounted over itself, read-only.
struct ReadOnly(PathBuf);

impl ReadOnly {
    /// What mount(8) says where it refuses.
    fn mount(folder: &Path) -> Result<ReadOnly, String> {
        let mount = |args: &[&str]| match Command::new("mount").args(args).arg(folder).output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        };
        mount(&["--bind", folder.to_str().unwrap()])?;
        let mounted = ReadOnly(folder.to_owned());
        mount(&["-o", "remount,bind,ro"]).map(|()| mounted)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_read_only_filesystem_refuses_who_writes_and_serves_who_reads() {
    let place = Place::with_log();
    let ranges = place.append(b"one\ntwo\n");
    let mounted = match ReadOnly::mount(&place.log()) {
        Ok(mounted) => mounted,
        Err(refused) => {
            assert!(std::env::var_os("CI").is_none(), "nothing can be mounted: {refused}");
            println!("SKIPPED: mounting needs root: {refused}");
            return;
        }
    };
    let second = ranges[1].0.to_string();
    for args in [
        &["append", "LOG", "--file", "-"][..],
        &["trim", "LOG", "--before", &second],
        &["truncate", "LOG", "--from", &second],
    ] {
        let said = place.fails(args, b"three\n", SYSTEM);
        assert!(said.contains("Read-only file system"), "{said}");
    }
    assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\n");
    place.ok(&["verify", "LOG", "--mode", "strict"], b"");
    place.ok(&["info", "LOG"], b"");
    drop(mounted);
    place.append(b"three\n");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\nthree\n");
}

#[test]
fn trimming_and_truncating_move_the_ends_durably() {
    let place = Place::with_log();
    let ranges = place.append(&b"some record of fifty bytes, or thereabouts, it is\n".repeat(3000));
    let (keep, cut) = (ranges[2000].0.to_string(), ranges[2500].0.to_string());
    place.ok(&["trim", "LOG", "--before", &keep], b"");
    let said = place.fails(&["read", "LOG", "--from", &ranges[0].0.to_string()], b"", REFUSED);
    assert!(
        said.contains(&format!("starts at LSN {keep}")),
        "purged, with the first LSN that is there: {said}"
    );
    place.ok(&["truncate", "LOG", "--from", &cut], b"");
    let read = place.ok(&["read", "LOG"], b"");
    assert_eq!(read.iter().filter(|byte| **byte == b'\n').count(), 500);
    place.ok(&["verify", "LOG", "--mode", "strict"], b"");
    assert_eq!(place.append(b"next\n")[0].0.to_string(), cut, "the LSN goes on where it was cut");
    let everything = place.append(b"last\n")[0].1.to_string();
    place.ok(&["trim", "LOG", "--before", &everything], b"");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"");
    assert!(place.append(b"again\n")[0].0.to_string() >= everything, "LSNs never go back (kind 46)");
    place.ok(&["verify", "LOG"], b"");
}

#[test]
fn lsns_that_fit_nothing_are_refused() {
    let place = Place::with_log();
    let ranges = place.append(b"one\ntwo\n");
    let inside = (ranges[0].0 + 8).to_string();
    let beyond = (ranges[1].1 + 800).to_string();
    let said = place.fails(&["append", "LOG", "--file", "/is/not/there"], b"", USAGE);
    assert!(said.contains("there is no file /is/not/there") && said.contains("standard input"), "{said}");
    for subcommand in [["read", "--from"], ["trim", "--before"], ["truncate", "--from"]] {
        let said = place.fails(&[subcommand[0], "LOG", subcommand[1], &inside], b"", REFUSED);
        assert!(said.contains("inside the record "), "{said}");
        assert!(said.contains(&ranges[0].0.to_string()), "names the record's START: {said}");
        let said = place.fails(&[subcommand[0], "LOG", subcommand[1], &beyond], b"", REFUSED);
        assert!(said.contains("beyond"), "{said}");
        place.fails(&[subcommand[0], "LOG", subcommand[1], "minus"], b"", USAGE);
    }
    assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\n", "nothing happened");
}

#[test]
fn a_record_that_is_too_long_is_refused_and_those_before_it_are_kept() {
    let place = Place::with_log();
    let longest = 61360;
    let mut input = b"short\n".to_vec();
    input.extend(std::iter::repeat_n(b'x', longest + 1));
    input.extend(b"\nnever\n");
    let said = place.fails(&["append", "LOG", "--file", "-"], &input, REFUSED);
    assert!(said.contains("record 2") && said.contains(&longest.to_string()), "{said}");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"short\n");
    let mut fits = vec![b'y'; longest];
    fits.push(b'\n');
    place.append(&fits);
    assert_eq!(place.ok(&["read", "LOG"], b""), [b"short\n", &fits[..]].concat());
    place.fails(&["append", "LOG", "--file", "-", "--frame", "100000"], b"z", REFUSED);
}

#[test]
fn a_full_log_says_so_and_trimming_helps() {
    let place = Place::with_log();
    let cap = ["append", "LOG", "--file", "-", "--retention-bytes", "262144", "--quiet"];
    let said = place.fails(
        &cap,
        &b"a record of a hundred bytes or so, that goes round and round until the log is full of it\n"
            .repeat(4000),
        REFUSED,
    );
    assert!(said.contains("windlass log trim") && said.contains("larger --retention-bytes"), "{said}");
    assert!(!said.contains("retention_bytes"), "the option's name, not the library's: {said}");
    let read = place.ok(&["read", "LOG", "--format", "hex"], b"");
    let read = String::from_utf8(read).unwrap();
    let end = read.lines().last().unwrap().split(' ').nth(1).unwrap();
    let appended =
        format!("the first {} records of the input were appended, up to LSN {end}", read.lines().count());
    assert!(said.contains(&appended), "{appended}: {said}");
    let info: serde_json::Value = serde_json::from_slice(&place.ok(&["info", "LOG", "--json"], b"")).unwrap();
    place.ok(&["trim", "LOG", "--before", &info["clean_tail"].to_string()], b"");
    place.ok(&cap, b"again\n");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"again\n");
}

#[test]
fn folders_that_are_no_log_are_refused_and_left_alone() {
    let place = Place::new();
    for args in
        [&["read", "LOG"][..], &["verify", "LOG"], &["info", "LOG"], &["append", "LOG", "--file", "-"]]
    {
        let said = place.fails(args, b"", REFUSED);
        assert!(said.contains("there is no folder") && !said.contains("os error"), "{args:?}: {said}");
        assert!(!place.log().exists(), "{args:?}");
    }
    std::fs::write(place.log(), b"a file").unwrap();
    place.fails(&["verify", "LOG"], b"", REFUSED);
    place.fails(&["create", "LOG"], b"", REFUSED);
    let below = place.log().join("below");
    place.fails(&["create", below.to_str().unwrap()], b"", REFUSED);
    std::fs::remove_file(place.log()).unwrap();
    place.fails(&["create", below.to_str().unwrap()], b"", REFUSED);
    std::fs::create_dir(place.log()).unwrap();
    std::fs::write(place.log().join("precious"), b"data").unwrap();
    for args in
        [&["read", "LOG"][..], &["verify", "LOG"], &["append", "LOG", "--file", "-"], &["create", "LOG"]]
    {
        place.fails(args, b"", REFUSED);
    }
    assert_eq!(snapshot(&place.log()), [("precious".to_owned(), b"data".to_vec())]);
    let said = place.fails(&["create", "LOG", "--segment-bytes", "100000"], b"", USAGE);
    assert!(said.contains("power of two"), "{said}");
}

#[test]
fn a_segment_of_another_log_or_one_that_is_gone_is_damage() {
    let (place, other) = (Place::with_log(), Place::with_log());
    let lines = b"a line that is repeated until there are a few segments of it\n".repeat(3000);
    place.append(&lines);
    other.append(&lines);
    let good = std::fs::read(place.segment(1)).unwrap();
    std::fs::copy(other.segment(1), place.segment(1)).unwrap();
    let said = place.fails(&["verify", "LOG"], b"", DAMAGE);
    assert!(said.contains("0000000000010000.segment"), "{said}");
    std::fs::remove_file(place.segment(1)).unwrap();
    for command in [["verify", "LOG"].as_slice(), &["read", "LOG"], &["append", "LOG", "--file", "-"]] {
        let said = place.fails(command, b"x\n", DAMAGE);
        assert!(
            said.contains(&format!("{} at offset 0 (LSN 69632): ", place.segment(1).display())),
            "{said}"
        );
    }
    // A file that was cut short, grown or renamed: the same answer from whoever looks (kind 23).
    for bytes in [&good[..1000], &[], &[good.as_slice(), &good].concat()] {
        std::fs::write(place.segment(1), bytes).unwrap();
        for command in [["verify", "LOG"].as_slice(), &["read", "LOG"], &["append", "LOG", "--file", "-"]] {
            let said = place.fails(command, b"x\n", DAMAGE);
            let place = format!("{} at offset 0 (LSN 69632): the file has ", place.segment(1).display());
            assert!(said.contains(&place), "{place}: {said}");
        }
        let json = place.run(&["verify", "LOG", "--json"], b"");
        let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(report["result"], "damaged");
        assert!(report["reason"].as_str().unwrap().contains("0000000000010000.segment"), "{report}");
    }
    // No plain file at all.
    std::fs::remove_file(place.segment(1)).unwrap();
    let put: [&dyn Fn(&Path); 3] = [
        &|path| std::fs::create_dir(path).unwrap(),
        &|path| {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        },
        &|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
    ];
    for put in put {
        put(&place.segment(1));
        for command in [["verify", "LOG"].as_slice(), &["read", "LOG"], &["append", "LOG", "--file", "-"]] {
            let said = place.fails(command, b"x\n", DAMAGE);
            let place =
                format!("{} at offset 0 (LSN 69632): it is no plain file", place.segment(1).display());
            assert!(said.contains(&place), "{place}: {said}");
        }
        assert!(lines.starts_with(&place.run(&["read", "LOG"], b"").stdout));
        std::fs::remove_dir(place.segment(1)).or_else(|_| std::fs::remove_file(place.segment(1))).unwrap();
    }
    std::fs::write(place.segment(1), &good).unwrap();
    place.ok(&["verify", "LOG"], b"");
    assert_eq!(place.ok(&["read", "LOG"], b""), lines);
}

#[test]
fn a_lost_superblock_is_never_made_anew_kind_11() {
    let place = Place::with_log();
    place.append(b"here\n");
    let superblock = place.log().join("superblock");
    let good = std::fs::read(&superblock).unwrap();
    // The whole file: the way out is named, and says itself what it can't tell.
    std::fs::remove_file(&superblock).unwrap();
    for args in [&["verify", "LOG"][..], &["read", "LOG"], &["repair", "LOG", "--dry-run"]] {
        let said = place.fails(args, b"", DAMAGE);
        let remedy = format!("`windlass log salvage {} --to NEW`", place.log().display());
        assert!(said.contains(&remedy), "{args:?}: {said}");
    }
    let to = place.folder.path().join("salvaged").into_os_string().into_string().unwrap();
    let salvaged = place.run(&["salvage", "LOG", "--to", &to], b"");
    let said = String::from_utf8(salvaged.stdout).unwrap();
    assert_eq!(salvaged.status.code(), Some(DAMAGE));
    assert!(
        said.ends_with("lost: nothing; what was lost at the end can't be told without the superblock\n"),
        "{said}"
    );
    let mut bad = good.clone();
    // Both copies.
    bad[200] ^= 1;
    bad[(64 << 10) + 200] ^= 1;
    std::fs::write(&superblock, &bad).unwrap();
    place.fails(&["verify", "LOG"], b"", DAMAGE);
    place.fails(&["append", "LOG", "--file", "-"], b"x\n", DAMAGE);
    // One copy is enough.
    bad[200] ^= 1;
    std::fs::write(&superblock, &bad).unwrap();
    assert_eq!(place.ok(&["read", "LOG"], b""), b"here\n");
    place.append(b"there\n");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"here\nthere\n");
}

/// One file from before, put back in place: each command says so, changes nothing, and names the way out.
#[test]
fn a_superblock_that_is_older_than_the_log_is_named_by_every_command_kind_11() {
    let place = Place::with_log();
    let superblock = place.log().join("superblock");
    // Killed: the next opening begins an epoch.
    let mut running = place.command(&["append", "LOG", "--file", "-"]);
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.as_mut().unwrap().write_all(b"one\n").unwrap();
    let mut answer = String::new();
    BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let older = std::fs::read(&superblock).unwrap();
    let at = place.append(b"two\nthree\n")[0].0;
    let good = std::fs::read(&superblock).unwrap();
    std::fs::write(&superblock, &older).unwrap();
    let before = snapshot(&place.log());
    let from = at.to_string();
    for args in [
        &["verify", "LOG"][..],
        &["read", "LOG"],
        &["append", "LOG", "--file", "-"],
        &["truncate", "LOG", "--from", &from],
        &["repair", "LOG"],
        &["repair", "LOG", "--dry-run"],
    ] {
        let said = place.fails(args, b"x\n", DAMAGE);
        assert!(said.contains("older than the log"), "{args:?}: {said}");
        assert!(said.contains("put back the superblock that belongs to the log"), "{args:?}: {said}");
        assert!(said.contains("--accept-epoch") && said.contains("windlass log salvage"), "{args:?}: {said}");
    }
    place.fails(&["repair", "LOG", "--accept-epoch", "e3.m0"], b"", REFUSED);
    place.fails(&["repair", "LOG", "--accept-epoch", "2"], b"", USAGE);
    let unchanged = |(name, _): &(String, Vec<u8>)| name != "owner";
    let after: Vec<_> = snapshot(&place.log()).into_iter().filter(unchanged).collect();
    assert!(after == before.into_iter().filter(unchanged).collect::<Vec<_>>(), "nothing is changed");
    let to = place.folder.path().join("new").into_os_string().into_string().unwrap();
    place.fails(&["salvage", "LOG", "--to", &to], b"", DAMAGE);
    assert_eq!(place.ok(&["read", &to], b""), b"one\ntwo\nthree\n");
    let said = place.fails(&["repair", "LOG", "--dry-run"], b"", DAMAGE);
    assert!(said.contains("--accept-epoch e2.m0`"), "{said}");
    for _ in 0..2 {
        place.ok(&["repair", "LOG", "--accept-epoch", "e2.m0"], b"");
        assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\nthree\n");
    }
    place.append(b"four\n");
    place.ok(&["verify", "LOG"], b"");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\nthree\nfour\n");
    assert_ne!(good, older);
}

/// The same after a clean close, within one epoch: nothing in the log tells but that it goes on behind where it was closed.
#[test]
fn a_superblock_from_before_a_clean_close_is_named_by_every_command_and_keeps_all_kind_11() {
    let place = Place::with_log();
    let superblock = place.log().join("superblock");
    place.append(b"one\n");
    let older = std::fs::read(&superblock).unwrap();
    let tail = place.append(b"two\nthree\n")[1].1;
    std::fs::write(&superblock, &older).unwrap();
    let before = snapshot(&place.log());
    for args in [
        &["verify", "LOG"][..],
        &["verify", "LOG", "--mode", "strict"],
        &["read", "LOG"],
        &["append", "LOG", "--file", "-"],
        &["append", "LOG", "--file", "-", "--mode", "strict"],
        &["repair", "LOG"],
        &["repair", "LOG", "--dry-run"],
    ] {
        let said = place.fails(args, b"x\n", DAMAGE);
        assert!(said.contains("older than the log"), "{args:?}: {said}");
        assert!(said.contains("put back the superblock that belongs to the log"), "{args:?}: {said}");
        assert!(said.contains("--accept-tail") && said.contains("windlass log salvage"), "{args:?}: {said}");
        assert!(!said.contains("truncate") && !said.contains("nothing was ever written"), "{args:?}: {said}");
    }
    place.fails(&["repair", "LOG", "--accept-tail", "4096"], b"", REFUSED);
    place.fails(&["repair", "LOG", "--accept-tail", "e1.m0"], b"", USAGE);
    let unchanged = |(name, _): &(String, Vec<u8>)| name != "owner";
    let after: Vec<_> = snapshot(&place.log()).into_iter().filter(unchanged).collect();
    assert!(after == before.into_iter().filter(unchanged).collect::<Vec<_>>(), "nothing is changed");
    let to = place.folder.path().join("new").into_os_string().into_string().unwrap();
    place.ok(&["salvage", "LOG", "--to", &to], b"");
    assert_eq!(place.ok(&["read", &to], b""), b"one\ntwo\nthree\n");
    let said = place.fails(&["repair", "LOG", "--dry-run"], b"", DAMAGE);
    let tail = tail.to_string();
    assert!(said.contains(&format!("--accept-tail {tail}`")), "{said}");
    for _ in 0..2 {
        place.ok(&["repair", "LOG", "--accept-tail", &tail], b"");
        assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\nthree\n");
    }
    place.append(b"four\n");
    place.ok(&["verify", "LOG"], b"");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"one\ntwo\nthree\nfour\n");
}

#[test]
fn the_help_has_the_statuses_and_a_wrong_command_line_is_one_of_them() {
    let help = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass")).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Each command has its own; the first help says so.
    assert!(help(&["--help"]).contains("Each command's --help tells its exit statuses"));
    for command in ["log", "node", "group", "demo", "doctor"] {
        let help = help(&[command, "--help"]);
        assert!(help.contains("Exit status:\n  0   "), "{command}: {help}");
    }
    for args in [&["log", "--help"][..], &["log", "verify", "--help"], &["log", "append", "--help"]] {
        let help = help(args);
        assert!(help.contains("Exit status:") && help.contains("torn tail"), "{args:?}: {help}");
    }
    let place = Place::new();
    let said = place.fails(&["append", "LOG", "--file", "-", "--level", "fsync"], b"", USAGE);
    assert!(said.contains("buffered") && said.contains("local"), "{said}");
    place.fails(&["append", "LOG", "--file", "-", "--frame", "0"], b"", USAGE);
    place.fails(&["frobnicate"], b"", USAGE);
    // Numbers beyond their range, before anything is touched.
    let said = place.fails(
        &["append", "LOG", "--file", "-", "--retention-bytes", "18446744073709551615"],
        b"x\n",
        USAGE,
    );
    assert!(said.contains("use 1 bytes to 4611686018427387904 bytes"), "{said}");
    let made = place.fails(&["create", "LOG", "--segment-bytes", "65537"], b"", USAGE);
    assert!(made.contains("power of two") && !place.log().exists(), "{made}");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let place = Place::with_log();
    place.append(&b"a line\n".repeat(200_000));
    let mut child =
        place.command(&["read", "LOG"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(PIPE));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "as after a death by SIGPIPE");
    // What an append could not print is in the log all the same, and whole.
    let mut command = place.command(&["append", "LOG", "--file", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(b"said to nobody\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(PIPE), &b""[..]));
    assert!(place.ok(&["read", "LOG"], b"").ends_with(b"said to nobody\n"));
    place.ok(&["verify", "LOG"], b"");
}

#[test]
fn a_torn_tail_is_one_status_and_one_wording_everywhere() {
    let place = Place::with_log();
    let mut command = place.command(&["append", "LOG", "--file", "-", "--level", "buffered"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut append = |line: &[u8]| {
        stdin.write_all(line).unwrap();
        ranges(lines.next().unwrap().unwrap().as_bytes())[0]
    };
    append(b"whole\n");
    let (torn, _) = append(b"torn by the test\n");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut bytes = std::fs::read(place.segment(0)).unwrap();
    bytes[usize::try_from(torn).unwrap() + 40] ^= 1;
    std::fs::write(place.segment(0), &bytes).unwrap();
    for args in [
        &["verify", "LOG"][..],
        &["verify", "LOG", "--mode", "strict"],
        &["read", "LOG", "--mode", "strict"],
        &["append", "LOG", "--file", "-", "--mode", "strict"],
        &["trim", "LOG", "--before", "4144", "--mode", "strict"],
        &["truncate", "LOG", "--from", "4144", "--mode", "strict"],
    ] {
        let said = place.fails(args, b"", TORN);
        let where_and_what =
            format!("torn tail in {} at offset {torn} (LSN {torn})", place.segment(0).display());
        for words in
            [&where_and_what, "nothing durable is lost", "nothing is to be restored", "`--mode tail`"]
        {
            assert!(said.contains(words), "{args:?}: {words}: {said}");
        }
        assert!(!said.contains("damage") && !said.contains("restore the file"), "{args:?}: {said}");
    }
    let json = place.run(&["verify", "LOG", "--json", "--mode", "strict"], b"");
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((report["result"].as_str(), report["lsn"].as_u64()), (Some("torn"), Some(torn)));
    assert_eq!(report["records"].as_u64(), Some(1));
    assert_eq!(place.ok(&["read", "LOG"], b""), b"whole\n", "the mode tail ends before it");
    assert_eq!(place.append(b"next\n")[0].0, torn, "and cuts it");
    place.ok(&["verify", "LOG", "--mode", "strict"], b"");
    assert_eq!(place.ok(&["read", "LOG", "--mode", "strict"], b""), b"whole\nnext\n");
}

#[test]
fn damage_has_one_wording_and_old_damage_is_found_by_who_reads_it() {
    let place = Place::with_log();
    let ranges = place.append(&b"some record of fifty bytes, or thereabouts, it is\n".repeat(3000));
    let (old, end) = (ranges[10].0, ranges[2999].1);
    let flip = |lsn: u64| {
        let file = place.segment(lsn / 65536);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[usize::try_from(lsn % 65536).unwrap() + 40] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
    };
    let wording = |said: &str, lsn: u64, end: u64| {
        for words in [
            format!(
                "damage in {} at offset {} (LSN {lsn}): ",
                place.segment(lsn / 65536).display(),
                lsn % 65536
            ),
            format!("the log was durable up to LSN {end}; restore the file from a copy, "),
            format!("`windlass log repair {} --dry-run`", place.log().display()),
            "start that, and its peers send it again".to_owned(),
            format!("`windlass log read {}` works up to the damage", place.log().display()),
        ] {
            assert!(said.contains(&words), "{words}: {said}");
        }
    };
    // Near the end everybody meets it.
    flip(ranges[2998].0);
    for args in [
        &["verify", "LOG"][..],
        &["read", "LOG"],
        &["append", "LOG", "--file", "-"],
        &["trim", "LOG", "--before", "4144"],
        // A cut takes away what is behind it, not what is before it.
        &["truncate", "LOG", "--from", &ranges[2999].0.to_string()],
    ] {
        wording(&place.fails(args, b"x\n", DAMAGE), ranges[2998].0, end);
    }
    assert!(place.fails(&["verify", "LOG"], b"", DAMAGE).contains("2998 records (and "));
    flip(ranges[2998].0);
    // In an old segment it doesn't keep from appending; reading and verifying find it.
    flip(old);
    let end = place.append(b"appended\n")[0].1;
    for args in [&["verify", "LOG"][..], &["read", "LOG"]] {
        wording(&place.fails(args, b"", DAMAGE), old, end);
    }
    let said = place.fails(&["append", "LOG", "--file", "-", "--mode", "strict"], b"x\n", DAMAGE);
    wording(&said, old, end);
    let read = place.run(&["read", "LOG"], b"").stdout;
    assert_eq!(read.iter().filter(|byte| **byte == b'\n').count(), 10, "read works up to the damage");
    // A cut above the damage leaves it; one below takes it away, and nothing more is needed. So does trimming.
    let cut = place.ok(&["truncate", "LOG", "--from", &ranges[2500].0.to_string()], b"");
    assert!(String::from_utf8(cut).unwrap().contains(&format!("to {}", ranges[2500].0)));
    place.fails(&["verify", "LOG"], b"", DAMAGE);
    let opened = place.copy("base");
    let cut = place.ok(&["truncate", &opened, "--from", "65536", "--json"], b"");
    let ends: serde_json::Value = serde_json::from_slice(&cut).unwrap();
    assert_eq!(ends["tail"].as_u64(), Some(65536 + 4096), "a segment's base stands for its first record");
    for (name, from) in [("before", ranges[5].0), ("at", old)] {
        let copy = place.copy(name);
        place.ok(&["truncate", &copy, "--from", &from.to_string()], b"");
        place.ok(&["verify", &copy, "--mode", "strict"], b"");
        assert_eq!(
            place.ok(&["append", &copy, "--file", "-"], b"x\n").len(),
            format!("{from} {from}\n").len()
        );
    }
    // Its own start is the only one that may be damaged.
    let inside = place.fails(&["truncate", "LOG", "--from", &(old + 8).to_string()], b"", DAMAGE);
    wording(&inside, old + 8, ranges[2500].0);
    place.ok(&["trim", "LOG", "--before", &ranges[2000].0.to_string()], b"");
    place.ok(&["verify", "LOG"], b"");
    for args in [&["--help"][..], &["append", "--help"], &["trim", "--help"], &["truncate", "--help"]] {
        let help =
            String::from_utf8(place.ok(args, b"")).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("from the persisted mark on"), "{args:?}: {help}");
    }
}

/// Four records in the only segment, the third of them damaged: where they start, and the end.
fn damaged_in_the_only_segment() -> (Place, Vec<u64>) {
    let place = Place::with_log();
    let ranges = place.append(b"first\nsecond\nthird, damaged\nlast\n");
    let mut starts: Vec<u64> = ranges.iter().map(|range| range.0).collect();
    starts.push(ranges[3].1);
    let mut bytes = std::fs::read(place.segment(0)).unwrap();
    bytes[usize::try_from(starts[2]).unwrap() + 20] ^= 1;
    std::fs::write(place.segment(0), &bytes).unwrap();
    (place, starts)
}

#[test]
fn reading_from_behind_a_damage_is_whole_if_what_is_printed_is() {
    let (place, starts) = damaged_in_the_only_segment();
    let from = |lsn: u64| vec!["read".to_owned(), "LOG".to_owned(), "--from".to_owned(), lsn.to_string()];
    let read = |lsn: u64, mode: &str| {
        let args = from(lsn);
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.extend(["--mode", mode]);
        let output = place.run(&args, b"");
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let names = |said: &str, lsn: u64| {
        let words = format!("damage in {} at offset {lsn} (LSN {lsn}): ", place.segment(0).display());
        assert!(said.contains(&words) && said.contains("windlass log truncate"), "{words}: {said}");
    };
    for mode in ["tail", "strict"] {
        assert_eq!(read(starts[3], mode), (Some(0), b"last\n".to_vec(), String::new()), "{mode}");
        assert_eq!(
            read(starts[4], mode),
            (Some(0), Vec::new(), String::new()),
            "{mode}: where it was closed"
        );
        let (status, printed, said) = read(starts[0], mode);
        assert_eq!((status, printed.as_slice()), (Some(DAMAGE), &b"first\nsecond\n"[..]), "{mode}");
        names(&said, starts[2]);
        // Whether a record starts there, or the log ends before, is not known behind a damage.
        for lsn in [starts[3] + 8, starts[4] + 800] {
            let (status, printed, said) = read(lsn, mode);
            assert_eq!((status, printed), (Some(DAMAGE), Vec::new()), "{mode} {lsn}: {said}");
            names(&said, starts[2]);
        }
    }
    // Between two damages: the second is the one that is met.
    let mut bytes = std::fs::read(place.segment(0)).unwrap();
    bytes[usize::try_from(starts[0]).unwrap() + 20] ^= 1;
    std::fs::write(place.segment(0), &bytes).unwrap();
    let (status, printed, said) = read(starts[1], "tail");
    assert_eq!((status, printed.as_slice()), (Some(DAMAGE), &b"second\n"[..]), "{said}");
    names(&said, starts[2]);
    assert_eq!(read(starts[3], "tail").0, Some(0));
}

#[test]
fn truncate_is_a_way_out_of_damage_that_keeps_the_log_from_being_opened() {
    let (place, starts) = damaged_in_the_only_segment();
    for mode in ["tail", "strict"] {
        for (at, kept) in [b"".as_slice(), b"first\n", b"first\nsecond\n"].into_iter().enumerate() {
            let copy = place.copy(&format!("{mode}{at}"));
            let from = starts[at].to_string();
            let cut = place.ok(&["truncate", &copy, "--from", &from, "--mode", mode, "--json"], b"");
            let ends: serde_json::Value = serde_json::from_slice(&cut).unwrap();
            assert_eq!((ends["tail"].as_u64(), ends["trimmed"].as_u64()), (Some(starts[at]), Some(4096)));
            assert_ne!(ends["epoch"], "e1.m0", "a new epoch");
            place.ok(&["verify", &copy, "--mode", "strict"], b"");
            assert_eq!(place.ok(&["read", &copy], b""), kept);
            assert_eq!(ranges(&place.ok(&["append", &copy, "--file", "-"], b"new\n"))[0].0, starts[at]);
            assert_eq!(place.ok(&["read", &copy], b""), [kept, b"new\n"].concat());
            place.ok(&["verify", &copy, "--mode", "strict"], b"");
        }
    }
    // What can't be cut leaves everything as it is.
    // `owner` says who had it last.
    let files = || snapshot(&place.log()).into_iter().filter(|(name, _)| name != "owner").collect::<Vec<_>>();
    let before = files();
    for (from, status) in
        [(0, REFUSED), (starts[1] + 8, REFUSED), (starts[1] + 1, REFUSED), (starts[3], DAMAGE)]
    {
        let said = place.fails(&["truncate", "LOG", "--from", &from.to_string()], b"", status);
        assert!(status != DAMAGE || said.contains(&format!("(LSN {})", starts[2])), "{from}: {said}");
    }
    place.fails(&["trim", "LOG", "--before", &starts[3].to_string()], b"", DAMAGE);
    assert!(files() == before);
}

#[test]
fn verify_counts_what_was_appended_and_sees_headers_and_superblock_copies() {
    let place = Place::with_log();
    let ranges = place.append(b"one\ntwo\nthree\nfour\n");
    assert_eq!(ranges[0].0, 4144, "the first LSN that the README names");
    let said = String::from_utf8(place.ok(&["verify", "LOG"], b"")).unwrap();
    assert!(said.starts_with("clean: 4 records (and 1 of the log's own), LSNs 4096 to "), "{said}");
    let json = || -> serde_json::Value {
        serde_json::from_slice(&place.run(&["verify", "LOG", "--json"], b"").stdout).unwrap()
    };
    let report = json();
    assert_eq!((report["records"].as_u64(), report["own_records"].as_u64()), (Some(4), Some(1)));
    assert_eq!(
        (report["superblock_copies"].as_str(), report["row"].as_str()),
        (Some("2 of 2"), Some("CleanEnd"))
    );
    assert_eq!(report["verdict"], "whole, up to where it was closed");
    let superblock = place.log().join("superblock");
    let good = std::fs::read(&superblock).unwrap();
    for copy in [0, 64 << 10] {
        let mut bad = good.clone();
        bad[copy + 50] ^= 4;
        std::fs::write(&superblock, &bad).unwrap();
        let output = place.run(&["verify", "LOG"], b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(
            said.starts_with("windlass: warning: 1 of 2 copies of ") && said.lines().count() == 1,
            "{said}"
        );
        assert_eq!(json()["superblock_copies"], "1 of 2");
    }
    place.append(b"five\n");
    assert_eq!(json()["superblock_copies"], "2 of 2", "opening mends it");
    let segment = std::fs::read(place.segment(0)).unwrap();
    for at in 0..64 {
        let mut bad = segment.clone();
        bad[at] ^= 1;
        std::fs::write(place.segment(0), &bad).unwrap();
        for args in [["verify", "LOG"].as_slice(), &["read", "LOG"], &["append", "LOG", "--file", "-"]] {
            let said = place.fails(args, b"", DAMAGE);
            assert!(said.contains(&format!("{} at offset 0 ", place.segment(0).display())), "{at}: {said}");
        }
    }
    std::fs::write(place.segment(0), &segment).unwrap();
    std::fs::remove_file(&superblock).unwrap();
    for args in
        [["verify", "LOG"].as_slice(), &["read", "LOG"], &["info", "LOG"], &["append", "LOG", "--file", "-"]]
    {
        let said = place.fails(args, b"", DAMAGE);
        assert!(said.contains("has segments but no superblock: it is damaged or half copied"), "{said}");
    }
}

#[test]
fn messages_speak_of_this_command() {
    let place = Place::with_log();
    let ranges = place.append(b"one\ntwo\n");
    for args in [["read", "LOG", "--from", "0"].as_slice(), &["truncate", "LOG", "--from", "0"]] {
        let said = place.fails(args, b"", REFUSED);
        assert!(said.contains("LSN 0 is before the log, which starts at LSN 4096"), "{said}");
    }
    place.ok(&["trim", "LOG", "--before", &ranges[1].0.to_string()], b"");
    let said = place.fails(&["read", "LOG", "--from", "4144"], b"", REFUSED);
    assert!(said.contains("has been trimmed") && !said.contains("checkpoint"), "{said}");
    let said = place.fails(&["create", "LOG"], b"", REFUSED);
    assert!(said.contains("append to it, or name another folder"), "{said}");
    for args in [
        ["read", "LOG", "--from", "abc"].as_slice(),
        &["read", "LOG", "--from", "-1"],
        &["trim", "LOG", "--before", "1e3"],
        &["truncate", "LOG", "--from", "18446744073709551616"],
    ] {
        let said = place.fails(args, b"", USAGE);
        assert!(said.contains("must be an LSN"), "{said}");
    }
    for option in ["--frame", "--retention-bytes"] {
        let said = place.fails(&["append", "LOG", "--file", "-", option, "0"], b"", USAGE);
        assert!(said.contains("must be at least 1") && !said.contains(".."), "{said}");
    }
}

/// What `repair` and `salvage` say of one damaged record with others around it, word for word; what they keep; and that nothing is deleted (kind 3).
#[test]
fn repair_and_salvage_keep_what_is_whole_around_a_damage_and_name_what_is_lost() {
    let (place, starts) = damaged_in_the_only_segment();
    let (lost, behind, end) = (starts[2], starts[3], starts[4]);
    let log = place.log();
    let before = std::fs::read(place.segment(0)).unwrap();
    let out = |args: &[&str], status: i32| {
        let output = place.run(args, b"");
        assert_eq!(
            output.status.code(),
            Some(status),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    // Salvage first: it changes nothing.
    let to = place.folder.path().join("salvaged").into_os_string().into_string().unwrap();
    let files = snapshot(&log);
    let (said, why) = out(&["salvage", "LOG", "--to", &to], DAMAGE);
    assert!(snapshot(&log) == files, "the damaged log is as it was");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(&format!("lost: LSNs {lost} to {behind}: ")), "{said}");
    assert_eq!(lines[1], format!("salvaged: 3 records, 15 payload bytes, of LSNs 4096 to {end}, into {to}"));
    assert_eq!(lines[2], format!("lost: {}", range_of(behind - lost)));
    assert!(why.contains("not everything was readable"), "{why}");
    assert_eq!(place.ok(&["read", &to], b""), b"first\nsecond\nlast\n");
    assert!(out(&["salvage", "LOG", "--to", &to], REFUSED).1.contains("remove it, or name another folder"));

    let (said, why) = out(&["repair", "LOG", "--dry-run"], DAMAGE);
    let lines: Vec<&str> = said.lines().collect();
    let file = place.segment(0);
    let found = format!("found: {}: damage from LSN {lost} to {behind}, offset {lost}: ", file.display());
    assert!(lines[0].starts_with(&found), "{said}");
    assert_eq!(
        lines[1],
        format!("whole: 3 records in {} bytes, between LSNs 4096 and {end}", end - 4096 - (behind - lost))
    );
    assert_eq!(lines[2], format!("left damaged: {}", range_of(behind - lost)));
    let order = format!("--give-up {lost}..{behind}");
    assert!(why.contains(&format!("windlass log repair {} {order}`", log.display())), "{why}");
    assert!(snapshot(&log) == files, "a dry run changes nothing");
    let json = out(&["repair", "LOG", "--dry-run", "--json"], DAMAGE).0;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["findings"][0]["kind"], "damage");
    assert_eq!(
        (json["left"][0]["start"].as_u64(), json["left"][0]["end"].as_u64()),
        (Some(lost), Some(behind))
    );
    // What an order would come to is shown by a dry run: what is lost, what is set aside, and the log is as it was.
    let range = format!("{lost}..{behind}");
    let (said, why) = out(&["repair", "LOG", "--dry-run", "--give-up", &range], DAMAGE);
    let copy = format!("0001-{:016x}.segment-{lost:#x}-{}", 0, behind - lost);
    for words in [
        format!("would be given up: {}\nwould be left damaged: nothing\n", range_of(behind - lost)),
        format!("would be kept as it was in {}: 2 files\n", log.join("quarantine").display()),
        format!("would be lost: LSNs {lost} to {behind}, {} bytes\n", behind - lost),
        format!("would be set aside: {copy}\nwould be set aside: 0001.json\n"),
    ] {
        assert!(said.contains(&words), "{words}{said}");
    }
    assert!(why.contains("nothing was changed"), "{why}");
    // The filler counts once it is there, and each says so.
    let whole = |said: &str, bytes: u64, filler: &str| {
        let line = format!(
            "whole: 3 records in {bytes} bytes, {filler} the filler for what is given up, between LSNs 4096 and {end}\n"
        );
        assert!(said.contains(&line), "{line}{said}");
    };
    whole(&said, end - 4096 - (behind - lost), "without");
    let json = out(&["repair", "LOG", "--dry-run", "--give-up", &range, "--json"], DAMAGE).0;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["given_up"][0]["start"].as_u64(), json["quarantined"][0].as_str()),
        (Some(lost), Some(&*copy))
    );
    let other = format!("{lost}..{end}");
    assert!(
        out(&["repair", "LOG", "--dry-run", "--give-up", &other], REFUSED).1.contains("not what is damaged")
    );
    assert!(snapshot(&log) == files, "a dry run changes nothing");
    // Without an order, or with another, what is lost is not given up.
    out(&["repair", "LOG"], DAMAGE);
    let other = format!("{lost}..{end}");
    assert!(out(&["repair", "LOG", "--give-up", &other], REFUSED).1.contains("not what is damaged"));
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let range = format!("{lost}..{behind}");
    let (said, _) = out(&["repair", "LOG", "--give-up", &range], 0);
    whole(&said, end - 4096, "with");
    assert!(
        said.contains(&format!("given up: {}\nleft damaged: nothing\n", range_of(behind - lost))),
        "{said}"
    );
    place.ok(&["verify", "LOG", "--mode", "strict"], b"");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"first\nsecond\nlast\n");
    place.append(b"goes on\n");
    assert_eq!(place.ok(&["read", "LOG"], b""), b"first\nsecond\nlast\ngoes on\n");
    // What was there is kept, byte for byte, with a note.
    let kept = log.join("quarantine");
    let copy = kept.join(format!("0001-{:016x}.segment-{lost:#x}-{}", 0, behind - lost));
    let (from, to) = (usize::try_from(lost).unwrap(), usize::try_from(behind).unwrap());
    assert!(std::fs::read(copy).unwrap() == before[from..to]);
    let note = std::fs::read_to_string(kept.join("0001.json")).unwrap();
    let note: serde_json::Value = serde_json::from_str(&note).unwrap();
    assert_eq!(note["kept"][0]["lsn_start"].as_u64(), Some(lost), "{note}");
    assert!(note["kept"][0]["why"].as_str().unwrap().starts_with("a damaged range, given up by order: "));
    assert!(out(&["repair", "LOG", "--dry-run"], 0).0.starts_with("found: nothing amiss\n"));
}

#[test]
fn repair_mends_what_loses_nothing_without_being_told_and_refuses_a_folder_in_use() {
    let place = Place::with_log();
    place.append(b"one\ntwo\n");
    let superblock = place.log().join("superblock");
    let mut bytes = std::fs::read(&superblock).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&superblock, bytes).unwrap();
    let said = place.fails(&["repair", "LOG", "--dry-run"], b"", TORN);
    assert!(said.contains("nothing durable is lost"), "{said}");
    let elsewhere = place.folder.path().join("kept").into_os_string().into_string().unwrap();
    let said = place.ok(&["repair", "LOG", "--quarantine", &elsewhere], b"");
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("found: copy 0 of the superblock is damaged or older"), "{said}");
    assert!(said.contains(&format!("kept as it was in {elsewhere}: 2 files")), "{said}");
    place.ok(&["repair", "LOG", "--dry-run"], b"");
    let to = place.folder.path().join("new").into_os_string().into_string().unwrap();
    place.ok(&["salvage", "LOG", "--to", &to], b"");

    let mut running = place.command(&["append", "LOG", "--file", "-"]);
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.as_mut().unwrap().write_all(b"three\n").unwrap();
    let mut answer = String::new();
    BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    let other = place.folder.path().join("other").into_os_string().into_string().unwrap();
    for args in [&["repair", "LOG"][..], &["repair", "LOG", "--dry-run"], &["salvage", "LOG", "--to", &other]]
    {
        place.fails(args, b"", IN_USE);
    }
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
    let said = place.fails(&["repair", "LOG", "--give-up", "9"], b"", USAGE);
    assert!(said.contains("START..END"), "{said}");
}

#[test]
fn the_readmes_synopsis_names_every_option_and_no_other() {
    let readme = include_str!("../../../README.md");
    let options = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
    };
    let synopsis = |line: &&str| line.starts_with("windlass log ") && line.contains(" DIR");
    let mut subcommands = 0;
    for line in readme.lines().filter(synopsis) {
        let subcommand = line.split(' ').nth(2).unwrap();
        let help =
            Command::new(env!("CARGO_BIN_EXE_windlass")).args(["log", subcommand, "-h"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        // Each option on a line of its own, described behind its name.
        let named: String = help
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("--")?.split([' ', '=']).next())
            .map(|name| format!("--{name} "))
            .collect();
        let mut known = options(&named);
        assert!(known.remove("--json"), "{subcommand}: {help}");
        assert_eq!(options(line), known, "{subcommand}");
        subcommands += 1;
    }
    assert_eq!(subcommands, 9);
}

/// The last epoch that the superblock has room for is begun; a copy of the folder needs another one.
#[test]
fn a_log_that_has_had_too_many_epochs_to_be_opened_is_trimmed_as_it_is_opened_r_12() {
    let place = Place::with_log();
    let disk = windlass_store::disk::RealDisk::open(&place.log()).unwrap();
    let around = windlass::Surroundings { boot_id: [1; 16], incarnation: 7 };
    let (store, _) = windlass_store::Store::open(disk, &around, &windlass_store::Options::default()).unwrap();
    store
        .reset_with(windlass::Lsn(65536 + 4096), |superblock| {
            let (promised, history) = (&mut superblock.promised, &mut superblock.history);
            while history.entries().len() < 2047 {
                let number = u64::try_from(history.entries().len()).unwrap();
                *promised = promised.next_for(superblock.member);
                history.extend(*promised, windlass::Lsn(4096 + 8 * number)).unwrap();
            }
        })
        .unwrap();
    drop(store);
    let ranges = place.append(b"one\ntwo\n");
    let copy = Place::new();
    let copied = Command::new("cp").arg("-r").arg(place.log()).arg(copy.log()).status().unwrap();
    assert!(copied.success());
    let said = copy.fails(&["append", "LOG", "--file", "-"], b"three\n", REFUSED);
    assert!(said.contains("trim"), "{said}");
    let inside = (ranges[1].0 + 8).to_string();
    copy.fails(&["trim", "LOG", "--before", &inside], b"", REFUSED);
    let beyond = (ranges[1].1 + 8).to_string();
    copy.fails(&["trim", "LOG", "--before", &beyond], b"", REFUSED);
    copy.ok(&["trim", "LOG", "--before", &ranges[1].0.to_string()], b"");
    copy.append(b"three\n");
    assert_eq!(copy.ok(&["read", "LOG"], b""), b"two\nthree\n");
}
