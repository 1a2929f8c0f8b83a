//! What is written before a log that opens goes on: the table's second part.

use alloc::string::String;

use super::Holder;

/// What the second part is asked about: a log that opens, at the tail that the first part found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Going {
    /// Whose log it is.
    pub holder: Holder,
    /// Whether it was closed cleanly.
    pub clean: bool,
    /// Whether the folder is a copy.
    pub copied: bool,
    /// Whether the chain at the tail is known.
    pub chain: bool,
}

/// A row of the second part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Onward {
    /// A lone log that was closed: it goes on in its epoch.
    Closed,
    /// A lone log that was closed, and whose scan met nothing to take the chain from: a new epoch begins at the tail.
    ClosedUnchained,
    /// A lone log that was not closed: a new epoch begins at the tail.
    Crashed,
    /// A copy of a lone log: a new epoch and incarnation, and nothing vouches for its bytes.
    Copied,
    /// A member's log that was closed: as it is.
    MemberClosed,
    /// A member's log that was not closed: its history is its primary's to go on with.
    MemberCrashed,
    /// A copy of a member's log, taken over as a new incarnation.
    MemberCopied,
}

/// What is written again and flushed before anything is said of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rewrite {
    /// Nothing: closing flushed all of it.
    Nothing,
    /// From the persisted mark to the tail.
    FromMark,
    /// From the trim point to the tail: the marks are of another folder's medium.
    FromTrim,
}

/// The rows, in order; labels go on behind those of the first part.
const ROWS: [Onward; 7] = [
    Onward::Closed,
    Onward::ClosedUnchained,
    Onward::Crashed,
    Onward::Copied,
    Onward::MemberClosed,
    Onward::MemberCrashed,
    Onward::MemberCopied,
];

impl Going {
    /// The one row that matches.
    ///
    /// # Panics
    ///
    /// If none does, or more than one: the table has a defect.
    #[must_use]
    pub fn row(&self) -> Onward {
        let mut rows = ROWS.into_iter().filter(|row| row.matches(self));
        let row = rows.next();
        assert!(row.is_some() && rows.next().is_none(), "exactly one row matches {self:?}");
        row.expect("just asserted")
    }
}

impl Onward {
    /// Every row, in order.
    #[must_use]
    pub fn all() -> [Onward; 7] {
        ROWS
    }

    fn matches(self, going: &Going) -> bool {
        let Going { holder, clean, copied, chain } = *going;
        let own = |of| holder == of && !copied;
        match self {
            Onward::Closed => own(Holder::Lone) && clean && chain,
            Onward::ClosedUnchained => own(Holder::Lone) && clean && !chain,
            Onward::Crashed => own(Holder::Lone) && !clean,
            Onward::Copied => holder == Holder::Lone && copied,
            Onward::MemberClosed => own(Holder::Member) && clean,
            Onward::MemberCrashed => own(Holder::Member) && !clean,
            Onward::MemberCopied => holder == Holder::Member && copied,
        }
    }

    /// The row's label in DESIGN.md.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn label(self) -> String {
        let place = ROWS.iter().position(|row| *row == self).expect("each row is in the list");
        alloc::format!("D-{}", super::table::TABLE.len() + 1 + place)
    }

    /// When the row matches, in words.
    #[must_use]
    pub fn when(self) -> &'static str {
        match self {
            Onward::Closed => "lone, closed cleanly, the chain at the tail is known",
            Onward::ClosedUnchained => "lone, closed cleanly, the chain is not known",
            Onward::Crashed => "lone, not closed cleanly",
            Onward::Copied => "lone, a copy",
            Onward::MemberClosed => "member, closed cleanly",
            Onward::MemberCrashed => "member, not closed cleanly",
            Onward::MemberCopied => "member, a copy to be taken over",
        }
    }

    /// What is written again and flushed.
    #[must_use]
    pub fn rewrite(self) -> Rewrite {
        match self {
            Onward::Closed | Onward::ClosedUnchained | Onward::MemberClosed => Rewrite::Nothing,
            Onward::Crashed | Onward::MemberCrashed => Rewrite::FromMark,
            Onward::Copied | Onward::MemberCopied => Rewrite::FromTrim,
        }
    }

    /// Whether a new epoch begins at the tail.
    #[must_use]
    pub fn begins_epoch(self) -> bool {
        matches!(self, Onward::ClosedUnchained | Onward::Crashed | Onward::Copied)
    }

    /// Whether the superblock is written: mark, boot id, place and what the other columns say.
    #[must_use]
    pub fn settles(self) -> bool {
        !matches!(self, Onward::Closed | Onward::MemberClosed)
    }

    /// Whether the member gets a new incarnation.
    #[must_use]
    pub fn reincarnates(self) -> bool {
        matches!(self, Onward::Copied | Onward::MemberCopied)
    }
}
