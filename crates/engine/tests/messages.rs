//! Messages as bytes: what goes comes back, and nothing else is taken.
#![allow(missing_docs, reason = "a test")]

use proptest::prelude::*;
use windlass_engine::{
    Change, Config, Configuration, ConfigurationRecord, LsnRange, MESSAGE_BYTES_MAX, Mark, Message,
    MessageError, Persisted, Session, Summary, Witness,
};
use windlass_log::{Epoch, EpochHistory, HISTORY_ENTRIES_MAX, Lsn, MemberId};

fn epoch() -> impl Strategy<Value = Epoch> {
    (0..1_u64 << 40).prop_map(Epoch::from_bits)
}

fn lsn() -> impl Strategy<Value = Lsn> {
    (0..1_u64 << 50).prop_map(Lsn)
}

fn session() -> impl Strategy<Value = Session> {
    (epoch(), any::<u32>()).prop_map(|(epoch, attempt)| Session { epoch, attempt })
}

fn mark() -> impl Strategy<Value = Mark> {
    (epoch(), lsn()).prop_map(|(epoch, lsn)| Mark { epoch, lsn })
}

fn history() -> impl Strategy<Value = EpochHistory> {
    prop::collection::vec((1..9_u64, 1..9_u64), 0..20).prop_map(|steps| {
        let mut history = EpochHistory::new();
        let (mut epoch, mut start) = (0, 0);
        for (more, further) in steps {
            (epoch, start) = (epoch + more, start + further);
            history.extend(Epoch::from_bits(epoch), Lsn(start)).expect("ascending");
        }
        history
    })
}

fn configurations() -> impl Strategy<Value = Vec<ConfigurationRecord>> {
    let address =
        || prop::option::of(any::<(u32, u16)>().prop_map(|(ip, port)| (ip.to_be_bytes(), port).into()));
    let one = (any::<u32>(), any::<u16>(), 1..15_u8, address(), any::<u64>()).prop_map(
        |(start, bytes, voters, address, disk)| {
            let founding = Configuration::founding((0..voters).map(MemberId));
            let learner = founding.after(&Change::Add { member: MemberId(voters + 1), address }).unwrap();
            let configuration = if disk % 2 == 0 { learner } else { learner.promoted(disk).unwrap() };
            let start = Lsn(u64::from(start));
            ConfigurationRecord { start, end: Lsn(start.0 + u64::from(bytes)), configuration }
        },
    );
    prop::collection::vec(one, 0..3)
}

