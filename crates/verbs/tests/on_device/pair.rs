//! Both ends of a connection in one thread, each with a fabric of its own.

use std::time::{Duration, Instant};

use windlass_fabric::{
    Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric, Status,
};
use windlass_verbs::{VerbsCompletionQueue, VerbsConnection, VerbsFabric, VerbsOptions};

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct End {
    pub(crate) fabric: VerbsFabric,
    pub(crate) queue: VerbsCompletionQueue,
}

impl End {
    pub(crate) fn new() -> End {
        End::with(&VerbsOptions::default())
    }

    pub(crate) fn with(options: &VerbsOptions) -> End {
        let fabric = VerbsFabric::open(options).expect("a device");
        let queue = fabric.completion_queue(256).expect("a completion queue");
        End { fabric, queue }
    }

    pub(crate) fn connection(&self) -> VerbsConnection {
        let options = ConnectionOptions { send_depth: 16, receive_depth: 16, inline_bytes: 32 };
        self.fabric.connection(&self.queue, &options).expect("a connection")
    }

    /// The next completion.
    pub(crate) fn next(&mut self) -> Completion {
        let end = Instant::now() + LIMIT;
        let mut one = [Completion::BLANK];
        loop {
            if self.queue.poll(&mut one).expect("to poll") == 1 {
                return one[0];
            }
            assert!(Instant::now() < end, "no completion within {LIMIT:?}");
            self.queue.wait(Duration::from_millis(100)).expect("to wait");
        }
    }

    /// The next completion, which is that of `id`.
    pub(crate) fn done(&mut self, id: u64, status: Status) -> Completion {
        let completion = self.next();
        assert_eq!((completion.id, completion.status), (id, status), "{completion:?}");
        completion
    }
}

/// Connects two ends.
pub(crate) fn connect(one: &mut VerbsConnection, other: &mut VerbsConnection) {
    let (at_one, at_other) = (one.endpoint().to_vec(), other.endpoint().to_vec());
    one.connect(&at_other).expect("to connect");
    other.connect(&at_one).expect("to connect");
    assert_eq!((one.state(), other.state()), (ConnectionState::Ready, ConnectionState::Ready));
}
