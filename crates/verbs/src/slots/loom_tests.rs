//! The slots under the model checker. A slot's words are tracked cells there: an access that no other word orders against the last one
//! fails the test. The device orders nothing: it may complete a request as soon as its slot counts.

use std::sync::Arc;

use loom::thread;
use windlass_fabric::model::check;

use super::*;
use crate::sync::SlotU64;

/// Posts one request, if there is room.
fn post(slots: &Slots, id: u64) -> bool {
    let has_room = slots.sends.free() > 0;
    if has_room {
        let sequence = slots.sends.next();
        slots.sends.fill(sequence, id, Opcode::Write);
        slots.sends.expect(sequence);
        slots.sends.publish(sequence + 1);
    }
    has_room
}

#[test]
fn what_completes_has_its_own_id_and_gives_back_a_slot_that_nobody_reads() {
    check(10, || {
        let slots = Arc::new(Slots::new(1, 1, 1));
        let device = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let mut ids = Vec::new();
                for sequence in [0, 0, 1] {
                    if sequence == ids.len() as u64
                        && let Some((id, opcode)) = slots.complete(slots.send_id(sequence), true)
                    {
                        assert_eq!(opcode, Opcode::Write);
                        ids.push(id);
                    }
                }
                ids
            })
        };
        assert!(post(&slots, 10), "the ring is empty");
        // There is room for the second one only when the first has been taken: the ring has one slot.
        let posted = 1 + u64::from(post(&slots, 11));
        let ids = device.join().unwrap();
        let completed = ids.len() as u64;
        assert_eq!(ids, [10, 11][..ids.len()]);
        assert!(completed <= posted && completed + 1 >= posted);
        assert_eq!(u64::from(slots.sends.outstanding()), posted - completed);
        assert_eq!(slots.sends.is_reply_due(), completed < posted);
    });
}

#[test]
fn who_sees_that_a_request_succeeded_sees_what_came_before() {
    check(5, || {
        let slots = Arc::new(Slots::new(1, 2, 1));
        assert!(post(&slots, 10));
        let seen = Arc::new(SlotU64::new(0));
        let poller = {
            let (slots, seen) = (Arc::clone(&slots), Arc::clone(&seen));
            thread::spawn(move || {
                seen.store(1, Ordering::Relaxed);
                assert_eq!(slots.complete(slots.send_id(0), true), Some((10, Opcode::Write)));
            })
        };
        thread::yield_now();
        // As a window's holder looks, on any thread.
        if slots.sends.has_succeeded(0) {
            assert_eq!(seen.load(Ordering::Relaxed), 1);
        }
        poller.join().unwrap();
        assert!(slots.sends.has_succeeded(0) && !slots.sends.has_succeeded(1));
    });
}

#[test]
fn a_slot_given_back_says_how_its_request_went() {
    check(4, || {
        let slots = Arc::new(Slots::new(1, 2, 1));
        assert!(post(&slots, 10));
        let poller = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.complete(slots.send_id(0), true).unwrap())
        };
        thread::yield_now();
        if slots.sends.free() == 2 {
            assert!(slots.sends.has_succeeded(0), "it came back and has not succeeded");
        }
        poller.join().unwrap();
    });
}

/// The device's event, the poll of what was flushed and the end of the connection each have a cause; the user is told one.
#[test]
fn kind_72_the_first_cause_stays_whoever_has_another() {
    check(10, || {
        let slots = Arc::new(Slots::new(1, 1, 1));
        let others = [ErrorCause::PeerRefused, ErrorCause::Device].map(|cause| {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.fail(cause))
        });
        thread::yield_now();
        let first = slots.cause();
        others.into_iter().for_each(|other| other.join().unwrap());
        let last = slots.cause();
        assert!(last.is_some() && (first.is_none() || first == last), "{first:?}, then {last:?}");
    });
}
