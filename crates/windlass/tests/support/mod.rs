//! Groups of nodes in one process, over the `tcp` provider on loopback, in temporary folders.
#![allow(dead_code, reason = "each test binary uses its part")]

mod addresses;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use windlass::control::{Member, Secret};
use windlass::{
    Level, Log, LogId, Lsn, MemberId, Node, NodeError, NodeEvent, NodeEvents, NodeOptions, ReadError,
};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Group {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) members: Vec<Member>,
    /// Those that the group did not begin with; their nodes follow those of the others.
    pub(crate) joined: Vec<Member>,
    pub(crate) nodes: Vec<Option<Node>>,
    change: Box<dyn Fn(NodeOptions) -> NodeOptions>,
}

/// Members at addresses that are theirs alone.
pub(crate) fn members(count: u8) -> Vec<Member> {
    (1..=count).map(|id| Member { id: MemberId(id), address: addresses::unused() }).collect()
}

pub(crate) fn secret() -> Secret {
    Secret::new(*b"a secret for the tests").unwrap()
}

pub(crate) fn logger() -> slog::Logger {
    if std::env::var_os("WINDLASS_TEST_LOG").is_none() {
        return slog::Logger::root(slog::Discard, slog::o!());
    }
    slog::Logger::root(Stderr(Instant::now()).ignore_res(), slog::o!())
}

use slog::Drain as _;

struct Stderr(Instant);

impl slog::Drain for Stderr {
    type Ok = ();
    type Err = std::io::Error;

    fn log(&self, record: &slog::Record<'_>, values: &slog::OwnedKVList) -> Result<(), std::io::Error> {
        struct Text(String);
        impl slog::Serializer for Text {
            fn emit_arguments(&mut self, key: slog::Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
                use std::fmt::Write as _;
                let _ = write!(self.0, " {key}={value}");
                Ok(())
            }
        }
        let mut text = Text(String::new());
        let _ = slog::KV::serialize(values, record, &mut text);
        let _ = slog::KV::serialize(&record.kv(), record, &mut text);
        eprintln!("{:>8.3} {}{}", self.0.elapsed().as_secs_f64(), record.msg(), text.0);
        Ok(())
    }
}

impl Group {
    pub(crate) fn start(count: u8) -> Group {
        Group::start_with(count, |options| options)
    }

    pub(crate) fn start_with(count: u8, change: impl Fn(NodeOptions) -> NodeOptions + 'static) -> Group {
        let mut group = Group::prepare(count, change);
        for at in 0..group.members.len() {
            group.open(at);
        }
        group
    }

    /// A group of which no member runs yet.
    pub(crate) fn prepare(count: u8, change: impl Fn(NodeOptions) -> NodeOptions + 'static) -> Group {
        let folder = tempfile::tempdir().unwrap();
        let members = members(count);
        let nodes = members.iter().map(|_| None).collect();
        Group { folder, members, joined: Vec::new(), nodes, change: Box::new(change) }
    }

    pub(crate) fn folder_of(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("member-{at}"))
    }

    pub(crate) fn id(&self, at: usize) -> MemberId {
        self.members.iter().chain(&self.joined).nth(at).expect("there is such a member").id
    }

    /// One more member, which is to join: where it stands among the nodes.
    pub(crate) fn announce(&mut self) -> usize {
        let address = members(1)[0].address;
        let id = MemberId(u8::try_from(self.nodes.len() + 1).unwrap());
        self.joined.push(Member { id, address });
        self.nodes.push(None);
        self.nodes.len() - 1
    }

    pub(crate) fn options(&self, at: usize) -> NodeOptions {
        let options = NodeOptions::new(self.id(at), self.members.clone(), LogId([9; 16]), secret())
            .joined(self.joined.clone())
            .segment_bytes(1 << 20)
            .backup_retention_bytes(8 << 20)
            .any_filesystem(true)
            .allow_replicated(true)
            .logger(logger());
        (self.change)(options)
    }

    pub(crate) fn try_open(&self, at: usize) -> Result<Node, NodeError> {
        Node::open_or_create(&self.folder_of(at), self.options(at))
    }

    pub(crate) fn open(&mut self, at: usize) {
        self.nodes[at] = Some(self.try_open(at).unwrap());
    }

    /// Ends a member like a crash of its process.
    pub(crate) fn kill(&mut self, at: usize) {
        drop(self.nodes[at].take());
    }

    pub(crate) fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().expect("the member runs")
    }

    /// The member that is primary now, waiting for there to be one among those that run.
    pub(crate) fn primary(&self) -> (usize, Log) {
        self.primary_by(Instant::now() + PATIENCE)
    }

    pub(crate) fn primary_by(&self, deadline: Instant) -> (usize, Log) {
        loop {
            for (at, node) in self.nodes.iter().enumerate() {
                if let Some(Ok(log)) = node.as_ref().map(Node::log) {
                    return (at, log);
                }
            }
            assert!(Instant::now() < deadline, "no primary: {:#?}", self.statuses());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn statuses(&self) -> Vec<Option<windlass::engine::Status>> {
        self.nodes.iter().map(|node| node.as_ref().map(Node::status)).collect()
    }

    /// Waits until every running member's durable mark has reached `end`.
    pub(crate) fn wait_durable(&self, end: Lsn) {
        let deadline = Instant::now() + PATIENCE;
        for node in self.nodes.iter().flatten() {
            while node.status().durable < end {
                assert!(Instant::now() < deadline, "durable stays below {end}: {:#?}", self.statuses());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Waits for an event that is wanted: what is made of it. Any other may come before it, as a peer that connects only now does. `None`: nothing wanted came in time, or the node
/// has ended.
pub(crate) fn wait_event<T>(
    events: &mut NodeEvents,
    wanted: impl FnMut(NodeEvent) -> Option<T>,
) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    std::iter::from_fn(|| events.next_blocking(Some(deadline))).find_map(wanted)
}

/// Everything that a member's reader yields below its durable mark.
pub(crate) fn read_all(node: &Node) -> Vec<Vec<u8>> {
    let mut reader = node.read_from(node.info().status.trimmed).unwrap();
    let mut all = Vec::new();
    loop {
        match reader.next() {
            Ok(record) => all.push(record.payload.to_vec()),
            Err(ReadError::AtEnd { .. }) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Appends these and commits each; the end of the last one.
pub(crate) fn append_all(log: &Log, payloads: impl Iterator<Item = Vec<u8>>, level: Level) -> Lsn {
    let mut end = Lsn(0);
    for payload in payloads {
        end = log.append_wait_blocking(&payload, Instant::now() + PATIENCE).unwrap().end;
    }
    let _committed = log.commit_until(end, level, Instant::now() + PATIENCE).unwrap();
    end
}
