//! What the machine does to `windlass`: nobody reads what it says, the system has no descriptor or no thread left, clients come in crowds, and
//! another program has appended what no client of `windlass node` could.

mod support;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use support::Group;
use windlass::control::{Member, Secret};
use windlass::{Level, LogId, MemberId, Node, NodeOptions};

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

/// Connects so many clients that prove nothing, and stay.
fn crowd(socket: &Path, count: usize) -> Vec<UnixStream> {
    // Who is not taken yet waits in the system's queue, which has an end.
    std::iter::repeat_with(|| UnixStream::connect(socket)).take(count).map_while(Result::ok).collect()
}

fn limited(group: &Group, number: usize, descriptors: u64) -> Command {
    let mut command = Command::new("sh");
    let node = group.node(number);
    command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]);
    command.arg(node.get_program()).args(node.get_args());
    command
}

/// Descriptors are for the log first: whoever opens connections and leaves them open takes a part of them, and keeps out neither clients nor peers.
#[test]
fn clients_that_stay_take_no_descriptor_that_the_log_needs_and_keep_nobody_out_kind_36() {
    let mut group = Group::init_small();
    for number in 1..=3 {
        let mut command = limited(&group, number, 64);
        group.start_as(number, &mut command);
    }
    let primary = group.primary();
    let socket = group.root.join(format!("m{primary}.sock"));
    let crowd: Vec<UnixStream> = crowd(&socket, 300);
    assert!(crowd.len() > 64, "{}", crowd.len());
    let began = Instant::now();
    // Several segments, each of which takes descriptors.
    group.append(&b"x".repeat(999).into_iter().chain([b'\n']).cycle().take(400_000).collect::<Vec<u8>>());
    // A crowd that lacked descriptors would be met with a pause for each of it.
    assert!(began.elapsed() < Duration::from_secs(10), "{}", group.said(primary));
    group.wait_even();
    assert_eq!(group.primary(), primary, "it leads on: {}", group.said(primary));
    let lines = group.said(primary).lines().filter(|line| line.contains("a client was")).count();
    assert!(lines < 10, "{lines} lines: {}", group.said(primary));
    drop(crowd);
}

/// A thread that the system does not give costs the client it was for, and nobody who comes later.
#[test]
fn a_member_that_gets_no_thread_for_a_client_goes_on_taking_clients_kind_36() {
    let group = Group::init_small().start_all();
    let primary = group.primary();
    let process = group.process(primary);
    // Stacks need address space: with some left for what the member does besides, and none for a crowd.
    let _before = limit_address_space(process, address_space_bytes(process) + (48 << 20));
    let socket = group.root.join(format!("m{primary}.sock"));
    let held = crowd(&socket, 200);
    group.wait(|group| group.said(primary).contains("a client was not taken").then_some(()));
    assert!(group.said(primary).contains("raise the limit of threads"), "{}", group.said(primary));
    drop(held);
    group.append(b"behind\n");
    assert!(!group.said(primary).contains("panicked"), "{}", group.said(primary));
}

/// A command that gets a thread more with each step: the address space has room for so many stacks.
fn with_few_threads(command: &Command, step: u64) -> Command {
    const STACK: u64 = 256 << 20;
    let mut few = Command::new("sh");
    few.args(["-c", &format!("ulimit -v {} && exec \"$0\" \"$@\"", ((512 << 20) + step * STACK) >> 10)]);
    few.arg(command.get_program()).args(command.get_args());
    few.env("RUST_MIN_STACK", STACK.to_string()).env("MALLOC_ARENA_MAX", "1");
    few
}

/// A member either runs with all of its threads or says which limit keeps it from that: it never is ready, and ends.
#[test]
fn a_member_that_lacks_any_of_its_threads_is_not_opened_and_names_the_limit_kind_36() {
    let mut group = Group::init_small();
    for step in 0..64 {
        let before = group.said(1).len();
        let said = |group: &Group| group.said(1).split_off(before);
        let mut command = with_few_threads(&group.node(1), step);
        group.start_as(1, &mut command);
        group.wait(|group| {
            [" is ready: ", "windlass: "].iter().any(|word| said(group).contains(word)).then_some(())
        });
        if said(&group).contains(" is ready: ") {
            std::thread::sleep(Duration::from_millis(500));
            group.signal(1, Signal::TERM);
            assert_eq!(group.ended(1), Some(0), "step {step}: {}", said(&group));
            assert!(step > 4, "it has threads enough at once: this shows nothing");
            return;
        }
        assert_eq!(group.ended(1), Some(5), "step {step}: {}", said(&group));
        let said = said(&group);
        assert!(
            said.contains("raise the limit of threads") && !said.contains("panicked"),
            "step {step}: {said}"
        );
    }
    panic!("it never has threads enough: {}", group.said(1));
}

