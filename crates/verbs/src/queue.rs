//! Completion queues: polling, waiting, and the accounts that keep them from overrunning.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ibverbs_sys as sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use windlass_fabric::{Completion, CompletionQueueError, ErrorCause, Opcode, PollError, Status, Woken};

use crate::device::{Context, set_nonblocking};
use crate::error::VerbError;
use crate::events;
use crate::options::CompletionMode;
use crate::slots::{Slots, connection_of};
use crate::spin::Spin;
use crate::status::{cause, status};
use crate::wake::VerbsWaker;

/// Completions taken from the device at once.
const BATCH: usize = 64;

/// Every so many polls that found nothing the device's events are looked at: a system call.
const IDLE_POLLS_PER_EVENT_CHECK: u32 = 4096;

/// Every so many turns of a spin it looks at the clock.
const TURNS_PER_GLANCE: u32 = 16;

/// The device's completion queue and its channel; held by its connections too, since a queue pair must end first.
pub(crate) struct QueueCore {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: *mut sys::ibv_cq,
    channel: *mut sys::ibv_comp_channel,
    capacity: u32,
    room: Mutex<Room>,
    /// There may be completions of destroyed connections: `room.stale` is not 0.
    has_stale: AtomicBool,
    members: Mutex<Vec<Arc<Slots>>>,
    unusable: Arc<AtomicBool>,
}

/// What of the queue's capacity is spoken for.
#[derive(Default)]
struct Room {
    /// Depths of the living connections.
    reserved: u32,
    /// Completions of destroyed connections that may still lie in the queue.
    stale: u32,
}

// SAFETY: verbs may be called from any thread on any object.
unsafe impl Send for QueueCore {}
// SAFETY: as above.
unsafe impl Sync for QueueCore {}

impl QueueCore {
    fn new(context: &Arc<Context>, capacity: u32, waker: &VerbsWaker) -> Result<QueueCore, VerbError> {
        let library = &context.library;
        // SAFETY: the context is open.
        let channel = unsafe { (library.create_comp_channel)(context.raw) };
        if channel.is_null() {
            return Err(VerbError::last("ibv_create_comp_channel"));
        }
        let entries = i32::try_from(capacity).unwrap_or(i32::MAX);
        // SAFETY: context and channel are alive; vector 0 always exists.
        let raw = unsafe { (library.create_cq)(context.raw, entries, std::ptr::null_mut(), channel, 0) };
        if raw.is_null() {
            let error = VerbError::last("ibv_create_cq").of_queue(capacity, context.limits.max_cqe);
            // SAFETY: the channel came from `create_comp_channel` and nothing uses it.
            let _ = unsafe { (library.destroy_comp_channel)(channel) };
            return Err(error);
        }
        let core = QueueCore {
            context: Arc::clone(context),
            raw,
            channel,
            capacity,
            room: Mutex::default(),
            has_stale: AtomicBool::new(false),
            members: Mutex::default(),
            unusable: Arc::new(AtomicBool::new(false)),
        };
        set_nonblocking(core.channel_descriptor())?;
        context.registry.add_queue(raw.addr(), &core.unusable, waker);
        Ok(core)
    }

    fn channel_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive as long as `self`.
        let descriptor = unsafe { (*self.channel).fd };
        // SAFETY: the descriptor is open until the channel is destroyed, which is after this borrow.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    fn room(&self) -> std::sync::MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for a connection's depths; the error is what is left.
    pub(crate) fn reserve(&self, needed: u32) -> Result<(), u32> {
        let mut room = self.room();
        let left = self.capacity.saturating_sub(room.reserved).saturating_sub(room.stale);
        if needed > left {
            return Err(left);
        }
        room.reserved += needed;
        Ok(())
    }

    /// Gives a connection's room back, apart from completions that may still lie in the queue.
    pub(crate) fn release(&self, needed: u32, stale: u32) {
        let mut room = self.room();
        room.reserved = room.reserved.saturating_sub(needed);
        room.stale = room.stale.saturating_add(stale);
        if room.stale > 0 {
            self.has_stale.store(true, Ordering::Release);
        }
    }

