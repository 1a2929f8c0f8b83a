//! Closing once, whoever calls.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use super::shared::locked;
use crate::commit::Failure;
use crate::error::CloseError;

/// How far closing has come. Waiting for it holds no lock.
#[derive(Debug, Default)]
pub(super) struct Closing {
    stands: Mutex<Stands>,
    done: Condvar,
}

#[derive(Debug, Default)]
enum Stands {
    #[default]
    Open,
    /// This thread does it.
    By(ThreadId),
    Done(Result<(), CloseError>),
}

impl Closing {
    /// That of a handle that closes nothing.
    pub(super) fn done() -> Closing {
        Closing { stands: Mutex::new(Stands::Done(Ok(()))), done: Condvar::new() }
    }

    /// The answer of who has closed, once that is done. `None`: it is this caller's to do. A waker that is run by who closes, or by a thread behind the log,
    /// which closing waits for, gets an answer at once.
    pub(super) fn begin(&self, is_behind: impl FnOnce() -> bool) -> Option<Result<(), CloseError>> {
        let me = thread::current().id();
        let mut stands = locked(&self.stands);
        match &*stands {
            Stands::Open => {
                *stands = Stands::By(me);
                return None;
            }
            Stands::By(by) if *by == me || is_behind() => return Some(Ok(())),
            Stands::By(_) | Stands::Done(_) => {}
        }
        loop {
            if let Stands::Done(closed) = &*stands {
                return Some(closed.clone());
            }
            stands = self.done.wait(stands).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What the caller that closes ends with, also when it panics: others wait for it.
    pub(super) fn ends(&self) -> Ends<'_> {
        Ends(self)
    }

    fn end(&self, closed: Result<(), CloseError>) {
        *locked(&self.stands) = Stands::Done(closed);
        self.done.notify_all();
    }
}

/// See [`Closing::ends`].
#[derive(Debug)]
pub(super) struct Ends<'a>(&'a Closing);

impl Ends<'_> {
    pub(super) fn with(self, closed: Result<(), CloseError>) -> Result<(), CloseError> {
        self.0.end(closed.clone());
        // Also where this thread was panicking before.
        std::mem::forget(self);
        closed
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let failure = Failure::Store { what: "closing the log", cause: "it panicked".into() };
            self.0.end(Err(CloseError::Failed(failure)));
        }
    }
}
