//! What the providers' lock-free structures are made of under the model checker (`cfg(loom)`): its atomics, with a sequential consistency
//! that it lacks.
//!
//! The checker orders sequentially consistent *fences* in one row, but treats such an access as one that acquires and releases, and so shows
//! lost wake-ups that can't be. A machine makes these accesses from weaker ones and a fence, either before each or behind each: any two of a
//! thread then have a fence between them. [`check`] goes through a test both ways. What holds in the language holds in both, and an access
//! that was made weaker lacks its fence in the way in which nothing else stands in for it. Beside other accesses the fences order more than
//! the language says, so a structure's words that order each other this way are all accessed this way.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::fence;
use loom::sync::{Condvar, Mutex};

/// Where the fence of a sequentially consistent access stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    Before,
    Behind,
}

thread_local! {
    /// The checker runs all threads of a test on the one that called it.
    static FENCE: Cell<Fence> = const { Cell::new(Fence::Before) };
}

/// Checks `test` in every order of its steps with up to three preemptions, with the fences either way; at least `runs_min` orders each, since the checker goes
/// through an order only where it sees two accesses meet.
///
/// # Panics
///
/// If an order fails the test, if all its threads wait for each other, or if there were fewer orders.
pub fn check(runs_min: usize, test: impl Fn() + Sync + Send + 'static) {
    check_preempted(3, runs_min, test);
}

/// As [`check`], with up to so many preemptions: for tests of more steps.
///
/// # Panics
///
/// As [`check`].
pub fn check_preempted(preemptions_max: usize, runs_min: usize, test: impl Fn() + Sync + Send + 'static) {
    let test = Arc::new(test);
    for place in [Fence::Before, Fence::Behind] {
        FENCE.set(place);
        let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (counted, test) = (Arc::clone(&runs), Arc::clone(&test));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions_max);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            test();
        });
        let runs = runs.load(Ordering::Relaxed);
        println!("{runs} runs, the fences {place:?}");
        assert!(runs >= runs_min, "the checker explored only {runs} orders");
    }
}

/// An access, with its fence if it is sequentially consistent. The checker itself is told of one that acquires and releases: of two that it knows to be
/// sequentially consistent it would show the later one everywhere, whatever the accesses beside them are. Such a store is an exchange that acquires nothing: the
/// checker does not know that a store which follows one thread's exchange in the row of all changes of a word hides it from that thread.
fn fenced<T>(ordering: Ordering, weaker: Ordering, access: impl FnOnce(Ordering) -> T) -> T {
    let is_fenced = |place| ordering == Ordering::SeqCst && FENCE.get() == place;
    if is_fenced(Fence::Before) {
        fence(Ordering::SeqCst);
    }
    let value = access(if ordering == Ordering::SeqCst { weaker } else { ordering });
    if is_fenced(Fence::Behind) {
        fence(Ordering::SeqCst);
    }
    value
}

macro_rules! word {
    ($name:ident, $value:ty) => {
        /// The atomic of this name, as far as the models need it.
        #[derive(Debug)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// As the one of std.
            #[must_use]
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            /// As the one of std.
            pub fn load(&self, ordering: Ordering) -> $value {
                fenced(ordering, Ordering::Acquire, |ordering| self.0.load(ordering))
            }

            /// As the one of std.
            pub fn store(&self, value: $value, ordering: Ordering) {
                let is_exchange = ordering == Ordering::SeqCst;
                fenced(ordering, Ordering::Release, |ordering| match is_exchange {
                    true => drop(self.0.swap(value, ordering)),
                    false => self.0.store(value, ordering),
                });
            }

            /// As the one of std.
            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                fenced(ordering, Ordering::AcqRel, |ordering| self.0.swap(value, ordering))
            }

            /// As the one of std.
            ///
            /// # Errors
            ///
            /// The value, if it is another.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let failure = if failure == Ordering::SeqCst { Ordering::Acquire } else { failure };
                fenced(success, Ordering::AcqRel, |success| {
                    self.0.compare_exchange(current, new, success, failure)
                })
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        word!($name, $value);

        impl $name {
            /// As the one of std.
            pub fn fetch_or(&self, bits: $value, ordering: Ordering) -> $value {
                fenced(ordering, Ordering::AcqRel, |ordering| self.0.fetch_or(bits, ordering))
            }

            /// As the one of std.
            pub fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                fenced(ordering, Ordering::AcqRel, |ordering| self.0.fetch_add(value, ordering))
            }

            /// As the one of std.
            pub fn fetch_sub(&self, value: $value, ordering: Ordering) -> $value {
                fenced(ordering, Ordering::AcqRel, |ordering| self.0.fetch_sub(value, ordering))
            }

            /// As the one of std.
            pub fn fetch_max(&self, value: $value, ordering: Ordering) -> $value {
                fenced(ordering, Ordering::AcqRel, |ordering| self.0.fetch_max(value, ordering))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    };
}

word!(AtomicBool, bool);
number!(AtomicU8, u8);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

/// What a thread sleeps on until somebody rings, in place of an event's descriptor: it remembers one ring. Where nobody is left to ring, a
/// sleep on it fails the test.
#[derive(Debug)]
pub struct Event {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Event {
    /// One that nobody has rung.
    #[must_use]
    pub fn new() -> Event {
        Event { is_rung: Mutex::new(false), rung: Condvar::new() }
    }

    /// Ends the sleep that is, or the next one.
    ///
    /// # Panics
    ///
    /// No: the checker's locks are not poisoned.
    pub fn ring(&self) {
        *self.is_rung.lock().expect("not poisoned") = true;
        self.rung.notify_one();
    }

    /// Sleeps until there is a ring, and takes it.
    ///
    /// # Panics
    ///
    /// If none comes.
    pub fn wait(&self) {
        let mut is_rung = self.is_rung.lock().expect("not poisoned");
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).expect("not poisoned");
        }
        *is_rung = false;
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}
