//! Recovery's decision table: from what an opening finds to what it does. DESIGN.md section 6.1.
//!
//! ```text
//!  folder, superblock, files, the scan's stop, marks ──▶ Facts ──▶ Row (D-1 …) ──▶ Action
//!  closed cleanly? a copy? lone or a member?         ──▶ Going ──▶ Onward (D-27 …): what is written before the log goes on
//! ```
//!
//! The table lies in [`table`] and nowhere else: whoever opens a log gathers facts and asks. Each row is a conjunction of conditions, and its words in DESIGN.md are
//! made of them, so that the page can't say anything else. Invariants, each tested over every combination of facts there can be:
//!
//! * exactly one row matches;
//! * a row of an earlier step (superblock, place, files) matches whatever the later steps would have found;
//! * only [`Class::End`] opens as it is, only [`Class::Torn`] is cut, and what was flushed is never cut.
//!
//! Not for this table: what keeps an opening from looking at the log at all (another process has it, a filesystem without promises, a failed system call).

mod onward;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::Verdict;
pub use onward::{Going, Onward, Rewrite};
use table::row_of;

/// Who a log belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Holder {
    /// Nobody else: its end and its epochs are its own to decide.
    Lone,
    /// A member of a group: its end and its epochs are its primary's, and its peers have what it has lost.
    Member,
}

/// What was found of the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Superblocks {
    /// No such file, and no segment either.
    Absent,
    /// No such file, beside segments.
    AbsentBesideSegments,
    /// Neither copy is whole.
    Damaged,
    /// A copy is whole and of another version, byte order or with unknown features; or the copies are of two members.
    Foreign,
    /// It is another log's than the one asked for.
    OtherLog,
    /// At least one copy is whole, and it is this log's. The other one, if damaged or older, is mended; that changes no row.
    Usable,
}

/// Whether the folder is where its superblock was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// It is.
    Own,
    /// It is a copy.
    Copy,
    /// It is a copy, to be taken over by order.
    CopyToTakeOver,
}

/// The segments that the scan does not read: below those that it reads, from the trim point's on, and of a log that is to be repaired those behind the damage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Older {
    /// Each is there, with its header.
    Whole,
    /// One is not there.
    Missing,
    /// One has a damaged header.
    BadHeader,
    /// One has a whole header of another log, place, version or byte order.
    Foreign,
}

/// What the scan found at its stop, by what it can mean.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Found {
    /// Zeros.
    Blank,
    /// An earlier life of the file, or another epoch.
    Leftover,
    /// A record that was begun.
    Begun,
    /// No segment, or one with a blank header.
    NoSegment,
    /// A segment with a damaged header.
    BadSegmentHeader,
    /// A segment with a whole header of another log, place, version or byte order.
    ForeignSegment,
    /// A whole record of an unknown kind.
    LaterRecord,
    /// A segment-start record that follows other records, or a record where none of its kind may be.
    WrongChain,
    /// An LSN that the history gives no epoch, though it has some.
    NoEpoch,
    /// The history has no epoch at all.
    NoEpochs,
}

/// Where the clean mark is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CleanMark {
    /// There is none.
    Absent,
    /// At the stop, or above it: then everything up to it was flushed.
    AtStop,
    /// Below the stop.
    BelowStop,
}

/// What the table is asked about. An opening looks in this order, and asks as soon as it has seen something that is not as in [`Facts::SOUND`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Facts {
    /// The superblock.
    pub superblocks: Superblocks,
    /// Whose log it is.
    pub holder: Holder,
    /// Whether the folder is a copy.
    pub place: Place,
    /// Whether something that has a segment's name is no plain file, or of a wrong length or at a place that is no segment's.
    pub misfit: bool,
    /// Whether a whole record of this log, in its own place, is of an epoch above the superblock's promise: [`newer`](crate::newer()).
    pub newer: bool,
    /// Segments that are not read.
    pub older: Older,
    /// What stands where the whole records end.
    pub found: Found,
    /// Whether the stop is below what was flushed: below the persisted mark, the clean mark, or what the lag of a whole record behind it proves.
    pub flushed: bool,
    /// Where the clean mark is.
    pub clean: CleanMark,
    /// Whether whole records stand behind the stop.
    pub behind: bool,
    /// Whether the stop is below what the superblock says that the member may have acknowledged (R-18).
    pub missed: bool,
}

impl Facts {
    /// Nothing is amiss, and the log ends in blank memory.
    pub const SOUND: Facts = Facts {
        superblocks: Superblocks::Usable,
        holder: Holder::Lone,
        place: Place::Own,
        misfit: false,
        newer: false,
        older: Older::Whole,
        found: Found::Blank,
        flushed: false,
        clean: CleanMark::Absent,
        behind: false,
        missed: false,
    };

    /// These facts about superblock, place and files, and the verdict's about bytes and marks.
    #[must_use]
    pub fn at(self, verdict: &Verdict) -> Facts {
        let Facts { found, flushed, clean, behind, .. } = verdict.facts;
        Facts { found, flushed, clean, behind, ..self }
    }

    /// The one row that matches.
    ///
    /// # Panics
    ///
    /// If none does, or more than one: the table has a defect.
    #[must_use]
    pub fn row(&self) -> Row {
        row_of(self)
    }

    /// What an opening in this mode does.
    #[must_use]
    pub fn action(&self, mode: OpenMode) -> Action {
        self.row().action(mode, self.holder)
    }
}

/// How to open a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpenMode {
    /// Any damage and any torn tail refuses.
    Strict,
    /// A torn tail is cut; damage refuses a lone log, and leaves a member's to be repaired by its peers.
    #[default]
    Tail,
    /// Read-only: whatever is whole, holes marked.
    Salvage,
}