fn summary() -> impl Strategy<Value = Summary> {
    let witness = (any::<u8>(), mark()).prop_map(|(member, mark)| Witness { member: MemberId(member), mark });
    let witnessed = prop::collection::vec(witness, 0..Config::VOTERS_MAX);
    (epoch(), lsn(), lsn(), mark(), any::<bool>(), mark(), witnessed, history(), configurations()).prop_map(
        |(
            last_epoch,
            valid_tail,
            trimmed,
            mark,
            memory_lost,
            durable,
            witnessed,
            history,
            configurations,
        )| Summary {
            last_epoch,
            valid_tail,
            trimmed,
            mark,
            memory_lost,
            durable,
            witnessed,
            history,
            configurations,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let pre_vote_reply = (epoch(), any::<bool>(), epoch())
        .prop_map(|(epoch, granted, promised)| Message::PreVoteReply { epoch, granted, promised });
    let adopt = (session(), history(), lsn(), lsn(), lsn(), configurations()).prop_map(
        |(session, history, tail, trimmed, durable, configurations)| Message::Adopt {
            session,
            history,
            tail,
            trimmed,
            durable,
            configurations,
        },
    );
    let adopted = (session(), lsn(), lsn()).prop_map(|(session, valid_tail, persisted)| Message::Adopted {
        session,
        valid_tail,
        persisted: Persisted(persisted),
    });
    let alive =
        (epoch(), any::<u64>(), any::<u64>(), lsn()).prop_map(|(epoch, sequence, pending_ns, drained)| {
            Message::Alive { epoch, sequence, pending_ns, drained }
        });
    let fetch = (session(), any::<u32>(), any::<u32>()).prop_map(|(session, start, bytes)| {
        let start = u64::from(start);
        let range = LsnRange::new(Lsn(start), Lsn(start + u64::from(bytes)));
        Message::FetchRequest { session, range }
    });
    prop_oneof![
        (epoch(), any::<u64>()).prop_map(|(epoch, configuration)| Message::PreVote { epoch, configuration }),
        pre_vote_reply,
        (epoch(), any::<u64>()).prop_map(|(epoch, configuration)| Message::Fence { epoch, configuration }),
        any::<u64>().prop_map(|configuration| Message::NotAMember { configuration }),
        (epoch(), summary()).prop_map(|(epoch, summary)| Message::Promise { epoch, summary }),
        (epoch(), epoch()).prop_map(|(epoch, promised)| Message::Rejected { epoch, promised }),
        (epoch(), any::<u64>()).prop_map(|(epoch, progress)| Message::Working { epoch, progress }),
        epoch().prop_map(|epoch| Message::Campaign { epoch }),
        adopt,
        adopted,
        (session(), lsn()).prop_map(|(session, valid_tail)| Message::SnapshotNeeded { session, valid_tail }),
        (epoch(), lsn()).prop_map(|(epoch, from)| Message::Keep { epoch, from }),
        session().prop_map(|session| Message::Resync { session }),
        alive,
        (epoch(), any::<u64>()).prop_map(|(epoch, sequence)| Message::AliveReply { epoch, sequence }),
        fetch,
    ]
}

proptest! {
    #[test]
    fn messages_come_back_as_they_went(message in message()) {
        let bytes = message.encode();
        prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
    }

    #[test]
    fn a_cut_or_lengthened_message_is_refused(message in message(), at in any::<prop::sample::Index>()) {
        let mut bytes = message.encode();
        let cut = at.index(bytes.len());
        prop_assert!(Message::decode(&bytes[..cut]).is_err());
        bytes.push(0);
        prop_assert_eq!(Message::decode(&bytes), Err(MessageError::TrailingBytes { extra: 1 }));
    }

    #[test]
    fn kind_9_any_bytes_are_taken_without_a_panic(kind in 0..20_u8, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&bytes);
        let headed: Vec<u8> = [2, 0, kind, 0].into_iter().chain(bytes).collect();
        let _ = Message::decode(&headed);
    }
}

#[test]
fn kind_9_a_count_that_lies_allocates_nothing() {
    let mut bytes = Message::Adopt {
        session: Session { epoch: Epoch::NONE, attempt: 1 },
        history: EpochHistory::new(),
        tail: Lsn(0),
        trimmed: Lsn(0),
        durable: Lsn(0),
        configurations: Vec::new(),
    }
    .encode();
    bytes[16..20].copy_from_slice(&2000_u32.to_le_bytes());
    assert_eq!(Message::decode(&bytes), Err(MessageError::Truncated { length: bytes.len() }));
    bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let max = HISTORY_ENTRIES_MAX;
    assert_eq!(Message::decode(&bytes), Err(MessageError::ListTooLong { found: u32::MAX, max }));
}

#[test]
fn the_longest_message_fits_and_kind_80_other_versions_are_refused() {
    let mut history = EpochHistory::new();
    for n in 1..=HISTORY_ENTRIES_MAX as u64 {
        history.extend(Epoch::from_bits(n), Lsn(n)).unwrap();
    }
    let mark = Mark { epoch: Epoch::NONE, lsn: Lsn(0) };
    let full = Configuration::founding((0..15).map(MemberId));
    let replace = Change::Replace { old: MemberId(1), new: MemberId(99), address: None };
    let record =
        ConfigurationRecord { start: Lsn(1), end: Lsn(2), configuration: full.after(&replace).unwrap() };
    let summary = Summary {
        last_epoch: Epoch::NONE,
        valid_tail: Lsn(0),
        trimmed: Lsn(0),
        mark,
        memory_lost: true,
        durable: mark,
        witnessed: vec![Witness { member: MemberId(1), mark }; 2 * Configuration::MEMBERS_MAX],
        history,
        configurations: vec![record.clone(), record],
    };
    let message = Message::Promise { epoch: Epoch::NONE, summary };
    let mut bytes = message.encode();
    assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(Message::decode(&bytes), Ok(message));
    bytes[0] = 1;
    assert_eq!(Message::decode(&bytes), Err(MessageError::Version { found: 1 }));
}
