//! `windlass group add`, `remove`, `replace`, `quorums` and `members` as a user runs them: real processes, killed while the group changes. DESIGN.md
//! sections 8.11 and 9.3.

mod support;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::{Group, PATIENCE, Said, windlass};

/// A group of three that has a primary.
fn started() -> Group {
    let group = Group::init_small().start_all();
    group.primary();
    group
}

/// Who belongs to the group, as the primary knows, or whoever knows best.
fn view(group: &Group) -> Option<Value> {
    serde_json::from_str(&group.group(&["members", "--json"]).out).ok()
}

fn records(from: u32, to: u32) -> Vec<u8> {
    let mut text = String::new();
    for number in from..to {
        writeln!(text, "record {number} of the input").unwrap();
    }
    text.into_bytes()
}

fn voters(view: &Value) -> Vec<u64> {
    let members = view["members"].as_array().unwrap().iter();
    members.filter(|m| m["standing"] == "voter").map(|m| m["member"].as_u64().unwrap()).collect()
}

#[test]
fn a_fourth_member_is_added_the_primary_leaves_and_each_says_so() {
    let mut group = started();
    group.append(&records(0, 3000));
    group.announce(4);
    group.start(4);
    // Each hint can be run as it is printed, in any terminal, the library's lines among them.
    let add = format!("`windlass group --config {} add 4`", group.config);
    let waits = format!("where it was not added yet, {add}");
    group.wait(|group| group.said(4).contains(&waits).then_some(()));
    assert!(
        group.said(4).contains("it was not added yet: ") && !group.said(4).contains("`Node::"),
        "{}",
        group.said(4)
    );
    let status = group.group(&["status"]).out;
    assert!(status.contains("m4 is no member of the group: it waits") && status.contains(&add), "{status}");
    let lone = group.group(&["members", "--member", "4"]).well();
    assert!(lone.contains(&add), "{lone}");
    assert!(
        lone.contains("m4 knows of no configuration; m4 is no member of the group: it waits to be added"),
        "{lone}"
    );

    let added = group.group(&["add", "4"]).well();
    let lines: Vec<&str> = added.lines().collect();
    assert_eq!(
        lines,
        [
            "m4 learns: configuration 1; it votes once it has caught up",
            "m4 votes: configuration 2 of m1, m2, m3, m4"
        ]
    );
    // Whoever asks again is told how it is.
    assert_eq!(group.group(&["add", "4"]).well(), "m4 votes: configuration 2 of m1, m2, m3, m4\n");
    group.wait_read(4, &records(0, 3000));

    let first = group.primary();
    let left = group.group(&["remove", &first.to_string()]).well();
    assert!(left.starts_with(&format!("m{first} has left: configuration 3 of ")), "{left}");
    let told = "this member has left the group with configuration 3: stop it; its folder can be removed";
    group.wait(|group| group.said(first).contains(told).then_some(()));
    let (number, left) = (first.to_string(), "it has left the group with configuration 3: stop it");
    group.group(&["read", "--member", &number]).refused(3, left);
    group.group(&["members", "--member", &number]).refused(3, left);
    group.wait(|group| (group.primary() != first).then_some(()));
    // It stays outside, also where the next primary came for it before that knew the configuration to be committed, and says so once.
    let said = group.said(first);
    let (_, since) = said.split_once(told).unwrap();
    assert!(!since.contains(told) && !since.contains("is followed as primary"), "{said}");
    group.kill(first);
    group.append(&records(3000, 4000));
    let table = group.group(&["members"]).well();
    assert!(table.contains("configuration 3, as m") && table.contains("of 3 voters 2 hold"), "{table}");
    assert!(!table.contains(&format!("\nm{first} ")), "{table}");

    // All end, and come back with the file, which still has the one that has left.
    let others: Vec<usize> = (1..=4).filter(|number| *number != first).collect();
    for number in &others {
        group.kill(*number);
    }
    for number in &others {
        group.start(*number);
    }
    group.append(&records(4000, 4500));
    for number in &others {
        group.wait_read(*number, &records(0, 4500));
    }
    // The new one counts as any other: it leads, and with one of the others away it is one of the two that commit.
    group.wait(|group| (group.group(&["hand-over", "--to", "4"]).code == Some(0)).then_some(()));
    group.kill(others[0]);
    group.append(&records(4500, 5000));
    group.wait_read(4, &records(0, 5000));
}

