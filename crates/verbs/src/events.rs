//! Asynchronous events of the device: what moved a queue pair to error, and whether the device is still there.
//!
//! A device reports them through one descriptor per context, whoever reads it. So each completion queue that looks reads
//! for all, and a registry says whom an event concerns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ibverbs_sys as sys;
use windlass_fabric::{ErrorCause, Wake};

use crate::device::Context;
use crate::slots::Slots;
use crate::wake::VerbsWaker;

/// Whom events may concern.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Queue pair number and slots.
    pairs: Vec<(u32, Arc<Slots>)>,
    queues: Vec<QueueEntry>,
}

struct QueueEntry {
    address: usize,
    unusable: Arc<AtomicBool>,
    waker: VerbsWaker,
}

/// One event, copied out of the device's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A queue pair went to error.
    Pair { number: u32, cause: ErrorCause },
    /// A completion queue overran.
    Queue { address: usize },
    /// The device is gone.
    Device,
    /// Nothing that concerns us: a port went up or down (queue pairs find out by themselves), a path was made.
    Other,
}

impl Registry {
    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_pair(&self, number: u32, slots: &Arc<Slots>) {
        self.entries().pairs.push((number, Arc::clone(slots)));
    }

    pub(crate) fn remove_pair(&self, slots: &Arc<Slots>) {
        self.entries().pairs.retain(|(_, known)| !Arc::ptr_eq(known, slots));
    }

    pub(crate) fn add_queue(&self, address: usize, unusable: &Arc<AtomicBool>, waker: &VerbsWaker) {
        let entry = QueueEntry { address, unusable: Arc::clone(unusable), waker: waker.clone() };
        self.entries().queues.push(entry);
    }

    pub(crate) fn remove_queue(&self, address: usize) {
        self.entries().queues.retain(|queue| queue.address != address);
    }

    /// Tells those whom the event concerns. `reader` is the queue whose thread read it; others may be asleep, and are woken.
    fn apply(&self, event: Event, reader: usize) {
        let entries = self.entries();
        match event {
            Event::Pair { number, cause } => {
                for (_, slots) in entries.pairs.iter().filter(|(known, _)| *known == number) {
                    slots.fail(cause);
                }
            }
            Event::Queue { address } => {
                for queue in entries.queues.iter().filter(|queue| queue.address == address) {
                    queue.unusable.store(true, Ordering::Release);
                }
            }
            Event::Device => {
                entries.pairs.iter().for_each(|(_, slots)| slots.fail(ErrorCause::Device));
                entries.queues.iter().for_each(|queue| queue.unusable.store(true, Ordering::Release));
            }
            Event::Other => return,
        }
        entries.queues.iter().filter(|queue| queue.address != reader).for_each(|queue| queue.waker.wake());
    }
}

/// Reads what events there are, without waiting. The context's descriptor is set to not block when it is opened.
pub(crate) fn drain(context: &Context, reader: usize) {
    let mut raw = sys::ibv_async_event::default();
    loop {
        // SAFETY: the context is open and `raw` is a whole event to write to.
        if unsafe { (context.library.get_async_event)(context.raw, &raw mut raw) } != 0 {
            return;
        }
        let event = copy(&raw);
        // SAFETY: the event was given by `get_async_event` and is acknowledged once; only after this may the object that it names
        // be destroyed, so `copy` above read a live one.
        unsafe { (context.library.ack_async_event)(&raw mut raw) };
        context.registry.apply(event, reader);
    }
}

fn copy(raw: &sys::ibv_async_event) -> Event {
    let cause = match raw.event_type {
        sys::IBV_EVENT_QP_FATAL => ErrorCause::Device,
        sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => ErrorCause::PeerRefused,
        sys::IBV_EVENT_CQ_ERR => {
            // SAFETY: for this type the member in use is the completion queue; only its address is taken.
            return Event::Queue { address: unsafe { raw.element.cq }.addr() };
        }
        sys::IBV_EVENT_DEVICE_FATAL => return Event::Device,
        _ => return Event::Other,
    };
    // SAFETY: for these types the member in use is the queue pair.
    let pair = unsafe { raw.element.qp };
    // SAFETY: its destruction waits until the event is acknowledged, so it is alive.
    Event::Pair { number: unsafe { (*pair).qp_num }, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_74_an_event_concerns_only_what_it_names_and_a_lost_device_all() {
        let registry = Registry::default();
        let (one, two) = (Arc::new(Slots::new(1, 1, 1)), Arc::new(Slots::new(2, 1, 1)));
        let (near, far) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        registry.add_pair(10, &one);
        registry.add_pair(11, &two);
        let (near_waker, far_waker) = (VerbsWaker::new().unwrap(), VerbsWaker::new().unwrap());
        registry.add_queue(0x1000, &near, &near_waker);
        registry.add_queue(0x2000, &far, &far_waker);
        registry.apply(Event::Pair { number: 10, cause: ErrorCause::PeerRefused }, 0x1000);
        assert_eq!((one.cause(), two.cause()), (Some(ErrorCause::PeerRefused), None));
        registry.apply(Event::Queue { address: 0x1000 }, 0x1000);
        assert!(near.load(Ordering::Acquire) && !far.load(Ordering::Acquire));
        assert!(near_waker.begin(), "its own thread read the event");
        assert!(!far_waker.begin(), "another thread may be asleep");
        registry.remove_queue(0x2000);
        registry.apply(Event::Device, 0x1000);
        assert_eq!((one.cause(), two.cause()), (Some(ErrorCause::PeerRefused), Some(ErrorCause::Device)));
        assert!(!far.load(Ordering::Acquire), "it is no longer there");
    }
}
