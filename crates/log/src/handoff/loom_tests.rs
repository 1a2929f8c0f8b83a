//! The hand-off under the model checker: the production append and drain functions, over the modelled memory.
//!
//! Every interleaving with up to three preemptions, every value that a load may return. A copy that meets a write that it is not ordered
//! against fails the test, so each of them also shows that the publish word alone orders the payload. Segments have 256 bytes here.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::vec::Vec;

use loom::thread;

use super::*;
use crate::lsn::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, SEGMENT_START_BYTES};
use crate::{Epoch, LogId, MemberId};

const S: u64 = SEGMENT_BYTES_MIN;
const FIRST: Lsn = Lsn(SEGMENT_HEADER_BYTES + SEGMENT_START_BYTES);

/// A hand-off whose tail is `tail` in segment 0, with this many segments installed.
fn open(tail: Lsn, segments: u64) -> (Arc<Handoff>, Drain, Vec<Memory>) {
    let geometry = Geometry::new(S).unwrap();
    let log_id = LogId([7; 16]);
    let epoch = Epoch::new(1, MemberId(0));
    let chain = Chain::begin(&Salt::new(log_id).key(epoch), tail);
    let (handoff, drain) =
        Handoff::new(Tenure { geometry, log_id, epoch, tail, chain, persisted: tail, slots: 2 });
    let memories: Vec<_> = (0..segments).map(|_| Memory::heap(S)).collect();
    for (segment, memory) in (0..).zip(&memories) {
        handoff.install(segment, memory.clone()).unwrap();
    }
    handoff.set_limit(Lsn(u64::MAX));
    (handoff, drain, memories)
}

/// Checks `test` in every order of its steps with up to three preemptions, at least `runs_min` of them: the checker explores an
/// order only where it sees two accesses meet, and sees less where a thread's own access hides another's. So each test lets
/// the others go first ([`others_first`]) and says how much there is to see.
fn model(runs_min: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        test();
    });
    let runs = runs.load(Ordering::Relaxed);
    std::println!("{runs} runs");
    assert!(runs >= runs_min, "the checker explored only {runs} orders");
}

fn others_first() {
    thread::yield_now();
}

/// The one-byte payload of the record at `start`, which the drain has passed.
fn payload(handoff: &Handoff, memories: &[Memory], start: Lsn) -> u8 {
    let geometry = handoff.geometry();
    let memory = &memories[usize::try_from(geometry.segment_of(start)).unwrap()];
    let mut byte = [0];
    memory.copy_out(geometry.offset_of(start) + HEADER_BYTES, &mut byte);
    byte[0]
}

fn append(handoff: &Handoff, byte: u8) -> Appended {
    handoff.append(RecordKind::Data, &[byte]).unwrap()
}

#[test]
fn what_the_drain_passes_is_whole_and_nobody_waits_for_ever() {
    model(100, || {
        let (handoff, mut drain, memories) = open(FIRST, 1);
        let producers: Vec<_> = [1, 2]
            .map(|byte| {
                let handoff = Arc::clone(&handoff);
                thread::spawn(move || append(&handoff, byte).start)
            })
            .into_iter()
            .collect();
        // Meanwhile: whatever is passed can be read.
        others_first();
        let drained = drain.poll(10).unwrap();
        let mut at = drained.from;
        while at < drained.to {
            assert_ne!(payload(&handoff, &memories, at), 0);
            at = Lsn(at.0 + 40);
        }
        let starts: Vec<_> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
        assert_ne!(starts[0], starts[1], "no two claims overlap");
        let rest = drain.poll(10).unwrap();
        assert_eq!((rest.to, rest.state), (Lsn(FIRST.0 + 80), DrainState::Idle));
        assert_eq!(payload(&handoff, &memories, starts[0]), 1);
        assert_eq!(payload(&handoff, &memories, starts[1]), 2);
    });
}

#[test]
fn r10_sealed_and_drained_means_nothing_is_in_flight() {
    model(15, || {
        let (handoff, mut drain, memories) = open(FIRST, 1);
        let producer = {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || handoff.append(RecordKind::Data, &[1]))
        };
        others_first();
        let tail = handoff.seal();
        let state = drain.poll(10).unwrap().state;
        if handoff.is_quiet() {
            // The memory may be taken back: writing it meets no access of the producer.
            assert_eq!(state, DrainState::Closed { tail });
            memories[0].copy_in(FIRST.0 + HEADER_BYTES, &[9]);
        } else {
            assert_eq!(state, DrainState::Waiting { lsn: FIRST });
        }
        match producer.join().unwrap() {
            Ok(at) => assert_eq!(at.end, tail),
            Err(error) => assert_eq!(error, ReserveError::Sealed { tail: FIRST }),
        }
        assert_eq!(handoff.tail(), tail);
        assert_eq!(drain.poll(10).unwrap().state, DrainState::Closed { tail });
    });
}