    pub(crate) fn join(&self, slots: &Arc<Slots>) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(slots));
    }

    pub(crate) fn leave(&self, slots: &Arc<Slots>) {
        self.members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|known| !Arc::ptr_eq(known, slots));
    }

    /// Takes completions from the device.
    fn take(&self, into: &mut [sys::ibv_wc]) -> Result<usize, VerbError> {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive, and `into` has room for as many as are asked for.
        let count = unsafe { (self.context.ops.poll_cq)(self.raw, room, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| VerbError::plain("ibv_poll_cq", count.wrapping_neg()))
    }

    /// Asks for an event at the next completion.
    fn arm(&self) -> Result<(), VerbError> {
        // SAFETY: the queue is alive.
        let returned = unsafe { (self.context.ops.req_notify_cq)(self.raw, 0) };
        VerbError::check("ibv_req_notify_cq", returned)
    }

    /// Reads the channel's events, without waiting.
    fn quiet(&self) {
        let mut queue = std::ptr::null_mut();
        let mut tag = std::ptr::null_mut();
        let mut count = 0;
        // SAFETY: the channel is alive and does not block; both places are there to write to.
        while unsafe { (self.context.library.get_cq_event)(self.channel, &raw mut queue, &raw mut tag) } == 0
        {
            count += 1;
        }
        if count > 0 {
            // SAFETY: only this queue uses the channel, so the events were all its own; each is acknowledged once.
            unsafe { (self.context.library.ack_cq_events)(self.raw, count) };
        }
    }
}

impl Drop for QueueCore {
    fn drop(&mut self) {
        self.context.registry.remove_queue(self.raw.addr());
        let library = &self.context.library;
        // SAFETY: made by `create_cq`, destroyed here only; connections hold this value, so its queue pairs are gone. All
        // events read were acknowledged. A refusal leaves it to the kernel.
        let _ = unsafe { (library.destroy_cq)(self.raw) };
        // SAFETY: made by `create_comp_channel`, destroyed here only, after the queue that used it.
        let _ = unsafe { (library.destroy_comp_channel)(self.channel) };
    }
}

/// Where the completions of connections arrive.
pub struct VerbsCompletionQueue {
    core: Arc<QueueCore>,
    /// The members as last seen; the shared list is looked at when a completion names none of these.
    members: Vec<Arc<Slots>>,
    batch: Box<[sys::ibv_wc]>,
    /// A completion found after arming.
    found: Option<sys::ibv_wc>,
    waker: VerbsWaker,
    spin: Spin,
    idle_polls: u32,
    /// A completion was flushed on a connection without a known cause.
    flushed: bool,
    /// Members in error when the last wait ended.
    in_error: usize,
}

// SAFETY: `ibv_wc` is plain data; the rest is `Send`.
unsafe impl Send for VerbsCompletionQueue {}