/// A row of the decision table: what was found. [`Row::label`] and [`Row::when`] say it as DESIGN.md section 6.1 does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Row {
    /// There is no log.
    NoLog,
    /// There are segments and no superblock.
    SuperblockMissing,
    /// Neither copy of the superblock is whole.
    SuperblockDamaged,
    /// The superblock is another version's, or its copies are two members'.
    SuperblockForeign,
    /// It is not the log asked for.
    OtherLog,
    /// A member's folder was copied: two members with one identity must never vote.
    FolderCopied,
    /// A segment's file has a wrong length or name.
    SegmentMisfit,
    /// The log has records of an epoch above the superblock's promise, which is durable before the first of them is written: the superblock is from before.
    SuperblockOlder,
    /// A segment that the verdict did not look into is gone.
    OlderSegmentMissing,
    /// A segment that the verdict did not look into has lost its header.
    OlderSegmentDamaged,
    /// A segment that the verdict did not look into is whole and belongs elsewhere.
    OlderSegmentForeign,
    /// A segment's file is whole and belongs elsewhere.
    ForeignSegment,
    /// A whole record that this version does not know.
    LaterVersion,
    /// The records before a segment are not the ones that it followed.
    ChainBroken,
    /// The superblock's history does not cover the log.
    HistoryGap,
    /// The superblock has no history, though it says that there was a log.
    HistoryLost,
    /// The log has no epoch yet, hence no records.
    NeverLed,
    /// A record that was flushed is not whole.
    RecordDamaged,
    /// A segment that held flushed records is gone or has lost its header.
    SegmentLost,
    /// Whole records lie beyond the clean mark, which is cleared before the first of them is written: the superblock is older than the log, whatever else is amiss there.
    PastCleanMark,
    /// The log ends at its clean mark.
    CleanEnd,
    /// The log ends in memory that nobody wrote.
    EndBlank,
    /// The log ends in what an earlier life of the file, or a suffix that was cut, left there.
    EndLeftover,
    /// The log ends in a record that was being written.
    TornTail,
    /// Records behind a hole, none of them known to be flushed: pages reached the medium out of order.
    HoleBehind,
    /// A member's log ends, by all that its bytes and marks say, and below what it may have acknowledged.
    EndMissed,
}

/// What a row means for opening.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// The log simply ends.
    End,
    /// Something unflushed was lost; nothing that was promised.
    Torn,
    /// Something that was flushed is lost.
    Damage,
    /// Not for this library, or not this log.
    Foreign,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Open at the tail.
    Open,
    /// Open at the tail, having cut what is behind it: durably, and before the first append (failure kind 4).
    Cut,
    /// What is below the first damage is whole, and what is lost the peers have: the member may take part again once they have given it back, and must
    /// neither vote with what it lost nor lead before (R-18). Nothing that was flushed is to be changed before it is there again.
    Repair,
    /// Don't open. Nothing is changed.
    Refuse,
    /// Open read-only; whole records behind the stop are found by [`Scan::resync`](crate::Scan::resync).
    ReadOnly,
}

impl Row {
    /// What the row means.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Row::NeverLed | Row::CleanEnd | Row::EndBlank | Row::EndLeftover => Class::End,
            Row::TornTail | Row::HoleBehind => Class::Torn,
            Row::SuperblockMissing
            | Row::SuperblockDamaged
            | Row::SegmentMisfit
            | Row::SuperblockOlder
            | Row::OlderSegmentMissing
            | Row::OlderSegmentDamaged
            | Row::ChainBroken
            | Row::HistoryGap
            | Row::HistoryLost
            | Row::RecordDamaged
            | Row::SegmentLost
            | Row::PastCleanMark
            | Row::EndMissed => Class::Damage,
            Row::NoLog
            | Row::SuperblockForeign
            | Row::OtherLog
            | Row::FolderCopied
            | Row::OlderSegmentForeign
            | Row::ForeignSegment
            | Row::LaterVersion => Class::Foreign,
        }
    }

    /// What to do in this mode.
    #[must_use]
    pub fn action(self, mode: OpenMode, holder: Holder) -> Action {
        match (mode, self.class()) {
            (OpenMode::Salvage, _) if self.has_superblock() => Action::ReadOnly,
            (OpenMode::Strict | OpenMode::Tail, Class::End) => Action::Open,
            (OpenMode::Tail, Class::Torn) => Action::Cut,
            (OpenMode::Tail, Class::Damage) if holder == Holder::Member && self.peers_have_it() => {
                Action::Repair
            }
            (OpenMode::Salvage, _)
            | (OpenMode::Strict, Class::Torn)
            | (OpenMode::Strict | OpenMode::Tail, Class::Damage | Class::Foreign) => Action::Refuse,
        }
    }

    /// Whether there is a superblock of this log to go by.
    fn has_superblock(self) -> bool {
        !matches!(
            self,
            Row::NoLog
                | Row::SuperblockMissing
                | Row::SuperblockDamaged
                | Row::SuperblockForeign
                | Row::OtherLog
        )
    }

    /// Whether the damage is one of the log's bytes, which a group's other members hold too. What a superblock says (its promise, its history, how far it
    /// answered for) nobody else has; records above the promise, or behind the clean mark, mean a superblock that is older than the log; and where something has been at the files it is for
    /// whoever operates the member to take it away.
    fn peers_have_it(self) -> bool {
        matches!(
            self,
            Row::OlderSegmentMissing
                | Row::OlderSegmentDamaged
                | Row::ChainBroken
                | Row::RecordDamaged
                | Row::SegmentLost
                | Row::EndMissed
        )
    }
}