/// The same of a log.
#[test]
fn a_log_that_lacks_any_of_its_threads_names_the_limit_kind_36() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let input = folder.path().join("input");
    std::fs::write(&input, "one\ntwo\n").unwrap();
    let (log, input) = (log.to_str().unwrap(), input.to_str().unwrap());
    let made = support::windlass(&["log", "create", log, "--segment-bytes", "65536", "--any-filesystem"]);
    assert!(made.status.success(), "{made:?}");
    for step in 0..64 {
        let mut append = Command::new(env!("CARGO_BIN_EXE_windlass"));
        append.args(["log", "append", log, "--any-filesystem", "--file", input]);
        let ended = with_few_threads(&append, step).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        if ended.status.success() {
            assert!(step > 0, "it has threads enough at once: this shows nothing");
            return;
        }
        assert!(
            ended.status.code() == Some(5) && said.contains("raise the limit of threads"),
            "step {step}: {ended:?}"
        );
    }
    panic!("it never has threads enough");
}

fn limit_address_space(process: Pid, bytes: u64) -> Rlimit {
    prlimit(Some(process), Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) }).unwrap()
}

fn address_space_bytes(process: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

/// A program that embeds a member appends longer records than a frame of `windlass node` holds.
#[test]
fn a_record_that_no_client_can_be_sent_is_named_and_the_member_goes_on() {
    let mut group = Group::init();
    group.change_file(|text| {
        let first: Vec<&str> = text.split("\n[[members]]").take(2).collect();
        first.join("\n[[members]]").replace("# segment_bytes = 67108864", "segment_bytes = 8388608")
    });
    let file: toml::Table = std::fs::read_to_string(&group.config).unwrap().parse().unwrap();
    let word = |key: &str| file[key].as_str().unwrap();
    let log_id = LogId(u128::from_str_radix(word("log_id"), 16).unwrap().to_be_bytes());
    let address = file["members"][0]["control"].as_str().unwrap().parse().unwrap();
    let members = vec![Member { id: MemberId(1), address }];
    let options =
        NodeOptions::new(MemberId(1), members, log_id, Secret::new(word("secret").as_bytes()).unwrap())
            .segment_bytes(8 << 20)
            .any_filesystem(true);
    let node = Node::open_or_create(&group.root.join("m1"), options).unwrap();
    let until = Instant::now() + support::PATIENCE;
    let log = node.wait_primary(until).unwrap();
    log.append_wait_blocking(b"short", until).unwrap();
    let long = log.append_wait_blocking(&vec![7; 2 << 20], until).unwrap();
    let _committed = log.commit_blocking(long.end, Level::Durable).unwrap();
    drop(log);
    node.close().unwrap();

    group.start(1);
    group.primary();
    let read = group.output(&["read"]);
    assert_eq!((read.status.code(), &read.stdout[..]), (Some(3), &b"short\n"[..]), "{read:?}");
    let said = String::from_utf8_lossy(&read.stderr);
    let words = format!("the record at LSN {} has 2097152 bytes", long.start);
    assert!(said.contains(&words) && said.contains("windlass log read"), "{said}");
    group.append(b"behind\n");
    assert!(!group.said(1).contains("panicked"), "{}", group.said(1));
}

/// A group's file may name anything as the place of a socket: what is there is somebody's, unless it is a socket that nobody serves.
#[test]
fn a_member_takes_no_files_place_with_its_socket_and_no_other_members() {
    let mut group = Group::init_small();
    let (root, precious) = (group.root.display().to_string(), group.root.join("precious.txt"));
    let of = |number: usize| format!("client = \"{root}/m{number}.sock\"");
    std::fs::write(&precious, "precious").unwrap();
    let refused = |group: &mut Group, number: usize, code: i32, words: &str| {
        group.start(number);
        assert_eq!(group.ended(number), Some(code), "{}", group.said(number));
        assert!(group.said(number).contains(words), "{words}: {}", group.said(number));
    };

    for (place, kept) in [("precious.txt", &precious), ("m1/superblock", &group.root.join("m1/superblock"))] {
        group.change_file(|text| text.replace(&of(1), &format!("client = \"{root}/{place}\"")));
        refused(&mut group, 1, 64, "is no socket, and is left as it is: give m1 another `client`");
        assert!(kept.metadata().unwrap().len() > 0);
        group.change_file(|text| text.replace(&format!("client = \"{root}/{place}\""), &of(1)));
    }

    group = group.start_all();
    group.append(b"before\n");
    group.kill(3);
    let own = std::fs::read_to_string(&group.config).unwrap();
    group.change_file(|text| text.replace(&of(3), &of(2)));
    refused(&mut group, 3, 4, "another process serves clients at");
    std::fs::write(&group.config, own).unwrap();
    assert_eq!(group.status()[1]["answers"], true, "{:?}", group.status());
    // Its own, from before it was killed, is no obstacle.
    group.start(3);
    group.wait_even();
}
