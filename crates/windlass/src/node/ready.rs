//! Threads that are made before there is work for them: one that the system does not give is then why the node does not open, and not why it ends.

use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use super::NodeError;

/// A thread that waits for what it is to do. Dropped, it ends.
pub(super) struct Ready {
    begin: Sender<Box<dyn FnOnce() + Send>>,
    thread: JoinHandle<()>,
}

impl Ready {
    pub(super) fn make(name: String) -> Result<Ready, NodeError> {
        let (begin, begun) = channel::<Box<dyn FnOnce() + Send>>();
        let thread = Builder::new().name(name).spawn(move || {
            if let Ok(body) = begun.recv() {
                body();
            }
        });
        Ok(Ready { begin, thread: thread.map_err(NodeError::Thread)? })
    }

    pub(super) fn begin(self, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        // It ends for nothing else before.
        let _ = self.begin.send(Box::new(body));
        self.thread
    }
}
