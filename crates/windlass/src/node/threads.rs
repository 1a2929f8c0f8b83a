//! The threads that work on the store for a driver: one for each lane.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use windlass_store::disk::Disk;

use crate::driver::{Done, Executor, Lane, Work};

/// How often an idle lane yields before it sleeps: the next flush often follows at once.
const YIELDS: u32 = 50;

/// Threads in production.
pub(crate) struct Threads<D: Disk> {
    lanes: [Arc<Queue<D>>; Lane::ALL.len()],
    done: Arc<Finished>,
    running: Vec<JoinHandle<()>>,
    /// Whether whoever steps the driver makes short flushes itself.
    has_errands: bool,
    errand: Option<Errand<D>>,
}

/// A short flush for whoever steps the driver, to be made with the driver let go.
pub(super) struct Errand<D: Disk> {
    work: Work<D>,
    done: Arc<Finished>,
}

impl<D: Disk> Errand<D> {
    /// Makes it; the driver's next turn hears of it.
    pub(super) fn run(self) {
        self.done.run(self.work);
    }
}

struct Queue<D: Disk> {
    work: Mutex<VecDeque<Work<D>>>,
    /// Whether there is work, readable without the lock.
    is_waiting: AtomicBool,
    stop: AtomicBool,
    arrived: Condvar,
}

struct Finished {
    done: Mutex<VecDeque<Done>>,
    is_any: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Finished {
    fn run<D: Disk>(&self, work: Work<D>) {
        // A defect in there must not leave a driver that waits for ever: nobody knows what is on the medium now.
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.run()));
        let outcome = run.unwrap_or_else(|_| Done::failed("work on the store panicked"));
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push_back(outcome);
        self.is_any.store(true, Ordering::Release);
        (self.wake)();
    }
}

fn index(lane: Lane) -> usize {
    match lane {
        Lane::Flush => 0,
        Lane::Superblock => 1,
        Lane::Prepare => 2,
        Lane::Scrub => 3,
    }
}

impl<D: Disk> Threads<D> {
    /// Starts the threads. `wake` is called whenever something is done. With errands, somebody takes them after each turn.
    pub(crate) fn start(
        name: &str,
        has_errands: bool,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Threads<D>, std::io::Error> {
        let done = Arc::new(Finished {
            done: Mutex::default(),
            is_any: AtomicBool::new(false),
            wake: Box::new(wake),
        });
        let lanes = std::array::from_fn(|_| {
            Arc::new(Queue {
                work: Mutex::new(VecDeque::new()),
                is_waiting: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                arrived: Condvar::new(),
            })
        });
        let mut threads = Threads { lanes, done, running: Vec::new(), has_errands, errand: None };
        for (lane, word) in [(0, "flush"), (1, "meta"), (2, "prep"), (3, "scrub")] {
            let (queue, done) = (Arc::clone(&threads.lanes[lane]), Arc::clone(&threads.done));
            let spins = lane == 0;
            let builder = std::thread::Builder::new().name(format!("{name}-{word}"));
            threads.running.push(builder.spawn(move || queue.run(&done, spins))?);
        }
        Ok(threads)
    }
}

impl<D: Disk> Queue<D> {
    fn run(&self, done: &Finished, spins: bool) {
        while let Some(work) = self.next(spins) {
            done.run(work);
        }
    }

    fn next(&self, spins: bool) -> Option<Work<D>> {
        if spins {
            for _ in 0..YIELDS {
                if self.is_waiting.load(Ordering::Acquire) {
                    break;
                }
                std::thread::yield_now();
            }
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(next) = work.pop_front() {
                self.is_waiting.store(!work.is_empty(), Ordering::Relaxed);
                return Some(next);
            }
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<D: Disk> Threads<D> {
    /// The flush that whoever steps the driver is to make now, if any.
    pub(super) fn take_errand(&mut self) -> Option<Errand<D>> {
        self.errand.take()
    }

    /// Gives it to the thread that flushes: whoever steps has something else to do, which may take long.
    pub(super) fn leave_errand(&mut self) {
        if let Some(Errand { work, .. }) = self.errand.take() {
            self.queue(work);
        }
    }

    fn queue(&self, work: Work<D>) {
        let queue = &self.lanes[index(work.lane())];
        queue.work.lock().unwrap_or_else(PoisonError::into_inner).push_back(work);
        queue.is_waiting.store(true, Ordering::Release);
        queue.arrived.notify_one();
    }
}

impl<D: Disk> Executor<D> for Threads<D> {
    fn submit(&mut self, work: Work<D>) {
        if self.has_errands && work.is_errand() && self.errand.is_none() {
            self.errand = Some(Errand { work, done: Arc::clone(&self.done) });
            return;
        }
        self.queue(work);
    }

    fn poll(&mut self) -> Option<Done> {
        if !self.done.is_any.load(Ordering::Acquire) {
            return None;
        }
        let mut done = self.done.done.lock().unwrap_or_else(PoisonError::into_inner);
        let next = done.pop_front();
        self.done.is_any.store(!done.is_empty(), Ordering::Relaxed);
        next
    }
}

impl<D: Disk> Drop for Threads<D> {
    fn drop(&mut self) {
        for queue in &self.lanes {
            let work = queue.work.lock().unwrap_or_else(PoisonError::into_inner);
            queue.stop.store(true, Ordering::Release);
            drop(work);
            queue.arrived.notify_all();
        }
        let me = std::thread::current().id();
        for thread in self.running.drain(..) {
            if thread.thread().id() != me {
                // A panic there has been reported by the panic hook.
                let _ = thread.join();
            }
        }
    }
}