/// Its own log does not tell it: it was down when it was taken out, and nobody dials it any more.
#[test]
fn a_member_that_was_taken_out_while_it_was_down_says_so_to_whom_it_is_read_by() {
    let mut group = started();
    group.append(&records(0, 100));
    let away = group.primary() % 3 + 1;
    let number = away.to_string();
    group.wait_read(away, &records(0, 100));
    group.kill(away);
    group.group(&["remove", &number]).well();
    group.append(&records(100, 200));
    let gone = format!("`windlass log read {}`", group.root.join(format!("m{number}")).display());
    let read = group.group(&["read", "--member", &number]);
    assert!(read.err.contains("does not answer") && read.err.contains(&gone), "{read:?}");
    read.refused(3, "is no member of the group (configuration 1 is without it)");
    group.start(away);
    // Who dials nobody asks after a while. Its own log may have come to tell it meanwhile.
    let told = [
        "not have it in the group: if it has left, or another took its place, stop it",
        "has left the group with",
    ];
    let tells = |said: &str| told.iter().any(|told| said.contains(told));
    let read = group.wait(|group| {
        let read = group.group(&["read", "--member", &number]);
        (read.code == Some(3) && tells(&read.err)).then_some(read)
    });
    assert_eq!(read.out, "");
    assert!(read.err.contains(&gone), "{read:?}");
    let members = group.group(&["members", "--member", &number]);
    assert!(members.code == Some(3) && tells(&members.err), "{members:?}");
    let status = group.group(&["status"]).well();
    assert!(status.contains(&format!("m{away} is no member of the group: ")) && tells(&status), "{status}");
    assert!(!status.contains("is kept out"), "{status}");
    // The group's members are read and asked as ever.
    assert_eq!(group.group(&["read"]).well().as_bytes(), records(0, 200));
    group.group(&["members"]).well();
}

/// Kind 55: one that joined has no founders to go by, so that its new folder knows of no configuration: it does not wait to be added for that.
#[test]
fn kind_55_a_member_that_joined_and_comes_back_with_an_emptied_folder_is_kept_out_and_not_told_to_wait() {
    let mut group = started();
    group.announce(4);
    group.start(4);
    group.group(&["add", "4"]).well();
    group.append(&records(0, 100));
    group.wait_read(4, &records(0, 100));
    group.kill(4);
    std::fs::remove_dir_all(group.root.join("m4")).unwrap();
    group.start(4);
    let (told, row) = ("m4 is kept out by m", "\nm4      yes      kept out   ");
    let out = group.wait(|group| {
        let out = group.group(&["status"]).well();
        out.contains(told).then_some(out)
    });
    let why = "this member's folder was made anew";
    assert!(out.contains(row) && out.contains(why) && !out.contains("waits to be added"), "{out}");
    // Nothing was changed, and that is no success.
    let add = group.group(&["add", "4"]);
    assert!(add.out.starts_with("m4 votes: configuration 2 of m1, m2, m3, m4"), "{add:?}");
    add.refused(3, "nothing was changed, and what runs as m4 is kept out by m");
    let known = group.group(&["members", "--member", "4"]).well();
    assert!(known.contains("knows of no configuration, and is kept out by m"), "{known}");
    group.group(&["read", "--member", "4"]).refused(3, "it is kept out by m");
    group.group(&["replace", "4", "5"]).refused(64, "the group's file has no member 5");
    group.announce(5);
    group.start(5);
    let replaced = group.group(&["replace", "4", "5"]).well();
    assert!(replaced.contains("m5 votes in the place of m4"), "{replaced}");
}

