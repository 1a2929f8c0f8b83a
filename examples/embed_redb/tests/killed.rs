//! Kills the process again and again, at moments from a seeded schedule: while writers write, while a checkpoint is made, while the store opens.
//! What comes back is compared with a model.
//!
//! Each writer has keys of its own and carries out its operations in order, so what comes back of it must be what was acknowledged, followed
//! by some of what was not, in order and each one whole. Keys that all writers share are only ever written as a pair, with the same value.
//!
//! `EMBED_REDB_SEED` gives another schedule.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use embed_redb::{Options, Store};

/// Kills, at least.
const ROUNDS: u64 = 32;
/// Kills, at most: by then the schedule must have met each kind of moment often enough.
const ROUNDS_MAX: u64 = 10 * ROUNDS;
/// Kills while the store opens, and kills with a checkpoint on its way, that the schedule must have met.
const IN_RECOVERY: u64 = 3;
const IN_CHECKPOINT: u64 = 2;
const WRITERS: usize = 3;
const KEYS: u64 = 24;
/// Operations that a writer is sent ahead of its acknowledgements.
const AHEAD: usize = 6;
/// Nothing that is asked for takes longer, on a slow and busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

type Pairs = BTreeMap<String, String>;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The process, its input and its answers.
struct Server {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Server {
    fn start(folder: &Path, checkpoint_bytes: u64) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_embed_redb"))
            .arg(folder)
            .args(["--segment-bytes", "65536", "--checkpoint-bytes", &checkpoint_bytes.to_string()])
            .args(["serve", "--writers", &WRITERS.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            // A line that the kill cut short is no answer.
            let mut output = output;
            let mut line = String::new();
            while output.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
                if sender.send(line.trim_end().to_string()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Server { child, input, answers }
    }

    /// The next answer; `None` if the process is gone.
    fn answer(&self) -> Option<String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no answer within {PATIENCE:?}"),
        }
    }

    /// Waits until the store is open; how many operations were replayed.
    fn ready(&self) -> u64 {
        let line = self.answer().expect("the store must open; standard error says why it did not");
        line.strip_prefix("ready ").unwrap_or_else(|| panic!("{line}")).parse().unwrap()
    }

    /// SIGKILL, and all answers that came before it.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        drop(self.input);
        self.answers.iter().collect()
    }
}

/// What one writer was told to do.
#[derive(Default)]
struct Writer {
    /// Its own pairs, as everything acknowledged leaves them.
    pairs: Pairs,
    /// Sent and not acknowledged, in order: number, and the pairs to set (`-`: to delete).
    pending: VecDeque<(u64, Vec<(String, String)>)>,
    /// The last value that it gave the shared keys and that is known to be in.
    shared: Option<String>,
    sent: u64,
}

impl Writer {
    fn apply(&mut self, op: &[(String, String)]) {
        for (key, value) in op {
            if key.starts_with("shared/") {
                self.shared = Some(value.clone());
            } else if value == "-" {
                self.pairs.remove(key);
            } else {
                self.pairs.insert(key.clone(), value.clone());
            }
        }
    }

    fn acknowledge(&mut self, number: u64) {
        let (expected, op) = self.pending.pop_front().expect("an acknowledgement of nothing");
        assert_eq!(number, expected, "acknowledged out of order");
        self.apply(&op);
    }
}

#[derive(Default)]
struct Model {
    writers: Vec<Writer>,
    acknowledged: u64,
    unknown_in: u64,
    unknown_out: u64,
}

