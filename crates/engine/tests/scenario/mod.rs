//! Runs a scenario file: what goes into one engine, line by line, and what must come out.
//!
//! ```text
//!  group m0 m1 m2 [replicated] [quorums W/T]   the voters; this member is the first (`unknown`: it knows of none)
//!  set notice_slots 2               a limit, or the size of segments, other than the default (before `open`)
//!  open tail 4096 [promised E] [history E@L,E@L] [mark L|unknown] [trimmed L] [lost] [c1:m0,m1+m2@5000-5100 …]
//!                                   the log's configurations, number, voters (`m1=101`: whose disk is named) and who learns, with the places of their records;
//!                                   `sole c1:…`: that one is known to be committed, and none before it is known
//!  include common/primary.txt       run that file's inputs, and do not show what comes out
//!  @ 12ms                           time passes, timeouts are handled as they come
//!  < flushed t3 4144                an input
//!  > send m1 fence e1.m0            a command; all of them, in order
//!  stands tail 5000 persisted 5000 replicated 4096 durable 4096 trimmed 4096
//!                                   where the engine says that it stands
//!  follows m1                       whom it says that it follows, or `nobody`
//! ```
//!
//! With `WINDLASS_BLESS=1` the `>` lines are written anew: look at the difference before committing it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use windlass_engine::{
    Command, Config, Configuration, DurableState, Engine, Identity, Limits, Opening, StallCause, Timing,
};
use windlass_log::{Geometry, Lsn, MemberId};

mod parse;
pub mod show;

use parse::Words;

const MS: u64 = 1_000_000;

struct Runner {
    engine: Option<Engine>,
    config: Config,
    now: u64,
    /// The newest token that came out: what answers a later one answers nothing, and a scenario that does has lost its way.
    token: u64,
}

/// Reads an input line as a scenario file's, and complains of what no such line has.
#[allow(dead_code, reason = "of traces of small worlds")]
pub fn reads(line: &str) {
    let founding = Configuration::unknown();
    let mut words = Words::new(line, "a trace", &founding);
    assert_eq!(words.next_if_any(), Some("<"), "{line}");
    words.input();
    words.end();
}

