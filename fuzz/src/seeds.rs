//! Seeds: small inputs that lead each target to where its work is. They are committed, and a test holds that they are what this
//! module makes: a format that changes changes them.

use windlass::control::{Frame, Member, Purpose};
use windlass_engine::{
    Acknowledgement, Change, Configuration, ConfigurationRecord, Heartbeat, LsnRange, Mark, Message, Notice,
    Persisted, Session, Summary, Witness,
};
use windlass_fabric::{RemoteKey, RemoteRange};
use windlass_log::{Epoch, EpochHistory, Lag, Lsn, MemberId, RecordHeader, RecordKind, Salt};

use windlass_tcp::frame::{Answer, AnswerHeader, Refusal, RequestHeader, RequestKind};

use crate::record::LOG_ID;
use crate::superblock::example;

/// Every seed: its path below the fuzz folder, and its bytes.
#[must_use]
pub fn all() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (target, seeds) in [
        ("record_parser", records()),
        ("segment_scan", scans()),
        ("superblock", superblocks()),
        ("folder", folders()),
        ("control_messages", messages()),
        ("tcp_frames", frames()),
        ("engine_peers", peers()),
        ("engine_world", worlds()),
    ] {
        all.extend(seeds.into_iter().map(|(name, bytes)| (format!("seeds/{target}/{name}"), bytes)));
    }
    all
}

type Seeds = Vec<(String, Vec<u8>)>;

fn records() -> Seeds {
    let epoch = Epoch::new(2, MemberId(1));
    let salt = Salt::new(LOG_ID);
    let mut payload = Vec::new();
    for (number, item) in [&b"first"[..], b"", b"a third item of more than eight bytes"].iter().enumerate() {
        payload.extend(u32::try_from(item.len()).expect("short").to_le_bytes());
        payload.extend(u32::try_from(number).expect("few").to_le_bytes());
        payload.extend(*item);
        payload.resize(payload.len().next_multiple_of(8), 0);
    }
    let mut seeds = Vec::new();
    for number in 1..=u8::MAX {
        let Some(kind) = RecordKind::from_number(number) else { continue };
        let lsn = Lsn(4096 + 8 * u64::from(number));
        let header = RecordHeader {
            lsn,
            epoch,
            kind,
            lag: Lag(u16::from(number)),
            payload_bytes: u32::try_from(payload.len()).expect("short"),
            payload_checksum: salt.payload_checksum(lsn, &payload),
        };
        let mut seed = Vec::new();
        seed.extend(lsn.0.to_le_bytes());
        seed.extend(epoch.to_bits().to_le_bytes());
        seed.extend(4096_u32.to_le_bytes());
        seed.extend(header.encode(&salt.key(epoch)));
        seed.extend(&payload);
        seeds.push((format!("kind-{number}"), seed));
    }
    seeds
}

/// Appends (what, length, fill), marks, damage: see the target.
fn scans() -> Seeds {
    let appends = |appends: &[(u8, u16, u8)]| {
        let mut bytes = vec![0, u8::try_from(appends.len()).expect("few")];
        for (what, length, fill) in appends {
            bytes.push(*what);
            bytes.extend(length.to_le_bytes());
            bytes.push(*fill);
        }
        bytes
    };
    let few = [(0, 256, 1), (4, 100, 2), (5, 64, 0), (0, 0, 3), (6, 0, 0), (1, 599, 4)];
    let long = [(8, 40_000, 1), (8, 50_000, 2), (0, 8, 3), (8, 30_000, 4)];
    let epochs = [(0, 256, 1), (7, 0, 0), (0, 256, 2), (7, 0, 0), (8, 60_000, 3), (7, 0, 0), (0, 3, 4)];
    let mut seeds = Seeds::new();
    for (name, log) in [("few", &few[..]), ("long", &long[..]), ("epochs", &epochs[..])] {
        let whole = appends(log);
        seeds.push((format!("{name}-whole"), [&whole[..], &[0, 0, 0]].concat()));
        seeds.push((format!("{name}-flushed-damaged"), [&whole[..], &[2, 3, 1, 0, 17, 0, 0, 1]].concat()));
        seeds.push((
            format!("{name}-torn"),
            [&whole[..], &[1, 1, 2, 44, 18, 0, 0, 1, 0, 20, 0, 0, 64]].concat(),
        ));
    }
    seeds.push(("bytes".into(), [&[u8::MAX][..], &[1, 1, 0, 0, 0, 0, 0, 0], &[0; 6], &[7; 64]].concat()));
    seeds
}

