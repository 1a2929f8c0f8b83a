//! How many clients a member serves: a bounded number, so that whoever opens connections and leaves them open, or proves nothing, takes neither the
//! descriptors that the log needs nor the places of those who come later.
//! Not for who may be a client: that is the proof (`client::admit`).

use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The most clients of a process that has descriptors enough: each takes one, and two threads.
const CLIENTS_MAX: usize = 256;
/// Of this process's descriptors clients take one in so many.
const SHARE: u64 = 4;
/// How often the same is said.
const SELDOM: Duration = Duration::from_secs(30);

/// The connections that are served.
#[derive(Debug)]
pub(super) struct Clients {
    max: usize,
    served: Mutex<Served>,
}

#[derive(Debug, Default)]
struct Served {
    /// How many have proved themselves.
    proved: usize,
    /// Those that have not, oldest first.
    strangers: VecDeque<Weak<UnixStream>>,
}

/// A client's place, free again once this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    clients: Arc<Clients>,
    stream: Weak<UnixStream>,
    is_proved: bool,
}

/// As many clients as a member serves have proved themselves, and are here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this member serves {max} clients, the most that it takes (a quarter of its limit of open files, {CLIENTS_MAX} at most): end some of them"
)]
pub(super) struct Crowded {
    max: usize,
}

impl Clients {
    /// For a process that may have so many descriptors; without a number there is no limit to them.
    pub(super) fn new(descriptors_max: Option<u64>) -> Arc<Clients> {
        let share = descriptors_max.map_or(u64::MAX, |max| max / SHARE);
        let max = usize::try_from(share).unwrap_or(usize::MAX).clamp(1, CLIENTS_MAX);
        Arc::new(Clients { max, served: Mutex::default() })
    }

    /// A place for one that has not proved itself. Where all are taken the one that has gone longest without a proof makes room: its connection is shut down, so
    /// that whoever serves it ends.
    pub(super) fn take(self: &Arc<Clients>, stream: &Arc<UnixStream>) -> Result<Place, Crowded> {
        let mut served = self.served();
        if served.proved >= self.max {
            return Err(Crowded { max: self.max });
        }
        if served.proved + served.strangers.len() >= self.max
            && let Some(oldest) = served.strangers.pop_front().and_then(|oldest| oldest.upgrade())
        {
            // It fails where the client has left already.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let stream = Arc::downgrade(stream);
        served.strangers.push_back(Weak::clone(&stream));
        Ok(Place { clients: Arc::clone(self), stream, is_proved: false })
    }

    fn served(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Served {
    /// `false` if it has made room for another.
    fn forget(&mut self, stranger: &Weak<UnixStream>) -> bool {
        let at = self.strangers.iter().position(|other| other.ptr_eq(stranger));
        at.is_some_and(|at| self.strangers.remove(at).is_some())
    }
}

impl Place {
    /// The client has proved itself, and makes room for nobody.
    pub(super) fn prove(&mut self) {
        let mut served = self.clients.served();
        if served.forget(&self.stream) {
            served.proved += 1;
            self.is_proved = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut served = self.clients.served();
        if self.is_proved {
            served.proved -= 1;
        } else {
            served.forget(&self.stream);
        }
    }
}

/// Lines of one kind, which strangers can cause: one in 30 s, that says how many were left out before it.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    said: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    /// Whether a line may be written now: then how many were left out since the last one.
    pub(super) fn take(&self, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = &mut *said;
        if last.is_some_and(|last| now.saturating_duration_since(last) < SELDOM) {
            *unsaid += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(unsaid))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn client() -> (Arc<UnixStream>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        (Arc::new(near), far)
    }

    /// `None` if its connection was shut down.
    fn is_served(far: &mut UnixStream) -> bool {
        !matches!(far.read(&mut [0]), Ok(0))
    }

    #[test]
    fn strangers_make_room_for_others_and_for_no_client_that_has_proved_itself() {
        let clients = Clients::new(Some(16));
        let mut here: Vec<_> = (0..4)
            .map(|_| {
                let (near, far) = client();
                (clients.take(&near).unwrap(), near, far)
            })
            .collect();
        here[1].0.prove();
        for turn in 0..100 {
            let (near, far) = client();
            here.push((clients.take(&near).unwrap(), near, far));
            let served: Vec<usize> = here
                .iter_mut()
                .enumerate()
                .filter_map(|(at, (.., far))| is_served(far).then_some(at))
                .collect();
            assert_eq!(served.len(), 4, "turn {turn}: {served:?}");
            assert!(served.contains(&1) && served.contains(&(4 + turn)), "turn {turn}: {served:?}");
        }
        // One that has made room and proves itself too late has no place.
        here[0].0.prove();
        let proved: Vec<usize> = (101..104).collect();
        proved.iter().for_each(|at| here[*at].0.prove());
        let (near, _far) = client();
        assert_eq!(clients.take(&near).unwrap_err(), Crowded { max: 4 });
        // Places come back, also of those that made room.
        here.clear();
        let held: Vec<_> = (0..4)
            .map(|_| {
                let (near, far) = client();
                let mut place = clients.take(&near).unwrap();
                place.prove();
                (place, near, far)
            })
            .collect();
        assert!(clients.take(&near).is_err());
        drop(held);
        let served = clients.served();
        assert_eq!((served.proved, served.strangers.len()), (0, 0));
    }

    #[test]
    fn clients_have_a_quarter_of_the_descriptors_and_there_is_room_for_one() {
        for (descriptors, max) in
            [(Some(0), 1), (Some(64), 16), (Some(1024), 256), (Some(1 << 20), 256), (None, 256)]
        {
            assert_eq!(Clients::new(descriptors).max, max, "{descriptors:?}");
        }
    }

    #[test]
    fn the_same_is_said_seldom_and_what_was_left_out_is_counted() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        let said: Vec<u64> =
            (0..60_001).filter_map(|ms| seldom.take(start + Duration::from_millis(ms))).collect();
        assert_eq!(said, [0, 29_999, 29_999]);
    }
}