/// Runs `tests/scenarios/<name>.txt`.
pub fn scenario(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let actual = Runner::new().run(&text, &path, true);
    if actual == text {
        return;
    }
    if std::env::var_os("WINDLASS_BLESS").is_some() {
        std::fs::write(&path, actual).expect("the scenario file can be written");
        return;
    }
    for (number, (expected, found)) in text.lines().zip(actual.lines()).enumerate() {
        assert_eq!(expected, found, "{}:{}", path.display(), number + 1);
    }
    panic!("{}: {} lines, {} were expected", path.display(), actual.lines().count(), text.lines().count());
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

impl Runner {
    fn new() -> Runner {
        let timing = Timing::default();
        let limits =
            Limits { notice_slots: 4, batch_bytes: 64 << 10, retention_bytes: 64 << 10, ..Limits::default() };
        let config = Config {
            me: MemberId(0),
            identity: Identity { incarnation: 100, opening: 1, nonce: 1 },
            founding: Configuration::unknown(),
            geometry: Geometry::new(64 << 10).unwrap(),
            replicated_allowed: false,
            seed: 7,
            timing,
            limits,
        };
        Runner { engine: None, config, now: 0, token: 0 }
    }

    /// The text with the commands that really came out.
    fn run(&mut self, text: &str, path: &Path, shows: bool) -> String {
        let mut out = String::new();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('>') {
                continue;
            }
            writeln!(out, "{line}").unwrap();
            let place = format!("{}:{}: {line}", path.display(), number + 1);
            let commands = self.line(line, &place);
            if shows {
                for command in commands {
                    writeln!(out, "> {}", show::command(&command)).unwrap();
                }
            }
        }
        out
    }

    fn line(&mut self, line: &str, place: &str) -> Vec<Command> {
        let founding = self.config.founding.clone();
        let mut words = Words::new(line, place, &founding);
        match words.next_if_any() {
            None | Some("#") => return Vec::new(),
            Some("group") => {
                let voters = words.members();
                self.config.me = voters[0];
                let sizes = words.sizes_after("quorums").unwrap_or_default();
                let voters = if words.flag("unknown") { Vec::new() } else { voters };
                self.config.founding = Configuration::founding(voters).with_quorums(sizes).unwrap();
                self.config.replicated_allowed = words.flag("replicated");
            }
            Some("set") => self.set(&mut words),
            Some("open") => self.open(&mut words),
            Some("include") => {
                let path = folder().join(words.word());
                let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{place}: {error}"));
                self.run(&text, &path, false);
            }
            Some("@") => return self.pass(words.duration()),
            Some("<") => {
                let answered = line.split(' ').find_map(token);
                assert!(answered <= Some(self.token), "{place}: no command has that token yet");
                let input = words.input();
                let now = self.now;
                self.engine(place).handle_input(now, input);
            }
            Some("stalled") => {
                let stall = self.engine(place).poll_stall();
                let stall = stall.unwrap_or_else(|| panic!("{place}: no stall is over"));
                let cause = match stall.cause {
                    StallCause::Credits => "credits",
                    StallCause::Window => "window",
                };
                let found = format!("stalled m{} {cause} {}ms", stall.peer.0, stall.waited_ns / MS);
                assert_eq!(line, found, "{place}");
                return Vec::new();
            }
            Some("stands") => {
                let status = self.engine(place).status();
                let found = format!(
                    "stands tail {} persisted {} replicated {} durable {} trimmed {}",
                    status.tail, status.persisted.0, status.replicated, status.durable, status.trimmed
                );
                assert_eq!(line, found, "{place}");
                return Vec::new();
            }
            Some("follows") => {
                let primary = self.engine(place).status().primary;
                let found =
                    primary.map_or(String::from("follows nobody"), |primary| format!("follows {primary}"));
                assert_eq!(line, found, "{place}");
                return Vec::new();
            }
            Some(other) => panic!("{place}: unknown line {other}"),
        }
        words.end();
        self.drain()
    }

    fn engine(&mut self, place: &str) -> &mut Engine {
        self.engine.as_mut().unwrap_or_else(|| panic!("{place}: `open` comes first"))
    }

    fn set(&mut self, words: &mut Words<'_>) {
        let name = words.word().to_owned();
        let value = words.number();
        let limits = &mut self.config.limits;
        match name.as_str() {
            "segment_bytes" => self.config.geometry = Geometry::new(value).unwrap(),
            "notice_slots" => limits.notice_slots = u32::try_from(value).unwrap(),
            "batches_in_flight" => limits.batches_in_flight = u32::try_from(value).unwrap(),
            "stream_bytes" => limits.stream_bytes = value,
            "stream_batches_in_flight" => {
                limits.stream_batches_in_flight = u32::try_from(value).unwrap();
            }
            "batch_bytes" => limits.batch_bytes = value,
            "fetch_bytes" => limits.fetch_bytes = value,
            "retention_bytes" => limits.retention_bytes = value,
            "flush_lag_bytes" => limits.flush_lag_bytes = value,
            other => panic!("no limit is named {other}"),
        }
    }

    fn open(&mut self, words: &mut Words<'_>) {
        let mut state = DurableState::genesis(self.config.geometry);
        let valid_tail = words.lsn_after("tail").unwrap_or(Lsn(4096));
        state.history = words.history_after("history").unwrap_or_default();
        let newest = state.history.last().map(|last| last.epoch);
        state.promised = words.epoch_after("promised").or(newest).unwrap_or(state.promised);
        state.trimmed = words.lsn_after("trimmed").unwrap_or(state.trimmed);
        state.mark = words.persisted_after("mark").unwrap_or(state.mark);
        state.memory_lost = words.flag("lost");
        state.configurations = words.configurations();
        self.engine = Some(Engine::new(self.config.clone(), Opening { state, valid_tail }, self.now));
    }

    /// Lets time pass, handling each timeout when it is due.
    fn pass(&mut self, duration: u64) -> Vec<Command> {
        let until = self.now + duration;
        let (mut commands, mut rounds) = (Vec::new(), 0);
        while let Some(timeout) = self.engine.as_ref().and_then(Engine::poll_timeout) {
            if timeout > until {
                break;
            }
            self.now = self.now.max(timeout);
            let now = self.now;
            self.engine("").handle_timeout(now);
            commands.extend(self.drain());
            rounds += 1;
            assert!(rounds < 10_000, "at {now} ns a timeout is due however often it is handled");
        }
        self.now = until;
        commands
    }

    fn drain(&mut self) -> Vec<Command> {
        let Some(engine) = &mut self.engine else { return Vec::new() };
        let commands: Vec<Command> = std::iter::from_fn(|| engine.poll_command()).collect();
        let newest =
            commands.iter().filter_map(|command| token(show::command(command).split(' ').nth(1)?)).max();
        self.token = self.token.max(newest.unwrap_or(0));
        commands
    }
}

/// The number of a token such as `t7`.
fn token(word: &str) -> Option<u64> {
    word.strip_prefix('t')?.parse().ok()
}
