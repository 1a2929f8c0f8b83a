//! The page that a session's first batch begins in, where this log has not all of its head: the log begins in it, at a checkpoint or since it was
//! trimmed. A device that moves whole pages sends that head over what the peer has, so it is sent as the peer has it.
//!
//! ```text
//!  the peer's page:  |   head   | ··········· |   read once, before the first batch, into memory of the session's own
//!  what is sent:     |   head   | batch | ··· |   from there, as long as batches begin in that page
//! ```
//!
//! Invariant: nothing of that head that is not the peer's is written to the peer, and nothing of it comes into this log. What has rotted of it there stays
//! as it is: its reader or scrub finds it, and nobody here vouches for it.

use std::ops::Range;

use windlass_engine::{LsnRange, Notice};
use windlass_log::Lsn;

/// A batch that waits for the page.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) range: LsnRange,
    pub(super) notice: Notice,
    pub(super) slot: u32,
}

/// How the first page of a session stands.
#[derive(Debug, Default)]
enum State {
    /// Nothing was sent yet that has a page.
    #[default]
    Unsent,
    /// It is this log's.
    Own,
    /// The peer's is being read; if it is not here by then the session ends.
    Reading { page: Range<Lsn>, deadline_ns: u64 },
    /// The head is the peer's, and is here.
    Peers { page: Range<Lsn> },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FirstPage {
    state: State,
    /// Batches that wait for the page, oldest first.
    held: Vec<Held>,
}

impl FirstPage {
    /// Whether no batch has begun anywhere yet.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(self.state, State::Unsent)
    }

    /// The first batch begins in a page that is this log's, or whose head is being read from the peer.
    pub(super) fn begin(&mut self, peers: Option<(Range<Lsn>, u64)>) {
        self.state = match peers {
            None => State::Own,
            Some((page, deadline_ns)) => State::Reading { page, deadline_ns },
        };
    }

    /// The page is here.
    pub(super) fn arrived(&mut self) {
        if let State::Reading { page, .. } = &self.state {
            self.state = State::Peers { page: page.clone() };
        }
    }

    /// Whether batches have to wait.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.state, State::Reading { .. })
    }

    /// Whether it has not come in time.
    pub(super) fn is_late(&self, now: u64) -> bool {
        matches!(&self.state, State::Reading { deadline_ns, .. } if now >= *deadline_ns)
    }

    /// The page whose head is the peer's, once it is here.
    pub(super) fn peers(&self) -> Option<Range<Lsn>> {
        match &self.state {
            State::Peers { page } => Some(page.clone()),
            State::Unsent | State::Own | State::Reading { .. } => None,
        }
    }

    /// A batch waits.
    pub(super) fn hold(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Batches that wait.
    pub(super) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    /// What has waited and can be sent now.
    pub(super) fn take_ready(&mut self) -> Vec<Held> {
        if self.is_awaited() { Vec::new() } else { std::mem::take(&mut self.held) }
    }
}

/// A stretch of one segment, cut in two where such a page ends in it.
pub(super) fn split(part: LsnRange, peers: Option<&Range<Lsn>>) -> [Option<LsnRange>; 2] {
    match peers {
        Some(page) if page.contains(&part.start) && page.end < part.end => {
            [Some(LsnRange::new(part.start, page.end)), Some(LsnRange::new(page.end, part.end))]
        }
        Some(_) | None => [Some(part), None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> LsnRange {
        LsnRange::new(Lsn(start), Lsn(end))
    }

    #[test]
    fn what_begins_in_such_a_page_is_cut_where_the_page_ends() {
        let page = Lsn(8192)..Lsn(12_288);
        let cut = |part| split(part, Some(&page));
        assert_eq!(cut(range(9000, 9100)), [Some(range(9000, 9100)), None]);
        assert_eq!(cut(range(9000, 12_288)), [Some(range(9000, 12_288)), None]);
        assert_eq!(cut(range(9000, 20_000)), [Some(range(9000, 12_288)), Some(range(12_288, 20_000))]);
        assert_eq!(cut(range(12_288, 20_000)), [Some(range(12_288, 20_000)), None]);
        assert_eq!(split(range(9000, 20_000), None), [Some(range(9000, 20_000)), None]);
    }

    #[test]
    fn batches_wait_for_the_page_and_no_longer_than_it_may_take() {
        let notice = |sequence| Notice {
            session: windlass_engine::Session { epoch: windlass_log::Epoch::NONE, attempt: 1 },
            sequence,
            tail: Lsn(0),
            replicated: Lsn(0),
            durable: Lsn(0),
            wanted: Lsn(0),
        };
        let mut first = FirstPage::default();
        assert!(first.is_unsent() && !first.is_awaited());
        first.begin(Some((Lsn(8192)..Lsn(12_288), 500)));
        assert!(!first.is_unsent() && first.is_awaited() && first.peers().is_none());
        for sequence in 0..3 {
            first.hold(Held { range: range(9000, 9100), notice: notice(sequence), slot: 0 });
        }
        assert!(!first.is_late(499) && first.is_late(500));
        assert!(first.take_ready().is_empty() && first.held() == 3);
        first.arrived();
        assert!(!first.is_late(900));
        assert_eq!(first.peers(), Some(Lsn(8192)..Lsn(12_288)));
        let ready: Vec<u64> = first.take_ready().iter().map(|held| held.notice.sequence).collect();
        assert_eq!((ready, first.held()), (vec![0, 1, 2], 0));
    }

    #[test]
    fn a_page_of_this_log_is_waited_for_by_nobody() {
        let mut first = FirstPage::default();
        first.begin(None);
        assert!(!first.is_unsent() && !first.is_awaited() && !first.is_late(u64::MAX));
        first.arrived();
        assert_eq!(first.peers(), None);
    }
}
