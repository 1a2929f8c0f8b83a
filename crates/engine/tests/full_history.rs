//! Histories of as many epochs as a superblock holds: a group goes on once its application has released something.

use windlass_engine::{
    Command, Config, Configuration, ConfigurationRecord, DurableState, Engine, Event, Identity, Input,
    Limits, Message, Opening, Persisted, Role, Session, Summary, Timing, Undecided,
};
use windlass_log::{Epoch, EpochHistory, Geometry, HISTORY_ENTRIES_MAX, Lsn, MemberId, SEGMENT_BYTES_MIN};

const MS: u64 = 1_000_000;
/// What each epoch owns.
const EPOCH_BYTES: u64 = 32;
const MOST: u64 = HISTORY_ENTRIES_MAX as u64;

fn config(voters: &[u8]) -> Config {
    Config {
        me: MemberId(0),
        identity: Identity { incarnation: 1, opening: 1, nonce: 1 },
        founding: Configuration::founding(voters.iter().map(|id| MemberId(*id))),
        geometry: Geometry::new(SEGMENT_BYTES_MIN).unwrap(),
        replicated_allowed: false,
        seed: 1,
        timing: Timing::default(),
        limits: Limits::default(),
    }
}

/// Where the epoch of this number begins.
fn start(number: u64) -> Lsn {
    Lsn(4096 + (number - 1) * EPOCH_BYTES)
}

fn history(numbers: std::ops::RangeInclusive<u64>) -> EpochHistory {
    let mut history = EpochHistory::new();
    for number in numbers {
        history.extend(Epoch::new(number, MemberId(0)), start(number)).unwrap();
    }
    history
}

/// A member whose log has these epochs, whole and flushed.
fn opened(voters: &[u8], epochs: u64) -> Engine {
    let mut state = DurableState::genesis(config(voters).geometry);
    state.promised = Epoch::new(epochs, MemberId(0));
    state.history = history(1..=epochs);
    let valid_tail = start(epochs + 1);
    state.mark = Persisted(valid_tail);
    Engine::new(config(voters), Opening { state, valid_tail }, 0)
}

/// What came out.
#[derive(Default)]
struct Seen {
    is_tenure_started: bool,
    trimmed: Option<Lsn>,
    is_history_full: bool,
    fenced: Option<Epoch>,
}

/// Passes this time, and answers everything at once as a store without faults does.
fn run(engine: &mut Engine, now: &mut u64, ms: u64) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..ms {
        *now += MS;
        engine.handle_timeout(*now);
        while let Some(command) = engine.poll_command() {
            let tail = engine.status().tail;
            match command {
                Command::Save { token, .. } | Command::Cut { token, .. } => {
                    engine.handle_input(*now, Input::Saved { token });
                }
                Command::Revoke { token } => {
                    engine.handle_input(*now, Input::Revoked { token, valid_tail: tail });
                }
                Command::Flush { token, to } => {
                    engine.handle_input(*now, Input::Flushed { token, persisted: Persisted(to) });
                }
                Command::StartTenure { .. } => seen.is_tenure_started = true,
                Command::Trim { state } => seen.trimmed = Some(state.trimmed),
                Command::Event(Event::Undecided { reason: Undecided::HistoryFull, .. }) => {
                    seen.is_history_full = true;
                }
                Command::Send { message, .. } => {
                    if let Message::PreVote { epoch, .. } = *message {
                        let reply = Message::PreVoteReply { epoch, granted: true, promised: Epoch::NONE };
                        for peer in [1, 2].map(MemberId) {
                            let message = Box::new(reply.clone());
                            engine.handle_input(*now, Input::Message { peer, message });
                        }
                    } else if let Message::Fence { epoch, .. } = *message {
                        seen.fenced = Some(epoch);
                    }
                }
                // Nobody takes batches here, and nothing else is waited for.
                Command::Reset { .. }
                | Command::Seal { .. }
                | Command::StepDown { .. }
                | Command::Connect { .. }
                | Command::Disconnect { .. }
                | Command::Replicate { .. }
                | Command::Beat { .. }
                | Command::AppendConfiguration(_)
                | Command::Committed(_)
                | Command::Grant { .. }
                | Command::Ungrant { .. }
                | Command::Parse { .. }
                | Command::Acknowledge { .. }
                | Command::Learned { .. }
                | Command::Fetch { .. }
                | Command::GrantRead { .. }
                | Command::Members(_)
                | Command::Event(_) => {}
            }
        }
        if seen.is_tenure_started || seen.fenced.is_some() {
            break;
        }
    }
    seen
}

