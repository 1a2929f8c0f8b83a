//! Requests under the model checker, with a watermark that a stop stops, and an event of the checker's for the driver's sleep.

use std::sync::Arc;

use loom::thread;
use windlass_fabric::model::{Event, check_preempted};
use windlass_log::Lsn;

use super::*;
use crate::commit::{Stopped, Watch};

struct Desk {
    requests: Requests<u32>,
    wake: Event,
    durable: Watch,
}

impl Desk {
    fn new() -> Arc<Desk> {
        Arc::new(Desk { requests: Requests::new(), wake: Event::new(), durable: Watch::new(Lsn(8)) })
    }

    fn ask_beside(self: &Arc<Desk>, request: u32) -> thread::JoinHandle<()> {
        let desk = Arc::clone(self);
        thread::spawn(move || {
            desk.requests.ask(request, || desk.wake.ring(), || desk.durable.stopped().is_some());
        })
    }
}

#[test]
fn each_request_is_taken_once_by_a_driver_that_sleeps_when_there_is_none() {
    check_preempted(2, 500, || {
        let desk = Desk::new();
        let asks = [1, 2].map(|request| desk.ask_beside(request));
        let mut taken = 0;
        while taken != 3 {
            match desk.requests.take() {
                Some(request) => taken += request,
                None => desk.wake.wait(),
            }
        }
        asks.into_iter().for_each(|asks| asks.join().unwrap());
        assert_eq!(desk.requests.take(), None);
    });
}

#[test]
fn no_request_is_left_behind_when_the_driver_has_stopped() {
    check_preempted(2, 200, || {
        let desk = Desk::new();
        let asks = [1, 2].map(|request| desk.ask_beside(request));
        desk.requests.take();
        desk.durable.stop(Stopped::Closed);
        desk.requests.forget();
        asks.into_iter().for_each(|asks| asks.join().unwrap());
        assert!(desk.requests.queue().is_empty(), "somebody waits for an answer for ever");
    });
}