impl VerbsCompletionQueue {
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: u32,
        capacity_max: u32,
        mode: CompletionMode,
    ) -> Result<VerbsCompletionQueue, CompletionQueueError> {
        if capacity == 0 || capacity > capacity_max {
            return Err(CompletionQueueError::Capacity { capacity, capacity_max });
        }
        let waker =
            VerbsWaker::new().map_err(|source| CompletionQueueError::Os { call: "eventfd", source })?;
        let core = QueueCore::new(context, capacity, &waker)
            .map_err(|error| CompletionQueueError::Os { call: error.verb, source: error.into() })?;
        Ok(VerbsCompletionQueue {
            core: Arc::new(core),
            members: Vec::new(),
            batch: vec![sys::ibv_wc::default(); BATCH].into_boxed_slice(),
            found: None,
            waker,
            spin: Spin::new(mode),
            idle_polls: 0,
            flushed: false,
            in_error: 0,
        })
    }

    pub(crate) fn core(&self) -> &Arc<QueueCore> {
        &self.core
    }

    /// One of the device's completions in the fabric's words; `None` when its connection is gone.
    fn translate(&mut self, work: &sys::ibv_wc) -> Result<Option<Completion>, PollError> {
        let connection = connection_of(work.wr_id());
        let Some(at) = self.member(connection) else {
            return Ok(None);
        };
        let slots = &self.members[at];
        let code = work.error().map_or(0, |(code, _)| code);
        let Some((id, mut opcode)) = slots.complete(work.wr_id(), code == 0) else {
            return Err(device_error("ibv_poll_cq", io::Error::from(io::ErrorKind::InvalidData)));
        };
        if code == 0 && work.opcode() == sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM {
            opcode = Opcode::ReceiveWrite;
        }
        let status = status(code, opcode);
        if let Some(cause) = cause(status, opcode) {
            slots.fail(cause);
        }
        let counts =
            status.is_success() && matches!(opcode, Opcode::Read | Opcode::Receive | Opcode::ReceiveWrite);
        let completion = Completion {
            id,
            connection: slots.id(),
            opcode,
            status,
            bytes: if counts { u32::try_from(work.len()).unwrap_or(u32::MAX) } else { 0 },
            immediate: if opcode.is_receive() { work.imm_data().map(u32::from_be) } else { None },
        };
        if status == Status::Flushed && slots.cause().is_none() {
            slots.mark_flushed();
            self.flushed = true;
        }
        Ok(Some(completion))
    }

    /// Where among the members the living one with that id is.
    fn member(&mut self, connection: u32) -> Option<usize> {
        let known = |members: &[Arc<Slots>]| members.iter().position(|slots| slots.connection == connection);
        let at = known(&self.members).or_else(|| {
            self.refresh();
            known(&self.members)
        })?;
        (!self.members[at].is_destroyed()).then_some(at)
    }

    fn refresh(&mut self) {
        self.members.clone_from(&self.core.members.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Finds out why requests were flushed on connections that know of no failure of their own.
    fn explain_flushes(&mut self) {
        self.flushed = false;
        events::drain(&self.core.context, self.core.raw.addr());
        for slots in self.members.iter().filter(|slots| !slots.is_destroyed()) {
            if slots.was_flushed() {
                // Not every driver reports an event. Nothing else moves a queue pair to error unasked.
                slots.fail(ErrorCause::PeerRefused);
            }
        }
    }

    /// Whether a member has gone to error since the last wait ended.
    fn anything_new(&mut self) -> bool {
        self.refresh();
        let now = self.members.iter().filter(|slots| slots.cause().is_some()).count();
        std::mem::replace(&mut self.in_error, now) < now
    }

    fn check(&self) -> Result<(), PollError> {
        if self.core.unusable.load(Ordering::Acquire) {
            return Err(device_error("ibv_get_async_event", io::Error::from(io::ErrorKind::BrokenPipe)));
        }
        Ok(())
    }

    /// Whether there is a completion, which is kept for the next poll.
    fn look(&mut self) -> Result<bool, PollError> {
        if self.found.is_none() {
            let mut one = [sys::ibv_wc::default()];
            if self.core.take(&mut one).map_err(from_verb)? == 1 {
                self.found = Some(one[0]);
            }
        }
        Ok(self.found.is_some())
    }

    fn sleep(&self, timeout: Duration) -> io::Result<()> {
        let mut descriptors = [
            PollFd::from_borrowed_fd(self.core.channel_descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.core.context.events(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.waker.descriptor(), PollFlags::IN),
        ];
        let timeout =
            Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::from(u32::MAX), tv_nsec: 0 });
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn device_error(call: &'static str, source: io::Error) -> PollError {
    PollError::Device { call, source }
}

fn from_verb(error: VerbError) -> PollError {
    device_error(error.verb, error.into())
}

impl windlass_fabric::CompletionQueue for VerbsCompletionQueue {
    type Waker = VerbsWaker;

    fn poll(&mut self, into: &mut [Completion]) -> Result<usize, PollError> {
        self.check()?;
        // What is stale now is out of the queue once it was seen empty.
        let stale = if self.core.has_stale.load(Ordering::Acquire) { self.core.room().stale } else { 0 };
        let mut filled = 0;
        if let Some(work) = self.found.take_if(|_| !into.is_empty())
            && let Some(completion) = self.translate(&work)?
        {
            into[filled] = completion;
            filled += 1;
        }
        let mut empty = false;
        while filled < into.len() && !empty {
            let want = BATCH.min(into.len() - filled);
            let taken = self.core.take(&mut self.batch[..want]).map_err(from_verb)?;
            empty = taken < want;
            for at in 0..taken {
                let work = self.batch[at];
                if let Some(completion) = self.translate(&work)? {
                    into[filled] = completion;
                    filled += 1;
                }
            }
        }
        if empty && stale > 0 {
            let mut room = self.core.room();
            room.stale -= stale.min(room.stale);
            self.core.has_stale.store(room.stale > 0, Ordering::Release);
        }
        if self.flushed {
            self.explain_flushes();
        }
        if filled == 0 {
            self.idle_polls = self.idle_polls.wrapping_add(1);
            if self.idle_polls.is_multiple_of(IDLE_POLLS_PER_EVENT_CHECK) {
                events::drain(&self.core.context, self.core.raw.addr());
            }
        }
        Ok(filled)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Woken, PollError> {
        self.check()?;
        let begun = Instant::now();
        let is_due = self.members.iter().any(|slots| slots.sends.is_reply_due() && slots.cause().is_none());
        if let Some(woken) = self.spin(begun, is_due, timeout)? {
            self.spin.learn(is_due, begun.elapsed());
            return Ok(woken);
        }
        let left = timeout.saturating_sub(begun.elapsed());
        let woken = self.sleep_until_told(left)?;
        self.spin.learn(is_due, begun.elapsed());
        Ok(woken)
    }

    fn waker(&self) -> VerbsWaker {
        self.waker.clone()
    }
}

impl VerbsCompletionQueue {
    /// Polls without sleeping as long as the mode says; how it ended, if it did.
    fn spin(&mut self, begun: Instant, is_due: bool, timeout: Duration) -> Result<Option<Woken>, PollError> {
        let Some(limit) = self.spin.limit(is_due) else { return Ok(None) };
        let until = limit.min(timeout);
        for turn in 0_u32.. {
            if self.waker.take() {
                return Ok(Some(Woken::Wake));
            }
            if self.look()? {
                return Ok(Some(Woken::Ready));
            }
            if turn.is_multiple_of(TURNS_PER_GLANCE) {
                if turn > 0 && turn.is_multiple_of(IDLE_POLLS_PER_EVENT_CHECK) {
                    events::drain(&self.core.context, self.core.raw.addr());
                    self.check()?;
                    if self.anything_new() {
                        return Ok(Some(Woken::Ready));
                    }
                }
                if begun.elapsed() >= until {
                    break;
                }
            }
            self.spin.pause();
        }
        Ok((until >= timeout && self.spin.never_sleeps()).then_some(Woken::Timeout))
    }

    fn sleep_until_told(&mut self, timeout: Duration) -> Result<Woken, PollError> {
        if !self.waker.begin() {
            return Ok(Woken::Wake);
        }
        // Armed first and looked at after: a completion between the two is found, one after makes an event.
        let ready = self.core.arm().map_err(from_verb).and_then(|()| self.look());
        let slept = match ready {
            Ok(false) => self.sleep(timeout).map_err(|source| device_error("poll", source)),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let woken = self.waker.end();
        slept?;
        self.core.quiet();
        events::drain(&self.core.context, self.core.raw.addr());
        if woken {
            return Ok(Woken::Wake);
        }
        self.waker.quiet();
        // Looking again costs little, and survives an event that the device lost.
        Ok(if self.look()? || self.anything_new() { Woken::Ready } else { Woken::Timeout })
    }
}
