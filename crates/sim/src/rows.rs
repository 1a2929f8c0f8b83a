//! Rows of recovery's decision table (DESIGN.md section 6.1) that openings come to, each a mark of the coverage: in place, or where the harm that leads there is done to a copy (`harms`, `lone`, and D-8 in `world::member`).

use windlass_log::{Onward, Row};
use windlass_store::Opened;

use crate::coverage::Mark;

/// Marks both rows of a log that was opened.
pub(crate) fn opened(opened: &Opened, mut mark: impl FnMut(Mark)) {
    mark(found(opened.verdict.row));
    mark(went_on(opened.onward));
}

/// The mark of what an opening found.
pub(crate) fn found(row: Row) -> Mark {
    match row {
        Row::NoLog => Mark::FoundNoLog,
        Row::SuperblockMissing => Mark::FoundSuperblockMissing,
        Row::SuperblockDamaged => Mark::FoundSuperblockDamaged,
        Row::SuperblockForeign => Mark::FoundSuperblockForeign,
        Row::OtherLog => Mark::FoundOtherLog,
        Row::FolderCopied => Mark::FoundFolderCopied,
        Row::SegmentMisfit => Mark::FoundSegmentMisfit,
        Row::SuperblockOlder => Mark::OlderSuperblock,
        Row::OlderSegmentMissing => Mark::FoundOlderSegmentMissing,
        Row::OlderSegmentDamaged => Mark::FoundOlderSegmentDamaged,
        Row::OlderSegmentForeign => Mark::FoundOlderSegmentForeign,
        Row::ForeignSegment => Mark::FoundForeignSegment,
        Row::LaterVersion => Mark::FoundLaterVersion,
        Row::ChainBroken => Mark::FoundChainBroken,
        Row::HistoryGap => Mark::FoundHistoryGap,
        Row::HistoryLost => Mark::FoundHistoryLost,
        Row::NeverLed => Mark::FoundNeverLed,
        Row::RecordDamaged => Mark::FoundRecordDamaged,
        Row::SegmentLost => Mark::FoundSegmentLost,
        Row::PastCleanMark => Mark::FoundPastCleanMark,
        Row::CleanEnd => Mark::FoundCleanEnd,
        Row::EndBlank => Mark::FoundEndBlank,
        Row::EndLeftover => Mark::FoundEndLeftover,
        Row::TornTail => Mark::FoundTornTail,
        Row::HoleBehind => Mark::FoundHoleBehind,
        Row::EndMissed => Mark::FoundEndMissed,
    }
}

/// The mark of how a log went on.
pub(crate) fn went_on(onward: Onward) -> Mark {
    match onward {
        Onward::Closed => Mark::WentOnClosed,
        Onward::ClosedUnchained => Mark::WentOnClosedUnchained,
        Onward::Crashed => Mark::WentOnCrashed,
        Onward::Copied => Mark::WentOnCopied,
        Onward::MemberClosed => Mark::WentOnMemberClosed,
        Onward::MemberCrashed => Mark::WentOnMemberCrashed,
        Onward::MemberCopied => Mark::WentOnMemberCopied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark says which row it is by the row's label.
    #[test]
    fn a_mark_of_the_recovery_table_names_its_row() {
        let rows = Row::all().into_iter().map(|row| (row.label(), found(row)));
        let onward = Onward::all().into_iter().map(|row| (row.label(), went_on(row)));
        for (label, mark) in rows.chain(onward) {
            let is_named = mark.name().starts_with(&format!("recovery: {label}, "));
            assert!(is_named || mark == Mark::OlderSuperblock, "{}: {label}", mark.name());
        }
    }
}