/// Kind 55: who joins while a first member is down has never met its disk, and refuses another one under its number all the same; the old one it takes.
#[test]
fn kind_55_a_first_member_with_an_emptied_folder_is_kept_out_by_one_that_joined_while_it_was_down() {
    let mut group = started();
    group.append(&records(0, 100));
    let lost = group.primary() % 3 + 1;
    group.kill(lost);
    let folder = group.root.join(format!("m{lost}"));
    let aside = group.root.join("aside");
    std::fs::rename(&folder, &aside).unwrap();
    group.announce(4);
    group.start(4);
    group.group(&["add", "4"]).well();
    group.start(lost);
    let others: Vec<String> = (1..=4).filter(|n| *n != lost).map(|n| format!("m{n}")).collect();
    let told = format!("m{lost} is kept out by {}: this member's folder was made anew", others.join(", "));
    group.wait(|group| group.group(&["status"]).out.contains(&told).then_some(()));
    assert!(group.said(lost).contains("or, if all other members keep this one out, put its old folder back"));
    group.append(&records(100, 200));
    // So does who reads that.
    group.kill(lost);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    group.start(lost);
    group.wait_read(lost, &records(0, 200));
    let row = format!("\nm{lost}      yes      backup of m");
    group.wait(|group| {
        let out = group.group(&["status"]).well();
        (out.contains(&row) && !out.contains("kept out")).then_some(())
    });
}

