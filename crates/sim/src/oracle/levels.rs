//! What one machine stands for: an append acknowledged at `Local` is in its log after a loss of power there, one at `Buffered` after
//! its process was killed; until a later primary cuts it.

use windlass::{Level, Lsn};

use super::{Checked, violated};

const NAME: &str = "levels of one machine";

/// What a member's log must reach when it is opened again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floors {
    buffered: Lsn,
    local: Lsn,
}

impl Floors {
    /// A commit succeeded.
    pub(crate) fn acknowledged(&mut self, level: Level, end: Lsn) {
        self.buffered = self.buffered.max(end);
        match level {
            Level::Local => self.local = self.local.max(end),
            // A quorum of others stands for it.
            Level::Durable | Level::Replicated | Level::Buffered => {}
        }
    }

    /// Another primary's word counts from here on: it may have cut.
    pub(crate) fn forget(&mut self) {
        *self = Floors::default();
    }

    /// The member was opened again.
    pub(crate) fn opened(&self, member: u8, tail: Lsn, lost_power: bool) -> Checked {
        let (floor, level) =
            if lost_power { (self.local, Level::Local) } else { (self.buffered, Level::Buffered) };
        if tail < floor {
            return violated(
                NAME,
                format!("member {member} opens with a log up to {tail}, acknowledged at {level} was {floor}"),
            );
        }
        Ok(())
    }
}