fn superblocks() -> Seeds {
    let copy = |generation| example(generation).encode().expect("no configuration");
    // Cut behind the fields: the target fills up to a page.
    let first = copy(1)[..200].to_vec();
    let second = copy(2)[..200].to_vec();
    let pair = |first: &[u8], second: &[u8]| {
        let split = u16::try_from(first.len()).expect("short").to_le_bytes();
        [&split[..], first, second].concat()
    };
    vec![
        ("both".into(), pair(&first, &second)),
        ("first".into(), pair(&first, &[])),
        ("blank".into(), pair(&[0; 64], &first)),
        ("whole".into(), pair(&copy(3), &[])),
    ]
}

/// Ways through worlds of each kind; see the target.
fn worlds() -> Seeds {
    let kinds = [0, 1, 2, 4, 0b1_1100, 0b1_1110, 0b1_1101, 0b10_0000, 0b100_0000, 0b111_1111];
    let way = |kind: u8| {
        let mut state = u64::from(kind);
        let mut steps: Vec<u8> = (0..600)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        steps.insert(0, kind);
        (format!("kind-{kind}"), steps)
    };
    kinds.map(way).into()
}

/// Deeds (what, number, byte), how to open, damages (what, which, where, byte): see the target.
fn folders() -> Seeds {
    const APPEND: u8 = 0;
    const APPEND_LONG: u8 = 3;
    const FLUSH: u8 = 4;
    const TRIM: u8 = 5;
    const STOP: u8 = 6;
    const CLOSE: u8 = 7;
    const KILL: u8 = 8;
    const POWER: u8 = 9;
    const CUT: u8 = 10;
    const OPEN_CUT_SHORT: u8 = 11;
    let seed = |name: &str, deeds: &[(u8, u16, u8)], end: &[u8]| {
        let mut bytes = vec![u8::try_from(deeds.len()).expect("few")];
        for (what, number, byte) in deeds {
            bytes.push(*what);
            bytes.extend(number.to_le_bytes());
            bytes.push(*byte);
        }
        bytes.extend(end);
        (name.to_string(), bytes)
    };
    vec![
        seed(
            "cut",
            &[(APPEND, 256, 1), (FLUSH, 0, 0), (APPEND, 9, 2), (CUT, 1, 0), (APPEND, 300, 3), (POWER, 3, 2)],
            &[0, 0],
        ),
        seed(
            "cut-in-the-middle",
            &[(APPEND, 256, 1), (APPEND, 9, 2), (FLUSH, 0, 0), (STOP, 0, 3), (CUT, 0, 2), (APPEND, 300, 3)],
            &[0, 0],
        ),
        seed(
            "open-cut-short",
            &[(APPEND, 256, 1), (FLUSH, 0, 0), (APPEND, 9, 2), (OPEN_CUT_SHORT, 9, 11), (APPEND, 300, 3)],
            &[2, 0],
        ),
        seed("kill", &[(APPEND, 256, 1), (APPEND, 0, 2), (KILL, 0, 0), (APPEND, 9, 3)], &[0, 0]),
        seed("power", &[(APPEND, 256, 1), (FLUSH, 0, 0), (APPEND, 700, 2), (POWER, 3, 2)], &[0, 0]),
        seed("close", &[(APPEND, 256, 1), (CLOSE, 0, 0), (APPEND, 256, 2), (CLOSE, 0, 0)], &[1, 0]),
        seed(
            "rollover",
            &[
                (APPEND_LONG, 60_000, 1),
                (APPEND_LONG, 60_000, 2),
                (FLUSH, 0, 0),
                (TRIM, 1, 0),
                (APPEND_LONG, 60_000, 3),
            ],
            &[2, 0],
        ),
        seed(
            "stopped",
            &[(APPEND, 99, 1), (STOP, 7, 3), (FLUSH, 0, 0), (APPEND_LONG, 65_000, 2), (CLOSE, 5, 2)],
            &[0, 0],
        ),
        seed("damaged", &[(APPEND, 256, 1), (FLUSH, 0, 0), (APPEND, 256, 2)], &[0, 1, 0, 0, 40, 0, 1]),
        seed("cut-short", &[(APPEND, 256, 1), (CLOSE, 0, 0)], &[3, 2, 4, 0, 0, 32, 0, 5, 1, 0, 0, 0]),
    ]
}

