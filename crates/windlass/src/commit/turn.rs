//! Locks under which nobody is woken.
//!
//! A waker may run its task at once, on the thread that wakes it, and that may use the log: a thread that woke it under a lock would then wait for itself.
//! So a thread that holds a [`Turn`], or a [`Hush`] beside another lock, keeps who is to be woken, wherever that comes up, and wakes them when it has let
//! go of the last.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;

use crate::sync::{Mutex, MutexGuard, thread, thread_local};

#[derive(Debug)]
struct Held {
    hushes: usize,
    /// Who is to be woken.
    later: Vec<Waker>,
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { hushes: 0, later: Vec::new() }) };
}

/// Wakes it: now, or when this thread holds no [`Hush`] any more.
pub(crate) fn wake(waker: Waker) {
    let mut now = Some(waker);
    // A thread that is ending keeps nothing.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if held.hushes > 0 {
            held.later.extend(now.take());
        }
    });
    if let Some(waker) = now {
        run(waker);
    }
}

/// A waker that panics is a defect of the application, of which the panic hook has told: it must cost neither the others that wait their waking nor the log
/// its thread.
pub(crate) fn run(waker: Waker) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}

/// While it lives this thread wakes nobody. Whoever was to be woken is when the thread's last one goes, so it is to go behind the lock that it stands
/// beside.
#[must_use = "it hushes while it lives"]
pub(crate) struct Hush(PhantomData<*const ()>);

impl Hush {
    pub(crate) fn begin() -> Hush {
        let _ = HELD.try_with(|held| held.borrow_mut().hushes += 1);
        Hush(PhantomData)
    }

    /// Whether somebody is to be woken by this thread once it holds none any more.
    pub(crate) fn is_owed() -> bool {
        HELD.try_with(|held| !held.borrow().later.is_empty()).unwrap_or(false)
    }

    /// Who is to be woken by this thread: from here on by whoever has asked, with [`run`].
    pub(crate) fn take_owed() -> Vec<Waker> {
        HELD.try_with(|held| std::mem::take(&mut held.borrow_mut().later)).unwrap_or_default()
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        let later = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            held.hushes -= 1;
            if held.hushes == 0 { std::mem::take(&mut held.later) } else { Vec::new() }
        });
        let mut later = later.unwrap_or_default();
        if later.is_empty() {
            return;
        }
        later.drain(..).for_each(run);
        // Its room serves the next time.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if held.later.capacity() == 0 {
                held.later = later;
            }
        });
    }
}

/// A mutex that is held, and under which nobody is woken.
pub(crate) struct Turn<'a, T> {
    mutex: &'a Mutex<T>,
    guard: Option<MutexGuard<'a, T>>,
    hush: Option<Hush>,
}

impl<T> fmt::Debug for Turn<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl<'a, T> Turn<'a, T> {
    /// Waits for the mutex.
    pub(crate) fn take(mutex: &'a Mutex<T>) -> Turn<'a, T> {
        let mut turn = Turn { mutex, guard: None, hush: None };
        turn.hold();
        turn
    }

    fn hold(&mut self) {
        self.guard = Some(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        self.hush = Some(Hush::begin());
    }

    /// Lets others have it, and wakes who is to be woken, for so long: what is waited for may be theirs to do.
    pub(crate) fn pause(&mut self, pause: Duration) {
        self.release();
        thread::sleep(pause);
        self.hold();
    }

    fn release(&mut self) {
        drop(self.guard.take());
        drop(self.hush.take());
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

#[cfg(all(test, not(loom)))]
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

    #[test]
    fn a_hush_beside_another_lock_keeps_who_is_to_be_woken_or_hands_it_on() {
        let both = Arc::new((Mutex::new(0), Mutex::new(0)));
        let woken = || super::wake(Waker::from(Arc::new(Adds(both.clone()))));
        let hush = Hush::begin();
        assert!(!Hush::is_owed());
        woken();
        woken();
        assert!(Hush::is_owed());
        let owed = Hush::take_owed();
        assert!(!Hush::is_owed());
        woken();
        assert_eq!(*both.1.lock().unwrap(), 0);
        drop(hush);
        assert_eq!((*both.1.lock().unwrap(), owed.len()), (1, 2));
        owed.into_iter().for_each(run);
        assert_eq!(*both.1.lock().unwrap(), 3);
    }
}