/// Kind 55: whoever lost its disk does not come back under its number; a new member takes its place. The primary is killed while the new one learns, and records are
/// appended all the while.
#[test]
fn kind_55_a_member_whose_disk_was_emptied_is_replaced_under_load_with_a_kill_of_the_primary() {
    let mut group = started();
    let mut append = group
        .command(&["append", "--file", "-", "--in-flight", "64"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = append.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        for block in 0..100 {
            input.write_all(&records(block * 100, block * 100 + 100)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut ranges = append.stdout.take().unwrap();
    let acknowledged = std::thread::spawn(move || {
        let mut text = String::new();
        ranges.read_to_string(&mut text).unwrap();
        text.lines().count()
    });
    std::thread::sleep(Duration::from_millis(200));
    let first = group.primary();
    let lost = first % 3 + 1;
    group.kill(lost);
    std::fs::remove_dir_all(group.root.join(format!("m{lost}"))).unwrap();
    group.announce(4);
    group.start(4);
    let mut replace = group
        .command(&["replace", &lost.to_string(), "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(replace.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "m4 learns: configuration 1; it votes once it has caught up\n");
    // With one of three voters gone, and one killed, nobody can lead until that one is back.
    group.kill(first);
    std::thread::sleep(Duration::from_millis(100));
    group.start(first);
    line.clear();
    said.read_to_string(&mut line).unwrap();
    let replaced = Said::of(replace.wait_with_output().unwrap());
    assert!(replaced.code == Some(0) && line.starts_with("m4 votes in the place of m"), "{line}{replaced:?}");
    feeding.join().unwrap();
    let appended = Said::of(append.wait_with_output().unwrap());
    assert_eq!(appended.code, Some(0), "{appended:?}");
    assert_eq!(acknowledged.join().unwrap(), 10_000);

    let want = records(0, 10_000);
    let read = group.command(&["read"]).output().unwrap().stdout;
    assert!(read == want, "{} of {} bytes", read.len(), want.len());
    group.wait_read(4, &want);
    let view = view(&group).unwrap();
    let expected: Vec<u64> = (1..=4).filter(|number| *number != lost as u64).collect();
    assert_eq!((voters(&view), &view["committed"]), (expected, &Value::from(true)), "{view}");
}

#[test]
fn a_member_that_joins_is_killed_at_many_moments_and_votes_in_the_end() {
    let mut group = started();
    let want = records(0, 20_000);
    group.append(&want);
    group.announce(4);
    // Before anybody knows of it.
    group.start(4);
    std::thread::sleep(Duration::from_millis(60));
    group.kill(4);
    group.start(4);
    group.group(&["add", "4", "--no-wait"]).well();
    for round in 0..12 {
        std::thread::sleep(Duration::from_millis(13 * round));
        group.kill(4);
        if round % 3 == 2 {
            // The primary that added it is not the one that makes it a voter.
            let primary = group.primary();
            group.kill(primary);
            group.start(primary);
        }
        group.start(4);
    }
    group.wait(|group| {
        let view = view(group)?;
        (voters(&view) == [1, 2, 3, 4] && view["committed"] == true).then_some(())
    });
    group.wait_read(4, &want);
    group.append(&records(20_000, 20_100));
    group.wait_read(4, &records(0, 20_100));
    // Once more, as a member that votes.
    group.kill(4);
    group.start(4);
    group.append(&records(20_100, 20_200));
    group.wait_read(4, &records(0, 20_200));
}

#[test]
fn each_wrong_use_is_refused_with_what_to_do() {
    let mut group = started();
    group.append(&records(0, 10));
    group.group(&["add", "4"]).refused(64, "the group's file has no member 4: add its table");
    group.group(&["add", "2"]).refused(64, "give the new member its own [[members]] table");
    group.group(&["remove", "9"]).refused(3, "m9 is no member of configuration 0");
    group.group(&["quorums", "--write", "1", "--takeover", "2"]).refused(3, "make them 4 together at least");
    group.group(&["quorums", "--write", "2"]).refused(64, "--takeover");
    group.announce(4);
    group.announce(5);
    group.group(&["replace", "4", "4"]).refused(64, "can't take its own place");
    group.group(&["replace", "9", "4"]).refused(3, "m9 is no member of configuration 0");
    // One that never comes is a member all the same, until it is taken back; its number is gone with it.
    group.group(&["add", "4", "--no-wait"]).well();
    group.group(&["add", "5"]).refused(3, "m4 is still catching up: wait until it votes, or remove it");
    let taken = group.group(&["remove", "4"]).well();
    assert_eq!(taken, "m4 has left: configuration 2 of m1, m2, m3\n");
    // Asked for again it does no harm; what was never given is a slip (9, above).
    let again = group.group(&["remove", "4"]).well();
    assert_eq!(again, "m4 is no member: configuration 2 of m1, m2, m3\n");
    group
        .group(&["add", "4"])
        .refused(3, "m4 can't be given: numbers rise, since each belongs to one disk for ever, and m4 is the highest that was ever given; the next free number is 5");
    let made = group.group(&["quorums", "--write", "3", "--takeover", "1"]).well();
    assert_eq!(
        made,
        "3 of 3 hold what is committed, and 1 promises before one leads: configuration 3 of m1, m2, m3\n"
    );
    group.append(&records(10, 20));
    let made = group.group(&["quorums", "--majority"]).well();
    assert!(made.contains("configuration 4 of m1, m2, m3"), "{made}");
    // The last two can't spare each other.
    let primary = group.primary();
    for number in (1..=3).filter(|number| *number != primary) {
        group.kill(number);
    }
    group.wait(|group| {
        let out = group.group(&["status"]);
        (out.code == Some(5) && out.err.contains("2 of m1, m2, m3 have to run")).then_some(())
    });
}

#[test]
fn a_folder_or_a_file_that_does_not_fit_the_group_is_refused() {
    let group = Group::init_small();
    let node = |number: &str| Said::of(windlass(&["node", "--config", &group.config, "--member", number]));
    // Sizes of quorums that are half there, or miss each other.
    let original = std::fs::read_to_string(&group.config).unwrap();
    let with = |lines: &str| group.change_file(|_| format!("{lines}\n{original}"));
    with("write_quorum = 2");
    node("1").refused(64, "takeover_quorum is not: give both");
    group.group(&["status"]).refused(64, "takeover_quorum is not: give both");
    with("write_quorum = 1\ntakeover_quorum = 2");
    node("1")
        .refused(64, "make them 4 together at least, such as a write quorum of 1 and a takeover quorum of 3");
    with("level = \"fast\"");
    node("1").refused(64, "use \"durable\" or \"replicated\"");
    group.group(&["status"]).refused(64, "use \"durable\" or \"replicated\"");
    // Sizes that the group was not founded with.
    with("write_quorum = 3\ntakeover_quorum = 1");
    let mut first = group_node(&group, 1);
    wait_for(&group.root.join("m1.sock"));
    first.kill().unwrap();
    first.wait().unwrap();
    with("");
    node("1").refused(
        3,
        "has the members m1, m2, m3 (write quorum 3, takeover quorum 1) and the options say m1, m2, m3",
    );
    // One that was founded as if the group began with it, and is to join.
    group.change_file(|_| original.clone());
    group.announce(4);
    group.change_file(|text| text.replace("joins = true\n", ""));
    std::fs::remove_file(group.root.join("m1.sock")).unwrap();
    let mut founded = group_node(&group, 4);
    wait_for(&group.root.join("m4.sock"));
    founded.kill().unwrap();
    founded.wait().unwrap();
    group.change_file(|_| original.clone());
    group.announce(4);
    node("4").refused(3, "remove the folder, and start the member again");
}

/// A member's process, for a test that ends it by itself.
fn group_node(group: &Group, number: u8) -> Child {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["node", "--config", &group.config, "--member", &number.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(file: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} is not made", file.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}