/// Two producers append `bytes` bytes each at `tail`; the drain runs beside them. Where they went, in order of LSN, and the end.
fn two_cross(tail: Lsn, bytes: usize) -> ([Lsn; 2], Lsn) {
    let (handoff, mut drain, memories) = open(tail, 2);
    let producers = [1, 2].map(|byte| {
        let handoff = Arc::clone(&handoff);
        thread::spawn(move || handoff.append(RecordKind::Data, &std::vec![byte; bytes]).unwrap().start)
    });
    others_first();
    drain.poll(10).unwrap();
    let mut starts = producers.map(|producer| producer.join().unwrap());
    let drained = drain.poll(10).unwrap();
    assert_eq!(drained.state, DrainState::Idle);
    assert_eq!(payload(&handoff, &memories, starts[0]), 1);
    assert_eq!(payload(&handoff, &memories, starts[1]), 2);
    starts.sort_unstable();
    (starts, drained.to)
}

#[test]
fn crossing_a_segment_end_is_one_step_for_everybody() {
    model(100, || {
        // 64 bytes left in segment 0: one record of 40 fits, and the 24 behind it are too few for a header: skipped by rule.
        let (starts, end) = two_cross(Lsn(S - 64), 1);
        assert_eq!(starts, [Lsn(S - 64), Lsn(S + FIRST.0)]);
        assert_eq!(end, Lsn(S + FIRST.0 + 40));
    });
}

#[test]
fn a_pad_is_published_with_the_record_that_crosses() {
    model(100, || {
        // 80 bytes left: one record of 48 fits, the second leaves a pad of 32.
        let (starts, end) = two_cross(Lsn(S - 80), 16);
        assert_eq!(starts, [Lsn(S - 80), Lsn(S + FIRST.0)]);
        assert_eq!(end, Lsn(S + FIRST.0 + 48));
    });
}

#[test]
fn r9_a_dropped_reservation_is_a_pad_and_holds_nobody_up() {
    model(100, || {
        let (handoff, mut drain, _memories) = open(FIRST, 1);
        let [dropper, producer] = [true, false].map(|drops| {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || {
                if drops {
                    drop(handoff.reserve(8).unwrap());
                } else {
                    append(&handoff, 2);
                }
            })
        });
        others_first();
        drain.poll(10).unwrap();
        dropper.join().unwrap();
        producer.join().unwrap();
        assert_eq!(drain.poll(10).unwrap().state, DrainState::Idle);
    });
}

#[test]
fn a_segment_is_seen_whole_once_it_is_ready() {
    model(5, || {
        let (handoff, mut drain, _memories) = open(Lsn(S - 32), 1);
        let installer = {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || handoff.install(1, Memory::heap(S)).unwrap())
        };
        others_first();
        let appended = handoff.append(RecordKind::Data, &[1; 8]);
        if let Err(error) = appended {
            assert!(matches!(error, ReserveError::NotReady { .. }));
        }
        installer.join().unwrap();
        let drained = drain.poll(10).unwrap();
        assert_eq!(drained.state, DrainState::Idle);
        assert_eq!(drained.to > Lsn(S), appended.is_ok());
    });
}

#[test]
fn r2_a_slot_is_taken_over_only_when_nobody_can_read_it() {
    model(100, || {
        // The ring has two slots: segment 2 needs the one of segment 0.
        let (handoff, mut drain, _memories) = open(Lsn(S - 40), 2);
        let producer = {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || {
                append(&handoff, 1);
                append(&handoff, 2);
            })
        };
        let drainer = thread::spawn(move || {
            drain.poll(10).unwrap();
            drain
        });
        others_first();
        let early = handoff.install(2, Memory::heap(S));
        producer.join().unwrap();
        let mut drain = drainer.join().unwrap();
        assert_eq!(drain.poll(10).unwrap().state, DrainState::Idle);
        if early.is_err() {
            handoff.install(2, Memory::heap(S)).unwrap();
        }
        assert_eq!(handoff.ready(), Lsn(3 * S));
    });
}

#[test]
fn whoever_reads_the_drained_lsn_may_read_below_it() {
    model(100, || {
        let (handoff, mut drain, memories) = open(FIRST, 1);
        let producer = {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || append(&handoff, 1))
        };
        let drainer = thread::spawn(move || drain.poll(10).unwrap());
        others_first();
        if handoff.drained() > FIRST {
            assert_eq!(payload(&handoff, &memories, FIRST), 1);
        }
        producer.join().unwrap();
        drainer.join().unwrap();
    });
}

#[test]
fn the_tail_word_alone_shows_the_drain_the_segment_behind_it() {
    model(50, || {
        // The tail stands at the first record of segment 1, which is not installed yet.
        let (handoff, mut drain, _memories) = open(Lsn(S + SEGMENT_HEADER_BYTES), 0);
        let installer = {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || handoff.install(1, Memory::heap(S)).unwrap())
        };
        let producer = {
            let handoff = Arc::clone(&handoff);
            thread::spawn(move || handoff.append(RecordKind::Data, &[1]).is_ok())
        };
        others_first();
        // The drain writes the segment-start record as soon as the tail has moved, without having seen a publish word.
        drain.poll(1).unwrap();
        installer.join().unwrap();
        let appended = producer.join().unwrap();
        let drained = drain.poll(10).unwrap();
        assert_eq!(drained.state, DrainState::Idle);
        assert_eq!(drained.to > Lsn(S + SEGMENT_HEADER_BYTES), appended);
    });
}