fn messages() -> Seeds {
    let epoch = Epoch::new(5, MemberId(2));
    let session = Session { epoch, attempt: 3 };
    let mut history = EpochHistory::new();
    history.extend(Epoch::new(1, MemberId(0)), Lsn(4096)).expect("the first");
    history.extend(epoch, Lsn(8192)).expect("a later one");
    let mark = Mark { epoch, lsn: Lsn(9000) };
    let founding = Configuration::founding([0, 1, 2].map(MemberId));
    let add = Change::Add { member: MemberId(3), address: None };
    let next = founding.after(&add).expect("a new number");
    let next = ConfigurationRecord { start: Lsn(8500), end: Lsn(8700), configuration: next };
    let configurations = vec![ConfigurationRecord::founding(founding), next];
    let summary = Summary {
        last_epoch: epoch,
        valid_tail: Lsn(9000),
        trimmed: Lsn(4096),
        mark,
        memory_lost: false,
        durable: mark,
        witnessed: vec![Witness { member: MemberId(1), mark }],
        history: history.clone(),
        configurations: configurations.clone(),
    };
    let tail = Lsn(9000);
    let messages = [
        ("pre-vote", Message::PreVote { epoch, configuration: 1 }),
        ("pre-vote-reply", Message::PreVoteReply { epoch, granted: true, promised: epoch }),
        ("fence", Message::Fence { epoch, configuration: 1 }),
        ("not-a-member", Message::NotAMember { configuration: 1 }),
        ("promise", Message::Promise { epoch, summary }),
        ("rejected", Message::Rejected { epoch, promised: epoch }),
        ("working", Message::Working { epoch, progress: 4 }),
        ("campaign", Message::Campaign { epoch }),
        (
            "adopt",
            Message::Adopt { session, history, tail, trimmed: Lsn(4096), durable: Lsn(8192), configurations },
        ),
        ("adopted", Message::Adopted { session, valid_tail: tail, persisted: Persisted(Lsn(8192)) }),
        ("snapshot-needed", Message::SnapshotNeeded { session, valid_tail: tail }),
        ("keep", Message::Keep { epoch, from: tail }),
        ("resync", Message::Resync { session }),
        ("alive", Message::Alive { epoch, sequence: 1, pending_ns: 0, drained: tail }),
        ("alive-reply", Message::AliveReply { epoch, sequence: 1 }),
        ("fetch-request", Message::FetchRequest { session, range: LsnRange { start: Lsn(4096), end: tail } }),
    ];
    let mut seeds: Seeds =
        messages.iter().map(|(name, message)| ((*name).to_string(), message.encode())).collect();
    let slots = RemoteRange { address: 1 << 32, bytes: 4096, key: RemoteKey(77) };
    let purpose = Purpose::Replicate;
    let members = [(1, "127.0.0.1:7001"), (9, "[fe80::1]:7002")]
        .map(|(id, address)| Member { id: MemberId(id), address: address.parse().expect("an address") })
        .to_vec();
    let frames = [
        ("ping", Frame::Ping),
        ("engine", Frame::Engine(Box::new(Message::Fence { epoch, configuration: 0 }))),
        ("offer", Frame::Offer { session, purpose, endpoint: vec![1, 2, 3] }),
        ("accept", Frame::Accept { session, purpose: Purpose::Fetch, endpoint: vec![4] }),
        (
            "keys",
            Frame::Keys { session, purpose, slots, up_to: tail, segments: vec![(0, slots), (1, slots)] },
        ),
        ("acknowledge-key", Frame::AcknowledgeKey { session, slot: slots }),
        ("broken", Frame::Broken { session, purpose, by_initiator: true }),
        ("members", Frame::Members { configuration: 7, members }),
    ];
    seeds.extend(frames.iter().map(|(name, frame)| (format!("frame-{name}"), frame.encode()[4..].to_vec())));
    let notice = Notice { session, sequence: 1, tail, replicated: tail, durable: tail, wanted: tail };
    seeds.push(("slot-notice".into(), notice.encode().to_vec()));
    let heartbeat = Heartbeat {
        session,
        sequence: 1,
        drained: tail,
        tail,
        replicated: tail,
        durable: tail,
        trimmed: Lsn(4096),
        pending_ns: 5,
    };
    seeds.push(("slot-heartbeat".into(), heartbeat.encode().to_vec()));
    let acknowledgement = Acknowledgement {
        session,
        sequence: 1,
        consumed: 1,
        valid_tail: tail,
        persisted: Persisted(tail),
        heartbeat: 1,
    };
    seeds.push(("slot-acknowledgement".into(), acknowledgement.encode().to_vec()));
    seeds
}

