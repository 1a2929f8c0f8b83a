//! A false member: whoever may write in the sockets' folder can serve at a member's socket, let every client in, and answer anything.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;

/// The longest payload of an append through a socket.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// A frame of the client's, at most.
const FRAME_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64;
/// Numbers at which sums and differences end.
const EXTREMES: [u64; 5] = [0, 1, i64::MAX as u64, u64::MAX - 1, u64::MAX];

/// A frame as a member sends it.
fn frame(tag: u8, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let length = u32::try_from(1 + numbers.len() + rest.len()).unwrap();
    [&length.to_le_bytes()[..], &[tag], &numbers, rest].concat()
}

/// Where a primary stands that has this number wherever a number is its own.
fn standing(number: u64) -> Vec<u8> {
    let counted = |names: &[&str]| -> serde_json::Value {
        names.iter().map(|name| ((*name).to_owned(), json!(number))).collect::<serde_json::Map<_, _>>().into()
    };
    let standing = json!({
        "by": 1, "role": "primary", "epoch": format!("e{number}.m1"), "durable": number, "trimmed": number, "tail": number,
        "payload_bytes_max": number, "void_batches": number, "damaged": false, "follows": null, "standing": "voter",
        "voters": [1], "quorum": number, "kept_out": [], "checkpoint_from": number,
        "windows": counted(&["binds", "allocated", "used_up"]),
        "batches": counted(&["sent", "doorbells", "requests", "signalled", "copied_bytes"]),
        "completions_lost": counted(&["requests", "receives"]),
    });
    serde_json::to_vec(&standing).unwrap()
}

/// The group as that primary has it; m2 votes in it once it was asked for.
fn view(number: u64, is_changed: bool) -> Vec<u8> {
    let voter = |member: u8| json!({ "member": member, "standing": "voter" });
    let members: Vec<_> = [Some(1), is_changed.then_some(2)].into_iter().flatten().map(voter).collect();
    let view = json!({
        "by": 1, "primary": 1, "configuration": number, "committed": true, "write_quorum": number, "takeover_quorum": number,
        "highest": u8::try_from(number).unwrap_or(u8::MAX), "members": members,
    });
    serde_json::to_vec(&view).unwrap()
}

/// Answers one client with this number, to its end.
fn serve(mut client: UnixStream, number: u64, is_changed: &AtomicBool) -> std::io::Result<()> {
    client.write_all(&frame(11, &[], &[7; 32]))?;
    loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap();
        assert!(length <= FRAME_BYTES_MAX, "a client has sent a frame of {length} bytes");
        let mut request = vec![0; length];
        client.read_exact(&mut request)?;
        let answers = match request[0] {
            // Its number in the client's order comes back: all else may be anything.
            1 => {
                let sequence = u64::from_le_bytes(request[1..9].try_into().unwrap());
                frame(1, &[sequence, number, number], &[])
            }
            2 => frame(4, &[], &standing(number)),
            3 => frame(5, &[number], &[]),
            4 => [frame(7, &[number, number], b"record"), frame(8, &[], &[])].concat(),
            6 => frame(10, &[], &[]),
            7 => frame(12, &[], &[]),
            8 => frame(14, &[], &view(number, is_changed.load(SeqCst))),
            // What a member is added by; the quorums stay.
            9 if request[1] == 1 => {
                is_changed.store(true, SeqCst);
                frame(15, &[number], &[])
            }
            9 => frame(16, &[0], b"no"),
            10 => frame(17, &[number, u64::MAX - number], &[]),
            other => panic!("a request {other}"),
        };
        client.write_all(&answers)?;
    }
}

/// The file of a group of one, with a table for one that joins; m1 is false, and has this number for everything.
fn false_group(root: &Path, number: u64) -> String {
    let at = root.to_str().unwrap();
    let init = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["group", "init", "--folder", at, "--members", "1", "--any-filesystem"])
        .output()
        .unwrap();
    assert!(init.status.success(), "{init:?}");
    let file = format!("{at}/group.toml");
    let joins = format!(
        "\n[[members]]\nnumber = 2\njoins = true\ncontrol = \"127.0.0.1:9\"\nclient = \"{at}/m2.sock\"\nfolder = \"{at}/m2\"\n"
    );
    std::fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(joins.as_bytes()).unwrap();
    let listener = UnixListener::bind(root.join("m1.sock")).unwrap();
    let is_changed = Arc::default();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, is_changed) = (client.unwrap(), Arc::clone(&is_changed));
            // It ends with the client's connection.
            std::thread::spawn(move || serve(client, number, &is_changed));
        }
    });
    file
}

fn run(file: &str, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["group", "--config", file])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who has refused the first record reads no second one.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Every command ends as its help says, whatever numbers it is answered.
#[test]
fn no_number_of_a_members_answer_ends_a_command_in_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    for (at, number) in EXTREMES.into_iter().enumerate() {
        let file = false_group(&folder.path().join(at.to_string()), number);
        let from = number.to_string();
        for args in [
            &["status"][..],
            &["status", "--json"],
            &["members"],
            &["members", "--json"],
            &["append", "--file", "-", "--json"],
            &["append", "--file", "-", "--frame", "3"],
            &["read"],
            &["read", "--from", &from],
            &["read", "--format", "json", "--member", "1"],
            &["hand-over", "--to", "1"],
            &["accept-loss", "--member", "1", "--yes"],
            &["quorums", "--write", "1", "--takeover", "1"],
            &["quorums", "--majority"],
            &["remove", "7"],
            &["replace", "1", "2"],
            &["add", "2"],
        ] {
            let ended = run(&file, args, b"one\ntwo\n");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(
                matches!(ended.status.code(), Some(0 | 3 | 5)) && !said.contains("panicked"),
                "{number}, {args:?}: {ended:?}"
            );
        }
    }
}

/// What a primary says of the longest payload counts up to what a client's frame holds, and no record of the input is passed over.
#[test]
fn a_primary_that_takes_any_length_is_sent_every_record_up_to_the_longest_of_a_client() {
    let folder = tempfile::tempdir().unwrap();
    for (at, number) in EXTREMES[2..].iter().enumerate() {
        let file = false_group(&folder.path().join(at.to_string()), *number);
        let (most, more) = (vec![b'x'; PAYLOAD_BYTES_MAX], vec![b'x'; PAYLOAD_BYTES_MAX + 1]);
        let appended = run(&file, &["append", "--file", "-"], &[&b"one\n"[..], &most, b"\ntwo\n"].concat());
        let lines = String::from_utf8(appended.stdout.clone()).unwrap().lines().count();
        assert!(appended.status.success() && lines == 3, "{number}: {lines} of 3 lines: {appended:?}");
        for framing in [&["append", "--file", "-"][..], &["append", "--file", "-", "--frame", "1048577"]] {
            let refused = run(&file, framing, &more);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(
                refused.status.code() == Some(3) && said.contains("1048576") && refused.stdout.is_empty(),
                "{number}, {framing:?}: {refused:?}"
            );
        }
    }
}