impl Model {
    /// The next line for a writer.
    fn send(&mut self, writer: usize, random: &mut Random, input: &mut ChildStdin) {
        let this = &mut self.writers[writer];
        this.sent += 1;
        let number = this.sent;
        let value = format!("{writer}.{number}.{}", "x".repeat(usize::try_from(random.below(900)).unwrap()));
        let key = |n: u64| format!("own{writer}/{n}");
        let op = match random.below(10) {
            0..5 => vec![(key(random.below(KEYS)), value)],
            5..7 => vec![(key(random.below(KEYS)), "-".into())],
            7..9 => {
                let first = random.below(KEYS);
                let set = (0..3).map(|n| (key((first + n) % KEYS), value.clone()));
                set.chain([(key((first + 3) % KEYS), "-".into())]).collect()
            }
            _ => vec![
                ("shared/a".into(), value.clone()),
                (format!("own{writer}/shared"), value.clone()),
                ("shared/b".into(), value),
            ],
        };
        let words = match op.as_slice() {
            [(key, value)] if value == "-" => format!("delete {key}"),
            [(key, value)] => format!("put {key} {value}"),
            several => {
                several.iter().fold("batch".into(), |line, (key, value)| format!("{line} {key} {value}"))
            }
        };
        writeln!(input, "{writer} {number} {words}").unwrap();
        this.pending.push_back((number, op));
    }

    /// A line that changes nothing.
    fn ask(&mut self, writer: usize, what: &str, input: &mut ChildStdin) {
        let this = &mut self.writers[writer];
        this.sent += 1;
        writeln!(input, "{writer} {} {what}", this.sent).unwrap();
        this.pending.push_back((this.sent, Vec::new()));
    }

    /// Whether a line is not answered yet.
    fn awaits(&self, writer: usize, asked: u64) -> bool {
        self.writers[writer].pending.iter().any(|(number, _)| *number == asked)
    }

    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let ["ok", writer, number] = words.as_slice() else { panic!("the store answered: {line}") };
        self.writers[writer.parse::<usize>().unwrap()].acknowledge(number.parse().unwrap());
        self.acknowledged += 1;
    }

    /// Compares what the store holds with what it may hold, and takes it for true from here on.
    fn settle(&mut self, found: &Pairs) {
        for (number, writer) in self.writers.iter_mut().enumerate() {
            let prefix = format!("own{number}/");
            let own: Pairs = found
                .iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let acknowledged = writer.pairs.clone();
            let pending = std::mem::take(&mut writer.pending);
            let mut rest = pending.iter();
            while writer.pairs != own {
                let Some((_, op)) = rest.next() else {
                    panic!(
                        "writer {number}: nothing that may have happened explains what is there.\nfound {own:#?}\n\
                         acknowledged {acknowledged:#?}\nunknown {pending:#?}"
                    );
                };
                writer.apply(op);
                self.unknown_in += 1;
            }
            self.unknown_out += rest.filter(|(_, op)| !op.is_empty()).count() as u64;
        }
        let (a, b) = (found.get("shared/a"), found.get("shared/b"));
        assert_eq!(a, b, "half a batch");
        let last = self.writers.iter().filter_map(|writer| writer.shared.as_ref());
        assert!(
            a.map_or(last.clone().count() == 0, |a| last.clone().any(|value| value == a)),
            "{a:?} is nobody's last value"
        );
    }
}

/// Asks the process for everything and settles the model.
fn check(server: &mut Server, model: &mut Model) {
    let before: usize = model.writers.iter().map(|writer| writer.pending.len()).sum();
    writeln!(server.input, "0 0 list").unwrap();
    let mut found = Pairs::new();
    loop {
        let line = server.answer().expect("the process ended by itself");
        if line == "ok 0 0" {
            break;
        }
        let pair = line.strip_prefix("pair ").and_then(|pair| pair.split_once(' '));
        let (key, value) = pair.unwrap_or_else(|| panic!("{line}"));
        found.insert(key.into(), value.into());
    }
    model.settle(&found);
    assert!(before <= WRITERS * (AHEAD + 1), "more unknown than was ever sent ahead");
}

/// Keeps the writers busy until `until`.
fn feed(server: &mut Server, model: &mut Model, random: &mut Random, until: Instant) {
    while Instant::now() < until {
        for writer in 0..WRITERS {
            while model.writers[writer].pending.len() < AHEAD {
                model.send(writer, random, &mut server.input);
            }
        }
        match server.answers.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => model.hear(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the process ended by itself"),
        }
    }
}

