//! One answer of the driver, for whoever asked on another thread: waited for by blocking or as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::commit::{park, thread_waker, wake};

/// What was asked, and who waits. The answer is `None` where nobody is left to give one.
#[derive(Debug)]
struct Slot<T> {
    answer: Option<Option<T>>,
    waker: Option<Waker>,
}

/// The end that answers. Dropped without an answer, it says that none will come.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Mutex<Slot<T>>>);

/// The end that waits: `None` if nobody answers any more. Dropped, nobody waits; what was asked for takes its course.
#[derive(Debug)]
pub(crate) struct Asked<T>(Arc<Mutex<Slot<T>>>);

/// Both ends of one question.
pub(crate) fn question<T>() -> (Answer<T>, Asked<T>) {
    let slot = Arc::new(Mutex::new(Slot { answer: None, waker: None }));
    (Answer(Arc::clone(&slot)), Asked(slot))
}

fn locked<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Answer<T> {
    pub(crate) fn give(self, answer: T) {
        self.put(Some(answer));
    }

    fn put(&self, answer: Option<T>) {
        let mut slot = locked(&self.0);
        if slot.answer.is_none() {
            slot.answer = Some(answer);
        }
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.put(None);
    }
}

impl<T> Asked<T> {
    /// Waits on this thread; `Err` past the deadline.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Result<Option<T>, Asked<T>> {
        let waker = thread_waker();
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(answer) => return Ok(answer),
                Poll::Pending if deadline.is_some_and(|at| Instant::now() >= at) => return Err(self),
                Poll::Pending => park(deadline, None),
            }
        }
    }
}

impl<T> Future for Asked<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = locked(&self.0);
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                let before = slot.waker.replace(context.waker().clone());
                drop(slot);
                // Not under the lock: with a waker its task may go.
                drop(before);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_answer_reaches_who_waits_and_a_dropped_one_is_told() {
        let (answer, asked) = question();
        let answering = std::thread::spawn(move || answer.give(7));
        assert_eq!(asked.wait(None).unwrap(), Some(7));
        answering.join().unwrap();
        let (answer, asked) = question::<u8>();
        drop(answer);
        assert_eq!(asked.wait(None).unwrap(), None);
        let (answer, asked) = question::<u8>();
        let asked = asked.wait(Some(Instant::now() + Duration::from_millis(5))).unwrap_err();
        answer.give(9);
        assert_eq!(asked.wait(None).unwrap(), Some(9), "it may be waited for again");
        let (answer, asked) = question::<u8>();
        drop(asked);
        answer.give(1);
    }
}
