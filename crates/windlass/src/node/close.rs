//! How a node's closing fails, in words.

use windlass_engine::StopReason;
use windlass_store::StoreError;

/// A node that did not end well. The next opening recovers it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeCloseError {
    /// The last flush or the clean mark failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It had stopped before, its log lacks what damage has taken, or something was still in flight, such as a reservation: no clean mark was written, and the next
    /// opening recovers the log as after a crash.
    #[error("{}: no clean mark was written, and the next opening recovers the log", unclean_text(stopped.as_ref()))]
    Unclean {
        /// Why it had stopped, if it had.
        stopped: Option<StopReason>,
    },
    /// It was closed by a waker that the node ran on a thread of its own, which can't wait for its end: it ends once that waker has returned. Close it from a
    /// thread of the application to hear how.
    #[error("the node was closed by a waker on its own thread: it ends once that has returned")]
    Within,
}

fn unclean_text(stopped: Option<&StopReason>) -> String {
    stopped.map_or_else(
        || {
            String::from(
                "the log lacks what damage has taken, or something was still in flight, such as a reservation or a request",
            )
        },
        |reason| format!("the node had stopped before ({reason})"),
    )
}

#[cfg(test)]
mod tests {
    use windlass_engine::StopReason as Why;
    use windlass_log::{Lsn, MemberId};

    use super::*;

    #[test]
    fn who_closes_a_node_is_told_in_words_why_there_is_no_clean_mark() {
        let reasons = [
            Why::FlushFailed,
            Why::Removed { configuration: 7 },
            Why::HandedOver { to: MemberId(2) },
            Why::Contradiction { at: Lsn(4096), durable: Lsn(8192) },
        ];
        for reason in reasons {
            let (words, value) = (reason.to_string(), format!("{reason:?}"));
            let told = NodeCloseError::Unclean { stopped: Some(reason) }.to_string();
            assert!(told.contains(&words) && !told.contains(&value), "{told}");
        }
        let told = NodeCloseError::Unclean { stopped: None }.to_string();
        assert!(!told.contains("None") && !told.contains("stopped"), "it had not: {told}");
        assert!(told.contains("damage") && told.contains("in flight"), "{told}");
    }
}
