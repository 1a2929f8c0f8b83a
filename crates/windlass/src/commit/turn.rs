//! Locks under which nobody is woken.
//!
//! A waker may run its task at once, on the thread that wakes it, and that may use the log: a thread that woke it under a lock would then wait for itself.
//! So a thread that holds a [`Turn`] keeps who is to be woken, wherever that comes up, and wakes them when it has let go of the last.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

#[derive(Debug)]
struct Held {
    turns: usize,
    /// Who is to be woken.
    later: Vec<Waker>,
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { turns: 0, later: Vec::new() }) };
}

/// Wakes it: now, or when this thread holds no turn any more.
pub(super) fn wake(waker: Waker) {
    let mut now = Some(waker);
    // A thread that is ending keeps nothing.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if held.turns > 0 {
            held.later.extend(now.take());
        }
    });
    if let Some(waker) = now {
        run(waker);
    }
}

/// A waker that panics is a defect of the application, of which the panic hook has told: it must cost neither the others that wait their waking nor the log
/// its thread.
fn run(waker: Waker) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}

/// A mutex that is held, and under which nobody is woken.
pub(crate) struct Turn<'a, T> {
    mutex: &'a Mutex<T>,
    guard: Option<MutexGuard<'a, T>>,
}

impl<T> fmt::Debug for Turn<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl<'a, T> Turn<'a, T> {
    /// Waits for the mutex.
    pub(crate) fn take(mutex: &'a Mutex<T>) -> Turn<'a, T> {
        let mut turn = Turn { mutex, guard: None };
        turn.hold();
        turn
    }

    fn hold(&mut self) {
        self.guard = Some(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = HELD.try_with(|held| held.borrow_mut().turns += 1);
    }

    /// Lets others have it, and wakes who is to be woken, for so long: what is waited for may be theirs to do.
    pub(crate) fn pause(&mut self, pause: Duration) {
        self.release();
        std::thread::sleep(pause);
        self.hold();
    }

    fn release(&mut self) {
        drop(self.guard.take());
        let later = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            held.turns -= 1;
            if held.turns == 0 { std::mem::take(&mut held.later) } else { Vec::new() }
        });
        later.unwrap_or_default().into_iter().for_each(run);
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held but for a pause")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held but for a pause")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Takes turns at both when it is woken, as its own thread must be able to.
    struct Takes(Arc<(Mutex<u32>, Mutex<u32>)>);

    impl std::task::Wake for Takes {
        fn wake(self: Arc<Self>) {
            let mut outer = Turn::take(&self.0.0);
            // One that is woken by one that is woken.
            super::wake(Waker::from(Arc::new(Adds(self.0.clone()))));
            *outer += 1;
        }
    }

    struct Adds(Arc<(Mutex<u32>, Mutex<u32>)>);

    impl std::task::Wake for Adds {
        fn wake(self: Arc<Self>) {
            *Turn::take(&self.0.0) += 10;
            *Turn::take(&self.0.1) += 1;
        }
    }

    #[test]
    fn who_is_woken_under_locks_is_woken_when_the_last_is_let_go_of() {
        let both = Arc::new((Mutex::new(0), Mutex::new(0)));
        let woken = || super::wake(Waker::from(Arc::new(Takes(both.clone()))));
        let mut outer = Turn::take(&both.0);
        let inner = Turn::take(&both.1);
        woken();
        drop(inner);
        assert_eq!((*outer, *both.1.lock().unwrap()), (0, 0), "the other is held");
        outer.pause(Duration::ZERO);
        assert_eq!((*outer, *both.1.lock().unwrap()), (11, 1));
        woken();
        drop(outer);
        assert_eq!((*both.0.lock().unwrap(), *both.1.lock().unwrap()), (22, 2));
        woken();
        assert_eq!((*both.0.lock().unwrap(), *both.1.lock().unwrap()), (33, 3));
    }
}