fn meet(engine: &mut Engine, now: u64) {
    for member in [1, 2] {
        let identity = Identity { incarnation: 7, opening: 1, nonce: 1 };
        engine.handle_input(now, Input::PeerUp { peer: MemberId(member), identity });
    }
}

/// A member whose log ends at `valid_tail` in the same epochs, and which knows nothing of what is committed.
fn promise(engine: &mut Engine, now: u64, peer: u8, epoch: Epoch, epochs: u64, durable: Lsn) {
    let history = history(1..=epochs);
    let mark = |lsn: Lsn| windlass_engine::Mark {
        epoch: history.epoch_at(Lsn(lsn.0 - 1)).unwrap_or(Epoch::NONE),
        lsn,
    };
    let valid_tail = start(epochs + 1);
    let summary = Summary {
        last_epoch: Epoch::new(epochs, MemberId(0)),
        valid_tail,
        trimmed: Lsn(4096),
        mark: mark(valid_tail),
        memory_lost: false,
        durable: mark(durable),
        witnessed: Vec::new(),
        configurations: vec![ConfigurationRecord::founding(config(&[0, 1, 2]).founding)],
        history: history.clone(),
    };
    let message = Box::new(Message::Promise { epoch, summary });
    engine.handle_input(now, Input::Message { peer: MemberId(peer), message });
}

#[test]
fn a_group_whose_history_is_full_is_led_again_once_its_application_has_released_something() {
    let (mut engine, mut now) = (opened(&[0], MOST), 0);
    let before = run(&mut engine, &mut now, 2000);
    assert!(before.is_history_full && !before.is_tenure_started && before.trimmed.is_none());
    let tail = engine.status().tail;
    engine.handle_input(now, Input::Trim { to: tail });
    engine.handle_input(now, Input::Suspect);
    let after = run(&mut engine, &mut now, 5000);
    assert_eq!(after.trimmed, Some(tail), "all of it is on the one voter's medium");
    assert!(after.is_tenure_started);
}

/// After a restart of all members nobody has heard what is committed: it is what one of them was told, or what all of them have.
#[test]
fn a_candidate_with_a_full_history_releases_what_those_who_promise_know_to_be_committed() {
    // What member 1 knows to be committed, how far member 2 has it if it answers, and what goes.
    for (known, third, released) in [
        (start(1), None, None),
        (start(900), None, Some(start(900))),
        (start(1), Some(MOST), Some(start(2000))),
        (start(1), Some(700), Some(start(701))),
        (start(900), Some(700), Some(start(900))),
    ] {
        let (mut engine, mut now) = (opened(&[0, 1, 2], MOST), 0);
        meet(&mut engine, now);
        engine.handle_input(now, Input::Trim { to: start(2000) });
        let epoch = run(&mut engine, &mut now, 3000).fenced.unwrap();
        if let Some(epochs) = third {
            promise(&mut engine, now, 2, epoch, epochs, start(1));
        }
        promise(&mut engine, now, 1, epoch, MOST, known);
        let last = run(&mut engine, &mut now, 20);
        assert_eq!(
            last.is_history_full,
            third.is_some() || released.is_none(),
            "{known} {third:?}: it waits for more"
        );
        let is_led = last.is_tenure_started;
        assert_eq!((last.trimmed, is_led), (released, released.is_some()), "{known} {third:?}");
    }
}

#[test]
fn a_backup_whose_epochs_and_its_primarys_are_too_many_goes_on_from_a_checkpoint() {
    // Its log begins before the primary's trim point, and ends in epoch 3.
    let (mut engine, mut now) = (opened(&[0, 1, 2], 3), 0);
    meet(&mut engine, now);
    run(&mut engine, &mut now, 1);
    let epoch = Epoch::new(3000, MemberId(1));
    let mut theirs = history(3..=MOST + 1);
    let end = start(MOST + 2);
    theirs.extend(epoch, end).unwrap();
    let trimmed = Lsn(start(3).0 + 8);
    let message = Message::Adopt {
        session: Session { epoch, attempt: 1 },
        history: theirs,
        tail: Lsn(end.0 + EPOCH_BYTES),
        trimmed,
        durable: trimmed,
        configurations: vec![ConfigurationRecord::founding(config(&[0, 1, 2]).founding)],
    };
    engine.handle_input(now, Input::Message { peer: MemberId(1), message: Box::new(message) });
    run(&mut engine, &mut now, 10);
    assert_eq!(engine.status().role, Role::Backup, "{:?}", engine.status().stopped);
    assert_eq!(engine.snapshot_need().map(|need| need.from), Some(trimmed));
}