fn frames() -> Seeds {
    let kinds = [
        RequestKind::Write,
        RequestKind::WriteImmediate,
        RequestKind::Read,
        RequestKind::Send,
        RequestKind::SendImmediate,
        RequestKind::Barrier,
    ];
    let mut requests = vec![5];
    for (sequence, kind) in (1..).zip(kinds) {
        let placed = matches!(kind, RequestKind::Write | RequestKind::WriteImmediate | RequestKind::Read);
        let immediate = matches!(kind, RequestKind::WriteImmediate | RequestKind::SendImmediate);
        let header = RequestHeader {
            kind,
            acknowledge: true,
            bytes: if kind == RequestKind::Barrier { 0 } else { 11 },
            address: if placed { 4096 } else { 0 },
            key: if placed { 7 } else { 0 },
            immediate: if immediate { 9 } else { 0 },
            sequence,
        };
        requests.extend(header.encode());
        requests.resize(requests.len() + usize::try_from(header.payload_bytes()).expect("short"), 0xA5);
    }
    let mut answers = vec![3];
    let data = Answer::Data { bytes: 5, last: true };
    for (sequence, answer) in (1..).zip([Answer::Done, data, Answer::Refused(Refusal::Access)]) {
        answers.extend(AnswerHeader { answer, sequence }.encode());
        answers.resize(answers.len() + if answer == data { 5 } else { 0 }, 0xA5);
    }
    vec![("requests".into(), requests), ("answers".into(), answers)]
}

/// Group size, then events (what, who, choice, number): see the target.
fn peers() -> Seeds {
    const SERIAL: [u8; 5] = [0, 0, 0, 0, 0];
    const FREE: [u8; 5] = [3, 0, 0, 0, 0];
    let events = |size: u8, events: &[[u8; 5]]| [&[size][..], &events.concat()].concat();
    let up = |who| [8, who, 0, 0, 0];
    let message = |kind: u8, who, choice, number| [11 | kind << 4, who, choice, number, 0];
    let suspect = [7, 0, 7, 0, 0];
    let append = [7, 0, 0, 64, 0];
    let wait = [6, 0, 0, 200, 0];
    // Suspects, fences, is promised by both peers (a new group begins with all), leads; one adopts, grants, and is written to.
    let lead = [
        up(0),
        up(1),
        suspect,
        SERIAL,
        SERIAL,
        SERIAL,
        SERIAL,
        message(3, 0, 65, 0),
        message(3, 1, 65, 0),
        SERIAL,
        SERIAL,
        SERIAL,
        SERIAL,
        append,
        append,
        message(10, 0, 0, 4),
        FREE,
        FREE,
        FREE,
        FREE,
        FREE,
        [10, 0, 0, 1, 0],
        FREE,
        wait,
        append,
        FREE,
        FREE,
        FREE,
    ];
    // Is fenced, adopts a primary, is written to.
    let follow = [
        up(0),
        message(2, 0, 1, 0),
        SERIAL,
        SERIAL,
        SERIAL,
        message(8, 0, 1, 0),
        SERIAL,
        SERIAL,
        FREE,
        FREE,
        [26, 0, 0, 5, 0],
        FREE,
        FREE,
        FREE,
        [42, 0, 0, 5, 0],
        FREE,
        FREE,
    ];
    // One member alone, and time.
    let alone = [suspect, SERIAL, SERIAL, SERIAL, SERIAL, append, FREE, FREE, wait, append, FREE];
    vec![
        ("lead".into(), events(0, &lead)),
        ("follow".into(), events(0, &follow)),
        ("alone".into(), events(3, &alone)),
        ("quiet".into(), events(1, &[wait, wait, wait, wait, SERIAL, SERIAL, wait])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_seeds_committed_are_the_seeds_made() {
        for (path, bytes) in all() {
            let found = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path));
            assert!(
                found.is_ok_and(|found| found == bytes),
                "{path} differs: run `cargo run --manifest-path fuzz/Cargo.toml --bin seeds` and look at what changed"
            );
        }
    }

    #[test]
    fn every_target_takes_its_seeds_and_has_some() {
        for (target, function) in crate::TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
            let mut seeds = 0;
            for entry in std::fs::read_dir(&folder).unwrap() {
                function(&std::fs::read(entry.unwrap().path()).unwrap());
                seeds += 1;
            }
            assert!(seeds > 0, "{} is empty", folder.display());
        }
    }

    #[test]
    fn every_target_takes_the_corpus_and_what_it_once_failed_on() {
        for (target, function) in crate::TARGETS {
            for kind in ["corpus", "regressions"] {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target);
                for entry in std::fs::read_dir(&folder).into_iter().flatten() {
                    function(&std::fs::read(entry.unwrap().path()).unwrap());
                }
            }
        }
    }

    #[test]
    fn every_target_is_replayed_here() {
        let mut files: Vec<String> =
            std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().replace(".rs", ""))
                .collect();
        let mut names: Vec<String> = crate::TARGETS.iter().map(|(name, _)| (*name).to_string()).collect();
        files.sort_unstable();
        names.sort_unstable();
        assert_eq!(files, names);
    }

    #[test]
    fn every_target_takes_nothing_and_noise() {
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..5000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        for (_, function) in crate::TARGETS {
            for length in [0, 1, 7, 8, 31, 64, 100, 4096, 5000] {
                function(&noise[..length]);
            }
        }
    }
}