/// A time below `end`.
fn below(end: Duration, random: &mut Random) -> Duration {
    Duration::from_micros(random.below(u64::try_from(end.as_micros()).unwrap().max(1)))
}

#[test]
fn killed_at_any_moment_nothing_acknowledged_is_lost() {
    let seed = std::env::var("EMBED_REDB_SEED").map_or(20_261_129, |seed| seed.parse().unwrap());
    // Shown when the test fails.
    println!("EMBED_REDB_SEED={seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut model = Model { writers: (0..WRITERS).map(|_| Writer::default()).collect(), ..Model::default() };
    // How long each takes here, from what was last seen: kills are spread over that.
    let mut opening = Duration::from_millis(30);
    let mut checkpoint = Duration::from_millis(10);
    let (mut replayed, mut in_recovery, mut in_checkpoint, mut rounds) = (0, 0, 0, 0);
    while rounds < ROUNDS || in_recovery < IN_RECOVERY || in_checkpoint < IN_CHECKPOINT {
        rounds += 1;
        assert!(
            rounds <= ROUNDS_MAX,
            "after {ROUNDS_MAX} kills only {in_recovery} met an opening and {in_checkpoint} a checkpoint"
        );
        let mut server = Server::start(folder.path(), 32_768 << random.below(6));
        let kind = random.below(10);
        if kind < 3 {
            // While it opens: anywhere from the first instruction to a little behind the end.
            std::thread::sleep(below(opening * 5 / 4, &mut random));
            in_recovery += u64::from(server.kill().is_empty());
            continue;
        }
        let begun = Instant::now();
        replayed += server.ready();
        opening = begun.elapsed().min(Duration::from_secs(1));
        check(&mut server, &mut model);
        let until = Instant::now() + Duration::from_millis(20 + random.below(500));
        feed(&mut server, &mut model, &mut random, until);
        if kind < 6 {
            let writer = usize::try_from(random.below(WRITERS as u64)).unwrap();
            model.ask(writer, "checkpoint", &mut server.input);
            let asked = model.writers[writer].sent;
            let begun = Instant::now();
            let until = begun + below(checkpoint * 5 / 4, &mut random);
            while Instant::now() < until && model.awaits(writer, asked) {
                feed(&mut server, &mut model, &mut random, Instant::now() + Duration::from_millis(1));
            }
            let ended_before = !model.awaits(writer, asked);
            if ended_before {
                checkpoint = begun.elapsed().max(Duration::from_micros(200));
            } else {
                // It takes longer than was thought.
                checkpoint = (checkpoint * 5 / 4).min(Duration::from_secs(1));
            }
            server.kill().iter().for_each(|line| model.hear(line));
            in_checkpoint += u64::from(model.awaits(writer, asked));
        } else {
            server.kill().iter().for_each(|line| model.hear(line));
        }
    }
    let mut server = Server::start(folder.path(), 1 << 20);
    replayed += server.ready();
    check(&mut server, &mut model);
    drop(server.input);
    assert_eq!(server.answers.recv_timeout(PATIENCE).as_deref(), Ok("closed"));
    assert!(server.child.wait().unwrap().success());

    // What a person sees with the library agrees, and a clean end leaves nothing to replay.
    let log = windlass::Options::new();
    let store = Store::open(folder.path(), Options { log, ..Options::default() }).unwrap();
    assert_eq!(store.stats().replayed, 0);
    let mut found = Pairs::new();
    store
        .scan(|key, value| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.insert(text(key), text(value));
            true
        })
        .unwrap();
    model.settle(&found);

    let Model { acknowledged, unknown_in, unknown_out, .. } = model;
    println!(
        "{rounds} kills, {in_recovery} of them while opening and {in_checkpoint} with a checkpoint on its way; {acknowledged} operations \
         acknowledged; of those that were not, {unknown_in} are in and {unknown_out} are not; {replayed} replayed"
    );
    // The schedule did what it is for.
    assert!(acknowledged > 500 && replayed > 100, "{acknowledged} acknowledged, {replayed} replayed");
    assert!(unknown_in + unknown_out > 0, "no kill met an operation on its way");
}
